"""Calls that do not feed one another are told apart, forward and backward; what XLA computes once
for several calls is of the first."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

import hloscope as hs
import jax
import jax.numpy as jnp
import optax
from flax import linen as nn
from hloscope.analysis.base.labels.families import ID, families
from hloscope.analysis.grouping.groups import group_tree
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

WEIGHT = jax.ShapeDtypeStruct((32, 32), jnp.float32)
X = jax.ShapeDtypeStruct((8, 32), jnp.float32)


def products_of(function: Any, *arguments: Any) -> dict[str, int]:
    """Products in each box, by the labels of the boxes around it, of the program as a dump."""
    text = hs.capture(function, *arguments, exact=False, provenance=False).text
    cap = hs.read(text)
    tree, out = group_tree(cap.module, cap.target), defaultdict[str, int](int)
    family = families(cap.module)
    for row, of in enumerate(family.tolist()):
        fused = cap.module.instructions[row].opcode == "fusion"
        if of in (ID["matmul"], ID["convolution"]) and not fused:
            names, at = [], int(tree.group[row])
            while at > 1:
                if tree.kind[at] in (2, 9):
                    names.append(tree.label[at])
                at = int(tree.parent[at])
            out["/".join(reversed(names))] += 1
    return dict(out)


def attend(p: Any, x: Any) -> Any:
    return jax.nn.softmax(x @ p["a"]) @ p["b"]


def mix(p: Any, x: Any) -> Any:
    return jnp.sin(jnp.cumsum(x, 0) @ p["a"]) @ p["b"]


def layer(p: Any, kind: Any, x: Any) -> Any:
    x = x + jax.nn.softmax(kind(p, x))
    return x + jnp.tanh(x @ p["up"]) @ p["down"]


def loss(params: Any, x: Any) -> Any:
    for n, p in enumerate(params["layers"]):
        x = layer(p, mix if n % 2 else attend, x)
    return ((x @ params["out"]) ** 2).sum()


ONE = {"a": WEIGHT, "b": WEIGHT, "up": WEIGHT, "down": WEIGHT}
PARAMS = {"layers": [ONE] * 4, "out": WEIGHT}


def step(params: Any, batches: Any) -> Any:
    total = jax.tree.map(jnp.zeros_like, params)
    for x in batches:
        value, grads = jax.value_and_grad(loss)(params, x)
        grads = jax.tree.map(lambda g, v=value: g / (1 + v), grads)
        total = jax.tree.map(jnp.add, total, grads)
    return optax.apply_updates(params, jax.tree.map(lambda g: -0.1 * g, total))


def test_microbatches_in_a_python_loop_are_told_apart_in_both_passes() -> None:
    found = products_of(step, PARAMS, [X, X])
    forward = {k: n for k, n in found.items() if k.startswith("forward")}
    backward = {k: n for k, n in found.items() if k.startswith("backward")}
    assert sum(forward.values()) == 2 * (4 * 4 + 1)
    for number in (0, 1):
        mine = {k: n for k, n in forward.items() if f"/loss {number}" in k}
        assert sum(mine.values()) == 4 * 4 + 1
        for k in range(4):  # attention or mixing, then two more, in the layer that they are of
            kind = "mix" if k % 2 else "attend"
            inside = {name: n for name, n in mine.items() if f"/layer {k}" in name}
            assert sum(inside.values()) == 4
            assert sum(n for name, n in inside.items() if name.endswith(kind)) == 2
        late = [n for k, n in backward.items() if f"/loss {number}" in k]
        assert sum(late) >= 2 * 4 * 4


def net(params: Any, x: Any) -> Any:
    for w in params:
        x = jnp.tanh(x @ w)
    return x


def objective(params: Any, x: Any) -> Any:
    return (net(params, x) ** 2).sum()


def step_and_prediction(params: Any, x: Any) -> Any:
    value, grads = jax.value_and_grad(objective)(params, x)
    prediction = net(params, x)
    return prediction, value, jax.tree.map(lambda p, g: p - 0.1 * g, params, grads)


def test_what_xla_computes_once_for_two_calls_is_of_the_first() -> None:
    found = products_of(step_and_prediction, [WEIGHT] * 4, X)
    assert sum(n for k, n in found.items() if k.startswith("forward")) == 4


def other_step_and_prediction(params: Any, x: Any) -> Any:
    value, grads = jax.value_and_grad(objective)(params, x)
    prediction = net(params, jnp.sort(x, 0))
    return prediction, value, jax.tree.map(lambda p, g: p - 0.1 * g, params, grads)


def test_a_second_call_with_other_values_keeps_its_work() -> None:
    found = products_of(other_step_and_prediction, [WEIGHT] * 4, X)
    assert sum(n for k, n in found.items() if k.startswith("forward")) == 4
    assert sum(n for k, n in found.items() if k.startswith("net")) == 4


def curvature(params: Any, x: Any, direction: Any) -> Any:
    _, along = jax.jvp(lambda p: net(p, x), (params,), (direction,))
    return (along**2).sum()


def newton(params: Any, x: Any) -> Any:
    value, grads = jax.value_and_grad(objective)(params, x)
    scale = 1 / (curvature(params, x, grads) + value)
    return jax.tree.map(lambda p, g: p - scale * g, params, grads)


def test_tangents_of_shared_work_are_of_the_call_that_asks_for_them() -> None:
    """Though jax's rule for ``tanh``, traced once, has the lines of the first."""
    found = products_of(newton, [WEIGHT] * 4, X)
    assert sum(n for k, n in found.items() if k.startswith("forward")) == 4
    assert sum(n for k, n in found.items() if "curvature" in k) == 8 - 1


def normed(p: Any, x: Any) -> Any:
    mean = x.mean(0)
    return jax.nn.relu((x - mean) / jnp.sqrt(((x - mean) ** 2).mean(0) + 1e-6) @ p["a"]) @ p["b"]


def encoder(params: Any, x: Any) -> Any:
    for p in params:
        x = x + normed(p, x)
    return x


def two_views(params: Any, left: Any, right: Any) -> Any:
    a = encoder(params, left)
    b = encoder(params, right)
    return ((a - b) ** 2).sum() + jnp.abs(a.T @ b).sum()


def contrast(params: Any, left: Any, right: Any) -> Any:
    value, grads = jax.value_and_grad(two_views)(params, left, right)
    return value, jax.tree.map(lambda p, g: p - 0.1 * g, params, grads)


def test_layers_are_not_across_two_calls_of_a_network() -> None:
    found = products_of(contrast, [{"a": WEIGHT, "b": WEIGHT}] * 4, X, X)
    for way, least in (("forward", 8), ("backward", 15)):
        calls = {k.split("/")[1] for k in found if k.startswith(f"{way} · two_views/encoder")}
        assert len(calls) == 2
        for call in calls:
            mine = [n for k, n in found.items() if k.startswith(f"{way} · two_views/{call}/normed")]
            assert len(mine) == 4
            assert sum(mine) == least


def narrow(params: Any, left: Any, right: Any) -> Any:
    value, grads = jax.value_and_grad(two_views)(params, left, right)
    return value, params[0]["a"] - 0.1 * grads[0]["a"]


def test_a_loss_that_is_nearly_all_of_a_step_is_what_it_differentiates() -> None:
    found = products_of(narrow, [{"a": WEIGHT, "b": WEIGHT}] * 6, X, X)
    assert sum(n for k, n in found.items() if k.startswith("forward · two_views")) == 25
    assert not [k for k in found if k.startswith("encoder")]


class Projector(nn.Module):
    @nn.compact
    def __call__(self, x: Any) -> Any:
        for _ in range(2):
            x = nn.relu(nn.BatchNorm(use_running_average=False)(nn.Dense(64)(x)))
        return nn.Dense(64)(x)


def views(params: Any, stats: Any, left: Any, right: Any) -> Any:
    net = Projector()
    a, new = net.apply({"params": params, "batch_stats": stats}, left, mutable=["batch_stats"])
    b, new = net.apply({"params": params, **new}, right, mutable=["batch_stats"])
    return ((a - b) ** 2).sum(), new["batch_stats"]


def step_of_views(params: Any, stats: Any, left: Any, right: Any) -> Any:
    (_, stats), grads = jax.value_and_grad(views, has_aux=True)(params, stats, left, right)
    return stats, jax.tree.map(lambda p, g: p - 0.1 * g, params, grads)


def test_a_call_that_is_made_once_is_in_no_layer() -> None:
    """Though XLA sums the statistics of both views at once, layer by layer."""
    mesh = jax.make_mesh((8,), ("data",), axis_types=(AxisType.Auto,))
    x = jax.ShapeDtypeStruct((64, 64), jnp.float32, sharding=NamedSharding(mesh, P("data")))
    whole = NamedSharding(mesh, P())
    variables = jax.tree.map(
        lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=whole),
        jax.eval_shape(Projector().init, jax.random.key(0), jnp.zeros((64, 64))),
    )
    found = products_of(step_of_views, variables["params"], variables["batch_stats"], x, x)
    calls = Counter(k.split("/")[2] for k in found if k.startswith("forward · views/Projector"))
    assert len(calls) == 2
    assert all(call.startswith("Projector") for call in calls)
