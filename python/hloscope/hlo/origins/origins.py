"""Which operations of the StableHLO program an instruction comes from.

While capturing, every StableHLO operation is given a number; XLA carries the numbers through
all passes, and ``capturing/marks.py`` takes them out again when it reads. What remains is this:

    func main                            instruction              origins
      3: call @layer(…)                  %dot.7    ── call path (3,)  operation 9
      4: call @layer(…)                  %dot.8    ── call path (4,)  operation 9
    func layer                           %fusion.1 ── several: what was merged or combined
      9: dot_general                     %copy.2   ── none: XLA made it itself
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from .operations import Operation, Origin
from .python_calls import PythonCalls, python_calls


@dataclass(frozen=True, eq=False)
class Origins:
    """``of[i]`` are the origins of the instruction with index i, the main one first.

    An instruction with several is what XLA made of them together; one with none was made by
    XLA itself, or is an argument.
    """

    operations: tuple[Operation, ...]
    of: tuple[tuple[Origin, ...], ...] = field(default=(), repr=False)

    @cached_property
    def instructions(self) -> dict[int, tuple[int, ...]]:
        """Operation → indices of the instructions that come from it, in printed order."""
        out: dict[int, list[int]] = {}
        for index, origins in enumerate(self.of):
            for number in dict.fromkeys(o.operation for o in origins):
                out.setdefault(number, []).append(index)
        return {number: tuple(found) for number, found in out.items()}

    @cached_property
    def python(self) -> PythonCalls:
        """The calls of Python functions that the operations come from, one row per call."""
        return python_calls(self.operations)

    @property
    def known(self) -> int:
        """How many instructions have an origin."""
        return sum(1 for o in self.of if o)


def origins_of(
    operations: Sequence[Operation], chains: Iterable[Sequence[Sequence[int]]]
) -> tuple[tuple[Origin, ...], ...]:
    """Chains of numbers, as XLA wrote them one after another, as origins.

    A chain holds calls, owners of regions and last the operation itself. When XLA inlines a
    call it puts the call's number before the *whole* name of an instruction, which may cover
    several operations: those after the first take the calls of the first.
    """
    number: dict[tuple[tuple[int, ...], ...], tuple[Origin, ...]] = {}
    out = []
    for found in chains:
        key = tuple(tuple(c) for c in found)
        if key not in number:
            number[key] = _origins(operations, key)
        out.append(number[key])
    return tuple(out)


def _origins(
    operations: Sequence[Operation], chains: tuple[tuple[int, ...], ...]
) -> tuple[Origin, ...]:
    out: dict[Origin, None] = {}
    first: tuple[int, ...] = ()
    for chain in chains:
        chain = tuple(n for n in chain if 0 <= n < len(operations))
        if not chain:
            continue
        last = operations[chain[-1]]
        calls = [n for n in chain[:-1] if operations[n].is_call]
        calls = _path(operations, calls, last.function)
        if not out:
            first = (*calls, chain[-1])
        elif not calls and last.function != "main":
            at = [k for k, n in enumerate(first) if operations[n].callee == last.function]
            calls = list(first[: at[-1] + 1]) if at else []
        out[Origin(chain[-1], tuple(calls))] = None
    return tuple(out)


def _path(operations: Sequence[Operation], calls: list[int], function: str) -> list[int]:
    """The calls that lead to ``function``: each must call the one that holds the next."""
    out: list[int] = []
    for n in reversed(calls):
        if operations[n].callee == function:
            out.append(n)
            function = operations[n].function
    return out[::-1]
