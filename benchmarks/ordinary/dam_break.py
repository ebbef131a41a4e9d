TRUTH = """
- dam_break (jax#23052): shallow water in a scan, rows sharded over 8, boundary rows set by x.at[0:2].set / at[-2:].set, and jnp.roll fluxes
- Largest: collectives: rolls along rows = collective-permutes (halo), per step; boundary .at[0:2].set with static slices: all-gathers of the field (as thread says) or not. If so: all-gather of whole [4096,512] per step, several.
- Memory: h,u,v fields and copies: small (8 MB each /8) unless gathered (8 MB).
- Remedy: mask with jnp.where(row index) instead of .at[0:2].set. Donate the state (saves 3 fields).
"""

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

MESH = {"rows": 8}

NY, NX, STEPS, G, DT = 4096, 512, 200, 9.81, 1e-3


def flux(h, hu, hv):
    u, v = hu / h, hv / h
    return (hu, hu * u + 0.5 * G * h * h, hu * v), (hv, hv * u, hv * v + 0.5 * G * h * h)


def lax_friedrichs(q, f, axis):
    right = 0.5 * (f + jnp.roll(f, -1, axis)) - 0.5 / DT * 1e-3 * (jnp.roll(q, -1, axis) - q)
    return right - jnp.roll(right, 1, axis)


def walls(h, hu, hv):
    """Reflecting walls: two rows of ghosts at both ends."""
    h = h.at[0:2].set(h[3:1:-1]).at[-2:].set(h[-3:-5:-1])
    hu = hu.at[0:2].set(hu[3:1:-1]).at[-2:].set(hu[-3:-5:-1])
    hv = hv.at[0:2].set(-hv[3:1:-1]).at[-2:].set(-hv[-3:-5:-1])
    return h, hu, hv


def one(state, _):
    state = walls(*state)
    fx, fy = flux(*state)
    new = tuple(
        q - DT * (lax_friedrichs(q, a, 1) + lax_friedrichs(q, b, 0))
        for q, a, b in zip(state, fx, fy)
    )
    return new, new[0].max()


def simulate(h, hu, hv):
    state, crest = jax.lax.scan(one, (h, hu, hv), None, length=STEPS)
    return *state, crest


def make(mesh):
    f = jax.ShapeDtypeStruct((NY, NX), jnp.float32)
    specs = (P("rows"), P("rows"), P("rows"))
    args = (f, f, f)

    def placed(spec, tree):
        sharding = NamedSharding(mesh, spec)
        S = jax.ShapeDtypeStruct
        return jax.tree.map(lambda a: S(a.shape, a.dtype, sharding=sharding), tree)

    args = jax.tree.map(placed, specs, args, is_leaf=lambda x: isinstance(x, P))
    return jax.jit(simulate, donate_argnums=()), args
