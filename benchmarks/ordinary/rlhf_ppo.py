"""RLHF learner: scores finished responses with a reward model, GAE, then 2 epochs x 4 minibatches of PPO with KL to a frozen reference."""

TRUTH = """
IN ORDER
- `ppo_update`: reward model forward (8 layers) on all 64 sequences -> reward put on the last token -> `gae` (reversed loop over 255 steps)
  -> advantage whitening -> epochs loop x2 -> minibatch loop x4 -> new params, metrics averaged
- minibatch: policy forward (8 layers; policy logits and value head) ; reference forward (8 layers, frozen) -> clipped policy loss +
  clipped value loss + KL penalty -> backward (policy only) -> optimiser (clip, adam)
COUNTS
- layer loops x8: reward model 1 (outside), inside the minibatch body: policy forward, reference forward, policy backward (3 loops x8)
- GAE loop x255; epoch loop x2 > minibatch loop x4 (8 optimiser steps)
- values and old log-probs come from the rollout (arguments)
ORDER / INDEPENDENCE
- policy forward and reference forward of a minibatch are independent of each other; they meet in the KL term
- GAE needs the reward model; all minibatches are serial by the params
HEAVY
- policy forward + backward ~ 75 %, reference ~ 20-25 % of the loop; reward model = one forward over 64 sequences (a few per cent)
- lm head (512 x 32000) is more than half as heavy as all the 8 layers together: logits [16, 256, 32000] f32 = 0.5 GB, for both policy and reference
PERFORMANCE (deliberate flaw)
- the frozen reference is run again in each epoch inside the minibatch loop: its log-probs do not change, and should be computed once before (saves half of it)
- params and optimiser state are donated; shuffling gathers the batch once per epoch (small: ints and floats [64, 256])
"""
from functools import partial

import jax
import jax.numpy as jnp
import optax

D, HEADS, L, VOCAB, SEQ, BATCH, MB, EPOCHS = 512, 8, 8, 32000, 256, 64, 16, 2


def init_lm(key, out):
    k = jax.random.split(key, 7)
    n = lambda k, *s: jax.random.normal(k, s) * 0.02
    return {
        "embed": n(k[0], VOCAB, D),
        "pos": n(k[1], SEQ, D),
        "layers": {
            "ln1": jnp.ones((L, D)),
            "wqkv": n(k[2], L, D, 3, HEADS, D // HEADS),
            "wo": n(k[3], L, HEADS, D // HEADS, D),
            "ln2": jnp.ones((L, D)),
            "w1": n(k[4], L, D, 4 * D),
            "w2": n(k[5], L, 4 * D, D),
        },
        "lnf": jnp.ones(D),
        **{name: n(kk, D, width) for kk, (name, width) in zip(jax.random.split(k[6]), out.items())},
    }


def norm(x, g):
    x = x - x.mean(-1, keepdims=True)
    return x * jax.lax.rsqrt(x.var(-1, keepdims=True) + 1e-5) * g


def trunk(params, tokens):
    x = params["embed"][tokens] + params["pos"]
    causal = jnp.tril(jnp.ones((SEQ, SEQ), bool))

    def layer(x, p):
        q, k, v = jnp.einsum("btd,dshc->sbthc", norm(x, p["ln1"]), p["wqkv"])
        s = jnp.einsum("bqhc,bkhc->bhqk", q, k) * (D // HEADS) ** -0.5
        a = jax.nn.softmax(jnp.where(causal, s, -1e9))
        x = x + jnp.einsum("bhqk,bkhc,hcd->bqd", a, v, p["wo"])
        x = x + jax.nn.gelu(norm(x, p["ln2"]) @ p["w1"]) @ p["w2"]
        return x, None

    x, _ = jax.lax.scan(layer, x, params["layers"])
    return norm(x, params["lnf"])


def reward_model(params, tokens, last):
    h = trunk(params, tokens)
    return (h[jnp.arange(tokens.shape[0]), last] @ params["score"])[:, 0]


def token_logprobs(params, tokens):
    h = trunk(params, tokens)
    logp = jax.nn.log_softmax(h[:, :-1] @ params["lm_head"])
    return jnp.take_along_axis(logp, tokens[:, 1:, None], -1)[..., 0], h


def gae(rewards, values, mask, gamma=1.0, lam=0.95):
    nxt = jnp.concatenate([values[:, 1:], jnp.zeros_like(values[:, :1])], 1)

    def back(adv, x):
        r, v, vn, m = x
        adv = m * (r + gamma * vn - v + gamma * lam * adv)
        return adv, adv

    xs = jax.tree.map(lambda a: a.T, (rewards, values, nxt, mask))
    _, adv = jax.lax.scan(back, jnp.zeros(rewards.shape[0]), xs, reverse=True)
    return adv.T, adv.T + values


def ppo_loss(params, ref_params, mb):
    logp, h = token_logprobs(params, mb["tokens"])
    ref_logp, _ = token_logprobs(ref_params, mb["tokens"])
    value = (h[:, :-1] @ params["value_head"])[..., 0]
    mean = lambda x: jnp.sum(x * mb["mask"]) / jnp.sum(mb["mask"])
    ratio = jnp.exp(logp - mb["old_logp"])
    policy = mean(jnp.maximum(-mb["adv"] * ratio, -mb["adv"] * jnp.clip(ratio, 0.8, 1.2)))
    vclip = mb["old_value"] + jnp.clip(value - mb["old_value"], -0.2, 0.2)
    vloss = 0.5 * mean(jnp.maximum((value - mb["ret"]) ** 2, (vclip - mb["ret"]) ** 2))
    d = ref_logp - logp
    kl = mean(jnp.exp(d) - d - 1)
    return policy + 0.1 * vloss + 0.05 * kl, {"policy": policy, "value": vloss, "kl": kl}


tx = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(1e-6))


@partial(jax.jit, donate_argnums=(0, 1))
def ppo_update(params, opt_state, ref_params, rm_params, rollout, key):
    mask = rollout["mask"]
    score = reward_model(rm_params, rollout["tokens"], rollout["last"])
    rewards = jnp.zeros_like(mask).at[jnp.arange(BATCH), rollout["last"] - 1].set(score)
    adv, ret = gae(rewards, rollout["old_value"], mask)
    mu = jnp.sum(adv * mask) / mask.sum()
    adv = (adv - mu) * jax.lax.rsqrt(jnp.sum((adv - mu) ** 2 * mask) / mask.sum() + 1e-8)
    data = {k: rollout[k] for k in ("tokens", "mask", "old_logp", "old_value")} | {
        "adv": adv,
        "ret": ret,
    }

    def minibatch(carry, mb):
        params, opt_state = carry
        (loss, logs), grads = jax.value_and_grad(ppo_loss, has_aux=True)(params, ref_params, mb)
        updates, opt_state = tx.update(grads, opt_state, params)
        return (optax.apply_updates(params, updates), opt_state), logs | {"loss": loss}

    def epoch(carry, key):
        perm = jax.random.permutation(key, BATCH)
        mbs = jax.tree.map(lambda x: x[perm].reshape(BATCH // MB, MB, *x.shape[1:]), data)
        return jax.lax.scan(minibatch, carry, mbs)

    (params, opt_state), logs = jax.lax.scan(
        epoch, (params, opt_state), jax.random.split(key, EPOCHS)
    )
    return params, opt_state, jax.tree.map(jnp.mean, logs) | {"score": score.mean()}


def make():
    key = jax.eval_shape(lambda: jax.random.PRNGKey(0))
    policy = jax.eval_shape(lambda k: init_lm(k, {"lm_head": VOCAB, "value_head": 1}), key)
    ref = jax.eval_shape(lambda k: init_lm(k, {"lm_head": VOCAB}), key)
    rm = jax.eval_shape(lambda k: init_lm(k, {"score": 1}), key)
    S, f = jax.ShapeDtypeStruct, jnp.float32
    rollout = {
        "tokens": S((BATCH, SEQ), jnp.int32),
        "last": S((BATCH,), jnp.int32),
        "mask": S((BATCH, SEQ - 1), f),
        "old_logp": S((BATCH, SEQ - 1), f),
        "old_value": S((BATCH, SEQ - 1), f),
    }
    return ppo_update, (policy, jax.eval_shape(tx.init, policy), ref, rm, rollout, key)
