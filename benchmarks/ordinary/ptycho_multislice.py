TRUTH = """
# ptycho_multislice - electron ptychography: one epoch of multislice reconstruction; jit auto sharding, positions over 8 devices

1. Order: **epoch = loop x16 mini-batches** (64 scan positions each, 8 per device), then after the loop **regularise** (object: low-pass across slices by FFT, phase TV step), **orthogonalise probe modes** (3 modes, Gram-Schmidt).
2. In a mini-batch: **cut patches** (gather of 128x128 windows from 4 object slices), shift probe (Fourier phase ramp), **multislice: loop x4 slices { transmit (multiply), propagate (FFT, Fresnel kernel, inverse FFT) }**, **far field** FFT, intensity summed over 3 modes, amplitude loss vs. measured pattern ; **backward**: far field adjoint, **multislice backward: loop x4**, scatter-add patches into object gradient, probe gradient, position gradient ; **all-reduce** of the gradients over positions ; Adam for object, SGD+momentum for probe, clipped step for positions.
3. Work: FFTs ~ all (complex64): per batch forward 1 (shift) +2x4 + 1 + 1, backward the same again. Elementwise complex products the rest. Regularisation <1%. Multislice fwd + bwd ~85%.
4. First picture: x16 { cut patches -> multislice x4 { transmit, propagate } -> far field -> loss -> backward x4 -> scatter to object -> all-reduce -> update object/probe/positions } -> regularise -> orthogonalise.
5. Arrows: object (carry, big: 4x512x512 complex) -> patches; measured patterns (sliced per batch); gradient scatter -> object update; saved wave per slice forward -> backward.
6. Collective: all-reduce of object and probe gradients inside the x16 loop: 16 times per epoch, a thing to see.
7. Should not stand out: building Fresnel kernel / frequency grids, complex real/imag handling, Gram-Schmidt.
8. Misleading: x4 slices named "layers" is forgivable, "micro-batches" no. On TPU FFT may be turned into matmuls/other loops; author would want it named FFT / propagate.
"""

"""Mixed-state multislice ptychography with automatic differentiation."""
import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

MESH = {"positions": 8}

SLICES, FIELD, PATCH, MODES = 4, 512, 128, 3
BATCHES, BATCH = 16, 64
WAVELENGTH, PIXEL, THICKNESS = 0.0197, 0.2, 20.0


def frequencies(n):
    f = jnp.fft.fftfreq(n, PIXEL)
    return jnp.meshgrid(f, f, indexing="ij")


def fresnel_kernel():
    fy, fx = frequencies(PATCH)
    limit = (fy**2 + fx**2) < (0.66 * 0.5 / PIXEL) ** 2
    return jnp.exp(-1j * jnp.pi * WAVELENGTH * THICKNESS * (fy**2 + fx**2)) * limit


def shift_probe(probe, offset):
    """sub-pixel shift of all modes [M,P,P] by offset (2,)"""
    fy, fx = frequencies(PATCH)
    ramp = jnp.exp(-2j * jnp.pi * PIXEL * (fy * offset[0] + fx * offset[1]))
    return jnp.fft.ifft2(jnp.fft.fft2(probe) * ramp)


def cut_patch(phase, absorption, corner):
    window = lambda a: lax.dynamic_slice(a, (0, corner[0], corner[1]), (SLICES, PATCH, PATCH))
    return jnp.exp(1j * window(phase) - window(absorption))


def propagate(wave, kernel):
    return jnp.fft.ifft2(jnp.fft.fft2(wave) * kernel)


def multislice(probe, patch):
    kernel = fresnel_kernel()

    def through_slice(wave, transmission):
        return propagate(wave * transmission[None], kernel), None

    exit_wave, _ = lax.scan(through_slice, probe, patch)
    return exit_wave


def far_field_intensity(exit_wave):
    return jnp.sum(jnp.abs(jnp.fft.fft2(exit_wave, norm="ortho")) ** 2, 0)


def diffraction_pattern(model, corner, offset):
    patch = cut_patch(model["phase"], model["absorption"], corner)
    probe = model["probe_re"] + 1j * model["probe_im"]
    wave = multislice(shift_probe(probe, offset), patch)
    return far_field_intensity(wave)


def amplitude_loss(model, offsets, corners, measured):
    predicted = jax.vmap(diffraction_pattern, (None, 0, 0))(model, corners, offsets)
    residual = jnp.sqrt(predicted + 1e-6) - jnp.sqrt(measured)
    return jnp.mean(jnp.sum(residual**2, (1, 2)))


def update_object(o, g, m, v, t):
    m = 0.9 * m + 0.1 * g
    v = 0.99 * v + 0.01 * g * g
    return o - 1e-2 * (m / (1 - 0.9**t)) / (jnp.sqrt(v / (1 - 0.99**t)) + 1e-8), m, v


def minibatch(state, data):
    model, opt = state
    corners, offsets, measured = data
    loss, (grads, g_off) = jax.value_and_grad(amplitude_loss, (0, 1))(
        model, offsets, corners, measured
    )
    t = opt["t"] + 1.0
    new, new_opt = {}, {"t": t}
    for name in ("phase", "absorption"):
        new[name], m, v = update_object(model[name], grads[name], opt[name]["m"], opt[name]["v"], t)
        new_opt[name] = {"m": m, "v": v}
    for name in ("probe_re", "probe_im"):
        momentum = 0.8 * opt[name] + grads[name]
        new[name], new_opt[name] = model[name] - 0.05 * momentum, momentum
    new["absorption"] = jnp.maximum(new["absorption"], 0.0)
    offsets = offsets - jnp.clip(0.1 * g_off, -0.25, 0.25)
    return (new, new_opt), (loss, offsets)


def smooth_slices(volume):
    """low-pass between slices: nearby slices cannot differ arbitrarily"""
    f = jnp.fft.fftn(volume)
    kz = jnp.fft.fftfreq(SLICES)[:, None, None]
    k = jnp.fft.fftfreq(FIELD)
    kr = jnp.sqrt(k[:, None] ** 2 + k[None] ** 2)[None]
    weight = 1 - jnp.arctan(jnp.abs(kz) / (kr + 1e-3)) / jnp.pi
    return jnp.fft.ifftn(f * weight).real


def tv_step(image, rate=1e-3):
    def tv(x):
        dy, dx = jnp.diff(x, axis=1)[:, :, :-1], jnp.diff(x, axis=2)[:, :-1]
        return jnp.sum(jnp.sqrt(dy**2 + dx**2 + 1e-8))

    return image - rate * jax.grad(tv)(image)


def regularise(model):
    return {**model, "phase": tv_step(smooth_slices(model["phase"]))}


def orthogonalise(model):
    probe = (model["probe_re"] + 1j * model["probe_im"]).reshape(MODES, -1)
    done = []
    for i in range(MODES):
        mode = probe[i]
        for other in done:
            mode = mode - other * jnp.vdot(other, mode) / jnp.vdot(other, other)
        done.append(mode)
    probe = jnp.stack(done).reshape(MODES, PATCH, PATCH)
    return {**model, "probe_re": probe.real, "probe_im": probe.imag}


def epoch(model, opt, corners, offsets, patterns):
    (model, opt), (losses, offsets) = lax.scan(
        minibatch, (model, opt), (corners, offsets, patterns)
    )
    model = orthogonalise(regularise(model))
    return model, opt, offsets, losses.mean()


REPLICATED = P()


def make(mesh):
    S = lambda shape, spec=REPLICATED, dtype=jnp.float32: jax.ShapeDtypeStruct(
        shape, dtype, sharding=NamedSharding(mesh, spec)
    )
    volume, probe = (SLICES, FIELD, FIELD), (MODES, PATCH, PATCH)
    model = {
        "phase": S(volume),
        "absorption": S(volume),
        "probe_re": S(probe),
        "probe_im": S(probe),
    }
    moments = lambda: {"m": S(volume), "v": S(volume)}
    opt = {
        "t": S(()),
        "phase": moments(),
        "absorption": moments(),
        "probe_re": S(probe),
        "probe_im": S(probe),
    }
    each = P(None, "positions")
    corners = S((BATCHES, BATCH, 2), each, jnp.int32)
    offsets = S((BATCHES, BATCH, 2), each)
    patterns = S((BATCHES, BATCH, PATCH, PATCH), each)
    return jax.jit(epoch, donate_argnums=(0, 1)), (model, opt, corners, offsets, patterns)
