"""What two programs cost by source line and by scope, where that differs.

A line is identified by its file, function and text if the source was kept, so that an edit
above it is not a difference; otherwise by its number.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable

import numpy as np

from ...hlo.texts.places import base_name, is_cell, short_place
from ..base.captured import Captured
from ..base.lines.op_name import parse_op_name
from ..cost.cost import estimated
from ..report.source import source
from ..text.units import duration, size
from .differences import Place

Sums = dict[str, list[float]]  # name -> [seconds, wire bytes, live bytes]
_DEPTH = 2  # how many scopes name a place


def by_line(a: Captured, b: Captured) -> tuple[Place, ...]:
    """Lines of the user's own code whose time, wire or live bytes differ, largest change first."""
    return _places(a, b, _lines, live=True)


def by_scope(a: Captured, b: Captured) -> tuple[Place, ...]:
    """Scopes, such as layers, whose time or wire bytes differ, largest change first."""
    return _places(a, b, _scopes, live=False)


def _places(
    a: Captured, b: Captured, sums: Callable[[Captured, dict[str, str]], Sums], *, live: bool
) -> tuple[Place, ...]:
    if any(p.module.dialect != "hlo" or p.module.entry is None for p in (a, b)):
        return ()
    timed = [estimated(p.module, p.target).roofline is not None for p in (a, b)]
    names: dict[str, str] = {}
    left, right = sums(a, names), sums(b, names)
    none = [0.0, 0.0, 0.0]
    out = []
    for key in {**left, **right}:
        x, y = left.get(key, none), right.get(key, none)
        place = Place(
            names[key],
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


def _lines(p: Captured, names: dict[str, str]) -> Sums:
    out: Sums = defaultdict(lambda: [0.0, 0.0, 0.0])
    for line in source(p.module, p.target).lines:
        own = line.own
        if not (own.seconds or own.wire_bytes or own.live_bytes):
            continue
        # a cell that ran again has another number
        file = "notebook cell" if is_cell(line.file) else base_name(line.file)
        text = (line.text or "").strip()
        key = f"{file}\n{line.function}\n{text or line.line}"
        names[key] = short_place(line.file, line.line) + (f" {text[:80]}" if text else "")
        for k, v in enumerate((own.seconds, own.wire_bytes, own.live_bytes)):
            out[key][k] += v
    return out


def _scopes(p: Captured, names: dict[str, str]) -> Sums:
    cost = estimated(p.module, p.target)
    r = cost.roofline
    seconds = np.zeros(len(cost.runs)) if r is None else np.nan_to_num(r.step_seconds)
    wire = np.zeros(len(cost.runs))
    for t in cost.transfers:
        wire[t.start] += np.nan_to_num(t.wire_bytes) * cost.runs[t.start]
    out: Sums = defaultdict(lambda: [0.0, 0.0, 0.0])
    for n in np.flatnonzero((seconds > 0) | (wire > 0)).tolist():
        path = parse_op_name(p.module.instructions[n].op_name)
        key = "/".join(p.strip("\x1f()") for p in path[:_DEPTH]) if path else "no scope"
        names[key] = key
        out[key][0] += float(seconds[n])
        out[key][1] += float(wire[n])
    return out
