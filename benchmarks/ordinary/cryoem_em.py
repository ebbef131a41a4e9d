TRUTH = """
PROGRAM cryoem_em: one EM iteration of cryo-EM 3-D classification: 4 classes (vmap), 1152 orientations in 18 chunks of 64 (scan), 192 images, 9 shifts. Single device, no autodiff.

(1) EXPECTED BOXES
em_iteration
 - quat_to_rot, ctf, shifted (phase multiplication; 192 x 9 x 4704 complex)
 - e_step: (vmapped over 4 classes) body x18 (scan): project (trilinear gather of 64 slices), cross (complex matmul 1728 x 4704 x 64), power (matmul 192 x 4704 x 64)
 - responsibilities: logsumexp + exp
 - back_project (vmapped over 4 classes): body x18 (scan): img (complex matmul 64 x 1728 x 4704), pw (matmul), trilinear, scatter-add of num and den (8 corners)
 - hermitian, wiener (ifftn + fftn of 96^3, x4 by vmap), shell_mean (segment sum)
 - residual / noise update (project the best pose for 192 images), pi, tau2
Work MACs: cross: 4 x 18 x 1728 x 64 x 4704 complex = 37.5 G complex MAC = 150 G real; power 192*64*4704*72 = 4.2 G; back-projection img the same 37.5 G complex (150 G) (+ pw 4.2 G).
So e_step ~ 50 %, back_project ~ 50 % of flops. Gathers: 4 x 1152 x 4704 x 8 = 173 M gathered complex values; scatter-adds likewise 173 M complex + 173 M float: on accelerators (and CPU) the
scatter-add (back_project) is likely to dominate TIME.

(2) FALSE NAMES
"training / backward pass / gradient / optimizer" — back_project is NOT a backward pass. "attention", "softmax attention" for the responsibilities, "layer x18" for chunks, "CNN", "NeRF / volume rendering", "epochs", "experts" for
classes, "encoder/decoder", "batch x4" for the classes.

(3) EXPERT
True
 - Scatter-add with random indices (64 x 8 x 4704 per chunk x 4 classes): main time on TPU; alternatives: sort, or accumulate with 'inverse gather'.
 - trilinear coordinates for a chunk of orientations are recomputed in e_step and in back_project and (for the vmapped class axis) shared or not: independent of class, vmap keeps them unbatched -> once. Twice in total.
 - complex matmul: XLA lowers complex dot into 3-4 real dots or a slow path; explicit real/imag stacking [Re,Im] and only the real part of cross is needed: HALF of the cross matmul work is thrown away (jnp.real of complex product) ->
   real formulation with 2 dots instead of 4.
 - resp/ll is held fully: 4 x 1152 x 192 x 9 x 4 B = 32 MB; fine.
 - 'shifted' 192 x 9 x 4704 x 8 B = 65 MB, plus lhs of equal size twice.
 - Most responsibilities are ~0: sparse/adaptive second pass (RELION's oversampling), skip.
 - fp32 matmul precision: default on TPU is bf16 passes; log-likelihood needs precision (correctness caution).
 - den is real and hermitian() applies conj on real OK.
 - residual: model.vols[k] inside vmap gathers a 96^3 volume per image: 192 x 7 MB = 1.36 GB materialised! Remedy: flat index with class offset. That's the peak memory.
 - No communication, single device. No donation.
False
 - "communication", "backward", "FFT dominates" (FFT is negligible: 8 x 96^3), "memory bound by responsibilities", "the scan is over images".
"""

"""Cryo-EM 3D classification: one EM iteration of a Bayesian (RELION-like) refinement for a minibatch of
particle images.  Everything stays in Fourier space; the orientation grid is walked in chunks.

E step   log p(image | class, orientation, shift)    -> responsibilities
M step   back-projection with CTF weights            -> running numerator/denominator
then     Wiener-filtered volumes, solvent flattening, noise and prior (tau^2) update
"""
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

BOX = 96
HALF = BOX // 2 + 1
PIX = BOX * HALF
K = 4  # classes
N_IMG = 192
N_ORI = 1152
CHUNK = 64
SHIFTS = 9
APIX = 2.6  # Angstrom per pixel
R_MAX = BOX // 2 - 1
PAD_SHELLS = BOX // 2 + 1


class Model(NamedTuple):
    vols: jax.Array  # [K, BOX, BOX, BOX] complex64, DC in the centre
    pi: jax.Array  # [K]
    sigma2: jax.Array  # [PAD_SHELLS]
    tau2: jax.Array  # [K, PAD_SHELLS]
    num: jax.Array  # running back-projection
    den: jax.Array


class Particles(NamedTuple):
    ft: jax.Array  # [N_IMG, PIX] complex64, half plane, flattened
    defocus: jax.Array  # [N_IMG]


# --------------------------------------------------------------- fixed geometry (numpy, once)
_ky = np.fft.fftfreq(BOX) * BOX
_kx = np.arange(HALF)
_gy, _gx = np.meshgrid(_ky, _kx, indexing="ij")
PLANE = np.stack([_gx, _gy, np.zeros_like(_gx)], -1).reshape(-1, 3).astype(np.float32)
RAD2 = np.round(np.sqrt((PLANE**2).sum(-1))).astype(np.int32)
IN_BALL = (RAD2 <= R_MAX).astype(np.float32)
_c = np.arange(BOX) - BOX // 2
_r3 = np.sqrt(_c[:, None, None] ** 2 + _c[None, :, None] ** 2 + _c[None, None] ** 2)
SHELL3 = np.minimum(np.round(_r3), PAD_SHELLS - 1).astype(np.int32)
SOLVENT = (1 / (1 + np.exp(_r3 - 0.42 * BOX))).astype(np.float32)
_s = np.array([(x, y) for x in (-2, 0, 2) for y in (-2, 0, 2)], np.float32)
PHASE = np.exp(-2j * np.pi * (PLANE[:, :2] @ _s.T) / BOX).T.astype(np.complex64)  # [SHIFTS, PIX]


def ctf(defocus, cs=2.7e7, volt=300.0, amp=0.1, bfac=80.0):
    lam = 12.2643 / np.sqrt(volt * 1e3 * (1 + 0.978466e-6 * volt * 1e3))
    s2 = (PLANE[:, :2] ** 2).sum(-1) / (BOX * APIX) ** 2
    chi = jnp.pi * lam * s2 * (defocus[:, None] - 0.5 * lam**2 * s2 * cs)
    return -(np.sqrt(1 - amp**2) * jnp.sin(chi) + amp * jnp.cos(chi)) * jnp.exp(-bfac / 4 * s2)


def quat_to_rot(q):
    w, x, y, z = jnp.moveaxis(q, -1, 0)
    return jnp.stack(
        [
            jnp.stack([1 - 2 * (y * y + z * z), 2 * (x * y - z * w), 2 * (x * z + y * w)], -1),
            jnp.stack([2 * (x * y + z * w), 1 - 2 * (x * x + z * z), 2 * (y * z - x * w)], -1),
            jnp.stack([2 * (x * z - y * w), 2 * (y * z + x * w), 1 - 2 * (x * x + y * y)], -1),
        ],
        -2,
    )


def trilinear(rot):
    """8 (flat index, weight) pairs of one rotated plane in the cube."""
    p = jnp.asarray(PLANE) @ rot.T + BOX // 2
    i0 = jnp.floor(p).astype(jnp.int32)
    f = p - i0
    idx, wts = [], []
    for o in np.ndindex(2, 2, 2):
        j = jnp.clip(i0 + np.array(o), 0, BOX - 1)
        w = jnp.prod(jnp.where(np.array(o) == 1, f, 1 - f), -1)
        idx.append((j[:, 2] * BOX + j[:, 1]) * BOX + j[:, 0])
        wts.append(w * IN_BALL)
    return jnp.stack(idx), jnp.stack(wts)


def project(vol, rots):
    """Central slices of one volume.  [CHUNK, PIX]"""
    flat = vol.reshape(-1)

    def one(r):
        i, w = trilinear(r)
        return jnp.sum(flat[i] * w, 0)

    return jax.vmap(one)(rots)


def e_step(model, shifted, c, weight, rots):
    """log-likelihoods [K, n_chunk, CHUNK, N_IMG, SHIFTS] up to a per-image constant."""
    lhs = (shifted * (c * weight)[:, None]).reshape(N_IMG * SHIFTS, PIX)
    power_lhs = c**2 * weight

    def class_loglik(vol):
        def body(_, r):
            sl = project(vol, r)
            cross = jnp.real(lhs @ jnp.conj(sl).T).reshape(N_IMG, SHIFTS, CHUNK)
            power = power_lhs @ (jnp.abs(sl) ** 2).T
            return None, jnp.moveaxis(cross - 0.5 * power[:, None], 2, 0)

        return jax.lax.scan(body, None, rots)[1]

    return jax.vmap(class_loglik)(model.vols)


def back_project(resp, shifted, c, weight, rots):
    """Gridding of the weighted images; resp [n_chunk, CHUNK, N_IMG, SHIFTS] of one class."""
    rhs = (shifted * (c * weight)[:, None]).reshape(N_IMG * SHIFTS, PIX)
    ctf2 = c**2 * weight

    def body(acc, xs):
        num, den = acc
        w, r = xs
        img = w.reshape(CHUNK, -1).astype(jnp.complex64) @ rhs
        pw = w.sum(-1) @ ctf2
        idx, tw = jax.vmap(trilinear)(r)
        num = num.at[idx].add(img[:, None] * tw)
        den = den.at[idx].add(pw[:, None] * tw)
        return (num, den), None

    zero = (jnp.zeros((BOX**3,), jnp.complex64), jnp.zeros((BOX**3,)))
    num, den = jax.lax.scan(body, zero, (resp, rots))[0]
    return num.reshape(BOX, BOX, BOX), den.reshape(BOX, BOX, BOX)


def hermitian(x):
    """Add the Friedel mate (the half plane only fills one side)."""
    m = jnp.roll(jnp.flip(x, (-3, -2, -1)), 1, (-3, -2, -1))
    return x + jnp.conj(m)


def shell_mean(x):
    s = jax.ops.segment_sum(x.reshape(-1), SHELL3.reshape(-1), PAD_SHELLS)
    n = jax.ops.segment_sum(jnp.ones(BOX**3), SHELL3.reshape(-1), PAD_SHELLS)
    return s / jnp.maximum(n, 1)


def wiener(num, den, tau2):
    v = num / (den + 1.0 / (tau2[SHELL3] + 1e-8))
    real = jnp.fft.fftshift(jnp.fft.ifftn(jnp.fft.ifftshift(v))).real * SOLVENT
    v = jnp.fft.fftshift(jnp.fft.fftn(jnp.fft.ifftshift(real)))
    return v.astype(jnp.complex64), shell_mean(jnp.abs(v) ** 2)


def em_iteration(model, data, quats, forget=0.9):
    rots = quat_to_rot(quats / jnp.linalg.norm(quats, axis=-1, keepdims=True))
    rots = rots.reshape(N_ORI // CHUNK, CHUNK, 3, 3)
    c = ctf(data.defocus)
    weight = IN_BALL / model.sigma2[np.minimum(RAD2, PAD_SHELLS - 1)]
    shifted = data.ft[:, None] * PHASE[None]

    ll = e_step(model, shifted, c, weight, rots)
    ll = ll + jnp.log(model.pi + 1e-12)[:, None, None, None, None]
    log_z = jax.nn.logsumexp(ll, axis=(0, 1, 2, 4))
    resp = jnp.exp(ll - log_z[:, None])

    num, den = jax.vmap(back_project, in_axes=(0, None, None, None, None))(
        resp, shifted, c, weight, rots
    )
    num = forget * model.num + hermitian(num)
    den = forget * model.den + hermitian(den)
    vols, spec = jax.vmap(wiener)(num, den, model.tau2)

    # noise: residual power of the best pose of every image
    best = jnp.argmax(jnp.moveaxis(resp.sum(-1), 3, 0).reshape(N_IMG, -1), 1)
    k, o = best // N_ORI, best % N_ORI

    def residual(k, o, ft, ctf_i):
        return jnp.abs(ft - ctf_i * project(model.vols[k], rots.reshape(-1, 3, 3)[o][None])[0]) ** 2

    r = jax.vmap(residual)(k, o, data.ft, c).mean(0)
    shells = np.minimum(RAD2, PAD_SHELLS - 1)
    s2 = jax.ops.segment_sum(r, shells, PAD_SHELLS) / np.maximum(
        np.bincount(shells, minlength=PAD_SHELLS), 1
    )
    sigma2 = 0.95 * model.sigma2 + 0.05 * 0.5 * s2
    pi = 0.9 * model.pi + 0.1 * resp.sum((1, 2, 3, 4)) / N_IMG
    return Model(vols, pi, sigma2, 0.9 * model.tau2 + 0.1 * spec, num, den), log_z.mean()


def make():
    f = lambda *s, dt=jnp.float32: jax.ShapeDtypeStruct(s, dt)
    cube = f(K, BOX, BOX, BOX, dt=jnp.complex64)
    model = Model(cube, f(K), f(PAD_SHELLS), f(K, PAD_SHELLS), cube, f(K, BOX, BOX, BOX))
    data = Particles(f(N_IMG, PIX, dt=jnp.complex64), f(N_IMG))
    return em_iteration, (model, data, f(N_ORI, 4))
