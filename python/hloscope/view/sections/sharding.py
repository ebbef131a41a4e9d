"""Devices, the mesh, and which device holds which part of each array."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...analysis.base.table import csr
from ...analysis.comms.arrays import ShardedArray
from ...analysis.comms.collectives import collectives
from ...analysis.comms.sharding import Shardings, shardings
from ...hlo import Device
from ...hlo.limits import MOST_IN_TABLE
from ...hlo.shardings.sharding import Sharding
from ..builder import Builder
from ..context import Context

ROLES = ("parameter", "output", "value")


def add(builder: Builder, context: Context) -> None:
    """Writes ``device.*``, ``array.*`` and ``sharding.*`` for programs of several devices."""
    found = shardings(context.module, context.target)
    n = found.num_devices
    if n < 2:
        return
    b = builder
    known = {d.partition: d for d in context.target.devices}
    ids = [known[p].id if p in known else p for p in range(n)]
    b.column("device.id", ids)
    for role in ROLES[:2]:
        b.column(f"device.{role}_bytes", found.device_bytes(role))
    coords = _coords([known[p] for p in range(n)]) if len(known) == n else []
    slices = [known[p].slice for p in range(n)] if len(known) == n else []
    mesh = found.mesh
    context.extras["devices"] = {
        "count": n,
        "kind": context.target.device_kind,
        "coords": [list(c) for c in coords if c is not None] if all(coords) and coords else [],
        "slices": slices if len(set(slices)) > 1 else [],
        "mesh": None
        if mesh is None
        else {
            "names": list(mesh.axis_names),
            "sizes": list(mesh.axis_sizes),
            "partitions": list(mesh.partitions),
            "given": context.target.mesh is not None,
        },
    }
    _traffic(b, context)
    if found.rows:
        _arrays(b, context, found)


def _coords(devices: Sequence[Device]) -> list[tuple[int, ...] | None]:
    """Places on the torus; slices, each a torus of its own, side by side."""
    first = min((d.slice for d in devices), default=0)
    width = max((d.coords[0] for d in devices if d.coords), default=0) + 2
    return [
        (d.coords[0] + (d.slice - first) * width, *d.coords[1:]) if d.coords else None
        for d in devices
    ]


def _traffic(b: Builder, context: Context) -> None:
    """Bytes sent from device to device by all collectives, where there are any."""
    moved = collectives(context.module, context.target)
    b.column("device.sent_bytes", moved.sent_bytes())
    if moved.num_devices > MOST_IN_TABLE:
        return
    matrix = moved.traffic()
    source, target = np.nonzero(matrix)
    if len(source):
        b.column("traffic.source", source)
        b.column("traffic.target", target)
        b.column("traffic.bytes", matrix[source, target])


def _arrays(b: Builder, context: Context, found: Shardings) -> None:
    rows = found.rows
    distinct: dict[tuple[str, int], int] = {}
    patterns: list[tuple[Sharding, ShardedArray]] = []
    of = []
    for r in rows:
        key = (r.sharding.text, len(r.global_shape))
        if key not in distinct:
            distinct[key] = len(patterns)
            patterns.append((r.sharding, r))
        of.append(distinct[key])
    b.column("array.role", [ROLES.index(r.role) for r in rows])
    b.column("array.name", [r.name for r in rows])
    instruction = [r.instruction.index if r.instruction is not None else -1 for r in rows]
    b.column("array.instruction", instruction)
    b.column("array.sharding", of)
    b.column("array.type", [r.element_type for r in rows])
    b.column("array.bytes", [r.bytes_per_device for r in rows])
    b.column("array.global_bytes", [r.global_bytes for r in rows])
    b.column("array.padded", [r.is_padded_shape for r in rows])
    whole = csr([r.global_shape for r in rows])
    b.relation("array_dims", whole.offsets, whole.values)
    local = csr([r.local_shape for r in rows])
    b.relation("array_local", local.offsets, local.values)

    n = found.num_devices
    b.column("sharding.text", [r.text for _, r in patterns])
    b.column("sharding.raw", [s.text for s, _ in patterns])
    b.column("sharding.kind", [s.kind for s, _ in patterns])
    b.column("sharding.replicas", [r.replicas for _, r in patterns])
    tiles = [(*s.tiles, *(1,) * len(r.global_shape))[: len(r.global_shape)] for s, r in patterns]
    counts = csr(tiles)
    b.relation("sharding_tiles", counts.offsets, counts.values)
    places = [_places(s, t, n) for (s, _), t in zip(patterns, tiles, strict=True)]
    b.column("sharding_place.tile", np.concatenate(places))


def _places(sharding: Sharding, tiles: tuple[int, ...], n: int) -> Any:
    """Row-major number of the tile that each device holds; -1 none."""
    at = sharding.coordinates(len(tiles), n)
    if sharding.kind == "maximal":
        return np.where(np.arange(n) == sharding.device, 0, -1)
    if not tiles:
        return np.zeros(n, np.int64)
    held = (at >= 0).all(axis=1)
    return np.where(held, np.ravel_multi_index(np.maximum(at, 0).T, tiles), -1)
