"""Writes the blocks in ``tests/golden/blocks`` that the front end's tests damage.

    python tests/golden/make_blocks.py

Run it when columns.py or header.py of hloscope/view change; any program with every table will do.
"""

from __future__ import annotations

import gzip
import os

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"
os.environ["JAX_PLATFORMS"] = "cpu"

from pathlib import Path

import hloscope as hs
import jax
import jax.numpy as jnp
import numpy as np
from hloscope.show import blocks
from jax.sharding import Mesh, NamedSharding, PartitionSpec

HERE = Path(__file__).parent / "blocks"
# No word of where the repository is.
jax.config.update("jax_hlo_source_file_canonicalization_regex", "^.*/tests/golden/")


def sharded() -> hs.Capture:
    """A gradient on 2 × 4 devices, with a scan, a loop of unknown trip count, and folds."""
    mesh = Mesh(np.array(jax.devices()).reshape(2, 4), ("data", "model"))

    def argument(shape: tuple[int, ...], *spec: str | None) -> jax.ShapeDtypeStruct:
        sharding = NamedSharding(mesh, PartitionSpec(*spec))
        return jax.ShapeDtypeStruct(shape, jnp.float32, sharding=sharding)

    def layer(c: jax.Array, w: jax.Array) -> jax.Array:
        return jnp.tanh(c @ w) @ w.T

    def loss(w: jax.Array, x: jax.Array) -> jax.Array:
        x, _ = jax.lax.scan(lambda c, _: (layer(c, w), None), x, None, length=4)
        for k in range(3):
            with jax.named_scope(f"layer_{k}"):
                x = layer(x, w) / 2
        return (x**2).sum()

    def step(w: jax.Array, x: jax.Array) -> tuple[jax.Array, jax.Array]:
        halved = jax.lax.while_loop(lambda v: v.sum() > 1, lambda v: v / 2 + v.min(), x)
        return jax.grad(loss)(w, x), halved

    arguments = argument((64, 128), "data", "model"), argument((32, 64), "data", None)
    return hs.capture(jax.jit(step), *arguments)


def measured() -> hs.Capture:
    x = jnp.ones((64, 64))
    capture = hs.capture(lambda x: jnp.tanh(x @ x) @ x, x)
    capture.profile(x)
    return capture


def main() -> None:
    HERE.mkdir(exist_ok=True)
    for make in (sharded, measured):
        capture = make()
        for kind in ("view", "analyses", "text"):
            (HERE / f"{make.__name__}.{kind}").write_bytes(getattr(blocks, kind)(capture))
        text = gzip.compress(capture.text.encode(), 9, mtime=0)
        (HERE / f"{make.__name__}.hlo.gz").write_bytes(text)


if __name__ == "__main__":
    main()
