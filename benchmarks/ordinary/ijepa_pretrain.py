TRUTH = """
# ijepa_pretrain - I-JEPA ViT-B/16 self-supervised training step with an EMA teacher; flax.nnx scan over blocks, data 4 x model 2, AdamW

1. Order: **teacher encoder (EMA weights, no gradient)** on all 196 patches: patch conv + sin-cos position, **12 blocks (loop x12)**, norm, target normalisation, gather of 4 x 30 target patches -> **context encoder** on 80 kept patches: patch conv (all 196), gather, **12 blocks (loop x12)**, norm -> **predictor**: 768->384, repeat x4 target blocks, mask tokens with positions, **6 blocks (loop x6)** over 110 tokens on 4 x batch, 384->768 -> Huber loss -> backward: predictor **loop x6 reversed**, context encoder **loop x12 reversed**, patch conv -> AdamW -> teacher EMA (momentum 0.996 -> 1).
   Block = LayerNorm, q/k/v, attention, projection, LayerNorm, MLP x4 GELU.
2. Work ~27 TF for batch 256: teacher forward 33%, context encoder 39% (13% forward, 26% backward), predictor 28% (9 + 18). In a block: MLP 2/3, projections 1/3, scores 2-4%.
3. Loops: teacher x12, context forward x12, predictor forward x6, predictor backward x6, context backward x12. No remat.
4. Device axes: batch on data (4), heads / MLP width on model (2): all-reduce over model after projection and after fc2 in each block (2 per block forward, 2 backward); gradient all-reduce over data (in the backward loops or after); scalar loss. No communication in AdamW and EMA.
5. First picture: image -> teacher (12) -> targets; image -> context encoder (12) -> predictor (6) -> loss -> backward predictor (6), encoder (12) -> AdamW -> EMA teacher.
6. Arrows: targets to the loss; updated encoder weights to the teacher EMA (not the predictor's); teacher does not depend on the student in this step.
7. Should not stand out: sin-cos tables, gathers / index arithmetic, repeat, casts, schedule.
8. Typically wrong: teacher and context encoder shown as one x24 or as forward/recompute of the same; predictor's repeat x4 taken as a loop; EMA merged into AdamW; model axis all-reduces called gradient synchronisation.
"""

"""I-JEPA pretraining, ViT-B/16: predict the EMA teacher's representations of 4 target blocks from one
context block. flax.nnx, GSPMD over data 4 x model 2 (batch and Megatron-style tensor parallelism)."""
from functools import partial

import jax
import jax.numpy as jnp
import optax
from flax import nnx
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

MESH = {"data": 4, "model": 2}
BATCH, IMG, PATCH = 256, 224, 16
GRID = IMG // PATCH
N = GRID * GRID
CTX, N_TGT, TGT = 80, 4, 30
D, HEADS, DEPTH = 768, 12, 12
PD, PHEADS, PDEPTH = 384, 12, 6
DT = jnp.bfloat16


def dense(i, o, axes, rngs):
    return nnx.Linear(
        i,
        o,
        dtype=DT,
        kernel_init=nnx.initializers.truncated_normal(0.02),
        rngs=rngs,
        kernel_metadata={"spec": axes},
    )


class Block(nnx.Module):
    def __init__(self, dim, heads, rngs):
        self.heads = heads
        self.norm1 = nnx.LayerNorm(dim, dtype=DT, rngs=rngs)
        self.norm2 = nnx.LayerNorm(dim, dtype=DT, rngs=rngs)
        self.q, self.k, self.v = (dense(dim, dim, (None, "model"), rngs) for _ in range(3))
        self.proj = dense(dim, dim, ("model", None), rngs)
        self.fc1 = dense(dim, 4 * dim, (None, "model"), rngs)
        self.fc2 = dense(4 * dim, dim, ("model", None), rngs)

    def __call__(self, x):
        b, n, d = x.shape
        split = lambda t: t.reshape(b, n, self.heads, d // self.heads)
        h = self.norm1(x)
        a = jax.nn.dot_product_attention(split(self.q(h)), split(self.k(h)), split(self.v(h)))
        x = x + self.proj(a.reshape(b, n, d))
        return x + self.fc2(jax.nn.gelu(self.fc1(self.norm2(x))))


class Stack(nnx.Module):
    """depth identical blocks with stacked weights, applied with a scan"""

    def __init__(self, dim, heads, depth, rngs):
        @nnx.split_rngs(splits=depth)
        @nnx.vmap(in_axes=0, out_axes=0)
        def build(r):
            return Block(dim, heads, r)

        self.blocks = build(rngs)
        self.norm = nnx.LayerNorm(dim, dtype=DT, rngs=rngs)

    def __call__(self, x, constrain):
        graph, weights = nnx.split(self.blocks)

        def body(x, w):
            return constrain(nnx.merge(graph, w)(x)), None

        x, _ = jax.lax.scan(body, constrain(x), weights)
        return self.norm(x)


def sincos(dim):
    om = 1.0 / 10000 ** (jnp.arange(dim // 4) / (dim // 4))
    y, x = jnp.meshgrid(jnp.arange(GRID), jnp.arange(GRID), indexing="ij")
    parts = [f(p.reshape(-1, 1) * om) for p in (y, x) for f in (jnp.sin, jnp.cos)]
    return jnp.concatenate(parts, -1).astype(DT)


def gather(x, idx):
    return jnp.take_along_axis(x, idx[..., None], 1)


class Encoder(nnx.Module):
    def __init__(self, rngs):
        self.patch = nnx.Conv(3, D, (PATCH, PATCH), (PATCH, PATCH), dtype=DT, rngs=rngs)
        self.stack = Stack(D, HEADS, DEPTH, rngs)

    def __call__(self, img, keep, constrain):
        x = self.patch(img).reshape(img.shape[0], N, D) + sincos(D)
        if keep is not None:
            x = gather(x, keep)
        return self.stack(x, constrain)


class Predictor(nnx.Module):
    def __init__(self, rngs):
        self.embed = nnx.Linear(D, PD, dtype=DT, rngs=rngs)
        self.mask_token = nnx.Param(jnp.zeros((PD,)))
        self.stack = Stack(PD, PHEADS, PDEPTH, rngs)
        self.out = nnx.Linear(PD, D, dtype=DT, rngs=rngs)

    def __call__(self, z, ctx, tgt, constrain):
        """z (b, CTX, D), tgt (b, N_TGT, TGT): every target block is a row of its own"""
        b = z.shape[0]
        pos = jnp.broadcast_to(sincos(PD), (b, N, PD))
        z = self.embed(z) + gather(pos, ctx)
        z = jnp.repeat(z, N_TGT, 0)
        q = self.mask_token[...].astype(DT) + gather(
            jnp.repeat(pos, N_TGT, 0), tgt.reshape(b * N_TGT, TGT)
        )
        h = self.stack(jnp.concatenate([z, q], 1), constrain)
        return self.out(h[:, CTX:])


class Student(nnx.Module):
    def __init__(self, rngs):
        self.encoder = Encoder(rngs)
        self.predictor = Predictor(rngs)


def schedule(warm=15_000, total=300_000):
    return optax.warmup_cosine_decay_schedule(1e-4, 1e-3, warm, total, 1e-6)


tx = optax.adamw(
    schedule(), weight_decay=0.04, mask=lambda p: jax.tree.map(lambda x: x.ndim > 1, p)
)


def step(graph, tgraph, student, teacher, opt, count, batch, *, constrain):
    target = nnx.merge(tgraph, teacher)(batch["image"], None, constrain).astype(jnp.float32)
    target = (target - target.mean(-1, keepdims=True)) * jax.lax.rsqrt(
        target.var(-1, keepdims=True) + 1e-6
    )
    tgt = batch["tgt"]
    want = jax.lax.stop_gradient(gather(target, tgt.reshape(-1, N_TGT * TGT)).reshape(-1, TGT, D))

    def loss_fn(student):
        m = nnx.merge(graph, student)
        z = m.encoder(batch["image"], batch["ctx"], constrain)
        pred = m.predictor(z, batch["ctx"], tgt, constrain).astype(jnp.float32)
        return optax.huber_loss(pred, want).mean()

    loss, g = jax.value_and_grad(loss_fn)(student)
    up, opt = tx.update(g, opt, student)
    student = optax.apply_updates(student, up)
    m = 0.996 + 0.004 * jnp.minimum(count / 300_000, 1.0)
    teacher = jax.tree.map(lambda t, s: m * t + (1 - m) * s, teacher, student["encoder"])
    return student, teacher, opt, count + 1, loss


def make(mesh):
    shape = nnx.eval_shape(lambda: Student(nnx.Rngs(0)))
    graph, student = nnx.split(shape)
    tgraph, teacher = nnx.split(shape.encoder)

    def place(path, x):
        names = [str(getattr(k, "key", getattr(k, "name", k))) for k in path]
        if "kernel" in names and "stack" in names:
            if {"q", "k", "v", "fc1"} & set(names):
                return jax.ShapeDtypeStruct(
                    x.shape, x.dtype, sharding=NamedSharding(mesh, P(None, None, "model"))
                )
            return jax.ShapeDtypeStruct(
                x.shape, x.dtype, sharding=NamedSharding(mesh, P(None, "model"))
            )
        return jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=NamedSharding(mesh, P()))

    placed = partial(jax.tree_util.tree_map_with_path, place)
    opt = placed(jax.eval_shape(tx.init, student))
    rows = NamedSharding(mesh, P("data"))
    S = lambda s, t: jax.ShapeDtypeStruct(s, t, sharding=rows)
    batch = {
        "image": S((BATCH, IMG, IMG, 3), jnp.float32),
        "ctx": S((BATCH, CTX), jnp.int32),
        "tgt": S((BATCH, N_TGT, TGT), jnp.int32),
    }
    constrain = lambda x: jax.lax.with_sharding_constraint(
        x, NamedSharding(mesh, P("data", None, None))
    )
    count = jax.ShapeDtypeStruct((), jnp.int32, sharding=NamedSharding(mesh, P()))
    f = jax.jit(partial(step, graph, tgraph, constrain=constrain), donate_argnums=(0, 1, 2))
    return f, (placed(student), placed(teacher), opt, count, batch)
