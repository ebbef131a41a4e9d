TRUTH = """
A classical clustering pipeline (fit): 2 097 152 embeddings of 768 numbers (6.4 GB) sharded over 8 devices "rows"; randomised PCA to 64, k-means 256, Gaussian mixture 256 with full covariances. No network, no gradient.

fit
  standardise: mean, standard deviation
  randomised_pca: range sketch (768 x 80), power_iteration loop x5 (X^T (X Q), then cholesky_qr), small eigh of 80 x 80, projection of all rows to 64 (whitened)
  kmeans
    seed_centres: fori loop x255 (k-means++: distance to the newest centre, sampled by gumbel, minimum kept)
    lloyd: while loop at most 40, until the inertia settles (data dependent): assign (distances by matmul, argmin), centre update (one-hot matmul / segment sums), empty clusters kept
  gaussian_mixture
    initial covariances from the k-means clusters (by accumulate_moments)
    em: scan x25: e_step + m_step
      e_step: scan x16 over chunks of rows (accumulate_moments: mahalanobis by 256 triangular-solved factors, log responsibilities, then the sums r, r x, r x x^T)
      m_step: covariances with ridge, cholesky of 256 matrices 64 x 64, weights
    final: assign by responsibilities, bic
  sums over rows need an all-reduce over "rows" in every loop

Loops: 5, 255, <=40, 16 (start), 25 > 16; at the end one more e_step x16 (bic) and a map x16 for the labels.
Weight: em by far (per row and component 64 x 64 twice: whitening and second moments; 2 M x 256 x 8192 = 4.4 T MAC an iteration, x25); PCA: 2 M x 768 x 80 x 2 x 5 = 1.3 T; lloyd 2 M x 256 x 64 x 2 = 69 G an iteration; seeding memory bound 255 sweeps.
accumulate_moments is called from three places (start from k-means, em, final).
False would be: training / optimiser / layers / backward; while count as sure; seeding heavier than em; e_step chunk loop taken for the em loop.
First sight: standardise -> pca (x5) -> k-means (seeding x255, lloyd while) -> EM x25 (> chunks x16) -> labels, bic.
Names true: standardise, randomised_pca, power_iteration, cholesky_qr, seed_centres, lloyd, assign, gaussian_mixture, em_iteration, e_step, accumulate_moments, m_step, bic.
"""

"""Clustering of two million text embeddings: randomised PCA to 64, k-means++ and Lloyd, then a Gaussian mixture with
full covariances by EM. Rows are sharded over 8 devices; everything is one jit."""
import jax
import jax.numpy as jnp
from jax import lax
from jax.scipy.linalg import solve_triangular
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

MESH = {"rows": 8}
ROWS, FEATURES, RANK, OVERSAMPLE, CLUSTERS = 2_097_152, 768, 64, 16, 256
POWER_ITERATIONS, LLOYD_MAX, EM_ITERATIONS, CHUNKS = 5, 40, 25, 16
RIDGE = 1e-3


# ------------------------------------------------------------------ principal components
def standardise(x):
    mean = jnp.mean(x, axis=0)
    std = jnp.sqrt(jnp.mean(jnp.square(x - mean), axis=0) + 1e-6)
    return (x - mean) / std, mean, std


def cholesky_qr(y):
    """Orthonormal basis of the columns of y, twice for accuracy."""
    for _ in range(2):
        gram = y.T @ y
        factor = jnp.linalg.cholesky(
            gram + 1e-6 * jnp.trace(gram) / gram.shape[0] * jnp.eye(gram.shape[0])
        )
        y = solve_triangular(factor, y.T, lower=True).T
    return y


def randomised_pca(x, key):
    sketch = jax.random.normal(key, (FEATURES, RANK + OVERSAMPLE))

    def power_iteration(_, basis):
        return cholesky_qr(x.T @ (x @ basis))

    basis = lax.fori_loop(0, POWER_ITERATIONS, power_iteration, cholesky_qr(sketch))
    projected = x @ basis
    values, vectors = jnp.linalg.eigh(projected.T @ projected / ROWS)
    values, vectors = values[::-1][:RANK], vectors[:, ::-1][:, :RANK]
    whiten = vectors / jnp.sqrt(values + 1e-6)
    return projected @ whiten, basis @ whiten, values


# ------------------------------------------------------------------ k-means
def squared_distances(x, centres):
    return jnp.sum(x * x, -1, keepdims=True) - 2 * x @ centres.T + jnp.sum(centres * centres, -1)


def seed_centres(x, key):
    """k-means++: each new centre is drawn with probability proportional to the distance from those there already."""
    first = x[jax.random.randint(key, (), 0, ROWS)]
    centres = jnp.zeros((CLUSTERS, RANK)).at[0].set(first)
    nearest = jnp.sum(jnp.square(x - first), -1)

    def add_centre(i, state):
        centres, nearest = state
        noise = jax.random.gumbel(jax.random.fold_in(key, i), (ROWS,))
        chosen = jnp.argmax(jnp.log(nearest + 1e-12) + noise)
        centre = x[chosen]
        return centres.at[i].set(centre), jnp.minimum(nearest, jnp.sum(jnp.square(x - centre), -1))

    return lax.fori_loop(1, CLUSTERS, add_centre, (centres, nearest))[0]


def assign(x, centres):
    d = squared_distances(x, centres)
    return jnp.argmin(d, -1), jnp.sum(jnp.min(d, -1))


def update_centres(x, labels, centres):
    member = jax.nn.one_hot(labels, CLUSTERS, dtype=x.dtype)
    count = member.sum(0)
    total = member.T @ x
    return jnp.where(count[:, None] > 0, total / jnp.maximum(count, 1.0)[:, None], centres)


def lloyd(x, centres):
    def unsettled(state):
        _, inertia, before, i = state
        return (i < LLOYD_MAX) & (before - inertia > 1e-4 * inertia)

    def lloyd_iteration(state):
        centres, inertia, _, i = state
        labels, new_inertia = assign(x, centres)
        return update_centres(x, labels, centres), new_inertia, inertia, i + 1

    start = (centres, jnp.float32(1e30), jnp.float32(3e38), jnp.int32(0))
    centres, inertia, _, used = lax.while_loop(unsettled, lloyd_iteration, start)
    return centres, inertia, used


def kmeans(x, key):
    return lloyd(x, seed_centres(x, key))


# ------------------------------------------------------------------ Gaussian mixture
def row_chunks(x):
    """Chunks that each hold rows of every device."""
    return jnp.moveaxis(x.reshape(ROWS // CHUNKS, CHUNKS, RANK), 1, 0)


def log_joint(x, mixture):
    """log weight + log density: (rows, clusters)."""
    weights, means, factors = mixture
    inverse = jax.vmap(lambda l: solve_triangular(l, jnp.eye(RANK), lower=True))(factors)
    white = jnp.einsum("kij,nj->nki", inverse, x) - jnp.einsum("kij,kj->ki", inverse, means)
    log_det = jnp.sum(jnp.log(jnp.diagonal(factors, axis1=1, axis2=2)), -1)
    return (
        jnp.log(weights)
        - log_det
        - 0.5 * jnp.sum(white * white, -1)
        - 0.5 * RANK * jnp.log(2 * jnp.pi)
    )


def accumulate_moments(x, responsibilities):
    """Sum over chunks of r, r x and r x x^T; responsibilities: function of a chunk -> (r, log-likelihood)."""

    def chunk_step(carry, part):
        r, log_like = responsibilities(part)
        n, s, q, total = carry
        n = n + r.sum(0)
        s = s + r.T @ part
        q = q + jnp.einsum("nk,ni,nj->kij", r, part, part)
        return (n, s, q, total + log_like), None

    zero = (
        jnp.zeros(CLUSTERS),
        jnp.zeros((CLUSTERS, RANK)),
        jnp.zeros((CLUSTERS, RANK, RANK)),
        jnp.zeros(()),
    )
    return lax.scan(chunk_step, zero, row_chunks(x))[0]


def soft_responsibilities(mixture):
    def of_chunk(part):
        joint = log_joint(part, mixture)
        norm = jax.nn.logsumexp(joint, -1, keepdims=True)
        return jnp.exp(joint - norm), jnp.sum(norm)

    return of_chunk


def hard_responsibilities(centres):
    def of_chunk(part):
        labels, inertia = assign(part, centres)
        return jax.nn.one_hot(labels, CLUSTERS), -inertia

    return of_chunk


def e_step(x, mixture):
    return accumulate_moments(x, soft_responsibilities(mixture))


def m_step(moments):
    n, s, q, _ = moments
    n = n + 1e-3
    means = s / n[:, None]
    cov = q / n[:, None, None] - means[:, :, None] * means[:, None, :]
    factors = jnp.linalg.cholesky(0.5 * (cov + jnp.swapaxes(cov, 1, 2)) + RIDGE * jnp.eye(RANK))
    return n / n.sum(), means, factors


def bic(log_like):
    free = CLUSTERS * (RANK + RANK * (RANK + 1) / 2 + 1) - 1
    return free * jnp.log(float(ROWS)) - 2.0 * log_like


def gaussian_mixture(x, centres):
    mixture = m_step(accumulate_moments(x, hard_responsibilities(centres)))

    def em_iteration(mixture, _):
        moments = e_step(x, mixture)
        return m_step(moments), moments[3]

    mixture, trace = lax.scan(em_iteration, mixture, None, length=EM_ITERATIONS)
    final = e_step(x, mixture)
    labels = lax.map(lambda part: jnp.argmax(log_joint(part, mixture), -1), row_chunks(x))
    return mixture, trace, bic(final[3]), labels


def make(mesh):
    rows, rep = NamedSharding(mesh, P("rows", None)), NamedSharding(mesh, P())

    @jax.jit
    def fit(x, key):
        k_pca, k_seed = jax.random.split(key)
        z, mean, std = standardise(x)
        scores, components, explained = randomised_pca(z, k_pca)
        scores = lax.with_sharding_constraint(scores, rows)
        centres, inertia, iterations = kmeans(scores, k_seed)
        mixture, trace, criterion, labels = gaussian_mixture(scores, centres)
        labels = jnp.moveaxis(labels, 0, 1).reshape(-1)
        return {
            "mean": mean,
            "std": std,
            "components": components,
            "explained": explained,
            "centres": centres,
            "inertia": inertia,
            "lloyd_iterations": iterations,
            "mixture": mixture,
            "log_likelihood": trace,
            "bic": criterion,
            "labels": labels,
        }

    x = jax.ShapeDtypeStruct((ROWS, FEATURES), jnp.float32, sharding=rows)
    return fit, (x, jax.ShapeDtypeStruct((2,), jnp.uint32, sharding=rep))
