"""Stage logs and plans as a ``PlanView`` of js/plan/view.ts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ...analysis.text.units import size
from .schedules import Schedule
from .text import interval_text

if TYPE_CHECKING:
    from ...show.pages.plain import Answers
    from .log import StageLog
    from .plan import StagePlan
    from .solver import Solution

# Pieces of work in one picture; beyond it they cannot be distinguished, and pages grow.
DRAWN = 4_000
LISTED = 60


def stage_data(plan: StagePlan) -> dict[str, Any]:
    """The page of a plan."""
    return {"title": "Pipeline stages", "sections": _sections(plan)}


def log_data(log: StageLog) -> dict[str, Any]:
    """The page of a log: its rows, its identities, and the plan it led to."""
    facts = [
        ["profiled modules", str(len(log.rows))],
        ["profiling took", f"{sum(log.profiling_seconds.values()):.2f} s"],
        ["times", "measured, as printed"],
    ]
    for i in log.identities:
        name = ("forward", "backward")[i.module] if i.module < 2 else f"module {i.module}"
        facts.append([name, f"{i.formula} in {i.holds} of {i.rows} rows"])
    sections: list[dict[str, Any]] = [{"type": "facts", "rows": facts}]
    if log.warnings:
        said = "\n".join(log.warnings)
        sections.append({"type": "text", "title": "Warnings", "text": said})
    if log.microbatches is not None:
        sections += _sections(log.plan())
    sections.append(_rows(log))
    return {"title": log.title, "sections": sections}


def answer(plan: StagePlan) -> Answers:
    """Answers of a live view: figures changed by hand lead to a new plan."""

    def answers(what: str, values: Mapping[str, Any]) -> dict[str, Any]:
        if what != "change":
            raise ValueError(f"a plan of stages has no answer to {what!r}")
        given = dict(values)
        count = given.pop("microbatches", plan.microbatches)
        if count != int(count):
            raise ValueError(f"the number of microbatches must be whole, not {count}")
        # only what differs: the rest keeps its interval
        before = {f["name"]: f["value"] for f in _edit(plan)}
        seconds = {
            int(name.removeprefix("choice ")): float(v) / 1e3
            for name, v in given.items()
            if v != before.get(name)
        }
        return {"view": stage_data(plan.with_changes(microbatches=int(count), seconds=seconds))}

    return answers


def _sections(plan: StagePlan) -> list[dict[str, Any]]:
    facts = [
        ["layers", str(len(plan.layers))],
        ["devices", str(plan.devices)],
        ["microbatches", str(plan.microbatches)],
        ["stages considered", str(len(plan.choices))],
        ["whole pipelines", f"{len(plan.solutions)}{' and more' if plan.solutions_cut else ''}"],
        ["can be optimal", str(len(plan.possibly_optimal))],
        ["memory limit", size(plan.memory_bytes) if plan.memory_bytes else "none"],
        ["times", plan.origin],
    ]
    for name, s in (("best", plan.best), ("chosen", plan.given)):
        if s is not None:
            facts.append([f"Σt + (B−1)·max t, {name}", interval_text(s.objective)])
    out: list[dict[str, Any]] = [{"type": "facts", "rows": facts}]
    if plan.shown is not None:
        out += [_grid(plan, plan.shown), _gantt(plan)]
    if plan.choices:
        out.append(_heatmap(plan))
    out.append(_weighed(plan))
    if plan.failed:
        out.append({"type": "text", "title": "Left out", "text": "\n".join(plan.failed)})
    return out


def _grid(plan: StagePlan, solution: Solution) -> dict[str, Any]:
    """Devices in order; a submesh that spans rows takes whole rows."""
    width = max((c.submesh[-1] for c in plan.choices), default=1)
    width = max(width, min(plan.devices, 8))
    at, stages = 0, []
    for c in solution.stages:
        places = [[(at + k) // width, (at + k) % width] for k in range(c.devices)]
        stages.append({"label": c.label, "devices": places})
        at += c.devices
    return {
        "type": "grid",
        "title": "Chosen stages on the devices" if plan.given else "Best stages on the devices",
        "note": "Devices in the order of the stages; where each lies on the machine is not known.",
        "stages": stages,
        "rows": (max(at, plan.devices) + width - 1) // width,
        "columns": width,
    }


def _gantt(plan: StagePlan) -> dict[str, Any]:
    counts = sorted({plan.microbatches, *(n for n in (1, 2, 4, 8, 16, 32))})
    options = []
    for count in counts:
        if count == plan.microbatches:
            found = plan.schedules()
        else:
            found = plan.with_changes(microbatches=count).schedules() if plan.given else {}
            if not plan.given and plan.best is not None:
                found = _same_stages(plan, count)
        options += [_option(s) for s in found.values() if len(s.work) <= DRAWN]
    chosen = next(
        (
            n
            for n, o in enumerate(options)
            if o["kind"] == "1f1b" and o["microbatches"] == plan.microbatches
        ),
        0,
    )
    return {
        "type": "gantt",
        "title": "Which stage works when",
        "note": "Modelled from the stages' times; transfers between stages are taken as free.",
        "options": options,
        "chosen": chosen,
        "edit": _edit(plan),
    }


def _same_stages(plan: StagePlan, count: int) -> dict[str, Schedule]:
    from dataclasses import replace

    return replace(plan, microbatches=count).schedules()


def _edit(plan: StagePlan) -> list[dict[str, Any]]:
    fields: list[dict[str, Any]] = [
        {
            "name": "microbatches",
            "label": "microbatches",
            "value": plan.microbatches,
            "unit": "",
        }
    ]
    if plan.shown is not None:
        where = {id(c): n for n, c in enumerate(plan.choices)}
        for n, c in enumerate(plan.shown.stages):
            fields.append(
                {
                    "name": f"choice {where[id(c)]}",
                    "label": f"stage {n}",
                    "value": float(f"{c.seconds.value * 1e3:.6g}"),
                    "unit": "ms",
                }
            )
    return fields


def _option(s: Schedule) -> dict[str, Any]:
    names = {"F": "forward", "B": "backward", "W": "weights' gradients"}
    memory = [s.memory(d) for d in range(s.devices)]
    return {
        "kind": s.kind,
        "microbatches": s.microbatches,
        "seconds": s.seconds,
        "bubble": s.bubble_share,
        "lanes": [f"stage {d}" for d in range(s.devices)],
        "work": [
            [
                w.device, w.start, w.end, w.kind,
                f"{w.kind} {w.microbatch}: {names[w.kind]} of microbatch {w.microbatch}"
                + (f", chunk {w.stage // s.devices}" if w.stage >= s.devices else ""),
            ]
            for w in s.work
        ],
        "memory": memory,
        "inFlight": [s.most_in_flight(d) for d in range(s.devices)],
    }  # fmt: skip


def _heatmap(plan: StagePlan) -> dict[str, Any]:
    """Figures by layers, submesh and sharding."""
    spans = sorted({(c.start, c.end) for c in plan.choices})
    columns = sorted({(c.devices, c.submesh, c.option) for c in plan.choices})
    index = {
        (spans.index((c.start, c.end)), columns.index((c.devices, c.submesh, c.option))): c
        for c in plan.choices
    }

    def values(of: Any) -> list[list[float | None]]:
        return [
            [of(index[r, k]) if (r, k) in index else None for k in range(len(columns))]
            for r in range(len(spans))
        ]

    marked = []
    for name, s in (("best", plan.best), ("chosen", plan.given)):
        for c in s.stages if s is not None else ():
            row, column = (
                spans.index((c.start, c.end)),
                columns.index((c.devices, c.submesh, c.option)),
            )
            marked.append({"row": row, "column": column, "label": name})
    return {
        "type": "heatmap",
        "title": "Layers × submesh",
        "note": "One microbatch; a frame marks the pipeline above. Empty: not tried.",
        "rows": [_span(plan, a, b) for a, b in spans],
        "columns": [f"{'×'.join(map(str, m))} {o}".strip() for _, m, o in columns],
        "metrics": [
            {"name": "time, both passes", "unit": "s", "values": values(lambda c: c.seconds.value)},
            {"name": "forward", "unit": "s", "values": values(lambda c: c.forward.value)},
            {"name": "backward", "unit": "s", "values": values(lambda c: c.backward.value)},
            {"name": "memory at rest", "unit": "B", "values": values(lambda c: c.fixed_bytes)},
            {
                "name": "activations of a microbatch",
                "unit": "B",
                "values": values(lambda c: c.activation_bytes),
            },
        ],
        "marked": marked,
    }


def _span(plan: StagePlan, a: int, b: int) -> str:
    return plan.layers[a] if a == b else f"{plan.layers[a]} to {plan.layers[b]}"


def _weighed(plan: StagePlan) -> dict[str, Any]:
    possible = {id(s) for s in plan.possibly_optimal}
    rows, marked = [], []
    for n, s in enumerate(plan.solutions[:LISTED]):
        if id(s) in possible:
            marked.append(n)
        rows.append(
            [
                s.objective.value, s.objective.low, s.objective.high,
                "yes" if id(s) in possible else "no",
                ", then ".join(c.label for c in s.stages),
            ]
        )  # fmt: skip
    more = len(plan.solutions) - len(rows)
    return {
        "type": "table",
        "title": "What the dynamic program considered",
        "note": "Whole pipelines, best first"
        + (f"; {more:,} more are not listed" if more > 0 else "")
        + ". Low and high come from the rounding of printed times.",
        "columns": [
            {"name": "Σt + (B−1)·max t", "unit": "s"},
            {"name": "low", "unit": "s"},
            {"name": "high", "unit": "s"},
            {"name": "can be optimal"},
            {"name": "stages"},
        ],
        "rows": rows,
        "marked": marked,
    }


def _rows(log: StageLog) -> dict[str, Any]:
    found = log.to_dict()["rows"]
    names = {"seconds": "s", "peak_bytes": "B", "in_bytes": "B", "out_bytes": "B"}
    names |= {"temp_bytes": "B", "available_bytes": "B"}
    columns = [{"name": "layers"}, {"name": "submesh"}, {"name": "sharding"}, {"name": "pass"}]
    columns += [{"name": k.removesuffix("_bytes"), "unit": u} for k, u in names.items()]
    return {
        "type": "table",
        "title": f"Profiled modules ({len(found)})",
        "columns": columns,
        "rows": [
            [
                str(r["start"]) if r["start"] == r["end"] else f"{r['start']}–{r['end']}",
                "×".join(map(str, r["submesh"])),
                r["option"],
                r["pass"],
                *(r[k] for k in names),
            ]
            for r in found
        ],
    }
