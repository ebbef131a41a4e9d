"""Programs that grouping was not made by: they say how it does on what nobody tried."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import optax
from flax import linen
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from .common import ids, s
from .parallel import mesh


def layer_norm(p: Any, x: jax.Array) -> jax.Array:
    wide = x.astype(jnp.float32)
    wide = (wide - wide.mean(-1, keepdims=True)) / jnp.sqrt(wide.var(-1, keepdims=True) + 1e-6)
    return (wide * p["g"] + p["b"]).astype(x.dtype)


def trained(loss: Any, params: Any, *batch: Any, tx: Any = None) -> Any:
    tx = tx or optax.adamw(1e-3)

    def step(params: Any, state: Any, *batch: Any) -> Any:
        value, grads = jax.value_and_grad(loss)(params, *batch)
        updates, state = tx.update(grads, state, params)
        return optax.apply_updates(params, updates), state, value

    return step, (params, jax.eval_shape(tx.init, params), *batch)


NORM = {"g": s(256), "b": s(256)}


def bert() -> Any:
    """Seven post-norm layers with one product for q, k and v; momentum."""

    def layer(p: Any, x: jax.Array, keep: jax.Array) -> jax.Array:
        b, n, d = x.shape
        q, k, v = (x @ p["qkv"] + p["bqkv"]).reshape(b, n, 3, 4, d // 4).transpose(2, 0, 3, 1, 4)
        a = jax.nn.softmax(jnp.where(keep[:, None, None], q @ k.swapaxes(-1, -2) / 8, -1e4), -1)
        x = layer_norm(p["n1"], x + (a @ v).swapaxes(1, 2).reshape(b, n, d) @ p["proj"])
        return layer_norm(p["n2"], x + jax.nn.gelu(x @ p["up"] + p["bup"]) @ p["down"])

    def loss(params: Any, tokens: jax.Array, keep: jax.Array, labels: jax.Array) -> jax.Array:
        x = layer_norm(params["n0"], params["tok"][tokens] + params["pos"])
        for p in params["layers"]:
            x = layer(p, x, keep)
        logits = (x @ params["tok"].T).astype(jnp.float32)
        return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()

    one = {"qkv": s(256, 768), "bqkv": s(768), "proj": s(256, 256), "up": s(256, 1024)}
    one |= {"bup": s(1024), "down": s(1024, 256), "n1": NORM, "n2": NORM}
    params = {"tok": s(2048, 256), "pos": s(128, 256), "n0": NORM, "layers": [one] * 7}
    keep = s(4, 128, dtype=jnp.bool_)
    return trained(loss, params, ids(4, 128), keep, ids(4, 128), tx=optax.sgd(0.1, momentum=0.9))


def mixer() -> Any:
    """Nine layers that mix tokens, then channels."""

    def loss(params: Any, x: jax.Array, y: jax.Array) -> jax.Array:
        x = x @ params["stem"]
        for block in params["mixers"]:
            h = layer_norm(block["n1"], x).swapaxes(1, 2)
            x = x + (jax.nn.gelu(h @ block["t1"]) @ block["t2"]).swapaxes(1, 2)
            x = x + jax.nn.gelu(layer_norm(block["n2"], x) @ block["c1"]) @ block["c2"]
        out = (x.mean(1) @ params["head"]).astype(jnp.float32)
        return optax.softmax_cross_entropy_with_integer_labels(out, y).mean()

    one = {"n1": NORM, "n2": NORM, "t1": s(64, 128), "t2": s(128, 64)}
    one |= {"c1": s(256, 1024), "c2": s(1024, 256)}
    params = {"stem": s(192, 256), "mixers": [one] * 9, "head": s(256, 100)}
    return trained(loss, params, s(8, 64, 192), ids(8))


def convnext() -> Any:
    """Five blocks with a convolution a channel."""

    def loss(params: Any, x: jax.Array, y: jax.Array) -> jax.Array:
        x = x @ params["stem"]
        for p in params["blocks"]:
            h = jax.lax.conv_general_dilated(
                x, p["depth"], (1, 1), "SAME", feature_group_count=256,
                dimension_numbers=("NHWC", "HWIO", "NHWC"),
            )  # fmt: skip
            x = x + jax.nn.gelu(layer_norm(p["n"], h) @ p["up"]) @ p["down"]
        out = (x.mean((1, 2)) @ params["head"]).astype(jnp.float32)
        return optax.softmax_cross_entropy_with_integer_labels(out, y).mean()

    one = {"depth": s(7, 7, 1, 256), "n": NORM, "up": s(256, 1024), "down": s(1024, 256)}
    params = {"stem": s(48, 256), "blocks": [one] * 5, "head": s(256, 100)}
    return trained(loss, params, s(4, 14, 14, 48), ids(4))


def two_towers() -> Any:
    """Pictures through six layers, texts through four, compared."""

    def layer(p: Any, x: jax.Array) -> jax.Array:
        h = layer_norm(p["n1"], x)
        a = jax.nn.softmax((h @ p["q"]) @ (h @ p["k"]).swapaxes(1, 2) / 16, -1)
        x = x + a @ (h @ p["v"]) @ p["o"]
        return x + jax.nn.relu(layer_norm(p["n2"], x) @ p["up"]) @ p["down"]

    def loss(params: Any, image: jax.Array, text: jax.Array) -> jax.Array:
        a, b = image @ params["patch"], params["words"][text]
        for p in params["image"]:
            a = layer(p, a)
        for p in params["text"]:
            b = layer(p, b)
        scores = (a.mean(1) @ b.mean(1).T).astype(jnp.float32)
        return optax.softmax_cross_entropy_with_integer_labels(scores, jnp.arange(8)).mean()

    one = {k: s(256, 256) for k in "qkvo"} | {"up": s(256, 1024), "down": s(1024, 256)}
    one |= {"n1": NORM, "n2": NORM}
    params = {"patch": s(192, 256), "words": s(1000, 256), "image": [one] * 6, "text": [one] * 4}
    return trained(loss, params, s(8, 64, 192), ids(8, 32))


def lora() -> Any:
    """Six frozen layers, gradients of their adapters alone."""

    def product(x: jax.Array, w: jax.Array, a: Any) -> jax.Array:
        return x @ w + (x @ a["a"]) @ a["b"]

    def loss(adapters: Any, base: Any, tokens: jax.Array, labels: jax.Array) -> jax.Array:
        x = base["tok"][tokens]
        for p, a in zip(base["layers"], adapters, strict=True):
            h = layer_norm(p["n1"], x)
            q, v = product(h, p["q"], a["q"]), product(h, p["v"], a["v"])
            x = x + jax.nn.softmax(q @ (h @ p["k"]).swapaxes(1, 2) / 16, -1) @ v @ p["o"]
            x = x + jax.nn.silu(layer_norm(p["n2"], x) @ p["up"]) @ p["down"]
        logits = (x @ base["tok"].T).astype(jnp.float32)
        return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()

    def step(adapters: Any, base: Any, tokens: jax.Array, labels: jax.Array) -> Any:
        value, grads = jax.value_and_grad(loss)(adapters, base, tokens, labels)
        return jax.tree.map(lambda p, g: p - 1e-3 * g, adapters, grads), value

    pair = {"a": s(256, 8), "b": s(8, 256)}
    one = {k: s(256, 256) for k in "qkvo"} | {"up": s(256, 1024), "down": s(1024, 256)}
    one |= {"n1": NORM, "n2": NORM}
    base = {"tok": s(2048, 256), "layers": [one] * 6}
    return step, ([{"q": pair, "v": pair}] * 6, base, ids(4, 128), ids(4, 128))


def generate() -> Any:
    """Sixteen tokens in a loop, each through six layers with a cache."""

    def run(params: Any, cache: Any, token: jax.Array) -> Any:
        def one(carry: Any, at: jax.Array) -> Any:
            token, cache = carry
            x, new = params["tok"][token], []
            for p, kept in zip(params["layers"], cache, strict=True):
                h = layer_norm(p["n1"], x)
                kept = jax.lax.dynamic_update_slice(kept, (h @ p["kv"])[:, None], (0, at, 0))
                k, v = jnp.split(kept, 2, -1)
                a = jax.nn.softmax(jnp.einsum("bd,bsd->bs", h @ p["q"], k) / 16, -1)
                x = x + jnp.einsum("bs,bsd->bd", a, v) @ p["o"]
                x = x + jax.nn.silu(layer_norm(p["n2"], x) @ p["up"]) @ p["down"]
                new.append(kept)
            token = jnp.argmax(x @ params["tok"].T, -1).astype(jnp.int32)
            return (token, new), token

        return jax.lax.scan(one, (token, cache), jnp.arange(16))

    one = {"q": s(256, 256), "kv": s(256, 512), "o": s(256, 256)}
    one |= {"up": s(256, 1024), "down": s(1024, 256), "n1": NORM, "n2": NORM}
    return run, ({"tok": s(2048, 256), "layers": [one] * 6}, [s(4, 64, 512)] * 6, ids(4))


def messages() -> Any:
    """A graph network: four rounds of messages along edges."""

    def loss(params: Any, nodes: Any, source: Any, target: Any, y: jax.Array) -> jax.Array:
        x = nodes @ params["in"]
        for p in params["rounds"]:
            sent = jax.nn.relu(jnp.concatenate([x[source], x[target]], -1) @ p["message"])
            got = jax.ops.segment_sum(sent, target, num_segments=512)
            x = layer_norm(p["n"], x + jax.nn.relu(got @ p["update"]) @ p["out"])
        return jnp.square((x @ params["head"]).astype(jnp.float32)[:, 0] - y).mean()

    one = {"message": s(512, 256), "update": s(256, 256), "out": s(256, 256), "n": NORM}
    params = {"in": s(32, 256), "rounds": [one] * 4, "head": s(256, 1)}
    y = s(512, dtype=jnp.float32)
    return trained(loss, params, s(512, 32), ids(2048), ids(2048), y)


def sharded_weights() -> Any:
    """Five layers over eight devices, weights and batch cut alike, recomputed backward."""
    m = mesh("model")

    def layer(p: Any, x: jax.Array) -> jax.Array:
        h = layer_norm(p["n1"], x)
        a = jax.nn.softmax((h @ p["q"]) @ (h @ p["k"]).swapaxes(1, 2) / 16, -1)
        x = x + a @ (h @ p["v"]) @ p["o"]
        return x + jax.nn.silu(layer_norm(p["n2"], x) @ p["up"]) @ p["down"]

    def loss(params: Any, tokens: jax.Array, labels: jax.Array) -> jax.Array:
        x = params["tok"][tokens]
        for p in params["layers"]:
            x = jax.checkpoint(layer)(p, x)
        logits = (x @ params["head"]).astype(jnp.float32)
        return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()

    one = {k: s(256, 256) for k in "qkvo"} | {"up": s(256, 1024), "down": s(1024, 256)}
    one |= {"n1": NORM, "n2": NORM}
    params = {"tok": s(2048, 256), "layers": [one] * 5, "head": s(256, 2048)}
    step, arguments = trained(loss, params, ids(8, 128), ids(8, 128))

    def cut(a: Any) -> Any:
        spec = P("model") if a.ndim and a.shape[0] % 8 == 0 else P()
        return jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=NamedSharding(m, spec))

    return step, jax.tree.map(cut, arguments)


class Layer(linen.Module):
    @linen.compact
    def __call__(self, x: jax.Array, _: Any) -> Any:
        h = linen.RMSNorm()(x)
        x = x + linen.MultiHeadDotProductAttention(4)(h, h)
        return x + linen.Dense(256)(linen.silu(linen.Dense(1024)(linen.RMSNorm()(x)))), None


class Scanned(linen.Module):
    @linen.compact
    def __call__(self, tokens: jax.Array) -> jax.Array:
        x = linen.Embed(2048, 256)(tokens)
        stack = linen.scan(
            linen.remat(Layer), variable_axes={"params": 0}, split_rngs={"params": True}, length=11
        )
        return linen.Dense(2048)(stack()(x, None)[0])


def linen_scanned() -> Any:
    """Eleven layers as Flax scans and recomputes them."""
    model = Scanned()
    params = jax.eval_shape(lambda: model.init(jax.random.key(0), jnp.zeros((4, 64), jnp.int32)))

    def loss(params: Any, tokens: jax.Array, labels: jax.Array) -> jax.Array:
        logits = model.apply(params, tokens)
        return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()

    return trained(loss, params, ids(4, 64), ids(4, 64))


def recurrent() -> Any:
    """Three recurrent layers, each a loop over time."""

    def loss(params: Any, x: jax.Array, y: jax.Array) -> jax.Array:
        for p in params["layers"]:

            def cell(h: jax.Array, x: jax.Array, p: Any = p) -> Any:
                z, r = jnp.split(jax.nn.sigmoid(x @ p["w"] + h @ p["u"]), 2, -1)
                h = (1 - z) * h + z * jnp.tanh(x @ p["wn"] + (r * h) @ p["un"])
                return h, h

            x = jax.lax.scan(cell, jnp.zeros((16, 256), x.dtype), x)[1]
        return jnp.square((x[-1] @ params["head"]).astype(jnp.float32) - y).mean()

    one = {"w": s(256, 512), "u": s(256, 512), "wn": s(256, 256), "un": s(256, 256)}
    params = {"layers": [one] * 3, "head": s(256, 8)}
    return trained(loss, params, s(24, 16, 256), s(16, 8, dtype=jnp.float32))


# name → (make, layers): compiled and judged like the others
PROGRAMS: dict[str, Any] = {
    "bert": (bert, (7,)),
    "mixer": (mixer, (9,)),
    "convnext": (convnext, (5,)),
    "two_towers": (two_towers, (6, 4)),
    "lora": (lora, (6,)),
    "generate": (generate, (6,)),
    "messages": (messages, (4,)),
    "sharded_weights": (sharded_weights, (5,)),
    "linen_scanned": (linen_scanned, (11,)),
    "recurrent": (recurrent, (3,)),
}
