"""Which layer each row is in, once the spines of the stacks are known.

A row that is not an anchor of a spine is between the last layer that it depends on and the first
that depends on it; where these differ its kind decides (what opens or closes layers elsewhere
does so here), then what it serves.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from ....hlo.collective_kinds import KINDS, split
from ...base.table import Ints, Table
from .repeats import NEVER, Graph, Repeats, Stack


@dataclass(frozen=True)
class Numbered:
    """Stacks, and for each the numbers of its layers and whether it is one of gradients.

    ``identity[s][k]`` is a number that layer k of stack s shares with its gradient alone.
    """

    stacks: tuple[Stack, ...]
    identity: list[list[int]]
    recedes: list[bool]

    def starts(self) -> list[int]:
        """The position of each stack's first layer; positions count the layers of all stacks."""
        return [0, *accumulate(stack.count for stack in self.stacks)][:-1]

    def numbers(self) -> list[int]:
        """The number of the layer at each position."""
        return [number for of_stack in self.identity for number in of_stack]

    def of_gradients(self) -> list[bool]:
        """Whether the layer at each position is one of gradients."""
        pairs = zip(self.stacks, self.recedes, strict=True)
        return [back for stack, back in pairs for _ in range(stack.count)]


@dataclass(frozen=True)
class _Around:
    """For each row of a computation, positions of the layers around it."""

    own: list[int]  # of the layer whose anchor the row is, or -1
    after: list[int]  # the last layer that it depends on, or -1
    before: list[int]  # the first layer that depends on it, or NEVER
    serves: list[int]  # number of the one layer met first on the paths down from it, or -1
    model_serves: list[int]  # the same by paths that end at the model's own layers


def place(
    t: Table,
    c: int,
    numbered: Numbered,
    signature: Ints,
    apart: NDArray[np.bool_],
    told: dict[int, int] | None = None,
    gradient: NDArray[np.bool_] | None = None,
) -> Repeats:
    """Which layer each row of ``c`` belongs to.

    ``apart`` are rows that join no layer (an optimiser's); ``told``: for some rows the number that
    identifies their layer, by their weights; ``gradient``: rows of the backward pass. Weights they
    update may be used once more, but that does not make them serve a layer of the model.
    """
    g = Graph(t, c)
    rows = slice(g.first, g.first + g.size)
    start, who, late = numbered.starts(), numbered.numbers(), numbered.of_gradients()
    around = _layers_around(g, numbered)
    joint = _joined(t, g, around.own, who)
    silent, alone = t.silent[rows].tolist(), apart[rows].tolist()
    kind = signature[rows].tolist()
    back = gradient[rows].tolist() if gradient is not None else [False] * g.size
    free = [not (silent[i] or alone[i] or joint[i]) and around.own[i] < 0 for i in range(g.size)]
    known = _told(told or {}, g.first, who, late, around.after, around.before, gradient)
    served = _served(g, kind, around.after, around.before, free, late, start, numbered.stacks)
    position = _by_kind(numbered, around, kind, free, back, known, served)
    _what_layers_keep(g, around, position, free, [late, back])
    return Repeats(
        numbered.stacks,
        g.first,
        tuple(start),
        np.array(position, np.int64),
        np.array(around.after, np.int64),
        np.array(around.before, np.int64),
    )


def _layers_around(g: Graph, numbered: Numbered) -> _Around:
    start, who, late = numbered.starts(), numbered.numbers(), numbered.of_gradients()
    own = [-1] * g.size
    for first, stack in zip(start, numbered.stacks, strict=True):
        for rows in stack.spine:
            for k, row in enumerate(rows):
                own[row - g.first] = first + k
    after, before = list(own), [p if p >= 0 else NEVER for p in own]
    for v, u in zip(g.values, g.users, strict=True):
        if after[v] > after[u]:
            after[u] = after[v]
    # What a row serves directly: the layers met first on the paths down from it. Rows of the model
    # serve the model: their gradients lead on to the gradients of earlier layers.
    low, high = [NEVER] * g.size, [-1] * g.size
    model_low, model_high = [NEVER] * g.size, [-1] * g.size
    for v, u in zip(reversed(g.values), reversed(g.users), strict=True):
        if before[u] < before[v]:
            before[v] = before[u]
        p = own[u]
        a, b = (who[p], who[p]) if p >= 0 else (low[u], high[u])
        if a < low[v]:
            low[v] = a
        if b > high[v]:
            high[v] = b
        if p >= 0 and late[p]:
            continue
        a, b = (who[p], who[p]) if p >= 0 else (model_low[u], model_high[u])
        if a < model_low[v]:
            model_low[v] = a
        if b > model_high[v]:
            model_high[v] = b
    serves = [_only(a, b) for a, b in zip(low, high, strict=True)]
    model_serves = [_only(a, b) for a, b in zip(model_low, model_high, strict=True)]
    return _Around(own, after, before, serves, model_serves)


def _by_kind(
    numbered: Numbered,
    around: _Around,
    kind: list[int],
    free: list[bool],
    back: list[bool],
    known: dict[int, int],
    served: set[int],
) -> list[int]:
    """Positions of anchors, and of what opens, closes or serves layers by its kind."""
    start, who, late = numbered.starts(), numbered.numbers(), numbered.of_gradients()
    after, before = around.after, around.before
    opens, closing = _sides(
        kind, after, before, free, start, numbered.stacks, numbered.recedes, known
    )
    first = set(start)
    last = {s + stack.count - 1 for s, stack in zip(start, numbered.stacks, strict=True)}
    position = list(around.own)
    gap: list[int] = []
    ends: list[int] = []
    joins: set[tuple[int, int]] = set()
    closes: set[tuple[int, int]] = set()
    for i, (a, b) in enumerate(zip(after, before, strict=True)):
        if not free[i]:
            continue
        if i in known:
            position[i] = known[i]
        elif i in served:
            position[i] = b
        elif a == b or (a >= 0 and (kind[i], _begin(start, a)) in closing):
            position[i] = a
        elif b < NEVER and (kind[i], _begin(start, b)) in opens:
            position[i] = b
        elif b < NEVER and who[b] == _number_served(around, i, late[b], back[i]):
            if a in last and b in first:
                gap.append(i)
                continue
            position[i] = b
            joins.add((kind[i], _begin(start, b)))
        elif a in last:
            ends.append(i)
        elif a >= 0:
            position[i] = a
            closes.add((kind[i], _begin(start, a)))
    for i in gap:  # between two stacks: only what other layers of the second have too, not a loss
        if (kind[i], _begin(start, before[i])) in joins:
            position[i] = before[i]
    for i in ends:  # the last layer closes as the others do; what they lack comes after
        if (kind[i], _begin(start, after[i])) in closes:
            position[i] = after[i]
    return position


def _number_served(around: _Around, row: int, by_gradients: bool, in_backward: bool) -> int:
    if by_gradients:
        return around.serves[row]
    return -1 if in_backward else around.model_serves[row]


def _what_layers_keep(
    g: Graph, around: _Around, position: list[int], free: list[bool], passes: list[list[bool]]
) -> None:
    """A layer's own: a cast between two of its products, or of weights for its last; in place."""
    late, back = passes
    own, after, before = around.own, around.after, around.before
    for v, u in zip(reversed(g.values), reversed(g.users), strict=True):
        p = position[u]
        at = position[v]
        if at >= 0 > p and own[v] < 0 and after[v] < at == before[u] and free[u]:
            position[v] = -1  # serves what is before the layer
        if p < 0 or position[v] >= 0 or not free[v] or late[p] != back[v]:
            continue
        if after[v] == p or (after[v] < 0 and p < before[v]):
            position[v] = p


def _told(
    told: dict[int, int],
    first: int,
    who: list[int],
    late: list[bool],
    after: list[int],
    before: list[int],
    gradient: NDArray[np.bool_] | None = None,
) -> dict[int, int]:
    """The layers of rows that are known by weights: one they are between, preferably an end.

    The last layer's own products are between it and its gradient; they are not the gradient's.
    """
    places: dict[int, list[int]] = {}
    for p, number in enumerate(who):
        places.setdefault(number, []).append(p)
    out = {}
    for row, number in told.items():
        i = row - first
        a, b = after[i], before[i]
        between = [p for p in places.get(number, ()) if a <= p <= b]
        if b == NEVER:  # the model's own layers are all needed later
            between = [p for p in between if p == a or late[p]]
        if gradient is not None:
            between = [p for p in between if late[p] == gradient[row]] or between
        ends = [p for p in between if p in (a, b)]
        if ends or len(between) == 1:
            out[i] = (ends or between)[-1]
    return out


def _served(
    g: Graph,
    kind: list[int],
    after: list[int],
    before: list[int],
    free: list[bool],
    late: list[bool],
    start: list[int],
    stacks: tuple[Stack, ...],
) -> set[int]:
    """Rows that depend on no layer and serve only one: what a layer makes of a condition.

    Such rows are similar in most layers; the embedding, which serves the first, is like no other.
    """
    last = [-1] * g.size  # the last layer of anything they are needed for
    for v, u in zip(reversed(g.values), reversed(g.users), strict=True):
        if before[u] == NEVER or late[before[u]]:
            continue
        p = after[u] if after[u] >= 0 else last[u]
        if p > last[v]:
            last[v] = p
    layers: dict[tuple[int, int], set[int]] = {}
    rows = []
    for i, b in enumerate(before):
        if free[i] and after[i] < 0 and b < NEVER and not late[b] and 0 <= last[i] <= b:
            layers.setdefault((kind[i], _begin(start, b)), set()).add(b)
            rows.append(i)
    count = dict(zip(start, (s.count for s in stacks), strict=True))
    often = {key for key, found in layers.items() if 2 * len(found) > count[key[1]]}
    return {i for i in rows if (kind[i], _begin(start, before[i])) in often}


def _only(low: int, high: int) -> int:
    return low if low == high else -1


def _sides(
    kind: list[int],
    after: list[int],
    before: list[int],
    free: list[bool],
    start: list[int],
    stacks: tuple[Stack, ...],
    recedes: list[bool],
    known: dict[int, int],
) -> tuple[set[tuple[int, int]], set[tuple[int, int]]]:
    """Signatures that open a layer and that close one, with where their stack starts.

    What is between two layers closes the one or opens the other. What is before the first layer as
    often as between two, and less often after the last, opens: ``q = x @ wq`` where
    the spine is of other products. In the opposite case it closes, as its gradient does;
    of the model's first layer that gradient may be needed by nothing and be missing.
    If weights show on which side some are, others like them are there too.
    """
    last = {s: s + stack.count - 1 for s, stack in zip(start, stacks, strict=True)}
    first: Counter[tuple[int, int]] = Counter()
    between: Counter[tuple[int, int]] = Counter()
    final: Counter[tuple[int, int]] = Counter()
    for i, (a, b) in enumerate(zip(after, before, strict=True)):
        if a == b or not free[i]:
            continue
        of_a = _begin(start, a) if a >= 0 else -1
        of_b = _begin(start, b) if b < NEVER else -1
        if of_a == of_b >= 0:
            between[kind[i], of_a] += 1
            continue
        if b == of_b:
            first[kind[i], of_b] += 1
        if a == last.get(of_a):
            final[kind[i], of_a] += 1
    opens: set[tuple[int, int]] = set()
    closes: set[tuple[int, int]] = set()
    sides: Counter[tuple[int, int]] = Counter()
    for i, p in known.items():
        if after[i] != before[i] and p in (after[i], before[i]):
            sides[kind[i], _begin(start, p)] += 1 if p == before[i] else -1
    gradients = {s for s, back in zip(start, recedes, strict=True) if back}
    for key, n in between.items():
        if sides[key]:
            (opens if sides[key] > 0 else closes).add(key)
            continue
        gaps = last[key[1]] - key[1]
        if final[key] < first[key] and 2 * first[key] * gaps >= n:
            opens.add(key)
        often = first[key] < final[key] and 2 * final[key] * gaps >= n
        missing = not first[key] and not final[key] and key[1] in gradients and n >= gaps > 1
        if often or missing:
            closes.add(key)
    return opens, closes


def _begin(start: list[int], position: int) -> int:
    """Where the stack of a position starts; ``start`` ascends."""
    return start[bisect_right(start, position) - 1]


def _joined(t: Table, g: Graph, own: list[int], who: list[int]) -> list[bool]:
    """Rows made from several layers' values at once (combined collectives), and their pieces."""
    rows = slice(g.first, g.first + g.size)
    many = t.by_opcode(_combines, bool)[rows] & (t.operands.counts[rows] > 1)
    out = [False] * g.size
    if not many.any():
        return out
    low, high = [NEVER] * g.size, [-1] * g.size
    combined = many.tolist()
    for v, u in zip(g.values, g.users, strict=True):
        p = own[v]
        a, b = (who[p], who[p]) if p >= 0 else (low[v], high[v])
        if a < low[u]:
            low[u] = a
        if b > high[u]:
            high[u] = b
    piece = t.by_opcode(lambda o: o in ("get-tuple-element", "bitcast"), bool)[rows].tolist()
    for i in range(g.size):
        out[i] = combined[i] and low[i] < high[i]
    for v, u in zip(g.values, g.users, strict=True):
        if out[v] and (piece[u] or combined[u]):
            out[u] = True
    return out


def _combines(opcode: str) -> bool:
    found = split(opcode)
    return opcode == "tuple" or (found is not None and KINDS[found[0]].pattern == "ring")
