"""A marimo notebook whose last cell shows a capture's widget; ``test_notebooks.py`` opens it."""

import marimo

app = marimo.App()


@app.cell
def _():
    import os

    os.environ["JAX_PLATFORMS"] = "cpu"
    os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"
    import hloscope as hs
    import jax
    import jax.numpy as jnp
    import numpy as np
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    return Mesh, NamedSharding, PartitionSpec, hs, jax, jnp, np


@app.cell
def _(Mesh, NamedSharding, PartitionSpec, jax, jnp, np):
    mesh = Mesh(np.array(jax.devices()).reshape(2, 4), ("data", "model"))

    def array(shape, *spec):
        sharding = NamedSharding(mesh, PartitionSpec(*spec))
        return jax.ShapeDtypeStruct(shape, jnp.float32, sharding=sharding)

    def step(w1, w2, x):
        with jax.named_scope("mlp"):
            return jnp.mean((jax.nn.gelu(x @ w1) @ w2) ** 2)

    args = (array((64, 256), None, "model"), array((256, 64), "model"), array((32, 64), "data"))
    return args, step


@app.cell
def _(args, hs, jax, step):
    capture = hs.capture(jax.grad(step), *args)
    capture.display["height"] = 700
    capture  # noqa: B018 - a bare capture shows itself as the live widget
    return


if __name__ == "__main__":
    app.run()
