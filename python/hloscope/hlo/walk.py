"""Follow a value back to what it is made of, or forth to what uses it: the one walker.

A caller says through which opcodes the value is still "the same" to it, by a class of
``opcodes.py``. How to get there is known here: tuples and their elements, operands that carry
data and those that are mere offsets, parameters and call sites, loops, branches, fusions, and
both halves of asynchronous operations.

    all-gather ← convert ← get-tuple-element 3 ← while ← tuple ← copy ← parameter w
    └─ source(operand, SAME_NUMBERS | LOOPS | CALLS) ─────────────────────────────┘

    source(value, through)    where it comes from while there is only one answer
    back(value, through)      all positions that it is made from, nearest first
    sources(value, through)   those of them where the way back ends
    forward(value, through)   all positions that hold it, nearest first
    uses(value, through)      what uses it for something else

``through`` is a class of opcodes, and tuples are always looked into; or, for what an opcode cannot
say, a predicate that is asked about every instruction, tuples as well. ``LOOPS``, ``BRANCHES``,
``CALLS`` and ``FUSIONS`` in ``through`` cross into and out of computations; without ``LOOPS`` a
walk stays within one trip. A fusion is passed when everything on the way through it is in
``through``, and is otherwise an end itself; ``inside_fusions=True`` goes on among what it fuses.

A walk follows data: of a ``dynamic-slice`` the array, not the offsets, of a ``select`` not the
predicate. ``dependencies=True`` follows all of what a value depends on.

    from ..hlo import opcodes, walk

    walk.source(value, opcodes.PART_OF_ONE | opcodes.FUSIONS).instruction.opcode == "parameter"
    any(p.instruction.opcode in opcodes.PRODUCTS for p in walk.back(value, opcodes.MOVES))
    [use.instruction for use in walk.uses(value, opcodes.SAME_NUMBERS)]

All walks are lazy, so a caller takes what it needs; each position comes once, and ``MOST`` of
them at most. A walk means one value's neighbourhood. For a column over all instructions, ask the
table's classes in numpy (``Table.by_opcode(MOVES.__contains__, bool)``).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Container, Iterator
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from .opcodes import BUNDLES, DIRECT_CALLS, LITERALS, OF_TARGET, async_half, data_operands

if TYPE_CHECKING:
    from .module import Computation, Instruction

# Positions that one walk visits at most. The longest known way from a value to an argument, in
# an unrolled model of 96 layers, has some 2,000; a dump made to be slow has no end.
MOST = 10_000
_NESTED = 40  # fusions in fusions, loops in loops: Python's stack is finite, and dumps can lie
_MEETING = 16  # positions in which the branches of a fork have to meet again

Through = Container[str] | Callable[["Instruction"], bool]


class Position(NamedTuple):
    """A value: an instruction's result, or one element of it (XLA's ``HloPosition``).

    ``element`` is the way into a tuple, outermost first; () is all of it. ``calls`` are the call
    sites that the walk entered, for computations that are called from several.
    """

    instruction: Instruction
    element: tuple[int, ...] = ()
    calls: tuple[Instruction, ...] = ()


class Use(NamedTuple):
    """``instruction`` takes the value, which is at ``position``, as operand ``operand``."""

    instruction: Instruction
    operand: int
    position: Position


def back(
    value: Instruction | Position,
    through: Through,
    *,
    where: Callable[[Position], bool] | None = None,
    reach: int = MOST,
    inside_fusions: bool = False,
    dependencies: bool = False,
) -> Iterator[Position]:
    """``value`` and all positions it is made from, nearest first, each once.

    ``where`` leaves out positions, with all that is only reached by them. ``reach`` is the most
    steps from ``value``, for a caller that means its neighbourhood.
    """
    step = _Walk(through, inside_fusions, dependencies).before
    for position, _ in _visit(value, step, where, reach):
        yield position


def sources(
    value: Instruction | Position,
    through: Through,
    *,
    where: Callable[[Position], bool] | None = None,
    reach: int = MOST,
    inside_fusions: bool = False,
    dependencies: bool = False,
) -> Iterator[Position]:
    """The positions of ``back`` from which ``through`` does not lead further, or not within reach
    and ``MOST``."""
    step = _Walk(through, inside_fusions, dependencies).before
    for position, is_end in _visit(value, step, where, reach):
        if is_end:
            yield position


def source(
    value: Instruction | Position, through: Through, *, inside_fusions: bool = False
) -> Position:
    """Where ``value`` comes from, as far back as there is only one answer.

    A loop's element has one if every trip hands it on unchanged; a conditional's, if all branches
    return the same. Where there are two, the position before them is the answer.
    """
    return _Walk(through, inside_fusions).source(_at(value))


def path(
    value: Instruction | Position, through: Through, *, inside_fusions: bool = False
) -> Iterator[Position]:
    """``value`` and each position on the way to its ``source``."""
    yield from _Walk(through, inside_fusions).path(_at(value))


def forward(
    value: Instruction | Position,
    through: Through,
    *,
    where: Callable[[Position], bool] | None = None,
    reach: int = MOST,
    inside_fusions: bool = False,
    dependencies: bool = False,
) -> Iterator[Position]:
    """``value`` and all positions that hold it, or what ``through`` makes of it, nearest first."""
    walk = _Walk(through, inside_fusions, dependencies)
    for position, _ in _visit(value, lambda p: walk.after(p)[0], where, reach):
        yield position


def uses(
    value: Instruction | Position,
    through: Through,
    *,
    where: Callable[[Position], bool] | None = None,
    reach: int = MOST,
    inside_fusions: bool = False,
    dependencies: bool = False,
) -> Iterator[Use]:
    """What uses ``value``, or what ``through`` makes of it, for something else; nearest first."""
    walk = _Walk(through, inside_fusions, dependencies)
    found: deque[Use] = deque()
    seen: set[tuple[int, int]] = set()

    def step(position: Position) -> list[Position]:
        ahead, used = walk.after(position)
        found.extend(used)
        return ahead

    for _ in _visit(value, step, where, reach):
        while found:
            use = found.popleft()
            if (use.instruction.index, use.operand) not in seen:
                seen.add((use.instruction.index, use.operand))
                yield use


def acts_as(i: Instruction) -> str:
    """The opcode by what an instruction does to its operand: of a known custom call the opcode
    that does the same; a broadcast that repeats nothing is a reshape."""
    if i.opcode == "custom-call":
        return OF_TARGET.get(i.custom_call_target or "", i.opcode)
    if i.opcode == "broadcast" and i.operands and i.shape.elements == i.operands[0].shape.elements:
        return "reshape"
    return i.opcode


def _at(value: Instruction | Position) -> Position:
    return value if isinstance(value, Position) else Position(value)


def _visit(
    value: Instruction | Position,
    step: Callable[[Position], list[Position]],
    where: Callable[[Position], bool] | None,
    reach: int,
) -> Iterator[tuple[Position, bool]]:
    """Positions nearest first, and whether ``step`` leads nowhere from there, or not within reach:
    what a walk does not look at is nothing that it has seen."""
    start = _at(value)
    seen = {start}
    waiting = deque([(start, 0)])
    while waiting:
        position, distance = waiting.popleft()
        ahead = step(position) if distance < reach and len(seen) < MOST else []
        yield position, not ahead
        for p in ahead:
            if p not in seen and len(seen) < MOST and (where is None or where(p)):
                seen.add(p)
                waiting.append((p, distance + 1))


class _Walk:
    """Single steps back and forth for one ``through``."""

    def __init__(self, through: Through, inside_fusions: bool, dependencies: bool = False) -> None:
        self.inside_fusions = inside_fusions
        self.dependencies = dependencies
        self.depth = 0
        self.meets = False
        # whether a value may be followed through an instruction
        self.passes: Callable[[Instruction], bool] = (
            through if callable(through) else lambda i: i.opcode in BUNDLES or acts_as(i) in through
        )

    def _data(self, i: Instruction, opcode: str) -> range | tuple[int, ...]:
        """The operands that a walk follows."""
        count = len(i.operands)
        return range(count) if self.dependencies else data_operands(opcode, count)

    def _chooses(self, i: Instruction) -> bool:
        return self.dependencies and i.opcode == "conditional"

    # -- back ----------------------------------------------------------------------------------

    def before(self, p: Position) -> list[Position]:
        """What the value at a position is made from, one step back; [] where it ends."""
        i, element, calls = p
        opcode, operands = i.opcode, i.operands
        if opcode == "parameter":
            return self._outside(p)
        if not operands and not _calls(i):
            return []
        if not self.passes(i):
            return []
        if opcode == "get-tuple-element":
            k = i.tuple_index
            return [] if k is None else [Position(operands[0], (k, *element), calls)]
        if opcode == "tuple":
            return _elements(operands, element, calls)
        if opcode == "while":
            return self._round(i, element, calls)
        if opcode == "fusion":
            return self._fused(p)
        half = async_half(opcode)
        if half is not None:
            return self._half(p, *half)
        if _calls(i):
            chosen = [Position(o) for o in operands[:1]] if self._chooses(i) else []
            called = [c for c in i.called_computations if c.root]
            return [*chosen, *(_entered(i, c, element, calls) for c in called)]
        if element and len(operands) == len(i.shape.tuple_shapes):  # as an all-reduce of several
            return _elements(operands, element, calls)
        rest = element if len(operands) == 1 and operands[0].shape.is_tuple else ()
        data = self._data(i, acts_as(i))
        return [Position(operands[k], rest, calls) for k in data]

    def _round(
        self, loop: Instruction, element: tuple[int, ...], calls: tuple[Instruction, ...]
    ) -> list[Position]:
        """A loop's value: what it starts with, and what each trip returns."""
        body = dict(loop.called).get("body")
        begun = [Position(o, element, calls) for o in loop.operands[:1]]
        if not begun or body is None or body.root is None:
            return begun
        return [*begun, _entered(loop, body, element, calls)]

    def _fused(self, p: Position) -> list[Position]:
        """Into a fusion, or past one through which the value merely passes."""
        i, element, calls = p
        called = i.called_computations
        inside = called[0] if called else None
        root = inside.root if inside is not None else None
        if inside is None or root is None:
            return []
        if self.inside_fusions:
            return [_entered(i, inside, element, calls)]
        if self.depth > _NESTED or not (root.opcode in _HELD or self.passes(root)):
            return []
        out = []
        self.depth += 1
        inner = _visit(Position(root, element), self._before_within(inside), None, MOST)
        for end, is_end in inner:
            own = end.instruction.computation is inside
            number = end.instruction.parameter_number if own else None
            if number is not None and number < len(i.operands):
                out.append(Position(i.operands[number], end.element, calls))
            elif is_end and end.instruction.opcode not in LITERALS:
                out = []
                break
        self.depth -= 1
        return out

    def _before_within(self, inside: Computation) -> Callable[[Position], list[Position]]:
        def step(p: Position) -> list[Position]:
            own = p.instruction.opcode == "parameter" and p.instruction.computation is inside
            return [] if own else self.before(p)

        return step

    def _half(self, p: Position, base: str, half: str) -> list[Position]:
        """``copy-done(copy-start(x))``: a start is a tuple of operands, results and context."""
        i, element, calls = p
        if half == "update":
            return [Position(i.operands[0], element, calls)]
        if half == "done":
            start = i.operands[0]
            if not start.shape.is_tuple or start.shape == i.shape:  # as of an all-reduce
                return [Position(start, element, calls)]
            first = 0 if base in _RESULT_FIRST else 1
            return [Position(start, (first, *element), calls)]
        which, rest = (element[0], element[1:]) if element else (1, ())
        if not i.shape.is_tuple:
            which, rest = 1, element
        if which == 1 and i.called_computations:
            return [_entered(i, c, rest, calls) for c in i.called_computations[:1] if c.root]
        if which > 1:  # the context
            return []
        if len(i.operands) > 1 and rest:
            return _elements(i.operands, rest, calls)
        data = self._data(i, base) if which else range(len(i.operands))
        return [Position(i.operands[k], (), calls) for k in data]

    def _outside(self, p: Position) -> list[Position]:
        """What the call sites of a parameter's computation pass for it."""
        i, element, calls = p
        inside, number = i.computation, i.parameter_number
        if inside.is_entry or number is None:
            return []
        sites = i.module.call_sites(inside)
        if calls and calls[-1] in sites:
            sites, calls = (calls[-1],), calls[:-1]
        out: list[Position] = []
        for site in sites:
            if not self.passes(site):
                return []
            if site.opcode == "while":
                out += self._round(site, element, calls)
            else:
                given = _given(site, inside, number)
                if not given:
                    return []
                out += [Position(site.operands[k], element, calls) for k in given]
        return list(dict.fromkeys(out))

    # -- the one way back ------------------------------------------------------------------------

    def path(self, start: Position) -> Iterator[Position]:
        seen: set[Position] = set()
        at: Position | None = start
        while at is not None and at not in seen and len(seen) < MOST:
            yield at
            seen.add(at)
            at = self.single(at)

    def source(self, start: Position) -> Position:
        """The last position of ``path``."""
        at = start
        seen = {at}
        while len(seen) < MOST:
            ahead = self.single(at)
            if ahead is None or ahead in seen:
                break
            seen.add(ahead)
            at = ahead
        return at

    def single(self, p: Position) -> Position | None:
        """The one position that a value is made from; None if there is none, or several."""
        ahead = self.before(p)
        if len(ahead) < 2:
            return ahead[0] if ahead else None
        self.depth += 1
        try:
            if self.depth > _NESTED:
                return None
            loop = carrying_loop(p)
            if loop is not None:
                return ahead[0] if self._is_invariant(loop, p.element) else None
            return self._meeting(ahead)
        finally:
            self.depth -= 1

    def _is_invariant(self, loop: Instruction, element: tuple[int, ...]) -> bool:
        """Whether every trip of a loop hands on this element as it is."""
        body = dict(loop.called).get("body")
        if body is None or body.root is None:
            return False
        at: Position | None = Position(body.root, element)
        seen: set[Position] = set()
        while at is not None and at not in seen and len(seen) < MOST:
            i = at.instruction
            if i.opcode == "parameter" and i.computation is body:
                return at.element == element
            seen.add(at)
            at = self.single(at)
        return False

    def _meeting(self, ahead: list[Position]) -> Position | None:
        """The nearest position from which all branches of a fork come."""
        if self.meets:  # forks within forks would take exponentially long
            return None
        self.meets = True
        ways = [list(islice(self.path(branch), _MEETING)) for branch in ahead]
        self.meets = False
        return next((p for p in ways[0] if all(p in way for way in ways[1:])), None)

    # -- forth -----------------------------------------------------------------------------------

    def after(self, p: Position) -> tuple[list[Position], list[Use]]:
        """Positions that hold a value one step on, and its uses for something else."""
        ahead: list[Position] = []
        used: list[Use] = []
        i = p.instruction
        for user in i.users_of(p.element[0]) if p.element else i.users:
            for k, operand in enumerate(user.operands):
                if operand is i:
                    self._taken(p, user, k, ahead, used)
        if i.is_root:
            self._returned(p, ahead)
        return ahead, used

    def _taken(
        self, p: Position, user: Instruction, k: int, ahead: list[Position], used: list[Use]
    ) -> None:
        _, element, calls = p
        opcode = user.opcode
        taken = opcode != "get-tuple-element" or not element or element[0] == user.tuple_index
        if not taken:  # another element
            return
        if not self.passes(user):
            used.append(Use(user, k, p))
        elif opcode == "tuple":
            ahead.append(Position(user, (k, *element), calls))
        elif opcode == "get-tuple-element":
            ahead.append(Position(user, element[1:], calls))
        elif opcode == "fusion" and not self.inside_fusions:
            self._through_fusion(p, user, k, ahead, used)
        elif _calls(user):
            if k == 0 and self._chooses(user):
                ahead.append(Position(user))
            elif not self._into(p, user, k, ahead):  # or a dump without the computation
                used.append(Use(user, k, p))
        elif (half := async_half(opcode)) is not None:
            self._taken_by_half(p, user, k, half, ahead)
        elif k not in self._data(user, acts_as(user)):
            used.append(Use(user, k, p))
        elif user.shape.is_tuple and len(user.operands) == len(user.shape.tuple_shapes) > 1:
            ahead.append(Position(user, (k, *element), calls))
        else:
            ahead.append(Position(user, element if user.shape.is_tuple else (), calls))

    def _into(self, p: Position, user: Instruction, k: int, ahead: list[Position]) -> bool:
        """Adds the parameters that take operand ``k`` in the computations that are called."""
        _, element, calls = p
        found = False
        for c in dict.fromkeys(user.called_computations):
            several = len(user.module.call_sites(c)) > 1
            for parameter in c.parameters:
                number = parameter.parameter_number
                if user.opcode == "while" or k in _given(user, c, -1 if number is None else number):
                    inner = (*calls, user) if several else calls
                    ahead.append(Position(parameter, element, inner))
                    found = True
        return found

    def _through_fusion(
        self, p: Position, user: Instruction, k: int, ahead: list[Position], used: list[Use]
    ) -> None:
        inside = user.called_computations[0] if user.called_computations else None
        parameters = inside.parameters if inside is not None else ()
        entry = next((q for q in parameters if q.parameter_number == k), None)
        if entry is None or self.depth > _NESTED:
            used.append(Use(user, k, p))
            return
        self.depth += 1
        other = False

        def step(q: Position) -> list[Position]:
            nonlocal other
            on, uses_here = self.after(q)
            other |= bool(uses_here)
            return [r for r in on if r.instruction.computation is inside]

        for q, _ in _visit(Position(entry, p.element), step, None, MOST):
            if inside is not None and q.instruction is inside.root:
                ahead.append(Position(user, q.element, p.calls))
        self.depth -= 1
        if other:
            used.append(Use(user, k, p))

    def _taken_by_half(
        self, p: Position, user: Instruction, k: int, half: tuple[str, str], ahead: list[Position]
    ) -> None:
        _, element, calls = p
        base, which = half
        if which == "update":
            ahead.append(Position(user, element, calls))
        elif which == "done":
            start = p.instruction
            whole = not element or not start.shape.is_tuple or start.shape == user.shape
            if whole:
                ahead.append(Position(user, element, calls))
            elif element[0] == (0 if base in _RESULT_FIRST else 1):
                ahead.append(Position(user, element[1:], calls))
        elif k in self._data(user, base):
            if not user.shape.is_tuple or user.shape == p.instruction.shape:
                ahead.append(Position(user, element, calls))
            else:
                several = (k, *element) if len(user.operands) > 1 else element
                first = 0 if base in _RESULT_FIRST else 1
                ahead.append(Position(user, (first, *several), calls))

    def _returned(self, p: Position, ahead: list[Position]) -> None:
        """From a computation's root to the results of its call sites, and a loop's next trip."""
        i, element, calls = p
        inside = i.computation
        sites = i.module.call_sites(inside)
        if calls and calls[-1] in sites:
            sites, calls = (calls[-1],), calls[:-1]
        for site in sites:
            if not self.passes(site):
                continue
            if site.opcode == "while":
                roles = dict(site.called)
                if roles.get("body") is not inside:
                    continue
                ahead.append(Position(site, element, calls))
                for c in roles.values():
                    ahead += [Position(q, element, calls) for q in c.parameters[:1]]
            elif site.opcode in _STARTS:
                result = (1, *element) if site.shape.is_tuple else element
                ahead.append(Position(site, result, calls))
            elif _runs(site):
                ahead.append(Position(site, element, calls))


# Starts whose first element is the result: (destination, source, context) of a copy.
_RESULT_FIRST = ("copy", "send", "recv")
_STARTS = ("async-start", "call-start")
# What a fusion may hold or be given without anything that a walk passes through.
_HELD = frozenset({"parameter", *LITERALS})


def _runs(i: Instruction) -> bool:
    """Whether its value is that of the computation it calls, rather than of applying it."""
    return i.opcode in DIRECT_CALLS or i.opcode in ("conditional", "map")


def _calls(i: Instruction) -> bool:
    return i.opcode == "while" or _runs(i)


def _given(site: Instruction, called: Computation, number: int) -> list[int]:
    """The operands that a call site passes for a parameter of a computation that it calls."""
    if site.opcode == "conditional":  # the predicate or the index, then one operand per branch
        branches = enumerate(site.called_computations, 1)
        found = [k for k, c in branches if c is called]
    else:
        found = [number] if _runs(site) and number >= 0 else []
    return [k for k in found if k < len(site.operands)]


def _elements(
    operands: tuple[Instruction, ...], element: tuple[int, ...], calls: tuple[Instruction, ...]
) -> list[Position]:
    if not element:
        return [Position(o, (), calls) for o in operands]
    return [Position(o, element[1:], calls) for o in operands[element[0] : element[0] + 1]]


def _entered(
    site: Instruction,
    called: Computation,
    element: tuple[int, ...],
    calls: tuple[Instruction, ...],
) -> Position:
    """The result of a computation; of one with several call sites, as called from ``site``."""
    assert called.root is not None
    several = len(site.module.call_sites(called)) > 1
    return Position(called.root, element, (*calls, site) if several else calls)


def carrying_loop(p: Position) -> Instruction | None:
    """The loop whose carried value a position is: its result, or its body's parameter."""
    i = p.instruction
    if i.opcode == "while":
        return i
    if i.opcode != "parameter":
        return None
    sites = i.module.call_sites(i.computation)
    return sites[0] if len(sites) == 1 and sites[0].opcode == "while" else None
