"""How far a search is, and how it says so on a terminal."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a search is; ``seconds_left`` for what is asked for so far, None at the start."""

    done: int
    asked: int
    from_store: int
    seconds: float
    seconds_left: float | None

    def __str__(self) -> str:
        left = "" if self.seconds_left is None else f", {_clock(self.seconds_left)} left"
        kept = f", {self.from_store} from the store" if self.from_store else ""
        return f"{self.done} of {self.asked} candidates{kept}, {_clock(self.seconds)}{left}"


def terminal_progress() -> Callable[[Progress], Any] | None:
    """Writes progress to one line of a terminal; None if there is no terminal."""
    if not (sys.stderr is not None and sys.stderr.isatty()):
        return None

    def show(now: Progress) -> None:
        with contextlib.suppress(OSError):
            sys.stderr.write(f"\r\x1b[K{now}")
            if now.done == now.asked:
                sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()

    return show


def _clock(seconds: float) -> str:
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    return f"{whole // 60} min {whole % 60:02d} s"
