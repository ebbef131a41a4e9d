"""``hs.run``: how long a function's runs take, without a capture to keep."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..api.hosts import host
from .entry import capture

if TYPE_CHECKING:
    from ..api.run_times import RunTimes


def run(
    fn: Any, *args: Any, runs: int = 20, hardware: str | None = None, **kwargs: Any
) -> RunTimes:
    """Compiles a function, runs it, and says at a glance how long a run takes.

    One run to warm up, then ``runs`` timed ones and a few under ``jax.profiler``: median and
    spread, the time of the call alone, how long the devices work and wait, beside the modelled
    time on ``hardware``. Prints a few lines; the last line of a cell is a view.
    ``hs.capture(fn, *args).run(*args)`` is the same and keeps the program. Raises
    ``CaptureError`` for arguments that are not arrays.

    >>> print(hs.run(step, params, batch))
    """
    with host("progress")(f"compiling {getattr(fn, '__name__', 'the function')}"):
        made = capture(fn, *args, hardware=hardware, **kwargs)
    return made.run(*args, runs=runs, **kwargs)
