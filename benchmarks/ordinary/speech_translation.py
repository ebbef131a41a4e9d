"""Speech translation (English audio -> German text) with an auxiliary CTC loss on the transcript; flax.linen, data parallel over 8 devices by jit."""

TRUTH = """
IN ORDER
- `train_step`: log-mel features -> `subsample` (2 strided convs, 1024 -> 256 frames) -> `encoder` blocks 0..7 -> two losses:
  (a) `ctc_head` (10000) + CTC loss over the transcript (x0.3), (b) `decoder` blocks 0..5 on target tokens with cross attention to the encoder,
  `lm_head`, label-smoothed cross entropy (x0.7) -> backward -> gradient all-reduce -> optimiser (adam, inverse sqrt schedule)
COUNTS
- 8 encoder blocks (self attention, MLP), 6 decoder blocks (masked self attention, cross attention, MLP), unrolled, no layer loop
- the only loop: CTC's forward recursion over 256 frames (and its backward loop, 256)
ORDER / INDEPENDENCE
- CTC branch and decoder branch depend both on the encoder output, and not on each other; decoder's token embedding and first self attention
  are independent of the encoder; all 6 cross attention's k, v need the encoder's last output
- backward: encoder's backward waits for both branches
HEAVY
- encoder ~ half; decoder ~ 25 %; both vocabulary heads (512 x 10000: on 256 frames and on 64 tokens) are a visible part (~15-20 %); subsample convs small
COMMUNICATION
- data parallel over axis `data` (8): all-reduce of the gradients (~ 66 M parameters, f32, ~ 265 MB), one or more combined; nothing else but scalars
PERFORMANCE (deliberate flaw)
- everything is meant to be bf16, but the encoder adds the sinusoid table in f32 to bf16 features: the residual stream of the whole encoder, and every
  LayerNorm/residual is f32 from there on (dense layers cast back). The cross attention inputs are f32 too. Decoder stream is bf16
- attention in the encoder is written by hand without a cast, with f32 q, k, v (projections have no dtype): the encoder's matmuls are f32 x f32
- state is donated
"""
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

MESH = {"data": 8}
D, HEADS, VOCAB, BATCH, FRAMES, SRC, TGT = 512, 8, 10000, 64, 1024, 48, 64
bf16 = jnp.bfloat16


def sinusoids(n, d):
    ang = np.arange(n)[:, None] / 10000 ** (np.arange(0, d, 2) / d)
    return np.concatenate([np.sin(ang), np.cos(ang)], -1).astype(np.float32)


class Attention(nn.Module):
    @nn.compact
    def __call__(self, x, kv, mask=None):
        proj = lambda name, y: nn.DenseGeneral(
            (HEADS, D // HEADS), name=name, param_dtype=jnp.float32, dtype=y.dtype
        )(y)
        q, k, v = proj("q", x), proj("k", kv), proj("v", kv)
        s = jnp.einsum("bqhc,bkhc->bhqk", q, k) / (D // HEADS) ** 0.5
        if mask is not None:
            s = jnp.where(mask, s, -1e9)
        o = jnp.einsum("bhqk,bkhc->bqhc", jax.nn.softmax(s), v)
        return nn.DenseGeneral(D, axis=(-2, -1), name="o", dtype=x.dtype)(o)


class FeedForward(nn.Module):
    @nn.compact
    def __call__(self, x):
        h = nn.relu(nn.Dense(4 * D, dtype=x.dtype, name="wi")(x))
        return nn.Dense(D, dtype=x.dtype, name="wo")(h)


class EncoderBlock(nn.Module):
    @nn.compact
    def __call__(self, x, mask):
        y = nn.LayerNorm(dtype=x.dtype)(x)
        x = x + Attention(name="self_attn")(y, y, mask)
        return x + FeedForward(name="ffn")(nn.LayerNorm(dtype=x.dtype)(x))


class DecoderBlock(nn.Module):
    @nn.compact
    def __call__(self, x, memory, memory_mask):
        y = nn.LayerNorm(dtype=x.dtype)(x)
        x = x + Attention(name="self_attn")(y, y, nn.make_causal_mask(y[..., 0]))
        y = nn.LayerNorm(dtype=x.dtype)(x)
        x = x + Attention(name="cross_attn")(y, memory, memory_mask).astype(x.dtype)
        return x + FeedForward(name="ffn")(nn.LayerNorm(dtype=x.dtype)(x))


class Encoder(nn.Module):
    @nn.compact
    def __call__(self, mel, mel_len):
        x = mel.astype(bf16)
        for i in range(2):
            x = nn.gelu(nn.Conv(D, (3,), strides=(2,), dtype=bf16, name=f"subsample_{i}")(x))
        t = x.shape[1]
        x = x + sinusoids(t, D)
        mask = (jnp.arange(t) < mel_len[:, None] // 4)[:, None, None]
        for i in range(8):
            x = EncoderBlock(name=f"block_{i}")(x, mask)
        return nn.LayerNorm(name="norm")(x), mask


class Decoder(nn.Module):
    @nn.compact
    def __call__(self, tokens, memory, memory_mask):
        x = nn.Embed(VOCAB, D, dtype=bf16, name="embed")(tokens)
        x = x + sinusoids(tokens.shape[1], D).astype(bf16)
        for i in range(6):
            x = DecoderBlock(name=f"block_{i}")(x, memory, memory_mask)
        return nn.Dense(VOCAB, dtype=bf16, name="lm_head")(nn.LayerNorm(dtype=bf16, name="norm")(x))


class SpeechTranslator(nn.Module):
    def setup(self):
        self.encoder, self.decoder = Encoder(), Decoder()
        self.ctc_head = nn.Dense(VOCAB)

    def __call__(self, batch):
        memory, mask = self.encoder(batch["mel"], batch["mel_len"])
        return self.ctc_head(memory), self.decoder(batch["tgt"][:, :-1], memory, mask)


def losses(ctc_logits, st_logits, batch):
    t = ctc_logits.shape[1]
    frame_pad = (jnp.arange(t) >= batch["mel_len"][:, None] // 4).astype(jnp.float32)
    src_pad = (batch["src"] == 0).astype(jnp.float32)
    with jax.named_scope("ctc_loss"):
        ctc = optax.ctc_loss(ctc_logits, frame_pad, batch["src"], src_pad).mean()
    with jax.named_scope("translation_loss"):
        gold = batch["tgt"][:, 1:]
        logp = jax.nn.log_softmax(st_logits.astype(jnp.float32))
        nll = -jnp.take_along_axis(logp, gold[..., None], -1)[..., 0]
        nll = 0.9 * nll - 0.1 * logp.mean(-1)
        w = (gold != 0).astype(jnp.float32)
        st = jnp.sum(nll * w) / w.sum()
    return 0.3 * ctc + 0.7 * st, {"ctc": ctc, "st": st}


def make(mesh):
    model = SpeechTranslator()
    rate = lambda step: 2e-3 * jnp.minimum((step + 1) / 4000, jax.lax.rsqrt((step + 1) / 4000.0))
    tx = optax.adam(rate, b2=0.98, eps=1e-9)

    def train_step(params, opt_state, batch):
        loss_fn = lambda p: losses(*model.apply({"params": p}, batch), batch)
        (loss, logs), grads = jax.value_and_grad(loss_fn, has_aux=True)(params)
        updates, opt_state = tx.update(grads, opt_state)
        return optax.apply_updates(params, updates), opt_state, logs | {"loss": loss}

    rep, dp = NamedSharding(mesh, P()), NamedSharding(mesh, P("data"))
    S = lambda shape, dtype: jax.ShapeDtypeStruct(shape, dtype, sharding=dp)
    batch = {
        "mel": S((BATCH, FRAMES, 80), jnp.float32),
        "mel_len": S((BATCH,), jnp.int32),
        "src": S((BATCH, SRC), jnp.int32),
        "tgt": S((BATCH, TGT + 1), jnp.int32),
    }
    params = jax.eval_shape(lambda k, b: model.init(k, b)["params"], jax.random.key(0), batch)
    put = lambda t: jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=rep), t)
    step = jax.jit(train_step, donate_argnums=(0, 1), out_shardings=(rep, rep, rep))
    return step, (put(params), put(jax.eval_shape(tx.init, params)), batch)
