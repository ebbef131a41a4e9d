"""Transfers between TPU slices, which XLA compiles to sends and receives through the host.

A multi-slice program is compiled for one slice. A reduction over all of them becomes, as in
``roofline_collectives.py``, a reduce-scatter in the slice, an exchange between slices and an
all-gather; the exchange is a send and a receive of one rendezvous, with attributes such as

    _xla_host_transfer_rendezvous="all-reduce_0", _xla_megascale_transfer_type="ALL_REDUCE",
    _xla_megascale_target="{1,2}x{0:7}"        slices 1 and 2, devices 0 to 7 of each
"""

from __future__ import annotations

import re

import numpy as np
import numpy.typing as npt

from ...hlo import Instruction, Module
from ...hlo.collective_kinds import KINDS
from ..base.table import table
from .roofline_collectives import MAX_BLOCK, Levels, Transfer, ring

_RENDEZVOUS = re.compile(r'_xla_host_transfer_rendezvous="([^"]*)"')
_TYPE = re.compile(r'_xla_megascale_transfer_type="(\w+)"')
_TARGET = re.compile(r'_xla_megascale_target="\{([\d,:]*)\}')
_KINDS = {name.upper().replace("-", "_"): name for name in KINDS}


def between_slices(module: Module, executed: npt.NDArray[np.bool_]) -> list[Transfer]:
    """Exchanges between slices: from the send to the done of its receive."""
    t = table(module)
    sends = [t.instructions[n] for n in t.where("send") if executed[t.computation[n]]]
    receives = {
        (int(t.computation[n]), _found(_RENDEZVOUS, t.instructions[n])): t.instructions[n]
        for n in t.where("recv")
    }
    out = []
    for send in sends:
        kind, rendezvous = _found(_TYPE, send), _found(_RENDEZVOUS, send)
        if not kind or not rendezvous:
            continue
        receive = receives.get((int(t.computation[send.index]), rendezvous))
        last = receive or send
        done = next((u for u in last.users if u.opcode.endswith("-done")), last)
        payload = max(_payload(send), _payload(last))
        name = _KINDS.get(kind, "collective-permute")
        nothing = (0.0, 0.0)
        level = Levels(nothing, nothing, ring(name, _slices(_found(_TARGET, send)), payload))
        levels = (level,) * (MAX_BLOCK + 1)
        out.append(Transfer(-1, send.index, max(send.index, done.index), levels, True))
    return out


def _found(pattern: re.Pattern[str], i: Instruction) -> str:
    m = pattern.search(i.attribute_text)
    return m.group(1) if m else ""


def _payload(i: Instruction) -> float:
    return float(next((s.byte_size for s in i.shape.leaves()), 0))


def _slices(target: str) -> int:
    """``1,2`` or ``1:4``, both ends named: how many; 2 where nothing says."""
    count = 0
    for part in filter(None, target.split(",")):
        low, _, high = part.partition(":")
        count += int(high) - int(low) + 1 if high else 1
    return max(2, count)
