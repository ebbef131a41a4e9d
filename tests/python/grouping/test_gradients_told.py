"""Which layers' gradients products are, by the weights they use: rules on a few rows each."""

from __future__ import annotations

import numpy as np
import pytest
from hloscope.analysis.grouping.layers.gradients import (
    MOST_ANCHORS,
    MOST_PASSES,
    _agrees,
    _chains,
    _holes,
    _of_pass,
    _passes,
    _pieces,
    _stacks,
    _turned,
    _Uses,
    _uses,
    _usual,
    by_weights,
    of_other_computation,
)
from hloscope.analysis.grouping.layers.repeats import NEVER, Graph, Repeats, Stack
from small_graphs import Small

# -- whether what repeats is right already -----------------------------------------------------

FIRST = 100  # row of the computation's first instruction


def repeats(position: list[int], counts: tuple[int, ...], spines: object = None) -> Repeats:
    """Stacks with so many layers; row FIRST + k is in the k-th place."""
    start = np.cumsum([0, *counts])[:-1].tolist()
    made = spines or [((FIRST,) * n,) for n in counts]
    stacks = tuple(Stack(0, spine) for spine in made)  # type: ignore[attr-defined]
    none = np.full(len(position), -1, np.int64)
    return Repeats(stacks, FIRST, tuple(start), np.array(position), none, none + NEVER)


def agrees(
    position: list[int],
    layer: list[int],
    passes: int = 1,
    updates: tuple[int, ...] = (),
    back: tuple[bool, ...] = (False, True),
) -> bool:
    """Products at these places (4, 5, 6 and 7 are gradients) that use weights of these layers."""
    used = [(FIRST + k, n) for k, n in enumerate(layer)]
    found = repeats(position, (4,) * len(back))
    return _agrees(used, found, back, {FIRST + k for k in updates}, passes)


@pytest.mark.parametrize(
    ("position", "layer", "right"),
    [
        ([4, 5, 6, 7], [3, 2, 1, 0], True),
        ([4, 4, 5, 5, 6, 6, 7, 7], [3, 3, 2, 2, 1, 1, 0, 0], True),  # two products each
        ([4, 4, 5, 6], [3, 2, 1, 0], False),  # two layers in one place
        ([4, 5, 6, 7, 7], [3, 3, 2, 1, 0], False),
        ([4, 5, 6], [3, 3, 3], False),  # a layer in three places
        ([4, 4, 5, 5], [3, 3, 2, 2], False),  # half of the places have nothing
        ([4, 4, 5, 5, 6, 6], [3, 3, 2, 2, 1, 1], True),
        ([0, 1, 2, 3], [3, 2, 1, 0], False),  # in the model's own layers
        ([-1, -1, -1, -1], [3, 2, 1, 0], False),
        # nine in ten are enough, four in five are not
        ([4, 4, 4, 5, 5, 5, 6, 6, 7, 7], [3, 3, 3, 2, 2, 2, 1, 1, 0, 1], True),
        ([4, 4, 4, 5, 5, 5, 6, 6, 7, 7], [3, 3, 3, 2, 2, 1, 1, 1, 0, 1], False),
        ([4, 4, 4, 5, 5, 5, 6, 6, 7, -1], [3, 3, 3, 2, 2, 2, 1, 1, 0, 0], True),
        ([4, 4, 4, 5, 5, 5, 6, 6, -1, -1], [3, 3, 3, 2, 2, 2, 1, 1, 0, 0], False),
    ],
)
def test_gradients_are_right_where_each_place_is_one_layers(
    position: list[int], layer: list[int], right: bool
) -> None:
    assert agrees(position, layer) == right


def test_weights_used_in_two_passes_have_two_places() -> None:
    position, layer = [*range(4, 12)], [3, 2, 1, 0] * 2
    three = (False, True, True)
    assert agrees(position, layer, 2, back=three)
    assert not agrees(position, layer, 1, back=three)
    # the other stack's places count as the model's
    assert not agrees(position, layer, 2, back=(False, True, False))


def test_products_that_update_a_weight_do_not_count_unless_all_do() -> None:
    position, layer = [4, 5, 6, 7, 4, 4], [3, 2, 1, 0, 0, 1]
    assert not agrees(position, layer)
    assert agrees(position, layer, updates=(4, 5))
    assert agrees([4, 5, 6, 7], [3, 2, 1, 0], updates=(0, 1, 2, 3))
    assert not agrees([4, 4, 4, 5], [3, 2, 1, 0], updates=(0, 1, 2, 3))


@pytest.mark.parametrize(
    ("start", "count", "held", "holes"),
    [
        (0, 4, (0, 1), True),  # half of them
        (0, 4, (0, 1, 2), False),
        (0, 4, (), False),  # another stack's gradients
        (0, 4, (4, 5), False),
        (4, 4, (4, 5), True),
        (4, 3, (4,), True),
        (4, 3, (5, 6), False),
        (0, 2, (0,), False),  # of two layers one may well have none
    ],
)
def test_a_stack_with_nothing_in_every_other_layer_has_too_many(
    start: int, count: int, held: tuple[int, ...], holes: bool
) -> None:
    assert _holes(start, count, {p: None for p in held}) == holes  # type: ignore[arg-type,misc]


# -- chains from the last layer to the first ---------------------------------------------------


def chains(spec: str, updates: str = "", late: str | None = None, count: int = 3) -> list[str]:
    """Names end with the layer whose weights they use; without a digit they use none."""
    s = Small(spec)
    g = Graph(s.t, s.c)
    used = {n: int(n[1:]) for n in s.names if n[1:].isdigit()}
    bits = {s.names.index(n): 1 << k for k, n in enumerate(used)}
    rows = s.here(late) if late is not None else [s.names.index(n) for n in s.names if n != "x"]
    found = _chains(
        [(s.at(n), k) for n, k in reversed(used.items())], count, g, bits, g.ancestors(bits),
        set(s.rows(updates)), rows,
    )  # fmt: skip
    return [s.said(chain) for chain in found]


@pytest.mark.parametrize(
    ("spec", "wanted"),
    [
        ("x! a2:x a1:a2 a0:a1", ["a2 a1 a0"]),
        ("x! a2:x p:a2 a1:p q:a1 a0:q", ["a2 a1 a0"]),
        ("x! a2:x a1:a2", ["a2 a1"]),  # the input needs no gradient
        ("x! a2:x a0:a2", []),
        ("x! a2:x a1:x a0:a1", []),  # the second does not need the last
        ("x! a1:x a0:a1", []),  # none is the last layer's
        ("x! a2:x a1:a2 a0:x", []),  # no product of the first needs it
        ("x! a2:x w1:a2 a1:a2 a0:a1", ["a2 a1 a0"]),  # w1 leads no further
        ("x! a2:x a1:a2 w0:a1 a0:a1 o:a0", ["a2 a1 a0"]),
        ("x! a2:x w1:a2 a1:a2 o:a1", ["a2 a1"]),
        ("x! a2:x b2:x a1:a2 b1:b2 a0:a1 b0:b1", ["a2 a1 a0", "b2 b1 b0"]),  # two passes
        ("x! a2:x b2:x a1:a2,b2 a0:a1", ["a2 a1 a0"]),  # that share what one has
    ],
)
def test_gradients_are_chains_of_products_each_needed_for_the_next(
    spec: str, wanted: list[str]
) -> None:
    assert chains(spec) == wanted


def test_of_the_first_layers_products_that_is_its_gradient_which_updates_nothing() -> None:
    both = "x! a2:x a1:a2 w0:a1 a0:a1"
    assert chains(both, "w0") == ["a2 a1 a0"]
    assert chains(both, "a0") == ["a2 a1 w0"]
    assert chains(both, "w0 a0") == ["a2 a1 w0"]  # for want of another
    assert chains("x! a2:x w1:a2 a1:a2", "w1") == ["a2 a1"]
    # what another product of the backward pass needs comes first, whatever it updates
    assert chains(f"{both} o:a0", "a0") == ["a2 a1 a0"]
    assert chains(f"{both} o:a0", "a0", late="a2 a1 w0 a0") == ["a2 a1 w0"]


def test_chains_are_as_long_as_the_stack_but_for_one() -> None:
    four = "x! a3:x a2:a3 a1:a2"
    assert chains(four, count=4) == ["a3 a2 a1"]
    assert chains("x! a3:x a2:a3 o:a2", count=4) == []
    assert chains("x! a1:x a0:a1", count=2) == ["a1 a0"]
    assert chains("x! a1:x o:a1", count=2) == []
    many = " ".join(f"{c}1:x {c}0:{c}1" for c in "abcdefghij")
    assert len(chains(f"x! {many}", count=2)) == MOST_PASSES


def test_a_pass_from_the_first_layer_on_is_numbered_from_the_last() -> None:
    assert _turned([(7, 0), (8, 1), (9, 2)], 3) == [(7, 2), (8, 1), (9, 0)]


# -- stacks ------------------------------------------------------------------------------------

A, B, C = [9, 6, 3], [8, 5, 2], [19, 16, 13]


@pytest.mark.parametrize(
    ("count", "slots", "wanted"),
    [
        (3, [[A], [B]], [((2, 1, 0), (A, B))]),
        (3, [[A], [B[:2]]], [((2, 1, 0), (A,))]),  # the others say that there are three
        (3, [[A[:2]], [B[:2]]], [((2, 1), (A[:2], B[:2]))]),  # the first has no gradient
        (3, [[A, C], [B]], [((2, 1, 0), (A, B)), ((2, 1, 0), (C,))]),  # two passes
        (3, [[], [B]], [((2, 1, 0), (B,))]),
        (2, [[A[:1]]], []),  # one alone is none
        (2, [[A[:2]], [B[:2]]], [((1, 0), (A[:2], B[:2]))]),
        (3, [], []),
        (3, [[]], []),
    ],
)
def test_chains_of_all_products_of_a_layer_are_one_stack(
    count: int, slots: list[list[list[int]]], wanted: list[tuple[tuple[int, ...], list[list[int]]]]
) -> None:
    found = [(layers, tuple(map(list, s.spine))) for layers, s in _stacks(count, slots, 5)]
    assert found == wanted
    assert all(s.computation == 5 for _, s in _stacks(count, slots, 5))


def pieces(
    uses: list[tuple[int, int, int]],
    spine: tuple[tuple[int, ...], ...] = ((10, 11, 12),),
    counts: tuple[int, ...] = (5,),
    back: bool = True,
) -> dict[int, tuple[int, tuple[int, ...]]]:
    """What a stack of these rows is a piece of; (row, stack, layer) of each weight's use."""
    found: _Uses = {}
    for row, n, k in uses:
        found.setdefault((n, 0, ()), []).append((row, k))
    model = [((FIRST,) * n,) for n in counts]
    return _pieces(
        found, repeats([], (*counts, 3), [*model, spine]), [False] * len(counts) + [back]
    )


def test_gradients_of_some_layers_are_a_piece_of_their_stack() -> None:
    own = [(10, 0, 4), (11, 0, 3), (12, 0, 2)]
    assert pieces(own) == {1: (0, (4, 3, 2))}
    two = ((10, 11, 12), (20, 21, 22))
    assert pieces([*own, (20, 0, 4), (22, 0, 2)], two) == {1: (0, (4, 3, 2))}
    assert pieces(own, back=False) == {}  # layers of the model
    assert pieces(own, counts=(3,)) == {}  # all of its layers: no piece
    assert pieces([(row, 1, k) for row, _, k in own], counts=(6, 5)) == {2: (1, (4, 3, 2))}


def test_gradients_that_weights_do_not_tell_are_no_piece() -> None:
    own = [(10, 0, 4), (11, 0, 3), (12, 0, 2)]
    assert pieces(own[:2]) == {}  # of the third nothing is known
    assert pieces([*own, (12, 0, 1)]) == {}  # it has weights of two layers
    assert pieces([*own[:2], (12, 0, 3)]) == {}  # two are of one layer
    assert pieces([*own[:2], (12, 1, 2)], counts=(5, 5)) == {}  # of another stack
    assert pieces([*own, (20, 0, 3)], ((10, 11, 12), (20, 21, 22))) == {}


# -- weights -----------------------------------------------------------------------------------


def test_weights_of_another_shape_than_most_are_of_no_layer() -> None:
    """A layer's product may be fused with another, of the head for example."""
    s = Small("a! b! c! h! x! p:a q:b r:c t:h",
              shapes={"h": "f32[8,99]", "x": "f32[4]"})  # fmt: skip
    a, b, c, h, x = s.rows("a b c h x")
    slots = {a: (0, 0, 0), b: (0, 0, 1), c: (0, 0, 2)}
    assert _usual(s.t, slots) == slots
    assert _usual(s.t, slots | {h: (0, 0, 2)}) == slots
    assert _usual(s.t, slots | {h: (0, 1, 2)}) == slots | {h: (0, 1, 2)}  # of another product
    alone = {a: (0, 0, 0), b: (0, 0, 1), h: (0, 0, 2), x: (0, 0, 3)}
    assert _usual(s.t, alone) == alone  # of its layer none is more usual


def test_products_with_weights_of_one_layer_are_that_layers() -> None:
    s = Small("u! v! w! z! p:u,v q:u,w r:z s:u t:v",
              shapes={"s": "(f32[2], f32[8,8])", "t": "f32[8,7]", "r": "f32[8,8]"})  # fmt: skip
    u, v, w, z = s.rows("u v w z")
    slots = {u: (0, 0, 1), v: (0, 1, 1), w: (0, 0, 2)}
    rows = s.rows("p q r s t")
    of = dict(zip(rows, [[u, v], [u, w], [z], [u], [v]], strict=True))
    uses, updates = _uses(s.t, rows, of, slots)
    said = {key: " ".join(f"{s.said([row])}{k}" for row, k in used) for key, used in uses.items()}
    # q has weights of two layers, r none of any
    assert said == {(0, 0, ()): "p1 s1", (0, 1, ()): "p1 t1"}
    # results as large as a weight, alone or among others
    assert s.said(sorted(updates)) == "p q s"


# -- gradients of gradients --------------------------------------------------------------------

FORCES = ("jvp(jvp())", "jvp(transpose(jvp()))", "transpose(jvp(transpose(jvp())))",
          "transpose(jvp(jvp()))")  # fmt: skip


def differentiated(*paths: str) -> tuple[Small, list[int]]:
    names = {f"a{k}": f"jit(f)/{path}/dot_general" for k, path in enumerate(paths)}
    s = Small(" ".join(["x!", *(f"{n}:x" for n in names)]), names)
    return s, s.rows(" ".join(names))


def test_names_say_how_a_product_was_differentiated_if_a_gradient_was() -> None:
    s, rows = differentiated(*FORCES)
    assert list(_passes(s.t, rows).values()) == [
        ("jvp", "jvp"), ("jvp", "transpose", "jvp"), ("transpose", "jvp", "transpose", "jvp"),
        ("transpose", "jvp", "jvp"),
    ]  # fmt: skip
    for once in (("jvp()", "transpose(jvp())"), ("transpose(jvp())", "transpose(jvp())"), ("", "")):
        s, rows = differentiated(*once)
        assert _passes(s.t, rows) == {}


def test_a_pass_is_of_the_stacks_that_were_differentiated_as_often() -> None:
    s, rows = differentiated(*["jvp()"] * 2, *["jvp(jvp())"] * 2, *["jvp(jvp())", "jvp()"])
    stacks = [Stack(s.c, (tuple(rows[k : k + 2]),)) for k in (0, 2)]
    twice, once = ("transpose", "jvp", "jvp"), ("transpose", "jvp")
    assert _of_pass(s.t, twice, stacks, [3, 5]) == [5]
    assert _of_pass(s.t, once, stacks, [3, 5]) == [3]
    assert _of_pass(s.t, (), stacks, [3, 5]) == [3, 5]  # nothing was more than once
    assert _of_pass(s.t, ("jvp",) * 3, stacks, [3, 5]) == [3, 5]  # none is
    most = [Stack(s.c, ((rows[2], rows[3], rows[5]),)), stacks[0]]
    assert _of_pass(s.t, twice, most, [3, 5]) == [3]  # most of its products were


# -- all of it ---------------------------------------------------------------------------------

MODEL = "x! w0! w1! w2! v0! v1! v2! a0:x,w0 a1:a0,w1 a2:a1,w2"


class Backward:
    """Three layers, ``a``, and what is done with their weights later: ``g2`` with those of 2."""

    def __init__(self, later: str, found: str = "", model: str = "a0 a1 a2") -> None:
        self.s = s = Small(f"{MODEL} {later}")
        spines = [tuple(s.rows(model)), *([tuple(s.rows(found))] if found else [])]
        position = np.full(len(s.names), -1, np.int64)
        start = []
        for spine in spines:
            start.append(sum(map(len, spines[: len(start)])))
            for k, row in enumerate(spine):
                position[row - s.first] = start[-1] + k
        none = np.full(len(position), -1, np.int64)
        stacks = tuple(Stack(s.c, (spine,)) for spine in spines)
        self.found = Repeats(stacks, s.first, tuple(start), position, none, none)
        self.anchors = np.array([s.at(n) for n in s.names if n[0] in "ag"], np.int64)
        self.late = np.zeros(len(s.module.instructions), bool)
        self.late[[s.at(n) for n in s.names if n[0] == "g"]] = True

    def by_weights(self, *recedes: bool) -> list[str]:
        made = by_weights(self.s.t, self.found, recedes, self.anchors, self.late)
        if made is None:
            return []
        of = [made.of.get(n, ("own", ())) for n in range(len(made.stacks))]
        return [f"{' '.join(map(self.s.said, map(list, stack.spine)))} {n} {layers}"
                for stack, (n, layers) in zip(made.stacks, of, strict=True)]  # fmt: skip


GRADIENTS = "g2:a2,w2 g1:g2,w1 g0:g1,w0"


def test_products_with_a_layers_weights_are_its_gradient_in_the_order_of_the_layers() -> None:
    assert Backward(GRADIENTS).by_weights(False) == ["a0 a1 a2 own ()", "g2 g1 g0 0 (2, 1, 0)"]
    # found by repetition: nothing is to correct
    assert Backward(GRADIENTS, "g2 g1 g0").by_weights(False, True) == []
    for wrong in ("g2 g1", "g1 g0"):  # one layer too few
        assert Backward(GRADIENTS, wrong).by_weights(False, True)[1] == "g2 g1 g0 0 (2, 1, 0)"
    assert Backward("g2:a2,v2 g1:g2,v1 g0:g1,v0").by_weights(False) == []  # other weights
    assert Backward(GRADIENTS).by_weights(True) == []  # there is no model


def test_a_stack_that_has_nothing_to_do_with_the_gradients_stays() -> None:
    other = f"{GRADIENTS} gx:g0,v2 gy:gx,v1 gz:gy,v0"
    assert Backward(other, "gx gy gz").by_weights(False, True) == [
        "a0 a1 a2 own ()", "g2 g1 g0 0 (2, 1, 0)", "gx gy gz own ()"
    ]  # fmt: skip


def test_too_many_anchors_are_not_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert MOST_ANCHORS >= 10_000
    for most, stacks in ((6, 2), (5, 0)):
        monkeypatch.setattr("hloscope.analysis.grouping.layers.gradients.MOST_ANCHORS", most)
        assert len(Backward(GRADIENTS).by_weights(False)) == stacks


def elsewhere(
    later: str, found: str = "", models: tuple[tuple[str, tuple[int, ...]], ...] = ()
) -> list[str]:
    """Stacks of a computation of gradients alone: rows and what identifies their layers."""
    b = Backward(later)
    model = [(Stack(b.s.c, (tuple(b.s.rows(names)),)), identity)
             for names, identity in models or (("a0 a1 a2", (7, 8, 9)),)]  # fmt: skip
    only = None
    if found:
        position = np.full(len(b.s.names), -1, np.int64)
        position[b.s.here(found)] = range(len(found.split()))
        stack = Stack(b.s.c, (tuple(b.s.rows(found)),))
        only = Repeats((stack,), b.s.first, (0,), position, position, position)
    made = of_other_computation(b.s.t, b.s.c, model, only, b.anchors, b.late)
    if made is None:
        return []
    of = [made.of.get(n, (0, ())) for n in range(len(made.stacks))]
    assert all(n == -1 for n, layers in of if layers)
    return [f"{' '.join(map(b.s.said, map(list, stack.spine)))} {layers}"
            for stack, (_, layers) in zip(made.stacks, of, strict=True)]  # fmt: skip


def test_gradients_in_a_computation_of_their_own_have_the_numbers_of_the_models_layers() -> None:
    assert elsewhere(GRADIENTS) == ["g2 g1 g0 (9, 8, 7)"]
    assert elsewhere(GRADIENTS, "g2 g1 g0") == []
    assert elsewhere(GRADIENTS, "g2 g0") == ["g2 g1 g0 (9, 8, 7)"]
    assert elsewhere("g2:a2,v2 g1:g2,v1") == []
    assert elsewhere("o:a2") == []
    other = f"{GRADIENTS} gx:g0,v2 gy:gx,v1"
    assert elsewhere(other, "gx gy") == ["g2 g1 g0 (9, 8, 7)", "gx gy ()"]


def test_the_last_pass_over_the_same_weights_has_its_gradients_first() -> None:
    twice = (
        "a3:a2,w0 a4:a3,w1 a5:a4,w2 g2:a5,w2 g1:g2,w1 g0:g1,w0 o:g0 g02:o,w2 g01:g02,w1 g00:g01,w0"
    )
    models = (("a0 a1 a2", (1, 2, 3)), ("a3 a4 a5", (7, 8, 9)))
    assert elsewhere(twice, models=models) == ["g2 g1 g0 (9, 8, 7)", "g02 g01 g00 (3, 2, 1)"]
