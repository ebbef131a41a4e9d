TRUTH = """
# fourdvar_swe - incremental 4D-Var data assimilation of a shallow-water model, then a forecast; one device

1. Order: **outer loop x3 (Gauss-Newton)** { **nonlinear trajectory** over the window: **6 observation times, loop x6 { 12 model steps, loop x12 }** -> innovations (observation minus model at 400 stations) -> **inner loop x10 (conjugate gradients)** { Hessian-vector product: control transform (B^1/2 by FFT), **tangent-linear** x6 { x12 }, **adjoint** x6 { x12 } reversed, B^1/2 transposed ; CG updates (dot products) } -> increment added } -> **forecast** from the analysis: loop x144 model steps, output fields each 24.
2. Model step = RK4 { 4 tendencies: u, v, h advection/gravity/Coriolis finite differences (rolls), diffusion } on 128 x 128.
3. Repeats: tangent and adjoint 3 x 10 x 72 = 2160 model steps each; nonlinear 3 x 72; forecast 144. (perhaps the first right side needs one more adjoint x72 per outer loop.)
4. Work (elementwise, no matmuls): inner CG ~93-95% (tangent ~1/3+, adjoint the rest), nonlinear trajectory with linearisation ~3-4%, forecast ~2%. FFTs of B^1/2 small (<1%).
5. First picture: x3 { trajectory x6 {x12} -> innovations -> CG x10 { B^1/2, tangent x6 {x12}, adjoint x6 {x12}, B^1/2 } -> update } -> forecast x144.
6. Arrows: linearisation state (trajectory's saved values) from trajectory into every CG turn (loop-invariant: large); innovations -> right-hand side; analysis -> forecast; carry of outer loop: control increment.
7. Four levels of loops: 3 > 10 > 6 > 12: hard to draw but it is the essence.
8. Should not stand out: rolls (periodic shifts), station gather/scatter, dots of CG.
9. Misleading: any of these loops named layers; forward (tangent) loop in CG taken for the model forecast.
"""

"""Strong-constraint incremental 4D-Var, shallow water on a periodic f-plane."""
import jax
import jax.numpy as jnp
from jax import lax

N, DX, DT = 128, 20e3, 60.0
GRAVITY, CORIOLIS, DEPTH, NU = 9.81, 1e-4, 500.0, 2e4
TIMES, STEPS = 6, 12
OUTER, INNER = 3, 10
STATIONS = 400
FORECAST, EVERY = 144, 24


# ---------------------------------------------------------------- model
def ddx(f):
    return (jnp.roll(f, -1, 1) - jnp.roll(f, 1, 1)) / (2 * DX)


def ddy(f):
    return (jnp.roll(f, -1, 0) - jnp.roll(f, 1, 0)) / (2 * DX)


def diffuse(f):
    near = jnp.roll(f, 1, 0) + jnp.roll(f, -1, 0) + jnp.roll(f, 1, 1) + jnp.roll(f, -1, 1)
    return NU * (near - 4 * f) / DX**2


def tendency(state):
    u, v, h = state
    du = -u * ddx(u) - v * ddy(u) + CORIOLIS * v - GRAVITY * ddx(h) + diffuse(u)
    dv = -u * ddx(v) - v * ddy(v) - CORIOLIS * u - GRAVITY * ddy(h) + diffuse(v)
    dh = -ddx((DEPTH + h) * u) - ddy((DEPTH + h) * v) + diffuse(h)
    return jnp.stack([du, dv, dh])


def model_step(state):
    k1 = tendency(state)
    k2 = tendency(state + 0.5 * DT * k1)
    k3 = tendency(state + 0.5 * DT * k2)
    k4 = tendency(state + DT * k3)
    return state + DT / 6 * (k1 + 2 * k2 + 2 * k3 + k4)


def observe(state, stations):
    return state[:, stations[:, 0], stations[:, 1]]


def observed_trajectory(state, stations):
    """model values at the stations, [TIMES, 3, STATIONS]"""

    def until_next_observation(state, _):
        state, _ = lax.scan(lambda s, _: (model_step(s), None), state, None, length=STEPS)
        return state, observe(state, stations)

    return lax.scan(until_next_observation, state, None, length=TIMES)[1]


# ---------------------------------------------------------------- covariances
def background_sqrt(control):
    """B^1/2: Gaussian correlations (length 150 km) by FFT, then standard deviations"""
    k = 2 * jnp.pi * jnp.fft.fftfreq(N, DX)
    kr = 2 * jnp.pi * jnp.fft.rfftfreq(N, DX)
    filt = jnp.exp(-0.25 * (150e3) ** 2 * (k[:, None] ** 2 + kr[None] ** 2))
    smooth = jnp.fft.irfft2(jnp.fft.rfft2(control) * filt, s=(N, N))
    return smooth * jnp.array([1.0, 1.0, 10.0])[:, None, None]


def observation_weight():
    return 1.0 / jnp.array([0.5, 0.5, 2.0])[None, :, None] ** 2


# ---------------------------------------------------------------- minimisation
def conjugate_gradient(hessian, rhs):
    def turn(carry, _):
        x, r, p, rr = carry
        ap = hessian(p)
        alpha = rr / (jnp.vdot(p, ap) + 1e-20)
        x, r = x + alpha * p, r - alpha * ap
        new = jnp.vdot(r, r)
        return (x, r, r + (new / (rr + 1e-20)) * p, new), jnp.sqrt(new)

    start = (jnp.zeros_like(rhs), rhs, rhs, jnp.vdot(rhs, rhs))
    (x, *_), residuals = lax.scan(turn, start, None, length=INNER)
    return x, residuals


def outer_iteration(background, stations, observations, control):
    def from_control(c):
        return observed_trajectory(background + background_sqrt(c), stations)

    simulated, tangent = jax.linearize(from_control, control)
    adjoint = jax.linear_transpose(tangent, control)
    innovation = observations - simulated
    weight = observation_weight()

    def hessian(v):
        return v + adjoint(weight * tangent(v))[0]

    rhs = adjoint(weight * innovation)[0] - control
    increment, residuals = conjugate_gradient(hessian, rhs)
    cost = 0.5 * jnp.vdot(control, control) + 0.5 * jnp.sum(weight * innovation**2)
    return control + increment, (cost, residuals)


def minimise(background, stations, observations):
    def body(control, _):
        return outer_iteration(background, stations, observations, control)

    control, history = lax.scan(body, jnp.zeros_like(background), None, length=OUTER)
    return background + background_sqrt(control), history


def forecast(state):
    def day(state, _):
        state, _ = lax.scan(lambda s, _: (model_step(s), None), state, None, length=EVERY)
        return state, state

    return lax.scan(day, state, None, length=FORECAST // EVERY)[1]


def assimilate(background, stations, observations):
    analysis, (cost, residuals) = minimise(background, stations, observations)
    return analysis, forecast(analysis), {"cost": cost, "residuals": residuals}


def make():
    S = jax.ShapeDtypeStruct
    return assimilate, (
        S((3, N, N), jnp.float32),
        S((STATIONS, 2), jnp.int32),
        S((TIMES, 3, STATIONS), jnp.float32),
    )
