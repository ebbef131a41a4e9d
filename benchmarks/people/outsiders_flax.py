"""Programs of Flax, stated by somebody who knew nothing of the grouping."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import optax
from flax import linen, nnx

from .common import ids
from .newcomers import F32, Attention, Feed
from .strangers_flax import _entropy, stepped, trained_nnx


class Squeeze(linen.Module):
    @linen.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        h = x.mean((1, 2), keepdims=True)
        h = linen.silu(linen.Conv(max(4, x.shape[-1] // 16), (1, 1))(h))
        return x * linen.sigmoid(linen.Conv(x.shape[-1], (1, 1))(h))


class MBConv(linen.Module):
    width: int
    stride: int = 1

    @linen.compact
    def __call__(self, x: jax.Array, train: bool) -> jax.Array:
        norm = partial(linen.BatchNorm, use_running_average=not train, momentum=0.99)
        wide = 4 * x.shape[-1]
        h = linen.silu(norm()(linen.Conv(wide, (1, 1), use_bias=False)(x)))
        steps = (self.stride,) * 2
        h = linen.Conv(wide, (3, 3), steps, feature_group_count=wide, use_bias=False)(h)
        h = Squeeze()(linen.silu(norm()(h)))
        h = norm()(linen.Conv(self.width, (1, 1), use_bias=False)(h))
        return x + h if h.shape == x.shape else h


class EfficientNet(linen.Module):
    @linen.compact
    def __call__(self, x: jax.Array, train: bool = True) -> jax.Array:
        x = linen.Conv(16, (3, 3), (2, 2), use_bias=False, name="stem")(x)
        x = linen.silu(linen.BatchNorm(not train)(x))
        for stage, (width, count) in enumerate(((24, 3), (40, 4), (80, 5))):
            for k in range(count):
                x = MBConv(width, 2 if k == 0 else 1, name=f"stage{stage}_block{k}")(x, train)
        return linen.Dense(10, name="head")(x.mean((1, 2)))


def efficientnet() -> Any:
    """Stages of three, four and five inverted bottlenecks with squeezing; running statistics."""
    model, tx = EfficientNet(), optax.rmsprop(1e-2, momentum=0.9)

    def step(params: Any, stats: Any, state: Any, images: jax.Array, labels: jax.Array) -> Any:
        def loss(params: Any) -> Any:
            of = {"params": params, "batch_stats": stats}
            out, new = model.apply(of, images, mutable=["batch_stats"])
            each = optax.softmax_cross_entropy_with_integer_labels(out, labels)
            return each.mean(), new["batch_stats"]

        (value, new), grads = jax.value_and_grad(loss, has_aux=True)(params)
        updates, state = tx.update(grads, state)
        return optax.apply_updates(params, updates), new, state, value

    images = F32(4, 64, 64, 3)
    made = jax.eval_shape(lambda: model.init(jax.random.key(0), jnp.zeros(images.shape)))
    state = jax.eval_shape(tx.init, made["params"])
    return step, (made["params"], made["batch_stats"], state, images, ids(4))


class Conformer(nnx.Module):
    def __init__(self, d: int, rngs: nnx.Rngs) -> None:
        self.first, self.last = Feed(d, rngs), Feed(d, rngs)
        self.norm1, self.attention = nnx.LayerNorm(d, rngs=rngs), Attention(d, rngs)
        self.norm2, self.wide = nnx.LayerNorm(d, rngs=rngs), nnx.Linear(d, 2 * d, rngs=rngs)
        self.depth = nnx.Conv(d, d, (7,), feature_group_count=d, rngs=rngs)
        self.norm3, self.point = nnx.LayerNorm(d, rngs=rngs), nnx.Linear(d, d, rngs=rngs)
        self.norm = nnx.LayerNorm(d, rngs=rngs)

    def __call__(self, x: jax.Array) -> jax.Array:
        x = (x + self.first(x)) / 2
        h = self.norm1(x)
        x = x + self.attention(h, h)
        h = nnx.glu(self.wide(self.norm2(x)))
        x = x + self.point(nnx.silu(self.norm3(self.depth(h))))
        return self.norm((x + self.last(x)) / 2)


class Recogniser(nnx.Module):
    def __init__(self, rngs: nnx.Rngs) -> None:
        self.conv1 = nnx.Conv(1, 32, (3, 3), (2, 2), rngs=rngs)
        self.conv2 = nnx.Conv(32, 32, (3, 3), (2, 2), rngs=rngs)
        self.project = nnx.Linear(320, 144, rngs=rngs)
        self.blocks = nnx.List([Conformer(144, rngs) for _ in range(6)])
        self.head = nnx.Linear(144, 64, rngs=rngs)

    def __call__(self, sound: jax.Array) -> jax.Array:
        x = nnx.relu(self.conv2(nnx.relu(self.conv1(sound[..., None]))))
        x = self.project(x.reshape(*x.shape[:2], -1))
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def conformer() -> Any:
    """Six blocks that attend and convolve between two half steps; a loss over alignments."""

    def loss(model: Any, sound: jax.Array, words: jax.Array) -> jax.Array:
        logits = model(sound)
        none = jnp.zeros(logits.shape[:2]), jnp.zeros(words.shape)
        return optax.ctc_loss(logits, none[0], words, none[1]).mean()

    return trained_nnx(Recogniser, loss, F32(4, 96, 40), ids(4, 12), tx=optax.adamw(1e-3))


class Block(linen.Module):
    @linen.compact
    def __call__(self, x: jax.Array, _: Any) -> Any:
        h = linen.LayerNorm(dtype=jnp.bfloat16)(x)
        h = linen.SelfAttention(4, dtype=jnp.bfloat16)(h, jnp.tril(jnp.ones((x.shape[1],) * 2)))
        x = x + linen.Dropout(0.1, deterministic=False)(h)
        h = linen.Dense(512, dtype=jnp.bfloat16)(linen.LayerNorm(dtype=jnp.bfloat16)(x))
        return x + linen.Dense(128, dtype=jnp.bfloat16)(linen.gelu(h)), None


class Small(linen.Module):
    @linen.compact
    def __call__(self, tokens: jax.Array) -> jax.Array:
        embed = linen.Embed(1024, 128, dtype=jnp.bfloat16)
        stack = linen.scan(
            linen.remat(Block, policy=jax.checkpoint_policies.nothing_saveable),
            variable_axes={"params": 0},
            split_rngs={"params": True, "dropout": True},
            length=6,
        )
        x, _ = stack(name="layers")(embed(tokens), None)
        return embed.attend(linen.LayerNorm(name="norm")(x))


def micro_batches() -> Any:
    """Four small batches in a loop, six scanned layers in each; half precision, scaled loss."""
    model, tx = Small(), optax.adamw(1e-4)

    def step(params: Any, state: Any, scale: Any, key: Any, tokens: jax.Array) -> Any:
        def loss(params: Any, words: jax.Array, key: Any) -> jax.Array:
            out = model.apply(params, words[:, :-1], rngs={"dropout": key}).astype(jnp.float32)
            each = optax.softmax_cross_entropy_with_integer_labels(out, words[:, 1:])
            return each.mean() * scale

        def one(total: Any, at: Any) -> Any:
            value, grads = jax.value_and_grad(loss)(params, *at)
            return jax.tree.map(jnp.add, total, grads), value

        zero = jax.tree.map(jnp.zeros_like, params)
        grads, values = jax.lax.scan(one, zero, (tokens, jax.random.split(key, 4)))
        grads = jax.tree.map(lambda g: g / (4 * scale), grads)
        fine = jnp.isfinite(optax.global_norm(grads))
        updates, new = tx.update(grads, state, params)
        keep = partial(jax.tree.map, partial(jnp.where, fine))
        new = keep(new, state)
        params = keep(optax.apply_updates(params, updates), params)
        return params, new, jnp.where(fine, scale * 1.001, scale / 2), values.mean() / scale

    tokens = ids(4, 2, 33)
    init = {n: jax.random.key(0) for n in ("params", "dropout")}
    params = jax.eval_shape(lambda: model.init(init, jnp.zeros((2, 32), jnp.int32)))
    key = jax.eval_shape(lambda: jax.random.key(0))
    return step, (params, jax.eval_shape(tx.init, params), F32(), key, tokens)


class Gemma(nnx.Module):
    def __init__(self, d: int, rngs: nnx.Rngs) -> None:
        self.norm, self.attention = nnx.RMSNorm(d, rngs=rngs), Attention(d, rngs)
        self.feed = Feed(d, rngs)

    def __call__(self, x: jax.Array) -> jax.Array:
        h = self.norm(x)
        return self.feed(x + self.attention(h, h, jnp.tril(jnp.ones((x.shape[1],) * 2, bool))))


class ScannedGemma(nnx.Module):
    def __init__(self, rngs: nnx.Rngs) -> None:
        @nnx.split_rngs(splits=8)
        @nnx.vmap(in_axes=(0,), out_axes=0)
        def make(rngs: nnx.Rngs) -> Gemma:
            return Gemma(128, rngs)

        self.embed = nnx.Embed(1024, 128, rngs=rngs)
        self.layers = make(rngs)
        self.norm = nnx.RMSNorm(128, rngs=rngs)

    def __call__(self, tokens: jax.Array) -> jax.Array:
        @nnx.scan(in_axes=(nnx.Carry, 0), out_axes=nnx.Carry)
        @nnx.remat
        def run(x: jax.Array, layer: Gemma) -> jax.Array:
            return layer(x)

        return self.embed.attend(self.norm(run(self.embed(tokens), self.layers)))


def scanned_nnx() -> Any:
    """Eight layers as NNX makes, scans and recomputes them."""
    return trained_nnx(ScannedGemma, _entropy, ids(4, 32), ids(4, 32), tx=optax.adamw(1e-4))


class Seer(linen.Module):
    @linen.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        h = linen.LayerNorm()(x)
        x = x + linen.MultiHeadDotProductAttention(4)(h, h)
        return x + linen.Dense(x.shape[-1])(linen.gelu(linen.Dense(384)(linen.LayerNorm()(x))))


class Speaker(linen.Module):
    @linen.compact
    def __call__(self, x: jax.Array, mask: jax.Array) -> jax.Array:
        h = linen.RMSNorm()(x)
        x = x + linen.MultiHeadDotProductAttention(4, use_bias=False)(h, h, mask=mask)
        h = linen.RMSNorm()(x)
        gate = linen.gelu(linen.Dense(512, use_bias=False, name="gate")(h))
        h = gate * linen.Dense(512, use_bias=False, name="up")(h)
        return x + linen.Dense(128, use_bias=False, name="down")(h)


class Told(linen.Module):
    """Vision of five layers that stays, language of four that learns, one product between."""

    @linen.compact
    def __call__(self, images: jax.Array, tokens: jax.Array) -> jax.Array:
        y = linen.Conv(96, (8, 8), (8, 8), name="vision_patch")(images)
        y = y.reshape(y.shape[0], -1, 96)
        for k in range(5):
            y = Seer(name=f"vision_{k}")(y)
        y = linen.Dense(128, name="project")(jax.lax.stop_gradient(y))
        embed = linen.Embed(1024, 128, name="embed")
        x = jnp.concatenate([y, embed(tokens)], 1)
        at = jnp.arange(x.shape[1])
        mask = (at[:, None] >= at) | (at < y.shape[1])
        for k in range(4):
            x = Speaker(name=f"language_{k}")(x, mask[None, None])
        return embed.attend(linen.RMSNorm(name="norm")(x[:, y.shape[1] :]))


def told() -> Any:
    """A picture told in words: frozen vision, a mask of two kinds, gradients of the rest."""
    model = Told()

    def loss(params: Any, images: jax.Array, tokens: jax.Array, labels: jax.Array) -> jax.Array:
        out = model.apply(params, images, tokens)
        return optax.softmax_cross_entropy_with_integer_labels(out, labels).mean()

    batch = F32(2, 32, 32, 3), ids(2, 24), ids(2, 24)
    return stepped(model, loss, *batch, tx=optax.contrib.muon(1e-3))


class SpaceTime(nnx.Module):
    def __init__(self, d: int, rngs: nnx.Rngs) -> None:
        self.norm1, self.time = nnx.LayerNorm(d, rngs=rngs), Attention(d, rngs)
        self.norm2, self.space = nnx.LayerNorm(d, rngs=rngs), Attention(d, rngs)
        self.feed = Feed(d, rngs)

    def __call__(self, x: jax.Array) -> jax.Array:
        b, t, n, d = x.shape
        h = self.norm1(x).swapaxes(1, 2).reshape(b * n, t, d)
        x = x + self.time(h, h).reshape(b, n, t, d).swapaxes(1, 2)
        h = self.norm2(x).reshape(b * t, n, d)
        return self.feed(x + self.space(h, h).reshape(x.shape))


class Watcher(nnx.Module):
    def __init__(self, rngs: nnx.Rngs) -> None:
        self.tube = nnx.Conv(3, 96, (2, 8, 8), (2, 8, 8), rngs=rngs)
        self.blocks = nnx.List([SpaceTime(96, rngs) for _ in range(5)])
        self.head = nnx.Linear(96, 20, rngs=rngs)

    def __call__(self, video: jax.Array) -> jax.Array:
        x = self.tube(video)
        x = x.reshape(*x.shape[:2], -1, 96)
        for block in self.blocks:
            x = block(x)
        return self.head(x.mean((1, 2)))


def video() -> Any:
    """Five blocks that look along time, then across space."""
    tx = optax.chain(optax.clip_by_global_norm(1.0), optax.sgd(0.01, momentum=0.9, nesterov=True))
    return trained_nnx(Watcher, _entropy, F32(2, 8, 32, 32, 3), ids(2), tx=tx)


class Resonance(linen.Module):
    kernel: int

    @linen.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        for far in (1, 3, 5):
            h = linen.Conv(x.shape[-1], (self.kernel,), kernel_dilation=far)(
                linen.leaky_relu(x, 0.1)
            )
            x = x + linen.Conv(x.shape[-1], (self.kernel,))(linen.leaky_relu(h, 0.1))
        return x


class Vocoder(linen.Module):
    @linen.compact
    def __call__(self, mel: jax.Array) -> jax.Array:
        x = linen.Conv(128, (7,))(mel)
        for k, (width, up) in enumerate(((64, 8), (32, 8), (16, 2), (8, 2))):
            x = linen.ConvTranspose(width, (2 * up,), (up,), name=f"up_{k}")(
                linen.leaky_relu(x, 0.1)
            )
            x = sum(Resonance(n, name=f"res_{k}_{n}")(x) for n in (3, 7, 11)) / 3
        return jnp.tanh(linen.Conv(1, (7,))(linen.leaky_relu(x)))


def vocoder() -> Any:
    """HiFi-GAN speaks: four times longer and narrower, three kernels side by side in each."""
    model = Vocoder()
    mel = F32(1, 32, 80)
    params = jax.eval_shape(lambda: model.init(jax.random.key(0), jnp.zeros(mel.shape)))
    return model.apply, (params, mel)


class Mapper(linen.Module):
    @linen.compact
    def __call__(self, x: jax.Array, bias: jax.Array) -> jax.Array:
        d = x.shape[-1]
        q, k, v = (linen.DenseGeneral((4, d // 4), name=n)(linen.LayerNorm()(x)) for n in "qkv")
        scores = jnp.einsum("bihd,bjhd->bhij", q, k) / 5 + bias
        out = jnp.einsum("bhij,bjhd->bihd", linen.softmax(scores), v)
        x = x + linen.DenseGeneral(d, (-2, -1), name="o")(out)
        return x + linen.Dense(d)(linen.gelu(linen.Dense(d)(linen.LayerNorm()(x))))


class Graphormer(linen.Module):
    @linen.compact
    def __call__(self, kind: jax.Array, far: jax.Array, degree: jax.Array) -> jax.Array:
        x = linen.Embed(64, 96, name="atoms")(kind) + linen.Embed(8, 96, name="degrees")(degree)
        bias = linen.Embed(20, 4, name="distances")(far).transpose(0, 3, 1, 2)
        for k in range(6):
            x = Mapper(name=f"layers_{k}")(x, bias)
        return linen.Dense(1, name="head")(x.mean(1))[:, 0]


def graphormer() -> Any:
    """Six layers on graphs; how far two atoms are is added to what they think of one another."""
    model = Graphormer()

    def loss(params: Any, kind: Any, far: Any, degree: Any, y: jax.Array) -> jax.Array:
        return jnp.abs(model.apply(params, kind, far, degree) - y).mean()

    batch = ids(8, 24), ids(8, 24, 24), ids(8, 24), F32(8)
    return stepped(model, loss, *batch, tx=optax.adamw(optax.cosine_decay_schedule(1e-3, 100)))


# name → (make, layers); a tuple among them holds what a person might as well draw
PROGRAMS: dict[str, Any] = {
    "efficientnet": (efficientnet, ((3, 2, 12), (4, 3, 12), (5, 4, 12))),
    "conformer": (conformer, (6, 6)),
    "micro_batches": (micro_batches, (4, 6, 6)),
    "scanned_nnx": (scanned_nnx, (8, 8)),
    "told": (told, (5, 4, 4)),
    "video": (video, (5, 5)),
    "vocoder": (vocoder, ((4, 12),)),
    "graphormer": (graphormer, (6, 6)),
}
