"""Factorised-encoder video transformer (ViViT model 2) for EPIC-Kitchens: one network, verb head + noun head."""

TRUTH = """
IN ORDER
- one `train_step`: forward -> two losses (verb, noun, summed) -> backward -> optimiser (clip by global norm, adamw) -> metrics
- forward: uint8 clip normalised to bf16; `tubelet` 3-d conv (2x16x16) -> 8 time slots of 196 tokens; `spatial_pos`;
  spatial encoder `spatial_0..7` on every time slot separately (batch 8*8 = 64 sequences of 196 tokens); mean over the tokens;
  `temporal_pos`; temporal encoder `temporal_0..3` on 8 sequences of 8 tokens; mean over time; `verb_head` (97) and `noun_head` (300)
COUNTS
- 8 spatial blocks and 4 temporal blocks, all unrolled, no loop at all; each block = LayerNorm, self attention, add, LayerNorm, MLP (gelu), add
ORDER / INDEPENDENCE
- spatial stack strictly before temporal stack; the two heads and their two losses do not depend on each other
- backward in reverse: heads, temporal 3..0, spatial 7..0, tubelet
HEAVY
- spatial encoder is > 95 % of the FLOPs (64*196 tokens against 64 tokens in the temporal one); in a block the MLP ~ 60 %
- temporal encoder negligible in FLOPs, but has half as many parameters as the spatial one (4 of 12 blocks)
- backward ~ 2x forward
PERFORMANCE
- healthy: state donated, bf16 matmuls with f32 parameters, single device, no collectives, no rng (no dropout)
- a person may be told that the optimiser is pure memory traffic over ~ 38 M f32 params x 3
"""
import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
from flax.training import train_state

B, T, HW = 8, 16, 224
VERBS, NOUNS = 97, 300


class Mlp(nn.Module):
    ratio: int = 4

    @nn.compact
    def __call__(self, x):
        d = x.shape[-1]
        h = nn.Dense(self.ratio * d, dtype=jnp.bfloat16, name="fc1")(x)
        return nn.Dense(d, dtype=jnp.bfloat16, name="fc2")(nn.gelu(h))


class Block(nn.Module):
    heads: int

    @nn.compact
    def __call__(self, x):
        h = nn.LayerNorm(dtype=jnp.bfloat16, name="norm1")(x)
        x = x + nn.MultiHeadDotProductAttention(self.heads, dtype=jnp.bfloat16, name="attn")(h, h)
        h = nn.LayerNorm(dtype=jnp.bfloat16, name="norm2")(x)
        return x + Mlp(name="mlp")(h)


class FactorisedViViT(nn.Module):
    width: int = 512
    spatial_depth: int = 8
    temporal_depth: int = 4
    heads: int = 8

    @nn.compact
    def __call__(self, clip):
        x = (clip.astype(jnp.bfloat16) - 127.5) / 127.5
        x = nn.Conv(
            self.width,
            (2, 16, 16),
            (2, 16, 16),
            padding="VALID",
            dtype=jnp.bfloat16,
            name="tubelet",
        )(x)
        b, t, h, w, d = x.shape
        x = x.reshape(b * t, h * w, d)
        pos = self.param("spatial_pos", nn.initializers.normal(0.02), (1, h * w, d))
        x = x + pos.astype(x.dtype)
        for i in range(self.spatial_depth):
            x = Block(self.heads, name=f"spatial_{i}")(x)
        x = nn.LayerNorm(dtype=jnp.bfloat16, name="spatial_norm")(x)

        x = x.mean(1).reshape(b, t, d)
        tpos = self.param("temporal_pos", nn.initializers.normal(0.02), (1, t, d))
        x = x + tpos.astype(x.dtype)
        for i in range(self.temporal_depth):
            x = Block(self.heads, name=f"temporal_{i}")(x)
        x = nn.LayerNorm(dtype=jnp.bfloat16, name="temporal_norm")(x).mean(1)
        return nn.Dense(VERBS, name="verb_head")(x), nn.Dense(NOUNS, name="noun_head")(x)


def smooth_ce(logits, labels, eps=0.1):
    targets = optax.smooth_labels(jax.nn.one_hot(labels, logits.shape[-1]), eps)
    return optax.softmax_cross_entropy(logits.astype(jnp.float32), targets).mean()


def train_step(state, clip, verb, noun):
    def loss_fn(params):
        verb_logits, noun_logits = state.apply_fn({"params": params}, clip)
        verb_loss = smooth_ce(verb_logits, verb)
        noun_loss = smooth_ce(noun_logits, noun)
        hit = (verb_logits.argmax(-1) == verb) & (noun_logits.argmax(-1) == noun)
        return verb_loss + noun_loss, {
            "verb": verb_loss,
            "noun": noun_loss,
            "action_acc": hit.mean(),
        }

    (loss, aux), grads = jax.value_and_grad(loss_fn, has_aux=True)(state.params)
    return state.apply_gradients(grads=grads), {"loss": loss, **aux}


def make():
    model = FactorisedViViT()
    tx = optax.chain(
        optax.clip_by_global_norm(1.0),
        optax.adamw(optax.cosine_onecycle_schedule(20_000, 3e-4), weight_decay=0.05),
    )
    clip = jax.ShapeDtypeStruct((B, T, HW, HW, 3), jnp.uint8)
    lab = jax.ShapeDtypeStruct((B,), jnp.int32)

    def init(key):
        params = model.init(key, jnp.zeros(clip.shape, jnp.uint8))["params"]
        return train_state.TrainState.create(apply_fn=model.apply, params=params, tx=tx)

    state = jax.eval_shape(init, jax.random.key(0))
    return jax.jit(train_step, donate_argnums=0), (state, clip, lab, lab)
