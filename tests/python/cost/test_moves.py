"""Asynchronous copies as moves: kinds, slices, bytes, hidden and exposed time."""

from __future__ import annotations

import math

import hloscope as hs
from hloscope.analysis.base.labels.flags import MOVE, PLUMBING, flags
from hloscope.analysis.cost.moves import moves

PREFETCH = """HloModule m, is_scheduled=true

ENTRY main {
  p = f32[4096,4096]{1,0:T(8,128)} parameter(0)
  w = f32[4096,4096]{1,0:T(8,128)} parameter(1)
  s = (f32[4096,4096]{1,0:T(8,128)S(1)}, f32[4096,4096]{1,0:T(8,128)}, u32[]) copy-start(w)
  WORK
  d = f32[4096,4096]{1,0:T(8,128)S(1)} copy-done(s)
  ROOT r = f32[4096,4096]{1,0:T(8,128)} convolution(q, d), dim_labels=bf_io->bf
}
"""
BUSY = "q = f32[4096,4096]{1,0:T(8,128)} convolution(p, p), dim_labels=bf_io->bf"
IDLE = "q = f32[4096,4096]{1,0:T(8,128)} bitcast(p)"

SLICED = """HloModule m, is_scheduled=true

ENTRY main {
  w = f32[8,128]{1,0} parameter(0)
  a = ((f32[8,128]{1,0}), f32[4,128]{1,0:S(1)}, s32[]) slice-start(w), slice={[0:4], [0:128]}
  b = ((f32[8,128]{1,0}), f32[4,128]{1,0:S(1)}, s32[]) slice-start(w), slice={[4:8], [0:128]}
  x = f32[4,128]{1,0:S(1)} slice-done(a)
  y = f32[4,128]{1,0:S(1)} slice-done(b)
  c = f32[8,128]{1,0:S(1)} custom-call(x, y), custom_call_target="ConcatBitcast"
  ROOT r = f32[8,128]{1,0} add(c, c)
}
"""

OFFLOAD = """HloModule m, is_scheduled=true

ENTRY main {
  p = f32[1024]{0} parameter(0)
  a = f32[1024]{0} negate(p)
  s = (f32[1024]{0:S(5)}, f32[1024]{0}, u32[]) copy-start(a)
  d = f32[1024]{0:S(5)} copy-done(s)
  t = (f32[1024]{0}, f32[1024]{0:S(5)}, u32[]) copy-start(d)
  e = f32[1024]{0} copy-done(t)
  ROOT r = f32[1024]{0} add(e, a)
}
"""


def _moves(text: str, hardware: str | None = None):
    found = hs.read(text)
    if hardware:
        found.hardware = hardware
    return found.module, moves(found.module, found.target)


def test_a_prefetch_is_hidden_by_a_matmul_and_exposed_without():
    _, (hidden,) = _moves(PREFETCH.replace("WORK", BUSY), "tpu-v5e")
    _, (exposed,) = _moves(PREFETCH.replace("WORK", IDLE), "tpu-v5e")
    assert hidden.kind == exposed.kind == "prefetch"
    assert hidden.bytes == exposed.bytes == 4096 * 4096 * 4
    assert hidden.seconds == exposed.seconds > 0
    assert hidden.exposed == 0
    assert exposed.exposed == exposed.seconds  # nothing runs between start and done


def test_without_a_chip_time_is_unknown():
    _, (move,) = _moves(PREFETCH.replace("WORK", BUSY))
    assert math.isnan(move.seconds)
    assert math.isnan(move.exposed)


def test_slices_put_together_are_one_move():
    module, (move,) = _moves(SLICED)
    assert len(move.starts) == 2
    assert module.instructions[move.end].name == "c"
    assert module.instructions[move.source].name == "w"
    assert move.bytes == 8 * 128 * 4


def test_offload_goes_to_the_host_and_comes_from_it():
    module, found = _moves(OFFLOAD)
    assert [m.kind for m in found] == ["to host", "from host"]
    assert {m.bytes for m in found} == {4096.0}
    contracted = flags(module) & (MOVE | PLUMBING)
    names = [i.name for i, f in zip(module.instructions, contracted, strict=True) if f & MOVE]
    assert names == ["s", "d", "t", "e"]


def test_the_end_of_a_collective_is_part_of_it():
    text = """HloModule m, is_scheduled=true, replica_count=4

ENTRY main {
  p = f32[64] parameter(0)
  s = (f32[64], f32[256]) all-gather-start(p), replica_groups={{0,1,2,3}}, dimensions={0}
  n = f32[64] negate(p)
  d = f32[256] all-gather-done(s)
  ROOT r = (f32[256], f32[64]) tuple(d, n)
}
"""
    module, (move,) = _moves(text)
    assert move.kind == "all-gather"
    start, done = (next(i for i in module.instructions if i.name == n) for n in "sd")
    assert (move.starts, move.end) == ((start.index,), done.index)
    assert flags(module)[done.index] & MOVE
    assert not flags(module)[start.index] & MOVE
