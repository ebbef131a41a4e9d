"""Latent neural ODE (latent SDE-like VAE): GRU encoder scanned backwards in time, RK4 scan, decoder, ELBO, optax adamax."""

TRUTH = {
    "majors": {
        "encode (GRU scan)": 0.15,
        "odeint/rk4_step forward": 0.2,
        "odeint backward": 0.4,
        "decode fwd+bwd": 0.1,
        "GRU backward": 0.15,
        "adamax": 0.0,
    },
    "layers": [["dynamics evaluations in an rk4_step", 4]],
    "optimizer": True,
    "grad": "all params",
    "loops": ["GRU scan 40", "RK4 scan 40", "their backward scans"],
    "tells_apart": [["encode", "odeint"], ["forward loop", "backward loop"]],
    "order": [
        ["encode", "reparameterize"],
        ["reparameterize", "odeint"],
        ["odeint", "decode"],
        ["decode", "elbo"],
        ["odeint backward", "encode backward"],
        ["encode backward", "adamax"],
    ],
    "independent": [],
}
import jax
import jax.numpy as jnp
import optax

OBS, H, Z, W, T, B = 16, 256, 64, 256, 40, 128
tx = optax.adamax(1e-3)


def dense(p, x):
    return x @ p["w"] + p["b"]


def gru_cell(p, h, x):
    r, u = jnp.split(jax.nn.sigmoid(dense(p["gates"], jnp.concatenate([h, x], -1))), 2, -1)
    c = jnp.tanh(dense(p["cand"], jnp.concatenate([r * h, x], -1)))
    return u * h + (1 - u) * c


def encode(p, xs):
    h0 = jnp.zeros((xs.shape[1], H))
    h, _ = jax.lax.scan(lambda h, x: (gru_cell(p["gru"], h, x), None), h0, xs, reverse=True)
    return jnp.split(dense(p["to_latent"], h), 2, -1)


def reparameterize(key, mu, logvar):
    return mu + jnp.exp(0.5 * logvar) * jax.random.normal(key, mu.shape)


def dynamics(p, z, t):
    x = jnp.concatenate([z, jnp.broadcast_to(t, z.shape[:-1] + (1,))], -1)
    return dense(p["l3"], jnp.tanh(dense(p["l2"], jnp.tanh(dense(p["l1"], x)))))


def rk4_step(p, z, t, dt):
    k1 = dynamics(p, z, t)
    k2 = dynamics(p, z + dt / 2 * k1, t + dt / 2)
    k3 = dynamics(p, z + dt / 2 * k2, t + dt / 2)
    k4 = dynamics(p, z + dt * k3, t + dt)
    return z + dt / 6 * (k1 + 2 * k2 + 2 * k3 + k4)


def odeint(p, z0, ts):
    def body(z, t):
        z = rk4_step(p, z, t, ts[1] - ts[0])
        return z, z

    return jax.lax.scan(body, z0, ts)[1]


def decode(p, zs):
    return dense(p["d2"], jax.nn.elu(dense(p["d1"], zs)))


def elbo(params, key, xs, ts):
    mu, logvar = encode(params["encoder"], xs)
    zs = odeint(params["ode"], reparameterize(key, mu, logvar), ts)
    recon = ((decode(params["decoder"], zs) - xs) ** 2).sum(-1).sum(0).mean()
    kl = -0.5 * (1 + logvar - mu**2 - jnp.exp(logvar)).sum(-1).mean()
    return recon + kl


@jax.jit
def train_step(params, opt_state, key, xs, ts):
    loss, g = jax.value_and_grad(elbo)(params, key, xs, ts)
    u, opt_state = tx.update(g, opt_state, params)
    return optax.apply_updates(params, u), opt_state, loss


def make():
    f = lambda *s: jax.ShapeDtypeStruct(s, jnp.float32)
    d = lambda i, o: {"w": f(i, o), "b": f(o)}
    params = {
        "encoder": {
            "gru": {"gates": d(H + OBS, 2 * H), "cand": d(H + OBS, H)},
            "to_latent": d(H, 2 * Z),
        },
        "ode": {"l1": d(Z + 1, W), "l2": d(W, W), "l3": d(W, Z)},
        "decoder": {"d1": d(Z, W), "d2": d(W, OBS)},
    }
    return train_step, (
        params,
        jax.eval_shape(tx.init, params),
        jax.eval_shape(lambda: jax.random.key(0)),
        f(T, B, OBS),
        f(T),
    )
