"""Repeated layers of a computation, whatever their names: where each layer's work is.

Python loops leave no trace but repetition. Matmuls, convolutions, collectives, kernels and loops
are *anchors*; two anchors with one line, name (except numbers) and kind have one *signature*:

    signature            instances, by depth of dependency
    q = x @ wq    l.31   ●     ●     ●     ●        four of each, and each k-th feeds
    o = a @ wo    l.36     ●     ●     ●     ●      every (k+1)-th: one stack of four layers
    h @ lm_head   l.52                         ●    one: not a layer

Signatures with one count that feed each other in turn are a *stack*. Two stacks with one count
(an encoder and a decoder, forward and backward) do not feed each other in turn and stay apart.
An instruction that is not such an anchor is between the last layer that it depends on and the
first that depends on it; where these differ it goes to the only layer it serves (a prefetch, a
norm), else to the one it closes (a residual sum).
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ...base.table import Ints, Table, intern
from .witness import runs, spans

# At most this many signatures are examined in one computation, the most common first.
MOST_SIGNATURES = 96
# At most this many stacks are kept in one computation.
MOST_STACKS = 12
# With few layers this many signatures must agree, or two products in a row would be layers.
AGREE = {2: 4, 3: 2}
# This many signatures of a stack vote on its place.
VOTES = 16
NEVER = 1 << 40

Signatures = list[list[int]]  # rows of each signature, in order of work

_DIGITS = re.compile(r"\d+")


@dataclass(frozen=True, eq=False)
class Stack:
    """A run of layers; ``spine[s][k]`` is the row of signature s in layer k, in order of work."""

    computation: int
    spine: tuple[tuple[int, ...], ...]

    @property
    def count(self) -> int:
        return len(self.spine[0])


@dataclass(frozen=True, eq=False)
class Repeats:
    """Stacks of one computation, in order of work, and where its rows are among their layers."""

    stacks: tuple[Stack, ...]
    first: int
    start: tuple[int, ...]  # position of each stack's layer 0; positions count layers
    position: Ints  # one row per instruction of the computation; -1 in no layer
    after: Ints  # last position that the row depends on, -1 for none
    before: Ints  # first position that depends on the row, NEVER for none


def signatures(t: Table, family: NDArray[np.uint8], frames: list[int]) -> Ints:
    """Equal numbers for instructions with one kind, line and name (except numbers).

    Shapes count only where neither line nor name is known: XLA fuses one line differently in
    the first and the last layer.
    """
    masked: dict[str, int] = {}
    names = np.array(
        [masked.setdefault(_DIGITS.sub("#", n), len(masked)) for n in t.places], np.int64
    )
    nameless = np.array([not n for n in t.places], bool)[t.place]
    blind = nameless & (np.asarray(frames, np.int64) <= 0)
    shape = np.where(blind, t.shape, -1)
    told = zip(family.tolist(), names[t.place].tolist(), frames, shape.tolist(), strict=True)
    return intern(list(told))[0]


class Graph:
    """Edges of one computation along its printed order, as lists."""

    def __init__(self, t: Table, c: int) -> None:
        self.first = first = int(t.first[c])
        self.size = size = int(t.size[c])
        begin, end = int(t.operands.offsets[first]), int(t.operands.offsets[first + size])
        users = t.operands.rows[begin:end] - first
        values = t.operands.values[begin:end] - first
        fine = (values >= 0) & (values < users) & ~t.silent[t.operands.values[begin:end]]
        self.users: list[int] = users[fine].tolist()
        self.values: list[int] = values[fine].tolist()

    def depth(self, counted: list[bool]) -> list[int]:
        """How many counted rows are on the longest path to each row, itself not included."""
        out = [0] * self.size
        for v, u in zip(self.values, self.users, strict=True):
            d = out[v] + counted[v]
            if d > out[u]:
                out[u] = d
        return out

    def ancestors(self, bits: dict[int, int]) -> list[int]:
        """Bits of what each row depends on, its own included."""
        out = [0] * self.size
        for row, bit in bits.items():
            out[row] = bit
        for v, u in zip(self.values, self.users, strict=True):
            seen = out[v]
            if seen:
                out[u] |= seen
        return out

    def descendants(self, bits: dict[int, int]) -> list[int]:
        """Bits of what depends on each row, its own included."""
        out = [0] * self.size
        for row, bit in bits.items():
            out[row] = bit
        for v, u in zip(reversed(self.values), reversed(self.users), strict=True):
            seen = out[u]
            if seen:
                out[v] |= seen
        return out


def find(t: Table, c: int, anchors: Ints, signature: Ints, work: Ints) -> tuple[Stack, ...]:
    """Stacks of layers of computation ``c``; ``anchors`` are rows in it, ascending.

    ``work[i]``: how many anchors instruction i counts for, at least one, a loop for those in it.
    """
    if int(work[anchors].sum()) < 4:
        return ()
    by_signature: dict[int, list[int]] = {}
    for row in anchors.tolist():
        by_signature.setdefault(int(signature[row]), []).append(row)
    found = sorted((r for r in by_signature.values() if len(r) > 1), key=len, reverse=True)
    found = found[:MOST_SIGNATURES]
    if not found:
        return ()
    g = Graph(t, c)
    counted = [False] * g.size
    for row in anchors.tolist():
        counted[row - g.first] = True
    depth = g.depth(counted)
    instances = [sorted((r - g.first for r in rows), key=lambda r: (depth[r], r)) for rows in found]
    parts = _by_shape(instances, t, g.first)
    told = _by_arguments(instances, t, g.first)
    needs = _Needs(g, [*instances, *parts, *(run for of in told for run in of)])
    numbered: dict[int, int] = {}  # first row of a run → how many products its line has
    whole, instances = instances, []
    for rows, of in zip(whole, told, strict=True):
        # if only some runs feed themselves, the weights' own gradients are among them
        fed = bool(of) and all(needs.feeds(run, run) for run in of)
        instances += of if fed else [rows]
        numbered.update({run[0]: len(rows) for run in of if fed})
    instances = [rows for rows in instances if needs.feeds(rows, rows)]
    parts = [rows for rows in parts if needs.feeds(rows, rows)]
    spines = [*_once_a_layer(instances, parts), *parts]
    candidates: list[Signatures] = []
    used: set[int] = set()
    for rows in spines:
        if rows[0] in used:  # used as a whole already; a part of it says less
            continue
        used.update(rows)
        for stack in candidates:
            model = stack[0]
            if len(model) == len(rows) and needs.feeds(model, rows) and needs.feeds(rows, model):
                stack.append(rows)
                break
        else:
            candidates.append([rows])
    candidates = [s for s in candidates if any(rows[0] in numbered for rows in s)
                  or _works(s, work, g.first) >= AGREE.get(len(s[0]), 1)]  # fmt: skip
    candidates = _whole(candidates, t, g.first)
    candidates.sort(key=lambda s: (-_weight(s, numbered), s[0][0]))
    chosen: list[Signatures] = []
    for stack in candidates:
        around = [n for n, s in enumerate(chosen) if needs.overlaps(stack, s)]
        beside = next((s for s in chosen if needs.beside(s, stack)), None)
        if beside is not None and not around:
            beside += stack
        elif not around:
            chosen.append(stack)
        elif len(around) == 1 and len(stack) > 1 and needs.alternates(stack, chosen[around[0]]):
            # one layer lacks a part: the signatures with all layers give the count
            chosen[around[0]] = stack
    chosen = chosen[:MOST_STACKS]
    # by their ends: a decoder may begin before the encoder that all its layers attend to
    chosen.sort(key=lambda s: (max(depth[rows[-1]] for rows in s), s[0][0]))
    return tuple(
        Stack(c, tuple(tuple(r + g.first for r in rows) for rows in stack)) for stack in chosen
    )


def _by_arguments(instances: Signatures, t: Table, first: int) -> list[Signatures]:
    """The runs over numbered arguments of each of ``instances``, [] for those without."""
    found = [runs(t, [r + first for r in rows]) for rows in instances]
    return [[[r - first for r in run] for run in of] for of in found]


def _whole(candidates: list[Signatures], t: Table, first: int) -> list[Signatures]:
    """``candidates`` without those that only some layers of another one have.

    Of nine layers two in three are recurrent: their products are at 0, 1, 3, 4, 6 and 7 of the
    same arguments that number what all nine have.
    """
    if len(candidates) < 2:
        return candidates
    ranges = [spans(t, [r + first for r in stack[0]]) for stack in candidates]
    out = []
    for stack, mine in zip(candidates, ranges, strict=True):
        within = any(
            len(other[0]) > len(stack[0]) == len(held)
            and held.issubset(theirs.get(key, ()))
            and len(theirs[key]) == len(other[0])
            for key, held in mine.items()
            for other, theirs in zip(candidates, ranges, strict=True)
        )
        if not within:
            out.append(stack)
    return out


def _once_a_layer(instances: Signatures, parts: Signatures) -> Signatures:
    """``instances`` without those that occur twice or more per layer, as their parts by shape show.

    That is so where the parts alternate and each occurs as often as some other instance does:
    attention scores and the weighted sum are on one line, and there are as many of each as norms.
    """
    counts = {len(rows) for rows in instances}
    out = []
    for rows in instances:
        mine = set(rows)
        of = [part for part in parts if mine.issuperset(part)]
        whole = sum(map(len, of)) == len(rows) and len({len(part) for part in of}) == 1
        turns = [set(rows[k : k + len(of)]) for k in (0, len(rows) - len(of))]
        in_turn = all(len(turn.intersection(part)) == 1 for turn in turns for part in of)
        if not (whole and len(of) > 1 and in_turn and len(of[0]) in counts):
            out.append(rows)
    return out


def _works(stack: Signatures, work: Ints, first: int) -> int:
    return sum(int(work[rows[0] + first]) for rows in stack)


def _weight(stack: Signatures, numbered: dict[int, int]) -> float:
    """How much a stack explains; for a run over numbered arguments all runs of its line count."""
    return len(stack) * math.log2(1 + max(numbered.get(r[0], len(r)) for r in stack))


class _Needs:
    """Which instances need which, at both ends and in the middle of each signature."""

    def __init__(self, g: Graph, instances: Signatures) -> None:
        self.bits: dict[int, int] = {}
        for rows in instances:
            for k in {k for at in _pairs(len(rows)) for k in (at, at + 1)}:
                self.bits.setdefault(rows[k], 1 << len(self.bits))
        self.above = g.ancestors(self.bits)

    def needs(self, row: int, other: int) -> bool:
        return bool(self.above[row] & self.bits[other])

    def feeds(self, a: list[int], b: list[int]) -> bool:
        """Whether each of a is needed for the next of b."""
        return all(self.needs(b[k + 1], a[k]) for k in _pairs(len(a)))

    def overlaps(self, a: Signatures, b: Signatures) -> bool:
        return self.within(a, b) or self.within(b, a)

    def within(self, inner: Signatures, outer: Signatures) -> bool:
        """Whether the middle of most of the inner signatures is within the course of the outer's.

        Most, not one: a fusion with two results may tie one of them to something much later.
        """
        said = [
            self.needs(a[m], b[0]) and self.needs(b[-1], a[m])
            for a in inner[:VOTES]
            for m in _pairs(len(a))[len(_pairs(len(a))) // 2 :][:1]
            for b in outer[:VOTES]
        ]
        return 2 * sum(said) > len(said)

    def beside(self, model: Signatures, other: Signatures) -> bool:
        """Whether each layer of one feeds the same layer of the other, in one direction.

        So do the gradients that a decoder's layers add up for what all of them attend to.
        """
        if len(model[0]) != len(other[0]):
            return False

        def serves(giving: Signatures, taking: Signatures) -> bool:
            pairs = [(a, b) for a in giving[:VOTES] for b in taking[:VOTES]]
            at = _pairs(len(model[0]))
            late = any(self.needs(b[k], a[k + 1]) for a, b in pairs for k in at)
            return not late and any(all(self.needs(b[k], a[k]) for k in at) for a, b in pairs)

        return serves(model, other) or serves(other, model)

    def alternates(self, more: Signatures, less: Signatures) -> bool:
        """Whether the k-th of ``less`` is between the k-th and the next of ``more``."""
        if len(more[0]) != len(less[0]) + 1:
            return False
        a, b = more[0], less[0]
        ends = (0, len(b) - 1)
        return all(self.needs(b[k], a[k]) and self.needs(a[k + 1], b[k]) for k in ends)


def _by_shape(instances: list[list[int]], t: Table, first: int) -> list[list[int]]:
    """Instances of one line, split by shape: a product's two gradients share its line.

    Those of several shapes are split from the rest too: weights have one shape, but not what
    goes from level to level of a network that halves its images.
    """
    out = []
    for rows in instances:
        parts: dict[int, list[int]] = {}
        for r in rows:
            parts.setdefault(int(t.shape[first + r]), []).append(r)
        if len(parts) > 1:
            several = [part for part in parts.values() if len(part) > 1]
            out += several
            rest = [[r for r in rows if r not in set(part)] for part in several]
            out += [r for r in rest if len(r) > 1 and r not in several]
    return out


def _pairs(count: int) -> list[int]:
    """Where neighbours are compared: at both ends and in the middle."""
    return sorted({0, (count - 2) // 2, count - 2})
