"""Which rows that were placed in a layer do not belong to it, or to that of another pass."""

from __future__ import annotations

from collections import Counter, defaultdict

import numpy as np
from numpy.typing import NDArray

from ....hlo import opcodes
from ...base.labels.families import ID
from ...base.phases.edges import BACKWARD, FORWARD, REMATERIALISED, Phases
from ...base.table import Ints, Table
from .ends import looks_up
from .repeats import NEVER, Graph, Repeats
from .witness import weights


def free_lookups(t: Table, found: Repeats, signature: Ints) -> None:
    """Removes from the first layer a lookup that no other layer has: it is an embedding."""
    rows = np.flatnonzero((found.position >= 0) & (found.after < 0)) + found.first
    kinds = signature[found.first : found.first + len(found.position)]
    inside = Counter(kinds[found.position >= 0].tolist())
    for row in rows.tolist():
        if inside[int(signature[row])] == 1 and looks_up(t, np.array([row])):
            found.position[row - found.first] = -1


def to_gradients(
    phase: Phases, found: Repeats, recedes: list[bool], identity: list[list[int]]
) -> None:
    """Moves recomputation of a layer to the layer's gradient, whatever it is made from."""
    for n, stack in enumerate(found.stacks):
        pair = [m for m, i in enumerate(identity) if recedes[m] and set(i) <= set(identity[n])]
        if recedes[n] or not pair:
            continue
        to = {number: found.start[pair[0]] + k for k, number in enumerate(identity[pair[0]])}
        of = np.array([to.get(number, -1) for number in identity[n]], np.int64)
        at = found.position - found.start[n]
        mine = phase[found.first : found.first + len(at)]
        again = (at >= 0) & (at < stack.count) & np.isin(mine, (BACKWARD, REMATERIALISED))
        again[again] = of[at[again]] >= 0
        found.position[again] = of[at[again]]


def free_products(
    phase: Phases, family: NDArray[np.uint8], found: Repeats, recedes: list[bool]
) -> None:
    """Removes products of the other pass that the layers do not repeat.

    A teacher's layers have no gradient; a student that learns from each of them has products
    between them, and what those have in common with a layer is only its operand.
    """
    back = np.append(np.repeat(np.array(recedes), [s.count for s in found.stacks]), False)
    rows = np.arange(len(found.position)) + found.first
    other = np.where(back[found.position], FORWARD, BACKWARD)
    free = (found.position >= 0) & (phase[rows] == other) & (family[rows] == ID["matmul"])
    spine = np.array([row for s in found.stacks for steps in s.spine for row in steps])
    free[spine - found.first] = False
    found.position[free] = -1


def with_their_gradient(
    t: Table,
    c: int,
    phase: Phases,
    family: NDArray[np.uint8],
    signature: Ints,
    found: Repeats,
    recedes: list[bool],
) -> None:
    """Places gradients of weights beside the product that takes the same gradient on.

        dx = g·wᵀ    goes on to the layer before: found by repetition or by its weights
        dw = xᵀ·g    goes to the optimiser: it shares g with dx, and so does the bias

    Where g is what the layer behind passed on, nothing else shows which of the two has dw. If
    fusions hide g in some layers, those of the others show it.
    """
    if not any(recedes):
        return
    g = Graph(t, c)
    back = np.repeat(np.array(recedes), [s.count for s in found.stacks])
    own = [-1] * g.size  # positions of gradients; -2: the model's own
    for stack, begin in zip(found.stacks, found.start, strict=True):
        for steps in stack.spine:
            for k, row in enumerate(steps):
                own[row - g.first] = begin + k if back[begin + k] else -2
    rows = slice(g.first, g.first + g.size)
    late = phase[rows] == BACKWARD
    final = found.before == NEVER
    product = np.isin(family[rows], (ID["matmul"], ID["convolution"]))
    # An all-reduce of several layers' gradients makes one need the other; products say themselves.
    leaf = late & (product | final) & ~t.silent[rows] & (np.array(own) == -1)
    moves = t.by_opcode(opcodes.SAME_NUMBERS.__contains__, bool)[rows].tolist()
    root = list(range(g.size))
    takes: dict[int, int] = {}  # gradient → the layer whose product takes it on, -1 for several
    for v, u in zip(g.values, g.users, strict=True):
        if moves[u] and own[u] == -1:
            root[u] = root[v]
        elif own[u] >= 0 and late[v]:
            takes[root[v]] = own[u] if takes.get(root[v], own[u]) == own[u] else -1
    to: dict[int, int] = {}
    for v, u in zip(g.values, g.users, strict=True):
        if leaf[u]:
            p = takes.get(root[v])
            at = to.get(v, int(found.position[v])) if late[v] else -1
            if p is None and at >= 0 and back[at] and final[u]:
                # What is made of a layer's is the layer's, but not what comes after all of them:
                # the gradient of an embedding.
                moved = v in to and final[v] and found.position[u] >= 0
                if moved or max(found.position[u], found.after[u]) < at:
                    p = at
            if p is not None:
                to[u] = p if to.get(u, p) == p else -1
    of_layer = {i: p for i, p in to.items() if p >= 0}
    kind = signature[rows].tolist()
    shifts: dict[int, set[int]] = defaultdict(set)
    for i, p in of_layer.items():
        if product[i] and found.position[i] >= 0:
            shifts[kind[i]].add(p - int(found.position[i]))
    of_stack = np.repeat(np.arange(len(recedes)), [s.count for s in found.stacks])
    for i in np.flatnonzero(leaf & product & (found.position >= 0)).tolist():
        p = int(found.position[i])
        inside = of_stack[p : p + 2].tolist() == [of_stack[p]] * 2
        shown = i not in to and shifts[kind[i]] == {1}
        # of dx its own weights tell
        if inside and shown and not weights(t.instructions[g.first + i]):
            of_layer[i] = p + 1
    for i, p in of_layer.items():
        found.position[i] = p
