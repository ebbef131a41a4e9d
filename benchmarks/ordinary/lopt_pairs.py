TRUTH = """
PROGRAM lopt_pes: meta-training of a learned optimizer with PES; population of 64 antithetic pairs (vmap), sharded 8-way ("pop"); plain jax. 20 inner steps.

(1) EXPECTED BOXES
meta_step
 - pes_worker (vmapped over 64, 8 per device)
     - eps sampling (perturbation)
     - unroll (positive): inner_step x20 (scan): sample_data, inner_loss forward (3-layer MLP), backward, lopt_apply (6 tensors: LSTM features, per-parameter MLP 18 -> 32 -> 32 -> 2)
     - unroll (negative): inner_step x20 (scan), same
     - accum, gradient estimate, reset (inner_init + select)
 - mean over the population (all-reduce)
 - meta optimizer (clip + adam)
Work MACs per inner step per member: inner model 784*256+256*256+2560 = 269 k params; x 128 batch = 34 M fwd; backward 2x minus input grad of the first layer (~43 M): total ~77 M. lopt per-parameter MLP: 269 k x (18*32+32*32+64 = 1664) = 447 M.
So lopt_apply (the per-parameter MLP) ~ 85 % of matrix work; inner forward+backward ~ 15 % (forward 6, backward 8). Positive and negative unroll equal, each ~50 %.
sample_data normal RNG 100 k per step; fine. reset's inner_init random numbers once per call.

(2) FALSE NAMES
"backprop through the unroll / meta-gradient backward / MAML outer gradient" (none), "checkpoint/remat", "transformer", "layers x20" for the scan (inner steps), "microbatches", "RNN over sequence" (the LSTM advances one cell per inner step),
"teacher / student", "RL environment", "meta optimizer = inner optimizer adam" (inner optimizer is the learned one), "actor".
The only backward in the program is the one of the inner loss.

(3) EXPERT
True
 - Embarrassingly parallel: the only communication is the all-reduce of the theta gradient mean (~25 k floats) and the scalar losses; communication is negligible. Scales by adding workers.
 - The per-parameter MLP with widths 18/32/2 on [8 members x 269k, 18]: memory-bandwidth-bound and bad MXU utilisation (width 32 of 128): activations [8,784,256,32] fp32 = 205 MB x several per step per device, minor dimension padded 32->128 on TPU (4x). Remedy: put the feature axis first/major
   & parameters on lanes, fuse via a Pallas kernel, bf16, low rank theta per tensor (VeLO hypernetwork).
 - Stacking of features [...,10] and concatenation of broadcast ctx: ctx part could be applied as bias (ctx @ w0[-8:]) rather than broadcasting to every parameter: saves 8/18 of first layer.
 - pos and neg unrolls run sequentially as two scans: stack the antithetic pair into one vmap for larger batches / half the loop iterations; they also share the data (sample_data with the same key is computed twice).
 - Reset computes a fresh init for each worker at each call and selects (wasted; small relative to 20 steps).
 - State: inner params + 3 momenta + rms = 5 x 269k x 4 B x 2 x 8 per device = 86 MB. Donated (workers, opt), theta not donated.
 - vmap over theta+eps makes the optimizer's weights batched (each member has own) -> batched matmuls.
False
 - "communication bound", "inner model's matmuls dominate", "unroll gradient memory grows with UNROLL", "needs checkpointing", "meta gradient by backprop", "FSDP / tensor parallel", "parameters all-gathered".
"""

"""Meta-training a learned optimizer with Persistent Evolution Strategies (no backprop through the unroll).

 * theta : weights of the learned optimizer (per-parameter MLP + per-tensor LSTM, "VeLO-mini")
 * 8-way sharded population of inner problems, each a small image MLP / with its own data
 * every worker runs an antithetic pair  theta + eps, theta - eps  for UNROLL inner steps from a persistent
   state, PES accumulates the perturbations since the last reset of that worker

One call of `meta_step` = truncated unroll of the population + one Adam step on theta.
"""
import collections
import functools

import jax
import jax.numpy as jnp
import optax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

MESH = {"pop": 8}

POP = 64  # antithetic pairs
UNROLL = 20
HORIZON = 2000  # inner steps until a worker restarts
SIGMA = 0.01
INNER_BATCH = 128
DIM_IN, DIM_H, CLASSES = 784, 256, 10
MLP_H = 32
LSTM_H = 64
DECAYS = jnp.array([0.5, 0.9, 0.99])
N_FEAT = 2 + 3 + 1 + 1 + 3 + 8  # p, g, momenta, rms, rsqrt, normalised momenta, lstm context

Inner = collections.namedtuple("Inner", "params mom rms lstm step")
Worker = collections.namedtuple("Worker", "pos neg accum key task")


# ------------------------------------------------------------------ learned optimizer
def lopt_init(key):
    k = jax.random.split(key, 6)
    he = lambda k, i, o: jax.random.normal(k, (i, o)) / jnp.sqrt(i)
    return dict(
        lstm=dict(
            wx=he(k[0], 12, 4 * LSTM_H),
            wh=he(k[1], LSTM_H, 4 * LSTM_H),
            b=jnp.zeros(4 * LSTM_H),
            ctx=he(k[2], LSTM_H, 8),
        ),
        mlp=dict(
            w0=he(k[3], N_FEAT, MLP_H),
            b0=jnp.zeros(MLP_H),
            w1=he(k[4], MLP_H, MLP_H),
            b1=jnp.zeros(MLP_H),
            w2=he(k[5], MLP_H, 2) * 0.1,
            b2=jnp.zeros(2),
        ),
    )


def second_moment_norm(x):
    return x * jax.lax.rsqrt(jnp.mean(x * x) + 1e-9)


def tensor_features(g, p, mom, rms, step, loss):
    t = jnp.tanh(jnp.log1p(step.astype(jnp.float32)) / 4 - 1)
    stat = lambda x: jnp.log(jnp.mean(x * x) + 1e-10) / 10
    return jnp.stack(
        [
            stat(g),
            stat(p),
            stat(mom[0]),
            stat(mom[1]),
            stat(mom[2]),
            jnp.log(jnp.mean(rms) + 1e-10) / 10,
            t,
            t**2,
            jnp.log(loss + 1e-6),
            jnp.mean(jnp.sign(g * mom[1])),
            g.ndim / 2.0,
            1.0,
        ]
    )


def lopt_apply(theta, inner, grads, loss):
    def per_tensor(p, g, mom, rms, hc):
        mom = DECAYS[(...,) + (None,) * g.ndim] * mom + (1 - DECAYS[(...,) + (None,) * g.ndim]) * g
        rms = 0.999 * rms + 0.001 * g * g
        h, c = hc
        w = theta["lstm"]
        gates = tensor_features(g, p, mom, rms, inner.step, loss) @ w["wx"] + h @ w["wh"] + w["b"]
        i, f, u, o = jnp.split(gates, 4)
        c = jax.nn.sigmoid(f + 1) * c + jax.nn.sigmoid(i) * jnp.tanh(u)
        h = jax.nn.sigmoid(o) * jnp.tanh(c)
        ctx = h @ w["ctx"]

        r = jax.lax.rsqrt(rms + 1e-8)
        feats = [p, g, *mom, jnp.sqrt(rms), r, *(m * r for m in mom)]
        x = jnp.stack([second_moment_norm(a) for a in feats], -1)
        x = jnp.concatenate([x, jnp.broadcast_to(ctx, (*p.shape, 8))], -1)
        m = theta["mlp"]
        x = jax.nn.relu(x @ m["w0"] + m["b0"])
        x = jax.nn.relu(x @ m["w1"] + m["b1"])
        out = x @ m["w2"] + m["b2"]
        return p - 0.001 * out[..., 0] * jnp.exp(0.001 * out[..., 1]), mom, rms, (h, c)

    leaves, tree = jax.tree.flatten(inner.params)
    gs, moms, rmss = (tree.flatten_up_to(t) for t in (grads, inner.mom, inner.rms))
    new = [
        per_tensor(p, g, m, r, (inner.lstm[0][i], inner.lstm[1][i]))
        for i, (p, g, m, r) in enumerate(zip(leaves, gs, moms, rmss))
    ]
    ps, ms, rs, hcs = zip(*new)
    return Inner(
        tree.unflatten(ps),
        tree.unflatten(ms),
        tree.unflatten(rs),
        tuple(jnp.stack(x) for x in zip(*hcs)),
        inner.step + 1,
    )


# ------------------------------------------------------------------ inner problem
def inner_init(key):
    k = jax.random.split(key, 3)
    dims = [DIM_IN, DIM_H, DIM_H, CLASSES]
    params = {
        f"layer{i}": dict(w=jax.random.normal(k[i], (a, b)) / jnp.sqrt(a), b=jnp.zeros(b))
        for i, (a, b) in enumerate(zip(dims[:-1], dims[1:]))
    }
    n = len(jax.tree.leaves(params))
    return Inner(
        params,
        jax.tree.map(lambda p: jnp.zeros((3, *p.shape)), params),
        jax.tree.map(jnp.zeros_like, params),
        (jnp.zeros((n, LSTM_H)), jnp.zeros((n, LSTM_H))),
        jnp.int32(0),
    )


def sample_data(task, key):
    """Class-conditional gaussians with a task specific mean image (stands in for the data server)."""
    ky, kx = jax.random.split(key)
    y = jax.random.randint(ky, (INNER_BATCH,), 0, CLASSES)
    return task[y] + jax.random.normal(kx, (INNER_BATCH, DIM_IN)), y


def inner_loss(params, x, y):
    for i in range(3):
        l = params[f"layer{i}"]
        x = x @ l["w"] + l["b"]
        x = jax.nn.relu(x) if i < 2 else x
    return optax.softmax_cross_entropy_with_integer_labels(x, y).mean()


def unroll(theta, inner, task, key):
    def inner_step(s, k):
        x, y = sample_data(task, k)
        loss, g = jax.value_and_grad(inner_loss)(s.params, x, y)
        return lopt_apply(theta, s, g, loss), jnp.minimum(loss, 10.0)

    inner, losses = jax.lax.scan(inner_step, inner, jax.random.split(key, UNROLL))
    return inner, losses.mean()


# ------------------------------------------------------------------ PES
def pes_worker(theta, w):
    k_eps, k_data, k_reset, key = jax.random.split(w.key, 4)
    flat, tree = jax.tree.flatten(theta)
    ks = jax.random.split(k_eps, len(flat))
    eps = tree.unflatten([SIGMA * jax.random.normal(k, t.shape) for k, t in zip(ks, flat)])
    pos, l_pos = unroll(jax.tree.map(jnp.add, theta, eps), w.pos, w.task, k_data)
    neg, l_neg = unroll(jax.tree.map(jnp.subtract, theta, eps), w.neg, w.task, k_data)
    accum = jax.tree.map(jnp.add, w.accum, eps)
    grad = jax.tree.map(lambda a: (l_pos - l_neg) * a / (2 * SIGMA**2), accum)
    over = pos.step >= HORIZON
    fresh = inner_init(k_reset)
    sel = lambda a, b: jax.tree.map(lambda x, y: jnp.where(over, x, y), a, b)
    accum = jax.tree.map(lambda a: jnp.where(over, 0.0, a), accum)
    return Worker(sel(fresh, pos), sel(fresh, neg), accum, key, w.task), grad, 0.5 * (l_pos + l_neg)


meta_opt = optax.chain(
    optax.clip_by_global_norm(1.0), optax.adam(optax.exponential_decay(3e-4, 10_000, 0.5))
)


@functools.partial(jax.jit, donate_argnums=(1, 2))
def meta_step(theta, opt, workers):
    workers, grads, losses = jax.vmap(pes_worker, in_axes=(None, 0))(theta, workers)
    g = jax.tree.map(lambda x: x.mean(0), grads)
    upd, opt = meta_opt.update(g, opt, theta)
    return optax.apply_updates(theta, upd), opt, workers, losses.mean()


def make(mesh):
    def worker_init(key):
        theta = lopt_init(key)
        inner = inner_init(key)
        return Worker(
            inner, inner, jax.tree.map(jnp.zeros_like, theta), key, jnp.zeros((CLASSES, DIM_IN))
        )

    theta = jax.eval_shape(lopt_init, jax.random.PRNGKey(0))
    workers = jax.eval_shape(jax.vmap(worker_init), jax.random.split(jax.random.PRNGKey(0), POP))
    put = lambda spec: (
        lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=NamedSharding(mesh, spec))
    )
    rep, pop = put(P()), put(P("pop"))
    return meta_step, (
        jax.tree.map(rep, theta),
        jax.tree.map(rep, jax.eval_shape(meta_opt.init, theta)),
        jax.tree.map(pop, workers),
    )
