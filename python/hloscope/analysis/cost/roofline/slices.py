"""Transfers between TPU slices, which XLA compiles to sends and receives through the host.

A multi-slice program is compiled for one slice. A reduction over all slices becomes, as in
``transfers.py``, a reduce-scatter in the slice, an exchange between slices and an
all-gather; the exchange is a send and a receive of one rendezvous, with attributes such as

    _xla_host_transfer_rendezvous="all-reduce_0", _xla_megascale_transfer_type="ALL_REDUCE",
    _xla_megascale_target="{1,2}x{0:7}"        slices 1 and 2, devices 0 to 7 of each
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ....hlo import Module
from ....hlo.shardings.slices import meant_slices
from ...comms.collectives import Collectives
from ...comms.slices import exchanged, find_between_slices
from ..assumptions import BLOCK_SIZES
from .transfers import Levels, Transfer, ring


def between_slices(
    module: Module, executed: npt.NDArray[np.bool_], rows: Collectives
) -> list[Transfer]:
    """Exchanges between slices, from the send to the done of its receive."""
    instructions = module.instructions
    found = {f.op.index: f for f in find_between_slices(module)}
    row_of = {r.instruction.index: r for r in rows if r.network == "dcn"}
    out = []
    for send, one in found.items():
        if not executed[one.op.computation.index]:
            continue
        row = row_of.get(send)
        ends = [m for m in one.members if instructions[m].opcode.endswith("-done")]
        done = max((m for m in ends if instructions[m].opcode == "recv-done"), default=send)
        slices = len(meant_slices(one.op)) or (row.group_size if row is not None else 0)
        nothing = (0.0, 0.0)
        payload = float(exchanged(one)[0][1])
        level = Levels(nothing, nothing, ring(one.kind, max(2, slices), payload))
        levels = (level,) * (BLOCK_SIZES + 1)
        index = row.index if row is not None else -1
        out.append(Transfer(index, send, max(send, done), levels, True))
    return out
