TRUTH = """
# es_walker — evolution strategies on a mass-spring walker, 10 generations per call, one shard_map over 8 devices (plain JAX)

## 1 Tree of parts
evolve: **generations: loop x10** {
1. split keys, **sample antithetic noise** (256 pairs per device x 8k parameters), members = theta +- sigma eps (512 per device)
2. **rollout: loop x200 (control steps)**, 512 members at once (vmap) {
   - observe (50 numbers)
   - **policy**: normalise, 3-layer tanh MLP 50-64-64-29, a different weight matrix per member (batched matvec)
   - **physics: loop x8 (substeps)** { spring_forces (29 springs: gather ends, scatter-add forces), ground_contact, integrate }
   - reward, fell, alive }
3. **all_gather of returns** (4096), centered_rank (two argsorts)
4. gradient estimate: ranks @ eps, **psum**
5. adam on theta; update_normalizer with **pmean**
}
## 2 Where the work goes (per device, 28 GF over 10 generations)
rollout 97+%: policy 67%, physics substeps ~30% (springs 20, contact 5, integration 4); sampling noise ~0.5% counted as one op (threefry makes it dearer, a few %); ranks, gradient, adam < 1%.

## 3 First picture
generation x10 { sample noise -> perturb -> rollout x200 { observe, policy MLP, physics x8 } -> all-gather returns, rank -> gradient (dot with noise), psum -> adam, normaliser }. Open: all three nested loops.

## 4 Misleading
- A "forward / backward" division: there is no autodiff at all.
- The 8-turn loop called "layers" or mistaken for the 8 devices. 
- Population (512/device) shown as a loop. 
- Hiding the collectives because they are tiny: they are the algorithm (returns out, one gradient back), once per generation, none in the rollout.
- The index gather/scatter of springs called "embedding".
"""

"""OpenAI-style evolution strategies on a mass-spring walker.

The population is split over the devices of a 1-D mesh with shard_map; every device draws its own antithetic
perturbations, rolls out its members, and only returns (and one weighted noise sum) are exchanged.
"""
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax
from jax.flatten_util import ravel_pytree
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

PAIRS = 2048  # antithetic pairs, whole population = 4096
GENERATIONS = 10  # per call
HORIZON = 200
SUBSTEPS = 8
SIGMA = 0.05
HIDDEN = (64, 64)
DT = 0.004

# walker body: 3 x 4 grid of point masses with structural + diagonal springs, horizontals are muscles
_grid = np.array([(x, y) for x in range(4) for y in range(3)], np.float32) * 0.25
_edges = [
    (i, j)
    for i in range(12)
    for j in range(i + 1, 12)
    if np.linalg.norm(_grid[i] - _grid[j]) < 0.25 * 1.5
]
EI, EJ = np.array([e[0] for e in _edges]), np.array([e[1] for e in _edges])
REST = np.linalg.norm(_grid[EI] - _grid[EJ], axis=-1)
N_MASS, N_EDGE = 12, len(_edges)
OBS = 4 * N_MASS + 2
ACT = N_EDGE


class Body(NamedTuple):
    pos: jax.Array
    vel: jax.Array


class Normalizer(NamedTuple):
    count: jax.Array
    mean: jax.Array
    m2: jax.Array


class ESState(NamedTuple):
    theta: jax.Array
    opt: optax.OptState
    norm: Normalizer
    key: jax.Array


def init_policy(key):
    sizes = (OBS, *HIDDEN, ACT)
    ks = jax.random.split(key, len(sizes) - 1)
    return [
        {"w": jax.random.normal(k, (a, b)) / jnp.sqrt(a), "b": jnp.zeros(b)}
        for k, a, b in zip(ks, sizes, sizes[1:])
    ]


_, UNRAVEL = ravel_pytree(
    jax.tree.map(
        lambda s: np.zeros(s.shape, s.dtype),
        jax.eval_shape(init_policy, jax.ShapeDtypeStruct((2,), jnp.uint32)),
    )
)
DIM = OBS * 64 + 64 + 64 * 64 + 64 + 64 * ACT + ACT


def policy(theta, obs, norm):
    x = jnp.clip((obs - norm.mean) / jnp.sqrt(norm.m2 / norm.count + 1e-4), -5, 5)
    layers = UNRAVEL(theta)
    for l in layers[:-1]:
        x = jnp.tanh(x @ l["w"] + l["b"])
    return jnp.tanh(x @ layers[-1]["w"] + layers[-1]["b"])


def spring_forces(body, rest):
    d = body.pos[EJ] - body.pos[EI]
    length = jnp.sqrt(jnp.sum(d * d, -1) + 1e-8)
    u = d / length[:, None]
    rel = jnp.sum((body.vel[EJ] - body.vel[EI]) * u, -1)
    f = (400.0 * (length - rest) + 2.0 * rel)[:, None] * u
    return jnp.zeros_like(body.pos).at[EI].add(f).at[EJ].add(-f)


def ground_contact(body):
    depth = jnp.maximum(-body.pos[:, 1], 0.0)
    normal = 3000.0 * depth - 10.0 * jnp.minimum(body.vel[:, 1], 0) * (depth > 0)
    friction = -jnp.clip(50.0 * body.vel[:, 0], -0.8 * normal, 0.8 * normal)
    return jnp.stack([friction, normal], -1)


def physics_substep(_, body, rest):
    f = spring_forces(body, rest) + ground_contact(body) + jnp.array([0.0, -9.81])
    vel = body.vel + DT * f
    return Body(body.pos + DT * vel, vel)


def observe(body, t):
    c = body.pos.mean(0)
    phase = 2 * jnp.pi * t * DT * SUBSTEPS
    return jnp.concatenate(
        [(body.pos - c).ravel(), body.vel.ravel(), jnp.array([jnp.sin(phase), jnp.cos(phase)])]
    )


def env_step(body, action):
    rest = REST * (1 + 0.2 * action)
    new = lax.fori_loop(0, SUBSTEPS, partial(physics_substep, rest=rest), body)
    reward = (new.pos[:, 0].mean() - body.pos[:, 0].mean()) / (DT * SUBSTEPS) - 0.01 * jnp.sum(
        action**2
    )
    fell = new.pos[:, 1].max() < 0.2
    return new, reward, fell


def rollout(theta, norm, key):
    body = Body(
        jnp.asarray(_grid) + 0.01 * jax.random.normal(key, (N_MASS, 2)), jnp.zeros((N_MASS, 2))
    )

    def step(c, t):
        body, alive = c
        obs = observe(body, t)
        body, r, fell = env_step(body, policy(theta, obs, norm))
        alive = alive * (1 - fell)
        return (body, alive), (r * alive, obs)

    _, (rewards, obs) = lax.scan(step, (body, jnp.float32(1)), jnp.arange(HORIZON))
    return rewards.sum(), obs.mean(0), (obs**2).mean(0)


def centered_rank(x):
    r = jnp.argsort(jnp.argsort(x))
    return r / (x.shape[0] - 1) - 0.5


def update_normalizer(norm, mean, sq):
    n = jnp.float32(2 * PAIRS * HORIZON)
    mean, sq = lax.pmean((mean.mean(0), sq.mean(0)), "pop")
    delta, tot = mean - norm.mean, norm.count + n
    return Normalizer(
        tot,
        norm.mean + delta * n / tot,
        norm.m2 + (sq - mean**2) * n + delta**2 * norm.count * n / tot,
    )


def generation(tx, state: ESState, _):
    key, k = jax.random.split(state.key)
    k_eps, k_env = jax.random.split(jax.random.fold_in(k, lax.axis_index("pop")))
    local = PAIRS // lax.axis_size("pop")
    eps = jax.random.normal(k_eps, (local, DIM))
    members = jnp.concatenate([state.theta + SIGMA * eps, state.theta - SIGMA * eps])
    env_keys = jax.random.split(k_env, local)
    fit, mean, sq = jax.vmap(rollout, in_axes=(0, None, 0))(
        members, state.norm, jnp.concatenate([env_keys, env_keys])
    )

    everyone = lax.all_gather(fit, "pop", tiled=True)
    ranks = centered_rank(everyone)
    mine = lax.dynamic_slice_in_dim(ranks, lax.axis_index("pop") * 2 * local, 2 * local)
    g = (mine[:local] - mine[local:]) @ eps
    grad = -lax.psum(g, "pop") / (2 * PAIRS * SIGMA) + 0.005 * state.theta
    upd, opt = tx.update(grad, state.opt, state.theta)
    theta = optax.apply_updates(state.theta, upd)
    stats = dict(best=everyone.max(), mean=everyone.mean(), step=jnp.linalg.norm(upd))
    return ESState(theta, opt, update_normalizer(state.norm, mean, sq), key), stats


def evolve(tx, state):
    # the state is replicated: same key everywhere, device id folded in per generation
    return lax.scan(partial(generation, tx), state, None, length=GENERATIONS)


def build(devices=None):
    devices = np.array(jax.devices() if devices is None else devices)[:8]
    mesh = Mesh(devices, ("pop",))
    tx = optax.adam(optax.cosine_decay_schedule(0.02, 3000))
    f = jax.shard_map(partial(evolve, tx), mesh=mesh, in_specs=P(), out_specs=P(), check_vma=False)
    S = lambda s, d=jnp.float32: jax.ShapeDtypeStruct(s, d)
    state = ESState(
        S((DIM,)),
        jax.eval_shape(tx.init, S((DIM,))),
        Normalizer(S(()), S((OBS,)), S((OBS,))),
        S((2,), jnp.uint32),
    )
    state = jax.tree.map(
        lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=NamedSharding(mesh, P())), state
    )
    return jax.jit(f, donate_argnums=0), (state,)
