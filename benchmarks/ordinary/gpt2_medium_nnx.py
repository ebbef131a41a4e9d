TRUTH = """
# gpt2_medium_nnx - GPT-2 medium (24 layers, d 1024, 16 heads, 355 M) pretraining; flax.nnx scan + remat, data 4 x model 2, optax AdamW

1. Order: token embedding (vocab split over model) + position embedding -> **blocks: loop x24** over stacked parameters { LayerNorm, fused qkv, causal attention 1024x1024, out projection, residual, LayerNorm, MLP 1024-4096-1024 GELU, residual } -> final LayerNorm -> **tied head** (50304) -> cross entropy -> backward: cross entropy, head, **loop x24 reversed** { recompute the block's forward, its backward }, embedding scatter-add joined with the head's gradient of the same table -> clip by global norm -> AdamW (cosine schedule, decay on matrices - stacked biases are 2-D here so they are decayed too).
2. Work ~102 TF for 32 x 1024 tokens: blocks 90%, head + loss 10%. In a block: MLP 57%, qkv + out 29%, scores/values 14% (full square, causal only by mask). Forward 26%, recompute 22.5%, backward 52%. Optimizer ~0 FLOPs.
3. Loops: forward scan x24; backward scan x24. (nothing else)
4. Device axes: data (4): batch; gradient all-reduce. model (2): tensor parallel - c_attn and c_fc by columns, c_proj by rows, embedding by vocabulary. Collectives: all-reduce over model after attention's out projection and after the MLP in every forward block, the recompute and (for input gradients) the backward; one for the embedding lookup; small ones for the logsumexp over the split vocabulary; gradient all-reduce over data (inside the backward loop or after). The fused qkv's column split does not fall on q|k|v borders (3072/2 cuts through k), so resharding (all-to-all / collective-permute) shows up in attention.
5. First picture: embed -> block x24 (attention, MLP) -> head + cross entropy -> backward: head, block x24 { recompute, backward } -> clip -> AdamW.
6. Arrows: x around the loop; stacked block parameters sliced per iteration; the saved x of each of the 24 iterations -> backward loop; the wte table to both lookup and head; gradients stacked out of the backward loop.
7. Should not stand out: mask, iota positions, casts, learning-rate schedule, weight-decay masks, gradient-norm metric.
8. Typically wrong: recompute called a second forward or left out; head not seen as tied with the embedding; the loop reported as time or microbatch loop; the tuple shuffling of nnx.scan as work; resharding copies named as real parts.
"""

"""GPT-2 medium pretraining step. flax.nnx, layers stacked with nnx.vmap + nnx.scan, dp x tp."""
import dataclasses
import re

import jax
import jax.numpy as jnp
import optax
from flax import nnx
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

MESH = {"data": 4, "model": 2}


@dataclasses.dataclass(frozen=True)
class GPTConfig:
    vocab: int = 50304
    block_size: int = 1024
    n_layer: int = 24
    n_head: int = 16
    n_embd: int = 1024
    batch: int = 32


cfg = GPTConfig()


class CausalSelfAttention(nnx.Module):
    def __init__(self, rngs: nnx.Rngs):
        d = cfg.n_embd
        init = nnx.initializers.normal(0.02)
        self.c_attn = nnx.Linear(d, 3 * d, kernel_init=init, dtype=jnp.bfloat16, rngs=rngs)
        self.c_proj = nnx.Linear(
            d,
            d,
            kernel_init=nnx.initializers.normal(0.02 / (2 * cfg.n_layer) ** 0.5),
            dtype=jnp.bfloat16,
            rngs=rngs,
        )

    def __call__(self, x):
        b, t, d = x.shape
        q, k, v = jnp.split(self.c_attn(x), 3, axis=-1)
        q, k, v = (a.reshape(b, t, cfg.n_head, d // cfg.n_head) for a in (q, k, v))
        y = jax.nn.dot_product_attention(q, k, v, is_causal=True)
        return self.c_proj(y.reshape(b, t, d))


class MLP(nnx.Module):
    def __init__(self, rngs: nnx.Rngs):
        d = cfg.n_embd
        self.c_fc = nnx.Linear(
            d, 4 * d, kernel_init=nnx.initializers.normal(0.02), dtype=jnp.bfloat16, rngs=rngs
        )
        self.c_proj = nnx.Linear(
            4 * d,
            d,
            kernel_init=nnx.initializers.normal(0.02 / (2 * cfg.n_layer) ** 0.5),
            dtype=jnp.bfloat16,
            rngs=rngs,
        )

    def __call__(self, x):
        return self.c_proj(jax.nn.gelu(self.c_fc(x)))


class Block(nnx.Module):
    def __init__(self, rngs: nnx.Rngs):
        self.ln_1 = nnx.LayerNorm(cfg.n_embd, rngs=rngs)
        self.attn = CausalSelfAttention(rngs)
        self.ln_2 = nnx.LayerNorm(cfg.n_embd, rngs=rngs)
        self.mlp = MLP(rngs)

    def __call__(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class GPT(nnx.Module):
    def __init__(self, rngs: nnx.Rngs):
        self.wte = nnx.Embed(
            cfg.vocab, cfg.n_embd, embedding_init=nnx.initializers.normal(0.02), rngs=rngs
        )
        self.wpe = nnx.Embed(
            cfg.block_size, cfg.n_embd, embedding_init=nnx.initializers.normal(0.02), rngs=rngs
        )

        @nnx.split_rngs(splits=cfg.n_layer)
        @nnx.vmap(in_axes=(0,), out_axes=0)
        def make_blocks(rngs):
            return Block(rngs)

        self.h = make_blocks(rngs)
        self.ln_f = nnx.LayerNorm(cfg.n_embd, rngs=rngs)

    def __call__(self, tokens):
        t = tokens.shape[1]
        x = self.wte(tokens) + self.wpe(jnp.arange(t))
        x = x.astype(jnp.bfloat16)

        @nnx.scan(in_axes=(0, nnx.Carry), out_axes=nnx.Carry)
        @nnx.remat
        def run_blocks(block, x):
            return block(x)

        x = run_blocks(self.h, x)
        x = self.ln_f(x)
        # tied head
        return x.astype(jnp.bfloat16) @ self.wte.embedding[...].T.astype(jnp.bfloat16)


def get_tx():
    lr = optax.warmup_cosine_decay_schedule(0.0, 3e-4, 2000, 600_000, 3e-5)
    return optax.chain(
        optax.clip_by_global_norm(1.0),
        optax.adamw(
            lr,
            b1=0.9,
            b2=0.95,
            weight_decay=0.1,
            mask=lambda p: jax.tree.map(lambda x: x.ndim > 1, p),
        ),
    )


# regex on the parameter path -> partition
RULES = [
    (r"wte.*embedding", P("model", None)),
    (r"c_attn.*kernel", P(None, None, "model")),
    (r"c_fc.*kernel", P(None, None, "model")),
    (r"c_fc.*bias", P(None, "model")),
    (r"c_proj.*kernel", P(None, "model", None)),
]


def spec_of(path):
    name = jax.tree_util.keystr(path)
    for pattern, spec in RULES:
        if re.search(pattern, name):
            return spec
    return P()


def make(mesh):
    tx = get_tx()
    graphdef, params = nnx.split(nnx.eval_shape(lambda: GPT(nnx.Rngs(0))), nnx.Param, ...)[:2]
    opt_state = jax.eval_shape(tx.init, params)

    def shard(tree):
        return jax.tree_util.tree_map_with_path(
            lambda path, x: jax.ShapeDtypeStruct(
                x.shape, x.dtype, sharding=NamedSharding(mesh, spec_of(path))
            ),
            tree,
        )

    params, opt_state = shard(params), shard(opt_state)
    tokens = jax.ShapeDtypeStruct(
        (cfg.batch, cfg.block_size + 1), jnp.int32, sharding=NamedSharding(mesh, P("data"))
    )

    def loss_fn(params, tokens):
        model = nnx.merge(graphdef, params)
        logits = model(tokens[:, :-1]).astype(jnp.float32)
        logits = jax.lax.with_sharding_constraint(
            logits, NamedSharding(mesh, P("data", None, "model"))
        )
        losses = optax.softmax_cross_entropy_with_integer_labels(logits, tokens[:, 1:])
        return losses.mean()

    def train_step(params, opt_state, tokens):
        loss, grads = jax.value_and_grad(loss_fn)(params, tokens)
        updates, opt_state = tx.update(grads, opt_state, params)
        params = optax.apply_updates(params, updates)
        return params, opt_state, {"loss": loss, "gnorm": optax.global_norm(grads)}

    out = jax.tree.map(lambda x: x.sharding, (params, opt_state))
    step = jax.jit(train_step, donate_argnums=(0, 1), out_shardings=(*out, None))
    return step, (params, opt_state, tokens)
