"""``watch``: which functions jax compiles in a stretch of a program, how long, and why again.

jax tells every tracing, lowering and compiling through ``jax.monitoring``. The call that was
missing from its cache is on the stack at that moment, with its arguments:

    <module>  line 12        ─ the calling line
      cache_miss(*args)      ─ jax: function, options of jit, arguments
        …
          listener(event, seconds)

Nothing of jax is replaced. Where a version of jax names things otherwise, a compile is listed
without what changed.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import jax.monitoring

from . import watch_call
from .errors import CaptureError

if TYPE_CHECKING:
    import pandas

    from .._capture import Capture

_TRACE = "/jax/core/compile/jaxpr_trace_duration"
_LOWER = "/jax/core/compile/jaxpr_to_mlir_module_duration"
_COMPILE = "/jax/core/compile/backend_compile_duration"
_OWN = str(Path(__file__).resolve().parents[1])
_JAX = str(Path(jax.__file__).resolve().parent)
FIRST, UNKNOWN, SAME = "first", "unknown", "the same"


@dataclass(frozen=True, eq=False)
class Compile:
    """One compile. Seconds of tracing, lowering and compiling; ``at`` since watching began.

    ``causes``: what changed against the nearest earlier compile of the same function, such as
    ("shape",); ("first",) for the first, ("unknown",) where jax did not show the call.
    """

    function: str
    place: str  # where the function is defined: file:line
    caller: str  # the line that called it: file:line
    at: float
    trace_seconds: float
    lower_seconds: float
    compile_seconds: float
    causes: tuple[str, ...]
    changed: str
    of_library: bool  # a function of jax's own, such as one for ``x + 1`` outside of jit
    _call: watch_call.Call | None = field(default=None, repr=False)

    @property
    def seconds(self) -> float:
        return self.trace_seconds + self.lower_seconds + self.compile_seconds

    def capture(self, **options: Any) -> Capture:
        """What XLA made of it, by compiling it again as ``hs.capture`` does.

        Raises ``CaptureError`` where the call was not seen.
        """
        if self._call is None or self._call.again is None:
            raise CaptureError(f"the arguments of {self.function} were not seen")
        from .entry import capture

        fn, args, kwargs = self._call.again
        return capture(fn, *args, **{**options, **kwargs})

    def to_dict(self) -> dict[str, Any]:
        names = (
            "function", "place", "caller", "at", "trace_seconds", "lower_seconds",
            "compile_seconds", "changed", "of_library",
        )  # fmt: skip
        return {n: getattr(self, n) for n in names} | {"causes": list(self.causes)}

    def __str__(self) -> str:
        at = f" called at {_short(self.caller)}" if self.caller else ""
        return f"{self.function}{at}: {self.changed} ({_seconds(self.seconds)})"


class Watched:
    """The compiles that ``watch`` saw, in order; of jax's own functions only with ``library``."""

    def __init__(self) -> None:
        self.everything: list[Compile] = []
        self._began = time.perf_counter()
        self._thread = threading.get_ident()
        self._busy = False
        self._pending: dict[str, dict[str, float]] = {}

    @property
    def compiles(self) -> tuple[Compile, ...]:
        """Compiles of the person's own functions."""
        return tuple(c for c in self.everything if not c.of_library)

    @property
    def recompiles(self) -> tuple[Compile, ...]:
        """Those after the first of each function."""
        return tuple(c for c in self.compiles if c.causes != (FIRST,))

    def __len__(self) -> int:
        return len(self.compiles)

    def __iter__(self) -> Iterator[Compile]:
        return iter(self.compiles)

    def __getitem__(self, k: int) -> Compile:
        return self.compiles[k]

    def to_dict(self) -> dict[str, Any]:
        return {"compiles": [c.to_dict() for c in self.everything]}

    def to_pandas(self) -> pandas.DataFrame:
        """A row a compile."""
        import pandas

        return pandas.DataFrame([c.to_dict() for c in self.everything])

    def __str__(self) -> str:
        if not self.everything:
            return "nothing was compiled"
        functions: dict[tuple[str, str], list[Compile]] = {}
        for c in self.compiles:
            functions.setdefault((c.function, c.place), []).append(c)
        lines = []
        for (name, place), found in functions.items():
            total = _seconds(sum(c.seconds for c in found))
            times = f"{len(found)} time{'s' * (len(found) > 1)}"
            lines.append(f"{name} ({_short(place)}) was compiled {times}, {total}")
            for c in found:
                at = f", line {c.caller.rpartition(':')[2]}" if c.caller else ""
                split = "/".join(
                    _seconds(s) for s in (c.trace_seconds, c.lower_seconds, c.compile_seconds)
                )
                lines.append(f"  +{_seconds(c.at)}{at}: {c.changed} (trace/lower/compile {split})")
        own = [c for c in self.everything if c.of_library]
        if own:
            total = _seconds(sum(c.seconds for c in own))
            lines.append(f"and {len(own)} of jax's own small functions, {total}")
        return "\n".join(lines)

    __repr__ = __str__

    # -- while watching ---------------------------------------------------------------

    def _heard(self, event: str, seconds: float, name: str) -> None:
        key = name.removeprefix("jit(").removesuffix(")") if name.startswith("jit(") else name
        if event != _COMPILE:
            self._pending.setdefault(key, {})[event] = seconds
            return
        times = self._pending.pop(key, {})
        found = _missed()
        if found is _OURS:
            return
        fn, info, args, kwargs, caller = found
        call = None
        if fn is not None:
            try:
                call = watch_call.see(fn, info, args, kwargs)
            except Exception:  # arguments of a kind nobody thought of
                call = None
        place, library = _defined(fn)
        causes, changed = self._why(key, place, call)
        self.everything.append(
            Compile(
                key,
                place,
                caller,
                time.perf_counter() - self._began - seconds,
                times.get(_TRACE, 0.0),
                times.get(_LOWER, 0.0),
                seconds,
                causes,
                changed,
                library,
                call,
            )
        )

    def _why(
        self, name: str, place: str, call: watch_call.Call | None
    ) -> tuple[tuple[str, ...], str]:
        earlier = [c for c in self.everything if (c.function, c.place) == (name, place)]
        if not earlier:
            return (FIRST,), "compiled for the first time"
        seen = [c._call for c in earlier if c._call is not None]
        if call is None or not seen:
            return (UNKNOWN,), "compiled again; what changed is unknown"
        nearest = min(
            (watch_call.differences(c, call) for c in reversed(seen)), key=lambda d: len(d)
        )
        if not nearest:
            words = "compiled again for the same arguments: jax no longer had the first"
            return (SAME,), words
        kinds = tuple(dict.fromkeys(kind for kind, _ in nearest))
        said = [words for _, words in nearest]
        more = f" and {len(said) - 3} more" if len(said) > 3 else ""
        return kinds, "; ".join(said[:3]) + more


_OURS: Any = object()


def _missed() -> Any:
    """(function, jit's options, args, kwargs, caller) of the call on the stack.

    ``_OURS`` for hloscope's own compiles; no function where jax's call is not found.
    """
    frame: Any = sys._getframe(1)
    call: Any = None
    while frame is not None:
        code = frame.f_code
        file = code.co_filename
        if file.startswith(_OWN) and file != __file__ and call is None:
            return _OURS
        if code.co_name == "cache_miss" and file.startswith(_JAX):
            have = frame.f_locals
            if all(n in have for n in ("fun", "jit_info", "args", "kwargs")):
                call = have["fun"], have["jit_info"], have["args"], have["kwargs"]
        elif not file.startswith((_JAX, _OWN)) and (call is not None or not _inside(file)):
            return (*(call or (None, None, (), {})), f"{file}:{frame.f_lineno}")
        frame = frame.f_back
    return (*(call or (None, None, (), {})), "")


def _inside(file: str) -> bool:
    return file.startswith(("<frozen", _python_folder()))


def _python_folder() -> str:
    return str(Path(threading.__file__).resolve().parent)


def _defined(fn: Any) -> tuple[str, bool]:
    """Where a function is defined, and whether that is in jax."""
    while hasattr(fn, "__wrapped__"):
        fn = fn.__wrapped__
    fn = getattr(fn, "func", fn)
    method = vars(type(fn)).get("__call__")  # an object that is called, such as a model
    code = getattr(fn, "__code__", None) or getattr(method, "__code__", None)
    if code is None:
        return "", fn is None or str(getattr(fn, "__module__", "")).startswith("jax")
    return f"{code.co_filename}:{code.co_firstlineno}", code.co_filename.startswith(_JAX)


def _short(place: str) -> str:
    return place.replace("\\", "/").rpartition("/")[2]


def _seconds(value: float) -> str:
    return f"{value * 1e3:.0f} ms" if value < 1 else f"{value:.1f} s"


_active: list[Watched] = []
_listening = False


def _listen() -> None:
    """One listener for the whole process: older versions of jax cannot take it away again."""
    global _listening
    if _listening:
        return
    _listening = True

    def listener(event: str, duration_secs: float, **about: str | int) -> None:
        if not _active or event not in (_TRACE, _LOWER, _COMPILE):
            return
        for session in tuple(_active):
            if session._thread == threading.get_ident() and not session._busy:
                session._busy = True  # what is looked at must not be heard itself
                try:
                    session._heard(event, duration_secs, str(about.get("fun_name", "")))
                finally:
                    session._busy = False

    jax.monitoring.register_event_duration_secs_listener(listener)


class watch:
    """Records what jax compiles in the ``with`` block, in this thread.

    >>> with hs.watch() as session:
    ...     train(params, batches)
    >>> print(session)

    ``session`` is a ``Watched``: a row a compile, each with what changed since the last compile
    of that function and the line that called it; ``session[1].capture()`` opens one.
    """

    def __enter__(self) -> Watched:
        _listen()
        self._session = Watched()
        _active.append(self._session)
        return self._session

    def __exit__(self, *exc: object) -> None:
        _active.remove(self._session)
