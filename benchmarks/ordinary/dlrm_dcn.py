TRUTH = """
TOP-LEVEL, IN ORDER
- train_step: DLRM forward -> binary cross entropy -> backward -> optimizer in two parts (row-wise style adagrad on the embedding table, adam on the MLPs) -> metrics (loss, accuracy, calibration)
- forward: `bottom_mlp` on 13 dense features; `embedding_bag` for 26 sparse features (multi-hot of 4, mean pooling, one big concatenated table with offsets); `dot_interaction` of the 27 vectors; `cross_net` (3 DCN-v2 cross layers); `top_mlp` -> 1 logit
COUNTS
- bottom MLP 3 Dense (512, 256, 64), cross network 3 layers, top MLP 4 Dense (1024, 512, 256, 1); all unrolled
- 26 sparse features looked up in ONE gather (not 26 tables); 27*26/2 = 351 pairwise dot products
- no loop at all
INDEPENDENT
- bottom_mlp and embedding_bag are independent of each other until dot_interaction
- the adagrad update of the table and adam of the MLPs are independent of each other
COMMUNICATION
- mesh data=2, model=4: table row-sharded over 'model'; inside embedding_bag (shard_map) each device looks up the rows which it owns and the partial sums are psum'd over 'model'
- batch over data (for the MLPs: over data only); gradients all-reduced over data
SHARES
- cross_net and top_mlp do most of the FLOPs: top_mlp (415 -> 1024 -> 512 -> 256 -> 1) ~48%, cross_net ~43%, bottom MLP ~7%, interaction ~2%; embedding lookup has no FLOPs but most of the parameters (memory)
- forward ~1/3, backward ~2/3 of matmul FLOPs; adagrad over the whole (dense) table is elementwise
MUST NOT BE SHOWN
- no attention, no sequence model, no layer loop, no negative sampling, no softmax, no dropout, no batch norm
"""
# DLRM / DCN-v2 hybrid click model (Criteo shapes), row-sharded embeddings
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

MESH = {"data": 2, "model": 4}

BATCH, N_DENSE, N_SPARSE, HOT, EMB = 2048, 13, 26, 4, 64
TABLE_SIZES = [
    40000,
    39060,
    17295,
    7424,
    20265,
    3,
    7122,
    1543,
    63,
    40000,
    30000,
    30000,
    10,
    2209,
    11938,
    155,
    4,
    976,
    14,
    40000,
    40000,
    40000,
    30000,
    12972,
    108,
    36,
]
OFFSETS = np.concatenate([[0], np.cumsum(TABLE_SIZES)[:-1]]).astype(np.int32)
ROWS = int(-(-sum(TABLE_SIZES) // 1024) * 1024)


class MLP(nn.Module):
    sizes: tuple
    last_relu: bool = True

    @nn.compact
    def __call__(self, x):
        for i, s in enumerate(self.sizes):
            x = nn.Dense(s, name=f"fc{i}")(x)
            if i < len(self.sizes) - 1 or self.last_relu:
                x = nn.relu(x)
        return x


class CrossNet(nn.Module):
    layers: int = 3
    rank: int = 384

    @nn.compact
    def __call__(self, x0):
        x = x0
        for i in range(self.layers):
            v = nn.Dense(self.rank, use_bias=False, name=f"v{i}")(x)
            u = nn.Dense(x0.shape[-1], name=f"u{i}")(v)
            x = x0 * u + x
        return x


def dot_interaction(dense, sparse):
    feats = jnp.concatenate([dense[:, None], sparse], axis=1)  # B, 27, EMB
    z = jnp.einsum("bie,bje->bij", feats, feats)
    i, j = np.tril_indices(N_SPARSE + 1, -1)
    return z[:, i, j]


class DLRM(nn.Module):
    @nn.compact
    def __call__(self, dense, sparse):
        bottom = MLP((512, 256, EMB), name="bottom_mlp")(jnp.log1p(jnp.maximum(dense, 0)))
        inter = dot_interaction(bottom, sparse)
        x = jnp.concatenate([bottom, inter], -1)
        cross = CrossNet(name="cross_net")(x)
        return MLP((1024, 512, 256, 1), last_relu=False, name="top_mlp")(cross)[:, 0]


def embedding_bag(table, ids, mesh):
    """Mean of HOT rows per feature; ids [B, 26, HOT] local to the feature; table [ROWS, EMB] row-sharded over model."""

    def lookup(shard, ids):
        rows = shard.shape[0]
        local = ids + OFFSETS[:, None] - lax.axis_index("model") * rows
        mine = (local >= 0) & (local < rows)
        vecs = jnp.take(shard, jnp.where(mine, local, 0), axis=0)
        vecs = jnp.where(mine[..., None], vecs, 0.0)
        return lax.psum(vecs.mean(2), "model")

    return jax.shard_map(
        lookup, mesh=mesh, in_specs=(P("model", None), P("data")), out_specs=P("data")
    )(table, ids)


def bce(logits, labels):
    return optax.sigmoid_binary_cross_entropy(logits, labels).mean()


def make(mesh):
    model = DLRM()
    tx = optax.multi_transform(
        {"table": optax.adagrad(0.01), "net": optax.adam(1e-3)}, {"table": "table", "net": "net"}
    )

    def loss_fn(params, batch):
        emb = embedding_bag(params["table"], batch["sparse"], mesh)
        logits = model.apply({"params": params["net"]}, batch["dense"], emb)
        return bce(logits, batch["label"]), logits

    def train_step(params, opt_state, batch):
        (loss, logits), grads = jax.value_and_grad(loss_fn, has_aux=True)(params, batch)
        updates, opt_state = tx.update(grads, opt_state, params)
        params = optax.apply_updates(params, updates)
        p = jax.nn.sigmoid(logits)
        metrics = {
            "loss": loss,
            "accuracy": ((p > 0.5) == (batch["label"] > 0.5)).mean(),
            "calibration": p.mean() / jnp.maximum(batch["label"].mean(), 1e-6),
        }
        return params, opt_state, metrics

    def init(key):
        k1, k2 = jax.random.split(key)
        net = model.init(k1, jnp.zeros((1, N_DENSE)), jnp.zeros((1, N_SPARSE, EMB)))["params"]
        return {"table": jax.random.normal(k2, (ROWS, EMB)) * 0.01, "net": net}

    spec = lambda x: P("model", None) if x.shape == (ROWS, EMB) else P()
    place = lambda t: jax.tree.map(
        lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=NamedSharding(mesh, spec(x))), t
    )
    params = jax.eval_shape(init, jax.random.key(0))
    dp = NamedSharding(mesh, P("data"))
    batch = {
        "dense": jax.ShapeDtypeStruct((BATCH, N_DENSE), jnp.float32, sharding=dp),
        "sparse": jax.ShapeDtypeStruct((BATCH, N_SPARSE, HOT), jnp.int32, sharding=dp),
        "label": jax.ShapeDtypeStruct((BATCH,), jnp.float32, sharding=dp),
    }
    return train_step, (place(params), place(jax.eval_shape(tx.init, params)), batch)
