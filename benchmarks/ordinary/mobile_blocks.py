TRUTH = """
- mobile_blocks (openxla/xla#47945): batch-sharded MobileNet blocks, depthwise convolutions, SGD
- Largest cost: depthwise convs (feature_group_count=C) gather the batch over 'data' (forward, and in backward), are computed on all 8 devices alike and sliced; FLOPs of the depthwise are 8x redundant. Gradients of the weights: all-reduce (or none where computed redundantly).
- Collectives: all-gather of activations [64,...] at depthwise line, one or more per block per pass; all-reduce of gradients of pointwise kernels (and loss).
- Memory: peak = activations saved for backward (normalised h) + whole (gathered) depthwise activations.
- Remedy: shard_map around the depthwise conv (batch stays local). Params not donated: tiny.
"""

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

MESH = {"data": 8}

C, SIZE, BATCH, DEPTH = 192, 28, 64, 3


def init(key):
    ks = jax.random.split(key, 3 * DEPTH + 1)
    p = {}
    for i in range(DEPTH):
        p[f"block{i}"] = {
            "expand": jax.random.normal(ks[3 * i], (1, 1, C, 4 * C)) * 0.05,
            "dw": jax.random.normal(ks[3 * i + 1], (3, 3, 1, 4 * C)) * 0.1,
            "project": jax.random.normal(ks[3 * i + 2], (1, 1, 4 * C, C)) * 0.05,
        }
    p["head"] = jax.random.normal(ks[-1], (C, 100)) * 0.05
    return p


def conv(x, w, groups=1):
    return lax.conv_general_dilated(
        x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"), feature_group_count=groups
    )


def norm(x):
    m = x.mean((1, 2), keepdims=True)
    v = x.var((1, 2), keepdims=True)
    return (x - m) * lax.rsqrt(v + 1e-5)


def block(p, x):
    h = jax.nn.relu6(norm(conv(x, p["expand"])))
    h = jax.nn.relu6(norm(conv(h, p["dw"], groups=4 * C)))
    return x + norm(conv(h, p["project"]))


def forward(p, x):
    for i in range(DEPTH):
        x = block(p[f"block{i}"], x)
    return x.mean((1, 2)) @ p["head"]


def loss_fn(p, x, y):
    logits = forward(p, x)
    return -jnp.take_along_axis(jax.nn.log_softmax(logits), y[:, None], 1).mean()


def step(params, images, labels):
    loss, grads = jax.value_and_grad(loss_fn)(params, images, labels)
    return jax.tree.map(lambda p, g: p - 0.1 * g, params, grads), loss


def make(mesh):
    params = jax.eval_shape(init, jax.random.key(0))
    x = jax.ShapeDtypeStruct((BATCH, SIZE, SIZE, C), jnp.float32)
    y = jax.ShapeDtypeStruct((BATCH,), jnp.int32)
    specs = (P(), P("data"), P("data"))
    args = (params, x, y)

    def placed(spec, tree):
        sharding = NamedSharding(mesh, spec)
        S = jax.ShapeDtypeStruct
        return jax.tree.map(lambda a: S(a.shape, a.dtype, sharding=sharding), tree)

    args = jax.tree.map(placed, specs, args, is_leaf=lambda x: isinstance(x, P))
    return jax.jit(step, donate_argnums=(0,)), args
