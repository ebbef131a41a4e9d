TRUTH = """
# vmc_ferminet - variational Monte Carlo for neon-like atom, FermiNet wave function; shard_map, 512 walkers over 8 devices (64 each)

1. Order: **MCMC: loop x10** Metropolis moves { propose, log|psi|, accept } -> **local energy**: potential + kinetic; kinetic = **Laplacian: loop x30** (3 coordinates x 10 electrons) of { forward-over-reverse derivative of log|psi| } -> energy mean/clipping (psum/pmean) -> **gradient of log psi** weighted by (E_loc - mean): forward + backward -> pmean of gradients (all-reduce) -> Adam -> adapt MCMC width.
2. log|psi| (FermiNet) in each: features (electron-nucleus, electron-electron distances), **4 interaction layers, written out** { mean over spins, one-electron dense 256, two-electron dense 32 }, orbitals (16 determinants x spin), envelopes, **slogdet** of 5x5 matrices (up, down), log-sum-exp.
3. Nested calls: log|psi| occurs in MCMC body (forward), Laplacian body (jvp of grad ~ 5 forwards), final gradient (forward + backward).
4. Work, in units of one forward on the batch: MCMC 10-11, local energy ~30 x 4-5 = 120-150, parameter gradient 3. So Laplacian ~90% of everything, MCMC ~7%, gradient 2%, Adam 0.
5. First picture: MCMC x10 { log psi } -> local energy { potential ; Laplacian x30 { gradient of log psi, its derivative } } -> energy statistics (all-reduce) -> parameter gradient -> all-reduce -> Adam.
6. Arrows: walkers' positions MCMC -> local energy and gradient (and out); params -> all three; local energies -> weights of gradient.
7. No collectives inside MCMC or Laplacian loops (all local) except pmove's mean at the end.
8. Should not stand out: slogdet's LU of small matrices (5x5; may be compiled as loops x5: compiler's/ library's, not author's), distances, random bits, clipping median.
9. Misleading: the x30 taken for layers or sampling steps; x10 MCMC as main loop.
"""

"""FermiNet-style VMC training step."""
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

MESH = {"walkers": 8}

N, UP, CHARGE = 10, 5, 10.0
LAYERS, ONE, TWO, DETS = 4, 256, 32, 16
WALKERS, MOVES = 512, 10


# ---------------------------------------------------------------- network
def dense_shapes(n_in, n_out):
    return {"w": (n_in, n_out), "b": (n_out,)}


def parameter_shapes():
    layers, one, two = [], 4, 4
    for _ in range(LAYERS):
        layers.append({"one": dense_shapes(3 * one + 2 * two, ONE), "two": dense_shapes(two, TWO)})
        one, two = ONE, TWO
    return {
        "layers": layers,
        "orbitals": {s: dense_shapes(ONE, DETS * UP) for s in ("up", "down")},
        "envelope": {s: {"pi": (DETS, UP), "sigma": (DETS, UP)} for s in ("up", "down")},
    }


def dense(p, x):
    return x @ p["w"] + p["b"]


def residual(x, y):
    return (x + y) / np.sqrt(2) if x.shape == y.shape else y


def input_features(x):
    r = jnp.linalg.norm(x, axis=-1, keepdims=True)
    d = x[:, None] - x[None]
    eye = jnp.eye(N)[..., None]
    rr = jnp.sqrt(jnp.sum(d**2, -1, keepdims=True) + eye) * (1 - eye)
    return jnp.concatenate([x, r], -1), jnp.concatenate([d, rr], -1), r


def interaction_layer(p, h1, h2):
    g = [jnp.broadcast_to(a.mean(0), h1.shape) for a in (h1[:UP], h1[UP:])]
    pair = [a.mean(1) for a in (h2[:, :UP], h2[:, UP:])]
    f = jnp.concatenate([h1, *g, *pair], -1)
    h1 = residual(h1, jnp.tanh(dense(p["one"], f)))
    h2 = residual(h2, jnp.tanh(dense(p["two"], h2)))
    return h1, h2


def orbital_matrices(params, spin, h, r):
    phi = dense(params["orbitals"][spin], h).reshape(UP, DETS, UP)
    env = params["envelope"][spin]
    envelope = env["pi"] * jnp.exp(-jnp.abs(env["sigma"]) * r[:, :, None])
    return (phi * envelope).swapaxes(0, 1)


def logdet_matmul(up, down):
    s1, l1 = jnp.linalg.slogdet(up)
    s2, l2 = jnp.linalg.slogdet(down)
    logs, signs = l1 + l2, s1 * s2
    top = lax.stop_gradient(logs.max())
    total = jnp.sum(signs * jnp.exp(logs - top))
    return jnp.log(jnp.abs(total) + 1e-12) + top


def log_psi(params, x):
    """x: [3N] -> log |psi|"""
    h1, h2, r = input_features(x.reshape(N, 3))
    for p in params["layers"]:
        h1, h2 = interaction_layer(p, h1, h2)
    up = orbital_matrices(params, "up", h1[:UP], r[:UP])
    down = orbital_matrices(params, "down", h1[UP:], r[UP:])
    return logdet_matmul(up, down)


batch_log_psi = jax.vmap(log_psi, (None, 0))


# ---------------------------------------------------------------- sampling and energy
def metropolis(params, key, x, width):
    def move(carry, key):
        x, logp, accepted = carry
        k1, k2 = jax.random.split(key)
        proposal = x + width * jax.random.normal(k1, x.shape)
        new = 2.0 * batch_log_psi(params, proposal)
        take = jnp.log(jax.random.uniform(k2, logp.shape)) < new - logp
        x = jnp.where(take[:, None], proposal, x)
        return (x, jnp.where(take, new, logp), accepted + take.mean()), None

    start = (x, 2.0 * batch_log_psi(params, x), 0.0)
    (x, _, accepted), _ = lax.scan(move, start, jax.random.split(key, MOVES))
    return x, accepted / MOVES


def kinetic_energy(params, x):
    gradient = jax.grad(lambda x: log_psi(params, x))
    eye = jnp.eye(x.shape[0])

    def add_second_derivative(i, total):
        g, d = jax.jvp(gradient, (x,), (eye[i],))
        return total + d[i] + g[i] ** 2

    return -0.5 * lax.fori_loop(0, x.shape[0], add_second_derivative, 0.0)


def potential_energy(x):
    x = x.reshape(N, 3)
    nuclear = -CHARGE * jnp.sum(1 / jnp.linalg.norm(x, axis=-1))
    i, j = np.triu_indices(N, 1)
    return nuclear + jnp.sum(1 / jnp.linalg.norm(x[i] - x[j], axis=-1))


def local_energy(params, x):
    return kinetic_energy(params, x) + potential_energy(x)


def clip_energies(e):
    mean = lax.pmean(e.mean(), "walkers")
    spread = lax.pmean(jnp.abs(e - mean).mean(), "walkers")
    clipped = jnp.clip(e, mean - 5 * spread, mean + 5 * spread)
    return clipped - lax.pmean(clipped.mean(), "walkers"), mean


def energy_gradient(params, x, weights):
    def surrogate(params):
        return 2.0 * jnp.mean(lax.stop_gradient(weights) * batch_log_psi(params, x))

    return lax.pmean(jax.grad(surrogate)(params), "walkers")


tx = optax.chain(
    optax.clip_by_global_norm(1.0),
    optax.adam(lambda n: 1e-3 / (1 + n / 10_000)),
)


def vmc_step(params, opt_state, x, key, width):
    key = jax.random.fold_in(key, lax.axis_index("walkers"))
    x, pmove = metropolis(params, key, x, width)
    energies = jax.vmap(local_energy, (None, 0))(params, x)
    weights, energy = clip_energies(energies)
    grads = energy_gradient(params, x, weights)
    updates, opt_state = tx.update(grads, opt_state, params)
    params = optax.apply_updates(params, updates)
    pmove = lax.pmean(pmove, "walkers")
    width = width * jnp.where(pmove > 0.55, 1.1, jnp.where(pmove < 0.5, 0.9, 1.0))
    variance = lax.pmean(jnp.mean((energies - energy) ** 2), "walkers")
    return params, opt_state, x, width, {"energy": energy, "variance": variance, "pmove": pmove}


def make(mesh):
    rep, dat = P(), P("walkers")
    step = jax.shard_map(
        vmc_step,
        mesh=mesh,
        in_specs=(rep, rep, dat, rep, rep),
        out_specs=(rep, rep, dat, rep, rep),
        check_vma=False,
    )
    S = lambda shape, spec=rep, dtype=jnp.float32: jax.ShapeDtypeStruct(
        shape, dtype, sharding=NamedSharding(mesh, spec)
    )
    params = jax.tree.map(S, parameter_shapes(), is_leaf=lambda s: isinstance(s, tuple))
    opt_state = jax.tree.map(lambda a: S(a.shape, rep, a.dtype), jax.eval_shape(tx.init, params))
    return jax.jit(step, donate_argnums=(0, 1, 2)), (
        params,
        opt_state,
        S((WALKERS, 3 * N), dat),
        S((2,), rep, jnp.uint32),
        S(()),
    )
