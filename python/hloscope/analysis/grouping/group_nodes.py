"""A group while the tree is built, and how scopes are simplified."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ..base.lines.op_name import BACKWARD, CALLED, FORWARD, LAYER, Path
from ..base.table import Ints

# A scope with fewer boxes than this is not worth opening.
MIN_BOXES = 2
# But for one of so many that differ in a number: ``up_0 … up_7`` become one box.
FAMILY = 3

_NUMBER = re.compile(r"\d+")
# What a box of operations that compute nothing is called: reshapes, casts, copies.
NAMELESS = "data movement"
NOTHING: Ints = np.zeros(0, np.int64)


@dataclass(slots=True, eq=False)
class Node:
    """A group while the tree is built; ``members`` are instructions directly inside."""

    kind: str
    label: str
    computation: int = -1
    owner: int = -1
    path: Path = ()
    children: list[Node] = field(default_factory=list)
    members: Ints = field(default_factory=lambda: NOTHING)
    fold_hint: str = ""  # if equal and not empty: one fold, whatever the labels
    index: int = -1
    named: bool = False  # a layer of a stack, with a name by the user
    given: str = ""  # the argument that its name ends with


def count_boxes(quiet: NDArray[np.bool_], rows: Ints | slice | list[int]) -> int:
    """How many of ``rows`` are boxes; counting is ten times as fast as summing."""
    mine = quiet[rows]
    return len(mine) - int(np.count_nonzero(mine))


def simplify(
    top: Node,
    quiet: NDArray[np.bool_],
    is_piece: Callable[[Node, int], bool] = lambda node, boxes: False,
) -> None:
    """Dissolves tiny scopes into their parent and lets only children vanish.

    ``is_piece`` says of a group and its boxes whether it is what another call of its name lost.
    """
    nodes = within(top)
    boxes: dict[int, int] = {}
    for node in reversed(nodes):  # children first, however deep names are nested
        boxes[id(node)] = _simplify(node, quiet, boxes, is_piece)


def _simplify(
    node: Node,
    quiet: NDArray[np.bool_],
    inside: dict[int, int],
    is_piece: Callable[[Node, int], bool],
) -> int:
    boxes = count_boxes(quiet, node.members)
    kept: list[Node] = []
    dissolved: list[Ints] = []
    family = Counter(_stem(child) for child in node.children if inside[id(child)])
    family[""] = 0
    for child in node.children:
        layer = bool(child.path) and child.path[-1].endswith(LAYER)
        a_pass = child.path[-1:] in ((FORWARD,), (BACKWARD,))  # all of it may be one loop
        alone = layer or a_pass or _is_part(child) or family[_stem(child)] >= FAMILY
        least = 1 if alone else MIN_BOXES
        if inside[id(child)] < least or is_piece(child, inside[id(child)]):
            dissolved += [n.members for n in within(child)]
        else:
            kept.append(child)
        boxes += inside[id(child)]
    if dissolved:
        node.members = np.sort(np.concatenate([node.members, *dissolved]))
    node.children = kept
    own = count_boxes(quiet, node.members)
    if len(kept) == 1 and own == 0:
        (only,) = kept
        if node.kind == "scope" and _bare(only.label) != _bare(node.label):
            node.label = f"{node.label}/{only.label}"
        node.members = np.sort(np.concatenate([node.members, only.members]))
        node.children = only.children
    return boxes


def _bare(label: str) -> str:
    """A label without its numbers: ``layer_1`` that calls ``layer`` is one name.

    So is a class and what is called after it: ``RewardHead`` and ``reward_head``.
    """
    return _NUMBER.sub("", label).replace("_", "").strip().lower()


def _stem(node: Node) -> str:
    """The name of a person's numbered scope without its number, or nothing."""
    name = node.path[-1] if node.path else ""
    return "" if name.endswith(CALLED) or not _NUMBER.search(name) else _NUMBER.sub("#", name)


def _is_part(node: Node) -> bool:
    """Whether it is a scope the user named at the top: ``lm_head`` says more than its matmul."""
    names = [c for c in node.path if c not in (FORWARD, BACKWARD)]
    return len(names) == 1 and not names[0].endswith(CALLED) and not node.children


def within(top: Node) -> list[Node]:
    """A group and all groups in it, parents before children."""
    out = [top]
    for node in out:  # grows
        out.extend(node.children)
    return out
