"""Who is who from one dump to the next, where names alone do not tell.

XLA keeps the names of what a pass leaves alone. A few passes write the whole module anew (the
way through Shardy, the partitioner): there all names change at once, and instructions are
paired by opcode and ``op_name``, in their order. That is inferred, and said to be.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import TypeVar

from .pass_lines import Body, Line

T = TypeVar("T")
_STEM = re.compile(r"(?:\.(?:\d+|clone|remat\d*))+\Z")
_NAME = re.compile(r"%[^\s,(){}=\"]+")


def stem(name: str) -> str:
    """``fused_computation.12.clone`` → ``fused_computation``."""
    return _STEM.sub("", name)


def computations(gone: Sequence[Body], new: Sequence[Body]) -> list[tuple[Body, Body]]:
    """Computations that only got other names, ENTRY in any case."""
    pairs: list[tuple[Body, Body]] = []
    for key in (_entry, _contents, _stem_and_size):
        left = [b for b in gone if all(b is not x for x, _ in pairs)]
        right = [b for b in new if all(b is not y for _, y in pairs)]
        pairs += _alike(left, right, key)
    return pairs


def instructions(gone: Sequence[Line], new: Sequence[Line]) -> list[tuple[Line, Line]]:
    """Instructions of one computation that was written anew: equal groups, in order."""
    return _alike(gone, new, lambda line: (line.opcode, line.op_name, _literal(line)))


def written_anew(before: int, gone: int, new: int) -> bool:
    """Whether names changed all at once, as when a module is written and read again."""
    return gone * 2 >= before > 0 and new * 2 >= before


def another(old: Line, new: Line) -> bool:
    """Whether an instruction of a module that was written anew only has the name of another."""
    return (old.opcode, old.op_name) != (new.opcode, new.op_name)


def _alike(
    left: Iterable[T], right: Iterable[T], key: Callable[[T], Hashable]
) -> list[tuple[T, T]]:
    groups: dict[Hashable, tuple[list[T], list[T]]] = defaultdict(lambda: ([], []))
    for side, items in enumerate((left, right)):
        for item in items:
            k = key(item)
            if k is not None:
                groups[k][side].append(item)
    return [pair for a, b in groups.values() if len(a) == len(b) for pair in zip(a, b, strict=True)]


def _entry(body: Body) -> Hashable:
    return True if body.entry else None


def _contents(body: Body) -> Hashable:
    return tuple(_NAME.sub("%", x.text.partition(" = ")[2]) for x in body.lines)


def _stem_and_size(body: Body) -> Hashable:
    return stem(body.name), tuple(x.opcode for x in body.lines)


def _literal(line: Line) -> str:
    return line.arguments if line.opcode in ("constant", "parameter") else ""
