"""Copied computations, and what has no op name: each rule of ``identity_known.py``.

Computations are written as their instructions, ``opcode@op_name``; their nodes are numbered from
the given one on.
"""

from __future__ import annotations

from typing import Any

import pytest
from hloscope.analysis.passes.identity import known as identity_known
from hloscope.analysis.passes.identity.how import How
from hloscope.analysis.passes.identity.known import Known, _was
from hloscope.readers.hlo.pass_lines import Body, Line
from identity_nodes import line, walk


def written(text: str) -> Line:
    opcode, _, op_name = text.partition("@")
    opcode, _, shape = opcode.partition(":")
    return line(f"%n = f32[{shape or 4}] {opcode}()", op_name)


Written = dict[str, tuple[int, str]]


class Computations:
    """Computations before and after a pass: name → (first node, its instructions)."""

    def __init__(self, before: Written, now: Written) -> None:
        old = {n: x for first, of in before.values() for n, x in self._nodes(first, of).items()}
        new = {n: x for first, of in now.values() for n, x in self._nodes(first, of).items()}
        w = walk({n: (x, ()) for n, x in new.items()}, {n: (x, ()) for n, x in old.items()})
        for place, (name, (first, of)) in enumerate(before.items(), 50):
            found = self._nodes(first, of)
            lines = []
            for n, told in found.items():
                told.name = f"n{n}"
                lines.append(told)
            w.prior[name] = Body(name, False, lines)
            w.prior_place_of[name] = place
            w.prior_alive[place] = {f"n{n}": n for n in found}
        w.steps.places = [type("Place", (), {"name": name}) for name in now]
        w.place_of = {name: place for place, name in enumerate(now)}
        w.changes = [
            (place, {}, {f"n{n}": n for n in self._nodes(first, of)})
            for place, (first, of) in enumerate(now.values())
        ]
        self.known = Known(w, 3)

    @staticmethod
    def _nodes(first: int, of: str) -> dict[int, Line]:
        return {first + k: written(text) for k, text in enumerate(of.split())}

    def clones(self) -> dict[int, list[int]]:
        self.known._clones()
        return dict(self.known.clone_of)


BODY = "add@f tanh@g"
CLONES: dict[str, tuple[Written, Written, dict[int, list[int]]]] = {
    "a copy": ({"f": (101, BODY)}, {"f.clone": (1, BODY)}, {1: [101], 2: [102]}),
    "under any name": ({"f": (101, BODY)}, {"h": (1, BODY)}, {1: [101], 2: [102]}),
    "one instruction more": ({"f": (101, BODY)}, {"f.clone": (1, BODY + " log")}, {}),
    "another op name": ({"f": (101, BODY)}, {"f.clone": (1, "add@f tanh@h")}, {}),
    "another opcode": ({"f": (101, BODY)}, {"f.clone": (1, "add@f log@g")}, {}),
    "another shape": ({"f": (101, BODY)}, {"f.clone": (1, "add:5@f tanh@g")}, {}),
    "of two the one whose name it begins with": (
        {"f": (101, BODY), "g": (201, BODY)}, {"g.1": (1, BODY)}, {1: [201], 2: [202]}),
    "of two the one of the same stem": (
        {"f.3": (101, BODY), "g.3": (201, BODY)}, {"g.1": (1, BODY)}, {1: [201], 2: [202]}),
    "the beginning before the stem": (
        {"g.3": (101, BODY), "g": (201, BODY)}, {"g.1": (1, BODY)}, {1: [201], 2: [202]}),
    "of two neither": (
        {"f": (101, BODY), "g": (201, BODY)}, {"h": (1, BODY)}, {1: [101, 201], 2: [102, 202]}),
    "of five four are kept": (
        {f"f{k}": (100 * k + 101, "add") for k in range(5)}, {"h": (1, "add")},
        {1: [101, 201, 301, 401]}),
}  # fmt: skip


@pytest.mark.parametrize("what", CLONES)
def test_computations_that_were_copied(what: str) -> None:
    before, now, want = CLONES[what]
    assert Computations(before, now).clones() == want


def test_a_computation_that_was_there_is_no_copy() -> None:
    made = Computations({"f": (101, BODY)}, {"f.clone": (1, BODY)})
    made.known.w.changes = [(p, {"x": 9}, now) for p, _, now in made.known.w.changes]
    assert made.clones() == {}


ALMOST: dict[str, tuple[Written, str, str, dict[int, int]]] = {
    "one is new": ({"f": (101, "add@f tanh@g")}, "f.clone", "add@f log@h tanh@g",
                   {1: 101, 3: 102}),
    "one is gone": ({"f": (101, "add@f tanh@g sine@h")}, "f.clone", "add@f sine@h",
                    {1: 101, 2: 103}),
    "another name": ({"f": (101, "add@f tanh@g")}, "g.clone", "add@f log@h tanh@g", {}),
    "of two, none is gone": (
        {"f": (101, "add@f tanh@g"), "f.1": (201, "add@f tanh@g")}, "f.clone",
        "add@f log@h tanh@g", {}),
    "a whole copy is not almost one": ({"f": (101, "add@f")}, "f.clone", "add@f", {}),
}  # fmt: skip


@pytest.mark.parametrize("what", ALMOST)
def test_computations_that_were_copied_and_changed(what: str) -> None:
    before, name, now, want = ALMOST[what]
    made = Computations(before, {name: (1, now)})
    made.known.w.place_of |= dict.fromkeys(before, 9)
    made.clones()
    assert made.known.almost == want


def test_of_two_the_one_that_is_gone_was_copied() -> None:
    before = {"f": (101, "add@f tanh@g"), "f.1": (201, "add@f tanh@g")}
    made = Computations(before, {"f.clone": (1, "add@f log@h tanh@g")})
    made.known.w.place_of["f"] = 9
    made.clones()
    assert made.known.almost == {1: 201, 3: 202}


@pytest.mark.parametrize(
    ("old", "new", "found"),
    [(3, 2, True), (2, 3, True), (4, 2, False), (2, 4, False), (3, 4, False), (4, 3, False)],
)
def test_long_computations_are_not_compared(
    old: int, new: int, found: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(identity_known, "_MOST_LINES", 3)
    made = Computations(
        {"f": (101, " ".join(["add"] * old))}, {"f.1": (1, " ".join(["add"] * new))}
    )
    made.clones()
    assert bool(made.known.almost) is found


@pytest.mark.parametrize(
    ("name", "was"),
    [
        ("region_1", "region_1"),
        ("wide.region_1.4_spmd.clone", "region_1"),
        ("wide.wide.f.remat2", "f"),
        ("f.wide.g", "f.wide.g"),
        ("f_spmd.2", "f"),
    ],
)
def test_what_a_copy_was_called(name: str, was: str) -> None:
    assert _was(name) == was


# -- instructions without an op name -----------------------------------------------------------


def plumbed(
    new: str,
    old: dict[int, str],
    *,
    arguments: str = "0",
    fresh: bool = True,
    **more: Any,
) -> Any:
    """What node 1 stands for; those before are in the same computation, ``gone`` is no longer."""
    told = written(new)
    told.arguments, told.name = arguments, "x"
    w = walk({1: (told, ())})
    for n, text in old.items():
        opcode, _, number = text.partition("#")
        w.line[n] = written(opcode)
        w.line[n].arguments, w.line[n].name = number or "0", "x" if n % 10 == 5 else f"n{n}"
        w.known[n] = (n % 10,)
        w.how[n] = How.GUESSED
    w.prior_alive = {0: {f"n{n}": n for n in old}}
    w.gone = more.pop("gone", [])
    found = Known(w, 3)
    found.fresh, found.place = {1: fresh}, {1: more.pop("place", 0)}
    for name, value in more.items():
        setattr(found, name, value)
    found._plumbing()
    return found.unnamed.get(1)


def test_parameters_are_known_by_their_number() -> None:
    assert plumbed("parameter", {102: "parameter"}) == (2,)
    assert plumbed("parameter", {0: "parameter"}) == (0,), "the first node"
    assert plumbed("parameter@x", {102: "parameter"}) == (2,), "whatever their name"
    assert plumbed("parameter", {102: "parameter#1", 103: "parameter#2"}, arguments="2") == (3,)
    assert plumbed("parameter", {102: "parameter#1"}) is None
    assert plumbed("parameter", {102: "parameter:5"}) is None, "another shape"
    assert plumbed("parameter", {102: "parameter"}, place=1) is None, "another computation"
    assert plumbed("parameter", {102: "parameter"}, outside={1: 7}) is None, "of a fusion"
    assert plumbed("copy", {102: "parameter"}) is None
    assert plumbed("parameter", {102: "copy"}) is None


def test_what_has_no_op_name_stands_for_what_it_replaced() -> None:
    ways: list[dict[str, Any]] = [
        {"clone_of": {1: [102]}}, {"pairs": {1: {(102, ()): None}}}, {"replaced": {1: {102}}},
    ]  # fmt: skip
    for way in ways:
        assert plumbed("copy", {102: "copy"}, **way) == (2,)
        assert plumbed("copy@x", {102: "copy"}, **way) is None, "it has an op name"
        assert plumbed("copy", {102: "copy@x"}, **way) is None, "that had an op name"
        assert plumbed("copy", {102: "bitcast"}, **way) is None
        assert plumbed("copy", {}, **way) is None, "it was not there"
        assert plumbed("copy", {102: "copy"}, fresh=False, **way) == (2,)
        assert plumbed("copy", {102: "copy"}, unnamed={1: (9,)}, **way) == (2,)
        assert plumbed("copy", {102: "copy"}, unnamed={1: (9,)}, fresh=False, **way) == (9,), (
            "it stayed, and is known"
        )
    assert plumbed("copy", {105: "copy"}, gone=[105]) == (5,), "by its name"
    assert plumbed("copy", {102: "copy"}, gone=[102]) is None, "another name"
    other = {"pairs": {1: {(102, ()): None}}, "outside": {1: 7}}
    assert plumbed("parameter@x", {102: "parameter@y"}, **other) is None
    assert plumbed("parameter", {102: "parameter@y"}, **other) == (2,)


def test_only_one_answer_counts() -> None:
    both = {102: "copy", 103: "copy", 112: "copy"}
    assert plumbed("copy", both, clone_of={1: [102, 103]}) is None
    assert plumbed("copy", both, clone_of={1: [102, 112]}) == (2,), "both are from the same"
    assert plumbed("copy", both, clone_of={1: [102, 103]}, replaced={1: {103}}) == (3,)
    assert plumbed("copy", both, clone_of={1: [102]}, replaced={1: {103}}) == (2,), "copies first"
