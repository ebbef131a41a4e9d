"""A module as it was after one pass of the compiler."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from .module import Module


@dataclass(frozen=True, eq=False)
class Snapshot:
    """What XLA dumped after a pass: only passes that changed something leave one.

    ``passed`` is the pass that had just run, "" for the beginning of a pipeline; ``upcoming``
    the one that ran next. ``text`` and ``module`` read it on demand. ``operations``: numbers
    of the StableHLO operations that still had an instruction, None for a dump from elsewhere.
    """

    number: int
    pipeline: str
    passed: str
    upcoming: str
    size: int  # bytes of text
    text: Callable[[], str] = field(repr=False)
    module: Callable[[], Module] = field(repr=False)
    operations: frozenset[int] | None = field(default=None, repr=False)


class TimedPass(NamedTuple):
    """One run of a pass, as the compiler timed it; seconds since any moment.

    ``name`` is "" for the start of a pipeline.
    """

    pipeline: str
    name: str
    begin: float
    end: float
