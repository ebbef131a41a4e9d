"""The tree of groups that users open and close: module, ENTRY, loops, scopes, fusions.

    module
    └ ENTRY main
      ├ forward                         scope   (first component of op_name, normalised)
      │ ├ layer_0 … layer_23            scope   folded into layer_[0..23]
      │ │ ├ attention                   scope
      │ │ └ mlp                         scope
      │ │   └ %fusion.3                 fusion  (owner: the fusion instruction)
      ├ backward
      └ adam
        └ sqrt·divide·multiply          component (equal pieces of a wide flat group)

Built in three steps: a trie of scopes for each computation that is worth it; simplify it
(tiny groups dissolve, only children vanish, wide groups are cut by ``components.py``);
put every called computation under its first caller. ``folds.py`` then finds repetition.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict, deque
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ...hlo import opcodes
from ...hlo.collective_kinds import is_collective
from ..base.labels.families import ID, families
from ..base.labels.flags import INLINE, LANDMARK, QUIET, flags
from ..base.labels.labels import without_serial
from ..base.lines.op_name import (
    BACKWARD,
    CALLED,
    FORWARD,
    LAYER,
    REMAT,
    Path,
    common,
    common_to_most,
    relative,
    without_loops,
)
from ..base.phases.phases import BACKWARD as IN_BACKWARD
from ..base.phases.phases import phases
from ..base.table import NO_TARGET, Ints, Table, per_devices, table
from .call_arguments import tell_apart, tell_twins_apart
from .call_tree import AT_LINE, call_tree
from .components import cut_wide
from .group_nodes import NOTHING, Node, count_boxes, simplify, within
from .in_turn import RowsAndOrder, put_in_turn
from .library_calls import gather_library_calls
from .loop_names import loop_label, loop_names
from .loose import Parts, Walk, gather_flat, gather_minor, recount
from .outline import OPTIMIZER, UPDATE, outline
from .statements import gather_statements
from .work import SMALL, out_of_loops, shares

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ...hlo import Instruction, Module, Target
    from .scopes import Scopes

# "conv B 3": a layer of the second stack of that name.
_LETTERED = re.compile(r"(?P<stem>.+?)(?: (?P<letter>[B-Z]))? \d+\Z")
KINDS = (
    "module", "entry", "scope", "fusion", "body", "condition", "branch", "call", "reducer",
    "component", "section", "unreachable",
)  # fmt: skip

# A computation with at most this many boxes is readable without scopes; without its calls only
# one of very few is.
FLAT = 12
FLAT_CALLS = 3
# Computations that nothing calls, beside ENTRY or in its place.
BESIDE = 10
# No more boxes than this are a piece of a call of the same name that has so many times as many.
PIECE = 4
PIECE_OF = 5
# A loop's body is the function that most of it comes from.
MOSTLY = 0.6
# It is not, if more than this is of calls beside it: a step is no loss, though most of it is one.
OTHERS = 0.2
# It is not, if as much as this, compared with what is inside, is of that function elsewhere.
ELSEWHERE = 0.2

_ROLE_KINDS = {
    "body": "body",
    "condition": "condition",
    "branch_computations": "branch",
    "true_computation": "branch",
    "false_computation": "branch",
}
_NO_LINE = f"{AT_LINE}0:0"  # of a piece whose caller is unknown
_CALLERS = opcodes.DIRECT_CALLS - opcodes.FUSIONS | {"map", "custom-call"}


@dataclass(frozen=True, eq=False)
class GroupTree:
    """Rows are groups, parents before children; row 0 is the module."""

    parent: Ints
    kind: Ints  # into KINDS
    label: list[str]
    owner: Ints  # instruction or -1
    computation: Ints  # or -1
    size: Ints  # instructions at any depth
    order: Ints  # schedule key: mean index of its boxes, or the owner of a called computation
    turn: Ints  # place in the program's order among the calls beside it, from 1; 0 where unknown
    hint: list[str]
    layer: list[bool]  # whether it is one layer of a stack that was found by repetition
    named: list[bool]  # whether it is a layer that is a scope of the user's
    group: Ints  # one row per instruction: innermost group that holds it
    of_computation: Ints  # one row per computation
    backward: frozenset[int] = frozenset()  # groups that are the backward pass of something
    forward: frozenset[int] = frozenset()  # and the forward pass
    turns: dict[int, str] = field(default_factory=dict)  # of loops: the function of each turn
    # of calls named by an argument: its name, and line and column of the call
    given: dict[int, tuple[str, str]] = field(default_factory=dict)

    def children(self) -> list[list[int]]:
        out: list[list[int]] = [[] for _ in self.parent]
        for g, p in enumerate(self.parent.tolist()):
            if p >= 0:
                out[p].append(g)
        for row in out:
            row.sort(key=lambda g: self.order[g])
        return out


def group_tree(module: Module, target: Target = NO_TARGET) -> GroupTree:
    """The tree of groups of a module, deterministic; ``target`` may have the text of its files."""
    return _group_tree(module, target)


@per_devices
def _group_tree(module: Module, target: Target) -> GroupTree:
    return _TreeBuilder(module, target.sources).build()


def plain_tree(module: Module) -> GroupTree:
    """Only computations under their callers: for when ``group_tree`` fails."""
    return _TreeBuilder(module, {}, plain=True).build()


class _TreeBuilder:
    def __init__(self, module: Module, sources: Mapping[str, str], plain: bool = False) -> None:
        self.module = module
        self.plain = plain
        self.t: Table = table(module)
        if not plain:
            found = outline(module, sources)
            self.outline = found
            self.scopes: Scopes = found.scopes
            self.named = found.named
            self.family = families(module)
        n = len(self.t.instructions)
        self.flags = np.zeros(n, np.uint16) if plain else flags(module)
        self.quiet = (self.flags & QUIET) != 0
        self.is_loop = self.t.by_opcode(lambda o: o == "while", bool)
        self.is_call = self.t.by_opcode(lambda o: o == "conditional" or o in _CALLERS, bool)
        self.parameter = self.t.by_opcode(lambda o: o == "parameter", bool)
        self.turns: dict[int, str] = {}
        self.nodes: list[Node] = []
        self.parents: list[int] = []
        self.group = np.zeros(n, np.int64)
        self.of_computation = [-1] * len(self.t.first)
        firsts, sizes = self.t.first.tolist(), self.t.size.tolist()
        self.bounds = [(f, f + s) for f, s in zip(firsts, sizes, strict=True)]
        self.edges: list[int] = self.t.called.offsets.tolist()

    def build(self) -> GroupTree:
        self._add(Node("module", self.module.name or "module"), -1)
        queue: deque[int] = deque()
        entry = self.module.entry
        if entry is not None:
            self._computation(entry.index, "entry", entry.name, -1, 0, queue)
        self._drain(queue)
        self._unreachable(queue)
        return self._freeze()

    def _unreachable(self, queue: deque[int]) -> None:
        """Adds what ENTRY does not reach: the largest beside it, the rest in one more group."""
        caller, _ = self.t.caller()
        left = [c for c in range(len(self.t.first)) if self.of_computation[c] < 0]
        tops = sorted((c for c in left if caller[c] < 0), key=lambda c: -int(self.t.size[c]))
        large, rest = set(tops[:BESIDE]), -1
        for c in reversed(left):  # cut dumps: callers are printed last
            if self.of_computation[c] >= 0:
                continue
            parent = 0
            if len(tops) > BESIDE and c not in large:
                if rest < 0:
                    word = f"{len(tops) - BESIDE} more computations"
                    rest = self._add(Node("section", word), 0)
                parent = rest
            name = self.module.computations[c].name
            self._computation(c, "unreachable", name, -1, parent, queue)
            self._drain(queue)

    def _drain(self, queue: deque[int]) -> None:
        called, roles = self.t.called, self.t.called_roles
        edges = self.edges
        while queue:
            c = queue.popleft()
            first, last = self.bounds[c]
            begin, end = edges[first], edges[last]
            if begin == end:
                continue
            rows = np.repeat(np.arange(first, last), called.counts[first:last]).tolist()
            for row, callee, role in zip(
                rows, called.values[begin:end].tolist(), roles[begin:end], strict=True
            ):
                if self.of_computation[callee] >= 0:
                    continue
                instr = self.t.instructions[row]
                kind = _kind(instr.opcode, role)
                label = _label(kind, self.module.computations[callee].name, instr)
                if label == "body" and not self.plain:
                    name = loop_names(self.module).get(row)
                    label = (name.turn if name else "") or label
                self._computation(callee, kind, label, row, int(self.group[row]), queue)

    def _add(self, node: Node, parent: int) -> int:
        node.index = len(self.nodes)
        self.nodes.append(node)
        self.parents.append(parent)
        return node.index

    def _computation(
        self, c: int, kind: str, name: str, owner: int, parent: int, queue: deque[int]
    ) -> None:
        top = Node(kind, name, c, owner)
        first, last = self.bounds[c]
        self.of_computation[c] = self._add(top, parent)
        self.group[first:last] = top.index
        queue.append(c)
        if self.plain or kind in ("fusion", "reducer"):
            return
        flat = FLAT_CALLS if self.outline.by_calls else FLAT
        if count_boxes(self.quiet, slice(first, last)) <= flat:
            return
        self._scope(top, first, last, owner)
        if self.outline.by_calls:
            tell_apart(top, self.t, self.products)
        simplify(top, self.quiet, self._is_piece)
        if self.outline.by_calls:
            tell_twins_apart(top, self.t, self.products)
        put_in_turn(top, self.t, self.in_turn)
        self._cut(top)
        put_in_turn(top, self.t, self.in_turn)
        recount(top, self.quiet)
        self._number(top)

    def _is_piece(self, node: Node, boxes: int) -> bool:
        """Whether a group is a few operations that XLA moved out of a call of this name.

        A mask that all turns of a loop use, a constant that all layers share: nobody's call.
        """
        if boxes > PIECE or not node.path or node.path[-1].endswith(LAYER):
            return False
        if boxes * PIECE_OF > self.largest.get(_last_name(node.path), 0):
            return False
        return not any(self.multiplies_or_loops[n.members].any() for n in within(node))

    # Masks over all instructions are made once, not for each of thousands of computations.

    @cached_property
    def multiplies_or_loops(self) -> NDArray[np.bool_]:
        return np.asarray(self.products | self.is_loop)

    @cached_property
    def never_moves(self) -> NDArray[np.bool_]:
        """What stays in its group, whatever needs it."""
        return self.multiplies_or_loops | self.calls_something

    @cached_property
    def in_turn(self) -> RowsAndOrder:
        backward = np.asarray(phases(self.module)) == IN_BACKWARD
        return RowsAndOrder(self.quiet, self.never_moves, backward, self.outline.order)

    @cached_property
    def own_loops(self) -> NDArray[np.bool_]:
        """Loops that are not a library's."""
        return self.is_loop & ~self.of_library

    @cached_property
    def has_own_box(self) -> NDArray[np.bool_]:
        """What is never joined with other operations of its line."""
        return self.own_loops | self.calls_something

    @cached_property
    def parts(self) -> Parts:
        little = (shares(self.module) < SMALL) & ~self.own_loops
        lights = little & ~self.products, little
        return Parts(lights, self.own_loops, self.moved_out, self.run_by_loops)

    @cached_property
    def products(self) -> NDArray[np.bool_]:
        return np.isin(self.family, [ID["matmul"], ID["convolution"]])

    @cached_property
    def calls_something(self) -> NDArray[np.bool_]:
        """Collectives, branches and calls: each has a place of its own."""
        named = self.t.by_opcode(
            lambda o: is_collective(o) or o in ("conditional", "call", "custom-call"), bool
        )
        return np.asarray(named)

    @cached_property
    def largest(self) -> dict[str, int]:
        """By name, the most boxes that one call of that name has, if it multiplies at all."""
        caller, _ = self.t.caller()
        fusion = self.t.by_opcode(lambda o: o == "fusion", bool)
        fused = ((caller >= 0) & fusion[caller])[self.t.computation]
        counts = Counter(self.scopes.scope[~self.quiet & ~fused].tolist())
        multiply = Counter(self.scopes.scope[self.products & ~fused].tolist())
        whole: Counter[Path] = Counter()
        working: set[Path] = set()
        for s, count in counts.items():
            path = self.scopes.paths[s] if s >= 0 else ()
            for n in range(1, len(path) + 1):
                whole[path[:n]] += count
                if multiply[s]:
                    working.add(path[:n])
        out: dict[str, int] = {}
        for path in working:
            name, count = _last_name(path), whole[path]
            out[name] = max(out.get(name, 0), count)
        return out

    def _scope(self, top: Node, first: int, last: int, owner: int) -> None:
        """Puts a trie of scopes with its instructions under ``top``."""
        paths, scope = self.scopes.paths, self.scopes.scope
        base = paths[scope[owner]] if owner >= 0 and scope[owner] >= 0 else ()
        if self.outline.by_calls and owner >= 0:
            base = self._function_of(top, first, last, base)
        here = scope[first:last].copy()
        here[self.parameter[first:last]] = -1
        root = self.module.computations[top.computation].root
        if root is not None and root.opcode == "tuple":
            here[root.index - first] = -1
        order = np.argsort(here, kind="stable")
        ids, starts = np.unique(here[order], return_index=True)
        trie: dict[Path, Node] = {(): top}
        held: dict[int, list[Ints]] = {}
        for k, s in enumerate(ids.tolist()):
            end = starts[k + 1] if k + 1 < len(starts) else len(order)
            path = self._relative(paths[s], base) if s >= 0 else ()
            node = self._trie_node(trie, path, top, base)
            held.setdefault(id(node), []).append(order[starts[k] : end] + first)
        for path in self.named.get(top.computation, ()):
            layer = trie.get(self._relative(path, base))
            if layer is not None and layer is not top:
                layer.named = True
        for node in trie.values():
            mine = held.get(id(node))
            node.members = np.sort(np.concatenate(mine)) if mine else NOTHING

    def _function_of(self, top: Node, first: int, last: int, around: Path) -> Path:
        """The call that a loop's body or a branch is: most of it comes from it; else the loop's."""
        rows = np.arange(first, last)[~self.quiet[first:last]]
        paths, ids = self.scopes.paths, self.scopes.scope[rows]

        def of(path: Path) -> Path:
            return path if REMAT in around else _without_remat(path)

        found = Counter(of(paths[s]) for s in ids[ids >= 0].tolist())
        whole = common_to_most(found, MOSTLY) if found else ()
        whole = whole[: self._without_others(found, whole)]
        if whole[: len(around)] != around:
            return around
        # jax traces some functions once for all who call them: a loop there is not its caller
        c = self.t.computation[top.owner]
        outer = np.arange(self.t.first[c], self.t.first[c] + self.t.size[c])
        outer = outer[~self.quiet[outer]]
        if self.products[rows].any():  # what XLA moved out of a call has none
            outer = outer[self.products[outer]]
            rows = rows[self.products[rows]]
            ids = self.scopes.scope[rows]
        found = Counter(of(paths[s]) for s in ids[ids >= 0].tolist())
        scopes = self.scopes.scope[outer]
        beside = Counter(of(paths[s]) for s in scopes[scopes >= 0].tolist())
        for n in range(len(around) + 1, len(whole) + 1):
            base = whole[:n]
            if AT_LINE not in base[-1]:
                return around
            elsewhere = sum(k for path, k in beside.items() if path[:n] == base)
            inside = sum(k for path, k in found.items() if path[:n] == base)
            if elsewhere <= ELSEWHERE * inside:
                break
        else:
            return around
        if AT_LINE in base[-1] and not base[-1].endswith(LAYER):
            top.label = base[-1].partition(AT_LINE)[0]
            if self.is_loop[top.owner]:
                self.turns[top.owner] = top.label
        return base

    def _without_others(self, found: Counter[Path], whole: Path) -> int:
        """How much of a path to keep, so that next to nothing in a body is of another call."""
        n, rows = len(whole), found.total()
        while n and sum(k for p, k in found.items() if _is_beside(p, whole[:n])) > OTHERS * rows:
            n -= 1
        return n

    def _relative(self, path: Path, base: Path) -> Path:
        if self.outline.by_calls:
            shared = len(common([path, base]))
            if shared == len(base):
                return path[shared:]
            if REMAT in path and REMAT not in base:
                again = _without_remat(path)
                if len(common([again, base])) == len(base):
                    return (REMAT, *again[len(base) :])
            # with frames of another call, or without some: what jax traced once for all who call it
            left = [_last_name((name,)) for name in base[shared:]]
            rest = path[shared:]
            known = [n for n, name in enumerate(rest, 1) if _last_name((name,)) in left]
            return rest[known[-1] if known else 0 :]
        return without_loops(relative(path, base))

    def _trie_node(self, trie: dict[Path, Node], path: Path, top: Node, base: Path) -> Node:
        for n in range(1, len(path) + 1):
            prefix = path[:n]
            if prefix not in trie:
                name = path[n - 1]
                label = name.partition(AT_LINE)[0].removesuffix(CALLED).removesuffix(LAYER)
                if name == REMAT:  # jax's word for it
                    label = "recomputed"
                title = self.outline.titles.get((*base, *prefix), "")
                around = trie[prefix[:-1]].label
                if name in (FORWARD, BACKWARD) and title and title != around:
                    label = f"{name} · {title}"
                trie[prefix] = Node("scope", label, top.computation, path=prefix)
                trie[prefix[:-1]].children.append(trie[prefix])
        return trie[path]

    def _cut(self, top: Node) -> None:
        """Cuts groups into smaller ones, outer first; then the rest of each, inner first."""
        nodes = [top]
        for node in nodes:  # grows as groups are made
            nodes.extend(node.children)
        if call_tree(self.module) is not None:  # what is beside calls is gathered before it is cut
            self._name_pieces(top, nodes)
            self._gather_statements(top, [n for n in nodes if n.children or self._runs(n)])
            self._gather_beside_calls(top, nodes)
            nodes = list(within(top))
            self._gather_statements(top, [n for n in nodes if not n.children])
        else:
            self._gather_beside_calls(top, nodes)
        for node in reversed(nodes):
            cut_wide(node, self.t, self.quiet)
        self._gather_crowded(top, nodes)
        if top.kind == "entry" and not self._runs(top):
            walk = Walk.of(int(self.t.size[top.computation]))
            gather_flat(top, self.t, self.quiet, (self.flags & LANDMARK) != 0, walk)

    def _name_pieces(self, top: Node, nodes: list[Node]) -> None:
        """What XLA moved out of a loop is no turn of it, and says so."""
        caller, _ = self.t.caller()
        around: set[int] = set()
        turns: set[str] = set()  # a loop back has the name of the loop whose gradient it is
        at = top.computation
        while caller[at] >= 0:
            around.add(int(caller[at]))
            turns.add(self.nodes[self.of_computation[at]].label)
            at = int(self.t.computation[caller[at]])
        for node in nodes:
            name = node.path[-1] if node.path else ""
            loops = self.run_by_loops.get(name, set())
            if not loops or loops & around or name.endswith(_NO_LINE):
                continue
            if _last_name((name,)) in turns:
                continue
            rows = np.concatenate([n.members for n in within(node)])
            if not self.is_loop[rows].any():
                node.label = f"{node.label}, outside its loop"

    def _gather_statements(self, top: Node, nodes: list[Node]) -> None:
        """Makes the operations of one library call, and of one line of the person's, one box."""
        tree = call_tree(self.module)
        if tree is None or self.statement is None:
            return
        walk = Walk.of(int(self.t.size[top.computation]))
        for node in nodes:
            if node.label.startswith((OPTIMIZER, UPDATE)):
                continue
            if node.children or self._holds_loop(node):
                gather_library_calls(node, self.t, self.quiet, tree)
            gather_statements(node, self.t, self.quiet, self.has_own_box, walk, self.statement)

    def _gather_beside_calls(self, top: Node, nodes: list[Node]) -> None:
        """Gathers small operations beside calls, so that the calls are what is seen."""
        walk = Walk.of(int(self.t.size[top.computation]))
        for node in nodes:
            if any(c.kind not in _UNNAMED for c in node.children) or self._runs(node):
                self._gather_minor(node, walk)

    def _gather_crowded(self, top: Node, nodes: list[Node]) -> None:
        """The same in groups of statements and components alone, if they are crowded."""
        walk = Walk.of(int(self.t.size[top.computation]))
        for node in nodes:
            boxes = len(node.children) + count_boxes(self.quiet, node.members)
            alone = all(c.kind in _UNNAMED for c in node.children) and not self._runs(node)
            if alone and node.children and boxes > FLAT:
                self._gather_minor(node, walk)

    def _gather_minor(self, node: Node, walk: Walk) -> None:
        gather_minor(node, self.t, self.quiet, self.parts, shares(self.module), walk)

    def _runs(self, node: Node) -> bool:
        """Whether a loop, or a call that does some of the work, is directly in a group."""
        if self._holds_loop(node):
            return True
        calls = node.members[self.is_call[node.members]]
        return bool((shares(self.module)[calls] >= SMALL).any())

    @cached_property
    def moved_out(self) -> NDArray[np.bool_]:
        """What XLA moved or made here: it has no name, or one that is in more loops than it is."""
        nameless = np.array([not name for name in self.t.places], bool)[self.t.place]
        return np.asarray(out_of_loops(self.t) | nameless)

    @cached_property
    def run_by_loops(self) -> dict[str, set[int]]:
        """Calls, with their lines, that loops run: outside of these there are pieces of them."""
        caller, _ = self.t.caller()
        paths, scope = self.scopes.paths, self.scopes.scope
        out: dict[str, set[int]] = defaultdict(set)
        for c in np.flatnonzero((caller >= 0) & self.is_loop[caller]).tolist():
            around = paths[scope[caller[c]]] if scope[caller[c]] >= 0 else ()
            rows = np.arange(self.t.first[c], self.t.first[c] + self.t.size[c])
            found = Counter(
                paths[s][len(around)] for s in scope[rows[~self.quiet[rows]]].tolist()
                if s >= 0 and len(paths[s]) > len(around) and AT_LINE in paths[s][len(around)]
            )  # fmt: skip
            name, count = found.most_common(1)[0] if found else ("", 0)
            if count > (1 - OTHERS) * found.total():
                for known in (name, f"{name.partition(AT_LINE)[0]}{_NO_LINE}"):
                    out[known].add(int(caller[c]))
        return dict(out)

    @cached_property
    def statement(self) -> Ints | None:
        """The person's line that each row is of, that of most in a fusion; -1 where unknown."""
        tree = call_tree(self.module)
        if tree is None:
            return None
        line = np.where(tree.line > 0, tree.line, -1)
        blind = (line < 0) & self.t.by_opcode(lambda o: o == "fusion", bool)
        called = self.t.called
        for row in np.flatnonzero(blind & (called.counts > 0)).tolist():
            c = int(called.values[called.offsets[row]])
            inside = line[self.t.first[c] : self.t.first[c] + self.t.size[c]]
            known = inside[inside > 0]
            if len(known):
                line[row] = np.bincount(known).argmax()
        return line

    @cached_property
    def of_library(self) -> NDArray[np.bool_]:
        """Loops that are a library's own: all in them was made by the person's call on that line.

        ``jax.random.split`` is a loop on CPU; that of ``lax.scan`` runs what the person wrote.
        """
        out = np.zeros(len(self.t.instructions), bool)
        tree = call_tree(self.module)
        if tree is None:
            return out
        first, size, called = self.t.first, self.t.size, self.t.called
        for row in np.flatnonzero(self.is_loop & (tree.place > 0)).tolist():
            inside: set[int] = set()
            todo = called.values[called.offsets[row] : called.offsets[row + 1]].tolist()
            while todo:
                c = todo.pop()
                rows = slice(first[c], first[c] + size[c])
                inside |= set(tree.place[rows].tolist())
                begin, end = called.offsets[[first[c], first[c] + size[c]]].tolist()
                todo += called.values[begin:end].tolist()
            out[row] = inside <= {0, int(tree.place[row])}
        return out

    def _holds_loop(self, node: Node) -> bool:
        return bool(self.is_loop[node.members].any())

    def _number(self, top: Node) -> None:
        stack = [(child, top.index) for child in reversed(top.children)]
        while stack:
            node, parent = stack.pop()
            self._add(node, parent)
            self.group[node.members] = node.index
            stack.extend((child, node.index) for child in reversed(node.children))

    def _freeze(self) -> GroupTree:
        n = len(self.nodes)
        parent = np.array(self.parents, np.int64)
        size = np.bincount(self.group, minlength=n).astype(np.int64)
        owner = np.array([g.owner for g in self.nodes], np.int64)
        order = np.where(owner >= 0, owner, self._mean_index(parent))
        sizes, above = size.tolist(), parent.tolist()
        for g in range(n - 1, 0, -1):
            sizes[above[g]] += sizes[g]
        size = np.array(sizes, np.int64)
        return GroupTree(
            parent=parent,
            kind=np.array([KINDS.index(g.kind) for g in self.nodes], np.int64),
            label=self._labels(),
            owner=owner,
            computation=np.array([g.computation for g in self.nodes], np.int64),
            size=size,
            order=order,
            turn=self._turns(),
            hint=[g.fold_hint for g in self.nodes],
            layer=[bool(g.path) and g.path[-1].endswith(LAYER) for g in self.nodes],
            named=[g.named for g in self.nodes],
            group=self.group,
            of_computation=np.array(self.of_computation, np.int64),
            turns=self.turns,
            given={
                g.index: (g.given, g.path[-1].removesuffix(LAYER).partition(AT_LINE)[2])
                for g in self.nodes
                if g.given and g.path
            },
            forward=self._that_are(FORWARD),
            backward=self._that_are(BACKWARD),
        )

    def _that_are(self, direction: str) -> frozenset[int]:
        return frozenset(g.index for g in self.nodes if g.path[-1:] == (direction,))

    def _labels(self) -> list[str]:
        """Names, without the letter of a stack that no other of its name stands beside."""
        out = [g.label for g in self.nodes]
        stacks: dict[tuple[int, str], dict[str, list[int]]] = {}
        for g, node in enumerate(self.nodes):
            if node.path and node.path[-1].endswith(LAYER) and (at := _LETTERED.match(node.label)):
                of = stacks.setdefault((self.parents[g], at["stem"]), {})
                of.setdefault(at["letter"] or "", []).append(g)
        for (_, stem), of in stacks.items():
            if len(of) == 1:
                for g in next(iter(of.values())):
                    out[g] = f"{stem} {out[g].rpartition(' ')[2]}"
        return out

    def _mean_index(self, parent: Ints) -> Ints:
        """Mean index of a group's boxes (of all instructions, if it has no box).

        The smallest index would put backward above forward, as a zero for it is made early.
        """
        n = len(parent)
        index = np.arange(len(self.group))
        # Boxes fed by constants alone may be scheduled anywhere, mostly first.
        operands = self.t.operands
        fed = np.zeros(len(self.group), bool)
        fed[operands.rows[(self.flags[operands.values] & INLINE) == 0]] = True
        weight = np.where(self.quiet | ~fed, 1e-6, 1.0)
        count = np.bincount(self.group, weight, n).tolist()
        total = np.bincount(self.group, weight * index, n).tolist()
        above = parent.tolist()
        for g in range(n - 1, 0, -1):
            if self.nodes[g].kind in _NESTED:
                count[above[g]] += count[g]
                total[above[g]] += total[g]
        means = [t / c if c else 0.0 for t, c in zip(total, count, strict=True)]
        for known in self.known_orders:
            for g, mean in zip(known, sorted(means[g] for g in known), strict=True):
                means[g] = mean
        return np.array(means).astype(np.int64)

    @cached_property
    def known_orders(self) -> list[list[int]]:
        """Groups beside one another whose order the program says, in it."""
        if self.plain:
            return []
        orders = ((node, self.in_turn.in_order(node)) for node in self.nodes)
        return [[node.children[k].index for k in known] for node, known in orders]

    def _turns(self) -> Ints:
        turn = np.zeros(len(self.nodes), np.int64)
        for known in self.known_orders:
            turn[known] = np.arange(1, len(known) + 1)
        return turn


def _without_remat(path: Path) -> Path:
    return tuple(c for c in path if c != REMAT)


def _is_beside(a: Path, b: Path) -> bool:
    """Whether two paths part at calls of different lines, or an optimizer is beside a call.

    Those of one line are one call: jax traced its function for another one first.
    """
    for x, y in zip(a, b, strict=False):
        if x != y:
            updates = x.startswith((OPTIMIZER, UPDATE))
            return AT_LINE in y and (
                updates or x.partition(AT_LINE)[2:] != y.partition(AT_LINE)[2:]
            )
    return False


def _last_name(path: Path) -> str:
    """The name of a call or scope without its line."""
    return path[-1].partition(AT_LINE)[0].removesuffix(CALLED)


_NESTED = frozenset(["scope", "component", "section"])
_UNNAMED = frozenset(["component", "section"])


def _kind(opcode: str, role: str) -> str:
    if opcode == "fusion":
        return "fusion"
    if role in _ROLE_KINDS:
        return _ROLE_KINDS[role]
    return "call" if opcode in _CALLERS or role == "called_computations" else "reducer"


def _label(kind: str, name: str, caller: Instruction) -> str:
    """A called computation by its role: XLA's region_8.20_spmd.sunk means nothing to users."""
    if kind == "body":
        return loop_label(name) or "body"
    if kind == "branch":
        branches = [c.name for c in caller.called_computations]
        at = branches.index(name) if name in branches else 0
        if caller.attribute("true_computation"):
            return "true branch" if at == 0 else "false branch"
        return f"branch {at}"
    return kind if kind == "condition" else without_serial(name) if kind == "call" else name
