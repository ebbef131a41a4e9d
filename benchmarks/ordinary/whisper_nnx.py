"""Whisper-like speech-to-text training step in Flax NNX."""

TRUTH = {
    "majors": {
        "AudioEncoder forward": 0.22,
        "TextDecoder forward": 0.1,
        "backward of both": 0.62,
        "conv stem (conv1, conv2)": 0.02,
        "lm head / logits": 0.1,
        "cross attention": 0.08,
        "AdamW update": 0.005,
    },
    "layers": [["EncoderLayer", 6], ["DecoderLayer", 6]],
    "optimizer": True,
    "grad": "all of the model (nnx.value_and_grad)",
    "loops": [],
    "tells_apart": [["encoder", "decoder"], ["self_attn", "cross_attn"]],
}

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx


@dataclasses.dataclass(frozen=True)
class Config:
    n_mels: int = 80
    n_frames: int = 1000
    n_text: int = 128
    width: int = 384
    heads: int = 6
    encoder_layers: int = 6
    decoder_layers: int = 6
    vocab: int = 8192
    batch: int = 8
    dtype: object = jnp.bfloat16


def sinusoids(length, channels, max_timescale=10000):
    log_inc = np.log(max_timescale) / (channels // 2 - 1)
    inv = np.exp(-log_inc * np.arange(channels // 2))
    t = np.arange(length)[:, None] * inv[None, :]
    return np.concatenate([np.sin(t), np.cos(t)], axis=1).astype(np.float32)


class Attention(nnx.Module):
    def __init__(self, cfg: Config, *, rngs: nnx.Rngs):
        w = cfg.width
        self.heads = cfg.heads
        self.query = nnx.Linear(w, w, dtype=cfg.dtype, rngs=rngs)
        self.key = nnx.Linear(w, w, use_bias=False, dtype=cfg.dtype, rngs=rngs)
        self.value = nnx.Linear(w, w, dtype=cfg.dtype, rngs=rngs)
        self.out = nnx.Linear(w, w, dtype=cfg.dtype, rngs=rngs)

    def __call__(self, x, memory=None, mask=None):
        memory = x if memory is None else memory
        split = lambda t: t.reshape(*t.shape[:2], self.heads, -1)
        q, k, v = split(self.query(x)), split(self.key(memory)), split(self.value(memory))
        scale = q.shape[-1] ** -0.25
        logits = jnp.einsum("bqhd,bkhd->bhqk", q * scale, k * scale).astype(jnp.float32)
        if mask is not None:
            logits = jnp.where(mask, logits, -1e9)
        weights = jax.nn.softmax(logits, axis=-1).astype(v.dtype)
        out = jnp.einsum("bhqk,bkhd->bqhd", weights, v)
        return self.out(out.reshape(*x.shape[:2], -1))


class MLP(nnx.Module):
    def __init__(self, cfg: Config, *, rngs):
        self.up = nnx.Linear(cfg.width, 4 * cfg.width, dtype=cfg.dtype, rngs=rngs)
        self.down = nnx.Linear(4 * cfg.width, cfg.width, dtype=cfg.dtype, rngs=rngs)

    def __call__(self, x):
        return self.down(jax.nn.gelu(self.up(x)))


class EncoderLayer(nnx.Module):
    def __init__(self, cfg, *, rngs):
        self.attn_ln = nnx.LayerNorm(cfg.width, rngs=rngs)
        self.self_attn = Attention(cfg, rngs=rngs)
        self.mlp_ln = nnx.LayerNorm(cfg.width, rngs=rngs)
        self.mlp = MLP(cfg, rngs=rngs)

    def __call__(self, x):
        x = x + self.self_attn(self.attn_ln(x))
        return x + self.mlp(self.mlp_ln(x))


class DecoderLayer(nnx.Module):
    def __init__(self, cfg, *, rngs):
        self.attn_ln = nnx.LayerNorm(cfg.width, rngs=rngs)
        self.self_attn = Attention(cfg, rngs=rngs)
        self.cross_ln = nnx.LayerNorm(cfg.width, rngs=rngs)
        self.cross_attn = Attention(cfg, rngs=rngs)
        self.mlp_ln = nnx.LayerNorm(cfg.width, rngs=rngs)
        self.mlp = MLP(cfg, rngs=rngs)

    def __call__(self, x, memory, mask):
        x = x + self.self_attn(self.attn_ln(x), mask=mask)
        x = x + self.cross_attn(self.cross_ln(x), memory)
        return x + self.mlp(self.mlp_ln(x))


class AudioEncoder(nnx.Module):
    def __init__(self, cfg, *, rngs):
        self.conv1 = nnx.Conv(
            cfg.n_mels, cfg.width, (3,), padding="SAME", dtype=cfg.dtype, rngs=rngs
        )
        self.conv2 = nnx.Conv(
            cfg.width, cfg.width, (3,), strides=2, padding="SAME", dtype=cfg.dtype, rngs=rngs
        )
        self.layers = nnx.List([EncoderLayer(cfg, rngs=rngs) for _ in range(cfg.encoder_layers)])
        self.ln_post = nnx.LayerNorm(cfg.width, rngs=rngs)

    def __call__(self, mel):
        x = jax.nn.gelu(self.conv1(mel))
        x = jax.nn.gelu(self.conv2(x))
        x = x + sinusoids(x.shape[1], x.shape[2]).astype(x.dtype)
        for layer in self.layers:
            x = layer(x)
        return self.ln_post(x)


class TextDecoder(nnx.Module):
    def __init__(self, cfg, *, rngs):
        self.embed = nnx.Embed(cfg.vocab, cfg.width, dtype=cfg.dtype, rngs=rngs)
        self.pos = nnx.Param(0.01 * jax.random.normal(rngs.params(), (cfg.n_text, cfg.width)))
        self.layers = nnx.List([DecoderLayer(cfg, rngs=rngs) for _ in range(cfg.decoder_layers)])
        self.ln = nnx.LayerNorm(cfg.width, rngs=rngs)

    def __call__(self, tokens, memory):
        n = tokens.shape[1]
        x = self.embed(tokens) + self.pos[:n].astype(memory.dtype)
        mask = jnp.tril(jnp.ones((n, n), bool))[None, None]
        for layer in self.layers:
            x = layer(x, memory, mask)
        return self.embed.attend(self.ln(x)).astype(jnp.float32)


class Whisper(nnx.Module):
    def __init__(self, cfg: Config, *, rngs: nnx.Rngs):
        self.encoder = AudioEncoder(cfg, rngs=rngs)
        self.decoder = TextDecoder(cfg, rngs=rngs)

    def __call__(self, mel, tokens):
        return self.decoder(tokens, self.encoder(mel))


def spec_augment(key, mel, width=40):
    start = jax.random.randint(key, (mel.shape[0],), 0, mel.shape[1] - width)
    t = jnp.arange(mel.shape[1])[None]
    keep = (t < start[:, None]) | (t >= start[:, None] + width)
    return mel * keep[..., None]


def loss_fn(model, mel, tokens):
    logits = model(mel, tokens[:, :-1])
    targets = tokens[:, 1:]
    weights = (targets != 0).astype(jnp.float32)
    losses = optax.softmax_cross_entropy_with_integer_labels(logits, targets)
    return (losses * weights).sum() / weights.sum()


@nnx.jit
def _unused_train_step(model, optimizer, mel, tokens):
    loss, grads = nnx.value_and_grad(loss_fn)(model, mel, tokens)
    optimizer.update(model, grads)
    return loss


def make_train_step(graphdef):
    def train_step(state, mel, tokens, key):
        model, optimizer = nnx.merge(graphdef, state)
        mel = spec_augment(key, mel).astype(jnp.bfloat16)
        loss, grads = nnx.value_and_grad(loss_fn)(model, mel, tokens)
        optimizer.update(model, grads)
        return nnx.state((model, optimizer)), loss

    return jax.jit(train_step, donate_argnums=0)


def make():
    cfg = Config()

    def create():
        model = Whisper(cfg, rngs=nnx.Rngs(0))
        tx = optax.adamw(optax.cosine_decay_schedule(1e-3, 50_000), weight_decay=0.1)
        return model, nnx.Optimizer(model, tx, wrt=nnx.Param)

    abstract = nnx.eval_shape(create)
    graphdef, state = nnx.split(abstract)
    mel = jax.ShapeDtypeStruct((cfg.batch, cfg.n_frames, cfg.n_mels), jnp.float32)
    tokens = jax.ShapeDtypeStruct((cfg.batch, cfg.n_text + 1), jnp.int32)
    key = jax.eval_shape(lambda: jax.random.key(0))
    return make_train_step(graphdef), (state, mel, tokens, key)
