"""Purpose of each buffer: parameter, saved activation, gradient, optimiser state, …

Arguments by data flow, else by name (``argument_roles.py``); the rest by the phase of definition
and of last use:

    a copy or conversion of an argument                 copied argument
    a copy or conversion of a saved, gradient or        as that value
    rematerialised value
    made backward, shaped like a parameter              gradient, reduced over devices or not
    made forward, last used backward or later           activation saved for backward
    otherwise, result of a collective                   collective buffer
    made in rematted_computation                        rematerialised
    anything else                                       temporary

``Memory.category_source`` says what decided.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ...hlo import Instruction, Target, opcodes, walk
from ...hlo.collective_kinds import KINDS, is_collective, split
from ..base.operands import given_name
from ..base.phases.phases import BACKWARD, FORWARD, OPTIMISER, REMATERIALISED, phases
from ..base.table import table
from .argument_roles import BY_USE, STATE, argument_roles, moves_only
from .argument_roles import PARAMETER as IS_PARAMETER
from .liveness.liveness import Liveness
from .liveness.values import ARGUMENT, CONSTANT, OUTPUT

CATEGORIES = (
    "temporary",
    "parameter",
    "optimiser state",
    "argument",
    "output",
    "saved for backward",
    "gradient",
    "rematerialised",
    "collective buffer",
    "constant",
    "copied argument",
)
(
    TEMPORARY, PARAMETER, OPTIMISER_STATE, OTHER_ARGUMENT, RESULT, SAVED, GRADIENT, REMAT,
    COLLECTIVE, LITERAL, COPIED,
) = range(len(CATEGORIES))  # fmt: skip


def categorise(live: Liveness, target: Target) -> tuple[npt.NDArray[np.int8], dict[int, str]]:
    """Index into ``CATEGORIES`` of each buffer; what decided it, where not phases alone."""
    module = live.module
    n = len(live.size)
    out = np.zeros(n, np.int8)
    phase = phases(module)
    out[live.kind == CONSTANT] = LITERAL
    out[live.kind == OUTPUT] = RESULT
    out[live.kind == ARGUMENT] = OTHER_ARGUMENT
    sources: dict[int, str] = {}
    parameter_shapes: set[tuple[int, ...]] = set()
    for b, (role, source) in argument_roles(live, phase, argument_names(live, target)).items():
        if role in (IS_PARAMETER, STATE):
            out[b] = PARAMETER if role == IS_PARAMETER else OPTIMISER_STATE
            parameter_shapes.add(live.shape_of(b).dimensions)
        sources[b] = source
    if not parameter_shapes:  # no parameter is known: any argument may be one
        parameter_shapes = {
            live.shape_of(b).dimensions for b in np.flatnonzero(live.kind == ARGUMENT).tolist()
        }
    temps = np.flatnonzero((out == TEMPORARY) & (live.size > 0))
    last_use = last_use_phase(live, phase)
    may_move = table(module).may_pass(_COMPUTED_ELSEWHERE)
    for b in temps[np.argsort(live.start[temps], kind="stable")].tolist():
        i = module.instructions[int(live.defined_by[b])]
        made = int(phase[_computed_by(i).index if may_move[i.index] else i.index])
        moved = _moved(live, b)
        if moved is not None and live.kind[moved] == ARGUMENT:
            out[b], sources[b] = COPIED, BY_USE
        elif moved is not None and out[moved] in (SAVED, GRADIENT, REMAT):
            out[b], sources[b] = out[moved], BY_USE
        elif (
            made == BACKWARD
            and not _only_moves(i.opcode)
            and live.shape_of(b).dimensions in parameter_shapes
        ):
            out[b] = GRADIENT
        elif made == FORWARD and last_use[b] in (BACKWARD, REMATERIALISED, OPTIMISER):
            out[b] = SAVED  # gathered arrays that are kept included: keeping them costs memory
        elif is_collective(i.opcode):
            out[b] = COLLECTIVE
        elif made == REMATERIALISED:
            out[b] = REMAT
    return out, sources


_COMPUTED_ELSEWHERE = opcodes.SAME_NUMBERS | opcodes.FUSIONS


def _computed_by(i: Instruction) -> Instruction:
    """What computed a buffer's value: a move to other memory is named after what needs it there."""
    return walk.source(i, _COMPUTED_ELSEWHERE).instruction


def _only_moves(opcode: str) -> bool:
    """Whether it is a collective that combines no values."""
    collective = split(opcode)
    return collective is not None and not KINDS[collective[0]].reduces


def _moved(live: Liveness, b: int) -> int | None:
    """The buffer of which ``b`` is only a copy or conversion; else None."""
    if live.definitions[b] != 1:
        return None
    i = live.module.instructions[int(live.defined_by[b])]
    if not moves_only(live.module)[i.index] or len(i.operands) != 1 or i.operands[0].shape.is_tuple:
        return None
    nodes = live.values.nodes(i.operands[0])
    return int(live.buffer_of[nodes[0]]) if len(nodes) else None


def last_use_phase(live: Liveness, phase: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """Phase of the program point at which each buffer is last used."""
    if not len(live.schedule):
        return np.zeros(len(live.size), np.uint8)
    result: npt.NDArray[np.uint8] = phase[live.schedule[live.end]]
    return result


def argument_names(live: Liveness, target: Target) -> dict[int, str]:
    """Names of the function's arguments by buffer; for a dump, those in ENTRY."""
    entry = live.module.entry
    if entry is None:
        return {}
    by_number = {a.parameter: a.name for a in target.arguments if a.parameter is not None}
    out: dict[int, str] = {}
    for p in entry.parameters:
        nodes = list(live.values.nodes(p))
        name = by_number.get(p.parameter_number or 0) or given_name(p) or p.name
        for k, v in enumerate(nodes):
            b = int(live.buffer_of[v])
            if live.kind[b] == ARGUMENT:
                out.setdefault(b, name if len(nodes) == 1 else f"{name}[{k}]")
    return out
