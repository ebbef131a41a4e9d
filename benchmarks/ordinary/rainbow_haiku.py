TRUTH = """
# rainbow_haiku - Rainbow-like DQN (haiku), all on the device: environment, replay, learner; one call = 64 iterations; one device

1. Outermost: **iterations: loop x64**. In each, in order:
   a. **act: loop x4** environment steps in 128 parallel games { noisy Q-network forward, greedy action, step "catch" game, auto-reset, render 10x10x2 observation }
   b. **write replay** (512 transitions into ring buffer of 32768, with max priority)
   c. **sample** 256 by priority (cumsum + searchsorted), importance weights
   d. **learn**: online network on next obs (double-Q argmax), target network on next obs, **project** the distribution (C51, 51 atoms), online network on obs, cross entropy, backward, clip, Adam
   e. **update priorities**; target network refreshed each 8th iteration (select/cond).
2. Network: conv 3x3x32, conv 3x3x64, noisy dense 256, dueling noisy heads (value 51, advantage 3 x 51).
3. Work ~0.8 TF: acting ~28% (512 forwards), learning ~72% (online grad 3 x 256 = 43%, double-Q forward 14%, target forward 14%). Conv 2 and the dense layer half each. Game, replay and projection ~0 FLOPs, but the cumsum of 32768 and scatter may cost time.
4. First picture: x64 { act x4 { Q network, game step } -> replay write -> sample -> learn { double-Q, target, projection, loss, backward } -> Adam -> priorities -> target refresh }.
5. Arrows: replay buffer (big carry, in place) write -> sample; TD error -> priorities; params -> act & learn; target params only into learn.
6. Should not stand out: noise sampling (factorised Gaussian), random bits, game logic.
7. Misleading: x4 or x64 named layers; acting's network merged with the learner's.
8. No backward through acting or game.
"""

"""Distributional, double, duelling, noisy, prioritised DQN on a catch game."""
from typing import Any, NamedTuple

import haiku as hk
import jax
import jax.numpy as jnp
import optax

ENVS, ACT_STEPS, ITERATIONS = 128, 4, 64
BUFFER, BATCH, REFRESH = 32768, 256, 8
ACTIONS, ATOMS, VMIN, VMAX, GAMMA = 3, 51, -2.0, 2.0, 0.97
SIZE = 10


# ---------------------------------------------------------------- game
class Game(NamedTuple):
    ball: jax.Array  # (row, column, direction)
    paddle: jax.Array


def new_game(key):
    column, direction = jax.random.split(key)
    return Game(
        jnp.stack(
            [0, jax.random.randint(column, (), 0, SIZE), jax.random.randint(direction, (), -1, 2)]
        ),
        jnp.int32(SIZE // 2),
    )


def render(game):
    grid = jnp.arange(SIZE)
    ball = (grid[:, None] == game.ball[0]) & (grid[None] == game.ball[1])
    paddle = (grid[:, None] == SIZE - 1) & (jnp.abs(grid[None] - game.paddle) <= 1)
    return jnp.stack([ball, paddle], -1).astype(jnp.uint8)


def game_step(key, game, action):
    paddle = jnp.clip(game.paddle + action - 1, 0, SIZE - 1)
    row, column, direction = game.ball
    bounce = (column + direction < 0) | (column + direction >= SIZE)
    direction = jnp.where(bounce, -direction, direction)
    ball = jnp.stack([row + 1, column + direction, direction])
    done = ball[0] == SIZE - 1
    caught = jnp.abs(ball[1] - paddle) <= 1
    reward = jnp.where(done, jnp.where(caught, 1.0, -1.0), 0.0)
    fresh = new_game(key)
    after = jax.tree.map(lambda a, b: jnp.where(done, a, b), fresh, Game(ball, paddle))
    return after, reward, done


# ---------------------------------------------------------------- network
class NoisyLinear(hk.Module):
    def __init__(self, size, name=None):
        super().__init__(name)
        self.size = size

    def __call__(self, x):
        n = x.shape[-1]
        init = hk.initializers.RandomUniform(-(n**-0.5), n**-0.5)
        w = hk.get_parameter("w", (n, self.size), init=init)
        b = hk.get_parameter("b", (self.size,), init=init)
        sw = hk.get_parameter(
            "sigma_w", (n, self.size), init=hk.initializers.Constant(0.5 * n**-0.5)
        )
        sb = hk.get_parameter("sigma_b", (self.size,), init=hk.initializers.Constant(0.5 * n**-0.5))
        squash = lambda e: jnp.sign(e) * jnp.sqrt(jnp.abs(e))
        e_in = squash(jax.random.normal(hk.next_rng_key(), (n, 1)))
        e_out = squash(jax.random.normal(hk.next_rng_key(), (1, self.size)))
        return x @ (w + sw * e_in * e_out) + b + sb * e_out[0]


def q_network(obs):
    """[B, 10, 10, 2] -> logits [B, ACTIONS, ATOMS]"""
    x = obs.astype(jnp.float32)
    x = jax.nn.relu(hk.Conv2D(32, 3, name="conv1")(x))
    x = jax.nn.relu(hk.Conv2D(64, 3, name="conv2")(x))
    x = jax.nn.relu(NoisyLinear(256, name="torso")(hk.Flatten()(x)))
    value = NoisyLinear(ATOMS, name="value")(x)[:, None]
    advantage = NoisyLinear(ACTIONS * ATOMS, name="advantage")(x).reshape(-1, ACTIONS, ATOMS)
    return value + advantage - advantage.mean(1, keepdims=True)


net = hk.transform(q_network)
tx = optax.chain(optax.clip_by_global_norm(10.0), optax.adam(3e-4, eps=1.5e-4))
SUPPORT = [VMIN + (VMAX - VMIN) * i / (ATOMS - 1) for i in range(ATOMS)]


def expected_q(logits):
    return jnp.sum(jax.nn.softmax(logits) * jnp.array(SUPPORT), -1)


class Replay(NamedTuple):
    obs: jax.Array
    next_obs: jax.Array
    action: jax.Array
    reward: jax.Array
    discount: jax.Array
    priority: jax.Array
    place: jax.Array


class Learner(NamedTuple):
    params: Any
    target: Any
    opt: Any
    games: Game
    replay: Replay
    key: jax.Array
    count: jax.Array


def act(params, key, games):
    def one(games, key):
        k_net, k_game = jax.random.split(key)
        obs = jax.vmap(render)(games)
        action = expected_q(net.apply(params, k_net, obs)).argmax(-1)
        games, reward, done = jax.vmap(game_step)(jax.random.split(k_game, ENVS), games, action)
        discount = GAMMA * (1.0 - done)
        return games, (obs, jax.vmap(render)(games), action, reward, discount)

    games, steps = jax.lax.scan(one, games, jax.random.split(key, ACT_STEPS))
    return games, jax.tree.map(lambda a: a.reshape(-1, *a.shape[2:]), steps)


def write_replay(r, steps):
    n = ENVS * ACT_STEPS
    rows = (r.place + jnp.arange(n)) % BUFFER
    new = [a.at[rows].set(s.astype(a.dtype)) for a, s in zip(r[:5], steps)]
    return Replay(*new, r.priority.at[rows].set(r.priority.max() + 1e-3), (r.place + n) % BUFFER)


def sample_replay(r, key):
    mass = jnp.cumsum(r.priority**0.5)
    points = (jnp.arange(BATCH) + jax.random.uniform(key, (BATCH,))) / BATCH * mass[-1]
    rows = jnp.clip(jnp.searchsorted(mass, points), 0, BUFFER - 1)
    weight = (r.priority[rows] ** 0.5 / mass[-1] * BUFFER + 1e-6) ** -0.4
    return rows, weight / weight.max(), [a[rows] for a in r[:5]]


def project_distribution(probs, reward, discount):
    """C51 projection of reward + discount * support back on the support"""
    z = jnp.clip(reward[:, None] + discount[:, None] * jnp.array(SUPPORT), VMIN, VMAX)
    delta = (VMAX - VMIN) / (ATOMS - 1)
    closeness = jnp.clip(1 - jnp.abs(z[:, None] - jnp.array(SUPPORT)[None, :, None]) / delta, 0, 1)
    return jnp.sum(closeness * probs[:, None], -1)


def rainbow_loss(params, target, key, weight, batch):
    obs, next_obs, action, reward, discount = batch
    k1, k2, k3 = jax.random.split(key, 3)
    chosen = expected_q(net.apply(params, k1, next_obs)).argmax(-1)
    next_logits = net.apply(target, k2, next_obs)
    probs = jax.nn.softmax(next_logits[jnp.arange(BATCH), chosen])
    goal = jax.lax.stop_gradient(project_distribution(probs, reward, discount))
    logits = net.apply(params, k3, obs)[jnp.arange(BATCH), action]
    error = optax.softmax_cross_entropy(logits, goal)
    return jnp.mean(weight * error), error


def iteration(s: Learner, _):
    key, k_act, k_sample, k_learn = jax.random.split(s.key, 4)
    games, steps = act(s.params, k_act, s.games)
    replay = write_replay(s.replay, steps)
    rows, weight, batch = sample_replay(replay, k_sample)
    grad_fn = jax.value_and_grad(rainbow_loss, has_aux=True)
    (loss, error), grads = grad_fn(s.params, s.target, k_learn, weight, batch)
    updates, opt = tx.update(grads, s.opt, s.params)
    params = optax.apply_updates(s.params, updates)
    replay = replay._replace(priority=replay.priority.at[rows].set(error))
    target = optax.periodic_update(params, s.target, s.count, REFRESH)
    metrics = {"loss": loss, "reward": steps[3].sum() / ENVS}
    return Learner(params, target, opt, games, replay, key, s.count + 1), metrics


def train(learner):
    return jax.lax.scan(iteration, learner, None, length=ITERATIONS)


def make():
    def init(key):
        obs = jnp.zeros((1, SIZE, SIZE, 2), jnp.uint8)
        params = net.init(key, obs)
        games = jax.vmap(new_game)(jax.random.split(key, ENVS))
        frames = jnp.zeros((BUFFER, SIZE, SIZE, 2), jnp.uint8)
        zero = jnp.zeros(BUFFER)
        replay = Replay(
            frames, frames, jnp.zeros(BUFFER, jnp.int32), zero, zero, zero, jnp.int32(0)
        )
        return Learner(params, params, tx.init(params), games, replay, key, jnp.int32(0))

    learner = jax.eval_shape(init, jax.ShapeDtypeStruct((2,), jnp.uint32))
    return jax.jit(train, donate_argnums=0), (learner,)
