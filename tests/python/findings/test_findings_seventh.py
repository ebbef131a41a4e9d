"""What expert readers of twelve unseen programs found false, useless or missing."""

from __future__ import annotations

from typing import Any

import hloscope as hs
import jax
import jax.numpy as jnp
import pytest
from findings_programs import BF16, F32, mesh, shaped
from jax import lax

ENDS = """HloModule m, is_scheduled=true

sum {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT s = f32[] add(a, b)
}

body {
  p = (s32[], f32[64]) parameter(0)
  k = s32[] get-tuple-element(p), index=0
  x = f32[64] get-tuple-element(p), index=1
  one = s32[] constant(1)
  next = s32[] add(k, one)
  half = f32[64] multiply(x, x)
  ROOT t = (s32[], f32[64]) tuple(next, half)
}

condition {
  p = (s32[], f32[64]) parameter(0)
  k = s32[] get-tuple-element(p), index=0
  x = f32[64] get-tuple-element(p), index=1
  most = s32[] constant(MOST)
  zero = f32[] constant(0)
  few = pred[] compare(k, most), direction=LT
  rest = f32[] reduce(x, zero), dimensions={0}, to_apply=sum
  wide = pred[] compare(rest, zero), direction=GT
  ROOT both = pred[] OPCODE(few, wide)
}

ENTRY e {
  x = f32[64] parameter(0)
  zero = s32[] constant(0)
  t = (s32[], f32[64]) tuple(zero, x)
  w = (s32[], f32[64]) while(t), condition=condition, body=body
  ROOT o = f32[64] get-tuple-element(w), index=1
}
"""


@pytest.mark.parametrize(
    ("opcode", "most", "said"), [("and", 127, 127), ("or", 127, None), ("and", 0, 0)]
)
def test_one_of_the_conditions_of_a_loop_limits_its_trips(
    opcode: str, most: int, said: int | None
) -> None:
    cap = hs.read(ENDS.replace("OPCODE", opcode).replace("MOST", str(most)))
    cap.hardware = "tpu-v5e"
    assert cap.cost().unknown_trip_counts == ("w",)
    assert cap.cost().most_trips == (said,)
    assert ("at most" in str(cap.cost())) is (said is not None)
    assert cap.findings.headline.at_most == (() if said is None else (said,))


def test_shares_say_of_how_many_trips_at_most() -> None:
    def step(w: Any, x: Any, done: Any) -> Any:
        def going(c: Any) -> Any:
            return (c[0] < 128) & jnp.any(c[1] > 0)

        x = lax.while_loop(going, lambda c: (c[0] + 1, jnp.sin(c[1])), (0, x))[1]
        return jnp.dot(x, w, precision="highest")

    given = shaped((512, 512)), shaped((512, 512)), shaped((512,), jnp.bool_)
    cap = hs.capture(jax.jit(step), *given, hardware="tpu-v5e")
    assert any("of at most 128 times" in s for s in cap.findings.left_out), str(cap.findings)


def test_constants_that_xla_computed_are_not_called_closed_over() -> None:
    made = 'metadata={op_name="jit(f)/jit(elu)/select_n"}'
    text = (
        "HloModule m, is_scheduled=true\n\nENTRY e {\n  x = pred[2097152] parameter(0)\n"
        "  c = pred[2097152] constant({...}){}\n  ROOT o = pred[2097152] and(x, c)\n}\n"
    )
    (said,) = hs.read(text.replace("{}", f", {made}")).findings.of("large-constant")
    assert said.evidence.endswith(
        "XLA computed it while it compiled, as the operands of select_n are known then"
    )
    assert said.advice == ""
    (given,) = hs.read(text.replace("{}", "")).findings.of("large-constant")
    assert given.advice.startswith("pass the array as an argument")


def test_gradients_that_two_scans_stack_are_reduced_twice() -> None:
    """Two passes over the same layers: each reduces its own gradients before they are added."""
    on = mesh("data")

    def through(ws: Any, x: Any) -> Any:
        return (lax.scan(lambda x, w: (jnp.tanh(x @ w), None), x, ws)[0] ** 2).sum()

    def both(ws: Any, x: Any, y: Any) -> Any:
        return through(ws, x) + through(ws, y)

    def once(ws: Any, x: Any, y: Any) -> Any:
        return through(ws, jnp.concatenate([x, y], 1).reshape(-1, x.shape[1]))

    ws = shaped((4, 512, 512), F32, on, None, None, None)
    x = shaped((64, 512), F32, on, "data", None)
    (found,) = hs.capture(jax.jit(jax.grad(both)), ws, x, x).findings.of("reduced-twice")
    assert found.bytes
    assert hs.capture(jax.jit(jax.grad(once)), ws, x, x).findings.of("reduced-twice") == ()


def test_arrays_that_are_filled_up_alike_are_one_finding_and_scalars_none() -> None:
    """Half of 64 of 128 columns is padding, of a scalar nearly all of a tile."""
    long, short, one = (
        f"f32[{n},64]{{1,0:T(8,128)}}" if n > 1 else "f32[1,1]{1,0:T(1,128)}"
        for n in (65536, 8192, 1)
    )
    cap = hs.read(
        "HloModule m, is_scheduled=true\n\nENTRY e {\n"
        f"  a = {long} parameter(0)\n  b = {short} parameter(1)\n  n = {one} parameter(2)\n"
        f"  c = {long} tanh(a)\n  d = {short} tanh(b)\n  o = {one} tanh(n)\n"
        f"  ROOT t = ({long}, {short}, {one}) tuple(c, d, o)\n}}\n"
    )
    cap.hardware = "tpu-v5e"
    (found,) = cap.findings.of("padded-traffic")
    assert found.title.endswith("padding of f32[65536,64] and 1 more")
    assert found.share == pytest.approx(0.5, abs=0.01)
    assert [i.name for i in found.instructions] == ["c", "d"]


def test_a_mask_makes_attention_no_kernel_of_xlas_own() -> None:
    """What XLA:TPU makes a kernel of by itself has no scores in memory."""
    pytest.importorskip("libtpu")

    def attend(q: Any, k: Any, v: Any) -> Any:
        scores = jax.nn.softmax(jnp.einsum("bhqd,bhkd->bhqk", q, k).astype(F32))
        return jnp.einsum("bhqk,bhkd->bhqd", scores.astype(BF16), v)

    cap = hs.capture(jax.jit(attend), *[shaped((4, 8, 2048, 128), BF16)] * 3, topology="v5e:1x1")
    assert cap.findings.of("scores-in-memory") == ()


def test_gated_products_are_no_scores() -> None:
    """Attention by SiLU has no softmax, for which kernels that go over blocks are made."""
    pytest.importorskip("libtpu")

    def attend(q: Any, k: Any, v: Any, gate: Any) -> Any:
        causal = jnp.tril(jnp.ones((2048, 2048), bool))
        scores = jnp.einsum("bhqd,bhkd->bhqk", q, k).astype(F32)
        scores = jnp.where(causal, gate(scores), 0).astype(BF16)
        return jnp.einsum("bhqk,bhkd->bhqd", scores, v)

    found = [
        hs.capture(
            jax.jit(lambda q, k, v, gate=gate: attend(q, k, v, gate)),
            *[shaped((4, 8, 2048, 128), BF16)] * 3,
            topology="v5e:1x1",
        ).findings.of("scores-in-memory")
        for gate in (jax.nn.silu, jax.nn.softmax)
    ]
    assert [len(f) for f in found] == [0, 1]


def test_a_product_in_f32_is_no_reason_for_the_types_of_all() -> None:
    """A router in f32 beside bf16 layers; f32 layers with bf16 weights are told."""
    pytest.importorskip("libtpu")

    def model(wide: bool) -> Any:
        def f(layers: Any, router: Any, x: Any) -> Any:
            for up, down in layers:
                x = x + jax.nn.gelu(x @ up) @ down
                x = x / jnp.sqrt((x * x).mean(-1, keepdims=True) + 1e-6)
            sums = jnp.cumsum(x.astype(F32), 0)
            return sums, jax.nn.softmax(jnp.cos(sums) @ router)

        layers = [(shaped((256, 512), BF16), shaped((512, 256), BF16))] * 2
        given = layers, shaped((256, 64), BF16), shaped((1 << 17, 256), F32 if wide else BF16)
        return hs.capture(jax.jit(f), *given, topology="v5e:1x1").findings.of("wide-activations")

    assert model(wide=True)
    assert model(wide=False) == ()
