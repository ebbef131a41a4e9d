"""The largest single cost of a step, against sums over the rows of ``cap.cost()``."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import hloscope as hs
import jax
import jax.numpy as jnp
import pytest


def shaped(*dims: int) -> Any:
    return jax.ShapeDtypeStruct(dims, jnp.float32)


def by_line(cap: hs.Capture) -> dict[str, float]:
    """Modelled seconds of every line, from the rows of the cost."""
    found: dict[str, float] = defaultdict(float)
    for row in cap.cost():
        found[row.line] += row.step_seconds or 0.0
    return found


def test_it_is_the_line_with_most_time_and_what_is_done_there() -> None:
    def step(x: Any, w: Any) -> Any:
        for _ in range(3):
            x = jnp.sin(x)
            x = x @ w
        return x

    cap = hs.capture(jax.jit(step), shaped(512, 4096), shaped(4096, 4096), hardware="tpu-v5e")
    most = cap.findings.headline.costliest
    assert most is not None
    lines = by_line(cap)
    assert most.line == max(lines, key=lambda line: lines[line])
    total = cap.findings.headline.seconds
    assert total is not None
    assert most.what == "matmul"
    assert most.share == pytest.approx(most.seconds / total)
    assert most.seconds <= lines[str(most.line)]
    assert "of the time in 3 matmuls at test_costliest.py:" in str(cap.findings)
    assert cap.findings.to_dict()["headline"]["costliest"]["number"] == 3


COPIES = """HloModule m, is_scheduled=true

ENTRY e {
  x = f32[4096,1024]{1,0} parameter(0)
  y = f32[1024]{0} parameter(1)
  a = f32[4096,1024]{1,0} copy(x)
  b = f32[4096,1024]{0,1} copy(a)
  s = f32[1024]{0} sine(y)
  ROOT t = (f32[4096,1024]{0,1}, f32[1024]{0}) tuple(b, s)
}
"""


def test_copies_are_named_and_a_dump_has_no_line() -> None:
    most = hs.read(COPIES, hardware="tpu-v5e").findings.headline.costliest
    assert most is not None
    assert (most.what, most.number, most.line) == ("copy", 2, None)
    assert str(most).endswith("of the time in 2 copies without a line")
    assert most.share > 0.99


def test_what_many_equal_parts_do_is_named_too() -> None:
    body = "".join(f"  y{k} = f32[65536] tanh(y{k - 1})\n" for k in range(1, 2000))
    text = (
        "HloModule m, is_scheduled=true\n\nENTRY e {\n  y0 = f32[65536] parameter(0)\n"
        f"{body}  ROOT z = f32[65536] sine(y1999)\n}}\n"
    )
    most = hs.read(text, hardware="tpu-v5e").findings.headline.costliest
    assert most is not None
    assert most.number == 2000


JOINED = """HloModule m, is_scheduled=true, num_partitions=4

FileNames
1 "train.py"

FunctionNames
1 "step"

FileLocations
1 {file_name_id=1 function_name_id=1 line=11 end_line=11 column=1 end_column=2}
2 {file_name_id=1 function_name_id=1 line=12 end_line=12 column=1 end_column=2}

StackFrames
1 {file_location_id=1 parent_frame_id=1}
2 {file_location_id=2 parent_frame_id=1}

add {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}

ENTRY e {
  x = f32[3000000]{0} parameter(0)
  y = f32[1000000]{0} parameter(1)
  p = f32[3000000]{0} sine(x), metadata={op_name="a" stack_frame_id=1}
  q = f32[1000000]{0} sine(y), metadata={op_name="b" stack_frame_id=2}
  r = (f32[3000000]{0}, f32[1000000]{0}) all-reduce(p, q), replica_groups={{0,1,2,3}}, channel_id=1, to_apply=add, metadata={op_name="a" stack_frame_id=1}
  s = f32[3000000]{0} get-tuple-element(r), index=0
  t = f32[1000000]{0} get-tuple-element(r), index=1
  ROOT o = (f32[3000000]{0}, f32[1000000]{0}) tuple(s, t)
}
"""  # noqa: E501


def test_a_transfer_that_serves_two_lines_is_not_the_cost_of_one() -> None:
    cap = hs.read(JOINED, hardware="tpu-v5e")
    most = cap.findings.headline.costliest
    assert most is not None
    assert (most.what, most.line) == ("all-reduce", "train.py:11")
    (whole,) = (row.step_seconds for row in cap.cost() if row.instruction.name == "r")
    assert whole is not None
    assert most.seconds == pytest.approx(whole * 3 / 4)


# A matmul that XLA fused with a step of a transfer, which is over before the matmul is.
FUSED = """HloModule m, is_scheduled=true, num_partitions=4

fused {
  a = bf16[4096,4096]{1,0} parameter(0)
  b = bf16[4096,4096]{1,0} parameter(1)
  c = bf16[1024,64]{1,0} parameter(2)
  g = bf16[4096,64]{1,0} all-gather(c), channel_id=1, replica_groups={{0,1,2,3}}, dimensions={0}, use_global_device_ids=true, frontend_attributes={chain_id="0"}
  d = bf16[4096,4096]{1,0} dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT t = (bf16[4096,4096]{1,0}, bf16[4096,64]{1,0}) tuple(d, g)
}

ENTRY e {
  x = bf16[4096,4096]{1,0} parameter(0)
  y = bf16[4096,4096]{1,0} parameter(1)
  z = bf16[1024,64]{1,0} parameter(2)
  ROOT f = (bf16[4096,4096]{1,0}, bf16[4096,64]{1,0}) fusion(x, y, z), kind=kOutput, calls=fused
}
"""  # noqa: E501


def test_a_matmul_beside_a_transfer_is_no_transfer() -> None:
    cap = hs.read(FUSED, hardware="tpu-v5e")
    most = cap.findings.headline.costliest
    assert most is not None
    assert len(cap.collectives) == 1
    assert most.what == "matmul"


def test_nothing_is_named_without_a_chip_or_a_schedule() -> None:
    assert hs.read(COPIES).findings.headline.costliest is None
    unscheduled = COPIES.replace(", is_scheduled=true", "")
    assert hs.read(unscheduled, hardware="tpu-v5e").findings.headline.costliest is None


CALLED = """HloModule m, is_scheduled=true

f {
  p = f32[4096,1024] parameter(0)
  z = f32[] constant(0), metadata={op_name="jit(f)/while/body/closed_call"}
  b = f32[4096,1024] broadcast(z), dimensions={}, metadata={op_name="jit(f)/while/body/closed_call"}
  ROOT a = f32[4096,1024] maximum(p, b), metadata={op_name="jit(f)/while/body/closed_call/max"}
}

ENTRY e {
  x = f32[4096,1024] parameter(0)
  ROOT y = f32[4096,1024] fusion(x), kind=kLoop, calls=f
}
"""


def test_a_call_is_no_operation() -> None:
    """XLA gives constants of a loop's body the name of the call that jax made for it."""
    most = hs.read(CALLED, hardware="tpu-v5e").findings.headline.costliest
    assert most is not None
    assert most.operations == ("max",)
