"""Soft Actor-Critic update: twin critics, target critics, tanh-Gaussian actor, learned temperature."""

TRUTH = {
    "majors": {
        "update_critic (double critic fwd+bwd)": 0.4,
        "target critic forward": 0.12,
        "update_actor (actor fwd+bwd through critic)": 0.45,
        "update_temperature": 0.0,
        "soft update of target_params": 0.0,
        "Adam of actor, critic and temperature": 0.01,
    },
    "layers": [["hidden Dense per net", 3]],
    "optimizer": True,
    "grad": "critic params (critic loss), actor params (actor loss), log_alpha",
    "loops": [],
    "tells_apart": [["critic", "target_critic"], ["actor", "critic"]],
}

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from flax import linen as nn

OBS, ACT = 376, 17
BATCH = 1024
HIDDEN = (512, 512, 512)
GAMMA, TAU = 0.99, 0.005
TARGET_ENTROPY = -ACT / 2
LOG_STD_MIN, LOG_STD_MAX = -10.0, 2.0


class MLP(nn.Module):
    hidden: Sequence[int]

    @nn.compact
    def __call__(self, x):
        for size in self.hidden:
            x = nn.Dense(size, kernel_init=nn.initializers.orthogonal(jnp.sqrt(2)))(x)
            x = nn.LayerNorm()(x)
            x = nn.relu(x)
        return x


class Actor(nn.Module):
    @nn.compact
    def __call__(self, obs):
        h = MLP(HIDDEN)(obs)
        mean = nn.Dense(ACT, name="mean")(h)
        log_std = nn.Dense(ACT, name="log_std")(h)
        log_std = jnp.clip(log_std, LOG_STD_MIN, LOG_STD_MAX)
        return mean, log_std


class Critic(nn.Module):
    @nn.compact
    def __call__(self, obs, act):
        h = MLP(HIDDEN)(jnp.concatenate([obs, act], -1))
        return nn.Dense(1)(h).squeeze(-1)


class DoubleCritic(nn.Module):
    num_qs: int = 2

    @nn.compact
    def __call__(self, obs, act):
        ensemble = nn.vmap(
            Critic,
            variable_axes={"params": 0},
            split_rngs={"params": True},
            in_axes=None,
            out_axes=0,
            axis_size=self.num_qs,
        )
        return ensemble()(obs, act)


class Batch(NamedTuple):
    obs: Any
    actions: Any
    rewards: Any
    masks: Any
    next_obs: Any


class Agent(NamedTuple):
    actor: Any
    critic: Any
    target_critic: Any
    log_alpha: Any
    actor_opt: Any
    critic_opt: Any
    alpha_opt: Any
    key: Any


actor_net, critic_net = Actor(), DoubleCritic()
actor_tx = optax.adam(3e-4)
critic_tx = optax.adam(3e-4)
alpha_tx = optax.adam(3e-4)


def sample_action(params, obs, key):
    mean, log_std = actor_net.apply(params, obs)
    noise = jax.random.normal(key, mean.shape)
    pre = mean + noise * jnp.exp(log_std)
    logp = -0.5 * (noise**2 + 2 * log_std + jnp.log(2 * jnp.pi))
    logp = logp - 2 * (jnp.log(2.0) - pre - jax.nn.softplus(-2 * pre))
    return jnp.tanh(pre), logp.sum(-1)


def update_critic(agent, batch, key):
    next_actions, next_logp = sample_action(agent.actor, batch.next_obs, key)
    next_q = critic_net.apply(agent.target_critic, batch.next_obs, next_actions).min(axis=0)
    next_v = next_q - jnp.exp(agent.log_alpha) * next_logp
    target = jax.lax.stop_gradient(batch.rewards + GAMMA * batch.masks * next_v)

    def critic_loss(params):
        q = critic_net.apply(params, batch.obs, batch.actions)
        return ((q - target[None]) ** 2).mean(), q.mean()

    (loss, q), grads = jax.value_and_grad(critic_loss, has_aux=True)(agent.critic)
    updates, opt = critic_tx.update(grads, agent.critic_opt)
    critic = optax.apply_updates(agent.critic, updates)
    return agent._replace(critic=critic, critic_opt=opt), {"critic_loss": loss, "q": q}


def update_target(agent):
    target = optax.incremental_update(agent.critic, agent.target_critic, TAU)
    return agent._replace(target_critic=target)


def update_actor(agent, batch, key):
    def actor_loss(params):
        actions, logp = sample_action(params, batch.obs, key)
        q = critic_net.apply(agent.critic, batch.obs, actions).min(axis=0)
        return (jnp.exp(agent.log_alpha) * logp - q).mean(), -logp.mean()

    (loss, entropy), grads = jax.value_and_grad(actor_loss, has_aux=True)(agent.actor)
    updates, opt = actor_tx.update(grads, agent.actor_opt)
    actor = optax.apply_updates(agent.actor, updates)
    return agent._replace(actor=actor, actor_opt=opt), {"actor_loss": loss, "entropy": entropy}


def update_temperature(agent, entropy):
    def temperature_loss(log_alpha):
        return jnp.exp(log_alpha) * (entropy - TARGET_ENTROPY)

    loss, grad = jax.value_and_grad(temperature_loss)(agent.log_alpha)
    update, opt = alpha_tx.update(grad, agent.alpha_opt)
    return agent._replace(log_alpha=optax.apply_updates(agent.log_alpha, update), alpha_opt=opt), {
        "alpha_loss": loss
    }


@jax.jit
def update(agent, batch):
    key, k1, k2 = jax.random.split(agent.key, 3)
    agent = agent._replace(key=key)
    agent, critic_info = update_critic(agent, batch, k1)
    agent = update_target(agent)
    agent, actor_info = update_actor(agent, batch, k2)
    agent, alpha_info = update_temperature(agent, actor_info["entropy"])
    return agent, {**critic_info, **actor_info, **alpha_info}


def create_agent(key):
    key, k1, k2 = jax.random.split(key, 3)
    obs, act = jnp.zeros((1, OBS)), jnp.zeros((1, ACT))
    actor = actor_net.init(k1, obs)
    critic = critic_net.init(k2, obs, act)
    log_alpha = jnp.zeros(())
    return Agent(
        actor,
        critic,
        critic,
        log_alpha,
        actor_tx.init(actor),
        critic_tx.init(critic),
        alpha_tx.init(log_alpha),
        key,
    )


def make():
    f = lambda *s: jax.ShapeDtypeStruct((BATCH, *s), jnp.float32)
    agent = jax.eval_shape(create_agent, jax.random.key(0))
    batch = Batch(f(OBS), f(ACT), f(), f(), f(OBS))
    return update, (agent, batch)
