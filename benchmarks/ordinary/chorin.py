TRUTH = """
TOP-LEVEL, IN ORDER
- simulate: outer loop over 10 saved frames; in each frame an inner loop of 25 time steps, then `diagnostics` (kinetic energy, max divergence, enstrophy) of the frame
- one time step (Chorin projection): `advect` (upwind) and `diffuse` -> tentative velocity -> boundary conditions -> `divergence` -> pressure solve `cg` -> `project` (subtract the pressure gradient)
- also a passive `temperature`/dye field transported each step (advect + diffuse), buoyancy force on v
COUNTS
- nested loops: 10 frames x 25 steps x CG while loop (until residual below tolerance or 60 iterations: trip count not static)
- 3 levels of loop nesting; CG warm-started with the last pressure
- per CG iteration: 1 Laplacian (halo exchange + 5-point stencil) and 2 global dot products (psum); a dot product or two before the loop too
- 3 advected fields: u, v, dye
INDEPENDENT
- advection-diffusion of u, v and dye within one step are independent of each other (same old velocity)
- the dye transport is independent of the pressure solve
COMMUNICATION
- domain split along x in 8 slabs (shard_map, axis 'x'): halo exchange with ppermute (2 per exchange: left, right), psum for CG dot products, pmax/psum in diagnostics
SHARES
- all elementwise/stencil work, no matmul; the CG pressure solve does most of the work (up to ~90% at 60 iterations; if its body is counted once, only ~20%); advection/diffusion nearly all of the rest; diagnostics negligible
MUST NOT BE SHOWN
- no neural network, no training, no gradient/backward, no optimizer, no FFT, no randomness, no matmul of note
"""
"""2-D incompressible Boussinesq flow on a periodic-x channel, slab-decomposed over devices.

Chorin's projection method on a collocated grid, pressure by conjugate gradients.
"""
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

MESH = {"x": 8}

NX, NY = 512, 256
DX = DY = 1.0 / NY
DT, NU, KAPPA, BETA = 2e-4, 1e-3, 1e-3, 5.0
FRAMES, STEPS_PER_FRAME = 10, 25
CG_MAXITER, CG_TOL = 60, 1e-5


class State(NamedTuple):
    u: jax.Array
    v: jax.Array
    p: jax.Array
    dye: jax.Array


def halo_exchange(f):
    """Adds one ghost column on each side (periodic in x), and ghost rows in y (zero gradient)."""
    n = lax.axis_size("x")
    left = lax.ppermute(f[-1:], "x", [(i, (i + 1) % n) for i in range(n)])
    right = lax.ppermute(f[:1], "x", [(i, (i - 1) % n) for i in range(n)])
    f = jnp.concatenate([left, f, right], 0)
    return jnp.pad(f, ((0, 0), (1, 1)), mode="edge")


def gdot(a, b):
    return lax.psum(jnp.vdot(a, b), "x")


def laplacian(f):
    g = halo_exchange(f)
    c = g[1:-1, 1:-1]
    return (g[2:, 1:-1] - 2 * c + g[:-2, 1:-1]) / DX**2 + (
        g[1:-1, 2:] - 2 * c + g[1:-1, :-2]
    ) / DY**2


def grad(f):
    g = halo_exchange(f)
    return (g[2:, 1:-1] - g[:-2, 1:-1]) / (2 * DX), (g[1:-1, 2:] - g[1:-1, :-2]) / (2 * DY)


def divergence(u, v):
    return grad(u)[0] + grad(v)[1]


def advect(f, u, v):
    g = halo_exchange(f)
    c = g[1:-1, 1:-1]
    fx = jnp.where(u > 0, (c - g[:-2, 1:-1]) / DX, (g[2:, 1:-1] - c) / DX)
    fy = jnp.where(v > 0, (c - g[1:-1, :-2]) / DY, (g[1:-1, 2:] - c) / DY)
    return u * fx + v * fy


def no_slip(u, v):
    zero = lambda f: f.at[:, 0].set(0.0).at[:, -1].set(0.0)
    return zero(u), zero(v)


def cg(b, x0):
    """Solves -lap(x) = b."""
    A = lambda x: -laplacian(x)
    b = b - lax.pmean(jnp.mean(b), "x")
    r = b - A(x0)
    rs = gdot(r, r)
    tol2 = CG_TOL**2 * gdot(b, b)

    def cond(c):
        k, x, r, p, rs = c
        return (k < CG_MAXITER) & (rs > tol2)

    def body(c):
        k, x, r, p, rs = c
        Ap = A(p)
        alpha = rs / gdot(p, Ap)
        x = x + alpha * p
        r = r - alpha * Ap
        rs_new = gdot(r, r)
        p = r + (rs_new / rs) * p
        return k + 1, x, r, p, rs_new

    k, x, *_ = lax.while_loop(cond, body, (0, x0, r, r, rs))
    return x, k


def project(u, v, p):
    px, py = grad(p)
    return u - DT * px, v - DT * py


def step(state):
    u, v, p, dye = state
    us = u + DT * (NU * laplacian(u) - advect(u, u, v))
    vs = v + DT * (NU * laplacian(v) - advect(v, u, v) + BETA * dye)
    us, vs = no_slip(us, vs)
    dye = dye + DT * (KAPPA * laplacian(dye) - advect(dye, u, v))
    rhs = -divergence(us, vs) / DT
    p, iters = cg(rhs, p)
    u, v = no_slip(*project(us, vs, p))
    return State(u, v, p, dye), iters


def diagnostics(s, iters):
    energy = 0.5 * lax.pmean(jnp.mean(s.u**2 + s.v**2), "x")
    maxdiv = lax.pmax(jnp.max(jnp.abs(divergence(s.u, s.v))), "x")
    vort = grad(s.v)[0] - grad(s.u)[1]
    enstrophy = lax.pmean(jnp.mean(vort**2), "x")
    return {"energy": energy, "max_div": maxdiv, "enstrophy": enstrophy, "cg_iters": iters.mean()}


def make(mesh):
    @partial(
        jax.shard_map,
        mesh=mesh,
        in_specs=P("x", None),
        out_specs=(P("x", None), P(None, "x", None), P()),
        check_vma=False,
    )
    def simulate(state):
        def frame(state, _):
            state, iters = lax.scan(lambda s, _: step(s), state, None, length=STEPS_PER_FRAME)
            return state, (state.dye, diagnostics(state, iters))

        state, (movie, stats) = lax.scan(frame, state, None, length=FRAMES)
        return state, movie, stats

    field = jax.ShapeDtypeStruct((NX, NY), jnp.float32, sharding=NamedSharding(mesh, P("x", None)))
    return simulate, (State(field, field, field, field),)
