TRUTH = """
# svgp_natgrad — sparse variational GP, one epoch of natural-gradient + Adam steps and a test score (plain JAX), single device

## 1 Tree of parts
fit_and_score
1. shuffle X, Y by perm (gather), reshape to minibatches
2. **epoch: loop x100 (minibatches of 1024)** {
   - **natgrad** { nat_to_moments (cholesky 512, cho_solve, triangular inverse, Linv^T Linv) ; **neg_elbo** { conditional: matern52(Z,Z), cholesky, matern52(Z,x), triangular solve, mean/variance ; Student-t expectation by 20-point Gauss-Hermite ; KL (cholesky of S) } ; its gradient for (m, S) ; update of natural parameters }
   - **hypers** { nat_to_moments ; neg_elbo value and gradient for kernel, likelihood, Z: back through conditional, cholesky and triangular solve ; clip + adam } }
3. **score** on 8192 test points { moments, conditional, nlpd, rmse, coverage }

Per minibatch: 2 x nat_to_moments, 2 x neg_elbo forward; Choleskys of 512x512: 6 (S^-1, Kzz, S; twice).

## 2 Where the work goes (0.60 TF)
loop 99% : natgrad 41% (fwd 23, bwd 18), hypers 58% (fwd 23, bwd 35). Inside: conditional's triangular solve and S@A (512x512x1024 each) ~36% + the derivatives of cholesky/solves ~35%, moments 9%+, kernels 2%, quadrature 1%. score 1%.

## 3 First picture
shuffle -> minibatch x100 { natgrad { moments, elbo (kernel, cholesky, solve, quadrature, KL), gradient, update }, hypers { moments, elbo, backward, adam } } -> score.

## 4 Misleading
- Cholesky / triangular-solve library calls (CPU custom-call lapack/blas; on TPU expanded to loops) must be named as cholesky and solve and placed in conditional / moments / KL, not left as "custom-call".
- On TPU, loops inside the factorisation are not the program's loops.
- One single "forward, backward, optimiser" reading: there are two different gradients per turn with different meaning; natgrad's "optimiser" is the natural-parameter update.
- XLA may share work between the first and second part (Kzz, Kzx, A do not change between natgrad and hypers): CSE could merge the kernel/cholesky/solve of the two; then a part named natgrad may own work that hypers uses too.
"""

"""Sparse variational GP (Hensman et al.) with Student-t likelihood.

Whitened inducing variables; natural gradient steps on q(v), Adam on kernel/likelihood/inducing inputs.
`fit_and_score` runs an epoch of minibatches and then scores a held-out set.  Single device.
"""
from typing import NamedTuple

import jax
import jax.numpy as jnp
import jax.scipy.linalg as jsl
import numpy as np
import optax

N, D, M = 102_400, 8, 512
BATCH, STEPS = 1024, 100
N_TEST = 8192
QUAD = 20
JITTER = 1e-4
GAMMA = 0.1  # natural gradient step

_gx, _gw = np.polynomial.hermite.hermgauss(QUAD)
GH_X, GH_W = jnp.float32(_gx * np.sqrt(2)), jnp.float32(_gw / np.sqrt(np.pi))


class Hypers(NamedTuple):
    log_ls: jax.Array  # [D]
    log_var: jax.Array
    log_noise: jax.Array
    log_dof: jax.Array
    Z: jax.Array  # [M,D]
    mean: jax.Array


class NatParams(NamedTuple):
    """natural parameters of q(v) = N(m, S):  theta1 = S^-1 m, theta2 = -1/2 S^-1"""

    t1: jax.Array
    t2: jax.Array


def matern52(h: Hypers, x, y):
    ls = jnp.exp(h.log_ls)
    x, y = x / ls, y / ls
    d2 = jnp.sum(x * x, -1)[:, None] + jnp.sum(y * y, -1)[None] - 2 * x @ y.T
    r = jnp.sqrt(5.0 * jnp.maximum(d2, 0) + 1e-12)
    return jnp.exp(h.log_var) * (1 + r + r * r / 3) * jnp.exp(-r)


def nat_to_moments(q: NatParams):
    Lp = jnp.linalg.cholesky(-2.0 * q.t2 + 1e-6 * jnp.eye(M))
    m = jsl.cho_solve((Lp, True), q.t1)
    Linv = jsl.solve_triangular(Lp, jnp.eye(M), lower=True)
    return m, Linv.T @ Linv


def conditional(h: Hypers, m, S, x):
    """marginal mean and variance of f at x under q"""
    Kzz = matern52(h, h.Z, h.Z) + JITTER * jnp.eye(M)
    Lz = jnp.linalg.cholesky(Kzz)
    A = jsl.solve_triangular(Lz, matern52(h, h.Z, x), lower=True)
    mu = h.mean + A.T @ m
    SA = S @ A
    var = jnp.exp(h.log_var) - jnp.sum(A * A, 0) + jnp.sum(A * SA, 0)
    return mu, jnp.maximum(var, 1e-6)


def student_t_logpdf(y, f, scale, dof):
    z = (y - f) / scale
    return (
        jax.lax.lgamma((dof + 1) / 2)
        - jax.lax.lgamma(dof / 2)
        - 0.5 * jnp.log(dof * jnp.pi)
        - jnp.log(scale)
        - (dof + 1) / 2 * jnp.log1p(z * z / dof)
    )


def variational_expectation(h: Hypers, mu, var, y):
    f = mu[:, None] + jnp.sqrt(var)[:, None] * GH_X
    lp = student_t_logpdf(y[:, None], f, jnp.exp(h.log_noise), 2.0 + jnp.exp(h.log_dof))
    return lp @ GH_W


def kl_whitened(m, S):
    L = jnp.linalg.cholesky(S + 1e-6 * jnp.eye(M))
    return 0.5 * (jnp.trace(S) + m @ m - M - 2 * jnp.sum(jnp.log(jnp.diagonal(L))))


def neg_elbo(h: Hypers, m, S, x, y):
    mu, var = conditional(h, m, S, x)
    ell = jnp.sum(variational_expectation(h, mu, var, y)) * (N / BATCH)
    return (kl_whitened(m, S) - ell) / N


def natgrad_step(h, q: NatParams, x, y):
    """theta <- theta - gamma * d loss / d eta, with eta = (m, S + m m^T) the expectation parameters"""
    m, S = nat_to_moments(q)

    def from_eta(e1, e2):
        return neg_elbo(h, e1, e2 - jnp.outer(e1, e1), x, y)

    g1, g2 = jax.grad(from_eta, argnums=(0, 1))(m, S + jnp.outer(m, m))
    g2 = 0.5 * (g2 + g2.T)
    return NatParams(q.t1 - GAMMA * N * g1, q.t2 - GAMMA * N * g2)


def hyper_step(tx, h, q, opt, x, y):
    m, S = nat_to_moments(q)
    loss, g = jax.value_and_grad(neg_elbo)(h, m, S, x, y)
    upd, opt = tx.update(g, opt, h)
    return optax.apply_updates(h, upd), opt, loss


def epoch(tx, h, q, opt, X, Y):
    def body(c, xy):
        h, q, opt = c
        x, y = xy
        with jax.named_scope("natgrad"):
            q = natgrad_step(h, q, x, y)
        with jax.named_scope("hypers"):
            h, opt, loss = hyper_step(tx, h, q, opt, x, y)
        return (h, q, opt), loss

    return jax.lax.scan(body, (h, q, opt), (X.reshape(STEPS, BATCH, D), Y.reshape(STEPS, BATCH)))


def score(h, q, Xt, Yt):
    m, S = nat_to_moments(q)
    mu, var = conditional(h, m, S, Xt)
    f = mu[:, None] + jnp.sqrt(var)[:, None] * GH_X
    lp = student_t_logpdf(Yt[:, None], f, jnp.exp(h.log_noise), 2.0 + jnp.exp(h.log_dof))
    nlpd = -jax.nn.logsumexp(lp + jnp.log(GH_W), axis=-1).mean()
    inside = jnp.abs(Yt - mu) < 1.96 * jnp.sqrt(var + jnp.exp(2 * h.log_noise))
    return dict(nlpd=nlpd, rmse=jnp.sqrt(jnp.mean((Yt - mu) ** 2)), coverage=inside.mean())


def build(devices=None):
    tx = optax.chain(optax.clip_by_global_norm(10.0), optax.adam(1e-2))

    def fit_and_score(h, q, opt, perm, X, Y, Xt, Yt):
        (h, q, opt), losses = epoch(tx, h, q, opt, X[perm], Y[perm])
        return h, q, opt, losses, score(h, q, Xt, Yt)

    sh = None if devices is None else jax.sharding.SingleDeviceSharding(devices[0])
    S = lambda s, d=jnp.float32: jax.ShapeDtypeStruct(s, d, sharding=sh)
    h = Hypers(S((D,)), S(()), S(()), S(()), S((M, D)), S(()))
    q = NatParams(S((M,)), S((M, M)))
    opt = jax.tree.map(lambda a: S(a.shape, a.dtype), jax.eval_shape(tx.init, h))
    return jax.jit(fit_and_score, donate_argnums=(0, 1, 2)), (
        h,
        q,
        opt,
        S((N,), jnp.int32),
        S((N, D)),
        S((N,)),
        S((N_TEST, D)),
        S((N_TEST,)),
    )
