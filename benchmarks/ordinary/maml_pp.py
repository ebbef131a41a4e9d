TRUTH = """
TOP-LEVEL, IN ORDER
- meta_train_step: per task: inner loop adaptation on the support set (forward + gradient + SGD step, repeated) -> loss on the query set -> mean over tasks -> outer (meta) gradient through the inner steps -> all-reduce over devices -> Adam on both the initial weights and the per-layer learning rates
- network conv4: 4 x (conv 3x3, batch-statistics norm, relu, max-pool) -> linear classifier
COUNTS
- 3 inner steps, unrolled in Python (no loop in the program); each with a support forward+backward; multi-step loss: a query loss after EVERY inner step (3 query forwards), weighted (MAML++)
- 4 conv layers in each forward
- 32 meta-tasks: 8 devices x 4 tasks, vmapped (not looped)
- second order: the outer backward differentiates through the inner gradients
INDEPENDENT
- tasks are independent of each other until the mean
- the query forward after inner step k is independent of inner step k+1 (both only need the adapted weights of step k)
COMMUNICATION
- tasks sharded over 8 devices (shard_map); only the all-reduce of meta gradients and metrics at the end; nothing inside the inner loop
SHARES
- outer backward (through query losses and inner steps) is the largest part, ~2/3; inner support forward+grad ~20%; query forwards ~13%
- conv_1 (14x14, 32->32) does most; conv_0 (28x28) has only 1 input channel; the linear layer ~0
- Adam negligible
MUST NOT BE SHOWN
- no loop over inner steps, no first-order approximation, no running batch norm statistics, no dropout, no replay, no scan over layers
"""
"""MAML++ (multi step loss, learned per-layer per-step learning rates) on Omniglot-like 5-way tasks."""
from functools import partial

import jax
import jax.numpy as jnp
import optax
from jax import lax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

MESH = {"task": 8}
N_WAY, K_SHOT, K_QUERY, INNER_STEPS, FILTERS, TASKS = 5, 5, 10, 3, 32, 32


def init_net(key):
    params = {}
    cin = 1
    for i in range(4):
        key, k = jax.random.split(key)
        params[f"conv_{i}"] = {
            "w": jax.random.normal(k, (3, 3, cin, FILTERS)) * (2 / (9 * cin)) ** 0.5,
            "b": jnp.zeros(FILTERS),
            "gamma": jnp.ones(FILTERS),
            "beta": jnp.zeros(FILTERS),
        }
        cin = FILTERS
    key, k = jax.random.split(key)
    params["linear"] = {"w": jax.random.normal(k, (FILTERS, N_WAY)) * 0.1, "b": jnp.zeros(N_WAY)}
    return params


def conv_block(p, x):
    x = (
        lax.conv_general_dilated(
            x, p["w"], (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
        )
        + p["b"]
    )
    mean, var = x.mean((0, 1, 2)), x.var((0, 1, 2))  # transductive batch norm
    x = (x - mean) * lax.rsqrt(var + 1e-5) * p["gamma"] + p["beta"]
    x = jax.nn.relu(x)
    b, h, w, c = x.shape
    x = x[:, : h // 2 * 2, : w // 2 * 2].reshape(b, h // 2, 2, w // 2, 2, c)
    return x.max((2, 4))


def conv4(params, x):
    for i in range(4):
        x = conv_block(params[f"conv_{i}"], x)
    x = x.mean((1, 2))
    return x @ params["linear"]["w"] + params["linear"]["b"]


def cross_entropy(params, x, y):
    logits = conv4(params, x)
    loss = optax.softmax_cross_entropy_with_integer_labels(logits, y).mean()
    return loss, (logits.argmax(-1) == y).mean()


def inner_step(params, lrs, step, support):
    grads, _ = jax.grad(cross_entropy, has_aux=True)(params, *support)
    return {
        name: jax.tree.map(lambda p, g: p - lrs[name][step] * g, params[name], grads[name])
        for name in params
    }


def task_loss(meta, loss_weights, support, query):
    fast = meta["init"]
    total = 0.0
    for step in range(INNER_STEPS):
        fast = inner_step(fast, meta["lrs"], step, support)
        q_loss, q_acc = cross_entropy(fast, *query)
        total += loss_weights[step] * q_loss
    return total, q_acc


def init_meta(key):
    net = init_net(key)
    return {"init": net, "lrs": {name: 0.1 * jnp.ones(INNER_STEPS) for name in net}}


def make(mesh):
    tx = optax.chain(optax.clip(10.0), optax.adam(optax.cosine_decay_schedule(1e-3, 50_000)))

    def meta_loss(meta, weights, tasks):
        losses, accs = jax.vmap(partial(task_loss, meta, weights))(*tasks)
        return losses.mean(), accs.mean()

    @partial(
        jax.shard_map, mesh=mesh, in_specs=(P(), P(), P("task")), out_specs=P(), check_vma=False
    )
    def meta_grad(meta, weights, tasks):
        (loss, acc), grads = jax.value_and_grad(meta_loss, has_aux=True)(meta, weights, tasks)
        return lax.pmean((loss, acc, grads), "task")

    def meta_train_step(meta, opt_state, weights, tasks):
        loss, acc, grads = meta_grad(meta, weights, tasks)
        updates, opt_state = tx.update(grads, opt_state, meta)
        return optax.apply_updates(meta, updates), opt_state, {"loss": loss, "query_acc": acc}

    rep, sh = NamedSharding(mesh, P()), NamedSharding(mesh, P("task"))
    S = lambda shape, dt, s=sh: jax.ShapeDtypeStruct(shape, dt, sharding=s)
    tasks = tuple(
        (S((TASKS, N_WAY * k, 28, 28, 1), jnp.float32), S((TASKS, N_WAY * k), jnp.int32))
        for k in (K_SHOT, K_QUERY)
    )
    meta = jax.eval_shape(init_meta, jax.random.key(0))
    rs = lambda t: jax.tree.map(lambda x: S(x.shape, x.dtype, rep), t)
    return meta_train_step, (
        rs(meta),
        rs(jax.eval_shape(tx.init, meta)),
        S((INNER_STEPS,), jnp.float32, rep),
        tasks,
    )
