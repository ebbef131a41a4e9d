"""Shardings as mesh axes per dimension, and into how many tiles axes cut a dimension."""

from __future__ import annotations

import math
from collections.abc import Iterable

from ..mesh import Mesh
from .sharding import Sharding

Spec = tuple[tuple[str, ...], ...]  # mesh axes of each dimension


def spec_of(sharding: Sharding, rank: int, mesh: Mesh | None) -> Spec | None:
    """Axis names per dimension, () for unsharded ones; None if axes cannot express the sharding."""
    spec = sharding.to_spec(mesh, rank) if mesh is not None else sharding.spec
    if spec is None:
        return None
    return tuple(tuple(map(str, axes)) for axes in spec) + ((),) * (rank - len(spec))


def axis_of(ref: str) -> str:
    """The axis that a part belongs to: ``model`` for ``model:(1)2``."""
    return ref.partition(":")[0]


def tile_count(dim: Iterable[str], mesh: Mesh | None) -> int:
    """Into how many tiles these axes, or parts of axes, cut a dimension; 1 without a mesh."""
    sizes = dict(zip(mesh.axis_names, mesh.axis_sizes, strict=True)) if mesh is not None else {}
    parts = (ref.rpartition(")")[2] for ref in dim)
    return math.prod(int(n) if n.isdecimal() else sizes.get(n, 1) for n in parts)
