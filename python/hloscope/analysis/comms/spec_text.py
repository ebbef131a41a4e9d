"""Shardings as text."""

from __future__ import annotations

from collections.abc import Sequence


def spec_words(spec: Sequence[Sequence[str]] | None) -> str:
    """``P('data', None)``; ``replicated`` if no dimension is sharded; ``unknown`` for None."""
    if spec is None:
        return "unknown"
    if not any(spec):
        return "replicated"
    parts = []
    for axes in spec:
        names = [f"'{a}'" for a in axes]
        one = names[0] if len(names) == 1 else f"({', '.join(names)})"
        parts.append(one if names else "None")
    return f"P({', '.join(parts)}{',' if len(parts) == 1 else ''})"
