"""A call that the person's code makes once is one box, whatever is repeated inside it."""

from __future__ import annotations

from typing import Any

import hloscope as hs
import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from hloscope.analysis.base.labels.families import ID, families
from hloscope.analysis.grouping.groups import group_tree
from hloscope.view import build_view
from hloscope.view.schema import decode

WEIGHTS = [jax.ShapeDtypeStruct((32, 32), jnp.float32)] * 6
X = jax.ShapeDtypeStruct((8, 32), jnp.float32)


def attend(q: Any, k: Any) -> Any:
    s = jax.nn.softmax(jnp.einsum("qd,kd->qk", q, k))
    return jnp.einsum("qk,kd->qd", s, k)


def norm(x: Any) -> Any:
    return (x - x.mean(-1, keepdims=True)) * jax.lax.rsqrt(x.var(-1, keepdims=True) + 1e-6)


def mlp(weights: Any, x: Any) -> Any:
    for w in weights:
        x = jax.nn.softmax(x @ w)
    return x


def dense(w: Any, x: Any) -> Any:
    return jax.nn.softmax(x @ w)


def one_call(weights: Any, x: Any) -> Any:
    return norm(mlp(weights, norm(x)))


def one_turn(weights: Any, x: Any) -> Any:
    def body(x: Any, w: Any) -> Any:
        return attend(x @ w, x @ w.T), None

    return norm(jax.lax.scan(body, norm(x), jnp.stack(weights))[0])


def in_a_loop(weights: Any, x: Any) -> Any:
    x = norm(x)
    for w in weights:
        x = dense(w, x)
    return norm(x)


def by_a_library(weights: Any, x: Any) -> Any:
    return norm(sum(jax.tree.map(lambda w: dense(w, x), weights)))


class Block(nnx.Module):
    def __init__(self, rngs: nnx.Rngs) -> None:
        self.one, self.two, self.up, self.down = (nnx.Linear(32, 32, rngs=rngs) for _ in range(4))
        self.norms = nnx.List([nnx.LayerNorm(32, rngs=rngs) for _ in range(2)])

    def __call__(self, x: Any, memory: Any) -> Any:
        x = self.norms[0](x + jax.nn.softmax(self.one(x) @ self.two(memory).T) @ memory)
        return self.norms[1](x + self.down(nnx.relu(self.up(x))))


class Net(nnx.Module):
    def __init__(self) -> None:
        self.blocks = nnx.List([Block(nnx.Rngs(0)) for _ in range(6)])

    def __call__(self, x: Any) -> Any:
        t, out = jnp.zeros_like(x), []
        for block in self.blocks:
            t = block(t, x)
            out.append(t)
        return jnp.stack(out)


def nested(weights: Any, x: Any) -> Any:
    graph, state = nnx.split(nnx.eval_shape(Net))
    zeros = jax.tree.map(lambda leaf: jnp.full(leaf.shape, weights[0].sum()), state)
    return jax.grad(lambda s: (nnx.merge(graph, s)(x) ** 2).sum())(zeros)


def differentiated(weights: Any, x: Any) -> Any:
    return jax.grad(lambda p: norm(mlp(p, norm(x))).sum())(weights)


def checkpointed(weights: Any, x: Any) -> Any:
    block = jax.checkpoint(dense)
    for w in weights:
        x = block(w, x)
    return norm(x)


@jax.jit
def unit(w: Any, x: Any) -> Any:
    return norm(jax.nn.softmax(x @ w) @ w.T)


def traced_once(weights: Any, x: Any) -> Any:
    x = unit(weights[0], norm(x))
    x = x + x.sum()
    return unit(weights[1], x)


def calls(program: Any, function: str, **how: Any) -> list[str]:
    """The boxes of a function's calls in the program's text."""
    text = hs.capture(program, WEIGHTS, X, exact=False, provenance=False).text
    return boxes(hs.read(text, **how), function)


def boxes(cap: hs.Capture, function: str) -> list[str]:
    _, columns = decode(build_view(cap.module, cap.target))
    labels = [columns["strings"][n] for n in columns["group.label"]]
    return sorted(label for label in labels if label.split(" ")[0] == function)


def test_a_call_with_a_loop_inside_is_one() -> None:
    assert calls(one_call, "mlp") == ["mlp"]
    assert calls(one_call, "layer") == [f"layer {n}" for n in range(6)]
    assert calls(differentiated, "mlp") == ["mlp", "mlp"]  # forward and backward


def test_a_call_with_two_products_in_a_loops_turn_is_one() -> None:
    assert calls(one_turn, "attend") == ["attend"]


def test_calls_of_a_loop_keep_their_name_in_a_piece_of_them() -> None:
    assert len(calls(nested, "Block")) >= 6
    assert not calls(nested, "layer")


def test_calls_in_a_loop_are_several() -> None:
    all_ = [f"dense {n}" for n in range(6)]
    assert calls(in_a_loop, "dense") == all_
    assert calls(by_a_library, "dense") == all_
    assert calls(checkpointed, "dense") == all_


def test_one_trace_serves_several_calls() -> None:
    assert len(calls(traced_once, "unit")) == 2


def test_a_capture_knows_its_calls() -> None:
    assert boxes(hs.capture(one_call, WEIGHTS, X), "mlp") == ["mlp"]
    assert boxes(hs.capture(in_a_loop, WEIGHTS, X), "dense") == [f"dense {n}" for n in range(6)]


def test_without_its_file_a_dump_says_only_what_is_repeated() -> None:
    assert calls(one_call, "mlp", sources=False) == [f"mlp {n}" for n in range(6)]


def compared(weights: Any, x: Any) -> Any:
    """What a comprehension is over is worked out once."""
    pairs = zip(features(weights, norm(x)), features(weights, jnp.cumsum(x, 0)), strict=True)
    return norm(jnp.stack([a - b for a, b in pairs]))


def compared_at_once(weights: Any, x: Any) -> Any:
    return norm(jnp.stack([a - b for a in features(weights, norm(x)) for b in [jnp.sort(x, 0)]]))


def features(weights: Any, x: Any) -> Any:
    out = []
    for w in weights:
        x = jax.nn.softmax(x @ w)
        out.append(x)
    return out


def test_what_a_loop_is_over_runs_once() -> None:
    assert len(calls(compared, "features")) == 2
    assert calls(compared_at_once, "features") == ["features"]


class Deep(nnx.Module):
    def __init__(self) -> None:
        self.layers = nnx.List([Layer(nnx.Rngs(0)) for _ in range(6)])

    def __call__(self, x: Any) -> Any:
        for layer in self.layers:
            x = nnx.remat(lambda m, h: m(h))(layer, x)
        return norm(x)


class Layer(nnx.Module):
    def __init__(self, rngs: nnx.Rngs) -> None:
        self.up, self.down = (nnx.Linear(32, 32, rngs=rngs) for _ in range(2))

    def __call__(self, x: Any) -> Any:
        return x + self.down(jax.nn.softmax(self.up(x)))


def in_a_lambda(weights: Any, x: Any) -> Any:
    """The stack of a checkpoint has the lambda that it is given, not what gives it."""
    graph, state = nnx.split(nnx.eval_shape(Deep))
    zeros = jax.tree.map(lambda leaf: jnp.full(leaf.shape, weights[0].sum()), state)

    def loss(state: Any) -> Any:
        return (nnx.merge(graph, state)(norm(x)) ** 2).sum()

    return jax.grad(loss)(zeros)


def test_what_a_checkpointed_lambda_calls_is_of_its_caller() -> None:
    text = hs.capture(in_a_lambda, WEIGHTS, X, exact=False, provenance=False).text
    cap = hs.read(text)
    tree = group_tree(cap.module, cap.target)
    products = np.isin(families(cap.module), [ID["matmul"]])
    found = set()
    for row in np.flatnonzero(products).tolist():
        at, path = int(tree.group[row]), []
        while at > 0:
            path.append(tree.label[at])
            at = int(tree.parent[at])
        found.add("/".join(reversed(path)))
    forward = {path for path in found if "forward" in path}
    assert {n for n in range(6) if any(f"Layer {n}" in path for path in forward)} == set(range(6))
