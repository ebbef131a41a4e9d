"""Which instructions of two stacks need one another, and which arguments number them."""

from __future__ import annotations

from itertools import chain as chain_of

from hloscope.analysis.grouping.layers.repeats import VOTES, Graph, _by_arguments, _Needs, _whole
from small_graphs import Small

# -- who needs whom --------------------------------------------------------------------------


def needs(spec: str, *letters: str) -> tuple[_Needs, list[list[int]]]:
    """For each letter its instructions, by number."""
    s = Small(spec)
    rows = [[s.names.index(n) for n in sorted(s.names) if n[0] == x and n != "x"] for x in letters]
    return _Needs(Graph(s.t, s.c), rows), rows


def test_a_signature_feeds_another_when_each_is_needed_for_the_next() -> None:
    n, (a, b) = needs("x! a0:x b0:x a1:a0 b1:a0,b0 a2:a1 b2:a1,b1", "a", "b")
    assert n.feeds(a, a)
    assert n.feeds(b, b)
    assert n.feeds(a, b)
    assert not n.feeds(b, a)
    assert n.needs(b[2], a[0])
    assert not n.needs(a[2], b[0])
    n, (a,) = needs("x! a0:x a1:x a2:a1", "a")
    assert not n.feeds(a, a)
    n, (a,) = needs("x! a0:x a1:a0 a2:x", "a")
    assert not n.feeds(a, a)


def test_most_middles_within_another_course_are_an_overlap() -> None:
    course = "x! a0:x a1:a0 b0:a1 c0:x b1:b0 c1:c0 a2:b1 a3:a2"
    n, (a, b, c) = needs(course, "a", "b", "c")
    assert n.within([b], [a])
    assert not n.within([c], [a])
    assert not n.within([a], [b])
    assert n.overlaps([a], [b])
    assert n.overlaps([b], [a])
    assert not n.overlaps([a], [c])
    assert not n.within([b, c], [a])  # half are not most
    assert n.within([b, b, c], [a])
    assert not n.within([*[c] * VOTES, *[b] * 99], [a])  # the first ones vote
    late = "x! b0:x a0:x a1:a0,b0 b1:a1 a2:b1 b2:a2 b3:b2"  # the second of four is the middle one
    n, (a, b) = needs(late, "a", "b")
    assert n.within([b], [a])
    assert n.within([a], [b])


def test_side_by_side_in_one_direction() -> None:
    both = "x! a0:x b0:a0 a1:a0 b1:a1,b0 a2:a1 b2:a2,b1"
    n, (a, b) = needs(both, "a", "b")
    assert n.beside([a], [b])
    assert n.beside([b], [a])
    assert not n.beside([a], [b[:2]])
    n, (a, b) = needs("x! a0:x a1:a0 a2:a1 b0:a2 b1:b0 b2:b1", "a", "b")
    assert not n.beside([a], [b])  # all of one before all of the other
    n, (a, b) = needs("x! a0:x b0:x a1:a0 b1:b0 a2:a1 b2:b1,a2", "a", "b")
    assert not n.beside([a], [b])  # only the last


def test_alternating_with_one_more() -> None:
    n, (a, b) = needs("x! a0:x b0:a0 a1:b0 b1:a1 a2:b1", "a", "b")
    assert n.alternates([a], [b])
    assert not n.alternates([b], [a])
    assert not n.alternates([a], [a])
    n, (a, b) = needs("x! a0:x b0:x a1:a0,b0 b1:a1 a2:b1", "a", "b")
    assert not n.alternates([a], [b])
    n, (a, b) = needs("x! a0:x b0:a0 a1:b0 b1:a1 a2:a1", "a", "b")
    assert not n.alternates([a], [b])
    n, (a, b) = needs("x! a0:x b0:a0 a1:a0 b1:a1 a2:a1,b1", "a", "b")
    assert not n.alternates([a], [b])


# -- numbered arguments ----------------------------------------------------------------------


def numbered(products: dict[str, list[tuple[str, int]]]) -> tuple[Small, dict[str, list[int]]]:
    """Products of each letter with arguments ``p['word'][number]``."""
    at = {key: f"w{k}" for k, key in enumerate(dict.fromkeys(chain_of(*products.values())))}
    names = {w: f"p['{word}'][{n}]['w']" for (word, n), w in at.items()}
    rows = [f"{x}{k}:x,{at[key]}" for x, of in products.items() for k, key in enumerate(of)]
    s = Small(" ".join(["x!", *(f"{w}!" for w in at.values()), *rows]), names)
    return s, {x: s.here(" ".join(f"{x}{k}" for k in range(len(of)))) for x, of in products.items()}


def test_what_only_some_layers_of_another_stack_have_is_none() -> None:
    all_nine, some = [("l", k) for k in range(9)], [("l", k) for k in (0, 1, 3, 4, 6, 7)]
    s, of = numbered({"a": all_nine, "b": some, "c": [("m", k) for k in range(6)]})
    a, b, c = [of["a"]], [of["b"]], [of["c"]]
    assert _whole([a, b], s.t, s.first) == [a]
    assert _whole([b, a], s.t, s.first) == [a]
    assert _whole([a, c], s.t, s.first) == [a, c]
    assert _whole([b], s.t, s.first) == [b]
    assert _whole([b, b], s.t, s.first) == [b, b]
    s, of = numbered({"a": all_nine[:4] * 2, "b": all_nine[:3]})  # not a number for each of a
    assert len(_whole([[of["a"]], [of["b"]]], s.t, s.first)) == 2


def test_runs_over_numbered_arguments() -> None:
    s, of = numbered({"a": [("u", k) for k in range(3)] + [("v", k) for k in range(3)]})
    a = of["a"]
    assert _by_arguments([a, a[:1]], s.t, s.first) == [[a[:3], a[3:]], []]
