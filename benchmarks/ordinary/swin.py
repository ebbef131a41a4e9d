TRUTH = """
TOP-LEVEL, IN ORDER
- train_step: mixup of the batch -> loss_fn forward of SwinTransformer -> backward -> optimizer (clip by global norm + adamw)
- SwinTransformer: `patch_embed` (conv 4x4 stride 4 + norm) -> 4 stages -> final `norm` -> mean pool -> `head`
- between stages a PatchMerging (`downsample`): after stages 0, 1, 2; none after the last
COUNTS
- 4 stages with 2, 2, 4, 2 blocks = 10 SwinBlocks, unrolled (no loop over layers; loops of the random generator or of scatter do not count)
- blocks alternate plain window / shifted window; the last stage never shifts (resolution 7 = window 7): 4 of the 10 blocks are shifted (stage 0: block 1; stage 1: block 1; stage 2: blocks 1 and 3)
- 3 PatchMerging modules
- each block: norm1, (roll), window_partition, WindowAttention (qkv, relative position bias, softmax, proj), window_reverse, (roll back), residual, norm2, Mlp, residual
- resolution 56 -> 28 -> 14 -> 7, width 64 -> 128 -> 256 -> 512
SHARES
- per-stage FLOPs: stage 2 (4 blocks) the most, ~37%; stages 0, 1, 3 about 18-20% each; the three PatchMergings together ~4-5%
- MLP ~60-63%, attention ~37-40% of the blocks' FLOPs; patch_embed and head ~1% together
- forward ~1/3, backward ~2/3, optimizer negligible
INDEPENDENT
- it is a chain; nothing of substance is independent (only mixup of labels vs. of images)
MUST NOT BE SHOWN
- no collectives, no layer loop, no class token, no batch norm, no EMA, no dropout other than stochastic depth (drop_path)
"""
"""Swin Transformer (tiny-ish) ImageNet training step in Flax NNX."""
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

WINDOW = 7


def window_partition(x, ws):
    b, h, w, c = x.shape
    x = x.reshape(b, h // ws, ws, w // ws, ws, c)
    return x.transpose(0, 1, 3, 2, 4, 5).reshape(-1, ws * ws, c)


def window_reverse(windows, ws, h, w):
    c = windows.shape[-1]
    x = windows.reshape(-1, h // ws, w // ws, ws, ws, c)
    return x.transpose(0, 1, 3, 2, 4, 5).reshape(-1, h, w, c)


def relative_position_index(ws):
    coords = np.stack(np.meshgrid(np.arange(ws), np.arange(ws), indexing="ij")).reshape(2, -1)
    rel = (coords[:, :, None] - coords[:, None, :]).transpose(1, 2, 0) + ws - 1
    return rel[..., 0] * (2 * ws - 1) + rel[..., 1]


def shifted_window_mask(h, w, ws, shift):
    img = np.zeros((1, h, w, 1))
    cnt = 0
    sl = (slice(0, -ws), slice(-ws, -shift), slice(-shift, None))
    for a in sl:
        for b in sl:
            img[:, a, b, :] = cnt
            cnt += 1
    m = (
        np.asarray(img)
        .reshape(1, h // ws, ws, w // ws, ws, 1)
        .transpose(0, 1, 3, 2, 4, 5)
        .reshape(-1, ws * ws)
    )
    d = m[:, None, :] - m[:, :, None]
    return np.where(d != 0, -100.0, 0.0).astype(np.float32)


def drop_path(x, rate, rngs):
    if rate == 0.0:
        return x
    keep = 1.0 - rate
    mask = jax.random.bernoulli(rngs.dropout(), keep, (x.shape[0],) + (1,) * (x.ndim - 1))
    return jnp.where(mask, x / keep, 0.0)


class Mlp(nnx.Module):
    def __init__(self, dim, rngs):
        self.fc1 = nnx.Linear(dim, 4 * dim, rngs=rngs)
        self.fc2 = nnx.Linear(4 * dim, dim, rngs=rngs)

    def __call__(self, x):
        return self.fc2(nnx.gelu(self.fc1(x)))


class WindowAttention(nnx.Module):
    def __init__(self, dim, heads, rngs):
        self.heads, self.scale = heads, (dim // heads) ** -0.5
        self.qkv = nnx.Linear(dim, 3 * dim, rngs=rngs)
        self.proj = nnx.Linear(dim, dim, rngs=rngs)
        self.relative_position_bias_table = nnx.Param(
            nnx.initializers.truncated_normal(0.02)(rngs.params(), ((2 * WINDOW - 1) ** 2, heads))
        )

    def __call__(self, x, mask=None):
        bw, n, c = x.shape
        q, k, v = (
            self.qkv(x).reshape(bw, n, 3, self.heads, c // self.heads).transpose(2, 0, 3, 1, 4)
        )
        attn = (q * self.scale) @ k.swapaxes(-1, -2)
        bias = self.relative_position_bias_table[...][relative_position_index(WINDOW)]
        attn = attn + bias.transpose(2, 0, 1)[None]
        if mask is not None:
            nw = mask.shape[0]
            attn = attn.reshape(bw // nw, nw, self.heads, n, n) + mask[None, :, None]
            attn = attn.reshape(bw, self.heads, n, n)
        attn = jax.nn.softmax(attn, axis=-1)
        x = (attn @ v).swapaxes(1, 2).reshape(bw, n, c)
        return self.proj(x)


class SwinBlock(nnx.Module):
    def __init__(self, dim, res, heads, shift, dp, rngs):
        self.res, self.dp = res, dp
        self.shift = 0 if res <= WINDOW else shift
        self.norm1 = nnx.LayerNorm(dim, rngs=rngs)
        self.attn = WindowAttention(dim, heads, rngs)
        self.norm2 = nnx.LayerNorm(dim, rngs=rngs)
        self.mlp = Mlp(dim, rngs)

    def __call__(self, x, rngs):
        b, h, w, c = x.shape
        shortcut = x
        x = self.norm1(x)
        mask = None
        if self.shift > 0:
            x = jnp.roll(x, (-self.shift, -self.shift), axis=(1, 2))
            mask = shifted_window_mask(h, w, WINDOW, self.shift)
        x = window_partition(x, WINDOW)
        x = self.attn(x, mask)
        x = window_reverse(x, WINDOW, h, w)
        if self.shift > 0:
            x = jnp.roll(x, (self.shift, self.shift), axis=(1, 2))
        x = shortcut + drop_path(x, self.dp, rngs)
        return x + drop_path(self.mlp(self.norm2(x)), self.dp, rngs)


class PatchMerging(nnx.Module):
    def __init__(self, dim, rngs):
        self.norm = nnx.LayerNorm(4 * dim, rngs=rngs)
        self.reduction = nnx.Linear(4 * dim, 2 * dim, use_bias=False, rngs=rngs)

    def __call__(self, x):
        x = jnp.concatenate(
            [x[:, 0::2, 0::2], x[:, 1::2, 0::2], x[:, 0::2, 1::2], x[:, 1::2, 1::2]], -1
        )
        return self.reduction(self.norm(x))


class BasicLayer(nnx.Module):
    def __init__(self, dim, res, depth, heads, dprs, downsample, rngs):
        self.blocks = nnx.List(
            [
                SwinBlock(dim, res, heads, 0 if i % 2 == 0 else WINDOW // 2, dprs[i], rngs)
                for i in range(depth)
            ]
        )
        self.downsample = PatchMerging(dim, rngs) if downsample else None

    def __call__(self, x, rngs):
        for blk in self.blocks:
            x = blk(x, rngs)
        if self.downsample is not None:
            x = self.downsample(x)
        return x


class PatchEmbed(nnx.Module):
    def __init__(self, dim, rngs):
        self.proj = nnx.Conv(3, dim, (4, 4), strides=(4, 4), padding="VALID", rngs=rngs)
        self.norm = nnx.LayerNorm(dim, rngs=rngs)

    def __call__(self, x):
        return self.norm(self.proj(x))


class SwinTransformer(nnx.Module):
    def __init__(self, rngs, dim=64, depths=(2, 2, 4, 2), heads=(2, 4, 8, 16), num_classes=1000):
        self.patch_embed = PatchEmbed(dim, rngs)
        dpr = np.linspace(0, 0.2, sum(depths)).tolist()
        self.layers = nnx.List(
            [
                BasicLayer(
                    dim * 2**i,
                    56 // 2**i,
                    d,
                    heads[i],
                    dpr[sum(depths[:i]) : sum(depths[: i + 1])],
                    i < len(depths) - 1,
                    rngs,
                )
                for i, d in enumerate(depths)
            ]
        )
        self.norm = nnx.LayerNorm(dim * 8, rngs=rngs)
        self.head = nnx.Linear(dim * 8, num_classes, rngs=rngs)

    def __call__(self, x, rngs):
        x = self.patch_embed(x)
        for layer in self.layers:
            x = layer(x, rngs)
        return self.head(self.norm(x).mean((1, 2)))


def mixup(key, images, labels, alpha=0.8):
    k1, k2 = jax.random.split(key)
    lam = jax.random.beta(k1, alpha, alpha)
    perm = jax.random.permutation(k2, images.shape[0])
    return lam * images + (1 - lam) * images[perm], lam * labels + (1 - lam) * labels[perm]


def loss_fn(model, images, labels, rngs):
    logits = model(images, rngs)
    return optax.softmax_cross_entropy(logits, labels).mean(), logits


def make():
    def build():
        model = SwinTransformer(nnx.Rngs(0))
        tx = optax.chain(optax.clip_by_global_norm(5.0), optax.adamw(1e-3, weight_decay=0.05))
        return model, nnx.Optimizer(model, tx, wrt=nnx.Param)

    graphdef, state = nnx.split(nnx.eval_shape(build))

    def train_step(state, images, labels, key):
        model, optimizer = nnx.merge(graphdef, state)
        kmix, kdrop = jax.random.split(key)
        targets = optax.smooth_labels(jax.nn.one_hot(labels, 1000), 0.1)
        images, targets = mixup(kmix, images, targets)
        (loss, logits), grads = nnx.value_and_grad(loss_fn, has_aux=True)(
            model, images, targets, nnx.Rngs(dropout=kdrop)
        )
        optimizer.update(model, grads)
        acc = (logits.argmax(-1) == labels).mean()
        return nnx.state((model, optimizer)), loss, acc

    return train_step, (
        state,
        jax.ShapeDtypeStruct((16, 224, 224, 3), jnp.float32),
        jax.ShapeDtypeStruct((16,), jnp.int32),
        jax.random.key(0),
    )
