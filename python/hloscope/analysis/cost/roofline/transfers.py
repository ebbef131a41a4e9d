"""Steps and bytes of a collective on a torus and behind a switch: t = steps·α + bytes/β.

``bytes`` are what the busiest link carries in one direction, n is the number of devices of a
group and S the payload (operand or result, whichever is larger), in one execution.

    switch (ring)     all-gather, reduce-scatter   n-1 steps      (n-1)/n·S
                      all-reduce                   2(n-1)        2(n-1)/n·S
                      all-to-all                   n-1            (n-1)/n·S
                      permute, broadcast           1, n-1             S
    torus             the same bytes over every link of the axes used: 2 directions where an
                      axis wraps around, 1 if it is a line; ⌊n/2⌋ steps on a ring, n-1 on a
                      line, axes one after the other
                      all-to-all: half of all data crosses the middle of the longest axis
                      permute: as many steps as hops of the longest path; S times the number of
                      pairs whose paths share a link (axis by axis, the shorter way round)

A group that the near link does not span (GPUs of several nodes, TPUs of several slices) has k
members in each of N blocks. Each member gathers 1/k of the payload over the far link, then its
block gathers the rest over the near one; both run in parallel:

    near  k members, S            t = steps·α + steps'·α' + max(bytes/β, bytes'/β')
    far   N blocks, S/k each      (all-to-all and broadcast: S each)

Sources: Thakur, Rabenseifner, Gropp 2005 (ring and its cost in the alpha-beta model);
"How to Scale Your Model", chapters "Sharded Matrices" (bidirectional rings over several axes,
all-to-all a quarter of an all-gather, about 1 µs per hop) and "How to Think About GPUs"
(bytes · max over levels of (D-1)/(D·W), D blocks per level, W the bandwidth of a whole block).
"""

from __future__ import annotations

from dataclasses import dataclass
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from ....hlo import Target
from ....hlo.collective_kinds import KINDS
from ....hlo.shardings.devices import DeviceGroups
from ...comms.collective import Collective
from ..assumptions import BLOCK_SIZES
from .torus import Spanned, torus, torus_axes

StepsAndBytes = tuple[float, float]  # (steps, bytes of the busiest link)
_At = tuple[tuple[str, object] | None, str | None]  # groups, mesh axes


@dataclass(frozen=True, slots=True)
class Levels:
    """Near link, as a switch and as a torus, and far link; (0, 0) if not used."""

    switch: StepsAndBytes
    torus: StepsAndBytes
    far: StepsAndBytes


_UNKNOWN = Levels(*[(float("nan"), float("nan"))] * 3)


@dataclass(frozen=True, slots=True)
class Transfer:
    """Parameters of one execution of a collective; ``hardware`` turns them into seconds.

    ``start`` and ``done`` are instruction indices, equal if nothing can run in between.
    ``levels[k]`` is for a near link that reaches blocks of 2**k consecutive devices, the last
    one for a link that reaches all. ``torus_is_known``: the devices' physical coordinates are
    known; otherwise those of an ordinary slice of that many devices are assumed.
    """

    collective: int  # Collective.index, -1 for an exchange between slices
    start: int
    done: int
    levels: tuple[Levels, ...]
    torus_is_known: bool

    @property
    def wire_bytes(self) -> float:
        """What one device sends if all are behind one switch, or between slices; NaN if unknown."""
        return self.levels[-1].switch[1] + self.levels[-1].far[1]

    @property
    def is_far(self) -> bool:
        """Whether it uses only the far link: then it runs in parallel to near transfers."""
        return all(x.switch == x.torus == (0.0, 0.0) for x in self.levels)


def members_inside(groups: DeviceGroups | None) -> list[int]:
    """Most members of a group in one block, for blocks of 2**k consecutive devices.

    For pairs: 0 if some pair crosses blocks of that size, else 2.
    """
    if groups is None:
        return [1] * BLOCK_SIZES
    if groups not in _INSIDE:
        _INSIDE[groups] = _members_inside(groups)
    return _INSIDE[groups]


# The same for every chip that time is modelled on.
_INSIDE: WeakKeyDictionary[DeviceGroups, list[int]] = WeakKeyDictionary()


def _members_inside(groups: DeviceGroups) -> list[int]:
    if groups.pairs is not None:
        moving = groups.pairs
        inside = [bool((p := moving >> k).size == 0 or (p[:, 0] == p[:, 1]).all()) for k in _BLOCKS]
        return [2 if x else 0 for x in inside]
    rows: list[npt.NDArray[np.int64]] = (
        [groups.groups]
        if groups.groups is not None
        else [np.asarray([g], dtype=np.int64) for g in groups.ragged]
    )
    out = []
    for k in _BLOCKS:
        most = 1
        for r in rows:
            if r.size:
                blocks = np.sort(r >> k, axis=1)
                most = max(most, _longest_run(blocks))
        out.append(most)
    return out


_BLOCKS = range(BLOCK_SIZES)


def _longest_run(rows: npt.NDArray[np.int64]) -> int:
    """Length of the longest run of equal values in any sorted row."""
    first = np.ones(rows.shape, bool)
    first[:, 1:] = rows[:, 1:] != rows[:, :-1]
    return int(np.diff(np.flatnonzero(first), append=rows.size).max())


def ring(kind: str, n: int, payload: float) -> tuple[float, float]:
    """(steps, bytes) of a ring behind a switch; (0, 0) for groups of one."""
    known = KINDS[kind]
    if n < 2 and known.pattern != "pairs":
        return 0.0, 0.0
    return known.steps(n), known.wire_bytes(payload, n)


@dataclass(frozen=True, slots=True)
class _Group:
    spanned: Spanned
    inside: list[int]  # members in a block of 2**k
    in_slice: int  # members in one slice; the group's size if there is one slice


class TransferMaker:
    """Makes ``Transfer`` rows for one target; equal groups are computed once."""

    def __init__(self, target: Target, sliced: tuple[int, ...] = (1,)) -> None:
        self.target = target
        self._sliced = sliced  # assumed if the devices' positions are unknown
        self._groups: dict[_At, _Group] = {}
        self._levels: dict[tuple[_At, str, int, float], tuple[Levels, ...]] = {}
        self._slices = {d.partition: d.slice for d in target.devices}
        if len(set(self._slices.values())) < 2:
            self._slices = {}

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
        if row.wire_bytes is None and groups is None:  # unknown which devices communicate
            return Transfer(row.index, start, done, (_UNKNOWN,) * (BLOCK_SIZES + 1), True)
        size = groups.group_size if groups is not None else row.group_size
        at = groups.key if groups is not None else None, row.axes
        if at not in self._groups:
            self._groups[at] = _Group(
                torus_axes(groups, self.target, self._sliced),
                members_inside(groups),
                self._in_slice(groups, size),
            )
        group = self._groups[at]
        key = at, kind, size, payload
        if key not in self._levels:
            pairs = groups.pairs if groups is not None else None
            idle = pairs is not None and not (pairs[:, 0] != pairs[:, 1]).any()
            nothing = Levels((0.0, 0.0), (0.0, 0.0), (0.0, 0.0))
            self._levels[key] = (
                (nothing,) * (BLOCK_SIZES + 1) if idle else _levels(kind, size, payload, group)
            )
        return Transfer(row.index, start, done, self._levels[key], group.spanned.known)

    def _in_slice(self, groups: DeviceGroups | None, size: int) -> int:
        if not self._slices or groups is None:
            return max(1, size)
        rows = groups.groups if groups.groups is not None else groups.ragged
        if groups.pairs is not None:
            of = self._slices.get
            apart = any(of(int(a)) != of(int(b)) for a, b in groups.pairs)
            return 0 if apart else max(1, size)
        first = [self._slices.get(int(p)) for p in (rows[0] if len(rows) else ())]
        return first.count(first[0]) if first else size


def _levels(kind: str, size: int, payload: float, group: _Group) -> tuple[Levels, ...]:
    """For each reach of the near link, what it carries and what remains for the far one."""
    apart = group.in_slice < max(1, size)  # over several slices; pairs have no size
    inside = (group.in_slice if apart else n for n in (*group.inside, max(1, size)))
    return tuple(_split(kind, size, payload, group, held) for held in inside)


def _split(kind: str, size: int, payload: float, group: _Group, held: int) -> Levels:
    none = (0.0, 0.0)
    if KINDS[kind].pattern == "pairs":
        if held == 0:
            return Levels(none, none, ring(kind, size, payload))
        spanned = group.spanned
        near = torus(kind, [], payload, spanned.hops, spanned.load)
        return Levels(ring(kind, size, payload), near, none)
    near_axes = group.spanned.axes
    if held < size and int(np.prod([n for n, _ in near_axes])) != held:
        near_axes = [(held, True)]  # coordinates do not show it: assume one ring per block
    switch, on_torus = ring(kind, held, payload), torus(kind, near_axes, payload)
    if held >= size:
        return Levels(switch, on_torus, none)
    blocks = -(-size // held)
    whole = KINDS[kind].pattern != "ring"
    far = ring(kind, blocks, payload if whole else payload / held)
    return Levels(switch, on_torus, far)
