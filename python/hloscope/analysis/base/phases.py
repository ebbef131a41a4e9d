"""Forward, backward, rematerialised or optimiser: which part of a training step an op is of.

jax writes it into ``op_name``:

    jit(step)/jvp(layer_0)/dot_general                                  forward
    jit(step)/transpose(jvp(layer_0))/dot_general                       backward
    jit(step)/transpose(jvp())/checkpoint/rematted_computation/tanh     rematerialised
    jit(step)/adam/mul                                                  optimiser

The optimiser is what depends on the backward pass without being marked, or what stands in a
scope of a known optimiser. Ops without a name (partitioner, layout copies) take the phase of
what they are computed from or serve. A module with no such mark at all has no phases:
nothing says that it trains.
"""

from __future__ import annotations

import re

import numpy as np
import numpy.typing as npt

from ...hlo import Module
from .table import Table, per_module, table

Phases = npt.NDArray[np.uint8]

PHASES = ("", "forward", "backward", "rematerialised", "optimiser")
UNKNOWN, FORWARD, BACKWARD, REMATERIALISED, OPTIMISER = range(5)

_PATH = re.compile(r"/")
_REMAT = re.compile(r"(?:^|/)rematted_computation(?:/|$)")
_TRANSPOSE = re.compile(r"(?:^|/)(?:\w+\()*transpose\(")
_JVP = re.compile(r"(?:^|/|\()jvp\(")
_OPTIMISER = re.compile(
    r"(?:^|/)(?:\w+\()*(?:adam\w*|adafactor|adagrad|sgd|lamb|lion|rmsprop|optim\w*|optax\w*"
    r"|apply_updates|apply_gradients?|apply_grads?|update_params|opt_update)\)*(?:/|$)",
    re.I,
)
_XLA_REMAT = re.compile(r"\.remat\d*(?:\.|$)")  # hlo_rematerialization's clones


def name_phase(op_name: str) -> int:
    """What an ``op_name`` alone says; UNKNOWN for unmarked names and argument names."""
    if not _PATH.search(op_name):
        return UNKNOWN
    if _REMAT.search(op_name):
        return REMATERIALISED
    if _TRANSPOSE.search(op_name):
        return BACKWARD
    if _JVP.search(op_name):
        return FORWARD
    return OPTIMISER if _OPTIMISER.search(op_name) else UNKNOWN


@per_module
def phases(module: Module) -> Phases:
    """A row an instruction: index into ``PHASES``; all 0 when the module marks none."""
    t = table(module)
    by_name = np.array([name_phase(n) for n in t.op_names], np.uint8)
    out = by_name[t.op_name]
    for i, name in enumerate(i.name for i in t.instructions):
        if ".remat" in name and _XLA_REMAT.search(name):
            out[i] = REMATERIALISED
    if not np.isin(out, (FORWARD, BACKWARD, REMATERIALISED)).any():
        out[:] = UNKNOWN
        return out
    is_path = np.array(["/" in n for n in t.op_names], bool)[t.op_name]
    _from_context(t, out, is_path)
    return out


def _from_context(t: Table, out: Phases, is_path: npt.NDArray[np.bool_]) -> None:
    """Unmarked rows: after the backward pass optimiser, else by what they serve."""
    caller, roles = t.caller()
    fused = [role == "calls" for role in roles]
    after = _depends_on_backward(t, out)
    unmarked = out == UNKNOWN
    has_backward = bool((out == BACKWARD).any())
    if has_backward:
        out[unmarked & is_path & after] = OPTIMISER
        out[_serve_optimiser(t, out, unmarked & is_path & ~after)] = OPTIMISER
        out[unmarked & is_path & (out == UNKNOWN)] = FORWARD
    else:
        out[unmarked & is_path] = FORWARD
    _inherit(t, out)
    # What is inside a fusion and still unmarked is of the fusion's phase.
    for c in range(len(t.first) - 1, -1, -1):
        if caller[c] >= 0 and fused[c]:
            rows = slice(t.first[c], t.first[c] + t.size[c])
            part = out[rows]
            part[part == UNKNOWN] = out[caller[c]]


def _depends_on_backward(t: Table, out: Phases) -> npt.NDArray[np.bool_]:
    """Rows computed, within their computation, from a backward row or a call that holds one."""
    n_computations = len(t.first)
    holds = np.zeros(n_computations, bool)
    backward = out == BACKWARD
    holds[np.unique(t.computation[backward])] = True
    rows, callees = t.called.rows, t.called.values
    for _ in range(64):  # as deep as calls nest
        inside = holds.copy()
        np.logical_or.at(inside, t.computation[rows], holds[callees])
        if (inside == holds).all():
            break
        holds = inside
    source = backward.copy()
    np.logical_or.at(source, rows, holds[callees])
    seen = source.tolist()
    offsets, values = t.operands.offsets.tolist(), t.operands.values.tolist()
    for i in range(len(seen)):
        if not seen[i]:
            for o in values[offsets[i] : offsets[i + 1]]:
                if seen[o]:
                    seen[i] = True
                    break
    return np.array(seen, bool)


def _serve_optimiser(
    t: Table, out: Phases, candidate: npt.NDArray[np.bool_]
) -> npt.NDArray[np.bool_]:
    """Candidates that nothing but the optimiser uses: ``b1 * m`` needs no gradient."""
    tuples = t.by_opcode(lambda o: o in ("tuple", "opt-barrier"), bool).tolist()
    serves = (out == OPTIMISER).tolist()
    marked = (out != UNKNOWN).tolist()
    used, elsewhere = [False] * len(serves), [False] * len(serves)
    offsets, values = t.operands.offsets.tolist(), t.operands.values.tolist()
    free = candidate.tolist()
    plain = (t.op_name == 0).tolist()  # copies and casts of XLA's own pass it on
    for i in range(len(serves) - 1, -1, -1):  # users first
        if not marked[i] and (free[i] or plain[i]) and used[i] and not elsewhere[i]:
            serves[i] = True
        if tuples[i]:
            continue
        for o in values[offsets[i] : offsets[i + 1]]:
            if serves[i]:
                used[o] = True
            else:
                elsewhere[o] = True
    return np.asarray(np.array(serves, bool) & candidate)


def _inherit(t: Table, out: Phases) -> None:
    """Rows without any name: later than forward by their operands, else by first user."""
    phase = out.tolist()
    offsets, values = t.operands.offsets.tolist(), t.operands.values.tolist()
    first_user = [0] * len(phase)
    for i in range(len(phase) - 1, -1, -1):  # users first
        if phase[i] == UNKNOWN:
            phase[i] = first_user[i]
        if phase[i]:
            for o in values[offsets[i] : offsets[i + 1]]:
                first_user[o] = phase[i]
    for i in np.flatnonzero(out == UNKNOWN).tolist():
        made_from = max((phase[o] for o in values[offsets[i] : offsets[i + 1]]), default=0)
        if made_from > FORWARD and phase[i] in (UNKNOWN, OPTIMISER):
            phase[i] = made_from
    out[:] = phase
