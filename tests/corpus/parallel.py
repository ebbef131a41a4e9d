"""Programs over several devices: shard_map collectives, pipelines, experts, resharding."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from .registry import Made, array, program

GRID = {"data": 2, "model": 4}


def varying(x: jax.Array, axis: str) -> jax.Array:
    """x as a value that differs along the axis: pcast, called pvary before jax 0.9."""
    if hasattr(jax.lax, "pcast"):
        return jax.lax.pcast(x, (axis,), to="varying")
    return jax.lax.pvary(x, axis)


@program("data parallel: gradients reduced over all devices", mesh={"data": 8})
def data_parallel(mesh: Mesh) -> Made:
    def step(w: dict[str, jax.Array], x: jax.Array) -> Any:
        def loss(w: dict[str, jax.Array]) -> jax.Array:
            return jnp.mean((jnp.tanh(x @ w["a"]) @ w["b"]) ** 2)

        return jax.tree.map(lambda p, g: p - 0.1 * g, w, jax.grad(loss)(w))

    w = {"a": array(mesh, (32, 64)), "b": array(mesh, (64, 8))}
    return Made(jax.jit(step, donate_argnums=0), (w, array(mesh, (64, 32), "data")))


@program("shard_map with psum over one axis of two", mesh=GRID, contains=("all-reduce",))
def map_psum(mesh: Mesh) -> Made:
    def f(x: jax.Array, w: jax.Array) -> jax.Array:
        return jax.lax.psum(x @ w, "model")

    fn = jax.shard_map(
        f, mesh=mesh, in_specs=(P("data", "model"), P("model", None)), out_specs=P("data", None)
    )
    args = (array(mesh, (32, 64), "data", "model"), array(mesh, (64, 16), "model"))
    return Made(jax.jit(fn), args)


@program("shard_map with all_gather", mesh=GRID, contains=("all-gather",))
def map_all_gather(mesh: Mesh) -> Made:
    def f(x: jax.Array) -> jax.Array:
        return jnp.sin(jax.lax.all_gather(x, "model", axis=1, tiled=True))

    fn = jax.shard_map(
        f, mesh=mesh, in_specs=P("data", "model"), out_specs=P("data", None), check_vma=False
    )
    return Made(jax.jit(fn), (array(mesh, (16, 64), "data", "model"),))


@program("shard_map with psum_scatter", mesh=GRID)
def map_reduce_scatter(mesh: Mesh) -> Made:
    def f(x: jax.Array) -> jax.Array:
        return jax.lax.psum_scatter(jnp.sin(x), "model", scatter_dimension=0, tiled=True)

    fn = jax.shard_map(f, mesh=mesh, in_specs=P(None, "data"), out_specs=P("model", "data"))
    return Made(jax.jit(fn), (array(mesh, (64, 64), None, "data"),))


@program(
    "a ring of ppermutes that passes blocks of a matmul around",
    mesh={"x": 8},
    contains=("collective-permute",),
)
def ring_matmul(mesh: Mesh) -> Made:
    ring = [(i, (i + 1) % 8) for i in range(8)]

    def f(x: jax.Array, w: jax.Array) -> jax.Array:
        def turn(carry: Any, _: Any) -> Any:
            block, total = carry
            return (jax.lax.ppermute(block, "x", ring), total + block @ w), None

        zero = varying(jnp.zeros((8, 16)), "x")
        return jax.lax.scan(turn, (x, zero), None, length=8)[0][1]

    fn = jax.shard_map(f, mesh=mesh, in_specs=(P("x"), P()), out_specs=P("x"))
    return Made(jax.jit(fn), (array(mesh, (64, 32), "x"), array(mesh, (32, 16))))


@program(
    "ring attention: keys and values travel, a running softmax stays",
    mesh={"seq": 8},
    contains=("collective-permute",),
)
def ring_attention(mesh: Mesh) -> Made:
    ring = [(i, (i + 1) % 8) for i in range(8)]

    def f(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
        out, top, total = jnp.zeros_like(q), jnp.max(q, -1) * 0 - jnp.inf, jnp.sum(q, -1) * 0
        for _ in range(8):
            scores = jnp.einsum("bqd,bkd->bqk", q, k)
            new = jnp.maximum(top, scores.max(-1))
            weights, shrink = jnp.exp(scores - new[..., None]), jnp.exp(top - new)
            out = out * shrink[..., None] + jnp.einsum("bqk,bkd->bqd", weights, v)
            total, top = total * shrink + weights.sum(-1), new
            k, v = jax.lax.ppermute((k, v), "seq", ring)
        return out / total[..., None]

    fn = jax.shard_map(f, mesh=mesh, in_specs=P(None, "seq"), out_specs=P(None, "seq"))
    return Made(jax.jit(fn), (array(mesh, (2, 64, 16), None, "seq"),) * 3)


@program(
    "a pipeline of four stages over micro-batches: ppermute in a loop",
    mesh=GRID,
    contains=("collective-permute", "while"),
)
def pipeline(mesh: Mesh) -> Made:
    forward = [(i, i + 1) for i in range(3)]

    def f(w: jax.Array, xs: jax.Array) -> jax.Array:
        stage = jax.lax.axis_index("model")

        def tick(held: jax.Array, x: jax.Array) -> Any:
            y = jnp.tanh(jnp.where(stage == 0, x, held) @ w[0])
            return jax.lax.ppermute(y, "model", forward), y

        zero = varying(xs[0] * 0, "model")
        return jax.lax.scan(tick, zero, xs)[1][None]

    fn = jax.shard_map(
        f, mesh=mesh, in_specs=(P("model"), P(None, "data")), out_specs=P("model", None, "data")
    )
    args = (array(mesh, (4, 16, 16), "model"), array(mesh, (6, 8, 16), None, "data"))
    return Made(jax.jit(fn), args)


@program(
    "experts with explicit all_to_all there and back", mesh={"expert": 8}, contains=("all-to-all",)
)
def experts_all_to_all(mesh: Mesh) -> Made:
    def f(x: jax.Array, w1: jax.Array, w2: jax.Array) -> jax.Array:
        slots = x.reshape(8, -1, x.shape[-1])
        there = jax.lax.all_to_all(slots, "expert", 0, 0, tiled=False)
        done = jax.nn.relu(there @ w1[0]) @ w2[0]
        return jax.lax.all_to_all(done, "expert", 0, 0, tiled=False).reshape(x.shape)

    fn = jax.shard_map(f, mesh=mesh, in_specs=P("expert"), out_specs=P("expert"))
    args = (
        array(mesh, (256, 16), "expert"),
        array(mesh, (8, 16, 32), "expert"),
        array(mesh, (8, 32, 16), "expert"),
    )
    return Made(jax.jit(fn), args)


@program("mixture of experts by einsum: the partitioner moves tokens to experts", mesh=GRID)
def moe_einsum(mesh: Mesh) -> Made:
    def constrain(x: jax.Array, *spec: Any) -> jax.Array:
        return jax.lax.with_sharding_constraint(x, NamedSharding(mesh, P(*spec)))

    def f(gate: jax.Array, w1: jax.Array, w2: jax.Array, x: jax.Array) -> jax.Array:
        chosen = jnp.argmax(x @ gate, -1)
        mask = jax.nn.one_hot(chosen, 4)
        place = jnp.cumsum(mask, axis=1) * mask
        dispatch = mask[..., None] * jax.nn.one_hot((place.sum(-1) - 1).astype(int), 16)[:, :, None]
        sent = constrain(jnp.einsum("btec,btd->becd", dispatch, x), None, "model")
        done = jnp.einsum("becf,efd->becd", jax.nn.gelu(jnp.einsum("becd,edf->becf", sent, w1)), w2)
        return constrain(jnp.einsum("btec,becd->btd", dispatch, done), "data")

    args = (
        array(mesh, (16, 4)),
        array(mesh, (4, 16, 32), "model"),
        array(mesh, (4, 32, 16), "model"),
        array(mesh, (4, 32, 16), "data"),
    )
    return Made(jax.jit(f), args)


@program(
    "resharding from rows to columns", mesh={"x": 8}, contains=("all-to-all",), platforms=("cpu",)
)
def reshard(mesh: Mesh) -> Made:
    out = NamedSharding(mesh, P(None, "x"))
    fn = jax.jit(lambda x: jnp.sin(x) * 2, out_shardings=out)
    return Made(fn, (array(mesh, (64, 64), "x"),))


@program("a gathered activation under a remat policy that does not save it", mesh=GRID)
def gather_remat(mesh: Mesh) -> Made:
    def constrain(x: jax.Array, *spec: Any) -> jax.Array:
        return jax.lax.with_sharding_constraint(x, NamedSharding(mesh, P(*spec)))

    def block(w: jax.Array, x: jax.Array) -> jax.Array:
        gathered = checkpoint_name(constrain(x, "data", None), "all_gather")
        return constrain(jnp.tanh(gathered @ w), "data", "model")

    policy = jax.checkpoint_policies.save_any_names_but_these("all_gather")

    def loss(ws: list[jax.Array], x: jax.Array) -> jax.Array:
        for w in ws:
            x = jax.checkpoint(block, policy=policy)(w, x)
        return jnp.sum(x)

    ws = [array(mesh, (64, 64), None, "model")] * 3
    return Made(jax.jit(jax.grad(loss)), (ws, array(mesh, (32, 64), "data", "model")))


@program("FSDP in a scan: an all-gather in each of 16 trips", mesh={"data": 8}, contains=("while",))
def fsdp_scan(mesh: Mesh) -> Made:
    def loss(w: jax.Array, x: jax.Array) -> jax.Array:
        return jnp.mean(jax.lax.scan(lambda c, p: (jnp.tanh(c @ p), None), x, w)[0] ** 2)

    w = array(mesh, (16, 64, 64), None, "data")
    fn = jax.jit(jax.grad(loss), out_shardings=w.sharding)
    return Made(fn, (w, array(mesh, (32, 64), "data")))


@program("a reduction over two axes of three", mesh={"a": 2, "b": 2, "c": 2})
def two_of_three(mesh: Mesh) -> Made:
    def f(x: jax.Array) -> Any:
        both = jax.lax.psum(x, ("a", "c"))
        return both, jax.lax.pmax(x, "b")

    fn = jax.shard_map(
        f, mesh=mesh, in_specs=P(("a", "c"), "b"), out_specs=(P(None, "b"), P(("a", "c"), None))
    )
    return Made(jax.jit(fn), (array(mesh, (16, 16), ("a", "c"), "b"),))


@program("a convolution split over space: halos travel to neighbours", mesh={"x": 8})
def halo_convolution(mesh: Mesh) -> Made:
    def f(image: jax.Array, kernel: jax.Array) -> jax.Array:
        return jax.lax.conv_general_dilated(
            image, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
        )

    out = NamedSharding(mesh, P(None, "x"))
    args = (array(mesh, (2, 64, 32, 4), None, "x"), array(mesh, (3, 3, 4, 8)))
    return Made(jax.jit(f, out_shardings=out), args)


@program("a sharded embedding: gather and scatter-add over a split vocabulary", mesh=GRID)
def sharded_embedding(mesh: Mesh) -> Made:
    def loss(table: jax.Array, tokens: jax.Array) -> jax.Array:
        return jnp.sum(jnp.tanh(table[tokens]))

    args = (array(mesh, (512, 32), "model"), array(mesh, (8, 16), "data", dtype=jnp.int32))
    return Made(jax.jit(jax.grad(loss)), args)
