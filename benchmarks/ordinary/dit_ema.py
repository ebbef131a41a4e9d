TRUTH = """
TOP-LEVEL, IN ORDER
- train_step: sample t and noise, `q_sample` (noising) -> DiT forward -> masked/mean MSE loss -> backward -> adamw -> `ema_update`
- DiT: `x_embedder` (2x2 patch) + fixed sin-cos pos embed; conditioning c = `t_embedder` (sinusoid + MLP) + `y_embedder` (label table with label dropout); 8 DiTBlocks block_0..7; `final_layer` (adaLN + linear); unpatchify
- DiTBlock: adaLN modulation (silu + dense to 6*D) -> norm/modulate -> attention (`qkv`,`proj`) -> gated residual -> norm/modulate -> mlp (`fc1`,`fc2`) -> gated residual
COUNTS
- 8 DiTBlocks, unrolled; no loop over layers; no sampling loop over diffusion steps (1000 timesteps exist only as a table of alphas)
- 1 model forward and 1 backward; EMA is one elementwise pass over all params
INDEPENDENT
- t_embedder / y_embedder do not depend on x_embedder / noising; the 8 adaLN modulations depend only on c, not on one another nor on the tokens
- EMA update depends only on new params (after the optimizer)
COMMUNICATION
- FSDP over 8 devices: params, adam moments and EMA are sharded; expect all-gathers of weights (or equivalent) in forward/backward, reduce-scatter/all-reduce of gradients
SHARES
- the 8 blocks >97% of FLOPs, each ~1/8 of that; in a block MLP ~60%, attention ~40% (of which scores+values ~10 points), adaLN <1%
- forward 1/3, backward 2/3; adamw and EMA no matmul FLOPs
MUST NOT BE SHOWN
- no VAE, no text encoder, no denoising/sampling loop, no classifier-free-guidance doubling of the batch, no U-Net down/up path, no learned sigma
"""
# DiT-S/2-like training step, epsilon prediction, EMA weights, FSDP over one axis.
import math
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

MESH = {"data": 8}
HIDDEN, HEADS, DEPTH, PATCH, CLASSES = 384, 6, 8, 2, 1000


def modulate(x, shift, scale):
    return x * (1 + scale[:, None]) + shift[:, None]


def timestep_embedding(t, dim=256, max_period=10000):
    half = dim // 2
    freqs = jnp.exp(-math.log(max_period) * jnp.arange(half) / half)
    args = t[:, None].astype(jnp.float32) * freqs[None]
    return jnp.concatenate([jnp.cos(args), jnp.sin(args)], -1)


def get_2d_sincos_pos_embed(dim, grid):
    omega = 1.0 / 10000 ** (np.arange(dim // 4) / (dim / 4))
    pos = np.stack(np.meshgrid(np.arange(grid), np.arange(grid)), 0).reshape(2, -1)
    out = pos[:, :, None] * omega
    emb = np.concatenate([np.sin(out), np.cos(out)], -1)
    return np.concatenate([emb[0], emb[1]], -1).astype(np.float32)


class TimestepEmbedder(nn.Module):
    @nn.compact
    def __call__(self, t):
        x = timestep_embedding(t)
        x = nn.Dense(HIDDEN)(x)
        return nn.Dense(HIDDEN)(nn.silu(x))


class LabelEmbedder(nn.Module):
    dropout_prob: float = 0.1

    @nn.compact
    def __call__(self, y, train=True):
        if train:
            drop = jax.random.bernoulli(self.make_rng("label_dropout"), self.dropout_prob, y.shape)
            y = jnp.where(drop, CLASSES, y)
        return nn.Embed(CLASSES + 1, HIDDEN)(y)


class Attention(nn.Module):
    @nn.compact
    def __call__(self, x):
        b, n, c = x.shape
        qkv = nn.Dense(3 * c, name="qkv")(x).reshape(b, n, 3, HEADS, c // HEADS)
        q, k, v = qkv[:, :, 0], qkv[:, :, 1], qkv[:, :, 2]
        w = jnp.einsum("bqhd,bkhd->bhqk", q, k) * (c // HEADS) ** -0.5
        w = jax.nn.softmax(w, axis=-1)
        o = jnp.einsum("bhqk,bkhd->bqhd", w, v).reshape(b, n, c)
        return nn.Dense(c, name="proj")(o)


class MlpBlock(nn.Module):
    @nn.compact
    def __call__(self, x):
        h = nn.Dense(4 * HIDDEN, name="fc1")(x)
        return nn.Dense(HIDDEN, name="fc2")(nn.gelu(h))


class DiTBlock(nn.Module):
    @nn.compact
    def __call__(self, x, c):
        mod = nn.Dense(6 * HIDDEN, kernel_init=nn.initializers.zeros, name="adaLN_modulation")(
            nn.silu(c)
        )
        shift_msa, scale_msa, gate_msa, shift_mlp, scale_mlp, gate_mlp = jnp.split(mod, 6, -1)
        h = nn.LayerNorm(use_bias=False, use_scale=False, epsilon=1e-6)(x)
        x = x + gate_msa[:, None] * Attention(name="attn")(modulate(h, shift_msa, scale_msa))
        h = nn.LayerNorm(use_bias=False, use_scale=False, epsilon=1e-6)(x)
        return x + gate_mlp[:, None] * MlpBlock(name="mlp")(modulate(h, shift_mlp, scale_mlp))


class FinalLayer(nn.Module):
    @nn.compact
    def __call__(self, x, c):
        shift, scale = jnp.split(
            nn.Dense(2 * HIDDEN, kernel_init=nn.initializers.zeros)(nn.silu(c)), 2, -1
        )
        x = modulate(nn.LayerNorm(use_bias=False, use_scale=False)(x), shift, scale)
        return nn.Dense(PATCH * PATCH * 4, kernel_init=nn.initializers.zeros, name="linear")(x)


class DiT(nn.Module):
    @nn.compact
    def __call__(self, x, t, y, train=True):
        b, h, w, ch = x.shape
        g = h // PATCH
        x = nn.Conv(
            HIDDEN, (PATCH, PATCH), strides=(PATCH, PATCH), padding="VALID", name="x_embedder"
        )(x)
        x = x.reshape(b, g * g, HIDDEN) + get_2d_sincos_pos_embed(HIDDEN, g)
        c = TimestepEmbedder(name="t_embedder")(t) + LabelEmbedder(name="y_embedder")(y, train)
        for i in range(DEPTH):
            x = DiTBlock(name=f"block_{i}")(x, c)
        x = FinalLayer(name="final_layer")(x, c)
        x = x.reshape(b, g, g, PATCH, PATCH, ch).transpose(0, 1, 3, 2, 4, 5)
        return x.reshape(b, h, w, ch)


betas = np.linspace(1e-4, 0.02, 1000)
alphas_cumprod = np.cumprod(1 - betas).astype(np.float32)


def q_sample(x0, t, noise):
    ac = jnp.asarray(alphas_cumprod)[t][:, None, None, None]
    return jnp.sqrt(ac) * x0 + jnp.sqrt(1 - ac) * noise


class TrainState(NamedTuple):
    step: Any
    params: Any
    opt_state: Any
    ema_params: Any


def ema_update(ema, params, decay=0.9999):
    return jax.tree.map(lambda e, p: decay * e + (1 - decay) * p, ema, params)


def fsdp_sharding(mesh, x):
    """Shard the largest axis that divides by the mesh."""
    for ax in sorted(range(x.ndim), key=lambda i: -x.shape[i]):
        if x.size > 2**14 and x.shape[ax] % mesh.size == 0:
            return NamedSharding(mesh, P(*[("data" if i == ax else None) for i in range(x.ndim)]))
    return NamedSharding(mesh, P())


def make(mesh):
    model = DiT()
    tx = optax.adamw(1e-4, weight_decay=0.0)

    def diffusion_loss(params, x0, y, rng):
        rt, rn, rl = jax.random.split(rng, 3)
        t = jax.random.randint(rt, (x0.shape[0],), 0, 1000)
        noise = jax.random.normal(rn, x0.shape)
        xt = q_sample(x0, t, noise)
        eps = model.apply({"params": params}, xt, t, y, rngs={"label_dropout": rl})
        return jnp.mean((eps - noise) ** 2)

    def train_step(state, batch, rng):
        rng = jax.random.fold_in(rng, state.step)
        loss, grads = jax.value_and_grad(diffusion_loss)(
            state.params, batch["latents"] * 0.18215, batch["label"], rng
        )
        updates, opt_state = tx.update(grads, state.opt_state, state.params)
        params = optax.apply_updates(state.params, updates)
        ema = ema_update(state.ema_params, params)
        return TrainState(state.step + 1, params, opt_state, ema), {"loss": loss}

    def init(rng):
        k1, k2 = jax.random.split(rng)
        params = model.init(
            {"params": k1, "label_dropout": k2},
            jnp.zeros((1, 32, 32, 4)),
            jnp.zeros((1,), jnp.int32),
            jnp.zeros((1,), jnp.int32),
        )["params"]
        return TrainState(jnp.zeros((), jnp.int32), params, tx.init(params), params)

    state = jax.eval_shape(init, jax.random.key(0))
    state = jax.tree.map(
        lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=fsdp_sharding(mesh, x)), state
    )
    dp = NamedSharding(mesh, P("data"))
    batch = {
        "latents": jax.ShapeDtypeStruct((64, 32, 32, 4), jnp.float32, sharding=dp),
        "label": jax.ShapeDtypeStruct((64,), jnp.int32, sharding=dp),
    }
    return train_step, (state, batch, jax.random.key(0))
