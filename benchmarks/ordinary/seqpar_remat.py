TRUTH = """
- seqpar_remat (jax#25010): sequence parallel transformer layers; norm is sharded on sequence over 'tensor', gathered before attention and MLP; jax.checkpoint around the layer (nothing saved)
- Largest: matmuls; then collectives over 'tensor': per layer 2 all-gathers of [b,s,d] (constraint line), 2 reduce-scatters (constraint on output), same again in recompute; in backward gather of the cotangent, and reduce-scatter. All-reduces of gradients over 'data'.
- Reason: the person's own constraint (lines), seq sharded -> full. Weights are cut over tensor (columns / rows).
- Memory: parameters + carried layer inputs (scan's residuals) seq-sharded, small; gradient; scores in a layer.
- Remedy: none cheap; async overlap; policy saving gathered? Scores: s=1024, flash attention kernel.
"""

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

MESH = {"data": 2, "tensor": 4}

D, HEADS, FF, LAYERS, B, S = 1024, 16, 4096, 4, 8, 1024
SPEC = {
    "norm1": P(None, None),
    "qkv": P(None, None, None, "tensor"),
    "out": P(None, "tensor"),
    "norm2": P(None, None),
    "up": P(None, None, "tensor"),
    "down": P(None, "tensor"),
}


def init(key):
    k = jax.random.split(key, 4)
    n = lambda i, *s: (jax.random.normal(k[i], s) * 0.02).astype(jnp.bfloat16)
    return {
        "norm1": jnp.ones((LAYERS, D), jnp.bfloat16),
        "qkv": n(0, LAYERS, D, 3, D),
        "out": n(1, LAYERS, D, D),
        "norm2": jnp.ones((LAYERS, D), jnp.bfloat16),
        "up": n(2, LAYERS, D, FF),
        "down": n(3, LAYERS, FF, D),
    }


ON = []  # the mesh


def shard(x, *spec):
    return jax.lax.with_sharding_constraint(x, NamedSharding(ON[0], P(*spec)))


def rms(x, g):
    y = x.astype(jnp.float32)
    return (y * jax.lax.rsqrt((y * y).mean(-1, keepdims=True) + 1e-6)).astype(x.dtype) * g


def attention(p, x):
    q, k, v = jnp.moveaxis(jnp.einsum("bsd,dce->bsce", x, p["qkv"]), 2, 0)
    q, k, v = (t.reshape(*t.shape[:2], HEADS, -1) for t in (q, k, v))
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k).astype(jnp.float32) / 8
    mask = jnp.tril(jnp.ones((S, S), bool))
    w = jax.nn.softmax(jnp.where(mask, scores, -1e9)).astype(x.dtype)
    o = jnp.einsum("bhqk,bkhd->bqhd", w, v)
    return o.reshape(*o.shape[:2], D) @ p["out"]


def layer(p, x):
    h = shard(rms(x, p["norm1"]), "data", None, None)
    x = x + shard(attention(p, h), "data", "tensor", None)
    h = shard(rms(x, p["norm2"]), "data", None, None)
    h = jax.nn.gelu(h @ p["up"])
    return x + shard(h @ p["down"], "data", "tensor", None)


def loss_fn(params, x, y):
    x = shard(x, "data", "tensor", None)
    body = jax.checkpoint(layer, policy=jax.checkpoint_policies.nothing_saveable)
    x, _ = jax.lax.scan(lambda c, p: (body(p, c), None), x, params)
    return ((x - y).astype(jnp.float32) ** 2).mean()


def step(params, x, y):
    loss, g = jax.value_and_grad(loss_fn)(params, x, y)
    return jax.tree.map(lambda p, d: (p - 1e-3 * d).astype(p.dtype), params, g), loss


def make(mesh):
    ON[:] = [mesh]
    params = jax.eval_shape(init, jax.random.key(0))
    x = jax.ShapeDtypeStruct((B, S, D), jnp.bfloat16)
    specs = (SPEC, P("data"), P("data"))
    args = (params, x, x)

    def placed(spec, tree):
        sharding = NamedSharding(mesh, spec)
        S = jax.ShapeDtypeStruct
        return jax.tree.map(lambda a: S(a.shape, a.dtype, sharding=sharding), tree)

    args = jax.tree.map(placed, specs, args, is_leaf=lambda x: isinstance(x, P))
    return jax.jit(step, donate_argnums=(0,)), args
