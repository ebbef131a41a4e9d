TRUTH = """
# recsys_sharded — ranking model, row-sharded embedding tables (shard_map lookups in jit), mesh data 2 x model 4, no loops

train:
1. **lookups** (6: user, item, author, geo, hist_item, hist_author) each { all-gather of ids over model, take own rows, mask, reduce-scatter over model }
2. **model forward** { **history_encoder** (2 self-attention layers over 50), **target_attention** (DIN MLP 256-80-40-1 over 50), bottom tower, cross_net (3), **mmoe** { 6 experts, gates, 3 task towers } }
3. **task_losses** (click, like, watch)
4. **backward** { mmoe, cross_net, bottom, target_attention, history_encoder, **lookups backward**: all-gather of embedding gradients over model (transpose of psum_scatter), scatter-add into the dense gradient of each table shard, **psum over data of the dense table gradients** }
5. all-reduce of dense gradients over data+model (8)
6. **optimisers**: adam (dense), rowwise_adagrad (4 tables)

Loops: none (scatter may be expanded to a while loop on some back ends).
Collectives: forward 6 all-gather (ids, small) + 6 reduce-scatter (on CPU reduce-scatter or all-reduce+slice); backward up to 6 all-gather (gradients; hist ones 256*50*32... large) + all-reduce over data of table gradients (100000x32 f32 for user etc., 6 lookups -> 4 tables: large) + all-reduce dense.
Heaviest: in bytes: rowwise_adagrad + table gradients (684k/4 rows x 32 x 4B = 22 MB per shard, read/written several times, all-reduced over data), the scatter-adds of history gradients (1024*50 x 32 x 2). In FLOPs: history_encoder (50 x 64x64x12) and target_attention.
Names: "lookups", "history_encoder", "target_attention", "bottom", "cross_net", "mmoe", "task losses", "backward", "table gradients", "adam", "row-wise adagrad".

(Source has named_scope "embeddings" around 1; nothing else.)
"""
"""
Ranking model for a video feed: row-sharded id tables, history attention (target attention), MMoE with
three tasks.  2-D mesh: batch over ("data", "model") for the dense part, tables' rows over "model".
Lookup: every model-shard looks up the ids it owns for all ids of its data-row, then psum_scatter hands
each one its share of the batch.  Tables: row-wise adagrad; dense: adam.
"""
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

DATA, MODEL = 2, 4
BATCH = 2048
HIST = 50
DIM = 32
TABLES = {"user": 400_000, "item": 200_000, "author": 80_000, "geo": 4_096}
DENSE = 40
EXPERTS, TASKS = 6, 3


def lookup_local(table, ids):
    """table: this shard's rows; ids: [..] all ids of the data row (gathered over model)."""
    rows = table.shape[0]
    mine = ids - jax.lax.axis_index("model") * rows
    ok = (mine >= 0) & (mine < rows)
    vec = jnp.take(table, jnp.where(ok, mine, 0), axis=0)
    return jnp.where(ok[..., None], vec, 0.0)


def make_lookup(mesh):
    def body(table, ids):
        ids = jax.lax.all_gather(ids, "model", tiled=True)
        part = lookup_local(table, ids)
        return jax.lax.psum_scatter(part, "model", tiled=True)

    return jax.shard_map(
        body, mesh=mesh, in_specs=(P("model"), P(("data", "model"))), out_specs=P(("data", "model"))
    )


def dense_layer(p, x, act=jax.nn.relu):
    y = x @ p["w"] + p["b"]
    return y if act is None else act(y)


def tower(ps, x):
    for p in ps[:-1]:
        x = dense_layer(p, x)
    return dense_layer(ps[-1], x, None)


def target_attention(ps, query, hist, mask):
    q = jnp.broadcast_to(query[:, None], hist.shape)
    z = jnp.concatenate([q, hist, q - hist, q * hist], -1)
    score = tower(ps, z)[..., 0]
    score = jnp.where(mask, score, -1e9)
    w = jax.nn.softmax(score, -1)
    return jnp.einsum("bt,btd->bd", w, hist)


def history_encoder(p, h, mask):
    """two self attention layers over the watch history"""
    for l in p:
        q, k, v = (h @ l[n] for n in ("wq", "wk", "wv"))
        a = jnp.einsum("bqd,bkd->bqk", q, k) / np.sqrt(q.shape[-1])
        a = jax.nn.softmax(jnp.where(mask[:, None], a, -1e9), -1)
        h = h + (a @ v) @ l["wo"]
        h = h + jax.nn.relu(h @ l["w1"]) @ l["w2"]
    return h


def cross_net(ps, x0):
    x = x0
    for p in ps:
        x = x0 * ((x @ p["u"]) @ p["v"] + p["b"]) + x
    return x


def mmoe(p, x):
    h = jax.nn.relu(jnp.einsum("bd,edh->beh", x, p["experts_w1"]) + p["experts_b1"])
    h = jax.nn.relu(jnp.einsum("beh,eho->beo", h, p["experts_w2"]) + p["experts_b2"])
    gates = jax.nn.softmax(jnp.einsum("bd,tde->bte", x, p["gates"]), -1)
    mixed = jnp.einsum("bte,beo->bto", gates, h)
    return jnp.stack([tower(t, mixed[:, i])[:, 0] for i, t in enumerate(p["towers"])], -1)


def model(dense_params, emb, feats):
    mask = feats["hist_mask"]
    hist = jnp.concatenate([emb["hist_item"], emb["hist_author"]], -1)
    cand = jnp.concatenate([emb["item"], emb["author"]], -1)
    hist = history_encoder(dense_params["history"], hist, mask)
    interest = target_attention(dense_params["attention"], cand, hist, mask)
    bottom = tower(dense_params["bottom"], feats["dense"])
    x = jnp.concatenate([emb["user"], cand, emb["geo"], interest, bottom], -1)
    x = jnp.concatenate([x, cross_net(dense_params["cross"], x)], -1)
    return mmoe(dense_params["mmoe"], x)


def task_losses(logits, labels):
    click, like, watch = logits[:, 0], logits[:, 1], logits[:, 2]
    l_click = optax.sigmoid_binary_cross_entropy(click, labels[:, 0]).mean()
    l_like = optax.sigmoid_binary_cross_entropy(click + like, labels[:, 1]).mean()
    l_watch = jnp.mean(optax.huber_loss(watch, jnp.log1p(labels[:, 2])))
    return l_click + 0.5 * l_like + 0.3 * l_watch, (l_click, l_like, l_watch)


def init_dense(key):
    it = iter(jax.random.split(key, 80))
    w = lambda *s: jax.random.normal(next(it), s) / np.sqrt(s[-2])
    fc = lambda i, o: {"w": w(i, o), "b": jnp.zeros(o)}
    mlp = lambda *ds: [fc(a, b) for a, b in zip(ds, ds[1:])]
    hd, xd = 2 * DIM, DIM + 2 * DIM + DIM + 2 * DIM + 64
    return {
        "history": [
            {
                "wq": w(hd, hd),
                "wk": w(hd, hd),
                "wv": w(hd, hd),
                "wo": w(hd, hd),
                "w1": w(hd, 4 * hd),
                "w2": w(4 * hd, hd),
            }
            for _ in range(2)
        ],
        "attention": mlp(4 * hd, 80, 40, 1),
        "bottom": mlp(DENSE, 256, 64),
        "cross": [{"u": w(xd, 64), "v": w(64, xd), "b": jnp.zeros(xd)} for _ in range(3)],
        "mmoe": {
            "experts_w1": w(EXPERTS, 2 * xd, 256),
            "experts_b1": jnp.zeros((EXPERTS, 256)),
            "experts_w2": w(EXPERTS, 256, 128),
            "experts_b2": jnp.zeros((EXPERTS, 128)),
            "gates": w(TASKS, 2 * xd, EXPERTS),
            "towers": [mlp(128, 64, 1) for _ in range(TASKS)],
        },
    }


def build(devices=None):
    devices = np.array(jax.devices() if devices is None else devices)[:8]
    mesh = Mesh(devices.reshape(DATA, MODEL), ("data", "model"))
    lookup = make_lookup(mesh)
    opt = optax.adam(1e-3)

    def loss_fn(trainable, feats):
        tables, dense_params = trainable
        ids = feats["ids"]
        src = {
            "user": "user",
            "item": "item",
            "author": "author",
            "geo": "geo",
            "hist_item": "item",
            "hist_author": "author",
        }
        with jax.named_scope("embeddings"):
            emb = {k: lookup(tables[t], ids[k]) for k, t in src.items()}
        logits = model(dense_params, emb, feats)
        return task_losses(logits, feats["labels"])

    def rowwise_adagrad(table, acc, g, lr=0.02):
        acc = acc + jnp.mean(g * g, -1)
        return table - lr * g * jax.lax.rsqrt(acc + 1e-8)[:, None], acc

    @jax.jit
    def train(tables, accs, dense_params, opt_state, feats):
        (loss, parts), (gt, gd) = jax.value_and_grad(loss_fn, has_aux=True)(
            (tables, dense_params), feats
        )
        upd, opt_state = opt.update(gd, opt_state)
        dense_params = optax.apply_updates(dense_params, upd)
        new = {k: rowwise_adagrad(tables[k], accs[k], gt[k]) for k in tables}
        tables, accs = {k: v[0] for k, v in new.items()}, {k: v[1] for k, v in new.items()}
        return tables, accs, dense_params, opt_state, loss, parts

    S = lambda shape, dt, spec: jax.ShapeDtypeStruct(shape, dt, sharding=NamedSharding(mesh, spec))
    bat = P(("data", "model"))
    tables = {k: S((n, DIM), jnp.float32, P("model")) for k, n in TABLES.items()}
    accs = {k: S((n,), jnp.float32, P("model")) for k, n in TABLES.items()}
    dp = jax.eval_shape(init_dense, jax.ShapeDtypeStruct((2,), jnp.uint32))
    rep = lambda a: S(a.shape, a.dtype, P())
    ids = {k: S((BATCH,), jnp.int32, bat) for k in ("user", "item", "author", "geo")}
    ids |= {k: S((BATCH, HIST), jnp.int32, bat) for k in ("hist_item", "hist_author")}
    feats = {
        "ids": ids,
        "dense": S((BATCH, DENSE), jnp.float32, bat),
        "hist_mask": S((BATCH, HIST), jnp.bool_, bat),
        "labels": S((BATCH, TASKS), jnp.float32, bat),
    }
    return train, (
        tables,
        accs,
        jax.tree.map(rep, dp),
        jax.tree.map(rep, jax.eval_shape(opt.init, dp)),
        feats,
    )


MESH = {"device": 8}


def make(mesh):
    return build(list(mesh.devices.flat))
