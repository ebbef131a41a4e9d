TRUTH = """
# tacotron2_ljs - Tacotron 2 speech-synthesis training step, teacher forced; dm-haiku, optax Adam, one device, f32

1. Order: character embedding -> **encoder**: 3 x (conv k5 512, batch norm, relu, dropout) -> **BiLSTM 256+256 (two loops x160, forward and reversed)** -> memory projection (512->128) ; **prenet** on the shifted mels (2 x linear 256 relu dropout, all 600 frames at once) -> **decoder loop x600** { attention LSTM 1024; location-sensitive attention over 160 characters (location conv k31 on previous + cumulative alignment, query, tanh energy, softmax, context); decoder LSTM 1024; mel projection + stop gate } -> **postnet: 5 x (conv k5, batch norm, tanh, dropout)**, last without tanh, residual -> masked MSE (before + after postnet) + gate BCE -> backward: postnet, **decoder loop x600 reversed**, prenet, **BiLSTM 2 loops x160**, convs, embedding -> clip 1.0, L2, Adam with decaying rate; batch-norm running averages.
2. Work ~2.9 TF for batch 32 (fwd 1/3, bwd 2/3): decoder ~77% (decoder LSTM 55%, attention LSTM 38%, location attention ~6% of it), postnet ~17%, encoder ~6% (convs 70% of it). In time the decoder loops (600 sequential steps each way) dominate even more.
3. Loops: BiLSTM 2 x 160 forward, 2 x 160 backward; decoder 600 forward, 600 backward. Six loops. (Weight gradients are either accumulated in the backward loop or done as one matmul after it.)
4. No mesh.
5. First picture: text -> conv x3 -> BiLSTM -> [decoder x600: attention LSTM, location attention, decoder LSTM, projections] -> postnet x5 -> losses -> backward of each -> Adam.
6. Arrows: memory + its projection constant into the decoder loop (gradients summed around the backward loop); the saved states of 600 steps to the backward loop; mels to prenet and to both losses; batch-norm statistics out.
7. Should not stand out: dropout masks / keys, masks from lengths, padding, metric "focus", schedule.
8. Typically wrong: the four identical-size loops of the BiLSTM mistaken for the decoder; RNG in the decoder loop drawn as a stage; encoder convs and postnet convs folded; postnet taken as part of the encoder.
"""

"""Tacotron 2 on LJSpeech, teacher forced. dm-haiku + optax, one device."""
import haiku as hk
import jax
import jax.numpy as jnp
import optax

B, CHARS, T, MELS = 32, 160, 600, 80
VOCAB = 148


class ConvBN(hk.Module):
    def __init__(self, channels, act, drop=0.5, name=None):
        super().__init__(name=name)
        self.channels, self.act, self.drop = channels, act, drop

    def __call__(self, x, train):
        x = hk.Conv1D(self.channels, 5)(x)
        x = hk.BatchNorm(True, True, 0.9)(x, is_training=train)
        x = self.act(x)
        return hk.dropout(hk.next_rng_key(), self.drop, x) if train else x


class Encoder(hk.Module):
    def __call__(self, text, mask, train):
        x = hk.Embed(VOCAB, 512)(text)
        for _ in range(3):
            x = ConvBN(512, jax.nn.relu)(x, train)
        x = x * mask[..., None]
        fwd, bwd = hk.LSTM(256, name="fwd"), hk.LSTM(256, name="bwd")
        xt = x.swapaxes(0, 1)
        hf, _ = hk.dynamic_unroll(fwd, xt, fwd.initial_state(B))
        hb, _ = hk.dynamic_unroll(bwd, xt, bwd.initial_state(B), reverse=True)
        return jnp.concatenate([hf, hb], -1).swapaxes(0, 1)


class LocationAttention(hk.Module):
    """Chorowski et al.: content + convolved previous and cumulative alignments"""

    def __call__(self, query, memory, processed, mask, prev, cum):
        q = hk.Linear(128, with_bias=False, name="query")(query)[:, None]
        loc = hk.Conv1D(32, 31, with_bias=False, name="loc_conv")(jnp.stack([prev, cum], -1))
        loc = hk.Linear(128, with_bias=False, name="loc_dense")(loc)
        e = hk.Linear(1, with_bias=False, name="v")(jnp.tanh(q + processed + loc))[..., 0]
        a = jax.nn.softmax(jnp.where(mask, e, -1e9))
        return jnp.einsum("bn,bnd->bd", a, memory), a


class DecoderCell(hk.RNNCore):
    def __init__(self, memory, processed, mask, train, name="decoder_cell"):
        super().__init__(name=name)
        self.memory, self.processed, self.mask, self.train = memory, processed, mask, train
        self.att_rnn, self.dec_rnn = hk.LSTM(1024, name="att_rnn"), hk.LSTM(1024, name="dec_rnn")
        self.attention = LocationAttention(name="attention")

    def __call__(self, pre, state):
        att_s, dec_s, ctx, prev, cum = state
        h, att_s = self.att_rnn(jnp.concatenate([pre, ctx], -1), att_s)
        if self.train:
            h = hk.dropout(hk.next_rng_key(), 0.1, h)
        ctx, a = self.attention(h, self.memory, self.processed, self.mask, prev, cum)
        d, dec_s = self.dec_rnn(jnp.concatenate([h, ctx], -1), dec_s)
        if self.train:
            d = hk.dropout(hk.next_rng_key(), 0.1, d)
        dc = jnp.concatenate([d, ctx], -1)
        mel = hk.Linear(MELS, name="mel")(dc)
        gate = hk.Linear(1, name="gate")(dc)[:, 0]
        return (mel, gate, a), (att_s, dec_s, ctx, a, cum + a)

    def initial_state(self, n):
        z = jnp.zeros((n, CHARS))
        return (
            self.att_rnn.initial_state(n),
            self.dec_rnn.initial_state(n),
            jnp.zeros((n, 512)),
            z,
            z,
        )


def prenet(x):
    for _ in range(2):
        x = jax.nn.relu(hk.Linear(256, with_bias=False)(x))
        x = hk.dropout(hk.next_rng_key(), 0.5, x)  # also at test time
    return x


def tacotron(text, text_mask, mel_in, train):
    memory = Encoder()(text, text_mask, train)
    processed = hk.Linear(128, with_bias=False, name="memory_layer")(memory)
    pre = prenet(mel_in)
    cell = DecoderCell(memory, processed, text_mask, train)
    (mel, gate, align), _ = hk.dynamic_unroll(cell, pre.swapaxes(0, 1), cell.initial_state(B))
    mel, gate = mel.swapaxes(0, 1), gate.swapaxes(0, 1)
    r = mel
    for _ in range(4):
        r = ConvBN(512, jnp.tanh, name="postnet")(r, train)
    r = ConvBN(MELS, lambda v: v, name="postnet_last")(r, train)
    return mel, mel + r, gate, align


net = hk.transform_with_state(tacotron)
lr = optax.exponential_decay(1e-3, 50_000, 0.1, end_value=1e-5)
tx = optax.chain(
    optax.clip_by_global_norm(1.0), optax.add_decayed_weights(1e-6), optax.adam(lr, eps=1e-6)
)


def loss_fn(params, state, rng, batch):
    mels = batch["mel"]
    mel_in = jnp.pad(mels, ((0, 0), (1, 0), (0, 0)))[:, :-1]
    frames = jnp.arange(T)[None] < batch["mel_len"][:, None]
    text_mask = jnp.arange(CHARS)[None] < batch["text_len"][:, None]
    (mel, post, gate, align), state = net.apply(
        params, state, rng, batch["text"], text_mask, mel_in, True
    )
    w = frames[..., None] / (frames.sum() * MELS)
    mse = (w * (jnp.square(mel - mels) + jnp.square(post - mels))).sum()
    stop = (jnp.arange(T)[None] >= batch["mel_len"][:, None] - 1).astype(jnp.float32)
    bce = optax.sigmoid_binary_cross_entropy(gate, stop).mean()
    return mse + bce, (state, {"mse": mse, "gate": bce, "focus": align.max(-1).mean()})


def train_step(params, state, opt, rng, batch):
    rng, sub = jax.random.split(rng)
    (_, (state, logs)), g = jax.value_and_grad(loss_fn, has_aux=True)(params, state, sub, batch)
    up, opt = tx.update(g, opt, params)
    return optax.apply_updates(params, up), state, opt, rng, logs


def make():
    S = jax.ShapeDtypeStruct
    rng = S((2,), jnp.uint32)
    batch = {
        "text": S((B, CHARS), jnp.int32),
        "text_len": S((B,), jnp.int32),
        "mel": S((B, T, MELS), jnp.float32),
        "mel_len": S((B,), jnp.int32),
    }
    params, state = jax.eval_shape(
        lambda k, t, m, x: net.init(k, t, m, x, True),
        rng,
        batch["text"],
        S((B, CHARS), jnp.bool_),
        batch["mel"],
    )
    opt = jax.eval_shape(tx.init, params)
    return jax.jit(train_step, donate_argnums=(0, 1, 2)), (params, state, opt, rng, batch)
