"""Stage logs and plans as text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...analysis.text.units import duration, printed, size
from ...readers.alpa_log import Interval
from ...show.pages.words import columns

if TYPE_CHECKING:
    from .log import StageLog
    from .plan import StagePlan
    from .solver import Solution

ROWS = 20


def interval_text(i: Interval) -> str:
    """ "34 ms [17 ms – 51 ms]"."""
    if i.low == i.high:
        return duration(i.value)
    return f"{duration(i.value)} [{duration(i.low)} – {duration(i.high)}]"


def _pipeline(s: Solution) -> list[str]:
    rows = [("stage", "layers", "submesh", "sharding", "forward", "backward", "memory at rest")]
    for n, c in enumerate(s.stages):
        layers = str(c.start) if c.start == c.end else f"{c.start}–{c.end}"
        rows.append(
            (
                str(n), layers, "×".join(map(str, c.submesh)), c.option or "",
                interval_text(c.forward), interval_text(c.backward), size(c.fixed_bytes),
            )
        )  # fmt: skip
    return ["  " + line for line in columns(rows)]


def text(p: StagePlan) -> str:
    """What ``print`` shows for a plan."""
    b = p.microbatches
    out = [
        f"{len(p.layers)} layers on {p.devices} devices, {b} microbatches; times {p.origin}",
        f"{len(p.choices)} stages on a submesh were considered, "
        f"{'more than ' if p.solutions_cut else ''}{len(p.solutions)} whole pipelines",
    ]
    if p.memory_bytes is not None:
        out.append(f"memory limit {size(p.memory_bytes)} per device")
    for title, s in (("best", p.best), ("chosen", p.given)):
        if s is None:
            continue
        out += ["", f"{title}: Σt + {b - 1}·max t = {interval_text(s.objective)}", *_pipeline(s)]
    if p.best is None:
        out += ["", "no pipeline uses these devices within the memory limit"]
    many = len(p.possibly_optimal)
    if many > 1:
        rounded = any(c.seconds.low < c.seconds.high for c in p.choices)
        said = "can be optimal within the rounding of the times" if rounded else "are equally good"
        out += ["", f"{many} pipelines {said}"]
    if p.shown is not None:
        out += ["", *_schedules(p)]
    if p.failed:
        out += ["", f"left out: {len(p.failed)}", *("  " + f for f in p.failed[:ROWS])]
    return printed(out)


def _schedules(p: StagePlan) -> list[str]:
    rows = [("schedule", "a step", "bubble", "in flight")]
    for kind, s in p.schedules().items():
        held = ", ".join(str(s.most_in_flight(d)) for d in range(s.devices))
        rows.append((kind, duration(s.seconds), f"{100 * s.bubble_share:.1f} %", held))
    return columns(rows, " nn")


def log_text(log: StageLog) -> str:
    """What ``print`` shows for a log."""
    meshes = ", ".join("×".join(map(str, s)) for s in log.submeshes)
    out = [
        f"{log.title}: {len(log.rows)} profiled modules of {log.layers} layers, "
        f"submeshes {meshes}; times measured, as printed",
    ]
    if log.profiling_seconds:
        out.append(f"profiling took {sum(log.profiling_seconds.values()):.2f} s")
    for i in log.identities:
        name = ("forward", "backward")[i.module] if i.module < 2 else f"module {i.module}"
        out.append(f"{name}: {i.formula} in {i.holds} of {i.rows} rows")
    out += [f"warning: {w}" for w in log.warnings]
    if log.microbatches is not None:
        out += ["", *text(log.plan()).split("\n")]
    else:
        out.append("the text does not say how many microbatches: see plan(microbatches=…)")
    return printed(out)
