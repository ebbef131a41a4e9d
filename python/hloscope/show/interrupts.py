"""Whether the command was interrupted, whatever became of the exception.

An extension module that is being imported reports an interrupt as an error of its own, and what
runs when an object is freed cannot raise at all: there the interrupt comes once more.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from types import FrameType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sys import UnraisableHookArgs

# Seconds until an interrupt that could not be raised is sent again.
AGAIN = 0.02
_seen: list[int] = []


def watch() -> None:
    """Notes interrupts from now on; they raise ``KeyboardInterrupt`` as before."""
    _seen.clear()
    usual = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if usual and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, _noted)
        sys.unraisablehook = _unraisable


def _noted(number: int, frame: FrameType | None) -> None:
    _seen.append(number)
    signal.default_int_handler(number, frame)


def _unraisable(given: UnraisableHookArgs) -> None:
    if not issubclass(given.exc_type, KeyboardInterrupt):
        sys.__unraisablehook__(given)
        return
    with contextlib.suppress(RuntimeError):  # Python is ending: no thread begins any more
        timer = threading.Timer(AGAIN, os.kill, (os.getpid(), signal.SIGINT))
        timer.daemon = True
        timer.start()


def end(status: int) -> None:
    """Ends this process without what Python does at its end, where jax is loaded.

    A compile that goes on in another thread would be waited for, and XLA's threads, when an
    interrupt came while they compiled, end with a segmentation fault (jaxlib 0.10).
    """
    if "jax" in sys.modules:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        os._exit(status)


def were_seen() -> bool:
    """Whether an interrupt has come."""
    return bool(_seen)
