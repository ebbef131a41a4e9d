"""ResNet-50 (half width) with batch norm, data parallel by sharding the batch (flax linen + optax)."""

MESH = {"batch": 8}

TRUTH = {
    "majors": {
        "conv_init": 0.04,
        "stage 1": 0.07,
        "stage 2": 0.08,
        "stage 3": 0.09,
        "stage 4": 0.05,
        "backward": 0.66,
        "gradient all-reduce": 0.0,
        "batch norm statistics (all-reduce)": 0.0,
        "SGD momentum": 0.0,
    },
    "layers": [["BottleneckResNetBlock", 16], ["of stages", "3, 4, 6, 3"]],
    "optimizer": True,
    "grad": "params (batch_stats are state)",
    "loops": [],
    "tells_apart": [["stage 1", "stage 4"], ["params", "batch_stats"]],
}

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import optax
from flax import linen as nn
from flax.training import train_state
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

BATCH, IMAGE, CLASSES = 64, 224, 1000


class BottleneckResNetBlock(nn.Module):
    filters: int
    conv: Callable
    norm: Callable
    strides: tuple = (1, 1)

    @nn.compact
    def __call__(self, x):
        residual = x
        y = self.conv(self.filters, (1, 1))(x)
        y = nn.relu(self.norm()(y))
        y = self.conv(self.filters, (3, 3), self.strides)(y)
        y = nn.relu(self.norm()(y))
        y = self.conv(self.filters * 4, (1, 1))(y)
        y = self.norm(scale_init=nn.initializers.zeros_init())(y)
        if residual.shape != y.shape:
            residual = self.conv(self.filters * 4, (1, 1), self.strides, name="conv_proj")(residual)
            residual = self.norm(name="norm_proj")(residual)
        return nn.relu(residual + y)


class ResNet(nn.Module):
    stage_sizes: Sequence[int]
    num_filters: int = 32
    dtype: Any = jnp.bfloat16

    @nn.compact
    def __call__(self, x, train: bool = True):
        conv = partial(nn.Conv, use_bias=False, dtype=self.dtype)
        norm = partial(
            nn.BatchNorm,
            use_running_average=not train,
            momentum=0.9,
            epsilon=1e-5,
            dtype=self.dtype,
        )
        x = conv(self.num_filters, (7, 7), (2, 2), padding=[(3, 3), (3, 3)], name="conv_init")(x)
        x = nn.relu(norm(name="bn_init")(x))
        x = nn.max_pool(x, (3, 3), strides=(2, 2), padding="SAME")
        for i, size in enumerate(self.stage_sizes):
            for j in range(size):
                strides = (2, 2) if i > 0 and j == 0 else (1, 1)
                x = BottleneckResNetBlock(
                    self.num_filters * 2**i,
                    strides=strides,
                    conv=conv,
                    norm=norm,
                    name=f"stage{i + 1}_block{j + 1}",
                )(x)
        x = jnp.mean(x, axis=(1, 2))
        return nn.Dense(CLASSES, dtype=jnp.float32, name="head")(x)


class TrainState(train_state.TrainState):
    batch_stats: Any


model = ResNet(stage_sizes=[3, 4, 6, 3])


def create_learning_rate_fn(base=0.1, steps_per_epoch=1251, epochs=90):
    warm = optax.linear_schedule(0.0, base, 5 * steps_per_epoch)
    cos = optax.cosine_decay_schedule(base, (epochs - 5) * steps_per_epoch)
    return optax.join_schedules([warm, cos], [5 * steps_per_epoch])


def normalize(images):
    mean = jnp.array([0.485, 0.456, 0.406]) * 255
    std = jnp.array([0.229, 0.224, 0.225]) * 255
    return ((images.astype(jnp.float32) - mean) / std).astype(jnp.bfloat16)


def cross_entropy_loss(logits, labels):
    onehot = jax.nn.one_hot(labels, CLASSES)
    return optax.softmax_cross_entropy(logits, onehot).mean()


def compute_metrics(logits, labels):
    top1 = jnp.mean(jnp.argmax(logits, -1) == labels)
    return {"accuracy": top1, "loss": cross_entropy_loss(logits, labels)}


def train_step(state, batch, weight_decay=1e-4):
    images = normalize(batch["image"])

    def loss_fn(params):
        logits, new_state = state.apply_fn(
            {"params": params, "batch_stats": state.batch_stats}, images, mutable=["batch_stats"]
        )
        loss = cross_entropy_loss(logits, batch["label"])
        l2 = sum(jnp.sum(p**2) for p in jax.tree.leaves(params) if p.ndim > 1)
        return loss + weight_decay * 0.5 * l2, (new_state, logits)

    grads, (new_state, logits) = jax.grad(loss_fn, has_aux=True)(state.params)
    state = state.apply_gradients(grads=grads, batch_stats=new_state["batch_stats"])
    return state, compute_metrics(logits, batch["label"])


def create_state(key):
    variables = model.init(key, jnp.zeros((1, IMAGE, IMAGE, 3)))
    tx = optax.sgd(create_learning_rate_fn(), momentum=0.9, nesterov=True)
    return TrainState.create(
        apply_fn=model.apply,
        params=variables["params"],
        batch_stats=variables["batch_stats"],
        tx=tx,
    )


def make(mesh):
    rep, split = NamedSharding(mesh, P()), NamedSharding(mesh, P("batch"))
    state = jax.eval_shape(create_state, jax.random.key(0))
    state = jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=rep), state)
    batch = {
        "image": jax.ShapeDtypeStruct((BATCH, IMAGE, IMAGE, 3), jnp.uint8, sharding=split),
        "label": jax.ShapeDtypeStruct((BATCH,), jnp.int32, sharding=split),
    }
    return jax.jit(train_step, donate_argnums=0), (state, batch)
