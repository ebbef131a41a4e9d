TRUTH = """
PROGRAM pm_recon: cosmological particle-mesh N-body (256^3 cells and particles, 8 slabs, shard_map), 10 reversible leapfrog steps with custom_vjp adjoint,
one Adam step on the white-noise field. No neural network.

(1) EXPECTED BOXES
adam_step
 - lpt (1 forward FFT, 3 inverse FFT)
 - evolve: kdk x10 (scan): drift, forces (paint CIC 8 corners scatter-add, halo_add, pfft, 3 x ipfft, halo_pad + readout 8 corners gather x3), kick
 - smooth + paint of the final field, galaxy bias, chi2, prior (psum)
 - evolve backward (adjoint): back x10 (scan reverse): undo (forces once more) + forward recompute of kdk under vjp (forces again) + its transpose (transposed FFTs, scatter/gather)
 - lpt backward, smooth backward
 - adam (plain elementwise)
FFT count (3-D distributed): per forces 1 + 3 = 4. forward 10 x 4 = 40; backward per step: undo 4 + primal 4 + transpose 4 = 12 -> 120. lpt 4 + 4; smooth 2 + 2.
So evolve backward ~ 72-75 %, evolve forward ~ 25 %; others < 5 %. Within forces: FFTs (with all_to_all) and the paint / readout scatter-gather of 2.1 M particles per device x 8 corners (on
accelerators scatter/gather dominate time). No matmuls at all (unless TPU FFT is implemented with dots).

(2) FALSE NAMES
"layer / attention / MLP / optimizer adamw weight decay / loss cross entropy", "training of a network", "CNN", "halo exchange = ring attention", "time-stepping of a fluid/PDE Navier-Stokes", "checkpoint/remat"
(the recomputation is by reversing, custom_vjp, no jax.checkpoint), "MoE dispatch" for all_to_all, "pipeline" for ppermute, "microbatch".
"stored trajectory".

(3) EXPERT
True
 - all_to_all: each 3-D FFT moves the local slab 32x256x256 complex64 = 16.8 MB per device; ~170 of them per step: ~2.9 GB. The FFTs are complex though the field is real:
   rfftn would halve both compute and bytes.
 - Three inverse FFTs per force for the gradient: instead compute potential with 1 inverse FFT and finite-difference it (4 -> 2 FFTs), or batch the 3 inverses in one all_to_all (stack).
 - undo and the primal within vjp evaluate forces at the SAME mid position (undo computes forces(pos_mid), kdk recomputes forces at pos_mid): one of the two is redundant -> get vjp directly at the mid
   point; saves 1/3 of the backward. (XLA CSE can't remove as positions differ by rounding.)
 - Memory: reversible adjoint keeps only final state (pos, vel, 2.1 M x 3 x 4 B = 25 MB each per device): constant in the number of steps.
 - Scatter-add (paint) with 8 separate scatters: non-deterministic/slow on GPU and serial on TPU/CPU; sort particles by cell or combine.
 - Particle arrays [N,3] with minor dimension 3: pads to 128 lanes on TPU (memory blow-up 42x): use [3,N] / structure of arrays. Important.
 - Wavevectors / Green function recomputed in each step (cheap, hoisted or not).
 - Halo ppermute 8x256x256 fp32 = 2 MB each, 2 per paint and 2 per readout x 3.
 - Clip at the halo: particles leaving more than 8 cells are silently wrong. check_rep=False: gradient of psum semantic caution (psum transposes to psum under check_rep=False: gradient may be scaled by 8).
False
 - "Matmul bound", "weights all-gathered", "gradient all-reduce of parameters" (only scalars are psum'ed), "trajectory is stored so memory grows with number of steps", "tensor parallel", "load imbalance from particles"
   (particles stay with their Lagrangian slab).
"""

"""Initial-condition reconstruction with a particle-mesh N-body code, slab decomposed.

The density field of a 256^3 box is distributed as x-slabs, the particles live with their
Lagrangian slab.  FFTs = local 2D FFT + all_to_all + 1D FFT.  The leapfrog is reversible, so the adjoint integrates
backwards instead of storing snapshots (custom_vjp).  One call = one Adam step on the
white-noise modes against a (noisy, smoothed) galaxy density.

Particles may leave their slab by at most HALO cells: CIC painting goes into a padded slab and the
halos are exchanged with the two neighbours.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental.shard_map import shard_map
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

MESH = {"slab": 8}

NC = 256
BOX = 512.0
STEPS = 10
HALO = 8
NDEV = 8
SLAB = NC // NDEV
A0, A1 = 0.1, 1.0
OM = 0.31

scale_factors = np.linspace(A0, A1, STEPS + 1)


def hubble(a):
    return np.sqrt(OM * a**-3 + 1 - OM)


# drift / kick coefficients (midpoint in a), computed once in numpy
_am = 0.5 * (scale_factors[1:] + scale_factors[:-1])
DRIFT = jnp.asarray(np.diff(scale_factors) / (_am**3 * hubble(_am)), jnp.float32)
KICK = jnp.asarray(np.diff(scale_factors) / (_am**2 * hubble(_am)) * 1.5 * OM, jnp.float32)


# ------------------------------------------------------------------ distributed FFT
def pfft(x):
    """real x-slab [SLAB, NC, NC] -> complex y-slab [NC, SLAB, NC]"""
    f = jnp.fft.fftn(x.astype(jnp.complex64), axes=(1, 2))
    f = lax.all_to_all(f, "slab", split_axis=1, concat_axis=0, tiled=True)
    return jnp.fft.fft(f, axis=0)


def ipfft(f):
    f = jnp.fft.ifft(f, axis=0)
    f = lax.all_to_all(f, "slab", split_axis=0, concat_axis=1, tiled=True)
    return jnp.fft.ifftn(f, axes=(1, 2)).real


def wavevectors():
    k = 2 * jnp.pi * jnp.fft.fftfreq(NC, BOX / NC)
    ky = lax.dynamic_slice_in_dim(k, lax.axis_index("slab") * SLAB, SLAB)
    return k[:, None, None], ky[None, :, None], k[None, None, :]


def inv_laplace():
    kx, ky, kz = wavevectors()
    k2 = kx**2 + ky**2 + kz**2
    return jnp.where(k2 == 0, 0.0, -1.0 / jnp.where(k2 == 0, 1.0, k2))


def power(k):
    """BBKS-like, good enough for a reconstruction test."""
    q = k / 0.21 + 1e-8
    t = (
        jnp.log(1 + 2.34 * q)
        / (2.34 * q)
        * (1 + 3.89 * q + (16.1 * q) ** 2 + (5.46 * q) ** 3 + (6.71 * q) ** 4) ** -0.25
    )
    return 2.0e6 * k**0.96 * t**2


# ------------------------------------------------------------------ CIC
def corners(pos):
    """pos in local cell units, x measured from the padded slab's start."""
    i0 = jnp.floor(pos).astype(jnp.int32)
    d = pos - i0
    for c in np.ndindex(2, 2, 2):
        w = 1.0
        for ax in range(3):
            w = w * (d[:, ax] if c[ax] else 1 - d[:, ax])
        yield i0 + np.array(c), w


def cell(idx):
    return jnp.clip(idx[:, 0], 0, SLAB + 2 * HALO - 1), idx[:, 1] % NC, idx[:, 2] % NC


def halo_add(pad):
    left = [(i, (i - 1) % NDEV) for i in range(NDEV)]
    right = [(i, (i + 1) % NDEV) for i in range(NDEV)]
    from_right = lax.ppermute(pad[:HALO], "slab", left)
    from_left = lax.ppermute(pad[-HALO:], "slab", right)
    core = pad[HALO:-HALO]
    return core.at[-HALO:].add(from_right).at[:HALO].add(from_left)


def halo_pad(x):
    left = [(i, (i - 1) % NDEV) for i in range(NDEV)]
    right = [(i, (i + 1) % NDEV) for i in range(NDEV)]
    return jnp.concatenate(
        [lax.ppermute(x[-HALO:], "slab", right), x, lax.ppermute(x[:HALO], "slab", left)]
    )


def paint(pos):
    grid = jnp.zeros((SLAB + 2 * HALO, NC, NC))
    for idx, w in corners(pos):
        grid = grid.at[cell(idx)].add(w)
    return halo_add(grid)


def readout(field, pos):
    pad = halo_pad(field)
    return sum(w * pad[cell(idx)] for idx, w in corners(pos))


# ------------------------------------------------------------------ dynamics
def forces(pos):
    pot = pfft(paint(pos) - 1.0) * inv_laplace()
    return jnp.stack([readout(ipfft(-1j * k * pot), pos) for k in wavevectors()], -1) * (BOX / NC)


def kdk(state, coef):
    pos, vel = state
    dr, ki = coef
    pos = pos + 0.5 * dr * vel
    vel = vel + ki * forces(pos)
    pos = pos + 0.5 * dr * vel
    return pos, vel


def undo(state, coef):
    pos, vel = state
    dr, ki = coef
    pos = pos - 0.5 * dr * vel
    vel = vel - ki * forces(pos)
    return pos - 0.5 * dr * vel, vel


@jax.custom_vjp
def evolve(pos, vel):
    return lax.scan(lambda s, c: (kdk(s, c), None), (pos, vel), (DRIFT, KICK))[0]


def evolve_fwd(pos, vel):
    out = evolve(pos, vel)
    return out, out


def evolve_bwd(final, ct):
    def back(carry, coef):
        state, cot = carry
        prev = undo(state, coef)
        _, pull = jax.vjp(lambda s: kdk(s, coef), prev)
        return (prev, pull(cot)[0]), None

    (_, cot), _ = lax.scan(back, (final, ct), (DRIFT, KICK), reverse=True)
    return cot


evolve.defvjp(evolve_fwd, evolve_bwd)


def lpt(white):
    kx, ky, kz = wavevectors()
    kk = jnp.sqrt(kx**2 + ky**2 + kz**2)
    delta = pfft(white) * jnp.sqrt(power(kk) / BOX**3) * A0
    pot = delta * inv_laplace()
    psi = jnp.stack([ipfft(-1j * k * pot) for k in (kx, ky, kz)], -1).reshape(-1, 3) * (NC / BOX)
    g = jnp.meshgrid(jnp.arange(SLAB) + HALO, jnp.arange(NC), jnp.arange(NC), indexing="ij")
    q = jnp.stack(g, -1).reshape(-1, 3).astype(jnp.float32)
    return q + psi, psi * (A0**1.5)


def smooth(x, r=4.0):
    kx, ky, kz = wavevectors()
    return ipfft(pfft(x) * jnp.exp(-0.5 * (kx**2 + ky**2 + kz**2) * r * r))


def neg_log_posterior(white, data, bias, sigma):
    pos, vel = lpt(white)
    pos, _ = evolve(pos, vel)
    model = smooth(paint(pos)) - 1.0
    gal = bias[0] * model + bias[1] * (model**2 - jnp.mean(model**2))
    chi2 = lax.psum(jnp.sum((gal - data) ** 2), "slab") / sigma**2
    prior = lax.psum(jnp.sum(white**2), "slab")
    return 0.5 * (chi2 + prior) / NC**3


def adam_step(white, m, v, it, data, bias, sigma):
    val, g = jax.value_and_grad(neg_log_posterior)(white, data, bias, sigma)
    m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
    it = it + 1
    white = white - 0.02 * (m / (1 - 0.9**it)) / (jnp.sqrt(v / (1 - 0.999**it)) + 1e-12)
    return white, m, v, it, val


def make(mesh):
    s, r = P("slab"), P()
    step = shard_map(
        adam_step,
        mesh=mesh,
        in_specs=(s, s, s, r, s, r, r),
        out_specs=(s, s, s, r, r),
        check_rep=False,
    )
    a = lambda spec, *shape: jax.ShapeDtypeStruct(
        shape, jnp.float32, sharding=NamedSharding(mesh, spec)
    )
    field = a(s, NC, NC, NC)
    return jax.jit(step, donate_argnums=(0, 1, 2)), (
        field,
        field,
        field,
        a(r),
        field,
        a(r, 2),
        a(r),
    )
