"""GPipe: a GPT of 12 layers in 4 pipeline stages (3 layers each) x 2 data replicas; microbatches by a scan of ticks with ppermute in shard_map."""

TRUTH = """
IN ORDER
- `train_step`: embed all tokens -> `pipeline` (shard_map over data, stage) -> final norm, `head`, cross entropy -> backward (pipeline in reverse) -> SGD momentum
- pipeline: loop of 11 ticks (8 microbatches + 4 stages - 1): stage 0 takes the next microbatch, others take what came from the left; 3 layers (inner loop);
  ppermute to the next stage; the last stage stores its output. After the loop: psum over `stage` hands the outputs to all
COUNTS
- forward tick loop x11 > layer loop x3; backward tick loop x11 (reversed) > layer loop x3 (recompute, remat per stage) and layer loop x3 (gradient)
- one collective-permute per tick forward, one per tick backward
ORDER / INDEPENDENCE
- ticks serial; embedding before, loss after the whole pipeline (not interleaved); at a given tick the 4 stages work on different microbatches in parallel
HEAVY
- the layers in the tick loop; (11 - 8) / 11 = 27 % of ticks per stage are bubble (computed on garbage/zeros); head 768 x 32000
COMMUNICATION (mesh data 2, stage 4)
- ppermute over `stage`: [4, 512, 768] bf16 (4 sequences a replica) = 3.1 MB per tick; psum of outputs over stage; gradient all-reduce
  over `data` of the stage's layers (3 x 7 M), of embed/head over all
PERFORMANCE (deliberate flaws)
- psum of the complete outputs [8, 4, 512, 768] over `stage` only for broadcasting from the last stage (3 of 4 summands are zeros); in the backward the same again
- embedding and head + loss are outside: replicated over `stage`, i.e. each of 4 stages repeats the whole head matmul and its backward (4x redundant work),
  so the head is 35-40 % of a device's FLOPs instead of ~ 10 %
- not donated: params and momentum twice
"""
import functools

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

MESH = {"data": 2, "stage": 4}
STAGES, PER_STAGE, MICRO, MB = 4, 3, 8, 8  # MB sequences per microbatch, over both replicas
D, HEADS, VOCAB, T = 768, 12, 32000, 512


def param_shapes():
    s = (STAGES, PER_STAGE)
    return {
        "wte": (VOCAB, D),
        "wpe": (T, D),
        "blocks": {
            "ln1": (*s, D),
            "attn": (*s, D, 3 * D),
            "proj": (*s, D, D),
            "ln2": (*s, D),
            "fc": (*s, D, 4 * D),
            "fc_proj": (*s, 4 * D, D),
        },
        "lnf": (D,),
        "head": (D, VOCAB),
    }


def ln(x, g):
    y = x.astype(jnp.float32)
    y = (y - y.mean(-1, keepdims=True)) * jax.lax.rsqrt(y.var(-1, keepdims=True) + 1e-5)
    return (y * g).astype(x.dtype)


def gpt_block(x, p):
    b, t, d = x.shape
    w = lambda name: p[name].astype(x.dtype)
    q, k, v = jnp.split(ln(x, p["ln1"]) @ w("attn"), 3, axis=-1)
    heads = lambda y: y.reshape(b, t, HEADS, d // HEADS)
    s = jnp.einsum("bqhd,bkhd->bhqk", heads(q), heads(k)).astype(jnp.float32) * (d // HEADS) ** -0.5
    s = jnp.where(jnp.arange(t)[:, None] >= jnp.arange(t), s, -jnp.inf)
    o = jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(s).astype(x.dtype), heads(v))
    x = x + o.reshape(b, t, d) @ w("proj")
    return x + jax.nn.gelu(ln(x, p["ln2"]) @ w("fc")) @ w("fc_proj"), None


@jax.checkpoint
def run_stage(blocks, x):
    return jax.lax.scan(gpt_block, x, blocks)[0]


def pipeline(blocks, micro):
    """micro: [MICRO, mb, T, D] on this replica; blocks: [1, PER_STAGE, ...] of this stage."""
    blocks = jax.tree.map(lambda w: w[0], blocks)
    stage = jax.lax.axis_index("stage")
    ring = [(i, i + 1) for i in range(STAGES - 1)]

    def tick(carry, t):
        inbox, outputs = carry
        fresh = micro[jnp.clip(t, 0, MICRO - 1)]
        x = jnp.where(stage == 0, fresh, inbox)
        y = run_stage(blocks, x)
        slot = jnp.clip(t - (STAGES - 1), 0, MICRO - 1)
        done = (stage == STAGES - 1) & (t >= STAGES - 1)
        outputs = outputs.at[slot].set(jnp.where(done, y, outputs[slot]))
        return (jax.lax.ppermute(y, "stage", ring), outputs), None

    start = (jnp.zeros_like(micro[0]), jnp.zeros_like(micro))
    (_, outputs), _ = jax.lax.scan(tick, start, jnp.arange(MICRO + STAGES - 1))
    return jax.lax.psum(jnp.where(stage == STAGES - 1, outputs, 0), "stage")


def make(mesh):
    piped = functools.partial(jax.shard_map, mesh=mesh, check_vma=False)(
        pipeline, in_specs=(P("stage"), P(None, "data")), out_specs=P(None, "data")
    )

    def loss_fn(params, tokens):
        inputs, targets = tokens[..., :-1], tokens[..., 1:]
        with jax.named_scope("embed"):
            x = (params["wte"][inputs] + params["wpe"]).astype(jnp.bfloat16)
        x = piped(params["blocks"], x)
        with jax.named_scope("head"):
            logits = (ln(x, params["lnf"]) @ params["head"].astype(x.dtype)).astype(jnp.float32)
        with jax.named_scope("cross_entropy"):
            logp = jax.nn.log_softmax(logits)
            return -jnp.take_along_axis(logp, targets[..., None], -1).mean()

    @jax.jit
    def train_step(params, momentum, tokens):
        loss, grads = jax.value_and_grad(loss_fn)(params, tokens)
        momentum = jax.tree.map(lambda m, g: 0.9 * m + g, momentum, grads)
        params = jax.tree.map(lambda p, m: p - 0.01 * m, params, momentum)
        return params, momentum, loss

    def struct(path, shape):
        spec = P("stage") if path[0].key == "blocks" else P()
        return jax.ShapeDtypeStruct(shape, jnp.float32, sharding=NamedSharding(mesh, spec))

    params = jax.tree_util.tree_map_with_path(
        struct, param_shapes(), is_leaf=lambda s: isinstance(s, tuple)
    )
    tokens = jax.ShapeDtypeStruct(
        (MICRO, MB, T + 1), jnp.int32, sharding=NamedSharding(mesh, P(None, "data"))
    )
    return train_step, (params, params, tokens)
