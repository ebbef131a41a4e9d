TRUTH = """
# raft_flow — RAFT-small-like optical flow train step (Haiku), 8-way data parallel (jit + NamedSharding), f32

## 1 Tree of parts
train_step
1. photometric augmentation of both images (same key)
2. **raft forward** (16 pairs of 256x320; 2 pairs per device)
   - **feature_encoder** on both images { stem, 6 residual blocks (32,32,64,64,96,96), proj 128 }
   - **correlation pyramid**: all pairs 1280 x 1280, 3 average pools
   - **context_encoder** on image 1 (same shape, group norm) -> net, inp
   - **iterations: loop x8** { **lookup** (4 levels x 7x7 window x bilinear 4 corners: gathers) ; **motion_encoder** (4 convs) ; **ConvGRU** (z, r, q 3x3 convs) ; flow head, mask head ; **convex_upsample** to full resolution }
3. **sequence loss** over the 8 flows; epe metrics
4. **backward**: sequence loss ; **iterations backward: loop x8** { upsample, heads, GRU, motion encoder, lookup (scatter-add into the pyramid gradients) } ; pyramid backward ; both encoders backward
5. gradient all-reduce; clip, adamw (one-cycle)

## 2 Where the work goes (1.6 TF)
update loop ~64%: GRU 38%, flow/mask heads 18%, motion encoder 8%; encoders ~34% (feature 2 images : context 1 = 2 : 1); correlation 1.2%; lookup ~0.5% FLOPs but 4x4x49 gathers per position, forward and scatter backward: perhaps the slowest. 1/3 forward, 2/3 backward.

## 3 First picture
augment -> feature encoder -> correlation pyramid -> context encoder -> update x8 { lookup, motion encoder, GRU, heads, upsample } -> sequence loss -> update backward x8 -> encoders backward -> all-reduce -> adamw.

## 4 Misleading
- x8 loop named layers; it is refinement iterations with shared weights (gradients accumulate in the loop carry).
- Confusing 8 iterations with 8 devices.
- Lookup and its scatter-add hidden by FLOP share or named embedding.
- If weights' gradient all-reduce happens inside the backward x8 loop (per iteration) that is a finding to show.
- Residual blocks of feature and context encoders mixed: same functions, two modules.
"""

"""RAFT optical flow training step, Haiku, data parallel (jit + NamedSharding) over 8 devices.

all-pairs correlation pyramid, 8 recurrent ConvGRU updates with window look-ups, convex upsampling, sequence loss."""
from typing import NamedTuple

import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

BATCH, HEIGHT, WIDTH = 16, 256, 320
H8, W8 = HEIGHT // 8, WIDTH // 8
FEAT, HIDDEN, CONTEXT = 128, 96, 64
LEVELS, RADIUS = 4, 3
ITERS = 8
GAMMA, MAX_FLOW = 0.8, 400.0


class Residual(hk.Module):
    def __init__(self, ch, stride, norm, name=None):
        super().__init__(name)
        self.ch, self.stride, self.norm = ch, stride, norm

    def _norm(self, x, name):
        if self.norm == "instance":
            mu, var = x.mean((1, 2), keepdims=True), x.var((1, 2), keepdims=True)
            return (x - mu) * jax.lax.rsqrt(var + 1e-5)
        return hk.GroupNorm(8, name=name)(x)

    def __call__(self, x):
        y = jax.nn.relu(self._norm(hk.Conv2D(self.ch, 3, self.stride, name="conv1")(x), "norm1"))
        y = jax.nn.relu(self._norm(hk.Conv2D(self.ch, 3, name="conv2")(y), "norm2"))
        if self.stride != 1 or x.shape[-1] != self.ch:
            x = hk.Conv2D(self.ch, 1, self.stride, name="down")(x)
        return jax.nn.relu(x + y)


class Encoder(hk.Module):
    def __init__(self, out, norm, name):
        super().__init__(name)
        self.out, self.norm = out, norm

    def __call__(self, x):
        x = jax.nn.relu(hk.Conv2D(32, 7, 2, name="stem")(x))
        for i, (ch, s) in enumerate([(32, 1), (64, 2), (96, 2)]):
            x = Residual(ch, s, self.norm, name=f"layer{i}_0")(x)
            x = Residual(ch, 1, self.norm, name=f"layer{i}_1")(x)
        return hk.Conv2D(self.out, 1, name="proj")(x)


def correlation_pyramid(f1, f2):
    b = f1.shape[0]
    corr = jnp.einsum("bijc,bklc->bijkl", f1, f2) / np.sqrt(FEAT)
    corr = corr.reshape(b * H8 * W8, H8, W8, 1)
    pyramid = [corr]
    for _ in range(LEVELS - 1):
        corr = hk.avg_pool(corr, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
        pyramid.append(corr)
    return pyramid


def bilinear_sample(img, xy):
    """img [n,h,w], xy [n,k,2] -> [n,k]; zero outside"""
    h, w = img.shape[1:]
    x, y = xy[..., 0], xy[..., 1]
    x0, y0 = jnp.floor(x), jnp.floor(y)
    out = 0.0
    for dx in (0, 1):
        for dy in (0, 1):
            xi, yi = x0 + dx, y0 + dy
            wt = (1 - jnp.abs(x - xi)) * (1 - jnp.abs(y - yi))
            ok = (xi >= 0) & (xi < w) & (yi >= 0) & (yi < h)
            flat = jnp.clip(yi, 0, h - 1).astype(jnp.int32) * w + jnp.clip(xi, 0, w - 1).astype(
                jnp.int32
            )
            out = out + wt * ok * jnp.take_along_axis(img.reshape(img.shape[0], -1), flat, 1)
    return out


def lookup(pyramid, coords):
    b = coords.shape[0]
    r = jnp.arange(-RADIUS, RADIUS + 1)
    delta = jnp.stack(jnp.meshgrid(r, r, indexing="ij"), -1).reshape(1, -1, 2).astype(jnp.float32)
    feats = []
    for i, corr in enumerate(pyramid):
        centre = coords.reshape(-1, 1, 2) / 2**i
        feats.append(bilinear_sample(corr[..., 0], centre + delta).reshape(b, H8, W8, -1))
    return jnp.concatenate(feats, -1)


class MotionEncoder(hk.Module):
    def __call__(self, flow, corr):
        c = jax.nn.relu(hk.Conv2D(96, 1, name="corr")(corr))
        f = jax.nn.relu(hk.Conv2D(64, 7, name="flow1")(flow))
        f = jax.nn.relu(hk.Conv2D(32, 3, name="flow2")(f))
        out = jax.nn.relu(hk.Conv2D(80, 3, name="fuse")(jnp.concatenate([c, f], -1)))
        return jnp.concatenate([out, flow], -1)


class ConvGRU(hk.Module):
    def __call__(self, h, x):
        hx = jnp.concatenate([h, x], -1)
        z = jax.nn.sigmoid(hk.Conv2D(HIDDEN, 3, name="z")(hx))
        r = jax.nn.sigmoid(hk.Conv2D(HIDDEN, 3, name="r")(hx))
        q = jnp.tanh(hk.Conv2D(HIDDEN, 3, name="q")(jnp.concatenate([r * h, x], -1)))
        return (1 - z) * h + z * q


class UpdateBlock(hk.Module):
    def __call__(self, net, inp, corr, flow):
        x = jnp.concatenate([inp, MotionEncoder(name="motion_encoder")(flow, corr)], -1)
        net = ConvGRU(name="gru")(net, x)
        delta = hk.Conv2D(2, 3, name="flow_out")(
            jax.nn.relu(hk.Conv2D(128, 3, name="flow_hidden")(net))
        )
        mask = 0.25 * hk.Conv2D(64 * 9, 1, name="mask_out")(
            jax.nn.relu(hk.Conv2D(128, 3, name="mask_hidden")(net))
        )
        return net, mask, delta


def convex_upsample(flow, mask):
    b = flow.shape[0]
    m = jax.nn.softmax(mask.reshape(b, H8, W8, 9, 64), axis=3)
    pad = jnp.pad(8 * flow, ((0, 0), (1, 1), (1, 1), (0, 0)))
    nb = jnp.stack([pad[:, i : i + H8, j : j + W8] for i in range(3) for j in range(3)], 3)
    up = jnp.einsum("bhwns,bhwnc->bhwsc", m, nb).reshape(b, H8, W8, 8, 8, 2)
    return up.transpose(0, 1, 3, 2, 4, 5).reshape(b, HEIGHT, WIDTH, 2)


def raft(im1, im2):
    both = jnp.concatenate([im1, im2])
    f1, f2 = jnp.split(Encoder(FEAT, "instance", "feature_encoder")(both), 2)
    pyramid = correlation_pyramid(f1, f2)
    ctx = Encoder(HIDDEN + CONTEXT, "group", "context_encoder")(im1)
    net, inp = jnp.tanh(ctx[..., :HIDDEN]), jax.nn.relu(ctx[..., HIDDEN:])
    yy, xx = jnp.meshgrid(jnp.arange(H8), jnp.arange(W8), indexing="ij")
    grid = jnp.stack([xx, yy], -1)[None].astype(jnp.float32)
    update = UpdateBlock(name="update_block")

    def iteration(carry, _):
        net, flow = carry
        flow = jax.lax.stop_gradient(flow)
        net, mask, delta = update(net, inp, lookup(pyramid, grid + flow), flow)
        flow = flow + delta
        return (net, flow), convex_upsample(flow, mask)

    flow0 = jnp.zeros((im1.shape[0], H8, W8, 2))
    _, flows = hk.scan(iteration, (net, flow0), None, length=ITERS)
    return flows


model = hk.without_apply_rng(hk.transform(raft))


def sequence_loss(flows, gt, valid):
    mag = jnp.linalg.norm(gt, axis=-1)
    v = (valid > 0.5) & (mag < MAX_FLOW)
    w = GAMMA ** jnp.arange(ITERS - 1, -1, -1.0)
    err = jnp.abs(flows - gt).sum(-1) * v
    return jnp.sum(w * err.mean((1, 2, 3)))


class State(NamedTuple):
    params: hk.Params
    opt: optax.OptState
    step: jax.Array


def make_tx():
    return optax.chain(
        optax.clip_by_global_norm(1.0),
        optax.adamw(optax.cosine_onecycle_schedule(100_000, 4e-4, 0.05), weight_decay=1e-4),
    )


def photometric(key, im):
    k1, k2, k3 = jax.random.split(key, 3)
    b = im.shape[0]
    im = im.astype(jnp.float32) / 255
    im = im * jax.random.uniform(k1, (b, 1, 1, 1), minval=0.6, maxval=1.4)
    mean = im.mean((1, 2), keepdims=True)
    im = mean + (im - mean) * jax.random.uniform(k2, (b, 1, 1, 1), minval=0.6, maxval=1.4)
    return (
        jnp.clip(im, 0, 1) ** jax.random.uniform(k3, (b, 1, 1, 1), minval=0.8, maxval=1.2) * 2 - 1
    )


def train_step(s: State, batch, key):
    key = jax.random.fold_in(key, s.step)
    im1, im2 = photometric(key, batch["im1"]), photometric(key, batch["im2"])

    def loss_fn(p):
        flows = model.apply(p, im1, im2)
        return sequence_loss(flows, batch["flow"], batch["valid"]), flows[-1]

    (loss, last), grads = jax.value_and_grad(loss_fn, has_aux=True)(s.params)
    upd, opt = make_tx().update(grads, s.opt, s.params)
    epe = jnp.linalg.norm(last - batch["flow"], axis=-1)
    metrics = dict(loss=loss, epe=epe.mean(), px1=(epe < 1).mean(), px3=(epe < 3).mean())
    return State(optax.apply_updates(s.params, upd), opt, s.step + 1), metrics


def build(devices=None):
    devices = np.array(jax.devices() if devices is None else devices)[:8]
    mesh = Mesh(devices, ("data",))
    S = lambda spec: (
        lambda s, d=jnp.float32: jax.ShapeDtypeStruct(s, d, sharding=NamedSharding(mesh, spec))
    )
    rep, dat = S(P()), S(P("data"))

    def init(key):
        im = jnp.zeros((1, HEIGHT, WIDTH, 3))
        p = model.init(key, im, im)
        return State(p, make_tx().init(p), jnp.int32(0))

    state = jax.tree.map(
        lambda a: rep(a.shape, a.dtype),
        jax.eval_shape(init, jax.ShapeDtypeStruct((2,), jnp.uint32)),
    )
    batch = dict(
        im1=dat((BATCH, HEIGHT, WIDTH, 3), jnp.uint8),
        im2=dat((BATCH, HEIGHT, WIDTH, 3), jnp.uint8),
        flow=dat((BATCH, HEIGHT, WIDTH, 2)),
        valid=dat((BATCH, HEIGHT, WIDTH)),
    )
    return jax.jit(train_step, donate_argnums=0), (state, batch, rep((2,), jnp.uint32))
