"""The live widget of a planning result: shows its view, and answers clicks."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import anywidget
import traitlets

from ..static import widget_module
from .front_end import Answers, json_data


class PlanWidget(anywidget.AnyWidget):  # type: ignore[misc]
    """A ``PlanView`` as a widget; see ``js/plan/widget.ts`` for its messages."""

    _view = traitlets.Unicode().tag(sync=True)
    _answers = traitlets.Bool().tag(sync=True)

    def __init__(self, view: Mapping[str, Any], answers: Answers | None = None) -> None:
        self._answer_with = answers
        super().__init__(
            _esm=widget_module("plan"),
            _view=json.dumps(json_data(view)),
            _answers=answers is not None,
        )
        self.on_msg(self._answer)

    def _answer(self, _widget: Any, content: Any, _buffers: Any) -> None:
        """Replies to {kind: "ask", id, what, values}; errors go back as text, never silently."""
        if not isinstance(content, dict) or content.get("kind") != "ask":
            return
        reply: dict[str, Any] = {"kind": "answer", "id": content.get("id")}
        try:
            if self._answer_with is None:
                raise ValueError("this view cannot answer requests")
            found = self._answer_with(str(content.get("what")), content.get("values") or {})
            if "view" in found:
                self._view = json.dumps(json_data(found["view"]))
            self.send({**reply, **json_data(found)})
        except Exception as error:
            said = (
                str(error) if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"
            )
            self.send({**reply, "kind": "error", "message": said})
