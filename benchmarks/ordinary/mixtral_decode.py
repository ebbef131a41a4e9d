TRUTH = """
# mixtral_decode - serving a small Mixtral: prefill of 512 tokens, then nucleus-sampled decoding of up to 128; plain JAX, one shard_map over data 2 x expert 4, bf16

1. Order: **prefill**: embedding (vocabulary split), **layers: loop x16** { RMSNorm, q/k/v + rope, causal attention (4 of 16 heads, 1 of 4 kv heads per device), out projection; RMSNorm, router (top 2 of 8), **MoE**: 2 local experts, each takes its best 1280 of the device's 4096 tokens (gather, SwiGLU 2048-5632-2048, scatter-add) }, caches padded to 640; last token -> head -> first sample. **decode: while loop, up to 127 turns (stops when all rows have EOS)** { embedding; **layers: loop x16** { q/k/v, write cache, attention over 640, out; MoE: both local experts on all 8 tokens, weighted by gate }; norm, head; nucleus sampling (sort 32000, cumulative sum, categorical) } -> tokens.
2. Work ~44 TF global if all 127 turns run: prefill ~26 TF (58%: experts ~87%, projections ~11%, scores 2%), decode ~19 TF (42%: experts ~96% as all 8 run on every token, projections 4%). By time decode dominates (127 x reading all weights).
3. Loops: prefill x16; decode data-dependent (at most 127), inside it layers x16.
4. Device axes: expert (4) carries the experts AND the attention heads AND the vocabulary: all-reduce after out projection and after the MoE (2 per layer) in both phases, all-reduce for the embedding, all-gather of logits (32000) per step; data (2): only the scalar all-reduce "anyone alive?" in the loop's condition. No all-to-all.
5. First picture: prompt -> prefill (16 x attention, MoE) -> sample -> [while <=127: 16 x (attention+cache, MoE) -> head -> nucleus sampling] -> tokens.
6. Arrows: KV caches from prefill into the loop and around it; token, done flags, key around the loop; weights constant.
7. Should not stand out: rope, masks, key folding, one-hot gates, clip of vocabulary indices.
8. Typically wrong: the two layer loops merged to x32; decode trip count claimed as certain; prefill's top_k (token selection by expert) taken for the router's or the sampler's; sort for nucleus drawn as a large part; called training.
"""

"""Serving a small Mixtral (8 experts, top 2): prompt prefill, then sampled decoding until every row has
ended. One shard_map over data 2 x expert 4: attention heads and vocabulary split over `expert` too."""
from functools import partial

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

MESH = {"data": 2, "expert": 4}
B, PROMPT, NEW = 16, 512, 128
D, HD, NQ, NKV, FF, E, LAYERS, V = 2048, 128, 16, 4, 5632, 8, 16, 32000
S = PROMPT + NEW
TOPP, TEMP, EOS = 0.95, 0.8, 2
CAP = 1.25
bf = jnp.bfloat16


def rms(x, g):
    x = x.astype(jnp.float32)
    return (x * lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-5)).astype(bf) * g


def rope(x, pos):
    f = 1e6 ** (-jnp.arange(HD // 2) / (HD // 2))
    a = pos[..., None, None] * f
    x1, x2 = jnp.split(x.astype(jnp.float32), 2, -1)
    return jnp.concatenate(
        [x1 * jnp.cos(a) - x2 * jnp.sin(a), x2 * jnp.cos(a) + x1 * jnp.sin(a)], -1
    ).astype(bf)


def project_qkv(x, w, pos):
    q = rope((x @ w["q"]).reshape(*x.shape[:-1], -1, HD), pos)
    k = rope((x @ w["k"]).reshape(*x.shape[:-1], -1, HD), pos)
    return q, k, (x @ w["v"]).reshape(*x.shape[:-1], -1, HD)


def gates(x, router):
    """(tokens, E) weights, zero except for the two chosen experts"""
    logit = x.astype(jnp.float32) @ router
    top, idx = lax.top_k(logit, 2)
    return (jax.nn.one_hot(idx, E) * jax.nn.softmax(top)[..., None]).sum(-2)


def swiglu(x, w1, w3, w2):
    return (jax.nn.silu(x @ w1) * (x @ w3)) @ w2


def my_gates(x, w):
    g = gates(x, w["router"])
    n = E // lax.axis_size("expert")
    return lax.dynamic_slice_in_dim(g, lax.axis_index("expert") * n, n, 1)


def moe_prefill(x, w):
    """each expert takes its best `cap` tokens (dropless would need ragged matmuls)"""
    t = x.reshape(-1, D)
    g = my_gates(t, w)
    cap = int(CAP * 2 * t.shape[0] / E)

    def expert(gate, w1, w3, w2):
        score, idx = lax.top_k(gate, cap)
        y = swiglu(t[idx], w1, w3, w2) * score[:, None].astype(bf)
        return jnp.zeros_like(t).at[idx].add(y)

    y = jax.vmap(expert)(g.T, w["w1"], w["w3"], w["w2"]).sum(0)
    return lax.psum(y, "expert").reshape(x.shape)


def moe_decode(x, w):
    """few tokens: run the local experts on all of them and weight the result"""
    g = my_gates(x, w).astype(bf)
    y = jax.vmap(partial(swiglu, x))(w["w1"], w["w3"], w["w2"])
    return lax.psum(jnp.einsum("ebd,be->bd", y, g), "expert")


def embed(w, ids):
    n = V // lax.axis_size("expert")
    local = ids - lax.axis_index("expert") * n
    ok = (local >= 0) & (local < n)
    rows = jnp.where(ok[..., None], w["embed"][jnp.clip(local, 0, n - 1)], 0)
    return lax.psum(rows, "expert")


def head(w, x):
    logits = rms(x, w["norm"]) @ w["head"]
    return lax.all_gather(logits, "expert", axis=1, tiled=True).astype(jnp.float32)


def nucleus(logits, key):
    order = jnp.argsort(-logits, -1)
    p = jax.nn.softmax(jnp.take_along_axis(logits, order, -1) / TEMP)
    keep = jnp.cumsum(p, -1) - p < TOPP
    pick = jax.random.categorical(key, jnp.where(keep, jnp.log(p), -jnp.inf))
    return jnp.take_along_axis(order, pick[:, None], -1)[:, 0]


def prefill(w, ids, lens):
    b = ids.shape[0]
    pos = jnp.broadcast_to(jnp.arange(PROMPT), (b, PROMPT))
    mask = jnp.tril(jnp.ones((PROMPT, PROMPT), bool))

    def layer(x, w):
        q, k, v = project_qkv(rms(x, w["n1"]), w, pos)
        a = jax.nn.dot_product_attention(q, k, v, mask=mask)
        x = x + lax.psum(a.reshape(b, PROMPT, -1) @ w["o"], "expert")
        x = x + moe_prefill(rms(x, w["n2"]), w)
        pad = ((0, 0), (0, NEW), (0, 0), (0, 0))
        return x, (jnp.pad(k, pad), jnp.pad(v, pad))

    x, cache = lax.scan(layer, embed(w, ids), w["layers"])
    last = jnp.take_along_axis(x, (lens - 1)[:, None, None], 1)[:, 0]
    return head(w, last), cache


def decode_step(w, tok, pos, cache):
    b = tok.shape[0]
    rows = jnp.arange(b)
    seen = jnp.arange(S)[None] <= pos[:, None]

    def layer(x, wc):
        w, (ck, cv) = wc
        q, k, v = project_qkv(rms(x, w["n1"]), w, pos)
        ck, cv = ck.at[rows, pos].set(k), cv.at[rows, pos].set(v)
        q = q.reshape(b, ck.shape[2], -1, HD)
        s = jnp.einsum("bkgd,bskd->bkgs", q, ck).astype(jnp.float32) / HD**0.5
        p = jax.nn.softmax(jnp.where(seen[:, None, None], s, -1e30)).astype(bf)
        a = jnp.einsum("bkgs,bskd->bkgd", p, cv).reshape(b, -1)
        x = x + lax.psum(a @ w["o"], "expert")
        return x + moe_decode(rms(x, w["n2"]), w), (ck, cv)

    x, cache = lax.scan(layer, embed(w, tok), (w["layers"], cache))
    return head(w, x), cache


def serve(w, ids, lens, key):
    key = jax.random.fold_in(key, lax.axis_index("data"))
    logits, cache = prefill(w, ids, lens)
    b = ids.shape[0]
    key, sub = jax.random.split(key)
    tok = nucleus(logits, sub)
    out = jnp.full((b, NEW), EOS, jnp.int32).at[:, 0].set(tok)

    def cond(c):
        i, _, _, done, _, _ = c
        alive = lax.psum((~done).sum(), "data")
        return (i < NEW) & (alive > 0)

    def body(c):
        i, tok, out, done, cache, key = c
        logits, cache = decode_step(w, tok, lens + i - 1, cache)
        key, sub = jax.random.split(key)
        tok = jnp.where(done, EOS, nucleus(logits, sub))
        return i + 1, tok, out.at[:, i].set(tok), done | (tok == EOS), cache, key

    c = lax.while_loop(cond, body, (jnp.int32(1), tok, out, tok == EOS, cache, key))
    return c[2], c[0]


def make(mesh):
    ex = "expert"
    n = lambda *s: (LAYERS, *s)
    plan = {
        "embed": ((V, D), P(ex)),
        "head": ((D, V), P(None, ex)),
        "norm": ((D,), P()),
        "layers": {
            "n1": (n(D), P()),
            "n2": (n(D), P()),
            "router": (n(D, E), P()),
            "q": (n(D, NQ * HD), P(None, None, ex)),
            "k": (n(D, NKV * HD), P(None, None, ex)),
            "v": (n(D, NKV * HD), P(None, None, ex)),
            "o": (n(NQ * HD, D), P(None, ex)),
            "w1": (n(E, D, FF), P(None, ex)),
            "w3": (n(E, D, FF), P(None, ex)),
            "w2": (n(E, FF, D), P(None, ex)),
        },
    }
    leaf = lambda x: isinstance(x, tuple)
    specs = jax.tree.map(lambda x: x[1], plan, is_leaf=leaf)
    w = jax.tree.map(
        lambda x: jax.ShapeDtypeStruct(
            x[0], jnp.float32 if x[0][-1] == E else bf, sharding=NamedSharding(mesh, x[1])
        ),
        plan,
        is_leaf=leaf,
    )
    f = jax.shard_map(
        serve,
        mesh=mesh,
        in_specs=(specs, P("data"), P("data"), P()),
        out_specs=(P("data"), P()),
        check_vma=False,
    )
    s = lambda sh, t, p: jax.ShapeDtypeStruct(sh, t, sharding=NamedSharding(mesh, p))
    return jax.jit(f), (
        w,
        s((B, PROMPT), jnp.int32, P("data")),
        s((B,), jnp.int32, P("data")),
        s((2,), jnp.uint32, P()),
    )
