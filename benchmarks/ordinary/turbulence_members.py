TRUTH = """
Rebuilt from jax#15680 / jax#13081 / xla#48845 (FFT over dimensions that are not sharded gathers everything).
- An ensemble of 16 two-dimensional turbulence runs (pseudo-spectral vorticity, 512x512), members sharded over 8 devices (2 each), 50 steps of RK2 in a fori_loop, forcing, diagnostics at the end. Spectral state carried c64[16,512,257]. Donated.
- Members are independent: an ideal program has no collective until the diagnostics' mean (scalars/spectrum).
- If XLA gathers (all-gather of the members before each fft/ifft: 16 x 512 x 257 x 8 B = 16.8 MB, each device computes all 16 FFTs): cause: no partitioning of FFT by the SPMD partitioner (the batch dimension is sharded, the transformed are not); each FFT is computed 8 times over. Remedy: shard_map over "members" around the step (or `jax.custom_partitioning`). On newer XLA it may be fine: then nothing should be said.
- Each RK2 stage has 4 inverse FFTs (u, v, dx, dy) and one forward: 10 FFTs a step, 500 in all.
- FFT FLOPs: 5 N log2 N: 512*512*18*5/2 (real) = 11.8 MFLOP each member.
- Memory: c64[2,512,257] 2.1 MB a member pair; no problem.
"""

"""An ensemble of pseudo-spectral turbulence."""
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

MESH = {"members": 8}
MEMBERS, N, STEPS, DT, NU, DRAG = 16, 512, 50, 1e-3, 1e-5, 0.1
KY = np.fft.fftfreq(N, 1 / N).astype(np.float32)[:, None]
KX = np.arange(N // 2 + 1, dtype=np.float32)[None]


def tendency(w):
    k2 = jnp.asarray(KX**2 + KY**2)
    inverse = jnp.where(k2 > 0, 1.0 / jnp.where(k2 > 0, k2, 1.0), 0.0)
    psi = w * inverse
    back = lambda a: jnp.fft.irfft2(a, s=(N, N))
    u, v = back(1j * KY * psi), back(-1j * KX * psi)
    wx, wy = back(1j * KX * w), back(1j * KY * w)
    advection = jnp.fft.rfft2(u * wx + v * wy)
    dealias = (jnp.abs(KX) < N / 3) & (jnp.abs(KY) < N / 3)
    return -jnp.where(dealias, advection, 0.0) - (NU * k2 + DRAG) * w


def advance(_, carry):
    w, force = carry
    middle = w + 0.5 * DT * (tendency(w) + force)
    return w + DT * (tendency(middle) + force), force


def run(w, force):
    w, _ = jax.lax.fori_loop(0, STEPS, advance, (w, force))
    k2 = jnp.asarray(KX**2 + KY**2)
    energy = jnp.where(k2 > 0, jnp.abs(w) ** 2 / jnp.where(k2 > 0, k2, 1.0), 0.0)
    shells = jnp.sqrt(k2).astype(jnp.int32).reshape(-1)
    spectrum = jax.ops.segment_sum(energy.mean(0).reshape(-1), shells, num_segments=N)
    return w, spectrum


def make(mesh):
    members = NamedSharding(mesh, P("members"))
    state = jax.ShapeDtypeStruct((MEMBERS, N, N // 2 + 1), jnp.complex64, sharding=members)
    force = jax.ShapeDtypeStruct((MEMBERS, N, N // 2 + 1), jnp.complex64, sharding=members)
    return jax.jit(run, donate_argnums=(0,), out_shardings=(members, None)), (state, force)
