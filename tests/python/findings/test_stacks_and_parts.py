"""Stacks that loops take apart or store, and arrays that cannot be cut evenly: what is said of
them, and what is not said of programs that only look like them."""

from __future__ import annotations

import importlib.util
from typing import Any

import hloscope as hs
import jax
import jax.numpy as jnp
import pytest
from advice_pairs import (
    chip,
    in_blocks_of_trips,
    multiplied_in_parts,
    padded_to_even_parts,
    scanned_layers,
    sums_of_rows,
)
from findings_programs import BF16, F32, mesh, shaped
from jax import lax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P


def waits(cap: hs.Capture) -> list[hs.results.Finding]:
    return list(cap.findings.of("exposed-collective"))


def test_a_stack_of_layers_sharded_by_layers_is_not_the_price_of_fsdp() -> None:
    (found,) = waits(scanned_layers(P("x"), "cpu"))
    assert "A loop takes a part of it in each trip, along the dimension that is sharded" in str(
        found
    )
    assert "FSDP" not in str(found)
    assert not found.advice  # gathered once: cut within layers, as many bytes would be sent
    within = str(waits(scanned_layers(P(None, None, "x"), "cpu")))
    assert "along the dimension that is sharded" not in within


@pytest.mark.skipif(importlib.util.find_spec("libtpu") is None, reason="needs libtpu")
def test_a_stack_that_each_trip_gathers_whole_is_better_sharded_within_layers() -> None:
    found = waits(scanned_layers(P("x"), "tpu"))
    assert found
    assert all("shard another dimension of it" in f.advice for f in found)
    assert "no trip changes it" not in str(found)


def cut_in_the_step(given: P) -> hs.Capture:
    """Weights that a constraint cuts over eight devices, and a product needs whole."""
    on = mesh("x")
    by_rows = NamedSharding(on, P("x"))

    def step(w: Any, x: Any) -> Any:
        cut = lax.with_sharding_constraint(w, by_rows)
        return w - 0.1 * jax.grad(lambda w: jnp.tanh(x @ w).sum())(cut)

    w = shaped((1024, 4096), F32, on, *given)
    return chip(step, w, shaped((256, 1024), F32, on, "x"))


def test_weights_that_each_device_is_given_whole_are_not_stored_in_shards() -> None:
    whole = str(waits(cut_in_the_step(P())))
    assert "Each device is given all of it, keeps a part, and gathers all of it again: `w`" in whole
    assert "stored in shards" not in whole.lower()
    cut = str(waits(cut_in_the_step(P("x"))))
    assert "Stored in shards and gathered where they are used, the price of FSDP: `w`" in cut
    assert "given all of it" not in cut


def test_a_result_that_devices_cannot_cut_evenly_is_not_advised_to_be_returned_in_shards() -> None:
    found = [f for f in waits(padded_to_even_parts(False)) if "out_shardings" in f.advice]
    assert found
    assert all("8,195 is not divisible by 8" in f.advice for f in found)


def test_a_stack_of_what_is_carried_is_not_rematerialised_by_a_checkpoint_of_the_body() -> None:
    (found,) = in_blocks_of_trips(False).findings.of("residuals")
    assert "what each trip is given of the one before" in found.evidence
    assert "make it two loops" in found.advice
    assert not found.changes


def test_stacks_of_what_a_trip_makes_are_rematerialised() -> None:
    def loss(ws: Any, x: Any) -> Any:
        def block(x: Any, w: Any) -> Any:
            return x + jnp.sin(jnp.tanh(jnp.sin(x @ w))), None

        return (lax.scan(block, x, ws)[0] ** 2).sum()

    cap = hs.capture(jax.jit(jax.grad(loss)), shaped((16, 128, 128)), shaped((4096, 128)))
    (found,) = cap.findings.of("residuals")
    assert "rematerialise the largest" in found.advice


def attended(is_trained: bool) -> hs.Capture:
    """A loop that reads all it has written so far, and writes one more row."""

    def last(w: Any, x: Any) -> Any:
        def body(carry: Any, at: Any) -> Any:
            rows, x = carry
            seen = jax.nn.softmax(jnp.einsum("tbd,bd->tb", rows, x), 0)
            x = jnp.tanh(x @ w + jnp.einsum("tb,tbd->bd", seen, rows))
            return (lax.dynamic_update_index_in_dim(rows, x, at, 0), x), None

        rows = jnp.zeros((128, *x.shape))
        return (lax.scan(body, (rows, x), jnp.arange(128))[0][1] ** 2).sum()

    fn = jax.grad(last) if is_trained else last
    return chip(fn, shaped((256, 256)), shaped((32, 256)))


def test_an_old_value_that_is_stored_whole_cannot_be_carried_instead() -> None:
    for found in attended(is_trained=True).findings.of("update-copies"):
        assert "carry what is needed of the old value" not in found.advice


def accumulated(recurs: bool) -> hs.Capture:
    """Rows in blocks: each adds to a gradient, or waits for what the last one made."""

    def loss(w: Any, h: Any, x: Any) -> Any:
        return jnp.tanh(x @ w + (h @ w if recurs else 0)).sum()

    def step(w: Any, xs: Any) -> Any:
        def block(carry: Any, x: Any) -> Any:
            total, h = carry
            total = total + jax.grad(loss)(w, h, x)
            return (total, jnp.tanh(x @ w + h @ w) if recurs else h), None

        first = jnp.zeros_like(w), jnp.zeros_like(xs[0])
        return lax.scan(block, first, xs)[0]

    return chip(step, shaped((1024, 1024)), shaped((16, 64, 1024)))


def test_blocks_of_rows_whose_gradients_are_added_up_are_not_multiplied_at_once() -> None:
    assert not accumulated(recurs=False).findings.of("product-in-a-loop")
    assert accumulated(recurs=True).findings.of("product-in-a-loop")


def test_rows_that_a_trip_takes_by_index_are_not_always_the_same() -> None:
    def bags(table: Any, at: Any, weights: Any) -> Any:
        def block(total: Any, given: Any) -> Any:
            rows, w = given
            bag = jnp.einsum("ind,in->id", table[rows], w)
            return jnp.tanh(total + bag), bag

        return lax.scan(block, jnp.zeros((1024, 512)), (at, weights))[1]

    at, weights = shaped((32, 1024, 32), jnp.int32), shaped((32, 1024, 32))
    cap = chip(bags, shaped((1 << 15, 512)), at, weights)
    assert not cap.findings.of("product-in-a-loop")


def test_tiny_products_of_which_multiplying_takes_longest_do_not_wait_for_their_operands() -> None:
    def normal(a: Any) -> Any:
        return jnp.einsum("nki,nkj->nij", a, a)

    cap = chip(normal, shaped((1 << 20, 6, 3)))
    assert not cap.findings.of("idle-matmul")
    rows = chip(lambda x, w: x @ w, shaped((8, 4096), BF16), shaped((4096, 4096), BF16))
    assert rows.findings.of("idle-matmul")


def test_operands_that_are_cut_over_different_devices_where_they_meet_are_named() -> None:
    crossed = multiplied_in_parts(P(None, "x"), P("y"))
    (found,) = crossed.findings.of("redundant-work")
    assert "what it contracts is cut over x in one operand and over y in the other" in str(found)
    # over the same devices in both, one sum puts their parts together
    alike = multiplied_in_parts(P(None, ("x", "y")), P(("x", "y")))
    assert not alike.findings.of("redundant-work")
    seconds = [c.findings.headline.seconds or 0 for c in (crossed, alike)]
    assert seconds[0] - seconds[1] >= (found.seconds or 0) / 2 > 0
    (found,) = multiplied_in_parts(P(None, "x"), P("x")).findings.of("redundant-work")
    assert "what it contracts is cut" not in str(found)  # nothing is cut over y


def test_rows_that_are_kept_as_they_were_taken_are_not_advised_to_be_taken_in_parts() -> None:
    def rows(table: Any, at: Any, w: Any) -> Any:
        taken = jnp.sin(table[at])
        return (taken @ w).astype(BF16), taken.sum()

    given = shaped((4096, 256)), shaped((1 << 18,), jnp.int32), shaped((256, 256))
    cap = hs.capture(jax.jit(rows), *given)
    assert all("take and reduce" not in f.advice for f in cap.findings.of("peak-of-a-line"))
    assert any("take and reduce" in f.advice for f in sums_of_rows(False).findings)
