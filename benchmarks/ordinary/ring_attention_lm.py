TRUTH = """
# ring_attention_lm — long-context LM train step, ring attention (plain jax dicts, one shard_map over dp=2 x sp=4)

First picture (in order), all inside step_fn:
1. **forward**
   - embedding lookup (8192x256)
   - **layers: loop x8** { rmsnorm, q/k/v projections, rope, **ring_attention: loop x4 (hops)** { block_attn (scores, causal mask, online softmax, p·v) , ppermute k and v to the next shard }, wo + residual, rmsnorm, swiglu mlp (gate, up, down) }
   - final rmsnorm, tied unembedding to 8192 logits
2. **xent** (logsumexp, pick target, mean, pmean)
3. **backward**
   - xent / unembedding backward (two big matmuls)
   - **layers backward: loop x8** { mlp bwd, wo bwd, **ring backward: loop x4** { recompute block_attn (checkpoint on hop), its gradients, ppermute of dk, dv the other way }, rope/qkv bwd, rmsnorm bwd }
   - embedding scatter-add
   - all-reduce (psum) of all parameter gradients over dp and sp (from replicated params in shard_map; may sit within the backward layer loop, per layer, or after it)
4. **lion** (sign update, momentum, weight decay, warm-up)

Nested loops: 8 > 4 forward and 8 > 4 backward (the 4-turn loop could be unrolled).
Collectives: collective-permute (k, v forward; and cotangents backward) inside the inner loops; all-reduce for gradients (dp, sp) and for the loss. 
Heaviest: ring attention (1024 queries x 4096 keys at d 256: scores+pv 2*2*4096*256 per token = 4.2M vs. projections+mlp 8*256^2+6*256*704=1.6M): ring backward hop loop is the heaviest (fwd 1, bwd with recompute ~3), unembedding 2*8192*256=4.2M per token, once, not eight times.
Names: "embed", "layers x8", "ring attention x4 hops", "block_attn", "ppermute kv", "mlp", "logits", "xent", "backward", "lion".
"""
# Long-context LM with ring attention. Everything inside one shard_map; params are replicated
# over the mesh, activations split over ('dp', 'sp').  No framework.
import math

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

V, D, H, L, F = 8192, 256, 4, 8, 704
SEQ, BATCH = 4096, 4
DP, SP = 2, 4


def init_params(key):
    ks = iter(jax.random.split(key, 16))
    n = lambda shape, s: jax.random.normal(next(ks), shape) * s
    return {
        "embed": n((V, D), 0.02),
        "layers": {
            "ln1": jnp.ones((L, D)),
            "ln2": jnp.ones((L, D)),
            "wq": n((L, D, D), D**-0.5),
            "wk": n((L, D, D), D**-0.5),
            "wv": n((L, D, D), D**-0.5),
            "wo": n((L, D, D), D**-0.5),
            "w_gate": n((L, D, F), D**-0.5),
            "w_up": n((L, D, F), D**-0.5),
            "w_down": n((L, F, D), F**-0.5),
        },
        "ln_f": jnp.ones((D,)),
    }


def rmsnorm(x, g):
    return x * lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-6) * g


def rope(x, pos):
    d = x.shape[-1] // 2
    inv = 1.0 / (500000.0 ** (jnp.arange(d) / d))
    ang = pos[:, None].astype(jnp.float32) * inv
    c, s = jnp.cos(ang)[None, :, None], jnp.sin(ang)[None, :, None]
    a, b = x[..., :d], x[..., d:]
    return jnp.concatenate([a * c - b * s, a * s + b * c], -1).astype(x.dtype)


def block_attn(q, k, v, qpos, kpos, acc, m, l):
    """one online-softmax update with a kv block"""
    s = jnp.einsum("bqhd,bkhd->bhqk", q, k, preferred_element_type=jnp.float32) / math.sqrt(
        q.shape[-1]
    )
    s = jnp.where(qpos[:, None] >= kpos[None, :], s, -1e30)
    m_new = jnp.maximum(m, s.max(-1))
    p = jnp.exp(s - m_new[..., None])
    corr = jnp.exp(m - m_new)
    l = l * corr + p.sum(-1)
    pv = jnp.einsum("bhqk,bkhd->bhqd", p.astype(v.dtype), v, preferred_element_type=jnp.float32)
    return acc * corr[..., None] + pv, m_new, l


def ring_attention(q, k, v):
    sp = lax.axis_size("sp")
    me = lax.axis_index("sp")
    b, t, h, d = q.shape
    ar = jnp.arange(t)
    qpos = me * t + ar
    perm = [(i, (i + 1) % sp) for i in range(sp)]

    @jax.checkpoint
    def hop(carry, i):
        acc, m, l, k, v = carry
        src = (me - i) % sp
        acc, m, l = block_attn(q, k, v, qpos, src * t + ar, acc, m, l)
        k, v = lax.ppermute((k, v), "sp", perm)
        return (acc, m, l, k, v), None

    vary = lambda x: lax.pcast(x, ("dp", "sp"), to="varying")
    init = (
        vary(jnp.zeros((b, h, t, d), jnp.float32)),
        vary(jnp.full((b, h, t), -1e30)),
        vary(jnp.zeros((b, h, t))),
        k,
        v,
    )
    (acc, m, l, _, _), _ = lax.scan(hop, init, jnp.arange(sp))
    o = acc / l[..., None]
    return o.transpose(0, 2, 1, 3).astype(q.dtype)


def layer(x, p):
    b, t, _ = x.shape
    p = jax.tree.map(lambda a: a.astype(jnp.bfloat16), p)
    pos = lax.axis_index("sp") * t + jnp.arange(t)
    h = rmsnorm(x, p["ln1"])
    split = lambda a: a.reshape(b, t, H, D // H)
    q, k, v = split(h @ p["wq"]), split(h @ p["wk"]), split(h @ p["wv"])
    q, k = rope(q, pos), rope(k, pos)
    x = x + ring_attention(q, k, v).reshape(b, t, D) @ p["wo"]
    h = rmsnorm(x, p["ln2"])
    x = x + (jax.nn.silu(h @ p["w_gate"]) * (h @ p["w_up"])) @ p["w_down"]
    return x, None


def forward(params, tokens):
    x = params["embed"][tokens].astype(jnp.bfloat16)
    x, _ = lax.scan(layer, x, params["layers"])
    x = rmsnorm(x, params["ln_f"].astype(x.dtype))
    return jnp.einsum("btd,vd->btv", x, params["embed"].astype(x.dtype)).astype(jnp.float32)


def xent(params, tokens, targets):
    logits = forward(params, tokens)
    lse = jax.nn.logsumexp(logits, -1)
    tgt = jnp.take_along_axis(logits, targets[..., None], -1)[..., 0]
    return lax.pmean(jnp.mean(lse - tgt), ("dp", "sp"))


def lion(params, grads, mom, step, lr=3e-4, b1=0.9, b2=0.99, wd=0.1):
    warm = jnp.minimum(1.0, (step + 1) / 2000.0)
    upd = jax.tree.map(
        lambda p, g, m: p - lr * warm * (jnp.sign(b1 * m + (1 - b1) * g) + wd * p),
        params,
        grads,
        mom,
    )
    mom = jax.tree.map(lambda g, m: b2 * m + (1 - b2) * g, grads, mom)
    return upd, mom


def step_fn(params, mom, step, tokens, targets):
    loss, grads = jax.value_and_grad(xent)(params, tokens, targets)
    params, mom = lion(params, grads, mom, step)
    return params, mom, step + 1, loss


def build(devices=None):
    devices = np.array(jax.devices() if devices is None else devices)[:8]
    mesh = Mesh(devices.reshape(DP, SP), ("dp", "sp"))
    f = jax.shard_map(
        step_fn,
        mesh=mesh,
        in_specs=(P(), P(), P(), P("dp", "sp"), P("dp", "sp")),
        out_specs=(P(), P(), P(), P()),
    )
    sds = lambda spec: (
        lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=NamedSharding(mesh, spec))
    )
    params = jax.tree.map(
        sds(P()), jax.eval_shape(init_params, jax.ShapeDtypeStruct((2,), jnp.uint32))
    )
    tok = sds(P("dp", "sp"))(jax.ShapeDtypeStruct((BATCH, SEQ), jnp.int32))
    step = sds(P())(jax.ShapeDtypeStruct((), jnp.int32))
    return jax.jit(f, donate_argnums=(0, 1)), (params, params, step, tok, tok)


MESH = {"device": 8}


def make(mesh):
    return build(list(mesh.devices.flat))
