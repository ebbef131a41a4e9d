"""Scatters that XLA:TPU takes apart into loops: what is said, and what stays one operation."""

from __future__ import annotations

from typing import Any

import hloscope as hs
import jax
import jax.numpy as jnp
import pytest
from findings_programs import BF16, F32, rows_of_a_cache, shaped

pytestmark = pytest.mark.usefixtures("libtpu")


def looped(cap: hs.Capture) -> tuple[hs.results.Finding, ...]:
    assert cap.findings.failed == ()
    return cap.findings.of("looped-updates")


def test_rows_at_places_of_their_own() -> None:
    (found,) = looped(hs.capture(*rows_of_a_cache(False), topology="v5e:1x1"))
    assert found.title == "A scatter became a loop of 256 steps"
    assert found.instructions[0].opcode == "while"
    assert "jax.vmap of a dynamic_update_slice" in found.evidence
    assert "x.at[i].set(row)" in found.advice
    healthy = hs.capture(*rows_of_a_cache(True), topology="v5e:1x1")
    assert looped(healthy) == ()
    assert all(i.opcode != "while" for i in healthy.module.instructions)


def test_a_few_steps_are_not_worth_a_word() -> None:
    assert looped(hs.capture(*rows_of_a_cache(False, 16), topology="v5e:1x1")) == ()


def test_a_loop_of_the_program_is_one_of_the_program() -> None:
    def step(cache: Any, rows: Any) -> Any:
        def body(n: Any, cache: Any) -> Any:
            return jax.lax.dynamic_update_slice(cache, rows[n][None], (n * 3 % 1024, 0))

        return jax.lax.fori_loop(0, 256, body, cache)

    cap = hs.capture(
        jax.jit(step, donate_argnums=0), shaped((1024, 1024), BF16), shaped((256, 1024), BF16),
        topology="v5e:1x1",
    )  # fmt: skip
    assert any(i.opcode == "while" for i in cap.module.instructions)
    assert looped(cap) == ()


def test_gradients_of_slices_are_not_taken_for_an_update() -> None:
    def loss(x: Any, at: Any) -> Any:
        cut = jax.vmap(lambda x, i: jax.lax.dynamic_slice(x, (i, 0), (16, 128)))(x, at)
        return jnp.sum(jnp.sin(cut))

    step = jax.jit(jax.grad(loss))
    cap = hs.capture(
        step, shaped((128, 1024, 128), F32), shaped((128,), jnp.int32), topology="v5e:1x1"
    )
    (found,) = looped(cap)
    assert found.title == "A scatter-add became a loop of 128 steps"
    assert "dynamic_update_slice" not in found.evidence
    assert found.advice == ""
