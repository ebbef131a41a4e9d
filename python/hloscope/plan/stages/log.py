"""``StageLog``: a log of Alpa's stage construction, and what its dynamic program weighed."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...analysis.text.units import printed
from ...api.files import written
from ...readers.alpa_log import Chosen, Interval, Parsed, Profile, config_names, parse
from ...show.pages.page import mimebundle, page
from .choices import Choice, objective
from .plan import StagePlan, answer, make_plan, sections, text
from .solver import Solution

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, slots=True)
class Identity:
    """A sum that the printed memory figures satisfy: in how many rows, within rounding."""

    module: int  # 0 forward, 1 backward
    formula: str
    holds: int
    rows: int


@dataclass(frozen=True, eq=False)
class StageLog:
    """A log of Alpa's automatic stage construction.

    Figures are as printed, each with its interval of rounding; they were measured where the log was
    made.
    """

    rows: tuple[Profile, ...]
    submeshes: tuple[tuple[int, ...], ...]
    profiling_seconds: dict[int, float]  # by submesh
    chosen: Chosen | None
    microbatches: int | None
    warnings: tuple[str, ...] = ()
    origin: str = ""

    @property
    def layers(self) -> int:
        return max(r.end for r in self.rows) + 1

    @property
    def devices(self) -> int:
        """Devices of the cluster: all submeshes of the chosen solution, else the largest one."""
        if self.chosen is not None:
            return sum(math.prod(m) for m in self.chosen.meshes)
        return max(math.prod(m) for m in self.submeshes)

    def config_name(self, row: Profile) -> str:
        """The configuration by its logical mesh, where the submesh has all that Alpa tries."""
        names = config_names(math.prod(self.submeshes[row.submesh]))
        count = len({r.config for r in self.rows if r.submesh == row.submesh})
        return names[row.config] if count == len(names) else f"configuration {row.config}"

    @cached_property
    def identities(self) -> tuple[Identity, ...]:
        """Which sums of the printed parts make the printed peak, pass by pass."""
        out = []
        for module in sorted({r.module for r in self.rows}):
            rows = [r for r in self.rows if r.module == module]
            sums = {
                "in + out + temp": ("in_bytes", "out_bytes", "temp_bytes"),
                "in + temp": ("in_bytes", "temp_bytes"),
            }
            found = [
                Identity(module, f"peak = {name}", sum(_makes(r, parts) for r in rows), len(rows))
                for name, parts in sums.items()
            ]
            out.append(max(found, key=lambda i: i.holds))
        return tuple(out)

    @cached_property
    def _by_stage(self) -> dict[tuple[int, int, int, int], Choice]:
        both: dict[tuple[int, int, int, int], dict[int, Profile]] = {}
        for r in self.rows:
            both.setdefault((r.start, r.end, r.submesh, r.config), {})[r.module] = r
        out = {}
        for key, found in both.items():
            if 0 not in found or 1 not in found:
                continue
            forward, backward = found[0], found[1]
            if not math.isfinite(forward.seconds.value + backward.seconds.value):
                continue
            out[key] = Choice(
                key[0], key[1], self.submeshes[key[2]], forward.seconds, backward.seconds,
                self.config_name(forward),
                max(forward.peak_bytes.value, backward.peak_bytes.value),
            )  # fmt: skip
        return out

    def plan(self, microbatches: int | None = None) -> StagePlan:
        """The choices of the dynamic program, solved again with intervals.

        ``microbatches`` is needed where the text around the log does not give it. Raises
        ``ValueError`` without it.
        """
        b = microbatches or self.microbatches
        if b is None:
            raise ValueError(
                "the text does not say how many microbatches there were "
                "(num_micro_batches=…); give microbatches="
            )
        names = [f"layer {n}" for n in range(self.layers)]
        limits = [r.available_bytes.high for r in self.rows]
        missing = len({(r.start, r.end, r.submesh, r.config) for r in self.rows})
        missing -= len(self._by_stage)
        failed = [f"{missing} stage(s) without a usable row of each pass"] if missing else []
        made = make_plan(
            tuple(self._by_stage.values()), names, self.devices, b,
            memory_bytes=min((x for x in limits if math.isfinite(x)), default=None),
            origin="measured", failed=tuple(failed),
        )  # fmt: skip
        given = self._given(b)
        return replace(made, given=given) if given is not None else made

    def _given(self, microbatches: int) -> Solution | None:
        """The chosen solution as rows of the log; None if that is not certain."""
        if self.chosen is None:
            return None
        stages = []
        c = self.chosen
        for n, (layers, mesh) in enumerate(zip(c.layers, c.meshes, strict=True)):
            found = [
                choice
                for choice in self._by_stage.values()
                if (choice.start, choice.end) == (min(layers), max(layers))
                and choice.submesh == mesh
            ]
            if n < len(c.logical):
                name = f"({', '.join(map(str, c.logical[n]))})"
                forced = n < len(c.options) and "force_batch_dim_to_mesh_dim" in c.options[n]
                wanted = f"{name} batch" if forced else name
                found = [choice for choice in found if choice.option == wanted] or found
            if len(found) != 1:
                return None
            stages.append(found[0])
        return Solution(tuple(stages), objective(stages, microbatches))

    def to_dict(self) -> dict[str, Any]:
        """Plain data: every row, in seconds and bytes."""
        return {
            "kind": "stage-log",
            "rows": self._plain(),
            "submeshes": [list(s) for s in self.submeshes],
            "profiling_seconds": self.profiling_seconds,
            "microbatches": self.microbatches,
            "identities": [
                {"module": i.module, "formula": i.formula, "holds": i.holds, "rows": i.rows}
                for i in self.identities
            ],
            "warnings": list(self.warnings),
        }

    def _plain(self) -> list[dict[str, Any]]:
        return [
            {
                "start": r.start,
                "end": r.end,
                "submesh": list(self.submeshes[r.submesh]),
                "config": r.config,
                "option": self.config_name(r),
                "pass": ("forward", "backward")[r.module] if r.module < 2 else str(r.module),
                "seconds": r.seconds.value,
                "peak_bytes": r.peak_bytes.value,
                "in_bytes": r.in_bytes.value,
                "out_bytes": r.out_bytes.value,
                "temp_bytes": r.temp_bytes.value,
                "available_bytes": r.available_bytes.value,
            }
            for r in self.rows
        ]

    def to_pandas(self) -> pd.DataFrame:
        """One row per profiled module. Needs pandas."""
        import pandas as pd

        return pd.DataFrame(self._plain())

    def html(self) -> str:
        """One offline page, as text."""
        return page(self.title, log_data(self), repr(self))

    def to_html(self, path: str | Path) -> Path:
        """Writes ``html`` to ``path`` and returns the path."""
        return written(path, self.html())

    @property
    def title(self) -> str:
        return f"Stage log · {self.origin}" if self.origin else "Stage log"

    def __repr__(self) -> str:
        return log_text(self)

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> Any:
        plan = self.plan() if self.microbatches else None
        return mimebundle(self.title, log_data(self), repr(self), answer(plan) if plan else None)


def read_stage_log(text: str, origin: str = "") -> StageLog:
    """The log in a text. Raises ``StageLogError`` saying what is missing."""
    p: Parsed = parse(text)
    return StageLog(
        p.rows, p.submeshes, p.profiling_seconds, p.chosen, p.microbatches, p.warnings, origin
    )


def _makes(row: Profile, parts: tuple[str, ...]) -> bool:
    found: list[Interval] = [getattr(row, p) for p in parts]
    low, high = sum(p.low for p in found), sum(p.high for p in found)
    slack = 1e-9 * row.peak_bytes.high
    return row.peak_bytes.low <= high + slack and row.peak_bytes.high >= low - slack


def log_text(log: StageLog) -> str:
    """A log as text, for ``print``."""
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
    shown: list[dict[str, Any]] = [{"type": "facts", "rows": facts}]
    if log.warnings:
        warnings = "\n".join(log.warnings)
        shown.append({"type": "text", "title": "Warnings", "text": warnings})
    if log.microbatches is not None:
        shown += sections(log.plan())
    shown.append(_rows(log))
    return {"title": log.title, "sections": shown}


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
