from __future__ import annotations

TRUTH = """
# paged_kv_serving — LLM decode burst with a paged KV cache; inference; tensor parallel tp=8 (with_sharding_constraint, jit)

decode_burst (no gradients, no optimiser):
1. **token loop: up to 16 turns (while: i<16 and any slot active)** {
   - split rng
   - **transformer** {
     - tok_embeddings lookup (32 slots)
     - **layers: loop x10** {
        - attn_norm
        - **attention** { wqkv projection, rotary on q and k, write_page k / v (scatter into pool), **paged_attention** (gather pages -> 1024 positions per slot, scores, mask, softmax, weighted sum), wo, **all-reduce** }
        - residual, ffn_norm
        - **feed_forward** { w13 (gate/up), silu*, w2, **all-reduce** } residual }
     - norm, output head (vocab 32000 split by tp) }
   - **all-gather logits**
   - **sample** { temperature, top_k 64, softmax, top-p cumsum, categorical }
   - update slots (lengths, done/active, tokens), write out[i] }

Loops: 16 (dynamic, upper bound 16) > 10. Two levels. (top_k, cumsum small internals.)
Collectives: 2 all-reduce per layer (after wo, after w2), 1 all-gather of logits per token; nothing else wanted. The q heads/kv split by kv head: no communication in paged_attention.
Heaviest: in arithmetic: ffn and output head for 32 rows; in bytes: paged_attention's page gather (32*1024*1 kv head*64*2B = 4 MB each of k, v per layer per device, plus reading it again) > weights per layer per device (~ (1024*32/8..) 12.8M params*2/8 = 3 MB). So paged_attention (gather) is the heaviest part; cache pool slices copied through the scan (xs->ys: 2048*16*64*2B = 4 MB per layer per pool) may cost as much.
Names: "decode loop", "transformer", "layers x10", "attention", "write_page", "paged_attention", "feed_forward", "output head", "sample", "slot bookkeeping".
"""
"""Batched decoding with a paged KV cache, tensor-parallel over 8 chips.

The engine owns a pool of pages; every running request has a block table. `decode_burst` runs a
fixed number of tokens without going back to the host and is what the server calls in its loop.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P


class ModelArgs(NamedTuple):
    dim: int = 1024
    n_layers: int = 10
    n_heads: int = 16
    n_kv: int = 8
    head_dim: int = 64
    ffn: int = 2816
    vocab: int = 32000
    page: int = 16
    n_pages: int = 2048
    max_pages_per_seq: int = 64
    slots: int = 32
    burst: int = 16


class LayerWeights(NamedTuple):
    attn_norm: Array
    wqkv: Array
    wo: Array
    ffn_norm: Array
    w13: Array
    w2: Array


class Weights(NamedTuple):
    tok_embeddings: Array
    layers: LayerWeights
    norm: Array
    output: Array


class PagedCache(NamedTuple):
    k: Array  # [layers, pages, page, kv, hd]
    v: Array


class Slots(NamedTuple):
    tokens: Array  # [S]
    lengths: Array  # [S]
    tables: Array  # [S, max_pages]
    active: Array  # [S] bool
    temperature: Array  # [S]
    top_p: Array


ARGS = ModelArgs()
THE_MESH: Mesh | None = None


def constrain(x, *spec):
    return jax.lax.with_sharding_constraint(x, NamedSharding(THE_MESH, P(*spec)))


def rms_norm(x, w):
    xf = x.astype(jnp.float32)
    return (xf * jax.lax.rsqrt(jnp.mean(xf**2, -1, keepdims=True) + 1e-5)).astype(x.dtype) * w


def apply_rotary(x, positions):
    half = x.shape[-1] // 2
    freq = 10000.0 ** (-jnp.arange(half, dtype=jnp.float32) / half)
    theta = positions[:, None].astype(jnp.float32) * freq
    cos, sin = jnp.cos(theta)[:, None], jnp.sin(theta)[:, None]
    x1, x2 = x[..., :half].astype(jnp.float32), x[..., half:].astype(jnp.float32)
    return jnp.concatenate([x1 * cos - x2 * sin, x2 * cos + x1 * sin], -1).astype(x.dtype)


def write_page(pool, new, slots):
    """put this token's k (or v) in its page"""
    page_idx = jnp.take_along_axis(slots.tables, (slots.lengths // ARGS.page)[:, None], 1)[:, 0]
    page_idx = jnp.where(slots.active, page_idx, ARGS.n_pages)  # dropped
    return pool.at[page_idx, slots.lengths % ARGS.page].set(new, mode="drop")


def paged_attention(q, k_pool, v_pool, slots):
    s = q.shape[0]
    k = k_pool[slots.tables].reshape(s, -1, ARGS.n_kv, ARGS.head_dim)
    v = v_pool[slots.tables].reshape(s, -1, ARGS.n_kv, ARGS.head_dim)
    k, v = constrain(k, None, None, "tp"), constrain(v, None, None, "tp")
    q = q.reshape(s, ARGS.n_kv, ARGS.n_heads // ARGS.n_kv, ARGS.head_dim)
    att = jnp.einsum("sgrd,stgd->sgrt", q, k).astype(jnp.float32) * ARGS.head_dim**-0.5
    mask = jnp.arange(k.shape[1])[None] <= slots.lengths[:, None]
    att = jax.nn.softmax(jnp.where(mask[:, None, None], att, -jnp.inf), -1)
    out = jnp.einsum("sgrt,stgd->sgrd", att.astype(v.dtype), v)
    return out.reshape(s, ARGS.n_heads * ARGS.head_dim)


def attention(x, w, kc, vc, slots):
    qkv = constrain(jnp.einsum("sd,dgch->sgch", x, w.wqkv), None, "tp")
    rep = ARGS.n_heads // ARGS.n_kv
    q, k, v = qkv[:, :, :rep], qkv[:, :, rep], qkv[:, :, rep + 1]
    q = apply_rotary(q.reshape(x.shape[0], -1, ARGS.head_dim), slots.lengths)
    k = apply_rotary(k, slots.lengths)
    kc, vc = write_page(kc, k, slots), write_page(vc, v, slots)
    o = paged_attention(q, kc, vc, slots)
    return constrain(o @ w.wo, None, None), kc, vc


def feed_forward(x, w):
    gate_up = constrain(jnp.einsum("sd,dcf->scf", x, w.w13), None, None, "tp")
    h = jax.nn.silu(gate_up[:, 0]) * gate_up[:, 1]
    return constrain(h @ w.w2, None, None)


def transformer(weights, cache, slots):
    x = weights.tok_embeddings[slots.tokens]

    def body(x, xs):
        w, kc, vc = xs
        a, kc, vc = attention(rms_norm(x, w.attn_norm), w, kc, vc, slots)
        x = x + a
        x = x + feed_forward(rms_norm(x, w.ffn_norm), w)
        return x, (kc, vc)

    x, (k, v) = jax.lax.scan(body, x, (weights.layers, cache.k, cache.v))
    logits = constrain(rms_norm(x, weights.norm) @ weights.output, None, "tp")
    return logits.astype(jnp.float32), PagedCache(k, v)


def sample(logits, slots, rng):
    logits = constrain(logits, None, None)
    scaled = logits / jnp.maximum(slots.temperature, 1e-4)[:, None]
    top, idx = jax.lax.top_k(scaled, 64)
    probs = jax.nn.softmax(top, -1)
    keep = jnp.cumsum(probs, -1) - probs < slots.top_p[:, None]
    choice = jax.random.categorical(rng, jnp.where(keep, top, -jnp.inf))
    return jnp.take_along_axis(idx, choice[:, None], 1)[:, 0]


def decode_burst(weights, cache, slots, rng):
    out = jnp.zeros((ARGS.burst, ARGS.slots), jnp.int32)

    def cond(c):
        i, _, slots, _, _ = c
        return (i < ARGS.burst) & jnp.any(slots.active)

    def step(c):
        i, cache, slots, rng, out = c
        rng, sub = jax.random.split(rng)
        logits, cache = transformer(weights, cache, slots)
        nxt = sample(logits, slots, sub)
        lengths = slots.lengths + slots.active
        done = (nxt == 2) | (lengths >= ARGS.page * ARGS.max_pages_per_seq)
        out = out.at[i].set(jnp.where(slots.active, nxt, -1))
        slots = slots._replace(tokens=nxt, lengths=lengths, active=slots.active & ~done)
        return i + 1, cache, slots, rng, out

    _, cache, slots, rng, out = jax.lax.while_loop(cond, step, (0, cache, slots, rng, out))
    return out, cache, slots, rng


def build(devices=None):
    global THE_MESH
    a = ARGS
    devices = np.array(jax.devices() if devices is None else devices)[:8]
    THE_MESH = Mesh(devices, ("tp",))

    def arr(shape, dtype=jnp.bfloat16, spec=()):
        return jax.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(THE_MESH, P(*spec)))

    L, D, KV, HD = a.n_layers, a.dim, a.n_kv, a.head_dim
    layers = LayerWeights(
        arr((L, D)),
        arr((L, D, KV, a.n_heads // KV + 2, HD), spec=(None, None, "tp")),
        arr((L, a.n_heads * HD, D), spec=(None, "tp")),
        arr((L, D)),
        arr((L, D, 2, a.ffn), spec=(None, None, None, "tp")),
        arr((L, a.ffn, D), spec=(None, "tp")),
    )
    weights = Weights(arr((a.vocab, D)), layers, arr((D,)), arr((D, a.vocab), spec=(None, "tp")))
    pool = arr((L, a.n_pages, a.page, KV, HD), spec=(None, None, None, "tp"))
    S = a.slots
    slots = Slots(
        arr((S,), jnp.int32),
        arr((S,), jnp.int32),
        arr((S, a.max_pages_per_seq), jnp.int32),
        arr((S,), jnp.bool_),
        arr((S,), jnp.float32),
        arr((S,), jnp.float32),
    )
    return jax.jit(decode_burst, donate_argnums=(1, 2)), (
        weights,
        PagedCache(pool, pool),
        slots,
        arr((2,), jnp.uint32),
    )


MESH = {"device": 8}


def make(mesh):
    return build(list(mesh.devices.flat))
