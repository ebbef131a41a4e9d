TRUTH = """
PROGRAM stem_split: HDemucs-like music source separation, flax nnx, single device, accumulation over 2 microbatches of 8 segments (131072 samples stereo).

(1) EXPECTED BOXES
train_step
 - acc x2 (scan: gradient accumulation)
     - remix (permutation, gain)
     - forward HybridSeparator
        - stft (4096/1024)
        - time encoder tenc: EncLayer x4 (conv stride 4, DConv (2 dilated), rewrite GLU)
        - spectrogram encoder fenc: EncLayer x4
        - merge, BLSTM: 2 layers x 2 directions, each an LSTM scan x128 (frames), split_t, split_f
        - time decoder tdec: DecLayer x4 ; spec decoder fdec: DecLayer x4 (3x3 rewrite conv, transposed conv)
        - istft
     - loss: L1 + mrstft (3 resolutions, on prediction and reference)
     - backward of everything (LSTM scans backward x128)
     - gradient add
 - optimizer: clip + adam
Work MACs per segment: spectrogram decoder: innermost input 8 x 128 x 384: rewrite 3x3 384->768 : 1024 pos x 2.65 M = 2.7 G; up 384->192 k8 (each output 2 taps): 1024*8*384*192=0.6 G; level 32x128 x 192: rewrite 4096 x 9*192*384=0.66M = 2.7 G;
 128 x128 x 96: 16384 x 0.166 M = 2.7 G; 512x128x48: 65536 x 9*48*96 = 41.5k = 2.7 G. up total 0.6+0.6+0.6 + last(48->16: 65536*8*48*16 =0.4). ~ 13 G.
spec encoder: conv: 65536*8*4*48=0.1, 16384*8*48*96 = .6, .6, .6; rewrite 1x1: 65536*48*96=.3 x4 = 1.2; dconv 65536*2*(3*48*12+12*96)=.38 each-> 1.5. ~4.6 G.
time decoder: lengths 512,2048,8192,32768: rewrite k3: 512*3*384*768=.45; .45; .45; .45 = 1.8 + up .3*4 → ~2.8 G; time encoder ~ 2 G. LSTM: 128*(384*1536*2*... ) layers: (0.59+0.59)*2 + (1.18+.59)*2 = 5.9 M x 128 = .75 G; merge 4608*384*128=.23 G, splits .23 G.
So >10 %: fdec (~55 %), fenc (~20 %), tdec (~11 %); tenc ~8 %; blstm ~3 % of flops but a big share of TIME because of the sequential 128-step scans (x4, forward + backward).
Backward is ~ 2/3 of all.

(2) FALSE NAMES
"transformer/attention", "diffusion / flow", "vocoder / GAN / discriminator", "teacher", "speech recognition / CTC", "layers x128" or "tokens decode x128" for the LSTM scans (they're time steps), "microbatch x128", "scan over encoder layers", "EMA",
"autoregressive sampling".

(3) EXPERT
True
 - LSTM scans: 128 sequential steps x 4 forward + 4 backward x 2 microbatches with batch 8 x 384 matmul: latency-bound; forward and backward directions are independent but run one after the other: stack them (vmap) to halve; input projection is hoisted (good).
 - Everything fp32; use bf16 for convs. Channels (48, 96) small vs 128 lanes: poor MXU use on the large outer layers, which are memory-bound; 4/2-channel inputs particularly.
 - STFT by gather of overlapping frames x[..., idx] : materialises frames 4x for hop n/4; the backward is a scatter-add (slow). Remedy: reshape/concat trick (as istft does) or conv.
 - Multi-resolution STFT on both est and ref, 4 sources x 2 channels x 8 : (64 signals) — memory heavy (each complex 64 x 512 x 257 ...), reference STFT is not needing gradient.
 - No remat: large activations at the outer levels: spec 65536 x 48..96 x 8 x 4B = 100-200 MB each, DConv etc.
 - GroupNorm over long reductions; GLU halves.
 - reshapes/transposes of (b,f,t,c) <-> (b*f,t,c).
 - No comms; donation OK.
False
 - "Attention", "communication", "optimizer is significant", "blstm dominates the FLOPs", "weights sharded", "time branch dominates".
"""

"""Music source separation, hybrid (time + spectrogram) U-Net with a BLSTM bottleneck.
Same layout as our HDemucs fork, stripped of the config system.  flax.nnx.

- two encoders (waveform / complex-as-channels spectrogram) that meet at the innermost level
- DConv residual branches (dilated convs) in every encoder layer
- remix augmentation on the GPU: sources of different songs are shuffled and re-summed
- L1 + multi-resolution STFT loss, gradient accumulation of 2
"""
import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

SR = 44_100
SEG = 131_072  # ~3 s
NFFT, HOP = 4096, 1024
FRAMES = SEG // HOP
SOURCES = ("drums", "bass", "other", "vocals")
CHANNELS = (48, 96, 192, 384)
LSTM_DIM = 384
BATCH, ACCUM = 8, 2


def stft(x, n_fft, hop):
    pad = n_fft // 2
    x = jnp.pad(x, [(0, 0)] * (x.ndim - 1) + [(pad, pad)], mode="reflect")
    n = 1 + (x.shape[-1] - n_fft) // hop
    idx = np.arange(n)[:, None] * hop + np.arange(n_fft)[None]
    win = jnp.asarray(np.hanning(n_fft + 1)[:-1], jnp.float32)
    return jnp.fft.rfft(x[..., idx] * win, axis=-1) / np.sqrt(n_fft)


def istft(spec, n_fft, hop, length):
    win = jnp.asarray(np.hanning(n_fft + 1)[:-1], jnp.float32)
    frames = jnp.fft.irfft(spec * np.sqrt(n_fft), n=n_fft, axis=-1) * win
    *lead, n, _ = frames.shape
    k = n_fft // hop
    seg = frames.reshape(*lead, n, k, hop)
    out = sum(
        jnp.pad(seg[..., j, :], [(0, 0)] * len(lead) + [(j, k - 1 - j), (0, 0)]) for j in range(k)
    )
    out = out.reshape(*lead, -1) / 1.5
    return out[..., n_fft // 2 : n_fft // 2 + length]


class GN(nnx.Module):
    def __init__(self, c, rngs):
        self.gn = nnx.GroupNorm(c, num_groups=4, rngs=rngs)

    def __call__(self, x):
        return self.gn(x)


class DConv(nnx.Module):
    """Residual branch: two dilated 1-D convs with a bottleneck and GLU."""

    def __init__(self, c, rngs, depth=2):
        h = c // 4
        self.squeeze = nnx.List(
            [nnx.Conv(c, h, (3,), kernel_dilation=2**d, rngs=rngs) for d in range(depth)]
        )
        self.norm1 = nnx.List([GN(h, rngs) for _ in range(depth)])
        self.expand = nnx.List([nnx.Conv(h, 2 * c, (1,), rngs=rngs) for _ in range(depth)])
        self.norm2 = nnx.List([GN(2 * c, rngs) for _ in range(depth)])
        self.scale = nnx.Param(jnp.full((depth, c), 1e-3))

    def __call__(self, x):
        for d, (s, n1, e, n2) in enumerate(zip(self.squeeze, self.norm1, self.expand, self.norm2)):
            y = nnx.gelu(n1(s(x)))
            x = x + self.scale[...][d] * nnx.glu(n2(e(y)))
        return x


class EncLayer(nnx.Module):
    def __init__(self, i, o, freq, rngs):
        self.freq = freq
        k, s = ((8, 1), (4, 1)) if freq else ((8,), (4,))
        self.conv = nnx.Conv(i, o, k, strides=s, rngs=rngs)
        self.dconv = DConv(o, rngs)
        self.rewrite = nnx.Conv(o, 2 * o, (1, 1) if freq else (1,), rngs=rngs)

    def __call__(self, x):
        y = nnx.gelu(self.conv(x))
        if self.freq:  # dconv runs along time for each band
            b, f, t, c = y.shape
            y = self.dconv(y.reshape(b * f, t, c)).reshape(b, f, t, c)
        else:
            y = self.dconv(y)
        return nnx.glu(self.rewrite(y))


class DecLayer(nnx.Module):
    def __init__(self, i, o, freq, rngs, last=False):
        self.last = last
        k3, k, s = ((3, 3), (8, 1), (4, 1)) if freq else ((3,), (8,), (4,))
        self.rewrite = nnx.Conv(i, 2 * i, k3, rngs=rngs)
        self.up = nnx.ConvTranspose(i, o, k, strides=s, rngs=rngs)

    def __call__(self, x, skip):
        y = self.up(nnx.glu(self.rewrite(x + skip)))
        return y if self.last else nnx.gelu(y)


class LSTM(nnx.Module):
    def __init__(self, i, h, rngs):
        self.wx = nnx.Linear(i, 4 * h, rngs=rngs)
        self.wh = nnx.Linear(h, 4 * h, use_bias=False, rngs=rngs)
        self.h = h

    def __call__(self, x, reverse=False):
        pre = jnp.moveaxis(self.wx(x), 1, 0)
        wh = self.wh.kernel[...]

        def cell(carry, u):
            h, c = carry
            i, f, g, o = jnp.split(u + h @ wh, 4, -1)
            c = jax.nn.sigmoid(f + 1) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
            h = jax.nn.sigmoid(o) * jnp.tanh(c)
            return (h, c), h

        z = jnp.zeros((x.shape[0], self.h))
        _, hs = jax.lax.scan(cell, (z, z), pre, reverse=reverse)
        return jnp.moveaxis(hs, 0, 1)


class BLSTM(nnx.Module):
    def __init__(self, c, h, rngs, layers=2):
        self.fwd = nnx.List([LSTM(c if l == 0 else 2 * h, h, rngs) for l in range(layers)])
        self.bwd = nnx.List([LSTM(c if l == 0 else 2 * h, h, rngs) for l in range(layers)])
        self.out = nnx.Linear(2 * h, c, rngs=rngs)

    def __call__(self, x):
        y = x
        for f, b in zip(self.fwd, self.bwd):
            y = jnp.concatenate([f(y), b(y, reverse=True)], -1)
        return x + self.out(y)


class HybridSeparator(nnx.Module):
    def __init__(self, rngs):
        S = len(SOURCES)
        chin = lambda c0: zip((c0, *CHANNELS[:-1]), CHANNELS)
        self.tenc = nnx.List([EncLayer(i, o, False, rngs) for i, o in chin(2)])
        self.fenc = nnx.List([EncLayer(i, o, True, rngs) for i, o in chin(4)])
        outs = CHANNELS[:-1][::-1]
        self.tdec = nnx.List(
            [
                DecLayer(i, o, False, rngs, last=n == 3)
                for n, (i, o) in enumerate(zip(CHANNELS[::-1], (*outs, 2 * S)))
            ]
        )
        self.fdec = nnx.List(
            [
                DecLayer(i, o, True, rngs, last=n == 3)
                for n, (i, o) in enumerate(zip(CHANNELS[::-1], (*outs, 4 * S)))
            ]
        )
        c = CHANNELS[-1]
        bands = NFFT // 2 // 4**4
        self.merge = nnx.Linear(c * bands + 4 * c, c, rngs=rngs)
        self.blstm = BLSTM(c, LSTM_DIM, rngs)
        self.split_t = nnx.Linear(c, 4 * c, rngs=rngs)
        self.split_f = nnx.Linear(c, c * bands, rngs=rngs)

    def __call__(self, mix):
        """mix [B, SEG, 2] -> [B, S, SEG, 2]"""
        B, S = mix.shape[0], len(SOURCES)
        z = stft(jnp.moveaxis(mix, -1, 1), NFFT, HOP)[:, :, :FRAMES, :-1]
        f = jnp.concatenate([z.real, z.imag], 1).transpose(0, 3, 2, 1)
        mu, sd = f.mean((1, 2, 3), keepdims=True), f.std((1, 2, 3), keepdims=True)
        f = (f - mu) / (sd + 1e-5)
        m, s = mix.mean((1, 2), keepdims=True), mix.std((1, 2), keepdims=True)
        t = (mix - m) / (s + 1e-5)

        t_skips, f_skips = [], []
        for te, fe in zip(self.tenc, self.fenc):
            t, f = te(t), fe(f)
            t_skips.append(t)
            f_skips.append(f)

        # bottleneck on the common frame rate
        ft = f.transpose(0, 2, 1, 3).reshape(B, FRAMES, -1)
        tt = t.reshape(B, FRAMES, -1)
        h = self.blstm(self.merge(jnp.concatenate([ft, tt], -1)))
        t = self.split_t(h).reshape(t.shape)
        f = self.split_f(h).reshape(B, FRAMES, f.shape[1], -1).transpose(0, 2, 1, 3)

        for td, fd in zip(self.tdec, self.fdec):
            t, f = td(t, t_skips.pop()), fd(f, f_skips.pop())

        wave = t.reshape(B, SEG, S, 2).transpose(0, 2, 1, 3) * s[:, None] + m[:, None]
        f = (f * (sd + 1e-5) + mu).transpose(0, 3, 2, 1).reshape(B, S, 2, 2, FRAMES, NFFT // 2)
        spec = jnp.pad(jax.lax.complex(f[:, :, 0], f[:, :, 1]), [(0, 0)] * 3 + [(0, 1), (0, 1)])
        return wave + jnp.moveaxis(istft(spec, NFFT, HOP, SEG), -2, -1)


def remix(key, stems):
    """Shuffle each source over the batch independently, random gain and polarity."""
    kp, kg, ks = jax.random.split(key, 3)
    B, S = stems.shape[:2]
    perm = jax.vmap(lambda k: jax.random.permutation(k, B), out_axes=1)(jax.random.split(kp, S))
    stems = jnp.take_along_axis(stems, perm[:, :, None, None], 0)
    gain = jax.random.uniform(kg, (B, S, 1, 1), minval=0.25, maxval=1.25)
    return stems * gain * jax.random.rademacher(ks, (B, S, 1, 1)).astype(jnp.float32)


def mrstft(pred, ref):
    total = 0.0
    for n in (512, 1024, 2048):
        mag = lambda w: jnp.sqrt(jnp.abs(stft(jnp.moveaxis(w, -1, -2), n, n // 4)) ** 2 + 1e-7)
        p, r = mag(pred), mag(ref)
        total += jnp.mean(jnp.abs(jnp.log(p) - jnp.log(r))) + jnp.linalg.norm(
            p - r
        ) / jnp.linalg.norm(r)
    return total / 3


def make():
    gdef, params = nnx.split(nnx.eval_shape(lambda: HybridSeparator(nnx.Rngs(0))))
    tx = optax.chain(optax.clip_by_global_norm(5.0), optax.adam(3e-4, b2=0.999))

    def loss(p, key, stems):
        stems = remix(key, stems)
        est = nnx.merge(gdef, p)(stems.sum(1))
        return jnp.mean(jnp.abs(est - stems)) + 0.1 * mrstft(est, stems)

    @functools.partial(jax.jit, donate_argnums=(0, 1))
    def train_step(p, opt, key, stems):
        def acc(g, xs):
            l, gi = jax.value_and_grad(loss)(p, *xs)
            return jax.tree.map(jnp.add, g, gi), l

        g, l = jax.lax.scan(
            acc, jax.tree.map(jnp.zeros_like, p), (jax.random.split(key, ACCUM), stems)
        )
        upd, opt = tx.update(jax.tree.map(lambda x: x / ACCUM, g), opt, p)
        return optax.apply_updates(p, upd), opt, l.mean()

    stems = jax.ShapeDtypeStruct((ACCUM, BATCH, len(SOURCES), SEG, 2), jnp.float32)
    return train_step, (
        params,
        jax.eval_shape(tx.init, params),
        jax.ShapeDtypeStruct((2,), jnp.uint32),
        stems,
    )
