TRUTH = """
# block_diffusion_serve - block-diffusion LM generation with cache; plain jax with dataclasses, shard_map batch=2 x tp=4; inference

1. Order: **prefill**: prompt 512, **layers loop x10**, fills the cache -> **blocks: loop x4** { start with 32 mask tokens -> **denoising: loop x8** { **layers loop x10** on 32 tokens against the cache (also overwriting the block's keys/values) -> head -> gumbel arg max over the split vocabulary + confidence -> unmask the 4 most confident } -> **commit**: layers loop x10 once more with final tokens } -> tokens [8, 128], confidences.
2. Layer: norm, q / kv (12 and 4 heads, 3 and 1 per device), rotary, write the cache, attention, out, all-reduce; norm, gate/up/silu/down, all-reduce.
3. Work 0.29 TF per device (2.35 TF in all): prefill 25%, denoising layers 51%, denoising head 18%, commit 6%. In layers: MLP 65%, q + out 16%, attention 14%, kv 5%.
4. Collectives (tp): 2 all-reduces per layer: 20 in prefill, 640 in denoising, 80 in commit as executed; per denoising step also maximum, sum and 3 gathers of the winners [4, 4, 32] (small). None over "batch".
5. First picture: prefill (layers x10) -> blocks x4 { denoise x8 { layers x10 -> head -> pick tokens } -> commit (layers x10) } -> output.
6. Arrows: cache goes prefill -> blocks loop -> denoising loop -> layers loop, and round; weights constant; tokens around the denoising loop.
7. Should not stand out: rotary, masks, random gumbel bits, top-k/one-hot of unmasking, cache slices and updates.
8. Misleading: autoregressive decode (it is not token by token); backward or optimizer (none); three layer loops are the same weights; 4 blocks / tp=4 / reveal of 4 are different fours; prefill's head is absent.
"""

"""Serving a masked block-diffusion language model (LLaDA / BD3-LM like), tensor parallel in shard_map."""
import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

MESH = {"batch": 2, "tp": 4}


@dataclasses.dataclass(frozen=True)
class Config:
    vocab: int = 32768
    width: int = 768
    layers: int = 10
    heads: int = 12
    kv_heads: int = 4
    ff: int = 2048
    prompt: int = 512
    block: int = 32
    blocks: int = 4
    denoise_steps: int = 8
    mask_id: int = 32767

    @property
    def head_dim(self):
        return self.width // self.heads

    @property
    def cache_len(self):
        return self.prompt + self.block * self.blocks


@partial(
    jax.tree_util.register_dataclass,
    data_fields=["norm1", "q", "kv", "o", "norm2", "gate", "up", "down"],
    meta_fields=[],
)
@dataclasses.dataclass
class LayerWeights:  # stacked over the layers
    norm1: jax.Array
    q: jax.Array
    kv: jax.Array
    o: jax.Array
    norm2: jax.Array
    gate: jax.Array
    up: jax.Array
    down: jax.Array


@partial(
    jax.tree_util.register_dataclass,
    data_fields=["embed", "layers", "norm", "head"],
    meta_fields=[],
)
@dataclasses.dataclass
class Weights:
    embed: jax.Array
    layers: LayerWeights
    norm: jax.Array
    head: jax.Array


@partial(jax.tree_util.register_dataclass, data_fields=["k", "v"], meta_fields=[])
@dataclasses.dataclass
class Cache:  # [layers, batch, cache_len, kv heads, head dim]
    k: jax.Array
    v: jax.Array


def shapes_and_specs(c: Config):
    n, w = c.layers, c.width
    layers = LayerWeights(
        norm1=((n, w), P()),
        q=((n, w, c.heads, c.head_dim), P(None, None, "tp")),
        kv=((n, w, 2, c.kv_heads, c.head_dim), P(None, None, None, "tp")),
        o=((n, c.heads, c.head_dim, w), P(None, "tp")),
        norm2=((n, w), P()),
        gate=((n, w, c.ff), P(None, None, "tp")),
        up=((n, w, c.ff), P(None, None, "tp")),
        down=((n, c.ff, w), P(None, "tp")),
    )
    return Weights(((c.vocab, w), P()), layers, ((w,), P()), ((w, c.vocab), P(None, "tp")))


def rms(x, g):
    x32 = x.astype(jnp.float32)
    return (x32 * lax.rsqrt(jnp.mean(x32**2, -1, keepdims=True) + 1e-5)).astype(x.dtype) * g


def rotary(x, positions):
    half = x.shape[-1] // 2
    angle = positions[:, None, None] * 1e4 ** (-jnp.arange(half) / half)
    cos, sin = jnp.cos(angle).astype(x.dtype), jnp.sin(angle).astype(x.dtype)
    a, b = jnp.split(x, 2, -1)
    return jnp.concatenate([a * cos - b * sin, b * cos + a * sin], -1)


def attend(q, k, v, visible):
    groups = q.shape[2] // k.shape[2]
    q = q.reshape(*q.shape[:2], k.shape[2], groups, q.shape[-1])
    s = jnp.einsum("bqhgd,bkhd->bhgqk", q, k).astype(jnp.float32) * q.shape[-1] ** -0.5
    p = jax.nn.softmax(jnp.where(visible, s, -1e30), -1).astype(v.dtype)
    return jnp.einsum("bhgqk,bkhd->bqhgd", p, v).reshape(q.shape[0], q.shape[1], -1, q.shape[-1])


class Model:
    def __init__(self, config: Config, weights: Weights):
        self.c, self.w = config, weights

    def trunk(self, tokens, cache, start, visible):
        """run tokens at positions start.. against the cache; new keys and values are written there"""
        positions = start + jnp.arange(tokens.shape[1])

        def layer(x, inp):
            w, ck, cv = inp
            h = rms(x, w.norm1)
            q = rotary(jnp.einsum("btw,whd->bthd", h, w.q), positions)
            k, v = jnp.moveaxis(jnp.einsum("btw,wchd->bcthd", h, w.kv), 1, 0)
            ck = lax.dynamic_update_slice(ck, rotary(k, positions), (0, start, 0, 0))
            cv = lax.dynamic_update_slice(cv, v, (0, start, 0, 0))
            y = attend(q, ck, cv, visible)
            x = x + lax.psum(jnp.einsum("bthd,hdw->btw", y, w.o), "tp")
            h = rms(x, w.norm2)
            x = x + lax.psum((jax.nn.silu(h @ w.gate) * (h @ w.up)) @ w.down, "tp")
            return x, (ck, cv)

        x, (k, v) = lax.scan(layer, self.w.embed[tokens], (self.w.layers, cache.k, cache.v))
        return x, Cache(k, v)

    def confidence(self, x, key, temperature):
        """gumbel-max token and its probability; the vocabulary is split over tp"""
        logits = (rms(x, self.w.norm) @ self.w.head).astype(jnp.float32)
        local = logits.shape[-1]
        offset = lax.axis_index("tp") * local
        ids = offset + jnp.arange(local)
        logits = jnp.where(ids == self.c.mask_id, -1e30, logits)
        noise = jax.random.gumbel(jax.random.fold_in(key, lax.axis_index("tp")), logits.shape)
        noisy = logits + temperature * noise
        best = jnp.argmax(noisy, -1)
        top = jnp.take_along_axis(noisy, best[..., None], -1)[..., 0]
        raw = jnp.take_along_axis(logits, best[..., None], -1)[..., 0]
        peak = lax.pmax(logits.max(-1), "tp")
        total = lax.psum(jnp.exp(logits - peak[..., None]).sum(-1), "tp")
        tops, raws, bests = (lax.all_gather(a, "tp") for a in (top, raw, best + offset))
        winner = jnp.argmax(tops, 0)[None]
        pick = lambda a: jnp.take_along_axis(a, winner, 0)[0]
        return pick(bests), jnp.exp(pick(raws) - peak) / total

    def prefill(self, prompt, cache):
        reach = jnp.arange(self.c.cache_len)[None] < self.c.prompt
        return self.trunk(prompt, cache, 0, reach)[1]

    def denoise_block(self, cache, start, key, temperature):
        c = self.c
        visible = jnp.arange(c.cache_len)[None] < start + c.block
        reveal = c.block // c.denoise_steps

        def step(carry, key):
            tokens, cache = carry
            x, cache = self.trunk(tokens, cache, start, visible)
            proposal, conf = self.confidence(x, key, temperature)
            hidden = tokens == c.mask_id
            conf = jnp.where(hidden, conf, -1.0)
            _, chosen = lax.top_k(conf, reveal)
            take = jax.nn.one_hot(chosen, c.block, dtype=jnp.bool_).any(1) & hidden
            return (jnp.where(take, proposal, tokens), cache), conf.max(-1)

        masked = jnp.full((cache.k.shape[1], c.block), c.mask_id, jnp.int32)
        (tokens, cache), conf = lax.scan(
            step, (masked, cache), jax.random.split(key, c.denoise_steps)
        )
        _, cache = self.trunk(tokens, cache, start, visible)  # commit the finished block
        return tokens, cache, conf

    def generate(self, prompt, key, temperature):
        c = self.c
        kv = jnp.zeros(
            (c.layers, prompt.shape[0], c.cache_len, c.kv_heads // MESH["tp"], c.head_dim),
            jnp.bfloat16,
        )
        cache = self.prefill(prompt, Cache(kv, kv))

        def one(cache, inp):
            i, key = inp
            tokens, cache, conf = self.denoise_block(
                cache, c.prompt + i * c.block, key, temperature
            )
            return cache, (tokens, conf.mean(0))

        _, (tokens, conf) = lax.scan(
            one, cache, (jnp.arange(c.blocks), jax.random.split(key, c.blocks))
        )
        return tokens.swapaxes(0, 1).reshape(prompt.shape[0], -1), conf.T


def make(mesh):
    c = Config()
    leaf = lambda x: isinstance(x, tuple)
    tree = shapes_and_specs(c)
    specs = jax.tree.map(lambda x: x[1], tree, is_leaf=leaf)
    S = lambda s, spec, d: jax.ShapeDtypeStruct(s, d, sharding=NamedSharding(mesh, spec))
    weights = jax.tree.map(lambda x: S(*x, jnp.bfloat16), tree, is_leaf=leaf)

    def serve(weights, prompt, key, temperature):
        return Model(c, weights).generate(prompt, key, temperature)

    f = jax.shard_map(
        serve,
        mesh=mesh,
        in_specs=(specs, P("batch"), P(), P()),
        out_specs=(P("batch"), P("batch")),
        check_vma=False,
    )
    args = (
        weights,
        S((8, c.prompt), P("batch"), jnp.int32),
        S((2,), P(), jnp.uint32),
        S((), P(), jnp.float32),
    )
    return jax.jit(f), args
