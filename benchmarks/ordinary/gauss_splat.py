TRUTH = """
# gauss_splat — 3D Gaussian splatting, one optimisation step on one view (plain JAX + optax), single device, f32
FLOP shares: counted on the jaxpr (trace only, total 2.5 GF, mostly elementwise), not on a compiled program.

## 1 Tree of parts
train_step
1. **render (forward)**, 24 000 gaussians, 256x256 pixels
   - **project** (EWA: camera transform, quaternion -> covariance, Jacobian, conic, radius)
   - spherical-harmonics colour (eval_sh, degree 2)
   - **binning**: overlap test 256 tiles x 24 000 gaussians, top_k 256 nearest by depth (= the sort)
   - **rasterize: loop x16 (tile rows)** { gather the row's gaussians ; 16 tiles at once (vmap) of **composite: loop x4 (chunks of 64)** { alpha of 256 px x 64 gaussians, cumprod transmittance, colour += weights @ rgb } }
   - blend background, untile
2. **loss**: L1 + D-SSIM (5 separable 11-tap blurs), psnr
3. **backward**
   - loss/SSIM backward (blurs again)
   - **rasterize backward: loop x16** { recompute composite (loop x4, remat) ; composite backward loop x4 ; scatter-add into the gaussians }
   - SH backward, projection backward (binning has none: stop_gradient)
4. **adam x5 parameter groups** (xyz, log_scale, quat, opacity, sh with different learning rates)
5. densification statistics (norm of screen-space gradient)

## 2 Where the work goes
rasterize ~86% (forward 20%, backward 66%, of which about a third is recomputation); binning ~7% of FLOPs but surely more of the time (top_k of 256 x 24 000); SSIM ~4% fwd+bwd; projection + SH < 2%; adam + densify ~1%.

## 3 First picture, open and named, in order
project -> binning (test + top_k) -> rasterize x16 { composite x4 } -> loss (L1, SSIM) -> rasterize backward x16 { recompute x4, backward x4 } -> projection/SH backward -> adam. Open: rasterize forward and backward.

## 4 Misleading
- To call the x16 or x4 loop "layers". They are tile rows and depth chunks.
- To show "gemm"/"dot" as the heart: the only dots are a 256x64 @ 64x3 per tile and 3x3s; work is elementwise exp/cumprod.
- To hide binning because it has few FLOPs, or to give it a backward part.
- To scatter adam over five boxes on the first picture, or to show 16 tiles per row as repeated things (they are a batch dimension).
"""

"""3D Gaussian splatting: one optimisation step on one training view.  Plain JAX + optax, single GPU/TPU.

Tile based: 16x16 pixel tiles, each tile keeps its MAX_PER_TILE nearest overlapping gaussians, composited
front to back in chunks.  Tile rows are processed one after another with rematerialisation.
"""
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

N = 24_000
H = W = 256
TILE = 16
TY, TX = H // TILE, W // TILE
MAX_PER_TILE = 256
CHUNK = 64
SH_C0, SH_C1 = 0.28209479177387814, 0.4886025119029199
SH_C2 = (
    1.0925484305920792,
    -1.0925484305920792,
    0.31539156525252005,
    -1.0925484305920792,
    0.5462742152960396,
)
LAMBDA_DSSIM = 0.2


class Splats(NamedTuple):
    xyz: jax.Array  # [N,3]
    log_scale: jax.Array  # [N,3]
    quat: jax.Array  # [N,4]
    opacity: jax.Array  # [N]   (logit)
    sh: jax.Array  # [N,9,3]


class Camera(NamedTuple):
    R: jax.Array
    t: jax.Array
    fx: jax.Array
    fy: jax.Array


class Densify(NamedTuple):
    grad_sum: jax.Array
    count: jax.Array


def quat_to_rot(q):
    q = q / (jnp.linalg.norm(q, axis=-1, keepdims=True) + 1e-8)
    w, x, y, z = q[..., 0], q[..., 1], q[..., 2], q[..., 3]
    rows = [
        1 - 2 * (y * y + z * z),
        2 * (x * y - w * z),
        2 * (x * z + w * y),
        2 * (x * y + w * z),
        1 - 2 * (x * x + z * z),
        2 * (y * z - w * x),
        2 * (x * z - w * y),
        2 * (y * z + w * x),
        1 - 2 * (x * x + y * y),
    ]
    return jnp.stack(rows, -1).reshape(*q.shape[:-1], 3, 3)


def eval_sh(sh, dirs):
    x, y, z = dirs[:, 0:1], dirs[:, 1:2], dirs[:, 2:3]
    c = SH_C0 * sh[:, 0] - SH_C1 * y * sh[:, 1] + SH_C1 * z * sh[:, 2] - SH_C1 * x * sh[:, 3]
    c = (
        c
        + SH_C2[0] * x * y * sh[:, 4]
        + SH_C2[1] * y * z * sh[:, 5]
        + SH_C2[2] * (2 * z * z - x * x - y * y) * sh[:, 6]
        + SH_C2[3] * x * z * sh[:, 7]
        + SH_C2[4] * (x * x - y * y) * sh[:, 8]
    )
    return jax.nn.relu(c + 0.5)


def project(s: Splats, cam: Camera, probe):
    """EWA projection. Returns screen mean, conic, radius, depth."""
    p = s.xyz @ cam.R.T + cam.t
    z = jnp.maximum(p[:, 2], 0.1)
    uv = jnp.stack([cam.fx * p[:, 0] / z + W / 2, cam.fy * p[:, 1] / z + H / 2], -1) + probe
    M = quat_to_rot(s.quat) * jnp.exp(s.log_scale)[:, None, :]
    cov3 = jnp.einsum("nij,nkj->nik", M, M)
    zero = jnp.zeros_like(z)
    J = jnp.stack(
        [
            jnp.stack([cam.fx / z, zero, -cam.fx * p[:, 0] / z**2], -1),
            jnp.stack([zero, cam.fy / z, -cam.fy * p[:, 1] / z**2], -1),
        ],
        1,
    )
    T = J @ cam.R
    cov2 = jnp.einsum("nij,njk,nlk->nil", T, cov3, T) + 0.3 * jnp.eye(2)
    a, b, c = cov2[:, 0, 0], cov2[:, 0, 1], cov2[:, 1, 1]
    det = jnp.maximum(a * c - b * b, 1e-8)
    conic = jnp.stack([c, -b, a], -1) / det[:, None]
    mid = 0.5 * (a + c)
    radius = jnp.ceil(3.0 * jnp.sqrt(mid + jnp.sqrt(jnp.maximum(mid * mid - det, 0.1))))
    return uv, conic, jax.lax.stop_gradient(jnp.where(p[:, 2] > 0.2, radius, 0.0)), p[:, 2]


def bin_tiles(uv, radius, depth):
    """for each tile the ids of the nearest overlapping gaussians; [TY*TX, MAX_PER_TILE]"""
    ty, tx = jnp.meshgrid(jnp.arange(TY), jnp.arange(TX), indexing="ij")
    lo = jnp.stack([tx.ravel(), ty.ravel()], -1) * TILE
    uv, depth = jax.lax.stop_gradient((uv, depth))
    near = jnp.clip(uv[None], lo[:, None], lo[:, None] + TILE)
    hit = jnp.all(jnp.abs(uv[None] - near) <= radius[None, :, None], -1) & (radius > 0)[None]
    score = jnp.where(hit, -depth[None], -jnp.inf)
    top, ids = jax.lax.top_k(score, MAX_PER_TILE)
    return ids, jnp.isfinite(top)


def composite_tile(origin, uv, conic, alpha0, rgb, valid):
    """front to back over the tile's sorted gaussians in chunks"""
    px = (
        origin
        + jnp.stack(jnp.meshgrid(jnp.arange(TILE), jnp.arange(TILE), indexing="xy"), -1).reshape(
            -1, 2
        )
        + 0.5
    )

    def chunk(carry, g):
        color, trans = carry
        uv, conic, alpha0, rgb, valid = g
        d = px[:, None] - uv[None]
        power = (
            -0.5 * (conic[:, 0] * d[..., 0] ** 2 + conic[:, 2] * d[..., 1] ** 2)
            - conic[:, 1] * d[..., 0] * d[..., 1]
        )
        alpha = jnp.minimum(0.99, alpha0 * jnp.exp(jnp.minimum(power, 0.0))) * valid
        alpha = jnp.where(alpha < 1 / 255, 0.0, alpha)
        t = jnp.cumprod(1 - alpha, axis=1)
        before = trans[:, None] * jnp.concatenate([jnp.ones_like(t[:, :1]), t[:, :-1]], 1)
        color = color + (before * alpha) @ rgb
        return (color, trans * t[:, -1]), None

    split = lambda a: a.reshape(MAX_PER_TILE // CHUNK, CHUNK, *a.shape[1:])
    init = (jnp.zeros((TILE * TILE, 3)), jnp.ones(TILE * TILE))
    (color, trans), _ = jax.lax.scan(
        chunk, init, jax.tree.map(split, (uv, conic, alpha0, rgb, valid))
    )
    return color, trans


def rasterize(uv, conic, alpha0, rgb, ids, valid, background):
    @jax.checkpoint
    def row(args):
        y, ids, valid = args
        origin = jnp.stack([jnp.arange(TX) * TILE, jnp.full(TX, y * TILE)], -1)
        g = jax.tree.map(lambda a: a[ids], (uv, conic, alpha0, rgb))
        return jax.vmap(composite_tile)(origin, *g, valid.astype(jnp.float32))

    shape = (TY, TX, MAX_PER_TILE)
    color, trans = jax.lax.map(row, (jnp.arange(TY), ids.reshape(shape), valid.reshape(shape)))
    img = color + trans[..., None] * background
    return img.reshape(TY, TX, TILE, TILE, 3).transpose(0, 2, 1, 3, 4).reshape(H, W, 3)


def render(s: Splats, cam: Camera, probe, background):
    with jax.named_scope("project"):
        uv, conic, radius, depth = project(s, cam, probe)
    dirs = s.xyz + (cam.R.T @ cam.t)
    rgb = eval_sh(s.sh, dirs / (jnp.linalg.norm(dirs, axis=-1, keepdims=True) + 1e-8))
    with jax.named_scope("binning"):
        ids, valid = bin_tiles(uv, radius, depth)
    with jax.named_scope("rasterize"):
        img = rasterize(uv, conic, jax.nn.sigmoid(s.opacity), rgb, ids, valid, background)
    return img, radius > 0


def ssim(a, b, size=11, sigma=1.5):
    x = jnp.arange(size) - size // 2
    g = jnp.exp(-(x**2) / (2 * sigma**2))
    g = g / g.sum()

    def blur(z):
        z = z.transpose(2, 0, 1)[:, None]
        z = jax.lax.conv_general_dilated(z, g.reshape(1, 1, -1, 1), (1, 1), "SAME")
        return jax.lax.conv_general_dilated(z, g.reshape(1, 1, 1, -1), (1, 1), "SAME")

    mu_a, mu_b = blur(a), blur(b)
    va, vb, cab = blur(a * a) - mu_a**2, blur(b * b) - mu_b**2, blur(a * b) - mu_a * mu_b
    c1, c2 = 0.01**2, 0.03**2
    return jnp.mean(
        (2 * mu_a * mu_b + c1) * (2 * cab + c2) / ((mu_a**2 + mu_b**2 + c1) * (va + vb + c2))
    )


def loss_fn(splats, probe, cam, target, background):
    img, visible = render(splats, cam, probe, background)
    l1 = jnp.abs(img - target).mean()
    loss = (1 - LAMBDA_DSSIM) * l1 + LAMBDA_DSSIM * (1 - ssim(img, target))
    return loss, (visible, -10 * jnp.log10(jnp.mean((img - target) ** 2)))


def make_optimizer():
    xyz_lr = optax.exponential_decay(1.6e-4, 30_000, 0.01)
    lrs = Splats(xyz=xyz_lr, log_scale=5e-3, quat=1e-3, opacity=5e-2, sh=2.5e-3)
    return optax.multi_transform(
        {k: optax.adam(getattr(lrs, k), eps=1e-15) for k in Splats._fields}, Splats(*Splats._fields)
    )


def train_step(tx, splats, opt_state, densify, cam, target, background):
    probe = jnp.zeros((N, 2))
    (loss, (visible, psnr)), (g, gp) = jax.value_and_grad(loss_fn, argnums=(0, 1), has_aux=True)(
        splats, probe, cam, target, background
    )
    updates, opt_state = tx.update(g, opt_state, splats)
    splats = optax.apply_updates(splats, updates)
    densify = Densify(
        densify.grad_sum + jnp.linalg.norm(gp, axis=-1) * visible, densify.count + visible
    )
    return splats, opt_state, densify, {"loss": loss, "psnr": psnr}


def build(devices=None):
    tx = make_optimizer()
    sh = None if devices is None else jax.sharding.SingleDeviceSharding(devices[0])
    S = lambda *s: jax.ShapeDtypeStruct(s, jnp.float32, sharding=sh)
    splats = Splats(S(N, 3), S(N, 3), S(N, 4), S(N), S(N, 9, 3))
    opt = jax.tree.map(
        lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=sh),
        jax.eval_shape(tx.init, splats),
    )
    cam = Camera(S(3, 3), S(3), S(), S())
    return (
        jax.jit(partial(train_step, tx), donate_argnums=(0, 1, 2)),
        (splats, opt, Densify(S(N), S(N)), cam, S(H, W, 3), S(3)),
    )
