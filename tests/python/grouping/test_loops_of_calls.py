"""Calls in a Python loop are as many as the lines in them that are in no loop of their own."""

from __future__ import annotations

from typing import Any

import hloscope as hs
import jax
import jax.numpy as jnp
import pytest
from hloscope.view import build_view
from hloscope.view.schema import decode

WEIGHT = jax.ShapeDtypeStruct((32, 32), jnp.float32)
X = jax.ShapeDtypeStruct((8, 32), jnp.float32)
SQUARE = WEIGHT


def columns_of(function: Any, *arguments: Any) -> Any:
    """The View of the program's text, as a dump has it."""
    text = hs.capture(function, *arguments, exact=False, provenance=False).text
    cap = hs.read(text)
    return decode(build_view(cap.module, cap.target))[1]


def folds(function: Any, *arguments: Any) -> set[str]:
    columns = columns_of(function, *arguments)
    return {columns["strings"][k] for k in columns["fold.label"]}


def boxes(function: Any, *arguments: Any) -> list[str]:
    columns = columns_of(function, *arguments)
    return [columns["strings"][k] for k in columns["group.label"]]


def before(x: Any) -> Any:
    return jnp.sort(jax.nn.softmax(jnp.sin(x) + jnp.cumsum(x, 0)), 0)


def trunk(weights: Any, x: Any) -> Any:
    for w in weights:
        x = jax.nn.softmax(x @ w)
    return x


def block(p: Any, x: Any) -> Any:
    h = trunk(p["trunk"], x)
    return h @ p["back"], h @ p["out"]


def stack(blocks: Any, x: Any) -> Any:
    x, total = before(x), jnp.zeros_like(x)
    for p in blocks:
        back, out = block(p, x)
        x, total = x - back, total + out
    return jnp.sin(total)  # of the last block nobody uses ``back``


BLOCKS = [{"trunk": [WEIGHT] * 4, "back": WEIGHT, "out": WEIGHT}] * 4


@pytest.mark.parametrize("of", [stack, jax.grad(lambda b, x: stack(b, x).sum())])
def test_blocks_with_a_loop_in_them_are_counted_by_what_is_outside_of_it(of: Any) -> None:
    found = folds(of, BLOCKS, X)
    assert "block [0..3]" in found
    assert not any("[0..15]" in label for label in found)


def two_streams(p: Any, x: Any, y: Any) -> Any:
    return jax.nn.softmax(x @ p[0]) + y, jax.nn.softmax(jnp.sin(y) @ p[1])


def crossed(layers: Any, x: Any) -> Any:
    x = y = before(x)
    for p in layers:
        x, y = two_streams(p, x, y)
    return jnp.sin(x)  # nobody uses the last ``y``


def test_what_the_last_call_passes_on_to_nobody_is_missing_in_it() -> None:
    found = boxes(crossed, [[WEIGHT] * 2] * 4, X)
    assert [k for k in range(9) if f"two_streams {k}" in found] == [0, 1, 2, 3]


def chain(weights: Any, x: Any) -> Any:
    for w in weights:
        x = x + jax.nn.softmax(jnp.sin(x) @ w)
    return x


def side_by_side(chains: Any, x: Any) -> Any:
    x = before(x)
    return jnp.sin(sum(chain(weights, x) for weights in chains))


def test_calls_beside_one_another_are_not_counted_by_the_turns_of_their_loops() -> None:
    found = folds(side_by_side, [[WEIGHT] * 3] * 4, X)
    assert "chain [0..3]" in found
    assert "chain [0..11]" not in found


def stages(chains: Any, x: Any) -> Any:
    x = before(x)
    for several, w in chains:
        x = jax.nn.softmax(x @ w)
        x = sum(chain(weights, x) for weights in several)
    return jnp.sin(x)


def test_calls_in_a_loop_of_a_loop_are_several_in_each_of_its_turns() -> None:
    found = folds(stages, [([[WEIGHT] * 3] * 4, WEIGHT)] * 5, X)
    assert "chain [0..3]" in found


def heads(weights: Any, x: Any) -> Any:
    q, k, v = (jax.nn.softmax(x @ w) for w in weights)
    return q, k, v


def attention(p: Any, x: Any) -> Any:
    q, k, v = heads(p[:3], x)
    return jax.nn.softmax(q @ k.T) @ v @ p[3]


def in_a_scan(layers: Any, x: Any) -> Any:
    def turn(x: Any, p: Any) -> Any:
        return x + attention(p, x), None

    return jnp.sin(jax.lax.scan(jax.checkpoint(turn), x, layers)[0])


def test_the_turns_of_a_loop_in_one_call_are_not_calls() -> None:
    found = boxes(in_a_scan, [jax.ShapeDtypeStruct((5, 32, 32), jnp.float32)] * 4, X)
    assert "heads" in found
    assert not any(label.startswith("heads ") for label in found)


def residual(p: Any, x: Any) -> Any:
    y = jax.nn.softmax(jax.nn.softmax(x @ p["one"]) @ p["two"])
    if "skip" in p:
        x = x @ p["skip"]
    return jax.nn.softmax(x + y)


def network(blocks: Any, x: Any) -> Any:
    x = before(x)
    for p in blocks:
        x = residual(p, x)
    return jnp.sin(x)


def test_a_line_in_a_condition_does_not_say_how_often_its_function_is_called() -> None:
    plain = {"one": WEIGHT, "two": WEIGHT}
    blocks = [plain | {"skip": WEIGHT}, plain, plain] * 2
    found = boxes(network, blocks, X)
    assert [k for k in range(9) if f"residual {k}" in found] == [0, 1, 2, 3, 4, 5]


def test_what_depends_on_weights_alone_is_of_the_call_that_uses_it() -> None:
    def kernel(p: Any) -> Any:
        return jnp.sin(p[0] @ p[1])

    def mix(p: Any, x: Any) -> Any:
        return jax.nn.softmax(x @ kernel(p)) @ p[2]

    def model(layers: Any, x: Any) -> Any:
        x = before(x)
        for p in reversed(layers):
            x = mix(p, x)
        return jnp.sin(x)

    assert "mix [0..5]" in folds(model, [[WEIGHT] * 3] * 6, X)


@jax.custom_vjp
def solve(w: Any, x: Any) -> Any:
    return jax.nn.softmax(x @ w)


def solve_forward(w: Any, x: Any) -> Any:
    return solve(w, x), (w, x)


def solve_backward(saved: Any, g: Any) -> Any:
    w, x = saved
    for _ in range(6):
        g = jax.nn.softmax(jnp.sin(g) @ w)
    return x.T @ g, g


solve.defvjp(solve_forward, solve_backward)


def test_what_a_rule_repeats_is_no_layers_of_a_line_that_runs_once() -> None:
    """JAX gives what a custom rule does the line that calls the function, and no other."""

    def loss(w: Any, x: Any) -> Any:
        return jnp.sum(jnp.sin(solve(w, before(x))))

    found = boxes(jax.grad(loss, (0, 1)), WEIGHT, X)
    assert "backward" in found
    assert not any(label.startswith(("layer", "loss ")) for label in found)


def test_a_chain_of_products_on_one_line_is_not_several_calls() -> None:
    """``a @ b @ c`` begins where ``a @ b`` does: both have one place."""

    def between(p: Any, x: Any) -> Any:
        return p["left"] @ jnp.sin(x) @ p["right"]

    def all_of_them(layers: Any, xs: Any) -> Any:
        return [jax.nn.softmax(between(p, x)) for p, x in zip(layers, xs, strict=True)]

    found = folds(all_of_them, [{"left": WEIGHT, "right": WEIGHT}] * 4, [SQUARE] * 4)
    assert "between [0..3]" in found


def test_the_turns_of_a_loop_are_called_after_the_function_that_each_calls() -> None:
    def conv(w: Any, x: Any) -> Any:
        return jax.nn.softmax(x @ w)

    def generator(p: Any, x: Any) -> Any:
        x = conv(p["first"], before(x))
        for w in p["up"]:
            x = conv(w, jnp.sin(x))
        return jnp.cos(conv(p["last"], jnp.tanh(x)))

    first, last = (jax.ShapeDtypeStruct(s, jnp.float32) for s in ((16, 32), (32, 8)))
    weights = {"first": first, "up": [WEIGHT] * 2, "last": last}
    found = folds(generator, weights, jax.ShapeDtypeStruct((8, 16), jnp.float32))
    assert "conv [0,1]" in found


def refined(p: Any, x: Any) -> Any:
    for _ in range(4):
        x = x + jax.nn.softmax(x @ p["in"]) @ p["out"]
    return x


def layered(layers: Any, x: Any) -> Any:
    for p in layers:
        x = x + jax.nn.softmax(x @ p["in"]) @ p["out"]
    return x


@pytest.mark.parametrize(("of", "name"), [(refined, "iteration"), (layered, "layer")])
def test_turns_with_the_same_weights_are_iterations(of: Any, name: str) -> None:
    def model(p: Any, x: Any) -> Any:
        return before(of(p, before(x)))

    layer = {"in": WEIGHT, "out": WEIGHT}
    assert f"{name} [0..3]" in folds(model, layer if of is refined else [layer] * 4, X)
