TRUTH = """
TOP-LEVEL, IN ORDER
- train_step: embedding -> loop over 8 Mamba layers -> final RMSNorm -> tied output logits -> next-token cross entropy -> backward -> optimizer (clip + adamw, cosine)
- MambaBlock: RMSNorm -> `in_proj` (x and gate z) -> causal depthwise `conv1d` (width 4) -> silu -> `x_proj` / `dt_proj` (data dependent dt, B, C) -> `selective_scan` (associative scan along time) -> gate with silu(z) -> `out_proj` -> residual
COUNTS
- ONE forward loop over 8 layers (nn.scan) and ONE backward loop over 8 layers; remat: backward recomputes each layer's forward
- selective_scan is an associative (parallel) scan: a log-depth tree of elementwise operations inside the layer body (9 levels for 512 steps), NOT a sequential loop over time
- no inner while loop over the 512 time steps
INDEPENDENT
- the gate branch z does not depend on the conv/SSM branch; dt, B and C all come from one projection
SHARES
- matmul FLOPs: in_proj the largest in a layer (~60%), out_proj ~30%, x_proj/dt_proj ~10%; the selective scan has elementwise work only, though much memory traffic ([4, 512, 512, 16] tensors)
- logits (vocab 8192 x 256, tied): ~1/3 of all matmul FLOPs; layers the rest (~2/3)
- forward ~30%, backward incl. recompute ~70%; optimizer none
MUST NOT BE SHOWN
- no attention, no MLP block, no position embedding, no sequential loop in time, no KV cache, no dropout, no collectives
"""
"""A Mamba language model in flax.linen, scan over layers + remat."""
import math
from dataclasses import dataclass

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax


@dataclass(frozen=True)
class MambaConfig:
    vocab: int = 8192
    d_model: int = 256
    n_layers: int = 8
    d_state: int = 16
    d_conv: int = 4
    expand: int = 2
    seq: int = 512
    batch: int = 4

    @property
    def d_inner(self):
        return self.expand * self.d_model

    @property
    def dt_rank(self):
        return math.ceil(self.d_model / 16)


def selective_scan(u, dt, A, B, C, D):
    """u, dt: [b, l, d]; A: [d, n]; B, C: [b, l, n]."""
    dA = jnp.exp(dt[..., None] * A)  # b l d n
    dBu = (dt * u)[..., None] * B[:, :, None, :]

    def combine(left, right):
        a1, b1 = left
        a2, b2 = right
        return a1 * a2, a2 * b1 + b2

    _, h = jax.lax.associative_scan(combine, (dA, dBu), axis=1)
    y = jnp.einsum("bldn,bln->bld", h, C)
    return y + u * D


class RMSNorm(nn.Module):
    @nn.compact
    def __call__(self, x):
        w = self.param("weight", nn.initializers.ones, (x.shape[-1],))
        return x * jax.lax.rsqrt(jnp.mean(x**2, -1, keepdims=True) + 1e-5) * w


class MambaMixer(nn.Module):
    cfg: MambaConfig

    @nn.compact
    def __call__(self, x):
        c = self.cfg
        xz = nn.Dense(2 * c.d_inner, use_bias=False, name="in_proj")(x)
        x, z = jnp.split(xz, 2, axis=-1)
        x = nn.Conv(
            c.d_inner,
            (c.d_conv,),
            padding=[(c.d_conv - 1, 0)],
            feature_group_count=c.d_inner,
            name="conv1d",
        )(x)
        x = nn.silu(x)
        dbc = nn.Dense(c.dt_rank + 2 * c.d_state, use_bias=False, name="x_proj")(x)
        dt, B, C = jnp.split(dbc, [c.dt_rank, c.dt_rank + c.d_state], axis=-1)
        dt = nn.softplus(nn.Dense(c.d_inner, name="dt_proj")(dt))
        A_log = self.param(
            "A_log", lambda k: jnp.log(jnp.tile(jnp.arange(1.0, c.d_state + 1), (c.d_inner, 1)))
        )
        D = self.param("D", nn.initializers.ones, (c.d_inner,))
        y = selective_scan(x, dt, -jnp.exp(A_log), B, C, D)
        y = y * nn.silu(z)
        return nn.Dense(c.d_model, use_bias=False, name="out_proj")(y)


class MambaBlock(nn.Module):
    cfg: MambaConfig

    @nn.compact
    def __call__(self, x, _):
        return x + MambaMixer(self.cfg, name="mixer")(RMSNorm(name="norm")(x)), None


class MambaLM(nn.Module):
    cfg: MambaConfig

    @nn.compact
    def __call__(self, tokens):
        c = self.cfg
        embed = nn.Embed(c.vocab, c.d_model, name="embedding")
        x = embed(tokens)
        layers = nn.scan(
            nn.remat(MambaBlock, prevent_cse=False),
            variable_axes={"params": 0},
            split_rngs={"params": True},
            length=c.n_layers,
        )
        x, _ = layers(c, name="layers")(x, None)
        x = RMSNorm(name="norm_f")(x)
        return embed.attend(x)


def make():
    cfg = MambaConfig()
    model = MambaLM(cfg)
    tx = optax.chain(
        optax.clip_by_global_norm(1.0),
        optax.adamw(
            optax.warmup_cosine_decay_schedule(0, 6e-4, 2000, 100_000, 6e-5),
            b1=0.9,
            b2=0.95,
            weight_decay=0.1,
            mask=lambda p: jax.tree.map(lambda x: x.ndim > 1, p),
        ),
    )

    def loss_fn(params, tokens):
        logits = model.apply({"params": params}, tokens[:, :-1])
        return optax.softmax_cross_entropy_with_integer_labels(logits, tokens[:, 1:]).mean()

    def train_step(params, opt_state, tokens):
        loss, grads = jax.value_and_grad(loss_fn)(params, tokens)
        updates, opt_state = tx.update(grads, opt_state, params)
        params = optax.apply_updates(params, updates)
        return params, opt_state, {"loss": loss, "perplexity": jnp.exp(loss)}

    tokens = jax.ShapeDtypeStruct((cfg.batch, cfg.seq + 1), jnp.int32)
    params = jax.eval_shape(
        lambda k: model.init(k, jnp.zeros((1, 8), jnp.int32))["params"], jax.random.key(0)
    )
    return train_step, (params, jax.eval_shape(tx.init, params), tokens)
