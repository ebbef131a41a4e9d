TRUTH = """
Serving a Griffin-like model (serve), tensor parallel over 8 devices by shard_map; inference only. Batch 16, prompt 2048, up to 256 new tokens.

serve
  prefill (once, 16 x 2048 tokens)
    embed (sharded lookup + psum)
    group loop x8 (function group): rec1 (recurrent_block), mlp1, rec2 (recurrent_block), mlp2, attn (local_attention_prefill), mlp3
      recurrent_block: norm, w_y, w_x, conv of 4 taps, rg_lru_gates (block diagonal), associative_scan over 2048 positions (log-depth tree, written out), w_o, psum
      local_attention_prefill: norm, w_q, w_kv (one kv head, replicated), rope, two-window scores 1024 x 2048, softmax, w_o, psum
      mlp: norm, gate, up, down, psum     -- 3 per group, 24 in all
    24 layers in all = 16 recurrent + 8 attention
  sample (first token): final_norm, tied logits 2048 -> 32000 per device, soft cap, local top-k 40, all-gather, top-k, categorical
  generate_one: while loop, at most 255 passes, stops early when all are done (trip count not fixed: "unknown / up to 255")
    decode_token: embed, group loop x8 (the same six parts on ONE token, with states and ring caches): recurrent_block, mlp, local_attention_decode
    sample

No backward, no optimiser. Loops of the person: x8 prefill; while (unknown, at most 255) holding x8 decode.
Weight: prefill compute ~ 32768 tokens x 1.6 B non-embedding parameters / 8 devices; each decode pass only 16 tokens, but weight reading bound and up to 255 passes.
Within a group the mlps are the heaviest (3 x 37.7 M), then recurrent (2 x ~12.6 M), attention (8.4 M + scores). The logits of sample are heavy within decode (524 M parameters: as
much as a third of all the others) and small in prefill (only the last position).
Communication: psum after every block (6 per group), psum in embed, two all-gathers in sample.
First sight: prefill (loop x8) and then a decode while loop holding a loop x8 and the sampler.
Names true: prefill, decode_token, group, recurrent_block, rg_lru_gates, mlp, local_attention_prefill, local_attention_decode, sample, embed, generate_one.
False would be: decode loop counted as exactly 256 or as 1; the prefill and decode groups merged; associative scan as a loop of the person; rec1 and rec2 merged with attention as one attention layer.
"""

"""Serving a Griffin / RecurrentGemma-like model (RG-LRU recurrence + local attention), plain JAX, tensor parallel by
shard_map over 8 devices: one prefill of 2048 tokens, then a while loop that decodes until every sequence is finished."""
import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

MESH = {"model": 8}
TP = 8
D, W, FF, VOCAB = 2048, 2048, 6144, 256_000
GROUPS, HEADS, HD, WINDOW = 8, 16, 128, 1024
B, PROMPT, NEW, TOP_K, EOS = 16, 2048, 256, 40, 1
BF16, F32 = jnp.bfloat16, jnp.float32
WL, HL = W // TP, HEADS // TP  # local recurrence width, local heads


def rms_norm(x, g):
    x = x.astype(F32)
    return (x * lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-6) * (1 + g)).astype(BF16)


def rope(x, pos):
    half = HD // 2
    ang = pos[..., None] * 10000.0 ** (-jnp.arange(half) / half)
    c, s = jnp.cos(ang)[..., None, :], jnp.sin(ang)[..., None, :]
    a, b = jnp.split(x.astype(F32), 2, -1)
    return jnp.concatenate([a * c - b * s, b * c + a * s], -1).astype(BF16)


def mlp(p, x):
    h = rms_norm(x, p["norm"])
    y = (jax.nn.gelu(h @ p["gate"]) * (h @ p["up"])) @ p["down"]
    return x + lax.psum(y, "model")


def rg_lru_gates(p, u):
    """Block diagonal gates, one block per local head."""
    ub = u.reshape(*u.shape[:-1], HL, HD)
    r = jax.nn.sigmoid(jnp.einsum("...hi,hij->...hj", ub, p["w_r"]).reshape(u.shape).astype(F32))
    i = jax.nn.sigmoid(jnp.einsum("...hi,hij->...hj", ub, p["w_i"]).reshape(u.shape).astype(F32))
    log_a = -8.0 * r * jax.nn.softplus(p["lam"])
    return jnp.exp(log_a), jnp.sqrt(-jnp.expm1(2 * log_a)) * i * u.astype(F32)


def recurrent_block(p, x, state):
    """state None: whole prompt by associative scan; otherwise one token."""
    h = rms_norm(x, p["norm"])
    y, u = jax.nn.gelu(h @ p["w_y"]), h @ p["w_x"]
    if state is None:
        full = jnp.pad(u, ((0, 0), (3, 0), (0, 0)))
    else:
        full = jnp.concatenate([state["conv"], u], 1)
    t = u.shape[1]
    u = sum(full[:, j : j + t] * p["conv"][j] for j in range(4))
    a, b = rg_lru_gates(p, u)
    if state is None:
        _, hs = lax.associative_scan(lambda l, r: (l[0] * r[0], l[1] * r[0] + r[1]), (a, b), axis=1)
    else:
        hs = a * state["h"][:, None] + b
    out = lax.psum((hs.astype(BF16) * y) @ p["w_o"], "model")
    return x + out, {"conv": full[:, -3:], "h": hs[:, -1]}


def local_attention_prefill(p, x):
    h = rms_norm(x, p["norm"])
    pos = jnp.broadcast_to(jnp.arange(PROMPT), (B, PROMPT))
    q = rope((h @ p["w_q"]).reshape(B, PROMPT, HL, HD), pos)
    k, v = jnp.split(h @ p["w_kv"], 2, -1)
    k = rope(k[:, :, None], pos)[:, :, 0]
    n = PROMPT // WINDOW
    qc = q.reshape(B, n, WINDOW, HL, HD)
    kc, vc = k.reshape(B, n, WINDOW, HD), v.reshape(B, n, WINDOW, HD)
    prev = lambda c: jnp.concatenate(
        [jnp.pad(c[:, :-1], ((0, 0), (1, 0), (0, 0), (0, 0))), c], 2
    )  # this window and the one before
    s = jnp.einsum("bnqhd,bnkd->bnhqk", qc, prev(kc)).astype(F32) * HD**-0.5
    i, j = jnp.arange(WINDOW)[:, None] + WINDOW, jnp.arange(2 * WINDOW)[None]
    ok = (j <= i) & (j > i - WINDOW)
    ok = ok[None] & ((jnp.arange(n)[:, None, None] > 0) | (j >= WINDOW)[None])
    pr = jax.nn.softmax(jnp.where(ok[None, :, None], s, -1e30)).astype(BF16)
    o = jnp.einsum("bnhqk,bnkd->bnqhd", pr, prev(vc)).reshape(B, PROMPT, HL * HD)
    return x + lax.psum(o @ p["w_o"], "model"), {"k": k[:, -WINDOW:], "v": v[:, -WINDOW:]}


def local_attention_decode(p, x, cache, pos):
    h = rms_norm(x, p["norm"])
    where = jnp.full((B, 1), pos)
    q = rope((h @ p["w_q"]).reshape(B, 1, HL, HD), where)[:, 0]
    k, v = jnp.split(h @ p["w_kv"], 2, -1)
    k = rope(k[:, :, None], where)[:, :, 0]
    slot = pos % WINDOW
    ck, cv = (
        lax.dynamic_update_slice_in_dim(c, n, slot, 1)
        for c, n in ((cache["k"], k), (cache["v"], v))
    )
    s = jnp.einsum("bhd,bkd->bhk", q, ck).astype(F32) * HD**-0.5
    o = jnp.einsum("bhk,bkd->bhd", jax.nn.softmax(s).astype(BF16), cv).reshape(B, 1, HL * HD)
    return x + lax.psum(o @ p["w_o"], "model"), {"k": ck, "v": cv}


def embed(params, ids):
    rank, rows = lax.axis_index("model"), VOCAB // TP
    local = ids - rank * rows
    x = jnp.where(
        ((local >= 0) & (local < rows))[..., None], params["embed"][jnp.clip(local, 0, rows - 1)], 0
    )
    return lax.psum(x, "model") * jnp.asarray(D**0.5, BF16)


def sample(params, x, key):
    """Top-k over the sharded vocabulary: local top-k, gather, draw."""
    logits = (rms_norm(x, params["final_norm"]) @ params["embed"].T).astype(F32)
    logits = 30.0 * jnp.tanh(logits / 30.0)
    val, idx = lax.top_k(logits, TOP_K)
    idx = idx + lax.axis_index("model") * (VOCAB // TP)
    val, idx = (lax.all_gather(a, "model", axis=1, tiled=True) for a in (val, idx))
    best, where = lax.top_k(val, TOP_K)
    pick = jax.random.categorical(key, best / 0.8)
    return jnp.take_along_axis(jnp.take_along_axis(idx, where, 1), pick[:, None], 1)[:, 0]


def prefill(params, prompt):
    def group(x, p):
        x, s1 = recurrent_block(p["rec1"], x, None)
        x = mlp(p["mlp1"], x)
        x, s2 = recurrent_block(p["rec2"], x, None)
        x = mlp(p["mlp2"], x)
        x, s3 = local_attention_prefill(p["attn"], x)
        return mlp(p["mlp3"], x), (s1, s2, s3)

    return lax.scan(group, embed(params, prompt), params["groups"])


def decode_token(params, token, cache, pos):
    def group(x, pc):
        p, (c1, c2, c3) = pc
        x, c1 = recurrent_block(p["rec1"], x, c1)
        x = mlp(p["mlp1"], x)
        x, c2 = recurrent_block(p["rec2"], x, c2)
        x = mlp(p["mlp2"], x)
        x, c3 = local_attention_decode(p["attn"], x, c3, pos)
        return mlp(p["mlp3"], x), (c1, c2, c3)

    return lax.scan(group, embed(params, token[:, None]), (params["groups"], cache))


def serve(params, prompt, key):
    x, cache = prefill(params, prompt)
    first = sample(params, x[:, -1], jax.random.fold_in(key, 0))
    out = jnp.zeros((B, NEW), jnp.int32).at[:, 0].set(first)

    def unfinished(s):
        n, _, _, _, done = s
        return (n < NEW) & ~done.all()

    def generate_one(s):
        n, token, cache, out, done = s
        x, cache = decode_token(params, token, cache, PROMPT + n - 1)
        token = jnp.where(done, EOS, sample(params, x[:, 0], jax.random.fold_in(key, n)))
        return (
            n + 1,
            token,
            cache,
            lax.dynamic_update_slice_in_dim(out, token[:, None], n, 1),
            done | (token == EOS),
        )

    n, _, _, out, _ = lax.while_loop(
        unfinished, generate_one, (jnp.int32(1), first, cache, out, first == EOS)
    )
    return out, n


def make(mesh):
    m, G = "model", GROUPS
    rec = {
        "norm": ((G, D), F32, P()),
        "w_y": ((G, D, W), BF16, P(None, None, m)),
        "w_x": ((G, D, W), BF16, P(None, None, m)),
        "conv": ((G, 4, W), BF16, P(None, None, m)),
        "w_r": ((G, HEADS, HD, HD), BF16, P(None, m)),
        "w_i": ((G, HEADS, HD, HD), BF16, P(None, m)),
        "lam": ((G, W), F32, P(None, m)),
        "w_o": ((G, W, D), BF16, P(None, m)),
    }
    att = {
        "norm": ((G, D), F32, P()),
        "w_q": ((G, D, HEADS * HD), BF16, P(None, None, m)),
        "w_kv": ((G, D, 2 * HD), BF16, P()),
        "w_o": ((G, HEADS * HD, D), BF16, P(None, m)),
    }
    ffn = {
        "norm": ((G, D), F32, P()),
        "gate": ((G, D, FF), BF16, P(None, None, m)),
        "up": ((G, D, FF), BF16, P(None, None, m)),
        "down": ((G, FF, D), BF16, P(None, m)),
    }
    tree = {
        "embed": ((VOCAB, D), BF16, P(m)),
        "final_norm": ((D,), F32, P()),
        "groups": {"rec1": rec, "mlp1": ffn, "rec2": rec, "mlp2": ffn, "attn": att, "mlp3": ffn},
    }
    leaf = lambda x: isinstance(x, tuple)
    specs = jax.tree.map(lambda t: t[2], tree, is_leaf=leaf)
    params = jax.tree.map(
        lambda t: jax.ShapeDtypeStruct(t[0], t[1], sharding=NamedSharding(mesh, t[2])),
        tree,
        is_leaf=leaf,
    )
    rep = NamedSharding(mesh, P())
    f = jax.jit(
        jax.shard_map(
            serve, mesh=mesh, in_specs=(specs, P(), P()), out_specs=(P(), P()), check_vma=False
        )
    )
    return f, (
        params,
        jax.ShapeDtypeStruct((B, PROMPT), jnp.int32, sharding=rep),
        jax.ShapeDtypeStruct((2,), jnp.uint32, sharding=rep),
    )
