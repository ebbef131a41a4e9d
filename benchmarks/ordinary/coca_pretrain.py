TRUTH = """
# coca_pretrain - CoCa (contrastive captioner) pretraining step; plain jax pytrees, lax.scan + jax.checkpoint, shard_map dp=8, hand-written AdamW

1. Order: patchify (196 patches) + position -> **ViT: loop x12** { self-attention, MLP } -> **attention pooling for captions** (256 queries on 196 tokens) -> **attention pooling for contrast** (1 query on the 256) ; token embedding + class token + position -> **unimodal text decoder: loop x6** { causal self-attention over 65, MLP } -> class token -> **contrastive loss**: normalise, all-gather image and text vectors over 8 devices, 32x256 scores both ways; hidden text -> **multimodal decoder: loop x6** { causal self-attention, cross-attention on the 256 pooled image tokens, MLP } -> LayerNorm -> head 32000 -> caption cross entropy; loss = contrast + 2 x caption -> backward in reverse: head, multi x6, uni x6, pools, ViT x12 (each with recompute) -> gradient mean over 8 -> clip -> AdamW with warm-up.
2. Work ~56 TF for batch 256 (7 TF per device): ViT 64%, multimodal 19%, unimodal 10%, head ~4%, pooling ~2.5%, contrast ~0. In a ViT block MLP 64%, projections 32%, scores 4%. Forward ~25%, recompute ~24%, backward ~51%. AdamW ~0.
3. Loops: forward x12, x6, x6; backward (recompute + backward) x6, x6, x12.
4. Device axis dp (8): batch; weights replicated. Collectives: all-gather of embeddings (img, txt) in forward, reduce-scatter of their gradient in backward; pmean of all gradients (about 240 M f32) after backward, pmean of two losses.
5. First picture: two towers: image encoder x12 -> caption pool -> contrast pool ; text uni x6 ; both to contrastive loss; text + pooled image -> multimodal x6 -> caption loss; backward; all-reduce; AdamW.
6. Arrows: caption tokens -> all 6 cross-attentions (constant into the loop; its gradient summed in the backward loop) and -> contrast pool; hidden -> multimodal; cls -> contrast.
7. Should not stand out: masks, casts, LayerNorm statistics, optimizer leaf count, temperature.
8. Typically wrong: uni and multi decoders confused or merged to x12; the two losses not separated; pools unnamed; the cross-attention missed; recompute named as forward; stacks called by index ("loop 1, 2, 3") with no telling which; unimodal called "encoder" is fine, but "text decoder x12" is not.
"""

"""CoCa (contrastive captioner) pretraining, plain jax, shard_map data parallel over 8 chips."""

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

MESH = {"dp": 8}

D, HEADS, FF = 768, 12, 3072
VIT_LAYERS, UNI_LAYERS, MULTI_LAYERS = 12, 6, 6
IMG, PATCH = 224, 16
NTOK = (IMG // PATCH) ** 2
QUERIES = 256
TEXT, VOCAB = 64, 32_000
LOCAL_BATCH = 32
LR, B1, B2, WD = 8e-4, 0.9, 0.95, 0.01
CAPTION_WEIGHT = 2.0


def attn_params(key, n=None):
    lead = () if n is None else (n,)
    ks = jax.random.split(key, 4)
    w = lambda k: jax.random.normal(k, lead + (D, D)) * D**-0.5
    return {"q": w(ks[0]), "k": w(ks[1]), "v": w(ks[2]), "o": w(ks[3]), "ln": jnp.ones(lead + (D,))}


def mlp_params(key, n):
    k1, k2 = jax.random.split(key)
    return {
        "w1": jax.random.normal(k1, (n, D, FF)) * D**-0.5,
        "b1": jnp.zeros((n, FF)),
        "w2": jax.random.normal(k2, (n, FF, D)) * FF**-0.5,
        "b2": jnp.zeros((n, D)),
        "ln": jnp.ones((n, D)),
    }


def init_params(key):
    ks = iter(jax.random.split(key, 20))
    nrm = lambda *s: 0.02 * jax.random.normal(next(ks), s)
    return {
        "patch": nrm(PATCH * PATCH * 3, D),
        "img_pos": nrm(NTOK, D),
        "tok": nrm(VOCAB, D),
        "txt_pos": nrm(TEXT + 1, D),
        "cls": nrm(D),
        "vit": {"self": attn_params(next(ks), VIT_LAYERS), "mlp": mlp_params(next(ks), VIT_LAYERS)},
        "pool_cap": {"query": nrm(QUERIES, D), "attn": attn_params(next(ks))},
        "pool_con": {"query": nrm(1, D), "attn": attn_params(next(ks))},
        "uni": {"self": attn_params(next(ks), UNI_LAYERS), "mlp": mlp_params(next(ks), UNI_LAYERS)},
        "multi": {
            "self": attn_params(next(ks), MULTI_LAYERS),
            "cross": attn_params(next(ks), MULTI_LAYERS),
            "mlp": mlp_params(next(ks), MULTI_LAYERS),
        },
        "out_ln": jnp.ones(D),
        "head": nrm(D, VOCAB),
        "log_temp": jnp.log(1 / 0.07),
    }


def ln(x, g):
    x = x.astype(jnp.float32)
    mu, var = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
    return ((x - mu) * lax.rsqrt(var + 1e-6) * g).astype(jnp.bfloat16)


def mha(w, x, kv=None, causal=False):
    x = ln(x, w["ln"])
    kv = x if kv is None else kv
    heads = lambda a, m: (a @ m.astype(a.dtype)).reshape(*a.shape[:2], HEADS, D // HEADS)
    q, k, v = heads(x, w["q"]), heads(kv, w["k"]), heads(kv, w["v"])
    s = jnp.einsum("bqhd,bkhd->bhqk", q, k).astype(jnp.float32) / (D // HEADS) ** 0.5
    if causal:
        s = jnp.where(jnp.tril(jnp.ones(s.shape[-2:], bool)), s, -jnp.inf)
    o = jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(s).astype(v.dtype), v)
    return o.reshape(*x.shape) @ w["o"].astype(v.dtype)


def mlp(w, x):
    h = ln(x, w["ln"])
    h = jax.nn.gelu(h @ w["w1"].astype(h.dtype) + w["b1"].astype(h.dtype))
    return h @ w["w2"].astype(h.dtype) + w["b2"].astype(h.dtype)


def stack(w, x, causal, memory=None):
    @jax.checkpoint
    def block(x, w):
        x = x + mha(w["self"], x, causal=causal)
        if memory is not None:
            x = x + mha(w["cross"], x, memory)
        return x + mlp(w["mlp"], x), None

    return lax.scan(block, x, w)[0]


def attention_pool(w, memory):
    q = jnp.broadcast_to(w["query"].astype(memory.dtype), (memory.shape[0], *w["query"].shape))
    return mha(w["attn"], q, memory)


def encode_image(p, images):
    b = images.shape[0]
    g = IMG // PATCH
    x = images.reshape(b, g, PATCH, g, PATCH, 3).transpose(0, 1, 3, 2, 4, 5).reshape(b, NTOK, -1)
    x = (x.astype(jnp.bfloat16) / 127.5 - 1) @ p["patch"].astype(jnp.bfloat16)
    x = stack(p["vit"], x + p["img_pos"].astype(x.dtype), causal=False)
    caption_tokens = attention_pool(p["pool_cap"], x)
    return caption_tokens, attention_pool(p["pool_con"], caption_tokens)[:, 0]


def encode_text(p, tokens):
    x = p["tok"][tokens].astype(jnp.bfloat16)
    cls = jnp.broadcast_to(p["cls"].astype(x.dtype), (x.shape[0], 1, D))
    x = jnp.concatenate([x, cls], 1) + p["txt_pos"].astype(x.dtype)
    x = stack(p["uni"], x, causal=True)
    return x[:, :-1], x[:, -1]


def unit(x):
    x = x.astype(jnp.float32)
    return x * lax.rsqrt(jnp.sum(x * x, -1, keepdims=True) + 1e-8)


def contrastive(img, txt, temp):
    """every device scores its rows against everybody's columns"""
    all_img, all_txt = lax.all_gather((img, txt), "dp", tiled=True)
    labels = lax.axis_index("dp") * img.shape[0] + jnp.arange(img.shape[0])
    ce = lambda s: -jnp.take_along_axis(jax.nn.log_softmax(s), labels[:, None], 1).mean()
    return 0.5 * (ce(temp * img @ all_txt.T) + ce(temp * txt @ all_img.T))


def loss_fn(p, batch):
    memory, img = encode_image(p, batch["image"])
    inputs, labels = batch["text"][:, :-1], batch["text"][:, 1:]
    hidden, txt = encode_text(p, inputs)
    con = contrastive(unit(img), unit(txt), jnp.exp(p["log_temp"]))
    y = stack(p["multi"], hidden, causal=True, memory=memory)
    logits = (ln(y, p["out_ln"]) @ p["head"].astype(jnp.bfloat16)).astype(jnp.float32)
    nll = jax.nn.logsumexp(logits, -1) - jnp.take_along_axis(logits, labels[..., None], -1)[..., 0]
    mask = labels != 0
    cap = jnp.sum(nll * mask) / jnp.maximum(mask.sum(), 1)
    return con + CAPTION_WEIGHT * cap, (con, cap)


def train_step(p, m, v, t, batch):
    (_, losses), g = jax.value_and_grad(loss_fn, has_aux=True)(p, batch)
    g, losses = lax.pmean((g, losses), "dp")
    t = t + 1
    norm = jnp.sqrt(sum(jnp.sum(x * x) for x in jax.tree.leaves(g)))
    g = jax.tree.map(lambda x: x * jnp.minimum(1.0, 1.0 / norm), g)
    lr = LR * jnp.minimum(t / 2000, 1.0)
    m = jax.tree.map(lambda m, g: B1 * m + (1 - B1) * g, m, g)
    v = jax.tree.map(lambda v, g: B2 * v + (1 - B2) * g * g, v, g)
    c1, c2 = 1 - B1**t, 1 - B2**t
    p = jax.tree.map(
        lambda p, m, v: p - lr * ((m / c1) / (jnp.sqrt(v / c2) + 1e-8) + WD * p), p, m, v
    )
    return p, m, v, t, (*losses, norm)


def make(mesh):
    f = jax.shard_map(
        train_step,
        mesh=mesh,
        in_specs=(P(), P(), P(), P(), P("dp")),
        out_specs=P(),
        check_vma=False,
    )
    s = lambda shape, dtype, spec: jax.ShapeDtypeStruct(
        shape, dtype, sharding=NamedSharding(mesh, spec)
    )
    p = jax.tree.map(
        lambda x: s(x.shape, x.dtype, P()),
        jax.eval_shape(init_params, jax.ShapeDtypeStruct((2,), jnp.uint32)),
    )
    batch = {
        "image": s((8 * LOCAL_BATCH, IMG, IMG, 3), jnp.uint8, P("dp")),
        "text": s((8 * LOCAL_BATCH, TEXT + 1), jnp.int32, P("dp")),
    }
    return jax.jit(f, donate_argnums=(0, 1, 2)), (p, p, p, s((), jnp.float32, P()), batch)
