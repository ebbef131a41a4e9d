"""Follows the instructions through all passes: when each appeared, changed and was removed.

A node is identified by its name within its computation; for passes that write everything anew
see ``match.py``.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence

from ...readers.hlo.pass_lines import Body, Line, Reader
from . import match as pass_match
from .line_diff import difference
from .steps import (
    ATTRIBUTES,
    BORN,
    LAYOUT,
    OPCODE,
    OPERANDS,
    RENAMED,
    RESULT,
    SHAPE,
    SOURCE,
    USERS,
    NodeVersion,
    PassComputation,
    PassNode,
    Replacement,
    Steps,
)

_PARTNERS = 4  # instructions of one source that one instruction may have replaced


def follow(
    texts: Sequence[Callable[[], str]], progress: Callable[[int, int], None] | None = None
) -> Steps:
    """Follows the instructions through the dumps of a module's rows, in order.

    ``progress`` is called with the number done and the number of all, and may raise to stop.
    """
    walk = PassWalk(len(texts))
    reader = Reader()
    for row, text in enumerate(texts):
        if progress is not None:
            progress(row, len(texts))
        walk.step(row, reader.read(text()))
    return walk.steps


class PassWalk:
    def __init__(self, rows: int) -> None:
        self.steps = Steps(rows, [], [], [], [], [])
        self.before: dict[str, Body] = {}
        self.place_of: dict[str, int] = {}  # by name, in the current row
        self.alive: dict[int, dict[str, int]] = {}  # place → name → node
        # removed and new in this row
        self.gone: list[int] = []
        self.born: list[int] = []

    def step(self, row: int, bodies: list[Body]) -> None:
        now = {b.name: b for b in bodies}
        steps = self.steps
        self.gone, self.born = [], []
        old_of = pass_match.computations(self.before, now)
        places: dict[str, int] = {}
        for b in bodies:
            old = old_of.get(b.name)
            if old is not None:
                place = steps.places[self.place_of[old.name]]
                places[b.name] = place.index
                if place.name != b.name:
                    place.name = b.name
                    place.renames.append((row, b.name))
            else:
                place = PassComputation(
                    len(steps.places), b.name, b.entry, row, row, [], [(row, b.name)]
                )
                steps.places.append(place)
                places[b.name] = place.index
            steps.places[places[b.name]].last = row + 1
        stays = set(places.values())
        changed: list[tuple[int, list[tuple[str, int]]]] = []
        for name in self.before:
            left_out = self.place_of[name]
            if left_out not in stays:
                changed.append((left_out, self._close(row, left_out)))
        self.place_of = places
        for b in bodies:
            old = old_of.get(b.name)
            if old is not None and old.lines == b.lines:
                continue
            diff = self._body(row, places[b.name], old, b)
            if any(kind != " " for kind, _ in diff):
                changed.append((places[b.name], diff))
        steps.diffs.append(changed)
        if row:
            self._same_source(row)
        self.before = now

    def _close(self, row: int, place: int) -> list[tuple[str, int]]:
        nodes = self.alive.pop(place)
        out = []
        for n in nodes.values():
            node = self.steps.nodes[n]
            node.last = row
            self.gone.append(n)
            out.append(("-", node.versions[-1]))
        return out

    def _body(self, row: int, place: int, old: Body | None, b: Body) -> list[tuple[str, int]]:
        steps = self.steps
        nodes, versions = steps.nodes, steps.versions
        was = self.alive.get(place, {})
        names = {x.name for x in b.lines}
        renamed: dict[str, str] = {}  # new name → old name
        reused: set[str] = set()  # names that another instruction has now
        if old is not None:
            lost = [x for x in old.lines if x.name not in names]
            fresh = [x for x in b.lines if x.name not in was]
            if pass_match.written_anew(len(old.lines), len(lost), len(fresh)):
                before = {x.name: x for x in old.lines}
                for x in b.lines:
                    if x.name in was and pass_match.another(before[x.name], x):
                        reused.add(x.name)
                        lost.append(before[x.name])
                        fresh.append(x)
                pairs = pass_match.instructions(lost, fresh)
                renamed = {new.name: old_line.name for old_line, new in pairs}
        taken = reused.union(renamed.values())
        now: dict[str, int] = {}
        for line in b.lines:
            n = was.get(renamed.get(line.name, line.name))
            if n is not None and (line.name in renamed or line.name not in taken):
                now[line.name] = n
                continue
            node = PassNode(len(nodes), place, row, steps.rows)
            nodes.append(node)
            now[line.name] = node.index
            self.born.append(node.index)
        kept = set(now.values())
        gone = [n for n in was.values() if n not in kept]
        for n in gone:
            nodes[n].last = row
        self.gone += gone
        diff_new: list[tuple[str, int]] = []
        changed_from: dict[int, int] = {}
        for line in b.lines:
            node = nodes[now[line.name]]
            last = versions[node.versions[-1]] if node.versions else None
            if last is not None and last.line is line:
                diff_new.append((" ", last.index))
                continue
            operands = tuple([now[o] for o in line.operands if o in now])
            bits = BORN if last is None else _bits(last, line, operands)
            version = NodeVersion(len(versions), row, node.index, line, operands, bits)
            if last is not None:
                if last.line.text == line.text and not bits:  # only its metadata differs
                    last.line = line
                    diff_new.append((" ", last.index))
                    continue
                changed_from[node.index] = last.index
                self._replaced(row, last.operands, operands, kept, USERS)
            versions.append(version)
            node.versions.append(version.index)
            diff_new.append(("+" if last is None or bits & ~RENAMED else "~", version.index))
        if old is not None:
            self._result(row, old, b, was, now, kept)
        self.alive[place] = now
        self._merge(place, b, now)
        if not row:
            return []
        return difference(steps, was, diff_new, set(gone), changed_from)

    def _replaced(
        self, row: int, old: tuple[int, ...], new: tuple[int, ...], kept: set[int], how: int
    ) -> None:
        if len(old) != len(new):
            return
        for a, b in zip(old, new, strict=True):
            if a not in kept:
                self.steps.links.append(Replacement(row, a, b, how))

    def _result(
        self, row: int, old: Body, new: Body, was: dict[str, int], now: dict[str, int],
        kept: set[int],
    ) -> None:  # fmt: skip
        a = next((was[x.name] for x in old.lines if x.root), None)
        b = next((now[x.name] for x in new.lines if x.root), None)
        if a is not None and b is not None:
            self._replaced(row, (a,), (b,), kept, RESULT)

    def _same_source(self, row: int) -> None:
        """Pairs what is new with what is gone by ``op_name`` if no user shows it."""
        steps = self.steps
        told = {(x.old, x.new) for x in steps.links if x.row == row}
        linked_old = {a for a, _ in told}
        linked_new = {b for _, b in told}
        by_key: dict[tuple[str, str], list[int]] = defaultdict(list)
        by_name: dict[str, list[int]] = defaultdict(list)
        for n in self.gone:
            line = steps.versions[steps.nodes[n].versions[-1]].line
            if line.op_name:
                by_key[line.opcode, line.op_name].append(n)
                by_name[line.op_name].append(n)
        for n in self.born:
            line = steps.versions[steps.nodes[n].versions[-1]].line
            if not line.op_name:
                continue
            found = by_key.get((line.opcode, line.op_name), ())
            if not found and n not in linked_new:
                found = [x for x in by_name.get(line.op_name, ()) if x not in linked_old]
            if len(found) <= _PARTNERS:
                for old in found:
                    if (old, n) not in told:
                        steps.links.append(Replacement(row, old, n, SOURCE))

    def _merge(self, place: int, b: Body, now: dict[str, int]) -> None:
        """Puts new nodes behind their predecessor, among all nodes that were ever there."""
        order = self.steps.places[place].order
        known = set(order)
        after: dict[int, list[int]] = defaultdict(list)
        last = -1
        for line in b.lines:
            n = now[line.name]
            if n in known:
                last = n
            else:
                after[last].append(n)
        if after:
            self.steps.places[place].order = after.get(-1, []) + [
                x for n in order for x in (n, *after.get(n, ()))
            ]


def _bits(last: NodeVersion, line: Line, operands: tuple[int, ...]) -> int:
    was = last.line
    bits = RENAMED if was.name != line.name else 0
    if was.opcode != line.opcode:
        bits |= OPCODE
    if was.shape != line.shape:
        bits |= SHAPE if was.dense != line.dense else LAYOUT
    if last.operands != operands or (not operands and was.arguments != line.arguments):
        bits |= OPERANDS
    if was.attributes != line.attributes or was.root != line.root:
        bits |= ATTRIBUTES
    return bits
