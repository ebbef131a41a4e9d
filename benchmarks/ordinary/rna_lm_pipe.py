TRUTH = """
# rna_lm_pipe - RNA masked LM, GPipe in shard_map (data=2 x stage=4) with Muon; plain jax

1. Order, on each device: corrupt tokens (mask 15%) -> embed all micro-batches -> **pipeline ticks: loop x11** (8 micro-batches + 3 bubble) { choose fresh or received input -> **stage: loop x3 layers** -> send to the next stage } -> last 8 outputs: norm, head (32 symbols), masked loss (counts only on the last stage) -> **backward ticks: loop x11 reversed** { receive from the next stage, **recompute x3**, **backward x3** } -> all-reduce gradients (layers over data; embed/norm/head over everything) -> **Muon** for the 4 matrix kinds (3 layers at once): momentum, **Newton-Schulz, 5 iterations written out**, update; Adam for norms, embed, head.
2. 12 layers in all, 3 per stage { norm, qkv, scores with symmetric distance bias, values, out; norm, up, gelu, down }.
3. Work 0.61 TF per device (4.9 TF in all, 3/11 of the pipeline's part wasted in bubbles): forward 20%, recompute 20%, backward 41%, Muon 19%, head 0.1%. In a layer: MLP 57%, qkv 21%, scores + values 14%, out 7%.
4. Collectives: collective-permute once per tick forward and once per tick backward; all-reduces of the gradients after; scalars for loss.
5. First picture: corrupt/embed -> ticks x11 { layers x3 -> permute } -> head/loss -> backward ticks x11 { permute, recompute x3, backward x3 } -> all-reduce -> Muon (5 Newton-Schulz iterations x 4 matrices) -> new parameters.
6. Arrows: activations stage to stage by permute (around the loop); saved tick inputs to backward; gradients -> all-reduce -> Muon.
7. Should not stand out: random masking, ALiBi bias (may be hoisted), casts to bf16, stage selection (where), transposes in Newton-Schulz, dynamic indexing of micro-batches.
8. Misleading: 11 as layers or micro-batches; 3 as whole depth; Newton-Schulz products as model layers; 20% heavy part in an "optimizer" is right here.
"""

"""RNA language model: masked-nucleotide objective, GPipe over 4 stages x data parallel 2, Muon."""
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

MESH = {"data": 2, "stage": 4}

VOCAB, DIM, HEADS, FF = 32, 512, 8, 2048
LAYERS_PER_STAGE, STAGES = 3, MESH["stage"]
MICRO, MICRO_BATCH, SEQ = 8, 1, 512
TICKS = MICRO + STAGES - 1
MASK, NS_STEPS = 4, 5
LR_MUON, LR_ADAM = 0.02, 3e-4

LAYER_SHAPES = {"qkv": (DIM, 3 * DIM), "out": (DIM, DIM), "up": (DIM, FF), "down": (FF, DIM)}
VECTOR_SHAPES = {"norm1": (DIM,), "norm2": (DIM,)}
END_SHAPES = {"embed": (VOCAB, DIM), "norm": (DIM,), "head": (DIM, VOCAB)}


def norm(x, g):
    y = x.astype(jnp.float32)
    return (y * lax.rsqrt((y * y).mean(-1, keepdims=True) + 1e-6) * g).astype(x.dtype)


def pair_bias():
    """ALiBi, symmetric"""
    distance = jnp.abs(jnp.arange(SEQ)[:, None] - jnp.arange(SEQ)[None])
    slopes = 2.0 ** -jnp.arange(1, HEADS + 1)
    return -slopes[:, None, None] * distance


def layer(x, w):
    b, t, _ = x.shape
    q, k, v = jnp.split((norm(x, w["norm1"]) @ w["qkv"]).reshape(b, t, HEADS, -1), 3, -1)
    s = (
        jnp.einsum("bqhd,bkhd->bhqk", q, k).astype(jnp.float32) / np.sqrt(DIM // HEADS)
        + pair_bias()
    )
    y = jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(s, -1).astype(x.dtype), v)
    x = x + y.reshape(b, t, DIM) @ w["out"]
    return x + jax.nn.gelu(norm(x, w["norm2"]) @ w["up"]) @ w["down"]


@jax.checkpoint
def stage(weights, x):
    x, _ = lax.scan(lambda x, w: (layer(x, w), None), x, weights)
    return x


def corrupt(key, tokens):
    """15% masked, of which 10% random and 10% kept"""
    k1, k2, k3 = jax.random.split(key, 3)
    chosen = (jax.random.uniform(k1, tokens.shape) < 0.15) & (tokens > 4)
    u = jax.random.uniform(k2, tokens.shape)
    noise = jax.random.randint(k3, tokens.shape, 5, VOCAB)
    return jnp.where(chosen & (u < 0.8), MASK, jnp.where(chosen & (u < 0.9), noise, tokens)), chosen


def pipeline_loss(params, corrupted, tokens, chosen):
    bf = lambda t: jax.tree.map(lambda a: a.astype(jnp.bfloat16), t)
    weights, ends = bf(params["layers"]), bf(params["ends"])
    me = lax.axis_index("stage")
    micro = lambda a: a.reshape(MICRO, MICRO_BATCH, SEQ)
    embedded = ends["embed"][micro(corrupted)]

    def tick(carry, i):
        received = carry
        fresh = lax.dynamic_index_in_dim(embedded, jnp.minimum(i, MICRO - 1), keepdims=False)
        x = stage(weights, jnp.where(me == 0, fresh, received))
        return lax.ppermute(x, "stage", [(s, s + 1) for s in range(STAGES - 1)]), x

    zero = jnp.zeros((MICRO_BATCH, SEQ, DIM), jnp.bfloat16)
    _, outs = lax.scan(tick, zero, jnp.arange(TICKS))
    final = outs[STAGES - 1 :]  # only meaningful on the last stage
    logits = (norm(final, ends["norm"]) @ ends["head"]).astype(jnp.float32)
    nll = -jnp.take_along_axis(jax.nn.log_softmax(logits), micro(tokens)[..., None], -1)[..., 0]
    w = micro(chosen).astype(jnp.float32)
    total = lax.psum(w.sum(), "data")
    return jnp.where(me == STAGES - 1, (nll * w).sum(), 0.0) / total


def orthogonalise(g):
    """Newton-Schulz, quintic"""
    a, b, c = 3.4445, -4.7750, 2.0315
    tall = g.shape[0] > g.shape[1]
    x = (g.T if tall else g).astype(jnp.bfloat16)
    x = x / (jnp.linalg.norm(x) + 1e-7)
    for _ in range(NS_STEPS):
        s = x @ x.T
        x = a * x + (b * s + c * s @ s) @ x
    return (x.T if tall else x).astype(jnp.float32)


def muon(p, g, m):
    m = 0.95 * m + g
    o = jax.vmap(orthogonalise)(g + 0.95 * m)
    return p - LR_MUON * (max(1, p.shape[-2] / p.shape[-1]) ** 0.5 * o + 0.01 * p), m


def adam(p, g, mv, t):
    m = 0.9 * mv[0] + 0.1 * g
    v = 0.95 * mv[1] + 0.05 * g * g
    return p - LR_ADAM * (m / (1 - 0.9**t)) / (jnp.sqrt(v / (1 - 0.95**t)) + 1e-8), (m, v)


def train_step(params, opt, key, tokens):
    key = jax.random.fold_in(key, lax.axis_index("data"))
    corrupted, chosen = corrupt(key, tokens)
    local = lambda t: jax.tree.map(lambda a: a[0], t)
    params = {"layers": local(params["layers"]), "ends": params["ends"]}
    muon_m, layer_mv = local(opt["muon"]), local(opt["layer_adam"])

    loss, g = jax.value_and_grad(pipeline_loss)(params, corrupted, tokens, chosen)
    g = {"layers": lax.psum(g["layers"], "data"), "ends": lax.psum(g["ends"], ("data", "stage"))}
    t = opt["t"] + 1

    layers, new_muon, new_mv = dict(params["layers"]), {}, {}
    for name in LAYER_SHAPES:
        layers[name], new_muon[name] = muon(layers[name], g["layers"][name], muon_m[name])
    for name in VECTOR_SHAPES:
        layers[name], new_mv[name] = adam(layers[name], g["layers"][name], layer_mv[name], t)
    ends, new_ends = {}, {}
    for name in END_SHAPES:
        ends[name], new_ends[name] = adam(
            params["ends"][name], g["ends"][name], opt["ends"][name], t
        )

    up = lambda t: jax.tree.map(lambda a: a[None], t)
    params = {"layers": up(layers), "ends": ends}
    opt = {"muon": up(new_muon), "layer_adam": up(new_mv), "ends": new_ends, "t": t}
    return params, opt, lax.psum(loss, ("data", "stage"))


def make(mesh):
    S = lambda s, spec=P(), d=jnp.float32: jax.ShapeDtypeStruct(
        s, d, sharding=NamedSharding(mesh, spec)
    )
    stacked = lambda s: S((STAGES, LAYERS_PER_STAGE, *s), P("stage"))
    layers = {k: stacked(s) for k, s in (LAYER_SHAPES | VECTOR_SHAPES).items()}
    ends = {k: S(s) for k, s in END_SHAPES.items()}
    params = {"layers": layers, "ends": ends}
    opt = {
        "muon": {k: layers[k] for k in LAYER_SHAPES},
        "layer_adam": {k: (layers[k],) * 2 for k in VECTOR_SHAPES},
        "ends": {k: (v,) * 2 for k, v in ends.items()},
        "t": S(()),
    }
    specs = jax.tree.map(lambda x: x.sharding.spec, (params, opt))
    f = jax.shard_map(
        train_step,
        mesh=mesh,
        in_specs=(*specs, P(), P("data")),
        out_specs=(*specs, P()),
        check_vma=False,
    )
    tokens = S((MESH["data"] * MICRO * MICRO_BATCH, SEQ), P("data"), jnp.int32)
    return jax.jit(f, donate_argnums=(0, 1)), (params, opt, S((2,), P(), jnp.uint32), tokens)
