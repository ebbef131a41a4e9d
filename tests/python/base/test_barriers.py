"""Optimisation barriers: opt-barrier to XLA, optimization-barrier elsewhere, and one thing."""

from __future__ import annotations

import importlib
import pkgutil

import hloscope as hs
import hloscope.analysis
import hloscope.hlo
import hloscope.readers
import pytest
from hloscope.analysis.base.labels.families import FAMILIES, families
from hloscope.analysis.base.labels.flags import PLUMBING, flags
from hloscope.analysis.base.labels.labels import labels
from hloscope.analysis.base.loops.trips import trip_count
from hloscope.analysis.base.operands import source_of
from hloscope.hlo import Target
from hloscope.hlo.opcodes import BARRIERS

LOOP = """HloModule m, is_scheduled=true

body {
  b = (s32[], f32[64,64]) parameter(0)
  held = (s32[], f32[64,64]) BARRIER(b)
  n = s32[] get-tuple-element(held), index=0
  x = f32[64,64] get-tuple-element(held), index=1
  one = s32[] constant(1)
  next = s32[] add(n, one)
  y = f32[64,64] tanh(x)
  ROOT out = (s32[], f32[64,64]) tuple(next, y)
}

condition {
  c = (s32[], f32[64,64]) parameter(0)
  ci = s32[] get-tuple-element(c), index=0
  cb = s32[] BARRIER(ci)
  seven = s32[] constant(7)
  ROOT less = pred[] compare(cb, seven), direction=LT
}

ENTRY main {
  w = f32[64,64] parameter(0), metadata={op_name="w"}
  kept = f32[64,64] BARRIER(w)
  zero = s32[] constant(0)
  begin = (s32[], f32[64,64]) tuple(zero, kept)
  loop = (s32[], f32[64,64]) while(begin), condition=condition, body=body
  last = f32[64,64] get-tuple-element(loop), index=1
  ROOT r = f32[64,64] BARRIER(last)
}
"""


@pytest.mark.parametrize("word", BARRIERS)
def test_a_barrier_costs_nothing_and_hides_nothing_under_either_name(word: str) -> None:
    cap = hs.read(LOOP.replace("BARRIER", word))
    module = cap.module
    assert module.warnings == ()
    found = {i.name: i.index for i in module.instructions}
    said = labels(module)
    # the counter and the argument are found behind barriers, and so are seven trips
    assert (said[found["n"]], said[found["x"]], said[found["last"]]) == ("counter", "w", "w")
    assert trip_count(module.find("loop")) == 7
    assert source_of(module.find("kept"), Target()).name == "w"
    for name in ("held", "cb", "kept", "r"):
        assert FAMILIES[families(module)[found[name]]].id == "plumbing"
        assert flags(module)[found[name]] & PLUMBING
        assert not cap.cost().bytes[found[name]]
    # an addition in each of seven turns, a comparison before each of eight
    assert cap.cost().total_flops == 7 + 8
    # next reads and writes 12 bytes, tanh 2·64·64·4, less 4 + 4 + 1
    assert cap.cost().total_bytes == 7 * (12 + 2 * 64 * 64 * 4) + 8 * 9
    # the array in one place from argument to result, beside it what next and less make
    assert cap.memory.peak_bytes == 64 * 64 * 4 + 4 + 1


def tables() -> list[tuple[str, object]]:
    out = []
    for package in (hloscope.hlo, hloscope.readers, hloscope.analysis):
        for at in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            module = importlib.import_module(at.name)
            out += [(f"{at.name}.{name}", value) for name, value in vars(module).items()]
    return out


def test_no_table_knows_one_name_alone() -> None:
    known = 0
    for name, value in tables():
        if isinstance(value, dict | frozenset | set | tuple | list):
            held = [word in value for word in BARRIERS]
            assert held[0] == held[1], name
            known += held[0]
    assert known > 15
