"""The collectives that a program executes, as transfers from their start to their done."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ....hlo import Module, Target
from ....hlo.collective_kinds import PERMUTE
from ....hlo.shardings.devices import device_counts
from ...base.table import table
from ...comms.collectives import Collectives, collectives
from ..assumptions import ASSUMED_DIMENSIONS
from ..chip import chip_of
from ..copies import done_of
from .slices import between_slices
from .torus import assumed_slice
from .transfers import Transfer, TransferMaker


def slice_of(module: Module, target: Target) -> tuple[int, ...]:
    """The slice assumed for a program whose devices' positions are unknown."""
    replicas, partitions = device_counts(module, target)
    chip = chip_of(target)
    near = chip.links[0] if chip is not None and chip.links else None
    dimensions = near.axes if near is not None and near.kind == "torus" else ASSUMED_DIMENSIONS
    return assumed_slice(max(1, replicas * partitions), dimensions)


def find_transfers(
    module: Module, target: Target, executed: npt.NDArray[np.bool_], rows: Collectives | None = None
) -> tuple[Transfer, ...]:
    """Every executed collective, with the instructions at which it starts and is awaited."""
    rows = rows if rows is not None else collectives(module, target)
    computation = table(module).computation
    out: list[Transfer] = []
    maker = TransferMaker(target, slice_of(module, target))
    for row in rows:
        if row.is_of_permutes:
            for part in row.parts:
                i = part.instruction
                if executed[computation[i.index]]:
                    end = (done_of(i) or i).index
                    out.append(maker.make(row, i.index, end, PERMUTE, part.bytes, part.groups))
            continue
        if row.network == "dcn":
            continue  # below
        members = [m for m in row.members if executed[computation[m]]]
        at_start = [m for m in members if computation[m] == computation[members[0]]]
        if at_start:
            start, done = at_start[0], at_start[-1]
            out.append(maker.make(row, start, done, row.kind, row.payload_bytes, row.groups))
    out += between_slices(module, executed, rows)
    return tuple(sorted(out, key=lambda t: (t.start, t.done)))
