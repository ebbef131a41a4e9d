TRUTH = """
TOP-LEVEL, IN ORDER
- train_step: `random_walk_pe` (positional encoding from the adjacency) -> GPS network forward -> mean pool over real nodes -> head MLP -> MAE loss -> backward -> adamw
- network: `node_encoder` (atom embedding) + `pe_encoder` concatenated, `edge_encoder` (bond embedding), 5 GPSLayers gps_0..4, graph pooling, `head` (3 Dense)
- GPSLayer: local GINE message passing and global self-attention side by side, their sum, then MLP with residual
COUNTS
- 5 GPSLayers unrolled (no layer loop)
- random walk loop: 16 steps (scan), matrix power of [N,N] per graph; no gradient goes through it, so no backward loop for it; it is the author's only loop (loops of the random generator or of scatter do not count)
- 32 graphs of 64 padded nodes and 160 padded edges each
INDEPENDENT
- in every GPSLayer: `local` (GINE) and `attn` (global) branches are independent, joined by addition
- random_walk_pe, node_encoder and edge_encoder are independent of each other
SHARES
- the 5 GPS layers do nearly everything except the RWPE loop: layers ~ 97%, RWPE ~3% (16 matmuls of 64^3 for 32 graphs)
- in a layer (width 96): attention ~38%, GINE MLP + edge projection ~33%, FFN ~29%
- forward ~1/3, backward ~2/3; optimizer none
MUST NOT BE SHOWN
- no convolution, no eigendecomposition, no RNN, no class token, no batch norm, no sampling of neighbours, no collectives
"""
"""GraphGPS (Rampasek et al. 2022) on padded molecule batches (ZINC like), flax.linen"""
from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax

G, N, E, W, K = 32, 64, 160, 96, 16


class GraphBatch(NamedTuple):
    atoms: jax.Array  # [G, N]
    node_mask: jax.Array  # [G, N]
    senders: jax.Array  # [G, E]
    receivers: jax.Array  # [G, E]
    bonds: jax.Array  # [G, E]
    edge_mask: jax.Array  # [G, E]
    target: jax.Array  # [G]


def random_walk_pe(batch, steps=K):
    """diag of (D^-1 A)^k for k = 1..steps"""

    def single(s, r, m):
        adj = jnp.zeros((N, N)).at[s, r].add(m)
        rw = adj / jnp.maximum(adj.sum(1, keepdims=True), 1.0)

        def body(p, _):
            return p @ rw, jnp.diag(p)

        _, diags = jax.lax.scan(body, rw, None, length=steps)
        return diags.T

    return jax.vmap(single)(batch.senders, batch.receivers, batch.edge_mask)


class GINE(nn.Module):
    @nn.compact
    def __call__(self, x, e, batch):
        e = nn.Dense(W, name="edge_proj")(e)

        def aggregate(x, e, s, r, m):
            msg = nn.relu(x[s] + e) * m[:, None]
            return jax.ops.segment_sum(msg, r, num_segments=N)

        agg = jax.vmap(aggregate)(x, e, batch.senders, batch.receivers, batch.edge_mask)
        eps = self.param("eps", nn.initializers.zeros, ())
        h = (1 + eps) * x + agg
        h = nn.relu(nn.Dense(W, name="mlp_0")(h))
        return nn.Dense(W, name="mlp_1")(h)


class GlobalAttention(nn.Module):
    heads: int = 4

    @nn.compact
    def __call__(self, x, mask):
        d = W // self.heads
        q = nn.DenseGeneral((self.heads, d), name="q")(x)
        k = nn.DenseGeneral((self.heads, d), name="k")(x)
        v = nn.DenseGeneral((self.heads, d), name="v")(x)
        logits = jnp.einsum("gqhd,gkhd->ghqk", q, k) / jnp.sqrt(d)
        logits = jnp.where(mask[:, None, None, :] > 0, logits, -1e9)
        out = jnp.einsum("ghqk,gkhd->gqhd", nn.softmax(logits), v)
        return nn.DenseGeneral(W, axis=(-2, -1), name="o")(out)


class GPSLayer(nn.Module):
    dropout: float = 0.1

    @nn.compact
    def __call__(self, x, e, batch, train):
        drop = nn.Dropout(self.dropout, deterministic=not train)
        h_local = nn.LayerNorm(name="norm_local")(x + drop(GINE(name="local")(x, e, batch)))
        h_attn = nn.LayerNorm(name="norm_attn")(
            x + drop(GlobalAttention(name="attn")(x, batch.node_mask))
        )
        h = h_local + h_attn
        y = nn.Dense(2 * W, name="ff_0")(h)
        y = nn.Dense(W, name="ff_1")(drop(nn.relu(y)))
        return nn.LayerNorm(name="norm_ff")(h + drop(y)) * batch.node_mask[..., None]


class GPS(nn.Module):
    layers: int = 5

    @nn.compact
    def __call__(self, batch, pe, train=True):
        x = nn.Embed(28, W - 16, name="node_encoder")(batch.atoms)
        p = nn.Dense(16, name="pe_encoder")(pe)
        x = jnp.concatenate([x, p], -1) * batch.node_mask[..., None]
        e = nn.Embed(4, W, name="edge_encoder")(batch.bonds)
        for i in range(self.layers):
            x = GPSLayer(name=f"gps_{i}")(x, e, batch, train)
        pooled = x.sum(1) / jnp.maximum(batch.node_mask.sum(1, keepdims=True), 1)
        h = nn.relu(nn.Dense(W // 2, name="head_0")(pooled))
        h = nn.relu(nn.Dense(W // 4, name="head_1")(h))
        return nn.Dense(1, name="head_2")(h)[:, 0]


def make():
    model = GPS()
    schedule = optax.warmup_cosine_decay_schedule(0.0, 1e-3, 50 * 313, 2000 * 313)
    tx = optax.adamw(schedule, weight_decay=1e-5)

    def loss_fn(params, batch, pe, key):
        pred = model.apply(params, batch, pe, rngs={"dropout": key})
        return jnp.abs(pred - batch.target).mean()

    def train_step(params, opt_state, batch, key):
        pe = random_walk_pe(batch)
        loss, grads = jax.value_and_grad(loss_fn)(params, batch, pe, key)
        updates, opt_state = tx.update(grads, opt_state, params)
        params = optax.apply_updates(params, updates)
        return params, opt_state, loss

    S = jax.ShapeDtypeStruct
    f, i = jnp.float32, jnp.int32
    batch = GraphBatch(
        S((G, N), i),
        S((G, N), f),
        S((G, E), i),
        S((G, E), i),
        S((G, E), i),
        S((G, E), f),
        S((G,), f),
    )
    key = jax.random.key(0)
    params = jax.eval_shape(
        lambda k, b: model.init({"params": k, "dropout": k}, b, jnp.zeros((G, N, K))), key, batch
    )
    return train_step, (params, jax.eval_shape(tx.init, params), batch, key)
