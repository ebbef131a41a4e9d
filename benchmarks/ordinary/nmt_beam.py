TRUTH = """
TOP-LEVEL, IN ORDER
- translate: `encode` the source sentence once -> tile/flat to beams -> `beam_search` while loop -> pick finished (or live) beams, best first
- encode: shared embedding + sinusoid positions, 4 encoder layers (self-attention, MLP), final layer norm
- cross-attention keys/values (`precompute_cross`) are projected once before the loop, for the 4 decoder layers
- one beam step: decoder on 1 token per beam (4 layers: cached self-attention, cross-attention, MLP) -> logits -> log_softmax -> add to live log-probs -> top-k of 2*beam candidates -> gather beams (sequences and KV cache) -> update live beams -> update finished beams with length penalty
COUNTS
- encoder: 4 layers unrolled; decoder: 4 layers unrolled, inside the loop
- one while loop, at most 47 steps (max length 48), can end early when no live beam can beat the worst finished one: trip count not static
- beam 4, candidates 8 per step; batch 8 -> 32 rows in the decoder
INDEPENDENT
- cross K/V of the 4 decoder layers are independent of each other
- inside a step, updating live beams and updating finished beams are independent of each other after the top-k
SHARES
- with 47 steps: decode loop ~85-90%, far more than the encoder; the logits matmul (vocab 12000 x 256) is the largest single part of a step (~45%); decoder layers the rest
- the encoder (8 x 48 tokens) plus cross K/V: ~10-15% of total if the loop is multiplied by 47; if body counted once the encoder dominates
MUST NOT BE SHOWN
- no backward, no optimizer, no loss, no sampling / randomness, no label smoothing, no collectives, no layer loop
"""
# Transformer translation with beam search (after the flax WMT example)
import flax
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

VOCAB, EMB, HEADS, MLP, LAYERS = 12000, 256, 4, 1024, 4
BEAM, MAX_LEN, SRC_LEN, BATCH = 4, 48, 48, 8
EOS_ID = 1
NEG_INF = np.array(-1.0e7)


def sinusoid(length, dim):
    pos = np.arange(length)[:, None]
    div = np.exp(np.arange(0, dim, 2) * -(np.log(10000.0) / dim))
    pe = np.zeros((length, dim), np.float32)
    pe[:, 0::2], pe[:, 1::2] = np.sin(pos * div), np.cos(pos * div)
    return pe


def dot_attention(q, k, v, mask):
    s = jnp.einsum("...qhd,...khd->...hqk", q, k) / np.sqrt(q.shape[-1])
    s = jnp.where(mask, s, -1e9)
    return jnp.einsum("...hqk,...khd->...qhd", nn.softmax(s), v)


class MlpBlock(nn.Module):
    def setup(self):
        self.wi, self.wo = nn.Dense(MLP), nn.Dense(EMB)

    def __call__(self, x):
        return self.wo(nn.relu(self.wi(x)))


class Attention(nn.Module):
    def setup(self):
        d = EMB // HEADS
        self.query, self.key, self.value = (
            nn.DenseGeneral((HEADS, d)),
            nn.DenseGeneral((HEADS, d)),
            nn.DenseGeneral((HEADS, d)),
        )
        self.out = nn.DenseGeneral(EMB, axis=(-2, -1))

    def kv(self, x):
        return self.key(x), self.value(x)

    def __call__(self, x, k, v, mask):
        return self.out(dot_attention(self.query(x), k, v, mask))


class EncoderLayer(nn.Module):
    def setup(self):
        self.ln1, self.ln2 = nn.LayerNorm(), nn.LayerNorm()
        self.self_attention, self.mlp = Attention(), MlpBlock()

    def __call__(self, x, mask):
        h = self.ln1(x)
        x = x + self.self_attention(h, *self.self_attention.kv(h), mask)
        return x + self.mlp(self.ln2(x))


class DecoderLayer(nn.Module):
    def setup(self):
        self.ln1, self.ln2, self.ln3 = nn.LayerNorm(), nn.LayerNorm(), nn.LayerNorm()
        self.self_attention, self.cross_attention, self.mlp = Attention(), Attention(), MlpBlock()

    def precompute_cross(self, enc):
        return self.cross_attention.kv(enc)

    def __call__(self, x, cache, cross, src_mask, i):
        h = self.ln1(x)
        k, v = self.self_attention.kv(h)
        ck = lax.dynamic_update_slice(cache[0], k, (0, i, 0, 0))
        cv = lax.dynamic_update_slice(cache[1], v, (0, i, 0, 0))
        mask = (jnp.arange(MAX_LEN) <= i)[None, None, None]
        x = x + self.self_attention(h, ck, cv, mask)
        x = x + self.cross_attention(self.ln2(x), *cross, src_mask)
        return x + self.mlp(self.ln3(x)), (ck, cv)


class Transformer(nn.Module):
    def setup(self):
        self.shared_embedding = nn.Embed(VOCAB, EMB)
        self.encoder = [EncoderLayer() for _ in range(LAYERS)]
        self.decoder = [DecoderLayer() for _ in range(LAYERS)]
        self.encoder_norm, self.decoder_norm = nn.LayerNorm(), nn.LayerNorm()

    def encode(self, src):
        x = self.shared_embedding(src) * np.sqrt(EMB) + sinusoid(SRC_LEN, EMB)
        mask = (src > 0)[:, None, None]
        for layer in self.encoder:
            x = layer(x, mask)
        return self.encoder_norm(x)

    def precompute_cross(self, enc):
        return [layer.precompute_cross(enc) for layer in self.decoder]

    def decode_step(self, tok, caches, cross, src_mask, i):
        x = self.shared_embedding(tok) * np.sqrt(EMB) + lax.dynamic_slice_in_dim(
            jnp.asarray(sinusoid(MAX_LEN, EMB)), i, 1
        )
        new = []
        for layer, c, kv in zip(self.decoder, caches, cross):
            x, c = layer(x, c, kv, src_mask, i)
            new.append(c)
        logits = self.shared_embedding.attend(self.decoder_norm(x)) / np.sqrt(EMB)
        return logits[:, 0], new

    def __call__(self, src, tok):
        enc = self.encode(src)
        z = jnp.zeros((src.shape[0], MAX_LEN, HEADS, EMB // HEADS))
        return self.decode_step(
            tok, [(z, z)] * LAYERS, self.precompute_cross(enc), (src > 0)[:, None, None], 0
        )


def brevity_penalty(alpha, length):
    return jnp.power(((5.0 + length) / 6.0), alpha)


def add_beam_dim(x):
    return jnp.repeat(x[:, None], BEAM, axis=1)


def flatten_beam_dim(x):
    return x.reshape((-1,) + x.shape[2:])


def unflatten_beam_dim(x):
    return x.reshape((BATCH, BEAM) + x.shape[1:])


def gather_beams(nested, beam_indices):
    return jax.tree.map(lambda x: jax.vmap(lambda a, i: a[i])(x, beam_indices), nested)


def gather_topk_beams(nested, scores):
    _, idx = lax.top_k(scores, BEAM)
    return gather_beams(nested, idx)


@flax.struct.dataclass
class BeamState:
    cur_index: jax.Array
    live_logprobs: jax.Array
    finished_scores: jax.Array
    live_seqs: jax.Array
    finished_seqs: jax.Array
    finished_flags: jax.Array
    cache: list


def beam_search(tokens_to_logits, cache, alpha=0.6):
    init = BeamState(
        cur_index=jnp.array(0),
        live_logprobs=jnp.tile(jnp.array([0.0] + [NEG_INF] * (BEAM - 1)), [BATCH, 1]),
        finished_scores=jnp.ones((BATCH, BEAM)) * NEG_INF,
        live_seqs=jnp.zeros((BATCH, BEAM, MAX_LEN), jnp.int32),
        finished_seqs=jnp.zeros((BATCH, BEAM, MAX_LEN), jnp.int32),
        finished_flags=jnp.zeros((BATCH, BEAM), jnp.bool_),
        cache=cache,
    )

    def beam_search_loop_cond_fn(s):
        not_at_end = s.cur_index < MAX_LEN - 1
        best_live = s.live_logprobs[:, 0] / brevity_penalty(alpha, MAX_LEN)
        worst_finished = jnp.where(s.finished_flags, s.finished_scores, NEG_INF).min(1)
        return not_at_end & ~jnp.all(worst_finished > best_live)

    def beam_search_loop_body_fn(s):
        ids = flatten_beam_dim(
            lax.dynamic_slice(s.live_seqs, (0, 0, s.cur_index), (BATCH, BEAM, 1))
        )
        logits, flat_cache = tokens_to_logits(
            ids, jax.tree.map(flatten_beam_dim, s.cache), s.cur_index
        )
        cache = jax.tree.map(unflatten_beam_dim, flat_cache)
        log_probs = jax.nn.log_softmax(unflatten_beam_dim(logits)) + s.live_logprobs[..., None]
        topk_log_probs, topk_idx = lax.top_k(log_probs.reshape(BATCH, BEAM * VOCAB), 2 * BEAM)
        topk_beam, topk_ids = topk_idx // VOCAB, topk_idx % VOCAB
        topk_seq = gather_beams(s.live_seqs, topk_beam)
        topk_seq = lax.dynamic_update_slice(
            topk_seq, topk_ids[..., None].astype(jnp.int32), (0, 0, s.cur_index + 1)
        )
        newly_finished = topk_ids == EOS_ID
        # live beams
        live_scores = topk_log_probs + newly_finished * NEG_INF
        _, keep = lax.top_k(live_scores, BEAM)
        live_seqs, live_lp, live_beam = gather_beams([topk_seq, live_scores, topk_beam], keep)
        cache = gather_beams(cache, live_beam)
        # finished beams
        new_scores = (
            topk_log_probs / brevity_penalty(alpha, s.cur_index + 1) + (~newly_finished) * NEG_INF
        )
        fin_seqs = jnp.concatenate([s.finished_seqs, topk_seq], 1)
        fin_scores = jnp.concatenate([s.finished_scores, new_scores], 1)
        fin_flags = jnp.concatenate([s.finished_flags, newly_finished], 1)
        fin_seqs, fin_scores, fin_flags = gather_topk_beams(
            [fin_seqs, fin_scores, fin_flags], fin_scores
        )
        return BeamState(
            s.cur_index + 1, live_lp, fin_scores, live_seqs, fin_seqs, fin_flags, cache
        )

    final = lax.while_loop(beam_search_loop_cond_fn, beam_search_loop_body_fn, init)
    none = ~jnp.any(final.finished_flags, axis=1)
    seqs = jnp.where(none[:, None, None], final.live_seqs, final.finished_seqs)
    scores = jnp.where(none[:, None], final.live_logprobs, final.finished_scores)
    return seqs, scores


def make():
    model = Transformer()

    def translate(params, src):
        enc = model.apply(params, src, method="encode")
        cross = model.apply(params, enc, method="precompute_cross")
        cross = jax.tree.map(lambda x: flatten_beam_dim(add_beam_dim(x)), cross)
        src_mask = flatten_beam_dim(add_beam_dim((src > 0)[:, None, None]))
        zeros = jnp.zeros((BATCH, BEAM, MAX_LEN, HEADS, EMB // HEADS))
        cache = [(zeros, zeros) for _ in range(LAYERS)]

        def tokens_to_logits(ids, cache, i):
            return model.apply(params, ids, cache, cross, src_mask, i, method="decode_step")

        return beam_search(tokens_to_logits, cache)

    src = jax.ShapeDtypeStruct((BATCH, SRC_LEN), jnp.int32)
    params = jax.eval_shape(
        model.init, jax.random.key(0), src, jax.ShapeDtypeStruct((BATCH, 1), jnp.int32)
    )
    return translate, (params, src)
