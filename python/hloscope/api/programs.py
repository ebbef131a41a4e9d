"""``read_programs``: all programs of one run side by side, and the calls of a trace.

    dump folder ── last stage of each module ──┐                      ┌─ rows: figures of one call
    trace, log or archive ── its modules ──────┴─▶ Capture.summary ─▶─┤
    trace (profile=) ── how often each ran, and when ─────────────────┴─ calls, in their order

A dump says what was compiled, never what ran: runs, order and totals come from a trace only.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from ..analysis.report.programs import Call, ProgramRow, Programs
from ..hlo import Module
from ..readers import ReadError, read_modules
from ..readers.files import dump_directory
from ..readers.files.sources import Source, bytes_of, load
from ..readers.proto.proto import read_proto
from ..readers.recognise import is_trace
from ..readers.xplane.match import same_programs
from ..readers.xplane.xplane import Trace, read_trace
from .capture import Capture

if TYPE_CHECKING:
    from ..readers.entries import ModuleEntry

Key = tuple[str, int | None]  # a program of a trace: its name and XLA's id


def read_programs(
    source: Source,
    *,
    profile: str | os.PathLike[str] | None = None,
    hardware: str | None = None,
) -> Programs:
    """All programs that a dump folder, a trace or a file holds, with figures of one call each.

    ``profile`` is a profiler trace of the same run, which tells how often each ran, how long it
    took and in what order; a trace as ``source`` tells that by itself. ``hardware`` is the chip
    to model time on. Raises ``ReadError``, and ``HardwareError`` for an unknown chip.

        >>> read_programs("/tmp/dump", profile="/tmp/trace")
    """
    if hardware is not None:
        from ..hardware import find

        hardware = find(hardware).id
    data, origin, path = load(source)
    trace: Trace | None = None
    if isinstance(data, bytes) and is_trace(data):
        given = Path(source).expanduser() if isinstance(source, (str, os.PathLike)) else None
        trace = read_trace(data if given is None else given)
    elif profile is not None:
        trace = read_trace(Path(profile))
    if path is not None and path.is_dir():
        made = _of_folder(path, hardware, trace)
    else:
        made = _of_file(data, origin, hardware, trace)
    found = Programs(tuple(made.rows), made.chosen, made.why, origin=origin)
    if trace is None:
        note = "a dump does not say how often or in what order they ran: give a trace with profile="
        return replace(found, notes=(note,))
    found = _with_calls(found, trace, made.keys)
    if profile is None:
        return found
    return _chosen_by_time(found, is_folder=path is not None and path.is_dir())


@dataclass
class _Made:
    """Rows, and for each the programs of the trace that it may be."""

    rows: list[ProgramRow]
    keys: list[set[Key]]
    chosen: int = 0
    why: str = ""


def _of_folder(path: Path, hardware: str | None, trace: Trace | None) -> _Made:
    entries = dump_directory.list_directory(path)
    chosen, _ = dump_directory.choose_entry(entries, None, None, str(path))
    last: dict[tuple[int, str], ModuleEntry] = {(e.index, e.name): e for e in entries}
    made = _Made([], [])
    for entry in last.values():
        assert entry.path is not None
        if (entry.index, entry.name) == (chosen.index, chosen.name):
            made.chosen = len(made.rows)
        try:
            module = read_modules(bytes_of(entry.path), entry.path.name)[0]
        except ReadError as error:
            row = ProgramRow(entry.name, entry.index, entry.stage, problem=str(error))
            made.rows.append(row)
            made.keys.append(set())
            continue
        _add(made, module, entry.index, entry.stage, hardware, trace)
        made.rows[-1] = replace(made.rows[-1], name=entry.name)
    made.why = "what read() picks, for it has the largest file; choose another with module=N"
    return made


def _of_file(data: bytes | str, origin: str, hardware: str | None, trace: Trace | None) -> _Made:
    modules = read_modules(data, origin)
    made = _Made([], [])
    for number, module in enumerate(modules):
        _add(made, module, number, "", hardware, trace)
    if isinstance(data, bytes) and is_trace(data):
        made.why = "what read() picks, for it has most measured time; choose another with module=N"
    else:
        counts = [len(m.instructions) for m in modules]
        made.chosen = counts.index(max(counts))
        made.why = "what read() picks, for it has most instructions; choose another with module=N"
    return made


def _add(
    made: _Made,
    module: Module,
    number: int | None,
    stage: str,
    hardware: str | None,
    trace: Trace | None,
) -> None:
    cap = Capture(module, stage=stage)
    cap.hardware = hardware
    found = cap.summary
    zero = found.get("trip_counts_may_be_zero")
    made.rows.append(
        ProgramRow(
            module.name,
            number,
            stage,
            len(module.instructions),
            found.get("flops"),
            found.get("bytes_accessed"),
            found.get("wire_bytes") if found.get("shapes") != "global" else None,
            found.get("peak_live_bytes"),
            (found.get("modelled_seconds") or {}).get("total"),
            str(found.get("shapes") or "local"),
            bool(found.get("trip_counts_unknown")) and not zero,
            any(k.endswith("_least") for k in found),
            is_one_trip=bool(zero),
            problem=next(iter(cap.warnings), "") if module.entry is None else "",
        )
    )
    made.keys.append(same_programs(trace, module) if trace is not None else set())


def _with_calls(found: Programs, trace: Trace, keys: list[set[Key]]) -> Programs:
    """Adds a trace's runs, seconds and calls; programs that only the trace has become rows."""
    owners: dict[Key, list[int]] = {}
    for row, of in enumerate(keys):
        for key in of:
            owners.setdefault(key, []).append(row)
    rows, notes = list(found.rows), []
    ran = dict.fromkeys(k for k, _ in trace.executions)
    spent_in: dict[Key, dict[int, float]] = {}  # seconds of operations by device
    for o in trace.ops:
        if not o.beside and o.module:
            on_device = spent_in.setdefault((o.module, o.program), {})
            own = o.seconds if o.self_seconds is None else o.self_seconds
            on_device[o.device] = on_device.get(o.device, 0.0) + own
    ran |= dict.fromkeys(spent_in)
    for key in [k for k in ran if k not in owners]:
        owners[key] = [len(rows)]
        rows.append(_of_trace(key, trace))
    shared = {row for of in owners.values() if len(of) > 1 for row in of}
    for name in dict.fromkeys(rows[row].name for row in sorted(shared)):
        notes.append(f"the trace does not tell which of several compiles of {name} ran")
    for key, by in spent_in.items():
        if len(owners[key]) == 1:
            row = owners[key][0]
            mean = sum(by.values()) / len(by)
            rows[row] = replace(rows[row], op_seconds=(rows[row].op_seconds or 0.0) + mean)
    if not trace.executions:
        notes.append("the trace does not say when a program began and ended: no calls are known")
        return replace(found, rows=tuple(rows), notes=tuple(notes))
    counts: dict[int, dict[int, int]] = {}  # row → device → calls
    spent: dict[int, list[float]] = {}  # row → seconds and calls of all devices
    for (key, device), n in trace.executions.items():
        if len(owners[key]) == 1:
            row = owners[key][0]
            on = counts.setdefault(row, {})
            on[device] = on.get(device, 0) + n
            if (key, device) in trace.spans:
                sums = spent.setdefault(row, [0.0, 0.0])
                sums[0] += trace.spans[key, device]
                sums[1] += n
    for row, r in enumerate(rows):
        if row in shared:
            continue
        seconds, times = spent.get(row, (0.0, 0.0))
        most = max(counts.get(row, {0: 0}).values())
        rows[row] = replace(r, runs=most, seconds=seconds / times if times else None)
    by_device: dict[int, list[tuple[Key, float, float]]] = {}
    for key, device, start, end in trace.events.runs:
        by_device.setdefault(device, []).append((key, start, end))
    if not by_device:
        notes.append("the trace counts calls but does not say when each began")
        return replace(found, rows=tuple(rows), notes=tuple(notes))
    device = max(by_device, key=lambda d: (len(by_device[d]), -d))
    runs = sorted(by_device[device], key=lambda r: r[1])
    first = runs[0][1]
    calls = tuple(
        Call(rows[owners[k][0]].name, owners[k][0], a - first, b - a)
        for k, a, b in runs
        if k in owners
    )
    name = trace.device_names.get(device, f"device {device}")
    if len(by_device) > 1:
        notes.append(f"{len(by_device)} devices were traced; {name} has the most calls")
    return replace(found, rows=tuple(rows), calls=calls, device=name, notes=tuple(notes))


def _chosen_by_time(found: Programs, is_folder: bool) -> Programs:
    """As ``read`` with a profile: the name with the most time; of several compiles of it, the last
    one of a folder, the largest of a file."""
    seconds: dict[str, float] = {}
    for r in found.rows:
        if r.op_seconds is not None and r.number is not None:
            seconds[r.name] = seconds.get(r.name, 0.0) + r.op_seconds
    if not seconds:
        return found
    name = max(seconds, key=lambda n: seconds[n])
    same = [k for k, r in enumerate(found.rows) if r.name == name and r.number is not None]
    most = same[-1] if is_folder else max(same, key=lambda k: found.rows[k].instructions or 0)
    why = "what read() picks, for it has most time in the trace; choose another with module=N"
    return replace(found, chosen=most, why=why)


def _of_trace(key: Key, trace: Trace) -> ProgramRow:
    """A program that the dump does not hold: from the trace's HLO, or from its runs alone."""
    for p in trace.programs:
        if (p.name, p.id) == key:
            made = _Made([], [])
            try:
                _add(made, read_proto(p.proto), None, "of the trace", None, None)
            except ReadError:
                break
            return replace(made.rows[0], name=key[0])
    return ProgramRow(key[0], problem="its HLO is not here, only that it ran")
