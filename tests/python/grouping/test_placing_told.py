"""Which layer an instruction is in: rules for what is between two layers, before and after all."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hloscope.analysis.grouping.layers.placing import _begin, _joined, _only, place
from hloscope.analysis.grouping.layers.repeats import NEVER, Graph, Stack
from small_graphs import Small


class Placed:
    """A program whose layers are known. Names with one letter are of one line and kind."""

    def __init__(
        self,
        spec: str,
        *spines: str,  # of one signature each; "a0 a1 | b0 b1" of several
        identity: list[list[int]] | None = None,
        recedes: str = "",  # "01": the second stack is one of gradients
        apart: str = "",
        gradient: str | None = None,
        told: dict[str, int] | None = None,
    ) -> None:
        self.s = s = Small(spec)
        stacks = tuple(
            Stack(s.c, tuple(tuple(s.rows(part)) for part in spine.split("|"))) for spine in spines
        )
        size = len(s.module.instructions)
        signature = np.zeros(size, np.int64)
        signature[s.first :] = [ord(name[0]) for name in s.names]
        self.found = place(
            s.t, s.c, stacks,
            identity or [list(range(10 * n, 10 * n + x.count)) for n, x in enumerate(stacks)],
            signature, self._mask(apart), [r == "1" for r in recedes or "0" * len(stacks)],
            {s.at(name): number for name, number in (told or {}).items()},
            None if gradient is None else self._mask(gradient),
        )  # fmt: skip

    def _mask(self, names: str) -> np.ndarray:
        out = np.zeros(len(self.s.module.instructions), bool)
        out[self.s.rows(names)] = True
        return out

    def of(self, names: str) -> list[int]:
        return [int(self.found.position[k]) for k in self.s.here(names)]


def layers(*parts: str, count: int = 4, before: str = "x!") -> str:
    """``parts``, each ``n:p`` with ``p`` the one before, ``p@`` that of the layer before."""
    spec, last = [before], "x"
    for k in range(count):
        names: dict[str, str] = {}
        for part in parts:
            name, _, operands = part.partition(":")
            made = [
                last if o == "@" else o[1:] if o[0] == "!" else names[o]
                for o in operands.split(",")
            ]
            names[name] = f"{name}{k}"
            spec.append(f"{name}{k}:{','.join(made)}")
        last = f"{name}{k}"
    return " ".join(spec)


A = "a0 a1 a2 a3"


def test_what_one_layer_makes_for_itself_is_in_it() -> None:
    p = Placed(layers("a:@", "n:a", "b:n"), f"{A} | b0 b1 b2 b3")
    assert p.of("x a0 n0 b0 a2 n2 b3") == [-1, 0, 0, 0, 2, 2, 3]


def test_what_serves_only_the_next_layer_opens_it() -> None:
    """A norm before each product: the first one, too, and there is none after the last."""
    p = Placed(layers("n:@", "a:n"), A)
    assert p.of("n0 n1 n2 n3") == [0, 1, 2, 3]


@pytest.mark.parametrize("recedes", ["0", "1"])
def test_what_serves_one_layer_is_in_it_like_nothing_else(recedes: str) -> None:
    p = Placed("x! e:x a0:e f:a0 g:f a1:g h:a1 a2:h,f i:a2 a3:i,h j:a3", A, recedes=recedes)
    assert p.of("e f g h i j") == [0, 0, 1, 1, 3, -1]


def test_what_several_layers_see_closes_the_layer_before() -> None:
    """A residual sum is seen by the next layer's product and its sum, and by all layers behind."""
    p = Placed(layers("a:@", "s:@,a"), A)
    assert p.of("s0 s1 s2 s3") == [0, 1, 2, 3]  # the last closes as the others do
    p = Placed(layers("a:@", "s:@,a") + " t:s3", A)
    assert p.of("s3 t") == [3, -1]  # like nothing in a layer


def test_a_step_as_often_before_the_first_as_after_the_last_opens() -> None:
    """``q = x @ wq`` opens each layer though the rest of the layer sees it too."""
    p = Placed(layers("q:@", "a:q", "r:@", "s:q,a,r"), A)
    assert p.of("q0 q1 q2 q3") == [0, 1, 2, 3]
    assert p.of("s0 s1 s2 s3") == [0, 1, 2, 3]
    p = Placed("x! n0:x n9:x a0:n0,n9 n1:a0 a1:n1 n2:a1 a2:n2 n3:a2 a3:n3 n4:a3", A)
    assert p.of("n0 n9 n1 n2 n3 n4") == [0, 0, 1, 2, 3, -1]  # the last opens none


def test_a_step_after_each_layer_closes_it() -> None:
    """There is none before the first, though each serves only the next layer."""
    assert Placed(layers("a:@", "n:a"), A).of("n0 n1 n2 n3") == [0, 1, 2, 3]


def test_sources_and_what_is_apart_are_in_no_layer() -> None:
    p = Placed(layers("a:@", "n:a", "b:n"), f"{A} | b0 b1 b2 b3", apart="n1 n2")
    assert p.of("n0 n1 n2 n3") == [0, -1, -1, 3]
    p = Placed("x! a0:x k=iota: n:k,a0 a1:n,k a2:a1", "a0 a1 a2")
    assert p.of("k n") == [-1, 1]


def test_between_two_stacks_only_what_other_layers_have_opens() -> None:
    two = layers("a:@", count=3) + " n0:a2 b0:n0 n1:b0 b1:n1 n2:b1 b2:n2"
    p = Placed(two, "a0 a1 a2", "b0 b1 b2")
    assert p.of("n0 n1 n2") == [3, 4, 5]
    loss = layers("a:@", count=3) + " l0:a2 b0:l0 n1:b0 b1:n1 n2:b1 b2:n2"
    p = Placed(loss, "a0 a1 a2", "b0 b1 b2")
    assert p.of("l0 n1 n2") == [-1, 4, 5]


def test_what_layers_make_of_a_condition_is_theirs() -> None:
    """A gate of a condition, seen by the layer's product and by its sum, which the next sees."""

    def of(kinds: str) -> list[int]:
        spec, at = ["x! y!"], "x"
        for k, c in enumerate(kinds):
            spec.append(f"{c}{k}:y")
            spec.append(f"a{k}:{at},{c}{k} s{k}:a{k},{c}{k},{at}")
            at = f"s{k}"
        return Placed(" ".join(spec), A).of(" ".join(f"{c}{k}" for k, c in enumerate(kinds)))

    assert of("cccc") == [0, 1, 2, 3]
    assert of("cccd") == [0, 1, 2, 3]  # what only the last layer sees is its own
    assert of("ccde") == [-1, -1, -1, 3]  # two of four are not most


def test_an_embedding_is_no_part_of_the_first_layer() -> None:
    p = Placed(layers("a:@", "s:@,a", before="y! x:y"), A)
    assert p.of("x") == [-1]
    assert int(p.found.after[1]) == -1
    assert int(p.found.before[1]) == 0


def test_gradients_serve_no_layer_of_the_model() -> None:
    """A row of the backward pass before a layer of the model is not that layer's."""
    spec = layers("n:@", "a:n")
    assert Placed(spec, A, gradient="").of("n1 n2") == [1, 2]
    kept = Placed(spec, A, gradient="n0 n1 n2 n3")
    assert kept.of("n1 n2") == [1, 2]  # as often before the first as between: they open
    one = "x! a0:x m:a0 a1:m n:a1 a2:n o:a2 a3:o"
    assert Placed(one, A).of("m n o") == [1, 2, 3]
    assert Placed(one, A, gradient="n").of("m n o") == [1, 1, 3]


def test_rows_of_the_model_serve_the_model() -> None:
    """What a layer keeps for its gradient serves the next layer all the same."""
    spec = "x! a0:x m:a0 a1:m n:a1 a2:n b2:a2 b1:b2,n b0:b1,m"
    p = Placed(spec, "a0 a1 a2", "b2 b1 b0", identity=[[0, 1, 2], [2, 1, 0]], recedes="01")
    assert p.of("m n") == [1, 2]
    p = Placed(spec, "a0 a1 a2", "b2 b1 b0", identity=[[0, 1, 2], [2, 1, 0]], recedes="00")
    assert p.of("m n") == [0, 1]


def test_gradients_of_one_layer_may_be_seen_by_two_stacks() -> None:
    """Layer and gradient have one number: what serves both serves one layer."""
    spec = "x! a0:x m:a0 a1:m b1:a1,m b0:b1"
    told = Placed(spec, "a0 a1", "b1 b0", identity=[[0, 1], [1, 0]])
    assert told.of("m") == [1]
    assert Placed(spec, "a0 a1", "b1 b0").of("m") == [0]


def test_weights_tell_the_layer() -> None:
    spec = "x! a0:x m:a0 n:m,a0 a1:n s:a1,n,m a2:s"
    assert Placed(spec, "a0 a1 a2").of("m n") == [0, 0]
    # and others like it are on the same side
    assert Placed(spec, "a0 a1 a2", told={"m": 1}).of("m") == [1]
    assert Placed(spec, "a0 a1 a2", told={"m": 0}).of("m") == [0]
    assert Placed(spec, "a0 a1 a2", told={"m": 2}).of("m") == [0]  # it is not between those
    like = "x! a0:x m0:a0 a1:m0 s:a1,m0 m1:s,a1 a2:m1 u:a2,m1 a3:u"
    assert Placed(like, A).of("m0 m1") == [0, 1]
    assert Placed(like, A, told={"m0": 1}).of("m0 m1") == [1, 2]


@pytest.mark.parametrize("seed", range(6))
def test_rows_are_after_what_they_need_and_before_what_needs_them(seed: int) -> None:
    """Of any program: compared with a search of every row's surroundings."""
    draw = random.Random(seed)
    spec, names = ["x!"], ["x"]
    for k in range(30):
        name = f"a{k // 5}" if k % 5 == 0 else f"n{k}"
        used = draw.sample(names, min(len(names), draw.randint(1, 2)))
        spec.append(f"{name}:{','.join(used)}")
        names.append(name)
    p = Placed(" ".join(spec), "a0 a1 a2 a3 a4 a5")
    uses = {item.split(":")[0]: item.split(":")[1].split(",") for item in spec[1:]}
    above: dict[str, set[str]] = {"x": set()}
    for name in names[1:]:
        above[name] = {name}.union(*(above[o] for o in uses[name]))
    for row, name in enumerate(names):
        needed = [int(n[1:]) for n in above[name] if n[0] == "a"]
        serves = [int(n[1:]) for n in names if n[0] == "a" and name in above[n]]
        assert int(p.found.after[row]) == max(needed, default=-1)
        if name != "x":  # a source says nothing about its users
            assert int(p.found.before[row]) == min(serves, default=NEVER)
    assert p.found.start == (0,)


# -- combined collectives --------------------------------------------------------------------


def joined(spec: str, own: dict[str, int]) -> str:
    s = Small(spec)
    g = Graph(s.t, s.c)
    found = _joined(s.t, g, [own.get(n, -1) for n in s.names], [10, 11, 12, 10])
    return " ".join(n for n, yes in zip(s.names, found, strict=True) if yes)


def test_what_is_combined_of_several_layers_is_of_none() -> None:
    spec = "x! a:x b:x m:a n:b t=tuple:m,n g=get-tuple-element:t k:t o=tuple:a,m c=tuple:g,k"
    own = {"a": 0, "b": 1}
    assert joined(spec, own) == "t g c"
    assert joined(spec, {"a": 0, "b": 3}) == ""  # a layer and its gradient
    assert joined(spec, {"a": 1, "b": 0}) == "t g c"
    assert joined("x! a:x b:a", own) == ""
    r = "x! a:x b:x r=all-reduce:a,b d=all-gather-done:a,b e=bitcast:r f=collective-permute:a,b"
    assert joined(r, own) == "r d e"
    assert joined("x! a:x b:x m:a,b r=all-reduce:m", own) == ""  # one value, made of both


def test_positions_belong_to_the_stack_that_began_last() -> None:
    assert [_begin([0, 3, 7], p) for p in (0, 2, 3, 6, 7, 9)] == [0, 0, 3, 3, 7, 7]
    assert [_only(3, 3), _only(3, 4)] == [3, -1]


def test_what_only_the_last_layer_has_on_the_way_to_its_sum_is_in_it() -> None:
    """A copy that the other layers lack, before a sum that closes each of them."""
    spec = layers("a:@", "s:@,a").replace("s3:s2,a3", "c:a3 s3:s2,c")
    assert Placed(spec, A).of("c s3") == [3, 3]
    # not for what is of no layer
    assert Placed(spec.replace("s3:s2,c", "s3:s2,a3 t:c"), A).of("c t") == [-1, -1]
    # a gradient on the way is not the layer's
    assert Placed(spec, A, gradient="c").of("c s3") == [-1, 3]
