"""Repeated neighbours fold, in natural order, near matches too; classes are isomorphism."""

from __future__ import annotations

import re
from collections import Counter

import pytest
from hloscope.analysis.grouping.folds import folds, near
from hloscope.analysis.grouping.groups import group_tree
from hloscope.readers import read_modules


def layers(count: int, odd: int = -1, name: str = "layer_{}", order=None) -> str:
    """A chain of equal layers of six instructions; ``odd`` differs in half of them."""
    lines = ["  %x = f32[8]{0} parameter(0)"]
    before = "x"
    for k in order or range(count):
        scope = name.format(k)
        ops = ["tanh", "negate", "sqrt", "floor", "ceil", "sign"]
        if k == odd:
            ops = ["abs"] * 12
        for n, op in enumerate(ops):
            meta = f'metadata={{op_name="jit(f)/net/{scope}/{op}"}}'
            lines.append(f"  %i{k}.{n} = f32[8]{{0}} {op}(%{before}), {meta}")
            before = f"i{k}.{n}"
    for n in range(8):
        meta = 'metadata={op_name="jit(f)/head/abs"}'
        lines.append(f"  %h{n} = f32[8]{{0}} abs(%{before}), {meta}")
    lines.append("  ROOT %r = f32[8]{0} negate(%h0)")
    body = "\n".join(lines)
    return f"HloModule net\n\nENTRY %main (x: f32[8]) -> f32[8] {{\n{body}\n}}\n"


def folded(text: str):
    module = read_modules(text)[0]
    tree = group_tree(module)
    found = folds(module, tree)
    return tree, found, [(f.label, [tree.label[m] for m in f.members]) for f in found.folds]


def test_twelve_layers_fold_in_natural_order():
    tree, found, names = folded(layers(12))
    assert names == [("layer_[0..11]", [f"layer_{k}" for k in range(12)])]
    (fold,) = found.folds
    assert tree.label[fold.parent] == "net"
    assert {found.group_class[m] for m in fold.members} == {found.group_class[fold.members[0]]}
    assert {found.of_group[m] for m in fold.members} == {0}


def test_a_different_layer_stays_out():
    _, _, names = folded(layers(6, odd=3))
    assert names == [("layer_[0..2,4,5]", ["layer_0", "layer_1", "layer_2", "layer_4", "layer_5"])]


def test_a_layer_that_differs_by_an_instruction_is_a_near_match():
    text = layers(5)
    meta = 'metadata={op_name="jit(f)/net/layer_0/cos"}'
    extra = f"  %extra = f32[8]{{0}} cosine(%i0.5), {meta}\n"
    text = text.replace("  %i1.0 =", extra + "  %i1.0 =")
    _, found, names = folded(text)
    assert names == [("layer_[0..4]", [f"layer_{k}" for k in range(5)])]
    assert len({found.group_class[m] for m in found.folds[0].members}) == 2


@pytest.mark.parametrize(
    ("name", "label"),
    [
        ("h.{}", "h.[0..3]"),
        ("layers_{}", "layers_[0..3]"),
        ("Block_{}", "Block_[0..3]"),
        ("stack/{}", "stack/[0..3]"),
        ("conv2d_{}", "conv2d_[0..3]"),
    ],
)
def test_names_with_numbers(name, label):
    _, _, names = folded(layers(4, name=name))
    assert [label_ for label_, _ in names] == [label] or names[0][0].endswith(label)


def test_schedule_does_not_decide_the_order_of_members():
    _, _, names = folded(layers(4, order=[2, 0, 3, 1]))
    assert names[0][1] == ["layer_0", "layer_1", "layer_2", "layer_3"]


def test_near():
    assert near(Counter("aabbcc"), Counter("aabbccdd"))
    assert not near(Counter("a" * 40), Counter("b" * 40))


def test_classes_are_renaming_invariant(compiled):
    """The same program under other names and with its computations reordered by name."""
    module = compiled("gpt_unrolled").module
    text = re.sub(r"%([\w.-]+)", r"%x_\1", module.text)
    renamed = read_modules(text)[0]
    assert len(renamed.instructions) == len(module.instructions)
    classes = [folds(m, group_tree(m)).group_class.tolist() for m in (module, renamed)]
    assert classes[0] == classes[1]


def test_layers_of_a_compiled_step_fold(compiled):
    module = compiled("gpt_unrolled").module
    tree = group_tree(module)
    names = {(tree.label[f.parent], f.label) for f in folds(module, tree).folds}
    for phase in ("forward", "backward"):
        assert any(p.startswith(phase) and label.startswith("layer_[0") for p, label in names)


def test_seed_004_folds_its_six_layers_both_ways(seeds):
    module = read_modules(next(seeds.glob("004_*")).read_bytes())[0]
    tree = group_tree(module)
    found = [f for f in folds(module, tree).folds if f.label == "layer/[0..5]"]
    assert [len(f.members) for f in found] == [6, 6]


def sized(sizes: list[int]) -> str:
    """A norm of an array of each size, side by side, each under a number of its own."""
    lines, results = [], []
    for k, n in enumerate(sizes):
        lines.append(f"  x{k} = f32[{n}] parameter({k})")
        before = f"x{k}"
        for op in ("abs", "sqrt", "floor", "ceil"):
            meta = f'metadata={{op_name="jit(f)/norm.{k}/{op}"}}'
            lines.append(f"  i{k}.{op} = f32[{n}] {op}({before}), {meta}")
            before = f"i{k}.{op}"
        results.append(before)
    shapes = ", ".join(f"f32[{n}]" for n in sizes)
    lines.append(f"  ROOT r = ({shapes}) tuple({', '.join(results)})")
    return "\n".join(["HloModule m", "", "ENTRY main {", *lines, "}", ""])


def test_what_is_done_to_arrays_of_several_shapes_in_turn_is_one_fold():
    _, _, names = folded(sized([8, 16, 8, 16, 8, 16]))
    assert [len(members) for _, members in names] == [6]


def test_stages_that_follow_one_another_stay_apart():
    _, _, names = folded(sized([8, 8, 8, 16, 16, 16]))
    assert [len(members) for _, members in names] == [3, 3]


def grid(stages: int, blocks: int) -> str:
    """Stages of blocks, each of which says both numbers."""
    lines, before = ["  x = f32[8] parameter(0)"], "x"
    for n in range(stages):
        for k in range(blocks):
            for op in ("tanh", "abs", "sqrt", "floor"):
                meta = f'metadata={{op_name="jit(f)/stage{n}_block{k}/{op}"}}'
                lines.append(f"  {op}{n}.{k} = f32[8] {op}({before}), {meta}")
                before = f"{op}{n}.{k}"
    lines.append(f"  ROOT r = f32[8] negate({before})")
    return "\n".join(["HloModule m", "", "ENTRY main {", *lines, "}", ""])


@pytest.mark.parametrize(
    ("stages", "blocks", "labels"),
    [
        (3, 3, ["stage0_block[0..2]", "stage1_block[0..2]", "stage2_block[0..2]"]),
        (3, 5, ["stage0_block[0..4]", "stage1_block[0..4]", "stage2_block[0..4]"]),
        (5, 2, [f"stage{n}_block[0,1]" for n in range(5)]),
    ],
)
def test_of_two_numbers_one_is_folded(stages: int, blocks: int, labels: list[str]):
    _, _, names = folded(grid(stages, blocks))
    assert [label for label, _ in names] == labels


def test_scopes_of_one_operation_that_differ_in_a_number_are_one_box():
    text = layers(4)
    for k in range(4):
        text = text.replace(f"net/layer_{k}/tanh", f"net/in_{k}/tanh")
    _, _, names = folded(text)
    assert sorted(label for label, _ in names) == ["in_[0..3]", "layer_[0..3]"]


def test_levels_whose_parts_are_numbered_on_are_one_fold():
    # of unlike sizes, the parts numbered through: part_0 and part_1 in the first, then part_2 …
    lines, before = ["  x = f32[8] parameter(0)"], "x"
    for k in range(8):
        size = 8 << k // 2
        for n, op in enumerate(("tanh", "abs", "sqrt", "floor", "ceil", "sign", "cosine", "sine")):
            meta = f'metadata={{op_name="jit(f)/down_{k // 2}/part_{k}/{op}"}}'
            lines.append(f"  o{k}.{n} = f32[{size}] {op}({before}), {meta}")
            before = f"o{k}.{n}"
    lines.append(f"  ROOT r = f32[64] negate({before})")
    _, _, names = folded("\n".join(["HloModule m", "", "ENTRY main {", *lines, "}", ""]))
    assert "down_[0..3]" in [label for label, _ in names]


def test_two_norms_around_a_layer_are_no_fold():
    """``LayerNorm_0 → attention → LayerNorm_1``: one box for both would put them side by side."""

    def program(middle: str) -> str:
        lines = ["HloModule m", "", "ENTRY main {", "  x = f32[64,64] parameter(0)"]

        def add(name: str, operation: str, scope: str) -> str:
            meta = f'metadata={{op_name="jit(f)/net/{scope}/op"}}'
            lines.append(f"  {name} = f32[64,64] {operation}, {meta}")
            return name

        at = "x"
        for k in range(2):
            for n, opcode in enumerate(("tanh", "negate", "sqrt", "abs")):
                at = add(f"n{k}.{n}", f"{opcode}({at})", f"norm_{k}")
            for n in range(4 if k == 0 else 0):
                at = add(f"m{n}", middle.format(at), "attention")
        for n in range(3):
            at = add("ROOT r" if n == 2 else f"h{n}", middle.format(at), "head")
        return "\n".join([*lines, "}"])

    def folded(text: str) -> list[str]:
        module = read_modules(text)[0]
        tree = group_tree(module)
        return [tree.label[f.members[0]] for f in folds(module, tree).folds]

    product = "dot({0}, {0}), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}"
    assert folded(program(product)) == []


def _chain(parts: list[tuple[str, str, int]]) -> list[str]:
    """Labels of the folds of a chain of parts: their scope, what they do, how wide they become."""
    lines = ["HloModule m", "", "ENTRY main {", "  x = f32[64,64] parameter(0)"]
    at, wide = "x", 64
    for k, (scope, does, to) in enumerate(parts):
        meta = f'metadata={{op_name="jit(f)/net/{scope}/op"}}'
        if does == "dot":
            lines.append(f"  w{k} = f32[{wide},{to}] constant({{...}})")
            dims = "lhs_contracting_dims={1}, rhs_contracting_dims={0}"
            lines.append(f"  p{k} = f32[64,{to}] dot({at}, w{k}), {dims}, {meta}")
            at, wide = f"p{k}", to
        for n, opcode in enumerate(("tanh", "negate", "sqrt", "abs")):
            lines.append(f"  i{k}.{n} = f32[64,{wide}] {opcode}({at}), {meta}")
            at = f"i{k}.{n}"
    meta = 'metadata={op_name="jit(f)/head/abs"}'
    lines += [f"  h{n} = f32[64,{wide}] cosine({at}), {meta}" for n in range(8)]
    lines += [f"  ROOT r = f32[64,{wide}] negate({at})", "}"]
    module = read_modules("\n".join(lines))[0]
    return [fold.label for fold in folds(module, group_tree(module)).folds]


def test_both_products_of_an_mlp_are_no_fold():
    assert _chain([("fc_0", "dot", 64), ("fc_1", "dot", 64)]) == ["fc_[0,1]"]
    assert _chain([("fc_0", "dot", 256), ("fc_1", "dot", 64)]) == []


def test_calls_that_take_turns_are_no_fold():
    """``Dense_0 → LayerNorm_0 → Dense_1 → LayerNorm_1``: a box each would be out of order."""
    turns = [(f"{name}_{k}", does, 64) for k in range(2) for name, does in
             (("dense", "dot"), ("norm", ""))]  # fmt: skip
    assert _chain(turns) == []
    assert _chain([(f"dense_{k}", "dot", 64) for k in range(2)]) == ["dense_[0,1]"]
