TRUTH = """
One training step (update) of a protein language model (ESM-2 650 M size) in haiku, 64 sequences of 512 residues, 8 devices "data".

update
  corrupt_residues (own jit): 15 % masked, 80/10/10
  loss (forward, hk.transform)
    ProteinLM
      embed (33 symbols), 33 EncoderLayer by hk.layer_stack = scan x33, each hk.remat: attention (norm, query/key/value/out with rotary, 20 heads, padding mask), feed_forward (norm, 1280->5120->1280, gelu); final norm
    lm_head: dense 1280, gelu, norm, project to 33
    structure_head: secondary structure, 8 classes, 2 dense
    distogram_head: left and right 1280->128, outer sum to a 512 x 512 x 128 pair map, 2 residual pair blocks written out (conv 3x3 x2 each, dilations 1 and 2), symmetrised, project to 64 bins
    masked_lm_loss, structure_loss, distogram_loss
  backward: heads, scan x33 with recompute
  optimiser: optax clip + lamb (adam moments, weight decay, trust ratio), polyak average of parameters (ema)

Layers: 33 in one loop. Data parallel only: weights replicated; gradient all-reduce over 8.
Weight: the 33 layers (19.7 M weights each x 512 residues = 10 G MAC a layer a sequence; 333 G in all) and the distogram convs: 262144 cells x 147 k weights x 4 convs = 155 G MAC a sequence,
i.e. nearly half the trunk. lm_head small (33 symbols only): no heavy vocabulary projection.
False would be: heavy vocabulary; distogram_head shown as a trifle or hidden; the pair blocks as layers of the loop; causal attention; the ema as optimiser state of another model; three networks.
First sight: corrupt -> embed -> x33 encoder layers -> three heads (distogram the heavy one) -> losses; backward; lamb; ema.
Names true: corrupt_residues, ProteinLM, EncoderLayer, attention, feed_forward, lm_head, structure_head, distogram_head, PairBlock.
"""

"""ESM-2 650M sized protein language model with structure heads, dm-haiku. Masked residues, secondary structure and a
distogram are learned together; data parallel over 8 devices, LAMB, polyak-averaged weights for evaluation."""
from functools import partial

import haiku as hk
import jax
import jax.numpy as jnp
import optax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

MESH = {"data": 8}
LAYERS, DIM, HEADS, FFN, SYMBOLS = 33, 1280, 20, 5120, 33
BATCH, LENGTH, PAIR_DIM, BINS = 64, 512, 128, 64
MASK, PAD = 32, 1


def rotary(x):
    t, d = x.shape[1], x.shape[-1]
    ang = jnp.arange(t)[:, None] * 10000.0 ** (-jnp.arange(0, d, 2) / d)
    cos, sin = (
        jnp.cos(ang)[None, :, None].astype(x.dtype),
        jnp.sin(ang)[None, :, None].astype(x.dtype),
    )
    a, b = jnp.split(x, 2, -1)
    return jnp.concatenate([a * cos - b * sin, b * cos + a * sin], -1)


def layer_norm(name):
    return hk.LayerNorm(axis=-1, create_scale=True, create_offset=True, name=name)


class EncoderLayer(hk.Module):
    def __call__(self, x, mask):
        x = x + self.attention(x, mask)
        return x + self.feed_forward(x)

    def attention(self, x, mask):
        b, t, _ = x.shape
        h = layer_norm("attention_norm")(x)
        heads = lambda name: hk.Linear(DIM, name=name)(h).reshape(b, t, HEADS, DIM // HEADS)
        q, k, v = rotary(heads("query")), rotary(heads("key")), heads("value")
        scores = jnp.einsum("bthd,bshd->bhts", q, k).astype(jnp.float32) * (DIM // HEADS) ** -0.5
        scores = jnp.where(mask[:, None, None, :], scores, -1e9)
        y = jnp.einsum("bhts,bshd->bthd", jax.nn.softmax(scores, -1).astype(v.dtype), v)
        return hk.Linear(DIM, name="out")(y.reshape(b, t, DIM))

    def feed_forward(self, x):
        h = layer_norm("ffn_norm")(x)
        return hk.Linear(DIM, name="fc2")(
            jax.nn.gelu(hk.Linear(FFN, name="fc1")(h), approximate=False)
        )


class ProteinLM(hk.Module):
    def __call__(self, tokens, mask):
        x = hk.Embed(SYMBOLS, DIM, name="embed")(tokens)
        x = (x * mask[..., None]).astype(jnp.bfloat16)

        def one_layer(x):
            return hk.remat(EncoderLayer(name="layer"))(x, mask)

        x = hk.experimental.layer_stack(LAYERS)(one_layer)(x)
        return layer_norm("final_norm")(x)


class PairBlock(hk.Module):
    def __init__(self, dilation, name=None):
        super().__init__(name=name)
        self.dilation = dilation

    def __call__(self, z):
        h = jax.nn.elu(layer_norm("norm1")(z))
        h = hk.Conv2D(PAIR_DIM, 3, rate=self.dilation, name="conv1")(h)
        h = jax.nn.elu(layer_norm("norm2")(h))
        return z + hk.Conv2D(PAIR_DIM, 3, rate=self.dilation, name="conv2")(h)


class LMHead(hk.Module):
    def __call__(self, x):
        x = layer_norm("norm")(jax.nn.gelu(hk.Linear(DIM, name="dense")(x)))
        return hk.Linear(SYMBOLS, name="project")(x).astype(jnp.float32)


class StructureHead(hk.Module):
    def __call__(self, x):
        x = jax.nn.relu(hk.Linear(256, name="dense")(x))
        return hk.Linear(8, name="classes")(x).astype(jnp.float32)


class DistogramHead(hk.Module):
    def __call__(self, x):
        left, right = hk.Linear(PAIR_DIM, name="left")(x), hk.Linear(PAIR_DIM, name="right")(x)
        z = left[:, :, None] + right[:, None, :]
        z = PairBlock(1, name="pair0")(z)
        z = PairBlock(2, name="pair1")(z)
        z = 0.5 * (z + jnp.swapaxes(z, 1, 2))
        return hk.Linear(BINS, name="bins")(z).astype(jnp.float32)


def network(tokens):
    mask = tokens != PAD
    x = ProteinLM(name="protein_lm")(tokens, mask)
    return (
        LMHead(name="lm_head")(x),
        StructureHead(name="structure_head")(x),
        DistogramHead(name="distogram_head")(x),
    )


@jax.jit
def corrupt_residues(key, tokens):
    k1, k2, k3 = jax.random.split(key, 3)
    chosen = (jax.random.uniform(k1, tokens.shape) < 0.15) & (tokens != PAD)
    kind = jax.random.uniform(k2, tokens.shape)
    other = jax.random.randint(k3, tokens.shape, 4, 24)
    noisy = jnp.where(kind < 0.8, MASK, jnp.where(kind < 0.9, other, tokens))
    return jnp.where(chosen, noisy, tokens), chosen


def masked_lm_loss(logits, tokens, chosen):
    ce = optax.softmax_cross_entropy_with_integer_labels(logits, tokens)
    return jnp.sum(ce * chosen) / jnp.maximum(chosen.sum(), 1)


def structure_loss(logits, labels):
    known = labels >= 0
    ce = optax.softmax_cross_entropy_with_integer_labels(logits, jnp.maximum(labels, 0))
    return jnp.sum(ce * known) / jnp.maximum(known.sum(), 1)


def distogram_loss(logits, coordinates, known):
    d2 = jnp.sum(jnp.square(coordinates[:, :, None] - coordinates[:, None]), -1)
    edges = jnp.square(jnp.linspace(2.3, 21.7, BINS - 1))
    labels = jnp.sum(d2[..., None] > edges, -1)
    pair = (known[:, :, None] & known[:, None]).astype(jnp.float32)
    ce = optax.softmax_cross_entropy_with_integer_labels(logits, labels)
    return jnp.sum(ce * pair) / jnp.maximum(pair.sum(), 1.0)


def make(mesh):
    model = hk.without_apply_rng(hk.transform(network))
    schedule = optax.warmup_cosine_decay_schedule(0.0, 1e-3, 5000, 200_000)
    optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.lamb(schedule, weight_decay=0.01))

    def loss(params, tokens, chosen, batch):
        half = jax.tree.map(lambda p: p.astype(jnp.bfloat16), params)
        lm, ss, dist = model.apply(half, tokens)
        parts = {
            "lm": masked_lm_loss(lm, batch["tokens"], chosen),
            "structure": structure_loss(ss, batch["structure"]),
            "distogram": distogram_loss(dist, batch["coordinates"], batch["resolved"]),
        }
        return parts["lm"] + 0.2 * parts["structure"] + 0.3 * parts["distogram"], parts

    @partial(jax.jit, donate_argnums=(0, 1, 2))
    def update(params, ema, opt_state, batch, key):
        tokens, chosen = corrupt_residues(key, batch["tokens"])
        (total, parts), grads = jax.value_and_grad(loss, has_aux=True)(
            params, tokens, chosen, batch
        )
        updates, opt_state = optimizer.update(grads, opt_state, params)
        params = optax.apply_updates(params, updates)
        ema = optax.incremental_update(params, ema, 0.001)
        return params, ema, opt_state, {"loss": total, **parts}

    rep, rows = NamedSharding(mesh, P()), NamedSharding(mesh, P("data"))
    placed = lambda tree: jax.tree.map(
        lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=rep), tree
    )
    params = jax.eval_shape(
        model.init, jax.random.PRNGKey(0), jax.ShapeDtypeStruct((1, LENGTH), jnp.int32)
    )
    opt_state = jax.eval_shape(optimizer.init, params)
    S = lambda s, d: jax.ShapeDtypeStruct(s, d, sharding=rows)
    batch = {
        "tokens": S((BATCH, LENGTH), jnp.int32),
        "structure": S((BATCH, LENGTH), jnp.int32),
        "coordinates": S((BATCH, LENGTH, 3), jnp.float32),
        "resolved": S((BATCH, LENGTH), jnp.bool_),
    }
    key = jax.ShapeDtypeStruct((2,), jnp.uint32, sharding=rep)
    return update, (placed(params), placed(params), placed(opt_state), batch, key)
