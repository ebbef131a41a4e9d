TRUTH = """
# rv_tempering - parallel-tempering HMC for 3 planets in radial velocities with a quasi-periodic GP; plain jax, shard_map over 8 temperatures groups

1. Order: initial log likelihood of all chains -> **sampling loop: 250 iterations** { **HMC trajectory 1**: initial gradient + **leapfrog loop x8** (each one gradient of the log posterior), accept/reject; **local swap** of the device's two temperatures; **HMC trajectory 2** (same); **cross-device swap** with the right / left neighbours (ppermute); step-size adaptation (Robbins-Monro) } -> thermodynamic-integration summary (psum).
   Log posterior per chain = { Kepler solver (3 planets x 240 times, **Halley loop x6**), radial-velocity model + offsets, GP covariance 240x240, **Cholesky**, triangular solve, log-determinant } + gaussian prior. 2 temperatures x 16 chains = 32 chains a device, by vmap.
2. Work: likelihood gradients ~100%: 250 x 2 x 9 gradients x 32 chains per device (+ one likelihood). In a gradient: Cholesky 240^3/3 and its backward (triangular solves / matmuls of 240x240) dominate; covariance build (exp, sin of 240x240) next; Kepler solver small; momenta, accept, swaps ~0. Forward : backward of Cholesky about 1 : 2+.
3. Loops: 250 outer; two nested leapfrog loops x8 (plus an initial gradient outside each); Halley x6; on CPU/TPU the Cholesky / triangular solve may be custom calls or their own blocked loops.
4. Device axis "temp" (8): temperatures ladder, 2 per device; data and key replicated. Collectives: collective-permute (x, ll, beta; right and left) once per iteration for the swap; 2 psums at the end. No gradient reduction, no model parallelism. Forward/backward: gradients are of the log posterior wrt 25 parameters; no optimizer, no training.
5. First picture: log likelihood -> loop x250 { HMC (leapfrog x8: Kepler, GP Cholesky, gradient) -> local swap -> HMC -> neighbour swap -> adapt } -> evidence.
6. Arrows: (x, ll, log_eps) around the loop; trace of the coldest local chain out; beta, data constant in.
7. Should not stand out: RNG, masks, Halley arithmetic, adaptation.
8. Typically wrong: two HMC calls merged to one x2 or one of them missed; leapfrog gradient called "training backward" or "optimizer"; Cholesky's inner loop trip counts shown as model structure; permute called pipeline parallelism; the x6 Kepler loop oversized; initial gradients (2 per iteration) not placed with HMC.
"""

"""Three planets in radial-velocity data with a quasi-periodic GP: parallel tempering HMC.

16 temperatures, two per device, 16 chains each. Neighbours inside a device swap locally;
neighbours across devices swap with ppermute.
"""
from functools import partial

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

MESH = {"temp": 8}

N_OBS, N_INST, N_PLANETS = 240, 3, 3
LOCAL_T, CHAINS = 2, 16
N_LEAP, N_ITER = 8, 250
# per planet: log P, log K, sqrt(e) cos w, sqrt(e) sin w, M0; then offsets, log jitters, 4 GP hyperparameters
DIM = 5 * N_PLANETS + 2 * N_INST + 4


@jax.custom_jvp
def eccentric_anomaly(M, e):
    def halley(_, E):
        f, f1, f2 = E - e * jnp.sin(E) - M, 1 - e * jnp.cos(E), e * jnp.sin(E)
        d = -f / f1
        return E - f / (f1 + 0.5 * d * f2)

    return lax.fori_loop(0, 6, halley, M + 0.85 * e * jnp.sign(jnp.sin(M)))


@eccentric_anomaly.defjvp
def _(primals, tangents):
    M, e = primals
    dM, de = tangents
    E = eccentric_anomaly(M, e)
    return E, (dM + jnp.sin(E) * de) / (1 - e * jnp.cos(E))


def keplerian(t, theta):
    log_p, log_k, a, b, m0 = theta
    e = jnp.clip(a**2 + b**2, 0.0, 0.95)
    w = jnp.arctan2(b, a)
    M = 2 * jnp.pi * t / jnp.exp(log_p) + m0
    E = eccentric_anomaly(M, jnp.broadcast_to(e, M.shape))
    nu = 2 * jnp.arctan2(jnp.sqrt(1 + e) * jnp.sin(E / 2), jnp.sqrt(1 - e) * jnp.cos(E / 2))
    return jnp.exp(log_k) * (jnp.cos(nu + w) + e * jnp.cos(w))


def log_likelihood(x, data):
    planets = x[: 5 * N_PLANETS].reshape(N_PLANETS, 5)
    offset, jitter, gp = jnp.split(x[5 * N_PLANETS :], [N_INST, 2 * N_INST])
    model = jax.vmap(keplerian, (None, 0))(data["t"], planets).sum(0) + offset[data["inst"]]
    r = data["rv"] - model
    amp, decay, period, gamma = jnp.exp(gp)
    dt = data["t"][:, None] - data["t"][None]
    K = amp**2 * jnp.exp(-0.5 * (dt / decay) ** 2 - gamma * jnp.sin(jnp.pi * dt / period) ** 2)
    K = K + jnp.diag(data["err"] ** 2 + jnp.exp(2 * jitter)[data["inst"]] + 1e-4)
    chol = jnp.linalg.cholesky(K)
    z = jax.scipy.linalg.solve_triangular(chol, r, lower=True)
    return -0.5 * z @ z - jnp.log(jnp.diagonal(chol)).sum()


def log_prior(x, data):
    z = (x - data["prior_mean"]) / data["prior_std"]
    return -0.5 * z @ z


def hmc(key, x, ll, beta, eps, data):
    """one trajectory for every (temperature, chain) on this device"""

    def potential(x, beta):
        l = log_likelihood(x, data)
        return -(beta * l + log_prior(x, data)), l

    grad = jax.vmap(jax.vmap(jax.grad(potential, has_aux=True), (0, None)), (0, 0))
    prior = jax.vmap(jax.vmap(partial(log_prior, data=data)))
    k_mom, k_acc = jax.random.split(key)
    scale = eps[:, None, None] * data["prior_std"]
    p0 = jax.random.normal(k_mom, x.shape)

    def leap(carry, _):
        q, p, g, _ = carry
        p = p - 0.5 * scale * g
        q = q + scale * p
        g, l = grad(q, beta)
        p = p - 0.5 * scale * g
        return (q, p, g, l), None

    g0, _ = grad(x, beta)
    (q, p, _, l), _ = lax.scan(leap, (x, p0, g0, ll), length=N_LEAP)
    b = beta[:, None]
    log_alpha = b * (l - ll) + prior(q) - prior(x) - 0.5 * jnp.sum(p**2 - p0**2, -1)
    accept = jnp.log(jax.random.uniform(k_acc, ll.shape)) < log_alpha
    x = jnp.where(accept[..., None], q, x)
    return x, jnp.where(accept, l, ll), accept.mean(-1)


def swap_local(key, x, ll, beta):
    u = jnp.log(jax.random.uniform(key, (CHAINS,)))
    ok = u < (beta[0] - beta[1]) * (ll[1] - ll[0])
    x = jnp.where(ok[None, :, None], x[::-1], x)
    return x, jnp.where(ok[None], ll[::-1], ll), ok.mean()


def swap_across(key, x, ll, beta):
    """my hottest with the right neighbour's coldest; `key` is the same on all devices"""
    n = lax.axis_size("temp")
    me = lax.axis_index("temp")
    right = [(i, i + 1) for i in range(n - 1)]
    left = [(i + 1, i) for i in range(n - 1)]
    # what the right neighbour's coldest looks like, seen from me, and the other way round
    xr, llr, br = lax.ppermute((x[0], ll[0], beta[0]), "temp", left)
    xl, lll, bl = lax.ppermute((x[1], ll[1], beta[1]), "temp", right)
    u = jnp.log(jax.random.uniform(key, (n - 1, CHAINS)))
    up = (me < n - 1) & (u[jnp.minimum(me, n - 2)] < (beta[1] - br) * (llr - ll[1]))
    down = (me > 0) & (u[jnp.maximum(me - 1, 0)] < (bl - beta[0]) * (ll[0] - lll))
    x = jnp.stack([jnp.where(down[:, None], xl, x[0]), jnp.where(up[:, None], xr, x[1])])
    ll = jnp.stack([jnp.where(down, lll, ll[0]), jnp.where(up, llr, ll[1])])
    return x, ll, up.mean()


def sample_shard(x, beta, log_eps, data, key):
    ll = jax.vmap(jax.vmap(partial(log_likelihood, data=data)))(x)
    me = lax.axis_index("temp")

    def iteration(carry, i):
        x, ll, log_eps = carry
        shared = jax.random.fold_in(key, i)
        k1, k2, k3 = jax.random.split(jax.random.fold_in(shared, me), 3)
        x, ll, acc1 = hmc(k1, x, ll, beta, jnp.exp(log_eps), data)
        x, ll, sw1 = swap_local(k2, x, ll, beta)
        x, ll, acc2 = hmc(k3, x, ll, beta, jnp.exp(log_eps), data)
        x, ll, sw2 = swap_across(shared, x, ll, beta)
        acc = 0.5 * (acc1 + acc2)
        log_eps = log_eps + (acc - 0.7) / jnp.sqrt(i + 10.0)  # Robbins-Monro during warm-up
        return (x, ll, log_eps), (x[0], ll, acc, jnp.stack([sw1, sw2]))

    (x, ll, log_eps), (trace, lls, acc, swaps) = lax.scan(
        iteration, (x, ll, log_eps), jnp.arange(N_ITER)
    )
    # thermodynamic integration, trapezoid inside the device only is corrected on the host
    mean_ll = lls.mean((0, 2))
    evidence = lax.psum(jnp.sum(mean_ll * beta), "temp") / lax.psum(jnp.sum(beta), "temp")
    return x, log_eps, trace, mean_ll, acc.mean(0), swaps.mean(0)[None], evidence


def make(mesh):
    T = LOCAL_T * 8
    spec = lambda s, p=P(), d=jnp.float32: jax.ShapeDtypeStruct(
        s, d, sharding=NamedSharding(mesh, p)
    )
    data = {
        "t": spec((N_OBS,)),
        "rv": spec((N_OBS,)),
        "err": spec((N_OBS,)),
        "inst": spec((N_OBS,), d=jnp.int32),
        "prior_mean": spec((DIM,)),
        "prior_std": spec((DIM,)),
    }
    f = jax.shard_map(
        sample_shard,
        mesh=mesh,
        in_specs=(P("temp"), P("temp"), P("temp"), P(), P()),
        out_specs=(P("temp"), P("temp"), P(None, "temp"), P("temp"), P("temp"), P("temp"), P()),
        check_vma=False,
    )
    args = (
        spec((T, CHAINS, DIM), P("temp")),
        spec((T,), P("temp")),
        spec((T,), P("temp")),
        data,
        spec((2,), d=jnp.uint32),
    )
    return jax.jit(f, donate_argnums=0), args
