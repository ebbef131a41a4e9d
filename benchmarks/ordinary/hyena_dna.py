TRUTH = """
# hyena_dna — HyenaDNA LM training step (flax nnx; nnx.scan + remat over 8 layers), FSDP over 8 devices (auto sharding)

## 1 Tree of parts
train_step
1. **forward** (16 x 4096 nucleotides, dim 512)
   - embedding (16 x 512)
   - **blocks: loop x8** { norm1, **HyenaOperator** { in_proj (512->1536), short conv (3 taps), **SineMLP filter** (positions -> 2x512x4096 implicit filter), order-2 recurrence: 2 x [ **fft_conv** (rfft 8192 of u and of k, product, irfft), gate ], out_proj }, norm2, **MLP** (512-2048-512) }
   - norm_f, head (16 logits)
2. **masked cross entropy**
3. **backward**
   - head; **blocks backward: loop x8** { recompute the block (remat), gradients: MLP, HyenaOperator (FFTs again), norms } ; embedding scatter
4. **clip_by_global_norm + adamw**

FSDP: all-gather of weights (in_proj, out_proj, fc1, fc2 ...) in each turn forward, again in backward/remat; reduce-scatter (or all-reduce) of gradients in the backward loop.

## 2 Where the work goes (12.4 TF)
forward 27%, backward incl. recomputation 73%. By part (all passes): MLP ~63%, Hyena projections ~32%, FFT convolutions ~2% by FLOPs (but many bytes), filter MLP ~1%, optimiser small. Head/embed negligible (vocab 16).

## 3 First picture
embed -> blocks x8 { norm1, hyena { in_proj, short_conv, filter, fft_conv x2, gate, out_proj }, norm2, mlp } -> head -> loss -> blocks backward x8 { recompute, hyena bwd, mlp bwd } -> clip + adamw; with FSDP all-gathers in the loops.

## 4 Misleading
- "attention": there is none; the mixer is FFT convolution.
- FFTs left out because of their low FLOPs, or shown as a nameless fft / custom-call; filter generation placed outside the hyena operator.
- The filter does not depend on tokens: XLA/partitioner may compute it replicated on each device (8x redundant).
- Head drawn large (as in normal LMs): here it is nothing.
- FFT over sharded batch should be local; if a partitioner gathers the batch for FFT, that communication is the most important thing to show.
"""

"""HyenaDNA-style nucleotide LM, Flax NNX.  Layers stacked with nnx.vmap and run with nnx.scan + remat,
weights FSDP-sharded over 8 devices, batch over the same axis."""
import math

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

VOCAB, DIM, LAYERS, ORDER = 16, 512, 8, 2
SEQ, BATCH = 4096, 16
FILTER_WIDTH, POS_FREQS = 64, 16


class SineMLP(nnx.Module):
    """implicit long filter: positions -> [ORDER, DIM, SEQ]"""

    def __init__(self, *, rngs):
        self.l1 = nnx.Linear(2 * POS_FREQS + 1, FILTER_WIDTH, rngs=rngs)
        self.l2 = nnx.Linear(FILTER_WIDTH, FILTER_WIDTH, rngs=rngs)
        self.out = nnx.Linear(FILTER_WIDTH, ORDER * DIM, use_bias=False, rngs=rngs)
        self.decay = nnx.Param(
            jnp.tile(jnp.linspace(math.log(3.0), math.log(30.0), DIM), (ORDER, 1))
        )
        self.freq = nnx.Param(jnp.full((FILTER_WIDTH,), 10.0))

    def __call__(self, length):
        t = jnp.linspace(0, 1, length)[:, None]
        w = 2 * jnp.pi * jnp.arange(1, POS_FREQS + 1) * t
        z = jnp.concatenate([t, jnp.sin(w), jnp.cos(w)], -1)
        h = jnp.sin(self.freq[...] * self.l1(z))
        h = jnp.sin(self.freq[...] * self.l2(h))
        h = self.out(h).reshape(length, ORDER, DIM).transpose(1, 2, 0)
        return h * jnp.exp(-jnp.exp(self.decay[...])[..., None] * t[:, 0])


def fft_conv(u, k, bias):
    """causal convolution over the last axis through FFT of twice the length"""
    n = 2 * u.shape[-1]
    y = jnp.fft.irfft(jnp.fft.rfft(u, n=n) * jnp.fft.rfft(k, n=n), n=n)[..., : u.shape[-1]]
    return y + u * bias[:, None]


class HyenaOperator(nnx.Module):
    def __init__(self, *, rngs):
        self.in_proj = nnx.Linear(DIM, (ORDER + 1) * DIM, dtype=jnp.bfloat16, rngs=rngs)
        self.short = nnx.Param(0.3 * jax.random.normal(rngs.params(), (3, (ORDER + 1) * DIM)))
        self.filter = SineMLP(rngs=rngs)
        self.bias = nnx.Param(jnp.zeros((ORDER, DIM)))
        self.out_proj = nnx.Linear(DIM, DIM, dtype=jnp.bfloat16, rngs=rngs)

    def short_conv(self, x):
        w = self.short[...].astype(x.dtype)
        pad = jnp.pad(x, ((0, 0), (2, 0), (0, 0)))
        return sum(pad[:, i : i + x.shape[1]] * w[i] for i in range(3))

    def __call__(self, x):
        z = self.short_conv(self.in_proj(x)).astype(jnp.float32)
        *gates, v = jnp.split(z.transpose(0, 2, 1), ORDER + 1, axis=1)
        k = self.filter(x.shape[1])
        for i, g in enumerate(gates):
            v = g * fft_conv(v, k[i], self.bias[i])
        return self.out_proj(v.transpose(0, 2, 1).astype(x.dtype))


class MLP(nnx.Module):
    def __init__(self, *, rngs):
        self.fc1 = nnx.Linear(DIM, 4 * DIM, dtype=jnp.bfloat16, rngs=rngs)
        self.fc2 = nnx.Linear(4 * DIM, DIM, dtype=jnp.bfloat16, rngs=rngs)

    def __call__(self, x):
        return self.fc2(nnx.gelu(self.fc1(x)))


class Block(nnx.Module):
    def __init__(self, rngs):
        self.norm1, self.norm2 = nnx.LayerNorm(DIM, rngs=rngs), nnx.LayerNorm(DIM, rngs=rngs)
        self.mixer, self.mlp = HyenaOperator(rngs=rngs), MLP(rngs=rngs)

    def __call__(self, x):
        x = x + self.mixer(self.norm1(x))
        return x + self.mlp(self.norm2(x)).astype(x.dtype)


class HyenaLM(nnx.Module):
    def __init__(self, rngs):
        self.embed = nnx.Embed(VOCAB, DIM, rngs=rngs)

        @nnx.split_rngs(splits=LAYERS)
        @nnx.vmap(in_axes=0, out_axes=0)
        def make(rngs):
            return Block(rngs)

        self.blocks = make(rngs)
        self.norm_f = nnx.LayerNorm(DIM, rngs=rngs)
        self.head = nnx.Linear(DIM, VOCAB, rngs=rngs)

    def __call__(self, tokens):
        x = self.embed(tokens).astype(jnp.bfloat16)

        @nnx.scan(in_axes=(nnx.Carry, 0), out_axes=nnx.Carry)
        @nnx.remat
        def stack(x, block):
            return block(x).astype(jnp.bfloat16)

        x = stack(x, self.blocks)
        return self.head(self.norm_f(x.astype(jnp.float32)))


def loss_fn(model, tokens, mask):
    logits = model(tokens[:, :-1])
    ce = optax.softmax_cross_entropy_with_integer_labels(logits, tokens[:, 1:])
    return jnp.sum(ce * mask[:, 1:]) / jnp.sum(mask[:, 1:])


def fsdp_spec(a):
    """shard the largest dimension that divides by 8, leave small ones alone"""
    if a.size < 2**14:
        return P()
    start = 1 if a.ndim > 2 or (a.ndim == 2 and a.shape[0] == LAYERS) else 0
    dims = [i for i in range(start, a.ndim) if a.shape[i] % 8 == 0]
    if not dims:
        return P()
    best = max(dims, key=lambda i: a.shape[i])
    return P(*["fsdp" if i == best else None for i in range(a.ndim)])


def build(devices=None):
    devices = np.array(jax.devices() if devices is None else devices)[:8]
    mesh = Mesh(devices, ("fsdp",))
    tx = optax.chain(
        optax.clip_by_global_norm(1.0),
        optax.adamw(optax.warmup_cosine_decay_schedule(0, 6e-4, 1000, 50_000), weight_decay=0.1),
    )
    hold = {}

    def create():
        m = HyenaLM(nnx.Rngs(0))
        hold["graph"], st = nnx.split((m, nnx.Optimizer(m, tx, wrt=nnx.Param)))
        return st

    state = jax.eval_shape(create)
    put = lambda a: jax.ShapeDtypeStruct(
        a.shape, a.dtype, sharding=NamedSharding(mesh, fsdp_spec(a))
    )
    state = jax.tree.map(put, state)

    def train_step(state, tokens, mask):
        model, opt = nnx.merge(hold["graph"], state)
        loss, grads = nnx.value_and_grad(loss_fn)(model, tokens, mask)
        opt.update(model, grads)
        return nnx.state((model, opt)), loss

    S = lambda d: jax.ShapeDtypeStruct((BATCH, SEQ + 1), d, sharding=NamedSharding(mesh, P("fsdp")))
    return jax.jit(train_step, donate_argnums=0), (state, S(jnp.int32), S(jnp.float32))
