"""RWKV-4 style language model (time mixing scan inside a scan over layers), plain JAX train step."""

TRUTH = {
    "majors": {
        "time_mixing": 0.35,
        "channel_mixing": 0.45,
        "head": 0.15,
        "wkv scan (elementwise)": 0.01,
        "backward": 0.66,
        "adam": 0.0,
    },
    "layers": [["block (time_mixing + channel_mixing)", 8]],
    "optimizer": True,
    "grad": "all params",
    "loops": [["scan over layers (block)", 8], ["wkv scan over time", 256]],
    "tells_apart": [["time_mixing", "channel_mixing"]],
}

import jax
import jax.numpy as jnp

VOCAB, WIDTH, LAYERS, FFN = 8192, 384, 8, 1536
BATCH, SEQ = 16, 256
LR, B1, B2, EPS, WD = 6e-4, 0.9, 0.99, 1e-8, 0.01


def init_params(key):
    k = iter(jax.random.split(key, 16))
    n = lambda *s: jax.random.normal(next(k), s) * s[-2] ** -0.5
    L, D = LAYERS, WIDTH
    att = {
        "mix_k": jnp.full((L, D), 0.5),
        "mix_v": jnp.full((L, D), 0.5),
        "mix_r": jnp.full((L, D), 0.5),
        "decay": jnp.full((L, D), -5.0),
        "first": jnp.zeros((L, D)),
        "key": n(L, D, D),
        "value": n(L, D, D),
        "receptance": n(L, D, D),
        "output": n(L, D, D),
    }
    ffn = {
        "mix_k": jnp.full((L, D), 0.5),
        "mix_r": jnp.full((L, D), 0.5),
        "key": n(L, D, FFN),
        "receptance": n(L, D, D),
        "value": n(L, FFN, D),
    }
    ln = lambda *s: {"scale": jnp.ones((*s, D)), "bias": jnp.zeros((*s, D))}
    return {
        "emb": 1e-4 * n(VOCAB, D),
        "ln0": ln(),
        "blocks": {"ln1": ln(L), "att": att, "ln2": ln(L), "ffn": ffn},
        "ln_out": ln(),
        "head": n(D, VOCAB),
    }


def layer_norm(p, x):
    mu = x.mean(-1, keepdims=True)
    var = ((x - mu) ** 2).mean(-1, keepdims=True)
    return (x - mu) * jax.lax.rsqrt(var + 1e-5) * p["scale"] + p["bias"]


def time_shift(x):
    return jnp.pad(x, ((0, 0), (1, 0), (0, 0)))[:, :-1]


def wkv(decay, first, k, v):
    """Numerically stable WKV recurrence over time; k, v: [B, T, D]."""
    w = -jnp.exp(decay)

    def step(state, kv):
        num, den, top = state
        kt, vt = kv
        q = jnp.maximum(top, first + kt)
        e1, e2 = jnp.exp(top - q), jnp.exp(first + kt - q)
        out = (e1 * num + e2 * vt) / (e1 * den + e2)
        q = jnp.maximum(top + w, kt)
        e1, e2 = jnp.exp(top + w - q), jnp.exp(kt - q)
        return (e1 * num + e2 * vt, e1 * den + e2, q), out

    zeros = jnp.zeros_like(k[:, 0])
    _, out = jax.lax.scan(step, (zeros, zeros, zeros - 1e38), (k.swapaxes(0, 1), v.swapaxes(0, 1)))
    return out.swapaxes(0, 1)


def time_mixing(p, x):
    last = time_shift(x)
    mix = lambda m: x * m + last * (1 - m)
    k = mix(p["mix_k"]) @ p["key"]
    v = mix(p["mix_v"]) @ p["value"]
    r = jax.nn.sigmoid(mix(p["mix_r"]) @ p["receptance"])
    return (r * wkv(p["decay"], p["first"], k, v)) @ p["output"]


def channel_mixing(p, x):
    last = time_shift(x)
    k = (x * p["mix_k"] + last * (1 - p["mix_k"])) @ p["key"]
    r = jax.nn.sigmoid((x * p["mix_r"] + last * (1 - p["mix_r"])) @ p["receptance"])
    return r * (jnp.square(jax.nn.relu(k)) @ p["value"])


def block(p, x):
    x = x + time_mixing(p["att"], layer_norm(p["ln1"], x))
    x = x + channel_mixing(p["ffn"], layer_norm(p["ln2"], x))
    return x


def rwkv(params, tokens):
    x = layer_norm(params["ln0"], params["emb"][tokens])
    x, _ = jax.lax.scan(lambda x, p: (jax.checkpoint(block)(p, x), None), x, params["blocks"])
    return layer_norm(params["ln_out"], x) @ params["head"]


def cross_entropy(logits, targets):
    logz = jax.nn.logsumexp(logits, axis=-1)
    picked = jnp.take_along_axis(logits, targets[..., None], axis=-1)[..., 0]
    return (logz - picked).mean() + 1e-4 * (logz**2).mean()


def loss_fn(params, tokens):
    return cross_entropy(rwkv(params, tokens[:, :-1]), tokens[:, 1:])


def clip(grads, limit):
    norm = jnp.sqrt(sum(jnp.sum(g**2) for g in jax.tree.leaves(grads)))
    return jax.tree.map(lambda g: g * jnp.minimum(1.0, limit / (norm + 1e-6)), grads), norm


def adam(params, grads, m, v, t):
    m = jax.tree.map(lambda m, g: B1 * m + (1 - B1) * g, m, grads)
    v = jax.tree.map(lambda v, g: B2 * v + (1 - B2) * g**2, v, grads)

    def new(p, m, v):
        mhat, vhat = m / (1 - B1**t), v / (1 - B2**t)
        return p - LR * (mhat / (jnp.sqrt(vhat) + EPS) + WD * p)

    return jax.tree.map(new, params, m, v), m, v


@jax.jit
def train(params, m, v, t, tokens):
    loss, grads = jax.value_and_grad(loss_fn)(params, tokens)
    grads, norm = clip(grads, 1.0)
    params, m, v = adam(params, grads, m, v, t + 1)
    return params, m, v, t + 1, loss, norm


def make():
    params = jax.eval_shape(init_params, jax.random.key(0))
    t = jax.ShapeDtypeStruct((), jnp.float32)
    return train, (params, params, params, t, jax.ShapeDtypeStruct((BATCH, SEQ + 1), jnp.int32))
