TRUTH = """
One pre-training step (train_step) of a Gemma-3-1B-like language model in flax linen, about 0.95 B parameters, 16 x 4096 tokens, mesh fsdp 4 x tensor 2.

train_step
  loss_fn (forward)
    TextModel
      embed (262144 x 1152 lookup, scaled by sqrt(d))
      blocks: Group, nn.scan x4, checkpointed (nn.remat)
        local_0 .. local_4: DecoderLayer with local_attention (window 512, blocks of 512 queries against the block before and itself)
        global_0: DecoderLayer with global_attention (all 4096 keys, causal)
        each DecoderLayer: pre_attn_norm, attn (q, k, v, q_norm, k_norm, rope, attention, o), post_attn_norm, pre_mlp_norm, mlp (gate, up, gelu, down), post_mlp_norm
      final_norm
    chunked_cross_entropy: scan x8 over 512 positions each, chunk_loss checkpointed: logits with the tied embedding, logsumexp, z-loss
  backward: chunk loop x8 (logits recomputed), group loop x4 (the 6 layers recomputed, then their gradients)
  optimiser: optax clip_by_global_norm, adamw with warm-up cosine; apply_updates
  collectives: parameter all-gathers / gradient reductions over fsdp, activation reductions over tensor

Layers: 24 in all = 4 groups x 6; 20 local, 4 global. The 6 of a group are written out within the loop body.
Weight: the vocabulary projection (302 M weights, chunked) is about 11 layers' worth, a third of the forward work; then the mlp of the layers
(23.9 M weights each of 26.8 M); attention scores small in local, larger (8.4 M MAC per token) in global.
False would be: a loop of 24; a loop of 4 layers; local and global layers shown as the same thing x6; the chunk loop x8 called layers or micro-batches;
optimiser within a loop; the loss head shown as light; the scan x8 recomputation shown as another network.
First sight: embed -> x4 [5 local + 1 global] -> final norm -> chunked loss x8; backward the mirror; optimiser once.
Names true: TextModel, Group, local_i, global_0, attn, mlp, local_attention, global_attention, chunked_cross_entropy, chunk_loss.
"""

"""Gemma-3-1B style pre-training in flax linen: five sliding-window layers to each global one, groups scanned with
remat, tied 262k vocabulary with the loss taken in chunks of the sequence. FSDP x tensor parallel with GSPMD."""
from functools import partial
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

MESH = {"fsdp": 4, "tensor": 2}


class Config:
    vocab = 262144
    dim = 1152
    heads = 4
    kv_heads = 1
    head_dim = 256
    mlp_dim = 6912
    groups = 4
    locals_per_group = 5
    window = 512
    local_theta = 10_000.0
    global_theta = 1_000_000.0
    seq = 4096
    batch = 16
    loss_chunks = 8
    z_loss = 1e-4


class RMSNorm(nn.Module):
    @nn.compact
    def __call__(self, x):
        scale = self.param("scale", nn.initializers.zeros, (x.shape[-1],), jnp.float32)
        y = x.astype(jnp.float32)
        y = y * jax.lax.rsqrt(jnp.mean(y * y, axis=-1, keepdims=True) + 1e-6)
        return (y * (1.0 + scale)).astype(jnp.bfloat16)


def apply_rope(x, positions, theta):
    half = x.shape[-1] // 2
    freq = theta ** (-jnp.arange(half, dtype=jnp.float32) / half)
    ang = positions[:, None] * freq
    cos, sin = jnp.cos(ang)[None, :, None, :], jnp.sin(ang)[None, :, None, :]
    a, b = jnp.split(x.astype(jnp.float32), 2, axis=-1)
    return jnp.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1).astype(x.dtype)


def global_attention(q, k, v):
    """Plain causal attention. q: (B,T,H,hd), k and v: (B,T,hd) (a single kv head)."""
    t = q.shape[1]
    scores = jnp.einsum("bqhd,bkd->bhqk", q, k, preferred_element_type=jnp.float32)
    causal = jnp.arange(t)[:, None] >= jnp.arange(t)[None, :]
    scores = jnp.where(causal, scores, -2.0e38)
    probs = jax.nn.softmax(scores, axis=-1).astype(q.dtype)
    return jnp.einsum("bhqk,bkd->bqhd", probs, v)


def local_attention(q, k, v, window):
    """Banded attention: each block of `window` queries sees its own block and the one before."""
    b, t, h, d = q.shape
    n = t // window
    qb = q.reshape(b, n, window, h, d)

    def with_previous(x):
        blocks = x.reshape(b, n, window, d)
        before = jnp.pad(blocks, ((0, 0), (1, 0), (0, 0), (0, 0)))[:, :-1]
        return jnp.concatenate([before, blocks], axis=2)

    kb, vb = with_previous(k), with_previous(v)
    scores = jnp.einsum("bnqhd,bnkd->bnhqk", qb, kb, preferred_element_type=jnp.float32)
    qi = jnp.arange(window)[:, None] + window
    ki = jnp.arange(2 * window)[None, :]
    band = (ki <= qi) & (ki > qi - window)
    first = jnp.arange(n)[:, None, None] > 0
    mask = band[None] & (first | (ki >= window)[None])
    scores = jnp.where(mask[None, :, None], scores, -2.0e38)
    probs = jax.nn.softmax(scores, axis=-1).astype(q.dtype)
    return jnp.einsum("bnhqk,bnkd->bnqhd", probs, vb).reshape(b, t, h, d)


class Attention(nn.Module):
    cfg: Any
    is_global: bool

    @nn.compact
    def __call__(self, x):
        c = self.cfg
        dense = partial(nn.DenseGeneral, use_bias=False, dtype=jnp.bfloat16)
        q = dense((c.heads, c.head_dim), name="q")(x)
        k = dense(c.head_dim, name="k")(x)
        v = dense(c.head_dim, name="v")(x)
        q, k = RMSNorm(name="q_norm")(q), RMSNorm(name="k_norm")(k)
        pos = jnp.arange(x.shape[1], dtype=jnp.float32)
        theta = c.global_theta if self.is_global else c.local_theta
        q = apply_rope(q, pos, theta) * c.head_dim**-0.5
        k = apply_rope(k[:, :, None], pos, theta)[:, :, 0]
        y = global_attention(q, k, v) if self.is_global else local_attention(q, k, v, c.window)
        return dense(c.dim, axis=(-2, -1), name="o")(y)


class GatedMLP(nn.Module):
    cfg: Any

    @nn.compact
    def __call__(self, x):
        dense = partial(nn.Dense, use_bias=False, dtype=jnp.bfloat16)
        h = nn.gelu(dense(self.cfg.mlp_dim, name="gate")(x)) * dense(self.cfg.mlp_dim, name="up")(x)
        return dense(self.cfg.dim, name="down")(h)


class DecoderLayer(nn.Module):
    cfg: Any
    is_global: bool = False

    @nn.compact
    def __call__(self, x):
        h = Attention(self.cfg, self.is_global, name="attn")(RMSNorm(name="pre_attn_norm")(x))
        x = x + RMSNorm(name="post_attn_norm")(h)
        h = GatedMLP(self.cfg, name="mlp")(RMSNorm(name="pre_mlp_norm")(x))
        return x + RMSNorm(name="post_mlp_norm")(h)


class Group(nn.Module):
    cfg: Any

    @nn.compact
    def __call__(self, x, _):
        for i in range(self.cfg.locals_per_group):
            x = DecoderLayer(self.cfg, name=f"local_{i}")(x)
        x = DecoderLayer(self.cfg, is_global=True, name="global_0")(x)
        return x, None


class TextModel(nn.Module):
    cfg: Any

    def setup(self):
        c = self.cfg
        self.embed = nn.Embed(c.vocab, c.dim, dtype=jnp.bfloat16)
        group = nn.remat(Group, prevent_cse=False)
        self.blocks = nn.scan(
            group, variable_axes={"params": 0}, split_rngs={"params": True}, length=c.groups
        )(c)
        self.final_norm = RMSNorm()

    def __call__(self, tokens):
        x = self.embed(tokens) * jnp.asarray(self.cfg.dim**0.5, jnp.bfloat16)
        x, _ = self.blocks(x, None)
        return self.final_norm(x)


def chunked_cross_entropy(hidden, table, targets, mask, cfg):
    """Cross entropy with z-loss; only one chunk of the logits is alive at a time."""
    b, t, d = hidden.shape
    split = lambda a: jnp.moveaxis(
        a.reshape((b, cfg.loss_chunks, t // cfg.loss_chunks) + a.shape[2:]), 1, 0
    )

    @jax.checkpoint
    def chunk_loss(total, chunk):
        h, y, m = chunk
        logits = jnp.einsum(
            "btd,vd->btv", h, table.astype(jnp.bfloat16), preferred_element_type=jnp.float32
        )
        lse = jax.nn.logsumexp(logits, axis=-1)
        picked = jnp.take_along_axis(logits, y[..., None], axis=-1)[..., 0]
        per_token = lse - picked + cfg.z_loss * lse**2
        return total + jnp.sum(per_token * m), None

    total, _ = jax.lax.scan(chunk_loss, jnp.zeros(()), (split(hidden), split(targets), split(mask)))
    return total / jnp.maximum(mask.sum(), 1.0)


def partition(path, leaf):
    name = "/".join(str(getattr(k, "key", k)) for k in path)
    lead = (None,) if "blocks" in name else ()
    if "embedding" in name:
        return P("tensor", "fsdp")
    if "/q/" in name:
        return P(*lead, "fsdp", "tensor", None)
    if "/o/" in name:
        return P(*lead, "tensor", None, "fsdp")
    if "/k/" in name or "/v/" in name:
        return P(*lead, "fsdp", None)
    if "/gate/" in name or "/up/" in name:
        return P(*lead, "fsdp", "tensor")
    if "/down/" in name:
        return P(*lead, "tensor", "fsdp")
    return P()


def make(mesh):
    cfg = Config()
    model = TextModel(cfg)
    schedule = optax.warmup_cosine_decay_schedule(0.0, 3e-4, 2000, 100_000, 3e-5)
    optimizer = optax.chain(
        optax.clip_by_global_norm(1.0), optax.adamw(schedule, b2=0.95, weight_decay=0.1)
    )

    def loss_fn(params, batch):
        hidden = model.apply({"params": params}, batch["tokens"])
        table = params["embed"]["embedding"]
        return chunked_cross_entropy(hidden, table, batch["targets"], batch["mask"], cfg)

    @partial(jax.jit, donate_argnums=(0, 1))
    def train_step(params, opt_state, batch):
        loss, grads = jax.value_and_grad(loss_fn)(params, batch)
        updates, opt_state = optimizer.update(grads, opt_state, params)
        params = optax.apply_updates(params, updates)
        return params, opt_state, {"loss": loss, "grad_norm": optax.global_norm(grads)}

    def shaped(tree):
        put = lambda p, l: jax.ShapeDtypeStruct(
            l.shape, l.dtype, sharding=NamedSharding(mesh, partition(p, l))
        )
        return jax.tree_util.tree_map_with_path(put, tree)

    tokens = jnp.zeros((1, cfg.seq), jnp.int32)
    params = jax.eval_shape(lambda k: model.init(k, tokens)["params"], jax.random.key(0))
    opt_state = jax.eval_shape(optimizer.init, params)
    data = NamedSharding(mesh, P("fsdp", None))
    tok = jax.ShapeDtypeStruct((cfg.batch, cfg.seq), jnp.int32, sharding=data)
    mask = jax.ShapeDtypeStruct((cfg.batch, cfg.seq), jnp.float32, sharding=data)
    return train_step, (
        shaped(params),
        shaped(opt_state),
        {"tokens": tok, "targets": tok, "mask": mask},
    )
