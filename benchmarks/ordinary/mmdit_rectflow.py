TRUTH = """
# mmdit_rectflow - SD3-style MMDiT rectified-flow training step (latents + precomputed text); flax.linen nn.scan + remat, data 4 x fsdp 2, optax AdamW + EMA

1. Order: sample t (logit-normal), noise, x_t = (1-t) x0 + t eps, drop text 10% -> **patchify** latents (2x2 conv, 256 tokens) + position; timestep MLP + pooled-text MLP -> condition c; context projection 4096->1024 (154 text tokens) -> **joint blocks: loop x16** { two streams (image, text) with own weights: adaLN modulation from c (6 vectors each), LayerNorm, qkv with q/k RMSNorm; **joint attention over 410 tokens** (16 heads); per stream: out projection, gate, LayerNorm, MLP 1024-4096-1024, gate } -> final adaLN, linear, unpatchify -> MSE with (eps - x0) -> backward: head, **loop x16 reversed** { recompute block, backward }, embedders -> clip -> AdamW -> EMA 0.9999.
2. Work ~91 TF for batch 128: joint blocks ~99%, context projection 0.7%. In a block: MLPs 62%, qkv + out 31%, scores/values 6%, adaLN 0.2% FLOPs (but 12.6 M of 38 M weights a block). Image stream 62%, text stream 38% of tokens. Forward 25%, recompute 25%, backward 50%. The text stream's post part in the last block is not needed by the loss, yet runs since blocks are one loop.
3. Loops: forward x16, backward x16 (recompute + backward).
4. Device axes: batch over data AND fsdp (8-way); fsdp (2) also shards parameters, moments, EMA on the largest dimension: all-gather of each block's weights in forward and again in backward loops; reduce-scatter (or all-reduce + slice) of gradients over fsdp and all-reduce over data; scalar reductions for loss and the norm.
5. First picture: noise + interpolate -> patchify / time + pooled embedding / context projection -> joint block x16 (image stream, text stream, joint attention) -> final layer -> MSE -> backward x16 with recompute -> clip, AdamW, EMA.
6. Arrows: (img, txt) around the loop; c constant into all iterations (its gradient is summed around the backward loop); params, ema; eps and x0 to the target.
7. Should not stand out: RNG, timestep sin/cos, split/concat, casts, MSE, schedule.
8. Typically wrong: image and text stream merged to one, or MLP "twice" without reason; loop taken as diffusion sampling steps (it is layers; there is no sampler); EMA missed; fsdp all-gathers named as tensor parallelism; the gradient of c accumulated in the backward loop called optimizer.
"""

"""SD3-style MMDiT, rectified flow training on precomputed VAE latents and text embeddings.

Batch over (data, fsdp); parameters, moments and EMA sharded over fsdp.
"""
from typing import Any

import flax
import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

MESH = {"data": 4, "fsdp": 2}

WIDTH, DEPTH, HEADS = 1024, 16, 16
LATENT, CH, PATCH = 32, 16, 2
TXT, TXT_DIM, POOLED = 154, 4096, 2048
BATCH = 128
DTYPE = jnp.bfloat16


def modulate(x, shift, scale):
    return x * (1 + scale[:, None]) + shift[:, None]


def dense(n, name, zero=False):
    init = nn.initializers.zeros if zero else nn.initializers.xavier_uniform()
    return nn.Dense(n, dtype=DTYPE, kernel_init=init, name=name)


class Stream(nn.Module):
    """The per-modality half of a joint block."""

    def setup(self):
        self.ada = dense(6 * WIDTH, "ada", zero=True)
        self.norm1 = nn.LayerNorm(use_bias=False, use_scale=False, dtype=DTYPE)
        self.norm2 = nn.LayerNorm(use_bias=False, use_scale=False, dtype=DTYPE)
        self.qkv = dense(3 * WIDTH, "qkv")
        self.q_norm = nn.RMSNorm(dtype=DTYPE)
        self.k_norm = nn.RMSNorm(dtype=DTYPE)
        self.out = dense(WIDTH, "out")
        self.fc1 = dense(4 * WIDTH, "fc1")
        self.fc2 = dense(WIDTH, "fc2")

    def pre(self, x, c):
        mods = jnp.split(self.ada(nn.silu(c)), 6, axis=-1)
        h = modulate(self.norm1(x), mods[0], mods[1])
        b, n, _ = h.shape
        q, k, v = jnp.split(self.qkv(h).reshape(b, n, HEADS, -1), 3, axis=-1)
        return (self.q_norm(q), self.k_norm(k), v), mods

    def post(self, x, attn, mods):
        x = x + mods[2][:, None] * self.out(attn)
        h = modulate(self.norm2(x), mods[3], mods[4])
        return x + mods[5][:, None] * self.fc2(nn.gelu(self.fc1(h)))


class JointBlock(nn.Module):
    @nn.compact
    def __call__(self, carry, c):
        img, txt = carry
        img_stream, txt_stream = Stream(name="img"), Stream(name="txt")
        (qi, ki, vi), mi = img_stream.pre(img, c)
        (qt, kt, vt), mt = txt_stream.pre(txt, c)
        q, k, v = (jnp.concatenate(p, 1) for p in ((qt, qi), (kt, ki), (vt, vi)))
        o = jax.nn.dot_product_attention(q, k, v)
        o = o.reshape(*o.shape[:2], WIDTH)
        txt = txt_stream.post(txt, o[:, :TXT], mt)
        img = img_stream.post(img, o[:, TXT:], mi)
        return (img, txt), None


def timestep_features(t, dim=256):
    freqs = jnp.exp(-jnp.log(10000.0) * jnp.arange(dim // 2) / (dim // 2))
    arg = 1000.0 * t[:, None] * freqs
    return jnp.concatenate([jnp.cos(arg), jnp.sin(arg)], -1)


class MMDiT(nn.Module):
    @nn.compact
    def __call__(self, z, t, txt, pooled):
        b = z.shape[0]
        g = LATENT // PATCH
        x = nn.Conv(WIDTH, (PATCH, PATCH), (PATCH, PATCH), dtype=DTYPE, name="patchify")(z)
        x = x.reshape(b, g * g, WIDTH) + self.param(
            "pos", nn.initializers.normal(0.02), (1, g * g, WIDTH)
        ).astype(DTYPE)
        c = dense(WIDTH, "t_fc2")(nn.silu(dense(WIDTH, "t_fc1")(timestep_features(t))))
        c = c + dense(WIDTH, "pool_fc2")(nn.silu(dense(WIDTH, "pool_fc1")(pooled)))
        txt = dense(WIDTH, "context_proj")(txt)
        blocks = nn.scan(
            nn.remat(JointBlock, prevent_cse=False),
            variable_axes={"params": 0},
            split_rngs={"params": True},
            in_axes=nn.broadcast,
            length=DEPTH,
        )
        (x, _), _ = blocks(name="blocks")((x, txt), c)
        shift, scale = jnp.split(dense(2 * WIDTH, "final_ada", zero=True)(nn.silu(c)), 2, -1)
        x = modulate(nn.LayerNorm(use_bias=False, use_scale=False, dtype=DTYPE)(x), shift, scale)
        x = nn.Dense(PATCH * PATCH * CH, kernel_init=nn.initializers.zeros, name="final")(
            x.astype(jnp.float32)
        )
        x = x.reshape(b, g, g, PATCH, PATCH, CH).transpose(0, 1, 3, 2, 4, 5)
        return x.reshape(b, LATENT, LATENT, CH)


model = MMDiT()
tx = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(1e-4, 0.9, 0.95, weight_decay=0.01))


@flax.struct.dataclass
class Train:
    params: Any
    ema: Any
    opt: Any
    step: jax.Array


def init(key):
    p = model.init(
        key,
        jnp.zeros((1, LATENT, LATENT, CH)),
        jnp.zeros((1,)),
        jnp.zeros((1, TXT, TXT_DIM)),
        jnp.zeros((1, POOLED)),
    )["params"]
    return Train(p, p, tx.init(p), jnp.zeros((), jnp.int32))


def rectified_flow_loss(params, batch, key):
    k_t, k_eps, k_drop = jax.random.split(key, 3)
    x0 = batch["latent"]
    n = x0.shape[0]
    t = jax.nn.sigmoid(jax.random.normal(k_t, (n,)))  # logit-normal
    eps = jax.random.normal(k_eps, x0.shape)
    tt = t[:, None, None, None]
    xt = (1 - tt) * x0 + tt * eps
    keep = jax.random.bernoulli(k_drop, 0.9, (n,))
    txt = jnp.where(keep[:, None, None], batch["txt"], 0)
    pooled = jnp.where(keep[:, None], batch["pooled"], 0)
    v = model.apply({"params": params}, xt, t, txt, pooled)
    return jnp.mean(jnp.square(v - (eps - x0)))


def train_step(state, batch, key):
    key = jax.random.fold_in(key, state.step)
    loss, grads = jax.value_and_grad(rectified_flow_loss)(state.params, batch, key)
    updates, opt = tx.update(grads, state.opt, state.params)
    params = optax.apply_updates(state.params, updates)
    ema = jax.tree.map(lambda e, p: 0.9999 * e + 0.0001 * p, state.ema, params)
    return Train(params, ema, opt, state.step + 1), loss


def fsdp_spec(x, n):
    """largest dimension divisible by n; small things stay replicated"""
    if x.size < 2**16:
        return P()
    dim = max((s, i) for i, s in enumerate(x.shape) if s % n == 0 and s > DEPTH)[1]
    return P(*["fsdp" if i == dim else None for i in range(x.ndim)])


def make(mesh):
    key = jax.ShapeDtypeStruct((2,), jnp.uint32)
    state = jax.tree.map(
        lambda x: jax.ShapeDtypeStruct(
            x.shape, x.dtype, sharding=NamedSharding(mesh, fsdp_spec(x, mesh.shape["fsdp"]))
        ),
        jax.eval_shape(init, key),
    )
    rows = NamedSharding(mesh, P(("data", "fsdp")))
    batch = {
        "latent": jax.ShapeDtypeStruct((BATCH, LATENT, LATENT, CH), jnp.float32, sharding=rows),
        "txt": jax.ShapeDtypeStruct((BATCH, TXT, TXT_DIM), jnp.bfloat16, sharding=rows),
        "pooled": jax.ShapeDtypeStruct((BATCH, POOLED), jnp.bfloat16, sharding=rows),
    }
    out = jax.tree.map(lambda x: x.sharding, state)
    step = jax.jit(train_step, donate_argnums=0, out_shardings=(out, NamedSharding(mesh, P())))
    return step, (
        state,
        batch,
        jax.ShapeDtypeStruct((2,), jnp.uint32, sharding=NamedSharding(mesh, P())),
    )
