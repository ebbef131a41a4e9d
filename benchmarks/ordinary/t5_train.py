"""T5-like encoder-decoder training step, flax linen, unrolled layers, adafactor."""

TRUTH = {
    "majors": {
        "encoder forward": 0.12,
        "decoder forward": 0.16,
        "lm_head": 0.1,
        "backward": 0.62,
        "adafactor": 0.0,
    },
    "layers": [["EncoderLayer", 6], ["DecoderLayer", 6]],
    "optimizer": True,
    "grad": "all params",
    "loops": [],
    "tells_apart": [["encoder", "decoder"], ["self attention", "cross attention"]],
    "order": [
        ["encoder", "decoder cross attention"],
        ["decoder", "seq2seq_loss"],
        ["decoder backward", "encoder backward"],
        ["encoder backward", "adafactor"],
    ],
    "independent": [["encoder", "decoder token embedding"]],
}
import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
from flax.training import train_state

VOCAB, D, HEADS, FF, N_ENC, N_DEC, SRC, TGT, B = 8192, 384, 6, 1024, 6, 6, 256, 128, 16


class RelativeBias(nn.Module):
    @nn.compact
    def __call__(self, q, k):
        table = self.param("table", nn.initializers.normal(0.02), (64, HEADS))
        d = jnp.clip(jnp.arange(k)[None] - jnp.arange(q)[:, None] + 32, 0, 63)
        return table[d].transpose(2, 0, 1)[None]


class Attention(nn.Module):
    @nn.compact
    def __call__(self, x, kv, bias=None, mask=None):
        h = D // HEADS
        q = nn.DenseGeneral((HEADS, h), use_bias=False, name="q")(x)
        k = nn.DenseGeneral((HEADS, h), use_bias=False, name="k")(kv)
        v = nn.DenseGeneral((HEADS, h), use_bias=False, name="v")(kv)
        s = jnp.einsum("bqhd,bkhd->bhqk", q, k)
        if bias is not None:
            s = s + bias
        if mask is not None:
            s = jnp.where(mask, s, -1e9)
        y = jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(s), v)
        return nn.DenseGeneral(D, axis=(-2, -1), use_bias=False, name="o")(y)


class GatedGelu(nn.Module):
    @nn.compact
    def __call__(self, x):
        return nn.Dense(D, use_bias=False, name="wo")(
            nn.gelu(nn.Dense(FF, use_bias=False, name="wi_0")(x))
            * nn.Dense(FF, use_bias=False, name="wi_1")(x)
        )


class EncoderLayer(nn.Module):
    @nn.compact
    def __call__(self, x, bias, mask):
        y = nn.RMSNorm()(x)
        x = x + Attention(name="self_attention")(y, y, bias, mask)
        return x + GatedGelu(name="mlp")(nn.RMSNorm()(x))


class DecoderLayer(nn.Module):
    @nn.compact
    def __call__(self, x, enc, bias, causal, mask):
        y = nn.RMSNorm()(x)
        x = x + Attention(name="self_attention")(y, y, bias, causal)
        x = x + Attention(name="cross_attention")(nn.RMSNorm()(x), enc, None, mask)
        return x + GatedGelu(name="mlp")(nn.RMSNorm()(x))


class Encoder(nn.Module):
    @nn.compact
    def __call__(self, x, mask):
        bias = RelativeBias(name="relpos")(x.shape[1], x.shape[1])
        for i in range(N_ENC):
            x = EncoderLayer(name=f"layers_{i}")(x, bias, mask)
        return nn.RMSNorm(name="final_norm")(x)


class Decoder(nn.Module):
    @nn.compact
    def __call__(self, x, enc, mask):
        n = x.shape[1]
        bias = RelativeBias(name="relpos")(n, n)
        causal = jnp.tril(jnp.ones((n, n), bool))[None, None]
        for i in range(N_DEC):
            x = DecoderLayer(name=f"layers_{i}")(x, enc, bias, causal, mask)
        return nn.RMSNorm(name="final_norm")(x)


class T5(nn.Module):
    def setup(self):
        self.shared = nn.Embed(VOCAB, D)
        self.encoder = Encoder()
        self.decoder = Decoder()
        self.lm_head = nn.Dense(VOCAB, use_bias=False)

    def __call__(self, src, tgt):
        mask = (src != 0)[:, None, None]
        enc = self.encoder(self.shared(src), mask)
        return self.lm_head(self.decoder(self.shared(tgt), enc, mask))


def shift_right(t):
    return jnp.pad(t[:, :-1], ((0, 0), (1, 0)))


def seq2seq_loss(logits, labels):
    w = (labels != 0).astype(jnp.float32)
    ce = optax.softmax_cross_entropy_with_integer_labels(logits, labels)
    return (ce * w).sum() / w.sum()


def train_step(state, batch):
    def loss_fn(params):
        logits = state.apply_fn({"params": params}, batch["src"], shift_right(batch["tgt"]))
        return seq2seq_loss(logits, batch["tgt"])

    loss, grads = jax.value_and_grad(loss_fn)(state.params)
    return state.apply_gradients(grads=grads), loss


def make():
    model = T5()
    z = jnp.zeros

    def init():
        p = model.init(jax.random.key(0), z((B, SRC), jnp.int32), z((B, TGT), jnp.int32))["params"]
        return train_state.TrainState.create(
            apply_fn=model.apply, params=p, tx=optax.adafactor(1e-3)
        )

    s = jax.eval_shape(init)
    i = jnp.int32
    return jax.jit(train_step), (
        s,
        {"src": jax.ShapeDtypeStruct((B, SRC), i), "tgt": jax.ShapeDtypeStruct((B, TGT), i)},
    )
