"""DOT and SVG: the same tree of groups, opened until the picture is full.

Starts with ENTRY open and keeps opening the biggest closed box while the number of boxes
stays under a limit, so a small program shows every instruction and a big one its layers.
Plumbing (tuples, bitcasts, small copies), constants and parameters are drawn through.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..analysis.families import FAMILIES, families
from ..analysis.flags import QUIET, flags
from ..analysis.folds import folds
from ..analysis.groups import KINDS, group_tree
from ..analysis.labels import labels
from ..analysis.table import table
from .text import printable

if TYPE_CHECKING:
    import graphviz

    from .._capture import Capture

MAX_NODES = 60
_COLORS = {
    "matmul": "#a6cee3",
    "convolution": "#a6cee3",
    "collective": "#fdbf6f",
    "control_flow": "#cab2d6",
    "custom_call": "#fb9a99",
    "linear_algebra": "#b2df8a",
    "reduction": "#d9f0d3",
    "fusion": "#eef3ea",
    "transfer": "#ffffb3",
}
_INSIDE = frozenset(["fusion", "reducer", "call"])  # boxes of their own, not opened unasked


class DotMissing(RuntimeError):
    """The ``dot`` program is not there; DOT text still works."""


def digraph(
    capture: Capture, *, max_nodes: int = MAX_NODES, open: Collection[str] = ()
) -> graphviz.Digraph:
    """The grouped graph as a ``graphviz.Digraph``; ``.source`` is DOT text.

    ``max_nodes`` bounds the boxes drawn. ``open`` names groups, folds or instructions to
    open whatever the limit: ``open=["layer_[0..23]", "while.3"]``.
    """
    import graphviz

    picture = _Picture(capture, max_nodes, frozenset(open))
    graph = graphviz.Digraph(
        graphviz.escape(printable(capture.title)),
        graph_attr={
            "rankdir": "TB",
            "fontname": "sans-serif",
            "label": graphviz.escape(printable(capture.title)),
            "labelloc": "t",
            "newrank": "true",
        },
        node_attr={
            "shape": "box",
            "style": "filled,rounded",
            "fillcolor": "#f7f7f7",
            "fontname": "sans-serif",
            "fontsize": "11",
            "height": "0.3",
        },
        edge_attr={"arrowsize": "0.6", "color": "#555555"},
    )
    picture.draw(graph)
    return graph


def svg(capture: Capture, *, max_nodes: int = MAX_NODES, open: Collection[str] = ()) -> str:
    """The picture as SVG text. Raises ``DotMissing`` where there is no ``dot`` program."""
    import graphviz

    graph = digraph(capture, max_nodes=max_nodes, open=open)
    try:
        raw = graph.pipe(format="svg")
    except graphviz.ExecutableNotFound as error:
        raise DotMissing(
            "SVG needs the `dot` program of Graphviz: install it "
            "(apt install graphviz, brew install graphviz) or use the DOT text instead."
        ) from error
    return str(raw.decode("utf-8"))


@dataclass(slots=True, eq=False)
class _Box:
    """A group, a fold or an instruction in the picture."""

    id: str
    label: str
    group: int = -1  # the group it opens into
    instruction: int = -1
    size: int = 1
    opened: bool = False
    count: int = 1  # members of a fold
    inside: list[_Box] = field(default_factory=list)


class _Picture:
    def __init__(self, capture: Capture, max_nodes: int, wanted: frozenset[str]) -> None:
        module = capture.module
        self.instructions = module.instructions
        self.table = table(module)
        self.tree = group_tree(module)
        self.folds = folds(module, self.tree)
        self.labels = labels(module)
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
        self.box_of_group: dict[int, _Box] = {}
        self.box_of_instruction: dict[int, _Box] = {}
        self.root = _Box("g0", "", 0)
        self._open(self.root)
        self._grow(max_nodes)

    # -- what is open ---------------------------------------------------------------

    def _open(self, box: _Box) -> list[_Box]:
        """Fills a box; groups of called computations stay inside their instruction's box."""
        box.opened = True
        self.box_of_instruction.pop(box.instruction, None)
        found: list[tuple[int, _Box]] = []
        groups = [box.group] if box.group >= 0 else self.owned.get(box.instruction, [])
        if box.instruction >= 0 and box.group < 0:
            for g in groups:
                inner = _Box(f"g{g}", f"{KINDS[self.tree.kind[g]]} {self.tree.label[g]}", g)
                self.box_of_group[g] = inner
                found.append((int(self.tree.order[g]), inner))
                self._open(inner)
        else:
            found = self._contents(box.group)
        box.inside = [b for _, b in sorted(found, key=lambda pair: pair[0])]
        return box.inside

    def _contents(self, group: int) -> list[tuple[int, _Box]]:
        tree = self.tree
        found: list[tuple[int, _Box]] = []
        seen: set[int] = set()
        for g in self.children[group]:
            if tree.owner[g] >= 0:
                continue  # opened from its instruction
            fold = int(self.folds.of_group[g])
            if fold >= 0 and fold not in seen and self.folds.folds[fold].label not in self.wanted:
                seen.add(fold)
                run = self.folds.folds[fold]
                size = int(tree.size[run.members[0]])
                box = _Box(f"f{fold}", run.label, run.members[0], size=size, count=len(run.members))
                for m in run.members:
                    self.box_of_group[m] = box
            elif fold < 0 or fold not in seen:
                box = _Box(f"g{g}", tree.label[g], g, size=int(tree.size[g]))
                self.box_of_group[g] = box
            else:
                continue
            found.append((int(tree.order[g]), box))
        for i in self.members.get(group, []):
            box = _Box(f"i{i}", self.labels[i], instruction=i)
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
        """Opens the biggest closed box until the next would be one too many."""
        closed = self._closed(self.root)
        total = len(closed)
        refused: set[str] = set()
        while closed:
            box = max(closed, key=lambda b: (b.label in self.wanted, b.size, b.id))
            named = box.label in self.wanted or (
                box.instruction >= 0 and self.instructions[box.instruction].name in self.wanted
            )
            closed.remove(box)
            if box.size <= 1 or box.id in refused:
                continue
            more = self._weight(box) - 1
            folded = box.count > 1 and total > max_nodes // 2
            if not named and (folded or total + more > max_nodes):
                continue
            total += more
            self._open(box)
            closed += self._closed(box)

    def _closed(self, box: _Box) -> list[_Box]:
        out: list[_Box] = []
        for inner in box.inside:
            out += self._closed(inner) if inner.opened else [inner]
        return out

    def _weight(self, box: _Box) -> int:
        """Boxes that opening it would show."""
        groups = [box.group] if box.group >= 0 else self._openable(box.instruction)
        total = 0
        for g in groups:
            kids = [k for k in self.children[g] if self.tree.owner[k] < 0]
            loose = sum(self.folds.of_group[k] < 0 for k in kids)
            runs = len({int(self.folds.of_group[k]) for k in kids} - {-1})
            total += loose + runs + len(self.members.get(g, []))
        return total

    # -- drawing --------------------------------------------------------------------

    def draw(self, graph: graphviz.Digraph) -> None:
        self._cluster(graph, self.root)
        for (a, b), count in sorted(self._edges().items()):
            width = {"penwidth": f"{min(5.0, 1 + count / 8):.1f}"} if count > 1 else {}
            graph.edge(a, b, **width)

    def _cluster(self, graph: graphviz.Digraph, box: _Box) -> None:
        import graphviz

        for inner in box.inside:
            text = graphviz.escape(printable(inner.label))
            if not inner.opened:
                self._node(graph, inner)
                continue
            title = f"{text} ×{inner.count}" if inner.count > 1 else text
            name = f"cluster_{inner.id}"
            style = {"label": title, "style": "rounded", "color": "#999999", "fontsize": "12"}
            with graph.subgraph(name=name, graph_attr=style) as inside:
                self._cluster(inside, inner)
                if not inner.inside:
                    inside.node(f"{inner.id}_empty", label="…")

    def _node(self, graph: graphviz.Digraph, box: _Box) -> None:
        import graphviz

        label = printable(box.label)
        if box.count > 1:
            label += f" ×{box.count}"
        extra: dict[str, str] = {}
        if box.instruction >= 0:
            instr = self.instructions[box.instruction]
            family = FAMILIES[self.family[box.instruction]]
            extra["fillcolor"] = _COLORS.get(family.id, "#f7f7f7")
            extra["tooltip"] = graphviz.escape(
                printable(f"%{instr.name} = {instr.shape.dense_text} {instr.opcode}")
            )
        else:
            label += f"\n{box.size:,} instructions"
            extra |= {"style": "filled", "fillcolor": "#e6e6f0", "peripheries": "2"}
        graph.node(box.id, label=_lines(label), **extra)

    def _edges(self) -> dict[tuple[str, str], int]:
        """Lifted to the boxes drawn, through plumbing, without those a longer path implies."""
        count: dict[tuple[str, str], int] = {}
        drawn: dict[int, frozenset[str]] = {}
        offsets, values = self.table.operands.offsets.tolist(), self.table.operands.values.tolist()

        def sources(i: int) -> frozenset[str]:
            box = self._box(i)
            return frozenset([box]) if box else drawn.get(i, frozenset())

        for i, instr in enumerate(self.instructions):  # operands are printed before users
            came = [sources(o) for o in values[offsets[i] : offsets[i + 1]]]
            box = self._box(i)
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
        g = int(self.tree.group[i])
        while g > 0:
            box = self.box_of_group.get(g)
            if box is not None and not box.opened:
                return box.id if not self._silent(i) else ""
            if box is not None and g != box.group:  # another member of an opened fold
                return ""
            owner = int(self.tree.owner[g])
            if owner >= 0 and owner in self.box_of_instruction:
                return self.box_of_instruction[owner].id
            g = int(self.tree.parent[g])
        return ""

    def _silent(self, i: int) -> bool:
        return bool(self.table.silent[i])


def _lines(label: str) -> str:
    """Escapes DOT's backslashes in each line; the line break between them stays one."""
    import graphviz

    escaped = [graphviz.escape(part) for part in label.split("\n")]
    text = "\\n".join(escaped)
    # A label that begins with < and ends with > would be read as HTML.
    return str(graphviz.nohtml(text))


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
