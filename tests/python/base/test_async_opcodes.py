"""Asynchronous operations in XLA's short spelling: slice-start and its like."""

from __future__ import annotations

import hloscope as hs
import pytest
from hloscope.analysis.base.collectives.async_opcodes import produced, wrapped
from hloscope.analysis.base.labels.families import FAMILIES, opcode_family

TEXT = """HloModule m, is_scheduled=true
ENTRY main {
  p = f32[1024,1024]{1,0} parameter(0)
  s = ((f32[1024,1024]{1,0}), f32[256,1024]{1,0:S(1)}, s32[]{:S(2)}) slice-start(p), slice={[0:256], [0:1024]}
  d = f32[256,1024]{1,0:S(1)} slice-done(s)
  ROOT x = f32[256,1024]{1,0} negate(d)
}
"""  # noqa: E501


@pytest.mark.parametrize(
    ("opcode", "inside"),
    [
        ("slice-start", ("slice", "start")),
        ("dynamic-slice-done", ("dynamic-slice", "done")),
        ("reduce-scatter-update", ("reduce-scatter", "update")),
        ("copy-start", None),
        ("all-reduce-done", None),
        ("async-start", None),
        ("send-done", None),
        ("add", None),
        ("start", None),
    ],
)
def test_what_an_opcode_wraps(opcode: str, inside: tuple[str, str] | None) -> None:
    assert wrapped(opcode) == inside


def test_a_background_slice_reads_and_writes_the_slice_alone() -> None:
    cap = hs.read(TEXT)
    module = cap.module
    s, d, _ = module.instructions[1:]
    assert produced(s).dense_text == "f32[256,1024]"
    cost = cap.cost("tpu-v5e")
    assert cost.unknown_flops == ()
    assert cost.row(s.index).flops == 0
    assert cost.row(s.index).bytes_accessed == 2 * 256 * 1024 * 4
    assert cost.row(d.index).bytes_accessed == 0
    # main memory is read once; what it writes lies in VMEM, S(1)
    assert cost.row(s.index).seconds == pytest.approx(256 * 1024 * 4 / 819e9)


def test_it_is_a_transfer_and_a_wrapped_collective_a_collective() -> None:
    def family(opcode: str) -> str:
        return FAMILIES[opcode_family(opcode)].id

    assert family("slice-start") == family("slice-done") == "transfer"
    assert family("reduce-scatter-start") == "collective"
    assert family("never-heard-of-start") == "other"


def test_a_background_update_reads_and_writes_the_update_alone() -> None:
    cap = hs.read(
        """HloModule m, is_scheduled=true
ENTRY main {
  p = f32[1024,1024]{1,0} parameter(0)
  u = f32[256,1024]{1,0:S(1)} parameter(1)
  z = s32[] constant(0)
  s = ((f32[1024,1024]{1,0}, f32[256,1024]{1,0:S(1)}, s32[], s32[]), f32[1024,1024]{1,0}, u32[]) dynamic-update-slice-start(p, u, z, z)
  ROOT d = f32[1024,1024]{1,0} dynamic-update-slice-done(s)
}
"""  # noqa: E501
    )
    row = cap.cost("tpu-v5e").row(cap.module.find("s").index)
    assert row.flops == 0
    assert row.bytes_accessed == 2 * 256 * 1024 * 4
    assert row.seconds == pytest.approx(256 * 1024 * 4 / 819e9)  # the update lies in VMEM


CALLED = """HloModule m, is_scheduled=true
%sum {
  %x = f32[] parameter(0)
  %y = f32[] parameter(1)
  ROOT %r = f32[] add(%x, %y)
}
%work {
  %a = f32[64,64]{1,0} parameter(0)
  %d = f32[64,64]{1,0} dot(%a, %a), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT %all = f32[64,64]{1,0} all-reduce(%d), replica_groups={{0,1}}, to_apply=%sum
}, execution_thread="other"
BODY
"""

LONG_AND_SHORT = {
    "call": (
        """%wrapped {
  %b = f32[64,64]{1,0} parameter(0)
  ROOT %c = f32[64,64]{1,0} call(%b), to_apply=%work
}, execution_thread="other"
""",
        "to_apply=%work",
        "f32[64,64]{1,0}",
    ),
    "add": (
        """%wrapped {
  %b = f32[64,64]{1,0} parameter(0)
  ROOT %c = f32[64,64]{1,0} add(%b, %b)
}, execution_thread="other"
""",
        "",
        "f32[64,64]{1,0}",
    ),
    "tanh": (
        """%wrapped {
  %b = f32[64,64]{1,0} parameter(0)
  ROOT %c = f32[64,64]{1,0} tanh(%b)
}, execution_thread="other"
""",
        "",
        "f32[64,64]{1,0}",
    ),
    "reduce-scatter": (
        """%wrapped {
  %b = f32[64,64]{1,0} parameter(0)
  ROOT %c = f32[32,64]{1,0} reduce-scatter(%b), replica_groups={{0,1}},
      dimensions={0}, to_apply=%sum
}, execution_thread="other"
""",
        "replica_groups={{0,1}}, dimensions={0}, to_apply=%sum",
        "f32[32,64]{1,0}",
    ),
}  # fmt: skip


@pytest.mark.parametrize("opcode", LONG_AND_SHORT)
def test_the_short_spelling_costs_what_the_long_one_does(opcode: str) -> None:
    """XLA prints ``async-start(…), calls=%wrapped`` as ``call-start(…), to_apply=%work``."""
    wrapped_in, attributes, result = LONG_AND_SHORT[opcode]
    figures = []
    for start, done, inside, more in (
        ("async-start", "async-done", wrapped_in, "calls=%wrapped"),
        (f"{opcode}-start", f"{opcode}-done", "", attributes),
    ):
        entry = (
            f"{inside}ENTRY %e {{\n  %p = f32[64,64]{{1,0}} parameter(0)\n"
            f"  %s = ((f32[64,64]{{1,0}}), {result}, u32[]) {start}(%p)"
            f"{', ' if more else ''}{more}\n  ROOT %d = {result} {done}(%s)\n}}"
        )
        cap = hs.read(CALLED.replace("BODY", entry))
        assert cap.warnings == ()
        cost = cap.cost("tpu-v5e")
        figures.append(
            (cost.total_flops, cost.total_transcendentals, cost.total_bytes, cost.unknown_flops,
             cap.collectives.wire_bytes, [c.kind for c in cap.collectives],
             cap.memory.peak_bytes)
        )  # fmt: skip
    if opcode == "add":  # one operand twice is one operand more for the long spelling's inside
        figures = [f[:2] + f[3:] for f in figures]
    assert figures[0] == figures[1]
    assert figures[0][0] > 0 or opcode == "tanh"
