"""U-ViT trained with the EDM objective (Karras et al. 2022) on 32x32x4 latents. Plain functions, dict params, lax.scan."""

TRUTH = """
IN ORDER
- one `train_step`: draw sigma (log-normal) and noise -> noised latents -> preconditioned denoiser (c_skip, c_out, c_in, c_noise)
  -> weighted mse (`edm_loss`) -> backward -> Adam -> EMA of the params
- denoiser network `uvit`: `patchify` (2x2 -> 256 tokens) ; time token + class token put in front (258 tokens) ;
  in-blocks x6 (scan, keeps each output as a skip) ; one mid block ; out-blocks x6 (scan, takes the skips in reverse order: concat + linear) ;
  final norm, `unpatchify`
COUNTS
- loops: forward 2 (6 iterations each), backward 2 (6 iterations each, reversed order: out-blocks' first, then in-blocks'); 13 blocks in all
- block = norm, attention (8 heads), norm, MLP; out-block has one more matmul for its skip
ORDER / INDEPENDENCE
- noise, sigma sampling are independent of each other (three rng splits); skips are the edges from the in-loop to the out-loop
- EMA needs the new params, i.e. after Adam; everything in the optimiser is elementwise
HEAVY
- MLP + attention matmuls of the 13 blocks, out-blocks a bit heavier than the in-blocks (skip linear); patchify/unpatchify ~ 0
PERFORMANCE  (deliberate flaw)
- NOT DONATED: params, Adam m, v, and EMA (4 copies x ~ 45 M f32 = ~ 0.7 GB) are all held twice (inputs and outputs)
- otherwise healthy. The saved residuals of the two layer loops (stacked [6, ...]) are the largest temporaries: no remat is used
"""
import jax
import jax.numpy as jnp

DIM, HEADS, DEPTH, BATCH, CLASSES = 512, 8, 6, 64, 1000
SIGMA_DATA = 0.5


def dense_init(key, n_in, n_out, stack=()):
    return jax.random.normal(key, (*stack, n_in, n_out)) * n_in**-0.5


def block_init(key, stack=(), skip=False):
    k = jax.random.split(key, 5)
    p = {
        "norm1": jnp.ones((*stack, DIM)),
        "norm2": jnp.ones((*stack, DIM)),
        "qkv": dense_init(k[0], DIM, 3 * DIM, stack),
        "proj": dense_init(k[1], DIM, DIM, stack),
        "up": dense_init(k[2], DIM, 4 * DIM, stack),
        "down": dense_init(k[3], 4 * DIM, DIM, stack),
    }
    if skip:
        p["skip"] = dense_init(k[4], 2 * DIM, DIM, stack)
    return p


def init(key):
    k = jax.random.split(key, 8)
    return {
        "patch": dense_init(k[0], 16, DIM),
        "pos": 0.02 * jax.random.normal(k[1], (258, DIM)),
        "label": 0.02 * jax.random.normal(k[2], (CLASSES, DIM)),
        "time": dense_init(k[3], 256, DIM),
        "in_blocks": block_init(k[4], (DEPTH,)),
        "mid": block_init(k[5]),
        "out_blocks": block_init(k[6], (DEPTH,), skip=True),
        "norm": jnp.ones(DIM),
        "out": dense_init(k[7], DIM, 16),
    }


def rmsnorm(x, g):
    return x * jax.lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-6) * g


def attention(p, x):
    b, n, d = x.shape
    q, k, v = jnp.split((x @ p["qkv"]).reshape(b, n, 3 * HEADS, d // HEADS), 3, axis=2)
    s = jnp.einsum("bqhc,bkhc->bhqk", q, k) * (d // HEADS) ** -0.5
    o = jnp.einsum("bhqk,bkhc->bqhc", jax.nn.softmax(s), v)
    return o.reshape(b, n, d) @ p["proj"]


def block(p, x):
    x = x + attention(p, rmsnorm(x, p["norm1"]))
    return x + jax.nn.gelu(rmsnorm(x, p["norm2"]) @ p["up"]) @ p["down"]


def uvit(params, img, c_noise, label):
    b = img.shape[0]
    x = (
        img.reshape(b, 16, 2, 16, 2, 4).transpose(0, 1, 3, 2, 4, 5).reshape(b, 256, 16)
        @ params["patch"]
    )
    freq = jnp.exp(-jnp.log(1e4) * jnp.arange(128) / 128) * c_noise[:, None] * 1000
    t = jnp.concatenate([jnp.cos(freq), jnp.sin(freq)], -1) @ params["time"]
    x = jnp.concatenate([t[:, None], params["label"][label][:, None], x], 1) + params["pos"]

    def down(x, p):
        x = block(p, x)
        return x, x

    def up(x, p_and_skip):
        p, skip = p_and_skip
        x = jnp.concatenate([x, skip], -1) @ p["skip"]
        return block(p, x), None

    x, skips = jax.lax.scan(down, x, params["in_blocks"])
    x = block(params["mid"], x)
    x, _ = jax.lax.scan(up, x, (params["out_blocks"], skips[::-1]))
    x = rmsnorm(x[:, 2:], params["norm"]) @ params["out"]
    return x.reshape(b, 16, 16, 2, 2, 4).transpose(0, 1, 3, 2, 4, 5).reshape(b, 32, 32, 4)


def denoise(params, noised, sigma, label):
    s = sigma[:, None, None, None]
    c_skip = SIGMA_DATA**2 / (s**2 + SIGMA_DATA**2)
    c_out = s * SIGMA_DATA * jax.lax.rsqrt(s**2 + SIGMA_DATA**2)
    c_in = jax.lax.rsqrt(s**2 + SIGMA_DATA**2)
    return c_skip * noised + c_out * uvit(params, c_in * noised, jnp.log(sigma) / 4, label)


def edm_loss(params, latents, label, key):
    k_sigma, k_noise = jax.random.split(key)
    sigma = jnp.exp(1.2 * jax.random.normal(k_sigma, (latents.shape[0],)) - 1.2)
    noise = jax.random.normal(k_noise, latents.shape) * sigma[:, None, None, None]
    weight = (sigma**2 + SIGMA_DATA**2) / (sigma * SIGMA_DATA) ** 2
    err = denoise(params, latents + noise, sigma, label) - latents
    return jnp.mean(weight[:, None, None, None] * err**2)


def adam(grads, m, v, params, step, lr=2e-4, b1=0.9, b2=0.99):
    m = jax.tree.map(lambda m, g: b1 * m + (1 - b1) * g, m, grads)
    v = jax.tree.map(lambda v, g: b2 * v + (1 - b2) * g * g, v, grads)
    c1, c2 = 1 - b1**step, 1 - b2**step
    params = jax.tree.map(
        lambda p, m, v: p - lr * (m / c1) / (jnp.sqrt(v / c2) + 1e-8), params, m, v
    )
    return params, m, v


@jax.jit
def train_step(state, latents, label):
    key, sub = jax.random.split(state["key"])
    loss, grads = jax.value_and_grad(edm_loss)(state["params"], latents, label, sub)
    step = state["step"] + 1
    params, m, v = adam(grads, state["m"], state["v"], state["params"], step)
    decay = jnp.minimum(0.9999, (1 + step) / (10 + step))
    ema = jax.tree.map(lambda e, p: decay * e + (1 - decay) * p, state["ema"], params)
    return {"params": params, "m": m, "v": v, "ema": ema, "step": step, "key": key}, loss


def make():
    def first(key):
        p = init(key)
        return {"params": p, "m": p, "v": p, "ema": p, "step": jnp.float32(0), "key": key}

    state = jax.eval_shape(first, jax.random.PRNGKey(0))
    S = jax.ShapeDtypeStruct
    return train_step, (state, S((BATCH, 32, 32, 4), jnp.float32), S((BATCH,), jnp.int32))
