"""What recording Python calls needs from jax beyond its public API: see ``python_calls.py``.

As in ``_compat.py``, what has moved costs the detail, never the capture: ``tracing_context``
is None then.
"""

from __future__ import annotations

import contextlib
import functools
import io
import itertools
import re
import threading
from collections.abc import Callable, Iterator
from typing import Any

import jax

# Operations that only end a function or region, and those that hold the others: not numbered.
UNNUMBERED = frozenset(
    "builtin.module func.func func.return stablehlo.return sdy.mesh sdy.return".split()
)
_lock = threading.Lock()
_users = 0
_before: list[tuple[Any, str, Any]] = []


@functools.cache
def _context() -> Any:
    """A context that keeps what is traced in it out of jax's caches for everything else."""
    try:
        from jax._src import source_info_util as info
        from jax._src.interpreters import mlir

        if jax.__version_info__ < (0, 10):
            return None
        stack = info.NameStack(())
        usable = stack.stack == () and callable(info.current)
        usable = usable and callable(mlir.source_info_to_location)
        usable = usable and hasattr(info._source_info_context.context, "traceback")
        return jax.make_user_context(None) if usable else None
    except Exception:
        return None


def tracing_context() -> contextlib.AbstractContextManager[Any] | None:
    """Entered while tracing and lowering; None for a jax that this file does not know."""
    found = _context()
    name = getattr(_anew, "name", "hloscope")
    return None if found is None else found(name)  # type: ignore[no-any-return]


@contextlib.contextmanager
def traced_anew() -> Iterator[bool]:
    """Nothing that was traced before is used inside, nor later what is; False if jax cannot."""
    before = getattr(_anew, "name", "hloscope")
    _anew.name = f"hloscope {next(_times)}"
    try:
        context = tracing_context()
        with contextlib.nullcontext() if context is None else context:
            yield context is not None
    finally:
        _anew.name = before


_anew = threading.local()
_times = itertools.count(1)


@functools.cache
def is_user_file(name: str) -> bool:
    """Whether jax counts a file as its user's: neither jax nor the standard library."""
    from jax._src import source_info_util

    return source_info_util.is_user_filename(name)


@contextlib.contextmanager
def hooked(
    current: Callable[[], Any],
    location: Callable[[list[Any]], str],
    seen: Callable[[Any], bool],
    outside: Callable[[Any], Any],
) -> Iterator[None]:
    """Appends what ``current`` returns to name stacks, and writes it into locations.

    ``seen`` recognises such an element; ``outside`` returns one to put before another, where
    jax inlines an inner equation into the program that is being traced.

    The hooks are global to the process and do nothing in threads for which ``current`` returns
    None: the first caller installs them, the last one removes them.
    """
    global _users
    with _lock:
        if _users == 0:
            _put_in(current, location, seen, outside)
        _users += 1
    try:
        yield
    finally:
        with _lock:
            _users -= 1
            if _users == 0:
                for owner, name, value in _before:
                    setattr(owner, name, value)
                _before.clear()


def _put_in(
    current: Callable[[], Any],
    location: Callable[[list[Any]], str],
    seen: Callable[[Any], bool],
    outside: Callable[[Any], Any],
) -> None:
    from jax._src import source_info_util as info
    from jax._src.interpreters import mlir

    plain_current, plain_location = info.current, mlir.source_info_to_location
    plain_stack = info.current_name_stack
    ir: Any = mlir.ir  # type: ignore[attr-defined]

    class Info(info.SourceInfo):
        """A source info that keeps its last element when its name stack is replaced."""

        __slots__ = ("last",)
        last: Any

        def replace(self, *, traceback: Any = None, name_stack: Any = None) -> Any:
            traceback = self.traceback if traceback is None else traceback
            if name_stack is None:
                name_stack = self.name_stack
            elif self.last not in name_stack.stack:
                name_stack = info.NameStack((*name_stack.stack, self.last))
            else:
                return info.SourceInfo(traceback, name_stack)
            return _made(traceback, name_stack, self.last)

    def _made(traceback: Any, name_stack: Any, last: Any) -> Any:
        made = Info(traceback, name_stack)
        made.last = last
        return made

    def hooked_current() -> Any:
        found = plain_current()
        if info._source_info_context.context.traceback:
            return found  # derived from an equation, whose name stack has it
        last = current()
        if last is None:
            return found
        return _made(found.traceback, info.NameStack((*found.name_stack.stack, last)), last)

    class Outer(info.NameStack):
        """The name stack here, to which that of an inner equation is added."""

        __slots__ = ()

        def __add__(self, other: Any) -> Any:
            first = next((e for e in other.stack if seen(e)), None)
            if first is None or any(seen(e) for e in self.stack):
                return info.NameStack(self.stack + other.stack)
            before = outside(first)
            between = () if before is None else (before,)
            return info.NameStack((*self.stack, *between, *other.stack))

    def hooked_stack() -> Any:
        return Outer(plain_stack().stack)

    def hooked_location(ctx: Any, primitive: Any, name_stack: Any, traceback: Any) -> Any:
        mine = [e for e in name_stack.stack if seen(e)]
        if not mine:
            return plain_location(ctx, primitive, name_stack, traceback)
        plain = info.NameStack(tuple(e for e in name_stack.stack if not seen(e)))
        found = plain_location(ctx, primitive, plain, traceback)
        mark = location(mine) if isinstance(ctx, mlir.ModuleContext) else ""
        if not mark:
            return found
        kind, name, child = apart(found)
        again = ir.Location.name(f"{mark}/{name}" if name else mark, child)
        return ir.Location.name(kind, again) if kind else again

    for owner, name, value in (
        (info, "current", hooked_current),
        (info, "current_name_stack", hooked_stack),
        (mlir, "source_info_to_location", hooked_location),
    ):
        _before.append((owner, name, getattr(owner, name)))
        setattr(owner, name, value)


def apart(location: Any) -> tuple[str, str, Any]:
    """A location as ``kind(name(child))``; kind and name may be "".

    loc("add:"(loc("jit(f)/add"))): an op_type, then the op_name.
    """
    name = getattr(location, "name_str", None)
    if name is None:
        return "", "", location
    if name.endswith(":") and hasattr(location.child_loc, "name_str"):
        inner = location.child_loc
        return name, inner.name_str, inner.child_loc
    return "", name, location.child_loc


def module_of(lowered: Any) -> tuple[Any, Any] | None:
    """The MLIR module of a ``Lowered`` itself, and MLIR's Python bindings."""
    from jax._src.lib import mlir

    lowered = getattr(lowered, "lowered", lowered)
    module = getattr(getattr(lowered, "_lowering", None), "_hlo", None)
    return None if module is None else (module, mlir.ir)  # type: ignore[attr-defined]


def take_marks(module: Any, ir: Any, mark: re.Pattern[str]) -> list[tuple[int, ...]]:
    """Takes marks out of all locations; returns those of each operation, outermost first.

    Raises ``ValueError`` if one is left.
    """
    found: list[tuple[int, ...]] = []

    def plain(location: Any) -> tuple[list[str], Any]:
        kind, name, child = apart(location)
        hits = mark.findall(name)
        if hits:
            name = mark.sub("", name)
            location = ir.Location.name(name, child) if name else child
            location = ir.Location.name(kind, location) if kind else location
        return hits, location

    def visit(op: Any) -> Any:
        hits, location = plain(op.location)
        if op.name not in UNNUMBERED:
            found.append(tuple(map(int, hits)))
        if hits:
            op.location = location
        for region in op.regions:
            for block in region.blocks:
                for argument in block.arguments:
                    hits, location = plain(argument.location)
                    if hits:
                        argument.set_location(location)
        return ir.WalkResult.ADVANCE

    with module.context:
        module.operation.walk(visit, ir.WalkOrder.PRE_ORDER)
        data = io.BytesIO()
        module.operation.write_bytecode(data)
    if re.search(mark.pattern.encode(), data.getvalue()):
        raise ValueError("a location still has its mark")
    return found
