"""Language models without a library: scanned, unrolled, rematerialised, with experts, decoding."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import optax

from .common import ids, rms, s, stacked

D, HEADS, FF, VOCAB, SEQ, BATCH = 256, 4, 1024, 2048, 128, 4


def attention(p: Any, x: jax.Array) -> jax.Array:
    b, n, d = x.shape
    q, k, v = ((x @ p[name]).reshape(b, n, HEADS, -1) for name in ("wq", "wk", "wv"))
    scores = jnp.einsum("bqhk,bshk->bhqs", q, k).astype(jnp.float32) / (d // HEADS) ** 0.5
    mask = jnp.tril(jnp.ones((n, n), bool))
    weights = jax.nn.softmax(jnp.where(mask, scores, -1e9), -1).astype(x.dtype)
    return jnp.einsum("bhqs,bshk->bqhk", weights, v).reshape(b, n, d) @ p["wo"]


def mlp(p: Any, x: jax.Array) -> jax.Array:
    return (jax.nn.silu(x @ p["gate"]) * (x @ p["up"])) @ p["down"]


def block(p: Any, x: jax.Array) -> jax.Array:
    x = x + attention(p, rms(x, p["n1"]))
    return x + mlp(p, rms(x, p["n2"]))


def experts(p: Any, x: jax.Array) -> jax.Array:
    gates = jax.nn.softmax((x @ p["router"]).astype(jnp.float32)).astype(x.dtype)
    hidden = jax.nn.gelu(jnp.einsum("bnd,edf->benf", x, p["e1"]))
    return jnp.einsum("benf,efd,bne->bnd", hidden, p["e2"], gates)


def moe_block(p: Any, x: jax.Array) -> jax.Array:
    x = x + attention(p, rms(x, p["n1"]))
    return x + experts(p, rms(x, p["n2"]))


def layer_shapes(moe: bool = False) -> dict[str, Any]:
    square = {name: s(D, D) for name in ("wq", "wk", "wv", "wo")}
    norms = {"n1": s(D), "n2": s(D)}
    if moe:
        return square | norms | {"router": s(D, 4), "e1": s(4, D, FF), "e2": s(4, FF, D)}
    return square | norms | {"gate": s(D, FF), "up": s(D, FF), "down": s(FF, D)}


def forward(params: Any, tokens: jax.Array, blocks: Any) -> jax.Array:
    x = params["embed"][tokens]
    x = blocks(params["layers"], x)
    return rms(x, params["nf"]) @ params["head"]


def unrolled(layers: Any, x: jax.Array, one: Any = block) -> jax.Array:
    for p in layers:
        x = one(p, x)
    return x


def scanned(layers: Any, x: jax.Array, one: Any = block) -> jax.Array:
    return jax.lax.scan(lambda x, p: (one(p, x), None), x, layers)[0]


def loss_fn(params: Any, tokens: jax.Array, blocks: Any) -> jax.Array:
    logits = forward(params, tokens[:, :-1], blocks).astype(jnp.float32)
    return optax.softmax_cross_entropy_with_integer_labels(logits, tokens[:, 1:]).mean()


tx = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(3e-4, weight_decay=0.1))


def train_step(blocks: Any, params: Any, state: Any, tokens: jax.Array) -> Any:
    loss, grads = jax.value_and_grad(loss_fn)(params, tokens, blocks)
    updates, state = tx.update(grads, state, params)
    return optax.apply_updates(params, updates), state, loss


def shapes(layers: Any) -> tuple[Any, ...]:
    params = {"embed": s(VOCAB, D), "nf": s(D), "head": s(D, VOCAB), "layers": layers}
    return params, jax.eval_shape(tx.init, params), ids(BATCH, SEQ + 1)


def train(blocks: Any, layers: Any) -> Any:
    return partial(train_step, blocks), shapes(layers)


def alternating(layers: Any, x: jax.Array) -> jax.Array:
    for n, p in enumerate(layers):
        x = moe_block(p, x) if n % 2 else block(p, x)
    return x


def accumulated() -> Any:
    """Two micro-batches in a loop around unrolled layers."""

    def step(params: Any, tokens: jax.Array) -> Any:
        def one(grads: Any, part: jax.Array) -> Any:
            loss, new = jax.value_and_grad(loss_fn)(params, part, unrolled)
            return jax.tree.map(jnp.add, grads, new), loss

        grads, losses = jax.lax.scan(one, jax.tree.map(jnp.zeros_like, params), tokens)
        return jax.tree.map(lambda p, g: p - 1e-3 * g, params, grads), losses.mean()

    params, _, tokens = shapes([layer_shapes()] * 6)
    return step, (params, ids(2, *tokens.shape))


def decode() -> Any:
    """One token through eight layers with a cache."""

    def attend(p: Any, x: jax.Array, ck: jax.Array, cv: jax.Array, at: jax.Array) -> Any:
        b = x.shape[0]
        q, k, v = ((x @ p[w]).reshape(b, HEADS, -1) for w in ("wq", "wk", "wv"))
        ck = jax.lax.dynamic_update_slice(ck, k[:, None], (0, at, 0, 0))
        cv = jax.lax.dynamic_update_slice(cv, v[:, None], (0, at, 0, 0))
        scores = jnp.einsum("bhd,bshd->bhs", q, ck).astype(jnp.float32)
        scores = jnp.where(jnp.arange(SEQ) <= at, scores, -1e9)
        weights = jax.nn.softmax(scores).astype(x.dtype)
        return jnp.einsum("bhs,bshd->bhd", weights, cv).reshape(b, D) @ p["wo"], ck, cv

    def step(params: Any, cache: Any, token: jax.Array, at: jax.Array) -> Any:
        x, new = params["embed"][token], []
        for p, (ck, cv) in zip(params["layers"], cache, strict=True):
            h, ck, cv = attend(p, rms(x, p["n1"]), ck, cv, at)
            x = x + h
            x = x + mlp(p, rms(x, p["n2"]))
            new.append((ck, cv))
        return jnp.argmax(rms(x, params["nf"]) @ params["head"], -1), new

    params, _, _ = shapes([layer_shapes()] * 8)
    cache = s(BATCH, SEQ, HEADS, D // HEADS)
    return step, (params, [(cache, cache)] * 8, ids(BATCH), ids())


def encoder_decoder() -> Any:
    """Two stacks of different depth; the second looks at the first."""

    def cross(p: Any, x: jax.Array, seen: jax.Array) -> jax.Array:
        scores = jax.nn.softmax((x @ p["wq"]) @ (seen @ p["wk"]).swapaxes(1, 2), -1)
        return x + (scores @ (seen @ p["wv"])) @ p["wo"]

    def loss(params: Any, source: jax.Array, target: jax.Array) -> jax.Array:
        seen = unrolled(params["encoder"], params["embed"][source])
        x = params["embed"][target[:, :-1]]
        for p, c in params["decoder"]:
            x = cross(c, block(p, x), seen)
        logits = (x @ params["head"]).astype(jnp.float32)
        return optax.softmax_cross_entropy_with_integer_labels(logits, target[:, 1:]).mean()

    def step(params: Any, source: jax.Array, target: jax.Array) -> Any:
        value, grads = jax.value_and_grad(loss)(params, source, target)
        return jax.tree.map(lambda p, g: p - 1e-3 * g, params, grads), value

    square = {name: s(D, D) for name in ("wq", "wk", "wv", "wo")}
    params = {
        "embed": s(VOCAB, D),
        "head": s(D, VOCAB),
        "encoder": [layer_shapes()] * 6,
        "decoder": [(layer_shapes(), square)] * 4,
    }
    return step, (params, ids(BATCH, SEQ), ids(BATCH, SEQ + 1))


PROGRAMS: dict[str, Any] = {
    "llama_unrolled": (lambda: train(unrolled, [layer_shapes()] * 8), (8,)),
    "llama_scanned": (lambda: train(scanned, stacked(layer_shapes(), 8)), (8,)),
    "llama_scanned_remat": (
        lambda: train(partial(scanned, one=jax.checkpoint(block)), stacked(layer_shapes(), 8)),
        (8,),
    ),
    "llama_unrolled_remat": (
        lambda: train(partial(unrolled, one=jax.checkpoint(block)), [layer_shapes()] * 8),
        (8,),
    ),
    "llama_inference": (
        lambda: (partial(forward, blocks=unrolled), shapes([layer_shapes()] * 8)[::2]),
        (8,),
    ),
    "moe": (lambda: train(partial(unrolled, one=moe_block), [layer_shapes(True)] * 6), (6,)),
    "moe_alternating": (
        lambda: train(alternating, [layer_shapes(bool(n % 2)) for n in range(8)]),
        (4,),  # pairs of unlike layers
    ),
    "accumulated": (accumulated, (6,)),
    "decode_cache": (decode, (8,)),
    "encoder_decoder": (encoder_decoder, (6, 4)),
}
