"""shard_map tensor-parallel residual MLP regressor: column/row parallel matmuls with psum, gradients pmean'd over data, hand-written momentum sgd."""

TRUTH = {
    "majors": {
        "residual_block forward": 0.33,
        "residual_block backward": 0.65,
        "mse_loss": 0.0,
        "momentum_sgd": 0.0,
        "all-reduce (row_parallel psum, gradient pmean)": 0.0,
    },
    "layers": [["residual_block", 6]],
    "optimizer": True,
    "grad": "all params",
    "loops": [],
    "tells_apart": [
        ["column_parallel", "row_parallel"],
        ["activation all-reduce over model", "gradient all-reduce over data"],
    ],
    "order": [
        ["column_parallel", "row_parallel"],
        ["residual_block", "mse_loss"],
        ["mse_loss", "residual_block backward"],
        ["residual_block backward", "average_gradients"],
        ["average_gradients", "momentum_sgd"],
    ],
    "independent": [],
}
MESH = {"data": 2, "model": 4}
import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

IN, D, H, L, OUT, B = 128, 512, 2048, 6, 32, 1024


def layer_norm(x, g):
    x = x - x.mean(-1, keepdims=True)
    return x * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-5) * g


def column_parallel(x, w, b):
    return x @ w + b


def row_parallel(x, w, b):
    return jax.lax.psum(x @ w, "model") + b


def residual_block(p, x):
    h = jax.nn.gelu(column_parallel(layer_norm(x, p["g"]), p["w1"], p["b1"]))
    return x + row_parallel(h, p["w2"], p["b2"])


def predict(params, x):
    x = x @ params["w_in"]
    for p in params["blocks"]:
        x = residual_block(p, x)
    return x @ params["w_out"]


def mse_loss(params, x, y):
    return jnp.mean((predict(params, x) - y) ** 2)


def average_gradients(g):
    return jax.tree.map(lambda t: jax.lax.pmean(t, "data"), g)


def momentum_sgd(params, vel, grads, lr=0.01, mu=0.9):
    vel = jax.tree.map(lambda v, g: mu * v + g, vel, grads)
    return jax.tree.map(lambda p, v: p - lr * v, params, vel), vel


def local_step(params, vel, x, y):
    varying = jax.tree.map(lambda t: jax.lax.pcast(t, "data", to="varying"), params)
    loss, grads = jax.value_and_grad(mse_loss)(varying, x, y)
    params, vel = momentum_sgd(params, vel, average_gradients(grads))
    return params, vel, jax.lax.pmean(loss, "data")


def make(mesh):
    blk = {
        "g": ((D,), P()),
        "w1": ((D, H), P(None, "model")),
        "b1": ((H,), P("model")),
        "w2": ((H, D), P("model", None)),
        "b2": ((D,), P()),
    }
    spec = {"w_in": ((IN, D), P()), "w_out": ((D, OUT), P()), "blocks": [blk] * L}
    leaf = lambda t: isinstance(t, tuple)
    ps = jax.tree.map(lambda t: t[1], spec, is_leaf=leaf)
    params = jax.tree.map(
        lambda t: jax.ShapeDtypeStruct(t[0], jnp.float32, sharding=NamedSharding(mesh, t[1])),
        spec,
        is_leaf=leaf,
    )
    d = lambda n: jax.ShapeDtypeStruct((B, n), jnp.float32, sharding=NamedSharding(mesh, P("data")))
    train_step = jax.shard_map(
        local_step, mesh=mesh, in_specs=(ps, ps, P("data"), P("data")), out_specs=(ps, ps, P())
    )
    return jax.jit(train_step), (params, params, d(IN), d(OUT))
