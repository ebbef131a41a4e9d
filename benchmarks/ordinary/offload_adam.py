TRUTH = """
- A 4-layer MLP regression of width 4096 whose adam moments live in pinned host memory between steps (ZeRO-offload): they are put on the device at the update and put back. TPU (on CPU there is no pinned_host on the mesh of jit: the program's CPU version has kind unpinned_host, if it compiles at all). One chip, batch 4096, bf16 products.
- Parameters: in 256 + 4 x 4096^2 = 67M + 1M = 68M f32 = 260 MiB; moments 2 x 260 = 520 MiB on the host; each step moves 520 MiB to the device and 520 MiB back over the host link. At some 16-32 GB/s that is 17-35 ms each way against 4096 x 68M x 6 = 1.7 TFLOP = 8.5 ms of products: the transfers bound the step. Truth: the step waits for the host link; the remedy: keep moments on device, or in bf16/8 bit, or more microbatches for each update.
- HBM: parameters 260 MiB + gradients 260 MiB + moments passing through (520 if all at once) + activations 4 x [4096,4096] (bf16 32 MiB or f32 64 MiB each).
- Params donated; the moments donated as well (host to host).
- The forward/backward compute can overlap with the copy-in of moments (no dependence).
- No collectives.
"""

"""Adam whose moments live in host memory."""
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

MESH = {"x": 8}
LAYERS, WIDTH, INPUT, BATCH = 4, 4096, 256, 4096
B1, B2, EPS, RATE = 0.9, 0.95, 1e-8, 1e-4


def forward(params, x):
    x = x.astype(jnp.bfloat16) @ params["in"].astype(jnp.bfloat16)
    for w in params["hidden"]:
        x = x + jax.nn.gelu(x @ w.astype(jnp.bfloat16))
    return (x @ params["out"].astype(jnp.bfloat16)).astype(jnp.float32)


def loss_fn(params, x, y):
    return jnp.mean((forward(params, x) - y) ** 2)


def make(mesh):
    one = Mesh(np.array(mesh.devices.flat[:1]), ("x",))
    platform = one.devices.flat[0].platform
    kind = "pinned_host" if platform == "tpu" else "unpinned_host"
    device = NamedSharding(one, P(), memory_kind="device")
    host = NamedSharding(one, P(), memory_kind=kind)

    def step(params, m, v, t, x, y):
        loss, grads = jax.value_and_grad(loss_fn)(params, x, y)
        m, v = jax.device_put((m, v), device)
        m = jax.tree.map(lambda m, g: B1 * m + (1 - B1) * g, m, grads)
        v = jax.tree.map(lambda v, g: B2 * v + (1 - B2) * g * g, v, grads)
        scale = RATE * jnp.sqrt(1 - B2**t) / (1 - B1**t)
        params = jax.tree.map(lambda p, m, v: p - scale * m / (jnp.sqrt(v) + EPS), params, m, v)
        m, v = jax.device_put((m, v), host)
        return params, m, v, t + 1, loss

    def s(shape, sharding=device, dtype=jnp.float32):
        return jax.ShapeDtypeStruct(shape, dtype, sharding=sharding)

    def tree(where):
        return {
            "in": s((INPUT, WIDTH), where),
            "hidden": [s((WIDTH, WIDTH), where) for _ in range(LAYERS)],
            "out": s((WIDTH, 1), where),
        }

    outs = (device, host, host, device, device)
    args = (tree(device), tree(host), tree(host), s(()), s((BATCH, INPUT)), s((BATCH, 1)))
    return jax.jit(step, donate_argnums=(0, 1, 2), out_shardings=outs), args
