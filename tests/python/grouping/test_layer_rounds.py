"""Rounds without weights inside layers that have some: routing, unrolled solvers, sweeps."""

from __future__ import annotations

import re

import pytest
from hloscope.analysis.grouping.layers.layers import layers
from hloscope.readers import read_modules

DOT = "lhs_contracting_dims={1}, rhs_contracting_dims={0}"


def program(count: int, rounds: int, weights: str = "before", own: bool = False) -> str:
    """Layers of a product with ``caps[k]``, and rounds that multiply a value by itself.

    With ``own`` every round has a weight of its own, ``steps[n]``.
    """
    rows, parameters, at = [], ["  x = f32[8,8] parameter(0)"], "x"

    def weight(name: str) -> str:
        number = len(parameters)
        meta = f'metadata={{op_name="{name}"}}'
        parameters.append(f"  w{number} = f32[8,8] parameter({number}), {meta}")
        return f"w{number}"

    def product(a: str, b: str, line: str) -> str:
        name = f"{line}{len(rows)}"
        meta = f'metadata={{op_name="jit(f)/{line}/dot_general"}}'
        rows.append(f"  {name} = f32[8,8] dot({a}, {b}), {DOT}, {meta}")
        rows.append(f"  {name}.t = f32[8,8] tanh({name})")
        return f"{name}.t"

    for k in range(count):
        if weights == "before":
            at = product(at, weight(f"p['caps'][{k}]"), "project")
        for r in range(rounds):
            at = product(at, weight(f"p['steps'][{k * rounds + r}]") if own else at, "route")
        if weights == "after":
            at = product(at, weight(f"p['caps'][{k}]"), "project")
    end = [f"  ROOT out = f32[8,8] negate({at})", "}"]
    return "\n".join(["HloModule m", "", "ENTRY main {", *parameters, *rows, *end])


def counts(text: str) -> list[int]:
    (module,) = read_modules(text)
    return [r.stack.count for r in layers(module).runs]


@pytest.mark.parametrize("weights", ["before", "after"])
@pytest.mark.parametrize(("count", "rounds"), [(4, 3), (6, 2), (2, 5)])
def test_rounds_are_part_of_the_layer_whose_weights_stand_beside_them(
    count: int, rounds: int, weights: str
) -> None:
    (module,) = read_modules(program(count, rounds, weights))
    (run,) = layers(module).runs
    assert run.stack.count == count
    names = [module.instructions[r].name for layer in zip(*run.stack.spine, strict=True)
             for r in layer]  # fmt: skip
    lines = ["project", *["route"] * rounds]
    wanted = (lines if weights == "before" else lines[::-1]) * count
    assert [n.rstrip("0123456789") for n in names] == wanted


def test_rounds_with_weights_of_their_own_are_layers() -> None:
    assert 12 in counts(program(4, 3, own=True))
    assert counts(program(12, 1)) == [12]
    levels = re.sub(
        r"steps'\]\[(\d+)\]", lambda m: f"steps'][{int(m[1]) // 3}][{int(m[1]) % 3}]",
        program(4, 3, own=True),
    )  # fmt: skip
    assert 12 in counts(levels)  # numbered in each layer anew


def test_weights_that_are_not_beside_every_layer_join_nothing() -> None:
    """All four products with weights come first, so no round is known to be of one of them."""
    text = program(4, 3)
    lines = text.split("\n")
    project = [n for n in lines if n.startswith("  project")]
    parameters = [n for n in lines if "parameter(" in n]
    route = [n for n in lines if n.startswith("  route")]
    chained, at = [], "x"
    for line in [*project, *route]:
        name, _, rest = line.strip().partition(" = ")
        if "dot(" in line:
            _, _, tail = rest.partition("), ")
            other = rest.partition("dot(")[2].partition(")")[0].split(", ")[1]
            chained.append(
                f"  {name} = f32[8,8] dot({at}, {other if other[0] == 'w' else at}), {tail}"
            )
        else:
            chained.append(f"  {name} = f32[8,8] tanh({name[:-2]})")
            at = name
    again = "\n".join(["HloModule m", "", "ENTRY main {", *parameters, *chained,
                       f"  ROOT out = f32[8,8] negate({at})", "}"])  # fmt: skip
    assert sorted(counts(again)) == [4, 12]
