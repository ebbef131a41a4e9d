"""Lists and texts in sentences, cut where they are long."""

from __future__ import annotations

from collections.abc import Sequence


def listed(words: Sequence[str], most: int = 3) -> str:
    """``a, b, c and 2 more``."""
    return ", ".join(words[:most]) + and_more(len(words) - most)


def and_more(left: int) -> str:
    """`` and 1,234 more``; "" if nothing is left."""
    return f" and {left:,} more" if left > 0 else ""


def shortened(text: str, most: int = 300) -> str:
    """At most that many characters; "…" stands for the rest."""
    return text if len(text) <= most else f"{text[: most - 1]}…"
