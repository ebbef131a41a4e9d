"""Collectives in loops: sent again though nothing changed, or for the loop's own condition.

same in all trips   body:  gather(what every trip hands on)       once before the loop would do
                    body:  a loop: gather(slice of what every trip hands on)       …, for all slices
ends the loop       body:  go_on = reduce(any row is left)        cond:  go_on
read in a loop      gather, then a loop whose trips all read it   it is one transfer for them all
taken by trips      gather along the dimension that a loop goes along, of which a trip takes a part
"""

from __future__ import annotations

from collections.abc import Iterator

from ...hlo import Computation, Instruction, opcodes, walk
from ...hlo.collective_kinds import kind_of
from ...hlo.walk import Position
from ..comms.collective import Collective
from . import limits
from .facts import Facts
from .whole_operations import ints

_SAME = opcodes.PART_OF_ONE | opcodes.FUSIONS | opcodes.LOOPS | opcodes.CALLS


def same_in_all_trips(facts: Facts, row: Collective) -> list[Instruction]:
    """Arrays that a loop gathers in each trip, whole or in slices, and no trip changes; [] where
    one of them is another in each trip."""
    given = row.instruction.operands
    if not kind_of(row.kind).gathers or row.executions is None:
        return []
    runs = facts.cost.execution.runs
    found = []
    for operand in given:
        at = walk.source(operand, _SAME, inside_fusions=True).instruction
        # what a device computes by its own number is another array in each trip, or none
        if not at.shape.is_array or at.opcode in opcodes.LITERALS:
            return []
        whole = runs[at.computation.index] * at.shape.elements
        if whole * 2 > row.executions * operand.shape.elements:
            return []
        found.append(at)
    return found


def fits_beside(facts: Facts, rows: list[Collective]) -> bool:
    """Whether the chip has room for what collectives make, of all trips of a loop where each is of
    another slice, beside all else."""
    chip = facts.cost.hardware
    if chip is None:
        return False
    more: dict[int, float] = {}
    for row in rows:
        whole = same_in_all_trips(facts, row)
        given = sum(o.shape.elements for o in row.instruction.operands)
        slices = sum(i.shape.elements for i in whole) / given if whole else 1
        more[whole[0].index if whole else row.instruction.index] = row.payload_bytes * slices
    return facts.memory.peak_bytes + sum(more.values()) <= limits.FILLED_SHARE * chip.memory_bytes


def is_read_in_a_loop(facts: Facts, results: Iterator[Position], row: Collective) -> bool:
    """Whether loops read the result of a collective that runs before them, in each trip."""
    runs = facts.cost.execution.runs
    own = runs[row.anchor.computation.index]
    through = opcodes.SAME_NUMBERS | opcodes.FUSIONS | opcodes.LOOPS | opcodes.CALLS
    return any(
        runs[_computation(use.instruction).index] > own
        for result in results
        for use in walk.uses(result, through, inside_fusions=True, reach=limits.CAUSE_REACH)
    )


def is_taken_by_trips(facts: Facts, results: Iterator[Position], row: Collective) -> bool:
    """Whether a loop only takes another part of what is gathered in each trip, along the dimension
    that it is gathered along: a stack of layers that is sharded by layers."""
    along = ints(row.instruction.attribute("dimensions"))
    if not kind_of(row.kind).gathers or len(along) != 1:
        return False
    runs = facts.cost.execution.runs
    through = opcodes.SAME_NUMBERS | opcodes.FUSIONS | opcodes.LOOPS | opcodes.CALLS
    taken = False
    for result in results:
        shape = result.instruction.shape
        whole = shape.tuple_shapes[result.element[0]] if result.element else shape
        for use in walk.uses(result, through, inside_fusions=True, reach=limits.CAUSE_REACH):
            i = use.instruction
            if i.opcode in opcodes.BUNDLES:
                continue
            if i.opcode != "dynamic-slice" or use.operand or runs[_computation(i).index] < 2:
                return False
            had, part = i.operands[0].shape.dimensions, i.shape.dimensions
            if had != whole.dimensions or part[along[0]] == had[along[0]]:
                return False
            taken = True
    return taken


def _computation(i: Instruction) -> Computation:
    """The computation that runs it: of what is fused, the fusion's."""
    while True:
        sites = [s for s in i.module.call_sites(i.computation) if s.opcode == "fusion"]
        if len(sites) != 1:
            return i.computation
        i = sites[0]


def ends_loop(facts: Facts, results: Iterator[Position]) -> Instruction | None:
    """The loop of which a result says whether it goes on; None if it is for something else."""
    through = opcodes.SAME_NUMBERS | opcodes.FUSIONS | opcodes.ELEMENTWISE
    found: Instruction | None = None
    for result in results:
        body = result.instruction.computation
        loops = [s for s in facts.module.call_sites(body) if s.opcode == "while"]
        if len(loops) != 1 or not result.instruction.shape.is_array:
            return None
        condition = dict(loops[0].called).get("condition")
        if condition is body:
            found = loops[0]
            continue
        held = walk.forward(result, through, inside_fusions=True, reach=limits.CAUSE_REACH)
        into = {p.element[0] for p in held if p.instruction is body.root and p.element}
        if not into or condition is None or not _asks(condition, into):
            return None
        found = loops[0]
    return found


def _asks(condition: Computation, elements: set[int]) -> bool:
    """Whether a loop's condition depends on these of the elements that it carries."""
    if condition.root is None or not condition.parameters:
        return False
    way = walk.back(
        condition.root, opcodes.ANYTHING - opcodes.LOOPS, inside_fusions=True, dependencies=True
    )
    return any(
        p.instruction is condition.parameters[0] and p.element and p.element[0] in elements
        for p in way
    )


def is_alone_in(facts: Facts, loop: Instruction, row: Collective) -> bool:
    """Whether no other collective runs in a loop, at any depth."""
    inside: set[Computation] = set()
    todo = list(loop.called_computations)
    while todo:
        c = todo.pop()
        if c not in inside:
            inside.add(c)
            todo += [k for i in c.instructions for k in i.called_computations]
    return all(
        other.index == row.index or other.anchor.computation not in inside
        for other in facts.collectives
    )
