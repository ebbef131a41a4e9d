"""MAML few-shot image classification: inner SGD steps in a scan, vmapped over tasks, outer Adam (second order)."""

TRUTH = {
    "majors": {
        "inner loop: inner_step x5 (convnet on support, fwd+bwd)": 0.3,
        "query loss (convnet on query)": 0.15,
        "outer backward through the inner loop (second order)": 0.55,
        "outer Adam": 0.0,
    },
    "layers": [["conv_block", 4]],
    "optimizer": True,
    "grad": "meta params, through inner grads of task params (and learned per-layer inner rates)",
    "loops": [["inner_step scan", 5], ["its backward", 5]],
    "tells_apart": [["support", "query"], ["inner grad", "outer grad"]],
}

import jax
import jax.numpy as jnp
import optax

WAYS, SHOTS, QUERIES = 5, 5, 15
IMAGE, CHANNELS = 32, 64
TASKS = 4
INNER_STEPS = 5


def init_conv_block(key, cin, cout):
    return {
        "w": jax.random.normal(key, (3, 3, cin, cout)) * (2 / (9 * cin)) ** 0.5,
        "b": jnp.zeros(cout),
        "scale": jnp.ones(cout),
        "offset": jnp.zeros(cout),
    }


def conv_block(p, x):
    x = (
        jax.lax.conv_general_dilated(
            x, p["w"], (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
        )
        + p["b"]
    )
    mu = x.mean(axis=(0, 1, 2))
    var = x.var(axis=(0, 1, 2))
    x = (x - mu) * jax.lax.rsqrt(var + 1e-5) * p["scale"] + p["offset"]
    x = jax.nn.relu(x)
    b, h, w, c = x.shape
    return x.reshape(b, h // 2, 2, w // 2, 2, c).mean(axis=(2, 4))


def init_params(key):
    ks = jax.random.split(key, 5)
    blocks = [init_conv_block(ks[i], 3 if i == 0 else CHANNELS, CHANNELS) for i in range(4)]
    feat = (IMAGE // 16) ** 2 * CHANNELS
    net = {
        "blocks": blocks,
        "out": {"w": jax.random.normal(ks[4], (feat, WAYS)) * feat**-0.5, "b": jnp.zeros(WAYS)},
    }
    rates = jax.tree.map(lambda _: jnp.float32(0.01), net)
    return {"net": net, "rates": rates}


def convnet(net, images):
    x = images
    for p in net["blocks"]:
        x = conv_block(p, x)
    x = x.reshape(x.shape[0], -1)
    return x @ net["out"]["w"] + net["out"]["b"]


def task_loss(net, images, labels):
    logits = convnet(net, images)
    loss = optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()
    acc = (logits.argmax(-1) == labels).mean()
    return loss, acc


def adapt(meta, support):
    """Inner loop: INNER_STEPS of SGD on the support set."""

    def inner_step(net, _):
        (loss, _), grads = jax.value_and_grad(task_loss, has_aux=True)(net, *support)
        net = jax.tree.map(lambda p, g, r: p - r * g, net, grads, meta["rates"])
        return net, loss

    return jax.lax.scan(inner_step, meta["net"], None, length=INNER_STEPS)


def meta_task_loss(meta, support, query):
    adapted, inner_losses = adapt(meta, support)
    loss, acc = task_loss(adapted, *query)
    return loss, (acc, inner_losses)


def meta_loss(meta, batch):
    support = (batch["support_x"], batch["support_y"])
    query = (batch["query_x"], batch["query_y"])
    losses, aux = jax.vmap(meta_task_loss, in_axes=(None, 0, 0))(meta, support, query)
    acc, inner = aux
    return losses.mean(), (acc.mean(), inner.mean(0))


optimizer = optax.chain(optax.clip(10.0), optax.adam(optax.cosine_decay_schedule(1e-3, 60_000)))


@jax.jit
def meta_step(meta, opt_state, batch):
    (loss, (acc, inner)), grads = jax.value_and_grad(meta_loss, has_aux=True)(meta, batch)
    updates, opt_state = optimizer.update(grads, opt_state, meta)
    return (
        optax.apply_updates(meta, updates),
        opt_state,
        {"loss": loss, "accuracy": acc, "inner": inner},
    )


def make():
    meta = jax.eval_shape(init_params, jax.random.key(0))
    opt_state = jax.eval_shape(optimizer.init, meta)
    f = lambda n: jax.ShapeDtypeStruct((TASKS, WAYS * n, IMAGE, IMAGE, 3), jnp.float32)
    i = lambda n: jax.ShapeDtypeStruct((TASKS, WAYS * n), jnp.int32)
    batch = {
        "support_x": f(SHOTS),
        "support_y": i(SHOTS),
        "query_x": f(QUERIES),
        "query_y": i(QUERIES),
    }
    return meta_step, (meta, opt_state, batch)
