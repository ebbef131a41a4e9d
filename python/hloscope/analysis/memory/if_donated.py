"""The peak as it would be if more arguments were donated.

    argument   █████ read ███┤
    result                   ├ written █████████     in the argument's memory: held once
    temporary          ├──────┤                      may be in the result's own memory now, and is
                                                     on the heap then: another peak may remain

Donors are paired with outputs as jax does (``jax._src.interpreters.mlir._set_up_aliases``): in
order, by type and shape on a device. An output that is written while its argument is still read is
a temporary then, copied into the argument at the end, as XLA's ``CopyInsertion`` does. The schedule
is taken to stay as it is. Where copies are inserted before there is a schedule, all that reads such
an argument reads a copy, which is made when the program begins: XLA:CPU runs first what waits for
nothing. From then on the argument's memory is free until the result is written there.

    argument   ███┤                   ├ written █████████
    copy          ├ read █████┤                                a temporary
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Collection, Iterator, Sequence
from itertools import chain

from ...hlo import Instruction, Module, Shape, opcodes, walk
from ...hlo.parts import Alias
from ...hlo.walk import Position
from .liveness.liveness import Liveness
from .liveness.simulate import CopiedFirst, with_donated
from .liveness.values import OUTPUT, leaf_span

_SAME = opcodes.SAME_ORDER | opcodes.BUNDLES  # the same memory


def if_donated(
    live: Liveness,
    parameters: Collection[int],
    *,
    retyped: bool = False,
    before_schedule: bool = False,
) -> Liveness:
    """The simulation with these parameters of ENTRY, by number, donated as well.

    ``retyped``: as if outputs of their dimensions were also of their type and layout.
    ``before_schedule``: copies are inserted before there is a schedule, as by XLA:CPU.
    """
    pairs = _pairs(live, parameters, retyped)
    entry = live.module.entry
    if entry is None or entry.root is None:
        return live
    root = entry.root.shape
    copies: list[CopiedFirst] = []
    if before_schedule and pairs:
        numbers = _copied(live.module, pairs)
        made_by = {a.parameter_number: a.output_index for a in pairs}
        given = [p for p in entry.parameters if p.parameter_number in numbers]
        for p, point in _when_copied(live, given):
            result = leaf_span(root, made_by[p.parameter_number or 0])[0]
            nodes = live.values.nodes(p)[0], live.values.nodes(entry.root)[result]
            argument, output = (int(live.buffer_of[node]) for node in nodes)
            copies.append(CopiedFirst(argument, output, point))
        pairs = [a for a in pairs if a.parameter_number not in numbers]
    leaves = live.buffer_of[live.values.nodes(entry.root)]
    returned = [
        int(leaves[leaf_span(root, a.output_index)[0]])
        for a in pairs
        if is_returned(live.module, a.output_index, a.parameter_number)
    ]
    return with_donated(live, pairs, copies, returned) if pairs or copies else live


def copied_if_donated(live: Liveness, parameters: Collection[int]) -> tuple[Instruction, ...]:
    """Parameters of ENTRY that XLA:CPU copies first if these are donated as well, in order."""
    entry = live.module.entry
    pairs = _pairs(live, parameters, False)
    if entry is None or not pairs:
        return ()
    numbers = _copied(live.module, pairs)
    return tuple(p for p in entry.parameters if p.parameter_number in numbers)


def _pairs(live: Liveness, parameters: Collection[int], retyped: bool) -> list[Alias]:
    """Outputs that have memory of their own, each with the parameter that jax gives it."""
    entry = live.module.entry
    if entry is None or entry.root is None:
        return []
    aliases = live.module.input_output_alias
    lent = {a.parameter_number for a in aliases}
    written = {a.output_index for a in aliases}
    donors: dict[object, deque[int]] = defaultdict(deque)
    for p in sorted(entry.parameters, key=lambda p: p.parameter_number or 0):
        number = p.parameter_number or 0
        if number in parameters and number not in lent and p.shape.is_array:
            donors[_kind(p.shape, retyped)].append(number)
    root = entry.root.shape
    outputs = [(k,) for k in range(len(root.tuple_shapes))] if root.is_tuple else [()]
    pairs = []
    for index in outputs:
        shape = root.tuple_shapes[index[0]] if index else root
        b = int(live.buffer_of[live.values.nodes(entry.root)[leaf_span(root, index)[0]]])
        has_own = index not in written and live.kind[b] == OUTPUT and live.home[b] < 0
        if has_own and shape.is_array and donors.get(_kind(shape, retyped)):
            number = donors[_kind(shape, retyped)].popleft()
            pairs.append(Alias(index, number, (), "may-alias"))
    return pairs


def _when_copied(
    live: Liveness, parameters: Sequence[Instruction]
) -> Iterator[tuple[Instruction, int]]:
    """The point at which XLA:CPU copies each parameter that is donated and still needed.

    It runs what is ready in the order in which it got ready: first what has no operands, then what
    reads nothing else, in the order of the last that it reads. Copies are among those, one after
    another: a later one may lie in the memory of an argument that is copied already.
    """
    at: dict[Instruction, int] = {}
    wave: list[tuple[int, int]] = []  # (last operand's point, own point)
    for point, n in enumerate(live.schedule.tolist()):
        i = live.module.instructions[n]
        at[i] = point
        if any(o.operands for o in i.operands):
            break
        if i.operands:
            wave.append((max(at.get(o, 0) for o in i.operands), point))
    last = wave[-1][1] if wave else 0
    before = -1
    for p in sorted(parameters, key=lambda p: at.get(p, 0)):
        ready = at.get(p, 0)
        point = next((own for needed, own in wave if needed >= ready), last)
        before = min(max(point, before + 1), len(live.schedule) - 1)
        yield p, before


def _copied(module: Module, pairs: list[Alias]) -> set[int]:
    """Parameters of which a reader has no order, by data, with what writes the output."""
    entry = module.entry
    assert entry is not None
    assert entry.root is not None
    given = {p.parameter_number: p for p in entry.parameters}
    readers: dict[int, set[Instruction]] = {}
    writer: dict[int, Instruction] = {}
    for a in pairs:
        if is_returned(module, a.output_index, a.parameter_number):
            continue  # nothing is written over it
        made = walk.source(Position(entry.root, tuple(a.output_index)), _SAME).instruction
        used = {u.instruction for u in walk.uses(given[a.parameter_number], _SAME)}
        readers[a.parameter_number], writer[a.parameter_number] = used - {made}, made
    bits = {r: 1 << n for n, r in enumerate(dict.fromkeys(chain(*readers.values())))}
    before: dict[Instruction, int] = {}  # the readers that each instruction waits for
    for i in entry.instructions:
        found = bits.get(i, 0)
        for o in i.operands:
            found |= before.get(o, 0)
        before[i] = found
    return {
        n
        for n, used in readers.items()
        if any(not before.get(writer[n], 0) & bits[r] for r in used if r.computation is entry)
    }


def is_returned(module: Module, output_index: Sequence[int], parameter: int) -> bool:
    """Whether an output is an argument as it is, or a copy of it."""
    if module.entry is None or module.entry.root is None:
        return False
    made = walk.source(Position(module.entry.root, tuple(output_index)), _SAME).instruction
    is_given = made.opcode == "parameter" and made.computation.is_entry
    return is_given and made.parameter_number == parameter


def _kind(shape: Shape, retyped: bool) -> object:
    return shape.dimensions if retyped else shape
