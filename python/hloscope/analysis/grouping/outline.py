"""Where every instruction is in the person's program: its path from the call tree.

    call tree       train_step ─ forward ─ GPT ─ Block       a stack names lines, not calls:
    repetition                            ├ Block 0          one function called six times from
                                          ├ Block 1          one line is six calls, told apart by
                                          └ …                order and data flow (``layers/``)
    data flow       copies, prefetches, what partitioning made: where their users are

Where frames say nothing, scopes and repetition alone are the outline (``layers/layers.py``).
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise, takewhile
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ...hlo import opcodes
from ..base.labels.flags import INLINE, QUIET, flags
from ..base.lines.frames import is_library
from ..base.lines.op_name import BACKWARD, FORWARD, LAYER, REMAT, Path, common_to_most
from ..base.phases.edges import depends_on
from ..base.phases.phases import BACKWARD as IN_BACKWARD
from ..base.phases.phases import FORWARD as IN_FORWARD
from ..base.phases.phases import OPTIMISER, REMATERIALISED, phases
from ..base.table import Ints, Table, table
from .call_tree import AT_LINE, CallTree, call_tree, label, unnumbered
from .inside_calls import move_inside_calls
from .instances import Instances, Steady, line_of, runs_in_each
from .layers.layers import Layers, Run, layers
from .layers.names import ITERATION, UNNAMED
from .layers.repeats import Graph
from .optimisers import optimiser_name
from .program_order import ProgramOrder
from .runs_once import Once, runs_once
from .scopes import Scopes, combines, hoist, inherit_scope, sink
from .work import out_of_loops, products

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ...hlo import Module

Mask = NDArray[np.bool_]

# Arrays that a loop's turn moves by their gradients; more are a model's parameters.
MOST_OF_STATE = 4
OPTIMIZER, UPDATE = "optimizer", "parameter update"
_EINSUM = re.compile(r"[A-Za-z]+(?:,[A-Za-z]+)+->[A-Za-z]*")
_NUMBERED = re.compile(r"(.*\D)(\d+)$")
_LETTER = re.compile(r" [B-Z]$")  # of a second stack of one name
# What parts of one section begin with: "down_0" of "down_0_block_1", "mid" of "mid_attn".
_SECTION = re.compile(r"[A-Za-z]+(?:_?\d+)?(?=[_ ])")

# Products of a stack of layers that are in one call, at least: the layers are parts of it.
NEARLY_ALL = 0.9
# A call around has products beside those of the repeated call in more than this share of the
# layers: it is repeated as well.
MOST = 0.5
# Numbers that scopes of several stems must have in common to be parts of layers, at least.
FEWEST_NUMBERS = 2
# Parts with products that one call may have before they are put into sections.
MOST_PARTS = 10
# Operations of one call in a row that are not known to be of one layer.
LONGEST_CHAIN = 8
# Scopes that the products of one line are in, for each product: names tell the layers apart.
APART = 0.6


@dataclass(frozen=True, eq=False)
class Outline:
    """Scopes as ``scopes.py`` has them, with layers; ``by_calls``: from the person's calls.

    ``titles``: for a path of a pass, the function that was differentiated.
    """

    scopes: Scopes
    named: dict[int, list[Path]]
    by_calls: bool
    titles: dict[Path, str]
    order: ProgramOrder


def outline(module: Module, sources: Mapping[str, str]) -> Outline:
    """The outline of a module, deterministic; ``sources``: path → text of the person's files."""
    found = layers(module)
    tree = call_tree(module)
    if tree is not None and tree.has_calls:
        return _Composer(module, tree, found, runs_once(module, sources)).write()
    named: dict[int, list[Path]] = {}
    for run in found.runs:
        named.setdefault(run.stack.computation, []).extend(run.scopes)
    return Outline(found.scopes, named, False, {}, ProgramOrder())


class _Composer:
    def __init__(self, module: Module, tree: CallTree, found: Layers, once: Once) -> None:
        self.module, self.tree, self.found = module, tree, found
        self.code = once
        self.order = ProgramOrder(
            {f"{line}:{column}": n for (line, column), n in once.turn.items()},
            frozenset(f"{line}:{column}" for line, column in once.calls),
            frozenset(f"{line}:{column}" for line, column in once.calls_in_inner_loops),
            tree.exact,
            module.name.removeprefix("jit_").removeprefix("pmap_"),
        )
        self.t: Table = table(module)
        self.paths = list(tree.paths)
        self.ids = {p: n for n, p in enumerate(self.paths)}
        self.own = tree.path.copy()
        self.depths: dict[int, Ints] = {}
        self.quiet = (flags(module) & QUIET) != 0
        self.product = products(module)

    def write(self) -> Outline:
        t = self.t
        for run in self.found.runs:
            self._number(run)
        self._numbered_parts()
        self._sections()
        self._optimizers()
        combined = t.by_opcode(combines, bool) & (t.operands.counts > 1)
        top = self.ids.get((), -2)
        self._gradients()
        scope = inherit_scope(t, self.own, combined, top)
        self._to_its_pass(scope)
        hoist(t, self.own, scope, self.paths, combined, (flags(self.module) & INLINE) != 0)
        sink(t, self.own, scope, self.paths)
        place = np.where(self.tree.path >= 0, self.tree.place, 0)
        if not self.tree.exact:
            self._tell_calls_apart(scope, place)
        move_inside_calls(t, self.own, scope, self.paths, self.product, place)
        self._to_numbered(scope)
        known = Scopes(tuple(self.paths), scope, (scope >= 0) & (self.own < 0))
        titles = {path: label(call) for path, call in self.tree.differentiated.items()}
        return Outline(known, {}, True, titles, self.order)

    def _gradients(self) -> None:
        """Gives gradients' products the call that they are of, if XLA left them without a name,
        and the layer.

        That of the forward pass's product with the same activation or weight: one reads the
        activation and a gradient, one the weight and a gradient.
        """
        back = np.isin(self._phase, (IN_BACKWARD, REMATERIALISED))
        late = np.array([BACKWARD in p for p in self.paths] + [False], bool)[self.own]
        if self._nests:  # nobody knows of which derivative a gradient is
            return
        calls: dict[int, set[Path]] = defaultdict(set)
        for row in np.flatnonzero(self.product & (self.own >= 0) & ~late).tolist():
            path = self._path(row)
            if FORWARD in path:
                for given in self._given(row):
                    calls[given].add(path)
        nameless = (self.own < 0) & back & ~self._fused
        for row in np.flatnonzero(self.product & (nameless | late)).tolist() if calls else ():
            for of in (calls.get(given, ()) for given in self._given(row)):
                if len(of) == 1:
                    (path,) = of
                    path = tuple(BACKWARD if p == FORWARD else p for p in path)
                    same = tuple(map(unnumbered, path)) == tuple(map(unnumbered, self._path(row)))
                    if not nameless[row] and not same:
                        continue
                    self.own[row] = self._id(path)

    @cached_property
    def _nests(self) -> bool:
        """Whether a derivative is in another one."""
        return any(sum(name in (FORWARD, BACKWARD) for name in p) > 1 for p in self.tree.paths)

    def _given(self, row: int) -> list[int]:
        """What a product reads, before casts, transposes and copies, and before one fusion.

        An activation is worked out in a fusion for the forward pass, and in another one, with the
        transpose of it, for the weight's gradient: both read the same array.
        """
        out = [self._before_casts(at) for at in self._operands(row)]
        for at in out[:]:
            if self._phase[at] == IN_FORWARD and at in self._plain_fusions:
                given = [self._before_casts(k) for k in self._operands(at)]
                size = {k: self.t.shapes[self.t.shape[k]].elements for k in given}
                out += [k for k in given if size[k] == max(size.values())]
        return out

    def _operands(self, row: int) -> list[int]:
        begin, end = self.t.operands.offsets[row : row + 2].tolist()
        out: list[int] = self.t.operands.values[begin:end].tolist()
        return out

    def _before_casts(self, row: int) -> int:
        for _ in range(LONGEST_CHAIN):
            given = self._operands(row)
            if not self._casts[row] or len(given) != 1:
                break
            (row,) = given
        return row

    @cached_property
    def _phase(self) -> Ints:
        return np.asarray(phases(self.module), np.int64)

    @cached_property
    def _plain_fusions(self) -> set[int]:
        """Fusions without products."""
        fusion = self.t.by_opcode(lambda o: o == "fusion", bool) & ~self.product
        return set(np.flatnonzero(fusion).tolist())

    @cached_property
    def _fused(self) -> Mask:
        """Rows in fusions."""
        caller, _ = self.t.caller()
        fusion = self.t.by_opcode(lambda o: o == "fusion", bool)
        return np.asarray(((caller >= 0) & fusion[caller])[self.t.computation])

    def _tell_calls_apart(self, scope: Ints, place: Ints) -> None:
        t = self.t
        caller, roles = t.caller()
        fusion = t.by_opcode(lambda o: o == "fusion", bool)
        open_ones = [
            c
            for c, role in enumerate(roles)
            if not (caller[c] >= 0 and (fusion[caller[c]] or role == "to_apply"))
        ]
        place = self._in_libraries(place)
        repeated = self._open_repeated(scope)
        instances = Instances(t, scope, self.paths, self.product, self.quiet, place, self._id)
        instances.split(open_ones, self.order.is_one_call, self.steady)
        self._close(scope, repeated)

    def _open_repeated(self, scope: Ints) -> set[Path]:
        """Puts differentiated calls in loops of the person's code below their passes, in place.

        Of ``value_and_grad(loss)`` in a loop over microbatches.
        """
        repeated = {
            lead: call
            for lead, call in self.tree.differentiated.items()
            if line_of(call) in self.steady.calls_in_loops and not self.tree.exact
        }
        out = set[Path]()
        for old in range(len(self.paths)) if repeated else ():
            path = self.paths[old]
            for n in range(1, len(path) + 1):
                if path[:n] in repeated:
                    m = n + (path[n : n + 1] == (REMAT,))
                    opened = (*path[:m], repeated[path[:n]])
                    out.add(opened)
                    scope[scope == old] = self._id((*opened, *path[m:]))
                    break
        return out

    def _close(self, scope: Ints, repeated: set[Path]) -> None:
        """Takes those away again that are one call, or that nobody can tell apart."""
        for old in range(len(self.paths)) if repeated else ():
            path = self.paths[old]
            n = next((n for n in range(1, len(path) + 1) if path[:n] in repeated), 0)
            if n:
                scope[scope == old] = self._id((*path[: n - 1], *path[n:]))

    @cached_property
    def steady(self) -> Steady:
        ids = np.array(self.module.source_frames()[1], np.int64)
        looped = {f"{line}:{column}" for line, column in self.code.calls_in_loops}
        rows = np.isin(ids, list(self.code.lines))
        rows_in_loops = np.isin(ids, list(self.code.lines_in_loops))
        products = np.array([self.code.products.get(k, 1) for k in ids.tolist()], np.int64)
        return Steady(self.order.once, looped, rows, rows_in_loops, products)

    def _run_once(self, rows: Ints) -> bool:
        """Whether the person's code has these rows in no loop: what is repeated is a library's."""
        steady = self.steady
        return (
            bool(steady.rows[rows].all())
            and not out_of_loops(self.t)[rows].any()
            and all(steady.are_steady(self._path(r)) for r in rows.tolist())
        )

    def _in_libraries(self, place: Ints) -> Ints:
        """Places that tell lines and einsums of a library apart too: the products of attention."""
        frames, ids = self.module.source_frames()
        lines = {}
        for frame in set(ids) - {0}:
            inside = takewhile(lambda f: is_library(f.file), frames.stack(frame))
            lines[frame] = tuple((f.file, f.line) for f in inside)
        known: dict[object, int] = {(0, (), ""): 0}
        return np.array(
            [
                known.setdefault((at, lines.get(frame, ()), einsum), len(known)) if at else 0
                for at, frame, einsum in zip(place.tolist(), ids, self._einsums(), strict=True)
            ],
            np.int64,
        )

    def _einsums(self) -> list[str]:
        """What each product, or those in a fusion, contracts, as jax wrote it: "bqd,bkd->bqk"."""
        t = self.t
        said = [" ".join(_EINSUM.findall(name)) for name in t.op_names]
        own = self.product & ~t.by_opcode(lambda o: o == "fusion", bool)
        names = zip(t.op_name.tolist(), own, strict=True)
        out = [said[name] if mine else "" for name, mine in names]
        fused = set(t.where("fusion").tolist())
        for c in t.callees_first:
            rows = range(int(t.first[c]), int(t.first[c]) + int(t.size[c]))
            for row in fused.intersection(rows):
                called = t.called.values[t.called.offsets[row] : t.called.offsets[row + 1]].tolist()
                inside = (range(t.first[k], t.first[k] + t.size[k]) for k in called)
                out[row] = " ".join(sorted({out[i] for of in inside for i in of} - {""}))
        return out

    def _to_numbered(self, scope: Ints) -> None:
        """Moves rows of a repeated call, of which it is not known which one, to a neighbour's.

        That of what uses them, if it is one, else of what they use: a layer begins with what reads
        the stream.
        """
        ids = {path: k for k, path in enumerate(self.paths)}
        layers: dict[Path, Path] = {}  # layer → the call without a number
        for path in self.paths:
            for n, name in enumerate(path):
                if name.endswith(LAYER) and (match := _NUMBERED.match(label(name))):
                    call = f"{match[1].rstrip()}{AT_LINE}{name.partition(AT_LINE)[2]}"
                    layers[path[: n + 1]] = (*path[:n], call.removesuffix(LAYER))
        known: list[list[tuple[Path, Path]]] = []
        for path in self.paths:
            starts = [path[:n] for n in range(1, len(path) + 1)]
            known.append([(layers[at], at) for at in starts if at in layers])
        calls = set(layers.values())
        which = [
            next((path[:n] for n in range(len(path), 0, -1) if path[:n] in calls), None)
            for path in self.paths
        ]
        mine = np.array([w is not None for w in which] + [False], bool)[scope]
        rows, values = self.t.operands.rows, self.t.operands.values
        real = (scope[rows] >= 0) & (scope[values] >= 0) & ~self.t.silent[values]
        for _ in range(LONGEST_CHAIN):
            used: dict[int, set[Path]] = defaultdict(set)
            uses: dict[int, set[Path]] = defaultdict(set)
            for at, other, out in ((values, rows, used), (rows, values, uses)):
                here = real & mine[at] & ~mine[other]
                for r, o in zip(at[here].tolist(), other[here].tolist(), strict=True):
                    out[r].update(to for call, to in known[scope[o]] if call == which[scope[r]])
            moved = 0
            for r in used.keys() | uses.keys():
                found = used[r] if len(used[r]) == 1 else uses[r] if len(uses[r]) == 1 else set()
                for to in found:
                    path = (*to, *self.paths[scope[r]][len(to) :])
                    if path not in ids:
                        ids[path] = self._id(path)
                        known.append([(layers[to], to)])
                        which.append(None)
                    scope[r] = ids[path]
                    mine[r] = False
                    moved += 1
            if not moved:
                return

    def _to_its_pass(self, scope: Ints) -> None:
        """Moves what has no name from a call's one pass to the other where flow says so, in place.

        A gradient's product uses an activation as well: its call is that of the product which
        uses the same gradient, else of what made it.
        """
        t, phase = self.t, phases(self.module)
        late = np.array([BACKWARD in p for p in self.paths] + [False], bool)
        early = np.array([FORWARD in p for p in self.paths] + [False], bool)
        back = np.isin(phase, (IN_BACKWARD, REMATERIALISED))
        wrong = (self.own < 0) & (scope >= 0) & ~t.silent
        wrong &= (back & early[scope]) | ((phase == IN_FORWARD) & late[scope])
        offsets, values = t.operands.offsets, t.operands.values
        users: dict[int, list[int]] = defaultdict(list)
        rows = np.flatnonzero(wrong).tolist()
        wanted = {v for r in rows for v in values[offsets[r] : offsets[r + 1]].tolist()}
        mine = np.isin(values, list(wanted | set(rows)))
        for user, value in zip(t.operands.rows[mine].tolist(), values[mine].tolist(), strict=True):
            users[value].append(user)
        for r in rows:
            right = late if back[r] else ~late
            given = [v for v in values[offsets[r] : offsets[r + 1]].tolist() if not t.silent[v]]
            fits = [v for v in given if scope[v] >= 0 and right[scope[v]]]
            beside = [
                u for v in (fits if self.product[r] else ()) for u in users[v]
                if u != r and self.product[u] and self.own[u] >= 0 and right[scope[u]]
            ]  # fmt: skip
            after = [u for u in users[r] if scope[u] >= 0 and right[scope[u]]]
            for found in (beside[:1], fits[-1:], after[:1]):
                if found:
                    scope[r] = scope[found[0]]
                    break

    def _id(self, path: Path) -> int:
        if path not in self.ids:
            self.ids[path] = len(self.paths)
            self.paths.append(path)
        return self.ids[path]

    def _path(self, row: int) -> Path:
        k = int(self.own[row])
        return self.paths[k] if k >= 0 else ()

    def _number(self, run: Run, level: int = 0) -> None:
        """Puts the layers of one stack into the paths of their rows, below ``level`` names."""
        t, c = self.t, run.stack.computation
        spine = [r for rows in run.stack.spine for r in rows if self.own[r] >= 0]
        if not spine:
            return
        if self._run_once(np.array(spine)):
            return
        counts = Counter(self._path(r) for r in spine)
        shared = common_to_most(counts, NEARLY_ALL)
        if self._apart(run, shared) or self._both_passes(counts, shared):
            return
        if of_parts := self._parts(run, level, shared):
            for one, lowest in of_parts:
                self._number(one, lowest)
            return
        first, size = int(t.first[c]), int(t.size[c])
        rows = np.arange(first, first + size)
        members = set(run.identity)
        layer = self.found.layer[rows]
        paths = [*self.paths, ()]  # rows outside all calls have -1: the last
        path_of = self.own[rows]
        late = np.array([BACKWARD in p for p in paths])[path_of]
        back = np.isin(self._phase[rows], (IN_BACKWARD, REMATERIALISED))
        mine = np.isin(layer, list(members)) & (late == (BACKWARD in shared))
        if not self._nests:  # a gradient without a name is not where others are
            mine &= (path_of >= 0) | ~back
        products = self.product[rows]

        def within(path: Path) -> Mask:
            return np.array([p[: len(path)] == path for p in paths], bool)[path_of]

        def is_repeated(path: Path) -> bool:
            """Whether (nearly) all products of a call are in the layers."""
            of_call = products & within(path)
            return bool((of_call & mine).sum() >= NEARLY_ALL * max(1, of_call.sum()))

        if len(shared) > 1 and AT_LINE in shared[-1] and AT_LINE in shared[-2]:
            beside = rows[products & within(shared[:-1]) & ~within(shared)]
            if self._parts_of_calls(beside, len(members), 2 if BACKWARD in shared else 1):
                return
        while len(shared) > max(1, level) and AT_LINE in shared[-2]:
            # the call around is repeated as well if it has other products, all of them in layers
            others = products & within(shared[:-1]) & ~within(shared)
            lines: dict[tuple[int, int], set[int]] = defaultdict(set)
            of_others = others & mine
            for k, at, held in zip(
                self.own[rows[of_others]].tolist(),
                self.tree.place[rows[of_others]].tolist(),
                layer[of_others].tolist(),
                strict=True,
            ):
                lines[k, at].add(held)
            with_others = max(map(len, lines.values()), default=0)
            if with_others <= MOST * len(members) or not is_repeated(shared[:-1]):
                break
            shared = shared[:-1]
        inside_call = within(shared)
        whole = len(shared) > level and AT_LINE in shared[-1] and is_repeated(shared)
        whole = whole and not self.order.is_one_call(shared)
        whole = whole and not self._runs_once(rows[inside_call], len(shared), layer[inside_call])
        name, at = run.name, str(run.identity[0])
        stem = _LETTER.sub("", name)
        around = [n for n, call in enumerate(shared, 1) if AT_LINE in call and label(call) == stem]
        if around and self.order.is_one_call(shared[: around[-1]]):
            name = UNNAMED + name[len(stem) :]  # they are in the call that has the name
        if whole:
            function, _, at = shared[-1].partition(AT_LINE)
            of_weights = self._serves_several(shared) and not run.name.endswith(UNNAMED)
            name = run.name if of_weights else function
        elif name == UNNAMED and self._has_no_weights(run):
            name = ITERATION
        prefix = shared[:-1] if whole else shared
        homes = {} if whole else self._homes(run, len(shared))
        titles = _titles(homes)
        if homes and not titles:  # parts that a person named, in no order of layers
            return
        number = {k: n for n, k in enumerate(sorted(members))}
        known: dict[tuple[int, int], int] = {}
        for row, k, is_mine, inside in zip(
            rows.tolist(), layer.tolist(), mine.tolist(), inside_call.tolist(), strict=True
        ):
            if homes and inside and len(self._path(row)) > len(shared):
                part = self._path(row)[len(shared)]
                k, is_mine = homes.get(part, -1), part in homes
            if not is_mine or (self.own[row] < 0 and not self.product[row]):
                continue
            if self.own[row] >= 0 and not inside:
                continue
            key = (int(self.own[row]), k)
            if key not in known:
                rest = self._path(row)[len(shared) :] if inside else ()
                title = titles.get(k) or f"{name} {number[k]}"
                known[key] = self._id((*prefix, f"{title}{AT_LINE}{at}{LAYER}", *rest))
            self.own[row] = known[key]

    def _has_no_weights(self, run: Run) -> bool:
        """Whether no product of the layers reads weights of its layer: a loop that refines."""
        graph = Graph(self.t, run.stack.computation)
        layers = {r - graph.first: 1 for rows in run.stack.spine for r in rows}
        after = graph.ancestors(layers)
        for rows in run.stack.spine:
            given = [set(self._given(r)) for r in rows]
            own = (of.difference(given[0].intersection(*given)) for of in given)
            if sum(any(not after[g - graph.first] for g in of) for of in own) >= len(rows) - 1:
                return False
        return True

    def _parts_of_calls(self, beside: Ints, layers: int, each: int) -> bool:
        """Whether each call around, which has these products beside layers, holds several of them.

        A line that runs once in a call has ``each`` products for each of the calls, or one less:
        the first of a backward pass has no use for its argument's gradient.
        """
        lines = Counter(self.tree.place[beside].tolist()).values()
        calls = [-(-count // each) for count in lines]
        n = max(calls, default=0)
        return 1 < n < layers and layers % n == 0 and all(runs_in_each(c, n) for c in calls)

    def _parts(self, run: Run, level: int, shared: Path) -> list[tuple[Run, int]]:
        """The stacks that one consists of, with the names above their layers; [] if it is one."""
        if REMAT not in shared and (passes := self._recomputed_apart(run)):
            return [(part, level) for part in passes]
        if levels := self._levels(run, len(shared)):
            return [(part, len(shared) + 1) for part in levels]
        made_once = self._calls_made_once(run, len(shared))
        return [(part, len(shared) + 1 if once else level) for part, once in made_once]

    def _levels(self, run: Run, n: int) -> list[Run]:
        """The layers in each scope or call below ``n`` names, where each of several holds a few.

        Stages of a network that the person named have layers of their own; [] if there are none.
        """
        parts: dict[str, list[int]] = defaultdict(list)
        for k, rows in enumerate(zip(*run.stack.spine, strict=True)):
            paths = [self._path(r) for r in rows if self.own[r] >= 0]
            below = common_to_most(Counter(paths), NEARLY_ALL)[n : n + 1]
            if not below:
                return []
            parts[below[0]].append(k)
        if not 1 < len(parts) < run.stack.count:
            return []
        out = []
        for mine in parts.values():
            spine = tuple(tuple(rows[k] for k in mine) for rows in run.stack.spine)
            stack = replace(run.stack, spine=spine)
            identity = tuple(run.identity[k] for k in mine)
            if len(mine) > 1:
                out.append(replace(run, stack=stack, identity=identity))
        return out

    def _calls_made_once(self, run: Run, n: int) -> list[tuple[Run, bool]]:
        """The layers in each of the calls below ``n`` names that are made once, and the others'.

        Two views go through one network, block by block, and what is called once is in no layer;
        [] if there are no such calls or it is one that all layers are in.
        """
        calls: dict[Path, list[tuple[int, ...]]] = defaultdict(list)
        for rows in run.stack.spine:
            paths = Counter(self._path(r) for r in rows if self.own[r] >= 0)
            call = common_to_most(paths, NEARLY_ALL)[: n + 1]
            if len(call) <= n:  # nobody knows of which call XLA left this one
                continue
            if AT_LINE not in call[n] or call[n].endswith(LAYER):
                return []
            calls[call].append(rows)
        once = [call for call in calls if self.order.is_one_call(call)]
        if len(calls) < 2 or not once:
            return []
        parts = [(calls.pop(call), True) for call in once]
        if others := [rows for lines in calls.values() for rows in lines]:
            parts.append((others, False))
        return [
            (replace(run, stack=replace(run.stack, spine=tuple(lines))), alone)
            for lines, alone in parts
        ]

    def _homes(self, run: Run, n: int) -> dict[str, int]:
        """The number of the layer of each scope, where a layer has several scopes of its own."""
        out: dict[str, set[int]] = defaultdict(set)
        for rows in run.stack.spine:
            for k, r in enumerate(rows):
                path = self._path(r)
                if len(path) > n:
                    out[path[n]].add(run.identity[k])
        if any(len(of) > 1 for of in out.values()) or len(out) <= run.stack.count:
            return {}
        return {scope: of.pop() for scope, of in out.items()}

    def _runs_once(self, rows: Ints, depth: int, layer: Ints) -> bool:
        """Whether a call that holds the layers is one call: some of its lines are in no layer.

        A cast says nothing of that: XLA makes one of what several layers read.
        """
        layers: dict[str | int, set[int]] = defaultdict(set)
        quiet = self.quiet[rows] | self._casts[rows]
        for row, k, silent in zip(rows.tolist(), layer.tolist(), quiet.tolist(), strict=True):
            if not silent:
                path = self._path(row)
                at = path[depth] if len(path) > depth else int(self.tree.place[row])
                layers[at].add(k)
        return any(of == {-1} for of in layers.values())

    @cached_property
    def _casts(self) -> Mask:
        """Rows that give the same numbers in another type or layout, and fusions of such."""
        t = self.t
        same = t.by_opcode(lambda o: o in opcodes.SAME_NUMBERS, bool)
        other = np.zeros(len(t.first), bool)
        other[t.computation[~same & ~t.silent]] = True
        fusion = t.by_opcode(lambda o: o == "fusion", bool)
        out = same.copy()
        rows, called = t.called.rows, t.called.values
        out[rows[fusion[rows] & ~other[called]]] = True
        return np.asarray(out)

    def _serves_several(self, shared: Path) -> bool:
        """Whether the function of these calls is also called elsewhere in its caller."""
        name = label(shared[-1])
        n = len(shared)
        return any(
            len(p) >= n and p[: n - 1] == shared[:-1] and p[n - 1] != shared[-1]
            and AT_LINE in p[n - 1] and label(p[n - 1]) == name
            for p in self.tree.paths
        )  # fmt: skip

    def _recomputed_apart(self, run: Run) -> list[Run]:
        """The part of a stack that is computed again, and the rest; [] if it is of one kind."""
        spines: dict[bool, list[tuple[int, ...]]] = {True: [], False: []}
        for rows in run.stack.spine:
            again = [REMAT in self._path(r) for r in rows if self.own[r] >= 0]
            spines[2 * sum(again) > len(again)].append(rows)
        parts = [replace(run.stack, spine=tuple(x)) for x in spines.values() if x]
        return [replace(run, stack=stack) for stack in parts] if len(parts) > 1 else []

    def _both_passes(self, counts: Counter[Path], shared: Path) -> bool:
        """Whether a stack mixes the passes of one call: no layers, but lines that both have."""
        return any(
            p in (FORWARD, BACKWARD) for path in counts for p in path[len(shared) : len(path)]
        )

    def _apart(self, run: Run, shared: Path) -> bool:
        """Whether names tell the layers apart already, one scope for each.

        Where a layer has several (``mixer_3``, ``up_3``, ``down_3``), all of them its own, they are
        its parts.
        """
        n = len(shared)
        of_layer: list[set[Path]] = [set() for _ in range(run.stack.count)]
        apart = of_them = 0
        for rows in run.stack.spine:
            below = [(k, self._path(r)[: n + 1]) for k, r in enumerate(rows) if self.own[r] >= 0]
            deeper = [(k, p) for k, p in below if len(p) > n]
            for k, p in deeper:
                of_layer[k].add(p)
            apart += len({p for _, p in deeper}) >= APART * len(below)
            of_them += bool(below)
        if 2 * apart <= of_them:
            return False
        several = sum(len(of) > 1 for of in of_layer) > len(of_layer) // 2
        shares = sum(len(of) for of in of_layer) != len(set().union(*of_layer))
        return shares or not several

    def _numbered_parts(self) -> None:
        """Puts scopes with one number together: ``attn_3`` and ``mlp_3`` are layer 3.

        So it is where several stems have the same numbers and all of a number run before the next:
        not ``down_0 … down_3, up_3 … up_0``.
        """
        below = self._products_below(
            lambda name: not name.endswith(LAYER) and bool(_NUMBERED.match(label(name)))
        )
        moved: dict[Path, str] = {}
        for (_, around), scopes in below.items():
            stems: dict[str, dict[int, str]] = defaultdict(dict)
            for name in scopes:
                match = _NUMBERED.match(label(name))
                assert match is not None
                stems[match[1]][int(match[2])] = name
            sets: dict[frozenset[int], list[str]] = defaultdict(list)
            for stem, numbered in stems.items():
                if len(numbered) >= FEWEST_NUMBERS:
                    sets[frozenset(numbered)].append(stem)
            for numbers, of in sets.items():
                place = {s: {k: self._when(scopes[stems[s][k]]) for k in numbers} for s in of}
                for together in _taking_turns(place):
                    name = _shared_start(together) or "layer"
                    ours = {stems[s][k]: k for s in together for k in numbers}
                    if len(of) == len(together):  # no other parts have these numbers
                        ours |= dict(self._of_numbers(around, numbers))
                    for scope, k in ours.items():
                        moved[(*around, scope)] = f"{name} {k}{AT_LINE}{LAYER}"
        self._put_around(moved)

    def _sections(self) -> None:
        """Puts parts of many together whose names begin alike: ``down_0`` of its blocks.

        So it is where they have several kinds of names and run one after another, with no other
        part between them.
        """
        moved: dict[Path, str] = {}
        for (_, around), parts in self._products_below(lambda name: True).items():
            if len(parts) <= MOST_PARTS:
                continue
            sections: dict[str, list[str]] = defaultdict(list)
            for name in parts:
                start = _SECTION.match(label(name))
                sections[start[0] if start else name].append(name)
            times = {n: self._when(rows) for n, rows in parts.items()}
            for section, names in _in_a_row(sections, times).items():
                if len({re.sub(r"\d+", "", label(n)) for n in names}) > 1:
                    moved |= {(*around, n): f"{section}{AT_LINE}" for n in names}
        self._put_around(moved)

    def _products_below(
        self, takes: Callable[[str], bool]
    ) -> dict[tuple[int, Path], dict[str, list[int]]]:
        """For each computation and path the products in each scope below that is taken."""
        below: dict[tuple[int, Path], dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
        caller, _ = self.t.caller()
        fusion = self.t.by_opcode(lambda o: o == "fusion", bool)
        fused = (caller >= 0) & fusion[np.maximum(caller, 0)]
        mine = self.product & (self.own >= 0) & ~fused[self.t.computation]
        for row in np.flatnonzero(mine).tolist():
            path, c = self._path(row), int(self.t.computation[row])
            for n, name in enumerate(path):
                if takes(name):
                    below[c, path[:n]][name].append(row)
        return below

    def _put_around(self, moved: dict[Path, str]) -> None:
        """Puts a scope around each of these."""
        for old in range(len(self.paths)) if moved else ():
            path = self.paths[old]
            for n in range(len(path)):
                if path[: n + 1] in moved:
                    new = self._id((*path[:n], moved[path[: n + 1]], *path[n:]))
                    self.own[self.own == old] = new
                    break

    def _of_numbers(self, around: Path, numbers: frozenset[int]) -> list[tuple[str, int]]:
        """Scopes without products that have the same numbers: ``norm_3`` is of layer 3 too."""
        n = len(around)
        found: dict[str, dict[int, str]] = defaultdict(dict)
        for path in self.tree.paths:
            if len(path) > n and path[:n] == around and not path[n].endswith(LAYER):
                match = _NUMBERED.match(label(path[n]))
                if match:
                    found[match[1]][int(match[2])] = path[n]
        return [
            (name, k) for of in found.values() if of.keys() == numbers for k, name in of.items()
        ]

    def _when(self, rows: list[int]) -> float:
        """How many products are before the last of these."""
        c = int(self.t.computation[rows[0]])
        if c not in self.depths:
            graph = Graph(self.t, c)
            here = self.product[graph.first : graph.first + graph.size]
            self.depths[c] = np.array(graph.depth(here.tolist()), np.int64)
        return float(self.depths[c][np.array(rows) - self.t.first[c]].max())

    def _optimizers(self) -> None:
        """Names what an optimizer's own code made, and inline updates of parameters."""
        t = self.t
        given = np.array([self.tree.by_optimizer[r] for r in range(len(self.own))], bool)
        phase = phases(self.module)
        callers = {p[:-1] for p in self.tree.differentiated}
        at_caller = np.array([p in callers for p in self.paths] + [False], bool)[self.own]
        loop = t.by_opcode(lambda o: o == "while", bool)  # of steps: each has an update in it
        # A step that is counted, a loss that is averaged: no call whose work makes only scalars.
        array = np.array([any(x.rank for x in s.leaves() if x.is_array) for s in t.shapes], bool)
        array = array[t.shape] & (self.own >= 0) & ~t.silent
        if (given & array).any():  # what is beside it is not it: an average of the weights
            at_caller &= self._holds_most(given)
        inline = at_caller & (phase == OPTIMISER) & self._steps[t.computation] & ~loop
        inline &= self._serves_updates(inline)
        mine = (given | inline) & (self.own >= 0) & ~t.silent
        updates = np.unique(self.own[mine & array])
        rows = np.flatnonzero(mine & (given | np.isin(self.own, updates)))
        if not len(rows):
            return
        name = optimiser_name(self.module, rows)
        entry = self.module.entry
        sampled = ~given & (t.computation != (entry.index if entry is not None else -1))
        known: dict[tuple[int, bool], int] = {}
        for row in rows.tolist():
            key = int(self.own[row]), bool(sampled[row]) and not name
            if key not in known:
                label = UPDATE if key[1] else f"{OPTIMIZER} · {name}" if name else OPTIMIZER
                known[key] = self._id((*self.paths[key[0]], label))
            self.own[row] = known[key]

    def _holds_most(self, rows: Mask) -> Mask:
        """Fusions of which these are most: an update that ends in the weights' own sum."""
        t = self.t
        drawn = ~self.quiet & ~t.by_opcode(lambda o: o == "parameter", bool)
        count = np.bincount(t.computation[drawn], minlength=len(t.first))
        mine = np.bincount(t.computation[drawn & rows], minlength=len(t.first))
        out = np.zeros(len(rows), bool)
        out[t.called.rows[(2 * mine > count)[t.called.values]]] = True
        return np.asarray(out & t.by_opcode(lambda o: o == "fusion", bool))

    @cached_property
    def _steps(self) -> Mask:
        """Computations that may be steps of training: ENTRY and the bodies of loops."""
        _, roles = self.t.caller()
        out = np.array([role == "body" for role in roles], bool)
        if self.module.entry is not None:
            out[self.module.entry.index] = True
        return out

    def _serves_updates(self, inline: Mask) -> Mask:
        """Which of these turn a gradient into a result, or are used by such alone: a learning rate.

        What a gradient does within the program, such as a force in a simulation, is no update.
        """
        t, entry = self.t, self.module.entry
        if not inline.any():
            return np.zeros_like(inline)
        late = np.array([BACKWARD in p for p in self.paths] + [False], bool)[self.own]
        after = inline & depends_on(t, late)
        # what XLA made, such as a copy of the result, leads on to it
        made = self._steps[t.computation] & ((self.own < 0) | self.quiet) & ~t.silent
        ways = inline | (made & ~t.by_opcode(lambda o: o == "while", bool))
        roots = {r for c in np.flatnonzero(self._steps).tolist() if (r := int(t.roots[c])) >= 0}
        used = ways[t.operands.values]
        users: dict[int, list[int]] = defaultdict(list)
        for value, user in zip(
            t.operands.values[used].tolist(), t.operands.rows[used].tolist(), strict=True
        ):
            users[value].append(user)
        out = np.zeros_like(inline)
        number = np.array([not any(x.rank for x in s.leaves()) for s in t.shapes], bool)[t.shape]
        for row in np.flatnonzero(ways)[::-1].tolist():
            by = users[row]
            if number[row]:  # as a result it is a metric of what was updated
                by = [u for u in by if u not in roots]
            if after[row] or made[row]:
                out[row] = row in roots or any(out[u] for u in by)
            else:
                out[row] = bool(by) and all(out[u] for u in by)
        # A sampler moves a point or two by a gradient, a loop of microbatches adds to a sum that
        # nothing else in it reads: neither is a model's parameters.
        read = self._read_by_others(users, made & ~inline, out)
        for root in roots:
            c = int(t.computation[root])
            if entry is None or c != entry.index:
                given = t.operands.values[t.operands.offsets[root] : t.operands.offsets[root + 1]]
                moved = np.flatnonzero((out & after)[given]).tolist()
                if len(read[c].intersection(moved)) < MOST_OF_STATE:
                    out[t.first[c] : t.first[c] + t.size[c]] = False
        return out & inline

    def _read_by_others(
        self, users: Mapping[int, list[int]], passes: Mask, updates: Mask
    ) -> Mapping[int, set[int]]:
        """Elements of what each computation is given that more than its updates use."""
        t = self.t
        read: dict[int, set[int]] = defaultdict(set)
        for c in np.flatnonzero(self._steps).tolist():
            for row in range(int(t.first[c]), int(t.first[c]) + int(t.size[c])):
                i = t.instructions[row]
                if i.tuple_index is None or not i.operands or i.operands[0].opcode != "parameter":
                    continue
                seen, todo = {row}, [row]
                while todo:
                    for user in users.get(todo.pop(), ()):
                        if passes[user] and user not in seen:
                            seen.add(user)
                            todo.append(user)
                        elif not passes[user] and not updates[user] and user != t.roots[c]:
                            read[c].add(i.tuple_index)
        return read


def _in_a_row(sections: dict[str, list[str]], times: dict[str, float]) -> dict[str, list[str]]:
    """Sections of which all parts run before or after all others; wide ones are given up first."""
    left = dict(sections)
    ends = {s: (min(times[n] for n in of), max(times[n] for n in of)) for s, of in left.items()}
    for s in sorted(left, key=lambda s: ends[s][0] - ends[s][1]):
        first, last = ends[s]
        others = (times[n] for o, of in sections.items() if o != s for n in of)
        if len(left[s]) == 1 or any(first <= t <= last for t in others):
            del left[s]
    return left


def _taking_turns(place: dict[str, dict[int, float]]) -> list[list[str]]:
    """Stems of which all scopes with one number run before those with the next."""
    groups: list[list[str]] = []
    for stem in place:
        for group in groups:
            of = [[place[s][k] for s in (*group, stem)] for k in sorted(place[stem])]
            ends = [(min(x), max(x)) for x in of]
            if all(a[1] < b[0] for a, b in pairwise(ends)) or all(
                b[1] < a[0] for a, b in pairwise(ends)
            ):
                group.append(stem)
                break
        else:
            groups.append([stem])
    return [group for group in groups if len(group) > 1]


def _titles(homes: dict[str, int]) -> dict[int, str]:
    """What the scopes of each layer have in common: ``down_0`` of its blocks and its sampling."""
    of: dict[int, list[str]] = defaultdict(list)
    for scope, k in homes.items():
        of[k].append(label(scope))
    out = {k: _shared_start(names) for k, names in of.items()}
    differ = len(set(out.values())) == len(out)
    return out if differ and all(map(str.isidentifier, out.values())) else {}


def _shared_start(names: list[str]) -> str:
    first, last = min(names), max(names)
    n = next((k for k, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), len(first))
    return first[:n].rstrip("_-. ")
