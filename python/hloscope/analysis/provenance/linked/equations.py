"""Which equation of a jaxpr each StableHLO operation was made for: by name, line and order.

jax lowers equations one after another, and gives the operations of each the equation's primitive
and place in the source. If several equations share these, such as two ``+`` on one line that
were both broadcast, their operations have the same order as the equations:

    add  at 4:8  ─ equation 1      add at 4:8 ─ broadcast, add
    add  at 4:8  ─ equation 2      add at 4:8 ─ broadcast, add

If their number does not divide evenly, all are linked with all: nothing is guessed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby

from ....hlo import Computation, Instruction, Module, Operation, StackFrame

_HOLDERS = frozenset(["func.call", "while", "case", "if"])
Key = tuple[str, str, int, int]


def match_equations(
    jaxpr: Module,
    operations: tuple[Operation, ...],
    frames: Mapping[int, tuple[StackFrame, ...]],
) -> dict[int, tuple[int, ...]]:
    """Index of an instruction of the jaxpr → numbers of its operations."""
    equations: dict[str, list[tuple[Key, int]]] = {}  # by computation
    for i in _in_order(jaxpr):
        if i.frames:
            name = "" if i.called else i.opcode
            equations.setdefault(i.computation.name, []).append((_key(name, i.frames[0]), i.index))
    known = {key for rows in equations.values() for key, _ in rows}
    lowered: dict[str, list[tuple[Key, Operation]]] = {}  # by function
    for o in _called_in_order(operations):
        stack = frames.get(o.number)
        if not stack:
            continue
        key = _key("" if o.opcode in _HOLDERS else o.name.rpartition("/")[2], stack[0])
        if key not in known and o.owner >= 0:
            # what a loop needs for itself, such as its counter, goes with the loop
            key = _key("", stack[0])
        if key in known:
            lowered.setdefault(o.function, []).append((key, o))
    out: dict[int, list[int]] = {}
    for computations, functions in _pairs(equations, lowered):
        _match(
            [row for name in computations for row in equations[name]],
            [row for name in functions for row in lowered[name]],
            out,
        )
    return {index: tuple(dict.fromkeys(numbers)) for index, numbers in out.items()}


def _pairs(
    equations: Mapping[str, list[tuple[Key, int]]],
    lowered: Mapping[str, list[tuple[Key, Operation]]],
) -> list[tuple[list[str], list[str]]]:
    """Jaxprs and the functions written for them: those with the same sequence of keys.

    What is left, such as the body of a loop that is in main, is matched together.
    """
    functions: dict[tuple[Key, ...], list[str]] = {}
    for name, rows in lowered.items():
        functions.setdefault(_row(k for k, _ in rows), []).append(name)
    out: list[tuple[list[str], list[str]]] = []
    left: list[str] = []
    for name, own in equations.items():
        same = functions.get(_row(k for k, _ in own))
        if same:
            out.append(([name], same))
        else:
            left.append(name)
    alike: dict[tuple[str, ...], list[str]] = {}
    for names, same in out:
        alike.setdefault(tuple(same), []).extend(names)
    pairs: list[tuple[list[str], list[str]]] = []
    for same_functions, names in alike.items():
        if len(names) == len(same_functions):
            pairs += [([n], [f]) for n, f in zip(names, same_functions, strict=True)]
        else:
            pairs.append((names, list(same_functions)))
    taken = {f for _, found in pairs for f in found}
    pairs.append((left, [f for f in lowered if f not in taken]))
    return pairs


def _row(keys: Iterable[Key]) -> tuple[Key, ...]:
    """Keys in order, equal ones in a row once."""
    return tuple(key for key, _ in groupby(keys))


def _match(
    rows: list[tuple[Key, int]], lowered: list[tuple[Key, Operation]], out: dict[int, list[int]]
) -> None:
    equations: dict[Key, list[int]] = {}
    for key, index in rows:
        equations.setdefault(key, []).append(index)
    found: dict[Key, list[Operation]] = {}
    for key, operation in lowered:
        if key in equations:
            found.setdefault(key, []).append(operation)
    for key, same in found.items():
        of = equations[key]
        parts = _parts(same, len(of))
        for k, index in enumerate(of):
            part = parts[k] if parts is not None else same
            out.setdefault(index, []).extend(o.number for o in part)


def _key(name: str, at: StackFrame) -> Key:
    return name, at.file, at.line, at.column or 0


def _parts(found: list[Operation], count: int) -> list[list[Operation]] | None:
    """Equal parts in order, each with the same opcodes; None if there are none."""
    size, rest = divmod(len(found), count)
    if rest:
        return None
    parts = [found[k * size : (k + 1) * size] for k in range(count)]
    first = [o.opcode for o in parts[0]]
    return parts if all([o.opcode for o in p] == first for p in parts) else None


def _in_order(jaxpr: Module) -> Iterator[Instruction]:
    """Equations as they run, those of an inner jaxpr after the first equation that has it."""
    if jaxpr.entry is None:
        return
    seen: set[int] = set()
    stack: list[Iterator[Instruction]] = []

    def enter(c: Computation) -> None:
        if c.index not in seen:
            seen.add(c.index)
            stack.append(iter(c.instructions))

    enter(jaxpr.entry)
    while stack:
        for i in stack[-1]:
            if i.opcode in ("parameter", "get-tuple-element", "tuple", "constant"):
                continue
            yield i
            called = [c for _, c in i.called]
            if called:
                for c in reversed(called):
                    enter(c)
                break
        else:
            stack.pop()


def _called_in_order(operations: tuple[Operation, ...]) -> Iterator[Operation]:
    """Operations of main, those of a function after its first call."""
    of: dict[str, list[Operation]] = {}
    for o in operations:
        of.setdefault(o.function, []).append(o)
    seen = {"main"}
    stack = [iter(of.get("main", ()))]
    while stack:
        for o in stack[-1]:
            yield o
            if o.callee and o.callee not in seen and o.callee in of:
                seen.add(o.callee)
                stack.append(iter(of[o.callee]))
                break
        else:
            stack.pop()
