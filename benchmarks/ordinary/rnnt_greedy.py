TRUTH = """
# rnnt_greedy - RNN-T speech recognition, LSTM encoder, greedy transducer search; flax.linen, inference only, one device, f32

1. Order: per-utterance mean/variance normalisation of 16 x 1200 x 80 log-mels -> frame stacking by 2 (600 steps) -> **encoder: 2 LSTM layers at 600 steps** (hidden 1536, projection 640, LayerNorm) -> time reduction x2 (300 steps) -> **6 LSTM layers at 300 steps** -> initial prediction-network step on blank -> **greedy search: loop over 300 frames** { **inner while, up to 4 symbols per frame (data dependent)** { joint network (two 640 projections, tanh, 4096 outputs), log-softmax, argmax; prediction network step (embedding 320, 2 LSTM cells of 1024, projection 640); keep the new state only in rows which emitted; append token/time/score } } -> tokens, times, confidence.
2. Work: encoder ~1.36 TF (2 layers at 600 steps about 36%, 6 at 300 about 64%); one inner search iteration 0.58 GF (prediction network 81%, joint 19%); at the least 300 of them = 0.17 TF, at most 1200 = 0.69 TF. So encoder 66-89%. In an LSTM layer the recurrent product [16,1536]x[1536,6144] runs once a time step; the input product may also be in the loop (OptimizedLSTMCell inside nn.RNN computes both per step). Projection ~6%.
3. Loops: 8 time scans: 2 x 600 trips, 6 x 300 trips (each one layer; 8 separate loops in sequence); frame scan 300 trips with nested while <= 4.
4. No mesh. No backward.
5. First picture: normalise -> LSTM x2 (600 steps) -> time reduction -> LSTM x6 (300 steps) -> greedy search: 300 frames x up to 4 { joint -> prediction network }.
6. Arrows: encoder frames -> search loop; LSTM state around each loop; (prediction state, pred vector, hypothesis) around the frame and symbol loops; emitted token -> prediction network.
7. Should not stand out: length masks / seq_lengths selects, scatter of tokens to buffers, where_rows.
8. Typically wrong: the LSTM loops' trip count read as number of layers ("x600 layers"); two pre-layers and six post-layers merged; inner while counted once; search called "decoder transformer" or beam; the prediction step outside the loop seen as another network; gates (sigmoid/tanh) overweighted.
"""

"""Offline batch transcription with an LSTM RNN-T (the LibriSpeech "large" shape), greedy search."""
import flax.linen as nn
import jax
import jax.numpy as jnp
from jax import lax

BATCH, FRAMES, MELS = 16, 1200, 80
ENC_HIDDEN, ENC_PROJ = 1536, 640
PRED_HIDDEN, JOINT = 1024, 640
WORDPIECES = 4096
BLANK = 0
MAX_SYMBOLS_PER_FRAME = 4
MAX_TOKENS = 256


class ProjectedLSTM(nn.Module):
    hidden: int
    proj: int

    @nn.compact
    def __call__(self, x, lengths):
        y = nn.RNN(nn.OptimizedLSTMCell(self.hidden), name="lstm")(x, seq_lengths=lengths)
        y = nn.Dense(self.proj, name="proj")(y)
        return nn.LayerNorm(name="norm")(y)


class Encoder(nn.Module):
    """2 layers at 20 ms, time reduction x2, 6 layers at 40 ms."""

    @nn.compact
    def __call__(self, feats, lengths):
        b, t, m = feats.shape
        x = feats.reshape(b, t // 2, 2 * m)  # stack two 10 ms frames
        lengths = lengths // 2
        for i in range(2):
            x = ProjectedLSTM(ENC_HIDDEN, ENC_PROJ, name=f"pre_{i}")(x, lengths)
        x = x.reshape(b, t // 4, 2 * ENC_PROJ)
        lengths = lengths // 2
        for i in range(6):
            x = ProjectedLSTM(ENC_HIDDEN, ENC_PROJ, name=f"post_{i}")(x, lengths)
        return x, lengths


class Predictor(nn.Module):
    def setup(self):
        self.embed = nn.Embed(WORDPIECES, 320)
        self.cells = [nn.OptimizedLSTMCell(PRED_HIDDEN) for _ in range(2)]
        self.proj = nn.Dense(ENC_PROJ)

    def __call__(self, states, token):
        x = self.embed(token)
        new = []
        for cell, s in zip(self.cells, states):
            s, x = cell(s, x)
            new.append(s)
        return tuple(new), self.proj(x)


class Joiner(nn.Module):
    @nn.compact
    def __call__(self, enc, pred):
        h = jnp.tanh(
            nn.Dense(JOINT, name="enc")(enc) + nn.Dense(JOINT, use_bias=False, name="pred")(pred)
        )
        return nn.Dense(WORDPIECES, name="out")(h)


class Transducer(nn.Module):
    def setup(self):
        self.encoder, self.predictor, self.joiner = Encoder(), Predictor(), Joiner()

    def encode(self, feats, lengths):
        return self.encoder(feats, lengths)

    def predict(self, states, token):
        return self.predictor(states, token)

    def join(self, enc, pred):
        return self.joiner(enc, pred)

    def __call__(self, feats, lengths, states, token):
        enc, _ = self.encode(feats, lengths)
        _, pred = self.predict(states, token)
        return self.join(enc[:, 0], pred)


model = Transducer()


def zero_states(b=BATCH):
    z = jnp.zeros((b, PRED_HIDDEN))
    return ((z, z), (z, z))


def cmvn(feats, lengths):
    """per-utterance mean / variance normalisation over the valid frames"""
    valid = (jnp.arange(FRAMES)[None] < lengths[:, None]).astype(jnp.float32)[..., None]
    n = valid.sum(1, keepdims=True)
    mean = (feats * valid).sum(1, keepdims=True) / n
    var = (jnp.square(feats - mean) * valid).sum(1, keepdims=True) / n
    return (feats - mean) * lax.rsqrt(var + 1e-5) * valid


def where_rows(mask, new, old):
    return jax.tree.map(lambda a, b: jnp.where(mask[:, None], a, b), new, old)


def transcribe(variables, feats, lengths):
    enc, enc_len = model.apply(variables, cmvn(feats, lengths), lengths, method="encode")

    states, pred = model.apply(
        variables, zero_states(), jnp.full((BATCH,), BLANK), method="predict"
    )
    hyp = {
        "tokens": jnp.zeros((BATCH, MAX_TOKENS), jnp.int32),
        "frame": jnp.zeros((BATCH, MAX_TOKENS), jnp.int32),
        "n": jnp.zeros((BATCH,), jnp.int32),
        "score": jnp.zeros((BATCH,)),
    }

    def per_frame(carry, xs):
        t, frame = xs
        alive = t < enc_len

        def emitting(c):
            count, active, *_ = c
            return (count < MAX_SYMBOLS_PER_FRAME) & active.any()

        def emit(c):
            count, active, states, pred, hyp = c
            logp = jax.nn.log_softmax(model.apply(variables, frame, pred, method="join"))
            token = logp.argmax(-1)
            best = logp.max(-1)
            emits = active & (token != BLANK) & (hyp["n"] < MAX_TOKENS)
            new_states, new_pred = model.apply(variables, states, token, method="predict")
            states = where_rows(emits, new_states, states)
            pred = where_rows(emits, new_pred, pred)
            rows, slot = jnp.arange(BATCH), jnp.minimum(hyp["n"], MAX_TOKENS - 1)
            put = lambda buf, v: buf.at[rows, slot].set(jnp.where(emits, v, buf[rows, slot]))
            hyp = {
                "tokens": put(hyp["tokens"], token),
                "frame": put(hyp["frame"], t),
                "n": hyp["n"] + emits,
                "score": hyp["score"] + jnp.where(active, best, 0.0),
            }
            return count + 1, emits, states, pred, hyp

        _, _, *carry = lax.while_loop(emitting, emit, (0, alive, *carry))
        return tuple(carry), None

    ts = jnp.arange(enc.shape[1])
    (_, _, hyp), _ = lax.scan(per_frame, (states, pred, hyp), (ts, enc.swapaxes(0, 1)))
    confidence = jnp.exp(hyp["score"] / jnp.maximum(enc_len + hyp["n"], 1))
    return hyp["tokens"], hyp["frame"] * 0.04, hyp["n"], confidence


def make():
    feats = jax.ShapeDtypeStruct((BATCH, FRAMES, MELS), jnp.float32)
    lengths = jax.ShapeDtypeStruct((BATCH,), jnp.int32)
    token = jax.ShapeDtypeStruct((BATCH,), jnp.int32)
    key = jax.ShapeDtypeStruct((2,), jnp.uint32)
    variables = jax.eval_shape(model.init, key, feats, lengths, jax.eval_shape(zero_states), token)
    return transcribe, (variables, feats, lengths)
