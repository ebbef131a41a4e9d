"""Layers of the backward pass by the weights they share with those of the forward pass.

    forward    a = x·w0     b = a·w1     c = b·w2       found by repetition: layers 0, 1, 2
    backward   γ = δ·w2ᵀ    β = γ·w1ᵀ    α = β·w0ᵀ      layers 2, 1, 0, whatever they look like

XLA fuses the gradients of one layer otherwise than those of the next, so that repetition finds
pieces of layers, or one layer too few. The weights say which layer a product is of; where they
contradict what repetition found, they are believed.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..base.table import Ints, Table
from .repeats import Graph, Repeats, Stack
from .witness import weights as weights_of

# Of the products with a layer's weights, so many in their place are enough.
AGREE = 0.9
# More anchors than this in one computation are not followed to their weights.
MOST_ANCHORS = 40_000
# Passes over one stack's gradients: a judge is trained on what is real and on what is not.
MOST_PASSES = 8


@dataclass(frozen=True, eq=False)
class Gradients:
    """``stacks``, in order of work; ``of[n]``: for a stack of gradients made here, the stack and
    the layers it is the gradient of, first to last."""

    stacks: tuple[Stack, ...]
    of: dict[int, tuple[int, tuple[int, ...]]]


def by_weights(
    t: Table,
    found: Repeats,
    recedes: Sequence[bool],
    anchors: Ints,
    late: NDArray[np.bool_],
) -> Gradients | None:
    """Stacks with those of gradients as the weights say; None where there is nothing to mend.

    ``late`` are rows of the backward pass that are not recomputation.
    """
    if all(recedes) or len(anchors) > MOST_ANCHORS or not late[anchors].any():
        return None
    weights = {row: weights_of(t.instructions[row]) for row in anchors.tolist()}
    slots, twice = _slots(found, recedes, weights)
    if not slots:
        return None
    uses, updates = _uses(t, anchors[late[anchors]].tolist(), weights, slots)
    wrong = [n for n in {n for n, _ in uses} if not _agrees(n, uses, found, recedes, updates)]
    if not wrong:
        return None
    first = found.first
    graph = Graph(t, found.stacks[0].computation)
    rows = {row - first for (n, _), used in uses.items() if n in wrong for row, _ in used}
    bits = {row: 1 << k for k, row in enumerate(sorted(rows))}
    above = graph.ancestors(bits)
    after = (anchors[late[anchors]] - first).tolist()
    made: list[tuple[int, tuple[int, ...], Stack]] = []
    for n in sorted(wrong):
        count = found.stacks[n].count
        chains = [
            _chains(used, count, graph, bits, above, updates, after)
            for (m, _), used in uses.items()
            if m == n
        ]
        # used twice, weights have as many gradients
        several = sorted({m for w, (of, _, _) in slots.items() if of == n for m in twice[w]})
        for turn, (layers, stack) in enumerate(_stacks(count, chains, found.stacks[n].computation)):
            made.append((several[turn % len(several)], layers, stack))
    if not made:
        return None
    taken = {int(found.position[r - first]) for _, _, s in made for rows in s.spine for r in rows}
    kept = [
        _Kept(s, m, ())
        for m, s in enumerate(found.stacks)
        if not (recedes[m] and taken & set(range(found.start[m], found.start[m] + s.count)))
    ]
    kept += [_Kept(stack, n, layers) for n, layers, stack in made]
    kept.sort(key=lambda k: max(rows[-1] for rows in k.stack.spine))
    at = {k.number: p for p, k in enumerate(kept) if not k.layers}
    of_which = {p: (at[k.number], k.layers) for p, k in enumerate(kept) if k.layers}
    return Gradients(tuple(k.stack for k in kept), of_which)


@dataclass(frozen=True, eq=False)
class _Kept:
    stack: Stack
    number: int  # among the stacks there were, or of the one that it is the gradient of
    layers: tuple[int, ...]  # of that; () for a stack that was there


def _slots(
    found: Repeats, recedes: Sequence[bool], weights: dict[int, list[int]]
) -> tuple[dict[int, tuple[int, int, int]], dict[int, list[int]]]:
    """Weight → (stack, which of a layer's, layer), for weights of one layer; and all its stacks."""
    where: dict[int, set[tuple[int, int]]] = defaultdict(set)
    signature: dict[int, int] = {}
    for n, stack in enumerate(found.stacks):
        if recedes[n]:
            continue
        of_spine = {r: s for s, rows in enumerate(stack.spine) for r in rows}
        for row, mine in weights.items():
            k = int(found.position[row - found.first]) - found.start[n]
            if not 0 <= k < stack.count:
                continue
            for w in mine:
                where[w].add((n, k))
                if row in of_spine:
                    signature[w] = of_spine[row]
    out = {}
    for w, places in where.items():
        layers = {k for _, k in places}
        if w in signature and len(layers) == 1:
            n = min(n for n, _ in places)
            out[w] = (n, signature[w], layers.pop())
    return out, {w: sorted({n for n, _ in where[w]}) for w in out}


def _uses(
    t: Table,
    rows: list[int],
    weights: dict[int, list[int]],
    slots: dict[int, tuple[int, int, int]],
) -> tuple[dict[tuple[int, int], list[tuple[int, int]]], set[int]]:
    """(Stack, which of a layer's) → (product of the backward pass, layer); and updates of weights.

    What is fused with another layer's is of neither.
    """
    uses: dict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
    updates: set[int] = set()
    for row in rows:
        known = [w for w in weights[row] if w in slots]
        mine = {slots[w] for w in known}
        if len({(n, k) for n, _, k in mine}) == 1:
            for n, s, k in mine:
                uses[n, s].append((row, k))
        results = {leaf.dimensions for leaf in t.instructions[row].shape.leaves()}
        if any(t.instructions[w].shape.dimensions in results for w in known):
            updates.add(row)
    return uses, updates


def _agrees(
    n: int,
    uses: dict[tuple[int, int], list[tuple[int, int]]],
    found: Repeats,
    recedes: Sequence[bool],
    updates: set[int],
) -> bool:
    """Whether products with the weights of stack n already lie in layers of their own.

    Of one stack or of several: stages of unlike gradients are stacks of their own.
    """
    backward = {
        found.start[m] + k for m, s in enumerate(found.stacks) if recedes[m] for k in range(s.count)
    }
    all_of_them = [use for (m, _), used in uses.items() if m == n for use in used]
    # what is fused with the weight's update may be the optimiser's
    counted = [use for use in all_of_them if use[0] not in updates] or all_of_them
    held: dict[int, Counter[int]] = defaultdict(Counter)  # place → layers of what is in it
    lies: dict[int, Counter[int]] = defaultdict(Counter)  # layer → places of what is of it
    for row, k in counted:
        p = int(found.position[row - found.first])
        if p in backward:
            held[p][k] += 1
            lies[k][p] += 1
    right = [sum(c.most_common(1)[0][1] for c in of.values()) for of in (held, lies)]
    return min(right) >= AGREE * len(counted)


def _chains(
    used: list[tuple[int, int]],
    count: int,
    g: Graph,
    bits: dict[int, int],
    above: list[int],
    updates: set[int],
    late: list[int],
) -> list[list[int]]:
    """Rows of the last layer to the first, or the second, each needed for the next.

    A product that ends in the weight's own update is of the layer too and leads no further.
    """
    left: dict[int, list[int]] = defaultdict(list)
    for row, k in sorted(used):
        left[k].append(row - g.first)
    out: list[list[int]] = []
    for start in left.get(count - 1, [])[:MOST_PASSES]:
        chain = [start]
        for k in range(count - 2, -1, -1):
            after = [r for r in left.get(k, []) if above[r] & bits[chain[-1]]]
            further = left.get(k - 1, []) if k else late
            onward = [r for r in after if any(above[o] & bits[r] for o in further if o != r)]
            # of the first layer it may lead nowhere: it is the one that is made for no weight
            gradient = [r for r in after if r + g.first not in updates]
            best = onward or (gradient or after if k == 0 else [])
            if not best:
                break
            chain.append(best[0])
            left[k].remove(best[0])
        if len(chain) >= max(2, count - 1):
            out.append([r + g.first for r in chain])
    return out


def _stacks(
    count: int, slots: list[list[list[int]]], computation: int
) -> list[tuple[tuple[int, ...], Stack]]:
    """One stack a pass over the gradients, of the chains that are whole."""
    out = []
    whole = [chains for chains in slots if any(len(c) == count for c in chains)]
    length = count if whole else count - 1
    fitting = [[c for c in chains if len(c) == length] for chains in slots]
    for turn in range(max(map(len, fitting), default=0)):
        spine = tuple(tuple(chains[turn]) for chains in fitting if turn < len(chains))
        if length > 1 and spine:
            layers = tuple(range(count - 1, count - 1 - length, -1))
            out.append((layers, Stack(computation, spine)))
    return out
