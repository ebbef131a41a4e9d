"""Numbers in the names of arguments: runs of products over them, on programs of a few rows."""

from __future__ import annotations

from itertools import product

import pytest
from hloscope.analysis.grouping.layers.witness import (
    LONGEST,
    MOST_RUNS,
    _stages,
    family,
    layers_of,
    numbers,
    runs,
    spans,
    told_apart,
    weights,
)
from small_graphs import Small


class Products:
    """``p0, p1, …``: products of arguments with these names; "" for one that a loop made."""

    def __init__(self, *paths: str, arguments: tuple[str, ...] = ()) -> None:
        at = {path: f"w{k}" for k, path in enumerate(dict.fromkeys([*arguments, *paths])) if path}
        spec = ["x!", *(f"{w}!" for w in at.values()), "made:x"]
        spec += [f"p{k}:x,{at.get(path, 'made')}" for k, path in enumerate(paths)]
        self.s = Small(" ".join(spec), {w: path for path, w in at.items()})
        self.t = self.s.t
        self.rows = self.s.rows(" ".join(f"p{k}" for k in range(len(paths))))


def layers(word: str, *of: int) -> list[str]:
    return [f"p['{word}'][{k}]['w']" for k in of]


def run_lengths(*paths: str, arguments: tuple[str, ...] = ()) -> list[list[int]]:
    """Runs, as the places of their products."""
    p = Products(*paths, arguments=arguments)
    return [[row - p.rows[0] for row in run] for run in runs(p.t, p.rows)]


@pytest.mark.parametrize(
    ("paths", "wanted"),
    [
        (layers("a", 0, 1, 2), [[0, 1, 2]]),
        (layers("a", 2, 1, 0), [[0, 1, 2]]),  # a gradient's
        (layers("a", 0, 1) + layers("b", 0, 1), [[0, 1], [2, 3]]),
        (layers("a", 0, 1, 0, 1), [[0, 1], [2, 3]]),  # another pass
        (layers("a", 0, 2, 4), []),  # not one after another
        (layers("a", 0, 1, 2) + layers("b", 5), []),  # one is in no run
        (["p['a'][0]['w']", "p['b'][0]['w']", "p['a'][1]['w']", "p['b'][1]['w']"],
         [[0, 2], [1, 3]]),  # side by side
        (layers("a", 0, 1, 0), []),
        (["a0", "a1", "a2"], []),  # names of arguments themselves
        (["m.l0.w", "m.l1.w"], [[0, 1]]),
        ([f"p['s'][{s}]['l'][{k}]" for s in (0, 1) for k in (0, 1)], []),  # stages
        ([f"p['s'][{k}]['l'][0]" for k in (0, 1, 2)], [[0, 1, 2]]),
    ],
)  # fmt: skip
def test_products_are_runs_over_numbered_arguments(
    paths: list[str], wanted: list[list[int]]
) -> None:
    assert run_lengths(*paths) == wanted


def test_products_in_very_many_runs_are_in_none() -> None:
    words = ["".join(pair) for pair in product("abcdefghi", repeat=2)]
    for count, found in ((MOST_RUNS, MOST_RUNS), (MOST_RUNS + 1, 0)):
        paths = [path for word in words[:count] for path in layers(word, 0, 1)]
        assert len(run_lengths(*paths)) == found


def test_updated_weights_are_used_in_runs_as_long_as_the_first() -> None:
    first = layers("a", 0, 1, 2)
    assert run_lengths(*first, "", "", "") == [[0, 1, 2], [3, 4, 5]]
    assert run_lengths(*first, *[""] * 6) == [[0, 1, 2], [3, 4, 5], [6, 7, 8]]
    assert run_lengths(*first, "", "") == []
    assert run_lengths(*first[:2], "", "") == [[0, 1], [2, 3]]
    assert run_lengths(*first[:1], "", "") == []
    assert run_lengths("", *first) == []
    assert run_lengths(*first, "", first[0], "") == []
    assert run_lengths(*layers("a", 0, 2), "", "") == []  # the first ones are no run
    assert run_lengths("", "") == []


def test_an_argument_of_one_layer_more_says_that_weights_are_merely_unknown() -> None:
    first = layers("a", 1, 2, 3)
    for more in (0, 4):
        assert run_lengths(*first, "", "", "", arguments=(*layers("a", more),)) == []
        assert run_lengths(*first[::-1], "", "", "", arguments=(*layers("a", more),)) == []
    for more in (5, -1):
        assert len(run_lengths(*first, "", "", "", arguments=(*layers("a", more),))) == 2
        assert len(run_lengths(*first[::-1], "", "", "", arguments=(*layers("a", more),))) == 2
    assert len(run_lengths(*first, "", "", "", arguments=(*layers("b", 0),))) == 2


def test_stages_differ_in_a_number_that_is_not_the_layers() -> None:
    a, b = ("p[0][", "]"), ("p[1][", "]")
    other = ("q[0][", "]")
    assert _stages([{a: 1}, {b: 1}])
    assert not _stages([{a: 1}, {a: -1}])
    assert not _stages([{a: 1}, {other: 1}])
    assert not _stages([{a: 1, other: 1}, {b: 1, other: 1}])
    assert _stages([{other: 1}, {a: 1}, {b: 1}])
    assert not _stages([{a: 1}])


# -- one product -----------------------------------------------------------------------------


def test_weights_are_arguments_of_two_dimensions_or_tuples_of_them() -> None:
    pair, loop = "(f32[8,8], f32[8,8])", "condition=i, body=j"
    s = Small(
        "x! v! s! p! c=copy:x m:x a:c,v,s,p b:m l=while:p g=get-tuple-element:l d:g,x "
        "h=get-tuple-element:p e:h t=tuple:x,m k=while:t q=tuple:x,x f:q",
        shapes={"v": "f32[8]", "s": "f32[]", "p": pair, "l": pair, "t": pair, "k": pair, "q": pair},
        more={"g": "index=0", "h": "index=1", "l": loop, "k": loop},
        before=f"j {{\n  ROOT j0 = {pair} parameter(0)\n}}\n\n"
        f"i {{\n  i0 = {pair} parameter(0)\n  ROOT i1 = pred[] constant(true)\n}}\n",
    )  # fmt: skip
    found = {n: s.said(weights(s.t.instructions[s.at(n)])) for n in "abldek"}
    assert found == {"a": "x p", "b": "", "l": "p", "d": "x", "e": "p", "k": "x"}


def test_every_number_in_a_name_is_one() -> None:
    p = Products("p['s'][3]['l'][12]", "q7", "m.l2.w", "p['a']['b']")
    assert [numbers(p.t, row) for row in p.rows] == [
        {("p['s'][", "]['l'][12]"): 3, ("p['s'][3]['l'][", "]"): 12},
        {},
        {("m.l", ".w"): 2},
        {},
    ]


def test_a_family_numbers_rows_one_after_another() -> None:
    p = Products(*layers("a", 3, 4, 5, 7))
    key = ("p['a'][", "]['w']")
    assert family(p.t, p.rows[:3]) == {key: 3}
    assert family(p.t, p.rows[2::-1]) == {key: 5}
    assert family(p.t, p.rows) == {}
    assert family(p.t, p.rows[:1]) == {key: 3}
    p = Products(*layers("a", 0), *layers("b", 1))
    assert family(p.t, p.rows) == {}


def test_spans_are_the_numbers_of_all_rows() -> None:
    p = Products(*layers("a", 3, 5, 4), *layers("b", 9))
    assert spans(p.t, p.rows[:3]) == {"p['a'][": {3, 4, 5}}
    assert spans(p.t, p.rows[:1]) == {"p['a'][": {3}}
    assert spans(p.t, p.rows) == {}
    assert spans(p.t, []) == {}
    p = Products("p[1].a", "p[2].b")
    assert spans(p.t, p.rows) == {"p[": {1, 2}}  # whatever is behind the number
    s = Small("x! u! v! a:u,v b:u", {"u": "p[1].a", "v": "p[2].b"})
    assert spans(s.t, s.rows("b a")) == {}  # two numbers in one row
    assert spans(s.t, s.rows("a")) == {}


# -- several stacks --------------------------------------------------------------------------


def test_stacks_are_told_apart_by_the_first_word_that_differs() -> None:
    def told(*words: str) -> list[str]:
        paths = [path for word in words for path in layers(word, 0, 1)]
        p = Products(*paths)
        return told_apart(p.t, [[p.rows[k : k + 2]] for k in range(0, len(paths), 2)])

    assert told("teacher", "student") == ["teacher", "student"]
    assert told("teacher", "student", "other") == ["teacher", "student", "other"]
    assert told("teacher") == []
    assert told("b" * LONGEST, "a") == ["b" * LONGEST, "a"]
    assert told("b" * (LONGEST + 1), "a") == []
    assert told("net']['a", "net']['b") == ["a", "b"]
    assert told("2", "a") == []
    p = Products(*layers("a", 0, 1))
    assert told_apart(p.t, [[p.rows], [p.rows]]) == []  # over the same arguments


def test_the_most_common_words_of_a_stack_are_its() -> None:
    p = Products(*layers("a", 0, 1), *layers("b", 0, 1), *layers("c", 0, 1))
    a, b, c = p.rows[:2], p.rows[2:4], p.rows[4:]
    assert told_apart(p.t, [[a, b, b], [c]]) == ["b", "c"]
    assert told_apart(p.t, [[a], [p.rows[1:3]]]) == []  # of one nothing is known
    assert told_apart(p.t, [[a], [c], [p.rows[1:3]]]) == ["a", "c", ""]  # but the others differ


def test_rows_are_in_the_layer_that_their_arguments_number() -> None:
    p = Products(*layers("a", 3, 4, 5), *layers("a", 5, 6, 4), *layers("b", 4))
    spine, others = p.rows[:3], p.rows[3:]

    def of(*spines: tuple[list[list[int]], list[int]]) -> list[int]:
        found = layers_of(p.t, spines, others)
        return [found.get(row, -1) for row in others]

    assert of(([spine], [10, 11, 12])) == [12, -1, 11, -1]
    assert of(([spine[::-1]], [12, 11, 10])) == [12, -1, 11, -1]
    assert of() == [-1] * 4
    # two stacks number them differently
    assert of(([spine], [10, 11, 12]), ([spine], [12, 11, 10])) == [-1] * 4
    assert of(([spine], [10, 11, 12]), ([spine], [10, 11, 12])) == [12, -1, 11, -1]


def test_a_row_with_arguments_of_two_layers_is_in_none() -> None:
    names = {f"w{k}": path for k, path in enumerate([*layers("a", 0, 1), *layers("b", 0, 1)])}
    s = Small("x! w0! w1! w2! w3! a:w0 b:w1 c:w2 d:w3 e:w0,w3 f:w1,w3", names)
    spines = [([s.rows("a b")], [4, 5]), ([s.rows("c d")], [4, 5])]
    found = layers_of(s.t, spines, s.rows("a d e f"))
    assert {s.said([row]): layer for row, layer in found.items()} == {"a": 4, "d": 5, "f": 5}
