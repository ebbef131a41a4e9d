"""Layers of the backward pass by the weights they share with those of the forward pass.

    forward    a = x·w0     b = a·w1     c = b·w2       found by repetition: layers 0, 1, 2
    backward   γ = δ·w2ᵀ    β = γ·w1ᵀ    α = β·w0ᵀ      layers 2, 1, 0, whatever they look like

XLA fuses the gradients of one layer differently from those of the next, so that repetition finds
pieces of layers, or one layer too few. The weights say which layer a product belongs to; where
they contradict what repetition found, they decide.

Forces are the gradient of an energy, and their loss has a gradient in turn: the layers are passed
through four times, and the names say which time it is. Two of them run from the first layer on:

    jvp(jvp())  0 1 2    jvp(transpose(jvp()))  2 1 0
                         transpose(jvp(transpose(jvp())))  0 1 2    transpose(jvp(jvp()))  2 1 0
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ...base.table import Ints, Table
from .repeats import Graph, Repeats, Stack
from .witness import weights as weights_of

# This share of the products with a layer's weights in their place is enough.
AGREE = 0.9
# More anchors than this in one computation are not followed to their weights.
MOST_ANCHORS = 40_000
# Passes over one stack's gradients: a GAN's discriminator has one for real and one for fake data.
MOST_PASSES = 8

_STEP = re.compile(r"\b(jvp|transpose)\(")
# How a product was differentiated, () if nothing was more than once.
_Pass = tuple[str, ...]
# (stack, which of a layer's, pass) → (product of the backward pass, layer)
_Uses = dict[tuple[int, int, _Pass], list[tuple[int, int]]]


@dataclass(frozen=True, eq=False)
class Gradients:
    """``stacks``, in order of work; ``of[n]``: for a stack of gradients made here, the stack and
    the layers whose gradient it is, in order of work; -1 and what identifies the layers if the
    stack is in another computation."""

    stacks: tuple[Stack, ...]
    of: dict[int, tuple[int, tuple[int, ...]]]


def by_weights(
    t: Table,
    found: Repeats,
    recedes: Sequence[bool],
    anchors: Ints,
    late: NDArray[np.bool_],
) -> Gradients | None:
    """Stacks with those of gradients as the weights say; None if there is nothing to correct.

    ``late`` are rows of the backward pass that are not recomputation.
    """
    if all(recedes) or len(anchors) > MOST_ANCHORS or not late[anchors].any():
        return None
    weights = {row: weights_of(t.instructions[row]) for row in anchors.tolist()}
    slots, twice = _slots(t, found, recedes, weights)
    if not slots:
        return None
    uses, updates = _uses(t, anchors[late[anchors]].tolist(), weights, slots)
    # weights used twice have two gradients
    several = {}
    for n, which in {(n, p) for n, _, p in uses}:
        of = sorted({m for w, slot in slots.items() if slot[0] == n for m in twice[w]})
        several[n, which] = _of_pass(t, which, [found.stacks[m] for m in of], of)
    wrong = {n for (n, which), of in several.items()
             if not _agrees(_of(uses, n, which), found, recedes, updates, len(of))}  # fmt: skip
    counts = {n: found.stacks[n].count for n in wrong}
    computation = found.stacks[0].computation
    made = _made(t, computation, counts, uses, updates, anchors[late[anchors]])
    pieces = _pieces(uses, found, recedes)
    if not made and not pieces:
        return None
    taken = {int(found.position[r - found.first])
             for _, _, _, _, s in made for rows in s.spine for r in rows}  # fmt: skip
    kept = [
        _KeptRows(s, *pieces.get(m, (m, ())))
        for m, s in enumerate(found.stacks)
        if not (recedes[m] and taken & set(range(found.start[m], found.start[m] + s.count)))
    ]
    for n, which, turn, layers, stack in made:
        of = several[n, which]
        kept.append(_KeptRows(stack, of[turn % len(of)], layers))
    kept.sort(key=lambda k: max(rows[-1] for rows in k.stack.spine))
    at = {k.number: p for p, k in enumerate(kept) if not k.layers}
    of_which = {p: (at[k.number], k.layers) for p, k in enumerate(kept) if k.layers}
    return Gradients(tuple(k.stack for k in kept), of_which)


def _pieces(
    uses: _Uses, found: Repeats, recedes: Sequence[bool]
) -> dict[int, tuple[int, tuple[int, ...]]]:
    """Stacks of gradients of some of a stack's layers: that stack and the layers.

    Stages of a network are one stack, as their blocks differ in size alone; XLA makes the
    gradients of each stage from other fusions, and so each is found as a stack of its own.
    """
    of_row: dict[int, set[tuple[int, int]]] = defaultdict(set)
    for (n, _, _), used in uses.items():
        for row, k in used:
            of_row[row].add((n, k))
    counts = {s.count for s, back in zip(found.stacks, recedes, strict=True) if not back}
    out = {}
    for m, stack in enumerate(found.stacks):
        if not recedes[m] or stack.count in counts:
            continue
        places = [
            Counter(p for row in rows for p in of_row[row])
            for rows in zip(*stack.spine, strict=True)
        ]
        alone = [next(iter(c)) for c in places if len(c) == 1]
        layers = tuple(k for _, k in alone)
        if len(set(layers)) == stack.count and len({n for n, _ in alone}) == 1:
            out[m] = (alone[0][0], layers)
    return out


def of_other_computation(
    t: Table,
    c: int,
    model: Sequence[tuple[Stack, tuple[int, ...]]],
    found: Repeats | None,
    anchors: Ints,
    late: NDArray[np.bool_],
) -> Gradients | None:
    """Stacks of ``c``, a computation of gradients only, as the weights show.

    The backward pass has a loop of its own. ``model``: the stacks of the forward pass in other
    computations, each with what identifies its layers; ``found``: the stacks of ``c``.
    """
    rows = anchors[late[anchors]]
    if not len(rows) or len(anchors) > MOST_ANCHORS:
        return None
    of_spine = [
        (w, (n, s, k))
        for n, (stack, _) in enumerate(model)
        for s, spine in enumerate(stack.spine)
        for k, row in enumerate(spine)
        for w in weights_of(t.instructions[row])
    ]
    where: dict[int, set[tuple[int, int, int]]] = defaultdict(set)
    for w, slot in of_spine:
        where[w].add(slot)
    slots = {w: min(of) for w, of in where.items() if len({k for _, _, k in of}) == 1}
    slots = _usual(t, slots)
    if not slots:
        return None
    weights = {row: weights_of(t.instructions[row]) for row in rows.tolist()}
    uses, updates = _uses(t, rows.tolist(), weights, slots)
    stacks = found.stacks if found is not None else ()
    several = {}
    for n, which in {(n, p) for n, _, p in uses}:
        passes = sorted({m for w, slot in slots.items() if slot[0] == n for m, _, _ in where[w]})
        several[n, which] = _of_pass(t, which, [model[m][0] for m in passes], passes)
    backward = [True] * len(stacks)
    counts = {
        n: model[n][0].count
        for (n, which), mine in several.items()
        if found is None or not _agrees(_of(uses, n, which), found, backward, updates, len(mine))
    }
    made = _made(t, c, counts, uses, updates, rows)
    taken = {r for _, _, _, _, s in made for spine in s.spine for r in spine}
    if not made:
        return None
    of: list[tuple[Stack, tuple[int, ...]]] = [
        (s, ()) for s in stacks if not taken.intersection(r for spine in s.spine for r in spine)
    ]
    for n, which, turn, layers, stack in made:
        # gradients come last pass first
        identity = model[several[n, which][-1 - turn % len(several[n, which])]][1]
        of.append((stack, tuple(identity[k] for k in layers)))
    of.sort(key=lambda x: max(rows[-1] for rows in x[0].spine))
    known = {p: (-1, identity) for p, (_, identity) in enumerate(of) if identity}
    return Gradients(tuple(stack for stack, _ in of), known)


def _made(
    t: Table,
    c: int,
    counts: dict[int, int],
    uses: _Uses,
    updates: set[int],
    late: Ints,
) -> list[tuple[int, _Pass, int, tuple[int, ...], Stack]]:
    """(Stack, pass, how many like it before, layers, gradients) of ``counts``, layers of each."""
    if not counts:
        return []
    graph = Graph(t, c)
    first = graph.first
    rows = {row - first for (n, _, _), used in uses.items() if n in counts for row, _ in used}
    bits = {row: 1 << k for k, row in enumerate(sorted(rows))}
    above = graph.ancestors(bits)
    after = (late - first).tolist()
    made: list[tuple[int, _Pass, int, tuple[int, ...], Stack]] = []
    for n, which in sorted({(n, p) for n, _, p in uses if n in counts}):
        count, onward = counts[n], bool(which) and which.count("transpose") % 2 == 0
        chains = [
            _chains(_turned(used, count) if onward else used, count, graph, bits, above, updates,
                    after)
            for (m, _, p), used in uses.items()
            if (m, p) == (n, which)
        ]  # fmt: skip
        for turn, (layers, stack) in enumerate(_stacks(count, chains, c)):
            if onward:
                layers = tuple(count - 1 - k for k in layers)
            made.append((n, which, turn, layers, stack))
    return made


def _turned(used: list[tuple[int, int]], count: int) -> list[tuple[int, int]]:
    """``used`` with its layers numbered from the last one, for a pass from the first one on."""
    return [(row, count - 1 - k) for row, k in used]


def _of(uses: _Uses, n: int, which: _Pass) -> list[tuple[int, int]]:
    """All products of a pass that use weights of stack n."""
    return [use for (m, _, p), used in uses.items() if (m, p) == (n, which) for use in used]


def _passes(t: Table, rows: list[int]) -> dict[int, _Pass]:
    """For each row how it was differentiated; {} where nothing was more than once.

    That is so where a gradient is inside of what is differentiated: ``jvp(transpose(jvp()))``.
    """
    places = {int(t.place[row]) for row in rows}
    known = {n: tuple(_STEP.findall(t.places[n])) for n in places}
    if not any("jvp" in p and "transpose" in p[p.index("jvp") :] for p in known.values()):
        return {}
    return {row: known[int(t.place[row])] for row in rows}


def _of_pass(t: Table, which: _Pass, stacks: list[Stack], numbers: list[int]) -> list[int]:
    """``numbers`` of the stacks that are differentiated as often as the pass is, else of all."""
    out = []
    for n, stack in zip(numbers, stacks, strict=True) if which else ():
        names = [t.places[t.place[row]] for rows in stack.spine for row in rows]
        often = Counter(_STEP.findall(name).count("jvp") for name in names)
        if often.most_common(1)[0][0] == which.count("jvp"):
            out.append(n)
    return out or numbers


@dataclass(frozen=True, eq=False)
class _KeptRows:
    stack: Stack
    number: int  # among the given stacks, or of the one whose gradient it is
    layers: tuple[int, ...]  # of that one; () for a given stack


def _slots(
    t: Table, found: Repeats, recedes: Sequence[bool], weights: dict[int, list[int]]
) -> tuple[dict[int, tuple[int, int, int]], dict[int, list[int]]]:
    """Weight → (stack, which of a layer's, layer), if one layer alone has it; and all stacks."""
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
    out = _usual(t, out)
    return out, {w: sorted({n for n, _ in where[w]}) for w in out}


def _usual(t: Table, slots: dict[int, tuple[int, int, int]]) -> dict[int, tuple[int, int, int]]:
    """``slots`` without weights outside layers: a layer's product may be fused with another."""
    shape = {w: t.instructions[w].shape.dense_text for w in slots}
    usual: dict[tuple[int, int], Counter[str]] = defaultdict(Counter)
    for w, (n, s, _) in slots.items():
        usual[n, s][shape[w]] += 1
    most: Counter[tuple[int, int, int]] = Counter()
    for w, slot in slots.items():
        most[slot] = max(most[slot], usual[slot[:2]][shape[w]])
    return {w: slot for w, slot in slots.items() if usual[slot[:2]][shape[w]] == most[slot]}


def _uses(
    t: Table,
    rows: list[int],
    weights: dict[int, list[int]],
    slots: dict[int, tuple[int, int, int]],
) -> tuple[_Uses, set[int]]:
    """Products of the backward pass that use weights of one layer; and updates of weights.

    What is fused with another layer's belongs to neither.
    """
    uses: _Uses = defaultdict(list)
    updates: set[int] = set()
    which = _passes(t, rows)
    for row in rows:
        known = [w for w in weights[row] if w in slots]
        mine = {slots[w] for w in known}
        if len({(n, k) for n, _, k in mine}) == 1:
            for n, s, k in mine:
                uses[n, s, which.get(row, ())].append((row, k))
        results = {leaf.dimensions for leaf in t.instructions[row].shape.leaves()}
        if any(t.instructions[w].shape.dimensions in results for w in known):
            updates.add(row)
    return uses, updates


def _agrees(
    all_of_them: list[tuple[int, int]],
    found: Repeats,
    recedes: Sequence[bool],
    updates: set[int],
    passes: int,
) -> bool:
    """Whether products of one pass with a stack's weights are already in layers of their own.

    In one stack or in several: stages of different gradients are stacks of their own, and weights
    used in several passes have a gradient for each.
    """
    backward = {
        found.start[m] + k for m, s in enumerate(found.stacks) if recedes[m] for k in range(s.count)
    }
    # what is fused with the weight's update may be the optimiser's
    counted = [use for use in all_of_them if use[0] not in updates] or all_of_them
    held: dict[int, Counter[int]] = defaultdict(Counter)  # place → layers of its products
    lies: dict[int, Counter[int]] = defaultdict(Counter)  # layer → places of its products
    for row, k in counted:
        p = int(found.position[row - found.first])
        if p in backward:
            held[p][k] += 1
            lies[k][p] += 1
    if any(back and _holes(found.start[m], stack.count, held)
           for m, (stack, back) in enumerate(zip(found.stacks, recedes, strict=True))):  # fmt: skip
        return False
    alone = sum(c.most_common(1)[0][1] for c in held.values())
    together = sum(n for c in lies.values() for _, n in c.most_common(passes))
    return min(alone, together) >= AGREE * len(counted)


def _holes(start: int, count: int, held: dict[int, Counter[int]]) -> bool:
    """Whether half of a stack's layers or more hold no product of what the others do.

    Each layer's gradients for the weights and for the input are then taken for two layers.
    """
    filled = sum(p in held for p in range(start, start + count))
    return count > 2 and 0 < 2 * filled <= count


def _chains(
    used: list[tuple[int, int]],
    count: int,
    g: Graph,
    bits: dict[int, int],
    above: list[int],
    updates: set[int],
    late: list[int],
) -> list[list[int]]:
    """Rows from the last layer to the first, or the second, each needed for the next.

    A product that ends in the weight's own update belongs to the layer too but leads no further.
    """
    left: dict[int, list[int]] = defaultdict(list)
    for row, k in sorted(used):
        left[k].append(row - g.first)
    out: list[list[int]] = []
    for start in left.get(count - 1, [])[:MOST_PASSES]:
        chain = [start]
        for k in range(count - 2, -1, -1):
            after = [r for r in left.get(k, []) if above[r] & bits[chain[-1]]]
            # the first layer's input may need no gradient: then the second layer is the last
            last = k == 0 or (k == 1 and not left.get(0))
            further = late if last else left.get(k - 1, [])
            onward = [r for r in after if any(above[o] & bits[r] for o in further if o != r)]
            # in the last it may lead nowhere: it is the one that is not for a weight
            gradient = [r for r in after if r + g.first not in updates]
            best = onward or (gradient or after if last else [])
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
    """One stack per pass over the gradients, from the complete chains."""
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
