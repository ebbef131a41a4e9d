"""``StagePlan``: the best way to cut a model into pipeline stages, and what it was chosen from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...analysis.text.units import duration, printed, size
from ...api.files import written
from ...readers.alpa_log import Interval
from ...show.pages.front_end import Answers
from ...show.pages.page import mimebundle, page
from ...show.pages.words import columns
from .choices import Choice, exactly, objective
from .schedules import KINDS, Schedule, schedule
from .solver import Solution, can_be_optimal, every_solution, solve

if TYPE_CHECKING:
    import pandas as pd

# At most this many whole pipelines are listed and compared; there can be very many.
LISTED = 5_000
# Of those, that a page lists.
ON_A_PAGE = 60
# Stages left out that ``print`` lists.
PRINTED = 20
# Pieces of work in one picture; beyond it they cannot be distinguished, and pages grow.
DRAWN = 4_000


@dataclass(frozen=True, eq=False)
class StagePlan:
    """The result of ``hs.plan_stages``. Prints a table; the last line of a cell is a view.

    ``best`` minimises Σt + (B−1)·max t over ``choices`` with every device used, None when no
    pipeline is possible. ``given`` is what a log says was chosen, where known. ``failed`` are
    stages without times, with the reason.
    """

    choices: tuple[Choice, ...]
    layers: tuple[str, ...]
    devices: int
    microbatches: int
    best: Solution | None
    memory_bytes: float | None = None
    given: Solution | None = None
    failed: tuple[str, ...] = ()
    origin: str = "modelled"  # where the times come from: "modelled", "measured"
    all_devices: bool = True

    @cached_property
    def solutions(self) -> tuple[Solution, ...]:
        """Every possible pipeline, best first; at most 5,000 of them."""
        found = every_solution(
            self.choices, len(self.layers), self.devices, self.microbatches,
            memory_bytes=self.memory_bytes, all_devices=self.all_devices, limit=LISTED,
        )  # fmt: skip
        return tuple(sorted(found, key=lambda s: (s.objective.value, len(s.stages))))

    @property
    def solutions_cut(self) -> bool:
        """Whether there are more pipelines than ``solutions`` holds."""
        return len(self.solutions) >= LISTED

    @cached_property
    def possibly_optimal(self) -> tuple[Solution, ...]:
        """The pipelines that are the best for some true times within the intervals."""
        all_ = self.solutions
        low = min((s.objective.high for s in all_), default=0.0)
        near = [s for s in all_ if s.objective.low <= low]
        return tuple(s for s in near if can_be_optimal(s, near, self.microbatches))

    @property
    def shown(self) -> Solution | None:
        """The pipeline that pictures show: ``given`` where there is one, else ``best``."""
        return self.given or self.best

    def with_changes(
        self, *, microbatches: int | None = None, seconds: Mapping[int, float] | None = None
    ) -> StagePlan:
        """The plan for other microbatches, or with times of ``choices`` set by hand.

        ``seconds``: index into ``choices`` → forward and backward seconds together; their ratio
        stays as it was. Raises ``ValueError`` for an invalid index or number.
        """
        b = self.microbatches if microbatches is None else microbatches
        if b < 1:
            raise ValueError(f"a step has at least one microbatch, not {b}")
        changed = list(self.choices)
        for index, value in (seconds or {}).items():
            if not 0 <= index < len(changed):
                raise ValueError(f"there is no choice {index}; there are {len(changed)}")
            if not value > 0:
                raise ValueError(f"the time of a stage must be above 0, not {value}")
            changed[index] = _retimed(changed[index], value)
        given = None
        if self.given is not None:
            where = {id(c): n for n, c in enumerate(self.choices)}
            kept = tuple(changed[where[id(c)]] for c in self.given.stages)
            given = Solution(kept, objective(kept, b))
        best = solve(
            changed, len(self.layers), self.devices, b,
            memory_bytes=self.memory_bytes, all_devices=self.all_devices,
        )  # fmt: skip
        return replace(self, choices=tuple(changed), microbatches=b, best=best, given=given)

    def schedule(self, kind: str = "1f1b", solution: Solution | None = None) -> Schedule:
        """When each device does what: "gpipe", "1f1b", "interleaved" or "zero-bubble".

        Raises ``ValueError`` without a solution, and for an unknown kind.
        """
        chosen = solution or self.shown
        if chosen is None:
            raise ValueError("there is no pipeline to schedule: see the plan's text for why")
        stages = chosen.stages
        return schedule(
            kind,
            forward=[c.forward.value for c in stages],
            backward=[c.backward.value for c in stages],
            microbatches=self.microbatches,
            activation_bytes=[c.activation_bytes for c in stages],
            fixed_bytes=[c.fixed_bytes for c in stages],
        )

    def schedules(self) -> dict[str, Schedule]:
        """Every kind of schedule that these stages and microbatches allow."""
        found = {}
        for kind in KINDS:
            try:
                found[kind] = self.schedule(kind)
            except ValueError:
                continue
        return found

    def to_dict(self) -> dict[str, Any]:
        """Plain data: the choices, the best pipeline, how many others there are."""
        return {
            "kind": "stages",
            "origin": self.origin,
            "layers": list(self.layers),
            "devices": self.devices,
            "microbatches": self.microbatches,
            "memory_bytes": self.memory_bytes,
            "choices": [_choice_dict(c) for c in self.choices],
            "best": self._solution_dict(self.best),
            "given": self._solution_dict(self.given),
            "pipelines": len(self.solutions),
            "pipelines_cut": self.solutions_cut,
            "possibly_optimal": len(self.possibly_optimal),
            "failed": list(self.failed),
        }

    def _solution_dict(self, s: Solution | None) -> dict[str, Any] | None:
        if s is None:
            return None
        where = {id(c): n for n, c in enumerate(self.choices)}
        o = s.objective
        return {
            "choices": [where[id(c)] for c in s.stages],
            "objective_seconds": {"value": o.value, "low": o.low, "high": o.high},
            "devices": s.devices,
        }

    def to_pandas(self) -> pd.DataFrame:
        """One row per choice. Needs pandas."""
        import pandas as pd

        return pd.DataFrame([_choice_dict(c) for c in self.choices])

    def html(self) -> str:
        """One offline page, as text."""
        return page("Pipeline stages", stage_data(self), repr(self))

    def to_html(self, path: str | Path) -> Path:
        """Writes ``html`` to ``path`` and returns the path."""
        return written(path, self.html())

    def __repr__(self) -> str:
        return text(self)

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> Any:
        return mimebundle("Pipeline stages", stage_data(self), repr(self), answer(self))


def make_plan(
    choices: Sequence[Choice],
    layers: Sequence[str],
    devices: int,
    microbatches: int,
    **options: Any,
) -> StagePlan:
    """Finds the best pipeline and keeps the choices. ``options`` are fields of ``StagePlan``."""
    best = solve(
        choices,
        len(layers),
        devices,
        microbatches,
        memory_bytes=options.get("memory_bytes"),
        all_devices=options.get("all_devices", True),
    )
    return StagePlan(tuple(choices), tuple(layers), devices, microbatches, best, **options)


def _retimed(c: Choice, seconds: float) -> Choice:
    whole = c.seconds.value
    share = c.forward.value / whole if whole else 0.5
    return replace(c, forward=exactly(seconds * share), backward=exactly(seconds * (1 - share)))


def _choice_dict(c: Choice) -> dict[str, Any]:
    return {
        "start": c.start,
        "end": c.end,
        "submesh": list(c.submesh),
        "option": c.option,
        "forward_seconds": c.forward.value,
        "backward_seconds": c.backward.value,
        "seconds": c.seconds.value,
        "seconds_low": c.seconds.low,
        "seconds_high": c.seconds.high,
        "fixed_bytes": c.fixed_bytes,
        "activation_bytes": c.activation_bytes,
    }


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
    """A plan as text, for ``print``."""
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
        how = "can be optimal within the rounding of the times" if rounded else "are equally good"
        out += ["", f"{many} pipelines {how}"]
    if p.shown is not None:
        out += ["", *_schedules(p)]
    if p.failed:
        out += ["", f"left out: {len(p.failed)}", *("  " + f for f in p.failed[:PRINTED])]
    return printed(out)


def _schedules(p: StagePlan) -> list[str]:
    rows = [("schedule", "a step", "bubble", "in flight")]
    for kind, s in p.schedules().items():
        held = ", ".join(str(s.most_in_flight(d)) for d in range(s.devices))
        rows.append((kind, duration(s.seconds), f"{100 * s.bubble_share:.1f} %", held))
    return columns(rows, " nn")


def stage_data(plan: StagePlan) -> dict[str, Any]:
    """The page of a plan."""
    return {"title": "Pipeline stages", "sections": sections(plan)}


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


def sections(plan: StagePlan) -> list[dict[str, Any]]:
    """Sections of a page about a plan."""
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
    for n, s in enumerate(plan.solutions[:ON_A_PAGE]):
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
