"""Products beside the layers of a frozen network are not in its layers."""

from __future__ import annotations

import hloscope as hs
import numpy as np
from hloscope.analysis.base.labels.families import ID
from hloscope.analysis.base.phases.edges import BACKWARD
from hloscope.analysis.grouping.groups import group_tree
from hloscope.analysis.grouping.layers.layers import layers
from hloscope.analysis.grouping.layers.members import free_products
from hloscope.analysis.grouping.layers.repeats import Repeats, Stack
from hloscope.hlo import Module

A = "f32[64,64]"
COUNT = 6


def distilled() -> str:
    """A frozen teacher; a student learns from each of its layers through a projection."""
    lines = [f'  x = {A} parameter(0), metadata={{op_name="x"}}']
    for k in range(COUNT):
        for p, name in enumerate(("teach", "learn", "project")):
            named = f"metadata={{op_name=\"{name}['{k}']\"}}"
            lines.append(f"  {name}{k} = {A} parameter({3 * k + p + 1}), {named}")

    def one(name: str, opcode: str, *of: str, path: str, line: int) -> str:
        dims = ", lhs_contracting_dims={1}, rhs_contracting_dims={0}" if opcode == "dot" else ""
        where = f'op_name="jit(step)/{path}/{opcode}" source_file="m.py" source_line={line}'
        lines.append(f"  {name} = {A} {opcode}({', '.join(of)}){dims}, metadata={{{where}}}")
        return name

    forward, backward = "jvp()", "transpose(jvp())"
    taught, learnt = "x", "x"
    for k in range(COUNT):
        h = one(f"t{k}", "dot", taught, f"teach{k}", path=forward, line=10)
        taught = one(f"a{k}", "tanh", h, path=forward, line=11)
    for k in range(COUNT):
        h = one(f"s{k}", "dot", learnt, f"learn{k}", path=forward, line=20)
        learnt = one(f"b{k}", "sine", h, path=forward, line=21)
        h = one(f"p{k}", "dot", learnt, f"project{k}", path=forward, line=30)
        one(f"e{k}", "subtract", h, f"a{k}", path=forward, line=31)
    back, updates = "x", []
    for k in reversed(range(COUNT)):
        updates.append(one(f"gp{k}", "dot", f"e{k}", f"b{k}", path=backward, line=30))
        g = one(f"gb{k}", "dot", f"e{k}", f"project{k}", path=backward, line=30)
        back = one(f"gs{k}", "add", back, g, path=backward, line=21)
        before = f"b{k - 1}" if k else "x"
        updates.append(one(f"gw{k}", "dot", back, before, path=backward, line=20))
        back = one(f"gx{k}", "dot", back, f"learn{k}", path=backward, line=20)
    shapes = ", ".join([A] * len(updates))
    lines.append(f"  ROOT r = ({shapes}) tuple({', '.join(updates)})")
    return "\n".join(["HloModule m", "", "ENTRY e {", *lines, "}", ""])


def above(module: Module, name: str) -> list[str]:
    tree = group_tree(module)
    at = int(tree.group[next(i.index for i in module.instructions if i.name == name)])
    out = []
    while at >= 0:
        out.append(tree.label[at])
        at = int(tree.parent[at])
    return out


def test_every_product_is_under_its_own_pass() -> None:
    module = hs.read(distilled().encode()).module
    for i in module.instructions:
        if i.opcode == "dot":
            mine = "backward" if "transpose(" in i.op_name else "forward"
            assert {"forward", "backward"} & set(above(module, i.name)) == {mine}, i.name


def test_teacher_and_student_have_their_layers() -> None:
    module = hs.read(distilled().encode()).module
    assert sorted(run.stack.count for run in layers(module).runs)[:2] == [COUNT, COUNT]
    for k in range(COUNT):
        assert f"block {k}" in above(module, f"t{k}")[0] or above(module, f"t{k}")[0].endswith(
            f" {k}"
        )


def test_gradients_of_weights_are_beside_the_product_that_takes_the_gradient_on() -> None:
    module = hs.read(distilled().encode()).module
    for k in range(COUNT):
        assert above(module, f"gw{k}")[:2] == above(module, f"gx{k}")[:2]
        assert above(module, f"gw{k}")[:2] == [f"learn layer {k}", "backward"]


def chained(between: bool = False) -> str:
    """Layers whose gradient is one product; what it passes on is the next one's, as it is.

    The gradients of the weights, their sums for the biases and a cast of these serve no layer.
    ``between``: each layer computes something before its product, and that of its weights from it.
    """
    lines = [f'  given = {A} parameter(0), metadata={{op_name="x"}}', "  zero = f32[] constant(0)"]
    for k in range(COUNT):
        lines.append(f"  w{k} = {A} parameter({k + 1}), metadata={{op_name=\"w['{k}']\"}}")

    def where(path: str, line: int) -> str:
        return f'metadata={{op_name="jit(f)/{path}" source_file="m.py" source_line={line}}}'

    def dot(name: str, a: str, b: str, path: str, line: int) -> str:
        dims = "lhs_contracting_dims={1}, rhs_contracting_dims={0}"
        lines.append(f"  {name} = {A} dot({a}, {b}), {dims}, {where(path, line)}")
        return name

    lines.append(f"  x = {A} sine(given), {where('jvp()/sin', 9)}")
    at, back = "x", "transpose(jvp())/dot_general"
    for k in range(COUNT):
        at = dot(f"y{k}", at, f"w{k}", "jvp()/dot_general", 10)
    lines.append(f"  dy = {A} cosine({at}), {where('transpose(jvp())/cos', 20)}")
    at, results = "dy", []
    for k in reversed(range(COUNT)):
        if between:
            lines.append(f"  m{k} = {A} multiply({at}, y{k}), {where('transpose(jvp())/mul', 11)}")
            lines.append(f"  n{k} = {A} negate(m{k}), {where('transpose(jvp())/neg', 90 + k)}")
            results.append(dot(f"dn{k}", f"y{k}", f"n{k}", back, 100 + k))
            lines.append(f"  o{k} = {A} tanh(m{k}), {where('transpose(jvp())/tanh', 12)}")
            at = f"o{k}"
        turned = f"{at}t"
        lines.append(f"  {turned} = {A} copy({at}), {where(back, 10)}")
        results.append(dot(f"dw{k}", f"y{k - 1}" if k else "x", turned, back, 50 + k))
        lines.append(f"  db{k} = f32[64] reduce({at}, zero), dimensions={{0}}, to_apply=add, "
                     f"{where('transpose(jvp())/reduce_sum', 70 + k)}")  # fmt: skip
        lines.append(f"  dc{k} = bf16[64] convert(db{k}), {where('transpose(jvp())/cast', 80 + k)}")
        results.append(f"dc{k}")
        before, at = at, dot(f"dx{k}", at, f"w{k}", back, 11)
    lines.append(f"  around = {A} add({before}, {at}), {where('transpose(jvp())/add', 12)}")
    lines.append(f"  looked = {A} sine(around), {where('transpose(jvp())/scatter', 13)}")
    results.append("looked")
    shapes = ", ".join(["bf16[64]" if r[:2] == "dc" else A for r in results])
    lines.append(f"  ROOT r = ({shapes}) tuple({', '.join(results)})")
    add = (
        "add {\n  a = f32[] parameter(0)\n  b = f32[] parameter(1)\n  ROOT c = f32[] add(a, b)\n}\n"
    )
    return "\n".join(["HloModule m", "", add, "ENTRY e {", *lines, "}", ""])


def test_biases_too_and_what_follows_from_them() -> None:
    module = hs.read(chained().encode()).module
    for k in range(COUNT):
        mine = above(module, f"dx{k}")[:2]
        assert mine[0].endswith(f" {k}"), mine
        for name in ("dw", "db", "dc"):
            assert above(module, f"{name}{k}")[:2] == mine, name


def test_the_gradient_of_an_embedding_is_in_no_layer() -> None:
    module = hs.read(chained().encode()).module
    assert above(module, "around")[0].endswith(" 0")
    assert above(module, "looked")[0] == "backward"


def test_what_is_made_of_a_layers_own_is_the_layers() -> None:
    module = hs.read(chained(between=True).encode()).module
    for k in range(COUNT):
        assert above(module, f"m{k}")[0] == above(module, f"dx{k}")[0]
        assert above(module, f"dn{k}")[0] == above(module, f"dx{k}")[0]


def test_products_that_layers_repeat_stay_though_they_are_of_the_other_pass() -> None:
    positions = np.array([0, 1, 0, 1])
    none = np.zeros(4, np.int64)
    found = Repeats((Stack(0, ((0, 1),)),), 0, (0,), positions, none, none)
    phase, family = np.full(4, BACKWARD, np.uint8), np.full(4, ID["matmul"], np.uint8)
    family[3] = ID["elementwise"]
    free_products(phase, family, found, [False])
    assert found.position.tolist() == [0, 1, -1, 1]
