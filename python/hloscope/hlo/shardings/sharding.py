"""``Sharding``: which device holds which part of an array, whatever the spelling.

Every spelling comes down to one array of device numbers with a dimension per array
dimension and one per subgroup (XLA's TileAssignment):

    {devices=[4,1,2]<=[2,4]T(1,0) last_tile_dim_replicate}      for f32[10,64]

        array    [[0,4], [1,5], [2,6], [3,7]]    shape (4, 1 | 2)
                                                        │  │   └ subgroup: replicas of a tile
                                                        │  └ tiles of dimension 1
                                                        └ tiles of dimension 0
        tile 3 → devices 3 and 7 → rows 9:10 of 10 (tiles are ceil(10/4) = 3 rows; the
        last is smaller, and tiles past the end are empty)

A tile's extent is ceil(size / tiles), as XLA's partitioner pads (xla HloSharding::TileShape).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from ..mesh import Mesh
from ..shape import Shape
from .axes import arrange, tile_axes
from .mesh_text import Array, AxisRef

Range = tuple[int, int]  # begin, end of one dimension


@dataclass(frozen=True, slots=True)
class Tile:
    """One tile: its place among the tiles, its index ranges, and the devices that hold it."""

    coordinate: tuple[int, ...]
    ranges: tuple[Range, ...]
    devices: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Sharding:
    """How one array (or, for ``kind`` "tuple", each of ``parts``) is laid out over the devices.

    ``kind`` is tiled, replicated, maximal, manual, unreduced, tuple or unknown. Devices are
    partition numbers. ``spec`` and ``mesh`` are there when the text named mesh axes.
    """

    kind: str
    text: str
    tiles: tuple[int, ...] = ()  # number of tiles of each array dimension
    subgroups: tuple[tuple[str, int], ...] = ()  # ("replicated" | "manual" | "unreduced", size)
    device_array: Array | None = field(default=None, repr=False)
    parts: tuple[Sharding, ...] = ()
    device: int | None = None  # of a maximal sharding
    spec: tuple[tuple[AxisRef, ...], ...] | None = None
    mesh: Mesh | None = field(default=None, repr=False)

    @property
    def num_tiles(self) -> int:
        """Distinct tiles; 1 when the array is whole on each device that holds it."""
        return math.prod(self.tiles)

    @property
    def is_sharded(self) -> bool:
        """Whether some device holds less than the whole array."""
        return self.num_tiles > 1 or any(p.is_sharded for p in self.parts)

    @property
    def is_known(self) -> bool:
        """False when the text was not understood; then only ``text`` means anything."""
        return self.kind != "unknown"

    @property
    def num_devices(self) -> int | None:
        """Devices the text names; None for replicated, manual and unknown ones."""
        if self.parts:
            return max((n for p in self.parts if (n := p.num_devices)), default=None)
        return None if self.device_array is None else int(self.device_array.size)

    def tile_shape(self, dimensions: Sequence[int]) -> tuple[int, ...]:
        """Shape of one device's part, padded as XLA allocates it, of a global shape."""
        tiles = self._tiles_for(len(dimensions))
        return tuple(-(-size // n) for size, n in zip(dimensions, tiles, strict=True))

    def global_shape(self, local: Sequence[int]) -> tuple[int, ...]:
        """The smallest padded global shape with these local dimensions: local × tiles."""
        tiles = self._tiles_for(len(local))
        return tuple(size * n for size, n in zip(local, tiles, strict=True))

    def local_bytes(self, shape: Shape) -> int:
        """Bytes one device holds of an array or tuple of global ``shape``, padding included."""
        if shape.is_tuple:
            parts = self.parts or (self,) * len(shape.tuple_shapes)
            pairs = zip(parts, shape.tuple_shapes, strict=False)
            return sum(p.local_bytes(s) for p, s in pairs)
        if not shape.elements:
            return shape.byte_size
        held = math.prod(self.tile_shape(shape.dimensions))
        return -(-shape.byte_size * held // shape.elements)

    def coordinates(self, rank: int, num_devices: int) -> Array:
        """Tile coordinate of every device, shape (num_devices, rank); -1 if it holds nothing."""
        out = np.zeros((num_devices, rank), dtype=np.int64)
        if self.kind == "maximal":
            out[np.arange(num_devices) != self.device] = -1
        elif self.kind == "tiled" and self.device_array is not None:
            tiles = self._tiles_for(rank)
            ids = self.device_array.reshape(-1)
            per_tile = max(1, ids.size // max(1, math.prod(tiles)))
            flat = np.arange(ids.size) // per_tile
            places = np.stack(np.unravel_index(flat, tiles), axis=1) if rank else out[:0]
            out[:] = -1
            inside = ids < num_devices
            if rank:
                out[ids[inside]] = places[inside]
        return out

    def ranges(self, coordinate: Sequence[int], dimensions: Sequence[int]) -> tuple[Range, ...]:
        """Index ranges of a tile; begin == end if it is past the array."""
        extents = self.tile_shape(dimensions)
        return tuple(
            (min(c * extent, size), min((c + 1) * extent, size))
            for c, extent, size in zip(coordinate, extents, dimensions, strict=True)
        )

    def tile_list(self, dimensions: Sequence[int], num_devices: int) -> list[Tile]:
        """Every tile that a device holds, in row-major order of coordinates."""
        holders: dict[tuple[int, ...], list[int]] = {}
        for device, row in enumerate(self.coordinates(len(dimensions), num_devices).tolist()):
            if -1 not in row and not (self.kind == "maximal" and device != self.device):
                holders.setdefault(tuple(row), []).append(device)
        return [
            Tile(at, self.ranges(at, dimensions), tuple(devices))
            for at, devices in sorted(holders.items())
        ]

    def device_ranges(
        self, dimensions: Sequence[int], num_devices: int
    ) -> dict[int, tuple[Range, ...]]:
        """Device → index ranges it holds; devices that hold nothing are left out."""
        tiles = self.tile_list(dimensions, num_devices)
        return {d: t.ranges for t in tiles for d in t.devices}

    def replicas(self, num_devices: int) -> int:
        """How many devices hold each tile."""
        if self.kind == "maximal":
            return 1
        if self.kind in ("manual", "unknown"):
            return 1
        return max(1, (self.num_devices or num_devices) // self.num_tiles)

    def places_alike(self, other: Sharding, rank: int, num_devices: int) -> bool:
        """Whether both put the same tile on every device (text may differ)."""
        if self.kind == "tuple" or other.kind == "tuple":
            same = len(self.parts) == len(other.parts) and self.kind == other.kind
            pairs = zip(self.parts, other.parts, strict=False)
            return same and all(a.places_alike(b, rank, num_devices) for a, b in pairs)
        if not (self.is_known and other.is_known):
            return self.text == other.text
        mine, theirs = self._special(), other._special()
        if mine != theirs or self._tiles_for(rank) != other._tiles_for(rank):
            return False
        ours = self.coordinates(rank, num_devices)
        return bool((ours == other.coordinates(rank, num_devices)).all())

    def _special(self) -> tuple[object, ...]:
        groups = tuple((k, n) for k, n in self.subgroups if k != "replicated" and n > 1)
        kind = self.kind if self.kind in ("manual", "unreduced", "maximal") else ""
        return (kind, self.device, groups)

    def to_spec(
        self, mesh: Mesh, rank: int | None = None
    ) -> tuple[tuple[AxisRef, ...], ...] | None:
        """Mesh axes of every dimension, major first; None when the mesh does not explain it."""
        if rank is None:
            rank = len(self.tiles)
        if self.kind == "replicated":
            return ((),) * rank
        if self.kind != "tiled":
            return None
        count = len(mesh.partitions)
        if self.num_devices not in (None, count):
            return None
        places = self.coordinates(rank, count)
        out = []
        for dim, tiles in enumerate(self._tiles_for(rank)):
            axes = tile_axes(places[:, dim], tiles, mesh) if tiles > 1 else ()
            if axes is None:
                return None
            out.append(axes)
        return tuple(out)

    def describe(self, mesh: Mesh | None = None, rank: int | None = None) -> str:
        """``P('data', None)`` where mesh axes explain it, else the text as found."""
        if self.kind == "tuple":
            return "(" + ", ".join(p.describe(mesh) for p in self.parts) + ")"
        special = [k for k, n in self.subgroups if k != "replicated" and n > 1]
        spec = self.to_spec(mesh, rank) if mesh is not None else self.spec
        if spec is None or special or self.kind != "tiled":
            return self.text if self.kind != "replicated" else "replicated"
        return spec_text(spec)

    def _tiles_for(self, rank: int) -> tuple[int, ...]:
        tiles = self.tiles[:rank]
        return tiles + (1,) * (rank - len(tiles))


def spec_text(spec: Sequence[Sequence[AxisRef]]) -> str:
    """``P('data', ('fsdp', 'model'), None)``, the way jax prints a PartitionSpec."""
    parts = []
    for axes in spec:
        names = [f"'{a}'" for a in axes]
        one = names[0] if len(names) == 1 else f"({', '.join(names)})"
        parts.append(one if names else "None")
    return f"P({', '.join(parts)}{',' if len(parts) == 1 else ''})"


def named(mesh: Mesh, spec: Sequence[Sequence[AxisRef]], *, text: str = "") -> Sharding:
    """A sharding from mesh axes per dimension. Raises ``ValueError`` when they do not fit."""
    found = from_axes(mesh, spec, {}, text or spec_text(spec))
    if found.kind == "unknown":
        raise ValueError(f"{spec_text(spec)} does not fit the mesh {mesh.axis_names}")
    return found


def from_axes(
    mesh: Mesh,
    spec: Sequence[Sequence[AxisRef]],
    special: dict[str, tuple[AxisRef, ...]],
    text: str,
) -> Sharding:
    """As ``named``, with the axes of ``special`` ("manual", "unreduced"); "unknown" if unfit."""
    kinds = [k for k in ("manual", "unreduced") if special.get(k)]
    rows = [*spec, *(special[k] for k in kinds)]
    array = arrange(mesh, rows)
    if array is None:
        return Sharding("unknown", text)
    tiles = array.shape[: len(spec)]
    groups = [(k, int(n)) for k, n in zip(kinds, array.shape[len(spec) : -1], strict=True)]
    if array.shape[-1] > 1:
        groups.append(("replicated", int(array.shape[-1])))
    spec_out = tuple(tuple(axes) for axes in spec)
    if math.prod(tiles) == 1 and not kinds:
        return Sharding("replicated", text, tiles, spec=spec_out, mesh=mesh)
    return Sharding("tiled", text, tiles, tuple(groups), array, spec=spec_out, mesh=mesh)
