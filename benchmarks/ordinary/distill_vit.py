"""Distil a large ViT teacher into a small ViT student (DeiT style, soft labels)."""

TRUTH = {
    "majors": {
        "Teacher ViT (teacher.apply, forward only)": 0.55,
        "Student ViT forward": 0.14,
        "Student ViT backward": 0.28,
        "patch embedding": 0.01,
        "distillation_loss (KL + CE)": 0.0,
        "AdamW update": 0.01,
    },
    "layers": [["teacher EncoderBlock", 12], ["student EncoderBlock", 6]],
    "optimizer": True,
    "grad": "student params only; teacher is frozen (stop_gradient)",
    "loops": [],
    "tells_apart": [["teacher", "student"]],
}

from typing import Any

import jax
import jax.numpy as jnp
import optax
from flax import linen as nn
from flax.training import train_state

IMAGE = 224
PATCH = 16
CLASSES = 1000
BATCH = 16
TEMPERATURE = 3.0
ALPHA = 0.5


class MlpBlock(nn.Module):
    mlp_dim: int
    dropout: float = 0.0

    @nn.compact
    def __call__(self, x, deterministic: bool):
        d = x.shape[-1]
        x = nn.Dense(self.mlp_dim, name="fc1")(x)
        x = nn.gelu(x)
        x = nn.Dropout(self.dropout)(x, deterministic=deterministic)
        x = nn.Dense(d, name="fc2")(x)
        return nn.Dropout(self.dropout)(x, deterministic=deterministic)


class EncoderBlock(nn.Module):
    num_heads: int
    mlp_dim: int
    dropout: float = 0.0

    @nn.compact
    def __call__(self, x, deterministic: bool):
        y = nn.LayerNorm(name="norm1")(x)
        y = nn.MultiHeadDotProductAttention(
            num_heads=self.num_heads, name="attn", deterministic=deterministic
        )(y, y)
        y = nn.Dropout(self.dropout)(y, deterministic=deterministic)
        x = x + y
        y = nn.LayerNorm(name="norm2")(x)
        return x + MlpBlock(self.mlp_dim, self.dropout, name="mlp")(y, deterministic)


class ViT(nn.Module):
    width: int
    depth: int
    heads: int
    dropout: float = 0.0

    @nn.compact
    def __call__(self, images, train: bool = False):
        x = nn.Conv(
            self.width, (PATCH, PATCH), (PATCH, PATCH), padding="VALID", name="patch_embed"
        )(images)
        b, h, w, c = x.shape
        x = x.reshape(b, h * w, c)
        cls = self.param("cls", nn.initializers.zeros, (1, 1, c))
        x = jnp.concatenate([jnp.tile(cls, (b, 1, 1)), x], axis=1)
        pos = self.param("pos_embed", nn.initializers.normal(0.02), (1, x.shape[1], c))
        x = x + pos
        x = nn.Dropout(self.dropout)(x, deterministic=not train)
        for i in range(self.depth):
            x = EncoderBlock(self.heads, 4 * self.width, self.dropout, name=f"block_{i}")(
                x, deterministic=not train
            )
        x = nn.LayerNorm(name="norm")(x)
        return nn.Dense(CLASSES, name="head")(x[:, 0])


teacher = ViT(width=512, depth=12, heads=8)
student = ViT(width=256, depth=6, heads=4, dropout=0.1)


class TrainState(train_state.TrainState):
    teacher_params: Any
    key: jax.Array


def cross_entropy(logits, labels, smoothing=0.1):
    onehot = optax.smooth_labels(jax.nn.one_hot(labels, CLASSES), smoothing)
    return optax.softmax_cross_entropy(logits, onehot).mean()


def distillation_loss(student_logits, teacher_logits, labels):
    soft_t = jax.nn.log_softmax(teacher_logits / TEMPERATURE)
    soft_s = jax.nn.log_softmax(student_logits / TEMPERATURE)
    kl = jnp.sum(jnp.exp(soft_t) * (soft_t - soft_s), axis=-1).mean() * TEMPERATURE**2
    ce = cross_entropy(student_logits, labels)
    return ALPHA * kl + (1 - ALPHA) * ce, {"kl": kl, "ce": ce}


def decay_mask(params):
    return jax.tree.map(lambda p: p.ndim > 1, params)


def make_optimizer():
    schedule = optax.warmup_cosine_decay_schedule(0.0, 1e-3, 1000, 100_000)
    return optax.chain(
        optax.clip_by_global_norm(1.0),
        optax.adamw(schedule, weight_decay=0.05, mask=decay_mask),
    )


def create_state(key):
    k1, k2, k3 = jax.random.split(key, 3)
    images = jnp.zeros((1, IMAGE, IMAGE, 3))
    return TrainState.create(
        apply_fn=student.apply,
        params=student.init(k1, images)["params"],
        tx=make_optimizer(),
        teacher_params=teacher.init(k2, images)["params"],
        key=k3,
    )


@jax.jit
def train_step(state, batch):
    dropout_key = jax.random.fold_in(state.key, state.step)
    teacher_logits = teacher.apply({"params": state.teacher_params}, batch["image"])
    teacher_logits = jax.lax.stop_gradient(teacher_logits)

    def loss_fn(params):
        logits = state.apply_fn(
            {"params": params}, batch["image"], train=True, rngs={"dropout": dropout_key}
        )
        loss, parts = distillation_loss(logits, teacher_logits, batch["label"])
        return loss, (logits, parts)

    (loss, (logits, parts)), grads = jax.value_and_grad(loss_fn, has_aux=True)(state.params)
    state = state.apply_gradients(grads=grads)
    metrics = {
        "loss": loss,
        "accuracy": jnp.mean(jnp.argmax(logits, -1) == batch["label"]),
        "agreement": jnp.mean(jnp.argmax(logits, -1) == jnp.argmax(teacher_logits, -1)),
        "grad_norm": optax.global_norm(grads),
        **parts,
    }
    return state, metrics


def make():
    state = jax.eval_shape(create_state, jax.random.key(0))
    batch = {
        "image": jax.ShapeDtypeStruct((BATCH, IMAGE, IMAGE, 3), jnp.float32),
        "label": jax.ShapeDtypeStruct((BATCH,), jnp.int32),
    }
    return train_step, (state, batch)
