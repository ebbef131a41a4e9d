TRUTH = """
# lopt_pes - meta-training step of a learned optimizer with Persistent Evolution Strategies; plain JAX, vmap over tasks in shard_map over 8 devices

1. Order: perturb the learned optimizer's weights, +eps / -eps per task -> **inner unroll: loop x20** (vmapped over 4 tasks per device x 2 antithetic particles) { inner model (MLP 784-128-128-10, batch 128): forward, cross entropy, backward; **learned optimizer**: momenta (3 decays), second moment, factored row/column statistics, 14 + 11 features per parameter, per-parameter MLP 25-32-32-2, update of w and b of the 3 layers } -> mean losses -> PES gradient: accumulated eps x (loss+ - loss-) / 2 sigma^2, restart of finished inner problems (fresh initialisation selected by where) -> mean over the tasks of the device, **pmean over 8 devices** -> clip, AdamW on the learned optimizer's weights (~2000 parameters), outside of the shard_map.
2. Work ~0.65 TF global (64 unrolls x 20 steps): the per-parameter MLP of the learned optimizer ~87% (0.45 GF per unroll step, 118 k parameters; nearly all of it on layer 1's 100 k weights), inner model's forward + backward ~13% (forward 1/3+, backward). Feature building is element-wise but memory heavy (118 k x 25 per particle).
3. Loops: one, x20 (forward only: no backprop through it - ES). vmap 4 x 2 is in shapes, not a loop.
4. Device axes: task (8): no communication in the loop; one all-reduce of the ES gradient (~2 k floats) and one of the loss.
5. First picture: perturb -> [x20: inner forward -> inner backward -> learned optimizer update] -> PES estimate -> pmean -> meta AdamW.
6. Arrows: inner state (parameters, momenta, statistics) around the loop and out to the next call; eps accumulators; theta +- eps constant in the loop.
7. Should not stand out: RNG for eps and for fresh initialisation, where-selects at restart, ravel/unravel concatenations and slices, time features.
8. Typically wrong: the inner backward called the backward of the program / of the loop (there is no meta-backward); learned optimizer MLP drawn as a part of the model; AdamW looked for inside the loop.
"""

"""Meta-training a learned optimizer (small_fc_lopt) with Persistent Evolution Strategies.
32 tasks (antithetic pairs) spread over 8 chips with shard_map; each inner problem is an MLP classifier."""
import functools

import jax
import jax.numpy as jnp
import optax
from jax import lax
from jax.flatten_util import ravel_pytree
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

MESH = {"task": 8}
TASKS, K, TOTAL = 32, 20, 1000
BATCH, SIZES = 128, (784, 128, 128, 10)
DECAYS = (0.9, 0.99, 0.999)
HID, N_TIME, STD = 32, 11, 0.01
N_FEAT = 2 + 3 + 1 + 3 + 1 + 4 + N_TIME  # p, g | m | v | m/sqrt v | 1/sqrt v | factored | time

# ---- inner task ----

inner_template = [
    {"w": jax.ShapeDtypeStruct((i, o), jnp.float32), "b": jax.ShapeDtypeStruct((o,), jnp.float32)}
    for i, o in zip(SIZES[:-1], SIZES[1:])
]


def inner_init(key):
    return [
        {
            "w": jax.random.normal(k, s["w"].shape) / s["w"].shape[0] ** 0.5,
            "b": jnp.zeros(s["b"].shape),
        }
        for k, s in zip(jax.random.split(key, 3), inner_template)
    ]


def inner_loss(p, x, y):
    for l in p[:-1]:
        x = jax.nn.relu(x @ l["w"] + l["b"])
    logits = x @ p[-1]["w"] + p[-1]["b"]
    return optax.softmax_cross_entropy_with_integer_labels(logits, y).mean()


# ---- learned optimizer ----


def lopt_init_state(p):
    z = lambda: jax.tree.map(jnp.zeros_like, p)
    fac = lambda x: (
        jnp.zeros(x.shape[:1]),
        jnp.zeros(x.shape[1:]) if x.ndim > 1 else jnp.zeros(()),
    )
    return {
        "p": p,
        "m": [z() for _ in DECAYS],
        "v": z(),
        "f": jax.tree.map(fac, p),
        "t": jnp.zeros((), jnp.int32),
    }


def rms(x):
    return x * lax.rsqrt(
        jnp.mean(jnp.square(x), axis=tuple(range(x.ndim - 1)), keepdims=True) + 1e-5
    )


def lopt_apply(theta, s, g):
    t = s["t"]
    tf = jnp.tanh(t / 10.0 ** jnp.linspace(0.5, 4, N_TIME) - 1.0)
    ms = [
        jax.tree.map(lambda m, gg, d=d: d * m + (1 - d) * gg, m, g) for m, d in zip(s["m"], DECAYS)
    ]
    v = jax.tree.map(lambda v, gg: 0.999 * v + 0.001 * gg * gg, s["v"], g)

    def one(p, g, v, f, *m):
        r, c = f
        if p.ndim == 2:
            r, c = 0.99 * r + 0.01 * (g * g).mean(1), 0.99 * c + 0.01 * (g * g).mean(0)
            fr = jnp.broadcast_to(lax.rsqrt(r + 1e-8)[:, None], p.shape)
            fc = jnp.broadcast_to(lax.rsqrt(c + 1e-8)[None], p.shape)
        else:
            r = 0.99 * r + 0.01 * g * g
            fr = fc = lax.rsqrt(r + 1e-8)
        iv = lax.rsqrt(v + 1e-8)
        feats = jnp.stack([p, g, *m, v, *(a * iv for a in m), iv, fr, fc, g * fr, g * fc], -1)
        feats = jnp.concatenate([rms(feats), jnp.broadcast_to(tf, (*p.shape, N_TIME))], -1)
        h = jax.nn.relu(feats @ theta["w0"] + theta["b0"])
        h = jax.nn.relu(h @ theta["w1"] + theta["b1"])
        o = h @ theta["w2"] + theta["b2"]
        return p - 0.001 * o[..., 0] * jnp.exp(0.001 * o[..., 1]), (r, c)

    leaves, tree = jax.tree.flatten(s["p"])
    cols = (
        [jax.tree.leaves(q) for q in (g, v)]
        + [tree.flatten_up_to(s["f"])]
        + [jax.tree.leaves(m) for m in ms]
    )
    done = [one(p, *rest) for p, *rest in zip(leaves, *cols)]
    return {
        "p": tree.unflatten([d[0] for d in done]),
        "m": ms,
        "v": v,
        "f": tree.unflatten([d[1] for d in done]),
        "t": t + 1,
    }


def unroll(theta, state, xs, ys):
    """K inner steps; returns the state after and the mean loss"""

    def body(s, xy):
        loss, g = jax.value_and_grad(inner_loss)(s["p"], *xy)
        return lopt_apply(theta, s, g), jnp.minimum(loss, 10.0)

    state, losses = lax.scan(body, state, (xs, ys))
    return state, losses.mean()


# ---- PES ----


def pair(theta, pos, neg, acc, xs, ys, key):
    """one antithetic pair of particles of one task"""
    k_eps, k_init = jax.random.split(key)
    flat, unravel = ravel_pytree(theta)
    eps = STD * jax.random.normal(k_eps, flat.shape)
    both = jax.tree.map(lambda a, b: jnp.stack([a, b]), pos, neg)
    thetas = jax.vmap(unravel)(jnp.stack([flat + eps, flat - eps]))
    both, loss = jax.vmap(unroll, (0, 0, None, None))(thetas, both, xs, ys)
    acc = acc + eps
    grad = acc * (loss[0] - loss[1]) / (2 * STD**2)
    over = both["t"][0] >= TOTAL  # restart a finished inner problem
    fresh = lopt_init_state(inner_init(k_init))
    pick = lambda i: jax.tree.map(lambda b, f: jnp.where(over, f, b[i]), both, fresh)
    return pick(0), pick(1), jnp.where(over, 0.0, acc), grad, loss.mean()


def shard_estimate(theta, pos, neg, acc, xs, ys, keys):
    pos, neg, acc, g, loss = jax.vmap(functools.partial(pair, theta))(pos, neg, acc, xs, ys, keys)
    return pos, neg, acc, lax.pmean(g.mean(0), "task"), lax.pmean(loss.mean(), "task")


meta_tx = optax.chain(
    optax.clip(1.0), optax.adamw(optax.cosine_decay_schedule(3e-4, 100_000), weight_decay=1e-4)
)


def make(mesh):
    row, rep = P("task"), P()
    est = jax.shard_map(
        shard_estimate,
        mesh=mesh,
        in_specs=(rep, row, row, row, row, row, row),
        out_specs=(row, row, row, rep, rep),
    )

    def meta_step(theta, opt, pos, neg, acc, xs, ys, key):
        pos, neg, acc, g, loss = est(theta, pos, neg, acc, xs, ys, jax.random.split(key, TASKS))
        up, opt = meta_tx.update(ravel_pytree(theta)[1](g), opt, theta)
        return optax.apply_updates(theta, up), opt, pos, neg, acc, loss

    S = jax.ShapeDtypeStruct
    put = lambda t, spec: jax.tree.map(
        lambda x: S(x.shape, x.dtype, sharding=NamedSharding(mesh, spec)), t
    )
    f = jnp.float32
    theta = {
        "w0": S((N_FEAT, HID), f),
        "b0": S((HID,), f),
        "w1": S((HID, HID), f),
        "b1": S((HID,), f),
        "w2": S((HID, 2), f),
        "b2": S((2,), f),
    }
    n = sum(x.size for x in theta.values())
    state = jax.eval_shape(
        lambda: jax.vmap(lambda k: lopt_init_state(inner_init(k)))(
            jax.random.split(jax.random.PRNGKey(0), TASKS)
        )
    )
    args = (
        put(theta, rep),
        put(jax.eval_shape(meta_tx.init, theta), rep),
        put(state, row),
        put(state, row),
        put(S((TASKS, n), f), row),
        put(S((TASKS, K, BATCH, 784), f), row),
        put(S((TASKS, K, BATCH), jnp.int32), row),
        put(S((2,), jnp.uint32), rep),
    )
    return jax.jit(meta_step, donate_argnums=(0, 1, 2, 3, 4)), args
