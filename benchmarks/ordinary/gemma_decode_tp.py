"""Gemma-like tensor-parallel generation: 32-token decode loop with KV caches, alternating sliding-window/global layers, top-k sampling."""

TRUTH = {
    "majors": {
        "prefill (8 layers)": 0.8,
        "decode_step in the while loop (8 layers)": 0.15,
        "unembed": 0.05,
        "sample_top_k": 0.0,
    },
    "layers": [["layer (prefill)", 8], ["layer (decode)", 8], ["of which local / global", 4]],
    "optimizer": False,
    "grad": None,
    "loops": ["decode loop of 32 tokens (while, stops at EOS)"],
    "tells_apart": [["prefill", "decode_step"], ["local layers", "global layers"]],
    "order": [
        ["prefill", "generate loop"],
        ["layer", "unembed"],
        ["unembed", "sample_top_k"],
        ["update_cache", "attend"],
    ],
    "independent": [],
}
MESH = {"model": 8}
import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

VOCAB, D, HEADS, HD, FF, L, WINDOW, PROMPT, NEW, B, EOS = (
    16384,
    512,
    8,
    64,
    2048,
    8,
    64,
    224,
    32,
    8,
    1,
)
MAX = PROMPT + NEW


def rms_norm(x, w):
    return x * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-6) * (1 + w)


def apply_rope(x, pos):
    f = 1e4 ** (-jnp.arange(HD // 2) / (HD // 2))
    a = pos[:, None, None] * f
    x1, x2 = jnp.split(x, 2, -1)
    return jnp.concatenate(
        [x1 * jnp.cos(a) - x2 * jnp.sin(a), x2 * jnp.cos(a) + x1 * jnp.sin(a)], -1
    )


def update_cache(cache, k, v, start):
    return {
        "k": jax.lax.dynamic_update_slice_in_dim(cache["k"], k, start, 1),
        "v": jax.lax.dynamic_update_slice_in_dim(cache["v"], v, start, 1),
    }


def attend(q, cache, pos, window):
    keys = jnp.arange(MAX)
    ok = keys[None] <= pos[:, None]
    if window:
        ok &= keys[None] > pos[:, None] - window
    s = jnp.einsum("bqhd,bkhd->bhqk", q, cache["k"]) * HD**-0.5
    s = jnp.where(ok, 50 * jnp.tanh(s / 50), -1e30)
    return jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(s), cache["v"])


def self_attention(p, x, cache, pos, window):
    b, n, _ = x.shape
    proj = lambda w: jnp.einsum("bnd,dhk->bnhk", x, w)
    q, k, v = apply_rope(proj(p["q"]), pos), apply_rope(proj(p["k"]), pos), proj(p["v"])
    cache = update_cache(cache, k, v, pos[0])
    return jnp.einsum("bnhk,hkd->bnd", attend(q, cache, pos, window), p["o"]), cache


def geglu(p, x):
    return (jax.nn.gelu(x @ p["gate"]) * (x @ p["up"])) @ p["down"]


def layer(p, x, cache, pos, window):
    a, cache = self_attention(p["attn"], rms_norm(x, p["pre_attn"]), cache, pos, window)
    x = x + a
    return x + geglu(p["mlp"], rms_norm(x, p["pre_mlp"])), cache


def forward(params, tokens, caches, pos):
    x = params["embed"][tokens] * D**0.5
    out = []
    for i, (p, c) in enumerate(zip(params["layers"], caches)):
        x, c = layer(p, x, c, pos, WINDOW if i % 2 == 0 else None)
        out.append(c)
    return rms_norm(x, params["norm"]), out


def unembed(params, x):
    logits = x @ params["embed"].T
    return 30 * jnp.tanh(logits / 30)


def sample_top_k(key, logits, k=40, temperature=0.8):
    top, idx = jax.lax.top_k(logits, k)
    c = jax.random.categorical(key, top / temperature)
    return jnp.take_along_axis(idx, c[:, None], 1)[:, 0]


def prefill(params, prompt, caches, key):
    x, caches = forward(params, prompt, caches, jnp.arange(PROMPT))
    return sample_top_k(key, unembed(params, x[:, -1])), caches


def decode_step(params, tok, caches, i, key):
    x, caches = forward(params, tok[:, None], caches, i[None])
    return sample_top_k(key, unembed(params, x[:, 0])), caches


def generate(params, prompt, caches, key):
    key, k = jax.random.split(key)
    tok, caches = prefill(params, prompt, caches, k)
    out = jnp.zeros((B, NEW), jnp.int32).at[:, 0].set(tok)

    def cond(s):
        return (s[0] < MAX) & ~jnp.all(s[4])

    def body(s):
        i, tok, caches, out, done, key = s
        key, k = jax.random.split(key)
        tok, caches = decode_step(params, tok, caches, i, k)
        tok = jnp.where(done, 0, tok)
        return (
            i + 1,
            tok,
            caches,
            jax.lax.dynamic_update_slice(out, tok[:, None], (0, i - PROMPT + 1)),
            done | (tok == EOS),
            key,
        )

    return jax.lax.while_loop(cond, body, (jnp.int32(PROMPT), tok, caches, out, tok == EOS, key))[3]


def make(mesh):
    f = lambda s, *sp: jax.ShapeDtypeStruct(s, jnp.float32, sharding=NamedSharding(mesh, P(*sp)))
    lay = lambda: {
        "pre_attn": f((D,)),
        "pre_mlp": f((D,)),
        "attn": {
            **{n: f((D, HEADS, HD), None, "model") for n in "qkv"},
            "o": f((HEADS, HD, D), "model"),
        },
        "mlp": {
            "gate": f((D, FF), None, "model"),
            "up": f((D, FF), None, "model"),
            "down": f((FF, D), "model"),
        },
    }
    params = {"embed": f((VOCAB, D), "model"), "norm": f((D,)), "layers": [lay() for _ in range(L)]}
    caches = [{n: f((B, MAX, HEADS, HD), None, None, "model") for n in "kv"} for _ in range(L)]
    key = jax.eval_shape(lambda: jax.random.key(0))
    return jax.jit(generate, donate_argnums=2), (
        params,
        jax.ShapeDtypeStruct((B, PROMPT), jnp.int32, sharding=NamedSharding(mesh, P())),
        caches,
        jax.ShapeDtypeStruct(key.shape, key.dtype, sharding=NamedSharding(mesh, P())),
    )
