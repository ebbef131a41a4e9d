TRUTH = """
# audio_flow_sampler - text to audio, flow matching with classifier-free guidance, inference; flax nnx, one device

1. Order: tokens (2 prompts + 2 empty prompts) -> **text encoder: 4 layers, written out** -> noise [2, 512, 64] -> **sampling: loop x25, midpoint rule: velocity U-Net twice per step** (z, then half-way z), guidance after each -> **codec decoder** (4 upsampling blocks, x512 in all: 512 frames -> 262144 samples) -> tanh, normalise to peak.
2. One U-Net call: time embedding -> conv_in -> **down1** (2 residual blocks, 256 ch, 512 frames) -> shrink -> **down2** (2 x { residual, self attention, cross attention, feed-forward }, 512 ch, 256 frames) -> shrink -> **middle** (the same, 768 ch, 128 frames) -> grow -> **up2** (with skips) -> grow -> **up1** (with skips) -> conv_out.
3. Work ~4.84 TF: sampling loop 96% (48% for each of the two U-Net calls), decoder ~4%, text encoder 0.1%. In a U-Net: up2 31%, middle 27%, down2 25%, up1 6%, down1 4%, shrink/grow/in/out 7%. By kind: feed-forward 29%, attention 27%, residual convolutions 37%.
4. First picture: text encoder x4 -> loop x25 { U-Net (t) -> guidance -> U-Net (t + dt/2) -> guidance } -> decoder (4 blocks) -> waveform.
5. Arrows: text features -> cross attention in the loop (constant over the loop; their keys/values may be hoisted out of it); z around the loop; skips down1 -> up1, down2 -> up2; z -> decoder.
6. Inference only: no backward, no optimizer.
7. Should not stand out: time sinusoids, random normal, snake's sin, group norm, casts to bf16, concatenation for guidance.
8. Misleading: naming the second U-Net call a different network (same weights); batch 4 = 2 conditional + 2 unconditional and not 4 prompts; the convolutional decoder as a part of the U-Net.
"""

"""Text to audio: rectified-flow sampler over codec latents, then the codec's decoder."""
import jax
import jax.numpy as jnp
from flax import nnx

TEXT_LEN, VOCAB, D_TEXT, TEXT_LAYERS = 64, 16384, 512, 4
FRAMES, LATENT = 512, 64
CHANNELS = (256, 512, 768)
STEPS = 25
GUIDANCE = 4.0
UPSAMPLE = (8, 8, 4, 2)
DTYPE = jnp.bfloat16


def Dense(i, o, rngs):
    return nnx.Linear(i, o, dtype=DTYPE, rngs=rngs)


def Conv1d(i, o, width, rngs, **kw):
    return nnx.Conv(i, o, (width,), padding="SAME", dtype=DTYPE, rngs=rngs, **kw)


class Attention(nnx.Module):
    def __init__(self, dim, ctx_dim, heads, rngs):
        self.norm = nnx.LayerNorm(dim, dtype=DTYPE, rngs=rngs)
        self.to_q = Dense(dim, dim, rngs)
        self.to_kv = Dense(ctx_dim, 2 * dim, rngs)
        self.to_out = Dense(dim, dim, rngs)
        self.heads = heads

    def __call__(self, x, context=None, mask=None):
        h = self.norm(x)
        context = h if context is None else context
        split = lambda y: y.reshape(*y.shape[:-1], self.heads, -1)
        k, v = jnp.split(self.to_kv(context), 2, axis=-1)
        y = jax.nn.dot_product_attention(split(self.to_q(h)), split(k), split(v), mask=mask)
        return x + self.to_out(y.reshape(x.shape))


class FeedForward(nnx.Module):
    def __init__(self, dim, rngs):
        self.norm = nnx.LayerNorm(dim, dtype=DTYPE, rngs=rngs)
        self.wi = Dense(dim, 4 * dim, rngs)
        self.wo = Dense(4 * dim, dim, rngs)

    def __call__(self, x):
        return x + self.wo(jax.nn.gelu(self.wi(self.norm(x))))


class TextEncoder(nnx.Module):
    def __init__(self, rngs):
        self.embed = nnx.Embed(VOCAB, D_TEXT, dtype=DTYPE, rngs=rngs)
        self.pos = nnx.Param(jnp.zeros((TEXT_LEN, D_TEXT)))
        self.attn = nnx.List([Attention(D_TEXT, D_TEXT, 8, rngs) for _ in range(TEXT_LAYERS)])
        self.ff = nnx.List([FeedForward(D_TEXT, rngs) for _ in range(TEXT_LAYERS)])
        self.norm = nnx.LayerNorm(D_TEXT, dtype=DTYPE, rngs=rngs)

    def __call__(self, tokens):
        x = self.embed(tokens) + self.pos[...].astype(DTYPE)
        mask = (tokens > 0)[:, None, None, :]
        for attn, ff in zip(self.attn, self.ff):
            x = ff(attn(x, mask=mask))
        return self.norm(x)


class ResBlock(nnx.Module):
    def __init__(self, i, o, rngs):
        self.norm1 = nnx.GroupNorm(i, 8, dtype=DTYPE, rngs=rngs)
        self.conv1 = Conv1d(i, o, 3, rngs)
        self.time = Dense(D_TEXT, 2 * o, rngs)
        self.norm2 = nnx.GroupNorm(o, 8, dtype=DTYPE, rngs=rngs)
        self.conv2 = Conv1d(o, o, 3, rngs)
        self.skip = Dense(i, o, rngs) if i != o else None

    def __call__(self, x, temb):
        h = self.conv1(jax.nn.silu(self.norm1(x)))
        scale, shift = jnp.split(self.time(jax.nn.silu(temb))[:, None], 2, -1)
        h = self.conv2(jax.nn.silu(self.norm2(h) * (1 + scale) + shift))
        return h + (x if self.skip is None else self.skip(x))


class TransformerBlock(nnx.Module):
    def __init__(self, dim, rngs):
        self.self_attn = Attention(dim, dim, dim // 64, rngs)
        self.cross_attn = Attention(dim, D_TEXT, dim // 64, rngs)
        self.ff = FeedForward(dim, rngs)

    def __call__(self, x, text):
        return self.ff(self.cross_attn(self.self_attn(x), text))


class Level(nnx.Module):
    """two residual blocks, each with a transformer block below the top level"""

    def __init__(self, ins, out, attend, rngs):
        self.res = nnx.List([ResBlock(i, out, rngs) for i in ins])
        self.attn = nnx.List([TransformerBlock(out, rngs) for _ in ins] if attend else [])

    def __call__(self, x, temb, text, skips=None):
        outs = []
        for n, res in enumerate(self.res):
            if skips is not None:
                x = jnp.concatenate([x, skips.pop()], -1)
            x = res(x, temb)
            if len(self.attn):
                x = self.attn[n](x, text)
            outs.append(x)
        return x, outs


class VelocityUNet(nnx.Module):
    def __init__(self, rngs):
        c1, c2, c3 = CHANNELS
        self.time1, self.time2 = Dense(256, D_TEXT, rngs), Dense(D_TEXT, D_TEXT, rngs)
        self.conv_in = Conv1d(LATENT, c1, 7, rngs)
        self.down1 = Level([c1, c1], c1, False, rngs)
        self.shrink1 = Conv1d(c1, c2, 4, rngs, strides=2)
        self.down2 = Level([c2, c2], c2, True, rngs)
        self.shrink2 = Conv1d(c2, c3, 4, rngs, strides=2)
        self.middle = Level([c3, c3], c3, True, rngs)
        self.grow2 = nnx.ConvTranspose(c3, c2, (4,), strides=2, dtype=DTYPE, rngs=rngs)
        self.up2 = Level([2 * c2, 2 * c2], c2, True, rngs)
        self.grow1 = nnx.ConvTranspose(c2, c1, (4,), strides=2, dtype=DTYPE, rngs=rngs)
        self.up1 = Level([2 * c1, 2 * c1], c1, False, rngs)
        self.norm_out = nnx.GroupNorm(c1, 8, dtype=DTYPE, rngs=rngs)
        self.conv_out = Conv1d(c1, LATENT, 7, rngs)

    def __call__(self, z, t, text):
        freq = jnp.exp(-jnp.arange(128) / 128 * jnp.log(1e4))
        angles = 1000 * t[:, None] * freq
        temb = jnp.concatenate([jnp.sin(angles), jnp.cos(angles)], -1).astype(DTYPE)
        temb = self.time2(jax.nn.silu(self.time1(temb)))
        x = self.conv_in(z.astype(DTYPE))
        x, skips1 = self.down1(x, temb, text)
        x, skips2 = self.down2(self.shrink1(x), temb, text)
        x, _ = self.middle(self.shrink2(x), temb, text)
        x, _ = self.up2(self.grow2(x), temb, text, skips2)
        x, _ = self.up1(self.grow1(x), temb, text, skips1)
        return self.conv_out(jax.nn.silu(self.norm_out(x))).astype(jnp.float32)


class Snake(nnx.Module):
    def __init__(self, dim):
        self.alpha = nnx.Param(jnp.ones((dim,)))

    def __call__(self, x):
        a = self.alpha[...].astype(x.dtype)
        return x + jnp.sin(a * x) ** 2 / (a + 1e-4)


class DecoderBlock(nnx.Module):
    def __init__(self, i, o, stride, rngs):
        self.act = Snake(i)
        self.up = nnx.ConvTranspose(i, o, (2 * stride,), strides=stride, dtype=DTYPE, rngs=rngs)
        self.acts = nnx.List([Snake(o) for _ in range(3)])
        self.convs = nnx.List([Conv1d(o, o, 7, rngs, kernel_dilation=d) for d in (1, 3, 9)])
        self.mixes = nnx.List([Dense(o, o, rngs) for _ in range(3)])

    def __call__(self, x):
        x = self.up(self.act(x))
        for act, conv, mix in zip(self.acts, self.convs, self.mixes):
            x = x + mix(conv(act(x)))
        return x


class CodecDecoder(nnx.Module):
    def __init__(self, rngs):
        dims = (512, 256, 128, 64, 32)
        self.conv_in = Conv1d(LATENT, dims[0], 7, rngs)
        self.blocks = nnx.List(
            [DecoderBlock(i, o, s, rngs) for i, o, s in zip(dims, dims[1:], UPSAMPLE)]
        )
        self.act = Snake(dims[-1])
        self.conv_out = Conv1d(dims[-1], 1, 7, rngs)

    def __call__(self, z):
        x = self.conv_in(z.astype(DTYPE))
        for block in self.blocks:
            x = block(x)
        return jnp.tanh(self.conv_out(self.act(x)).astype(jnp.float32))[..., 0]


class TextToAudio(nnx.Module):
    def __init__(self, rngs):
        self.text_encoder = TextEncoder(rngs)
        self.unet = VelocityUNet(rngs)
        self.decoder = CodecDecoder(rngs)

    def guided_velocity(self, z, t, text):
        n = z.shape[0]
        v = self.unet(jnp.concatenate([z, z]), jnp.full((2 * n,), t), text)
        v_cond, v_null = v[:n], v[n:]
        return v_null + GUIDANCE * (v_cond - v_null)

    def sample(self, key, tokens):
        text = self.text_encoder(jnp.concatenate([tokens, jnp.zeros_like(tokens)]))
        z = jax.random.normal(key, (tokens.shape[0], FRAMES, LATENT))
        dt = 1.0 / STEPS

        def midpoint(z, i):
            t = i * dt
            half = z + 0.5 * dt * self.guided_velocity(z, t, text)
            return z + dt * self.guided_velocity(half, t + 0.5 * dt, text), None

        z, _ = jax.lax.scan(midpoint, z, jnp.arange(STEPS, dtype=jnp.float32))
        return self.decoder(z)


def make():
    graph, state = nnx.split(nnx.eval_shape(lambda: TextToAudio(nnx.Rngs(0))))

    def generate(state, key, tokens):
        wave = nnx.merge(graph, state).sample(key, tokens)
        return wave / (jnp.abs(wave).max(-1, keepdims=True) + 1e-5) * 0.9

    state = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), state)
    key = jax.ShapeDtypeStruct((2,), jnp.uint32)
    return jax.jit(generate), (state, key, jax.ShapeDtypeStruct((2, TEXT_LEN), jnp.int32))
