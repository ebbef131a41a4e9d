"""Lists in sentences, cut after a few words."""

from __future__ import annotations

from collections.abc import Sequence


def listed(words: Sequence[str], most: int = 3) -> str:
    """``a, b, c and 2 more``."""
    return ", ".join(words[:most]) + and_more(len(words) - most)


def and_more(left: int) -> str:
    """`` and 1,234 more``; "" if nothing is left."""
    return f" and {left:,} more" if left > 0 else ""
