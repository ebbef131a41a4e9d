"""Every figure of a capture that appears in more than one place: ``told(capture)``.

{"FLOPs": {"summary": 2.1e6, "cost": 2.1e6, "View": 2.1e6, "source": 2.1e6, …}, …}
"""

from __future__ import annotations

from typing import Any

import hloscope as hs
import numpy as np
from hloscope.analysis.memory.liveness.values import ARGUMENT
from hloscope.show import blocks
from hloscope.view.schema import joined

Places = dict[str, float]


def told(cap: Any) -> dict[str, Places]:
    """Figure → place → value; None and absent places are left out."""
    summary, cost, memory = cap.summary, cap.cost(), cap.memory
    source, found, parts = cap.source, cap.collectives, cap.shardings
    header, columns = joined(blocks.view(cap), blocks.analyses(cap))
    view, extras = header["summary"], header["extras"]
    same = {d.name: d.a for d in hs.diff(cap, cap).totals}
    figures: dict[str, Places] = {
        "instructions": {
            "summary": summary["instructions"],
            "module": len(cap.module.instructions),
            "View": header["counts"]["instructions"],
            "page": view["instructions"],
            "columns": len(columns["instruction.bytes"]),
            "opcodes": sum(summary["opcodes"].values()),
            "diff": same["instructions"],
        },
        "FLOPs": _cost(cap, cost, summary, extras, columns, source, same),
        "bytes": {
            "summary": summary["bytes_accessed"],
            "cost": cost.total_bytes,
            "rows": sum(r.bytes_accessed for r in cost),
            "table": float(np.nansum([r["bytes_accessed"] for r in _table(cost)])),
            "page": view["bytes_accessed"],
            "View": extras["cost"]["totals"]["bytes"],
            "columns": _units(columns, "bytes"),
            "source": _lines(source, "bytes_accessed"),
            "diff": same["bytes accessed"],
        },
        "wire": _wire(summary, found, columns, source, same, view, cost),
        "payload": {
            "collectives": found.payload_bytes,
            "table": sum(r.total_payload_bytes for r in found) if _flat(found) else None,
            "View": _sums(columns, "payload") if _flat(found) else None,
        },
        "peak": {
            "summary": summary["peak_live_bytes"],
            "memory": memory.peak_bytes,
            "plain": memory.to_dict()["peak_live_bytes"],
            "page": view["peak_live_bytes"],
            "View": extras["memory"]["peakBytes"],
            "first space": next(iter(summary["peak_by_memory"].values())),
            "diff": same["peak live bytes"],
        },
        "live at the peak": {
            "timeline": int(memory.timeline.max(initial=0)),
            "values": sum(v.bytes for v in memory),
            "categories": sum(memory.by_category.values()),
            "lines": sum(memory.by_line.values()),
            "source": _lines(source, "live_bytes"),
            "View": columns["memory.live"].max(initial=0),
        },
        "parameter bytes": {
            "summary": summary["parameter_bytes"],
            "page": view["parameter_bytes"],
            "diff": same["parameter bytes"],
            "devices": None if not summary["devices"] else summary["devices"][0]["parameter_bytes"],
            "shardings": parts.device_bytes("parameter")[0],
        },
        "arguments": {
            "buffers": float(memory.liveness.size[memory.liveness.kind == ARGUMENT].sum()),
            "View": float(columns["buffer.bytes"][columns["buffer.kind"] == 0].sum()),
        },
        "output bytes": {
            "summary": summary["output_bytes"],
            "page": view["output_bytes"],
            "diff": same["output bytes"],
        },
        "collectives": {
            "summary": sum(r["count"] for r in summary["collectives"]),
            "python": len(found),
            "View": len(columns.get("collective.kind", ())),
            "diff": same["collectives"],
        },
        "estimated cycles": {
            "summary": summary["estimated_cycles"],
            "cost": cost.total_estimated_cycles,
            "rows": _cycles(cost),
        },
        "findings": {
            "summary": len(summary["findings"]),
            "python": len(cap.findings),
            "View": len(extras["findings"]["rows"]) if "findings" in extras else None,
        },
    }
    figures["seconds"] = _seconds(cost, summary, extras, columns, source, view)
    return {k: {p: float(v) for p, v in of.items() if v is not None} for k, of in figures.items()}


def differing(figures: dict[str, Places], within: float = 1e-9) -> dict[str, Places]:
    """The figures that differ between places."""
    out = {}
    for name, places in figures.items():
        values = [v for v in places.values() if v == v]
        low, high = min(values, default=0.0), max(values, default=0.0)
        if len(values) not in (0, len(places)) or high - low > within * max(abs(high), abs(low)):
            out[name] = places
    return out


def _cost(
    cap: Any, cost: Any, summary: Any, extras: Any, columns: Any, source: Any, same: Any
) -> dict[str, Any]:
    return {
        "summary": summary["flops"],
        "cost": cost.total_flops,
        "plain": cost.to_dict()["flops"],
        "table": float(np.nansum([r["flops"] for r in _table(cost)])),
        "View": extras["cost"]["totals"]["flops"],
        "columns": _units(columns, "flops"),
        "source": _lines(source, "flops"),
        "lines of the View": float(columns["source.flops"].sum()) if "source" in extras else None,
        "diff": same["FLOPs"],
    }


def _seconds(
    cost: Any, summary: Any, extras: Any, columns: Any, source: Any, view: Any
) -> dict[str, Any]:
    r = cost.roofline
    if r is None:
        return {}
    return {
        "summary": summary["modelled_seconds"]["total"],
        "roofline": r.total_seconds,
        "page": view["modelled_seconds"]["total"],
        "View": extras["cost"]["totals"]["total"],
        "step": float(np.nansum(columns["cost.step"])),
        "rows": float(sum(x.step_seconds or 0.0 for x in cost)),
        "source": _lines(source, "seconds"),
        "timeline": cost.timeline.seconds,
    }


def _wire(
    summary: Any, found: Any, columns: Any, source: Any, same: Any, view: Any, cost: Any
) -> dict[str, Any]:
    rows = summary["collectives"]
    return {
        "summary": summary["wire_bytes"],
        "kinds": sum(r["wire_bytes"] for r in rows) if _flat(found) else None,
        "collectives": found.wire_bytes,
        "plain": _plain(found) if _flat(found) and _is_known(found) else None,
        "View": _sums(columns, "wire") if _flat(found) else None,
        "page": view["wire_bytes"],
        "source": _lines(source, "wire_bytes"),
        "transfers": float(cost.wire.sum()),
        "diff": same["wire bytes"],
    }


def _flat(found: Any) -> bool:
    """Whether no branches exclude one another, so that rows may be summed."""
    return not any(r.branches for r in found)


def _is_known(found: Any) -> bool:
    """Whether it is known how often each runs: plain rows do not say how often in one trip."""
    return all(r.executions is not None for r in found)


def _plain(found: Any) -> float:
    return sum((r["wire_bytes"] or 0) * r["executions"] for r in found.to_dict()["rows"])


def _sums(columns: Any, name: str) -> float:
    if f"collective.{name}" not in columns:
        return 0.0
    runs = columns["collective.executions"]
    # as the panel does: a loop of unknown trips counts once, with the loops inside it
    a_trip = columns["cost.runs"][columns["collective.instruction"].astype(int)]
    runs = np.where(np.isnan(runs), a_trip, runs)
    return float(np.nansum(columns[f"collective.{name}"] * runs))


def _units(columns: Any, name: str) -> float:
    unit = columns["cost.unit"] > 0
    return float(np.nansum((columns[f"cost.{name}"] * columns["cost.runs"])[unit]))


def _lines(source: Any, name: str) -> float:
    of = sum(getattr(x.own, name) for x in source.lines)
    return float(of + getattr(source.unattributed, name))


def _cycles(cost: Any) -> float | None:
    rows = [x.estimated_cycles * x.runs for x in cost if x.estimated_cycles is not None]
    return float(sum(rows)) if rows else None


def _table(cost: Any) -> list[dict[str, Any]]:
    return list(cost.to_pandas().to_dict("records"))
