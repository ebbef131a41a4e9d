"""Whether the command was interrupted, whatever became of the exception.

An extension module that is being imported reports an interrupt as an error of its own.
"""

from __future__ import annotations

import signal
import threading
from types import FrameType

_seen: list[int] = []


def watch() -> None:
    """Notes interrupts from now on; they raise ``KeyboardInterrupt`` as before."""
    usual = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if usual and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, _noted)


def _noted(number: int, frame: FrameType | None) -> None:
    _seen.append(number)
    signal.default_int_handler(number, frame)


def were_seen() -> bool:
    """Whether an interrupt has come."""
    return bool(_seen)
