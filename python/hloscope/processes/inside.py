"""First steps of a child process: limits on itself, and a standard output for frames alone."""

from __future__ import annotations

import contextlib
import os
from typing import BinaryIO


def limit_this_process(memory: int, seconds: int) -> None:
    """Caps address space and CPU time, and forbids writing files, where the system can."""
    try:
        import resource
    except ImportError:  # Windows: the parent's clock is the only limit
        return
    for name, value in (
        (resource.RLIMIT_AS, memory),
        (resource.RLIMIT_CPU, seconds),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_CORE, 0),
    ):
        hard = resource.getrlimit(name)[1]
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        with contextlib.suppress(OSError, ValueError):  # macOS refuses some
            resource.setrlimit(name, (value, value))


def output_for_frames() -> BinaryIO:
    """The standard output, for frames alone: what libraries print goes to standard error."""
    frames = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    return frames
