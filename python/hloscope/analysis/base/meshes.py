"""The mesh a module was partitioned over: given with the target, or inferred from the module.

A dump from before Shardy's shardings are removed names its meshes in its header. Otherwise the
coarsest mesh that explains the device groups and shardings is taken, with axes named axis_0,
axis_1, … from the outermost.
"""

from __future__ import annotations

from collections import Counter

from ...hlo import Mesh, Module, Target
from ...hlo.collective_kinds import is_collective
from ...hlo.shardings.axes import infer_mesh
from ...hlo.shardings.devices import device_counts, device_groups, groups_text
from ...hlo.shardings.mesh_text import Array
from ...hlo.shardings.sharding_text import parse_sharding
from ...hlo.shardings.shardy import named_mesh
from ...hlo.shardings.slices import in_every_slice, slices_of
from .loops.trips import multiplicity
from .table import table

RARE = 0.05  # groups with less than this share of all uses are ignored


def module_mesh(module: Module, target: Target | None = None) -> Mesh | None:
    """The mesh over flattened device numbers; None for one device or if unknown."""
    replicas, partitions = device_counts(module, target)
    slices = slices_of(module, target)
    count = replicas * partitions * max(1, len(slices))
    given = target.mesh if target is not None else None
    if given is not None and len(given.partitions) == count:
        return given
    if count < 2:
        return None
    named = named_mesh(module.attributes, count)
    if named is not None:
        return named
    groups: Counter[tuple[object, ...]] = Counter()
    arrays: dict[tuple[object, ...], Array] = {}
    t = table(module)
    runs = multiplicity(module)
    with_groups = [o for o in t.opcodes if is_collective(o)]
    for index in t.where(*with_groups).tolist():
        op = t.instructions[index]
        raw = groups_text(op)
        if raw is None or runs[op.computation.index] == 0:  # nothing calls it: it is ignored
            continue
        found = in_every_slice(device_groups(op, replicas, partitions), slices)
        if found is not None and found.groups is not None and 1 < found.group_size < count:
            key = *found.key, op.opcode
            groups[key] += 1
            arrays[key] = found.groups
    limit = RARE * groups.total()
    common = [arrays[k] for k, n in groups.items() if n >= limit]
    return infer_mesh(count, common, _tiles(module, count) if replicas == 1 else [])


def _tiles(module: Module, count: int) -> list[tuple[Array, int]]:
    """(tile coordinate of every device, tiles) of each sharded dimension of ENTRY's arrays."""
    out: list[tuple[Array, int]] = []
    seen: set[str] = set()
    for i in module.entry.instructions if module.entry is not None else ():
        text = i.sharding_text if "sharding=" in i.attribute_text else None
        if text is None or text in seen:
            continue
        seen.add(text)
        whole = parse_sharding(text)
        for part in whole.parts or (whole,):
            if part.kind != "tiled" or part.num_devices != count:
                continue
            places = part.coordinates(len(part.tiles), count)
            out += [(places[:, d], n) for d, n in enumerate(part.tiles) if n > 1]
    return out
