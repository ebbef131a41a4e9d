"""Rows of a profiler trace → ``Measured``: joined by instruction name, divided by steps.

this program's rows ── name known ────▶ seconds, self_seconds, counts
                    │              └─ asynchronous ops ─▶ flight
                    └─ name unknown ──▶ unmatched
other programs' rows ─────────────────▶ other_programs
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Protocol

import numpy as np

from ...hlo import Module
from ...hlo.texts.listed import listed
from .events import MeasuredEvents, TracedEvents, joined, start_of
from .measured import Measured


class TraceRow(Protocol):
    """What is needed of one row of a trace."""

    @property
    def module(self) -> str: ...
    @property
    def op(self) -> str: ...
    @property
    def device(self) -> int: ...
    @property
    def seconds(self) -> float: ...
    @property
    def count(self) -> int: ...
    @property
    def self_seconds(self) -> float | None: ...
    @property
    def program(self) -> int | None: ...
    @property
    def beside(self) -> bool: ...


class TraceMatch(Protocol):
    """Which rows belong to the module, and what is known about them."""

    @property
    def executions(self) -> int | None: ...
    @property
    def notes(self) -> tuple[str, ...]: ...
    @property
    def by_device(self) -> Mapping[int, int]: ...
    @property
    def spans(self) -> Mapping[int, float]: ...
    @property
    def rows(self) -> Collection[tuple[str, int | None, int]]: ...
    def __contains__(self, row: Any, /) -> bool: ...


class TraceData(Protocol):
    """What is needed of a trace beside its rows."""

    @property
    def unnamed(self) -> Mapping[str, float]: ...
    @property
    def device_names(self) -> Mapping[int, str]: ...
    @property
    def warnings(self) -> tuple[Any, ...]: ...
    @property
    def events(self) -> TracedEvents: ...


def join(
    module: Module,
    ops: Iterable[TraceRow],
    steps: int | None = None,
    *,
    match: TraceMatch | None = None,
    trace: TraceData | None = None,
) -> Measured:
    """Times of this module's instructions, divided by ``steps``.

    With None, steps are the executions of the program on each device in the trace, else the
    median number of times that instructions of ENTRY, or of what it calls, such as a CUDA graph,
    ran. A device that recorded no asynchronous operation has NaN in ``flight`` if others did.
    Without ``match``, rows with the module's name are taken, and rows without a module if
    their name is known.
    """
    ops = list(ops)
    mine: list[TraceRow] = []
    others: dict[str, float] = {}
    for o in ops:
        if o.module in ("", module.name) if match is None else o in match:
            mine.append(o)
        elif not o.beside:
            label = _label(o, module)
            others[label] = others.get(label, 0.0) + _own(o)
    devices = tuple(sorted({o.device for o in mine}))
    at = {d: k for k, d in enumerate(devices)}
    shape = len(devices), len(module.instructions)
    seconds, own, counts, flight = (np.zeros(shape) for _ in range(4))
    unmatched: dict[str, float] = {}
    recorded = {o.device for o in ops if o.beside}
    for o in mine:
        i = module.find(o.op)
        if i is None:
            # a row without a program may be of another one
            lost = unmatched if o.module or o.program is not None else others
            if not o.beside:
                name = o.op if lost is unmatched else _label(o, module)
                lost[name] = lost.get(name, 0.0) + _own(o)
            continue
        if o.beside:
            flight[at[o.device], start_of(i).index] += o.seconds
            continue
        seconds[at[o.device], i.index] += o.seconds
        own[at[o.device], i.index] += _own(o)
        counts[at[o.device], i.index] += o.count
    each = None
    if steps is None and match is not None and devices:
        each = [match.by_device.get(d, match.executions) for d in devices]
        steps = match.executions
    if steps is None:
        often = counts[:, _once(module)]
        steps = round(float(np.median(often[often > 0]))) if (often > 0).any() else 1
    steps = max(1, steps)
    of = np.array([n or steps for n in each] if each else [steps] * len(devices))[:, None]
    notes = list(match.notes if match is not None else ())
    if len(set(of.ravel().tolist())) > 1:
        notes.append(
            f"devices recorded {of.min():,} to {of.max():,} executions: the times of each are"
            " divided by its own"
        )
    missing = [d for d in devices if d not in recorded]
    if recorded and missing:
        flight[[at[d] for d in missing]] = np.nan
    names = trace.device_names if trace is not None else {}
    notes += _unrecorded(module, devices, names, recorded)
    if trace is not None:
        notes += [str(w) for w in trace.warnings]
    spans = match.spans if match is not None else {}
    wall = np.array([spans.get(d, np.nan) for d in devices]) / of[:, 0] if devices else np.zeros(0)
    return Measured(
        module,
        devices,
        seconds / of,
        counts / of,
        steps,
        unmatched,
        own / of,
        flight / of,
        others,
        dict(trace.unnamed) if trace is not None else {},
        {d: n for d, n in names.items() if d in at},
        tuple(notes),
        wall,
        joined(module, trace.events, names, match) if trace is not None else MeasuredEvents(),
    )


def _unrecorded(
    module: Module, devices: tuple[int, ...], names: Mapping[int, str], recorded: set[int]
) -> list[str]:
    """What the trace should have of this program and lacks; one sentence each."""
    out = []
    wanted = min(len(names), module.num_partitions * module.replica_count)
    if devices and len(devices) < wanted:
        have = listed([names.get(d, str(d)) for d in devices], 4)
        out.append(f"{len(devices)} of {wanted} devices recorded this program: {have}")
    asynchronous = [d for d in devices if d in recorded]
    if not any("TPU" in names.get(d, "") for d in devices):
        return out
    if asynchronous and len(asynchronous) < len(devices):
        have = listed([names.get(d, str(d)) for d in asynchronous], 4)
        out.append(
            f"{len(asynchronous)} of {len(devices)} devices recorded asynchronous operations:"
            f" {have}; their times are of {'it' if len(asynchronous) == 1 else 'these'} alone"
        )
    elif not asynchronous and any(i.opcode.endswith("-start") for i in module.instructions):
        out.append("no device recorded asynchronous operations, of which the program has some")
    return out


def _once(module: Module) -> list[int]:
    """Instructions that run once per step: in ENTRY and in computations that it calls."""
    out: list[int] = []
    waiting = [module.entry] if module.entry is not None else []
    seen: set[int] = set()
    while waiting:
        computation = waiting.pop()
        if computation.index in seen:
            continue
        seen.add(computation.index)
        for i in computation.instructions:
            out.append(i.index)
            if i.opcode == "call":
                waiting += i.called_computations
    return out


def _own(o: TraceRow) -> float:
    return o.seconds if o.self_seconds is None else o.self_seconds


def _label(o: TraceRow, module: Module) -> str:
    name = o.module or "a program without a name"
    same = o.module == module.name and o.program is not None
    return f"{name} (program {o.program})" if same else name
