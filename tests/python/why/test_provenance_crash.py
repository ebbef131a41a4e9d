"""Programs on which Shardy dies when it is asked where shardings are from: it is not asked."""

from __future__ import annotations

from typing import Any

import hloscope as hs
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hloscope.capturing.dumps import dumping, provenance
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

# numpy's: arrays of jax start its threads, and a file that is imported should not
X, W = np.ones((16, 16), np.float32), np.ones((3, 16, 16), np.float32)


def layer(x: Any, w: Any) -> Any:
    mesh = Mesh(np.array(jax.devices()), ("d",))

    def inner(x: Any, w: Any) -> Any:
        return jnp.tanh(x @ jax.lax.all_gather(w, "d", axis=1, tiled=True))

    specs = (P("d", None), P(None, "d"))
    return jax.shard_map(inner, mesh=mesh, in_specs=specs, out_specs=P("d", None))(x, w)


def scanned(w: Any, x: Any) -> Any:
    return jax.lax.scan(lambda c, w: (layer(c, w), None), x, w)[0]


CRASHING = {
    "scan": scanned,
    "remat": jax.grad(lambda w, x: jax.checkpoint(layer)(x, w[0]).sum()),
    "branch": jax.grad(
        lambda w, x: jax.lax.cond(x.sum() > 0, lambda: layer(x, w[0]), lambda: x).sum()
    ),
    "loop": lambda w, x: jax.lax.fori_loop(0, 3, lambda _, c: jax.jit(layer)(c, w[0]), x),
}


@pytest.mark.parametrize("name", CRASHING)
def test_a_capture_does_not_take_the_process_down(name: str) -> None:
    cap = hs.capture(CRASHING[name], W, X)
    assert any("crashes on shard_map" in str(w) for w in cap.module.warnings)
    gathers = [c for c in cap.collectives if c.kind == "all-gather"]
    assert gathers
    assert all(str(cap.why(c)) for c in gathers)


@pytest.mark.parametrize(
    "fn",
    [
        lambda w, x: layer(layer(x, w[0]), w[1]),
        lambda w, x: jax.jit(layer)(x, w[0]),
        jax.grad(lambda w, x: layer(x, w[0]).sum()),
        lambda w, x: jax.lax.fori_loop(0, 3, lambda _, c: c @ w[0], x),
    ],
)
def test_others_are_asked_where_their_shardings_are_from(fn: Any) -> None:
    assert provenance.origins_are_safe(jax.jit(fn).lower(W, X))


def test_a_loop_within_a_manual_computation_does_no_harm() -> None:
    def loop(x: Any) -> Any:
        return jax.lax.fori_loop(0, 3, lambda _, c: jax.lax.psum(c, "d") * 0.5, x)

    mesh = Mesh(np.array(jax.devices()), ("d",))
    fn = jax.shard_map(loop, mesh=mesh, in_specs=P("d"), out_specs=P("d"), check_vma=False)
    lowered = jax.jit(fn).lower(X)
    assert "stablehlo.while" in dumping.text_of(lowered)
    assert not provenance.crashes_shardy(dumping.text_of(lowered))


def test_keeping_all_passes_takes_nothing_from_the_cards() -> None:
    """Shardy's record is asked for by name: the expression for all passes does not mean it."""
    mesh = Mesh(np.array(jax.devices()), ("d",))
    split = NamedSharding(mesh, P(None, "d"))

    def product(w: Any, x: Any) -> Any:
        return jnp.tanh(x @ w).sum()  # the sum goes over what the weights split

    args = [jax.ShapeDtypeStruct((64, 64), jnp.float32, sharding=s) for s in (split, None)]
    plain, kept = (hs.capture(product, *args, passes=p) for p in (False, True))
    cards = [[str(c.why(r)) for r in c.collectives] for c in (plain, kept)]
    assert cards[0] == cards[1]
    assert any(", along " in card for card in cards[0])
