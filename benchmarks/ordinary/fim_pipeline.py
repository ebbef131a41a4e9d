TRUTH = """
PROGRAM fim_pipeline: StarCoder-like fill-in-the-middle LM, GPipe over stage=4 with data=2, one train step (plain jax).

(1) EXPECTED BOXES
train_step
 - fim_permute (vmapped over 8x8 documents; integer shuffling, cheap, <1 %)
 - loss forward
     - embed (token gather + learned positions)                     <2 %
     - gpipe (shard_map): tick x11 (scan; 8 microbatches + 3 bubble ticks)
         - stage_fn : layer x3 (scan, per stage; 12 layers in the model)
             - rms, mqa (q/kv projection, scores, softmax, out), rms, mlp (gelu)
         - ppermute to next stage (inside tick)
     - rms (ln_f)
     - micro_xent x8 (lax.map): head/logits + logsumexp
 - loss backward (micro_xent backward x8 incl. recomputed logits; tick backward x11 with layer backward x3 incl.
   recompute of the layer (jax.checkpoint))
 - optimizer: clip_by_global_norm + adamw                            small
Work per device (per token, forward): 3 layers ~ 89 MFLOP x 11/8 (bubble) ~ 122 MFLOP; head 2*D*V=100 MFLOP.
>10 % of work: the gpipe layers (mlp about 16*D*D, mqa projections + attention scores at T=2048), and the head
(micro_xent). Backward (incl. recompute) is about 3/4 of all. Layers ~55 %, head ~45 % per device as written.
In a count of USEFUL model flops the head is 22 % (100/455) of the forward.

(2) FALSE NAMES
"decoder step / generation / kv cache", "cross attention", "encoder", "MoE / experts", "teacher", "dropout",
"layer x12 in one loop on one device" as an unqualified count (each device runs 3 layers x 11 ticks), "microbatch x11" (there
are 8 microbatches, 11 ticks), "gradient accumulation" is imprecise (microbatches feed a pipeline), "multi-head attention with
16 kv heads" (it is multi-query: 1 kv head), "all-to-all".
Calling the whole ppermute loop a "ring attention" would be false.

(3) EXPERT
True and worth telling
 - Pipeline bubble: 11 ticks for 8 microbatches, each device computes garbage in 3 of 11 ticks (27 % wasted). Remedy: more
   microbatches, (interleaved/circular schedule), skip.
 - The head + loss is done outside the shard_map: its work is partitioned only over data; replicated on the 4 stages (4 x
   redundant logits). Remedy: shard vocab or tokens over "stage" (P(stage) constraint on h / tok), or compute the loss in
   the last stage only. Up to ~45 % of device time.
 - pipe(...)[-1] moves the last stage's output (64x2048x1024 bf16 = 268 MB global, 134 MB per device) to all stages (broadcast,
   all-gather or all-reduce of it), and the backward does the same.
 - tok/pos embedding and their Adam moments replicated on all 8 devices (50M x 12 bytes = 600 MB); gradient all-reduce of tok over
   data (200 MB fp32). Stage weights' gradient all-reduced over "data" only; once after the loop or (worse) in every tick.
 - The materialised T x T scores (b=4 x16 heads x2048^2 fp32 = 1.07 GB per layer per microbatch): no flash attention. Remedy.
 - Saved carry of scan tick: outs buffer (8 x 4 x 2048 x 1024 bf16 = 134 MB) may be stacked for all 11 ticks by the scan's autodiff
   only if needed (dynamic-update is linear, so normally not saved); stage inputs of each layer saved for 11 x 3.
 - ppermute is point-to-point, 16.8 MB per tick, not overlapped with compute (data dependence).
 - Logits fp32 chunk: 4x2048x49152x4 = 1.6 GB per microbatch; checkpointed.
 - Layer recompute = one extra forward.
False things to say
 - "The model is tensor parallel", "FSDP: weights are all-gathered each layer", "ppermute moves keys/values", "stage weights
   are replicated across stages", "the optimizer is a major part of time", "no remat is used", "embedding lookup is the bottleneck".
"""

"""Fill-in-the-middle code LM (StarCoder-ish, multi-query attention) trained with a
GPipe schedule.  4 pipeline stages x 2 data-parallel replicas.

    python fim_pipeline.py      # prints the param count
"""
import functools
import math

import jax
import jax.numpy as jnp
import optax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

MESH = {"stage": 4, "data": 2}

VOCAB = 49152
D = 1024
N_HEAD = 16
HEAD = D // N_HEAD
FF = 4 * D
N_LAYER = 12
SEQ = 2048
N_MICRO = 8
MICRO = 8  # sequences per microbatch (global)
FIM_RATE = 0.5
FIM_PRE, FIM_MID, FIM_SUF = 1, 2, 3
ADT = jnp.bfloat16


# --------------------------------------------------------------------------- params
def init(key):
    ks = iter(jax.random.split(key, 16))
    n = lambda *s, std=0.02: std * jax.random.normal(next(ks), s, jnp.float32)
    S = MESH["stage"]
    L = N_LAYER // S
    out_std = 0.02 / math.sqrt(2 * N_LAYER)
    stages = dict(
        ln1=jnp.ones((S, L, D)),
        wq=n(S, L, D, N_HEAD, HEAD),
        wkv=n(S, L, D, 2, HEAD),
        wo=n(S, L, N_HEAD, HEAD, D, std=out_std),
        ln2=jnp.ones((S, L, D)),
        w_up=n(S, L, D, FF),
        b_up=jnp.zeros((S, L, FF)),
        w_down=n(S, L, FF, D, std=out_std),
    )
    return dict(tok=n(VOCAB, D), pos=n(SEQ, D), stages=stages, ln_f=jnp.ones((D,)))


def param_specs():
    st = P("stage")
    return dict(
        tok=P(),
        pos=P(),
        ln_f=P(),
        stages={k: st for k in ("ln1", "wq", "wkv", "wo", "ln2", "w_up", "b_up", "w_down")},
    )


# --------------------------------------------------------------------------- data side
def fim_permute(key, doc):
    """PSM transform: [PRE] prefix [SUF] suffix [MID] middle, one split per document.
    doc is SEQ+1-3 long so that sentinels make it SEQ+1."""
    n = doc.shape[0]
    k_cut, k_coin = jax.random.split(key)
    a, b = jnp.sort(jax.random.randint(k_cut, (2,), 1, n - 1))
    idx = jnp.arange(n + 3)
    len_suf = n - b
    # piecewise gather
    in_pre = (idx >= 1) & (idx < 1 + a)
    s0 = 2 + a
    in_suf = (idx >= s0) & (idx < s0 + len_suf)
    m0 = s0 + len_suf + 1
    in_mid = idx >= m0
    src = jnp.where(in_pre, idx - 1, jnp.where(in_suf, idx - s0 + b, idx - m0 + a))
    out = doc[jnp.clip(src, 0, n - 1)]
    out = jnp.where(idx == 0, FIM_PRE, out)
    out = jnp.where(idx == s0 - 1, FIM_SUF, out)
    out = jnp.where(idx == m0 - 1, FIM_MID, out)
    del in_mid
    plain = jnp.concatenate([doc, jnp.zeros((3,), doc.dtype)])
    return jnp.where(jax.random.bernoulli(k_coin, FIM_RATE), out, plain)


# --------------------------------------------------------------------------- model
def rms(x, g):
    x32 = x.astype(jnp.float32)
    y = x32 * jax.lax.rsqrt(jnp.mean(x32 * x32, -1, keepdims=True) + 1e-6)
    return (y * g).astype(x.dtype)


def mqa(w, x):
    q = jnp.einsum("btd,dhk->bhtk", x, w["wq"].astype(ADT))
    k, v = jnp.moveaxis(jnp.einsum("btd,dck->btck", x, w["wkv"].astype(ADT)), 2, 0)
    s = jnp.einsum("bhtk,bsk->bhts", q, k, preferred_element_type=jnp.float32) / math.sqrt(HEAD)
    T = x.shape[1]
    causal = jnp.tril(jnp.ones((T, T), bool))
    p = jax.nn.softmax(jnp.where(causal, s, -1e30), -1).astype(ADT)
    o = jnp.einsum("bhts,bsk->bthk", p, v)
    return jnp.einsum("bthk,hkd->btd", o, w["wo"].astype(ADT))


def mlp(w, x):
    u = x @ w["w_up"].astype(ADT) + w["b_up"].astype(ADT)
    return jax.nn.gelu(u) @ w["w_down"].astype(ADT)


def layer(x, w):
    x = x + mqa(w, rms(x, w["ln1"]))
    x = x + mlp(w, rms(x, w["ln2"]))
    return x, None


def stage_fn(w, x):
    """All the layers that live on this stage."""
    y, _ = jax.lax.scan(jax.checkpoint(layer), x, w)
    return y


def gpipe(w_stage, xs):
    """Runs on every device.  xs: [N_MICRO, micro/dp, T, D]."""
    w_stage = jax.tree.map(lambda a: a[0], w_stage)
    S = MESH["stage"]
    me = jax.lax.axis_index("stage")
    ring = [(i, (i + 1) % S) for i in range(S)]

    def tick(carry, t):
        inbox, outs = carry
        feed = jax.lax.dynamic_index_in_dim(xs, jnp.clip(t, 0, N_MICRO - 1), keepdims=False)
        h = stage_fn(w_stage, jnp.where(me == 0, feed, inbox))
        done = jnp.clip(t - (S - 1), 0, N_MICRO - 1)
        outs = jax.lax.dynamic_update_index_in_dim(outs, h, done, 0)
        return (jax.lax.ppermute(h, "stage", ring), outs), None

    carry0 = (jnp.zeros_like(xs[0]), jnp.zeros_like(xs))
    (_, outs), _ = jax.lax.scan(tick, carry0, jnp.arange(N_MICRO + S - 1))
    return outs[None]


def make_loss(mesh):
    pipe = jax.shard_map(
        gpipe,
        mesh=mesh,
        in_specs=(P("stage"), P(None, "data")),
        out_specs=P("stage", None, "data"),
        check_vma=False,
    )

    @jax.checkpoint
    def micro_xent(tok, h, y):
        logits = jnp.einsum("btd,vd->btv", h, tok.astype(ADT), preferred_element_type=jnp.float32)
        lse = jax.nn.logsumexp(logits, -1)
        gold = jnp.take_along_axis(logits, y[..., None], -1)[..., 0]
        return jnp.mean(lse - gold + 1e-4 * lse**2)

    def loss(params, ids):
        x, y = ids[..., :-1], ids[..., 1:]
        emb = (params["tok"][x] + params["pos"]).astype(ADT)
        h = pipe(params["stages"], emb)[-1]  # only the last stage has the real thing
        h = rms(h, params["ln_f"])
        return jnp.mean(jax.lax.map(lambda hy: micro_xent(params["tok"], *hy), (h, y)))

    return loss


tx = optax.chain(
    optax.clip_by_global_norm(1.0),
    optax.adamw(
        optax.warmup_cosine_decay_schedule(0, 3e-4, 2000, 250_000), b2=0.95, weight_decay=0.1
    ),
)


def make(mesh):
    loss = make_loss(mesh)

    @functools.partial(jax.jit, donate_argnums=(0, 1))
    def train_step(params, opt, docs, key):
        keys = jax.random.split(key, N_MICRO * MICRO).reshape(N_MICRO, MICRO)
        ids = jax.vmap(jax.vmap(fim_permute))(keys, docs)
        val, g = jax.value_and_grad(loss)(params, ids)
        upd, opt = tx.update(g, opt, params)
        return optax.apply_updates(params, upd), opt, val

    shapes = jax.eval_shape(init, jax.random.key(0))
    put = lambda spec: (
        lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=NamedSharding(mesh, spec))
    )
    specs = param_specs()
    params = jax.tree.map(lambda s, a: put(s)(a), specs, shapes, is_leaf=lambda s: isinstance(s, P))
    opt = jax.eval_shape(tx.init, params)
    opt = optax.tree_utils.tree_map_params(
        tx,
        lambda o, s: put(s)(o),
        opt,
        specs,
        transform_non_params=put(P()),
        is_leaf=lambda s: isinstance(s, P),
    )
    docs = put(P(None, "data"))(jax.ShapeDtypeStruct((N_MICRO, MICRO, SEQ + 1 - 3), jnp.int32))
    key = put(P())(jax.eval_shape(jax.random.key, 0))
    return train_step, (params, opt, docs, key)


if __name__ == "__main__":
    print(sum(a.size for a in jax.tree.leaves(jax.eval_shape(init, jax.random.key(0)))) / 1e6, "M")
