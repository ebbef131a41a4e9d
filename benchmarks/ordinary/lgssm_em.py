TRUTH = """
TOP-LEVEL, IN ORDER
- fit_em: loop over 25 EM iterations; each = `e_step` then `m_step`; afterwards one final `kalman_filter` pass and a `forecast` of 50 steps with the fitted parameters
- e_step: `kalman_filter` (forward in time) -> `rts_smoother` (backward in time) -> `sufficient_stats` summed over time and over sequences
- m_step: closed form: new A, Q (dynamics), new C, R (emission), new m0, P0; linear solves
COUNTS
- outer loop: 25 iterations; inside it two sequential loops of time: filter over 200 steps, smoother over 199 steps (reversed)
- after it: one more filter loop of 200 and a forecast loop of 50
- 16 sequences vmapped together (not a loop); state 12, observations 24
- filter step = `predict` then `update` (Cholesky solve for the gain, log-likelihood term)
INDEPENDENT
- the 16 sequences are independent until sufficient_stats
- in m_step dynamics (A, Q), emission (C, R) and initial (m0, P0) updates: the A/Q part, C/R part and initial part are independent of each other
SHARES
- the EM loop does >95% of the work; inside, filter + smoother nearly all of it (filter ~70-75%: 24-dim innovation covariance and its Cholesky; smoother ~20-25%), sufficient stats ~3%, m_step ~0
- final filter ~3% of total (one pass against 25 filter + smoother passes)
MUST NOT BE SHOWN
- no gradient, no backward, no optimizer, no neural network, no random sampling, no collectives, no associative scan
"""
"""Learning a linear Gaussian state space model by expectation maximisation."""
from typing import NamedTuple

import jax
import jax.numpy as jnp
import jax.scipy.linalg as jsl
from jax import lax, vmap

T, N_SEQ, DIM_X, DIM_Y, EM_ITERS, HORIZON = 200, 16, 12, 24, 25, 50


class Params(NamedTuple):
    A: jax.Array
    Q: jax.Array
    C: jax.Array
    R: jax.Array
    m0: jax.Array
    P0: jax.Array


def symmetrize(M):
    return 0.5 * (M + M.T)


def psd_solve(M, b, jitter=1e-6):
    chol = jsl.cho_factor(symmetrize(M) + jitter * jnp.eye(M.shape[-1]), lower=True)
    return jsl.cho_solve(chol, b), chol[0]


def predict(params, m, P):
    return params.A @ m, params.A @ P @ params.A.T + params.Q


def update(params, m, P, y):
    S = params.C @ P @ params.C.T + params.R
    resid = y - params.C @ m
    sol, L = psd_solve(S, jnp.concatenate([params.C @ P, resid[:, None]], 1))
    K, Sinv_r = sol[:, :-1].T, sol[:, -1]
    ll = -0.5 * (resid @ Sinv_r + DIM_Y * jnp.log(2 * jnp.pi)) - jnp.sum(jnp.log(jnp.diag(L)))
    return m + K @ resid, symmetrize(P - K @ params.C @ P), ll


def kalman_filter(params, ys):
    def step(carry, y):
        m_pred, P_pred, ll = carry
        m, P, inc = update(params, m_pred, P_pred, y)
        m_next, P_next = predict(params, m, P)
        return (m_next, P_next, ll + inc), (m, P, m_next, P_next)

    (_, _, ll), filtered = lax.scan(step, (params.m0, params.P0, 0.0), ys)
    return ll, filtered


def rts_smoother(params, filtered):
    ms, Ps, m_preds, P_preds = filtered

    def step(carry, args):
        m_s, P_s = carry
        m, P, m_pred, P_pred = args
        G = psd_solve(P_pred, params.A @ P)[0].T
        m_sm = m + G @ (m_s - m_pred)
        P_sm = symmetrize(P + G @ (P_s - P_pred) @ G.T)
        cross = P_s @ G.T  # Cov(x_{t+1}, x_t)
        return (m_sm, P_sm), (m_sm, P_sm, cross)

    init = (ms[-1], Ps[-1])
    _, (sm, sP, cross) = lax.scan(
        step, init, (ms[:-1], Ps[:-1], m_preds[:-1], P_preds[:-1]), reverse=True
    )
    return jnp.concatenate([sm, ms[-1:]]), jnp.concatenate([sP, Ps[-1:]]), cross


class Stats(NamedTuple):
    xx_prev: jax.Array
    xx_next: jax.Array
    xx_cross: jax.Array
    xx: jax.Array
    yx: jax.Array
    yy: jax.Array
    x0: jax.Array
    x0x0: jax.Array


def sufficient_stats(ys, m, P, cross):
    Exx = P + m[:, :, None] * m[:, None, :]
    Ecross = cross + m[1:, :, None] * m[:-1, None, :]
    return Stats(
        Exx[:-1].sum(0),
        Exx[1:].sum(0),
        Ecross.sum(0),
        Exx.sum(0),
        jnp.einsum("ti,tj->ij", ys, m),
        jnp.einsum("ti,tj->ij", ys, ys),
        m[0],
        Exx[0],
    )


def e_step(params, ys):
    def single(y):
        ll, filtered = kalman_filter(params, y)
        smoothed = rts_smoother(params, filtered)
        return ll, sufficient_stats(y, *smoothed)

    lls, stats = vmap(single)(ys)
    return lls.sum(), jax.tree.map(lambda s: s.sum(0), stats)


def m_step(stats):
    n_trans, n_obs = N_SEQ * (T - 1), N_SEQ * T
    # dynamics
    A = psd_solve(stats.xx_prev, stats.xx_cross.T)[0].T
    Q = symmetrize(stats.xx_next - A @ stats.xx_cross.T) / n_trans
    # emissions
    C = psd_solve(stats.xx, stats.yx.T)[0].T
    R = symmetrize(stats.yy - C @ stats.yx.T) / n_obs
    # initial state
    m0 = stats.x0 / N_SEQ
    P0 = symmetrize(stats.x0x0 / N_SEQ - jnp.outer(m0, m0))
    jit = 1e-5
    return Params(
        A, Q + jit * jnp.eye(DIM_X), C, R + jit * jnp.eye(DIM_Y), m0, P0 + jit * jnp.eye(DIM_X)
    )


def forecast(params, m, P):
    def step(carry, _):
        m, P = predict(params, *carry)
        return (m, P), (params.C @ m, jnp.diag(params.C @ P @ params.C.T + params.R))

    _, out = lax.scan(step, (m, P), None, length=HORIZON)
    return out


def fit_em(params, ys):
    def em_iteration(params, _):
        ll, stats = e_step(params, ys)
        return m_step(stats), ll

    params, lls = lax.scan(em_iteration, params, None, length=EM_ITERS)
    final_ll, (ms, Ps, _, _) = vmap(lambda y: kalman_filter(params, y))(ys)
    mean, var = vmap(lambda m, P: forecast(params, m, P))(ms[:, -1], Ps[:, -1])
    return params, lls, final_ll, mean, var


def make():
    S = lambda *s: jax.ShapeDtypeStruct(s, jnp.float32)
    params = Params(
        S(DIM_X, DIM_X),
        S(DIM_X, DIM_X),
        S(DIM_Y, DIM_X),
        S(DIM_Y, DIM_Y),
        S(DIM_X),
        S(DIM_X, DIM_X),
    )
    return fit_em, (params, S(N_SEQ, T, DIM_Y))
