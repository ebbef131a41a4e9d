TRUTH = """
# wrn28_sam - WideResNet-28-10 on CIFAR-100 with SAM; haiku, hand-written Nesterov SGD, one device

1. Order: normalise -> augment (pad + random crop, flip, cutout 8x8) -> **first pass**: WRN forward + loss + backward -> gradient norm -> **perturbed weights** w + 0.1 g/|g| -> **second pass**: the same WRN forward + loss + backward at the perturbed weights -> Nesterov SGD with weight decay on the ORIGINAL weights, cosine learning rate. Batch-norm statistics kept from the first pass only.
2. The net: stem conv 3->16; **3 groups x 4 pre-activation wide blocks = 12 blocks**: { BN, ReLU, conv 3x3, BN, ReLU, conv 3x3, shortcut } at 32x32x160, 16x16x320, 8x8x640; the first block of every group has a 1x1 shortcut conv (stride 1, 2, 2); final BN + ReLU, mean pool, linear 640->100.
3. Work ~8.0 TF (batch 128): pass 1 50%, pass 2 50%. In a pass: forward 1/3, backward 2/3. Groups 32 / 34 / 34%. 3x3 convs > 98%. stem, 1x1 shortcuts, classifier ~0-1%. SGD ~0 (36.5 M parameters).
4. Loops: none (all unrolled). The crop is a vmapped dynamic_slice (a gather), maybe a loop on some backend.
5. No mesh.
6. First picture: augment -> [WRN forward/backward] -> perturb -> [WRN forward/backward at w+e] -> SGD. Inside a WRN: stem -> group 1 x4 -> group 2 x4 -> group 3 x4 -> classifier.
7. Arrows: the same augmented images into both passes; gradient 1 -> norm -> perturbation -> pass 2; gradient 2 -> SGD; new BN state from pass 1 -> output; velocity.
8. Should not stand out: BN statistics reductions, RNG, cutout masks, batch-norm EMA bookkeeping.
9. Typically wrong: the two passes merged to one with "x24 blocks", or the second called "recompute / rematerialisation"; the first block of each group left out of the x4; gradient norm shown as "clipping"; the second pass's BN statistics thought to be used.
"""

"""WideResNet-28-10 on CIFAR-100 with Sharpness-Aware Minimisation (haiku, one device)."""
from typing import NamedTuple

import haiku as hk
import jax
import jax.numpy as jnp

DEPTH, WIDTH, CLASSES = 28, 10, 100
BATCH = 128
RHO = 0.1
MOMENTUM = 0.9
WD = 5e-4
BASE_LR, TOTAL = 0.1, 200 * 391


class State(NamedTuple):
    params: hk.Params
    bn: hk.State
    velocity: hk.Params
    step: jax.Array


def batch_norm(x, train, name):
    return hk.BatchNorm(True, True, decay_rate=0.9, name=name)(x, is_training=train)


def conv(ch, kernel, stride=1, name=None):
    return hk.Conv2D(
        ch,
        kernel,
        stride,
        with_bias=False,
        name=name,
        w_init=hk.initializers.VarianceScaling(2.0, "fan_out", "truncated_normal"),
    )


class WideBlock(hk.Module):
    def __init__(self, ch, stride, name=None):
        super().__init__(name=name)
        self.ch, self.stride = ch, stride

    def __call__(self, x, train):
        h = jax.nn.relu(batch_norm(x, train, "bn1"))
        if x.shape[-1] != self.ch:
            shortcut = conv(self.ch, 1, self.stride, "shortcut")(h)
        else:
            shortcut = x
        h = conv(self.ch, 3, self.stride, "conv1")(h)
        h = jax.nn.relu(batch_norm(h, train, "bn2"))
        h = conv(self.ch, 3, 1, "conv2")(h)
        return shortcut + h


def wide_resnet(images, train):
    n = (DEPTH - 4) // 6
    x = conv(16, 3, name="stem")(images)
    for g, (ch, stride) in enumerate([(16 * WIDTH, 1), (32 * WIDTH, 2), (64 * WIDTH, 2)]):
        for i in range(n):
            x = WideBlock(ch, stride if i == 0 else 1, name=f"group{g + 1}_block{i}")(x, train)
    x = jax.nn.relu(batch_norm(x, train, "final_bn"))
    x = x.mean((1, 2))
    return hk.Linear(CLASSES, name="classifier")(x)


net = hk.without_apply_rng(hk.transform_with_state(wide_resnet))


def augment(key, images):
    """Random crop with 4px reflect padding, flip, cutout 8x8."""
    n, h, w, c = images.shape
    k_crop, k_flip, k_cut = jax.random.split(key, 3)
    padded = jnp.pad(images, ((0, 0), (4, 4), (4, 4), (0, 0)), mode="reflect")
    offs = jax.random.randint(k_crop, (n, 2), 0, 9)
    crop = lambda im, o: jax.lax.dynamic_slice(im, (o[0], o[1], 0), (h, w, c))
    x = jax.vmap(crop)(padded, offs)
    x = jnp.where(jax.random.bernoulli(k_flip, 0.5, (n, 1, 1, 1)), x[:, :, ::-1], x)
    centre = jax.random.randint(k_cut, (n, 2), 0, h)
    yy = jnp.abs(jnp.arange(h)[None, :, None] - centre[:, 0, None, None]) < 4
    xx = jnp.abs(jnp.arange(w)[None, None, :] - centre[:, 1, None, None]) < 4
    return jnp.where((yy & xx)[..., None], 0.0, x)


def cross_entropy(params, bn, images, labels):
    logits, bn = net.apply(params, bn, images, True)
    logp = jax.nn.log_softmax(logits)
    loss = -jnp.take_along_axis(logp, labels[:, None], 1).mean()
    return loss, (bn, logits)


def sam_step(state: State, images, labels, key):
    x = (images.astype(jnp.float32) / 255.0 - 0.48) / 0.26
    x = augment(key, x)
    grad_fn = jax.value_and_grad(cross_entropy, has_aux=True)

    # 1st pass: ascent direction
    (loss, (bn, logits)), g = grad_fn(state.params, state.bn, x, labels)
    norm = jnp.sqrt(sum(jnp.vdot(a, a) for a in jax.tree.leaves(g)))
    adversarial = jax.tree.map(lambda w, d: w + RHO * d / (norm + 1e-12), state.params, g)

    # 2nd pass: gradient at the perturbed point, batch-norm statistics of this pass are thrown away
    (sharp_loss, _), g = grad_fn(adversarial, state.bn, x, labels)

    lr = BASE_LR * 0.5 * (1 + jnp.cos(jnp.pi * state.step / TOTAL))

    def nesterov(w, d, v):
        d = d + WD * w
        v = MOMENTUM * v + d
        return w - lr * (d + MOMENTUM * v), v

    out = jax.tree.map(nesterov, state.params, g, state.velocity)
    params, velocity = jax.tree.transpose(jax.tree.structure(g), jax.tree.structure((0, 0)), out)
    metrics = {
        "loss": loss,
        "sharpness": sharp_loss - loss,
        "acc": (logits.argmax(-1) == labels).mean(),
    }
    return State(params, bn, velocity, state.step + 1), metrics


def init(key):
    params, bn = net.init(key, jnp.zeros((2, 32, 32, 3)), True)
    return State(params, bn, jax.tree.map(jnp.zeros_like, params), jnp.zeros((), jnp.int32))


def make():
    key = jax.ShapeDtypeStruct((2,), jnp.uint32)
    images = jax.ShapeDtypeStruct((BATCH, 32, 32, 3), jnp.uint8)
    labels = jax.ShapeDtypeStruct((BATCH,), jnp.int32)
    return jax.jit(sam_step, donate_argnums=0), (jax.eval_shape(init, key), images, labels, key)
