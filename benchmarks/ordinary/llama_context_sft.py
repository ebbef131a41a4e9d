TRUTH = """
One supervised fine-tuning step (sft_step) of a 1.24 B Llama-3.2-1B-like model on packed 16384-token sequences, plain dicts, context parallel:
mesh data 2 x ctx 4, 8 sequences. No tensor parallelism: parameters are sharded over all 8 devices (ZeRO-3) and gathered.

sft_step
  sft_loss (forward)
    llama
      embed lookup
      decoder_layer x16, written out (python loop, no scan), each jax.checkpoint
        attention: rms_norm, wq, wk, wv, rope -> context_attention (shard_map: all-gather of k, v, segments, positions over ctx; lax.scan x16 over
          key blocks of 1024, key_block with running max and sum, checkpointed) -> wo
        swiglu: rms_norm, w_gate, w_up, w_down
      final rms_norm
    packed_token_loss (shard_map: lax.map x16 chunks of 1024 tokens, chunk_nll, checkpointed)
  backward: chunk loop; 16 layers each recomputed with its block loop, then the backward block loop; gradient reduce
  lion: hand written optimiser (sign of interpolated momentum), clipping by clip_gradients before it

Loops in the program are only the key-block loop (x16 each of 16 layers) and the loss chunk loop (x16): both trip counts are 16, and so is the number of layers; they are three different things.
Weight: attention over key blocks (no causal skipping: 16384 keys x 2048 x 2 = 67 M MAC per token and layer) > swiglu (50 M) > wq..wo (10.5 M); vocabulary 263 M = about two layers of 128 M.
False would be: calling the x16 loop "layers"; ring attention / ppermute (it is all-gather); tensor parallel; optimiser in a loop; the backward recompute counted as more layers.
shard_map lies within each layer, not around the program.
First sight: embed -> 16 alike layers (attention with a loop over key blocks + swiglu) -> loss in chunks; backward; clip; lion.
Names true: llama, decoder_layer, attention, context_attention, key_block, swiglu, packed_token_loss, chunk_nll, clip_gradients, lion.
"""

"""Long-context SFT of a Llama-3.2-1B: packed conversations of 16k tokens, the sequence split over "ctx" (context
parallel with gathered keys and values), weights fully sharded over all devices. Plain dicts, layers in a list."""
from functools import partial

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

MESH = {"data": 2, "ctx": 4}
DIM, LAYERS, HEADS, KV_HEADS, HEAD_DIM, FFN, VOCAB = 2048, 16, 32, 8, 64, 8192, 128256
SEQ, BATCH, KEY_BLOCK, LOSS_CHUNK = 16384, 8, 1024, 1024
ROPE_THETA = 500000.0
BF16, F32 = jnp.bfloat16, jnp.float32


def rms_norm(x, scale):
    y = x.astype(F32)
    return (y * lax.rsqrt(jnp.mean(jnp.square(y), -1, keepdims=True) + 1e-5) * scale).astype(BF16)


def rope(x, positions):
    half = HEAD_DIM // 2
    inv = ROPE_THETA ** (-jnp.arange(half) / half)
    ang = positions[..., None].astype(F32) * inv
    cos, sin = jnp.cos(ang)[:, :, None], jnp.sin(ang)[:, :, None]
    a, b = x[..., :half].astype(F32), x[..., half:].astype(F32)
    return jnp.concatenate([a * cos - b * sin, b * cos + a * sin], -1).astype(x.dtype)


def context_attention(q, k, v, segments, positions):
    """Per-device body. Queries stay local; keys and values of the whole row are gathered over ctx and walked
    in blocks with a running softmax."""
    gather = partial(lax.all_gather, axis_name="ctx", axis=1, tiled=True)
    k_all, v_all, seg_all, pos_all = gather(k), gather(v), gather(segments), gather(positions)
    b, t, _, _ = q.shape
    q = q.reshape(b, t, KV_HEADS, HEADS // KV_HEADS, HEAD_DIM) * HEAD_DIM**-0.5
    n = k_all.shape[1] // KEY_BLOCK
    blocks = lambda x: jnp.moveaxis(x.reshape((b, n, KEY_BLOCK) + x.shape[2:]), 1, 0)

    @jax.checkpoint
    def key_block(carry, block):
        acc, top, total = carry
        kb, vb, sb, pb = block
        s = jnp.einsum("btkgd,bskd->bkgts", q, kb, preferred_element_type=F32)
        ok = (segments[:, :, None] == sb[:, None, :]) & (positions[:, :, None] >= pb[:, None, :])
        s = jnp.where(ok[:, None, None], s, -1e30)
        new_top = jnp.maximum(top, s.max(-1))
        scale = jnp.exp(top - new_top)
        p = jnp.exp(s - new_top[..., None])
        total = total * scale + p.sum(-1)
        acc = acc * scale[..., None] + jnp.einsum(
            "bkgts,bskd->bkgtd", p.astype(BF16), vb, preferred_element_type=F32
        )
        return (acc, new_top, total), None

    shape = (b, KV_HEADS, HEADS // KV_HEADS, t)
    start = (
        jnp.zeros(shape + (HEAD_DIM,), F32),
        jnp.full(shape, -1e30, F32),
        jnp.zeros(shape, F32),
    )
    (acc, _, total), _ = lax.scan(
        key_block, start, (blocks(k_all), blocks(v_all), blocks(seg_all), blocks(pos_all))
    )
    out = acc / jnp.maximum(total, 1e-20)[..., None]
    return jnp.moveaxis(out, 3, 1).reshape(b, t, HEADS * HEAD_DIM).astype(BF16)


def attention(p, x, segments, positions, mesh):
    b, t, _ = x.shape
    h = rms_norm(x, p["attn_norm"])
    q = rope((h @ p["wq"].astype(BF16)).reshape(b, t, HEADS, HEAD_DIM), positions)
    k = rope((h @ p["wk"].astype(BF16)).reshape(b, t, KV_HEADS, HEAD_DIM), positions)
    v = (h @ p["wv"].astype(BF16)).reshape(b, t, KV_HEADS, HEAD_DIM)
    row, ids = P("data", "ctx", None, None), P("data", "ctx")
    attend = jax.shard_map(
        context_attention,
        mesh=mesh,
        in_specs=(row, row, row, ids, ids),
        out_specs=P("data", "ctx", None),
        check_vma=False,
    )
    return attend(q, k, v, segments, positions) @ p["wo"].astype(BF16)


def swiglu(p, x):
    h = rms_norm(x, p["ffn_norm"])
    return (jax.nn.silu(h @ p["w_gate"].astype(BF16)) * (h @ p["w_up"].astype(BF16))) @ p[
        "w_down"
    ].astype(BF16)


def decoder_layer(p, x, segments, positions, mesh):
    x = x + attention(p, x, segments, positions, mesh)
    x = x + swiglu(p, x)
    return lax.with_sharding_constraint(x, NamedSharding(mesh, P("data", "ctx", None)))


def llama(params, batch, mesh):
    x = params["embed"].astype(BF16)[batch["tokens"]]
    x = lax.with_sharding_constraint(x, NamedSharding(mesh, P("data", "ctx", None)))
    for layer in params["layers"]:
        run = jax.checkpoint(partial(decoder_layer, mesh=mesh))
        x = run(layer, x, batch["segments"], batch["positions"])
    return rms_norm(x, params["final_norm"])


def packed_token_loss(hidden, embed, targets, weights, mesh):
    """Summed loss over answer tokens; each device does its own tokens, chunk by chunk."""

    def per_device(h, e, y, w):
        h, y, w = (
            h.reshape(-1, LOSS_CHUNK, DIM),
            y.reshape(-1, LOSS_CHUNK),
            w.reshape(-1, LOSS_CHUNK),
        )

        @jax.checkpoint
        def chunk_nll(c):
            hc, yc, wc = c
            logits = jnp.einsum("td,vd->tv", hc, e, preferred_element_type=F32)
            nll = jax.nn.logsumexp(logits, -1) - jnp.take_along_axis(logits, yc[:, None], -1)[:, 0]
            return jnp.sum(nll * wc)

        return lax.map(chunk_nll, (h, y, w)).sum()[None]

    ids = P("data", "ctx")
    body = jax.shard_map(
        per_device,
        mesh=mesh,
        in_specs=(P("data", "ctx", None), P(), ids, ids),
        out_specs=P(("data", "ctx")),
        check_vma=False,
    )
    return body(hidden, embed.astype(BF16), targets, weights).sum()


def sft_loss(params, batch, mesh):
    hidden = llama(params, batch, mesh)
    weights = batch["answer_mask"].astype(F32)
    total = packed_token_loss(hidden, params["embed"], batch["targets"], weights, mesh)
    return total / jnp.maximum(weights.sum(), 1.0)


def clip_gradients(grads, limit=1.0):
    norm = jnp.sqrt(sum(jnp.sum(jnp.square(g)) for g in jax.tree.leaves(grads)))
    factor = jnp.minimum(1.0, limit / (norm + 1e-6))
    return jax.tree.map(lambda g: g * factor, grads), norm


def lion(params, grads, momentum, lr, b1=0.9, b2=0.99, wd=0.1):
    def update(p, g, m):
        direction = jnp.sign(b1 * m + (1 - b1) * g)
        return p - lr * (direction + wd * p)

    new = jax.tree.map(update, params, grads, momentum)
    momentum = jax.tree.map(lambda m, g: b2 * m + (1 - b2) * g, momentum, grads)
    return new, momentum


def linear_warmdown(step, peak=2e-5, warm=100, total=4000):
    s = step.astype(F32)
    return peak * jnp.minimum(s / warm, jnp.maximum(0.0, (total - s) / (total - warm)))


def parameter_shapes():
    layer = {
        "attn_norm": (DIM,),
        "ffn_norm": (DIM,),
        "wq": (DIM, HEADS * HEAD_DIM),
        "wk": (DIM, KV_HEADS * HEAD_DIM),
        "wv": (DIM, KV_HEADS * HEAD_DIM),
        "wo": (HEADS * HEAD_DIM, DIM),
        "w_gate": (DIM, FFN),
        "w_up": (DIM, FFN),
        "w_down": (FFN, DIM),
    }
    return {
        "embed": (VOCAB, DIM),
        "final_norm": (DIM,),
        "layers": [dict(layer) for _ in range(LAYERS)],
    }


def make(mesh):
    def leaf(shape):
        spec = P() if len(shape) == 1 else P(("data", "ctx"), None)
        return jax.ShapeDtypeStruct(shape, F32, sharding=NamedSharding(mesh, spec))

    params = jax.tree.map(leaf, parameter_shapes(), is_leaf=lambda s: isinstance(s, tuple))
    shardings = jax.tree.map(lambda s: s.sharding, params)
    rep = NamedSharding(mesh, P())

    @partial(jax.jit, donate_argnums=(0, 1), out_shardings=(shardings, shardings, rep))
    def sft_step(params, momentum, batch, step):
        loss, grads = jax.value_and_grad(sft_loss)(params, batch, mesh)
        grads = lax.with_sharding_constraint(grads, shardings)
        grads, norm = clip_gradients(grads)
        params, momentum = lion(params, grads, momentum, linear_warmdown(step))
        return params, momentum, {"loss": loss, "grad_norm": norm}

    ids = jax.ShapeDtypeStruct(
        (BATCH, SEQ), jnp.int32, sharding=NamedSharding(mesh, P("data", "ctx"))
    )
    batch = {"tokens": ids, "targets": ids, "segments": ids, "positions": ids, "answer_mask": ids}
    return sft_step, (params, params, batch, jax.ShapeDtypeStruct((), jnp.int32, sharding=rep))
