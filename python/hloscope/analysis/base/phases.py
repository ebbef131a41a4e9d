"""Forward, backward, rematerialised or optimiser: which part of a training step an op is of.

jax writes it into ``op_name``:

    jit(step)/jvp(layer_0)/dot_general                                  forward
    jit(step)/transpose(jvp(layer_0))/dot_general                       backward
    jit(step)/transpose(jvp())/checkpoint/rematted_computation/tanh     rematerialised
    jit(step)/adam/mul                                                  optimiser

The optimiser is what depends on the backward pass without being marked, or what stands in a
scope of a known optimiser. Ops without a name (partitioner, layout copies) take the phase of
what they are computed from or serve, else of the loop or call that they stand in.

Where the compiler made one op of several, it has the names of all of them, as a combined
all-reduce of gradients and the loss:

    jit(step)/(transpose(jvp())/dot_general:jvp()/reduce_sum)

Data flow decides then: the latest phase where it is computed from the backward pass, else the
earliest. A module with no mark at all has no phases: nothing says that it trains.
"""

from __future__ import annotations

import re

import numpy as np
import numpy.typing as npt

from ...hlo import Module
from .op_name import split_components
from .phase_flow import RUNS, held_to_flow
from .table import Ints, Table, per_module, table

Phases = npt.NDArray[np.uint8]

PHASES = ("", "forward", "backward", "rematerialised", "optimiser")
UNKNOWN, FORWARD, BACKWARD, REMATERIALISED, OPTIMISER = range(5)
_IN_TIME = (FORWARD, REMATERIALISED, BACKWARD, OPTIMISER)

_REMAT = re.compile(r"(?:^|/)rematted_computation(?:/|$)")
_TRANSPOSE = re.compile(r"(?:^|/)(?:\w+\()*transpose\(")
_OPTIMISER = re.compile(
    r"(?:^|/)(?:\w+\()*(?:adam\w*|adafactor|adagrad|sgd|lamb|lion|rmsprop|optim\w*|optax\w*"
    r"|apply_updates|apply_gradients?|apply_grads?|update_params|opt_update)\)*(?:/|$)",
    re.I,
)
# One of these stands in every name that the pattern above finds.
_OPTIMISER_WORDS = ("ada", "sgd", "lamb", "lion", "rmsprop", "opt", "apply_", "update_params")
_XLA_REMAT = re.compile(r"\.remat\d*(?:\.|$)")  # hlo_rematerialization's clones


def name_phases(op_name: str) -> tuple[int, ...]:
    """The phases that the names of a merged op say, in time; one of a name of its own."""
    if ":" not in op_name and ";" not in op_name:
        return (name_phase(op_name),)
    found = {name_phase(n) for n in merged_names(op_name)}
    if UNKNOWN in found and len(found) > 1:  # a gradient's norm reduced with the loss
        found.add(OPTIMISER)
    return tuple(p for p in _IN_TIME if p in found) or (UNKNOWN,)


def merged_names(op_name: str) -> list[str]:
    """``jit(f)/(a/mul:b/add)`` as ``jit(f)/a/mul`` and ``jit(f)/b/add``; ``a/mul;b/add`` alike."""
    if ";" in op_name:
        parts = split_components(op_name, ";")
        if len(parts) > 1:
            return [n for part in parts for n in merged_names(part)]
    if not op_name.endswith(")") or "/(" not in op_name or ":" not in op_name:
        return [op_name]
    head, _, last = op_name.partition("/(")
    inside = last[:-1]
    parts = split_components(inside, ":")
    if len(parts) < 2:
        return [op_name]
    return [n for part in parts for n in merged_names(f"{head}/{part}")]


def name_phase(op_name: str) -> int:
    """What one ``op_name`` alone says; UNKNOWN for unmarked names and argument names."""
    # A pattern is tried where its word stands: names are many, and patterns slow.
    if "/" not in op_name:
        return UNKNOWN
    if "rematted_computation" in op_name and _REMAT.search(op_name):
        return REMATERIALISED
    if "transpose(" in op_name and ("/transpose(" in op_name or _TRANSPOSE.search(op_name)):
        return BACKWARD
    if "/jvp(" in op_name or "(jvp(" in op_name or op_name.startswith("jvp("):
        return FORWARD
    low = op_name.lower()
    if any(word in low for word in _OPTIMISER_WORDS) and _OPTIMISER.search(op_name):
        return OPTIMISER
    return UNKNOWN


@per_module
def phases(module: Module) -> Phases:
    """A row an instruction: index into ``PHASES``; all 0 when the module marks none."""
    t = table(module)
    said = [name_phases(n) for n in t.op_names]
    by_name = np.array([p[0] if len(p) == 1 else UNKNOWN for p in said], np.uint8)
    is_path = np.array(["/" in n for n in t.op_names], bool)[t.op_name]
    out = by_name[t.op_name]
    several = np.array([len(p) > 1 for p in said], bool)[t.op_name]
    _from_caller(t, out, is_path & ~several)
    out = held_to_flow(t, out, FORWARD, BACKWARD)
    if several.any():
        after = _depends_on(t, np.isin(out, (REMATERIALISED, BACKWARD)))
        ends = np.array([(p[0], p[-1]) for p in said], np.uint8)[t.op_name]
        out = np.where(several, np.where(after, ends[:, 1], ends[:, 0]), out).astype(np.uint8)
    for i in [i for i in t.instructions if ".remat" in i.name]:
        if _XLA_REMAT.search(i.name):
            out[i.index] = REMATERIALISED
    if not np.isin(out, (FORWARD, BACKWARD, REMATERIALISED)).any():
        out[:] = UNKNOWN
        return out
    named = out != UNKNOWN
    _from_context(t, out, is_path)
    _between(t, out, named, is_path)
    out[~named & _holding_both(t, out)] = UNKNOWN
    return out


def _from_caller(t: Table, out: Phases, free: npt.NDArray[np.bool_]) -> None:
    """Unmarked names in a loop or call that is marked itself are of its phase.

    Some versions of jax write names in a loop's body from the body on: ``layers/mul`` in a
    loop ``transpose(jvp(model))/while`` is of the backward pass.
    """
    caller, _ = t.caller()
    around = [UNKNOWN] * len(t.first)
    for c in range(len(t.first) - 1, -1, -1):  # callers come after what they call
        if caller[c] >= 0 and t.opcodes[t.opcode[caller[c]]] in RUNS:
            around[c] = int(out[caller[c]]) or around[t.computation[caller[c]]]
        if around[c] != UNKNOWN:
            rows = slice(t.first[c], t.first[c] + t.size[c])
            part = out[rows]
            part[(part == UNKNOWN) & free[rows]] = around[c]


def _between(
    t: Table, out: Phases, named: npt.NDArray[np.bool_], is_path: npt.NDArray[np.bool_]
) -> None:
    """Unnamed rows are no earlier than a gradient they are made from, else no later than users.

    ``named`` are the rows whose own name says a phase, ``is_path`` those that have a name.
    """
    rows, values = t.operands.rows, t.operands.values
    after = _depends_on(t, named & (out == BACKWARD))
    free = ~named & ~is_path
    late = rows[named[values] & (out[values] == BACKWARD)]
    late = late[free[late] & (out[late] == FORWARD)]
    out[late] = BACKWARD
    movable = free & ~after
    whole = t.by_opcode(lambda o: o in ("tuple", "opt-barrier", "while", "call"), bool)
    for _ in range(64):  # a chain of plumbing is seldom longer
        used = values[(out[rows] == FORWARD) & ~whole[rows]]
        early = used[movable[used] & (out[used] > FORWARD)]
        if not len(early):
            break
        out[early] = FORWARD


def _from_context(t: Table, out: Phases, is_path: npt.NDArray[np.bool_]) -> None:
    """Unmarked rows: after the backward pass optimiser, else by what they serve."""
    caller, roles = t.caller()
    fused = [role == "calls" for role in roles]
    after = _depends_on(t, out == BACKWARD)
    for c in range(len(t.first) - 1, -1, -1):
        if fused[c] and after[caller[c]]:
            after[t.first[c] : t.first[c] + t.size[c]] = True
    unmarked = out == UNKNOWN
    has_backward = bool((out == BACKWARD).any())
    if has_backward:
        out[unmarked & is_path & after] = OPTIMISER
        out[_serve_optimiser(t, out, unmarked & is_path & ~after, after)] = OPTIMISER
        out[_beside_model(t, out, unmarked & is_path & ~after)] = OPTIMISER
        out[unmarked & is_path & (out == UNKNOWN)] = FORWARD
    else:
        out[unmarked & is_path] = FORWARD
    _from_inside(t, out, caller, fused)
    _inherit(t, out)
    # What is still unmarked inside a fusion, a loop or a call is of its phase.
    for c in np.unique(t.computation[out == UNKNOWN])[::-1].tolist():
        if caller[c] >= 0:
            rows = slice(t.first[c], t.first[c] + t.size[c])
            part = out[rows]
            part[part == UNKNOWN] = out[caller[c]]


def _from_inside(t: Table, out: Phases, caller: npt.NDArray[np.int64], fused: list[bool]) -> None:
    """Fusions without a name: the phase that most of what is fused has."""
    for c in range(len(t.first)):
        if caller[c] >= 0 and fused[c] and out[caller[c]] == UNKNOWN:
            counts = np.bincount(out[t.first[c] : t.first[c] + t.size[c]], minlength=len(PHASES))
            counts[UNKNOWN] = 0
            if counts.any():
                out[caller[c]] = int(counts.argmax())


def _holding_both(t: Table, out: Phases) -> npt.NDArray[np.bool_]:
    """Loops and calls that run both passes, as one over batches does: they are of neither."""
    runs = t.by_opcode(lambda o: o in RUNS, bool)
    both = np.ones(len(out), bool)
    for phase in (FORWARD, BACKWARD):
        inside = _calls_that_hold(t, out == phase)
        row = np.zeros(len(out), bool)
        np.logical_or.at(row, t.called.rows, inside[t.called.values])
        both &= row
    return runs & both


def _calls_that_hold(t: Table, wanted: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """Computations with a wanted row in them or in what they call."""
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


def _depends_on(t: Table, wanted: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """Rows computed, within their computation, from a wanted row or a call that holds one."""
    holds = _calls_that_hold(t, wanted)
    rows, callees = t.called.rows, t.called.values
    source = wanted.copy()
    source[rows[holds[callees]]] = True
    seen = bytearray(source.tobytes())
    some = np.zeros(len(t.first), bool)  # elsewhere nothing is to be found
    some[t.computation[source]] = True
    mine = np.flatnonzero(~source[t.operands.rows] & some[t.computation[t.operands.rows]])
    users, values = t.operands.rows[mine].tolist(), t.operands.values[mine].tolist()
    for i, o in zip(users, values, strict=True):
        if seen[o]:
            seen[i] = 1
    return np.frombuffer(seen, bool).copy()


def _serve_optimiser(
    t: Table, out: Phases, candidate: npt.NDArray[np.bool_], after: npt.NDArray[np.bool_]
) -> npt.NDArray[np.bool_]:
    """Candidates that nothing but the optimiser uses: ``b1 * m`` needs no gradient.

    ``after`` are the rows that come from a gradient: without a name, and used by the optimiser
    or the results alone, they are its own.
    """
    tuples = t.by_opcode(lambda o: o in ("tuple", "opt-barrier"), bool)
    serves = bytearray((out == OPTIMISER).tobytes())
    plain = t.op_name == 0  # copies and casts of XLA's own pass it on
    may = (out == UNKNOWN) & (candidate | plain)
    users, values = _edges_into(t, may)
    kept = ~tuples[users]
    free, last = may.tobytes(), (after & plain).tobytes()
    used, elsewhere = bytearray(len(serves)), bytearray(len(serves))
    for i, o in zip(users[kept].tolist(), values[kept].tolist(), strict=True):
        if serves[i] or (free[i] and (used[i] or last[i]) and not elsewhere[i]):
            serves[i] = used[o] = 1
        else:
            elsewhere[o] = 1
    for i in np.flatnonzero(may).tolist():  # those that use nothing of the kind
        serves[i] = used[i] and not elsewhere[i]
    return np.asarray(np.frombuffer(serves, bool) & candidate)


def _beside_model(t: Table, out: Phases, candidate: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """Candidates that no value of the model joins, of the optimiser's state.

    A frozen weight has no gradient, and its moments decay all the same: ``m * b1 / (1 - b1**t)``
    is made from arguments alone and ends in the results. A piece of such rows is the optimiser's
    where it shares ``b1**t`` with other updates or reads an argument that the model does not.
    """
    model = np.isin(out, (FORWARD, BACKWARD, REMATERIALISED))
    tuples = t.by_opcode(lambda o: o == "tuple", bool)
    tuples &= np.array([i.is_root for i in t.instructions], bool)  # results, not what a loop takes
    feeds = model.copy()
    np.logical_or.at(feeds, t.called.rows, _calls_that_hold(t, model)[t.called.values])
    loose = candidate & (out == UNKNOWN) & ~_depends_on(t, model)
    seen = feeds.tolist()
    users, values = _edges_into(t, ~feeds)
    for i, o in zip(users.tolist(), values.tolist(), strict=True):
        if seen[i] and not tuples[i]:
            seen[o] = True
    loose &= ~np.array(seen, bool)
    if not loose.any():
        return np.zeros(len(out), bool)
    rows, edges = t.operands.rows, t.operands.values
    shared = np.zeros(len(out), bool)
    shared[edges[out[rows] == OPTIMISER]] = True
    shared &= ~t.silent
    private = t.by_opcode(lambda o: o == "parameter", bool)
    private[edges[~loose[rows] & ~tuples[rows] & (out[rows] != OPTIMISER)]] = False
    near = np.zeros(len(out), bool)
    near[rows[loose[rows] & (shared[edges] | private[edges] | (out[edges] == OPTIMISER))]] = True
    within = loose[rows] & loose[edges]
    rows, edges = rows[within], edges[within]
    for _ in range(64):  # an update is a chain of a few dozen
        grown = near.copy()
        grown[rows[near[edges]]] = True
        grown[edges[near[rows]]] = True
        if (grown == near).all():
            return near
        near = grown
    return near


def _edges_into(t: Table, values: npt.NDArray[np.bool_]) -> tuple[Ints, Ints]:
    """(user, value) of every use of ``values``, the last users first."""
    edges = t.operands.values
    mine = np.flatnonzero(values[edges] & (edges < t.operands.rows))[::-1]
    return t.operands.rows[mine], edges[mine]


def _inherit(t: Table, out: Phases) -> None:
    """Rows without any name: later than forward by their operands, else by first user."""
    unknown = out == UNKNOWN
    phase = bytearray(out.tobytes())
    users, values = _edges_into(t, unknown)
    for i, o in zip(users.tolist(), values.tolist(), strict=True):
        if phase[i]:
            phase[o] = phase[i]
    free = unknown & np.isin(np.frombuffer(phase, np.uint8), (UNKNOWN, OPTIMISER))
    mine = np.flatnonzero(free[t.operands.rows])  # users come in order: what they use is settled
    made_from = bytearray([FORWARD]) * len(phase)
    rows, edges = t.operands.rows[mine].tolist(), t.operands.values[mine].tolist()
    for i, o in zip(rows, edges, strict=True):
        if phase[o] > made_from[i]:
            made_from[i] = phase[i] = phase[o]
    out[:] = np.frombuffer(phase, np.uint8)
