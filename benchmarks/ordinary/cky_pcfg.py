TRUTH = """
Rebuilt from jax#10197 and jax#17640 ("grad of slice update + scan copies the whole carry", "carry only what is needed").
- Neural PCFG: inside algorithm (CKY) in log space; chart f32[B=16, N=40, N+1, S=64] (6.4 MiB) is the carry of a scan over span widths 2..40 (39 steps; fori over widths by scan with xs). Each step computes, for all starts, all splits (masked) and writes one diagonal back with `.at[...].set`. Gradient of the log-likelihood to rule scores, adam step.
- Cause of peak: the backward pass needs the chart as it was at each width: scan saves the whole chart 39 times = 39 x 6.5 MiB = about 250 MiB (a chart, or gathers of it, per step); plus the residuals of each step [B,N,N,S,...] (the left and right children for all splits) - which may be larger: per step left/right [16,40,40,64] f32 = 6.6 MiB each... times 39 each.
- Remedy: jax.checkpoint on the body (recomputes the step's residuals; the carry itself is saved still), or store only what each width wrote (ys) rather than carrying the chart; either cuts the peak. With checkpoint: peak about the 39 charts.
- Work: rule product [B,N,S,S] x [S, S*S]: einsum over left, right symbols: 16*40*64*64*64*2 = 336 MFLOP each step forward in exp-space: the product is most of FLOPs.
- Masked work: half of all (start, split) pairs are of no span (triangle): about 1/2 to 2/3 of the work is thrown away; nobody expects a tool to say so.
- Params and opt state are not donated: they are small (64x64x64x4 = 1 MiB), no matter.
- Single device; no collectives.
"""

"""Neural PCFG trained by the inside algorithm."""
import jax
import jax.numpy as jnp
import optax

BATCH, LENGTH, SYMBOLS, VOCAB, DIM = 16, 40, 64, 4000, 128
NEG = -1e9


def init(key):
    k = jax.random.split(key, 5)
    n = lambda k, *s: jax.random.normal(k, s) * 0.1
    return {
        "symbols": n(k[0], SYMBOLS, DIM),
        "rules": n(k[1], DIM, SYMBOLS * SYMBOLS),
        "hidden": n(k[2], DIM, DIM),
        "terminals": n(k[3], DIM, VOCAB),
        "root": n(k[4], SYMBOLS),
    }


def inside(rules, unary):
    """Log partition: rules [S, S*S] in log space, unary [B, N, S]."""
    b, n, s = unary.shape
    chart = jnp.full((b, n, n + 1, s), NEG)
    chart = chart.at[:, jnp.arange(n), jnp.arange(n) + 1].set(unary)
    start = jnp.arange(n)
    expanded = jnp.exp(rules)

    def width_step(chart, width):
        split = jnp.arange(1, n)  # length of the left child
        middle = jnp.clip(start[:, None] + split[None], 0, n - 1)
        end = jnp.clip(start + width, 0, n)
        left = chart[:, start[:, None], middle]  # [B, N, N-1, S]
        right = chart[:, middle, end[:, None]]
        ok = (split[None] < width) & (start[:, None] + width <= n)
        lm = jnp.max(left, -1, keepdims=True)
        rm = jnp.max(right, -1, keepdims=True)
        m = jnp.where(ok, (lm + rm)[..., 0], NEG)
        top = jnp.max(m, -1)
        scale = jnp.exp(m - top[..., None])
        le = jnp.exp(left - lm) * scale[..., None]
        re = jnp.exp(right - rm)
        pairs = jnp.einsum("bnkl,bnkr->bnlr", le, re)
        parent = jnp.einsum("bnp,sp->bns", pairs.reshape(b, n, s * s), expanded)
        value = jnp.log(parent + 1e-30) + top[..., None]
        old = chart[:, start, end]
        value = jnp.where((start + width <= n)[None, :, None], value, old)
        return chart.at[:, start, end].set(value), None

    chart, _ = jax.lax.scan(width_step, chart, jnp.arange(2, n + 1))
    return chart[:, 0, n]


def loss_fn(params, tokens):
    h = params["symbols"] + jax.nn.relu(params["symbols"] @ params["hidden"])
    rules = jax.nn.log_softmax(h @ params["rules"], -1)
    words = jax.nn.log_softmax(h @ params["terminals"], -1)
    unary = words.T[tokens]
    tops = inside(rules, unary)
    return -jax.nn.logsumexp(tops + jax.nn.log_softmax(params["root"]), -1).mean()


def make():
    tx = optax.adam(1e-3)

    def step(params, opt, tokens):
        loss, grads = jax.value_and_grad(loss_fn)(params, tokens)
        updates, opt = tx.update(grads, opt)
        return optax.apply_updates(params, updates), opt, loss

    params = jax.eval_shape(init, jax.random.key(0))
    opt = jax.eval_shape(tx.init, params)
    return jax.jit(step), (params, opt, jax.ShapeDtypeStruct((BATCH, LENGTH), jnp.int32))
