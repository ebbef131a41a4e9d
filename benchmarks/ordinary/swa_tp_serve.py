TRUTH = """
Serving of a 7.2 B Mistral-like model (serve): 16 requests, prompt 8192 tokens, up to 128 new tokens, sliding window 4096 with rolling cache, bf16. One shard_map over the whole program, tensor parallel "tp" 8. Inference only: no gradients, no optimiser.

serve
  prefill: scan x4 over chunks of 2048 tokens
    prefill_chunk: vocab_parallel_embed (psum), scan x32 layers
      prefill_layer: attention_inputs (norm, wq, wk, wv, rope), windowed_attention of 2048 queries to 4096 cached + 2048 own keys, wo, psum; gated_mlp (norm, w1, w3, silu, w2), psum; cache shifted
  first token: next_logits (final norm, head, all-gather over vocabulary), top_p_sample
  generate: while loop, at most 127 further tokens, ends when every request has emitted end of sequence
    decode_step: vocab_parallel_embed, scan x32 layers (decode_layer: attention_inputs, cache write at position mod 4096, windowed_attention of one query, wo, psum, gated_mlp, psum), next_logits, top_p_sample (sort of the 32768 vocabulary)

Layers: 32, appearing twice (prefill loop 4 > 32, decode loop <=127 > 32). Same weights.
Per device: 4 query heads, 1 kv head, 1792 of 14336 mlp columns. Collectives: two psums a layer, one for the embedding, an all-gather of logits.
Weight: prefill by far in flops (131072 tokens x 7 B); decode is by memory (weights read per token). In a layer gated_mlp > projections ~ attention scores (6144 keys).
Helpers attention_inputs, windowed_attention, gated_mlp are called by both prefill_layer and decode_layer.
False would be: loss, training, backward; 128 layers (4 x 32) flat; count of the while as sure; logits computed in the prefill loop for all tokens (only the last one, after the loop).
First sight: prefill loop x4 > x32 layers, then sample, then generation loop > x32 layers > logits > sample.
Names true: serve, prefill_chunk, prefill_layer, decode_step, decode_layer, attention_inputs, windowed_attention, gated_mlp, next_logits, top_p_sample, vocab_parallel_embed.
"""

"""Batch serving of a Mistral-7B-like model with sliding-window attention: chunked prefill into a rolling cache, then
sampling until every request has stopped. One shard_map around everything, tensor parallel over 8 devices."""
from functools import partial

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

MESH = {"tp": 8}
TP = 8
LAYERS, DIM, HEADS, KV_HEADS, HD, FFN, VOCAB = 32, 4096, 32, 8, 128, 14336, 32768
REQUESTS, PROMPT, CHUNK, WINDOW, NEW, EOS = 16, 8192, 2048, 4096, 128, 2
BF16, F32 = jnp.bfloat16, jnp.float32


def rms_norm(x, w):
    y = x.astype(F32)
    return (y * lax.rsqrt(jnp.mean(y * y, -1, keepdims=True) + 1e-5)).astype(BF16) * w


def rope(x, pos):
    half = HD // 2
    ang = pos.astype(F32)[:, None] * 1e6 ** (-jnp.arange(half) / half)
    c, s = jnp.cos(ang)[None, :, None], jnp.sin(ang)[None, :, None]
    a, b = jnp.split(x.astype(F32), 2, -1)
    return jnp.concatenate([a * c - b * s, b * c + a * s], -1).astype(BF16)


def vocab_parallel_embed(table, tokens):
    rows = VOCAB // TP
    local = tokens - lax.axis_index("tp") * rows
    mine = (local >= 0) & (local < rows)
    x = jnp.where(mine[..., None], table[jnp.where(mine, local, 0)], 0)
    return lax.psum(x, "tp")


def attention_inputs(p, x, pos):
    b, t, _ = x.shape
    h = rms_norm(x, p["attn_norm"])
    q = rope((h @ p["wq"]).reshape(b, t, HEADS // TP, HD), pos)
    k = rope((h @ p["wk"]).reshape(b, t, KV_HEADS // TP, HD), pos)
    return q, k, (h @ p["wv"]).reshape(b, t, KV_HEADS // TP, HD)


def windowed_attention(q, k, v, q_pos, k_pos):
    """q_pos (T,), k_pos (S,): a key counts when it is not later than the query and within the window."""
    b, t, n, _ = q.shape
    g = n // k.shape[2]
    q = q.reshape(b, t, k.shape[2], g, HD)
    s = jnp.einsum("btkgd,bskd->bkgts", q, k, preferred_element_type=F32) * HD**-0.5
    back = q_pos[:, None] - k_pos[None, :]
    s = jnp.where((back >= 0) & (back < WINDOW) & (k_pos >= 0)[None], s, -1e30)
    y = jnp.einsum("bkgts,bskd->btkgd", jax.nn.softmax(s, -1).astype(BF16), v)
    return y.reshape(b, t, n * HD)


def gated_mlp(p, x):
    h = rms_norm(x, p["mlp_norm"])
    return lax.psum((jax.nn.silu(h @ p["w1"]) * (h @ p["w3"])) @ p["w2"], "tp")


def prefill_layer(x, args, start):
    p, k_cache, v_cache = args
    q_pos = start + jnp.arange(CHUNK)
    q, k, v = attention_inputs(p, x, q_pos)
    keys, values = jnp.concatenate([k_cache, k], 1), jnp.concatenate([v_cache, v], 1)
    k_pos = jnp.concatenate([start - WINDOW + jnp.arange(WINDOW), q_pos])
    x = x + lax.psum(windowed_attention(q, keys, values, q_pos, k_pos) @ p["wo"], "tp")
    x = x + gated_mlp(p, x)
    return x, (keys[:, -WINDOW:], values[:, -WINDOW:])


def prefill(params, prompts):
    b = prompts.shape[0]
    empty = jnp.zeros((LAYERS, b, WINDOW, KV_HEADS // TP, HD), BF16)

    def prefill_chunk(carry, chunk):
        (k_cache, v_cache), start, _ = carry
        x = vocab_parallel_embed(params["embed"], chunk)
        x, caches = lax.scan(
            partial(prefill_layer, start=start), x, (params["layers"], k_cache, v_cache)
        )
        return (caches, start + CHUNK, x[:, -1]), None

    chunks = jnp.moveaxis(prompts.reshape(b, PROMPT // CHUNK, CHUNK), 1, 0)
    first = ((empty, empty), jnp.int32(0), jnp.zeros((b, DIM), BF16))
    (caches, _, last), _ = lax.scan(prefill_chunk, first, chunks)
    return caches, last


def decode_layer(x, args, pos):
    p, k_cache, v_cache = args
    q, k, v = attention_inputs(p, x, pos[None])
    slot = pos % WINDOW
    k_cache = lax.dynamic_update_slice_in_dim(k_cache, k, slot, axis=1)
    v_cache = lax.dynamic_update_slice_in_dim(v_cache, v, slot, axis=1)
    age = (slot - jnp.arange(WINDOW)) % WINDOW
    x = x + lax.psum(windowed_attention(q, k_cache, v_cache, pos[None], pos - age) @ p["wo"], "tp")
    return x + gated_mlp(p, x), (k_cache, v_cache)


def next_logits(params, x):
    h = rms_norm(x, params["norm"])
    part = jnp.einsum("bd,dv->bv", h, params["head"], preferred_element_type=F32)
    return lax.all_gather(part, "tp", axis=1, tiled=True)


def top_p_sample(key, logits, temperature, top_p):
    scaled = logits / jnp.maximum(temperature, 1e-3)[:, None]
    order = jnp.argsort(-scaled, axis=-1)
    ranked = jnp.take_along_axis(jax.nn.softmax(scaled, -1), order, -1)
    keep = jnp.cumsum(ranked, -1) - ranked < top_p[:, None]
    choice = jax.random.categorical(key, jnp.where(keep, jnp.log(ranked + 1e-30), -jnp.inf))
    return jnp.take_along_axis(order, choice[:, None], -1)[:, 0].astype(jnp.int32)


def decode_step(params, caches, token, pos):
    x = vocab_parallel_embed(params["embed"], token[:, None])
    x, caches = lax.scan(partial(decode_layer, pos=pos), x, (params["layers"], *caches))
    return next_logits(params, x[:, 0]), caches


def serve_body(params, prompts, temperature, top_p, key):
    caches, last = prefill(params, prompts)
    token = top_p_sample(jax.random.fold_in(key, 0), next_logits(params, last), temperature, top_p)
    out = jnp.full((prompts.shape[0], NEW), EOS, jnp.int32).at[:, 0].set(token)

    def running(state):
        return (state[0] < NEW) & ~jnp.all(state[3])

    def generate(state):
        i, token, out, done, caches = state
        logits, caches = decode_step(params, caches, token, PROMPT + i - 1)
        nxt = top_p_sample(jax.random.fold_in(key, i), logits, temperature, top_p)
        nxt = jnp.where(done, EOS, nxt)
        out = lax.dynamic_update_slice(out, nxt[:, None], (0, i))
        return i + 1, nxt, out, done | (nxt == EOS), caches

    steps, _, out, _, _ = lax.while_loop(
        running, generate, (jnp.int32(1), token, out, token == EOS, caches)
    )
    return out, steps


def specifications():
    col, row = P(None, None, "tp"), P(None, "tp", None)
    L = lambda *s: (LAYERS,) + s
    return {
        "embed": ((VOCAB, DIM), P("tp", None)),
        "head": ((DIM, VOCAB), P(None, "tp")),
        "norm": ((DIM,), P()),
        "layers": {
            "attn_norm": (L(DIM), P()),
            "mlp_norm": (L(DIM), P()),
            "wq": (L(DIM, HEADS * HD), col),
            "wk": (L(DIM, KV_HEADS * HD), col),
            "wv": (L(DIM, KV_HEADS * HD), col),
            "wo": (L(HEADS * HD, DIM), row),
            "w1": (L(DIM, FFN), col),
            "w3": (L(DIM, FFN), col),
            "w2": (L(FFN, DIM), row),
        },
    }


def make(mesh):
    leaf = lambda x: isinstance(x, tuple) and isinstance(x[0], tuple)
    table = specifications()
    specs = jax.tree.map(lambda s: s[1], table, is_leaf=leaf)
    params = jax.tree.map(
        lambda s: jax.ShapeDtypeStruct(s[0], BF16, sharding=NamedSharding(mesh, s[1])),
        table,
        is_leaf=leaf,
    )

    @jax.jit
    def serve(params, prompts, temperature, top_p, key):
        body = jax.shard_map(
            serve_body,
            mesh=mesh,
            in_specs=(specs, P(), P(), P(), P()),
            out_specs=(P(), P()),
            check_vma=False,
        )
        out, steps = body(params, prompts, temperature, top_p, key)
        lengths = jnp.sum(out != EOS, axis=-1)
        return {"tokens": out, "lengths": lengths, "steps": steps}

    S = lambda s, d: jax.ShapeDtypeStruct(s, d, sharding=NamedSharding(mesh, P()))
    return serve, (
        params,
        S((REQUESTS, PROMPT), jnp.int32),
        S((REQUESTS,), F32),
        S((REQUESTS,), F32),
        S((2,), jnp.uint32),
    )
