TRUTH = """
# musicgen_gen - MusicGen-small text-to-music inference (10 s, 4 clips); flax.nnx, one device, bf16

1. Order: **T5 encoder: 12 layers** (unrolled; self-attention with relative bias, relu MLP) on 4 x 64 text tokens -> projection 768->1024, unconditional half (zeros) appended: batch 8 -> **cross-attention memories: small loop x24** (k/v of the text once per layer) -> **generation loop x503** (500 frames + delay 3) { sum of 4 code embeddings + sinusoidal position; **decoder layers: loop x24** { causal self-attention with KV cache (write 1 position, read 503), cross-attention to the text memory, GELU MLP 1024-4096-1024 }; norm; 4 heads of 2048; classifier-free guidance; top-k 250 + categorical sampling; delay pattern } -> undo the delay -> **EnCodec decoder**: codebook lookup + sum, conv k7 128->1024, **2-layer LSTM (each a loop x500)** + skip, **4 upsampling stages** (x8, x5, x4, x4: transposed conv + residual unit), last conv -> waveform 4 x 320000.
2. Work ~3.5 TF. Generation loop ~90% (3.1 TF: 503 x 24 layers; MLP 57%, self-attention projections 29%, cross 14% of the layer weights; cache reading ~6% of FLOPs), EnCodec decoder ~9% (0.31 TF; LSTM 22% of it), T5 ~1%, memories <1%. By time the generation loop dominates (it reads ~360 M weights + caches at each step).
3. Loops: memories x24; generation x503 with layers x24 inside; LSTM 1 x500, LSTM 2 x500. T5 unrolled 12.
4. No mesh.
5. First picture: text -> T5 -> k/v memory -> [loop x503: embed codes -> 24 x (self-attention+cache, cross-attention, MLP) -> heads -> CFG + sampling] -> EnCodec decoder (LSTM, upsampling) -> audio.
6. Arrows: codes fed back around the loop; KV caches carried (24 x 8 x 503); memories constant into the loop; RNG key.
7. Should not stand out: relative-position buckets, key splitting, masks, delay bookkeeping, concatenations for CFG.
8. Typically wrong: taken for training (there is no backward, no optimiser); 12 T5 layers and 24 decoder layers merged; LSTM loops unnamed or merged with generation; top-k sort drawn as the main thing; the 4 upsampling stages shown as "4 equal layers" though widths differ.
"""

"""Text-to-music generation, MusicGen-small: T5 text encoder, codebook LM with delay pattern and
classifier-free guidance, EnCodec decoder to a 32 kHz waveform. flax.nnx, one device, bf16 weights."""
import jax
import jax.numpy as jnp
from flax import nnx

BATCH, TEXT, FRAMES = 4, 64, 500
K, CODES = 4, 2048
D, HEADS, FF, LAYERS = 1024, 16, 4096, 24
STEPS = FRAMES + K - 1
T5_D, T5_HEADS, T5_FF, T5_LAYERS, T5_VOCAB = 768, 12, 3072, 12, 32128
CFG, TOPK, TEMP = 3.0, 250, 1.0
BF = jnp.bfloat16


def linear(i, o, rngs, bias=False):
    return nnx.Linear(i, o, use_bias=bias, dtype=BF, param_dtype=BF, rngs=rngs)


def stack(cls, n, rngs):
    @nnx.split_rngs(splits=n)
    @nnx.vmap(in_axes=0, out_axes=0)
    def build(r):
        return cls(r)

    return build(rngs)


class T5Layer(nnx.Module):
    def __init__(self, rngs):
        self.norm1 = nnx.RMSNorm(T5_D, dtype=BF, param_dtype=BF, rngs=rngs)
        self.norm2 = nnx.RMSNorm(T5_D, dtype=BF, param_dtype=BF, rngs=rngs)
        self.qkv = linear(T5_D, 3 * T5_D, rngs)
        self.out = linear(T5_D, T5_D, rngs)
        self.wi = linear(T5_D, T5_FF, rngs)
        self.wo = linear(T5_FF, T5_D, rngs)

    def __call__(self, x, bias):
        b, n, _ = x.shape
        q, k, v = jnp.split(self.qkv(self.norm1(x)).reshape(b, n, 3 * T5_HEADS, -1), 3, 2)
        s = jnp.einsum("bqhd,bkhd->bhqk", q, k).astype(jnp.float32) + bias  # T5: no scaling
        a = jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(s).astype(BF), v)
        x = x + self.out(a.reshape(b, n, T5_D))
        return x + self.wo(jax.nn.relu(self.wi(self.norm2(x))))


class T5Encoder(nnx.Module):
    def __init__(self, rngs):
        self.embed = nnx.Embed(T5_VOCAB, T5_D, dtype=BF, param_dtype=BF, rngs=rngs)
        self.rel = nnx.Embed(32, T5_HEADS, rngs=rngs)
        self.layers = nnx.List([T5Layer(rngs) for _ in range(T5_LAYERS)])
        self.norm = nnx.RMSNorm(T5_D, dtype=BF, param_dtype=BF, rngs=rngs)

    def __call__(self, ids, mask):
        rel = jnp.arange(TEXT)[None] - jnp.arange(TEXT)[:, None]
        n = jnp.abs(rel)
        large = 8 + (jnp.log(jnp.maximum(n, 1) / 8.0) / jnp.log(128 / 8.0) * 8).astype(jnp.int32)
        bucket = jnp.where(rel > 0, 16, 0) + jnp.where(n < 8, n, jnp.minimum(large, 15))
        bias = self.rel(bucket).transpose(2, 0, 1)[None] + jnp.where(mask, 0.0, -1e9)[:, None, None]
        x = self.embed(ids)
        for layer in self.layers:
            x = layer(x, bias)
        return self.norm(x)


class DecoderLayer(nnx.Module):
    def __init__(self, rngs):
        self.n1, self.n2, self.n3 = (
            nnx.LayerNorm(D, dtype=BF, param_dtype=BF, rngs=rngs) for _ in range(3)
        )
        self.qkv, self.o = linear(D, 3 * D, rngs), linear(D, D, rngs)
        self.xq, self.xkv, self.xo = linear(D, D, rngs), linear(D, 2 * D, rngs), linear(D, D, rngs)
        self.up, self.down = linear(D, FF, rngs), linear(FF, D, rngs)

    def memory(self, text):
        return self.xkv(text).reshape(*text.shape[:2], 2 * HEADS, -1)

    def __call__(self, x, cache, mem, pos, text_mask):
        b = x.shape[0]
        q, kv = jnp.split(self.qkv(self.n1(x)).reshape(b, 3 * HEADS, -1), [HEADS], 1)
        cache = jax.lax.dynamic_update_slice(cache, kv[:, None], (0, pos, 0, 0))
        seen = jnp.arange(STEPS) <= pos
        x = x + self.o(attend(q, cache, seen[None, None]).reshape(b, D))
        q = self.xq(self.n2(x)).reshape(b, HEADS, -1)
        x = x + self.xo(attend(q, mem, text_mask[:, None]).reshape(b, D))
        return x + self.down(jax.nn.gelu(self.up(self.n3(x)))), cache


def attend(q, kv, mask):
    k, v = jnp.split(kv, 2, 2)
    s = jnp.einsum("bhd,bkhd->bhk", q, k).astype(jnp.float32) / q.shape[-1] ** 0.5
    return jnp.einsum("bhk,bkhd->bhd", jax.nn.softmax(jnp.where(mask, s, -1e9)).astype(BF), v)


class Seanet(nnx.Module):
    """EnCodec's decoder: conv, 2-layer LSTM, four transposed convolutions with a residual unit each"""

    def __init__(self, rngs):
        conv = lambda i, o, k: nnx.Conv(i, o, (k,), padding="CAUSAL", rngs=rngs)
        self.codebooks = nnx.Param(jnp.zeros((K, CODES, 128)))
        self.first = conv(128, 1024, 7)
        self.lstm = nnx.List([nnx.OptimizedLSTMCell(1024, 1024, rngs=rngs) for _ in range(2)])
        ch, ups, res = 1024, [], []
        for r in (8, 5, 4, 4):
            ups.append(nnx.ConvTranspose(ch, ch // 2, (2 * r,), strides=(r,), rngs=rngs))
            ch //= 2
            res.append(nnx.List([conv(ch, ch // 2, 3), conv(ch // 2, ch, 1)]))
        self.ups, self.res = nnx.List(ups), nnx.List(res)
        self.last = conv(ch, 1, 7)

    def __call__(self, codes):  # (b, K, frames)
        z = sum(self.codebooks[...][k][codes[:, k]] for k in range(K))
        x = self.first(z)
        y = x
        for cell in self.lstm:
            zero = jnp.zeros((BATCH, 1024))
            _, y = jax.lax.scan(lambda c, u: cell(c, u), (zero, zero), y.swapaxes(0, 1))
            y = y.swapaxes(0, 1)
        x = x + y
        for up, (c3, c1) in zip(self.ups, self.res):
            x = up(jax.nn.elu(x))
            x = x + c1(jax.nn.elu(c3(jax.nn.elu(x))))
        return jnp.tanh(self.last(jax.nn.elu(x)))[..., 0]


class MusicGen(nnx.Module):
    def __init__(self, rngs):
        self.t5 = T5Encoder(rngs)
        self.text_proj = linear(T5_D, D, rngs, bias=True)
        self.embed = nnx.List(
            [nnx.Embed(CODES + 1, D, dtype=BF, param_dtype=BF, rngs=rngs) for _ in range(K)]
        )
        self.layers = stack(DecoderLayer, LAYERS, rngs)
        self.norm = nnx.LayerNorm(D, dtype=BF, param_dtype=BF, rngs=rngs)
        self.heads = nnx.List([linear(D, CODES, rngs) for _ in range(K)])
        self.codec = Seanet(rngs)


def sinusoid(pos):
    a = pos / 10000.0 ** (jnp.arange(D // 2) / (D // 2))
    return jnp.concatenate([jnp.cos(a), jnp.sin(a)]).astype(BF)


def generate(model, ids, mask, key):
    text = model.text_proj(model.t5(ids, mask)) * mask[..., None]
    text = jnp.concatenate([text, jnp.zeros_like(text)])  # second half: unconditional
    tmask = jnp.concatenate([mask, jnp.ones_like(mask)])
    graph, weights = nnx.split(model.layers)
    mems = jax.lax.map(lambda w: nnx.merge(graph, w).memory(text), weights)
    caches = jnp.zeros((LAYERS, 2 * BATCH, STEPS, 2 * HEADS, D // HEADS), BF)
    book = jnp.arange(K)

    def step(carry, t):
        codes, caches, key = carry
        key, sub = jax.random.split(key)
        x = sum(e(codes[:, k]) for k, e in enumerate(model.embed))
        x = jnp.concatenate([x, x]) + sinusoid(t)

        def layer(x, per):
            w, cache, mem = per
            return nnx.merge(graph, w)(x, cache, mem, t, tmask)

        x, caches = jax.lax.scan(layer, x, (weights, caches, mems))
        x = model.norm(x)
        logits = jnp.stack([h(x) for h in model.heads], 1).astype(jnp.float32)
        cond, uncond = jnp.split(logits, 2)
        logits = uncond + CFG * (cond - uncond)
        top, idx = jax.lax.top_k(logits / TEMP, TOPK)
        pick = jax.random.categorical(sub, top)
        new = jnp.take_along_axis(idx, pick[..., None], -1)[..., 0]
        new = jnp.where((t >= book) & (t < FRAMES + book), new, CODES)  # delay pattern
        return (new, caches, key), new

    start = jnp.full((BATCH, K), CODES, jnp.int32)
    _, out = jax.lax.scan(step, (start, caches, key), jnp.arange(STEPS))
    codes = jnp.stack([out[k : k + FRAMES, :, k] for k in range(K)]).transpose(2, 0, 1)
    return model.codec(codes), codes


def make():
    abstract = nnx.eval_shape(lambda: MusicGen(nnx.Rngs(0)))
    graphdef, state = nnx.split(abstract)
    f = jax.jit(lambda state, ids, mask, key: generate(nnx.merge(graphdef, state), ids, mask, key))
    return f, (
        state,
        jax.ShapeDtypeStruct((BATCH, TEXT), jnp.int32),
        jax.ShapeDtypeStruct((BATCH, TEXT), jnp.bool_),
        jax.ShapeDtypeStruct((2,), jnp.uint32),
    )
