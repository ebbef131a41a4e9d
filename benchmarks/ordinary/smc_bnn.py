TRUTH = """
# smc_bnn - adaptive tempered SMC with HMC moves for a Bayesian MLP (16-64-64-1, 512 particles); plain jax, one device

1. Order: draw particles from the prior -> **stages: while beta < 1 (at most 60; trip count unknown)** { log likelihood of all particles -> **next temperature: bisection loop x30** (effective size) -> evidence -> systematic resampling (cumsum, searchsorted, gather) -> scale from the population -> **HMC moves: loop x3** { gradient at the start -> **leapfrog loop x6** { gradient of the tempered posterior } -> accept/reject, adapt the step size } } -> **predict** on the test set: mean, variance, held-out density.
2. Work per stage ~325 GF: leapfrog gradients 84%, gradient at the start of each move 14%, log likelihood for the weights 2%. Prediction 1.4 GF once. In a gradient: 1/3 forward and 2/3 backward; layer 2 (64 x 64) is ~84%.
3. First picture: prior -> while { likelihood -> temperature (x30) -> resample -> HMC x3 { leapfrog x6 { MLP forward, backward } -> accept } } -> predict.
4. Arrows: particles around the while loop and through resampling; data x, y constant into it; beta, step size, evidence, key around.
5. There is no training optimizer. Backward inside leapfrog is gradient of the log posterior by particle parameters (batched matrices per particle, 512 of them).
6. Should not stand out: key splitting and random bits, unravelling the flat vector to weights (slices, reshapes), logsumexp, binary search internals of searchsorted (may be its own small loop).
7. Misleading: giving the while loop a definite count; treating 512 as mini-batch; taking searchsorted's loop or the bisection as an important phase.
"""

"""Adaptive tempered SMC for a small Bayesian neural net (UCI-like regression)."""
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.flatten_util import ravel_pytree

FEATURES, HIDDEN, DATA, TEST = 16, 64, 1024, 256
PARTICLES = 512
LEAPFROGS, MOVES = 6, 3
BISECT = 30
MAX_STAGES = 60


class SMCState(NamedTuple):
    particles: jax.Array  # [P, D]
    beta: jax.Array
    step_size: jax.Array
    log_evidence: jax.Array
    stage: jax.Array
    key: jax.Array


def template():
    return {
        "w1": jnp.zeros((FEATURES, HIDDEN)),
        "b1": jnp.zeros(HIDDEN),
        "w2": jnp.zeros((HIDDEN, HIDDEN)),
        "b2": jnp.zeros(HIDDEN),
        "w3": jnp.zeros((HIDDEN, 1)),
        "b3": jnp.zeros(1),
        "log_noise": jnp.zeros(()),
    }


def dimension():
    return sum(x.size for x in jax.tree.leaves(jax.eval_shape(template)))


def unravel(theta):
    return ravel_pytree(template())[1](theta)


def network(p, x):
    h = jnp.tanh(x @ p["w1"] + p["b1"])
    h = jnp.tanh(h @ p["w2"] + p["b2"])
    return (h @ p["w3"] + p["b3"])[:, 0]


def log_prior(theta):
    return -0.5 * jnp.sum(theta**2)


def log_likelihood(theta, x, y):
    p = unravel(theta)
    z = (y - network(p, x)) * jnp.exp(-p["log_noise"])
    return jnp.sum(-0.5 * z**2 - p["log_noise"] - 0.919)


def effective_size(logw):
    return jnp.exp(2 * jax.nn.logsumexp(logw) - jax.nn.logsumexp(2 * logw))


def next_temperature(beta, ll):
    """largest step that keeps half of the particles effective"""

    def halve(_, lohi):
        lo, hi = lohi
        mid = 0.5 * (lo + hi)
        ok = effective_size((mid - beta) * ll) > 0.5 * PARTICLES
        return jnp.where(ok, mid, lo), jnp.where(ok, hi, mid)

    lo, _ = lax.fori_loop(0, BISECT, halve, (beta, jnp.float32(2.0)))
    return jnp.minimum(jnp.maximum(lo, beta + 1e-5), 1.0)


def systematic_resample(key, logw):
    cdf = jnp.cumsum(jax.nn.softmax(logw))
    u = (jnp.arange(PARTICLES) + jax.random.uniform(key)) / PARTICLES
    return jnp.clip(jnp.searchsorted(cdf, u), 0, PARTICLES - 1)


def hmc_move(key, thetas, logpost, eps, scale):
    """one HMC proposal for every particle, diagonal mass from the population"""
    kv, ka = jax.random.split(key)
    value_grad = jax.vmap(jax.value_and_grad(logpost))
    v0 = jax.random.normal(kv, thetas.shape)
    lp0, g0 = value_grad(thetas)

    def leapfrog(c, _):
        q, v, lp, g = c
        v = v + 0.5 * eps * scale * g
        q = q + eps * scale * v
        lp, g = value_grad(q)
        return (q, v + 0.5 * eps * scale * g, lp, g), None

    (q, v, lp, _), _ = lax.scan(leapfrog, (thetas, v0, lp0, g0), None, length=LEAPFROGS)
    log_accept = lp - lp0 - 0.5 * jnp.sum(v**2, -1) + 0.5 * jnp.sum(v0**2, -1)
    accept = jnp.log(jax.random.uniform(ka, lp.shape)) < log_accept
    return jnp.where(accept[:, None], q, thetas), jnp.exp(jnp.minimum(log_accept, 0)).mean()


def smc_stage(s, x, y):
    key, k_res, k_move = jax.random.split(s.key, 3)
    ll = jax.vmap(log_likelihood, (0, None, None))(s.particles, x, y)
    beta = next_temperature(s.beta, ll)
    logw = (beta - s.beta) * ll
    evidence = s.log_evidence + jax.nn.logsumexp(logw) - jnp.log(PARTICLES)
    particles = s.particles[systematic_resample(k_res, logw)]
    scale = particles.std(0) + 1e-4
    logpost = lambda th: log_prior(th) + beta * log_likelihood(th, x, y)

    def move(c, k):
        particles, eps = c
        particles, rate = hmc_move(k, particles, logpost, eps, scale)
        return (particles, eps * jnp.exp(0.5 * (rate - 0.7))), rate

    (particles, eps), _ = lax.scan(move, (particles, s.step_size), jax.random.split(k_move, MOVES))
    return SMCState(particles, beta, eps, evidence, s.stage + 1, key)


def predict(particles, x, y):
    """posterior mean, variance, and held-out log density"""
    params = jax.vmap(unravel)(particles)
    means = jax.vmap(network, (0, None))(params, x)
    noise = jnp.exp(params["log_noise"])[:, None]
    lp = -0.5 * ((y - means) / noise) ** 2 - jnp.log(noise) - 0.919
    return (
        means.mean(0),
        means.var(0) + (noise**2).mean(0),
        jax.nn.logsumexp(lp, 0) - jnp.log(PARTICLES),
    )


def infer(key, x, y, x_test, y_test):
    key, k0 = jax.random.split(key)
    start = SMCState(
        jax.random.normal(k0, (PARTICLES, dimension())),
        jnp.float32(0),
        jnp.float32(0.05),
        jnp.float32(0),
        jnp.int32(0),
        key,
    )
    s = lax.while_loop(
        lambda s: (s.beta < 1.0) & (s.stage < MAX_STAGES), lambda s: smc_stage(s, x, y), start
    )
    mean, var, lpd = predict(s.particles, x_test, y_test)
    return {
        "mean": mean,
        "var": var,
        "lpd": lpd.mean(),
        "evidence": s.log_evidence,
        "stages": s.stage,
        "particles": s.particles,
    }


def make():
    S = lambda *s: jax.ShapeDtypeStruct(s, jnp.float32)
    return jax.jit(infer), (
        jax.ShapeDtypeStruct((2,), jnp.uint32),
        S(DATA, FEATURES),
        S(DATA),
        S(TEST, FEATURES),
        S(TEST),
    )
