"""What is said of collectives in loops: those that no trip changes, and those that end it."""

import importlib.util
from typing import Any

import hloscope as hs
import jax
import jax.numpy as jnp
import pytest
from advice_pairs import gathered_before_the_loop, solved_by_each_device
from findings_programs import BF16, F32, mesh, on_tpu, shaped
from jax import lax
from jax.sharding import PartitionSpec as P

tpu = pytest.mark.skipif(importlib.util.find_spec("libtpu") is None, reason="needs libtpu")


def said(cap: hs.Capture) -> str:
    return str(cap.findings)


def test_a_loop_that_ends_when_all_rows_are_done_waits_for_all_devices_in_each_trip() -> None:
    waiting, alone = solved_by_each_device(False), solved_by_each_device(True)
    assert "It says whether any device has rows left in a loop" in said(waiting)
    assert "exposed-collective" not in {f.rule for f in alone.findings}


def test_a_loop_whose_trips_communicate_is_not_advised_to_end_by_itself() -> None:
    on = mesh("rows")

    def solve(y: Any) -> Any:
        def go_on(at: Any) -> Any:
            return (jnp.abs(at[0]).max() < 20.0) & (at[1] < 10_000)

        def trip(at: Any) -> Any:
            return at[0] * 1.01 + at[0].sum(0) * 1e-9, at[1] + 1

        return lax.while_loop(go_on, trip, (y, 0))[0]

    cap = hs.capture(jax.jit(solve), shaped((64, 64), F32, on, "rows"), hardware="tpu-v5e")
    assert "run the loop in jax.shard_map" not in said(cap)


@tpu
def test_an_array_that_no_trip_changes_is_gathered_once_where_it_is_constrained_before() -> None:
    again, once = gathered_before_the_loop(False), gathered_before_the_loop(True)
    assert "Gathered in each trip of a loop, though no trip changes it: `w`" in said(again)
    # the advice of the constraint, to leave the axis in it, would bring back one in each trip
    assert "leave the axis in that constraint" not in said(once)


@tpu
def test_weights_of_another_layer_in_each_trip_are_the_price_of_fsdp() -> None:
    def step(ws: Any, x: Any) -> Any:
        return lax.scan(lambda x, w: (jnp.tanh(x @ w), None), x, ws)[0]

    fn = jax.jit(step, in_shardings=(P(None, "x"), P("x")), out_shardings=P("x"))
    given = shaped((8, 4096, 4096), BF16), shaped((1024, 4096), BF16)
    cap = on_tpu(fn, *given, axes={"x": 8})
    assert "though no trip changes it" not in said(cap)


def test_weights_of_layers_that_each_microbatch_gathers_again_are_gathered_once_before() -> None:
    on = mesh("x")

    def loss(ws: Any, x: Any) -> Any:
        return jnp.sum(lax.scan(lambda x, w: (jnp.tanh(x @ w), None), x, ws)[0])

    def step(ws: Any, xs: Any) -> Any:
        def add(total: Any, x: Any) -> Any:
            return total + jax.grad(loss)(ws, x), None

        return ws - 0.1 * lax.scan(add, jnp.zeros_like(ws), xs)[0]

    given = shaped((4, 1024, 1024), F32, on, None, "x"), shaped((8, 64, 1024), F32, on, None, "x")
    fn = jax.jit(step, out_shardings=given[0].sharding)
    cap = hs.capture(fn, *given, hardware="tpu-v5e")
    assert "Gathered in each trip of a loop, though no trip changes it: `ws`" in said(cap)
    (found,) = (f for f in cap.findings.prove() if "gather it once" in f.advice)
    (proof,) = found.proofs
    assert proof.asked == {"constrain": {"ws": ()}}
    assert proof.is_proved
    assert proof.step[0] is not None
    assert proof.step[1] is not None
    assert found.seconds is not None
    assert proof.step[0] - proof.step[1] > found.seconds / 2


def test_gradients_that_two_loops_over_the_same_layers_stack_are_reduced_twice() -> None:
    on = mesh("x")

    def through(x: Any, ws: Any) -> Any:
        return lax.scan(lambda x, w: (jnp.tanh(x @ w), None), x, ws)[0]

    def loss(ws: Any, x: Any) -> Any:
        return jnp.sum(through(through(x, ws), ws))

    given = shaped((4, 1024, 1024), F32, on), shaped((64, 1024), F32, on, "x")
    cap = hs.capture(jax.jit(jax.grad(loss)), *given, hardware="tpu-v5e")
    (found,) = cap.findings.of("reduced-twice")
    assert found.title.startswith("A gradient is reduced twice over x: 16 MiB of 16 MiB of ")


def test_both_gradients_of_a_tied_embedding_are_added_up_by_the_loop_of_microbatches() -> None:
    on = mesh("x")

    def loss(e: Any, ids: Any) -> Any:
        return -jax.nn.log_softmax(jnp.tanh(e[ids]) @ e.T)[:, 0].sum()

    def step(e: Any, ids: Any) -> Any:
        def add(total: Any, part: Any) -> Any:
            return total + jax.grad(loss)(e, part), None

        return e - 0.1 * lax.scan(add, jnp.zeros_like(e), ids)[0]

    given = shaped((8192, 512), F32, on), shaped((8, 1024), jnp.int32, on, None, "x")
    cap = hs.capture(jax.jit(step), *given, hardware="tpu-v5e")
    assert "Each trip of the loop sums over the devices and adds that to what it carries" in said(
        cap
    )


@tpu
def test_sums_of_microbatches_that_are_cut_are_added_up_by_the_loop() -> None:
    def step(w: Any, xs: Any) -> Any:
        def add(total: Any, x: Any) -> Any:
            x = lax.with_sharding_constraint(x, P("x"))
            g = jax.grad(lambda w: jnp.sum(jnp.tanh(x @ w).astype(F32)))(w)
            return total + g, None

        return w - 0.1 * lax.scan(add, jnp.zeros_like(w), xs)[0]

    fn = jax.jit(step, in_shardings=(P("x"), P(None, "x")), out_shardings=P("x"))
    given = shaped((8192, 2048), BF16), shaped((16, 64, 8192), BF16)
    cap = on_tpu(fn, *given, axes={"x": 8})
    assert "Each trip of the loop sums over the devices and adds that to what it carries" in said(
        cap
    )
    # v5e has no arithmetic in bf16: it widens for the addition, and rounds the sum again
    assert not cap.findings.of("narrow-sums")
