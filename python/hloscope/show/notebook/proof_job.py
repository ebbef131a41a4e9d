"""Advice that a live widget has tried: compiled in a thread, with progress; can be cancelled.

    browser  {kind: "prove", id, rule, title}    ──▶  a thread
             {kind: "progress", id, words}       ◀──  as it goes
             {kind: "proved", id, findings}      ◀──  all findings, as in the View
             {kind: "error", id, message}        ◀──  or why not
    browser  {kind: "cancel", id}                ──▶  ends after the compile that is running

What was tried until then is kept.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .. import blocks

if TYPE_CHECKING:
    from ...api.capture import Capture
    from ...plan.running.progress import Progress

Send = Callable[..., None]


class ProofJobs:
    """The jobs of one widget; one compiles at a time. ``kept`` is called after each."""

    def __init__(self, capture: Capture, send: Send, kept: Callable[[], None]) -> None:
        self._capture, self._send, self._kept = capture, send, kept
        self._stops: dict[Any, threading.Event] = {}
        self._turn = threading.Lock()

    def start(self, name: Any, rule: str, title: str) -> threading.Thread:
        """Starts the job that the browser calls ``name``."""
        stop = self._stops[name] = threading.Event()
        thread = threading.Thread(target=self._run, args=(name, (rule, title), stop), daemon=True)
        thread.start()
        return thread

    def cancel(self, name: Any) -> None:
        """Ends a job after the compile that is running."""
        if name in self._stops:
            self._stops[name].set()

    def _run(self, name: Any, key: tuple[str, str], stop: threading.Event) -> None:
        from ...plan.proving.prove import prove
        from ...plan.running.options import ProofOptions

        def tell(now: Progress) -> bool:
            words = f"Compiled {now.done} of {now.asked}"
            self._send({"kind": "progress", "id": name, "words": words})
            return not stop.is_set()

        try:
            with self._turn:
                prove(self._capture, ProofOptions(progress=tell), only=key)
                self._kept()
                found = blocks.findings(self._capture)
                self._send({"kind": "proved", "id": name, "findings": found})
        except Exception as error:
            message = f"{type(error).__name__}: {error}"
            self._send({"kind": "error", "id": name, "message": message})
        finally:
            self._stops.pop(name, None)
