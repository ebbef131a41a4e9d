"""Collectives on a torus: axes that a group spans, paths of a permute, steps and bytes per link.

    x ─ x ─ x ─ x     a line of 4: 3 steps, in one direction
    └───────────┘     a ring of 4: 2 steps, in both directions at once

The formulas and their sources are in ``transfers.py``.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np

from ....hlo import Target
from ....hlo.collective_kinds import KINDS, part
from ....hlo.shardings.devices import DeviceGroups
from ..assumptions import CUBE_SIDE, WRAPPING_AXIS


def torus(
    kind: str, axes: list[tuple[int, bool]], payload: float, hops: int = 1, load: int = 1
) -> tuple[float, float]:
    """(steps, bytes of the busiest link) on a torus.

    ``axes`` are (devices along the axis, wraps around) of each physical axis the group spans;
    ``hops`` is the longest path of a permute and ``load`` the number of paths on its busiest link.
    """
    known = KINDS[kind]
    if known.pattern == "pairs":
        return float(hops), payload * load
    axes = [a for a in axes if a[0] > 1]
    if not axes:
        return 0.0, 0.0
    n = int(np.prod([size for size, _ in axes]))
    steps = float(sum(size // 2 if wraps else size - 1 for size, wraps in axes))
    lanes = sum(2 if wraps else 1 for _, wraps in axes)
    if known.pattern == "exchange":
        size, wraps = max(axes)
        # each device sends payload/n to each other; half of all data crosses the middle
        return steps, payload * size / (8 if wraps else 4)
    return known.passes * steps, known.passes * part(payload, n) / lanes


@dataclass(frozen=True, slots=True)
class Spanned:
    """Where a group is on the torus: axes as ``torus`` takes them, or paths of a permute."""

    axes: list[tuple[int, bool]]
    hops: int = 1
    load: int = 1
    known: bool = False


def assumed_slice(count: int, dimensions: int) -> tuple[int, ...]:
    """The usual slice of this many devices, such as 4×4 for 16 in two dimensions; sizes ascend.

    Sizes are as equal as powers of two allow (Google Cloud documentation, TPU v5e and v5p).
    """
    sizes = [1] * max(1, dimensions)
    while count > 1:
        part = 2 if count % 2 == 0 else count
        at = sizes.index(min(sizes))
        sizes[at] *= part
        count //= part
    return tuple(sorted(sizes))


def assumed_axes(size: int, sliced: tuple[int, ...]) -> list[tuple[int, bool]]:
    """Axes of an assumed slice that a group of ``size`` spans, wrapping as in a real one."""
    cubes = len(sliced) == 3 and all(s % CUBE_SIDE == 0 for s in sliced)
    rest, out = size, []
    exact = [s for s in sliced if s == size]
    for whole in exact[:1] or sorted(sliced, reverse=True):
        part = math.gcd(rest, whole)
        if part > 1:
            out.append((part, part == whole and (whole == WRAPPING_AXIS or cubes)))
            rest //= part
    return out if rest == 1 else [(size, False)]


def torus_axes(
    groups: DeviceGroups | None, target: Target, sliced: tuple[int, ...] = (1,)
) -> Spanned:
    """What a group spans, by the devices' coordinates; if unknown, in the slice ``sliced``.

    An axis wraps around if the group covers it and it is 16 long, or all three axes of a 3D
    slice are multiples of 4: such slices have wraparound links (Google Cloud documentation, TPU
    v4 and v5e; "How to Scale Your Model", "How to Think About TPUs"). For a group over several
    slices, only the part in one slice counts.
    """
    if groups is None:
        return Spanned([])
    coords = {d.partition: d.coords for d in target.devices if d.coords is not None}
    size = groups.group_size
    if not coords or len(coords) != len(target.devices):
        return Spanned(assumed_axes(size, sliced))
    where = np.array([coords[p] for p in sorted(coords)], np.int64)
    extent = where.max(axis=0) - where.min(axis=0) + 1
    cubes = where.shape[1] == 3 and bool(((extent % CUBE_SIDE == 0) & (extent > 1)).all())
    closes = [int(e) == WRAPPING_AXIS or cubes for e in extent]
    if groups.pairs is not None:
        moving = groups.pairs[groups.pairs[:, 0] != groups.pairs[:, 1]]
        if not len(moving) or moving.max() >= len(where):
            return Spanned([], known=bool(len(moving)))
        hops, load = _ways(where[moving[:, 0]], where[moving[:, 1]], extent.tolist(), closes)
        return Spanned([], hops, load, True)
    row = (
        groups.groups[0]
        if groups.groups is not None
        else np.asarray(groups.ragged[0] if groups.ragged else (), np.int64)
    )
    if not len(row) or row.max() >= len(where):
        return Spanned([(size, True)])
    slices = {d.partition: d.slice for d in target.devices}
    row = np.array([p for p in row if slices[int(p)] == slices[int(row[0])]], np.int64)
    held = where[row]
    axes = []
    for d in range(where.shape[1]):
        count = len(np.unique(held[:, d]))
        if count > 1:
            axes.append((count, bool(closes[d] and count == extent[d])))
    return Spanned(axes or [(len(row), False)], known=True)


def _ways(sources: Any, targets: Any, extent: list[int], closes: list[bool]) -> tuple[int, int]:
    """(hops of the longest path, paths on the busiest link) of pairs, dimension by dimension."""
    longest = 1
    links: Counter[tuple[Any, ...]] = Counter()
    low = np.minimum(sources.min(axis=0), targets.min(axis=0))
    for source, target in zip((sources - low).tolist(), (targets - low).tolist(), strict=True):
        at, hops = list(source), 0
        for d, size in enumerate(extent):
            away = target[d] - at[d]
            if closes[d] and 2 * abs(away) > size:
                away -= size if away > 0 else -size
            step = 1 if away > 0 else -1
            for _ in range(abs(away)):
                links[(*at, d, step)] += 1
                at[d] = (at[d] + step) % size if closes[d] else at[d] + step
            hops += abs(away)
        longest = max(longest, hops)
    return longest, max(links.values(), default=1)
