"""The explorer of an analytic transformer: sliders over sizes, every mesh of that many chips.

The cases behind the sliders are computed here, once, and are part of the page: a slider
looks them up and computes nothing.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from ...api.files import written
from .meshes import best_meshes, mesh_label
from .model import MEMORY_PARTS, TIME_PARTS, AnalyticModel
from .text import table_rows

# At most this many meshes of a case are shown, quickest first.
SHOWN = 8
# Beyond this many cases a page takes long to make and to open.
MOST_CASES = 2_000


@dataclass(frozen=True, eq=False)
class Explorer:
    """The result of ``Transformer.explore``: displays in a notebook, saves as a page."""

    model: AnalyticModel
    sliders: dict[str, tuple[int, ...]]

    @cached_property
    def view(self) -> dict[str, Any]:
        """The ``PlanView`` of js/plan/view.ts."""
        m = self.model
        cases = [
            _case(m, dict(zip(self.sliders, values, strict=True)))
            for values in itertools.product(*self.sliders.values())
        ]
        time = _used(cases, "time", TIME_PARTS)
        memory = _used(cases, "memory", MEMORY_PARTS)
        start = {"chips": m.sizes.devices} | {
            n: int(getattr(m.sizes, n)) for n in self.sliders if n != "chips"
        }
        explorer = {
            "type": "explorer",
            "title": "Sizes and meshes",
            "note": f"Modelled on {m.rates.label}. Nothing overlaps"
            + (" but what goes over data" if m.overlap else "")
            + "; memory that does not fit comes last.",
            "sliders": [
                {"name": n, "values": list(v), "at": v.index(start[n])}
                for n, v in self.sliders.items()
            ],
            "facts": [
                {"name": "a step", "unit": "s"},
                {"name": "tokens/s"},
                {"name": "memory", "unit": "B"},
                {"name": "of peak, %"},
            ],
            "time": time,
            "memory": memory,
            "cases": cases,
        }
        return {"title": f"AnalyticModel on {m.rates.label}", "sections": [
            {"type": "facts", "rows": facts(m)}, explorer, _bars(m), _layers(m),
        ]}  # fmt: skip

    def html(self) -> str:
        """One offline page, as text."""
        from ...show.pages.page import page

        return page("AnalyticModel", self.view, repr(self.model))

    def to_html(self, path: str | Path) -> Path:
        """Writes ``html`` to ``path`` and returns the path."""
        return written(path, self.html())

    def __repr__(self) -> str:
        return repr(self.model)

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> Any:
        from ...show.pages.page import mimebundle

        return mimebundle("AnalyticModel", self.view, repr(self.model))


def explorer(model: AnalyticModel, **sliders: Sequence[int]) -> Explorer:
    """Sliders by name of a size ("batch", "seq", "embed", "depth", …) or "chips".

    Without any: batch, seq, embed and chips, at halves and multiples of the model's own.
    Raises ``ValueError`` for a name that is not a whole size and for too many
    cases.
    """
    s = model.sizes
    whole = ("batch", "seq", "embed", "depth", "heads", "hidden", "kv_heads", "microbatches",
             "experts", "vocab", "top_k")  # fmt: skip
    for name in sliders:
        if name not in (*whole, "chips"):
            raise ValueError(f"no slider {name!r}; there are {', '.join(whole)}, chips")
    chosen: dict[str, Sequence[int]] = dict(sliders) or {
        "batch": (s.batch, 4 * s.batch, 16 * s.batch),
        "seq": (s.seq // 2, s.seq, 2 * s.seq),
        "embed": (s.embed // 2, s.embed),
        "chips": (s.devices, 2 * s.devices, 4 * s.devices),
    }
    own = {"chips": s.devices} | {n: int(getattr(s, n)) for n in chosen if n != "chips"}
    full = {n: tuple(sorted({int(v) for v in (*values, own[n]) if v >= 1})) for n, values in
            chosen.items()}  # fmt: skip
    count = 1
    for values in full.values():
        count *= len(values)
    if count > MOST_CASES:
        raise ValueError(f"these sliders make {count:,} cases; at most {MOST_CASES:,}")
    return Explorer(model, full)


def _case(model: AnalyticModel, values: dict[str, int]) -> dict[str, Any]:
    sizes = dict(values)
    chips = sizes.pop("chips", model.sizes.devices)
    try:
        # a mesh of one device: its own is replaced by all meshes of that many chips
        alone = model.with_sizes(mesh={}, tensor_kind="1d", **sizes)
        found = best_meshes(alone, chips, SHOWN)
    except ValueError as error:
        return {"meshes": [], "why": str(error)}
    return {
        "meshes": [
            {
                "label": mesh_label(m),
                "fits": m.totals.fits is not False,
                "facts": [
                    _short(x)
                    for x in (
                        m.totals.step_seconds,
                        m.totals.tokens_per_second,
                        m.totals.memory_bytes,
                        100 * m.totals.model_flops_utilization,
                    )
                ],
                "time": [_short(m.totals.seconds[p]) for p in TIME_PARTS],
                "memory": [_short(m.totals.memory[p]) for p in MEMORY_PARTS],
            }
            for m in found
        ]
    }


def _used(cases: list[dict[str, Any]], what: str, names: tuple[str, ...]) -> list[str]:
    """Names of the parts that are not 0 in every case; figures of the others are removed."""
    meshes = [mesh for case in cases for mesh in case["meshes"]]
    kept = [k for k in range(len(names)) if any(mesh[what][k] for mesh in meshes)]
    for mesh in meshes:
        mesh[what] = [mesh[what][k] for k in kept]
    return [names[k] for k in kept]


def _short(value: float) -> float:
    return float(f"{value:.4g}")


def facts(m: AnalyticModel) -> list[list[str]]:
    """Names and values that describe a model."""
    from ...analysis.text.units import duration, quantity, size

    t = m.totals
    s = m.sizes
    return [
        ["mesh", mesh_label(m)],
        ["parameters", quantity(t.parameters, "").strip()],
        ["batch × seq", f"{s.batch} × {s.seq}"],
        ["embed, heads, depth", f"{s.embed}, {s.heads}, {s.depth}"],
        ["a step", duration(t.step_seconds)],
        ["FLOPs per device", quantity(t.flops, "FLOP")],
        ["memory per device", size(t.memory_bytes)],
        ["figures", "modelled"],
    ]


def _bars(m: AnalyticModel) -> dict[str, Any]:
    rows = []
    for block, layers in m.blocks.items():
        for layer in layers:
            t = m.time(layer)
            rows.append(
                {
                    "name": f"{block}: {layer.name}",
                    "values": [t.busy_fwd, t.busy_bwd, t.wire_fwd, t.wire_bwd],
                }
            )
    return {
        "type": "bars",
        "title": "Layers of one block, one microbatch",
        "unit": "s",
        "parts": ["forward", "backward", "wire forward", "wire backward"],
        "rows": rows,
    }


def _layers(m: AnalyticModel) -> dict[str, Any]:
    heads, rows = table_rows(m)
    return {
        "type": "table",
        "title": "Layers of one block, per device and microbatch",
        "columns": [{"name": n, "unit": u} for n, u in heads],
        "rows": rows,
    }
