TRUTH = """
- Speech encoder, ZeRO-style: weights f32 sharded over "fsdp" 4, batch over ("data" 2, "fsdp" 4). Accumulates 8 microbatches in a scan.
- Wrong 1: weights are gathered in each microbatch and layer (loop-invariant over microbatches): 8x gathers fwd + bwd. (Normal for FSDP, cost told; the remedy: gather once before if fits.)
- Wrong 2: gradients are reduced in every microbatch (all-reduce over data / reduce-scatter over fsdp inside the accumulation loop) instead of once after: the data all-reduce (over "data", of sharded grads) could be after the loop. Accumulated in f32 sharded as params.
- Wrong 3: grads accumulated in bf16? `acc` dtype f32, ok.
- The frame subsampling conv: fine. 
- bf16 weights gathered as f32 (cast after gather?) : XLA may cast first. If f32 gathers: told "gather moves f32, used as bf16".
- donation ok.
"""
import jax
import jax.numpy as jnp
import optax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

MESH = {"data": 2, "fsdp": 4}
D, FF, L, M, B, S, MEL, V = 768, 3072, 6, 8, 32, 512, 80, 1024


def init(key):
    k = iter(jax.random.split(key, 9))
    n = lambda *s: jax.random.normal(next(k), s) * 0.02
    return {
        "front": n(MEL * 4, D),
        "layers": {"qkv": n(L, D, 3 * D), "o": n(L, D, D), "up": n(L, D, FF), "down": n(L, FF, D)},
        "ctc": n(D, V),
    }


SPEC = {
    "front": P(None, "fsdp"),
    "layers": {
        "qkv": P(None, "fsdp"),
        "o": P(None, "fsdp"),
        "up": P(None, "fsdp"),
        "down": P(None, "fsdp"),
    },
    "ctc": P("fsdp"),
}


def norm(x):
    x = x - x.mean(-1, keepdims=True)
    return x * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-5)


def layer(p, x):
    p = jax.tree.map(lambda w: w.astype(jnp.bfloat16), p)
    h = norm(x).astype(jnp.bfloat16)
    q, k, v = (t.reshape(*t.shape[:2], 12, -1) for t in jnp.split(h @ p["qkv"], 3, -1))
    a = jax.nn.softmax(jnp.einsum("bqhe,bkhe->bhqk", q, k).astype(jnp.float32) / 8).astype(
        jnp.bfloat16
    )
    x = x + (jnp.einsum("bhqk,bkhe->bqhe", a, v).reshape(h.shape) @ p["o"]).astype(x.dtype)
    h = norm(x).astype(jnp.bfloat16)
    return x + (jax.nn.gelu(h @ p["up"]) @ p["down"]).astype(x.dtype)


def loss_fn(params, mel, labels):
    x = mel.reshape(mel.shape[0], S, MEL * 4) @ params["front"]
    body = jax.checkpoint(lambda c, p: (layer(p, c), None))
    x, _ = jax.lax.scan(body, x, params["layers"])
    logits = norm(x) @ params["ctc"]
    return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()


tx = optax.adam(1e-4)


def train_step(params, opt, mels, labels):
    def micro(acc, xy):
        loss, g = jax.value_and_grad(loss_fn)(params, *xy)
        return jax.tree.map(jnp.add, acc, g), loss

    zero = jax.tree.map(jnp.zeros_like, params)
    g, losses = jax.lax.scan(micro, zero, (mels, labels))
    u, opt = tx.update(jax.tree.map(lambda t: t / M, g), opt, params)
    return optax.apply_updates(params, u), opt, losses.mean()


def make(mesh):
    params = jax.eval_shape(init, jax.random.key(0))
    opt = jax.eval_shape(tx.init, params)
    sh = lambda s: NamedSharding(mesh, s)
    p_sh = jax.tree.map(sh, SPEC, is_leaf=lambda x: isinstance(x, P))
    o_sh = optax.tree_map_params(
        tx, lambda _, s: s, opt, p_sh, transform_non_params=lambda _: sh(P())
    )
    d = sh(P(None, ("data", "fsdp")))
    f = jax.jit(
        train_step,
        in_shardings=(p_sh, o_sh, d, d),
        out_shardings=(p_sh, o_sh, sh(P())),
        donate_argnums=(0, 1),
    )
    return f, (
        params,
        opt,
        jax.ShapeDtypeStruct((M, B, S * 4, MEL), jnp.float32),
        jax.ShapeDtypeStruct((M, B, S), jnp.int32),
    )
