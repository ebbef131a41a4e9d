"""Groups from the person's own functions, where no scope was named."""

from __future__ import annotations

from typing import Any

import hloscope as hs
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hloscope.analysis.base.labels.flags import QUIET, flags
from hloscope.analysis.base.table import table
from hloscope.analysis.grouping.functions import calls
from hloscope.analysis.grouping.groups import KINDS, GroupTree, group_tree


def norm(x: jax.Array) -> jax.Array:
    centred = x - x.mean(-1, keepdims=True)
    return centred * jax.lax.rsqrt(jnp.square(centred).mean(-1, keepdims=True) + 1e-5)


def attention(p: Any, x: jax.Array) -> jax.Array:
    q, k, v = x @ p["q"], x @ p["k"], x @ p["v"]
    scores = jnp.exp(jnp.cumsum(q @ k.T, 0))
    weights = scores / jnp.cumsum(scores, 1)
    return jnp.cumsum(weights @ v, 0) @ p["o"]


def mlp(p: Any, x: jax.Array) -> jax.Array:
    hidden = jnp.sort(x @ p["up"], -1) * jnp.cumsum(x @ p["gate"], 0)
    return jnp.cumsum(hidden @ p["down"], 1)


def layer(x: jax.Array, p: Any) -> tuple[jax.Array, None]:
    x = x + attention(p, norm(x))
    return x + mlp(p, norm(x)), None


def model(params: Any, x: jax.Array) -> jax.Array:
    x, _ = jax.lax.scan(layer, x, params)
    return x.sum()


@pytest.fixture(scope="module")
def arguments() -> Any:
    def w(*shape: int) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct((5, *shape), jnp.float32)

    square = {name: w(32, 32) for name in "qkvo"}
    params = {**square, "up": w(32, 64), "gate": w(32, 64), "down": w(64, 32)}
    return params, jax.ShapeDtypeStruct((16, 32), jnp.float32)


def names(tree: GroupTree, kinds: tuple[str, ...] = ("scope",)) -> list[str]:
    return [x for x, k in zip(tree.label, tree.kind, strict=True) if KINDS[k] in kinds]


def test_a_loop_over_layers_shows_the_functions_of_a_layer(arguments: Any) -> None:
    module = hs.capture(model, *arguments).module
    tree = group_tree(module)
    found = names(tree)
    assert "attention" in found
    assert "mlp" in found
    (body,) = (g for g, k in enumerate(tree.kind) if KINDS[k] == "body" and tree.size[g] > 50)
    (inside,) = (g for g, name in enumerate(tree.label) if name == "attention")
    assert tree.parent[inside] == body
    assert tree.label[body] == "layer"
    # the products of attention are in it, those of the other function are not
    dots = [i for i in module.instructions if i.opcode == "dot"]
    assert len(dots) == 9
    for i in dots:
        around = [int(tree.group[i.index])]
        while around[-1]:
            around.append(int(tree.parent[around[-1]]))
        assert (inside in around) == (i.frames[0].function == "attention")


def test_the_gradient_is_grouped_too_and_every_group_reads_as_a_step(arguments: Any) -> None:
    module = hs.capture(jax.grad(model), *arguments).module
    tree = group_tree(module)
    assert names(tree).count("attention") >= 2  # forward loop, backward loop
    t = table(module)
    rows, values = t.operands.rows, t.operands.values
    quiet = (flags(module) & QUIET) != 0
    for g, label in enumerate(tree.label):
        if label not in ("attention", "mlp", "norm"):
            continue
        inside = {g}
        for child in range(g + 1, len(tree.label)):  # parents come before children
            if int(tree.parent[child]) in inside:
                inside.add(child)
        mine = np.isin(tree.group, list(inside)) & (t.computation == tree.computation[g])
        loud = int((mine & ~quiet).sum())
        # what leaves the group and comes back, by a slow walk over all edges
        after, before = mine.copy(), mine.copy()
        for _ in range(len(mine)):
            grown = after.copy()
            grown[rows[after[values] & ~t.silent[values]]] = True
            if np.array_equal(grown, after):
                break
            after = grown
        for _ in range(len(mine)):
            grown = before.copy()
            grown[values[before[rows]]] = True
            if np.array_equal(grown, before):
                break
            before = grown
        same = t.computation == t.computation[np.flatnonzero(mine)[0]]
        between = after & before & ~mine & same & ~quiet
        assert between.sum() <= 0.15 * loud, (label, int(between.sum()), loud)


def test_an_unrolled_loop_makes_no_group_that_all_layers_tie_into_a_knot(arguments: Any) -> None:
    def unrolled(params: Any, x: jax.Array) -> jax.Array:
        for n in range(5):
            x, _ = layer(x, jax.tree.map(lambda p: p[n], params))  # noqa: B023
        return x.sum()

    module = hs.capture(unrolled, *arguments).module
    tree = group_tree(module)
    for g, label in enumerate(tree.label):
        if label == "attention":
            products = [
                i for i in module.instructions if i.opcode == "dot" and tree.group[i.index] == g
            ]
            assert len(products) <= 2 * 6  # never those of all five layers


def test_named_scopes_come_first() -> None:
    def named(x: jax.Array) -> jax.Array:
        for n in range(3):
            with jax.named_scope(f"block_{n}"):
                x = jnp.sort(norm(jnp.cumsum(x, 0)) @ x, 0)
        return x

    module = hs.capture(named, jax.ShapeDtypeStruct((24, 24), jnp.float32)).module
    found = names(group_tree(module))
    assert {"block_0", "block_1", "block_2"} <= set(found)


def test_calls_leave_out_libraries_lambdas_and_repeats(arguments: Any) -> None:
    module = hs.capture(model, *arguments).module
    found = calls(module)
    functions = {name for chain in found.chains for _, name in chain}
    assert {"model", "layer", "attention", "mlp", "norm"} <= functions
    assert not any(name.startswith("<") or "scan" in name for name in functions)
    for chain in found.chains:
        assert len(set(chain)) == len(chain)
        assert chain[-1][1] == ""  # the line itself calls nothing


def test_a_module_without_stacks_has_none() -> None:
    module = hs.read("HloModule m\nENTRY e {\n  ROOT p = f32[] parameter(0)\n}\n").module
    assert calls(module).chains == ()
    assert names(group_tree(module)) == []


def test_a_large_computation_is_cut_by_functions_like_a_small_one() -> None:
    head = """HloModule m

FileNames
1 "step.py"

FunctionNames
1 "step"
2 "encode"
3 "decode"

FileLocations
1 {file_name_id=1 function_name_id=1 line=2 end_line=2 column=1 end_column=2}
2 {file_name_id=1 function_name_id=1 line=3 end_line=3 column=1 end_column=2}
3 {file_name_id=1 function_name_id=2 line=7 end_line=7 column=1 end_column=2}
4 {file_name_id=1 function_name_id=3 line=9 end_line=9 column=1 end_column=2}

StackFrames
1 {file_location_id=1 parent_frame_id=1}
2 {file_location_id=2 parent_frame_id=1}
3 {file_location_id=3 parent_frame_id=2}
4 {file_location_id=4 parent_frame_id=3}

"""

    def program(many: int) -> str:
        rows = ["ENTRY main {", "  x = f32[64] parameter(0)"]
        at = "x"
        for frame in (3, 4):
            for k in range(many):
                rows.append(
                    f"  i{frame}.{k} = f32[64] {('sine', 'cosine')[k % 2]}({at}),"
                    f" metadata={{stack_frame_id={frame}}}"
                )
                at = f"i{frame}.{k}"
        return head + "\n".join([*rows, f"  ROOT r = f32[64] negate({at})", "}"])

    for many in (20, 6_000):
        tree = group_tree(hs.read(program(many)).module)
        found = {name: int(n) for name, n in zip(tree.label, tree.size.tolist(), strict=True)}
        assert (found["encode"], found["decode"]) == (many, many + 1)  # with the result
