TRUTH = """
PROGRAM tdmpc_latent: TD-MPC2 (equinox). One call = MPPI planning for 8 envs (vmap) + 4 updates (scan) of world model, policy, 5-Q ensemble, target Qs. Single device.

(1) EXPECTED BOXES
act_and_learn
 - plan (vmapped over 8 envs)
     - encoder (on 8 obs)
     - pi_roll x3 (scan, 24 policy trajectories: pi + dynamics)
     - mppi x6 (fori loop)
         - estimate_value: roll x3 (scan: reward, dynamics), pi_sample, Q ensemble (5), top_k elites, mean/std
     - choice
 - update x4 (scan, UTD)
     - model_loss forward: encoder on next obs (stop grad), pi, target Q ensemble; encoder on obs[0]; unroll x3 (scan dynamics); reward; Q ensemble
     - model_loss backward
     - model optimizer (clip + adam)
     - pi_loss forward (pi, Q ensemble), backward (through Qs to pi)
     - pi optimizer
     - percentile scale
     - target Q EMA
Work MACs: MLP params: encoder .223+1.05+.52=1.8 M; dynamics .563+1.05+.52=2.14 M; reward .563+1.05+.1=1.73 M; Q 1.73 M (x5=8.6 M); pi .52+1.05+.08=1.65 M.
Plan: 8 envs x 512 samples = 4096 rows. Per iteration: 3 x (2.14+1.73) + 1.65 + 8.6 = 21.9 M x 4096 = 90 G; x 6 = 537 G.
 (If XLA prunes Qs [:2] -- it can't generally slice through a batched dot so 5 are computed, some compilers might.) pi_roll 8x24x3x3.8 M = 2.2 G; negligible.
Update: rows 1536 (H*B). encoder next 1536 x 1.8 = 2.8 G; pi 2.5 G; target Q 13.2 G; encoder 0.9 G; dynamics 3.3 G; reward 2.7 G; Q 13.2 G; backward 2 x (0.9+3.3+2.7+13.2)=40 G;
 pi_loss: pi 2.5 + Q 13.2, backward 5 + 13.2 (only input gradients of Q) => 34 G. Sum ~ 113 G x 4 = 450 G.
So plan ~ 54 %, updates ~ 46 %. >10 %: mppi loop (dynamics, reward roll ~ 29 % ; Q ensemble in plan ~ 21 %), model_loss backward (~16 %), Q ensembles in updates, pi_loss (~14 %), model_loss forward (~16 %).

(2) FALSE NAMES
"policy gradient/PPO", "MCTS", "environment step / simulator", "replay buffer sampling" (already drawn), "actor-critic twin Q only 2 members" (5 members), "pi target" (only Qs have target),
"transformer/attention", "encoder target/EMA encoder", "decoder/reconstruction" (no decoder), "microbatch/gradient accumulation x4" for the scan (each iteration is a full update), "layers x3" for the
horizon scans (they are horizon steps), "experts" for the Q ensemble.

(3) EXPERT
True
 - Plan computes all 5 Q members and uses 2 ([:2]): 60 % of its Q work wasted; same in target Q and pi_loss. Slice the ensemble's parameters first.
 - Plan and learning are serial dependent? Planning uses old params, so both are independent; could be overlapped / separate devices.
 - Many sequential small loops: 6 x 3 steps, each 4096 x 1024 matmul—fine on accelerator; update matmuls 1536 rows small: latency / launch bound. fp32 everywhere: use bf16.
 - MPPI samples z is tiled 512 copies of the same z0: first step's layer on z could be shared (dynamics z0 part).
 - Encoder on next obs run separately from obs[0]; could be one batch of H+1; reward loss is batched outside of the scan (good).
 - pi_loss's gradient wrt Q is not formed (only wrt pi) - good. 
 - mean of elite etc negligible. top_k of 512 fine; percentile sorts 1536.
 - No donation: agent + opt states are doubled (small, ~ 23M params).
 - vmap over the ensemble -> batched matmul (5 batch): good.
False
 - "Communication/collectives", "memory-limited", "environment simulation", "target network has a backward", "4 microbatches accumulate gradients", "optimizer dominates".
"""

"""TD-MPC2-like agent, equinox.  One call = plan actions for the vector env + UTD updates on
minibatches already drawn from the replay buffer (stacked on the leading axis)."""
import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import optax

OBS, ACT = 223, 38
LATENT, WIDTH = 512, 1024
N_Q, BINS = 5, 101
HORIZON, BATCH, UTD = 3, 512, 4
ENVS, SAMPLES, ELITES, PI_TRAJ, ITERS = 8, 512, 64, 24, 6
GAMMA, RHO, TAU = 0.99, 0.5, 0.01
VMIN, VMAX = -10.0, 10.0

support = jnp.linspace(VMIN, VMAX, BINS)
symlog = lambda x: jnp.sign(x) * jnp.log1p(jnp.abs(x))
symexp = lambda x: jnp.sign(x) * jnp.expm1(jnp.abs(x))


def two_hot(x):
    x = jnp.clip(symlog(x), VMIN, VMAX)
    pos = (x - VMIN) / (VMAX - VMIN) * (BINS - 1)
    lo = jnp.floor(pos).astype(int)
    f = pos - lo
    return (
        jax.nn.one_hot(lo, BINS) * (1 - f)[..., None]
        + jax.nn.one_hot(jnp.minimum(lo + 1, BINS - 1), BINS) * f[..., None]
    )


def expect(logits):
    return symexp(jax.nn.softmax(logits) @ support)


def soft_ce(logits, target):
    return -jnp.sum(two_hot(target) * jax.nn.log_softmax(logits), -1)


class NormedLinear(eqx.Module):
    lin: eqx.nn.Linear
    ln: eqx.nn.LayerNorm

    def __init__(self, i, o, key):
        self.lin, self.ln = eqx.nn.Linear(i, o, key=key), eqx.nn.LayerNorm(o)

    def __call__(self, x):
        return jax.nn.mish(self.ln(self.lin(x)))


class MLP(eqx.Module):
    hidden: list
    last: eqx.nn.Linear
    simnorm: bool = eqx.field(static=True)

    def __init__(self, i, o, key, depth=2, simnorm=False):
        ks = jr.split(key, depth + 1)
        self.hidden = [NormedLinear(i if n == 0 else WIDTH, WIDTH, ks[n]) for n in range(depth)]
        self.last = eqx.nn.Linear(WIDTH, o, key=ks[-1])
        self.simnorm = simnorm

    def __call__(self, *xs):
        x = jnp.concatenate(xs)
        for h in self.hidden:
            x = h(x)
        x = self.last(x)
        return jax.nn.softmax(x.reshape(-1, 8)).reshape(-1) if self.simnorm else x


class WorldModel(eqx.Module):
    encoder: MLP
    dynamics: MLP
    reward: MLP
    qs: MLP  # leaves have a leading N_Q axis

    def __init__(self, key):
        a, b, c, d = jr.split(key, 4)
        self.encoder = MLP(OBS, LATENT, a, simnorm=True)
        self.dynamics = MLP(LATENT + ACT, LATENT, b, simnorm=True)
        self.reward = MLP(LATENT + ACT, BINS, c)
        self.qs = eqx.filter_vmap(lambda k: MLP(LATENT + ACT, BINS, k))(jr.split(d, N_Q))


def q_logits(qs, z, a):
    """[B,L],[B,A] -> [N_Q,B,BINS]"""
    return eqx.filter_vmap(lambda q: jax.vmap(q)(z, a), in_axes=(eqx.if_array(0),))(qs)


def pi_sample(pi, z, key):
    mu, ls = jnp.split(jax.vmap(pi)(z), 2, -1)
    ls = -10 + 6 * (jnp.tanh(ls) + 1)
    eps = jr.normal(key, mu.shape)
    a = jnp.tanh(mu + jnp.exp(ls) * eps)
    logp = jnp.sum(-0.5 * eps**2 - ls - jnp.log(jax.nn.relu(1 - a**2) + 1e-6), -1)
    return a, logp


class Agent(eqx.Module):
    model: WorldModel
    pi: MLP
    target_qs: MLP

    def __init__(self, key):
        k1, k2 = jr.split(key)
        self.model = WorldModel(k1)
        self.pi = MLP(LATENT, 2 * ACT, k2)
        self.target_qs = self.model.qs


# ------------------------------------------------------------------------ MPPI
def estimate_value(agent, z, actions, key):
    """z [N,L]; actions [H,N,A]."""

    def roll(carry, a):
        z, g, disc = carry
        g = g + disc * expect(jax.vmap(agent.model.reward)(z, a))
        return (jax.vmap(agent.model.dynamics)(z, a), g, disc * GAMMA), None

    (z, g, disc), _ = jax.lax.scan(roll, (z, jnp.zeros(z.shape[0]), 1.0), actions)
    a, _ = pi_sample(agent.pi, z, key)
    two = q_logits(agent.model.qs, z, a)[:2]
    return g + disc * expect(two).mean(0)


def plan(agent, obs, prev_mean, key):
    z0 = agent.model.encoder(obs)
    k_pi, k_it, k_pick = jr.split(key, 3)

    def pi_roll(z, k):
        a, _ = pi_sample(agent.pi, z, k)
        return jax.vmap(agent.model.dynamics)(z, a), a

    _, pi_actions = jax.lax.scan(pi_roll, jnp.tile(z0, (PI_TRAJ, 1)), jr.split(k_pi, HORIZON))
    z = jnp.tile(z0, (SAMPLES, 1))
    mean = jnp.concatenate([prev_mean[1:], jnp.zeros((1, ACT))])

    def mppi(i, carry):
        mean, std, _, _ = carry
        ka, kv = jr.split(jr.fold_in(k_it, i))
        eps = jr.normal(ka, (HORIZON, SAMPLES - PI_TRAJ, ACT))
        acts = jnp.concatenate([jnp.clip(mean[:, None] + std[:, None] * eps, -1, 1), pi_actions], 1)
        v = jnp.nan_to_num(estimate_value(agent, z, acts, kv))
        top, idx = jax.lax.top_k(v, ELITES)
        elite = acts[:, idx]
        w = jax.nn.softmax(0.5 * (top - top[0]))
        mean = jnp.einsum("e,hea->ha", w, elite)
        std = jnp.sqrt(jnp.einsum("e,hea->ha", w, (elite - mean[:, None]) ** 2))
        return mean, jnp.clip(std, 0.05, 2.0), elite, w

    init = (
        mean,
        jnp.full((HORIZON, ACT), 2.0),
        jnp.zeros((HORIZON, ELITES, ACT)),
        jnp.ones(ELITES) / ELITES,
    )
    mean, std, elite, w = jax.lax.fori_loop(0, ITERS, mppi, init)
    return elite[0, jr.choice(k_pick, ELITES, p=w)], mean


# ------------------------------------------------------------------------ learning
model_opt = optax.chain(optax.clip_by_global_norm(20.0), optax.adam(3e-4))
pi_opt = optax.chain(optax.clip_by_global_norm(20.0), optax.adam(3e-4, eps=1e-5))


def model_loss(model, pi, target_qs, mb, key):
    obs, act, rew = mb["obs"], mb["act"], mb["rew"]  # [H+1,B,.] [H,B,.] [H,B]
    enc = jax.vmap(jax.vmap(model.encoder))
    next_z = jax.lax.stop_gradient(enc(obs[1:]))
    flat = next_z.reshape(-1, LATENT)
    a_next, _ = pi_sample(pi, flat, key)
    tq = expect(q_logits(target_qs, flat, a_next)[:2]).min(0).reshape(HORIZON, BATCH)
    td = jax.lax.stop_gradient(rew + GAMMA * tq)

    def unroll(z, xs):
        a, zt = xs
        z_next = jax.vmap(model.dynamics)(z, a)
        return z_next, (z, jnp.mean((z_next - zt) ** 2))

    z0 = jax.vmap(model.encoder)(obs[0])
    _, (zs, cons) = jax.lax.scan(unroll, z0, (act, next_z))
    disc = RHO ** jnp.arange(HORIZON)
    zf, af = zs.reshape(-1, LATENT), act.reshape(-1, ACT)
    r = soft_ce(jax.vmap(model.reward)(zf, af), rew.reshape(-1)).reshape(HORIZON, BATCH).mean(1)
    q = (
        soft_ce(q_logits(model.qs, zf, af), td.reshape(-1)[None])
        .reshape(N_Q, HORIZON, BATCH)
        .mean((0, 2))
    )
    return jnp.sum(disc * (20 * cons + 0.1 * r + 0.1 * q)), zs


def pi_loss(pi, qs, zs, scale, key):
    a, logp = pi_sample(pi, zs.reshape(-1, LATENT), key)
    q = expect(q_logits(qs, zs.reshape(-1, LATENT), a)[:2]).mean(0)
    disc = jnp.repeat(RHO ** jnp.arange(HORIZON), BATCH)
    return jnp.mean(disc * (1e-4 * logp - q / scale)), q


def update(carry, xs):
    agent, o_m, o_p, scale = carry
    mb, key = xs
    k1, k2 = jr.split(key)
    (lm, zs), g = eqx.filter_value_and_grad(model_loss, has_aux=True)(
        agent.model, agent.pi, agent.target_qs, mb, k1
    )
    up, o_m = model_opt.update(g, o_m)
    model = eqx.apply_updates(agent.model, up)
    (lp, q), g = eqx.filter_value_and_grad(pi_loss, has_aux=True)(
        agent.pi, model.qs, jax.lax.stop_gradient(zs), scale, k2
    )
    up, o_p = pi_opt.update(g, o_p)
    pi = eqx.apply_updates(agent.pi, up)
    spread = jnp.percentile(q, 95) - jnp.percentile(q, 5)
    scale = jnp.maximum(1.0, scale + TAU * (spread - scale))
    tgt = jax.tree.map(lambda t, s: t + TAU * (s - t), agent.target_qs, model.qs)
    agent = eqx.tree_at(lambda a: (a.model, a.pi, a.target_qs), agent, (model, pi, tgt))
    return (agent, o_m, o_p, scale), (lm, lp)


def make():
    shape = jax.eval_shape(lambda k: eqx.filter(Agent(k), eqx.is_array), jr.PRNGKey(0))
    static = eqx.filter(
        eqx.filter_eval_shape(Agent, jr.PRNGKey(0)),
        lambda x: not isinstance(x, jax.ShapeDtypeStruct),
    )

    @jax.jit
    def act_and_learn(params, o_m, o_p, scale, obs, prev_mean, replay, key):
        agent = eqx.combine(params, static)
        k1, k2 = jr.split(key)
        action, mean = jax.vmap(plan, in_axes=(None, 0, 0, 0))(
            agent, obs, prev_mean, jr.split(k1, ENVS)
        )

        def body(c, xs):
            (a, *rest), m = update((eqx.combine(c[0], static), *c[1:]), xs)
            return (eqx.filter(a, eqx.is_array), *rest), m

        carry, losses = jax.lax.scan(body, (params, o_m, o_p, scale), (replay, jr.split(k2, UTD)))
        return carry, action, mean, losses

    f = lambda *s: jax.ShapeDtypeStruct(s, jnp.float32)
    replay = dict(
        obs=f(UTD, HORIZON + 1, BATCH, OBS),
        act=f(UTD, HORIZON, BATCH, ACT),
        rew=f(UTD, HORIZON, BATCH),
    )
    o_m, o_p = jax.eval_shape(model_opt.init, shape.model), jax.eval_shape(pi_opt.init, shape.pi)
    return act_and_learn, (
        shape,
        o_m,
        o_p,
        f(),
        f(ENVS, OBS),
        f(ENVS, HORIZON, ACT),
        replay,
        jax.ShapeDtypeStruct((2,), jnp.uint32),
    )
