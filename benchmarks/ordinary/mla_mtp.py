TRUTH = """
# mla_mtp — DeepSeek-like LM pre-training step: MLA attention, multi-token prediction, gradient accumulation x4, Muon (plain JAX), jit auto sharding fsdp=4 x tp=2

## 1 Tree of parts
pretrain_step
1. **accumulate: loop x4 (microbatches, 8 x 2048 tokens)** {
   a. **forward**: embedding ; **trunk: loop x10** { **mla** { norm, q_down, q_norm, q_up, kv_down, kv_norm, kv_up, rope, scores, causal softmax, values, o } , **swiglu** { norm, gate, up, down } } ; norm_f ; **main xent: loop x4 chunks** (logits 16384) ; **MTP module** { norm h, norm e, proj, one block (mla + swiglu), **xent: loop x4** }
   b. **backward**: **MTP xent bwd loop x4** (recompute logits), MTP block bwd (recompute), **main xent bwd loop x4** (recompute), **trunk backward loop x10** { recompute (attention output saved), mla bwd, swiglu bwd }, embedding scatter-add (twice: trunk and MTP)
   c. add to gradient sum }
2. **muon** (optimiser): momentum ; **newton_schulz: loop x5** for each of 17 matrices (8 stacked trunk ones [10,.,.], 8 of the MTP block, 1 MTP proj) ; adam for embed, head, norms

Collectives: fsdp all-gather of weights in trunk loop (fwd, bwd), tp all-reduces after o and down, gradients reduce-scatter/all-reduce over fsdp; Newton-Schulz on sharded matrices gives all-gather/all-reduce per iteration.
## 2 Where the work goes (62 TF on all devices)
trunk ~69% (swiglu 37, mla 32), MTP block ~7% + proj 0.7, xents ~21.5% (half main, half MTP), Muon 1.8%, embedding ~0. Forward 28% (incl. Muon 2), backward incl. recompute 72%.

## 3 First picture
microbatch x4 { embed, trunk x10 { mla, swiglu }, main xent x4, MTP { proj, block, xent x4 }, backward: MTP xent x4, MTP block, main xent x4, trunk x10 } -> muon { newton_schulz x5, many matrices as one group "x17" } -> new params.

## 4 Misleading
- Three different x4: microbatches, main xent chunks, MTP xent chunks (and fsdp=4).
- 17 loops of 5 as the main content of the picture (most loops by number are the optimiser's, 2% of work). They are also "5-turn" like CPU threefry loops.
- MTP block taken for an 11th layer or the trunk for x11.
- Backward of MTP before backward of the main head.
"""

"""Pre-training step of a small DeepSeek-like dense LM: multi-head latent attention (MLA), one multi-token-prediction
module, gradient accumulation, Muon for matrices + Adam for the rest.  jit with auto sharding on a fsdp=4 x tp=2 mesh."""
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.ad_checkpoint import checkpoint_name
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

VOCAB, D, L, F = 16_384, 768, 10, 2048
HEADS, NOPE, ROPE, VDIM = 8, 64, 32, 64
Q_LORA, KV_LORA = 384, 192
SEQ, MICRO, ACCUM = 2048, 8, 4
XENT_CHUNKS = 4
MTP_WEIGHT = 0.3
LR_MUON, LR_ADAM = 0.02, 3e-4


def block_shapes():
    return dict(
        attn=dict(
            norm=(D,),
            q_down=(D, Q_LORA),
            q_norm=(Q_LORA,),
            q_up=(Q_LORA, HEADS * (NOPE + ROPE)),
            kv_down=(D, KV_LORA + ROPE),
            kv_norm=(KV_LORA,),
            kv_up=(KV_LORA, HEADS * (NOPE + VDIM)),
            o=(HEADS * VDIM, D),
        ),
        mlp=dict(norm=(D,), gate=(D, F), up=(D, F), down=(F, D)),
    )


def param_shapes():
    blk = block_shapes()
    return dict(
        embed=(VOCAB, D),
        layers=jax.tree.map(lambda s: (L, *s), blk, is_leaf=lambda s: isinstance(s, tuple)),
        norm_f=(D,),
        head=(D, VOCAB),
        mtp=dict(norm_h=(D,), norm_e=(D,), proj=(2 * D, D), block=blk),
    )


def spec_of(path, shape):
    """column-parallel for 'into' matrices, row-parallel for 'out of' ones, fsdp on the other side"""
    name = path[-1].key
    lead = (None,) if path[0].key == "layers" else ()
    if name in ("o", "down"):
        return P(*lead, "tp", "fsdp")
    if name in ("q_up", "kv_up", "gate", "up", "head", "proj"):
        return P(*lead, "fsdp", "tp")
    if name in ("q_down", "kv_down"):
        return P(*lead, "fsdp", None)
    if name == "embed":
        return P("tp", "fsdp")
    return P()


def rms(x, g):
    v = x.astype(jnp.float32)
    return (v * lax.rsqrt(jnp.mean(v * v, -1, keepdims=True) + 1e-6)).astype(x.dtype) * g.astype(
        x.dtype
    )


def apply_rope(x):
    t, half = x.shape[1], x.shape[-1] // 2
    ang = jnp.arange(t)[:, None] * 10_000.0 ** (-jnp.arange(half) / half)
    c, s = jnp.cos(ang)[None, :, None].astype(x.dtype), jnp.sin(ang)[None, :, None].astype(x.dtype)
    a, b = jnp.split(x, 2, -1)
    return jnp.concatenate([a * c - b * s, a * s + b * c], -1)


def mla(p, x):
    b, t, _ = x.shape
    h = rms(x, p["norm"])
    q = (rms(h @ p["q_down"], p["q_norm"]) @ p["q_up"]).reshape(b, t, HEADS, NOPE + ROPE)
    ckv = h @ p["kv_down"]
    latent, k_rope = ckv[..., :KV_LORA], ckv[..., None, KV_LORA:]
    kv = (rms(latent, p["kv_norm"]) @ p["kv_up"]).reshape(b, t, HEADS, NOPE + VDIM)
    k_nope, v = kv[..., :NOPE], kv[..., NOPE:]
    q = jnp.concatenate([q[..., :NOPE], apply_rope(q[..., NOPE:])], -1)
    k = jnp.concatenate([k_nope, jnp.broadcast_to(apply_rope(k_rope), (b, t, HEADS, ROPE))], -1)
    s = (
        jnp.einsum("bqhd,bkhd->bhqk", q, k, preferred_element_type=jnp.float32)
        * (NOPE + ROPE) ** -0.5
    )
    s = jnp.where(jnp.tril(jnp.ones((t, t), bool)), s, -1e30)
    y = jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(s, -1).astype(x.dtype), v)
    return checkpoint_name(y.reshape(b, t, -1), "attn_out") @ p["o"]


def swiglu(p, x):
    h = rms(x, p["norm"])
    return (jax.nn.silu(h @ p["gate"]) * (h @ p["up"])) @ p["down"]


def block(x, p):
    p = jax.tree.map(lambda a: a.astype(jnp.bfloat16), p)
    x = lax.with_sharding_constraint(x, P("fsdp", None, None))
    x = x + mla(p["attn"], x)
    return x + swiglu(p["mlp"], x), None


def chunked_xent(h, head, targets):
    """never hold [batch, seq, vocab]; logits recomputed in backward"""
    b, t, d = h.shape
    h = h.reshape(b, XENT_CHUNKS, t // XENT_CHUNKS, d).swapaxes(0, 1)
    y = targets.reshape(b, XENT_CHUNKS, t // XENT_CHUNKS).swapaxes(0, 1)

    @jax.checkpoint
    def one(tot, hy):
        h, y = hy
        logits = (h @ head.astype(h.dtype)).astype(jnp.float32)
        nll = jax.nn.logsumexp(logits, -1) - jnp.take_along_axis(logits, y[..., None], -1)[..., 0]
        return tot + nll.sum(), None

    return lax.scan(one, jnp.float32(0), (h, y))[0] / targets.size


def mtp_loss(params, h, tokens):
    """predict token t+2 from the trunk state at t and the embedding of t+1"""
    m = params["mtp"]
    e = params["embed"].astype(jnp.bfloat16)[tokens[:, 1 : SEQ + 1]]
    x = jnp.concatenate([rms(h, m["norm_h"]), rms(e, m["norm_e"])], -1) @ m["proj"].astype(
        jnp.bfloat16
    )
    x, _ = jax.checkpoint(block)(x, m["block"])
    return chunked_xent(rms(x, params["norm_f"]), params["head"], tokens[:, 2 : SEQ + 2])


def loss_fn(params, tokens):
    x = params["embed"].astype(jnp.bfloat16)[tokens[:, :SEQ]]
    policy = jax.checkpoint_policies.save_only_these_names("attn_out")
    x, _ = lax.scan(jax.checkpoint(block, policy=policy), x, params["layers"])
    main = chunked_xent(rms(x, params["norm_f"]), params["head"], tokens[:, 1 : SEQ + 1])
    extra = mtp_loss(params, x, tokens)
    return main + MTP_WEIGHT * extra, (main, extra)


def accumulate(params, tokens):
    def micro(acc, tok):
        (_, aux), g = jax.value_and_grad(loss_fn, has_aux=True)(params, tok)
        return jax.tree.map(jnp.add, acc, g), aux

    zero = jax.tree.map(jnp.zeros_like, params)
    g, aux = lax.scan(micro, zero, tokens)
    return jax.tree.map(lambda x: x / ACCUM, g), jax.tree.map(jnp.mean, aux)


# ------------------------------------------------------------------ optimiser
class OptState(NamedTuple):
    mu: Any
    nu: Any
    count: jax.Array


def newton_schulz(g, steps=5):
    """orthogonalise the last two axes"""
    a, b, c = 3.4445, -4.7750, 2.0315
    x = g.astype(jnp.bfloat16)
    flip = x.shape[-2] > x.shape[-1]
    x = x.mT if flip else x
    x = x / (jnp.linalg.norm(x.astype(jnp.float32), axis=(-2, -1), keepdims=True) + 1e-7).astype(
        x.dtype
    )

    def it(_, x):
        s = x @ x.mT
        return a * x + (b * s + c * s @ s) @ x

    x = lax.fori_loop(0, steps, it, x)
    return (x.mT if flip else x).astype(jnp.float32)


def is_matrix(path, p):
    return (
        path[-1].key not in ("embed", "head")
        and p.shape[-1] > 1
        and p.ndim - (path[0].key == "layers") == 2
    )


def optimizer(params, grads, s: OptState):
    n = s.count + 1
    warm = jnp.minimum(1.0, n / 500.0)

    def one(path, p, g, m, v):
        if is_matrix(path, p):
            m = 0.95 * m + g
            u = newton_schulz(g + 0.95 * m) * max(1.0, p.shape[-2] / p.shape[-1]) ** 0.5
            return p - LR_MUON * warm * (u + 0.01 * p), m, v
        m, v = 0.9 * m + 0.1 * g, 0.95 * v + 0.05 * g * g
        u = m / (1 - 0.9**n) / (jnp.sqrt(v / (1 - 0.95**n)) + 1e-8)
        return p - LR_ADAM * warm * u, m, v

    out = jax.tree_util.tree_map_with_path(one, params, grads, s.mu, s.nu)
    pick = lambda i: jax.tree.map(lambda t: t[i], out, is_leaf=lambda t: isinstance(t, tuple))
    return pick(0), OptState(pick(1), pick(2), n)


def pretrain_step(params, opt, tokens):
    with jax.named_scope("accumulate"):
        grads, aux = accumulate(params, tokens)
    with jax.named_scope("muon"):
        params, opt = optimizer(params, grads, opt)
    return params, opt, aux


def build(devices=None):
    devices = np.array(jax.devices() if devices is None else devices)[:8]
    mesh = Mesh(devices.reshape(4, 2), ("fsdp", "tp"), axis_types=(jax.sharding.AxisType.Auto,) * 2)
    jax.set_mesh(mesh)
    put = lambda path, s: jax.ShapeDtypeStruct(
        s, jnp.float32, sharding=NamedSharding(mesh, spec_of(path, s))
    )
    params = jax.tree_util.tree_map_with_path(
        put, param_shapes(), is_leaf=lambda s: isinstance(s, tuple)
    )
    # adam's second moment only where needed; a scalar stands in elsewhere
    rep = NamedSharding(mesh, P())
    nu = jax.tree_util.tree_map_with_path(
        lambda path, p: (
            jax.ShapeDtypeStruct((), jnp.float32, sharding=rep) if is_matrix(path, p) else p
        ),
        params,
    )
    opt = OptState(params, nu, jax.ShapeDtypeStruct((), jnp.int32, sharding=rep))
    tok = jax.ShapeDtypeStruct(
        (ACCUM, MICRO, SEQ + 2), jnp.int32, sharding=NamedSharding(mesh, P(None, "fsdp"))
    )
    return jax.jit(pretrain_step, donate_argnums=(0, 1)), (params, opt, tok)
