"""Which values share a buffer, take another's place, or lie where an output will be."""

# ruff: noqa: E501

from __future__ import annotations

import hloscope as hs
import pytest
from hloscope.analysis.memory.memory import Memory

F = "f32[8]"
CALLED = """
%double (a: f32[8]) -> f32[8] {
  %a = f32[8] parameter(0)
  ROOT %aa = f32[8] add(%a, %a)
}
%swap (p: (f32[8], f32[8])) -> (f32[8], f32[8]) {
  %p = (f32[8], f32[8]) parameter(0)
  %p0 = f32[8] get-tuple-element(%p), index=0
  %p1 = f32[8] get-tuple-element(%p), index=1
  %new = f32[8] reverse(%p0), dimensions={0}
  ROOT %turned = (f32[8], f32[8]) tuple(%new, %p1)
}
%more (q: (f32[8], f32[8])) -> pred[] {
  %q = (f32[8], f32[8]) parameter(0)
  ROOT %yes = pred[] constant(true)
}
%put (b: f32[8], u: f32[2], k: s32[]) -> f32[8] {
  %b = f32[8] parameter(0)
  %u = f32[2] parameter(1)
  %k = s32[] parameter(2)
  %bb = f32[8] bitcast(%b)
  ROOT %dus = f32[8] dynamic-update-slice(%bb, %u, %k)
}
%putboth (b: f32[8], c: f32[8], u: f32[2], k: s32[]) -> (f32[8], f32[8]) {
  %b.1 = f32[8] parameter(0)
  %c.1 = f32[8] parameter(1)
  %u.1 = f32[2] parameter(2)
  %k.1 = s32[] parameter(3)
  %d1 = f32[8] dynamic-update-slice(%c.1, %u.1, %k.1)
  %d2 = f32[8] negate(%b.1)
  ROOT %both = (f32[8], f32[8]) tuple(%d1, %d2)
}
"""


def memory_of(body: str, head: str = "", called: str = CALLED) -> Memory:
    text = f"HloModule m, is_scheduled=true{head}\n{called}\nENTRY %main {{\n{body.strip(chr(10))}\n}}\n"
    cap = hs.read(text)
    assert not cap.module.warnings, cap.module.warnings
    return cap.memory


def shared(memory: Memory) -> set[str]:
    """Leaves of ENTRY that lie in one buffer, as "a b.0"; those alone are left out."""
    live = memory.liveness
    groups: dict[int, list[str]] = {}
    for i in memory.module.entry.instructions:
        nodes = live.values.nodes(i)
        for k, v in enumerate(nodes):
            name = f"{i.name}.{k}" if i.shape.is_tuple else i.name
            groups.setdefault(int(live.buffer_of[v]), []).append(name)
    return {" ".join(sorted(names)) for names in groups.values() if len(names) > 1}


GIVEN = """
  %x = f32[8] parameter(0)
  %y = f32[8] parameter(1)
  %k = s32[] parameter(2)
  %u = f32[2] parameter(3)
  %a = f32[8] reverse(%x), dimensions={0}
  %b = f32[8] reverse(%y), dimensions={0}
"""
# What ENTRY does with %a and %b, and which leaves then must lie in one buffer.
RULES = {
    "  ROOT %t = (f32[8], f32[8]) tuple(%a, %b)": {"a t.0", "b t.1"},
    "  %t = (f32[8], f32[8]) tuple(%a, %b)\n"
    "  ROOT %g = f32[8] get-tuple-element(%t), index=1": {"a t.0", "b g t.1"},
    "  %t = (f32[8], f32[8]) tuple(%a, %b)\n"
    "  %n = ((f32[8], f32[8]), f32[8]) tuple(%t, %x)\n"
    "  %g = (f32[8], f32[8]) get-tuple-element(%n), index=0\n"
    "  %h = f32[8] get-tuple-element(%n), index=1\n"
    "  %i = f32[8] get-tuple-element(%g), index=1\n"
    "  ROOT %s = f32[8] add(%h, %i)": {"a g.0 n.0 t.0", "b g.1 i n.1 t.1", "h n.2 x"},
    "  %c = f32[4,2] bitcast(%a)\n  ROOT %r = f32[4,2] reverse(%c), dimensions={0}": {"a c"},
    "  ROOT %d = f32[8] dynamic-update-slice(%a, %u, %k)": {"a d"},
    "  %i = s32[2,1] iota(), iota_dimension=0\n"
    "  ROOT %d = f32[8] scatter(%a, %i, %u), to_apply=%double": {"a d"},
    "  %i = s32[2,1] iota(), iota_dimension=0\n"
    "  ROOT %d = (f32[8], f32[8]) scatter(%a, %b, %i, %u, %u), to_apply=%double": {"a d.0", "b d.1"},
    "  ROOT %c = f32[8] call(%a), to_apply=%double": set(),
    "  ROOT %f = f32[8] fusion(%a, %u, %k), kind=kLoop, calls=%put": {"a f"},
    "  ROOT %f = (f32[8], f32[8]) fusion(%a, %b, %u, %k), kind=kLoop, calls=%putboth": {"b f.0"},
    "  ROOT %e = f32[8] custom-call(%a, %b), custom_call_target=\"f\", "
    "output_to_operand_aliasing={{}: (1, {})}": {"b e"},
    "  ROOT %e = (f32[8], f32[8]) custom-call(%a, %b), custom_call_target=\"f\", "
    "output_to_operand_aliasing={{1}: (0, {})}": {"a e.1"},
    "  %t = (f32[8], f32[8]) tuple(%a, %b)\n"
    "  ROOT %e = f32[8] custom-call(%t), custom_call_target=\"f\", "
    "output_to_operand_aliasing={{}: (0, {1})}": {"a t.0", "b e t.1"},
    # damaged: there is no third element, nor a second operand
    "  ROOT %e = (f32[8], f32[8]) custom-call(%a), custom_call_target=\"f\", "
    "output_to_operand_aliasing={{2}: (0, {}), {0}: (1, {}), {1}: (0, {})}": {"a e.1"},
    "  %t = (f32[8], f32[8]) tuple(%a, %b)\n"
    "  ROOT %w = (f32[8], f32[8]) while(%t), condition=%more, body=%swap": {"a t.0 w.0", "b t.1 w.1"},
    "  %s = (f32[8], f32[8], u32[]) copy-start(%a)\n"
    "  ROOT %d = f32[8] copy-done(%s)": {"a s.1", "d s.0"},
    "  %s = f32[8] all-reduce-start(%a), to_apply=%double\n"
    "  ROOT %d = f32[8] all-reduce-done(%s)": {"a d s"},
    "  %s = (f32[8], f32[16]) all-gather-start(%a), dimensions={0}, replica_groups={{0,1}}\n"
    "  ROOT %d = f32[16] all-gather-done(%s)": {"a s.0", "d s.1"},
    "  %s = ((f32[8]), f32[8], u32[]) async-start(%a), calls=%double\n"
    "  %v = ((f32[8]), f32[8], u32[]) async-update(%s)\n"
    "  ROOT %d = f32[8] async-done(%v)": {"a s.0 v.0", "d s.1 v.1", "s.2 v.2"},
    "  ROOT %p = f32[8] collective-permute(%a, %b), source_target_pairs={{0,1}}": {"b p"},
    "  ROOT %p = f32[8] collective-permute(%a), source_target_pairs={{0,1}}": set(),
    "  %o = (f32[8], f32[8]) opt-barrier(%t2)\n"
    "  ROOT %g = f32[8] get-tuple-element(%o), index=0": {"a g o.0 t2.0", "b o.1 t2.1"},
}  # fmt: skip


@pytest.mark.parametrize("body", RULES)
def test_what_must_lie_in_one_buffer(body: str) -> None:
    given = GIVEN + ("  %t2 = (f32[8], f32[8]) tuple(%a, %b)\n" if "%t2" in body else "")
    assert shared(memory_of(given + body)) == RULES[body]


def test_a_parameter_of_two_calls_holds_two_values() -> None:
    body = "  %c = f32[8] call(%a), to_apply=%double\n  %d = f32[8] call(%b), to_apply=%double\n"
    memory = memory_of(GIVEN + body + "  ROOT %e = f32[8] add(%c, %d)")
    live = memory.liveness
    several = {v.name: bool(live.has_several[b]) for b in range(len(live.size))
               for v in [memory.value(b)]}  # fmt: skip
    assert several["a"]  # with %b in one place: the parameter
    once = memory_of(GIVEN + "  ROOT %c = f32[8] call(%a), to_apply=%double")
    assert not once.liveness.has_several.any()
    loop = "  %t = (f32[8], f32[8]) tuple(%a, %b)\n"
    loop += "  ROOT %w = (f32[8], f32[8]) while(%t), condition=%more, body=%swap"
    live = memory_of(GIVEN + loop).liveness
    nodes = live.values.nodes(live.module.find("w"))
    assert [bool(live.has_several[live.buffer_of[v]]) for v in nodes] == [True, True]


FUSED = """
%loop (a: f32[8], b: f32[8]) -> f32[8] {
  %a = f32[8] parameter(0)
  %b = f32[8] parameter(1)
  %n = f32[8] negate(%a)
  %r = f32[8] reverse(%b), dimensions={0}
  ROOT %s = f32[8] add(%n, %r)
}
%product (a: f32[8,8], b: f32[8,8], c: f32[8,8]) -> f32[8,8] {
  %a.1 = f32[8,8] parameter(0)
  %b.1 = f32[8,8] parameter(1)
  %c.1 = f32[8,8] parameter(2)
  %d.1 = f32[8,8] dot(%a.1, %b.1), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT %s.1 = f32[8,8] add(%d.1, %c.1)
}
%less (a: f32[], b: f32[]) -> pred[] {
  %a.2 = f32[] parameter(0)
  %b.2 = f32[] parameter(1)
  ROOT %lt = pred[] compare(%a.2, %b.2), direction=LT
}
%order (a: f32[], b: f32[], c: f32[], d: f32[]) -> pred[] {
  %a.3 = f32[] parameter(0)
  %b.3 = f32[] parameter(1)
  %c.3 = f32[] parameter(2)
  %d.3 = f32[] parameter(3)
  ROOT %lt.1 = pred[] compare(%a.3, %b.3), direction=LT
}
"""
# An op of %a and %b, which die there, and whose place its result takes: the first that it may.
TAKES = {
    "f32[8] add(%a, %b)": "a",
    "f32[8] tanh(%b)": "b",
    "f32[8] reverse(%a), dimensions={0}": "",
    "f32[8] copy(%a)": "",
    "f32[8] fusion(%a, %b), kind=kLoop, calls=%loop": "a",
    "f32[8] fusion(%b, %a), kind=kLoop, calls=%loop": "b",
    "f32[8] fusion(%b, %a), kind=kCustom, calls=%loop": "",
    "f32[8] fusion(%a, %a), kind=kLoop, calls=%loop": "",  # read in two ways
    "f32[8] sort(%a), dimensions={0}, to_apply=%less": "a",
    "s32[8] negate(%a)": "",
}  # fmt: skip


@pytest.mark.parametrize("made", TAKES)
def test_whose_place_a_result_takes(made: str) -> None:
    # The output is too small for any of them, so nothing lies where it will be.
    head = "  %x = f32[8] parameter(0)\n"
    head += "  %a = f32[8] reverse(%x), dimensions={0}\n  %b = f32[8] reverse(%x), dimensions={0}\n"
    end = f"  %c = {made}\n  ROOT %o = f32[1] slice(%c), slice={{[0:1]}}"
    memory = memory_of(head + end, called=FUSED)
    live = memory.liveness
    names = [memory.value(b).name for b in range(len(live.size))]
    taken = int(live.shared[names.index("c")])
    assert (names[taken] if taken >= 0 else "") == TAKES[made]
    # 36 B of argument and output; one place of 32 B less where a place is taken
    at = [memory.module.instructions[n].name for n in memory.schedule].index("c")
    operands = len({o.name for o in memory.module.find("c").operands})
    assert memory.timeline[at] == 36 + 32 * (operands + (TAKES[made] == ""))


@pytest.mark.parametrize(
    ("made", "taken"),
    [
        ("fusion(%a, %b, %c), kind=kOutput, calls=%product", "c"),
        ("fusion(%c, %b, %a), kind=kOutput, calls=%product", "a"),
        ("fusion(%a, %b, %a), kind=kOutput, calls=%product", ""),
        ("fusion(%a, %b, %c), kind=kLoop, calls=%product", "c"),
    ],
)
def test_a_product_adds_to_what_dies(made: str, taken: str) -> None:
    s = "f32[8,8]"
    lines = [f"  %x = {s} parameter(0)"]
    lines += [f"  %{n} = {s} reverse(%x), dimensions={{{k % 2}}}" for k, n in enumerate("abc")]
    lines += [f"  %d = {s} {made}", "  ROOT %o = f32[1,1] slice(%d), slice={[0:1],[0:1]}"]
    memory = memory_of("\n".join(lines), called=FUSED)
    live = memory.liveness
    names = [memory.value(b).name for b in range(len(live.size))]
    found = int(live.shared[names.index("d")])
    assert (names[found] if found >= 0 else "") == taken


def homes(memory: Memory) -> dict[str, str]:
    return {v.name: v.home for v in memory.values() if v.home}


def test_a_temporary_lies_in_a_donated_argument_that_is_read_out() -> None:
    donated = ", input_output_alias={ {}: (0, {}, may-alias) }"
    body = """
  %x = f32[64] parameter(0)
  %y = f32[64] parameter(1)
  %a = f32[64] reverse(%x), dimensions={0}
  %t = f32[64] reverse(%a), dimensions={0}
  %u = f32[64] reverse(%t), dimensions={0}
  ROOT %o = f32[64] reverse(%u), dimensions={0}
"""
    # point    0 1 2 3 4 5        256 B each
    # %x       |---|              read at 2, its place free at 3 and 4
    # %a           |-|            made while %x is read, read by %t: nothing may take its place
    # %t             |-|  %u |-|  %t is read when %u is made, %u when the output is written
    memory = memory_of(body, donated)
    assert homes(memory) == {"t": "x", "o": "x"}
    assert memory.timeline.tolist() == [512, 512, 768, 768, 768, 768]
    # not donated, but first in place: the output's own place is free from the start
    plain = memory_of(body)
    assert homes(plain) == {"a": "o"}
    assert plain.timeline.tolist() == [768, 768, 768, 1024, 1280, 1024]


def test_nothing_lies_in_an_argument_that_is_kept() -> None:
    body = "  %x = f32[64] parameter(0)\n  %a = f32[64] reverse(%x), dimensions={0}\n"
    memory = memory_of(body + "  %b = f32[64] reverse(%a), dimensions={0}\n"
                       "  ROOT %o = f32[1] slice(%b), slice={[0:1]}")  # fmt: skip
    assert homes(memory) == {}
    assert memory.timeline.tolist() == [260, 516, 772, 516]
