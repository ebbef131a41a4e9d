TRUTH = """
# npe_flow - neural posterior estimation (equinox): simulate, embed, spline flow, AdamW, then posterior samples; one device

1. Order: **sample prior** (1024 x 8 parameters) -> **simulate** (predator-prey + seasonal forcing ODE: RK4, scan x500 steps, batch by vmap) + observation noise -> **summary net** (3 strided conv1d + pooled dense) -> **flow log_prob: loop x10 coupling layers** -> loss = -mean log_prob -> **backward**: flow backward loop x10, summary net backward -> clip + AdamW -> (with the new parameters) **posterior samples** for the observed series: summary net on 1 series, **inverse flow: loop x10** on 1024 draws -> mean/std/ quantiles.
2. Nesting: simulate { RK4 { 4 derivative evaluations } } x500 ; coupling layer { permute, conditioner MLP (4 matmuls), rational quadratic spline (softmax bins, searchsorted, formula) }.
3. Work ~38 GF: summary net ~65%, flow train ~26%, inverse flow ~9%. Simulator < 1% FLOPs but it is the longest sequential loop (500), likely the slowest in time. Backward is 2/3 of the training share.
4. Important arrows: simulator series -> summary net -> context to EVERY coupling layer (loop-invariant input); prior's theta -> flow (a second input which skips simulator). New params -> posterior samples.
5. There is no gradient through the simulator: no backward loop x500.
6. Two loops x10 forward (log_prob; inverse) + one x10 backward. They should not be merged or numbered as 20 layers.
7. Should not stand out: prior's random bits, spline's bookkeeping, AdamW.
"""

"""Simulation-based inference: amortised neural posterior with a rational-quadratic coupling flow."""
import equinox as eqx
import jax
import jax.numpy as jnp
import optax

BATCH, STEPS, DT = 1024, 500, 0.05
DIM, CONTEXT, BINS, COUPLINGS, HIDDEN = 8, 64, 8, 10, 256
BOUND = 4.0
DRAWS = 1024


# ---------------------------------------------------------------- simulator
def prior(key, n):
    return jax.random.normal(key, (n, DIM))


def derivative(rates, y, t):
    prey, predator = y[0], y[1]
    season = 1.0 + 0.3 * rates[6] * jnp.sin(2 * jnp.pi * t / 5.0 + rates[7])
    growth = rates[0] * season * prey * (1 - prey / (10 * rates[4]))
    eaten = rates[1] * prey * predator / (1 + 0.1 * rates[5] * prey)
    return jnp.stack([growth - eaten, rates[3] * eaten - rates[2] * predator])


def rk4_step(rates, y, t):
    k1 = derivative(rates, y, t)
    k2 = derivative(rates, y + 0.5 * DT * k1, t + 0.5 * DT)
    k3 = derivative(rates, y + 0.5 * DT * k2, t + 0.5 * DT)
    k4 = derivative(rates, y + DT * k3, t + DT)
    return jnp.maximum(y + DT / 6 * (k1 + 2 * k2 + 2 * k3 + k4), 1e-4)


def simulate(theta):
    rates = jnp.exp(0.25 * theta)

    def step(y, t):
        y = rk4_step(rates, y, t)
        return y, jnp.log(y)

    _, series = jax.lax.scan(step, jnp.array([2.0, 1.0]), jnp.arange(STEPS) * DT)
    return series.T  # [2, STEPS]


def observe(key, series):
    return series + 0.1 * jax.random.normal(key, series.shape)


# ---------------------------------------------------------------- networks
class SummaryNet(eqx.Module):
    convs: list
    dense: eqx.nn.Linear

    def __init__(self, key):
        k = jax.random.split(key, 4)
        self.convs = [
            eqx.nn.Conv1d(2, 32, 5, stride=2, padding=2, key=k[0]),
            eqx.nn.Conv1d(32, 64, 5, stride=2, padding=2, key=k[1]),
            eqx.nn.Conv1d(64, 128, 5, stride=2, padding=2, key=k[2]),
        ]
        self.dense = eqx.nn.Linear(256, CONTEXT, key=k[3])

    def __call__(self, series):
        x = series
        for conv in self.convs:
            x = jax.nn.gelu(conv(x))
        pooled = jnp.concatenate([x.mean(-1), x.max(-1)])
        return self.dense(pooled)


def rational_quadratic_spline(x, raw, inverse):
    """Monotone spline on [-BOUND, BOUND] for one scalar; returns (y, log|dy/dx|)."""
    w = jax.nn.softmax(raw[:BINS]) * 2 * BOUND
    h = jax.nn.softmax(raw[BINS : 2 * BINS]) * 2 * BOUND
    d = jnp.concatenate([jnp.ones(1), 1e-3 + jax.nn.softplus(raw[2 * BINS :]), jnp.ones(1)])
    xk = jnp.concatenate([jnp.zeros(1), jnp.cumsum(w)]) - BOUND
    yk = jnp.concatenate([jnp.zeros(1), jnp.cumsum(h)]) - BOUND
    inside = jnp.abs(x) < BOUND
    xin = jnp.clip(x, -BOUND + 1e-4, BOUND - 1e-4)
    i = jnp.clip(jnp.searchsorted(yk if inverse else xk, xin) - 1, 0, BINS - 1)
    x0, y0, wi, hi, d0, d1 = xk[i], yk[i], w[i], h[i], d[i], d[i + 1]
    s = hi / wi
    if inverse:
        dy = xin - y0
        a = hi * (s - d0) + dy * (d0 + d1 - 2 * s)
        b = hi * d0 - dy * (d0 + d1 - 2 * s)
        c = -s * dy
        u = 2 * c / (-b - jnp.sqrt(jnp.maximum(b * b - 4 * a * c, 1e-12)))
        out = u * wi + x0
    else:
        u = (xin - x0) / wi
        out = y0 + hi * (s * u**2 + d0 * u * (1 - u)) / (s + (d0 + d1 - 2 * s) * u * (1 - u))
    den = s + (d0 + d1 - 2 * s) * u * (1 - u)
    slope = s**2 * (d1 * u**2 + 2 * s * u * (1 - u) + d0 * (1 - u) ** 2) / den**2
    logdet = jnp.log(slope)
    return jnp.where(inside, out, x), jnp.where(inside, -logdet if inverse else logdet, 0.0)


class Coupling(eqx.Module):
    conditioner: eqx.nn.MLP

    def __init__(self, key):
        out = DIM // 2 * (3 * BINS - 1)
        self.conditioner = eqx.nn.MLP(DIM // 2 + CONTEXT, out, HIDDEN, 3, jax.nn.gelu, key=key)

    def _spline(self, keep, change, context, inverse):
        raw = self.conditioner(jnp.concatenate([keep, context])).reshape(DIM // 2, -1)
        y, logdet = jax.vmap(lambda x, r: rational_quadratic_spline(x, r, inverse))(change, raw)
        return y, logdet.sum()

    def forward(self, x, context):
        keep, change = jnp.split(x, 2)
        y, logdet = self._spline(keep, change, context, False)
        return jnp.concatenate([y, keep]), logdet  # halves change places

    def inverse(self, z, context):
        change, keep = jnp.split(z, 2)
        x, logdet = self._spline(keep, change, context, True)
        return jnp.concatenate([keep, x]), logdet


class Flow(eqx.Module):
    layers: Coupling  # stacked

    def __init__(self, key):
        self.layers = eqx.filter_vmap(Coupling)(jax.random.split(key, COUPLINGS))

    def log_prob(self, theta, context):
        arrays, static = eqx.partition(self.layers, eqx.is_array)

        def layer(carry, arrays):
            x, total = carry
            x, logdet = eqx.combine(arrays, static).forward(x, context)
            return (x, total + logdet), None

        (z, total), _ = jax.lax.scan(layer, (theta, 0.0), arrays)
        return total - 0.5 * jnp.sum(z**2) - 0.5 * DIM * jnp.log(2 * jnp.pi)

    def sample(self, z, context):
        arrays, static = eqx.partition(self.layers, eqx.is_array)

        def layer(z, arrays):
            return eqx.combine(arrays, static).inverse(z, context)[0], None

        return jax.lax.scan(layer, z, arrays, reverse=True)[0]


class Posterior(eqx.Module):
    summary: SummaryNet
    flow: Flow

    def __init__(self, key):
        a, b = jax.random.split(key)
        self.summary, self.flow = SummaryNet(a), Flow(b)

    def log_prob(self, theta, series):
        return self.flow.log_prob(theta, self.summary(series))

    def draw(self, key, series, n):
        context = self.summary(series)
        z = jax.random.normal(key, (n, DIM))
        return jax.vmap(lambda z: self.flow.sample(z, context))(z)


tx = optax.chain(optax.clip_by_global_norm(5.0), optax.adamw(5e-4, weight_decay=1e-3))


def npe_loss(model, theta, series):
    return -jax.vmap(model.log_prob)(theta, series).mean()


def posterior_summary(model, key, observed):
    draws = model.draw(key, observed, DRAWS)
    return {
        "mean": draws.mean(0),
        "std": draws.std(0),
        "q": jnp.quantile(draws, jnp.array([0.05, 0.95]), axis=0),
    }


def step(model, opt_state, key, observed):
    k_prior, k_noise, k_draw = jax.random.split(key, 3)
    theta = prior(k_prior, BATCH)
    series = observe(k_noise, jax.vmap(simulate)(theta))
    loss, grads = eqx.filter_value_and_grad(npe_loss)(model, theta, series)
    updates, opt_state = tx.update(grads, opt_state, eqx.filter(model, eqx.is_array))
    model = eqx.apply_updates(model, updates)
    return model, opt_state, loss, posterior_summary(model, k_draw, observed)


def make():
    def init(key):
        arrays = eqx.filter(Posterior(key), eqx.is_array)
        return arrays, tx.init(arrays)

    static = eqx.filter(
        eqx.filter_eval_shape(Posterior, jax.random.PRNGKey(0)),
        lambda x: not isinstance(x, jax.ShapeDtypeStruct),
    )

    def train(arrays, opt_state, key, observed):
        model, opt_state, loss, info = step(eqx.combine(arrays, static), opt_state, key, observed)
        return eqx.filter(model, eqx.is_array), opt_state, loss, info

    key = jax.ShapeDtypeStruct((2,), jnp.uint32)
    arrays, opt_state = jax.eval_shape(init, key)
    return train, (arrays, opt_state, key, jax.ShapeDtypeStruct((2, STEPS), jnp.float32))
