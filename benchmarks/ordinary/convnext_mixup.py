TRUTH = """
# convnext_mixup — ConvNeXt (2,2,6,2) training step (flax linen), 8-way data parallel (jit + NamedSharding), bf16 compute

## 1 Tree of parts
train_step
1. **augment**: normalize, random flip, mixup_cutmix (image reversed along the batch, beta-distributed lambda, box), label smoothing
2. **ConvNeXt forward** (192x192, batch 128 = 16 per device)
   - stem 4x4/4 conv (64) + norm
   - **stage 0: 2 blocks, 64 ch at 48x48** ; **stage 1: downsample + 2 blocks, 128 at 24** ; **stage 2: downsample + 6 blocks, 256 at 12** ; **stage 3: downsample + 2 blocks, 512 at 6**
   - each of the **12 blocks** { dwconv 7x7, layer norm, pwconv1 (x4), gelu, pwconv2, gamma, drop path, residual }
   - mean pool, head_norm, head (100 classes)
3. **loss** (softmax cross entropy with mixed targets), accuracy
4. **backward**: head, stage 3, stage 2 (6), stage 1, stage 0, stem
5. gradient **all-reduce** over data(8)
6. **clip + adamw** (masked weight decay), **EMA**

Blocks unrolled in Python: no loop over layers. The only loops can be RNG ones (threefry; a rejection while loop in beta/gamma sampling).

## 2 Where the work goes (0.78 TF counted on the jaxpr)
blocks 94% (fwd 31, bwd 62): each block in each stage costs nearly the same, so stage 2 ~ half, the others ~1/6 each; within a block pointwise convs 90+%, depthwise 2-9%. Downsamples ~6%, stem < 1%, head, augment, optimiser ~0.

## 3 First picture
augment -> stem -> stage 0 (block x2) -> stage 1 -> stage 2 (block x6) -> stage 3 -> head/loss -> backward (stages 3..0) -> all-reduce gradients -> adamw + EMA. Stage 2 open to one block: dwconv, norm, pwconv1, gelu, pwconv2.

## 4 Misleading
- The while loops of jax.random.beta (gamma rejection sampling) or threefry shown as the program's main loops.
- Depthwise convolution drawn as the heavy part, or as many small convs; its weight gradient may be compiled in an odd form.
- Mixup's reversal x[::-1] of a sharded batch gives communication (collective-permute or all-gather of images): small work but surprising communication; should be shown, belonging to augment, not to the model.
- The forward with stop at "ConvNeXt" as a single box; or 12 blocks in a flat row with no stages.
"""

"""ConvNeXt on ImageNet-100, flax linen, data parallel over 8 devices with jit + NamedSharding.
Mixup/cutmix on device, stochastic depth, layer scale, EMA weights, AdamW with cosine schedule."""
from collections.abc import Sequence
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import struct
from flax.training import train_state
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

NUM_CLASSES = 100
IMAGE = 192
BATCH = 128
DEPTHS = (2, 2, 6, 2)
DIMS = (64, 128, 256, 512)


class DropPath(nn.Module):
    rate: float

    @nn.compact
    def __call__(self, x, train):
        if self.rate == 0.0 or not train:
            return x
        keep = 1.0 - self.rate
        mask = jax.random.bernoulli(self.make_rng("drop_path"), keep, (x.shape[0], 1, 1, 1))
        return x * mask.astype(x.dtype) / keep


class ConvNeXtBlock(nn.Module):
    dim: int
    drop_path: float
    layer_scale_init: float = 1e-6
    dtype: Any = jnp.bfloat16

    @nn.compact
    def __call__(self, x, train):
        shortcut = x
        x = nn.Conv(
            self.dim, (7, 7), feature_group_count=self.dim, dtype=self.dtype, name="dwconv"
        )(x)
        x = nn.LayerNorm(epsilon=1e-6, dtype=self.dtype, name="norm")(x)
        x = nn.Dense(4 * self.dim, dtype=self.dtype, name="pwconv1")(x)
        x = nn.gelu(x)
        x = nn.Dense(self.dim, dtype=self.dtype, name="pwconv2")(x)
        gamma = self.param("gamma", nn.initializers.constant(self.layer_scale_init), (self.dim,))
        x = x * gamma.astype(x.dtype)
        return shortcut + DropPath(self.drop_path)(x, train)


class Downsample(nn.Module):
    dim: int
    dtype: Any = jnp.bfloat16

    @nn.compact
    def __call__(self, x):
        x = nn.LayerNorm(epsilon=1e-6, dtype=self.dtype)(x)
        return nn.Conv(self.dim, (2, 2), strides=2, dtype=self.dtype)(x)


class ConvNeXt(nn.Module):
    depths: Sequence[int] = DEPTHS
    dims: Sequence[int] = DIMS
    drop_path: float = 0.1
    dtype: Any = jnp.bfloat16

    @nn.compact
    def __call__(self, x, train=True):
        rates = np.linspace(0, self.drop_path, sum(self.depths))
        x = nn.Conv(self.dims[0], (4, 4), strides=4, dtype=self.dtype, name="stem")(
            x.astype(self.dtype)
        )
        x = nn.LayerNorm(epsilon=1e-6, dtype=self.dtype, name="stem_norm")(x)
        k = 0
        for i, (depth, dim) in enumerate(zip(self.depths, self.dims)):
            if i > 0:
                x = Downsample(dim, name=f"downsample{i}")(x)
            for j in range(depth):
                x = ConvNeXtBlock(dim, float(rates[k]), name=f"stage{i}_block{j}")(x, train)
                k += 1
        x = x.mean((1, 2))
        x = nn.LayerNorm(epsilon=1e-6, name="head_norm")(x.astype(jnp.float32))
        return nn.Dense(NUM_CLASSES, name="head")(x)


class TrainState(train_state.TrainState):
    ema: Any = struct.field(default=None)


def normalize(images):
    mean = jnp.array([123.675, 116.28, 103.53])
    std = jnp.array([58.395, 57.12, 57.375])
    return (images.astype(jnp.float32) - mean) / std


def random_flip(key, images):
    flip = jax.random.bernoulli(key, 0.5, (images.shape[0], 1, 1, 1))
    return jnp.where(flip, images[:, :, ::-1], images)


def mixup_cutmix(key, images, labels):
    k_lam, k_box, k_which, k_perm = jax.random.split(key, 4)
    # pair every image with its mirror in the batch
    other, other_lab = images[::-1], labels[::-1]
    lam = jax.random.beta(k_lam, 0.8, 0.8)
    mixed = lam * images + (1 - lam) * other
    cy, cx = jax.random.uniform(k_box, (2,)) * IMAGE
    half = IMAGE * jnp.sqrt(1 - lam) / 2
    yy, xx = jnp.arange(IMAGE)[:, None], jnp.arange(IMAGE)[None]
    box = ((jnp.abs(yy - cy) < half) & (jnp.abs(xx - cx) < half))[None, :, :, None]
    cut = jnp.where(box, other, images)
    lam_cut = 1 - box.mean()
    use_cut = jax.random.bernoulli(k_which)
    lam = jnp.where(use_cut, lam_cut, lam)
    return jnp.where(use_cut, cut, mixed), lam * labels + (1 - lam) * other_lab


def augment(key, images, labels):
    k1, k2 = jax.random.split(key)
    x = random_flip(k1, normalize(images))
    y = optax.smooth_labels(jax.nn.one_hot(labels, NUM_CLASSES), 0.1)
    return mixup_cutmix(k2, x, y)


def wd_mask(params):
    return jax.tree.map(lambda p: p.ndim > 1, params)


def make_tx():
    lr = optax.warmup_cosine_decay_schedule(0.0, 4e-3, 5_000, 100_000)
    return optax.chain(
        optax.clip_by_global_norm(1.0), optax.adamw(lr, b2=0.999, weight_decay=0.05, mask=wd_mask)
    )


def train_step(state: TrainState, batch, key):
    key = jax.random.fold_in(key, state.step)
    k_aug, k_drop = jax.random.split(key)
    images, targets = augment(k_aug, batch["image"], batch["label"])

    def loss_fn(params):
        logits = state.apply_fn({"params": params}, images, train=True, rngs={"drop_path": k_drop})
        return optax.softmax_cross_entropy(logits, targets).mean(), logits

    (loss, logits), grads = jax.value_and_grad(loss_fn, has_aux=True)(state.params)
    state = state.apply_gradients(grads=grads)
    decay = jnp.minimum(0.9999, (1 + state.step) / (10 + state.step))
    ema = jax.tree.map(lambda e, p: decay * e + (1 - decay) * p, state.ema, state.params)
    acc = jnp.mean(jnp.argmax(logits, -1) == batch["label"])
    metrics = {"loss": loss, "accuracy": acc, "grad_norm": optax.global_norm(grads)}
    return state.replace(ema=ema), metrics


def create_state(key):
    model = ConvNeXt()
    params = model.init(key, jnp.zeros((1, IMAGE, IMAGE, 3)), train=False)["params"]
    return TrainState.create(apply_fn=model.apply, params=params, tx=make_tx(), ema=params)


def build(devices=None):
    devices = np.array(jax.devices() if devices is None else devices)[:8]
    mesh = Mesh(devices, ("data",))
    rep, dat = NamedSharding(mesh, P()), NamedSharding(mesh, P("data"))
    put = lambda sh: lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=sh)
    key = jax.ShapeDtypeStruct((2,), jnp.uint32, sharding=rep)
    state = jax.tree.map(put(rep), jax.eval_shape(create_state, key))
    batch = {
        "image": jax.ShapeDtypeStruct((BATCH, IMAGE, IMAGE, 3), jnp.uint8, sharding=dat),
        "label": jax.ShapeDtypeStruct((BATCH,), jnp.int32, sharding=dat),
    }
    return jax.jit(train_step, donate_argnums=0), (state, batch, key)
