"""Pictures: ViT, ResNet, UNet and a diffusion step; only the UNet names scopes."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import optax

from .common import ids, s

F32 = partial(s, dtype=jnp.float32)


def norm(x: jax.Array, w: jax.Array) -> jax.Array:
    x = x - x.mean(-1, keepdims=True)
    return x * jax.lax.rsqrt(jnp.square(x).mean(-1, keepdims=True) + 1e-6) * w


def encoder(p: Any, x: jax.Array) -> jax.Array:
    h = norm(x, p["n1"])
    q, k, v = jnp.split(h @ p["qkv"], 3, -1)
    x = x + (jax.nn.softmax(q @ k.swapaxes(1, 2) / 16) @ v) @ p["out"]
    return x + jax.nn.gelu(norm(x, p["n2"]) @ p["up"]) @ p["down"]


def vit() -> Any:
    d = 192

    def logits(params: Any, images: jax.Array) -> jax.Array:
        b = images.shape[0]
        patches = images.reshape(b, 8, 8, 8, 8, 3).swapaxes(2, 3).reshape(b, 64, 192)
        x = patches @ params["patch"] + params["position"]
        for p in params["blocks"]:
            x = encoder(p, x)
        return x.mean(1) @ params["head"]

    def step(params: Any, state: Any, images: jax.Array, labels: jax.Array) -> Any:
        def loss(p: Any) -> jax.Array:
            out = logits(p, images)
            return optax.softmax_cross_entropy_with_integer_labels(out, labels).mean()

        value, grads = jax.value_and_grad(loss)(params)
        updates, state = tx.update(grads, state, params)
        return optax.apply_updates(params, updates), state, value

    one = {"n1": F32(d), "n2": F32(d), "qkv": F32(d, 3 * d), "out": F32(d, d)}
    one |= {"up": F32(d, 4 * d), "down": F32(4 * d, d)}
    params = {"patch": F32(192, d), "position": F32(64, d), "head": F32(d, 100)}
    params["blocks"] = [one] * 12
    tx = optax.adam(1e-3)
    return step, (params, jax.eval_shape(tx.init, params), F32(4, 64, 64, 3), ids(4))


def conv(x: jax.Array, w: jax.Array, stride: int = 1) -> jax.Array:
    return jax.lax.conv_general_dilated(
        x, w, (stride, stride), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )


def batch_norm(x: jax.Array, scale: jax.Array) -> jax.Array:
    mean = x.mean((0, 1, 2))
    return (x - mean) * jax.lax.rsqrt(jnp.square(x - mean).mean((0, 1, 2)) + 1e-5) * scale


def bottleneck(p: Any, x: jax.Array) -> jax.Array:
    h = jax.nn.relu(batch_norm(conv(x, p["a"]), p["sa"]))
    h = jax.nn.relu(batch_norm(conv(h, p["b"]), p["sb"]))
    return jax.nn.relu(x + batch_norm(conv(h, p["c"]), p["sc"]))


def resnet() -> Any:
    widths, counts = (32, 64, 128), (3, 4, 3)

    def step(params: Any, images: jax.Array, labels: jax.Array) -> Any:
        def loss(params: Any) -> jax.Array:
            x = conv(images, params["stem"], 2)
            for stage in params["stages"]:
                x = conv(x, stage["down"], 2)
                for p in stage["blocks"]:
                    x = bottleneck(p, x)
            out = x.mean((1, 2)) @ params["head"]
            return optax.softmax_cross_entropy_with_integer_labels(out, labels).mean()

        value, grads = jax.value_and_grad(loss)(params)
        return jax.tree.map(lambda p, g: p - 0.1 * g, params, grads), value

    stages, last = [], 16
    for w, n in zip(widths, counts, strict=True):
        one = {"a": F32(1, 1, w, w // 4), "b": F32(3, 3, w // 4, w // 4), "c": F32(1, 1, w // 4, w)}
        one |= {"sa": F32(w // 4), "sb": F32(w // 4), "sc": F32(w)}
        stages.append({"down": F32(3, 3, last, w), "blocks": [one] * n})
        last = w
    params = {"stem": F32(7, 7, 3, 16), "stages": stages, "head": F32(128, 10)}
    return step, (params, F32(4, 64, 64, 3), ids(4))


def unet(params: Any, x: jax.Array) -> jax.Array:
    kept = []
    for n, p in enumerate(params["down"]):
        with jax.named_scope(f"down_{n}"):
            x = jax.nn.silu(conv(jax.nn.silu(conv(x, p["a"])), p["b"]))
            kept.append(x)
            x = conv(x, p["pool"], 2)
    with jax.named_scope("middle"):
        x = jax.nn.silu(conv(x, params["middle"]))
    for n, (p, skip) in enumerate(zip(params["up"], reversed(kept), strict=True)):
        with jax.named_scope(f"up_{n}"):
            x = jax.image.resize(x, skip.shape[:3] + x.shape[3:], "nearest")
            x = jnp.concatenate([conv(x, p["grow"]), skip], -1)
            x = jax.nn.silu(conv(jax.nn.silu(conv(x, p["a"])), p["b"]))
    return conv(x, params["out"])


def unet_shapes() -> Any:
    down, up, last = [], [], 8
    for w in (16, 32, 64, 64):
        down.append({"a": F32(3, 3, last, w), "b": F32(3, 3, w, w), "pool": F32(3, 3, w, w)})
        last = w
    for w in (64, 64, 32, 16):
        p = {"grow": F32(1, 1, last, w), "a": F32(3, 3, 2 * w, w), "b": F32(3, 3, w, w)}
        up.append(p)
        last = w
    return {"down": down, "middle": F32(3, 3, 64, 64), "up": up, "out": F32(1, 1, 16, 8)}


def unet_train() -> Any:
    def step(params: Any, x: jax.Array, y: jax.Array) -> Any:
        value, grads = jax.value_and_grad(lambda p: jnp.square(unet(p, x) - y).mean())(params)
        return jax.tree.map(lambda p, g: p - 0.1 * g, params, grads), value

    return step, (unet_shapes(), F32(2, 64, 64, 8), F32(2, 64, 64, 8))


def diffusion() -> Any:
    """Sampling: twenty steps of a loop around the UNet."""

    def sample(params: Any, noise: jax.Array) -> jax.Array:
        def body(n: jax.Array, x: jax.Array) -> jax.Array:
            t = 1.0 - n / 20
            return x - t * 0.05 * unet(params, x)

        return jax.lax.fori_loop(0, 20, body, noise)

    return sample, (unet_shapes(), F32(2, 64, 64, 8))


PROGRAMS: dict[str, Any] = {
    "vit": (vit, (12,)),
    "resnet": (resnet, (10,)),
    "unet": (unet_train, (4, 4)),
    "diffusion": (diffusion, (20,)),
}
