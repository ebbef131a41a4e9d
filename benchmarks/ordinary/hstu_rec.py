TRUTH = """
# hstu_rec - HSTU generative recommender, 200k items; plain jax, dp=4 x mp=2 with NamedSharding

1. Order: item + action embedding (item table split over mp) -> time buckets [32, 512, 512] -> **HSTU blocks: loop x8** { layer norm, **uvqk projection** with silu, scores + position and time bias, silu (no softmax), values, layer norm, gate by u, **out projection** } -> normalise -> **sampled softmax** with 8192 shared negatives -> backward: softmax, **loop x8 reversed** { recompute of scores/values only, backward }, embedding scatter-add -> **row-wise Adagrad on the items**, **Adam on the dense part**.
2. Work ~0.74 TF in all: HSTU blocks 72%, sampled softmax 28%. In the blocks: attention (scores, values) 37 of the 72, uvqk 28, out 7. Forward 30%, recompute ~9%, backward ~61%. Optimizers 0% but touch the whole 51 M-parameter item table (dense gradient).
3. Collectives: all-reduce over mp after the item lookups (table split by rows) and after each block's out projection (and in backward for the input's gradient): inside the loops; gradients over dp: item-table gradient is by far the largest one; small reductions for logsumexp over mp.
4. First picture: embed -> HSTU x8 -> sampled softmax -> backward: softmax, HSTU x8 { recompute attention, backward } -> item gradient -> Adagrad (items), Adam (dense).
5. Arrows: x around the loop; time buckets + validity constant into the loop; saved projections to backward; negatives' embeddings -> softmax; targets -> softmax.
6. Should not stand out: bucket arithmetic (log), masks, relative-position index, key handling, casts, bias-gradient scatter-adds.
7. Misleading: saying softmax attention; the item table's update as cheap/absent; x8 is layers.
"""

"""HSTU sequential recommender. dp x mp, everything through NamedSharding."""
import functools
import math

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

MESH = {"dp": 4, "mp": 2}

ITEMS, D, L, H = 200_000, 256, 8, 4
DK = D // H
SEQ, BATCH = 512, 32
NEG = 8192
TIME_BUCKETS, REL = 64, 2 * SEQ - 1


def param_spec():
    """shape, partition"""
    return {
        "item": ((ITEMS, D), P("mp", None)),
        "action": ((16, D), P()),
        "blocks": {
            "uvqk": ((L, D, 4, H, DK), P(None, None, None, "mp", None)),
            "out": ((L, H, DK, D), P(None, "mp", None, None)),
            "pos_bias": ((L, H, REL), P(None, "mp", None)),
            "time_bias": ((L, H, TIME_BUCKETS), P(None, "mp", None)),
        },
    }


def is_leaf(x):
    return isinstance(x, tuple)


def layer_norm(x):
    m = x.mean(-1, keepdims=True)
    return (x - m) * lax.rsqrt(((x - m) ** 2).mean(-1, keepdims=True) + 1e-6)


def con(x, *spec):
    return lax.with_sharding_constraint(x, P(*spec))


def time_buckets(ts):
    dt = jnp.abs(ts[:, :, None] - ts[:, None, :]).astype(jnp.float32)
    return jnp.clip(jnp.log1p(dt) * 3.0, 0, TIME_BUCKETS - 1).astype(jnp.int32)


def hstu_block(x, w, buckets, valid):
    n = SEQ
    h = layer_norm(x).astype(jnp.bfloat16)
    u, v, q, k = jnp.moveaxis(
        jax.nn.silu(jnp.einsum("bnd,dche->bcnhe", h, w["uvqk"].astype(h.dtype))), 1, 0
    )
    q = con(q, "dp", None, "mp", None)
    rel = jnp.arange(n)[:, None] - jnp.arange(n)[None] + n - 1
    bias = w["pos_bias"][:, rel][None] + jnp.moveaxis(w["time_bias"][:, buckets], 0, 1)
    s = jnp.einsum("bqhe,bkhe->bhqk", q, k).astype(jnp.float32) + bias
    mask = jnp.tril(jnp.ones((n, n), bool)) & valid[:, None, None, :]
    a = jnp.where(mask, jax.nn.silu(s) / n, 0.0).astype(h.dtype)  # pointwise attention, no softmax
    y = jnp.einsum("bhqk,bkhe->bqhe", a, v)
    y = layer_norm(y.astype(jnp.float32)).astype(h.dtype) * u
    return x + jnp.einsum("bnhe,hed->bnd", y, w["out"].astype(h.dtype)).astype(jnp.float32)


def encode(p, items, actions, ts):
    x = p["item"][items] * math.sqrt(D) + p["action"][actions]
    x = con(x, "dp", None, None)
    buckets, valid = time_buckets(ts), items > 0

    @functools.partial(
        jax.checkpoint, policy=jax.checkpoint_policies.dots_with_no_batch_dims_saveable
    )
    def body(x, w):
        return hstu_block(x, w, buckets, valid), None

    x, _ = lax.scan(body, x, p["blocks"])
    return x / (jnp.linalg.norm(x, axis=-1, keepdims=True) + 1e-6)


def sampled_softmax(p, x, target, neg, valid):
    unit = lambda e: e / (jnp.linalg.norm(e, axis=-1, keepdims=True) + 1e-6)
    pos_e, neg_e = unit(p["item"][target]), unit(p["item"][neg])
    neg_e = con(neg_e, "mp", None)
    pos = (x * pos_e).sum(-1) / 0.05
    logits = (
        jnp.einsum("bnd,kd->bnk", x.astype(jnp.bfloat16), neg_e.astype(jnp.bfloat16)).astype(
            jnp.float32
        )
        / 0.05
    )
    logits = con(logits, "dp", None, "mp")
    logits = jnp.where(target[..., None] == neg, -1e9, logits)
    lse = jnp.logaddexp(jax.nn.logsumexp(logits, -1), pos)
    return jnp.sum((lse - pos) * valid) / valid.sum()


def train_step(p, opt, batch, key):
    neg = jax.random.randint(key, (NEG,), 1, ITEMS)
    items, target = batch["items"][:, :-1], batch["items"][:, 1:]
    valid = (target > 0).astype(jnp.float32)

    def loss_fn(p):
        x = encode(p, items, batch["actions"], batch["ts"])
        return sampled_softmax(p, x, target, neg, valid)

    loss, g = jax.value_and_grad(loss_fn)(p)

    # row-wise adagrad for the items
    gi = g.pop("item")
    acc = opt["row"] + (gi * gi).mean(-1)
    item = p["item"] - 0.05 * gi / (jnp.sqrt(acc)[:, None] + 1e-8)

    # adam for the dense part
    dense = {k: v for k, v in p.items() if k != "item"}
    t = opt["t"] + 1
    m = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, opt["m"], g)
    v = jax.tree.map(lambda v, g: 0.98 * v + 0.02 * g * g, opt["v"], g)
    c1, c2 = 1 - 0.9**t, 1 - 0.98**t
    dense = jax.tree.map(
        lambda w, m, v: w - 1e-3 * (m / c1) / (jnp.sqrt(v / c2) + 1e-8), dense, m, v
    )
    return {"item": item, **dense}, {"row": acc, "m": m, "v": v, "t": t}, loss


def make(mesh):
    S = lambda s, spec=P(), d=jnp.float32: jax.ShapeDtypeStruct(
        s, d, sharding=NamedSharding(mesh, spec)
    )
    p = jax.tree.map(lambda x: S(*x), param_spec(), is_leaf=is_leaf)
    dense = {k: v for k, v in p.items() if k != "item"}
    opt = {"row": S((ITEMS,), P("mp")), "m": dense, "v": dense, "t": S(())}
    ids = S((BATCH, SEQ), P("dp"), jnp.int32)
    batch = {"items": S((BATCH, SEQ + 1), P("dp"), jnp.int32), "actions": ids, "ts": ids}
    out = jax.tree.map(lambda x: x.sharding, (p, opt))

    def step(*a):
        with jax.sharding.use_abstract_mesh(mesh.abstract_mesh):
            return train_step(*a)

    return jax.jit(step, donate_argnums=(0, 1), out_shardings=(*out, None)), (
        p,
        opt,
        batch,
        S((2,), P(), jnp.uint32),
    )
