TRUTH = """
# enkf_l96 — ensemble Kalman filter twin experiment on Lorenz-96, members over 8 devices (jit, auto sharding), plain JAX

## 1 Tree of parts
twin_experiment
1. localisation matrices: constants (960x480 and 480x480)
2. **cycles: loop x60** {
   - **advance truth: loop x20** (rk4) ; **advance ensemble: loop x20** (rk4, 4 tendencies; 64 members per device x 960)
   - observe truth + noise; prior rmse; inflate
   - **analysis** { perturbations, **covariances**: pht = loc*(xp^T yp), hph = loc*(yp^T yp) (contract over the sharded members -> all-reduce of 960x480 and 480x480) ; perturbed observations ; **solve**: cholesky 480, cho_solve for 512 right-hand sides ; gain: pht @ w, add }
   - adapt inflation; diagnostics }
3. **free forecast: loop x100** { rk4 of ensemble and truth, rmse }
4. **crps** (sort along the sharded member axis)

## 2 Where the work goes (107 GF over all devices, if all is shared fairly)
analysis 82%: covariances ~40%, gain ~27%, cholesky + solves ~15%; rk4 17%; rest 1%. Cholesky is replicated on every device (cannot be split).

## 3 First picture
cycle x60 { forecast truth x20, forecast ensemble x20, observe, inflate, analysis { covariances + all-reduce, solve (cholesky), gain }, inflation, diagnostics } -> free forecast x100 -> crps.

## 4 Misleading
- No learning here: "forward/backward/optimiser", "layer" are all wrong; the two x20 loops are time steps (truth and ensemble), they should not be fused in the reader's mind to "x40" or "2 layers".
- The many tiny all-reduces (ensemble means, rmse, variance) drawn as large as the covariance all-reduce.
- Cholesky custom-call unnamed; whether w is solved per device on its own 64 members (good) or gathered/replicated is interesting and should be visible.
- Sorting at the end needs an all-gather/all-to-all of the ensemble: once, not in the loop.
"""

"""Twin experiment: stochastic ensemble Kalman filter on Lorenz-96 with Gaspari-Cohn localisation.

Ensemble members are spread over 8 devices (jit, NamedSharding on the member axis); the compiler decides
on communication for the ensemble covariances.  Ends with a free forecast scored by CRPS.
"""
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

NX = 960
MEMBERS = 512
OBS_EVERY = 2
NY = NX // OBS_EVERY
CYCLES = 60
STEPS_PER_CYCLE = 20
FORECAST = 100
DT = 0.01
FORCING = 8.0
R_VAR = 1.0
LOC_RADIUS = 24.0


class FilterState(NamedTuple):
    ensemble: jax.Array  # [members, NX]
    truth: jax.Array  # [NX]
    inflation: jax.Array
    key: jax.Array


def tendency(x):
    return (jnp.roll(x, -1, -1) - jnp.roll(x, 2, -1)) * jnp.roll(x, 1, -1) - x + FORCING


def rk4(x):
    k1 = tendency(x)
    k2 = tendency(x + 0.5 * DT * k1)
    k3 = tendency(x + 0.5 * DT * k2)
    k4 = tendency(x + DT * k3)
    return x + DT / 6 * (k1 + 2 * k2 + 2 * k3 + k4)


def advance(x, n):
    return jax.lax.fori_loop(0, n, lambda _, z: rk4(z), x)


def gaspari_cohn(dist, c):
    r = dist / c
    near = 1 - 5 / 3 * r**2 + 5 / 8 * r**3 + 0.5 * r**4 - 0.25 * r**5
    rr = np.maximum(r, 1e-6)
    far = 4 - 5 * r + 5 / 3 * r**2 + 5 / 8 * r**3 - 0.5 * r**4 + r**5 / 12 - 2 / (3 * rr)
    return np.where(r < 1, near, np.where(r < 2, far, 0.0)).astype(np.float32)


def _ring(a, b):
    d = np.abs(a[:, None] - b[None])
    return np.minimum(d, NX - d)


OBS_IDX = np.arange(0, NX, OBS_EVERY)


def observe(x):
    return x[..., ::OBS_EVERY]


def inflate(ens, factor):
    mean = ens.mean(0, keepdims=True)
    return mean + factor * (ens - mean)


def adapt_inflation(lam, innov, hph_diag):
    """Desroziers style: compare innovation variance with what the ensemble says"""
    expected = jnp.mean(hph_diag) + R_VAR
    ratio = jnp.mean(innov**2) / expected
    return jnp.clip(0.95 * lam + 0.05 * lam * jnp.sqrt(jnp.maximum(ratio, 0.5)), 1.0, 1.3)


def analysis(ens, y, key, loc_xy, loc_yy):
    """perturbed-observation update with covariance localisation"""
    xp = ens - ens.mean(0)
    hx = observe(ens)
    yp = hx - hx.mean(0)
    with jax.named_scope("covariances"):
        pht = loc_xy * (xp.T @ yp) / (MEMBERS - 1)
        hph = loc_yy * (yp.T @ yp) / (MEMBERS - 1)
    noise = jnp.sqrt(R_VAR) * jax.random.normal(key, (MEMBERS, NY))
    innov = y + noise - noise.mean(0) - hx
    with jax.named_scope("solve"):
        chol = jax.scipy.linalg.cho_factor(hph + R_VAR * jnp.eye(NY), lower=True)
        w = jax.scipy.linalg.cho_solve(chol, innov.T)
    return ens + (pht @ w).T, jnp.diagonal(hph)


def rmse(a, b):
    return jnp.sqrt(jnp.mean((a - b) ** 2))


def crps(ens, x):
    """fair ensemble CRPS via sorting"""
    n = ens.shape[0]
    s = jnp.sort(ens, axis=0)
    w = (2 * jnp.arange(1, n + 1) - n - 1)[:, None]
    return jnp.mean(jnp.mean(jnp.abs(ens - x), 0) - jnp.sum(w * s, 0) / (n * (n - 1)))


def cycle(mesh, loc, state: FilterState, _):
    key, k_obs, k_pert = jax.random.split(state.key, 3)
    truth = advance(state.truth, STEPS_PER_CYCLE)
    ens = advance(state.ensemble, STEPS_PER_CYCLE)
    prior_rmse = rmse(ens.mean(0), truth)
    y = observe(truth) + jnp.sqrt(R_VAR) * jax.random.normal(k_obs, (NY,))
    ens = inflate(ens, state.inflation)
    d = y - observe(ens).mean(0)
    ens, hph = analysis(ens, y, k_pert, *loc)
    ens = jax.lax.with_sharding_constraint(ens, NamedSharding(mesh, P("ens")))
    lam = adapt_inflation(state.inflation, d, hph)
    diag = dict(
        prior_rmse=prior_rmse,
        post_rmse=rmse(ens.mean(0), truth),
        spread=jnp.sqrt(ens.var(0).mean()),
        inflation=lam,
    )
    return FilterState(ens, truth, lam, key), diag


def free_forecast(ens, truth):
    def step(c, _):
        e, t = rk4(c[0]), rk4(c[1])
        return (e, t), rmse(e.mean(0), t)

    (ens, truth), err = jax.lax.scan(step, (ens, truth), None, length=FORECAST)
    return err, crps(ens, truth)


def twin_experiment(mesh, state: FilterState):
    every = np.arange(NX)
    loc = (
        jnp.asarray(gaspari_cohn(_ring(every, OBS_IDX), LOC_RADIUS)),
        jnp.asarray(gaspari_cohn(_ring(OBS_IDX, OBS_IDX), LOC_RADIUS)),
    )
    state, diag = jax.lax.scan(partial(cycle, mesh, loc), state, None, length=CYCLES)
    err, score = free_forecast(state.ensemble, state.truth)
    return state, diag, err, score


def build(devices=None):
    devices = np.array(jax.devices() if devices is None else devices)[:8]
    mesh = Mesh(devices, ("ens",))
    S = lambda s, spec, d=jnp.float32: jax.ShapeDtypeStruct(
        s, d, sharding=NamedSharding(mesh, spec)
    )
    state = FilterState(
        S((MEMBERS, NX), P("ens")), S((NX,), P()), S((), P()), S((2,), P(), jnp.uint32)
    )
    return jax.jit(partial(twin_experiment, mesh), donate_argnums=0), (state,)
