"""Copies: what changes nothing, what is turned, and what is kept for whom."""

from __future__ import annotations

from typing import Any

import hloscope as hs
import jax
import jax.numpy as jnp
import pytest
from jax import lax

BF16 = jnp.bfloat16


def shaped(*shape: int, dtype: Any = BF16) -> Any:
    return jax.ShapeDtypeStruct(shape, dtype)


def test_a_scalar_that_a_loop_copies_has_no_layout() -> None:
    @jax.jit
    def step(first: Any) -> Any:
        values = jnp.zeros(10_000).at[0].set(first)
        return lax.fori_loop(0, 9_999, lambda t, a: a.at[t + 1].set(a[t] * 0.9 + 1), values)

    cap = hs.capture(step, shaped(dtype=jnp.float32))
    for rule in ("layout-copies", "whole-copies"):
        assert cap.findings.of(rule) == ()


TURNED = """HloModule m, is_scheduled=true

ENTRY e {
  x = f32[512,1024]{1,0} parameter(0)
  y = f32[512,1024]{1,0} MADE
  c = f32[512,1024]{0,1} copy(y)
  ROOT s = f32[512,1024]{0,1} sine(c)
}
"""


def test_only_of_an_array_that_is_given_the_order_can_be_chosen() -> None:
    for made, has_advice in (("bitcast(x)", True), ("exponential(x)", False)):
        cap = hs.read(TURNED.replace("MADE", made))
        cap.hardware = "tpu-v5e"
        (found,) = cap.findings.of("layout-copies")
        assert bool(found.advice) is has_advice


@pytest.mark.usefixtures("libtpu")
def test_a_result_that_is_copied_into_a_donated_cache_is_named_with_its_reason() -> None:
    layers, rows, length, d = 8, 8, 1024, 1024

    def layer(x: Any, p: Any) -> Any:
        w, k = p
        k = lax.dynamic_update_slice_in_dim(k, (x @ w)[:, None], 5, 1)
        scores = jax.nn.softmax(jnp.einsum("bd,bsd->bs", x, k))
        return x + jnp.einsum("bs,bsd->bd", scores, k), k

    step = jax.jit(lambda w, cache, x: lax.scan(layer, x, (w, cache)), donate_argnums=1)
    cache = shaped(layers, rows, length, d)
    cap = hs.capture(step, shaped(layers, d, d), cache, shaped(rows, d), topology="v5e:1x1")
    found = cap.findings[0]
    assert found.rule == "whole-copies"
    assert found.share > 0.3
    assert "while it reads the donated `cache`" in found.evidence
    assert found.advice == ""


@pytest.mark.usefixtures("libtpu")
def test_what_is_not_donated_counts_by_its_time_too() -> None:
    write = jax.vmap(lambda a, u, s: lax.dynamic_update_slice(a, u, (s[0], 0)))
    given = shaped(256, 2048, 128), shaped(256, 4, 128), shaped(256, 1, dtype=jnp.int32)
    ill, well = (
        hs.capture(jax.jit(write, donate_argnums=d), *given, topology="v5e:1x1") for d in ((), (0,))
    )
    (found,) = ill.findings.of("not-donated")
    assert found.share > 0.9
    assert ", and copied first (%" in found.title
    assert ill.findings.of("whole-copies") == ()  # said once
    assert list(well.findings) == []


@pytest.mark.usefixtures("libtpu")
def test_what_a_loop_stacks_for_the_loop_around_it_is_one_finding_with_its_reason() -> None:
    """A cache shifted by one token: the layers' loop makes a new one, copied to what is carried."""

    def decode(w: Any, caches: Any, x: Any) -> Any:
        def layer(x: Any, given: Any) -> Any:
            w, k, v = given
            k, v = (jnp.concatenate([c[:, 1:], x[:, None]], 1) for c in (k, v))
            p = jax.nn.softmax(jnp.einsum("bd,bsd->bs", x @ w, k))
            return x + jnp.einsum("bs,bsd->bd", p, v), (k, v)

        def token(carry: Any, _: Any) -> Any:
            x, caches = carry
            x, caches = lax.scan(layer, x, (w, *caches))
            return (x, caches), x[:, 0]

        return lax.scan(token, (x, caches), None, length=16)

    cache = shaped(8, 32, 1024, 512)  # too large for VMEM
    given = shaped(8, 512, 512), (cache, cache), shaped(32, 512)
    found = hs.capture(decode, *given, topology="v5e:1x1").findings.of("whole-copies")
    carried = [f for f in found if "the loop around it carries the array" in f.evidence]
    assert len(carried) == len({f.line for f in carried}) == 1
    assert "2 arrays of bf16[8,32,1024,512] are copied whole 16 times each" in carried[0].title
