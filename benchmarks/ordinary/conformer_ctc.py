"""Conformer speech recogniser with CTC loss, linen, spec augment, adamw."""

TRUTH = {
    "majors": {
        "ConformerBlock forward": 0.3,
        "ConformerBlock backward": 0.6,
        "subsampling fwd+bwd": 0.1,
        "ctc_loss": 0.01,
        "spec_augment": 0.0,
        "adamw": 0.0,
    },
    "layers": [["ConformerBlock", 6]],
    "optimizer": True,
    "grad": "all params",
    "loops": ["ctc scan over time, forward and backward"],
    "tells_apart": [["ffn1", "ffn2"], ["attention", "conv module"]],
    "order": [
        ["spec_augment", "subsampling"],
        ["subsampling", "ConformerBlock"],
        ["ConformerBlock", "ctc_loss"],
        ["ctc backward", "ConformerBlock backward"],
        ["ConformerBlock backward", "adamw"],
    ],
    "independent": [],
}
import flax.linen as nn
import jax
import jax.numpy as jnp
import optax

D, HEADS, L, T, MEL, VOCAB, B, LAB = 256, 4, 6, 512, 80, 128, 8, 32
tx = optax.adamw(3e-4)


def spec_augment(key, mel):
    k1, k2 = jax.random.split(key)
    t0 = jax.random.randint(k1, (mel.shape[0], 1), 0, T - 40)
    f0 = jax.random.randint(k2, (mel.shape[0], 1), 0, MEL - 15)
    t, f = jnp.arange(T)[None], jnp.arange(MEL)[None]
    tm = (t >= t0) & (t < t0 + 40)
    fm = (f >= f0) & (f < f0 + 15)
    return jnp.where(tm[:, :, None] | fm[:, None], 0.0, mel)


class Subsampling(nn.Module):
    @nn.compact
    def __call__(self, x):
        x = nn.relu(nn.Conv(64, (3, 3), strides=(2, 2))(x[..., None]))
        x = nn.relu(nn.Conv(64, (3, 3), strides=(2, 2))(x))
        return nn.Dense(D)(x.reshape(x.shape[0], x.shape[1], -1))


class FeedForwardModule(nn.Module):
    @nn.compact
    def __call__(self, x):
        return nn.Dense(D)(nn.silu(nn.Dense(4 * D)(nn.LayerNorm()(x))))


class ConvolutionModule(nn.Module):
    @nn.compact
    def __call__(self, x):
        a, b = jnp.split(nn.Dense(2 * D, name="pointwise1")(nn.LayerNorm()(x)), 2, -1)
        y = nn.Conv(D, (15,), feature_group_count=D, name="depthwise")(a * nn.sigmoid(b))
        return nn.Dense(D, name="pointwise2")(nn.silu(nn.GroupNorm(8)(y)))


class SelfAttentionModule(nn.Module):
    @nn.compact
    def __call__(self, x):
        y = nn.LayerNorm()(x)
        return nn.MultiHeadDotProductAttention(HEADS)(y, y)


class ConformerBlock(nn.Module):
    @nn.compact
    def __call__(self, x):
        x = x + 0.5 * FeedForwardModule(name="ffn1")(x)
        x = x + SelfAttentionModule(name="attn")(x)
        x = x + ConvolutionModule(name="conv")(x)
        x = x + 0.5 * FeedForwardModule(name="ffn2")(x)
        return nn.LayerNorm(name="final_norm")(x)


class Conformer(nn.Module):
    @nn.compact
    def __call__(self, mel):
        x = Subsampling(name="subsampling")(mel)
        for i in range(L):
            x = ConformerBlock(name=f"block_{i}")(x)
        return nn.Dense(VOCAB, name="ctc_head")(x)


model = Conformer()


def ctc_loss(logits, labels):
    return optax.ctc_loss(
        logits, jnp.zeros(logits.shape[:2]), labels, (labels == 0).astype(jnp.float32)
    ).mean()


@jax.jit
def train_step(params, opt_state, mel, labels, key):
    mel = spec_augment(key, mel)
    loss, g = jax.value_and_grad(lambda p: ctc_loss(model.apply(p, mel), labels))(params)
    u, opt_state = tx.update(g, opt_state, params)
    return optax.apply_updates(params, u), opt_state, loss


def make():
    mel = jax.ShapeDtypeStruct((B, T, MEL), jnp.float32)
    params = jax.eval_shape(lambda m: model.init(jax.random.key(0), m), mel)
    return train_step, (
        params,
        jax.eval_shape(tx.init, params),
        mel,
        jax.ShapeDtypeStruct((B, LAB), jnp.int32),
        jax.eval_shape(lambda: jax.random.key(0)),
    )
