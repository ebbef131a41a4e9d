"""Rounds inside layers: a stack of 12 that is 4 layers with 3 rounds of routing each.

    w[0] ─ round round round ─ w[1] ─ round round round ─ …

Rounds have no weights of their own. Where products with numbered weights stand before or after
every third of them, those number the layers, and three rounds are part of one.
"""

from __future__ import annotations

from collections import defaultdict

from ...base.table import Ints, Table
from .repeats import Stack
from .witness import numbers, runs


def with_rounds(
    t: Table, stacks: tuple[Stack, ...], rows: Ints, signature: Ints
) -> tuple[Stack, ...]:
    """``stacks`` with rounds joined to the layers they are in; ``rows`` are all anchors."""
    if not any(s.count >= 4 and _nameless(t, s) for s in stacks):
        return stacks
    taken = {r for s in stacks for sig in s.spine for r in sig}
    alike: dict[int, list[int]] = defaultdict(list)
    for r in rows.tolist():
        if r not in taken:
            alike[int(signature[r])].append(r)
    return tuple(_joined(t, s, list(alike.values())) for s in stacks)


def _nameless(t: Table, stack: Stack) -> bool:
    """Whether no products of the stack have numbered weights."""
    return not any(numbers(t, r) for sig in stack.spine for r in sig)


def _joined(t: Table, stack: Stack, alike: list[list[int]]) -> Stack:
    n = stack.count
    if n < 4 or not _nameless(t, stack):
        return stack
    ends = [(min(rows), max(rows)) for rows in zip(*stack.spine, strict=True)]
    for weighted in alike:
        rounds, rest = divmod(n, len(weighted))
        if rest or rounds < 2 or len(weighted) < 2 or len(runs(t, weighted)) != 1:
            continue
        blocks = [
            (ends[k][0], ends[k + rounds - 1][1]) for k in range(0, n, rounds)
        ]  # first and last row of each layer's rounds
        before = _between(weighted, blocks)
        if before or _between([-r for r in weighted[::-1]], [(-b, -a) for a, b in blocks[::-1]]):
            split = tuple(sig[k::rounds] for k in range(rounds) for sig in stack.spine)
            spine = (tuple(weighted), *split) if before else (*split, tuple(weighted))
            return Stack(stack.computation, spine)
    return stack


def _between(weighted: list[int], blocks: list[tuple[int, int]]) -> bool:
    """Whether each row comes before its block and after the block in front of it."""
    after = [-1 << 62, *(b for _, b in blocks)]
    return all(a < w < b for a, w, (b, _) in zip(after, weighted, blocks, strict=False))
