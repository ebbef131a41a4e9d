"""Over eight devices by hand: a pipeline with ppermute, ring attention, tensor parallelism."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from .common import s


def mesh(axis: str) -> Mesh:
    import numpy as np

    return Mesh(np.array(jax.devices()[:8]), (axis,))


def pipeline() -> Any:
    """Eight stages, twelve micro-batches, each step passes on to the right."""
    m = mesh("stage")

    def local(w: jax.Array, x: jax.Array) -> jax.Array:
        index, n = jax.lax.axis_index("stage"), 8
        state, out = jnp.zeros_like(x[0]), jnp.zeros_like(x)
        for t in range(12 + n - 1):
            state = jnp.where(index == 0, x[min(t, 11)], state)
            state = jax.nn.gelu(state @ w[0])
            out = out.at[max(t - n + 1, 0)].set(state)
            state = jax.lax.ppermute(state, "stage", [(i, (i + 1) % n) for i in range(n)])
        return out[None]

    def run(w: jax.Array, x: jax.Array) -> jax.Array:
        spread = jax.shard_map(
            local, mesh=m, in_specs=(P("stage"), P()), out_specs=P("stage"), check_vma=False
        )
        return spread(w, x).sum()

    def step(w: jax.Array, x: jax.Array) -> Any:
        value, grad = jax.value_and_grad(run)(w, x)
        return w - 0.1 * grad, value

    w = jax.ShapeDtypeStruct((8, 256, 256), jnp.bfloat16, sharding=NamedSharding(m, P("stage")))
    return step, (w, s(12, 64, 256))


def ring() -> Any:
    """Four layers; in each the keys go round the ring."""
    m = mesh("ring")

    def attend(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
        top = jnp.zeros(q.shape, jnp.float32)
        total = jnp.zeros((*q.shape[:-1], 1), jnp.float32)

        def turn(_: int, carry: Any) -> Any:
            top, total, k, v = carry
            e = jnp.exp((q @ k.swapaxes(-1, -2)).astype(jnp.float32) / 16)
            to = [(i, (i + 1) % 8) for i in range(8)]
            k, v = jax.lax.ppermute(k, "ring", to), jax.lax.ppermute(v, "ring", to)
            return top + e @ v.astype(jnp.float32), total + e.sum(-1, keepdims=True), k, v

        top, total, _, _ = jax.lax.fori_loop(0, 8, turn, (top, total, k, v))
        return (top / total).astype(q.dtype)

    def local(params: Any, x: jax.Array) -> jax.Array:
        for p in params:
            x = x + attend(x @ p["q"], x @ p["k"], x @ p["v"]) @ p["o"]
            x = x + jax.nn.gelu(x @ p["up"]) @ p["down"]
        return x

    def run(params: Any, x: jax.Array) -> jax.Array:
        spec = P(None, "ring")
        return jax.shard_map(local, mesh=m, in_specs=(P(), spec), out_specs=spec, check_vma=False)(
            params, x
        )

    one = {name: s(256, 256) for name in "qkvo"} | {"up": s(256, 1024), "down": s(1024, 256)}
    x = jax.ShapeDtypeStruct(
        (2, 512, 256), jnp.bfloat16, sharding=NamedSharding(m, P(None, "ring"))
    )
    return run, ([one] * 4, x)


def tensor_parallel() -> Any:
    from .decoders import layer_shapes, shapes, train_step, unrolled

    m = mesh("model")
    cut = {"wq": P(None, "model"), "wk": P(None, "model"), "wv": P(None, "model")}
    cut |= {"wo": P("model"), "gate": P(None, "model"), "up": P(None, "model"), "down": P("model")}

    def put(tree: Any) -> Any:
        def one(path: Any, a: Any) -> Any:
            name = getattr(path[-1], "key", "")
            spec = cut.get(str(name), P()) if a.ndim == 2 else P()
            return jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=NamedSharding(m, spec))

        return jax.tree_util.tree_map_with_path(one, tree)

    return (lambda *a: train_step(unrolled, *a)), put(shapes([layer_shapes()] * 6))


PROGRAMS: dict[str, Any] = {
    "pipeline": (pipeline, (19,)),
    "ring_attention": (ring, (4,)),
    "tensor_parallel": (tensor_parallel, (6,)),
}
