"""Scopes too small to open are dissolved; what a person named stays."""

from __future__ import annotations

from itertools import count

import numpy as np
from hloscope.analysis.base.lines.op_name import BACKWARD, CALLED, FORWARD, LAYER, Path
from hloscope.analysis.grouping.group_nodes import Node, simplify, within

SILENT = 1000
QUIET = np.arange(2 * SILENT) >= SILENT


FRESH = count()


def node(*path: str, boxes: int = 0, quiet: int = 0, kind: str = "scope") -> Node:
    """A group with so many boxes and quiet rows, all its own."""
    rows = [next(FRESH) for _ in range(boxes)] + [SILENT + next(FRESH) for _ in range(quiet)]
    label = path[-1] if path else "main"
    return Node(kind, label, path=path, members=np.array(rows, np.int64))


def kept(*children: Node, own: int = 1, kind: str = "entry", path: Path = ()) -> list[str]:
    """Labels of the groups that stay in one with ``own`` boxes beside them."""
    top = node(*path, boxes=own, kind=kind)
    top.children = list(children)
    rows = sorted(r for n in within(top) for r in n.members.tolist())
    simplify(top, QUIET)
    assert sorted(r for n in within(top) for r in n.members.tolist()) == rows
    return [c.label for c in top.children]


def test_one_box_is_not_worth_opening() -> None:
    assert kept(node("net", "a", boxes=1), node("net", "b", boxes=2)) == ["b"]
    assert kept(node("net", "a", boxes=1, quiet=3)) == []


def test_what_a_person_named_at_the_top_is_worth_it() -> None:
    assert kept(node("head", boxes=1)) == ["head"]
    assert kept(node(FORWARD, "head", boxes=1), node(BACKWARD, "tail", boxes=1)) == ["head", "tail"]
    assert kept(node("head", quiet=2)) == []  # nothing to see
    assert kept(node("softmax" + CALLED, boxes=1)) == []  # jax named it
    assert kept(node(FORWARD, "net", "head", boxes=1)) == []


def test_layers_and_families_of_three_are_worth_it() -> None:
    assert kept(node("net", "block 1" + LAYER, boxes=1)) == ["block 1" + LAYER]
    three = [node("net", f"up_{k}", boxes=1) for k in range(3)]
    assert kept(*three) == ["up_0", "up_1", "up_2"]
    assert kept(*[node("net", f"up_{k}", boxes=1) for k in range(2)]) == []
    assert kept(*[node("net", f"f_{k}{CALLED}", boxes=1) for k in range(3)]) == []
    assert kept(*[node("net", x, boxes=1) for x in "abc"]) == []
    quiet = [node("net", "up_2", quiet=1)]  # two to see, and one of nothing
    assert kept(*[node("net", f"up_{k}", boxes=1) for k in range(2)], *quiet) == []


def test_a_group_of_one_group_alone_takes_its_place() -> None:
    inner = node("net", "a", "b", boxes=3)
    assert kept(inner, own=0) == []
    top = node("net", "a")
    top.children = [node("net", "a", "b", boxes=3)]
    simplify(top, QUIET)
    assert (top.label, len(top.members), top.children) == ("a/b", 3, [])
    assert kept(node("net", "a", "b", boxes=3), own=1) == ["b"]
    entry = node(kind="entry")
    entry.children = [node("net", boxes=3)]
    simplify(entry, QUIET)
    assert (entry.label, len(entry.members)) == ("main", 3)
    two = kept(node("net", "a", boxes=2), node("net", "b", boxes=2), own=0)
    assert two == ["a", "b"]
