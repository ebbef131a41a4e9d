TRUTH = """
One adversarial training step (update) of a neural audio codec, one device, batch 16 x 24000 samples.

update
  generator_loss (forward)
    codec
      encoder (SEANetEncoder): stem, 4 x (res_i, down_i) with strides 2,4,5,8 and channels 32->512, lstm (2 LSTM layers in ONE loop over 75 frames), to_latent
      quantizer (ResidualVQ): codebook_0 .. codebook_7 written out one after the other (distance matmul 1200x128x1024, argmin, one-hot, EMA update)
      decoder (SEANetDecoder): from_latent, lstm (loop over 75 frames), 4 x (up_i, res_i), to_wave
    disc on fake and disc on real: each MultiScaleDiscriminator = stft_2048, stft_1024, stft_512 (STFTDiscriminator: stft, conv_in, conv_0..2, conv_out)
    losses: L1, mel_loss (4 sizes, two signals each), adversarial, feature matching, commitment
  backward of generator_loss to the codec parameters only (through disc on fake; the real branch has no backward; codebooks are not trained by gradient)
  discriminator_loss: disc on real, disc on fake (fake stopped), forward and backward to discriminator parameters
  generator_update (adam), discriminator_update (adam)

Loops: encoder lstm x75 and decoder lstm x75 forward, the same two backward = 4 loops. No other real loop.
The compiler may share the real-branch discriminator forward (same parameters, same wave) between generator_loss and discriminator_loss, and fake too.
Weight: the discriminators' 2-D convs on spectrograms (32 channels, 3x9, three scales) are the heaviest or of the order of the
autoencoder's convs; encoder/decoder convs at high rate next; quantizer small; LSTM small in flops but sequential.
First sight: codec (encoder, quantizer, decoder), discriminator (3 scales), losses, backward for two networks, two optimisers.
Names true: codec/encoder/lstm, quantizer/codebook_k, decoder, disc/stft_n, mel_loss, generator_update, discriminator_update.
False would be: the generator's gradient shown as training the discriminator; 8 codebooks as a loop of the compiled program
(they may be drawn as x8 alike, said to be written out); encoder and decoder lstm merged into one; mel_loss shown inside the discriminator.
"""

"""EnCodec-style neural audio codec, haiku: SEANet autoencoder + residual VQ, trained against an MS-STFT discriminator.
One device, batch 16 of one second at 24 kHz."""
import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
import optax

SR, BATCH = 24_000, 16
CH, STRIDES, LATENT = 32, (2, 4, 5, 8), 128
N_Q, CODES = 8, 1024
STFT_SIZES = (2048, 1024, 512)


class ResUnit(hk.Module):
    def __init__(self, dim, name=None):
        super().__init__(name)
        self.dim = dim

    def __call__(self, x):
        h = hk.Conv1D(self.dim // 2, 3, name="conv_a")(jax.nn.elu(x))
        h = hk.Conv1D(self.dim, 1, name="conv_b")(jax.nn.elu(h))
        return hk.Conv1D(self.dim, 1, name="shortcut")(x) + h


class LSTMStack(hk.Module):
    """Two LSTM layers over the frames, with a skip."""

    def __call__(self, x):
        b, t, d = x.shape
        core = hk.DeepRNN([hk.LSTM(d, name="lstm_1"), hk.LSTM(d, name="lstm_2")], name="core")
        y, _ = hk.dynamic_unroll(core, x.swapaxes(0, 1), core.initial_state(b))
        return x + y.swapaxes(0, 1)


class SEANetEncoder(hk.Module):
    def __call__(self, x):
        d = CH
        x = hk.Conv1D(d, 7, name="stem")(x)
        for i, s in enumerate(STRIDES):
            x = ResUnit(d, name=f"res_{i}")(x)
            d *= 2
            x = hk.Conv1D(d, 2 * s, stride=s, name=f"down_{i}")(jax.nn.elu(x))
        x = LSTMStack(name="lstm")(x)
        return hk.Conv1D(LATENT, 7, name="to_latent")(jax.nn.elu(x))


class SEANetDecoder(hk.Module):
    def __call__(self, x):
        d = CH * 2 ** len(STRIDES)
        x = hk.Conv1D(d, 7, name="from_latent")(x)
        x = LSTMStack(name="lstm")(x)
        for i, s in enumerate(reversed(STRIDES)):
            d //= 2
            x = hk.Conv1DTranspose(d, 2 * s, stride=s, name=f"up_{i}")(jax.nn.elu(x))
            x = ResUnit(d, name=f"res_{i}")(x)
        return jnp.tanh(hk.Conv1D(1, 7, name="to_wave")(jax.nn.elu(x)))


class ResidualVQ(hk.Module):
    """Eight codebooks one after another; codebooks follow an exponential moving average."""

    def __call__(self, z):
        flat = z.reshape(-1, LATENT)
        residual, quantised, commit = flat, jnp.zeros_like(flat), 0.0
        for q in range(N_Q):
            with jax.named_scope(f"codebook_{q}"):
                init = hk.initializers.RandomNormal()
                book = hk.get_state(f"book_{q}", (CODES, LATENT), init=init)
                count = hk.get_state(f"count_{q}", (CODES,), init=jnp.ones)
                total = hk.get_state(f"total_{q}", (CODES, LATENT), init=init)
                dist = (
                    (residual**2).sum(1, keepdims=True) - 2 * residual @ book.T + (book**2).sum(1)
                )
                code = jnp.argmin(dist, axis=1)
                hit = jax.nn.one_hot(code, CODES)
                picked = book[code]
                frozen = jax.lax.stop_gradient(residual)
                count = 0.99 * count + 0.01 * hit.sum(0)
                total = 0.99 * total + 0.01 * hit.T @ frozen
                hk.set_state(f"count_{q}", count)
                hk.set_state(f"total_{q}", total)
                hk.set_state(f"book_{q}", total / (count[:, None] + 1e-5))
                commit += ((residual - jax.lax.stop_gradient(picked)) ** 2).mean()
                quantised += picked
                residual = residual - jax.lax.stop_gradient(picked)
        straight = flat + jax.lax.stop_gradient(quantised - flat)
        return straight.reshape(z.shape), commit


class Codec(hk.Module):
    def __call__(self, wave):
        z = SEANetEncoder(name="encoder")(wave)
        zq, commit = ResidualVQ(name="quantizer")(z)
        return SEANetDecoder(name="decoder")(zq), commit


def stft(x, n):
    hop = n // 4
    idx = np.arange(0, x.shape[1] - n + 1, hop)[:, None] + np.arange(n)[None]
    return jnp.fft.rfft(x[:, idx] * jnp.asarray(np.hanning(n), jnp.float32), axis=-1)


class STFTDiscriminator(hk.Module):
    def __init__(self, n, name):
        super().__init__(name)
        self.n = n

    def __call__(self, wave):
        s = stft(wave[..., 0], self.n)
        x = jnp.stack([s.real, s.imag], -1) / np.sqrt(self.n)
        feats = []
        x = jax.nn.leaky_relu(hk.Conv2D(32, (3, 9), name="conv_in")(x), 0.2)
        for i, dil in enumerate((1, 2, 4)):
            pad = (
                hk.Conv2D(32, (3, 9), stride=(1, 2), name=f"conv_{i}")
                if dil == 1
                else hk.Conv2D(32, (3, 9), rate=(dil, 1), name=f"conv_{i}")
            )
            x = jax.nn.leaky_relu(pad(x), 0.2)
            feats.append(x)
        return hk.Conv2D(1, (3, 3), name="conv_out")(x), feats


class MultiScaleDiscriminator(hk.Module):
    def __call__(self, wave):
        return [STFTDiscriminator(n, name=f"stft_{n}")(wave) for n in STFT_SIZES]


def mel_bank(n, mels=64):
    f = np.linspace(0, SR / 2, n // 2 + 1)
    c = 700 * (10 ** (np.linspace(0, 2595 * np.log10(1 + SR / 1400), mels + 2) / 2595) - 1)
    up, down = (f[:, None] - c[:-2]) / (c[1:-1] - c[:-2]), (c[2:] - f[:, None]) / (c[2:] - c[1:-1])
    return np.maximum(0, np.minimum(up, down)).astype(np.float32)


def mel_loss(a, b):
    total = 0.0
    for n in (256, 512, 1024, 2048):
        mel = lambda w: jnp.log(jnp.maximum(jnp.abs(stft(w[..., 0], n)) @ mel_bank(n), 1e-5))
        total += jnp.abs(mel(a) - mel(b)).mean()
    return total


def make():
    codec = hk.without_apply_rng(hk.transform_with_state(lambda w: Codec(name="codec")(w)))
    disc = hk.without_apply_rng(hk.transform(lambda w: MultiScaleDiscriminator(name="disc")(w)))
    g_tx, d_tx = optax.adam(3e-4, b1=0.5, b2=0.9), optax.adam(3e-4, b1=0.5, b2=0.9)

    def generator_loss(g_params, g_state, d_params, wave):
        (fake, commit), g_state = codec.apply(g_params, g_state, wave)
        on_fake, on_real = disc.apply(d_params, fake), disc.apply(d_params, wave)
        adv = sum(jax.nn.relu(1 - lf).mean() for lf, _ in on_fake) / len(on_fake)
        feat = sum(
            jnp.abs(a - jax.lax.stop_gradient(b)).mean()
            for (_, fa), (_, fb) in zip(on_fake, on_real)
            for a, b in zip(fa, fb)
        )
        loss = (
            0.1 * jnp.abs(fake - wave).mean() + mel_loss(fake, wave) + 3 * adv + 3 * feat + commit
        )
        return loss, (g_state, fake)

    def discriminator_loss(d_params, real, fake):
        pairs = zip(disc.apply(d_params, real), disc.apply(d_params, fake))
        return sum(
            jax.nn.relu(1 - r).mean() + jax.nn.relu(1 + f).mean() for (r, _), (f, _) in pairs
        )

    @jax.jit
    def update(g_params, g_state, g_opt, d_params, d_opt, wave):
        (gl, (g_state, fake)), g_grads = jax.value_and_grad(generator_loss, has_aux=True)(
            g_params, g_state, d_params, wave
        )
        dl, d_grads = jax.value_and_grad(discriminator_loss)(
            d_params, wave, jax.lax.stop_gradient(fake)
        )
        with jax.named_scope("generator_update"):
            up, g_opt = g_tx.update(g_grads, g_opt)
            g_params = optax.apply_updates(g_params, up)
        with jax.named_scope("discriminator_update"):
            up, d_opt = d_tx.update(d_grads, d_opt)
            d_params = optax.apply_updates(d_params, up)
        return g_params, g_state, g_opt, d_params, d_opt, {"g": gl, "d": dl}

    wave = jax.ShapeDtypeStruct((BATCH, SR, 1), jnp.float32)
    key = jax.random.PRNGKey(0)
    g_params, g_state = jax.eval_shape(codec.init, key, wave)
    d_params = jax.eval_shape(disc.init, key, wave)
    return update, (
        g_params,
        g_state,
        jax.eval_shape(g_tx.init, g_params),
        d_params,
        jax.eval_shape(d_tx.init, d_params),
        wave,
    )
