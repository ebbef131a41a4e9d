"""What an inferred identity is based on, and how certain that is."""

from __future__ import annotations

from enum import IntEnum


class How(IntEnum):
    """What an identity is based on, most certain first; none is more certain than its source.

    ``ORDER`` makes no claim: only the printed order separates equal ones. ``NONE`` is for what
    has no operation, since it has no op name: an argument, or what XLA made.
    """

    FIRST = 0
    ONLY = 1
    NEIGHBOURS = 2
    GUESSED = 3
    ORDER = 4
    NONE = 5

    def __str__(self) -> str:
        return (
            "by its name",
            "by its op name",
            "by its neighbours",
            "by neighbours that are guessed",
            "one of several equal operations",
            "no op name",
        )[self]

    @property
    def agreement(self) -> float:
        """How often it agreed with the marks, 0 to 1: the lowest of CPU, v5e and v5p.

        Printed by benchmarks/identity.py for the programs of our tests, 2026-11.
        """
        return _AGREEMENT[self]


_AGREEMENT = (1.0, 1.0, 0.97, 0.53, 0.5, 0.99)
