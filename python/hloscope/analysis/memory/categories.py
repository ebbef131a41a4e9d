"""What a buffer is for: parameter, saved activation, gradient, optimiser state, …

From what is certain first (arguments and outputs), then from the phase of definition and last
use:

    defined forward, last used backward or later        activation saved for backward
    what a collective gives, otherwise                  collective buffer
    defined in rematted_computation                     rematerialised
    defined backward, shaped like a parameter           gradient
    anything else                                       temporary

Arguments are told apart by their names in the function's signature; without names (a dump)
they are just "argument". The rules are heuristics and say so in the interface.
"""

from __future__ import annotations

import re

import numpy as np
import numpy.typing as npt

from ...hlo import Target
from ...hlo.collective_kinds import is_collective
from ..base.phases import BACKWARD, FORWARD, OPTIMISER, REMATERIALISED, phases
from .liveness import Liveness
from .liveness_values import ARGUMENT, CONSTANT, OUTPUT

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
)
(
    TEMPORARY, PARAMETER, OPTIMISER_STATE, OTHER_ARGUMENT, RESULT, SAVED, GRADIENT, REMAT,
    COLLECTIVE, LITERAL,
) = range(len(CATEGORIES))  # fmt: skip

# anywhere in an argument's path, then only as its first component
_STATE = re.compile(
    r"(?:^|[^a-z])(?:opt|optim\w*|opt_state|adam\w*|mu|nu|momentum|moments?|velocity|exp_avg\w*"
    r"|accumulators?)(?:$|[^a-z])",
    re.I,
)
_STATE_HEAD = re.compile(r"(?:m|v|s|state|momenta|trace|ema)", re.I)
_PARAMETERS = re.compile(r"(?:p|params?|weights?|variables|model|theta|w\d*)", re.I)


def categorise(live: Liveness, target: Target) -> npt.NDArray[np.int8]:
    """A row a buffer: index into ``CATEGORIES``."""
    module = live.module
    n = len(live.size)
    out = np.zeros(n, np.int8)
    phase = phases(module)
    out[live.kind == CONSTANT] = LITERAL
    out[live.kind == OUTPUT] = RESULT
    out[live.kind == ARGUMENT] = OTHER_ARGUMENT
    names = argument_names(live, target)
    donated_shapes: set[tuple[int, ...]] = set()
    for b, name in names.items():
        head = re.split(r"[\[.]", name, maxsplit=1)[0]
        if _STATE_HEAD.fullmatch(head) or _STATE.search(name):
            out[b] = OPTIMISER_STATE
        elif _PARAMETERS.fullmatch(head):
            out[b] = PARAMETER
        if out[b] in (PARAMETER, OPTIMISER_STATE):
            shape = module.instructions[int(live.defined_by[b])].shape
            donated_shapes.add(shape.dimensions)
    if not donated_shapes:  # nothing is named: any argument may be a parameter
        donated_shapes = {
            module.instructions[int(live.defined_by[b])].shape.dimensions
            for b in np.flatnonzero(live.kind == ARGUMENT)
        }
    temps = np.flatnonzero((out == TEMPORARY) & (live.size > 0))
    last_use = last_use_phase(live, phase)
    for b in temps.tolist():
        i = module.instructions[int(live.defined_by[b])]
        made = int(phase[i.index])
        if made == FORWARD and last_use[b] in (BACKWARD, REMATERIALISED, OPTIMISER):
            out[b] = SAVED  # a gathered array that is kept too: that it is kept costs memory
        elif is_collective(i.opcode):
            out[b] = COLLECTIVE
        elif made == REMATERIALISED:
            out[b] = REMAT
        elif (
            made == BACKWARD
            and live.values.shapes[live.values.first[i.index] + int(live.leaf[b])].dimensions
            in donated_shapes
        ):
            out[b] = GRADIENT
    return out


def last_use_phase(live: Liveness, phase: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """The phase at the program point where each buffer is last used."""
    if not len(live.schedule):
        return np.zeros(len(live.size), np.uint8)
    result: npt.NDArray[np.uint8] = phase[live.schedule[live.end]]
    return result


def argument_names(live: Liveness, target: Target) -> dict[int, str]:
    """Names of the function's arguments by buffer; ENTRY's own names for a dump."""
    entry = live.module.entry
    if entry is None:
        return {}
    by_number = {a.parameter: a.name for a in target.arguments if a.parameter is not None}
    out: dict[int, str] = {}
    for p in entry.parameters:
        nodes = list(live.values.nodes(p))
        name = by_number.get(p.parameter_number or 0) or p.op_name or p.name
        for k, v in enumerate(nodes):
            b = int(live.buffer_of[v])
            if live.kind[b] == ARGUMENT:
                out.setdefault(b, name if len(nodes) == 1 else f"{name}[{k}]")
    return out
