"""Lattice Boltzmann (D2Q9) flow past a cylinder; rows are split over devices with halo exchange."""

MESH = {"x": 8}

TRUTH = {
    "majors": {
        "simulate loop (500 steps)": 1.0,
        "collide": 0.6,
        "stream (halo_exchange + rolls)": 0.2,
        "bounce_back": 0.1,
        "inflow/outflow": 0.0,
        "vorticity at the end": 0.0,
    },
    "layers": [],
    "optimizer": False,
    "grad": "nothing",
    "loops": [["simulate fori_loop of steps", 500]],
    "tells_apart": [["collide", "stream"], ["halo up", "halo down"]],
}

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

NX, NY = 2048, 512
STEPS = 500
U0 = 0.08
REYNOLDS = 200.0
RADIUS = 40
NU = U0 * 2 * RADIUS / REYNOLDS
OMEGA = 1.0 / (3 * NU + 0.5)

C = np.array([[0, 0], [1, 0], [0, 1], [-1, 0], [0, -1], [1, 1], [-1, 1], [-1, -1], [1, -1]])
W = np.array([4 / 9] + [1 / 9] * 4 + [1 / 36] * 4, dtype=np.float32)
OPPOSITE = np.array([0, 3, 4, 1, 2, 7, 8, 5, 6])
RIGHT, LEFT = np.array([1, 5, 8]), np.array([3, 6, 7])


def macroscopic(f):
    rho = f.sum(axis=0)
    ux = jnp.tensordot(jnp.asarray(C[:, 0], f.dtype), f, axes=1) / rho
    uy = jnp.tensordot(jnp.asarray(C[:, 1], f.dtype), f, axes=1) / rho
    return rho, ux, uy


def equilibrium(rho, ux, uy):
    usq = 1.5 * (ux**2 + uy**2)
    out = []
    for i in range(9):
        cu = 3.0 * (C[i, 0] * ux + C[i, 1] * uy)
        out.append(W[i] * rho * (1.0 + cu + 0.5 * cu**2 - usq))
    return jnp.stack(out)


def collide(f):
    rho, ux, uy = macroscopic(f)
    return f - OMEGA * (f - equilibrium(rho, ux, uy))


def bounce_back(f, f_collided, solid):
    return jnp.where(solid[None], f[OPPOSITE], f_collided)


def halo_exchange(f):
    n = jax.lax.axis_size("x")
    forward = [(i, (i + 1) % n) for i in range(n)]
    backward = [(i, (i - 1) % n) for i in range(n)]
    from_left = jax.lax.ppermute(f[:, -1:], "x", forward)
    from_right = jax.lax.ppermute(f[:, :1], "x", backward)
    return jnp.concatenate([from_left, f, from_right], axis=1)


def stream(f):
    padded = halo_exchange(f)
    n = f.shape[1]
    moved = []
    for i in range(9):
        cx, cy = int(C[i, 0]), int(C[i, 1])
        rows = jax.lax.slice_in_dim(padded[i], 1 - cx, 1 - cx + n, axis=0)
        moved.append(jnp.roll(rows, cy, axis=1))
    return jnp.stack(moved)


def boundaries(f):
    rank, n = jax.lax.axis_index("x"), jax.lax.axis_size("x")
    # outflow: copy the last but one column
    out = f.at[LEFT, -1].set(f[LEFT, -2])
    f = jnp.where(rank == n - 1, out, f)
    # inflow: equilibrium with the given velocity
    rho = jnp.ones((1, NY), f.dtype)
    inflow = f.at[:, :1].set(equilibrium(rho, U0 * rho, 0.0 * rho))
    return jnp.where(rank == 0, inflow, f)


def lbm_step(f, solid):
    collided = collide(f)
    f = bounce_back(f, collided, solid)
    f = stream(f)
    return boundaries(f)


def simulate_local(f, solid):
    f = jax.lax.fori_loop(0, STEPS, lambda _, f: lbm_step(f, solid), f)
    rho, ux, uy = macroscopic(f)
    vorticity = jnp.gradient(uy, axis=0) - jnp.gradient(ux, axis=1)
    drag = jax.lax.psum(jnp.sum(jnp.where(solid, rho * ux, 0.0)), "x")
    return f, jnp.where(solid, 0.0, vorticity), drag


def make_simulate(mesh):
    return jax.jit(
        jax.shard_map(
            simulate_local,
            mesh=mesh,
            in_specs=(P(None, "x"), P("x")),
            out_specs=(P(None, "x"), P("x"), P()),
            check_vma=False,
        ),
        donate_argnums=0,
    )


def make(mesh):
    f = jax.ShapeDtypeStruct((9, NX, NY), jnp.float32, sharding=NamedSharding(mesh, P(None, "x")))
    solid = jax.ShapeDtypeStruct((NX, NY), jnp.bool_, sharding=NamedSharding(mesh, P("x")))
    return make_simulate(mesh), (f, solid)
