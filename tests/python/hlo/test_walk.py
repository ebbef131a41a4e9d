"""The one walker: where a value comes from and where it goes, on small programs."""

from __future__ import annotations

import hloscope as hs
import pytest
from hloscope.hlo import Instruction, Module, opcodes, walk


def program(text: str) -> Module:
    module = hs.read("HloModule m\n" + text).module
    assert module.warnings == ()
    return module


def at(module: Module, name: str) -> Instruction:
    found = module.find(name)
    assert found is not None
    return found


def source(module: Module, name: str, through: walk.Through, **how: bool) -> str:
    found = walk.source(at(module, name), through, **how)
    return found.instruction.name + "".join(f"[{k}]" for k in found.element)


def used_by(module: Module, name: str, through: walk.Through, **how: bool) -> set[tuple[str, int]]:
    found = walk.uses(at(module, name), through, **how)
    return {(use.instruction.name, use.operand) for use in found}


MOVED = """
ENTRY e {
  x = f32[8,4] parameter(0)
  n = s32[] parameter(1)
  i0 = f32[8,4] INTO
  ROOT r = f32[8,4] add(i0, i0)
}
"""
# How the value is handed on, and the smallest class of opcodes that leads back to it.
HANDED_ON = {
    "copy(x)": opcodes.SAME_VALUE,
    "opt-barrier(x)": opcodes.SAME_VALUE,
    "optimization-barrier(x)": opcodes.SAME_VALUE,
    'custom-call(x), custom_call_target="Sharding"': opcodes.SAME_VALUE,
    'custom-call(x), custom_call_target="MoveToHost"': opcodes.SAME_VALUE,
    "bitcast(x)": opcodes.SAME_ORDER,
    "reshape(x)": opcodes.SAME_ORDER,
    "reverse(x), dimensions={0}": opcodes.SAME_ELEMENTS,
    "transpose(x), dimensions={0,1}": opcodes.SAME_ELEMENTS,
    "convert(x)": opcodes.SAME_SHAPE,
    "reduce-precision(x), exponent_bits=8, mantissa_bits=7": opcodes.SAME_SHAPE,
    "slice(x), slice={[0:8],[0:4]}": opcodes.PART_OF_ONE,
    "dynamic-slice(x, n, n), dynamic_slice_sizes={8,4}": opcodes.PART_OF_ONE,
    'custom-call(x), custom_call_target="ZeroCrop"': opcodes.PART_OF_ONE,
    "broadcast(x), dimensions={0,1}": opcodes.SAME_ORDER,  # it repeats nothing
}


@pytest.mark.parametrize("text", HANDED_ON)
def test_a_value_is_followed_through_the_classes_that_contain_its_opcode(text: str) -> None:
    module = program(MOVED.replace("INTO", text))
    classes = (
        opcodes.SAME_VALUE, opcodes.SAME_SHAPE, opcodes.SAME_ORDER, opcodes.SAME_ELEMENTS,
        opcodes.SAME_NUMBERS, opcodes.PART_OF_ONE, opcodes.REPEATED, opcodes.MOVES,
    )  # fmt: skip
    smallest = HANDED_ON[text]
    for each in classes:
        if each >= smallest:
            assert source(module, "i0", each) == "x"
            assert ("r", 0) in used_by(module, "x", each)
    for each in (c for c in classes if c < smallest):
        assert source(module, "i0", each) == "i0"
        assert used_by(module, "x", each) == {("i0", 0)}


def test_a_custom_call_is_what_its_target_does() -> None:
    module = program(PIECES)
    assert walk.acts_as(at(module, "one")) == "concatenate"
    assert walk.acts_as(at(module, "a")) == "slice"


ASYNCHRONOUS = """
slicing { p = f32[8] parameter(0)
  ROOT s = f32[4] slice(p), slice={[0:4]} }
ENTRY e {
  x = f32[8] parameter(0)
  c0 = (f32[8], f32[8], u32[]) copy-start(x)
  c1 = f32[8] copy-done(c0)
  s0 = ((f32[8]), f32[4], u32[]) slice-start(c1), slice={[0:4]}
  s1 = f32[4] slice-done(s0)
  a0 = ((f32[8]), f32[4], u32[]) async-start(c1), calls=slicing
  a1 = f32[4] async-done(a0), calls=slicing
  g0 = (f32[4], f32[8]) all-gather-start(s1), dimensions={0}, replica_groups={{0,1}}
  g1 = f32[8] all-gather-done(g0)
  ROOT r = f32[4] add(s1, a1)
}
"""


def test_both_halves_of_an_asynchronous_operation_are_one_step() -> None:
    module = program(ASYNCHRONOUS)
    assert source(module, "c1", opcodes.SAME_VALUE) == "x"
    assert source(module, "s1", opcodes.SAME_VALUE) == "s1"
    assert source(module, "s1", opcodes.PART_OF_ONE) == "x"
    assert source(module, "a1", opcodes.PART_OF_ONE) == "a1"
    assert source(module, "a1", opcodes.PART_OF_ONE | opcodes.CALLS) == "x"
    assert source(module, "g1", opcodes.PART_OF_ONE) == "g1"
    assert source(module, "g1", opcodes.PART_OF_ONE | opcodes.RESHARDS) == "x"
    parts = opcodes.PART_OF_ONE | opcodes.CALLS
    assert used_by(module, "x", parts) == {("r", 0), ("r", 1), ("g0", 0)}


PIECES = """
ENTRY e {
  x = f32[8] parameter(0)
  y = f32[8] parameter(1)
  a = f32[4] slice(x), slice={[0:4]}
  b = f32[4] slice(x), slice={[4:8]}
  c = f32[4] slice(y), slice={[4:8]}
  one = f32[8] custom-call(a, b), custom_call_target="ConcatBitcast"
  two = f32[8] custom-call(a, c), custom_call_target="ConcatBitcast"
  ROOT r = f32[8] add(one, two)
}
"""


def test_pieces_of_one_array_put_together_come_from_it() -> None:
    module = program(PIECES)
    assert source(module, "one", opcodes.MOVES) == "x"
    assert source(module, "two", opcodes.MOVES) == "two"
    ends = {p.instruction.name for p in walk.sources(at(module, "two"), opcodes.MOVES)}
    assert ends == {"x", "y"}


LOOP = """
body { p = (s32[], f32[8], f32[8]) parameter(0)
  k = s32[] get-tuple-element(p), index=0
  w = f32[8] get-tuple-element(p), index=1
  v = f32[8] get-tuple-element(p), index=2
  same = f32[8] copy(w)
  one = s32[] constant(1)
  n = s32[] add(k, one)
  s = f32[8] multiply(v, w)
  ROOT t = (s32[], f32[8], f32[8]) tuple(n, same, s) }
cond { q = (s32[], f32[8], f32[8]) parameter(0)
  j = s32[] get-tuple-element(q), index=0
  b = s32[] constant(5)
  ROOT c = pred[] compare(j, b), direction=LT }
ENTRY e {
  x = f32[8] parameter(0)
  y = f32[8] parameter(1)
  z = s32[] constant(0)
  t0 = (s32[], f32[8], f32[8]) tuple(z, x, y)
  l = (s32[], f32[8], f32[8]) while(t0), condition=cond, body=body
  l1 = f32[8] get-tuple-element(l), index=1
  l2 = f32[8] get-tuple-element(l), index=2
  ROOT r = f32[8] add(l1, l2) }
"""


def test_a_loop_is_passed_by_what_each_trip_hands_on_unchanged() -> None:
    module = program(LOOP)
    through = opcodes.SAME_VALUE | opcodes.LOOPS
    assert source(module, "l1", through) == source(module, "w", through) == "x"
    assert source(module, "l2", through) == "l[2]"
    assert source(module, "v", through) == "p[2]"
    assert source(module, "l1", opcodes.SAME_VALUE) == "l[1]"
    assert source(module, "w", opcodes.SAME_VALUE) == "p[1]"
    found = {p.instruction.name for p in walk.sources(at(module, "l2"), through)}
    assert found == {"y", "s"}
    assert used_by(module, "x", through) == {("r", 0), ("s", 1)}
    assert used_by(module, "y", through) == {("s", 0)}
    assert used_by(module, "x", opcodes.SAME_VALUE) == {("l", 0)}


BRANCHES = """
yes { a = f32[8] parameter(0)
  ROOT a1 = f32[8] copy(a) }
no { b = f32[8] parameter(0)
  ROOT b1 = f32[8] reshape(b) }
ENTRY e {
  p = pred[] parameter(0)
  x = f32[8] parameter(1)
  y = f32[8] parameter(2)
  one = f32[8] conditional(p, x, x), true_computation=yes, false_computation=no
  two = f32[8] conditional(p, x, y), true_computation=yes, false_computation=no
  ROOT r = f32[8] add(one, two) }
"""


def test_a_branch_is_passed_where_all_return_the_same() -> None:
    module = program(BRANCHES)
    through = opcodes.SAME_ORDER | opcodes.BRANCHES
    assert source(module, "one", through) == "x"
    assert source(module, "two", through) == "two"
    both = {p.instruction.name for p in walk.sources(at(module, "two"), through)}
    assert both == {"x", "y"}
    assert used_by(module, "y", through) == {("r", 1)}
    assert used_by(module, "p", through) == {("one", 0), ("two", 0)}


CALLS = """
twice { a = f32[8] parameter(0)
  ROOT a1 = f32[8] copy(a) }
ENTRY e {
  x = f32[8] parameter(0)
  y = f32[8] parameter(1)
  f = f32[8] call(x), to_apply=twice
  g = f32[8] call(y), to_apply=twice
  ROOT r = f32[8] add(f, g) }
"""


def test_a_function_called_twice_returns_to_the_call_it_was_entered_from() -> None:
    module = program(CALLS)
    through = opcodes.SAME_VALUE | opcodes.CALLS
    assert source(module, "f", through) == "x"
    assert source(module, "g", through) == "y"
    assert source(module, "a1", through) == "a"  # of which call, nobody knows
    assert {p.instruction.name for p in walk.sources(at(module, "a1"), through)} == {"x", "y"}
    assert used_by(module, "x", through) == {("r", 0)}


FUSIONS = """
moving { p0 = f32[8] parameter(0)
  p1 = f32[8] parameter(1)
  c = bf16[8] convert(p1)
  ROOT b = bf16[2,4] bitcast(c) }
computing { q0 = f32[8] parameter(0)
  n = f32[8] negate(q0)
  ROOT two = (f32[8], f32[8]) tuple(q0, n) }
ENTRY e {
  x = f32[8] parameter(0)
  y = f32[8] parameter(1)
  m = bf16[2,4] fusion(x, y), kind=kLoop, calls=moving
  f = (f32[8], f32[8]) fusion(y), kind=kLoop, calls=computing
  f0 = f32[8] get-tuple-element(f), index=0
  f1 = f32[8] get-tuple-element(f), index=1
  ROOT r = (bf16[2,4], f32[8], f32[8]) tuple(m, f0, f1) }
"""


def test_a_fusion_is_passed_by_the_values_that_it_only_moves() -> None:
    module = program(FUSIONS)
    through = opcodes.SAME_NUMBERS | opcodes.FUSIONS
    assert source(module, "m", through) == "y"
    assert source(module, "m", opcodes.SAME_ORDER | opcodes.FUSIONS) == "m"
    assert source(module, "f0", through) == "y"
    assert source(module, "f1", through) == "f[1]"
    assert source(module, "f1", through, inside_fusions=True) == "n"
    assert used_by(module, "y", through) == {("f", 0)}
    assert used_by(module, "y", through, inside_fusions=True) == {("n", 0)}
    held = {p.instruction.name for p in walk.forward(at(module, "y"), through)}
    assert held == {"y", "m", "f", "f0", "r"}


def test_a_walk_stops_where_its_caller_says() -> None:
    module = program(LOOP)
    r = at(module, "r")
    every = opcodes.ANYTHING
    near = {p.instruction.name for p in walk.back(r, every, reach=1)}
    assert near == {"r", "l1", "l2"}
    no_loop = walk.back(r, every, where=lambda p: p.instruction.opcode != "while")
    assert {p.instruction.name for p in no_loop} == {"r", "l1", "l2"}
    only_named = walk.back(r, lambda i: i.name in ("r", "l1"))
    assert [p.instruction.name for p in only_named] == ["r", "l1", "l2", "l"]
    assert {u.instruction.name for u in walk.uses(at(module, "x"), every, reach=0)} == set()


def test_what_is_too_much_to_look_at_is_an_end_and_not_nothing() -> None:
    many = range(walk.MOST)
    text = "".join(f"  s{k} = f32[8] sine(x)\n" for k in many)
    module = program(
        f"ENTRY e {{\n  x = f32[8] parameter(0)\n  y = f32[8] parameter(1)\n{text}"
        "  c = f32[8] cosine(y)\n  m = f32[80008] concatenate("
        f"{', '.join(f's{k}' for k in many)}, c), dimensions={{0}}\n"
        "  ROOT r = f32[80016] concatenate(x, m), dimensions={0}\n}\n"
    )
    ends = {p.instruction.opcode for p in walk.sources(at(module, "r"), opcodes.ANYTHING)}
    assert ends != {"parameter"}  # x alone would be said to be all that it is made of
    near = {p.instruction.name for p in walk.sources(at(module, "s7"), opcodes.ANYTHING)}
    assert near == {"x"}


def test_a_damaged_program_ends_a_walk() -> None:
    """Whatever calls itself or lacks its operands has an end."""
    text = """
    body { p = (f32[8]) parameter(0)
      ROOT l = (f32[8]) while(p), condition=cond, body=body }
    cond { q = (f32[8]) parameter(0)
      ROOT c = pred[] constant(false) }
    ENTRY e { x = f32[8] parameter(0)
      t = (f32[8]) tuple(x)
      w = (f32[8]) while(t), condition=cond, body=body
      g = f32[8] get-tuple-element(w), index=7
      ROOT h = f32[8] get-tuple-element(w), index=0 }
    """
    module = hs.read("HloModule m\n" + text).module
    for name in ("g", "h", "l", "q"):
        start = at(module, name)
        assert list(walk.back(start, opcodes.ANYTHING))
        assert list(walk.forward(start, opcodes.ANYTHING))
        assert walk.source(start, opcodes.ANYTHING)


OFFSETS = """
ENTRY e {
  x = f32[8] parameter(0)
  y = f32[8] parameter(1)
  d = u32[] partition-id()
  n = s32[] convert(d)
  p = pred[8] parameter(2)
  cut = f32[4] dynamic-slice(x, n), dynamic_slice_sizes={4}
  one = f32[8] select(p, x, y)
  ROOT r = (f32[4], f32[8]) tuple(cut, one) }
"""


def test_a_walk_follows_data_and_offsets_only_as_dependencies() -> None:
    module = program(OFFSETS)
    every = opcodes.ANYTHING
    cut = at(module, "cut")
    assert {p.instruction.name for p in walk.back(cut, every)} == {"cut", "x"}
    all_of_it = walk.back(cut, every, dependencies=True)
    assert {p.instruction.name for p in all_of_it} == {"cut", "x", "n", "d"}
    assert used_by(module, "p", every) == {("one", 0)}
    assert used_by(module, "p", every, dependencies=True) == set()
