"""What belongs to the optimiser though no gradient reaches it: step counters, decaying moments."""

from __future__ import annotations

import numpy as np

from ....hlo.opcodes import BARRIERS
from ..table import Table
from ..waves import in_order
from .edges import (
    BACKWARD,
    FORWARD,
    OPTIMISER,
    REMATERIALISED,
    UNKNOWN,
    Mask,
    Phases,
    calls_that_hold,
    depends_on,
    into,
)


def serve_optimiser(t: Table, out: Phases, candidate: Mask, after: Mask, updates: Mask) -> Mask:
    """Candidates that nothing but the optimiser uses: ``b1 * m`` needs no gradient.

    ``after`` are the rows that come from a gradient: without a name, and used only by the
    optimiser or the results, they are its own. ``updates`` are uses known to be its own.
    """
    tuples = t.by_opcode(lambda o: o in ("tuple", *BARRIERS), bool)
    serves = out == OPTIMISER
    plain = t.op_name == 0  # XLA's own copies and casts pass it on
    may = (out == UNKNOWN) & (candidate | plain)
    uses = into(t, may) & ~tuples[t.operands.rows]
    waves, (users, values) = in_order(t, uses & ~updates, last_first=True)
    last, does, free = after & plain, serves.tobytes(), may.tobytes()
    used = np.zeros(len(serves), bool)
    elsewhere = used.copy()
    used[t.operands.values[uses & updates]] = True
    for i, o in waves:
        yes = serves[i] | (may[i] & (used[i] | last[i]) & ~elsewhere[i])
        used[o[yes]] = True
        elsewhere[o[~yes]] = True
    is_last, is_used = last.tobytes(), bytearray(used.tobytes())
    is_elsewhere = bytearray(elsewhere.tobytes())
    for i, o in zip(users.tolist(), values.tolist(), strict=True):
        if does[i] or (free[i] and (is_used[i] or is_last[i]) and not is_elsewhere[i]):
            is_used[o] = 1
        else:
            is_elsewhere[o] = 1
    used, elsewhere = np.frombuffer(is_used, bool), np.frombuffer(is_elsewhere, bool)
    return np.asarray(np.where(may, used & ~elsewhere, serves) & candidate)


def beside_model(t: Table, out: Phases, candidate: Mask, updates: Mask) -> Mask:
    """Candidates from the optimiser's state that involve no value of the model.

    A frozen weight has no gradient, but its moments still decay: ``m * b1 / (1 - b1**t)`` is
    made from arguments alone and ends in the results. A piece of such rows is the optimiser's
    if it shares ``b1**t`` with other updates or reads an argument that the model does not.
    """
    model = np.isin(out, (FORWARD, BACKWARD, REMATERIALISED))
    tuples = t.by_opcode(lambda o: o == "tuple", bool)
    for row in np.flatnonzero(tuples).tolist():  # results, not what a loop takes
        tuples[row] = t.instructions[row].is_root
    feeds = model.copy()
    np.logical_or.at(feeds, t.called.rows, calls_that_hold(t, model)[t.called.values])
    plain = (t.op_name == 0) & (t.called.counts == 0) & ~t.silent  # XLA's own copies
    loose = (candidate | plain) & ~tuples & (out == UNKNOWN) & ~depends_on(t, model)
    updates = updates | (out[t.operands.rows] == OPTIMISER)
    seen = bytearray(feeds.tobytes())
    met = np.frombuffer(seen, bool)
    waves, (users, values) = in_order(
        t, into(t, ~feeds) & ~tuples[t.operands.rows] & ~updates, last_first=True
    )
    for i, o in waves:
        met[o[met[i]]] = True
    for i, o in zip(users.tolist(), values.tolist(), strict=True):
        if seen[i]:
            seen[o] = True
    loose &= ~met
    if not loose.any():
        return np.zeros(len(out), bool)
    rows, edges = t.operands.rows, t.operands.values
    shared = np.zeros(len(out), bool)
    shared[edges[updates]] = True
    shared &= ~t.silent
    private = t.by_opcode(lambda o: o == "parameter", bool)
    private[edges[~loose[rows] & ~tuples[rows] & ~updates]] = False
    near = loose & shared  # b1**t itself
    near[rows[loose[rows] & (shared[edges] | private[edges] | (out[edges] == OPTIMISER))]] = True
    within = loose[rows] & loose[edges]
    rows, edges = rows[within], edges[within]
    for _ in range(64):  # an update is a chain of a few dozen
        grown = near.copy()
        grown[rows[near[edges]]] = True
        grown[edges[near[rows]]] = True
        if (grown == near).all():
            break
        near = grown
    return np.asarray(near & candidate, np.bool_)
