"""WGAN-GP in Flax NNX: n_critic critic updates in a loop, then one generator update."""

TRUTH = {
    "majors": {
        "critic step x5 (critic on real, on fake, gradient penalty, second-order backward)": 0.85,
        "generator step (generator fwd+bwd through critic)": 0.15,
        "gradient_penalty": 0.3,
        "Adam of critic and generator": 0.0,
    },
    "layers": [["Generator up-block", 4], ["Critic down-block", 4]],
    "optimizer": True,
    "grad": "critic params (with an inner gradient to the interpolated images), then generator params",
    "loops": [["critic_step scan", 5]],
    "tells_apart": [["generator", "critic"], ["real", "fake"], ["gen_opt", "critic_opt"]],
}

import jax
import jax.numpy as jnp
import optax
from flax import nnx

LATENT = 128
BATCH = 32
N_CRITIC = 5
LAMBDA = 10.0
BASE = 64


class UpBlock(nnx.Module):
    def __init__(self, cin, cout, *, rngs):
        self.conv = nnx.ConvTranspose(cin, cout, (4, 4), strides=(2, 2), padding="SAME", rngs=rngs)
        self.norm = nnx.LayerNorm(cout, rngs=rngs)

    def __call__(self, x):
        return jax.nn.relu(self.norm(self.conv(x)))


class DownBlock(nnx.Module):
    def __init__(self, cin, cout, *, rngs):
        self.conv = nnx.Conv(cin, cout, (4, 4), strides=(2, 2), padding="SAME", rngs=rngs)

    def __call__(self, x):
        return jax.nn.leaky_relu(self.conv(x), 0.2)


class Generator(nnx.Module):
    def __init__(self, *, rngs):
        self.fc = nnx.Linear(LATENT, 4 * 4 * 8 * BASE, rngs=rngs)
        chans = [8 * BASE, 8 * BASE, 4 * BASE, 2 * BASE, BASE]
        self.blocks = nnx.List([UpBlock(a, b, rngs=rngs) for a, b in zip(chans[:-1], chans[1:])])
        self.to_rgb = nnx.Conv(BASE, 3, (3, 3), rngs=rngs)

    def __call__(self, z):
        x = self.fc(z).reshape(-1, 4, 4, 8 * BASE)
        for block in self.blocks:
            x = block(x)
        return jnp.tanh(self.to_rgb(x))


class Critic(nnx.Module):
    def __init__(self, *, rngs):
        chans = [3, BASE, 2 * BASE, 4 * BASE, 8 * BASE]
        self.blocks = nnx.List([DownBlock(a, b, rngs=rngs) for a, b in zip(chans[:-1], chans[1:])])
        self.fc = nnx.Linear(4 * 4 * 8 * BASE, 1, rngs=rngs)

    def __call__(self, x):
        for block in self.blocks:
            x = block(x)
        return self.fc(x.reshape(x.shape[0], -1))[:, 0]


gen_tx = optax.adam(1e-4, b1=0.0, b2=0.9)
critic_tx = optax.adam(1e-4, b1=0.0, b2=0.9)


def build():
    rngs = nnx.Rngs(0)
    gen, critic = Generator(rngs=rngs), Critic(rngs=rngs)
    return gen, critic


def make_step(gen_def, critic_def):
    def generate(gen_state, z):
        return nnx.merge(gen_def, gen_state)(z)

    def score(critic_state, x):
        return nnx.merge(critic_def, critic_state)(x)

    def gradient_penalty(critic_state, real, fake, key):
        eps = jax.random.uniform(key, (real.shape[0], 1, 1, 1))
        x = eps * real + (1 - eps) * fake
        grads = jax.grad(lambda x: score(critic_state, x).sum())(x)
        norms = jnp.sqrt(jnp.sum(grads**2, axis=(1, 2, 3)) + 1e-12)
        return jnp.mean((norms - 1) ** 2)

    def critic_loss(critic_state, gen_state, real, key):
        kz, kp = jax.random.split(key)
        fake = jax.lax.stop_gradient(
            generate(gen_state, jax.random.normal(kz, (real.shape[0], LATENT)))
        )
        wdist = score(critic_state, real).mean() - score(critic_state, fake).mean()
        gp = gradient_penalty(critic_state, real, fake, kp)
        return -wdist + LAMBDA * gp, (wdist, gp)

    def generator_loss(gen_state, critic_state, key):
        fake = generate(gen_state, jax.random.normal(key, (BATCH, LATENT)))
        return -score(critic_state, fake).mean()

    @jax.jit
    def train_step(gen_state, critic_state, gen_opt, critic_opt, reals, key):
        def critic_step(carry, inputs):
            critic_state, critic_opt = carry
            real, key = inputs
            (_, info), grads = jax.value_and_grad(critic_loss, has_aux=True)(
                critic_state, gen_state, real, key
            )
            updates, critic_opt = critic_tx.update(grads, critic_opt)
            return (optax.apply_updates(critic_state, updates), critic_opt), info

        key, sub = jax.random.split(key)
        keys = jax.random.split(sub, N_CRITIC)
        (critic_state, critic_opt), (wdist, gp) = jax.lax.scan(
            critic_step, (critic_state, critic_opt), (reals, keys)
        )

        g_loss, grads = jax.value_and_grad(generator_loss)(gen_state, critic_state, key)
        updates, gen_opt = gen_tx.update(grads, gen_opt)
        gen_state = optax.apply_updates(gen_state, updates)
        return (
            gen_state,
            critic_state,
            gen_opt,
            critic_opt,
            {"w": wdist.mean(), "gp": gp.mean(), "g": g_loss},
        )

    return train_step


def make():
    gen, critic = nnx.eval_shape(build)
    gen_def, gen_state = nnx.split(gen)
    critic_def, critic_state = nnx.split(critic)
    gen_opt = jax.eval_shape(gen_tx.init, gen_state)
    critic_opt = jax.eval_shape(critic_tx.init, critic_state)
    reals = jax.ShapeDtypeStruct((N_CRITIC, BATCH, 64, 64, 3), jnp.float32)
    key = jax.eval_shape(lambda: jax.random.key(0))
    return make_step(gen_def, critic_def), (
        gen_state,
        critic_state,
        gen_opt,
        critic_opt,
        reals,
        key,
    )
