"""Activations that are wider than the weights they are multiplied with."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ...hlo import Instruction, opcodes, walk
from ..flops.matrix_unit import products_in
from . import limits
from .facts import Facts
from .finding import Finding, names, percent

_NARROW = ("bf16", "f16")
_SAME = opcodes.SAME_NUMBERS | opcodes.FUSIONS | opcodes.SLICES | opcodes.LOOPS | opcodes.CALLS


def wide_activations(facts: Facts) -> Iterator[Finding]:
    """f32 values between products whose weights are bf16: twice the bytes, where these take time.

    The weights were widened for the product, since the other operand is f32.
    """
    r = facts.cost.roofline
    if r is None or not facts.total_seconds or facts.on_host or facts.made_for_cpu:
        return
    entry = facts.module.entry
    given = entry.parameters if entry is not None else ()
    if not any(s.element_type in _NARROW for p in given for s in p.shape.leaves()):
        return
    flops = np.nan_to_num(facts.cost.matrix_flops * facts.runs)
    found = [
        (facts.module.instructions[n], wide)
        for n in np.flatnonzero(flops > 0).tolist()
        if (wide := _promoted(facts.module.instructions[n])) is not None
    ]
    # a router or a head in f32 is no reason for the types of all others
    if sum(flops[i.index] for i, _ in found) <= limits.MOST_PRODUCTS * flops.sum():
        return
    rows = [(i, s) for i in _moving(facts) if (s := _gained(facts, i)) > 0]
    gained = sum(s for _, s in rows)
    share = gained / facts.total_seconds
    if share < limits.NARROWED_SHARE:
        return
    rows.sort(key=lambda row: -row[1])
    units = [i for i, _ in rows]
    many = f"{len(found):,} matmuls multiply" if len(found) > 1 else "A matmul multiplies"
    yield Finding(
        "wide-activations",
        f"{many} f32 activations with bf16 weights: what lies between is twice as large, and"
        f" moving it takes {percent(share)} of the modelled step",
        f"the weights are widened to f32 for {names([i for i, _ in found])}, and so is what"
        f" follows; most time in {names(units)}",
        "cast the activations to the weights' type where they enter the layers, x.astype(bf16), and"
        " keep f32 inside the norms and the softmax",
        share,
        seconds=gained,
        instructions=tuple(units),
        **facts.at(found[0][0]),
    )


def _promoted(unit: Instruction) -> Instruction | None:
    """The f32 operand of a product with weights that are given in a narrower type."""
    for product in products_in(unit):
        if len(product.operands) != 2:
            continue
        for weights, other in (product.operands, product.operands[::-1]):
            if (
                other.shape.element_type == "f32"
                and product.shape.element_type == "f32"
                and _is_given_narrow(weights)
                and not _is_from_narrow(other)
            ):
                return other
    return None


def _is_given_narrow(value: Instruction) -> bool:
    """Whether it is made of bf16 arguments and of nothing that is computed."""
    through = opcodes.ANYTHING - opcodes.PRODUCTS - opcodes.ELEMENTWISE
    ends = [
        p.instruction
        for p in walk.sources(value, through, inside_fusions=True, reach=limits.CAUSE_REACH)
        if (p.instruction.opcode not in opcodes.LITERALS and p.instruction.operands != ())
        or p.instruction.opcode == "parameter"
    ]
    return bool(ends) and all(
        i.opcode == "parameter" and i.computation.is_entry and i.shape.element_type in _NARROW
        for i in ends
    )


def _is_from_narrow(value: Instruction) -> bool:
    """Whether it was narrow just before, and only the product is computed in f32."""
    at = walk.source(value, opcodes.SAME_NUMBERS | opcodes.FUSIONS, inside_fusions=True)
    return at.instruction.shape.is_array and at.instruction.shape.element_type in _NARROW


def _moving(facts: Facts) -> Iterator[Instruction]:
    """What waits for memory."""
    r = facts.cost.roofline
    assert r is not None
    for n in np.flatnonzero(facts.runs > 0).tolist():
        if r.bound(n) == "memory":
            yield facts.module.instructions[n]


def _gained(facts: Facts, i: Instruction) -> float:
    """Seconds that a unit takes less if f32 arrays that the program makes itself were bf16."""
    r = facts.cost.roofline
    assert r is not None
    outside = opcodes.GIVEN
    wide = 0.0
    moved = float(facts.cost.main_bytes[i.index])
    for value in (*i.operands, i):
        made = walk.source(value, _SAME).instruction if value is not i else i
        if made.opcode not in outside:
            wide += sum(s.byte_size for s in value.shape.leaves() if s.element_type == "f32")
    wide = min(wide, moved)
    took = float(r.seconds[i.index])
    flops = float(facts.filled[i.index])
    rate = r.hardware.matmul_rate(facts.cost.matmul_dtype[i.index]) if flops else None
    least = flops / rate if rate else 0.0
    less = max(took - wide / 2 / r.hardware.memory_bandwidth, least)
    return max(0.0, took - less) * float(facts.runs[i.index])
