TRUTH = """
# hmc_hier — Hamiltonian Monte Carlo, 64 vmapped chains, hierarchical logistic regression; single device; inference (no optimiser)

sample_posterior:
1. split keys, **run_chain (x64 chains at once, vmap)**
   a. initial position + log_joint value and gradient
   b. **warmup**
      - **first half: loop x100** { **hmc_kernel** { sample_momentum, **leapfrog: loop x16** { half kick, drift, **log_joint value+grad** { prior, gather alpha[group], X@beta, log_sigmoid likelihood ; gradient: scatter-add to groups, X^T r }, half kick }, energies, accept } , da_update, welford_update }
      - inverse mass from variances
      - **second half: loop x100** { same }
   c. **draw: loop x300** { hmc_kernel { sample_momentum, **leapfrog loop x16**, accept } ; collect }
2. **rhat** (potential_scale_reduction) per latent, acceptance mean

Loops: 100>16, 100>16, 300>16. The chains' 64 is not a loop, it is a batch dimension.
(The gradients here are of the log density, inside each leapfrog turn: "forward/backward" is not a sensible top-level division.)
Collectives: none.
Heaviest: draw's leapfrog: X@beta (64 x 4096 x 24) and its transpose, with gather and scatter-add by group (64x4096 elements), log_sigmoid. 300/500 of it in draw.
Names: "initial point", "warmup 1 x100", "warmup 2 x100", "draw x300", "hmc_kernel", "leapfrog x16", "log_joint and gradient", "accept", "dual averaging", "Welford", "R-hat".
"""
"""HMC with dual averaging warm-up for a hierarchical logistic regression.

64 chains are vmapped; posterior over (mu, log_tau, group offsets z (non centred), beta).
"""
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import jax.scipy.stats as st
from jax.flatten_util import ravel_pytree

GROUPS, FEATURES, ROWS = 40, 24, 4096
CHAINS, WARMUP, DRAWS, LEAPFROGS = 64, 200, 300, 16
Array = jax.Array


class Latents(NamedTuple):
    mu: Array
    log_tau: Array
    z: Array
    beta: Array


class HMCState(NamedTuple):
    position: Latents
    logp: Array
    grad: Latents


class DualAverage(NamedTuple):
    log_eps: Array
    log_eps_bar: Array
    h_bar: Array
    t: Array
    mu: Array


class Welford(NamedTuple):
    n: Array
    mean: Latents
    m2: Latents


def log_joint(x: Latents, data):
    lp = st.norm.logpdf(x.mu, 0.0, 2.0)
    lp += st.norm.logpdf(jnp.exp(x.log_tau), 0.0, 1.0) + x.log_tau
    lp += st.norm.logpdf(x.z).sum() + st.norm.logpdf(x.beta, 0.0, 1.0).sum()
    alpha = x.mu + jnp.exp(x.log_tau) * x.z
    logits = alpha[data["group"]] + data["X"] @ x.beta
    lp += jnp.sum(
        data["y"] * jax.nn.log_sigmoid(logits) + (1 - data["y"]) * jax.nn.log_sigmoid(-logits)
    )
    return lp


def tree_axpy(a, x, y):
    return jax.tree.map(lambda u, v: a * u + v, x, y)


def kinetic(p, inv_mass):
    return 0.5 * sum(
        jnp.sum(m * q * q) for q, m in zip(jax.tree.leaves(p), jax.tree.leaves(inv_mass))
    )


def leapfrog(potential_grad: Callable, state: HMCState, momentum, inv_mass, eps, n):
    def body(_, c):
        s, p = c
        p = tree_axpy(0.5 * eps, s.grad, p)
        q = jax.tree.map(lambda x, m, v: x + eps * m * v, s.position, inv_mass, p)
        logp, g = potential_grad(q)
        p = tree_axpy(0.5 * eps, g, p)
        return HMCState(q, logp, g), p

    return jax.lax.fori_loop(0, n, body, (state, momentum))


def sample_momentum(key, inv_mass):
    flat, unravel = ravel_pytree(inv_mass)
    return unravel(jax.random.normal(key, flat.shape) / jnp.sqrt(flat))


def hmc_kernel(potential_grad, key, state, eps, inv_mass):
    k_mom, k_jit, k_acc = jax.random.split(key, 3)
    p0 = sample_momentum(k_mom, inv_mass)
    jitter = jax.random.uniform(k_jit, (), minval=0.8, maxval=1.2)
    new, p1 = leapfrog(potential_grad, state, p0, inv_mass, eps * jitter, LEAPFROGS)
    delta = (new.logp - kinetic(p1, inv_mass)) - (state.logp - kinetic(p0, inv_mass))
    delta = jnp.where(jnp.isnan(delta), -jnp.inf, delta)
    accept_prob = jnp.minimum(1.0, jnp.exp(delta))
    take = jax.random.uniform(k_acc) < accept_prob
    state = jax.tree.map(lambda a, b: jnp.where(take, a, b), new, state)
    return state, accept_prob


def da_init(eps):
    z = jnp.zeros_like(eps)
    return DualAverage(jnp.log(eps), z, z, z, jnp.log(10 * eps))


def da_update(da, accept, target=0.8, gamma=0.05, t0=10.0, kappa=0.75):
    t = da.t + 1
    w = 1.0 / (t + t0)
    h = (1 - w) * da.h_bar + w * (target - accept)
    log_eps = da.mu - jnp.sqrt(t) / gamma * h
    eta = t**-kappa
    return DualAverage(log_eps, eta * log_eps + (1 - eta) * da.log_eps_bar, h, t, da.mu)


def welford_update(w, x):
    n = w.n + 1
    d = jax.tree.map(lambda a, m: a - m, x, w.mean)
    mean = jax.tree.map(lambda m, e: m + e / n, w.mean, d)
    m2 = jax.tree.map(lambda s, e, a, m: s + e * (a - m), w.m2, d, x, mean)
    return Welford(n, mean, m2)


def warmup(potential_grad, key, state):
    ones = jax.tree.map(jnp.ones_like, state.position)
    zeros = jax.tree.map(jnp.zeros_like, state.position)

    def step(c, key):
        state, da, w, inv_mass = c
        state, acc = hmc_kernel(potential_grad, key, state, jnp.exp(da.log_eps), inv_mass)
        return (state, da_update(da, acc), welford_update(w, state.position), inv_mass), acc

    k1, k2 = jax.random.split(key)
    c = (state, da_init(jnp.float32(0.02)), Welford(jnp.float32(0), zeros, zeros), ones)
    (state, da, w, _), _ = jax.lax.scan(step, c, jax.random.split(k1, WARMUP // 2))
    inv_mass = jax.tree.map(
        lambda s: (s / (w.n - 1)) * w.n / (w.n + 5) + 1e-3 * 5 / (w.n + 5), w.m2
    )
    c = (state, da_init(jnp.exp(da.log_eps_bar)), w, inv_mass)
    (state, da, _, inv_mass), _ = jax.lax.scan(step, c, jax.random.split(k2, WARMUP // 2))
    return state, jnp.exp(da.log_eps_bar), inv_mass


def draw(potential_grad, key, state, eps, inv_mass):
    def step(s, k):
        s, acc = hmc_kernel(potential_grad, k, s, eps, inv_mass)
        return s, (s.position, acc)

    return jax.lax.scan(step, state, jax.random.split(key, DRAWS))[1]


def run_chain(data, key):
    vg = jax.value_and_grad(partial(log_joint, data=data))
    k0, k1, k2 = jax.random.split(key, 3)
    init = Latents(
        jnp.float32(0), jnp.float32(-1), 0.1 * jax.random.normal(k0, (GROUPS,)), jnp.zeros(FEATURES)
    )
    state = HMCState(init, *vg(init))
    state, eps, inv_mass = warmup(vg, k1, state)
    return draw(vg, k2, state, eps, inv_mass)


def potential_scale_reduction(x):
    """split R-hat; x is [chains, draws, ...]"""
    c, d = x.shape[:2]
    x = x.reshape(2 * c, d // 2, *x.shape[2:])
    within = x.var(1, ddof=1).mean(0)
    between = (d // 2) * x.mean(1).var(0, ddof=1)
    return jnp.sqrt(((d // 2 - 1) / (d // 2) * within + between / (d // 2)) / within)


def sample_posterior(data, key):
    draws, acc = jax.vmap(run_chain, in_axes=(None, 0))(data, jax.random.split(key, CHAINS))
    rhat = jax.tree.map(potential_scale_reduction, draws)
    return draws, acc.mean(), rhat


def build(devices=None):
    S = jax.ShapeDtypeStruct
    data = dict(
        X=S((ROWS, FEATURES), jnp.float32), y=S((ROWS,), jnp.float32), group=S((ROWS,), jnp.int32)
    )
    return jax.jit(sample_posterior), (data, S((2,), jnp.uint32))


def make():
    return build()
