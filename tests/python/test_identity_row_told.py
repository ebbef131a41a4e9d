"""Which of the first instructions each one of a later dump comes from: ``identity_row.py``.

Dumps are written as in ``pass_dumps.py``; nodes as in ``identity_nodes.py``.
"""

from __future__ import annotations

from typing import Any

import pytest
from hloscope.analysis.report.identity_how import How
from hloscope.analysis.report.identity_row import Row
from hloscope.analysis.report.identity_walk import follow_identity
from identity_nodes import line, walk
from pass_dumps import dump

# What stays in every dump, so that none was written anew.
KEPT = "; ".join(f"k{k} = f32[{k + 9}] parameter({k + 9})" for k in range(9))
P = f"{KEPT}; p = f32[4] parameter(0); q = f32[4] parameter(1)"


def known(*dumps: str) -> dict[str, tuple[list[str], How]]:
    """Instruction of the last dump → those of the first, and what that is based on."""
    texts = [d if d.startswith("HloModule") else dump(d) for d in dumps]
    found = follow_identity([lambda text=text: text for text in texts])
    nodes, versions = found.steps.nodes, found.steps.versions
    return {
        found.present(n).name: (
            [versions[nodes[k].versions[0]].line.name for k in found.of(n)], found.how[n],
        )
        for n in found.how
        if nodes[n].last == found.steps.rows
    }  # fmt: skip


def said(found: dict[str, tuple[list[str], How]], names: str) -> str:
    return " ".join(f"{n}={'+'.join(found[n][0])}:{found[n][1].name}" for n in names.split())


# dumps, instructions of the last one, from which each is and how that is known
CASES: dict[str, tuple[list[str], str, str]] = {
    "the same name": (
        [f"{P}; a = f32[4] tanh(p)@f/tanh"] * 2, "a p", "a=a:FIRST p=p:FIRST"),
    "the only one of its op name": (
        [f"{P}; a = f32[4] tanh(p)@f/tanh", f"{P}; b = f32[4] sine(p)@f/tanh"], "b", "b=a:ONLY"),
    "the same name, another opcode": (
        [f"{P}; a = f32[4] tanh(p)@f/tanh", f"{P}; a = f32[4] sine(p)@f/tanh"], "a", "a=a:ONLY"),
    "a new op name": (
        [f"{P}; a = f32[4] tanh(p)@f/tanh", f"{P}; b = f32[4] sine(p)@f/sin"], "b", "b=:FIRST"),
    "the op name of one that was gone before": (
        [f"{P}; a = f32[4] tanh(p)@f/tanh", P, f"{P}; b = f32[4] tanh(p)@f/tanh"], "b",
        "b=a:ONLY"),
    "equal ones by their operands": (
        [f"{P}; a = f32[4] tanh(p)@f; b = f32[4] tanh(q)@f; r = f32[4] add(a, b)@g",
         f"{P}; d = f32[4] tanh(q)@f; c = f32[4] tanh(p)@f"], "c d",
        "c=a:NEIGHBOURS d=b:NEIGHBOURS"),
    "equal ones by their user": (
        [f"{P}; a = f32[4] tanh(p)@f; b = f32[4] tanh(p)@f; r = f32[4] atan2(a, b)@g",
         f"{P}; d = f32[4] tanh(p)@f; c = f32[4] tanh(p)@f; r = f32[4] atan2(c, d)@g"], "c d r",
        "c=a:NEIGHBOURS d=b:NEIGHBOURS r=r:FIRST"),
    "equal ones in their order": (
        [f"{P}; a = f32[4] tanh(p)@f; b = f32[4] tanh(p)@f",
         f"{P}; c = f32[4] tanh(p)@f; d = f32[4] tanh(p)@f"], "c d", "c=a:ORDER d=b:ORDER"),
    "twice as many equal ones": (
        [f"{P}; a = f32[4] tanh(p)@f; b = f32[4] tanh(p)@f",
         f"{P}; c = f32[4] tanh(p)@f; d = f32[4] tanh(p)@f; e = f32[4] tanh(p)@f;"
         " g = f32[4] tanh(p)@f"], "c d e g", "c=a:ORDER d=a:ORDER e=b:ORDER g=b:ORDER"),
    "one more": (
        [f"{P}; a = f32[4] tanh(p)@f; b = f32[4] tanh(p)@f",
         f"{P}; c = f32[4] tanh(p)@f; d = f32[4] tanh(p)@f; e = f32[4] tanh(p)@f"], "c d e",
        "c=a:ORDER d=b:ORDER e=b:ORDER"),
    "one fewer": (
        [f"{P}; a = f32[4] tanh(p)@f; b = f32[4] tanh(p)@f; c = f32[4] tanh(p)@f",
         f"{P}; d = f32[4] tanh(p)@f; e = f32[4] tanh(p)@f"], "d e", "d=a:ORDER e=b:ORDER"),
    "what is told by one that is only guessed": (
        [f"{P}; a = f32[4] tanh(p)@f; b = f32[4] tanh(p)@f; u = f32[4] log(a)@g;"
         " v = f32[4] log(b)@g",
         f"{P}; c = f32[4] tanh(p)@f; d = f32[4] tanh(p)@f; w = f32[4] log(d)@g;"
         " x = f32[4] log(c)@g"], "c d w x", "c=a:ORDER d=b:ORDER w=v:GUESSED x=u:GUESSED"),
    "no more certain than what it comes from": (
        [f"{P}; a = f32[4] tanh(p)@f; b = f32[4] tanh(p)@f",
         f"{P}; c = f32[4] tanh(p)@f; d = f32[4] tanh(p)@f",
         f"{P}; c = f32[4] tanh(p)@f; e = f32[4] sine(p)@f;"], "c", "c=a:ORDER"),
    "two op names that were merged": (
        [f"{P}; a = f32[4] tanh(p)@f; b = f32[4] log(q)@g", f"{P}; c = f32[4] add(p, q)@f&g"],
        "c", "c=a+b:ONLY"),
    "only another op name": (
        [f"{P}; a = f32[4] tanh(p)@f; b = f32[4] log(q)@g",
         f"{P}; a = f32[4] tanh(p)@f&g"], "a", "a=a+b:ONLY"),
    "another op name around its own": (
        [f"{P}; a = f32[4] tanh(p)@f", f"{P}; a = f32[4] tanh(p)@h/f"], "a", "a=a:FIRST"),
    "another op name within its own": (
        [f"{P}; a = f32[4] tanh(p)@h/f", f"{P}; a = f32[4] tanh(p)@f"], "a", "a=a:FIRST"),
    "an op name that ends alike is another": (
        [f"{P}; a = f32[4] tanh(p)@f", f"{P}; a = f32[4] tanh(p)@hf"], "a", "a=:FIRST"),
    "an argument's op name": (
        ["p = f32[4] parameter(0)@x", "p = f32[4] parameter(0)@y"], "p", "p=p:FIRST"),
}  # fmt: skip


@pytest.mark.parametrize("what", CASES)
def test_where_it_comes_from(what: str) -> None:
    dumps, names, want = CASES[what]
    assert said(known(*dumps), names) == want


# -- parts of it -------------------------------------------------------------------------------


def row(new: dict[int, Any] | None = None, old: dict[int, Any] | None = None) -> Row:
    w = walk(new, old)
    w.index, w.ever, w.helper, w.order = {}, {}, {}, {}
    w.unnamed, w.history, w.links_seen, w.gone = {}, {}, 0, []
    w.steps.links = []
    made = Row(w, 3)
    made.place = dict.fromkeys(new or {}, 0)
    return made


A = line("%a = f32[4] add()", "f")


@pytest.mark.parametrize(
    ("before", "lost", "new", "anew"),
    [(4, 2, 2, True), (4, 1, 2, False), (4, 2, 1, False), (4, 4, 4, True), (5, 3, 2, False)],
)
def test_a_module_was_written_anew(before: int, lost: int, new: int, anew: bool) -> None:
    found = row()
    was = {f"a{k}": k for k in range(before)}
    now = {f"a{k}": k for k in range(lost, before)} | {f"b{k}": 50 + k for k in range(new)}
    found.w.changes = [(0, was, now), (1, {}, {f"c{k}": 90 + k for k in range(9)})]
    assert found._anew() is anew, "a new computation does not count"


def test_names_that_another_has_now_are_lost_too() -> None:
    found = row()
    found.w.changes = [(0, {"a": 1, "b": 2, "c": 3}, {"a": 2, "b": 1, "c": 3})]
    assert found._anew()
    found.w.changes[0][1].update({"d": 4, "e": 5})
    found.w.changes[0][2].update({"d": 4, "e": 5})
    assert not found._anew(), "two of five"


def test_parameters_of_fusions_are_what_the_fusion_is_given() -> None:
    inside = {10 + k: (line(f"%x{k} = f32[4] parameter({k})"), ()) for k in range(3)}
    odd = {13: (line("%y = f32[4] parameter(k)"), ()), 14: (line("%z = f32[4] add(%x0)"), ())}
    call = line("%f = f32[4] fusion(%a, %b), calls=%body")
    found = row({0: (call, (1, 2)), **inside, **odd})
    found.w.place_of = {"body": 0}
    found.w.alive = {0: {f"n{n}": n for n in (*inside, *odd)}}
    found._look_inside(0, call, (1, 2))
    assert found.outside == {10: 1, 11: 2}
    assert found.inside == {1: [10], 2: [11]}
    found._look_inside(0, line("%f = f32[4] fusion(%a), calls=%other"), (1,))
    assert found.outside == {10: 1, 11: 2}, "nothing is known of that computation"


def test_other_words_for_the_same() -> None:
    found = row({1: (A, ())})
    found.w.how[1] = How.ORDER
    found.w.parts[1] = {"f": (101,), "h/k": (102,)}
    found._reworded(1, line("%a = f32[4] add()", "g/f;k;new"))
    assert found.parts[1] == {"g/f": (101,), "k": (102,)}
    assert found.open == [(1, "new")]
    assert found.how[1] == How.ORDER
    found.w.parts[1] = {"x/f": (101,), "y/f": (102,)}
    found._reworded(1, line("%a = f32[4] add()", "f"))
    assert (found.parts[1], found.open[1:]) == ({}, [(1, "f")]), "one of two"


def test_families() -> None:
    """The helper 3 belongs to 4; 102 and 103 come from them, 101 from 1."""
    found = row()
    w = found.w
    w.index = {"f": dict.fromkeys((101, 102, 103, 104))}
    w.parts = {101: {"f": (1,)}, 102: {"f": (3,)}, 103: {"f": (4, 9)}, 104: {"g": (5,)}}
    w.main = {3: 4}
    assert found._families(7, "f") == {1: [101], 4: [102, 103]}
    w.index.clear()
    assert found._families(8, "f") == {1: [101], 4: [102, 103]}, "looked up once a row"
    w.ever = {"old": {(3,): None, (6, 1): None}}
    assert found._families(7, "old") == {4: [], 6: []}
    assert found._families(7, "none") == {}


def test_families_of_what_was_inlined() -> None:
    """The longest name of its own that is known; of its computations the one called so."""
    found = row({7: (A, ()), 8: (A, ())})
    w = found.w
    found.place = {7: 0, 8: 1}
    w.index = {"b/c": {101: None, 102: None}, "c": {103: None}}
    w.parts = {101: {"b/c": (1,)}, 102: {"b/c": (2,)}, 103: {"c": (3,)}}
    w.place = {101: 5, 102: 6, 200: 9}
    w.names_before = {5: "five", 6: "six"}
    w.callers["five"][200] = None
    w.callers["six"][201] = None
    w.line = {200: line("%x = f32[4] call()", "other"), 201: line("%y = f32[4] call()", "a")}
    assert found._families(7, "a/b/c") == {2: [102]}
    w.line[201] = line("%y = f32[4] call()", "no")
    assert found._families(7, "a/b/c") == {2: [102]}, "known for the computation"
    assert found._families(8, "a/b/c") == {1: [101], 2: [102]}, "none is called so"


@pytest.mark.parametrize(
    ("op_name", "outer", "called"),
    [
        ("a", "a", True),
        ("a", "f/a", True),
        ("a", "fa", False),
        ("f/a", "a", False),
        ("", "a", False),
    ],
)
def test_names_of_callers(op_name: str, outer: str, called: bool) -> None:
    found = row()
    w = found.w
    w.place, w.names_before = {101: 5}, {5: "body"}
    w.callers["body"] = {200: None, 201: None}
    w.line = {200: line("%x = f32[4] call()", op_name)}
    assert found._called_as(outer, [101]) == ([101] if called else [])


def test_a_caller_without_a_name_has_that_of_its_own() -> None:
    found = row()
    w = found.w
    w.place, w.names_before = {101: 5, 200: 6}, {5: "inner", 6: "outer"}
    w.callers["inner"][200] = None
    w.callers["outer"][201] = None
    w.line = {200: line("%x = f32[4] call()"), 201: line("%y = f32[4] call()", "a")}
    assert found._called_as("a", [101]) == [101]
    w.callers["outer"] = {200: None}
    assert found._called_as("a", [101]) == [], "it calls itself"
    del w.place[200]
    assert found._called_as("a", [101]) == []


TAKEN = line("%n = f32[4] multiply()", "f")
MUL, ADD = line("%y = f32[4] multiply()", "f"), line("%z = f32[4] add()", "f")


def test_within_a_family_the_same_opcode_counts() -> None:
    def taken(ys: dict[int, Any], **more: Any) -> tuple[tuple[int, ...], How]:
        found = row({7: (TAKEN, ())}, {y: (told, ()) for y, told in ys.items()})
        found.parts[7] = {}
        found._groups["f", -1] = {1: list(ys)}
        found.w.index = {"f": {}}
        found.w.main = {2: 1, 3: 1}
        found.w.parts = {101: {"f": (1,)}, 102: {"g": (9,), "f": (2,)}}
        for name, value in more.items():
            setattr(found.w if name in ("how", "helper") else found, name, value)
        found._take(7, "f", 1, How.ONLY)
        return found.parts[7]["f"], found.how[7]

    assert taken({101: MUL, 102: ADD}) == ((1,), How.ONLY)
    assert taken({101: ADD, 102: MUL}) == ((2,), How.ONLY), "a helper"
    assert taken({101: ADD, 102: ADD}) == ((1,), How.ONLY), "none: the main one"
    assert taken({101: ADD, 102: ADD}, helper={(1, "multiply"): 3}) == ((3,), How.ONLY)
    assert taken({101: ADD, 102: ADD}, pairs={7: {(102, ()): None}}) == ((2,), How.ONLY)
    assert taken({101: ADD, 102: ADD}, replaced={7: {102}}) == ((2,), How.ONLY)
    assert taken({101: ADD, 102: ADD}, replaced={7: {102}}, helper={(1, "multiply"): 3}) == (
        (3,),
        How.ONLY,
    ), "a helper of that opcode comes before what it replaces"
    assert taken({101: MUL, 102: MUL}, replaced={7: {102}}) == ((2,), How.ONLY), "more alike"
    assert taken({101: MUL, 102: ADD}, how={101: How.ORDER}) == ((1,), How.ORDER)
    assert taken({101: MUL, 102: ADD}, how={102: How.ORDER}) == ((1,), How.ONLY)
    assert taken({101: ADD, 102: ADD}, how={101: How.ORDER, 102: How.GUESSED}) == (
        (1,), How.GUESSED,
    )  # fmt: skip
    assert taken({}) == ((1,), How.ONLY)


def test_what_is_put_down() -> None:
    found = row({7: (A, ())})
    found.parts[7] = {}
    found._all.of[7] = found._sure.of[7] = (3,)
    found._put(7, "f", (1,), How.NEIGHBOURS)
    assert not found._guesses
    assert not found._all.of
    assert not found._sure.of
    found._put(7, "g", (2,), How.ONLY)
    assert found.how[7] == How.NEIGHBOURS, "no more certain than the least certain part"
    found._put(7, "h", (2,), How.GUESSED)
    assert found._guesses


class Scripted(Row):
    """Ranks are given: node → (evidence, family) …; what is taken is written down."""

    def __init__(self, ranks: dict[int, Any]) -> None:
        super().__init__(walk(), 3)
        self.ranks = ranks
        self.open = [(n, "c") for n in ranks]
        self.told: list[str] = []

    def _rank(self, n: int, c: str) -> list[tuple[float, int]]:
        found = self.ranks[n]
        return found(self.told) if callable(found) else found

    def _take(self, n: int, c: str, family: int, how: How) -> None:
        self.told.append(f"{n}:{family}:{how.name}")

    def _owners(self) -> None:
        pass

    def _in_order(self, every: bool) -> None:
        if self.open:
            self.told.append("all" if every else "one")
        self.open = [] if every else self.open[1:]


def lead(by: float) -> list[tuple[float, int]]:
    return [(10.0, 1), (10.0 - by, 2)]


ROUNDS: dict[str, tuple[dict[int, Any], str]] = {
    "clear": ({1: lead(5)}, "1:1:NEIGHBOURS"),
    "the clearest first": (
        {1: lead(0.75), 2: lead(1.5), 3: lead(3), 4: lead(5), 5: lead(4.5)},
        "4:1:NEIGHBOURS 3:1:NEIGHBOURS 5:1:NEIGHBOURS 2:1:NEIGHBOURS 1:1:NEIGHBOURS"),
    "one decides another": (
        {1: lambda told: lead(4 if told else 0), 2: lead(5), 3: lead(3)},
        "2:1:NEIGHBOURS 1:1:NEIGHBOURS 3:1:NEIGHBOURS"),
    "no lead": ({1: lead(0.5)}, "one"),
    "the first in order, the others again": (
        {1: lead(0), 2: lambda told: lead(5 if told else 0)}, "one 2:1:NEIGHBOURS"),
    "one family waits for its caller": ({1: [(10.0, 1)]}, "one"),
    "no family": ({1: []}, "one"),
    "sixty rounds": (
        {k: lead(0) for k in range(20)}, " ".join(["one"] * 15 + ["all"])),
}  # fmt: skip


@pytest.mark.parametrize("what", ROUNDS)
def test_rounds(what: str) -> None:
    """Without a decision four rounds pass, one for each margin, before one is taken in order."""
    ranks, want = ROUNDS[what]
    found = Scripted(ranks)
    found._rounds()
    assert " ".join(found.told) == want


def test_what_waits_for_its_whole_is_not_ranked() -> None:
    found = Scripted({1: lead(9)})
    found._held.add((1, "c"))
    found._rounds()
    assert found.told == ["one"]


@pytest.mark.parametrize(
    ("guesses", "ranked", "how"),
    [
        (False, [], How.NEIGHBOURS),
        (True, [(5.0, 1), (4.25, 2)], How.NEIGHBOURS),
        (True, [(0.6, 1), (0.0, 2)], How.NEIGHBOURS),
        (True, [(5.0, 1), (4.5, 2)], How.GUESSED),
        (True, [(5.0, 2), (1.0, 1)], How.GUESSED),
        (True, [(5.0, 1), (1.0, 2), (0.0, 3)], How.NEIGHBOURS),
    ],
)
def test_what_it_rests_on(guesses: bool, ranked: list[tuple[float, int]], how: How) -> None:
    seen = []

    class Asked(Scripted):
        def _rank(self, n: int, c: str) -> list[tuple[float, int]]:
            seen.append(self._seen is self._sure)
            return ranked

    found = Asked({})
    found._guesses = guesses
    assert found._rests_on(1, "c", 1) is how
    assert seen == [True] * guesses, "only what is sure"
    assert found._seen is found._all


class Ordered(Row):
    """Families are given; what is taken is written down."""

    def __init__(self, families: dict[int, list[int]], ranks: dict[int, Any], **lines: Any) -> None:
        super().__init__(walk({n: (lines.get(f"n{n}", A), ()) for n in ranks}), 3)
        self.w.order = {y: y for ys in families.values() for y in ys}
        self.families, self.ranked = families, {(n, "c"): r for n, r in ranks.items()}
        self.open = list(self.ranked)
        self.at = {n: n for n in ranks}
        self.told: list[tuple[int, int]] = []

    def _families(self, n: int, c: str) -> dict[int, list[int]]:
        return self.families

    def _rank(self, n: int, c: str) -> list[tuple[float, int]]:
        return []

    def _take(self, n: int, c: str, family: int, how: How) -> None:
        assert how is How.ORDER
        self.told.append((n, family))


TIED = [(5.0, 1), (5.0, 2)]


def test_ties_are_in_printed_order() -> None:
    def taken(found: Ordered, every: bool = True) -> list[tuple[int, int]]:
        found._in_order(every)
        return found.told

    families = {1: [101], 2: [102]}
    assert taken(Ordered(families, {7: TIED, 8: TIED})) == [(7, 1), (8, 2)]
    assert taken(Ordered({1: [102, 103], 2: [105, 101]}, {7: TIED, 8: TIED})) == [(7, 2), (8, 1)]
    assert taken(Ordered({1: [], 2: [101]}, {7: TIED, 8: TIED})) == [(7, 2), (8, 1)]
    back = Ordered(families, {7: TIED, 8: TIED})
    back.at = {7: 2, 8: 1}
    assert taken(back) == [(8, 1), (7, 2)]
    near = [(5.0, 1), (4.5, 2), (4.25, 3)]
    assert taken(Ordered({1: [103], 2: [102], 3: [101]}, {7: near, 8: near})) == [(7, 2), (8, 1)]
    edge = [(0.6, 1), (0.0, 2)]
    assert taken(Ordered({1: [102], 2: [101]}, {7: edge, 8: edge})) == [(7, 1), (8, 1)]
    assert taken(Ordered(families, dict.fromkeys(range(4), TIED))) == [
        (0, 1), (1, 1), (2, 2), (3, 2),
    ]  # fmt: skip
    assert taken(Ordered(families, dict.fromkeys(range(3), TIED))) == [(0, 1), (1, 2), (2, 2)]
    assert taken(Ordered(families, {7: TIED})) == [(7, 1)]
    assert taken(Ordered(families, {7: []})) == []


def test_ties_of_several_groups() -> None:
    families = {1: [101], 2: [102]}
    other = line("%b = f32[5] add()", "f")
    found = Ordered(families, {7: TIED, 8: TIED, 9: TIED}, n8=other)
    found._in_order(every=False)
    assert found.told == [(7, 1), (9, 2)]
    assert found.open == [(8, "c")]
    found._in_order(every=True)
    assert found.told[2:] == [(8, 1)]
    assert found.open == []
    every = Ordered(families, {7: TIED, 8: TIED, 9: TIED}, n8=other)
    every._held.add((7, "c"))
    every._in_order(every=True)
    assert every.told == [(8, 1), (9, 1)], "7 waits for what it is a part of"
    assert every.open == [(7, "c")]
