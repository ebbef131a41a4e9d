"""What two programs cost by source line and by scope, where that differs.

A line is identified by its file, function and text if the source was kept, so that an edit
above it is not a difference; otherwise by its number.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from ...hlo.texts.places import base_name, is_cell, short_place
from ..base.captured import Captured
from ..base.lines.op_name import parse_op_name
from ..cost.cost import estimated
from ..report.source import source
from ..text.units import duration, size
from .differences import Place

Pairs = Sequence[tuple[int, int]]


@dataclass(eq=False)
class _Found:
    """Places of one program by a key that identifies them in both."""

    sums: dict[str, list[float]] = field(default_factory=lambda: defaultdict(lambda: [0.0] * 3))
    names: dict[str, str] = field(default_factory=dict)
    of: dict[int, str] = field(default_factory=dict)  # instruction → key

    def add(self, key: str, name: str, figures: Iterable[float]) -> None:
        """Adds seconds, wire bytes and live bytes."""
        self.names[key] = name
        for k, v in enumerate(figures):
            self.sums[key][k] += v


_DEPTH = 2  # how many scopes name a place


def by_line(a: Captured, b: Captured, pairs: Pairs) -> tuple[Place, ...]:
    """Lines of the user's own code whose time, wire or live bytes differ, largest change first.

    ``pairs``: matching instructions by index, which show what was renamed.
    """
    return _places(a, b, _lines, pairs, live=True)


def by_scope(a: Captured, b: Captured, pairs: Pairs) -> tuple[Place, ...]:
    """Scopes, such as layers, whose time or wire bytes differ, largest change first."""
    return _places(a, b, _scopes, pairs, live=False)


def _places(
    a: Captured, b: Captured, found: Callable[[Captured], _Found], pairs: Pairs, *, live: bool
) -> tuple[Place, ...]:
    if any(p.module.dialect != "hlo" or p.module.entry is None for p in (a, b)):
        return ()
    timed = [estimated(p.module, p.target).roofline is not None for p in (a, b)]
    left, right = found(a), found(b)
    renamed = _renamed(left, right, pairs)
    new = set(renamed.values())
    none = [0.0, 0.0, 0.0]
    out = []
    for key in (*left.sums, *(k for k in right.sums if k not in left.sums and k not in new)):
        other = renamed.get(key, key)
        x, y = left.sums.get(key, none), right.sums.get(other, none)
        before, after = left.names.get(key, ""), right.names.get(other, "")
        place = Place(
            f"{before} → {after}" if key in renamed else after or before,
            (x[0] if timed[0] else None, y[0] if timed[1] else None),
            (x[1], y[1]),
            (x[2], y[2]) if live else None,
        )
        if _differs(place):
            out.append(place)
    out.sort(
        key=lambda p: (-abs(p.seconds_change), -abs(p.wire_bytes[1] - p.wire_bytes[0]), p.name)
    )
    return tuple(out)


def _differs(place: Place) -> bool:
    """Whether the figures differ as they are shown, so after rounding."""
    s, w, live = place.seconds, place.wire_bytes, place.live_bytes
    if s[0] is not None and s[1] is not None and duration(s[0]) != duration(s[1]):
        return True
    return size(w[0]) != size(w[1]) or (live is not None and size(live[0]) != size(live[1]))


def _renamed(left: _Found, right: _Found, pairs: Pairs) -> dict[str, str]:
    """Places of one program only → those of the other that most of their instructions are on."""
    votes: Counter[tuple[str, str]] = Counter()
    for i, j in pairs:
        key, other = left.of.get(i), right.of.get(j)
        if key is None or other is None or key in right.sums or other in left.sums:
            continue
        votes[key, other] += 1
    own = Counter(left.of.values())
    out: dict[str, str] = {}
    taken: set[str] = set()
    for (key, other), count in votes.most_common():
        if key not in out and other not in taken and 2 * count >= own[key]:
            out[key] = other
            taken.add(other)
    return out


def _lines(p: Captured) -> _Found:
    out = _Found()
    for line in source(p.module, p.target).lines:
        own = line.own
        if not (own.seconds or own.wire_bytes or own.live_bytes):
            continue
        # a cell that ran again has another number
        file = "notebook cell" if is_cell(line.file) else base_name(line.file)
        text = (line.text or "").strip()
        key = f"{file}\n{line.function}\n{text or line.line}"
        name = short_place(line.file, line.line) + (f" {text[:80]}" if text else "")
        out.add(key, name, (own.seconds, own.wire_bytes, own.live_bytes))
        out.of |= dict.fromkeys(line.instructions, key)
    return out


def _scopes(p: Captured) -> _Found:
    cost = estimated(p.module, p.target)
    r = cost.roofline
    seconds = np.zeros(len(cost.runs)) if r is None else np.nan_to_num(r.step_seconds)
    wire = np.zeros(len(cost.runs))
    for t in cost.transfers:
        wire[t.start] += np.nan_to_num(t.wire_bytes) * cost.runs[t.start]
    out = _Found()
    for n in np.flatnonzero((seconds > 0) | (wire > 0)).tolist():
        path = parse_op_name(p.module.instructions[n].op_name)
        key = "/".join(p.strip("\x1f()") for p in path[:_DEPTH]) if path else "no scope"
        out.add(key, key, (float(seconds[n]), float(wire[n])))
        out.of[n] = key
    return out
