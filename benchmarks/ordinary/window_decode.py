"""Text generation with a sliding-window GPT: prefill 512 tokens, then sample 128 tokens (temperature, top-p) with a rolling KV cache."""

TRUTH = """
IN ORDER
- `generate`: prefill (all 12 layers over the 512-token prompt, fills the cache) -> logits of the last position -> sampling loop x128
- one step of the loop: `sample_top_p` (sort of the 32000 logits, cumulative sum, categorical) -> embed -> 12 layers (each: qkv, append to the window cache,
  attention over 512 slots, MLP) -> final norm, tied unembedding -> next logits
COUNTS
- layer loop x12 in the prefill; token loop x128 with a layer loop x12 inside
- cache: 2 x [12, 16, 512, 12, 64] bf16 = 2 x 151 MB
ORDER / INDEPENDENCE
- tokens strictly serial; in a layer q, k, v come from one matmul; no backward, no loss, no optimiser
HEAVY
- the token loop: reads all weights (~ 85 M + 25 M bf16 = 220 MB) and the whole cache per token: memory bound. FLOPs: prefill is ~ 4x the 128 decode steps
  (512 tokens against 128), time: decode
- sorting [16, 32000] each step is a visible piece of each step
PERFORMANCE (deliberate flaw)
- the window cache is shifted by concatenate(cache[1:], new) in each layer and step: the whole cache is rewritten (302 MB written and read per token) rather
  than one slot updated at pos % 512 in place; and it comes as xs/ys of the layer scan, so new stacked caches are built: copies of the carry
"""
from typing import NamedTuple

import jax
import jax.numpy as jnp

DIM, HEADS, HD, LAYERS, VOCAB, WINDOW, BATCH, NEW = 768, 12, 64, 12, 32000, 512, 16, 128


class Cache(NamedTuple):
    k: jax.Array  # [layers, batch, window, heads, head_dim]
    v: jax.Array


class Params(NamedTuple):
    embed: jax.Array
    norm_a: jax.Array
    qkv: jax.Array
    out: jax.Array
    norm_m: jax.Array
    gate: jax.Array
    up: jax.Array
    down: jax.Array
    final_norm: jax.Array


def init(key):
    ks = jax.random.split(key, 6)
    w = lambda k, *s: (jax.random.normal(k, s) * 0.02).astype(jnp.bfloat16)
    ones = lambda *s: jnp.ones(s, jnp.bfloat16)
    return Params(
        w(ks[0], VOCAB, DIM),
        ones(LAYERS, DIM),
        w(ks[1], LAYERS, DIM, 3, HEADS, HD),
        w(ks[2], LAYERS, HEADS, HD, DIM),
        ones(LAYERS, DIM),
        w(ks[3], LAYERS, DIM, 2048),
        w(ks[4], LAYERS, DIM, 2048),
        w(ks[5], LAYERS, 2048, DIM),
        ones(DIM),
    )


def rms(x, g):
    y = x.astype(jnp.float32)
    return (y * jax.lax.rsqrt(jnp.mean(y * y, -1, keepdims=True) + 1e-6)).astype(x.dtype) * g


def rope(x, pos):
    freq = 10000.0 ** (-jnp.arange(0, HD, 2) / HD)
    ang = pos[:, None, None] * freq
    a, b = jnp.split(x.astype(jnp.float32), 2, -1)
    return jnp.concatenate(
        [a * jnp.cos(ang) - b * jnp.sin(ang), a * jnp.sin(ang) + b * jnp.cos(ang)], -1
    ).astype(x.dtype)


def attend(q, k, v, mask):
    s = jnp.einsum("bqhd,bkhd->bhqk", q, k, preferred_element_type=jnp.float32) * HD**-0.5
    p = jax.nn.softmax(jnp.where(mask, s, -1e9)).astype(v.dtype)
    return jnp.einsum("bhqk,bkhd->bqhd", p, v)


def mlp(x, norm, gate, up, down):
    h = rms(x, norm)
    return x + (jax.nn.silu(h @ gate) * (h @ up)) @ down


def stacked(p):
    return p.norm_a, p.qkv, p.out, p.norm_m, p.gate, p.up, p.down


def unembed(p, x):
    return jnp.einsum(
        "bd,vd->bv", rms(x, p.final_norm), p.embed, preferred_element_type=jnp.float32
    )


def prefill(p, tokens):
    x = p.embed[tokens]
    pos = jnp.arange(WINDOW)
    mask = pos[:, None] >= pos[None]

    def layer(x, w):
        norm_a, qkv, out, *ffn = w
        q, k, v = jnp.einsum("btd,dshc->sbthc", rms(x, norm_a), qkv)
        q, k = rope(q, pos), rope(k, pos)
        x = x + jnp.einsum("bthc,hcd->btd", attend(q, k, v, mask), out)
        return mlp(x, *ffn), Cache(k, v)

    x, cache = jax.lax.scan(layer, x, stacked(p))
    return unembed(p, x[:, -1]), cache


def decode_one(p, token, pos, cache):
    x = p.embed[token][:, None]

    def layer(x, w_and_cache):
        (norm_a, qkv, out, *ffn), c = w_and_cache
        q, k, v = jnp.einsum("btd,dshc->sbthc", rms(x, norm_a), qkv)
        q, k = rope(q, pos[None]), rope(k, pos[None])
        # drop the oldest token, put the new one at the end
        c = Cache(jnp.concatenate([c.k[:, 1:], k], 1), jnp.concatenate([c.v[:, 1:], v], 1))
        x = x + jnp.einsum("bthc,hcd->btd", attend(q, c.k, c.v, True), out)
        return mlp(x, *ffn), c

    x, cache = jax.lax.scan(layer, x, (stacked(p), cache))
    return unembed(p, x[:, 0]), cache


def sample_top_p(key, logits, top_p=0.95, temperature=0.8):
    logits = logits / temperature
    order = jnp.argsort(-logits, axis=-1)
    ranked = jnp.take_along_axis(logits, order, -1)
    probs = jax.nn.softmax(ranked)
    keep = jnp.cumsum(probs, -1) - probs < top_p
    pick = jax.random.categorical(key, jnp.where(keep, ranked, -jnp.inf))
    return jnp.take_along_axis(order, pick[:, None], -1)[:, 0]


@jax.jit
def generate(params, prompt, key):
    logits, cache = prefill(params, prompt)

    def step(carry, i):
        logits, cache, key = carry
        key, sub = jax.random.split(key)
        token = sample_top_p(sub, logits)
        logits, cache = decode_one(params, token, WINDOW + i, cache)
        return (logits, cache, key), token

    _, tokens = jax.lax.scan(step, (logits, cache, key), jnp.arange(NEW))
    return tokens.T


def make():
    key = jax.eval_shape(lambda: jax.random.PRNGKey(0))
    return generate, (
        jax.eval_shape(init, key),
        jax.ShapeDtypeStruct((BATCH, WINDOW), jnp.int32),
        key,
    )
