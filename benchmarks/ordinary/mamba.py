"""Mamba language model training step in plain jax: associative scan, unrolled blocks, optax adamw."""

TRUTH = {
    "majors": {
        "mamba_block forward": 0.25,
        "mamba_block backward": 0.5,
        "lm_head / cross_entropy": 0.25,
        "adamw": 0.0,
    },
    "layers": [["mamba_block", 6]],
    "optimizer": True,
    "grad": "all params",
    "loops": [],
    "tells_apart": [["selective_scan", "in_proj"], ["forward", "backward"]],
    "order": [
        ["causal_conv", "selective_scan"],
        ["mamba_block", "cross_entropy"],
        ["cross_entropy", "mamba_block backward"],
        ["mamba_block backward", "adamw"],
    ],
    "independent": [],
}
import jax
import jax.numpy as jnp
import optax

VOCAB, D, INNER, STATE, RANK, LAYERS, B, N = 4096, 256, 512, 8, 16, 6, 8, 256
tx = optax.chain(
    optax.clip_by_global_norm(1.0),
    optax.adamw(optax.cosine_decay_schedule(3e-4, 10000), weight_decay=0.1),
)


def layer_norm(x, g):
    return x * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-5) * g


def causal_conv(x, w, b):
    k = w.shape[0]
    xp = jnp.pad(x, ((0, 0), (k - 1, 0), (0, 0)))
    return sum(xp[:, i : i + x.shape[1]] * w[i] for i in range(k)) + b


def selective_scan(x, delta, A, Bm, C, skip):
    dA = jnp.exp(delta[..., None] * A)
    dBx = (delta * x)[..., None] * Bm[:, :, None, :]

    def combine(a, b):
        return a[0] * b[0], b[0] * a[1] + b[1]

    _, h = jax.lax.associative_scan(combine, (dA, dBx), axis=1)
    return jnp.einsum("bnds,bns->bnd", h, C) + x * skip


def mamba_block(p, x):
    y = layer_norm(x, p["norm"])
    u, gate = jnp.split(y @ p["in_proj"], 2, -1)
    u = jax.nn.silu(causal_conv(u, p["conv_w"], p["conv_b"]))
    dt, Bm, C = jnp.split(u @ p["x_proj"], [RANK, RANK + STATE], -1)
    delta = jax.nn.softplus(dt @ p["dt_proj"] + p["dt_bias"])
    s = selective_scan(u, delta, -jnp.exp(p["A_log"]), Bm, C, p["skip"])
    return x + (s * jax.nn.silu(gate)) @ p["out_proj"]


def lm(params, tokens):
    x = params["embed"][tokens]
    for p in params["blocks"]:
        x = mamba_block(p, x)
    return layer_norm(x, params["norm"]) @ params["embed"].T


def cross_entropy(params, tokens):
    logits = lm(params, tokens[:, :-1])
    return optax.softmax_cross_entropy_with_integer_labels(logits, tokens[:, 1:]).mean()


@jax.jit
def train_step(params, opt_state, tokens):
    loss, grads = jax.value_and_grad(cross_entropy)(params, tokens)
    updates, opt_state = tx.update(grads, opt_state, params)
    return optax.apply_updates(params, updates), opt_state, loss


def make():
    f = lambda *s: jax.ShapeDtypeStruct(s, jnp.float32)
    blk = lambda: {
        "norm": f(D),
        "in_proj": f(D, 2 * INNER),
        "conv_w": f(4, INNER),
        "conv_b": f(INNER),
        "x_proj": f(INNER, RANK + 2 * STATE),
        "dt_proj": f(RANK, INNER),
        "dt_bias": f(INNER),
        "A_log": f(INNER, STATE),
        "skip": f(INNER),
        "out_proj": f(INNER, D),
    }
    params = {"embed": f(VOCAB, D), "norm": f(D), "blocks": [blk() for _ in range(LAYERS)]}
    return train_step, (
        params,
        jax.eval_shape(tx.init, params),
        jax.ShapeDtypeStruct((B, N + 1), jnp.int32),
    )
