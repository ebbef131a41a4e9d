TRUTH = """
# ppo_gru — recurrent PPO, whole training in one jit (flax linen, PureJaxRL style), single device

## 1 Tree of parts
train: **updates: loop x10** {
1. **collect (rollout): loop x64**, 512 envs { network: conv, conv, embed, GRU cell, actor & critic heads ; sample action ; **env_step** (move, door, key, reward, reset of done envs, observe 7x7 view) }
2. bootstrap value: network once on the last observation
3. **compute_gae: reverse loop, 64 steps unrolled by 8 -> 8 turns**
4. **update: epochs loop x4** { permutation of envs, shuffle to minibatches ; **minibatches: loop x8** {
     forward { conv, conv, embed on 64x64 frames at once ; **GRU: loop x64** ; heads }
     PPO loss (ratio, clipped actor, clipped critic, entropy)
     backward { heads ; **GRU backward: loop x64** ; embed, convs }
     clip + adam } } }
## 2 Where the work goes (7.6 TF)
update 93%: convs+embed+heads ~52%, GRU ~41% (backward 2/3 of each); rollout ~7% FLOPs (network 0.27+0.26 TF; environments negligible in FLOPs but many small ops, maybe large in time). GAE ~0.

## 3 First picture
update x10 { rollout x64 { policy network, env step } -> GAE -> epoch x4 { shuffle, minibatch x8 { forward (GRU x64), loss, backward (GRU x64), adam } } }. All five nest levels with counts.

## 4 Misleading
- Several loops have count 64: rollouts, GRU fwd, GRU bwd, (GAE 8 turns because of unroll); a picture that names by count only confuses them. There is also an x8 (minibatches) and an x8 (GAE).
- The 1-step nn.scan of the GRU in the rollout (length 1) should disappear.
- Forward/backward at top level: autodiff is four levels down.
- env reset's drawing of random grids each step (reset is computed for all envs at every step) seems heavy in op count: lots of threefry; must not fill the picture.
"""

"""PureJaxRL-like recurrent PPO: the whole training loop (env, rollout, GAE, update) in one jit. Flax linen, one device.

Environment: a 13x13 key-door-goal grid world with a 7x7 egocentric view, auto reset.
"""
from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
from flax.training.train_state import TrainState

NUM_ENVS, NUM_STEPS, UPDATES = 512, 64, 10
EPOCHS, MINIBATCHES = 4, 8
GAMMA, LAM, CLIP, VF, ENT, LR = 0.99, 0.95, 0.2, 0.5, 0.01, 3e-4
HIDDEN = 256
SIZE, VIEW, ACTIONS, MAX_T = 13, 7, 5, 128
MOVES = jnp.array([[-1, 0], [0, 1], [1, 0], [0, -1]])


# ---------------------------------------------------------------- environment
class EnvState(NamedTuple):
    walls: jax.Array  # [SIZE,SIZE] bool
    agent: jax.Array
    key_pos: jax.Array
    door: jax.Array
    goal: jax.Array
    has_key: jax.Array
    t: jax.Array


def reset(key):
    k1, k2, k3, k4, k5 = jax.random.split(key, 5)
    walls = (
        jnp.zeros((SIZE, SIZE), bool)
        .at[0]
        .set(True)
        .at[-1]
        .set(True)
        .at[:, 0]
        .set(True)
        .at[:, -1]
        .set(True)
    )
    col = jax.random.randint(k1, (), 4, SIZE - 4)
    walls = walls.at[:, col].set(True)
    row = jax.random.randint(k2, (), 1, SIZE - 1)
    left = lambda k: jax.random.randint(k, (2,), 1, jnp.array([SIZE - 1, col]))
    goal = jax.random.randint(k5, (2,), jnp.array([1, col + 1]), SIZE - 1)
    return EnvState(
        walls, left(k3), left(k4), jnp.stack([row, col]), goal, jnp.bool_(False), jnp.int32(0)
    )


def observe(s: EnvState):
    grid = jnp.zeros((SIZE, SIZE, 4)).at[..., 0].set(s.walls)
    grid = grid.at[s.key_pos[0], s.key_pos[1], 1].set(1.0 - s.has_key)
    grid = grid.at[s.door[0], s.door[1], 2].set(1.0)
    grid = grid.at[s.goal[0], s.goal[1], 3].set(1.0)
    pad = jnp.pad(grid, ((VIEW // 2,) * 2, (VIEW // 2,) * 2, (0, 0)))
    view = jax.lax.dynamic_slice(pad, (s.agent[0], s.agent[1], 0), (VIEW, VIEW, 4))
    return view, jnp.stack([s.has_key.astype(jnp.float32), s.t / MAX_T])


def env_step(key, s: EnvState, action):
    target = s.agent + jnp.where(action < 4, MOVES[jnp.minimum(action, 3)], 0)
    at_door = jnp.all(target == s.door)
    blocked = s.walls[target[0], target[1]] & ~(at_door & s.has_key)
    agent = jnp.where(blocked, s.agent, target)
    picked = (action == 4) & jnp.all(agent == s.key_pos) & ~s.has_key
    won = jnp.all(agent == s.goal)
    t = s.t + 1
    done = won | (t >= MAX_T)
    reward = won * (1 - 0.9 * t / MAX_T) + 0.1 * picked
    nxt = s._replace(agent=agent, has_key=s.has_key | picked, t=t)
    nxt = jax.tree.map(lambda a, b: jnp.where(done, a, b), reset(key), nxt)
    return nxt, observe(nxt), reward, done


# ---------------------------------------------------------------- network
class ScannedGRU(nn.Module):
    @nn.compact
    def __call__(self, carry, inp):
        return nn.scan(GRUStep, variable_broadcast="params", split_rngs={"params": False})(
            name="gru"
        )(carry, inp)


class GRUStep(nn.Module):
    @nn.compact
    def __call__(self, h, inp):
        x, reset = inp
        h = jnp.where(reset[:, None], 0.0, h)
        h, y = nn.GRUCell(HIDDEN)(h, x)
        return h, y


class ActorCritic(nn.Module):
    @nn.compact
    def __call__(self, carry, obs, resets):
        view, extra = obs
        x = nn.relu(nn.Conv(32, (3, 3), padding="VALID")(view))
        x = nn.relu(nn.Conv(64, (3, 3), padding="VALID")(x))
        x = jnp.concatenate([x.reshape(*x.shape[:-3], -1), extra], -1)
        x = nn.relu(nn.Dense(HIDDEN, name="embed")(x))
        carry, x = ScannedGRU()(carry, (x, resets))
        a = nn.relu(nn.Dense(128, name="actor_hidden")(x))
        logits = nn.Dense(ACTIONS, name="actor")(a)
        v = nn.relu(nn.Dense(128, name="critic_hidden")(x))
        return carry, logits, nn.Dense(1, name="critic")(v)[..., 0]


class Transition(NamedTuple):
    obs: tuple
    reset: jax.Array
    action: jax.Array
    logp: jax.Array
    value: jax.Array
    reward: jax.Array
    done: jax.Array


class Runner(NamedTuple):
    train: TrainState
    env: EnvState
    obs: tuple
    done: jax.Array
    hidden: jax.Array
    key: jax.Array


net = ActorCritic()


def log_prob(logits, action):
    return jnp.take_along_axis(jax.nn.log_softmax(logits), action[..., None], -1)[..., 0]


def collect(r: Runner):
    def _env_step(r, _):
        key, ka, ke = jax.random.split(r.key, 3)
        one = jax.tree.map(lambda a: a[None], (r.obs, r.done))
        hidden, logits, value = net.apply(r.train.params, r.hidden, *one)
        action = jax.random.categorical(ka, logits[0])
        env, obs, reward, done = jax.vmap(env_step)(jax.random.split(ke, NUM_ENVS), r.env, action)
        tr = Transition(r.obs, r.done, action, log_prob(logits[0], action), value[0], reward, done)
        return r._replace(env=env, obs=obs, done=done, hidden=hidden, key=key), tr

    return jax.lax.scan(_env_step, r, None, NUM_STEPS)


def compute_gae(traj, last_value):
    def back(c, tr):
        adv, nxt = c
        delta = tr.reward + GAMMA * nxt * (1 - tr.done) - tr.value
        adv = delta + GAMMA * LAM * (1 - tr.done) * adv
        return (adv, tr.value), adv

    _, adv = jax.lax.scan(
        back, (jnp.zeros_like(last_value), last_value), traj, reverse=True, unroll=8
    )
    return adv, adv + traj.value


def ppo_loss(params, h0, traj, adv, target):
    _, logits, value = net.apply(params, h0, traj.obs, traj.reset)
    ratio = jnp.exp(log_prob(logits, traj.action) - traj.logp)
    adv = (adv - adv.mean()) / (adv.std() + 1e-8)
    actor = -jnp.minimum(ratio * adv, jnp.clip(ratio, 1 - CLIP, 1 + CLIP) * adv).mean()
    vclip = traj.value + jnp.clip(value - traj.value, -CLIP, CLIP)
    critic = 0.5 * jnp.maximum((value - target) ** 2, (vclip - target) ** 2).mean()
    p = jax.nn.softmax(logits)
    entropy = -jnp.sum(p * jax.nn.log_softmax(logits), -1).mean()
    return actor + VF * critic - ENT * entropy, (actor, critic, entropy)


def update_epoch(carry, _):
    train, h0, traj, adv, target, key = carry
    key, kp = jax.random.split(key)
    perm = jax.random.permutation(kp, NUM_ENVS)

    def shuffle(x):  # [T, envs, ...] -> [minibatches, T, envs/minibatches, ...]
        x = jnp.take(x, perm, axis=1)
        return jnp.swapaxes(x.reshape(x.shape[0], MINIBATCHES, -1, *x.shape[2:]), 0, 1)

    batches = jax.tree.map(shuffle, (h0[None], traj, adv, target))

    def update_minibatch(train, mb):
        h, tr, a, tg = mb
        (loss, aux), grads = jax.value_and_grad(ppo_loss, has_aux=True)(
            train.params, h[0], tr, a, tg
        )
        return train.apply_gradients(grads=grads), (loss, *aux)

    train, losses = jax.lax.scan(update_minibatch, train, batches)
    return (train, h0, traj, adv, target, key), losses


def update_step(r: Runner, _):
    h0 = r.hidden
    r, traj = collect(r)
    _, _, last = net.apply(
        r.train.params, r.hidden, *jax.tree.map(lambda a: a[None], (r.obs, r.done))
    )
    adv, target = compute_gae(traj, last[0])
    key, k = jax.random.split(r.key)
    (train, *_), losses = jax.lax.scan(
        update_epoch, (r.train, h0, traj, adv, target, k), None, EPOCHS
    )
    metric = dict(
        reward=traj.reward.sum() / jnp.maximum(traj.done.sum(), 1),
        loss=jax.tree.map(jnp.mean, losses),
    )
    return r._replace(train=train, key=key), metric


def train(r: Runner):
    return jax.lax.scan(update_step, r, None, UPDATES)


def make_runner(key):
    k1, k2, k3 = jax.random.split(key, 3)
    env = jax.vmap(reset)(jax.random.split(k1, NUM_ENVS))
    obs, h, done = jax.vmap(observe)(env), jnp.zeros((NUM_ENVS, HIDDEN)), jnp.zeros(NUM_ENVS, bool)
    params = net.init(k2, h, *jax.tree.map(lambda a: a[None], (obs, done)))
    tx = optax.chain(optax.clip_by_global_norm(0.5), optax.adam(LR, eps=1e-5))
    return Runner(
        TrainState.create(apply_fn=net.apply, params=params, tx=tx), env, obs, done, h, k3
    )


def build(devices=None):
    sh = None if devices is None else jax.sharding.SingleDeviceSharding(devices[0])
    r = jax.eval_shape(make_runner, jax.ShapeDtypeStruct((2,), jnp.uint32))
    r = jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=sh), r)
    return jax.jit(train, donate_argnums=0), (r,)
