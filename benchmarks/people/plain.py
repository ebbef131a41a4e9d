"""Plain functions: recurrence, a small network, a physics step, one layer."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from .common import s

F32 = partial(s, dtype=jnp.float32)


def lstm(unroll: bool) -> Any:
    def cell(p: Any, state: Any, x: jax.Array) -> Any:
        h, c = state
        i, f, g, o = jnp.split(x @ p["w"] + h @ p["u"] + p["b"], 4, -1)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        h = jax.nn.sigmoid(o) * jnp.tanh(c)
        return (h, c), h

    def loss(p: Any, xs: jax.Array, y: jax.Array) -> jax.Array:
        state = (jnp.zeros((8, 128)), jnp.zeros((8, 128)))
        if unroll:
            for x in xs:
                state, _ = cell(p, state, x)
        else:
            state, _ = jax.lax.scan(partial(cell, p), state, xs)
        return jnp.square(state[0] @ p["out"] - y).mean()

    def step(p: Any, xs: jax.Array, y: jax.Array) -> Any:
        value, grads = jax.value_and_grad(loss)(p, xs, y)
        return jax.tree.map(lambda a, g: a - 0.1 * g, p, grads), value

    p = {"w": F32(64, 512), "u": F32(128, 512), "b": F32(512), "out": F32(128, 10)}
    return step, (p, F32(16, 8, 64), F32(8, 10))


def mlp() -> Any:
    def loss(params: Any, x: jax.Array, y: jax.Array) -> jax.Array:
        for w, b in params[:-1]:
            x = jax.nn.relu(x @ w + b)
        w, b = params[-1]
        return jnp.square(x @ w + b - y).mean()

    def step(params: Any, x: jax.Array, y: jax.Array) -> Any:
        value, grads = jax.value_and_grad(loss)(params, x, y)
        return jax.tree.map(lambda p, g: p - 0.1 * g, params, grads), value

    params = [(F32(512, 512), F32(512))] * 5 + [(F32(512, 10), F32(10))]
    return step, (params, F32(64, 512), F32(64, 10))


def wave() -> Any:
    """A finite-difference wave equation, a hundred steps."""

    def run(u: jax.Array, v: jax.Array) -> jax.Array:
        def body(_: int, state: Any) -> Any:
            u, v = state
            around = sum(jnp.roll(u, d, a) for d in (-1, 1) for a in (0, 1))
            v = v + 0.1 * (around - 4 * u)
            return u + 0.1 * v, v

        return jax.lax.fori_loop(0, 100, body, (u, v))[0]

    return run, (F32(256, 256), F32(256, 256))


PROGRAMS: dict[str, Any] = {
    "lstm_unrolled": (lambda: lstm(True), (16,)),
    "lstm_scanned": (lambda: lstm(False), (16,)),
    "mlp": (mlp, (5,)),
    "wave": (wave, (100,)),
}
