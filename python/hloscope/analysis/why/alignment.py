"""Match each instruction of the partitioned program to the one before partitioning it is part of.

The partitioner rewrites a computation op by op: each keeps its opcode and its metadata, and
its dimensions become those of one device's tile. What it adds in between (collectives, and the
slices, reshapes and masks around them) has no counterpart:

    before        squeeze bf16[256,4,32] ─────────────────────────── dot bf16[8,128,4,32]
    partitioned   squeeze bf16[128,1,32] ─ all-gather bf16[256,1,32] ─ dot bf16[4,128,1,32]

Ops of one name and line are distinguished by their operands, which were matched before them.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator

from ...hlo import Computation, Instruction, Module, Shape, StackFrame, opcodes, walk

Place = tuple[object, ...]
_SPMD = re.compile(r"_spmd(?:\.\w+)*$")
_NOTHING = opcodes.LITERALS | opcodes.DEVICE_IDS  # not computed from other values
_WINDOWED = ("dot", "convolution")
_TESTS = ("compare", "and", "or", "not", "partition-id")  # masks select elements; they are not data
# What the partitioner inserts between ops under the names of those ops.
_GLUE = opcodes.MOVES | {"select", "add", "multiply", "subtract", "clamp", "minimum", "maximum"}
_NAMELESS = opcodes.LOOPS | opcodes.BRANCHES | {"tuple", "iota"}  # often without an op name
_BESIDE = ("metadata", "sharding", "frontend_attributes", "to_apply")
_WHOLE = ("jit(", "pjit(")  # start of a name that includes all its callers
_DEPTH = 20  # nested calls


def place(op_name: str, frames: tuple[StackFrame, ...]) -> Place:
    """Name and lines, which the partitioner copies from an op to all that it makes from it."""
    return (op_name, tuple((f.file, f.line, f.column) for f in frames))


def full_name(i: Instruction) -> str:
    """``op_name`` as after inlining of calls: names in a called function start at that function.

    Names in the body of a loop in such a function start with ``while/body``, not with its callers.
    """
    name, computation = i.op_name, i.computation
    for _ in range(_DEPTH):
        caller = next(iter(i.module.call_sites(computation)), None)
        if caller is None or not name:
            break
        if caller.opcode == "call" and caller.op_name:
            name = f"{caller.op_name}/{name}"
        elif caller.opcode not in ("while", "conditional") or name.startswith(_WHOLE):
            break
        computation = caller.computation
    return name


class Alignment:
    """``of(i)`` is the op before partitioning whose local part ``i`` is, or None."""

    def __init__(self, before: Module, after: Module) -> None:
        self.before, self.after = before, after
        self._of: dict[int, Instruction] = {}
        self._taken: set[int] = set()
        self._numbers: dict[int, int] = {}  # equal for instructions that compute the same
        self._tiles: dict[tuple[object, object], bool] = {}
        for whole, local in self._computations():
            self._align(whole, local)

    def of(self, local: Instruction) -> Instruction | None:
        return self._of.get(local.index)

    def sources(self, local: Instruction) -> list[Instruction]:
        """Instructions with a counterpart from which ``local`` is made by glue alone."""
        found = list(self._through(local))
        return [i for i in found if self._of[i.index].opcode not in _NOTHING] or found

    def users(self, local: Instruction) -> list[tuple[Instruction, int]]:
        """Instructions with a counterpart that take the value of ``local`` through glue alone.

        Each with the number of that operand.
        """
        found = walk.uses(
            local, self._is_glue, where=lambda p: p.instruction.opcode not in _TESTS,
            dependencies=True,
        )  # fmt: skip
        return [(u.instruction, u.operand) for u in found if u.instruction.opcode not in _TESTS]

    def _is_glue(self, i: Instruction) -> bool:
        """Whether the partitioner added an instruction between two of the program."""
        return i.index not in self._of

    def _through(self, local: Instruction) -> Iterator[Instruction]:
        way = (p.instruction for p in walk.back(local, self._is_glue, dependencies=True))
        return (i for i in way if not self._is_glue(i))

    def _computations(self) -> Iterator[tuple[Computation, Computation]]:
        """Pairs of computations, callees before callers, as in a module."""
        named = {c.name: c for c in self.before.computations}
        for local in self.after.computations:
            whole = named.get(_SPMD.sub("", local.name))
            if local is self.after.entry:
                whole = self.before.entry
            if whole is not None and len(whole.parameters) == len(local.parameters):
                yield whole, local

    def _align(self, whole: Computation, local: Computation) -> None:
        by_place: dict[tuple[str, Place], dict[int, Instruction]] = defaultdict(dict)
        for i in whole.instructions:
            by_place[i.opcode, place(i.op_name, i.frames)][i.index] = i
        parameters = {p.parameter_number: p for p in whole.parameters}
        for i in local.instructions:
            found: Instruction | None = None
            if i.opcode == "parameter":
                found = parameters.get(i.parameter_number)
            elif i.opcode == "get-tuple-element" and i.operands:
                found = self._element(i)
            elif i.op_name or i.opcode in _NAMELESS:
                found = self._alike(i, by_place.get((i.opcode, place(i.op_name, i.frames)), {}))
            if found is None and i.opcode == "while":
                found = self._windowed(i, by_place)
            if found is not None:
                self._of[i.index] = found
                self._taken.add(found.index)
        ends = [c.root for c in (whole, local) if c.root is not None and c.root.opcode == "tuple"]
        if len(ends) == 2:
            self._of[ends[1].index] = ends[0]

    def _element(self, i: Instruction) -> Instruction | None:
        of = self._of.get(i.operands[0].index)
        index = i.attribute("index")
        for user in of.users if of is not None else ():
            if user.opcode == "get-tuple-element" and user.attribute("index") == index:
                return user
        return None

    def _windowed(
        self, loop: Instruction, by_place: dict[tuple[str, Place], dict[int, Instruction]]
    ) -> Instruction | None:
        """The dot that became a loop of permutes and small dots."""
        at = place(loop.op_name, loop.frames)
        dots = [i for op in _WINDOWED for i in by_place.get((op, at), {}).values()]
        given = {self._of[s.index].index for o in loop.operands for s in self.sources(o)}
        dots = [d for d in dots if any(o.index in given for o in d.operands)] or dots
        return dots[0] if len(dots) == 1 else None

    def _alike(self, i: Instruction, candidates: dict[int, Instruction]) -> Instruction | None:
        given = [[self._of[s.index] for s in self.sources(o)] for o in i.operands]
        users = (u for g in given[:1] for o in g for u in o.users)
        near = {u.index: u for u in users if u.index in candidates}
        exact = [
            c for c in near.values() if self._is_tile(i.shape, c.shape) and all(
                any(o is g for g in found) for o, found in zip(c.operands, given, strict=False)
            )
        ]  # fmt: skip
        if len(exact) == 1 and exact[0].index not in self._taken:
            return exact[0]
        fits = [c for c in candidates.values() if self._is_tile(i.shape, c.shape)]
        if not fits or (len(fits) == 1 and i.opcode not in _GLUE):
            return fits[0] if fits else None
        same = [{self.number(g) for g in found} for found in given]
        scores = [
            sum(self.number(o) in found for o, found in zip(c.operands, same, strict=False))
            for c in fits
        ]
        if i.opcode in _GLUE and not max(scores) and any(given):
            return None  # its operands differ: the partitioner's own
        best = [c for c, s in zip(fits, scores, strict=True) if s == max(scores)]
        # of several the first in program order not matched yet
        return next((c for c in best if c.index not in self._taken), best[0])

    def number(self, i: Instruction) -> int:
        """Equal for two ops that are the same or compute the same: of duplicates one is kept."""
        if not self._numbers:
            known: dict[object, int] = {}
            for c in self.before.computations:
                for x in c.instructions:  # operands come first
                    key = (*_how(x), *(self._numbers[o.index] for o in x.operands))
                    at = known.setdefault(key, x.index) if x.operands else x.index
                    self._numbers[x.index] = at
        return self._numbers[i.index]

    def _is_tile(self, local: Shape, whole: Shape) -> bool:
        """Whether ``local`` can be one device's part of ``whole``; tuples by element."""
        known = self._tiles.get((local, whole))
        if known is None:
            ours, theirs = list(local.leaves()), list(whole.leaves())
            known = self._tiles[local, whole] = len(ours) == len(theirs) and all(
                len(a.dimensions) == len(b.dimensions)
                and all(m <= n for m, n in zip(a.dimensions, b.dimensions, strict=True))
                for a, b in zip(ours, theirs, strict=True)
            )
        return known


def _how(i: Instruction) -> tuple[object, ...]:
    """What decides what it computes of its operands; computations that it applies can be copies."""
    kept = sorted((k, v) for k, v in i.attributes.items() if k not in _BESIDE)
    return i.opcode, str(i.shape), tuple(kept)
