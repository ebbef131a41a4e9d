"""Text-to-image DDIM sampling: text encoder once, 50-step fori_loop of a transformer denoiser with classifier-free guidance, then a decoder."""

TRUTH = {
    "majors": {
        "denoiser in the sampling loop": 0.97,
        "text_encoder": 0.01,
        "decode_latents": 0.02,
        "ddim_step": 0.0,
        "guide": 0.0,
    },
    "layers": [["TextLayer", 4], ["DenoiserBlock", 6]],
    "optimizer": False,
    "grad": None,
    "loops": ["fori_loop 50 sampling steps"],
    "tells_apart": [["text_encoder", "denoiser"], ["self attention", "cross attention"]],
    "order": [
        ["text_encoder", "sampling loop"],
        ["timestep_embed", "DenoiserBlock"],
        ["denoiser", "guide"],
        ["guide", "ddim_step"],
        ["sampling loop", "decode_latents"],
    ],
    "independent": [],
}
import flax.linen as nn
import jax
import jax.numpy as jnp

B, G, C, D, TXT, VOCAB, STEPS = 4, 16, 4, 384, 32, 4096, 50


class TextLayer(nn.Module):
    @nn.compact
    def __call__(self, x):
        y = nn.LayerNorm()(x)
        x = x + nn.MultiHeadDotProductAttention(4, name="attn")(y, y)
        return x + nn.Dense(D)(nn.gelu(nn.Dense(2 * D)(nn.LayerNorm()(x))))


class TextEncoder(nn.Module):
    @nn.compact
    def __call__(self, ids):
        x = nn.Embed(VOCAB, D)(ids)
        for i in range(4):
            x = TextLayer(name=f"layer{i}")(x)
        return nn.LayerNorm()(x)


class TimestepEmbed(nn.Module):
    @nn.compact
    def __call__(self, t):
        f = jnp.exp(-jnp.log(1e4) * jnp.arange(64) / 64)
        a = t[:, None] * f
        return nn.Dense(D)(nn.silu(nn.Dense(D)(jnp.concatenate([jnp.sin(a), jnp.cos(a)], -1))))


class DenoiserBlock(nn.Module):
    @nn.compact
    def __call__(self, x, temb, text):
        shift, scale, gate = jnp.split(
            nn.Dense(3 * D, name="modulation")(nn.silu(temb))[:, None], 3, -1
        )
        y = nn.LayerNorm(use_bias=False, use_scale=False)(x) * (1 + scale) + shift
        x = x + gate * nn.MultiHeadDotProductAttention(6, name="self_attn")(y, y)
        x = x + nn.MultiHeadDotProductAttention(6, name="cross_attn")(nn.LayerNorm()(x), text)
        return x + nn.Dense(D, name="mlp_out")(
            nn.gelu(nn.Dense(4 * D, name="mlp_in")(nn.LayerNorm()(x)))
        )


class Denoiser(nn.Module):
    @nn.compact
    def __call__(self, z, t, text):
        b = z.shape[0]
        x = nn.Dense(D, name="patch_in")(z.reshape(b, G * G, C)) + self.param(
            "pos", nn.initializers.normal(0.02), (1, G * G, D)
        )
        temb = TimestepEmbed(name="timestep_embed")(t)
        for i in range(6):
            x = DenoiserBlock(name=f"block{i}")(x, temb, text)
        return nn.Dense(C, name="patch_out")(nn.LayerNorm()(x)).reshape(b, G, G, C)


class LatentDecoder(nn.Module):
    @nn.compact
    def __call__(self, z):
        x = nn.Conv(128, (3, 3))(z)
        for w in (128, 64):
            x = jax.image.resize(
                x, (x.shape[0], 2 * x.shape[1], 2 * x.shape[2], x.shape[3]), "nearest"
            )
            x = nn.silu(nn.GroupNorm(8)(nn.Conv(w, (3, 3))(x)))
        return jnp.tanh(nn.Conv(3, (3, 3))(x))


text_encoder, denoiser, decoder = TextEncoder(), Denoiser(), LatentDecoder()


def alpha_bar(t):
    return jnp.cos((t / 1000 + 0.008) / 1.008 * jnp.pi / 2) ** 2


def guide(eps, scale=7.5):
    uncond, cond = jnp.split(eps, 2)
    return uncond + scale * (cond - uncond)


def ddim_step(z, eps, t, t_next):
    a, an = alpha_bar(t), alpha_bar(t_next)
    z0 = jnp.clip((z - jnp.sqrt(1 - a) * eps) / jnp.sqrt(a), -3, 3)
    return jnp.sqrt(an) * z0 + jnp.sqrt(1 - an) * eps


def decode_latents(params, z):
    return decoder.apply(params, z / 0.18)


@jax.jit
def sample(params, key, prompt, negative):
    text = text_encoder.apply(params["text"], jnp.concatenate([negative, prompt]))
    z = jax.random.normal(key, (B, G, G, C))
    ts = jnp.linspace(999.0, 0.0, STEPS + 1)

    def body(i, z):
        t = jnp.full((2 * B,), ts[i])
        eps = guide(denoiser.apply(params["denoiser"], jnp.concatenate([z, z]), t, text))
        return ddim_step(z, eps, ts[i], ts[i + 1])

    z = jax.lax.fori_loop(0, STEPS, body, z)
    return decode_latents(params["decoder"], z)


def make():
    k = jax.random.key(0)
    z = jnp.zeros((1, G, G, C))
    params = jax.eval_shape(
        lambda: {
            "text": text_encoder.init(k, jnp.zeros((1, TXT), jnp.int32)),
            "denoiser": denoiser.init(k, z, jnp.zeros(1), jnp.zeros((1, TXT, D))),
            "decoder": decoder.init(k, z),
        }
    )
    ids = jax.ShapeDtypeStruct((B, TXT), jnp.int32)
    return sample, (params, jax.eval_shape(lambda: jax.random.key(0)), ids, ids)
