"""Runs candidates on an executor, stores the answers, and says how long it will take."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from typing import Any

from .children import close_all, evaluate
from .store import Store

Job = tuple[str, dict[str, Any], dict[str, Any]]  # key, what decides its answer, task


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


class Cancelled(Exception):
    """The user cancelled."""


class Runner:
    """``run`` returns answers in the order of the jobs, whatever order they came in."""

    def __init__(
        self,
        executor: Executor | None,
        workers: int,
        isolate: bool,
        store: Store | None,
        progress: Callable[[Progress], Any] | None,
    ) -> None:
        self._own = executor is None
        # each thread has a process of its own; without those one thread compiles here
        self.executor = executor or ThreadPoolExecutor(workers if isolate else 1)
        self.store, self.progress = store, progress
        self.asked = self.done = self.from_store = self.compiled = 0
        self._start = time.monotonic()
        self._compiling = 0.0

    def run(self, jobs: Sequence[Job]) -> list[dict[str, Any] | None]:
        """The answers; a cancel raises ``Cancelled`` and leaves those so far in ``partial``."""
        answers: list[dict[str, Any] | None] = [None] * len(jobs)
        self.asked += len(jobs)
        waiting: dict[Future[dict[str, Any]], int] = {}
        began = time.monotonic()
        try:
            for n, (key, _, task) in enumerate(jobs):
                kept = self.store.get(key) if self.store is not None else None
                if kept is not None:
                    answers[n] = {**kept, "from_store": True}
                    self.done += 1
                    self.from_store += 1
                    continue
                waiting[self.executor.submit(evaluate, task)] = n
            self._tell()
            for future in as_completed(list(waiting)):
                n = waiting[future]
                answer = _answer(future)
                answers[n] = answer
                self.done += 1
                self.compiled += 1
                self._compiling += time.monotonic() - began
                began = time.monotonic()
                if self.store is not None:
                    self.store.put(jobs[n][0], jobs[n][1], answer)
                self._tell()
        except (KeyboardInterrupt, Cancelled):
            for future in waiting:
                future.cancel()
            self.close()
            self.partial = answers
            raise Cancelled from None
        return answers

    partial: Sequence[dict[str, Any] | None] = ()

    def _tell(self) -> None:
        if self.progress is None:
            return
        left = None
        if self.compiled:
            left = self._compiling / self.compiled * (self.asked - self.done)
        now = Progress(self.done, self.asked, self.from_store, time.monotonic() - self._start, left)
        if self.progress(now) is False:
            raise Cancelled

    def close(self) -> None:
        """Ends processes and threads that this started; a given executor is left alone."""
        if self._own:
            close_all()
            self.executor.shutdown(wait=False, cancel_futures=True)


def _answer(future: Future[dict[str, Any]]) -> dict[str, Any]:
    try:
        return future.result()
    except Exception as error:  # the worker itself is gone: only its candidate is lost
        first = (str(error).strip().splitlines() or [""])[0]
        return {"error": f"crashed: {type(error).__name__}: {first}"[:300]}


def terminal_progress() -> Callable[[Progress], Any] | None:
    """Writes progress to one line of a terminal; None if there is no terminal."""
    if not (sys.stderr is not None and sys.stderr.isatty()):
        return None

    def tell(now: Progress) -> None:
        with contextlib.suppress(OSError):
            sys.stderr.write(f"\r\x1b[K{now}")
            if now.done == now.asked:
                sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()

    return tell


def ray_executor(ray: Any) -> Executor:
    """An ``Executor`` over Ray: ``executor=ray_executor(ray)`` after ``ray.init()``."""
    remote = ray.remote(evaluate)

    class RayExecutor(Executor):
        def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
            made = remote if fn is evaluate else ray.remote(fn)
            found: Future[Any] = made.remote(*args, **kwargs).future()
            return found

    return RayExecutor()


def _clock(seconds: float) -> str:
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    return f"{whole // 60} min {whole % 60:02d} s"
