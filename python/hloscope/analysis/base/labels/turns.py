"""What a loop does around each turn: takes this turn's part of its arrays, counts, keeps results.

    params['w'] ── dynamic-slice[i] ── dot ── tanh ── dynamic-update-slice[i] ── result
                        taken                              kept
    i ── add 1 ── result
         counted

``jax.lax.scan`` writes these for everybody; nobody wrote them into the body. What is taken is a
value that nothing computed, like a parameter; what is kept is an output of what it was made from.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ....hlo import opcodes
from ..table import Table, table

if TYPE_CHECKING:
    from ....hlo import Module

Mask = NDArray[np.bool_]

_PASSES = opcodes.SAME_ORDER | opcodes.BUNDLES
_WRITES = opcodes.with_halves("dynamic-update-slice")
_OF_AN_INDEX = opcodes.ELEMENTWISE | opcodes.SAME_NUMBERS | {"select"}
_INDEX_TYPES = frozenset(("s32", "s64", "pred"))
# More in a row than any slice is written with: pieces of an index, or of an array.
_ROUNDS = 8
# A fusion with more results, and what forwards them, is not looked through.
_RESULTS = 64


@dataclass(frozen=True)
class Turns:
    """One row per instruction."""

    taken: Mask  # this turn's part of an array that the loop is given, and indices into it
    kept: Mask  # results of this turn, written into the arrays that the loop returns


def turns(module: Module) -> Turns:
    """The instructions of loop bodies that only serve the loop itself."""
    t = table(module)
    n = len(t.instructions)
    caller, roles = t.caller()
    is_loop = t.by_opcode(lambda o: o == "while", bool)
    bodies = [
        c
        for c, (row, role) in enumerate(zip(caller.tolist(), roles, strict=True))
        if role == "body" and row >= 0 and is_loop[row]
    ]
    if not bodies:
        return Turns(np.zeros(n, bool), np.zeros(n, bool))
    return _TurnFinder(t, np.isin(t.computation, bodies)).turns()


class _TurnFinder:
    def __init__(self, t: Table, inside: Mask) -> None:
        self.t = t
        self.inside = inside
        self.rows, self.values = t.operands.rows, t.operands.values
        self.fusion = t.by_opcode(lambda o: o == "fusion", bool)
        scalar_index = np.array(
            [s.is_array and s.rank == 0 and s.element_type in _INDEX_TYPES for s in t.shapes], bool
        )
        self.index_shaped = scalar_index[t.shape]
        size = [float(s.elements) if s.is_array else np.inf for s in t.shapes]
        self.elements = np.array(size, np.float64)[t.shape]
        first = np.full(len(inside), -1.0)
        some = t.operands.counts > 0
        first[some] = self.elements[self.values[t.operands.offsets[:-1][some]]]
        self.unit_reduce = self._is(opcodes.REDUCTIONS) & (self.elements == first)
        self.literal = t.by_opcode(opcodes.LITERALS.__contains__, bool)
        self.root = np.zeros(len(inside), bool)
        self.root[t.roots[t.roots >= 0]] = True

    def turns(self) -> Turns:
        given = self._spread(self.inside & self._is({"parameter"}), self.inside & self._is(_PASSES))
        indices = self.inside & self.index_shaped & (self._all_inside(_OF_AN_INDEX) | self.literal)
        index = self._spread(given | (self.inside & self.literal), indices) & indices & ~given
        parts = self.inside & self._all_inside(opcodes.PART_OF_ONE | opcodes.LITERALS)
        parts &= self._smaller_than_largest_operand()
        taken = parts & self._made_of(given | index | self.literal)
        return Turns((taken | index) & ~self.root & ~self.literal, self._kept(given))

    def _is(self, names: frozenset[str] | set[str]) -> Mask:
        return np.asarray(self.t.by_opcode(names.__contains__, bool))

    def _made_of(self, sources: Mask) -> Mask:
        """Rows with operands, all of which are among ``sources``."""
        n = len(sources)
        others = np.bincount(self.rows[~sources[self.values]], minlength=n)
        found: Mask = (others == 0) & (self.t.operands.counts > 0)
        return found

    def _spread(self, sources: Mask, through: Mask) -> Mask:
        """``sources``, and what ``through`` instructions make of them alone."""
        out = sources
        for _ in range(_ROUNDS):
            more = out | (through & self._made_of(out))
            if (more == out).all():
                break
            out = more
        return out

    def _all_inside(self, names: frozenset[str]) -> Mask:
        """Whether an instruction, or all that a fusion holds, is of these opcodes.

        In a fusion, arithmetic on indices does not count, nor does a sum over dimensions of size
        1, which is how XLA:TPU writes a reshape.
        """
        t = self.t
        fine = self._is(names | {"parameter"}) | self.unit_reduce
        fine |= self.index_shaped & self._is(_OF_AN_INDEX | opcodes.LITERALS)
        caller, _ = t.caller()
        other = np.bincount(t.computation[~fine], minlength=len(t.first)) > 0
        out = self._is(names)
        out[self.fusion] = True
        out[caller[other & (caller >= 0)]] = False
        return out

    def _smaller_than_largest_operand(self) -> Mask:
        largest = np.zeros(len(self.inside))
        np.maximum.at(largest, self.rows, self.elements[self.values])
        return self.elements < largest

    def _kept(self, given: Mask) -> Mask:
        """Writes of this turn's results, which only the result of the body uses.

        One that holds a product or a sum over elements stays: it is what the turn computes.
        """
        t = self.t
        kept = self._for_the_result() & (self._is(_WRITES) | (self.fusion & self._only_writes()))
        kept &= self._all_inside(
            opcodes.MOVES | opcodes.ELEMENTWISE | opcodes.GIVEN | {"select", "tuple"}
        )
        into = np.zeros(len(given), bool)  # an operand is the array that it writes into
        into[self.rows[given[self.values]]] = True
        return kept & into & (t.operands.counts > 1)

    def _for_the_result(self) -> Mask:
        """What ends in the result of a body and nowhere else, through tuples perhaps."""
        n = len(self.inside)
        ends = self.inside & self.root & self._is({"tuple"})
        passes = self.inside & self._is(_PASSES)
        out = np.zeros(n, bool)
        for _ in range(_ROUNDS):
            others = np.bincount(self.values[~ends[self.rows]], minlength=n) > 0
            used = np.bincount(self.values, minlength=n) > 0
            out = self.inside & used & ~others
            if not (out & passes & ~ends).any():
                break
            ends = ends | (out & passes)
        return out

    def _only_writes(self) -> Mask:
        """Fusions in loops all of whose results are arrays that they write into."""
        t = self.t
        out = np.zeros(len(self.inside), bool)
        # XLA:CPU writes bf16 as f32, with a conversion of the whole array before and after
        write, passes = self._is(_WRITES), self._is(_PASSES | opcodes.SAME_SHAPE)
        caller, _ = t.caller()
        inside = (caller >= 0) & (t.roots >= 0) & self.fusion[caller] & self.inside[caller]
        for c in np.flatnonzero(inside).tolist():
            waiting, written = [int(t.roots[c])], True
            for _ in range(_RESULTS):
                if not waiting or not written:
                    break
                at = waiting.pop()
                written = bool(write[at] or passes[at])
                if not write[at]:
                    waiting += t.operands.values[
                        t.operands.offsets[at] : t.operands.offsets[at + 1]
                    ].tolist()
            out[int(caller[c])] = written and not waiting
        return out
