"""``print(capture)``: a summary of at most 25 lines, with units, safe with any name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ..analysis.memory.summary import step_in_words
from ..analysis.text.units import duration, exact_size, marked, quantity, size, spanned
from ..hlo import opcodes
from ..hlo.parts import printable

if TYPE_CHECKING:
    from ..api.capture import Capture

MAX_LINES = 25
TOLD = 3  # findings
WIDTH = 100  # characters; longer values are cut

Summary = Mapping[str, Any]
Row = tuple[str, str]


def _program(s: Summary, capture: Capture) -> list[Row]:
    scheduled = ", scheduled" if capture.module.is_scheduled else ""
    entry = f"{s['entry_instructions']:,} in ENTRY"
    return [
        ("instructions", f"{s['instructions']:,} ({entry}{scheduled})"),
        ("computations", f"{s['computations']:,}"),
        ("fusions", _counted(s["fusions"])),
    ]


def _work(s: Summary, capture: Capture) -> list[Row]:
    """Landmarks by family, so that matmuls in disguise count as matmuls."""
    from collections import Counter

    from ..analysis.base.labels.families import FAMILIES, families

    module = capture.module
    inside = opcodes.FUSIONS | opcodes.CALLS
    found = Counter(
        FAMILIES[f].label
        for f, i in zip(families(module).tolist(), module.instructions, strict=True)
        if FAMILIES[f].landmark and i.opcode not in inside and not i.opcode.endswith("-done")
    )
    return [("landmarks", ", ".join(f"{n:,} {label}" for label, n in found.most_common()))]


def _cost(s: Summary, capture: Capture) -> list[Row]:
    """What is in the summary once the analyses are made; see ``quick_summary``."""
    if "flops" not in s:
        return []
    one_trip = bool(s.get("trip_counts_may_be_zero"))
    is_least = bool(s["trip_counts_unknown"]) and not one_trip
    low = s.get("flops_least", s["flops"])
    flops = spanned(low, low if is_least else s["flops"], lambda v: quantity(v, "FLOP"))
    by = ", depending on which branches run" if "flops_least" in s and not is_least else ""
    accessed = size(s.get("bytes_accessed_least" if is_least else "", s["bytes_accessed"]))
    if is_least:
        flops, accessed = f"≥ {flops}", f"≥ {accessed}"
    said = f"{flops}, {accessed} accessed{_a_device(s)}{by}"
    rows = [("cost", marked(said, is_least=False, is_one_trip=one_trip))]
    step = step_in_words(s)
    if step is not None:
        seconds = s["modelled_seconds"]
        words = {"compute": "compute", "memory": "memory", "collective": "collectives"}
        bound = ", ".join(f"{w} {duration(seconds[k])}" for k, w in words.items() if seconds[k])
        told = f"{step} on {s['hardware']}"
        rows.append(("modelled", f"{told}: {bound}" if bound else told))
    return rows


def _measured(s: Summary, capture: Capture) -> list[Row]:
    found = s.get("measured")
    if not found:
        return []
    where = f"each of {found['devices']:,} devices" if found["devices"] > 1 else "1 device"
    landed = f"{100 * found['coverage']:.1f} % of it on an instruction"
    told = f"{duration(found['seconds_a_step'])} a step on {where}, {found['steps']:,} steps"
    return [("measured", f"{told}; {landed}")]


def _peak(s: Summary, capture: Capture) -> list[Row]:
    if s.get("peak_live_bytes") is None:
        return []
    return [("peak", f"{exact_size(s['peak_live_bytes'])}{_a_device(s)}, {s['peak_source']}")]


def _collectives(s: Summary, capture: Capture) -> list[Row]:
    found = s.get("collectives")
    if not found:
        return []
    ordered = sorted(found, key=lambda row: -(row["wire_bytes"] or 0))
    parts = [f"{row['count']:,} {row['kind']} over {row['axes'] or '?'}" for row in ordered]
    if s["wire_bytes"] is None:
        return [("wire", f"unknown: {', '.join(parts)}")]
    one_trip = any("one_trip" in row for row in found)
    is_least = not one_trip and any("lower_bound" in row for row in found)
    low = s.get("wire_bytes_least", s["wire_bytes"])
    wire = spanned(low, low if is_least else s["wire_bytes"], size)
    wire = marked(wire, is_least=is_least, is_one_trip=one_trip)
    by = " depending on which branches run" if "wire_bytes_least" in s and not is_least else ""
    return [("wire", f"{wire} per device{by}: {', '.join(parts)}")]


def _a_device(s: Summary) -> str:
    return " per device" if s["shapes"] == "local" else " in global shapes, before partitioning"


def _memory(s: Summary, capture: Capture) -> list[Row]:
    where = _a_device(s) if s["output_bytes"] is not None else ""
    if s["parameters"] is None:
        return [("parameters", "unknown"), ("outputs", "unknown")]
    return [
        ("parameters", f"{s['parameters']:,} of {exact_size(s['parameter_bytes'])}{where}"),
        ("outputs", f"{exact_size(s['output_bytes'])}{where}"),
    ]


def _devices(s: Summary, capture: Capture) -> list[Row]:
    rows = [("partitions", f"{s['partitions']:,}"), ("replicas", f"{s['replicas']:,}")]
    mesh = capture.target.mesh
    if mesh is not None:
        axes = zip(mesh.axis_names, mesh.axis_sizes, strict=True)
        rows.append(("mesh", ", ".join(f"{a} {n}" for a, n in axes)))
    return rows


def _opcodes(s: Summary, capture: Capture) -> list[Row]:
    most = list(s["opcodes"].items())[:8]
    more = len(s["opcodes"]) - len(most)
    text = ", ".join(f"{n:,} {op}" for op, n in most)
    return [("opcodes", text + (f" and {more} more" if more > 0 else ""))]


# In the order they are printed; an analysis adds its rows with one line.
PARTS: tuple[Callable[[Summary, Capture], list[Row]], ...] = (
    _program,
    _work,
    _memory,
    _cost,
    _measured,
    _peak,
    _collectives,
    _devices,
    _opcodes,
)


# Up to this many instructions the analyses take no noticeable time.
AT_ONCE = 20_000


def is_large(capture: Capture) -> bool:
    """Whether its analyses take a noticeable time; hosts then show the graph first."""
    return len(capture.module.instructions) > AT_ONCE


def quick_summary(capture: Capture) -> dict[str, Any]:
    """The summary if it is there or takes no noticeable time, else only its counts.

    The counts lack cost, memory and collectives: a notebook shows the graph of a large module
    first.
    """
    if capture.for_hosts.is_answered("summary") or not is_large(capture):
        return capture.summary
    from ..analysis.report.summary import CONTRIBUTIONS, summarize

    return summarize(capture.module, capture.target, CONTRIBUTIONS[:1])


def summary_text(capture: Capture, summary: Summary | None = None) -> str:
    """The program in a few aligned lines: sizes in bytes per device, counts, warnings.

    ``summary`` replaces the capture's own, which runs the analyses, where that takes long.
    """
    if summary is None:
        summary = capture.summary
    rows = [row for part in PARTS for row in part(summary, capture) if row[1]]
    width = max(len(name) for name, _ in rows)
    lines = [_cut(f"{capture.title} · {_subtitle(capture)}")]
    lines += [_cut(f"  {name:<{width}}  {value}") for name, value in rows]
    found = summary.get("findings", [])
    lines += [_cut(f"  {n}. {f['title']}") for n, f in enumerate(found[:TOLD], 1)]
    if len(found) > TOLD:
        lines.append(f"  … and {len(found) - TOLD:,} more in cap.findings")
    warnings = [str(w) for w in summary.get("warnings", [])]
    warnings += [f"XLA: {m['message']}" for m in summary.get("compiler_messages", []) if m["kind"]]
    room = max(1, MAX_LINES - len(lines) - 1)
    lines += [_cut(f"  warning: {w}") for w in warnings[:room]]
    if len(warnings) > room:
        lines.append(f"  … and {len(warnings) - room:,} more warnings")
    return "\n".join(lines[:MAX_LINES])


def _subtitle(capture: Capture) -> str:
    parts = []
    devices = capture.target.devices
    if devices:
        parts.append(f"{len(devices)} × {capture.target.device_kind or capture.target.platform}")
    if capture.file:
        parts.append(capture.file)
    return " · ".join([*parts, capture.stage])


def _counted(kinds: Mapping[str, int]) -> str:
    if not kinds:
        return "none"
    total = sum(kinds.values())
    return f"{total:,} ({', '.join(f'{n:,} {kind}' for kind, n in kinds.items())})"


def _cut(line: str) -> str:
    line = printable(line)
    return line if len(line) <= WIDTH else line[: WIDTH - 1] + "…"
