TRUTH = """
One training step (train_step) of a FastSpeech-2 text-to-speech model in equinox, 48 utterances (160 phonemes, 1000 mel frames) by jax.vmap of a single-utterance model, one device, about 80 M parameters.

train_step
  batch_loss (forward)
    vmap: utterance_loss
      FastSpeech2
        phoneme embedding + positions
        encoder: 6 FFTBlock (self-attention 2 heads, add, norm; conv 384->1536 kernel 9, relu, conv 1536->384 kernel 1, add, norm; dropout)
        duration predictor, pitch predictor, energy predictor: three VariancePredictor of one class (2 convs kernel 3, norm, linear to 1)
        pitch and energy embeddings (bucketize, lookup)
        length_regulator: gather of phoneme states to 1000 frames (teacher durations, searchsorted of cumulative sum)
        decoder: 6 FFTBlock on 1000 frames
        mel projection 384->80; postnet: 5 convs kernel 5 (80->512->512->512->512->80), tanh
      mel_loss before and after postnet (L1), duration_loss, pitch_loss, energy_loss
  backward; optimiser optax adam with noam schedule, clip

No loop; 12 FFT blocks in two stacks of 6 (encoder on phonemes, decoder on frames), written out.
The pitch and energy predictors see the encoder output (phoneme level). Duration given by the teacher, predictor only trained: its output does not feed the decoder.
Weight: decoder (1000 frames; 6.5 M weights a block, of which 5.3 M the kernel-9 conv) over 6 times the encoder (160 phonemes); postnet 4.3 M weights on 1000 frames ~ two thirds of a decoder block.
False would be: a loop over layers; a stack of 12; encoder equal in weight to decoder; vocoder / waveform; autoregressive; vmap shown as a loop x48.
First sight: phonemes -> encoder x6 -> variance predictors (3) -> length regulator -> decoder x6 -> mel -> postnet -> losses; backward; adam.
Names true: FastSpeech2, encoder, decoder, FFTBlock, duration, pitch, energy, VariancePredictor, length_regulator, postnet, mel_loss.
"""

"""FastSpeech 2 in equinox. The model is written for one utterance and vmapped over the batch; durations, pitch and
energy of the recording are used as teachers."""
import equinox as eqx
import jax
import jax.numpy as jnp
import optax

BATCH, PHONES, FRAMES, MELS, SYMBOLS = 48, 160, 1000, 80, 360
DIM, HEADS, FILTER, KERNEL, LAYERS = 384, 2, 1536, 9, 6
BUCKETS = 256


def sinusoid(n, d):
    ang = jnp.arange(n)[:, None] / 10000.0 ** (jnp.arange(0, d, 2) / d)
    return jnp.concatenate([jnp.sin(ang), jnp.cos(ang)], -1)


def conv_time(conv, x):
    """Equinox convolutions are channels first; ours are (time, channels)."""
    return conv(x.T).T


class FFTBlock(eqx.Module):
    attention: eqx.nn.MultiheadAttention
    conv1: eqx.nn.Conv1d
    conv2: eqx.nn.Conv1d
    norm1: eqx.nn.LayerNorm
    norm2: eqx.nn.LayerNorm
    dropout: eqx.nn.Dropout

    def __init__(self, key):
        k1, k2, k3 = jax.random.split(key, 3)
        self.attention = eqx.nn.MultiheadAttention(
            HEADS,
            DIM,
            use_query_bias=True,
            use_key_bias=True,
            use_value_bias=True,
            use_output_bias=True,
            key=k1,
        )
        self.conv1 = eqx.nn.Conv1d(DIM, FILTER, KERNEL, padding=KERNEL // 2, key=k2)
        self.conv2 = eqx.nn.Conv1d(FILTER, DIM, 1, key=k3)
        self.norm1, self.norm2 = eqx.nn.LayerNorm(DIM), eqx.nn.LayerNorm(DIM)
        self.dropout = eqx.nn.Dropout(0.2)

    def __call__(self, x, mask, key):
        ka, kf = jax.random.split(key)
        pair = jnp.broadcast_to(mask[None, :], (x.shape[0], x.shape[0]))
        x = jax.vmap(self.norm1)(x + self.dropout(self.attention(x, x, x, pair), key=ka))
        h = conv_time(self.conv2, jax.nn.relu(conv_time(self.conv1, x)))
        x = jax.vmap(self.norm2)(x + self.dropout(h, key=kf))
        return x * mask[:, None]


class FFTStack(eqx.Module):
    blocks: list

    def __init__(self, key):
        self.blocks = [FFTBlock(k) for k in jax.random.split(key, LAYERS)]

    def __call__(self, x, mask, key):
        x = x + sinusoid(x.shape[0], DIM)
        for block, k in zip(self.blocks, jax.random.split(key, LAYERS)):
            x = block(x, mask, k)
        return x


class VariancePredictor(eqx.Module):
    conv1: eqx.nn.Conv1d
    conv2: eqx.nn.Conv1d
    norm1: eqx.nn.LayerNorm
    norm2: eqx.nn.LayerNorm
    linear: eqx.nn.Linear
    dropout: eqx.nn.Dropout

    def __init__(self, key):
        k1, k2, k3 = jax.random.split(key, 3)
        self.conv1 = eqx.nn.Conv1d(DIM, DIM, 3, padding=1, key=k1)
        self.conv2 = eqx.nn.Conv1d(DIM, DIM, 3, padding=1, key=k2)
        self.norm1, self.norm2 = eqx.nn.LayerNorm(DIM), eqx.nn.LayerNorm(DIM)
        self.linear = eqx.nn.Linear(DIM, 1, key=k3)
        self.dropout = eqx.nn.Dropout(0.5)

    def __call__(self, x, mask, key):
        k1, k2 = jax.random.split(key)
        x = self.dropout(jax.vmap(self.norm1)(jax.nn.relu(conv_time(self.conv1, x))), key=k1)
        x = self.dropout(jax.vmap(self.norm2)(jax.nn.relu(conv_time(self.conv2, x))), key=k2)
        return jax.vmap(self.linear)(x)[:, 0] * mask


class Postnet(eqx.Module):
    convs: list
    norms: list
    dropout: eqx.nn.Dropout

    def __init__(self, key):
        sizes = [MELS, 512, 512, 512, 512, MELS]
        keys = jax.random.split(key, 5)
        self.convs = [
            eqx.nn.Conv1d(a, b, 5, padding=2, key=k) for a, b, k in zip(sizes[:-1], sizes[1:], keys)
        ]
        self.norms = [eqx.nn.GroupNorm(8, b) for b in sizes[1:]]
        self.dropout = eqx.nn.Dropout(0.5)

    def __call__(self, mel, key):
        x = mel.T
        for i, (conv, norm, k) in enumerate(zip(self.convs, self.norms, jax.random.split(key, 5))):
            x = norm(conv(x))
            x = self.dropout(jnp.tanh(x) if i < 4 else x, key=k)
        return x.T


def length_regulator(x, durations):
    """Repeat each phoneme state for its number of frames, by a gather."""
    ends = jnp.cumsum(durations)
    frame = jnp.arange(FRAMES)
    which = jnp.searchsorted(ends, frame, side="right")
    voiced = frame < ends[-1]
    return x[jnp.minimum(which, x.shape[0] - 1)] * voiced[:, None], voiced


class FastSpeech2(eqx.Module):
    embedding: eqx.nn.Embedding
    encoder: FFTStack
    duration: VariancePredictor
    pitch: VariancePredictor
    energy: VariancePredictor
    pitch_embedding: eqx.nn.Embedding
    energy_embedding: eqx.nn.Embedding
    decoder: FFTStack
    mel: eqx.nn.Linear
    postnet: Postnet

    def __init__(self, key):
        k = jax.random.split(key, 10)
        self.embedding = eqx.nn.Embedding(SYMBOLS, DIM, key=k[0])
        self.encoder, self.decoder = FFTStack(k[1]), FFTStack(k[2])
        self.duration, self.pitch, self.energy = (VariancePredictor(k[i]) for i in (3, 4, 5))
        self.pitch_embedding = eqx.nn.Embedding(BUCKETS, DIM, key=k[6])
        self.energy_embedding = eqx.nn.Embedding(BUCKETS, DIM, key=k[7])
        self.mel = eqx.nn.Linear(DIM, MELS, key=k[8])
        self.postnet = Postnet(k[9])

    def __call__(self, phones, mask, durations, pitch, energy, key):
        k = jax.random.split(key, 6)
        x = self.encoder(jax.vmap(self.embedding)(phones), mask, k[0])
        log_duration = self.duration(x, mask, k[1])
        pitch_hat = self.pitch(x, mask, k[2])
        energy_hat = self.energy(x, mask, k[3])
        edges = jnp.linspace(-3.0, 3.0, BUCKETS - 1)
        x = x + jax.vmap(self.pitch_embedding)(jnp.searchsorted(edges, pitch))
        x = x + jax.vmap(self.energy_embedding)(jnp.searchsorted(edges, energy))
        frames, voiced = length_regulator(x, durations)
        y = self.decoder(frames, voiced, k[4])
        coarse = jax.vmap(self.mel)(y)
        fine = coarse + self.postnet(coarse, k[5])
        return coarse, fine, voiced, log_duration, pitch_hat, energy_hat


def mel_loss(predicted, target, voiced):
    return jnp.sum(jnp.abs(predicted - target) * voiced[:, None]) / (
        jnp.maximum(voiced.sum(), 1) * MELS
    )


def masked_square(predicted, target, mask):
    return jnp.sum(jnp.square(predicted - target) * mask) / jnp.maximum(mask.sum(), 1)


def utterance_loss(model, item, key):
    mask = item["phones"] > 0
    out = model(item["phones"], mask, item["durations"], item["pitch"], item["energy"], key)
    coarse, fine, voiced, log_duration, pitch, energy = out
    return {
        "mel": mel_loss(coarse, item["mel"], voiced),
        "mel_post": mel_loss(fine, item["mel"], voiced),
        "duration": masked_square(
            log_duration, jnp.log1p(item["durations"].astype(jnp.float32)), mask
        ),
        "pitch": masked_square(pitch, item["pitch"], mask),
        "energy": masked_square(energy, item["energy"], mask),
    }


def batch_loss(params, static, batch, key):
    model = eqx.combine(params, static)
    keys = jax.random.split(key, BATCH)
    parts = jax.vmap(utterance_loss, in_axes=(None, 0, 0))(model, batch, keys)
    parts = jax.tree.map(jnp.mean, parts)
    return sum(parts.values()), parts


def noam(step, warm=4000):
    s = jnp.maximum(step, 1).astype(jnp.float32)
    return DIM**-0.5 * jnp.minimum(s**-0.5, s * warm**-1.5)


def make():
    is_shape = lambda x: isinstance(x, jax.ShapeDtypeStruct)
    shapes = eqx.filter_eval_shape(FastSpeech2, jax.random.PRNGKey(0))
    params, static = eqx.partition(shapes, is_shape)
    optimizer = optax.chain(
        optax.clip_by_global_norm(1.0), optax.adam(noam, b1=0.9, b2=0.98, eps=1e-9)
    )

    @jax.jit
    def train_step(params, opt_state, batch, key):
        (loss, parts), grads = jax.value_and_grad(batch_loss, has_aux=True)(
            params, static, batch, key
        )
        updates, opt_state = optimizer.update(grads, opt_state, params)
        return eqx.apply_updates(params, updates), opt_state, {"loss": loss, **parts}

    S = lambda s, d=jnp.float32: jax.ShapeDtypeStruct((BATCH,) + s, d)
    batch = {
        "phones": S((PHONES,), jnp.int32),
        "durations": S((PHONES,), jnp.int32),
        "pitch": S((PHONES,)),
        "energy": S((PHONES,)),
        "mel": S((FRAMES, MELS)),
    }
    return train_step, (
        params,
        jax.eval_shape(optimizer.init, params),
        batch,
        jax.ShapeDtypeStruct((2,), jnp.uint32),
    )
