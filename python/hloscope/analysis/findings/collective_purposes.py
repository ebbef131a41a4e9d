"""What a collective is for: found by following what it moves, never by its kind alone.

operand  ◀── back to what made it: a product with weights, of activations, a reduction, a lookup
result   ──▶ forth to what becomes of it: added up or stacked by a loop, returned, updated
why      who asked for the sharding: the person's constraint, the step's output, an operation

sum     ACCUMULATED  a loop only adds it to what it carries
        GRADIENTS    of parameters, summed over the parts of the batch
        ACTIVATIONS  partial sums of a product with weights that are sharded
        PRODUCTS     partial sums of another product
        LOOKUP       rows of a table that is sharded by rows
        SCATTERED    what each device scatters of rows that are sharded, such as a graph's edges
        REDUCTION    a reduction over a sharded dimension
        STATISTICS   such a reduction, with which the backward pass goes on: batch normalisation
        JOINED       parts put together: a gather that XLA wrote as a sum
        LOOP_END     whether any device has something left to do in a loop
gather  BY_TRIP      an array that is sharded along the dimension that a loop goes along
        REGATHERED   an array that is the same in all trips of the loop that gathers it
        WEIGHTS      parameters that are stored in shards (FSDP)
        CUT          parameters that each device is given whole, cut and gathered again
        TABLE        a table that is stored in shards, of which a lookup takes rows
        MULTIPLIED   activations that each device multiplies whole with its shard of weights
        ARGUMENT     another argument that is given in shards
        UPDATED      parameters or state that were updated in shards
        OUTPUT       a result that the step returns whole
any     CONSTRAINED  a constraint of the person wants another sharding
        REQUESTED    the program asks for it by name
        RESHARDED    an operation needs another sharding than its operand has; ``why`` names both
        WRITTEN      a part of a sharded dimension is written at places that the program fixes
        PIECES       equal pieces of a sharded dimension, each of which is sharded along it again
        ALONG        an operation goes along a dimension that is sharded
        INSERTED     the partitioner put it in, and which operation needs it is not known
        UNKNOWN      anything else
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Any

from ...hlo import Instruction, Module, Shape, Target, opcodes, walk
from ...hlo.collective_kinds import KINDS, kind_of
from ...hlo.opcodes import Effect
from ...hlo.shape import parse_shape
from ...hlo.texts.places import short_line
from ...hlo.walk import Position
from ..base.lines.frames import own_line
from ..base.operands import ONE_ARRAY
from ..base.phases.names import is_update
from ..base.phases.phases import BACKWARD, phases
from ..base.table import per_devices
from ..comms.collective import Collective
from ..why.cards import reasons
from . import limits
from .collective_loops import ends_loop, is_taken_by_trips, same_in_all_trips
from .facts import Facts
from .whole_operations import WHOLE, dimensions_of, name_of

if TYPE_CHECKING:
    from ..why.provenance_card import Why
    from ..why.provenance_origins import AxisOrigin


class For(Enum):
    """What a collective is for."""

    ACCUMULATED = "accumulated"
    GRADIENTS = "gradients"
    ACTIVATIONS = "activations"
    PRODUCTS = "products"
    LOOKUP = "lookup"
    SCATTERED = "scattered"
    REDUCTION = "reduction"
    STATISTICS = "statistics"
    JOINED = "joined"
    LOOP_END = "loop end"
    BY_TRIP = "by trip"
    REGATHERED = "regathered"
    WEIGHTS = "weights"
    CUT = "cut"
    TABLE = "table"
    MULTIPLIED = "multiplied"
    ARGUMENT = "argument"
    UPDATED = "updated"
    OUTPUT = "output"
    CONSTRAINED = "constrained"
    REQUESTED = "requested"
    DERIVED = "derived"
    RESHARDED = "resharded"
    WRITTEN = "written"
    PIECES = "pieces"
    ALONG = "along"
    INSERTED = "inserted"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Purpose:
    """What one collective is for; ``of`` names the weights or the line, ``is_stacked``: a loop
    keeps each trip's in a place of its own."""

    what: For
    of: str = ""
    is_stacked: bool = False
    also: tuple[str, ...] = ()  # the weights of the other arrays of a combined one


@per_devices
def _known(module: Module, target: Target) -> dict[int, Purpose]:
    """The purposes that were found; the same on every chip."""
    return {}


def purpose(facts: Facts, row: Collective) -> Purpose:
    """What a collective is for; ``For.UNKNOWN`` where data flow does not show it."""
    known = _known(facts.module, facts.target)
    if row.index not in known:
        known[row.index] = _purpose(facts, row)
    return known[row.index]


def _purpose(facts: Facts, row: Collective) -> Purpose:
    kind = kind_of(row.kind)
    if kind.reduces:
        found = _of_sum(facts, row)
    elif kind.gathers:
        found = _of_gather(facts, row)
    else:
        found = Purpose(For.UNKNOWN)
    if found.what in (For.UNKNOWN, For.JOINED) and row.inserted is False:
        return _requested(row)
    if found.what in (For.UNKNOWN, For.JOINED):
        found = _by_why(facts, row) or found
    if found.what is For.UNKNOWN and kind.exchanges:
        found = _along(facts, row) or found
    if found.what is For.UNKNOWN and row.inserted and not kind.reduces:
        return Purpose(For.INSERTED, _unknown(facts, row))
    return found


def _unknown(facts: Facts, row: Collective) -> str:
    """Why nobody knows what a collective of the partitioner is for."""
    card = reasons(facts.module, facts.target)[row.index]
    if card is None:
        return "a dump lacks the program before partitioning, which hs.capture of the function has"
    return card.unknown or "the program before partitioning does not say"


def _along(facts: Facts, row: Collective) -> Purpose | None:
    """An exchange before or after an operation whose own dimension is sharded outside it."""
    after = [i for r in results_of(row) for i in _ends(r)]
    before = [walk.source(o, _MOVED, inside_fusions=True).instruction for o in _operands(row)]
    card = reasons(facts.module, facts.target)[row.index]
    for operations in (after, before):
        if len(set(operations)) != 1 or operations[0].opcode not in WHOLE:
            continue
        i = operations[0]
        shape = i.operands[0].shape if i.operands else i.shape
        if not shape.is_array:
            continue
        along = dimensions_of(i, len(shape.dimensions)) or set()
        had = _sharded(card.had) if card is not None and card.opcode == i.opcode else []
        cut = {d for d, axes in enumerate(had) if axes != "None"}
        parts = _cut_before(row, shape.dimensions) if operations is after else set()
        for d in sorted(along & (cut if len(had) == len(shape.dimensions) else parts)):
            return Purpose(
                For.ALONG,
                f"{name_of(i)} goes along dimension {d}, which is sharded: it is cut along another"
                " dimension before, and put back afterwards",
            )
    return None


_MOVED = opcodes.MOVES | opcodes.FUSIONS | opcodes.BUNDLES


def _ends(value: Position) -> list[Instruction]:
    uses = walk.uses(value, _MOVED, inside_fusions=True, reach=limits.CAUSE_REACH)
    return [use.instruction for use in uses]


def _sharded(spec: str) -> list[str]:
    """What each dimension is cut over: ``["None", "'x'"]`` of ``P(None, 'x')``."""
    return _AXES.findall(spec.partition("P(")[2].removesuffix(")"))


def _cut_before(row: Collective, whole: Sequence[int]) -> set[int]:
    """The dimensions of ``whole`` of which each device had a part before an exchange, by shapes."""
    found: set[int] = set()
    for o in _operands(row):
        for p in walk.back(o, opcodes.SAME_ORDER):
            had = p.instruction.shape.dimensions if p.instruction.shape.is_array else ()
            if len(had) == len(whole) and math.prod(had) == math.prod(whole):
                found |= {
                    d for d, n in enumerate(whole) if n == had[d] * row.group_size and n > had[d]
                }
    return found


def _requested(row: Collective, of: str = "") -> Purpose:
    return Purpose(For.DERIVED if row.written_by == "autodiff" else For.REQUESTED, of)


# -- sums -----------------------------------------------------------------------------------------

# What makes a new value of many: the walk back from a sum ends there.
_MAKES = (
    opcodes.PRODUCTS | opcodes.REDUCTIONS | opcodes.COMMUNICATION | opcodes.RANDOM
    | opcodes.that(Effect.INDEXES, Effect.MIXES, Effect.CALLS_LIBRARY)
)  # fmt: skip
_ELEMENTWISE = opcodes.ELEMENTWISE | {"select"}
_WITHIN = opcodes.MOVES | opcodes.FUSIONS
# A sum over one axis, cut by device and summed over another, is one sum.
_SUMMED_ON = opcodes.SLICES | opcodes.with_halves(*(k.name for k in KINDS.values() if k.reduces))
_KEPT = opcodes.SAME_NUMBERS | opcodes.FUSIONS | opcodes.LOOPS | {"call"}


def _of_sum(facts: Facts, row: Collective) -> Purpose:
    if is_joined(row):
        return Purpose(For.JOINED)
    results = list(results_of(row))
    if row.inserted is not False and ends_loop(facts, iter(results)) is not None:
        return Purpose(For.LOOP_END)
    if _mostly(results, _is_accumulated):
        return Purpose(For.ACCUMULATED)
    largest = max(_operands(row), key=lambda o: o.shape.byte_size, default=None)
    if largest is None:
        return Purpose(For.UNKNOWN)
    makers = _makers(largest)
    # where each device has one row of what is reduced, it has nothing to reduce by itself
    of_reduction = _is_of_reduction(row)
    products = [] if of_reduction else [m for m in makers if _multiplies(facts, m)]
    weights = "" if of_reduction else _factors(facts, largest)
    if row.inserted is False and not _is_gradient(facts, row, makers, results):
        # What is contracted in a product says nothing about why a program sums it.
        return _requested(row, weights if _is_product(facts, largest) else "")
    if weights:
        given = sorted(_operands(row), key=lambda o: -o.shape.byte_size)
        factors = [_factors(facts, o) for o in given]
        sizes = [o.shape.byte_size for o in given]
        # with gradients of many parameters the partial sums of one product may be combined
        such = sum(n for n, of in zip(sizes, factors, strict=True) if of)
        if 2 * such > sum(sizes):
            return Purpose(For.ACTIVATIONS, weights, also=tuple(factors[: _NAMED + 1]))
    are_reduced = of_reduction or (
        bool(makers) and all(m.opcode in opcodes.REDUCTIONS for m in makers)
    )
    if _is_gradient(facts, row, makers, results):
        if are_reduced and _mostly(results, partial(_goes_on, facts)):
            return Purpose(For.STATISTICS)
        return Purpose(For.GRADIENTS, is_stacked=_mostly(results, _is_stacked))
    if products and len(products) == len(makers):
        return Purpose(For.PRODUCTS)
    if makers and all(m.opcode == "gather" for m in makers):
        return Purpose(For.LOOKUP, _weights(facts, makers[0].operands[0]))
    if makers and all(m.opcode == "scatter" for m in makers):
        return Purpose(For.SCATTERED)
    if are_reduced:
        return Purpose(For.REDUCTION)
    return Purpose(For.UNKNOWN)


_REDUCTION = re.compile(r"(?:^|/)reduce_(?!scatter|window|precision)\w+$")


def _is_of_reduction(row: Collective) -> bool:
    """Whether the partitioner made it of reductions of the program, such as ``x.sum(0)``."""
    names = [row.op_name]
    if row.is_combined:  # it has the name of one of them
        names += [o.op_name for o in row.instruction.operands if o.op_name]
    return row.inserted is not False and all(map(_REDUCTION.search, names))


_NAMED = 3  # weights, in a sentence


def _factors(facts: Facts, value: Instruction) -> str:
    """The weights that a value is the product with; "" if there are none."""
    products = (m for m in _makers(value) if _multiplies(facts, m))
    return next(filter(None, (_weights(facts, o) for p in products for o in p.operands[:2])), "")


def _mostly(results: list[Position], is_so: Callable[[Position], bool]) -> bool:
    """Whether nearly all bytes of results are so: with gradients a loss or a norm is summed."""
    sizes = [_shape(p).byte_size for p in results]
    such = sum(n for n, p in zip(sizes, results, strict=True) if is_so(p))
    return bool(results) and such >= limits.MOSTLY * sum(sizes) > 0


def _shape(value: Position) -> Shape:
    shape = value.instruction.shape
    return shape.tuple_shapes[value.element[0]] if value.element else shape


def _operands(row: Collective) -> list[Instruction]:
    """What is summed: the operands of a collective, asynchronous or combined."""
    return list(row.instruction.operands)


def results_of(row: Collective) -> Iterator[Position]:
    start = row.instruction
    done = next((u for u in start.users if u.opcode.endswith("-done")), start)
    if row.anchor is not start:  # in fusions that TPU runs asynchronously: the last one has it
        last = max(m for m in row.members if _is_beside(row, m))
        done = start.module.instructions[last]
    if done.shape.is_tuple:
        yield from (Position(done, (k,)) for k in range(len(done.shape.tuple_shapes)))
    else:
        yield Position(done)


def _is_beside(row: Collective, member: int) -> bool:
    return row.anchor.module.instructions[member].computation is row.anchor.computation


def _makers(value: Instruction) -> list[Instruction]:
    """The nearest products, reductions, lookups and collectives that a value is made of."""
    ends = walk.sources(
        value, opcodes.ANYTHING - _MAKES, inside_fusions=True, reach=limits.CAUSE_REACH
    )
    return [p.instruction for p in ends if p.instruction.opcode in _MAKES]


def _multiplies(facts: Facts, i: Instruction) -> bool:
    return i.opcode in opcodes.PRODUCTS or bool(facts.cost.work.matmul_flops[i.index] > 0)


def _is_product(facts: Facts, value: Instruction) -> bool:
    """Whether a value is a product as it was made."""
    same = opcodes.SAME_NUMBERS | opcodes.FUSIONS
    return _multiplies(facts, walk.source(value, same, inside_fusions=True).instruction)


def multiplies_weights(facts: Facts, value: Instruction) -> bool:
    """Whether a value is made of products with parameters, as partial sums of activations are."""
    products = [m for m in _makers(value) if _multiplies(facts, m)]
    return bool(products) and all(any(_weights(facts, o) for o in m.operands[:2]) for m in products)


def is_of_weights(facts: Facts, value: Instruction) -> bool:
    """Whether a value is made of parameters and nothing else."""
    return bool(_weights(facts, value))


@per_devices
def _of_data(module: Module, target: Target) -> set[int]:
    """Instructions that are known to be made of data; what is made of them is too."""
    return set()


def _weights(facts: Facts, value: Instruction) -> str:
    """The parameter that a value is made of, and nothing else; "" if there is data in it.

    Scalars, such as a learning rate or a loop's counter, are neither.
    """
    of_data = _of_data(facts.module, facts.target)
    value = _outside(value)
    if value.index not in of_data:
        name = _only_parameter(facts, value, of_data)
        if name is not None:
            return name
        of_data.add(value.index)
    return ""


def _only_parameter(facts: Facts, value: Instruction, of_data: set[int]) -> str | None:
    """The parameter of ``_weights``; None if there is data, or no end within reach."""
    met = False

    def is_open(at: Position) -> bool:
        nonlocal met
        met = met or (at.instruction.index in of_data and not at.calls)
        return not met

    name = ""
    for at in walk.sources(
        value,
        opcodes.ANYTHING,
        where=is_open,
        inside_fusions=True,
        dependencies=True,
        reach=limits.CAUSE_REACH,
    ):
        if met:
            return None
        i = at.instruction
        if i.opcode != "parameter" and not i.operands:  # constants, a buffer to write into
            continue
        if i.shape.is_array and i.shape.elements <= 1:
            continue
        if i.opcode != "parameter" or not i.computation.is_entry:
            return None
        role, argument = facts.role(i)
        if role != "parameter":
            return None
        name = name or argument
    return None if met else name


def _outside(value: Instruction) -> Instruction:
    """The operand that a parameter of a fusion is."""
    while value.opcode == "parameter":
        callers = value.module.call_sites(value.computation)
        number = value.parameter_number
        if len(callers) != 1 or callers[0].opcode != "fusion" or number is None:
            break
        value = callers[0].operands[number]
    return value


def _is_gradient(
    facts: Facts, row: Collective, makers: list[Instruction], results: list[Position]
) -> bool:
    """Whether what is summed is of the backward pass and becomes a result of the step, or is
    added to one, without being multiplied again."""
    entry = facts.module.entry
    if entry is None or entry.root is None:
        return False
    phase = phases(facts.module)
    late = any(int(phase[m.index]) >= BACKWARD for m in makers) or row.phase == "backward"
    if not late or not (phase == BACKWARD).any():
        return False
    through = _WITHIN | _ELEMENTWISE | opcodes.LOOPS | opcodes.RESHARDS | _SUMMED_ON | {"call"}
    for result in results:
        if result.instruction.shape.is_array and result.instruction.shape.elements <= 1:
            continue
        held = walk.forward(result, through, inside_fusions=True, reach=limits.CAUSE_REACH)
        if any(p.instruction is entry.root for p in held):
            return True
    return False


def _goes_on(facts: Facts, value: Position) -> bool:
    """Whether the backward pass goes on with a value, to products of layers before; in one trip."""
    phase = phases(facts.module)
    ahead = walk.forward(value, opcodes.ANYTHING - opcodes.LOOPS, inside_fusions=True)
    return any(
        int(phase[p.instruction.index]) == BACKWARD and _multiplies(facts, p.instruction)
        for p in ahead
    )


def _is_accumulated(value: Position) -> bool:
    """Whether a loop only adds a value to an element that it carries, which nothing else reads.

    What a loop inside it stacks first, such as gradients of layers, is added up so too, and the sum
    of several such, as of a tied embedding's.
    """
    # a reduce-scatter of padded parts is followed by an exchange of what lies at their edges
    kept = _KEPT | opcodes.MOVES | opcodes.UPDATES | opcodes.RESHARDS | opcodes.BUNDLES | _SUMMED_ON

    def through(i: Instruction) -> bool:
        is_end = i.opcode == "add" and any(_adds_to_carried(i, n) for n in (0, 1))
        return walk.acts_as(i) in kept or (i.opcode == "add" and not is_end)

    used = list(walk.uses(value, through, inside_fusions=True, reach=limits.CAUSE_REACH))
    return bool(used) and all(_adds_to_carried(u.instruction, u.operand) for u in used)


def _adds_to_carried(add: Instruction, number: int) -> bool:
    if add.opcode != "add" or len(add.operands) != 2:
        return False
    other = add.operands[1 - number]
    same = opcodes.PART_OF_ONE | opcodes.FUSIONS | {"concatenate"}  # TPU fetches it in pieces
    old = walk.source(other, same, inside_fusions=True)
    reader = add
    if old.instruction.opcode == "select" and len(old.instruction.users) == 1:
        begun, rest = sorted(old.instruction.operands[1:3], key=_is_constant, reverse=True)
        if _is_constant(begun):  # zeros in the first trip, else what is carried
            reader = old.instruction
            old = walk.source(Position(rest, (), old.calls), same, inside_fusions=True)
    carried = old.instruction
    if carried.opcode != "parameter" or not old.element or carried.computation.is_entry:
        return False
    body = carried.computation
    if body.root is None or not any(s.opcode == "while" for s in body.module.call_sites(body)):
        return False
    new = walk.source(Position(body.root, old.element), same, inside_fusions=True).instruction
    if new is not add:
        return False
    # nothing else in the loop reads the sum so far
    readers = walk.uses(Position(carried, old.element), same, inside_fusions=True)
    return {u.instruction for u in readers} == {reader}


def is_only_stacked(value: Position, *, made_of_it: bool = False) -> bool:
    """Whether nothing is done with a value, or what elementwise operations make of it, but to write
    it into such a slot."""
    through = opcodes.SAME_NUMBERS | opcodes.FUSIONS | (_ELEMENTWISE if made_of_it else frozenset())
    used = list(walk.uses(value, through, inside_fusions=True))
    return bool(used) and all(
        u.instruction.opcode in opcodes.UPDATES and u.operand > 0 for u in used
    )


def _is_stacked(value: Position) -> bool:
    """Whether a value is written into a slot of an array that a loop carries."""
    through = opcodes.SAME_NUMBERS | opcodes.FUSIONS | _SUMMED_ON
    return any(
        u.instruction.opcode in opcodes.UPDATES and u.operand > 0
        for u in walk.uses(value, through, inside_fusions=True)
    )


# -- gathers that XLA wrote as sums ---------------------------------------------------------------


def is_joined(row: Collective) -> bool:
    """Whether a sum puts together what each device has of an array: of all others it has zeros."""
    return bool(row.instruction.operands) and all(map(_is_part_of_zeros, row.instruction.operands))


def _is_part_of_zeros(value: Instruction) -> bool:
    same = opcodes.SAME_NUMBERS | opcodes.FUSIONS
    at = walk.source(value, same, inside_fusions=True).instruction
    if at.opcode == "dynamic-update-slice":
        return _is_constant(at.operands[0]) and any(map(by_device, at.operands[2:]))
    if at.opcode == "select":
        a, b = at.operands[1:3]
        made = b if _is_constant(a) else a
        is_masked = (_is_constant(a) or _is_constant(b)) and by_device(at.operands[0])
        makers = _makers(made) if is_masked else []
        return is_masked and not any(m.opcode in _MAKES - opcodes.COMMUNICATION for m in makers)
    return False


def _is_constant(value: Instruction) -> bool:
    at = walk.source(value, opcodes.REPEATED | opcodes.FUSIONS, inside_fusions=True).instruction
    return at.opcode == "constant"


def by_device(value: Instruction) -> bool:
    """Whether a value is computed from the device's own number."""
    way = walk.back(value, opcodes.ANYTHING - opcodes.LOOPS, inside_fusions=True, dependencies=True)
    return any(p.instruction.opcode in opcodes.DEVICE_IDS for p in way)


# -- gathers --------------------------------------------------------------------------------------


def _of_gather(facts: Facts, row: Collective) -> Purpose:
    if row.inserted is False:
        return _requested(row)
    given = row.instruction.operands[0] if row.instruction.operands else None
    weights = _weights(facts, given) if given is not None else ""
    moved = row.moves.name if row.moves is not None else ""
    if is_taken_by_trips(facts, results_of(row), row):
        return Purpose(For.BY_TRIP, weights or moved)
    if same_in_all_trips(facts, row):
        return Purpose(For.REGATHERED, weights or moved)
    if weights and not _is_returned(facts, row):
        said = reasons(facts.module, facts.target)[row.index]
        origins = said.origins if said is not None else ()
        fixed = any(o.kind == "constraint" and not o.axis for o in origins)
        if facts.is_given_whole(weights):
            return Purpose(For.CUT, f"`{weights}`{_cut_by(origins)}")
        # Whole by a constraint of the person's, it is not the price of FSDP.
        for_what = For.TABLE if _is_looked_up(row) else For.WEIGHTS
        return (_by_why(facts, row) if fixed else None) or Purpose(for_what, weights)
    shard = _shard_multiplied_with(facts, row)
    if shard:
        return Purpose(For.MULTIPLIED, shard)
    card = _by_why(facts, row)
    if card is not None and card.what is not For.RESHARDED:
        return card
    if _is_returned(facts, row):
        return Purpose(For.UPDATED if is_update(row.phase) else For.OUTPUT)
    if row.moves is not None and row.moves.kind == "argument":
        return Purpose(For.ARGUMENT, row.moves.name)
    return card or Purpose(For.UNKNOWN)


def _cut_by(origins: Sequence[AxisOrigin]) -> str:
    """`` (the constraint at …)``: what cut an argument that each device is given whole."""
    cut = [o for o in origins if o.of == "operand" and o.kind == "constraint"]
    return _from(iter(cut))


def _is_looked_up(row: Collective) -> bool:
    """Whether all that is done with what is gathered is to take rows of it by index."""
    through = opcodes.SAME_NUMBERS | opcodes.FUSIONS
    uses = [
        use
        for result in results_of(row)
        for use in walk.uses(result, through, inside_fusions=True, reach=limits.CAUSE_REACH)
    ]
    return bool(uses) and all(u.instruction.opcode == "gather" and u.operand == 0 for u in uses)


def _shard_multiplied_with(facts: Facts, row: Collective) -> str:
    """The weights of which each device multiplies its shard with all that was gathered; ""."""
    through = opcodes.SAME_NUMBERS | opcodes.FUSIONS
    for result in results_of(row):
        for use in walk.uses(result, through, inside_fusions=True, reach=limits.CAUSE_REACH):
            product = use.instruction
            if not _multiplies(facts, product) or len(product.operands) != 2:
                continue
            other = product.operands[1 - use.operand]
            given = walk.source(other, ONE_ARRAY, inside_fusions=True).instruction
            if facts.is_cut_over(given, row):
                return facts.role(given)[1]
    return ""


def _is_returned(facts: Facts, row: Collective) -> bool:
    """Whether the step returns what is gathered, and uses it for nothing else."""
    entry = facts.module.entry
    if entry is None or entry.root is None:
        return False
    for result in results_of(row):
        held = [p.instruction for p in walk.forward(result, _KEPT, reach=limits.CAUSE_REACH)]
        if entry.root not in held or any(walk.uses(result, _KEPT | {"tuple"})):
            return False
    return True


def _by_why(facts: Facts, row: Collective) -> Purpose | None:
    """What ``why`` knows of it: the person's constraint, an output of the step."""
    card = reasons(facts.module, facts.target)[row.index]
    if card is None or card.unknown:
        return None
    if card.by_user:
        return _requested(row)
    if card.opcode == "output":
        return Purpose(For.UPDATED if is_update(row.phase) else For.OUTPUT)
    if card.opcode == "copy" and card.line:
        return Purpose(For.CONSTRAINED, f"{short_line(card.line)}{_called_from(card.callers)}")
    if card.had and card.needs and (not kind_of(row.kind).reduces or is_joined(row)):
        if kind_of(row.kind).exchanges and not _moves_axis(card):
            return None
        if is_written_into(card):
            return Purpose(For.WRITTEN)
        pieces = _pieces(facts, card) if not kind_of(row.kind).gathers else ""
        if pieces:
            return Purpose(For.PIECES, pieces)
        return Purpose(For.RESHARDED, _resharded(card))
    return None


def uneven_result(facts: Facts, rows: Sequence[Collective]) -> str:
    """Why a result cannot be returned in the parts in which it is: jit takes and returns even parts
    only. "" where it can, or is not known."""
    mesh = facts.target.mesh
    sizes = dict(zip(mesh.axis_names, mesh.axis_sizes, strict=True)) if mesh is not None else {}
    cards = (reasons(facts.module, facts.target)[row.index] for row in rows)
    for card in cards:
        if card is None or card.opcode != "output":
            continue
        had, dimensions = _sharded(card.had), parse_shape(card.shape).dimensions
        for n, axes in zip(dimensions, had, strict=False):
            parts = math.prod(sizes.get(axis, 1) for axis in _NAMES.findall(axes))
            if n % parts:
                return f"{n:,} is not divisible by {parts}"
    return ""


def is_written_into(card: Why) -> bool:
    """Whether a part of a sharded dimension is written at places that the program fixes."""
    return card.opcode == "scatter" and card.needs.startswith("all of it")


MASKED = (
    "write the part by a mask instead, which each device applies to its own rows:"
    " jnp.where(rows < n, new, x) with rows of jax.lax.broadcasted_iota; so, too, every other part"
    " of that array that the program writes before or after it"
)


def _pieces(facts: Facts, card: Why) -> str:
    """A split or a concatenation of equal pieces along a dimension that stays sharded; else ""."""
    before = facts.target.before_partitioning
    module = before() if before is not None and card.opcode in _PIECES else None
    had = _sharded(card.had)
    if module is None or had != _sharded(_needed(card)[1]):
        return ""
    for i in module.instructions:
        if i.opcode != card.opcode or i.op_name != card.op_name or not i.operands:
            continue
        whole, parts = i, i.operands
        if i.opcode in opcodes.SLICES:
            whole = i.operands[0]
            parts = tuple(u for u in whole.users if u.opcode == i.opcode)
            if _STRIDED.search(i.attribute("slice") or ""):
                continue
        if len({p.shape.dimensions for p in parts}) != 1:
            continue  # such as the two parts of a shift, or the blocks of a solver
        of_part = parts[0].shape.dimensions
        for d, (piece, size) in enumerate(zip(of_part, whole.shape.dimensions, strict=True)):
            if piece < size == piece * len(parts) and d < len(had) and had[d] != "None":
                of = f"{card.opcode} at {short_line(card.line)}" if card.line else card.opcode
                return (
                    f"dimension {d} of {whole.shape.dense_text} is sharded, {had[d]}, and so is"
                    f" each of the {len(parts)} pieces of {of}"
                    f"{_from(o for o in card.origins if o.of == 'operand')}"
                )
    return ""


_PIECES = opcodes.SLICES | {"concatenate"}
_STRIDED = re.compile(r"\[\d+:\d+:\d*[2-9]")  # every other element is no piece
_NEEDS = {
    "result": "makes its result as", "needed as": "needs it as", "carried as": "carries it as",
    "returned as": "returns it as",
}  # fmt: skip


def _resharded(card: Why) -> str:
    """What an operation has and what it needs, and where these shardings came from."""
    before = _from(o for o in card.origins if o.of == "operand")
    after = _from(o for o in card.origins if o.of != "operand")
    how, needs = _needed(card)
    at = f" at {short_line(card.line)}" if card.line else ""
    of = f"the {card.operand}" if card.operand.startswith("result of ") else f"`{card.operand}`"
    return (
        f"{card.opcode}{at} has {of} as {card.had}{before} and {needs}{after}{how and f', {how}'}"
    )


def _needed(card: Why) -> tuple[str, str]:
    """(how, what an operation needs or makes), of a card that may serve several: the first."""
    first, *rest = card.needs.split("; ")
    if first.startswith("all of it"):
        return "", f"needs {first}"
    for said in (first, *rest[:1]):
        for way, verb in _NEEDS.items():
            if said.startswith(f"{way} "):
                return ("" if said is first else first), f"{verb}{said.removeprefix(way)}"
    return "", f"needs {first}"


@dataclass(frozen=True)
class OwnSharding:
    """A value that has another sharding than its gradient, and what cuts the gradient so.

    ``value`` is a line, or an operation where that line has more values, "" of what only follows
    from another one; ``shown`` names it.
    """

    value: str | int
    spec: tuple[Any, ...]
    shown: str
    cut_by: str  # "a constraint", "the sharding of `params['w']`"
    price: int = 0  # bytes of weights that are gathered instead


def own_sharding(facts: Facts, row: Collective) -> OwnSharding | None:
    """A value whose gradient is cut otherwise than the value itself.

    y = f(x)                               cut as the weights make it
    constraint(g(y), P(…))                 cuts the gradient, too, back to y: it meets f(x) there

    y = f(x), cut by the batch             dy = dz @ w.T is cut by w's rows, which are stored in
    z = y @ w                              shards over the same devices (FSDP)
    """
    card = reasons(facts.module, facts.target)[row.index]
    if card is None or card.unknown or row.phase != "backward" or not card.line:
        return None
    if card.opcode not in opcodes.ELEMENTWISE:
        return None  # of others the dimensions are not those of the value
    sides = []
    for said, side in ((card.had, "operand"), (_needed(card)[1], "result")):
        origins = [o for o in card.origins if (o.of == "operand") == (side == "operand")]
        kinds = {o.kind for o in origins}
        kind = "constraint" if "constraint" in kinds else "argument"
        if kind not in kinds or kinds - {"argument", "constraint"}:
            return None
        sides.append((said, kind, {o.name for o in origins}))
    (had, one, foreign), (needs, other, own) = sides
    line = short_line(card.line)
    if {one, other} == {"argument", "constraint"}:
        spec = _spec(had if one == "argument" else needs)
        return OwnSharding(line, spec, f"the value of {line}", "a constraint") if spec else None
    by_weights = foreign <= facts.weights, own <= facts.weights
    if {one, other} != {"argument"} or by_weights[0] == by_weights[1]:
        return None
    cut_by = f"the sharding of `{min(foreign if by_weights[0] else own)}`"
    price = _weights_instead(row) if by_weights[0] else 0
    at = _expression(facts, card) if price else None
    if at is None:  # it follows from another one, if there is one
        return OwnSharding("", (), "", cut_by)
    frame, spec = own_line(at.frames), _spec(needs)
    of = facts.expression(frame) if frame is not None else ""
    shown = f"`{of}` at {line}" if of else f"the value of {line}"
    number = at.origins[0].operation if at.origins else at.name
    return OwnSharding(number, spec, shown, cut_by, price) if spec else None


def _spec(said: str) -> tuple[Any, ...] | None:
    """The PartitionSpec in a card's words; None of parts of axes, which have no name."""
    axes = said.partition("P(")[2]
    return ast.literal_eval(f"({axes.removesuffix(')')},)") if axes and ":" not in axes else None


def _weights_instead(row: Collective) -> int:
    """Bytes of the weights that what moves is a product with, all of them; 0 if it is none."""
    # XLA:CPU gives an all-to-all a piece for each device
    made = {walk.source(o, _MOVED, inside_fusions=True).instruction for o in _operands(row)}
    if any(i.opcode not in opcodes.PRODUCTS for i in made):
        return 0
    shards = (min(x.shape.byte_size for x in i.operands[:2]) for i in made)
    return sum(shards) * row.group_size


def _expression(facts: Facts, card: Why) -> Instruction | None:
    """What the forward pass made where the gradient in a card is that of: the same expression."""
    before = facts.target.before_partitioning
    module = before() if before is not None else None
    if module is None:
        return None
    its = (i for i in module.instructions if i.op_name == card.op_name and i.opcode == card.opcode)
    frame = next((own_line(i.frames) for i in its), None)
    if frame is None:
        return None
    return next(
        (
            i for i in facts.module.instructions
            if i.opcode == card.opcode and "transpose(" not in i.op_name
            and own_line(i.frames) == frame
        ),
        None,
    )  # fmt: skip


def _moves_axis(card: Why) -> bool:
    """Whether an axis is at another dimension after than before: what an all-to-all does."""
    specs = (s.partition("P(")[2].removesuffix(")") for s in (card.had, _needed(card)[1]))
    before, after = map(_AXES.findall, specs)
    return any(
        set(_NAMES.findall(a)) & set(_NAMES.findall(b))
        for n, a in enumerate(before)
        for m, b in enumerate(after)
        if n != m
    )


_AXES = re.compile(r"None|'[^']*'|\([^()]*\)")
_NAMES = re.compile(r"'([^':]*)")


def _from(origins: Iterator[AxisOrigin]) -> str:
    """`` (`x` is given so)``: who chose the axes of a sharding; "" where nobody is known."""
    said = []
    for o in origins:
        if o.kind == "constraint":
            at = f"{short_line(o.line)}{_called_from(o.stack[1:])}"
            said.append(f"{o.name or 'the constraint'} at {at}")
        elif o.kind == "argument":
            said.append(f"`{o.name}` is given so")
        elif o.kind == "output":
            whole = o.name == "the result"
            said.append(f"{o.name if whole else f'`{o.name}`'} is returned so")
    return f" ({', '.join(dict.fromkeys(said))})" if said else ""


def _called_from(callers: Sequence[str]) -> str:
    """A constraint is often in a helper, whose own line says little."""
    return f" called from {short_line(callers[0])}" if callers else ""


def is_scatter_of_program(facts: Facts, row: Collective) -> bool:
    """Whether the program, or its derivative, asks for a reduce-scatter, which XLA may write as a
    sum and a slice; or whether who asks for what is unknown."""
    card = reasons(facts.module, facts.target)[row.index]
    name = row.op_name or (card.op_name if card is not None else "")
    last = name.rpartition("/")[2]
    return not name or last.startswith(("reduce_scatter", "psum_scatter"))


# -- in words -------------------------------------------------------------------------------------


def words(rows: Sequence[Purpose]) -> tuple[str, str]:
    """(what they are for as a sentence, advice) of collectives for the same, "" if unknown."""
    first = rows[0]
    said, advice = _WORDS[first.what]
    if first.what is For.GRADIENTS and all(x.is_stacked for x in rows):
        said += "; the loop keeps those of each trip"
    known = list(dict.fromkeys(of for x in rows for of in (x.of, *x.also) if of))
    if first.what in (For.RESHARDED, For.PIECES, For.INSERTED, For.ALONG):
        more = " (of the longest)" if len(known) > 1 else ""
        said = f"{said.format(of=known[0])}{more}"
        return (said if first.what is For.RESHARDED else said[:1].upper() + said[1:]), advice
    shown = ", ".join(
        k if first.what in (For.CONSTRAINED, For.CUT) else f"`{k}`" for k in known[:_NAMED]
    )
    more = f" and {len(known) - _NAMED:,} more" if len(known) > _NAMED else ""
    if first.what in _ASKED and known:
        said += f", to sum products with {shown}{more}"
    said = said.format(of=f"{shown}{more}" if known else "weights")
    return said[:1].upper() + said[1:], advice


_ASKED = (For.REQUESTED, For.DERIVED)
_WORDS: dict[For, tuple[str, str]] = {
    For.ACCUMULATED: (
        "each trip of the loop sums over the devices and adds that to what it carries",
        "add up on each device, and sum over the devices once, after the loop (in jax.shard_map:"
        " psum after the scan instead of in it)",
    ),
    For.GRADIENTS: (
        "these are gradients of parameters, summed over the devices' parts of the batch: the price"
        " of data parallelism",
        "",
    ),
    For.ACTIVATIONS: (
        "these are partial sums of products with {of}, whose contracted dimension is sharded",
        "",
    ),
    For.PRODUCTS: (
        "these are partial sums of a product whose contracted dimension is sharded",
        "",
    ),
    For.LOOKUP: (
        "each device takes the rows that it holds of an array whose indexed dimension is sharded,"
        " and the sum puts them together",
        "",
    ),
    For.SCATTERED: (
        "each device adds up the rows that it holds, by index, and the sum puts together what all"
        " have",
        "",
    ),
    For.REDUCTION: ("a dimension that is reduced is sharded", ""),
    For.STATISTICS: (
        "sums over the whole batch that the backward pass goes on with, such as those of batch"
        " normalisation",
        "",
    ),
    For.JOINED: (
        "nothing is added up: the parts of all devices are put together, a gather that XLA wrote"
        " as a sum",
        "",
    ),
    For.LOOP_END: (
        "it says whether any device has rows left in a loop, so that each trip of all waits for it",
        "run the loop in jax.shard_map over these devices: each then goes on only while it has rows"
        " left",
    ),
    For.BY_TRIP: (
        "a loop takes a part of it in each trip, along the dimension that is sharded, for which all"
        " of it is gathered: {of}",
        "shard another dimension of it, along which the loop does not go",
    ),
    For.REGATHERED: (
        "gathered in each trip of a loop, though no trip changes it: {of}",
        "gather it once, before the loop: jax.lax.with_sharding_constraint to what a trip needs, of"
        " what the loop is given",
    ),
    For.WEIGHTS: (
        "stored in shards and gathered where they are used, the price of FSDP: {of}",
        "",
    ),
    For.CUT: (
        "each device is given all of it, keeps a part, and gathers all of it again: {of}",
        "",
    ),
    For.TABLE: (
        "stored in shards and gathered whole, though a lookup takes only some rows: {of}",
        "",
    ),
    For.ARGUMENT: ("given in shards and gathered where it is used: {of}", ""),
    For.MULTIPLIED: (
        "each device multiplies all of it with its shard of {of}, cut over the same devices",
        "",
    ),
    For.UPDATED: (
        "it is updated in shards and returned whole",
        "return it in the sharding in which it is updated (out_shardings), and take it so in the"
        " next step",
    ),
    For.OUTPUT: (
        "the step returns it whole",
        "return it sharded (out_shardings), where its reader can take its part",
    ),
    For.CONSTRAINED: (
        "a constraint asks for this sharding: {of}",
        "leave the axis in that constraint if what follows can work on parts",
    ),
    For.REQUESTED: ("the program asks for it by name", ""),
    For.DERIVED: ("autodiff asks for it, for the gradient of what the line says", ""),
    For.RESHARDED: ("{of}", ""),
    For.WRITTEN: (
        "a part of it is written at places that the program fixes, for which XLA gathers all of it",
        MASKED,
    ),
    For.PIECES: (
        "{of}",
        "give the pieces a dimension of their own, which is not sharded: a weight [d, 3, n] in"
        " place of [d, 3 · n], or one for each",
    ),
    For.ALONG: ("{of}", ""),
    For.INSERTED: ("the partitioner put it in; which operation needs it is unknown: {of}", ""),
    For.UNKNOWN: ("", ""),
}  # fmt: skip

__all__ = [
    "MASKED", "For", "Purpose", "by_device", "is_joined", "is_of_weights", "is_scatter_of_program",
    "is_written_into", "multiplies_weights", "purpose", "uneven_result", "words",
]  # fmt: skip
