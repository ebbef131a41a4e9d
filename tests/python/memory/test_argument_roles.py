"""What arguments and values are for, from data flow: names that mislead, merged names, copies."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import hloscope as hs
import jax
import jax.numpy as jnp
import pytest
from hloscope.analysis.base.phases.phases import PHASES, name_phases
from jax.sharding import NamedSharding, PartitionSpec


def shape(*dims: int, dtype: Any = jnp.float32, sharding: Any = None) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(dims, dtype, sharding=sharding)


def arguments(memory: Any) -> dict[str, tuple[str, str]]:
    return {
        v.name: (v.category, v.category_source) for v in memory.values() if v.kind == "argument"
    }


def capture(fn: Any, *args: Any, **jit: Any) -> Any:
    return hs.capture(jax.jit(fn, **jit), *args, provenance=False)


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("jit(s)/(transpose(jvp())/dot:jvp()/reduce_sum)", ["forward", "backward"]),
        ("jit(s)/(jvp(a/(b))/dot:transpose(jvp(a/(b)))/dot)", ["forward", "backward"]),
        ("jit(s)/jvp(x)/mul;jit(s)/transpose(jvp(x))/mul", ["forward", "backward"]),
        ("jit(s)/transpose(jvp(einsum:a))/dot", ["backward"]),
        ("jit(s)/(a/mul:b/add)", [""]),
    ],
)
def test_merged_names_say_all_their_phases(name: str, found: list[str]) -> None:
    assert [PHASES[p] for p in name_phases(name)] == found


def test_a_combined_gradient_all_reduce_is_backward() -> None:
    """The loss is summed in the same instruction, and its name stands first or last."""
    mesh = jax.make_mesh((8,), ("data",))
    cut = lambda *s: NamedSharding(mesh, PartitionSpec(*s))  # noqa: E731

    def step(params: Any, x: Any, y: Any) -> Any:
        loss = lambda p: jnp.mean((jnp.tanh(x @ p["a"]) @ p["b"] - y) ** 2)  # noqa: E731
        value, gradient = jax.value_and_grad(loss)(params)
        return jax.tree.map(lambda p, q: p - 0.1 * q, params, gradient), value

    cap = capture(
        step,
        {"a": shape(64, 128, sharding=cut()), "b": shape(128, 64, sharding=cut())},
        shape(64, 64, sharding=cut("data")),
        shape(64, 64, sharding=cut("data")),
    )
    (combined,) = cap.collectives
    assert combined.phase == "backward"
    assert combined.payload_bytes == 2 * 64 * 128 * 4 + 4
    memory = cap.memory
    reduced = [v for v in memory.values() if v.instruction.opcode == "all-reduce" and v.bytes > 4]
    assert {v.category for v in reduced} == {"gradient"}


def test_a_state_is_told_apart_by_use_whatever_it_is_called() -> None:
    def step(s: Any, v: Any) -> Any:
        gradient = jax.grad(lambda p: jnp.mean(jnp.tanh(v @ p) ** 2))(s["weights of m"])
        m = 0.9 * s["mu"] + gradient
        return {"weights of m": s["weights of m"] - 0.1 * m, "mu": m}

    square = shape(64, 64)
    cap = capture(step, {"weights of m": square, "mu": square}, shape(8, 64), donate_argnums=0)
    assert arguments(cap.memory) == {
        "s['weights of m']": ("parameter", "data flow"),
        "s['mu']": ("optimiser state", "data flow"),
        "v": ("argument", "data flow"),
    }


def test_a_name_alone_makes_no_optimiser_state_of_what_is_multiplied() -> None:
    cap = capture(lambda q, k, v: jax.nn.softmax(q @ k.T) @ v, *[shape(64, 16)] * 3)
    assert {category for category, _ in arguments(cap.memory).values()} == {"argument"}
    # an optimiser on its own says so by its names, of what it returns
    update = capture(
        lambda m, grads: 0.9 * m + grads, shape(64, 64), shape(64, 64), donate_argnums=0
    )
    assert arguments(update.memory) == {
        "m": ("optimiser state", "name"),
        "grads": ("argument", "name"),
    }


def test_a_parameter_has_a_gradient_and_frozen_weights_have_none() -> None:
    def loss(student: Any, teacher: Any, x: Any) -> Any:
        def run(w: Any) -> Any:
            return jax.lax.scan(lambda c, w: (jnp.tanh(c @ w), None), x, w)[0]

        return jnp.mean((run(student) - run(teacher)) ** 2)

    stack = shape(4, 32, 32)
    cap = capture(jax.grad(loss), stack, stack, shape(8, 32))
    found = arguments(cap.memory)
    assert found["student"][0] == "parameter"
    assert found["teacher"][0] == found["x"][0] == "argument"


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
def test_what_a_scan_stacks_is_saved_in_any_type(dtype: Any) -> None:
    """XLA:CPU keeps bf16 stacks as f32 on the way back: that is the same value."""

    def loss(w: Any, x: Any) -> Any:
        last = jax.lax.scan(lambda c, w: (jnp.tanh(c @ w), None), x, w)[0]
        return jnp.sum(last.astype(jnp.float32))

    cap = capture(jax.grad(loss), shape(8, 64, 64, dtype=dtype), shape(128, 64, dtype=dtype))
    one = 8 * 128 * 64 * jnp.dtype(dtype).itemsize
    memory = cap.memory
    assert {r.bytes for r in memory.residuals} == {one}
    stacked = [v for v in memory.values() if v.shape.dimensions == (8, 128, 64)]
    assert stacked
    assert {v.category for v in stacked} == {"saved for backward"}
    assert {loop.phase for loop in memory.loops} == {"forward", "backward"}


def test_copies_of_arguments_are_not_saved_activations(
    libtpu: None, compiled: Callable[..., Any]
) -> None:
    memory = compiled("gpt_scan", "v5e:2x4").capture.memory
    copies = [v for v in memory.values() if v.category == "copied argument"]
    assert copies
    assert all(v.category_source == "data flow" for v in copies)
    for v in memory.values():
        made = v.instruction
        if made.opcode == "copy-start" and made.operands[0].opcode == "parameter":
            assert not made.computation.is_entry or v.category == "copied argument"


def test_a_matrix_called_m_is_no_state_of_an_optimiser() -> None:
    cap = capture(lambda m: jnp.linalg.eigh(m)[1] * 2, shape(64, 64))
    assert arguments(cap.memory) == {"m": ("argument", "name")}


def test_weights_gathered_before_a_loop_of_microbatches_are_read_by_its_forward_pass() -> None:
    on = jax.make_mesh((8,), ("x",), axis_types=(jax.sharding.AxisType.Auto,))
    cut, whole = NamedSharding(on, PartitionSpec("x")), NamedSharding(on, PartitionSpec())

    def step(w: Any, xs: Any) -> Any:
        used = jax.lax.with_sharding_constraint(w, whole)

        def add(total: Any, x: Any) -> Any:
            return total + jax.grad(lambda w: jnp.sum(jnp.tanh(x @ w)))(used), None

        total = jax.lax.scan(add, jnp.zeros_like(used), xs)[0]
        return jax.lax.with_sharding_constraint(w - 0.1 * total, cut)

    by_rows = NamedSharding(on, PartitionSpec(None, "x"))
    w, xs = shape(256, 256, sharding=cut), shape(4, 64, 256, sharding=by_rows)
    cap = capture(step, w, xs, donate_argnums=0)
    assert arguments(cap.memory)["w"] == ("parameter", "data flow")
    assert {c.phase for c in cap.collectives if c.kind == "all-gather"} == {"forward"}


def test_positions_that_follow_forces_are_no_parameters() -> None:
    """Leapfrog and gradient descent with momentum are the same flow: names tell them apart."""

    def energy(at: Any) -> Any:
        away = jnp.sqrt(((at[:, None] - at[None]) ** 2).sum(-1) + 1)
        return (1 / away).sum()

    def run(at: Any, velocity: Any) -> Any:
        velocity = velocity - 0.1 * jax.grad(energy)(at)
        return at + 0.1 * velocity, velocity

    cap = capture(run, shape(64, 3), shape(64, 3))
    assert {category for category, _ in arguments(cap.memory).values()} == {"argument"}


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("planet", "argument"),
        ("overhead", "argument"),
        ("q_net", "parameter"),
        ("unet", "parameter"),
    ],
)
def test_names_of_weights_begin_words(name: str, wanted: str) -> None:
    def descend(at: Any, field: Any) -> Any:
        slope = jax.grad(lambda x: jnp.sum(jnp.tanh(x[name] @ field) ** 2))(at)
        return {name: at[name] - 0.1 * slope[name]}

    cap = capture(descend, {name: shape(64, 64)}, shape(64, 64))
    (category,) = [c for of, (c, _) in arguments(cap.memory).items() if name in of]
    assert category == wanted
