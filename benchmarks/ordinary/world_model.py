TRUTH = """
# world_model — Dreamer-like update (equinox), single device, three losses and three optimisers

update:
1. **world model**
   a. world_loss forward { **encoder** (4 strided convs over B*T=512 images 64x64), **observe: loop x32 (time)** { obs_step { img_step: inp, GRU cell, prior_net, sample ; post_net, sample } }, **decoder** (linear + 4 transposed convs), reward head, cont head, losses (recon, reward, cont, KL dyn/rep with free nats) }
   b. world_loss backward { heads, **decoder backward**, **observe backward loop x32**, **encoder backward** }
   c. clip + adam on world model
2. **imagination: loop x15 (H)**, 512 trajectories { actor, categorical, img_step { inp, GRU, prior_net (logits + sample) } }
3. reward / cont / critic heads on imagined feats (15x512); **lambda_return: reverse loop x14**; weights (cumprod)
4. **actor** { actor_loss forward, backward, clip+adam } (percentile = sort)
5. **critic** { critic_loss (critic + slow critic), backward, clip+adam }
6. slow critic EMA

Loops: 32 fwd, 32 bwd, 15, 14. No collectives.
Heaviest: decoder (transposed convs at 32->64 etc.) and encoder convolutions, backward more than forward: decoder backward the heaviest. Observe's post_net weight (3328x256) per step.
Names: "encoder", "observe x32", "decoder", "heads", "world loss", "imagine x15", "lambda_return", "actor loss", "critic loss", "adam", "slow critic".

(Source has named_scope "world_model" around 1 and "imagination" around 2; nothing else.)
"""
"""Dreamer-like agent update in Equinox: RSSM world model on replay sequences, actor-critic in imagination."""
import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import optax

B, T, H = 16, 32, 15
STOCH, CLASSES, DETER, HID, ACT = 16, 16, 256, 256, 6
FEAT = DETER + STOCH * CLASSES


class ConvEncoder(eqx.Module):
    convs: list

    def __init__(self, key):
        ks = jr.split(key, 4)
        ch = [3, 24, 48, 96, 192]
        self.convs = [eqx.nn.Conv2d(ch[i], ch[i + 1], 4, 2, 1, key=ks[i]) for i in range(4)]

    def __call__(self, img):
        x = img
        for c in self.convs:
            x = jax.nn.silu(c(x))
        return x.reshape(-1)


class ConvDecoder(eqx.Module):
    inp: eqx.nn.Linear
    deconvs: list

    def __init__(self, key):
        ks = jr.split(key, 5)
        ch = [192, 96, 48, 24, 3]
        self.inp = eqx.nn.Linear(FEAT, 192 * 16, key=ks[4])
        self.deconvs = [
            eqx.nn.ConvTranspose2d(ch[i], ch[i + 1], 4, 2, padding=1, key=ks[i]) for i in range(4)
        ]

    def __call__(self, feat):
        x = self.inp(feat).reshape(192, 4, 4)
        for d in self.deconvs[:-1]:
            x = jax.nn.silu(d(x))
        return self.deconvs[-1](x) + 0.5


def mlp(i, o, k, depth=2):
    return eqx.nn.MLP(i, o, HID, depth, activation=jax.nn.silu, key=k)


class RSSM(eqx.Module):
    inp: eqx.nn.Linear
    cell: eqx.nn.GRUCell
    prior_net: eqx.nn.MLP
    post_net: eqx.nn.MLP

    def __init__(self, key, embed):
        k1, k2, k3, k4 = jr.split(key, 4)
        self.inp = eqx.nn.Linear(STOCH * CLASSES + ACT, HID, key=k1)
        self.cell = eqx.nn.GRUCell(HID, DETER, key=k2)
        self.prior_net = mlp(DETER, STOCH * CLASSES, k3, 1)
        self.post_net = mlp(DETER + embed, STOCH * CLASSES, k4, 1)

    @staticmethod
    def _sample(logits, key):
        logits = logits.reshape(STOCH, CLASSES)
        probs = 0.99 * jax.nn.softmax(logits) + 0.01 / CLASSES
        logits = jnp.log(probs)
        hard = jax.nn.one_hot(jr.categorical(key, logits), CLASSES)
        return (hard + probs - jax.lax.stop_gradient(probs)).reshape(-1), logits

    def img_step(self, deter, stoch, action, key):
        x = jax.nn.silu(self.inp(jnp.concatenate([stoch, action])))
        deter = self.cell(x, deter)
        stoch, prior = self._sample(self.prior_net(deter), key)
        return deter, stoch, prior

    def obs_step(self, deter, stoch, action, embed, first, key):
        deter, stoch, action = (jnp.where(first, 0.0, z) for z in (deter, stoch, action))
        k1, k2 = jr.split(key)
        deter, _, prior = self.img_step(deter, stoch, action, k1)
        stoch, post = self._sample(self.post_net(jnp.concatenate([deter, embed])), k2)
        return deter, stoch, post, prior


class WorldModel(eqx.Module):
    encoder: ConvEncoder
    rssm: RSSM
    decoder: ConvDecoder
    reward: eqx.nn.MLP
    cont: eqx.nn.MLP

    def __init__(self, key):
        k = jr.split(key, 5)
        self.encoder = ConvEncoder(k[0])
        self.rssm = RSSM(k[1], 192 * 16)
        self.decoder = ConvDecoder(k[2])
        self.reward = mlp(FEAT, 1, k[3])
        self.cont = mlp(FEAT, 1, k[4])

    def observe(self, embeds, actions, firsts, key):
        def f(carry, x):
            d, s = carry
            d, s, post, prior = self.rssm.obs_step(d, s, *x)
            return (d, s), (d, s, post, prior)

        init = (jnp.zeros(DETER), jnp.zeros(STOCH * CLASSES))
        return jax.lax.scan(f, init, (actions, embeds, firsts, jr.split(key, T)))[1]


def kl(p, q):
    return jnp.sum(jnp.exp(p) * (p - q), (-1, -2))


def symlog(x):
    return jnp.sign(x) * jnp.log1p(jnp.abs(x))


def world_loss(wm, data, key):
    vv = lambda f: jax.vmap(jax.vmap(f))
    embeds = vv(wm.encoder)(data["image"])
    deter, stoch, post, prior = jax.vmap(wm.observe)(
        embeds, data["action"], data["first"], jr.split(key, B)
    )
    feat = jnp.concatenate([deter, stoch], -1)
    recon = jnp.sum((vv(wm.decoder)(feat) - data["image"]) ** 2, (-1, -2, -3))
    rew = (vv(wm.reward)(feat)[..., 0] - symlog(data["reward"])) ** 2
    con = optax.sigmoid_binary_cross_entropy(vv(wm.cont)(feat)[..., 0], 1.0 - data["terminal"])
    sg = jax.lax.stop_gradient
    dyn = jnp.maximum(kl(sg(post), prior), 1.0)
    rep = jnp.maximum(kl(post, sg(prior)), 1.0)
    return jnp.mean(recon + rew + con + 0.5 * dyn + 0.1 * rep), (sg(deter), sg(stoch))


def imagine(wm, actor, start, key):
    def f(carry, k):
        d, s = carry
        ka, ks = jr.split(k)
        logits = jax.vmap(actor)(jnp.concatenate([d, s], -1))
        a = jax.nn.one_hot(jr.categorical(ka, logits), ACT)
        d2, s2, _ = jax.vmap(wm.rssm.img_step)(d, s, a, jr.split(ks, d.shape[0]))
        return (d2, s2), (jnp.concatenate([d, s], -1), a)

    return jax.lax.scan(f, start, jr.split(key, H))[1]


def lambda_return(rew, disc, val, lam=0.95):
    def f(acc, x):
        r, d, v = x
        acc = r + d * ((1 - lam) * v + lam * acc)
        return acc, acc

    return jax.lax.scan(f, val[-1], (rew[:-1], disc[:-1], val[1:]), reverse=True)[1]


def actor_loss(actor, feats, acts, ret, val, weight):
    logp = jax.nn.log_softmax(jax.vmap(jax.vmap(actor))(feats[:-1]))
    ent = -jnp.sum(jnp.exp(logp) * logp, -1)
    scale = jnp.maximum(1.0, jnp.percentile(ret, 95) - jnp.percentile(ret, 5))
    adv = (ret - val[:-1]) / scale
    return -jnp.mean(weight * (jnp.sum(logp * acts[:-1], -1) * adv + 3e-4 * ent))


def critic_loss(critic, slow, feats, ret, weight):
    v = jax.vmap(jax.vmap(critic))(feats[:-1])[..., 0]
    t = jax.vmap(jax.vmap(slow))(feats[:-1])[..., 0]
    return jnp.mean(weight * ((v - ret) ** 2 + (v - t) ** 2))


wm_opt = optax.chain(optax.clip_by_global_norm(1000.0), optax.adam(1e-4))
ac_opt = optax.chain(optax.clip_by_global_norm(100.0), optax.adam(3e-5))


def apply_grads(opt, model, grads, state):
    upd, state = opt.update(grads, state)
    return eqx.apply_updates(model, upd), state


def make_update(static):
    def update(arrays, opt, data, key):
        wm, actor, critic, slow = eqx.combine(arrays, static)
        k1, k2 = jr.split(key)
        with jax.named_scope("world_model"):
            (wl, start), g = eqx.filter_value_and_grad(world_loss, has_aux=True)(wm, data, k1)
            wm, o_wm = apply_grads(wm_opt, wm, g, opt[0])

        start = tuple(z.reshape(B * T, -1) for z in start)
        with jax.named_scope("imagination"):
            feats, acts = imagine(wm, actor, start, k2)
        rew = jax.vmap(jax.vmap(wm.reward))(feats)[..., 0]
        disc = 0.997 * jax.nn.sigmoid(jax.vmap(jax.vmap(wm.cont))(feats)[..., 0])
        val = jax.vmap(jax.vmap(critic))(feats)[..., 0]
        ret = lambda_return(rew, disc, val)
        weight = jnp.cumprod(jnp.concatenate([jnp.ones_like(disc[:1]), disc[:-2]]), 0)

        al, g = eqx.filter_value_and_grad(actor_loss)(actor, feats, acts, ret, val, weight)
        actor, o_a = apply_grads(ac_opt, actor, g, opt[1])
        cl, g = eqx.filter_value_and_grad(critic_loss)(critic, slow, feats, ret, weight)
        critic, o_c = apply_grads(ac_opt, critic, g, opt[2])
        slow = jax.tree.map(
            lambda s, c: 0.98 * s + 0.02 * c if eqx.is_inexact_array(s) else s, slow, critic
        )
        arrays, _ = eqx.partition((wm, actor, critic, slow), eqx.is_array)
        return arrays, (o_wm, o_a, o_c), dict(world=wl, actor=al, critic=cl)

    return update


def build(devices=None):
    def make(k):
        k = jr.split(k, 3)
        c = mlp(FEAT, 1, k[2])
        return WorldModel(k[0]), mlp(FEAT, ACT, k[1]), c, c

    S = jax.ShapeDtypeStruct
    models = eqx.filter_eval_shape(make, S((2,), jnp.uint32))
    is_arr = lambda x: isinstance(x, S)
    arrays, static = eqx.partition(models, is_arr)
    opt = tuple(jax.eval_shape(o.init, a) for o, a in zip((wm_opt, ac_opt, ac_opt), arrays[:3]))
    data = dict(
        image=S((B, T, 3, 64, 64), jnp.float32),
        action=S((B, T, ACT), jnp.float32),
        first=S((B, T), jnp.bool_),
        reward=S((B, T), jnp.float32),
        terminal=S((B, T), jnp.float32),
    )
    return jax.jit(make_update(static)), (arrays, opt, data, S((2,), jnp.uint32))


def make():
    return build()
