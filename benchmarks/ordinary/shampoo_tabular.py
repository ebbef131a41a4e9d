TRUTH = """
# shampoo_tabular - FT-Transformer on tabular data, hand-written Shampoo with conditional inverse roots; flax linen, one device

1. Order: **tokenizer** (120 numeric + 80 categorical features + cls -> 201 tokens of 192) -> **4 blocks, written out** { ln, qkv, attention with dropout, out; ln, up, relu, down } -> head on cls -> label-smoothed cross-entropy -> **backward** blocks 3..0, tokenizer scatter-add -> **Shampoo**: for each of the 16 block matrices (4 blocks x qkv, out, up, down): statistics L, R; **every 10th step only (conditional)**: inverse 4th roots, each by power iteration (loop x12, twice) and **coupled Newton loop x20**; precondition PL g PR; graft to RMSprop's norm; momentum. Other parameters: plain RMSprop direction.
2. Work: model 0.64 TF (forward 1/3, backward 2/3); roots 0.72 TF when they are taken (53% of such a step; about 10% averaged over steps); statistics + preconditioning 0.5%.
3. In a block: up + down 57%, qkv + out 29%, scores/values 15%. In the roots: the 768-size ones (of up and down: 8 of them) 80%, 576-size (qkv) 17%.
4. First picture: tokenizer -> block x4 -> head/loss -> backward x4 -> Shampoo { statistics -> if step%10: inverse roots (loop x20, 32 of them) -> precondition -> graft, update }.
5. Arrows: gradients -> Shampoo; L, R -> roots -> PL, PR; dropout masks saved to backward.
6. Should not stand out: power iterations, dropout's random bits, grafting norms, small parameters' updates, one-hot.
7. Misleading: showing the Newton loops as training loop or layers; showing 53% for the roots without telling that they sit in a branch; 16 matrices with 32 root loops should be folded by kind.
"""

# FT-Transformer on a tabular dataset, trained with (my) distributed-shampoo-like optimizer without the distributed.
import flax.linen as nn
import jax
import jax.numpy as jnp
from jax import lax

N_NUM, N_CAT, CARD = 120, 80, 64
DIM, DEPTH, HEADS = 192, 4, 8
BATCH, CLASSES = 256, 10
ROOT_EVERY = 10
ROOT_ITERS = 20


class Tokenizer(nn.Module):
    @nn.compact
    def __call__(self, num, cat):
        w = self.param("num_w", nn.initializers.normal(0.02), (N_NUM, DIM))
        b = self.param("num_b", nn.initializers.zeros, (N_NUM, DIM))
        table = self.param("cat_table", nn.initializers.normal(0.02), (N_CAT * CARD, DIM))
        cls = self.param("cls", nn.initializers.normal(0.02), (1, 1, DIM))
        num_tok = num[..., None] * w + b
        cat_tok = table[cat + jnp.arange(N_CAT) * CARD]
        return jnp.concatenate([jnp.broadcast_to(cls, (num.shape[0], 1, DIM)), num_tok, cat_tok], 1)


class Block(nn.Module):
    train: bool = True

    @nn.compact
    def __call__(self, x):
        b, t, d = x.shape
        h = nn.LayerNorm(name="ln1")(x)
        q, k, v = jnp.split(nn.Dense(3 * d, name="qkv")(h).reshape(b, t, HEADS, -1), 3, -1)
        a = nn.softmax(jnp.einsum("bqhd,bkhd->bhqk", q, k) / jnp.sqrt(q.shape[-1]))
        a = nn.Dropout(0.1, deterministic=not self.train)(a)
        x = x + nn.Dense(d, name="out")(jnp.einsum("bhqk,bkhd->bqhd", a, v).reshape(b, t, d))
        h = nn.LayerNorm(name="ln2")(x)
        h = nn.relu(nn.Dense(4 * d, name="up")(h))
        return x + nn.Dense(d, name="down")(h)


class FTTransformer(nn.Module):
    @nn.compact
    def __call__(self, num, cat):
        x = Tokenizer(name="tokenizer")(num, cat)
        for i in range(DEPTH):
            x = Block(name=f"block_{i}")(x)
        return nn.Dense(CLASSES, name="head")(nn.relu(nn.LayerNorm(name="ln")(x[:, 0])))


# ---------------------------------------------------------------- shampoo
def is_big(path, p):
    name = jax.tree_util.keystr(path)
    return p.ndim == 2 and "block" in name


def power_iteration(a, n=12):
    v = jnp.ones(a.shape[0]) / jnp.sqrt(a.shape[0])

    def body(_, v):
        v = a @ v
        return v / (jnp.linalg.norm(v) + 1e-12)

    v = lax.fori_loop(0, n, body, v)
    return v @ a @ v


def inverse_4th_root(a):
    """coupled Newton iteration, like in the distributed shampoo paper"""
    p = 4
    n = a.shape[0]
    eye = jnp.eye(n)
    a = a + 1e-6 * power_iteration(a) * eye
    z = (1 + p) / (2 * power_iteration(a))
    m, h = a * z, eye * z ** (1 / p)

    def body(_, mh):
        m, h = mh
        mi = (1 + 1 / p) * eye - m / p
        m2 = mi @ mi
        return (m2 @ m2) @ m, h @ mi

    m, h = lax.fori_loop(0, ROOT_ITERS, body, (m, h))
    return h


def shampoo_leaf(g, st, refresh):
    st = dict(st)
    st["L"] = 0.95 * st["L"] + 0.05 * g @ g.T
    st["R"] = 0.95 * st["R"] + 0.05 * g.T @ g
    st["PL"], st["PR"] = lax.cond(
        refresh,
        lambda s: (inverse_4th_root(s["L"]), inverse_4th_root(s["R"])),
        lambda s: (s["PL"], s["PR"]),
        st,
    )
    return st["PL"] @ g @ st["PR"], st


def train_step(params, opt, rng, num, cat, label):
    def loss_fn(params):
        logits = FTTransformer().apply({"params": params}, num, cat, rngs={"dropout": rng})
        onehot = jax.nn.one_hot(label, CLASSES) * 0.9 + 0.1 / CLASSES
        return -(onehot * jax.nn.log_softmax(logits)).sum(-1).mean(), (
            logits.argmax(-1) == label
        ).mean()

    (loss, acc), grads = jax.value_and_grad(loss_fn, has_aux=True)(params)
    step = opt["step"] + 1
    refresh = step % ROOT_EVERY == 0
    lr = 1e-3 * jnp.minimum(1.0, step / 200)

    flat, treedef = jax.tree_util.tree_flatten_with_path(params)
    gs = jax.tree.leaves(grads)
    new_p, new_s = [], []
    for (path, p), g, st in zip(flat, gs, opt["leaves"]):
        st = dict(st)
        st["v"] = 0.99 * st["v"] + 0.01 * g * g
        graft = g / (jnp.sqrt(st["v"]) + 1e-8)
        if is_big(path, p):
            d, pre = shampoo_leaf(g, {k: st[k] for k in ("L", "R", "PL", "PR")}, refresh)
            st.update(pre)
            d = d * (jnp.linalg.norm(graft) / (jnp.linalg.norm(d) + 1e-12))
        else:
            d = graft
        st["m"] = 0.9 * st["m"] + d
        new_p.append(p - lr * (st["m"] + 1e-4 * p))
        new_s.append(st)
    params = jax.tree_util.tree_unflatten(treedef, new_p)
    return params, {"step": step, "leaves": new_s}, loss, acc


def make():
    S = jax.ShapeDtypeStruct
    num, cat, label = (
        S((BATCH, N_NUM), jnp.float32),
        S((BATCH, N_CAT), jnp.int32),
        S((BATCH,), jnp.int32),
    )
    key = S((2,), jnp.uint32)
    init = lambda k, n, c: FTTransformer().init({"params": k, "dropout": k}, n, c)["params"]
    params = jax.eval_shape(init, key, num, cat)
    leaves = []
    for path, p in jax.tree_util.tree_flatten_with_path(params)[0]:
        st = {"m": S(p.shape, p.dtype), "v": S(p.shape, p.dtype)}
        if is_big(path, p):
            l, r = S((p.shape[0],) * 2, p.dtype), S((p.shape[1],) * 2, p.dtype)
            st |= {"L": l, "R": r, "PL": l, "PR": r}
        leaves.append(st)
    return jax.jit(train_step, donate_argnums=(0, 1)), (
        params,
        {"step": S((), jnp.int32), "leaves": leaves},
        key,
        num,
        cat,
        label,
    )
