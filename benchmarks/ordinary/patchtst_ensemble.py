TRUTH = """
# patchtst_ensemble - deep ensemble (5 members, vmap) of PatchTST on Weather; plain jax, hand-written Adam, 20 steps per call, then validation; one device, f32

1. Order: **training loop x20 minibatch steps**, each for 5 members at once (vmap axis, own random windows, own learning rate) { pick 32 random windows of 512 + 96 (own per member) -> RevIN normalise -> channels to batch (32 x 21 = 672 series), pad, **patch** into 64 patches of 16 stride 8 -> linear embedding + position -> **3 transformer layers** (unrolled) { attention 16 heads over 64 patches with residual scores of the previous layer, dropout, norm, FFN 128-256-128, dropout, norm } -> flatten head 8192 -> 96 -> denormalise -> MSE -> backward (3 layers) -> Adam } -> **validation**: 64 windows, **loop x5 over the members** (lax.map, no vmap) { the forward forecast } -> ensemble mean, MSE, MAE, per-member MSE, spread.
2. Work: training ~11.8 TF (20 steps x 5 members), validation ~0.4 TF: 97% / 3%. In the forward: transformer layers 97%, head 2.7%, patch embedding 0.5%. In a layer: qkv 33%, out 11%, FFN 44%, scores/values 11%. Forward 1/3, backward 2/3. By bytes: scores [5,672,16,64,64] f32 (0.9 GB) and softmax dominate; head dim is only 8.
3. Loops: 20 (train), 5 (validation members); 3 layers unrolled.
4. No mesh; members are an array axis of 5.
5. First picture: loop x20 { windows -> PatchTST (RevIN, patch embed, layer x3, head) for 5 members -> MSE -> backward -> Adam } -> validation loop x5 { forecast } -> ensemble metrics.
6. Arrows: params, m, v, t around the training loop; trained params -> validation; scores of layer i -> layer i+1; RevIN mean/sd -> denormalisation.
7. Should not stand out: RNG for dropout and windows, gathers of windows and patches, fold_in, Adam's bias correction.
8. Typically wrong: the leading 5 read as batch or heads; validation's loop of 5 called layers; the first layer split off since it has no previous scores; training and validation forwards merged; x20 called layers/epochs; RevIN not named.
"""

"""Deep ensemble of PatchTST forecasters on the Weather data set; members are a vmap axis.

One call = 20 minibatch steps for all members, then a validation pass of the averaged forecast.
"""
import jax
import jax.numpy as jnp
from jax import lax

MEMBERS = 5
CHANNELS, LOOKBACK, HORIZON = 21, 512, 96
PATCH, STRIDE = 16, 8
PATCHES = (LOOKBACK - PATCH) // STRIDE + 2  # end padded by one stride
D, HEADS, FF, LAYERS = 128, 16, 256, 3
BATCH, STEPS = 32, 20
SERIES = 36_000
VAL_WINDOWS = 64


def init_member(key):
    ks = jax.random.split(key, 4 + LAYERS)

    def lin(k, i, o):
        return {"w": jax.random.normal(k, (i, o)) * i**-0.5, "b": jnp.zeros(o)}

    layers = []
    for k in ks[4:]:
        a, b, c, d = jax.random.split(k, 4)
        layers.append(
            {
                "qkv": lin(a, D, 3 * D),
                "out": lin(b, D, D),
                "ff1": lin(c, D, FF),
                "ff2": lin(d, FF, D),
                "g1": jnp.ones(D),
                "g2": jnp.ones(D),
            }
        )
    return {
        "revin": {"scale": jnp.ones(CHANNELS), "shift": jnp.zeros(CHANNELS)},
        "embed": lin(ks[0], PATCH, D),
        "pos": 0.02 * jax.random.normal(ks[1], (PATCHES, D)),
        "layers": layers,
        "head": lin(ks[2], PATCHES * D, HORIZON),
    }


def apply(p, x):
    return x @ p["w"] + p["b"]


def norm(x, g):
    mu = x.mean(-1, keepdims=True)
    return g * (x - mu) / jnp.sqrt(x.var(-1, keepdims=True) + 1e-5)


def dropout(key, x, rate):
    if key is None:
        return x
    return jnp.where(jax.random.bernoulli(key, 1 - rate, x.shape), x / (1 - rate), 0.0)


def self_attention(p, x, prev):
    n, t, _ = x.shape
    q, k, v = jnp.moveaxis(apply(p["qkv"], x).reshape(n, t, 3, HEADS, D // HEADS), 2, 0)
    s = jnp.einsum("nqhd,nkhd->nhqk", q, k) * (D // HEADS) ** -0.5
    if prev is not None:
        s = s + prev  # RealFormer residual attention, as in the official code
    o = jnp.einsum("nhqk,nkhd->nqhd", jax.nn.softmax(s, -1), v)
    return apply(p["out"], o.reshape(n, t, D)), s


def forecast(p, x, key=None):
    """x [batch, lookback, channels] -> [batch, horizon, channels]"""
    b = x.shape[0]
    # RevIN
    mu, sd = x.mean(1, keepdims=True), jnp.sqrt(x.var(1, keepdims=True) + 1e-5)
    x = (x - mu) / sd * p["revin"]["scale"] + p["revin"]["shift"]
    # channel independence: channels become batch
    x = x.transpose(0, 2, 1).reshape(b * CHANNELS, LOOKBACK)
    x = jnp.pad(x, ((0, 0), (0, STRIDE)), mode="edge")
    idx = jnp.arange(PATCHES)[:, None] * STRIDE + jnp.arange(PATCH)
    h = apply(p["embed"], x[:, idx]) + p["pos"]
    scores = None
    for i, layer in enumerate(p["layers"]):
        ks = [None, None] if key is None else jax.random.split(jax.random.fold_in(key, i))
        a, scores = self_attention(layer, h, scores)
        h = norm(h + dropout(ks[0], a, 0.2), layer["g1"])
        f = apply(layer["ff2"], jax.nn.gelu(apply(layer["ff1"], h)))
        h = norm(h + dropout(ks[1], f, 0.2), layer["g2"])
    y = apply(p["head"], h.reshape(b * CHANNELS, -1))
    y = y.reshape(b, CHANNELS, HORIZON).transpose(0, 2, 1)
    y = (y - p["revin"]["shift"]) / (p["revin"]["scale"] + 1e-8)
    return y * sd + mu


def windows(series, starts):
    cut = lambda s: lax.dynamic_slice(series, (s, 0), (LOOKBACK + HORIZON, CHANNELS))
    w = jax.vmap(cut)(starts)
    return w[:, :LOOKBACK], w[:, LOOKBACK:]


def member_step(p, m, v, t, lr, key, series):
    k_idx, k_drop = jax.random.split(key)
    starts = jax.random.randint(k_idx, (BATCH,), 0, SERIES - LOOKBACK - HORIZON)
    x, y = windows(series, starts)

    def loss_fn(p):
        return jnp.mean((forecast(p, x, k_drop) - y) ** 2)

    loss, g = jax.value_and_grad(loss_fn)(p)
    m = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, m, g)
    v = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g**2, v, g)
    a = lr * jnp.sqrt(1 - 0.999**t) / (1 - 0.9**t)
    p = jax.tree.map(lambda p, m, v: p - a * m / (jnp.sqrt(v) + 1e-8), p, m, v)
    return p, m, v, loss


def train_chunk(p, m, v, step, lrs, series, val, key):
    all_members = jax.vmap(member_step, in_axes=(0, 0, 0, None, 0, 0, None))

    def one(carry, i):
        p, m, v, t = carry
        keys = jax.random.split(jax.random.fold_in(key, i), MEMBERS)
        p, m, v, loss = all_members(p, m, v, t + 1.0, lrs, keys, series)
        return (p, m, v, t + 1.0), loss

    (p, m, v, step), losses = lax.scan(one, (p, m, v, step), jnp.arange(STEPS))

    # validation: ensemble mean and spread
    starts = jnp.linspace(0, val.shape[0] - LOOKBACK - HORIZON, VAL_WINDOWS).astype(jnp.int32)
    x, y = windows(val, starts)
    preds = lax.map(lambda q: forecast(q, x), p)
    mean = preds.mean(0)
    metrics = {
        "train": losses.mean(0),
        "val_mse": jnp.mean((mean - y) ** 2),
        "val_mae": jnp.mean(jnp.abs(mean - y)),
        "member_mse": jnp.mean((preds - y) ** 2, (1, 2, 3)),
        "spread": preds.std(0).mean(),
    }
    return p, m, v, step, metrics


def make():
    sds = jax.ShapeDtypeStruct
    p = jax.eval_shape(jax.vmap(init_member), sds((MEMBERS, 2), jnp.uint32))
    series, val = sds((SERIES, CHANNELS), jnp.float32), sds((5200, CHANNELS), jnp.float32)
    f = jax.jit(train_chunk, donate_argnums=(0, 1, 2))
    return f, (
        p,
        p,
        p,
        sds((), jnp.float32),
        sds((MEMBERS,), jnp.float32),
        series,
        val,
        sds((2,), jnp.uint32),
    )
