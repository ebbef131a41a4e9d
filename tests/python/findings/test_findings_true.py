"""Sentences that were false of ordinary programs, and what is said now."""

from __future__ import annotations

from typing import Any

import hloscope as hs
import jax
import jax.numpy as jnp
import pytest
from advice_pairs import (
    counted_one_by_one,
    gradient_cut_as_the_batch_of,
    microbatches_of_whole_rows,
)
from findings_programs import mesh, shaped
from jax.sharding import AbstractMesh, NamedSharding
from jax.sharding import PartitionSpec as P


def test_an_operation_that_xla_does_not_cut_is_the_cause_itself() -> None:
    """The Fourier transform of sharded rows, reshaped before: nothing lost its sharding there."""
    on = mesh("data")

    def step(x: Any) -> Any:
        return jnp.fft.fft(x.reshape(512, 8, 512).transpose(0, 2, 1))

    x = shaped((512, 4096), jnp.complex64, on, "data")
    (found,) = hs.capture(jax.jit(step), x, hardware="tpu-v5e").findings.of("redundant-work")
    assert "its operands are sharded, but XLA has no rule to compute it" in found.evidence
    assert found.advice.startswith("run the operation in jax.shard_map")
    # no device has a part that it could transform by itself
    columns = shaped((512, 4096), jnp.complex64, on, None, "data")
    cap = hs.capture(jax.jit(jnp.fft.fft), columns, hardware="tpu-v5e")
    for rule in ("redundant-work", "gathered-for-one"):
        (found,) = cap.findings.of(rule)
        assert found.advice.startswith("shard a dimension that it does not go along"), rule
    line = shaped((1 << 20,), jnp.complex64, on, "data")
    (found,) = hs.capture(jax.jit(jnp.fft.fft), line).findings.of("redundant-work")
    assert not found.advice
    (found,) = microbatches_of_whole_rows(False).findings.of("redundant-work")
    assert "no longer sharded so after the" in found.evidence


TPU = """HloModule m, is_scheduled=true, frontend_attributes={}

ENTRY %e (p: f32[N]) -> f32[N] {
  %p = f32[N]{0:T(1024)} parameter(0)
  ROOT %s = f32[N]{0:T(1024)} tanh(%p)
}
"""


def test_a_simulated_peak_on_tpu_is_not_said_to_be_too_much_by_a_little() -> None:
    """XLA:TPU compiles only what fits, and places values better than the simulation."""
    for gib, is_said in ((7.9, False), (8.5, False), (9.2, True)):
        cap = hs.read(TPU.replace("N", str(int(gib * 2**28))), hardware="tpu-v5e")
        assert cap.memory.platform == "tpu"
        assert bool(cap.findings.of("does-not-fit")) is is_said


def test_the_peak_of_what_was_compiled_for_cpu_says_so() -> None:
    x = jax.ShapeDtypeStruct((5 << 30,), jnp.float32)
    (found,) = hs.capture(jnp.sin, x, hardware="tpu-v5e").findings.of("does-not-fit")
    assert found.title.startswith("The peak of 40 GiB, as compiled for CPU, does not fit in the 16")
    assert found.evidence.endswith("so that its peak may be lower")


def test_layers_that_use_one_value_after_another_are_not_told_to_do_so() -> None:
    """Kernels that are reversed for the backward pass, all when the program begins."""

    def loss(ws: Any, x: Any) -> Any:
        for w in ws:
            x = jnp.tanh(jax.lax.conv(x, w, (1,), "SAME"))
        return (x * x).sum()

    ws = [jax.ShapeDtypeStruct((512, 512, 5), jnp.float32)] * 28
    x = jax.ShapeDtypeStruct((1, 512, 64), jnp.float32)
    cap = hs.capture(jax.jit(jax.grad(loss)), ws, x, hardware="tpu-v5e")
    (found,) = cap.findings.of("waiting-values")
    assert found.advice == ""
    (found,) = counted_one_by_one(False).findings.of("waiting-values")
    assert found.advice.startswith("make and use one after another")


PRODUCTS = """HloModule m, is_scheduled=true

add { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT s = f32[] add(a, b) }

fused {
  m = f32[GIVEN] parameter(0)
  v = f32[VECTOR] parameter(1)
  zero = f32[] constant(0)
  wide = f32[ALL] broadcast(v), dimensions={OVER}
  matrix = f32[ALL] MADE
  product = f32[ALL] multiply(matrix, wide)
  ROOT sum = f32[RESULT] reduce(product, zero), dimensions={LAST}, to_apply=add, NAMED
}

ENTRY e {
  m = f32[GIVEN] parameter(0)
  v = f32[VECTOR] parameter(1)
  ROOT f = f32[RESULT] fusion(m, v), kind=kLoop, calls=fused
}
"""


def test_a_product_with_one_vector_is_of_a_matrix_that_is_read_and_of_one_vector() -> None:
    """One computed in the fusion is never in memory, and n small products are not one."""
    one = {"ALL": "8192,8192", "VECTOR": "8192", "OVER": "1", "RESULT": "8192", "LAST": "1"}
    each = {"ALL": "512,2048,16", "VECTOR": "512,2048", "OVER": "0,1", "RESULT": "512,16"}
    for words, is_said in (
        ({**one, "GIVEN": one["ALL"], "MADE": "copy(m)"}, True),
        ({**one, "GIVEN": "8192", "MADE": "multiply(wide, wide)"}, False),
        ({**each, "LAST": "1", "GIVEN": "1048576,16", "MADE": "bitcast(m)"}, False),
    ):
        text = PRODUCTS.replace("NAMED", 'metadata={op_name="jit(f)/dot_general"}')
        for key, value in words.items():
            text = text.replace(key, value)
        found = hs.read(text, hardware="tpu-v5e").findings.of("matrix-vector")
        assert bool(found) is is_said, words


@pytest.mark.usefixtures("libtpu")
def test_a_shift_of_a_sharded_dimension_is_not_of_as_many_pieces_as_it_has_rows() -> None:
    def steps(x: Any) -> Any:
        return jax.lax.fori_loop(0, 100, lambda _, x: x + 0.1 * jnp.roll(x, 64, axis=0), x)

    cut = NamedSharding(AbstractMesh((8,), ("y",)), P("y", None))
    x = jax.ShapeDtypeStruct((2048, 2048), jnp.float32, sharding=cut)
    cap = hs.capture(jax.jit(steps), x, topology="v5e:2x4", mesh={"y": 8})
    (found,) = cap.findings.of("exposed-collective")
    assert "collective-permute" in found.title
    assert "pieces" not in found.evidence + found.advice


def test_a_gather_for_a_reshape_is_not_put_on_the_sort_after_it() -> None:
    on = mesh("data")
    x = shaped((512, 4096), jnp.float32, on, None, "data")
    cap = hs.capture(jax.jit(lambda x: jnp.sort(x.ravel())), x, hardware="tpu-v5e")
    (found,) = cap.findings.of("gathered-for-one")
    assert "the reshape before it at " in found.evidence
    assert "no rule" not in found.evidence


def test_shardings_of_complex_numbers_come_from_the_argument_that_has_them() -> None:
    """A loop reads an argument: Shardy puts a reshard of its own on it, which is nobody's line."""
    on = mesh("data")

    def step(maps: Any, x: Any) -> Any:
        def trip(_: Any, x: Any) -> Any:
            return jnp.fft.ifft2(jnp.fft.fft2(maps * x)).sum(0)

        return jax.lax.fori_loop(0, 3, trip, x)

    maps = shaped((8, 64, 64), jnp.complex64, on, None, "data")
    cap = hs.capture(jax.jit(step), maps, shaped((64, 64), jnp.complex64, on, "data"))
    origins = [o for c in cap.collectives for o in cap.why(c.name).origins]
    assert origins
    assert {(o.kind, o.name) for o in origins} <= {("argument", "maps"), ("argument", "x")}


def test_state_that_is_updated_in_parts_and_returned_whole_is_held_twice() -> None:
    """Weights are sharded and momentum is not: XLA updates each device's part and gathers all."""
    on = mesh("data")

    def step(params: Any, momentum: Any, x: Any) -> Any:
        grad = jax.grad(lambda p: (jnp.tanh(x @ p) ** 2).mean())(params)
        momentum = 0.9 * momentum + grad
        return params - momentum, momentum

    w = shaped((1024, 4096), jnp.float32, on, "data")
    whole = shaped((1024, 4096), jnp.float32, on)
    out = (w.sharding, whole.sharding)
    x = shaped((64, 1024), jnp.float32, on)
    cap = hs.capture(jax.jit(step, out_shardings=out), w, whole, x)
    (found,) = cap.findings.of("not-donated")
    assert found.title.startswith("2 arguments that the step replaces are not donated")
    (state,) = [v for v in cap.memory if v.name == "momentum"]
    assert state.category == "optimiser state"


@pytest.mark.parametrize("scanned", [False, True])
def test_a_checkpoint_around_a_layer_with_a_loop_in_it_saves_memory(scanned: bool) -> None:
    """Blocks of keys in each layer: at one time only those of one layer are there again."""

    def block(x: Any, w: Any) -> Any:
        return jnp.sin(jnp.tanh(jnp.sin(x @ w))), None

    def layers(ws: Any, x: Any) -> Any:
        layer = jax.checkpoint(lambda x, ws: (jax.lax.scan(block, x, ws)[0], None))
        if scanned:
            return jax.lax.scan(layer, x, ws)[0]
        for n in range(4):
            x = layer(x, ws[n])[0]
        return x

    given = (
        jax.ShapeDtypeStruct((4, 16, 128, 128), jnp.float32),
        jax.ShapeDtypeStruct((4096, 128), jnp.float32),
    )
    cap = hs.capture(jax.jit(jax.grad(lambda ws, x: (layers(ws, x) ** 2).sum())), *given)
    assert cap.memory.residuals
    assert not [f for f in cap.findings if "around a whole loop" in f.title]


def test_activations_are_kept_in_parts_of_the_batch_only_if_weights_are_less_to_move() -> None:
    """Of few rows the gathered weights are as much as all that is exchanged instead."""
    for rows, gains in ((256, True), (32, False)):
        before, after = (gradient_cut_as_the_batch_of(rows, done) for done in (False, True))
        advised = [f for f in before.findings if "cuts the gradient" in f.advice]
        assert bool(advised) == gains, rows
        a, b = before.findings.headline.seconds, after.findings.headline.seconds
        assert a is not None
        assert b is not None
        assert (a - b > 0.1 * a) == gains, rows
