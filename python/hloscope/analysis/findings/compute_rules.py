"""Arithmetic that costs more than it must."""

from __future__ import annotations

import math
import re
from collections import defaultdict, deque
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ...hlo import Instruction, Shape, StackFrame, opcodes, walk
from ...hlo.changes import Changes
from ...hlo.shardings.sharding_text import parse_sharding
from ...hlo.shardings.specs import as_written, cut_further, spec_of
from ...hlo.texts.places import short_line
from ..base.lines.frames import own_line
from ..base.operands import source_of
from ..base.phases.phases import REMATERIALISED, phases
from ..flops.matrix_unit import product_of, products_in
from ..text.units import duration, quantity, size
from . import limits
from .collective_purposes import is_of_weights
from .facts import Facts, own_function
from .finding import Finding, names, percent
from .loop_rules import hoistable, work_of
from .redundant import Redundant
from .whole_operations import OTHER_DIMENSION, has_other_dimension

_DIMS = re.compile(r"\d+")


def wide_matmuls(facts: Facts) -> Iterator[Finding]:
    """Matmuls in f64, or in f32 where the chip has a much faster type for them."""
    cost = facts.cost
    chip = cost.hardware
    work = np.where(cost.is_unit, np.nan_to_num(cost.matmul_flops) * cost.runs, 0.0)
    if not work.any():
        return
    by_type: dict[str, list[int]] = defaultdict(list)
    rows = np.flatnonzero(work).tolist()
    are_named = any(cost.module.instructions[n].op_name for n in rows)
    for n in rows:
        if not _is_of_another(cost.module.instructions[n], are_named):
            by_type[cost.matmul_dtype[n]].append(n)
    for dtype, rows in by_type.items():
        base = dtype.partition(":")[0]
        if base not in _WIDE and (base != "f32" or chip is None):
            continue
        narrow = "f32" if base in _WIDE else "bf16"
        fast = chip.matmul_rate(narrow) if chip is not None else None
        if base == "f32" and (not facts.is_optimised or _widened(facts)):
            continue
        slow = chip.matmul_rate(dtype) if chip is not None else None
        flops = float(work[rows].sum())
        share_of_work = flops / float(work.sum())
        saved, share = None, share_of_work
        if chip and slow and fast and facts.total_seconds and facts.seconds is not None:
            whole = base in _WIDE
            saved = math.fsum(_gained(facts, n, fast, chip.memory_bandwidth, whole) for n in rows)
            share = saved / facts.total_seconds
            if slow * limits.MUCH_FASTER > fast and base == "f32":
                continue
        elif base == "f32":
            continue
        if share < limits.WIDE_MATMUL_SHARE:
            continue
        rows.sort(key=lambda n: -work[n])
        first = cost.module.instructions[rows[0]]
        at = facts.at(first)
        faster = f"; {narrow} would be {fast / slow:.0f}× as fast" if slow and fast else ""
        yield Finding(
            "wide-matmul",
            f"{percent(share_of_work)} of the matmul FLOPs run in {dtype.replace(':', ', ')}"
            + (f" precision{faster}" if ":" in dtype else faster),
            f"{quantity(flops, 'FLOP')} in {len(rows):,} operation{'s' * (len(rows) > 1)}:"
            f" {names([cost.module.instructions[n] for n in rows])}",
            "cast the operands to bf16 (with preferred_element_type=jnp.float32 to keep the sum"
            " exact), or lower jax.default_matmul_precision, where the result allows it"
            if base == "f32"
            else _TO_32,
            share,
            seconds=saved,
            instructions=tuple(cost.module.instructions[n] for n in rows),
            **at,
            changes=_narrowed(dtype, at["frame"]),
        )


def _gained(facts: Facts, n: int, rate: float, bandwidth: float, whole: bool) -> float:
    """Seconds that a product is quicker by with operands half as wide: the sum stays as it is, so
    that what waits for memory gains no more than what it need not read. ``whole``: it is
    half as wide, too."""
    assert facts.seconds is not None
    runs = float(facts.runs[n])
    read, _ = _product_bytes(facts.module.instructions[n])
    moved = float(facts.moved[n]) / 2 if whole else float(facts.moved[n]) - read * runs / 2
    flops = float(np.nan_to_num(facts.filled[n])) * runs
    return max(0.0, float(facts.seconds[n]) - max(flops / rate, moved / bandwidth))


def _narrowed(dtype: str, frame: StackFrame | None) -> tuple[Changes, ...]:
    """Ways to narrower products: operands in bf16, another precision, no 64 bits."""
    if dtype.partition(":")[0] in _WIDE:
        return ({"x64": False},)
    ways: list[Changes] = [{"cast": {name: "bfloat16"}} for name in own_function(frame)]
    return (*ways, {"matmul_precision": "default"})


_WIDE = ("f64", "c128")
_TO_32 = (
    "look for numpy scalars and arrays that make values 64-bit (np.float64 times a float32 array is"
    " 64-bit), or turn jax_enable_x64 off"
)


def wide_values(facts: Facts) -> Iterator[Finding]:
    """Arrays of 64-bit floats in a program whose arguments are narrower."""
    entry = facts.module.entry
    given = [s for p in entry.parameters for s in p.shape.leaves()] if entry is not None else []
    if not any(_is_float(s, _NARROW) and s.elements > 1 for s in given):
        return  # the program is given 64 bits, and asks for nothing else
    t = facts.table
    yield from _in_pairs(facts)
    rows = [
        t.instructions[n]
        for n in np.flatnonzero(facts.moved > 0).tolist()
        if any(_is_float(s, _WIDE) for s in t.instructions[n].shape.leaves())
    ]
    rows = [i for i in rows if not facts.cost.matmul_flops[i.index] > 0]
    moved = float(sum(facts.moved[i.index] for i in rows))
    total = float(facts.moved.sum())
    if not rows or moved < limits.WIDE_BYTES_SHARE * total:
        return
    rows.sort(key=lambda i: -float(facts.moved[i.index]))
    seconds = None
    if facts.seconds is not None:
        seconds = float(sum(facts.seconds[i.index] for i in rows)) / 2
    yield Finding(
        "wide-values",
        f"{percent(moved / total)} of the bytes moved are of values in 64 bits, though the program"
        " is given narrower ones",
        f"{len(rows):,} operations write them: {names(rows)}",
        _TO_32,
        facts.time_share(seconds, moved / 2),
        seconds=seconds,
        bytes=None if (traffic := facts.traffic(rows)) is None else traffic // 2,
        bytes_of="memory traffic",
        instructions=tuple(rows),
        changes=({"x64": False},),
        **facts.at(rows[0]),
    )


def _in_pairs(facts: Facts) -> Iterator[Finding]:
    """64-bit floats on TPU, which has none: XLA computes each as a pair of 32-bit ones."""
    t = facts.table
    rows = [t.instructions[n] for n in t.where("custom-call").tolist()]
    rows = [i for i in rows if (i.custom_call_target or "") == "X64Combine"]
    rows = [i for i in rows if any(_is_float(s, _WIDE) for s in i.shape.leaves())]
    if not rows:
        return
    yield Finding(
        "wide-values",
        "Values in 64 bits are computed as pairs of 32-bit ones, though the program is given"
        " narrower ones",
        f"a TPU has no 64-bit floats: {names(rows)} {'put' if len(rows) > 1 else 'puts'} the pairs"
        " together, and how much is computed in pairs before is not known",
        _TO_32,
        limits.WIDE_BYTES_SHARE,
        instructions=tuple(rows),
        **facts.at(rows[0]),
    )


_NARROW = ("f32", "bf16", "f16", "c64")


def _is_float(shape: Shape, types: tuple[str, ...]) -> bool:
    return shape.element_type in types


# What XLA or jax turns into matmuls in a precision of its own, which users cannot choose: the last
# part of a name, within any derivative, or the jitted function of jax that a matmul is in.
_FOURIER_OR_SOLVER = (
    r"fft|ifft|rfft|irfft|triangular_solve|cholesky|qr|eigh?|svd|householder_product"
)
# … and JAX's functions that multiply in the highest precision, in themselves or their derivatives.
_ALGEBRA = r"lu_factor|lu_solve|lstsq|expm|sqrtm|polar|pinv|det|slogdet"
_HIGHEST = "operand_precision={highest"
_OTHERS = re.compile(
    rf"(?:^|/)(?:\w+\(|_)*(?:{_FOURIER_OR_SOLVER}|cum\w+|reduce_window\w*|lu|inv|solve)\)*$"
    rf"|(?:^|[/(])jit\(_?(?:{_FOURIER_OR_SOLVER}|{_ALGEBRA})\)+/"
)


def _is_of_another(i: Instruction, are_named: bool) -> bool:
    """Whether a matmul is the compiler's form of a Fourier transform, a solver or a scan, or one
    of JAX's own linear algebra, whose precision nobody can choose.

    What the compiler makes of a triangular solve has no name, where others have one, and the
    highest precision.
    """
    return any(
        _OTHERS.search(x.op_name) or (are_named and not x.op_name and _HIGHEST in x.attribute_text)
        for x in products_in(i) or [i]
    )


def _widened(facts: Facts) -> bool:
    """Whether matmuls may be in f32 only because XLA:CPU has none in the types of the program."""
    narrow = ("bf16", "f16")
    shapes = facts.table.shapes if facts.made_for_cpu else ()
    return any(leaf.element_type in narrow for s in shapes for leaf in s.leaves())


def idle_matmuls(facts: Facts) -> Iterator[Finding]:
    """Matmuls too thin for the chip: moving operands and results takes longer than multiplying."""
    cost = facts.cost
    chip, seconds = cost.hardware, facts.seconds
    if chip is None or seconds is None or not facts.total_seconds or facts.on_host:
        return
    hoisted = {x.unit.index for _, _, rows in hoistable(facts) for x in rows}
    groups: dict[tuple[int, int, int], list[Instruction]] = defaultdict(list)
    for n in np.flatnonzero(cost.is_unit & (np.nan_to_num(cost.matmul_flops) > 0)).tolist():
        dims = matmul_dims(cost.module.instructions[n])
        if dims is not None and facts.runs[n] and n not in hoisted:
            groups[dims].append(cost.module.instructions[n])
    thin: dict[tuple[int, str], list[_Thin]] = defaultdict(list)
    met: set[Instruction] = set()  # copies that are counted: what several products read is one
    for dims, rows in groups.items():
        # What the multiplication moves in main memory, of all that its fusion does: an optimiser's
        # update reads far more than the gradient in it, and what lies in VMEM moves nothing.
        took = sum(
            min(_read(facts, i, met), _of_product(i) * float(facts.runs[i.index]))
            / chip.memory_bandwidth
            for i in rows
        )
        flops = float(sum(cost.matmul_flops[i.index] * cost.runs[i.index] for i in rows))
        rate = chip.matmul_rate(cost.matmul_dtype[rows[0].index]) or float("nan")
        filled = float(sum(facts.filled[i.index] * cost.runs[i.index] for i in rows)) / rate
        # of many tiny ones, blocks that they do not fill take longer than what they move
        if flops / rate < limits.IDLE_RATE * took and not filled > took:
            m, n, k = dims
            key = min((m, "rows"), (n, "columns"), (k, "contracted elements"))
            thin[key].append(_Thin(dims, rows, flops / rate, took, filled))
    for (least, what), found in thin.items():
        took = sum(x.took for x in found)
        needed = sum(x.needed for x in found)
        share = min(1.0, took / facts.total_seconds)
        if share < limits.IDLE_SHARE:
            continue
        found.sort(key=lambda x: -x.took)
        most = found[0]
        rows = [i for x in found for i in x.rows]
        rows.sort(key=lambda i: -float(seconds[i.index]))
        shape = "×".join(map(str, most.dims))
        few = f"{least:,} {what[:-1] if least == 1 else what}"
        of = shape if len(found) == 1 else few
        yield Finding(
            "idle-matmul",
            f"{len(rows):,} matmul{'s' if len(rows) > 1 else ''} of {of}"
            f" ({percent(share)} of the modelled step) use{'' if len(rows) > 1 else 's'} at most"
            f" {percent(needed / took)} of the matrix unit",
            f"{'most time in ' if len(found) > 1 else ''}rows × columns × contracted = {shape}:"
            f" with {few} the multiplication is {duration(most.filled)} and moving the"
            f" operands and the result {duration(most.took)} ({names(most.rows)})",
            "batch more rows into one product (larger batch, several heads or experts at once)"
            if could_be_more(facts, most.rows[0], what)
            else "",
            share,
            seconds=took - needed,
            instructions=tuple(rows),
            **facts.at(most.rows[0]),
        )


def could_be_more(facts: Facts, i: Instruction, what: str) -> bool:
    """Whether what is few are rows of data, which weights are multiplied with: a larger batch."""
    dots = [x for x in products_in(i) if len(x.operands) == 2]
    if len(dots) != 1 or what not in ("rows", "columns"):
        return False
    few, many = dots[0].operands if what == "rows" else reversed(dots[0].operands)
    return is_of_weights(facts, many) and not is_of_weights(facts, few)


class _Thin(NamedTuple):
    dims: tuple[int, int, int]
    rows: list[Instruction]
    needed: float  # seconds of the multiplications at the chip's peak
    took: float
    filled: float  # with what few rows leave idle


def _of_product(i: Instruction) -> int:
    """Bytes of what is multiplied, as it is stored, and of the product, if only that is written."""
    return sum(_product_bytes(i))


def _product_bytes(i: Instruction) -> tuple[int, int]:
    """(what is multiplied, the product if only that is written) in bytes, as they are stored."""
    if i.opcode != "fusion":
        return sum(o.shape.byte_size for o in i.operands), i.shape.byte_size
    dot = next(
        (x for x in i.called_computations[0].instructions if x.opcode in opcodes.PRODUCTS), None
    )
    if dot is None:
        return 0, 0
    made, todo = set[Instruction](), list(dot.operands)
    while todo:
        if (x := todo.pop()) not in made:
            made.add(x)
            todo += x.operands
    given = zip(i.called_computations[0].parameters, i.operands, strict=True)
    read = sum(o.shape.byte_size for p, o in given if p in made)
    written = [s.byte_size for s in i.shape.leaves() if s.elements >= dot.shape.elements]
    return read, written[0] if len(written) == 1 else 0


def _read(facts: Facts, i: Instruction, met: set[Instruction]) -> float:
    """Bytes in main memory, of all executions, including operands that copies fetched: a copy that
    was met is in VMEM already."""
    fetched = {o for o in i.operands if o.opcode.endswith("-done")} - met
    met |= fetched
    copied = sum(o.shape.byte_size * float(facts.runs[o.index]) for o in fetched)
    return float(facts.cost.main_bytes[i.index] * facts.runs[i.index]) + copied


def matmul_dims(i: Instruction) -> tuple[int, int, int] | None:
    """(rows, columns, contracted) of a dot, alone or as the only one of a fusion."""
    products = products_in(i)
    p = product_of(products[0]) if len(products) == 1 else None
    return None if p is None else (p.rows, p.columns, p.contracted)


def _ints(text: str | None) -> list[int]:
    return [int(n) for n in _DIMS.findall(text or "")]


def share_done_again(facts: Facts) -> float:
    """Part of all FLOPs that are spent in rematerialised operations."""
    flops, again = _done_again(facts)
    total = float(flops.sum())
    return float(flops[again].sum()) / total if total else 0.0


def _done_again(facts: Facts) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.bool_]]:
    """FLOPs of all executions, one row per instruction, and which rows are rematerialised."""
    executed = facts.cost.execution.runs[facts.table.computation]
    flops = np.nan_to_num(facts.cost.work.flops) * executed
    return flops, phases(facts.module) == REMATERIALISED


def rematerialisation(facts: Facts) -> Iterator[Finding]:
    """What is computed again in the backward pass, and what it costs."""
    flops, again = _done_again(facts)
    total, redone = float(flops.sum()), float(flops[again].sum())
    if not total or redone < limits.REDONE_SHARE * total:
        return
    chip = None if facts.on_host else facts.cost.hardware
    if chip is not None and facts.memory.peak_bytes > limits.FULL_SHARE * chip.memory_bytes:
        return  # recomputation is what saves memory
    room = ""
    if chip is not None:
        room = f"; the peak is {size(facts.memory.peak_bytes)} of {size(chip.memory_bytes)}"
    before = {row.source for row in facts.collectives if row.phase == "forward"}
    wire = [
        row for row in facts.collectives
        if row.phase == "rematerialised" and row.source in before
    ]  # fmt: skip
    if facts.seconds is not None and float(facts.seconds[again].sum()) < limits.LEAST_SECONDS:
        return
    saveable = _saveable(facts, again)
    seconds, share = None, float(sum(flops[n] for n in saveable)) / total
    if facts.seconds is not None and facts.total_seconds:
        # what is saved is not computed again, but stored and fetched
        moved = sum(_of_products(facts, n) * float(facts.runs[n]) for n in saveable)
        bandwidth = facts.cost.hardware.memory_bandwidth if facts.cost.hardware else np.inf
        kept = limits.SAVED_TIMES * moved / bandwidth
        seconds = max(0.0, float(sum(facts.seconds[n] for n in saveable)) - kept)
        share = seconds / facts.total_seconds
    is_gained = share >= limits.WORTH_SAYING
    rows = np.flatnonzero(again & (flops > 0))
    rows = rows[np.argsort(-flops[rows], kind="stable")]
    heaviest = [facts.module.instructions[int(n)] for n in rows]
    gathers = ""
    if wire:
        gathers = f", and {len(wire):,} collective{'s run' if len(wire) > 1 else ' runs'} again"
    whole = "" if facts.is_optimised or not facts.is_shared else " (all devices together)"
    yield Finding(
        "rematerialisation",
        f"{percent(redone / total)} of all FLOPs are spent computing values again for the"
        " backward pass",
        f"{quantity(redone, 'FLOP')} of {quantity(total, 'FLOP')}{whole} are in rematerialised"
        f" operations{gathers}: heaviest {names(heaviest)}{room}",
        "if memory allows, save the most expensive of them (jax.checkpoint policies such as"
        " dots_with_no_batch_dims_saveable)"
        if is_gained
        else "",
        max(share, limits.WORTH_SAYING),
        seconds=seconds if is_gained else None,
        instructions=tuple(heaviest),
        changes=({"remat": {"*": "dots_with_no_batch_dims_saveable"}},) if is_gained else (),
        **facts.at(heaviest[0]),
    )


def _saveable(facts: Facts, again: npt.NDArray[np.bool_]) -> list[int]:
    """What runs again only for products that ``dots_with_no_batch_dims_saveable`` saves, by index.

    A fusion that also makes other values runs again for these.
    """
    found = []
    for n in np.flatnonzero(again & facts.cost.is_unit & (facts.runs > 0)).tolist():
        i = facts.module.instructions[n]
        products = products_in(i)
        if products and all(_is_unbatched(x) for x in products):
            found.append(n)
    return found


def _is_unbatched(product: Instruction) -> bool:
    """Whether it is ``dot_general`` without batch dimensions, as jax wrote it."""
    if product.opcode == "dot":
        return not _ints(product.attribute("lhs_batch_dims"))
    return product.op_name.endswith("dot_general") and matmul_dims(product) is not None


def _of_products(facts: Facts, n: int) -> int:
    return sum(x.shape.byte_size for x in products_in(facts.module.instructions[n]))


def redundant_work(facts: Facts) -> Iterator[Finding]:
    """Work that several devices do alike, by line."""
    rows = facts.redundant
    if not rows:
        return
    first = rows[0]
    total = float(np.nan_to_num(facts.cost.work.flops * _executed(facts)).sum())
    extra = sum(r.extra for r in rows)
    seconds = share = None
    if facts.seconds is not None and facts.total_seconds:
        seconds = sum(_seconds_of(facts, r.instructions) * r.extra / r.flops for r in rows)
        share = seconds / facts.total_seconds
    many = f"{len(rows):,} lines" if len(rows) > 1 else "one line"
    lost = ""
    if first.lost_at is not None:
        at = own_line(first.lost_at.frames)
        where = f" at {short_line(f'{at.file}:{at.line}')}" if at is not None else ""
        lost = f": its operand is no longer sharded so after the {first.lost_at.opcode}{where}"
    elif first.sharded_over:
        some = f"over more than {first.sharded_over:,} of them"
        lost = f": none of its operands is sharded {some if first.sharded_over > 1 else 'at all'}"
    elif first.has_no_rule:
        lost = ": its operands are sharded, but XLA has no rule to compute it in such parts"
    elif first.crossed:
        one, other = first.crossed
        lost = f": what it contracts is cut over {one} in one operand and over {other} in the other"
    yield Finding(
        "redundant-work",
        f"The devices do the work of {many} up to {max(r.times for r in rows):.2g} times over:"
        f" {quantity(extra, 'FLOP')} of {quantity(total, 'FLOP')} on each device",
        f"{quantity(first.flops, 'FLOP')} on each of {first.devices:,} devices is"
        f" {first.times:.2g} times what the program has to do there: {names(first.instructions)}"
        f"{lost}",
        _SHARDED_FURTHER
        if first.sharded_over
        else (OTHER_DIMENSION if has_other_dimension(first.instructions[0]) else "")
        if first.is_along
        else _IN_PARTS
        if first.has_no_rule
        else _KEPT_SHARDED
        if first.lost_at is not None
        else _CUT_ALIKE
        if first.crossed
        else "",
        share if share is not None else extra / total,
        seconds,
        None,
        "",
        tuple(i for r in rows for i in r.instructions)[:200],
        first.frame,
        changes=_cut_further(facts, first) if first.sharded_over else (),
    )


def _cut_further(facts: Facts, work: Redundant) -> tuple[Changes, ...]:
    """The result over the axes that nothing is sharded over, along each dimension that divides."""
    mesh, i = facts.target.mesh, work.source
    # what the backward pass computes follows from what it is the gradient of
    named = [o for x in work.instructions if "transpose(" not in x.op_name for o in x.origins]
    if mesh is None or not named or i.sharding_text is None:
        return ()
    dimensions = i.shape.dimensions
    spec = spec_of(parse_sharding(i.sharding_text), len(dimensions), mesh)
    ways = cut_further(spec, dimensions, mesh) if spec is not None else ()
    return tuple({"constrain": {named[0].operation: as_written(way)}} for way in ways)


_KEPT_SHARDED = (
    "constrain that operand to stay sharded where it is made (with_sharding_constraint; for a"
    " reshape, such that the sharded dimension stays whole), or run the operation in jax.shard_map"
)
_CUT_ALIKE = (
    "cut what it contracts over the same devices in both operands, or each operand along a"
    " dimension that the product keeps"
)
_IN_PARTS = "run the operation in jax.shard_map, where each device does its own part"
_SHARDED_FURTHER = (
    "shard one of its operands over the devices that do the same (with_sharding_constraint before"
    " it, or in_shardings)"
)


def _executed(facts: Facts) -> npt.NDArray[np.float64]:
    return np.asarray(facts.cost.execution.runs[facts.table.computation], np.float64)


def _seconds_of(facts: Facts, rows: tuple[Instruction, ...]) -> float:
    """Modelled seconds of instructions, or of the fusions that hold them."""
    assert facts.seconds is not None
    units: set[int] = set()
    for i in rows:
        at = i
        while facts.seconds[at.index] == 0 and len(facts.module.call_sites(at.computation)) == 1:
            (at,) = facts.module.call_sites(at.computation)
            if at.opcode != "fusion":
                break
        units.add(at.index)
    return float(sum(facts.seconds[n] for n in units))


def repeated_operands(facts: Facts) -> Iterator[Finding]:
    """Products on the vector units of an array that is repeated first, such as grouped keys."""
    if facts.seconds is None or not facts.total_seconds or facts.on_host:
        return
    found: list[tuple[float, float, Instruction, Instruction]] = []
    for n in np.flatnonzero(facts.seconds >= limits.REPEATED_SHARE * facts.total_seconds).tolist():
        unit = facts.module.instructions[n]
        repeat = _repeated_in(unit)
        if repeat is not None:
            times = repeat.shape.elements / repeat.operands[0].shape.elements
            found.append((float(facts.seconds[n]) * (1 - 1 / times), times, unit, repeat))
    if not found:
        return
    found.sort(key=lambda x: -x[0])
    seconds = sum(x[0] for x in found)
    _, times, unit, repeat = found[0]
    alike = [x[3] for x in found if x[1] == times]
    of = list(dict.fromkeys(source_of(x.operands[0], facts.target).name for x in alike))
    many = len(of) > 1
    yield Finding(
        "repeated-operand",
        f"{' and '.join(f'`{name}`' for name in of[:2])}"
        f"{f' and {len(of) - 2:,} more' if len(of) > 2 else ''} {'are' if many else 'is'} repeated"
        f" {times:.3g} times for {'products' if many else 'a product'} on the vector units",
        f"each repeated element is multiplied and added there: {names([x[2] for x in found])}; with"
        " the repeated dimension among the rows of the product, the matrix unit could do it",
        "let the product broadcast instead of repeating an operand: an einsum over groups of heads"
        " in place of jnp.repeat",
        seconds / facts.total_seconds,
        seconds=seconds,
        instructions=tuple(x[2] for x in found),
        **facts.at(repeat),
    )


def _repeated_in(unit: Instruction) -> Instruction | None:
    """The broadcast of an array that a fusion multiplies and sums, if its program repeats it."""
    inside = unit.called_computations[0].instructions if unit.opcode == "fusion" else ()
    if any(x.opcode in opcodes.PRODUCTS for x in inside):
        return None
    for x in inside:
        if x.opcode != "reduce" or not x.operands:
            continue
        product = walk.source(x.operands[0], opcodes.SAME_NUMBERS).instruction
        if product.opcode != "multiply":
            continue
        ends = [walk.source(o, opcodes.SAME_NUMBERS).instruction for o in product.operands]
        # With what has all dimensions it is no product of rows and columns.
        if any(at.opcode != "broadcast" for at in ends):
            continue
        for at in ends:
            if _REPEAT.search(at.op_name) and at.operands:
                given = at.operands[0].shape.elements
                if given >= limits.REPEATED_ELEMENTS and at.shape.elements >= 2 * given:
                    return at
    return None


# How jax writes jnp.repeat and its like: the broadcast of a product's own is named after it.
_REPEAT = re.compile(r"/(?:broadcast_in_dim|repeat|tile)$")


def batched_branches(facts: Facts) -> Iterator[Finding]:
    """Selects that vmap makes of conditionals: both values are computed, for every row."""
    if facts.seconds is None or not facts.total_seconds:
        return
    each = facts.seconds
    lines: dict[StackFrame | None, list[tuple[Instruction, set[int]]]] = defaultdict(list)
    for n in facts.table.where("select").tolist():
        select = facts.table.instructions[n]
        if len(select.operands) != 3 or not _OF_VMAP.search(select.op_name):
            continue
        # With a constant it is a mask, such as that of indices out of bounds.
        ends = [walk.source(o, opcodes.REPEATED).instruction for o in select.operands[1:]]
        if any(end.opcode in opcodes.LITERALS for end in ends):
            continue
        choice, *made = (_made_for(facts, o) for o in select.operands)
        lines[facts.line(select)[0]].append((select, (made[0] ^ made[1]) - choice))
    for frame, found in lines.items():
        # One line may choose many times, in a loop that is written out or over several arrays.
        thrown = set[int]().union(*(either for _, either in found))
        seconds = float(sum(each[k] for k in thrown))
        share = seconds / facts.total_seconds
        if share < limits.BATCHED_SHARE:
            continue
        work = sorted(thrown, key=lambda k: -float(each[k]))
        products = [k for k in work if facts.cost.matmul_flops[k] > 0]
        makers = [facts.module.instructions[k] for k in products or work]
        select = max(found, key=lambda x: sum(float(each[k]) for k in x[1]))[0]
        several = f" (and {len(found) - 1:,} more selects there)" if len(found) > 1 else ""
        which = "the one with matmuls is made by" if products else "most time is in"
        yield Finding(
            "batched-branches",
            f"{'All values of selects' if _is_nested(found) else 'Both values of a select'} are"
            f" computed for every row: {percent(share)} of the modelled step is for one of them"
            " only",
            f"%{select.name}{several} keeps one value for each row of a vmap, as lax.cond does"
            f" there (and lax.switch) if the choice differs by row; {which} {names(makers)}",
            "where few rows need the one with matmuls, pick them first: i = jnp.nonzero(rows that"
            " do, size=n), compute x[i], and write it with .at[i].set"
            if products
            else "",
            share,
            seconds,
            None,
            "",
            (select, *makers[:20]),
            frame,
            facts.line(select)[1],
        )


def _is_nested(found: list[tuple[Instruction, set[int]]]) -> bool:
    """Whether a select chooses between what others chose, as lax.switch does under a vmap."""
    selects = {select for select, _ in found}
    return any(
        walk.source(o, opcodes.SAME_NUMBERS).instruction in selects
        for select in selects
        for o in select.operands[1:]
    )


def _made_for(facts: Facts, value: Instruction) -> set[int]:
    """What runs on the way to a value, by index: operations and the fusions around them. What a
    loop carries is given: the trip before made it for both values; a loop on the way is run."""
    through = opcodes.ANYTHING - opcodes.GIVEN - opcodes.LOOPS
    found: set[int] = set()
    ways = deque([value])
    seen: set[Instruction] = set()
    while ways:
        for p in walk.back(ways.popleft(), through, inside_fusions=True, reach=limits.CAUSE_REACH):
            i = p.instruction
            if i in seen:
                continue
            seen.add(i)
            body = dict(i.called).get("body") if i.opcode == "while" else None
            if body is not None:
                found |= {inner.index for inner in work_of(facts, body)}
                ways.extend(i.operands)
            sites = facts.module.call_sites(i.computation)
            unit = sites[0] if len(sites) == 1 and sites[0].opcode == "fusion" else i
            if facts.runs[unit.index]:
                found.add(unit.index)
    return found


# What vmap makes of lax.cond, in a loop and its derivative too; jnp.where and its like have a scope
# of their own, and the body of a batched while_loop keeps the rows that are done by a select.
_OF_VMAP = re.compile(
    r"/(?:\w+\()*vmap\([^()/]*\)+"
    r"(?:(?:/\w+)*/(?:closed_call|checkpoint|branch_\d+_fun))?/select_n$"
)
