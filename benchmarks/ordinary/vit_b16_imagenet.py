TRUTH = """
# vit_b16_imagenet - ViT-B/16 supervised ImageNet training step; flax.linen TrainState + optax, data parallel over 8

1. Order: preprocess (uint8 -> normalised bf16, random flip) -> **patch embedding** (16x16 conv, 196 tokens) + class token + position -> **encoder: 12 blocks** (Python loop, separate parameters, not a scan), each { LayerNorm, self-attention (12 heads, 197x197), drop path, residual, LayerNorm, MLP 768-3072-768 with GELU, drop path, residual } -> final norm -> head on the class token (1000) -> label-smoothed cross entropy -> **backward** of all that in reverse (12 blocks) -> global-norm clip -> AdamW (cosine schedule, decay only on matrices) -> EMA of the weights.
2. Work ~27 TF for the global batch 256 (3.4 TF per device): encoder blocks 99%, patch embedding 0.7%, head ~0. In a block: MLP 64%, qkv + out projections 32%, scores and values 4%. Forward 1/3, backward 2/3 (no remat). Optimizer + EMA ~0 FLOPs, but read and write 4 copies of 86 M parameters (p, m, v, ema).
3. Loops: none in the source (unrolled x12). A viewer should fold the 12 blocks into "x12" in forward and in backward.
4. Device axes: "data" (8): batch split; everything else replicated; one gradient all-reduce (86 M f32, likely merged / many pieces) after / during backward, plus tiny ones for loss and accuracy. No collectives in the forward.
5. First picture: preprocess -> patch embed -> block x12 (attention, MLP) -> head + loss -> backward block x12 -> all-reduce gradients -> clip -> AdamW -> EMA.
6. Arrows: activations from block to block; saved activations of each forward block to its backward; dropout key to drop path of each block (block 0 has rate 0: no mask); params -> all parts; grads -> AdamW; new params -> EMA.
7. Should not stand out: RNG bits for drop path and flips, LayerNorm statistics, casts, one-hot, metrics (accuracy, grad norm).
8. Typically wrong: block 0 shown as a different kind of block because it has no drop path; optimizer of ~150 leaves drawn as many boxes or the EMA missed; attention said to be the heavy part (it is the MLP); grad norm computed twice (clip and metric); flip / RNG drawn as a main stage.
"""

"""ViT-B/16 on ImageNet-1k, AugReg-ish recipe. Pure data parallel on 8 chips."""
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
from flax.training import train_state
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

MESH = {"data": 8}

GLOBAL_BATCH = 256
NUM_CLASSES = 1000
STEPS = 93_000

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)


class DropPath(nn.Module):
    rate: float

    @nn.compact
    def __call__(self, x, deterministic):
        if deterministic or self.rate == 0.0:
            return x
        keep = 1.0 - self.rate
        shape = (x.shape[0],) + (1,) * (x.ndim - 1)
        mask = jax.random.bernoulli(self.make_rng("dropout"), keep, shape)
        return x * mask.astype(x.dtype) / keep


class MlpBlock(nn.Module):
    hidden: int
    dtype: Any = jnp.bfloat16

    @nn.compact
    def __call__(self, x):
        d = x.shape[-1]
        x = nn.Dense(self.hidden, dtype=self.dtype, name="fc1")(x)
        x = nn.gelu(x)
        return nn.Dense(d, dtype=self.dtype, name="fc2")(x)


class EncoderBlock(nn.Module):
    heads: int
    hidden: int
    drop_path: float
    dtype: Any = jnp.bfloat16

    @nn.compact
    def __call__(self, x, deterministic):
        y = nn.LayerNorm(dtype=self.dtype)(x)
        y = nn.MultiHeadDotProductAttention(num_heads=self.heads, dtype=self.dtype, name="attn")(
            y, y
        )
        x = x + DropPath(self.drop_path)(y, deterministic)
        y = nn.LayerNorm(dtype=self.dtype)(x)
        y = MlpBlock(self.hidden, self.dtype, name="mlp")(y)
        return x + DropPath(self.drop_path)(y, deterministic)


class VisionTransformer(nn.Module):
    dim: int = 768
    depth: int = 12
    heads: int = 12
    patch: int = 16
    drop_path: float = 0.1
    dtype: Any = jnp.bfloat16

    @nn.compact
    def __call__(self, images, train=True):
        x = nn.Conv(
            self.dim,
            (self.patch, self.patch),
            (self.patch, self.patch),
            "VALID",
            dtype=self.dtype,
            name="patch_embed",
        )(images)
        b, h, w, d = x.shape
        x = x.reshape(b, h * w, d)
        cls = self.param("cls", nn.initializers.zeros, (1, 1, d))
        x = jnp.concatenate([jnp.broadcast_to(cls, (b, 1, d)).astype(x.dtype), x], axis=1)
        pos = self.param("pos_embed", nn.initializers.normal(0.02), (1, h * w + 1, d))
        x = x + pos.astype(x.dtype)
        for i in range(self.depth):
            rate = self.drop_path * i / (self.depth - 1)
            x = EncoderBlock(self.heads, 4 * self.dim, rate, self.dtype, name=f"block_{i}")(
                x, not train
            )
        x = nn.LayerNorm(dtype=self.dtype, name="norm")(x)
        return nn.Dense(
            NUM_CLASSES, dtype=jnp.float32, kernel_init=nn.initializers.zeros, name="head"
        )(x[:, 0])


class TrainState(train_state.TrainState):
    ema: Any = None


def build_optimizer():
    schedule = optax.warmup_cosine_decay_schedule(0.0, 1e-3, 10_000, STEPS, 1e-6)
    decay_mask = lambda params: jax.tree.map(lambda p: p.ndim > 1, params)
    return optax.chain(
        optax.clip_by_global_norm(1.0),
        optax.adamw(schedule, b2=0.999, weight_decay=0.1, mask=decay_mask),
    )


def create_state(key):
    model = VisionTransformer()
    variables = model.init(
        {"params": key, "dropout": key}, jnp.zeros((1, 224, 224, 3), jnp.bfloat16)
    )
    params = variables["params"]
    return TrainState.create(apply_fn=model.apply, params=params, tx=build_optimizer(), ema=params)


def preprocess(images, key):
    """uint8 -> normalised bf16, with a random horizontal flip."""
    x = images.astype(jnp.float32) / 255.0
    x = (x - jnp.array(IMAGENET_MEAN)) / jnp.array(IMAGENET_STD)
    flip = jax.random.bernoulli(key, 0.5, (x.shape[0], 1, 1, 1))
    return jnp.where(flip, x[:, :, ::-1], x).astype(jnp.bfloat16)


def train_step(state, batch, key):
    key = jax.random.fold_in(key, state.step)
    k_aug, k_drop = jax.random.split(key)
    images = preprocess(batch["image"], k_aug)
    targets = optax.smooth_labels(jax.nn.one_hot(batch["label"], NUM_CLASSES), 0.1)

    def loss_fn(params):
        logits = state.apply_fn({"params": params}, images, train=True, rngs={"dropout": k_drop})
        return optax.softmax_cross_entropy(logits, targets).mean(), logits

    (loss, logits), grads = jax.value_and_grad(loss_fn, has_aux=True)(state.params)
    state = state.apply_gradients(grads=grads)
    state = state.replace(ema=optax.incremental_update(state.params, state.ema, 1e-4))
    metrics = {
        "loss": loss,
        "accuracy": jnp.mean(logits.argmax(-1) == batch["label"]),
        "grad_norm": optax.global_norm(grads),
    }
    return state, metrics


def make(mesh):
    replicated = NamedSharding(mesh, P())
    by_batch = NamedSharding(mesh, P("data"))
    put = lambda s: lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=s)
    key = jax.ShapeDtypeStruct((2,), jnp.uint32)
    state = jax.tree.map(put(replicated), jax.eval_shape(create_state, key))
    batch = {
        "image": jax.ShapeDtypeStruct((GLOBAL_BATCH, 224, 224, 3), jnp.uint8, sharding=by_batch),
        "label": jax.ShapeDtypeStruct((GLOBAL_BATCH,), jnp.int32, sharding=by_batch),
    }
    step = jax.jit(train_step, donate_argnums=0, out_shardings=(replicated, replicated))
    return step, (state, batch, put(replicated)(key))
