"""What replaces what, from what is certainly the same: each step of ``identity_pairs.py``.

Nodes are written as in ``identity_nodes.py``: node 1 is ``"1": "opcode(operands) attributes"``.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from hloscope.analysis.passes.identity import pairs as identity_pairs
from hloscope.analysis.passes.identity.pairs import Pairs
from hloscope.readers.hlo.pass_lines import Body
from identity_nodes import line, walk


def node(text: str) -> tuple[Any, tuple[int, ...]]:
    """``add(1, 2) x=3@name``; a parameter has its number for an operand."""
    said, _, op_name = text.partition("@")
    head, _, attributes = said.partition(") ")
    opcode, _, given = head.rstrip(")").partition("(")
    made = line(
        f"%n = f32[4] {opcode}({given})" + (f", {attributes}" if attributes else ""), op_name
    )
    if opcode == "parameter":
        return made, ()
    return made, tuple(int(x) for x in given.split(",") if x.strip())


def nodes(of: dict[int, str]) -> dict[int, Any]:
    return {n: node(text) for n, text in of.items()}


def bodies(of: dict[str, tuple[int, Any]], first_place: int) -> Any:
    """Computations by name, each with its result: (bodies, places, alive)."""
    every = enumerate(of.items(), first_place)
    found: list[Any] = [{}, {}, {}]
    for place, (name, (root, at)) in every:
        result = line(f"ROOT %r = f32[4] {at}()")
        other = line("%o = f32[4] add()")
        found[0][name] = Body(name, False, [other, result] if root >= 0 else [other])
        found[1][name] = place
        found[2][place] = {"o": 900, "r": root}
    return found


def walked(
    new: dict[int, str],
    old: dict[int, str] | None = None,
    results: dict[str, int] | None = None,
    old_results: dict[str, int] | None = None,
    gone: tuple[int, ...] = (),
) -> Any:
    w = walk(nodes(new), nodes(old or {}))
    now = {name: (n, "add") for name, n in (results or {}).items()}
    before = {name: (n, "add") for name, n in (old_results or {}).items()}
    w.before, w.place_of, w.alive = bodies(now, 0)
    w.prior, w.prior_place_of, w.prior_alive = bodies(before, 0)
    for y in gone:
        w.steps.nodes[y] = SimpleNamespace(last=w.row)
    return w


def pairs(
    w: Any, fresh: set[int], outside: dict[int, int] | None = None, anew: bool = False
) -> Pairs:
    return Pairs(w, dict.fromkeys(fresh, True), outside or {}, anew)


def of(found: Pairs) -> dict[int, list[Any]]:
    return {n: [y if not calls else (y, *calls) for y, calls in ys] for n, ys in found.of.items()}


# -- from a new instruction to what it computes --------------------------------------------------

CALL = "fusion() calls=%f"
THROUGH: dict[str, tuple[dict[int, str], int]] = {
    "it is itself": ({1: "add()"}, 1),
    "an element of a tuple": ({1: "get-tuple-element(2) index=1", 2: "tuple(3, 4)", 4: "add()"}, 4),
    "the first element": ({1: "get-tuple-element(2) index=0", 2: "tuple(0, 4)", 0: "add()"}, 0),
    "an element that it lacks": ({1: "get-tuple-element(2) index=2", 2: "tuple(3, 4)"}, 1),
    "an element without a number": ({1: "get-tuple-element(2)", 2: "tuple(3, 4)"}, 1),
    "an element of something else": ({1: "get-tuple-element(2) index=0", 2: "while(3)"}, 1),
    "an element of the first node": (
        {1: "get-tuple-element(0) index=0", 0: "tuple(3)", 3: "add()"}, 3),
    "an element of nothing": ({1: "get-tuple-element() index=0"}, 1),
    "the result of a new fusion": ({1: CALL, 8: "add()"}, 8),
    "the first node as a result": ({1: "fusion() calls=%zero", 0: "add()"}, 0),
    "the result of a new call": ({1: "call() to_apply=%f", 8: "add()"}, 8),
    "a fusion that stayed": ({5: CALL, 1: "get-tuple-element(2) index=0", 2: "tuple(5)"}, 5),
    "other calls": ({1: "reduce() to_apply=%f"}, 1),
    "a fusion of a computation that is not known": ({1: "fusion() calls=%g"}, 1),
    "a computation without a result": ({1: "fusion() calls=%none"}, 1),
    "what a fusion is given": ({1: CALL, 8: "add()"}, 8),
}  # fmt: skip


@pytest.mark.parametrize("what", THROUGH)
def test_what_an_instruction_computes(what: str) -> None:
    new, want = THROUGH[what]
    w = walked(new | {9: "add()"}, results={"f": 8, "zero": 0, "none": -1})
    found = pairs(w, {1, 2})
    assert found._through(1) == want
    found.outside = {8: 9}
    assert found._through(8) == 9, "a parameter of a fusion"


@pytest.mark.parametrize(("levels", "found"), [(8, True), (9, False)])
def test_elements_of_elements(levels: int, found: bool) -> None:
    """Node 100 is in ``levels`` tuples, one in the other, and taken out of all of them."""
    new = {100: "add()"} | {100 + k: f"tuple({99 + k})" for k in range(1, levels + 1)}
    new |= {k: f"get-tuple-element({k - 1 if k else 100 + levels}) index=0" for k in range(levels)}
    assert pairs(walked(new), set())._through(levels - 1) == (100 if found else levels - 1)
    before = pairs(walked({}, new), set())._old_through(levels - 1, ())
    assert before == ((100, ()) if found else (levels - 1, ()))


OLD: dict[str, tuple[dict[int, str], tuple[int, ...], Any]] = {
    "it is itself": ({1: "add()"}, (), (1, ())),
    "not known": ({}, (), (1, ())),
    "what a call was given": (
        {1: "parameter(1)", 7: "call(3, 4)", 4: "add()"}, (7,), (4, ())),
    "what the innermost call was given": (
        {1: "parameter(0)", 7: "call(4)", 4: "add()"}, (5, 6, 7), (4, (5, 6))),
    "more than a call was given": ({1: "parameter(2)", 7: "call(3, 4)"}, (7,), (1, (7,))),
    "an argument": ({1: "parameter(1)", 7: "call(3, 4)"}, (), (1, ())),
    "a parameter without a number": ({1: "parameter(x)", 7: "call(3, 4)"}, (7,), (1, (7,))),
    "an element of a tuple": (
        {1: "get-tuple-element(2) index=1", 2: "tuple(3, 4)", 4: "add()"}, (), (4, ())),
    "the first element": (
        {1: "get-tuple-element(2) index=0", 2: "tuple(3, 4)", 3: "add()"}, (), (3, ())),
    "an element that it lacks": ({1: "get-tuple-element(2) index=2", 2: "tuple(3, 4)"}, (),
                                 (1, ())),
    "an element of something else": ({1: "get-tuple-element(2) index=0", 2: "while(3)"}, (),
                                     (1, ())),
    "an element of what is not known": ({1: "get-tuple-element(2) index=0"}, (), (1, ())),
    "an element of nothing": ({1: "get-tuple-element() index=0"}, (), (1, ())),
    "an element of what a call was given": (
        {1: "get-tuple-element(2) index=0", 2: "parameter(0)", 7: "call(5)", 5: "tuple(6)",
         6: "add()"}, (7,), (6, ())),
    "the result of a call that is gone": ({10: "call() to_apply=%f"}, (3,), (8, (3, 10))),
    "the result of a fusion that is gone": ({11: "fusion() calls=%f"}, (), (8, (11,))),
    "the first node as a result": ({10: "call() to_apply=%zero"}, (), (0, (10,))),
    "a call that stayed": ({12: "call() to_apply=%f"}, (), (12, ())),
    "a call that is written anew": ({13: "call() to_apply=%f"}, (), (8, (13,))),
    "another that is gone": ({10: "reduce() to_apply=%f"}, (), (10, ())),
    "a computation that is not known": ({10: "call() to_apply=%g"}, (), (10, ())),
    "a computation without a result": ({10: "call() to_apply=%none"}, (), (10, ())),
}  # fmt: skip


@pytest.mark.parametrize("what", OLD)
def test_what_an_instruction_computed_before(what: str) -> None:
    old, calls, want = OLD[what]
    results = {"f": 8, "zero": 0, "none": -1}
    w = walked({}, old | {8: "add()", 0: "add()"}, old_results=results, gone=(10, 11))
    assert pairs(w, {13})._old_through(max(old, default=1) if max(old, default=1) > 9 else 1, calls
                                       ) == want  # fmt: skip


# -- what is paired with what --------------------------------------------------------------------

# new and old nodes from 1 and 101 on; what they replace
PAIRED: dict[str, tuple[dict[int, str], dict[int, str], dict[int, list[Any]]]] = {
    "operands, one by one": (
        {1: "add(2, 3)", 2: "sine()", 3: "log()"}, {101: "add(102, 103)", 102: "a()", 103: "b()"},
        {1: [101], 2: [102], 3: [103]}),
    "one operand more": (
        {1: "add(2, 3)", 2: "sine()", 3: "log()"}, {101: "add(102)", 102: "a()"}, {1: [101]}),
    "another opcode": (
        {1: "sub(2, 3)", 2: "sine()", 3: "log()"}, {101: "add(102, 103)", 102: "a()", 103: "b()"},
        {1: [101]}),
    "what is not known before": ({1: "add()"}, {}, {}),
    "tuples with more, by op name and shape": (
        {1: "tuple(2, 3, 4)", 2: "a()@x", 3: "b()@y", 4: "c()"},
        {101: "tuple(103, 104)", 103: "b()@y", 104: "c()"},
        {1: [101], 3: [103]}),
    "a copy first": (
        {1: "copy(2)", 2: "sine()"}, {101: "reshape(102)", 102: "tanh()"},
        {1: [101], 2: [101, 102]}),
    "a bitcast first": (
        {1: "bitcast(2)", 2: "sine()"}, {101: "reshape(102)", 102: "tanh()"},
        {1: [101], 2: [101, 102]}),
    "the old one first": (
        {1: "transpose(2)", 2: "sine()"}, {101: "reshape(102)", 102: "tanh()"},
        {1: [101, 102], 2: [102]}),
    "what passes a value on": (
        {1: "convert(2)", 2: "sine()"}, {101: "tanh()"}, {1: [101], 2: [101]}),
    "what has two operands does not": (
        {1: "copy(2, 3)", 2: "sine()"}, {101: "tanh()"}, {1: [101]}),
    "what passed a value on": (
        {1: "sine()"}, {101: "convert(102)", 102: "tanh()"}, {1: [101, 102]}),
    "what had two operands did not": (
        {1: "sine()"}, {101: "copy(102, 103)", 102: "tanh()"}, {1: [101]}),
    "a cut": ({1: "slice(2)", 2: "sine()"}, {101: "tanh()"}, {1: [101], 2: [101]}),
    "an update": ({1: "dynamic-slice(2, 3)", 2: "sine()", 3: "log()"}, {101: "tanh()"},
                  {1: [101], 2: [101]}),
    "a collective": ({1: "all-gather(2)", 2: "sine()"}, {101: "tanh()"}, {1: [101], 2: [101]}),
    "a cut of nothing": ({1: "slice()"}, {101: "tanh()"}, {1: [101]}),
    "a choice": ({1: "select(2, 3, 4)", 2: "a()", 3: "b()", 4: "c()"}, {101: "tanh()"},
                 {1: [101], 3: [101]}),
    "a choice without a third": ({1: "select(2, 3)", 2: "a()", 3: "b()"}, {101: "tanh()"},
                                 {1: [101], 2: [101]}),
    "three operands of another": ({1: "pad(2, 3, 4)", 2: "a()", 3: "b()"}, {101: "tanh()"},
                                  {1: [101], 2: [101]}),
    "results of what they call": (
        {1: "map() to_apply=%f", 8: "sine()"}, {101: "map() to_apply=%g", 108: "tanh()"},
        {1: [101], 8: [108]}),
    "the same computation": (
        {1: "map() to_apply=%g", 8: "sine()"}, {101: "map() to_apply=%g", 108: "tanh()"},
        {1: [101]}),
    "one computation more": (
        {1: "while() condition=%f, body=%f", 8: "sine()"},
        {101: "while() body=%g", 108: "tanh()"}, {1: [101]}),
    "a computation that is not known": (
        {1: "map() to_apply=%h", 8: "sine()"}, {101: "map() to_apply=%g", 108: "tanh()"},
        {1: [101]}),
    "a computation that was not known": (
        {1: "map() to_apply=%f", 8: "sine()"}, {101: "map() to_apply=%h", 108: "tanh()"},
        {1: [101]}),
}  # fmt: skip


def paired(w: Any, fresh: set[int]) -> dict[int, list[Any]]:
    found = pairs(w, fresh)
    found._push(1, 101, ())
    while found._queue:
        found._pair(*found._queue.popleft())
    return of(found)


@pytest.mark.parametrize("what", PAIRED)
def test_pairs(what: str) -> None:
    new, old, want = PAIRED[what]
    w = walked(new, old, {"f": 8}, {"g": 108})
    w.before["g"], w.place_of["g"] = Body("g", False, []), 0
    assert paired(w, set(new)) == want


def test_what_stayed_is_paired_with_nothing() -> None:
    w = walked({1: "add(2)", 2: "sine()"}, {101: "add(102)", 102: "tanh()"})
    assert paired(w, {1}) == {1: [101]}


def test_the_first_node_is_paired_too() -> None:
    w = walked({1: "tuple(2, 3)", 2: "a()@x", 3: "b()@y"}, {101: "tuple(0)", 0: "b()@y"})
    assert paired(w, {1, 2, 3}) == {1: [101], 3: [0]}
    w = walked({1: "map() to_apply=%f", 0: "sine()"}, {101: "map() to_apply=%g", 7: "tanh()"},
               {"f": 0}, {"g": 7})  # fmt: skip
    assert paired(w, {0, 1}) == {1: [101], 0: [7]}


@pytest.mark.parametrize(("fresh", "count"), [(1, 11), (2, 23)])
def test_the_search_ends(fresh: int, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Twelve pairs for each new instruction; the last one is found, but nothing behind it."""
    monkeypatch.setattr(identity_pairs, "_AT_LEAST", 0)
    old = {100 + k: f"copy({101 + k})" for k in range(40)}
    w = walked({1: "sine()", 3: "log(1)"}, {3: "log(100)"} | old)
    w.changes = [(0, {"x": 3}, {"x": 3})]
    found = pairs(w, {1} if fresh == 1 else {1, 2})
    assert len(found.of[1]) == count


# -- where to begin ------------------------------------------------------------------------------


def begun(w: Any, fresh: set[int], anew: bool = False) -> list[tuple[int, int]]:
    found = Pairs.__new__(Pairs)
    found.w, found.fresh = w, dict.fromkeys(fresh, True)
    return list(found._anchors(anew))


def test_operands_of_what_stayed() -> None:
    w = walked({3: "add(1, 5)"}, {3: "add(101, 5)"})
    w.changes = [(0, {"x": 3}, {"x": 3})]
    assert begun(w, set()) == [(1, 101)]
    assert begun(w, {3}) == [], "it is new itself"
    assert begun(w, set(), anew=True) == []
    w.changes = [(0, {}, {"x": 3})]
    assert begun(w, set()) == [], "its computation is new"
    w = walked({3: "add(1, 5)"}, {})
    w.changes = [(0, {"x": 3}, {"x": 3})]
    assert begun(w, set()) == [], "it was not there"
    w = walked({3: "add(1)"}, {3: "add(101, 5)"})
    w.changes = [(0, {"x": 3}, {"x": 3})]
    assert begun(w, set()) == [], "another number of operands"


def test_results_of_what_those_call_that_stayed() -> None:
    w = walked({3: "map() to_apply=%f"}, {3: "map() to_apply=%g"}, {"f": 8}, {"g": 108})
    w.changes = [(0, {"x": 3}, {"x": 3})]
    assert begun(w, set()) == [(8, 108)]
    w = walked({3: "map() to_apply=%g, x=1"}, {3: "map() to_apply=%g"}, {"g": 8}, {"g": 108})
    w.changes = [(0, {"x": 3}, {"x": 3})]
    assert begun(w, set()) == []


@pytest.mark.parametrize(
    ("result", "before", "anew", "entry", "found"),
    [
        (8, 108, False, False, [(8, 108)]),
        (0, 0, False, False, [(0, 0)]),
        (-1, 108, False, False, []),
        (8, -1, False, False, []),
        (8, 108, True, False, []),
        (8, 108, True, True, [(8, 108)]),
    ],
)
def test_results_of_computations(
    result: int, before: int, anew: bool, entry: bool, found: list[tuple[int, int]]
) -> None:
    w = walked({}, {}, {"f": result}, {"old": before})
    w.before["f"].entry = entry
    w.names_before = {0: "old"}
    assert begun(w, set(), anew) == found
    w.names_before = {}
    assert begun(w, set(), anew) == [], "it is new"


def test_a_computation_that_did_not_change_tells_nothing() -> None:
    w = walked({}, {}, {"f": 8}, {"f": 108})
    w.names_before, w.prior = {0: "f"}, w.before
    assert begun(w, set()) == []
