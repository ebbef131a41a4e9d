"""The passes for a live widget: computed in a thread, with progress, and cancelled on request.

    browser  {kind: "passes", id}             ──▶  a thread
             {kind: "progress", id, done, of, words}  ◀──  as it goes
             {kind: "passes", id} + the block         ◀──  the timeline and the picture
             {kind: "cost", id, row, cost}            ◀──  FLOPs, bytes and peak, pass by pass
             {kind: "done", id}                       ◀──  or {kind: "error", id, message}
    browser  {kind: "cancel", id}             ──▶  ends at the next pass

    browser  {kind: "measure", id}            ──▶  a thread
             {kind: "times", id, times}               ◀──  or {kind: "error", id, message}

Compiling once more, for a capture that was made without ``passes=True``, cannot be stopped; what
comes after it can.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .. import blocks

if TYPE_CHECKING:
    from ...api.capture import Capture

Send = Callable[[dict[str, Any], list[bytes]], None]
# Seconds between two progress messages.
_EVERY = 0.2


class Cancelled(Exception):
    """The job is no longer wanted."""


class PassJobs:
    """The jobs of one widget; one runs at a time, a new one ends the last."""

    def __init__(self, capture: Capture, send: Send) -> None:
        self._capture, self._send = capture, send
        self._stops: dict[Any, threading.Event] = {}
        self._turn = threading.Lock()

    def start(self, name: Any, *, measure: bool = False) -> threading.Thread:
        """Starts the job that the browser calls ``name``; ``measure``: only the times."""
        self.cancel()
        stop = self._stops[name] = threading.Event()
        work = self._measure if measure else self._work
        thread = threading.Thread(target=self._run, args=(work, name, stop), daemon=True)
        thread.start()
        return thread

    def cancel(self, name: Any = None) -> None:
        """Ends a job, or all of them, before its next pass."""
        for known, stop in list(self._stops.items()):
            if name is None or known == name:
                stop.set()

    def _run(
        self, work: Callable[[Any, threading.Event], None], name: Any, stop: threading.Event
    ) -> None:
        try:
            with self._turn:
                work(name, stop)
        except Cancelled:
            self._send({"kind": "error", "id": name, "message": "cancelled"}, [])
        except Exception as error:
            message = f"{type(error).__name__}: {error}"
            self._send({"kind": "error", "id": name, "message": message}, [])
        finally:
            self._stops.pop(name, None)

    def _measure(self, name: Any, stop: threading.Event) -> None:
        from ...view.passes import pass_times

        self._capture.compile_time()
        if not stop.is_set():
            times = pass_times(self._capture.passes())
            self._send({"kind": "times", "id": name, "times": times}, [])

    def _work(self, name: Any, stop: threading.Event) -> None:
        capture = self._capture
        said = 0.0

        def tell(done: int, of: int, words: str) -> None:
            nonlocal said
            if stop.is_set():
                raise Cancelled
            now = time.monotonic()
            if now - said >= _EVERY or done == 0:
                said = now
                self._send(
                    {"kind": "progress", "id": name, "done": done, "of": of, "words": words}, []
                )

        if capture.for_hosts.passes_compile:
            tell(0, 0, "Compiling once more, to see every pass")
        passes = capture.passes(lambda done, of: tell(done, of, "Comparing the passes"))
        block = blocks.passes(capture, lambda done, of: tell(done, of, "Following instructions"))
        tell(len(passes), len(passes), "")
        self._send({"kind": "passes", "id": name}, [block])
        for row in passes.rows:
            tell(row.index, len(passes), "FLOPs, bytes and peak")
            if row.only_metadata:
                continue
            cost: dict[str, Any]
            try:
                cost = passes.cost(row, capture.target)
            except Exception as error:  # one pass that cannot be read must not hide the others
                cost = {"failed": f"{type(error).__name__}: {error}"}
            self._send({"kind": "cost", "id": name, "row": row.index, "cost": cost}, [])
        self._send({"kind": "done", "id": name}, [])
