TRUTH = """
One SegFormer-B1 training step (train_step), data parallel on 8 devices, batch 32 (4 per device) of 512x512 images, 150 classes.

train_step
  loss_fn (forward)
    SegFormer
      encoder (MixTransformer): 4 stages, written out, no loop in the compiled program
        stage1 128x128x64   patch embed (7x7 conv stride 4) + 2 Block + norm   (sr 8)
        stage2  64x64x128   patch embed (3x3 stride 2)      + 2 Block + norm   (sr 4)
        stage3  32x32x320   patch embed (3x3 stride 2)      + 2 Block + norm   (sr 2)
        stage4  16x16x512   patch embed (3x3 stride 2)      + 2 Block + norm   (sr 1, no reduction conv)
          Block = norm1, attn (q, reduce + norm, kv, scores, proj), drop_path, norm2, mlp (fc1, dwconv 3x3 depthwise, gelu, fc2), drop_path
      decode_head (MLPDecoder): 4 linears, 3 bilinear upsamplings, concat, fuse 1x1 (1024->256), bn (batch statistics over all devices: all-reduce), relu, classify (256->150)
    segmentation_loss: logits upsampled 128 -> 512, cross entropy per pixel over 150 classes (big: 4x512x512x150 f32), ignore 255
  backward of all of that (about twice the forward), no remat
  gradient all-reduce over "data"
  optimiser: adamw twice through multi_transform: "head" lr x10 and "backbone"; apply_updates
  new batch statistics for bn

Count: 8 blocks in all (2+2+2+2). Heavy: the Linear/1x1 matmuls of the stages, the attention of stage1/2, the decoder's fuse,
and (memory wise) the 512x512x150 loss. Drop path in the very first block has rate 0 (no random bits there).
First sight: encoder with stage1..stage4, decode_head, loss, backward, optimiser. "stage1..4" are the author's own scopes.
False would be: a loop; stages merged because their blocks look alike; equal blocks across stages shown as x8 of one shape
(their sizes differ; only the two blocks within one stage are alike); the loss hidden as "other"; random bits or
the batch-norm all-reduce shown as heavy compute; encoder and decoder exchanged.
"""

"""SegFormer-B1 fine-tuning on ADE20K, flax nnx, data parallel."""
import jax
import jax.numpy as jnp
import optax
from flax import nnx
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

MESH = {"data": 8}
BATCH, SIZE, CLASSES = 32, 512, 150
DIMS, DEPTHS, HEADS, SR = (64, 128, 320, 512), (2, 2, 2, 2), (1, 2, 5, 8), (8, 4, 2, 1)
DT = jnp.bfloat16


class OverlapPatchEmbed(nnx.Module):
    def __init__(self, cin, cout, k, stride, *, rngs):
        self.proj = nnx.Conv(cin, cout, (k, k), strides=stride, padding=k // 2, dtype=DT, rngs=rngs)
        self.norm = nnx.LayerNorm(cout, dtype=DT, rngs=rngs)

    def __call__(self, x):
        return self.norm(self.proj(x))


class EfficientSelfAttention(nnx.Module):
    """Keys and values come from a map reduced by sr x sr."""

    def __init__(self, dim, heads, sr, *, rngs):
        self.heads, self.sr = heads, sr
        self.q = nnx.Linear(dim, dim, dtype=DT, rngs=rngs)
        self.kv = nnx.Linear(dim, 2 * dim, dtype=DT, rngs=rngs)
        self.proj = nnx.Linear(dim, dim, dtype=DT, rngs=rngs)
        if sr > 1:
            self.reduce = nnx.Conv(
                dim, dim, (sr, sr), strides=sr, padding="VALID", dtype=DT, rngs=rngs
            )
            self.norm = nnx.LayerNorm(dim, dtype=DT, rngs=rngs)

    def __call__(self, x):
        b, h, w, c = x.shape
        d = c // self.heads
        q = self.q(x).reshape(b, h * w, self.heads, d)
        r = self.norm(self.reduce(x)) if self.sr > 1 else x
        k, v = jnp.split(self.kv(r).reshape(b, -1, self.heads, 2 * d), 2, axis=-1)
        s = jnp.einsum("bqhd,bkhd->bhqk", q, k).astype(jnp.float32) * d**-0.5
        o = jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(s, -1).astype(DT), v)
        return self.proj(o.reshape(b, h, w, c))


class MixFFN(nnx.Module):
    def __init__(self, dim, *, rngs):
        hid = 4 * dim
        self.fc1 = nnx.Linear(dim, hid, dtype=DT, rngs=rngs)
        self.dwconv = nnx.Conv(hid, hid, (3, 3), feature_group_count=hid, dtype=DT, rngs=rngs)
        self.fc2 = nnx.Linear(hid, dim, dtype=DT, rngs=rngs)

    def __call__(self, x):
        return self.fc2(jax.nn.gelu(self.dwconv(self.fc1(x))))


def drop_path(x, rate, key):
    if rate == 0.0:
        return x
    keep = jax.random.bernoulli(key, 1 - rate, (x.shape[0], 1, 1, 1))
    return jnp.where(keep, x / (1 - rate), 0).astype(x.dtype)


class Block(nnx.Module):
    def __init__(self, dim, heads, sr, rate, *, rngs):
        self.rate = rate
        self.norm1 = nnx.LayerNorm(dim, dtype=DT, rngs=rngs)
        self.attn = EfficientSelfAttention(dim, heads, sr, rngs=rngs)
        self.norm2 = nnx.LayerNorm(dim, dtype=DT, rngs=rngs)
        self.mlp = MixFFN(dim, rngs=rngs)

    def __call__(self, x, key):
        k1, k2 = jax.random.split(key)
        x = x + drop_path(self.attn(self.norm1(x)), self.rate, k1)
        return x + drop_path(self.mlp(self.norm2(x)), self.rate, k2)


class MixTransformer(nnx.Module):
    def __init__(self, *, rngs):
        rates = [0.1 * i / (sum(DEPTHS) - 1) for i in range(sum(DEPTHS))]
        cin = (3,) + DIMS[:-1]
        self.patch_embeds = nnx.List(
            [
                OverlapPatchEmbed(
                    cin[i], DIMS[i], 7 if i == 0 else 3, 4 if i == 0 else 2, rngs=rngs
                )
                for i in range(4)
            ]
        )
        self.stages = nnx.List(
            [
                nnx.List(
                    [
                        Block(DIMS[i], HEADS[i], SR[i], rates[sum(DEPTHS[:i]) + j], rngs=rngs)
                        for j in range(DEPTHS[i])
                    ]
                )
                for i in range(4)
            ]
        )
        self.norms = nnx.List([nnx.LayerNorm(d, dtype=DT, rngs=rngs) for d in DIMS])

    def __call__(self, x, key):
        features = []
        for i in range(4):
            with jax.named_scope(f"stage{i + 1}"):
                x = self.patch_embeds[i](x)
                for block in self.stages[i]:
                    key, sub = jax.random.split(key)
                    x = block(x, sub)
                x = self.norms[i](x)
            features.append(x)
        return features


class MLPDecoder(nnx.Module):
    def __init__(self, width=256, *, rngs):
        self.linears = nnx.List([nnx.Linear(d, width, dtype=DT, rngs=rngs) for d in DIMS])
        self.fuse = nnx.Conv(4 * width, width, (1, 1), use_bias=False, dtype=DT, rngs=rngs)
        self.bn = nnx.BatchNorm(width, dtype=DT, rngs=rngs)
        self.classify = nnx.Conv(width, CLASSES, (1, 1), rngs=rngs)

    def __call__(self, features):
        b, h, w, _ = features[0].shape
        ups = [
            jax.image.resize(lin(f), (b, h, w, lin.out_features), "bilinear")
            for lin, f in zip(self.linears, features)
        ]
        x = self.fuse(jnp.concatenate(ups[::-1], -1))
        return self.classify(jax.nn.relu(self.bn(x)).astype(jnp.float32))


class SegFormer(nnx.Module):
    def __init__(self, *, rngs):
        self.encoder = MixTransformer(rngs=rngs)
        self.decode_head = MLPDecoder(rngs=rngs)

    def __call__(self, images, key):
        return self.decode_head(self.encoder(images.astype(DT), key))


def segmentation_loss(logits, labels):
    b, h, w = labels.shape
    logits = jax.image.resize(logits, (b, h, w, CLASSES), "bilinear")
    valid = labels != 255
    ce = optax.softmax_cross_entropy_with_integer_labels(logits, jnp.where(valid, labels, 0))
    return (ce * valid).sum() / jnp.maximum(valid.sum(), 1)


def make(mesh):
    model = nnx.eval_shape(lambda: SegFormer(rngs=nnx.Rngs(0)))
    graphdef, params, stats = nnx.split(model, nnx.Param, ...)
    poly = lambda lr: optax.join_schedules(
        [optax.linear_schedule(0, lr, 1500), optax.polynomial_schedule(lr, 0, 1.0, 158_500)], [1500]
    )
    # the head learns ten times faster than the pretrained encoder
    groups = lambda p: jax.tree_util.tree_map_with_path(
        lambda k, _: "head" if "decode_head" in jax.tree_util.keystr(k) else "backbone", p
    )
    tx = optax.multi_transform(
        {
            "head": optax.adamw(poly(6e-4), weight_decay=0.01),
            "backbone": optax.adamw(poly(6e-5), weight_decay=0.01),
        },
        groups,
    )

    @jax.jit
    def train_step(params, stats, opt_state, images, labels, key):
        def loss_fn(params):
            net = nnx.merge(graphdef, params, stats, copy=True)
            loss = segmentation_loss(net(images, key), labels)
            return loss, nnx.split(net, nnx.Param, ...)[2]

        (loss, new_stats), grads = jax.value_and_grad(loss_fn, has_aux=True)(params)
        updates, opt_state = tx.update(grads, opt_state, params)
        return optax.apply_updates(params, updates), new_stats, opt_state, loss

    rep, dp = NamedSharding(mesh, P()), NamedSharding(mesh, P("data"))
    S = jax.ShapeDtypeStruct
    opt_state = jax.eval_shape(tx.init, params)
    on = lambda t: jax.tree.map(lambda x: S(x.shape, x.dtype, sharding=rep), t)
    return train_step, (
        on(params),
        on(stats),
        on(opt_state),
        S((BATCH, SIZE, SIZE, 3), jnp.float32, sharding=dp),
        S((BATCH, SIZE, SIZE), jnp.int32, sharding=dp),
        S((2,), jnp.uint32, sharding=rep),
    )
