"""What became of every operation, in programs made so that it is known."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import hloscope as hs
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hloscope.analysis.provenance.fates.constants import same_value
from hloscope.analysis.provenance.fates.fate import Fates
from hloscope.readers import read_modules
from jax.experimental import pallas
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from quickly import as_users_do

# numpy's: arrays of jax start its threads, and a file that is imported should not
X, V = np.ones((64, 64), np.float32), np.ones(64, np.float32)
I = np.arange(64, dtype=np.int32)  # noqa: E741
SIMPLIFIER = "StableHLO's simplifier (before XLA's first pass)"
layer = jax.jit(lambda p, x: jnp.tanh(x @ p))


@jax.custom_vjp
def clip(x: Any) -> Any:
    return x * 2


clip.defvjp(lambda x: (x * 2, x), lambda r, g: (g * jnp.cos(r),))


def mesh() -> Mesh:
    return Mesh(np.array(jax.devices()), ("d",))


def sharded(*spec: Any) -> Callable[[], Any]:
    """What to call for an argument: asking jax for devices starts its threads."""
    return lambda: jax.ShapeDtypeStruct(
        (64, 64), jnp.float32, sharding=NamedSharding(mesh(), P(*spec))
    )


def arguments_of(name: str) -> list[Any]:
    return [a() if callable(a) else a for a in PROGRAMS[name][1]]


def add_kernel(x: Any, y: Any, out: Any) -> None:
    out[...] = x[...] + y[...]


def pallas_add(x: Any, y: Any) -> Any:
    shape = jax.ShapeDtypeStruct(x.shape, x.dtype)
    return pallas.pallas_call(add_kernel, out_shape=shape, interpret=True)(x, y)


# name → function, arguments, and for some operations (opcode, which of that opcode) the fate,
# the pass that did it, and words of the sentence
PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[Any, ...], dict[Any, Any]]] = {
    "times zero": (
        lambda x: x + (x * 7) * 0, (I,),
        {("multiply", 1): ("rewritten", SIMPLIFIER, "parameter %x"),
         ("add", 0): ("rewritten", SIMPLIFIER, "parameter %x")},
    ),
    "duplicates": (
        lambda x: jnp.sin(x) + jnp.sin(x), (X,),
        {("sine", 0): ("fused", "", "in %"), ("sine", 1): ("merged", "cse", "with sine")},
    ),
    "duplicate products": (
        lambda x: (x @ x) + (x @ x), (X,),
        {("dot_general", 1): ("merged", "cse", "with dot_general")},
    ),
    "chosen by a constant": (
        lambda x: jax.lax.select(jnp.full((64,), True), jnp.sin(x), jnp.cos(x) * 3), (V,),
        {("sine", 0): ("fused", "", "in %"), ("cosine", 0): ("dead", None, "no longer needed"),
         ("multiply", 0): ("dead", None, "no longer needed")},
    ),
    "joined, then cut away": (
        lambda x, y: jnp.concatenate([x, y.T * 2])[:64], (X, X),
        {("multiply", 0): ("dead", SIMPLIFIER, "concatenate"),
         ("transpose", 0): ("dead", SIMPLIFIER, "no longer needed"),
         ("slice", 0): ("rewritten", SIMPLIFIER, "parameter %x")},
    ),
    "joined, one part cut": (
        lambda x, y: jnp.concatenate([jnp.sin(x), y * 2])[:32], (X, X),
        {("multiply", 0): ("dead", None, ""), ("sine", 0): ("fused", "", "in %")},
    ),
    "joined, the transposed part cut": (
        lambda x, y: jnp.concatenate([x, y.T.T])[64:], (X, X),
        {("transpose", 0): ("rewritten", SIMPLIFIER, "parameter %y"),
         ("transpose", 1): ("rewritten", SIMPLIFIER, "parameter %y")},
    ),
    "written over": (
        lambda x, y: jax.lax.dynamic_update_slice(jnp.sin(x), jnp.cos(y), (0, 0)), (X, X),
        {("sine", 0): ("dead", None, "no longer needed"), ("cosine", 0): ("fused", "", "in %")},
    ),
    "operands change places": (
        jax.nn.sigmoid, (V,),
        {("broadcast_in_dim", 0): ("folded", SIMPLIFIER, "to a constant")},
    ),
    "iota of more dimensions": (
        lambda i: jax.nn.one_hot(i, 16), (I,), {("iota", 0): ("rewritten", None, "as iota")},
    ),
    "constants": (
        lambda x: x + jnp.full((64,), 2) * jnp.full((64,), 3), (I,),
        {("multiply", 0): ("folded", "", "to a constant")},
    ),
    "iota stays": (
        lambda x: x + (jnp.arange(64) + 1), (I,), {("iota", 0): ("fused", "", "in %")},
    ),
    "transpose swallowed": (
        lambda x: x.T @ x, (X,),
        {("transpose", 0): ("rewritten", "transpose-folding", "simplified away"),
         ("dot_general", 0): ("kept", "", "is %")},
    ),
    "transposed twice": (
        lambda x: x.T.T + 1, (X,), {("transpose", 1): ("rewritten", SIMPLIFIER, "away")},
    ),
    "converted and back": (
        lambda x: x.astype(jnp.float32).astype(jnp.bfloat16) * 2, (X.astype(jnp.bfloat16),),
        {("convert", 0): ("rewritten", "algsimp", "away"),
         ("convert", 1): ("rewritten", "algsimp", "parameter %x")},
    ),
    "plus zero": (lambda x: (x + 0) * 3, (I,), {("add", 0): ("rewritten", SIMPLIFIER, "away")}),
    "times one": (
        lambda x: x * 1.0 + 2, (X,), {("multiply", 0): ("rewritten", SIMPLIFIER, "away")},
    ),
    "reshaped and back": (
        lambda x: x.reshape(4096).reshape(64, 64) + 1, (X,),
        {("reshape", 1): ("rewritten", SIMPLIFIER, "away")},
    ),
    "called three times": (
        lambda x: layer(x, layer(x, layer(x, x))), (X,),
        {("func.call", 0): ("inlined", "", "inlined"), ("func.call", 2): ("inlined", "", "came"),
         ("tanh", 0): ("fused", "", "%")},
    ),
    "scan": (
        lambda x: jax.lax.scan(lambda c, _: (jnp.tanh(c @ c), None), x, length=5)[0], (X,),
        {("while", 0): ("kept", "", "%while"), ("tanh", 0): ("fused", "", "in %")},
    ),
    "a loop of one turn": (
        lambda x: jax.lax.fori_loop(0, 1, lambda _, c: jnp.sin(c), x), (X,),
        {("while", 0): ("rewritten", "simplify-while-loops", "what its body does stands in its"),
         ("compare", 0): ("dead", "simplify-while-loops", "the loop whose end it decides"),
         ("sine", 0): ("fused", "", "in %")},
    ),
    "a known branch": (
        lambda x: jax.lax.cond(True, jnp.sin, jnp.cos, x), (X,),
        {("case", 0): ("rewritten", SIMPLIFIER, "sine"), ("sine", 0): ("fused", "", "%sin")},
    ),
    "remat": (
        jax.grad(lambda x: jnp.sum(jax.checkpoint(lambda y: jnp.sin(jnp.sin(y)))(x))), (X,),
        {("optimization_barrier", 0): ("rewritten", None, "away"),
         ("cosine", 0): ("fused", "", "in %")},
    ),
    "custom_vjp": (
        jax.grad(lambda x: jnp.sum(clip(x))), (X,),
        {("multiply", 0): ("rewritten", SIMPLIFIER, "cosine"), ("cosine", 0): ("fused", "", "%")},
    ),
    "vmap": (jax.vmap(lambda a: a @ a), (np.ones((4, 8, 8), np.float32),), {
        ("dot_general", 0): ("fused", "", "in %")}),
    "sort": (jnp.sort, (V,), {("sort", 0): ("kept", "", "%sort")}),
    "a slice of what was put together": (
        lambda x: jnp.concatenate([x, x * 2])[:64], (V,),
        {("slice", 0): ("rewritten", SIMPLIFIER, "parameter")},
    ),
    "a choice that is known": (
        lambda x: jnp.where(jnp.ones(64, bool), x, x * 2), (V,),
        {("select", 0): ("rewritten", "algsimp", "parameter %x")},
    ),
    "negated twice": (
        lambda x: jnp.negative(-x) + 1, (X,), {("negate", 1): ("rewritten", "algsimp", "%x")},
    ),
    "the larger of one": (
        lambda x: jnp.maximum(x, x) + 1, (X,), {("maximum", 0): ("rewritten", "algsimp", "away")},
    ),
    "squared": (
        lambda x: jnp.power(x, 2.0), (X,), {("power", 0): ("rewritten", "", "as multiply")},
    ),
    "divided by a constant": (
        lambda x: x / 4.0, (X,), {("divide", 0): ("rewritten", "", "as multiply")},
    ),
    "a custom call": (
        jnp.linalg.cholesky, (X,), {("custom_call", 0): ("kept", "", "%cholesky")},
    ),
    "shard_map": (
        lambda a: jax.shard_map(
            lambda b: jax.lax.psum(b, "d"), mesh=mesh(), in_specs=P("d"), out_specs=P()
        )(a), (V,),
        {("all_reduce", 0): ("kept", "", "%"),
         ("sdy.manual_computation", 0): ("inlined", None, "inlined")},
    ),
    "a barrier": (
        lambda x: jax.lax.optimization_barrier(jnp.sin(x)) + 1, (X,),
        {("optimization_barrier", 0): ("rewritten", "cse_barrier_expander", "sine")},
    ),
    "a constraint": (
        lambda x: jax.lax.with_sharding_constraint(x * 2, NamedSharding(mesh(), P())),
        (sharded("d"),), {("sdy.sharding_constraint", 0): ("rewritten", None, "")},
    ),
    "pallas": (pallas_add, (X, X), {("add", 0): (None, None, "")}),
    "a product in the dark": (lambda x: x @ x, (sharded("d"),), {
        ("dot_general", 0): (None, "", "%")}),
}  # fmt: skip


def fates_of(name: str) -> Fates:
    program = jax.jit(PROGRAMS[name][0], compiler_options=as_users_do())
    return hs.capture(program, *arguments_of(name), passes=True).fates()


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_fate_the_pass_and_the_sentence(name: str) -> None:
    found = fates_of(name)
    assert [f.operation.number for f in found] == list(range(len(found)))
    assert sum(found.counts.values()) == len(found), "every operation has one fate"
    for (opcode, which), (kind, by, words) in PROGRAMS[name][2].items():
        fate = [f for f in found if f.operation.opcode == opcode][which]
        assert kind is None or fate.kind == kind, (opcode, str(fate))
        assert by is None or fate.by == by, (opcode, fate.by)
        assert words in str(fate), str(fate)


def test_of_a_function_that_left_something_it_is_not_said_that_nothing_is_left() -> None:
    found = hs.capture(jax.jit(lambda x: jnp.cumsum(x, 0)), X).fates()
    left = {f.operation.function for f in found if f.instructions}
    calls = [f for f in found if f.operation.is_call]
    assert any(f.operation.callee in left for f in calls)
    for f in calls:
        assert f.operation.callee not in left or "nothing" not in str(f), str(f)


def test_a_shard_map_is_inlined_though_a_constant_bears_its_name() -> None:
    def inner(x: Any) -> Any:
        return jax.lax.psum(x.sum(0), "d") + jax.lax.psum(jnp.ones(64), "d")

    fn = jax.shard_map(inner, mesh=mesh(), in_specs=P("d"), out_specs=P())
    found = hs.capture(jax.jit(fn), X).fates()
    whole = [f for f in found if f.operation.opcode == "sdy.manual_computation"]
    assert [f.kind for f in whole] == ["inlined"] * len(whole)
    assert all("folded" not in str(f) for f in whole)


# what is otherwise on a TPU: products are convolutions, and small things stay out of fusions
TPU: dict[str, dict[Any, Any]] = {
    "times zero": {("add", 0): ("rewritten", SIMPLIFIER, "parameter %x")},
    "duplicates": {("sine", 1): ("merged", "cse", "with sine")},
    "duplicate products": {
        ("dot_general", 0): ("rewritten", "", "as convolution"),
        ("dot_general", 1): ("merged", "cse", "with dot_general"),
    },
    "constants": {("multiply", 0): ("folded", "", "to a constant")},
    "transpose swallowed": {
        ("transpose", 0): ("rewritten", "transpose-folding", "simplified away"),
        ("dot_general", 0): ("rewritten", "", "as convolution"),
    },
    "converted and back": {("convert", 1): ("rewritten", "algsimp", "parameter %x")},
    "called three times": {
        ("func.call", 2): ("inlined", "", "came"), ("tanh", 0): ("fused", "", "in %"),
    },
    "scan": {
        ("while", 0): ("kept", "", "%while"), ("constant", 1): ("kept", "", "%constant"),
        ("tanh", 0): ("fused", "", "in %"),
    },
    "a loop of one turn": {
        ("sine", 0): ("kept", "", "%sin"),
        ("while", 0): ("rewritten", "hlo-module-dce", "what its body does stands in its place"),
        ("compare", 0): ("dead", "hlo-module-dce", "the loop whose end it decides is gone"),
    },
    "plus zero": {("add", 0): ("rewritten", SIMPLIFIER, "parameter %x")},
    "times one": {("multiply", 0): ("rewritten", SIMPLIFIER, "parameter %x")},
    "transposed twice": {("transpose", 1): ("rewritten", SIMPLIFIER, "parameter %x")},
    "negated twice": {("negate", 1): ("rewritten", "algsimp", "parameter %x")},
    "a known branch": {
        ("case", 0): ("rewritten", SIMPLIFIER, "sine"), ("sine", 0): ("kept", "", "%sin"),
    },
    "a barrier": {
        ("optimization_barrier", 0): ("rewritten", "cse_barrier_expander", "sine"),
    },
    "vmap": {("dot_general", 0): ("rewritten", "", "as convolution")},
    "custom_vjp": {
        ("multiply", 0): ("rewritten", SIMPLIFIER, "cosine"), ("cosine", 0): ("kept", "", "%cos"),
    },
    "sort": {("sort", 0): ("kept", "", "%sort")},
    "squared": {("power", 0): ("rewritten", "", "as multiply")},
    "iota stays": {("iota", 0): ("fused", "", "in %")},
    "a custom call": {("divide", 0): ("rewritten", "", "as multiply")},
    "pallas": {
        ("while", 0): ("rewritten", "hlo-module-dce", "what its body does stands in its place"),
    },
    "remat": {("optimization_barrier", 0): ("rewritten", "tuple-simplifier", "away")},
    "a choice that is known": {("select", 0): ("rewritten", "algsimp", "parameter %x")},
    "the larger of one": {("maximum", 0): ("rewritten", "algsimp", "away")},
    "divided by a constant": {
        ("divide", 0): ("rewritten", "", "as multiply"),
        ("constant", 0): ("folded", "", "into another constant"),
    },
}  # fmt: skip


@pytest.mark.usefixtures("libtpu")
@pytest.mark.some(14)  # all of them on CPU
@pytest.mark.parametrize("name", TPU)
def test_fates_on_a_tpu(name: str) -> None:
    fn = PROGRAMS[name][0]
    found = hs.capture(fn, *arguments_of(name), passes=True, topology="v5e:2x4").fates()
    assert sum(found.counts.values()) == len(found) > 0
    for (opcode, which), (kind, by, words) in TPU[name].items():
        fate = [f for f in found if f.operation.opcode == opcode][which]
        assert (fate.kind, fate.by) == (kind, by), str(fate)
        assert words in str(fate), str(fate)


def test_constants_say_where_they_are() -> None:
    def f(x: Any) -> Any:
        y = x * 2.5 + jnp.array([1.0, 2.0, 3.0, 4.0])
        y = jax.lax.fori_loop(0, 3, lambda _, c: c * 0.5, y)
        return ((y + 1.25) + 1.5).sum() / 8.0 + jnp.where(y[0, 0] > 0, y[0, 0] * 0 + 7.5, 7.5)

    cap = hs.capture(f, jnp.ones((8, 4)), passes=True)
    written = {
        i.origins[0].operation: i.literal
        for i in cap.at("stablehlo").module.instructions
        if i.opcode == "constant"
    }
    told = {written[f.operation.number]: f for f in cap.fates() if f.operation.number in written}
    assert told["dense<2.500000e+00>"].kind == "fused"
    # newer XLA multiplies by 0.125 once instead of running the loop
    assert told["dense<5.000000e-01>"].kind in ("fused", "folded")
    assert told["dense<3>"].kind in ("kept", "fused"), "the bound of the loop"
    for literal, fate in told.items():
        assert "into what uses it" not in str(fate)
        if fate.kind in ("kept", "fused"):
            value = literal.removeprefix("dense<").removesuffix(">").strip("[]").split(",")[0]
            first = fate.instructions[0].literal
            assert first is not None
            assert float(value) == float(first.strip("{} ").split(",")[0]), str(fate)
        else:
            assert fate.kind in ("unknown", "folded", "dead")


@pytest.mark.parametrize(
    ("a", "b", "same"),
    [
        ("f32[] constant(2.5)", "f32[] constant(2.5)", True),
        ("f32[] constant(2.5)", "f32[] constant(2.50001)", False),
        ("s32[] constant(1000000)", "s32[] constant(1000001)", False),
        ("s64[] constant(-9007199254740993)", "s64[] constant(-9007199254740992)", False),
        ("f32[] constant(-inf)", "f32[] constant(-inf)", True),
        ("f32[] constant(-inf)", "f32[] constant(inf)", False),
        ("f32[] constant(nan)", "f32[] constant(nan)", True),
        ("pred[] constant(true)", "pred[] constant(false)", False),
        ("bf16[] constant(0.1)", "f32[] constant(0.1001)", True),
        ("f32[3]{0} constant({1, 2, 3})", "f32[3]{0} constant({1, 3, 2})", False),
        ("f32[3]{0} constant({4, 4, 4})", "f32[] constant(4)", True),
        ("f32[9999]{0} constant({...})", "f32[9999]{0} constant({...})", None),
    ],
)
def test_values_of_constants_are_compared(a: str, b: str, same: bool | None) -> None:
    text = f"HloModule m\n\nENTRY e {{\n  x = {a}\n  ROOT y = {b}\n}}\n"
    x, y = read_modules(text)[0].instructions
    assert same_value(x, y) is same


def test_hexadecimal_values_are_bits() -> None:
    text = (
        "module @m {\n  func.func public @main() -> tensor<f32> {\n"
        "    %a = stablehlo.constant dense<0xFF800000> : tensor<f32>\n"
        "    %b = stablehlo.constant dense<0x7F80> : tensor<bf16>\n"
        "    return %a : tensor<f32>\n  }\n}\n"
    )
    a, b = read_modules(text)[0].instructions[:2]
    hlo = (
        "HloModule m\n\nENTRY e {\n  x = f32[] constant(-inf)\n  ROOT y = bf16[] constant(inf)\n}\n"
    )
    x, y = read_modules(hlo)[0].instructions
    assert same_value(a, x)
    assert same_value(b, y)
    assert not same_value(a, y)


def test_what_a_pass_bypassed_is_not_dead_code() -> None:
    """Its users read its operand from then on, and a later pass only removed what was left."""
    cap = hs.capture(lambda k: jax.random.bits(k, (4,)), jax.random.key(0), passes=True)
    found = [f for f in cap.fates() if f.operation.opcode == "sdy.sharding_constraint"]
    assert found
    assert all("simplified away" in str(f) and "parameter" in str(f) for f in found), found


def test_collectives_that_were_combined_are_merged() -> None:
    pytest.importorskip("libtpu")

    def both(x: Any, y: Any) -> Any:
        return jax.lax.psum(x * 2, "d"), jax.lax.psum(y + 1, "d")

    f = jax.shard_map(both, in_specs=(P("d"), P("d")), out_specs=(P(), P()))
    shape = jax.ShapeDtypeStruct((64, 64), jnp.float32)
    cap = hs.capture(f, shape, shape, topology="v5e:2x4", mesh={"d": 8}, passes=True)
    kinds = {str(f) for f in cap.fates() if f.operation.opcode == "all_reduce"}
    assert len(kinds) == 2
    assert any("was merged by all-reduce-combiner with all_reduce" in k for k in kinds), kinds
    assert any("is %all-reduce" in k for k in kinds), kinds


def test_a_constant_is_not_said_to_be_made_by_xla() -> None:
    cap = hs.capture(lambda x: jnp.maximum(x @ x, 3.0) * 2.5, X)
    cards = [cap.origins(i) for i in cap.module.instructions if i.opcode == "constant"]
    unnamed = [str(c) for c in cards if not len(c)]
    assert unnamed
    assert not any("no operation" in c for c in unnamed), unnamed
