"""Learning that is no plain loss of one model: adversaries, policies, search, inner loops."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import optax

from .common import ids, s
from .vision import batch_norm, conv

F32 = partial(s, dtype=jnp.float32)


def dense(x: jax.Array, layers: Any) -> jax.Array:
    for p in layers:
        x = jax.nn.relu(x @ p["w"] + p["b"])
    return x


def layer(a: int, b: int) -> Any:
    return {"w": F32(a, b), "b": F32(b)}


def gan() -> Any:
    """Five blocks that paint, six that judge, both trained in one step."""

    def paint(g: Any, z: jax.Array) -> jax.Array:
        x = (z @ g["in"]).reshape(-1, 16, 16, 64)
        for p in g["blocks"]:
            x = x + conv(jax.nn.relu(batch_norm(conv(x, p["a"]), p["s"])), p["b"])
        return jnp.tanh(conv(x, g["out"]))

    def judge(d: Any, x: jax.Array) -> jax.Array:
        x = conv(x, d["in"])
        for p in d["blocks"]:
            x = jax.nn.leaky_relu(x + conv(x, p["a"]))
        return x.mean((1, 2)) @ d["out"]

    def step(g: Any, d: Any, images: jax.Array, z: jax.Array) -> Any:
        def of_judge(d: Any) -> jax.Array:
            real, false = judge(d, images), judge(d, jax.lax.stop_gradient(paint(g, z)))
            return jax.nn.softplus(-real).mean() + jax.nn.softplus(false).mean()

        def of_painter(g: Any) -> jax.Array:
            return jax.nn.softplus(-judge(d, paint(g, z))).mean()

        one, grads_d = jax.value_and_grad(of_judge)(d)
        two, grads_g = jax.value_and_grad(of_painter)(g)
        down = partial(jax.tree.map, lambda p, g: p - 2e-4 * g)
        return down(g, grads_g), down(d, grads_d), one, two

    g = {"in": F32(64, 16 * 16 * 64), "out": F32(3, 3, 64, 3)}
    g["blocks"] = [{"a": F32(3, 3, 64, 64), "s": F32(64), "b": F32(3, 3, 64, 64)}] * 5
    d = {"in": F32(3, 3, 3, 48), "blocks": [{"a": F32(3, 3, 48, 48)}] * 6, "out": F32(48, 1)}
    return step, (g, d, F32(8, 16, 16, 3), F32(8, 64))


def policy() -> Any:
    """PPO: four epochs in a loop, each a step of a policy and a value network."""

    def forward(params: Any, seen: jax.Array) -> Any:
        x = dense(seen, params["trunk"])
        return x @ params["policy"], (x @ params["value"])[:, 0]

    tx = optax.chain(optax.clip_by_global_norm(0.5), optax.adam(3e-4))

    def loss(params: Any, batch: Any) -> jax.Array:
        logits, value = forward(params, batch["seen"])
        chosen = jnp.take_along_axis(jax.nn.log_softmax(logits), batch["action"][:, None], 1)[:, 0]
        ratio = jnp.exp(chosen - batch["before"])
        gain = batch["advantage"]
        clipped = jnp.clip(ratio, 0.8, 1.2) * gain
        entropy = -(jax.nn.softmax(logits) * jax.nn.log_softmax(logits)).sum(-1)
        error = jnp.square(value - batch["return"])
        return (error - jnp.minimum(ratio * gain, clipped) - 0.01 * entropy).mean()

    def step(params: Any, state: Any, batch: Any) -> Any:
        def epoch(carry: Any, _: Any) -> Any:
            params, state = carry
            grads = jax.grad(loss)(params, batch)
            updates, state = tx.update(grads, state, params)
            return (optax.apply_updates(params, updates), state), None

        return jax.lax.scan(epoch, (params, state), None, length=4)[0]

    params = {"trunk": [layer(128, 128)] * 4, "policy": F32(128, 6), "value": F32(128, 1)}
    rows = {"action": ids(512)} | {k: F32(512) for k in ("before", "advantage", "return")}
    return step, (params, jax.eval_shape(tx.init, params), {"seen": F32(512, 128), **rows})


def tree_search() -> Any:
    """Thirty visits of a search, each a residual tower of six blocks on one board."""

    def tower(params: Any, board: jax.Array) -> Any:
        x = jax.nn.relu(conv(board, params["stem"]))
        for p in params["tower"]:
            x = jax.nn.relu(x + conv(jax.nn.relu(conv(x, p["a"])), p["b"]))
        flat = x.reshape(x.shape[0], -1)
        return jax.nn.softmax(flat @ params["policy"]), jnp.tanh(flat @ params["value"])[:, 0]

    def search(params: Any, board: jax.Array) -> jax.Array:
        def visit(state: Any) -> Any:
            n, visits, total, prior = state
            score = total / (1 + visits) + prior * jnp.sqrt(1.0 + n) / (1 + visits)
            move = jnp.argmax(score, -1)
            place = jax.nn.one_hot(move, 81).reshape(-1, 9, 9, 1)
            after = jnp.concatenate([board[..., :1] + place, board[..., 1:]], -1)
            _, value = tower(params, after)
            at = jnp.arange(board.shape[0]), move
            return n + 1, visits.at[at].add(1.0), total.at[at].add(value), prior

        prior, _ = tower(params, board)
        state = 0, jnp.zeros_like(prior), jnp.zeros_like(prior), prior
        return jax.lax.while_loop(lambda state: state[0] < 30, visit, state)[1]

    block = {"a": F32(3, 3, 64, 64), "b": F32(3, 3, 64, 64)}
    params = {"stem": F32(3, 3, 4, 64), "tower": [block] * 6}
    params |= {"policy": F32(81 * 64, 81), "value": F32(81 * 64, 1)}
    return search, (params, F32(8, 9, 9, 4))


def inner_loop() -> Any:
    """MAML: five tasks at once, two steps on each, then a step for all."""

    def loss(params: Any, x: jax.Array, y: jax.Array) -> jax.Array:
        return jnp.square(dense(x, params["hidden"]) @ params["out"] - y).mean()

    def adapted(params: Any, x: jax.Array, y: jax.Array) -> Any:
        for _ in range(2):
            grads = jax.grad(loss)(params, x, y)
            params = jax.tree.map(lambda p, g: p - 0.01 * g, params, grads)
        return params

    def step(params: Any, x: jax.Array, y: jax.Array, x2: jax.Array, y2: jax.Array) -> Any:
        def outer(params: Any) -> jax.Array:
            each = jax.vmap(lambda x, y, a, b: loss(adapted(params, x, y), a, b))
            return each(x, y, x2, y2).mean()

        value, grads = jax.value_and_grad(outer)(params)
        return jax.tree.map(lambda p, g: p - 1e-3 * g, params, grads), value

    params = {"hidden": [layer(64, 64)] * 3, "out": F32(64, 1)}
    data = F32(5, 32, 64), F32(5, 32, 1)
    return step, (params, *data, *data)


def adapters() -> Any:
    """LoRA on nine scanned, rematerialised layers: the base comes stacked and stays frozen."""
    from .common import rms, stacked

    def product(x: jax.Array, w: jax.Array, a: Any) -> jax.Array:
        return x @ w + 2 * (x @ a["down"]) @ a["up"]

    def one(x: jax.Array, p: Any) -> Any:
        w, a = p
        h = rms(x, w["n1"])
        q, k, v = (product(h, w[n], a[n]) for n in "qkv")
        x = x + jax.nn.softmax(q @ k.swapaxes(1, 2) / 16, -1) @ v @ w["o"]
        return x + jax.nn.silu(rms(x, w["n2"]) @ w["gate"]) @ w["out"], None

    def loss(adapters: Any, base: Any, tokens: jax.Array, labels: jax.Array) -> jax.Array:
        x, _ = jax.lax.scan(jax.checkpoint(one), base["tok"][tokens], (base["layers"], adapters))
        logits = (x @ base["tok"].T).astype(jnp.float32)
        return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()

    tx = optax.adamw(1e-4)

    def step(adapters: Any, state: Any, base: Any, tokens: jax.Array, labels: jax.Array) -> Any:
        value, grads = jax.value_and_grad(loss)(adapters, base, tokens, labels)
        updates, state = tx.update(grads, state, adapters)
        return optax.apply_updates(adapters, updates), state, value

    pair = {"down": s(256, 8), "up": s(8, 256)}
    w = {n: s(256, 256) for n in "qkvo"} | {"gate": s(256, 1024), "out": s(1024, 256)}
    w |= {"n1": s(256), "n2": s(256)}
    base = {"tok": s(2048, 256), "layers": stacked(w, 9)}
    small = stacked({n: pair for n in "qkv"}, 9)
    return step, (small, jax.eval_shape(tx.init, small), base, ids(4, 96), ids(4, 96))


PROGRAMS: dict[str, Any] = {
    "gan": (gan, (5, 6)),
    "policy": (policy, (4,)),
    "tree_search": (tree_search, (6, 6)),
    "inner_loop": (inner_loop, (3,)),
    "adapters": (adapters, (9,)),
}
