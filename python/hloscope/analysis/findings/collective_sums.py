"""Sums over devices in a type that is narrower than what becomes of them."""

from __future__ import annotations

from collections.abc import Iterator

from ...hlo import Instruction, opcodes, walk
from ...hlo.collective_kinds import kind_of
from ..comms.collective import Collective
from ..text.units import size
from . import limits
from .collective_facts import over, sent
from .collective_purposes import For, purpose, results_of
from .facts import Facts
from .finding import Finding, names

_NARROW = {"bf16": 8, "f16": 11, "f8e4m3fn": 4, "f8e5m2": 3}  # bits of a mantissa
_WAY = (opcodes.SAME_NUMBERS | opcodes.MOVES | opcodes.FUSIONS | opcodes.LOOPS) - {"convert"}


def narrow_sums(facts: Facts) -> Iterator[Finding]:
    """Gradients that devices sum in bf16, and that are converted to a wider type afterwards."""
    rows: list[Collective] = []
    widened: list[Instruction] = []
    for row in facts.collectives:
        types = {s.element_type for o in row.instruction.operands for s in o.shape.leaves()}
        if not kind_of(row.kind).reduces or not types or not types <= set(_NARROW):
            continue
        wider = _widened(row)
        if wider is not None and purpose(facts, row).what is For.GRADIENTS:
            rows.append(row)
            widened.append(wider)
    wire = sent(rows)
    least = limits.TRIFLING_WIRE_SHARE * facts.collectives.total.wire_bytes
    if not rows or (wire is not None and wire < least):
        return
    order = sorted(range(len(rows)), key=lambda n: -rows[n].payload_bytes)
    first, convert = rows[order[0]], widened[order[0]]
    dtype = first.instruction.operands[0].shape.element_type
    often = [row.executions or 1 for row in rows]
    many = f"{sum(often):,} sums" if sum(often) > 1 else "one sum"
    total = sum(row.payload_bytes * n for row, n in zip(rows, often, strict=True))
    over_each: dict[str, list[Instruction]] = {}
    for n in order:
        over_each.setdefault(over(rows[n]), []).append(rows[n].instruction)
    which = " and ".join(f"{names(them)} {devices}" for devices, them in over_each.items())
    sizes = sorted({row.group_size for row in rows})
    devices = f"{sizes[0]:,}" if len(sizes) == 1 else f"{sizes[0]:,} to {sizes[-1]:,}"
    yield Finding(
        "narrow-sums",
        f"Gradients are summed over {devices} devices in {dtype}, and converted to"
        f" {convert.shape.element_type} afterwards: {size(total)} in {many}",
        f"{which}: each partial sum is rounded"
        f" to the {_NARROW[str(dtype)]} bits of {dtype}, and %{convert.name} widens the result;"
        f" what makes the gradient gives {dtype}, such as a product of what was cast first, or one"
        " with preferred_element_type."
        " It halves the bytes on the wire, and costs precision that grows with the devices",
        "",
        limits.WORTH_SAYING,
        bytes=wire,
        bytes_of="wire",
        instructions=tuple(rows[n].instruction for n in order),
        **facts.at(first.instruction),
    )


def _widened(row: Collective) -> Instruction | None:
    """The first conversion of a sum to a wider type, if nothing else is done with it before."""
    found: Instruction | None = None
    for result in results_of(row):
        for use in walk.uses(result, _WAY, inside_fusions=True, reach=limits.CAUSE_REACH):
            i = use.instruction
            if i.opcode in opcodes.BUNDLES:
                continue
            before = str(use.position.instruction.shape.element_type)
            is_wider = i.opcode == "convert" and i.shape.element_type in ("f32", "f64")
            if not is_wider or before not in _NARROW or not _stays_wide(i):
                return None
            found = found or i
    return found


def _stays_wide(convert: Instruction) -> bool:
    """Whether what is computed in the wider type is kept in it: a chip without arithmetic in bf16
    widens for one operation, and rounds its result again."""
    through = opcodes.ELEMENTWISE | opcodes.SAME_ORDER | opcodes.FUSIONS | {"select"}
    uses = walk.uses(convert, through, inside_fusions=True, reach=limits.CAUSE_REACH)
    rounded = [
        u.instruction.opcode == "convert" and u.instruction.shape.element_type in _NARROW
        for u in uses
        if u.instruction.opcode not in opcodes.BUNDLES
    ]
    return not rounded or not all(rounded)
