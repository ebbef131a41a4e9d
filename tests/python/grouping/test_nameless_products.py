"""Products that XLA left without a name: what a gradient multiplies is of the backward pass."""

from __future__ import annotations

from typing import Any

import flax.linen as nn
import hloscope as hs
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hloscope.analysis.base.labels.families import ID, families
from hloscope.analysis.base.phases.phases import OPTIMISER, phases
from hloscope.analysis.base.table import table
from hloscope.view.context import Context

IMAGES = jax.ShapeDtypeStruct((4, 16, 16, 32), jnp.float32)
BLOCKS = 4


class Block(nn.Module):
    norm_first: bool

    @nn.compact
    def __call__(self, x: Any) -> Any:
        if self.norm_first:
            return nn.Conv(32, (1, 1))(nn.relu(nn.GroupNorm(4)(x)))
        return nn.silu(nn.GroupNorm(4)(nn.Conv(32, (1, 1))(x)))


class Net(nn.Module):
    norm_first: bool = False

    @nn.compact
    def __call__(self, x: Any) -> Any:
        for n in range(BLOCKS):
            x = Block(self.norm_first, name=f"block_{n}")(x)
        return x


def conv(p: Any, x: Any) -> Any:
    y = jax.nn.relu(x * p["scale"])
    numbers = ("NHWC", "HWIO", "NHWC")
    return x + jax.lax.conv_general_dilated(y, p["w"], (1, 1), "SAME", dimension_numbers=numbers)


def network(params: Any, x: Any) -> Any:
    for p in params:
        x = conv(p, x)
    return x


def step(apply: Any) -> Any:
    def train_step(params: Any, x: Any) -> Any:
        grads = jax.grad(lambda p: jnp.mean(jax.nn.logsumexp(apply(p, x), -1)))(params)
        return jax.tree.map(lambda p, g: p - 0.1 * g, params, grads)

    return train_step


def compiled(of: str) -> Any:
    if of != "functions":
        net = Net(of == "norm first")
        params = jax.eval_shape(net.init, jax.random.key(0), IMAGES)
        text = hs.capture(step(net.apply), params, IMAGES, exact=False, provenance=False).text
    else:
        weight = jax.ShapeDtypeStruct((1, 1, 32, 32), jnp.float32)
        layer = {"w": weight, "scale": jax.ShapeDtypeStruct((32,), jnp.float32)}
        text = hs.capture(
            step(network), [layer] * BLOCKS, IMAGES, exact=False, provenance=False
        ).text
    return hs.read(text)


def products(module: Any) -> tuple[Any, Any]:
    """Rows of products, or of fusions and kernels that are one; which of them have no name."""
    t = table(module)
    caller, _ = t.caller()
    fusion = t.by_opcode(lambda o: o == "fusion", bool)
    inside = ((caller >= 0) & fusion[caller])[t.computation]
    rows = np.flatnonzero(np.isin(families(module), [ID["matmul"], ID["convolution"]]) & ~inside)
    return rows, np.array(["/" not in n for n in t.places], bool)[t.place][rows]


@pytest.mark.parametrize("of", ["modules", "functions"])
def test_they_are_in_no_forward_pass_and_no_optimizer(of: str) -> None:
    cap = compiled(of)
    rows, nameless = products(cap.module)
    assert nameless.any()
    assert not (phases(cap.module)[rows] == OPTIMISER).any()
    c = Context(cap.module, cap.target)
    passes = [_around(c, row) for row in rows.tolist()]
    early = [p for p in passes if any(label.startswith("forward") for label in p)]
    assert len(early) == BLOCKS
    assert len(passes) - len(early) >= 2 * BLOCKS - 1  # nobody learns the image


@pytest.mark.parametrize("of", ["modules", "norm first"])
def test_they_are_of_the_module_whose_weight_they_are_the_gradient_of(of: str) -> None:
    cap = compiled(of)
    c = Context(cap.module, cap.target)
    rows, _ = products(cap.module)
    for row in rows.tolist():
        around = _around(c, row)
        assert not any("GroupNorm" in label for label in around)
        assert any("block_" in label for label in around)


def _around(c: Context, row: int) -> list[str]:
    group, out = int(c.groups.group[row]), []
    while group > 0:
        out.append(c.group_labels[group])
        owner = int(c.groups.owner[group])
        group = int(c.groups.group[owner]) if owner >= 0 else int(c.groups.parent[group])
    return out


def gate(p: Any, x: Any) -> Any:
    return jax.nn.softmax(jnp.sin(x) @ p)


def select(parts: Any, weights: Any) -> Any:
    stacked = jnp.stack([gate(p, weights) for p in parts], -2)
    chosen = jnp.einsum("...v,...vh->...h", weights[..., : len(parts)], stacked)
    return jnp.sort(jnp.tanh(chosen) + jnp.cumsum(jnp.cos(chosen), 0), 0)


def test_code_beside_one_does_not_name_it() -> None:
    """XLA on CPU rewrites a product with two batch dimensions and keeps no line of it."""
    part = jax.ShapeDtypeStruct((32, 32), jnp.float32)
    x = jax.ShapeDtypeStruct((8, 16, 32), jnp.float32)
    text = hs.capture(select, [part] * 4, x, exact=False, provenance=False).text
    cap = hs.read(text)
    rows, nameless = products(cap.module)
    c = Context(cap.module, cap.target)
    (row,) = rows[nameless].tolist()
    label, *_ = _around(c, row)
    assert label.startswith("matmul · ")
