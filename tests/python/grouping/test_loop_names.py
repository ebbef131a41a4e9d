"""Loops are called by the function they are, not ``while`` and ``body``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import hloscope as hs
import jax
import jax.numpy as jnp
import pytest
from hloscope.analysis.base.labels.labels import labels
from hloscope.analysis.base.lines.op_name import without_loops
from hloscope.analysis.grouping.groups import KINDS, group_tree
from hloscope.analysis.grouping.loop_names import loop_label, loop_labels, loop_names


def block(p: Any, x: jax.Array) -> jax.Array:
    x = x + jnp.sort(x @ p["up"], -1) @ p["down"]
    return jnp.cumsum(x, 0) / jnp.sqrt((x * x).mean(-1, keepdims=True) + 1e-6)


def tower(layers: Any, x: jax.Array) -> jax.Array:
    x, _ = jax.lax.scan(lambda x, p: (jax.checkpoint(block)(p, x), None), x, layers)
    return x.mean(0)


def two_towers(params: Any, image: jax.Array, text: jax.Array) -> jax.Array:
    one = tower(params["image"], image @ params["patch"])
    other = tower(params["text"], params["table"][text])
    return jnp.square(one - other).sum()


def one_model(params: Any, text: jax.Array) -> jax.Array:
    x, _ = jax.lax.scan(lambda x, p: (block(p, x), None), params["table"][text], params["text"])
    logits = x @ params["table"].T
    return -jax.nn.log_softmax(logits).sum()


def f32(*shape: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, jnp.float32)


def layers(count: int) -> dict[str, Any]:
    return {"up": f32(count, 32, 64), "down": f32(count, 64, 32)}


PARAMS = {"image": layers(5), "text": layers(7), "patch": f32(48, 32), "table": f32(100, 32)}
IDS = jax.ShapeDtypeStruct((16,), jnp.int32)


def named(module: hs.Module) -> list[tuple[str, str]]:
    return sorted({(n.loop, n.turn) for n in loop_names(module).values()})


@pytest.fixture(scope="module")
def towers() -> Any:
    return hs.capture(jax.value_and_grad(two_towers), PARAMS, f32(16, 48), IDS)


@pytest.mark.parametrize("through_text", [False, True])
def test_loops_of_one_function_are_told_apart_by_their_arguments(
    towers: Any, through_text: bool, tmp_path: Path
) -> None:
    module = towers.module
    if through_text:
        (tmp_path / "step.hlo").write_text(towers.text)
        module = hs.read(tmp_path / "step.hlo").module
    assert named(module) == [("block · image", "block"), ("block · text", "block")]
    assert len(loop_names(module)) == 4  # forward and backward
    tree = group_tree(module)
    bodies = [x for x, k in zip(tree.label, tree.kind, strict=True) if KINDS[k] == "body"]
    assert bodies == ["block"] * 4


def test_a_loop_in_a_function_that_does_more_is_called_by_its_turn() -> None:
    step = jax.value_and_grad(one_model)
    module = hs.capture(step, PARAMS, IDS).module
    assert named(module) == [("block", "block")]


def test_a_scope_around_a_turn_is_its_name() -> None:
    def model(params: Any, x: jax.Array) -> jax.Array:
        def turn(x: jax.Array, p: Any) -> tuple[jax.Array, None]:
            with jax.named_scope("encoder_layer"):
                return block(p, x), None

        return jax.lax.scan(turn, x, params)[0].sum()

    module = hs.capture(jax.grad(model), layers(5), f32(16, 32)).module
    assert {n.turn for n in loop_names(module).values()} == {"encoder_layer"}


def guided(params: Any, x: jax.Array) -> jax.Array:
    with jax.named_scope("net"):
        for p in params["net"]:
            x = jnp.tanh(jnp.cumsum(x @ p, 0))
    with jax.named_scope("control"):
        for p in params["control"]:
            x = jnp.sin(jnp.cumsum(x @ p, 0))
    return x


def sample(params: Any, x: jax.Array) -> jax.Array:
    return jax.lax.fori_loop(0, 20, lambda i, x: guided(params, x) * 0.5 ** (i + 1), x)


def test_a_module_beside_others_in_the_function_that_a_turn_runs_is_not_its_name() -> None:
    params = {"net": [f32(32, 32)] * 5, "control": [f32(32, 32)] * 2}
    assert named(hs.capture(sample, params, f32(8, 32)).module) == [("guided", "guided")]


def test_words_of_jax_for_a_loop_are_no_places() -> None:
    assert without_loops(("forward", "while", "body", "block")) == ("forward", "block")
    assert without_loops(("forward", "while")) == ("forward",)
    assert without_loops(("forward", "body", "scan")) == ("forward", "body", "scan")


def test_a_loop_of_a_jitted_lambda_has_no_function_to_be_called_by() -> None:
    """All calls that made it are lambdas, so the chain of calls is its line alone."""
    scanned = jax.jit(lambda x, w: jax.lax.scan(lambda c, v: (jnp.tanh(c @ v), None), x, w)[0])
    cap = hs.capture(scanned, jnp.ones((8, 8)), jnp.ones((6, 8, 8)))
    tree = group_tree(cap.module)
    assert {"body", "condition"} <= set(tree.label)
    assert all(name.loop == "" for name in loop_names(cap.module).values())


def test_a_windowed_loop_says_which_collective_it_is() -> None:
    assert loop_label("windowed_dot_general_body_ag.3") == "all-gather × matmul, windowed"
    assert loop_label("windowed_dot_general_body_rs") == "matmul × reduce-scatter, windowed"
    assert loop_label("windowed_dot_general_body") == "collective matmul"
    assert loop_label("region_0.4") == ""


def test_a_body_without_a_name_is_a_loop_of_its_function() -> None:
    """``def body`` says nothing; a call in it that is a part of a turn is not all of it."""

    def update(p: jax.Array, g: jax.Array) -> jax.Array:
        return p - jnp.cumsum(jnp.sort(jnp.tanh(g), -1), 0) / (1 + jnp.abs(jnp.sin(g)))

    def unroll(p: jax.Array, xs: jax.Array) -> Any:
        start = jnp.sort(jnp.exp(p), 0) @ p

        def body(p: jax.Array, x: jax.Array) -> Any:
            g = jnp.flip(jnp.sort(jnp.sqrt(jnp.abs(x @ p)), 0), 0) * jnp.cos(x)
            g = jnp.cumsum(jnp.sort(jnp.exp(g), 1), 1) @ x
            return update(p, g), g.sum()

        p, sums = jax.lax.scan(body, start, xs)
        return jnp.sort(p @ start, 0), jnp.cumsum(sums)

    cap = hs.capture(unroll, f32(64, 64), f32(9, 64, 64), exact=False)
    tree = group_tree(cap.module)
    found = loop_labels(cap.module, labels(cap.module), tree.turns)
    assert "loop of unroll ×9" in found, [x for x in found if "×" in x]


def test_a_loop_of_a_library_has_the_name_of_its_function() -> None:
    """A search by halves and random bits are not what the person's function does eight times."""

    def lookup(edges: jax.Array, x: jax.Array) -> jax.Array:
        return jnp.searchsorted(edges, jnp.tanh(x) * 3) + jnp.cumsum(x > 0)

    def step(key: jax.Array, edges: jax.Array, x: jax.Array) -> jax.Array:
        noisy = x + jax.random.normal(key, x.shape)
        return jnp.sin(noisy @ noisy.T).sum(0) + lookup(edges, noisy[0]) + lookup(edges, noisy[1])

    key = jax.eval_shape(lambda: jax.random.key(0))
    cap = hs.capture(step, key, f32(200), f32(64, 64), exact=False)
    found = loop_labels(cap.module, labels(cap.module), group_tree(cap.module).turns)
    loops = {x.partition(" ×")[0] for x in found if " ×" in x}
    assert loops == {"searchsorted", "normal"}, loops
