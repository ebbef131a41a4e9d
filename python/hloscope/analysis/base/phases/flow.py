"""Phases checked against data flow: the forward pass needs nothing of the backward pass.

XLA merges equal operations of both passes and keeps one of their names, and moves what is
rematerialised from weights alone to its first use. By name those belong to a later phase than
their users, and forward and backward seem to wait for each other:

    exp     transpose(jvp())/rematted_computation/exp      used by forward and backward: forward
    mul     jvp()/mul                                      made from a gradient: backward

The order of the module is a valid run, so one point in it separates the passes best: the one with
the fewest forward names after it and other names before it. What is named against that *and*
against its users or operands is renamed; what is merely on the other side keeps its name.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ....hlo import opcodes
from ....hlo.collective_kinds import kind_of
from ..table import Table

# What runs the computations it calls, rather than fusing them or applying them to elements.
RUNS = opcodes.CONTROL

# Values of several sources: one late part does not make the others late.
_BUNDLES = opcodes.BUNDLES | opcodes.LOOPS | opcodes.BRANCHES | {"call", *opcodes.BARRIERS}


def held_to_flow(
    t: Table, phase: npt.NDArray[np.uint8], forward: int, backward: int
) -> npt.NDArray[np.uint8]:
    """``phase`` with the phases that data flow contradicts replaced; 0 is no phase."""
    out = phase.copy()
    bundles = t.by_opcode(lambda o: o in _BUNDLES or kind_of(o).reduces_whole, bool)
    for c in _of_both(t, phase == forward, phase > forward):
        lo = int(t.first[c])
        here = slice(lo, lo + int(t.size[c]))
        part, bundle = phase[here], bundles[here].tobytes()
        equal = _parting(part == forward, part == backward)
        said, to = part.tobytes(), out[here]
        begin, end = int(t.operands.offsets[lo]), int(t.operands.offsets[here.stop])
        offsets = (t.operands.offsets[lo : here.stop + 1] - begin).tolist()
        values = (t.operands.values[begin:end] - lo).tolist()
        late = bytearray(len(part))
        cut = equal[0]
        settled = set(equal)
        for i in range(cut, equal[-1]):  # the last of equals that no forward row contradicts
            if bundle[i]:
                continue
            if said[i] == backward or any([late[o] for o in values[offsets[i] : offsets[i + 1]]]):
                late[i] = 1
                if said[i] == forward:
                    break
            if i + 1 in settled:
                cut = i + 1
        wanted = bytearray(len(part))
        for i in range(cut - 1, -1, -1):
            if wanted[i] or said[i] == forward:
                if said[i] > forward:
                    to[i] = forward
                if not bundle[i]:
                    for o in values[offsets[i] : offsets[i + 1]]:
                        wanted[o] = 1
        late = bytearray(len(part))
        for i in range(cut, len(part)):
            if bundle[i]:
                continue
            if said[i] == backward or any([late[o] for o in values[offsets[i] : offsets[i + 1]]]):
                late[i] = 1
                if said[i] == forward:
                    to[i] = backward
    return _with_what_is_fused(t, phase, out)


def _of_both(t: Table, early: npt.NDArray[np.bool_], late: npt.NDArray[np.bool_]) -> list[int]:
    """Computations that hold rows of both kinds, except those of a fusion or a reduction."""
    both = np.ones(len(t.first), bool)
    for wanted in (early, late):
        holds = np.zeros(len(t.first), bool)
        holds[t.computation[wanted]] = True
        both &= holds
    caller, _ = t.caller()
    runs = t.by_opcode(lambda o: o in RUNS, bool)
    some = np.flatnonzero(caller >= 0)
    both[some] &= runs[caller[some]]
    found: list[int] = np.flatnonzero(both).tolist()
    return found


def _parting(is_forward: npt.NDArray[np.bool_], is_other: npt.NDArray[np.bool_]) -> list[int]:
    """How many rows come before each point that separates the passes best; several if equal."""
    score = np.cumsum(is_forward.astype(np.int64) - is_other.astype(np.int64))
    best = int(score.max())
    found: list[int] = (np.flatnonzero(score == best) + 1).tolist() if best > 0 else [0]
    return found


def _with_what_is_fused(
    t: Table, phase: npt.NDArray[np.uint8], out: npt.NDArray[np.uint8]
) -> npt.NDArray[np.uint8]:
    """Renames what a renamed fusion contains along with it."""
    changed = out != phase
    for e in np.flatnonzero(changed[t.called.rows]).tolist():
        i, c = int(t.called.rows[e]), int(t.called.values[e])
        if t.called_roles[e] == "calls":
            rows = out[t.first[c] : t.first[c] + t.size[c]]
            rows[rows == phase[i]] = out[i]
    return out
