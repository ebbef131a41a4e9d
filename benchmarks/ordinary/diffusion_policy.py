TRUTH = """
# diffusion_policy — visuomotor diffusion policy train step (Equinox, vmap over samples), 8-way data parallel, f32

## 1 Tree of parts
train_step
1. **per-sample preparation (vmap 64, 8 per device)**: random crops 108->96 of 2 cameras x 2 frames, timestep, noise, noisy actions
2. **forward**
   - **vision encoders x2 (front, wrist)**, each on 2 frames per sample: stem 7x7/2, **8 ResBlock2D (4 stages x 2: 32,64,128,256)** with GroupNorm, 1x1 to 32 keypoints, spatial softmax
   - **ConditionalUnet1D** (horizon 16): timestep MLP ; **down: 3 levels x 2 FiLMResBlocks** (256,512,1024) + stride-2 conv (2) ; **mid: 2** ; **up: 2 levels x 2** + transposed conv ; final
   - each FiLMResBlock { conv1d k5 + GN + mish, film linear, conv1d k5 + GN + mish, residual }
3. loss: MSE of noise
4. **backward**: unet reversed (up, mid, down, t_mlp), encoders (front, wrist)
5. gradient all-reduce (data 8)
6. **adamw**, **EMA** of all weights (65M-ish parameters)

All unrolled; no loops (except RNG).
## 2 Where the work goes (0.61 TF counted on jaxpr; batch of all devices)
vision encoders ~81% (ResBlocks 79, stems 2), of it 1/3 forward 2/3 backward, half each camera; note stem's stride-2 only, so stage 1 runs at 48x48; unet ~19% (res-block convs 17). adamw + EMA ~1% FLOPs but touches 4 copies of ~all parameters, and the unet holds most parameters: large in bytes, as is the all-reduce.

## 3 First picture
crop/noise -> front encoder (stem, 8 blocks, keypoints) & wrist encoder -> unet (down, mid, up) -> mse -> backward (unet, encoders) -> all-reduce -> adamw, EMA.
Front and wrist shown as two equal parts "x2".

## 4 Misleading
- Equinox puts no names in op_name metadata (no named_scope): a viewer that relies on scopes shows one big "jvp / transpose" box. Truth must come from source functions (VisionEncoder.__call__, ConditionalUnet1D...), possibly from stack frames.
- conv1d of length 4 with 1024 channels are in effect matrix products; must still be called the U-Net's.
- U-Net drawn as the main cost since it has most parameters.
- vmapped random crop = gather of dynamic slices; no embeddings here.
"""

"""Diffusion policy (Chi et al.) for visuomotor control: two cameras, ResNet-GN encoders with spatial softmax,
conditional 1-D U-Net over action chunks with FiLM.  Equinox, batch over 8 devices."""
import math
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

BATCH, OBS_STEPS, CROP, STATE_DIM, ACT_DIM, HORIZON = 64, 2, 96, 9, 10, 16
DOWN_DIMS = (256, 512, 1024)
T_DIM, T_STEPS = 128, 100
WIDTHS = (32, 64, 128, 256)
KEYPOINTS = 32


class ResBlock2D(eqx.Module):
    conv1: eqx.nn.Conv2d
    conv2: eqx.nn.Conv2d
    gn1: eqx.nn.GroupNorm
    gn2: eqx.nn.GroupNorm
    skip: eqx.nn.Conv2d | None

    def __init__(self, cin, cout, stride, key):
        k1, k2, k3 = jax.random.split(key, 3)
        self.conv1 = eqx.nn.Conv2d(cin, cout, 3, stride, 1, use_bias=False, key=k1)
        self.conv2 = eqx.nn.Conv2d(cout, cout, 3, 1, 1, use_bias=False, key=k2)
        self.gn1, self.gn2 = eqx.nn.GroupNorm(cout // 16, cout), eqx.nn.GroupNorm(cout // 16, cout)
        self.skip = (
            eqx.nn.Conv2d(cin, cout, 1, stride, key=k3) if stride != 1 or cin != cout else None
        )

    def __call__(self, x):
        y = jax.nn.relu(self.gn1(self.conv1(x)))
        y = self.gn2(self.conv2(y))
        return jax.nn.relu(y + (x if self.skip is None else self.skip(x)))


class VisionEncoder(eqx.Module):
    stem: eqx.nn.Conv2d
    blocks: list
    kp: eqx.nn.Conv2d

    def __init__(self, key):
        ks = jax.random.split(key, 10)
        self.stem = eqx.nn.Conv2d(3, WIDTHS[0], 7, 2, 3, key=ks[0])
        self.blocks, cin = [], WIDTHS[0]
        for i, w in enumerate(WIDTHS):
            self.blocks += [
                ResBlock2D(cin, w, 1 if i == 0 else 2, ks[1 + 2 * i]),
                ResBlock2D(w, w, 1, ks[2 + 2 * i]),
            ]
            cin = w
        self.kp = eqx.nn.Conv2d(cin, KEYPOINTS, 1, key=ks[9])

    def __call__(self, img):
        x = jax.nn.relu(self.stem(img))
        for b in self.blocks:
            x = b(x)
        return spatial_softmax(self.kp(x))


def spatial_softmax(f):
    c, h, w = f.shape
    a = jax.nn.softmax(f.reshape(c, -1))
    yy, xx = jnp.meshgrid(jnp.linspace(-1, 1, h), jnp.linspace(-1, 1, w), indexing="ij")
    return jnp.concatenate([a @ yy.ravel(), a @ xx.ravel()])


class Conv1dBlock(eqx.Module):
    conv: eqx.nn.Conv1d
    gn: eqx.nn.GroupNorm

    def __init__(self, cin, cout, key):
        self.conv = eqx.nn.Conv1d(cin, cout, 5, padding=2, key=key)
        self.gn = eqx.nn.GroupNorm(8, cout)

    def __call__(self, x):
        return jax.nn.mish(self.gn(self.conv(x)))


class FiLMResBlock(eqx.Module):
    b1: Conv1dBlock
    b2: Conv1dBlock
    film: eqx.nn.Linear
    res: eqx.nn.Conv1d | None

    def __init__(self, cin, cout, cond, key):
        k1, k2, k3, k4 = jax.random.split(key, 4)
        self.b1, self.b2 = Conv1dBlock(cin, cout, k1), Conv1dBlock(cout, cout, k2)
        self.film = eqx.nn.Linear(cond, 2 * cout, key=k3)
        self.res = eqx.nn.Conv1d(cin, cout, 1, key=k4) if cin != cout else None

    def __call__(self, x, cond):
        h = self.b1(x)
        scale, shift = jnp.split(self.film(jax.nn.mish(cond)), 2)
        h = self.b2(h * (1 + scale[:, None]) + shift[:, None])
        return h + (x if self.res is None else self.res(x))


class ConditionalUnet1D(eqx.Module):
    t_mlp: list
    down: list
    mid: list
    up: list
    final: list

    def __init__(self, cond_dim, key):
        ks = iter(jax.random.split(key, 32))
        self.t_mlp = [
            eqx.nn.Linear(T_DIM, 4 * T_DIM, key=next(ks)),
            eqx.nn.Linear(4 * T_DIM, T_DIM, key=next(ks)),
        ]
        cond = T_DIM + cond_dim
        dims = (ACT_DIM, *DOWN_DIMS)
        self.down, self.up = [], []
        for i, (a, b) in enumerate(zip(dims, dims[1:])):
            last = i == len(DOWN_DIMS) - 1
            self.down.append(
                [
                    FiLMResBlock(a, b, cond, next(ks)),
                    FiLMResBlock(b, b, cond, next(ks)),
                    eqx.nn.Identity() if last else eqx.nn.Conv1d(b, b, 3, 2, 1, key=next(ks)),
                ]
            )
        top = DOWN_DIMS[-1]
        self.mid = [FiLMResBlock(top, top, cond, next(ks)), FiLMResBlock(top, top, cond, next(ks))]
        for a, b in zip(reversed(dims[1:-1]), reversed(dims[2:])):
            self.up.append(
                [
                    FiLMResBlock(2 * b, a, cond, next(ks)),
                    FiLMResBlock(a, a, cond, next(ks)),
                    eqx.nn.ConvTranspose1d(a, a, 4, 2, padding=1, key=next(ks)),
                ]
            )
        self.final = [
            Conv1dBlock(DOWN_DIMS[0], DOWN_DIMS[0], next(ks)),
            eqx.nn.Conv1d(DOWN_DIMS[0], ACT_DIM, 1, key=next(ks)),
        ]

    def __call__(self, act, t, cond):
        half = T_DIM // 2
        w = t * jnp.exp(-math.log(10_000) * jnp.arange(half) / (half - 1))
        e = jnp.concatenate([jnp.sin(w), jnp.cos(w)])
        e = self.t_mlp[1](jax.nn.mish(self.t_mlp[0](e)))
        c = jnp.concatenate([e, cond])
        x, skips = act.T, []
        for r1, r2, ds in self.down:
            x = r2(r1(x, c), c)
            skips.append(x)
            x = ds(x)
        for r in self.mid:
            x = r(x, c)
        for r1, r2, us in self.up:
            x = us(r2(r1(jnp.concatenate([x, skips.pop()]), c), c))
        return self.final[1](self.final[0](x)).T


class DiffusionPolicy(eqx.Module):
    front: VisionEncoder
    wrist: VisionEncoder
    unet: ConditionalUnet1D

    def __init__(self, key):
        k1, k2, k3 = jax.random.split(key, 3)
        self.front, self.wrist = VisionEncoder(k1), VisionEncoder(k2)
        self.unet = ConditionalUnet1D(OBS_STEPS * (2 * 2 * KEYPOINTS + STATE_DIM), k3)

    def encode(self, obs):
        f = jax.vmap(self.front)(obs["front"])
        w = jax.vmap(self.wrist)(obs["wrist"])
        return jnp.concatenate([f, w, obs["state"]], -1).ravel()

    def __call__(self, obs, noisy, t):
        return self.unet(noisy, t, self.encode(obs))


def alphas_cumprod():
    s = np.linspace(0, 1, T_STEPS + 1)
    f = np.cos((s + 0.008) / 1.008 * np.pi / 2) ** 2
    return jnp.asarray(np.cumprod(np.clip(f[1:] / f[:-1], 0.001, 1.0)), jnp.float32)


def random_crop(key, imgs):
    """the same offset for all images of a sample; imgs [T,3,108,108]"""
    y, x = jax.random.randint(key, (2,), 0, imgs.shape[-1] - CROP)
    return (
        jax.lax.dynamic_slice(imgs, (0, 0, y, x), (imgs.shape[0], 3, CROP, CROP)).astype(
            jnp.float32
        )
        / 127.5
        - 1
    )


def sample_loss(model, key, sample):
    k1, k2, k3, k4 = jax.random.split(key, 4)
    obs = {
        "front": random_crop(k1, sample["front"]),
        "wrist": random_crop(k2, sample["wrist"]),
        "state": sample["state"],
    }
    t = jax.random.randint(k3, (), 0, T_STEPS)
    eps = jax.random.normal(k4, sample["action"].shape)
    a = alphas_cumprod()[t]
    pred = model(obs, jnp.sqrt(a) * sample["action"] + jnp.sqrt(1 - a) * eps, t.astype(jnp.float32))
    return jnp.mean((pred - eps) ** 2)


def loss_fn(model, key, batch):
    return jax.vmap(partial(sample_loss, model))(jax.random.split(key, BATCH), batch).mean()


def build(devices=None):
    devices = np.array(jax.devices() if devices is None else devices)[:8]
    mesh = Mesh(devices, ("data",))
    tx = optax.adamw(optax.warmup_cosine_decay_schedule(0, 1e-4, 500, 100_000), weight_decay=1e-6)
    model = eqx.filter_eval_shape(DiffusionPolicy, jax.random.PRNGKey(0))
    params, static = eqx.partition(model, lambda x: isinstance(x, jax.ShapeDtypeStruct))

    def train_step(params, ema, opt_state, step, key, batch):
        loss, grads = jax.value_and_grad(lambda p: loss_fn(eqx.combine(p, static), key, batch))(
            params
        )
        updates, opt_state = tx.update(grads, opt_state, params)
        params = eqx.apply_updates(params, updates)
        decay = jnp.minimum(0.9999, 1 - (1 + step.astype(jnp.float32)) ** -0.75)
        ema = jax.tree.map(lambda e, p: e * decay + p * (1 - decay), ema, params)
        return params, ema, opt_state, step + 1, loss

    put = lambda spec: (
        lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=NamedSharding(mesh, spec))
    )
    params = jax.tree.map(put(P()), params)
    opt = jax.tree.map(put(P()), jax.eval_shape(tx.init, params))
    S = lambda s, d=jnp.float32: put(P("data"))(jax.ShapeDtypeStruct(s, d))
    batch = {
        "front": S((BATCH, OBS_STEPS, 3, 108, 108), jnp.uint8),
        "wrist": S((BATCH, OBS_STEPS, 3, 108, 108), jnp.uint8),
        "state": S((BATCH, OBS_STEPS, STATE_DIM)),
        "action": S((BATCH, HORIZON, ACT_DIM)),
    }
    rep = lambda s, d: put(P())(jax.ShapeDtypeStruct(s, d))
    return jax.jit(train_step, donate_argnums=(0, 1, 2)), (
        params,
        params,
        opt,
        rep((), jnp.int32),
        rep((2,), jnp.uint32),
        batch,
    )
