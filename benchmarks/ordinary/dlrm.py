"""DLRM: 26 embedding tables sharded over 8 devices, data-parallel MLPs, dot interaction; adagrad on tables, adam on MLPs."""

TRUTH = {
    "majors": {
        "top_mlp fwd+bwd": 0.7,
        "bottom_mlp fwd+bwd": 0.2,
        "interact fwd+bwd": 0.08,
        "lookup fwd + scatter backward": 0.0,
        "adagrad": 0.02,
        "adam": 0.0,
    },
    "layers": [["bottom_mlp layer", 3], ["top_mlp layer", 4]],
    "optimizer": True,
    "grad": "all params",
    "loops": [],
    "tells_apart": [["bottom_mlp", "top_mlp"], ["lookup", "bottom_mlp"]],
    "order": [
        ["bottom_mlp", "interact"],
        ["lookup", "interact"],
        ["interact", "top_mlp"],
        ["top_mlp", "bce_loss"],
        ["interact backward", "bottom_mlp backward"],
        ["backward", "optimizer"],
    ],
    "independent": [["bottom_mlp", "lookup"]],
}
MESH = {"data": 8}
import jax
import jax.numpy as jnp
import optax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

DENSE, TABLES, ROWS, E, B = 13, 24, 20000, 64, 2048
BOT, TOP = [DENSE, 512, 256, E], [E + (TABLES + 1) * TABLES // 2, 1024, 1024, 512, 1]
tx = optax.multi_transform(
    {"tables": optax.adagrad(0.01), "mlp": optax.adam(1e-3)},
    {"tables": "tables", "bottom": "mlp", "top": "mlp"},
)


def bottom_mlp(params, x):
    for p in params:
        x = jax.nn.relu(x @ p["w"] + p["b"])
    return x


def top_mlp(params, x):
    for p in params[:-1]:
        x = jax.nn.relu(x @ p["w"] + p["b"])
    return (x @ params[-1]["w"] + params[-1]["b"])[:, 0]


def lookup(tables, ids):
    return jax.vmap(lambda t, i: t[i], (0, 1), 1)(tables, ids)


def interact(dense, emb):
    z = jnp.concatenate([dense[:, None], emb], 1)
    zz = jnp.einsum("bie,bje->bij", z, z)
    i, j = jnp.tril_indices(TABLES + 1, -1)
    return jnp.concatenate([dense, zz[:, i, j]], 1)


def bce_loss(params, batch):
    x = interact(
        bottom_mlp(params["bottom"], batch["dense"]), lookup(params["tables"], batch["ids"])
    )
    return optax.sigmoid_binary_cross_entropy(top_mlp(params["top"], x), batch["click"]).mean()


def train_step(params, opt_state, batch):
    loss, g = jax.value_and_grad(bce_loss)(params, batch)
    u, opt_state = tx.update(g, opt_state, params)
    return optax.apply_updates(params, u), opt_state, loss


def make(mesh):
    r, t, d = (
        NamedSharding(mesh, P()),
        NamedSharding(mesh, P("data")),
        NamedSharding(mesh, P("data")),
    )
    f = lambda s, sh, dt=jnp.float32: jax.ShapeDtypeStruct(s, dt, sharding=sh)
    mlp = lambda z: [{"w": f((a, b), r), "b": f((b,), r)} for a, b in zip(z, z[1:])]
    params = {"tables": f((TABLES, ROWS, E), t), "bottom": mlp(BOT), "top": mlp(TOP)}
    opt = jax.eval_shape(tx.init, params)
    opt = jax.tree.map(lambda s: f(s.shape, t if len(s.shape) == 3 else r, s.dtype), opt)
    batch = {"dense": f((B, DENSE), d), "ids": f((B, TABLES), d, jnp.int32), "click": f((B,), d)}
    sh = lambda x: jax.tree.map(lambda s: s.sharding, x)
    return jax.jit(train_step, out_shardings=(sh(params), sh(opt), None)), (params, opt, batch)
