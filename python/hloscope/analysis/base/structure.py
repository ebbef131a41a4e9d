"""Structural hashes: equal numbers for instructions and groups of equal structure, in linear time.

An instruction's token is its opcode and dense shape. Three rounds mix in the tokens of its
operands, in order, if they are in the same group; an operand from outside counts by its
shape alone, so that layer 0, fed by the embedding, equals layer 1, fed by layer 0.
A group's hash is the sum over its contents, with those of its fusions and loops mixed in.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .table import Ints, Table, per_table

U64 = np.uint64
Hashes = NDArray[np.uint64]
_ROUNDS = 3
_CALLS = 6  # levels of callees
# What tells an operand's place, a value from outside and what is called from one another.
_PLACE, _OUTSIDE, _CALLED = U64(17), U64(1 << 40), U64(5)


def mix(x: Hashes) -> Hashes:
    """SplitMix64's finaliser: neighbouring ids become unrelated numbers."""
    with np.errstate(over="ignore"):
        x = x + U64(0x9E3779B97F4A7C15)
        x = (x ^ (x >> U64(30))) * U64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> U64(27))) * U64(0x94D049BB133111EB)
        return np.asarray(x ^ (x >> U64(31)))


def _dense_shape_ids(t: Table) -> Ints:
    ids: dict[str, int] = {}
    return np.array([ids.setdefault(s.dense_text, len(ids)) for s in t.shapes], np.int64)


@per_table
def tokens(t: Table) -> Hashes:
    """Opcode and dense shape, as one number per instruction."""
    if not len(t.opcode):
        return np.zeros(0, U64)
    shape = _dense_shape_ids(t)[t.shape].astype(U64)
    return mix((t.opcode.astype(U64) << U64(32)) | shape)


def instruction_hashes(t: Table, group: Ints) -> Hashes:
    """Structure of each instruction within its group."""
    token = tokens(t)
    if not len(token):
        return token
    rows, values = t.operands.rows, t.operands.values
    position = np.arange(len(rows)) - t.operands.offsets[rows]
    salt = mix(position.astype(U64) + _PLACE)
    same = group[rows] == group[values]
    outside = mix(_dense_shape_ids(t)[t.shape].astype(U64) + _OUTSIDE)[values]
    some = t.operands.counts > 0
    starts = t.operands.offsets[:-1][some]
    out = token
    with np.errstate(over="ignore"):
        for _ in range(_ROUNDS):
            seen = mix(np.where(same, out[values], outside) + salt)
            summed = np.zeros(len(token), U64)
            if len(starts):
                summed[some] = np.add.reduceat(seen, starts)
            out = mix(token + summed)
    return out


def computation_hashes(t: Table, base: Hashes) -> tuple[Hashes, Hashes]:
    """Hash of each computation, and each instruction's with its callees mixed in.

    Callees are followed a few levels (while → fusion → reducer); deeper nesting only makes
    the hash less specific.
    """
    rows, values = t.called.rows, t.called.values
    full = base
    sums = t.reduce_by_computation(np.add, base, 0)
    with np.errstate(over="ignore"):
        for _ in range(_CALLS):
            extra = np.zeros(len(base), U64)
            np.add.at(extra, rows, mix(sums[values] + _CALLED))
            full = np.where(extra > 0, mix(base + extra), base)
            after = t.reduce_by_computation(np.add, full, 0)
            if np.array_equal(after, sums):
                break
            sums = after
    return sums, full
