"""Which of many cases that prove the same a run takes: those of tests marked ``some``, and loops.

``@pytest.mark.some(8)`` on a parametrised test takes 8 of its cases; with several parameters each
value of each is among them, as far as the number allows. The choice hangs on names alone, so that
every run and every worker takes the same, and each test others: together they see the corpus.
``HLOSCOPE_TESTS=all`` takes all cases.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Hashable, Iterable, Mapping, Set

TAKES_ALL = os.environ.get("HLOSCOPE_TESTS") == "all"


def some_of(names: Iterable[str], count: int, test: str) -> list[str]:
    """``count`` of the names, in their order; ``test`` makes the choice one of its own."""
    given = list(names)
    taken = chosen({f"{test}[{n}]": {n} for n in given}, count)
    return [n for n in given if f"{test}[{n}]" in taken]


def chosen(cases: Mapping[str, Set[Hashable]], count: int) -> set[str]:
    """The cases to take, given what each has: first those with most that is not yet seen."""
    if TAKES_ALL or len(cases) <= count:
        return set(cases)
    left = sorted(cases, key=lambda c: hashlib.sha256(c.encode()).digest())
    taken: set[str] = set()
    seen: set[Hashable] = set()
    while len(taken) < count:
        best = max(left, key=lambda c: len(cases[c] - seen))  # the first of those
        left.remove(best)
        taken.add(best)
        seen |= cases[best]
    return taken
