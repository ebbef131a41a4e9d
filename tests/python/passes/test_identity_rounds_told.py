"""In which order what is in question is decided, and how ties are: ``identity_row.py``."""

from __future__ import annotations

from typing import Any

import pytest
from hloscope.analysis.passes.identity.how import How
from hloscope.analysis.passes.identity.row import Row
from identity_nodes import line, walk

A = line("%a = f32[4] add()", "f")


class Scripted(Row):
    """Ranks are given: node → (evidence, family) …; what is taken is written down."""

    def __init__(self, ranks: dict[int, Any]) -> None:
        super().__init__(walk(), 3)
        self.ranks = ranks
        self.open = [(n, "c") for n in ranks]
        self.told: list[str] = []

    def _rank(self, n: int, c: str) -> list[tuple[float, int]]:
        found = self.ranks[n]
        return found(self.told) if callable(found) else found

    def _rests_on(self, n: int, c: str, family: int) -> How:
        return How.NEIGHBOURS if family == 1 else How.GUESSED

    def _take(self, n: int, c: str, family: int, how: How) -> None:
        self.told.append(f"{n}:{family}:{how.name}")

    def _owners(self) -> None:
        pass

    def _in_order(self, every: bool) -> None:
        if self.open:
            self.told.append("all" if every else "one")
        self.open = [] if every else self.open[1:]


def lead(by: float) -> list[tuple[float, int]]:
    return [(10.0, 1), (10.0 - by, 2)]


ROUNDS: dict[str, tuple[dict[int, Any], str]] = {
    "clear": ({1: lead(5)}, "1:1:NEIGHBOURS"),
    "the clearest first": (
        {1: lead(0.75), 2: lead(1.5), 3: lead(3), 4: lead(5), 5: lead(4.5)},
        "4:1:NEIGHBOURS 3:1:NEIGHBOURS 5:1:NEIGHBOURS 2:1:NEIGHBOURS 1:1:NEIGHBOURS"),
    "one decides another": (
        {1: lambda told: lead(4 if told else 0), 2: lead(5), 3: lead(3)},
        "2:1:NEIGHBOURS 1:1:NEIGHBOURS 3:1:NEIGHBOURS"),
    "the clearest again after one is decided": (
        {1: lead(3), 3: lambda told: lead(5 if told else 0), 2: lead(5)},
        "2:1:NEIGHBOURS 3:1:NEIGHBOURS 1:1:NEIGHBOURS"),
    "the clearest again after one in order": (
        {1: lead(0), 2: lambda told: lead(3 if told else 0),
         3: lambda told: lead(5 if told else 0)},
        "one 3:1:NEIGHBOURS 2:1:NEIGHBOURS"),
    "no lead": ({1: lead(0.5)}, "one"),
    "the first in order, the others again": (
        {1: lead(0), 2: lambda told: lead(5 if told else 0)}, "one 2:1:NEIGHBOURS"),
    "one family waits for its caller": ({1: [(10.0, 1)]}, "one"),
    "no family": ({1: []}, "one"),
    "sixty rounds": (
        {k: lead(0) for k in range(20)}, " ".join(["one"] * 15 + ["all"])),
}  # fmt: skip


@pytest.mark.parametrize("what", ROUNDS)
def test_rounds(what: str) -> None:
    """Without a decision four rounds pass, one for each margin, before one is taken in order."""
    ranks, want = ROUNDS[what]
    found = Scripted(ranks)
    found._rounds()
    assert " ".join(found.told) == want


def test_what_waits_for_its_whole_is_not_ranked() -> None:
    found = Scripted({1: lead(9)})
    found._held.add((1, "c"))
    found._rounds()
    assert found.told == ["one"]


@pytest.mark.parametrize(
    ("guesses", "ranked", "how"),
    [
        (False, [], How.NEIGHBOURS),
        (True, [(5.0, 1), (4.25, 2)], How.NEIGHBOURS),
        (True, [(0.6, 1), (0.0, 2)], How.NEIGHBOURS),
        (True, [(5.0, 1), (4.5, 2)], How.GUESSED),
        (True, [(5.0, 2), (1.0, 1)], How.GUESSED),
        (True, [(5.0, 1), (1.0, 2), (0.0, 3)], How.NEIGHBOURS),
    ],
)
def test_what_it_rests_on(guesses: bool, ranked: list[tuple[float, int]], how: How) -> None:
    seen = []

    class Asked(Row):
        def _rank(self, n: int, c: str) -> list[tuple[float, int]]:
            seen.append(self._seen is self._sure)
            return ranked

    found = Asked(walk(), 3)
    found._guesses = guesses
    assert found._rests_on(1, "c", 1) is how
    assert seen == [True] * guesses, "only what is sure"
    assert found._seen is found._all


class Ordered(Row):
    """Families are given; what is taken is written down."""

    def __init__(self, families: dict[int, list[int]], ranks: dict[int, Any], **lines: Any) -> None:
        super().__init__(walk({n: (lines.get(f"n{n}", A), ()) for n in ranks}), 3)
        self.w.order = {y: y for ys in families.values() for y in ys}
        self.families, self.ranked = families, {(n, "c"): r for n, r in ranks.items()}
        self.open = list(self.ranked)
        self.at = {n: n for n in ranks}
        self.told: list[tuple[int, int]] = []

    def _families(self, n: int, c: str) -> dict[int, list[int]]:
        return self.families

    def _rank(self, n: int, c: str) -> list[tuple[float, int]]:
        return []

    def _take(self, n: int, c: str, family: int, how: How) -> None:
        assert how is How.ORDER
        self.told.append((n, family))


TIED = [(5.0, 1), (5.0, 2)]


def test_ties_are_in_printed_order() -> None:
    def taken(found: Ordered, every: bool = True) -> list[tuple[int, int]]:
        found._in_order(every)
        return found.told

    families = {1: [101], 2: [102]}
    assert taken(Ordered(families, {7: TIED, 8: TIED})) == [(7, 1), (8, 2)]
    assert taken(Ordered({1: [102, 103], 2: [105, 101]}, {7: TIED, 8: TIED})) == [(7, 2), (8, 1)]
    assert taken(Ordered({1: [], 2: [101]}, {7: TIED, 8: TIED})) == [(7, 2), (8, 1)]
    back = Ordered(families, {7: TIED, 8: TIED})
    back.at = {7: 2, 8: 1}
    assert taken(back) == [(8, 1), (7, 2)]
    near = [(5.0, 1), (4.5, 2), (4.25, 3)]
    assert taken(Ordered({1: [103], 2: [102], 3: [101]}, {7: near, 8: near})) == [(7, 2), (8, 1)]
    edge = [(0.6, 1), (0.0, 2)]
    assert taken(Ordered({1: [102], 2: [101]}, {7: edge, 8: edge})) == [(7, 1), (8, 1)]
    assert taken(Ordered(families, dict.fromkeys(range(4), TIED))) == [
        (0, 1), (1, 1), (2, 2), (3, 2),
    ]  # fmt: skip
    assert taken(Ordered(families, dict.fromkeys(range(3), TIED))) == [(0, 1), (1, 2), (2, 2)]
    assert taken(Ordered(families, {7: TIED})) == [(7, 1)]
    assert taken(Ordered(families, {7: []})) == []


def test_ties_of_several_groups() -> None:
    families = {1: [101], 2: [102]}
    other = line("%b = f32[5] add()", "f")
    found = Ordered(families, {7: TIED, 8: TIED, 9: TIED}, n8=other)
    found._in_order(every=False)
    assert found.told == [(7, 1), (9, 2)]
    assert found.open == [(8, "c")]
    found._in_order(every=True)
    assert found.told[2:] == [(8, 1)]
    assert found.open == []
    every = Ordered(families, {7: TIED, 8: TIED, 9: TIED}, n8=other)
    every._held.add((7, "c"))
    every._in_order(every=True)
    assert every.told == [(8, 1), (9, 1)], "7 waits for what it is a part of"
    assert every.open == [(7, "c")]
