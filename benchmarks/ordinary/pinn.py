"""PINN for Burgers' equation: u_t + u u_x = nu u_xx with jvp/grad inside, boundary and initial losses, optax adam."""

TRUTH = {
    "majors": {
        "pde_residual (mlp with derivatives) fwd+bwd": 0.9,
        "initial_loss": 0.05,
        "boundary_loss": 0.05,
        "adam": 0.0,
    },
    "layers": [["hidden layer of mlp", 5]],
    "optimizer": True,
    "grad": "all params",
    "loops": [],
    "tells_apart": [["pde_residual", "initial_loss"], ["initial_loss", "boundary_loss"]],
    "order": [
        ["pde_residual", "total loss"],
        ["boundary_loss", "total loss"],
        ["pde_residual backward", "adam"],
    ],
    "independent": [["pde_residual", "initial_loss"], ["initial_loss", "boundary_loss"]],
}
import jax
import jax.numpy as jnp
import optax

W, DEPTH, NU = 256, 6, 0.01 / jnp.pi
tx = optax.adam(optax.exponential_decay(1e-3, 1000, 0.9))


def mlp(params, t, x):
    h = jnp.stack([t, x])
    for w, b in params[:-1]:
        h = jnp.tanh(h @ w + b)
    w, b = params[-1]
    return (h @ w + b)[0]


def pde_residual(params, t, x):
    u = mlp(params, t, x)
    u_t = jax.grad(mlp, 1)(params, t, x)
    u_x = jax.grad(mlp, 2)(params, t, x)
    u_xx = jax.grad(jax.grad(mlp, 2), 2)(params, t, x)
    return u_t + u * u_x - NU * u_xx


def pde_loss(params, pts):
    r = jax.vmap(pde_residual, (None, 0, 0))(params, pts[:, 0], pts[:, 1])
    return (r**2).mean()


def initial_loss(params, x):
    u = jax.vmap(mlp, (None, None, 0))(params, 0.0, x)
    return ((u + jnp.sin(jnp.pi * x)) ** 2).mean()


def boundary_loss(params, t):
    left = jax.vmap(mlp, (None, 0, None))(params, t, -1.0)
    right = jax.vmap(mlp, (None, 0, None))(params, t, 1.0)
    return (left**2).mean() + (right**2).mean()


def total_loss(params, batch):
    return (
        pde_loss(params, batch["interior"])
        + 10 * initial_loss(params, batch["initial"])
        + boundary_loss(params, batch["boundary"])
    )


@jax.jit
def train_step(params, opt_state, batch):
    loss, g = jax.value_and_grad(total_loss)(params, batch)
    u, opt_state = tx.update(g, opt_state)
    return optax.apply_updates(params, u), opt_state, loss


def make():
    f = lambda *s: jax.ShapeDtypeStruct(s, jnp.float32)
    sizes = [2] + [W] * DEPTH + [1]
    params = [(f(a, b), f(b)) for a, b in zip(sizes, sizes[1:])]
    return train_step, (
        params,
        jax.eval_shape(tx.init, params),
        {"interior": f(4096, 2), "initial": f(512), "boundary": f(512)},
    )
