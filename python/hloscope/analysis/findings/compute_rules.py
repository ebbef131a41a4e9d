"""Arithmetic that costs more than it must."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from math import prod
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ...hlo import Instruction
from ..base.phases.phases import REMATERIALISED, phases
from ..text.units import duration, quantity, size
from . import limits
from .facts import Facts
from .finding import Finding, names, percent

_DIMS = re.compile(r"\d+")


def wide_matmuls(facts: Facts) -> Iterator[Finding]:
    """Matmuls in f64, or in f32 where the chip has a much faster type for them."""
    cost = facts.cost
    chip = cost.hardware
    work = np.where(cost.is_unit, np.nan_to_num(cost.matmul_flops) * cost.runs, 0.0)
    if not work.any():
        return
    by_type: dict[str, list[int]] = defaultdict(list)
    for n in np.flatnonzero(work).tolist():
        if not _is_of_another(cost.module.instructions[n]):
            by_type[cost.matmul_dtype[n]].append(n)
    fast = chip.matmul_rate("bf16") if chip is not None else None
    for dtype, rows in by_type.items():
        base = dtype.partition(":")[0]
        if base not in ("f64", "c128") and (base != "f32" or chip is None):
            continue
        if base == "f32" and (not facts.is_optimised or _widened(facts)):
            continue
        if base == "f64" and facts.target.platform == "cpu":
            continue
        slow = chip.matmul_rate(dtype) if chip is not None else None
        flops = float(work[rows].sum())
        share_of_work = flops / float(work.sum())
        saved, share = None, share_of_work
        if slow and fast and facts.total_seconds and facts.seconds is not None:
            here = float(facts.seconds[rows].sum())
            saved = max(0.0, here - max(flops / fast, here * slow / fast))
            share = saved / facts.total_seconds
            if slow * limits.MUCH_FASTER > fast:
                continue
        elif base == "f32":
            continue
        if share < limits.WIDE_MATMUL_SHARE:
            continue
        rows.sort(key=lambda n: -work[n])
        first = cost.module.instructions[rows[0]]
        frame, inferred = facts.line(first)
        faster = f"; bf16 would be {fast / slow:.0f}× as fast" if slow and fast else ""
        yield Finding(
            "wide-matmul",
            f"{percent(share_of_work)} of the matmul FLOPs run in {dtype.replace(':', ', ')}"
            + (f" precision{faster}" if ":" in dtype else faster),
            f"{quantity(flops, 'FLOP')} in {len(rows):,} operations:"
            f" {names([cost.module.instructions[n] for n in rows])}",
            "cast the operands to bf16 (with preferred_element_type=jnp.float32 to keep the sum"
            " exact), or lower jax.default_matmul_precision where the result allows it"
            if base == "f32"
            else "look for Python floats and numpy arrays that make values 64-bit, or turn"
            " jax_enable_x64 off",
            share,
            saved,
            None,
            "",
            tuple(cost.module.instructions[n] for n in rows),
            frame,
            inferred,
        )


# What XLA turns into matmuls in a precision of its own, which users cannot choose.
_OTHERS = re.compile(
    r"(?:^|/)(?:jit\(|_)*(?:fft|ifft|rfft|irfft|cum\w+|reduce_window\w*|triangular_solve|cholesky|lu|"
    r"qr|eigh?|svd|householder_product|inv|solve)\)*$"
)


def _is_of_another(i: Instruction) -> bool:
    """Whether a matmul is the compiler's form of a Fourier transform, a solver or a scan."""
    inside = i.called_computations[0].instructions if i.opcode == "fusion" else (i,)
    found = [x for x in inside if x.opcode in _MATMUL] or [i]
    return any(_OTHERS.search(x.op_name) for x in found)


def _widened(facts: Facts) -> bool:
    """Whether matmuls may be in f32 only because XLA:CPU has none in the types of the program."""
    narrow = ("bf16", "f16")
    shapes = facts.table.shapes if facts.made_for_cpu else ()
    return any(leaf.element_type in narrow for s in shapes for leaf in s.leaves())


def idle_matmuls(facts: Facts) -> Iterator[Finding]:
    """Matmuls too thin for the chip: reading their operands takes longer than multiplying."""
    cost = facts.cost
    chip, seconds = cost.hardware, facts.seconds
    if chip is None or seconds is None or not facts.total_seconds or facts.on_host:
        return
    groups: dict[tuple[int, int, int], list[Instruction]] = defaultdict(list)
    for n in np.flatnonzero(cost.is_unit & (np.nan_to_num(cost.matmul_flops) > 0)).tolist():
        dims = matmul_dims(cost.module.instructions[n])
        if dims is not None and facts.runs[n]:
            groups[dims].append(cost.module.instructions[n])
    thin: dict[tuple[int, str], list[_Thin]] = defaultdict(list)
    for dims, rows in groups.items():
        # All operands are read from main memory once, prefetched or not.
        read = sum(_read(facts, i) for i in rows) / chip.memory_bandwidth
        took = max(float(read), float(sum(seconds[i.index] for i in rows)))
        flops = float(sum(cost.matmul_flops[i.index] * cost.runs[i.index] for i in rows))
        rate = chip.matmul_rate(cost.matmul_dtype[rows[0].index]) or float("nan")
        if flops / rate < limits.IDLE_RATE * took:
            m, n, k = dims
            key = min((m, "rows"), (n, "columns"), (k, "contracted elements"))
            thin[key].append(_Thin(dims, rows, flops / rate, took))
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
        frame, inferred = facts.line(most.rows[0])
        shape = "×".join(map(str, most.dims))
        of = shape if len(found) == 1 else f"{least:,} {what}"
        yield Finding(
            "idle-matmul",
            f"{len(rows):,} matmul{'s' if len(rows) > 1 else ''} of {of}"
            f" ({percent(share)} of the modelled step) use{'' if len(rows) > 1 else 's'} at most"
            f" {percent(needed / took)} of the matrix unit",
            f"{'most time in ' if len(found) > 1 else ''}rows × columns × contracted = {shape}:"
            f" with {least:,} {what} the multiplication is {duration(most.needed)} and reading"
            f" the operands {duration(most.took)} ({names(most.rows)})",
            "batch more rows into one product (larger batch, several heads or experts at once),"
            " or store the operands in a narrower type",
            share,
            took - needed,
            None,
            "",
            tuple(rows),
            frame,
            inferred,
        )


class _Thin(NamedTuple):
    dims: tuple[int, int, int]
    rows: list[Instruction]
    needed: float  # seconds of the multiplications at the chip's peak
    took: float


def _read(facts: Facts, i: Instruction) -> float:
    """Bytes in main memory, of all executions, including operands that copies fetched."""
    fetched = sum(o.shape.byte_size for o in i.operands if o.opcode.endswith("-done"))
    return float((facts.cost.main_bytes[i.index] + fetched) * facts.runs[i.index])


def matmul_dims(i: Instruction) -> tuple[int, int, int] | None:
    """(rows, columns, contracted) of a dot, alone or as the only one of a fusion."""
    if i.opcode == "fusion" and i.called_computations:
        dots = [x for x in i.called_computations[0].instructions if x.opcode in _MATMUL]
        return matmul_dims(dots[0]) if len(dots) == 1 else None
    if len(i.operands) != 2:
        return None
    a, b = i.operands[0].shape, i.operands[1].shape
    if i.opcode == "dot":
        contract = _ints(i.attribute("lhs_contracting_dims"))
        batch = _ints(i.attribute("lhs_batch_dims"))
        k = prod(a.dimensions[d] for d in contract)
        each = prod(a.dimensions[d] for d in batch)
        if not k or not each:
            return None
        return a.elements // (k * each), b.elements // (k * each), k
    labels = i.attribute("dim_labels") or ""
    if i.opcode != "convolution" or "window" in i.attributes or "_" not in labels:
        return None
    left, _, rest = labels.partition("_")
    right, _, _ = rest.partition("->")
    if sorted(left) != ["b", "f"] or sorted(right) != ["i", "o"]:
        return None
    k = a.dimensions[left.index("f")]
    return a.dimensions[left.index("b")], b.dimensions[right.index("o")], k


_MATMUL = ("dot", "convolution")


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
    wire = [row for row in facts.collectives if row.phase == "rematerialised"]
    seconds = None
    if facts.seconds is not None:
        seconds = float(facts.seconds[again].sum()) or None
    rows = np.flatnonzero(again & (flops > 0))
    rows = rows[np.argsort(-flops[rows], kind="stable")][:200]
    heaviest = [facts.module.instructions[int(n)] for n in rows]
    frame, inferred = facts.line(heaviest[0])
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
        " dots_with_no_batch_dims_saveable, or save_only_these_names)",
        redone / total,
        seconds,
        None,
        "",
        tuple(heaviest),
        frame,
        inferred,
    )
