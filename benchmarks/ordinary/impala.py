TRUTH = """
TOP-LEVEL, IN ORDER
- learner `update`: loss (network unroll over the trajectory -> `vtrace` -> policy-gradient + baseline + entropy losses) -> backward -> optimizer (clip + rmsprop with decaying lr)
- network: `ConvTorso` (3 conv sections) on all T*B frames at once -> concat of reward and one-hot last action -> LSTM scanned over time -> `policy_head` and `value_head`
COUNTS
- conv torso: 3 sections with 16, 32, 32 channels, each = conv, max-pool, 2 residual blocks of 2 convs: 15 convs in total, unrolled
- one LSTM loop of 21 steps forward (and its reversed loop of 21 steps in backward), with state reset where `done`
- one V-trace loop of 20 steps, reversed in time; no gradient flows through it (stop_gradient), so it has no backward loop
- exactly 1 update, no epochs, no minibatch loop
INDEPENDENT
- conv torso over frames is not sequential: done in one batch (21*32 = 672 frames) before the LSTM loop
- policy head and value head are independent of each other; the three losses are independent of each other given V-trace
SHARES
- conv torso ~98% of FLOPs; the first section (16 ch.) is ~35%, second section the largest ~45%, third ~15%, fc ~2%
- LSTM loop(s) ~2%, heads/V-trace/losses negligible; forward ~1/3, backward ~2/3; optimizer none
MUST NOT BE SHOWN
- no environment, no acting/sampling of actions, no target network, no replay buffer, no PPO clipping, no GAE, no collectives
"""
# IMPALA learner step, deep ResNet torso, flax.linen
from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax

NUM_ACTIONS = 15
T, B = 20, 32


class Rollout(NamedTuple):
    # time major; T+1 steps for observation-like fields
    frame: jax.Array  # [T+1, B, 64, 64, 3] uint8
    reward: jax.Array  # [T+1, B]
    done: jax.Array  # [T+1, B]
    last_action: jax.Array  # [T+1, B]
    behaviour_logits: jax.Array  # [T, B, A]
    action: jax.Array  # [T, B]


class ResidualBlock(nn.Module):
    channels: int

    @nn.compact
    def __call__(self, x):
        y = nn.relu(x)
        y = nn.Conv(self.channels, (3, 3), name="conv_0")(y)
        y = nn.relu(y)
        y = nn.Conv(self.channels, (3, 3), name="conv_1")(y)
        return x + y


class ConvTorso(nn.Module):
    @nn.compact
    def __call__(self, x):
        x = x.astype(jnp.float32) / 255.0
        for i, ch in enumerate((16, 32, 32)):
            x = nn.Conv(ch, (3, 3), name=f"section{i}_conv")(x)
            x = nn.max_pool(x, (3, 3), strides=(2, 2), padding="SAME")
            for j in range(2):
                x = ResidualBlock(ch, name=f"section{i}_res{j}")(x)
        x = nn.relu(x).reshape(x.shape[0], -1)
        return nn.relu(nn.Dense(256, name="fc")(x))


class ResetCore(nn.Module):
    """LSTM which zeros its state where the episode ended."""

    @nn.compact
    def __call__(self, carry, inp):
        x, done = inp
        carry = jax.tree.map(lambda s: jnp.where(done[:, None], 0.0, s), carry)
        return nn.OptimizedLSTMCell(256)(carry, x)


class Agent(nn.Module):
    @nn.compact
    def __call__(self, frame, reward, done, last_action, core_state):
        t, b = frame.shape[:2]
        feat = ConvTorso(name="torso")(frame.reshape(t * b, *frame.shape[2:]))
        clipped = jnp.clip(reward, -1, 1).reshape(t * b, 1)
        act = jax.nn.one_hot(last_action.reshape(t * b), NUM_ACTIONS)
        core_in = jnp.concatenate([feat, clipped, act], -1).reshape(t, b, -1)
        core = nn.scan(
            ResetCore,
            variable_broadcast="params",
            split_rngs={"params": False},
            in_axes=0,
            out_axes=0,
        )(name="core")
        core_state, out = core(core_state, (core_in, done))
        logits = nn.Dense(NUM_ACTIONS, name="policy_head")(out)
        value = nn.Dense(1, name="value_head")(out)[..., 0]
        return logits, value, core_state


def log_prob(logits, action):
    return jnp.take_along_axis(jax.nn.log_softmax(logits), action[..., None], -1)[..., 0]


def vtrace(log_rhos, discounts, rewards, values, bootstrap):
    rhos = jnp.exp(log_rhos)
    clipped_rhos = jnp.minimum(1.0, rhos)
    cs = jnp.minimum(1.0, rhos)
    values_tp1 = jnp.concatenate([values[1:], bootstrap[None]], 0)
    deltas = clipped_rhos * (rewards + discounts * values_tp1 - values)

    def body(acc, x):
        discount, c, delta = x
        acc = delta + discount * c * acc
        return acc, acc

    _, vs_minus_v = jax.lax.scan(
        body, jnp.zeros_like(bootstrap), (discounts, cs, deltas), reverse=True
    )
    vs = vs_minus_v + values
    vs_tp1 = jnp.concatenate([vs[1:], bootstrap[None]], 0)
    pg_adv = clipped_rhos * (rewards + discounts * vs_tp1 - values)
    return jax.lax.stop_gradient(vs), jax.lax.stop_gradient(pg_adv)


def policy_gradient_loss(logits, action, adv):
    return -jnp.sum(log_prob(logits, action) * adv)


def baseline_loss(vs, values):
    return 0.5 * jnp.sum((vs - values) ** 2)


def entropy_loss(logits):
    lp = jax.nn.log_softmax(logits)
    return jnp.sum(jnp.exp(lp) * lp)


def make():
    agent = Agent()
    schedule = optax.linear_schedule(6e-4, 0.0, 500_000)
    tx = optax.chain(optax.clip_by_global_norm(40.0), optax.rmsprop(schedule, decay=0.99, eps=0.1))

    def loss_fn(params, traj, core_state):
        logits, values, _ = agent.apply(
            params, traj.frame, traj.reward, traj.done, traj.last_action, core_state
        )
        bootstrap, values, logits = values[-1], values[:-1], logits[:-1]
        rewards = jnp.clip(traj.reward[1:], -1, 1)
        discounts = 0.99 * (1.0 - traj.done[1:])
        log_rhos = log_prob(logits, traj.action) - log_prob(traj.behaviour_logits, traj.action)
        vs, adv = vtrace(*jax.lax.stop_gradient((log_rhos, discounts, rewards, values, bootstrap)))
        pg = policy_gradient_loss(logits, traj.action, adv)
        bl = baseline_loss(vs, values)
        ent = entropy_loss(logits)
        return pg + 0.5 * bl + 0.01 * ent, {"pg": pg, "baseline": bl, "entropy": ent}

    def update(params, opt_state, traj, core_state):
        (loss, logs), grads = jax.value_and_grad(loss_fn, has_aux=True)(params, traj, core_state)
        updates, opt_state = tx.update(grads, opt_state, params)
        params = optax.apply_updates(params, updates)
        return params, opt_state, {"loss": loss, "grad_norm": optax.global_norm(grads), **logs}

    S = jax.ShapeDtypeStruct
    traj = Rollout(
        S((T + 1, B, 64, 64, 3), jnp.uint8),
        S((T + 1, B), jnp.float32),
        S((T + 1, B), jnp.bool_),
        S((T + 1, B), jnp.int32),
        S((T, B, NUM_ACTIONS), jnp.float32),
        S((T, B), jnp.int32),
    )
    core_state = (S((B, 256), jnp.float32), S((B, 256), jnp.float32))
    params = jax.eval_shape(
        agent.init,
        jax.random.key(0),
        traj.frame,
        traj.reward,
        traj.done,
        traj.last_action,
        core_state,
    )
    return update, (params, jax.eval_shape(tx.init, params), traj, core_state)
