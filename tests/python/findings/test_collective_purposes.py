"""What a collective is for, in the words of the finding: small programs of each kind of sharding.

They are compiled for eight CPU devices and modelled on a chip; what is said follows from what the
value is made of and used for, so the same words hold on other platforms.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import hloscope as hs
import jax
import jax.numpy as jnp
import pytest
from jax import lax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

GRADIENTS = "These are gradients of parameters"
ADDED_UP = "Each trip of the loop sums over the devices and adds that to what it carries"
ONCE = "sum over the devices once, after the loop"
PRODUCT = "These are partial sums of products with `ws"
STORED = "Stored in shards and gathered where they are used, the price of FSDP: `ws"

C64 = jnp.complex64
L, D, F, B = 4, 512, 1024, 1024


def mesh(*axes: str) -> Mesh:
    shape = (8,) if len(axes) == 1 else (2, 4)
    return jax.make_mesh(shape, axes, axis_types=(jax.sharding.AxisType.Auto,) * len(axes))


def shaped(on: Mesh, shape: tuple[int, ...], *spec: Any, dtype: Any = jnp.float32) -> Any:
    return jax.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(on, P(*spec)))


def on_chip(fn: Any, *args: Any, **how: Any) -> hs.Capture:
    return hs.capture(jax.jit(fn, **how), *args, hardware="tpu-v5e")


def waits(cap: hs.Capture) -> dict[str, tuple[str, str]]:
    """(evidence, advice) of each wait, by kind and axes."""
    assert cap.findings.failed == ()
    found = {}
    for f in cap.findings.of("exposed-collective"):
        kind = f.title.partition(" modelled step) for ")[2]
        found[kind] = f.evidence, f.advice
    return found


def only(cap: hs.Capture) -> tuple[str, str]:
    (found,) = waits(cap).values()
    return found


def scanned(ws: Any, x: Any, block: Callable[[Any, Any], Any]) -> Any:
    return jnp.sum(lax.scan(lambda x, w: (block(x, w), None), x, ws)[0])


def dense(x: Any, w: Any) -> Any:
    return jnp.tanh(x @ w)


def test_gradients_of_scanned_layers_are_kept_and_not_added_up() -> None:
    on = mesh("data")
    grad = jax.grad(partial(scanned, block=dense))
    evidence, advice = only(on_chip(grad, shaped(on, (L, D, D)), shaped(on, (B, D), "data")))
    assert GRADIENTS in evidence
    assert "the loop keeps those of each trip" in evidence
    assert advice == ""


def test_gradients_of_layers_written_one_by_one() -> None:
    def loss(ws: Any, x: Any) -> Any:
        for w in ws:
            x = dense(x, w)
        return jnp.sum(x)

    on = mesh("data")
    ws = [shaped(on, (D, D)) for _ in range(3)]
    for evidence, advice in waits(on_chip(jax.grad(loss), ws, shaped(on, (B, D), "data"))).values():
        assert GRADIENTS in evidence
        assert "loop" not in evidence
        assert advice == ""


def test_gradients_of_one_layer_that_a_loop_applies_again_are_added_up() -> None:
    def loss(w: Any, x: Any) -> Any:
        return jnp.sum(lax.scan(lambda c, _: (dense(c, w), None), x, None, length=6)[0])

    on = mesh("data")
    evidence, advice = only(on_chip(jax.grad(loss), shaped(on, (D, D)), shaped(on, (B, D), "data")))
    assert ADDED_UP in evidence
    assert ONCE in advice


def test_gradients_of_microbatches_are_added_up_of_layers_inside_too() -> None:
    def step(ws: Any, xs: Any) -> Any:
        grad = jax.grad(partial(scanned, block=dense))

        def add(total: Any, x: Any) -> Any:
            return total + grad(ws, x), None

        return lax.scan(add, jnp.zeros_like(ws), xs)[0]

    on = mesh("data")
    evidence, advice = only(
        on_chip(step, shaped(on, (L, D, D)), shaped(on, (3, B, D), None, "data"))
    )
    assert ADDED_UP in evidence
    assert ONCE in advice


def test_gradients_of_microbatches_are_added_up_though_a_loss_is_summed_with_them() -> None:
    """The loss is divided before it is added: the sum over devices is not what is added of it."""

    def step(ws: Any, xs: Any) -> Any:
        def add(total: Any, x: Any) -> Any:
            loss, grads = jax.value_and_grad(lambda ws: dense(dense(x, ws[0]), ws[1]).mean())(ws)
            return (total[0] + loss, jax.tree.map(jnp.add, total[1], grads)), None

        return lax.scan(add, (jnp.float32(0), jax.tree.map(jnp.zeros_like, ws)), xs)[0]

    on = mesh("data")
    ws = [shaped(on, (D, D))] * 2
    cap = on_chip(step, ws, shaped(on, (3, B, D), None, "data"))
    assert max(len(row.parts) for row in cap.collectives) == 3
    evidence, advice = only(cap)
    assert ADDED_UP in evidence
    assert ONCE in advice


def test_gradients_that_are_summed_over_one_axis_after_another() -> None:
    """Summed over fsdp, cut by device, then summed over data: gradients both times."""
    on = mesh("data", "fsdp")

    def block(x: Any, w: Any) -> Any:
        spec = P(("data", "fsdp"))
        return lax.with_sharding_constraint(dense(x, w), NamedSharding(on, spec))

    def step(ws: Any, x: Any) -> Any:
        return jax.tree.map(lambda w, g: w - 0.1 * g, ws, jax.grad(scanned)(ws, x, block))

    ws = shaped(on, (L, D, D), None, "fsdp")
    cap = on_chip(step, ws, shaped(on, (B, D), ("data", "fsdp")), out_shardings=ws.sharding)
    sums = {k: evidence for k, (evidence, _) in waits(cap).items() if "reduce" in k}
    assert sums
    assert all(GRADIENTS in evidence for evidence in sums.values())
    assert all("the loop keeps those of each trip" in evidence for evidence in sums.values())


def test_a_running_sum_that_the_loop_reads_again_cannot_wait() -> None:
    def step(w: Any, x: Any) -> Any:
        def body(c: Any, _: Any) -> Any:
            return c + jnp.tanh(c) @ w, None

        return lax.scan(body, x, None, length=4)[0]

    on = mesh("model")
    evidence, advice = only(on_chip(step, shaped(on, (D, D), "model"), shaped(on, (B, D))))
    assert ADDED_UP not in evidence
    assert advice == ""


def mlp(x: Any, w: Any) -> Any:
    return x + jax.nn.gelu(x @ w["up"]) @ w["down"]


def weights(on: Mesh, up: tuple[Any, ...], down: tuple[Any, ...]) -> Any:
    return {"up": shaped(on, (L, D, F), None, *up), "down": shaped(on, (L, F, D), None, *down)}


def test_partial_sums_of_activations_are_no_gradients_in_either_pass() -> None:
    on = mesh("data", "model")
    ws = weights(on, (None, "model"), ("model", None))
    grad = jax.grad(partial(scanned, block=mlp))
    found = waits(on_chip(grad, ws, shaped(on, (B, D), "data")))
    partial_sums = [v for k, v in found.items() if k.endswith("over model")]
    assert partial_sums
    for evidence, advice in partial_sums:
        assert PRODUCT in evidence
        assert GRADIENTS not in evidence
        assert advice == ""
    for kind, (evidence, _) in found.items():
        if kind.endswith("over data"):
            assert GRADIENTS in evidence


BACK = 'metadata={op_name="jit(step)/transpose(jvp())/'
SUMMED = f"""HloModule m, is_scheduled=true, num_partitions=8

add {{
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}}

ENTRY e {{
  w = f32[4,65536] parameter(0)
  bias = f32[65536] parameter(1)
  x = f32[8,4] parameter(2)
  zero = f32[] constant(0)
  h = f32[8,65536] dot(x, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}, metadata={{op_name="jit(step)/jvp()/dot_general"}}
  d = f32[8,65536] tanh(h), {BACK}mul"}}
  s = f32[65536] reduce(d, zero), dimensions={{0}}, to_apply=add, {BACK}reduce_sum"}}
  r = f32[65536] all-reduce(s), channel_id=1, replica_groups=[1,8]<=[8], use_global_device_ids=true, to_apply=add, {BACK}reduce_sum"}}
  m = f32[8,65536] broadcast(r), dimensions={{1}}, {BACK}broadcast_in_dim"}}
  c = f32[8,65536] subtract(d, MEAN), {BACK}sub"}}
  g = f32[4,65536] dot(x, c), lhs_contracting_dims={{0}}, rhs_contracting_dims={{0}}, {BACK}dot_general"}}
  w1 = f32[4,65536] subtract(w, g), metadata={{op_name="jit(step)/sub"}}
  b1 = f32[65536] subtract(bias, r), metadata={{op_name="jit(step)/sub"}}
  ROOT o = (f32[4,65536], f32[65536]) tuple(w1, b1)
}}
"""  # noqa: E501


@pytest.mark.parametrize("is_whole_batch", [True, False])
def test_sums_that_the_backward_pass_goes_on_with_are_no_price_of_data_parallelism(
    is_whole_batch: bool,
) -> None:
    """A bias's gradient is the sum that batch normalisation needs for its input's as well."""
    text = SUMMED.replace("MEAN", "m" if is_whole_batch else "d")
    said, _ = only(hs.read(text, hardware="tpu-v5e"))
    assert (GRADIENTS in said) is not is_whole_batch
    assert ("Sums over the whole batch that the backward pass goes on with" in said) is (
        is_whole_batch
    )


def test_weights_in_shards_are_gathered_and_their_gradients_summed() -> None:
    on = mesh("fsdp")
    ws = weights(on, ("fsdp", None), ("fsdp", None))

    def block(x: Any, w: Any) -> Any:
        return lax.with_sharding_constraint(mlp(x, w), NamedSharding(on, P("fsdp")))

    def step(ws: Any, x: Any) -> Any:
        grads = jax.grad(partial(scanned, block=block))(ws, x)
        return jax.tree.map(lambda w, g: w - 0.1 * g, ws, grads)

    stored = jax.tree.map(lambda w: w.sharding, ws)
    found = waits(on_chip(step, ws, shaped(on, (B, D), "fsdp"), out_shardings=stored))
    gathers = [v for k, v in found.items() if "gather" in k]
    sums = [v for k, v in found.items() if "reduce" in k]
    assert gathers
    assert sums
    assert all(STORED in evidence for evidence, _ in gathers)
    assert all(GRADIENTS in evidence for evidence, _ in sums)


def test_an_argument_that_is_needed_whole() -> None:
    """By an operation that is not computed in parts, and by a call of Python on one device."""
    on = mesh("x")
    a = shaped(on, (2048, D), "x", dtype=C64)
    cap = on_chip(jnp.fft.fft, a)
    (found,) = cap.findings.of("gathered-for-one")
    assert not waits(cap)
    assert "XLA has no rule to keep that" in found.evidence
    assert "jax.shard_map" in found.advice

    def called(a: Any) -> Any:
        return jax.pure_callback(lambda a: a, jax.ShapeDtypeStruct(a.shape, a.dtype), a)

    evidence, advice = next(v for k, v in waits(on_chip(called, a)).items() if "all-gather" in k)
    assert "Given in shards and gathered where it is used: `a`" in evidence
    assert advice == ""


def test_a_lookup_in_a_table_that_is_sharded_by_rows() -> None:
    on = mesh("model")
    evidence, advice = only(
        on_chip(
            lambda table, ids: table[ids],
            shaped(on, (8192, D), "model"),
            shaped(on, (B,), dtype=jnp.int32),
        )
    )
    assert "takes the rows that it holds" in evidence
    assert advice == ""


def test_tables_that_are_gathered_whole_for_a_lookup() -> None:
    """Each device has some of the tables, and all rows of the batch are looked up in each."""
    on = mesh("data")

    def loss(params: Any, ids: Any) -> Any:
        found = jax.vmap(lambda t, i: t[i], (0, 1), 1)(params["tables"], ids)
        return jnp.tanh(found.reshape(len(ids), -1) @ params["w"]).mean()

    def step(params: Any, ids: Any) -> Any:
        grads = jax.grad(loss)(params, ids)
        return jax.tree.map(lambda p, g: p - 0.1 * g, params, grads)

    params = {"tables": shaped(on, (8, 2048, 64), "data"), "w": shaped(on, (8 * 64, 64))}
    found = waits(on_chip(step, params, shaped(on, (1024, 8), "data", dtype=jnp.int32)))
    (evidence, advice) = next(v for k, v in found.items() if "gather" in k)
    assert "gathered whole, though a lookup takes only some rows: `params['tables']`" in evidence
    assert "FSDP" not in evidence
    assert advice == ""


def test_a_sum_that_the_program_asks_for() -> None:
    on = mesh("x")
    summed = jax.shard_map(lambda a: lax.psum(a, "x"), mesh=on, in_specs=P("x"), out_specs=P())
    evidence, advice = only(on_chip(summed, shaped(on, (4096, D), "x")))
    assert evidence.endswith("The program asks for it by name")
    assert advice == ""


def test_a_result_that_the_step_returns_whole() -> None:
    on = mesh("x")
    cap = on_chip(lambda a: a * 2, shaped(on, (4096, D), "x"), out_shardings=NamedSharding(on, P()))
    evidence, advice = only(cap)
    assert "The step returns it whole" in evidence
    assert "out_shardings" in advice


def test_a_constraint_of_the_person_is_named_with_its_line() -> None:
    on = mesh("x")

    def shard(a: Any, *spec: Any) -> Any:  # a helper, whose line does not say which it is
        return lax.with_sharding_constraint(a, NamedSharding(on, P(*spec)))

    def step(a: Any) -> Any:
        return jnp.cumsum(shard(shard(jnp.sin(a), "x")), axis=0)

    evidence, advice = only(on_chip(step, shaped(on, (4096, D), "x")))
    line, called = step.__code__.co_firstlineno + 1, shard.__code__.co_firstlineno + 1
    file = "test_collective_purposes.py"
    assert f"A constraint asks for this sharding: {file}:{called} called from {file}:{line}" in (
        evidence
    )
    assert advice.startswith("leave the axis in that constraint")


@pytest.mark.usefixtures("libtpu")
@pytest.mark.parametrize("kind", ["psum_scatter", "concatenate"])
def test_nobody_is_told_to_scatter_what_is_scattered_or_no_sum(kind: str) -> None:
    def scatter(a: Any) -> Any:
        return jnp.sin(lax.psum_scatter(a, "x", scatter_dimension=1, tiled=True)) * 2

    from jax.experimental import topologies

    devices = topologies.get_topology_desc("v5e:2x4", "tpu").devices
    there = jax.make_mesh((8,), ("x",), devices=devices, axis_types=(jax.sharding.AxisType.Auto,))
    if kind == "psum_scatter":
        fn: Any = jax.shard_map(
            scatter, mesh=there, in_specs=P(), out_specs=P(None, "x"), check_vma=False
        )
        cap = hs.capture(jax.jit(fn), shaped(there, (16, 64)))
    else:
        cap = hs.capture(jax.jit(lambda v: jnp.cumsum(v) * 3), shaped(there, (128,), "x"))
    assert cap.findings.of("reduced-then-sliced") == ()


def test_a_sum_over_rows_of_which_each_device_has_one_is_no_product() -> None:
    """The gradient of what was broadcast over the batch: each device has one row, and its part of
    the sum is a product with weights, none of whose dimensions is sharded."""
    on = mesh("data")

    def loss(edges: Any, w: Any, x: Any) -> Any:
        rows = jnp.broadcast_to(jnp.sin(edges)[None], (8, B, D))
        return jnp.sum(jnp.tanh(rows @ w) * x)

    given = shaped(on, (B, D)), shaped(on, (D, F)), shaped(on, (8, B, F), "data")
    found = waits(on_chip(jax.grad(loss), *given))
    assert found
    for evidence, _ in found.values():
        assert "contracted" not in evidence
        assert "A dimension that is reduced is sharded" in evidence or GRADIENTS in evidence


def test_a_combined_sum_is_for_what_most_of_its_bytes_are_for() -> None:
    """The largest array is of one product with sharded weights; the rest are gradients."""
    on = mesh("x")

    def step(ws: Any, x: Any, rows: Any) -> Any:
        def loss(ws: Any) -> Any:
            others = jnp.sum(sum(jnp.tanh(x @ w) for w in ws["whole"]))
            return others + jnp.sum(jnp.tanh(rows @ ws["cut"]))

        return jax.grad(loss)(ws)

    ws = {
        "whole": [shaped(on, (D, D))] * 6,
        "cut": shaped(on, (F, D), "x", None),
    }
    cap = on_chip(step, ws, shaped(on, (B, D), "x", None), shaped(on, (F, F), None, "x"))
    (row,) = cap.collectives
    sizes = sorted(part.bytes for part in row.parts)
    assert len(sizes) == 7
    assert sizes[-1] == 2 * sizes[-2]
    evidence, _ = only(cap)
    assert GRADIENTS in evidence


def test_a_sum_of_what_each_device_scatters() -> None:
    """Messages along a graph's edges, which are sharded, summed up at its nodes."""
    on = mesh("edges")

    def aggregate(messages: Any, receivers: Any) -> Any:
        return jnp.tanh(jax.ops.segment_sum(messages, receivers, num_segments=B))

    messages = shaped(on, (8 * B, D), "edges")
    receivers = shaped(on, (8 * B,), "edges", dtype=jnp.int32)
    evidence, advice = only(on_chip(aggregate, messages, receivers))
    assert "Each device adds up the rows that it holds, by index" in evidence
    assert advice == ""
