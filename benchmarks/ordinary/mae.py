"""Masked autoencoder (linen): random masking, ViT encoder on visible patches, small decoder."""

TRUTH = {
    "majors": {
        "encoder forward": 0.17,
        "decoder forward": 0.15,
        "encoder backward": 0.34,
        "decoder backward": 0.3,
        "patchify": 0.0,
        "random_masking": 0.0,
        "adamw": 0.01,
    },
    "layers": [["encoder TransformerBlock", 8], ["decoder TransformerBlock", 4]],
    "optimizer": True,
    "grad": "all params",
    "loops": [],
    "tells_apart": [["encoder", "decoder"], ["forward", "backward"]],
    "order": [
        ["patchify", "encoder"],
        ["random_masking", "encoder"],
        ["encoder", "decoder"],
        ["decoder", "reconstruction_loss"],
        ["decoder backward", "encoder backward"],
        ["encoder backward", "adamw"],
    ],
    "independent": [["patchify", "random_masking"]],
}
import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
from flax.training.train_state import TrainState

IMG, PATCH, DE, DD, LE, LD, B = 128, 8, 384, 256, 8, 4, 8
N = (IMG // PATCH) ** 2
KEEP = N // 4


class Mlp(nn.Module):
    dim: int

    @nn.compact
    def __call__(self, x):
        return nn.Dense(self.dim)(nn.gelu(nn.Dense(4 * self.dim)(x)))


class TransformerBlock(nn.Module):
    dim: int
    heads: int

    @nn.compact
    def __call__(self, x):
        y = nn.LayerNorm()(x)
        x = x + nn.MultiHeadDotProductAttention(self.heads)(y, y)
        return x + Mlp(self.dim)(nn.LayerNorm()(x))


def patchify(img):
    g = IMG // PATCH
    return (
        img.reshape(-1, g, PATCH, g, PATCH, 3)
        .transpose(0, 1, 3, 2, 4, 5)
        .reshape(-1, N, PATCH * PATCH * 3)
    )


def random_masking(key, b):
    order = jnp.argsort(jax.random.uniform(key, (b, N)), axis=1)
    restore = jnp.argsort(order, axis=1)
    return order[:, :KEEP], restore, (restore >= KEEP).astype(jnp.float32)


class MAEEncoder(nn.Module):
    @nn.compact
    def __call__(self, patches, keep):
        x = nn.Dense(DE, name="patch_embed")(patches) + self.param(
            "pos", nn.initializers.normal(0.02), (1, N, DE)
        )
        x = jnp.take_along_axis(x, keep[..., None], 1)
        for i in range(LE):
            x = TransformerBlock(DE, 6, name=f"block{i}")(x)
        return nn.LayerNorm(name="norm")(x)


class MAEDecoder(nn.Module):
    @nn.compact
    def __call__(self, z, restore):
        x = nn.Dense(DD, name="embed")(z)
        tok = jnp.broadcast_to(
            self.param("mask_token", nn.initializers.normal(0.02), (1, 1, DD)),
            (x.shape[0], N - KEEP, DD),
        )
        x = jnp.take_along_axis(jnp.concatenate([x, tok], 1), restore[..., None], 1)
        x = x + self.param("pos", nn.initializers.normal(0.02), (1, N, DD))
        for i in range(LD):
            x = TransformerBlock(DD, 4, name=f"block{i}")(x)
        return nn.Dense(PATCH * PATCH * 3, name="pred")(nn.LayerNorm(name="norm")(x))


class MAE(nn.Module):
    @nn.compact
    def __call__(self, patches, key):
        keep, restore, mask = random_masking(key, patches.shape[0])
        return MAEDecoder(name="decoder")(MAEEncoder(name="encoder")(patches, keep), restore), mask


def reconstruction_loss(pred, patches, mask):
    mu, var = patches.mean(-1, keepdims=True), patches.var(-1, keepdims=True)
    err = ((pred - (patches - mu) / jnp.sqrt(var + 1e-6)) ** 2).mean(-1)
    return (err * mask).sum() / mask.sum()


@jax.jit
def train_step(state, images, key):
    patches = patchify(images)

    def loss_fn(params):
        pred, mask = state.apply_fn({"params": params}, patches, key)
        return reconstruction_loss(pred, patches, mask)

    loss, grads = jax.value_and_grad(loss_fn)(state.params)
    return state.apply_gradients(grads=grads), loss


def make():
    m = MAE()
    s = jax.eval_shape(
        lambda: TrainState.create(
            apply_fn=m.apply,
            params=m.init(
                jax.random.key(0), jnp.zeros((1, N, PATCH * PATCH * 3)), jax.random.key(0)
            )["params"],
            tx=optax.adamw(1.5e-4, b2=0.95, weight_decay=0.05),
        )
    )
    return train_step, (
        s,
        jax.ShapeDtypeStruct((B, IMG, IMG, 3), jnp.float32),
        jax.eval_shape(lambda: jax.random.key(0)),
    )
