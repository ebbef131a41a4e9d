"""On which side of a layer an instruction is, by where others like it are and by weights."""

from __future__ import annotations

import numpy as np
import pytest
from hloscope.analysis.grouping.layers.placing import _sides, _told
from hloscope.analysis.grouping.layers.repeats import NEVER, Stack

K, X = 5, 9  # two kinds
BETWEEN = [(0, 1), (1, 2), (2, 3)]  # of the four layers of one stack
BEFORE, AFTER = (-1, 0), (3, NEVER)


def sides(
    rows: list[tuple[int, int]],
    known: dict[int, int] | None = None,
    back: bool = False,
    counts: tuple[int, ...] = (4,),
    held: tuple[int, ...] = (),
) -> str:
    """Whether rows of kind K open or close layers, by their (after, before)."""
    start = np.cumsum([0, *counts])[:-1].tolist()
    stacks = tuple(Stack(0, (tuple(range(n)),)) for n in counts)
    opens, closes = _sides(
        [K] * len(rows), [a for a, _ in rows], [b for _, b in rows],
        [k not in held for k in range(len(rows))], start, stacks, [back] * len(stacks), known or {},
    )  # fmt: skip
    said = [f"opens {s}" for k, s in sorted(opens) if k == K]
    return ", ".join(said + [f"closes {s}" for k, s in sorted(closes) if k == K])


@pytest.mark.parametrize(
    ("rows", "wanted"),
    [
        (BETWEEN, ""),
        ([BEFORE, *BETWEEN], "opens 0"),
        ([*BETWEEN, AFTER], "closes 0"),
        ([BEFORE, *BETWEEN, AFTER], ""),
        ([BEFORE, BEFORE, *BETWEEN, AFTER], "opens 0"),
        ([BEFORE, *BETWEEN, AFTER, AFTER], "closes 0"),
        ([BEFORE, *BETWEEN, *BETWEEN], "opens 0"),  # half as often as between two
        ([BEFORE, *BETWEEN, *BETWEEN, (0, 1)], ""),
        ([BEFORE] * 2 + BETWEEN * 4, "opens 0"),
        (BETWEEN * 4 + [AFTER] * 2, "closes 0"),
        ([*BETWEEN, *BETWEEN, AFTER], "closes 0"),
        ([*BETWEEN, *BETWEEN, (0, 1), AFTER], ""),
        ([(-1, 1), *BETWEEN], ""),  # not before the first
        ([*BETWEEN, (2, NEVER)], ""),  # not after the last
        ([BEFORE, (0, 0), (1, 1)], ""),  # nothing is between two
        ([(-1, NEVER), (-1, NEVER)], ""),
    ],
)
def test_what_is_before_the_first_layer_opens_and_what_is_after_the_last_closes(
    rows: list[tuple[int, int]], wanted: str
) -> None:
    assert sides(rows) == wanted


def test_gradients_that_nothing_needs_are_missing_at_both_ends() -> None:
    assert sides(BETWEEN, back=True) == "closes 0"
    assert sides(BETWEEN[:2], back=True) == ""  # not in all layers
    assert sides(BETWEEN[:1], back=True, counts=(2,)) == ""  # two layers are too few
    assert sides([(0, 1), (1, 2)], back=True, counts=(3,)) == "closes 0"
    assert sides([BEFORE, *BETWEEN, AFTER], back=True) == ""
    assert sides([BEFORE, *BETWEEN], back=True) == "opens 0"


def test_weights_show_the_side() -> None:
    assert sides(BETWEEN, known={1: 2}) == "opens 0"
    assert sides(BETWEEN, known={1: 1}) == "closes 0"
    assert sides([BEFORE, *BETWEEN], known={2: 1}) == "closes 0"
    assert sides(BETWEEN, known={0: 0, 1: 2}) == ""  # one says so, another not so
    assert sides(BETWEEN, known={0: 0, 1: 2, 2: 3}) == "opens 0"
    assert sides([(0, 2), (1, 3)], known={0: 1}) == ""  # in the middle it shows none
    assert sides([(1, 1), *BETWEEN], known={0: 1}) == ""


def test_each_stack_has_its_own_sides() -> None:
    both = [(3, 4), (4, 5), (5, 6), (0, 1), (1, 2), (2, 3)]
    assert sides(both, counts=(4, 3)) == "opens 4, closes 0"
    assert sides(both[:3], counts=(4, 3)) == "opens 4"
    assert sides(both, counts=(4, 3), held=(0,)) == ""
    assert sides([*both[:3], *both[1:3], (4, 5)], counts=(4, 3)) == ""  # five between three


def test_weights_tell_a_layer_between_the_ends() -> None:
    who, late = [7, 8, 9, 9, 8, 7], [False] * 3 + [True] * 3

    def told(number: int, after: int, before: int) -> dict[int, int]:
        none = [-1] * 2
        return _told({102: number}, 100, who, late, [*none, after], [*none, before])

    assert told(8, 0, 1) == {2: 1}
    assert told(7, 0, 1) == {2: 0}
    assert told(9, 0, 1) == {}
    assert told(8, 0, 2) == {2: 1}  # the only one between
    assert told(8, 0, 5) == {}  # layer or gradient
    assert told(8, 1, 5) == {2: 1}  # preferably an end
    assert told(8, 1, 4) == {2: 4}  # a gradient's rather
    assert told(8, 0, 4) == {2: 4}
    assert told(8, 0, NEVER) == {2: 4}  # what the model makes is needed later
    assert told(8, 1, NEVER) == {2: 1}
    assert told(6, 0, 5) == {}


def test_a_row_of_one_pass_is_told_to_be_in_a_layer_of_that_pass() -> None:
    who, late = [7, 8, 9, 9, 8, 7], [False] * 3 + [True] * 3
    for gradient, layer in ((False, 2), (True, 3)):
        passes = np.array([not gradient, not gradient, gradient])
        # the last layer and its gradient, which has the same number
        assert _told({2: 9}, 0, who, late, [-1, -1, 2], [-1, -1, 3], passes) == {2: layer}
