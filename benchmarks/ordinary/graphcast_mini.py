TRUTH = """
# graphcast_mini - encode-process-decode weather GNN, 2-step autoregressive training; flax linen + optax, mesh batch=4 x edge=2 (jit)

1. Order: **forecast steps: loop x2 (rematerialised)** { embed grid, mesh nodes and the three edge sets -> **grid2mesh** (16384 edges), grid MLP -> **processor: 8 interaction networks, written out** (20480 edges, 2562 nodes) -> **mesh2grid** (24576 edges) -> output MLP, residual to state -> area- and level-weighted squared error } -> **backward: loop x2 reversed** { recompute, backward through the same parts } -> clip 32, AdamW with warm-up cosine.
2. One interaction network: gather senders' and receivers' nodes to the edges -> **edge MLP** (768 -> 256 -> 256) -> segment sum to receivers -> **node MLP** (512 -> 256 -> 256) -> residuals.
3. Work ~4.0 TF per step over 8 devices: forward 25%, recompute 25%, backward 50%. Processor ~75%, decoder ~14%, encoder ~11%. Edge MLPs 85%, node MLPs 10%. Optimizer 0%.
4. Collectives: all-reduce over "edge" after every segment sum (10 per forecast step forward, the same in recompute), in backward for gradients of gathered nodes; parameter gradients reduced over all devices. None over "batch" in forward.
5. First picture: x2 { embed -> grid2mesh -> processor x8 -> mesh2grid -> output/loss } -> backward x2 { recompute, backward } -> AdamW.
6. Arrows: state and previous state around the loop; graphs (indices) constant into all; saved states to backward; forcing/target per step.
7. Should not stand out: broadcasts, layer norms, concatenations, index handling, edge-feature embeddings (constant over the loop: may be hoisted), global norm.
8. Misleading: rollout x2 as 2 layers; the 8 processor layers must be folded as x8; edge=2 and rollout 2 are different twos; scatter-adds in backward come from gathers (they are not message aggregation).
"""

"""Small GraphCast: encode-process-decode on an icosahedral mesh, 2-step autoregressive loss.

mesh axes: "batch" for the samples, "edge" for the edges of the graphs (nodes are replicated there).
"""
import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

MESH = {"batch": 4, "edge": 2}

NLAT, NLON, CHANNELS, FORCINGS = 64, 128, 48, 6
GRID_NODES = NLAT * NLON
MESH_NODES = 2562
MESH_EDGES, G2M_EDGES, M2G_EDGES = 20480, 16384, 3 * GRID_NODES
LATENT, PROCESSOR_LAYERS = 256, 8
BATCH, ROLLOUT = 4, 2


def shard_edges(x):
    return jax.lax.with_sharding_constraint(x, P("batch", "edge", None))


def shard_nodes(x):
    return jax.lax.with_sharding_constraint(x, P("batch", None, None))


class MLP(nn.Module):
    """two dense layers, swish, layer norm"""

    out: int = LATENT
    norm: bool = True

    @nn.compact
    def __call__(self, *parts):
        x = jnp.concatenate(parts, -1)
        x = nn.swish(nn.Dense(LATENT, dtype=jnp.bfloat16)(x))
        x = nn.Dense(self.out, dtype=jnp.bfloat16)(x)
        return nn.LayerNorm(dtype=jnp.bfloat16)(x) if self.norm else x


def aggregate(messages, receivers, n):
    return shard_nodes(jax.vmap(lambda m: jax.ops.segment_sum(m, receivers, n))(messages))


class InteractionNetwork(nn.Module):
    @nn.compact
    def __call__(self, senders_nodes, receivers_nodes, edges, graph):
        s, r = graph["senders"], graph["receivers"]
        messages = shard_edges(
            MLP(name="edge_mlp")(edges, senders_nodes[:, s], receivers_nodes[:, r])
        )
        total = aggregate(messages, r, receivers_nodes.shape[1])
        new_nodes = MLP(name="node_mlp")(receivers_nodes, total)
        return receivers_nodes + new_nodes, edges + messages


class GraphCast(nn.Module):
    @nn.compact
    def __call__(self, state, previous, forcing, graphs):
        b = state.shape[0]
        embed = lambda name, g: shard_edges(
            jnp.broadcast_to(
                MLP(name=name)(g["features"])[None], (b, g["features"].shape[0], LATENT)
            )
        )
        static = jnp.broadcast_to(
            graphs["grid_static"][None], (b, GRID_NODES, graphs["grid_static"].shape[-1])
        )
        grid = shard_nodes(MLP(name="embed_grid")(state, previous, forcing, static))
        mesh = jnp.broadcast_to(
            MLP(name="embed_mesh")(graphs["mesh_static"])[None], (b, MESH_NODES, LATENT)
        )

        # encoder: grid -> mesh
        mesh_in, _ = InteractionNetwork(name="grid2mesh")(
            grid, mesh, embed("embed_g2m", graphs["g2m"]), graphs["g2m"]
        )
        grid = grid + MLP(name="grid_mlp")(grid)

        # processor on the mesh
        edges = embed("embed_mesh_edges", graphs["mesh"])
        mesh = mesh_in
        for i in range(PROCESSOR_LAYERS):
            mesh, edges = InteractionNetwork(name=f"processor_{i}")(
                mesh, mesh, edges, graphs["mesh"]
            )

        # decoder: mesh -> grid
        grid, _ = InteractionNetwork(name="mesh2grid")(
            mesh, grid, embed("embed_m2g", graphs["m2g"]), graphs["m2g"]
        )
        delta = MLP(out=CHANNELS, norm=False, name="output")(grid)
        return state + delta.astype(jnp.float32)


def rollout_loss(params, batch, graphs):
    @jax.checkpoint
    def advance(carry, inputs):
        previous, state = carry
        forcing, target = inputs
        new = GraphCast().apply(params, state, previous, forcing, graphs)
        error = jnp.square(new - target) * graphs["area"][:, None] * graphs["level_weight"]
        return (state, new), error.mean()

    time_major = lambda x: x.swapaxes(0, 1)
    start = (batch["previous"], batch["state"])
    _, losses = jax.lax.scan(
        advance, start, (time_major(batch["forcing"]), time_major(batch["target"]))
    )
    return losses.mean(), losses


def optimizer():
    schedule = optax.warmup_cosine_decay_schedule(0.0, 1e-3, 1000, 300_000)
    return optax.chain(
        optax.clip_by_global_norm(32.0), optax.adamw(schedule, b2=0.95, weight_decay=0.1)
    )


def train_step(params, opt_state, batch, graphs):
    (loss, losses), grads = jax.value_and_grad(rollout_loss, has_aux=True)(params, batch, graphs)
    updates, opt_state = optimizer().update(grads, opt_state, params)
    return (
        optax.apply_updates(params, updates),
        opt_state,
        {"loss": loss, "per_step": losses, "gnorm": optax.global_norm(grads)},
    )


def make(mesh):
    def S(shape, spec=P(), dtype=jnp.float32):
        return jax.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(mesh, spec))

    def graph(edges):
        e = P("edge")
        return {
            "senders": S((edges,), e, jnp.int32),
            "receivers": S((edges,), e, jnp.int32),
            "features": S((edges, 4), e),
        }

    graphs = {
        "g2m": graph(G2M_EDGES),
        "mesh": graph(MESH_EDGES),
        "m2g": graph(M2G_EDGES),
        "grid_static": S((GRID_NODES, 8)),
        "mesh_static": S((MESH_NODES, 3)),
        "area": S((GRID_NODES,)),
        "level_weight": S((CHANNELS,)),
    }
    b = P("batch")
    batch = {
        "previous": S((BATCH, GRID_NODES, CHANNELS), b),
        "state": S((BATCH, GRID_NODES, CHANNELS), b),
        "forcing": S((BATCH, ROLLOUT, GRID_NODES, FORCINGS), b),
        "target": S((BATCH, ROLLOUT, GRID_NODES, CHANNELS), b),
    }
    with jax.sharding.set_mesh(mesh):
        params = jax.eval_shape(
            GraphCast().init,
            jax.ShapeDtypeStruct((2,), jnp.uint32),
            batch["state"],
            batch["state"],
            jax.ShapeDtypeStruct((BATCH, GRID_NODES, FORCINGS), jnp.float32),
            graphs,
        )
    opt_state = jax.eval_shape(optimizer().init, params)
    replicated = lambda t: jax.tree.map(lambda x: S(x.shape, P(), x.dtype), t)

    def step(*args):
        with jax.sharding.use_abstract_mesh(mesh.abstract_mesh):
            return train_step(*args)

    return jax.jit(step, donate_argnums=(0, 1)), (
        replicated(params),
        replicated(opt_state),
        batch,
        graphs,
    )
