"""Runs candidates on an executor, stores the answers, and says how long it will take."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor, as_completed
from typing import Any

from ...processes.worker import close_all
from .compiling import evaluate
from .options import CandidateOptions
from .progress import Progress, terminal_progress
from .store import Store

Job = tuple[str, dict[str, Any], dict[str, Any]]  # key, what decides its answer, task


class SearchCancelled(Exception):
    """The user cancelled."""


class Runner:
    """``run`` returns answers in the order of the jobs, whatever order they came in."""

    def __init__(self, options: CandidateOptions) -> None:
        self._own = options.executor is None
        self.store = Store(options.store) if options.store is not None else None
        # each thread has a process of its own
        self.executor = options.executor or ThreadPoolExecutor(options.threads)
        self.progress = options.progress or terminal_progress()
        self.asked = self.done = self.from_store = self.compiled = 0
        self._start = time.monotonic()
        self._compiling = 0.0

    def run(self, jobs: Sequence[Job]) -> list[dict[str, Any] | None]:
        """The answers; a cancel raises ``SearchCancelled``; ``partial`` has those so far."""
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
            self._report()
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
                self._report()
        except (KeyboardInterrupt, SearchCancelled):
            for future in waiting:
                future.cancel()
            self._end()
            self.partial = answers
            raise SearchCancelled from None
        return answers

    partial: Sequence[dict[str, Any] | None] = ()

    def _report(self) -> None:
        if self.progress is None:
            return
        left = None
        if self.compiled:
            left = self._compiling / self.compiled * (self.asked - self.done)
        now = Progress(self.done, self.asked, self.from_store, time.monotonic() - self._start, left)
        if self.progress(now) is False:
            raise SearchCancelled

    def close(self) -> None:
        """Ends what this started, and closes the store; a given executor is left alone."""
        if self.store is not None:
            self.store.close()
        self._end()

    def _end(self) -> None:
        if self._own:
            close_all()
            self.executor.shutdown(wait=False, cancel_futures=True)


def _answer(future: Future[dict[str, Any]]) -> dict[str, Any]:
    try:
        return future.result()
    except Exception as error:  # the worker itself is gone: only its candidate is lost
        first = (str(error).strip().splitlines() or [""])[0]
        return {"error": f"crashed: {type(error).__name__}: {first}"[:300], "is_lost": True}


def ray_executor(ray: Any) -> Executor:
    """An ``Executor`` over Ray: ``executor=ray_executor(ray)`` after ``ray.init()``."""
    remote = ray.remote(evaluate)

    class RayExecutor(Executor):
        def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
            made = remote if fn is evaluate else ray.remote(fn)
            found: Future[Any] = made.remote(*args, **kwargs).future()
            return found

    return RayExecutor()
