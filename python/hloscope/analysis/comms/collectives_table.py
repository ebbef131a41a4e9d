"""``Collectives`` as text: totals by axes and kind, aligned."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..text.units import printed, size, spanned

if TYPE_CHECKING:
    from .collective import Total
    from .collectives import Collectives


def text(found: Collectives) -> str:
    """One line per total; ``≥`` marks sums in which a trip count or formula is unknown, ``a – b``
    those that depend on which branches run."""
    if not found.rows and found.dialect != "hlo":
        return f"collectives are not known yet: this is {found.dialect}, before partitioning"
    if not found.rows:
        return "no collectives"
    mesh = found.mesh
    over = f"{found.num_devices} devices"
    if mesh is not None:
        axes = zip(mesh.axis_names, mesh.axis_sizes, strict=True)
        over += ", mesh " + " × ".join(f"{name}={n}" for name, n in axes)
    if found.num_slices:
        over += f", {found.num_slices} slices"
    head = f"{len(found.rows)} collectives over {over}"
    rows = [("kind", "axes", "count", "executions", "payload", "wire per device")]
    for t in found.totals(("kind", "axes")):
        low = "≥ " if t.is_lower_bound else ""
        kind, axes_or_groups = (k or "unknown" for k in t.key)
        rows.append((
            kind, axes_or_groups, str(t.count),
            low + spanned(t.least_executions, t.executions, str),
            low + spanned(t.least_payload_bytes, t.payload_bytes, size),
            _wire(t),
        ))  # fmt: skip
    widths = [max(len(r[c]) for r in rows) for c in range(len(rows[0]))]
    lines = []
    for r in rows:
        cells = [r[c].ljust(widths[c]) if c < 2 else r[c].rjust(widths[c]) for c in range(len(r))]
        lines.append("  ".join(cells).rstrip())
    if found.num_slices:  # transfers between slices use another network
        each = sorted(found.totals(("network",)), key=lambda t: str(t.key))
        said = (f"{t.key[0]} {_wire(t)}" for t in each)
        lines.append("wire per device and network: " + ", ".join(said))
    if (total := found.total).is_range:
        wire = spanned(total.least_wire_bytes, total.wire_bytes, size)
        lines.append(f"in all {wire} per device, depending on which branches of conditionals run")
    return printed([head, *lines])


def _wire(t: Total) -> str:
    if t.wire_is_unknown:
        return "unknown"
    return "≥ " * t.is_lower_bound + spanned(t.least_wire_bytes, t.wire_bytes, size)
