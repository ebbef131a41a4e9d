"""What an instruction replaces, and what it is a part or a copy of: ``identity_pairs.py`` and
``identity_with.py``."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from hloscope.analysis.passes.identity.pairs import Pairs, _passes, element
from hloscope.analysis.passes.identity.parts import Wholes
from hloscope.readers.hlo.pass_lines import Body
from identity_nodes import line, walk


@pytest.mark.parametrize(
    ("text", "number"),
    [("index=0", 0), ("index=12", 12), ("tuple_index=3", -1), ("", -1)],
)
def test_element(text: str, number: int) -> None:
    assert element(line(f"%g = f32[] get-tuple-element(%t), {text}")) == number


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("copy(%x)", True),
        ("add(%x)", False),
        ('custom-call(%x), custom_call_target="Sharding"', True),
        ('custom-call(%x), custom_call_target="TopK"', False),
    ],
)
def test_what_passes_values_on(text: str, expected: bool) -> None:
    assert _passes(line(f"%a = f32[4] {text}")) is expected


def pairs(new: dict[int, Any], old: dict[int, Any], fresh: set[int], gone: set[int]) -> Any:
    """Pairs found from node 1, whose computation's result was node 101."""
    w = walk(new, old)
    for k in gone:
        w.steps.nodes[k] = SimpleNamespace(last=w.row)
    found = Pairs(w, dict.fromkeys(fresh, True), {}, False)
    found._push(1, 101, ())
    while found._queue:
        found._pair(*found._queue.popleft())
    return {n: sorted(y for y, _ in of) for n, of in found.of.items()}


def test_pairs() -> None:
    x = (line("%x = f32[4] tanh(%p)"), ())
    select = line("%s = f32[4] select(%m, %x, %z)")
    old = {101: (line("%x = f32[4] tanh(%p)"), (102,)), 102: (line("%y = f32[4] sine(%q)"), ())}
    assert pairs({1: (select, (2, 3, 4)), 3: x, 2: x, 4: x}, old, {1, 2, 3, 4}, set()) == {
        1: [101],
        3: [101],
    }, "a select has its value second"
    cut = line("%s = f32[2] slice(%x), slice={[0:2]}")
    assert pairs({1: (cut, (2,)), 2: x}, old, {1, 2}, set()) == {1: [101], 2: [101]}
    copy = line("%c = f32[4] copy(%x)")
    assert pairs({1: (copy, (2,)), 2: x}, old, {1}, set()) == {1: [101]}, "2 stayed"
    other = {101: (line("%r = f32[4] reshape(%y)"), (102,)), 102: x}
    assert pairs({1: (line("%e = f32[4] sine()"), ())}, other, {1}, set()) == {1: [101, 102]}


def test_parts_and_copies() -> None:
    new = {
        1: (line("%s = f32[4] collective-permute-start(%x)", "f/g"), ()),
        2: (line("%d = f32[4] collective-permute-done(%s)", "f/g"), (1,)),
        3: (line("%t = f32[4] get-tuple-element(%s), index=1", "f/g"), (1,)),
        4: (line("%s.clone.1 = f32[4] collective-permute-start(%x)", "f/g"), ()),
        5: (line("%s.clone = f32[4] add(%x)", "f/g"), ()),
        6: (line("%u = f32[4] add(%x)", "f/g"), ()),
    }
    wholes = Wholes(walk(new), {"s": 1})
    assert [wholes.of(n, "f/g") for n in new] == [-1, 1, 1, 1, -1, -1]
    assert [wholes.of(n, "other") for n in new] == [-1] * 6


@pytest.mark.parametrize(("index", "expected"), [(0, 11), (1, 12), (2, -1), (None, -1)])
def test_elements_of_fusions(index: int | None, expected: int) -> None:
    said = "" if index is None else f", index={index}"
    fused = [line("%a = f32[4] add()", "f/g"), line("%b = f32[4] tanh()", "f/g")]
    root = line("ROOT %r = (f32[4], f32[4]) tuple(%a, %b)")
    new = {
        1: (line("%f = (f32[4], f32[4]) fusion(), calls=%body"), ()),
        2: (line(f"%g = f32[4] get-tuple-element(%f){said}"), (1,)),
        11: (fused[0], ()),
        12: (fused[1], ()),
        13: (root, (11, 12)),
    }
    w = walk(new)
    w.before = {"body": Body("body", False, [*fused, root])}
    w.place_of, w.alive = {"body": 0}, {0: {"a": 11, "b": 12, "r": 13}}
    assert Wholes(w, {}).of(2, "f/g") == expected


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ("%a = f32[4] add()", "%b = f32[4] copy(%a)", 11),
        ("%a = f32[4] copy(%p)", "%b = f32[4] add()", 12),
        ("%a = f32[4] tanh()", "%b = f32[4] add()", 12),
    ],
)
def test_inside_a_fusion(first: str, second: str, expected: int) -> None:
    fused = [line(first, "f/g"), line(second, "f/g", "5")]
    root = line("ROOT %r = f32[4] negate(%b)", "other")
    new = {
        1: (line("%f = f32[4] fusion(), calls=%body", "f/g", "5"), ()),
        11: (fused[0], ()),
        12: (fused[1], ()),
        13: (root, (12,)),
    }
    w = walk(new)
    w.before = {"body": Body("body", False, [*fused, root])}
    w.place_of, w.alive = {"body": 0}, {0: {"a": 11, "b": 12, "r": 13}}
    assert Wholes(w, {}).of(1, "f/g") == expected


def test_the_first_node_is_one_too() -> None:
    result, other = line("ROOT %r = f32[4] add()", "f/g"), line("%a = f32[4] tanh()", "f/g")
    new = {
        0: (result, ()),
        1: (line("%f = f32[4] fusion(), calls=%body", "f/g"), ()),
        2: (line("%r.clone = f32[4] add()", "f/g"), ()),
        11: (other, ()),
    }
    w = walk(new)
    w.before = {"body": Body("body", False, [other, result])}
    w.place_of, w.alive = {"body": 0}, {0: {"a": 11, "r": 0}}
    wholes = Wholes(w, {"r": 0})
    assert wholes.of(1, "f/g") == 0, "the result, though another has the op name as well"
    assert wholes.of(2, "f/g") == 0
