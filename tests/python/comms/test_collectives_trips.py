"""Trip counts: the compiler's own where it wrote one, else read from the loop; both agree."""

from __future__ import annotations

import re

import hloscope as hs
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import pytest
from hloscope.analysis.base.loops.trips import count_steps, multiplicity, trip_count
from hloscope.hlo import Module
from hypothesis import given


def compile_text(f, *args) -> str:
    return jax.jit(f).lower(*args).compile().as_text()


def without_known_counts(text: str) -> str:
    return re.sub(r', backend_config=\{"dynamic_variables[^\n]*', "", text)


def module_of(text: str) -> Module:
    return hs.read(text).module


def loops(module: Module) -> list[int | None]:
    return sorted((trip_count(i) for i in module.instructions if i.opcode == "while"), key=repr)


def scan16(x):
    return jax.lax.scan(lambda c, w: (jnp.tanh(c @ w), None), x, jnp.ones((16, 8, 8)))[0]


def nested(x):
    inner = lambda i, c: jnp.tanh(c @ c)  # noqa: E731
    return jax.lax.fori_loop(0, 5, lambda i, c: jax.lax.fori_loop(2, 9, inner, c) * 2, x)


def countdown(x):
    return jax.lax.while_loop(
        lambda c: c[0] >= 3, lambda c: (c[0] - 4, jnp.tanh(c[1] @ c[1])), (jnp.int32(30), x)
    )[1]


def not_equal(x):
    return jax.lax.while_loop(
        lambda c: c[0] != 12, lambda c: (c[0] + 3, jnp.tanh(c[1] @ c[1])), (jnp.int32(0), x)
    )[1]


def data_dependent(x):
    return jax.lax.while_loop(lambda c: jnp.sum(c) > 0.1, lambda c: jnp.tanh(c @ c), x)


@pytest.mark.parametrize(
    ("f", "expected"),
    [
        (scan16, [16]),
        (nested, [5, 7]),
        (countdown, [7]),
        (not_equal, [4]),
        (data_dependent, [None]),
    ],
)
def test_counts_with_and_without_the_compilers_word(f, expected):
    text = compile_text(f, jnp.ones((8, 8)))
    assert loops(module_of(text)) == expected
    bare = without_known_counts(text)
    assert "known_trip_count" not in bare
    assert loops(module_of(bare)) == expected


def test_nested_bodies_multiply_and_conditions_run_once_more():
    module = module_of(compile_text(nested, jnp.ones((8, 8))))
    counts = multiplicity(module)
    by_role = {
        (role, trip_count(i)): counts[c.index]
        for i in module.instructions
        if i.opcode == "while"
        for role, c in i.called
    }
    assert by_role == {
        ("body", 5): 5,
        ("condition", 5): 6,
        ("body", 7): 35,
        ("condition", 7): 40,
    }


def test_unknown_trips_make_everything_inside_unknown_and_branches_are_unknown():
    module = module_of(compile_text(data_dependent, jnp.ones((8, 8))))
    counts = multiplicity(module)
    loop = next(i for i in module.instructions if i.opcode == "while")
    assert all(counts[c.index] is None for c in loop.called_computations)
    assert module.entry is not None
    assert counts[module.entry.index] == 1

    branchy = module_of(
        compile_text(lambda x: jax.lax.cond(x[0, 0] > 0, jnp.sin, jnp.cos, x), jnp.ones((8, 8)))
    )
    fork = next(i for i in branchy.instructions if i.opcode == "conditional")
    counts = multiplicity(branchy)
    assert [counts[c.index] for c in fork.called_computations] == [None, None]


@given(
    st.integers(-60, 60),
    st.integers(-9, 9),
    st.integers(-60, 60),
    st.sampled_from(["LT", "LE", "GT", "GE", "EQ", "NE"]),
    st.sampled_from(["s8", "s32"]),
)
def test_count_steps_is_the_loop_run_by_hand(start, step, bound, direction, kind):
    holds = {
        "LT": int.__lt__, "LE": int.__le__, "GT": int.__gt__,
        "GE": int.__ge__, "EQ": int.__eq__, "NE": int.__ne__,
    }[direction]  # fmt: skip
    limit = 127 if kind == "s8" else 1 << 31
    at, n = start, 0
    while n is not None and holds(at, bound):
        at, n = at + step, n + 1
        if n > 500 or not -limit <= at < limit:
            n = None
    assert count_steps(start, step, bound, direction, kind) == n


KNOWN_IN_UNKNOWN = """HloModule m, num_partitions=2

%sum (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %ab = f32[] add(%a, %b)
}
%inner (p: (s32[], f32[256])) -> (s32[], f32[256]) {
  %p = (s32[], f32[256]) parameter(0)
  %k = s32[] get-tuple-element(%p), index=0
  %v = f32[256] get-tuple-element(%p), index=1
  %one = s32[] constant(1)
  %next = s32[] add(%k, %one)
  %all = f32[256] all-reduce(%v), channel_id=1, replica_groups={{0,1}}, use_global_device_ids=true, to_apply=%sum
  ROOT %t = (s32[], f32[256]) tuple(%next, %all)
}
%under (q: (s32[], f32[256])) -> pred[] {
  %q = (s32[], f32[256]) parameter(0)
  %j = s32[] get-tuple-element(%q), index=0
  %fifty = s32[] constant(50)
  ROOT %c = pred[] compare(%j, %fifty), direction=LT
}
%outer (r: f32[256]) -> f32[256] {
  %r = f32[256] parameter(0)
  %zero = s32[] constant(0)
  %init = (s32[], f32[256]) tuple(%zero, %r)
  %loop = (s32[], f32[256]) while(%init), condition=%under, body=%inner
  ROOT %got = f32[256] get-tuple-element(%loop), index=1
}
%until (s: f32[256]) -> pred[] {
  %s = f32[256] parameter(0)
  %first = f32[1] slice(%s), slice={[0:1]}
  %f = f32[] reshape(%first)
  %tol = f32[] constant(1)
  ROOT %more = pred[] compare(%f, %tol), direction=GT
}
ENTRY %main {
  %x = f32[256] parameter(0)
  ROOT %w = f32[256] while(%x), condition=%until, body=%outer
}
"""  # noqa: E501


def test_a_known_loop_in_an_unknown_one_counts_as_in_cost() -> None:
    cap = hs.read(KNOWN_IN_UNKNOWN)
    (row,) = cap.collectives
    assert row.executions is None
    assert row.executions_text == "unknown"
    # 2 devices, 1,024 bytes: a ring sends each byte once; 50 times in a trip of the outer loop
    assert row.total_wire_bytes == 50 * 1024
    assert cap.collectives.wire_bytes == cap.cost().wire.sum() == 50 * 1024
    assert cap.collectives.traffic()[0, 1] == 50 * 1024
