TRUTH = """
Rebuilt from the complaint of jax#20381 ("Unexplained all-gather in batched array shuffling").
- Point-set classifier (Deep Sets), batch of sets sharded over 8 devices, weights replicated, one SGD-momentum step. Each set's points are permuted by `jax.random.permutation` under `vmap` (line of `permute`), then a random half is kept.
- The permutation is independent for each set. Keys come from `jax.random.split` of a replicated key. An ideal program has no collective but the all-reduce of gradients (and of the loss).
- If there is an all-gather of the points [256,2048,16] or of sorted keys, its cause is the gather with batch dims (indices sharded, operand sharded) of `permute`; the remedy is shard_map over "dp" around `permute` (keys given P("dp")).  If there is none, nothing has to be said about it.
- Work: sort of 256/8 x 2048 keys (two rounds of sort of 32-bit keys), MLP on points 32 x 1024 x (16->256->256): the MLP is the bulk of FLOPs; the sort is a visible part of time on TPU.
- Gradients: small (some 100k parameters): all-reduce is latency-bound, not a problem.
- Not a problem: replicated weights (0.5 MB). Params and momentum are not donated, but tiny.
- Activations [32,1024,256] f32 = 32 MiB a device: peak is activations of the MLP kept for the backward pass.
"""

"""Deep Sets on shuffled point clouds, data parallel."""
import jax
import jax.numpy as jnp
import optax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

MESH = {"dp": 8}
BATCH, POINTS, FEATURES, KEEP, WIDTH, CLASSES = 256, 2048, 16, 1024, 256, 40


def permute(key, points):
    return jax.random.permutation(key, points)[:KEEP]


def init(key):
    k = jax.random.split(key, 5)
    dense = lambda k, i, o: {"w": jax.random.normal(k, (i, o)) * i**-0.5, "b": jnp.zeros(o)}
    return {
        "phi": [dense(k[0], FEATURES, WIDTH), dense(k[1], WIDTH, WIDTH), dense(k[2], WIDTH, WIDTH)],
        "rho": [dense(k[3], WIDTH, WIDTH), dense(k[4], WIDTH, CLASSES)],
    }


def network(params, x):
    for p in params["phi"]:
        x = jax.nn.gelu(x @ p["w"] + p["b"])
    x = x.max(axis=1)
    x = jax.nn.gelu(x @ params["rho"][0]["w"] + params["rho"][0]["b"])
    return x @ params["rho"][1]["w"] + params["rho"][1]["b"]


def make(mesh):
    tx = optax.sgd(0.1, momentum=0.9)

    def step(params, opt, key, points, labels):
        keys = jax.random.split(key, BATCH)
        points = jax.vmap(permute)(keys, points)

        def loss_fn(params):
            logits = network(params, points)
            return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()

        loss, grads = jax.value_and_grad(loss_fn)(params)
        updates, opt = tx.update(grads, opt, params)
        return optax.apply_updates(params, updates), opt, loss

    rep, dp = NamedSharding(mesh, P()), NamedSharding(mesh, P("dp"))
    S = jax.ShapeDtypeStruct
    params = jax.eval_shape(init, jax.random.key(0))
    on = lambda t: jax.tree.map(lambda x: S(x.shape, x.dtype, sharding=rep), t)
    args = (
        on(params),
        on(jax.eval_shape(tx.init, params)),
        S((2,), jnp.uint32, sharding=rep),
        S((BATCH, POINTS, FEATURES), jnp.float32, sharding=dp),
        S((BATCH,), jnp.int32, sharding=dp),
    )
    return jax.jit(step), args
