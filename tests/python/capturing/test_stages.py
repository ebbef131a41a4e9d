"""The four stages of one program, and the jaxpr written as a Module."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import hloscope as hs
import jax
import jax.numpy as jnp
import pytest
from some import some_of


@pytest.fixture(scope="module")
def step(compiled: Callable[..., Any]) -> hs.Capture:
    made = compiled("gpt_scan").made
    return hs.capture(made.fn, *made.args, stage="jaxpr")


def test_each_stage_from_one_capture(step: hs.Capture) -> None:
    dialects = {s: step.at(s).module.dialect for s in ("jaxpr", "stablehlo", "hlo", "optimized")}
    assert dialects == {
        "jaxpr": "jaxpr", "stablehlo": "stablehlo", "hlo": "hlo", "optimized": "hlo",
    }  # fmt: skip
    for stage in dialects:
        cap = step.at(stage)
        assert cap.stage == stage
        assert cap.target.mesh == step.target.mesh
        names = [a.name for a in cap.target.arguments]
        assert names == [a.name for a in step.target.arguments]
        assert cap.at("jaxpr").module.dialect == "jaxpr"


@pytest.mark.parametrize("stage", ["jaxpr", "stablehlo", "hlo", "optimized"])
def test_every_stage_knows_the_users_lines(step: hs.Capture, stage: str) -> None:
    cap = step.at(stage)
    located = [i for i in cap.module.instructions if i.frames and "dot" in i.opcode]
    assert located
    assert any(i.frames[0].file.endswith("transformers.py") for i in located)
    assert any(file.endswith("transformers.py") for file in cap.target.sources)
    assert any("attention" in i.op_name for i in cap.module.instructions)


def test_hlo_before_optimisation_is_not_partitioned(step: hs.Capture) -> None:
    shapes = [p.shape.dimensions for p in step.at("hlo").module.entry.parameters]  # type: ignore[union-attr]
    assert shapes == [a.shape for a in step.target.arguments]


def test_only_the_optimized_stage_has_compiled_figures(step: hs.Capture) -> None:
    assert step.at("hlo").target.memory_stats == {}
    assert step.at("optimized").target.memory_stats["peak_memory_in_bytes"] > 0


# -- jaxpr --------------------------------------------------------------------------------


def jaxpr(fn: Any, *args: Any) -> hs.Capture:
    return hs.capture(fn, *args, stage="jaxpr")


def test_equations_are_instructions() -> None:
    def f(x: jax.Array, y: jax.Array) -> jax.Array:
        with jax.named_scope("block"):
            return jnp.sin(x) * y + 2.0

    module = jaxpr(f, jnp.ones((4, 3)), jnp.ones((3,))).module
    assert [i.opcode for i in module.instructions] == [
        "parameter", "parameter", "sin", "broadcast_in_dim", "mul", "constant", "add",
    ]  # fmt: skip
    entry = module.entry
    assert entry is not None
    assert entry.root is module.instructions[-1]
    assert entry.root.is_root
    assert entry.root.shape.text == "f32[4,3]"
    assert [p.name for p in entry.parameters] == ["x", "y"]
    assert entry.root.op_name == "block/add"
    assert str(entry.root.frames[0].function).endswith("f")
    assert module.find("mul").users == (entry.root,)  # type: ignore[union-attr]


def test_inner_jaxprs_are_computations_with_roles() -> None:
    def f(x: jax.Array, n: jax.Array) -> jax.Array:
        x = jax.lax.scan(lambda c, _: (c * 2, c), x, length=3)[0]
        x = jax.lax.cond(n > 0, jnp.sin, jnp.cos, x)
        return jax.lax.while_loop(lambda c: c.sum() < 9, lambda c: c + 1, x)

    module = jaxpr(f, jnp.ones(4), 1).module
    roles = {i.opcode: [r for r, _ in i.called] for i in module.instructions if i.called}
    assert roles["scan"] == ["body"]
    assert roles["cond"] == ["branch_computations", "branch_computations"]
    assert sorted(roles["while"]) == ["body", "condition"]
    for i in module.instructions:
        for _, computation in i.called:
            assert computation in module.computations


def test_a_function_jitted_once_and_called_twice_is_one_computation() -> None:
    inner = jax.jit(lambda x: jnp.tanh(x) @ x)
    module = jaxpr(lambda x, y: inner(x) + inner(y), jnp.ones((3, 3)), jnp.ones((3, 3))).module
    calls = [i for i in module.instructions if i.called]
    assert len(calls) == 2
    assert calls[0].called_computations == calls[1].called_computations
    assert len(module.computations) == 2


def test_several_results_are_taken_apart() -> None:
    module = jaxpr(lambda x: jax.lax.top_k(x, 2), jnp.ones((8,))).module
    top = module.find("top_k")
    assert top is not None
    assert top.shape.is_tuple
    assert [u.opcode for u in top.users] == ["get-tuple-element", "get-tuple-element"]
    assert [u.attribute("index") for u in top.users] == ["0", "1"]
    assert module.entry.root.opcode == "tuple"  # type: ignore[union-attr]


@pytest.mark.parametrize("fn", [lambda x: x, lambda x: (x, x, 1.0), lambda x: ()])
def test_results_that_are_no_equations(fn: Any) -> None:
    module = jaxpr(fn, jnp.ones(3)).module
    assert module.entry is not None
    assert module.entry.root is not None


def test_spans_point_at_the_lines(step: hs.Capture) -> None:
    module = step.module
    data = module.text.encode()
    for i in module.instructions:
        assert i.text_span is not None
        line = data[slice(*i.text_span)].decode()
        assert re.match(rf"(ROOT )?%{re.escape(i.name)} = ", line)
        assert line.count("\n") == 0
    for c in module.computations:
        assert c.text_span is not None
        assert f"%{c.name} {{" in data[slice(*c.text_span)].decode()
    assert len({i.name for i in module.instructions}) == len(module.instructions)


def test_indices_number_the_instructions_in_order(step: hs.Capture) -> None:
    assert [i.index for i in step.module.instructions] == list(range(len(step.module.instructions)))
    for i in step.module.instructions:
        assert all(o.index < i.index for o in i.operands)


def test_every_corpus_program_has_a_jaxpr() -> None:
    from corpus.build import make
    from corpus.programs import PROGRAMS

    for name in some_of(PROGRAMS, 20, __name__):
        made = make(name)
        cap = hs.capture(made.fn.trace(*made.args, **made.kwargs), stage="jaxpr")
        assert cap.module.entry is not None, name
        assert all(i.index == k for k, i in enumerate(cap.module.instructions)), name
