"""Programs that many passes change; ``kept_passes.py`` stores what each pass made."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P


@jax.jit
def scaled(v: Any) -> Any:
    return v * 2 - 1


def mixed(x: Any, y: Any, i: Any) -> Any:
    twice = jnp.sin(x) + jnp.sin(x)
    nothing = (x * 7) * 0 + twice
    chosen = jax.lax.select(jnp.full((8, 8), True), jnp.cos(nothing), jnp.exp(nothing) * 3)
    joined = jnp.concatenate([chosen, y.T * 2])[:8]
    product = (joined @ y.T) @ y
    where = jnp.where(i > 3, product, product + jnp.arange(64.0).reshape(8, 8))
    return where + jnp.sum(jnp.sqrt(2.0) * jnp.ones((8, 8))), scaled(scaled(product))


def loss(w: Any, x: Any) -> Any:
    def layer(c: Any, _: None) -> tuple[Any, None]:
        return jnp.tanh(c @ w), None

    y, _ = jax.lax.scan(layer, x, None, length=3)
    return jnp.sum(y**2)


def sharded(x: Any, w: Any) -> Any:
    h = jnp.tanh(x @ w)
    branch = jax.lax.cond(x[0, 0] > 0, lambda v: v * 2, lambda v: jnp.sin(v), h)
    return jnp.sum(branch @ w.T, axis=0)


def layered(params: Any, x: Any) -> Any:
    """Equal layers one by one, with residual sums, a softmax and norms, all of them twice."""
    for w in params:
        y = (x - x.mean(-1, keepdims=True)) * jax.lax.rsqrt(x.var(-1, keepdims=True) + 1e-6)
        scores = jax.nn.softmax(y @ y.T)
        x = x + (scores @ y) @ w
        x = x + jnp.maximum(x @ w.T, 0.0)
    return jnp.sum(x * x)


def made() -> dict[str, Any]:
    on = Mesh(np.array(jax.devices()), ("d",))
    a, b = jnp.ones((8, 8)), jnp.ones((8, 8))
    spread = [
        jax.ShapeDtypeStruct((16, 16), jnp.float32, sharding=NamedSharding(on, P(*s)))
        for s in (("d", None), (None, "d"))
    ]
    return {
        "mixed": (jax.jit(mixed), (a, b, jnp.int32(1))),
        "gradient": (jax.jit(jax.grad(loss)), (a, b)),
        "sharded": (jax.jit(sharded), tuple(spread)),
        "layered": (jax.jit(jax.grad(layered)), ([jnp.ones((8, 8))] * 3, a)),
    }
