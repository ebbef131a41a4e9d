"""Phases checked against data flow: the forward pass needs nothing of the backward pass.

XLA merges equal operations of both passes and keeps one of their names, and moves what is
rematerialised from weights alone to its first use. By name those belong to a later phase than
their users, and forward and backward seem to wait for each other:

    exp     transpose(jvp())/rematted_computation/exp      used by forward and backward: forward
    mul     jvp()/mul                                      made from a gradient: backward

A program of several losses has several of both passes, one after the other:

    jvp()/dot  ─  transpose(jvp())/dot  ─  sub  ─  jvp()/dot  ─  transpose(jvp())/dot
    the loss of one       its gradients   update   the loss that takes what was updated

What is in no derivative and made from a gradient, such as an update, ends a *round*: what is made
from it is of the next one. Within a round the forward pass needs nothing of the backward pass.

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
from .edges import depends_on, reached

# What runs the computations it calls, rather than fusing them or applying them to elements.
RUNS = opcodes.CONTROL

# Values of several sources: one late part does not make the others late.
_BUNDLES = opcodes.BUNDLES | opcodes.LOOPS | opcodes.BRANCHES | {"call", *opcodes.BARRIERS}


def held_to_flow(
    t: Table,
    phase: npt.NDArray[np.uint8],
    forward: int,
    backward: int,
    outside: npt.NDArray[np.bool_] | None = None,
) -> npt.NDArray[np.uint8]:
    """``phase`` with the phases that data flow contradicts replaced; 0 is no phase.

    ``outside`` are the rows whose names show that they are in no derivative.
    """
    out = phase.copy()
    bundles = t.by_opcode(lambda o: o in _BUNDLES or kind_of(o).reduces_whole, bool)
    rounds = _rounds(t, phase, forward, backward, outside)
    for n in range(int(rounds.max(initial=0)) + 1):
        here = rounds == n
        one = np.where(here, phase, 0).astype(np.uint8)
        held = _held(t, one, bundles | ~here, forward, backward)
        out[here] = held[here]
    return _with_what_is_fused(t, phase, out)


def _rounds(
    t: Table,
    phase: npt.NDArray[np.uint8],
    forward: int,
    backward: int,
    outside: npt.NDArray[np.bool_] | None,
) -> npt.NDArray[np.int64]:
    """For each row how many losses were differentiated, and their gradients used, before it."""
    rounds = np.zeros(len(phase), np.int64)
    if outside is None or not outside.any():
        return rounds
    computed = t.by_opcode(lambda o: o in opcodes.ELEMENTWISE, bool)
    late = depends_on(t, phase == backward)
    ends = outside | _fused_with(t, outside & late & computed)  # a gradient and its update
    every = np.ones(len(t.operands.rows), bool)
    caller, roles = t.caller()
    fused = [c for c in range(len(t.first) - 1, -1, -1) if caller[c] >= 0 and roles[c] == "calls"]
    for n in range(_MOST_ROUNDS):
        late = depends_on(t, (phase == backward) & (rounds == n))
        used = (ends & late & (rounds == n))[t.operands.values]
        later = np.zeros(len(phase), bool)
        later[t.operands.rows[used]] = True
        later = reached(t, later, every) & (rounds == n)
        if not (later & (phase == forward)).any():
            break
        rounds[later] = n + 1
        for c in fused:  # what is fused is of its fusion's round
            rounds[t.first[c] : t.first[c] + t.size[c]] = rounds[caller[c]]
    return rounds


_MOST_ROUNDS = 64  # as many steps as a loop is written out for


def _fused_with(t: Table, rows: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """Fusions that hold some of the rows."""
    holds = np.zeros(len(t.first), bool)
    holds[t.computation[rows]] = True
    out = np.zeros(len(rows), bool)
    out[t.called.rows[holds[t.called.values]]] = True
    return np.asarray(out & t.by_opcode(lambda o: o == "fusion", bool), np.bool_)


def _held(
    t: Table,
    phase: npt.NDArray[np.uint8],
    bundles: npt.NDArray[np.bool_],
    forward: int,
    backward: int,
) -> npt.NDArray[np.uint8]:
    """The same for one round; ``bundles`` pass on no phase."""
    out = phase.copy()
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
    return out


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
