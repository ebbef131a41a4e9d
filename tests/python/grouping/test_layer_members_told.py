"""Which layer gradients of weights, recomputation and lookups are in, on programs of a few rows."""

from __future__ import annotations

import numpy as np
import pytest
from hloscope.analysis.base.labels.families import ID
from hloscope.analysis.base.phases.edges import BACKWARD, FORWARD, OPTIMISER, REMATERIALISED
from hloscope.analysis.grouping.layers.members import (
    free_lookups,
    free_products,
    to_gradients,
    with_their_gradient,
)
from hloscope.analysis.grouping.layers.placing import place
from hloscope.analysis.grouping.layers.repeats import NEVER, Repeats, Stack
from layered import stem
from small_graphs import Small

# -- gradients of weights ----------------------------------------------------------------------

MODEL = "x! w0! w1! w2! w3! y0:x,w0 y1:y0,w1 y2:y1,w2 y3:y2,w3 g:y3"
# dx is what a layer passes on, dw the gradient of its weights; layer 2 is at place 5
CHAIN = {
    3: "dw3:y2,g dx3:g,w3",
    2: "dw2:y1,dx3 dx2:dx3,w2",
    1: "dw1:y0,dx2 dx1:dx2,w1",
    0: "dw0:z,dx1 dx0:dx1,w0",
}
LAST = {3: 4, 2: 5, 1: 6, 0: 7}  # layer → the place of its gradient


class Gradients:
    """Four layers and their gradients, some of them as given; ``put``: the places of some rows."""

    def __init__(
        self,
        layers: dict[int, str] | None = None,
        put: dict[str, int] | None = None,
        elementwise: str = "",
        early: str = "",
        more: str = "",
        recedes: bool = True,
        alone: bool = False,  # the layers themselves are in another computation
    ) -> None:
        parts = CHAIN | (layers or {})
        spec = " ".join([MODEL, "z:x", *(parts[k] for k in (3, 2, 1, 0)), more])
        self.s = s = Small(spec.strip())
        size = len(s.module.instructions)
        spines = ["dx3 dx2 dx1 dx0"] if alone else ["y0 y1 y2 y3", "dx3 dx2 dx1 dx0"]
        stacks = tuple(Stack(s.c, (tuple(s.rows(names)),)) for names in spines)
        kinds = [stem(name) for name in s.names]
        signature = np.zeros(size, np.int64)
        signature[s.first :] = [sorted(set(kinds)).index(kind) for kind in kinds]
        phase = np.full(size, FORWARD, np.uint8)
        phase[s.at("g") :] = BACKWARD
        phase[s.rows(early)] = FORWARD
        family = np.full(size, ID["elementwise"], np.uint8)
        products = [n for n in s.names if n[:1] in "yd" and n not in elementwise.split()]
        family[s.rows(" ".join(products))] = ID["matmul"]
        back = [recedes] if alone else [False, recedes]
        identity = [[3, 2, 1, 0]] if alone else [[0, 1, 2, 3], [3, 2, 1, 0]]
        nothing = np.zeros(size, bool)
        self.found = place(
            s.t, s.c, stacks, identity, signature, nothing, back, {}, phase == BACKWARD
        )
        for name, at in (put or {}).items():
            self.found.position[s.names.index(name)] = at
        with_their_gradient(s.t, s.c, phase, family, signature, self.found, back)

    def of(self, names: str) -> list[int]:
        return [int(self.found.position[k]) for k in self.s.here(names)]


def test_a_gradient_of_weights_is_beside_what_takes_the_same_gradient_on() -> None:
    assert Gradients().of("dw3 dw2 dw1 dw0") == [4, 5, 6, 7]
    assert Gradients(recedes=False).of("dw2 dw1 dw0") == [4, 5, 6]  # as they were placed


# Others like it are in their own layers already, so that nothing follows from where they are.
STILL = {"dw1": 6, "dw0": 7}


@pytest.mark.parametrize(("opcode", "layer"), [("copy", 5), ("transpose", 5), ("sine", 4)])
def test_copies_and_turns_of_a_gradient_are_that_gradient(opcode: str, layer: int) -> None:
    """Layer 0 sees the copy too, so that it is no product's own."""
    turned = {2: f"a2={opcode}:dx3 dw2:y1,a2 dx2:dx3,w2", 0: "dw0:z,dx1 k0:a2 dx0:dx1,k0"}
    assert Gradients(turned, STILL | {"a2": 4}).of("dw2") == [layer]


def test_a_product_of_two_layers_gradients_stays_where_it_is() -> None:
    """It takes what layers 2 and 1 pass on: it is of none of them alone."""
    assert Gradients({1: "dw1:dx3,dx2 dx1:dx2,w1"}).of("dw1") == [5]
    # what two layers take on tells of neither
    assert Gradients({1: "dw1:y0,dx2 dx1:dx2,dx3"}, put={"dw2": 4}).of("dw2") == [4]


def test_sums_for_a_bias_and_casts_of_them_are_in_the_layer_too() -> None:
    """They serve nothing but the optimiser. What serves a later layer is as it was placed."""
    sums = {2: "dw2:y1,dx3 dx2:dx3,w2 s2:dx3 c2:s2"}
    assert Gradients(sums).of("s2 c2") == [5, 5]
    assert Gradients(sums, early="s2").of("s2 c2") == [4, 4]  # of the forward pass
    seen = {2: "s2:dx3 dw2:y1,dx3 dx2:dx3,w2", 0: "dw0:z,dx1 dx0:dx1,s2"}
    assert Gradients(seen, put={"s2": 4}).of("s2") == [4]


def test_what_is_made_of_a_bias_after_all_layers_is_in_none() -> None:
    """``c0`` needs all layers and was placed in none: the gradient of an embedding, say."""
    sums = {0: "s0:dx1 dw0:z,dx1 dx0:dx1,w0 c0:s0,dx0"}
    assert Gradients(sums, {"c0": -1}).of("s0 c0") == [7, -1]
    assert Gradients({0: sums[0].replace("c0:s0,dx0", "c0:s0")}, {"c0": -1}).of("c0") == [7]


def test_a_product_of_what_a_layer_makes_is_the_layers() -> None:
    """``m2`` is in layer 2 and serves it, and so is what is made of it: not in the one before."""

    def of(dw2: int = 4, m2: int = 5, more: dict[int, str] | None = None) -> list[int]:
        own = {2: "m2:dx3 dw2:y1,m2 k2:m2 dx2:k2,w2"} | (more or {})
        return Gradients(own, STILL | {"m2": m2, "dw2": dw2}).of("dw2")

    assert of() == [5]
    assert of(dw2=6) == [6]  # already further on
    assert of(m2=-1) == [4]
    assert of(m2=3) == [4]  # of the model's last layer
    assert of(more={0: "dw0:z,dx1 dx0:dx1,dw2"}) == [4]  # another layer needs it


# a fusion hides what layer 2 passes on: ``m1`` is of layer 2 and like nothing that is taken on
HIDDEN = {1: "m1:dx2 dw1:y0,m1 k1:m1 dx1:k1,w1"}


def test_gradients_that_a_fusion_hides_are_where_the_others_show_they_are() -> None:
    """Those of layers 2 and 0 move by one, and so does that of layer 1, which nothing tells."""
    placed = {"m1": 5, "dw1": 5, "dw3": -1}
    assert Gradients(HIDDEN, placed).of("dw2 dw1 dw0") == [5, 6, 7]
    # one of the others is in its own layer already: what the others show is not one thing
    assert Gradients(HIDDEN, placed | {"dw2": 5}).of("dw1") == [5]
    # all of them are: nothing moves
    assert Gradients(HIDDEN, placed | {"dw2": 5, "dw0": 7}).of("dw1") == [5]
    # the others move by two
    assert Gradients(HIDDEN, placed | {"dw2": 3, "dw0": 5}).of("dw1") == [5]
    # of no layer, and so are the others
    assert Gradients(HIDDEN, placed | {"dw1": -1}).of("dw1") == [-1]
    assert Gradients(HIDDEN, placed | {"dw2": -1, "dw0": -1}).of("dw1") == [5]


def test_only_products_that_no_weights_tell_follow_the_others() -> None:
    placed = {"m1": 5, "dw1": 5, "dw3": -1}
    assert Gradients(HIDDEN, placed, elementwise="dw1").of("dw1") == [5]
    assert Gradients(HIDDEN, placed, early="dw1").of("dw1") == [5]
    known = {1: HIDDEN[1].replace("dw1:y0,m1", "dw1:w1,m1")}
    assert Gradients(known, placed).of("dw1") == [5]
    # sums move with the gradients, and say nothing of products
    sums = {k: CHAIN[k].replace(f"dw{k}", f"s{k}") for k in (2, 0)}
    more = HIDDEN | sums | {1: HIDDEN[1].replace("dw1", "s1")}
    assert Gradients(more, {"m1": 5, "s1": 5}, elementwise="").of("s2 s1 s0") == [5, 5, 7]


def test_there_is_no_layer_after_the_last() -> None:
    """A product of the first layer's gradient stays, as one that ends the model's layers does."""
    last = {0: "dw0:z,dx1 dx0:dx1,w0 m1:dx0"}
    for at in (7, 3):
        placed = {"m1": 7, "dw4": at, "dw3": -1}
        assert Gradients(last, placed, more="dw4:y0,m1 k1:m1 dw9:k1").of("dw4")[0] in (at, 7)


def test_gradients_in_a_loop_of_their_own_are_beside_one_another_from_the_first_on() -> None:
    """The last layer's is at place 0, and so is what is made of its own."""
    bias = {3: "dw3:y2,g s3:g dx3:g,w3"}
    assert Gradients(bias, alone=True).of("s3 dw3 dw2 dw1 dw0") == [0, 0, 1, 2, 3]
    own = {3: "m3:g dw3:y2,m3 k3:m3 dx3:k3,w3"}
    still = {"m3": 0, "dw3": -1, "dw2": 1, "dw1": 2, "dw0": 3}
    assert Gradients(own, still, alone=True).of("dw3") == [0]
    hidden = {2: "m2:dx3 dw2:y1,m2 k2:m2 dx2:k2,w2"}
    placed = {"m2": 0, "dw2": 0, "dw3": -1}
    assert Gradients(hidden, placed, alone=True).of("dw2 dw1 dw0") == [1, 2, 3]
    # that of layer 2 shows where that of layer 1 is
    placed = {"m1": 1, "dw1": 1, "dw0": -1, "dw3": -1}
    assert Gradients(HIDDEN, placed, alone=True).of("dw2 dw1") == [1, 2]


# -- lookups -----------------------------------------------------------------------------------


def repeats(
    position: list[int],
    after: list[int] | None = None,
    counts: tuple[int, ...] = (2,),
    first: int = 0,
) -> Repeats:
    """Places of rows; each stack's spine is the first rows in its places."""
    start = np.cumsum([0, *counts])[:-1].tolist()
    stacks = tuple(
        Stack(0, (tuple(first + position.index(s + k) for k in range(n)),))
        for s, n in zip(start, counts, strict=True)
    )
    size = len(position)
    return Repeats(
        stacks, first, tuple(start), np.array(position, np.int64),
        np.array(after or [-1] * size, np.int64), np.full(size, NEVER, np.int64),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("opcodes", "kinds", "position", "after", "wanted"),
    [
        # one lookup, in the first layer: the embedding
        ("gather copy copy", "abb", [0, 0, 1], [-1, -1, 0], [-1, 0, 1]),
        ("gather gather copy", "aab", [0, 1, 1], [-1, 0, 0], [0, 1, 1]),  # each layer has one
        ("gather gather copy", "abb", [0, 0, 1], [-1, 0, 0], [-1, 0, 1]),
        ("gather gather copy", "aac", [0, -1, 1], [-1, -1, 0], [-1, -1, 1]),  # that is in none
        ("copy copy copy", "abc", [0, 0, 1], [-1, -1, 0], [0, 0, 1]),  # nothing is looked up
        ("copy gather copy", "abc", [0, 1, 1], [-1, 0, 0], [0, 1, 1]),  # of what a layer made
    ],
)
def test_a_lookup_that_no_other_layer_has_is_an_embedding(
    opcodes: str, kinds: str, position: list[int], after: list[int], wanted: list[int]
) -> None:
    s = Small(" ".join(["x!", *(f"i{k}={o}:x" for k, o in enumerate(opcodes.split()))]))
    signature = np.zeros(len(s.module.instructions), np.int64)
    signature[s.at("i0") :] = [ord(kind) for kind in kinds]
    found = repeats(position, after, first=s.at("i0"))
    free_lookups(s.t, found, signature)
    assert found.position.tolist() == wanted


# -- recomputation -----------------------------------------------------------------------------

TWICE = [0, 0, 0, 1, 1, 1, 2, 3, -1]  # two layers, their gradients in places 2 and 3, a free row
AGAIN = [FORWARD, REMATERIALISED, BACKWARD] * 2 + [BACKWARD] * 3


def moved(
    identity: list[list[int]], recedes: list[bool], position: list[int] = TWICE, first: int = 0
) -> list[int]:
    """Places after recomputation moved, of rows whose passes ``AGAIN`` says."""
    found = repeats(position, counts=(2, 2), first=first)
    phase = np.array([OPTIMISER] * first + AGAIN, np.uint8)
    to_gradients(phase, found, recedes, identity)
    return found.position.tolist()


def test_what_is_made_again_is_in_the_layers_gradient() -> None:
    for first in (0, 7):
        assert moved([[4, 5], [5, 4]], [False, True], first=first) == [0, 3, 3, 1, 2, 2, 2, 3, -1]
    assert moved([[4, 5], [4, 5]], [False, True]) == [0, 2, 2, 1, 3, 3, 2, 3, -1]


def test_layers_without_a_gradient_keep_what_they_make_again() -> None:
    assert moved([[4, 5], [6, 7]], [False, True]) == TWICE
    assert moved([[4, 5], [5, 4]], [False, False]) == TWICE
    assert moved([[4, 5], [4, 6]], [False, True]) == TWICE
    assert moved([[5, 4], [5, 4]], [True, True]) == TWICE


def test_a_stack_behind_its_gradient_and_layers_of_which_some_have_one() -> None:
    # the gradients are printed first
    assert moved([[5, 4], [4, 5]], [True, False], [2, 2, 2, 3, 3, 3, 0, 1, -1]) == [
        2, 1, 1, 3, 0, 0, 0, 1, -1
    ]  # fmt: skip
    found = repeats([0, 0, 0, 1, 1, 1, 2, -1, -1], counts=(2, 1))
    to_gradients(np.array(AGAIN, np.uint8), found, [False, True], [[4, 5], [5]])
    assert found.position.tolist() == [0, 0, 0, 1, 2, 2, 2, -1, -1]  # the first layer has none


# -- products of the other pass ----------------------------------------------------------------


@pytest.mark.parametrize("recedes", [False, True])
def test_a_layer_has_no_products_of_the_other_pass_but_those_it_repeats(recedes: bool) -> None:
    own, other = (BACKWARD, FORWARD) if recedes else (FORWARD, BACKWARD)
    found = repeats([0, 1, 0, 0, 1, 1, -1], first=3)
    phase = np.array([0, 0, 0, own, other, own, other, other, REMATERIALISED, other], np.uint8)
    family = np.full(10, ID["matmul"], np.uint8)
    family[7] = ID["elementwise"]
    free_products(phase, family, found, [recedes])
    assert found.position.tolist() == [0, 1, 0, -1, 1, 1, -1]
