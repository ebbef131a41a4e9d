TRUTH = """
One ELECTRA pre-training step (function train_step), data parallel on 8 devices, batch 128 (16 per device) x 512 tokens.

train_step
  loss_fn (forward; value_and_grad)
    Electra
      embeddings (Embeddings: word, position, norm) -- CALLED TWICE (masked ids; corrupted ids), one shared table
      generator (Encoder, width 256, 4 heads, ffn 1024)
        embeddings_project 768 -> 256
        layers: scan of 12 EncoderLayer, remat
          attention (SelfAttention: query, key, value, out), attention_norm, intermediate, output, output_norm
      mlm_head: gather 77 positions, mlm_dense, mlm_norm, embeddings.attend (tied vocab projection 30522)
      sampling: gumbel + argmax, paste into ids (stop_gradient; no backward)
      discriminator (Encoder, width 768, 12 heads, ffn 3072)
        layers: scan of 12 EncoderLayer, remat (same class, own loop, own weights)
      rtd_head: rtd_dense, rtd_prediction -> binary
    losses: mlm cross entropy + 50 x rtd binary cross entropy
  backward: discriminator loop of 12 (recompute + gradients), rtd_head; generator loop of 12 (recompute + gradients), mlm_head; embeddings
  gradient all-reduce over "data" (8 devices)
  optimiser: clip_by_global_norm, adamw, apply_updates (elementwise)

Weight: discriminator >> generator (about 9x in matmul flops of the layers); the tied vocab projection on 128 x 77
positions costs about as much as one or two discriminator layers, not more. Backward + recompute about 3x forward.
First sight: two networks side by side, generator and discriminator, each a loop x12; four while loops in all
(2 forward, 2 backward). Names generator / discriminator / layers / attention / intermediate / output are true.
False would be: one merged loop of 24 layers; 12 drawn as one layer without a count; generator and discriminator
confused because they share the class EncoderLayer; showing sampling as having a backward; two separate
embedding tables; the optimiser as heavy as a network; the recompute called "forward" a second time without saying so.
"""

"""ELECTRA-base pre-training: replaced token detection. Flax linen, data parallel on 8 devices.

A small generator fills the masked positions, a sample of its guesses is pasted into the
sentence, and the discriminator says for every token whether it was replaced.
"""

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

MESH = {"data": 8}

VOCAB, SEQ, BATCH, N_PRED = 30522, 512, 128, 77
EMB = 768
LAYERS = 12
RTD_WEIGHT = 50.0


class Embeddings(nn.Module):
    """Word + position + type table, shared by both networks."""

    def setup(self):
        init = nn.initializers.normal(0.02)
        self.word = nn.Embed(VOCAB, EMB, embedding_init=init)
        self.position = nn.Embed(SEQ, EMB, embedding_init=init)
        self.norm = nn.LayerNorm(epsilon=1e-12)

    def __call__(self, ids):
        x = self.word(ids) + self.position(jnp.arange(ids.shape[-1]))[None]
        return self.norm(x).astype(jnp.bfloat16)

    def attend(self, x):
        return self.word.attend(x)


class SelfAttention(nn.Module):
    width: int
    heads: int

    @nn.compact
    def __call__(self, x, bias, deterministic):
        hd = self.width // self.heads
        dense = lambda name: nn.DenseGeneral((self.heads, hd), dtype=jnp.bfloat16, name=name)
        q, k, v = dense("query")(x), dense("key")(x), dense("value")(x)
        s = jnp.einsum("bqhd,bkhd->bhqk", q, k).astype(jnp.float32) / jnp.sqrt(hd)
        p = jax.nn.softmax(s + bias, axis=-1).astype(jnp.bfloat16)
        p = nn.Dropout(0.1)(p, deterministic=deterministic)
        o = jnp.einsum("bhqk,bkhd->bqhd", p, v)
        return nn.DenseGeneral(self.width, axis=(-2, -1), dtype=jnp.bfloat16, name="out")(o)


class EncoderLayer(nn.Module):
    width: int
    heads: int
    ffn: int

    @nn.compact
    def __call__(self, x, bias, deterministic):
        a = SelfAttention(self.width, self.heads, name="attention")(x, bias, deterministic)
        x = nn.LayerNorm(dtype=jnp.bfloat16, name="attention_norm")(x + a)
        h = nn.gelu(nn.Dense(self.ffn, dtype=jnp.bfloat16, name="intermediate")(x))
        h = nn.Dense(self.width, dtype=jnp.bfloat16, name="output")(h)
        h = nn.Dropout(0.1)(h, deterministic=deterministic)
        return nn.LayerNorm(dtype=jnp.bfloat16, name="output_norm")(x + h), None


class Encoder(nn.Module):
    width: int
    heads: int
    ffn: int

    @nn.compact
    def __call__(self, x, mask, deterministic=False):
        bias = jnp.where(mask, 0.0, -1e9)[:, None, None, :]
        if x.shape[-1] != self.width:
            x = nn.Dense(self.width, dtype=jnp.bfloat16, name="embeddings_project")(x)
        layer = nn.remat(EncoderLayer, prevent_cse=False, static_argnums=(3,))
        stack = nn.scan(
            layer,
            variable_axes={"params": 0},
            split_rngs={"params": True, "dropout": True},
            in_axes=(nn.broadcast, nn.broadcast),
            length=LAYERS,
        )
        x, _ = stack(self.width, self.heads, self.ffn, name="layers")(x, bias, deterministic)
        return x


class Electra(nn.Module):
    def setup(self):
        self.embeddings = Embeddings()
        self.generator = Encoder(256, 4, 1024)
        self.discriminator = Encoder(768, 12, 3072)
        self.mlm_dense = nn.Dense(EMB, dtype=jnp.bfloat16)
        self.mlm_norm = nn.LayerNorm(dtype=jnp.bfloat16)
        self.rtd_dense = nn.Dense(768, dtype=jnp.bfloat16)
        self.rtd_prediction = nn.Dense(1)

    def mlm_head(self, x, positions):
        x = jnp.take_along_axis(x, positions[..., None], axis=1)
        x = self.mlm_norm(nn.gelu(self.mlm_dense(x)))
        return self.embeddings.attend(x).astype(jnp.float32)

    def rtd_head(self, x):
        return self.rtd_prediction(nn.gelu(self.rtd_dense(x)))[..., 0].astype(jnp.float32)

    def __call__(self, batch):
        ids, mask, pos, labels = batch["ids"], batch["mask"], batch["positions"], batch["labels"]
        # 1. generator on the masked sentence
        logits = self.mlm_head(self.generator(self.embeddings(ids), mask), pos)
        # 2. sample replacements and paste them in
        gumbel = jax.random.gumbel(self.make_rng("sample"), logits.shape)
        fake = jnp.argmax(jax.lax.stop_gradient(logits) + gumbel, axis=-1)
        corrupt = jax.vmap(lambda i, p, f: i.at[p].set(f))(ids, pos, fake)
        original = jax.vmap(lambda i, p, l: i.at[p].set(l))(ids, pos, labels)
        replaced = (corrupt != original).astype(jnp.float32)
        # 3. discriminator on the corrupted sentence
        rtd = self.rtd_head(self.discriminator(self.embeddings(corrupt), mask))
        return logits, rtd, replaced


def decay_mask(params):
    return jax.tree_util.tree_map_with_path(
        lambda path, _: not any(s in jax.tree_util.keystr(path) for s in ("norm", "bias")), params
    )


def make(mesh):
    model = Electra()
    schedule = optax.warmup_cosine_decay_schedule(0.0, 2e-4, 10_000, 1_000_000)
    tx = optax.chain(
        optax.clip_by_global_norm(1.0), optax.adamw(schedule, weight_decay=0.01, mask=decay_mask)
    )

    def loss_fn(params, batch, rng):
        k1, k2 = jax.random.split(rng)
        logits, rtd, replaced = model.apply(
            {"params": params}, batch, rngs={"dropout": k1, "sample": k2}
        )
        mlm = optax.softmax_cross_entropy_with_integer_labels(logits, batch["labels"]).mean()
        bce = optax.sigmoid_binary_cross_entropy(rtd, replaced)
        disc = (bce * batch["mask"]).sum() / batch["mask"].sum()
        return mlm + RTD_WEIGHT * disc, {"mlm": mlm, "rtd": disc}

    def train_step(params, opt_state, batch, step):
        rng = jax.random.fold_in(jax.random.PRNGKey(0), step)
        (_, metrics), grads = jax.value_and_grad(loss_fn, has_aux=True)(params, batch, rng)
        updates, opt_state = tx.update(grads, opt_state, params)
        return optax.apply_updates(params, updates), opt_state, metrics

    rep, dp = NamedSharding(mesh, P()), NamedSharding(mesh, P("data"))
    S = jax.ShapeDtypeStruct
    batch = {
        "ids": S((BATCH, SEQ), jnp.int32, sharding=dp),
        "mask": S((BATCH, SEQ), jnp.bool_, sharding=dp),
        "positions": S((BATCH, N_PRED), jnp.int32, sharding=dp),
        "labels": S((BATCH, N_PRED), jnp.int32, sharding=dp),
    }
    key = jax.random.PRNGKey(0)
    plain = jax.tree.map(lambda x: S(x.shape, x.dtype), batch)
    params = jax.eval_shape(
        lambda b: model.init({"params": key, "dropout": key, "sample": key}, b)["params"], plain
    )
    opt_state = jax.eval_shape(tx.init, params)
    on = lambda t: jax.tree.map(lambda x: S(x.shape, x.dtype, sharding=rep), t)
    step = jax.jit(train_step, donate_argnums=(0, 1))
    return step, (on(params), on(opt_state), batch, S((), jnp.int32, sharding=rep))
