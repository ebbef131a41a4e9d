"""Differences as text: totals, what changed, then instructions, at most ``limit`` of each kind."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from ...hlo.texts.listed import and_more
from ...hlo.texts.places import whole_place
from ..text.units import count, duration, printed, quantity, size
from .differences import Change, CollectiveChange, CollectiveItem, Delta, Differences, Item, Place

LIMIT = 40  # instructions of each kind
DONATED = 6  # arguments


def text(diff: Differences, limit: int = LIMIT) -> str:
    """For a terminal: control characters of names are escaped."""
    return printed(_lines(diff, limit))


def amount(value: float | None, unit: str) -> str:
    """``12 MiB``, ``1,234``, ``unknown``."""
    if value is None:
        return "unknown"
    if unit == "B":
        return size(value)
    if unit == "s":
        return duration(value)
    return quantity(value, unit) if unit == "FLOP" else count(value)


def signed(delta: Delta) -> str:
    """``+12.0 MiB (+3.1 %)``; '' without a change."""
    change = delta.change
    if not change:
        return "" if change is not None else "unknown"
    sign = "+" if change > 0 else "-"
    text = f"{sign}{amount(abs(change), delta.unit)}"
    if not delta.a:
        return text
    share = f"{change / delta.a:+.1%}"
    return text if share.strip("+-") == "0.0%" else f"{text} ({share})"


def _lines(diff: Differences, limit: int) -> Iterator[str]:
    yield f"a: {diff.title_a}"
    yield f"b: {diff.title_b}"
    if not diff:
        yield f"no difference: {diff.matched:,} instructions match"
        return
    yield from donated_text(diff)
    yield (
        f"{diff.matched:,} instructions match, {len(diff.changed):,} of them changed; "
        f"{len(diff.removed):,} removed, {len(diff.added):,} added"
        + (f"; {diff.plumbing:,} more in tuples and their elements" if diff.plumbing else "")
    )
    for title, deltas in (
        ("totals", [d for d in diff.totals if d.change != 0]),
        ("collectives, wire bytes per device", diff.collectives),
    ):
        yield from _table(title, deltas, limit)
    for title, places in (("by source line", diff.lines), ("by scope", diff.scopes)):
        yield from _section(title, map(place_text, places), min(limit, 12))
    changes = (
        f"{change_text(c)}{f', {n:,} alike' if n > 1 else ''}"
        for c, n in Counter(diff.changed_collectives).items()
    )
    yield from _section("changed collectives", changes, limit)
    for side, items in (("a", diff.removed_collectives), ("b", diff.added_collectives)):
        lines = (_collective(c, count) for c, count in Counter(items).items())
        yield from _section(f"collectives only in {side}", lines, limit)
    for title, deltas in (
        ("memory live at the peak", diff.memory),
        ("fusions", diff.fusions),
        ("opcodes", diff.opcodes),
    ):
        yield from _table(title, deltas, limit)
    yield from _section("changed", map(_change, diff.changed), limit)
    yield from _section("removed", map(item_text, diff.removed), limit)
    yield from _section("added", map(item_text, diff.added), limit)


def donated_text(diff: Differences, sides: tuple[str, str] = ("in a", "in b")) -> list[str]:
    """``donated only in b: params, mean``; nothing where both donate the same."""
    return [
        f"donated only {side}: {', '.join(names[:DONATED])}{and_more(len(names) - DONATED)}"
        for side, names in zip(sides, diff.donated, strict=True)
        if names
    ]


def _table(title: str, deltas: Iterable[Delta], limit: int) -> Iterator[str]:
    rows = [(d.name, amount(d.a, d.unit), amount(d.b, d.unit), signed(d)) for d in deltas]
    wide = [max((len(r[k]) for r in rows), default=0) for k in range(3)]
    lines = (
        f"{n:<{wide[0]}}  {a:>{wide[1]}} → {b:>{wide[2]}}  {change}" for n, a, b, change in rows
    )
    yield from _section(title, lines, limit)


def _section(title: str, lines: Iterable[str], limit: int) -> Iterator[str]:
    found = list(lines)
    if not found:
        return
    yield ""
    yield f"{title}:"
    for line in found[:limit]:
        yield f"  {line}"
    if len(found) > limit:
        yield f"  …{and_more(len(found) - limit)}"


def item_text(item: Item) -> str:
    """``%dot.3 = f32[8,4] dot  in main.1  train.py:31``."""
    inside = f" with {item.inside:,} instructions inside" if item.inside else ""
    where = whole_place(item.line) or item.op_name
    where = f"  {where}" if where else ""
    return f"%{item.name} = {item.shape} {item.opcode}{inside}  in {item.computation}{where}"


def place_text(place: Place) -> str:
    """``train.py:31 x @ w: 1.2 ms → 2.4 ms, wire 0 B → 12 MiB``."""
    return f"{place.name}: " + ", ".join(place_parts(place))


def place_parts(place: Place) -> Iterator[str]:
    """What differs of a place, one phrase each."""
    rows = (
        ("", "s", place.seconds),
        ("wire ", "B", place.wire_bytes),
        ("at the peak ", "B", place.live_bytes),
    )
    for word, unit, pair in rows:
        if pair is None or None in pair:
            continue
        if amount(pair[0], unit) != amount(pair[1], unit):
            yield f"{word}{amount(pair[0], unit)} → {amount(pair[1], unit)}"


def _change(change: Change) -> str:
    fields = "; ".join(f"{k}: {a or '(none)'} → {b or '(none)'}" for k, a, b in change.fields)
    name = f"%{change.a.name}"
    if change.b.name != change.a.name:
        name += f" (%{change.b.name})"
    where = whole_place(change.b.line or change.a.line)
    return f"{name} {change.a.opcode}  {fields}" + (f"  {where}" if where else "")


def change_text(change: CollectiveChange) -> str:
    """``all-to-all over e: 32 KiB → 64 KiB, 28 KiB → 56 KiB on the wire  moe.py:10``."""
    a, b = change.a, change.b
    name = f"{a.kind} over {a.axes}"
    if (a.kind, a.axes) != (b.kind, b.axes):
        name += f" → {b.kind} over {b.axes}"
    where = whole_place(b.line or a.line)
    return f"{name}: {', '.join(change_parts(change))}" + (f"  {where}" if where else "")


def change_parts(change: CollectiveChange) -> Iterator[str]:
    """What differs besides kind and axes, one phrase each; its size if nothing does."""
    a, b = change.a, change.b
    if a.payload_bytes != b.payload_bytes:
        yield f"{size(a.payload_bytes)} → {size(b.payload_bytes)}"
    else:
        yield size(a.payload_bytes)
    if a.wire_bytes != b.wire_bytes:
        yield f"{amount(a.wire_bytes, 'B')} → {amount(b.wire_bytes, 'B')} on the wire"
    if a.executions != b.executions:
        yield f"{amount(a.executions, '')} → {amount(b.executions, '')} executions"


def _collective(c: CollectiveItem, count: int) -> str:
    times = "" if c.executions in (None, 1) else f" × {c.executions}"
    wire = "" if c.wire_bytes is None else f", {size(c.wire_bytes)} on the wire"
    where = f"  {whole_place(c.line)}" if c.line else ""
    alike = f"{count:,} alike, each " if count > 1 else ""
    return f"{c.kind} over {c.axes}: {alike}{size(c.payload_bytes)}{wire}{times}{where}"
