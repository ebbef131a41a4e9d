"""What makes a stack of repeated layers, on programs of a few instructions."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product

import numpy as np
import pytest
from hloscope.analysis.grouping.layers.repeats import (
    Graph,
    Signatures,
    _by_shape,
    _once_a_layer,
    _pairs,
    _weight,
    _works,
    find,
    signatures,
)
from small_graphs import Small


def stacks(
    spec: str,
    work: dict[str, int] | None = None,
    shapes: dict[str, str] | None = None,
    names: dict[str, str] | None = None,
) -> list[str]:
    """Stacks of a program whose anchors have a digit in their names, and a letter for their line.

    ``"a0 a1 | b0 b1"`` are two signatures of one stack.
    """
    s = Small(spec, names, shapes)
    anchors = [s.at(n) for n in s.names if n[1:].isdigit() and n[0] != "w"]
    signature = np.full(len(s.module.instructions), -1, np.int64)
    count = np.ones(len(signature), np.int64)
    for name in s.names:
        signature[s.at(name)] = ord(name[0])
        count[s.at(name)] = (work or {}).get(name, 1)
    found = find(s.t, s.c, np.array(anchors, np.int64), signature, count)
    assert all(stack.computation == s.c for stack in found)
    return [" | ".join(s.said(list(rows)) for rows in stack.spine) for stack in found]


def chain(letters: str, layers: int, at: str = "x") -> str:
    """Layers in a row, each of these instructions one after another."""
    out = []
    for k, letter in product(range(layers), letters):
        out.append(f"{letter}{k}:{at}")
        at = f"{letter}{k}"
    return " ".join(out)


def spine(letters: str, layers: int) -> str:
    return " | ".join(" ".join(f"{x}{k}" for k in range(layers)) for x in letters)


@pytest.mark.parametrize(
    ("letters", "layers", "work", "is_one"),
    [
        ("a", 4, {}, True),
        ("ab", 9, {}, True),
        ("a", 3, {}, False),
        ("ab", 3, {}, True),
        ("abc", 2, {}, False),
        ("abcd", 2, {}, True),
        ("a", 3, {"a0": 2}, True),  # a loop of two products
        ("a", 3, {"a1": 2}, False),
        ("a", 2, {"a0": 3, "a1": 3}, False),
        ("a", 2, {"a0": 4}, True),
        ("a", 1, {"a0": 9}, False),
    ],
)
def test_the_fewer_layers_the_more_must_agree(
    letters: str, layers: int, work: dict[str, int], is_one: bool
) -> None:
    wanted = [spine(letters, layers)] if is_one else []
    assert stacks(f"x! {chain(letters, layers)}", work) == wanted


def test_layers_feed_one_another() -> None:
    beside = " ".join(f"a{k}:x b{k}:a{k}" for k in range(4))
    assert stacks(f"x! {beside}") == []
    assert stacks(f"x! {chain('a', 4)} c0:a3 d0:x d1:d0") == [spine("a", 4)]
    # in the order of work, whatever the order of the text
    assert stacks("x! a3:a2 a2:a1 a1:a0 a0:x") == []  # nothing is known of values printed late
    two = stacks("x! a0:x p:x a1:a0 b0:p b1:b0 a2:a1 b2:b1 a3:a2 b3:b2")
    assert two == [spine("a", 4), spine("b", 4)]


def test_two_stacks_are_in_order_of_their_ends() -> None:
    one = f"x! {chain('ab', 4)} y:b3 {chain('cd', 4, 'y')}"
    assert stacks(one) == [spine("ab", 4), spine("cd", 4)]
    # the decoder's first layer comes before the encoder, its last one after it
    early = "x! c0:x " + chain("ab", 4)
    early += " c1:c0,b3 c2:c1 c3:c2 d0:c3 d1:d0 d2:d1 d3:d2"
    assert stacks(early)[0] == spine("ab", 4)
    assert len(stacks(early)) == 3


def test_a_shorter_stack_within_a_longer_one_is_none() -> None:
    inner = "x! a0:x b0:a0 a1:b0 c0:a1 a2:c0 b1:a2 d0:b1 a3:d0 b2:a3 a4:b2 b3:a4 a5:b3"
    assert stacks(inner) == ["a0 a1 a2 a3 a4 a5"]


def test_the_count_is_that_of_the_parts_which_all_layers_have() -> None:
    """The last layer lacks four of its six parts: still they are five layers."""
    spec, at = ["x!"], "x"
    for k, letter in product(range(5), "abcdef"):
        if k < 4 or letter in "ab":
            spec.append(f"{letter}{k}:{at}")
            at = f"{letter}{k}"
    assert stacks(" ".join(spec)) == [spine("ab", 5)]
    head = [w for w in spec if w[:2] != "b4"]  # a head of the same name is no layer
    assert stacks(" ".join(head)) == [spine("bcdef", 4)]


def test_what_each_layer_gives_a_sum_is_of_the_layer() -> None:
    """Side by side, in one direction; the other way round it is another stack."""

    def of(order: Iterable[int]) -> list[str]:
        rows, last = [f"x! {chain('ab', 4)} s:x"], "s"
        for k in order:
            rows.append(f"e{k}:b{k},{last} f{k}:e{k}")
            last = f"f{k}"
        return stacks(" ".join(rows))

    assert of(range(4)) == [spine("abef", 4)]
    assert of(reversed(range(4))) == [spine("ab", 4), "e3 e2 e1 e0 | f3 f2 f1 f0"]


def test_a_line_that_two_loops_run_is_two_stacks_by_its_arguments() -> None:
    names = {f"w{k}": f"p['{'uv'[k // 3]}'][{k % 3}]['w']" for k in range(6)}
    weights = " ".join(f"{w}!" for w in names)
    rows = " ".join(f"a{k}:{f'a{k - 1}' if k else 'x'},w{k}" for k in range(6))
    assert stacks(f"x! {weights} {rows}", names=names) == ["a0 a1 a2", "a3 a4 a5"]
    assert stacks(f"x! {weights} {rows}") == ["a0 a1 a2 a3 a4 a5"]


def test_two_products_of_one_line_are_parts_of_a_layer() -> None:
    """Attention's scores and its sum are as many as the norms: each is a signature by its shape."""
    spec, at, shapes = ["x!"], "x", {}
    for k in range(4):
        for name in (f"n{k}", f"s{2 * k}", f"s{2 * k + 1}"):
            spec.append(f"{name}:{at}")
            at = name
        shapes[f"s{2 * k}"] = "f32[8,4]"
    assert stacks(" ".join(spec), shapes=shapes) == ["n0 n1 n2 n3 | s0 s2 s4 s6 | s1 s3 s5 s7"]


# -- parts of it -----------------------------------------------------------------------------


def test_equal_numbers_are_of_one_kind_line_and_name() -> None:
    names = {"a": "jit(f)/l1/d", "b": "jit(f)/l22/d", "c": "jit(f)/l1/e", "h": "12"}
    shapes = {"e": "f32[4]", "b": "f32[4]", "g": "f32[4]"}
    s = Small("x! a:x b:a c:b d:c e:d f:e g:f h:g", names, shapes)
    family = np.ones(len(s.module.instructions), np.uint8)
    frames = [0] * len(family)
    frames[s.at("f")] = frames[s.at("g")] = 1
    of = signatures(s.t, family, frames)
    a, b, c, d, e, f, g, h = (int(of[s.at(n)]) for n in "abcdefgh")
    assert a == b  # of two shapes: the name tells
    assert f == g  # here the line does
    assert len({a, c, d, e, f, h}) == 6  # neither tells of d and e: their shapes do
    family[s.at("b")] = 2
    frames[s.at("f")] = 8
    of = signatures(s.t, family, frames)
    assert of[s.at("a")] != of[s.at("b")]
    assert of[s.at("f")] != of[s.at("g")]


def test_edges_lead_from_a_value_to_a_later_user() -> None:
    s = Small("x! k=constant a:x,k b:d c:a,b d:c,a e:e")
    g = Graph(s.t, s.c)
    named = [(s.names[v], s.names[u]) for v, u in zip(g.values, g.users, strict=True)]
    assert named == [("a", "c"), ("b", "c"), ("c", "d"), ("a", "d")]
    assert (g.first, g.size) == (s.first, len(s.names))
    s = Small("a b:a")
    assert (Graph(s.t, s.c).values, Graph(s.t, s.c).users) == ([0], [1])


def test_depth_is_that_of_the_longest_path() -> None:
    s = Small("x! a:x b:a c:a,b d:c e:a f:e,d g:x")
    g = Graph(s.t, s.c)
    counted = [n in "abde" for n in s.names]
    of = dict(zip(s.names, g.depth(counted), strict=True))
    assert of == {"x": 0, "a": 0, "b": 1, "c": 2, "d": 2, "e": 1, "f": 3, "g": 0}
    above = dict(zip(s.names, g.ancestors({1: 1, 2: 2, 5: 4}), strict=True))
    assert above == {"x": 0, "a": 1, "b": 3, "c": 3, "d": 3, "e": 5, "f": 7, "g": 0}


def test_neighbours_are_compared_at_both_ends_and_in_the_middle() -> None:
    assert [_pairs(n) for n in (2, 3, 4, 5, 9)] == [[0], [0, 1], [0, 1, 2], [0, 1, 3], [0, 3, 7]]


@pytest.mark.parametrize(
    ("rows", "parts", "others", "stays"),
    [
        ([0, 1, 2, 3], [[0, 2], [1, 3]], [[8, 9]], False),
        ([0, 1, 2, 3], [[0, 2], [1, 3]], [], True),  # nothing else is there twice
        ([0, 1, 2, 3], [[0, 1], [2, 3]], [[8, 9]], True),  # one after the other
        ([0, 1, 2, 3, 4], [[0, 2], [1, 3]], [[8, 9]], True),  # some are in no part
        ([0, 1, 2, 3, 4], [[0, 2, 4], [1, 3]], [[8, 9], [5, 6, 7]], True),
        ([0, 1, 2, 3, 4, 5], [[0, 2, 5], [1, 3, 4]], [[7, 8, 9]], False),
        ([0, 1, 2, 3, 4, 5], [[0, 2, 3], [1, 4, 5]], [[7, 8, 9]], True),  # not at the end
        ([0, 1, 2, 3, 4, 5], [[0, 1, 4], [2, 3, 5]], [[7, 8, 9]], True),  # not at the beginning
        ([0, 1, 2, 3], [[0, 1, 2, 3]], [], True),  # the only part
        ([0, 1, 2, 3], [[8, 9]], [[8, 9]], True),  # of another line
    ],
)
def test_what_occurs_twice_a_layer_is_replaced_by_its_parts(
    rows: list[int], parts: Signatures, others: Signatures, stays: bool
) -> None:
    assert _once_a_layer([rows, *others], parts) == ([rows] if stays else []) + others


def test_lines_are_split_by_shape() -> None:
    half, third = "f32[4,8]", "f32[2,8]"
    s = Small("x! a:x b:a c:b d:c e:d f:e", shapes={"b": half, "d": half, "f": third})
    a, b, c, d, e, f = s.here("a b c d e f")

    def split(*rows: int) -> Signatures:
        return _by_shape([list(rows)], s.t, s.first)

    assert split(a, c, e) == []
    assert split(a, b, c, d) == [[a, c], [b, d]]
    assert split(a, b, f) == []
    assert split(a, b, c) == [[a, c]]
    assert split(a, b, c, f) == [[a, c], [b, f]]
    assert _by_shape([[a, c], [b, d, a, c]], s.t, s.first) == [[b, d], [a, c]]


def test_stacks_are_weighed_by_signatures_and_layers() -> None:
    assert _weight([[1, 2, 3]], {}) == 2
    assert _weight([[1, 2, 3], [4, 5, 6]], {}) == 4
    assert _weight([[1, 2, 3], [4, 5, 6]], {4: 7}) == 6  # seven products of that line in all
    assert _works([[1, 2], [3, 4]], np.arange(9), 2) == 3 + 5
