TRUTH = """
Rebuilt from jax#787 ("2nd order derivs wants insane amount of ram") and jax#215.
- Normal modes of a cluster of 144 atoms: energy of pairs (Lennard-Jones + Coulomb with charges), Hessian by jacfwd(jacrev(energy)), mass-weighted, eigh, frequencies.  One device.
- Cause of the peak: jacfwd pushes all 432 tangents at once through intermediates of shape [144,144,3] and [144,144]: arrays of [432,144,144,3] f32 = 103 MiB and [432,144,144] = 34 MiB (or their fusions); the Hessian itself is 432x432x4 = 0.7 MiB. Line: that of jacfwd / of the energy function.
- Remedy: one row (or a chunk of rows) at a time: `jax.lax.map(hvp, eye, batch_size=...)`; the peak falls by the chunk's ratio, time about same (elementwise, memory-bound: may even fall).
- eigh of 432x432: on CPU a LAPACK call, on TPU a loop of (QDWH/Jacobi) whose trips are not known: its time is unknown, "at least".
- Not a problem: donation, sharding, collectives (none), precision.
"""

"""Normal modes of an atomic cluster from a Hessian by automatic differentiation."""
import jax
import jax.numpy as jnp

ATOMS = 144


def energy(flat, charges, sigma, epsilon):
    r = flat.reshape(ATOMS, 3)
    d = r[:, None] - r[None]
    squared = jnp.sum(d * d, axis=-1) + jnp.eye(ATOMS)
    distance = jnp.sqrt(squared)
    off = 1.0 - jnp.eye(ATOMS)
    s6 = (sigma[:, None] * sigma[None] / squared) ** 3
    pair = 4 * jnp.sqrt(epsilon[:, None] * epsilon[None]) * (s6 * s6 - s6)
    coulomb = 138.9 * charges[:, None] * charges[None] * jax.scipy.special.erfc(distance) / distance
    return 0.5 * jnp.sum(off * (pair + coulomb))


def normal_modes(positions, charges, sigma, epsilon, masses):
    flat = positions.reshape(-1)
    hessian = jax.jacfwd(jax.jacrev(energy))(flat, charges, sigma, epsilon)
    weight = jnp.repeat(jax.lax.rsqrt(masses), 3)
    dynamical = hessian * weight[:, None] * weight[None]
    values, vectors = jnp.linalg.eigh(dynamical)
    frequencies = jnp.sign(values) * jnp.sqrt(jnp.abs(values)) * 5.3
    participation = 1.0 / jnp.sum(vectors**4, axis=0)
    return frequencies, participation, hessian


def make():
    S, f32 = jax.ShapeDtypeStruct, jnp.float32
    vector = S((ATOMS,), f32)
    return jax.jit(normal_modes), (S((ATOMS, 3), f32), vector, vector, vector, vector)
