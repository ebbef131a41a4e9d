"""Which optimiser it is called, and what follows a gradient and is no update."""

from __future__ import annotations

from typing import Any

import hloscope as hs
import jax
import jax.numpy as jnp
import optax
import pytest
from hloscope.analysis.base.phases.phases import OPTIMISER, phases
from hloscope.analysis.grouping.groups import group_tree
from hloscope.analysis.grouping.optimisers import after_updates
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

CONTRACTS = "lhs_contracting_dims={1}, rhs_contracting_dims={0}"
BACK = "lhs_contracting_dims={0}, rhs_contracting_dims={0}"
CHAIN = "chain.<locals>.update_fn"


def _named_op(name: str, shape: str, op: str, op_name: str) -> str:
    return f'  {name} = f32[{shape}]{{1,0}} {op}, metadata={{op_name="{op_name}"}}'


def _step(guess: str = "dot(new, up), lhs_contracting_dims={1}, rhs_contracting_dims={0}") -> str:
    body = [
        _named_op("w", "64,64", "parameter(0)", "w"),
        _named_op("x", "8,64", "parameter(1)", "x"),
        _named_op("new", "16,64", "parameter(2)", "new"),
        _named_op("y", "8,64", f"dot(x, w), {CONTRACTS}", "jit(step)/jvp()/dot_general"),
        _named_op("g", "64,64", f"dot(x, y), {BACK}", "jit(step)/transpose(jvp())/dot_general"),
        _named_op("up", "64,64", "subtract(w, g)", "jit(step)/sub"),
        _named_op("guess", "16,64", guess, "jit(step)/dot_general"),
        _named_op("told", "16,32", "slice(guess), slice={[0:16], [0:32]}", "jit(step)/slice"),
        "  ROOT out = (f32[64,64]{1,0}, f32[16,32]{1,0}) tuple(up, told)",
    ]
    return "HloModule jit_step\n\nENTRY main {\n" + "\n".join(body) + "\n}\n"


def _apart(text: str) -> set[str]:
    module = hs.read(text.encode()).module
    phase = phases(module)
    assert phase[module.entry.find("up").index] == OPTIMISER
    return {i.name for i in module.instructions if after_updates(module, phase)[i.index]}


def test_what_an_updated_model_predicts_is_not_the_optimisers() -> None:
    assert _apart(_step()) == {"guess", "told"}


def test_small_figures_of_an_update_that_are_reported_stay_with_it() -> None:
    assert _apart(_step("slice(up), slice={[0:16], [0:64]}")) == set()


def test_where_nothing_is_replaced_all_may_be_updates() -> None:
    """Weights that are kept narrow and given back wide."""
    assert _apart(_step().replace("w = f32", "w = bf16")) == set()


WEIGHTS = {name: jnp.ones((64, 64)) for name in ("in", "out")} | {
    name: jnp.ones(64) for name in ("a", "b")
}


def loss(p: Any, x: jax.Array) -> jax.Array:
    h = jnp.tanh(x @ p["in"] + p["a"])
    return jnp.mean(jnp.square(h @ p["out"] + p["b"]))


def test_an_update_written_in_a_loop_is_one_group() -> None:
    """Momentum by hand within a scan over steps; a sampler that moves one point is none."""

    def train(p: Any, m: Any, xs: jax.Array) -> Any:
        def turn(carry: Any, x: jax.Array) -> Any:
            p, m = carry
            g = jax.grad(loss)(p, x)
            m = jax.tree.map(lambda m, g: 0.9 * m + g, m, g)
            p = jax.tree.map(lambda p, m: p - 1e-3 * m, p, m)
            return (p, m), None

        return jax.lax.scan(turn, (p, m), xs)[0]

    def sample(q: jax.Array, w: jax.Array) -> jax.Array:
        def leap(q: jax.Array, _: None) -> Any:
            return q - 1e-3 * jax.grad(lambda q: jnp.square(w @ q).sum())(q), None

        return jax.lax.scan(leap, q, None, 9)[0]

    trained = group_tree(
        hs.capture(train, WEIGHTS, WEIGHTS, jnp.ones((9, 32, 64)), exact=False).module
    )
    assert "parameter update" in trained.label
    sampled = group_tree(hs.capture(sample, jnp.ones(64), jnp.ones((64, 64)), exact=False).module)
    assert "parameter update" not in sampled.label


def test_a_sum_of_gradients_over_microbatches_is_no_update() -> None:
    """Each turn adds to what nothing else in the loop reads; the parameters change after it."""

    def step(p: Any, m: Any, xs: jax.Array) -> Any:
        def micro(total: Any, x: jax.Array) -> Any:
            return jax.tree.map(jnp.add, total, jax.grad(loss)(p, x)), None

        g, _ = jax.lax.scan(micro, jax.tree.map(jnp.zeros_like, p), xs)
        m = jax.tree.map(lambda m, g: 0.9 * m + g, m, g)
        return jax.tree.map(lambda p, m: p - 1e-3 * m, p, m), m

    tree = group_tree(hs.capture(step, WEIGHTS, WEIGHTS, jnp.ones((9, 32, 64)), exact=False).module)
    (loop,) = [g for g, label in enumerate(tree.label) if label == "micro"]
    inside = [label for g, label in enumerate(tree.label) if tree.parent[g] == loop]
    assert any("backward" in label for label in inside), inside
    assert not [label for label in inside if label.startswith(("optimizer", "parameter"))]


def _layer(p: Any, x: Any) -> Any:
    return jax.nn.softmax(x @ p["w"] + p["b"])


def _loss(layers: Any, x: Any) -> Any:
    for p in layers:
        x = _layer(p, x)
    return jnp.mean(jnp.sin(x))


@pytest.mark.parametrize("apply", [optax.apply_updates, lambda p, u: jax.tree.map(jnp.add, p, u)])
@pytest.mark.parametrize(
    ("average", "name"),
    [
        (lambda new, old: optax.incremental_update(new, old, 0.01), "incremental_update"),
        (lambda new, old: jax.tree.map(lambda n, o: 0.01 * n + 0.99 * o, new, old), ""),
    ],
)
def test_an_average_of_the_weights_is_not_the_optimizers(
    average: Any, name: str, apply: Any
) -> None:
    tx = optax.adam(1e-3)

    def train_step(layers: Any, state: Any, slow: Any, x: Any) -> Any:
        updates, state = tx.update(jax.grad(_loss)(layers, x), state, layers)
        layers = apply(layers, updates)
        return layers, state, average(layers, slow)

    shape = jax.ShapeDtypeStruct
    layers = [{"w": shape((32, 32), jnp.float32), "b": shape((32,), jnp.float32)}] * 4
    state = jax.eval_shape(tx.init, layers)
    x = shape((8, 32), jnp.float32)
    cap = hs.capture(train_step, layers, state, layers, x, exact=False, provenance=False)
    tree, last = group_tree(cap.module), cap.module.entry.root
    assert last is not None
    averages = [o.index for o in last.operands[-8:]]  # a tuple of weights, states and averages
    around = {tree.label[tree.group[row]] for row in averages}
    assert "optimizer · adam" not in around
    assert {tree.label[tree.group[o.index]] for o in last.operands[:8]} == {"optimizer · adam"}
    assert name in {*tree.label, ""}


def test_a_metric_of_updated_weights_is_no_optimizer() -> None:
    """Beside an update that has a function of its own; all devices have a part of the metric."""

    def descend(w: Any, g: Any, m: Any, t: Any) -> Any:
        m = 0.9 * m + 0.1 * g
        return jnp.clip(w - 0.02 * m / (1 - 0.9**t), 0, 1), m

    def score(w: Any, x: Any) -> Any:
        return jnp.mean(jnp.square(jnp.sin(x @ w) @ w))

    def train_step(w: Any, m: Any, t: Any, x: Any) -> Any:
        g = jax.grad(score)(w, x)
        w, m = descend(w, g, m, t)
        grey = jnp.cumsum(jnp.sort(4 * w * (1 - w), 1), 1)
        return w, m, jnp.sqrt(jnp.mean(grey**2)), jnp.max(grey) - jnp.min(grey)

    mesh = jax.make_mesh((4,), ("data",), devices=jax.devices()[:4])
    rows = NamedSharding(mesh, P("data"))
    shape = jax.ShapeDtypeStruct
    w = shape((512, 512), jnp.float32, sharding=rows)
    x, t = shape((8, 512), jnp.float32, sharding=rows), shape((), jnp.float32)
    cap = hs.capture(train_step, w, w, t, x, exact=False, provenance=False)
    labels = group_tree(cap.module).label
    assert any(label.startswith("descend") for label in labels)
    assert not [label for label in labels if label.startswith("optimizer")]
