"""What became of every operation, in programs made so that it is known."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import hloscope as hs
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hloscope.analysis.report.fate import Fates
from jax.experimental import pallas
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

X, V, I = jnp.ones((64, 64)), jnp.ones(64), jnp.arange(64)  # noqa: E741
SIMPLIFIER = "StableHLO's simplifier, before XLA's first pass"
layer = jax.jit(lambda p, x: jnp.tanh(x @ p))


@jax.custom_vjp
def clip(x: Any) -> Any:
    return x * 2


clip.defvjp(lambda x: (x * 2, x), lambda r, g: (g * jnp.cos(r),))


def mesh() -> Mesh:
    return Mesh(np.array(jax.devices()), ("d",))


def sharded(*spec: Any) -> Any:
    sharding = NamedSharding(mesh(), P(*spec))
    return jax.ShapeDtypeStruct((64, 64), jnp.float32, sharding=sharding)


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
        {("while", 0): ("rewritten", None, ""), ("sine", 0): ("fused", "", "in %")},
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
    "vmap": (jax.vmap(lambda a: a @ a), (jnp.ones((4, 8, 8)),), {
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
    fn, arguments, _ = PROGRAMS[name]
    return hs.capture(fn, *arguments, passes=True).fates


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
