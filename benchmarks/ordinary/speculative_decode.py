TRUTH = """
# speculative_decode — speculative sampling, draft 3 layers / target 12 layers, single device, inference (plain dicts, python loop over layers)

generate:
1. **prefill** (255 tokens) { draft_model: wte+wpe, 3 blocks (unrolled) ; target_model: wte+wpe, 12 blocks (unrolled) } — the logits of prefill are unused (dead code), also final ln_f, and in the last block everything after the k/v of the cache is dead
2. **rounds: while loop, unknown number of turns (between 26 and 128)** {
   - **propose: loop x5 (GAMMA+1)** { draft_model for one token { embed, 3 blocks {ln_1, mha (with cache update), ln_2, ffn}, ln_f, logits }, log_softmax, categorical }
   - **verify** { target_model for 5 tokens { embed, **12 blocks** {ln_1, mha, ln_2, ffn}, ln_f, logits 5x16384 }, log_softmax, accept test (ratio, cumprod), residual distribution, categorical, emitted }
   - write into buf, counters }
3. acceptance rate

Only forward; no collectives; no optimiser.
Loops: while (dynamic) > scan x5. Layers not loops: 12 repeated blocks, 3 repeated blocks; a good picture says "block x12".
Heaviest: verify's target_model (12 x 12.6M params = 151M weights bf16 read per round) inside the rounds loop; draft = 5 x (3x0.79M + 4.2M logits). Prefill's target is heavier for one turn (255 tokens) but happens once.
Names: "prefill", "rounds", "propose x5", "draft model", "verify", "target model", "block x12", "mha", "ffn", "accept / resample".

(Source has named_scope "prefill" around 1; nothing else. draft_model / target_model are nested jits of lambdas.)
"""
"""Speculative sampling (Leviathan et al. 2023): a small draft model proposes GAMMA tokens, the
target model scores them all in one pass. Single request, static KV caches, greedy acceptance by ratio test."""
import collections

import jax
import jax.numpy as jnp
from jax import lax, random

Hparams = collections.namedtuple("Hparams", "layers width heads vocab ctx")
DRAFT = Hparams(layers=3, width=256, heads=4, vocab=16384, ctx=1024)
TARGET = Hparams(layers=12, width=1024, heads=16, vocab=16384, ctx=1024)
GAMMA = 4
PROMPT = 256
MAX_NEW = 128


def shapes(hp):
    d, L = hp.width, hp.layers
    f32 = lambda *s: jax.ShapeDtypeStruct(s, jnp.bfloat16)
    blk = dict(
        ln_1=dict(g=f32(d), b=f32(d)),
        ln_2=dict(g=f32(d), b=f32(d)),
        attn=dict(c_attn=dict(w=f32(d, 3 * d), b=f32(3 * d)), c_proj=dict(w=f32(d, d), b=f32(d))),
        mlp=dict(c_fc=dict(w=f32(d, 4 * d), b=f32(4 * d)), c_proj=dict(w=f32(4 * d, d), b=f32(d))),
    )
    return dict(
        wte=f32(hp.vocab, d),
        wpe=f32(hp.ctx + GAMMA + 1, d),
        blocks=[blk] * L,
        ln_f=dict(g=f32(d), b=f32(d)),
    )


def layer_norm(x, g, b, eps=1e-5):
    x = x.astype(jnp.float32)
    mu = x.mean(-1, keepdims=True)
    return ((x - mu) * lax.rsqrt(x.var(-1, keepdims=True) + eps)).astype(jnp.bfloat16) * g + b


def linear(x, w, b):
    return x @ w + b


def mha(x, cache, pos, c_attn, c_proj, n_head):
    t, d = x.shape
    q, k, v = jnp.split(linear(x, **c_attn), 3, -1)
    heads = lambda z: z.reshape(t, n_head, d // n_head)
    ck = lax.dynamic_update_slice(cache[0], heads(k), (pos, 0, 0))
    cv = lax.dynamic_update_slice(cache[1], heads(v), (pos, 0, 0))
    a = jnp.einsum("qhd,khd->hqk", heads(q), ck).astype(jnp.float32) / jnp.sqrt(d / n_head)
    vis = jnp.arange(ck.shape[0])[None, :] <= pos + jnp.arange(t)[:, None]
    a = jax.nn.softmax(jnp.where(vis, a, -1e9), -1).astype(x.dtype)
    y = jnp.einsum("hqk,khd->qhd", a, cv).reshape(t, d)
    return linear(y, **c_proj), (ck, cv)


def ffn(x, c_fc, c_proj):
    return linear(jax.nn.gelu(linear(x, **c_fc)), **c_proj)


def gpt(params, tokens, caches, pos, hp):
    x = params["wte"][tokens] + lax.dynamic_slice_in_dim(params["wpe"], pos, tokens.shape[0])
    new = []
    for blk, c in zip(params["blocks"], caches):
        a, c = mha(layer_norm(x, **blk["ln_1"]), c, pos, **blk["attn"], n_head=hp.heads)
        x = x + a
        x = x + ffn(layer_norm(x, **blk["ln_2"]), **blk["mlp"])
        new.append(c)
    x = layer_norm(x, **params["ln_f"])
    return (x @ params["wte"].T).astype(jnp.float32), new


draft_model = jax.jit(lambda p, t, c, pos: gpt(p, t, c, pos, DRAFT))
target_model = jax.jit(lambda p, t, c, pos: gpt(p, t, c, pos, TARGET))


def empty_cache(hp):
    z = jnp.zeros((hp.ctx + GAMMA + 1, hp.heads, hp.width // hp.heads), jnp.bfloat16)
    return [(z, z) for _ in range(hp.layers)]


def propose(draft, cache, last, pos, key):
    """GAMMA draft tokens one after another (plus one extra pass to keep the cache whole)"""

    def one(carry, k):
        tok, pos, cache = carry
        logits, cache = draft_model(draft, tok[None], cache, pos)
        logp = jax.nn.log_softmax(logits[0])
        nxt = random.categorical(k, logp).astype(jnp.int32)
        return (nxt, pos + 1, cache), (nxt, logp)

    (_, _, cache), (toks, logps) = lax.scan(one, (last, pos, cache), random.split(key, GAMMA + 1))
    return toks[:GAMMA], logps[:GAMMA], cache


def verify(target, cache, last, toks, q_logp, pos, key):
    logits, cache = target_model(target, jnp.concatenate([last[None], toks]), cache, pos)
    p_logp = jax.nn.log_softmax(logits, -1)
    ku, kr = random.split(key)
    ratio = jnp.take_along_axis(p_logp[:GAMMA] - q_logp, toks[:, None], 1)[:, 0]
    ok = jnp.log(random.uniform(ku, (GAMMA,), minval=1e-9)) < ratio
    n = jnp.sum(jnp.cumprod(ok.astype(jnp.int32)))
    # corrected distribution where we stopped, or the bonus token
    p = jnp.exp(p_logp[n])
    q = jnp.where(n < GAMMA, jnp.exp(q_logp[jnp.minimum(n, GAMMA - 1)]), 0.0)
    resid = jnp.maximum(p - q, 0.0)
    extra = random.categorical(kr, jnp.log(resid + 1e-20)).astype(jnp.int32)
    emitted = jnp.where(jnp.arange(GAMMA + 1) < n, jnp.append(toks, 0), extra)
    return emitted, n, extra, cache


def generate(draft, target, prompt, key):
    with jax.named_scope("prefill"):
        _, dc = draft_model(draft, prompt[:-1], empty_cache(DRAFT), 0)
        _, tc = target_model(target, prompt[:-1], empty_cache(TARGET), 0)
    buf = jnp.zeros((PROMPT + MAX_NEW + GAMMA + 1,), jnp.int32)
    buf = lax.dynamic_update_slice(buf, prompt, (0,))

    def unfinished(s):
        return s["pos"] < PROMPT + MAX_NEW - 1

    def round_(s):
        key, kp, kv = random.split(s["key"], 3)
        toks, q_logp, dc = propose(draft, s["dc"], s["last"], s["pos"], kp)
        emitted, n, last, tc = verify(target, s["tc"], s["last"], toks, q_logp, s["pos"], kv)
        buf = lax.dynamic_update_slice(s["buf"], emitted, (s["pos"] + 1,))
        return dict(
            pos=s["pos"] + n + 1,
            last=last,
            dc=dc,
            tc=tc,
            buf=buf,
            key=key,
            rounds=s["rounds"] + 1,
            accepted=s["accepted"] + n,
        )

    s = dict(
        pos=jnp.int32(PROMPT - 1),
        last=prompt[-1],
        dc=dc,
        tc=tc,
        buf=buf,
        key=key,
        rounds=jnp.int32(0),
        accepted=jnp.int32(0),
    )
    s = lax.while_loop(unfinished, round_, s)
    return s["buf"], s["accepted"] / (s["rounds"] * GAMMA)


def build(devices=None):
    sh = None
    if devices is not None:
        from jax.sharding import SingleDeviceSharding

        sh = SingleDeviceSharding(devices[0])
    put = lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=sh)
    args = jax.tree.map(
        put,
        (
            shapes(DRAFT),
            shapes(TARGET),
            jax.ShapeDtypeStruct((PROMPT,), jnp.int32),
            jax.ShapeDtypeStruct((2,), jnp.uint32),
        ),
    )
    return jax.jit(generate), args


def make():
    return build()
