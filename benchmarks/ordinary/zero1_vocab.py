TRUTH = """
- zero1_vocab: LM with embedding sharded by vocab over 'model' (2), data 4; Adam moments sharded over data (ZeRO-1) while params are replicated over data
- Largest: logits matmul and its gradient; collectives: embedding lookup in a table sharded by rows: all-reduce over model of masked gathered rows (or all-gather of the table); gradients all-reduce over data (could be reduce-scatter as the moments are sharded); updated params all-gathered over data (from moments' sharding to params' out sharding).
- log-softmax over vocab sharded: all-reduce max and sum over model.
- Memory: logits [b, s, V/2] f32: most of peak.
- Remedy: donate params & state; chunk the logits; params sharded over data too (FSDP).
"""

import jax
import jax.numpy as jnp
import optax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

MESH = {"data": 4, "model": 2}

V, D, FF, B, S = 32768, 512, 2048, 16, 256


def init(key):
    k = jax.random.split(key, 5)
    n = lambda i, *s: jax.random.normal(k[i], s) * 0.02
    return {"embed": n(0, V, D), "up": n(1, 2, D, FF), "down": n(2, 2, FF, D), "head": n(3, D, V)}


PARAMS = {
    "embed": P("model", None),
    "up": P(None, None, "model"),
    "down": P(None, "model", None),
    "head": P(None, "model"),
}
MOMENTS = {
    "embed": P("model", "data"),
    "up": P(None, "data", "model"),
    "down": P(None, "model", "data"),
    "head": P("data", "model"),
}


def rms(x):
    return x * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-6)


def model(p, tokens):
    x = p["embed"][tokens]
    for up, down in zip(p["up"], p["down"]):
        h = rms(x)
        h = h + jnp.pad(h[:, :-1], ((0, 0), (1, 0), (0, 0)))
        x = x + jax.nn.silu(h @ up) @ down
    return rms(x) @ p["head"]


def loss_fn(p, tokens):
    logits = model(p, tokens[:, :-1])
    return optax.softmax_cross_entropy_with_integer_labels(logits, tokens[:, 1:]).mean()


opt = optax.adam(3e-4)


def step(params, state, tokens):
    loss, grads = jax.value_and_grad(loss_fn)(params, tokens)
    updates, state = opt.update(grads, state)
    return optax.apply_updates(params, updates), state, loss


def make(mesh):
    params = jax.eval_shape(init, jax.random.key(0))
    state = jax.eval_shape(opt.init, params)
    sspec = jax.tree.map(lambda _: P(), state)
    sspec = (sspec[0]._replace(mu=MOMENTS, nu=MOMENTS), *sspec[1:])
    tok = jax.ShapeDtypeStruct((B, S + 1), jnp.int32)
    specs = (PARAMS, sspec, P("data"))
    args = (params, state, tok)

    def placed(spec, tree):
        sharding = NamedSharding(mesh, spec)
        S = jax.ShapeDtypeStruct
        return jax.tree.map(lambda a: S(a.shape, a.dtype, sharding=sharding), tree)

    args = jax.tree.map(placed, specs, args, is_leaf=lambda x: isinstance(x, P))
    return jax.jit(step, donate_argnums=()), args
