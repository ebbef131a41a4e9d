"""What the last phase of a program is called: an optimiser, if the program says so."""

from __future__ import annotations

from typing import Any

import hloscope as hs
import jax
import jax.numpy as jnp
import pytest


def leapfrog(force: Any, position: Any, momentum: Any) -> tuple[Any, Any]:
    momentum = momentum - 0.1 * force(position)
    return position + 0.1 * momentum, momentum


def energy(position: Any, data: Any) -> Any:
    return jnp.sum(jnp.tanh(data @ position) ** 2)


def misfit_loss(position: Any, data: Any) -> Any:
    return energy(position, data)


def misfit(position: Any, data: Any) -> Any:
    return energy(position, data)


def moved(function: Any) -> hs.Capture:
    """Four steps down the gradient of a function."""

    def run(position: Any, data: Any) -> Any:
        def trip(carried: Any, _: Any) -> Any:
            return leapfrog(lambda at: jax.grad(function)(at, data), *carried), None

        return jax.lax.scan(trip, (position, jnp.zeros_like(position)), None, length=4)[0]

    shape = jax.ShapeDtypeStruct((64, 64), jnp.float32)
    return hs.capture(jax.jit(run), shape, jax.ShapeDtypeStruct((512, 64), jnp.float32))


# both do the same, by data flow: only the person's names tell a sampler from training
@pytest.mark.parametrize(
    ("function", "word"), [(energy, "update"), (misfit_loss, "optimiser"), (misfit, "optimiser")]
)
def test_the_last_phase_has_the_name_that_the_program_gives_it(function: Any, word: str) -> None:
    cap = moved(function)
    said = {value.phase for value in cap.memory.values()}
    assert {"update", "optimiser"} & said == {word}
    assert "backward" in said


@pytest.mark.parametrize("returned", [False, True])
def test_a_model_that_is_not_returned_anew_is_not_changed(returned: bool) -> None:
    """Kernel regression with the tangent kernel of a network, and a step of its descent."""

    def net(params: Any, x: Any) -> Any:
        return jnp.tanh(x @ params["w"]).sum()

    def run(params: Any, x: Any, y: Any) -> Any:
        each = jax.vmap(jax.grad(net), (None, 0))(params, x)["w"].reshape(len(x), -1)
        alpha = jnp.tanh(each @ each.T) @ y
        if returned:
            return {"w": params["w"] - (alpha @ each).reshape(params["w"].shape)}
        return alpha

    shaped = jax.ShapeDtypeStruct
    given = {"w": shaped((64, 32), jnp.float32)}, shaped((16, 64), jnp.float32)
    cap = hs.capture(jax.jit(run), *given, shaped((16,), jnp.float32))
    said = {value.phase for value in cap.memory.values()}
    assert {"update", "optimiser"} & said == {"optimiser" if returned else "update"}
