TRUTH = """
# hifigan_v3 — HiFi-GAN vocoder, one alternating GAN step (Haiku), single device, f32

## 1 Tree of parts
train_step
1. **generator forward** { conv_pre, 3 x [ up (transposed conv), MRF: 3 ResBlocks (k=3,5,7) of 2 dilated convs ], conv_post, tanh } mel 32 frames -> 8192 samples, batch 16
2. **discriminator step**
   - discriminators forward on real+fake (32 wavs) { **MPD x4 (periods 2,3,5,7)**: 4 convs 5x1 + post ; **MSD x2**: 6 grouped convs + post (second on 2x pooled audio) }
   - LSGAN loss; discriminators backward; adamw on d
3. **generator step**
   - generator forward (same weights and mel as 1)
   - discriminators forward with the *new* d on real+fake
   - losses: adversarial, feature matching (every feature map), 45 * mel L1 (STFT by framing + rfft + mel matrix, of fake and real)
   - backward: log_mel, discriminators (gradient for the input only), generator backward
   - adamw on g

## 2 Where the work goes (0.99 TF)
discriminators ~90%: MPD 67%, MSD 23%. One conv (mpd conv3, 512->512, k 5) in each period is ~13% of the whole step each, 52% together. Generator ~9% (fwd 4.7 counted twice, bwd 4.7). Mel/STFT, adamw < 1%. D step : G step ~ 3 : 2(+generator).

## 3 First picture
generator -> discriminator step { forward: MPD p2 p3 p5 p7, MSD 0, MSD 1 ; loss ; backward ; adamw } -> generator step { generator, discriminators forward, mel loss / fm / adv, backward through discriminators, generator backward, adamw }.
Both discriminator passes visible and told apart, sub-discriminators named.

## 4 Misleading
- Two generator forwards are the same computation (1 and 3): the compiler may keep one; a picture that shows none in one of the places is right but must not say "generator step has no generator".
- Merging D-step and G-step discriminators into one "discriminators x2", forward/backward of both mixed: their weights differ and order matters.
- Drawing the generator as the main part since it is the product; it is 9%.
- No loops at all: any while found is not the person's.
- D-step backward stops at the wav (no gradient to generator).
"""

"""HiFi-GAN (V3-like) vocoder training step in Haiku.  One device.

Alternating update inside one jit: discriminator first (LSGAN), then generator
(adversarial + feature matching + 45 * mel L1).
"""
from typing import NamedTuple

import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
import optax

BATCH, SEGMENT, HOP, N_FFT, N_MEL, SR = 16, 8192, 256, 1024, 80, 22050
FRAMES = SEGMENT // HOP
UP_RATES, UP_KERNELS, UP_CH = (8, 8, 4), (16, 16, 8), 256
RES_KERNELS, RES_DIL = (3, 5, 7), ((1, 2), (2, 6), (3, 12))
PERIODS = (2, 3, 5, 7)
LRELU = 0.1


def lrelu(x):
    return jax.nn.leaky_relu(x, LRELU)


class ResBlock2(hk.Module):
    def __init__(self, ch, kernel, dilations, name=None):
        super().__init__(name)
        self.convs = [hk.Conv1D(ch, kernel, rate=d, name=f"conv_d{d}") for d in dilations]

    def __call__(self, x):
        for c in self.convs:
            x = x + c(lrelu(x))
        return x


class Generator(hk.Module):
    def __call__(self, mel):
        x = hk.Conv1D(UP_CH, 7, name="conv_pre")(mel)
        for i, (r, k) in enumerate(zip(UP_RATES, UP_KERNELS)):
            ch = UP_CH // 2 ** (i + 1)
            x = hk.Conv1DTranspose(ch, k, stride=r, name=f"up{i}")(lrelu(x))
            # multi receptive field fusion
            x = (
                sum(
                    ResBlock2(ch, rk, rd, name=f"mrf{i}_k{rk}")(x)
                    for rk, rd in zip(RES_KERNELS, RES_DIL)
                )
                / 3
            )
        return jnp.tanh(hk.Conv1D(1, 7, name="conv_post")(lrelu(x)))[..., 0]


class PeriodDiscriminator(hk.Module):
    def __init__(self, period, name=None):
        super().__init__(name or f"mpd_p{period}")
        self.period = period

    def __call__(self, wav):
        b, t = wav.shape
        pad = (-t) % self.period
        x = jnp.pad(wav, ((0, 0), (0, pad)), mode="reflect").reshape(b, -1, self.period, 1)
        feats = []
        for i, (ch, s) in enumerate([(32, 3), (128, 3), (512, 3), (512, 1)]):
            x = lrelu(hk.Conv2D(ch, (5, 1), stride=(s, 1), name=f"conv{i}")(x))
            feats.append(x)
        x = hk.Conv2D(1, (3, 1), name="post")(x)
        return x.reshape(b, -1), feats + [x]


class ScaleDiscriminator(hk.Module):
    def __call__(self, wav):
        x, feats = wav[..., None], []
        for i, (ch, k, s, g) in enumerate(
            [
                (64, 15, 1, 1),
                (64, 41, 2, 4),
                (128, 41, 2, 16),
                (256, 41, 4, 16),
                (512, 41, 4, 16),
                (512, 5, 1, 1),
            ]
        ):
            x = lrelu(GroupedConv1D(ch, k, s, g, name=f"conv{i}")(x))
            feats.append(x)
        x = hk.Conv1D(1, 3, name="post")(x)
        return x[..., 0], feats + [x]


class GroupedConv1D(hk.Module):
    def __init__(self, ch, kernel, stride, groups, name=None):
        super().__init__(name)
        self.args = ch, kernel, stride, groups

    def __call__(self, x):
        ch, k, s, g = self.args
        w = hk.get_parameter("w", (k, x.shape[-1] // g, ch), init=hk.initializers.VarianceScaling())
        b = hk.get_parameter("b", (ch,), init=jnp.zeros)
        y = jax.lax.conv_general_dilated(
            x, w, (s,), "SAME", dimension_numbers=("NWC", "WIO", "NWC"), feature_group_count=g
        )
        return y + b


class Discriminators(hk.Module):
    """multi-period + multi-scale"""

    def __call__(self, wav):
        outs = [PeriodDiscriminator(p)(wav) for p in PERIODS]
        outs.append(ScaleDiscriminator(name="msd_0")(wav))
        half = hk.avg_pool(wav[..., None], (4, 1), (2, 1), "SAME")[..., 0]
        outs.append(ScaleDiscriminator(name="msd_1")(half))
        return outs


gen = hk.without_apply_rng(hk.transform(lambda mel: Generator(name="generator")(mel)))
disc = hk.without_apply_rng(hk.transform(lambda wav: Discriminators(name="discriminators")(wav)))


def mel_basis():
    mel = lambda f: 2595 * np.log10(1 + f / 700)
    inv = lambda m: 700 * (10 ** (m / 2595) - 1)
    pts = inv(np.linspace(mel(0), mel(SR / 2), N_MEL + 2))
    freqs = np.linspace(0, SR / 2, N_FFT // 2 + 1)
    lo, mid, hi = pts[:-2, None], pts[1:-1, None], pts[2:, None]
    return np.maximum(0, np.minimum((freqs - lo) / (mid - lo), (hi - freqs) / (hi - mid))).astype(
        np.float32
    )


MEL = mel_basis()
WINDOW = np.hanning(N_FFT).astype(np.float32)


def log_mel(wav):
    x = jnp.pad(wav, ((0, 0), ((N_FFT - HOP) // 2,) * 2), mode="reflect")
    idx = np.arange(FRAMES)[:, None] * HOP + np.arange(N_FFT)[None]
    spec = jnp.fft.rfft(x[:, idx] * WINDOW)
    mag = jnp.sqrt(jnp.real(spec) ** 2 + jnp.imag(spec) ** 2 + 1e-9)
    return jnp.log(jnp.maximum(mag @ MEL.T, 1e-5))


class State(NamedTuple):
    g: hk.Params
    d: hk.Params
    g_opt: optax.OptState
    d_opt: optax.OptState
    step: jax.Array


def disc_loss(d, real, fake):
    outs = disc.apply(d, jnp.concatenate([real, fake]))
    loss = 0.0
    for o, _ in outs:
        r, f = jnp.split(o, 2)
        loss += jnp.mean((r - 1) ** 2) + jnp.mean(f**2)
    return loss


def gen_loss(g, d, mel, real):
    fake = gen.apply(g, mel)
    outs = disc.apply(d, jnp.concatenate([real, fake]))
    adv = fm = 0.0
    for o, feats in outs:
        adv += jnp.mean((jnp.split(o, 2)[1] - 1) ** 2)
        for f in feats:
            r, k = jnp.split(f, 2)
            fm += jnp.mean(jnp.abs(jax.lax.stop_gradient(r) - k))
    mel_l1 = jnp.mean(jnp.abs(log_mel(fake) - log_mel(real)))
    return adv + 2 * fm + 45 * mel_l1, dict(adv=adv, fm=fm, mel=mel_l1)


def make_opt():
    return optax.adamw(optax.exponential_decay(2e-4, 1000, 0.999), b1=0.8, b2=0.99)


def train_step(s: State, mel, wav):
    tx = make_opt()
    fake = gen.apply(s.g, mel)
    dl, dg = jax.value_and_grad(disc_loss)(s.d, wav, fake)
    upd, d_opt = tx.update(dg, s.d_opt, s.d)
    d = optax.apply_updates(s.d, upd)
    (gl, aux), gg = jax.value_and_grad(gen_loss, has_aux=True)(s.g, d, mel, wav)
    upd, g_opt = tx.update(gg, s.g_opt, s.g)
    g = optax.apply_updates(s.g, upd)
    return State(g, d, g_opt, d_opt, s.step + 1), dict(d_loss=dl, g_loss=gl, **aux)


def build(devices=None):
    sh = None if devices is None else jax.sharding.SingleDeviceSharding(devices[0])
    S = lambda s, t=jnp.float32: jax.ShapeDtypeStruct(s, t, sharding=sh)
    mel, wav = S((BATCH, FRAMES, N_MEL)), S((BATCH, SEGMENT))

    def init(key, mel, wav):
        g, d = gen.init(key, mel), disc.init(key, wav)
        return State(g, d, make_opt().init(g), make_opt().init(d), jnp.int32(0))

    state = jax.tree.map(
        lambda a: S(a.shape, a.dtype), jax.eval_shape(init, S((2,), jnp.uint32), mel, wav)
    )
    return jax.jit(train_step, donate_argnums=0), (state, mel, wav)
