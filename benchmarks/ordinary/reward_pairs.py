TRUTH = """
One training step (train_step) of a pairwise (Bradley-Terry) reward model in flax nnx, 0.8 B parameters, 32 pairs of 1024 tokens, 8 devices "data", parameters sharded (FSDP).

train_step
  pair_loss (forward)
    RewardModel on the chosen answers
    RewardModel on the rejected answers       (same weights, called twice, not concatenated)
      each: embed, 12 Block written out, final_norm, last_token gather, reward_head (1), attribute_head (5)
        Block: norm1, attn (q, k, v with rope, 12 query and 2 kv heads, o), norm2, mlp (gate, up, down); under nnx.remat
    bradley_terry: -log sigmoid(difference - margin), attribute_regression twice, reward centring penalty
  backward of both, gradients added: 12 blocks x 2 with recompute
  optimizer.update: optax clip + adamw

No loop anywhere. 12 layers in the model; the program runs 24 block forwards because of two calls (plus 24 recomputed in backward).
Weight: mlp of the blocks (41 M of 47 M weights each); embedding is a lookup only, no vocabulary projection at all. Heads are negligible in flops.
Metrics: accuracy, margin: tiny.
False would be: one stack of 24 layers; two different models; language-model head / logits over vocabulary; a loop; the scores within attention the main thing.
First sight: two passes (chosen, rejected) of the same 12-block model -> pair loss -> backward -> optimiser.
Names true: RewardModel, blocks.0 .. blocks.11 (Block), attn, mlp, reward_head, attribute_head, bradley_terry, attribute_regression, pair_loss.
"""

"""Pairwise reward model (Bradley-Terry with margins and attribute regression) on a Qwen-like trunk, flax nnx.
FSDP over 8 devices; the trunk is run once on the chosen and once on the rejected answers."""
from functools import partial

import jax
import jax.numpy as jnp
import optax
from flax import nnx
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

MESH = {"data": 8}
VOCAB, DIM, LAYERS, HEADS, KV_HEADS, HEAD_DIM, FFN = 151936, 1536, 12, 12, 2, 128, 8960
PAIRS, SEQ, ATTRIBUTES = 32, 1024, 5


def rotary_tables(t, d, theta=1e6):
    freq = theta ** (-jnp.arange(0, d, 2) / d)
    ang = jnp.arange(t)[:, None] * freq
    return jnp.cos(ang), jnp.sin(ang)


def rotate(x, cos, sin):
    a, b = jnp.split(x, 2, axis=-1)
    cos, sin = cos[None, :, None].astype(x.dtype), sin[None, :, None].astype(x.dtype)
    return jnp.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1)


class Attention(nnx.Module):
    def __init__(self, *, rngs):
        linear = partial(nnx.Linear, dtype=jnp.bfloat16, rngs=rngs)
        self.q = linear(DIM, HEADS * HEAD_DIM)
        self.k = linear(DIM, KV_HEADS * HEAD_DIM)
        self.v = linear(DIM, KV_HEADS * HEAD_DIM)
        self.o = linear(HEADS * HEAD_DIM, DIM, use_bias=False)

    def __call__(self, x, mask, tables):
        b, t, _ = x.shape
        q = rotate(self.q(x).reshape(b, t, HEADS, HEAD_DIM), *tables)
        k = rotate(self.k(x).reshape(b, t, KV_HEADS, HEAD_DIM), *tables)
        v = self.v(x).reshape(b, t, KV_HEADS, HEAD_DIM)
        y = jax.nn.dot_product_attention(q, k, v, mask=mask[:, None, None, :], is_causal=True)
        return self.o(y.reshape(b, t, HEADS * HEAD_DIM))


class Mlp(nnx.Module):
    def __init__(self, *, rngs):
        linear = partial(nnx.Linear, use_bias=False, dtype=jnp.bfloat16, rngs=rngs)
        self.gate, self.up, self.down = linear(DIM, FFN), linear(DIM, FFN), linear(FFN, DIM)

    def __call__(self, x):
        return self.down(nnx.silu(self.gate(x)) * self.up(x))


class Block(nnx.Module):
    def __init__(self, *, rngs):
        norm = partial(nnx.RMSNorm, DIM, epsilon=1e-6, dtype=jnp.bfloat16, rngs=rngs)
        self.norm1, self.norm2 = norm(), norm()
        self.attn = Attention(rngs=rngs)
        self.mlp = Mlp(rngs=rngs)

    def __call__(self, x, mask, tables):
        x = x + self.attn(self.norm1(x), mask, tables)
        return x + self.mlp(self.norm2(x))


class RewardModel(nnx.Module):
    def __init__(self, *, rngs):
        self.embed = nnx.Embed(VOCAB, DIM, dtype=jnp.bfloat16, rngs=rngs)
        self.blocks = nnx.List([Block(rngs=rngs) for _ in range(LAYERS)])
        self.final_norm = nnx.RMSNorm(DIM, epsilon=1e-6, rngs=rngs)
        self.reward_head = nnx.Linear(DIM, 1, use_bias=False, rngs=rngs)
        self.attribute_head = nnx.Linear(DIM, ATTRIBUTES, rngs=rngs)

    def __call__(self, tokens, lengths):
        x = self.embed(tokens)
        tables = rotary_tables(tokens.shape[1], HEAD_DIM)
        mask = jnp.arange(tokens.shape[1])[None] < lengths[:, None]

        @nnx.remat
        def run(block, x):
            return block(x, mask, tables)

        for block in self.blocks:
            x = run(block, x)
        last = last_token(x, lengths)
        h = self.final_norm(last.astype(jnp.float32))
        return self.reward_head(h)[:, 0], self.attribute_head(h)


def last_token(x, lengths):
    return jnp.take_along_axis(x, (lengths - 1)[:, None, None], axis=1)[:, 0]


def bradley_terry(chosen, rejected, margin):
    return -jax.nn.log_sigmoid(chosen - rejected - margin)


def attribute_regression(predicted, labels, present):
    return jnp.sum(jnp.square(predicted - labels) * present, -1) / jnp.maximum(present.sum(-1), 1.0)


def pair_loss(model, batch):
    good, good_attr = model(batch["chosen"], batch["chosen_len"])
    bad, bad_attr = model(batch["rejected"], batch["rejected_len"])
    rank = bradley_terry(good, bad, batch["margin"])
    regress = attribute_regression(good_attr, batch["chosen_attr"], batch["attr_present"])
    regress += attribute_regression(bad_attr, batch["rejected_attr"], batch["attr_present"])
    centre = jnp.square(good + bad)
    loss = jnp.mean(rank + 0.25 * regress + 0.01 * centre)
    metrics = {
        "accuracy": jnp.mean(good > bad),
        "margin": jnp.mean(good - bad),
        "rank": jnp.mean(rank),
    }
    return loss, metrics


def build_optimizer():
    schedule = optax.warmup_cosine_decay_schedule(0.0, 9e-6, 300, 12_000)
    return optax.chain(
        optax.clip_by_global_norm(1.0), optax.adamw(schedule, b2=0.95, weight_decay=0.05)
    )


def make(mesh):
    def build():
        model = RewardModel(rngs=nnx.Rngs(0))
        return model, nnx.Optimizer(model, build_optimizer(), wrt=nnx.Param)

    graphdef, state = nnx.split(nnx.eval_shape(build))

    def sharded(x):
        spec = P("data", None) if x.ndim == 2 and x.size > 100_000 and x.shape[0] % 8 == 0 else P()
        return jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=NamedSharding(mesh, spec))

    state = jax.tree.map(sharded, state)

    @partial(jax.jit, donate_argnums=0)
    def train_step(state, batch):
        model, optimizer = nnx.merge(graphdef, state)
        (loss, metrics), grads = nnx.value_and_grad(pair_loss, has_aux=True)(model, batch)
        optimizer.update(model, grads)
        new_state = nnx.state((model, optimizer))
        return new_state, {"loss": loss, **metrics}

    def data(shape, dtype):
        spec = P("data", *([None] * (len(shape) - 1)))
        return jax.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(mesh, spec))

    batch = {
        "chosen": data((PAIRS, SEQ), jnp.int32),
        "chosen_len": data((PAIRS,), jnp.int32),
        "rejected": data((PAIRS, SEQ), jnp.int32),
        "rejected_len": data((PAIRS,), jnp.int32),
        "margin": data((PAIRS,), jnp.float32),
        "attr_present": data((PAIRS, ATTRIBUTES), jnp.float32),
        "chosen_attr": data((PAIRS, ATTRIBUTES), jnp.float32),
        "rejected_attr": data((PAIRS, ATTRIBUTES), jnp.float32),
    }
    return train_step, (state, batch)
