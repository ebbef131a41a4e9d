"""Speculative decoding round with KV caches: the draft proposes GAMMA tokens, the target verifies them."""

TRUTH = {
    "majors": {
        "target prefill": 0.75,
        "draft prefill": 0.13,
        "draft_propose (loop)": 0.005,
        "target verify": 0.05,
        "accept (rejection sampling)": 0.0,
        "outer while_loop of rounds": 0.1,
    },
    "layers": [
        ["target layer (prefill)", 12],
        ["target layer (verify)", 12],
        ["draft layer (prefill)", 4],
        ["draft layer (propose)", 4],
    ],
    "optimizer": False,
    "grad": "nothing",
    "loops": [
        ["generate while_loop (speculative rounds)", "unknown (data dependent)"],
        ["draft_propose scan", 4],
    ],
    "tells_apart": [["draft", "target"], ["prefill", "decode"]],
}

from typing import NamedTuple

import jax
import jax.numpy as jnp

VOCAB = 8192
BATCH, PROMPT, MAX_LEN = 1, 256, 512
GAMMA = 4


class ModelConfig(NamedTuple):
    width: int
    layers: int
    heads: int


TARGET = ModelConfig(512, 12, 8)
DRAFT = ModelConfig(256, 4, 4)


def init_model(key, cfg):
    d = cfg.width
    ks = jax.random.split(key, cfg.layers + 2)
    n = lambda k, a, b: (jax.random.normal(k, (a, b)) * a**-0.5).astype(jnp.bfloat16)
    layers = []
    for k in ks[:-2]:
        q = jax.random.split(k, 6)
        layers.append(
            {
                "wq": n(q[0], d, d),
                "wk": n(q[1], d, d),
                "wv": n(q[2], d, d),
                "wo": n(q[3], d, d),
                "w1": n(q[4], d, 4 * d),
                "w2": n(q[5], 4 * d, d),
                "ln1": jnp.ones(d),
                "ln2": jnp.ones(d),
            }
        )
    return {
        "embed": n(ks[-2], VOCAB, d),
        "pos": n(ks[-1], MAX_LEN + GAMMA, d),
        "layers": layers,
        "ln": jnp.ones(d),
    }


def init_cache(cfg):
    shape = (cfg.layers, BATCH, MAX_LEN + GAMMA, cfg.heads, cfg.width // cfg.heads)
    return {"k": jnp.zeros(shape, jnp.bfloat16), "v": jnp.zeros(shape, jnp.bfloat16)}


def rms_norm(x, scale):
    x32 = x.astype(jnp.float32)
    return (x32 * jax.lax.rsqrt(jnp.mean(x32 * x32, -1, keepdims=True) + 1e-6) * scale).astype(
        x.dtype
    )


def cached_attention(p, x, k_cache, v_cache, pos, cfg):
    b, n, d = x.shape
    heads = lambda t: t.reshape(b, n, cfg.heads, d // cfg.heads)
    q, k, v = heads(x @ p["wq"]), heads(x @ p["wk"]), heads(x @ p["wv"])
    k_cache = jax.lax.dynamic_update_slice(k_cache, k, (0, pos, 0, 0))
    v_cache = jax.lax.dynamic_update_slice(v_cache, v, (0, pos, 0, 0))
    scores = (
        jnp.einsum("bqhd,bkhd->bhqk", q, k_cache).astype(jnp.float32) * (d // cfg.heads) ** -0.5
    )
    visible = jnp.arange(k_cache.shape[1])[None] <= (pos + jnp.arange(n))[:, None]
    probs = jax.nn.softmax(jnp.where(visible, scores, -1e30), -1).astype(x.dtype)
    out = jnp.einsum("bhqk,bkhd->bqhd", probs, v_cache).reshape(b, n, d)
    return out @ p["wo"], k_cache, v_cache


def transformer_layer(p, x, k_cache, v_cache, pos, cfg):
    h, k_cache, v_cache = cached_attention(p, rms_norm(x, p["ln1"]), k_cache, v_cache, pos, cfg)
    x = x + h
    x = x + jax.nn.gelu(rms_norm(x, p["ln2"]) @ p["w1"]) @ p["w2"]
    return x, k_cache, v_cache


def forward(params, tokens, cache, pos, cfg):
    n = tokens.shape[1]
    x = params["embed"][tokens] + jax.lax.dynamic_slice_in_dim(params["pos"], pos, n)[None]
    ks, vs = [], []
    for i, p in enumerate(params["layers"]):
        x, k, v = transformer_layer(p, x, cache["k"][i], cache["v"][i], pos, cfg)
        ks.append(k)
        vs.append(v)
    logits = (rms_norm(x, params["ln"]) @ params["embed"].T).astype(jnp.float32)
    return logits, {"k": jnp.stack(ks), "v": jnp.stack(vs)}


def draft_propose(params, last, cache, pos, key):
    def step(carry, key):
        token, cache, pos = carry
        logits, cache = forward(params, token[:, None], cache, pos, DRAFT)
        probs = jax.nn.softmax(logits[:, 0])
        nxt = jax.random.categorical(key, logits[:, 0]).astype(jnp.int32)
        return (nxt, cache, pos + 1), (nxt, probs)

    (_, cache, _), (tokens, probs) = jax.lax.scan(
        step, (last, cache, pos), jax.random.split(key, GAMMA)
    )
    return tokens.T, probs.swapaxes(0, 1), cache


def verify(params, last, proposed, cache, pos):
    tokens = jnp.concatenate([last[:, None], proposed], axis=1)
    logits, cache = forward(params, tokens, cache, pos, TARGET)
    return jax.nn.softmax(logits), cache


def accept(key, proposed, draft_probs, target_probs):
    ku, ks = jax.random.split(key)
    take = lambda p: jnp.take_along_axis(p, proposed[..., None], -1)[..., 0]
    ratio = take(target_probs[:, :GAMMA]) / jnp.maximum(take(draft_probs), 1e-9)
    ok = jax.random.uniform(ku, ratio.shape) < ratio
    n_ok = jnp.sum(jnp.cumprod(ok.astype(jnp.int32), -1), -1)[0]
    padded = jnp.concatenate([draft_probs, jnp.zeros_like(draft_probs[:, :1])], 1)
    residual = jnp.maximum(target_probs[:, n_ok] - padded[:, n_ok], 0)
    residual = residual / jnp.maximum(residual.sum(-1, keepdims=True), 1e-9)
    bonus = jax.random.categorical(ks, jnp.log(residual + 1e-9)).astype(jnp.int32)
    return n_ok, bonus


def generate(target_params, draft_params, prompt, key):
    with jax.named_scope("prefill"):
        target_logits, target_cache = forward(target_params, prompt, init_cache(TARGET), 0, TARGET)
        _, draft_cache = forward(draft_params, prompt, init_cache(DRAFT), 0, DRAFT)
    first = jnp.argmax(target_logits[:, -1], -1).astype(jnp.int32)
    out = jnp.zeros((BATCH, MAX_LEN + GAMMA + 1), jnp.int32)
    out = jax.lax.dynamic_update_slice(out, prompt, (0, 0))
    out = out.at[:, PROMPT].set(first)

    def cond(state):
        return state[1] < MAX_LEN - GAMMA

    def speculative_round(state):
        out, pos, last, target_cache, draft_cache, key = state
        key, k1, k2 = jax.random.split(key, 3)
        proposed, draft_probs, draft_cache = draft_propose(draft_params, last, draft_cache, pos, k1)
        target_probs, target_cache = verify(target_params, last, proposed, target_cache, pos)
        n_ok, bonus = accept(k2, proposed, draft_probs, target_probs)
        new = jnp.concatenate([proposed, bonus[:, None]], 1)
        new = jnp.where(jnp.arange(GAMMA + 1) < n_ok, new, bonus[:, None])
        out = jax.lax.dynamic_update_slice(out, new, (0, pos + 1))
        return out, pos + n_ok + 1, bonus, target_cache, draft_cache, key

    state = (out, jnp.int32(PROMPT), first, target_cache, draft_cache, key)
    out, length, *_ = jax.lax.while_loop(cond, speculative_round, state)
    return out[:, :MAX_LEN], length


def make():
    target = jax.eval_shape(lambda: init_model(jax.random.key(0), TARGET))
    draft = jax.eval_shape(lambda: init_model(jax.random.key(0), DRAFT))
    prompt = jax.ShapeDtypeStruct((BATCH, PROMPT), jnp.int32)
    return jax.jit(generate), (target, draft, prompt, jax.eval_shape(lambda: jax.random.key(0)))
