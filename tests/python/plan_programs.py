"""Programs that searches are tried on: the two-layer MLP of the seed's log, any size."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp


def mlp(count: Any, w1: Any, w2: Any, x: Any, y: Any) -> Any:
    """One step of gradient descent on half the mean squared error."""

    def loss(w1: Any, w2: Any) -> Any:
        return jnp.sum((jax.nn.relu(x @ w1) @ w2 - y) ** 2) / y.size / 2

    g1, g2 = jax.grad(loss, (0, 1))(w1, w2)
    return count + 1, w1 - 0.01 * g1, w2 - 0.01 * g2


def mlp_args(shrink: int = 1) -> tuple[Any, ...]:
    """Shapes alone; 1 is the size of the log."""
    wide, rows = 8192 // shrink, 2048 // shrink

    def array(*shape: int) -> Any:
        return jax.ShapeDtypeStruct(shape, jnp.float32)

    step = jax.ShapeDtypeStruct((), jnp.int32)
    return step, array(wide, wide), array(wide, wide), array(rows, wide), array(rows, wide)


def faulty(cap: Any) -> float:
    """A cost that dies, sleeps or eats memory for three ways to shard w1."""
    import os
    import time

    w1 = cap.target.arguments[1].spec
    if w1[0] == ("x",):
        os.abort()
    if w1[1] == ("x",):
        time.sleep(1000)
    if w1[0] == ("z",):
        held = [bytearray(50_000_000) for _ in range(100)]
        time.sleep(1000 + len(held))
    return float(cap.cost("a100").roofline.total_seconds)
