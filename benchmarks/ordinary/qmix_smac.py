TRUTH = """
# qmix_smac - QMIX on StarCraft-like episodes, a block of 8 gradient steps on a replay buffer; one device; one long function

1. Order: **updates: loop x8** { sample 64 episodes from the replay buffer (gather) -> **agent network over time: loop x121** { input layer 150->256, GRU 256, Q head 256->14 } run twice: **online** (needs gradient) and **target** (no gradient) -> mask unavailable actions, double-Q arg max from online, take target values -> **mixer**: hyper-networks from the state for online and target mixers -> TD error, masked mean -> **backward through time: loop x121 (reversed)** -> clip by norm 10, RMSprop -> soft update of the target parameters }.
2. Work ~1.81 TF in all, 226 GF per update. Agent loops ~93% (online forward ~24%, target ~24%, backward ~45%), mixers ~7%. In the agent the GRU's two matrices are ~90%.
3. The 8 agents share one network: they are folded into the batch (64 x 8 = 512 rows); no loop over agents.
4. First picture: x8 { sample -> online agent x121, target agent x121 -> Q choice -> mixers -> loss -> backward x121 -> RMSprop -> target update }.
5. Arrows: batch's obs -> both time loops; hidden states saved -> backward loop; state -> mixers; carried params, target, RMS averages around x8.
6. Should not stand out: masks, one-hot of last action, agent ids, abs/elu of the mixer, random numbers of the sampling.
7. Misleading: 8 updates against 8 agents; the compiler may fuse or move the online and target loops, but they are two different networks; two time loops forward are not "two layers".
"""

# QMIX, jax version.  based on my pymarl notes.  TODO: n-step returns
import jax
import jax.nn as jnn
import jax.numpy as jnp

N_AG, N_ACT, OBS, STATE = 8, 14, 128, 216
HID, EMB, HYP = 256, 64, 256
CAP, T, BS = 1024, 120, 64
N_UPD = 8
GAMMA = 0.99


def init_shapes():
    S = lambda *s: jax.ShapeDtypeStruct(s, jnp.float32)
    return {
        "agent": {
            "fc1_w": S(OBS + N_ACT + N_AG, HID),
            "fc1_b": S(HID),
            "gru_i": S(HID, 3 * HID),
            "gru_h": S(HID, 3 * HID),
            "gru_b": S(3 * HID),
            "gru_bn": S(HID),
            "fc2_w": S(HID, N_ACT),
            "fc2_b": S(N_ACT),
        },
        "mixer": {
            "hw1_a": S(STATE, HYP),
            "hw1_b": S(HYP, N_AG * EMB),
            "hb1": S(STATE, EMB),
            "hw2_a": S(STATE, HYP),
            "hw2_b": S(HYP, EMB),
            "v_a": S(STATE, EMB),
            "v_b": S(EMB, 1),
        },
    }


def learner_block(params, target, sq, buf, key):

    def agent_rollout(a, xs):
        # xs: [T+1, B*N, in]
        def tick(h, x):
            z = jnn.relu(x @ a["fc1_w"] + a["fc1_b"])
            gi = z @ a["gru_i"] + a["gru_b"]
            gh = h @ a["gru_h"]
            ir, iz, in_ = jnp.split(gi, 3, -1)
            hr, hz, hn = jnp.split(gh, 3, -1)
            r = jnn.sigmoid(ir + hr)
            u = jnn.sigmoid(iz + hz)
            n = jnp.tanh(in_ + r * (hn + a["gru_bn"]))
            h = (1 - u) * n + u * h
            return h, h @ a["fc2_w"] + a["fc2_b"]

        h0 = jnp.zeros((xs.shape[1], HID))
        _, q = jax.lax.scan(tick, h0, xs)
        return q

    def mixer(m, qs, s):
        # qs [B,T,N]  s [B,T,S]
        w1 = jnp.abs(jnn.relu(s @ m["hw1_a"]) @ m["hw1_b"]).reshape(*s.shape[:2], N_AG, EMB)
        b1 = s @ m["hb1"]
        hid = jnn.elu(jnp.einsum("btn,btne->bte", qs, w1) + b1)
        w2 = jnp.abs(jnn.relu(s @ m["hw2_a"]) @ m["hw2_b"])
        v = (jnn.relu(s @ m["v_a"]) @ m["v_b"])[..., 0]
        return (hid * w2).sum(-1) + v

    def one_update(i, carry):
        params, target, sq, key, logs = carry
        key, k1 = jax.random.split(key)
        idx = jax.random.randint(k1, (BS,), 0, CAP)
        b = jax.tree.map(lambda x: x[idx], buf)

        # build inputs
        last = jnp.concatenate([jnp.zeros((BS, 1, N_AG), jnp.int32), b["act"] + 1], 1)
        last1h = jnn.one_hot(last, N_ACT + 1)[..., 1:]
        ids = jnp.broadcast_to(jnp.eye(N_AG), (BS, T + 1, N_AG, N_AG))
        inp = jnp.concatenate([b["obs"].astype(jnp.float32), last1h, ids], -1)
        inp = inp.transpose(1, 0, 2, 3).reshape(T + 1, BS * N_AG, -1)
        unfold = lambda q: q.reshape(T + 1, BS, N_AG, N_ACT).transpose(1, 0, 2, 3)
        tq_all = unfold(agent_rollout(target["agent"], inp))

        def loss_fn(p):
            q_all = unfold(agent_rollout(p["agent"], inp))
            chosen = jnp.take_along_axis(q_all[:, :-1], b["act"][..., None], -1)[..., 0]
            # double q
            sg = jax.lax.stop_gradient(q_all)
            sg = jnp.where(b["avail"], sg, -1e9)
            best = sg[:, 1:].argmax(-1)
            tq = jnp.take_along_axis(tq_all[:, 1:], best[..., None], -1)[..., 0]
            qtot = mixer(p["mixer"], chosen, b["state"][:, :-1])
            tqtot = mixer(target["mixer"], tq, b["state"][:, 1:])
            y = b["rew"] + GAMMA * (1 - b["done"]) * tqtot
            td = (qtot - jax.lax.stop_gradient(y)) * b["mask"]
            return (td**2).sum() / b["mask"].sum(), (
                jnp.abs(td).sum() / b["mask"].sum(),
                qtot.mean(),
            )

        (loss, aux), g = jax.value_and_grad(loss_fn, has_aux=True)(params)
        gn = jnp.sqrt(sum(jnp.sum(x**2) for x in jax.tree.leaves(g)))
        g = jax.tree.map(lambda x: x * jnp.minimum(1.0, 10.0 / (gn + 1e-6)), g)
        sq = jax.tree.map(lambda s, x: 0.99 * s + 0.01 * x * x, sq, g)
        params = jax.tree.map(lambda p, s, x: p - 5e-4 * x / (jnp.sqrt(s) + 1e-5), params, sq, g)
        target = jax.tree.map(lambda t, p: 0.995 * t + 0.005 * p, target, params)
        logs = logs.at[i].set(jnp.stack([loss, gn, aux[0], aux[1]]))
        return params, target, sq, key, logs

    logs = jnp.zeros((N_UPD, 4))
    params, target, sq, key, logs = jax.lax.fori_loop(
        0, N_UPD, one_update, (params, target, sq, key, logs)
    )
    return params, target, sq, key, logs.mean(0)


def make():
    S = jax.ShapeDtypeStruct
    p = init_shapes()
    buf = {
        "obs": S((CAP, T + 1, N_AG, OBS), jnp.float16),
        "state": S((CAP, T + 1, STATE), jnp.float32),
        "act": S((CAP, T, N_AG), jnp.int32),
        "avail": S((CAP, T + 1, N_AG, N_ACT), jnp.bool_),
        "rew": S((CAP, T), jnp.float32),
        "done": S((CAP, T), jnp.float32),
        "mask": S((CAP, T), jnp.float32),
    }
    return jax.jit(learner_block, donate_argnums=(0, 1, 2)), (p, p, p, buf, S((2,), jnp.uint32))
