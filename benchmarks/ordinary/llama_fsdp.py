"""Llama pretraining step: stacked layers scanned with remat, FSDP over a (data, fsdp) mesh, hand-written AdamW."""

TRUTH = {
    "majors": {
        "decoder_layer forward": 0.2,
        "decoder_layer backward (with remat)": 0.6,
        "next_token_loss / output head": 0.2,
        "adamw_update": 0.01,
    },
    "layers": [["decoder_layer", 8]],
    "optimizer": True,
    "grad": "all params",
    "loops": ["scan over 8 layers forward", "scan over 8 layers backward"],
    "tells_apart": [["forward", "backward"], ["attention", "swiglu"]],
    "order": [
        ["embed", "decoder_layer"],
        ["attention", "swiglu"],
        ["decoder_layer", "next_token_loss"],
        ["next_token_loss", "decoder_layer backward"],
        ["decoder_layer backward", "clip_grads"],
        ["clip_grads", "adamw_update"],
    ],
    "independent": [],
}
MESH = {"data": 2, "fsdp": 4}
import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

VOCAB, D, LAYERS, HEADS, KV, FF, SEQ, BATCH = 16384, 512, 8, 8, 4, 1408, 512, 16


def rms_norm(x, w):
    return (
        x * jax.lax.rsqrt(jnp.mean(jnp.square(x.astype(jnp.float32)), -1, keepdims=True) + 1e-5)
    ).astype(x.dtype) * w


def rope(x, pos):
    half = x.shape[-1] // 2
    freq = 1e4 ** (-jnp.arange(half) / half)
    a = pos[:, None] * freq
    c, s = jnp.cos(a)[:, None], jnp.sin(a)[:, None]
    x1, x2 = x[..., :half], x[..., half:]
    return jnp.concatenate([x1 * c - x2 * s, x2 * c + x1 * s], -1).astype(x.dtype)


def attention(p, x):
    b, n, d = x.shape
    h = d // HEADS
    pos = jnp.arange(n)
    q = rope((x @ p["wq"]).reshape(b, n, HEADS, h), pos)
    k = rope((x @ p["wk"]).reshape(b, n, KV, h), pos)
    v = (x @ p["wv"]).reshape(b, n, KV, h)
    return jax.nn.dot_product_attention(q, k, v, is_causal=True).reshape(b, n, d) @ p["wo"]


def swiglu(p, x):
    return (jax.nn.silu(x @ p["w1"]) * (x @ p["w3"])) @ p["w2"]


def decoder_layer(x, p):
    x = x + attention(p, rms_norm(x, p["norm1"]))
    return x + swiglu(p, rms_norm(x, p["norm2"]))


def embed(params, tokens):
    return params["embed"][tokens]


def transformer(params, tokens):
    x = embed(params, tokens)
    body = jax.checkpoint(lambda x, p: (decoder_layer(x, p), None))
    x, _ = jax.lax.scan(body, x, params["layers"])
    return rms_norm(x, params["norm"])


def next_token_loss(params, tokens):
    x = transformer(params, tokens[:, :-1])
    logits = (x @ params["head"]).astype(jnp.float32)
    logp = jax.nn.log_softmax(logits)
    return -jnp.take_along_axis(logp, tokens[:, 1:, None], -1).mean()


def clip_grads(grads, limit=1.0):
    norm = jnp.sqrt(sum(jnp.sum(jnp.square(g.astype(jnp.float32))) for g in jax.tree.leaves(grads)))
    return jax.tree.map(
        lambda g: g * jnp.minimum(1.0, limit / (norm + 1e-6)).astype(g.dtype), grads
    ), norm


def adamw_update(params, grads, m, v, step, lr=3e-4, b1=0.9, b2=0.95, wd=0.1):
    m = jax.tree.map(lambda m, g: b1 * m + (1 - b1) * g, m, grads)
    v = jax.tree.map(lambda v, g: b2 * v + (1 - b2) * g * g, v, grads)
    t = step.astype(jnp.float32) + 1
    params = jax.tree.map(
        lambda p, m, v: p - lr * (m / (1 - b1**t) / (jnp.sqrt(v / (1 - b2**t)) + 1e-8) + wd * p),
        params,
        m,
        v,
    )
    return params, m, v


def train_step(state, tokens):
    loss, grads = jax.value_and_grad(next_token_loss)(state["params"], tokens)
    grads, norm = clip_grads(grads)
    params, m, v = adamw_update(state["params"], grads, state["m"], state["v"], state["step"])
    return {"params": params, "m": m, "v": v, "step": state["step"] + 1}, {
        "loss": loss,
        "norm": norm,
    }


def make(mesh):
    h = D // HEADS
    shapes = {
        "embed": (VOCAB, D),
        "head": (D, VOCAB),
        "norm": (D,),
        "layers": {
            "wq": (LAYERS, D, D),
            "wk": (LAYERS, D, KV * h),
            "wv": (LAYERS, D, KV * h),
            "wo": (LAYERS, D, D),
            "w1": (LAYERS, D, FF),
            "w3": (LAYERS, D, FF),
            "w2": (LAYERS, FF, D),
            "norm1": (LAYERS, D),
            "norm2": (LAYERS, D),
        },
    }

    def spec(s):
        if len(s) == 3:
            return P(None, "fsdp", None)
        if len(s) == 2 and s[0] != LAYERS:
            return P("fsdp", None)
        return P()

    par = jax.tree.map(
        lambda s: jax.ShapeDtypeStruct(s, jnp.float32, sharding=NamedSharding(mesh, spec(s))),
        shapes,
        is_leaf=lambda s: isinstance(s, tuple),
    )
    state = {
        "params": par,
        "m": par,
        "v": par,
        "step": jax.ShapeDtypeStruct((), jnp.int32, sharding=NamedSharding(mesh, P())),
    }
    tok = jax.ShapeDtypeStruct(
        (BATCH, SEQ + 1), jnp.int32, sharding=NamedSharding(mesh, P(("data", "fsdp")))
    )
    sh = jax.tree.map(lambda s: s.sharding, state)
    return jax.jit(train_step, out_shardings=(sh, None), donate_argnums=0), (state, tok)
