"""BERT masked-LM training, linen, nn.scan over layers, lamb, dropout."""

TRUTH = {
    "majors": {
        "BertEncoder forward": 0.25,
        "BertEncoder backward": 0.5,
        "MLMHead fwd+bwd": 0.25,
        "mask_tokens": 0.0,
        "lamb": 0.01,
    },
    "layers": [["BertLayer", 8]],
    "optimizer": True,
    "grad": "all params",
    "loops": ["scan 8 layers forward", "scan 8 layers backward"],
    "tells_apart": [["BertLayer", "MLMHead"]],
    "order": [
        ["mask_tokens", "BertEmbeddings"],
        ["BertEmbeddings", "BertLayer"],
        ["BertLayer", "MLMHead"],
        ["MLMHead", "mlm_loss"],
        ["mlm_loss", "BertLayer backward"],
        ["BertLayer backward", "lamb"],
    ],
    "independent": [],
}
import flax.linen as nn
import jax
import jax.numpy as jnp
import optax

VOCAB, D, HEADS, FF, L, B, N = 8192, 384, 6, 1536, 8, 16, 128
MASK_ID = 103
tx = optax.lamb(optax.warmup_cosine_decay_schedule(0.0, 1e-3, 1000, 10000))


class BertEmbeddings(nn.Module):
    @nn.compact
    def __call__(self, ids, types, det):
        x = (
            nn.Embed(VOCAB, D, name="word")(ids)
            + nn.Embed(512, D, name="position")(jnp.arange(ids.shape[1]))
            + nn.Embed(2, D, name="type")(types)
        )
        return nn.Dropout(0.1)(nn.LayerNorm()(x), deterministic=det)


class BertLayer(nn.Module):
    det: bool

    @nn.compact
    def __call__(self, x, mask):
        y = nn.MultiHeadDotProductAttention(
            HEADS, dropout_rate=0.1, deterministic=self.det, name="attention"
        )(x, mask=mask)
        x = nn.LayerNorm(name="attention_norm")(x + nn.Dropout(0.1)(y, deterministic=self.det))
        y = nn.Dense(D, name="output")(nn.gelu(nn.Dense(FF, name="intermediate")(x)))
        return nn.LayerNorm(name="output_norm")(
            x + nn.Dropout(0.1)(y, deterministic=self.det)
        ), None


class MLMHead(nn.Module):
    @nn.compact
    def __call__(self, x):
        x = nn.LayerNorm()(nn.gelu(nn.Dense(D, name="transform")(x)))
        return nn.Dense(VOCAB, name="decoder")(x)


class BertForMaskedLM(nn.Module):
    @nn.compact
    def __call__(self, ids, types, det=False):
        mask = (ids != 0)[:, None, None]
        x = BertEmbeddings(name="embeddings")(ids, types, det)
        layers = nn.scan(
            BertLayer,
            variable_axes={"params": 0},
            split_rngs={"params": True, "dropout": True},
            in_axes=nn.broadcast,
            length=L,
        )
        x, _ = layers(det, name="encoder")(x, mask)
        return MLMHead(name="mlm_head")(x)


model = BertForMaskedLM()


def mask_tokens(key, ids):
    k1, k2, k3 = jax.random.split(key, 3)
    pick = (jax.random.uniform(k1, ids.shape) < 0.15) & (ids != 0)
    r = jax.random.uniform(k2, ids.shape)
    rnd = jax.random.randint(k3, ids.shape, 0, VOCAB)
    out = jnp.where(pick & (r < 0.8), MASK_ID, jnp.where(pick & (r > 0.9), rnd, ids))
    return out, pick


def mlm_loss(logits, labels, pick):
    ce = optax.softmax_cross_entropy_with_integer_labels(logits, labels)
    w = pick.astype(jnp.float32)
    return (ce * w).sum() / (w.sum() + 1e-6)


@jax.jit
def train_step(params, opt_state, ids, types, key):
    k1, k2 = jax.random.split(key)
    masked, pick = mask_tokens(k1, ids)

    def loss_fn(p):
        return mlm_loss(model.apply({"params": p}, masked, types, rngs={"dropout": k2}), ids, pick)

    loss, grads = jax.value_and_grad(loss_fn)(params)
    upd, opt_state = tx.update(grads, opt_state, params)
    return optax.apply_updates(params, upd), opt_state, loss


def make():
    ids = jax.ShapeDtypeStruct((B, N), jnp.int32)
    params = jax.eval_shape(
        lambda i: model.init({"params": jax.random.key(0), "dropout": jax.random.key(1)}, i, i)[
            "params"
        ],
        ids,
    )
    return train_step, (
        params,
        jax.eval_shape(tx.init, params),
        ids,
        ids,
        jax.eval_shape(lambda: jax.random.key(0)),
    )
