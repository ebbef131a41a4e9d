"""DDPM: class-conditional U-Net, epsilon prediction, EMA of the weights (flax linen + optax)."""

TRUTH = {
    "majors": {
        "down path (Downsample stages)": 0.14,
        "middle": 0.05,
        "up path": 0.15,
        "backward of U-Net": 0.66,
        "time embedding": 0.0,
        "q_sample (add noise)": 0.0,
        "Adam": 0.0,
        "EMA": 0.0,
    },
    "layers": [["ResBlock", 2 * 3 + 2 + 3 * 3], ["AttnBlock (16x16 down, middle, up)", 2 + 1 + 3]],
    "optimizer": True,
    "grad": "U-Net params",
    "loops": [],
    "tells_apart": [["down", "up"], ["params", "ema_params"]],
}

import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import optax
from flax import linen as nn
from flax import struct

SIZE = 64
BATCH = 8
STEPS = 1000
CLASSES = 10


def timestep_embedding(t, dim):
    half = dim // 2
    freqs = jnp.exp(-math.log(10000) * jnp.arange(half) / half)
    args = t[:, None].astype(jnp.float32) * freqs[None]
    return jnp.concatenate([jnp.cos(args), jnp.sin(args)], axis=-1)


class ResBlock(nn.Module):
    channels: int

    @nn.compact
    def __call__(self, x, emb):
        h = nn.silu(nn.GroupNorm(32)(x))
        h = nn.Conv(self.channels, (3, 3), name="conv1")(h)
        scale, shift = jnp.split(
            nn.Dense(2 * self.channels, name="emb")(nn.silu(emb))[:, None, None], 2, -1
        )
        h = nn.GroupNorm(32)(h) * (1 + scale) + shift
        h = nn.Conv(self.channels, (3, 3), kernel_init=nn.initializers.zeros, name="conv2")(
            nn.silu(h)
        )
        if x.shape[-1] != self.channels:
            x = nn.Conv(self.channels, (1, 1), name="skip")(x)
        return x + h


class AttnBlock(nn.Module):
    heads: int = 4

    @nn.compact
    def __call__(self, x):
        b, h, w, c = x.shape
        y = nn.GroupNorm(32)(x).reshape(b, h * w, c)
        qkv = nn.Dense(3 * c, name="qkv")(y).reshape(b, h * w, 3, self.heads, c // self.heads)
        q, k, v = qkv[:, :, 0], qkv[:, :, 1], qkv[:, :, 2]
        att = jax.nn.softmax(jnp.einsum("bqhd,bkhd->bhqk", q, k) / math.sqrt(c // self.heads))
        y = jnp.einsum("bhqk,bkhd->bqhd", att, v).reshape(b, h, w, c)
        return x + nn.Dense(c, kernel_init=nn.initializers.zeros, name="proj")(y)


class Downsample(nn.Module):
    @nn.compact
    def __call__(self, x):
        return nn.Conv(x.shape[-1], (3, 3), (2, 2))(x)


class Upsample(nn.Module):
    @nn.compact
    def __call__(self, x):
        b, h, w, c = x.shape
        x = jax.image.resize(x, (b, 2 * h, 2 * w, c), "nearest")
        return nn.Conv(c, (3, 3))(x)


class UNet(nn.Module):
    base: int = 96
    mults: Sequence[int] = (1, 2, 3)
    blocks: int = 2
    attn_at: int = 16

    @nn.compact
    def __call__(self, x, t, label):
        emb = timestep_embedding(t, self.base)
        emb = nn.Dense(4 * self.base, name="time_mlp_0")(emb)
        emb = nn.Dense(4 * self.base, name="time_mlp_1")(nn.silu(emb))
        emb = emb + nn.Embed(CLASSES + 1, 4 * self.base, name="label_embed")(label)

        h = nn.Conv(self.base, (3, 3), name="conv_in")(x)
        skips = [h]
        for level, mult in enumerate(self.mults):
            for i in range(self.blocks):
                h = ResBlock(self.base * mult, name=f"down_{level}_res_{i}")(h, emb)
                if h.shape[1] == self.attn_at:
                    h = AttnBlock(name=f"down_{level}_attn_{i}")(h)
                skips.append(h)
            if level < len(self.mults) - 1:
                h = Downsample(name=f"down_{level}_downsample")(h)
                skips.append(h)

        h = ResBlock(h.shape[-1], name="mid_res_0")(h, emb)
        h = AttnBlock(name="mid_attn")(h)
        h = ResBlock(h.shape[-1], name="mid_res_1")(h, emb)

        for level, mult in reversed(list(enumerate(self.mults))):
            for i in range(self.blocks + 1):
                h = jnp.concatenate([h, skips.pop()], axis=-1)
                h = ResBlock(self.base * mult, name=f"up_{level}_res_{i}")(h, emb)
                if h.shape[1] == self.attn_at:
                    h = AttnBlock(name=f"up_{level}_attn_{i}")(h)
            if level:
                h = Upsample(name=f"up_{level}_upsample")(h)
        assert not skips
        h = nn.silu(nn.GroupNorm(32, name="norm_out")(h))
        return nn.Conv(3, (3, 3), kernel_init=nn.initializers.zeros, name="conv_out")(h)


def cosine_alphas():
    s = jnp.linspace(0, 1, STEPS + 1)
    f = jnp.cos((s + 0.008) / 1.008 * jnp.pi / 2) ** 2
    betas = jnp.clip(1 - f[1:] / f[:-1], 0, 0.999)
    return jnp.cumprod(1 - betas)


def q_sample(x0, t, noise):
    a = cosine_alphas()[t][:, None, None, None]
    return jnp.sqrt(a) * x0 + jnp.sqrt(1 - a) * noise


@struct.dataclass
class State:
    step: Any
    params: Any
    ema_params: Any
    opt_state: Any


model = UNet()
tx = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(2e-4))


def train_step(state, key, images, labels):
    k_t, k_noise, k_drop = jax.random.split(key, 3)
    x0 = images.astype(jnp.float32) / 127.5 - 1.0
    t = jax.random.randint(k_t, (x0.shape[0],), 0, STEPS)
    noise = jax.random.normal(k_noise, x0.shape)
    labels = jnp.where(jax.random.bernoulli(k_drop, 0.1, labels.shape), CLASSES, labels)
    xt = q_sample(x0, t, noise)

    def loss_fn(params):
        eps = model.apply({"params": params}, xt, t, labels)
        return jnp.mean((eps - noise) ** 2)

    loss, grads = jax.value_and_grad(loss_fn)(state.params)
    updates, opt_state = tx.update(grads, state.opt_state, state.params)
    params = optax.apply_updates(state.params, updates)
    decay = jnp.minimum(0.9999, (1 + state.step) / (10 + state.step))
    ema = jax.tree.map(lambda e, p: decay * e + (1 - decay) * p, state.ema_params, params)
    return state.replace(
        step=state.step + 1, params=params, ema_params=ema, opt_state=opt_state
    ), loss


def create(key):
    params = model.init(
        key, jnp.zeros((1, SIZE, SIZE, 3)), jnp.zeros(1, jnp.int32), jnp.zeros(1, jnp.int32)
    )["params"]
    return State(jnp.zeros((), jnp.int32), params, params, tx.init(params))


def make():
    state = jax.eval_shape(create, jax.random.key(0))
    images = jax.ShapeDtypeStruct((BATCH, SIZE, SIZE, 3), jnp.uint8)
    labels = jax.ShapeDtypeStruct((BATCH,), jnp.int32)
    return jax.jit(train_step, donate_argnums=0), (
        state,
        jax.eval_shape(lambda: jax.random.key(0)),
        images,
        labels,
    )
