TRUTH = """
# snn_shd - spiking network on Heidelberg-digits-like data; one jitted epoch piece; one long function with lambdas; one device

1. Order: shuffle/augment spikes? (only channel jitter) -> **mini-batches: loop x10** { **network over time: loop x250** { layer 1 LIF recurrent (700->512, 512->512), layer 2 LIF recurrent (512->512, 512->512), readout leaky integrator (512->20) ; spikes by Heaviside with a surrogate gradient (custom_vjp) } -> max-over-time softmax loss + firing-rate regulariser -> **backward through time: loop x250 (reversed)** -> hand-written Adam } ; after it **evaluation** on one held-out batch: **loop x250** forward only, accuracy.
2. Work ~2.3 TF: forward loops ~1/3, backward ~2/3 of the training; evaluation 3%. In a step matmuls: layer 1 input 31%, layer 1 recurrent 23%, layer 2 input 23%, layer 2 recurrent 23%, readout 1%.
3. First picture: x10 { time x250 { LIF 1, LIF 2, readout } -> loss -> backward time x250 -> Adam } -> evaluate time x250 -> accuracy.
4. Arrows: batch's spikes [250,128,700] -> time loop; membrane potentials/spikes saved per time step -> backward loop; weights carry around x10; trained weights -> evaluation.
5. Weights' gradients accumulate in the backward loop's carry.
6. Should not stand out: channel jitter (random, roll/gather), Adam's elementwise, regulariser, surrogate's formula.
7. Misleading: 250 named layers; there are 2 hidden layers per time step; evaluation's loop merged with training's.
"""

"""Recurrent spiking network, surrogate gradients.  Quick research script."""
import jax
import jax.numpy as jnp

T, B, NIN, NH, NOUT = 250, 128, 700, 512, 20
NB = 10
ALPHA, BETA, THR = 0.95, 0.98, 1.0


@jax.custom_vjp
def spike(v):
    return (v > 0).astype(jnp.float32)


spike.defvjp(
    lambda v: (spike(v), v),
    lambda v, g: (g / (10.0 * jnp.abs(v) + 1.0) ** 2,),
)


def run(w, x):
    """x [T, B, NIN] -> readout trace [T, B, NOUT], spike counts"""

    def lif(i, v, s, ff, rec):
        i = ALPHA * i + ff + s @ rec
        v = (BETA * v + (1 - BETA) * i) * (1 - s)
        return i, v, spike(v - THR)

    def tick(c, xt):
        (i1, v1, s1), (i2, v2, s2), o = c
        l1 = lif(i1, v1, s1, xt @ w["in"], w["rec1"])
        l2 = lif(i2, v2, s2, l1[2] @ w["ff2"], w["rec2"])
        o = BETA * o + (1 - BETA) * (l2[2] @ w["out"] + w["b"])
        return (l1, l2, o), (o, l1[2].mean(0), l2[2].mean(0))

    z = jnp.zeros((x.shape[1], NH))
    c0 = ((z, z, z), (z, z, z), jnp.zeros((x.shape[1], NOUT)))
    _, (out, r1, r2) = jax.lax.scan(tick, c0, x)
    return out, (r1, r2)


def train_and_eval(w, m, v, step, key, xs, ys, x_test, y_test):
    def jitter(key, x):
        # shift channels per example, like SHD augmentation
        sh = jax.random.randint(key, (x.shape[1],), -20, 21)
        idx = (jnp.arange(NIN)[None] + sh[:, None]) % NIN
        return jnp.take_along_axis(x, jnp.broadcast_to(idx[None], x.shape), 2)

    def loss_fn(w, x, y):
        out, (r1, r2) = run(w, x)
        logits = out.max(0)
        ce = -jnp.take_along_axis(jax.nn.log_softmax(logits), y[:, None], 1).mean()
        reg = sum(
            1e-3 * jnp.sum(jax.nn.relu(0.01 - r.mean(0)) ** 2)
            + 1e-4 * jnp.sum(jax.nn.relu(r.sum(0) - 100) ** 2)
            for r in (r1, r2)
        )
        return ce + reg, (ce, (logits.argmax(-1) == y).mean())

    def one_batch(carry, data):
        w, m, v, step, key = carry
        x, y = data
        key, sub = jax.random.split(key)
        x = jitter(sub, x.astype(jnp.float32))
        (_, aux), g = jax.value_and_grad(loss_fn, has_aux=True)(w, x, y)
        step = step + 1
        m = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, m, g)
        v = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, v, g)
        lr = 2e-3 * 0.5 ** (step / 5000)
        w = jax.tree.map(
            lambda w, m, v: (
                w - lr * (m / (1 - 0.9**step)) / (jnp.sqrt(v / (1 - 0.999**step)) + 1e-8)
            ),
            w,
            m,
            v,
        )
        return (w, m, v, step, key), aux

    (w, m, v, step, key), (losses, accs) = jax.lax.scan(one_batch, (w, m, v, step, key), (xs, ys))

    # check on a held-out batch
    out, rates = run(w, x_test.astype(jnp.float32))
    pred = out.max(0).argmax(-1)
    test_acc = (pred == y_test).mean()
    return (w, m, v, step, key), {
        "loss": losses.mean(),
        "acc": accs.mean(),
        "test_acc": test_acc,
        "rate1": rates[0].mean(),
        "rate2": rates[1].mean(),
    }


def make():
    S = lambda s, d=jnp.float32: jax.ShapeDtypeStruct(s, d)
    w = {
        "in": S((NIN, NH)),
        "rec1": S((NH, NH)),
        "ff2": S((NH, NH)),
        "rec2": S((NH, NH)),
        "out": S((NH, NOUT)),
        "b": S((NOUT,)),
    }
    args = (
        w,
        w,
        w,
        S(()),
        S((2,), jnp.uint32),
        S((NB, T, B, NIN), jnp.int8),
        S((NB, B), jnp.int32),
        S((T, B, NIN), jnp.int8),
        S((B,), jnp.int32),
    )
    return jax.jit(train_and_eval, donate_argnums=(0, 1, 2)), args
