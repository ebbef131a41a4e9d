"""Which call of a Python function each operation is from."""

from __future__ import annotations

import os
from collections import Counter
from typing import Any

import call_oracle
import call_programs
import equinox as eqx
import hloscope as hs
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hloscope.capturing.marks import python_calls
from hloscope.hlo.origins.python_calls import PythonCalls

X = np.ones((16, 16), np.float32)  # of jax it would start the backend: forks would wait for it

pytestmark = pytest.mark.skipif(
    jax.__version_info__ < (0, 10), reason="operations are followed from jax 0.10 on"
)


def norm(x: Any) -> Any:
    return x / jnp.sqrt(jnp.sum(x * x) + 1.0)


def layer(p: Any, x: Any) -> Any:
    return norm(jnp.tanh(norm(x) @ p))


def calls_of(fn: Any, *args: Any, **kwargs: Any) -> PythonCalls:
    origins = hs.capture(fn, *args, **kwargs).module.origins
    assert origins is not None
    return origins.python


def counts(calls: PythonCalls) -> dict[str, int]:
    return dict(Counter(c.name for c in calls))


def test_each_call_is_one_whether_unrolled_rematerialised_jitted_or_scanned() -> None:
    checkpointed, jitted = jax.checkpoint(layer), jax.jit(layer)

    def loss(ps: Any, x: Any) -> Any:
        for p in ps:
            x = layer(p, x)
        for p in ps:
            x = checkpointed(p, x)
        for p in ps:
            x = jitted(p, x)
        x, _ = jax.lax.scan(lambda c, p: (layer(p, c), None), x, jnp.stack(ps))
        return jnp.sum(x)

    calls = calls_of(jax.value_and_grad(loss), [X] * 3, X)
    assert counts(calls) == {"loss": 1, "layer": 10, "norm": 20, "<lambda>": 1}
    layers = sorted((c for c in calls if c.name == "layer"), key=lambda c: c.which)
    assert [c.which for c in layers] == list(range(1, 11))
    assert {c.of for c in layers} == {10}
    above = [calls.stack(c)[-2].name for c in layers]
    assert above == ["loss"] * 9 + ["<lambda>"]
    lines = [c.called_at for c in layers]
    assert lines == sorted(lines), "in order of time"
    assert len(set(lines)) == 4, "four lines call it"
    for c in calls:
        if c.name == "norm":
            assert calls[c.caller].name == "layer"


def objective(w: Any, x: Any) -> Any:
    return jnp.sum(layer(w, x))


def by_a_library(w: Any, x: Any) -> Any:
    x = norm(x)
    value, gradient = eqx.filter_value_and_grad(objective)(w, x)
    return value, layer(w - gradient, x)


def test_what_a_library_calls_is_called_where_the_person_calls_the_library() -> None:
    calls = calls_of(by_a_library, X, X)
    begins = by_a_library.__code__.co_firstlineno
    mine = {c.name: c.called_at - begins for c in calls if c.caller == 0}
    assert mine == {"norm": 1, "objective": 2, "layer": 3}


def test_gradients_are_of_the_call_they_derive_from() -> None:
    def loss(ps: Any, x: Any) -> Any:
        for p in ps:
            x = layer(p, x)
        return jnp.sum(x)

    cap = hs.capture(jax.grad(loss), [X] * 3, X)
    origins = cap.module.origins
    assert origins is not None
    backward = Counter(
        call.which
        for o in origins.operations
        if "transpose(" in o.name
        for call in (origins.python.stack(c) for c in origins.python.of_operation(o.number))
        for call in call
        if call.name == "layer"
    )
    assert set(backward) == {1, 2, 3}


def test_custom_rules_belong_to_the_call_that_uses_them() -> None:
    @jax.custom_vjp
    def clipped(x: Any) -> Any:
        return jnp.clip(x, -1, 1)

    clipped.defvjp(lambda x: (jnp.clip(x, -1, 1), x), lambda x, g: (g * jnp.cos(x),))

    def one(x: Any) -> Any:
        return clipped(x @ x)

    calls = calls_of(jax.grad(lambda x: jnp.sum(one(one(x)))), X)
    assert counts(calls)["one"] == 2
    origins = hs.capture(jax.grad(lambda x: jnp.sum(one(one(x)))), X).module.origins
    assert origins is not None
    cosines = [o.number for o in origins.operations if o.opcode == "cosine"]
    found = [origins.python.of_operation(n)[0] for n in cosines]
    ones = {c.which for f in found for c in origins.python.stack(f) if c.name == "one"}
    assert ones == {1, 2}


def test_a_function_that_was_traced_before_is_traced_for_the_capture() -> None:
    jitted = jax.jit(layer)

    def f(x: Any) -> Any:
        return jitted(x, jitted(x, x))

    run = jax.jit(f)
    before = run.lower(X).as_text("stablehlo", debug_info=True)
    run(X)
    assert counts(calls_of(run, X)) == {"f": 1, "layer": 2, "norm": 4}
    again = hs.capture(run, X)
    assert again.module.origins is not None
    assert counts(again.module.origins.python) == {"f": 1, "layer": 2, "norm": 4}
    after = run.lower(X).as_text("stablehlo", debug_info=True)
    assert len(after.splitlines()) == len(before.splitlines())
    assert "1F" not in after


def test_nothing_of_it_is_in_the_lowered_program() -> None:
    def f(x: Any) -> Any:
        with jax.named_scope("here"):
            return jax.checkpoint(layer)(x, jax.vmap(norm)(x))

    args = (jax.grad(lambda x: jnp.sum(f(x))), X)
    exact, plain = (hs.capture(*args, exact=e).at("stablehlo") for e in (True, False))
    assert exact.text == plain.text
    assert exact.module.op_names() == plain.module.op_names()
    assert not any("\x1f" in n for n in hs.capture(*args).module.op_names())


def test_the_card_says_which_call() -> None:
    def f(x: Any) -> Any:
        for _ in range(3):
            x = layer(x, x)
        return x

    cap = hs.capture(f, X)
    dots = [i for i in cap.module.instructions if i.op_name.endswith("dot_general") and i.origins]
    said = {str(cap.origins(i)[0]) for i in dots if i.opcode in ("dot", "custom-call", "fusion")}
    assert {f"layer (call {k} of 3)" for k in (1, 2, 3)} <= {
        s.partition(" in ")[2].partition(" at ")[0] for s in said
    }
    call = cap.origins(dots[0])[0].python[-1]
    assert os.path.basename(call.file) == "test_python_calls.py"
    row = cap.origins(dots[0]).to_dict()["rows"][0]["python"][-1]
    assert row["function"].endswith("layer")
    assert row["of"] == 3


def test_without_hooks_calls_are_unknown_and_all_else_is_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(python_calls._compat, "tracing_context", lambda: None)
    cap = hs.capture(lambda x: layer(x, x), X)
    origins = cap.module.origins
    assert origins is not None
    assert origins.known
    assert len(origins.python) == 0
    assert cap.origins(cap.module.instructions[-1].name) is not None


# the others take longer: benchmarks/calls.py has all of them
SLOW = ["linen_unrolled", "linen_shared", "linen_scanned", "scanned_gradient", "micro_batches"]


@pytest.mark.some(8)
@pytest.mark.parametrize("name", [n for n in call_programs.PROGRAMS if n not in SLOW])
def test_calls_and_groups_are_those_that_the_profiler_saw(name: str) -> None:
    found = call_oracle.agreement(name)
    assert found.instructions > 30
    assert found.layers == (call_programs.PROGRAMS[name]()[3],) * 2
    assert found.calls[0] == found.calls[1]
    assert found.members >= 0.98
    assert found.groups[0] == found.groups[1] > 0
    # a loop's own slices and writes are in its body: the layer, where it runs nothing else
    assert found.boxes >= {"scanned_and_rematerialised": 0.85, "nnx_scanned": 0.8}.get(name, 0.97)


def test_a_call_is_in_the_scope_of_nearly_all_its_boxes():
    """One sum that XLA merged with another layer's does not hide that layer_0 is the call."""
    from collections import Counter

    from hloscope.analysis.base.lines.op_name import common_to_most

    merged = Counter({("layer_0", "mlp"): 8, ("layer_0", "attn"): 9, (): 1})
    assert common_to_most(merged, 0.8) == ("layer_0",)
    assert common_to_most(merged, 0.95) == ()
    assert common_to_most(Counter({("layer_0",): 5, ("layer_1",): 5}), 0.8) == ()
    assert common_to_most(Counter(), 0.8) == ()


def test_two_lambdas_of_one_line_are_two_functions() -> None:
    # fmt: off
    def f(x: Any) -> Any:
        return jax.lax.cond(jnp.sum(x) > 0, lambda v: jnp.sin(v) * 2, lambda v: jnp.cos(v) + 1, x)
    # fmt: on
    calls = [c for c in calls_of(f, X) if c.name == "<lambda>"]
    assert [(c.which, c.of) for c in calls] == [(1, 1), (1, 1)]
