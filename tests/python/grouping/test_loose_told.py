"""Loose boxes, results and equal pieces, by hand: what is gathered, and what it is called."""

from __future__ import annotations

import random

import hloscope as hs
import numpy as np
import pytest
from hloscope.analysis.base.table import Table, table
from hloscope.analysis.grouping.components import cut_sections, cut_wide
from hloscope.analysis.grouping.group_nodes import Node, within
from hloscope.analysis.grouping.loose import Walk, _depths, _extent, gather_flat, gather_loose
from hloscope.analysis.grouping.results import gather_results

Rows = list[tuple[str, str, str]]  # name, opcode, operands


def read(rows: Rows, shape: str = "f32[8]") -> tuple[Table, dict[str, int]]:
    body = [f"  {name} = {shape} {op}({of})" for name, op, of in rows]
    text = ["HloModule m", "", "ENTRY main {", *body, f"  ROOT end = (f32[8]) tuple({rows[-1][0]})"]
    module = hs.read("\n".join([*text, "}", ""])).module
    return table(module), {i.name: i.index for i in module.instructions}


def mask(at: dict[str, int], names: str) -> np.ndarray:
    out = np.zeros(len(at), bool)
    out[[at[n] for n in names.split()]] = True
    return out


def node_of(at: dict[str, int], members: str, kind: str = "entry", **children: str) -> Node:
    """A group with named members, and groups of their members in it."""
    inside = [node_of(at, names, "scope") for names in children.values()]
    for label, child in zip(children, inside, strict=True):
        child.label = label
    rows = np.array(sorted(at[n] for n in members.split()), np.int64)
    return Node(kind, "main", 0, children=inside, members=rows)


def told(node: Node, at: dict[str, int]) -> dict[str, str]:
    """Labels and members of what is in a group; "" for what is in none."""
    name = {k: n for n, k in at.items()}
    out = {c.label: " ".join(name[r] for r in c.members.tolist()) for c in node.children}
    assert len(out) == len(node.children)
    return {**out, "": " ".join(name[r] for r in node.members.tolist())}


# a b ─ P ─ c d ─ Q ─ e f, where P and Q are parts and l is a landmark
CHAIN: Rows = [
    ("x", "parameter", "0"),
    ("a", "sine", "x"),
    ("b", "cosine", "a"),
    ("p1", "tanh", "b"),
    ("p2", "tanh", "p1"),
    ("c", "sqrt", "p2"),
    ("d", "log", "c"),
    ("l", "sort", "d"),
    ("q1", "tanh", "l"),
    ("q2", "tanh", "q1"),
    ("e", "sine", "q2"),
    ("f", "cosine", "e"),
]


def gathered(most: int, members: str = "x a b c d l e f", kind: str = "entry", **more: str):
    t, at = read(CHAIN)
    node = node_of(at, members, kind, **(more or {"P": "p1 p2", "Q": "q1 q2"}))
    gather_loose(node, t, mask(at, "x"), mask(at, "l"), Walk(100), most)
    return told(node, at)


def test_a_crowd_is_gathered_by_what_it_stands_behind() -> None:
    parts = {"P": "p1 p2", "Q": "q1 q2"}
    # six are loose, and two parts are boxes
    assert gathered(8) == {**parts, "": "x a b c d l e f"}
    assert gathered(7) == {**parts, "inputs": "a b", "log·sqrt": "c d", "outputs": "e f", "": "x l"}
    # in a pass nothing is an output
    same = {"inputs": "a b", "log·sqrt": "c d", "cosine·sine": "e f"}
    assert gathered(7, kind="scope") == {**parts, **same, "": "x l"}


def test_parts_that_differ_in_a_number_are_one_box() -> None:
    stack = {"block_1": "p1 p2", "block_2": "q1 q2"}
    assert gathered(7, **stack)[""] == "x a b c d l e f"
    assert gathered(6, **stack)["inputs"] == "a b"


def test_one_alone_stays_and_names_are_given_once() -> None:
    assert gathered(3, members="x a c d l e f")[""] == "x a l"
    assert gathered(3, members="x a l")[""] == "x a l"
    taken = {"inputs": "p1 p2", "outputs": "q1 q2"}
    found = gathered(3, **taken)
    assert (found["inputs 2"], found["outputs 2"]) == ("a b", "e f")
    found = gathered(3, P="p1 p2", outputs="q1", **{"outputs 2": "q2"})
    assert found["outputs 3"] == "e f"


def test_what_moves_nothing_told_is_called_between() -> None:
    rows = [(n, "abs" if n in ("c", "d") else op, of) for n, op, of in CHAIN]
    t, at = read(rows)
    node = node_of(at, "x a b c d l e f", P="p1 p2", Q="q1 q2")
    gather_loose(node, t, mask(at, "x"), mask(at, "l"), Walk(100), 3)
    assert told(node, at)["between"] == "c d"


def test_a_walk_ends() -> None:
    walk = Walk(10)
    assert [walk.takes(n) for n in (4, 7, 6, 1, 0)] == [True, False, True, False, True]
    assert (Walk.of(10).left, Walk.of(100_000).left) == (200_000, 1_200_000)
    t, at = read(CHAIN)
    for rows, groups in ((11, 2), (12, 5)):  # from x to f there are twelve
        node = node_of(at, "x a b c d l e f", P="p1 p2", Q="q1 q2")
        gather_loose(node, t, mask(at, "x"), mask(at, "l"), Walk(rows), 3)
        assert len(node.children) == groups


def test_the_extent_of_a_group_is_that_of_all_in_it() -> None:
    t, at = read(CHAIN)
    node = node_of(at, "c d", P="p1 p2", Q="q1")
    assert _extent(node) == (at["p1"], at["q1"] + 1)
    node.children[0].members = node.members[:0]
    assert _extent(node) == (at["c"], at["q1"] + 1)
    assert len(t.instructions) == len(CHAIN) + 1


def test_how_many_parts_are_before() -> None:
    t, at = read(CHAIN)
    node = node_of(at, "c d l e f", P="p1 p2", Q="q1 q2")
    begin, end = _extent(node)
    depth = _depths(node, t, begin, end, np.array([at["l"]]))
    # what is before the extent, b, is a part
    names = "p1 p2 c d l q1 q2 e f".split()
    assert dict(zip(names, depth.tolist(), strict=True)) == {
        "p1": 1, "p2": 1, "c": 2, "d": 2, "l": 2, "q1": 3, "q2": 3, "e": 4, "f": 4,
    }  # fmt: skip
    assert _depths(node, t, begin, end, np.zeros(0, np.int64))[-1] == 3  # without l


def test_no_path_between_two_of_one_gathering_leads_through_a_part() -> None:
    rng = random.Random(5)
    seen = 0
    for _ in range(60):
        rows: Rows = [("x", "parameter", "0")]
        ops = ("sine", "cosine", "tanh", "abs")
        for k in range(22):
            of = [rows[rng.randrange(max(0, len(rows) - 5), len(rows))][0] for _ in "ab"]
            rows.append((f"v{k}", "add", ", ".join(of)) if k % 3 else (f"v{k}", ops[k % 4], of[0]))
        t, at = read(rows)
        names = [n for n, _, _ in rows[1:]]
        kind = {n: rng.choice("......PQl") for n in names}
        held = {k: " ".join(n for n in names if kind[n] == k) for k in ".PQl"}
        if not held["P"] or not held["Q"]:
            continue
        node = node_of(at, f"x {held['.']} {held['l']}", P=held["P"], Q=held["Q"])
        gather_loose(node, t, mask(at, "x"), mask(at, held["l"]), Walk(1000), 2)
        assert sorted(r for n in within(node) for r in n.members.tolist()) == list(range(23))
        parts = {at[n] for n in names if kind[n] in "PQ"}
        for made in node.children[2:]:
            seen += 1
            assert len(made.members) > 1
            mine = set(made.members.tolist())
            after, before = set(mine), set(mine)
            for r in range(23):
                if any(o.index in after for o in t.instructions[r].operands):
                    after.add(r)
            for r in reversed(range(23)):
                if any(u.index in before for u in t.instructions[r].users):
                    before.add(r)
            assert not after & before & parts
    assert seen > 60


# -- a computation of boxes alone -----------------------------------------------------------


def flat(boxes: int, *sorts: int) -> tuple[dict[str, str], dict[str, int]]:
    ops = ["sort" if k in sorts else ("sine", "cosine", "sqrt")[k % 3] for k in range(boxes)]
    rows = [("x", "parameter", "0")]
    rows += [(f"v{k}", op, f"v{k - 1}" if k else "x") for k, op in enumerate(ops)]
    t, at = read(rows)
    node = node_of(at, " ".join(n for n, _, _ in rows))
    landmark = mask(at, " ".join(f"v{k}" for k in sorts))
    gather_flat(node, t, mask(at, "x"), landmark, Walk(100))
    return told(node, at), at


def names(begin: int, end: int) -> str:
    return " ".join(f"v{k}" for k in range(begin, end))


def test_boxes_alone_are_parted_by_landmarks() -> None:
    found, _ = flat(15, 5)
    assert found == {"": f"x {names(0, 15)}"}
    found, _ = flat(16, 5)
    assert found == {"inputs": names(0, 5), "outputs": names(6, 16), "": "x v5"}
    # seven landmarks and eight parts are fifteen; beside a ninth part there are seventeen
    found, _ = flat(24, *range(2, 22, 3))
    assert (len(found) - 1, found[""]) == (8, "x v2 v5 v8 v11 v14 v17 v20")
    found, _ = flat(27, *range(2, 25, 3))
    assert "inputs" not in found
    found, _ = flat(20)  # nothing parts them
    assert "inputs" not in found
    assert 1 < len(found) - 1 <= 9
    assert found[""] == ""


# -- results ---------------------------------------------------------------------------------


def results(kinds: dict[str, int], crowded: int = 16) -> dict[str, str]:
    """So many roots of each opcode, one of which a quiet copy hands on, and one that is used."""
    rows: Rows = [("x", "parameter", "0")]
    for op, count in kinds.items():
        rows += [(f"{op}{k}", op, "x") for k in range(count)]
    rows += [("sine_copy", "bitcast", "sine0"), ("last", "tanh", "sine1")]
    t, at = read(rows)
    node = node_of(at, " ".join(n for n, _, _ in rows))
    out = [at[n] for n, _, _ in rows if n not in ("x", "sine0")]
    gather_results(node, t, mask(at, "x sine_copy end"), np.array(out), crowded)
    return told(node, at)


def test_results_of_one_kind_are_one_group_from_six_on() -> None:
    found = results({"sine": 7, "sqrt": 5, "cosine": 3})
    assert found["sine ×6"] == "sine0 sine2 sine3 sine4 sine5 sine6"  # sine1 is used
    assert found[""].split() == [
        "x", "sine1", *(f"sqrt{k}" for k in range(5)), *(f"cosine{k}" for k in range(3)),
        "sine_copy", "last",
    ]  # fmt: skip
    assert set(results({"sine": 6, "sqrt": 5, "cosine": 4})) == {""}  # five are left
    assert set(results({"sine": 7, "sqrt": 6, "cosine": 3})) == {"", "sine ×6", "sqrt ×6"}


def test_few_boxes_are_shown_one_by_one() -> None:
    assert set(results({"sine": 7, "sqrt": 7})) == {""}  # 15 with the last
    assert set(results({"sine": 7, "sqrt": 8})) == {"", "sine ×6", "sqrt ×8"}


# -- equal pieces ----------------------------------------------------------------------------


def pieces(pairs: int, alone: int, chain: int, quiet: str = "") -> tuple[dict[str, int], int]:
    """Pieces of two boxes, of one, and a chain: sizes of groups by label, and what is left."""
    rows: Rows = [("x", "parameter", "0")]
    for k in range(pairs):
        rows += [(f"a{k}", "sine", "x"), (f"b{k}", "sqrt", f"a{k}")]
    rows += [(f"s{k}", "tanh", "x") for k in range(alone)]
    at_last = "x"
    for k in range(chain):
        op = ("sine", "cosine", "sqrt", "log")[k % 4]
        rows.append((f"c{k}", op, at_last))
        at_last = f"c{k}"
    t, at = read(rows)
    node = node_of(at, " ".join(n for n, _, _ in rows[1:]))
    cut_wide(node, t, mask(at, f"x {quiet}"))
    found: dict[str, int] = {}
    for child in node.children:
        found[child.label] = found.get(child.label, 0) + 1
        if "×" in child.label:
            assert child.fold_hint == ""
        elif child.kind == "component":
            assert len(child.members) == 2
            assert child.fold_hint == node.children[0].fold_hint != ""
    return found, len(node.members)


def test_equal_pieces_are_groups_when_they_are_half_of_a_wide_one() -> None:
    assert pieces(12, 0, 0) == ({}, 24)  # 24 boxes
    assert pieces(13, 0, 0)[0] == {"sqrt·sine": 13}
    assert pieces(13, 0, 0, quiet="a0 b0 a1")[0] == {}
    assert pieces(10, 6, 26)[0] == {"sqrt·sine": 10, "tanh ×6": 1}  # 26 of 52
    assert pieces(10, 5, 26) == ({}, 51)  # 25 of 51
    # so wide a one is cut all the same
    assert pieces(3, 2, 56) == ({}, 64)  # 64 boxes
    found, left = pieces(3, 2, 57)
    assert (found["sqrt·sine"], found["tanh ×2"], left) == (3, 1, 57)


@pytest.mark.parametrize("second", ["a", "x"])
def test_pieces_of_the_same_work_are_equal_where_it_is_connected_alike(second: str) -> None:
    """In half of them the second reads the first, or what all read."""
    rows: Rows = [("x", "parameter", "0")]
    for k in range(18):
        of = f"a{k}" if k % 2 or second == "a" else "x"
        rows += [(f"a{k}", "sine", "x"), (f"b{k}", "sqrt", of), (f"c{k}", "add", f"a{k}, b{k}")]
    t, at = read(rows)
    node = node_of(at, " ".join(n for n, _, _ in rows[1:]))
    cut_wide(node, t, mask(at, "x"))
    found = {c.fold_hint: c.label for c in node.children}
    words = "sqrt·sine·add"
    named = [words] if second == "a" else [f"{words} f32[8]", f"{words} f32[8] #2"]
    assert sorted(found.values()) == named
    assert len(node.children) == 18


def test_pieces_of_unheard_of_work_are_called_by_what_is_first() -> None:
    rows: Rows = [("x", "parameter", "0")]
    for k in range(13):
        rows += [(f"a{k}", "bitcast", "x"), (f"b{k}", "frob", f"a{k}"), (f"c{k}", "odd", f"b{k}")]
    t, at = read(rows)
    node = node_of(at, " ".join(n for n, _, _ in rows[1:]))
    cut_wide(node, t, mask(at, "x " + " ".join(f"a{k}" for k in range(13))))
    assert [c.label for c in node.children] == ["frob"] * 13


def test_a_rest_that_is_wide_is_cut_by_schedule() -> None:
    assert pieces(15, 0, 64)[1] == 64
    found, left = pieces(15, 0, 65)
    assert left == 0
    assert len(found) > 2


def test_pieces_of_one_name_are_told_apart_by_their_biggest_array() -> None:
    rows = [f"  a{k} = f32[8] sine(x)\n  b{k} = f32[8] sqrt(a{k})" for k in range(7)]
    rows += [f"  c{k} = f32[8,4] broadcast(x)\n  d{k} = f32[8,4] sqrt(c{k})" for k in range(7)]
    rows += [f"  e{k} = f32[8,4] sine(d{k})" for k in range(7)]
    rows += [f"  g{k} = f32[8,4] sqrt(h)\n  i{k} = f32[8,4] sine(g{k})" for k in range(7)]
    head = "HloModule m\n\nENTRY main {\n  x = f32[8] parameter(0)\n  h = f32[8,4] parameter(1)\n"
    text = head + "\n".join(rows) + "\n  ROOT r = (f32[8]) tuple(b0)\n}\n"
    module = hs.read(text).module
    node = Node("entry", "main", 0, members=np.arange(len(module.instructions)))
    quiet = np.array([i.opcode in ("parameter", "tuple") for i in module.instructions])
    cut_wide(node, table(module), quiet)
    assert [c.label for c in node.children[::7]] == [
        "sqrt·sine f32[8]", "sqrt·sine f32[8,4]", "sqrt·sine f32[8,4] #2",
    ]  # fmt: skip


def test_a_cut_by_schedule_is_where_the_fewest_values_cross() -> None:
    """Nine values side by side become one, again and again: cuts are after that one."""
    rows: Rows = [("x", "parameter", "0")]
    last, ends = "x", []
    for block in range(8):
        if block:
            rows.append((f"j{block}", "tanh", last))
            last = f"j{block}"
        rows += [(f"w{block}.{k}", "sine", last) for k in range(9)]
        last = f"w{block}.0"
        for k in range(1, 9):
            rows.append((f"s{block}.{k}", "add", f"{last}, w{block}.{k}"))
            last = f"s{block}.{k}"
        ends.append(last)
    t, at = read(rows)
    node = node_of(at, " ".join(n for n, _, _ in rows[1:]))
    cut_sections(node, t, np.zeros(len(at), bool), 18)
    name = {k: n for n, k in at.items()}
    assert [name[int(c.members[-1])] for c in node.children] == ends
    assert {c.kind for c in node.children} == {"section"}
    again = [f"tanh·sine·add f32[8]{f' #{k}' if k > 1 else ''}" for k in range(1, 8)]
    assert [c.label for c in node.children] == ["sine·add", *again]


@pytest.mark.parametrize(("boxes", "parts"), [(60, 0), (61, 2), (100, 2), (101, 3)])
def test_a_section_is_about_forty_boxes(boxes: int, parts: int) -> None:
    rows: Rows = [("x", "parameter", "0")]
    rows += [(f"v{k}", "sine", f"v{k - 1}" if k else "x") for k in range(boxes)]
    t, at = read(rows)
    node = node_of(at, " ".join(n for n, _, _ in rows[1:]))
    cut_sections(node, t, np.zeros(len(at), bool))
    assert len(node.children) == parts
    assert len(node.members) == (0 if parts else boxes)
    sizes = [len(c.members) for c in node.children]
    assert sizes == [40] * (parts - 1) + ([boxes - 40 * (parts - 1)] if parts else [])
