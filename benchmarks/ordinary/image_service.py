TRUTH = """
PROGRAM image_service: text-to-image inference in nnx, single device: text tower, 20 DPM-Solver++ steps with CFG over a 12-block transformer, tiled VAE decode.

(1) EXPECTED BOXES
endpoint / generate
 - text (TextTower): embed, TextLayer x8 (unrolled python loop), 8 prompts (4 + 4 negative)           <1 %
 - solver_step x20 (scan): denoiser on 8 latents (cond+uncond)
     - patch, t embedding (t1,t2,t_mod), ctx projection
     - DenoiserBlock x12 (nnx.scan): self attention (qkv, out), cross attention (cq, ckv, co), mlp (up, down)
     - final, guidance, second order update
 - vae decode x4 tiles (lax.map): conv_in, mid VaeRes x2, ups x4 (VaeRes, VaeRes, conv with nearest upsample between), conv_out
 - uint8 conversion
Work MACs: denoiser token-block: 4*d^2 self + 2 d^2 (cq, co) + 8 d^2 = 14 d^2=18.6 M (+ ckv on 77 tokens 2 d^2*77/1024) + attention 2*1024*1152=2.4 M -> 21 M;
x 8192 tokens x 12 x 20 = 41 T MACs. VAE: per image 512 px: levels: 64^2 x 512ch res (4 res: mid2 + ups 2 = 8 convs x 2.36M x 4096 = 77 G) + conv at 128^2 x 2.36 M = 38.6 G;
up1 at 128^2: 4 convs x 2.36M x 16384 = 155 G + conv at 256^2 2.36 M x 65536 = 155 G; up2 at 256^2: (512*256*9=1.18M + 3x0.59M)+sc ~ 3.1 M x 65536 = 201 G + conv at 512^2 0.59 M x 262144 = 155 G;
up3 at 512^2: (0.295M + 3x0.147M +0.147M + sc 0.03) ~0.92 M x 262144 = 240 G. ~ 1.0 T per image, 4 images = 4.1 T. Text: 616 tokens x 8 x 7.1M = 35 G.
So: denoise loop ~ 91 % , VAE ~ 9 %, text < 0.1 %. Within the block: mlp ~ 50 %, self attention ~ 38 %, cross attention ~ 12 %.

(2) FALSE NAMES
"training/backward/loss/optimizer", "UNet", "autoregressive decoding", "KV cache", "microbatch x4" for the tile loop, "image x4 loop" (loop is over tiles; each has all 4 images),
"MoE", "vae encoder", "scan over 20 layers", "vision transformer x20". The scan x12 = blocks, x20 = solver steps, x4 = tiles.

(3) EXPERT
True
 - Denoise loop dominates: 20 steps x 2 (CFG doubling). Remedies: fewer steps, guidance distillation, CFG only in part of the steps.
 - Cross-attention K/V (ckv of the text) and ctx projection do not depend on the step: recomputed 20 x 12 times; hoist (small: 616 tokens vs 8192 => <1 %).
   [XLA may hoist the ctx projection but not those within the layer loop with the per-layer weights.]
 - t_mod is scalar per step; negligible.
 - Weights are re-read each step: 12 blocks x 16 d^2 bf16 ~ 0.5 GB x 20: at 8192 tokens compute bound.
 - Attention materialises 8 x 16 x 1024 x 1024 scores (fp32 537 MB or bf16) per block without flash.
 - head dim 72 pads to 128 on TPU (44 % waste in attention).
 - VAE tiles decode with no overlap: seams (quality remark), group norm statistics are per tile. High-resolution conv activations, memory-bound group norm/silu; lax.map bounds the peak
   memory to one tile (4 x 256 x 256 x 512... bf16 = 268 MB).
 - Batch 4 tile at once. Single device: no communication at all.
False
 - Anything on collectives/sharding; "VAE dominates"; "text encoder is significant"; "no CFG"; "the loop length is data-dependent"; "backward".
"""

"""Text-to-image endpoint: CLIP-ish text tower -> DPM-Solver++(2M) on a flow/eps transformer
-> convolutional VAE decoder, decoded tile by tile so that 1024px fits next to the weights.

Single accelerator per replica; nnx modules, weights bf16.
"""
import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

BF = jnp.bfloat16
N_IMG = 4
STEPS = 20
LAT = 64  # latent side (f=8 -> 512 px)
TILE = 32
TXT_LEN, TXT_DIM, TXT_LAYERS = 77, 768, 8
DN_DIM, DN_LAYERS, DN_HEADS = 1152, 12, 16
PATCH = 2


def lin(i, o, rngs, **kw):
    return nnx.Linear(i, o, dtype=BF, param_dtype=BF, rngs=rngs, **kw)


def conv(i, o, rngs, k=3, **kw):
    return nnx.Conv(i, o, (k, k), dtype=BF, param_dtype=BF, rngs=rngs, **kw)


# ----------------------------------------------------------------------------- text tower
class TextLayer(nnx.Module):
    def __init__(self, rngs):
        d = TXT_DIM
        self.ln1, self.ln2 = (
            nnx.LayerNorm(d, param_dtype=BF, rngs=rngs),
            nnx.LayerNorm(d, param_dtype=BF, rngs=rngs),
        )
        self.qkv, self.out = lin(d, 3 * d, rngs), lin(d, d, rngs)
        self.up, self.down = lin(d, 4 * d, rngs), lin(4 * d, d, rngs)

    def __call__(self, x):
        b, n, d = x.shape
        q, k, v = jnp.moveaxis(self.qkv(self.ln1(x)).reshape(b, n, 3, 12, 64), 2, 0)
        x = x + self.out(jax.nn.dot_product_attention(q, k, v, is_causal=True).reshape(b, n, d))
        h = self.up(self.ln2(x))
        return x + self.down(h * jax.nn.sigmoid(1.702 * h))


class TextTower(nnx.Module):
    def __init__(self, rngs):
        self.tok = nnx.Embed(49408, TXT_DIM, dtype=BF, param_dtype=BF, rngs=rngs)
        self.pos = nnx.Param(jnp.zeros((TXT_LEN, TXT_DIM), BF))
        self.layers = nnx.List([TextLayer(rngs) for _ in range(TXT_LAYERS)])
        self.ln = nnx.LayerNorm(TXT_DIM, param_dtype=BF, rngs=rngs)

    def __call__(self, ids):
        x = self.tok(ids) + self.pos[...]
        for l in self.layers:
            x = l(x)
        return self.ln(x)


# ----------------------------------------------------------------------------- denoiser
class DenoiserBlock(nnx.Module):
    """adaLN-single block with cross attention (PixArt)."""

    def __init__(self, rngs):
        d = DN_DIM
        self.table = nnx.Param(jnp.zeros((6, d), BF))
        self.qkv, self.out = lin(d, 3 * d, rngs), lin(d, d, rngs)
        self.cq, self.ckv, self.co = lin(d, d, rngs), lin(d, 2 * d, rngs), lin(d, d, rngs)
        self.up, self.down = lin(d, 4 * d, rngs), lin(4 * d, d, rngs)

    def __call__(self, x, mod, ctx):
        b, n, d = x.shape
        ln = lambda y: jax.nn.standardize(y.astype(jnp.float32), epsilon=1e-6).astype(BF)
        s1, b1, g1, s2, b2, g2 = jnp.moveaxis(mod[:, None] + self.table[...][None, None], 2, 0)
        heads = lambda y: y.reshape(b, -1, DN_HEADS, d // DN_HEADS)
        q, k, v = map(heads, jnp.split(self.qkv(ln(x) * (1 + s1) + b1), 3, -1))
        x = x + g1 * self.out(jax.nn.dot_product_attention(q, k, v).reshape(b, n, d))
        k, v = map(heads, jnp.split(self.ckv(ctx), 2, -1))
        x = x + self.co(jax.nn.dot_product_attention(heads(self.cq(x)), k, v).reshape(b, n, d))
        return x + g2 * self.down(nnx.gelu(self.up(ln(x) * (1 + s2) + b2)))


class Denoiser(nnx.Module):
    def __init__(self, rngs):
        d = DN_DIM
        self.patch = lin(4 * PATCH**2, d, rngs)
        self.t1, self.t2, self.t_mod = lin(256, d, rngs), lin(d, d, rngs), lin(d, 6 * d, rngs)
        self.ctx = lin(TXT_DIM, d, rngs)
        n = (LAT // PATCH) ** 2
        self.pos = nnx.Param(jnp.zeros((n, d), BF))

        @nnx.split_rngs(splits=DN_LAYERS)
        @nnx.vmap(in_axes=0, out_axes=0)
        def stack(r):
            return DenoiserBlock(r)

        self.blocks = stack(rngs)
        self.final = lin(d, 4 * PATCH**2, rngs)

    def __call__(self, z, t, ctx):
        b = z.shape[0]
        g = LAT // PATCH
        x = z.reshape(b, g, PATCH, g, PATCH, 4).transpose(0, 1, 3, 2, 4, 5).reshape(b, g * g, -1)
        x = self.patch(x.astype(BF)) + self.pos[...]
        f = jnp.exp(-np.log(1e4) * jnp.arange(128) / 128)
        e = jnp.concatenate([jnp.cos(1000 * t * f), jnp.sin(1000 * t * f)])[None].astype(BF)
        mod = self.t_mod(nnx.silu(self.t2(nnx.silu(self.t1(e))))).reshape(1, 6, DN_DIM)
        ctx = self.ctx(ctx)

        @nnx.scan(in_axes=(nnx.Carry, 0), out_axes=nnx.Carry)
        def run(x, blk):
            return blk(x, mod, ctx)

        x = self.final(run(x, self.blocks))
        return (
            x.reshape(b, g, g, PATCH, PATCH, 4)
            .transpose(0, 1, 3, 2, 4, 5)
            .reshape(z.shape)
            .astype(jnp.float32)
        )


# ----------------------------------------------------------------------------- vae decoder
class VaeRes(nnx.Module):
    def __init__(self, i, o, rngs):
        self.n1 = nnx.GroupNorm(i, 32, param_dtype=BF, rngs=rngs)
        self.n2 = nnx.GroupNorm(o, 32, param_dtype=BF, rngs=rngs)
        self.c1, self.c2 = conv(i, o, rngs), conv(o, o, rngs)
        self.sc = conv(i, o, rngs, k=1) if i != o else None

    def __call__(self, x):
        h = self.c2(nnx.silu(self.n2(self.c1(nnx.silu(self.n1(x))))))
        return h + (self.sc(x) if self.sc is not None else x)


class VaeDecoder(nnx.Module):
    WIDTHS = (512, 512, 256, 128)

    def __init__(self, rngs):
        self.conv_in = conv(4, 512, rngs)
        self.mid = nnx.List([VaeRes(512, 512, rngs) for _ in range(2)])
        ups, c = [], 512
        for w in self.WIDTHS:
            ups.append(nnx.List([VaeRes(c, w, rngs), VaeRes(w, w, rngs), conv(w, w, rngs)]))
            c = w
        self.ups = nnx.List(ups)
        self.norm = nnx.GroupNorm(c, 32, param_dtype=BF, rngs=rngs)
        self.conv_out = conv(c, 3, rngs)

    def __call__(self, z):
        x = self.conv_in(z.astype(BF))
        for m in self.mid:
            x = m(x)
        for i, (r1, r2, c) in enumerate(self.ups):
            x = r2(r1(x))
            if i < 3:
                b, h, w, ch = x.shape
                x = jax.image.resize(x, (b, 2 * h, 2 * w, ch), "nearest")
            x = c(x)
        return jnp.tanh(self.conv_out(nnx.silu(self.norm(x))).astype(jnp.float32))


# ----------------------------------------------------------------------------- pipeline
class Pipeline(nnx.Module):
    def __init__(self, rngs):
        self.text, self.denoiser, self.vae = TextTower(rngs), Denoiser(rngs), VaeDecoder(rngs)


def log_snr_grid():
    ts = np.linspace(0.999, 0.002, STEPS + 1)
    a = np.cos(ts * np.pi / 2)
    s = np.sin(ts * np.pi / 2)
    return jnp.asarray(np.stack([ts, a, s, np.log(a / s)], 1), jnp.float32)


def generate(pipe, ids, neg_ids, guidance, key):
    ctx = pipe.text(jnp.concatenate([ids, neg_ids]))
    grid = log_snr_grid()
    z = jax.random.normal(key, (N_IMG, LAT, LAT, 4))
    graph, weights = nnx.split(pipe.denoiser)

    def solver_step(carry, pair):
        z, prev_x0, prev_h = carry
        (t, a, s, lam), (_, a2, s2, lam2) = pair
        out = nnx.merge(graph, weights, copy=True)(jnp.concatenate([z, z]), t, ctx)
        cond, unc = jnp.split(out, 2)
        eps = unc + guidance * (cond - unc)
        x0 = (z - s * eps) / a
        h = lam2 - lam
        r = prev_h / h
        d = jnp.where(
            prev_h == 0,
            x0,
            (1 + 1 / (2 * jnp.maximum(r, 1e-3))) * x0 - prev_x0 / (2 * jnp.maximum(r, 1e-3)),
        )
        z = (s2 / s) * z - a2 * jnp.expm1(-h) * d
        return (z, x0, h), None

    pairs = (tuple(grid[:-1].T), tuple(grid[1:].T))
    (z, _, _), _ = jax.lax.scan(solver_step, (z, jnp.zeros_like(z), jnp.float32(0)), pairs)

    # tiled decode: (LAT/TILE)^2 tiles, one at a time for all images
    k = LAT // TILE
    tiles = (
        z.reshape(N_IMG, k, TILE, k, TILE, 4)
        .transpose(1, 3, 0, 2, 4, 5)
        .reshape(k * k, N_IMG, TILE, TILE, 4)
    )
    px = jax.lax.map(pipe.vae, tiles / 0.13025)
    S = TILE * 8
    img = (
        px.reshape(k, k, N_IMG, S, S, 3).transpose(2, 0, 3, 1, 4, 5).reshape(N_IMG, k * S, k * S, 3)
    )
    return jnp.clip((img + 1) * 127.5, 0, 255).astype(jnp.uint8)


def make():
    graph, state = nnx.split(nnx.eval_shape(lambda: Pipeline(nnx.Rngs(0))))

    @jax.jit
    def endpoint(state, ids, neg_ids, guidance, key):
        return generate(nnx.merge(graph, state), ids, neg_ids, guidance, key)

    i = jax.ShapeDtypeStruct((N_IMG, TXT_LEN), jnp.int32)
    return endpoint, (
        state,
        i,
        i,
        jax.ShapeDtypeStruct((), jnp.float32),
        jax.ShapeDtypeStruct((2,), jnp.uint32),
    )
