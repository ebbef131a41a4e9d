"""The phases of a program, and walks along its edges that assign rows to them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ....hlo.collective_kinds import kind_of
from ....hlo.columns import each_once
from ..table import Ints, Table
from ..waves import in_order

Mask = npt.NDArray[np.bool_]
Phases = npt.NDArray[np.uint8]

PHASES = ("", "forward", "backward", "rematerialised", "optimiser")
UNKNOWN, FORWARD, BACKWARD, REMATERIALISED, OPTIMISER = range(5)


def calls_that_hold(t: Table, wanted: Mask) -> Mask:
    """Computations that contain a wanted row, or call one that does."""
    holds = np.zeros(len(t.first), bool)
    holds[t.computation[wanted]] = True
    rows, callees = t.called.rows, t.called.values
    for _ in range(64):  # as deep as calls nest
        inside = holds.copy()
        inside[t.computation[rows[holds[callees]]]] = True
        if (inside == holds).all():
            break
        holds = inside
    return holds


def depends_on(t: Table, wanted: Mask) -> Mask:
    """Rows computed, within their computation, from a wanted row or a call that holds one.

    Constants do not count: equal ones are merged, and keep the name of whichever was first. What
    XLA sums together with other arrays depends on its own alone: a loss that is summed over
    devices with the gradients is not computed from them.
    """
    named = wanted & ~t.silent
    wanted = named.copy()
    elements, arrays = summed_together(t)
    wanted[t.operands.values[t.operands.offsets[elements]]] = False
    holds = calls_that_hold(t, wanted)
    rows, callees = t.called.rows, t.called.values
    source = wanted.copy()
    source[rows[holds[callees]]] = True
    some = np.zeros(len(t.first), bool)  # elsewhere there is nothing to find
    some[t.computation[source]] = True
    edges = ~source[t.operands.rows] & some[t.computation[t.operands.rows]]
    edges[t.operands.offsets[elements]] = False
    found = reached(t, source, edges)
    for _ in range(len(elements)):  # once, but where one sum is of another's result
        more = found[arrays] & ~found[elements]
        if not more.any():
            break
        found[elements[more]] = True
        found = reached(t, found, edges)
    return found | named


def summed_together(t: Table) -> tuple[Ints, Ints]:
    """Elements of the results of sums and gathers of several arrays, and the array of each."""
    elements, arrays = [], []
    offsets, values = t.operands.offsets, t.operands.values
    apart = lambda o: kind_of(o).reduces or kind_of(o).gathers  # noqa: E731
    done = t.by_opcode(lambda o: apart(o) and o.endswith("-done"), bool)
    sums = t.by_opcode(lambda o: apart(o) and not o.endswith("-done"), bool)
    element = np.flatnonzero(t.by_opcode(lambda o: o == "get-tuple-element", bool))
    given = t.operands.counts > 0  # a cut dump has some without
    element = element[given[element]]
    element = element[((sums | done) & given)[values[offsets[element]]]]
    for row in element.tolist():
        at = int(values[offsets[row]])
        if done[at]:
            at = int(values[offsets[at]])
        index = t.instructions[row].tuple_index
        if sums[at] and index is not None and index < offsets[at + 1] - offsets[at] > 1:
            elements.append(row)
            arrays.append(int(values[offsets[at] + index]))
    return np.array(elements, np.int64), np.array(arrays, np.int64)


def reached(t: Table, source: Mask, edges: Mask) -> Mask:
    """``source`` and the rows computed from it along ``edges``."""
    seen = bytearray(source.tobytes())
    found = np.frombuffer(seen, bool)
    waves, (users, values) = in_order(t, edges)
    for i, o in waves:
        found[i[found[o]]] = True
    for i, o in zip(users.tolist(), values.tolist(), strict=True):
        if seen[o]:
            seen[i] = 1
    return found.copy()


def into(t: Table, values: Mask) -> Mask:
    """Which edges are uses of ``values`` by rows that come after them."""
    edges = t.operands.values
    return np.asarray(values[edges] & (edges < t.operands.rows))


def used_as(t: Table, out: Phases) -> Phases:
    """For each edge the phase of its use: for a fusion's operand, that of what reads it inside.

    XLA fuses a layer's update into the product that makes its gradient: the fusion belongs to
    the backward pass, and what it takes for the update alone to the optimiser.
    """
    rows, edges = t.operands.rows, t.operands.values
    found = out[rows].copy()
    keys, phases, most = _of_parameters(t, out)
    mine = np.flatnonzero(out[edges] == UNKNOWN)
    if not len(keys) or not len(mine):
        return found
    key = rows[mine] * most + (mine - t.operands.offsets[rows[mine]])
    at = np.minimum(np.searchsorted(keys, key), len(keys) - 1)
    hit = keys[at] == key
    found[mine[hit]] = phases[at[hit]]
    return found


def _of_parameters(t: Table, out: Phases) -> tuple[Ints, Phases, int]:
    """Fusion operands that a single phase reads inside: key, phase; keys ascend."""
    caller, roles = t.caller()
    fused = t.by_opcode(lambda o: o == "fusion", bool)[caller] & (caller >= 0)
    updates = np.bincount(t.computation[out == OPTIMISER], minlength=len(t.first)) > 0
    some = fused & updates & np.array([r == "calls" for r in roles], bool)
    rows, edges = t.operands.rows, t.operands.values
    parameter = t.by_opcode(lambda o: o == "parameter", bool)
    read = np.flatnonzero(some[t.computation[rows]] & parameter[edges])
    low, high = np.full(len(out), 255, np.uint8), np.zeros(len(out), np.uint8)
    np.minimum.at(low, edges[read], out[rows[read]])
    np.maximum.at(high, edges[read], out[rows[read]])
    of = each_once(edges[read])
    of = of[low[of] == high[of]]
    number = np.array([t.instructions[p].parameter_number or 0 for p in of.tolist()], np.int64)
    most = int(max(t.operands.counts.max(initial=0), number.max(initial=0))) + 1
    key = caller[t.computation[of]] * most + number
    order = np.argsort(key)
    return key[order], low[of][order], most
