"""Origins and fates for a dump without marks: operations are the first dump's instructions.

    before_optimizations        after_optimizations
    %dot.3   ─ operation 3 ──── %dot.12       by its neighbours
    %tanh.4  ─ operation 4 ──── %fusion.1     by its op name

Instructions are followed by name, structure and metadata (identity/follow.py). The results say that
they are inferred and from what; benchmarks/identity.py compares them with marks.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from ...hlo import Instruction, Module, Operation, Origin, Origins, opcodes
from ...readers.hlo.pass_lines import called
from ..passes.identity.follow import follow_identity
from ..passes.identity.how import How
from ..passes.identity.walk import IdentityWalk
from ..passes.passes import Passes

_NO_OPERATION = opcodes.BUNDLES | {"parameter"}


@dataclass(frozen=True, eq=False)
class Inferred:
    """``passes`` have the operations that each one removed; their modules have origins."""

    operations: tuple[Operation, ...]
    _walk: IdentityWalk = field(repr=False)
    _number: dict[int, int] = field(repr=False)  # first node → operation
    _plain: Passes = field(repr=False)

    @cached_property
    def passes(self) -> Passes:
        present = self._present()
        gone = present[:, :-1] & ~present[:, 1:] if present.size else present
        rows, snapshots = [], []
        for row, snapshot in zip(self._plain.rows, self._plain.snapshots, strict=True):
            k = row.index
            lost = tuple(np.flatnonzero(gone[:, k - 1]).tolist()) if k else ()
            rows.append(replace(row, lost=lost))
            there = frozenset(np.flatnonzero(present[:, k]).tolist())
            module = self._reader(snapshot.module, k)
            snapshots.append(replace(snapshot, operations=there, module=module))
        found = replace(self._plain, rows=tuple(rows), snapshots=tuple(snapshots), _costs={})
        return found

    def origins(self, module: Module, row: int = -1) -> Origins:
        """The origins of a module's instructions after a row, the last one by default."""
        row = row % len(self._plain.rows)
        node = self._nodes(row)
        of = []
        for i in module.instructions:
            n = node.get((i.computation.name, i.name), -1)
            known, how = self._at(n, row)
            numbers = [self._number[k] for k in known if k in self._number]
            of.append(tuple(Origin(k) for k in numbers) if how is not How.ORDER else ())
        return Origins(self.operations, tuple(of))

    def how(self, instruction: Instruction) -> How:
        """What the origins of an instruction of the last module are based on."""
        n = self._last_nodes.get((instruction.computation.name, instruction.name), -1)
        known, how = self._at(n, len(self._plain.rows) - 1)
        some = how is How.ORDER or any(k in self._number for k in known)
        return how if some else How.NONE

    @cached_property
    def counts(self) -> dict[str, int]:
        """Instructions of the last module by what their identity is based on, most certain first.

        "" counts those that come from no operation: arguments, and what XLA made.
        """
        last = self._plain.module(len(self._plain) - 1)
        hows = Counter(self.how(i) for i in last.instructions)
        found = {"" if how is How.NONE else str(how): n for how, n in hows.items()}
        return {kind: found[kind] for kind in (*map(str, How), "") if kind in found}

    def to_dict(self) -> dict[str, Any]:
        counts = {kind or "from no operation": n for kind, n in self.counts.items()}
        agreement = {str(how): how.agreement for how in How if str(how) in counts}
        return {"inferred": True, "instructions": counts, "agreement": agreement}

    def __str__(self) -> str:
        counts = self.counts
        equals, none = counts.get(str(How.ORDER), 0), counts.get("", 0)
        said = ", ".join(
            f"{counts[str(how)]:,} {str(how).replace(' its ', ' their ')} "
            f"({how.agreement:.0%} of such were right)"
            for how in How
            if how not in (How.ORDER, How.NONE) and str(how) in counts
        )
        some = f"; {equals:,} are each one of several equal operations, unknown which"
        some = some if equals else ""
        return (
            "This dump has no marks. Instructions are followed from its first module by name, "
            f"structure and metadata, which is inferred: of {sum(counts.values()):,} at the end "
            f"{said or 'none'}{some}; {none:,} are arguments, made by XLA, or of unknown origin."
        )

    def _at(self, n: int, row: int) -> tuple[tuple[int, ...], How]:
        ids: tuple[int, ...] = (n,) if n in self._number else ()
        how = How.FIRST
        for since, known, by, named in self._walk.history.get(n, ()):
            if since <= row:
                # XLA made what has no op name: its history only serves to identify others
                ids, how = (known, by) if named else ((), How.FIRST)
        return ids, how

    @cached_property
    def _last_nodes(self) -> dict[tuple[str, str], int]:
        return self._nodes(len(self._plain.rows) - 1)

    def _nodes(self, row: int) -> dict[tuple[str, str], int]:
        steps = self._walk.steps
        names = {p.index: p.names() for p in steps.places}
        out = {}
        for n in steps.nodes:
            if not n.first <= row < n.last:
                continue
            rows = [steps.versions[v].row for v in n.versions]
            line = steps.versions[n.versions[bisect_right(rows, row) - 1]].line
            place = next((x for a, b, x in names[n.computation] if a <= row < b), "")
            out[place, line.name] = n.index
        return out

    def _present(self) -> np.ndarray:
        """Whether operation i is there after row k."""
        rows = len(self._plain.rows)
        found = np.zeros((len(self.operations), rows + 1), np.int32)
        for n in self._walk.steps.nodes:
            spans = list(self._walk.history.get(n.index, ()))
            if n.index in self._number:
                spans.insert(0, (0, (n.index,), How.FIRST, True))
            ends = [*(since for since, *_ in spans[1:]), n.last]
            for (begin, ids, *_), end in zip(spans, ends, strict=False):
                for k in ids:
                    number = self._number.get(k)
                    if number is not None:
                        found[number, begin] += 1
                        found[number, end] -= 1
        there: np.ndarray = np.cumsum(found[:, :rows], axis=1) > 0
        return there

    def _reader(self, read: Callable[[], Module], row: int) -> Callable[[], Module]:
        def module() -> Module:
            found = read()
            found.origins = self.origins(found, row)
            return found

        return module


def infer(passes: Passes, progress: Callable[[int, int], None] | None = None) -> Inferred:
    """Follows the instructions of the first dump through all passes.

    Raises ``ReadError`` if a dump is gone; ``progress`` may raise to stop.
    """
    walk = follow_identity([s.text for s in passes.snapshots], progress)
    steps = walk.steps
    operations: list[Operation] = []
    number: dict[int, int] = {}
    whole: list[tuple[int, str]] = []
    for n in steps.nodes:
        if n.first:
            continue
        line = steps.versions[n.versions[0]].line
        if line.opcode in _NO_OPERATION:
            # an element of a loop's or a call's result has the op name of the loop or call
            if line.op_name and line.opcode != "parameter":
                whole.append((n.index, line.op_name))
            continue
        place = steps.places[n.computation]
        function = "main" if place.entry else place.renames[0][1]
        callee = called(line) if line.opcode == "call" else []
        number[n.index] = len(operations)
        operations.append(
            Operation(
                len(operations), line.opcode, line.op_name, function, callee=(callee or [""])[0]
            )
        )
    _parts_of_results(walk, whole, number)
    return Inferred(tuple(operations), walk, number, passes)


def _parts_of_results(
    walk: IdentityWalk, whole: Sequence[tuple[int, str]], number: dict[int, int]
) -> None:
    """Assigns elements of operands and results of loops, calls and barriers to those operations.

    They have its op name: ``get-tuple-element(%while)``, and the tuple operand.
    """
    steps = walk.steps
    near: defaultdict[int, list[int]] = defaultdict(list)
    op_name = dict(whole)
    for n in op_name:
        near[n] += steps.versions[steps.nodes[n].versions[0]].operands
    for user in steps.nodes:
        if not user.first:
            for o in steps.versions[user.versions[0]].operands:
                if o in op_name:
                    near[o].append(user.index)
    open_ = list(op_name)
    while open_:
        still = []
        for n in open_:
            of = next(
                (
                    number[o]
                    for o in near[n]
                    if o in number
                    and steps.versions[steps.nodes[o].versions[0]].line.op_name == op_name[n]
                ),
                None,
            )
            if of is None:
                still.append(n)
            else:
                number[n] = of
        if len(still) == len(open_):
            return
        open_ = still
