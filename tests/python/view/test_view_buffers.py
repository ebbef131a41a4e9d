"""Buffers of the View: what takes memory in a run, and nothing else."""

from __future__ import annotations

import hloscope as hs
from hloscope.show import blocks
from hloscope.view.schema import joined

TWO_CONSTANTS = """HloModule m, is_scheduled=true

ENTRY e {
  p = f32[64,64] parameter(0)
  one = f32[] constant(1)
  c = f32[64,64] constant({...})
  b = f32[64,64] broadcast(one), dimensions={}
  a = f32[64,64] add(p, c)
  ROOT r = f32[64,64] multiply(a, b)
}
"""


def test_a_constant_of_an_element_is_in_the_code_and_no_buffer() -> None:
    cap = hs.read(TWO_CONSTANTS)
    _, columns = joined(blocks.view(cap), blocks.analyses(cap))
    names = {cap.module.instructions[i].name for i in columns["buffer.instruction"]}
    assert names == {"p", "c", "b", "a", "r"}
