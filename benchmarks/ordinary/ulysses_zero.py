TRUTH = """
# ulysses_zero - long-context LM step, sequence parallel (Ulysses all-to-all) + hand-written ZeRO-1; shard_map, mesh data=2 x seq=4

1. Order: embed -> **6 decoder layers, written out (python list), each rematerialised** -> final norm, **chunked head loss: loop x4** over pieces of the local sequence -> backward: head loop x4 (recompute), layers 5..0 each { recompute, backward }, embedding scatter-add -> **ZeRO update**: flatten all gradients, reduce-scatter over all 8 devices, global norm (psum), AdamW on 1/8 shard, all-gather of the new parameters, unflatten.
2. A layer: **attention** { norm, qkv, rope, **all-to-all** (sequence split -> head split), causal scores over the full 4096 tokens with 3 heads, values, **all-to-all** back, out } + **mlp** { norm, up, gelu, down }.
3. Work per step ~13 TF (4 x 4096 tokens): attention scores/values ~45% incl. recompute, mlp ~25%, qkv/out ~13%, head ~19%. Forward ~24%, recompute ~24%, backward ~50%. Optimizer 0 FLOPs, but its reduce-scatter + all-gather carry all parameters.
4. Collectives: 4 all-to-alls per layer forward as q,k,v are sent separately (3) + 1 back; the same again in recompute and in backward: 6 x 12 = 72 in all (compiler may combine 3 to 1 or drop some). One reduce-scatter, one all-gather, psums for norm and loss.
5. First picture: embed -> layer x6 { attention with all-to-all, mlp } -> head loss x4 -> backward: head loss x4, layer x6 -> reduce-scatter -> AdamW shard -> all-gather -> params.
6. Arrows: residual stream; saved layer inputs to backward; targets to head loss.
7. Should not stand out: flatten / unflatten (many reshapes, one huge concatenate and many slices), rope, mask, cast.
8. Misleading: repeated layers must be recognised as x6 although unrolled; the x4 loop is chunks of the vocabulary loss and not layers or micro-batches; seq=4 is also a 4.
"""

"""DeepSpeed-Ulysses in JAX with explicit collectives."""
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.flatten_util import ravel_pytree
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

MESH = {"data": 2, "seq": 4}

VOCAB, D, LAYERS, HEADS, FF = 32768, 768, 6, 12, 3072
BATCH, SEQ, CHUNKS = 4, 4096, 4
EVERY = ("data", "seq")
LR, B1, B2, DECAY = 3e-4, 0.9, 0.95, 0.1


def layer_shapes():
    return dict(
        norm1=(D,), q=(D, D), k=(D, D), v=(D, D), o=(D, D), norm2=(D,), up=(D, FF), down=(FF, D)
    )


def shapes():
    return dict(
        embed=(VOCAB, D), layers=[layer_shapes() for _ in range(LAYERS)], norm=(D,), head=(D, VOCAB)
    )


def rms_norm(x, g):
    v = x.astype(jnp.float32)
    return (v * lax.rsqrt(jnp.mean(v * v, -1, keepdims=True) + 1e-6)).astype(x.dtype) * g


def rope(x, pos):
    half = x.shape[-1] // 2
    a = pos[:, None] * 500_000.0 ** (-jnp.arange(half) / half)
    c, s = jnp.cos(a)[:, None].astype(x.dtype), jnp.sin(a)[:, None].astype(x.dtype)
    x1, x2 = x[..., :half], x[..., half:]
    return jnp.concatenate([x1 * c - x2 * s, x2 * c + x1 * s], -1)


def seq_to_heads(x):
    """[b, T/4, H, k] -> [b, T, H/4, k]"""
    return lax.all_to_all(x, "seq", split_axis=2, concat_axis=1, tiled=True)


def heads_to_seq(x):
    return lax.all_to_all(x, "seq", split_axis=1, concat_axis=2, tiled=True)


def causal_attention(q, k, v):
    t = q.shape[1]
    s = (
        jnp.einsum("bqhk,bshk->bhqs", q, k, preferred_element_type=jnp.float32)
        * q.shape[-1] ** -0.5
    )
    s = jnp.where(jnp.tril(jnp.ones((t, t), bool)), s, -1e30)
    return jnp.einsum("bhqs,bshk->bqhk", jax.nn.softmax(s).astype(q.dtype), v)


def attention_block(p, x):
    b, t, _ = x.shape
    h = rms_norm(x, p["norm1"])
    pos = lax.axis_index("seq") * t + jnp.arange(t)
    heads = lambda w: (h @ w).reshape(b, t, HEADS, D // HEADS)
    q, k, v = rope(heads(p["q"]), pos), rope(heads(p["k"]), pos), heads(p["v"])
    q, k, v = seq_to_heads(q), seq_to_heads(k), seq_to_heads(v)
    y = heads_to_seq(causal_attention(q, k, v))
    return y.reshape(b, t, D) @ p["o"]


def mlp_block(p, x):
    return jax.nn.gelu(rms_norm(x, p["norm2"]) @ p["up"]) @ p["down"]


@jax.checkpoint
def decoder_layer(p, x):
    x = x + attention_block(p, x)
    return x + mlp_block(p, x)


def head_loss(head, x, targets):
    """sum of the negative log likelihood; logits of one chunk at a time"""
    b, t, _ = x.shape
    xs = x.reshape(b, CHUNKS, t // CHUNKS, D).swapaxes(0, 1)
    ys = targets.reshape(b, CHUNKS, t // CHUNKS).swapaxes(0, 1)

    @jax.checkpoint
    def chunk(total, xy):
        x, y = xy
        logits = (x @ head).astype(jnp.float32)
        nll = jax.nn.logsumexp(logits, -1) - jnp.take_along_axis(logits, y[..., None], -1)[..., 0]
        return total + nll.sum(), None

    return lax.scan(chunk, jnp.float32(0), (xs, ys))[0]


def local_loss(params, tokens, targets):
    p = jax.tree.map(lambda a: a.astype(jnp.bfloat16), params)
    x = p["embed"][tokens]
    for layer in p["layers"]:
        x = decoder_layer(layer, x)
    x = rms_norm(x, p["norm"])
    return head_loss(p["head"], x, targets) / (BATCH * SEQ)


def zero_adamw(params, grads, opt):
    """reduce-scatter gradients, update my eighth, all-gather parameters"""
    flat_g, _ = ravel_pytree(grads)
    flat_p, unravel = ravel_pytree(params)
    n, devices = flat_p.size, 8
    pad = -n % devices
    shard = (n + pad) // devices
    g = lax.psum_scatter(jnp.pad(flat_g, (0, pad)), EVERY, scatter_dimension=0, tiled=True)
    norm = jnp.sqrt(lax.psum(jnp.sum(g * g), EVERY))
    g = g * jnp.minimum(1.0, 1.0 / (norm + 1e-6))
    me = lax.axis_index(EVERY)
    p = lax.dynamic_slice(jnp.pad(flat_p, (0, pad)), (me * shard,), (shard,))
    t = opt["count"] + 1
    m = B1 * opt["m"] + (1 - B1) * g
    v = B2 * opt["v"] + (1 - B2) * g * g
    step = (m / (1 - B1**t)) / (jnp.sqrt(v / (1 - B2**t)) + 1e-8)
    p = p - LR * jnp.minimum(1.0, t / 500) * (step + DECAY * p)
    flat_p = lax.all_gather(p, EVERY, tiled=True)[:n]
    return unravel(flat_p), {"m": m, "v": v, "count": t}, norm


def train_step(params, opt, tokens, targets):
    loss, grads = jax.value_and_grad(local_loss)(params, tokens, targets)
    params, opt, norm = zero_adamw(params, grads, opt)
    return params, opt, {"loss": lax.psum(loss, EVERY), "norm": norm}


REPLICATED = P()


def make(mesh):
    leaf = lambda s: isinstance(s, tuple)
    n = sum(int(np.prod(s)) for s in jax.tree.leaves(shapes(), is_leaf=leaf))
    n += -n % 8
    S = lambda s, spec=REPLICATED, d=jnp.float32: jax.ShapeDtypeStruct(
        s, d, sharding=NamedSharding(mesh, spec)
    )
    params = jax.tree.map(S, shapes(), is_leaf=leaf)
    opt_spec = {"m": P(EVERY), "v": P(EVERY), "count": P()}
    opt = {"m": S((n,), P(EVERY)), "v": S((n,), P(EVERY)), "count": S(())}
    tok = S((BATCH, SEQ), P("data", "seq"), jnp.int32)
    step = jax.shard_map(
        train_step,
        mesh=mesh,
        in_specs=(P(), opt_spec, P("data", "seq"), P("data", "seq")),
        out_specs=(P(), opt_spec, P()),
        check_vma=False,
    )
    return jax.jit(step, donate_argnums=(0, 1)), (params, opt, tok, tok)
