"""``watch``: which functions jax compiles in a part of a program, how long it takes, and why again.

jax reports all tracing, lowering and compiling through ``jax.monitoring``. The call that
missed its cache is on the stack at that moment, with its arguments:

    <module>  line 12        ─ the calling line
      cache_miss(*args)      ─ jax: function, options of jit, arguments
        …
          listener(event, seconds)

Nothing in jax is replaced. Where a version of jax uses other names, a compile is listed
without what changed.
"""

from __future__ import annotations

import re
import sys
import threading
import time
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.monitoring

from ...api.watched import FIRST, Compile, Watched
from ...hlo.texts.places import is_library
from ..cells import cells
from . import call as watch_call

_TRACE = "/jax/core/compile/jaxpr_trace_duration"
_LOWER = "/jax/core/compile/jaxpr_to_mlir_module_duration"
_COMPILE = "/jax/core/compile/backend_compile_duration"
_ASKED = "/jax/compilation_cache/compile_requests_use_cache"
_HIT = "/jax/compilation_cache/cache_hits"
_KEPT = "/jax/compilation_cache/cache_misses"  # a miss whose program was written to the cache
_OWN = str(Path(__file__).parents[2])
_JAX = str(Path(jax.__file__).parent)
UNKNOWN, SAME = "unknown", "the same"


class _Session:
    """One ``with`` block while it runs."""

    def __init__(self) -> None:
        self.seen = Watched()
        self.calls: list[tuple[Compile, watch_call.SeenCall | None]] = []
        self.began = time.perf_counter()
        self.thread = threading.get_ident()
        self.busy = False
        self.pending: dict[str, dict[str, float]] = {}
        self.cache: set[str] = set()  # events of the persistent cache since the last compile

    def heard(self, event: str, seconds: float, name: str) -> None:
        key = name.removeprefix("jit(").removesuffix(")") if name.startswith("jit(") else name
        if event != _COMPILE:
            self.pending.setdefault(key, {})[event] = seconds
            return
        times = self.pending.pop(key, {})
        events, self.cache = self.cache, set()
        found = _missed()
        if found is _OURS:
            return
        fn, info, args, kwargs, caller = found
        call = None
        if fn is not None:
            try:
                call = watch_call.see(fn, info, args, kwargs)
            except Exception:  # arguments of an unforeseen kind
                call = None
        place, library = _defined(fn)
        known = cells()
        place, caller = known.text(place), known.text(caller)
        causes, changed = self._why(key, place, call)
        found_one = Compile(
            key,
            place,
            caller,
            time.perf_counter() - self.began - seconds,
            times.get(_TRACE, 0.0),
            times.get(_LOWER, 0.0),
            seconds,
            causes,
            changed,
            library,
            *_cache(events, name, seconds),
            None if call is None or call.again is None else partial(_capture, call.again),
        )
        self.seen.everything.append(found_one)
        self.calls.append((found_one, call))

    def _why(
        self, name: str, place: str, call: watch_call.SeenCall | None
    ) -> tuple[tuple[str, ...], str]:
        earlier = [k for c, k in self.calls if (c.function, c.place) == (name, place)]
        if not earlier:
            return (FIRST,), "compiled for the first time"
        seen = [k for k in earlier if k is not None]
        if call is None or not seen:
            return (UNKNOWN,), "compiled again; what changed is unknown"
        nearest = min(
            (watch_call.differences(c, call) for c in reversed(seen)), key=lambda d: len(d)
        )
        if not nearest:
            words = (
                "compiled again though nothing that is compared here has changed: jax may no "
                "longer have had the first"
            )
            return (SAME,), words
        kinds = tuple(dict.fromkeys(kind for kind, _ in nearest))
        said = [words for _, words in nearest]
        more = f" and {len(said) - 3} more" if len(said) > 3 else ""
        return kinds, "; ".join(said[:3]) + more


def _cache(events: set[str], name: str, seconds: float) -> tuple[str, str]:
    """What the persistent cache did for a compile, and why a miss was one as far as it shows."""
    if _HIT in events:
        return "hit", ""
    if _ASKED not in events or not getattr(jax.config, "jax_compilation_cache_dir", None):
        return "", ""  # jax says that it asks also where there is no cache
    kept = _KEPT in events
    others = _others(name, kept)
    why = []
    if others == 0:
        why.append("no program of this name was in its folder")
    elif others is not None:
        there = f"{others:,} programs of this name were" if others > 1 else "one of this name was"
        why.append(f"{there} in its folder, of other content, options, devices or jax")
    least = getattr(jax.config, "jax_persistent_cache_min_compile_time_secs", None)
    if kept:
        why.append("it is kept now")
    elif least is not None and seconds < least:
        option = "jax_persistent_cache_min_compile_time_secs"
        why.append(f"nor is it kept now: it compiles in less than the {least:g} s of {option}")
    return "miss", "; ".join(why)


def _others(name: str, kept: bool) -> int | None:
    """How many programs of a name the cache had before; None where its folder cannot be listed."""
    folder = getattr(jax.config, "jax_compilation_cache_dir", None)
    if not folder or "://" in str(folder):
        return None
    # as jax names them: "jit(<lambda>)" is in "jit__lambda-<key>-cache"
    stem = re.sub(r"[^\w.-]", "_", name.removesuffix(")").replace("(", "_")).strip("_")
    stem = re.sub(r"_+", "_", stem)
    try:
        files = [p.name for p in Path(folder).iterdir()]
    except OSError:
        return None
    found = 0
    for file in files:
        match = _ENTRY.match(file)
        found += match is not None and re.sub(r"_+", "_", match[1]).strip("_") == stem
    return max(0, found - kept)


_ENTRY = re.compile(r"(.+)-[0-9a-f]{64}-cache\Z")
_OURS: Any = object()


def _missed() -> Any:
    """(function, jit's options, args, kwargs, caller) of the call on the stack.

    ``_OURS`` for hloscope's own compiles; no function where jax's call is not found.
    """
    frame: Any = sys._getframe(1)
    call: Any = None
    outside = ""  # the innermost line outside of jax, which may be another library's
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
            outside = outside or f"{file}:{frame.f_lineno}"
            if not is_library(file):
                return (*(call or (None, None, (), {})), f"{file}:{frame.f_lineno}")
        frame = frame.f_back
    return (*(call or (None, None, (), {})), outside)


def _inside(file: str) -> bool:
    return file.startswith(("<frozen", _python_folder()))


def _python_folder() -> str:
    return str(Path(threading.__file__).parent)


def _defined(fn: Any) -> tuple[str, bool]:
    """Where a function is defined, and whether that is in jax."""
    while hasattr(fn, "__wrapped__"):
        fn = fn.__wrapped__
    fn = getattr(fn, "func", fn)
    method = vars(type(fn)).get("__call__")  # a callable object, such as a model
    code = getattr(fn, "__code__", None) or getattr(method, "__code__", None)
    if code is None:
        return "", fn is None or str(getattr(fn, "__module__", "")).startswith("jax")
    return f"{code.co_filename}:{code.co_firstlineno}", code.co_filename.startswith(_JAX)


def _capture(again: tuple[Any, Any, Any], options: dict[str, Any]) -> Any:
    from ..entry import capture

    fn, args, kwargs = again
    return capture(fn, *args, **{**options, **kwargs})


_active: list[_Session] = []
_listening = False


def _listen() -> None:
    """One listener for the whole process: older versions of jax cannot remove it again."""
    global _listening
    if _listening:
        return
    _listening = True

    def listener(event: str, duration_secs: float, **about: str | int) -> None:
        if not _active or event not in (_TRACE, _LOWER, _COMPILE):
            return
        for session in tuple(_active):
            if session.thread == threading.get_ident() and not session.busy:
                session.busy = True  # compiles by the inspection itself must not be recorded
                try:
                    session.heard(event, duration_secs, str(about.get("fun_name", "")))
                finally:
                    session.busy = False

    def asked(event: str, **about: str | int) -> None:
        if event not in (_ASKED, _HIT, _KEPT):
            return
        for session in tuple(_active):
            if session.thread == threading.get_ident() and not session.busy:
                session.cache.add(event)

    jax.monitoring.register_event_duration_secs_listener(listener)
    jax.monitoring.register_event_listener(asked)


class watch:
    """Records what jax compiles in the ``with`` block, in this thread.

    >>> with hs.watch() as session:
    ...     train(params, batches)
    >>> print(session)

    ``session`` is a ``Watched``: one row per compile, each with what changed since the last compile
    of that function and the line that called it; ``session[1].capture()`` opens one.
    """

    def __enter__(self) -> Watched:
        _listen()
        self._session = _Session()
        _active.append(self._session)
        return self._session.seen

    def __exit__(self, *exc: object) -> None:
        _active.remove(self._session)
