"""Programs of Flax whose layers were stated before the grouping that meets them was changed."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import optax
from flax import linen, nnx

from .common import ids, s
from .newcomers import F32, Attention, Feed, heads, whole


def stepped(model: linen.Module, loss: Any, *batch: Any, tx: Any) -> Any:
    """A train step of a Linen module; ``loss(params, *batch)``."""

    def make() -> Any:
        return model.init(jax.random.key(0), *(jnp.zeros(b.shape, b.dtype) for b in batch[:-1]))

    def step(params: Any, state: Any, *batch: Any) -> Any:
        value, grads = jax.value_and_grad(loss)(params, *batch)
        updates, state = tx.update(grads, state, params)
        return optax.apply_updates(params, updates), state, value

    params = jax.eval_shape(make)
    return step, (params, jax.eval_shape(tx.init, params), *batch)


class Mamba(linen.Module):
    @linen.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        d = x.shape[-1]
        h = linen.RMSNorm()(x)
        u, z = jnp.split(linen.Dense(4 * d, use_bias=False, name="in_proj")(h), 2, -1)
        u = linen.silu(linen.Conv(2 * d, (4,), feature_group_count=2 * d, padding="CAUSAL")(u))
        b, c = jnp.split(linen.Dense(32, name="bc")(u), 2, -1)
        dt = linen.softplus(linen.Dense(2 * d, name="dt")(u))
        a = -jnp.exp(self.param("a_log", linen.initializers.zeros, (2 * d, 16)))
        fade = jnp.exp(dt[..., None] * a)
        add = (dt * u)[..., None] * b[:, :, None]

        def join(left: Any, right: Any) -> Any:
            return left[0] * right[0], left[1] * right[0] + right[1]

        _, state = jax.lax.associative_scan(join, (fade, add), axis=1)
        y = jnp.einsum("btds,bts->btd", state, c) * linen.silu(z)
        return x + linen.Dense(d, use_bias=False, name="out_proj")(y)


class Look(linen.Module):
    @linen.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        return x + linen.SelfAttention(4, name="attention")(linen.RMSNorm()(x))


class Jamba(linen.Module):
    """Eight layers: one that attends to three of Mamba; a feed-forward after each."""

    @linen.compact
    def __call__(self, tokens: jax.Array) -> jax.Array:
        x = linen.Embed(1024, 64)(tokens)
        for k in range(8):
            x = (Look if k % 4 == 0 else Mamba)(name=f"mixer_{k}")(x)
            h = linen.Dense(256, name=f"up_{k}")(linen.RMSNorm(name=f"norm_{k}")(x))
            x = x + linen.Dense(64, name=f"down_{k}")(linen.gelu(h))
        return linen.Dense(1024, name="head")(linen.RMSNorm()(x))


def jamba() -> Any:
    model = Jamba()

    def loss(params: Any, tokens: jax.Array, labels: jax.Array) -> jax.Array:
        out = model.apply(params, tokens)
        return optax.softmax_cross_entropy_with_integer_labels(out, labels).mean()

    return stepped(model, loss, ids(2, 32), ids(2, 32), tx=optax.adamw(1e-3))


class T5Attention(linen.Module):
    causal: bool = False

    @linen.compact
    def __call__(self, x: jax.Array, y: jax.Array, bias: Any = None) -> jax.Array:
        d = x.shape[-1]
        q, k, v = (
            heads(linen.Dense(d, use_bias=False, name=n)(a), 4)
            for n, a in (("q", x), ("k", y), ("v", y))
        )
        scores = q @ k.swapaxes(-1, -2)
        scores = scores if bias is None else scores + bias
        if self.causal:
            scores = jnp.where(jnp.tril(jnp.ones(scores.shape[-2:], bool)), scores, -1e9)
        out = whole(linen.softmax(scores) @ v)
        return linen.Dense(d, use_bias=False, name="o")(out)


class T5Layer(linen.Module):
    decodes: bool

    @linen.compact
    def __call__(self, x: jax.Array, bias: jax.Array, y: Any = None) -> jax.Array:
        d = x.shape[-1]
        h = linen.RMSNorm()(x)
        x = x + T5Attention(self.decodes, name="self_attention")(h, h, bias)
        if self.decodes:
            x = x + T5Attention(name="cross_attention")(linen.RMSNorm()(x), y)
        h = linen.RMSNorm()(x)
        gate = linen.gelu(linen.Dense(2 * d, use_bias=False, name="wi_0")(h))
        h = gate * linen.Dense(2 * d, use_bias=False, name="wi_1")(h)
        return x + linen.Dense(d, use_bias=False, name="wo")(h)


class T5(linen.Module):
    @linen.compact
    def __call__(self, source: jax.Array, target: jax.Array) -> jax.Array:
        embed = linen.Embed(1024, 128)

        def bias(n: int, name: str) -> jax.Array:
            table = self.param(name, linen.initializers.zeros, (4, 32))
            far = jnp.clip(jnp.arange(n)[:, None] - jnp.arange(n) + 16, 0, 31)
            return table[:, far]

        y = embed(source)
        there = bias(source.shape[1], "encoder_bias")
        for _ in range(4):
            y = T5Layer(False)(y, there)
        x, here = embed(target), bias(target.shape[1], "decoder_bias")
        for _ in range(4):
            x = T5Layer(True)(x, here, y)
        return embed.attend(linen.RMSNorm()(x))


def t5() -> Any:
    """T5 in Linen: four layers read, four write; all are called ``T5Layer_k``."""
    model = T5()

    def loss(params: Any, source: jax.Array, target: jax.Array, labels: jax.Array) -> jax.Array:
        out = model.apply(params, source, target)
        return optax.softmax_cross_entropy_with_integer_labels(out, labels).mean()

    return stepped(model, loss, ids(4, 24), ids(4, 16), ids(4, 16), tx=optax.adafactor(1e-3))


class MixerBlock(linen.Module):
    @linen.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        h = linen.LayerNorm()(x).swapaxes(1, 2)
        h = linen.Dense(x.shape[1])(linen.gelu(linen.Dense(64)(h)))
        x = x + h.swapaxes(1, 2)
        h = linen.gelu(linen.Dense(4 * x.shape[2])(linen.LayerNorm()(x)))
        return x + linen.Dense(x.shape[2])(h)


class Mixer(linen.Module):
    @linen.compact
    def __call__(self, images: jax.Array) -> jax.Array:
        x = linen.Conv(96, (4, 4), (4, 4), name="stem")(images)
        x = x.reshape(x.shape[0], -1, 96)
        for _ in range(6):
            x = MixerBlock()(x)
        return linen.Dense(10, name="head")(linen.LayerNorm()(x).mean(1))


def mixer_linen() -> Any:
    model = Mixer()

    def loss(params: Any, images: jax.Array, labels: jax.Array) -> jax.Array:
        out = model.apply(params, images)
        return optax.softmax_cross_entropy_with_integer_labels(out, labels).mean()

    return stepped(model, loss, F32(8, 32, 32, 3), ids(8), tx=optax.lion(1e-4))


class Encoder(nnx.Module):
    def __init__(self, d: int, rngs: nnx.Rngs) -> None:
        self.norm, self.attention = nnx.LayerNorm(d, rngs=rngs), Attention(d, rngs)
        self.feed = Feed(d, rngs)
        self.keep = nnx.Dropout(0.1, broadcast_dims=(1, 2), rngs=rngs)

    def __call__(self, x: jax.Array) -> jax.Array:
        h = self.norm(x)
        x = x + self.keep(self.attention(h, h))
        return x + self.keep(self.feed(x) - x)


class DropViT(nnx.Module):
    def __init__(self, rngs: nnx.Rngs) -> None:
        self.patch = nnx.Conv(3, 128, (8, 8), (8, 8), rngs=rngs)
        self.places = nnx.Param(jnp.zeros((16, 128)))
        self.blocks = nnx.List([Encoder(128, rngs) for _ in range(9)])
        self.head = nnx.Linear(128, 10, rngs=rngs)

    def __call__(self, x: jax.Array) -> jax.Array:
        x = self.patch(x).reshape(x.shape[0], 16, 128) + self.places[...]
        for block in self.blocks:
            x = block(x)
        return self.head(x.mean(1))


def trained_nnx(make: Any, loss: Any, *batch: Any, tx: Any, wrt: Any = nnx.Param) -> Any:
    def both() -> Any:
        m = make(nnx.Rngs(0))
        return m, nnx.Optimizer(m, tx, wrt=wrt)

    graph, state = nnx.split(nnx.eval_shape(both))

    def train_step(state: Any, *batch: Any) -> Any:
        model, optimizer = nnx.merge(graph, state)
        of = nnx.value_and_grad(loss, argnums=nnx.DiffState(0, wrt))
        value, grads = of(model, *batch)
        optimizer.update(model, grads)
        return nnx.state((model, optimizer)), value

    return train_step, (state, *batch)


def _entropy(model: Any, x: Any, labels: jax.Array) -> jax.Array:
    return optax.softmax_cross_entropy_with_integer_labels(model(x), labels).mean()


def stochastic_depth() -> Any:
    """A ViT in NNX whose nine blocks are left out at random, an example at a time."""
    return trained_nnx(DropViT, _entropy, F32(8, 32, 32, 3), ids(8), tx=optax.adamw(1e-3))


class LoraBlock(nnx.Module):
    def __init__(self, d: int, rngs: nnx.Rngs) -> None:
        self.norm1, self.norm2 = nnx.RMSNorm(d, rngs=rngs), nnx.RMSNorm(d, rngs=rngs)
        self.q, self.v = (nnx.LoRALinear(d, d, lora_rank=4, rngs=rngs) for _ in range(2))
        self.k, self.o = (nnx.Linear(d, d, rngs=rngs) for _ in range(2))
        self.up, self.down = nnx.Linear(d, 4 * d, rngs=rngs), nnx.Linear(4 * d, d, rngs=rngs)

    def __call__(self, x: jax.Array) -> jax.Array:
        h = self.norm1(x)
        q, k, v = heads(self.q(h), 4), heads(self.k(h), 4), heads(self.v(h), 4)
        x = x + self.o(whole(jax.nn.softmax(q @ k.swapaxes(-1, -2)) @ v))
        return x + self.down(nnx.gelu(self.up(self.norm2(x))))


class LoraGPT(nnx.Module):
    def __init__(self, rngs: nnx.Rngs) -> None:
        self.embed = nnx.Embed(1024, 128, rngs=rngs)
        self.blocks = nnx.List([LoraBlock(128, rngs) for _ in range(7)])

    def __call__(self, tokens: jax.Array) -> jax.Array:
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x)
        return self.embed.attend(x)


def lora_nnx() -> Any:
    """LoRA in NNX: seven blocks; the small factors of q and v alone are trained."""
    return trained_nnx(
        LoraGPT, _entropy, ids(4, 32), ids(4, 32), tx=optax.adam(1e-4), wrt=nnx.LoRAParam
    )


class Listener(nnx.Module):
    def __init__(self, d: int, rngs: nnx.Rngs) -> None:
        self.norm1, self.own = nnx.LayerNorm(d, rngs=rngs), Attention(d, rngs)
        self.norm2, self.cross = nnx.LayerNorm(d, rngs=rngs), Attention(d, rngs)
        self.feed = Feed(d, rngs)

    def __call__(self, x: jax.Array, y: jax.Array) -> jax.Array:
        mask = jnp.tril(jnp.ones((x.shape[1],) * 2, bool))
        h = self.norm1(x)
        x = x + self.own(h, h, mask)
        return self.feed(x + self.cross(self.norm2(x), y))


class Hearer(nnx.Module):
    def __init__(self, d: int, rngs: nnx.Rngs) -> None:
        self.norm, self.own, self.feed = (
            nnx.LayerNorm(d, rngs=rngs),
            Attention(d, rngs),
            Feed(d, rngs),
        )

    def __call__(self, x: jax.Array) -> jax.Array:
        h = self.norm(x)
        return self.feed(x + self.own(h, h))


class Whisper(nnx.Module):
    def __init__(self, rngs: nnx.Rngs) -> None:
        self.conv1 = nnx.Conv(40, 128, (3,), rngs=rngs)
        self.conv2 = nnx.Conv(128, 128, (3,), (2,), rngs=rngs)
        self.encoder = nnx.List([Hearer(128, rngs) for _ in range(4)])
        self.embed = nnx.Embed(1024, 128, rngs=rngs)
        self.decoder = nnx.List([Listener(128, rngs) for _ in range(4)])
        self.norm = nnx.LayerNorm(128, rngs=rngs)

    def __call__(self, given: Any) -> jax.Array:
        sound, tokens = given
        y = nnx.gelu(self.conv2(nnx.gelu(self.conv1(sound))))
        y = y + jnp.sin(jnp.arange(y.shape[1])[:, None] * jnp.exp(-jnp.arange(128) / 16))
        for layer in self.encoder:
            y = layer(y)
        x = self.embed(tokens)
        for layer in self.decoder:
            x = layer(x, y)
        return self.embed.attend(self.norm(x))


def whisper() -> Any:
    """Whisper in NNX: two convolutions, four layers hear, four write."""
    batch = (F32(2, 64, 40), ids(2, 24)), ids(2, 24)
    return trained_nnx(Whisper, _entropy, *batch, tx=optax.adamw(1e-4))


def answers() -> Any:
    """Words one after another: a loop of 32, six scanned layers with a cache in each turn."""

    def layer(x: jax.Array, at: Any) -> Any:
        p, keys, values, k = at
        q, key, value = jnp.split(x @ p["qkv"], 3, -1)
        keys = jax.lax.dynamic_update_slice(keys, key[:, None], (0, k, 0))
        values = jax.lax.dynamic_update_slice(values, value[:, None], (0, k, 0))
        a = jax.nn.softmax(jnp.einsum("bd,btd->bt", q, keys) / 16, -1)
        x = x + jnp.einsum("bt,btd->bd", a, values) @ p["o"]
        return x + jax.nn.silu(x @ p["up"]) @ p["down"], (keys, values)

    def run(params: Any, keys: jax.Array, values: jax.Array, first: jax.Array) -> jax.Array:
        def word(carry: Any, k: Any) -> Any:
            token, keys, values = carry
            each = params["layers"], keys, values, jnp.broadcast_to(k, 6)
            x, (keys, values) = jax.lax.scan(layer, params["embed"][token], each)
            token = (x @ params["embed"].T).argmax(-1).astype(jnp.int32)
            return (token, keys, values), token

        return jax.lax.scan(word, (first, keys, values), jnp.arange(32))[1]

    layers = {"qkv": s(6, 256, 768), "o": s(6, 256, 256)}
    layers |= {"up": s(6, 256, 512), "down": s(6, 512, 256)}
    cache = s(6, 4, 32, 256)
    return run, ({"embed": s(2048, 256), "layers": layers}, cache, cache, ids(4))


# name → (make, layers); a tuple among them holds what a person might as well draw
PROGRAMS: dict[str, Any] = {
    "jamba": (jamba, ((8, 2),)),
    "t5": (t5, (4, 4, 4, 4)),
    "mixer_linen": (mixer_linen, (6, 6)),
    "stochastic_depth": (stochastic_depth, (9, 9)),
    "lora_nnx": (lora_nnx, (7,)),
    "whisper": (whisper, (4, 4, 4, 4)),
    "answers": (answers, (32, 6)),
}
