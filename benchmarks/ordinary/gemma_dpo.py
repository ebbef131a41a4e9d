TRUTH = """
# gemma_dpo - DPO preference tuning of a Gemma-2-like LM: policy and frozen reference; mesh data=2 x model=4; bf16 compute, adamw

1. Order: **concat** chosen+rejected (16 sequences x 1024) -> **reference forward** (no gradient): embed, **layer pairs: loop x4**, final norm, logits (32768, soft-capped), log-probs -> **policy forward**: same parts, loop x4 -> **DPO loss** (4 log-prob sums per pair, sigmoid) -> **policy backward**: logits backward, **layer pairs backward: loop x4 (with recompute)**, embedding gradient -> gradient norm clip -> adamw.
2. A pair = **local layer** (sliding-window attention 256) then **global layer** (full causal); each { pre-norm, attention { qkv, rope, scores with soft cap, softmax, values, out }, post-norm, pre-norm, GeGLU mlp { gate, up, down }, post-norm }. So 8 layers = 4 turns x 2 layers.
3. Work ~28 TF over all devices: policy ~80% (forward 20, recompute 16, backward 40+), reference ~20%. In each trunk ~80% and logits ~20%. In a layer: mlp ~70%, attention projections 17, scores 12. Optimizer ~0.
4. Collectives: tensor parallel all-reduce after attention out and mlp down (activations, over model) in each of the loops; vocab-parallel logits: all-reduces for logsumexp; gradient all-reduce over data.
5. First picture: batch -> [reference model x4 pairs] and [policy model x4 pairs] side by side, both -> DPO loss -> policy backward x4 -> AdamW -> new policy params. The reference gets no backward and no update.
6. Local and global attention are different functions in one turn: both to be seen inside the pair. (As written, both compute full scores with a mask.)
7. Should not stand out: masks, rope tables, metric sums (reward margin, accuracy), casting params to bf16.
8. Misleading: reference and policy loops merged as "x8"; pair loop called 8 layers without the two kinds; the recompute taken for another forward.
"""

"""Direct preference optimisation, plain JAX, auto sharding (data x model)."""
import functools

import jax
import jax.numpy as jnp
import optax
from jax import lax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

MESH = {"data": 2, "model": 4}

VOCAB, D, PAIRS, HEADS, KV, HEAD, FF = 32768, 1024, 4, 8, 4, 128, 4096
SEQ, BATCH, WINDOW = 1024, 8, 256
BETA = 0.1


def rms_norm(x, scale):
    v = x.astype(jnp.float32)
    v = v * lax.rsqrt(jnp.mean(v * v, -1, keepdims=True) + 1e-6)
    return (v * (1.0 + scale)).astype(x.dtype)


def softcap(x, cap):
    return cap * jnp.tanh(x / cap)


def rope(x):
    n, half = x.shape[1], x.shape[-1] // 2
    angle = jnp.arange(n)[:, None] * 10_000.0 ** (-jnp.arange(half) / half)
    c, s = jnp.cos(angle)[:, None].astype(x.dtype), jnp.sin(angle)[:, None].astype(x.dtype)
    a, b = x[..., :half], x[..., half:]
    return jnp.concatenate([a * c - b * s, b * c + a * s], -1)


def causal_mask(n, window=None):
    i, j = jnp.arange(n)[:, None], jnp.arange(n)[None]
    keep = j <= i
    return keep if window is None else keep & (i - j < window)


def attention(p, x, mask):
    q = rope(jnp.einsum("btd,dhk->bthk", x, p["q"])) * HEAD**-0.5
    k = rope(jnp.einsum("btd,dhk->bthk", x, p["k"]))
    v = jnp.einsum("btd,dhk->bthk", x, p["v"])
    b, t = x.shape[:2]
    q = q.reshape(b, t, KV, HEADS // KV, HEAD)
    scores = jnp.einsum("btgrk,bsgk->bgrts", q, k, preferred_element_type=jnp.float32)
    scores = jnp.where(mask, softcap(scores, 50.0), -1e30)
    probs = jax.nn.softmax(scores).astype(x.dtype)
    y = jnp.einsum("bgrts,bsgk->btgrk", probs, v).reshape(b, t, HEADS, HEAD)
    return jnp.einsum("bthk,hkd->btd", y, p["o"])


def geglu(p, x):
    return (jax.nn.gelu(x @ p["gate"]) * (x @ p["up"])) @ p["down"]


def layer(p, x, mask):
    y = attention(p["attn"], rms_norm(x, p["pre_attn"]), mask)
    x = x + rms_norm(y, p["post_attn"])
    y = geglu(p["mlp"], rms_norm(x, p["pre_mlp"]))
    return x + rms_norm(y, p["post_mlp"])


def local_layer(p, x):
    return layer(p, x, causal_mask(x.shape[1], WINDOW))


def global_layer(p, x):
    return layer(p, x, causal_mask(x.shape[1]))


def layer_pair(x, p):
    p = jax.tree.map(lambda a: a.astype(jnp.bfloat16), p)
    return global_layer(p["global"], local_layer(p["local"], x)), None


def language_model(params, tokens):
    table = params["embed"].astype(jnp.bfloat16)
    x = table[tokens] * jnp.bfloat16(D**0.5)
    x, _ = lax.scan(jax.checkpoint(layer_pair), x, params["pairs"])
    x = rms_norm(x, params["final_norm"])
    logits = jnp.einsum("btd,vd->btv", x, table, preferred_element_type=jnp.float32)
    return softcap(logits, 30.0)


def sequence_logprob(params, tokens, response_mask):
    logits = language_model(params, tokens)[:, :-1]
    target = tokens[:, 1:]
    picked = jnp.take_along_axis(logits, target[..., None], -1)[..., 0]
    logp = picked - jax.nn.logsumexp(logits, -1)
    return jnp.sum(logp * response_mask[:, 1:], -1)


def dpo_loss(policy, reference_logp, tokens, mask):
    logp = sequence_logprob(policy, tokens, mask)
    ratio = logp - reference_logp
    chosen, rejected = jnp.split(ratio, 2)
    margin = BETA * (chosen - rejected)
    loss = -jax.nn.log_sigmoid(margin).mean()
    sft = -(logp[:BATCH] / mask[:BATCH].sum(-1)).mean()
    metrics = {"margin": margin.mean(), "accuracy": (margin > 0).mean(), "sft": sft}
    return loss + 0.05 * sft, metrics


tx = optax.chain(
    optax.clip_by_global_norm(1.0),
    optax.adamw(optax.warmup_constant_schedule(0.0, 5e-7, 100), b2=0.95, weight_decay=0.0),
)


def dpo_step(policy, reference, opt_state, batch):
    tokens = jnp.concatenate([batch["chosen"], batch["rejected"]])
    mask = jnp.concatenate([batch["chosen_mask"], batch["rejected_mask"]]).astype(jnp.float32)
    reference_logp = lax.stop_gradient(sequence_logprob(reference, tokens, mask))
    grad_fn = jax.value_and_grad(dpo_loss, has_aux=True)
    (loss, metrics), grads = grad_fn(policy, reference_logp, tokens, mask)
    updates, opt_state = tx.update(grads, opt_state, policy)
    return optax.apply_updates(policy, updates), opt_state, {"loss": loss, **metrics}


LAYER = {
    "attn": {
        "q": ((D, HEADS, HEAD), P(None, None, "model", None)),
        "k": ((D, KV, HEAD), P(None, None, "model", None)),
        "v": ((D, KV, HEAD), P(None, None, "model", None)),
        "o": ((HEADS, HEAD, D), P(None, "model", None, None)),
    },
    "mlp": {
        "gate": ((D, FF), P(None, None, "model")),
        "up": ((D, FF), P(None, None, "model")),
        "down": ((FF, D), P(None, "model", None)),
    },
    "pre_attn": ((D,), P()),
    "post_attn": ((D,), P()),
    "pre_mlp": ((D,), P()),
    "post_mlp": ((D,), P()),
}


REPLICATED = P()


def make(mesh):
    def S(shape, spec=REPLICATED, dtype=jnp.float32):
        return jax.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(mesh, spec))

    leaf = lambda x: isinstance(x, tuple)
    stack = lambda dtype: jax.tree.map(
        lambda a: S((PAIRS, *a[0]), a[1], dtype), LAYER, is_leaf=leaf
    )

    def model(dtype):
        return {
            "embed": S((VOCAB, D), P("model", None), dtype),
            "pairs": {"local": stack(dtype), "global": stack(dtype)},
            "final_norm": S((D,), P(), dtype),
        }

    policy, reference = model(jnp.float32), model(jnp.bfloat16)
    opt_state = jax.eval_shape(tx.init, policy)
    by_shape = {p.shape: p.sharding for p in jax.tree.leaves(policy)}
    opt_state = jax.tree.map(
        lambda a: jax.ShapeDtypeStruct(
            a.shape, a.dtype, sharding=by_shape.get(a.shape, NamedSharding(mesh, P()))
        ),
        opt_state,
    )
    tok = functools.partial(S, (BATCH, SEQ), P("data", None))
    batch = {
        "chosen": tok(jnp.int32),
        "rejected": tok(jnp.int32),
        "chosen_mask": tok(jnp.bool_),
        "rejected_mask": tok(jnp.bool_),
    }
    return jax.jit(dpo_step, donate_argnums=(0, 2)), (policy, reference, opt_state, batch)
