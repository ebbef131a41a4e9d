"""What a person writes in the rule of a ``custom_vjp`` is theirs, with the line in the rule."""

from __future__ import annotations

from typing import Any

import hloscope as hs
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

MESH = Mesh(np.array(jax.devices()[:8]), ("model",))


@jax.custom_vjp
def copied(x: Any) -> Any:
    return x


def summed(_: Any, g: Any) -> Any:
    return (lax.psum(g, "model"),)  # the rule


copied.defvjp(lambda x: (x, None), summed)


@jax.custom_vjp
def halved(x: Any) -> Any:
    return x * 0.5


halved.defvjp(lambda x: (x * 0.5, None), bwd=lambda _, g: (g * 0.5,))


def gradient(f: Any) -> Any:
    def local(w: Any, x: Any) -> Any:
        return jax.grad(lambda x: jnp.sum(jnp.tanh(f(x, w))))(x)

    mapped = jax.shard_map(
        local, mesh=MESH, in_specs=(P(None, "model"), P()), out_specs=P(), check_vma=False
    )
    w = jax.ShapeDtypeStruct((64, 64), np.float32, sharding=NamedSharding(MESH, P(None, "model")))
    x = jax.ShapeDtypeStruct((32, 64), np.float32, sharding=NamedSharding(MESH, P()))
    return hs.capture(jax.jit(mapped), w, x)


def line_with(words: str) -> str:
    with open(__file__, encoding="utf-8") as source:
        (at,) = (n for n, line in enumerate(source, 1) if line.rstrip().endswith(words))
    return f"{__file__}:{at}"


def test_a_sum_in_a_backward_rule_is_the_persons() -> None:
    cap = gradient(lambda x, w: copied(x) @ w)
    (row,) = cap.collectives
    card = cap.why(row)
    assert (row.written_by, row.line) == ("user", line_with("# the rule"))
    assert (card.by_user, card.by_autodiff, card.line) == (True, False, row.line)


def test_a_derivative_beside_a_rule_is_autodiffs() -> None:
    cap = gradient(lambda x, w: lax.psum(halved(x) @ w, "model"))
    found = {row.phase: (row.written_by, cap.why(row).by_autodiff) for row in cap.collectives}
    assert found == {"forward": ("user", False), "backward": ("autodiff", True)}
