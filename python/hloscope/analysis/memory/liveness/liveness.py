"""Buffers with their live ranges, and the bytes that are live at each point of the schedule."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from ....hlo import Module, Shape
from ...cost.assumptions import IMMEDIATE_ELEMENTS
from .values import ARGUMENT, CONSTANT, OUTPUT, TEMP, Values

Ints = npt.NDArray[np.int64]
KINDS = ("argument", "output", "temp", "constant")


@dataclass(frozen=True, eq=False)
class Liveness:
    """Buffers with live ranges over program points; arrays are by buffer unless noted.

    ``start`` and ``end`` are inclusive points. ``kind`` is ARGUMENT, OUTPUT, TEMP or CONSTANT;
    an argument that is donated to an output is an ARGUMENT. ``shared[b]`` is the buffer whose
    place b takes over at its start, or -1; ``home[b]`` is the output or donated argument in
    whose buffer temp b is, or -1. ``schedule[t]`` is the instruction at point t.
    """

    module: Module
    values: Values
    schedule: Ints
    buffer_of: Ints  # by value node
    defined_by: Ints  # instruction that makes its first value
    leaf: Ints  # index of the leaf in that instruction's shape
    size: Ints
    space: Ints
    start: Ints
    end: Ints
    ranges: Ints  # rows (buffer, start, end) in order: several if its place is free in between
    kind: Ints
    shared: Ints
    home: Ints
    definitions: Ints  # how many instructions make a value in it
    has_several: npt.NDArray[np.bool_]  # several definitions, or result of a loop or branches

    def shape_of(self, buffer: int) -> Shape:
        """The shape of the first value in a buffer."""
        node = self.values.first[int(self.defined_by[buffer])] + int(self.leaf[buffer])
        return self.values.shapes[node]

    @cached_property
    def gaps(self) -> Ints:
        """Rows (buffer, first point, last point) where a temporary's place is free in between."""
        rows = self.ranges
        inside = np.flatnonzero((rows[1:, 0] == rows[:-1, 0]) & (self.kind[rows[1:, 0]] == TEMP))
        return np.stack(
            [rows[inside, 0], rows[inside, 2] + 1, rows[inside + 1, 1] - 1], axis=1
        ).reshape(-1, 3)

    @cached_property
    def counted_end(self) -> Ints:
        """``end``, or one point earlier if another buffer takes over the place at ``end``."""
        end = self.end.copy()
        taken = self.shared[self.shared >= 0]
        end[taken] -= 1
        return end

    @cached_property
    def reserved(self) -> Ints:
        """Rows (buffer, first point, last point) of memory held: ``ranges`` without points at which
        another buffer takes over; arguments and outputs throughout."""
        whole = (self.kind == ARGUMENT) | (self.kind == OUTPUT)
        rows = self.ranges[~whole[self.ranges[:, 0]]].copy()
        np.minimum(rows[:, 2], self.counted_end[rows[:, 0]], out=rows[:, 2])
        held = np.flatnonzero(whole)
        last = np.full(len(held), len(self.schedule) - 1)
        rows = np.vstack([rows, np.stack([held, np.zeros_like(last), last], axis=1)])
        found: Ints = rows[(rows[:, 2] >= rows[:, 1]) & self.is_counted[rows[:, 0]]]
        return found

    @cached_property
    def is_counted(self) -> npt.NDArray[np.bool_]:
        """Whether a buffer adds to live bytes: all but immediates and those inside another."""
        counted: npt.NDArray[np.bool_] = (self.kind != CONSTANT) & (self.home < 0)
        return counted | self.is_loaded

    @cached_property
    def is_loaded(self) -> npt.NDArray[np.bool_]:
        """Constants in memory: all but those of a few elements, which are in the code."""
        found: npt.NDArray[np.bool_] = self.kind == CONSTANT
        for b in np.flatnonzero(found).tolist():
            found[b] = self.shape_of(b).elements > IMMEDIATE_ELEMENTS
        return found

    def timeline(self, spaces: int | tuple[int, ...]) -> Ints:
        """Live bytes in some memory spaces at each program point."""
        n = len(self.schedule)
        buffer, start, end = self.reserved.T
        size = np.where(np.isin(self.space[buffer], spaces), self.size[buffer], 0)
        delta = np.zeros(n + 1, np.int64)
        np.add.at(delta, start, size)
        np.add.at(delta, end + 1, -size)
        return np.cumsum(delta)[:n]

    def live_at(self, point: int, spaces: int | tuple[int, ...]) -> Ints:
        """Buffers in some memory spaces that hold memory at a program point, largest first."""
        buffer, start, end = self.reserved.T
        there = np.isin(self.space[buffer], spaces) & (self.size[buffer] > 0)
        rows = buffer[(start <= point) & (end >= point) & there]
        found: Ints = rows[np.lexsort((rows, -self.size[rows]))]
        return found
