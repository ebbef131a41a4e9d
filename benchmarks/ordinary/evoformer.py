"""Protein-folding trunk training (plain jax): Evoformer blocks with MSA attention, outer product mean, triangle updates; distogram and masked-MSA heads; adam with EMA of params."""

TRUTH = {
    "majors": {
        "evoformer_block forward": 0.3,
        "evoformer_block backward": 0.65,
        "distogram head+loss": 0.02,
        "masked_msa_loss": 0.01,
        "adam": 0.0,
        "ema": 0.0,
    },
    "layers": [["evoformer_block", 4]],
    "optimizer": True,
    "grad": "all params",
    "loops": [],
    "tells_apart": [
        ["msa_row_attention", "msa_column_attention"],
        ["triangle outgoing", "triangle incoming"],
        ["distogram_loss", "masked_msa_loss"],
    ],
    "order": [
        ["embed_inputs", "evoformer_block"],
        ["outer_product_mean", "triangle_multiplication"],
        ["evoformer_block", "distogram_loss"],
        ["evoformer_block backward", "adam"],
        ["adam", "ema"],
    ],
    "independent": [["distogram_loss", "masked_msa_loss"]],
}
import jax
import jax.numpy as jnp
import optax

S, R, CM, CZ, HEADS, L, AA, BINS = 32, 96, 128, 64, 4, 4, 23, 64
tx = optax.chain(optax.clip_by_global_norm(0.1), optax.adam(1e-3))


def linear(p, x):
    return x @ p["w"] + p["b"]


def layer_norm(p, x):
    x = x - x.mean(-1, keepdims=True)
    return x * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-5) * p["g"] + p["b"]


def gated_attention(p, x, bias=None):
    h = lambda t: t.reshape(*t.shape[:-1], HEADS, -1)
    q, k, v = h(linear(p["q"], x)), h(linear(p["k"], x)), h(linear(p["v"], x))
    s = jnp.einsum("...qhc,...khc->...hqk", q, k) * q.shape[-1] ** -0.5
    if bias is not None:
        s = s + bias
    o = jnp.einsum("...hqk,...khc->...qhc", jax.nn.softmax(s), v).reshape(x.shape)
    return linear(p["o"], jax.nn.sigmoid(linear(p["gate"], x)) * o)


def msa_row_attention(p, m, z):
    return gated_attention(
        p["attn"], layer_norm(p["norm"], m), linear(p["bias"], z).transpose(2, 0, 1)
    )


def msa_column_attention(p, m):
    return gated_attention(p["attn"], layer_norm(p["norm"], m).swapaxes(0, 1)).swapaxes(0, 1)


def transition(p, x):
    return linear(p["down"], jax.nn.relu(linear(p["up"], layer_norm(p["norm"], x))))


def outer_product_mean(p, m):
    m = layer_norm(p["norm"], m)
    a, b = linear(p["a"], m), linear(p["b"], m)
    o = jnp.einsum("sic,sjd->ijcd", a, b) / S
    return linear(p["o"], o.reshape(R, R, -1))


def triangle_multiplication(p, z, outgoing):
    z = layer_norm(p["norm"], z)
    a = jax.nn.sigmoid(linear(p["ga"], z)) * linear(p["a"], z)
    b = jax.nn.sigmoid(linear(p["gb"], z)) * linear(p["b"], z)
    t = jnp.einsum("ikc,jkc->ijc", a, b) if outgoing else jnp.einsum("kic,kjc->ijc", a, b)
    return jax.nn.sigmoid(linear(p["go"], z)) * linear(p["o"], layer_norm(p["norm2"], t))


def evoformer_block(p, m, z):
    m = m + msa_row_attention(p["row"], m, z)
    m = m + msa_column_attention(p["col"], m)
    m = m + transition(p["msa_transition"], m)
    z = z + outer_product_mean(p["opm"], m)
    z = z + triangle_multiplication(p["tri_out"], z, True)
    z = z + triangle_multiplication(p["tri_in"], z, False)
    return m, z + transition(p["pair_transition"], z)


def embed_inputs(p, msa):
    m = p["msa"][msa]
    t = p["target"][msa[0]]
    rel = jnp.clip(jnp.arange(R)[:, None] - jnp.arange(R) + 32, 0, 64)
    return m, linear(p["left"], t)[:, None] + linear(p["right"], t)[None] + p["rel"][rel]


def distogram_loss(p, z, bins):
    logits = linear(p, z)
    logits = logits + logits.swapaxes(0, 1)
    return optax.softmax_cross_entropy_with_integer_labels(logits, bins).mean()


def masked_msa_loss(p, m, true, mask):
    ce = optax.softmax_cross_entropy_with_integer_labels(linear(p, m), true)
    return (ce * mask).sum() / (mask.sum() + 1e-6)


def fold_loss(params, batch):
    m, z = embed_inputs(params["embed"], batch["msa"])
    for p in params["blocks"]:
        m, z = evoformer_block(p, m, z)
    return 0.3 * distogram_loss(params["distogram"], z, batch["bins"]) + 2 * masked_msa_loss(
        params["msa_head"], m, batch["true_msa"], batch["mask"]
    )


def ema(avg, params, decay=0.999):
    return jax.tree.map(lambda a, p: decay * a + (1 - decay) * p, avg, params)


@jax.jit
def train_step(params, avg, opt_state, batch):
    loss, g = jax.value_and_grad(fold_loss)(params, batch)
    u, opt_state = tx.update(g, opt_state)
    params = optax.apply_updates(params, u)
    return params, ema(avg, params), opt_state, loss


def make():
    f = lambda *s: jax.ShapeDtypeStruct(s, jnp.float32)
    lin = lambda i, o: {"w": f(i, o), "b": f(o)}
    ln = lambda c: {"g": f(c), "b": f(c)}
    attn = lambda c: {n: lin(c, c) for n in ("q", "k", "v", "gate", "o")}
    tri = lambda: {
        **{n: lin(CZ, CZ) for n in ("a", "b", "ga", "gb", "go", "o")},
        "norm": ln(CZ),
        "norm2": ln(CZ),
    }
    tr = lambda c: {"norm": ln(c), "up": lin(c, 4 * c), "down": lin(4 * c, c)}
    blk = lambda: {
        "row": {"attn": attn(CM), "norm": ln(CM), "bias": lin(CZ, HEADS)},
        "col": {"attn": attn(CM), "norm": ln(CM)},
        "msa_transition": tr(CM),
        "opm": {"norm": ln(CM), "a": lin(CM, 16), "b": lin(CM, 16), "o": lin(256, CZ)},
        "tri_out": tri(),
        "tri_in": tri(),
        "pair_transition": tr(CZ),
    }
    params = {
        "embed": {
            "msa": f(AA, CM),
            "target": f(AA, CM),
            "left": lin(CM, CZ),
            "right": lin(CM, CZ),
            "rel": f(65, CZ),
        },
        "blocks": [blk() for _ in range(L)],
        "distogram": lin(CZ, BINS),
        "msa_head": lin(CM, AA),
    }
    i = lambda *s: jax.ShapeDtypeStruct(s, jnp.int32)
    return train_step, (
        params,
        params,
        jax.eval_shape(tx.init, params),
        {"msa": i(S, R), "true_msa": i(S, R), "mask": f(S, R), "bins": i(R, R)},
    )
