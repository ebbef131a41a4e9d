"""The backward pass is in layers by the weights it shares with those of the forward pass."""

from __future__ import annotations

import hloscope as hs
from hloscope.analysis.grouping.folds import folds
from hloscope.analysis.grouping.groups import group_tree
from hloscope.analysis.grouping.layers import layers
from hloscope.hlo import Module

A = "f32[8,64]"
W = "f32[64,64]"


def step(count: int = 5, passes: int = 1) -> str:
    """Layers of two products; each gradient is of a line, shape and fusion of its own."""
    lines = [f'  x = {A} parameter(0), metadata={{op_name="x"}}']
    for k in range(count):
        lines += [
            f"  {n}{k} = {W} parameter({1 + 2 * k + p}), metadata={{op_name=\"p[{k}]['{n}']\"}}"
            for p, n in enumerate(("up", "down"))
        ]

    def where(path: str, line: int) -> str:
        return f'metadata={{op_name="jit(f)/{path}" source_file="m.py" source_line={line}}}'

    def dot(name: str, of: str, weight: str, path: str, line: int, axis: int) -> str:
        meta = where(f"{path}/dot_general", line)
        lines.append(
            f"  {name} = {A} dot({of}, {weight}), lhs_contracting_dims={{1}}, "
            f"rhs_contracting_dims={{{axis}}}, {meta}"
        )
        return name

    def one(name: str, opcode: str, *of: str, path: str, line: int) -> str:
        meta = (
            f'metadata={{op_name="jit(f)/{path}/{opcode}" source_file="m.py" source_line={line}}}'
        )
        lines.append(f"  {name} = {A} {opcode}({', '.join(of)}), {meta}")
        return name

    results = []
    for turn in range(passes):
        at = "x"
        if turn:
            at = one(f"other{turn}", "negate", "x", path="jvp()", line=3)
        for k in range(count):
            h = dot(f"h{turn}_{k}", at, f"up{k}", "jvp()", 10 + 30 * turn, 0)
            h = one(f"t{turn}_{k}", "tanh", h, path="jvp()", line=11 + 30 * turn)
            h = dot(f"o{turn}_{k}", h, f"down{k}", "jvp()", 12 + 30 * turn, 0)
            at = one(f"s{turn}_{k}", "add", at, h, path="jvp()", line=13 + 30 * turn)
        results.append(one(f"loss{turn}", "cosine", at, path="jvp()", line=20))
    for turn in range(passes):
        at = one(f"d{turn}", "sine", f"loss{turn}", path="transpose(jvp())", line=20)
        for k in reversed(range(count)):
            # nothing repeats: each layer's gradient has a line of its own
            path, line = "transpose(jvp())", 100 + 10 * k + turn
            g = dot(f"gd{turn}_{k}", at, f"down{k}", path, line, 1)
            g = one(f"gt{turn}_{k}", "multiply", g, f"t{turn}_{k}", path=path, line=line + 1)
            g = dot(f"gu{turn}_{k}", g, f"up{k}", path, line + 2, 1)
            at = one(f"gs{turn}_{k}", "add", at, g, path=path, line=line + 3)
        results.append(at)
    shapes = ", ".join([A] * len(results))
    lines.append(f"  ROOT r = ({shapes}) tuple({', '.join(results)})")
    return "\n".join(["HloModule m", "", "ENTRY main {", *lines, "}", ""])


def backward(module: Module) -> list[dict[str, int]]:
    """A stack of gradients each: product → layer."""
    found = layers(module)
    by_name = {i.name: i.index for i in module.instructions}
    out = []
    for run in found.runs:
        if not run.recedes:
            continue
        lowest = min(run.identity)
        rows = {r for spine in run.stack.spine for r in spine}
        out.append(
            {name: int(found.layer[row]) - lowest for name, row in by_name.items() if row in rows}
        )
    return out


def test_gradients_that_nothing_repeats_are_in_the_layer_of_their_weights():
    module = hs.read(step()).module
    (placed,) = backward(module)
    assert placed == {f"{n}0_{k}": k for k in range(5) for n in ("gd", "gu")}


def test_the_layers_of_the_gradients_fold_like_those_of_the_model():
    module = hs.read(step()).module
    tree = group_tree(module)
    found = folds(module, tree)
    assert sorted(len(f.members) for f in found.folds) == [5, 5]
    by_name = {i.name: i.index for i in module.instructions}
    for f in found.folds:
        for k, g in enumerate(f.members):
            inside = {n for n, row in by_name.items() if tree.group[row] == g}
            assert {f"gu0_{k}", f"gd0_{k}"} <= inside or {f"h0_{k}", f"o0_{k}"} <= inside


def test_weights_used_twice_have_two_stacks_of_gradients():
    module = hs.read(step(passes=2)).module
    placed = backward(module)
    assert len(placed) == 2
    for turn, one in enumerate(sorted(placed, key=min)):
        assert one == {f"{n}{turn}_{k}": k for k in range(5) for n in ("gd", "gu")}
    tree = group_tree(module)
    assert sorted(len(f.members) for f in folds(module, tree).folds) == [5] * 4


def test_a_product_with_the_weights_of_two_layers_says_nothing():
    text = step().replace("gu0_3 = f32[8,64] dot(gt0_3, up3)", "gu0_3 = f32[8,64] dot(up2, up3)")
    module = hs.read(text).module
    for placed in backward(module):
        assert all(placed[name] == int(name[-1]) for name in placed)
