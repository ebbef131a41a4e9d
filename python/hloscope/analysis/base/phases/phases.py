"""Forward, backward, rematerialised or optimiser: the part of a training step of each op.

jax writes it into ``op_name``:

    jit(step)/jvp(layer_0)/dot_general                                  forward
    jit(step)/transpose(jvp(layer_0))/dot_general                       backward
    jit(step)/transpose(jvp())/checkpoint/rematted_computation/tanh     rematerialised
    jit(step)/adam/mul                                                  optimiser

The optimiser is what depends on the backward pass without being marked, or what is in a
scope of a known optimiser. Ops without a name (partitioner, layout copies) take the phase of
what they are computed from or serve, else of the loop or call that they are in.

Where the compiler made one op of several, it has the names of all of them, as a combined
all-reduce of gradients and the loss:

    jit(step)/(transpose(jvp())/dot_general:jvp()/reduce_sum)

Then data flow decides: the latest phase if it is computed from the backward pass, else the
earliest. A module without any mark has no phases: nothing shows that it trains.
"""

from __future__ import annotations

import re
from operator import attrgetter

import numpy as np
import numpy.typing as npt

from ....hlo import Module, opcodes, walk
from ....hlo.collective_kinds import is_collective
from ..lines.op_name import split_components
from ..table import Table, per_module, table
from ..waves import in_order
from .edges import (
    BACKWARD,
    FORWARD,
    OPTIMISER,
    PHASES,
    REMATERIALISED,
    UNKNOWN,
    Phases,
    calls_that_hold,
    depends_on,
    into,
    used_as,
)
from .flow import RUNS, held_to_flow
from .optimiser import beside_model, serve_optimiser
from .sums import finish_sums, parts_of, sum_gradients

_IN_TIME = (FORWARD, REMATERIALISED, BACKWARD, OPTIMISER)

__all__ = [
    "BACKWARD", "FORWARD", "OPTIMISER", "PHASES", "REMATERIALISED", "UNKNOWN", "Phases",
    "merged_names", "name_phase", "name_phases", "phases",
]  # fmt: skip

_REMAT = re.compile(r"(?:^|/)rematted_computation(?:/|$)")
# Before what is computed again stands a barrier; a gather of what it lets through has its name.
_BARRIER = re.compile(r"/(?:remat2|checkpoint)$")
_TRANSPOSE = re.compile(r"(?:^|/)(?:\w+\()*transpose\(")
_OPTIMISER = re.compile(
    r"(?:^|/)(?:\w+\()*(?:adam\w*|adafactor|adagrad|sgd|lamb|lion|rmsprop|optim\w*|optax\w*"
    r"|apply_updates|apply_gradients?|apply_grads?|update_params|opt_update)\)*(?:/|$)",
    re.I,
)
# One of these is in every name that the pattern above finds.
_OPTIMISER_WORDS = ("ada", "sgd", "lamb", "lion", "rmsprop", "opt", "apply_", "update_params")
# Values of several sources: one of the forward pass does not make the others so.
_CARRY_SEVERAL = opcodes.LOOPS | {"tuple", "call", *opcodes.BARRIERS}
_XLA_REMAT = re.compile(r"\.remat\d*(?:\.|$)")  # hlo_rematerialization's clones


def name_phases(op_name: str) -> tuple[int, ...]:
    """The phases in the names of a merged op, in order; one for a single name."""
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
    """The phase by one ``op_name`` alone; UNKNOWN for unmarked names and argument names."""
    # A pattern is tried only where its word occurs: names are many, and patterns slow.
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
    """One row per instruction: index into ``PHASES``; all 0 when the module marks none."""
    t = table(module)
    said = [name_phases(n) for n in t.places]
    by_name = np.array([p[0] if len(p) == 1 else UNKNOWN for p in said], np.uint8)
    is_path = np.array(["/" in n for n in t.places], bool)[t.place]
    out = by_name[t.place]
    several = np.array([len(p) > 1 for p in said], bool)[t.place]
    _from_caller(t, out, is_path & ~several)
    out = _held_to_flow(t, out, is_path & ~several)
    if several.any():
        after = depends_on(t, np.isin(out, (REMATERIALISED, BACKWARD)))
        ends = np.array([(p[0], p[-1]) for p in said], np.uint8)[t.place]
        out = np.where(several, np.where(after, ends[:, 1], ends[:, 0]), out).astype(np.uint8)
    _gathered_again(t, out)
    for n, name in enumerate(map(attrgetter("name"), t.instructions)):
        if ".remat" in name and _XLA_REMAT.search(name):
            out[n] = REMATERIALISED
    if not np.isin(out, (FORWARD, BACKWARD, REMATERIALISED)).any():
        out[:] = UNKNOWN
        return out
    named = out != UNKNOWN
    _from_context(t, out, is_path)
    _between(t, out, named, is_path)
    out[~named & _holding_both(t, out)] = UNKNOWN
    sum_gradients(t, out)
    finish_sums(t, out)
    return out


def _gathered_again(t: Table, out: Phases) -> None:
    """Makes collectives at the barrier before a recomputation part of it.

    Not those of a cotangent, which comes from the backward pass and serves nothing recomputed.
    """
    at_barrier = np.array([_BARRIER.search(n) is not None for n in t.places], bool)[t.place]
    at_barrier &= (out == BACKWARD) & t.by_opcode(is_collective, bool)
    if not at_barrier.any():
        return
    through = opcodes.SAME_NUMBERS | opcodes.FUSIONS
    after = depends_on(t, (out == BACKWARD) & ~at_barrier)
    for n in np.flatnonzero(at_barrier).tolist():
        uses = walk.uses(t.instructions[n], through, inside_fusions=True)
        serves = {name_phase(u.instruction.op_name) for u in uses}
        # weights that only cotangents are multiplied with are gathered once
        if REMATERIALISED in serves or (not after[n] and BACKWARD not in serves):
            out[n] = REMATERIALISED


def name_depth(op_name: str) -> tuple[int, bool]:
    """How many derivatives hold an op as their forward pass, and whether one inside them has it
    in its backward pass.

    ``jvp(transpose(jvp()))/mul``, the gradient that a second derivative is taken of, is forward
    of the outer derivative and backward of the inner: 1, True.
    """
    found = _DERIVATIVES.findall(op_name) if "jvp(" in op_name else []
    forward = next((n for n, each in enumerate(found) if each.startswith("t")), len(found))
    return forward, forward < len(found)


_DERIVATIVES = re.compile(r"(?:^|(?<=[/(]))(?:transpose\((?:\w+\()*?jvp|transpose|jvp)\(")


def _held_to_flow(t: Table, out: Phases, is_path: npt.NDArray[np.bool_]) -> Phases:
    """The phases that data flow contradicts replaced, in each derivative by itself."""
    each = [name_depth(n) for n in t.places]
    around = np.array([n for n, _ in each], np.int64)[t.place]
    late = np.array([is_late for _, is_late in each], bool)[t.place]
    inner = around[late].max(initial=0)
    for level in range(inner + 1):
        at_level = out.copy()
        at_level[(around > level) & late & (out != UNKNOWN)] = FORWARD
        if level:
            at_level[around < level + ~late] = UNKNOWN
        outside = is_path & np.isin(at_level, (UNKNOWN, OPTIMISER)) & ~(late & (around < level))
        held = held_to_flow(t, at_level, FORWARD, BACKWARD, outside)
        changed = held != at_level
        out = np.where(changed, held, out).astype(np.uint8)
    return out


def _from_caller(t: Table, out: Phases, free: npt.NDArray[np.bool_]) -> None:
    """Gives unmarked names in a loop or call that is marked itself its phase.

    Some versions of jax write names in a loop's body relative to the body: ``layers/mul`` in a
    loop ``transpose(jvp(model))/while`` belongs to the backward pass.
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
    """Makes unnamed rows no earlier than a gradient they come from, else no later than users.

    ``named`` are the rows whose own name shows a phase, ``is_path`` those that have a name.
    """
    rows, values = t.operands.rows, t.operands.values
    after = depends_on(t, named & (out == BACKWARD))
    free = ~named & ~is_path
    late = rows[named[values] & (out[values] == BACKWARD)]
    late = late[free[late] & (out[late] == FORWARD)]
    out[late] = BACKWARD
    movable = free & ~after
    whole = t.by_opcode(_CARRY_SEVERAL.__contains__, bool)
    for _ in range(64):  # a chain of plumbing is rarely longer
        used = values[(out[rows] == FORWARD) & ~whole[rows]]
        early = used[movable[used] & (out[used] > FORWARD)]
        if not len(early):
            break
        out[early] = FORWARD


def _from_context(t: Table, out: Phases, is_path: npt.NDArray[np.bool_]) -> None:
    """Unmarked rows: after the backward pass optimiser, else by what they serve."""
    caller, roles = t.caller()
    fused = [role == "calls" for role in roles]
    after = depends_on(t, out == BACKWARD)
    # by what it takes: a fusion of a gradient with others' work makes those no later
    fed = np.zeros(len(out), bool)
    fed[t.operands.rows[after[t.operands.values]]] = True
    after |= np.array(_from_callers(t, fed.tobytes(), fused), bool)[t.computation]
    unmarked = out == UNKNOWN
    has_backward = bool((out == BACKWARD).any())
    if has_backward:
        # a loop of whole steps is no optimiser, and what it is given is not the optimiser's alone
        out[unmarked & is_path & after & ~_holding_both(t, out)] = OPTIMISER
        bodies = _unmarked_bodies(t, out)
        told = (is_path | _named_inside(t, out, is_path)) & unmarked & ~after
        told &= ~bodies[t.computation]
        updates = used_as(t, out) == OPTIMISER
        out[serve_optimiser(t, out, told, after, updates)] = OPTIMISER
        parts = parts_of(t, out, OPTIMISER)
        if parts.any():  # a norm that was combined with a sum of the forward pass
            updates |= parts
            out[serve_optimiser(t, out, told, after, updates)] = OPTIMISER
        beside = beside_model(t, out, told, updates)
        inside = ((caller >= 0) & np.array(fused, bool))[t.computation]
        _with_what_they_fuse(t, out, beside & ~inside)
        # in a fusion nothing has users or weights that tell: a frozen model's is no optimiser
        out[beside & inside & (out[caller] == OPTIMISER)[t.computation]] = OPTIMISER
        _as_their_loop(t, out, bodies, after)
        out[unmarked & is_path & (out == UNKNOWN)] = FORWARD
    else:
        out[unmarked & is_path] = FORWARD
    _from_inside(t, out, caller, fused)
    _inherit(t, out)
    # What is still unmarked inside a fusion, a loop or a call gets its phase.
    whole = np.zeros(len(t.first), bool)
    whole[t.computation[out == UNKNOWN]] = True
    around = np.array(_from_callers(t, out.tobytes(), whole.tolist()), np.uint8)
    out[:] = np.where(out == UNKNOWN, around[t.computation], out)


def _unmarked_bodies(t: Table, out: Phases) -> npt.NDArray[np.bool_]:
    """Computations that a loop runs, at any depth, where nothing in the loop is marked."""
    caller = t.caller()[0]
    holds = calls_that_hold(t, out != UNKNOWN)
    loop = t.by_opcode(lambda o: o == "while", bool)
    inside = np.zeros(len(t.first), bool)
    for c in range(len(inside) - 1, -1, -1):  # callers come after what they call
        row = int(caller[c])
        if row >= 0:
            inside[c] = inside[t.computation[row]] or bool(loop[row] and not holds[c])
    return inside


def _as_their_loop(
    t: Table, out: Phases, bodies: npt.NDArray[np.bool_], after: npt.NDArray[np.bool_]
) -> None:
    """Gives what unmarked loops run the phase of the loop: its body has no gradients to tell.

    Layers that write the words which a step learns from are the model, not its optimiser.
    """
    caller = t.caller()[0]
    for c in np.flatnonzero(bodies)[::-1].tolist():
        row = int(caller[c])
        rows = slice(t.first[c], t.first[c] + t.size[c])
        part = out[rows]
        late = out[row] == OPTIMISER or (out[row] == UNKNOWN and after[row])
        part[part == UNKNOWN] = OPTIMISER if late else FORWARD


def _from_callers(t: Table, of_row: bytes, passed_on: list[bool]) -> list[int]:
    """What each computation inherits from its caller, else from the caller's own computation."""
    caller = t.caller()[0]
    rows = np.maximum(caller, 0)
    around = t.computation[rows].tolist() if len(t.computation) else [0] * len(caller)
    out = [0] * len(caller)
    callers = caller.tolist()
    for c in range(len(out) - 1, -1, -1):  # callers come after what they call
        if passed_on[c] and callers[c] >= 0:
            out[c] = of_row[callers[c]] or out[around[c]]
    return out


def _from_inside(t: Table, out: Phases, caller: npt.NDArray[np.int64], fused: list[bool]) -> None:
    """Gives fusions without a name the phase that most of their instructions have.

    One that holds some of both passes and is computed from a gradient is of the backward pass.
    """
    after = depends_on(t, out == BACKWARD)
    fed = np.zeros(len(out), bool)
    fed[t.operands.rows[after[t.operands.values]]] = True
    mine = np.flatnonzero((caller >= 0) & np.array(fused, bool))
    for c in mine[out[caller[mine]] == UNKNOWN].tolist():
        row = int(caller[c])
        if out[row] == UNKNOWN:
            counts = np.bincount(out[t.first[c] : t.first[c] + t.size[c]], minlength=len(PHASES))
            counts[UNKNOWN] = 0
            if counts[BACKWARD] and fed[row] and counts.argmax() == FORWARD:
                out[row] = BACKWARD
            elif counts.any():
                out[row] = int(counts.argmax())


def _holding_both(t: Table, out: Phases) -> npt.NDArray[np.bool_]:
    """Loops and calls that run both passes, such as one over batches: they belong to neither."""
    runs = t.by_opcode(lambda o: o in RUNS, bool)
    both = np.ones(len(out), bool)
    for phase in (FORWARD, BACKWARD):
        inside = calls_that_hold(t, out == phase)
        row = np.zeros(len(out), bool)
        np.logical_or.at(row, t.called.rows, inside[t.called.values])
        both &= row
    return runs & both


def _named_inside(t: Table, phase: Phases, is_path: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """Fusions without a name that hold named rows, none of them of a pass."""
    out = np.zeros(len(is_path), bool)
    holds = np.zeros(len(t.first), bool)
    holds[t.computation[is_path]] = True
    holds[t.computation[np.isin(phase, (FORWARD, BACKWARD, REMATERIALISED))]] = False
    out[t.called.rows[holds[t.called.values]]] = True
    fusion = t.by_opcode(lambda o: o == "fusion", bool)
    return np.asarray(out & fusion & (t.op_name == 0), np.bool_)


def _with_what_they_fuse(t: Table, out: Phases, rows: npt.NDArray[np.bool_]) -> None:
    """Assigns ``rows`` to the optimiser, and what is fused in them."""
    out[rows] = OPTIMISER
    fusion = t.by_opcode(lambda o: o == "fusion", bool)
    for c in t.called.values[(rows & fusion)[t.called.rows]].tolist():
        part = out[t.first[c] : t.first[c] + t.size[c]]
        part[part == UNKNOWN] = OPTIMISER


def _inherit(t: Table, out: Phases) -> None:
    """Rows without any name: later than forward by their operands, else by first user.

    A copy of an activation that only a gradient's product reads makes that no later.
    """
    unknown = out == UNKNOWN
    known = _by_users(t, out, unknown)
    late = unknown & (known == OPTIMISER)
    free = late | (unknown & (known == UNKNOWN))
    phase = bytearray(np.where(free, UNKNOWN, known).astype(np.uint8).tobytes())
    known = np.frombuffer(phase, np.uint8)
    made_from = bytearray([FORWARD]) * len(phase)
    made = np.frombuffer(made_from, np.uint8)
    # users come in order: what they use is settled
    waves, (users, values) = in_order(t, free[t.operands.rows])
    for i, o in waves:
        later = known[o] > FORWARD
        i, o = i[later], o[later]
        np.maximum.at(made, i, known[o])
        known[i] = made[i]
    for u, v in zip(users.tolist(), values.tolist(), strict=True):
        if phase[v] > made_from[u]:
            made_from[u] = phase[u] = phase[v]
    out[:] = _by_users(t, known, late & (known == UNKNOWN))


def _by_users(t: Table, out: Phases, unknown: npt.NDArray[np.bool_]) -> Phases:
    """The phases with those of the first user that has one for unknown rows."""
    phase = bytearray(out.tobytes())
    known = np.frombuffer(phase, np.uint8)
    waves, (users, values) = in_order(t, into(t, unknown), last_first=True)
    for i, o in waves:
        some = known[i] != UNKNOWN
        known[o[some]] = known[i[some]]
    for u, v in zip(users.tolist(), values.tolist(), strict=True):
        if phase[u]:
            phase[v] = phase[u]
    return known
