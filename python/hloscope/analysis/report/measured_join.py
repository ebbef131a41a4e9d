"""Rows of a profiler trace → ``Measured``: joined by instruction name, divided by steps.

this program's rows ── name known ────▶ seconds, self_seconds, counts
                    │              └─ asynchronous, beside the others ─▶ flight
                    └─ name unknown ──▶ unmatched
other programs' rows ─────────────────▶ other_programs
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

import numpy as np

from ...hlo import Module
from .measured import Measured


class Timed(Protocol):
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


class Matched(Protocol):
    """Which rows are of the module, and what is known of them."""

    @property
    def executions(self) -> int | None: ...
    @property
    def notes(self) -> tuple[str, ...]: ...
    def __contains__(self, row: Any, /) -> bool: ...


class Traced(Protocol):
    """What is needed of a trace beside its rows."""

    @property
    def unnamed(self) -> Mapping[str, float]: ...
    @property
    def device_names(self) -> Mapping[int, str]: ...
    @property
    def warnings(self) -> tuple[Any, ...]: ...


def join(
    module: Module,
    ops: Iterable[Timed],
    steps: int | None = None,
    *,
    match: Matched | None = None,
    trace: Traced | None = None,
) -> Measured:
    """Times of this module's instructions, divided by ``steps``.

    None takes as steps how often the trace says that the program ran, else how often a device
    runs an instruction of ENTRY, or of what it calls, such as a CUDA graph (their median).
    Without ``match`` rows of the module's name are taken, and rows without a module when
    their name is known.
    """
    mine: list[Timed] = []
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
    for o in mine:
        i = module.find(o.op)
        if i is None:
            # a row of no program is not known to be of this one
            lost = unmatched if o.module or o.program is not None else others
            if not o.beside:
                name = o.op if lost is unmatched else _label(o, module)
                lost[name] = lost.get(name, 0.0) + _own(o)
            continue
        if o.beside:
            flight[at[o.device], i.index] += o.seconds
            continue
        seconds[at[o.device], i.index] += o.seconds
        own[at[o.device], i.index] += _own(o)
        counts[at[o.device], i.index] += o.count
    if steps is None and match is not None:
        steps = match.executions
    if steps is None:
        often = counts[:, _once(module)]
        steps = round(float(np.median(often[often > 0]))) if (often > 0).any() else 1
    steps = max(1, steps)
    notes = match.notes if match is not None else ()
    if trace is not None:
        notes += tuple(str(w) for w in trace.warnings)
    return Measured(
        module,
        devices,
        seconds / steps,
        counts / steps,
        steps,
        unmatched,
        own / steps,
        flight / steps,
        others,
        dict(trace.unnamed) if trace is not None else {},
        {d: n for d, n in trace.device_names.items() if d in at} if trace is not None else {},
        notes,
    )


def _once(module: Module) -> list[int]:
    """Instructions that run once a step: of ENTRY and of computations that it calls."""
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


def _own(o: Timed) -> float:
    return o.seconds if o.self_seconds is None else o.self_seconds


def _label(o: Timed, module: Module) -> str:
    name = o.module or "a program without a name"
    same = o.module == module.name and o.program is not None
    return f"{name} (program {o.program})" if same else name
