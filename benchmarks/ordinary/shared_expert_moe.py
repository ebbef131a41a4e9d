"""DeepSeekMoE-like language model: 1 shared + 16 routed experts (top 2), expert parallel all-to-all on a (data 2, expert 4) mesh, scan over layers."""

TRUTH = """
IN ORDER
- `train_step`: embed -> layer loop x6 -> final norm, tied unembedding, cross entropy + 0.01 * load-balance loss (summed over the layers)
  -> backward (layer loop x6 reversed) -> adamw
- layer = norm, causal attention, add, norm, MoE, add
- MoE (in shard_map): `router` (softmax over 16, top 2) -> `dispatch` into [16, capacity, 512] buffers -> all-to-all over `expert`
  -> `routed_experts` (4 local experts, swiglu) -> all-to-all back -> `combine` ; next to it the `shared_expert` (swiglu on all tokens)
COUNTS
- 6 layers, one loop forward and one backward; per layer 2 all-to-alls forward and 2 in backward (4, with remat 2 more: here no remat)
- 16 routed experts, 4 per device along `expert`; capacity = 1.25 * 2 * tokens / 16
ORDER / INDEPENDENCE
- shared expert is independent of router, dispatch, all-to-all and routed experts (could overlap); load-balance loss only needs the router
- attention before MoE, layers serial
HEAVY
- routed experts ~ 2 x the shared expert (top 2, same width, x1.25 capacity); attention similar to one expert; vocabulary matmul (512 x 32000) is large: ~ 28 % against 6 layers
COMMUNICATION
- all-to-all over `expert` (groups of 4): [16, capacity 320, 512] bf16 ~ 5 MB a device each; gradient all-reduces: dense params over all 8, expert params only over
  `data` (2). Tokens are sharded over both axes (32 sequences / 8)
PERFORMANCE
- healthy: donated, dispatch by scatter/gather of indices (no one-hot einsum of [tokens, experts, capacity]); a person may be told that the all-to-alls are not
  overlapped with the shared expert on a backend without async ones
"""
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

MESH = {"data": 2, "expert": 4}
D, HEADS, LAYERS, E, TOPK, FF, VOCAB, B, T = 512, 8, 6, 16, 2, 1024, 32000, 32, 512


class Ffn(NamedTuple):
    gate: jax.Array
    up: jax.Array
    down: jax.Array


class Layer(NamedTuple):
    norm_attn: jax.Array
    qkv: jax.Array
    out: jax.Array
    norm_moe: jax.Array
    router: jax.Array
    shared: Ffn
    routed: Ffn


class Model(NamedTuple):
    embed: jax.Array
    layers: Layer
    norm: jax.Array


SHAPES = Model(
    (VOCAB, D),
    Layer(
        (LAYERS, D),
        (LAYERS, D, 3 * D),
        (LAYERS, D, D),
        (LAYERS, D),
        (LAYERS, D, E),
        Ffn((LAYERS, D, FF), (LAYERS, D, FF), (LAYERS, FF, D)),
        Ffn((LAYERS, E, D, FF), (LAYERS, E, D, FF), (LAYERS, E, FF, D)),
    ),
    (D,),
)


def rms(x, g):
    y = x.astype(jnp.float32)
    return (y * jax.lax.rsqrt(jnp.mean(y * y, -1, keepdims=True) + 1e-6) * g).astype(x.dtype)


def attention(x, qkv, out):
    b, t, _ = x.shape
    q, k, v = jnp.split((x @ qkv).reshape(b, t, 3 * HEADS, D // HEADS), 3, axis=2)
    return jax.nn.dot_product_attention(q, k, v, is_causal=True).reshape(b, t, D) @ out


def swiglu(x, f):
    return (jax.nn.silu(x @ f.gate) * (x @ f.up)) @ f.down


def moe_local(x, router, shared, routed):
    """Runs per device: x [b, t, D] local tokens, routed holds E/4 experts."""
    b, t, _ = x.shape
    x = x.reshape(-1, D)
    n = x.shape[0]
    cap = int(1.25 * TOPK * n / E)
    with jax.named_scope("router"):
        probs = jax.nn.softmax((x @ router.astype(x.dtype)).astype(jnp.float32))
        weight, expert = jax.lax.top_k(probs, TOPK)
        weight = (weight / weight.sum(-1, keepdims=True)).astype(x.dtype)
        onehot = jax.nn.one_hot(expert.reshape(-1), E, dtype=jnp.int32)
        slot = jnp.sum((jnp.cumsum(onehot, 0) - 1) * onehot, -1).reshape(n, TOPK)
        balance = E * jnp.sum(probs.mean(0) * onehot.astype(jnp.float32).mean(0)) * TOPK
    with jax.named_scope("dispatch"):
        buf = jnp.zeros((E, cap, D), x.dtype)
        buf = buf.at[expert, slot].add(jnp.broadcast_to(x[:, None], (n, TOPK, D)), mode="drop")
    buf = jax.lax.all_to_all(buf, "expert", 0, 1, tiled=True)  # [E/4, 4*cap, D]
    with jax.named_scope("routed_experts"):
        buf = jax.vmap(swiglu)(buf, routed)
    buf = jax.lax.all_to_all(buf, "expert", 1, 0, tiled=True)
    with jax.named_scope("combine"):
        got = buf.at[expert, slot].get(mode="fill", fill_value=0)
        y = jnp.einsum("nkd,nk->nd", got, weight)
    with jax.named_scope("shared_expert"):
        y = y + swiglu(x, shared)
    return y.reshape(b, t, D), jax.lax.pmean(balance, ("data", "expert"))


def make(mesh):
    tokens_spec = P(("data", "expert"))
    moe = jax.shard_map(
        moe_local,
        mesh=mesh,
        in_specs=(tokens_spec, P(), P(), P("expert")),
        out_specs=(tokens_spec, P()),
        check_vma=False,
    )
    tx = optax.adamw(3e-4, b2=0.95, weight_decay=0.1)

    def loss_fn(params, tokens):
        half = lambda tree: jax.tree.map(lambda w: w.astype(jnp.bfloat16), tree)
        x = params.embed.astype(jnp.bfloat16)[tokens[:, :-1]]

        def layer(x, p):
            x = x + attention(rms(x, p.norm_attn), *half((p.qkv, p.out)))
            y, balance = moe(rms(x, p.norm_moe), p.router, half(p.shared), half(p.routed))
            return x + y, balance

        x, balance = jax.lax.scan(layer, x, params.layers)
        logits = (rms(x, params.norm) @ params.embed.astype(jnp.bfloat16).T).astype(jnp.float32)
        ce = optax.softmax_cross_entropy_with_integer_labels(logits, tokens[:, 1:]).mean()
        return ce + 0.01 * balance.sum(), (ce, balance)

    def train_step(params, opt_state, tokens):
        (loss, (ce, balance)), grads = jax.value_and_grad(loss_fn, has_aux=True)(params, tokens)
        updates, opt_state = tx.update(grads, opt_state, params)
        return (
            optax.apply_updates(params, updates),
            opt_state,
            {"loss": loss, "ce": ce, "balance": balance},
        )

    def struct(shape):
        spec = P(None, "expert") if len(shape) == 4 else P()
        return jax.ShapeDtypeStruct(shape, jnp.float32, sharding=NamedSharding(mesh, spec))

    params = jax.tree.map(struct, SHAPES, is_leaf=lambda s: type(s) is tuple)
    opt = optax.tree_utils.tree_map_params(
        tx,
        lambda s, p: jax.ShapeDtypeStruct(s.shape, s.dtype, sharding=p.sharding),
        jax.eval_shape(tx.init, params),
        params,
        transform_non_params=lambda s: jax.ShapeDtypeStruct(
            s.shape, s.dtype, sharding=NamedSharding(mesh, P())
        ),
    )
    shards = jax.tree.map(lambda x: x.sharding, (params, opt))
    step = jax.jit(
        train_step, donate_argnums=(0, 1), out_shardings=(*shards, NamedSharding(mesh, P()))
    )
    tokens = jax.ShapeDtypeStruct((B, T + 1), jnp.int32, sharding=NamedSharding(mesh, tokens_spec))
    return step, (params, opt, tokens)
