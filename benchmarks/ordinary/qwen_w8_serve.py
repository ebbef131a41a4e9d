TRUTH = """
# qwen_w8_serve - batch generation, Qwen3-4B shape, int8 weights with per-channel scale; plain pytrees, data 2 x tensor 4

1. Order: mark the prompt tokens as seen -> **prefill**: embedding (16 x 512) -> **loop x36 layers** { RMSNorm, q/k/v (int8 weights dequantised), q-norm k-norm, RoPE, GQA attention 512x512 (32 query, 8 kv heads), out projection, RMSNorm, SwiGLU 2560-9728-2560; k and v padded to 640 and kept as cache } -> last valid position -> norm -> head 151936 -> **sample** (repetition penalty, temperature 0.7, top-k 64, top-p 0.9, categorical) -> **decode loop: while, up to 127 iterations (stops early when all sequences hit EOS)** { embedding of 16 tokens -> **loop x36 layers** { qkv, cache write at each row's own position, attention of 1 query on 640 cached positions, out, SwiGLU } -> head -> sample -> write token } -> tokens.
2. Work: prefill ~62 TF, one decode step ~0.135 TF, 127 steps ~17 TF: prefill 78%, decode 22% of FLOPs. But in time the decode dominates: each step streams ~3.6 GB of int8 weights + ~0.4 GB head + 1.5 GB cache (all devices together). In a layer SwiGLU ~70% (74.7 of 100.9 M weights), q+o 21%, k/v 5%; attention scores ~4%. Head is ~9% of a decode step. No backward, no optimizer.
3. Loops: prefill scan x36; decode while (data-dependent, at most 127) with nested scan x36.
4. Device axes: data (2): requests. tensor (4): heads / kv heads (8/4 = 2 each), FFN width, vocabulary of embedding and head. Collectives: all-reduce over tensor after out projection and after down projection in each layer (both loops), after embedding lookup, gather of the top-k candidates (or logits) over tensor in the sampling, tiny all-reduce over data for "all done".
5. First picture: prefill (36 layers) -> first token -> decode loop <= 127 x { 36 layers, head, sample }.
6. Arrows: cache from prefill into the decode loop and around it; token -> embedding of the next step; seen mask, done flags, key around the loop; weights constant into both.
7. Should not stand out: RoPE angles, masks, dequant casts (but "int8" deserves a word), RNG, output buffer update.
8. Typically wrong: unknown trip count shown as 1, so decode looks negligible, or 127 as exact; the layer loop (36) confused with token loop; top-k sort over the vocabulary made the main thing; convert int8->bf16 shown as a separate heavy part; cache update called "scatter" without a name; prefill padded cache misread as attention over 640.
"""

"""Batch generation with a Qwen3-4B shaped model, int8 weights. Prefill + sampling loop in one jit.

data=2 splits the requests, tensor=4 splits heads / ffn / vocabulary.
"""
import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

MESH = {"data": 2, "tensor": 4}

L, D, H, KV, HD, FF, V = 36, 2560, 32, 8, 128, 9728, 151936
B, PROMPT, NEW = 16, 512, 128
S = PROMPT + NEW
EOS = 151645
TEMPERATURE, TOP_K, TOP_P, REP = 0.7, 64, 0.9, 1.05


def rms_norm(x, g):
    x32 = x.astype(jnp.float32)
    return (x32 * lax.rsqrt(jnp.mean(x32 * x32, -1, keepdims=True) + 1e-6)).astype(x.dtype) * g


def w8(x, q):
    """int8 weight, one scale per output channel"""
    return (x @ q["w"].astype(x.dtype)) * q["s"].astype(x.dtype)


def rope(x, pos):
    freq = 1e6 ** (-jnp.arange(0, HD, 2) / HD)
    ang = pos[..., None, None].astype(jnp.float32) * freq
    c, s = jnp.cos(ang), jnp.sin(ang)
    a, b = jnp.split(x.astype(jnp.float32), 2, -1)
    return jnp.concatenate([a * c - b * s, b * c + a * s], -1).astype(x.dtype)


def qkv(w, h, pos):
    b, t, _ = h.shape
    q = rms_norm(w8(h, w["q"]).reshape(b, t, H, HD), w["q_norm"])
    k = rms_norm(w8(h, w["k"]).reshape(b, t, KV, HD), w["k_norm"])
    v = w8(h, w["v"]).reshape(b, t, KV, HD)
    return rope(q, pos), rope(k, pos), v


def attend(q, k, v, mask):
    b, t = q.shape[:2]
    q = q.reshape(b, t, KV, H // KV, HD)
    s = jnp.einsum("btgrd,bsgd->bgrts", q, k).astype(jnp.float32) * HD**-0.5
    p = jax.nn.softmax(jnp.where(mask[:, None, None], s, -1e30), -1).astype(q.dtype)
    return jnp.einsum("bgrts,bsgd->btgrd", p, v).reshape(b, t, H * HD)


def swiglu(w, x):
    return w8(jax.nn.silu(w8(x, w["gate"])) * w8(x, w["up"]), w["down"])


def prefill(params, tokens, length):
    pos = jnp.broadcast_to(jnp.arange(PROMPT), (B, PROMPT))
    mask = jnp.tril(jnp.ones((PROMPT, PROMPT), bool))[None] & (pos < length[:, None])[:, None, :]
    x = params["embed"][tokens]

    def layer(x, w):
        q, k, v = qkv(w, rms_norm(x, w["ln1"]), pos)
        x = x + w8(attend(q, k, v, mask), w["o"])
        x = x + swiglu(w, rms_norm(x, w["ln2"]))
        pad = ((0, 0), (0, NEW), (0, 0), (0, 0))
        return x, (jnp.pad(k, pad), jnp.pad(v, pad))

    x, cache = lax.scan(layer, x, params["layers"])
    last = jnp.take_along_axis(x, (length - 1)[:, None, None], 1)[:, 0]
    return w8(rms_norm(last, params["norm"]), params["head"]), cache


def decode_one(params, cache, token, pos):
    rows = jnp.arange(B)
    mask = (jnp.arange(S)[None] <= pos[:, None])[:, None, :]
    x = params["embed"][token][:, None]

    def layer(x, xs):
        w, ck, cv = xs
        q, k, v = qkv(w, rms_norm(x, w["ln1"]), pos[:, None])
        ck = ck.at[rows, pos].set(k[:, 0])
        cv = cv.at[rows, pos].set(v[:, 0])
        x = x + w8(attend(q, ck, cv, mask), w["o"])
        x = x + swiglu(w, rms_norm(x, w["ln2"]))
        return x, (ck, cv)

    x, cache = lax.scan(layer, x, (params["layers"], *cache))
    return w8(rms_norm(x[:, 0], params["norm"]), params["head"]), cache


def sample(key, logits, seen):
    logits = logits.astype(jnp.float32)
    penal = jnp.where(logits > 0, logits / REP, logits * REP)
    logits = jnp.where(seen, penal, logits) / TEMPERATURE
    top, idx = lax.top_k(logits, TOP_K)
    p = jax.nn.softmax(top, -1)
    outside = jnp.cumsum(p, -1) - p > TOP_P
    choice = jax.random.categorical(key, jnp.where(outside, -1e30, top), axis=-1)
    return jnp.take_along_axis(idx, choice[:, None], 1)[:, 0]


def generate(params, prompts, length, key):
    rows = jnp.arange(B)
    seen = jnp.zeros((B, V), bool).at[rows[:, None], prompts].set(True)
    logits, cache = prefill(params, prompts, length)
    key, sub = jax.random.split(key)
    first = sample(sub, logits, seen)
    out = jnp.full((B, NEW), EOS, jnp.int32).at[:, 0].set(first)

    def unfinished(c):
        step, _, _, _, done, *_ = c
        return (step < NEW) & ~jnp.all(done)

    def body(c):
        step, token, pos, out, done, seen, cache, key = c
        seen = seen.at[rows, token].set(True)
        logits, cache = decode_one(params, cache, token, pos)
        key, sub = jax.random.split(key)
        nxt = jnp.where(done, EOS, sample(sub, logits, seen))
        out = lax.dynamic_update_slice(out, nxt[:, None], (0, step))
        return step + 1, nxt, pos + 1, out, done | (nxt == EOS), seen, cache, key

    state = (jnp.int32(1), first, length, out, first == EOS, seen, cache, key)
    step, _, _, out, done, *_ = lax.while_loop(unfinished, body, state)
    return out, step


def make(mesh):
    def s(shape, dtype, *spec):
        return jax.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(mesh, P(*spec)))

    bf = jnp.bfloat16
    col = lambda i, o: {
        "w": s((L, i, o), jnp.int8, None, None, "tensor"),
        "s": s((L, o), bf, None, "tensor"),
    }
    row = lambda i, o: {"w": s((L, i, o), jnp.int8, None, "tensor", None), "s": s((L, o), bf)}
    layers = {
        "ln1": s((L, D), bf),
        "ln2": s((L, D), bf),
        "q_norm": s((L, HD), bf),
        "k_norm": s((L, HD), bf),
        "q": col(D, H * HD),
        "k": col(D, KV * HD),
        "v": col(D, KV * HD),
        "o": row(H * HD, D),
        "gate": col(D, FF),
        "up": col(D, FF),
        "down": row(FF, D),
    }
    params = {
        "embed": s((V, D), bf, "tensor", None),
        "layers": layers,
        "norm": s((D,), bf),
        "head": {"w": s((D, V), jnp.int8, None, "tensor"), "s": s((V,), bf, "tensor")},
    }
    return jax.jit(generate), (
        params,
        s((B, PROMPT), jnp.int32, "data"),
        s((B,), jnp.int32, "data"),
        s((2,), jnp.uint32),
    )
