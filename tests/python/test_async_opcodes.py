"""Asynchronous operations in XLA's short spelling: slice-start and its like."""

from __future__ import annotations

import hloscope as hs
import pytest
from hloscope.analysis.base.async_opcodes import produced, wrapped
from hloscope.analysis.base.families import FAMILIES, opcode_family

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
