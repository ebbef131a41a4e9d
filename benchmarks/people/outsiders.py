"""Programs whose layers were stated by somebody who knew nothing of the grouping: plain JAX.

``NAME`` names no scope, ``NAME_scoped`` does. Where a person would draw one of several things,
``layers`` holds a tuple of what is right.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from .common import ids, rms, s
from .newcomers import (
    F32,
    Made,
    Part,
    around,
    both,
    grouped_attention,
    grouped_shapes,
    heads,
    whole,
)
from .others import layer_norm, trained
from .parallel import mesh


def _entropy(logits: jax.Array, labels: jax.Array) -> jax.Array:
    wide = logits.astype(jnp.float32)
    return optax.softmax_cross_entropy_with_integer_labels(wide, labels).mean()


def griffin(part: Part) -> Any:
    """Griffin: nine layers, two gated linear recurrences to one that looks near; rematerialised."""

    def recurrence(p: Any, x: jax.Array) -> jax.Array:
        gate = jax.nn.gelu(x @ p["gate"])
        u = x @ p["in"]
        past = jnp.pad(u, ((0, 0), (3, 0), (0, 0)))
        u = sum(past[:, k : k + x.shape[1]] * p["conv"][k] for k in range(4))
        keep = jax.nn.sigmoid(u @ p["wa"]).astype(jnp.float32)
        fade = jnp.exp(-8 * jax.nn.softplus(p["a"]) * keep)
        add = jnp.sqrt(1 - fade**2) * (jax.nn.sigmoid(u @ p["wx"]) * u).astype(jnp.float32)

        def join(left: Any, right: Any) -> Any:
            return left[0] * right[0], left[1] * right[0] + right[1]

        _, h = jax.lax.associative_scan(join, (fade, add), axis=1)
        return (h.astype(x.dtype) * gate) @ p["out"]

    def layer(p: Any, x: jax.Array) -> jax.Array:
        h = rms(x, p["n1"])
        if "wa" in p:
            with part("recurrence"):
                x = x + recurrence(p, h)
        else:
            with part("attention"):
                x = x + grouped_attention(p, h)
        with part("mlp"):
            h = rms(x, p["n2"])
            return x + (jax.nn.gelu(h @ p["g"]) * (h @ p["u"])) @ p["d"]

    keep = jax.checkpoint_policies.dots_with_no_batch_dims_saveable

    def loss(params: Any, tokens: jax.Array) -> jax.Array:
        x = params["embed"][tokens[:, :-1]]
        for k, p in enumerate(params["layers"]):
            with part(f"layer_{k}"):
                x = jax.checkpoint(layer, policy=keep)(p, x)
        return _entropy(rms(x, params["norm"]) @ params["embed"].T, tokens[:, 1:])

    mlp = {"n1": s(256), "n2": s(256), "g": s(256, 512), "u": s(256, 512), "d": s(512, 256)}
    linear = mlp | {n: s(256, 256) for n in ("gate", "in", "wa", "wx", "out")}
    linear |= {"conv": s(4, 256), "a": F32(256)}
    look = mlp | {"q": s(256, 256), "k": s(256, 128), "v": s(256, 128), "o": s(256, 256)}
    params = {"embed": s(2048, 256), "norm": s(256), "layers": [linear, linear, look] * 3}
    return trained(loss, params, ids(4, 65))


def mamba2(part: Part) -> Any:
    """Mamba-2: six layers of state space duality, in chunks, with a loop over what chunks leave."""

    def duality(x: jax.Array, a: jax.Array, b: jax.Array, c: jax.Array) -> jax.Array:
        n, t, h, d = x.shape
        x, b, c = (z.reshape(n, t // 16, 16, *z.shape[2:]) for z in (x, b, c))
        total = jnp.cumsum(a.reshape(n, t // 16, 16, h).transpose(0, 3, 1, 2), -1)
        far = total[..., :, None] - total[..., None, :]
        fade = jnp.exp(jnp.where(jnp.tril(jnp.ones((16, 16), bool)), far, -jnp.inf))
        inside = jnp.einsum("bcln,bcsn,bhcls,bcshp->bclhp", c, b, fade, x)
        left = jnp.einsum("bcln,bhcl,bclhp->bchpn", b, jnp.exp(total[..., -1:] - total), x)

        def carry(state: jax.Array, at: Any) -> Any:
            new, decay = at
            return state * decay[..., None, None] + new, state

        each = left.swapaxes(0, 1), jnp.moveaxis(jnp.exp(total[..., -1]), 2, 0)
        _, states = jax.lax.scan(carry, jnp.zeros_like(left[:, 0]), each)
        between = jnp.einsum("bcln,cbhpn,bhcl->bclhp", c, states.astype(x.dtype), jnp.exp(total))
        return (inside + between).reshape(n, t, h, d)

    def layer(p: Any, x: jax.Array) -> jax.Array:
        h = rms(x, p["norm"])
        with part("in_proj"):
            z, u, b, c, dt = jnp.split(h @ p["in"], (256, 512, 544, 576), -1)
        with part("ssd"):
            dt = jax.nn.softplus(dt.astype(jnp.float32) + p["dt"])
            u = jax.nn.silu(u).reshape(*x.shape[:2], 4, 64) * dt[..., None].astype(x.dtype)
            y = duality(u, -jnp.exp(p["a"]) * dt, b, c).reshape(*x.shape[:2], 256)
        with part("out_proj"):
            return x + rms(y.astype(x.dtype) * jax.nn.silu(z), p["gated"]) @ p["out"]

    def loss(params: Any, tokens: jax.Array) -> jax.Array:
        x = params["embed"][tokens[:, :-1]]
        for k, p in enumerate(params["layers"]):
            with part(f"mamba_{k}"):
                x = layer(p, x)
        return _entropy(x @ params["embed"].T, tokens[:, 1:])

    one = {"norm": s(128), "in": s(128, 580), "dt": F32(4), "a": F32(4), "gated": s(256)}
    params = {"embed": s(1024, 128), "layers": [one | {"out": s(256, 128)}] * 6}
    return trained(loss, params, ids(2, 65), tx=optax.lion(1e-4))


def preferences(part: Part) -> Any:
    """DPO: a policy of four layers and an older copy; chosen answers beside rejected ones."""

    def logprobs(params: Any, tokens: jax.Array, asked: jax.Array) -> jax.Array:
        x = params["embed"][tokens[:, :-1]]
        for k, p in enumerate(params["layers"]):
            with part(f"layer_{k}"):
                x = x + grouped_attention(p, rms(x, p["n1"]))
                h = rms(x, p["n2"])
                x = x + (jax.nn.silu(h @ p["gate"]) * (h @ p["up"])) @ p["down"]
        logits = jax.nn.log_softmax((x @ params["embed"].T).astype(jnp.float32))
        each = jnp.take_along_axis(logits, tokens[:, 1:, None], -1)[..., 0]
        return (each * asked[:, 1:]).sum(-1)

    def loss(params: Any, old: Any, good: Any, bad: Any, asked: jax.Array) -> jax.Array:
        both = jnp.concatenate([good, bad])
        with part("policy"):
            ours = logprobs(params, both, asked)
        with part("reference"):
            theirs = jax.lax.stop_gradient(logprobs(old, both, asked))
        better, worse = jnp.split(ours - theirs, 2)
        return -jax.nn.log_sigmoid(0.1 * (better - worse)).mean()

    tx = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(5e-7))

    def step(params: Any, old: Any, state: Any, *batch: Any) -> Any:
        value, grads = jax.value_and_grad(loss)(params, old, *batch)
        updates, state = tx.update(grads, state, params)
        return optax.apply_updates(params, updates), state, value

    params = {"embed": s(2048, 256), "layers": [grouped_shapes()] * 4}
    state = jax.eval_shape(tx.init, params)
    return step, (params, params, state, ids(2, 49), ids(2, 49), F32(4, 49))


def paged_latents(part: Part) -> Any:
    """One word for many people at once: six layers of latent attention over a cache in pages."""

    def attention(p: Any, x: jax.Array, pages: jax.Array, table: Any, length: Any) -> Any:
        b = x.shape[0]
        new = rms(x @ p["down_kv"], p["norm_kv"])
        at = table[jnp.arange(b), length // 8], length % 8
        pages = pages.at[at].set(new)
        kept = pages[table].reshape(b, -1, new.shape[-1])
        q = (rms(x @ p["down_q"], p["norm_q"]) @ p["up_q"]).reshape(b, 4, 64)
        q = jnp.einsum("bhd,hcd->bhc", q, p["up_k"])
        scores = jnp.einsum("bhc,btc->bht", q, kept).astype(jnp.float32) / 8
        seen = jnp.arange(kept.shape[1]) <= length[:, None]
        a = jax.nn.softmax(jnp.where(seen[:, None], scores, -1e9), -1).astype(x.dtype)
        out = jnp.einsum("bht,btc,hcd->bhd", a, kept, p["up_v"])
        return out.reshape(b, 256) @ p["o"], pages

    def experts(p: Any, x: jax.Array) -> jax.Array:
        gate = jax.nn.sigmoid((x @ p["router"]).astype(jnp.float32))
        top, chosen = jax.lax.top_k(gate + p["bias"], 2)
        place = jnp.zeros_like(gate).at[jnp.arange(len(x))[:, None], chosen].set(top)
        h = jax.nn.silu(jnp.einsum("bd,edf->ebf", x, p["gate"]))
        h = h * jnp.einsum("bd,edf->ebf", x, p["up"])
        out = jnp.einsum("ebf,efd,be->bd", h, p["down"], place.astype(x.dtype))
        return out + jax.nn.silu(x @ p["shared_up"]) @ p["shared_down"]

    def step(params: Any, cache: Any, token: Any, table: Any, length: Any, key: Any) -> Any:
        x, new = params["embed"][token], []
        for k, (p, pages) in enumerate(zip(params["layers"], cache, strict=True)):
            with part(f"layer_{k}"):
                with part("attention"):
                    a, pages = attention(p, rms(x, p["n1"]), pages, table, length)
                    x = x + a
                with part("moe"):
                    x = x + experts(p, rms(x, p["n2"]))
                new.append(pages)
        with part("sample"):
            logits = (rms(x, params["norm"]) @ params["head"]).astype(jnp.float32) / 0.7
            top, at = jax.lax.top_k(logits, 50)
            keep = jnp.cumsum(jax.nn.softmax(top), -1) < 0.9
            pick = jax.random.categorical(key, jnp.where(keep, top, -jnp.inf))
            token = jnp.take_along_axis(at, pick[:, None], 1)[:, 0]
        return token, new, length + 1

    one = {"n1": s(256), "n2": s(256), "down_q": s(256, 96), "norm_q": s(96), "up_q": s(96, 256)}
    one |= {"down_kv": s(256, 64), "norm_kv": s(64), "up_k": s(4, 64, 64), "up_v": s(4, 64, 64)}
    one |= {"o": s(256, 256), "router": s(256, 8), "bias": F32(8), "gate": s(8, 256, 128)}
    one |= {"up": s(8, 256, 128), "down": s(8, 128, 256)}
    one |= {"shared_up": s(256, 128), "shared_down": s(128, 256)}
    params = {"embed": s(2048, 256), "norm": s(256), "head": s(256, 2048), "layers": [one] * 6}
    key = jax.eval_shape(lambda: jax.random.key(0))
    return step, (params, [s(32, 8, 64)] * 6, ids(8), ids(8, 4), ids(8), key)


def one_for_all(part: Part) -> Any:
    """ALBERT: the weights of one layer, used six times over; half the words are to be guessed."""

    def layer(p: Any, x: jax.Array) -> jax.Array:
        with part("attention"):
            q, k, v = (heads(x @ p[n], 4) for n in "qkv")
            a = jax.nn.softmax((q @ k.swapaxes(-1, -2)).astype(jnp.float32) / 8, -1)
            x = layer_norm(p["n1"], x + whole(a.astype(x.dtype) @ v) @ p["o"])
        with part("mlp"):
            return layer_norm(p["n2"], x + jax.nn.gelu(x @ p["up"]) @ p["down"])

    def loss(params: Any, tokens: jax.Array, labels: jax.Array) -> jax.Array:
        x = params["embed"][tokens] @ params["wide"]
        for k in range(6):
            with part(f"layer_{k}"):
                x = layer(params["layer"], x)
        return _entropy(x @ params["wide"].T @ params["embed"].T, labels)

    one = {n: s(256, 256) for n in "qkvo"} | {"up": s(256, 1024), "down": s(1024, 256)}
    one |= {n: {"g": s(256), "b": s(256)} for n in ("n1", "n2")}
    params = {"embed": s(2048, 64), "wide": s(64, 256), "layer": one}
    return trained(loss, params, ids(4, 64), ids(4, 64), tx=optax.lamb(1e-3))


def two_streams(part: Part) -> Any:
    """Flow matching as in Flux: four blocks of two streams, then six of one; words and patches."""

    def look(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
        q, k, v = (heads(a, 4) for a in (q, k, v))
        a = jax.nn.softmax((q @ k.swapaxes(-1, -2)).astype(jnp.float32) / 8, -1)
        return whole(a.astype(v.dtype) @ v)

    def double(p: Any, x: jax.Array, c: jax.Array, t: jax.Array) -> Any:
        qkv, after = [], []
        for side, h in (("image", x), ("text", c)):
            one = p[side]
            a, b, *rest = jnp.split((jax.nn.silu(t) @ one["mod"])[:, None], 6, -1)
            qkv.append(jnp.split((rms(h, one["n"]) * (1 + a) + b) @ one["qkv"], 3, -1))
            after.append(rest)
        out = look(*(jnp.concatenate([b, a], 1) for a, b in zip(*qkv, strict=True)))
        new = []
        for (side, h), part_, (g, a, b, last) in zip(
            (("image", x), ("text", c)), (out[:, 24:], out[:, :24]), after, strict=True
        ):
            one = p[side]
            h = h + g * (part_ @ one["o"])
            new.append(h + last * (jax.nn.gelu((h * (1 + a) + b) @ one["up"]) @ one["down"]))
        return new

    def single(p: Any, x: jax.Array, t: jax.Array) -> jax.Array:
        a, b, g = jnp.split((jax.nn.silu(t) @ p["mod"])[:, None], 3, -1)
        q, k, v, wide = jnp.split((rms(x, p["n"]) * (1 + a) + b) @ p["in"], (256, 512, 768), -1)
        return x + g * (jnp.concatenate([look(q, k, v), jax.nn.gelu(wide)], -1) @ p["out"])

    def loss(params: Any, image: Any, text: Any, noise: Any, t: jax.Array) -> jax.Array:
        noisy = (t[:, None, None] * noise + (1 - t[:, None, None]) * image).astype(jnp.bfloat16)
        x, c = noisy @ params["patch"], text @ params["text"]
        time = jnp.sin(t[:, None] * jnp.exp(jnp.arange(64) / 8)).astype(x.dtype) @ params["time"]
        for k, p in enumerate(params["double"]):
            with part(f"double_{k}"):
                x, c = double(p, x, c, time)
        x = jnp.concatenate([c, x], 1)
        for k, p in enumerate(params["single"]):
            with part(f"single_{k}"):
                x = single(p, x, time)
        out = (x[:, 24:] @ params["out"]).astype(jnp.float32)
        return jnp.square(out - (noise - image)).mean()

    side = {"n": s(256), "mod": s(256, 1536), "qkv": s(256, 768), "o": s(256, 256)}
    side |= {"up": s(256, 512), "down": s(512, 256)}
    single_ = {"n": s(256), "mod": s(256, 768), "in": s(256, 1280), "out": s(768, 256)}
    params = {"patch": s(64, 256), "text": s(128, 256), "time": s(64, 256), "out": s(256, 64)}
    params |= {"double": [{"image": side, "text": side}] * 4, "single": [single_] * 6}
    batch = F32(2, 64, 64), s(2, 24, 128), F32(2, 64, 64), F32(2)
    return trained(loss, params, *batch, tx=optax.adafactor(1e-4))


def rollouts(part: Part) -> Any:
    """GRPO: four layers write sixteen words in a loop, then learn from what they were worth."""

    def layer(p: Any, x: jax.Array, kept: Any, at: Any) -> Any:
        h = rms(x, p["n1"])
        kv = h @ p["kv"]
        if kept is not None:
            kv = kept = jax.lax.dynamic_update_slice(kept, kv, (0, at, 0))
        k, v = jnp.split(kv, 2, -1)
        scores = ((h @ p["q"]) @ k.swapaxes(1, 2)).astype(jnp.float32) / 16
        seen = jnp.arange(k.shape[1]) <= at + jnp.arange(x.shape[1])[:, None]
        a = jax.nn.softmax(jnp.where(seen, scores, -1e9), -1).astype(x.dtype)
        x = x + a @ v @ p["o"]
        return x + jax.nn.silu(rms(x, p["n2"]) @ p["up"]) @ p["down"], kept

    def model(params: Any, tokens: jax.Array, caches: Any, at: Any) -> Any:
        x, new = params["embed"][tokens], []
        for k, (p, kept) in enumerate(zip(params["layers"], caches, strict=True)):
            with part(f"layer_{k}"):
                x, kept = layer(p, x, kept, at)
                new.append(kept)
        return jax.nn.log_softmax((x @ params["embed"].T).astype(jnp.float32)), new

    tx = optax.adamw(1e-6)

    def step(params: Any, state: Any, first: jax.Array, key: jax.Array, wanted: Any) -> Any:
        def write(carry: Any, at: Any) -> Any:
            token, caches, key = carry
            key, mine = jax.random.split(key)
            logits, caches = model(params, token[:, None], caches, at)
            token = jax.random.categorical(mine, logits[:, 0]).astype(jnp.int32)
            return (token, caches, key), (token, logits[jnp.arange(8), 0, token])

        with part("rollout"):
            caches = [jnp.zeros((8, 16, 512), jnp.bfloat16)] * 4
            _, (words, old) = jax.lax.scan(write, (first, caches, key), jnp.arange(16))
        words, old = words.T, old.T
        reward = (words == wanted).mean(-1)
        better = (reward - reward.mean()) / (reward.std() + 1e-4)

        def loss(params: Any) -> jax.Array:
            asked = jnp.concatenate([first[:, None], words[:, :-1]], 1)
            logits, _ = model(params, asked, [None] * 4, 0)
            now = jnp.take_along_axis(logits, words[..., None], -1)[..., 0]
            ratio = jnp.exp(now - old)
            clipped = jnp.clip(ratio, 0.8, 1.2) * better[:, None]
            return -jnp.minimum(ratio * better[:, None], clipped).mean()

        with part("learn"):
            value, grads = jax.value_and_grad(loss)(params)
        updates, state = tx.update(grads, state, params)
        return optax.apply_updates(params, updates), state, value, reward.mean()

    one = {"q": s(256, 256), "kv": s(256, 512), "o": s(256, 256), "n1": s(256), "n2": s(256)}
    one |= {"up": s(256, 512), "down": s(512, 256)}
    params = {"embed": s(1024, 256), "layers": [one] * 4}
    key = jax.eval_shape(lambda: jax.random.key(0))
    return step, (params, jax.eval_shape(tx.init, params), ids(8), key, ids(8, 16))


def sequence_parallel(part: Part) -> Any:
    """Megatron with the sequence cut as well: four layers; gathered before, scattered after."""
    m = mesh("model")

    def gather(x: jax.Array) -> jax.Array:
        return jax.lax.all_gather(x, "model", axis=1, tiled=True)

    def scatter(x: jax.Array) -> jax.Array:
        return jax.lax.psum_scatter(x, "model", scatter_dimension=1, tiled=True)

    def local(params: Any, x: jax.Array) -> jax.Array:
        for k, p in enumerate(params):
            with part(f"layer_{k}"):
                h = gather(rms(x, p["n1"]))
                a = jax.nn.softmax((h @ p["q"]) @ (h @ p["k"]).swapaxes(1, 2) / 8, -1)
                x = x + scatter(a @ (h @ p["v"]) @ p["o"])
                h = gather(rms(x, p["n2"]))
                x = x + scatter(jax.nn.silu(h @ p["up"]) @ p["down"])
        return x

    column, row = P(None, "model"), P("model")
    spec = {n: column for n in ("q", "k", "v", "up")} | {"o": row, "down": row}
    spec |= {"n1": P(), "n2": P()}

    def loss(params: Any, x: jax.Array, y: jax.Array) -> jax.Array:
        cut = P(None, "model")
        run = jax.shard_map(
            local, in_specs=([spec] * 4, cut), out_specs=cut, check_vma=False, **around(m)
        )
        return jnp.square((run(params, x) - y).astype(jnp.float32)).mean()

    def put(a: Any, spec: P) -> Any:
        return jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=NamedSharding(m, spec))

    one = {n: s(512, 512) for n in "qkvo"} | {"up": s(512, 2048), "down": s(2048, 512)}
    one |= {"n1": s(512), "n2": s(512)}
    params = [{n: put(a, spec[n]) for n, a in one.items()}] * 4
    step, arguments = trained(loss, params, tx=optax.sgd(1e-2))
    return step, (*arguments, *(put(s(2, 512, 512), P(None, "model")),) * 2)


# name → (make, layers); of loops their trips; a tuple holds what a person might as well draw
MADE: Made = {
    "griffin": (griffin, ((9, 3), (9, 3))),
    "mamba2": (mamba2, (6, 6)),
    "preferences": (preferences, (4, 4, 4)),
    "paged_latents": (paged_latents, (6,)),
    "one_for_all": (one_for_all, (6, 6)),
    "two_streams": (two_streams, (4, 6, 4, 6)),
    "rollouts": (rollouts, (16, 4, 4, 4)),
    "sequence_parallel": (sequence_parallel, (4, 4)),
}
PROGRAMS = both(MADE)
