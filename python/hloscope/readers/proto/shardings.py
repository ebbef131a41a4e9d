"""OpSharding, device meshes and replica groups → the text XLA prints."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

from .shapes import joined

REPLICATED, MAXIMAL, TUPLE, OTHER, MANUAL, UNKNOWN, UNREDUCED = range(7)
_SIMPLE = {REPLICATED: "replicated", MANUAL: "manual", UNKNOWN: "unknown", UNREDUCED: "unreduced"}
_SUBGROUP = {**_SIMPLE, MAXIMAL: "maximal"}
MAX_DEPTH = 100
MetadataText = Callable[[Any], str]


def numbers(values: Iterable[int]) -> str:
    return ",".join(map(str, values))


def sharding_text(sharding: Any, metadata: MetadataText, depth: int = 0) -> str:
    """``{devices=[2,4]<=[8]}`` and the like."""
    if sharding.HasField("named_sharding"):
        return _named(sharding.named_sharding, metadata)
    if sharding.type == TUPLE:
        if depth > MAX_DEPTH:
            return "{}"
        parts = [sharding_text(s, metadata, depth + 1) for s in sharding.tuple_shardings]
        return "{" + joined(parts) + "}"
    tail = ""
    if sharding.is_shard_group:
        kind = "shard_like" if sharding.shard_group_type == 1 else "shard_as"
        tail += f" {kind} {sharding.shard_group_id}"
    marks = [metadata(m) for m in sharding.metadata]
    if len(marks) == 1:
        tail += " metadata={" + marks[0] + "}"
    elif marks:
        tail += " metadata={" + ", ".join("{" + m + "}" for m in marks) + "}"
    if sharding.type in _SIMPLE:
        return "{" + _SIMPLE[sharding.type] + tail + "}"
    if sharding.type == MAXIMAL:
        return "{maximal device=" + numbers(sharding.tile_assignment_devices[:1]) + tail + "}"
    text = f"{{devices=[{numbers(sharding.tile_assignment_dimensions)}]"
    if sharding.iota_reshape_dims:
        text += iota_text(sharding.iota_reshape_dims, sharding.iota_transpose_perm)
    else:
        text += numbers(sharding.tile_assignment_devices)
    if sharding.replicate_on_last_tile_dim:
        text += " last_tile_dim_replicate"
    if sharding.last_tile_dims:
        names = ", ".join(_SUBGROUP.get(t, str(t)) for t in sharding.last_tile_dims)
        text += " last_tile_dims={" + names + "}"
    return text + tail + "}"


def iota_text(reshape_dims: Any, transpose_perm: Any) -> str:
    """``<=[2,4]T(1,0)``: device ids counted up in this shape, then transposed."""
    text = f"<=[{numbers(reshape_dims)}]"
    if len(reshape_dims) > 1:
        text += f"T({numbers(transpose_perm)})"
    return text


def mesh_text(mesh: Any) -> str:
    """``mesh['x'=2,'y'=4]``, with ``device_ids=(…)`` where they are not in order."""
    axes = ",".join(f"'{_name(a.name)}'={a.size}" for a in mesh.axes)
    text = f"mesh[{axes}]"
    if mesh.HasField("iota_transform"):
        t = mesh.iota_transform
        order = f"[{numbers(t.reshape_dims)}]"
        if len(t.transpose_perm) > 1:
            order += f"T({numbers(t.transpose_perm)})"
        text += f", device_ids=({order})"
    elif mesh.device_ids:
        ids = list(mesh.device_ids)
        if len(ids) != math.prod(a.size for a in mesh.axes) or ids != sorted(ids):
            text += f", device_ids=({numbers(ids)})"
    return text


def axis_text(axis: Any, mesh: Any) -> str:
    index = axis.mesh_axis_index
    name = _name(mesh.axes[index].name) if 0 <= index < len(mesh.axes) else str(index)
    if axis.HasField("sub_axis_info"):
        return f"'{name}':({axis.sub_axis_info.pre_size}){axis.sub_axis_info.size}"
    return f"'{name}'"


def _axes(axes: Any, mesh: Any, more: str = "") -> str:
    parts = [axis_text(a, mesh) for a in axes]
    if more:
        parts.append(more)
    return "{" + ", ".join(parts) + "}"


def _named(sharding: Any, metadata: MetadataText) -> str:
    mesh = sharding.mesh
    marks = [metadata(m) for m in sharding.metadata]
    tail = ", metadata={" + ", ".join("{" + m + "}" for m in marks) + "}" if marks else ""
    sharded = any(d.axes or not d.is_closed for d in sharding.dim_shardings)
    special = sharding.replicated_axes or sharding.unreduced_axes or sharding.manual_axes
    if not mesh.axes and len(mesh.device_ids) == 1:
        return "{maximal device=" + numbers(mesh.device_ids) + tail + "}"
    if not sharded and not special:
        return "{replicated" + tail + "}"
    dims = ", ".join(
        _axes(d.axes, mesh, "" if d.is_closed else "?") for d in sharding.dim_shardings
    )
    text = "{" + mesh_text(mesh) + f", [{dims}]"
    for word in ("replicated", "unreduced", "manual"):
        axes = getattr(sharding, f"{word}_axes")
        if axes:
            text += f", {word}={_axes(axes, mesh)}"
    return text + tail + "}"


def _name(name: bytes) -> str:
    return name.decode("utf-8", errors="replace")


def replica_groups_text(instruction: Any) -> str:
    """The groups in whichever of the four spellings the dump has."""
    if instruction.HasField("mesh_axes_replica_group_list"):
        groups = instruction.mesh_axes_replica_group_list
        return f"{mesh_text(groups.mesh)} {_axes_tight(groups)}"
    if instruction.HasField("iota_collective_device_list"):
        groups = instruction.iota_collective_device_list
        return f"[{groups.num_replica_groups},{groups.num_devices_per_group}]" + iota_text(
            groups.iota_reshape_dims, groups.iota_transpose_perm
        )
    listed = (
        instruction.collective_device_list.replica_groups
        if instruction.HasField("collective_device_list")
        else instruction.replica_groups
    )
    return "{" + ",".join("{" + numbers(g.replica_ids) + "}" for g in listed) + "}"


def _axes_tight(groups: Any) -> str:
    return "{" + ",".join(axis_text(a, groups.mesh) for a in groups.axes) + "}"
