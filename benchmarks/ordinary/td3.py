"""TD3 update: twin critics with target policy smoothing, delayed actor (lax.cond), polyak targets."""

TRUTH = {
    "majors": {
        "target_q (target actor + target critics)": 0.25,
        "critic_loss forward + backward": 0.5,
        "actor_loss (inside cond)": 0.25,
        "soft_update": 0.0,
        "adam x2": 0.02,
    },
    "layers": [],
    "optimizer": True,
    "grad": "critic params; actor params in cond",
    "loops": [],
    "tells_apart": [
        ["critic", "target critic"],
        ["actor", "target actor"],
        ["critic update", "actor update"],
    ],
    "order": [
        ["target actor", "target critic"],
        ["target_q", "critic_loss"],
        ["critic_loss", "critic optimizer"],
        ["critic optimizer", "actor_loss"],
        ["actor optimizer", "soft_update"],
    ],
    "independent": [["online critic forward", "target_q"]],
}
import flax.linen as nn
import jax
import jax.numpy as jnp
import optax

OBS, ACT, B, H = 64, 12, 512, 512


class Actor(nn.Module):
    @nn.compact
    def __call__(self, obs):
        x = nn.relu(nn.Dense(H)(obs))
        x = nn.relu(nn.Dense(H)(x))
        x = nn.relu(nn.Dense(H)(x))
        return jnp.tanh(nn.Dense(ACT, name="action")(x))


class Critic(nn.Module):
    @nn.compact
    def __call__(self, obs, act):
        x = jnp.concatenate([obs, act], -1)
        for i in range(3):
            x = nn.relu(nn.LayerNorm()(nn.Dense(H, name=f"fc{i}")(x)))
        return nn.Dense(1, name="q")(x)[..., 0]


class TwinCritic(nn.Module):
    @nn.compact
    def __call__(self, obs, act):
        return Critic(name="q1")(obs, act), Critic(name="q2")(obs, act)


actor, critic = Actor(), TwinCritic()
actor_tx, critic_tx = optax.adam(1e-3), optax.adam(1e-3)


def target_q(state, batch, key):
    noise = jnp.clip(0.2 * jax.random.normal(key, batch["act"].shape), -0.5, 0.5)
    a = jnp.clip(actor.apply(state["target_actor"], batch["next_obs"]) + noise, -1, 1)
    q1, q2 = critic.apply(state["target_critic"], batch["next_obs"], a)
    return batch["rew"] + 0.99 * (1 - batch["done"]) * jnp.minimum(q1, q2)


def critic_loss(params, batch, y):
    q1, q2 = critic.apply(params, batch["obs"], batch["act"])
    return ((q1 - y) ** 2).mean() + ((q2 - y) ** 2).mean()


def actor_loss(params, critic_params, batch):
    return -critic.apply(critic_params, batch["obs"], actor.apply(params, batch["obs"]))[0].mean()


def soft_update(target, online):
    return jax.tree.map(lambda t, o: 0.995 * t + 0.005 * o, target, online)


def update_critic(state, batch, key):
    y = jax.lax.stop_gradient(target_q(state, batch, key))
    loss, g = jax.value_and_grad(critic_loss)(state["critic"], batch, y)
    u, opt = critic_tx.update(g, state["critic_opt"])
    return {**state, "critic": optax.apply_updates(state["critic"], u), "critic_opt": opt}, loss


def update_actor(state, batch):
    g = jax.grad(actor_loss)(state["actor"], state["critic"], batch)
    u, opt = actor_tx.update(g, state["actor_opt"])
    a = optax.apply_updates(state["actor"], u)
    return {
        **state,
        "actor": a,
        "actor_opt": opt,
        "target_actor": soft_update(state["target_actor"], a),
        "target_critic": soft_update(state["target_critic"], state["critic"]),
    }


@jax.jit
def td3_step(state, batch, key):
    state, loss = update_critic(state, batch, key)
    step = state["step"] + 1
    state = {**state, "step": step}
    state = jax.lax.cond(step % 2 == 0, lambda s: update_actor(s, batch), lambda s: s, state)
    return state, loss


def make():
    f = lambda *s: jax.ShapeDtypeStruct(s, jnp.float32)
    batch = {"obs": f(B, OBS), "next_obs": f(B, OBS), "act": f(B, ACT), "rew": f(B), "done": f(B)}

    def init():
        a = actor.init(jax.random.key(0), jnp.zeros((1, OBS)))
        c = critic.init(jax.random.key(1), jnp.zeros((1, OBS)), jnp.zeros((1, ACT)))
        return {
            "actor": a,
            "critic": c,
            "target_actor": a,
            "target_critic": c,
            "actor_opt": actor_tx.init(a),
            "critic_opt": critic_tx.init(c),
            "step": jnp.int32(0),
        }

    return td3_step, (jax.eval_shape(init), batch, jax.eval_shape(lambda: jax.random.key(0)))
