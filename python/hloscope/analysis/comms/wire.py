"""Bytes that cross the wire: what each device sends for one collective, and to whom.

Ring algorithms, S bytes of payload over n devices (Thakur, Rabenseifner and Gropp,
"Optimization of Collective Communication Operations in MPICH", 2005; the same factors are
in NCCL-tests' PERFORMANCE.md):

    all-gather          (n-1)/n · S      S = its result
    reduce-scatter      (n-1)/n · S      S = its operand
    all-reduce         2(n-1)/n · S      a reduce-scatter, then an all-gather
    all-to-all          (n-1)/n · S      the part that stays is not sent
    collective-permute        S          for a device that sends to another
    collective-broadcast      S          passed on along the ring
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from ...hlo.devices import DeviceGroups

Traffic = npt.NDArray[np.float64]

_FACTOR = {"all-gather": 1, "reduce-scatter": 1, "all-reduce": 2, "all-to-all": 1}


def wire_bytes(kind: str, payload_bytes: int, group_size: int) -> int | None:
    """Bytes one device sends in one execution, rounded; None for kinds with no formula.

    ``group_size`` 0 or 1: nothing is sent, except by permutes (for which it is not used).
    """
    if kind == "collective-permute":
        return payload_bytes
    if group_size <= 1:
        return 0
    if kind == "collective-broadcast":
        return payload_bytes
    factor = _FACTOR.get(kind)
    if factor is None:
        return None
    return (factor * (group_size - 1) * payload_bytes + group_size // 2) // group_size


def add_traffic(out: Traffic, kind: str, payload: float, groups: DeviceGroups | None) -> None:
    """Adds bytes sent, source row to target column, of one execution.

    Rings run in the order in which the group is printed; the wires of a real torus may take
    another way round, which changes who is next, not how much is sent.
    """
    if groups is None or not payload:
        return
    if groups.pairs is not None:
        moving = groups.pairs[groups.pairs[:, 0] != groups.pairs[:, 1]]
        moving = moving[(moving < len(out)).all(axis=1)]
        np.add.at(out, (moving[:, 0], moving[:, 1]), payload)
        return
    for rows in _equal(groups):
        n = rows.shape[1]
        rows = rows[(rows < len(out)).all(axis=1)]
        if n < 2:
            continue
        if kind == "all-to-all" or kind == "ragged-all-to-all":
            for step in range(1, n):
                np.add.at(out, (rows, np.roll(rows, -step, axis=1)), payload / n)
            continue
        sent = float(payload) if kind == "collective-broadcast" else 0.0
        sent = sent or _FACTOR.get(kind, 0) * (n - 1) * payload / n
        if kind == "collective-broadcast":  # the last one has nobody to pass it on to
            np.add.at(out, (rows[:, :-1], rows[:, 1:]), sent)
        else:
            np.add.at(out, (rows, np.roll(rows, -1, axis=1)), sent)


def _equal(groups: DeviceGroups) -> Iterable[npt.NDArray[np.int64]]:
    if groups.groups is not None:
        return (groups.groups,)
    return tuple(np.asarray([g], dtype=np.int64) for g in groups.ragged)
