"""The keys ``collectives``, ``shardings``, ``devices`` of ``hloscope summary --json``."""

from __future__ import annotations

import math
from typing import Any

from ...hlo import Module, Target
from ..base.table import per_devices
from .collectives import collectives
from .sharding import shardings


def collectives_summary(module: Module, target: Target) -> dict[str, Any]:
    """One row per kind and axes; bytes are summed over executions.

    ``wire_bytes`` is what one device sends. A row has ``lower_bound`` if a wire formula in it is
    unknown, or the trip count of a loop that runs at least once; ``one_trip`` if a loop that may
    run 0 times is counted once, so that its figures are no bound; its ``wire_bytes`` is None if
    none of it is known. It has
    ``…_least`` if figures depend on which branches of conditionals run: the plain figures are
    then the most possible, and the total ``wire_bytes`` beside the rows is not their sum, since
    rows can exclude one another.
    """
    rows = []
    found = collectives(module, target)
    for t in found.totals(("kind", "axes", "network")):
        kind, axes, network = t.key
        row: dict[str, Any] = {
            "kind": kind,
            "axes": axes,
            "count": t.count,
            "executions": t.executions,
            "payload_bytes": t.payload_bytes,
            "wire_bytes": t.known_wire_bytes,
        }
        if found.num_slices:
            row["network"] = network
        if t.is_range:
            row["executions_least"] = t.least_executions
            row["payload_bytes_least"] = t.least_payload_bytes
            row["wire_bytes_least"] = t.least_wire_bytes
        if t.is_lower_bound:
            row["lower_bound"] = True
        if t.is_one_trip:
            row["one_trip"] = True
        rows.append(row)
    total: dict[str, Any] = {"wire_bytes": found.wire_bytes if found.dialect == "hlo" else None}
    if found.total.is_range:
        total["wire_bytes_least"] = found.total.least_wire_bytes
    return {"collectives": rows} | total


@per_devices
def shardings_summary(module: Module, target: Target) -> dict[str, Any]:
    """Number of parameters by sharding text, and the devices with the parameter bytes of each."""
    found = shardings(module, target)
    held = found.device_bytes("parameter")
    known = {d.partition: d for d in target.devices}
    devices = []
    for partition, bytes_held in enumerate(held.tolist()):
        device = known.get(partition)
        size = None if math.isnan(bytes_held) else int(bytes_held)
        row: dict[str, Any] = {"partition": partition, "parameter_bytes": size}
        if device is not None:
            row |= {"id": device.id, "kind": device.kind}
            if device.coords is not None:
                row["coords"] = list(device.coords)
        devices.append(row)
    return {"shardings": found.counts(), "devices": devices}
