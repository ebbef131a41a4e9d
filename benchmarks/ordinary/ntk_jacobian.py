TRUTH = """
- ntk_jacobian (jax#11319, #787): empirical NTK of an MLP by jacrev over all parameters of a batch sharded over 8
- Largest cost: J J^T products of each parameter's jacobian [N, P]; J of other half has to be gathered (all-gather of J, N*P) : each device has its rows of J and needs all rows for K[N,N]. So all-gather of jacobians (largest: w1's) or partial products.
- Memory: the jacobians [N_local, 1, din, dout] and gathered [N, din, dout]: most of the peak.
- Remedy: compute K from activations and backpropagated deltas (K = (a a^T) * (d d^T)), or in blocks of rows (lax.map). Donation: nothing.
"""

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

MESH = {"data": 8}

DIN, WIDTH, OUT, N = 256, 512, 4, 128


def init(key):
    a, b, c = jax.random.split(key, 3)
    return {
        "w1": jax.random.normal(a, (DIN, WIDTH)) / 16,
        "b1": jnp.zeros(WIDTH),
        "w2": jax.random.normal(b, (WIDTH, WIDTH)) / 22,
        "b2": jnp.zeros(WIDTH),
        "w3": jax.random.normal(c, (WIDTH, OUT)) / 22,
    }


def net(p, x):
    h = jnp.tanh(x @ p["w1"] + p["b1"])
    h = jnp.tanh(h @ p["w2"] + p["b2"])
    return h @ p["w3"]


def jacobian(p, x):
    return jax.vmap(jax.jacrev(net), in_axes=(None, 0))(p, x)


def contract(j1, j2):
    j1 = j1.reshape(*j1.shape[:2], -1)
    j2 = j2.reshape(*j2.shape[:2], -1)
    return jnp.einsum("Naf,Mbf->NMab", j1, j2)


def ntk(p, x):
    j = jacobian(p, x)
    return sum(contract(a, a) for a in jax.tree.leaves(j))


def predict(params, x, y):
    """Kernel regression with the empirical NTK at these parameters."""
    k = ntk(params, x)
    k = k.transpose(0, 2, 1, 3).reshape(N * OUT, N * OUT)
    alpha = jnp.linalg.solve(k + 1e-3 * jnp.eye(N * OUT), y.reshape(-1))
    return (k @ alpha).reshape(N, OUT)


def make(mesh):
    params = jax.eval_shape(init, jax.random.key(0))
    x = jax.ShapeDtypeStruct((N, DIN), jnp.float32)
    y = jax.ShapeDtypeStruct((N, OUT), jnp.float32)
    specs = (P(), P("data"), P("data"))
    args = (params, x, y)

    def placed(spec, tree):
        sharding = NamedSharding(mesh, spec)
        S = jax.ShapeDtypeStruct
        return jax.tree.map(lambda a: S(a.shape, a.dtype, sharding=sharding), tree)

    args = jax.tree.map(placed, specs, args, is_leaf=lambda x: isinstance(x, P))
    return jax.jit(predict, donate_argnums=()), args
