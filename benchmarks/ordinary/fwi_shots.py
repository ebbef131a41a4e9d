TRUTH = """
# fwi_shots - seismic full waveform inversion, one L-BFGS iteration; shard_map, 16 shots over 8 devices (2 each)

1. Order: **misfit and gradient** (shard_map over shots) -> all-reduce (psum) of misfit, gradient, illumination -> **precondition** (illumination, Gaussian smoothing, water mask) -> **L-BFGS direction** (two-loop recursion over history of 5) -> **line search** (3 trial step lengths, each a forward-only modelling + psum) -> pick best, update velocity, update history.
2. Nesting: forward modelling = **segments: loop x24 { time steps: loop x25 { Laplacian (4th order), leapfrog update, sponge damping, inject source, record at 128 receivers } }**. Segment is checkpointed: backward = **loop x24 { recompute 25 steps ; backward 25 steps }**.  Line search = **loop x3 { x24 { x25 } }**.
3. Repeats: 600 time steps forward, 600 recomputed, 600 backward, 3 x 600 in the line search.
4. Work (all elementwise stencil, no matmuls): line search ~43%, forward ~14%, recompute ~14%, backward ~29%. So the time loops are ~100%, half of it gradient.  Smoothing, L-BFGS ~0.
5. Important arrows: observed data [shots, 600, 128] -> residual; wavefield checkpoints (24 x 2 fields) forward -> backward; velocity -> every loop; gradient -> direction -> line search -> new model.
6. Collectives: psum after gradient (3 things, perhaps one fused all-reduce), one psum in each of 3 trials.  None inside the time loops.
7. Should not stand out: Ricker wavelet, sponge profile, receiver gather, history roll.
8. Misleading: loops of 24/25 called layers; x3 nested around x24 x25 should be visible as trial loop; first loop and line search's loop both "model shots" (same function called twice).
"""

"""Acoustic 2-D full waveform inversion with checkpointed adjoint and L-BFGS."""
import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

MESH = {"shots": 8}

NZ, NX, DX, DT = 192, 256, 10.0, 1e-3
SEGMENTS, STEPS = 24, 25
NT = SEGMENTS * STEPS
SHOTS, RECEIVERS, FREQ = 16, 128, 12.0
MEMORY = 5
TRIALS = (0.5, 1.0, 2.0)


def ricker(t):
    a = (jnp.pi * FREQ * (t - 1.2 / FREQ)) ** 2
    return (1 - 2 * a) * jnp.exp(-a)


def sponge(width=24):
    z = jnp.minimum(jnp.arange(NZ), jnp.arange(NZ)[::-1])
    x = jnp.minimum(jnp.arange(NX), jnp.arange(NX)[::-1])
    d = jnp.minimum(z[:, None], x[None])
    return jnp.exp(-((0.015 * jnp.maximum(width - d, 0)) ** 2))


def laplacian(u):
    p = jnp.pad(u, 2)
    c = p[2:-2, 2:-2]
    near = p[1:-3, 2:-2] + p[3:-1, 2:-2] + p[2:-2, 1:-3] + p[2:-2, 3:-1]
    far = p[:-4, 2:-2] + p[4:, 2:-2] + p[2:-2, :-4] + p[2:-2, 4:]
    return (-5.0 * c + (4.0 / 3.0) * near - (1.0 / 12.0) * far) / DX**2


def receiver_columns():
    return jnp.linspace(8, NX - 9, RECEIVERS).astype(jnp.int32)


def time_step(carry, t, c2, damp, src):
    u, u_prev, energy = carry
    nxt = 2 * u - u_prev + DT**2 * c2 * laplacian(u)
    nxt = nxt.at[src[0], src[1]].add(DT**2 * ricker(t * DT) * 1e6)
    nxt, u = nxt * damp, u * damp
    return (nxt, u, energy + lax.stop_gradient(nxt) ** 2), nxt[4, receiver_columns()]


def model_shot(velocity, src):
    """One shot: record [NT, RECEIVERS] and illumination."""
    c2, damp = velocity**2, sponge()

    @jax.checkpoint
    def segment(carry, times):
        return lax.scan(lambda c, t: time_step(c, t, c2, damp, src), carry, times)

    zero = jnp.zeros((NZ, NX))
    times = jnp.arange(NT, dtype=jnp.float32).reshape(SEGMENTS, STEPS)
    (_, _, energy), record = lax.scan(segment, (zero, zero, zero), times)
    return record.reshape(NT, RECEIVERS), energy


def local_misfit(velocity, sources, observed):
    record, energy = jax.vmap(model_shot, (None, 0))(velocity, sources)
    residual = record - observed
    return 0.5 * jnp.sum(residual**2), energy.sum(0)


def gaussian_smooth(g, sigma=3.0, radius=9):
    k = jnp.exp(-0.5 * (jnp.arange(-radius, radius + 1) / sigma) ** 2)
    k = k / k.sum()
    image = g[None, None]
    image = lax.conv(image, k.reshape(1, 1, -1, 1), (1, 1), "SAME")
    return lax.conv(image, k.reshape(1, 1, 1, -1), (1, 1), "SAME")[0, 0]


def precondition(gradient, illumination):
    g = gradient / (illumination + 1e-2 * illumination.max())
    g = gaussian_smooth(g)
    water = jnp.arange(NZ)[:, None] < 12
    return jnp.where(water, 0.0, g)


def lbfgs_direction(g, s_hist, y_hist):
    """Two-loop recursion; newest pair last."""
    rho = 1.0 / (jnp.sum(s_hist * y_hist, (1, 2)) + 1e-12)

    def down(q, syr):
        s, y, r = syr
        a = r * jnp.vdot(s, q)
        return q - a * y, a

    q, alphas = lax.scan(down, g, (s_hist, y_hist, rho), reverse=True)
    gamma = jnp.vdot(s_hist[-1], y_hist[-1]) / (jnp.vdot(y_hist[-1], y_hist[-1]) + 1e-12)

    def up(r, syra):
        s, y, rh, a = syra
        b = rh * jnp.vdot(y, r)
        return r + (a - b) * s, None

    r, _ = lax.scan(up, gamma * q, (s_hist, y_hist, rho, alphas))
    return -r


def make(mesh):
    rep, dat = P(), P("shots")

    def gradient_shots(velocity, sources, observed):
        velocity = lax.pcast(velocity, "shots", to="varying")
        (misfit, energy), g = jax.value_and_grad(local_misfit, has_aux=True)(
            velocity, sources, observed
        )
        return lax.psum((misfit, g, energy), "shots")

    def misfit_shots(velocity, sources, observed):
        return lax.psum(local_misfit(velocity, sources, observed)[0], "shots")

    misfit_and_gradient = jax.shard_map(
        gradient_shots, mesh=mesh, in_specs=(rep, dat, dat), out_specs=rep, check_vma=False
    )
    misfit_only = jax.shard_map(
        misfit_shots, mesh=mesh, in_specs=(rep, dat, dat), out_specs=rep, check_vma=False
    )

    def line_search(velocity, direction, sources, observed):
        scale = 30.0 / (jnp.abs(direction).max() + 1e-12)
        trials = jnp.array(TRIALS) * scale
        values = lax.map(
            lambda a: misfit_only(
                jnp.clip(velocity + a * direction, 1400.0, 5000.0), sources, observed
            ),
            trials,
        )
        return trials[jnp.argmin(values)], values.min()

    def fwi_iteration(state, sources, observed):
        v = state["velocity"]
        misfit, g, illumination = misfit_and_gradient(v, sources, observed)
        g = precondition(g, illumination)
        y_hist = jnp.roll(state["y"], -1, 0).at[-1].set(g - state["g"])
        direction = lbfgs_direction(g, state["s"], y_hist)
        alpha, best = line_search(v, direction, sources, observed)
        new = jnp.clip(v + alpha * direction, 1400.0, 5000.0)
        s_hist = jnp.roll(state["s"], -1, 0).at[-1].set(new - v)
        return {"velocity": new, "g": g, "s": s_hist, "y": y_hist}, {
            "misfit": misfit,
            "after": best,
        }

    S = lambda shape, spec, dtype=jnp.float32: jax.ShapeDtypeStruct(
        shape, dtype, sharding=NamedSharding(mesh, spec)
    )
    state = {
        "velocity": S((NZ, NX), rep),
        "g": S((NZ, NX), rep),
        "s": S((MEMORY, NZ, NX), rep),
        "y": S((MEMORY, NZ, NX), rep),
    }
    sources = S((SHOTS, 2), dat, jnp.int32)
    observed = S((SHOTS, NT, RECEIVERS), dat)
    return jax.jit(fwi_iteration, donate_argnums=0), (state, sources, observed)
