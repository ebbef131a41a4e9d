TRUTH = """
TOP-LEVEL, IN ORDER
- generate: `prefill` of the 128-token prompt (fills the KV cache, gives first logits) -> `sample` first token -> while loop of decode steps -> returns tokens
- prefill: embed -> loop over 8 layers -> final norm -> logits of the last position only
- one decode step: embed 1 token -> loop over 8 layers with cache update -> final norm -> lm head -> `sample` (temperature, top-k 50, top-p 0.9, categorical) -> write token, update done mask
- a layer: rmsnorm, q/k/v projections, rope, write the cache, grouped-query attention over the cache, wo, residual, rmsnorm, swiglu MLP, residual
COUNTS
- prefill layer loop: 8 iterations (scan over stacked weights)
- decode while loop: at most 64 new tokens (63 steps after the first), stops early when every sequence hit EOS; trip count not known at compile time
- inside the decode loop another loop of 8 layers (nested loops)
- 8 query heads, 4 KV heads
INDEPENDENT
- decode depends on prefill (cache); steps are strictly sequential; q, k, v projections are independent of each other
COMMUNICATION
- mesh data=2, model=4: tensor parallel: 2 all-reduces per layer (after wo, after w_down), in prefill and in decode; batch split over data
- sampling needs the vocab-sharded logits gathered
SHARES
- if the decode loop runs all 63 steps: prefill of 128 tokens ~60% of FLOPs, decode ~40%; if one counts a loop body once, prefill dominates (~99%)
- in layers: MLP ~70%, attention projections ~24%, scores ~6%; in decode the lm head (vocab 16384) ~20-25% of a step's FLOPs; in prefill lm head <1%
MUST NOT BE SHOWN
- no backward, no optimizer, no loss, no dropout, no beam search, no unrolled layers
"""
"""Llama-style serving: prefill + sampling decode with a KV cache, tensor parallel over 'model'."""
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

MESH = {"data": 2, "model": 4}

VOCAB, DIM, LAYERS, HEADS, KV_HEADS, HEAD_DIM, FFN = 16384, 512, 8, 8, 4, 64, 1536
PROMPT, MAX_NEW, BATCH, EOS = 128, 64, 8, 2
CACHE_LEN = PROMPT + MAX_NEW


class Layer(NamedTuple):
    attn_norm: jax.Array
    wq: jax.Array
    wk: jax.Array
    wv: jax.Array
    wo: jax.Array
    ffn_norm: jax.Array
    w_gate: jax.Array
    w_up: jax.Array
    w_down: jax.Array


class Weights(NamedTuple):
    tok_embeddings: jax.Array
    layers: Layer
    norm: jax.Array
    output: jax.Array


class KVCache(NamedTuple):
    k: jax.Array  # [layers, batch, len, kv_heads, head_dim]
    v: jax.Array


def rms_norm(x, w, eps=1e-5):
    return w * (x * lax.rsqrt(jnp.mean(jnp.square(x), -1, keepdims=True) + eps))


def apply_rotary(x, positions):
    half = HEAD_DIM // 2
    freqs = 1.0 / (10000.0 ** (jnp.arange(half) / half))
    angles = positions[:, None] * freqs
    cos, sin = jnp.cos(angles)[:, None], jnp.sin(angles)[:, None]
    a, b = x[..., :half], x[..., half:]
    return jnp.concatenate([a * cos - b * sin, a * sin + b * cos], -1)


def attention(layer, x, k_cache, v_cache, start):
    b, t, _ = x.shape
    pos = start + jnp.arange(t)
    q = apply_rotary((x @ layer.wq).reshape(b, t, HEADS, HEAD_DIM), pos)
    k = apply_rotary((x @ layer.wk).reshape(b, t, KV_HEADS, HEAD_DIM), pos)
    v = (x @ layer.wv).reshape(b, t, KV_HEADS, HEAD_DIM)
    k_cache = lax.dynamic_update_slice(k_cache, k, (0, start, 0, 0))
    v_cache = lax.dynamic_update_slice(v_cache, v, (0, start, 0, 0))
    q = q.reshape(b, t, KV_HEADS, HEADS // KV_HEADS, HEAD_DIM)
    scores = jnp.einsum("btkgh,bskh->bkgts", q, k_cache) / jnp.sqrt(HEAD_DIM)
    mask = jnp.arange(CACHE_LEN)[None, :] <= pos[:, None]
    probs = jax.nn.softmax(jnp.where(mask, scores, -1e30), axis=-1)
    out = jnp.einsum("bkgts,bskh->btkgh", probs, v_cache).reshape(b, t, HEADS * HEAD_DIM)
    return out @ layer.wo, k_cache, v_cache


def feed_forward(layer, x):
    return (jax.nn.silu(x @ layer.w_gate) * (x @ layer.w_up)) @ layer.w_down


def transformer(weights, tokens, cache, start):
    h = weights.tok_embeddings[tokens]

    def layer_fn(h, xs):
        layer, k_cache, v_cache = xs
        a, k_cache, v_cache = attention(
            layer, rms_norm(h, layer.attn_norm), k_cache, v_cache, start
        )
        h = h + a
        h = h + feed_forward(layer, rms_norm(h, layer.ffn_norm))
        return h, (k_cache, v_cache)

    h, (k, v) = lax.scan(layer_fn, h, (weights.layers, cache.k, cache.v))
    h = rms_norm(h[:, -1], weights.norm)
    return h @ weights.output, KVCache(k, v)


def prefill(weights, prompt):
    shape = (LAYERS, prompt.shape[0], CACHE_LEN, KV_HEADS, HEAD_DIM)
    cache = KVCache(jnp.zeros(shape), jnp.zeros(shape))
    return transformer(weights, prompt, cache, 0)


def sample(key, logits, temperature=0.8, top_k=50, top_p=0.9):
    logits = logits / temperature
    top, idx = lax.top_k(logits, top_k)
    probs = jax.nn.softmax(top, axis=-1)
    cum = jnp.cumsum(probs, axis=-1)
    top = jnp.where(cum - probs > top_p, -jnp.inf, top)
    choice = jax.random.categorical(key, top)
    return jnp.take_along_axis(idx, choice[:, None], -1)[:, 0].astype(jnp.int32)


class DecodeState(NamedTuple):
    step: jax.Array
    tokens: jax.Array
    last: jax.Array
    done: jax.Array
    cache: KVCache
    key: jax.Array


def generate(weights, prompt, key):
    logits, cache = prefill(weights, prompt)
    key, sub = jax.random.split(key)
    first = sample(sub, logits)
    tokens = jnp.zeros((prompt.shape[0], MAX_NEW), jnp.int32).at[:, 0].set(first)

    def cond(s):
        return (s.step < MAX_NEW) & ~jnp.all(s.done)

    def decode_step(s):
        logits, cache = transformer(weights, s.last[:, None], s.cache, PROMPT + s.step - 1)
        key, sub = jax.random.split(s.key)
        nxt = jnp.where(s.done, EOS, sample(sub, logits))
        tokens = lax.dynamic_update_slice(s.tokens, nxt[:, None], (0, s.step))
        return DecodeState(s.step + 1, tokens, nxt, s.done | (nxt == EOS), cache, key)

    init = DecodeState(jnp.int32(1), tokens, first, first == EOS, cache, key)
    final = lax.while_loop(cond, decode_step, init)
    return final.tokens, final.step


def make(mesh):
    def arr(shape, *spec, dtype=jnp.float32):
        return jax.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(mesh, P(*spec)))

    L = LAYERS
    col, row = (None, None, "model"), (None, "model", None)
    layers = Layer(
        attn_norm=arr((L, DIM)),
        wq=arr((L, DIM, HEADS * HEAD_DIM), *col),
        wk=arr((L, DIM, KV_HEADS * HEAD_DIM), *col),
        wv=arr((L, DIM, KV_HEADS * HEAD_DIM), *col),
        wo=arr((L, HEADS * HEAD_DIM, DIM), *row),
        ffn_norm=arr((L, DIM)),
        w_gate=arr((L, DIM, FFN), *col),
        w_up=arr((L, DIM, FFN), *col),
        w_down=arr((L, FFN, DIM), *row),
    )
    weights = Weights(arr((VOCAB, DIM)), layers, arr((DIM,)), arr((DIM, VOCAB), None, "model"))
    prompt = arr((BATCH, PROMPT), "data", None, dtype=jnp.int32)
    return generate, (weights, prompt, jax.random.key(0))
