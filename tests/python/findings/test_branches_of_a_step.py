"""The headline of a step whose conditionals take one of several branches: what is known of it."""

from __future__ import annotations

import dataclasses
from typing import Any

import hloscope as hs
import jax
import jax.numpy as jnp
import pytest
from advice_pairs import chip
from findings_programs import shaped
from jax import lax


def updated(every: int) -> hs.Capture:
    """Gradients of 32 rows in turn; the parameters are updated after each ``every``."""

    def update(state: Any) -> Any:
        w, mean, total = state
        mean = 0.9 * mean + 0.1 * total
        return w - 0.1 * mean / (1 + jnp.abs(mean)), mean, jnp.zeros_like(total)

    def step(state: Any, xs: Any) -> Any:
        def row(state: Any, given: Any) -> Any:
            at, x = given
            w, mean, total = state
            total = total + jax.grad(lambda w: (jnp.tanh(x @ w) ** 2).sum())(w)
            state = w, mean, total
            if every > 1:
                return lax.cond(at % every == every - 1, update, lambda s: s, state), None
            return update(state), None

        return lax.scan(row, state, (jnp.arange(32), xs))[0]

    w = shaped((1024, 1024))
    return chip(step, (w, w, w), shaped((32, 64, 1024)), donate_argnums=0)


def test_a_step_with_a_conditional_is_between_that_of_its_quickest_and_its_slowest_branch() -> None:
    cap = updated(4)
    least, most = cap.cost().ranges["seconds"]
    h = cap.findings.headline
    assert (h.seconds_least, h.seconds) == (least, pytest.approx(most))
    assert " ms – " in h.parts()[0]
    assert "takes its slowest branch" in str(cap.findings)
    # a bound of what is computed in the shortest time
    assert h.mfu == pytest.approx(cap.cost().total_matmul_flops / 197e12 / least)
    measured = cap.findings.with_step(2 * most).headline
    assert measured.mfu == pytest.approx(cap.cost().total_matmul_flops / 197e12 / (2 * most))
    assert "–" not in measured.parts()[0]


def test_a_step_without_conditionals_takes_one_time() -> None:
    cap = updated(1)
    h = cap.findings.headline
    assert h.seconds_least is None
    assert "–" not in str(h)
    assert "slowest branch" not in str(cap.findings)
    assert dataclasses.replace(h, mfu=None).parts()
