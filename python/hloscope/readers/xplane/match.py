"""Which of a trace's programs a Module is.

A trace names programs by module and id, "jit_step(7)", and compiles of other shapes share
the name. So the HLO that the trace carries decides: the program whose instructions have the
same names, opcodes and shapes as the Module's. Without such a program the nearest one of the
same name is taken, and a note says how near.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from statistics import median

from ...hlo import Module
from ..errors import ReadError
from ..proto.proto import read_proto
from .lanes import Key
from .xplane import OpTime, Trace

# From this share of equal instructions on, two modules are one compile, read in two ways.
_SAME = 0.999


@dataclass(frozen=True, slots=True)
class Match:
    """The rows of a trace that belong to one Module: (module name, program id, device)."""

    rows: frozenset[tuple[str, int | None, int]]
    executions: int | None  # per device, where the trace says so; the median
    notes: tuple[str, ...]
    by_device: Mapping[int, int] = field(default_factory=dict)  # executions
    spans: Mapping[int, float] = field(default_factory=dict)  # device → seconds of all of them

    def __contains__(self, row: OpTime) -> bool:
        return (row.module, row.program, row.device) in self.rows


def match(trace: Trace, module: Module) -> Match:
    """The rows of ``module``: on each device those of the most similar program."""
    alike = _alike(trace, module)
    times: dict[int, dict[Key, list[OpTime]]] = {}
    for o in trace.ops:
        key = o.module, o.program
        if o.module in ("", module.name) or alike.get(key, 0.0) >= _SAME:
            times.setdefault(o.device, {}).setdefault(key, []).append(o)
    chosen: set[tuple[Key, int]] = set()
    for device, programs in times.items():
        same = [k for k in programs if alike.get(k, 0.0) >= _SAME]
        taken = same or [max(programs, key=lambda k: _worth(k, programs[k], alike, module))]
        # rows of no program are the Module's where it has their names
        taken += [k for k in programs if k == ("", None) and k not in taken]
        chosen |= {(k, device) for k in taken}
    runs: dict[int, int] = {}
    spans: dict[int, float] = {}
    for where in chosen:
        if where in trace.executions:
            runs[where[1]] = runs.get(where[1], 0) + trace.executions[where]
        if where in trace.spans:
            spans[where[1]] = spans.get(where[1], 0.0) + trace.spans[where]
    return Match(
        frozenset((name, program, device) for (name, program), device in chosen),
        round(median(runs.values())) if runs else None,
        tuple(_notes({k for k, _ in chosen}, alike, module)),
        runs,
        spans,
    )


def same_programs(trace: Trace, module: Module) -> set[Key]:
    """Programs of the trace that are the Module: by their HLO, else those whose rows it has."""
    same = {key for key, share in _alike(trace, module).items() if share >= _SAME}
    return same or {(name, program) for name, program, _ in match(trace, module).rows if name}


def _alike(trace: Trace, module: Module) -> dict[Key, float]:
    """The share of equal instructions of each program of the trace that may be the Module."""
    named = [p for p in trace.programs if p.name == module.name]
    mine = _signature(module)
    out: dict[Key, float] = {}
    for p in named or trace.programs:
        try:
            theirs = _signature(read_proto(p.proto))
        except ReadError:
            continue
        out[p.name, p.id] = len(mine & theirs) / max(1, len(mine | theirs))
    return out


def _signature(module: Module) -> set[tuple[str, str, str]]:
    return {(i.name, i.opcode, i.shape.dense_text) for i in module.instructions}


def _worth(
    key: Key, rows: Iterable[OpTime], alike: dict[Key, float], module: Module
) -> tuple[float, float]:
    """How similar the program's HLO is; without HLO, the share of its time with a name here."""
    rows = list(rows)
    landed = sum(o.seconds for o in rows if module.find(o.op) is not None)
    share = landed / (sum(o.seconds for o in rows) or 1.0)
    return alike.get(key, share), landed


def _notes(chosen: Collection[Key], alike: dict[Key, float], module: Module) -> Iterable[str]:
    for key in sorted(chosen, key=lambda k: (k[0], k[1] or 0)):
        name, program = key
        if key not in alike:
            if name:
                yield (
                    f"the trace does not carry the HLO of {name}: times are joined by name, "
                    "and whether it ran this very compile cannot be checked"
                )
        elif alike[key] < _SAME:
            yield (
                f"the trace is of another compile of {name} (program {program}): "
                f"{100 * alike[key]:.3g} % of the instructions have the same name, opcode and "
                "shape in both; times are joined by name"
            )
        elif name != module.name:
            yield f"the trace calls this program {name}"
