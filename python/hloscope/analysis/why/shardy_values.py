"""Match each value of the program before partitioning to the one in Shardy's dump of it.

XLA makes the program from what Shardy dumped, op by op, so both are one graph: from the results
back, operand by operand, every value has one counterpart, whatever else looks like it. What differs
is known here: loops carry in HLO what they only read in Shardy; a branch takes parameters; a
manual computation is a call between two custom calls; copies that only one side has.
"""

from __future__ import annotations

from ...hlo import Computation, Instruction, Module, opcodes, walk
from ...readers.stablehlo.shardy_dump import CONSTRAINTS, MANUAL, ShardyDump, ShardyOp, ShardyValue

_Pair = tuple[Instruction, ShardyValue]


class ShardyValues:
    """``of(i)`` is the value of Shardy's dump that ``i`` makes; ``made(op)`` what makes an op's."""

    def __init__(self, before: Module, dump: ShardyDump) -> None:
        self._of: dict[int, ShardyValue] = {}
        self._made: dict[ShardyValue, Instruction] = {}
        self._known: dict[int, ShardyOp] = {}  # loops and calls that were entered
        self._waiting: list[_Pair] = []
        root = before.entry.root if before.entry is not None else None
        if root is not None:
            self._all(_elements(root, len(dump.returned)), dump.returned)
        while self._waiting:
            self._match(*self._waiting.pop())

    def of(self, i: Instruction) -> ShardyValue | None:
        return self._of.get(i.index)

    def made(self, op: ShardyOp) -> Instruction | None:
        """The instruction that an op of the dump became, if its value is used."""
        return next((self._made[r] for r in op.results if r in self._made), None)

    def _all(self, values: list[Instruction] | None, theirs: list[ShardyValue]) -> None:
        if values is not None and len(values) == len(theirs):
            self._waiting += zip(values, theirs, strict=True)

    def _match(self, i: Instruction, v: ShardyValue) -> None:
        if i.index in self._of:
            return
        if i.opcode == "get-tuple-element":
            self._element(i, v)
            return
        op = v.op
        if i.opcode == "parameter":
            self._parameter(i, v)
        elif op is None or v.is_argument:
            if _is_added(i, op):
                self._put(i, v)
                self._waiting.append((i.operands[0], v))
        elif op.short in CONSTRAINTS:
            if i.opcode == "copy" and i.operands:
                self._put(i, v)
                self._all([i.operands[0]], op.operands)
            elif op.operands:  # it was not exported
                self._match(i, op.operands[0])
        elif op.short == MANUAL:
            self._manual(i, v, op)
        elif _is_added(i, op):
            self._put(i, v)
            self._waiting.append((i.operands[0], v))
        elif i.opcode == "while":
            self._put(i, v)
            self._loop(i, v)
        elif i.opcode == "conditional":
            self._branches(i, op)
            self._put(i, v)
        elif i.shape.is_array and tuple(i.shape.dimensions) == v.dims:
            self._put(i, v)
            self._all(list(i.operands), op.operands)
        elif not i.shape.is_array:
            self._all(list(i.operands), op.operands)

    def _put(self, i: Instruction, v: ShardyValue) -> None:
        self._of[i.index] = v
        known = self._made.get(v)
        if known is None or (known.opcode in _SECOND and i.opcode not in _SECOND):
            self._made[v] = i

    def _element(self, i: Instruction, v: ShardyValue) -> None:
        bundle, k = i.operands[0], i.tuple_index
        if k is None:
            return
        if bundle.opcode == "tuple":
            self._put(i, v)
            self._waiting.append((bundle.operands[k], v))
        elif bundle.opcode == "while":
            self._put(i, v)
            self._loop(bundle, v)
        elif bundle.opcode == "parameter":
            self._inner(i, v, bundle, k)
        elif v.op is not None and not v.is_argument:
            self._put(i, v)
            if bundle.opcode in opcodes.BARRIERS:
                self._all(_elements(bundle.operands[0], len(v.op.operands)), v.op.operands)
            elif bundle.opcode == "conditional":
                self._branches(bundle, v.op)
            elif v.op.short == MANUAL:
                self._manual(bundle, v, v.op)
            else:
                self._all(list(bundle.operands), v.op.operands)

    def _inner(self, i: Instruction, v: ShardyValue, parameter: Instruction, k: int) -> None:
        """An element of the one parameter of a loop's or a branch's computation."""
        self._put(i, v)
        site = next(iter(parameter.module.call_sites(parameter.computation)), None)
        if site is None or site.opcode != "while":
            self._passed(parameter, v, k)
        elif self._known.get(site.index) is not v.op:  # what the loop only reads
            begun = site.operands[0]
            if begun.opcode == "tuple" and k < len(begun.operands):
                self._waiting.append((begun.operands[k], v))

    def _loop(self, loop: Instruction, v: ShardyValue) -> None:
        op = v.op
        if loop.index in self._known or op is None or op.short != "while":
            return
        self._known[loop.index] = op
        begun = _elements(loop.operands[0], None)
        self._all(begun[: len(op.operands)] if begun else None, op.operands)
        for role, number in (("condition", 0), ("body", -1)):
            called = dict(loop.called).get(role)
            root = called.root if called is not None else None
            if root is not None and op.returned:
                ends = _elements(root, None)
                theirs = op.returned[number]
                self._all(ends[: len(theirs)] if ends else None, theirs)

    def _branches(self, i: Instruction, op: ShardyOp) -> None:
        for called, theirs in zip(i.called_computations, op.returned, strict=False):
            if called.root is not None:
                self._all(_elements(called.root, len(theirs)), theirs)

    def _parameter(self, i: Instruction, v: ShardyValue) -> None:
        self._put(i, v)
        site = next(iter(i.module.call_sites(i.computation)), None)
        if site is not None and site.opcode != "while":
            self._passed(i, v, None)

    def _passed(self, parameter: Instruction, v: ShardyValue, element: int | None) -> None:
        """From a parameter to what the call passes for it: a branch reads values from outside."""
        for p in list(walk.back(parameter, opcodes.BRANCHES | opcodes.CALLS, reach=1))[1:]:
            value = p.instruction
            if element is not None:
                bundle = value if value.opcode == "tuple" else None
                if bundle is None or element >= len(bundle.operands):
                    continue
                value = bundle.operands[element]
            if not v.is_argument or v.op is None:
                self._waiting.append((value, v))

    def _manual(self, i: Instruction, v: ShardyValue, op: ShardyOp) -> None:
        """``custom-call ← copy ← call ← copy ← custom-call``, between local and whole arrays."""
        self._put(i, v)
        call = walk.source(i, lambda x: x.opcode in _AROUND_CALL).instruction
        if call.opcode != "call" or call.index in self._known:
            return
        self._known[call.index] = op
        inside: Computation | None = next(iter(call.called_computations), None)
        if inside is not None and inside.root is not None and op.returned:
            self._all(_elements(inside.root, len(op.returned[0])), op.returned[0])
        for operand, theirs in zip(call.operands, op.operands, strict=False):
            for p in walk.path(operand, lambda x: x.opcode in ("copy", "custom-call")):
                if p.instruction.opcode == "custom-call" and p.instruction.operands:
                    self._waiting.append((p.instruction.operands[0], theirs))
                    break


_ELEMENTS = ("get-tuple-element", "parameter")
_SECOND = ("copy", *_ELEMENTS)  # those hand on what others made


_AROUND_CALL = ("copy", "custom-call", "get-tuple-element")


def _is_added(i: Instruction, op: ShardyOp | None) -> bool:
    """Whether only HLO has it: a copy, or a reshape that changes no dimension."""
    if i.opcode not in opcodes.SAME_ORDER or len(i.operands) != 1:
        return False
    same = i.shape.is_array and i.shape.dimensions == i.operands[0].shape.dimensions
    return i.opcode == "copy" or (same and (op is None or op.short != "reshape"))


def _elements(value: Instruction, count: int | None) -> list[Instruction] | None:
    """The elements of a tuple, or the value itself if one is wanted."""
    if value.opcode == "tuple":
        return list(value.operands)
    return [value] if count == 1 or (count is None and value.shape.is_array) else None
