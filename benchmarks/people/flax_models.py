"""Flax: an NNX GPT (names no scopes) and a Linen one (names all of them)."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import optax
from flax import linen, nnx

from .common import ids


class Block(nnx.Module):
    def __init__(self, d: int, heads: int, rngs: nnx.Rngs) -> None:
        self.ln1, self.ln2 = nnx.LayerNorm(d, rngs=rngs), nnx.LayerNorm(d, rngs=rngs)
        self.attn = nnx.MultiHeadAttention(heads, d, decode=False, rngs=rngs)
        self.fc1 = nnx.Linear(d, 4 * d, rngs=rngs)
        self.fc2 = nnx.Linear(4 * d, d, rngs=rngs)

    def __call__(self, x: jax.Array, mask: jax.Array) -> jax.Array:
        x = x + self.attn(self.ln1(x), mask=mask)
        return x + self.fc2(nnx.gelu(self.fc1(self.ln2(x))))


class GPT(nnx.Module):
    def __init__(self, vocab: int, d: int, heads: int, n: int, rngs: nnx.Rngs) -> None:
        self.wte = nnx.Embed(vocab, d, rngs=rngs)
        self.wpe = nnx.Embed(256, d, rngs=rngs)
        self.blocks = nnx.List([Block(d, heads, rngs) for _ in range(n)])
        self.ln_f = nnx.LayerNorm(d, rngs=rngs)

    def __call__(self, tokens: jax.Array) -> jax.Array:
        x = self.wte(tokens) + self.wpe(jnp.arange(tokens.shape[1])[None])
        mask = nnx.make_causal_mask(tokens)
        for b in self.blocks:
            x = b(x, mask)
        return self.wte.attend(self.ln_f(x))


def gpt_nnx() -> Any:
    def make() -> Any:
        m = GPT(4096, 256, 4, 12, nnx.Rngs(0))
        return m, nnx.Optimizer(m, optax.adamw(3e-4), wrt=nnx.Param)

    graph, state = nnx.split(nnx.eval_shape(make))

    def train_step(state: Any, tokens: jax.Array, labels: jax.Array) -> Any:
        m, opt = nnx.merge(graph, state)

        def loss_fn(m: Any) -> jax.Array:
            return optax.softmax_cross_entropy_with_integer_labels(m(tokens), labels).mean()

        loss, grads = nnx.value_and_grad(loss_fn)(m)
        opt.update(m, grads)
        return nnx.state((m, opt)), loss

    return train_step, (state, ids(4, 128), ids(4, 128))


class LinenBlock(linen.Module):
    @linen.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        d = x.shape[-1]
        x = x + linen.SelfAttention(4)(linen.LayerNorm()(x))
        return x + linen.Dense(d)(linen.gelu(linen.Dense(4 * d)(linen.LayerNorm()(x))))


class LinenGPT(linen.Module):
    layers: int = 10

    @linen.compact
    def __call__(self, tokens: jax.Array) -> jax.Array:
        x = linen.Embed(4096, 256)(tokens)
        for _ in range(self.layers):
            x = LinenBlock()(x)
        return linen.Dense(4096)(linen.LayerNorm()(x))


def gpt_linen() -> Any:
    model, tx = LinenGPT(), optax.adam(1e-3)
    params = jax.eval_shape(lambda: model.init(jax.random.key(0), jnp.zeros((4, 128), jnp.int32)))

    def train_step(params: Any, state: Any, tokens: jax.Array, labels: jax.Array) -> Any:
        def loss_fn(p: Any) -> jax.Array:
            logits = model.apply(p, tokens)
            return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()

        loss, grads = jax.value_and_grad(loss_fn)(params)
        updates, state = tx.update(grads, state, params)
        return optax.apply_updates(params, updates), state, loss

    return train_step, (params, jax.eval_shape(tx.init, params), ids(4, 128), ids(4, 128))


PROGRAMS: dict[str, Any] = {"gpt_nnx": (gpt_nnx, (12,)), "gpt_linen": (gpt_linen, (10,))}
