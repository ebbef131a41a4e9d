TRUTH = """
TOP-LEVEL, IN ORDER
- one train_step: (a) loss forward, (b) backward, (c) gradient averaging across devices, (d) optimizer (adamw), (e) global grad-norm / metrics
- forward has two towers: image tower `img` (ViT) and text tower `txt` (TextTower); then the `ring_sigmoid_loss`
- image tower: `embedding` patch conv (16x16) + `pos_embedding`, 8 blocks encoderblock_0..7, `encoder_norm`, attention-pool head `MAPHead_0`, `head`
- text tower: `Embed_0` + pos_embedding, 6 blocks encoderblock_0..5, `encoder_norm`, last token taken, `head`
- both embeddings are l2-normalised, then ring_sigmoid_loss with temperature `t` and bias `b`
COUNTS
- 8 image blocks, 6 text blocks, all unrolled (no layer loop); each block = LayerNorm, attention, residual, LayerNorm, MLP, residual
- no while/scan loop over layers anywhere
- the ring loss is unrolled: 1 positive chunk + 7 ppermute'd negative chunks (8 chunks of logits in total on 8 devices), with 7 collective-permutes forward and (about) 7 in backward
INDEPENDENT
- image tower and text tower do not depend on each other (parallel branches); they first meet in ring_sigmoid_loss
- backward of image tower and of text tower are likewise independent of each other
COMMUNICATION
- data parallel over 8 devices (shard_map), params replicated; all-reduce of gradients (pmean) after backward, before optimizer
SHARES
- image tower ~90% of FLOPs (fwd+bwd), text tower ~9%, loss <1%; forward ~1/3, backward ~2/3, optimizer ~0 matmul FLOPs
- inside an image block the MLP is about 60% and attention (qkv/out + scores) about 40%
MUST NOT BE SHOWN
- no softmax-contrastive (InfoNCE) loss, no all_gather of embeddings, no dropout, no rng, no batch norm, no EMA, no decoder
"""
# SigLIP-style image/text pretraining (big_vision like towers), chunked ring loss.
import functools

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

MESH = {"data": 8}


class MlpBlock(nn.Module):
    mlp_dim: int

    @nn.compact
    def __call__(self, x):
        d = x.shape[-1]
        x = nn.Dense(self.mlp_dim)(x)
        x = nn.gelu(x)
        return nn.Dense(d)(x)


class Encoder1DBlock(nn.Module):
    num_heads: int

    @nn.compact
    def __call__(self, x):
        y = nn.LayerNorm()(x)
        y = nn.MultiHeadDotProductAttention(num_heads=self.num_heads, deterministic=True)(y, y)
        x = x + y
        y = nn.LayerNorm()(x)
        y = MlpBlock(4 * x.shape[-1])(y)
        return x + y


class MAPHead(nn.Module):
    """Multihead Attention Pooling."""

    num_heads: int

    @nn.compact
    def __call__(self, x):
        n, l, d = x.shape
        probe = self.param("probe", nn.initializers.xavier_uniform(), (1, 1, d), x.dtype)
        probe = jnp.tile(probe, [n, 1, 1])
        x = nn.MultiHeadDotProductAttention(num_heads=self.num_heads)(probe, x)
        y = nn.LayerNorm()(x)
        x = x + MlpBlock(4 * d)(y)
        return x[:, 0]


class ViT(nn.Module):
    width: int = 384
    depth: int = 8
    num_heads: int = 6
    out_dim: int = 256

    @nn.compact
    def __call__(self, image):
        x = nn.Conv(self.width, (16, 16), strides=(16, 16), padding="VALID", name="embedding")(
            image
        )
        n, h, w, c = x.shape
        x = x.reshape(n, h * w, c)
        x = x + self.param("pos_embedding", nn.initializers.normal(1 / c**0.5), (1, h * w, c))
        for i in range(self.depth):
            x = Encoder1DBlock(self.num_heads, name=f"encoderblock_{i}")(x)
        x = nn.LayerNorm(name="encoder_norm")(x)
        x = MAPHead(self.num_heads)(x)
        return nn.Dense(self.out_dim, name="head")(x)


class TextTower(nn.Module):
    vocab: int = 32000
    width: int = 256
    depth: int = 6
    num_heads: int = 4
    out_dim: int = 256

    @nn.compact
    def __call__(self, text):
        x = nn.Embed(self.vocab, self.width)(text)
        x = x + self.param(
            "pos_embedding", nn.initializers.normal(0.02), (1, x.shape[1], self.width)
        )
        for i in range(self.depth):
            x = Encoder1DBlock(self.num_heads, name=f"encoderblock_{i}")(x)
        x = nn.LayerNorm(name="encoder_norm")(x)
        x = x[:, -1]
        return nn.Dense(self.out_dim, name="head")(x)


class TwoTowers(nn.Module):
    @nn.compact
    def __call__(self, image, text):
        zimg = ViT(name="img")(image)
        ztxt = TextTower(name="txt")(text)
        zimg = zimg / (jnp.linalg.norm(zimg, axis=-1, keepdims=True) + 1e-8)
        ztxt = ztxt / (jnp.linalg.norm(ztxt, axis=-1, keepdims=True) + 1e-8)
        t = self.param("t", lambda k, s: jnp.log(10.0) * jnp.ones(s), (1,))
        b = self.param("b", lambda k, s: -10.0 * jnp.ones(s), (1,))
        return zimg, ztxt, jnp.exp(t), b


def chunk_loss(zimg, ztxt, t, b, positive):
    logits = zimg @ ztxt.T * t + b
    n = zimg.shape[0]
    m = 2 * jnp.eye(n) - 1 if positive else -jnp.ones((n, n))
    return -jax.nn.log_sigmoid(m * logits).sum(-1).mean()


def ring_sigmoid_loss(zimg, ztxt, t, b, axis="data"):
    n = jax.lax.axis_size(axis)
    loss = chunk_loss(zimg, ztxt, t, b, True)
    perm = [(j, (j + 1) % n) for j in range(n)]
    for _ in range(n - 1):
        ztxt = jax.lax.ppermute(ztxt, axis, perm)
        loss += chunk_loss(zimg, ztxt, t, b, False)
    return loss


def make(mesh):
    model = TwoTowers()
    sched = optax.warmup_cosine_decay_schedule(0.0, 1e-3, 1000, 100_000)
    tx = optax.adamw(sched, b2=0.95, weight_decay=1e-4)

    def loss_fn(params, image, text):
        zimg, ztxt, t, b = model.apply({"params": params}, image, text)
        return ring_sigmoid_loss(zimg, ztxt, t, b)

    @functools.partial(
        jax.shard_map,
        mesh=mesh,
        in_specs=(P(), P("data"), P("data")),
        out_specs=(P(), P()),
        check_vma=False,
    )
    def grads_fn(params, image, text):
        loss, grads = jax.value_and_grad(loss_fn)(params, image, text)
        return jax.lax.pmean(loss, "data"), jax.lax.pmean(grads, "data")

    def train_step(params, opt_state, batch):
        image = batch["image"].astype(jnp.float32) / 127.5 - 1.0
        loss, grads = grads_fn(params, image, batch["text"])
        updates, opt_state = tx.update(grads, opt_state, params)
        params = optax.apply_updates(params, updates)
        metrics = {
            "loss": loss,
            "grad_norm": optax.global_norm(grads),
            "update_norm": optax.global_norm(updates),
        }
        return params, opt_state, metrics

    rep, dp = NamedSharding(mesh, P()), NamedSharding(mesh, P("data"))
    batch = {
        "image": jax.ShapeDtypeStruct((64, 224, 224, 3), jnp.uint8, sharding=dp),
        "text": jax.ShapeDtypeStruct((64, 64), jnp.int32, sharding=dp),
    }
    params = jax.eval_shape(
        lambda k: model.init(k, jnp.zeros((1, 224, 224, 3)), jnp.zeros((1, 64), jnp.int32))[
            "params"
        ],
        jax.random.key(0),
    )
    add = lambda t: jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=rep), t)
    return train_step, (add(params), add(jax.eval_shape(tx.init, params)), batch)
