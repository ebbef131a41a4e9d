TRUTH = """
- switch_worlds (jax#8409): vmap of lax.switch over 4 physics regimes without matmul, in a scan of 64 steps, worlds sharded over 8
- Largest: all four branches run for every world and three are thrown away (select): about 3/4 of time is for nothing. No collectives but a final mean (all-reduce of a scalar).
- Memory: state; small.
- Remedy: sort worlds by regime & run each regime on its own group, or outside vmap.
"""

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

MESH = {"w": 8}

WORLDS, BODIES, STEPS = 512, 64, 64


def gravity(x, v):
    r = x[:, None] - x[None]
    d = (r * r).sum(-1) + 0.01
    return -(r / (d * jnp.sqrt(d))[..., None]).sum(1)


def springs(x, v):
    r = x[:, None] - x[None]
    d = jnp.sqrt((r * r).sum(-1) + 1e-6)
    return -((d - 1.0)[..., None] * r / d[..., None]).mean(1) - 0.1 * v


def charges(x, v):
    r = x[:, None] - x[None]
    d = (r * r).sum(-1) + 0.01
    return (r * jnp.exp(-d)[..., None] / d[..., None]).sum(1)


def drift(x, v):
    return -0.05 * v


def world(kind, x, v):
    a = jax.lax.switch(kind, (gravity, springs, charges, drift), x, v)
    v = v + 0.01 * a
    return x + 0.01 * v, v


def rollout(kinds, x, v):
    def one(c, _):
        x, v = jax.vmap(world)(kinds, *c)
        return (x, v), (v * v).sum((1, 2)).mean()

    (x, v), energy = jax.lax.scan(one, (x, v), None, length=STEPS)
    return x, v, energy


def make(mesh):
    s = jax.ShapeDtypeStruct
    f = s((WORLDS, BODIES, 3), jnp.float32)
    specs = (P("w"), P("w"), P("w"))
    args = (s((WORLDS,), jnp.int32), f, f)

    def placed(spec, tree):
        sharding = NamedSharding(mesh, spec)
        S = jax.ShapeDtypeStruct
        return jax.tree.map(lambda a: S(a.shape, a.dtype, sharding=sharding), tree)

    args = jax.tree.map(placed, specs, args, is_leaf=lambda x: isinstance(x, P))
    return jax.jit(rollout, donate_argnums=()), args
