"""One kind of operation each: linear algebra, convolutions, indexing, random numbers, types."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl

from .registry import Made, array, program

IMAGE = ("NHWC", "HWIO", "NHWC")


def conv(x: jax.Array, w: jax.Array, **options: Any) -> jax.Array:
    options.setdefault("window_strides", (1, 1))
    options.setdefault("padding", "SAME")
    return jax.lax.conv_general_dilated(x, w, dimension_numbers=IMAGE, **options)


@program("a CNN training step: convolutions, pooling, their gradients", contains=("convolution",))
def cnn_step(mesh: None) -> Made:
    def loss(p: dict[str, jax.Array], x: jax.Array, y: jax.Array) -> jax.Array:
        x = jax.nn.relu(conv(x, p["c1"]))
        x = jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
        x = jax.nn.relu(conv(x, p["c2"], window_strides=(2, 2)))
        logits = x.reshape(x.shape[0], -1) @ p["out"]
        return -jnp.mean(jnp.sum(jax.nn.log_softmax(logits) * jax.nn.one_hot(y, 10), -1))

    def step(p: dict[str, jax.Array], x: jax.Array, y: jax.Array) -> Any:
        return jax.tree.map(lambda a, g: a - 0.1 * g, p, jax.grad(loss)(p, x, y))

    p = {
        "c1": array(None, (3, 3, 3, 8)),
        "c2": array(None, (3, 3, 8, 16)),
        "out": array(None, (256, 10)),
    }
    args = (p, array(None, (4, 16, 16, 3)), array(None, (4,), dtype=jnp.int32))
    return Made(jax.jit(step, donate_argnums=0), args)


@program("dilated, grouped, transposed and one-dimensional convolutions", contains=("convolution",))
def conv_variants(mesh: None) -> Made:
    def f(x: jax.Array, w: jax.Array, wide: jax.Array, line: jax.Array, taps: jax.Array) -> Any:
        return (
            conv(x, w, rhs_dilation=(2, 2)),
            conv(x, w, lhs_dilation=(2, 2), padding=[(1, 2), (1, 2)]),
            conv(x, wide, feature_group_count=4),
            jax.lax.conv_general_dilated(line, taps, (1,), [(2, 0)]),
        )

    args = (
        array(None, (2, 12, 12, 4)),
        array(None, (3, 3, 4, 8)),
        array(None, (3, 3, 1, 8)),
        array(None, (2, 4, 32)),
        array(None, (8, 4, 3)),
    )
    return Made(jax.jit(f), args)


@program("sums and maxima in windows; the gradient of pooling", contains=("reduce-window",))
def windows(mesh: None) -> Made:
    def pool(x: jax.Array) -> jax.Array:
        return jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 3, 3, 1), (1, 2, 2, 1), "SAME")

    def f(x: jax.Array) -> Any:
        return jax.grad(lambda v: pool(v).sum())(x), jnp.cumsum(x, axis=1), jax.lax.cummax(x, 2)

    return Made(jax.jit(f), (array(None, (2, 16, 16, 4)),))


@program("gather, scatter, segment sums", contains=("gather", "scatter"))
def indexing(mesh: None) -> Made:
    def f(x: jax.Array, i: jax.Array, v: jax.Array) -> Any:
        return x[i], x.at[i].add(v), x.at[i, 0].max(3.0), jax.ops.segment_sum(v, i, 8)

    i = array(None, (32,), dtype=jnp.int32)
    return Made(jax.jit(f), (array(None, (64, 16)), i, array(None, (32, 16))))


@program("dynamic slices and updates, padding both ways, reversal", contains=("dynamic-slice",))
def slicing(mesh: None) -> Made:
    def f(x: jax.Array, i: jax.Array) -> Any:
        part = jax.lax.dynamic_slice(x, (i, 0), (8, 8))
        back = jax.lax.dynamic_update_slice(x, part * 2, (i + 1, 2))
        odd = jax.lax.pad(x, 0.0, [(-1, 2, 1), (3, -2, 0)])
        return part, back, odd, x[::-2, ::3], jnp.roll(x, 3, 0)

    return Made(jax.jit(f), (array(None, (32, 32)), array(None, (), dtype=jnp.int32)))


@program("sorting, arg-sorting with keys, top-k", contains=("sort",))
def sorting(mesh: None) -> Made:
    def f(x: jax.Array, k: jax.Array) -> Any:
        return jnp.sort(x), jax.lax.sort((k, x), num_keys=1), jax.lax.top_k(x, 5), jnp.median(x, 0)

    return Made(jax.jit(f), (array(None, (64, 32)), array(None, (64, 32), dtype=jnp.int32)))


@program("argmax and friends: reductions of several values at once", contains=("reduce",))
def reductions(mesh: None) -> Made:
    def f(x: jax.Array, b: jax.Array) -> Any:
        return (
            jnp.argmax(x, 1), jnp.argmin(x), jnp.std(x, 0), jnp.prod(x, 1), jnp.any(b, 0),
            jax.nn.logsumexp(x, 1), jnp.nanmax(x),
        )  # fmt: skip

    return Made(jax.jit(f), (array(None, (32, 32)), array(None, (32, 8), dtype=jnp.bool_)))


@program("real and complex Fourier transforms")
def fourier(mesh: None) -> Made:
    def f(x: jax.Array) -> Any:
        spectrum = jnp.fft.rfft(x)
        return jnp.abs(spectrum), jnp.fft.irfft(spectrum * 2), jnp.fft.fft2(x).real

    return Made(jax.jit(f), (array(None, (16, 64)),))


@program("complex arithmetic", platforms=("cpu",))
def complex_numbers(mesh: None) -> Made:
    def f(z: jax.Array, w: jax.Array) -> Any:
        return (z @ w).conj(), jnp.abs(z), jnp.exp(1j * z.real), jnp.angle(w)

    z = array(None, (16, 16), dtype=jnp.complex64)
    return Made(jax.jit(f), (z, z))


@program("Cholesky, triangular solve, QR, LU", platforms=("cpu",), contains=("custom-call",))
def factorisations(mesh: None) -> Made:
    def f(a: jax.Array, b: jax.Array) -> Any:
        spd = a @ a.T + 16 * jnp.eye(16)
        lower = jnp.linalg.cholesky(spd)
        solved = jax.scipy.linalg.solve_triangular(lower, b, lower=True)
        return solved, jnp.linalg.qr(a), jnp.linalg.solve(spd, b)

    return Made(jax.jit(f), (array(None, (16, 16)), array(None, (16, 4))))


@program("eigenvalues and singular values", platforms=("cpu",), contains=("custom-call",))
def eigen(mesh: None) -> Made:
    def f(a: jax.Array) -> Any:
        return jnp.linalg.eigh(a + a.T), jnp.linalg.svd(a), jnp.linalg.det(a)

    return Made(jax.jit(f), (array(None, (8, 8)),))


@program("calls back into Python, ordered and not", platforms=("cpu",), contains=("custom-call",))
def callbacks(mesh: None) -> Made:
    def f(x: jax.Array) -> jax.Array:
        like = jax.ShapeDtypeStruct(x.shape, x.dtype)
        y = jax.pure_callback(np.sin, like, x, vmap_method="sequential")
        jax.debug.print("sum {s}", s=y.sum(), ordered=True)
        return y * 2

    return Made(jax.jit(f), (array(None, (8,)),))


@program("random numbers by two generators")
def random_numbers(mesh: None) -> Made:
    def f(seed: jax.Array) -> Any:
        key = jax.random.key(seed)
        a, b = jax.random.split(key)
        fast = jax.random.key(seed, impl="rbg")
        return (
            jax.random.normal(a, (32,)),
            jax.random.permutation(b, 16),
            jax.random.bits(fast, (8,)),
        )

    return Made(jax.jit(f), (array(None, (), dtype=jnp.int32),))


@program("four- and eight-bit numbers")
def narrow_types(mesh: None) -> Made:
    def f(a: jax.Array, b: jax.Array, q: jax.Array) -> Any:
        wide = a.astype(jnp.bfloat16) @ b.astype(jnp.bfloat16)
        nibbles = q.astype(jnp.int8) @ q.T.astype(jnp.int8)
        return wide.astype(jnp.float8_e5m2), nibbles, q + q, (q > 0).sum()

    a = array(None, (32, 32), dtype=jnp.float8_e4m3fn)
    return Made(jax.jit(f), (a, a, array(None, (32, 32), dtype=jnp.int4)))


@program("bfloat16 with float32 sums, float16, and casts between")
def mixed_precision(mesh: None) -> Made:
    def f(a: jax.Array, b: jax.Array, h: jax.Array) -> Any:
        product = jnp.dot(a, b, preferred_element_type=jnp.float32)
        return product.astype(jnp.bfloat16), jax.lax.reduce_precision(product, 5, 10), h * 2 + 1

    a = array(None, (64, 64), dtype=jnp.bfloat16)
    return Made(jax.jit(f), (a, a, array(None, (16,), dtype=jnp.float16)))


@program("integer and bit operations")
def integers(mesh: None) -> Made:
    def f(x: jax.Array, y: jax.Array) -> Any:
        bits = jax.lax.bitcast_convert_type(x, jnp.float32)
        return (
            x & y, x | y, x ^ y, ~x, x << 3, x >> 1, x // (y | 1), x % (y | 1),
            jax.lax.population_count(x), jax.lax.clz(x), bits, jnp.bitwise_count(y),
        )  # fmt: skip

    x = array(None, (32,), dtype=jnp.uint32)
    return Made(jax.jit(f), (x, x))


@program("special functions")
def special_functions(mesh: None) -> Made:
    def f(x: jax.Array) -> Any:
        s = jax.scipy.special
        return s.erf(x), s.erfinv(x), s.gammaln(x), s.digamma(x), jnp.cbrt(x), jnp.log1p(x)

    return Made(jax.jit(f), (array(None, (32,)),))


@program("contractions with several batch dimensions")
def einsums(mesh: None) -> Made:
    def f(a: jax.Array, b: jax.Array, c: jax.Array) -> Any:
        return (
            jnp.einsum("abij,abjk->abik", a, b),
            jnp.einsum("abij,abkj,abi->ak", a, b, c),
            jax.vmap(jnp.outer)(c[0], c[1]),
        )

    a = array(None, (2, 3, 8, 8))
    return Made(jax.jit(f), (a, a, array(None, (2, 3, 8))))


@program("ragged groups of a matmul")
def ragged(mesh: None) -> Made:
    def f(x: jax.Array, w: jax.Array, sizes: jax.Array) -> jax.Array:
        return jax.lax.ragged_dot(x, w, sizes)

    args = (array(None, (32, 16)), array(None, (4, 16, 8)), array(None, (4,), dtype=jnp.int32))
    return Made(jax.jit(f), args)


@program("a Pallas kernel in interpret mode: a loop over its grid", contains=("while",))
def pallas_interpret(mesh: None) -> Made:
    def kernel(x: Any, y: Any, out: Any) -> None:
        out[...] = jnp.tanh(x[...]) + y[...]

    def f(x: jax.Array, y: jax.Array) -> jax.Array:
        block = pl.BlockSpec((8, 16), lambda i: (i, 0))
        shape = jax.ShapeDtypeStruct((32, 16), jnp.float32)
        call = pl.pallas_call(
            kernel, shape, grid=(4,), in_specs=[block, block], out_specs=block, interpret=True
        )
        return call(x, y)

    return Made(jax.jit(f), (array(None, (32, 16)), array(None, (32, 16))))


@program("large constants, iotas, and a table looked up", contains=("constant",))
def constants(mesh: None) -> Made:
    table = np.arange(4096, dtype=np.float32).reshape(64, 64) ** 0.5

    def f(i: jax.Array) -> Any:
        return jnp.asarray(table)[i] + jnp.arange(64.0), jnp.tri(8), jnp.float32("nan")

    return Made(jax.jit(f), (array(None, (16,), dtype=jnp.int32),))


@program("mean and variance over a batch, as normalisation layers do", contains=("reduce",))
def normalisations(mesh: None) -> Made:
    def f(x: jax.Array, scale: jax.Array) -> Any:
        layer = jax.nn.standardize(x) * scale
        rms = x * jax.lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-6)
        return jax.grad(lambda v: (jax.nn.standardize(v) ** 3).sum())(x), layer, rms

    return Made(jax.jit(f), (array(None, (16, 64)), array(None, (64,))))


@program("nothing computed at all, and no arguments")
def trivial(mesh: None) -> Made:
    return Made(jax.jit(lambda x: x), (array(None, (4,)),))
