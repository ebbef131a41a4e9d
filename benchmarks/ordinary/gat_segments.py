TRUTH = """
- gat_segments (jax#37511): GAT layers with segment softmax: edges sharded over 8, node features replicated; training step (Adam)
- Largest: gathers of rows h[src] [E/8, heads*dim], segment_max/segment_sum scatters; all-reduces of segment sums/max [nodes, heads(*dim)] over 'edge' each layer forward, and in backward the cotangents of h by scatter-add all-reduced.
- Node work (h @ W) is computed by all devices alike: redundant (8x).
- Memory: messages [E/8, H, D] saved for backward.
- Remedy: shard nodes as well (rows) and ... ; donate params: small.
"""

import jax
import jax.numpy as jnp
import optax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

MESH = {"edge": 8}

NODES, EDGES, H, D, CLASSES = 16384, 262144, 4, 32, 40


def init(key):
    k = jax.random.split(key, 5)
    return {
        "in": jax.random.normal(k[0], (128, H * D)) * 0.1,
        "layers": [
            {
                "w": jax.random.normal(k[i], (H * D, H * D)) * 0.1,
                "a_src": jnp.full((H, D), 0.1),
                "a_dst": jnp.full((H, D), 0.1),
            }
            for i in (1, 2)
        ],
        "out": jax.random.normal(k[4], (H * D, CLASSES)) * 0.1,
    }


def segment_softmax(scores, ids):
    top = jax.ops.segment_max(scores, ids, NODES)
    e = jnp.exp(scores - top[ids])
    return e / (jax.ops.segment_sum(e, ids, NODES)[ids] + 1e-9)


def gat(p, x, src, dst):
    h = (x @ p["w"]).reshape(NODES, H, D)
    score = (h * p["a_src"]).sum(-1)[src] + (h * p["a_dst"]).sum(-1)[dst]
    alpha = segment_softmax(jax.nn.leaky_relu(score, 0.2), dst)
    messages = alpha[:, :, None] * h[src]
    return jax.ops.segment_sum(messages, dst, NODES).reshape(NODES, H * D)


def loss_fn(p, x, src, dst, labels):
    x = x @ p["in"]
    for q in p["layers"]:
        x = jax.nn.elu(gat(q, x, src, dst))
    return optax.softmax_cross_entropy_with_integer_labels(x @ p["out"], labels).mean()


opt = optax.adam(1e-3)


def step(params, state, x, src, dst, labels):
    loss, g = jax.value_and_grad(loss_fn)(params, x, src, dst, labels)
    u, state = opt.update(g, state)
    return optax.apply_updates(params, u), state, loss


def make(mesh):
    params = jax.eval_shape(init, jax.random.key(0))
    state = jax.eval_shape(opt.init, params)
    s = jax.ShapeDtypeStruct
    args = (
        params,
        state,
        s((NODES, 128), jnp.float32),
        s((EDGES,), jnp.int32),
        s((EDGES,), jnp.int32),
        s((NODES,), jnp.int32),
    )
    specs = (P(), P(), P(), P("edge"), P("edge"), P())

    def placed(spec, tree):
        sharding = NamedSharding(mesh, spec)
        S = jax.ShapeDtypeStruct
        return jax.tree.map(lambda a: S(a.shape, a.dtype, sharding=sharding), tree)

    args = jax.tree.map(placed, specs, args, is_leaf=lambda x: isinstance(x, P))
    return jax.jit(step, donate_argnums=(0, 1)), args
