"""MuZero training loss: representation once, then K steps of dynamics + prediction in a scan."""

TRUTH = {
    "majors": {
        "representation (res tower)": 0.2,
        "dynamics x5 in unroll": 0.45,
        "prediction (policy, value) x6": 0.15,
        "backward": 0.66,
        "SGD momentum / Adam": 0.0,
    },
    "layers": [
        ["representation res_block", 6],
        ["dynamics res_block", 4],
        ["prediction res_block", 1],
    ],
    "optimizer": True,
    "grad": "representation, dynamics, prediction params",
    "loops": [["unroll (scan over actions)", 5]],
    "tells_apart": [["representation", "dynamics"], ["dynamics", "prediction"]],
}

import jax
import jax.numpy as jnp
import optax

BOARD = 16
PLANES = 32
CHANNELS = 128
ACTIONS = BOARD * BOARD
SUPPORT = 61
UNROLL = 5
BATCH = 64


def conv_init(key, cin, cout, k=3):
    return jax.random.normal(key, (k, k, cin, cout)) * (2.0 / (k * k * cin)) ** 0.5


def conv(x, w, stride=1):
    return jax.lax.conv_general_dilated(
        x, w, (stride, stride), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )


def layer_norm(x, scale, bias):
    mu = x.mean(axis=(1, 2, 3), keepdims=True)
    var = x.var(axis=(1, 2, 3), keepdims=True)
    return (x - mu) * jax.lax.rsqrt(var + 1e-5) * scale + bias


def res_block_init(key, c):
    k1, k2 = jax.random.split(key)
    ln = lambda: {"scale": jnp.ones(c), "bias": jnp.zeros(c)}
    return {"conv1": conv_init(k1, c, c), "ln1": ln(), "conv2": conv_init(k2, c, c), "ln2": ln()}


def res_block(p, x):
    y = jax.nn.relu(layer_norm(conv(x, p["conv1"]), **p["ln1"]))
    y = layer_norm(conv(y, p["conv2"]), **p["ln2"])
    return jax.nn.relu(x + y)


def tower_init(key, cin, depth):
    k0, *ks = jax.random.split(key, depth + 1)
    return {
        "stem": conv_init(k0, cin, CHANNELS),
        "blocks": [res_block_init(k, CHANNELS) for k in ks],
    }


def tower(p, x):
    x = jax.nn.relu(conv(x, p["stem"]))
    for block in p["blocks"]:
        x = res_block(block, x)
    return x


def head_init(key, n_out, width=64):
    k1, k2, k3 = jax.random.split(key, 3)
    flat = BOARD * BOARD * 4
    return {
        "conv": conv_init(k1, CHANNELS, 4, 1),
        "w1": jax.random.normal(k2, (flat, width)) * flat**-0.5,
        "b1": jnp.zeros(width),
        "w2": jax.random.normal(k3, (width, n_out)) * 0.01,
        "b2": jnp.zeros(n_out),
    }


def head(p, x):
    x = jax.nn.relu(conv(x, p["conv"])).reshape(x.shape[0], -1)
    x = jax.nn.relu(x @ p["w1"] + p["b1"])
    return x @ p["w2"] + p["b2"]


def init_params(key):
    k = jax.random.split(key, 6)
    return {
        "representation": tower_init(k[0], PLANES, 6),
        "dynamics": tower_init(k[1], CHANNELS + 1, 4),
        "reward": head_init(k[2], SUPPORT),
        "prediction": tower_init(k[3], CHANNELS, 1),
        "policy": head_init(k[4], ACTIONS),
        "value": head_init(k[5], SUPPORT),
    }


def scale_hidden(h):
    lo = h.min(axis=(1, 2, 3), keepdims=True)
    hi = h.max(axis=(1, 2, 3), keepdims=True)
    return (h - lo) / (hi - lo + 1e-5)


def representation(params, obs):
    return scale_hidden(tower(params["representation"], obs))


def prediction(params, hidden):
    x = tower(params["prediction"], hidden)
    return head(params["policy"], x), head(params["value"], x)


def dynamics(params, hidden, action):
    plane = jax.nn.one_hot(action, ACTIONS).reshape(-1, BOARD, BOARD, 1)
    x = tower(params["dynamics"], jnp.concatenate([hidden, plane], axis=-1))
    return scale_hidden(x), head(params["reward"], x)


def initial_inference(params, obs):
    hidden = representation(params, obs)
    policy, value = prediction(params, hidden)
    return hidden, policy, value


def recurrent_inference(params, hidden, action):
    hidden, reward = dynamics(params, hidden, action)
    policy, value = prediction(params, hidden)
    return hidden, reward, policy, value


def scale_gradient(x, s):
    return x * s + jax.lax.stop_gradient(x) * (1 - s)


def to_support(x):
    x = jnp.sign(x) * (jnp.sqrt(jnp.abs(x) + 1) - 1) + 0.001 * x
    half = SUPPORT // 2
    x = jnp.clip(x, -half, half)
    low = jnp.floor(x)
    p = x - low
    i = low.astype(jnp.int32) + half
    return (
        jax.nn.one_hot(i, SUPPORT) * (1 - p)[..., None]
        + jax.nn.one_hot(jnp.minimum(i + 1, SUPPORT - 1), SUPPORT) * p[..., None]
    )


def xent(logits, target):
    return -(target * jax.nn.log_softmax(logits)).sum(-1)


def loss_fn(params, batch):
    hidden, policy, value = initial_inference(params, batch["obs"])
    loss = xent(policy, batch["policy"][:, 0]) + 0.25 * xent(
        value, to_support(batch["value"][:, 0])
    )

    def unroll(hidden, step):
        action, pi, v, r = step
        hidden, reward, policy, value = recurrent_inference(params, hidden, action)
        step_loss = (
            xent(policy, pi) + 0.25 * xent(value, to_support(v)) + xent(reward, to_support(r))
        )
        return scale_gradient(hidden, 0.5), step_loss

    time_major = lambda x: jnp.swapaxes(x, 0, 1)
    steps = (
        time_major(batch["action"]),
        time_major(batch["policy"][:, 1:]),
        time_major(batch["value"][:, 1:]),
        time_major(batch["reward"]),
    )
    _, losses = jax.lax.scan(unroll, hidden, steps)
    total = loss + scale_gradient(losses, 1.0 / UNROLL).sum(0)
    return (total * batch["weight"]).mean()


tx = optax.chain(optax.clip_by_global_norm(5.0), optax.adamw(1e-3, weight_decay=1e-4))


@jax.jit
def train_step(params, opt_state, batch):
    loss, grads = jax.value_and_grad(loss_fn)(params, batch)
    updates, opt_state = tx.update(grads, opt_state, params)
    return optax.apply_updates(params, updates), opt_state, loss


def make():
    params = jax.eval_shape(init_params, jax.random.key(0))
    opt_state = jax.eval_shape(tx.init, params)
    f = lambda *s: jax.ShapeDtypeStruct((BATCH, *s), jnp.float32)
    batch = {
        "obs": f(BOARD, BOARD, PLANES),
        "action": jax.ShapeDtypeStruct((BATCH, UNROLL), jnp.int32),
        "policy": f(UNROLL + 1, ACTIONS),
        "value": f(UNROLL + 1),
        "reward": f(UNROLL),
        "weight": f(),
    }
    return train_step, (params, opt_state, batch)
