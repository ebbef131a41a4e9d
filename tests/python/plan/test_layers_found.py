"""Without a name, policies are tried around the layers of programs as people write them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import hloscope as hs
import jax
import jax.numpy as jnp
import pytest

X = jax.ShapeDtypeStruct((8, 16), jnp.float32)
WS = jax.ShapeDtypeStruct((3, 16, 16), jnp.float32)


def norm(x: Any) -> Any:
    return x / jnp.sqrt((x * x).mean())


def attention(x: Any, w: Any) -> Any:
    return jax.nn.softmax(norm(x) @ w)


def layer(x: Any, w: Any) -> Any:
    return x + attention(x, w) @ jnp.tril(w.T)


def descend(loss: Any, params: Any) -> Any:
    def updated(p: Any, g: Any) -> Any:
        return p - 0.1 * g / (1e-6 + jnp.abs(g))

    return jax.tree.map(updated, params, jax.grad(loss)(params))


def unrolled(ws: Any, x: Any) -> Any:
    def loss(ws: Any) -> Any:
        y = x
        for n in range(3):
            y = layer(y, ws[n])
        return norm(y).sum()

    return descend(loss, ws)


def scanned(ws: Any, x: Any) -> Any:
    def loss(ws: Any) -> Any:
        return norm(jax.lax.scan(lambda y, w: (layer(y, w), None), x, ws)[0]).sum()

    return descend(loss, ws)


def accumulated(ws: Any, x: Any) -> Any:
    """The loop around the derivative is of microbatches: what it calls is no layer for that."""

    def loss(ws: Any, part: Any) -> Any:
        return norm(jax.lax.scan(lambda y, w: (layer(y, w), None), part, ws)[0]).sum()

    def add(total: Any, part: Any) -> Any:
        return total + jax.grad(loss)(ws, part), None

    return ws - jax.lax.scan(add, jnp.zeros_like(ws), x.reshape(2, 4, 16))[0]


def nnx_model() -> tuple[Any, tuple[Any, ...]]:
    nnx = pytest.importorskip("flax.nnx", reason="flax is not installed")

    class Block(nnx.Module):  # type: ignore[misc]
        def __init__(self, rngs: Any) -> None:
            self.inner = nnx.Linear(16, 16, rngs=rngs)

        def __call__(self, x: Any) -> Any:
            return x + nnx.gelu(self.inner(x))

    class Model(nnx.Module):  # type: ignore[misc]
        def __init__(self, rngs: Any) -> None:
            self.blocks = nnx.List([Block(rngs) for _ in range(3)])

        def __call__(self, x: Any) -> Any:
            for block in self.blocks:
                x = block(x)
            return x

    graph, state = nnx.split(nnx.eval_shape(lambda: Model(nnx.Rngs(0))))

    def step(state: Any, x: Any) -> Any:
        model = nnx.merge(graph, state)
        grads = nnx.grad(lambda m: (m(x) ** 2).sum())(model)
        return jax.tree.map(lambda p, g: p - g, state, nnx.state(grads))

    return step, (state, X)


def linen_model() -> tuple[Any, tuple[Any, ...]]:
    nn = pytest.importorskip("flax.linen", reason="flax is not installed")

    class Block(nn.Module):  # type: ignore[misc]
        @nn.compact
        def __call__(self, x: Any) -> Any:
            return x + nn.gelu(nn.Dense(16)(x))

    class Model(nn.Module):  # type: ignore[misc]
        @nn.compact
        def __call__(self, x: Any) -> Any:
            for _ in range(3):
                x = Block()(x)
            return x

    model = Model()

    def step(params: Any, x: Any) -> Any:
        return descend(lambda p: (model.apply(p, x) ** 2).sum(), params)

    return step, (jax.eval_shape(model.init, jax.random.key(0), X), X)


PROGRAMS: dict[str, tuple[Callable[[], tuple[Any, tuple[Any, ...]]], str]] = {
    "unrolled": (lambda: (unrolled, (WS, X)), "layer"),
    "scanned": (lambda: (scanned, (WS, X)), "layer"),
    "accumulated": (lambda: (accumulated, (WS, X)), "layer"),
    "nnx": (nnx_model, "nnx_model.Block.__call__"),
    "linen": (linen_model, "linen_model.Block.__call__"),
}


@pytest.mark.parametrize("program", PROGRAMS)
def test_policies_are_tried_around_the_layers(program: str) -> None:
    make, name = PROGRAMS[program]
    step, args = make()
    cap = hs.capture(step, *args, hardware="tpu-v5e")
    found = cap.remat_options(options=hs.ProofOptions(progress=lambda now: now.done < 1))
    assert found.title == f"Policies of {name}"
    assert found.code("nothing saved").splitlines()[0].startswith(("@jax.ch", "@functools.partial"))


def test_checkpoints_that_there_are_come_first() -> None:
    def step(ws: Any, x: Any) -> Any:
        body = jax.checkpoint(lambda y, w: (layer(y, w), None))
        return descend(lambda ws: jax.lax.scan(body, x, ws)[0].sum(), ws)

    cap = hs.capture(step, WS, X, hardware="tpu-v5e")
    found = cap.remat_options(options=hs.ProofOptions(progress=lambda now: now.done < 1))
    assert found.title == "Policies of the checkpoints"


def test_without_layers_a_name_is_asked_for() -> None:
    """Inference, and a function whose derivative goes through everything once."""
    for step in (
        lambda ws, x: layer(layer(x, ws[0]), ws[1]),
        lambda ws, x: descend(lambda ws: attention(x, ws[0]).sum(), ws),
    ):
        with pytest.raises(hs.CannotChange, match=r'name one: remat_options\("block"\)'):
            hs.capture(step, WS, X).remat_options()
