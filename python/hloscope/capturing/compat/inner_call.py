"""The call of jax.jit that a library makes when it traces or lowers a function of its own.

As in ``jax_api.py``, what has moved costs the detail, never the capture.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable, Iterator
from typing import Any

import jax

_lock = threading.Lock()
_here = threading.local()
_users = 0
_before: list[tuple[Any, str, Any]] = []


class _Traced(BaseException):
    """Ends a library's ``lower`` once jax has traced: all that follows is done by the capture."""


class InnerCall:
    """``leaves``: the flat arguments of the first call that reached jax.jit, None if unknown."""

    def __init__(self, given: Callable[[Any], Any]) -> None:
        self.given = given  # what jax gets for a leaf
        self.leaves: list[Any] | None = None
        self.arguments: tuple[tuple[Any, ...], dict[str, Any]] | None = None
        self.stops = False
        self.traced: Any = None

    def traced_by(self, lower: Callable[[], Any]) -> Any:
        """What ``lower`` makes jax trace, or what it returns if that is not to be seen."""
        self.stops = True
        try:
            return lower()
        except _Traced:
            return self.traced
        finally:
            self.stops = False


@contextlib.contextmanager
def recorded(given: Callable[[Any], Any]) -> Iterator[InnerCall]:
    """Records the first call of jax.jit's tracing in this thread."""
    global _users
    found = InnerCall(given)
    with _lock:
        if _users == 0:
            _put_in()
        _users += 1
    _here.call = found
    try:
        yield found
    finally:
        _here.call = None
        with _lock:
            _users -= 1
            if _users == 0:
                for owner, name, value in _before:
                    setattr(owner, name, value)
                _before.clear()


def _put_in() -> None:
    from jax._src import pjit

    infer = getattr(pjit, "_infer_params", None)
    if infer is not None:

        @functools.wraps(infer)
        def inferred(fun: Any, info: Any, args: Any, kwargs: Any) -> Any:
            call = getattr(_here, "call", None)
            if call is not None and call.leaves is None:
                call.leaves, call.arguments = jax.tree.leaves((args, kwargs)), (args, kwargs)
                args, kwargs = jax.tree.map(call.given, (args, kwargs))
            return infer(fun, info, args, kwargs)

        _before.append((pjit, "_infer_params", infer))
        pjit._infer_params = inferred  # type: ignore[assignment]
    lower = jax.stages.Traced.lower

    @functools.wraps(lower)
    def lowered(self: Any, *args: Any, **options: Any) -> Any:
        call = getattr(_here, "call", None)
        if call is None or not call.stops:
            return lower(self, *args, **options)
        call.traced = self
        raise _Traced

    _before.append((jax.stages.Traced, "lower", lower))
    jax.stages.Traced.lower = lowered  # type: ignore[method-assign]
