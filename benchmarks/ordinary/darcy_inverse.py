TRUTH = """
Gauss-Newton permeability inversion (invert), 512 x 512 cells, 16 pumping tests over 8 devices (2 each, vmap), shard_map "tests". Scientific; no learning, no matmuls.

invert
  gauss_newton_step: loop x8
    linearise: one forward predict -> pressure (2 tests vmapped) by mgcg, and the stored linear map
    gradient: transposed map = one more mgcg solve (adjoint), psum over tests, smoothness
    newton_cg: loop x15
      normal_operator: jvp (one mgcg solve), vjp (one mgcg solve), psum over tests (512x512), smoothness
    line_search: map loop x3 over step sizes, each a full predict (one mgcg solve), psum
  mgcg (each of the solves): a v_cycle before the loop, then while loop cg_iteration, at most 60, data dependent
    cg_iteration: apply_operator (5-point stencil), dot products, v_cycle
      v_cycle: level_512, level_256, level_128, level_64, level_32 (down: 3 smoothing sweeps, restrict; up: prolong, 3 sweeps), coarsest 16x16 (40 sweeps)
        smooth = small fori loop x3 (twice per level) or x40

Five kinds of solve in the text: forward, adjoint (gradient), tangent and adjoint in newton_cg, forward in line_search.
Per Gauss-Newton step: 1 + 1 + 15 x 2 + 3 = 35 solves; 280 in all. Level recursion is written out (6 levels), not a loop.
The smoothing loops may be unrolled by the compiler (trip count 3).
Weight: nearly everything is in newton_cg > normal_operator > the two mgcg solves, there level_512 (each coarser level a quarter of the work).
Elementwise/stencil, memory bound: no matmul at all.
"gradient" here is the data-misfit gradient; jvp/vjp are of the linear solve: no backward through the CG iterations.
First sight: loop x8 > (linearise, gradient, loop x15 with two solves, line_search loop x3), each solve a while loop with a V-cycle of 6 levels.
Names true: gauss_newton_step, linearise, gradient, newton_cg, normal_operator, line_search, pressure, mgcg, cg_iteration, v_cycle, level_N, coarsest, smooth, restrict, prolong.
False would be: "optimiser" / "training" labels of a network; the while trip stated as sure; v_cycle levels merged with no count; gradient through the iterations claimed.
"""

"""Permeability inversion for steady Darcy flow: Gauss-Newton over the log-permeability of a 512x512 aquifer, 16 pumping
tests split over 8 devices, each pressure solve by multigrid-preconditioned conjugate gradients with implicit derivatives."""
import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

MESH = {"tests": 8}
N, LEVELS, TESTS, SENSORS = 512, 6, 16, 96
GN_STEPS, GN_CG = 8, 15
CG_MAX, TOL = 60, 1e-5


def faces(kappa):
    """Harmonic means on the inner faces; the boundary is held at zero pressure."""
    hx = 2 * kappa[1:] * kappa[:-1] / (kappa[1:] + kappa[:-1])
    hy = 2 * kappa[:, 1:] * kappa[:, :-1] / (kappa[:, 1:] + kappa[:, :-1])
    kx = jnp.concatenate([2 * kappa[:1], hx, 2 * kappa[-1:]], 0)
    ky = jnp.concatenate([2 * kappa[:, :1], hy, 2 * kappa[:, -1:]], 1)
    return kx, ky


def apply_operator(kx, ky, p):
    q = jnp.pad(p, 1)
    fx = kx * (q[1:, 1:-1] - q[:-1, 1:-1])
    fy = ky * (q[1:-1, 1:] - q[1:-1, :-1])
    return -(fx[1:] - fx[:-1]) - (fy[:, 1:] - fy[:, :-1])


def diagonal(kx, ky):
    return kx[1:] + kx[:-1] + ky[:, 1:] + ky[:, :-1]


def restrict(r):
    n = r.shape[0] // 2
    return r.reshape(n, 2, n, 2).sum((1, 3))


def prolong(e):
    return jnp.repeat(jnp.repeat(e, 2, 0), 2, 1)


def hierarchy(kappa):
    levels = []
    for _ in range(LEVELS):
        levels.append(faces(kappa))
        n = kappa.shape[0] // 2
        kappa = jnp.exp(jnp.log(kappa).reshape(n, 2, n, 2).mean((1, 3)))
    return levels


def smooth(level, x, b, sweeps):
    inv = 0.8 / diagonal(*level)
    return lax.fori_loop(0, sweeps, lambda _, x: x + inv * (b - apply_operator(*level, x)), x)


def v_cycle(levels, b):
    if len(levels) == 1:
        with jax.named_scope("coarsest"):
            return smooth(levels[0], jnp.zeros_like(b), b, 40)
    with jax.named_scope(f"level_{b.shape[0]}"):
        x = smooth(levels[0], jnp.zeros_like(b), b, 3)
        coarse = restrict(b - apply_operator(*levels[0], x))
    e = v_cycle(levels[1:], coarse)
    with jax.named_scope(f"level_{b.shape[0]}"):
        return smooth(levels[0], x + prolong(e), b, 3)


def mgcg(levels, b):
    """Conjugate gradients preconditioned by one V-cycle."""

    def unconverged(s):
        _, r, _, _, it = s
        return (it < CG_MAX) & (jnp.vdot(r, r) > TOL**2 * jnp.vdot(b, b))

    def cg_iteration(s):
        x, r, p, rz, it = s
        ap = apply_operator(*levels[0], p)
        alpha = rz / jnp.vdot(p, ap)
        x, r = x + alpha * p, r - alpha * ap
        z = v_cycle(levels, r)
        new = jnp.vdot(r, z)
        return x, r, z + new / rz * p, new, it + 1

    z = v_cycle(levels, b)
    return lax.while_loop(unconverged, cg_iteration, (jnp.zeros_like(b), b, z, jnp.vdot(b, z), 0))[
        0
    ]


def pressure(log_kappa, source):
    """Derivatives come from the linear system, not from the iterations."""
    kappa = jnp.exp(log_kappa)
    kx, ky = faces(kappa)
    levels = hierarchy(lax.stop_gradient(kappa))
    return lax.custom_linear_solve(
        lambda p: apply_operator(kx, ky, p), source, lambda _, b: mgcg(levels, b), symmetric=True
    )


def predict(log_kappa, sources, sensors):
    """All this device's pumping tests, sampled at the wells."""
    heads = jax.vmap(pressure, in_axes=(None, 0))(log_kappa, sources)
    return heads[:, sensors[:, 0], sensors[:, 1]]


def smoothness(m):
    """Prior precision: squared Laplacian plus a little identity."""
    lap = lambda u: (
        4 * u - jnp.roll(u, 1, 0) - jnp.roll(u, -1, 0) - jnp.roll(u, 1, 1) - jnp.roll(u, -1, 1)
    )
    return 5.0 * lap(lap(m)) + 0.01 * m


def invert(m0, sources, sensors, observed, sigma):
    def gauss_newton_step(m, _):
        misfit = lambda m: (predict(m, sources, sensors) - observed) / sigma
        with jax.named_scope("linearise"):
            r, jvp = jax.linearize(misfit, m)
            vjp = jax.linear_transpose(jvp, m)
        with jax.named_scope("gradient"):
            g = lax.psum(vjp(r)[0], "tests") + smoothness(m)

        def normal_operator(d):
            return lax.psum(vjp(jvp(d))[0], "tests") + smoothness(d)

        def newton_cg(s, _):
            x, r, p, rr = s
            ap = normal_operator(p)
            a = rr / jnp.vdot(p, ap)
            x, r = x + a * p, r - a * ap
            new = jnp.vdot(r, r)
            return (x, r, r + new / rr * p, new), None

        (step, _, _, _), _ = lax.scan(
            newton_cg, (jnp.zeros_like(m), -g, -g, jnp.vdot(g, g)), None, length=GN_CG
        )

        with jax.named_scope("line_search"):
            objective = lambda t: (
                lax.psum(0.5 * (misfit(m + t * step) ** 2).sum(), "tests")
                + 0.5 * jnp.vdot(m + t * step, smoothness(m + t * step))
            )
            sizes = jnp.array([1.0, 0.5, 0.25])
            values = lax.map(objective, sizes)
            m = m + sizes[jnp.argmin(values)] * step
        return m, (values.min(), jnp.sqrt(jnp.vdot(g, g)))

    return lax.scan(gauss_newton_step, m0, None, length=GN_STEPS)


def make(mesh):
    f32 = jnp.float32
    S = lambda shape, dt, *spec: jax.ShapeDtypeStruct(
        shape, dt, sharding=NamedSharding(mesh, P(*spec))
    )
    f = jax.jit(
        jax.shard_map(
            invert,
            mesh=mesh,
            in_specs=(P(), P("tests"), P(), P("tests"), P()),
            out_specs=(P(), P()),
            check_vma=False,
        )
    )
    return f, (
        S((N, N), f32),
        S((TESTS, N, N), f32, "tests"),
        S((SENSORS, 2), jnp.int32),
        S((TESTS, SENSORS), f32, "tests"),
        S((), f32),
    )
