TRUTH = """
# blip2_qformer - BLIP-2 stage-1 training step: frozen ViT-L/14 + Q-Former with three losses (ITC, ITM, ITG); plain JAX, data parallel 8, AdamW

1. Order: **frozen ViT-L/14** (no backward): patchify + linear, cls, position, **24 layers (loop x24)**, norm -> 257 image tokens. **Q-Former** is applied FOUR times with the same weights, each **6 pairs of layers (loop x6, remat)**; pair = { self-attention; cross-attention of the queries to the image; FFN (separate for queries and text); self-attention; FFN }:
   (a) 32 queries + image -> projections 256; (b) text only (32 tokens, no cross-attention) -> cls projection; **ITC**: 128 x 128 similarity, max over queries, two softmaxes;
   (c) hard negatives sampled from the similarities -> 3 x 128 (image, text) pairs, queries + text bidirectional -> **ITM** 2-way;
   (d) queries + text with causal mask -> **ITG** LM head (transform, tied 30522 vocabulary) -> cross entropy.
   -> backward of ITG, ITM, ITC (4 loops x6 reversed with recompute) -> clip 1 -> AdamW.
2. Work for batch 128 ~60 TF with remat: ViT 21 TF (35%), ITM 25 TF (~40%; 3x batch), ITG 9 TF (14%), ITC 7-8 TF (12%: queries 2/3, text 1/3). In a Q-Former pass with image the cross-attention k/v projections (257 tokens) are ~30% of the work. No gradient to the image tokens, so backward of the k/v projections only gives weight gradients.
3. Loops: ViT x24; Q-Former forward x6 four times; backward x6 four times (recompute + backward). 9 loops.
4. Device axes: all data parallel. All-gather of features/texts for the 128 x 128 similarity; the hard-negative gather takes image tokens from the other devices (all-gather or all-reduce of 128 x 257 x 1024 bf16 - 67 MB, the expensive one) and ids; re-partition of the concatenated 3 x 128 batch; gradient all-reduce (in the backward loops and at the end).
5. First picture: image -> ViT (frozen, 24) -> Q-Former queries | Q-Former text -> ITC -> hard negatives -> Q-Former ITM (3x) ; Q-Former ITG -> LM head -> backward -> AdamW.
6. Arrows: image tokens into three passes; similarities select the negatives for ITM (no gradient); same weights in four passes, gradients summed; token table to embedding and LM head.
7. Should not stand out: masks, sampling by Gumbel (RNG), concatenations/slices of queries and text, unit norm.
8. Typically wrong: four passes drawn as one x24; ViT drawn with a backward; ITM's 3x batch not visible; the text-only pass claimed to have cross-attention; the recompute called a fifth pass.
"""

"""BLIP-2 stage 1: train the Q-Former on frozen ViT-L/14 features with ITC + ITM + ITG.
Plain JAX with parameter dicts; pure data parallel over 8 devices by GSPMD."""
import jax
import jax.numpy as jnp
import optax
from jax import lax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

MESH = {"data": 8}
B = 128
VD, VH, VL, IMG, PATCH = 1024, 16, 24, 224, 14
QD, QH, QF, PAIRS, NQ = (
    768,
    12,
    3072,
    6,
    32,
)  # 12 layers = 6 pairs; cross-attention in the first of a pair
T, VOCAB, PROJ = 32, 30522, 256
h = jnp.bfloat16
sds = jax.ShapeDtypeStruct


def W(*s, t=jnp.float32):
    return sds(s, t)


def ln_shapes(d, n=()):
    return {"g": W(*n, d), "b": W(*n, d)}


def vit_shapes():
    n = (VL,)
    w = lambda *s: W(*n, *s, t=h)
    return {
        "patch": W(PATCH * PATCH * 3, VD, t=h),
        "cls": W(1, VD, t=h),
        "pos": W(257, VD, t=h),
        "layers": {
            "n1": ln_shapes(VD, n),
            "n2": ln_shapes(VD, n),
            "qkv": w(VD, 3 * VD),
            "o": w(VD, VD),
            "up": w(VD, 4 * VD),
            "down": w(4 * VD, VD),
        },
        "norm": ln_shapes(VD),
    }


def attn_shapes(kv):
    return {
        "q": W(PAIRS, QD, QD),
        "k": W(PAIRS, kv, QD),
        "v": W(PAIRS, kv, QD),
        "o": W(PAIRS, QD, QD),
        "n": ln_shapes(QD, (PAIRS,)),
    }


def ffn_shapes():
    return {"up": W(PAIRS, QD, QF), "down": W(PAIRS, QF, QD), "n": ln_shapes(QD, (PAIRS,))}


def qformer_shapes():
    return {
        "queries": W(NQ, QD),
        "tok": W(VOCAB, QD),
        "pos": W(T, QD),
        "emb_n": ln_shapes(QD),
        "pairs": {
            "self_a": attn_shapes(QD),
            "cross": attn_shapes(VD),
            "ffn_q_a": ffn_shapes(),
            "ffn_t_a": ffn_shapes(),
            "self_b": attn_shapes(QD),
            "ffn_q_b": ffn_shapes(),
            "ffn_t_b": ffn_shapes(),
        },
        "v_proj": W(QD, PROJ),
        "t_proj": W(QD, PROJ),
        "itm": W(QD, 2),
        "lm": W(QD, QD),
        "lm_n": ln_shapes(QD),
        "lm_bias": W(VOCAB),
        "temp": W(),
    }


def layernorm(x, p):
    x = x.astype(jnp.float32)
    y = (x - x.mean(-1, keepdims=True)) * lax.rsqrt(x.var(-1, keepdims=True) + 1e-6)
    return (y * p["g"] + p["b"]).astype(h)


def mha(q, k, v, heads, mask=None):
    f = lambda t: t.reshape(*t.shape[:-1], heads, -1)
    return jax.nn.dot_product_attention(f(q), f(k), f(v), mask=mask).reshape(q.shape)


def vit(p, img):
    g = IMG // PATCH
    x = (
        img.reshape(-1, g, PATCH, g, PATCH, 3)
        .transpose(0, 1, 3, 2, 4, 5)
        .reshape(-1, g * g, PATCH * PATCH * 3)
    )
    x = x.astype(h) @ p["patch"]
    x = jnp.concatenate([jnp.broadcast_to(p["cls"], (x.shape[0], 1, VD)), x], 1) + p["pos"]

    def layer(x, w):
        q, k, v = jnp.split(layernorm(x, w["n1"]) @ w["qkv"], 3, -1)
        x = x + mha(q, k, v, VH) @ w["o"]
        return x + jax.nn.gelu(layernorm(x, w["n2"]) @ w["up"]) @ w["down"], None

    x, _ = lax.scan(layer, x, p["layers"])
    return layernorm(x, p["norm"])


def attend(x, mem, w, mask=None):  # BERT: post-norm
    c = lambda n: w[n].astype(h)
    o = mha(x @ c("q"), mem @ c("k"), mem @ c("v"), QH, mask) @ c("o")
    return layernorm(x + o, w["n"])


def ffn(x, w):
    return layernorm(x + jax.nn.gelu(x @ w["up"].astype(h)) @ w["down"].astype(h), w["n"])


def qformer(p, image, ids, mask, use_queries):
    """queries first, then text (either may be absent); image=None: no cross-attention"""
    parts = []
    if use_queries:
        parts.append(jnp.broadcast_to(p["queries"], (image.shape[0], NQ, QD)))
    if ids is not None:
        parts.append(p["tok"][ids] + p["pos"])
    x = layernorm(jnp.concatenate(parts, 1), p["emb_n"])
    nq = NQ if use_queries else 0

    def both(x, wq, wt):
        out = ([ffn(x[:, :nq], wq)] if nq else []) + (
            [ffn(x[:, nq:], wt)] if ids is not None else []
        )
        return jnp.concatenate(out, 1)

    @jax.checkpoint
    def pair(x, w):
        x = attend(x, x, w["self_a"], mask)
        if nq:
            x = jnp.concatenate([attend(x[:, :nq], image, w["cross"]), x[:, nq:]], 1)
        x = both(x, w["ffn_q_a"], w["ffn_t_a"])
        x = attend(x, x, w["self_b"], mask)
        return both(x, w["ffn_q_b"], w["ffn_t_b"]), None

    x, _ = lax.scan(pair, x, p["pairs"])
    return x


def unit(x):
    x = x.astype(jnp.float32)
    return x * lax.rsqrt((x * x).sum(-1, keepdims=True) + 1e-8)


def losses(p, image, ids, key):
    valid = ids != 0
    full = lambda m: jnp.broadcast_to(m[:, None, None, :], (m.shape[0], 1, m.shape[1], m.shape[1]))
    # 1. contrastive
    zq = qformer(p, image, None, None, True)
    zt = qformer(p, None, ids, full(valid), False)
    vi, ti = unit(zq @ p["v_proj"].astype(h)), unit(zt[:, 0] @ p["t_proj"].astype(h))
    sim = jnp.einsum("iqd,jd->ijq", vi, ti).max(-1) / p["temp"]
    lab = jnp.arange(B)
    xent = optax.softmax_cross_entropy_with_integer_labels
    itc = (
        xent(
            sim,
            lab,
        ).mean()
        + xent(sim.T, lab).mean()
    ) / 2
    # 2. matching with in-batch hard negatives
    ki, kt = jax.random.split(key)
    s = lax.stop_gradient(sim) - 1e4 * jnp.eye(B)
    neg_i, neg_t = jax.random.categorical(ki, s.T), jax.random.categorical(kt, s)
    im3 = jnp.concatenate([image, image[neg_i], image])
    tx3 = jnp.concatenate([ids, ids, ids[neg_t]])
    seen = jnp.concatenate([jnp.ones((3 * B, NQ), bool), tx3 != 0], 1)
    zm = qformer(p, im3, tx3, full(seen), True)
    logit = (zm[:, :NQ].astype(jnp.float32) @ p["itm"]).mean(1)
    itm = xent(logit, jnp.concatenate([jnp.ones(B, jnp.int32), jnp.zeros(2 * B, jnp.int32)])).mean()
    # 3. image-grounded captioning: queries do not see the text, the text is causal
    i = jnp.arange(NQ + T)
    causal = jnp.where(i[:, None] < NQ, i[None] < NQ, i[None] <= i[:, None])
    zg = qformer(p, image, ids, jnp.broadcast_to(causal[None, None], (B, 1, NQ + T, NQ + T)), True)
    y = layernorm(jax.nn.gelu(zg[:, NQ:-1] @ p["lm"].astype(h)), p["lm_n"])
    lm = (y @ p["tok"].T.astype(h)).astype(jnp.float32) + p["lm_bias"]
    keep = ids[:, 1:] != 0
    itg = (xent(lm, ids[:, 1:]) * keep).sum() / keep.sum()
    return itc + itm + itg, {"itc": itc, "itm": itm, "itg": itg}


tx = optax.chain(
    optax.clip_by_global_norm(1.0),
    optax.adamw(
        optax.warmup_cosine_decay_schedule(1e-6, 1e-4, 5000, 250_000, 1e-5),
        0.9,
        0.98,
        weight_decay=0.05,
    ),
)


def train_step(p, opt, frozen, img, ids, key):
    image = lax.stop_gradient(vit(frozen, img))
    (_, logs), g = jax.value_and_grad(losses, has_aux=True)(p, image, ids, key)
    u, opt = tx.update(g, opt, p)
    return optax.apply_updates(p, u), opt, logs


def make(mesh):
    rep, row = NamedSharding(mesh, P()), NamedSharding(mesh, P("data"))
    put = lambda t, s: jax.tree.map(lambda x: sds(x.shape, x.dtype, sharding=s), t)
    p = put(qformer_shapes(), rep)
    opt = put(jax.eval_shape(tx.init, p), rep)
    return jax.jit(train_step, donate_argnums=(0, 1), out_shardings=(rep, rep, rep)), (
        p,
        opt,
        put(vit_shapes(), rep),
        put(sds((B, IMG, IMG, 3), jnp.float32), row),
        put(sds((B, T), jnp.int32), row),
        put(sds((2,), jnp.uint32), rep),
    )
