"""Axes and device lists as text: ``'x':(1)2``, ``[4,2]<=[2,4]T(1,0)``, ``mesh['x'=2,'y'=4]``."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from ..limits import MOST_DEVICES
from ..mesh import Mesh

# numpy's arrays have no more
MOST_DIMENSIONS = 32

Array = np.ndarray[Any, np.dtype[np.int64]]


@dataclass(frozen=True, slots=True)
class AxisRef:
    """A mesh axis, or with ``size`` the part of it that has ``pre_size`` steps before it."""

    name: str
    pre_size: int = 1
    size: int | None = None

    def __str__(self) -> str:
        return self.name if self.size is None else f"{self.name}:({self.pre_size}){self.size}"


_REF = re.compile(
    r"""^\s*(?:'([^']*)'|"((?:[^"\\]|\\.)*)"|([^\s'":]+))\s*(?::\((\d{1,9})\)(\d{1,9}))?\s*$"""
)


def parse_axis_ref(text: str) -> AxisRef | None:
    """``'x'``, ``"x"``, ``x`` or with a sub-axis ``"x":(2)4``; None if it is none of these."""
    m = _REF.match(text)
    if m is None:
        return None
    name = next(g for g in m.groups()[:3] if g is not None)
    if m[4] is None:
        return AxisRef(name)
    return AxisRef(name, int(m[4]), int(m[5]))


_IOTA = re.compile(r"^\[([\d,\s]*)\](?:<=\[([\d,\s]*)\])?(?:T\(([\d,\s]*)\))?$")


def _ints(text: str) -> tuple[int, ...] | None:
    """The numbers of a list; None for what is none, or no number of a device."""
    words = text.replace(",", " ").split()
    return tuple(map(int, words)) if all(w.isdecimal() and len(w) < 10 for w in words) else None


def parse_iota(text: str) -> Array | None:
    """``[4,2]<=[2,4]T(1,0)`` (XLA's IotaTileAssignment) as an array of shape (4, 2)."""
    m = _IOTA.match(text.strip())
    if m is None or m[2] is None:
        return None
    dims, reshape, order = _ints(m[1]), _ints(m[2]), _ints(m[3] or "")
    if dims is None or reshape is None:
        return None
    return iota_array(dims, reshape, order if m[3] else None)


def iota_array(
    dims: Sequence[int], reshape: Sequence[int], transpose: Sequence[int] | None
) -> Array | None:
    """0 … n-1 reshaped to ``reshape``, transposed, reshaped to ``dims``; None if they disagree."""
    n = math.prod(reshape)
    if n > MOST_DEVICES or max(len(dims), len(reshape)) > MOST_DIMENSIONS:
        return None
    order = tuple(transpose) if transpose is not None else tuple(range(len(reshape)))
    if n != math.prod(dims) or sorted(order) != list(range(len(reshape))):
        return None
    return np.arange(n, dtype=np.int64).reshape(reshape).transpose(order).reshape(dims)


_MESH = re.compile(r"mesh\[([^\]]*)\](?:\s*,?\s*device_ids=\(((?:\([^)]*\)|[^()])*)\))?")
_AXIS_SIZE = re.compile(r"""(?:'([^']*)'|"([^"]*)"|([^\s'"=,]+))\s*=\s*(\d{1,9})(?!\d)""")


@lru_cache(maxsize=1024)
def mesh_from_text(text: str) -> tuple[Mesh, int] | None:
    """The first ``mesh['x'=2,'y'=4]``, with ``device_ids=(…)`` if any, and where it ends."""
    m = _MESH.search(text)
    if m is None:
        return None
    axes = [(a or b or c, int(n)) for a, b, c, n in _AXIS_SIZE.findall(m[1])]
    sizes = tuple(n for _, n in axes)
    total = math.prod(sizes)
    if not axes or not 0 < total <= MOST_DEVICES:
        return None
    ids: Iterable[int] = range(total)
    if m[2]:
        inner = _IOTA.match(m[2].strip())
        if inner and inner[3] is not None and inner[2] is None:
            reshape = _ints(inner[1])
            found = None if reshape is None else iota_array(sizes, reshape, _ints(inner[3]))
        elif inner and inner[2] is not None:
            found = parse_iota(m[2])
        else:
            numbers = _ints(m[2])
            found = None if numbers is None else np.asarray(numbers, dtype=np.int64)
        if found is None or found.size != total or found.max() >= MOST_DEVICES:
            return None
        ids = (int(i) for i in found.reshape(-1))
    return Mesh(tuple(a for a, _ in axes), sizes, tuple(ids)), m.end()
