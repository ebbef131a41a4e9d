TRUTH = """
- DP-SGD in Equinox: keyword spotting (conv net on [98,40] mel frames), per-example gradients by vmap of filter_grad, clipped to norm 1, summed, noise added, sgd. Batch 256, one device.
- Parameters: about 1.2M (4.9 MB). Per-example gradients: 256 x 4.9 MB = 1.25 GB: they are the peak (the line of `vmap(eqx.filter_grad...)`), all alive at once because the norm of each example over all leaves has to be known before any leaf can be scaled. Remedy: microbatches (lax.map/scan over 16 examples accumulating the clipped sum), or ghost clipping. Peak falls nearly in proportion.
- The largest leaf is the dense layer of 3x... (flatten -> 256): it dominates the 1.25 GB.
- vmapped weight gradients of convolutions become grouped convolutions (batch_group_count / feature_group_count): slow on TPU. The dense layer's per-example gradient is an outer product (memory-bound).
- Noise: random normal of parameter shape: small.
- Donation: the model is not donated (5 MB): does not matter beside 1.25 GB.
- No collectives.
"""

"""Differentially private training of a keyword spotter (Equinox)."""
import equinox as eqx
import jax
import jax.numpy as jnp
import optax

BATCH, FRAMES, MELS, CLASSES, CLIP, SIGMA = 256, 98, 40, 35, 1.0, 1.1


class Spotter(eqx.Module):
    c1: eqx.nn.Conv2d
    c2: eqx.nn.Conv2d
    c3: eqx.nn.Conv2d
    d1: eqx.nn.Linear
    d2: eqx.nn.Linear

    def __init__(self, key):
        k = jax.random.split(key, 5)
        self.c1 = eqx.nn.Conv2d(1, 32, 5, stride=2, padding=2, key=k[0])
        self.c2 = eqx.nn.Conv2d(32, 64, 3, stride=2, padding=1, key=k[1])
        self.c3 = eqx.nn.Conv2d(64, 64, 3, padding=1, key=k[2])
        self.d1 = eqx.nn.Linear(64 * 12 * 5, 256, key=k[3])
        self.d2 = eqx.nn.Linear(256, CLASSES, key=k[4])

    def __call__(self, mel):
        x = jax.nn.relu(self.c1(mel[None]))
        x = jax.nn.relu(self.c2(x))
        x = jax.nn.relu(self.c3(x))
        x = eqx.nn.MaxPool2d(2, 2)(x)
        x = jax.nn.relu(self.d1(x.reshape(-1)))
        return self.d2(x)


def example_loss(model, mel, label):
    return optax.softmax_cross_entropy_with_integer_labels(model(mel), label)


def private_gradient(model, mels, labels, key):
    grads = jax.vmap(eqx.filter_grad(example_loss), (None, 0, 0))(model, mels, labels)
    squares = [jnp.sum(g.reshape(BATCH, -1) ** 2, axis=1) for g in jax.tree.leaves(grads)]
    norms = jnp.sqrt(sum(squares))
    factor = jnp.minimum(1.0, CLIP / norms)
    summed = jax.tree.map(lambda g: jnp.tensordot(factor, g, axes=1), grads)
    leaves, treedef = jax.tree.flatten(summed)
    keys = jax.random.split(key, len(leaves))
    noisy = [
        (g + CLIP * SIGMA * jax.random.normal(k, g.shape)) / BATCH for g, k in zip(leaves, keys)
    ]
    return jax.tree.unflatten(treedef, noisy), norms


def make():
    tx = optax.sgd(0.5, momentum=0.9)
    model = eqx.filter_eval_shape(Spotter, jax.random.key(0))
    arrays, static = eqx.partition(model, lambda x: isinstance(x, jax.ShapeDtypeStruct))

    def step(arrays, opt, mels, labels, key):
        model = eqx.combine(arrays, static)
        grads, norms = private_gradient(model, mels, labels, key)
        updates, opt = tx.update(grads, opt, arrays)
        return eqx.apply_updates(arrays, updates), opt, jnp.median(norms)

    S = jax.ShapeDtypeStruct
    args = (
        arrays,
        jax.eval_shape(tx.init, arrays),
        S((BATCH, FRAMES, MELS), jnp.float32),
        S((BATCH,), jnp.int32),
        S((2,), jnp.uint32),
    )
    return jax.jit(step), args
