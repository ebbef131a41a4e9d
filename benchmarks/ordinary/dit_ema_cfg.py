TRUTH = """
# dit_ema_cfg — DiT diffusion training step (flax linen, nn.scan + remat), 8-way data parallel (jit + NamedSharding)

First picture (in order):
1. **draw noise and times** (fold_in, split, randint, normal) -> **q_sample** (noising; gather of schedule tables at t)
2. **DiT forward**
   - x_embedder (patchify conv 2x2 stride 2 + pos embed) -> 256 tokens x 384
   - t_embedder (sin/cos, two Dense) ; y_embedder (label dropout 10%, embedding lookup 1001x384); summed into cond
   - **blocks: loop x12** (the scan) { adaLN (Dense to 6c), norm1+modulate, attn {qkv, softmax, out}, gated residual, norm2+modulate, mlp {up, gelu, down} }
   - final_adaLN, final_norm, final_linear, unpatchify
3. **loss** MSE(eps, noise)
4. **DiT backward**: final layer bwd, **blocks backward: loop x12** (rematerialised: forward of block again, then gradients), embedders bwd (scatter-add into y table; conv weight grad)
5. **gradient all-reduce** over the 8 data shards (sum of partial weight gradients; in or after the loop: XLA may put it in the backward loop or after it)
6. **optimiser**: clip_by_global_norm, adamw (mu, nu), apply_updates
7. **EMA** update of params
8. metrics: loss, grad_norm

Contains: attn & mlp in blocks in DiT in loss_fn in train_step.
Loops: 2 real ones, 12 forward + 12 backward. No other loops (RNG apart: threefry rolled loops on CPU could appear as small 5-turn loops; not the person's).
Collectives: all-reduce only (gradients, loss mean). No all-gather / ppermute.
Heaviest: blocks backward (recompute+2x grads ~ 3/4), within it the mlp (4c) a little over attn (qkv+out = 4c^2, scores 2*256*c; mlp = 8c^2). Forward blocks ~1/4.
Names: "q_sample", "x_embedder", "t_embedder", "y_embedder", "blocks x12", "attn", "mlp", "adaLN", "final layer", "loss", "backward", "clip + adamw", "EMA".
"""
"""Latent diffusion transformer (DiT-style), adaLN-zero, EMA weights, label dropout for CFG.

  python -m train --config configs/dit_b4.py
"""
import dataclasses
import functools
from typing import Any

import flax
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P


@dataclasses.dataclass(frozen=True)
class Config:
    batch: int = 64
    latent: int = 32
    channels: int = 4
    patch: int = 2
    width: int = 384
    depth: int = 12
    heads: int = 6
    classes: int = 1000
    label_dropout: float = 0.1
    timesteps: int = 1000
    ema_decay: float = 0.9999
    lr: float = 1e-4


def modulate(x, shift, scale):
    return x * (1 + scale[:, None]) + shift[:, None]


class TimestepEmbedder(nn.Module):
    width: int

    @nn.compact
    def __call__(self, t):
        half = 128
        freqs = jnp.exp(-np.log(10000.0) * jnp.arange(half) / half)
        args = t[:, None].astype(jnp.float32) * freqs[None]
        emb = jnp.concatenate([jnp.cos(args), jnp.sin(args)], -1)
        h = nn.Dense(self.width, name="fc1")(emb)
        return nn.Dense(self.width, name="fc2")(nn.silu(h))


class LabelEmbedder(nn.Module):
    classes: int
    width: int
    dropout: float

    @nn.compact
    def __call__(self, y, train):
        if train:
            drop = jax.random.bernoulli(self.make_rng("label_drop"), self.dropout, y.shape)
            y = jnp.where(drop, self.classes, y)
        return nn.Embed(self.classes + 1, self.width, name="table")(y)


class PatchEmbed(nn.Module):
    patch: int
    width: int

    @nn.compact
    def __call__(self, x):
        x = nn.Conv(
            self.width,
            (self.patch, self.patch),
            strides=self.patch,
            padding="VALID",
            dtype=jnp.bfloat16,
            name="proj",
        )(x)
        b, h, w, c = x.shape
        pos = self.param("pos_embed", nn.initializers.normal(0.02), (1, h * w, c))
        return x.reshape(b, h * w, c) + pos.astype(x.dtype)


class Attention(nn.Module):
    heads: int

    @nn.compact
    def __call__(self, x):
        b, n, c = x.shape
        qkv = nn.Dense(3 * c, dtype=x.dtype, name="qkv")(x)
        q, k, v = jnp.split(qkv.reshape(b, n, 3, self.heads, c // self.heads), 3, axis=2)
        q, k, v = (a.squeeze(2) for a in (q, k, v))
        logits = jnp.einsum("bqhd,bkhd->bhqk", q, k) * (c // self.heads) ** -0.5
        w = jax.nn.softmax(logits.astype(jnp.float32), -1).astype(x.dtype)
        o = jnp.einsum("bhqk,bkhd->bqhd", w, v).reshape(b, n, c)
        return nn.Dense(c, dtype=x.dtype, name="out")(o)


class Mlp(nn.Module):
    @nn.compact
    def __call__(self, x):
        c = x.shape[-1]
        h = nn.Dense(4 * c, dtype=x.dtype, name="up")(x)
        return nn.Dense(c, dtype=x.dtype, name="down")(nn.gelu(h))


class DiTBlock(nn.Module):
    heads: int

    @nn.compact
    def __call__(self, x, cond):
        c = x.shape[-1]
        mod = nn.Dense(6 * c, kernel_init=nn.initializers.zeros, dtype=x.dtype, name="adaLN")(
            nn.silu(cond)
        )
        s1, g1, a1, s2, g2, a2 = jnp.split(mod, 6, -1)
        ln = functools.partial(nn.LayerNorm, use_bias=False, use_scale=False, dtype=x.dtype)
        x = x + a1[:, None] * Attention(self.heads, name="attn")(
            modulate(ln(name="norm1")(x), s1, g1)
        )
        x = x + a2[:, None] * Mlp(name="mlp")(modulate(ln(name="norm2")(x), s2, g2))
        return x, None


class DiT(nn.Module):
    cfg: Config

    @nn.compact
    def __call__(self, x, t, y, train=True):
        cfg = self.cfg
        b, hh, ww, cc = x.shape
        h = PatchEmbed(cfg.patch, cfg.width, name="x_embedder")(x)
        cond = TimestepEmbedder(cfg.width, name="t_embedder")(t)
        cond = cond + LabelEmbedder(cfg.classes, cfg.width, cfg.label_dropout, name="y_embedder")(
            y, train
        )
        cond = cond.astype(h.dtype)
        block = nn.remat(DiTBlock, prevent_cse=False)
        h, _ = nn.scan(
            block,
            variable_axes={"params": 0},
            split_rngs={"params": True},
            in_axes=nn.broadcast,
            length=cfg.depth,
        )(cfg.heads, name="blocks")(h, cond)
        mod = nn.Dense(
            2 * cfg.width, kernel_init=nn.initializers.zeros, dtype=h.dtype, name="final_adaLN"
        )(nn.silu(cond))
        shift, scale = jnp.split(mod, 2, -1)
        h = modulate(
            nn.LayerNorm(use_bias=False, use_scale=False, dtype=h.dtype, name="final_norm")(h),
            shift,
            scale,
        )
        h = nn.Dense(cfg.patch**2 * cc, dtype=jnp.float32, name="final_linear")(h)
        g = hh // cfg.patch
        h = h.reshape(b, g, g, cfg.patch, cfg.patch, cc)
        return jnp.einsum("bhwpqc->bhpwqc", h).reshape(b, hh, ww, cc)


@flax.struct.dataclass
class TrainState:
    step: jax.Array
    params: Any
    ema: Any
    opt_state: Any


def make_schedule(cfg):
    betas = np.linspace(1e-4, 0.02, cfg.timesteps)
    abar = np.cumprod(1 - betas)
    return jnp.asarray(np.sqrt(abar), jnp.float32), jnp.asarray(np.sqrt(1 - abar), jnp.float32)


def build(devices=None):
    cfg = Config()
    devices = np.array(jax.devices() if devices is None else devices)[:8]
    mesh = Mesh(devices.reshape(8), ("data",))
    model = DiT(cfg)
    tx = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(cfg.lr, weight_decay=0.0))

    def q_sample(x0, t, noise):
        sa, sb = make_schedule(cfg)
        return sa[t][:, None, None, None] * x0 + sb[t][:, None, None, None] * noise

    def loss_fn(params, batch, key):
        kt, kn, kd = jax.random.split(key, 3)
        x0 = batch["latent"]
        t = jax.random.randint(kt, (x0.shape[0],), 0, cfg.timesteps)
        noise = jax.random.normal(kn, x0.shape)
        xt = q_sample(x0, t, noise)
        eps = model.apply({"params": params}, xt, t, batch["label"], rngs={"label_drop": kd})
        return jnp.mean((eps - noise) ** 2)

    def train_step(state, batch, key):
        key = jax.random.fold_in(key, state.step)
        loss, grads = jax.value_and_grad(loss_fn)(state.params, batch, key)
        updates, opt_state = tx.update(grads, state.opt_state, state.params)
        params = optax.apply_updates(state.params, updates)
        ema = jax.tree.map(
            lambda e, p: cfg.ema_decay * e + (1 - cfg.ema_decay) * p, state.ema, params
        )
        metrics = {"loss": loss, "grad_norm": optax.global_norm(grads)}
        return TrainState(state.step + 1, params, ema, opt_state), metrics

    def init():
        x = jnp.zeros((1, cfg.latent, cfg.latent, cfg.channels))
        p = model.init(
            {"params": jax.random.PRNGKey(0), "label_drop": jax.random.PRNGKey(1)},
            x,
            jnp.zeros((1,), jnp.int32),
            jnp.zeros((1,), jnp.int32),
        )["params"]
        return TrainState(jnp.zeros((), jnp.int32), p, p, tx.init(p))

    repl, data = NamedSharding(mesh, P()), NamedSharding(mesh, P("data"))
    place = lambda s: lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=s)
    state = jax.tree.map(place(repl), jax.eval_shape(init))
    batch = {
        "latent": jax.ShapeDtypeStruct(
            (cfg.batch, cfg.latent, cfg.latent, cfg.channels), jnp.float32, sharding=data
        ),
        "label": jax.ShapeDtypeStruct((cfg.batch,), jnp.int32, sharding=data),
    }
    key = jax.ShapeDtypeStruct((2,), jnp.uint32, sharding=repl)
    return jax.jit(train_step, donate_argnums=0, out_shardings=(repl, repl)), (state, batch, key)


MESH = {"device": 8}


def make(mesh):
    return build(list(mesh.devices.flat))
