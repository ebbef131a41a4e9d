"""The program of the tests of linked texts: three calls of one layer."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp


@jax.jit
def layer(x: Any, w: Any) -> Any:
    h = x @ w.T
    return jnp.tanh(h)


def step(weights: Any, x: Any) -> Any:
    for w in weights:
        x = layer(x, w)
    return jnp.sum(x)


def capture(**options: Any) -> Any:
    """Capture the step, compiled for this machine."""
    import hloscope as hs

    weights = [jnp.ones((64, 64))] * 3
    return hs.capture(jax.jit(step), weights, jnp.ones((8, 64)), **options)
