"""CLIP training, data parallel with shard_map: embeddings are all-gathered for the contrastive loss."""

MESH = {"data": 8}

TRUTH = {
    "majors": {
        "VisionTower fwd": 0.24,
        "TextTower fwd": 0.09,
        "backward of both": 0.66,
        "contrastive_loss (all_gather of embeddings)": 0.0,
        "gradient pmean (all-reduce)": 0.0,
        "AdamW update": 0.0,
    },
    "layers": [["vision Block", 8], ["text Block", 6]],
    "optimizer": True,
    "grad": "vision, text, logit_scale",
    "loops": [],
    "tells_apart": [["visual", "text"]],
}


import jax
import jax.numpy as jnp
import optax
from flax import linen as nn
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

EMBED = 256
CONTEXT = 64
VOCAB = 16384
GLOBAL_BATCH = 64


class Block(nn.Module):
    heads: int
    causal: bool = False

    @nn.compact
    def __call__(self, x):
        d = x.shape[-1]
        mask = nn.make_causal_mask(x[..., 0]) if self.causal else None
        h = nn.LayerNorm(dtype=x.dtype)(x)
        h = nn.SelfAttention(self.heads, dtype=x.dtype, name="attn")(h, mask=mask)
        x = x + h
        h = nn.LayerNorm(dtype=x.dtype)(x)
        h = nn.Dense(4 * d, dtype=x.dtype, name="c_fc")(h)
        h = h * jax.nn.sigmoid(1.702 * h)  # quick gelu
        h = nn.Dense(d, dtype=x.dtype, name="c_proj")(h)
        return x + h


class VisionTower(nn.Module):
    width: int = 384
    layers: int = 8
    heads: int = 6
    patch: int = 16

    @nn.compact
    def __call__(self, image):
        x = image.astype(jnp.bfloat16)
        x = nn.Conv(
            self.width,
            (self.patch,) * 2,
            (self.patch,) * 2,
            use_bias=False,
            dtype=x.dtype,
            name="conv1",
        )(x)
        x = x.reshape(x.shape[0], -1, self.width)
        x = x + self.param(
            "positional_embedding", nn.initializers.normal(0.02), x.shape[1:]
        ).astype(x.dtype)
        x = nn.LayerNorm(dtype=x.dtype, name="ln_pre")(x)
        for i in range(self.layers):
            x = Block(self.heads, name=f"resblocks_{i}")(x)
        x = nn.LayerNorm(dtype=x.dtype, name="ln_post")(x.mean(axis=1))
        return nn.Dense(EMBED, use_bias=False, dtype=jnp.float32, name="proj")(x)


class TextTower(nn.Module):
    width: int = 256
    layers: int = 6
    heads: int = 4

    @nn.compact
    def __call__(self, tokens):
        x = nn.Embed(VOCAB, self.width, dtype=jnp.bfloat16, name="token_embedding")(tokens)
        x = x + self.param(
            "positional_embedding", nn.initializers.normal(0.01), (CONTEXT, self.width)
        ).astype(x.dtype)
        for i in range(self.layers):
            x = Block(self.heads, causal=True, name=f"resblocks_{i}")(x)
        x = nn.LayerNorm(dtype=x.dtype, name="ln_final")(x)
        eot = tokens.argmax(axis=-1)
        x = x[jnp.arange(x.shape[0]), eot]
        return nn.Dense(EMBED, use_bias=False, dtype=jnp.float32, name="text_projection")(x)


class CLIP(nn.Module):
    def setup(self):
        self.visual = VisionTower()
        self.text = TextTower()
        self.logit_scale = self.param("logit_scale", nn.initializers.constant(2.659), ())

    def __call__(self, image, tokens):
        zi = self.visual(image)
        zt = self.text(tokens)
        zi = zi / jnp.linalg.norm(zi, axis=-1, keepdims=True)
        zt = zt / jnp.linalg.norm(zt, axis=-1, keepdims=True)
        return zi, zt, jnp.exp(self.logit_scale)


model = CLIP()
tx = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(5e-4, b2=0.98, weight_decay=0.2))


def contrastive_loss(zi, zt, scale):
    """Local rows against the global columns."""
    all_i = jax.lax.all_gather(zi, "data", tiled=True)
    all_t = jax.lax.all_gather(zt, "data", tiled=True)
    logits_i = scale * zi @ all_t.T
    logits_t = scale * zt @ all_i.T
    labels = jnp.arange(zi.shape[0]) + jax.lax.axis_index("data") * zi.shape[0]
    xent = optax.softmax_cross_entropy_with_integer_labels
    loss = 0.5 * (xent(logits_i, labels).mean() + xent(logits_t, labels).mean())
    acc = (logits_i.argmax(-1) == labels).mean()
    return loss, acc


def local_step(params, opt_state, image, tokens):
    def loss_fn(p):
        zi, zt, scale = model.apply({"params": p}, image, tokens)
        return contrastive_loss(zi, zt, scale)

    (loss, acc), grads = jax.value_and_grad(loss_fn, has_aux=True)(params)
    grads = jax.lax.pmean(grads, "data")
    loss, acc = jax.lax.pmean((loss, acc), "data")
    updates, opt_state = tx.update(grads, opt_state, params)
    params = optax.apply_updates(params, updates)
    params["logit_scale"] = jnp.clip(params["logit_scale"], 0, jnp.log(100.0))
    return params, opt_state, {"loss": loss, "acc": acc}


def make_train_step(mesh):
    step = jax.shard_map(
        local_step,
        mesh=mesh,
        in_specs=(P(), P(), P("data"), P("data")),
        out_specs=(P(), P(), P()),
        check_vma=False,
    )
    return jax.jit(step, donate_argnums=(0, 1))


def init(key):
    params = model.init(key, jnp.zeros((1, 224, 224, 3)), jnp.zeros((1, CONTEXT), jnp.int32))[
        "params"
    ]
    return params, tx.init(params)


def make(mesh):
    rep, data = NamedSharding(mesh, P()), NamedSharding(mesh, P("data"))
    put = lambda s: lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=s)
    params, opt_state = jax.tree.map(put(rep), jax.eval_shape(init, jax.random.key(0)))
    image = jax.ShapeDtypeStruct((GLOBAL_BATCH, 224, 224, 3), jnp.float32, sharding=data)
    tokens = jax.ShapeDtypeStruct((GLOBAL_BATCH, CONTEXT), jnp.int32, sharding=data)
    return make_train_step(mesh), (params, opt_state, image, tokens)
