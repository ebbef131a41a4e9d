"""Which call of a Python function each equation comes from: the third call of ``layer``.

jax keeps code and line of every frame, not whether two are the same call. So while a program is
traced for a capture, each equation also carries the Python frames it was made under, as an
element of its name stack that adds nothing to the name:

    name stack     jit(step) · jvp · attention · (frames)       reads jit(step)/jvp(attention)
    frames         loss #1 ─ layer #3 ─ jnp.tanh                each number is one call

jax itself carries name stacks through gradients, ``scan``, ``remat`` and inlined functions, and
appends that of an inner jaxpr to that of the equation that holds it: together they are the
whole path to a call, even where the inner jaxpr was traced once and is used three times. The
call of jax's own function (``jax.checkpoint(f)(x)``) is one of the frames, to separate such uses.

The tracing happens under a context of its own (``jax.make_user_context``), so that what jax
caches for the user holds none of it. While lowering, the frames become a mark in front of an
operation's location, which is removed from the module before it is read.
"""

from __future__ import annotations

import contextlib
import re
import sys
import threading
import weakref
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from ...hlo.origins.operations import Frame
from ..compat import tracing as _compat

_USERS, _BOUNDARY = 1, 2
_OWN = str(Path(__file__).parents[2])
_MARK = re.compile("\x1fcall (\\d+)\x1f/?")
_MAKES_A_JAXPR = {"DynamicJaxprTrace", "eval_jaxpr"}  # of another one
_numbers = count(1)
_here = threading.local()


@dataclass(frozen=True, eq=False, slots=True)
class _Node:
    """A frame on the stack while tracing, below ``parent``; ``function`` is "" for jax's own."""

    number: int
    parent: _Node | None
    code: CodeType | None
    line: int  # of the caller, where it calls
    boundary: bool = False
    silent: bool = False  # inside of a kernel, whose scopes mean more than names
    root: _Node | None = None  # where the jaxpr begins


class _Called:
    """An element of a name stack that adds nothing to the name."""

    __slots__ = ("node",)

    def __init__(self, node: _Node) -> None:
        self.node = node

    def wrap(self, stack: list[str]) -> None:
        pass


@dataclass(eq=False)
class Recorder:
    """Keeps the frames of the last equation, and numbers those that are new.

    The frames are held until the next equation: otherwise a new frame could get the identity
    of one that is gone.
    """

    chain: list[tuple[FrameType, _Node]] = field(default_factory=list)
    at: dict[FrameType, int] = field(default_factory=dict)
    kinds: dict[CodeType, int] = field(default_factory=dict)

    def here(self, frame: FrameType | None) -> _Node | None:
        """The node of the innermost frame; None if no frame of the user's is inside."""
        new: list[tuple[FrameType, int, int]] = []
        inner: FrameType | None = None
        known = -1
        line = 0
        while frame is not None:
            code = frame.f_code
            kind = self.kinds.get(code)
            if kind is None:
                kind = self.kinds[code] = _kind(code)
            if kind:
                if kind == _USERS and inner is not None:
                    known = self.at.get(inner, -1)
                    if known >= 0:
                        break
                    new.append((inner, 0, frame.f_lineno))
                known = self.at.get(frame, -1)
                if known >= 0:
                    break
                new.append((frame, kind, 0))
                inner = None
            else:
                inner = frame
            frame = frame.f_back
        for gone, _ in self.chain[known + 1 :]:
            del self.at[gone]
        del self.chain[known + 1 :]
        for added, kind, line in reversed(new):
            self._add(added, kind, line)
        innermost = self.chain[-1][1] if self.chain else None
        return None if innermost is None or innermost.boundary or innermost.silent else innermost

    def _add(self, frame: FrameType, kind: int, line: int) -> None:
        """``line`` of the caller, for a frame of jax's own that a frame of the user's calls."""
        caller, parent = self.chain[-1] if self.chain else (None, None)
        if kind == _USERS and caller is not None and parent is not None and not parent.boundary:
            line = parent.line if parent.code is None else caller.f_lineno
        begins = kind == _BOUNDARY
        silent = (parent is not None and parent.silent) or (begins and _in_kernel(frame))
        root = parent if parent is None or parent.boundary else parent.root
        code = frame.f_code if kind == _USERS else None
        self.at[frame] = len(self.chain)
        self.chain.append((frame, _Node(next(_numbers), parent, code, line, begins, silent, root)))


def _kind(code: CodeType) -> int:
    """Whose frame it is: the user's, one where jax begins a jaxpr, or 0."""
    if _compat.is_user_file(code.co_filename) and not code.co_filename.startswith(_OWN):
        return _USERS
    names = set(code.co_names)
    begins = names & {"reset_name_stack", "TracebackScope"} or names >= _MAKES_A_JAXPR
    return _BOUNDARY if begins and "jax" in code.co_filename else 0


def _in_kernel(frame: FrameType | None) -> bool:
    """Whether Pallas is making this jaxpr."""
    while frame is not None and not _compat.is_user_file(frame.f_code.co_filename):
        if "pallas" in frame.f_code.co_filename:
            return True
        frame = frame.f_back
    return False


@contextlib.contextmanager
def recording() -> Iterator[bool]:
    """Records the Python calls of tracing and lowering inside; False if jax cannot do it."""
    context = _compat.tracing_context()
    if context is None or getattr(_here, "recorder", None) is not None:
        yield False
        return
    _here.recorder = Recorder()
    try:
        with context, _compat.hooked(_current, _location, _seen, _outside):
            yield True
    finally:
        _here.recorder = None


def _current() -> _Called | None:
    """What to append to the name stack of an equation that is being made."""
    recorder = getattr(_here, "recorder", None)
    if recorder is None:
        return None
    node = recorder.here(sys._getframe(2))
    return None if node is None else _Called(node)


def _outside(element: _Called) -> _Called | None:
    """What to put before an equation of an inner jaxpr whose parts are being inlined here."""
    recorder = getattr(_here, "recorder", None)
    if recorder is None:
        return None
    node = recorder.here(sys._getframe(2))
    return None if node is None or node.root is element.node.root else _Called(node)


def _seen(element: Any) -> bool:
    return type(element) is _Called


def _location(elements: list[Any]) -> str:
    """The mark of an operation with these elements in its name stack."""
    marks: dict[tuple[_Node, ...], int] | None = getattr(_here, "marks", None)
    if marks is None or not elements:
        return ""
    number = marks.setdefault(tuple(e.node for e in elements), len(marks))
    return f"\x1fcall {number}\x1f"


# By id of lowered programs that jax still has: the frames of their operations.
_known: dict[int, tuple[tuple[Frame, ...], ...]] = {}


def lower(traced: Any) -> tuple[Any, tuple[tuple[Frame, ...], ...]]:
    """``traced.lower()`` inside ``recording``, and the frames of each operation.

    Operations are numbered as ``marks.py`` does; () for all where nothing is known.
    """
    _here.marks = {}
    try:
        lowered = traced.lower()
        known = _take_out(lowered, _here.marks)
    finally:
        _here.marks = None
    return lowered, known


def _take_out(lowered: Any, marks: dict[tuple[_Node, ...], int]) -> tuple[tuple[Frame, ...], ...]:
    found = _compat.module_of(lowered)
    if found is None:
        return ()
    module, ir = found
    if id(module) in _known:  # lowered for an earlier capture
        return _known[id(module)]
    frames = {
        number: tuple(f for node in nodes for f in _frames(node)) for nodes, number in marks.items()
    }
    rows = tuple(
        _once([f for n in numbers for f in frames.get(n, ())])
        for numbers in _compat.take_marks(module, ir, _MARK)
    )
    _known[id(module)] = rows
    weakref.finalize(module, _known.pop, id(module), None)
    return rows


def _once(frames: list[Frame]) -> tuple[Frame, ...]:
    """No frame is inside itself: what jax put there twice is kept once."""
    out: list[Frame] = []
    for frame in frames:
        if frame in out:
            del out[out.index(frame) :]
        out.append(frame)
    return tuple(out)


def _column(code: CodeType) -> int:
    """Where a lambda's own code begins in its line; 0 for other functions."""
    if code.co_name != "<lambda>":
        return 0
    columns = (p[2] for p in code.co_positions() if p[0] == code.co_firstlineno)
    return next((c for c in columns if c), 0)


def _frames(node: _Node | None) -> list[Frame]:
    """The frames from where the jaxpr begins to a node, outermost first."""
    out: list[Frame] = []
    while node is not None and not node.boundary:
        code = node.code
        if code is None:
            out.append(Frame(node.number, called_at=node.line))
        else:
            name = getattr(code, "co_qualname", code.co_name)
            begins = code.co_firstlineno
            column = _column(code)
            out.append(Frame(node.number, name, code.co_filename, begins, node.line, column))
        node = node.parent
    return out[::-1]
