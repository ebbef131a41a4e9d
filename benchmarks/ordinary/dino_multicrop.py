TRUTH = """
# dino_multicrop — DINO self-distillation step (flax linen), explicit data parallelism: one shard_map over 8 devices

## 1 Tree of parts
step_fn (8 images per device -> 16 global crops 128x128, 48 local crops 64x64)
1. fold/normalise crops, schedules
2. **teacher forward** on globals { patch_embed 8x8, pos, cls, **blocks: loop x12** (257 tokens), norm ; **head** }
3. **student forward** { backbone on globals: **blocks loop x12** (257 tokens) ; backbone on locals: pos resized (bicubic), **blocks loop x12** (65 tokens) ; **head** (mlp1, mlp2, bottleneck, normalise, prototypes 8192) on all 64 crops }
   block { norm1, attn (qkv, softmax, proj), norm2, mlp (fc1, gelu, fc2) }
4. **dino_loss**: centred, sharpened teacher softmax; cross entropies of 2x8-2 = 14 pairs
5. **student backward**: loss, head ; locals: **blocks backward loop x12 with recomputation** ; globals: **blocks backward loop x12 with recomputation** ; pos/patch embed
6. **pmean** of loss and gradients; freeze prototypes early
7. **clip + adamw** ; **teacher EMA** ; center update (pmean)

## 2 Where the work goes (per device 1.43 TF)
transformer blocks 99%: teacher fwd ~12%, student fwd ~22% (globals : locals = 57 : 43), student backward ~63-66% (of it 1/3 recomputation). In a block mlp 59, attention 41. Head + loss ~1%; optimiser small.

## 3 First picture
teacher (ViT x12, head) -> student globals (x12) -> student locals (x12) -> head -> dino loss -> backward locals (x12), globals (x12) -> pmean -> adamw -> teacher EMA -> center. Five x12 loops, each told apart (teacher/student, global/local, forward/backward).

## 4 Misleading
- Merging the five x12 loops by their common source (Block.__call__): "blocks x60" or only one; teacher has no backward.
- Teacher named student.
- 14 loss pairs as 14 things in the first picture.
- Gradient all-reduce location: after everything (explicit pmean), not inside loops.
"""

"""DINO self-distillation: student sees 2 global + 6 local crops, EMA teacher sees the globals.
ViT in flax linen (nn.scan over layers, remat in the student), explicit data parallelism with shard_map."""
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

BATCH = 64
GLOBAL, LOCAL, PATCH = 128, 64, 8
N_GLOBAL, N_LOCAL = 2, 6
DIM, DEPTH, HEADS = 384, 12, 6
OUT_DIM, BOTTLENECK, HEAD_HIDDEN = 8192, 256, 1024
STUDENT_TEMP, TEACHER_TEMP, CENTER_MOM = 0.1, 0.04, 0.9
TOTAL = 100_000


class Attention(nn.Module):
    @nn.compact
    def __call__(self, x):
        b, n, d = x.shape
        qkv = nn.Dense(3 * d, dtype=jnp.bfloat16, name="qkv")(x).reshape(b, n, 3, HEADS, d // HEADS)
        q, k, v = qkv[:, :, 0], qkv[:, :, 1], qkv[:, :, 2]
        a = jnp.einsum("bqhd,bkhd->bhqk", q, k) * (d // HEADS) ** -0.5
        a = jax.nn.softmax(a.astype(jnp.float32)).astype(v.dtype)
        y = jnp.einsum("bhqk,bkhd->bqhd", a, v).reshape(b, n, d)
        return nn.Dense(d, dtype=jnp.bfloat16, name="proj")(y)


class Mlp(nn.Module):
    @nn.compact
    def __call__(self, x):
        d = x.shape[-1]
        x = nn.gelu(nn.Dense(4 * d, dtype=jnp.bfloat16, name="fc1")(x))
        return nn.Dense(d, dtype=jnp.bfloat16, name="fc2")(x)


class Block(nn.Module):
    @nn.compact
    def __call__(self, x, _):
        x = x + Attention(name="attn")(nn.LayerNorm(name="norm1")(x))
        x = x + Mlp(name="mlp")(nn.LayerNorm(name="norm2")(x))
        return x.astype(jnp.bfloat16), None


class ViT(nn.Module):
    remat: bool

    @nn.compact
    def __call__(self, img):
        x = nn.Conv(DIM, (PATCH, PATCH), strides=PATCH, dtype=jnp.bfloat16, name="patch_embed")(img)
        b, h, w, d = x.shape
        g = GLOBAL // PATCH
        pos = self.param("pos", nn.initializers.normal(0.02), (1, g, g, d))
        if h != g:
            pos = jax.image.resize(pos, (1, h, w, d), "bicubic")
        x = (x + pos.astype(x.dtype)).reshape(b, h * w, d)
        cls = self.param("cls", nn.initializers.normal(0.02), (1, 1, d))
        x = jnp.concatenate([jnp.broadcast_to(cls, (b, 1, d)).astype(x.dtype), x], 1)
        block = nn.remat(Block, prevent_cse=False) if self.remat else Block
        x, _ = nn.scan(
            block, variable_axes={"params": 0}, split_rngs={"params": True}, length=DEPTH
        )(name="blocks")(x, None)
        return nn.LayerNorm(name="norm")(x[:, 0].astype(jnp.float32))


class DINOHead(nn.Module):
    @nn.compact
    def __call__(self, x):
        x = nn.gelu(nn.Dense(HEAD_HIDDEN, name="mlp1")(x))
        x = nn.gelu(nn.Dense(HEAD_HIDDEN, name="mlp2")(x))
        x = nn.Dense(BOTTLENECK, name="bottleneck")(x)
        x = x / (jnp.linalg.norm(x, axis=-1, keepdims=True) + 1e-6)
        v = self.param("prototypes", nn.initializers.normal(0.02), (BOTTLENECK, OUT_DIM))
        return x @ (v / (jnp.linalg.norm(v, axis=0, keepdims=True) + 1e-6))


class DINO(nn.Module):
    remat: bool = False

    def setup(self):
        self.backbone, self.head = ViT(self.remat), DINOHead()

    def __call__(self, crops):
        """list of image groups of equal resolution, outputs concatenated"""
        return self.head(jnp.concatenate([self.backbone(c) for c in crops]))


student_net, teacher_net = DINO(remat=True), DINO()


class State(NamedTuple):
    student: Any
    teacher: Any
    opt: Any
    center: jax.Array
    step: jax.Array


def fold(x):
    """[b, views, h, w, c] -> [views*b, ...]"""
    return jnp.swapaxes(x, 0, 1).reshape(-1, *x.shape[2:]).astype(jnp.float32) / 127.5 - 1


def dino_loss(student_out, teacher_out, center, temp):
    s = jnp.split(student_out / STUDENT_TEMP, N_GLOBAL + N_LOCAL)
    t = jnp.split(lax.stop_gradient(jax.nn.softmax((teacher_out - center) / temp)), N_GLOBAL)
    total, n = 0.0, 0
    for i, ti in enumerate(t):
        for j, sj in enumerate(s):
            if i == j:
                continue
            total -= jnp.sum(ti * jax.nn.log_softmax(sj), -1).mean()
            n += 1
    return total / n


def schedules(step):
    p = jnp.minimum(step / TOTAL, 1.0)
    momentum = 1 - (1 - 0.996) * (jnp.cos(jnp.pi * p) + 1) / 2
    temp = jnp.minimum(0.04 + (0.07 - 0.04) * step / 10_000, 0.07)
    return momentum, temp


def make_tx():
    wd = lambda params: jax.tree.map(lambda p: p.ndim > 1, params)
    return optax.chain(
        optax.clip_by_global_norm(3.0),
        optax.adamw(
            optax.warmup_cosine_decay_schedule(0, 5e-4, 3000, TOTAL), weight_decay=0.04, mask=wd
        ),
    )


def freeze_last_layer(grads, step):
    head = dict(grads["params"]["head"])
    head["prototypes"] = jnp.where(step < 1000, 0.0, head["prototypes"])
    return {"params": {**grads["params"], "head": head}}


def step_fn(s: State, globals_, locals_):
    g, l = fold(globals_), fold(locals_)
    momentum, temp = schedules(s.step)
    teacher_out = teacher_net.apply(s.teacher, [g])

    def loss_fn(p):
        return dino_loss(student_net.apply(p, [g, l]), teacher_out, s.center, temp)

    loss, grads = jax.value_and_grad(loss_fn)(s.student)
    loss, grads = lax.pmean((loss, grads), "dp")
    grads = freeze_last_layer(grads, s.step)
    upd, opt = make_tx().update(grads, s.opt, s.student)
    student = optax.apply_updates(s.student, upd)
    teacher = jax.tree.map(lambda t, q: momentum * t + (1 - momentum) * q, s.teacher, student)
    center = CENTER_MOM * s.center + (1 - CENTER_MOM) * lax.pmean(teacher_out.mean(0), "dp")
    return State(student, teacher, opt, center, s.step + 1), loss


def build(devices=None):
    devices = np.array(jax.devices() if devices is None else devices)[:8]
    mesh = Mesh(devices, ("dp",))
    f = jax.shard_map(
        step_fn, mesh=mesh, in_specs=(P(), P("dp"), P("dp")), out_specs=(P(), P()), check_vma=False
    )

    def init(key):
        p = student_net.init(key, [jnp.zeros((1, GLOBAL, GLOBAL, 3))])
        return State(p, p, make_tx().init(p), jnp.zeros(OUT_DIM), jnp.int32(0))

    put = lambda spec: (
        lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=NamedSharding(mesh, spec))
    )
    state = jax.tree.map(put(P()), jax.eval_shape(init, jax.ShapeDtypeStruct((2,), jnp.uint32)))
    img = lambda n, r: put(P("dp"))(jax.ShapeDtypeStruct((BATCH, n, r, r, 3), jnp.uint8))
    return jax.jit(f, donate_argnums=0), (state, img(N_GLOBAL, GLOBAL), img(N_LOCAL, LOCAL))
