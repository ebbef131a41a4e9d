"""What making a value again would cost against the bytes it would free at the peak."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import hloscope as hs
import pytest
from hloscope.analysis.memory.remat import Recompute, what_if

# %kept is made early and read late; the peak is at %big
PROGRAM = """HloModule m, is_scheduled=true, num_partitions=4

sum {{
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT ab = f32[] add(a, b)
}}

ENTRY main {{
  x = f32[256,128]{{1,0}} parameter(0)
  w = f32[128,512]{{1,0}} parameter(1)
  u = f32[64,128]{{1,0}} parameter(2)
{made}
  r = f32[256,512]{{1,0}} reverse(kept), dimensions={{0}}
  big = f32[512,512]{{1,0}} dot(r, r), lhs_contracting_dims={{0}}, rhs_contracting_dims={{0}}
  small = f32[8,512]{{1,0}} slice(big), slice={{[0:8],[0:512]}}
  back = f32[8,256]{{1,0}} dot(small, kept), lhs_contracting_dims={{1}}, rhs_contracting_dims={{1}}
  ROOT end = f32[8,8]{{1,0}} slice(back), slice={{[0:8],[0:8]}}
}}
"""


def matmul(name: str, left: str, right: str) -> str:
    dims = "lhs_contracting_dims={1}, rhs_contracting_dims={0}"
    return f"  {name} = f32[256,512]{{1,0}} dot({left}, {right}), {dims}"


def row(*made: str) -> Recompute:
    """The what-if row of ``kept``, made by these lines."""
    cap = hs.read(PROGRAM.format(made="\n".join(made)))
    (found,) = [r for r in what_if(cap.memory, cap.cost("h100")) if r.value.name == "kept"]
    return found


def test_a_matmul_is_made_again_from_arguments() -> None:
    found = row(matmul("kept", "x", "w"))
    assert found.saved_bytes == 256 * 512 * 4
    assert found.flops == 2 * 256 * 128 * 512
    assert found.wire_bytes == 0
    assert [i.name for i in found.instructions] == ["kept"]
    assert found.seconds is not None
    assert found.seconds > 0


def test_what_is_gone_by_then_is_made_again_too_and_what_is_there_is_not() -> None:
    dot = matmul("h", "x", "w")
    found = row(
        dot,
        "  back1 = f32[256,512]{1,0} reverse(h), dimensions={1}",
        "  kept = f32[256,512]{1,0} exponential(back1)",
    )
    assert [i.name for i in found.instructions] == ["h", "back1", "kept"]
    assert found.flops == 2 * 256 * 128 * 512  # an exponential is no FLOP


def test_a_gathered_array_costs_the_wire_again() -> None:
    gather = (
        "  g = f32[256,128]{1,0} all-gather(u), channel_id=1, dimensions={0}, "
        "replica_groups={{0,1,2,3}}, use_global_device_ids=true"
    )
    found = row(gather, matmul("kept", "g", "w"))
    assert [i.name for i in found.instructions] == ["g", "kept"]
    assert found.wire_bytes == 3 * 64 * 128 * 4


@pytest.mark.parametrize(
    ("made", "again"),
    [
        ('custom-call(x, w), custom_call_target="__cublas$gemm"', True),
        ('custom-call(x, w), custom_call_target="xla_ffi_python_cpu_callback"', False),
        ("rng(x, w), distribution=rng_uniform", False),
    ],
)
def test_only_what_computes_alone_is_run_twice(made: str, again: bool) -> None:
    found = row(f"  kept = f32[256,512]{{1,0}} {made}")
    assert bool(found.instructions) == again
    assert ("not run twice" in found.reason) == (not again)


def test_a_stack_that_a_loop_fills_is_refused() -> None:
    import jax
    import jax.numpy as jnp

    def loss(ws: Any, x: Any) -> Any:
        y, _ = jax.lax.scan(lambda c, w: (jnp.tanh(c @ w), None), x, ws)
        return y.sum()

    shapes = (8, 64, 64), (256, 64)
    args = [jax.ShapeDtypeStruct(s, jnp.float32) for s in shapes]
    cap = hs.capture(jax.jit(jax.grad(loss)), *args)
    stacked = {r.shape.dense_text for r in cap.memory.residuals}
    rows = [r for r in what_if(cap.memory, cap.cost()) if r.value.shape.dense_text in stacked]
    assert rows
    for r in rows:
        assert "a loop carries it" in r.reason


def chain(count: int) -> list[str]:
    """``kept`` and what it is made from: so many ops one after the other, each read once."""
    names = ["x0", *(f"s{k}" for k in range(count - 1)), "kept"]
    slices = "  x0 = f32[256,512]{1,0} broadcast(x1), dimensions={}"
    one = "  x1 = f32[] constant(1)"
    return [one, slices] + [
        f"  {b} = f32[256,512]{{1,0}} reverse({a}), dimensions={{{k % 2}}}"
        for k, (a, b) in enumerate(pairwise(names))
    ]


def test_how_far_back_it_goes() -> None:
    """25 ops deep, and 65 in all: what is asked for last is the broadcast of a constant."""
    assert len(row(*chain(24)).instructions) == 25  # with the broadcast
    assert row(*chain(25)).reason == "recomputing it would reach too far back"

    def wide(count: int) -> Recompute:
        each = f"f32[256,{512 // 128}]{{1,0}}"
        made = [f"  p{k} = {each} slice(x), slice={{[0:256],[{k}:{k + 4}]}}" for k in range(count)]
        names = ", ".join(f"p{k}" for k in range(count))
        joined = f"  all = f32[256,{4 * count}]{{1,0}} concatenate({names}), dimensions={{1}}"
        kept = "  kept = f32[256,512]{1,0} pad(all, zero), padding=0_0x0_0"
        return row("  zero = f32[] constant(0)", *made, joined, kept)

    assert len(wide(63).instructions) == 65  # the pad, the concatenation and 63 slices
    assert wide(64).reason == "recomputing it would reach too far back"


def test_what_is_needed_at_the_peak_stays_there() -> None:
    cap = hs.read(PROGRAM.format(made=matmul("kept", "x", "w")))
    memory = cap.memory
    assert memory.peak_instruction.name == "big"
    rows = {r.value.name: r for r in what_if(memory, cap.cost())}
    assert set(rows) == {"big", "r", "kept"}  # the peak's result, what it reads, what is kept
    assert rows["r"].reason == rows["big"].reason == "it is needed at the peak itself"
    assert rows["kept"].reason == ""
    assert rows["kept"].seconds is None  # no chip
    assert rows["kept"].bytes_accessed == 4 * (256 * 128 + 128 * 512 + 256 * 512)
    sizes = [r.saved_bytes for r in what_if(memory, cap.cost(), 2)]
    assert sizes == sorted((r.saved_bytes for r in rows.values()), reverse=True)[:2]
