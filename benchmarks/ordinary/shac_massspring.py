TRUTH = """
# shac_massspring - one SHAC iteration: policy gradient through differentiable mass-spring rollouts + critic fit; flax.linen, two Adam optimisers, single device, f32

1. Order: **rollout loop x32** (256 environments) { observe, normalise, **actor MLP** 82-256-128-64-55, Gaussian sample; **physics: substep loop x16** (spring forces on 55 springs, ground contact, integrate); reward } -> discounted return + target critic at the end -> **backward through time: loop x32 reversed** { recompute physics x16, **physics backward x16**, actor backward } -> clip, Adam (actor) -> target critic on 32 x 256 next observations, **TD(lambda) loop x32 reversed** -> **critic fit: epochs loop x16** { shuffle; **minibatch loop x4** { critic MLP 82-256-256-128-1 forward, MSE, backward, clip, Adam } } -> target update (0.8 Polyak), observation statistics, reset of finished environments.
   (Springs: 5 x 4 grid with neighbours and diagonals: 31 + 24 = 55.)
2. Matmul work ~0.1 TF: critic fit ~90% (16 x 8192 samples x 0.12 M weights x 6 = 94 GF), physics' incidence-matrix products ~5% (55 x 20 x 2, three per substep; forward, recompute, backward), actor ~3%, target critic ~2%. By time: the sequential 32 x 16 substeps forward, recompute, backward (1536 tiny steps) against 64 critic steps - physics is a large part of the clock in spite of its FLOPs.
3. Loops: rollout x32 > substeps x16; backward x32 > (recompute x16, backward x16); TD(lambda) x32; epochs x16 > minibatches x4. 
4. No mesh.
5. First picture: [x32: actor -> physics x16] -> return -> backward [x32: physics recompute + backward x16, actor backward] -> Adam actor -> TD(lambda) targets -> [x16: [x4: critic forward, backward, Adam]] -> target critic, statistics.
6. Arrows: environment state around the rollout and to the next iteration; observations + rewards to the critic fit; target critic to the return and TD targets; new critic to target.
7. Should not stand out: permutation (sort by random keys), RNG, resets, normalisation, LayerNorm.
8. Typically wrong: TD(lambda) reversed loop called a backward pass; critic fit's backward mixed with the actor's BPTT; physics loop unnamed; recompute x16 called a second rollout; PPO guessed.
"""

"""SHAC (short-horizon actor-critic): policy gradient through a differentiable mass-spring robot.
256 environments, horizon 32 with 16 physics substeps each, TD(lambda) critic. flax.linen, one device."""
from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax

N_ENV, HOR, SUB, DT = 256, 32, 16, 1.0 / 960
GAMMA, LAMBDA = 0.99, 0.95
EPOCHS, MB = 16, 4
MAX_T = 1000

# robot: 5 x 4 grid of masses, structural + diagonal springs, all actuated
gx, gy = np.meshgrid(np.arange(5), np.arange(4), indexing="ij")
REST = np.stack([gx.ravel() * 0.1, gy.ravel() * 0.1 + 0.05], -1).astype(np.float32)
PAIRS = np.array(
    [
        (i, j)
        for i in range(20)
        for j in range(i + 1, 20)
        if np.linalg.norm(REST[i] - REST[j]) < 0.145
    ]
)
LEN0 = np.linalg.norm(REST[PAIRS[:, 0]] - REST[PAIRS[:, 1]], axis=-1).astype(np.float32)
N, NS = len(REST), len(PAIRS)
INC = np.zeros((NS, N), np.float32)
INC[np.arange(NS), PAIRS[:, 0]], INC[np.arange(NS), PAIRS[:, 1]] = 1, -1
STIFF, DAMP, GROUND, FRICTION = 800.0, 1.0, 4000.0, 6.0


class Env(NamedTuple):
    pos: jax.Array
    vel: jax.Array
    t: jax.Array


def reset(key):
    return Env(
        REST + 0.01 * jax.random.normal(key, (N, 2)), jnp.zeros((N, 2)), jnp.zeros((), jnp.int32)
    )


def observe(e):
    c = e.pos.mean(0)
    rel = (e.pos - c.at[1].set(0.0)) * 5.0
    clock = 2 * jnp.pi * e.t / 40
    return jnp.concatenate(
        [rel.ravel(), e.vel.ravel() * 0.3, jnp.sin(clock)[None], jnp.cos(clock)[None]]
    )


def substep(pv, target):
    pos, vel = pv
    d = INC @ pos
    length = jnp.sqrt((d * d).sum(-1) + 1e-9)
    dirn = d / length[:, None]
    rate = ((INC @ vel) * dirn).sum(-1)
    f = -(STIFF * (length - target) + DAMP * rate)[:, None] * dirn
    acc = INC.T @ f + jnp.array([0.0, -9.8])
    depth = nn.relu(-pos[:, 1])
    normal = GROUND * depth - 20.0 * jnp.where(depth > 0, vel[:, 1], 0.0)
    acc = (
        acc.at[:, 1]
        .add(normal)
        .at[:, 0]
        .add(-FRICTION * jnp.tanh(10 * vel[:, 0]) * jnp.sqrt(depth * 100 + 1e-9))
    )
    vel = (vel + DT * acc) * 0.9995
    return (pos + DT * vel, vel), None


def env_step(e, action):
    target = LEN0 * (1 + 0.2 * jnp.tanh(action))
    run = jax.checkpoint(
        lambda pv: jax.lax.scan(lambda c, _: substep(c, target), pv, None, length=SUB)[0]
    )
    pos, vel = run((e.pos, e.vel))
    reward = vel[:, 0].mean() - 0.002 * jnp.square(action).mean() - nn.relu(0.1 - pos[:, 1].mean())
    return Env(pos, vel, e.t + 1), reward


class Actor(nn.Module):
    @nn.compact
    def __call__(self, o):
        for w in (256, 128, 64):
            o = nn.LayerNorm()(nn.elu(nn.Dense(w)(o)))
        mu = nn.Dense(NS, kernel_init=nn.initializers.variance_scaling(0.01, "fan_in", "normal"))(o)
        return mu, self.param("log_std", nn.initializers.constant(-1.0), (NS,))


class Critic(nn.Module):
    @nn.compact
    def __call__(self, o):
        for w in (256, 256, 128):
            o = nn.LayerNorm()(nn.elu(nn.Dense(w)(o)))
        return nn.Dense(1)(o)[..., 0]


actor, critic = Actor(), Critic()
a_tx = optax.chain(
    optax.clip_by_global_norm(1.0), optax.adam(optax.linear_schedule(2e-3, 1e-5, 2000), 0.7, 0.95)
)
c_tx = optax.chain(
    optax.clip_by_global_norm(1.0), optax.adam(optax.linear_schedule(5e-4, 1e-5, 2000), 0.7, 0.95)
)


class State(NamedTuple):
    actor: dict
    critic: dict
    target: dict
    a_opt: optax.OptState
    c_opt: optax.OptState
    env: Env
    obs_mean: jax.Array
    obs_var: jax.Array
    count: jax.Array
    key: jax.Array


OBS = 4 * N + 2


def init(key):
    k = jax.random.split(key, 4)
    a, c = actor.init(k[0], jnp.zeros(OBS)), critic.init(k[1], jnp.zeros(OBS))
    return State(
        a,
        c,
        c,
        a_tx.init(a),
        c_tx.init(c),
        jax.vmap(reset)(jax.random.split(k[2], N_ENV)),
        jnp.zeros(OBS),
        jnp.ones(OBS),
        jnp.ones(()),
        k[3],
    )


def actor_loss(ap, s, key):
    normalise = lambda o: (o - s.obs_mean) / jnp.sqrt(s.obs_var + 1e-5)

    def step(env, key):
        raw = jax.vmap(observe)(env)
        obs = normalise(raw)
        mu, log_std = actor.apply(ap, obs)
        act = mu + jnp.exp(log_std) * jax.random.normal(key, mu.shape)
        env, rew = jax.vmap(env_step)(env, act)
        return env, (raw, obs, rew)

    env, (raw, obs, rew) = jax.lax.scan(step, s.env, jax.random.split(key, HOR))
    last = normalise(jax.vmap(observe)(env))
    disc = GAMMA ** jnp.arange(HOR)
    ret = (disc[:, None] * rew).sum(0) + GAMMA**HOR * critic.apply(s.target, last)
    nxt = jnp.concatenate([obs[1:], last[None]])
    return -ret.mean() / HOR, (env, raw, obs, rew, nxt)


def td_lambda(values, rew):
    def back(g, rv):
        r, v = rv
        g = r + GAMMA * ((1 - LAMBDA) * v + LAMBDA * g)
        return g, g

    return jax.lax.scan(back, values[-1], (rew, values), reverse=True)[1]


def fit_critic(cp, opt, obs, tgt, key):
    n = obs.shape[0]

    def minibatch(c, ot):
        cp, opt = c
        loss, g = jax.value_and_grad(lambda p: jnp.square(critic.apply(p, ot[0]) - ot[1]).mean())(
            cp
        )
        u, opt = c_tx.update(g, opt)
        return (optax.apply_updates(cp, u), opt), loss

    def epoch(c, key):
        perm = jax.random.permutation(key, n).reshape(MB, -1)
        return jax.lax.scan(minibatch, c, (obs[perm], tgt[perm]))

    (cp, opt), losses = jax.lax.scan(epoch, (cp, opt), jax.random.split(key, EPOCHS))
    return cp, opt, losses[-1].mean()


def iteration(s):
    key, k1, k2, k3 = jax.random.split(s.key, 4)
    (al, (env, raw, obs, rew, nxt)), g = jax.value_and_grad(actor_loss, has_aux=True)(
        s.actor, s, k1
    )
    up, a_opt = a_tx.update(g, s.a_opt)
    new_actor = optax.apply_updates(s.actor, up)
    tgt = td_lambda(critic.apply(s.target, nxt), rew)
    cp, c_opt, cl = fit_critic(s.critic, s.c_opt, obs.reshape(-1, OBS), tgt.reshape(-1), k2)
    target = optax.incremental_update(cp, s.target, 0.8)
    n = N_ENV * HOR
    r = n / (s.count + n)
    mean, var = raw.mean((0, 1)), raw.var((0, 1))
    om = s.obs_mean + r * (mean - s.obs_mean)
    ov = (1 - r) * s.obs_var + r * var + r * (1 - r) * jnp.square(mean - s.obs_mean)
    fresh = jax.vmap(reset)(jax.random.split(k3, N_ENV))
    done = (env.t >= MAX_T) | ~jnp.isfinite(env.pos).all((1, 2))
    env = jax.tree.map(
        lambda f, e: jnp.where(done.reshape(-1, *[1] * (e.ndim - 1)), f, e), fresh, env
    )
    s = State(new_actor, cp, target, a_opt, c_opt, env, om, ov, s.count + n, key)
    return s, {"actor": al, "critic": cl, "reward": rew.mean()}


def make():
    state = jax.eval_shape(init, jax.ShapeDtypeStruct((2,), jnp.uint32))
    return jax.jit(iteration, donate_argnums=0), (state,)
