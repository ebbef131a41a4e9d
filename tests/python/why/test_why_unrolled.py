"""Layers in a Python loop: one line and one name for all, and each has weights of its own."""

from __future__ import annotations

import hloscope as hs
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P


def test_a_combined_sum_of_a_layer_names_the_weights_of_that_layer():
    mesh = Mesh(np.array(jax.devices()).reshape(2, 4), ("data", "model"))

    def array(shape, *spec):
        return jax.ShapeDtypeStruct(shape, jnp.float32, sharding=NamedSharding(mesh, P(*spec)))

    def loss(layers, x):
        for layer in layers:
            q, k, v = (x @ layer[name] for name in "qkv")
            x = x + jnp.tanh(q) * jnp.sin(k) * jnp.cos(v) @ layer["o"]
            x = jax.lax.with_sharding_constraint(x, NamedSharding(mesh, P("data")))
        return (x * x).mean()

    def layer():
        return {n: array((64, 256), None, "model") for n in "qkv"} | {
            "o": array((256, 64), "model")
        }

    cap = hs.capture(jax.grad(loss), [layer() for _ in range(3)], array((32, 64), "data"))
    summed = [r for r in cap.collectives if len(r.parts) == 2 and r.axes == "model"]
    summed += [r for r in cap.collectives if len(r.parts) == 3 and r.axes == "model"]
    named = []
    for row in summed:
        weights = {o.name for o in cap.why(row).origins if o.kind == "argument"}
        weights = {w for w in weights if w[-3] in "qkv"}
        assert weights, cap.why(row)
        (of,) = {w.partition("]")[0] for w in weights}
        named.append(of)
    assert len(set(named)) == len(named) >= 2, named
