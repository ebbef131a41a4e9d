"""Transfers between TPU slices: the sends and receives of one rendezvous are one collective.

A program over several slices is compiled for one. Transfers over the data-centre network (DCN)
are left to a runtime, through a send and a receive that carry

    _xla_host_transfer_rendezvous="all-reduce.5_0", _xla_megascale_transfer_type="ALL_REDUCE",
    _xla_megascale_target="{1,2}x{0:3}"        slices 1 and 2, devices 0 to 3 of each

Each device communicates with its counterpart in the other slices. An all-reduce over both
networks is a reduce-scatter within the slice, this exchange, and an all-gather within the slice;
these are separate rows.
"""

from __future__ import annotations

import re
from collections import defaultdict

import numpy as np

from ...hlo import Instruction, Module
from ...hlo.collective_kinds import KINDS, PERMUTE
from ...hlo.shardings.devices import DeviceGroups
from ...hlo.shardings.slices import meant_slices
from ..base.collectives.find import Found
from ..base.table import table

_RENDEZVOUS = re.compile(r'_xla_host_transfer_rendezvous="([^"]*)"')
_TYPE = re.compile(r'_xla_megascale_transfer_type="(\w+)"')
_KINDS = {name.upper().replace("-", "_"): name for name in KINDS}
_KINDS["ONE_TO_ONE"] = PERMUTE
_NUMBER = re.compile(r"(?:\.\d+)?_\d+$")

Slices = tuple[tuple[int, ...], ...]


def is_between_slices(op: Instruction) -> bool:
    """Whether an instruction is a send or receive between slices."""
    return op.opcode in ("send", "recv") and "_xla_megascale_transfer_type" in op.attribute_text


def find_between_slices(module: Module) -> list[Found]:
    """One collective per rendezvous, with its send as the op."""
    t = table(module)
    ends: dict[tuple[int, str], list[Instruction]] = defaultdict(list)
    for index in t.where("send", "recv").tolist():
        i = t.instructions[index]
        if is_between_slices(i):
            m = _RENDEZVOUS.search(i.attribute_text)
            ends[i.computation.index, m[1] if m is not None else i.name].append(i)
    out = []
    for both in ends.values():
        send = next((i for i in both if i.opcode == "send"), both[0])
        members = {i.index for i in both}
        members |= {u.index for i in both for u in i.users if u.opcode.endswith("-done")}
        m = _TYPE.search(send.attribute_text)
        kind = _KINDS.get(m[1] if m is not None else "", PERMUTE)
        out.append(Found(kind, send, send, members))
    return out


def exchanged(found: Found) -> tuple[tuple[str, int], ...]:
    """The array and its bytes: the larger of those sent and received."""
    ends = [found.op.module.instructions[m] for m in sorted(found.members)]
    arrays = [i.shape.tuple_shapes[0] for i in ends if i.opcode in ("send", "recv")]
    largest = max(arrays, key=lambda s: s.byte_size)
    return ((largest.dense_text, largest.byte_size),)


def groups_between(op: Instruction, slices: Slices) -> DeviceGroups | None:
    """Each device with its counterparts in the other slices; None if the slices are unknown.

    Between two slices, a permute can only swap.
    """
    meant = meant_slices(op) or (list(range(1, len(slices) + 1)) if len(slices) == 2 else [])
    if len(meant) < 2 or max(meant) > len(slices):
        return None
    rows = np.asarray([slices[k - 1] for k in meant], dtype=np.int64).T
    text = f"slices {meant}"
    m = _TYPE.search(op.attribute_text)
    if m is not None and m[1] == "ONE_TO_ONE":
        return DeviceGroups(f"{text} pairs", pairs=np.concatenate([rows, rows[:, ::-1]]))
    return DeviceGroups(text, rows)


def name_of(op: Instruction) -> str:
    """Name of the collective before it became a send: ``psum``, ``all-reduce``."""
    m = _RENDEZVOUS.search(op.attribute_text)
    return _NUMBER.sub("", m[1]) if m is not None else ""
