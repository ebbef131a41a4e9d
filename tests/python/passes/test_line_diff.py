"""Old and new lines of a computation in one list: ``pass_diff.py``."""

from __future__ import annotations

from itertools import combinations
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest
from hloscope.analysis.passes.line_diff import _rising, difference

# Old lines, new lines with their signs, what is listed. Nodes are letters; "A" is the new version
# of "a". Of a node that is gone the old line is in the list.
LISTS = {
    "nothing changed": ("abc", " a b c", " a b c"),
    "one added": ("ab", " a+N b", " a+N b"),
    "one removed": ("abc", " a c", " a-b c"),
    "the first removed": ("abc", " b c", "-a b c"),
    "the last removed": ("abc", " a b", " a b-c"),
    "one replaced": ("abc", " a+N c", " a+N-b c"),
    "one changed": ("abc", " a+B c", " a-b+B c"),
    "the last went first": ("abc", " c a b", ">c a b"),
    "one changed elsewhere": ("abc", "+C a b", "-c+C a b"),
    "renumbered": ("ab", "~a b", " a b"),
    "renumbered elsewhere": ("abc", "~c a b", ">c a b"),
    "all removed": ("ab", "", "-a-b"),
    "all new": ("", "+N+M", "+N+M"),
}


@pytest.mark.parametrize(("old", "new", "expected"), LISTS.values(), ids=LISTS)
def test_lists(old: str, new: str, expected: str) -> None:
    said = [(new[k], new[k + 1]) for k in range(0, len(new), 2)]
    letters = sorted({*old, *(v for _, v in said)})
    version = {v: k for k, v in enumerate(letters)}
    nodes = sorted({v.lower() for v in letters})
    now = {v.lower() for _, v in said}
    steps: Any = SimpleNamespace(
        versions=[SimpleNamespace(node=nodes.index(v.lower())) for v in letters],
        nodes=[SimpleNamespace(versions=[version.get(n, -1)]) for n in nodes],
    )
    found = difference(
        steps,
        {n: nodes.index(n) for n in old},
        [(kind, version[v]) for kind, v in said],
        {nodes.index(n) for n in old if n not in now},
        {nodes.index(n): version[n] for n in old if n in now},
    )
    assert "".join(kind + letters[v] for kind, v in found) == expected


@pytest.mark.parametrize("seed", range(12))
def test_what_keeps_its_order_is_most(seed: int) -> None:
    places = list(range(7))
    Random(seed).shuffle(places)
    places = places[:seed]
    found = _rising(places)
    assert found == sorted(found)
    assert [p for p in places if p in found] == found
    rows = (r for n in range(len(places) + 1) for r in combinations(places, n))
    assert len(found) == max(len(r) for r in rows if list(r) == sorted(r))
