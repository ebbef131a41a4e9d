"""TPU slices: which devices are linked by ICI, in a program that runs over several.

XLA compiles such a program for one slice. Groups and partitions are those of one slice, and the
others run the same; between slices there are sends and receives marked

    _xla_megascale_target="{1,2}x{0:3}"        slices 1 and 2, devices 0 to 3 of each
"""

from __future__ import annotations

import re

import numpy as np

from ..module import Instruction, Module
from ..target import Target
from .devices import DeviceGroups


def slices_of(module: Module, target: Target | None = None) -> tuple[tuple[int, ...], ...]:
    """Devices of each slice, where the module is compiled for one slice of several; else ()."""
    here = module.replica_count * module.num_partitions
    found: dict[int, list[int]] = {}
    for d in target.devices if target is not None else ():
        found.setdefault(d.slice, []).append(d.partition)
    if not found:
        opcodes = module.opcodes_list
        sends = [module.instructions[n] for n, o in enumerate(opcodes) if o == "send"]
        count = max((s[-1] for i in sends if (s := meant_slices(i))), default=0)
        found = {k: list(range(k * here, (k + 1) * here)) for k in range(count)}
    if len(found) < 2 or {len(v) for v in found.values()} != {here}:
        return ()
    return tuple(tuple(sorted(v)) for _, v in sorted(found.items()))


_MEANT = re.compile(r'_xla_megascale_target="\{([\d,:]+)\}')


def meant_slices(i: Instruction) -> list[int]:
    """Slices that a send or receive between slices names, counted from 1; [] for others."""
    m = _MEANT.search(i.attribute_text)
    found: list[int] = []
    for part in m[1].split(",") if m is not None else ():
        low, _, high = part.partition(":")
        if low.isdigit() and (not high or high.isdigit()):
            found += range(int(low), min(int(high or low), int(low) + 4096) + 1)
    return found


def in_every_slice(
    groups: DeviceGroups | None, slices: tuple[tuple[int, ...], ...]
) -> DeviceGroups | None:
    """Groups of one slice, repeated in all of them."""
    if groups is None or not slices:
        return groups
    numbers = np.asarray(slices, dtype=np.int64)
    if groups.pairs is not None:
        pairs = groups.pairs[(groups.pairs < numbers.shape[1]).all(axis=1)]
        return DeviceGroups(groups.text, pairs=numbers[:, pairs].reshape(-1, 2))
    if groups.groups is not None:
        rows = numbers[:, groups.groups].reshape(-1, groups.groups.shape[1])
        return DeviceGroups(groups.text, rows)
    ragged = tuple(tuple(s[d] for d in g) for s in slices for g in groups.ragged)
    return DeviceGroups(groups.text, ragged=ragged)
