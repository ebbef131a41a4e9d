"""What was said wrongly of real programs, found by judging every finding of them."""

from __future__ import annotations

from typing import Any

import hloscope as hs
import jax
import jax.numpy as jnp
import pytest
from findings_programs import shaped


def test_gradients_in_an_optimisers_update_are_not_idle_matmuls() -> None:
    """The fusion reads and writes Adam's state; the product in it moves a fraction of that."""
    pytest.importorskip("libtpu")

    def step(p: Any, mean: Any, square: Any, x: Any, y: Any) -> Any:
        def loss(p: Any) -> Any:
            for w in p:
                x_ = jnp.tanh(x @ w)
            return jnp.square(x_ - y).mean()

        grads = jax.grad(loss)(p)
        mean = [0.9 * m + 0.1 * g for m, g in zip(mean, grads, strict=True)]
        square = [0.99 * v + 0.01 * g * g for v, g in zip(square, grads, strict=True)]
        new = [
            w - 1e-3 * m * jax.lax.rsqrt(v + 1e-8) for w, m, v in zip(p, mean, square, strict=True)
        ]
        return new, mean, square

    state = [[shaped((512, 512))]] * 3
    data = [shaped((64, 512))] * 2
    cap = hs.capture(jax.jit(step), *state, *data, topology="v5e:1x1")
    assert cap.findings.failed == ()
    assert not [f for f in cap.findings.of("idle-matmul") if "64 contracted" in f.evidence]


def test_a_transform_and_its_derivative_have_no_precision_to_lower() -> None:
    """A Fourier transform on TPU is matmuls in XLA's own precision, with no operands to cast."""
    pytest.importorskip("libtpu")

    def loss(w: Any, x: Any) -> Any:
        f = jnp.fft.rfft(jnp.tanh(x), axis=1) * w
        return jnp.square(jnp.fft.irfft(f, n=x.shape[1], axis=1)).mean()

    given = shaped((65, 64)), shaped((8, 128, 64))
    cap = hs.capture(jax.jit(jax.grad(loss, (0, 1))), *given, topology="v5e:1x1")
    assert " convolution(" in cap.text
    assert not cap.findings.of("wide-matmul")


def test_levels_of_a_network_are_not_layers_that_one_scan_could_run() -> None:
    """Twelve calls of one function, six with arrays of one shape and six of another."""

    def block(x: Any, w: Any) -> Any:
        y = (x - x.mean(-1, keepdims=True)) * jax.lax.rsqrt(x.var(-1, keepdims=True) + 1e-6)
        q, k, v = ((y @ w[n]).reshape(*x.shape[:2], 4, -1) for n in "qkv")
        weights = jax.nn.softmax(jnp.einsum("bqhd,bkhd->bhqk", q, k))
        x = x + jnp.einsum("bhqk,bkhd->bqhd", weights, v).reshape(x.shape) @ w["o"]
        y = (x - x.mean(-1, keepdims=True)) * jax.lax.rsqrt(x.var(-1, keepdims=True) + 1e-6)
        return x + jax.nn.gelu(y @ w["up"]) @ w["down"]

    def loss(levels: Any, x: Any) -> Any:
        for level in levels:
            for w in level:
                x = block(x, w)
            x = x.reshape(x.shape[0], -1, 2 * x.shape[2])
        return (x * x).sum()

    def level(d: int) -> Any:
        one = {n: shaped((d, d)) for n in "qkvo"}
        return [one | {"up": shaped((d, 4 * d)), "down": shaped((4 * d, d))}] * 6

    cap = hs.capture(jax.jit(jax.grad(loss)), [level(64), level(128)], shaped((2, 64, 64)))
    assert cap.findings.failed == ()
    assert not cap.findings.of("unrolled")
