TRUTH = """
# vlm_caption — image captioning: ViT + LM generate (plain JAX pytrees), tensor parallel over 8 devices, bf16

## 1 Tree of parts
caption (8 requests)
1. **encode_image**: patchify + patch projection + pos ; **ViT blocks: loop x12** { ln, qkv, attention (256 tokens), proj, ln, fc1, gelu, fc2 } ; ln_post
2. **projector** (2-layer MLP 768->1536)
3. empty KV cache (18 layers, 416 slots)
4. **prefill**: prompt embedding, concat with 256 image tokens (320 positions) ; **decoder blocks: loop x18** { rms, q/k/v, rope, write cache, attention over 416 slots (GQA 16/8), wo, rms, gate/up/down } ; final norm ; pick last position
5. first token: unembed + **sample_top_p** (argsort 32768, softmax, cumsum, categorical)
6. **decode loop: while, up to 95 turns, stops when all done** { embed token ; **decoder blocks: loop x18** (1 position) ; unembed ; sample_top_p ; eos handling }
7. lengths

Collectives (tp=8): two all-reduces per ViT block (proj, fc2), two per decoder block (wo, down), one for projector w2, embedding (vocab-sharded lookup -> all-reduce), logits vocabulary-sharded -> all-gather before the sort (or sharded sort).
## 2 Where the work goes
If all 95 turns run: prefill ~64% (2.4 TF), decode ~22% (0.8 TF), ViT ~11% (0.37 TF), projector 0.4%, sampling ~0 FLOPs. In time the decode loop dominates (reads 1 GB of weights each turn).

## 3 First picture
image encoder (ViT x12) -> projector -> prefill (decoder x18) -> sample -> decode loop (<=95) { decoder x18, logits, top-p sampling }. Prefill and decode with the same decoder but clearly two phases.

## 4 Misleading
- Decode loop counted once (unknown trip count) -> 1% of work; or drawn as a detail of prefill.
- Prefill and decode both come from run_decoder/decoder_block: merging by source function is wrong.
- The sort in top-p unnamed, though it is a visible cost per token.
- Inference only: no backward.
"""

"""Image captioning server step: ViT tower -> projector -> decoder LM with prefix attention.
bf16, tensor parallel over 8 devices (jit + NamedSharding), batch of 8 requests, top-p sampling.

    captions, lengths = caption(params, images, prompt_ids, prompt_len, key)
"""
import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P


@dataclasses.dataclass(frozen=True)
class VisionConfig:
    image: int = 224
    patch: int = 14
    layers: int = 12
    dim: int = 768
    heads: int = 16
    mlp: int = 3072


@dataclasses.dataclass(frozen=True)
class TextConfig:
    layers: int = 18
    dim: int = 1536
    heads: int = 16
    kv_heads: int = 8
    head_dim: int = 96
    mlp: int = 4096
    vocab: int = 32768
    eos: int = 1


VIS, TXT = VisionConfig(), TextConfig()
BATCH, PROMPT, MAX_NEW = 8, 64, 96
IMG_TOKENS = (VIS.image // VIS.patch) ** 2
PREFIX = IMG_TOKENS + PROMPT
CACHE = PREFIX + MAX_NEW
TOP_P, TEMP = 0.9, 0.7


def param_specs():
    """(shape, PartitionSpec) for every parameter"""
    v, t = VIS, TXT
    L, d, f = v.layers, v.dim, v.mlp
    vit = dict(
        patch=((v.patch * v.patch * 3, d), P()),
        pos=((IMG_TOKENS, d), P()),
        blocks=dict(
            ln1=((L, d), P()),
            ln2=((L, d), P()),
            qkv=((L, d, 3, v.heads, d // v.heads), P(None, None, None, "tp")),
            proj=((L, v.heads, d // v.heads, d), P(None, "tp")),
            fc1=((L, d, f), P(None, None, "tp")),
            fc2=((L, f, d), P(None, "tp")),
        ),
        ln_post=((d,), P()),
    )
    L, e, h, g, k, f = t.layers, t.dim, t.heads, t.kv_heads, t.head_dim, t.mlp
    lm = dict(
        embed=((t.vocab, e), P("tp")),
        blocks=dict(
            ln1=((L, e), P()),
            ln2=((L, e), P()),
            wq=((L, e, h, k), P(None, None, "tp")),
            wk=((L, e, g, k), P(None, None, "tp")),
            wv=((L, e, g, k), P(None, None, "tp")),
            wo=((L, h, k, e), P(None, "tp")),
            gate=((L, e, f), P(None, None, "tp")),
            up=((L, e, f), P(None, None, "tp")),
            down=((L, f, e), P(None, "tp")),
        ),
        ln_f=((e,), P()),
    )
    projector = dict(w1=((d, e), P(None, "tp")), w2=((e, e), P("tp")))
    return dict(vit=vit, projector=projector, lm=lm)


def layer_norm(x, g):
    y = x.astype(jnp.float32)
    y = (y - y.mean(-1, keepdims=True)) * lax.rsqrt(y.var(-1, keepdims=True) + 1e-6)
    return (y * g).astype(x.dtype)


def rms_norm(x, g):
    y = x.astype(jnp.float32)
    return (y * lax.rsqrt(jnp.mean(y * y, -1, keepdims=True) + 1e-6) * (1 + g)).astype(x.dtype)


# ------------------------------------------------------------------ vision
def patchify(img):
    b, n, p = img.shape[0], VIS.image // VIS.patch, VIS.patch
    return img.reshape(b, n, p, n, p, 3).transpose(0, 1, 3, 2, 4, 5).reshape(b, n * n, p * p * 3)


def vit_block(x, p):
    h = layer_norm(x, p["ln1"])
    q, k, v = jnp.moveaxis(jnp.einsum("btd,dchk->btchk", h, p["qkv"]), 2, 0)
    a = jnp.einsum("bqhk,bshk->bhqs", q, k) / np.sqrt(VIS.dim // VIS.heads)
    a = jax.nn.softmax(a.astype(jnp.float32), -1).astype(x.dtype)
    x = x + jnp.einsum("bhqs,bshk,hkd->bqd", a, v, p["proj"])
    h = layer_norm(x, p["ln2"])
    return x + jax.nn.gelu(h @ p["fc1"]) @ p["fc2"], None


def encode_image(p, images):
    x = patchify(images.astype(jnp.bfloat16) / 127.5 - 1) @ p["patch"] + p["pos"]
    x, _ = lax.scan(vit_block, x, p["blocks"])
    return layer_norm(x, p["ln_post"])


def project(p, x):
    return jax.nn.gelu(x @ p["w1"]) @ p["w2"]


# ------------------------------------------------------------------ language
def rope(x, pos):
    half = x.shape[-1] // 2
    ang = pos[..., None].astype(jnp.float32) * 10_000 ** (-jnp.arange(half) / half)
    c, s = jnp.cos(ang)[:, :, None], jnp.sin(ang)[:, :, None]
    a, b = jnp.split(x.astype(jnp.float32), 2, -1)
    return jnp.concatenate([a * c - b * s, b * c + a * s], -1).astype(x.dtype)


def attend(q, k, v, mask):
    b, t, h, d = q.shape
    q = q.reshape(b, t, TXT.kv_heads, h // TXT.kv_heads, d)
    s = jnp.einsum("btgrd,bsgd->bgrts", q, k).astype(jnp.float32) / np.sqrt(d)
    w = jax.nn.softmax(jnp.where(mask[:, None, None], s, -2e38), -1).astype(q.dtype)
    return jnp.einsum("bgrts,bsgd->btgrd", w, v).reshape(b, t, h, d)


def decoder_block(x, p, kc, vc, pos, write_at, mask):
    h = rms_norm(x, p["ln1"])
    q = rope(jnp.einsum("btd,dhk->bthk", h, p["wq"]), pos)
    k = rope(jnp.einsum("btd,dhk->bthk", h, p["wk"]), pos)
    v = jnp.einsum("btd,dhk->bthk", h, p["wv"])
    kc = lax.dynamic_update_slice_in_dim(kc, k, write_at, 1)
    vc = lax.dynamic_update_slice_in_dim(vc, v, write_at, 1)
    x = x + jnp.einsum("bthk,hkd->btd", attend(q, kc, vc, mask), p["wo"])
    h = rms_norm(x, p["ln2"])
    x = x + (jax.nn.silu(h @ p["gate"]) * (h @ p["up"])) @ p["down"]
    return x, kc, vc


def run_decoder(p, x, cache, pos, write_at, mask):
    def body(x, layer):
        bp, kc, vc = layer
        x, kc, vc = decoder_block(x, bp, kc, vc, pos, write_at, mask)
        return x, (kc, vc)

    x, cache = lax.scan(body, x, (p["blocks"], *cache))
    return rms_norm(x, p["ln_f"]), cache


def unembed(p, x):
    return jnp.einsum("bd,vd->bv", x, p["embed"]).astype(jnp.float32)


def sample_top_p(key, logits):
    logits = logits / TEMP
    order = jnp.argsort(-logits, axis=-1)
    ranked = jnp.take_along_axis(logits, order, -1)
    probs = jax.nn.softmax(ranked, -1)
    keep = jnp.cumsum(probs, -1) - probs < TOP_P
    pick = jax.random.categorical(key, jnp.where(keep, ranked, -jnp.inf))
    return jnp.take_along_axis(order, pick[:, None], -1)[:, 0].astype(jnp.int32)


def prefill(p, img_embed, prompt, prompt_len, cache):
    txt = p["embed"][prompt] * np.sqrt(TXT.dim).astype(jnp.bfloat16)
    x = jnp.concatenate([img_embed, txt.astype(img_embed.dtype)], 1)
    pos = jnp.broadcast_to(jnp.arange(PREFIX), (BATCH, PREFIX))
    valid = jnp.arange(CACHE)[None] < (IMG_TOKENS + prompt_len)[:, None]  # whole prefix sees itself
    x, cache = run_decoder(
        p, x, cache, pos, 0, jnp.broadcast_to(valid[:, None], (BATCH, PREFIX, CACHE))
    )
    last = jnp.take_along_axis(x, (IMG_TOKENS + prompt_len - 1)[:, None, None], 1)[:, 0]
    return last, cache


def decode_loop(p, first, cache, prompt_len, key):
    slots = jnp.arange(CACHE)[None]

    def cond(s):
        return (s["i"] < MAX_NEW - 1) & ~jnp.all(s["done"])

    def body(s):
        i = s["i"]
        pos = (IMG_TOKENS + prompt_len + i)[:, None]
        mask = (slots < (IMG_TOKENS + prompt_len)[:, None]) | (
            (slots >= PREFIX) & (slots <= PREFIX + i)
        )
        x = p["embed"][s["tok"]][:, None] * np.sqrt(TXT.dim).astype(jnp.bfloat16)
        x, cache = run_decoder(
            p, x.astype(jnp.bfloat16), s["cache"], pos, PREFIX + i, mask[:, None]
        )
        key, k = jax.random.split(s["key"])
        tok = sample_top_p(k, unembed(p, x[:, 0]))
        tok = jnp.where(s["done"], TXT.eos, tok)
        return dict(
            i=i + 1,
            tok=tok,
            done=s["done"] | (tok == TXT.eos),
            cache=cache,
            key=key,
            out=s["out"].at[:, i + 1].set(tok),
        )

    out = jnp.full((BATCH, MAX_NEW), TXT.eos, jnp.int32).at[:, 0].set(first)
    s = dict(i=jnp.int32(0), tok=first, done=first == TXT.eos, cache=cache, key=key, out=out)
    s = lax.while_loop(cond, body, s)
    return s["out"]


def caption(mesh, params, images, prompt, prompt_len, key):
    img = project(params["projector"], encode_image(params["vit"], images))
    z = jnp.zeros((TXT.layers, BATCH, CACHE, TXT.kv_heads, TXT.head_dim), jnp.bfloat16)
    z = lax.with_sharding_constraint(z, NamedSharding(mesh, P(None, None, None, "tp")))
    last, cache = prefill(params["lm"], img, prompt, prompt_len, (z, z))
    k0, k1 = jax.random.split(key)
    first = sample_top_p(k0, unembed(params["lm"], last))
    out = decode_loop(params["lm"], first, cache, prompt_len, k1)
    return out, jnp.sum(out != TXT.eos, -1)


def build(devices=None):
    devices = np.array(jax.devices() if devices is None else devices)[:8]
    mesh = Mesh(devices, ("tp",))
    S = lambda s, spec, d: jax.ShapeDtypeStruct(s, d, sharding=NamedSharding(mesh, spec))
    is_leaf = lambda x: isinstance(x, tuple)
    params = jax.tree.map(lambda t: S(t[0], t[1], jnp.bfloat16), param_specs(), is_leaf=is_leaf)
    return jax.jit(partial(caption, mesh)), (
        params,
        S((BATCH, VIS.image, VIS.image, 3), P(), jnp.uint8),
        S((BATCH, PROMPT), P(), jnp.int32),
        S((BATCH,), P(), jnp.int32),
        S((2,), P(), jnp.uint32),
    )
