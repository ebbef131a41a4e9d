"""What happened to every operation of the StableHLO program, exactly.

    kept        an instruction of its own                       dot_general → %dot.7
    fused       inside a fusion                                 tanh → in %fusion.3
    rewritten   other instructions do its work                  dot_general → convolution
    merged      another operation's instruction does its work   add → that of operation 12
    folded      it became a constant, or part of one
    inlined     a call, replaced by the body of its function
    dead        nothing used its result
    unknown     it is gone, and the passes do not show how

Every operation has exactly one fate. The optimised program shows what is still there; for what is
gone, the passes show after which one it was removed and what was in its place.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from ....hlo import Instruction, Module, Operation, Origins
from .constants import Constants
from .fate import (
    Fate,
    FateCause,
    FateKind,
    Fates,
    InstructionName,
    combined,
    hlo_opcode,
    is_constant,
)
from .removed import RemovedOperations

if TYPE_CHECKING:
    from ...passes.passes import Passes

_NOT_FOLDED = frozenset(["constant", "iota", "broadcast", "reshape"])


def fates(
    module: Module,
    passes: Passes | None = None,
    stablehlo: Module | None = None,
    inferred: Origins | None = None,
) -> Fates:
    """The fate of every operation; without passes, that of a removed one is "unknown".

    ``stablehlo`` shows what was removed before XLA's first pass. ``inferred`` are origins to use
    for a module without marks; the result says that it is inferred.

    Raises ``ValueError`` for a module that has no origins.
    """
    origins = module.origins or inferred
    if origins is None:
        raise ValueError(
            "the operations of this program were not tracked; capture the function itself, "
            "with exact=True"
        )
    callers = _fusions(module)
    called = _through_calls(origins)
    removed = (
        RemovedOperations(origins.operations, passes, stablehlo) if passes is not None else None
    )
    if removed is not None and module.origins is None:
        removed.if_no_pass = FateCause.MAY_BE_AN_EQUAL_ONE
    rows = {o.number: _present(module, origins, o, callers, called) for o in origins.operations}
    missing = [o for o in origins.operations if rows[o.number] is None]
    nameless = [
        o for o in missing if o.opcode == "constant" and (removed is None or removed.never(o))
    ]
    without = {o.number for o in nameless}
    missing = [o for o in missing if o.number not in without]
    if removed is not None:
        missing.sort(key=removed.order)  # each snapshot is read once
    for operation in missing:
        rows[operation.number] = (
            removed.fate(operation) if removed is not None else _not_kept(operation)
        )
    constants = Constants(module, stablehlo)
    for operation in nameless:
        rows[operation.number] = constants.fate(operation, rows)
    found = [row for row in rows.values() if row is not None]
    return Fates(tuple(_calls_left(found)), module.origins is None)


def _calls_left(rows: list[Fate]) -> list[Fate]:
    """Corrects calls that no instruction came through, if something of their function is left."""
    inside: dict[str, list[Fate]] = {}
    for row in rows:
        inside.setdefault(row.operation.function, []).append(row)
    left = {f for f, own in inside.items() if any(r.instructions for r in own)}
    for _ in inside:  # functions that call those
        more = {r.operation.function for r in rows if r.operation.callee in left} - left
        if not more:
            break
        left |= more
    return [
        replace(r, cause=FateCause.NOT_KNOWN_TO_COME_THROUGH)
        if r.cause is FateCause.NOTHING_CAME_THROUGH and r.operation.callee in left
        else r
        for r in rows
    ]


def _not_kept(operation: Operation) -> Fate:
    return Fate(operation, FateKind.UNKNOWN, cause=FateCause.PASSES_NOT_KEPT)


def _fusions(module: Module) -> dict[int, Instruction]:
    """Index of a fused computation → the fusion that calls it."""
    out: dict[int, Instruction] = {}
    for i in module.instructions:
        if i.opcode == "fusion":
            for role, c in i.called:
                if role == "calls":
                    out[c.index] = i
    return out


def _through_calls(origins: Origins) -> dict[int, int]:
    """Number of a call → number of instructions that came through it."""
    found: Counter[int] = Counter()
    for of in origins.of:
        for n in {n for o in of for n in o.calls}:
            found[n] += 1
    return dict(found)


def _present(
    module: Module,
    origins: Origins,
    operation: Operation,
    callers: dict[int, Instruction],
    called: dict[int, int],
) -> Fate | None:
    number = operation.number
    if operation.opcode == "sdy.manual_computation":  # instructions without a name have its name
        return Fate(operation, FateKind.INLINED, cause=FateCause.BODY_IN_PLACE)
    if operation.is_call:
        count = called.get(number)
        if not count:
            return None
        return Fate(operation, FateKind.INLINED, cause=FateCause.CAME_THROUGH, count=count)
    found = [module.instructions[k] for k in origins.instructions.get(number, ())]
    if not found:
        return None
    opcode = hlo_opcode(operation.opcode)
    same = [i for i in found if _is(i, opcode)]
    if same:
        outside = [i for i in same if i.computation.index not in callers]
        if outside:
            return Fate(operation, FateKind.KEPT, tuple(outside))
        into = dict.fromkeys(callers[i.computation.index] for i in same)
        return Fate(operation, FateKind.FUSED, tuple(same), tuple(into))
    whole = combined(operation, found)
    if whole is not None:
        other = origins.operations[whole.origins[0].operation]
        return Fate(operation, FateKind.MERGED, (whole,), other=other, cause=FateCause.IN)
    first = [i for i in found if origins.of[i.index][0].operation == number]
    if not first:
        other = origins.operations[origins.of[found[0].index][0].operation]
        return Fate(operation, FateKind.MERGED, tuple(found), other=other, cause=FateCause.IN)
    if hlo_opcode(operation.opcode) not in _NOT_FOLDED and all(is_constant(i) for i in first):
        return Fate(operation, FateKind.FOLDED, tuple(first), cause=FateCause.TO_CONSTANT)
    # the instruction inside a fusion says more than the fusion that is named after it
    inner = [i for i in first if i.opcode != "fusion"] or first
    into = dict.fromkeys(
        callers[i.computation.index] for i in inner if i.computation.index in callers
    )
    return Fate(
        operation,
        FateKind.REWRITTEN,
        tuple(inner),
        tuple(into),
        cause=FateCause.AS_OPCODES,
        names=tuple(map(InstructionName.of, inner)),
    )


def _is(i: Instruction, opcode: str) -> bool:
    base = i.opcode.removesuffix("-start").removesuffix("-done")
    return base == opcode
