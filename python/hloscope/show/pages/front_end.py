"""What goes to the front end: plain data that JSON can hold, and the function that answers."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

# (what, values) → {"view": PlanView} or {"html": page}; ``ValueError`` is shown to the user
Answers = Callable[[str, Mapping[str, Any]], dict[str, Any]]


def json_data(view: Any) -> Any:
    """The same data for JSON, which lacks NaN and infinity: they become null, unknown."""
    if isinstance(view, float):
        return view if math.isfinite(view) else None
    if isinstance(view, Mapping):
        return {str(k): json_data(v) for k, v in view.items()}
    if isinstance(view, (list, tuple)):
        return [json_data(v) for v in view]
    return view
