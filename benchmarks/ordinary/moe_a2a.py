TRUTH = """
TOP-LEVEL, IN ORDER
- train_step: embed tokens -> scan over 3 layer pairs -> final rmsnorm -> lm logits -> loss (cross entropy + 0.01 * balance loss + 0.001 * z loss) -> backward -> optimizer (clip + lion)
- one pair (scan body) = dense layer (attention, `dense_ffn`) then MoE layer (attention, `moe_ffn`)
- moe_ffn: router logits/softmax -> top-2 -> capacity / `make_dispatch` -> dispatch einsum -> all_to_all -> expert MLP (`expert_mlp`) -> all_to_all back -> combine einsum
COUNTS
- ONE forward loop of 3 iterations (scan over pairs, 6 layers in total, 3 of them MoE) and ONE backward loop of 3 iterations (reversed)
- in the body: 2 attentions, 1 dense FFN, 1 MoE FFN with 8 experts (2 per device on the 4-way expert axis)
- remat (jax.checkpoint) on the body: the backward loop recomputes the forward of the pair
- 2 all_to_all per MoE layer forward; in backward 2 recomputed (or 1) + 2 transposed
INDEPENDENT
- the 8 experts are independent of each other (batched einsum over local experts, not unrolled)
- balance loss and z loss need only router logits, not expert outputs
COMMUNICATION
- mesh data=2 x expert=4; tokens sharded over both axes; experts sharded over 'expert'; dense weights replicated -> gradients all-reduced
- all_to_all only within the MoE layers, over the expert axis
SHARES
- backward+recompute ~3/4 of FLOPs, forward ~1/4 (remat on)
- by part (fwd): moe_ffn is the largest part, ~50% (2/3 of it expert_mlp, 1/3 dispatch/combine einsums); attentions + dense FFN ~33%; lm head (vocab 8192) ~15-18%
- optimizer: no matmul FLOPs
MUST NOT BE SHOWN
- no shared expert, no sort/ragged grouping, no unrolled layers, no Adam second moment, no dropout, no KV cache
"""
"""Mixture of experts LM: top-2 routing with capacity, expert parallel with all_to_all inside shard_map."""
import dataclasses

import jax
import jax.numpy as jnp
import optax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

MESH = {"data": 2, "expert": 4}


@dataclasses.dataclass(frozen=True)
class Config:
    vocab: int = 8192
    d_model: int = 256
    n_heads: int = 4
    d_ff: int = 1024
    n_experts: int = 8
    top_k: int = 2
    n_pairs: int = 3
    capacity_factor: float = 1.25
    seq: int = 256
    batch: int = 16


cfg = Config()


def init_params(key):
    c = cfg
    ks = iter(jax.random.split(key, 20))
    n = lambda *s: jax.random.normal(next(ks), s) * 0.02
    L, D, F, E = c.n_pairs, c.d_model, c.d_ff, c.n_experts
    attn = lambda: {"norm": jnp.ones((L, D)), "wqkv": n(L, D, 3, D), "wo": n(L, D, D)}
    return {
        "embed": n(c.vocab, D),
        "pairs": {
            "attn0": attn(),
            "attn1": attn(),
            "ffn": {"norm": jnp.ones((L, D)), "w1": n(L, D, F), "w2": n(L, F, D)},
            "moe": {
                "norm": jnp.ones((L, D)),
                "router": n(L, D, E),
                "expert_w1": n(L, E, D, F),
                "expert_w2": n(L, E, F, D),
            },
        },
        "final_norm": jnp.ones((D,)),
        "lm_head": n(D, c.vocab),
    }


def param_spec(path, x):
    name = jax.tree_util.keystr(path)
    return P(None, "expert") if "expert_w" in name else P()


def rmsnorm(x, w):
    return x * jax.lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-6) * w


def attention(p, x):
    b, t, d = x.shape
    h = rmsnorm(x, p["norm"])
    q, k, v = jnp.moveaxis(jnp.einsum("btd,dce->btce", h, p["wqkv"]), 2, 0).reshape(
        3, b, t, cfg.n_heads, -1
    )
    o = jax.nn.dot_product_attention(q, k, v, is_causal=True)
    return x + o.reshape(b, t, d) @ p["wo"]


def dense_ffn(p, x):
    h = rmsnorm(x, p["norm"])
    return x + jax.nn.gelu(h @ p["w1"]) @ p["w2"]


def make_dispatch(gates, idx, capacity):
    """gates, idx: [N, k] -> combine weights [N, E, C]."""
    onehot = jax.nn.one_hot(idx, cfg.n_experts)  # N k E
    flat = onehot.transpose(1, 0, 2).reshape(-1, cfg.n_experts)  # first choices get slots first
    pos = jnp.cumsum(flat, 0) * flat - 1
    pos = pos.reshape(cfg.top_k, -1, cfg.n_experts).transpose(1, 0, 2)
    keep = (pos < capacity) & (onehot > 0)
    slot = jax.nn.one_hot(jnp.where(keep, pos, -1).max(-1).astype(jnp.int32), capacity)  # N k C
    onehot = onehot * keep
    return jnp.einsum("nk,nke,nkc->nec", gates, onehot, slot)


def expert_mlp(w1, w2, x):
    h = jax.nn.silu(jnp.einsum("ecd,edf->ecf", x, w1))
    return jnp.einsum("ecf,efd->ecd", h, w2)


def moe_local(router, w1, w2, x):
    """Runs per device: x [n_local, d], w1/w2 hold the local experts."""
    ep = jax.lax.axis_size("expert")
    n, d = x.shape
    cap = int(cfg.capacity_factor * cfg.top_k * n / cfg.n_experts)
    logits = x @ router
    probs = jax.nn.softmax(logits)
    gates, idx = jax.lax.top_k(probs, cfg.top_k)
    gates = gates / gates.sum(-1, keepdims=True)
    combine = make_dispatch(gates, idx, cap)
    dispatch = (combine > 0).astype(x.dtype)
    xe = jnp.einsum("nec,nd->ecd", dispatch, x)
    xe = jax.lax.all_to_all(xe, "expert", split_axis=0, concat_axis=1, tiled=True)  # E/ep, ep*C, d
    ye = expert_mlp(w1, w2, xe)
    ye = jax.lax.all_to_all(ye, "expert", split_axis=1, concat_axis=0, tiled=True)  # E, C, d
    y = jnp.einsum("nec,ecd->nd", combine, ye)
    frac = jax.lax.pmean(jax.nn.one_hot(idx[:, 0], cfg.n_experts).mean(0), ("data", "expert"))
    balance = cfg.n_experts * jnp.sum(frac * jax.lax.pmean(probs.mean(0), ("data", "expert")))
    z = jax.lax.pmean(jnp.mean(jax.nn.logsumexp(logits, -1) ** 2), ("data", "expert"))
    return y, balance, z


def moe_ffn(p, x, mesh):
    b, t, d = x.shape
    h = rmsnorm(x, p["norm"]).reshape(b * t, d)
    tok = P(("data", "expert"))
    y, balance, z = jax.shard_map(
        moe_local,
        mesh=mesh,
        in_specs=(P(), P("expert"), P("expert"), tok),
        out_specs=(tok, P(), P()),
    )(p["router"], p["expert_w1"], p["expert_w2"], h)
    return x + y.reshape(b, t, d), balance, z


def forward(params, tokens, mesh):
    x = params["embed"][tokens]

    @jax.checkpoint
    def pair(x, p):
        x = attention(p["attn0"], x)
        x = dense_ffn(p["ffn"], x)
        x = attention(p["attn1"], x)
        x, balance, z = moe_ffn(p["moe"], x, mesh)
        return x, (balance, z)

    x, (balance, z) = jax.lax.scan(pair, x, params["pairs"])
    return rmsnorm(x, params["final_norm"]) @ params["lm_head"], balance.mean(), z.mean()


def make(mesh):
    tx = optax.chain(optax.clip_by_global_norm(1.0), optax.lion(3e-4, weight_decay=0.1))

    def loss_fn(params, batch):
        logits, balance, z = forward(params, batch[:, :-1], mesh)
        ce = optax.softmax_cross_entropy_with_integer_labels(logits, batch[:, 1:]).mean()
        return ce + 0.01 * balance + 0.001 * z, {"ce": ce, "balance": balance, "z": z}

    def train_step(params, opt_state, batch):
        (loss, aux), grads = jax.value_and_grad(loss_fn, has_aux=True)(params, batch)
        updates, opt_state = tx.update(grads, opt_state, params)
        return optax.apply_updates(params, updates), opt_state, {"loss": loss, **aux}

    params = jax.eval_shape(init_params, jax.random.key(0))
    shard = lambda t: jax.tree_util.tree_map_with_path(
        lambda k, x: jax.ShapeDtypeStruct(
            x.shape, x.dtype, sharding=NamedSharding(mesh, param_spec(k, x))
        ),
        t,
    )
    batch = jax.ShapeDtypeStruct(
        (cfg.batch, cfg.seq + 1), jnp.int32, sharding=NamedSharding(mesh, P(("data", "expert")))
    )
    return train_step, (shard(params), shard(jax.eval_shape(tx.init, params)), batch)
