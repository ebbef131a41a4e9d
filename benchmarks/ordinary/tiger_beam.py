TRUTH = """
PROGRAM tiger_beam: generative retrieval (TIGER semantic IDs) serving: encoder on user history, trie-constrained beam search with 32 beams, 4 levels.
TP=4 x request-parallel 2. No training.

(1) EXPECTED BOXES
recommend (serve)
 - encode: emb gather, enc_layer x8 (scan): norm, q/k/v, scores, softmax, out; ffn (gated gelu, wi0, wi1, wo_ff)
 - beam_search
    - cross_kv x6 (scan over decoder layers): ck, cv projections of memory
    - beam step x4 (while loop, levels; step < 4)
        - decode_token: dec_layer x6 (scan): self attention with cache, cross attention, ffn; then logits (tied embedding, VOCAB 4104)
        - valid_children: trie lookup = searchsorted in 4 M entries (binary search loop ~22 steps, or sort), gather
        - log_softmax, top_k (32 of 32768)
        - cache reorder (take_along_axis gather of K/V cache by beam)
 - rerank: seen filter, argsort, top 16
Work (MACs): encoder 32*512 tokens * (4*1M + 3*4.2M = 16.8 M)= 275 G x 8 layers = 2.2 T + attention 8*32*2*512*512*1024 = 137 G;
cross_kv: 16384 * 2 M * 6 = 206 G; decode: 4 steps * 1024 tokens * 6 layers * (4 M + 2 M + 12.6 M= 18.9 M) = 464 G + cross attention 4*6*1024*2*512*1024 = 26 G;
logits 4*1024*4.2M = 17 G.
So > 10 %: encode (~77 %), of which ffn about 3/4; beam steps (~16 %; the dec layers). cross_kv ~7 %.
In TIME on an accelerator the trie searchsorted (1 M queries x 22 dependent gathers per step) may dominate: 32*32*1024 = 1.05 M queries per step, 4 steps.

(2) FALSE NAMES
"training / backward / optimizer / loss", "sampling / temperature", "speculative", "prefill" for cross_kv (only loosely), "GPT / decoder-only", "MoE",
"RNN", "softmax over 4 million items", "ANN search/kmeans/ quantization" (the codes are precomputed), "while loop with data dependent length" - it always runs 4.

(3) EXPERT
True
 - TP over 4: 2 all-reduces per encoder layer (after wo and wo_ff), 16 x 512 x 1024 bf16 = 16.8 MB each per device; 3 per decoder layer (wo, co, wo_ff), small
   (16*32*1024 bf16 = 1 MB), latency-bound: 6 x 3 x 4 = 72 small all-reduces in decode.
 - The embedding (tied, 4104 x 1024) is replicated: logits computed redundantly on the 4 tp devices (small). Only 1024 of 4104 logits are used per step: compute only
   the slice of emb for this level (4x less; small in total).
 - The trie check runs on all K x CODES candidates with searchsorted over 4 M sorted ints; replicated over tp (4x redundant). Remedy: store child ranges
   (CSR start/end) for each prefix node, so that lookup is contiguous; or take top-k first with m > K candidates and check only these.
   default searchsorted method 'scan' = ~22 sequential steps, each a gather of 1 M.
   Trie array replicated on all devices: 4 x 4 M x 4 B = 64 MB. int32 overflow: prefix*1024+code with prefix up to 4 M overflows int32 (4e9 > 2.1e9) -- a correctness bug.
 - Levels below have the array of the same size 4 M though level 0 has just 1024 entries.
 - K/V cache reorder by gather every step (cache of 5 x ... = 6*16*32*5*4*64*2B= 7.9 MB/device per K or V): small; copying it.
 - lax.top_k of 32768 wide on TPU sorts whole; approx_max_k would be cheaper.
 - Encoder is compute bound & dominates; padding to 512 with mask: work for short histories is wasted (bucketing/packing).
 - Scores 16 x 4 heads x 512 x 512 fp32 = 67 MB materialised; fine. No flash attention.
False
 - "decode dominates the FLOPs", "memory bound because of KV cache size", "weights gathered each layer (FSDP)", "logits over vocabulary are the main cost", "beam loop stops early",
   "gradient all-reduce".
"""

"""Online candidate generation with a generative retrieval model (semantic IDs, T5-like),
trie-constrained beam search.  Serving binary of the feed team, tensor parallel over 4,
requests over 2.

A catalogue item is a tuple of LEVELS codewords (one per RQ level, CODES each) plus one
collision token.  The trie of valid prefixes is stored as sorted integer arrays, so that a
validity check is a searchsorted.
"""
import collections
import math

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

MESH = {"req": 2, "tp": 4}

Hyper = collections.namedtuple("Hyper", "d heads kv ff enc dec hist levels codes beams reqs items")
H = Hyper(
    d=1024,
    heads=16,
    kv=64,
    ff=4096,
    enc=8,
    dec=6,
    hist=512,
    levels=4,
    codes=1024,
    beams=32,
    reqs=32,
    items=4_000_000,
)
VOCAB = H.levels * H.codes + 8  # + specials
BOS = VOCAB - 1
bf16 = jnp.bfloat16
NEG = -1e9


def wsc(x, *spec):
    return lax.with_sharding_constraint(x, P(*spec))


def norm(x, g):
    v = jnp.mean(jnp.square(x.astype(jnp.float32)), -1, keepdims=True)
    return (x * lax.rsqrt(v + 1e-6).astype(x.dtype)) * g


def split_heads(x):
    return x.reshape(*x.shape[:-1], H.heads, H.kv)


def ffn(p, x):
    return (jax.nn.gelu(x @ p["wi0"]) * (x @ p["wi1"])) @ p["wo_ff"]


# ------------------------------------------------------------------ encoder (user history)
def encode(params, ids, lengths):
    x = params["emb"][ids] + params["pos_enc"]
    mask = jnp.arange(H.hist)[None, :] < lengths[:, None]
    bias = jnp.where(mask, 0.0, NEG)[:, None, None, :]

    def enc_layer(x, p):
        h = norm(x, p["n1"])
        q, k, v = (split_heads(h @ p[n]) for n in ("wq", "wk", "wv"))
        s = jnp.einsum("bqhd,bkhd->bhqk", q, k).astype(jnp.float32) / math.sqrt(H.kv) + bias
        a = jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(s).astype(bf16), v)
        x = wsc(x + a.reshape(x.shape) @ p["wo"], "req")
        return wsc(x + ffn(p, norm(x, p["n2"])), "req"), None

    x, _ = lax.scan(enc_layer, x, params["enc"])
    return norm(x, params["enc_norm"]), bias


def cross_kv(params, memory):
    """Project encoder memory once per request for all decoder layers."""

    def one(_, p):
        return None, (split_heads(memory @ p["ck"]), split_heads(memory @ p["cv"]))

    return lax.scan(one, None, params["dec"])[1]


# ------------------------------------------------------------------ decoder
def decode_token(params, tok, step, cache, ckv, bias):
    """tok: [B, K] -> logits [B, K, VOCAB]; cache: (k, v) [L, B, K, T, h, d]."""
    x = params["emb"][tok] + params["pos_dec"][step]
    live = jnp.arange(H.levels + 1) <= step

    def dec_layer(x, layer):
        p, ck, cv, kc, vc = layer
        h = norm(x, p["n1"])
        q, k, v = (split_heads(h @ p[n]) for n in ("wq", "wk", "wv"))
        kc = lax.dynamic_update_slice_in_dim(kc, k[:, :, None], step, 2)
        vc = lax.dynamic_update_slice_in_dim(vc, v[:, :, None], step, 2)
        s = jnp.einsum("bnhd,bnthd->bnht", q, kc).astype(jnp.float32) / math.sqrt(H.kv)
        s = jax.nn.softmax(jnp.where(live, s, NEG)).astype(bf16)
        x = x + jnp.einsum("bnht,bnthd->bnhd", s, vc).reshape(x.shape) @ p["wo"]
        # cross attention: the beams of a request share K/V
        q = split_heads(norm(x, p["nc"]) @ p["cq"])
        s = jnp.einsum("bnhd,bthd->bhnt", q, ck).astype(jnp.float32) / math.sqrt(H.kv) + bias
        o = jnp.einsum("bhnt,bthd->bnhd", jax.nn.softmax(s).astype(bf16), cv)
        x = x + o.reshape(x.shape) @ p["co"]
        x = x + ffn(p, norm(x, p["n2"]))
        return x, (kc, vc)

    x, cache = lax.scan(dec_layer, x, (params["dec"], *ckv, *cache))
    return (norm(x, params["dec_norm"]) @ params["emb"].T).astype(jnp.float32), cache


# ------------------------------------------------------------------ trie
def valid_children(trie_level, prefix, level):
    """prefix: int32 [B,K] rank of the prefix in level; -> bool [B,K,CODES]."""
    want = prefix[..., None] * H.codes + jnp.arange(H.codes)
    row = trie_level[level]
    pos = jnp.searchsorted(row, want.reshape(-1)).reshape(want.shape)
    hit = row[jnp.clip(pos, 0, row.shape[0] - 1)] == want
    return hit, pos


def beam_search(params, trie, memory, bias):
    B, K = H.reqs, H.beams
    ckv = cross_kv(params, memory)
    shape = (H.dec, B, K, H.levels + 1, H.heads, H.kv)
    cache = tuple(wsc(jnp.zeros(shape, bf16), None, "req", None, None, "tp") for _ in range(2))
    state = dict(
        step=jnp.int32(0),
        cache=cache,
        tok=jnp.full((B, K), BOS),
        score=jnp.where(jnp.arange(K) == 0, 0.0, NEG) * jnp.ones((B, 1)),
        prefix=jnp.zeros((B, K), jnp.int32),
        codes=jnp.zeros((B, K, H.levels), jnp.int32),
    )

    def cond(s):
        return s["step"] < H.levels

    def body(s):
        logits, cache = decode_token(params, s["tok"], s["step"], s["cache"], ckv, bias)
        level = s["step"]
        sl = lax.dynamic_slice_in_dim(logits, level * H.codes, H.codes, axis=2)
        ok, child = valid_children(trie, s["prefix"], level)
        logp = jnp.where(ok, jax.nn.log_softmax(jnp.where(ok, sl, NEG)), NEG)
        total = (s["score"][..., None] + logp).reshape(B, K * H.codes)
        score, flat = lax.top_k(total, K)
        src, code = flat // H.codes, flat % H.codes
        pick = lambda a: jnp.take_along_axis(a, src.reshape(B, K, *[1] * (a.ndim - 2)), axis=1)
        cache = tuple(jax.vmap(pick)(c) for c in cache)
        codes = pick(s["codes"]).at[:, :, level].set(code)
        prefix = jnp.take_along_axis(child.reshape(B, -1), flat, axis=1)
        return dict(
            step=level + 1,
            cache=cache,
            tok=code + level * H.codes,
            score=score,
            prefix=prefix.astype(jnp.int32),
            codes=codes,
        )

    out = lax.while_loop(cond, body, state)
    return out["codes"], out["score"], out["prefix"]


def recommend(params, trie, history, lengths, seen):
    """Top items per request, already-seen ones pushed down."""
    memory, bias = encode(params, history, lengths)
    codes, score, item = beam_search(params, trie, memory, bias)
    dup = jnp.any(item[:, :, None] == seen[:, None, :], -1)
    order = jnp.argsort(-(score - 50.0 * dup), axis=1)[:, :16]
    return jnp.take_along_axis(item, order, 1), jnp.take_along_axis(score, order, 1)


def make(mesh):
    def S(shape, *spec, dt=bf16):
        return jax.ShapeDtypeStruct(shape, dt, sharding=NamedSharding(mesh, P(*spec)))

    def block(n, cross):
        col = lambda o: S((n, H.d, o), None, None, "tp")
        row = lambda i: S((n, i, H.d), None, "tp", None)
        p = dict(
            n1=S((n, H.d)),
            n2=S((n, H.d)),
            wq=col(H.d),
            wk=col(H.d),
            wv=col(H.d),
            wo=row(H.d),
            wi0=col(H.ff),
            wi1=col(H.ff),
            wo_ff=row(H.ff),
        )
        if cross:
            p.update(nc=S((n, H.d)), cq=col(H.d), ck=col(H.d), cv=col(H.d), co=row(H.d))
        return p

    params = dict(
        emb=S((VOCAB, H.d)),
        pos_enc=S((H.hist, H.d)),
        pos_dec=S((H.levels + 1, H.d)),
        enc=block(H.enc, False),
        dec=block(H.dec, True),
        enc_norm=S((H.d,)),
        dec_norm=S((H.d,)),
    )
    trie = S((H.levels, H.items), dt=jnp.int32)
    hist, lengths, seen = (
        S((H.reqs, H.hist), "req", dt=jnp.int32),
        S((H.reqs,), "req", dt=jnp.int32),
        S((H.reqs, 200), "req", dt=jnp.int32),
    )

    def serve(*a):
        with mesh:
            return recommend(*a)

    return jax.jit(serve), (params, trie, hist, lengths, seen)
