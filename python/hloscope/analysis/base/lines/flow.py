"""Where values go, as edges between instructions that pass through tuples, loops and fusions.

copy.5 → tuple → while → (body) get-tuple-element 3 → dot.9      one edge: copy.5 → gte
dot.2 → fusion(…, calls=%c) → (c) parameter(0) → bitcast          dot.2 → parameter(0) → bitcast
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ....hlo import Computation, Instruction, Module, opcodes
from ....hlo.collective_kinds import is_collective
from ..table import Ints, Table, per_module, per_table, table

# Of rounding, a user says where; its line tells more than that of what is rounded.
_MOVES = opcodes.MOVES - opcodes.UPDATES - {"reduce-precision"}
_STACK = "dynamic-update-slice"
_SILENT = opcodes.GIVEN | opcodes.BUNDLES
_INTO = opcodes.DIRECT_CALLS | {"map"}  # operand k is parameter k
_LOOKED_THROUGH = ("while", "conditional", *opcodes.BARRIERS)
_ROUNDS = 256  # at most this many instructions without a line between one and its source


@dataclass(frozen=True, eq=False)
class Flow:
    """Edges from the producer of a value to its users, nearest in the program first."""

    src: Ints
    dst: Ints
    size: int

    def users(self, row: int) -> list[int]:
        """The users of an instruction's value."""
        order, at = self._by_src
        return list(self.dst[order[at[row] : at[row + 1]]].tolist())

    def makers(self, row: int) -> list[int]:
        """The producers of what an instruction uses."""
        order, at = self._by_dst
        return list(self.src[order[at[row] : at[row + 1]]].tolist())

    def of_arrays(self, t: Table) -> Flow:
        """Without edges from scalars to arrays: offsets of reads and writes, padding values."""
        elements = np.array([s.elements if s.is_array else 0 for s in t.shapes] or [0])[t.shape]
        keep = (elements[self.src] != 1) | (elements[self.dst] <= 1)
        return Flow(self.src[keep], self.dst[keep], self.size)

    @cached_property
    def _by_src(self) -> tuple[Ints, Ints]:
        return _sorted(self.src, self.size)

    @cached_property
    def _by_dst(self) -> tuple[Ints, Ints]:
        return _sorted(self.dst, self.size)


def _sorted(keys: Ints, size: int) -> tuple[Ints, Ints]:
    order = np.argsort(keys, kind="stable")
    return order, np.searchsorted(keys[order], np.arange(size + 1))


@per_table
def is_move(t: Table) -> NDArray[np.bool_]:
    """Whether rows are copies, casts, reshapes, slices, or fusions of nothing else."""
    return _with_fusions(t, t.by_opcode(lambda o: o in _MOVES, bool))


def stacks(t: Table) -> NDArray[np.bool_]:
    """Whether rows write into a larger array, fusions of that and of moves included."""
    return _with_fusions(t, t.by_opcode(lambda o: o in _MOVES or o == _STACK, bool)) & ~is_move(t)


def _with_fusions(t: Table, move: NDArray[np.bool_]) -> NDArray[np.bool_]:
    quiet = move | t.by_opcode(lambda o: o in _SILENT, bool)
    only = t.reduce_by_computation(np.minimum, quiet.astype(np.int8), 0) > 0
    fusion = t.by_opcode(lambda o: o == "fusion", bool)
    rows = t.called.rows
    of_moves = np.zeros(len(move), bool)
    of_moves[rows[only[t.called.values]]] = True
    return np.asarray(move | (of_moves & fusion))


def weights(t: Table) -> NDArray[np.float64]:
    """How heavy an instruction is, to choose between the parts of a fusion: about its FLOPs."""
    elements = np.array([float(s.elements) for s in t.shapes] or [0.0])[t.shape]
    out = np.array(elements)
    counts, offsets, values = t.operands.counts, t.operands.offsets, t.operands.values
    taking = np.flatnonzero(counts > 0)
    reducing = taking[t.by_opcode(lambda o: o.startswith("reduce"), bool)[taking]]
    out[reducing] = np.maximum(out[reducing], elements[values[offsets[reducing]]])
    rows = t.where("dot", "convolution", "ragged-dot")
    rows = rows[counts[rows] > 1]
    # m·k, k·n and m·n multiply to (m·k·n)²
    lhs, rhs = elements[values[offsets[rows]]], elements[values[offsets[rows] + 1]]
    out[rows] = 2 * np.sqrt(lhs) * np.sqrt(rhs) * np.sqrt(elements[rows])
    light = is_move(t) | t.by_opcode(lambda o: o in _SILENT, bool)
    out[light] *= 1e-6
    return out


@per_module
def flow(module: Module) -> Flow:
    """The edges of a module."""
    t = table(module)
    src, dst = t.operands.values, t.operands.rows
    position = np.arange(len(dst)) - t.operands.offsets[dst]
    into, inner = _into_called(module, t, src, dst, position)
    through = t.by_opcode(lambda o: o == "tuple" or o in _LOOKED_THROUGH, bool)[dst]
    of_loop = t.by_opcode(lambda o: o in _LOOKED_THROUGH, bool)[src]  # its elements tell more
    stay, rest = ~into & ~through & ~of_loop, ~into & ~through & of_loop
    more = _elements(module, t)
    out, back = _results(module, t)
    array, taken = _combined(t)
    return Flow(
        np.concatenate((array, src[stay], src[into], more[0], out, src[rest])),
        np.concatenate((taken, dst[stay], inner, more[1], back, dst[rest])),
        len(t.opcode),
    )


def _into_called(
    module: Module, t: Table, src: Ints, dst: Ints, position: Ints
) -> tuple[NDArray[np.bool_], Ints]:
    """Which operand edges go into a fusion or call, and its parameter there."""
    once = t.by_opcode(lambda o: o in _INTO, bool) & (t.called.counts == 1)
    into = once[dst]
    rows = t.where("parameter")
    if not into.any() or not len(rows):
        return np.zeros(len(dst), bool), np.zeros(0, np.int64)
    numbers = [t.instructions[r].parameter_number for r in rows.tolist()]
    number = np.array([-1 if n is None else n for n in numbers], np.int64)
    wide = int(max(number.max(), position.max())) + 1
    keys = t.computation[rows] * wide + number
    order = np.argsort(keys, kind="stable")
    keys = keys[order]
    callee = np.full(len(t.opcode), -1, np.int64)
    callee[t.called.rows] = t.called.values
    wanted = callee[dst] * wide + position
    at = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    into &= keys[at] == wanted
    return into, rows[order[at[into]]]


def _elements(module: Module, t: Table) -> tuple[Ints, Ints]:
    """Edges through tuples into loops, branches and barriers, element by element."""
    pairs: list[tuple[int, int]] = []
    for row in t.where(*_LOOKED_THROUGH).tolist():
        i = t.instructions[row]
        if i.opcode == "while":
            for role, c in i.called:
                if role == "body":
                    _pass(i.operands, c.parameters[:1], pairs)
                    _out(c, i, pairs)
                    if c.root is not None:
                        _pass((c.root,), c.parameters, pairs)
        elif i.opcode == "conditional":
            called = i.called_computations
            for value, c in zip(i.operands[1:], called, strict=False):
                _pass((value,), c.parameters, pairs)
            for c in called:
                _out(c, i, pairs)
        else:
            _pass(i.operands, (i,), pairs)
    for row in t.where("tuple").tolist():
        i = t.instructions[row]
        handled = ("tuple", *_LOOKED_THROUGH, *_INTO)
        rest = [u for u in i.users if u.opcode not in handled]
        taken = [u for u in rest if u.opcode != "get-tuple-element"]
        if len(taken) < len(rest):
            _pass((i,), (i,), pairs)
        pairs += [(o.index, u.index) for u in taken for o in i.operands]
        for u in i.users:
            if u.opcode in _INTO and len(u.called_computations) == 1:
                k = u.operands.index(i)
                _pass((i,), u.called_computations[0].parameters[k:], pairs)
    columns = np.array(pairs, np.int64).reshape(-1, 2)
    return columns[:, 0], columns[:, 1]


def _pass(
    given: tuple[Instruction, ...], to: tuple[Instruction, ...], pairs: list[tuple[int, int]]
) -> None:
    """Adds edges from a value, or a tuple's elements, to what takes it, or its elements."""
    for value, there in zip(given, to, strict=False):
        if value.opcode != "tuple":
            pairs.append((value.index, there.index))
            continue
        for u in there.users:
            raw = u.attribute("index") if u.opcode == "get-tuple-element" else None
            if raw is not None and raw.isdecimal() and int(raw) < len(value.operands):
                pairs.append((value.operands[int(raw)].index, u.index))


def _out(called: Computation, caller: Instruction, pairs: list[tuple[int, int]]) -> None:
    if called.root is not None:
        _pass((called.root,), (caller,), pairs)


def _combined(t: Table) -> tuple[Ints, Ints]:
    """Edges past a combined collective, array by array, as each belongs to another op."""
    pairs: list[tuple[int, int]] = []
    for row in t.where(*(o for o in t.opcodes if is_collective(o))).tolist():
        i = t.instructions[row]
        if i.shape.is_tuple and len(i.operands) == len(i.shape.tuple_shapes) > 1:
            for u in i.users:
                raw = u.attribute("index") if u.opcode == "get-tuple-element" else None
                if raw is not None and raw.isdecimal() and int(raw) < len(i.operands):
                    pairs.append((i.operands[int(raw)].index, u.index))
    columns = np.array(pairs, np.int64).reshape(-1, 2)
    return columns[:, 0], columns[:, 1]


def _results(module: Module, t: Table) -> tuple[Ints, Ints]:
    """Edges from what a fusion or call computes to itself."""
    rows, values = t.called.rows, t.called.values
    once = t.by_opcode(lambda o: o in _INTO, bool) & (t.called.counts == 1)
    root = np.array([-1 if c.root is None else c.root.index for c in module.computations], np.int64)
    use = once[rows] & (root[values] >= 0)
    out, back = root[values[use]], rows[use]
    pairs: list[tuple[int, int]] = []
    of_tuples = t.by_opcode(lambda o: o == "tuple", bool)[out]
    for r, caller in zip(out[of_tuples].tolist(), back[of_tuples].tolist(), strict=True):
        fusion = t.instructions[caller]
        _pass((t.instructions[r],), (fusion,), pairs)
        # What is taken element by element has its own edges: a transfer that a fusion only passes
        # on does not belong to what the fusion computes.
        if not fusion.users or any(u.opcode != "get-tuple-element" for u in fusion.users):
            pairs += [(o.index, caller) for o in t.instructions[r].operands]
    more = np.array(pairs, np.int64).reshape(-1, 2)
    return np.concatenate((out, more[:, 0])), np.concatenate((back, more[:, 1]))


def nearest(src: Ints, dst: Ints, known: NDArray[np.bool_]) -> Ints:
    """For each row that is not known, the nearest known one along the edges; -1 for none."""
    found = np.full(len(known), -1, np.int64)
    lost = ~known[src]
    src, dst = src[lost], dst[lost]
    at = np.where(known, np.arange(len(known)), -1)
    for _ in range(_ROUNDS):
        hit = at[dst] >= 0
        if not hit.any():
            break
        # Of several, the first in order: written last.
        some, from_ = src[hit][::-1], at[dst[hit]][::-1]
        found[some] = from_
        at[some] = found[some]
        rest = at[src] < 0
        src, dst = src[rest], dst[rest]
    return found
