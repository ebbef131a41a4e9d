"""How many partitions a program has, and whether its shapes are those of one partition."""

from __future__ import annotations

import math
import re

from ...hlo import Module, Target
from .sharding import is_partitioned


def shapes(module: Module, target: Target) -> str:
    """``local`` to one device, or ``global``: for several devices and not partitioned yet."""
    several = partitions(module) > 1 or (module.dialect == "jaxpr" and len(target.devices) > 1)
    return "global" if several and not is_partitioned(module) else "local"


_TILES = re.compile(r"devices=\[([\d,]{1,60})\]")


def partitions(module: Module) -> int:
    """Number of partitions; old dumps give it only in their parameters' shardings."""
    if "num_partitions" in module.attributes or module.entry is None:
        return module.num_partitions
    found = [1]
    for p in module.entry.instructions:
        tiles = _TILES.search(p.attribute_text) if p.opcode == "parameter" else None
        if tiles:
            found.append(math.prod(int(n) for n in tiles.group(1).split(",") if n))
    return max(found)


def whose(module: Module, target: Target) -> str:
    """What a table's figures refer to, for its head."""
    local = shapes(module, target) == "local"
    return "one device" if local else "in global shapes, before partitioning"
