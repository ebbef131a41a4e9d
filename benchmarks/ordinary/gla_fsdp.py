"""Gated linear attention language model, chunked recurrence, scan over layers with remat, FSDP over 8 devices (plain dicts, jit + sharding)."""

TRUTH = """
IN ORDER
- `train_step`: embed -> layer loop x12 (forward) -> final norm -> `lm_head` + cross entropy -> backward (layer loop x12 reversed, each layer computed again: remat)
  -> global norm clip -> adamw
- layer = norm, `gated_linear_attention`, add, norm, swiglu MLP, add
- gated linear attention = q, k, v, gate projections; log decay gate; chunk loop x32 (2048 tokens in chunks of 64) with state [B, heads, 128, 256];
  group norm of the output, times swish gate, output projection
COUNTS
- forward: layer loop 12 > chunk loop 32. Backward: layer loop 12 > chunk loop 32 (recomputed forward) and chunk loop 32 (reversed)
ORDER / INDEPENDENCE
- chunks serial by the state; within a chunk the intra-chunk part is independent of the state; projections q, k, v, gates independent of each other
HEAVY
- dense projections and MLP of 12 layers (~ 80 %), lm_head (1024 x 32000) ~ 15 %; the chunk loops are small in FLOPs but serial (32 x 12 steps)
COMMUNICATION (8 devices, axis `data`)
- weights sharded over `data` and gathered in the loop layer by layer (all-gather, forward and again in the backward), gradients reduce-scattered
  (on CPU/GSPMD may be all-reduce + slice); batch 32 sharded: 4 sequences a device; scalar all-reduces for the loss and norm
- if XLA instead moves activations/partial sums rather than gathers the weights, a person wants to be told
PERFORMANCE
- healthy: donated, sharded state, remat, bf16 matmuls with f32 state
"""
import jax
import jax.numpy as jnp
import optax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

MESH = {"data": 8}
L, D, H, DK, DV, FF, VOCAB, B, T, CHUNK = 12, 1024, 4, 128, 256, 2816, 32000, 32, 2048, 64


def shapes():
    layer = {
        "norm1": (D,),
        "wq": (D, H * DK),
        "wk": (D, H * DK),
        "wv": (D, H * DV),
        "wdecay": (D, H * DK),
        "wswish": (D, H * DV),
        "gnorm": (DV,),
        "wo": (H * DV, D),
        "norm2": (D,),
        "w_in": (D, FF),
        "w_gate": (D, FF),
        "w_out": (FF, D),
    }
    return {
        "embed": (VOCAB, D),
        "layers": {k: (L, *s) for k, s in layer.items()},
        "norm": (D,),
        "lm_head": (D, VOCAB),
    }


def spec_of(path, shape):
    stacked = any(getattr(k, "key", None) == "layers" for k in path)
    dims = shape[1:] if stacked else shape
    own = ("data", None) if len(dims) == 2 else (None,)
    return P(*((None,) if stacked else ()), *own)


def rms(x, g):
    x32 = x.astype(jnp.float32)
    return (x32 * jax.lax.rsqrt(jnp.mean(x32**2, -1, keepdims=True) + 1e-6) * g).astype(
        jnp.bfloat16
    )


def chunk_recurrence(q, k, v, log_a):
    """q, k, log_a: [B, H, T, DK]; v: [B, H, T, DV]."""
    b = q.shape[0]
    split = lambda x: jnp.moveaxis(x.reshape(b, H, T // CHUNK, CHUNK, -1), 2, 0).astype(jnp.float32)
    causal = jnp.tril(jnp.ones((CHUNK, CHUNK), bool))

    def one_chunk(state, xs):
        q, k, v, la = xs
        cum = jnp.cumsum(la, axis=2)
        last = cum[:, :, -1:]
        q_in = q * jnp.exp(cum)
        inter = q_in @ state
        scores = jnp.where(causal, q_in @ jnp.swapaxes(k * jnp.exp(-cum), -1, -2), 0)
        intra = scores @ v
        carry_k = k * jnp.exp(last - cum)
        state = jnp.swapaxes(jnp.exp(last), -1, -2) * state + jnp.swapaxes(carry_k, -1, -2) @ v
        return state, inter + intra

    _, out = jax.lax.scan(one_chunk, jnp.zeros((b, H, DK, DV)), tuple(map(split, (q, k, v, log_a))))
    return jnp.moveaxis(out, 0, 2).reshape(b, H, T, DV)


def gated_linear_attention(p, x):
    heads = lambda y: y.reshape(*y.shape[:2], H, -1).swapaxes(1, 2)
    q = heads(x @ p["wq"]) * DK**-0.5
    k, v = heads(x @ p["wk"]), heads(x @ p["wv"])
    log_a = jax.nn.log_sigmoid(heads(x @ p["wdecay"]).astype(jnp.float32)) / 16
    o = rms(chunk_recurrence(q, k, v, log_a), p["gnorm"])
    o = o.swapaxes(1, 2).reshape(*x.shape[:2], H * DV)
    return (o * jax.nn.silu(x @ p["wswish"])) @ p["wo"]


def layer(x, p):
    p = {k: v if v.ndim == 1 else v.astype(jnp.bfloat16) for k, v in p.items()}
    x = x + gated_linear_attention(p, rms(x, p["norm1"]))
    h = rms(x, p["norm2"])
    return x + (jax.nn.silu(h @ p["w_gate"]) * (h @ p["w_in"])) @ p["w_out"], None


def cross_entropy(params, x, targets):
    logits = jnp.einsum("btd,dv->btv", x, params["lm_head"].astype(jnp.bfloat16)).astype(
        jnp.float32
    )
    return optax.softmax_cross_entropy_with_integer_labels(logits, targets).mean()


def make(mesh):
    tx = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(3e-4, b2=0.95, weight_decay=0.1))
    data = NamedSharding(mesh, P("data", None, None))

    def loss_fn(params, tokens):
        x = params["embed"].astype(jnp.bfloat16)[tokens[:, :-1]]
        x = jax.lax.with_sharding_constraint(x, data)
        x, _ = jax.lax.scan(jax.checkpoint(layer), x, params["layers"])
        return cross_entropy(params, rms(x, params["norm"]), tokens[:, 1:])

    def train_step(params, opt_state, tokens):
        loss, grads = jax.value_and_grad(loss_fn)(params, tokens)
        updates, opt_state = tx.update(grads, opt_state, params)
        return (
            optax.apply_updates(params, updates),
            opt_state,
            {"loss": loss, "gnorm": optax.global_norm(grads)},
        )

    is_shape = lambda x: isinstance(x, tuple)
    params = jax.tree_util.tree_map_with_path(
        lambda path, s: jax.ShapeDtypeStruct(
            s, jnp.float32, sharding=NamedSharding(mesh, spec_of(path, s))
        ),
        shapes(),
        is_leaf=is_shape,
    )
    rep = NamedSharding(mesh, P())
    opt = optax.tree_utils.tree_map_params(
        tx,
        lambda s, p: jax.ShapeDtypeStruct(s.shape, s.dtype, sharding=p.sharding),
        jax.eval_shape(tx.init, params),
        params,
        transform_non_params=lambda s: jax.ShapeDtypeStruct(s.shape, s.dtype, sharding=rep),
    )
    sh = lambda t: jax.tree.map(lambda x: x.sharding, t)
    step = jax.jit(train_step, donate_argnums=(0, 1), out_shardings=(sh(params), sh(opt), rep))
    tokens = jax.ShapeDtypeStruct(
        (B, T + 1), jnp.int32, sharding=NamedSharding(mesh, P("data", None))
    )
    return step, (params, opt, tokens)
