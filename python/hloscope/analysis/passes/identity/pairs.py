"""Walks two graphs side by side from what is certainly the same: users that stayed, and results.

    before                     after call-inliner
    %c = call(%x), layer       %t.4 = tanh(%d.2)         ROOT tuple(%c) is now ROOT tuple(%t.4),
    ROOT tuple(%c)             ROOT tuple(%t.4)          so %t.4 replaces %c, the result of
                                                         layer, and %d.2 what that reads

Calls and fusions are walked through in both graphs: a call's result is what its computation
returns, a parameter what the call is given. The calls on the way are those that were inlined.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator, Mapping, Sequence

from ....hlo import opcodes
from ....hlo.collective_kinds import is_collective
from ....readers.hlo.pass_lines import Body, Line, called
from .walk import IdentityWalk

Calls = tuple[int, ...]
_INDEX = re.compile(r"\bindex=(\d{1,9})")
_SAYS_SHARDING = re.compile(
    r'custom_call_target="(?:xla\.sdy\.\w+|Sharding|SPMDFullToShardShape|SPMDShardToFullShape)"'
)
_DEPTH = 24
_AT_LEAST = 4096  # pairs, for a few instructions
# One operand in, the same values out.
PASSING = opcodes.REPEATED
# What the partitioner inserts before and after an operation, to cut or join its arrays.
CUTTING = opcodes.SLICES | {"pad", "select"}


class Pairs:
    """``of[n]``: (node before, calls through which it was reached) that ``n`` replaces."""

    def __init__(
        self, walk: IdentityWalk, fresh: dict[int, bool], outside: dict[int, int], anew: bool
    ) -> None:
        self.walk, self.fresh, self.outside = walk, fresh, outside
        self.of: dict[int, dict[tuple[int, Calls], None]] = {}
        self._seen: set[tuple[int, int, Calls]] = set()
        self._queue: deque[tuple[int, int, Calls]] = deque()
        most = 12 * len(fresh) + _AT_LEAST
        for new, old in self._anchors(only_entry=anew):
            self._push(new, old, ())
        while self._queue and len(self._seen) < most:
            self._pair(*self._queue.popleft())

    # -- where to begin --------------------------------------------------------------

    def _anchors(self, only_entry: bool) -> Iterator[tuple[int, int]]:
        walk = self.walk
        for _, was, now in walk.changes:
            if not was or only_entry:
                continue
            for n in now.values():
                if n in self.fresh or n not in walk.line:
                    continue
                yield from self._differ(walk.present_operands(n), walk.operands.get(n, ()))
                a, b = walk.present(n), walk.line[n]
                if a.attributes != b.attributes:
                    yield from self._results(a, b)
        for name, body in walk.before.items():
            place = walk.place_of[name]
            before = walk.names_before.get(place)
            if only_entry and not body.entry:
                continue
            if before is not None and walk.prior[before] is not body:
                root, old_root = self._root(name), self._old_root(before)
                if root is not None and old_root is not None:
                    yield root, old_root

    def _differ(self, new: Sequence[int], old: Sequence[int]) -> Iterator[tuple[int, int]]:
        if len(new) == len(old):
            yield from ((a, b) for a, b in zip(new, old, strict=True) if a != b)

    def _results(self, new: Line, old: Line) -> Iterator[tuple[int, int]]:
        """Results of the computations that two lines call."""

        a, b = called(new), called(old)
        if len(a) == len(b):
            for x, y in zip(a, b, strict=True):
                if x != y:
                    p, q = self._root(x), self._old_root(y)
                    if p is not None and q is not None:
                        yield p, q

    @staticmethod
    def _skips(line: Line, old: Line) -> bool:
        """Whether to skip the new one first if both may pass values on: a copy or bitcast."""
        return not _passes(old) or line.opcode in ("copy", "bitcast")

    def _root(self, name: str) -> int | None:
        walk = self.walk
        return _result(name, walk.before, walk.place_of, walk.alive)

    def _old_root(self, name: str) -> int | None:
        walk = self.walk
        return _result(name, walk.prior, walk.prior_place_of, walk.prior_alive)

    # -- walking ---------------------------------------------------------------------

    def _push(self, new: int, old: int, calls: Calls) -> None:
        new = self._through(new)
        old, calls = self._old_through(old, calls)
        key = new, old, calls
        if new not in self.fresh or key in self._seen:
            return
        self._seen.add(key)
        self._queue.append(key)

    def _through(self, n: int, depth: int = 8) -> int:
        """Goes into a new fusion, out of it by its parameters, and past tuples taken apart."""
        for _ in range(_DEPTH):
            if n in self.outside:
                n = self.outside[n]
                continue
            line = self.walk.present(n)
            if line.opcode == "get-tuple-element":
                following = self._part(n, depth)
            elif line.opcode in ("fusion", "call") and n in self.fresh:  # the other side: _is_gone
                following = next((self._root(c) for c in called(line)), None)
            else:
                break
            if following is None:
                break
            n = following
        return n

    def _part(self, n: int, depth: int) -> int | None:
        """What an element was put into its tuple as; None if that is not known."""
        walk = self.walk
        operands = walk.present_operands(n)
        if not depth or not operands:
            return None
        source = self._through(operands[0], depth - 1)
        parts, k = walk.present_operands(source), element(walk.present(n))
        is_there = walk.present(source).opcode == "tuple" and 0 <= k < len(parts)
        return parts[k] if is_there else None

    def _old_through(self, y: int, calls: Calls, depth: int = 8) -> tuple[int, Calls]:
        walk = self.walk
        for _ in range(_DEPTH):
            line = walk.line.get(y)
            if line is None:
                break
            if line.opcode == "parameter" and calls and line.arguments.isdecimal():
                given, k = walk.operands.get(calls[-1], ()), int(line.arguments)
                if k >= len(given):
                    break
                y, calls = given[k], calls[:-1]
                continue
            if line.opcode == "get-tuple-element":
                part = self._old_part(y, calls, depth)
                if part is None:
                    break
                y, calls = part
                continue
            if line.opcode not in ("call", "fusion") or not self._is_gone(y):
                break
            root = next((self._old_root(c) for c in called(line)), None)
            if root is None:
                break
            y, calls = root, (*calls, y)
        return y, calls

    def _old_part(self, y: int, calls: Calls, depth: int) -> tuple[int, Calls] | None:
        walk = self.walk
        operands = walk.operands.get(y, ())
        if not depth or not operands:
            return None
        source, within = self._old_through(operands[0], calls, depth - 1)
        if source not in walk.line or walk.line[source].opcode != "tuple":
            return None
        parts, k = walk.operands[source], element(walk.line[y])
        return (parts[k], within) if 0 <= k < len(parts) else None

    def _is_gone(self, y: int) -> bool:
        walk = self.walk
        return walk.steps.nodes[y].last <= walk.row or y in self.fresh

    def _pair(self, n: int, y: int, calls: Calls) -> None:
        walk = self.walk
        line, old = walk.present(n), walk.line.get(y)
        if old is None:
            return
        self.of.setdefault(n, {})[y, calls] = None
        a, b = walk.present_operands(n), walk.operands.get(y, ())
        if line.opcode == old.opcode and len(a) == len(b):
            for o, p in zip(a, b, strict=True):
                self._push(o, p, calls)
            for o, p in self._results(line, old):
                self._push(o, p, calls)
            return
        if line.opcode == old.opcode == "tuple":
            # a loop that carries more or less than before
            named = {(x.dense, x.op_name): p for p in b if (x := walk.line[p]).op_name}
            for o in a:
                x = walk.present(o)
                if (x.dense, x.op_name) in named:
                    self._push(o, named[x.dense, x.op_name], calls)
            return
        if (line.opcode in CUTTING or is_collective(line.opcode)) and a:
            self._push(a[1 if line.opcode == "select" and len(a) == 3 else 0], y, calls)
        elif _passes(line) and len(a) == 1 and self._skips(line, old):
            self._push(a[0], y, calls)
        elif _passes(old) and len(b) == 1:
            self._push(n, b[0], calls)


def _result(
    name: str,
    bodies: Mapping[str, Body],
    places: Mapping[str, int],
    alive: Mapping[int, Mapping[str, int]],
) -> int | None:
    """The node that a computation returns."""
    if name not in bodies:
        return None
    nodes = alive[places[name]]
    return next((nodes[x.name] for x in reversed(bodies[name].lines) if x.root), None)


def _passes(line: Line) -> bool:
    """Whether the result has the operand's values; also custom calls that only state a
    sharding."""
    if line.opcode == "custom-call":
        return _SAYS_SHARDING.search(line.attributes) is not None
    return line.opcode in PASSING


def element(line: Line) -> int:
    """Which element a get-tuple-element takes; -1 if unknown."""
    found = _INDEX.search(line.attributes)
    return int(found[1]) if found else -1
