"""Modules of a library that are called on several lines are several, named as the code does."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import equinox as eqx
import hloscope as hs
import jax
import jax.numpy as jnp
import pytest
from hloscope.view.context import Context


class Mixer(eqx.Module):
    a: eqx.nn.LayerNorm
    up: eqx.nn.Linear
    b: eqx.nn.LayerNorm
    out: eqx.nn.Linear

    def __init__(self, width: int, keys: Any) -> None:
        self.a, self.b = eqx.nn.LayerNorm(width), eqx.nn.LayerNorm(width)
        self.up = eqx.nn.Linear(width, width, key=keys[0])
        self.out = eqx.nn.Linear(width, width, key=keys[1])

    def __call__(self, x: Any) -> Any:
        h = jax.vmap(self.a)(jnp.sort(x, 0))
        h = jax.nn.softmax(jax.vmap(self.up)(h))
        h = jax.vmap(self.b)(jnp.cumsum(h, 0))
        return jax.nn.softmax(jax.vmap(self.out)(h))


class Tagger(eqx.Module):
    encoder: eqx.nn.Linear
    mixers: list[Mixer]
    decoder: eqx.nn.Linear

    def __init__(self, key: Any) -> None:
        keys = jax.random.split(key, 16)
        self.encoder = eqx.nn.Linear(8, 32, key=keys[0])
        self.mixers = [Mixer(32, keys[2 + 2 * k :]) for k in range(4)]
        self.decoder = eqx.nn.Linear(32, 8, key=keys[1])

    def __call__(self, x: Any) -> Any:
        h = jnp.sort(jax.nn.softmax(jax.vmap(self.encoder)(x)), 0)
        for mixer in self.mixers:
            h = h + mixer(h)
        return jnp.sin(jax.vmap(self.decoder)(jnp.cumsum(h, 0)))


def inside(function: Any, *arguments: Any) -> dict[str, set[str]]:
    """Label of a box → labels of the boxes in it."""
    cap = hs.capture(function, *arguments, exact=False, provenance=False)
    c = Context(cap.module, cap.target)
    out: dict[str, set[str]] = {}
    for group, name in enumerate(c.group_labels):
        around = int(c.groups.parent[group])
        if around >= 0:
            out.setdefault(c.group_labels[around], set()).add(name)
    return out


@pytest.fixture(scope="module")
def labels() -> dict[str, set[str]]:
    model = Tagger(jax.random.key(0))

    def step(model: Tagger, x: Any) -> Any:
        return model(x)

    return inside(step, model, jnp.ones((16, 8)))


def test_two_of_one_class_are_two_boxes(labels: dict[str, set[str]]) -> None:
    assert {"eqx.nn.Linear · encoder", "eqx.nn.Linear · decoder"} <= set().union(*labels.values())


def test_they_are_told_apart_in_each_layer(labels: dict[str, set[str]]) -> None:
    for k in range(4):
        assert {"eqx.nn.LayerNorm · a", "eqx.nn.LayerNorm · b"} <= labels[f"Mixer {k}"]


def test_a_loop_of_two_does_not_take_in_what_is_before_and_after_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    file = Path(__file__).parents[3] / "benchmarks/ordinary/esrgan_x4.py"
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None
    assert spec.loader is not None
    program = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(program)
    for name, size in {"NB": 2, "NF": 16, "GC": 8}.items():
        monkeypatch.setattr(program, name, size)
    weights, static = eqx.partition(
        eqx.filter_eval_shape(program.Generator, jax.random.key(0)),
        lambda x: isinstance(x, jax.ShapeDtypeStruct),
    )

    def model(weights: Any, x: Any) -> Any:
        y = eqx.combine(weights, static)(x)
        return jnp.sort(jnp.cumsum(jax.nn.softmax(jnp.sort(y, -1)), -1), 0)

    found = inside(model, weights, jax.ShapeDtypeStruct((2, 3, 8, 8), jnp.float32))["Generator"]
    calls = {label for label in found if label.startswith("eqx.nn.Conv")}
    assert calls == {
        f"eqx.nn.Conv{which}"
        for which in (" · first", " · trunk_conv", " 0", " 1", " · hr", " · last")
    }
    assert "block" in found
