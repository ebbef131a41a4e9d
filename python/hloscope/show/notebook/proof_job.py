"""Advice that a live widget has tried: compiled in a thread, with progress; can be cancelled.

    browser  {kind: "prove", id, rule, title}    ──▶  a thread
             {kind: "progress", id, words}       ◀──  as it goes
             {kind: "proved", id, findings}      ◀──  all findings, as in the View
             {kind: "error", id, message}        ◀──  or why not
    browser  {kind: "cancel", id}                ──▶  ends after the compile that is running

    browser  {kind: "tried", id, rule, title,    ──▶  the program of a proof, the ``way``-th of its
              way, as: "program" | "diff"}            finding, compiled once more
             {kind: "page", id} and one buffer   ◀──  as a page, or beside the program as it is,
             with ``findings`` that have the difference as text, which stays

What was tried until then is kept.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from .. import blocks

if TYPE_CHECKING:
    from ...api.capture import Capture
    from ...api.compared import Comparison
    from ...plan.running.progress import Progress

Send = Callable[..., None]

# Of a difference that stays in a notebook: instructions of each kind, and characters.
DIFF_ROWS, DIFF_CHARACTERS = 8, 12_000


class ProofJobs:
    """The jobs of one widget; one compiles at a time. ``kept`` is called after each."""

    def __init__(self, capture: Capture, send: Send, kept: Callable[[], None]) -> None:
        self._capture, self._send, self._kept = capture, send, kept
        self._stops: dict[Any, threading.Event] = {}
        self._turn = threading.Lock()
        self._last: tuple[tuple[str, str, int], Capture] | None = None  # the last program tried

    def start(self, name: Any, rule: str, title: str) -> threading.Thread:
        """Starts the job that the browser calls ``name``."""
        stop = self._stops[name] = threading.Event()
        thread = threading.Thread(target=self._run, args=(name, (rule, title), stop), daemon=True)
        thread.start()
        return thread

    def open(self, name: Any, rule: str, title: str, way: int, shown_as: str) -> threading.Thread:
        """Starts the job that shows a changed program, ``shown_as`` "program" or "diff"."""
        key = rule, title, way
        self._stops[name] = threading.Event()
        thread = threading.Thread(target=self._page, args=(name, key, shown_as), daemon=True)
        thread.start()
        return thread

    def _page(self, name: Any, key: tuple[str, str, int], shown_as: str) -> None:
        from ...api.compared import diff

        try:
            with self._turn:
                changed = self._changed(key)
                answer: dict[str, Any] = {"kind": "page", "id": name}
                if shown_as == "diff":
                    made = diff(self._capture, changed)
                    page = made.html()
                    self._keep_diff(key, made)
                    answer["findings"] = blocks.findings(self._capture)
                else:
                    page = changed.html()
                if not self._stops[name].is_set():
                    self._send(answer, [page.encode()])
        except Exception as error:
            message = f"{type(error).__name__}: {error}"
            self._send({"kind": "error", "id": name, "message": message})
        finally:
            self._stops.pop(name, None)

    def _keep_diff(self, key: tuple[str, str, int], made: Comparison) -> None:
        """Puts the difference into its proof, as text."""
        rule, title, way = key
        text = made.as_text(DIFF_ROWS)
        if len(text) > DIFF_CHARACTERS:
            text = text[:DIFF_CHARACTERS].rpartition("\n")[0] + "\n…"
        proofs = list(self._capture.for_hosts.proofs.get((rule, title), ()))
        if way < len(proofs):
            proofs[way] = replace(proofs[way], diff=text)
            self._capture.for_hosts.keep_proofs({(rule, title): tuple(proofs)})
            self._kept()

    def _changed(self, key: tuple[str, str, int]) -> Capture:
        """The program with the changes of a proof. Raises ``ValueError`` where there is none."""
        if self._last is not None and self._last[0] == key:
            return self._last[1]
        rule, title, way = key
        for finding in self._capture.findings:
            if (finding.rule, finding.title) == (rule, title) and way < len(finding.proofs):
                changed = self._capture.what_if(**finding.proofs[way].asked)
                self._last = key, changed
                return changed
        raise ValueError("this was not tried: press Try it first")

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
