"""Constants: XLA's import gives them no names, so their marks are lost.

Where they went is found at their users. An operation that is still there, or a part of it,
reads in the same place what its operand became:

    StableHLO                           optimised
    7: %c = constant dense<2.5>         %constant.5 = f32[] constant(2.5)
    8: multiply %arg0, %c               %mul.8 = multiply(%param_1, %mul.9)     from operation 8
                                        %mul.9 = broadcast(%constant.5)

An equal value there is the constant itself; a different value is one that it was folded into. If
its users are gone or were rewritten, only their own fates can tell.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Iterator, Mapping
from functools import cached_property

from ....hlo import Instruction, Module, Operation, opcodes, walk
from .fate import Fate, FateCause, FateKind, InstructionName, hlo_opcode

_MOST = 64
_SAME = opcodes.REPEATED | opcodes.CALLS | opcodes.FUSIONS
_NUMBER = re.compile(r"0x[0-9A-Fa-f]+|[+-]?(?:\d+\.?\d*(?:[eE][+-]?\d+)?|inf|nan)|true|false")
_FORMATS = {"f16": "<e", "f32": "<f", "f64": "<d"}


class Constants:
    """Finds the constants of a program that have no mark."""

    def __init__(self, module: Module, stablehlo: Module | None) -> None:
        self.module, self.stablehlo = module, stablehlo

    def fate(self, operation: Operation, rows: Mapping[int, Fate | None]) -> Fate:
        """``rows``: the fates that are already known, by operation."""
        constant = self._written.get(operation.number)
        if constant is None:
            return Fate(operation, FateKind.UNKNOWN, cause=FateCause.NAMELESS_CONSTANT)
        there = [i for i in self._at_uses(constant) if i.opcode == "constant"]
        there = list(dict.fromkeys(there))
        equal = [i for i in there if same_value(constant, i)]
        if equal:
            into = tuple(dict.fromkeys(f for i in equal if (f := self._around(i)) is not None))
            every = all(self._around(i) is not None for i in equal)
            kind = FateKind.FUSED if every else FateKind.KEPT
            return Fate(operation, kind, tuple(equal), into if every else ())
        unprinted = tuple(InstructionName.of(i) for i in there if same_value(constant, i) is None)
        if unprinted:
            cause = FateCause.UNPRINTED_CONSTANT
            return Fate(operation, FateKind.UNKNOWN, cause=cause, names=unprinted)
        if there:
            return Fate(operation, FateKind.FOLDED, tuple(there), cause=FateCause.INTO_CONSTANT)
        return self._with_users(operation, constant, rows)

    def _with_users(
        self, operation: Operation, constant: Instruction, rows: Mapping[int, Fate | None]
    ) -> Fate:
        users = [rows.get(o.operation) for u in constant.users for o in u.origins[:1]]
        known = [f for f in users if f is not None]
        if not constant.users:
            return Fate(operation, FateKind.DEAD, cause=FateCause.UNUSED)
        if len(known) == len(constant.users):
            kinds, by = {f.kind for f in known}, {f.by for f in known}
            one = by.pop() if len(by) == 1 else ""
            if kinds == {FateKind.DEAD}:
                return Fate(operation, FateKind.DEAD, by=one, cause=FateCause.USERS_REMOVED)
            if kinds == {FateKind.FOLDED}:
                cause = FateCause.TO_CONSTANT_WITH_USERS
                return Fate(operation, FateKind.FOLDED, by=one, cause=cause)
        return Fate(operation, FateKind.UNKNOWN, cause=FateCause.NAMELESS_CONSTANT)

    # -- the StableHLO program ---------------------------------------------------------

    @cached_property
    def _written(self) -> dict[int, Instruction]:
        if self.stablehlo is None or self.stablehlo.origins is None:
            return {}
        return {
            i.origins[0].operation: i
            for i in self.stablehlo.instructions
            if i.opcode == "constant" and i.origins
        }

    @cached_property
    def _written_calls(self) -> dict[str, list[Instruction]]:
        return _callers(self.stablehlo) if self.stablehlo is not None else {}

    def _at_uses(self, value: Instruction, depth: int = 6) -> Iterator[Instruction]:
        """What the optimised program has where an instruction's users read it."""
        for user in value.users:
            for k, operand in enumerate(user.operands):
                if operand is value:
                    yield from self._at_use(user, k, depth)

    def _at_use(self, user: Instruction, k: int, depth: int) -> Iterator[Instruction]:
        if user.opcode == "call" and depth:
            for _, callee in user.called:
                inside = [i for i in callee.instructions if i.opcode == "parameter"]
                if k < len(inside) and len(self._written_calls.get(callee.name, ())) == 1:
                    yield from self._at_uses(inside[k], depth - 1)
            return
        if user.opcode == "return":
            root = self.module.entry.root if self.module.entry is not None else None
            if root is not None and user.computation.is_entry:
                whole = root.opcode == "tuple" and len(root.operands) == len(user.operands)
                if whole or len(user.operands) == 1:
                    yield from self._behind(root.operands[k] if whole else root)
            return
        opcode = hlo_opcode(user.opcode)
        for origin in user.origins[:1]:
            for at in self._from.get(origin.operation, ())[:_MOST]:
                new = self.module.instructions[at]
                if new.opcode == opcode == "while" and new.operands:
                    yield from self._behind(new.operands[0], k)
                elif new.opcode == opcode and len(new.operands) == len(user.operands):
                    yield from self._behind(new.operands[k])

    # -- the optimised program ---------------------------------------------------------

    @cached_property
    def _from(self) -> Mapping[int, tuple[int, ...]]:
        return self.module.origins.instructions if self.module.origins is not None else {}

    @cached_property
    def _calls(self) -> dict[str, list[Instruction]]:
        """Fusions and calls by the name of the computation that they call."""
        return _callers(self.module)

    def _around(self, i: Instruction) -> Instruction | None:
        """The fusion that an instruction is in."""
        found = self._calls.get(i.computation.name, ())
        return next((c for c in found if c.opcode == "fusion"), None)

    def _behind(self, i: Instruction, element: int = -1) -> Iterator[Instruction]:
        """The instructions that have the same value, in any form; or that element of a tuple."""
        if element < 0 and i.shape.is_tuple:
            yield i
            return
        value = walk.Position(i, (element,) if element >= 0 else ())
        for position in walk.sources(value, _SAME, inside_fusions=True):
            if not position.element:
                yield position.instruction


def _callers(module: Module) -> dict[str, list[Instruction]]:
    out: dict[str, list[Instruction]] = {}
    for i in module.instructions:
        if i.opcode in ("fusion", "call"):
            for _, c in i.called:
                out.setdefault(c.name, []).append(i)
    return out


def same_value(a: Instruction, b: Instruction) -> bool | None:
    """Whether two constants hold equal numbers; None if one of them is not printed."""
    p, q = _numbers(a), _numbers(b)
    if p is None or q is None:
        return None
    if len(set(p)) == 1 or len(set(q)) == 1:
        p, q = _splat(p), _splat(q)
    close = 1e-6 if a.shape.element_type == b.shape.element_type else 1e-2
    return len(p) == len(q) and all(_equal(x, y, close) for x, y in zip(p, q, strict=True))


def _equal(x: float, y: float, close: float) -> bool:
    if isinstance(x, int) and isinstance(y, int):
        return x == y
    return x == y or (math.isnan(x) and math.isnan(y)) or math.isclose(x, y, rel_tol=close)


def _splat(values: list[float]) -> list[float]:
    return values[:1] if len(set(values)) == 1 else values


def _numbers(i: Instruction) -> list[float] | None:
    """The values of a literal as HLO or StableHLO prints it."""
    text = i.literal or ""
    dtype = i.shape.element_type
    if "..." in text or '"' in text or len(text) > 100_000:
        return None
    found = _NUMBER.findall(text.lower())
    values = [_number(x, dtype) for x in found]
    return [v for v in values if v is not None] if values and None not in values else None


def _number(text: str, dtype: str) -> float | None:
    if text in ("true", "false"):
        return float(text == "true")
    if not text.startswith("0x"):
        return int(text) if text.lstrip("+-").isdecimal() else float(text)
    bits = int(text, 16)
    if dtype == "bf16":
        return float(struct.unpack("<f", struct.pack("<I", bits << 16 & 0xFFFFFFFF))[0])
    form = _FORMATS.get(dtype)
    if form is None:
        return None
    size = struct.calcsize(form)
    if bits >> 8 * size:
        return None
    return float(struct.unpack(form, bits.to_bytes(size, "little"))[0])
