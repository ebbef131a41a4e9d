"""Calls of Python functions, one row per call, and which operations they made.

    step #1 ─ loss #1 ─ layer #1 ─ attention #1        operation 12: dot_general
                      ├ layer #2 ─ attention #2        operation 12 again, through another call
                      └ layer #3 …                     of the function that holds it

A function that jax traced once and the program uses three times (``jax.jit``,
``jax.checkpoint``) was called three times: the frames of the operation that uses it come
before those of the operations inside.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from ..texts.places import is_library
from .operations import Frame, Operation, Origin

# Calls within calls multiply: operations beyond this limit get no calls.
_MOST_CALLS = 200_000
_NO_CALL = re.compile(r"<(?:module|listcomp|genexpr|dictcomp|setcomp)>$")


@dataclass(frozen=True, slots=True)
class PythonCall:
    """One call of a function: the ``which``-th of ``of`` in this program, counted from 1.

    ``caller`` is the number of the call around it, -1 for none, ``called_at`` the line there;
    ``begins`` the line where the function is defined.
    """

    number: int
    function: str
    file: str
    begins: int
    caller: int
    called_at: int
    which: int = 1
    of: int = 1

    @property
    def name(self) -> str:
        """The function without its enclosing function: ``layer``, ``Block.__call__``."""
        return self.function.rpartition("<locals>.")[2]

    def __str__(self) -> str:
        if self.of == 1:
            return self.name
        return f"{self.name} (call {self.which} of {self.of})"


@dataclass(frozen=True, eq=False)
class PythonCalls:
    """Every call that made an operation, in order of tracing, callers before what they call."""

    rows: tuple[PythonCall, ...] = field(repr=False)
    _of: Callable[[Origin], int] = field(repr=False)
    _of_operation: Callable[[int], tuple[int, ...]] = field(repr=False)

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[PythonCall]:
        return iter(self.rows)

    def __getitem__(self, number: int) -> PythonCall:
        return self.rows[number]

    def of(self, origin: Origin) -> PythonCall | None:
        """The innermost call that an origin comes from; None where unknown."""
        found = self._of(origin)
        return self.rows[found] if found >= 0 else None

    def of_operation(self, number: int) -> tuple[PythonCall, ...]:
        """The innermost calls that an operation comes from: several for a shared one."""
        return tuple(self.rows[k] for k in self._of_operation(number) if k >= 0)

    def stack(self, call: PythonCall) -> tuple[PythonCall, ...]:
        """A call and the calls around it, outermost first."""
        out = [call]
        while out[-1].caller >= 0:
            out.append(self.rows[out[-1].caller])
        return tuple(out[::-1])


def python_calls(operations: Sequence[Operation]) -> PythonCalls:
    """The calls behind operations, from the frames of each and the calls that lead to it."""
    built = _Tree(operations)
    return PythonCalls(built.counted(), built.of, built.of_operation)


class _Tree:
    """A tree of the frames on every path to every operation, one node per distinct prefix."""

    def __init__(self, operations: Sequence[Operation]) -> None:
        self.operations = operations
        frames = {f for o in operations for f in o.frames}
        own = any(f.function and not is_library(f.file) for f in frames)
        self.counts = {f: _is_call(f, own) for f in frames}
        self.children: dict[tuple[int, int], int] = {}
        self.calls: list[PythonCall] = []
        self.columns: list[int] = []  # by call
        # by node; the root is node 0
        self.call = [-1]
        self.path: list[tuple[int, ...]] = [()]  # of the frames' numbers
        self.line = [0]  # of the user's code that called a library's frame
        self.node_of: dict[int, int] = {}  # call → its node
        self.users: dict[str, list[int]] = {}
        for o in operations:
            if o.callee:
                self.users.setdefault(o.callee, []).append(o.number)
        self.ways: dict[str, list[tuple[tuple[int, ...], int]]] = {}  # function → (calls, node)
        self.by_calls: dict[tuple[str, tuple[int, ...]], int] = {}
        self.leaf: dict[tuple[int, tuple[Frame, ...]], int] = {}
        self._walk()

    def _walk(self) -> None:
        held: dict[str, dict[tuple[Frame, ...], None]] = {}
        for o in self.operations:
            held.setdefault(o.function, {})[o.frames] = None
        for function in dict.fromkeys(o.function for o in self.operations):
            for calls, node in self._ways_to(function, ()):
                self.by_calls[function, calls] = node
                for frames in held[function]:
                    self.leaf[node, frames] = self._down(node, frames)

    def _ways_to(self, function: str, within: tuple[str, ...]) -> list[tuple[tuple[int, ...], int]]:
        if function in self.ways:
            return self.ways[function]
        found: list[tuple[tuple[int, ...], int]] = []
        if function == "main":
            found.append(((), 0))
        for number in self.users.get(function, ()):
            o = self.operations[number]
            if o.function in within or len(found) > _MOST_CALLS:
                continue
            for calls, node in self._ways_to(o.function, (*within, function)):
                if len(self.call) > _MOST_CALLS:
                    break
                # without frames the operation itself distinguishes this path
                frames = o.frames or (Frame(-1 - number),)
                found.append(((*calls, number), self._down(node, frames)))
        self.ways[function] = found
        return found

    def _down(self, node: int, frames: tuple[Frame, ...]) -> int:
        for frame in frames:
            key = node, frame.number
            below = self.children.get(key)
            if below is None:
                below = self.children[key] = len(self.call)
                self.path.append((*self.path[node], frame.number))
                counted = bool(self.counts.get(frame))
                # the line in a library that calls the user's function is not where the user did
                at = self.line[node] or frame.called_at
                self.line.append(0 if counted else at)
                call = self.call[node]
                if counted:
                    call = len(self.calls)
                    self.node_of[call] = below
                    self.columns.append(frame.column)
                    self.calls.append(
                        PythonCall(
                            call,
                            frame.function,
                            frame.file,
                            frame.begins,
                            self.call[node],
                            at,
                        )
                    )
                self.call.append(call)
            node = below
        return node

    def counted(self) -> tuple[PythonCall, ...]:
        """The calls in order of tracing, each with its place among those of its function."""
        in_time = sorted(range(len(self.calls)), key=lambda n: self.path[self.node_of[n]])
        number = {n: k for k, n in enumerate(in_time)} | {-1: -1}
        self.call = [number[c] for c in self.call]
        rows = [self.calls[n] for n in in_time]
        same: dict[tuple[str, int, str, int], list[int]] = {}
        for k, c in enumerate(rows):
            column = self.columns[in_time[k]]
            same.setdefault((c.file, c.begins, c.function, column), []).append(k)
        place = {k: (n + 1, len(all_)) for all_ in same.values() for n, k in enumerate(all_)}
        return tuple(
            replace(c, number=k, caller=number[c.caller], which=place[k][0], of=place[k][1])
            for k, c in enumerate(rows)
        )

    def of(self, origin: Origin) -> int:
        o = self.operations[origin.operation]
        node = self.by_calls.get((o.function, origin.calls))
        if node is None:
            ways = self.ways.get(o.function, [])
            if len(ways) != 1:
                return -1
            node = ways[0][1]
        return self._call_at(node, o.frames)

    def _call_at(self, node: int, frames: tuple[Frame, ...]) -> int:
        return self.call[self.leaf.get((node, frames), node)]

    def of_operation(self, number: int) -> tuple[int, ...]:
        o = self.operations[number]
        ways = self.ways.get(o.function, [])
        return tuple(dict.fromkeys(self._call_at(node, o.frames) for _, node in ways))


def _is_call(frame: Frame, own: bool) -> bool:
    """Whether a frame is a call to count; ``own``: there are functions outside libraries."""
    if not frame.function or _NO_CALL.search(frame.function):
        return False
    return not (own and is_library(frame.file))
