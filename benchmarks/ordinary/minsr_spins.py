TRUTH = """
Rebuilt from jax#24309 ("Matrix factorization on multiple GPUs causes memory overflow"), which came from minSR.
- Variational Monte Carlo of a spin chain with an RBM-like network; minSR: per-sample gradients O [samples 2048, params ~33k] sharded over samples on 8 devices, T = O O^T [2048, 2048], Cholesky solve, update O^T x.
- T = O @ O.T with O sharded by rows: the other operand has to be whole on each device: all-gather of O (2048 x 33k x 4 = 270 MiB) - or XLA gathers something equal. This is the big collective; its cause is the line of `T = O @ O.T`. Remedy: reshard O so that the parameters are sharded (all-to-all, 1/8 of the bytes per device), then each device makes its part of T and one all-reduce (16 MiB) sums it.
- The last product `O.T @ x` sums over samples: all-reduce of 33k parameters (130 kB): fine, needed.
- Cholesky / triangular solve have no partitioning rule: T is gathered (16 MiB) and each of the 8 devices does the whole factorisation (2.9 GFLOP): redundant; unavoidable with jnp.linalg, small beside O O^T (2*2048*2048*33k = 280 GFLOP / 8).
- Peak: gathered O (270 MiB) and the local O (34 MiB).
- Local energies: 64 flips for each sample: network on [2048*64, 64]: work of 2048/8*64*64*512*2 = 1.07 GFLOP: small.
- Not a problem: replicated parameters (33k); donation.
"""

"""Stochastic reconfiguration with more parameters than samples (minSR), samples over devices."""
import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

MESH = {"s": 8}
SAMPLES, SITES, HIDDEN = 2048, 64, 512
FIELD, SHIFT, RATE = 1.0, 1e-3, 0.02


def init(key):
    a, b = jax.random.split(key)
    return {
        "w": jax.random.normal(a, (SITES, HIDDEN)) * 0.05,
        "b": jnp.zeros(HIDDEN),
        "v": jax.random.normal(b, (SITES,)) * 0.05,
    }


def log_amplitude(params, spins):
    x = spins @ params["w"] + params["b"]
    return jnp.sum(jnp.log(jnp.cosh(x))) + spins @ params["v"]


def local_energy(params, spins):
    diagonal = -jnp.sum(spins * jnp.roll(spins, 1))
    flips = spins[None] * (1 - 2 * jnp.eye(SITES))
    ratio = jnp.exp(
        jax.vmap(log_amplitude, (None, 0))(params, flips) - log_amplitude(params, spins)
    )
    return diagonal - FIELD * jnp.sum(ratio)


def make(mesh):
    shapes = jax.eval_shape(init, jax.random.key(0))

    def step(params, spins):
        flat, unravel = ravel_pytree(params)
        gradient = jax.vmap(lambda s: ravel_pytree(jax.grad(log_amplitude)(params, s))[0])
        O = gradient(spins)
        energies = jax.vmap(local_energy, (None, 0))(params, spins)
        mean = energies.mean()
        O = (O - O.mean(0)) / jnp.sqrt(SAMPLES)
        e = (energies - mean) / jnp.sqrt(SAMPLES)
        T = O @ O.T
        factor = jax.scipy.linalg.cho_factor(T + SHIFT * jnp.eye(SAMPLES))
        x = jax.scipy.linalg.cho_solve(factor, e)
        update = O.T @ x
        return unravel(flat - RATE * update), mean

    rep, rows = NamedSharding(mesh, P()), NamedSharding(mesh, P("s"))
    S = jax.ShapeDtypeStruct
    params = jax.tree.map(lambda x: S(x.shape, x.dtype, sharding=rep), shapes)
    return jax.jit(step, out_shardings=rep), (
        params,
        S((SAMPLES, SITES), jnp.float32, sharding=rows),
    )
