"""A loop that writes with the same layers as those that a step then trains is a part of its own."""

from __future__ import annotations

import hloscope as hs
import pytest
from hloscope.analysis.base.phases.phases import PHASES, phases
from hloscope.analysis.grouping.folds import folds
from hloscope.analysis.grouping.groups import KINDS, GroupTree, group_tree
from hloscope.hlo import Module

LAYERS = 5
A, W = "f32[8,64]", "f32[64,64]"
CARRY = f"(s32[], {A}, {', '.join([W] * 2 * LAYERS)})"


def where(path: str, opcode: str, line: int) -> str:
    return f'metadata={{op_name="jit(f)/{path}{opcode}" source_file="m.py" source_line={line}}}'


def dot(name: str, of: str, weight: str, path: str, line: int, axis: int = 0) -> str:
    said = where(path, "dot_general", line)
    return (
        f"  {name} = {A} dot({of}, {weight}), lhs_contracting_dims={{1}}, "
        f"rhs_contracting_dims={{{axis}}}, {said}"
    )


def one(name: str, opcode: str, of: str, path: str, line: int) -> str:
    return f"  {name} = {A} {opcode}({of}), {where(path, opcode, line)}"


def stack(at: str, path: str, head: str) -> tuple[list[str], str]:
    """The layers, from ``at``; and what leaves the last."""
    lines = []
    for k in range(LAYERS):
        lines += [
            dot(f"{head}h{k}", at, f"{head}up{k}", path, 10),
            one(f"{head}t{k}", "tanh", f"{head}h{k}", path, 11),
            dot(f"{head}o{k}", f"{head}t{k}", f"{head}down{k}", path, 12),
            one(f"{head}s{k}", "add", f"{at}, {head}o{k}", path, 13),
        ]
        at = f"{head}s{k}"
    return lines, at


def program() -> str:
    inside = "while/body/closed_call/"
    lines, last = stack("bx", inside, "b")
    weights = [(f"{n}{k}", f"p[{k}]['{n}']") for k in range(LAYERS) for n in ("up", "down")]
    body = [f"  c = {CARRY} parameter(0)", "  i = s32[] get-tuple-element(c), index=0"]
    body += [f"  bx = {A} get-tuple-element(c), index=1", "  by = s32[] constant(1)"]
    body += [
        f"  b{name} = {W} get-tuple-element(c), index={2 + n}"
        for n, (name, _) in enumerate(weights)
    ]
    body += [*lines, f"  next = s32[] add(i, by), {where(inside, 'add', 9)}"]
    held = ", ".join(f"b{name}" for name, _ in weights)
    body.append(f"  ROOT out = {CARRY} tuple(next, {last}, {held})")
    entry = [f'  x = {A} parameter(0), metadata={{op_name="x"}}', "  zero = s32[] constant(0)"]
    entry += [
        f'  {name} = {W} parameter({1 + n}), metadata={{op_name="{path}"}}'
        for n, (name, path) in enumerate(weights)
    ]
    given = ", ".join(name for name, _ in weights)
    entry += [
        one("start", "negate", "x", "", 30),
        f"  carry = {CARRY} tuple(zero, start, {given})",
        f"  loop = {CARRY} while(carry), condition=more, body=write, {where('', 'while', 31)}",
        f"  words = {A} get-tuple-element(loop), index=1",
        one("reward", "cosine", "words", "", 32),
        one("asked", "exponential", "words", "jvp()/", 40),
    ]
    lines, last = stack("asked", "jvp()/", "")
    entry += [*lines, one("loss", "multiply", f"{last}, reward", "jvp()/", 41)]
    back, at = "transpose(jvp())/", "d"
    entry.append(one("d", "sine", "loss", back, 41))
    for k in reversed(range(LAYERS)):
        entry += [
            dot(f"gd{k}", at, f"down{k}", back, 12, 1),
            one(f"gt{k}", "multiply", f"gd{k}, t{k}", back, 11),
            dot(f"gu{k}", f"gt{k}", f"up{k}", back, 10, 1),
            one(f"gs{k}", "add", f"{at}, gu{k}", back, 13),
        ]
        at = f"gs{k}"
    entry += [one("update", "subtract", f"{at}, x", "", 50), f"  ROOT r = ({A}) tuple(update)"]
    condition = [f"  k = {CARRY} parameter(0)", "  n = s32[] get-tuple-element(k), index=0"]
    condition += ["  end = s32[] constant(16)", "  ROOT lt = pred[] compare(n, end), direction=LT"]
    parts = {"more": condition, "write": body, "ENTRY main": entry}
    texts = [
        "\n".join([f"{'' if name[0] == 'E' else '%'}{name} {{", *part, "}"])
        for name, part in parts.items()
    ]
    return "HloModule m\n\n" + "\n\n".join(texts) + "\n"


@pytest.fixture(scope="module")
def module() -> Module:
    return hs.read(program()).module


def around(tree: GroupTree, row: int) -> list[str]:
    out, g = [], int(tree.group[row])
    while g >= 0:
        out.append(tree.label[g])
        g = int(tree.parent[g])
    return out[::-1]


def test_what_a_loop_before_the_gradients_runs_is_no_optimiser(module: Module) -> None:
    said = {i.name: PHASES[p] for i, p in zip(module.instructions, phases(module), strict=True)}
    assert {said[f"bh{k}"] for k in range(LAYERS)} == {said["loop"]} == {"forward"}
    assert said["update"] == "optimiser"


def test_the_loop_has_its_layers_and_the_step_has_them_twice(module: Module) -> None:
    tree = group_tree(module)
    counts = [len(f.members) for f in folds(module, tree).folds]
    assert counts.count(LAYERS) == 3


def test_the_loop_is_in_no_box_called_after_what_precedes_layers(module: Module) -> None:
    tree = group_tree(module)
    by_name = {i.name: i.index for i in module.instructions}
    entry = next(g for g, kind in enumerate(tree.kind) if KINDS[kind] == "entry")
    written = int(tree.of_computation[module.instructions[by_name["bh0"]].computation.index])
    assert int(tree.parent[written]) == entry
    inside = around(tree, by_name["bh0"])
    assert not {"forward", "embedding", "input"} & set(inside)
    assert "forward" in around(tree, by_name["h0"])


def test_what_the_loop_alone_needs_stands_before_the_passes_with_it(module: Module) -> None:
    tree = group_tree(module)
    by_name = {i.name: i.index for i in module.instructions}
    for name in ("start", "carry", "loop"):
        assert not {"forward", "input"} & set(around(tree, by_name[name])), name
    assert {"forward", "input"} <= set(around(tree, by_name["asked"]))
