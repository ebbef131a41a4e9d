"""Programs written after the grouping was done, with and without scopes of their own.

Their layers were stated before the tool was asked. ``NAME`` names no scope, ``NAME_scoped`` does.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import optax
from flax import nnx

from .common import ids, rms, s
from .others import trained

F32 = partial(s, dtype=jnp.float32)
Part = Callable[[str], Any]
Made = dict[str, tuple[Callable[[Part], Any], tuple[int, ...]]]


def _none(_: str) -> Any:
    return nullcontext()


def both(made: Made) -> dict[str, Any]:
    """Each program without scopes of its own, and with them."""
    found: dict[str, Any] = {}
    for name, (make, layers) in made.items():
        found[name] = partial(make, _none), layers
        found[f"{name}_scoped"] = partial(make, jax.named_scope), layers
    return found


def heads(x: jax.Array, n: int) -> jax.Array:
    b, t, d = x.shape
    return x.reshape(b, t, n, d // n).swapaxes(1, 2)


def whole(x: jax.Array) -> jax.Array:
    b, n, t, d = x.shape
    return x.swapaxes(1, 2).reshape(b, t, n * d)


def around(m: Any) -> Any:
    """The mesh to spread over, where the caller has set none."""
    return {} if jax.sharding.get_abstract_mesh().axis_names else {"mesh": m}


def rotated(x: jax.Array) -> jax.Array:
    t, d = x.shape[-2:]
    at = jnp.arange(t)[:, None] * 10000.0 ** (-jnp.arange(0, d, 2) / d)
    a, b = jnp.split(x, 2, -1)
    cos, sin = jnp.cos(at).astype(x.dtype), jnp.sin(at).astype(x.dtype)
    return jnp.concatenate([a * cos - b * sin, a * sin + b * cos], -1)


def grouped_attention(p: Any, x: jax.Array) -> jax.Array:
    q, k, v = heads(x @ p["q"], 4), heads(x @ p["k"], 2), heads(x @ p["v"], 2)
    k, v = jnp.repeat(rotated(k), 2, 1), jnp.repeat(v, 2, 1)
    scores = (rotated(q) @ k.swapaxes(-1, -2)).astype(jnp.float32) / 8
    past = jnp.tril(jnp.ones(scores.shape[-2:], bool))
    return whole(jax.nn.softmax(jnp.where(past, scores, -1e9), -1).astype(x.dtype) @ v) @ p["o"]


def grouped_shapes() -> Any:
    out = {"q": s(256, 256), "k": s(256, 128), "v": s(256, 128), "o": s(256, 256)}
    out |= {"gate": s(256, 640), "up": s(256, 640), "down": s(640, 256)}
    return out | {"n1": s(256), "n2": s(256)}


def orthogonal(m: jax.Array) -> jax.Array:
    """Five steps of Newton and Schulz: products in an optimiser."""
    x = m / (jnp.linalg.norm(m) + 1e-7)
    for _ in range(5):
        a = x @ x.T
        x = 3.44 * x + (-4.78 * a + 2.03 * a @ a) @ x
    return x


def muon(part: Part) -> Any:
    """Five grouped-query layers; momentum made orthogonal by products."""

    def layer(p: Any, x: jax.Array) -> jax.Array:
        with part("attention"):
            x = x + grouped_attention(p, rms(x, p["n1"]))
        with part("mlp"):
            h = rms(x, p["n2"])
            return x + (jax.nn.silu(h @ p["gate"]) * (h @ p["up"])) @ p["down"]

    def loss(params: Any, tokens: jax.Array) -> jax.Array:
        with part("embed"):
            x = params["embed"][tokens[:, :-1]]
        for k, p in enumerate(params["layers"]):
            with part(f"layer_{k}"):
                x = layer(p, x)
        with part("head"):
            logits = (x @ params["embed"].T).astype(jnp.float32)
        return optax.softmax_cross_entropy_with_integer_labels(logits, tokens[:, 1:]).mean()

    def update(w: jax.Array, m: jax.Array, g: jax.Array) -> Any:
        m = 0.95 * m + g
        return w - 0.02 * (orthogonal(m) if w.ndim == 2 else m), m

    def train_step(params: Any, momentum: Any, tokens: jax.Array) -> Any:
        value, grads = jax.value_and_grad(loss)(params, tokens)
        new = jax.tree.map(update, params, momentum, grads)
        pick = partial(jax.tree.map, is_leaf=lambda a: isinstance(a, tuple))
        return pick(lambda a: a[0], new), pick(lambda a: a[1], new), value

    params = {"embed": s(2048, 256), "layers": [grouped_shapes()] * 5}
    return train_step, (params, params, ids(4, 65))


def depths(part: Part) -> Any:
    """Six layers; every second one sends a quarter of the tokens through (mixture of depths)."""

    def block(p: Any, x: jax.Array) -> jax.Array:
        with part("attention"):
            x = x + grouped_attention(p, rms(x, p["n1"]))
        with part("mlp"):
            return x + (jax.nn.silu(rms(x, p["n2"]) @ p["up"])) @ p["down"]

    def routed(p: Any, x: jax.Array) -> jax.Array:
        with part("route"):
            weight, at = jax.lax.top_k((x @ p["router"])[..., 0].astype(jnp.float32), 16)
            few = jnp.take_along_axis(x, at[..., None], 1)
        few = (block(p, few) - few) * jax.nn.sigmoid(weight)[..., None].astype(x.dtype)
        return jax.vmap(lambda a, i, b: a.at[i].add(b))(x, at, few)

    def loss(params: Any, tokens: jax.Array) -> jax.Array:
        x = params["embed"][tokens[:, :-1]]
        for k, p in enumerate(params["layers"]):
            with part(f"layer_{k}"):
                x = routed(p, x) if k % 2 else block(p, x)
        logits = (rms(x, params["norm"]) @ params["head"]).astype(jnp.float32)
        return optax.softmax_cross_entropy_with_integer_labels(logits, tokens[:, 1:]).mean()

    dense = grouped_shapes() | {"gate": s(1)}
    params = {"embed": s(2048, 256), "norm": s(256), "head": s(256, 2048)}
    params["layers"] = [dense, dense | {"router": s(256, 1)}] * 3
    return trained(loss, params, ids(4, 65))


def retention(part: Part) -> Any:
    """Five layers of gated linear attention, each a scan over chunks."""

    def layer(p: Any, x: jax.Array) -> jax.Array:
        h = rms(x, p["n1"])
        with part("retention"):
            q, k, v = (h @ p[n] for n in ("q", "k", "v"))
            b, t, d = q.shape
            q, k, v = (a.reshape(b, t // 16, 16, d).swapaxes(0, 1) for a in (q, k, v))
            fade = jnp.exp(-jnp.arange(16) / 16).astype(x.dtype)[:, None]

            def chunk(state: jax.Array, qkv: Any) -> Any:
                q, k, v = qkv
                inner = jnp.tril(q @ k.swapaxes(-1, -2)) @ v
                out = inner + fade * (q @ state)
                return 0.9 * state + (k * fade).swapaxes(-1, -2) @ v, out

            _, out = jax.lax.scan(chunk, jnp.zeros((b, d, d), x.dtype), (q, k, v))
            out = out.swapaxes(0, 1).reshape(b, t, d)
            x = x + (jax.nn.silu(h @ p["gate"]) * out) @ p["o"]
        with part("mlp"):
            return x + jax.nn.gelu(rms(x, p["n2"]) @ p["up"]) @ p["down"]

    def loss(params: Any, x: jax.Array, y: jax.Array) -> jax.Array:
        x = x @ params["in"]
        for k, p in enumerate(params["layers"]):
            with part(f"layer_{k}"):
                x = layer(p, x)
        return jnp.square((x @ params["out"]).astype(jnp.float32) - y).mean()

    one = {n: s(128, 128) for n in ("q", "k", "v", "gate", "o")} | {"n1": s(128), "n2": s(128)}
    one |= {"up": s(128, 512), "down": s(512, 128)}
    params = {"in": s(16, 128), "layers": [one] * 5, "out": s(128, 16)}
    return trained(loss, params, s(4, 64, 16), F32(4, 64, 16))


def transformer_diffusion(part: Part) -> Any:
    """Seven adaLN-Zero blocks that denoise patches; weights averaged along."""

    def block(p: Any, x: jax.Array, c: jax.Array) -> jax.Array:
        with part("modulation"):
            parts = jnp.split((jax.nn.silu(c) @ p["ada"])[:, None], 6, -1)
        with part("attention"):
            h = rms(x, p["n1"]) * (1 + parts[0]) + parts[1]
            q, k, v = (heads(h @ p[n], 4) for n in ("q", "k", "v"))
            a = jax.nn.softmax((q @ k.swapaxes(-1, -2)).astype(jnp.float32) / 8, -1)
            x = x + parts[2] * (whole(a.astype(x.dtype) @ v) @ p["o"])
        with part("mlp"):
            h = rms(x, p["n2"]) * (1 + parts[3]) + parts[4]
            return x + parts[5] * (jax.nn.gelu(h @ p["up"]) @ p["down"])

    def loss(params: Any, images: jax.Array, labels: jax.Array, noise: jax.Array) -> jax.Array:
        b = images.shape[0]
        with part("patchify"):
            t = jnp.linspace(0, 1, b)
            noisy = (1 - t[:, None, None]) * images + t[:, None, None] * noise
            x = noisy.astype(jnp.bfloat16) @ params["patch"] + params["places"]
        with part("condition"):
            wave = jnp.exp(-jnp.arange(64) / 8) * t[:, None] * 1000
            wave = jnp.concatenate([jnp.cos(wave), jnp.sin(wave)], -1).astype(jnp.bfloat16)
            c = jax.nn.silu(wave @ params["t1"]) @ params["t2"] + params["labels"][labels]
        for k, p in enumerate(params["blocks"]):
            with part(f"block_{k}"):
                x = block(p, x, c)
        with part("final"):
            out = (rms(x, params["norm"]) @ params["final"]).astype(jnp.float32)
        return jnp.square(out - (noise - images)).mean()

    tx = optax.adamw(1e-4)

    def step(params: Any, average: Any, state: Any, *batch: Any) -> Any:
        value, grads = jax.value_and_grad(loss)(params, *batch)
        updates, state = tx.update(grads, state, params)
        params = optax.apply_updates(params, updates)
        average = jax.tree.map(lambda a, p: 0.999 * a + 0.001 * p, average, params)
        return params, average, state, value

    one = {n: s(256, 256) for n in "qkvo"} | {"ada": s(256, 1536)}
    one |= {"up": s(256, 1024), "down": s(1024, 256), "n1": s(256), "n2": s(256)}
    params = {"patch": s(48, 256), "places": s(64, 256), "t1": s(128, 256), "t2": s(256, 256)}
    params |= {"labels": s(100, 256), "norm": s(256), "final": s(256, 48), "blocks": [one] * 7}
    batch = F32(8, 64, 48), ids(8), F32(8, 64, 48)
    return step, (params, params, jax.eval_shape(tx.init, params), *batch)


class Attention(nnx.Module):
    def __init__(self, d: int, rngs: nnx.Rngs) -> None:
        self.q, self.k, self.v, self.o = (
            nnx.Linear(d, d, use_bias=False, rngs=rngs) for _ in range(4)
        )

    def __call__(self, x: jax.Array, y: jax.Array, mask: Any = None) -> jax.Array:
        q, k, v = heads(self.q(x), 4), heads(self.k(y), 4), heads(self.v(y), 4)
        scores = q @ k.swapaxes(-1, -2)
        if mask is not None:
            scores = jnp.where(mask, scores, -1e9)
        return self.o(whole(jax.nn.softmax(scores, -1) @ v))


class Feed(nnx.Module):
    def __init__(self, d: int, rngs: nnx.Rngs) -> None:
        self.norm = nnx.RMSNorm(d, rngs=rngs)
        self.gate, self.up = (nnx.Linear(d, 2 * d, use_bias=False, rngs=rngs) for _ in range(2))
        self.down = nnx.Linear(2 * d, d, use_bias=False, rngs=rngs)

    def __call__(self, x: jax.Array) -> jax.Array:
        h = self.norm(x)
        return x + self.down(nnx.gelu(self.gate(h)) * self.up(h))


class EncoderLayer(nnx.Module):
    def __init__(self, d: int, rngs: nnx.Rngs) -> None:
        self.norm, self.attention = nnx.RMSNorm(d, rngs=rngs), Attention(d, rngs)
        self.feed = Feed(d, rngs)

    def __call__(self, x: jax.Array) -> jax.Array:
        h = self.norm(x)
        return self.feed(x + self.attention(h, h))


class DecoderLayer(nnx.Module):
    def __init__(self, d: int, rngs: nnx.Rngs) -> None:
        self.norm1, self.own = nnx.RMSNorm(d, rngs=rngs), Attention(d, rngs)
        self.norm2, self.cross = nnx.RMSNorm(d, rngs=rngs), Attention(d, rngs)
        self.feed = Feed(d, rngs)

    def __call__(self, x: jax.Array, y: jax.Array, mask: jax.Array) -> jax.Array:
        h = self.norm1(x)
        x = x + self.own(h, h, mask)
        return self.feed(x + self.cross(self.norm2(x), y))


class Translator(nnx.Module):
    def __init__(self, d: int, rngs: nnx.Rngs) -> None:
        self.embed = nnx.Embed(2048, d, rngs=rngs)
        self.encoder = nnx.List([EncoderLayer(d, rngs) for _ in range(5)])
        self.decoder = nnx.List([DecoderLayer(d, rngs) for _ in range(3)])

    def __call__(self, source: jax.Array, target: jax.Array) -> jax.Array:
        y = self.embed(source)
        for layer in self.encoder:
            y = layer(y)
        x, mask = self.embed(target), jnp.tril(jnp.ones((target.shape[1],) * 2, bool))
        for layer in self.decoder:
            x = layer(x, y, mask)
        return self.embed.attend(x)


def translator() -> Any:
    """T5 in NNX: five layers of an encoder, three of a decoder."""

    def make() -> Any:
        m = Translator(128, nnx.Rngs(0))
        return m, nnx.Optimizer(m, optax.adafactor(1e-3), wrt=nnx.Param)

    graph, state = nnx.split(nnx.eval_shape(make))

    def train_step(state: Any, source: jax.Array, target: jax.Array, labels: jax.Array) -> Any:
        model, optimizer = nnx.merge(graph, state)

        def loss(model: Any) -> jax.Array:
            logits = model(source, target)
            return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()

        value, grads = nnx.value_and_grad(loss)(model)
        optimizer.update(model, grads)
        return nnx.state((model, optimizer)), value

    return train_step, (state, ids(4, 48), ids(4, 32), ids(4, 32))


@jax.tree_util.register_dataclass
@dataclass
class Linear:
    w: Any
    b: Any

    def __call__(self, x: jax.Array) -> jax.Array:
        return x @ self.w + self.b


@jax.tree_util.register_dataclass
@dataclass
class Residual:
    first: Linear
    second: Linear
    scale: Any

    def __call__(self, x: jax.Array) -> jax.Array:
        return x + self.second(jax.nn.elu(self.first(x * self.scale)))


@jax.tree_util.register_dataclass
@dataclass
class Network:
    stem: Linear
    blocks: list[Residual]
    head: Linear

    def __call__(self, x: jax.Array) -> jax.Array:
        x = self.stem(x)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def modules(part: Part) -> Any:
    """Classes that are pytrees: eight residual blocks, an example at a time under vmap."""

    def loss(net: Any, x: jax.Array, y: jax.Array) -> jax.Array:
        def one(x: jax.Array) -> jax.Array:
            with part("network"):
                return net(x)

        return jnp.square(jax.vmap(one)(x) - y).mean()

    block = Residual(Linear(F32(96, 192), F32(192)), Linear(F32(192, 96), F32(96)), F32(96))
    net = Network(Linear(F32(10, 96), F32(96)), [block] * 8, Linear(F32(96, 3), F32(3)))
    return trained(loss, net, F32(32, 10), F32(32, 3), tx=optax.rmsprop(1e-3))


def coupling(part: Part) -> Any:
    """A normalizing flow: six coupling layers that take halves by turns."""

    def network(p: Any, x: jax.Array) -> Any:
        h = jax.nn.relu(x @ p["w1"] + p["b1"])
        h = jax.nn.relu(h @ p["w2"] + p["b2"])
        scale, shift = jnp.split(h @ p["w3"] + p["b3"], 2, -1)
        return jnp.tanh(scale), shift

    def loss(params: Any, x: jax.Array) -> jax.Array:
        a, b = jnp.split(x, 2, -1)
        total = 0.0
        for k, p in enumerate(params["flows"]):
            with part(f"flow_{k}"):
                scale, shift = network(p, a)
                a, b = b * jnp.exp(scale) + shift, a
                total = total + scale.sum(-1)
        return ((a**2 + b**2).sum(-1) / 2 - total).mean()

    one = {"w1": F32(32, 128), "b1": F32(128), "w2": F32(128, 128), "b2": F32(128)}
    one |= {"w3": F32(128, 64), "b3": F32(64)}
    return trained(loss, {"flows": [one] * 6}, F32(64, 64), tx=optax.adam(1e-3))


# name → (make, layers); of loops their trips
MADE: Made = {
    "muon": (muon, (5, 5)),
    "depths": (depths, (3, 3)),
    "retention": (retention, (5, 5)),
    "transformer_diffusion": (transformer_diffusion, (7, 7)),
    "modules": (modules, (8, 8)),
    "coupling": (coupling, (6, 6)),
}
PROGRAMS: dict[str, Any] = {"translator": (translator, (5, 5, 3, 3)), **both(MADE)}
