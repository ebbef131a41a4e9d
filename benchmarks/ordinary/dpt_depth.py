TRUTH = """
PROGRAM dpt_depth: flax nnx. DPT depth head on ViT; frozen teacher (dim 1024, 12 blocks) pseudo-labels; student (dim 384, 8 blocks) trained
with labelled + unlabelled forward. FSDP over 8 devices. 32 labelled + 32 unlabelled images of 392x392 (28x28=784+1 tokens).

(1) EXPECTED BOXES
step / train_step
 - strong_augment (colour jitter, cutmix perm gather, noise)
 - teacher forward (DPT): patch, VitBlock x12 (unrolled python loop, no scan), reassemble x4, fusions x4 (rcu1, rcu2, resize, out), head1/2/3
 - student forward on labelled images: patch, VitBlock x8, reassemble x4, fusions x4, head
 - student forward on augmented unlabelled images: same again
 - ssi_loss x2 (align with median, sort), grad_match (4 scales)
 - student backward x2 (labelled, unlabelled)
 - adamw
Work per image forward MACs: teacher ViT 785*12*(12*1024^2)+attn 12*2*785^2*1024 = 118 G + 15 G = 134 G; teacher DPT head with fuse 256: fusion at 112x112:
rcu 2x2 convs 3x3x256x256 = 590k per pixel: 12544*4*0.59M=30 G, lower levels 7.4+1.8+..., out conv on 224x224: 50176*65k=3.3 G, head1 at
224x224: 50176*9*256*128=14.8 G, head2 at 392x392: 153664*9*128*32 = 5.7 G. Head total ~65 G (+reassemble ~ 1-2 G). Teacher ~200 G per image.
Student ViT: 785*8*12*384^2=11.1 G+ attn 8*2*785^2*384=3.8 G = 15 G; head fuse 64: ~4 G (rcu 1.9+0.5.., head1 0.9, head2 1.4). ~19 G fwd.
Student total fwd+bwd = 2 batches * 3 * 19 = 114 G vs teacher 200 G. So: teacher forward ~63 % of matrix work; student fwd ~12 %, student backward ~24 %.
>10 %: teacher ViT blocks (~42 %), teacher head (fusions ~20 %), student forward (both ~12 %), student backward (~24 %).
Bandwidth-wise losses with sort (median over 153 664 pixels x 4 times) and bilinear resizes matter, may take a large share of TIME (sort).

(2) FALSE NAMES
"EMA update / momentum teacher" (teacher is frozen, no update), "teacher backward", "scan over layers"/"x12 loop", "cross attention",
"decoder transformer", "contrastive loss", "segmentation / classification head", "diffusion", "momentum". "text encoder".

(3) EXPERT
True
 - Teacher forward is the biggest compute; it is frozen and could be cached/precomputed offline, or run int8/bf16; the pseudo-labels come from clean
   images that do not depend on the student (dead for backward, so can be a separate program).
 - FSDP: weights sharded along the largest dim: all-gather of each weight per use (fp32 weights gathered before cast to bf16 unless XLA moves the convert:
   twice the bytes); gradients reduce-scattered (or all-reduced + sliced on CPU). Teacher 150+M params all-gathered each step in fp32 = 0.6 GB; could keep
   bf16 and replicated (teacher needs no optimizer): 0.3 GB.
 - Student is tiny (~17 M params): FSDP for it only adds latency; replicating (DP) is better.
 - The student is used twice (labelled / unlabelled): concat the two batches into a single forward for better utilisation and only one all-gather of weights.
 - Cutmix permutation across the global batch: img[perm] and pseudo[perm] gather along the sharded batch axis -> all-gather (or all-to-all) of images
   (32x392x392x3 fp32 = 59 MB) . Remedy: permute within a device.
 - median = full sort of 153664 values per image x 4 (+ repeated in grad_match: align computed again; XLA CSE may remove it): slow on accelerators.
 - No remat; activations of the student are small per device (4 images), OK. fp32 softplus head / resize.
 - No donation of params/opt state.
 - Small shapes per device: 4 images, dim 384 / 6 heads (head dim 64), 785 tokens: not multiple of 128 (padding).
 - conv at fuse=64 channels underuse a 128-wide MXU.
False
 - "Teacher is updated", "student dominates the work", "tensor parallel", "batch is replicated", "layers are rematerialised", "the optimizer dominates".
"""

"""Monocular depth: DPT head on a ViT, semi-supervised (Depth-Anything recipe).

A frozen large teacher labels clean images, the student sees the strongly augmented ones;
a labelled half-batch gets a scale-and-shift-invariant loss.  FSDP over one axis.
"""
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import optax
from flax import nnx
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

MESH = {"fsdp": 8}


@dataclass(frozen=True)
class VitCfg:
    dim: int
    depth: int
    heads: int
    taps: tuple
    fuse: int


STUDENT = VitCfg(dim=384, depth=8, heads=6, taps=(1, 3, 5, 7), fuse=64)
TEACHER = VitCfg(dim=1024, depth=12, heads=16, taps=(2, 5, 8, 11), fuse=256)
RES, PATCH = 392, 14
GRID = RES // PATCH
BF16 = jnp.bfloat16


class Attn(nnx.Module):
    def __init__(self, c: VitCfg, rngs):
        self.heads = c.heads
        self.qkv = nnx.Linear(c.dim, 3 * c.dim, dtype=BF16, rngs=rngs)
        self.proj = nnx.Linear(c.dim, c.dim, dtype=BF16, rngs=rngs)

    def __call__(self, x):
        b, n, d = x.shape
        q, k, v = jnp.split(self.qkv(x).reshape(b, n, 3 * self.heads, -1), 3, axis=2)
        o = jax.nn.dot_product_attention(q, k, v)
        return self.proj(o.reshape(b, n, d))


class VitBlock(nnx.Module):
    def __init__(self, c: VitCfg, rngs):
        self.norm1 = nnx.LayerNorm(c.dim, rngs=rngs)
        self.attn = Attn(c, rngs)
        self.norm2 = nnx.LayerNorm(c.dim, rngs=rngs)
        self.fc1 = nnx.Linear(c.dim, 4 * c.dim, dtype=BF16, rngs=rngs)
        self.fc2 = nnx.Linear(4 * c.dim, c.dim, dtype=BF16, rngs=rngs)
        self.ls1 = nnx.Param(jnp.full((c.dim,), 1e-5))
        self.ls2 = nnx.Param(jnp.full((c.dim,), 1e-5))

    def __call__(self, x):
        x = x + (self.ls1[...] * self.attn(self.norm1(x))).astype(x.dtype)
        return x + (self.ls2[...] * self.fc2(nnx.gelu(self.fc1(self.norm2(x))))).astype(x.dtype)


class Reassemble(nnx.Module):
    """Tokens of one tap -> feature map at a given scale."""

    def __init__(self, c: VitCfg, level: int, rngs):
        self.level = level
        self.project = nnx.Conv(c.dim, c.fuse, (1, 1), dtype=BF16, rngs=rngs)
        if level < 2:
            s = 4 if level == 0 else 2
            self.resize = nnx.ConvTranspose(
                c.fuse, c.fuse, (s, s), strides=(s, s), dtype=BF16, rngs=rngs
            )
        elif level == 3:
            self.resize = nnx.Conv(c.fuse, c.fuse, (3, 3), strides=(2, 2), dtype=BF16, rngs=rngs)

    def __call__(self, tok):
        x = self.project(tok[:, 1:].reshape(tok.shape[0], GRID, GRID, -1))
        return x if self.level == 2 else self.resize(x)


class ResConvUnit(nnx.Module):
    def __init__(self, f, rngs):
        self.c1 = nnx.Conv(f, f, (3, 3), dtype=BF16, rngs=rngs)
        self.c2 = nnx.Conv(f, f, (3, 3), dtype=BF16, rngs=rngs)

    def __call__(self, x):
        return x + self.c2(nnx.relu(self.c1(nnx.relu(x))))


class Fusion(nnx.Module):
    def __init__(self, f, rngs):
        self.rcu1, self.rcu2 = ResConvUnit(f, rngs), ResConvUnit(f, rngs)
        self.out = nnx.Conv(f, f, (1, 1), dtype=BF16, rngs=rngs)

    def __call__(self, x, skip, size):
        if skip is not None:
            x = x + self.rcu1(skip)
        x = self.rcu2(x)
        x = jax.image.resize(x, (x.shape[0], *size, x.shape[-1]), "bilinear")
        return self.out(x)


class DPT(nnx.Module):
    def __init__(self, c: VitCfg, rngs):
        self.patch = nnx.Conv(
            3, c.dim, (PATCH, PATCH), strides=(PATCH, PATCH), padding="VALID", dtype=BF16, rngs=rngs
        )
        self.cls = nnx.Param(jnp.zeros((1, 1, c.dim)))
        self.pos = nnx.Param(0.02 * jax.random.normal(rngs.params(), (1, GRID * GRID + 1, c.dim)))
        self.blocks = nnx.List([VitBlock(c, rngs) for _ in range(c.depth)])
        self.taps = c.taps
        self.reassemble = nnx.List([Reassemble(c, i, rngs) for i in range(4)])
        self.fusions = nnx.List([Fusion(c.fuse, rngs) for _ in range(4)])
        self.head1 = nnx.Conv(c.fuse, c.fuse // 2, (3, 3), dtype=BF16, rngs=rngs)
        self.head2 = nnx.Conv(c.fuse // 2, 32, (3, 3), dtype=BF16, rngs=rngs)
        self.head3 = nnx.Conv(32, 1, (1, 1), rngs=rngs)

    def __call__(self, img):
        x = self.patch(img).reshape(img.shape[0], GRID * GRID, -1)
        x = jnp.concatenate(
            [jnp.broadcast_to(self.cls[...], (x.shape[0], 1, x.shape[-1])).astype(BF16), x], 1
        )
        x = x + self.pos[...].astype(BF16)
        feats = []
        for i, blk in enumerate(self.blocks):
            x = blk(x)
            if i in self.taps:
                feats.append(x)
        maps = [r(f) for r, f in zip(self.reassemble, feats)]
        sizes = [m.shape[1:3] for m in maps]
        y = self.fusions[3](maps[3], None, sizes[2])
        y = self.fusions[2](y, maps[2], sizes[1])
        y = self.fusions[1](y, maps[1], sizes[0])
        y = self.fusions[0](y, maps[0], (GRID * 8, GRID * 8))
        y = self.head1(y)
        y = jax.image.resize(y, (y.shape[0], RES, RES, y.shape[-1]), "bilinear")
        return nnx.softplus(self.head3(nnx.relu(self.head2(y))))[..., 0]


def align(d):
    med = jnp.median(d.reshape(d.shape[0], -1), axis=1)[:, None, None]
    s = jnp.mean(jnp.abs(d - med), axis=(1, 2), keepdims=True)
    return (d - med) / (s + 1e-6)


def ssi_loss(pred, target):
    return jnp.mean(jnp.abs(align(pred) - align(target)))


def grad_match(pred, target, scales=4):
    r = align(pred) - align(target)
    total = 0.0
    for k in range(scales):
        s = r[:, :: 2**k, :: 2**k]
        total += jnp.mean(jnp.abs(jnp.diff(s, axis=1))) + jnp.mean(jnp.abs(jnp.diff(s, axis=2)))
    return total


def strong_augment(key, img):
    k1, k2, k3 = jax.random.split(key, 3)
    b = img.shape[0]
    img = img * jax.random.uniform(k1, (b, 1, 1, 3), minval=0.6, maxval=1.4)
    perm = jax.random.permutation(k2, b)  # cutmix with another image
    box = (jnp.arange(RES) > RES // 4) & (jnp.arange(RES) < 3 * RES // 4)
    mask = (box[:, None] & box[None])[None, ..., None]
    img = jnp.where(mask, img[perm], img)
    return img + 0.05 * jax.random.normal(k3, img.shape), mask[..., 0], perm


tx = optax.adamw(5e-6, weight_decay=0.01)


def train_step(student, opt_state, teacher, batch, key):
    gs, params = nnx.split(student)
    aug, mask, perm = strong_augment(key, batch["unlabelled"])
    pseudo = jax.lax.stop_gradient(teacher(batch["unlabelled"]))

    def objective(p):
        net = nnx.merge(gs, p)
        sup = net(batch["image"])
        loss_l = ssi_loss(sup, batch["disparity"]) + 0.5 * grad_match(sup, batch["disparity"])
        uns = net(aug)
        target = jnp.where(mask, pseudo[perm], pseudo)
        return loss_l + ssi_loss(uns, target), loss_l

    (_, loss_l), g = jax.value_and_grad(objective, has_aux=True)(params)
    upd, opt_state = tx.update(g, opt_state, params)
    return optax.apply_updates(params, upd), opt_state, loss_l


def fsdp(mesh):
    """Largest divisible dimension of every leaf goes over the fsdp axis."""

    def f(a):
        n = mesh.shape["fsdp"]
        ok = [i for i, s in enumerate(a.shape) if s % n == 0]
        spec = [None] * a.ndim
        if ok and a.size > 2**14:
            spec[max(ok, key=lambda i: a.shape[i])] = "fsdp"
        return jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=NamedSharding(mesh, P(*spec)))

    return f


def make(mesh):
    g_s, p_s = nnx.split(nnx.eval_shape(lambda: DPT(STUDENT, nnx.Rngs(0))))
    g_t, p_t = nnx.split(nnx.eval_shape(lambda: DPT(TEACHER, nnx.Rngs(1))))

    @jax.jit
    def step(p_s, opt_state, p_t, batch, key):
        return train_step(nnx.merge(g_s, p_s), opt_state, nnx.merge(g_t, p_t), batch, key)

    put = lambda t: jax.tree.map(fsdp(mesh), t)
    data = NamedSharding(mesh, P("fsdp"))
    img = jax.ShapeDtypeStruct((32, RES, RES, 3), jnp.float32, sharding=data)
    batch = dict(
        image=img,
        unlabelled=img,
        disparity=jax.ShapeDtypeStruct((32, RES, RES), jnp.float32, sharding=data),
    )
    key = jax.ShapeDtypeStruct((2,), jnp.uint32, sharding=NamedSharding(mesh, P()))
    return step, (put(p_s), put(jax.eval_shape(tx.init, p_s)), put(p_t), batch, key)
