"""NeRF: coarse and fine networks, hierarchical sampling, one training step (plain JAX)."""

TRUTH = {
    "majors": {
        "coarse MLP (64 samples) fwd+bwd": 0.25,
        "fine MLP (192 samples) fwd+bwd": 0.74,
        "positional_encoding": 0.0,
        "volume_render": 0.0,
        "sample_pdf": 0.0,
        "Adam update": 0.0,
    },
    "layers": [["coarse mlp layer", 8], ["fine mlp layer", 8]],
    "optimizer": True,
    "grad": "coarse and fine params",
    "loops": [],
    "tells_apart": [["coarse", "fine"]],
}

import jax
import jax.numpy as jnp

N_RAYS = 1024
N_COARSE = 64
N_FINE = 128
WIDTH = 256
DEPTH = 8
SKIP = 4
L_POS, L_DIR = 10, 4
NEAR, FAR = 2.0, 6.0
LR, B1, B2, EPS = 5e-4, 0.9, 0.999, 1e-8


def dense_init(key, n_in, n_out):
    lim = (6.0 / (n_in + n_out)) ** 0.5
    return {
        "w": jax.random.uniform(key, (n_in, n_out), minval=-lim, maxval=lim),
        "b": jnp.zeros(n_out),
    }


def dense(p, x):
    return x @ p["w"] + p["b"]


def init_nerf(key):
    d_pos, d_dir = 3 + 6 * L_POS, 3 + 6 * L_DIR
    keys = jax.random.split(key, DEPTH + 4)
    layers = []
    n_in = d_pos
    for i in range(DEPTH):
        layers.append(dense_init(keys[i], n_in, WIDTH))
        n_in = WIDTH + (d_pos if i == SKIP else 0)
    return {
        "layers": layers,
        "sigma": dense_init(keys[-4], WIDTH, 1),
        "feature": dense_init(keys[-3], WIDTH, WIDTH),
        "view": dense_init(keys[-2], WIDTH + d_dir, WIDTH // 2),
        "rgb": dense_init(keys[-1], WIDTH // 2, 3),
    }


def positional_encoding(x, n_freqs):
    freqs = 2.0 ** jnp.arange(n_freqs)
    xb = (x[..., None, :] * freqs[:, None]).reshape(*x.shape[:-1], -1)
    return jnp.concatenate([x, jnp.sin(xb), jnp.cos(xb)], axis=-1)


def nerf_mlp(params, points, dirs):
    pos = positional_encoding(points, L_POS)
    view = positional_encoding(dirs, L_DIR)
    h = pos
    for i, layer in enumerate(params["layers"]):
        h = jax.nn.relu(dense(layer, h))
        if i == SKIP:
            h = jnp.concatenate([h, pos], axis=-1)
    sigma = jax.nn.relu(dense(params["sigma"], h)[..., 0])
    feat = dense(params["feature"], h)
    view = jnp.broadcast_to(view[:, None], (*feat.shape[:-1], view.shape[-1]))
    h = jax.nn.relu(dense(params["view"], jnp.concatenate([feat, view], axis=-1)))
    rgb = jax.nn.sigmoid(dense(params["rgb"], h))
    return rgb, sigma


def volume_render(rgb, sigma, t):
    delta = jnp.concatenate([t[:, 1:] - t[:, :-1], jnp.full_like(t[:, :1], 1e10)], axis=-1)
    alpha = 1.0 - jnp.exp(-sigma * delta)
    trans = jnp.cumprod(1.0 - alpha + 1e-10, axis=-1)
    trans = jnp.concatenate([jnp.ones_like(trans[:, :1]), trans[:, :-1]], axis=-1)
    weights = alpha * trans
    color = (weights[..., None] * rgb).sum(axis=1)
    depth = (weights * t).sum(axis=1)
    return color, depth, weights


def stratified(key, n):
    edges = jnp.linspace(NEAR, FAR, n + 1)
    u = jax.random.uniform(key, (N_RAYS, n))
    return edges[:-1] + u * (edges[1:] - edges[:-1])


def sample_pdf(key, bins, weights, n):
    weights = weights + 1e-5
    pdf = weights / weights.sum(-1, keepdims=True)
    cdf = jnp.concatenate([jnp.zeros_like(pdf[:, :1]), jnp.cumsum(pdf, -1)], -1)
    u = jax.random.uniform(key, (bins.shape[0], n))
    idx = jax.vmap(lambda c, v: jnp.searchsorted(c, v, side="right"))(cdf, u)
    lo = jnp.clip(idx - 1, 0, cdf.shape[-1] - 1)
    hi = jnp.clip(idx, 0, cdf.shape[-1] - 1)
    take = lambda a, i: jnp.take_along_axis(a, i, axis=-1)
    c0, c1 = take(cdf, lo), take(cdf, hi)
    b0 = take(bins, jnp.clip(lo, 0, bins.shape[-1] - 1))
    b1 = take(bins, jnp.clip(hi, 0, bins.shape[-1] - 1))
    frac = (u - c0) / jnp.where(c1 - c0 < 1e-5, 1.0, c1 - c0)
    return b0 + frac * (b1 - b0)


def render_rays(params, key, origins, directions):
    k1, k2 = jax.random.split(key)
    viewdirs = directions / jnp.linalg.norm(directions, axis=-1, keepdims=True)

    t_coarse = stratified(k1, N_COARSE)
    points = origins[:, None] + t_coarse[..., None] * directions[:, None]
    with jax.named_scope("coarse"):
        rgb, sigma = nerf_mlp(params["coarse"], points, viewdirs)
    color_c, _, weights = volume_render(rgb, sigma, t_coarse)

    mids = 0.5 * (t_coarse[:, 1:] + t_coarse[:, :-1])
    t_extra = jax.lax.stop_gradient(sample_pdf(k2, mids, weights[:, 1:-1], N_FINE))
    t_fine = jnp.sort(jnp.concatenate([t_coarse, t_extra], axis=-1), axis=-1)
    points = origins[:, None] + t_fine[..., None] * directions[:, None]
    with jax.named_scope("fine"):
        rgb, sigma = nerf_mlp(params["fine"], points, viewdirs)
    color_f, depth, _ = volume_render(rgb, sigma, t_fine)
    return color_c, color_f, depth


def loss_fn(params, key, batch):
    color_c, color_f, _ = render_rays(params, key, batch["origins"], batch["directions"])
    mse_c = jnp.mean((color_c - batch["rgb"]) ** 2)
    mse_f = jnp.mean((color_f - batch["rgb"]) ** 2)
    psnr = -10.0 * jnp.log10(mse_f)
    return mse_c + mse_f, psnr


def adam_init(params):
    zeros = lambda: jax.tree.map(jnp.zeros_like, params)
    return {"m": zeros(), "v": zeros(), "step": jnp.zeros((), jnp.int32)}


def adam_update(grads, opt, params):
    step = opt["step"] + 1
    m = jax.tree.map(lambda m, g: B1 * m + (1 - B1) * g, opt["m"], grads)
    v = jax.tree.map(lambda v, g: B2 * v + (1 - B2) * g * g, opt["v"], grads)
    lr = LR * 0.1 ** (step / 250_000) * jnp.sqrt(1 - B2**step) / (1 - B1**step)
    params = jax.tree.map(lambda p, m, v: p - lr * m / (jnp.sqrt(v) + EPS), params, m, v)
    return params, {"m": m, "v": v, "step": step}


@jax.jit
def train_step(params, opt, key, batch):
    (loss, psnr), grads = jax.value_and_grad(loss_fn, has_aux=True)(params, key, batch)
    params, opt = adam_update(grads, opt, params)
    return params, opt, {"loss": loss, "psnr": psnr}


def init(key):
    k1, k2 = jax.random.split(key)
    params = {"coarse": init_nerf(k1), "fine": init_nerf(k2)}
    return params, adam_init(params)


def make():
    params, opt = jax.eval_shape(init, jax.random.key(0))
    rays = jax.ShapeDtypeStruct((N_RAYS, 3), jnp.float32)
    batch = {"origins": rays, "directions": rays, "rgb": rays}
    return train_step, (params, opt, jax.eval_shape(lambda: jax.random.key(0)), batch)
