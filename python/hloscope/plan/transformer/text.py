"""An analytic transformer as text, and its layers as a table."""

from __future__ import annotations

from ...analysis.text.units import duration, quantity, size
from ...show.pages.words import columns
from .meshes import mesh_label
from .model import AnalyticModel

Cell = str | float | None


def table_rows(m: AnalyticModel) -> tuple[list[tuple[str, str]], list[list[Cell]]]:
    """(name and unit of every column, rows) of the layers."""
    heads = [
        ("block", ""), ("layer", ""), ("FLOPs fwd", "FLOP"), ("FLOPs bwd", "FLOP"),
        ("moved fwd", "B"), ("moved bwd", "B"), ("weights", "B"), ("kept", "B"),
        ("wire fwd", "B"), ("wire bwd", "B"), ("time fwd", "s"), ("time bwd", "s"),
        ("collectives", ""),
    ]  # fmt: skip
    rows: list[list[Cell]] = []
    for block, layers in m.blocks.items():
        for layer in layers:
            t = m.time(layer)
            sent = [sum(m.sent(e) for e in es) for es in (layer.exchanges_fwd, layer.exchanges_bwd)]
            kinds = [
                f"{e.kind} over {e.axis} ({way})"
                for way, es in (("fwd", layer.exchanges_fwd), ("bwd", layer.exchanges_bwd))
                for e in es
            ]
            rows.append(
                [
                    block, layer.name, layer.flops_fwd, layer.flops_bwd, layer.bytes_fwd,
                    layer.bytes_bwd, layer.weight_bytes, layer.kept_bytes, *sent, t.fwd, t.bwd,
                    ", ".join(kinds),
                ]
            )  # fmt: skip
    return heads, rows


def text(m: AnalyticModel) -> str:
    """A model as text, for ``print``."""
    t = m.totals
    s = m.sizes
    out = [
        f"transformer, {quantity(t.parameters, 'parameters')}: batch {s.batch}, seq {s.seq}, "
        f"embed {s.embed}, heads {s.heads}, depth {s.depth}",
        f"on {m.rates.label}, {s.devices} device{'s' if s.devices > 1 else ''} "
        f"({mesh_label(m)}); all figures modelled, per device",
        "",
    ]
    heads, rows = table_rows(m)
    shown = [[n for n, _ in heads[:-1]]]
    for row in rows:
        cells = [_said(v, unit) for v, (_, unit) in zip(row, heads, strict=True)]
        shown.append(cells[:-1])
    out += columns(shown, "  nnnnnnnnnn")
    out += [
        "",
        f"a step takes {duration(t.step_seconds)}, {t.tokens_per_second:,.0f} tokens/s:",
    ]
    out += [f"  {part:<16}{duration(v)}" for part, v in t.seconds.items() if v]
    limit = "" if t.memory_limit is None else f" of {size(t.memory_limit)}"
    out.append(f"memory {size(t.memory_bytes)}{limit}:")
    out += [f"  {part:<16}{size(v)}" for part, v in t.memory.items() if v]
    if t.wire_bytes:
        sent = ", ".join(f"{axis} {size(v)}" for axis, v in t.wire_bytes.items() if v)
        how = "whole arrays" if m.wire == "whole" else "sent"
        out.append(f"wire bytes ({how}): {sent}")
    return "\n".join(out)


def _said(value: Cell, unit: str) -> str:
    if isinstance(value, str):
        return value
    if unit == "B":
        return size(value) if value else "0"
    if unit == "s":
        return duration(value)
    return quantity(value, unit)
