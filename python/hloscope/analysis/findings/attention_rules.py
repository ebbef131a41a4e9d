"""Attention whose scores go to memory and back between its two products.

queries · keys ─▶ scores ─▶ softmax ─▶ weights · values
                  [batch, queries, keys], written and read once or more; a kernel that goes
                  over blocks of keys (flash attention) never writes them
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ...hlo import Instruction, opcodes, walk
from ..base.memory_spaces import memory_space
from ..base.memory_tiling import storage_bytes
from ..flops.matrix_unit import Product, product_of
from . import limits
from .facts import Facts
from .finding import Finding, names, percent

_BETWEEN = (
    opcodes.ELEMENTWISE | opcodes.SAME_NUMBERS | opcodes.FUSIONS | {"select", "broadcast", "reduce"}
)


def scores_in_memory(facts: Facts) -> Iterator[Finding]:
    """Scores of attention that take much of the step to write and to read."""
    r = facts.cost.roofline
    if r is None or not facts.total_seconds or facts.on_host or facts.made_for_cpu:
        return
    products = [x for x in _products(facts) if _is_multiplied(x)]
    scores = [x for x in products if _are_scores(x)]
    if not scores:
        return
    many = {x.shape.elements for x in scores}
    # what is made of them, and of their derivatives, until it is multiplied
    made = {
        at.instruction
        for x in products
        if x.shape.elements in many
        for at in walk.forward(x, _BETWEEN, inside_fusions=True, reach=limits.CAUSE_REACH)
    }
    rows: list[tuple[Instruction, float]] = []
    for n in np.flatnonzero(facts.runs > 0).tolist():
        i = facts.module.instructions[n]
        moved = float(facts.cost.main_bytes[n])
        inside = tuple(_fused(i))
        if r.bound(n) != "memory" or not moved or made.isdisjoint(inside):
            continue
        if any(x.opcode in opcodes.INDEXED for x in inside):
            continue  # a bias that is looked up, which a kernel does not do
        values = (*i.operands, i)
        leaves = [s for v in values if v.opcode != "tuple" for s in v.shape.leaves()]
        of = sum(
            storage_bytes(s) for s in leaves if s.elements in many and not memory_space(s)
        )  # fmt: skip
        if of:
            least = _products_alone(facts, n)
            took = float(r.seconds[n])
            less = min(min(1.0, of / moved) * took, max(0.0, took - least))
            rows.append((i, less * float(facts.runs[n])))
    seconds = sum(s for _, s in rows)
    share = seconds / facts.total_seconds
    if share < limits.SCORES_SHARE:
        return
    rows.sort(key=lambda row: -row[1])
    units = [i for i, _ in rows]
    largest = max(scores, key=lambda x: x.shape.elements)
    yield Finding(
        "scores-in-memory",
        f"Scores of attention, {largest.shape.dense_text}, are written to memory and read again:"
        f" {percent(share)} of the modelled step",
        f"{names(units)} move{'s' if len(units) == 1 else ''} arrays of so many elements between"
        " the products of queries and keys and those with the values",
        "a kernel that never writes them, flash attention: on a TPU"
        " jax.experimental.pallas.ops.tpu.flash_attention or splash_attention",
        share,
        seconds=seconds,
        instructions=tuple(units),
        **facts.at(largest),
    )


def _fused(i: Instruction) -> Iterator[Instruction]:
    """An instruction, and all that is fused into it."""
    yield i
    if i.opcode == "fusion":
        for x in i.called_computations[0].instructions:
            yield from _fused(x)


def _products_alone(facts: Facts, n: int) -> float:
    """Seconds of the matrix unit in one execution: a kernel multiplies as much."""
    chip = facts.cost.hardware
    rate = chip.matmul_rate(facts.cost.matmul_dtype[n]) if chip is not None else None
    return float(facts.filled[n]) / rate if rate else 0.0


def _products(facts: Facts) -> Iterator[Instruction]:
    for opcode in opcodes.PRODUCTS:
        for n in facts.table.where(opcode).tolist():
            yield facts.module.instructions[n]


def _is_multiplied(x: Instruction) -> bool:
    """Whether what elements of a product become is multiplied once more, along what it got."""
    p = product_of(x)
    if p is None or p.batch < 2 or min(p.rows, p.columns) < limits.SCORES_LENGTH:
        return False
    if p.contracted >= min(p.rows, p.columns):
        return False
    uses = walk.uses(x, _BETWEEN, inside_fusions=True, reach=limits.CAUSE_REACH)
    return any(_continues(p, use.instruction) for use in uses)


def _are_scores(x: Instruction) -> bool:
    """Whether there is a softmax of it: exponentials, after what is largest in a row is found.

    An attention that gates its products (SiLU) has exponentials as well.
    """
    made = {
        at.instruction
        for at in walk.forward(x, _BETWEEN, inside_fusions=True, reach=limits.CAUSE_REACH)
    }
    used = walk.uses(x, _BETWEEN, inside_fusions=True, reach=limits.CAUSE_REACH)
    found = made | {use.instruction for use in used}
    return any(i.opcode == "exponential" for i in made) and any(map(_is_largest, found))


def _is_largest(i: Instruction) -> bool:
    """Whether it reduces to a maximum; a TPU writes that as a window as long as the row."""
    if i.opcode not in ("reduce", "reduce-window") or not i.called_computations:
        return False
    root = i.called_computations[0].root
    return root is not None and root.opcode == "maximum"


def _continues(p: Product, i: Instruction) -> bool:
    q = product_of(i)
    return q is not None and q.batch == p.batch and q.contracted in (p.rows, p.columns)
