"""Programs for tests of searches: the two-layer MLP of the seed's log, of any size, and others."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import hloscope as hs
import jax
import jax.numpy as jnp

_OPTIONS = {f.name for f in fields(hs.SearchOptions)}


def search(fn: Any, *args: Any, **given: Any) -> Any:
    """``hs.search_shardings`` with its options beside its arguments."""
    options = hs.SearchOptions(**{k: v for k, v in given.items() if k in _OPTIONS})
    rest = {k: v for k, v in given.items() if k not in _OPTIONS}
    return hs.search_shardings(fn, *args, options=options, **rest)


def mlp(count: Any, w1: Any, w2: Any, x: Any, y: Any) -> Any:
    """One step of gradient descent on half the mean squared error."""

    def loss(w1: Any, w2: Any) -> Any:
        return jnp.sum((jax.nn.relu(x @ w1) @ w2 - y) ** 2) / y.size / 2

    g1, g2 = jax.grad(loss, (0, 1))(w1, w2)
    return count + 1, w1 - 0.01 * g1, w2 - 0.01 * g2


def mlp_args(shrink: int = 1) -> tuple[Any, ...]:
    """Shapes alone; 1 is the size of the log."""
    wide, rows = 8192 // shrink, 2048 // shrink

    def array(*shape: int) -> Any:
        return jax.ShapeDtypeStruct(shape, jnp.float32)

    step = jax.ShapeDtypeStruct((), jnp.int32)
    return step, array(wide, wide), array(wide, wide), array(rows, wide), array(rows, wide)


def faulty(cap: Any) -> float:
    """A cost function that aborts, sleeps or takes memory for three ways to shard w1."""
    import os
    import time

    w1 = cap.target.arguments[1].spec
    if w1[0] == ("x",):
        os.abort()
    if w1[1] == ("x",):
        time.sleep(1000)
    if w1[0] == ("z",):
        held = [bytearray(50_000_000) for _ in range(100)]
        time.sleep(1000 + len(held))
    return float(cap.cost("a100").roofline.total_seconds)


def tower(params: Any, x: Any) -> Any:
    """One step of gradient descent on residual layers between two projections."""

    def loss(params: Any) -> Any:
        h = x @ params["first"]
        for p in params["layers"]:
            h = h + jnp.maximum(h @ p["w1"], 0) @ p["w2"]
        return jnp.mean((h @ params["last"]) ** 2)

    return jax.tree.map(lambda p, g: p - 1e-3 * g, params, jax.grad(loss)(params))


def tower_args(layers: int, wide: int = 256) -> tuple[Any, Any]:
    """(params, x) as shapes."""

    def array(*shape: int) -> Any:
        return jax.ShapeDtypeStruct(shape, jnp.float32)

    one = {"w1": array(wide, 4 * wide), "w2": array(4 * wide, wide)}
    ends = {"first": array(2 * wide, wide), "last": array(wide, 8 * wide)}
    return {**ends, "layers": [dict(one) for _ in range(layers)]}, array(512, 2 * wide)


def gpt(params: Any, tokens: Any) -> Any:
    """One step of gradient descent on a decoder's cross entropy; embeddings are tied."""

    def norm(x: Any) -> Any:
        return x * jax.lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-6)

    def block(x: Any, p: Any) -> Any:
        n = norm(x)
        q, k, v = (n @ p[w] for w in ("wq", "wk", "wv"))
        q, k, v = (a.reshape(*a.shape[:2], -1, HEAD) for a in (q, k, v))
        scores = jax.nn.softmax(jnp.einsum("blhq,bmhq->bhlm", q, k) / HEAD**0.5)
        x = x + jnp.einsum("bhlm,bmhq->blhq", scores, v).reshape(*x.shape[:2], -1) @ p["wo"]
        return x + jax.nn.relu(norm(x) @ p["w1"]) @ p["w2"]

    def loss(params: Any) -> Any:
        x = params["embed"][tokens]
        for layer in params["layers"]:
            x = block(x, layer)
        logits = jax.nn.log_softmax(norm(x) @ params["embed"].T)
        return -jnp.mean(jnp.take_along_axis(logits[:, :-1], tokens[:, 1:, None], -1))

    return jax.tree.map(lambda p, g: p - 1e-3 * g, params, jax.grad(loss)(params))


HEAD = 64


def gpt_args(layers: int, embed: int = 1024, batch: int = 32, length: int = 512) -> tuple[Any, Any]:
    """(params, tokens) as shapes; the vocabulary is 32 times the width."""

    def array(*shape: int) -> Any:
        return jax.ShapeDtypeStruct(shape, jnp.float32)

    def layer() -> dict[str, Any]:
        square = {w: array(embed, embed) for w in ("wq", "wk", "wv", "wo")}
        return {**square, "w1": array(embed, 4 * embed), "w2": array(4 * embed, embed)}

    params = {"embed": array(32 * embed, embed), "layers": [layer() for _ in range(layers)]}
    return params, jax.ShapeDtypeStruct((batch, length), jnp.int32)


# Two ways for every group: enough for data, tensor and mixed parallelism, few enough to try all.
FEW: dict[str, list[tuple[Any, ...]]] = {
    "embed": [(), ("model",)],
    **{f"layers/*/{w}": [(), (None, "model")] for w in ("wq", "wk", "wv", "w1")},
    **{f"layers/*/{w}": [(), ("model",)] for w in ("wo", "w2")},
    "tokens": [(), ("data",)],
}
