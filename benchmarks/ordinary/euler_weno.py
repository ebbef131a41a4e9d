TRUTH = """
# euler_weno - 2-D compressible Euler solver (WENO5 + SSP-RK3), Kelvin-Helmholtz 2048 x 1024; shard_map over x 4 x y 2 with halo exchange, f32

1. Order: initial condition (once) -> **output loop x10** { **time-step loop x50** { maximal wave speeds (global max), dt; **3 Runge-Kutta stages** (unrolled), each: halo exchange in x, fluxes, splitting, WENO5 of both signs on x faces; halo exchange in y, the same on y faces; divergence; convex combination }; diagnostics (mass, energy, transverse kinetic energy, enstrophy, minimal pressure), 8x8-averaged density thumbnail } -> final state + history.
2. All element-wise (no matmuls): WENO5 reconstruction > 85% (per cell, stage: 2 directions x 2 signs x 4 components x ~65 operations ~1000 FLOPs); 2.1 M cells x 3 x 500 x ~1.2 kFLOP ~ 4 TFLOP. x and y half each. Memory traffic: 4 fields of 512 x 512 per device, a few hundred MB per step.
3. Loops: x10 containing x50. 3 stages and 2 directions unrolled.
4. Device axes: x (4) and y (2) split the domain: per stage 4 ppermutes (3-cell wide strips, left and right in x, then in y; 12 per step, 6000 in all), one all-reduce max per step, all-reduce sum (4 numbers) and min per output. Corners need no exchange.
5. First picture: initialise -> [x10: [x50: wave speeds/dt -> RK stage 1, 2, 3 (halo, x fluxes, y fluxes, update)] -> diagnostics] -> state.
6. Arrows: state u and time around both loops; u also to stages 2 and 3; halo strips between neighbours; dt and speeds to all the three stages.
7. Should not stand out: slices for the stencil, pressure floor, averaging for thumbnails, RNG of four phases.
8. Typically wrong: the three stages not visible (one fused blob) or drawn as three different things; halos called gradient communication; initial condition (tanh/sin) shown as big as the solver; the two loops flattened to one x500.
"""

"""2-D compressible Euler, Kelvin-Helmholtz: finite-difference WENO5 with local Lax-Friedrichs splitting and
SSP-RK3, domain decomposition 4 x 2 with halo exchange by ppermute. 10 outputs of 50 steps."""
import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

MESH = {"x": 4, "y": 2}
NX, NY = 2048, 1024
DX, DY = 2.0 / NX, 1.0 / NY
GAMMA, CFL, H = 1.4, 0.4, 3
OUTPUTS, STEPS = 10, 50


def primitives(u):
    rho, mx, my, e = u
    vx, vy = mx / rho, my / rho
    p = (GAMMA - 1) * (e - 0.5 * rho * (vx * vx + vy * vy))
    return rho, vx, vy, jnp.maximum(p, 1e-8)


def flux_x(u):
    rho, vx, vy, p = primitives(u)
    return jnp.stack([u[1], u[1] * vx + p, u[1] * vy, (u[3] + p) * vx])


def flux_y(u):
    rho, vx, vy, p = primitives(u)
    return jnp.stack([u[2], u[2] * vx, u[2] * vy + p, (u[3] + p) * vy])


def weno5(a, b, c, d, e):
    """value at the right face of the middle cell c"""
    eps = 1e-6
    b0 = 13 / 12 * (a - 2 * b + c) ** 2 + 0.25 * (a - 4 * b + 3 * c) ** 2
    b1 = 13 / 12 * (b - 2 * c + d) ** 2 + 0.25 * (b - d) ** 2
    b2 = 13 / 12 * (c - 2 * d + e) ** 2 + 0.25 * (3 * c - 4 * d + e) ** 2
    w0, w1, w2 = 0.1 / (eps + b0) ** 2, 0.6 / (eps + b1) ** 2, 0.3 / (eps + b2) ** 2
    q0 = (2 * a - 7 * b + 11 * c) / 6
    q1 = (-b + 5 * c + 2 * d) / 6
    q2 = (2 * c + 5 * d - e) / 6
    return (w0 * q0 + w1 * q1 + w2 * q2) / (w0 + w1 + w2)


def shifted(f, axis, n):
    """five/six neighbours along an axis, each as long as the number of faces"""
    return [lax.slice_in_dim(f, i, i + n, axis=axis) for i in range(6)]


def face_flux(u, flux, speed, axis):
    n = u.shape[axis] - 2 * H + 1
    f = flux(u)
    plus, minus = 0.5 * (f + speed * u), 0.5 * (f - speed * u)
    p, m = shifted(plus, axis, n), shifted(minus, axis, n)
    return weno5(*p[:5]) + weno5(*m[:0:-1])


def halo(u, name, axis):
    n = lax.axis_size(name)
    right = [(i, (i + 1) % n) for i in range(n)]
    left = [(j, i) for i, j in right]
    lo = lax.slice_in_dim(u, 0, H, axis=axis)
    hi = lax.slice_in_dim(u, u.shape[axis] - H, u.shape[axis], axis=axis)
    from_left = lax.ppermute(hi, name, right)
    from_right = lax.ppermute(lo, name, left)
    return jnp.concatenate([from_left, u, from_right], axis)


def max_speeds(u):
    rho, vx, vy, p = primitives(u)
    c = jnp.sqrt(GAMMA * p / rho)
    s = jnp.stack([(jnp.abs(vx) + c).max(), (jnp.abs(vy) + c).max()])
    return lax.pmax(s, ("x", "y"))


def rhs(u, s):
    fx = face_flux(halo(u, "x", 1), flux_x, s[0], 1)
    fy = face_flux(halo(u, "y", 2), flux_y, s[1], 2)
    return -(fx[:, 1:] - fx[:, :-1]) / DX - (fy[:, :, 1:] - fy[:, :, :-1]) / DY


def step(carry, _):
    u, t = carry
    s = max_speeds(u)
    dt = CFL / (s[0] / DX + s[1] / DY)
    u1 = u + dt * rhs(u, s)
    u2 = 0.75 * u + 0.25 * (u1 + dt * rhs(u1, s))
    u3 = u / 3 + 2 / 3 * (u2 + dt * rhs(u2, s))
    return (u3, t + dt), None


def diagnostics(u):
    rho, vx, vy, p = primitives(u)
    w = (jnp.roll(vy, -1, 0) - jnp.roll(vy, 1, 0)) / (2 * DX) - (
        jnp.roll(vx, -1, 1) - jnp.roll(vx, 1, 1)
    ) / (2 * DY)
    sums = (
        jnp.stack(
            [rho.sum(), u[3].sum(), (0.5 * rho * vy * vy).sum(), (0.5 * w * w)[1:-1, 1:-1].sum()]
        )
        * DX
        * DY
    )
    return lax.psum(sums, ("x", "y")), lax.pmin(p.min(), ("x", "y"))


def output(carry, _):
    carry, _ = lax.scan(step, carry, None, length=STEPS)
    u = carry[0]
    thumb = u[0].reshape(u.shape[1] // 8, 8, u.shape[2] // 8, 8).mean((1, 3))
    return carry, (diagnostics(u), carry[1], thumb)


def initial(key):
    """run per shard: shear layer with a seeded perturbation"""
    nx, ny = NX // lax.axis_size("x"), NY // lax.axis_size("y")
    x = (lax.axis_index("x") * nx + jnp.arange(nx) + 0.5)[:, None] * DX
    y = (lax.axis_index("y") * ny + jnp.arange(ny) + 0.5)[None] * DY
    ph = jax.random.uniform(key, (4,)) * 2 * jnp.pi
    band = 0.5 * (jnp.tanh((y - 0.25) / 0.01) - jnp.tanh((y - 0.75) / 0.01))
    rho = 1.0 + band + 0 * x
    vx = band - 0.5 + 0 * x
    modes = sum(jnp.sin(2 * jnp.pi * (k + 1) * x + ph[k]) for k in range(4))
    vy = (
        0.02 * modes * (jnp.exp(-(((y - 0.25) / 0.05) ** 2)) + jnp.exp(-(((y - 0.75) / 0.05) ** 2)))
    )
    e = 2.5 / (GAMMA - 1) + 0.5 * rho * (vx * vx + vy * vy)
    return jnp.stack([rho, rho * vx, rho * vy, e])


def simulate(key):
    (u, t), logs = lax.scan(output, (initial(key), jnp.zeros(())), None, length=OUTPUTS)
    return u, t, logs


def make(mesh):
    run = jax.shard_map(
        simulate,
        mesh=mesh,
        in_specs=P(),
        out_specs=(P(None, "x", "y"), P(), ((P(), P()), P(), P(None, "x", "y"))),
        check_vma=False,
    )
    return jax.jit(run), (
        jax.ShapeDtypeStruct((2,), jnp.uint32, sharding=NamedSharding(mesh, P())),
    )
