"""A collective matmul is one group: the ring of permutes with the small products between.

    permute ─ dot+add ─ permute ─ dot+add ─ permute ─ add      all-gather × matmul, windowed ×4

XLA:TPU unrolls short rings into their computation, where they read as a dozen unrelated boxes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ...hlo.collective_kinds import MATMUL
from ...hlo.shardings.devices import parse_pairs
from ..base.collectives.find import find
from ..base.collectives.windowed import join_windowed, signature
from ..base.labels.families import ID, families
from ..base.labels.flags import QUIET, flags
from ..base.table import Ints, Table, per_module, table
from .group_nodes import Node, count_boxes

if TYPE_CHECKING:
    from ...hlo import Instruction, Module

Mask = NDArray[np.bool_]

GATHERED, SCATTERED = "all-gather × matmul, windowed", "matmul × reduce-scatter, windowed"
# At most this many instructions from a permute to the products of its ring.
_REACH = 12
# The most of another line between a ring's permutes, as a share of the ring.
FOREIGN = 0.2
# A ring whose permutes are farther apart in the schedule than this is left as it is.
FARTHEST = 20_000
_BODY = re.compile(r"windowed_dot_general_body_(\w+?)(?:[._]|$)")
_PERMUTE = "collective-permute"


def loop_label(body: str) -> str:
    """The label of a windowed loop, by the name of its body; "" for any other loop."""
    if "windowed_dot_general_body" not in body:
        return ""
    found = _BODY.search(body)
    return {"ag": GATHERED, "rs": SCATTERED}.get(found[1] if found else "", "collective matmul")


@per_module
def rings(module: Module) -> list[tuple[str, Ints]]:
    """The label and the instructions of every ring that is not a loop."""
    t = table(module)
    if not any(o.startswith(_PERMUTE) for o in t.opcodes):
        return []
    permutes = [f for f in find(module, _PERMUTE) if f.kind == _PERMUTE]
    product = families(module) == ID["matmul"]
    quiet = (flags(module) & QUIET) != 0
    out = []
    for found in join_windowed(module, permutes):
        if found.kind != MATMUL or found.op.opcode == "while":
            continue
        if max(found.members) - min(found.members) > FARTHEST:
            continue
        label, rows = _Ring(t, product, quiet, found.members, found.op).read()
        if label:
            out.append((label, rows))
    return out


@per_module
def _with_rings(module: Module) -> frozenset[int]:
    """The computations that hold rings."""
    return frozenset(table(module).computation[[rows[0] for _, rows in rings(module)]].tolist())


class _Ring:
    def __init__(
        self, t: Table, product: Mask, quiet: Mask, members: set[int], op: Instruction
    ) -> None:
        self.t, self.product, self.quiet, self.members = t, product, quiet, members
        self.sign, self.computation = signature(op), op.computation.index

    def read(self) -> tuple[str, Ints]:
        for rows in (self._with_products(), self._exclusive()):
            between = self._walk(rows, True) & self._walk(rows, False) - rows
            foreign = sum(not self.quiet[r] for r in between)
            dots = [r for r in rows | between if self.product[r]]
            if dots and foreign <= FOREIGN * sum(not self.quiet[r] for r in rows):
                label = SCATTERED if self._carries(dots) else GATHERED
                return f"{label} ×{self._windows()}", np.array(sorted(rows | between), np.int64)
        return "", np.zeros(0, np.int64)

    def _windows(self) -> int:
        """Into how many pieces the product is split: the devices in a ring."""
        permutes = [self.t.instructions[r] for r in self.members]
        return max(_around(i.attribute("source_target_pairs") or "") for i in permutes)

    def _exclusive(self) -> set[int]:
        """The permutes, what is between them, and what only they use or only uses them."""
        rows = set(self.members)
        rows |= self._walk(rows, True) & self._walk(rows, False)
        for _ in range(_REACH):
            found = set()
            for at in {r for row in rows for r in self._near(row)} - rows:
                i = self.t.instructions[at]
                if not self._same(i):
                    continue
                used = all(u.index in rows for u in i.users)
                made = all(o.index in rows or o.opcode == "constant" for o in i.operands)
                if used or made:
                    found.add(at)
            if not found:
                break
            rows |= found
        return rows

    def _near(self, row: int) -> Iterator[int]:
        i = self.t.instructions[row]
        for other in (*i.operands, *i.users):
            if other.computation.index == self.computation:
                yield other.index

    def _with_products(self) -> set[int]:
        """The permutes and what is connected with them under the same name."""
        rows, frontier = set(self.members), list(self.members)
        for _ in range(_REACH):
            found = {
                r
                for at in frontier
                for r in self._near(at)
                if r not in rows and self._same(self.t.instructions[r])
            }
            if not found:
                break
            rows |= found
            frontier = list(found)
        return rows

    def _same(self, i: Instruction) -> bool:
        return signature(i) == self.sign and i.opcode not in ("parameter", "constant", "while")

    def _walk(self, rows: set[int], down: bool) -> set[int]:
        """What is reached from ``rows`` without leaving their part of the schedule."""
        low, high = min(rows), max(rows)
        seen, frontier = set(rows), list(rows)
        while frontier:
            i = self.t.instructions[frontier.pop()]
            for other in i.users if down else i.operands:
                r = other.index
                if r not in seen and low <= r <= high:
                    seen.add(r)
                    frontier.append(r)
        return seen

    def _carries(self, dots: list[int]) -> bool:
        """Whether a permute passes on what a product of the ring made."""
        left, seen = [(r, 0) for r in dots], set(dots)
        while left:
            at, depth = left.pop()
            for user in self.t.instructions[at].users:
                r = user.index
                if user.opcode.startswith(_PERMUTE) and r in self.members:
                    return True
                if r not in seen and depth < _REACH and user.op_name in ("", self.sign[0]):
                    seen.add(r)
                    left.append((r, depth + 1))
        return False


def _around(pairs: str) -> int:
    """How many devices are passed before the first comes round again."""
    to: dict[int, int] = dict(parse_pairs(pairs).tolist())
    at = first = next(iter(to), -1)
    for steps in range(1, len(to) + 1):
        at = to.get(at, first)
        if at == first:
            return steps
    return 0


def gather_rings(module: Module, nodes: list[Node], quiet: Mask) -> None:
    """Makes groups of the rings, each in the group that holds most of it."""
    t, product = table(module), families(module) == ID["matmul"]
    here = nodes[0].computation
    if here not in _with_rings(module):
        return
    mine = [(label, rows) for label, rows in rings(module) if t.computation[rows[0]] == here]
    first = int(t.first[here])
    node_of = np.full(int(t.size[here]), -1, np.int64)
    for n, node in enumerate(nodes):
        node_of[node.members - first] = n
    for label, rows in mine:
        held = []
        for n in np.unique(node_of[rows - first]).tolist():
            part = rows[node_of[rows - first] == n]
            if n >= 0:
                held.append((count_boxes(quiet, part), nodes[n], part))
        if not held:
            continue
        boxes, node, part = max(held, key=lambda h: h[0])
        if 2 * boxes < count_boxes(quiet, rows):
            continue
        if not product[part].any():  # the permutes alone are not a matmul
            continue
        if node.children or count_boxes(quiet, node.members) > count_boxes(quiet, part):
            child = Node("scope", label, node.computation, path=(*node.path, label))
            child.members = part
            node_of[part - first] = -1  # what two rings share belongs to the first
            node.members = np.setdiff1d(node.members, part)
            node.children.append(child)
        else:
            node.label = label
