"""Flow-matching DiT, scan over layers with remat, parameters fully sharded over one axis."""

MESH = {"fsdp": 8}

TRUTH = {
    "majors": {
        "dit_block scan forward": 0.24,
        "dit_block backward with recompute": 0.72,
        "patchify": 0.0,
        "final_layer": 0.01,
        "conditioning (timestep + label)": 0.0,
        "adamw": 0.01,
        "all-gather of weights / reduce-scatter of grads": 0.0,
    },
    "layers": [["dit_block", 12]],
    "optimizer": True,
    "grad": "all params; blocks rematerialised",
    "loops": [["run_blocks scan over blocks", 12]],
    "tells_apart": [["forward scan", "backward scan"], ["attention", "mlp"]],
}

from functools import partial

import jax
import jax.numpy as jnp
import optax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

LATENT, CHANNELS, PATCH = 32, 4, 2
WIDTH, HEADS, LAYERS, CLASSES = 512, 8, 12, 1000
TOKENS = (LATENT // PATCH) ** 2
BATCH = 64


def linear_init(key, n_in, n_out, scale=1.0, stack=()):
    return {
        "kernel": scale * n_in**-0.5 * jax.random.normal(key, (*stack, n_in, n_out)),
        "bias": jnp.zeros((*stack, n_out)),
    }


def linear(p, x):
    return x @ p["kernel"].astype(x.dtype) + p["bias"].astype(x.dtype)


def init_params(key):
    k = jax.random.split(key, 12)
    d, s = WIDTH, (LAYERS,)
    blocks = {
        "qkv": linear_init(k[0], d, 3 * d, stack=s),
        "proj": linear_init(k[1], d, d, stack=s),
        "fc1": linear_init(k[2], d, 4 * d, stack=s),
        "fc2": linear_init(k[3], 4 * d, d, stack=s),
        "adaln": linear_init(k[4], d, 6 * d, 0.0, stack=s),
    }
    patch_dim = PATCH * PATCH * CHANNELS
    return {
        "patch": linear_init(k[5], patch_dim, d),
        "pos": 0.02 * jax.random.normal(k[6], (TOKENS, d)),
        "time1": linear_init(k[7], 256, d),
        "time2": linear_init(k[8], d, d),
        "label": 0.02 * jax.random.normal(k[9], (CLASSES + 1, d)),
        "blocks": blocks,
        "final_adaln": linear_init(k[10], d, 2 * d, 0.0),
        "final": linear_init(k[11], d, patch_dim, 0.0),
    }


def norm(x):
    x32 = x.astype(jnp.float32)
    mu = x32.mean(-1, keepdims=True)
    var = x32.var(-1, keepdims=True)
    return ((x32 - mu) * jax.lax.rsqrt(var + 1e-6)).astype(x.dtype)


def modulate(x, shift, scale):
    return norm(x) * (1 + scale[:, None]) + shift[:, None]


def attention(p, x):
    b, n, d = x.shape
    qkv = linear(p["qkv"], x).reshape(b, n, 3, HEADS, d // HEADS)
    q, k, v = jnp.moveaxis(qkv, 2, 0)
    out = jax.nn.dot_product_attention(q, k, v)
    return linear(p["proj"], out.reshape(b, n, d))


def mlp(p, x):
    return linear(p["fc2"], jax.nn.gelu(linear(p["fc1"], x)))


def dit_block(p, x, cond):
    mods = linear(p["adaln"], jax.nn.silu(cond))
    shift_a, scale_a, gate_a, shift_m, scale_m, gate_m = jnp.split(mods, 6, axis=-1)
    x = x + gate_a[:, None] * attention(p, modulate(x, shift_a, scale_a))
    x = x + gate_m[:, None] * mlp(p, modulate(x, shift_m, scale_m))
    return x


def run_blocks(blocks, x, cond):
    @partial(jax.checkpoint, policy=jax.checkpoint_policies.nothing_saveable)
    def body(x, p):
        return dit_block(p, x, cond), None

    x, _ = jax.lax.scan(body, x, blocks)
    return x


def patchify(x):
    b, h, w, c = x.shape
    x = x.reshape(b, h // PATCH, PATCH, w // PATCH, PATCH, c)
    return x.transpose(0, 1, 3, 2, 4, 5).reshape(b, TOKENS, -1)


def unpatchify(x):
    b, g = x.shape[0], LATENT // PATCH
    x = x.reshape(b, g, g, PATCH, PATCH, CHANNELS)
    return x.transpose(0, 1, 3, 2, 4, 5).reshape(b, LATENT, LATENT, CHANNELS)


def conditioning(params, t, label):
    freqs = jnp.exp(-jnp.log(10000.0) * jnp.arange(128) / 128)
    angles = 1000.0 * t[:, None] * freqs
    emb = jnp.concatenate([jnp.cos(angles), jnp.sin(angles)], -1).astype(jnp.bfloat16)
    emb = linear(params["time2"], jax.nn.silu(linear(params["time1"], emb)))
    return emb + params["label"][label].astype(emb.dtype)


def final_layer(params, x, cond):
    shift, scale = jnp.split(linear(params["final_adaln"], jax.nn.silu(cond)), 2, -1)
    return linear(params["final"], modulate(x, shift, scale))


def velocity(params, xt, t, label):
    cond = conditioning(params, t, label)
    x = linear(params["patch"], patchify(xt).astype(jnp.bfloat16)) + params["pos"].astype(
        jnp.bfloat16
    )
    x = run_blocks(params["blocks"], x, cond)
    return unpatchify(final_layer(params, x, cond)).astype(jnp.float32)


def flow_matching_loss(params, key, x1, label):
    k0, kt, kd = jax.random.split(key, 3)
    x0 = jax.random.normal(k0, x1.shape)
    t = jax.nn.sigmoid(jax.random.normal(kt, (x1.shape[0],)))
    label = jnp.where(jax.random.uniform(kd, label.shape) < 0.1, CLASSES, label)
    tt = t[:, None, None, None]
    xt = (1 - tt) * x0 + tt * x1
    v = velocity(params, xt, t, label)
    return jnp.mean((v - (x1 - x0)) ** 2)


tx = optax.adamw(1e-4, b2=0.95, weight_decay=0.0)


def train_step(params, opt_state, key, x1, label):
    loss, grads = jax.value_and_grad(flow_matching_loss)(params, key, x1, label)
    updates, opt_state = tx.update(grads, opt_state, params)
    params = optax.apply_updates(params, updates)
    return params, opt_state, loss


def fsdp_sharding(mesh, leaf):
    """Shard the largest dimension that divides, leave small things replicated."""
    n = mesh.shape["fsdp"]
    if leaf.size < 2**14:
        return NamedSharding(mesh, P())
    dims = sorted(range(leaf.ndim), key=lambda i: -leaf.shape[i])
    for d in dims:
        if leaf.shape[d] % n == 0 and not (leaf.ndim == 3 and d == 0):
            return NamedSharding(mesh, P(*[("fsdp" if i == d else None) for i in range(leaf.ndim)]))
    return NamedSharding(mesh, P())


def make(mesh):
    shard = lambda tree: jax.tree.map(
        lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=fsdp_sharding(mesh, a)), tree
    )
    params = jax.eval_shape(init_params, jax.random.key(0))
    opt_state = shard(jax.eval_shape(tx.init, params))
    params = shard(params)
    data = NamedSharding(mesh, P("fsdp"))
    x1 = jax.ShapeDtypeStruct((BATCH, LATENT, LATENT, CHANNELS), jnp.float32, sharding=data)
    label = jax.ShapeDtypeStruct((BATCH,), jnp.int32, sharding=data)
    key = jax.eval_shape(lambda: jax.random.key(0))
    out = (
        jax.tree.map(lambda a: a.sharding, params),
        jax.tree.map(lambda a: a.sharding, opt_state),
        None,
    )
    return jax.jit(train_step, donate_argnums=(0, 1), out_shardings=out), (
        params,
        opt_state,
        key,
        x1,
        label,
    )
