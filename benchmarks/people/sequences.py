"""Sequences: state spaces, recurrence both ways, speech, T5, local and global attention."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import optax
from flax import nnx

from .common import ids, rms, s, stacked
from .others import NORM, layer_norm, trained

D = 256


def cross_entropy(logits: jax.Array, labels: jax.Array) -> jax.Array:
    logits = logits.astype(jnp.float32)
    return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()


def selective(p: Any, x: jax.Array) -> jax.Array:
    """A diagonal state space whose step depends on the input."""
    gate, h = jnp.split(x @ p["in"], 2, -1)
    h = sum(jnp.roll(h, n, 1) * p["conv"][n] for n in range(4))
    h = jax.nn.silu(h)
    b, c, dt = jnp.split(h @ p["bcdt"], (8, 16), -1)
    dt = jax.nn.softplus(dt @ p["dt"])
    decay = jnp.exp(-dt[..., None] * jnp.exp(p["a"]))
    pushed = (dt * h)[..., None] * b[:, :, None]

    def combine(one: Any, two: Any) -> Any:
        return one[0] * two[0], two[0] * one[1] + two[1]

    _, state = jax.lax.associative_scan(combine, (decay, pushed), axis=1)
    y = jnp.einsum("bldn,bln->bld", state, c) + h
    return (y * jax.nn.silu(gate)) @ p["out"]


SELECTIVE = {"in": s(D, 1024), "conv": s(4, 512), "bcdt": s(512, 24), "dt": s(8, 512)}
SELECTIVE |= {"a": s(512, 8), "out": s(512, D), "norm": s(D)}


def mamba() -> Any:
    """Seven layers of a selective state space, unrolled."""

    def loss(params: Any, tokens: jax.Array, labels: jax.Array) -> jax.Array:
        x = params["embedding"][tokens]
        for p in params["mixers"]:
            x = x + selective(p, rms(x, p["norm"]))
        return cross_entropy(x @ params["embedding"].T, labels)

    params = {"embedding": s(2048, D), "mixers": [SELECTIVE] * 7}
    return trained(loss, params, ids(2, 64), ids(2, 64))


def attend(p: Any, x: jax.Array, y: jax.Array, mask: jax.Array | None = None) -> jax.Array:
    scores = ((x @ p["q"]) @ (y @ p["k"]).swapaxes(1, 2)).astype(jnp.float32) / 16
    scores = scores if mask is None else jnp.where(mask, scores, -1e9)
    return jax.nn.softmax(scores).astype(x.dtype) @ (y @ p["v"]) @ p["o"]


ATTENTION = {name: s(D, D) for name in "qkvo"}
FEED = {"up": s(D, 1024), "down": s(1024, D)}


def hybrid() -> Any:
    """Four scanned units: two state spaces, then attention."""

    def unit(x: jax.Array, p: Any) -> Any:
        x = x + selective(p["first"], rms(x, p["first"]["norm"]))
        x = x + selective(p["second"], rms(x, p["second"]["norm"]))
        x = x + attend(p["attention"], rms(x, p["n"]), rms(x, p["n"]))
        return x, None

    def loss(params: Any, tokens: jax.Array, labels: jax.Array) -> jax.Array:
        x, _ = jax.lax.scan(unit, params["embedding"][tokens], params["units"])
        return cross_entropy(x @ params["embedding"].T, labels)

    one = {"first": SELECTIVE, "second": SELECTIVE, "attention": ATTENTION, "n": s(D)}
    return trained(
        loss, {"embedding": s(2048, D), "units": stacked(one, 4)}, ids(2, 64), ids(2, 64)
    )


def t5() -> Any:
    """Five layers of an encoder, five of a decoder that looks at it: as many of each."""

    def feed(p: Any, x: jax.Array) -> jax.Array:
        return jax.nn.relu(x @ p["up"]) @ p["down"]

    def encode(p: Any, x: jax.Array) -> jax.Array:
        x = x + attend(p["self"], rms(x, p["n1"]), rms(x, p["n1"]))
        return x + feed(p, rms(x, p["n2"]))

    def decode(p: Any, x: jax.Array, memory: jax.Array) -> jax.Array:
        mask = jnp.tril(jnp.ones((x.shape[1], x.shape[1]), bool))
        x = x + attend(p["self"], rms(x, p["n1"]), rms(x, p["n1"]), mask)
        x = x + attend(p["cross"], rms(x, p["n3"]), memory)
        return x + feed(p, rms(x, p["n2"]))

    def loss(params: Any, source: jax.Array, target: jax.Array) -> jax.Array:
        memory = params["shared"][source]
        for p in params["encoder"]["layers"]:
            memory = encode(p, memory)
        memory = rms(memory, params["encoder"]["norm"])
        x = params["shared"][target[:, :-1]]
        for p in params["decoder"]["layers"]:
            x = decode(p, x, memory)
        x = rms(x, params["decoder"]["norm"])
        return cross_entropy(x @ params["shared"].T, target[:, 1:])

    one = {"self": ATTENTION, "n1": s(D), "n2": s(D), **FEED}
    two = one | {"cross": ATTENTION, "n3": s(D)}
    params = {
        "shared": s(2048, D),
        "encoder": {"layers": [one] * 5, "norm": s(D)},
        "decoder": {"layers": [two] * 5, "norm": s(D)},
    }
    return trained(loss, params, ids(4, 96), ids(4, 65), tx=optax.adafactor(1e-3))


def both_ways() -> Any:
    """Four layers of two LSTMs, one from each end, as NNX scans them."""

    class Layer(nnx.Module):
        def __init__(self, d: int, rngs: nnx.Rngs) -> None:
            self.there = nnx.RNN(nnx.OptimizedLSTMCell(d, d // 2, rngs=rngs))
            self.back = nnx.RNN(
                nnx.OptimizedLSTMCell(d, d // 2, rngs=rngs), reverse=True, keep_order=True
            )

        def __call__(self, x: jax.Array) -> jax.Array:
            return jnp.concatenate([self.there(x), self.back(x)], -1)

    class Tagger(nnx.Module):
        def __init__(self, rngs: nnx.Rngs) -> None:
            self.embed = nnx.Embed(2000, 128, rngs=rngs)
            self.layers = nnx.List([Layer(128, rngs) for _ in range(4)])
            self.tags = nnx.Linear(128, 32, rngs=rngs)

        def __call__(self, tokens: jax.Array) -> jax.Array:
            x = self.embed(tokens)
            for layer in self.layers:
                x = layer(x)
            return self.tags(x)

    graph, state = nnx.split(nnx.eval_shape(lambda: Tagger(nnx.Rngs(0))))

    def step(state: Any, tokens: jax.Array, labels: jax.Array) -> Any:
        model = nnx.merge(graph, state)
        value, grads = nnx.value_and_grad(lambda m: cross_entropy(m(tokens), labels))(model)
        params = nnx.state(model, nnx.Param)
        return jax.tree.map(lambda p, g: p - 0.1 * g, params, grads), value

    return step, (state, ids(8, 40), ids(8, 40))


def speech() -> Any:
    """Four strided convolutions, then eight layers, for a loss over frames."""

    def loss(params: Any, wave: jax.Array, labels: jax.Array) -> jax.Array:
        x = wave[..., None] @ params["lift"]
        for w in params["convolutions"]:
            x = jax.lax.conv_general_dilated(
                x, w, (2,), "SAME", dimension_numbers=("NWC", "WIO", "NWC")
            )
            x = jax.nn.gelu(x)
        for p in params["transformer"]:
            x = x + attend(p, layer_norm(p["n1"], x), layer_norm(p["n1"], x))
            x = x + jax.nn.gelu(layer_norm(p["n2"], x) @ p["up"]) @ p["down"]
        return cross_entropy(x @ params["letters"], labels)

    one = {**ATTENTION, **FEED, "n1": NORM, "n2": NORM}
    params = {"lift": s(1, D), "convolutions": [s(3, D, D)] * 4, "transformer": [one] * 8}
    params["letters"] = s(D, 32)
    return trained(loss, params, s(2, 1024), ids(2, 64))


def local_global() -> Any:
    """Twelve layers, every third of which sees everything; inference."""

    def run(params: Any, tokens: jax.Array) -> jax.Array:
        n = tokens.shape[1]
        near = jnp.abs(jnp.arange(n)[:, None] - jnp.arange(n)) < 32
        causal = jnp.tril(jnp.ones((n, n), bool))
        x = params["embed"][tokens] * 16
        for k, p in enumerate(params["layers"]):
            mask = causal if k % 3 == 2 else causal & near
            x = x + rms(attend(p, rms(x, p["n1"]), rms(x, p["n1"]), mask), p["n3"])
            x = x + rms((jax.nn.gelu(rms(x, p["n2"]) @ p["up"])) @ p["down"], p["n4"])
        return jax.nn.tanh(x @ params["embed"].T / 30) * 30

    one = {**ATTENTION, **FEED, **{f"n{k}": s(D) for k in range(1, 5)}}
    return run, ({"embed": s(2048, D), "layers": [one] * 12}, ids(2, 128))


PROGRAMS: dict[str, Any] = {
    "mamba": (mamba, (7,)),
    "hybrid": (hybrid, (4,)),
    "t5": (t5, (5, 5)),
    "both_ways": (both_ways, (4,)),
    "speech": (speech, (4, 8)),
    "local_global": (local_global, (12,)),
}
