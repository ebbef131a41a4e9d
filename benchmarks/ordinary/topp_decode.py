TRUTH = """
Rebuilt from threads about sorts and cumulative sums of sharded dimensions (jax#21403, "top-p is slow with tensor parallelism").
- One decoding step, repeated 32 times by a scan, of an 8-layer decoder (width 2048, 16 heads of 128, grouped 4 kv heads... head-sharded), tensor parallel over 4, batch over 2. bf16. KV cache [L,B,T,KV,128] donated, updated at one position each step.
- lm head sharded over vocab (32000/4). Top-p needs the sorted probabilities: `jnp.sort` / `argsort` and `cumsum` along the sharded vocab: XLA gathers logits [B/2, 32000] f32 over "model" (16 x 32000 x 4 = 2 MiB a device) once per token. Cause: the sort's line. Remedy: top-k on each shard first (shard_map) then sort of the few, or nucleus over a top-k of 64. Sort of 32000 x 16 rows on each of 4 devices is redundant (4 times).
- Two all-reduces for each layer (attention out, mlp out): [16,1,2048] bf16 64 KiB: latency-bound, expected of tensor parallelism.
- Decoding is bound by reading weights and the cache from HBM: weights 8 x (2048*2048*2 + 2*2048*512 + 3*2048*5632) bf16 = 0.72 GB / 4 = 180 MB a device each token; matrix-vector like (16 rows).
- The cache: 8 x 16 x 1024 x 1 kv head x 128 x 2 (k,v) x 2 B = 67 MB a device; must be updated in place in the scan; a copy of it per token would be a fault (say so if there).
- Peak: weights + cache, no large temporaries.
"""

"""Nucleus sampling from a tensor-parallel decoder."""
import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

MESH = {"data": 2, "model": 4}
LAYERS, WIDTH, HEADS, KV, HEAD, FF, VOCAB = 8, 2048, 16, 4, 128, 5632, 32000
BATCH, CACHE, TOKENS, TOP_P = 32, 1024, 32, 0.9
bf16 = jnp.bfloat16


def norm(x, scale):
    x32 = x.astype(jnp.float32)
    return (x32 * jax.lax.rsqrt(jnp.mean(x32**2, -1, keepdims=True) + 1e-6)).astype(bf16) * scale


def attend(p, x, keys, values, position):
    q = jnp.einsum("bd,dhk->bhk", x, p["q"])
    k = jnp.einsum("bd,dgk->bgk", x, p["k"])
    v = jnp.einsum("bd,dgk->bgk", x, p["v"])
    keys = jax.lax.dynamic_update_index_in_dim(keys, k, position, 1)
    values = jax.lax.dynamic_update_index_in_dim(values, v, position, 1)
    q = q.reshape(q.shape[0], KV, HEADS // KV, HEAD)
    scores = jnp.einsum("bghk,btgk->bght", q, keys).astype(jnp.float32) * HEAD**-0.5
    scores = jnp.where(jnp.arange(CACHE) <= position, scores, -1e30)
    mixed = jnp.einsum("bght,btgk->bghk", jax.nn.softmax(scores).astype(bf16), values)
    return jnp.einsum("bhk,hkd->bd", mixed.reshape(-1, HEADS, HEAD), p["o"]), keys, values


def feed_forward(p, x):
    return (jax.nn.silu(x @ p["gate"]) * (x @ p["up"])) @ p["down"]


def nucleus(key, logits):
    probabilities = jax.nn.softmax(logits.astype(jnp.float32))
    order = jnp.argsort(-probabilities, axis=-1)
    descending = jnp.take_along_axis(probabilities, order, axis=-1)
    before = jnp.cumsum(descending, axis=-1) - descending
    kept = jnp.where(before < TOP_P, descending, 0.0)
    choice = jax.random.categorical(key, jnp.log(kept + 1e-20))
    return jnp.take_along_axis(order, choice[:, None], axis=-1)[:, 0]


def generate(params, cache, token, position, key):
    def one(carry, key):
        cache, token, position = carry
        x = params["embed"][token]

        def layer(x, per_layer):
            p, keys, values = per_layer
            a, keys, values = attend(p, norm(x, p["n1"]), keys, values, position)
            x = x + a
            return x + feed_forward(p, norm(x, p["n2"])), (keys, values)

        x, cache = jax.lax.scan(layer, x, (params["layers"], *cache))
        logits = norm(x, params["norm"]) @ params["head"]
        token = nucleus(key, logits)
        return (cache, token, position + 1), token

    (cache, token, position), tokens = jax.lax.scan(
        one, (cache, token, position), jax.random.split(key, TOKENS)
    )
    return cache, tokens


def make(mesh):
    def s(shape, *spec, dtype=bf16):
        return jax.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(mesh, P(*spec)))

    L = LAYERS
    params = {
        "embed": s((VOCAB, WIDTH), None, "model"),
        "head": s((WIDTH, VOCAB), None, "model"),
        "norm": s((WIDTH,)),
        "layers": {
            "q": s((L, WIDTH, HEADS, HEAD), None, None, "model"),
            "k": s((L, WIDTH, KV, HEAD), None, None, "model"),
            "v": s((L, WIDTH, KV, HEAD), None, None, "model"),
            "o": s((L, HEADS, HEAD, WIDTH), None, "model"),
            "gate": s((L, WIDTH, FF), None, None, "model"),
            "up": s((L, WIDTH, FF), None, None, "model"),
            "down": s((L, FF, WIDTH), None, "model"),
            "n1": s((L, WIDTH)),
            "n2": s((L, WIDTH)),
        },
    }
    cache = tuple(s((L, BATCH, CACHE, KV, HEAD), None, "data", None, "model") for _ in "kv")
    args = (
        params,
        cache,
        s((BATCH,), "data", dtype=jnp.int32),
        s((), dtype=jnp.int32),
        s((2,), dtype=jnp.uint32),
    )
    return jax.jit(generate, donate_argnums=(1,)), args
