"""The options of a search and of a plan: what they try, and how their candidates are compiled."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .progress import Progress

METHODS = ("auto", "all", "search")


@dataclass(frozen=True, kw_only=True)
class CandidateOptions:
    """How candidates are compiled.

    executor: any ``concurrent.futures.Executor``; by default ``workers`` threads with a process
        each, one per core and at most 8. ``isolate=False`` compiles in the executor's own process:
        a crash ends it.
    timeout, memory_limit: seconds and bytes of a candidate's process (bytes on Linux only); a
        candidate that exceeds them fails alone.
    store: a file that keeps results as they come; the same search resumes from them.
    progress: called with ``Progress``; False cancels, and so does Ctrl+C: what is finished is kept.
    """

    executor: Executor | None = None
    workers: int | None = None
    isolate: bool = True
    timeout: float = 600.0
    memory_limit: float | None = None
    store: str | Path | None = None
    progress: Callable[[Progress], Any] | None = None

    @property
    def threads(self) -> int:
        """How many candidates this process has compiled at once, without an executor."""
        if not self.isolate:
            return 1  # this process compiles, one after another
        return self.workers or min(os.cpu_count() or 1, 8)


@dataclass(frozen=True, kw_only=True)
class SearchOptions(CandidateOptions):
    """Options of ``hs.search_shardings``, and how its candidates are compiled.

    budget: the most candidates to compile. method: "all" compiles everything, "search" lets costs
        decide, "auto" does all where the budget allows.
    carry: results with the structure and shapes of an argument, such as new parameters, are
        sharded like it, so that a step can follow a step; False leaves results to XLA.
    measure: runs that many of the best ``runs`` times each on attached devices, afterwards.
    kwargs, donate_argnums, compiler_options: as for ``jax.jit`` and ``hs.capture``.

    Raises ``ValueError`` for a budget below 1 and an unknown method.
    """

    budget: int = 200
    method: str = "auto"
    carry: bool = True
    measure: int = 0
    runs: int = 8
    kwargs: Mapping[str, Any] | None = None
    donate_argnums: Sequence[int] = ()
    compiler_options: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        if self.method not in METHODS:
            raise ValueError(f"method is {self.method!r}; there are {', '.join(METHODS)}")
        if self.budget < 1:
            raise ValueError(f"budget is {self.budget}; at least one candidate is looked at")


@dataclass(frozen=True, kw_only=True)
class ProofOptions(CandidateOptions):
    """Options of ``cap.findings.prove`` and ``hs.compare``.

    One after another in this process, unless ``isolate`` or an ``executor`` is given: a process
    takes seconds to start, and traces the program anew.
    """

    isolate: bool = False


@dataclass(frozen=True, kw_only=True)
class StageOptions(CandidateOptions):
    """Options of ``hs.plan_stages``, and how its candidates are compiled.

    longest: the most layers of a stage. all_devices: whether every device must be used.
    optimizer_share: bytes of optimizer state per byte of parameters: 2 is Adam's.
    """

    longest: int | None = None
    all_devices: bool = True
    optimizer_share: float = 2.0
