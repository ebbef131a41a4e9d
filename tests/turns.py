"""Workers of a run that collect its tests one after another."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def in_turn(folder: Path) -> Iterator[None]:
    """One worker at a time collects the tests of a folder: the others find the bytecode it leaves.

    pytest compiles each test file, for 15 seconds in a new checkout, and so would every worker.
    """
    if "PYTEST_XDIST_TESTRUNUID" not in os.environ or os.name != "posix":
        yield
        return
    import fcntl

    with (folder / "conftest.py").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
