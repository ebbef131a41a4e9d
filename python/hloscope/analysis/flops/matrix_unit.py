"""How much of a systolic matrix unit a product uses.

A unit of side × side multipliers holds one block of one operand, and rows of the other pass through
it ("How to Scale Your Model", "How to Think About TPUs": bf16[8,128] @ bf16[128,128] every 8
cycles). What does not fill a block takes as long as if it did, and fewer rows than a quarter of a
side take as long as these: at least so long takes the next block to load, by XLA:TPU's own
estimates of cycles for 8 and 16 rows (v5e: 36 to 68 cycles a block, v6e: 134).

    bf16[8,512] @ bf16[512,512] on 128 × 128:   16 blocks, 32 rows pass each: 4 times its FLOPs
    bf16[4096,64] @ bf16[64,4096]:              blocks half empty:            2 times

A depthwise convolution has nothing to contract over channels: a block would hold one channel of
one. XLA:TPU adds it up on the vector units (its estimates are 4.4 times the FLOPs at their peak
rate, for kernels of 3, 5 and 7, bf16 and f32 alike).
"""

from __future__ import annotations

import re
from functools import lru_cache
from math import prod
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ...hlo import Instruction, Module, opcodes
from ..base.table import per_module, table
from .flops import Work

_LABELS = re.compile(r"\bdim_labels=([\da-z]+)_([\da-z]+)->([\da-z]+)")
_GROUPS = re.compile(r"\b(feature|batch)_group_count=(?!1\b)(\d+)")
_DIMS = re.compile(r"\d+")
# Rows pass a matrix unit in groups of so many: the sublanes of a vector register.
SUBLANES = 8
# Multipliers of a unit for each FLOP of the vector units in the same time: 4 units of side × side
# (2 FLOPs each) beside 8 × 128 lanes of 4 ALUs (v5e, v5p, v6e).
VECTOR = 512
# A block loads in the time in which this part of its side's rows pass.
LOADING = 4
_PRECISE = re.compile(r"\boperand_precision=\{hig")


class Product(NamedTuple):
    """``batch`` products of rows × contracted and contracted × columns."""

    batch: int
    rows: int
    columns: int
    contracted: int


def products_in(i: Instruction) -> list[Instruction]:
    """An instruction that multiplies, or those in a fusion: XLA:TPU has fusions in fusions."""
    if i.opcode != "fusion" or not i.called_computations:
        return [i] if i.opcode in opcodes.PRODUCTS else []
    found: list[Instruction] = []
    for x in i.called_computations[0].instructions:
        if x.opcode == "fusion":
            found += products_in(x)
        elif x.opcode in opcodes.PRODUCTS:
            found.append(x)
    return found


def product_of(i: Instruction) -> Product | None:
    """The dimensions of a dot, or of a convolution that is one; None for anything else."""
    if len(i.operands) != 2:
        return None
    if i.opcode == "dot":
        return _of_dot(i)
    return _of_convolution(i) if i.opcode == "convolution" else None


def _of_dot(i: Instruction) -> Product | None:
    a, b = i.operands[0].shape, i.operands[1].shape
    contract = _ints(i.attribute("lhs_contracting_dims"))
    batch = _ints(i.attribute("lhs_batch_dims"))
    if any(d >= a.rank for d in (*contract, *batch)):
        return None
    k = prod(a.dimensions[d] for d in contract)
    each = prod(a.dimensions[d] for d in batch)
    if not k or not each:
        return None
    return Product(each, a.elements // (k * each), b.elements // (k * each), k)


def _of_convolution(i: Instruction) -> Product | None:
    """Of one whose every result takes one position of the kernel: XLA:TPU writes batches so."""
    m = _LABELS.search(i.attribute_text)
    if m is None or _GROUPS.search(i.attribute_text):
        return None
    a, b = i.operands[0].shape, i.operands[1].shape
    left, right, out = m.groups()
    if any(len(t) != s.rank for t, s in ((left, a), (right, b), (out, i.shape))):
        return None
    if not {"b", "f"} <= set(left) or not {"i", "o"} <= set(right) or not {"b", "f"} <= set(out):
        return None
    batch, rows, columns = 1, a.dimensions[left.index("b")], b.dimensions[right.index("o")]
    for d in filter(str.isdecimal, out):
        if d not in left or d not in right:
            return None
        n = i.shape.dimensions[out.index(d)]
        if b.dimensions[right.index(d)] == 1:
            rows *= n
        elif a.dimensions[left.index(d)] == 1:
            columns *= n
        else:
            batch *= n
    return Product(batch, rows, columns, a.dimensions[left.index("f")])


@lru_cache(maxsize=10_000)  # a program has few products of different dimensions
def filled_flops(p: Product, side: int) -> float:
    """FLOPs that a unit of ``side`` × ``side`` could do in the time that the product takes.

    A single row or column is left as it is: XLA:TPU multiplies it on the vector units.
    """
    if 1 in (p.rows, p.columns):
        return 2.0 * prod(p)
    deep = _up(p.contracted, side)
    # of a block that is not deep, only the rows that hold something are loaded
    load = max(SUBLANES, _up(min(p.contracted, side), SUBLANES) // LOADING)
    one = _up(p.columns, side) * max(_up(p.rows, SUBLANES), load)
    other = _up(p.rows, side) * max(_up(p.columns, SUBLANES), load)
    return 2.0 * p.batch * deep * min(one, other)


def filled_work(module: Module, work: Work, side: int) -> npt.NDArray[np.float64]:
    """``work.matrix_flops`` with those of ``filled_flops`` where a product's dimensions are
    known; equal to it without a side.

    How several passes of a higher precision go over blocks is unknown: they count as they are.
    """
    out = work.matrix_flops
    if not side:
        return out
    out = out.copy()
    for n, p in _known_products(module):
        if out[n] == 2.0 * prod(p):
            out[n] = filled_flops(p, side)
    for n in _depthwise(module):
        out[n] *= side * side / VECTOR
    return out


@per_module
def _depthwise(module: Module) -> list[int]:
    """Convolutions, and gradients of their kernels, of which each group has one channel."""
    t, found = table(module), []
    for n in t.where("convolution").tolist():
        i = module.instructions[n]
        m, groups = _LABELS.search(i.attribute_text), _GROUPS.search(i.attribute_text)
        if m is None or groups is None or len(i.operands) != 2:
            continue
        dimension = m[1].find("f" if groups[1] == "feature" else "b")
        given = i.operands[0].shape.dimensions
        if 0 <= dimension < len(given) and given[dimension] == int(groups[2]):
            found.append(n)
    return found


@per_module
def _known_products(module: Module) -> list[tuple[int, Product]]:
    """(index, dimensions) of the products of one pass: the same for every chip."""
    t, found = table(module), []
    for opcode in ("dot", "convolution"):
        for n in t.where(opcode).tolist():
            i = module.instructions[n]
            p = None if _PRECISE.search(i.attribute_text) else product_of(i)
            if p is not None:
                found.append((n, p))
    return found


def _up(n: int, to: int) -> int:
    return -(-n // to) * to


def _ints(text: str | None) -> list[int]:
    return [int(n) for n in _DIMS.findall(text or "")]
