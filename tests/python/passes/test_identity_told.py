"""What speaks for an identity, each figure by hand: ``identity_evidence.py``."""

from __future__ import annotations

from typing import Any

import pytest
from hloscope.analysis.passes.identity.evidence import Evidence, _alike
from hloscope.analysis.passes.identity.how import How
from hloscope.readers.hlo.pass_lines import Line
from identity_nodes import line, walk


def evidence(new: dict[int, Any], old: dict[int, Any]) -> Evidence:
    e = Evidence(walk(new, old), 3)
    e.place = dict.fromkeys(new, 0)
    for n, (_, operands) in new.items():
        e.at[n] = n
        for o in operands:
            e.users[o].append(n)
    return e


def tell(e: Evidence, ids: dict[int, tuple[int, ...]]) -> None:
    """What the nodes are known to come from."""
    w: Any = e.w
    w.known.update(ids)


def score(new: Line, old: Line, inlined: bool = False, **known: Any) -> float:
    e = evidence({1: (new, ())}, {101: (old, ())})
    for name, value in known.items():
        setattr(e, name, value)
    return e._score(1, 101, inlined)


ADD = "%a.1 = f32[4] add()"
# new, old, score: 1.5 for the opcode and 1 for the shape are in each of the first
NAMES = {
    "the same name": (ADD, ADD, 7.5),
    "a copy by its name": ("%a.1.clone = f32[4] add()", ADD, 6.5),
    "the same stem": ("%a.12 = f32[4] add()", ADD, 3),
    "another name": ("%b.1 = f32[4] add()", ADD, 2.5),
    "another opcode": ("%b = f32[4] subtract()", ADD, 1),
    "another shape": ("%b = f32[5] add()", ADD, 1.5),
    "another layout": ("%b = f32[4]{0} add()", ADD, 2.5),
    "nothing in common": ("%b = f32[5] tanh()", ADD, 0),
    "the same slice": (
        "%b = f32[4] slice(), slice={[0:4]}",
        "%a = f32[4] slice(), slice={[0:4]}",
        4.5,
    ),
    "another slice": (
        "%b = f32[4] slice(), slice={[0:4]}",
        "%a = f32[4] slice(), slice={[4:8]}",
        1.5,
    ),
    "only one says its slice": ("%b = f32[4] slice(), slice={[0:4]}", "%a = f32[4] slice()", 1.5),
    "only the other one": ("%b = f32[4] slice()", "%a = f32[4] slice(), slice={[0:4]}", 1.5),
    "forms of two opcodes": (
        "%b = f32[4] pad(), padding=0_1",
        "%a = f32[4] iota(), padding=2_1",
        1,
    ),
}


@pytest.mark.parametrize(("new", "old", "expected"), NAMES.values(), ids=NAMES)
def test_lines(new: str, old: str, expected: float) -> None:
    assert score(line(new), line(old)) == expected


KNOWN: dict[str, tuple[str, dict[str, Any], float]] = {
    "a copy": ("%b", {"clone_of": {1: [101]}}, 8.5),
    "almost": ("%b", {"almost": {1: 101}}, 5.5),
    "almost another": ("%b", {"almost": {1: 102}}, 2.5),
    "a name that was given to another": ("%a.1", {"fresh": {101: True}}, 3),
    "a copy's name that was given to another": ("%a.1.clone", {"fresh": {101: True}}, 3),
    "in its place": ("%b", {"pairs": {1: {(101, ()): None}}}, 8.5),
    "in the place of another": ("%b", {"pairs": {1: {(102, ()): None}}}, 2.5),
    "inlined from it": ("%b", {"pairs": {1: {(102, (101,)): None}}}, 8.5),
    "replaces it": ("%b", {"replaced": {1: {101}}}, 7.5),
}


@pytest.mark.parametrize(("name", "known", "expected"), KNOWN.values(), ids=KNOWN)
def test_what_is_known(name: str, known: dict[str, Any], expected: float) -> None:
    assert score(line(f"{name} = f32[4] add()"), line(ADD), **known) == expected


def test_in_its_place_with_another_opcode() -> None:
    pairs = {1: {(101, ()): None}}
    assert score(line("%b = f32[4] tanh()"), line(ADD), pairs=pairs) == 1 + 3


@pytest.mark.parametrize(
    ("new", "old", "inlined", "hold", "more"),
    [
        ("7", "7", False, True, 3),
        ("7", "8", False, True, -3),
        ("", "8", False, True, 0),
        ("7", "", False, True, 0),
        ("7", "7", True, True, 0),
        ("7", "8", False, False, 0),
    ],
)
def test_source_lines(new: str, old: str, inlined: bool, hold: bool, more: float) -> None:
    found = score(line(ADD, "f", new), line(ADD, "f", old), inlined, frames_hold=hold)
    assert found == 7.5 + more


@pytest.mark.parametrize(
    ("now", "before", "expected"),
    [((1,), (1,), 2), ((1, 2), (2, 3), 2), ((1,), (2,), -2), ((), (1,), 0), ((1,), (), 0)],
)
def test_callers(now: tuple[int, ...], before: tuple[int, ...], expected: float) -> None:
    call = line("%c = f32[] call(), to_apply=%now")
    e = evidence({1: (line(ADD), ()), 2: (call, ())}, {101: (line(ADD), ())})
    e.w.changes = [(0, {}, {"c": 2})]
    e.w.place, e.w.names_before = {101: 5}, {5: "body"}
    e.w.callers["body"][102] = None
    tell(e, {2: now, 102: before})
    assert e._called_by(1, 101) == expected


def test_callers_that_stayed() -> None:
    e = evidence({1: (line(ADD), ())}, {101: (line(ADD), ())})
    e.w.callers["now"][102] = None
    assert e._callers("now") == [102]
    assert e._callers("other") == []


def test_operands() -> None:
    a, b = line(ADD), line(ADD)
    e = evidence({1: (a, (2, 3))}, {101: (b, (102, 103))})
    tell(e, {2: (7,), 3: (8,), 102: (7,), 103: (9,)})
    assert e._operands(1, 101, True) == 2.5, "one of two"
    assert e._operands(1, 101, False) == 2.5, "of {7, 8} and {7, 9}"
    e = evidence({1: (a, (3, 2))}, {101: (b, (102, 103))})
    tell(e, {2: (7,), 3: (8,), 102: (7,), 103: (8,)})
    assert (e._operands(1, 101, True), e._operands(1, 101, False)) == (0, 5), "order"
    e = evidence({1: (a, (2,))}, {101: (b, (102,))})
    assert (e._operands(1, 101, True), e._operands(1, 101, False)) == (0, 0), "nothing is known"
    assert _alike(frozenset({1, 2}), frozenset({1})) == 0.5
    assert _alike(frozenset(), frozenset()) == 0


@pytest.mark.parametrize(("unknown", "found"), [(0, {9}), (7, {9}), (8, set())])
def test_first_operands_are_at_most_eight_away(unknown: int, found: set[int]) -> None:
    chain = {n: (line(ADD), (n + 1,)) for n in range(unknown)}
    e = evidence(chain, {100 + n: (a, (101 + n,)) for n, (a, _) in chain.items()})
    tell(e, {unknown: (9,), 100 + unknown: (9,)})
    assert e._reach(0) == e._old_reach(100) == found


def test_first_operands_of_many() -> None:
    many = tuple(range(1, 31))
    e = evidence({0: (line(ADD), many)}, {})
    tell(e, {n: (n,) for n in many})
    e.w.main[2] = 1
    assert e._reach(0) == {1, *range(3, 25)}, "24 of them; 2 only helps 1"


@pytest.mark.parametrize(
    ("now", "before", "expected"),
    [
        ([("add", 0)], [("add", 0)], 4),
        ([("add", 0), ("tanh", 0)], [("add", 0)], 4),
        ([("add", 1)], [("add", 0)], 1.5),
        ([("tanh", 0)], [("add", 0)], 1.5),
        ([], [("add", 0)], 0),
        ([("add", 0)], [], 0),
    ],
)
def test_uses(now: list[tuple[str, int]], before: list[tuple[str, int]], expected: float) -> None:
    def users(rows: list[tuple[str, int]], of: int) -> dict[int, Any]:
        return {
            of + k: (line(f"%u = f32[4] {o}()"), (of,) if not at else (of + 50, of))
            for k, (o, at) in enumerate(rows, 1)
        }

    e = evidence(
        {1: (line(ADD), ()), **users(now, 1)}, {101: (line(ADD), ()), **users(before, 101)}
    )
    for n in (*range(2, 5), *range(102, 105)):
        tell(e, {n: (7,)})
    assert e._used(1, 101) == expected


@pytest.mark.parametrize(("unknown", "found"), [(7, {(9, "add", 0)}), (8, set())])
def test_uses_are_at_most_eight_away(unknown: int, found: set[Any]) -> None:
    last = unknown + 1
    new = {n: (line(ADD), (n - 1,) if n else ()) for n in range(last + 1)}
    old = {100 + n: (a, tuple(100 + o for o in b)) for n, (a, b) in new.items()}
    e = evidence(new, old)
    tell(e, {last: (9,), 100 + last: (9,)})
    assert e._new_uses(0) == e._old_uses(100) == found


def test_only_what_is_sure() -> None:
    e = evidence({1: (line(ADD), ())}, {101: (line(ADD), ())})
    e.parts = {1: {"f": (7,)}}
    tell(e, {101: (7,)})
    for how, sure in ((How.NEIGHBOURS, (7,)), (How.GUESSED, ())):
        e.how[1] = e.w.how[101] = how
        for seen, ids in ((e._all, (7,)), (e._sure, sure)):
            e._seen = seen
            seen.of.clear()
            assert e._known(1) == e._old_known(101) == ids
