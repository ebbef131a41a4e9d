"""What is done only because dimensions do not fill the tiles of a TPU.

matrix unit   blocks of 128 × 128 (v6e: 256 × 256), which smaller operands leave empty
memory        tiles of 8 × 128, which smaller arrays are filled up to
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from math import prod
from typing import NamedTuple

import numpy as np

from ...hlo import Instruction, Shape, opcodes, walk
from ..base.memory_spaces import memory_space
from ..base.memory_tiling import padding_bytes, storage_bytes
from ..flops.matrix_unit import LOADING, Product, filled_flops, product_of, products_in
from ..text.units import duration, size
from . import limits
from .compute_rules import could_be_more
from .facts import Facts
from .finding import Finding, names, percent
from .memory_rules import could_be_flat, filled_up

_ROWS, _COLUMNS, _DEPTH = "rows", "columns", "contracted elements"


class _Unfilled(NamedTuple):
    instruction: Instruction
    product: Product
    seconds: float
    gained: float  # seconds less if its blocks were full


def unfilled_products(facts: Facts) -> Iterator[Finding]:
    """Products that take longer because a dimension does not fill blocks of the matrix unit."""
    chip = facts.cost.hardware
    if chip is None or not chip.matrix_side or not facts.total_seconds or facts.on_host:
        return
    groups: dict[tuple[str, int], list[_Unfilled]] = defaultdict(list)
    for n in np.flatnonzero(facts.filled > np.nan_to_num(facts.cost.matrix_flops)).tolist():
        found = _unfilled(facts, n, chip.matrix_side)
        if found is not None:
            groups[_short(found.product, chip.matrix_side)].append(found)
    for (what, few), rows in groups.items():
        gained = sum(x.gained for x in rows)
        share = gained / facts.total_seconds
        if share < limits.UNFILLED_SHARE:
            continue
        rows.sort(key=lambda x: -x.gained)
        p, first = rows[0].product, rows[0].instruction
        took = sum(x.seconds for x in rows)
        side = chip.matrix_side
        many = f"{len(rows):,} matmuls" if len(rows) > 1 else "a matmul"
        kind = what[:-1] if few == 1 else what
        block = f"{side} × {side}"
        if what != _DEPTH:
            block += f", and loading the next one takes as long as {side // LOADING} rows"
        yield Finding(
            "unfilled-matmul",
            f"In {many} with {few:,} {kind} the matrix unit spends"
            f" {percent(min(0.99, gained / took))} of its time on padding",
            f"{p.rows:,}×{p.columns:,}×{p.contracted:,} (rows × columns × contracted,"
            f" {names([x.instruction for x in rows])}): a block of the matrix unit is {block}:"
            f" {duration(took)} where full blocks would take {duration(took - gained)}",
            _SIZE_ADVICE
            if what == _DEPTH and _is_of_heads(first, p)
            else _ROWS_ADVICE
            if what != _DEPTH and could_be_more(facts, first, what)
            else "",
            share,
            seconds=gained,
            instructions=tuple(x.instruction for x in rows),
            **facts.at(first),
        )


_ROWS_ADVICE = "batch more rows into one product (larger batch, several heads or experts at once)"
_SIZE_ADVICE = (
    "where the model is yours to change, fewer products of more elements each, such as half as many"
    " heads of twice the size"
)


def _unfilled(facts: Facts, n: int, side: int) -> _Unfilled | None:
    """A unit that waits for the matrix unit, and how much quicker full blocks would make it."""
    i = facts.module.instructions[n]
    r = facts.cost.roofline
    if r is None or r.bound(n) != "compute" or not facts.runs[n]:
        return None
    products = [p for x in products_in(i) if (p := product_of(x))]
    if not any(filled_flops(p, side) > 2.0 * prod(p) for p in products):
        return None
    flops = float(facts.cost.matrix_flops[n])
    took = float(r.seconds[n])
    others = (facts.cost.flops[n] - flops + facts.cost.transcendentals[n]) / (
        r.hardware.vector or np.inf
    )
    memory = facts.cost.main_bytes[n] / r.hardware.memory_bandwidth
    rate = r.hardware.matmul_rate(facts.cost.matmul_dtype[n])
    full = flops / rate if rate else took
    least = max(full, float(np.nan_to_num(others)), memory)
    worst = max(products, key=lambda p: filled_flops(p, side) - 2.0 * prod(p))
    runs = float(facts.runs[n])
    return _Unfilled(i, worst, took * runs, max(0.0, took - least) * runs)


def _is_of_heads(i: Instruction, p: Product) -> bool:
    """Whether both operands are a batch of what products made, as queries and keys are: then the
    model could have fewer and larger ones."""
    product = next(x for x in products_in(i) if product_of(x) == p)
    through = opcodes.ANYTHING - opcodes.PRODUCTS - opcodes.LOOPS
    return (
        p.batch > 1
        and p.contracted < min(p.rows, p.columns)
        and all(
            any(
                at.instruction.opcode in opcodes.PRODUCTS
                for at in walk.back(o, through, inside_fusions=True, reach=limits.CAUSE_REACH)
            )
            for o in product.operands
        )
    )


def _short(p: Product, side: int) -> tuple[str, int]:
    """The dimension that leaves most of the unit empty, and its size."""
    deep = _up(p.contracted, side) / p.contracted
    rest = filled_flops(p, side) / (2.0 * prod(p) * deep)
    if deep >= rest:
        return _DEPTH, p.contracted
    return min((p.rows, _ROWS), (p.columns, _COLUMNS))[::-1]


def _up(n: int, to: int) -> int:
    return -(-n // to) * to


def _is_padded(s: Shape) -> bool:
    """Whether an array in the device's own memory has much padding."""
    much = max(limits.PADDED_BYTES, limits.TILE_PADDING * s.byte_size)
    return s.is_array and not memory_space(s) and padding_bytes(s) >= much


def padded_traffic(facts: Facts) -> Iterator[Finding]:
    """Arrays that are read and written with much padding, where that takes time."""
    r = facts.cost.roofline
    if r is None or not facts.total_seconds or facts.on_host:
        return
    alike: dict[object, list[tuple[Instruction, Instruction, float]]] = defaultdict(list)
    t = facts.table
    padded = np.array([_is_padded(s) for s in t.shapes], bool)[t.shape]
    moving = padded.copy()
    moving[t.operands.rows[padded[t.operands.values]]] = True
    for n in np.flatnonzero((facts.runs > 0) & moving).tolist():
        if r.bound(n) != "memory":
            continue
        i = facts.module.instructions[n]
        given = [v for v in (*i.operands, i) if v.shape.is_array and not memory_space(v.shape)]
        # if only parts are read, their padding is as much of them
        moved = max(
            float(facts.cost.main_bytes[n]), float(sum(storage_bytes(v.shape) for v in given))
        )
        for value in given:
            if not moved or not padded[value.index]:
                continue
            seconds = (
                padding_bytes(value.shape) / moved * float(r.seconds[n]) * float(facts.runs[n])
            )
            alike[_needs_filling(value.shape)].append((i, value, seconds))
    for rows in alike.values():
        seconds = min(sum(s for *_, s in rows), facts.total_seconds)
        share = seconds / facts.total_seconds
        if share < limits.PADDING_SHARE:
            continue
        rows.sort(key=lambda row: -row[2])
        units = list(dict.fromkeys(i for i, *_ in rows))
        shapes = list(dict.fromkeys(value.shape.dense_text for _, value, _ in rows))
        value = rows[0][1]
        full = value.shape.byte_size
        others = f" and {len(shapes) - 1:,} more" if len(shapes) > 1 else ""
        yield Finding(
            "padded-traffic",
            f"{percent(share)} of the modelled step reads and writes padding of"
            f" {shapes[0]}{others}",
            f"{shapes[0]} takes {size(full + padding_bytes(value.shape))} for {size(full)} of data"
            f"{filled_up(value.shape)}; {len(units):,} operation"
            f"{'s move' if len(units) > 1 else ' moves'} such arrays: {names(units)}",
            _FLAT if could_be_flat(value, value.shape) else "",
            share,
            seconds=seconds,
            instructions=tuple(units),
            **facts.at(value),
        )


def _needs_filling(shape: Shape) -> object:
    """Its tiles, and the dimensions that do not fill them."""
    layout = shape.layout
    if layout is None or not layout.tiles:
        return None
    tile = layout.tiles[0]
    minor = [shape.dimensions[d] for d in layout.minor_to_major[: len(tile)]][::-1]
    return tile, tuple(n if n % t else 0 for n, t in zip(minor, tile[-len(minor) :], strict=True))


_FLAT = "merge the small dimensions into one, such as [n, 3] into [3 · n]"
