"""Bytes on the wire: what each device sends for one collective, and to which devices.

The formulas and their sources are in ``hlo/collective_kinds.py``.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from ...hlo.collective_kinds import KINDS, part
from ...hlo.shardings.devices import DeviceGroups

Traffic = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


def wire_bytes(kind: str, payload_bytes: int, group_size: int) -> int | None:
    """Bytes that one device sends in one execution, rounded; None for kinds without a formula.

    ``group_size`` 0 or 1: nothing is sent, except by permutes (for which it is not used).
    """
    known = KINDS.get(kind)
    if known is None:
        return None
    if known.pattern not in ("ring", "exchange") or group_size <= 1:
        return int(known.wire_bytes(payload_bytes, group_size))
    return (known.passes * (group_size - 1) * payload_bytes + group_size // 2) // group_size


def add_traffic(out: Traffic, kind: str, payload: float, groups: DeviceGroups | None) -> None:
    """Add the bytes sent in one execution, from source row to target column, to ``out``; to its
    source alone where ``out`` has one dimension.

    Rings follow the printed order of the group; on a real torus the ring may have another order,
    which changes the neighbours but not the amount sent.
    """
    if groups is None or not payload:
        return
    if groups.pairs is not None:
        moving = groups.pairs[groups.pairs[:, 0] != groups.pairs[:, 1]]
        moving = moving[(moving < len(out)).all(axis=1)]
        _add(out, moving[:, 0], moving[:, 1], payload)
        return
    for rows in _equal(groups):
        n = rows.shape[1]
        rows = rows[(rows < len(out)).all(axis=1)]
        if n < 2:
            continue
        known = KINDS.get(kind)
        if known is None:
            continue
        if known.pattern == "exchange":
            if out.ndim == 1:
                np.add.at(out, rows, payload / n * (n - 1))
                continue
            for step in range(1, n):
                _add(out, rows, np.roll(rows, -step, axis=1), payload / n)
        elif known.pattern == "chain":  # the last device passes nothing on
            _add(out, rows[:, :-1], rows[:, 1:], float(payload))
        else:
            _add(out, rows, np.roll(rows, -1, axis=1), known.passes * part(payload, n))


def _add(out: Traffic, source: Ints, target: Ints, sent: float) -> None:
    np.add.at(out, source if out.ndim == 1 else (source, target), sent)


def _equal(groups: DeviceGroups) -> Iterable[npt.NDArray[np.int64]]:
    if groups.groups is not None:
        return (groups.groups,)
    return tuple(np.asarray([g], dtype=np.int64) for g in groups.ragged)
