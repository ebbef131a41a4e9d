"""Programs whose layers were stated before the grouping that meets them was changed: plain JAX.

``NAME`` names no scope, ``NAME_scoped`` does. Where a person would draw one of several things,
``layers`` holds a tuple of what is right.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from .common import ids, rms, s
from .newcomers import F32, Made, Part, around, both, grouped_attention, grouped_shapes, rotated
from .others import layer_norm, trained
from .parallel import mesh
from .vision import batch_norm, conv


def unet_levels(part: Part) -> Any:
    """A U-Net of four levels, two residual blocks in each, told what time it is."""

    def block(p: Any, x: jax.Array, t: jax.Array) -> jax.Array:
        h = conv(jax.nn.silu(x), p["a"]) + (t @ p["t"])[:, None, None]
        h = conv(jax.nn.silu(h), p["b"])
        return h + conv(x, p["skip"])

    def loss(params: Any, x: jax.Array, t: jax.Array, noise: jax.Array) -> jax.Array:
        t = jax.nn.silu(t[:, None] * params["t"])
        h, kept = conv(x, params["in"]), []
        for n, level in enumerate(params["down"]):
            with part(f"down_{n}"):
                for p in level["blocks"]:
                    h = block(p, h, t)
                    kept.append(h)
                h = conv(h, level["shrink"], 2)
        with part("middle"):
            h = block(params["middle"], h, t)
        for n, level in enumerate(params["up"]):
            with part(f"up_{n}"):
                h = jax.image.resize(h, (*kept[-1].shape[:3], h.shape[3]), "nearest")
                for p in level["blocks"]:
                    h = block(p, jnp.concatenate([h, kept.pop()], -1), t)
        return jnp.square(conv(h, params["out"]) - noise).mean()

    def shapes(a: int, b: int) -> Any:
        return {
            "a": F32(3, 3, a, b),
            "b": F32(3, 3, b, b),
            "t": F32(32, b),
            "skip": F32(1, 1, a, b),
        }

    widths = (16, 32, 48, 64)
    down, up, last = [], [], 16
    for w in widths:
        down.append({"blocks": [shapes(last, w), shapes(w, w)], "shrink": F32(3, 3, w, w)})
        last = w
    for w in reversed(widths):
        up.append({"blocks": [shapes(last + w, w), shapes(2 * w, w)]})
        last = w
    params = {"t": F32(32), "in": F32(3, 3, 3, 16), "down": down, "up": up, "out": F32(3, 3, 16, 3)}
    params["middle"] = shapes(64, 64)
    return trained(loss, params, F32(2, 32, 32, 3), F32(2), F32(2, 32, 32, 3))


def adversaries(part: Part) -> Any:
    """A GAN of two optimisers: four residual layers make, three judge."""

    def run(layers: Any, x: jax.Array) -> jax.Array:
        for k, p in enumerate(layers):
            with part(f"layer_{k}"):
                x = x + jax.nn.leaky_relu(x @ p["a"] + p["b"], 0.2) @ p["c"]
        return x

    def make(g: Any, z: jax.Array) -> jax.Array:
        with part("generator"):
            return jnp.tanh(run(g["layers"], z @ g["in"]) @ g["out"])

    def judge(d: Any, x: jax.Array) -> jax.Array:
        with part("discriminator"):
            return (run(d["layers"], x @ d["in"]) @ d["out"])[:, 0]

    ours, theirs = optax.adam(2e-4, b1=0.5), optax.rmsprop(1e-4)

    def step(g: Any, d: Any, sg: Any, sd: Any, z: jax.Array, real: jax.Array) -> Any:
        def loss_d(d: Any) -> jax.Array:
            fake = jax.lax.stop_gradient(make(g, z))
            return jax.nn.softplus(-judge(d, real)).mean() + jax.nn.softplus(judge(d, fake)).mean()

        grads = jax.grad(loss_d)(d)
        updates, sd = theirs.update(grads, sd)
        d = optax.apply_updates(d, updates)
        grads = jax.grad(lambda g: jax.nn.softplus(-judge(d, make(g, z))).mean())(g)
        updates, sg = ours.update(grads, sg)
        return optax.apply_updates(g, updates), d, sg, sd

    one = {"a": F32(128, 256), "b": F32(256), "c": F32(256, 128)}
    g = {"in": F32(64, 128), "layers": [one] * 4, "out": F32(128, 784)}
    d = {"in": F32(784, 128), "layers": [one] * 3, "out": F32(128, 1)}
    state = jax.eval_shape(ours.init, g), jax.eval_shape(theirs.init, d)
    return step, (g, d, *state, F32(64, 64), F32(64, 784))


def q_learning(part: Part) -> Any:
    """Deep Q-learning: a network of four hidden layers and the same one, older."""

    def values(params: Any, x: jax.Array) -> jax.Array:
        x = jax.nn.relu(x @ params["in"])
        for k, p in enumerate(params["hidden"]):
            with part(f"hidden_{k}"):
                x = jax.nn.relu(layer_norm(p["n"], x @ p["w"] + p["b"]))
        return x @ params["out"]

    def loss(params: Any, old: Any, seen: Any, act: Any, reward: Any, then: Any) -> jax.Array:
        with part("online"):
            q = jnp.take_along_axis(values(params, seen), act[:, None], 1)[:, 0]
        with part("target"):
            best = values(old, then).max(-1)
        return optax.huber_loss(q, jax.lax.stop_gradient(reward + 0.99 * best)).mean()

    tx = optax.adam(1e-4)

    def step(params: Any, old: Any, state: Any, *batch: Any) -> Any:
        value, grads = jax.value_and_grad(loss)(params, old, *batch)
        updates, state = tx.update(grads, state)
        params = optax.apply_updates(params, updates)
        return params, optax.incremental_update(params, old, 0.005), state, value

    one = {"w": F32(256, 256), "b": F32(256), "n": {"g": F32(256), "b": F32(256)}}
    params = {"in": F32(16, 256), "hidden": [one] * 4, "out": F32(256, 6)}
    batch = F32(64, 16), ids(64), F32(64), F32(64, 16)
    return step, (params, params, jax.eval_shape(tx.init, params), *batch)


def variational(part: Part) -> Any:
    """A VAE: four residual blocks of convolutions in, four out, noise between."""

    def block(p: Any, x: jax.Array) -> jax.Array:
        return x + conv(jax.nn.swish(conv(jax.nn.swish(x), p["a"])), p["b"])

    def loss(params: Any, x: jax.Array, noise: jax.Array) -> jax.Array:
        with part("encoder"):
            h = conv(x, params["in"], 4)
            for k, p in enumerate(params["encoder"]):
                with part(f"block_{k}"):
                    h = block(p, h)
            mean, spread = jnp.split(h.reshape(8, -1) @ params["latent"], 2, -1)
        with part("decoder"):
            z = mean + jnp.exp(spread / 2) * noise
            h = (z @ params["back"]).reshape(8, 8, 8, 32)
            for k, p in enumerate(params["decoder"]):
                with part(f"block_{k}"):
                    h = block(p, h)
            out = conv(jax.image.resize(h, (8, 32, 32, 32), "nearest"), params["out"])
        far = jnp.square(mean) + jnp.exp(spread) - 1 - spread
        return jnp.square(out - x).mean() + 1e-3 * far.sum(-1).mean()

    one = {"a": F32(3, 3, 32, 32), "b": F32(3, 3, 32, 32)}
    params = {"in": F32(4, 4, 3, 32), "encoder": [one] * 4, "latent": F32(2048, 64)}
    params |= {"back": F32(32, 2048), "decoder": [one] * 4, "out": F32(3, 3, 32, 3)}
    return trained(loss, params, F32(8, 32, 32, 3), F32(8, 32), tx=optax.adam(1e-3))


def drafted(part: Part) -> Any:
    """Speculative decoding: two small layers guess four words, six big ones check them at once."""

    def layer(p: Any, x: jax.Array, kept: jax.Array, at: Any) -> Any:
        h = rms(x, p["n1"])
        kept = jax.lax.dynamic_update_slice(kept, h @ p["kv"], (0, at, 0))
        k, v = jnp.split(kept, 2, -1)
        a = jax.nn.softmax(((h @ p["q"]) @ k.swapaxes(1, 2)).astype(jnp.float32), -1)
        x = x + a.astype(x.dtype) @ v @ p["o"]
        return x + jax.nn.silu(rms(x, p["n2"]) @ p["up"]) @ p["down"], kept

    def model(params: Any, cache: Any, tokens: jax.Array, at: Any) -> Any:
        x, new = params["embed"][tokens], []
        for k, (p, kept) in enumerate(zip(params["layers"], cache, strict=True)):
            with part(f"layer_{k}"):
                x, kept = layer(p, x, kept, at)
                new.append(kept)
        return (x @ params["embed"].T).astype(jnp.float32), new

    def step(small: Any, big: Any, cs: Any, cb: Any, last: jax.Array, at: jax.Array) -> Any:
        def guess(carry: Any, k: Any) -> Any:
            token, cache = carry
            with part("draft"):
                logits, cache = model(small, cache, token[:, None], at + k)
            token = logits[:, 0].argmax(-1).astype(jnp.int32)
            return (token, cache), (token, jax.nn.softmax(logits[:, 0]))

        (_, cs), (tokens, p) = jax.lax.scan(guess, (last, cs), jnp.arange(4))
        with part("verify"):
            logits, cb = model(big, cb, tokens.T, at)
        q = jax.nn.softmax(logits)
        pick = partial(jnp.take_along_axis, indices=tokens.T[..., None], axis=-1)
        fine = (pick(q) >= pick(p.swapaxes(0, 1)))[..., 0]
        return tokens, jnp.cumprod(fine, -1).sum(-1), cs, cb

    def shapes(d: int, n: int) -> Any:
        one = {
            "q": s(d, d),
            "kv": s(d, 2 * d),
            "o": s(d, d),
            "up": s(d, 2 * d),
            "down": s(2 * d, d),
        }
        return {"embed": s(2048, d), "layers": [one | {"n1": s(d), "n2": s(d)}] * n}

    caches = [s(2, 64, 256)] * 2, [s(2, 64, 512)] * 6
    return step, (shapes(128, 2), shapes(256, 6), *caches, ids(2), ids())


def rwkv(part: Part) -> Any:
    """Six layers of RWKV: each mixes over time in a loop, then channels."""

    def shift(x: jax.Array, mix: jax.Array) -> jax.Array:
        return x * mix + jnp.pad(x, ((0, 0), (1, 0), (0, 0)))[:, :-1] * (1 - mix)

    def time_mix(p: Any, x: jax.Array) -> jax.Array:
        k, v, r = (shift(x, p["m" + n]) @ p[n] for n in "kvr")

        def tick(carry: Any, kv: Any) -> Any:
            top, bottom = carry
            k, v = jnp.exp(jnp.clip(kv[0], -5, 5)), kv[1]
            out = (top + jnp.exp(p["first"]) * k * v) / (bottom + jnp.exp(p["first"]) * k)
            fade = jnp.exp(-jnp.exp(p["fade"]))
            return (fade * top + k * v, fade * bottom + k), out

        zero = jnp.zeros_like(k[:, 0]), jnp.ones_like(k[:, 0])
        _, out = jax.lax.scan(tick, zero, (k.swapaxes(0, 1), v.swapaxes(0, 1)))
        return (jax.nn.sigmoid(r) * out.swapaxes(0, 1)) @ p["o"]

    def channel_mix(p: Any, x: jax.Array) -> jax.Array:
        h = jnp.square(jax.nn.relu(shift(x, p["mk"]) @ p["up"]))
        return jax.nn.sigmoid(shift(x, p["mr"]) @ p["gate"]) * (h @ p["down"])

    def loss(params: Any, tokens: jax.Array) -> jax.Array:
        x = params["embed"][tokens[:, :-1]]
        for k, p in enumerate(params["layers"]):
            with part(f"layer_{k}"):
                with part("time_mix"):
                    x = x + time_mix(p, layer_norm(p["n1"], x))
                with part("channel_mix"):
                    x = x + channel_mix(p, layer_norm(p["n2"], x))
        logits = x @ params["head"]
        return optax.softmax_cross_entropy_with_integer_labels(logits, tokens[:, 1:]).mean()

    norm = {"g": F32(128), "b": F32(128)}
    one = {n: F32(128, 128) for n in ("k", "v", "r", "o", "gate")} | {"n1": norm, "n2": norm}
    one |= {n: F32(128) for n in ("mk", "mv", "mr", "first", "fade")}
    one |= {"up": F32(128, 512), "down": F32(512, 128)}
    params = {"embed": F32(1000, 128), "layers": [one] * 6, "head": F32(128, 1000)}
    return trained(loss, params, ids(4, 33))


def resnet50(part: Part) -> Any:
    """Stages of 3, 4, 6 and 3 bottlenecks; the first of each changes size and projects."""

    def bottleneck(p: Any, x: jax.Array, stride: int) -> jax.Array:
        h = jax.nn.relu(batch_norm(conv(x, p["a"]), p["sa"]))
        h = jax.nn.relu(batch_norm(conv(h, p["b"], stride), p["sb"]))
        h = batch_norm(conv(h, p["c"]), p["sc"])
        if "project" in p:
            x = batch_norm(conv(x, p["project"], stride), p["sp"])
        return jax.nn.relu(x + h)

    def loss(params: Any, images: jax.Array, labels: jax.Array) -> jax.Array:
        with part("stem"):
            x = jax.nn.relu(batch_norm(conv(images, params["stem"], 2), params["s0"]))
        for n, stage in enumerate(params["stages"]):
            for k, p in enumerate(stage):
                with part(f"stage{n + 1}_block{k}"):
                    x = bottleneck(p, x, 2 if k == 0 and n else 1)
        out = x.mean((1, 2)) @ params["head"]
        return optax.softmax_cross_entropy_with_integer_labels(out, labels).mean()

    def shapes(a: int, w: int, project: bool) -> Any:
        p = {"a": F32(1, 1, a, w), "b": F32(3, 3, w, w), "c": F32(1, 1, w, 4 * w)}
        p |= {"sa": F32(w), "sb": F32(w), "sc": F32(4 * w)}
        return p | ({"project": F32(1, 1, a, 4 * w), "sp": F32(4 * w)} if project else {})

    stages, last = [], 16
    for w, n in zip((16, 32, 64, 128), (3, 4, 6, 3), strict=True):
        stages.append([shapes(last, w, True)] + [shapes(4 * w, w, False)] * (n - 1))
        last = 4 * w
    params = {"stem": F32(7, 7, 3, 16), "s0": F32(16), "stages": stages, "head": F32(512, 100)}
    return trained(loss, params, F32(4, 64, 64, 3), ids(4), tx=optax.sgd(0.1, momentum=0.9))


def near_and_far(part: Part) -> Any:
    """Twelve layers as Gemma has them: five look near, one far; norms before and after."""

    def attention(p: Any, x: jax.Array, near: bool) -> jax.Array:
        q, k, v = (jnp.moveaxis((x @ p[n]).reshape(*x.shape[:2], -1, 64), 2, 1) for n in "qkv")
        q, k = rotated(q), rotated(jnp.repeat(k, 2, 1))
        scores = (q @ k.swapaxes(-1, -2)).astype(jnp.float32) / 8
        at = jnp.arange(x.shape[1])
        seen = at[:, None] >= at
        if near:
            seen &= at[:, None] - at < 16
        a = jax.nn.softmax(jnp.where(seen, scores, -1e9), -1).astype(x.dtype)
        return jnp.moveaxis(a @ jnp.repeat(v, 2, 1), 1, 2).reshape(*x.shape[:2], -1) @ p["o"]

    def loss(params: Any, tokens: jax.Array) -> jax.Array:
        x = params["embed"][tokens[:, :-1]] * 16
        for k, p in enumerate(params["layers"]):
            with part(f"layer_{k}"):
                h = attention(p, rms(x, p["n1"]), k % 6 != 5)
                x = x + rms(h, p["n2"])
                h = rms(x, p["n3"])
                h = (jax.nn.gelu(h @ p["gate"]) * (h @ p["up"])) @ p["down"]
                x = x + rms(h, p["n4"])
        logits = 30 * jnp.tanh(
            (rms(x, params["norm"]) @ params["embed"].T).astype(jnp.float32) / 30
        )
        return optax.softmax_cross_entropy_with_integer_labels(logits, tokens[:, 1:]).mean()

    one = grouped_shapes() | {"n3": s(256), "n4": s(256)}
    params = {"embed": s(2048, 256), "norm": s(256), "layers": [one] * 12}
    return trained(loss, params, ids(2, 65))


def dense_then_experts(part: Part) -> Any:
    """Two dense layers, then five of experts with a shared one, as DeepSeek has them."""

    def mlp(p: Any, x: jax.Array) -> jax.Array:
        return (jax.nn.silu(x @ p["gate"]) * (x @ p["up"])) @ p["down"]

    def experts(p: Any, x: jax.Array) -> jax.Array:
        weight, chosen = jax.lax.top_k(jax.nn.sigmoid((x @ p["router"]).astype(jnp.float32)), 2)
        gate = (jax.nn.one_hot(chosen, 8) * weight[..., None]).sum(-2).astype(x.dtype)
        h = jax.nn.silu(jnp.einsum("btd,edf->betf", x, p["eg"]))
        h = h * jnp.einsum("btd,edf->betf", x, p["eu"])
        return jnp.einsum("betf,efd,bte->btd", h, p["ed"], gate) + mlp(p, x)

    def attention(p: Any, x: jax.Array) -> jax.Array:
        return grouped_attention(p | {"k": p["small"] @ p["k"], "v": p["small"] @ p["v"]}, x)

    def loss(params: Any, tokens: jax.Array) -> jax.Array:
        x = params["embed"][tokens[:, :-1]]
        for k, p in enumerate(params["layers"]):
            with part(f"layer_{k}"):
                with part("attention"):
                    x = x + attention(p, rms(x, p["n1"]))
                with part("mlp" if k < 2 else "experts"):
                    x = x + (mlp if k < 2 else experts)(p, rms(x, p["n2"]))
        logits = (x @ params["embed"].T).astype(jnp.float32)
        return optax.softmax_cross_entropy_with_integer_labels(logits, tokens[:, 1:]).mean()

    dense = grouped_shapes() | {"small": s(256, 64), "k": s(64, 128), "v": s(64, 128)}
    moe = dense | {"router": s(256, 8), "eg": s(8, 256, 128), "eu": s(8, 256, 128)}
    moe |= {"ed": s(8, 128, 256), "gate": s(256, 128), "up": s(256, 128), "down": s(128, 256)}
    params = {"embed": s(2048, 256), "layers": [dense] * 2 + [moe] * 5}
    return trained(loss, params, ids(4, 65))


def assembly_line(part: Part) -> Any:
    """A pipeline of eight stages of three layers; four small batches go through in 11 ticks."""
    m = mesh("stage")
    to = [(i, (i + 1) % 8) for i in range(8)]

    def stage(params: Any, x: jax.Array) -> jax.Array:
        for k, p in enumerate(params):
            with part(f"layer_{k}"):
                x = x + jax.nn.gelu(rms(x, p["n"]) @ p["up"]) @ p["down"]
        return x

    def local(params: Any, x: jax.Array) -> jax.Array:
        params = jax.tree.map(lambda a: a[0], params)
        mine = jax.lax.axis_index("stage")

        def tick(carry: Any, n: Any) -> Any:
            x_in = jnp.where(mine == 0, x[jnp.minimum(n, 3)], carry)
            out = stage(params, x_in)
            return jax.lax.ppermute(out, "stage", to), out

        _, out = jax.lax.scan(tick, jnp.zeros_like(x[0]), jnp.arange(11))
        return jax.lax.psum(jnp.where(mine == 7, out[7:], 0), "stage")

    def loss(params: Any, x: jax.Array, y: jax.Array) -> jax.Array:
        run = jax.shard_map(
            local, in_specs=(P("stage"), P()), out_specs=P(), check_vma=False, **around(m)
        )
        return jnp.square(run(params, x) - y).mean()

    def put(spec: P, a: Any) -> Any:
        return jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=NamedSharding(m, spec))

    one = {"n": F32(8, 128), "up": F32(8, 128, 512), "down": F32(8, 512, 128)}
    step, (params, state) = trained(loss, [one] * 3, tx=optax.sgd(0.1))
    x = put(P(), F32(4, 16, 128))
    return step, (jax.tree.map(partial(put, P("stage")), params), state, x, x)


# name → (make, layers); of loops their trips; a tuple holds what a person might as well draw
MADE: Made = {
    "unet_levels": (unet_levels, (4, 4, 4, 4)),
    "adversaries": (adversaries, (4, 3)),
    "q_learning": (q_learning, (4, 4, 4)),
    "variational": (variational, (4, 4, 4, 4)),
    "drafted": (drafted, (4, 2, 6)),
    "rwkv": (rwkv, (6, 6)),
    "resnet50": (resnet50, (3, 4, 6, 3)),
    "near_and_far": (near_and_far, (12, 12)),
    "dense_then_experts": (dense_then_experts, (5, 5)),
    "assembly_line": (assembly_line, (11, 3)),
}
PROGRAMS = both(MADE)
