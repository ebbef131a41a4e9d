"""Runs and what is on the devices, each as a ``PlanView`` of js/plan/view.ts."""

from __future__ import annotations

from functools import singledispatch
from statistics import median
from typing import Any

from ...analysis.base.lines.lines import lines
from ...analysis.text.units import MINUS, UNKNOWN, duration, size
from ...api.live import Beside, Live, LiveArrays, LiveChange, LiveDiff
from ...api.run_times import RunTimes
from ...hlo import StackFrame
from ...hlo.texts.places import is_library, short_line, short_place
from .page import mimebundle, page

# Rows of a table that a browser sorts at once, and bars that are read at a glance.
LISTED = 2_000
BARS = 12
# Holders with a bar part of their own, as many as the style sheet has colours beside two.
HOLDERS = 6

Section = dict[str, Any]


@singledispatch
def view(result: Any) -> dict[str, Any]:
    """The page of a result: {"title", "sections"}."""
    raise TypeError(f"{type(result).__name__} has no page")


def page_of(result: Any) -> str:
    """The page of a result, as text."""
    made = view(result)
    return page(made["title"], made, str(result))


def bundle(result: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """(data, metadata) of a result in a notebook."""
    made = view(result)
    return mimebundle(made["title"], made, str(result))


@view.register
def _(found: RunTimes) -> dict[str, Any]:
    low, high = found.spread
    call = median(found.call_seconds)
    rows = [
        ["a run", f"{duration(found.median_seconds)}, the median of {len(found.seconds):,}"],
        ["half of the runs", f"{duration(low)} to {duration(high)}"],
        ["all", f"{duration(min(found.seconds))} to {duration(max(found.seconds))}"],
        ["the call returns after", duration(call)],
        ["devices work", f"{duration(found.device_seconds)} of a profiled run"],
        ["no operation runs", f"{found.idle_share:.0%} of a run"],
        ["modelled", found.modelled or UNKNOWN],
    ]
    works = min(found.device_seconds, found.median_seconds)
    bars: list[tuple[str, list[float]]] = [
        ("a run, median", [works, found.median_seconds - works, 0, 0]),
        ("until the call returned", [0, 0, call, 0]),
    ]
    if found.modelled_seconds is not None and found.cost.hardware is not None:
        modelled = [0.0, 0.0, 0.0, found.modelled_seconds]
        bars.append((f"modelled, {found.cost.hardware.label}", modelled))
    sections = [
        _facts(rows, str(found)),
        {
            "type": "bars",
            "title": "A run",
            "note": _sentence(found.verdict),
            "unit": "s",
            "parts": ["the devices work", "no operation runs", "the call", "modelled"],
            "rows": [{"name": name, "values": values} for name, values in bars],
        },
        _operations(found),
        *_each_run(found),
    ]
    return {"title": f"Runs of {found.measured.module.name}", "sections": sections}


def _each_run(found: RunTimes) -> list[Section]:
    """The runs in their order: a point and a row each."""
    seconds = found.seconds[:LISTED]
    points = [
        {"id": k, "x": k + 1, "y": s, "label": f"run {k + 1:,}", "front": True}
        for k, s in enumerate(seconds)
    ]
    return [
        {
            "type": "scatter",
            "title": "Each run",
            "note": "Measured without the profiler, in order, after one to warm up.",
            "x": {"name": "run"},
            "y": {"name": "until all is done", "unit": "s"},
            "points": points,
        },
        {
            "type": "table",
            "title": "Runs",
            "columns": [
                {"name": "run"},
                {"name": "until all is done", "unit": "s"},
                {"name": "until the call returned", "unit": "s"},
            ],
            "rows": [[k + 1, s, found.call_seconds[k]] for k, s in enumerate(seconds)],
            "ids": list(range(len(seconds))),
        },
    ]


def _operations(found: RunTimes) -> Section:
    measured, module = found.measured, found.measured.module
    seconds = measured.step_seconds.mean(axis=0)
    total, chip = measured.total_seconds, found.cost.hardware
    own = lines(module)
    order = [int(n) for n in (-seconds).argsort(kind="stable") if seconds[n] > 0]
    rows: list[list[Any]] = []
    for n in order[:LISTED]:
        i = module.instructions[n]
        at = own.of(i)
        modelled: Any = found.cost.row(i).seconds
        times: Any = seconds[n] / modelled if modelled else None
        if modelled == 0:  # what runs inside has the time
            modelled = times = ""
        rows.append(
            [
                f"%{i.name}", i.opcode, "" if at is None else short_place(at.file, at.line),
                float(seconds[n]), 100 * float(seconds[n] / total),
                float(measured.counts[:, n].mean()), modelled, times,
            ]
        )  # fmt: skip
    more = len(order) - len(rows)
    return {
        "type": "table",
        "title": "Operations",
        "note": f"From the profile of {measured.steps:,} runs: seconds of a run, the mean over"
        " devices, without what runs inside."
        + (f" Measured where it ran, modelled for {chip.label}." if chip else "")
        + (f" {more:,} more are not listed." if more else ""),
        "columns": [
            {"name": "instruction"}, {"name": "opcode"}, {"name": "line"},
            {"name": "measured", "unit": "s"}, {"name": "share", "unit": "%"},
            {"name": "times a run"}, {"name": "modelled", "unit": "s"},
            {"name": "measured / modelled"},
        ],
        "rows": rows,
    }  # fmt: skip


@view.register
def _(found: Live) -> dict[str, Any]:
    what = "arrays" if found.source == "jax.live_arrays" else "buffers"
    facts = [
        [what, f"{sum(row.count for row in found):,}"],
        ["bytes", size(found.total_bytes)],
        ["devices", f"{len(found.devices):,}"],
        ["most on one", size(max((d.array_bytes for d in found.devices), default=0))],
        ["from", found.source],
    ]
    sections = [_facts(facts, str(found), " ".join(found.notes))]
    if len(found):
        sections += [*_devices(found, what), _by_line(found, what), _arrays(found, what)]
    return {"title": "What is on the devices", "sections": sections}


def _devices(found: Live, what: str) -> list[Section]:
    reports = any(d.in_use_bytes is not None for d in found.devices)
    parts = [what, *(["in use beside them", "free"] if reports else [])]
    ordered = sorted(found.devices, key=lambda d: -(d.in_use_bytes or d.array_bytes))
    bars = []
    for d in ordered[:BARS]:
        values = [d.array_bytes]
        if reports:
            used = max(d.array_bytes, d.in_use_bytes or 0)
            values += [used - d.array_bytes, max(0, (d.limit_bytes or used) - used)]
        bars.append({"name": d.device, "values": values})
    rest = len(ordered) - len(bars)
    notes = [] if reports else ["Devices of this kind do not report what else is in use."]
    if rest > 0:
        notes.append(f"{rest:,} more hold less.")
    made: list[Section] = [
        {
            "type": "bars",
            "title": "Devices",
            "note": " ".join(notes),
            "unit": "B",
            "parts": parts,
            "rows": bars,
        }
    ]
    if reports:
        columns = ["device", what, "in use", "peak", "limit", "largest free block"]
        made.append(
            {
                "type": "table",
                "title": "What they report",
                "columns": [{"name": n, **({"unit": "B"} if k else {})}
                            for k, n in enumerate(columns)],
                "rows": [
                    [d.device, d.array_bytes, d.in_use_bytes, d.peak_bytes, d.limit_bytes,
                     d.largest_free_bytes]
                    for d in found.devices[:LISTED]
                ],
            }
        )  # fmt: skip
    return made


def _by_line(found: Live, what: str) -> Section:
    by_line = list(found.by_line.items())
    rest = sum(held for _, held in by_line[BARS:])
    bars = [(short_line(line) or "line unknown", held) for line, held in by_line[:BARS]]
    if rest:
        bars.append((f"{len(by_line) - BARS:,} more lines", rest))
    return {
        "type": "bars",
        "title": "Lines that made them",
        "unit": "B",
        "parts": [what],
        "rows": [{"name": name, "values": [held]} for name, held in bars],
    }


def _arrays(found: Live, what: str) -> Section:
    shown = found.rows[:LISTED]
    shapes = any(row.shape for row in shown)  # a memory profile has none
    columns = [
        {"name": "line"},
        *([{"name": "shape"}, {"name": "sharding"}] if shapes else []),
        {"name": what},
        {"name": "bytes", "unit": "B"},
        {"name": "on one device", "unit": "B"},
        {"name": "share", "unit": "%"},
        *([{"name": "held by", "wrap": True}] if shapes else []),
    ]
    total = found.total_bytes or 1

    def cells(row: LiveArrays) -> list[Any]:
        return [
            short_line(row.line) or UNKNOWN,
            *([row.shape, row.sharding] if shapes else []),
            row.count,
            row.bytes,
            row.bytes_per_device,
            100 * row.bytes / total,
            *([", ".join(row.names) or "no variable of the caller"] if shapes else []),
        ]

    return _table(what.capitalize(), columns, shown, len(found), cells)


@view.register
def _(found: LiveDiff) -> dict[str, Any]:
    more = found.after_bytes - found.before_bytes
    facts = [
        ["before", size(found.before_bytes)],
        ["after", size(found.after_bytes)],
        ["difference", _signed(more)],
        ["kinds of arrays that there are more of", f"{len(found.grown):,}"],
    ]
    sections = [_facts(facts, str(found), "" if found else "The same arrays.")]
    grown = [row for row in found if row.bytes > 0]
    if grown:
        bars = [
            {"name": f"{short_line(r.line) or 'line unknown'}, {r.shape}".rstrip(", "),
             "values": [r.bytes]}
            for r in grown[:BARS]
        ]  # fmt: skip
        sections.append(
            {"type": "bars", "title": "What grew", "unit": "B", "parts": ["more"], "rows": bars}
        )
    if found.rows:
        columns = [
            {"name": "line"}, {"name": "shape"}, {"name": "sharding"}, {"name": "arrays"},
            {"name": "bytes", "unit": "B"}, {"name": "held by", "wrap": True},
        ]  # fmt: skip

        def cells(row: LiveChange) -> list[Any]:
            held = ", ".join(row.names) if row.count > 0 else ""
            at = short_line(row.line) or UNKNOWN
            return [at, row.shape, row.sharding, row.count, row.bytes, held]

        sections.append(_table("Changes", columns, found.rows[:LISTED], len(found), cells))
    return {"title": "What the devices hold more of", "sections": sections}


@view.register
def _(found: Beside) -> dict[str, Any]:
    holders = found.holders[:HOLDERS]
    rest = max(0, found.held_bytes - sum(h.bytes for h in holders))
    names = [h.name or short_line(h.line) or "line unknown" for h in holders]
    parts = ["this program's peak", *names, *(["the rest"] if rest else [])]
    held = [h.bytes for h in holders] + ([rest] if rest else [])
    bars = [{"name": "needed", "values": [found.peak_bytes, *held]}]
    if found.limit_bytes is not None:
        parts.append("the device's memory")
        blank = [0] * (len(parts) - 1)
        bars.append({"name": found.device or "the device", "values": [*blank, found.limit_bytes]})
    facts = [
        ["peak", size(found.peak_bytes)],
        ["already there", size(found.held_bytes)],
        ["together", size(found.peak_bytes + found.held_bytes)],
        ["the device has", size(found.limit_bytes)],
    ]
    sections = [
        _facts(facts, str(found), _sentence(str(found).replace("`", ""))),
        {"type": "bars", "title": "Memory", "unit": "B", "parts": parts, "rows": bars},
    ]
    return {"title": "Does it fit beside what is there?", "sections": sections}


def _facts(rows: list[list[str]], copy: str, note: str = "") -> Section:
    return {"type": "facts", "rows": rows, "copy": copy, **({"note": note} if note else {})}


def _table(title: str, columns: list[Any], shown: Any, count: int, cells: Any) -> Section:
    """A table of arrays, whose rows show the Python stack that made them when selected."""
    stacks = [_stack(row.frames) for row in shown]
    notes = ["Select a row to see the Python stack that made it."] if any(stacks) else []
    if count > len(shown):
        notes.append(f"{count - len(shown):,} more are not listed.")
    return {
        "type": "table",
        "title": title,
        "note": " ".join(notes),
        "columns": columns,
        "rows": [cells(row) for row in shown],
        "ids": [k if stack else None for k, stack in enumerate(stacks)],
        "code": stacks,
        "code_name": "stack",
    }


def _stack(frames: tuple[StackFrame, ...]) -> str:
    """The person's frames; all of them where none is the person's."""
    own = [f for f in frames if not is_library(f.file)] or frames
    return "\n".join(f"{f.file}:{f.line} in {f.function}" for f in own)


def _signed(value: int) -> str:
    return f"{'+' if value >= 0 else MINUS}{size(abs(value))}"


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}." if text else ""
