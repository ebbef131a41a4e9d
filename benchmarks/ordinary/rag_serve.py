TRUTH = """
# rag_serve - answer a batch of 16 questions: encode, search a sharded index, rerank, generate; mesh data=2 x model=4; bf16

1. Order: **query encoder** (6 layers, scan) -> **index search** (shard_map over all 8 devices: 131072 rows each; scores matmul, local top 32, all-gather, merged top 32) -> **fetch passages** (gather of 16 x 32 x 128 tokens from the sharded passage table) -> **reranker** cross-encoder on 512 (question, passage) pairs of 192 tokens (**6 layers, loop x6**) -> top 4 passages -> **prompt** 576 tokens -> **generator prefill** (**12 layers, loop x12**, fills the KV cache) -> **decode: loop up to x64 tokens { 12 layers loop x12 with cache, head, top-p sampling }**.
2. Work ~5.7 TF: prefill ~53%, reranker ~38%, decode ~7%, query encoder 0.4%, search 0.2%. In time decode will be by far the longest (64 x 12 sequential steps, bound by weights); search is bound by reading the index.
3. Nesting: decode loop contains a loop of 12 layers. Query encoder and reranker are the same function (bidirectional encoder) with different weights. Prefill and decode use the same weights.
4. Arrows: question tokens go to encoder, reranker and prompt; index ids -> passages -> both reranker and prompt; KV cache [12, 16, 640, ...] prefill -> decode (and around the decode loop).
5. Collectives: all-gather of top-k candidates in search; tensor parallel all-reduces over model in generator (prefill and decode, 2 per layer); gather from sharded passage table (all-reduce or so).
6. First picture: query encoder x6 -> search -> fetch -> reranker x6 -> prompt -> prefill x12 -> decode x64 { layers x12, head, sample } -> answers.
7. Should not stand out: sorting inside top-k/top-p, rope, masks, random bits. No backward, no optimizer.
8. Decode is a while loop with a data-dependent end (all finished): trip count "up to 64", unknown to the compiler.
"""

"""Retrieval-augmented generation in one compiled program."""
import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

MESH = {"data": 2, "model": 4}

VOCAB, BATCH, QUESTION, PASSAGE = 32000, 16, 64, 128
ROWS, TOP, USED = 1_048_576, 32, 4
ED, EL, EH = 384, 6, 6
D, L, H, FF = 1024, 12, 16, 4096
PROMPT = USED * PASSAGE + QUESTION
NEW = 64
CACHE = PROMPT + NEW


def layer_norm(x, p):
    v = x.astype(jnp.float32)
    mean, var = v.mean(-1, keepdims=True), v.var(-1, keepdims=True)
    return ((v - mean) * lax.rsqrt(var + 1e-5)).astype(x.dtype) * p["scale"] + p["bias"]


# ---------------------------------------------------------------- encoders
def encoder_layer(p, x, valid):
    b, t, _ = x.shape
    q, k, v = jnp.moveaxis((x @ p["qkv"]).reshape(b, t, 3, EH, ED // EH), 2, 0)
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) * (ED // EH) ** -0.5
    scores = jnp.where(valid[:, None, None], scores, -1e9)
    y = jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores), v).reshape(b, t, ED)
    x = layer_norm(x + y @ p["out"], p["norm1"])
    return layer_norm(x + jax.nn.gelu(x @ p["up"]) @ p["down"], p["norm2"])


def encode(params, tokens):
    valid = tokens > 0
    x = params["embed"][tokens] + params["position"][: tokens.shape[1]]
    x, _ = lax.scan(lambda x, p: (encoder_layer(p, x, valid), None), x, params["layers"])
    return x, valid


def embed_question(params, question):
    x, valid = encode(params, question)
    pooled = (x * valid[..., None]).sum(1) / valid.sum(1, keepdims=True)
    return pooled / jnp.linalg.norm(pooled.astype(jnp.float32), axis=-1, keepdims=True).astype(
        x.dtype
    )


def rerank(params, question, passages):
    """scores [B, TOP] of (question, passage) pairs"""
    b = question.shape[0]
    q = jnp.broadcast_to(question[:, None], (b, TOP, QUESTION))
    pairs = jnp.concatenate([q, passages], -1).reshape(b * TOP, QUESTION + PASSAGE)
    x, _ = encode(params, pairs)
    return (x[:, 0] @ params["score"]).reshape(b, TOP)


# ---------------------------------------------------------------- index
def make_search(mesh):
    everywhere = ("data", "model")
    per_device = ROWS // mesh.size

    def local_search(query, index):
        scores = jnp.einsum("bd,nd->bn", query, index, preferred_element_type=jnp.float32)
        best, rows = lax.top_k(scores, TOP)
        rows = rows + lax.axis_index(everywhere) * per_device
        best = lax.all_gather(best, everywhere, axis=1, tiled=True)
        rows = lax.all_gather(rows, everywhere, axis=1, tiled=True)
        best, which = lax.top_k(best, TOP)
        return best, jnp.take_along_axis(rows, which, 1)

    return jax.shard_map(
        local_search,
        mesh=mesh,
        in_specs=(P(), P(everywhere, None)),
        out_specs=(P(), P()),
        check_vma=False,
    )


# ---------------------------------------------------------------- generator
def rope(x, pos):
    half = x.shape[-1] // 2
    angle = pos[..., None] * 10_000.0 ** (-jnp.arange(half) / half)
    c, s = jnp.cos(angle)[:, :, None].astype(x.dtype), jnp.sin(angle)[:, :, None].astype(x.dtype)
    a, b = x[..., :half], x[..., half:]
    return jnp.concatenate([a * c - b * s, b * c + a * s], -1)


def generator_layer(p, x, cache_k, cache_v, start):
    """x [B,T,D] written at cache position `start`; attends to everything before"""
    b, t, _ = x.shape
    y = layer_norm(x, p["norm1"])
    pos = start + jnp.arange(t)
    split = lambda w: (y @ w).reshape(b, t, H, D // H)
    q, k, v = rope(split(p["q"]), pos[None]), rope(split(p["k"]), pos[None]), split(p["v"])
    cache_k = lax.dynamic_update_slice(cache_k, k, (0, start, 0, 0))
    cache_v = lax.dynamic_update_slice(cache_v, v, (0, start, 0, 0))
    scores = (
        jnp.einsum("bqhd,bkhd->bhqk", q, cache_k, preferred_element_type=jnp.float32)
        * (D // H) ** -0.5
    )
    scores = jnp.where(jnp.arange(CACHE)[None] <= pos[:, None], scores, -1e9)
    att = jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores).astype(x.dtype), cache_v)
    x = x + att.reshape(b, t, D) @ p["o"]
    x = x + jax.nn.gelu(layer_norm(x, p["norm2"]) @ p["up"]) @ p["down"]
    return x, cache_k, cache_v


def run_layers(params, tokens, cache, start):
    x = params["embed"][tokens]

    def body(x, layer):
        p, k, v = layer
        x, k, v = generator_layer(p, x, k, v, start)
        return x, (k, v)

    x, cache = lax.scan(body, x, (params["layers"], *cache))
    x = layer_norm(x[:, -1], params["norm"])
    return (x @ params["head"]).astype(jnp.float32), cache


def prefill(params, prompt):
    empty = jnp.zeros((L, prompt.shape[0], CACHE, H, D // H), jnp.bfloat16)
    return run_layers(params, prompt, (empty, empty), 0)


def sample_top_p(key, logits, p=0.9, temperature=0.7):
    logits = logits / temperature
    order = jnp.sort(logits, -1)[:, ::-1]
    mass = jnp.cumsum(jax.nn.softmax(order), -1)
    cut = jnp.take_along_axis(order, (mass < p).sum(-1, keepdims=True), 1)
    return jax.random.categorical(key, jnp.where(logits < cut, -jnp.inf, logits))


def decode(params, key, logits, cache):
    b = logits.shape[0]

    def unfinished(s):
        return (s["i"] < NEW) & ~jnp.all(s["done"])

    def one_token(s):
        key, sub = jax.random.split(s["key"])
        token = jnp.where(s["done"], 0, sample_top_p(sub, s["logits"]))
        out = s["out"].at[:, s["i"]].set(token)
        logits, cache = run_layers(params, token[:, None], s["cache"], PROMPT + s["i"])
        return dict(
            i=s["i"] + 1,
            key=key,
            logits=logits,
            cache=cache,
            out=out,
            done=s["done"] | (token == 2),
        )

    state = dict(
        i=jnp.int32(0),
        key=key,
        logits=logits,
        cache=cache,
        out=jnp.zeros((b, NEW), jnp.int32),
        done=jnp.zeros(b, bool),
    )
    return lax.while_loop(unfinished, one_token, state)["out"]


def build_prompt(question, passages, scores):
    _, best = lax.top_k(scores, USED)
    chosen = jnp.take_along_axis(passages, best[..., None], 1)
    return jnp.concatenate([chosen.reshape(question.shape[0], -1), question], -1)


def make(mesh):
    search = make_search(mesh)
    sharded = lambda x, *spec: lax.with_sharding_constraint(x, NamedSharding(mesh, P(*spec)))

    def answer(weights, index, table, question, key):
        query = embed_question(weights["retriever"], question)
        _, rows = search(query, index)
        passages = sharded(table[rows], "data")
        scores = rerank(weights["reranker"], question, passages)
        prompt = sharded(build_prompt(question, passages, scores), "data")
        logits, cache = prefill(weights["generator"], prompt)
        return decode(weights["generator"], key, logits, cache), rows

    def S(shape, *spec, dtype=jnp.bfloat16):
        return jax.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(mesh, P(*spec)))

    norm = lambda *s: {"scale": S(s), "bias": S(s)}
    encoder = lambda: {
        "embed": S((VOCAB, ED)),
        "position": S((QUESTION + PASSAGE, ED)),
        "layers": {
            "qkv": S((EL, ED, 3 * ED)),
            "out": S((EL, ED, ED)),
            "up": S((EL, ED, 4 * ED)),
            "down": S((EL, 4 * ED, ED)),
            "norm1": norm(EL, ED),
            "norm2": norm(EL, ED),
        },
        "score": S((ED,)),
    }
    column, row = (None, None, "model"), (None, "model", None)
    generator = {
        "embed": S((VOCAB, D)),
        "head": S((D, VOCAB), None, "model"),
        "norm": norm(D),
        "layers": {
            "q": S((L, D, D), *column),
            "k": S((L, D, D), *column),
            "v": S((L, D, D), *column),
            "o": S((L, D, D), *row),
            "up": S((L, D, FF), *column),
            "down": S((L, FF, D), *row),
            "norm1": norm(L, D),
            "norm2": norm(L, D),
        },
    }
    weights = {"retriever": encoder(), "reranker": encoder(), "generator": generator}
    index = S((ROWS, ED), ("data", "model"), None)
    table = S((ROWS, PASSAGE), ("data", "model"), None, dtype=jnp.int32)
    question = S((BATCH, QUESTION), "data", dtype=jnp.int32)
    key = S((2,), dtype=jnp.uint32)
    return jax.jit(answer), (weights, index, table, question, key)
