"""Keeps a compiling process for each thread that asks, and survives whatever happens to it.

A thread here, or a worker of Dask or Ray, runs a candidate by calling ``evaluate``: it gives the
job to its own child process, waits, and kills a child that takes too long or too much memory. So
a crash costs one candidate under every executor.
"""

from __future__ import annotations

import contextlib
import os
import queue
import subprocess
import sys
import threading
import time
import weakref
from pathlib import Path
from typing import Any

from .child import READY, read_message, run, write_message

# Seconds between two checks of how much memory a child holds.
LOOK = 0.2
# Seconds that a child has to start and import jax, whatever a candidate's timeout is.
START = 300.0
# An unused child of a foreign executor's worker ends after this many seconds.
IDLE = 120.0

_local = threading.local()
_all: weakref.WeakSet[Child] = weakref.WeakSet()


class Child:
    """A process that compiles, restarted after it was lost."""

    def __init__(self, environment: dict[str, str], path: list[str]) -> None:
        self.environment, self.path = environment, path
        self._process: subprocess.Popen[bytes] | None = None
        self._answers: queue.Queue[Any] = queue.Queue()
        self._timer: threading.Timer | None = None
        self._is_ready = False  # the process has imported jax
        _all.add(self)

    def _start(self) -> subprocess.Popen[bytes]:
        folder = str(Path(__file__).resolve().parents[3])
        environment = {**os.environ, **self.environment}
        given = environment.get("PYTHONPATH")
        environment["PYTHONPATH"] = folder + (os.pathsep + given if given else "")
        process = subprocess.Popen(
            [sys.executable, "-m", "hloscope.plan.running.child"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            env=environment,
        )  # fmt: skip
        answers: queue.Queue[Any] = queue.Queue()

        def listen() -> None:
            assert process.stdout is not None
            with contextlib.suppress(Exception):
                while (message := read_message(process.stdout)) is not None:
                    answers.put(message)
            answers.put(None)

        threading.Thread(target=listen, daemon=True).start()
        self._answers, self._process, self._is_ready = answers, process, False
        assert process.stdin is not None
        write_message(process.stdin, {"path": self.path})
        return process

    def ask(self, job: dict[str, Any], timeout: float, memory: float | None) -> dict[str, Any]:
        """The child's answer; if something happened to the child, an error in its place."""
        if self._timer is not None:
            self._timer.cancel()
        process = self._process
        try:
            if process is None or process.poll() is not None:
                process = self._start()
            assert process.stdin is not None
            write_message(process.stdin, job)
        except (OSError, BrokenPipeError) as error:
            self.close()
            return {"error": f"the compiling process could not be reached: {error}"}
        starting = not self._is_ready
        until = time.monotonic() + (START if starting else timeout)
        while True:
            try:
                answer = self._answers.get(timeout=LOOK)
            except queue.Empty:
                held = _resident(process.pid)
                if memory is not None and held is not None and held > memory:
                    self.close()
                    return {
                        "error": f"out of memory: its process held {held / 2**30:.2f} GiB, more "
                        f"than memory_limit={memory / 2**30:.2f} GiB"
                    }
                if time.monotonic() > until:
                    self.close()
                    if starting:
                        return {"error": f"hung: its process did not start within {START:g} s"}
                    return {"error": f"hung: no result after timeout={timeout:g} s"}
                continue
            if answer == READY:
                self._is_ready, starting = True, False
                until = time.monotonic() + timeout
                continue
            if answer is None:
                self.close()
                return {"error": f"crashed: {_death(process.wait())}"}
            self._timer = threading.Timer(IDLE, self.close)
            self._timer.daemon = True
            self._timer.start()
            assert isinstance(answer, dict)
            return answer

    def close(self) -> None:
        """Ends the process, at once."""
        if self._timer is not None:
            self._timer.cancel()
        process, self._process = self._process, None
        if process is None:
            return
        process.kill()
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()
        process.wait()


def evaluate(task: dict[str, Any]) -> dict[str, Any]:
    """One candidate, in a child of this thread or, with ``isolate`` false, right here."""
    job = task["job"]
    if not task["isolate"]:
        functions = getattr(_local, "functions", None)
        if functions is None:
            functions = _local.functions = {}
        return run(job, functions)
    child = getattr(_local, "child", None)
    if child is None or child.environment != task["environment"]:
        if child is not None:
            child.close()
        child = _local.child = Child(task["environment"], task["path"])
    answer: dict[str, Any] = child.ask(job, task["timeout"], task["memory_limit"])
    return answer


def environment(platform: str, topology: str | None, devices: int) -> dict[str, str]:
    """Environment of a compiling process: the platform, and on CPU at least ``devices`` devices."""
    if topology is None and platform not in ("cpu", ""):
        return {"JAX_PLATFORMS": platform, "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    name = "--xla_force_host_platform_device_count"
    kept = [f for f in os.environ.get("XLA_FLAGS", "").split() if not f.startswith(name)]
    return {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": " ".join([*kept, f"{name}={devices}"])}


def close_all() -> None:
    """Ends every child of this process."""
    for child in list(_all):
        child.close()


def _resident(pid: int) -> float | None:
    """Bytes of memory a process holds; None where the system does not say (not Linux)."""
    try:
        with open(f"/proc/{pid}/statm") as f:
            return float(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError, AttributeError):
        return None


def _death(code: int) -> str:
    if code < 0:
        import signal

        with contextlib.suppress(ValueError):
            name = signal.Signals(-code).name
            more = ", perhaps out of memory" if name == "SIGKILL" else ""
            return f"its process was killed by {name}{more}"
    return f"its process ended with status {code}"
