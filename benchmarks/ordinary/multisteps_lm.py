TRUTH = """
Rebuilt from optax#320 and #472 ("MultiSteps OOM"): Linen language model, 6 layers x 512, vocab 16384, optax.MultiSteps(adamw, 4), plain `jax.jit(train_step)` of a TrainState, one device.
- Parameters: embedding 16384x512 (tied no: head too) 2 x 8.4M + 6 x 3.15M = 35.7M = 136 MiB f32. State = params + m + v + accumulated gradients = 4 x 136 = 545 MiB; nothing is donated: so inputs and outputs are both there: 1.09 GiB for the state, of which 545 MiB would be saved by `donate_argnums=0`. That is the first advice.
- The accumulator costs one copy of the parameters (136 MiB) on top of the gradient: expected of MultiSteps. Remedy for memory in the thread: accumulate inside one step with a scan over microbatches, or apply_every.
- MultiSteps evaluates the inner update under `lax.cond` (or where): either only every 4th step runs adamw (cond), the others only add. Time of the optimizer is that of the branch taken.
- Activations: batch 8 x 512 tokens: logits f32 [8,512,16384] = 256 MiB, and its softmax/gradient another 256 MiB: the largest temporaries, from the loss line. Attention scores [8,8,512,512] f32 64 MiB per layer kept for the backward pass (6 x).
- bf16 is not used: all f32 (dots in f32 on TPU run at bf16x1 by default precision).
- No collectives.
- scores kept: flash attention / remat would help; logits: chunked loss.
"""

"""A Linen language model with optax.MultiSteps."""
import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
from flax.training.train_state import TrainState

VOCAB, WIDTH, LAYERS, HEADS, BATCH, LENGTH = 16384, 512, 6, 8, 8, 512


class Block(nn.Module):
    @nn.compact
    def __call__(self, x):
        h = nn.LayerNorm()(x)
        mask = nn.make_causal_mask(x[..., 0])
        x = x + nn.MultiHeadDotProductAttention(HEADS)(h, h, mask=mask)
        h = nn.LayerNorm()(x)
        return x + nn.Dense(WIDTH)(nn.gelu(nn.Dense(4 * WIDTH)(h)))


class Model(nn.Module):
    @nn.compact
    def __call__(self, tokens):
        x = nn.Embed(VOCAB, WIDTH)(tokens)
        x = x + self.param("positions", nn.initializers.normal(0.02), (LENGTH, WIDTH))
        for _ in range(LAYERS):
            x = Block()(x)
        return nn.Dense(VOCAB, use_bias=False)(nn.LayerNorm()(x))


def make():
    model = Model()
    tx = optax.MultiSteps(optax.adamw(3e-4, weight_decay=0.1), every_k_schedule=4)

    def create():
        params = model.init(jax.random.key(0), jnp.zeros((1, LENGTH), jnp.int32))["params"]
        return TrainState.create(apply_fn=model.apply, params=params, tx=tx)

    def train_step(state, tokens):
        def loss_fn(params):
            logits = state.apply_fn({"params": params}, tokens[:, :-1])
            return optax.softmax_cross_entropy_with_integer_labels(logits, tokens[:, 1:]).mean()

        loss, grads = jax.value_and_grad(loss_fn)(state.params)
        return state.apply_gradients(grads=grads), loss

    state = jax.eval_shape(create)
    return jax.jit(train_step), (state, jax.ShapeDtypeStruct((BATCH, LENGTH + 1), jnp.int32))
