"""Layers as the arguments of their weights number them, and what a layer makes of a condition."""

from __future__ import annotations

from collections import Counter
from typing import Any

from hloscope.analysis.base.table import table
from hloscope.analysis.grouping.folds import folds
from hloscope.analysis.grouping.groups import group_tree
from hloscope.analysis.grouping.layers.layers import layers
from hloscope.analysis.grouping.layers.witness import MOST_RUNS, numbers, runs
from hloscope.hlo import Module
from hloscope.readers import read_modules

F = "f32[64,64]{1,0}"


class Program:
    """Products of one line, each with an argument of its own or with one used before."""

    def __init__(self) -> None:
        self.head = [f"  x = {F} parameter(0)"]
        self.rows: list[str] = []
        self.at: dict[str, int] = {}

    def weight(self, path: str) -> str:
        if path not in self.at:
            self.at[path] = n = len(self.at) + 1
            meta = f'metadata={{op_name="{path}"}}'
            self.head.append(f"  w{n} = {F} parameter({n}), {meta}")
        return f"w{self.at[path]}"

    def dot(self, left: str, path: str, scope: str = "", end: str = "dot_general") -> str:
        name = f"d{len(self.rows)}"
        dims = "lhs_contracting_dims={1}, rhs_contracting_dims={0}"
        self.rows.append(
            f"  {name} = {F} dot({left}, {self.weight(path)}), {dims}, "
            f'metadata={{op_name="jit(f)/{scope}{end}"}}'
        )
        return name

    def op(self, opcode: str, *operands: str, scope: str = "") -> str:
        name = f"e{len(self.rows)}"
        meta = f'metadata={{op_name="jit(f)/{scope}{opcode}"}}'
        self.rows.append(f"  {name} = {F} {opcode}({', '.join(operands)}), {meta}")
        return name

    def module(self, result: str) -> Module:
        rows = [*self.head, *self.rows, f"  ROOT r = {F} negate({result})"]
        (module,) = read_modules("\n".join(["HloModule m", "", "ENTRY m {", *rows, "}", ""]))
        return module


def dense(p: Program, x: str, paths: list[str], scope: str = "") -> str:
    for path in paths:
        x = p.op("tanh", p.dot(x, path, scope), scope=scope)
        x = p.op("add", x, x, scope=scope)
    return x


def counts(module: Module) -> list[int]:
    return [r.stack.count for r in layers(module).runs]


def members(module: Module) -> Counter[int]:
    tree = group_tree(module)
    return Counter(len(f.members) for f in folds(module, tree).folds)


def three(name: str) -> list[str]:
    return [f"p['{name}'][{k}]['w']" for k in range(3)]


def test_two_stacks_of_one_line_are_told_apart_by_their_arguments() -> None:
    p = Program()
    module = p.module(dense(p, dense(p, "x", three("encoder")), three("decoder")))
    assert counts(module) == [3, 3]
    assert members(module) == {3: 2}


def test_arguments_tell_thousands_of_layers_apart_too() -> None:
    p, count = Program(), 2500
    teacher, student = ([f"p['{n}'][{k}]['w']" for k in range(count)] for n in ("t", "s"))
    module = p.module(dense(p, dense(p, "x", teacher), student))
    assert counts(module) == [count, count]


def test_products_in_no_order_of_their_arguments_are_no_runs() -> None:
    p = Program()
    for k in range(4 * MOST_RUNS):
        p.dot("x", f"p[{k * 7 % 1009}]")
    t = table(p.module("x"))
    assert runs(t, [i.index for i in t.instructions if i.opcode == "dot"]) == []


def test_the_same_weights_again_are_another_pass_over_the_same_layers() -> None:
    p = Program()
    x = "x"
    for _ in range(4):
        x = p.dot(dense(p, x, three("layers")), "p['out']", end="head")
    module = p.module(x)
    assert counts(module) == [3, 3, 3, 3]


def test_only_numbers_within_arguments_tell_layers_apart() -> None:
    def found(paths: list[str]) -> list[int]:
        p = Program()
        return counts(p.module(dense(p, "x", paths)))

    assert found(three("encoder") + three("decoder")) == [3, 3]
    assert found([f"p['{name}']" for name in "abcdef"]) == [6]
    # numbers of the arguments themselves are anybody's: a function of v0, v1, …
    assert found([f"{name}{k}" for name in "vw" for k in range(3)]) == [6]


def test_stages_of_one_network_are_one_stack() -> None:
    p = Program()
    paths = [f"p['stages'][{s}]['layers'][{k}]['w']" for s in range(3) for k in range(2)]
    assert counts(p.module(dense(p, "x", paths))) == [6]


def layer_of(module: Module, name: str) -> int:
    assert module.entry is not None
    return int(layers(module).layer[module.entry._by_name[name].index])


def conditioned(gate_alone: bool) -> tuple[Module, list[str]]:
    """Five layers, each with a product of the condition: a gate that the next layer sees too."""
    p = Program()
    x, made = p.dot("x", "p['in']", end="embed"), []
    for k in range(5):
        of = f"p['layers'][{k}]"
        gate = p.dot("x", f"{of}['ada']" if gate_alone else "p['ada']", end="condition")
        made.append(gate)
        h = p.op("multiply", p.op("tanh", p.dot(x, f"{of}['up']", end="up")), gate)
        h = p.dot(h, f"{of}['down']", end="down")
        x = p.op("add", x, p.op("multiply", h, gate))
    return p.module(p.dot(x, "p['out']", end="head")), made


def test_what_a_layer_makes_of_a_condition_is_in_the_layer() -> None:
    module, made = conditioned(gate_alone=True)
    assert [layer_of(module, name) for name in made] == [0, 1, 2, 3, 4]
    module, made = conditioned(gate_alone=False)  # nothing but the data flow says so
    assert [layer_of(module, name) for name in made] == [0, 1, 2, 3, 4]


def test_the_embedding_is_in_no_layer() -> None:
    module, _ = conditioned(gate_alone=True)
    assert layer_of(module, "d0") == -1


def test_layers_a_person_numbered_are_one_fold_though_the_last_does_more() -> None:
    p = Program()
    x: Any = "x"
    for k in range(4):
        scope = f"layer_{k}/"
        x = dense(p, x, [f"p['layers'][{k}]['{n}']" for n in "abcd"], scope)
        if k == 3:
            for _ in range(9):
                x = p.op("cosine", x, scope=scope)
    module = p.module(x)
    tree = group_tree(module)
    assert [f.label for f in folds(module, tree).folds] == ["layer_[0..3]"]


def test_scopes_that_hold_a_few_layers_each_stay_around_them():
    def levels(named: bool) -> set[str]:
        p, x = Program(), "x"
        for level in range(3):
            scope = f"down_{level}/" if named else ""
            x = dense(p, x, [f"blocks[{2 * level + k}]" for k in range(2)], scope)
            x = p.op("sine", x, scope=scope)
        tree = group_tree(p.module(x))
        parents = (tree.label[g] if g >= 0 else "" for g in tree.parent)
        return {f"{a} > {b}" for a, b in zip(parents, tree.label, strict=True)}

    assert {f"down_{n // 2} > layer {n}" for n in range(6)} <= levels(True)
    assert "m > layer 5" in levels(False)


def test_weights_updated_within_the_step_are_layers_once_more() -> None:
    def found(more: str) -> list[int]:
        p = Program()
        x = dense(p, "x", three("layers"))
        if more:
            x = p.op("multiply", x, p.weight(more))
        updated = [p.op("subtract", p.weight(path), x) for path in three("layers")]
        for w in updated:
            p.at["updated"] = 0
            row = p.dot(x, "updated")
            p.rows[-1] = p.rows[-1].replace("w0)", f"{w})")
            x = p.op("add", p.op("tanh", row), row)
        return counts(p.module(x))

    assert found("") == [3, 3]
    # there is a fourth layer, so that nobody knows how many follow
    assert found("p['layers'][3]['w']") == [6]


def test_two_layers_of_which_one_does_far_more_are_one_fold() -> None:
    p, x = Program(), "x"
    for k in range(2):
        for name in ("a", "b"):
            x = p.op("tanh", p.dot(x, f"layers[{k}]['{name}']", end=name))
        if not k:
            for op in ("sine", "cosine", "abs", "sqrt", "floor", "ceil", "sign") * 3:
                x = p.op(op, x)
    module = p.module(x)
    assert counts(module) == [2]
    assert members(module)[2] == 1


def test_stacks_of_one_name_are_called_by_what_differs_in_their_arguments() -> None:
    """A teacher and a student, who sees two things: one word each, and a letter for the second."""
    a, w = "f32[8,64]", "f32[64,64]"
    lines = [f"  x{n} = {a} parameter({n})" for n in range(3)]
    lines += [
        f"  {who}{k} = {w} parameter({3 + 4 * n + k}), "
        f"metadata={{op_name=\"{who}['layers'][{k}]['w']\"}}"
        for n, who in enumerate(("teacher", "student"))
        for k in range(4)
    ]
    dims = "lhs_contracting_dims={1}, rhs_contracting_dims={0}"
    for turn, who in enumerate(("teacher", "student", "student")):
        at = f"x{turn}"
        for k in range(4):
            meta = f'op_name="jit(f)/%s" source_file="m.py" source_line={10 * turn + 1}'
            lines.append(f"  d{turn}_{k} = {a} dot({at}, {who}{k}), {dims}, "
                         f"metadata={{{meta % 'dot_general'}}}")  # fmt: skip
            lines.append(f"  t{turn}_{k} = {a} tanh(d{turn}_{k}), metadata={{{meta % 'tanh'}}}")
            at = f"t{turn}_{k}"
    lines += [f"  s{n} = {a} add(t{n}_3, t{n + 1}_3)" for n in range(2)]
    lines.append(f"  ROOT r = ({a}, {a}) tuple(s0, s1)")
    (module,) = read_modules("\n".join(["HloModule m", "", "ENTRY main {", *lines, "}", ""]))
    names = sorted(run.name for run in layers(module).runs)
    assert names == ["student layer", "student layer B", "teacher layer"]


def test_layers_of_two_kinds_are_one_stack_where_their_arguments_number_them() -> None:
    """Two recurrent layers to one that looks: runs of two and of one are no stacks of their own."""
    a, w = "f32[8,64]", "f32[64,64]"
    lines = [f"  x = {a} parameter(0)"]
    dims = "lhs_contracting_dims={1}, rhs_contracting_dims={0}"
    number, at, body = 1, "x", []
    for k in range(9):
        own = [("in", 1), ("gate", 2), ("out", 3)] if k % 3 < 2 else [("q", 4), ("o", 5)]
        for name, line in [*own, ("up", 6), ("down", 7)]:
            path = f"params['layers'][{k}]['{name}']"
            lines.append(f'  {name}{k} = {w} parameter({number}), metadata={{op_name="{path}"}}')
            number += 1
            meta = f'metadata={{op_name="jit(f)/%s" source_file="m.py" source_line={line}}}'
            body.append(f"  d{name}{k} = {a} dot({at}, {name}{k}), {dims}, {meta % 'dot_general'}")
            body.append(f"  t{name}{k} = {a} tanh(d{name}{k}), {meta % 'tanh'}")
            at = f"t{name}{k}"
    text = ["HloModule m", "", "ENTRY main {", *lines, *body, f"  ROOT r = {a} negate({at})", "}"]
    (module,) = read_modules("\n".join([*text, ""]))
    (run,) = layers(module).runs
    assert run.stack.count == 9
    found = layers(module).layer
    of = {i.name: int(found[i.index]) for i in module.instructions if i.opcode == "dot"}
    assert all(layer == int(name[-1]) for name, layer in of.items())
    tree = group_tree(module)
    assert sorted(len(f.members) for f in folds(module, tree).folds) in ([9], [3, 6])


def test_casts_of_weights_are_in_the_layer_whose_last_product_takes_them() -> None:
    p, x = Program(), "x"
    for k in range(5):
        x = p.op("tanh", p.dot(x, f"p[{k}]['up']"))
        last = k == 4
        scope = "last/" if last else ""  # fused with what follows: like no other layer's
        w = p.op("copy", p.weight(f"p[{k}]['down']"), scope=scope)
        product = f"d{len(p.rows)}"
        meta = f'metadata={{op_name="jit(f)/{scope}dot_general"}}'
        dims = "lhs_contracting_dims={1}, rhs_contracting_dims={0}"
        x = p.op("negate" if last else "sine", x)
        p.rows.append(f"  {product} = {F} dot({x}, {w}), {dims}, {meta}")
        x = product
    module = p.module(p.op("cosine", x, scope="loss/"))
    assert module.entry is not None
    of = {
        i.name: int(n) for i, n in zip(module.entry.instructions, layers(module).layer, strict=True)
    }
    assert of[product] == 4
    assert of[w] == 4


def test_a_first_layer_unlike_the_others_is_whole_and_before_them() -> None:
    p, x = Program(), "x"
    opened = []
    for k in range(7):
        opened.append(p.op("sine", x))  # as all layers begin
        y, kind = opened[-1], "layers" if k else "dense"
        for n in range(4):
            y = p.dot(y, f"p['{kind}'][{k}][{n}]", end=f"{kind}_{'xyzw'[n]}")
        x = p.op("add", x, y)
    module = p.module(x)
    assert counts(module) == [6]
    tree = group_tree(module)
    assert module.entry is not None
    boxes = [tree.label[tree.group[module.entry._by_name[name].index]] for name in opened]
    assert boxes[0] == tree.label[tree.group[module.entry._by_name["d1"].index]] == "before layers"
    assert [b.rpartition(" ")[2] for b in boxes[1:]] == [str(k) for k in range(6)]


def test_a_product_with_the_weights_of_two_layers_is_of_neither() -> None:
    p = Program()
    a, b = p.weight("p[0]['w']"), p.weight("p[1]['w']")
    p.rows.append(f'  both = {F} custom-call(x, {a}, {b}), custom_call_target="gemm"')
    one = p.dot("both", "p[1]['w']")
    t = table(p.module(one))
    at = {i.name: i.index for i in t.instructions}
    assert numbers(t, at["both"]) == {}
    assert numbers(t, at[one]) == {("p[", "]['w']"): 1}
