"""Which instruction is which from one dump to the next, if names alone do not show it.

XLA keeps the names of what a pass does not touch. A few passes write the whole module anew (the
round trip through Shardy, the partitioner): there all names change at once, and instructions are
paired by opcode and ``op_name``, in their order. That is inferred, and the result says so.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import TypeVar

from ...hlo import opcodes
from ...readers.hlo.pass_lines import Body, Line

T = TypeVar("T")
_STEM = re.compile(r"(?:\.(?:\d+|clone|remat\d*))+\Z")
_NAME = re.compile(r"%[^\s,(){}=\"]+")
_CARRIES = opcodes.BUNDLES | opcodes.GIVEN


def stem(name: str) -> str:
    """``fused_computation.12.clone`` → ``fused_computation``."""
    return _STEM.sub("", name)


def computations(before: Mapping[str, Body], now: Mapping[str, Body]) -> dict[str, Body]:
    """Name of a computation after a pass → the computation before; without new ones.

    A name identifies, except after a pass that wrote the module anew, which reuses names: there
    equal contents come before equal names, and a name counts only if something under it is as
    it was.
    """
    out = {n: before[n] for n, b in now.items() if n in before and before[n].lines == b.lines}
    pairs: list[tuple[Body, Body]] = []
    gone = [a for n, a in before.items() if n not in out]
    new = [b for n, b in now.items() if n not in out]
    for key in (_entry, _name_contents_source, _contents_source, _name_and_contents):
        _pair(pairs, gone, new, key)
    found = {id(x) for pair in pairs for x in pair}
    anew = _all_anew(gone, new, sum(len(a.lines) for a in before.values()))
    for b in new:
        a = before.get(b.name)
        if a is None or id(a) in found or id(b) in found:
            continue
        if _akin(a, b) or _stays(a, b) or (not anew and _share_a_name(a, b)):
            pairs.append((a, b))
    for key in (_contents, _stem_and_size):
        _pair(pairs, gone, new, key)
    out.update((b.name, a) for a, b in pairs)
    return out


def _pair(
    pairs: list[tuple[Body, Body]],
    gone: Sequence[Body],
    new: Sequence[Body],
    key: Callable[[Body], Hashable],
) -> None:
    """Adds pairs with equal keys of computations that have no partner yet."""
    found = {id(x) for pair in pairs for x in pair}
    left = [a for a in gone if id(a) not in found]
    right = [b for b in new if id(b) not in found]
    if left and right:
        pairs += _alike(left, right, key)


def _all_anew(gone: Sequence[Body], new: Sequence[Body], count: int) -> bool:
    """Whether most of ``count`` instructions have new names, or their names have new opcodes."""
    had, has = ({x.name: x.opcode for body in side for x in body.lines} for side in (gone, new))
    lost = sum(has.get(n) != opcode for n, opcode in had.items())
    fresh = sum(had.get(n) != opcode for n, opcode in has.items())
    return written_anew(count, lost, fresh)


def _akin(a: Body, b: Body) -> bool:
    """Whether two do at least half the same work; what was fused keeps its root's name."""
    p, q = _work(a), _work(b)
    return bool(p and q) and 2 * (p & q).total() >= min(p.total(), q.total())


def _work(body: Body) -> Counter[str]:
    return Counter(
        x.op_name.rpartition("/")[2] for x in body.lines if x.op_name and x.opcode not in _CARRIES
    )


def _share_a_name(a: Body, b: Body) -> bool:
    """Whether anything is as it was: if one was fused or inlined, its parameters stay."""
    return bool({(x.name, x.opcode) for x in a.lines} & {(x.name, x.opcode) for x in b.lines})


def _stays(a: Body, b: Body) -> bool:
    """Whether half of it is as it was, as if its calls were inlined: then all that they called
    is gone too, as many names as if everything was written anew."""
    had, has = ({(x.name, x.opcode, x.dense, x.op_name) for x in body.lines} for body in (a, b))
    return 2 * len(had & has) >= len(had) > 0


def instructions(gone: Sequence[Line], new: Sequence[Line]) -> list[tuple[Line, Line]]:
    """Pairs of instructions of one computation that was written anew: equal ones, in order."""
    return _alike(gone, new, lambda line: (line.opcode, line.op_name, _literal(line)))


def written_anew(before: int, gone: int, new: int) -> bool:
    """Whether most names changed at once, as if a module is written and read again."""
    return gone * 2 >= before > 0 and new * 2 >= before


def another(old: Line, new: Line) -> bool:
    """Whether an instruction of a module that was written anew only took the name of another."""
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


def _name_and_contents(body: Body) -> Hashable:
    return body.name, _contents(body)


def _contents_source(body: Body) -> Hashable:
    return _contents(body), tuple(x.op_name for x in body.lines)


def _name_contents_source(body: Body) -> Hashable:
    return body.name, _contents_source(body)


def _stem_and_size(body: Body) -> Hashable:
    return stem(body.name), tuple(x.opcode for x in body.lines)


def _literal(line: Line) -> str:
    return line.arguments if line.opcode in ("constant", "parameter") else ""
