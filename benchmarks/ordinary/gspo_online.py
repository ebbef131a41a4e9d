TRUTH = """
One whole online RL iteration (rl_iteration) with GSPO on a 0.5 B Qwen-2.5-like policy, 32 prompts x group of 8 = 256 sequences, data parallel on 8 devices, plain dicts.

rl_iteration
  rollout
    prefill: 32 prompts of 256 tokens: scan x24 layers; caches then repeated 8 times
    decode: while loop, at most 512, ends when all sequences have ended (data dependent)
      decode_token: scan x24 layers with key/value cache; vocabulary logits; sample
  verifier_reward (elementwise rule: matches of answer tokens, overlong penalty), group_advantages (mean / std over 8)
  reference_logprobs: frozen reference model on 256 x 768: forward scan x24, token_logprob
  updates: scan x4 minibatches of 64 sequences
    gspo_loss: policy forward scan x24 (checkpointed), token_logprob, sequence_ratio (length-normalised), clipped objective, kl to reference
    backward: token_logprob_bwd, scan x24 with recompute
    adamw: hand written, WITHIN the loop (4 updates per iteration)
  token_logprob is custom_vjp: scan x12 over chunks of 64 positions, forward and backward (backward computes logits again)

Two parameter sets: policy, reference. Both 24 layers, same code (transformer_block).
Nesting: decode (<=512) > 24; minibatch x4 > 24 forward, 4 > 24 backward; reference 24; prefill 24; chunks x12 within.
Weight: the updates (256 x 768 tokens, forward + recompute + backward) most; reference about a quarter of that or less; decode many steps but few flops each
(256 tokens a step; memory bound); vocabulary 136 M weights against 14.9 M a layer: about 9 layers' worth.
False would be: optimiser outside the loop / once; a value network or critic (there is none); a reward network (the reward is a rule); the while count stated as surely 512; one model only.
First sight: rollout (prefill, decode loop) -> rewards, advantages -> reference log-probabilities -> loop x4 of loss, backward, adamw.
Names true: rollout, prefill, decode_token, transformer_block, attend, mlp, verifier_reward, group_advantages, reference_logprobs, token_logprob, gspo_loss, sequence_ratio, minibatch_update, adamw.
"""

"""One iteration of online RL with verifiable rewards, everything in one jit: sample groups of answers, score them by
rule, take reference log-probabilities, then four GSPO minibatch updates. Qwen2.5-0.5B shape, plain dicts."""
from functools import partial

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

MESH = {"data": 8}
LAYERS, DIM, HEADS, KV, HD, FF, VOCAB = 24, 896, 14, 2, 64, 4864, 151936
PROMPTS, GROUP, PROMPT_LEN, NEW = 32, 8, 256, 512
TOTAL = PROMPT_LEN + NEW
MINIBATCHES, CHUNK, EOS = 4, 64, 151645
BF16, F32 = jnp.bfloat16, jnp.float32


# ---------------------------------------------------------------- model
def norm(x, g):
    y = x.astype(F32)
    return (y * lax.rsqrt(jnp.mean(y * y, -1, keepdims=True) + 1e-6) * g).astype(BF16)


def rope(x, pos):
    freq = 1e6 ** (-jnp.arange(HD // 2) / (HD // 2))
    ang = pos[..., None].astype(F32) * freq
    c, s = jnp.cos(ang)[..., None, :], jnp.sin(ang)[..., None, :]
    a, b = jnp.split(x.astype(F32), 2, -1)
    return jnp.concatenate([a * c - b * s, b * c + a * s], -1).astype(BF16)


def project(p, x, pos):
    h = norm(x, p["norm1"])
    heads = lambda w, bias, n: (h @ w.astype(BF16) + bias.astype(BF16)).reshape(
        x.shape[:-1] + (n, HD)
    )
    q = rope(heads(p["wq"], p["bq"], HEADS), pos)
    k = rope(heads(p["wk"], p["bk"], KV), pos)
    return q, k, heads(p["wv"], p["bv"], KV)


def attend(p, q, k, v, mask):
    b, t = q.shape[:2]
    q = q.reshape(b, t, KV, HEADS // KV, HD)
    s = jnp.einsum("btkgd,bskd->bkgts", q, k, preferred_element_type=F32) * HD**-0.5
    s = jnp.where(mask[:, None, None], s, -1e30)
    y = jnp.einsum("bkgts,bskd->btkgd", jax.nn.softmax(s, -1).astype(BF16), v)
    return y.reshape(b, t, HEADS * HD) @ p["wo"].astype(BF16)


def mlp(p, x):
    h = norm(x, p["norm2"])
    return (jax.nn.silu(h @ p["w_gate"].astype(BF16)) * (h @ p["w_up"].astype(BF16))) @ p[
        "w_down"
    ].astype(BF16)


def transformer_block(x, p, pos, mask):
    q, k, v = project(p, x, pos)
    x = x + attend(p, q, k, v, mask)
    x = x + mlp(p, x)
    return x, (k, v)


def trunk(params, tokens, remat=False):
    b, t = tokens.shape
    pos = jnp.broadcast_to(jnp.arange(t), (b, t))
    mask = jnp.broadcast_to(jnp.tril(jnp.ones((t, t), bool)), (b, t, t))
    x = params["embed"][tokens].astype(BF16)
    body = lambda x, p: (transformer_block(x, p, pos, mask)[0], None)
    x, _ = lax.scan(jax.checkpoint(body) if remat else body, x, params["layers"])
    return norm(x, params["norm"])


# ---------------------------------------------------------------- log-probabilities of given tokens, memory lean
def chunks(a):
    return jnp.moveaxis(a.reshape((a.shape[0], -1, CHUNK) + a.shape[2:]), 1, 0)


def unchunk(a):
    a = jnp.moveaxis(a, 0, 1)
    return a.reshape((a.shape[0], -1) + a.shape[3:])


@jax.custom_vjp
def token_logprob(hidden, embed, targets):
    return token_logprob_fwd(hidden, embed, targets)[0]


def token_logprob_fwd(hidden, embed, targets):
    def one(_, c):
        h, y = c
        logits = jnp.einsum("btd,vd->btv", h, embed.astype(BF16), preferred_element_type=F32)
        lse = jax.nn.logsumexp(logits, -1)
        return None, (jnp.take_along_axis(logits, y[..., None], -1)[..., 0] - lse, lse)

    _, (logp, lse) = lax.scan(one, None, (chunks(hidden), chunks(targets)))
    return unchunk(logp), (hidden, embed, targets, unchunk(lse))


def token_logprob_bwd(res, g):
    hidden, embed, targets, lse = res
    table = embed.astype(BF16)

    def one(d_embed, c):
        h, y, l, gc = c
        logits = jnp.einsum("btd,vd->btv", h, table, preferred_element_type=F32)
        d_logits = (jax.nn.one_hot(y, VOCAB, dtype=F32) - jnp.exp(logits - l[..., None])) * gc[
            ..., None
        ]
        d_logits = d_logits.astype(BF16)
        dh = jnp.einsum("btv,vd->btd", d_logits, table)
        return d_embed + jnp.einsum("btv,btd->vd", d_logits, h, preferred_element_type=F32), dh

    d_embed, dh = lax.scan(
        one, jnp.zeros(embed.shape, F32), (chunks(hidden), chunks(targets), chunks(lse), chunks(g))
    )
    return unchunk(dh), d_embed, None


token_logprob.defvjp(token_logprob_fwd, token_logprob_bwd)


def sequence_logprobs(params, tokens, remat=False):
    """Log-probability of tokens[:, 1:], padded by one at the end to keep the length."""
    targets = jnp.concatenate([tokens[:, 1:], tokens[:, :1]], 1)
    return token_logprob(trunk(params, tokens, remat), params["embed"], targets)


# ---------------------------------------------------------------- sampling
def prefill(params, prompts):
    b, t = prompts.shape
    pos = jnp.broadcast_to(jnp.arange(t), (b, t))
    mask = jnp.broadcast_to(jnp.tril(jnp.ones((t, t), bool)), (b, t, t))
    x = params["embed"][prompts].astype(BF16)
    x, (k, v) = lax.scan(lambda x, p: transformer_block(x, p, pos, mask), x, params["layers"])
    room = lambda c: jnp.pad(
        jnp.repeat(c, GROUP, axis=1), ((0, 0), (0, 0), (0, NEW), (0, 0), (0, 0))
    )
    return room(k), room(v)


def decode_token(params, token, k_cache, v_cache, index):
    x = params["embed"][token][:, None].astype(BF16)
    pos = jnp.full((token.shape[0], 1), index)
    seen = jnp.broadcast_to(jnp.arange(TOTAL) <= index, (token.shape[0], 1, TOTAL))

    def layer(x, args):
        p, kc, vc = args
        q, k, v = project(p, x, pos)
        kc = lax.dynamic_update_slice(kc, k, (0, index, 0, 0))
        vc = lax.dynamic_update_slice(vc, v, (0, index, 0, 0))
        x = x + attend(p, q, kc, vc, seen)
        return x + mlp(p, x), (kc, vc)

    x, (k_cache, v_cache) = lax.scan(layer, x, (params["layers"], k_cache, v_cache))
    logits = norm(x[:, 0], params["norm"]) @ params["embed"].astype(BF16).T
    return logits.astype(F32), k_cache, v_cache


def rollout(params, prompts, key, temperature=1.0):
    k_cache, v_cache = prefill(params, prompts)
    rows = jnp.repeat(prompts, GROUP, axis=0)
    tokens = jnp.pad(rows, ((0, 0), (0, NEW)), constant_values=EOS)
    logps = jnp.zeros(tokens.shape, F32)

    def unfinished(state):
        return (state[0] < TOTAL - 1) & ~jnp.all(state[5])

    def decode(state):
        i, tokens, logps, kc, vc, done = state
        logits, kc, vc = decode_token(params, tokens[:, i], kc, vc, i)
        logits = logits / temperature
        nxt = jax.random.categorical(jax.random.fold_in(key, i), logits)
        nxt = jnp.where(done, EOS, nxt).astype(jnp.int32)
        lp = jnp.take_along_axis(jax.nn.log_softmax(logits), nxt[:, None], -1)[:, 0]
        tokens = lax.dynamic_update_slice(tokens, nxt[:, None], (0, i + 1))
        logps = lax.dynamic_update_slice(logps, jnp.where(done, 0.0, lp)[:, None], (0, i))
        return i + 1, tokens, logps, kc, vc, done | (nxt == EOS)

    start = (
        jnp.int32(PROMPT_LEN - 1),
        tokens,
        logps,
        k_cache,
        v_cache,
        jnp.zeros(tokens.shape[0], bool),
    )
    return lax.while_loop(unfinished, decode, start)[1:3]


# ---------------------------------------------------------------- rewards and updates
def verifier_reward(tokens, answers):
    """Rule: how many of the 16 answer tokens stand at the end of the text, less a penalty when it ran too long."""
    answer = jnp.repeat(answers, GROUP, axis=0)
    length = jnp.sum(tokens[:, PROMPT_LEN:] != EOS, -1)
    at = jnp.clip(PROMPT_LEN + length[:, None] - 16 + jnp.arange(16), 0, TOTAL - 1)
    match = jnp.mean(jnp.take_along_axis(tokens, at, 1) == answer, -1)
    overlong = jnp.clip((length - 0.75 * NEW) / (0.25 * NEW), 0.0, 1.0)
    return (match > 0.99).astype(F32) + 0.1 * match - 0.5 * overlong


def group_advantages(rewards):
    r = rewards.reshape(PROMPTS, GROUP)
    return ((r - r.mean(1, keepdims=True)) / (r.std(1, keepdims=True) + 1e-4)).reshape(-1)


def reference_logprobs(reference, tokens):
    return lax.stop_gradient(sequence_logprobs(reference, tokens))


def sequence_ratio(new, old, mask):
    return jnp.exp(jnp.sum((new - old) * mask, -1) / jnp.maximum(mask.sum(-1), 1.0))


def gspo_loss(params, mb, low=3e-4, high=4e-4, beta=1e-3):
    new = sequence_logprobs(params, mb["tokens"], remat=True)
    ratio = sequence_ratio(new, mb["old"], mb["mask"])
    adv = mb["advantage"]
    gain = jnp.minimum(ratio * adv, jnp.clip(ratio, 1 - low, 1 + high) * adv)
    delta = mb["ref"] - new
    kl = jnp.sum((jnp.exp(delta) - delta - 1) * mb["mask"]) / jnp.maximum(mb["mask"].sum(), 1.0)
    return -gain.mean() + beta * kl, kl


def adamw(params, grads, m, v, t, lr=1e-6, b1=0.9, b2=0.98, wd=0.01):
    size = jnp.sqrt(sum(jnp.sum(g * g) for g in jax.tree.leaves(grads)))
    grads = jax.tree.map(lambda g: g * jnp.minimum(1.0, 1.0 / (size + 1e-6)), grads)
    m = jax.tree.map(lambda m, g: b1 * m + (1 - b1) * g, m, grads)
    v = jax.tree.map(lambda v, g: b2 * v + (1 - b2) * g * g, v, grads)
    step = lambda p, m, v: p - lr * (m / (1 - b1**t) / (jnp.sqrt(v / (1 - b2**t)) + 1e-8) + wd * p)
    return jax.tree.map(step, params, m, v), m, v


def make(mesh):
    rep, rows = NamedSharding(mesh, P()), NamedSharding(mesh, P("data"))

    @partial(jax.jit, donate_argnums=(0, 1, 2))
    def rl_iteration(params, m, v, reference, prompts, answers, step, key):
        tokens, old = rollout(params, prompts, key)
        rewards = verifier_reward(tokens, answers)
        advantage = group_advantages(rewards)
        ref = reference_logprobs(reference, tokens)
        written = tokens[:, PROMPT_LEN:] != EOS
        mask = jnp.pad(written, ((0, 0), (PROMPT_LEN - 1, 1))).astype(F32)
        data = {"tokens": tokens, "old": old, "ref": ref, "mask": mask, "advantage": advantage}
        split = lambda a: jnp.moveaxis(a.reshape((-1, MINIBATCHES) + a.shape[1:]), 1, 0)

        def minibatch_update(carry, mb):
            params, m, v, t = carry
            mb = jax.tree.map(lambda a: lax.with_sharding_constraint(a, rows), mb)
            (loss, kl), grads = jax.value_and_grad(gspo_loss, has_aux=True)(params, mb)
            params, m, v = adamw(params, grads, m, v, t + 1.0)
            return (params, m, v, t + 1.0), (loss, kl)

        (params, m, v, step), (loss, kl) = lax.scan(
            minibatch_update, (params, m, v, step), jax.tree.map(split, data)
        )
        stats = {
            "reward": rewards.mean(),
            "loss": loss.mean(),
            "kl": kl.mean(),
            "length": mask.sum(-1).mean(),
        }
        return params, m, v, step, stats

    L = lambda *s: (LAYERS,) + s
    shapes = {
        "embed": (VOCAB, DIM),
        "norm": (DIM,),
        "layers": {
            "norm1": L(DIM),
            "norm2": L(DIM),
            "wq": L(DIM, HEADS * HD),
            "wk": L(DIM, KV * HD),
            "wv": L(DIM, KV * HD),
            "bq": L(HEADS * HD),
            "bk": L(KV * HD),
            "bv": L(KV * HD),
            "wo": L(HEADS * HD, DIM),
            "w_gate": L(DIM, FF),
            "w_up": L(DIM, FF),
            "w_down": L(FF, DIM),
        },
    }
    S = jax.ShapeDtypeStruct
    params = jax.tree.map(
        lambda s: S(s, F32, sharding=rep), shapes, is_leaf=lambda s: isinstance(s, tuple)
    )
    prompts = S((PROMPTS, PROMPT_LEN), jnp.int32, sharding=rows)
    answers = S((PROMPTS, 16), jnp.int32, sharding=rows)
    args = (
        params,
        params,
        params,
        params,
        prompts,
        answers,
        S((), F32, sharding=rep),
        S((2,), jnp.uint32, sharding=rep),
    )
    return rl_iteration, args
