TRUTH = """
- Long-context LM, context parallel: sequence sharded over "ctx" 4, batch over "data" 2. Packed documents: segment ids by cumsum over (tokens == EOS) along the sharded sequence; positions by cummax. K and V gathered over ctx in each layer (all-gather, by with_sharding_constraint replicated over ctx).
- Wrong 1: cumsum/cummax along a sharded dim: collectives (all-gather of [B,S] ints, or collective-permutes/ reduce-window halo). Small bytes (S = 8192 ints), so it should be told cheap.
- Wrong 2: jax.checkpoint around the whole scan of layers, not around a layer: the remat saves nothing: residuals of all layers are alive in the backward anyway, and the forward runs twice (remat: extra FLOPs for no memory). To be told: "remat saves nothing / recompute whole forward".
- Wrong 3: gradient all-reduce in f32? params f32 sharded? params replicated bf16; gradients bf16 all-reduced over all 8 devices (data+ctx). Optimizer sgd with momentum f32 replicated.
- Scores [b,h,s/4,s] f32 materialised: residuals of all layers: the peak. No flash.
- donate params, momentum.
"""
import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

MESH = {"data": 2, "ctx": 4}
D, H, FF, L, B, S, V, EOS = 512, 8, 2048, 4, 4, 4096, 8192, 2
ON = []


def shard(x, *s):
    return jax.lax.with_sharding_constraint(x, NamedSharding(ON[0], P(*s)))


def init(key):
    k = iter(jax.random.split(key, 9))
    n = lambda *s: (jax.random.normal(next(k), s) * 0.02).astype(jnp.bfloat16)
    return {
        "wte": n(V, D),
        "wpe": n(S, D),
        "layers": {
            "qkv": n(L, D, 3, H, D // H),
            "o": n(L, D, D),
            "up": n(L, D, FF),
            "down": n(L, FF, D),
        },
    }


def norm(x):
    y = x.astype(jnp.float32)
    y = y - y.mean(-1, keepdims=True)
    return (y * jax.lax.rsqrt((y * y).mean(-1, keepdims=True) + 1e-5)).astype(x.dtype)


def attend(p, x, mask):
    q, k, v = jnp.moveaxis(jnp.einsum("bsd,dche->bsche", norm(x), p["qkv"]), 2, 0)
    k, v = shard(k, "data", None, None, None), shard(v, "data", None, None, None)
    s = jnp.einsum("bqhe,bkhe->bhqk", q, k).astype(jnp.float32) * (D // H) ** -0.5
    w = jax.nn.softmax(jnp.where(mask[:, None], s, -1e9)).astype(x.dtype)
    return jnp.einsum("bhqk,bkhe->bqhe", w, v).reshape(x.shape) @ p["o"]


def layer(p, x, mask):
    x = x + attend(p, x, mask)
    return x + jax.nn.gelu(norm(x) @ p["up"]) @ p["down"]


def segments(tokens):
    starts = jnp.pad(tokens[:, :-1] == EOS, ((0, 0), (1, 0)))
    seg = jnp.cumsum(starts, 1)
    at = jnp.arange(S)
    first = jax.lax.cummax(jnp.where(starts, at, 0), axis=1)
    return seg, at - first


def forward(params, tokens):
    seg, pos = segments(tokens)
    x = shard(params["wte"][tokens] + params["wpe"][pos], "data", "ctx", None)
    whole = shard(seg, "data", None)
    at = jnp.arange(S)
    mask = (seg[:, :, None] == whole[:, None]) & (at[:, None] >= at)
    run = jax.checkpoint(
        lambda ps, x: jax.lax.scan(
            lambda c, p: (shard(layer(p, c, mask), "data", "ctx", None), None), x, ps
        )[0]
    )
    return norm(run(params["layers"], x)) @ params["wte"].T


def loss_fn(params, tokens):
    logits = forward(params, tokens).astype(jnp.float32)
    target = jnp.roll(tokens, -1, 1)
    lp = jax.nn.log_softmax(logits)
    return -jnp.take_along_axis(lp, target[..., None], -1).mean()


def train_step(params, momentum, tokens):
    loss, g = jax.value_and_grad(loss_fn)(params, tokens)
    momentum = jax.tree.map(lambda m, d: 0.9 * m + d.astype(jnp.float32), momentum, g)
    return (
        jax.tree.map(lambda p, m: (p - 1e-2 * m).astype(p.dtype), params, momentum),
        momentum,
        loss,
    )


def make(mesh):
    ON[:] = [mesh]
    params = jax.eval_shape(init, jax.random.key(0))
    mom = jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape, jnp.float32), params)
    rep, tok = NamedSharding(mesh, P()), NamedSharding(mesh, P("data", "ctx"))
    f = jax.jit(
        train_step,
        in_shardings=(rep, rep, tok),
        out_shardings=(rep, rep, rep),
        donate_argnums=(0, 1),
    )
    return f, (params, mom, jax.ShapeDtypeStruct((B, S), jnp.int32))
