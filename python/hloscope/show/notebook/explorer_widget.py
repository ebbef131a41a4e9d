"""The live widget: sends the View once, the rest on request, and follows the selection."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anywidget
import traitlets

from .. import blocks
from ..static import widget_module
from ..text import is_large
from .pass_job import PassJobs
from .proof_job import ProofJobs

if TYPE_CHECKING:
    from ...api.capture import Capture


def _at_once(capture: Capture) -> bytes:
    """Analyses that are quick are sent with the View, so that they need no idle kernel."""
    return b"" if is_large(capture) else blocks.analyses(capture)


def _of_passes(capture: Capture) -> str:
    if not capture.has_passes:
        return ""
    return "compile" if capture.for_hosts.passes_compile else "kept"


class HloscopeWidget(anywidget.AnyWidget):  # type: ignore[misc]
    """A capture as a widget. ``selection`` is what is selected in the browser, and settable.

    ``selection``: ``{"kind": "instruction"|"group"|"fold"|"computation"|"none", "index": int,
    "name": str}``. Raises ``RendererMissing`` in a checkout whose renderer was not built.
    """

    _view = traitlets.Bytes().tag(sync=True)
    _analyses = traitlets.Bytes().tag(sync=True)
    _options = traitlets.Dict().tag(sync=True)
    _place = traitlets.Unicode().tag(sync=True)
    _bookmarks: Any = traitlets.List().tag(sync=True)
    _passes = traitlets.Unicode().tag(sync=True)
    _measures = traitlets.Bool().tag(sync=True)
    _proves = traitlets.Bool().tag(sync=True)
    selection = traitlets.Dict().tag(sync=True)

    def __init__(self, capture: Capture, **options: Any) -> None:
        self._capture = capture
        super().__init__(
            _esm=widget_module("explorer"),
            _view=blocks.view(capture),
            _analyses=_at_once(capture),
            _options=options,
            _place=capture.for_hosts.place,
            _bookmarks=list(capture.bookmarks),
            _passes=_of_passes(capture),
            _measures=capture.for_hosts.program is not None and capture.has_passes,
            _proves=capture.for_hosts.program is not None and capture.stage == "optimized",
            selection={"kind": "none", "index": -1, "name": ""},
        )
        self._jobs = PassJobs(capture, self.send)
        self._proofs = ProofJobs(capture, self.send, self._keep_proofs)
        self.on_msg(self._answer)
        self.observe(self._keep, ["_place", "_bookmarks"])

    def _keep(self, change: Any) -> None:
        """Keeps place and bookmarks for pages and widgets made of the capture later."""
        if change["name"] == "_bookmarks":
            self._capture.bookmarks = list(change["new"])
        else:
            self._capture.for_hosts.place = change["new"]

    def _keep_proofs(self) -> None:
        """Puts them into what is saved with the notebook; the page keeps it with the output."""
        self._analyses = blocks.analyses(self._capture)

    def _answer(self, _widget: Any, content: Any, _buffers: Any) -> None:
        """Replies to {kind: "text", id} and the like; errors go back as text, never silently.

        {kind: "chip", id, chip} asks for the figures on another chip.
        {kind: "passes" | "measure" | "prove" | "tried" | "cancel", id} starts and ends a job; see
        pass_job.py and proof_job.py.
        """
        kind = content.get("kind") if isinstance(content, dict) else None
        if kind in ("passes", "measure"):
            self._jobs.start(content.get("id"), measure=kind == "measure")
        elif kind == "prove":
            rule, title = str(content.get("rule")), str(content.get("title"))
            self._proofs.start(content.get("id"), rule, title)
        elif kind == "tried":
            rule, title = str(content.get("rule")), str(content.get("title"))
            way, shown_as = int(content.get("way", 0)), str(content.get("as"))
            self._proofs.open(content.get("id"), rule, title, way, shown_as)
        elif kind == "cancel":
            self._jobs.cancel(content.get("id"))
            self._proofs.cancel(content.get("id"))
        if kind not in ("text", "analyses", "stages", "chip"):
            return
        reply: dict[str, Any] = {"kind": kind, "id": content.get("id")}
        try:
            if kind == "chip":
                found = blocks.for_chip(self._capture, str(content.get("chip")))
            else:
                found = blocks.BLOCKS[kind](self._capture)
            self.send(reply, [found])
        except Exception as error:
            message = f"{type(error).__name__}: {error}"
            self.send({**reply, "kind": "error", "message": message})
