"""What an inferred identity rests on."""

from __future__ import annotations

from enum import IntEnum


class How(IntEnum):
    """What an identity rests on, the surest first."""

    FIRST = 0
    ONLY = 1
    NEIGHBOURS = 2
    ORDER = 3

    def __str__(self) -> str:
        return ("by its name", "by its op name", "by its neighbours", "by order, a guess")[self]
