TRUTH = """
One training step (train_step) of a dense multi-task ViT in flax nnx (depth, semantics, normals), ViT-B/16 trunk, 64 images of 384 x 512, 8 devices "data", data parallel.

train_step
  total_loss (forward)
    MultiTaskNet
      backbone (ViT): patch conv 16x16 -> 24 x 32 = 768 tokens, + position, 12 EncoderBlock written out (norm1, attn qkv/out 12 heads, norm2, mlp 768->3072->768, layer scale); taps after blocks 3, 6, 9, 12
      depth_head, semantic_head, normal_head: three DPTHead of the same class, own weights each
        4 reassemble (1x1 conv to 256; resize x4, x2, x1, conv stride 2), 4 fusion (FusionBlock: two ResidualConvUnit of 2 convs, upsample x2, 1x1 conv), out: conv 256->128, upsample, conv 128->64, conv 64->task channels (1, 40, 3)
    depth_loss (scale-invariant log), semantic_loss (cross-entropy over 40 classes), normal_loss (cosine); weighted by learned log-variances (uncertainty weighting)
  backward through all; optimiser optax adamw with layer-wise learning-rate decay (scales by block); clip

No loop. 12 blocks in one backbone, run once and shared by 3 heads.
Weight: per image backbone 12 x 7.1 M x 768 = 65 G MAC; each head: fusion convs 256->256 3x3 (590 k weights) x 4 at 96x128 ... (29 G), half of it at each coarser size a quarter, plus out convs (295 k weights at 192 x 256 = 14.5 G and more): about 50 G or more each, so the three heads together are heavier than the backbone.
False would be: backbone run three times; heads as one; heads small; taps missed (features from 3, 6, 9 go to the heads); loop.
First sight: image -> backbone of 12 blocks with 4 taps -> three alike heads -> three losses -> weighted sum; backward; optimiser.
Names true: backbone, blocks.i, attn, mlp, depth_head, semantic_head, normal_head, reassemble, fusion, depth_loss, semantic_loss, normal_loss.
"""

"""Dense multi-task learning (depth, semantics, surface normals) with a shared ViT-B/16 and one DPT-style decoder per
task, flax nnx. Losses balanced by learned uncertainty; layer-wise learning-rate decay; data parallel over 8 devices."""
from functools import partial

import jax
import jax.numpy as jnp
import optax
from flax import nnx
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

MESH = {"data": 8}
BATCH, HEIGHT, WIDTH, PATCH = 64, 384, 512, 16
GH, GW = HEIGHT // PATCH, WIDTH // PATCH
DIM, DEPTH, HEADS, MLP, FEATURES = 768, 12, 12, 3072, 256
TAPS = (2, 5, 8, 11)
TASKS = {"depth": 1, "semantic": 40, "normal": 3}
BF16 = jnp.bfloat16


class SelfAttention(nnx.Module):
    def __init__(self, *, rngs):
        self.qkv = nnx.Linear(DIM, 3 * DIM, dtype=BF16, rngs=rngs)
        self.out = nnx.Linear(DIM, DIM, dtype=BF16, rngs=rngs)

    def __call__(self, x):
        b, t, _ = x.shape
        q, k, v = jnp.moveaxis(self.qkv(x).reshape(b, t, 3, HEADS, DIM // HEADS), 2, 0)
        y = jax.nn.dot_product_attention(q, k, v)
        return self.out(y.reshape(b, t, DIM))


class Mlp(nnx.Module):
    def __init__(self, *, rngs):
        self.fc1 = nnx.Linear(DIM, MLP, dtype=BF16, rngs=rngs)
        self.fc2 = nnx.Linear(MLP, DIM, dtype=BF16, rngs=rngs)

    def __call__(self, x):
        return self.fc2(nnx.gelu(self.fc1(x)))


class EncoderBlock(nnx.Module):
    def __init__(self, *, rngs):
        self.norm1 = nnx.LayerNorm(DIM, dtype=BF16, rngs=rngs)
        self.attn = SelfAttention(rngs=rngs)
        self.norm2 = nnx.LayerNorm(DIM, dtype=BF16, rngs=rngs)
        self.mlp = Mlp(rngs=rngs)
        self.gamma1 = nnx.Param(jnp.full((DIM,), 1e-4))
        self.gamma2 = nnx.Param(jnp.full((DIM,), 1e-4))

    def __call__(self, x):
        x = x + self.attn(self.norm1(x)) * self.gamma1[...].astype(BF16)
        return x + self.mlp(self.norm2(x)) * self.gamma2[...].astype(BF16)


class ViT(nnx.Module):
    def __init__(self, *, rngs):
        self.patch = nnx.Conv(
            3, DIM, (PATCH, PATCH), strides=PATCH, padding="VALID", dtype=BF16, rngs=rngs
        )
        self.position = nnx.Param(jax.random.normal(rngs.params(), (1, GH * GW, DIM)) * 0.02)
        self.blocks = nnx.List([EncoderBlock(rngs=rngs) for _ in range(DEPTH)])
        self.norm = nnx.LayerNorm(DIM, dtype=BF16, rngs=rngs)

    def __call__(self, images):
        x = self.patch(images).reshape(images.shape[0], GH * GW, DIM)
        x = x + self.position[...].astype(BF16)
        taps = []
        for i, block in enumerate(self.blocks):
            x = block(x)
            if i in TAPS:
                taps.append(self.norm(x) if i == TAPS[-1] else x)
        return taps


def conv(cin, cout, size, rngs, strides=1):
    return nnx.Conv(cin, cout, (size, size), strides=strides, padding="SAME", dtype=BF16, rngs=rngs)


def resize(x, factor):
    b, h, w, c = x.shape
    return jax.image.resize(x, (b, int(h * factor), int(w * factor), c), "bilinear")


class ResidualConvUnit(nnx.Module):
    def __init__(self, *, rngs):
        self.conv1, self.conv2 = (
            conv(FEATURES, FEATURES, 3, rngs),
            conv(FEATURES, FEATURES, 3, rngs),
        )

    def __call__(self, x):
        return x + self.conv2(nnx.relu(self.conv1(nnx.relu(x))))


class FusionBlock(nnx.Module):
    def __init__(self, *, rngs):
        self.skip_unit, self.unit = ResidualConvUnit(rngs=rngs), ResidualConvUnit(rngs=rngs)
        self.project = conv(FEATURES, FEATURES, 1, rngs)

    def __call__(self, x, skip):
        skip = self.skip_unit(skip)
        x = skip if x is None else x + skip
        return self.project(resize(self.unit(x), 2))


class Reassemble(nnx.Module):
    def __init__(self, scale, *, rngs):
        self.scale = scale
        self.project = conv(DIM, FEATURES, 1, rngs)
        self.down = conv(FEATURES, FEATURES, 3, rngs, strides=2) if scale < 1 else None

    def __call__(self, tokens):
        x = self.project(tokens.reshape(tokens.shape[0], GH, GW, DIM))
        if self.scale < 1:
            return self.down(x)
        return x if self.scale == 1 else resize(x, self.scale)


class DPTHead(nnx.Module):
    def __init__(self, channels, *, rngs):
        self.reassemble = nnx.List([Reassemble(s, rngs=rngs) for s in (4, 2, 1, 0.5)])
        self.fusion = nnx.List([FusionBlock(rngs=rngs) for _ in range(4)])
        self.out1 = conv(FEATURES, FEATURES // 2, 3, rngs)
        self.out2 = conv(FEATURES // 2, 64, 3, rngs)
        self.out3 = conv(64, channels, 1, rngs)

    def __call__(self, taps):
        maps = [r(t) for r, t in zip(self.reassemble, taps)]
        x = None
        for fuse, feature in zip(reversed(list(self.fusion)), reversed(maps)):
            x = fuse(x, feature)
        x = resize(self.out1(x), 2)
        return self.out3(nnx.relu(self.out2(x))).astype(jnp.float32)


class MultiTaskNet(nnx.Module):
    def __init__(self, *, rngs):
        self.backbone = ViT(rngs=rngs)
        self.depth_head = DPTHead(TASKS["depth"], rngs=rngs)
        self.semantic_head = DPTHead(TASKS["semantic"], rngs=rngs)
        self.normal_head = DPTHead(TASKS["normal"], rngs=rngs)
        self.log_variance = nnx.Param(jnp.zeros((3,)))

    def __call__(self, images):
        taps = self.backbone(images.astype(BF16))
        return self.depth_head(taps)[..., 0], self.semantic_head(taps), self.normal_head(taps)


def depth_loss(predicted, target, valid):
    d = (predicted - jnp.log(jnp.maximum(target, 1e-3))) * valid
    n = jnp.maximum(valid.sum((1, 2)), 1.0)
    return jnp.mean(jnp.sum(d * d, (1, 2)) / n - 0.5 * jnp.square(d.sum((1, 2)) / n))


def semantic_loss(logits, labels):
    ce = optax.softmax_cross_entropy_with_integer_labels(logits, jnp.maximum(labels, 0))
    known = labels >= 0
    return jnp.sum(ce * known) / jnp.maximum(known.sum(), 1)


def normal_loss(predicted, target, valid):
    unit = predicted * jax.lax.rsqrt(jnp.sum(predicted**2, -1, keepdims=True) + 1e-6)
    return jnp.sum((1 - jnp.sum(unit * target, -1)) * valid) / jnp.maximum(valid.sum(), 1.0)


def total_loss(model, batch):
    depth, semantic, normal = model(batch["image"])
    losses = jnp.stack(
        [
            depth_loss(depth, batch["depth"], batch["valid"]),
            semantic_loss(semantic, batch["labels"]),
            normal_loss(normal, batch["normals"], batch["valid"]),
        ]
    )
    s = model.log_variance[...]
    return jnp.sum(jnp.exp(-s) * losses + 0.5 * s), losses


def layerwise_decay(decay=0.75):
    """Scale the update of backbone block i by decay ** (depth - i)."""

    def scale(path, u):
        names = [str(getattr(k, "key", getattr(k, "name", k))) for k in path]
        if "backbone" not in names:
            return u
        level = int(names[names.index("blocks") + 1]) + 1 if "blocks" in names else 0
        return u * decay ** (DEPTH + 1 - level)

    return optax.stateless(lambda updates, params: jax.tree_util.tree_map_with_path(scale, updates))


def make(mesh):
    def build():
        model = MultiTaskNet(rngs=nnx.Rngs(0))
        rate = optax.warmup_cosine_decay_schedule(0.0, 4e-4, 1000, 60_000)
        tx = optax.chain(
            optax.clip_by_global_norm(3.0), optax.adamw(rate, weight_decay=0.05), layerwise_decay()
        )
        return model, nnx.Optimizer(model, tx, wrt=nnx.Param)

    graphdef, state = nnx.split(nnx.eval_shape(build))
    rep, rows = NamedSharding(mesh, P()), NamedSharding(mesh, P("data"))
    state = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=rep), state)

    @partial(jax.jit, donate_argnums=0)
    def train_step(state, batch):
        model, optimizer = nnx.merge(graphdef, state)
        (loss, parts), grads = nnx.value_and_grad(total_loss, has_aux=True)(model, batch)
        optimizer.update(model, grads)
        return nnx.state((model, optimizer)), {"loss": loss, "parts": parts}

    S = lambda shape, dtype=jnp.float32: jax.ShapeDtypeStruct(
        (BATCH,) + shape, dtype, sharding=rows
    )
    batch = {
        "image": S((HEIGHT, WIDTH, 3)),
        "depth": S((HEIGHT, WIDTH)),
        "valid": S((HEIGHT, WIDTH)),
        "labels": S((HEIGHT, WIDTH), jnp.int32),
        "normals": S((HEIGHT, WIDTH, 3)),
    }
    return train_step, (state, batch)
