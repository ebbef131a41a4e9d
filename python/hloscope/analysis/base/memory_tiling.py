"""Bytes a value really takes in memory: with the padding of its layout's tiles.

f32[5,100]{1,0:T(8,128)}     dense 2,000 B, stored 8·128·4 = 4,096 B
bf16[5,100]{1,0:T(8,128)(2,1)}  first tiles of 8×128, each cut into pairs of rows: 2,048 B
"""

from __future__ import annotations

import math
from functools import lru_cache

from ...hlo import Shape
from ...hlo.limits import MOST_BYTES
from ...hlo.shape import ELEMENT_BITS


def storage_bytes(shape: Shape) -> int:
    """Bytes per device, tile padding included, summed over tuple leaves.

    Equal to ``Shape.byte_size`` where the layout has no tiles (CPU, GPU).
    """
    if shape.is_tuple:
        return sum(storage_bytes(s) for s in shape.tuple_shapes)
    if shape.layout is None or not shape.layout.tiles:
        return shape.byte_size
    return _tiled_bytes(shape)


@lru_cache(maxsize=65536)
def _tiled_bytes(shape: Shape) -> int:
    layout = shape.layout
    bits = ELEMENT_BITS.get(shape.element_type)
    if layout is None or bits is None:
        return 0
    if bits < 8:
        bits = layout.element_size_bits or 8
    order = layout.minor_to_major
    if sorted(order) != [*range(shape.rank)]:
        order = tuple(reversed(range(shape.rank)))
    sizes = [shape.dimensions[d] for d in reversed(order)]  # major to minor
    for tile in layout.tiles:
        sizes = _tile(sizes, tile)
    padded = (math.prod(sizes) * bits + 7) // 8
    return padded if padded <= MOST_BYTES else shape.byte_size  # tiles that no machine has


def _tile(sizes: list[int], tile: tuple[int, ...]) -> list[int]:
    """Shape after one level of tiling: outer counts, then the tile (xla/layout.h)."""
    if any(t <= 0 for t in tile):  # "*": that dimension joins the next; nothing is padded
        return sizes
    sizes = [1] * (len(tile) - len(sizes)) + sizes
    outer, inner = sizes[: len(sizes) - len(tile)], sizes[len(sizes) - len(tile) :]
    return [*outer, *(-(-s // t) for s, t in zip(inner, tile, strict=True)), *tile]


def padding_bytes(shape: Shape) -> int:
    """The part of ``storage_bytes`` that holds no element."""
    return storage_bytes(shape) - shape.byte_size
