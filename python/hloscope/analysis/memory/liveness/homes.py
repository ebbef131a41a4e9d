"""Temporaries placed where an output is not yet written or a donated argument no longer read.

    donated argument  ├ read ┤  free window  ├ output ┤
    plain output          free window        ├ output ┤
    loop carry        ├ read ┤  free window  ├ next ┤      in each step, if it is an output

By size, largest first, then in post-order, each temporary goes into the place of an operand, else
into the smallest place (of equal ones, the last made) that is large enough and free for its whole
live range, as in ``BufferAssigner::AssignSingleHloBuffer``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt

from ....hlo import Shape
from ..limits import NEGLIGIBLE_SHARE, WINDOW_TRIES
from .liveness import Liveness
from .sharing import Sharing
from .values import OUTPUT, TEMP

# Free windows looked at for all temporaries together: some seconds.
MOST_WINDOWS = 100_000_000

Ints = npt.NDArray[np.int64]
# (size, host, last point before, first point after, buffer before, buffer after) of a free window
Window = tuple[int, int, int, int, int, int]


def homes(live: Liveness, sharing: Sharing) -> Ints:
    """For each buffer, the output or donated argument in whose place it is, or -1."""
    home = live.home.copy()
    free = _FreeWindows(_windows(live))
    if not free.used:
        return home
    start, end, size = live.start.tolist(), live.end.tolist(), live.size.tolist()
    position = _post_order(live)[live.defined_by]
    made = position.copy()  # of a place: that of the first value in it
    for _, host, _, _, _, after in free.windows():
        made[host] = min(made[host], position[after])
    temps = np.flatnonzero((live.kind == TEMP) & (live.size > 0) & (live.size <= free.largest))
    temps = temps[np.lexsort((position[temps], -live.size[temps]))]
    rest = np.cumsum(live.size[temps][::-1])[::-1]
    temps = temps[rest > NEGLIGIBLE_SHARE * float(live.size[live.kind != TEMP].sum())]
    made_by = live.module.instructions
    instants = {start[b] for b in temps.tolist() if start[b] == end[b]}
    several = _several_ranges(live)
    rank = ranks_of_places(free.columns[:2, : free.used], made)
    looked_at = 0
    for b in temps.tolist():
        if start[b] == end[b] and _is_element_on_tpu(made_by[int(live.defined_by[b])].shape):
            continue  # unused: XLA:TPU leaves it on the heap
        fits = free.fitting(size[b], start[b], end[b])
        looked_at += free.used
        if looked_at > MOST_WINDOWS:
            break  # what is left stays on the heap
        if len(fits) > WINDOW_TRIES:
            fits = _possible(fits, free.columns, b, live, sharing)
        mine = []
        if len(fits) > 1:
            mine = [h if (h := int(home[a])) >= 0 else a for a in sharing.whole_operands(b)]
        for w in best_first(fits, free.columns[1], rank, mine):
            _, host, opens, closes, before, after = free.columns[:, w].tolist()
            if live.space[host] != live.space[b]:
                continue
            if opens == start[b] and not (before >= 0 and sharing.follows(before, b)):
                continue
            if closes == end[b] and not sharing.follows(b, after, closes):
                continue
            home[b] = host
            free.take(w, b, several.get(b, [(start[b], end[b])]), instants)
            break
    return home


def _possible(fits: Ints, columns: Ints, b: int, live: Liveness, sharing: Sharing) -> Ints:
    """Windows whose neighbours may share their place with ``b`` where they touch it: decided for
    all at once, for there may be as many as buffers."""
    touches = columns[2, fits] == live.start[b]
    if touches.any():
        maker = live.module.instructions[int(live.defined_by[b])]
        fits = fits[~touches | np.isin(columns[4, fits], list(sharing.operands(maker)))]
    touches = columns[3, fits] == live.end[b]
    if touches.any():
        user = live.module.instructions[int(live.schedule[live.end[b]])]
        nodes = live.values.nodes(user) if b in sharing.operands(user) else range(0)
        fits = fits[~touches | np.isin(columns[5, fits], live.buffer_of[nodes.start : nodes.stop])]
    return fits


def _is_element_on_tpu(made: Shape) -> bool:
    """Whether a result is a tuple with tiled layouts, as on TPU."""
    return made.is_tuple and any(x.layout is not None and x.layout.tiles for x in made.leaves())


def ranks_of_places(windows: Ints, made: Ints) -> Ints:
    """For each place, its rank by size, then latest made first."""
    sizes, hosts = windows
    places, at = np.unique(hosts, return_index=True)
    pairs = np.stack([sizes[at], -made[places]], axis=1)
    out = np.zeros(len(made), np.int64)
    out[places] = np.unique(pairs, axis=0, return_inverse=True)[1].reshape(-1)
    return out


_GONE = np.iinfo(np.int64).max


def best_first(fits: Ints, hosts: Ints, rank: Ints, mine: list[int]) -> Iterator[int]:
    """Yield windows, those in the places of operands first, then by rank of their place."""
    if len(fits) < 2:
        yield from fits.tolist()
        return
    places = hosts[fits]
    keys = rank[places]
    for place in mine:
        keys[(places == place) & (keys >= 0)] -= len(rank)
    for _ in range(WINDOW_TRIES):
        best = int(keys.argmin())  # the first of equals
        if keys[best] == _GONE:
            return
        yield int(fits[best])
        keys[best] = _GONE
    order = np.argsort(keys, kind="stable")
    yield from fits[order[keys[order] < _GONE]].tolist()


class _FreeWindows:
    """Free windows as the columns of an array of six rows, which grows as windows are split."""

    def __init__(self, windows: list[Window]) -> None:
        self.used = len(windows)
        self.largest = max((w[0] for w in windows), default=0)
        self.columns = np.zeros((6, max(1, len(windows)) * 4), np.int64)
        if windows:
            self.columns[:, : self.used] = np.array(windows, np.int64).T

    def windows(self) -> list[list[int]]:
        found: list[list[int]] = self.columns[:, : self.used].T.tolist()
        return found

    def fitting(self, size: int, start: int, end: int) -> Ints:
        sizes, _, opens, closes = self.columns[:4, : self.used]
        return np.flatnonzero((opens <= start) & (closes >= end) & (sizes >= size))

    def take(
        self, row: int, b: int, ranges: list[tuple[int, int]], instants: Iterable[int]
    ) -> None:
        """Put ``b`` into a window; what stays free around and within it becomes new windows."""
        size, host, opens, closes, before, after = self.columns[:, row].tolist()
        lasts, firsts = [opens, *(e for _, e in ranges)], [*(f for f, _ in ranges), closes]
        befores, afters = [before] + [b] * len(ranges), [b] * len(ranges) + [after]
        # Windows that nothing can fit into are dropped, or a long chain would take quadratic time.
        parts = [
            (size, host, last, first, x, y)
            for last, first, x, y in zip(lasts, firsts, befores, afters, strict=True)
            if last < first or last in instants
        ]
        self.used -= 1
        self.columns[:, row] = self.columns[:, self.used]
        if self.used + len(parts) > self.columns.shape[1]:
            self.columns = np.hstack([self.columns, np.zeros_like(self.columns)])
        for part in parts:
            self.columns[:, self.used] = part
            self.used += 1


def _windows(live: Liveness) -> list[Window]:
    """Initial free windows in the places of outputs and donated arguments."""
    occupied: dict[int, list[tuple[int, int, int]]] = {}
    host = np.where(live.home >= 0, live.home, np.arange(len(live.home)))
    is_place = (live.kind == OUTPUT) & (live.size > 0)
    is_place[live.home[live.home >= 0]] = True
    is_place[[int(live.buffer_of[parameter]) for parameter, _ in live.values.donations()]] = True
    rows = live.ranges[is_place[live.ranges[:, 0]]]
    for b, first, last in rows[np.argsort(rows[:, 1], kind="stable")].tolist():
        occupied.setdefault(int(host[b]), []).append((first, last, b))
    out: list[Window] = []
    for place, there in occupied.items():
        before, opens = -1, -1
        for first, last, b in there:
            if before >= 0 or live.kind[place] == OUTPUT:
                out.append((int(live.size[place]), place, opens, first, before, b))
            before, opens = b, last
    return out


def _several_ranges(live: Liveness) -> dict[int, list[tuple[int, int]]]:
    """Ranges of each buffer that has more than one."""
    out: dict[int, list[tuple[int, int]]] = {}
    count = np.bincount(live.ranges[:, 0], minlength=1)
    for b, first, last in live.ranges[count[live.ranges[:, 0]] > 1].tolist():
        out.setdefault(b, []).append((first, last))
    return out


def _post_order(live: Liveness) -> Ints:
    """Position of each instruction in post-order: operands before users, first operand first."""
    order = np.zeros(len(live.module.instructions), np.int64)
    seen = bytearray(len(order))
    at = 0
    for computation in live.module.computations:
        if not live.values.calls.executed[computation.index] or computation.root is None:
            continue
        for start in (computation.root, *computation.instructions):
            stack = [start]
            while stack:
                i = stack[-1]
                if seen[i.index]:
                    stack.pop()
                    if seen[i.index] == 1:
                        seen[i.index] = 2
                        order[i.index] = at
                        at += 1
                    continue
                seen[i.index] = 1
                stack.extend(o for o in reversed(i.operands) if not seen[o.index])
    return order
