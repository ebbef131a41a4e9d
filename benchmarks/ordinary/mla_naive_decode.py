TRUTH = """
- DeepSeek-like MLA decode, one step. Batch over "data" 2, heads over "tensor" 4. Cache of latents [L, B, T, R] bf16 (R = 512 + 64 rope), layers by scan with cache as xs and ys (not carry).
- Wrong 1: naive decode: latent cache is up-projected (k_up, v_up) for all T each step: [B,T,H,128]x2 - most FLOPs and peak (T = 4096). Remedy: absorb weights (q through k_up). (Senior engineer: these products are most of the step; ideally told as the largest cost with line.)
- Wrong 2: cache not donated and passes through scan ys: whole copy of the cache each step (read+write). Remedy: donate + carry.
- Collectives: per layer an all-reduce over tensor after wo (partial sums), after MLP down; final logits sharded over vocab: argmax over sharded vocabulary -> all-gather/all-reduce of argmax pairs. Latent cache is replicated over tensor (by design of MLA: told as replicated? 4 copies).
- Memory: cache in + out, up-projected K/V of one layer: B/2 * T * H/4 * 256 * 2 bytes.
"""
import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

MESH = {"data": 2, "tensor": 4}
L, D, H, HD, RANK, ROPE, FF, V, B, T = 4, 1024, 16, 64, 256, 32, 4096, 32000, 16, 4096


def init(key):
    k = iter(jax.random.split(key, 12))
    n = lambda *s: (jax.random.normal(next(k), s) * 0.02).astype(jnp.bfloat16)
    return {
        "emb": n(V, D),
        "head": n(D, V),
        "layers": {
            "wq": n(L, D, H, HD + ROPE),
            "wdkv": n(L, D, RANK + ROPE),
            "kup": n(L, RANK, H, HD),
            "vup": n(L, RANK, H, HD),
            "wo": n(L, H, HD, D),
            "w1": n(L, D, FF),
            "w3": n(L, D, FF),
            "w2": n(L, FF, D),
        },
    }


SPEC = {
    "emb": P(None, None),
    "head": P(None, "tensor"),
    "layers": {
        "wq": P(None, None, "tensor"),
        "wdkv": P(),
        "kup": P(None, None, "tensor"),
        "vup": P(None, None, "tensor"),
        "wo": P(None, "tensor"),
        "w1": P(None, None, "tensor"),
        "w3": P(None, None, "tensor"),
        "w2": P(None, "tensor"),
    },
}
CACHE = P(None, "data")


def rope(x, pos):
    f = pos[..., None] * 10000.0 ** (-jnp.arange(0, ROPE // 2) / (ROPE // 2))
    c, s = jnp.cos(f).astype(x.dtype), jnp.sin(f).astype(x.dtype)
    a, b = jnp.split(x, 2, -1)
    return jnp.concatenate([a * c - b * s, b * c + a * s], -1)


def norm(x):
    y = x.astype(jnp.float32)
    return (y * jax.lax.rsqrt((y * y).mean(-1, keepdims=True) + 1e-6)).astype(x.dtype)


def layer(x, p, cache, pos):
    h = norm(x)
    q = jnp.einsum("bd,dhe->bhe", h, p["wq"])
    qn, qr = q[..., :HD], rope(q[..., HD:], pos[:, None])
    c = h @ p["wdkv"]
    c = jnp.concatenate([c[..., :RANK], rope(c[..., RANK:], pos)], -1)
    cache = jax.vmap(lambda m, n, i: jax.lax.dynamic_update_slice(m, n[None], (i, 0)))(
        cache, c, pos
    )
    lat, kr = cache[..., :RANK], cache[..., RANK:]
    k = jnp.einsum("btr,rhe->bthe", lat, p["kup"])
    v = jnp.einsum("btr,rhe->bthe", lat, p["vup"])
    s = jnp.einsum("bhe,bthe->bht", qn, k) + jnp.einsum("bhe,bte->bht", qr, kr)
    s = jnp.where(
        jnp.arange(T) <= pos[:, None, None], s.astype(jnp.float32) * (HD + ROPE) ** -0.5, -1e9
    )
    o = jnp.einsum("bht,bthe->bhe", jax.nn.softmax(s).astype(x.dtype), v)
    x = x + jnp.einsum("bhe,hed->bd", o, p["wo"])
    h = norm(x)
    return x + (jax.nn.silu(h @ p["w1"]) * (h @ p["w3"])) @ p["w2"], cache


def decode_step(params, cache, token, pos):
    x = params["emb"][token]

    def body(x, pc):
        p, c = pc
        return layer(x, p, c, pos)

    x, cache = jax.lax.scan(body, x, (params["layers"], cache))
    logits = norm(x) @ params["head"]
    return jnp.argmax(logits, -1), cache, pos + 1


def make(mesh):
    params = jax.eval_shape(init, jax.random.key(0))
    sh = lambda s: NamedSharding(mesh, s)
    p_sh = jax.tree.map(sh, SPEC, is_leaf=lambda x: isinstance(x, P))
    f = jax.jit(
        decode_step,
        in_shardings=(p_sh, sh(CACHE), sh(P("data")), sh(P("data"))),
        out_shardings=(sh(P("data")), sh(CACHE), sh(P("data"))),
    )
    i = jax.ShapeDtypeStruct((B,), jnp.int32)
    return f, (params, jax.ShapeDtypeStruct((L, B, T, RANK + ROPE), jnp.bfloat16), i, i)
