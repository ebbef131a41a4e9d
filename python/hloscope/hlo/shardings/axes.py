"""Mesh axes and parts of them, and which of them a set of device groups or tiles runs over.

This is hard because there may be nothing but numbers: ``{{0,4},{1,5},{2,6},{3,7}}`` on a 2×4 mesh
*is* the axis "data". The mesh is cut into its finest factors, prime by prime, and a factor
belongs to a group when one step along it stays inside the group:

    mesh  data=2 × model=4           factors  data:2   model:(1)2   model:(2)2
    step in device number                        4         2            1
    {0,4} …                                      x                           → data
    {0,1,2,3} …                                            x            x    → model
    {0,2} …                                                x                 → model:(1)2

``model:(1)2`` is Shardy's sub-axis: the part of size 2 with 1 before it (the major half).
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from ..mesh import Mesh
from .mesh_text import Array, AxisRef, parse_axis_ref

_AXIS_LIST = re.compile(r"\{([^}]*)\}")


def axis_groups(mesh: Mesh, text: str) -> Array | None:
    """Groups over the axes that ``text`` lists, as in ``mesh[…] {'x', 'y':(1)2}``."""
    m = _AXIS_LIST.search(text)
    if m is None:
        return None
    refs = [parse_axis_ref(part) for part in m[1].split(",") if part.strip()]
    if None in refs:
        return None
    found = arrange(mesh, [[r for r in refs if r is not None]])
    return None if found is None else np.ascontiguousarray(found.T)


def arrange(mesh: Mesh, rows: Sequence[Sequence[AxisRef]]) -> Array | None:
    """Partitions as an array with one dimension per row of axes, and a last one for the rest.

    None when an axis is unknown, used twice, or cut in a way that does not divide it.
    """
    cuts = {name: {1, size} for name, size in zip(mesh.axis_names, mesh.axis_sizes, strict=True)}
    for ref in itertools.chain.from_iterable(rows):
        if ref.name not in cuts:
            return None
        if ref.size is not None:
            cuts[ref.name] |= {ref.pre_size, ref.pre_size * ref.size}
    factors: list[tuple[str, int, int]] = []  # axis, steps before it, size
    for name in mesh.axis_names:
        points = sorted(cuts[name])
        if any(b % a for a, b in itertools.pairwise(points)):
            return None
        factors += [(name, a, b // a) for a, b in itertools.pairwise(points)]
        if len(points) == 1:  # an axis of size 1
            factors.append((name, 1, 1))
    sizes = dict(zip(mesh.axis_names, mesh.axis_sizes, strict=True))
    order: list[int] = []
    shape: list[int] = []
    for row in rows:
        extent = 1
        for ref in row:
            end = ref.pre_size * (ref.size if ref.size is not None else sizes[ref.name])
            for at, (name, pre, size) in enumerate(factors):
                if name == ref.name and ref.pre_size <= pre < max(end, ref.pre_size + 1):
                    if at in order:
                        return None
                    order.append(at)
                    extent *= size
        shape.append(extent)
    rest = [at for at in range(len(factors)) if at not in order]
    shape.append(math.prod(factors[at][2] for at in rest))
    split = np.asarray(mesh.partitions, dtype=np.int64).reshape([f[2] for f in factors])
    return split.transpose([*order, *rest]).reshape(shape)


@lru_cache(maxsize=4096)
def _primes(n: int) -> tuple[int, ...]:
    out = []
    p = 2
    while p * p <= n:
        while n % p == 0:
            out.append(p)
            n //= p
        p += 1
    return (*out, n) if n > 1 else tuple(out)


@lru_cache(maxsize=256)
def _factorings(sizes: tuple[int, ...]) -> tuple[tuple[tuple[int, ...], ...], ...]:
    """Ways to cut every axis into primes; several only for sizes like 6 or 12."""
    orders = []
    for n in sizes:
        primes = _primes(n)
        if len(set(primes)) > 1 and len(primes) <= 5:
            orders.append(sorted(set(itertools.permutations(primes))))
        else:
            orders.append([primes])
    return tuple(itertools.islice(itertools.product(*orders), 64))


@dataclass(frozen=True, slots=True)
class _Factor:
    axis: int
    pre_size: int
    size: int


class _AxisCut:
    """A mesh cut into prime factors: the place of every partition along each of them."""

    def __init__(self, mesh: Mesh, factoring: tuple[tuple[int, ...], ...]):
        self.mesh = mesh
        self.factors: list[_Factor] = []
        for axis, primes in enumerate(factoring):
            pre = 1
            for p in primes:
                self.factors.append(_Factor(axis, pre, p))
                pre *= p
        partitions = np.asarray(mesh.partitions, dtype=np.int64)
        self.grid = partitions.reshape([f.size for f in self.factors])
        self.count = int(partitions.max()) + 1
        self.is_permutation = self.count == len(set(mesh.partitions)) == partitions.size

    def refs(self, used: Sequence[int]) -> tuple[AxisRef, ...]:
        """Axis references for factors in the given order, adjoining factors merged."""
        out: list[AxisRef] = []
        for at in used:
            f = self.factors[at]
            name = self.mesh.axis_names[f.axis]
            last = out[-1] if out else None
            if last and last.name == name and last.size and last.pre_size * last.size == f.pre_size:
                out[-1] = AxisRef(name, last.pre_size, last.size * f.size)
            else:
                out.append(AxisRef(name, f.pre_size, f.size))
        sizes = dict(zip(self.mesh.axis_names, self.mesh.axis_sizes, strict=True))
        return tuple(AxisRef(r.name) if r.size == sizes[r.name] else r for r in out)


@lru_cache(maxsize=256)
def _cuts(mesh: Mesh) -> tuple[_AxisCut, ...]:
    return tuple(_AxisCut(mesh, f) for f in _factorings(mesh.axis_sizes))


def _along(values: Array, dim: int, at: int) -> Array:
    return values[(slice(None),) * dim + (at,)]


def group_axes(groups: Array, mesh: Mesh) -> tuple[AxisRef, ...] | None:
    """The mesh axes a partition of the devices into equal groups runs over; None if no axes fit.

    ``groups`` has one row per group. Groups of one device give ().
    """
    for cut in _cuts(mesh):
        used = _group_factors(groups, cut)
        if used is not None:
            return cut.refs(used)
    return None


def _group_factors(groups: Array, cut: _AxisCut) -> list[int] | None:
    if not cut.is_permutation or groups.size != cut.count:
        return None
    group_of = np.full(cut.count, -1, dtype=np.int64)
    flat = groups.reshape(-1)
    if flat.min(initial=0) < 0 or flat.max(initial=0) >= cut.count:
        return None
    group_of[flat] = np.repeat(np.arange(groups.shape[0]), groups.shape[1])
    if (group_of < 0).any():
        return None
    at = group_of[cut.grid]
    used = [
        f
        for f, factor in enumerate(cut.factors)
        if all((_along(at, f, 0) == _along(at, f, k)).all() for k in range(1, factor.size))
    ]
    if math.prod(cut.factors[f].size for f in used) != groups.shape[1]:
        return None
    return used


def tile_axes(coordinate: Array, tiles: int, mesh: Mesh) -> tuple[AxisRef, ...] | None:
    """The mesh axes, major first, along which partition p is at ``coordinate[p]`` of ``tiles``."""
    for cut in _cuts(mesh):
        used = _tile_factors(coordinate, tiles, cut)
        if used is not None:
            return cut.refs(used)
    return None


def _tile_factors(coordinate: Array, tiles: int, cut: _AxisCut) -> list[int] | None:
    if not cut.is_permutation or coordinate.size < cut.count:
        return None
    at = coordinate[cut.grid]
    origin = at[(0,) * at.ndim]
    if origin != 0:
        return None
    strides = []
    for f in range(len(cut.factors)):
        step = [0] * at.ndim
        step[f] = 1
        strides.append(int(at[tuple(step)]))
    used = sorted((f for f, s in enumerate(strides) if s), key=lambda f: (-strides[f], f))
    expected = tiles
    total = np.zeros_like(at)
    for f in used:
        size = cut.factors[f].size
        expected //= size
        if strides[f] != expected:
            return None
        shape = [1] * at.ndim
        shape[f] = size
        total = total + np.arange(size).reshape(shape) * strides[f]
    return used if expected == 1 and (total == at).all() else None


def infer_mesh(
    count: int, groups: Sequence[Array], tiles: Sequence[tuple[Array, int]]
) -> Mesh | None:
    """A mesh over ``count`` devices in plain order that explains most groups and tiles.

    ``tiles`` are (coordinate of every device along one array dimension, tiles there). This
    is the coarsest such mesh; axes are named axis_0, axis_1, … as in XLA. None if unknown.
    """
    if count < 2:
        return None
    line = Mesh(("all",), (count,), tuple(range(count)))
    best: tuple[int, int, Mesh] | None = None
    for cut in _cuts(line):
        sets = [_group_factors(g, cut) for g in groups]
        sets += [_tile_factors(c, n, cut) for c, n in tiles]
        found = [frozenset(s) for s in sets if s]
        if not found:
            continue
        kinds = [tuple(f in s for s in found) for f in range(len(cut.factors))]
        sizes = [
            math.prod(f.size for _, f in run)
            for _, run in itertools.groupby(
                zip(kinds, cut.factors, strict=True), key=lambda kf: kf[0]
            )
        ]
        names = tuple(f"axis_{k}" for k in range(len(sizes)))
        score = (len(found), -len(sizes))
        if best is None or score > best[:2]:
            best = (*score, Mesh(names, tuple(sizes), line.partitions))
    return best[2] if best else None
