"""Steps and bytes of a collective on a torus and behind a switch: t = steps·α + bytes/β.

``bytes`` are what the busiest link carries one way, n the devices of a group, S the payload
(operand or result, whichever is larger), in one execution.

    switch (ring)     all-gather, reduce-scatter   n-1 steps      (n-1)/n·S
                      all-reduce                   2(n-1)        2(n-1)/n·S
                      all-to-all                   n-1            (n-1)/n·S
                      permute, broadcast           1, n-1             S
    torus             the same bytes over every link of the axes used: 2 directions where an
                      axis wraps around, 1 where it is a line; ⌊n/2⌋ steps on a ring, n-1 on a
                      line, axes one after the other
                      all-to-all: half of all data crosses the middle of the longest axis
                      permute: as many steps as hops, one link

Sources: Thakur, Rabenseifner, Gropp 2005 (ring and its cost in the alpha-beta model);
"How to Scale Your Model", chapter "Sharded Matrices" (bidirectional rings over several axes,
all-to-all a quarter of an all-gather, about 1 µs a hop).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..hlo import Target
from ..hlo.devices import DeviceGroups
from .collective import Collective

# Whether groups stay inside blocks of 2**k consecutive devices, for k in range(MAX_BLOCK):
# bit k of ``crosses`` is set when they do not.
MAX_BLOCK = 16


@dataclass(frozen=True, slots=True)
class Transfer:
    """Parameters of one execution of a collective; ``hardware`` turns them into seconds.

    ``start`` and ``done`` are instruction indices; equal when nothing can run in between.
    ``torus_is_known``: the physical coordinates of the devices were there; else each mesh axis
    is taken to lie along one wrapped axis of the torus.
    """

    collective: int  # Collective.index
    start: int
    done: int
    switch_steps: float
    switch_bytes: float
    torus_steps: float
    torus_bytes: float
    crosses: int
    torus_is_known: bool


def crosses(groups: DeviceGroups | None) -> int:
    """Bit k is set when some group spans two blocks of 2**k consecutive devices."""
    if groups is None:
        return 0
    if groups.pairs is not None:
        rows: list[npt.NDArray[np.int64]] = [groups.pairs] if len(groups.pairs) else []
    elif groups.groups is not None:
        rows = [groups.groups]
    else:
        rows = [np.asarray([g], dtype=np.int64) for g in groups.ragged]
    out = 0
    for k in range(MAX_BLOCK):
        if any(((r >> k).max(axis=1) != (r >> k).min(axis=1)).any() for r in rows if r.size):
            out |= 1 << k
    return out


def ring(kind: str, n: int, payload: float) -> tuple[float, float]:
    """(steps, bytes) of a ring behind a switch; nothing for groups of one."""
    if kind == "collective-permute":
        return 1.0, payload
    if n < 2:
        return 0.0, 0.0
    share = (n - 1) / n * payload
    if kind == "all-reduce":
        return 2.0 * (n - 1), 2 * share
    if kind == "collective-broadcast":
        return float(n - 1), payload
    return float(n - 1), share


def torus(
    kind: str, axes: list[tuple[int, bool]], payload: float, hops: int = 1
) -> tuple[float, float]:
    """(steps, bytes of the busiest link) on a torus.

    ``axes`` are (devices along the axis, wraps around) of each physical axis the group spans;
    ``hops`` the longest way of a permute.
    """
    if kind == "collective-permute":
        return float(hops), payload * max(1, hops) if hops > 1 else payload
    axes = [a for a in axes if a[0] > 1]
    if not axes:
        return 0.0, 0.0
    n = int(np.prod([size for size, _ in axes]))
    steps = float(sum(size // 2 if wraps else size - 1 for size, wraps in axes))
    lanes = sum(2 if wraps else 1 for _, wraps in axes)
    if kind in ("all-to-all", "ragged-all-to-all"):
        size, wraps = max(axes)
        # each device sends payload/n to each other; half of all data crosses the middle
        return steps, payload * size / (8 if wraps else 4)
    share = (n - 1) / n * payload / lanes
    if kind == "all-reduce":
        return 2 * steps, 2 * share
    return steps, share


def torus_axes(
    groups: DeviceGroups | None, target: Target, mesh_axes: str | None
) -> tuple[list[tuple[int, bool]], int, bool]:
    """(axes spanned, longest permute in hops, whether coordinates were known).

    An axis wraps around when the group covers it and it is 16 long, or a multiple of 4 in a
    3D slice: the slices whose links close (Google Cloud documentation, TPU v4 and v5e).
    """
    if groups is None:
        return [], 1, False
    coords = {d.partition: d.coords for d in target.devices if d.coords is not None}
    size = groups.group_size
    if not coords or len(coords) != len(target.devices):
        names = (mesh_axes or "").split("+") if mesh_axes else [""]
        if len(names) > 1:
            each = max(2, round(size ** (1 / len(names))))
            return [(each, True)] * len(names), 1, False
        return [(size, True)], 1, False
    where = np.array([coords[p] for p in sorted(coords)], np.int64)
    extent = where.max(axis=0) - where.min(axis=0) + 1
    closes = [
        int(e) == 16 or (int(e) % 4 == 0 and where.shape[1] == 3 and (extent > 1).sum() == 3)
        for e in extent
    ]
    if groups.pairs is not None:
        moving = groups.pairs[groups.pairs[:, 0] != groups.pairs[:, 1]]
        if not len(moving) or moving.max() >= len(where):
            return [], 1, bool(len(moving))
        apart = np.abs(where[moving[:, 0]] - where[moving[:, 1]])
        around = np.where(closes, np.minimum(apart, extent - apart), apart)
        return [], int(max(1, around.sum(axis=1).max())), True
    row = (
        groups.groups[0]
        if groups.groups is not None
        else np.asarray(groups.ragged[0] if groups.ragged else (), np.int64)
    )
    if not len(row) or row.max() >= len(where):
        return [(size, True)], 1, False
    held = where[row]
    axes = []
    for d in range(where.shape[1]):
        count = len(np.unique(held[:, d]))
        if count > 1:
            axes.append((count, bool(closes[d] and count == extent[d])))
    return axes or [(size, False)], 1, True


class TransferMaker:
    """Makes ``Transfer`` rows of one target; groups that read alike are worked out once."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self._groups: dict[tuple[str, str | None], tuple[list[tuple[int, bool]], int, bool]] = {}
        self._crosses: dict[str, int] = {}

    def make(
        self,
        row: Collective,
        start: int,
        done: int,
        kind: str,
        payload: float,
        groups: DeviceGroups | None,
    ) -> Transfer:
        """The parameters of one collective, or of one permute of a collective matmul."""
        size = groups.group_size if groups is not None else row.group_size
        key = groups.text if groups is not None else "-"
        if (key, row.axes) not in self._groups:
            self._groups[key, row.axes] = torus_axes(groups, self.target, row.axes)
            self._crosses[key] = crosses(groups)
        axes, hops, known = self._groups[key, row.axes]
        if groups is not None and groups.pairs is not None:
            pairs = groups.pairs
            if not (pairs[:, 0] != pairs[:, 1]).any():
                return Transfer(row.index, start, done, 0, 0, 0, 0, 0, known)
        steps, sent = ring(kind, size, payload)
        torus_steps, torus_bytes = torus(kind, axes, payload, hops)
        return Transfer(
            row.index, start, done, steps, sent, torus_steps, torus_bytes,
            self._crosses[key], known,
        )  # fmt: skip
