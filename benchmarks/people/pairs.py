"""Two networks in one step, or one of several kinds of layer: teachers, drafts, autoencoders."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import optax

from .common import ids, rms, s
from .others import NORM, layer_norm, trained
from .vision import conv

F32 = partial(s, dtype=jnp.float32)


def block(p: Any, x: jax.Array) -> jax.Array:
    h = rms(x, p["n1"])
    q, k, v = (h @ p[n] for n in "qkv")
    x = x + jax.nn.softmax(q @ k.swapaxes(-1, -2) / 16, -1) @ v @ p["o"]
    h = rms(x, p["n2"])
    return x + (jax.nn.silu(h @ p["gate"]) * (h @ p["up"])) @ p["down"]


def block_shapes(d: int = 256) -> Any:
    out = {n: s(d, d) for n in "qkvo"} | {"gate": s(d, 3 * d), "up": s(d, 3 * d)}
    return out | {"down": s(3 * d, d), "n1": s(d), "n2": s(d)}


def distilled() -> Any:
    """A teacher of eight layers that is not trained, a student of four that is."""

    def logits(params: Any, tokens: jax.Array) -> jax.Array:
        x = params["tok"][tokens]
        for p in params["layers"]:
            x = block(p, x)
        return (x @ params["head"]).astype(jnp.float32)

    def loss(student: Any, teacher: Any, tokens: jax.Array) -> jax.Array:
        wanted = jax.nn.softmax(jax.lax.stop_gradient(logits(teacher, tokens)) / 2)
        return optax.softmax_cross_entropy(logits(student, tokens) / 2, wanted).mean()

    tx = optax.lion(1e-4)

    def step(student: Any, state: Any, teacher: Any, tokens: jax.Array) -> Any:
        value, grads = jax.value_and_grad(loss)(student, teacher, tokens)
        updates, state = tx.update(grads, state, student)
        return optax.apply_updates(student, updates), state, value

    def shapes(n: int, d: int) -> Any:
        return {"tok": s(2048, d), "layers": [block_shapes(d)] * n, "head": s(d, 2048)}

    student = shapes(4, 128)
    return step, (student, jax.eval_shape(tx.init, student), shapes(8, 256), ids(4, 64))


def autoencoder() -> Any:
    """A VAE: three residual blocks in, five out, of one width each."""

    def residual(p: Any, x: jax.Array) -> jax.Array:
        return x + conv(jax.nn.silu(conv(jax.nn.silu(x), p["a"])), p["b"])

    def loss(params: Any, x: jax.Array, noise: jax.Array) -> jax.Array:
        h = conv(x, params["in"], 2)
        for p in params["encoder"]:
            h = residual(p, h)
        mean, log_var = jnp.split(conv(h, params["moments"]), 2, -1)
        h = conv(mean + jnp.exp(log_var / 2) * noise, params["grow"])
        for p in params["decoder"]:
            h = residual(p, h)
        h = jax.image.resize(h, (*x.shape[:3], h.shape[-1]), "nearest")
        error = jnp.square(conv(h, params["out"]) - x).mean()
        return error - 1e-3 * (1 + log_var - mean**2 - jnp.exp(log_var)).mean()

    def one(d: int) -> Any:
        return {"a": F32(3, 3, d, d), "b": F32(3, 3, d, d)}

    params = {"in": F32(3, 3, 3, 48), "encoder": [one(48)] * 3, "moments": F32(1, 1, 48, 16)}
    params |= {"grow": F32(1, 1, 8, 64), "decoder": [one(64)] * 5, "out": F32(3, 3, 64, 3)}
    tx = optax.adam(1e-3)
    return trained(loss, params, F32(4, 32, 32, 3), F32(4, 16, 16, 8), tx=tx)


def latents() -> Any:
    """A Perceiver: latents look at the input once, then five layers among themselves."""

    def loss(params: Any, x: jax.Array, y: jax.Array) -> jax.Array:
        x = layer_norm(params["n0"], x @ params["embed"])
        z = jnp.broadcast_to(params["latents"], (x.shape[0], *params["latents"].shape))
        look = params["look"]
        q, k, v = z @ look["q"], x @ look["k"], x @ look["v"]
        z = z + jax.nn.softmax(q @ k.swapaxes(1, 2) / 16, -1) @ v @ look["o"]
        for p in params["process"]:
            z = block(p, z)
        out = (z.mean(1) @ params["classes"]).astype(jnp.float32)
        return optax.softmax_cross_entropy_with_integer_labels(out, y).mean()

    params = {"embed": s(48, 256), "n0": NORM, "latents": s(32, 256), "classes": s(256, 10)}
    params |= {"look": {n: s(256, 256) for n in "qkvo"}, "process": [block_shapes()] * 5}
    return trained(loss, params, s(4, 196, 48), ids(4))


def dense_then_sparse() -> Any:
    """One dense layer, then six with eight experts and one that all tokens go through."""

    def attention(p: Any, x: jax.Array) -> jax.Array:
        h = rms(x, p["n1"])
        low = h @ p["kv_down"]
        k, v = jnp.split(low @ p["kv_up"], 2, -1)
        a = jax.nn.softmax((h @ p["q"]) @ k.swapaxes(1, 2) / 16, -1)
        return x + a @ v @ p["o"]

    def mlp(p: Any, h: jax.Array) -> jax.Array:
        return (jax.nn.silu(h @ p["gate"]) * (h @ p["up"])) @ p["down"]

    def experts(p: Any, h: jax.Array) -> jax.Array:
        score = jax.nn.sigmoid((h @ p["route"]).astype(jnp.float32))
        top, which = jax.lax.top_k(score, 2)
        gates = (jax.nn.one_hot(which, 8) * top[..., None]).sum(2).astype(h.dtype)
        up = jnp.einsum("bnd,edf->bnef", h, p["e_up"])
        out = jnp.einsum("bnef,efd->bned", jax.nn.silu(up), p["e_down"])
        return jnp.einsum("bned,bne->bnd", out, gates)

    def loss(params: Any, tokens: jax.Array, labels: jax.Array) -> jax.Array:
        x = params["tok"][tokens]
        p = params["first"]
        x = attention(p, x)
        x = x + mlp(p, rms(x, p["n2"]))
        for p in params["sparse"]:
            x = attention(p, x)
            h = rms(x, p["n2"])
            x = x + mlp(p, h) + experts(p, h)
        logits = (x @ params["tok"].T).astype(jnp.float32)
        return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()

    one = {"q": s(256, 256), "kv_down": s(256, 64), "kv_up": s(64, 512), "o": s(256, 256)}
    one |= {"n1": s(256), "n2": s(256), "gate": s(256, 512), "up": s(256, 512)}
    one |= {"down": s(512, 256)}
    more = one | {"route": s(256, 8), "e_up": s(8, 256, 128), "e_down": s(8, 128, 256)}
    params = {"tok": s(2048, 256), "first": one, "sparse": [more] * 6}
    return trained(loss, params, ids(4, 64), ids(4, 64))


def speculative() -> Any:
    """A draft of two layers guesses four tokens in a loop, seven layers check them at once."""

    def run(draft: Any, target: Any, tokens: jax.Array) -> Any:
        def forward(params: Any, tokens: jax.Array) -> jax.Array:
            x = params["tok"][tokens]
            for p in params["layers"]:
                x = block(p, x)
            return (x @ params["head"]).astype(jnp.float32)

        def guess(k: jax.Array, tokens: jax.Array) -> jax.Array:
            at = tokens.shape[1] - 4 + k
            scores = forward(draft, tokens)[:, at - 1]
            return tokens.at[:, at].set(jnp.argmax(scores, -1).astype(tokens.dtype))

        guessed = jax.lax.fori_loop(0, 4, guess, tokens)
        checked = jnp.argmax(forward(target, guessed), -1)
        right = jnp.cumprod(checked[:, -5:-1] == guessed[:, -4:], -1)
        return guessed, checked, right.sum(-1)

    def shapes(n: int, d: int) -> Any:
        return {"tok": s(2048, d), "layers": [block_shapes(d)] * n, "head": s(d, 2048)}

    return run, (shapes(2, 128), shapes(7, 256), ids(4, 64))


def target_network() -> Any:
    """DQN: a network of six layers learns, an older copy of it says what is to be learnt."""

    def values(params: Any, x: jax.Array) -> jax.Array:
        x = x @ params["in"]
        for p in params["hidden"]:
            x = jax.nn.relu(layer_norm(p["n"], x) @ p["a"]) @ p["b"] + x
        return (x @ params["out"]).astype(jnp.float32)

    def loss(params: Any, old: Any, batch: Any) -> jax.Array:
        mine = jnp.take_along_axis(values(params, batch["seen"]), batch["did"][:, None], 1)[:, 0]
        best = values(old, batch["then"]).max(-1)
        wanted = batch["won"] + 0.99 * jax.lax.stop_gradient(best)
        return optax.huber_loss(mine, wanted).mean()

    tx = optax.chain(optax.clip_by_global_norm(1.0), optax.rmsprop(1e-3))

    def step(params: Any, old: Any, state: Any, batch: Any) -> Any:
        value, grads = jax.value_and_grad(loss)(params, old, batch)
        updates, state = tx.update(grads, state, params)
        params = optax.apply_updates(params, updates)
        old = jax.tree.map(lambda a, b: 0.995 * a + 0.005 * b, old, params)
        return params, old, state, value

    one = {"n": NORM, "a": s(256, 512), "b": s(512, 256)}
    params = {"in": s(64, 256), "hidden": [one] * 6, "out": s(256, 9)}
    batch = {"seen": s(128, 64), "then": s(128, 64), "did": ids(128), "won": F32(128)}
    return step, (params, params, jax.eval_shape(tx.init, params), batch)


def pair_trunk() -> Any:
    """Four blocks on residues and on their pairs, recomputed backward."""

    def one(p: Any, single: jax.Array, pair: jax.Array) -> Any:
        bias = pair @ p["bias"]
        q, k, v = jnp.split(layer_norm(p["n1"], single) @ p["qkv"], 3, -1)
        a = jax.nn.softmax(q @ k.swapaxes(-1, -2) / 16 + bias[..., 0], -1)
        single = single + a @ v @ p["o"]
        h = layer_norm(p["n2"], single)
        single = single + jax.nn.relu(h @ p["up"]) @ p["down"]
        left, right = h @ p["left"], h @ p["right"]
        pair = pair + (left[:, :, None] * right[:, None]) @ p["outer"]
        a, b = jax.nn.sigmoid(pair @ p["ga"]) * (pair @ p["ta"]), pair @ p["tb"]
        pair = pair + jnp.einsum("nikc,njkc->nijc", a, b) @ p["tout"]
        return single, pair + jax.nn.relu(pair @ p["pup"]) @ p["pdown"]

    def loss(params: Any, residues: jax.Array, distances: jax.Array) -> jax.Array:
        single = params["residues"][residues]
        pair = single[:, :, None, :64] + single[:, None, :, :64]
        for p in params["trunk"]:
            single, pair = jax.checkpoint(one)(p, single, pair)
        logits = (pair @ params["bins"]).astype(jnp.float32)
        return optax.softmax_cross_entropy_with_integer_labels(logits, distances).mean()

    p = {"n1": NORM, "n2": NORM, "qkv": s(256, 768), "o": s(256, 256), "bias": s(64, 1)}
    p |= {"up": s(256, 512), "down": s(512, 256), "left": s(256, 32), "right": s(256, 32)}
    p |= {"outer": s(32, 64), "pup": s(64, 128), "pdown": s(128, 64)}
    p |= {n: s(64, 64) for n in ("ga", "ta", "tb", "tout")}
    params = {"residues": s(21, 256), "trunk": [p] * 4, "bins": s(64, 32)}
    return trained(loss, params, ids(2, 48), ids(2, 48, 48))


def spectral() -> Any:
    """A Fourier neural operator: six layers that multiply frequencies, no scopes."""

    def loss(params: Any, x: jax.Array, y: jax.Array) -> jax.Array:
        h = x @ params["lift"]
        for p in params["layers"]:
            f = jnp.fft.rfft(h, axis=1)[:, :12]
            f = jnp.einsum("bki,kio->bko", f, p["re"] + 1j * p["im"])
            f = jnp.pad(f, ((0, 0), (0, h.shape[1] // 2 + 1 - 12), (0, 0)))
            h = jax.nn.gelu(jnp.fft.irfft(f, n=h.shape[1], axis=1) + h @ p["skip"])
        return jnp.square(h @ params["project"] - y).mean()

    one = {"re": F32(12, 64, 64), "im": F32(12, 64, 64), "skip": F32(64, 64)}
    params = {"lift": F32(2, 64), "layers": [one] * 6, "project": F32(64, 1)}
    return trained(loss, params, F32(8, 128, 2), F32(8, 128, 1))


def differential() -> Any:
    """A neural ODE: thirty steps of Runge and Kutta around a network of three layers."""

    def field(params: Any, x: jax.Array) -> jax.Array:
        for p in params["layers"]:
            x = jnp.tanh(x @ p["w"] + p["b"])
        return x @ params["out"]

    def loss(params: Any, x: jax.Array, y: jax.Array) -> jax.Array:
        def step(x: jax.Array, _: Any) -> Any:
            a = field(params, x)
            b = field(params, x + a / 60)
            c = field(params, x + b / 60)
            d = field(params, x + c / 30)
            return x + (a + 2 * b + 2 * c + d) / 180, None

        return jnp.square(jax.lax.scan(step, x, None, length=30)[0] - y).mean()

    params = {"layers": [{"w": F32(64, 64), "b": F32(64)}] * 3, "out": F32(64, 64)}
    return trained(loss, params, F32(64, 64), F32(64, 64), tx=optax.sgd(0.1))


def by_name() -> Any:
    """Weights by name as Haiku keeps them: ``h3_attn/query``; nine layers."""

    def loss(params: Any, tokens: jax.Array, labels: jax.Array) -> jax.Array:
        x = params["embed"]["table"][tokens]
        for n in range(9):
            attn, mlp = f"gpt/~/h{n}_attn", f"gpt/~/h{n}_mlp"
            h = layer_norm(params[f"gpt/~/h{n}_ln_1"], x)
            q, k, v = (h @ params[f"{attn}/{w}"]["w"] for w in ("query", "key", "value"))
            a = jax.nn.softmax(q @ k.swapaxes(1, 2) / 16, -1) @ v
            x = x + a @ params[f"{attn}/linear"]["w"]
            h = layer_norm(params[f"gpt/~/h{n}_ln_2"], x)
            h = jax.nn.gelu(h @ params[f"{mlp}/linear"]["w"] + params[f"{mlp}/linear"]["b"])
            x = x + h @ params[f"{mlp}/linear_1"]["w"]
        logits = (x @ params["embed"]["table"].T).astype(jnp.float32)
        return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()

    params: dict[str, Any] = {"embed": {"table": s(2048, 256)}}
    for n in range(9):
        params |= {f"gpt/~/h{n}_attn/{w}": {"w": s(256, 256)} for w in ("query", "key", "value")}
        params[f"gpt/~/h{n}_attn/linear"] = {"w": s(256, 256)}
        params[f"gpt/~/h{n}_mlp/linear"] = {"w": s(256, 1024), "b": s(1024)}
        params[f"gpt/~/h{n}_mlp/linear_1"] = {"w": s(1024, 256)}
        params |= {f"gpt/~/h{n}_ln_{k}": NORM for k in (1, 2)}
    return trained(loss, params, ids(4, 64), ids(4, 64), tx=optax.adafactor(1e-3))


PROGRAMS: dict[str, Any] = {
    "distilled": (distilled, (8, 4)),
    "autoencoder": (autoencoder, (3, 5)),
    "latents": (latents, (5,)),
    "dense_then_sparse": (dense_then_sparse, (6,)),
    "speculative": (speculative, (7, 2)),
    "target_network": (target_network, (6, 6)),
    "pair_trunk": (pair_trunk, (4,)),
    "spectral": (spectral, (6,)),
    "differential": (differential, (30,)),
    "by_name": (by_name, (9,)),
}
