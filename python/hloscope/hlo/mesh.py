"""Named axes over the devices of a program."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Mesh:
    """Named axes over partitions: ``partitions[i]`` is at row-major position i of the mesh."""

    axis_names: tuple[str, ...]
    axis_sizes: tuple[int, ...]
    partitions: tuple[int, ...]


_AXIS = re.compile(r"\s*([^\s=,]+)\s*[=:]\s*(\d+)\s*")


def mesh_axes(text: str) -> dict[str, int]:
    """``data=2,model=4`` as axis sizes. Raises ``ValueError``."""
    found = [_AXIS.fullmatch(part) for part in text.split(",")]
    if not all(found):
        raise ValueError(f"a mesh is axis=size pairs such as data=4,model=2, not {text!r}")
    return {m[1]: int(m[2]) for m in found if m is not None}
