TRUTH = """
Rebuilt from jax#23052 ("x.at[0:3].set(updates) -> all-gather") in a shallow water model like those of ocean people.
- Shallow water on a [2048, 2048] grid, rows sharded over 8 devices ("y"), 100 steps of a fori_loop; three fields f32 (2 MiB a device each). State donated.
- Shifts along y are `jnp.roll` over a sharded dimension: each should be a collective-permute of one row (8 KiB) per shift, in each step. Shifts along x are local.
- Boundary: `.at[:2].set(...)` / `.at[-2:].set(...)` writes static rows of the sharded dimension (walls), and a sponge at x (`.at[:, :8]`, local). The walls are written by the devices that have them; XLA may gather whole fields for it, or not. If there is an all-gather of a field (16 MiB) in the loop, it is for the lines of `walls`; remedy: `jnp.where(row < 2, ...)` with a broadcasted iota, which is elementwise.
- Nothing else should communicate; there is no reduction except `energy` at the end (one scalar all-reduce).
- Memory-bound: each step reads and writes 3 fields; no matmul. Peak: a few copies of three fields (6 MiB a device for the state).
- The step count is known (100).
"""

"""Shallow water with walls, rows over devices, jit and jnp only."""
import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

MESH = {"y": 8}
NY = NX = 2048
G, DEPTH, DX, DT, F, STEPS = 9.81, 100.0, 5e3, 60.0, 1e-4, 100


def north(a):
    return jnp.roll(a, -1, axis=0)


def south(a):
    return jnp.roll(a, 1, axis=0)


def east(a):
    return jnp.roll(a, -1, axis=1)


def west(a):
    return jnp.roll(a, 1, axis=1)


def walls(u, v):
    u = u.at[:2].set(0.0)
    u = u.at[-2:].set(0.0)
    v = v.at[:2].set(0.0)
    return u, v.at[-2:].set(0.0)


def sponge(h):
    return h.at[:, :8].multiply(0.9).at[:, -8:].multiply(0.9)


def advance(_, state):
    u, v, h = state
    hu = 0.5 * (h + east(h)) * u
    hv = 0.5 * (h + north(h)) * v
    h = h - DT / DX * (hu - west(hu) + hv - south(hv))
    vm = 0.25 * (v + east(v) + south(v) + south(east(v)))
    um = 0.25 * (u + west(u) + north(u) + north(west(u)))
    u_new = u + DT * (F * vm - G / DX * (east(h) - h))
    v_new = v + DT * (-F * um - G / DX * (north(h) - h))
    u, v = walls(u_new, v_new)
    return u, v, sponge(h - DEPTH) + DEPTH


def run(u, v, h):
    u, v, h = jax.lax.fori_loop(0, STEPS, advance, (u, v, h))
    energy = 0.5 * jnp.mean(h * (u**2 + v**2) + G * (h - DEPTH) ** 2)
    return u, v, h, energy


def make(mesh):
    rows = NamedSharding(mesh, P("y", None))
    field = jax.ShapeDtypeStruct((NY, NX), jnp.float32, sharding=rows)
    step = jax.jit(run, donate_argnums=(0, 1, 2), out_shardings=(rows, rows, rows, None))
    return step, (field, field, field)
