"""What a DOT picture shows: which groups are open, and the edges between the boxes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..analysis.base.labels.families import families
from ..analysis.base.labels.flags import QUIET, flags
from ..analysis.base.table import table
from ..analysis.grouping.groups import KINDS
from ..view.context import Context

if TYPE_CHECKING:
    from ..api.capture import Capture

# Open boxes within one another: dot and Python's recursion take no more, and nobody reads them.
MAX_DEPTH = 60
_INSIDE = frozenset(["fusion", "reducer", "call"])  # boxes of their own, opened only on request


@dataclass(slots=True, eq=False)
class Box:
    """A group, a fold or an instruction in the picture."""

    id: str
    label: str
    group: int = -1  # the group it opens into
    instruction: int = -1
    size: int = 1
    opened: bool = False
    count: int = 1  # members of a fold
    depth: int = 0  # open boxes around it
    inside: list[Box] = field(default_factory=list)


class Picture:
    """Which groups are open, so that about ``max_nodes`` boxes show, and the edges between."""

    def __init__(self, capture: Capture, max_nodes: int, wanted: frozenset[str]) -> None:
        module = capture.module
        self.instructions = module.instructions
        self.table = table(module)
        names = Context(module, capture.target)  # called as on the page
        self.tree, self.folds = names.groups, names.folds
        self.labels = list(names.instruction_labels)
        for row, code in names.instruction_code.items():
            self.labels[row] = code
        self.group_labels, self.fold_labels = names.group_labels, names.fold_labels
        self.family = families(module).tolist()
        self.quiet = (flags(module) & QUIET) != 0
        self.children = self.tree.children()
        self.members: dict[int, list[int]] = {}
        for i, g in enumerate(self.tree.group.tolist()):
            if not self.quiet[i]:
                self.members.setdefault(g, []).append(i)
        self.owned: dict[int, list[int]] = {}
        for g, owner in enumerate(self.tree.owner.tolist()):
            if owner >= 0:
                self.owned.setdefault(owner, []).append(g)
        self.wanted = wanted
        self._found: dict[int, tuple[str, bool]] = {}
        self.box_of_group: dict[int, Box] = {}
        self.box_of_instruction: dict[int, Box] = {}
        self.opened_instructions: dict[int, Box] = {}
        self.root = Box("g0", "", 0)
        self._open(self.root)
        self._grow(max_nodes)

    def _open(self, box: Box) -> list[Box]:
        """Fills a box; groups of called computations stay inside their instruction's box."""
        box.opened = True
        if self.box_of_instruction.pop(box.instruction, None) is not None:
            self.opened_instructions[box.instruction] = box
        found: list[tuple[int, Box]] = []
        groups = [box.group] if box.group >= 0 else self.owned.get(box.instruction, [])
        if box.instruction >= 0 and box.group < 0:
            for g in groups:
                said = dict.fromkeys((KINDS[self.tree.kind[g]], self.group_labels[g]))
                inner = Box(f"g{g}", " ".join(said), g)  # not "condition condition"
                inner.depth = box.depth + 1
                self.box_of_group[g] = inner
                found.append((int(self.tree.order[g]), inner))
                self._open(inner)
        else:
            found = self._contents(box.group)
        box.inside = [b for _, b in sorted(found, key=lambda pair: pair[0])]
        for inner in box.inside:
            inner.depth = box.depth + 1
        return box.inside

    def _contents(self, group: int) -> list[tuple[int, Box]]:
        tree = self.tree
        found: list[tuple[int, Box]] = []
        seen: set[int] = set()
        for g in self.children[group]:
            if tree.owner[g] >= 0:
                continue  # opened from its instruction
            fold = int(self.folds.of_group[g])
            if fold >= 0 and fold not in seen and self.fold_labels[fold] not in self.wanted:
                seen.add(fold)
                run = self.folds.folds[fold]
                size = int(tree.size[run.members[0]])
                box = Box(f"f{fold}", self.fold_labels[fold], run.members[0], size=size)
                box.count = len(run.members)
                for m in run.members:
                    self.box_of_group[m] = box
            elif fold < 0 or fold not in seen:
                box = Box(f"g{g}", self.group_labels[g], g, size=int(tree.size[g]))
                self.box_of_group[g] = box
            else:
                continue
            found.append((int(tree.order[g]), box))
        for i in self.members.get(group, []):
            box = Box(f"i{i}", self.labels[i], instruction=i)
            box.size = sum(int(tree.size[g]) for g in self._openable(i)) or 1
            self.box_of_instruction[i] = box
            found.append((i, box))
        return found

    def _openable(self, i: int) -> list[int]:
        groups = self.owned.get(i, [])
        if self.instructions[i].name in self.wanted:
            return groups
        return [g for g in groups if KINDS[self.tree.kind[g]] not in _INSIDE]

    def _grow(self, max_nodes: int) -> None:
        """Opens the biggest closed box until the next would exceed the limit."""
        closed = self._closed(self.root)
        total = len(closed)
        refused: set[str] = set()
        while closed:
            box = max(closed, key=lambda b: (b.label in self.wanted, b.size, b.id))
            named = box.label in self.wanted or (
                box.instruction >= 0 and self.instructions[box.instruction].name in self.wanted
            )
            closed.remove(box)
            if box.size <= 1 or box.depth > MAX_DEPTH or box.id in refused:
                continue
            more = self._weight(box) - 1
            folded = box.count > 1 and total > max_nodes // 2
            if not named and (folded or total + more > max_nodes):
                continue
            total += more
            self._open(box)
            closed += self._closed(box)

    def _doors(self, box: Box) -> list[Box]:
        """The boxes that an open loop's edges go to: its body's, not its condition's."""
        inner = [b for b in box.inside if KINDS[self.tree.kind[b.group]] != "condition"]
        return [c for b in inner or box.inside for c in self._closed(b)]

    def _closed(self, box: Box) -> list[Box]:
        out: list[Box] = []
        for inner in box.inside:
            out += self._closed(inner) if inner.opened else [inner]
        return out

    def _weight(self, box: Box) -> int:
        """Boxes that opening it would show."""
        groups = [box.group] if box.group >= 0 else self._openable(box.instruction)
        total = 0
        for g in groups:
            kids = [k for k in self.children[g] if self.tree.owner[k] < 0]
            loose = sum(self.folds.of_group[k] < 0 for k in kids)
            runs = len({int(self.folds.of_group[k]) for k in kids} - {-1})
            total += loose + runs + len(self.members.get(g, []))
        return total

    # -- edges between what is drawn ------------------------------------------------

    def edges(self) -> dict[tuple[str, str], int]:
        """Edges between drawn boxes, through plumbing, without those that a longer path implies."""
        self._found.clear()
        count: dict[tuple[str, str], int] = {}
        drawn: dict[int, frozenset[str]] = {}
        offsets, values = self.table.operands.offsets.tolist(), self.table.operands.values.tolist()

        doors = {i: self._doors(b) for i, b in self.opened_instructions.items()}

        def sources(i: int) -> frozenset[str]:
            if doors.get(i):
                return frozenset([doors[i][-1].id])  # out of the last box of an open loop
            box = self._box(i)
            return frozenset([box]) if box else drawn.get(i, frozenset())

        for i, instr in enumerate(self.instructions):  # operands are printed before users
            came = [sources(o) for o in values[offsets[i] : offsets[i + 1]]]
            box = doors[i][0].id if doors.get(i) else self._box(i)
            if not box:
                if instr.opcode != "parameter" and came:
                    drawn[i] = frozenset().union(*came) if not instr.is_root else frozenset()
                continue
            for one in came:
                for a in one:
                    if a != box:
                        count[a, box] = count.get((a, box), 0) + 1
        return _reduce(count)

    def _box(self, i: int) -> str:
        """The drawn box an instruction is in, '' for plumbing outside of closed groups."""
        own = self.box_of_instruction.get(i)
        if own is not None:
            return own.id
        box, is_group = self._around(int(self.tree.group[i]))
        return "" if is_group and self.table.silent[i] else box

    def _around(self, group: int) -> tuple[str, bool]:
        """The closed box around a group or '', and whether it is a group's; found once for all
        groups on the way up, which may be thousands."""
        way: list[int] = []
        found: tuple[str, bool] | None = None
        g = group
        while g > 0 and found is None:
            found = self._found.get(g)
            if found is None:
                way.append(g)
                found = self._at(g)
                g = int(self.tree.parent[g])
        found = found or ("", False)
        self._found |= dict.fromkeys(way, found)
        return found

    def _at(self, g: int) -> tuple[str, bool] | None:
        box = self.box_of_group.get(g)
        if box is not None and not box.opened:
            return box.id, True
        if box is not None and g != box.group:  # another member of an opened fold
            return "", False
        owner = int(self.tree.owner[g])
        if owner >= 0 and owner in self.box_of_instruction:
            return self.box_of_instruction[owner].id, False
        return None


def _reduce(count: dict[tuple[str, str], int]) -> dict[tuple[str, str], int]:
    """Drops edges implied by longer paths (only where the boxes form no cycle)."""
    users: dict[str, set[str]] = {}
    for a, b in count:
        users.setdefault(a, set()).add(b)
    order: list[str] = []
    state: dict[str, int] = {}
    for start in sorted(users):
        stack = [(start, iter(sorted(users.get(start, ()))))]
        if start in state:
            continue
        state[start] = 1
        while stack:
            node, rest = stack[-1]
            for b in rest:
                if state.get(b) == 1:
                    return count  # a cycle
                if b not in state:
                    state[b] = 1
                    stack.append((b, iter(sorted(users.get(b, ())))))
                    break
            else:
                stack.pop()
                state[node] = 2
                order.append(node)
    bit = {node: 1 << n for n, node in enumerate(order)}
    reach: dict[str, int] = {}
    kept: dict[tuple[str, str], int] = {}
    for node in order:  # users come first
        far = 0
        for b in users.get(node, ()):
            far |= reach[b] & ~bit[b]
        total = 0
        for b in users.get(node, ()):
            total |= reach[b]
            if not far & bit[b]:
                kept[node, b] = count[node, b]
        reach[node] = total | bit[node]
    return kept
