TRUTH = """
One BitNet b1.58 training step (train_step), 1.1 B parameters, FSDP over 8 devices, 4 micro-batches of 16 x 2048 tokens (2 sequences per device).

train_step
  micro_batch loop x4 (gradient accumulation)
    next_token_loss -> language_model (forward)
      embed lookup
      decoder_layer loop x24 (checkpointed)
        attention: attn_norm, wq, wk, wv, rope, scores (16 query heads, 4 kv heads), softmax, values, sub_norm, wo
        feed_forward: ffn_norm, w_gate (relu squared), w_up, ffn_sub_norm, w_down
        every projection is bit_linear: quantize_activation, quantize_weight, int8 x int8 matmul to int32, rescale; 7 per layer
      final_norm, tied vocabulary projection (2048->32000), log_softmax
    backward: loop x24: recompute of the layer (int8 matmuls again), then bit_linear_bwd: dx and dw matmuls in bf16 (14 per layer), attention backward
    parameter all-gather / gradient reduce-scatter (or all-reduce + slice) over "fsdp" within loops
    gradient add
  adamw (hand written: norm, clip, moments, update), once per step, after the loop

Nesting: 4 > 24 forward, 4 > 24 backward. 96 layer executions forward, 96 backward (each with recompute).
Weight: feed_forward of the layers > attention projections > attention scores; the vocabulary projection about one to two layers' worth.
Forward projections are int8; the backward ones bf16: the picture may tell this. adamw elementwise, light.
First sight: loop of 4 micro batches around a network of 24 layers, forward and backward, then the optimiser outside the loop.
Names true: micro_batch, next_token_loss, language_model, decoder_layer, attention, feed_forward, bit_linear, quantize_weight, adamw.
False would be: optimiser inside the loop; x96 layers flat without saying 4 x 24; backward of the quantisers as a network of its own;
bit_linear_bwd shown in forward (it is custom_vjp: the backward function has its own name); the zero-initialised accumulator as heavy.
"""

"""BitNet b1.58 pre-training, plain JAX. Ternary weights and int8 activations in every projection, straight-through
gradients by custom_vjp, FSDP over 8 devices, 4 micro-batches per step, hand-written AdamW."""
from functools import partial

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

MESH = {"fsdp": 8}
D, LAYERS, HEADS, KV, HD, FF, VOCAB = 2048, 24, 16, 4, 128, 5632, 32000
SEQ, MICRO, ACCUM = 2048, 16, 4
BF16, F32 = jnp.bfloat16, jnp.float32


def quantize_weight(w):
    scale = jnp.mean(jnp.abs(w)) + 1e-5
    return jnp.clip(jnp.round(w / scale), -1, 1).astype(jnp.int8), scale


def quantize_activation(x):
    x = x.astype(F32)
    scale = jnp.max(jnp.abs(x), axis=-1, keepdims=True) / 127.0 + 1e-5
    return jnp.round(x / scale).astype(jnp.int8), scale


@jax.custom_vjp
def bit_linear(x, w):
    return bit_linear_fwd(x, w)[0]


def bit_linear_fwd(x, w):
    xq, xs = quantize_activation(x)
    wq, ws = quantize_weight(w)
    y = lax.dot_general(xq, wq, (((x.ndim - 1,), (0,)), ((), ())), preferred_element_type=jnp.int32)
    return (y.astype(F32) * xs * ws).astype(BF16), (xq, xs, wq, ws)


def bit_linear_bwd(res, g):
    """Straight through: as if y = x_hat @ w_hat with both roundings the identity."""
    xq, xs, wq, ws = res
    dx = jnp.einsum("bto,io->bti", g, (wq * ws).astype(BF16))
    x_hat = (xq.astype(F32) * xs).astype(BF16)
    dw = jnp.einsum("bti,bto->io", x_hat, g, preferred_element_type=F32)
    return dx, dw


bit_linear.defvjp(bit_linear_fwd, bit_linear_bwd)


def rms_norm(x, scale):
    x = x.astype(F32)
    return (x * lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-5) * scale).astype(BF16)


def rope(x):
    t, d = x.shape[1], x.shape[-1]
    ang = jnp.arange(t)[:, None] * 10000.0 ** (-jnp.arange(0, d, 2) / d)
    c, s = jnp.cos(ang)[:, None, :], jnp.sin(ang)[:, None, :]
    a, b = jnp.split(x.astype(F32), 2, -1)
    return jnp.concatenate([a * c - b * s, b * c + a * s], -1).astype(BF16)


def attention(p, x):
    b, t, _ = x.shape
    h = rms_norm(x, p["attn_norm"])
    q = rope(bit_linear(h, p["wq"]).reshape(b, t, HEADS, HD))
    k = rope(bit_linear(h, p["wk"]).reshape(b, t, KV, HD))
    v = bit_linear(h, p["wv"]).reshape(b, t, KV, HD)
    q = q.reshape(b, t, KV, HEADS // KV, HD)
    s = jnp.einsum("btkgd,bskd->bkgts", q, k, preferred_element_type=F32) * HD**-0.5
    s = jnp.where(jnp.tril(jnp.ones((t, t), bool)), s, -1e30)
    o = jnp.einsum("bkgts,bskd->btkgd", jax.nn.softmax(s, -1).astype(BF16), v)
    return bit_linear(rms_norm(o.reshape(b, t, -1), p["sub_norm"]), p["wo"])


def feed_forward(p, x):
    h = rms_norm(x, p["ffn_norm"])
    u = jnp.square(jax.nn.relu(bit_linear(h, p["w_gate"]))) * bit_linear(h, p["w_up"])
    return bit_linear(rms_norm(u, p["ffn_sub_norm"]), p["w_down"])


def decoder_layer(x, p):
    x = x + attention(p, x)
    x = x + feed_forward(p, x)
    return x, None


def language_model(params, tokens):
    x = params["embed"][tokens].astype(BF16)
    x, _ = lax.scan(jax.checkpoint(decoder_layer, prevent_cse=False), x, params["layers"])
    x = rms_norm(x, params["final_norm"])
    return jnp.einsum("btd,vd->btv", x, params["embed"].astype(BF16), preferred_element_type=F32)


def next_token_loss(params, tokens):
    logits = language_model(params, tokens[:, :-1])
    logp = jax.nn.log_softmax(logits)
    return -jnp.take_along_axis(logp, tokens[:, 1:, None], -1).mean()


def adamw(params, grads, m, v, step, lr=1.5e-3, b1=0.9, b2=0.95, wd=0.1):
    t = step.astype(F32) + 1
    norm = jnp.sqrt(sum(jnp.sum(g * g) for g in jax.tree.leaves(grads)))
    clip = jnp.minimum(1.0, 1.0 / norm)
    grads = jax.tree.map(lambda g: g * clip, grads)
    m = jax.tree.map(lambda m, g: b1 * m + (1 - b1) * g, m, grads)
    v = jax.tree.map(lambda v, g: b2 * v + (1 - b2) * g * g, v, grads)
    new = lambda p, m, v: p - lr * (m / (1 - b1**t) / (jnp.sqrt(v / (1 - b2**t)) + 1e-8) + wd * p)
    return jax.tree.map(new, params, m, v), m, v, norm


def param_specs():
    L = lambda *s: (LAYERS,) + s
    return {
        "embed": ((VOCAB, D), P("fsdp", None)),
        "final_norm": ((D,), P()),
        "layers": {
            "attn_norm": (L(D), P()),
            "sub_norm": (L(HEADS * HD), P()),
            "ffn_norm": (L(D), P()),
            "ffn_sub_norm": (L(FF), P()),
            "wq": (L(D, HEADS * HD), P(None, "fsdp", None)),
            "wk": (L(D, KV * HD), P(None, "fsdp", None)),
            "wv": (L(D, KV * HD), P(None, "fsdp", None)),
            "wo": (L(HEADS * HD, D), P(None, None, "fsdp")),
            "w_gate": (L(D, FF), P(None, "fsdp", None)),
            "w_up": (L(D, FF), P(None, "fsdp", None)),
            "w_down": (L(FF, D), P(None, None, "fsdp")),
        },
    }


def make(mesh):
    S = jax.ShapeDtypeStruct
    is_spec = lambda x: isinstance(x, tuple)
    specs = param_specs()
    shard = jax.tree.map(lambda t: NamedSharding(mesh, t[1]), specs, is_leaf=is_spec)
    params = jax.tree.map(
        lambda t: S(t[0], F32, sharding=NamedSharding(mesh, t[1])), specs, is_leaf=is_spec
    )
    rep = NamedSharding(mesh, P())

    @partial(jax.jit, donate_argnums=(0, 1, 2), out_shardings=(shard, shard, shard, rep))
    def train_step(params, m, v, tokens, step):
        def micro_batch(carry, batch):
            total, grads = carry
            loss, g = jax.value_and_grad(next_token_loss)(params, batch)
            g = lax.with_sharding_constraint(g, shard)
            return (total + loss, jax.tree.map(jnp.add, grads, g)), None

        zero = jax.tree.map(jnp.zeros_like, params)
        (loss, grads), _ = lax.scan(micro_batch, (jnp.zeros(()), zero), tokens)
        grads = jax.tree.map(lambda g: g / ACCUM, grads)
        params, m, v, norm = adamw(params, grads, m, v, step)
        return params, m, v, {"loss": loss / ACCUM, "grad_norm": norm}

    tokens = S(
        (ACCUM, MICRO, SEQ + 1), jnp.int32, sharding=NamedSharding(mesh, P(None, "fsdp", None))
    )
    return train_step, (params, params, params, tokens, S((), jnp.int32, sharding=rep))
