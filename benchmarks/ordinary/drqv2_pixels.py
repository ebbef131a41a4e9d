TRUTH = """
# drqv2_pixels - DrQ-v2 from pixels; flax.linen + optax.adam, scan of 8 updates on ready batches, one device, f32

1. Order: **loop x8 updates**, each { random shift augmentation of obs and next obs (pad 4, crop) -> **target**: encoder(next) -> actor + clipped noise -> target twin Q, min -> y = r + discount * q -> **critic update**: encoder(obs), trunk, twin Q (2 heads by nn.vmap), squared errors, backward through critic AND encoder, Adam for critic, Adam for encoder -> **actor update**: detached features, actor + noise, updated critic's min Q, backward to the actor only, Adam -> **soft target update** tau 0.01 } -> mean of the logs.
   Encoder: 4 convs 3x3x32 (stride 2,1,1,1) on 84x84x9 -> 35x35x32 = 39200 features. Trunk: 39200->50, LayerNorm, tanh (one in the actor, one in the critic). Heads: 50(+6)->1024->1024->out.
2. Work per update ~105 GF (batch 256), all ~0.84 TF: convolutional encoder ~82% (next forward 1, obs forward 1, obs backward ~2 parts), trunks ~9%, MLP heads ~9%. Critic update (with the encoder) ~65%, target ~24%, actor update ~10%. Optimizers ~0 FLOPs; trunk weights 2 M each x (actor, critic, target).
3. Loops: 8 updates. Everything else unrolled. Random shift is a vmapped dynamic_slice (gather).
4. No mesh.
5. First picture: loop x8 { augment -> target Q | critic + encoder update | actor update -> target EMA }.
6. Arrows: agent (params of encoder, actor, critic, target, 3 Adam states) around the loop; batch of iteration i; y -> critic loss; z (detached) -> actor loss; updated critic -> actor loss; updated critic -> target.
7. Should not stand out: RNG, noise clipping, std schedule, straight-through clip, logs.
8. Typically wrong: both encoder applications shown as one; twin Q (axis of 2) called two different networks or batch; loop x8 taken as layers; three Adams merged or unnamed; target network taken as a trained one; augmentation's gather made big; no critic gradient in the actor step (it is only passed through).
"""

"""DrQ-v2 (Yarats et al. 2021) agent update from pixels, DM-control. 8 updates per call."""
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax

UPDATES, BATCH = 8, 256
FRAME, STACK = 84, 3
ACT = 6
FEATURE, HIDDEN = 50, 1024
TAU, CLIP = 0.01, 0.3
LR = 1e-4
PAD = 4


class PixelEncoder(nn.Module):
    @nn.compact
    def __call__(self, obs):
        x = obs / 255.0 - 0.5
        for i, stride in enumerate((2, 1, 1, 1)):
            x = nn.relu(
                nn.Conv(
                    32,
                    (3, 3),
                    stride,
                    padding="VALID",
                    kernel_init=nn.initializers.orthogonal(2**0.5),
                    name=f"conv{i}",
                )(x)
            )
        return x.reshape(x.shape[0], -1)


def trunk(x):
    x = nn.Dense(FEATURE)(x)
    return nn.tanh(nn.LayerNorm()(x))


class Actor(nn.Module):
    @nn.compact
    def __call__(self, z):
        h = trunk(z)
        h = nn.relu(nn.Dense(HIDDEN)(h))
        h = nn.relu(nn.Dense(HIDDEN)(h))
        return nn.tanh(nn.Dense(ACT)(h))


class QHead(nn.Module):
    @nn.compact
    def __call__(self, h):
        h = nn.relu(nn.Dense(HIDDEN)(h))
        h = nn.relu(nn.Dense(HIDDEN)(h))
        return nn.Dense(1)(h)[..., 0]


class Critic(nn.Module):
    @nn.compact
    def __call__(self, z, action):
        h = jnp.concatenate([trunk(z), action], -1)
        twin = nn.vmap(
            QHead,
            in_axes=None,
            out_axes=0,
            axis_size=2,
            variable_axes={"params": 0},
            split_rngs={"params": True},
        )
        return twin(name="twin")(h)


encoder, actor, critic = PixelEncoder(), Actor(), Critic()
opt = optax.adam(LR)


class Agent(NamedTuple):
    encoder: Any
    actor: Any
    critic: Any
    target: Any
    encoder_opt: Any
    actor_opt: Any
    critic_opt: Any
    step: jax.Array


def init_agent(key):
    k1, k2, k3 = jax.random.split(key, 3)
    pe = encoder.init(k1, jnp.zeros((1, FRAME, FRAME, 3 * STACK)))
    z = encoder.apply(pe, jnp.zeros((1, FRAME, FRAME, 3 * STACK)))
    pa = actor.init(k2, z)
    pc = critic.init(k3, z, jnp.zeros((1, ACT)))
    return Agent(pe, pa, pc, pc, opt.init(pe), opt.init(pa), opt.init(pc), jnp.zeros((), jnp.int32))


def random_shift(key, imgs):
    """pad by 4 (edge) and shift with bilinear interpolation, one shift per image"""
    x = jnp.pad(imgs.astype(jnp.float32), ((0, 0), (PAD, PAD), (PAD, PAD), (0, 0)), mode="edge")
    shift = jax.random.randint(key, (imgs.shape[0], 2), 0, 2 * PAD + 1)

    def one(img, s):
        return jax.lax.dynamic_slice(img, (s[0], s[1], 0), (FRAME, FRAME, 3 * STACK))

    return jax.vmap(one)(x, shift)


def stddev(step):
    mix = jnp.clip(step / 500_000, 0.0, 1.0)
    return (1 - mix) * 1.0 + mix * 0.1


def noisy(key, mu, std):
    eps = jnp.clip(std * jax.random.normal(key, mu.shape), -CLIP, CLIP)
    a = mu + eps
    clipped = jnp.clip(a, -1 + 1e-6, 1 - 1e-6)
    return a + jax.lax.stop_gradient(clipped - a)


def update(agent: Agent, xs):
    batch, key = xs
    k_aug1, k_aug2, k_next, k_pi = jax.random.split(key, 4)
    std = stddev(agent.step)
    obs = random_shift(k_aug1, batch["obs"])
    next_obs = random_shift(k_aug2, batch["next_obs"])

    # --- target
    next_z = encoder.apply(agent.encoder, next_obs)
    next_a = noisy(k_next, actor.apply(agent.actor, next_z), std)
    next_q = critic.apply(agent.target, next_z, next_a).min(0)
    y = batch["reward"] + batch["discount"] * next_q  # n-step return is made by the replay buffer

    # --- critic + encoder
    def critic_loss(pc, pe):
        z = encoder.apply(pe, obs)
        q = critic.apply(pc, z, batch["action"])
        return jnp.square(q - y[None]).sum(0).mean(), (z, q)

    (c_loss, (z, q)), (gc, ge) = jax.value_and_grad(critic_loss, (0, 1), has_aux=True)(
        agent.critic, agent.encoder
    )
    uc, critic_opt = opt.update(gc, agent.critic_opt)
    ue, encoder_opt = opt.update(ge, agent.encoder_opt)
    new_critic = optax.apply_updates(agent.critic, uc)
    new_encoder = optax.apply_updates(agent.encoder, ue)

    # --- actor on detached features
    z = jax.lax.stop_gradient(z)

    def actor_loss(pa):
        a = noisy(k_pi, actor.apply(pa, z), std)
        return -critic.apply(new_critic, z, a).min(0).mean()

    a_loss, ga = jax.value_and_grad(actor_loss)(agent.actor)
    ua, actor_opt = opt.update(ga, agent.actor_opt)
    new_actor = optax.apply_updates(agent.actor, ua)

    target = optax.incremental_update(new_critic, agent.target, TAU)
    agent = Agent(
        new_encoder,
        new_actor,
        new_critic,
        target,
        encoder_opt,
        actor_opt,
        critic_opt,
        agent.step + 1,
    )
    return agent, {
        "critic_loss": c_loss,
        "actor_loss": a_loss,
        "q": q.mean(),
        "batch_reward": batch["reward"].mean(),
    }


def update_many(agent, batches, key):
    agent, logs = jax.lax.scan(update, agent, (batches, jax.random.split(key, UPDATES)))
    return agent, jax.tree.map(jnp.mean, logs)


def make():
    key = jax.ShapeDtypeStruct((2,), jnp.uint32)
    sds = lambda *s, d=jnp.float32: jax.ShapeDtypeStruct((UPDATES, BATCH, *s), d)
    img = sds(FRAME, FRAME, 3 * STACK, d=jnp.uint8)
    batches = {"obs": img, "next_obs": img, "action": sds(ACT), "reward": sds(), "discount": sds()}
    return jax.jit(update_many, donate_argnums=0), (jax.eval_shape(init_agent, key), batches, key)
