TRUTH = """
# muon_nanogpt - 124M GPT pretraining step with the Muon optimiser; plain JAX, explicit sharding data 8, 4 accumulated micro batches, remat

1. Order: **micro-batch loop x4** { embedding + norm; **12 blocks (loop x12)** { mix with x0; norm, q/k/v, QK-norm, rope, causal attention over 1024 (6 heads of 128), out projection; norm, MLP 768-3072-768 relu^2 }; head 50304 with tanh soft-cap; cross entropy; backward: head, **12 blocks reversed (loop x12: recompute + backward)**, embedding scatter; add to the gradient sum } -> mean -> **Muon**: momentum + Nesterov, two batches (48 matrices 768x768; 24 matrices 768x3072), each shared over the 8 devices, **Newton-Schulz 5 iterations (unrolled; 3 matmuls each)**, gathered back, weights updated -> **Adam** for embedding, head and the mix scalars.
2. Work ~270 TF global (262144 tokens) with remat: blocks 75% (forward 1/4, recompute 1/4, backward 1/2; MLP 60%, projections 30%, scores/values 10-15%), head 22% (fwd 1/3, bwd 2/3), Newton-Schulz ~0.7% (1.6 TF: 40% square, 60% rectangular). Embedding ~0.
3. Loops: micro batch x4, containing layer forward x12 and layer backward x12. Newton-Schulz is unrolled (5) for both batches.
4. Device axes: batch on data (8), parameters replicated: gradient all-reduce inside the backward layer loop (or once per micro batch / after; head and embedding once per micro batch); Muon: slices (no communication, or all-to-all) to 6 + 3 matrices per device, **all-gather** of the orthogonalised updates; scalar all-reduce for the loss.
5. First picture: [x4: embed -> blocks x12 -> head + loss -> backward head -> backward blocks x12 -> accumulate] -> Muon (momentum, Newton-Schulz x5, all-gather, update) + Adam (embedding, head).
6. Arrows: gradient sum around the micro-batch loop; x0 into every block (its gradient accumulates around the backward loop); momentum; parameters constant in the loop.
7. Should not stand out: rope tables, mask, one-hot for the label (a select/reduce), casts f32->bf16, schedule.
8. Typically wrong: Newton-Schulz matmuls taken for model work or not named; optimiser drawn as element-wise only; the x4 loop drawn as layers; recompute taken as a second forward pass; one-hot x 50304 drawn as a big stage.
"""

"""nanoGPT speedrun style pretraining: 124M GPT with Muon (Newton-Schulz orthogonalised momentum) for the
matrices and Adam for embedding / head. Plain JAX, explicit sharding (sharding in types) over 8 chips;
4 micro batches are accumulated, the orthogonalisation is shared out over the chips."""
import jax
import jax.numpy as jnp
from jax.sharding import AxisType, Mesh, NamedSharding, reshard
from jax.sharding import PartitionSpec as P

MESH = {"data": 8}
V, D, L, H, HD, F = 50304, 768, 12, 6, 128, 3072
SEQ, MICRO, ACC = 1024, 64, 4
NS_STEPS = 5
bf = jnp.bfloat16


def norm(x):
    x32 = x.astype(jnp.float32)
    return (x32 * jax.lax.rsqrt(jnp.square(x32).mean(-1, keepdims=True) + 1e-6)).astype(x.dtype)


def rope_tables():
    f = (1 / 1024) ** (jnp.arange(HD // 4) / (HD // 4 - 1))
    f = jnp.concatenate([f, jnp.zeros(HD // 4)])
    th = jnp.arange(SEQ)[:, None] * f
    return jnp.cos(th)[:, None].astype(bf), jnp.sin(th)[:, None].astype(bf)


def rotate(x, cs):
    c, s = cs
    a, b = jnp.split(x, 2, -1)
    return jnp.concatenate([a * c + b * s, b * c - a * s], -1)


def attention(x, w, cs, mask):
    q, k, v = (
        jnp.einsum("btd,de->bte", x, w[n].astype(bf)).reshape(*x.shape[:2], H, HD) for n in "qkv"
    )
    q, k = rotate(norm(q), cs), rotate(norm(k), cs)
    s = jnp.einsum("bthd,bshd->bhts", q, k).astype(jnp.float32) * 0.12
    p = jax.nn.softmax(jnp.where(mask, s, -1e30)).astype(bf)
    o = jnp.einsum("bhts,bshd->bthd", p, v).reshape(x.shape)
    return jnp.einsum("btd,de->bte", o, w["o"].astype(bf))


def mlp(x, w):
    h = jnp.einsum("btd,df->btf", x, w["up"].astype(bf))
    return jnp.einsum("btf,fd->btd", jnp.square(jax.nn.relu(h)), w["down"].astype(bf))


def loss_fn(p, toks):
    inp, lab = toks[:, :-1], toks[:, 1:]
    cs = rope_tables()
    mask = jnp.tril(jnp.ones((SEQ, SEQ), bool))
    x = x0 = norm(p["embed"].astype(bf).at[inp].get(out_sharding=P("data", None, None)))

    @jax.checkpoint
    def block(x, w):
        x = w["mix"][0].astype(bf) * x + w["mix"][1].astype(bf) * x0
        x = x + attention(norm(x), w, cs, mask)
        return x + mlp(norm(x), w), None

    x, _ = jax.lax.scan(block, x, p["blocks"])
    z = jnp.einsum("btd,vd->btv", norm(x), p["head"].astype(bf)).astype(jnp.float32)
    z = 30 * jnp.tanh(z / 30)
    hit = (z * jax.nn.one_hot(lab, V)).sum(-1)
    return (jax.nn.logsumexp(z, -1) - hit).mean()


def newton_schulz(g):
    """g (n, r, c) with r <= c: quintic iteration towards U V^T"""
    a, b, c = 3.4445, -4.7750, 2.0315
    x = g.astype(bf)
    x = x / (jnp.sqrt(jnp.square(x.astype(jnp.float32)).sum((1, 2), keepdims=True)) + 1e-7).astype(
        bf
    )
    for _ in range(NS_STEPS):
        A = jnp.einsum("nrc,nsc->nrs", x, x)
        B = b * A + c * jnp.einsum("nrs,nst->nrt", A, A)
        x = a * x + jnp.einsum("nrs,nsc->nrc", B, x)
    return x


def orthogonalise(u):
    """u: dict of stacked matrices (L, ., .). Square ones (48) and rectangular ones (24) as two batches."""
    sq = jnp.concatenate([u[n] for n in "qkvo"])
    re = jnp.concatenate([u["up"], u["down"].transpose(0, 2, 1)])
    sq, re = (newton_schulz(reshard(m, P("data", None, None))) for m in (sq, re))
    sq, re = reshard(sq, P()), reshard(re, P())
    out = dict(zip("qkvo", jnp.split(sq, 4)))
    out["up"], down = jnp.split(re, 2)
    out["down"] = down.transpose(0, 2, 1)
    return out


def adam(g, m, v, t, lr, b1=0.8, b2=0.95):
    m = b1 * m + (1 - b1) * g
    v = b2 * v + (1 - b2) * g * g
    return -lr * (m / (1 - b1**t)) / (jnp.sqrt(v / (1 - b2**t)) + 1e-10), m, v


def train_step(p, opt, toks):
    def micro(acc, tk):
        l, g = jax.value_and_grad(loss_fn)(p, tk)
        return jax.tree.map(jnp.add, acc, g), l

    g, ls = jax.lax.scan(micro, jax.tree.map(jnp.zeros_like, p), toks)
    g = jax.tree.map(lambda x: x / ACC, g)

    t = opt["t"] + 1
    decay = jnp.clip((6000 - t) / 1800, 0.1, 1.0)
    mu = 0.85 + 0.1 * jnp.minimum(t / 300, 1.0)

    mats = [k for k in p["blocks"] if k != "mix"]
    gb = g["blocks"]
    buf = {k: mu * opt["buf"][k] + gb[k] for k in mats}
    o = orthogonalise({k: gb[k] + mu * buf[k] for k in mats})  # Nesterov
    scale = {k: max(1, p["blocks"][k].shape[1] / p["blocks"][k].shape[2]) ** 0.5 for k in mats}
    new = {k: p["blocks"][k] - 0.02 * decay * scale[k] * o[k].astype(jnp.float32) for k in mats}

    new_m, new_v, rest = {}, {}, {}
    for n, lr in (("embed", 0.3), ("head", 0.004), ("mix", 0.02)):
        w, gr = (p["blocks"][n], gb[n]) if n == "mix" else (p[n], g[n])
        d, new_m[n], new_v[n] = adam(gr, opt["m"][n], opt["v"][n], t, lr * decay)
        rest[n] = w + d
    p = {"embed": rest["embed"], "head": rest["head"], "blocks": {**new, "mix": rest["mix"]}}
    return p, {"t": t, "buf": buf, "m": new_m, "v": new_v}, ls.mean()


def make(mesh):
    mesh = Mesh(mesh.devices, mesh.axis_names, axis_types=(AxisType.Explicit,))
    jax.set_mesh(mesh)
    S = lambda *s, t=jnp.float32, spec=P(): jax.ShapeDtypeStruct(
        s, t, sharding=NamedSharding(mesh, spec)
    )
    mats = {**{n: S(L, D, D) for n in "qkvo"}, "up": S(L, D, F), "down": S(L, F, D)}
    p = {"embed": S(V, D), "head": S(V, D), "blocks": {**mats, "mix": S(L, 2)}}
    ad = {"embed": S(V, D), "head": S(V, D), "mix": S(L, 2)}
    opt = {"t": S(), "buf": mats, "m": ad, "v": ad}
    return jax.jit(train_step, donate_argnums=(0, 1)), (
        p,
        opt,
        S(ACC, MICRO, SEQ + 1, t=jnp.int32, spec=P(None, "data")),
    )
