"""Over eight devices: sharded scans, experts apart, stages that loop, psum by hand."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from .common import ids, rms, s, stacked
from .decoders import block, layer_shapes, loss_fn, scanned, shapes, tx, unrolled
from .parallel import mesh


def fully_sharded() -> Any:
    """Ten scanned layers, weights cut over the data axis, products without a batch kept."""
    m = mesh("data")
    policy = jax.checkpoint_policies.dots_with_no_batch_dims_saveable
    one = jax.checkpoint(block, policy=policy)

    def step(params: Any, state: Any, tokens: jax.Array) -> Any:
        def blocks(layers: Any, x: jax.Array) -> jax.Array:
            return scanned(layers, x, one)

        loss, grads = jax.value_and_grad(loss_fn)(params, tokens, blocks)
        updates, state = tx.update(grads, state, params)
        return optax.apply_updates(params, updates), state, loss

    def cut(a: Any) -> Any:
        axis = next((k for k in (1, 0) if k < a.ndim and a.shape[k] % 8 == 0), None)
        spec = P() if axis is None else P(*[None] * axis, "data")
        return jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=NamedSharding(m, spec))

    params, state, _ = shapes(stacked(layer_shapes(), 10))
    tokens = jax.ShapeDtypeStruct((8, 129), jnp.int32, sharding=NamedSharding(m, P("data")))
    return step, (*jax.tree.map(cut, (params, state)), tokens)


def routed(p: Any, x: jax.Array) -> jax.Array:
    """Two of eight experts for each token, by sorting tokens into places."""
    b, n, d = x.shape
    flat = x.reshape(b * n, d)
    gates, chosen = jax.lax.top_k(jax.nn.softmax((flat @ p["router"]).astype(jnp.float32)), 2)
    room = b * n // 2
    hot = jax.nn.one_hot(chosen.reshape(-1), 8, dtype=jnp.int32)
    place = (jnp.cumsum(hot, 0) * hot).sum(-1) - 1
    at = chosen.reshape(-1), jnp.minimum(place, room - 1)
    tokens = jnp.repeat(flat, 2, 0) * (place < room)[:, None].astype(x.dtype)
    sent = jnp.zeros((8, room, d), x.dtype).at[at].add(tokens)
    hidden = jax.nn.silu(jnp.einsum("ecd,edf->ecf", sent, p["e1"]))
    back = jnp.einsum("ecf,efd->ecd", hidden, p["e2"])[at]
    return (back.reshape(b * n, 2, d) * gates[..., None].astype(x.dtype)).sum(1).reshape(b, n, d)


def expert_parallel() -> Any:
    """Five layers of attention and routed experts; each device has one expert."""
    from .decoders import attention

    m = mesh("expert")

    def loss(params: Any, tokens: jax.Array) -> jax.Array:
        x = params["embed"][tokens[:, :-1]]
        for p in params["layers"]:
            x = x + attention(p, rms(x, p["n1"]))
            x = x + routed(p, rms(x, p["n2"]))
        logits = (x @ params["embed"].T).astype(jnp.float32)
        return optax.softmax_cross_entropy_with_integer_labels(logits, tokens[:, 1:]).mean()

    def step(params: Any, tokens: jax.Array) -> Any:
        value, grads = jax.value_and_grad(loss)(params, tokens)
        return jax.tree.map(lambda p, g: p - 1e-3 * g, params, grads), value

    def put(a: Any) -> Any:
        spec = P("expert") if a.ndim == 3 else P()
        return jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=NamedSharding(m, spec))

    one = {k: v for k, v in layer_shapes().items() if k not in ("gate", "up", "down")}
    one |= {"router": s(256, 8), "e1": s(8, 256, 512), "e2": s(8, 512, 256)}
    return step, jax.tree.map(put, ({"embed": s(2048, 256), "layers": [one] * 5}, ids(4, 65)))


def stages() -> Any:
    """Eight stages of two scanned layers; a loop of eleven ticks passes micro-batches on."""
    m = mesh("stage")

    def local(params: Any, x: jax.Array) -> jax.Array:
        index = jax.lax.axis_index("stage")
        params = jax.tree.map(lambda a: a[0], params)

        def tick(carry: Any, t: jax.Array) -> Any:
            state, out = carry
            state = jnp.where(index == 0, x[jnp.minimum(t, 3)], state)
            state = scanned(params, state)
            out = out.at[jnp.maximum(t - 7, 0)].set(state)
            return (jax.lax.ppermute(state, "stage", [(i, (i + 1) % 8) for i in range(8)]), out), ()

        return jax.lax.scan(tick, (jnp.zeros_like(x[0]), jnp.zeros_like(x)), jnp.arange(11))[0][1]

    def loss(params: Any, x: jax.Array) -> jax.Array:
        run = jax.shard_map(
            local, mesh=m, in_specs=(P("stage"), P()), out_specs=P("stage"), check_vma=False
        )
        return jnp.square(run(params, x)).astype(jnp.float32).mean()

    def step(params: Any, x: jax.Array) -> Any:
        value, grads = jax.value_and_grad(loss)(params, x)
        return jax.tree.map(lambda p, g: p - 0.1 * g, params, grads), value

    def put(a: Any) -> Any:
        shape = (8, 2, *a.shape)
        return jax.ShapeDtypeStruct(shape, a.dtype, sharding=NamedSharding(m, P("stage")))

    return step, (jax.tree.map(put, layer_shapes()), s(4, 2, 64, 256))


def by_hand() -> Any:
    """Tensor parallelism by hand: seven layers in shard_map, two sums in each."""
    m = mesh("model")

    def local(params: Any, x: jax.Array) -> jax.Array:
        for p in params:
            h = rms(x, p["n1"])
            scores = (h @ p["q"]) @ (h @ p["k"]).swapaxes(1, 2) / 8
            x = x + jax.lax.psum(jax.nn.softmax(scores, -1) @ (h @ p["v"]) @ p["o"], "model")
            h = rms(x, p["n2"])
            x = x + jax.lax.psum(jax.nn.silu(h @ p["up"]) @ p["down"], "model")
        return x

    column, row = P(None, "model"), P("model")
    one = {"q": column, "k": column, "v": column, "o": row, "up": column, "down": row}
    one |= {"n1": P(), "n2": P()}
    size = {"q": (512, 512), "k": (512, 512), "v": (512, 512), "o": (512, 512)}
    size |= {"up": (512, 2048), "down": (2048, 512), "n1": (512,), "n2": (512,)}

    def loss(params: Any, x: jax.Array, y: jax.Array) -> jax.Array:
        run = jax.shard_map(local, mesh=m, in_specs=([one] * 7, P()), out_specs=P())
        return jnp.square((run(params, x) - y).astype(jnp.float32)).mean()

    def step(params: Any, x: jax.Array, y: jax.Array) -> Any:
        value, grads = jax.value_and_grad(loss)(params, x, y)
        return jax.tree.map(lambda p, g: p - 1e-3 * g, params, grads), value

    weights = {
        k: jax.ShapeDtypeStruct(size[k], jnp.bfloat16, sharding=NamedSharding(m, spec))
        for k, spec in one.items()
    }
    return step, ([weights] * 7, s(4, 128, 512), s(4, 128, 512))


def data_parallel() -> Any:
    """Nine unrolled layers on a batch cut in eight: gradients summed over devices."""
    from functools import partial

    from .decoders import train_step

    m = mesh("data")
    params, state, _ = shapes([layer_shapes()] * 9)
    tokens = jax.ShapeDtypeStruct((16, 129), jnp.int32, sharding=NamedSharding(m, P("data")))

    def whole(a: Any) -> Any:
        return jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=NamedSharding(m, P()))

    return partial(train_step, unrolled), (*jax.tree.map(whole, (params, state)), tokens)


AXES = {"fully_sharded": "data", "expert_parallel": "expert", "stages": "stage"}
AXES |= {"by_hand": "model", "data_parallel": "data"}
PROGRAMS: dict[str, Any] = {
    "fully_sharded": (fully_sharded, (10,)),
    "expert_parallel": (expert_parallel, (5,)),
    "stages": (stages, (11, 2)),
    "by_hand": (by_hand, (7,)),
    "data_parallel": (data_parallel, (9,)),
}
