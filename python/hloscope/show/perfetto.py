"""A program as a trace that Perfetto's UI (ui.perfetto.dev) and ``chrome://tracing`` open.

Format: Chrome's JSON trace events (Trace Event Format, complete events "X", counters "C",
metadata "M"); ``ts`` and ``dur`` are microseconds. One process for each thing:

    modelled step      compute, waiting, over data, …   from ``cap.cost()``; loops unrolled
                       live bytes                       a counter, from ``cap.memory``
    measured, cpu:0    the lanes of the trace           where there is a profile
    compile            by part, the longest first       where ``cap.compile_time()`` was asked

Begins and ends are rounded to nanoseconds, which keeps slices inside of one another.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..analysis.base.lines.lines import lines
from ..analysis.cost.timeline import COMPUTE, Timeline
from ..api.files import written
from ..hlo import Instruction
from ..hlo.parts import printable

if TYPE_CHECKING:
    from ..api.capture import Capture

# Loops are unrolled as long as there are not more slices than this; then one turn stands for all.
MOST_SLICES = 200_000
MODELLED, COMPILE, FIRST_DEVICE = 1, 2, 10

Event = dict[str, Any]


def to_perfetto(cap: Capture, path: str | Path) -> Path:
    """Writes the trace, gzip'd where the name ends in ".gz"."""
    events = [*_modelled(cap), *_measured(cap), *_compiled(cap)]
    if not events:
        raise ValueError(
            "nothing to show in a trace: no chip is known to model the step on, and there is no "
            'profile; set cap.hardware = "tpu-v5e", or any other'
        )
    content = {
        "traceEvents": events,
        "displayTimeUnit": "ns",
        "otherData": {"title": printable(cap.title), "made by": "hloscope"},
    }
    text = json.dumps(content, separators=(",", ":"))
    if str(path).endswith(".gz"):
        return written(path, gzip.compress(text.encode(), mtime=0))
    return written(path, text)


def _modelled(cap: Capture) -> Iterator[Event]:
    if cap.module.dialect != "hlo":
        return
    cost = cap.cost()
    if cost.roofline is None:
        return
    found = cost.timeline
    assert found is not None
    chip = cost.roofline.hardware.label
    yield from _named(MODELLED, f"modelled step on {chip}", list(enumerate(found.lanes)))
    unrolled = _Unrolled(cap, found)
    yield from unrolled.events()
    if cap.module.entry is None:
        return
    memory = cap.memory
    at = 0.0
    # a loop's body is in the schedule once: at its first turn
    for instruction, held in zip(memory.schedule.tolist(), memory.timeline.tolist(), strict=False):
        at = max(at, unrolled.begins.get(instruction, at))
        yield {
            "ph": "C",
            "pid": MODELLED,
            "name": "live bytes (simulated)",
            "ts": _micros(at),
            "args": {"bytes": held},
        }


class _Unrolled:
    """The slices of a modelled step, in seconds since it began."""

    def __init__(self, cap: Capture, found: Timeline) -> None:
        self._found = found
        self._instructions = cap.module.instructions
        self._about = _About(cap)
        self._rows: dict[int, list[int]] = {}
        for n, computation in enumerate(found.computation.tolist()):
            self._rows.setdefault(computation, []).append(n)
        self._counts: dict[int, int] = {}
        self.begins: dict[int, float] = {}  # of the first run of each instruction

    def events(self) -> Iterator[Event]:
        entry = self._instructions[0].module.entry if self._instructions else None
        if entry is not None:
            yield from self._of(entry.index, 0.0, self._slices(entry.index) <= MOST_SLICES)

    def _slices(self, computation: int) -> int:
        """Slices of a computation with all loops unrolled."""
        if computation not in self._counts:
            self._counts[computation] = 0  # no computation calls itself
            total = 0
            for n in self._rows.get(computation, ()):
                inside = int(self._found.inside[n])
                times = max(1, round(float(self._found.times[n])))
                total += 1 + (self._slices(inside) * times if inside >= 0 else 0)
            self._counts[computation] = total
        return self._counts[computation]

    def _of(self, computation: int, begin: float, unroll: bool) -> Iterator[Event]:
        found = self._found
        for n in self._rows.get(computation, ()):
            i = self._instructions[int(found.instruction[n])]
            start, took = begin + float(found.start[n]), float(found.duration[n])
            lane, inside = int(found.lane[n]), int(found.inside[n])
            self.begins.setdefault(i.index, start)
            times = max(1, round(float(found.times[n])))
            drawn = times if unroll else 1
            note = {"turns": times, "drawn": drawn} if inside >= 0 else {}
            name = i.name if lane == COMPUTE else f"{i.name} ({found.lanes[lane]})"
            about = {**self._about.of(i), **note}
            yield _slice(MODELLED, lane, name, start, start + took, i.opcode, about)
            for turn in range(drawn if inside >= 0 else 0):
                yield from self._of(inside, start + turn * took / times, unroll)


class _About:
    """What is known of an instruction, for the panel below the tracks."""

    def __init__(self, cap: Capture) -> None:
        self._lines = lines(cap.module)
        self._known: dict[int, Event] = {}

    def of(self, i: Instruction) -> Event:
        if i.index not in self._known:
            at = self._lines.of(i)
            found = {
                "opcode": i.opcode,
                "shape": i.shape.dense_text[:200],
                "line": f"{at.file}:{at.line}" if at is not None else "",
                "op_name": i.op_name[:300],
            }
            self._known[i.index] = {k: printable(v) for k, v in found.items() if v}
        return self._known[i.index]


def _measured(cap: Capture) -> Iterator[Event]:
    if cap.measured is None:
        return
    found, about = cap.measured.events, _About(cap)
    by_device: dict[int, list[Any]] = {}
    for lane in found.lanes:
        by_device.setdefault(lane.device, []).append(lane)
    for k, (device, lanes) in enumerate(sorted(by_device.items())):
        pid = FIRST_DEVICE + k
        title = f"measured, {lanes[0].device_name or device}"
        yield from _named(pid, title, [(n, lane.name) for n, lane in enumerate(lanes)])
        for n, lane in enumerate(lanes):
            columns = (lane.start, lane.end, lane.instruction, lane.text)
            for start, end, at, text in zip(*(c.tolist() for c in columns), strict=True):
                i = cap.module.instructions[at] if at >= 0 else None
                what = about.of(i) if i is not None else {}
                name = found.texts[text] if text >= 0 else "?"
                category = i.opcode if i is not None else "not of this program"
                yield _slice(pid, n, name, start, end, category, what)


def _compiled(cap: Capture) -> Iterator[Event]:
    if not cap.for_hosts.is_answered("compile_time"):
        return
    found = cap.compile_time()
    yield from _named(COMPILE, "compile, measured: by part, the longest first", [(0, "compiler")])
    begin = 0.0
    for row in found.rows:
        about = {"kind": row.kind, "pipeline": row.pipeline, "times": row.times}
        yield _slice(COMPILE, 0, row.name, begin, begin + row.seconds, row.kind, about)
        begin += row.seconds


def _named(pid: int, title: str, threads: list[tuple[int, str]]) -> Iterator[Event]:
    def named(kind: str, tid: int, args: Event) -> Event:
        return {"ph": "M", "pid": pid, "tid": tid, "name": kind, "ts": 0, "args": args}

    yield named("process_name", 0, {"name": printable(title)})
    yield named("process_sort_index", 0, {"sort_index": pid})
    for tid, name in threads:
        yield named("thread_name", tid, {"name": printable(name)})
        yield named("thread_sort_index", tid, {"sort_index": tid})


def _slice(
    pid: int, tid: int, name: str, begin: float, end: float, category: str, about: Event
) -> Event:
    ts, until = _micros(begin), _micros(end)
    return {
        "ph": "X",
        "pid": pid,
        "tid": tid,
        "name": printable(name),
        "cat": printable(category),
        "ts": ts,
        "dur": round(until - ts, 3),
        "args": about,
    }


def _micros(seconds: float) -> float:
    return float(np.round(seconds * 1e9)) / 1e3
