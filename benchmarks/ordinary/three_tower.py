"""Image / audio / text contrastive model (three towers, three pairwise InfoNCE losses), haiku, data parallel with shard_map over 8 devices."""

TRUTH = """
IN ORDER
- `train_step`: three towers forward -> all-gather -> mean pool + projection + l2 norm -> three InfoNCE losses (image-text, image-audio, audio-text) summed
  -> backward -> pmean of gradients over `data` -> adamw
COUNTS
- `image_tower`: 16x16 patch conv, 196 tokens, 6 blocks, width 512; `audio_tower`: 16x16 patches of a 128x256 spectrogram, 128 tokens, 6 blocks, width 512;
  `text_tower`: embedding (32000), 64 tokens, 6 blocks, width 512. 18 blocks in total, unrolled, no loops. block = LN, attention, LN, MLP
- three losses of 128 x 128 logits over the global batch (local 16 rows x 128 columns)
INDEPENDENT
- the three towers are independent of each other (forward and backward); meet only in the losses; the three pair losses are independent
HEAVY
- image tower ~ 50 %, audio ~ 33 %, text ~ 17 %; losses ~ 0
COMMUNICATION
- 3 all-gathers of the features, their transposes (reduce-scatters) in backward, gradient all-reduce (~ 3 x 19 M + 16 M = ~ 75 M f32 = 300 MB)
PERFORMANCE (deliberate flaw)
- the all-gathers take all TOKENS (before the pooling) instead of the pooled embedding: [128, 196, 512] f32 = 51 MB, [128, 128, 512] = 34 MB,
  [128, 64, 512] = 17 MB instead of 3 x 0.13 MB; each device then pools and projects the whole global batch again (8x repeated work), and the
  backward reduce-scatters as much
- state is donated; f32
"""
from collections.abc import Mapping

import haiku as hk
import jax
import jax.numpy as jnp
import optax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

MESH = {"data": 8}
WIDTH, DEPTH, HEADS, EMBED, BATCH = 512, 6, 8, 256, 128


def layer_norm(x):
    return hk.LayerNorm(-1, create_scale=True, create_offset=True)(x)


class Block(hk.Module):
    def __call__(self, x):
        init = hk.initializers.VarianceScaling(1.0)
        y = layer_norm(x)
        x = x + hk.MultiHeadAttention(HEADS, WIDTH // HEADS, w_init=init, name="attn")(y, y, y)
        y = layer_norm(x)
        return x + hk.nets.MLP([4 * WIDTH, WIDTH], activation=jax.nn.gelu, name="mlp")(y)


class Tower(hk.Module):
    """A pre-norm encoder over tokens that are embedded already."""

    def __call__(self, x):
        pos = hk.get_parameter(
            "pos", (x.shape[1], WIDTH), init=hk.initializers.TruncatedNormal(0.02)
        )
        x = x + pos
        for i in range(DEPTH):
            x = Block(name=f"block_{i}")(x)
        return layer_norm(x)


def patches(x, name):
    x = hk.Conv2D(WIDTH, 16, 16, padding="VALID", name=name)(x)
    return x.reshape(x.shape[0], -1, WIDTH)


def towers(batch: Mapping[str, jax.Array]):
    image = batch["image"].astype(jnp.float32) / 127.5 - 1
    return {
        "image": Tower(name="image_tower")(patches(image, "image_patches")),
        "audio": Tower(name="audio_tower")(patches(batch["audio"][..., None], "audio_patches")),
        "text": Tower(name="text_tower")(hk.Embed(32000, WIDTH, name="token_embed")(batch["text"])),
    }


def pool_and_project(features):
    out = {}
    for name, tokens in features.items():
        z = hk.Linear(EMBED, with_bias=False, name=f"{name}_projection")(tokens.mean(1))
        out[name] = z * jax.lax.rsqrt(jnp.sum(z * z, -1, keepdims=True) + 1e-8)
    scale = hk.get_parameter("logit_scale", (3,), init=hk.initializers.Constant(2.66))
    return out, jnp.exp(scale)


def info_nce(a, b, scale, start, n):
    """Rows of this device against the columns of the whole batch, both ways."""
    labels = start + jnp.arange(n)
    mine = lambda z: jax.lax.dynamic_slice_in_dim(z, start, n)
    xent = optax.softmax_cross_entropy_with_integer_labels
    ab = xent(scale * mine(a) @ b.T, labels).mean()
    ba = xent(scale * mine(b) @ a.T, labels).mean()
    return 0.5 * (ab + ba)


def forward(batch):
    features = towers(batch)
    n = batch["text"].shape[0]
    if hk.running_init():
        return pool_and_project(features)
    features = {k: jax.lax.all_gather(v, "data", tiled=True) for k, v in features.items()}
    z, scale = pool_and_project(features)
    start = jax.lax.axis_index("data") * n
    logs = {}
    for i, (a, b) in enumerate((("image", "text"), ("image", "audio"), ("audio", "text"))):
        with jax.named_scope(f"loss_{a}_{b}"):
            logs[f"{a}_{b}"] = info_nce(z[a], z[b], scale[i], start, n)
    return sum(logs.values()), logs


model = hk.without_apply_rng(hk.transform(forward))


def make(mesh):
    tx = optax.adamw(
        optax.warmup_cosine_decay_schedule(0, 5e-4, 2000, 100_000), b2=0.98, weight_decay=0.2
    )

    def local_grads(params, batch):
        (loss, logs), grads = jax.value_and_grad(model.apply, has_aux=True)(params, batch)
        return jax.lax.pmean(grads, "data"), jax.lax.pmean(logs | {"loss": loss}, "data")

    def train_step(params, opt_state, batch):
        grads, logs = jax.shard_map(
            local_grads, mesh=mesh, in_specs=(P(), P("data")), out_specs=P(), check_vma=False
        )(params, batch)
        updates, opt_state = tx.update(grads, opt_state, params)
        return optax.apply_updates(params, updates), opt_state, logs

    rep, dp = NamedSharding(mesh, P()), NamedSharding(mesh, P("data"))
    S = lambda s, d: jax.ShapeDtypeStruct(s, d, sharding=dp)
    batch = {
        "image": S((BATCH, 224, 224, 3), jnp.uint8),
        "audio": S((BATCH, 128, 256), jnp.float32),
        "text": S((BATCH, 64), jnp.int32),
    }
    params = jax.eval_shape(model.init, jax.eval_shape(lambda: jax.random.PRNGKey(0)), batch)
    put = lambda t: jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=rep), t)
    step = jax.jit(train_step, donate_argnums=(0, 1))
    return step, (put(params), put(jax.eval_shape(tx.init, params)), batch)
