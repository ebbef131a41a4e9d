TRUTH = """
PROGRAM gflownet_tb: GFlowNet (sub-trajectory balance), flax linen, single device. P_F transformer (6 x 512), P_B transformer (2 x 128), 8 CNN proxies (vmap), EMA policy used to sample, replay.

(1) EXPECTED BOXES
learn
 - sample_trajectories: step x41 (scan) with the EMA P_F forward (block x6, python loop), categorical, apply_action
 - backward_trajectories: step x40 (scan) with P_B forward (block x2)
 - log_reward: proxy ensemble x8 (vmap; 4 conv, dense) on 512 sequences
 - subtb_loss forward: P_F forward on 41*512 = 20 992 partial sequences (6 blocks), P_B forward (2 blocks), all-pairs residual 42x42x512
 - subtb_loss backward of P_F (6 blocks) and P_B (2 blocks)
 - optimizer clip + adam, EMA update, replay update (top_k)
Work MACs: P_F per sequence: 40 tokens * 6 * 12*512^2 (3.15M) = 755 M (+ attention 40*2*40*512*6 = 20 M).
 sampling: 41 x 256 x 0.775 G = 8.1 T; loss forward 20992 x 0.775 = 16.3 T; backward 32.5 T; P_B per sequence 40*2*12*128^2 = 16 M: 40x256x16M = 0.16 T, loss 0.33 T + 0.66 T.
 proxies: per sequence per member 40*7*256*256*3 = 55 M + dense 40*256*256 = 2.6 M; x 8 x 512 = 0.24 T.
 So: P_F backward ~56 %, P_F loss forward ~28 %, sampling ~14 %. Everything else < 3 %.

(2) FALSE NAMES
"environment simulator (physics)", "critic / value function / advantage / PPO", "decoder with KV cache", "language model head / vocab cross entropy", "causal attention", "target network backward",
"discriminator", "proxy training" (proxies are frozen; no backward), "epochs", "microbatches x41" for the scan, "layers x41". "log Z" is not a separate parameter (flow head).
"generation backward pass" for backward_trajectories (it is a sampling of P_B, not autodiff backward) -- "backward" in the name must not be taken as gradient work.

(3) EXPERT
True
 - Full re-encode of the padded 40-token sequence at every sampling step (no cache possible as prepend shifts; but mask: short sequences still cost 40 tokens): about 2x waste from padding
   in both sampling and loss; also dead (finished) trajectories still computed in sampling and in loss: alive mask only.
 - Loss forward re-evaluates P_F on the states already visited (with EMA params while sampling, so it can't be reused).
 - No remat: activations of 20 992 x 40 x 512 x 4 B = 1.7 GB per tensor, MLP hidden 20 992*40*2048*4 = 6.9 GB per layer (several kept: pre-relu/ relu) , attention 20992*8*40*40*4 = 1.07 GB per layer.
   Peak = > 100 GB in fp32 with 6 layers: won't fit a 16 GB TPU v5e, nor 80 GB GPU. Remedies: bf16, remat, microbatch over time (scan with accumulation), sample a subset of transitions.
   -> OUT OF MEMORY is the main message.
 - fp32 matmuls: bf16.
 - all-pairs residual 42x42x512 small. 
 - sampling loop serial 41 steps, 256 sequences x 40 tokens = 10 240 tokens each - fine utilisation.
 - P_B loop 40 steps is latency bound with tiny work.
False
 - "Any communication", "sampling dominates", "proxy ensemble is a main cost", "KV-cache memory", "gradients flow through the sampled trajectories/scan".
"""

"""GFlowNet for RNA aptamer design (sub-trajectory balance), with a learned backward policy, a
proxy-reward ensemble and a replay of high-reward sequences.  flax.linen, one GPU.

State  = partially built sequence (append/prepend a nucleotide, or stop)
P_F    = transformer on the partial sequence
P_B    = small transformer (remove from the left or the right)
reward = exp(beta * (mean - kappa * std)) of 8 CNN proxies trained elsewhere
"""
import dataclasses

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
from flax.training import train_state

MAX_LEN = 40
N_NT = 4
PAD = 4
ACTIONS = 2 * N_NT + 1  # append a,c,g,u; prepend a,c,g,u; stop
STOP = ACTIONS - 1


@dataclasses.dataclass(frozen=True)
class HP:
    batch: int = 256
    replay: int = 256
    dim_f: int = 512
    dim_b: int = 128
    layers_f: int = 6
    layers_b: int = 2
    members: int = 8
    proxy_ch: int = 256
    eps: float = 0.05
    beta: float = 8.0
    kappa: float = 1.0
    lam: float = 0.9
    ema: float = 0.995


hp = HP()


class EncoderBlock(nn.Module):
    dim: int

    @nn.compact
    def __call__(self, x, mask):
        h = nn.LayerNorm()(x)
        x = x + nn.SelfAttention(num_heads=self.dim // 64, qkv_features=self.dim)(h, mask=mask)
        h = nn.Dense(4 * self.dim)(nn.LayerNorm()(x))
        return x + nn.Dense(self.dim)(nn.relu(h))


class SeqPolicy(nn.Module):
    dim: int
    layers: int
    n_out: int
    flow: bool = False

    @nn.compact
    def __call__(self, seq, length):
        """seq [B, MAX_LEN] padded with PAD."""
        x = nn.Embed(N_NT + 1, self.dim)(seq)
        x = x + self.param("pos", nn.initializers.normal(0.02), (MAX_LEN, self.dim))
        valid = jnp.arange(MAX_LEN)[None] < jnp.maximum(length, 1)[:, None]
        mask = nn.make_attention_mask(valid, valid)
        for i in range(self.layers):
            x = EncoderBlock(self.dim, name=f"block{i}")(x, mask)
        x = nn.LayerNorm()(x)
        pooled = jnp.sum(x * valid[..., None], 1) / jnp.sum(valid, 1, keepdims=True)
        out = nn.Dense(self.n_out, name="actions")(pooled)
        if not self.flow:
            return out
        return out, nn.Dense(1, name="log_flow")(pooled)[:, 0]


class Proxy(nn.Module):
    @nn.compact
    def __call__(self, seq):
        x = jax.nn.one_hot(seq, N_NT + 1)
        for i in range(4):
            h = nn.relu(nn.Conv(hp.proxy_ch, (7,), name=f"conv{i}")(x))
            x = h if i == 0 else x + h
        x = nn.relu(nn.Dense(hp.proxy_ch)(x.reshape(x.shape[0], -1)))
        return nn.Dense(1)(x)[:, 0]


pf = SeqPolicy(hp.dim_f, hp.layers_f, ACTIONS, flow=True)
pb = SeqPolicy(hp.dim_b, hp.layers_b, 2)
proxy = Proxy()


def apply_action(seq, length, a):
    app = jnp.where(jnp.arange(MAX_LEN)[None] == length[:, None], (a % N_NT)[:, None], seq)
    pre = jnp.concatenate([(a % N_NT)[:, None], seq[:, :-1]], 1)
    stop = (a == STOP)[:, None]
    new = jnp.where(stop, seq, jnp.where((a < N_NT)[:, None], app, pre))
    return new, length + (a != STOP)


def legal(length):
    full = length >= MAX_LEN
    short = length < 8
    ok = jnp.ones((length.shape[0], ACTIONS), bool)
    ok = jnp.where(full[:, None], jnp.arange(ACTIONS) == STOP, ok)
    return jnp.where(short[:, None] & (jnp.arange(ACTIONS) == STOP), False, ok)


def sample_trajectories(params, key, n):
    """On-policy rollouts with epsilon exploration; finished sequences idle."""

    def step(carry, k):
        seq, length, done = carry
        logits, _ = pf.apply(params, seq, length)
        ok = legal(length)
        logits = jnp.where(ok, logits, -1e9)
        k1, k2, k3 = jax.random.split(k, 3)
        a = jax.random.categorical(k1, logits)
        u = jax.random.categorical(k2, jnp.where(ok, 0.0, -1e9))
        a = jnp.where(jax.random.bernoulli(k3, hp.eps, (n,)), u, a)
        a = jnp.where(done, STOP, a)
        nxt, nlen = apply_action(seq, length, a)
        return (nxt, nlen, done | (a == STOP)), dict(seq=seq, length=length, a=a, alive=~done)

    start = (jnp.full((n, MAX_LEN), PAD), jnp.zeros((n,), jnp.int32), jnp.zeros((n,), bool))
    (seq, _, _), traj = jax.lax.scan(step, start, jax.random.split(key, MAX_LEN + 1))
    return seq, traj


def backward_trajectories(params_b, seq, key):
    """Deconstruct replayed sequences with P_B; returned in forward order."""
    n = seq.shape[0]
    length0 = jnp.sum(seq != PAD, 1)

    def step(carry, k):
        s, l = carry
        lg = pb.apply(params_b, s, l)
        left = jax.random.categorical(k, lg) == 1
        last = jnp.take_along_axis(s, jnp.maximum(l - 1, 0)[:, None], 1)[:, 0]
        shifted = jnp.concatenate([s[:, 1:], jnp.full((n, 1), PAD)], 1)
        trimmed = jnp.where(jnp.arange(MAX_LEN)[None] == (l - 1)[:, None], PAD, s)
        prev = jnp.where(left[:, None], shifted, trimmed)
        a = jnp.where(left, N_NT + s[:, 0], last)
        live = l > 0
        prev = jnp.where(live[:, None], prev, s)
        pl = jnp.where(live, l - 1, l)
        return (prev, pl), dict(seq=prev, length=pl, a=jnp.clip(a, 0, STOP - 1), alive=live)

    _, rev = jax.lax.scan(step, (seq, length0), jax.random.split(key, MAX_LEN))
    traj = jax.tree.map(lambda x: x[::-1], rev)
    end = dict(seq=seq, length=length0, a=jnp.full((n,), STOP), alive=jnp.ones((n,), bool))
    return jax.tree.map(lambda t, e: jnp.concatenate([t, e[None]]), traj, end)


def log_reward(proxies, seq):
    y = jax.vmap(proxy.apply, in_axes=(0, None))(proxies, seq)
    return hp.beta * (y.mean(0) - hp.kappa * y.std(0))


def subtb_loss(params, traj, logr):
    T, B = traj["a"].shape
    flat = lambda x: x.reshape(T * B, *x.shape[2:])
    logits, logf = pf.apply(params["pf"], flat(traj["seq"]), flat(traj["length"]))
    logits = jnp.where(legal(flat(traj["length"])), logits, -1e9)
    lpf = jnp.take_along_axis(jax.nn.log_softmax(logits), flat(traj["a"])[:, None], 1).reshape(T, B)
    nseq, nlen = apply_action(flat(traj["seq"]), flat(traj["length"]), flat(traj["a"]))
    lpb_all = jax.nn.log_softmax(pb.apply(params["pb"], nseq, nlen))
    which = (flat(traj["a"]) >= N_NT).astype(jnp.int32)
    lpb = jnp.take_along_axis(lpb_all, which[:, None], 1).reshape(T, B)
    lpb = jnp.where(traj["a"] == STOP, 0.0, lpb)
    alive = traj["alive"]
    delta = jnp.where(alive, lpf - lpb, 0.0)
    logf = logf.reshape(T, B)
    logf = jnp.concatenate([jnp.where(alive, logf, logr[None]), logr[None]])
    cum = jnp.concatenate([jnp.zeros((1, B)), jnp.cumsum(delta, 0)])
    # residual for every (i<j): F_i + sum delta - F_j
    m = logf - cum
    res = m[:, None] - m[None, :]
    i, j = jnp.arange(T + 1)[:, None], jnp.arange(T + 1)[None]
    w = jnp.where(j > i, hp.lam ** (j - i), 0.0)
    return jnp.mean(jnp.einsum("ij,ijb->b", w / w.sum(), res**2))


class GFNState(train_state.TrainState):
    ema: object


def learn(state, proxies, replay_seq, key):
    ks = jax.random.split(key, 2)
    seq_on, on = sample_trajectories(state.ema["pf"], ks[0], hp.batch)
    off = backward_trajectories(state.params["pb"], replay_seq, ks[1])
    logr = log_reward(proxies, jnp.concatenate([seq_on, replay_seq]))
    traj = jax.tree.map(lambda a, b: jnp.concatenate([a, b], 1), on, off)
    traj = jax.lax.stop_gradient(traj)
    loss, g = jax.value_and_grad(subtb_loss)(state.params, traj, logr)
    state = state.apply_gradients(grads=g)
    ema = optax.incremental_update(state.params, state.ema, 1 - hp.ema)
    best, idx = jax.lax.top_k(logr, hp.replay)
    replay_seq = jnp.concatenate([seq_on, replay_seq])[idx]
    return state.replace(ema=ema), replay_seq, dict(loss=loss, best=best[0])


def make():
    tx = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(1e-4))
    seq, ln = jnp.zeros((1, MAX_LEN), jnp.int32), jnp.ones((1,), jnp.int32)

    def init(key):
        a, b, c = jax.random.split(key, 3)
        p = dict(pf=pf.init(a, seq, ln), pb=pb.init(b, seq, ln))
        px = jax.vmap(lambda k: proxy.init(k, seq))(jax.random.split(c, hp.members))
        return GFNState.create(apply_fn=None, params=p, tx=tx, ema=p), px

    state, proxies = jax.eval_shape(init, jax.random.PRNGKey(0))
    return (
        jax.jit(learn, donate_argnums=(0, 2)),
        (
            state,
            proxies,
            jax.ShapeDtypeStruct((hp.replay, MAX_LEN), jnp.int32),
            jax.ShapeDtypeStruct((2,), jnp.uint32),
        ),
    )
