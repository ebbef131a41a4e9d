"""GRPO update for an LLM: policy with clipped ratio and a KL term to a frozen reference policy."""

TRUTH = {
    "majors": {
        "policy forward": 0.25,
        "reference policy forward": 0.25,
        "policy backward": 0.5,
        "token_logprobs / lm_head": 0.2,
        "group_advantages": 0.0,
        "grpo_loss": 0.0,
        "adamw": 0.0,
    },
    "layers": [["policy TransformerBlock", 6], ["reference TransformerBlock", 6]],
    "optimizer": True,
    "grad": "policy params only",
    "loops": [],
    "tells_apart": [["policy", "reference"], ["policy logprobs", "old logprobs"]],
}

import dataclasses

import jax
import jax.numpy as jnp
import optax
from flax import nnx

GROUPS, PER_GROUP = 2, 8
PROMPT, COMPLETION = 64, 192
CLIP_LOW, CLIP_HIGH, BETA = 0.2, 0.28, 0.04


@dataclasses.dataclass(frozen=True)
class GPTConfig:
    vocab: int = 8192
    width: int = 384
    layers: int = 6
    heads: int = 6
    max_len: int = 256


class CausalSelfAttention(nnx.Module):
    def __init__(self, cfg, *, rngs):
        self.heads = cfg.heads
        self.qkv = nnx.Linear(cfg.width, 3 * cfg.width, use_bias=False, rngs=rngs)
        self.proj = nnx.Linear(cfg.width, cfg.width, use_bias=False, rngs=rngs)

    def __call__(self, x, mask):
        b, n, d = x.shape
        q, k, v = jnp.split(self.qkv(x), 3, axis=-1)
        heads = lambda t: t.reshape(b, n, self.heads, d // self.heads)
        y = jax.nn.dot_product_attention(heads(q), heads(k), heads(v), mask=mask)
        return self.proj(y.reshape(b, n, d))


class FeedForward(nnx.Module):
    def __init__(self, cfg, *, rngs):
        hidden = 4 * cfg.width
        self.fc = nnx.Linear(cfg.width, hidden, use_bias=False, rngs=rngs)
        self.out = nnx.Linear(hidden, cfg.width, use_bias=False, rngs=rngs)

    def __call__(self, x):
        return self.out(jnp.square(jax.nn.relu(self.fc(x))))


class TransformerBlock(nnx.Module):
    def __init__(self, cfg, *, rngs):
        self.ln1 = nnx.RMSNorm(cfg.width, rngs=rngs)
        self.attn = CausalSelfAttention(cfg, rngs=rngs)
        self.ln2 = nnx.RMSNorm(cfg.width, rngs=rngs)
        self.ffn = FeedForward(cfg, rngs=rngs)

    def __call__(self, x, mask):
        x = x + self.attn(self.ln1(x), mask)
        return x + self.ffn(self.ln2(x))


class GPT(nnx.Module):
    def __init__(self, cfg, *, rngs):
        self.wte = nnx.Embed(cfg.vocab, cfg.width, rngs=rngs)
        self.wpe = nnx.Embed(cfg.max_len, cfg.width, rngs=rngs)
        self.blocks = nnx.List([TransformerBlock(cfg, rngs=rngs) for _ in range(cfg.layers)])
        self.ln_f = nnx.RMSNorm(cfg.width, rngs=rngs)
        self.lm_head = nnx.Linear(cfg.width, cfg.vocab, use_bias=False, rngs=rngs)

    def __call__(self, tokens):
        n = tokens.shape[1]
        x = self.wte(tokens) + self.wpe(jnp.arange(n))
        mask = jnp.tril(jnp.ones((n, n), bool))[None, None]
        for block in self.blocks:
            x = block(x, mask)
        return self.lm_head(self.ln_f(x))


def token_logprobs(model, tokens):
    logits = model(tokens[:, :-1]).astype(jnp.float32)
    logp = jax.nn.log_softmax(logits, axis=-1)
    return jnp.take_along_axis(logp, tokens[:, 1:, None], axis=-1)[..., 0]


def group_advantages(rewards):
    r = rewards.reshape(GROUPS, PER_GROUP)
    adv = (r - r.mean(1, keepdims=True)) / (r.std(1, keepdims=True) + 1e-4)
    return adv.reshape(-1)


def grpo_loss(policy, tokens, old_logp, ref_logp, advantages, mask):
    logp = token_logprobs(policy, tokens)
    ratio = jnp.exp(logp - old_logp)
    adv = advantages[:, None]
    surrogate = jnp.minimum(ratio * adv, jnp.clip(ratio, 1 - CLIP_LOW, 1 + CLIP_HIGH) * adv)
    log_r = ref_logp - logp
    kl = jnp.exp(log_r) - log_r - 1
    per_token = -(surrogate - BETA * kl)
    loss = (per_token * mask).sum() / mask.sum()
    clipped = ((jnp.abs(ratio - 1) > CLIP_LOW) * mask).sum() / mask.sum()
    return loss, {"kl": (kl * mask).sum() / mask.sum(), "clip_frac": clipped}


def make_update(policy_def, ref_def, opt_def):
    @jax.jit
    def grpo_update(policy_state, opt_state, ref_state, batch):
        policy = nnx.merge(policy_def, policy_state)
        optimizer = nnx.merge(opt_def, opt_state)
        reference = nnx.merge(ref_def, ref_state)
        tokens = batch["tokens"]
        positions = jnp.arange(tokens.shape[1] - 1)
        mask = ((positions[None] >= PROMPT - 1) & (tokens[:, 1:] != 0)).astype(jnp.float32)
        advantages = group_advantages(batch["rewards"])
        ref_logp = jax.lax.stop_gradient(token_logprobs(reference, tokens))

        (loss, metrics), grads = nnx.value_and_grad(grpo_loss, has_aux=True)(
            policy, tokens, batch["old_logp"], ref_logp, advantages, mask
        )
        optimizer.update(policy, grads)
        metrics["reward"] = batch["rewards"].mean()
        return nnx.state(policy), nnx.state(optimizer), loss, metrics

    return grpo_update


def make():
    cfg = GPTConfig()

    def build():
        policy, reference = GPT(cfg, rngs=nnx.Rngs(0)), GPT(cfg, rngs=nnx.Rngs(0))
        tx = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(1e-6, weight_decay=0.0))
        return policy, reference, nnx.Optimizer(policy, tx, wrt=nnx.Param)

    policy, reference, optimizer = nnx.eval_shape(build)
    policy_def, policy_state = nnx.split(policy)
    ref_def, ref_state = nnx.split(reference)
    opt_def, opt_state = nnx.split(optimizer)
    b, n = GROUPS * PER_GROUP, PROMPT + COMPLETION
    batch = {
        "tokens": jax.ShapeDtypeStruct((b, n), jnp.int32),
        "old_logp": jax.ShapeDtypeStruct((b, n - 1), jnp.float32),
        "rewards": jax.ShapeDtypeStruct((b,), jnp.float32),
    }
    return make_update(policy_def, ref_def, opt_def), (policy_state, opt_state, ref_state, batch)
