"""Interaction-network style mesh simulator (encode-process-decode) with segment_sum message passing."""

TRUTH = {
    "majors": {
        "encoder (node and edge MLPs)": 0.03,
        "processor: 10 message passing steps (edge_mlp, node_mlp)": 0.3,
        "decoder": 0.01,
        "backward": 0.66,
        "edge update (edge_mlp)": 0.7,
        "node update": 0.25,
        "segment_sum": 0.0,
        "Adam": 0.0,
    },
    "layers": [["message_passing_step", 10]],
    "optimizer": True,
    "grad": "all params",
    "loops": [],
    "tells_apart": [["edge_mlp", "node_mlp"], ["encoder", "decoder"]],
}

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

NODES, EDGES = 4096, 24576
NODE_FEATURES, EDGE_FEATURES, OUT = 12, 7, 3
LATENT = 128
STEPS = 10


class Graph(NamedTuple):
    nodes: jax.Array
    edges: jax.Array
    senders: jax.Array
    receivers: jax.Array


def init_mlp(key, sizes, layer_norm=True):
    keys = jax.random.split(key, len(sizes) - 1)
    layers = [
        (jax.random.normal(k, (a, b)) * (2.0 / a) ** 0.5, jnp.zeros(b))
        for k, a, b in zip(keys, sizes[:-1], sizes[1:])
    ]
    params = {"layers": layers}
    if layer_norm:
        params["ln"] = (jnp.ones(sizes[-1]), jnp.zeros(sizes[-1]))
    return params


def mlp(params, x):
    *hidden, last = params["layers"]
    for w, b in hidden:
        x = jax.nn.relu(x @ w + b)
    w, b = last
    x = x @ w + b
    if "ln" in params:
        scale, bias = params["ln"]
        x = (x - x.mean(-1, keepdims=True)) * jax.lax.rsqrt(x.var(-1, keepdims=True) + 1e-5)
        x = x * scale + bias
    return x


def init_params(key):
    ke, kn, kd, *ks = jax.random.split(key, 3 + 2 * STEPS)
    h = LATENT
    return {
        "encode_edges": init_mlp(ke, [EDGE_FEATURES, h, h]),
        "encode_nodes": init_mlp(kn, [NODE_FEATURES, h, h]),
        "processor": [
            {
                "edge_mlp": init_mlp(ks[2 * i], [3 * h, h, h]),
                "node_mlp": init_mlp(ks[2 * i + 1], [2 * h, h, h]),
            }
            for i in range(STEPS)
        ],
        "decode": init_mlp(kd, [h, h, OUT], layer_norm=False),
    }


def update_edges(params, graph):
    sent = graph.nodes[graph.senders]
    received = graph.nodes[graph.receivers]
    return mlp(params["edge_mlp"], jnp.concatenate([sent, received, graph.edges], axis=-1))


def update_nodes(params, graph, messages):
    agg = jax.ops.segment_sum(messages, graph.receivers, num_segments=NODES)
    return mlp(params["node_mlp"], jnp.concatenate([graph.nodes, agg], axis=-1))


def message_passing_step(params, graph):
    messages = update_edges(params, graph)
    nodes = update_nodes(params, graph, messages)
    return graph._replace(nodes=graph.nodes + nodes, edges=graph.edges + messages)


def encode(params, graph):
    return graph._replace(
        nodes=mlp(params["encode_nodes"], graph.nodes),
        edges=mlp(params["encode_edges"], graph.edges),
    )


def process(params, graph):
    for p in params["processor"]:
        graph = jax.checkpoint(message_passing_step)(p, graph)
    return graph


def decode(params, graph):
    return mlp(params["decode"], graph.nodes)


def forward(params, graph):
    return decode(params, process(params, encode(params, graph)))


def add_noise(key, graph, std=0.003):
    noise = std * jax.random.normal(key, graph.nodes[:, :3].shape)
    return graph._replace(nodes=graph.nodes.at[:, :3].add(noise)), noise


def loss_fn(params, key, graph, target, mask):
    graph, noise = add_noise(key, graph)
    acc = forward(params, graph)
    err = jnp.sum((acc - (target - noise)) ** 2, axis=-1)
    return jnp.sum(err * mask) / jnp.sum(mask)


optimizer = optax.adam(optax.exponential_decay(1e-4, 100_000, 0.1))


@jax.jit
def step(params, opt_state, key, graph, target, mask):
    loss, grads = jax.value_and_grad(loss_fn)(params, key, graph, target, mask)
    updates, opt_state = optimizer.update(grads, opt_state, params)
    return optax.apply_updates(params, updates), opt_state, loss


def make():
    params = jax.eval_shape(init_params, jax.random.key(0))
    opt_state = jax.eval_shape(optimizer.init, params)
    f = lambda *s: jax.ShapeDtypeStruct(s, jnp.float32)
    i = lambda *s: jax.ShapeDtypeStruct(s, jnp.int32)
    graph = Graph(f(NODES, NODE_FEATURES), f(EDGES, EDGE_FEATURES), i(EDGES), i(EDGES))
    key = jax.eval_shape(lambda: jax.random.key(0))
    return step, (params, opt_state, key, graph, f(NODES, OUT), f(NODES))
