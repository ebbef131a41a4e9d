TRUTH = """
# evoformer_recycle — AlphaFold-like Evoformer training step with recycling (haiku, layer_stack + remat), single device

update:
1. **recycling: loop x3 (no gradient)** { **evoformer** { embeddings (preprocess_msa, preprocess_1d, left/right_single, relative positions, prev norms), **evoformer_iteration: loop x8** {...} } }
2. **last pass forward (with gradient)**: same evoformer { embeddings, **evoformer_iteration loop x8** {
     - msa_row_attention_with_pair_bias, msa_column_attention, msa_transition (the MSA half)
     - outer_product_mean (MSA -> pair)
     - triangle_multiplication_outgoing, triangle_multiplication_incoming
     - triangle_attention_starting_node, triangle_attention_ending_node
     - pair_transition
     - shared dropouts between } }
3. **heads + loss**: distogram_head, masked_msa_head, two cross-entropies
4. **backward**: heads, **evoformer_iteration backward loop x8** (remat: forward again then gradients), embeddings
5. **optimiser**: clip_by_global_norm, adam, linear schedule, apply

Loops: 3 > 8 ; 8 forward ; 8 backward.
Collectives: none.
Heaviest: triangle_attention (96 rows x 96x96 x 4 heads = 3.5M logits/each, x2) — with gradients in the backward loop. Next pair_transition (9216 x 64x256x2), triangle multiplications, row attention (32 x 96 x 96 x 8). Backward loop (8 turns, ~4x forward cost with remat) vs recycling (24 turns of forward): about 24 : 8 : 24-32 — recycling and backward about as heavy as each other.
Names: as the haiku modules: "evoformer", "evoformer_iteration x8", the nine sub-modules, "distogram_head", "masked_msa_head", "recycling x3", "backward", "adam".
"""
"""Small Evoformer with recycling, distogram + masked MSA heads.  Haiku, written the AlphaFold way."""

import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
import optax

CONFIG = dict(
    num_blocks=8,
    num_recycle=3,
    n_seq=32,
    n_res=96,
    msa_dim=64,
    pair_dim=64,
    seq_bins=23,
    msa_heads=8,
    pair_heads=4,
    outer_dim=16,
    transition=4,
    dist_bins=64,
    dropout_row=0.15,
    dropout_col=0.25,
)


class GatedAttention(hk.Module):
    def __init__(self, num_head, name):
        super().__init__(name=name)
        self.num_head = num_head

    def __call__(self, x, mask, bias=None):
        c = x.shape[-1]
        h, d = self.num_head, c // self.num_head
        init = hk.initializers.VarianceScaling(mode="fan_avg", distribution="uniform")
        qw = hk.get_parameter("query_w", (c, h, d), init=init)
        kw = hk.get_parameter("key_w", (c, h, d), init=init)
        vw = hk.get_parameter("value_w", (c, h, d), init=init)
        gw = hk.get_parameter("gating_w", (c, h, d), init=jnp.zeros)
        ow = hk.get_parameter("output_w", (h, d, c), init=jnp.zeros)
        q = jnp.einsum("bqa,ahc->bqhc", x, qw) * d**-0.5
        k = jnp.einsum("bka,ahc->bkhc", x, kw)
        v = jnp.einsum("bka,ahc->bkhc", x, vw)
        logits = jnp.einsum("bqhc,bkhc->bhqk", q, k) + (1e9 * (mask - 1.0))[:, None, None, :]
        if bias is not None:
            logits += bias[None]
        weights = jax.nn.softmax(logits)
        out = jnp.einsum("bhqk,bkhc->bqhc", weights, v)
        gate = jax.nn.sigmoid(jnp.einsum("bqc,chv->bqhv", x, gw) + 1.0)
        return jnp.einsum("bqhc,hco->bqo", out * gate, ow)


def layer_norm(x, name):
    return hk.LayerNorm(-1, True, True, name=name)(x)


class MSARowAttentionWithPairBias(hk.Module):
    def __call__(self, msa, msa_mask, pair):
        msa = layer_norm(msa, "query_norm")
        pair = layer_norm(pair, "feat_2d_norm")
        bias = hk.Linear(CONFIG["msa_heads"], with_bias=False, name="feat_2d_weights")(pair)
        return GatedAttention(CONFIG["msa_heads"], "attention")(
            msa, msa_mask, jnp.moveaxis(bias, -1, 0)
        )


class MSAColumnAttention(hk.Module):
    def __call__(self, msa, msa_mask):
        msa = jnp.swapaxes(layer_norm(msa, "query_norm"), 0, 1)
        out = GatedAttention(CONFIG["msa_heads"], "attention")(msa, msa_mask.T)
        return jnp.swapaxes(out, 0, 1)


class Transition(hk.Module):
    def __call__(self, act):
        c = act.shape[-1]
        act = layer_norm(act, "input_layer_norm")
        act = jax.nn.relu(hk.Linear(CONFIG["transition"] * c, name="transition1")(act))
        return hk.Linear(c, name="transition2")(act)


class OuterProductMean(hk.Module):
    def __call__(self, msa, mask):
        msa = layer_norm(msa, "layer_norm_input")
        left = mask[..., None] * hk.Linear(CONFIG["outer_dim"], name="left_projection")(msa)
        right = mask[..., None] * hk.Linear(CONFIG["outer_dim"], name="right_projection")(msa)
        act = jnp.einsum("sic,sje->ijce", left, right)
        norm = jnp.einsum("si,sj->ij", mask, mask)[..., None]
        act = act.reshape(act.shape[:2] + (-1,))
        return hk.Linear(CONFIG["pair_dim"], name="output")(act) / (norm + 1e-3)


class TriangleMultiplication(hk.Module):
    def __init__(self, equation, name):
        super().__init__(name=name)
        self.equation = equation

    def __call__(self, pair, mask):
        c = pair.shape[-1]
        x = layer_norm(pair, "layer_norm_input")
        proj = (
            mask[..., None]
            * hk.Linear(2 * c, name="projection")(x)
            * jax.nn.sigmoid(hk.Linear(2 * c, name="gate")(x))
        )
        left, right = jnp.split(proj, 2, -1)
        out = jnp.einsum(self.equation, left, right)
        out = hk.Linear(c, name="output_projection")(layer_norm(out, "center_norm"))
        return out * jax.nn.sigmoid(hk.Linear(c, name="gating_linear")(x))


class TriangleAttention(hk.Module):
    def __init__(self, per_column, name):
        super().__init__(name=name)
        self.per_column = per_column

    def __call__(self, pair, mask):
        if self.per_column:
            pair, mask = jnp.swapaxes(pair, 0, 1), mask.T
        x = layer_norm(pair, "query_norm")
        bias = hk.Linear(CONFIG["pair_heads"], with_bias=False, name="feat_2d_weights")(x)
        out = GatedAttention(CONFIG["pair_heads"], "attention")(x, mask, jnp.moveaxis(bias, -1, 0))
        return jnp.swapaxes(out, 0, 1) if self.per_column else out


def dropout_shared(x, rate, axis):
    shape = list(x.shape)
    shape[axis] = 1
    keep = jax.random.bernoulli(hk.next_rng_key(), 1 - rate, shape)
    return keep * x / (1 - rate)


class EvoformerIteration(hk.Module):
    def __call__(self, msa, pair, msa_mask, pair_mask):
        r, c = CONFIG["dropout_row"], CONFIG["dropout_col"]
        msa += dropout_shared(
            MSARowAttentionWithPairBias("msa_row_attention_with_pair_bias")(msa, msa_mask, pair),
            r,
            0,
        )
        msa += MSAColumnAttention("msa_column_attention")(msa, msa_mask)
        msa += Transition("msa_transition")(msa)
        pair += OuterProductMean("outer_product_mean")(msa, msa_mask)
        pair += dropout_shared(
            TriangleMultiplication("ikc,jkc->ijc", "triangle_multiplication_outgoing")(
                pair, pair_mask
            ),
            c,
            0,
        )
        pair += dropout_shared(
            TriangleMultiplication("kjc,kic->ijc", "triangle_multiplication_incoming")(
                pair, pair_mask
            ),
            c,
            0,
        )
        pair += dropout_shared(
            TriangleAttention(False, "triangle_attention_starting_node")(pair, pair_mask), c, 0
        )
        pair += dropout_shared(
            TriangleAttention(True, "triangle_attention_ending_node")(pair, pair_mask), c, 1
        )
        pair += Transition("pair_transition")(pair)
        return msa, pair


class EmbeddingsAndEvoformer(hk.Module):
    def __call__(self, feat, prev):
        target = jax.nn.one_hot(feat["aatype"], 21)
        msa = hk.Linear(CONFIG["msa_dim"], name="preprocess_msa")(
            jax.nn.one_hot(feat["msa"], CONFIG["seq_bins"])
        )
        msa += hk.Linear(CONFIG["msa_dim"], name="preprocess_1d")(target)[None]
        left = hk.Linear(CONFIG["pair_dim"], name="left_single")(target)
        right = hk.Linear(CONFIG["pair_dim"], name="right_single")(target)
        pair = left[:, None] + right[None]
        off = jnp.arange(CONFIG["n_res"])
        rel = jax.nn.one_hot(jnp.clip(off[:, None] - off[None] + 32, 0, 64), 65)
        pair += hk.Linear(CONFIG["pair_dim"], name="pair_activiations")(rel)
        msa = msa.at[0].add(layer_norm(prev["msa_row"], "prev_msa_first_row_norm"))
        pair += layer_norm(prev["pair"], "prev_pair_norm")
        msa_mask, pair_mask = feat["msa_mask"], feat["seq_mask"][:, None] * feat["seq_mask"][None]

        def block(x):
            return EvoformerIteration("evoformer_iteration")(*x, msa_mask, pair_mask)

        stack = hk.experimental.layer_stack(CONFIG["num_blocks"])(hk.remat(block))
        return stack((msa, pair))


class AlphaFoldLite(hk.Module):
    def __call__(self, batch):
        emb = EmbeddingsAndEvoformer("evoformer")

        def do_call(prev):
            msa, pair = emb(batch, prev)
            return {"msa_row": msa[0], "pair": pair}, msa

        n, cm, cz = CONFIG["n_res"], CONFIG["msa_dim"], CONFIG["pair_dim"]
        prev = {"msa_row": jnp.zeros((n, cm)), "pair": jnp.zeros((n, n, cz))}
        if hk.running_init():
            prev, _ = do_call(prev)
        else:
            body = lambda i, p: jax.tree.map(jax.lax.stop_gradient, do_call(p)[0])
            prev = hk.fori_loop(0, CONFIG["num_recycle"], body, prev)
        out, msa = do_call(jax.tree.map(jax.lax.stop_gradient, prev))
        half = hk.Linear(CONFIG["dist_bins"], name="distogram_head")(out["pair"])
        dist_logits = half + jnp.swapaxes(half, 0, 1)
        msa_logits = hk.Linear(CONFIG["seq_bins"], name="masked_msa_head")(msa)
        d2 = jnp.sum((batch["beta"][:, None] - batch["beta"][None]) ** 2, -1, keepdims=True)
        edges = np.linspace(2.3125, 21.6875, CONFIG["dist_bins"] - 1) ** 2
        l1 = optax.softmax_cross_entropy_with_integer_labels(
            dist_logits, jnp.sum(d2 > edges, -1)
        ).mean()
        l2 = optax.softmax_cross_entropy_with_integer_labels(msa_logits, batch["true_msa"])
        l2 = jnp.sum(l2 * batch["bert_mask"]) / (1e-6 + jnp.sum(batch["bert_mask"]))
        return 0.3 * l1 + 2.0 * l2


def build(devices=None):
    model = hk.transform(lambda b: AlphaFoldLite("alphafold")(b))
    opt = optax.chain(
        optax.clip_by_global_norm(0.1), optax.adam(optax.linear_schedule(0.0, 1e-3, 1000))
    )

    def update(params, opt_state, rng, batch):
        loss, grad = jax.value_and_grad(model.apply)(params, rng, batch)
        upd, opt_state = opt.update(grad, opt_state)
        return optax.apply_updates(params, upd), opt_state, loss

    s, n = CONFIG["n_seq"], CONFIG["n_res"]
    S = jax.ShapeDtypeStruct
    batch = dict(
        aatype=S((n,), jnp.int32),
        msa=S((s, n), jnp.int32),
        true_msa=S((s, n), jnp.int32),
        bert_mask=S((s, n), jnp.float32),
        msa_mask=S((s, n), jnp.float32),
        seq_mask=S((n,), jnp.float32),
        beta=S((n, 3), jnp.float32),
    )
    rng = S((2,), jnp.uint32)
    params = jax.eval_shape(model.init, rng, batch)
    return jax.jit(update), (params, jax.eval_shape(opt.init, params), rng, batch)


def make():
    return build()
