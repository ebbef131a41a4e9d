"""Products that only move rows: with one vector at a time, or with ones and zeros.

matrix-vector     w @ h for one h           reads all of w, on the vector units of a TPU
one-hot-product   one_hot(i) @ x            takes x[i]; one_hot(i).T @ x writes x to rows i
"""

from __future__ import annotations

from collections.abc import Iterator

from ...hlo import Instruction, opcodes, walk
from ..base.memory_tiling import storage_bytes
from ..base.phases.phases import BACKWARD, phases
from ..flops.matrix_unit import products_in
from ..text.units import duration, size
from . import limits
from .collective_purposes import is_of_weights
from .facts import Facts
from .finding import Finding, percent


def matrix_vector(facts: Facts) -> Iterator[Finding]:
    """Products of a matrix with one vector, which XLA:TPU writes as a sum of products.

    A product with several rows, or of another platform, is one of ``idle-matmul``.
    """
    if facts.seconds is None or not facts.total_seconds or facts.on_host:
        return
    rows: list[tuple[float, Instruction, Instruction, Instruction]] = []
    for n in facts.table.where("fusion").tolist():
        unit = facts.module.instructions[n]
        found = _with_a_vector(unit) if facts.runs[n] > 0 and facts.seconds[n] > 0 else None
        if found is not None:
            rows.append((float(facts.seconds[n]), unit, *found))
    seconds = sum(row[0] for row in rows)
    share = min(1.0, seconds / facts.total_seconds)
    if share < limits.IDLE_SHARE:
        return
    rows.sort(key=lambda row: -row[0])
    _, unit, matrix, vector = rows[0]
    runs = float(facts.runs[unit.index])
    many = len(rows) > 1
    could_be_more = is_of_weights(facts, matrix) and not is_of_weights(facts, vector)
    yield Finding(
        "matrix-vector",
        f"{f'{len(rows):,} products' if many else 'A product'} of a matrix with a single vector"
        f" ({percent(share)} of the modelled step) {'use' if many else 'uses'} none of the matrix"
        " unit",
        f"the vector units multiply and add, while they wait for the matrix:"
        f" {'most time in ' if many else ''}%{unit.name} reads {size(storage_bytes(matrix.shape))}"
        f" for {size(storage_bytes(vector.shape))}{f', {runs:,.0f} times' if runs > 1 else ''}",
        "batch more rows into one product (larger batch, jax.vmap in place of jax.lax.map or a"
        " loop over rows)"
        if could_be_more
        else "",
        share,
        seconds=seconds,
        instructions=tuple(row[1] for row in rows),
        **facts.at(unit),
    )


def _with_a_vector(unit: Instruction) -> tuple[Instruction, Instruction] | None:
    """The matrix and the vector that a fusion multiplies and adds up, as a product; else None."""
    inside = unit.called_computations[0].instructions if unit.called_computations else ()
    if any(x.opcode in opcodes.PRODUCTS for x in inside):
        return None
    for x in inside:
        if x.opcode != "reduce" or not x.op_name.endswith("dot_general") or not x.operands:
            continue
        product = walk.source(x.operands[0], opcodes.SAME_NUMBERS).instruction
        if product.opcode != "multiply" or product.shape.elements < limits.REPEATED_ELEMENTS:
            continue
        ends = [walk.source(o, opcodes.REPEATED).instruction for o in product.operands]
        matrix, vector = sorted(ends, key=lambda i: -i.shape.elements)
        # The matrix is read, not computed in the fusion, and there is one: n products of n vectors
        # have n times as many results.
        if (
            matrix.opcode == "parameter"
            and matrix.shape.elements == product.shape.elements
            and matrix.shape.elements == vector.shape.elements * x.shape.elements
        ):
            return matrix, vector
    return None


def one_hot_products(facts: Facts) -> Iterator[Finding]:
    """Products with ones and zeros that say which row to take, where the rows are long.

    Silent where there are gradients: those of an indexed array are a scatter.
    """
    chip, seconds = facts.cost.hardware, facts.seconds
    if chip is None or seconds is None or not facts.total_seconds or facts.on_host:
        return
    if bool((phases(facts.module) == BACKWARD).any()):
        return
    for n in facts.cost.matmul_flops.nonzero()[0].tolist():
        unit = facts.module.instructions[n]
        products = products_in(unit)
        if not facts.runs[n] or len(products) != 1 or len(products[0].operands) != 2:
            continue
        product = products[0]
        hots = [_is_one_hot(o) for o in product.operands]
        if hots.count(True) != 1:
            continue
        hot, moved = product.operands if hots[0] else reversed(product.operands)
        if _row_bytes(moved) < limits.LONG_ROW:
            continue
        took = float(seconds[n])
        by_index = storage_bytes(moved.shape) + 2 * storage_bytes(product.shape)
        saved = took - by_index * float(facts.runs[n]) / chip.memory_bandwidth
        share = saved / facts.total_seconds
        if share < limits.ONE_HOT_SHARE or saved < limits.GAINED_SHARE * took:
            continue
        yield Finding(
            "one-hot-product",
            f"A product with ones and zeros takes {percent(took / facts.total_seconds)} of the"
            " modelled step, and only moves rows",
            f"%{unit.name} multiplies {moved.shape.dense_text} with {hot.shape.dense_text}, which"
            " is 1 where an index is that of a row: moving the rows by their index would be"
            f" {duration(took - saved)} instead of {duration(took)}",
            "take rows by index, x[i], or write them, x.at[i].set(rows) and"
            " jax.lax.dynamic_update_slice, in place of a product with jax.nn.one_hot",
            share,
            seconds=saved,
            instructions=(unit,),
            **facts.at(product),
        )


def _is_one_hot(value: Instruction) -> bool:
    """Whether a value is 1 where an index is equal to a position, and 0 elsewhere."""
    through = opcodes.REPEATED | opcodes.FUSIONS
    at = walk.source(value, through, inside_fusions=True).instruction
    if at.opcode != "compare" or at.attribute("direction") != "EQ" or len(at.operands) != 2:
        return False
    sides = [walk.source(o, through, inside_fusions=True).instruction.opcode for o in at.operands]
    return sides.count("iota") == 1


def _row_bytes(value: Instruction) -> int:
    """Bytes of a row of what is moved, if its largest dimension counts the rows."""
    shape = value.shape
    return storage_bytes(shape) // max(1, *shape.dimensions) if shape.rank > 1 else 0
