TRUTH = """
MaskGIT sampling of 16 images (generate), one device; inference only.

generate
  decode loop x12 (decode_step)
    guided_logits: conditional and unconditional run as ONE doubled batch (32 sequences of 257 tokens)
      transformer (TokenTransformer): token_embed lookup + pos_embed, embed_norm
        layers: layer_stack loop x24 (BidirectionalLayer: attn_norm, query, key, value, scores, attn_out, mlp_norm, mlp_in, mlp_out)
        head_dense, head_norm, tied logits (768->1024)
      combine (1+s) cond - s uncond
    sample_tokens: categorical, log-softmax confidence
    remask: cosine schedule, gumbel noise, sort, cut, put MASK back
  vq_decoder (VQDecoder) ONCE, after the loop: codebook lookup, conv_in, mid_0, mid_1, level0..level4 (2 ResBlock each, upsample conv after levels 0..3), norm_out, conv_out -> 256x256x3
  clip to uint8

Nesting 12 > 24 = 288 layer executions. No backward, no optimiser.
Weight: transformer: 12 steps x 8224 tokens x 24 x 7.1 M x 2 = about 34 Tflop (plus attention scores); the decoder once for 16 images at up to 256x256x128:
about 16 x 0.3 to 0.5 Tflop = 3 to 8 Tflop: second. Sampling and sort are light.
First sight: an outer loop of 12 holding a loop of 24 layers, then a convolutional decoder outside.
Names true: generate, decode_step, guided_logits, transformer/layers/layer, sample_tokens, remask, vq_decoder/levelI_resJ.
False would be: vq_decoder inside the loop; 24 shown without the 12 around; two transformers for the two guidance halves; a "backward" part;
threefry random bits loop shown as the person's loop.
"""

"""MaskGIT image sampling, haiku. Parallel decoding of 256 image tokens in 12 steps with classifier-free guidance,
then one pass of the VQGAN decoder. One device, 16 images of 256x256."""
import haiku as hk
import jax
import jax.numpy as jnp
from jax import lax

BATCH, TOKENS, CODES, CLASSES = 16, 256, 1024, 1000
WIDTH, LAYERS, HEADS, STEPS = 768, 24, 16, 12
MASK_ID = CODES
DT = jnp.bfloat16


class BidirectionalLayer(hk.Module):
    def __call__(self, x):
        b, t, d = x.shape
        n = lambda name: hk.LayerNorm(-1, True, True, name=name)
        h = n("attn_norm")(x)
        q, k, v = (
            hk.Linear(d, name=s)(h).reshape(b, t, HEADS, -1) for s in ("query", "key", "value")
        )
        s = jnp.einsum("bqhd,bkhd->bhqk", q, k) * (d // HEADS) ** -0.5
        p = jax.nn.softmax(s.astype(jnp.float32)).astype(x.dtype)
        x = x + hk.Linear(d, name="attn_out")(jnp.einsum("bhqk,bkhd->bqhd", p, v).reshape(b, t, d))
        h = jax.nn.gelu(hk.Linear(4 * d, name="mlp_in")(n("mlp_norm")(x)))
        return x + hk.Linear(d, name="mlp_out")(h)


class TokenTransformer(hk.Module):
    def __call__(self, ids, labels):
        """labels == CLASSES means no condition."""
        init = hk.initializers.TruncatedNormal(0.02)
        table = hk.get_parameter("token_embed", (CODES + 1 + CLASSES + 1, WIDTH), DT, init=init)
        seq = jnp.concatenate([labels[:, None] + CODES + 1, ids], 1)
        x = table[seq] + hk.get_parameter("pos_embed", (TOKENS + 1, WIDTH), DT, init=init)
        x = hk.LayerNorm(-1, True, True, name="embed_norm")(x)
        x = hk.experimental.layer_stack(LAYERS, name="layers")(
            lambda x: BidirectionalLayer(name="layer")(x)
        )(x)
        x = hk.LayerNorm(-1, True, True, name="head_norm")(
            jax.nn.gelu(hk.Linear(WIDTH, name="head_dense")(x))
        )
        return (x[:, 1:] @ table[:CODES].T).astype(jnp.float32)


class ResBlock(hk.Module):
    def __init__(self, out, name=None):
        super().__init__(name)
        self.out = out

    def __call__(self, x):
        gn = lambda s: hk.GroupNorm(32, name=s)
        h = hk.Conv2D(self.out, 3, name="conv1")(jax.nn.swish(gn("norm1")(x)))
        h = hk.Conv2D(self.out, 3, name="conv2")(jax.nn.swish(gn("norm2")(h)))
        if x.shape[-1] != self.out:
            x = hk.Conv2D(self.out, 1, name="skip")(x)
        return x + h


class VQDecoder(hk.Module):
    def __call__(self, ids):
        book = hk.get_parameter("codebook", (CODES, 256), DT, init=hk.initializers.RandomNormal())
        x = book[ids].reshape(-1, 16, 16, 256)
        x = hk.Conv2D(512, 3, name="conv_in")(x)
        for i in range(2):
            x = ResBlock(512, name=f"mid_{i}")(x)
        for level, mult in enumerate((4, 2, 2, 1, 1)):
            for i in range(2):
                x = ResBlock(128 * mult, name=f"level{level}_res{i}")(x)
            if level < 4:
                b, h, w, c = x.shape
                x = jax.image.resize(x, (b, 2 * h, 2 * w, c), "nearest")
                x = hk.Conv2D(c, 3, name=f"level{level}_upsample")(x)
        x = jax.nn.swish(hk.GroupNorm(32, name="norm_out")(x))
        return hk.Conv2D(3, 3, name="conv_out")(x)


def make():
    transformer = hk.without_apply_rng(
        hk.transform(lambda i, l: TokenTransformer(name="transformer")(i, l))
    )
    decoder = hk.without_apply_rng(hk.transform(lambda i: VQDecoder(name="vq_decoder")(i)))

    def guided_logits(params, ids, labels, scale):
        both = transformer.apply(
            params,
            jnp.concatenate([ids, ids]),
            jnp.concatenate([labels, jnp.full_like(labels, CLASSES)]),
        )
        cond, uncond = jnp.split(both, 2)
        return (1 + scale) * cond - scale * uncond

    def decode_step(params, labels, carry, step):
        ids, key = carry
        key, k_sample, k_mask = jax.random.split(key, 3)
        ratio = (step + 1) / STEPS
        logits = guided_logits(params, ids, labels, 3.0 * ratio)
        unknown = ids == MASK_ID
        with jax.named_scope("sample_tokens"):
            sampled = jax.random.categorical(k_sample, logits)
            sampled = jnp.where(unknown, sampled, ids)
            conf = jnp.take_along_axis(jax.nn.log_softmax(logits), sampled[..., None], -1)[..., 0]
            conf = jnp.where(unknown, conf, jnp.inf)
        with jax.named_scope("remask"):
            n_mask = jnp.floor(TOKENS * jnp.cos(ratio * jnp.pi / 2)).astype(jnp.int32)
            noisy = conf + 4.5 * (1 - ratio) * jax.random.gumbel(k_mask, conf.shape)
            cut = jnp.take_along_axis(
                jnp.sort(noisy, -1), jnp.broadcast_to(n_mask[None, None], (BATCH, 1)), -1
            )
            ids = jnp.where((noisy < cut) & (step < STEPS - 1), MASK_ID, sampled)
        return (ids, key), None

    def generate(t_params, d_params, labels, key):
        ids = jnp.full((BATCH, TOKENS), MASK_ID, jnp.int32)
        (ids, _), _ = lax.scan(
            lambda c, s: decode_step(t_params, labels, c, s), (ids, key), jnp.arange(STEPS)
        )
        image = decoder.apply(d_params, ids)
        return jnp.clip((image.astype(jnp.float32) + 1) * 127.5, 0, 255).astype(jnp.uint8)

    S = jax.ShapeDtypeStruct
    ids, labels, key = S((BATCH, TOKENS), jnp.int32), S((BATCH,), jnp.int32), jax.random.PRNGKey(0)
    half = lambda t: jax.tree.map(lambda x: S(x.shape, DT), t)
    t_params, d_params = (
        jax.eval_shape(transformer.init, key, ids, labels),
        jax.eval_shape(decoder.init, key, ids),
    )
    return jax.jit(generate), (half(t_params), half(d_params), labels, S((2,), jnp.uint32))
