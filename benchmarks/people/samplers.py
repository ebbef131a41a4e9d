"""Samplers, models of worlds, recurrent networks and steps in ``shard_map``; see ``newcomers``."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from .common import ids, rms, s, stacked
from .newcomers import F32, Made, Part, around, both, heads, whole
from .others import NORM, layer_norm, trained
from .parallel import mesh


def masked(part: Part) -> Any:
    """A masked autoencoder: five wide layers on a quarter of the patches, three narrow on all."""

    def layer(p: Any, x: jax.Array) -> jax.Array:
        h = layer_norm(p["n1"], x)
        q, k, v = (heads(h @ p[n], 4) for n in "qkv")
        x = x + whole(jax.nn.softmax(q @ k.swapaxes(-1, -2) / 8, -1) @ v) @ p["o"]
        return x + jax.nn.gelu(layer_norm(p["n2"], x) @ p["up"]) @ p["down"]

    def loss(params: Any, patches: jax.Array, order: jax.Array) -> jax.Array:
        seen = order[:, :16]
        with part("encoder"):
            x = jnp.take_along_axis(patches @ params["patch"], seen[..., None], 1)
            for k, p in enumerate(params["encoder"]):
                with part(f"layer_{k}"):
                    x = layer(p, x)
        with part("decoder"):
            x = x @ params["narrow"]
            full = jnp.broadcast_to(params["mask"], (x.shape[0], 64, 128))
            x = jax.vmap(lambda f, i, v: f.at[i].set(v))(full, seen, x) + params["places"]
            for k, p in enumerate(params["decoder"]):
                with part(f"layer_{k}"):
                    x = layer(p, x)
            out = (x @ params["pixels"]).astype(jnp.float32)
        return jnp.square(out - patches.astype(jnp.float32)).mean()

    def shapes(d: int) -> Any:
        out = {n: s(d, d) for n in "qkvo"} | {"up": s(d, 4 * d), "down": s(4 * d, d)}
        return out | {f"n{k}": {"g": s(d), "b": s(d)} for k in (1, 2)}

    params = {"patch": s(48, 256), "narrow": s(256, 128), "mask": s(128), "places": s(64, 128)}
    params |= {"encoder": [shapes(256)] * 5, "decoder": [shapes(128)] * 3, "pixels": s(128, 48)}
    return trained(loss, params, s(8, 64, 48), ids(8, 64))


def guided(part: Part) -> Any:
    """Twelve steps of guided denoising; in each a network of four blocks on two halves."""

    def network(params: Any, x: jax.Array, t: jax.Array, text: jax.Array) -> jax.Array:
        x = x @ params["in"] + t * params["time"]
        for k, p in enumerate(params["blocks"]):
            with part(f"block_{k}"):
                h = layer_norm(p["n1"], x)
                a = jax.nn.softmax((h @ p["q"]) @ (text @ p["k"]).swapaxes(-1, -2) / 16, -1)
                x = x + a @ (text @ p["v"]) @ p["o"]
                x = x + jax.nn.silu(layer_norm(p["n2"], x) @ p["up"]) @ p["down"]
        return x @ params["out"]

    def sample(params: Any, noise: jax.Array, text: jax.Array) -> jax.Array:
        both = jnp.concatenate([text, jnp.zeros_like(text)])

        def denoise(k: Any, x: jax.Array) -> jax.Array:
            t = 1 - k / 12
            out = network(params, jnp.concatenate([x, x]), t.astype(x.dtype), both)
            a, b = jnp.split(out, 2)
            return x - (b + 3 * (a - b)) / 12

        return jax.lax.fori_loop(0, 12, denoise, noise)

    one = {n: s(256, 256) for n in "qkvo"} | {"up": s(256, 512), "down": s(512, 256)}
    one |= {"n1": NORM, "n2": NORM}
    params = {"in": s(32, 256), "time": s(256), "blocks": [one] * 4, "out": s(256, 32)}
    return sample, (params, s(2, 64, 32), s(2, 16, 256))


def weather(part: Part) -> Any:
    """A graph network with edges: encode, six steps of processing, decode; three steps ahead."""

    def two(p: Any, x: jax.Array) -> jax.Array:
        return jax.nn.swish(x @ p["w1"]) @ p["w2"]

    def process(p: Any, nodes: jax.Array, edges: jax.Array, a: jax.Array, b: jax.Array) -> Any:
        edges = edges + two(p["edge"], jnp.concatenate([edges, nodes[a], nodes[b]], -1))
        got = jax.ops.segment_sum(edges, b, num_segments=nodes.shape[0])
        return nodes + two(p["node"], jnp.concatenate([nodes, got], -1)), edges

    def loss(params: Any, state: jax.Array, e: jax.Array, a: Any, b: Any, y: Any) -> jax.Array:
        with part("encode"):
            nodes, edges = two(params["encode"], state), e @ params["edges"]
        for k, p in enumerate(params["process"]):
            with part(f"process_{k}"):
                nodes, edges = process(p, nodes, edges, a, b)
        with part("decode"):
            return jnp.square(two(params["decode"], nodes) + state - y).mean()

    one = {
        "edge": {"w1": F32(192, 64), "w2": F32(64, 64)},
        "node": {"w1": F32(128, 64), "w2": F32(64, 64)},
    }
    params = {"encode": {"w1": F32(12, 64), "w2": F32(64, 64)}, "edges": F32(4, 64)}
    params |= {"process": [one] * 6, "decode": {"w1": F32(64, 64), "w2": F32(64, 12)}}
    return trained(loss, params, F32(256, 12), F32(1024, 4), ids(1024), ids(1024), F32(256, 12))


def dreamer(part: Part) -> Any:
    """A world model: pictures through three layers, a recurrence of 16 steps, three layers out."""

    def dense(layers: Any, x: jax.Array) -> jax.Array:
        for p in layers:
            x = jax.nn.silu(x @ p["w"] + p["b"])
        return x

    def loss(params: Any, seen: jax.Array, actions: jax.Array, rewards: jax.Array) -> jax.Array:
        with part("encoder"):
            z = dense(params["encoder"], seen @ params["in"])

        def tick(h: jax.Array, at: Any) -> Any:
            z, a = at
            x = jnp.concatenate([z, a], -1) @ params["join"]
            r, u = jnp.split(jax.nn.sigmoid(x @ params["wx"] + h @ params["wh"]), 2, -1)
            h = u * h + (1 - u) * jnp.tanh(x @ params["cx"] + r * (h @ params["ch"]))
            return h, h

        with part("dynamics"):
            _, h = jax.lax.scan(tick, jnp.zeros((8, 128)), (z, actions))
        with part("decoder"):
            out = dense(params["decoder"], h) @ params["out"]
        with part("reward"):
            reward = (h @ params["reward"])[..., 0]
        return jnp.square(out - seen).mean() + jnp.square(reward - rewards).mean()

    layer = {"w": F32(128, 128), "b": F32(128)}
    params = {"in": F32(64, 128), "encoder": [layer] * 3, "decoder": [layer] * 3}
    params |= {"join": F32(132, 128), "wx": F32(128, 256), "wh": F32(128, 256)}
    params |= {"cx": F32(128, 128), "ch": F32(128, 128), "out": F32(128, 64), "reward": F32(128, 1)}
    return trained(loss, params, F32(16, 8, 64), F32(16, 8, 4), F32(16, 8), tx=optax.adam(1e-3))


def seq2seq(part: Part) -> Any:
    """Two recurrent layers read, one that attends writes."""

    def cell(p: Any, carry: Any, x: jax.Array) -> Any:
        h, c = carry
        i, f, g, o = jnp.split(x @ p["x"] + h @ p["h"] + p["b"], 4, -1)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        h = jax.nn.sigmoid(o) * jnp.tanh(c)
        return (h, c), h

    def loss(params: Any, source: jax.Array, target: jax.Array) -> jax.Array:
        x = params["embed"][source].swapaxes(0, 1)
        zero = jnp.zeros((8, 128)), jnp.zeros((8, 128))
        for k, p in enumerate(params["reader"]):
            with part(f"reader_{k}"):
                _, x = jax.lax.scan(partial(cell, p), zero, x)

        def write(carry: Any, word: jax.Array) -> Any:
            carry, h = cell(params["writer"], carry, word)
            a = jax.nn.softmax(jnp.einsum("bd,tbd->bt", h @ params["query"], x), -1)
            seen = jnp.einsum("bt,tbd->bd", a, x)
            return carry, jnp.tanh(jnp.concatenate([h, seen], -1) @ params["join"])

        with part("writer"):
            words = params["embed"][target[:, :-1]].swapaxes(0, 1)
            _, out = jax.lax.scan(write, zero, words)
        logits = out @ params["embed"].T
        return optax.softmax_cross_entropy_with_integer_labels(logits, target[:, 1:].T).mean()

    lstm = {"x": F32(128, 512), "h": F32(128, 512), "b": F32(512)}
    params = {"embed": F32(1000, 128), "reader": [lstm] * 2, "writer": lstm}
    params |= {"query": F32(128, 128), "join": F32(256, 128)}
    return trained(loss, params, ids(8, 20), ids(8, 17))


def ensemble(part: Part) -> Any:
    """Five networks of four layers trained at once under vmap."""

    def loss(params: Any, x: jax.Array, y: jax.Array) -> jax.Array:
        for k, p in enumerate(params["layers"]):
            with part(f"layer_{k}"):
                x = jax.nn.relu(x @ p["w"] + p["b"])
        return jnp.square(x @ params["out"] - y).mean()

    tx = optax.adam(1e-3)

    def one(params: Any, state: Any, x: jax.Array, y: jax.Array) -> Any:
        value, grads = jax.value_and_grad(loss)(params, x, y)
        updates, state = tx.update(grads, state, params)
        return optax.apply_updates(params, updates), state, value

    def step(params: Any, state: Any, x: jax.Array, y: jax.Array) -> Any:
        return jax.vmap(one, in_axes=(0, 0, None, None))(params, state, x, y)

    params = {"layers": [{"w": F32(64, 64), "b": F32(64)}] * 4, "out": F32(64, 1)}
    params = stacked(params, 5)
    state = jax.eval_shape(jax.vmap(tx.init), params)
    return step, (params, state, F32(32, 64), F32(32, 1))


def beams(part: Part) -> Any:
    """A beam search of until 24 words, each through four layers with a cache."""

    def run(params: Any, cache: Any, first: jax.Array) -> Any:
        def go(carry: Any) -> Any:
            at, _tokens, scores, _ = carry
            return (at < 24) & (scores.max() < 0)

        def word(carry: Any) -> Any:
            at, tokens, scores, cache = carry
            x, new = params["embed"][tokens[:, at - 1]], []
            for k, (p, kept) in enumerate(zip(params["layers"], cache, strict=True)):
                with part(f"layer_{k}"):
                    h = layer_norm(p["n1"], x)
                    kept = jax.lax.dynamic_update_slice(kept, (h @ p["kv"])[:, None], (0, at, 0))
                    keys, values = jnp.split(kept, 2, -1)
                    a = jax.nn.softmax(jnp.einsum("bd,bsd->bs", h @ p["q"], keys) / 16, -1)
                    x = x + jnp.einsum("bs,bsd->bd", a, values) @ p["o"]
                    x = x + jax.nn.silu(layer_norm(p["n2"], x) @ p["up"]) @ p["down"]
                    new.append(kept)
            with part("choose"):
                logp = jax.nn.log_softmax((x @ params["embed"].T).astype(jnp.float32))
                best, chosen = jax.lax.top_k((scores[:, None] + logp).reshape(-1), 4)
                beam, token = chosen // 2048, chosen % 2048
                tokens = tokens[beam].at[:, at].set(token)
                new = [c[beam] for c in new]
            return at + 1, tokens, best, new

        scores = jnp.full(4, -1.0)
        return jax.lax.while_loop(go, word, (jnp.int32(1), first, scores, cache))[1]

    one = {"q": s(256, 256), "kv": s(256, 512), "o": s(256, 256)}
    one |= {"up": s(256, 1024), "down": s(1024, 256), "n1": NORM, "n2": NORM}
    return run, ({"embed": s(2048, 256), "layers": [one] * 4}, [s(4, 24, 512)] * 4, ids(4, 24))


def gathered(part: Part) -> Any:
    """Six scanned layers in shard_map: weights gathered in the loop, gradients scattered."""
    m = mesh("data")

    def layer(x: jax.Array, p: Any) -> Any:
        with part("gather"):
            p = jax.tree.map(lambda a: jax.lax.all_gather(a, "data", tiled=True), p)
        with part("attention"):
            h = rms(x, p["n1"])
            a = jax.nn.softmax((h @ p["q"]) @ (h @ p["k"]).swapaxes(1, 2) / 16, -1)
            x = x + a @ (h @ p["v"]) @ p["o"]
        with part("mlp"):
            return x + jax.nn.silu(rms(x, p["n2"]) @ p["up"]) @ p["down"], None

    def local(params: Any, x: jax.Array, y: jax.Array) -> Any:
        def loss(params: Any) -> jax.Array:
            h, _ = jax.lax.scan(jax.checkpoint(layer), x, params)
            return jnp.square((h - y).astype(jnp.float32)).mean()

        value, grads = jax.value_and_grad(loss)(params)
        new = jax.tree.map(lambda p, g: p - (1e-3 * g).astype(p.dtype), params, grads)
        return new, jax.lax.pmean(value, "data")

    def step(params: Any, x: jax.Array, y: jax.Array) -> Any:
        spec = jax.tree.map(lambda _: P(None, "data"), params)
        return jax.shard_map(
            local, in_specs=(spec, P("data"), P("data")), out_specs=(spec, P()),
            check_vma=False, **around(m),
        )(params, x, y)  # fmt: skip

    def cut(a: Any) -> Any:
        return jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=NamedSharding(m, P(None, "data")))

    one = {n: s(256, 256) for n in "qkvo"} | {"up": s(256, 1024), "down": s(1024, 256)}
    params = jax.tree.map(cut, stacked(one | {"n1": s(256), "n2": s(256)}, 6))
    x = jax.ShapeDtypeStruct((8, 64, 256), jnp.bfloat16, sharding=NamedSharding(m, P("data")))
    return step, (params, x, x)


def ring_trained(part: Part) -> Any:
    """Three layers of ring attention, trained: keys go round forward and backward."""
    m = mesh("ring")
    to = [(i, (i + 1) % 8) for i in range(8)]

    def attend(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
        def turn(carry: Any, _: Any) -> Any:
            top, total, k, v = carry
            e = jnp.exp((q @ k.swapaxes(-1, -2)).astype(jnp.float32) / 16)
            top, total = top + e @ v.astype(jnp.float32), total + e.sum(-1, keepdims=True)
            return (top, total, *(jax.lax.ppermute(a, "ring", to) for a in (k, v))), None

        start = jnp.zeros(q.shape, jnp.float32), jnp.zeros((*q.shape[:-1], 1), jnp.float32)
        (top, total, _, _), _ = jax.lax.scan(turn, (*start, k, v), None, length=8)
        return (top / total).astype(q.dtype)

    def local(params: Any, x: jax.Array) -> jax.Array:
        for n, p in enumerate(params):
            with part(f"layer_{n}"):
                x = x + attend(x @ p["q"], x @ p["k"], x @ p["v"]) @ p["o"]
                x = x + jax.nn.gelu(x @ p["up"]) @ p["down"]
        return x

    def loss(params: Any, x: jax.Array, y: jax.Array) -> jax.Array:
        spec = P(None, "ring")
        run = jax.shard_map(
            local, in_specs=(P(), spec), out_specs=spec, check_vma=False, **around(m)
        )
        return jnp.square((run(params, x) - y).astype(jnp.float32)).mean()

    def put(a: Any) -> Any:
        return jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=NamedSharding(m, P()))

    one = {n: s(256, 256) for n in "qkvo"} | {"up": s(256, 512), "down": s(512, 256)}
    step, arguments = trained(loss, [one] * 3, tx=optax.sgd(1e-2))
    x = jax.ShapeDtypeStruct(
        (2, 512, 256), jnp.bfloat16, sharding=NamedSharding(m, P(None, "ring"))
    )
    return step, (*jax.tree.map(put, arguments), x, x)


# name → (make, layers); of loops their trips
MADE: Made = {
    "masked": (masked, (5, 5, 3, 3)),
    "guided": (guided, (12, 4)),
    "weather": (weather, (6, 6)),
    "dreamer": (dreamer, (3, 3, 16, 16)),
    "seq2seq": (seq2seq, (2, 2, 16, 16)),
    "ensemble": (ensemble, (4,)),
    "beams": (beams, (4,)),
    "gathered": (gathered, (6, 6)),
    "ring_trained": (ring_trained, (3, 3)),
}
PROGRAMS = both(MADE)
