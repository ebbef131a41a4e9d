TRUTH = """
One training step (make_step) of an xLSTM[7:1] language model, one device, batch 4 x 2048 tokens, width 1024, vocab 50304.

make_step
  compute_loss (forward)
    XLSTM
      embed lookup
      group loop x3
        mLSTM loop x7 (so 21 MLSTMBlock in all), checkpointed
          MLSTMBlock: norm, up (1024->4096), causal conv of 4 taps, qk (2048->4096), v (2048->2048), gates, mlstm_chunkwise, out_norm, down (2048->1024)
            mlstm_chunkwise: chunk loop x16 (chunks of 128): scores q k^T, memory read q C, memory update k^T v (512x512 per head, 4 heads)
        SLSTMBlock once per group (3 in all), checkpointed
          norm, w (1024->4096), time loop x2048 (cell: recurrent block-diagonal matmul 4 x 256x1024, gates), ffn_norm, ffn_up, gelu gate, ffn_down
      norm, head (1024->50304)
    cross entropy
  backward: group loop x3, in it SLSTM backward (recompute the x2048 loop, then a backward x2048 loop) and mLSTM loop x7
    (recompute forward incl. chunk loop x16, then backward chunk loop x16); head; embedding scatter-add
  optimiser: clip_by_global_norm, adamw, apply_updates

Nesting 3 > 7 > 16 and 3 > 2048: the picture must keep it: 3*7*16 = 336 chunk steps, 3*2048 = 6144 cell steps in the forward.
Weight: matmuls of MLSTMBlock (up, qk, v, down) x21 dominate; then head; the sLSTM cell is small in flops (its time is latency, a long
sequential loop): say it is long, not that it is heavy in flops. Adam touches ~400 M parameters elementwise.
First sight: a loop of 3 groups holding a loop of 7 mLSTM blocks (holding a loop of 16 chunks) and one sLSTM block (holding a loop of 2048 steps).
Names true: make_step, compute_loss, group, chunk_step, cell, mlstm_chunkwise, MLSTMBlock, SLSTMBlock.
False would be: one flat list of loops; 24 equal layers; the recompute shown as another forward network;
chunk loop attributed to the sLSTM or the time loop to the mLSTM.
"""

"""xLSTM[7:1] language model in Equinox: 3 groups of (7 mLSTM blocks, 1 sLSTM block). One device."""
import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import optax
from jax import lax

VOCAB, D, HEADS, SEQ, BATCH, CHUNK = 50304, 1024, 4, 2048, 4, 128
GROUPS, M_PER_GROUP = 3, 7
INNER = 2 * D
DH = INNER // HEADS
F32, BF16 = jnp.float32, jnp.bfloat16


def linear(w, x):
    return x.astype(BF16) @ w.astype(BF16)


class RMSNorm(eqx.Module):
    scale: jax.Array

    def __init__(self, n):
        self.scale = jnp.ones(n)

    def __call__(self, x):
        x = x.astype(F32)
        return (x * lax.rsqrt((x**2).mean(-1, keepdims=True) + 1e-6) * self.scale).astype(BF16)


def mlstm_chunkwise(q, k, v, logi, logf):
    """q, k, v: (B, H, T, dh); gates (B, H, T). Matrix memory carried from chunk to chunk."""
    B, H, T, d = q.shape
    n = T // CHUNK
    cut = lambda a: jnp.moveaxis(a.reshape(B, H, n, CHUNK, *a.shape[3:]), 2, 0)
    tri = jnp.tril(jnp.ones((CHUNK, CHUNK), bool))

    def chunk_step(carry, xs):
        C, nrm, m = carry
        q, k, v, i, f = xs
        fc = jnp.cumsum(f, -1)
        decay = jnp.where(tri, fc[..., :, None] - fc[..., None, :] + i[..., None, :], -jnp.inf)
        m_inter = fc + m[..., None]
        m_new = jnp.maximum(decay.max(-1), m_inter)
        w = jnp.exp(decay - m_new[..., None])
        s = jnp.einsum("bhqd,bhkd->bhqk", q, k).astype(F32) * d**-0.5 * w
        g = jnp.exp(m_inter - m_new)[..., None]
        num = jnp.einsum("bhqk,bhkd->bhqd", s.astype(BF16), v).astype(F32) + g * jnp.einsum(
            "bhqd,bhde->bhqe", q, C.astype(BF16)
        ).astype(F32)
        den = (
            s.sum(-1, keepdims=True)
            + g * jnp.einsum("bhqd,bhd->bhq", q.astype(F32), nrm)[..., None]
        )
        h = num / jnp.maximum(jnp.abs(den), jnp.exp(-m_new)[..., None])
        total = fc[..., -1:]
        out_decay = total - fc + i
        m_next = jnp.maximum(total[..., 0] + m, out_decay.max(-1))
        kw = k.astype(F32) * jnp.exp(out_decay - m_next[..., None])[..., None] * d**-0.5
        keep = jnp.exp(total[..., 0] + m - m_next)
        C = keep[..., None, None] * C + jnp.einsum("bhkd,bhke->bhde", kw.astype(BF16), v).astype(
            F32
        )
        nrm = keep[..., None] * nrm + kw.sum(2)
        return (C, nrm, m_next), h.astype(BF16)

    init = (jnp.zeros((B, H, d, d), F32), jnp.zeros((B, H, d), F32), jnp.zeros((B, H), F32))
    _, h = lax.scan(chunk_step, init, (cut(q), cut(k), cut(v), cut(logi), cut(logf)))
    return jnp.moveaxis(h, 0, 2).reshape(B, H, T, d)


class MLSTMBlock(eqx.Module):
    norm: RMSNorm
    up: jax.Array
    conv: jax.Array
    qk: jax.Array
    v: jax.Array
    gates: jax.Array
    out_norm: RMSNorm
    down: jax.Array

    def __init__(self, key):
        ks = jr.split(key, 6)
        n = lambda k, *s: jr.normal(k, s) * s[0] ** -0.5
        self.norm, self.out_norm = RMSNorm(D), RMSNorm(INNER)
        self.up, self.conv = n(ks[0], D, 2 * INNER), n(ks[1], 4, INNER)
        self.qk, self.v = n(ks[2], INNER, 2 * INNER), n(ks[3], INNER, INNER)
        self.gates, self.down = n(ks[4], INNER, 2 * HEADS), n(ks[5], INNER, D)

    def __call__(self, x):
        B, T, _ = x.shape
        u, z = jnp.split(linear(self.up, self.norm(x)), 2, -1)
        pad = jnp.pad(u, ((0, 0), (3, 0), (0, 0)))
        c = jax.nn.silu(sum(pad[:, i : i + T] * self.conv[i].astype(BF16) for i in range(4)))
        heads = lambda a: a.reshape(B, T, HEADS, -1).swapaxes(1, 2)
        q, k = jnp.split(linear(self.qk, c), 2, -1)
        v = linear(self.v, u)
        i, f = jnp.split((c.astype(F32) @ self.gates).swapaxes(1, 2), 2, 1)
        h = mlstm_chunkwise(heads(q), heads(k), heads(v), i, jax.nn.log_sigmoid(f))
        h = self.out_norm(h.swapaxes(1, 2).reshape(B, T, INNER))
        return x + linear(self.down, h * jax.nn.silu(z))


class SLSTMBlock(eqx.Module):
    norm: RMSNorm
    w: jax.Array
    r: jax.Array
    ffn_norm: RMSNorm
    ffn_up: jax.Array
    ffn_down: jax.Array

    def __init__(self, key):
        ks = jr.split(key, 4)
        n = lambda k, *s: jr.normal(k, s) * s[-2] ** -0.5
        self.norm, self.ffn_norm = RMSNorm(D), RMSNorm(D)
        self.w, self.r = n(ks[0], D, 4 * D), n(ks[1], HEADS, D // HEADS, 4 * D // HEADS)
        self.ffn_up, self.ffn_down = n(ks[2], D, 2 * 1344), n(ks[3], 1344, D)

    def __call__(self, x):
        B, T, _ = x.shape
        pre = linear(self.w, self.norm(x)).reshape(B, T, HEADS, -1).swapaxes(0, 1)

        def cell(state, p):
            h, c, n, m = state
            g = p.astype(F32) + jnp.einsum(
                "bhd,hde->bhe", h.astype(BF16), self.r.astype(BF16)
            ).astype(F32)
            z, i, f, o = jnp.split(g, 4, -1)
            f = jax.nn.log_sigmoid(f)
            m2 = jnp.maximum(f + m, i)
            i, f = jnp.exp(i - m2), jnp.exp(f + m - m2)
            c = f * c + i * jnp.tanh(z)
            n = f * n + i
            h = jax.nn.sigmoid(o) * c / jnp.maximum(n, 1e-6)
            return (h, c, n, m2), h.astype(BF16)

        zero = jnp.zeros((B, HEADS, D // HEADS), F32)
        _, h = lax.scan(cell, (zero,) * 4, pre)
        x = x + h.swapaxes(0, 1).reshape(B, T, D)
        a, b = jnp.split(linear(self.ffn_up, self.ffn_norm(x)), 2, -1)
        return x + linear(self.ffn_down, jax.nn.gelu(a) * b)


class XLSTM(eqx.Module):
    embed: jax.Array
    mlstm: MLSTMBlock  # stacked (GROUPS, M_PER_GROUP, ...)
    slstm: SLSTMBlock  # stacked (GROUPS, ...)
    norm: RMSNorm
    head: jax.Array

    def __init__(self, key):
        k = jr.split(key, 4)
        self.embed, self.head = (
            jr.normal(k[0], (VOCAB, D)) * 0.02,
            jr.normal(k[1], (D, VOCAB)) * D**-0.5,
        )
        self.mlstm = jax.vmap(jax.vmap(MLSTMBlock))(jr.split(k[2], (GROUPS, M_PER_GROUP)))
        self.slstm = jax.vmap(SLSTMBlock)(jr.split(k[3], GROUPS))
        self.norm = RMSNorm(D)

    def __call__(self, tokens):
        x = self.embed.astype(BF16)[tokens]

        def group(x, blocks):
            ms, s = blocks
            x, _ = lax.scan(lambda x, m: (eqx.filter_checkpoint(m)(x), None), x, ms)
            return eqx.filter_checkpoint(s)(x), None

        x, _ = lax.scan(group, x, (self.mlstm, self.slstm))
        return linear(self.head, self.norm(x)).astype(F32)


def make():
    tx = optax.chain(
        optax.clip_by_global_norm(0.5),
        optax.adamw(optax.cosine_onecycle_schedule(95_000, 7e-4), b2=0.95, weight_decay=0.1),
    )

    def compute_loss(model, tokens):
        logits = model(tokens[:, :-1])
        return optax.softmax_cross_entropy_with_integer_labels(logits, tokens[:, 1:]).mean()

    def make_step(model, opt_state, tokens):
        loss, grads = jax.value_and_grad(compute_loss)(model, tokens)
        updates, opt_state = tx.update(grads, opt_state, model)
        return eqx.apply_updates(model, updates), opt_state, loss

    model = jax.eval_shape(XLSTM, jr.PRNGKey(0))
    opt_state = jax.eval_shape(tx.init, model)
    return jax.jit(make_step, donate_argnums=(0, 1)), (
        model,
        opt_state,
        jax.ShapeDtypeStruct((BATCH, SEQ + 1), jnp.int32),
    )
