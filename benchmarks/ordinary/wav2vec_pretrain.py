TRUTH = """
# wav2vec_pretrain — wav2vec 2.0 pre-training step (flax linen), FSDP over 8 devices (jit + NamedSharding on params), 8 layers unrolled, remat

pretrain_step:
1. masks: span_mask (bernoulli + reduce_window), tau schedule, rng
2. **forward**
   - **feature_encoder**: 7 strided 1-D convs (32000 samples -> 99 frames; conv_0 with group_norm over 6399 frames), feature_norm
   - **quantizer** { weight_proj, gumbel softmax, straight-through, codebook } ; project_q
   - feature_projection, mask_embedding, **pos_conv** (grouped conv, width 64, 16 groups)
   - **8 transformer layers (unrolled, layer_0..7)** { ln1, attention, ln2, intermediate (gelu), output }
   - final_norm, project_hid
3. **loss**: sample_negatives (gather of 50 negatives), contrastive_loss, diversity, feature penalty
4. **backward**: loss (scatter-add of negatives), layers 7..0 (remat: recompute then gradients), pos_conv, quantizer, feature_encoder
5. **optimiser**: clip_by_global_norm, adamw with warm-up cosine, apply_gradients

Loops: none by the person. 8 repeated layers in forward and backward.
Collectives (FSDP): all-gather of each kernel before use (forward and again in backward, by remat), reduce-scatter (on CPU: all-reduce + dynamic-slice) of each gradient, small all-reduce: loss terms, global norm, small parameters. Batch is split over the same axis. XLA may instead move activations in places (all-to-all / gathering activations) for the convs.
Heaviest: feature_encoder (conv_1: 3199 frames x 256 x 256 x 3 = 629M MAC per utterance; conv_0: 6399 x 10 x 256 = 16M; conv_2 half of conv_1 …: total ~1.2G MAC) vs. transformer (99 frames x 3.15M x 8 = 2.5G MAC) : transformer layers, backward with remat 3x: heaviest is layers' backward, then feature_encoder's backward.
Names: "feature_encoder", "quantizer", "pos_conv", "layer x8", "attention", "feed-forward", "negatives", "contrastive loss", "backward", "clip + adamw".
"""
"""wav2vec 2.0 pre-training.  Linen modules, FSDP by sharding every big kernel's first divisible axis
over 'fsdp' and letting jit do the rest; transformer layers in a Python loop with nn.remat."""
import math
from collections.abc import Sequence

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax.training import train_state
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

SAMPLES, BATCH = 32000, 16
MODEL, FF, HEADS, LAYERS = 512, 2048, 8, 8
CODE_GROUPS, CODE_VARS, CODE_DIM = 2, 160, 256
NEGATIVES = 50


class FeatureEncoder(nn.Module):
    spec: Sequence = (
        (256, 10, 5),
        (256, 3, 2),
        (256, 3, 2),
        (256, 3, 2),
        (256, 3, 2),
        (256, 2, 2),
        (256, 2, 2),
    )

    @nn.compact
    def __call__(self, wav):
        x = wav[..., None]
        for i, (ch, k, s) in enumerate(self.spec):
            x = nn.Conv(ch, (k,), (s,), padding="VALID", use_bias=False, name=f"conv_{i}")(x)
            if i == 0:
                x = nn.GroupNorm(num_groups=None, group_size=1, name="group_norm")(x)
            x = nn.gelu(x)
        return x


class ConvPositions(nn.Module):
    @nn.compact
    def __call__(self, x):
        return nn.gelu(nn.Conv(MODEL, (64,), feature_group_count=16, padding="SAME")(x))


class SelfAttention(nn.Module):
    @nn.compact
    def __call__(self, x):
        b, t, _ = x.shape
        proj = lambda n: nn.Dense(MODEL, name=n)(x).reshape(b, t, HEADS, -1)
        q, k, v = proj("q_proj"), proj("k_proj"), proj("v_proj")
        w = nn.softmax(jnp.einsum("bqhd,bkhd->bhqk", q, k) / math.sqrt(MODEL // HEADS))
        return nn.Dense(MODEL, name="out_proj")(
            jnp.einsum("bhqk,bkhd->bqhd", w, v).reshape(b, t, MODEL)
        )


class TransformerLayer(nn.Module):
    @nn.compact
    def __call__(self, x):
        x = x + SelfAttention(name="attention")(nn.LayerNorm(name="ln1")(x))
        h = nn.Dense(FF, name="intermediate")(nn.LayerNorm(name="ln2")(x))
        return x + nn.Dense(MODEL, name="output")(nn.gelu(h))


class GumbelQuantizer(nn.Module):
    @nn.compact
    def __call__(self, x, tau):
        b, t, _ = x.shape
        logits = nn.Dense(CODE_GROUPS * CODE_VARS, name="weight_proj")(x).reshape(
            b, t, CODE_GROUPS, CODE_VARS
        )
        g = jax.random.gumbel(self.make_rng("gumbel"), logits.shape)
        soft = nn.softmax((logits + g) / tau)
        hard = jax.nn.one_hot(soft.argmax(-1), CODE_VARS)
        onehot = hard + soft - jax.lax.stop_gradient(soft)
        book = self.param(
            "codebook",
            nn.initializers.uniform(1.0),
            (CODE_GROUPS, CODE_VARS, CODE_DIM // CODE_GROUPS),
        )
        quant = jnp.einsum("btgv,gvd->btgd", onehot, book).reshape(b, t, CODE_DIM)
        avg = nn.softmax(logits).mean((0, 1))
        perplexity = jnp.exp(-jnp.sum(avg * jnp.log(avg + 1e-7), -1)).sum()
        return quant, perplexity


class Wav2Vec2(nn.Module):
    @nn.compact
    def __call__(self, wav, mask, tau):
        feats = nn.LayerNorm(name="feature_norm")(FeatureEncoder(name="feature_encoder")(wav))
        quant, perplexity = GumbelQuantizer(name="quantizer")(feats, tau)
        target = nn.Dense(CODE_DIM, name="project_q")(quant)
        x = nn.Dense(MODEL, name="feature_projection")(feats)
        emb = self.param("mask_embedding", nn.initializers.uniform(1.0), (MODEL,))
        x = jnp.where(mask[..., None], emb, x)
        x = x + ConvPositions(name="pos_conv")(x)
        for i in range(LAYERS):
            x = nn.remat(TransformerLayer)(name=f"layer_{i}")(x)
        x = nn.LayerNorm(name="final_norm")(x)
        return nn.Dense(CODE_DIM, name="project_hid")(x), target, perplexity, feats


def span_mask(key, b, t, prob=0.065, span=10):
    starts = jax.random.bernoulli(key, prob, (b, t)).astype(jnp.float32)
    reach = jax.lax.reduce_window(
        starts, 0.0, jax.lax.max, (1, span), (1, 1), [(0, 0), (span - 1, 0)]
    )
    return reach > 0


def sample_negatives(key, target):
    b, t, _ = target.shape
    idx = jax.random.randint(key, (b, t, NEGATIVES), 0, t - 1)
    idx = idx + (idx >= jnp.arange(t)[None, :, None])
    return jnp.take_along_axis(
        target[:, None], idx.transpose(0, 2, 1)[..., None], axis=2
    )  # b, neg, t, d


def contrastive_loss(ctx, pos, neg, mask, kappa=0.1):
    cand = jnp.concatenate([pos[:, None], neg], 1)
    norm = lambda z: z / (jnp.linalg.norm(z, axis=-1, keepdims=True) + 1e-6)
    sim = jnp.einsum("btd,bntd->btn", norm(ctx), norm(cand)) / kappa
    same = jnp.all(neg == pos[:, None], -1).transpose(0, 2, 1)
    sim = sim.at[..., 1:].add(jnp.where(same, -1e9, 0.0))
    ce = -jax.nn.log_softmax(sim)[..., 0]
    return jnp.sum(ce * mask) / jnp.maximum(mask.sum(), 1)


class PretrainState(train_state.TrainState):
    rng: jax.Array


def pretrain_step(state, wav):
    k_mask, k_neg, k_g = jax.random.split(jax.random.fold_in(state.rng, state.step), 3)
    t = 99
    mask = span_mask(k_mask, BATCH, t)
    tau = jnp.maximum(2.0 * 0.999995**state.step, 0.5)

    def loss(params):
        ctx, tgt, ppl, feats = state.apply_fn(
            {"params": params}, wav, mask, tau, rngs={"gumbel": k_g}
        )
        neg = sample_negatives(k_neg, tgt)
        c = contrastive_loss(ctx, tgt, neg, mask)
        diversity = (CODE_GROUPS * CODE_VARS - ppl) / (CODE_GROUPS * CODE_VARS)
        return c + 0.1 * diversity + 10 * jnp.mean(feats**2), (c, ppl)

    (l, (c, ppl)), grads = jax.value_and_grad(loss, has_aux=True)(state.params)
    return state.apply_gradients(grads=grads), {"loss": l, "contrastive": c, "perplexity": ppl}


def fsdp_spec(a, n):
    if a.size >= 2**14:
        for i in np.argsort([-d for d in a.shape], kind="stable"):
            if a.shape[i] % n == 0:
                return P(*[None] * i, "fsdp")
    return P()


def build(devices=None):
    devices = np.array(jax.devices() if devices is None else devices)[:8]
    mesh = Mesh(devices, ("fsdp",))
    model = Wav2Vec2()
    tx = optax.chain(
        optax.clip_by_global_norm(1.0),
        optax.adamw(optax.warmup_cosine_decay_schedule(0, 5e-4, 10000, 400000), b2=0.98),
    )

    def init():
        ks = dict(zip(("params", "gumbel"), jax.random.split(jax.random.PRNGKey(0))))
        p = model.init(ks, jnp.zeros((1, SAMPLES)), jnp.zeros((1, 99), bool), 2.0)["params"]
        return PretrainState.create(
            apply_fn=model.apply, params=p, tx=tx, rng=jax.random.PRNGKey(1)
        )

    state = jax.eval_shape(init)
    shard = jax.tree.map(lambda a: NamedSharding(mesh, fsdp_spec(a, 8)), state)
    state = jax.tree.map(
        lambda a, s: jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=s), state, shard
    )
    wav = jax.ShapeDtypeStruct(
        (BATCH, SAMPLES), jnp.float32, sharding=NamedSharding(mesh, P("fsdp"))
    )
    step = jax.jit(pretrain_step, donate_argnums=0, out_shardings=(shard, NamedSharding(mesh, P())))
    return step, (state, wav)


MESH = {"device": 8}


def make(mesh):
    return build(list(mesh.devices.flat))
