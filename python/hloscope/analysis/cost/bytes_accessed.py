"""Bytes each instruction reads and writes, fusions counted at their boundary.

As ``HloCostAnalysis`` counts, with tile padding: a fusion accesses what it actually reads of
its operands, and its results, but not the values inside it.

    slice, dynamic-slice, gather    2 · result (+ indices), not the whole operand
    dynamic-update-slice            2 · update (+ indices): the rest stays in place
    scatter                         3 · updates + indices
    slice-start, dynamic-slice-start  what is read, plus the write at the destination
    tuple, get-tuple-element, bitcast, parameter, constant: none

Differences from XLA: tuple index tables are not counted, results that are tuples count in
full, an asynchronous pair counts at its start only, a gather in a fusion reads the rows that it
takes, as one alone does, a fusion whose result is a scatter updates its operand in place as a
scatter alone does, and custom calls that only allocate, mark or rename access nothing.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from ...hlo import Instruction, Module, Shape
from ...hlo.collective_kinds import KINDS
from ...hlo.opcodes import BARRIERS, CONTROL, Effect, that
from ..base.collectives.async_opcodes import produced, wrapped
from ..base.memory_spaces import memory_space
from ..base.memory_tiling import storage_bytes
from ..base.table import Table, table
from ..flops.calls import accesses_nothing, author_estimate
from .assumptions import IMMEDIATE_ELEMENTS

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

# No access of their own: names of values that are there already, and containers.
NOTHING = (
    that(Effect.BUNDLES, Effect.ORDERS, Effect.IDENTIFIES)
    | CONTROL
    | {"parameter", "constant", "bitcast", "domain", "add-dependency", "get-dimension-size"}
    | {"copy-done", "send-done", "recv-done"}
    | {*BARRIERS, *(f"{k.name}-done" for k in KINDS.values() if k.is_async)}
)
_STARTS = frozenset(
    {"copy-start", "send", "recv"} | {f"{k.name}-start" for k in KINDS.values() if k.is_async}
)


def bytes_accessed(
    module: Module, executed: Bools, *, only: tuple[int, ...] | None = None
) -> Floats:
    """Bytes of one execution of each instruction; 0 outside the ``executed`` computations.

    ``only`` gives the memory spaces to count: values that the layout puts elsewhere, such as into
    TPU's VMEM, S(1), cost no bandwidth of main memory.
    """
    t = table(module)

    def of_shape(shape: Shape) -> int:
        if only is None:
            return storage_bytes(shape)
        return sum(storage_bytes(s) for s in shape.leaves() if memory_space(s) in only)

    size = np.array([float(of_shape(s)) for s in t.shapes])[t.shape]
    out = np.zeros(len(t.instructions))
    reads = np.zeros(len(t.instructions))
    rows = t.operands.rows
    np.add.at(reads, rows, size[t.operands.values])
    plain = executed[t.computation] & ~t.by_opcode(_moves_nothing, bool)
    out[plain] = (size + reads)[plain]
    special = t.by_opcode(lambda o: o in _RULES or o in _STARTS or o == "custom-call", bool)
    for n in np.flatnonzero(special & plain):
        i = t.instructions[n]
        if i.opcode == "copy-start":
            out[n] = _copied(i, of_shape)
        elif only is not None and i.opcode in _SLICES and i.operands:
            # one end may be elsewhere
            out[n] = size[n] + (storage_bytes(i.shape) if of_shape(i.operands[0].shape) else 0)
        else:
            out[n] = _special(i, size)
    started = t.by_opcode(lambda o: wrapped(o) is not None and o not in NOTHING, bool)
    for n in np.flatnonzero(started & plain):
        out[n] = _started(t.instructions[n], of_shape)
    _fusions(t, size, out, plain)
    return out


def _moves_nothing(opcode: str) -> bool:
    inside = wrapped(opcode)
    return opcode in NOTHING or (inside is not None and inside[1] != "start")


def _started(i: Instruction, of_shape: Callable[[Shape], int]) -> float:
    """Bytes of ``slice-start`` and the like: the read, plus the write at the destination."""
    result = produced(i)
    written = of_shape(result)
    if wrapped(i.opcode) in (("slice", "start"), ("dynamic-slice", "start")) and i.operands:
        source = i.operands[0].shape
        read = storage_bytes(result) if of_shape(source) else 0
        return float(read + written)
    if wrapped(i.opcode) == ("dynamic-update-slice", "start") and len(i.operands) > 1:
        update = i.operands[1].shape  # the rest stays in place
        return float(of_shape(update) + (storage_bytes(update) if written else 0))
    return float(sum(of_shape(o.shape) for o in i.operands) + written)


_SLICES = frozenset({"slice", "dynamic-slice", "gather"})


def _copied(i: Instruction, of_shape: Callable[[Shape], int]) -> float:
    """Bytes of a ``copy-start``: the read and the write, each if it is in memory that counts."""
    target = i.shape.tuple_shapes[0] if i.shape.is_tuple else i.shape
    return float(of_shape(target) + sum(of_shape(o.shape) for o in i.operands))


def _special(i: Instruction, size: Floats) -> float:
    if i.opcode in _STARTS:
        # the result of a start repeats its operands next to what is produced
        reads = sum(size[o.index] for o in i.operands)
        return float(max(size[i.index], 2 * reads if i.opcode in _SAME_SIZE else reads))
    if i.opcode == "custom-call":
        if accesses_nothing(i.custom_call_target or ""):
            return 0.0
        estimate = author_estimate(i)
        sized = float(size[i.index] + sum(size[o.index] for o in i.operands))
        if estimate is None or not estimate["bytes_accessed"]:
            return sized
        declared = estimate["bytes_accessed"]
        # what the author counts may be outside the requested memory
        elsewhere = any(a.shape.byte_size and not size[a.index] for a in (i, *i.operands))
        return min(declared, sized) if elsewhere else declared
    try:
        return float(_RULES[i.opcode](i, size))
    except IndexError:  # operands cut off
        return float("nan")


_SAME_SIZE = frozenset(
    {"copy-start"} | {f"{k.name}-start" for k in KINDS.values() if k.start_is_value}
)


def _operand_bytes(i: Instruction, n: int, size: Floats) -> float:
    return float(size[i.operands[n].index])


def _scatter(i: Instruction, size: Floats) -> float:
    n = len(i.operands) // 2
    return 3 * sum(_operand_bytes(i, n + 1 + k, size) for k in range(n)) + _operand_bytes(
        i, n, size
    )


def _transpose(i: Instruction, size: Floats) -> float:
    return 0.0 if _is_bitcast(i) else float(size[i.index]) + _operand_bytes(i, 0, size)


def _is_bitcast(i: Instruction) -> bool:
    """Whether a transpose only renames dimensions: the layout undoes the permutation."""
    here, there = i.shape.layout, i.operands[0].shape.layout
    raw = i.attribute("dimensions") or ""
    order = [int(d) for d in raw.strip("{}").split(",") if d.strip().isdecimal()]
    if here is None or there is None or len(order) != i.shape.rank:
        return False
    return [order[d] for d in here.minor_to_major] == list(there.minor_to_major)


_RULES = {
    "slice": lambda i, s: 2 * s[i.index],
    "dynamic-slice": lambda i, s: 2 * s[i.index] + _operand_bytes(i, 1, s),
    "dynamic-update-slice": lambda i, s: (
        _operand_bytes(i, 1, s) + _stored(i.operands[1], i, s) + _operand_bytes(i, 2, s)
    ),
    "gather": lambda i, s: 2 * s[i.index] + _operand_bytes(i, 1, s),
    "scatter": _scatter,
    "transpose": _transpose,
    "triangular-solve": lambda i, s: (
        s[i.index] + _operand_bytes(i, 0, s) / 2 + _operand_bytes(i, 1, s)
    ),
    "cholesky": lambda i, s: _operand_bytes(i, 0, s),
    "infeed": lambda i, s: s[i.index],
    "outfeed": lambda i, s: sum(s[o.index] for o in i.operands),
}


def _fusions(t: Table, size: Floats, out: Floats, plain: Bools) -> None:
    fusions = [n for n in t.where("fusion") if t.called.counts[n]]
    if not fusions:
        return
    inner = np.zeros(len(t.first), bool)
    body = {n: int(t.called.values[t.called.offsets[n]]) for n in fusions}
    inner[list(body.values())] = True
    reads = fusion_reads(t, size, body)
    parameters = t.by_opcode(lambda o: o == "parameter", bool)
    constants = t.by_opcode(lambda o: o == "constant", bool) & inner[t.computation]
    elements = np.array([s.elements for s in t.shapes])[t.shape]
    constants &= elements > IMMEDIATE_ELEMENTS
    touched = np.where(parameters, reads, 0.0) + np.where(constants, size, 0.0)
    per_computation = np.bincount(t.computation, touched, len(t.first))
    for n in fusions:
        if plain[n]:
            computation = t.instructions[n].module.computations[body[n]]
            root = computation.root
            whole = float(size[n])
            # at most the part of the fusion's own result in the memory that counts
            written = min(whole, _written(root, size)) if root is not None else whole
            # the part that a must-alias update leaves in place is not written either
            out[n] = per_computation[body[n]] + written


def _written(root: Instruction, size: Floats) -> float:
    if root.opcode == "dynamic-update-slice" and len(root.operands) > 1:
        return _stored(root.operands[1], root, size)
    if root.opcode == "scatter":
        return sum(_stored(u, root, size) for u in scatter_updates(root))
    if root.opcode == "tuple":
        return sum(_written(o, size) for o in root.operands)
    return float(size[root.index])


def _stored(update: Instruction, into: Instruction, size: Floats) -> float:
    """Bytes that an update writes, wherever it is itself: 0 into memory that does not count."""
    return float(storage_bytes(update.shape)) if size[into.index] else 0.0


def scatter_updates(i: Instruction) -> tuple[Instruction, ...]:
    """The last of the three kinds of operands of a scatter: n arrays, indices, n updates."""
    return i.operands[len(i.operands) // 2 + 1 :]


def fusion_reads(t: Table, size: Floats, body: dict[int, int]) -> Floats:
    """Bytes read of each fused parameter (``FusionParameterReadBytes``), 0 elsewhere.

    Slices read what they return, and so do gathers, at most all of an array; one that is updated in
    place is not read, and one that is scattered into only where it is updated; broadcasts and
    reshapes read it each; all other users share one read. Users of what only renames it or gives it
    other tiles are its users. ``body`` maps fusions to computations.
    """
    opcode = t.by_opcode(lambda o: _KIND.get(o, _TRIVIAL), np.int64)
    is_parameter = t.by_opcode(lambda o: o == "parameter", bool)
    used = t.operands.values
    user = t.operands.rows
    position = np.arange(len(used)) - t.operands.offsets[user]
    source = _sources(t, body, is_parameter)
    renames = (source >= 0) & ~is_parameter
    edge = (source[used] >= 0) & ~renames[user]
    used, user, position = source[used[edge]], user[edge], position[edge]
    # one entry per edge from a parameter to an operand of a user
    kind = opcode[user]
    sliced = (kind == _SLICE) | ((kind == _DYNAMIC_SLICE) & (position == 0))
    in_place = (kind == _UPDATE) & (position == 0)
    arrays = (t.operands.counts[user] - 1) // 2  # of a scatter
    scattered = (kind == _SCATTER) & (position < arrays) & _is_result(t)[user]
    gathered = (kind == _GATHER) & (position == 0)
    again = kind == _EACH
    nested = kind == _FUSION
    reads = np.zeros(len(size))
    np.add.at(reads, used[sliced], size[user[sliced]])
    np.add.at(reads, used[again], size[used[again]])
    np.add.at(reads, used[gathered], size[user[gathered]])
    rows = used[gathered]
    reads[rows] = np.minimum(reads[rows], size[rows])  # some of them more than once
    updates = t.operands.offsets[user] + arrays + 1 + position
    np.add.at(reads, used[scattered], size[t.operands.values[updates[scattered]]])
    shared = np.zeros(len(size), bool)
    shared[used[~(sliced | in_place | scattered | gathered | again | nested)]] = True
    roots = t.roots[t.roots >= 0]
    shared[source[roots[renames[roots]]]] = True
    reads[shared] += size[shared]
    reads[size == 0] = 0.0  # slices of a parameter that is elsewhere cost nothing here either
    _nested(t, body, reads, list(zip(used[nested], user[nested], position[nested], strict=True)))
    return reads


def _sources(t: Table, body: dict[int, int], is_parameter: Bools) -> npt.NDArray[np.int64]:
    """The parameter that a value inside a fusion is, as it was given; -1 for all others.

    XLA:TPU gives a stack of weights other tiles by a fusion in the memory of its operand, of which
    a trip of a loop then takes its slice: nothing but the slice is read.
    """
    source = np.where(is_parameter, np.arange(len(is_parameter)), -1)
    fused = np.zeros(len(t.first), bool)
    fused[list(body.values())] = True
    same = fused[t.computation] & t.by_opcode(lambda o: o in ("bitcast", "fusion"), bool)
    for n in np.flatnonzero(same).tolist():  # operands come first
        i = t.instructions[n]
        if i.operands and (i.opcode == "bitcast" or _is_in_place(i)):
            source[n] = source[i.operands[0].index]
    return source


def _is_in_place(i: Instruction) -> bool:
    """Whether a fusion copies its only operand, in the memory of which its result is."""
    called = i.called_computations
    root = called[0].root if called else None
    return (
        len(i.operands) == 1
        and i.attribute("output_to_operand_aliasing") is not None
        and root is not None
        and root.opcode == "copy"
        and root.operands[0].opcode == "parameter"
    )


_TRIVIAL, _SLICE, _DYNAMIC_SLICE, _UPDATE, _SCATTER, _EACH, _FUSION, _GATHER = range(8)
_KIND = {
    "slice": _SLICE,
    "dynamic-slice": _DYNAMIC_SLICE,
    "dynamic-update-slice": _UPDATE,
    "scatter": _SCATTER,
    "broadcast": _EACH,
    "reshape": _EACH,
    "fusion": _FUSION,
    "gather": _GATHER,
}


def _is_result(t: Table) -> Bools:
    """Whether an instruction is the result of its computation, or an element of it."""
    out = np.zeros(len(t.instructions), bool)
    roots = t.roots[t.roots >= 0]
    out[roots] = True
    for n in roots[t.by_opcode(lambda o: o == "tuple", bool)[roots]].tolist():
        out[t.operands.values[t.operands.offsets[n] : t.operands.offsets[n + 1]]] = True
    return out


def _nested(
    t: Table, body: dict[int, int], reads: Floats, edges: list[tuple[int, int, int]]
) -> None:
    """Add what fusions inside fusions read, innermost first."""
    computations = t.instructions[0].module.computations if t.instructions else ()
    by_depth: dict[int, int] = {}

    def depth(computation: int) -> int:
        if computation not in by_depth:
            by_depth[computation] = 0
            inside = [
                body[i.index]
                for i in computations[computation].instructions
                if i.opcode == "fusion" and i.index in body
            ]
            by_depth[computation] = 1 + max((depth(c) for c in inside), default=0)
        return by_depth[computation]

    for parameter, fusion, position in sorted(edges, key=lambda e: depth(int(t.computation[e[0]]))):
        callee = computations[body[int(fusion)]] if int(fusion) in body else None
        parameters = callee.parameters if callee is not None else ()
        if position < len(parameters):
            reads[parameter] += reads[parameters[position].index]
