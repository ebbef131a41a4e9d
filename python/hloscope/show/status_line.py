"""What is being done, for who waits for it: one line in a notebook or on a terminal.

::

    0 s            1 s                                  the end
    ├── nothing ───┼─ "run 7 of 20, 1 s", twice a second ─┤ the line is removed
"""

from __future__ import annotations

import contextvars
import os
import sys
import threading
import time
from contextlib import suppress
from typing import Any

from .notebook.widget import someone_is_there
from .terminal import erase, is_terminal

# Seconds: what is done sooner needs no word, and a clock that moves twice a second is seen to move.
_AFTER = 1.0
_EVERY = 0.5


class StatusLine:
    """``with StatusLine("compiling step") as say: say("run 2 of 20")``.

    Nothing is shown before a second has passed, nor where nobody would see it.
    """

    def __init__(self, what: str) -> None:
        self._what = what
        self._began = time.monotonic()
        self._done = threading.Event()
        self._thread: threading.Thread | None = None
        self._line: _Cell | _Terminal | None = None

    def __call__(self, what: str) -> None:
        self._what = what

    def __enter__(self) -> StatusLine:
        if someone_is_there():
            self._line = _Cell()
        elif is_terminal(sys.stderr) and os.environ.get("TERM") != "dumb":
            self._line = _Terminal()
        if self._line is not None:
            # a cell's output belongs to the request that this context knows
            context = contextvars.copy_context()
            self._thread = threading.Thread(target=context.run, args=(self._tick,), daemon=True)
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        if self._thread is not None:
            self._thread.join()
        if self._line is not None:
            with suppress(Exception):
                self._line.end()

    def _tick(self) -> None:
        line, wait = self._line, _AFTER
        while line is not None and not self._done.wait(wait):
            seconds = round(time.monotonic() - self._began)
            with suppress(Exception):  # a line less, and the work goes on
                line.show(f"{self._what}, {seconds:,} s")
            wait = _EVERY


class _Cell:
    """A line of a cell's output."""

    def __init__(self) -> None:
        self._handle: Any = None

    def show(self, text: str) -> None:
        from IPython.core.display_functions import display

        data = {"text/plain": text}
        if self._handle is None:
            self._handle = display(data, raw=True, display_id=True)
        else:
            self._handle.update(data, raw=True)

    def end(self) -> None:
        if self._handle is not None:  # an output cannot be taken back, but it can be empty
            self._handle.update({"text/html": ""}, raw=True)


class _Terminal:
    """A line of standard error."""

    def __init__(self) -> None:
        self._is_shown = False

    def show(self, text: str) -> None:
        erase(sys.stderr)
        sys.stderr.write(text)
        sys.stderr.flush()
        self._is_shown = True

    def end(self) -> None:
        if self._is_shown:
            erase(sys.stderr)
