"""What loops store for the backward pass: too much, or larger than what it was made from."""

from __future__ import annotations

import math
from collections.abc import Iterator

from ...hardware.chips import Hardware
from ...hlo import Instruction, UnmetName, opcodes, walk
from ...hlo.collective_kinds import kind_of
from ...hlo.texts.listed import listed
from ...hlo.walk import Position
from ..memory.carries import Residual
from ..text.units import size
from . import limits
from .compute_rules import share_done_again
from .facts import Facts, own_function
from .finding import Finding, percent
from .loop_rules import work_of


def residuals(facts: Facts) -> Iterator[Finding]:
    """What forward loops store for backward ones, if it is most of the peak."""
    rows = _at_peak(facts)
    total = sum(r.bytes for r in rows)
    peak = facts.memory.peak_bytes
    if not rows or not peak or total < max(limits.RESIDUALS_SHARE * peak, limits.SMALL_RESIDUALS):
        return
    gain = facts.memory.gain_if_smaller({r.buffer: r.bytes for r in rows})
    again = [r for r in rows if r.writer.phase == "rematerialised"]
    if sum(r.bytes for r in again) >= limits.MOSTLY * total and _is_one_loop(facts):
        yield _around_a_loop(facts, again, gain)
        return
    if total < facts.scarce_bytes:
        return
    chip = None if facts.on_host else facts.cost.hardware
    if chip is not None and peak < limits.FULL_SHARE * chip.memory_bytes:
        yield from _slower_than_again(facts, chip, rows)  # there is room for them
        return
    if chip is None and share_done_again(facts) >= limits.REDONE_SHARE:
        return  # what is stored was chosen
    first = rows[0]
    at = facts.at(first.stored)
    carried = [r for r in rows if _is_carried(r)]
    are_carried = sum(r.bytes for r in carried) * 2 > total
    if are_carried:
        gain = facts.memory.gain_if_smaller({r.buffer: r.bytes * _by_blocks(r) for r in carried})
    elif carried:
        gain = facts.memory.gain_if_smaller({r.buffer: r.bytes for r in rows if r not in carried})
    yield Finding(
        "residuals",
        f"{percent(min(1.0, total / peak))} of the peak is what loops store for the backward"
        f" pass: {size(total)}",
        f"{len(rows):,} stacks; the largest is {first.shape.dense_text} ({size(first.bytes)})"
        + (", what each trip is given of the one before" if first in carried else ""),
        _BLOCKS
        if are_carried
        else "rematerialise the largest (jax.checkpoint around the loop's body): what is stored is"
        " what a policy names, in the sharding it has there",
        facts.peak_share(gain) * limits.RESIDUALS_WEIGHT,
        bytes=gain,
        bytes_of="peak memory",
        instructions=tuple(r.stored for r in rows if r.stored is not None),
        **at,
        changes=()
        if are_carried
        else tuple(
            {"remat": {f: policy}} for f in own_function(at["frame"]) for policy in _POLICIES
        ),
    )


_BLOCKS = (
    "a checkpoint around the loop's body keeps that too: make it two loops, one over blocks of"
    " trips and one over the trips of a block, with jax.checkpoint around the block, so that only"
    " what each block is given is kept"
)


def _is_carried(row: Residual) -> bool:
    """Whether each slice of a stack is what the loop carries into that trip."""
    body = dict(row.writer.instruction.called).get("body")
    if body is None or body.root is None:
        return False
    same = opcodes.SAME_NUMBERS | opcodes.FUSIONS
    for carry in row.writer.carries:
        held = Position(body.root, (carry.index,))
        update = walk.source(held, same, inside_fusions=True)
        if carry.buffer != row.buffer or update.instruction.opcode != "dynamic-update-slice":
            continue
        value = Position(update.instruction.operands[1], (), update.calls)
        given = walk.source(value, same | opcodes.REPEATED, inside_fusions=True)
        return given.instruction is body.parameters[0] and bool(given.element)
    return False


def _by_blocks(row: Residual) -> float:
    """The part of a stack that two loops of as many trips each need not keep: n - 2 √n of n."""
    return max(0.0, 1 - 2 / math.sqrt(row.writer.trips or 1))


def _is_one_loop(facts: Facts) -> bool:
    """Whether a single loop runs again, once: of several layers with one each a checkpoint keeps
    those of one layer at a time."""
    loops = {
        r.writer.instruction for r in facts.memory.residuals if r.writer.phase == "rematerialised"
    }
    return len(loops) == 1 and all(i.computation.is_entry for i in loops)


def _around_a_loop(facts: Facts, rows: list[Residual], gain: int) -> Finding:
    """Stacks that a loop of the forward pass stores when it runs again for the backward pass."""
    first = rows[0]
    at = facts.at(first.stored)
    return Finding(
        "residuals",
        f"A checkpoint around a whole loop saves no memory: {size(sum(r.bytes for r in rows))} at"
        " the peak are what all trips computed again",
        f"{len(rows):,} stacks; the largest is {first.shape.dense_text} ({size(first.bytes)}): the"
        " loop runs again before its backward pass, and keeps what that needs of every trip",
        "take jax.checkpoint from around the loop and put it around the loop's body, which then"
        " computes one trip at a time again",
        facts.peak_share(gain),
        bytes=gain,
        bytes_of="peak memory",
        instructions=tuple(r.stored for r in rows if r.stored is not None),
        **at,
        changes=tuple({"remat": {f: None}} for f in own_function(at["frame"])),
    )


def _slower_than_again(facts: Facts, chip: Hardware, rows: list[Residual]) -> Iterator[Finding]:
    """Stacks that take longer to write and to read than to compute again."""
    seconds = facts.seconds
    if seconds is None or not facts.total_seconds:
        return
    gains: list[tuple[float, list[Residual]]] = []
    for loop in {id(r.writer): r.writer for r in rows}.values():
        body = dict(loop.instruction.called).get("body")
        mine = [r for r in rows if r.writer is loop]
        if body is None or loop.trips is None:
            continue
        # a checkpoint around the body keeps what each trip is given
        given = sum(c.bytes for c in loop.carries if c.role == "updated") * loop.trips
        stored = sum(r.bytes for r in mine)
        once = sum(float(seconds[i.index]) for i in work_of(facts, body))
        again = max(0.0, once - stored / chip.memory_bandwidth)
        gain = 2 * (stored - given) / chip.memory_bandwidth - again
        if gain > 0:
            gains.append((gain, mine))
    gain = sum(g for g, _ in gains)
    share = gain / facts.total_seconds
    if share < limits.STORED_SLOWER_SHARE:
        return
    stacks = sorted((r for _, mine in gains for r in mine), key=lambda r: -r.bytes)
    first = stacks[0]
    at = facts.at(first.stored)
    yield Finding(
        "residuals",
        f"Storing values of a loop for the backward pass takes longer than to compute them again:"
        f" {size(sum(r.bytes for r in stacks))}",
        f"{len(stacks):,} stacks are written and read again; the largest is"
        f" {first.shape.dense_text} ({size(first.bytes)})",
        "rematerialise them (jax.checkpoint around the loop's body): what is stored is what a"
        " policy names, in the sharding it has there",
        share,
        seconds=gain,
        instructions=tuple(r.stored for r in stacks if r.stored is not None),
        **at,
        changes=tuple(
            {"remat": {f: policy}} for f in own_function(at["frame"]) for policy in _POLICIES
        ),
    )


# What a checkpoint around a loop's body may save: nothing, or products.
_POLICIES = (None, "dots_with_no_batch_dims_saveable")


def _at_peak(facts: Facts) -> list[Residual]:
    """Stacks of derivatives that the device's memory holds at the peak, largest first."""
    memory = facts.memory
    if not memory.residuals or not len(memory.schedule):
        return []
    held = set(memory.liveness.live_at(memory.peak_point, memory.main_spaces).tolist())
    rows = {r.buffer: r for r in memory.residuals if r.buffer in held and r.is_for_backward}
    return sorted(rows.values(), key=lambda r: -r.bytes)


def stored_larger(facts: Facts) -> Iterator[Finding]:
    """Stacks larger than what each slice was made from: gathered, repeated or widened first.

    A policy that names the sharded value may store the gathered one, where the partitioner
    moved the gather above the name.
    """
    for row in _at_peak(facts):
        found = _smaller_source(facts, row)
        if found is None:
            continue
        how, source, times = found
        saved = facts.memory.gain_if_smaller({row.buffer: row.bytes * (1 - 1 / times)})
        if saved < max(limits.STORED_LARGER_SHARE * facts.memory.peak_bytes, facts.scarce_bytes):
            continue
        yield Finding(
            "stored-larger",
            f"The backward pass gets {row.shape.dense_text} ({size(row.bytes)}), stored"
            f" {_times(times)} times the size of what it is made from",
            f"each slice is {how} before it is stored: %{source.name}"
            f" {'is' if how == 'repeated' else 'makes it from'} {_from(source)}",
            _ADVICE[how] if how != "repeated" or _is_multiplied(row) else "",
            facts.peak_share(saved),
            bytes=saved,
            bytes_of="peak memory",
            instructions=(source,),
            **facts.at(row.stored),
        )


def offloads_nothing(facts: Facts) -> Iterator[Finding]:
    """A policy that would offload values by name, where none of them is."""
    rows = [r for r in facts.target.unmet_names if r.how == "offload" and r.why != "unnamed"]
    if not rows:
        return
    first = next((r for r in rows if r.why == "handed on"), rows[0])
    # a CPU has no memory of a host beside its own
    stacks = _of_carries(facts) if first.why == "handed on" and not facts.made_for_cpu else []
    gain = facts.memory.gain_if_smaller({r.buffer: r.bytes for r in stacks}) if stacks else 0
    shown = ", ".join(f"`{r.name}`" for r in rows[:3])
    held = f": {size(sum(r.bytes for r in stacks))} stay on the device" if stacks else ""
    yield Finding(
        "offloads-nothing",
        f"A checkpoint policy would offload {shown} to the host, and nothing is offloaded",
        f"`{first.name}` {_NOT_OFFLOADED[first.why]}{held}",
        "name the value where the checkpointed function takes it: x = checkpoint_name(x, …) in its"
        " first line, and offload that name"
        if gain
        else "",
        # somebody counts on it, whatever is gained
        max(limits.WORTH_SAYING, facts.peak_share(gain)),
        None,
        gain or None,
        "peak memory" if gain else "",
        tuple(r.stored for r in stacks if r.stored is not None),
        first.frame,
    )


_NOT_OFFLOADED = {
    "handed on": "is what the checkpointed function returns; the next one keeps it as its argument,"
    " which a checkpoint keeps on the device whatever its policy",
    "unused": "is of no use for the backward pass, or it is made again from what is kept there",
}

# Names of a program or of a policy that a sentence lists.
_NAMES = 6


def names_nothing(facts: Facts) -> Iterator[Finding]:
    """A policy that keeps values by names which no value of the program has."""
    rows = [r for r in facts.target.unmet_names if r.why == "unnamed"]
    for nothing in (True, False):
        some = [r for r in rows if r.keeps_nothing == nothing]
        if some:
            yield _unnamed(some, nothing)


def _unnamed(rows: list[UnmetName], nothing: bool) -> Finding:
    first = rows[0]
    wanted = listed([f"`{r.name}`" for r in rows if r.name], _NAMES)
    known = listed([f"`{name}`" for name in first.known], _NAMES)
    hows = " or ".join(dict.fromkeys(r.how for r in rows))
    if wanted:
        title = f"A checkpoint policy would {hows} {wanted}, and no value has "
        title += "that name" if len(rows) == 1 else "these names"
    else:
        title = "A checkpoint policy lists no name, and keeps nothing"
    has = f"the values of the program are named {known}" if known else "no value has a name at all"
    again = "; the policy keeps nothing that the checkpoint computes" if nothing and wanted else ""
    meant = [f"`{r.near}`" for r in rows if r.near]
    asked = f"; did you mean {listed(meant, _NAMES)}?" if meant else ""
    return Finding(
        "names-nothing",
        title,
        f"{has}{again}{asked}",
        "",
        limits.WORTH_SAYING,  # somebody counts on it, whatever is gained
        None,
        None,
        "",
        (),
        first.frame,
    )


def _of_carries(facts: Facts) -> list[Residual]:
    """The stack at the peak of what a loop carries; [] where several may be it."""
    found = []
    for r in _at_peak(facts):
        kept = r.slice_shape
        shape = r.writer.instruction.shape
        if kept is not None and any(
            s.element_type == kept.element_type and s.elements == kept.elements
            for s in shape.tuple_shapes
        ):
            found.append(r)
    return found if len(found) == 1 else []


def _times(n: float) -> str:
    return f"{n:,.0f}" if n >= 100 else f"{n:.3g}"


def _is_multiplied(row: Residual) -> bool:
    """Whether a loop that reads a stack multiplies its slices: a product can broadcast itself."""
    through = opcodes.SAME_NUMBERS | opcodes.SLICES | opcodes.FUSIONS | opcodes.BUNDLES
    for loop in row.readers:
        body = dict(loop.instruction.called).get("body")
        if body is None or not body.parameters:
            continue
        for carry in loop.carries:
            held = Position(body.parameters[0], (carry.index,))
            used = walk.uses(held, through, inside_fusions=True)
            if carry.buffer == row.buffer and any(
                u.instruction.opcode in opcodes.PRODUCTS for u in used
            ):
                return True
    return False


_ADVICE = {
    "gathered": "name the value before it is gathered in the checkpoint policy, or rematerialise"
    " the layer (jax.checkpoint), so that the shard is stored",
    "repeated": "store the value before it is repeated: let the operation broadcast instead (an"
    " einsum over groups of heads)",
    "widened": "",
}


def _smaller_source(facts: Facts, row: Residual) -> tuple[str, Instruction, float] | None:
    """How a stored slice grew, at which instruction, and how many times; None if it did not."""
    stored, kept = row.stored, row.slice_shape
    if stored is None or kept is None or not stored.shape.is_array:
        return None
    # Compared with what it was made from: fewer elements, or a narrower type.
    elements = max(1, stored.shape.elements)
    if kept.elements >= 2 * elements > 2:
        return "repeated", stored, kept.elements / elements
    at = stored.operands[0] if stored.opcode.endswith("-done") and stored.operands else stored
    if kind_of(at.opcode).gathers and len(at.operands) == 1:
        given = at.operands[0].shape
        if given.is_array and given.elements and stored.shape.elements >= 2 * given.elements:
            return "gathered", at, stored.shape.elements / given.elements
    narrow = _width(stored)
    if not facts.made_for_cpu and narrow and _bytes_each(row) >= 2 * narrow:
        return "widened", stored, _bytes_each(row) / narrow
    return None


def _width(i: Instruction) -> float:
    """Bytes per element of a float array; 0 for other types."""
    if i.shape.element_type[:1] not in ("f", "b") or not i.shape.elements:
        return 0.0
    return i.shape.byte_size / i.shape.elements


def _bytes_each(row: Residual) -> float:
    kept = row.slice_shape
    return kept.byte_size / kept.elements if kept is not None and kept.elements else 0.0


def _from(source: Instruction) -> str:
    shapes = [o.shape.dense_text for o in source.operands[:2] if o.shape.is_array]
    if kind_of(source.opcode).gathers and shapes:
        return shapes[0]
    return source.shape.dense_text
