"""A child that answers one job after another, and survives whatever happens to it.

parent ── J pickle ──▶ child      what it needs to begin, then jobs
       ◀── R ─────────            it is ready for jobs
       ◀── A pickle ──            one answer per job

A crash, a hang or too much memory costs one job: the next one gets a new process. Every thread that
asks has a child of its own, so that a pool of threads is a pool of processes, and so is a pool of
somebody else's processes.
"""

from __future__ import annotations

import contextlib
import pickle
import sys
import threading
import time
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from .child import Child, Start, TimeIsOver, TooMuchMemory
from .environment import with_this_package
from .frames import BadFrame, encode, read_frame
from .inside import output_for_frames

JOB, READY, ANSWER = b"J", b"R", b"A"
# Seconds that a child has to start and import what it needs, however short a job's time is.
START_SECONDS = 300.0
# A child without a job for as many seconds ends: workers of other executors are never closed.
IDLE_SECONDS = 120.0

_of_thread = threading.local()
_all: weakref.WeakSet[Worker] = weakref.WeakSet()


@dataclass(frozen=True, slots=True)
class JobLimits:
    """Limits of a job: wall time, and memory of its process (Linux only; None for any)."""

    seconds: float
    memory_bytes: float | None = None


class Worker:
    """A process that runs ``module`` as a program; started when it is needed.

    ``module`` calls ``serve``, whose ``begin`` gets ``hello``; ``environment`` is what its process
    has beside this one's.
    """

    def __init__(self, module: str, environment: Mapping[str, str], hello: Any) -> None:
        self.module, self.environment, self.hello = module, environment, hello
        self._child: Child | None = None
        self._is_ready = False
        self._timer: threading.Timer | None = None
        _all.add(self)

    def _running(self) -> Child:
        if self._child is None or not self._child.is_running:
            self.close()
            environment = with_this_package(self.environment)
            self._child = Child(Start([sys.executable, "-m", self.module], environment))
            self._is_ready = False
            self._child.send(JOB, pickle.dumps(self.hello))
        return self._child

    def ask(self, job: Any, limits: JobLimits) -> dict[str, Any]:
        """The answer; ``{"error": sentence, "is_lost": True}`` if the process did not survive."""
        self._stop_timer()
        try:
            child = self._running()
            child.send(JOB, pickle.dumps(job))
            return self._answer(child, limits)
        except OSError as error:
            trouble = f"the worker process could not be reached: {error}"
        except BadFrame as error:
            trouble = f"crashed: {error}"
        except TooMuchMemory as error:
            trouble = f"out of memory: {error}"
        except TimeIsOver:
            trouble = f"hung: no result after timeout={limits.seconds:g} s"
            if not self._is_ready:
                trouble = f"hung: its process did not start within {START_SECONDS:g} s"
        self.close()
        return {"error": trouble, "is_lost": True}

    def _answer(self, child: Child, limits: JobLimits) -> dict[str, Any]:
        until = time.monotonic() + (limits.seconds if self._is_ready else START_SECONDS)
        while (frame := child.receive(until, limits.memory_bytes)) is not None:
            kind, payload = frame
            if kind == READY:
                self._is_ready = True
                until = time.monotonic() + limits.seconds
                continue
            self._timer = threading.Timer(IDLE_SECONDS, self.close)
            self._timer.daemon = True
            self._timer.start()
            answer: dict[str, Any] = pickle.loads(payload)
            return answer
        ending = child.ending()
        self.close()
        return {"error": f"crashed: its process {ending}", "is_lost": True}

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def close(self) -> None:
        """Ends the process, at once."""
        self._stop_timer()
        child, self._child = self._child, None
        if child is not None:
            child.end()


def worker_of_this_thread(module: str, environment: Mapping[str, str], hello: Any) -> Worker:
    """The calling thread's own worker; a new one where another environment is asked for."""
    worker: Worker | None = getattr(_of_thread, "worker", None)
    if worker is None or (worker.module, worker.environment) != (module, environment):
        if worker is not None:
            worker.close()
        worker = _of_thread.worker = Worker(module, environment, hello)
    return worker


def close_all() -> None:
    """Ends every worker of this process."""
    for worker in list(_all):
        worker.close()


def serve(begin: Callable[[Any], Callable[[Any], dict[str, Any]]]) -> None:
    """The child's side: ``begin`` gets ``hello`` and returns what answers a job.

    Ends with its input. Prints of the work go to standard error, never among the answers.
    """
    jobs = sys.stdin.buffer
    answers = output_for_frames()

    def send(kind: bytes, payload: bytes = b"") -> None:
        answers.write(encode(kind, payload))
        answers.flush()

    with contextlib.suppress(BadFrame):  # the parent is gone in the middle of a job
        hello = read_frame(jobs)
        if hello is None:
            return
        answer = begin(pickle.loads(hello[1]))
        send(READY)
        while (job := read_frame(jobs)) is not None:
            send(ANSWER, pickle.dumps(answer(pickle.loads(job[1]))))
