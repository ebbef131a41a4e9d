"""Keep Python's cycle collector from running during an analysis."""

from __future__ import annotations

import gc
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


def uncollected(function: Callable[P, T]) -> Callable[P, T]:
    """Run ``function`` without cyclic garbage collection.

    A module of 100,000 instructions means millions of live objects; traversing them repeatedly,
    again, for hundreds of thousands of short-lived ones, took half of the time.
    """

    @wraps(function)
    def paused(*args: P.args, **kwargs: P.kwargs) -> T:
        enabled = gc.isenabled()
        gc.disable()
        try:
            return function(*args, **kwargs)
        finally:
            if enabled:
                gc.enable()

    return paused
