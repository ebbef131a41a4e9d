"""BYOL with a ViT backbone, nnx: online net on two views, EMA teacher, lars-like sgd."""

TRUTH = {
    "majors": {
        "online encoder forward (2 views)": 0.25,
        "target encoder forward (2 views)": 0.25,
        "online encoder backward": 0.5,
        "projector/predictor": 0.03,
        "ema_update": 0.0,
        "sgd": 0.0,
    },
    "layers": [["online Block (per view)", 6], ["target Block (per view)", 6]],
    "optimizer": True,
    "grad": "online params only",
    "loops": [],
    "tells_apart": [["online", "target"], ["view 1", "view 2"]],
    "order": [
        ["augment", "online encoder"],
        ["online encoder", "projector"],
        ["projector", "predictor"],
        ["predictor", "regression_loss"],
        ["target", "regression_loss"],
        ["optimizer", "ema_update"],
    ],
    "independent": [["online", "target"]],
}
import jax
import jax.numpy as jnp
import optax
from flax import nnx

D, HEADS, L, P, IMG, B = 256, 4, 6, 8, 64, 16


class Block(nnx.Module):
    def __init__(self, *, rngs):
        self.norm1 = nnx.LayerNorm(D, rngs=rngs)
        self.attn = nnx.MultiHeadAttention(HEADS, D, decode=False, rngs=rngs)
        self.norm2 = nnx.LayerNorm(D, rngs=rngs)
        self.fc1 = nnx.Linear(D, 4 * D, rngs=rngs)
        self.fc2 = nnx.Linear(4 * D, D, rngs=rngs)

    def __call__(self, x):
        x = x + self.attn(self.norm1(x))
        return x + self.fc2(nnx.gelu(self.fc1(self.norm2(x))))


class VisionTransformer(nnx.Module):
    def __init__(self, *, rngs):
        self.patch_embed = nnx.Conv(3, D, (P, P), strides=(P, P), rngs=rngs)
        self.pos = nnx.Param(jnp.zeros((1, (IMG // P) ** 2, D)))
        self.blocks = nnx.List([Block(rngs=rngs) for _ in range(L)])
        self.norm = nnx.LayerNorm(D, rngs=rngs)

    def __call__(self, img):
        x = self.patch_embed(img)
        x = x.reshape(x.shape[0], -1, D) + self.pos[...]
        for blk in self.blocks:
            x = blk(x)
        return self.norm(x).mean(1)


class MLPHead(nnx.Module):
    def __init__(self, i, *, rngs):
        self.fc1 = nnx.Linear(i, 1024, rngs=rngs)
        self.norm = nnx.LayerNorm(1024, rngs=rngs)
        self.fc2 = nnx.Linear(1024, 256, rngs=rngs)

    def __call__(self, x):
        return self.fc2(nnx.relu(self.norm(self.fc1(x))))


class Network(nnx.Module):
    def __init__(self, *, rngs):
        self.encoder = VisionTransformer(rngs=rngs)
        self.projector = MLPHead(D, rngs=rngs)

    def __call__(self, x):
        return self.projector(self.encoder(x))


class Online(nnx.Module):
    def __init__(self, *, rngs):
        self.net = Network(rngs=rngs)
        self.predictor = MLPHead(256, rngs=rngs)

    def __call__(self, x):
        return self.predictor(self.net(x))


def augment(key, img):
    k1, k2, k3 = jax.random.split(key, 3)
    flip = jax.random.bernoulli(k1, 0.5, (img.shape[0], 1, 1, 1))
    img = jnp.where(flip, img[:, :, ::-1], img)
    bright = jax.random.uniform(k2, (img.shape[0], 1, 1, 1), minval=0.6, maxval=1.4)
    return img * bright + 0.05 * jax.random.normal(k3, img.shape)


def regression_loss(p, z):
    n = lambda t: t / (jnp.linalg.norm(t, axis=-1, keepdims=True) + 1e-6)
    return 2 - 2 * (n(p) * n(z)).sum(-1).mean()


def byol_loss(online, target, v1, v2):
    z1, z2 = jax.lax.stop_gradient((target(v1), target(v2)))
    return regression_loss(online(v1), z2) + regression_loss(online(v2), z1)


def ema_update(target, online, tau=0.996):
    return jax.tree.map(lambda t, o: tau * t + (1 - tau) * o, target, online)


def make():
    def build():
        o = Online(rngs=nnx.Rngs(0))
        t = Network(rngs=nnx.Rngs(0))
        return (
            o,
            t,
            nnx.Optimizer(
                o,
                optax.chain(optax.add_decayed_weights(1e-6), optax.sgd(0.2, momentum=0.9)),
                wrt=nnx.Param,
            ),
        )

    o, t, opt = nnx.eval_shape(build)
    (od, os), (td, ts), (pd, ps) = nnx.split(o), nnx.split(t), nnx.split(opt)

    @jax.jit
    def byol_step(online_state, target_state, opt_state, images, key):
        online, target, optimizer = (
            nnx.merge(od, online_state),
            nnx.merge(td, target_state),
            nnx.merge(pd, opt_state),
        )
        k1, k2 = jax.random.split(key)
        loss, grads = nnx.value_and_grad(byol_loss)(
            online, target, augment(k1, images), augment(k2, images)
        )
        optimizer.update(online, grads)
        return (
            nnx.state(online),
            ema_update(nnx.state(target), nnx.state(online.net)),
            nnx.state(optimizer),
            loss,
        )

    return byol_step, (
        os,
        ts,
        ps,
        jax.ShapeDtypeStruct((B, IMG, IMG, 3), jnp.float32),
        jax.eval_shape(lambda: jax.random.key(0)),
    )
