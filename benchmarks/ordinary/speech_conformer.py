TRUTH = """
TOP-LEVEL, IN ORDER
- train_step: `log_mel` features from the waveform (framing, window, FFT, mel filterbank, log) -> `spec_augment` (time and frequency masks) -> Conformer encoder -> CTC head -> `ctc_loss` -> backward -> optimizer (clip + adamw, noam schedule)
- Conformer: `subsampling` (2 stride-2 convs, /4 in time, + dense) -> 5 ConformerBlocks block_0..4 -> `ctc_head` to 128 tokens
- ConformerBlock: half-step FFN (`ff1`) -> self-attention with relative position (`mhsa`) -> convolution module (`conv`: pointwise + GLU, depthwise 31, norm, swish, pointwise) -> half-step FFN (`ff2`) -> final layer norm
COUNTS
- 5 conformer blocks, unrolled (no loop over layers)
- one CTC forward loop over the subsampled frames (100 steps) and one loop of 100 steps in its backward; no other loop of the author's (loops of the random generator or of scatter do not count)
- 2 FFNs, 1 attention, 1 conv module per block
INDEPENDENT
- the block's parts are a chain; the time mask and frequency mask (draws) of spec_augment are independent of each other; the label side of CTC is independent of the encoder
- features/augmentation get no gradient (no backward of log_mel)
SHARES
- 5 blocks ~93-95% of FLOPs, each equal; subsampling ~4-5%; log_mel and CTC small (CTC costs loops, not FLOPs)
- in a block: the two FFNs ~67%, attention ~20%, conv module ~13%
- forward ~1/3, backward ~2/3
MUST NOT BE SHOWN
- no decoder, no RNN-T joint, no language model, no beam search, no scan over layers, no batch-norm running statistics, no collectives
"""
"""Conformer-CTC speech recognition train step."""
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax

SR, N_FFT, HOP, N_MELS = 16000, 512, 160, 80
D, HEADS, BLOCKS, VOCAB = 256, 4, 5, 128
BATCH, FRAMES, MAX_LABEL = 8, 400, 40


def mel_filterbank():
    hz2mel = lambda f: 2595.0 * np.log10(1 + f / 700.0)
    mel2hz = lambda m: 700.0 * (10 ** (m / 2595.0) - 1)
    pts = mel2hz(np.linspace(hz2mel(20.0), hz2mel(SR / 2), N_MELS + 2))
    freqs = np.fft.rfftfreq(N_FFT, 1 / SR)
    lo, mid, hi = pts[:-2, None], pts[1:-1, None], pts[2:, None]
    fb = np.maximum(0, np.minimum((freqs - lo) / (mid - lo), (hi - freqs) / (hi - mid)))
    return fb.T.astype(np.float32)


def log_mel(wave):
    idx = np.arange(FRAMES)[:, None] * HOP + np.arange(N_FFT)[None]
    frames = wave[:, idx] * np.hanning(N_FFT).astype(np.float32)
    power = jnp.abs(jnp.fft.rfft(frames, axis=-1)) ** 2
    x = jnp.log(power @ mel_filterbank() + 1e-6)
    return (x - x.mean(1, keepdims=True)) / (x.std(1, keepdims=True) + 1e-5)


def axis_mask(key, size, max_width, n_masks):
    k1, k2 = jax.random.split(key)
    width = jax.random.randint(k1, (BATCH, n_masks, 1), 0, max_width)
    start = jax.random.randint(k2, (BATCH, n_masks, 1), 0, size - max_width)
    pos = jnp.arange(size)
    return ~jnp.any((pos >= start) & (pos < start + width), axis=1)


def spec_augment(key, feats):
    kt, kf = jax.random.split(key)
    tmask = axis_mask(kt, FRAMES, 40, 2)
    fmask = axis_mask(kf, N_MELS, 27, 2)
    return feats * tmask[:, :, None] * fmask[:, None, :]


class FeedForward(nn.Module):
    @nn.compact
    def __call__(self, x, train):
        x = nn.LayerNorm()(x)
        x = nn.swish(nn.Dense(4 * D, name="w1")(x))
        x = nn.Dropout(0.1, deterministic=not train)(x)
        return nn.Dense(D, name="w2")(x)


class RelMHSA(nn.Module):
    """Self attention with a learned relative position bias (clipped to +-64)."""

    @nn.compact
    def __call__(self, x, mask):
        t = x.shape[1]
        x = nn.LayerNorm()(x)
        proj = lambda name: nn.DenseGeneral((HEADS, D // HEADS), name=name)(x)
        q, k, v = proj("query"), proj("key"), proj("value")
        rel = self.param("rel_bias", nn.initializers.zeros, (129, HEADS))
        offs = np.clip(np.arange(t)[None] - np.arange(t)[:, None], -64, 64) + 64
        logits = jnp.einsum("bqhd,bkhd->bhqk", q, k) / np.sqrt(D // HEADS) + rel[offs].transpose(
            2, 0, 1
        )
        logits = jnp.where(mask[:, None, None], logits, -1e9)
        out = jnp.einsum("bhqk,bkhd->bqhd", nn.softmax(logits), v)
        return nn.DenseGeneral(D, axis=(-2, -1), name="out")(out)


class ConvModule(nn.Module):
    kernel: int = 31

    @nn.compact
    def __call__(self, x, mask):
        x = nn.LayerNorm()(x)
        x = nn.glu(nn.Dense(2 * D, name="pointwise_in")(x))
        x = x * mask[..., None]
        x = nn.Conv(D, (self.kernel,), feature_group_count=D, name="depthwise")(x)
        x = nn.swish(nn.GroupNorm(num_groups=8, name="norm")(x))
        return nn.Dense(D, name="pointwise_out")(x)


class ConformerBlock(nn.Module):
    @nn.compact
    def __call__(self, x, mask, train):
        drop = nn.Dropout(0.1, deterministic=not train)
        x = x + 0.5 * drop(FeedForward(name="ff1")(x, train))
        x = x + drop(RelMHSA(name="mhsa")(x, mask))
        x = x + drop(ConvModule(name="conv")(x, mask))
        x = x + 0.5 * drop(FeedForward(name="ff2")(x, train))
        return nn.LayerNorm(name="norm_out")(x)


class Subsampling(nn.Module):
    @nn.compact
    def __call__(self, x):
        x = x[..., None]
        x = nn.relu(nn.Conv(32, (3, 3), strides=(2, 2), name="conv1")(x))
        x = nn.relu(nn.Conv(32, (3, 3), strides=(2, 2), name="conv2")(x))
        b, t, f, c = x.shape
        return nn.Dense(D, name="proj")(x.reshape(b, t, f * c))


class Conformer(nn.Module):
    @nn.compact
    def __call__(self, feats, lengths, train=True):
        x = Subsampling(name="subsampling")(feats)
        mask = jnp.arange(x.shape[1])[None] < (lengths[:, None] // 4)
        x = nn.Dropout(0.1, deterministic=not train)(x)
        for i in range(BLOCKS):
            x = ConformerBlock(name=f"block_{i}")(x, mask, train)
        return nn.Dense(VOCAB, name="ctc_head")(x), mask


def ctc_loss(logits, mask, labels, label_lengths):
    label_pad = (jnp.arange(MAX_LABEL)[None] >= label_lengths[:, None]).astype(jnp.float32)
    loss = optax.ctc_loss(logits, 1.0 - mask.astype(jnp.float32), labels, label_pad)
    return jnp.mean(loss / jnp.maximum(label_lengths, 1))


def noam(step, warmup=10000):
    step = jnp.maximum(step, 1)
    return 2.0 * D**-0.5 * jnp.minimum(step**-0.5, step * warmup**-1.5)


def make():
    model = Conformer()
    tx = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(noam, b2=0.98, weight_decay=1e-3))

    def loss_fn(params, feats, batch, key):
        logits, mask = model.apply(
            {"params": params}, feats, batch["frames"], rngs={"dropout": key}
        )
        return ctc_loss(logits, mask, batch["labels"], batch["label_lengths"])

    def train_step(params, opt_state, batch, key):
        k_aug, k_drop = jax.random.split(key)
        feats = spec_augment(k_aug, log_mel(batch["wave"]))
        loss, grads = jax.value_and_grad(loss_fn)(params, feats, batch, k_drop)
        updates, opt_state = tx.update(grads, opt_state, params)
        return optax.apply_updates(params, updates), opt_state, loss

    S = jax.ShapeDtypeStruct
    batch = {
        "wave": S((BATCH, FRAMES * HOP + N_FFT), jnp.float32),
        "frames": S((BATCH,), jnp.int32),
        "labels": S((BATCH, MAX_LABEL), jnp.int32),
        "label_lengths": S((BATCH,), jnp.int32),
    }
    key = jax.random.key(0)
    params = jax.eval_shape(
        lambda k: model.init(
            {"params": k, "dropout": k},
            jnp.zeros((BATCH, FRAMES, N_MELS)),
            jnp.zeros((BATCH,), jnp.int32),
        )["params"],
        key,
    )
    return train_step, (params, jax.eval_shape(tx.init, params), batch, key)
