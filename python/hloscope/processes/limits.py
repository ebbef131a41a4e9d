"""What reading one file may take: the same in a notebook, on a command line and in JupyterLab.

A process of its own is limited by the system (``inside.py``). Elsewhere a thread looks at the
memory and the time that this thread's work takes, and stops it with an exception.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

GIB = 1 << 30
# Generous: a million instructions take 1 GiB and 10 seconds.
MEMORY_BYTES, CPU_SECONDS = 6 * GIB, 180
# Seconds between two looks.
_LOOK_SECONDS = 0.1
# Looks after which an exception that was sent is taken for lost, as in a finalizer's call, where
# Python drops it, and is sent again; and how often.
_LOOKS_UNTIL_LOST, _MOST_SENT = 5, 20
_here = threading.local()


class _Stop(BaseException):
    """Raised in the thread that works, wherever it is; never leaves ``within_limits``."""


class LimitReached(Exception):
    """Says what was reached, what the limit is and how to raise it."""


def limits() -> tuple[float, float]:
    """(bytes, seconds) from ``HLOSCOPE_MAX_GIB`` and ``HLOSCOPE_MAX_SECONDS``, or the defaults."""
    return _given("HLOSCOPE_MAX_GIB", MEMORY_BYTES / GIB) * GIB, _given(
        "HLOSCOPE_MAX_SECONDS", CPU_SECONDS
    )


def _given(name: str, default: float) -> float:
    with contextlib.suppress(ValueError):
        return float(os.environ.get(name, "")) or default
    return default


@contextmanager
def within_limits(what: str) -> Iterator[None]:
    """Raises ``LimitReached`` when the block takes more memory or CPU time than ``limits``.

    ``what`` begins the sentence: "reading step.hlo". Memory is what the process holds beyond what
    it held before (Linux only). Inside another such block it does nothing.
    """
    if getattr(_here, "is_watched", False):
        yield
        return
    watch = _Watch(what, *limits())
    _here.is_watched = True
    try:
        watch.start()
        try:
            yield
        finally:
            watch.finish()
    except _Stop:
        watch.end()
        raise LimitReached(watch.reached) from None
    finally:
        _here.is_watched = False


class _Watch:
    """Looks at one thread, and stops it."""

    def __init__(self, what: str, memory: float, seconds: float) -> None:
        self.what, self.memory, self.seconds = what, memory, seconds
        self.reached = ""
        self._thread = threading.get_ident()
        self._clock = _clock_of(self._thread)
        self._begun, self._held = self._clock(), resident_bytes(os.getpid())
        self._done = threading.Event()
        self._lock = threading.Lock()

    def start(self) -> None:
        threading.Thread(target=self._look, name="hloscope-limits", daemon=True).start()

    def finish(self) -> None:
        """Ends the watch. An exception that was sent and has not come yet comes in here."""
        self.end()
        if not self.reached or isinstance(sys.exc_info()[1], _Stop):
            return
        until = time.monotonic() + 1.0
        while time.monotonic() < until:
            time.sleep(0.001)
        raise _Stop  # it was lost

    def end(self) -> None:
        with self._lock:
            self._done.set()

    def _look(self) -> None:
        sent_before = 0  # looks since it was
        while not self._done.wait(_LOOK_SECONDS):
            taken = self._clock() - self._begun
            held = resident_bytes(os.getpid()) if self._held is not None else None
            more = held - self._held if held is not None and self._held is not None else 0.0
            if self.reached:
                sent_before += 1
                if sent_before % _LOOKS_UNTIL_LOST == 0:
                    self._stop(self.reached)
                if sent_before >= _LOOKS_UNTIL_LOST * _MOST_SENT:
                    return
            elif more > self.memory:
                self._stop(
                    f"{self.what} took {more / GIB:.1f} GiB of memory, and the limit is "
                    f"{self.memory / GIB:g}; set HLOSCOPE_MAX_GIB to allow more"
                )
            elif taken > self.seconds:
                self._stop(
                    f"{self.what} took {taken:.0f} s, and the limit is "
                    f"{self.seconds:g}; set HLOSCOPE_MAX_SECONDS to allow more"
                )

    def _stop(self, reached: str) -> None:
        with self._lock:
            if self._done.is_set():
                return
            import ctypes

            self.reached = reached
            ctypes.pythonapi.PyThreadState_SetAsyncExc(
                ctypes.c_ulong(self._thread), ctypes.py_object(_Stop)
            )


def _clock_of(thread: int) -> Callable[[], float]:
    """The CPU time of a thread; where the system does not say, the time of day."""
    if not hasattr(time, "pthread_getcpuclockid"):
        return time.monotonic
    clock = time.pthread_getcpuclockid(thread)
    return lambda: time.clock_gettime(clock)


def resident_bytes(pid: int) -> float | None:
    """Bytes of memory a process holds; None where the system does not say (not Linux)."""
    try:
        with open(f"/proc/{pid}/statm") as file:
            return float(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError, AttributeError):
        return None
