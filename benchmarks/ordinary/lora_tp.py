"""LoRA fine-tuning of a frozen Llama-like model, tensor parallel x data parallel."""

MESH = {"data": 2, "model": 4}

TRUTH = {
    "majors": {
        "llama forward (frozen base + LoRA), scan over 8 layers": 0.33,
        "backward (activations, LoRA grads only)": 0.4,
        "attention": 0.3,
        "swiglu mlp": 0.55,
        "lm_head": 0.12,
        "LoRA adapters": 0.02,
        "adamw on lora": 0.0,
    },
    "layers": [["decoder_layer", 8]],
    "optimizer": True,
    "grad": "lora params only (base is frozen)",
    "loops": [["scan over layers (body)", 8]],
    "tells_apart": [["base", "lora"], ["attention", "mlp"]],
}

import jax
import jax.numpy as jnp
import optax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

VOCAB, WIDTH, HEADS, KV_HEADS, FFN, LAYERS = 16384, 512, 8, 4, 1408, 8
HEAD = WIDTH // HEADS
RANK, ALPHA = 16, 32
BATCH, SEQ = 8, 512


def init_base(key):
    k = jax.random.split(key, 9)
    n = lambda key, *s: (jax.random.normal(key, s) * s[-2] ** -0.5).astype(jnp.bfloat16)
    return {
        "embed": n(k[0], VOCAB, WIDTH),
        "layers": {
            "attn_norm": jnp.ones((LAYERS, WIDTH)),
            "wq": n(k[1], LAYERS, WIDTH, HEADS * HEAD),
            "wk": n(k[2], LAYERS, WIDTH, KV_HEADS * HEAD),
            "wv": n(k[3], LAYERS, WIDTH, KV_HEADS * HEAD),
            "wo": n(k[4], LAYERS, HEADS * HEAD, WIDTH),
            "mlp_norm": jnp.ones((LAYERS, WIDTH)),
            "gate": n(k[5], LAYERS, WIDTH, FFN),
            "up": n(k[6], LAYERS, WIDTH, FFN),
            "down": n(k[7], LAYERS, FFN, WIDTH),
        },
        "final_norm": jnp.ones(WIDTH),
        "lm_head": n(k[8], WIDTH, VOCAB),
    }


def base_specs():
    col, row, none = P(None, None, "model"), P(None, "model", None), P()
    return {
        "embed": P("model", None),
        "layers": {
            "attn_norm": none,
            "wq": col,
            "wk": col,
            "wv": col,
            "wo": row,
            "mlp_norm": none,
            "gate": col,
            "up": col,
            "down": row,
        },
        "final_norm": none,
        "lm_head": P(None, "model"),
    }


def init_lora(key):
    ks = jax.random.split(key, 2)

    def pair(k, n_in, n_out):
        return {
            "a": jax.random.normal(k, (LAYERS, n_in, RANK)) * n_in**-0.5,
            "b": jnp.zeros((LAYERS, RANK, n_out)),
        }

    return {"wq": pair(ks[0], WIDTH, HEADS * HEAD), "wv": pair(ks[1], WIDTH, KV_HEADS * HEAD)}


def rms_norm(x, scale):
    x32 = x.astype(jnp.float32)
    return (x32 * jax.lax.rsqrt(jnp.mean(x32**2, -1, keepdims=True) + 1e-5) * scale).astype(x.dtype)


def rope(x):
    b, n, h, d = x.shape
    inv = 10000.0 ** (-jnp.arange(0, d, 2) / d)
    ang = jnp.arange(n)[:, None] * inv[None]
    cos, sin = jnp.cos(ang)[None, :, None], jnp.sin(ang)[None, :, None]
    x1, x2 = x[..., ::2].astype(jnp.float32), x[..., 1::2].astype(jnp.float32)
    out = jnp.stack([x1 * cos - x2 * sin, x1 * sin + x2 * cos], axis=-1)
    return out.reshape(b, n, h, d).astype(x.dtype)


def lora_linear(x, w, ab):
    y = x @ w
    if ab is not None:
        y = y + (ALPHA / RANK) * ((x @ ab["a"].astype(x.dtype)) @ ab["b"].astype(x.dtype))
    return y


def attention(p, lora, x):
    b, n, _ = x.shape
    q = rope(lora_linear(x, p["wq"], lora["wq"]).reshape(b, n, HEADS, HEAD))
    k = rope((x @ p["wk"]).reshape(b, n, KV_HEADS, HEAD))
    v = lora_linear(x, p["wv"], lora["wv"]).reshape(b, n, KV_HEADS, HEAD)
    q = q.reshape(b, n, KV_HEADS, HEADS // KV_HEADS, HEAD)
    scores = jnp.einsum("bqkgd,bskd->bkgqs", q, k).astype(jnp.float32) * HEAD**-0.5
    mask = jnp.tril(jnp.ones((n, n), bool))
    scores = jnp.where(mask, scores, -1e30)
    probs = jax.nn.softmax(scores, -1).astype(x.dtype)
    out = jnp.einsum("bkgqs,bskd->bqkgd", probs, v).reshape(b, n, -1)
    return out @ p["wo"]


def swiglu(p, x):
    return (jax.nn.silu(x @ p["gate"]) * (x @ p["up"])) @ p["down"]


def decoder_layer(p, lora, x):
    x = x + attention(p, lora, rms_norm(x, p["attn_norm"]))
    x = x + swiglu(p, rms_norm(x, p["mlp_norm"]))
    return jax.lax.with_sharding_constraint(x, P("data", None, None))


def llama(base, lora, tokens):
    x = base["embed"][tokens]
    x = jax.lax.with_sharding_constraint(x, P("data", None, None))

    def body(x, layer):
        p, l = layer
        return jax.checkpoint(decoder_layer)(p, l, x), None

    x, _ = jax.lax.scan(body, x, (base["layers"], lora))
    x = rms_norm(x, base["final_norm"])
    return (x @ base["lm_head"]).astype(jnp.float32)


def loss_fn(lora, base, tokens, loss_mask):
    logits = llama(base, lora, tokens[:, :-1])
    nll = optax.softmax_cross_entropy_with_integer_labels(logits, tokens[:, 1:])
    return (nll * loss_mask).sum() / loss_mask.sum()


tx = optax.adamw(2e-4, weight_decay=0.0)


def finetune_step(lora, opt_state, base, tokens, loss_mask):
    loss, grads = jax.value_and_grad(loss_fn)(lora, base, tokens, loss_mask)
    updates, opt_state = tx.update(grads, opt_state, lora)
    return optax.apply_updates(lora, updates), opt_state, loss


def make(mesh):
    def shaped(tree, specs):
        return jax.tree.map(
            lambda a, s: jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=NamedSharding(mesh, s)),
            tree,
            specs,
        )

    rep = lambda t: jax.tree.map(
        lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=NamedSharding(mesh, P())), t
    )
    base = shaped(jax.eval_shape(init_base, jax.random.key(0)), base_specs())
    lora_s = jax.eval_shape(init_lora, jax.random.key(0))
    opt_state = rep(jax.eval_shape(tx.init, lora_s))
    lora = rep(lora_s)
    tokens = jax.ShapeDtypeStruct(
        (BATCH, SEQ + 1), jnp.int32, sharding=NamedSharding(mesh, P("data"))
    )
    mask = jax.ShapeDtypeStruct((BATCH, SEQ), jnp.float32, sharding=NamedSharding(mesh, P("data")))

    def step(lora, opt_state, base, tokens, loss_mask):
        with jax.sharding.use_abstract_mesh(mesh.abstract_mesh):
            return finetune_step(lora, opt_state, base, tokens, loss_mask)

    return jax.jit(step, donate_argnums=(0, 1)), (lora, opt_state, base, tokens, mask)
