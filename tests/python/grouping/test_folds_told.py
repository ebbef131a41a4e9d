"""Folds of repeated groups, and which groups are of equal structure: trees made by hand."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace

import numpy as np
import pytest
from hloscope.analysis.base.structure import computation_hashes, instruction_hashes, mix, tokens
from hloscope.analysis.grouping.folds import (
    _Contents,
    _far,
    _inside,
    _range,
    _stems,
    classes,
    folds,
    near,
)
from hloscope.analysis.grouping.groups import KINDS, GroupTree
from small_graphs import Small

# -- folds -----------------------------------------------------------------------------------


def folded(
    groups: dict[str, str],
    layers: bool = False,
    named: bool = False,
    inside: dict[str, str] | None = None,
    weights: str = "",
    kind: str = "scope",
    hint: str = "",
) -> list[str]:
    """Labels of the folds; ``groups``: label → opcodes, ``sine*3`` for three of them.

    ``4:sine`` has an array of four rows. ``inside``: groups in groups, by label. ``weights``:
    for each group the rows of its argument.
    """
    labels, parent = ["module", *groups], [-1] + [0] * len(groups)
    spec, shapes, group = ["x!"], {}, [0]
    for label, part in (inside or {}).items():
        labels.append(part)
        parent.append(labels.index(label))
    for k, rows in enumerate(weights.split()):
        spec.append(f"w{k}!")
        shapes[f"w{k}"] = f"f32[{rows},8]"
        group.append(0)
    for g, label in enumerate(labels[1:], 1):
        for word in groups.get(label, "sine*2").split():
            dims, _, what = word.rpartition(":")
            opcode, _, count = what.partition("*")
            for n in range(int(count or 1)):
                name = f"v{g}.{len(spec)}"
                operand = f"w{g - 1}" if weights and n == 0 and g <= len(groups) else "x"
                spec.append(f"{name}={opcode}:{operand}")
                shapes[name] = f"f32[{dims or 8},8]"
                group.append(g)
    s = Small(" ".join(spec), shapes=shapes, before="")
    n = len(labels)
    kinds = np.array(
        [KINDS.index(kind if p == 0 else "scope" if p > 0 else "module") for p in parent]
    )
    size = np.bincount(group, minlength=n)
    tree = GroupTree(
        np.array(parent), kinds, labels, np.full(n, -1), np.zeros(n, np.int64), size, np.arange(n),
        [hint and label[-1:] for label in labels], [layers] * n, [named] * n, np.array(group),
        np.array([0]),
    )  # fmt: skip
    found = folds(s.module, tree)
    for k, fold in enumerate(found.folds):
        assert fold.parent == 0 or labels[fold.parent] in groups
        assert len(fold.members) > 1
        assert all(found.of_group[g] == k for g in fold.members)
    held = {g for fold in found.folds for g in fold.members}
    assert {g for g in range(n) if found.of_group[g] >= 0} == held
    return [fold.label for fold in found.folds if fold.parent == 0]


EQUAL = {f"l{k}": "sine*20" for k in range(4)}


def test_equal_groups_that_differ_in_a_number_are_a_fold() -> None:
    assert folded(EQUAL) == ["l[0..3]"]
    assert folded({"l0": "sine", "l1": "sine"}) == ["l[0,1]"]
    assert folded({"l0": "sine", "m1": "sine"}) == []
    assert folded({"l0": "sine"}) == []
    assert folded(EQUAL, kind="component") == ["l[0..3]"]
    assert folded(EQUAL, kind="fusion") == []
    assert folded({"a": "sine", "b": "sine"}, hint="x") == []
    assert folded({"cut": "sine", "shot": "cosine*9"}, hint="x") == ["cut"]  # of one hint


def test_groups_may_differ_by_a_few_instructions() -> None:
    for more, wanted in ((6, ["l[0..4]"]), (7, ["l[0..3]"])):
        assert folded({**EQUAL, "l4": f"sine*{20 + more}"}) == wanted
    wide = {f"l{k}": "sine*80" for k in range(3)}
    for less, wanted in ((20, ["l[0..3]"]), (21, ["l[0..2]"])):  # a quarter of the bigger one
        assert folded({**wide, "l3": f"sine*{80 - less}"}) == wanted
    assert near(Counter([1] * 6), Counter())
    assert not near(Counter([1] * 6), Counter([2]))
    assert near(Counter([1] * 10), Counter([2] * 10), 2.0)


def test_layers_may_differ_more() -> None:
    wide = {f"l{k}": "sine*80" for k in range(3)} | {"l3": "sine*20"}
    assert folded(wide) == ["l[0..2]"]
    assert folded(wide, layers=True) == ["l[0..3]"]
    assert folded(wide, named=True) == ["l[0..3]"]
    other = {**{f"l{k}": "sine*80" for k in range(3)}, "l3": "cosine*500"}
    assert folded(other, layers=True) == ["l[0..3]"]  # it is a layer still
    assert folded(other) == ["l[0..2]"]


def test_levels_do_the_same_at_different_resolutions() -> None:
    levels = {f"l{k}": f"{64 >> k}:sine*20 {64 >> k}:cosine*5" for k in range(4)}
    assert folded(levels) == ["l[0..3]"]
    two = dict(list(levels.items())[:2])
    assert folded(two) == []  # two are no levels
    three = dict(list(levels.items())[:3])
    assert folded(three) == ["l[0..2]"]
    apart = {f"l{2 * k}": f"{64 >> k}:sine*20" for k in range(3)}
    assert folded(apart) == ["l[0..4 step 2]"]
    mixed = {**three, "l3": "8:tanh*40"}
    assert folded(mixed) == ["l[0..2]"]


def test_levels_with_other_numbered_parts_are_apart() -> None:
    levels = {f"l{k}": f"{64 >> k}:sine*20" for k in range(6)}
    assert folded(levels) == ["l[0..5]"]
    parts = {f"l{k}": f"u{k}" if k < 3 else f"v{k}" for k in range(6)}
    assert folded(levels, inside=parts) == ["l[0..2]", "l[3..5]"]
    assert folded(levels, inside={k: "u0" for k in levels}) == ["l[0..5]"]


def test_sets_in_turn_are_one_thing_and_sets_in_a_row_are_stages() -> None:
    def of(*rows: int) -> list[str]:
        return folded({f"l{k}": f"{n}:sine*20" for k, n in enumerate(rows)})

    assert of(8, 4, 8, 4) == ["l[0..3]"]
    assert of(8, 8, 4, 4) == ["l[0,1]", "l[2,3]"]
    assert of(8, 8, 4, 4, 8) == ["l[0..4]"]
    turns = {f"l{k}": f"{op}*20" for k, op in enumerate(["sine", "tanh"] * 3)}
    assert folded(turns) == ["l[0..4 step 2]", "l[1..5 step 2]"]


def test_layers_of_one_shape_of_weights_are_one_fold() -> None:
    rows = {f"l{k}": "sine*40" if k % 2 else "tanh*40" for k in range(4)}
    assert folded(rows, layers=True, weights="8 8 8 8") == ["l[0..3]"]
    assert folded(rows, layers=True, weights="8 4 8 4") == ["l[0,2]", "l[1,3]"]
    assert folded(rows, layers=True, weights="8 4 8 2") == ["l[0,2]", "l[1,3]"]


def test_a_fold_of_layers_says_what_is_in_them() -> None:
    inside = {"l0": "mlp", "l1": "mlp", "l2": "mlp", "l3": "mlp"}
    assert folded(EQUAL, layers=True, inside=inside) == ["l[0..3]: mlp"]
    assert folded(EQUAL, inside=inside) == ["l[0..3]"]
    assert folded(EQUAL, layers=True, inside={k: "unit7" for k in EQUAL}) == ["l[0..3]"]
    assert folded(EQUAL, layers=True, inside={k: "u" * 24 for k in EQUAL}) == [
        f"l[0..3]: {'u' * 24}"
    ]
    assert folded(EQUAL, layers=True, inside={k: "u" * 25 for k in EQUAL}) == ["l[0..3]"]


@pytest.mark.parametrize(
    ("numbers", "text"),
    [
        ([0, 1, 2, 3], "[0..3]"), ([2, 0, 1], "[0..2]"), ([0, 1], "[0,1]"), ([3, 5], "[3,5]"),
        ([0, 4, 8], "[0..8 step 4]"), ([0, 4, 9], "[0,4,9]"), ([7, 7, 7], "[7,7,7]"),
        ([0, 1, 2, 5], "[0..2,5]"), ([0, 1, 5], "[0,1,5]"), ([0, 2, 3, 4], "[0,2..4]"),
        ([0, 2, 5, 9], "[0,2,5,9]"), ([0, 2, 5, 9, 14], "[0,2,…,14]"),
        ([1, 3, 4], "[1,3,4]"), ([2, 4, 6], "[2..6 step 2]"),
    ],
)  # fmt: skip
def test_numbers_of_a_fold(numbers: list[int], text: str) -> None:
    assert _range(numbers) == text


def test_one_number_is_cut_out_of_each_label() -> None:
    def stems(*labels: str) -> dict[str, list[int]]:
        found = _stems(list(enumerate(labels)))
        return {stem.replace("\0", "#"): [n for n, _ in of] for stem, of in found.items()}

    assert stems("a0", "a1", "b2") == {"a#": [0, 1]}
    assert stems("s0b0", "s0b1", "s1b0", "s1b1") == {"s0b#": [0, 1], "s1b#": [0, 1]}
    assert stems("s0b0", "s1b0", "s0b1", "s1b1") == {"s#b0": [0, 1], "s#b1": [0, 1]}
    assert stems("s0b0", "s0b1", "s0b2", "s1b0") == {"s0b#": [0, 1, 2], "s#b0": [1]}
    assert stems("a123456789", "a123456788") == {"a#": [123456789, 123456788]}
    assert stems("a1234567890", "a1234567891") == {}
    assert (_far([[0, 2, 6], [1, 4]]), _far([[3]])) == (3.0, 0.0)


# -- equal structure -------------------------------------------------------------------------


def test_mixing_is_splitmix64() -> None:
    """Its published first outputs from 0."""
    golden = np.uint64(0x9E3779B97F4A7C15)
    states = np.array([0, golden], np.uint64)
    assert mix(states).tolist() == [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4]


def test_equal_numbers_are_of_equal_structure() -> None:
    s = Small("x! y! a=sine:x b=sine:y c=subtract:a,b d=subtract:b,a e=subtract:a,y f=sine:c "
              "g=sine:d h=tanh:a k=sine:x", shapes={"k": "f32[4,8]"}, before="")  # fmt: skip
    token = dict(zip(s.names, tokens(s.t).tolist(), strict=True))
    assert token["a"] == token["b"] == token["f"]
    assert len({token[n] for n in "achk"}) == 4
    together = np.zeros(len(s.names), np.int64)
    of = dict(zip(s.names, instruction_hashes(s.t, together).tolist(), strict=True))
    assert of["a"] == of["b"]
    assert of["c"] == of["d"]  # of equal operands
    assert len({of[n] for n in "aceh"}) == 4
    # an operand of another group counts by its shape
    apart = np.arange(len(s.names))
    of = dict(zip(s.names, instruction_hashes(s.t, apart).tolist(), strict=True))
    assert of["c"] == of["d"] == of["e"]
    assert of["f"] == of["g"] == of["a"]
    s = Small("x! a=sine:x b=tanh:x c=subtract:a,b d=subtract:b,a", before="")
    of = dict(zip(s.names, instruction_hashes(s.t, np.zeros(5, np.int64)).tolist(), strict=True))
    assert of["c"] != of["d"]  # their order tells


def test_what_calls_differs_as_what_it_calls() -> None:
    inner = "".join(
        f"{name} {{\n  {name}0 = f32[8,8] parameter(0)\n"
        f"  ROOT {name}1 = f32[8,8] {op}({name}0)\n}}\n\n"
        for name, op in (("p", "sine"), ("q", "sine"), ("r", "tanh"))
    )
    calls = {n: f"kind=kLoop, calls={c}" for n, c in (("a", "p"), ("b", "q"), ("c", "r"))}
    s = Small("x! a=fusion:x b=fusion:x c=fusion:x d=sine:x", more=calls, before=inner)
    base = instruction_hashes(s.t, np.arange(len(s.t.opcode)))
    sums, full = computation_hashes(s.t, base)
    a, b, c, d = (int(full[s.at(n)]) for n in "abcd")
    assert a == b != c
    assert base[s.at("a")] == base[s.at("c")]
    assert d == base[s.at("d")]
    assert sums[0] == sums[1] != sums[2]


def test_groups_in_a_group_are_part_of_its_class() -> None:
    spec = "x! a=sine:x b=sine:x c=tanh:x d=tanh:x e=cosine:x f=log:x"
    s = Small(spec, before="")

    def of(parent: list[int], group: list[int], kinds: str = "") -> list[int]:
        n = len(parent)
        word = dict(zip("msfc", ("module", "scope", "fusion", "component"), strict=True))
        kind = np.array([KINDS.index(word[k]) for k in kinds or "m" + "s" * (n - 1)])
        none, empty = np.full(n, -1), [False] * n
        tree = GroupTree(np.array(parent), kind, [""] * n, none, none, none, none, [""] * n, empty,
                         empty, np.array(group), np.zeros(1, np.int64))  # fmt: skip
        return [int(number) for number in classes(s.t, tree)]

    found = of([-1, 0, 0, 1, 2], [0, 1, 2, 3, 4, 0, 0])
    assert found[1] == found[2]
    assert found[1] != found[3] == found[4]
    found = of([-1, 0, 0, 1, 2], [0, 1, 2, 3, 0, 4, 0])
    assert found[1] != found[2]  # what is in them differs
    found = of([-1, 0, 0, 1, 2, 3, 4], [0, 1, 2, 3, 4, 5, 6])
    assert found[1] != found[2]
    assert found[3] != found[4]
    assert of([-1, 0, 0], [0, 1, 2, 0, 0, 0, 0], "msc")[1:] == [1, 2]  # of two kinds


def test_a_called_computation_differs_as_the_scopes_in_it() -> None:
    """Three branches with a scope each: two hold a sine, one a tanh."""
    s = Small("x! a=sine:x b=sine:x c=tanh:x", before="")
    parent, group = np.array([-1, 0, 0, 0, 1, 2, 3]), np.array([0, 4, 5, 6])
    words = ["module", *["branch"] * 3, *["scope"] * 3]
    kind = np.array([KINDS.index(w) for w in words])
    n = len(words)
    none, empty = np.full(n, -1), [False] * n
    tree = GroupTree(
        parent, kind, [""] * n, none, none, none, none, [""] * n, empty, empty, group, none
    )
    _, a, b, c, *_ = (int(number) for number in classes(s.t, tree))
    assert a == b != c


def test_vectors_and_integers_are_no_weights() -> None:
    def of(*shapes: str) -> dict[str, int]:
        names = [f"w{k}" for k in range(4)]
        spec = " ".join(["x!", *(f"{w}!" for w in names), *(f"{w}u=sine:{w}" for w in names)])
        s = Small(spec, shapes=dict(zip(names, shapes, strict=True)), before="")
        return dict(_Contents(s.t, one_group(s)).weights(1))

    assert of("f32[8]", "s32[8,8]", "pred[8,8]", "bf16[4,8]") == {"bf16[4,8]": 1}
    assert of("f32[8,8]", "f32[8,8]", "f32[]", "u32[2,2]") == {"f32[8,8]": 2}


def one_group(s: Small) -> GroupTree:
    """All that is made is in one scope."""
    parent, kind = np.array([-1, 0]), np.array([KINDS.index("module"), KINDS.index("scope")])
    none, words, empty = np.full(2, -1), [""] * 2, [False] * 2
    group = np.array([int(name.endswith("u")) for name in s.names])
    return GroupTree(parent, kind, words, none, none, none, none, words, empty, empty, group, none)


def test_what_is_in_a_layer_is_said_in_three_words() -> None:
    parts = ("attn", "mlp", "norm", "gate")
    sizes = (4, 3, 2, 5)
    labels = ["module", "l0", "l1", *parts]
    n = len(labels)
    kind = np.array([KINDS.index("module"), *[KINDS.index("scope")] * (n - 1)])
    tree = SimpleNamespace(kind=kind, label=labels, size=np.array([0, 14, 0, *sizes]))
    children: list[list[int]] = [[1, 2], [3, 4, 5, 6], [], [], [], [], []]
    assert _inside(1, tree, children) == ": attn, mlp, gate"
    assert _inside(2, tree, children) == ""
