"""What a terminal gets and a pipe does not: colours, and notices of slow work on standard error.

Colours follow NO_COLOR, FORCE_COLOR and TERM=dumb (https://no-color.org). They are put on whole
lines that are printable already, so nothing in a name can reach the terminal.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

BOLD, DIM, RED, GREEN, YELLOW = "1", "2", "31", "32", "33"


def colored(stream: TextIO) -> bool:
    """Whether to colour what goes to ``stream``."""
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    return is_terminal(stream) and os.environ.get("TERM") != "dumb"


def paint(line: str, style: str) -> str:
    return f"\x1b[{style}m{line}\x1b[0m" if line and style else line


@contextmanager
def working(what: str) -> Iterator[None]:
    """Shows ``what`` on standard error meanwhile, if that is a terminal, and erases it after."""
    if not what or not is_terminal(sys.stderr):
        yield
        return
    sys.stderr.write(what)
    sys.stderr.flush()
    try:
        yield
    finally:
        erase(sys.stderr)


def erase(stream: TextIO) -> None:
    """Removes the line that the cursor is on; a terminal that cannot gets a new one."""
    stream.write("\n" if os.environ.get("TERM") == "dumb" else "\r\x1b[K")
    stream.flush()


def is_terminal(stream: TextIO | None) -> bool:
    """Whether ``stream`` is one."""
    try:
        return stream is not None and stream.isatty()
    except ValueError:  # closed
        return False
