TRUTH = """
# softmoe_video - video classifier, 4 dense + 4 Soft-MoE transformer blocks; equinox + optax, FSDP over data=4 x experts over expert=2 (jit)

1. Order: augment uint8 clips (flip, brightness) -> tubelet projection (392 tokens) + position -> **4 dense blocks** { attention, mlp } -> **4 Soft-MoE blocks** { attention, soft MoE } (8 blocks written out, each rematerialised) -> norm, mean over tokens, head 400 -> cross-entropy -> **backward** blocks 7..0, each { recompute, backward } -> clip, AdamW -> **EMA** of the parameters.
2. Soft MoE: logits of tokens to 384 slots -> dispatch (softmax over tokens) -> **16 experts x 24 slots** up, gelu, down -> combine (softmax over slots). No top-k, no sorting, no dropping.
3. Work ~1.49 TF per step in all: attention (8 blocks) 39%, experts 28%, dense MLPs 25%, routing/dispatch/combine 8%, tubelets 1%. Forward 26%, recompute ~21-26%, backward ~50%. Optimizer and EMA 0%.
4. Collectives: FSDP: all-gather of weights before use (forward and again in recompute/backward), reduce-scatter (or all-reduce) of gradients over data; slots are split over expert (slice), and the expert outputs gathered or reduced over expert at combine.
5. First picture: augment -> tubelets -> dense block x4 -> Soft-MoE block x4 -> head/loss -> backward Soft-MoE x4, dense x4 -> AdamW -> EMA.
6. Arrows: residual stream; saved block inputs to the backward; parameters gathered into blocks; new parameters -> EMA.
7. Should not stand out: casts to bf16, softmaxes, patch transposes, random augmentations, clip.
8. Misleading: folding all 8 blocks as one kind; data=4 equals 4 + 4 blocks by chance; expert all-to-alls should not be claimed unless present.
"""

"""Video classification with a Soft-MoE vision transformer.  FSDP over "data", experts over "expert"."""
import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

MESH = {"data": 4, "expert": 2}

FRAMES, SIZE, TUBE, PATCH = 16, 112, 2, 16
TOKENS = (FRAMES // TUBE) * (SIZE // PATCH) ** 2
DIM, DEPTH, HEADS, DENSE_LAYERS = 512, 8, 8, 4
EXPERTS, SLOTS = 16, 24
CLASSES, BATCH = 400, 16


class Norm(eqx.Module):
    scale: jax.Array

    def __call__(self, x):
        x32 = x.astype(jnp.float32)
        x32 = x32 - x32.mean(-1, keepdims=True)
        return (x32 * jax.lax.rsqrt(jnp.square(x32).mean(-1, keepdims=True) + 1e-6)).astype(
            x.dtype
        ) * self.scale.astype(x.dtype)


def weight(key, *shape):
    return jr.normal(key, shape) / np.sqrt(shape[-2])


class SelfAttention(eqx.Module):
    norm: Norm
    qkv: jax.Array
    out: jax.Array

    def __init__(self, key):
        k1, k2 = jr.split(key)
        self.norm = Norm(jnp.ones(DIM))
        self.qkv, self.out = weight(k1, DIM, 3 * DIM), weight(k2, DIM, DIM)

    def __call__(self, x):
        b, t, _ = x.shape
        qkv = self.norm(x) @ self.qkv.astype(x.dtype)
        q, k, v = jnp.moveaxis(qkv.reshape(b, t, 3, HEADS, -1), 2, 0)
        return x + jax.nn.dot_product_attention(q, k, v).reshape(b, t, DIM) @ self.out.astype(
            x.dtype
        )


class Mlp(eqx.Module):
    norm: Norm
    up: jax.Array
    down: jax.Array

    def __init__(self, key):
        k1, k2 = jr.split(key)
        self.norm = Norm(jnp.ones(DIM))
        self.up, self.down = weight(k1, DIM, 4 * DIM), weight(k2, 4 * DIM, DIM)

    def __call__(self, x):
        return x + jax.nn.gelu(self.norm(x) @ self.up.astype(x.dtype)) @ self.down.astype(x.dtype)


class SoftMoE(eqx.Module):
    """every slot is a convex combination of the tokens, every token one of the slots"""

    norm: Norm
    phi: jax.Array
    temperature: jax.Array
    up: jax.Array
    down: jax.Array

    def __init__(self, key):
        k1, k2, k3 = jr.split(key, 3)
        self.norm = Norm(jnp.ones(DIM))
        self.phi, self.temperature = weight(k1, DIM, EXPERTS * SLOTS), jnp.ones(())
        self.up, self.down = weight(k2, EXPERTS, DIM, 4 * DIM), weight(k3, EXPERTS, 4 * DIM, DIM)

    def __call__(self, x):
        h = self.norm(x)
        unit = lambda a, axis: a * jax.lax.rsqrt(jnp.square(a).sum(axis, keepdims=True) + 1e-6)
        logits = unit(h, -1) @ (self.temperature * unit(self.phi, 0)).astype(h.dtype)
        logits = logits.astype(jnp.float32)
        dispatch = jax.nn.softmax(logits, 1).astype(h.dtype)
        combine = jax.nn.softmax(logits, 2).astype(h.dtype)
        slots = jnp.einsum("bts,btd->bsd", dispatch, h).reshape(-1, EXPERTS, SLOTS, DIM)
        slots = jax.lax.with_sharding_constraint(slots, P("data", "expert"))
        y = jax.nn.gelu(jnp.einsum("besd,edf->besf", slots, self.up.astype(h.dtype)))
        y = jnp.einsum("besf,efd->besd", y, self.down.astype(h.dtype)).reshape(
            -1, EXPERTS * SLOTS, DIM
        )
        return x + jnp.einsum("bts,bsd->btd", combine, y)


class Block(eqx.Module):
    attention: SelfAttention
    ff: Mlp | SoftMoE

    def __call__(self, x):
        return self.ff(self.attention(x))


class VideoSoftMoE(eqx.Module):
    tubelet: jax.Array
    pos: jax.Array
    blocks: list[Block]
    norm: Norm
    head: jax.Array

    def __init__(self, key):
        k0, k1, k2, *ks = jr.split(key, 3 + 2 * DEPTH)
        self.tubelet = weight(k0, TUBE * PATCH * PATCH * 3, DIM)
        self.pos = 0.02 * jr.normal(k1, (TOKENS, DIM))
        self.blocks = [
            Block(SelfAttention(ks[2 * i]), (Mlp if i < DENSE_LAYERS else SoftMoE)(ks[2 * i + 1]))
            for i in range(DEPTH)
        ]
        self.norm, self.head = Norm(jnp.ones(DIM)), weight(k2, DIM, CLASSES)

    def __call__(self, video):
        b = video.shape[0]
        n = SIZE // PATCH
        x = video.reshape(b, FRAMES // TUBE, TUBE, n, PATCH, n, PATCH, 3)
        x = x.transpose(0, 1, 3, 5, 2, 4, 6, 7).reshape(b, TOKENS, -1).astype(jnp.bfloat16)
        x = x @ self.tubelet.astype(x.dtype) + self.pos.astype(x.dtype)
        for block in self.blocks:
            x = jax.lax.with_sharding_constraint(x, P("data", None, None))
            x = eqx.filter_checkpoint(block)(x)
        return (self.norm(x).mean(1) @ self.head.astype(x.dtype)).astype(jnp.float32)


def augment(key, video):
    """flip, brightness, then to [-1, 1]"""
    k1, k2 = jr.split(key)
    flip = jr.bernoulli(k1, 0.5, (video.shape[0], 1, 1, 1, 1))
    video = jnp.where(flip, video[:, :, :, ::-1], video).astype(jnp.float32) / 127.5 - 1
    return video * jr.uniform(k2, (video.shape[0], 1, 1, 1, 1), minval=0.8, maxval=1.2)


def loss_fn(model, video, label):
    logits = model(video)
    return optax.softmax_cross_entropy_with_integer_labels(logits, label).mean(), (
        logits.argmax(-1) == label
    ).mean()


optim = optax.chain(
    optax.clip_by_global_norm(1.0),
    optax.adamw(optax.linear_schedule(0, 5e-4, 2000), weight_decay=0.05),
)


def train_step(model, opt_state, ema, key, video, label):
    video = augment(key, video)
    (loss, acc), grads = eqx.filter_value_and_grad(loss_fn, has_aux=True)(model, video, label)
    updates, opt_state = optim.update(grads, opt_state, model)
    model = eqx.apply_updates(model, updates)
    ema = jax.tree.map(lambda e, p: 0.9998 * e + 0.0002 * p, ema, model)
    return model, opt_state, ema, {"loss": loss, "acc": acc}


def fsdp_spec(x):
    """experts on "expert", and the largest remaining dimension on "data" """
    spec = [None] * x.ndim
    if x.ndim == 3 and x.shape[0] == EXPERTS:
        spec[0] = "expert"
    sizes = [0 if s else n for n, s in zip(x.shape, spec)]
    if x.size > 65536 and max(sizes) % MESH["data"] == 0:
        spec[int(np.argmax(sizes))] = "data"
    return P(*spec)


def make(mesh):
    S = lambda s, spec, d=jnp.float32: jax.ShapeDtypeStruct(
        s, d, sharding=NamedSharding(mesh, spec)
    )
    model = jax.eval_shape(lambda: VideoSoftMoE(jr.PRNGKey(0)))
    opt_state = jax.eval_shape(optim.init, model)
    shard = lambda t: jax.tree.map(lambda x: S(x.shape, fsdp_spec(x), x.dtype), t)
    model, opt_state = shard(model), shard(opt_state)
    out = jax.tree.map(lambda x: x.sharding, (model, opt_state, model))

    def step(*args):
        with jax.sharding.use_abstract_mesh(mesh.abstract_mesh):
            return train_step(*args)

    video = S((BATCH, FRAMES, SIZE, SIZE, 3), P("data"), jnp.uint8)
    jitted = jax.jit(step, donate_argnums=(0, 1, 2), out_shardings=(*out, None))
    return jitted, (
        model,
        opt_state,
        model,
        S((2,), P(), jnp.uint32),
        video,
        S((BATCH,), P("data"), jnp.int32),
    )
