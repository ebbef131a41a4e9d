"""Parts that several programs share."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp


def s(*shape: int, dtype: Any = jnp.bfloat16) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, dtype)


def ids(*shape: int) -> jax.ShapeDtypeStruct:
    return s(*shape, dtype=jnp.int32)


def rms(x: jax.Array, w: jax.Array) -> jax.Array:
    wide = x.astype(jnp.float32)
    return (wide * jax.lax.rsqrt(jnp.mean(wide * wide, -1, keepdims=True) + 1e-5)).astype(
        x.dtype
    ) * w


def stacked(tree: Any, n: int) -> Any:
    """One array for all layers, as ``scan`` wants them."""
    return jax.tree.map(lambda a: jax.ShapeDtypeStruct((n, *a.shape), a.dtype), tree)
