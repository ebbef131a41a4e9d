"""Tables, graphs, points and pictures: recommenders, graph attention, radiance fields, windows."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import optax
from flax import nnx

from .common import ids, s
from .others import NORM, layer_norm, trained
from .vision import conv

F32 = partial(s, dtype=jnp.float32)


def recommender() -> Any:
    """DLRM: eight tables, four layers on the numbers, five on what goes with what."""

    def mlp(layers: Any, x: jax.Array) -> jax.Array:
        for w, b in layers:
            x = jax.nn.relu(x @ w + b)
        return x

    def loss(params: Any, numbers: jax.Array, words: jax.Array, clicked: jax.Array) -> jax.Array:
        x = mlp(params["bottom"], numbers)
        found = [table[words[:, n]] for n, table in enumerate(params["tables"])]
        whole = jnp.stack([x, *found], 1)
        pairs = jnp.einsum("bnd,bmd->bnm", whole, whole).reshape(x.shape[0], -1)
        x = jnp.concatenate([x, pairs], 1) @ params["join"]
        logit = (mlp(params["top"], x) @ params["out"])[:, 0]
        return optax.sigmoid_binary_cross_entropy(logit, clicked).mean()

    params = {
        "tables": [F32(1000, 64)] * 8,
        "bottom": [(F32(64, 64), F32(64))] * 4,
        "join": F32(64 + 81, 256),
        "top": [(F32(256, 256), F32(256))] * 5,
        "out": F32(256, 1),
    }
    return trained(loss, params, F32(256, 64), ids(256, 8), F32(256), tx=optax.adagrad(0.01))


def graph_attention() -> Any:
    """Six NNX layers in which nodes attend to their neighbours."""

    class Layer(nnx.Module):
        def __init__(self, d: int, rngs: nnx.Rngs) -> None:
            self.lift = nnx.Linear(d, 4 * d, use_bias=False, rngs=rngs)
            self.here = nnx.Linear(d, 4, use_bias=False, rngs=rngs)
            self.there = nnx.Linear(d, 4, use_bias=False, rngs=rngs)
            self.out = nnx.Linear(4 * d, d, rngs=rngs)
            self.norm = nnx.LayerNorm(d, rngs=rngs)

        def __call__(self, x: jax.Array, source: jax.Array, target: jax.Array) -> jax.Array:
            h = self.norm(x)
            n = x.shape[0]
            score = nnx.leaky_relu(self.here(h)[source] + self.there(h)[target])
            weight = jnp.exp(score - jax.ops.segment_max(score, target, n)[target])
            weight /= jax.ops.segment_sum(weight, target, n)[target] + 1e-6
            sent = self.lift(h).reshape(n, 4, -1)[source] * weight[..., None]
            return x + self.out(jax.ops.segment_sum(sent, target, n).reshape(n, -1))

    class Net(nnx.Module):
        def __init__(self, rngs: nnx.Rngs) -> None:
            self.inp = nnx.Linear(32, 64, rngs=rngs)
            self.layers = nnx.List([Layer(64, rngs) for _ in range(6)])
            self.out = nnx.Linear(64, 10, rngs=rngs)

        def __call__(self, x: jax.Array, source: jax.Array, target: jax.Array) -> jax.Array:
            x = self.inp(x)
            for layer in self.layers:
                x = layer(x, source, target)
            return self.out(x)

    graph, params = nnx.split(nnx.eval_shape(lambda: Net(nnx.Rngs(0))))

    def loss(params: Any, x: jax.Array, source: Any, target: Any, y: jax.Array) -> jax.Array:
        out = nnx.merge(graph, params)(x, source, target)
        return optax.softmax_cross_entropy_with_integer_labels(out, y).mean()

    return trained(loss, params, F32(256, 32), ids(1024), ids(1024), ids(256))


def contrastive() -> Any:
    """Two towers of six layers by one function, with weights of their own."""

    def tower(params: Any, x: jax.Array) -> jax.Array:
        for p in params["layers"]:
            h = layer_norm(p["n1"], x)
            q, k, v = jnp.split(h @ p["qkv"], 3, -1)
            x = x + jax.nn.softmax(q @ k.swapaxes(1, 2) / 16, -1) @ v @ p["o"]
            x = x + jax.nn.gelu(layer_norm(p["n2"], x) @ p["up"]) @ p["down"]
        x = x.mean(1) @ params["out"]
        return x / jnp.linalg.norm(x.astype(jnp.float32), axis=-1, keepdims=True).astype(x.dtype)

    def loss(params: Any, image: jax.Array, text: jax.Array) -> jax.Array:
        a = tower(params["vision"], image @ params["patch"])
        b = tower(params["language"], params["words"][text])
        scores = (a @ b.T).astype(jnp.float32) * jnp.exp(params["scale"])
        match = optax.softmax_cross_entropy_with_integer_labels
        n = jnp.arange(scores.shape[0])
        return (match(scores, n) + match(scores.T, n)).mean() / 2

    one = {"qkv": s(256, 768), "o": s(256, 256), "up": s(256, 1024), "down": s(1024, 256)}
    one |= {"n1": NORM, "n2": NORM}
    params = {"patch": s(192, 256), "words": s(1000, 256), "scale": F32()}
    params |= {name: {"layers": [one] * 6, "out": s(256, 128)} for name in ("vision", "language")}
    return trained(loss, params, s(8, 64, 192), ids(8, 32))


def radiance() -> Any:
    """A field of light: eight equal layers, what was asked given again in the middle."""

    def field(params: Any, at: jax.Array) -> jax.Array:
        waves = jnp.concatenate([f(at * 2.0**n) for n in range(6) for f in (jnp.sin, jnp.cos)], -1)
        first = x = jax.nn.relu(waves @ params["in"])
        for n, p in enumerate(params["layers"]):
            x = jax.nn.relu(x @ p["w"] + p["b"])
            x = x + first if n == 3 else x
        return x @ params["out"]

    def loss(params: Any, at: jax.Array, step: jax.Array, seen: jax.Array) -> jax.Array:
        out = field(params, at)
        alpha = 1 - jnp.exp(-jax.nn.softplus(out[..., 3]) * step)
        left = jnp.cumprod(1 - alpha + 1e-10, -1)
        color = (jax.nn.sigmoid(out[..., :3]) * (alpha * left)[..., None]).sum(1)
        return jnp.square(color - seen).mean()

    params = {"in": F32(36, 128), "layers": [{"w": F32(128, 128), "b": F32(128)}] * 8}
    params["out"] = F32(128, 4)
    return trained(loss, params, F32(64, 32, 3), F32(64, 32), F32(64, 3))


def windows() -> Any:
    """Swin: stages of two, four and two layers with windows, merged in between."""

    def layer(p: Any, x: jax.Array, shift: int) -> jax.Array:
        b, h, w, d = x.shape
        y = jnp.roll(layer_norm(p["n1"], x), (-shift, -shift), (1, 2))
        y = y.reshape(b, h // 4, 4, w // 4, 4, d).swapaxes(2, 3).reshape(-1, 16, d)
        q, k, v = jnp.split(y @ p["qkv"], 3, -1)
        y = jax.nn.softmax(q @ k.swapaxes(1, 2) / 8, -1) @ v @ p["o"]
        y = y.reshape(b, h // 4, w // 4, 4, 4, d).swapaxes(2, 3).reshape(b, h, w, d)
        x = x + jnp.roll(y, (shift, shift), (1, 2))
        return x + jax.nn.gelu(layer_norm(p["n2"], x) @ p["up"]) @ p["down"]

    def loss(params: Any, x: jax.Array, y: jax.Array) -> jax.Array:
        x = conv(x, params["stem"], 4)
        for stage in params["stages"]:
            for n, p in enumerate(stage["layers"]):
                x = layer(p, x, 2 * (n % 2))
            b, h, w, d = x.shape
            x = x.reshape(b, h // 2, 2, w // 2, 2, d).swapaxes(2, 3).reshape(b, h // 2, w // 2, -1)
            x = x @ stage["merge"]
        out = x.mean((1, 2)) @ params["head"]
        return optax.softmax_cross_entropy_with_integer_labels(out, y).mean()

    stages = []
    for n, d in ((2, 32), (4, 64), (2, 128)):
        norm = {"g": F32(d), "b": F32(d)}
        one = {"qkv": F32(d, 3 * d), "o": F32(d, d), "up": F32(d, 4 * d), "down": F32(4 * d, d)}
        stages.append({"layers": [one | {"n1": norm, "n2": norm}] * n, "merge": F32(4 * d, 2 * d)})
    params = {"stem": F32(4, 4, 3, 32), "stages": stages, "head": F32(256, 10)}
    return trained(loss, params, F32(2, 64, 64, 3), ids(2))


def noise() -> Any:
    """Diffusion: a UNet of plain functions, with time in each block and attention inside."""

    def block(p: Any, x: jax.Array, t: jax.Array) -> jax.Array:
        h = conv(jax.nn.silu(x), p["a"]) + (t @ p["t"])[:, None, None]
        return x + conv(jax.nn.silu(h), p["b"])

    def attend(p: Any, x: jax.Array) -> jax.Array:
        b, h, w, d = x.shape
        q, k, v = jnp.split(x.reshape(b, h * w, d) @ p["qkv"], 3, -1)
        a = jax.nn.softmax(q @ k.swapaxes(1, 2) / d**0.5, -1) @ v @ p["o"]
        return x + a.reshape(b, h, w, d)

    def net(params: Any, x: jax.Array, t: jax.Array) -> jax.Array:
        f = t[:, None] * jnp.exp(-jnp.arange(32.0) / 4)
        t = jax.nn.silu(jnp.concatenate([jnp.sin(f), jnp.cos(f)], -1) @ params["time"])
        x, kept = conv(x, params["in"]), []
        for p in params["down"]:
            x = block(p["two"], block(p["one"], x, t), t)
            kept.append(x)
            x = conv(x, p["pool"], 2)
        x = block(params["end"], attend(params["attention"], block(params["mid"], x, t)), t)
        for p in params["up"]:
            skip = kept.pop()
            x = jax.image.resize(x, skip.shape, "nearest")
            x = conv(jnp.concatenate([x, skip], -1), p["join"])
            x = block(p["two"], block(p["one"], x, t), t)
        return conv(x, params["out"])

    def loss(params: Any, x: jax.Array, noise: jax.Array, t: jax.Array) -> jax.Array:
        a = jnp.cos(t)[:, None, None, None]
        return jnp.square(net(params, a * x + jnp.sqrt(1 - a * a) * noise, t) - noise).mean()

    w = 48
    one = {"a": F32(3, 3, w, w), "b": F32(3, 3, w, w), "t": F32(64, w)}
    params = {"in": F32(3, 3, 4, w), "out": F32(3, 3, w, 4), "time": F32(64, 64)}
    params |= {"mid": one, "end": one, "attention": {"qkv": F32(w, 3 * w), "o": F32(w, w)}}
    params["down"] = [{"one": one, "two": one, "pool": F32(3, 3, w, w)}] * 4
    params["up"] = [{"one": one, "two": one, "join": F32(1, 1, 2 * w, w)}] * 4
    return trained(loss, params, F32(2, 32, 32, 4), F32(2, 32, 32, 4), F32(2))


class Encoder(nnx.Module):
    def __init__(self, d: int, rngs: nnx.Rngs) -> None:
        self.norm1, self.norm2 = nnx.LayerNorm(d, rngs=rngs), nnx.LayerNorm(d, rngs=rngs)
        self.attention = nnx.MultiHeadAttention(4, d, decode=False, rngs=rngs)
        self.mlp = nnx.Sequential(
            nnx.Linear(d, 4 * d, rngs=rngs), nnx.gelu, nnx.Linear(4 * d, d, rngs=rngs)
        )

    def __call__(self, x: jax.Array) -> jax.Array:
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class ViT(nnx.Module):
    def __init__(self, rngs: nnx.Rngs) -> None:
        self.patches = nnx.Conv(3, 128, (8, 8), strides=(8, 8), rngs=rngs)
        self.position = nnx.Param(jnp.zeros((1, 64, 128)))
        self.encoder = nnx.Sequential(*[Encoder(128, rngs) for _ in range(10)])
        self.norm = nnx.LayerNorm(128, rngs=rngs)
        self.head = nnx.Linear(128, 100, rngs=rngs)

    def __call__(self, x: jax.Array) -> jax.Array:
        x = self.patches(x).reshape(x.shape[0], 64, 128) + self.position
        return self.head(self.norm(self.encoder(x)).mean(1))


def vit_nnx() -> Any:
    """Ten layers in an ``nnx.Sequential``."""

    def make() -> Any:
        model = ViT(nnx.Rngs(0))
        return model, nnx.Optimizer(model, optax.lion(1e-4), wrt=nnx.Param)

    graph, state = nnx.split(nnx.eval_shape(make))

    def step(state: Any, x: jax.Array, y: jax.Array) -> Any:
        model, optimizer = nnx.merge(graph, state)

        def loss(model: Any) -> jax.Array:
            return optax.softmax_cross_entropy_with_integer_labels(model(x), y).mean()

        value, grads = nnx.value_and_grad(loss)(model)
        optimizer.update(model, grads)
        return nnx.state((model, optimizer)), value

    return step, (state, F32(4, 64, 64, 3), ids(4))


PROGRAMS: dict[str, Any] = {
    "recommender": (recommender, (4, 5)),
    "graph_attention": (graph_attention, (6,)),
    "contrastive": (contrastive, (6, 6)),
    "radiance": (radiance, (8,)),
    "windows": (windows, (4,)),
    "noise": (noise, (4, 4)),
    "vit_nnx": (vit_nnx, (10,)),
}
