TRUTH = """
TOP-LEVEL, IN ORDER
- train_step: loop of gradient accumulation over 4 microbatches (each: flip augmentation, U-Net forward, loss, backward, add gradients, update batch-norm averages) -> mean of gradients -> one optimizer update (sgd nesterov with poly decay)
- UNet3D: encoder of 4 levels (DoubleConv, then 2x max-pool) -> `bottleneck` DoubleConv -> decoder of 4 levels (ConvTranspose 2x up, concat skip, DoubleConv) -> `head` 1x1x1 conv; a deep-supervision head on the second-highest decoder level
- loss: soft Dice + cross entropy on the full-resolution output, + 0.5 * same loss on the half-resolution output
COUNTS
- ONE loop of the author's (those of the random generator do not count), 4 iterations (microbatches); forward AND backward are both inside this loop
- 4 encoder levels, 1 bottleneck, 4 decoder levels; 9 DoubleConvs = 18 3x3x3 convs, 4 transposed convs, 2 heads (1x1x1); all unrolled within the body
- channels 16, 32, 64, 128, bottleneck 256; resolution 64^3 -> 32 -> 16 -> 8 -> 4
INDEPENDENT
- in each decoder level the skip (from encoder) and the upsampled path are separate inputs; the two heads/losses are independent of each other
- backward of one head and the other likewise
SHARES
- FLOPs concentrated at high resolution: last decoder level (self.up[3], 64^3) is the largest (~36%), the one before it (32^3) ~18%, encoder level 0 ~15%; bottleneck only ~1%
- decoder ~2/3, encoder ~30%; forward ~1/3, backward ~2/3; optimizer ~0 (once per step, outside the loop)
MUST NOT BE SHOWN
- no attention, no transformer, no layer loop, no Adam, no EMA, no collectives, optimizer must not be inside the loop
"""
"""3-D U-Net for volumetric segmentation (BraTS like patches), Flax NNX with gradient accumulation."""
import jax
import jax.numpy as jnp
import optax
from flax import nnx

CLASSES, PATCH, MICRO, ACCUM, MODALITIES = 4, 64, 1, 4, 4
WIDTHS = (16, 32, 64, 128)


class ConvBlock(nnx.Module):
    def __init__(self, cin, cout, rngs):
        self.conv = nnx.Conv(cin, cout, (3, 3, 3), use_bias=False, rngs=rngs)
        self.bn = nnx.BatchNorm(cout, momentum=0.95, rngs=rngs)

    def __call__(self, x):
        return nnx.leaky_relu(self.bn(self.conv(x)), 0.01)


class DoubleConv(nnx.Module):
    def __init__(self, cin, cout, rngs):
        self.first = ConvBlock(cin, cout, rngs)
        self.second = ConvBlock(cout, cout, rngs)

    def __call__(self, x):
        return self.second(self.first(x))


class Up(nnx.Module):
    def __init__(self, cin, cout, rngs):
        self.upsample = nnx.ConvTranspose(cin, cout, (2, 2, 2), strides=(2, 2, 2), rngs=rngs)
        self.conv = DoubleConv(2 * cout, cout, rngs)

    def __call__(self, x, skip):
        x = self.upsample(x)
        return self.conv(jnp.concatenate([skip, x], axis=-1))


class UNet3D(nnx.Module):
    def __init__(self, rngs):
        cin, down = MODALITIES, []
        for w in WIDTHS:
            down.append(DoubleConv(cin, w, rngs))
            cin = w
        self.down = nnx.List(down)
        self.bottleneck = DoubleConv(cin, 2 * cin, rngs)
        cin, up = 2 * cin, []
        for w in reversed(WIDTHS):
            up.append(Up(cin, w, rngs))
            cin = w
        self.up = nnx.List(up)
        self.head = nnx.Conv(WIDTHS[0], CLASSES, (1, 1, 1), rngs=rngs)
        self.aux_head = nnx.Conv(WIDTHS[1], CLASSES, (1, 1, 1), rngs=rngs)

    def __call__(self, x):
        skips = []
        for block in self.down:
            x = block(x)
            skips.append(x)
            x = nnx.max_pool(x, (2, 2, 2), strides=(2, 2, 2))
        x = self.bottleneck(x)
        aux = None
        for i, block in enumerate(self.up):
            x = block(x, skips.pop())
            if i == len(self.up) - 2:
                aux = self.aux_head(x)
        return self.head(x), aux


def soft_dice(probs, onehot, eps=1e-5):
    axes = (0, 1, 2, 3)
    inter = jnp.sum(probs * onehot, axes)
    denom = jnp.sum(probs, axes) + jnp.sum(onehot, axes)
    dice = (2 * inter + eps) / (denom + eps)
    return 1.0 - dice[1:].mean()


def dice_ce(logits, labels):
    onehot = jax.nn.one_hot(labels, CLASSES)
    ce = optax.softmax_cross_entropy(logits, onehot).mean()
    return soft_dice(jax.nn.softmax(logits), onehot) + ce


def random_flip(key, volume, labels):
    for axis, k in enumerate(jax.random.split(key, 3)):
        flip = jax.random.bernoulli(k)
        volume = jnp.where(flip, jnp.flip(volume, axis + 1), volume)
        labels = jnp.where(flip, jnp.flip(labels, axis + 1), labels)
    return volume, labels


def make():
    graphdef, params, stats = nnx.split(
        nnx.eval_shape(lambda: UNet3D(nnx.Rngs(0))), nnx.Param, nnx.BatchStat
    )
    schedule = optax.polynomial_schedule(1e-2, 0.0, 0.9, 250_000)
    tx = optax.chain(
        optax.clip_by_global_norm(12.0),
        optax.add_decayed_weights(3e-5),
        optax.sgd(schedule, momentum=0.99, nesterov=True),
    )

    def loss_fn(params, stats, volume, labels):
        model = nnx.merge(graphdef, params, stats, copy=True)
        out, aux = model(volume)
        loss = dice_ce(out, labels) + 0.5 * dice_ce(aux, labels[:, ::2, ::2, ::2])
        return loss, nnx.state(model, nnx.BatchStat)

    def train_step(params, stats, opt_state, volumes, labels, key):
        def micro_step(carry, xs):
            stats, acc = carry
            volume, label, k = xs
            volume, label = random_flip(k, volume, label)
            (loss, stats), grads = jax.value_and_grad(loss_fn, has_aux=True)(
                params, stats, volume, label
            )
            return (stats, jax.tree.map(jnp.add, acc, grads)), loss

        zeros = jax.tree.map(jnp.zeros_like, params)
        (stats, grads), losses = jax.lax.scan(
            micro_step, (stats, zeros), (volumes, labels, jax.random.split(key, ACCUM))
        )
        grads = jax.tree.map(lambda g: g / ACCUM, grads)
        updates, opt_state = tx.update(grads, opt_state, params)
        return optax.apply_updates(params, updates), stats, opt_state, losses.mean()

    S = jax.ShapeDtypeStruct
    shape = (ACCUM, MICRO, PATCH, PATCH, PATCH)
    return train_step, (
        params,
        stats,
        jax.eval_shape(tx.init, params),
        S(shape + (MODALITIES,), jnp.float32),
        S(shape, jnp.int32),
        jax.random.key(0),
    )
