"""Which of the first instructions each one of a later dump comes from: ``identity_row.py``.

Dumps are written as in ``pass_dumps.py``; nodes as in ``identity_nodes.py``.
"""

from __future__ import annotations

from typing import Any

import pytest
from hloscope.analysis.passes.identity.how import How
from hloscope.analysis.passes.identity.row import Row
from hloscope.analysis.passes.identity.walk import follow_identity
from hloscope.analysis.passes.steps import RESULT, SOURCE, USERS, Replacement
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
    "no op name, and another opcode": (
        [f"{P}; a = f32[4] copy(p)", f"{P}; a = f32[4] bitcast(p)"], "a", "a=a:FIRST"),
    "another op name and another opcode": (
        [f"{P}; a = f32[4] tanh(p)@f", f"{P}; a = f32[4] sine(p)@g"], "a", "a=:FIRST"),
    "an op name for what had none": (
        [f"{P}; a = f32[4] copy(p)", f"{P}; a = f32[4] bitcast(p)@f"], "a", "a=:FIRST"),
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
    found._look_inside(call, (1, 2))
    assert found.outside == {10: 1, 11: 2}
    assert found.inside == {1: [10], 2: [11]}
    found._look_inside(line("%f = f32[4] fusion(%a), calls=%other"), (1,))
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


# -- what is in question -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("same", "of", "hold"),
    [(0, 0, True), (5, 5, True), (4, 5, True), (3, 5, False), (0, 5, False), (1, 1, True)],
)
def test_source_lines_count_while_four_of_five_stay(same: int, of: int, hold: bool) -> None:
    told = {n: (line("%a = f32[4] add()", "f", "7"), ()) for n in range(of)}
    before = {n: (line("%a = f32[4] add()", "f", "7" if n < same else "8"), ()) for n in range(of)}
    # without a frame, with another op name, and new
    told |= {n: (line("%a = f32[4] add()", "f"), ()) for n in (10, 11)}
    before |= {n: (line("%a = f32[4] add()", "f"), ()) for n in (10, 11)}
    told |= {20: (line("%a = f32[4] add()", "f", "7"), ()), 30: (A, ())}
    before[20] = line("%a = f32[4] add()", "g", "8"), ()
    found = row(told, before)
    names = {f"a{n}": n for n in told if n != 30}
    found.w.steps.places[0].entry = True
    found.w.changes = [(0, names, names | {"a30": 30})]
    found._collect()
    assert found.frames_hold is hold


def test_what_took_a_place_counts_once_and_op_names_do_not() -> None:
    found = row()
    found.w.steps.links = [
        Replacement(2, 1, 2, USERS), Replacement(3, 5, 6, USERS),
        Replacement(3, 5, 7, SOURCE), Replacement(3, 8, 9, RESULT),
    ]  # fmt: skip
    found.w.links_seen = 1
    found._collect()
    assert found.replaced == {6: {5}, 9: {8}}
    assert found.w.links_seen == 4


def collected(new: Any, old: Any = None, name: str = "a", entry: bool = True) -> Row:
    """Node 1, called ``a`` before, in a dump of which nine others stay."""
    found = row({1: (new, ())}, {} if old is None else {1: (old, ())})
    kept = {f"k{k}": 50 + k for k in range(9)}
    for n in kept.values():
        found.w.line[n] = A
    present = found.w.present
    found.w.present = lambda n: A if n >= 50 else present(n)
    found.w.steps.places[0].entry = entry
    found.w.known[1] = (1,)
    was = kept | ({} if old is None else {"a": 1})
    found.w.changes = [(0, was, kept | {name: 1})]
    found._collect()
    return found


def test_what_is_in_question() -> None:
    found = collected(A)
    assert (found.fresh, found.open, found.parts) == ({1: True}, [(1, "f")], {1: {}})
    assert (found.at[50], found.at[1], found.place[1], found.named["a"]) == (0, 9, 0, 1)
    found = collected(A, A)
    assert (found.fresh, found.open, found.parts) == ({}, [], {})
    found = collected(A, A, "b")
    assert (found.fresh, found.open) == ({1: False}, [(1, "f")])
    found = collected(A, line("%a = f32[4] tanh()", "f"))
    assert (found.fresh, found.open, found.unnamed) == ({1: False}, [(1, "f")], {})
    found = collected(line("%a = f32[4] add()"), line("%a = f32[4] tanh()"))
    assert (found.fresh, found.open, found.unnamed) == ({1: False}, [], {1: (1,)})
    found = collected(line("%a = f32[4] add()"))
    assert (found.fresh, found.open, found.unnamed) == ({1: True}, [], {})


@pytest.mark.parametrize(("entry", "open_"), [(True, []), (False, [(1, "x")])])
def test_arguments_have_no_op_name_of_an_operation(entry: bool, open_: list[Any]) -> None:
    """What stands there is a name, such as ``weights[0]``; loops' have that of the loop."""
    x = line("%a = f32[4] parameter(0)", "x")
    assert collected(x, entry=entry).open == open_
    found = collected(x, line("%a = f32[4] parameter(0)", "y"), entry=entry)
    assert found.open == open_
    assert (1 in found.parts) is not entry


def test_a_name_proves_nothing_where_all_was_written_anew() -> None:
    plain = line("%a = f32[4] add()")
    found = row({1: (plain, ()), 2: (A, ())}, {1: (plain, ())})
    found.w.steps.places[0].entry = True
    found.w.known[1] = (1,)
    found.w.changes = [(0, {"a": 1, "b": 3}, {"a": 1, "c": 2})]
    found._collect()
    assert found.anew
    assert (found.fresh, found.unnamed, found.open) == ({1: False, 2: True}, {}, [(2, "f")])


def test_fusions_are_looked_into() -> None:
    """One is told from the other by what its fusion reads."""
    before = f"{P}; a = f32[4] tanh(p)@f; b = f32[4] tanh(q)@f"
    after = f"{P}; g = f32[4] {{0}}(q), calls=%two; h = f32[4] {{0}}(p), calls=%one"
    one = "x = f32[4] parameter(0); ROOT c = f32[4] tanh(x)@f"
    two = "y = f32[4] parameter(0); ROOT d = f32[4] tanh(y)@f"
    for opcode in ("fusion", "call"):
        found = known(before, dump(after.format(opcode), two=two, one=one))
        assert said(found, "c d") == "c=a:NEIGHBOURS d=b:NEIGHBOURS"
    found = known(before, dump(after.format("map"), two=two, one=one))
    assert said(found, "c d") == "c=b:ORDER d=a:ORDER", "in printed order"


# -- evidence and what is written down ---------------------------------------------------------


def test_ranks() -> None:
    """1.5 for the opcode, 1 for the shape, 5 for the name; of a family its best one counts."""
    add, tanh = line("%z = f32[4] add()"), line("%z = f32[4] tanh()")
    found = row({7: (A, ())}, {101: (A, ()), 102: (add, ()), 103: (tanh, ())})
    found._groups["f", -1] = {3: [103], 4: [], 1: [103, 101], 2: [102]}
    found.w.index = {"f": {101: None}}
    assert found._rank(7, "f") == [(7.5, 1), (2.5, 2), (1.0, 3), (0.0, 4)]
    found._around = lambda n, c: {4: 2.5, 3: 1.5}  # type: ignore[method-assign]
    assert found._rank(7, "f") == [(7.5, 1), (2.5, 2), (2.5, 3), (2.5, 4)]


@pytest.mark.parametrize(("indexed", "more"), [(True, 3.0), (False, 0.0)])
def test_source_lines_do_not_count_where_it_was_inlined(indexed: bool, more: float) -> None:
    told = line("%a = f32[4] add()", "f", "7")
    found = row({7: (told, ())}, {101: (told, ())})
    found._groups["f", -1] = {1: [101]}
    found.w.index = {"f": {101: None}} if indexed else {}
    assert found._rank(7, "f") == [(7.5 + more, 1)]


def test_what_is_written_down() -> None:
    merged = line("%a = f32[4] add()", "f;g")
    found = row({n: (merged, ()) for n in range(1, 5)})
    w = found.w
    w.known = {1: (1, 2)}
    w.unnamed = {1: (9,), 2: (9,), 3: (9,), 4: (9,)}
    found.unnamed = {1: (8,), 2: (8,), 4: (8,)}
    found.fresh = {1: True, 2: True, 3: True}
    found.parts = {1: {"g": (2,), "f": (1,), "old": (3,)}, 2: {}, 3: {}, 4: {}}
    found.how = {1: How.NEIGHBOURS}
    found._write()
    assert list(w.parts[1].items()) == [("f", (1,)), ("g", (2,))], "in the order of its op name"
    assert list(w.parts) == [1]
    assert w.unnamed == {2: (8,), 4: (9,)}
    assert w.how == {1: How.NEIGHBOURS, 2: How.FIRST, 3: How.FIRST, 4: How.FIRST}
    assert w.history[1] == [(3, (1, 2), How.NEIGHBOURS, True)]
    assert w.history[2] == [(3, (), How.FIRST, False)]
    assert not w.guesses
    found.how[1] = How.GUESSED
    found._write()
    assert w.guesses
    assert len(w.history[1]) == 2


def test_parameters_of_fusions_follow_what_they_are_given() -> None:
    found = row()
    w = found.w
    w.outside = {10: 1, 11: 0}
    w.inside[1][10] = w.inside[0][11] = None
    found.outside = {10: 2, 11: 3, 12: 2}
    found._write()
    assert w.outside == {10: 2, 11: 3, 12: 2}
    assert {k: [*v] for k, v in w.inside.items() if v} == {2: [10, 12], 3: [11]}
