"""What goes to the front end: plain data that JSON can hold, and the function that answers."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

# (what, values) → {"view": PlanView} or {"html": page}; ``ValueError`` is shown to the user
Answers = Callable[[str, Mapping[str, Any]], dict[str, Any]]


def opens(rows: Any, name: str) -> Answers:
    """Opens the capture of a row, or the comparison of two, as a page; ``name``: what a row is."""

    def answers(what: str, values: Mapping[str, Any]) -> dict[str, Any]:
        ids = [int(i) for i in values.get("ids", ())]
        if what == "open" and len(ids) == 1:
            return {"html": rows.capture(ids[0]).html()}
        if what == "diff" and len(ids) == 2:
            return {"html": rows.diff(*ids).html()}
        raise ValueError(f"select one {name} to open it, two to compare them")

    return answers


def json_data(view: Any) -> Any:
    """The same data for JSON, which lacks NaN and infinity: they become null, unknown."""
    if isinstance(view, float):
        return view if math.isfinite(view) else None
    if isinstance(view, Mapping):
        return {str(k): json_data(v) for k, v in view.items()}
    if isinstance(view, (list, tuple)):
        return [json_data(v) for v in view]
    return view
