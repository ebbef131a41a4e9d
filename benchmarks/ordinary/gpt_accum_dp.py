"""GPT (nnx) data-parallel over 8 devices with gradient accumulation over 4 microbatches by lax.scan, lion."""

TRUTH = {
    "majors": {
        "GPT forward (in the microbatch scan)": 0.33,
        "GPT backward (in the microbatch scan)": 0.66,
        "lm_head / lm_loss": 0.25,
        "lion": 0.0,
    },
    "layers": [["Block", 6]],
    "optimizer": True,
    "grad": "all params",
    "loops": ["microbatch scan 4"],
    "tells_apart": [["microbatch loop", "optimizer"], ["forward", "backward"]],
    "order": [
        ["Block", "lm_loss"],
        ["lm_loss", "Block backward"],
        ["microbatch loop", "optimizer"],
        ["clip", "lion"],
    ],
    "independent": [],
}
MESH = {"data": 8}
import jax
import jax.numpy as jnp
import optax
from flax import nnx
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

VOCAB, D, HEADS, L, N, MICRO, B = 8192, 384, 6, 6, 256, 4, 64


class SelfAttention(nnx.Module):
    def __init__(self, rngs):
        self.qkv = nnx.Linear(D, 3 * D, rngs=rngs)
        self.out = nnx.Linear(D, D, rngs=rngs)

    def __call__(self, x):
        b, n, d = x.shape
        q, k, v = [t.reshape(b, n, HEADS, d // HEADS) for t in jnp.split(self.qkv(x), 3, -1)]
        return self.out(jax.nn.dot_product_attention(q, k, v, is_causal=True).reshape(b, n, d))


class MLP(nnx.Module):
    def __init__(self, rngs):
        self.up = nnx.Linear(D, 4 * D, rngs=rngs)
        self.down = nnx.Linear(4 * D, D, rngs=rngs)

    def __call__(self, x):
        return self.down(nnx.gelu(self.up(x)))


class Block(nnx.Module):
    def __init__(self, rngs):
        self.ln1 = nnx.LayerNorm(D, rngs=rngs)
        self.attn = SelfAttention(rngs)
        self.ln2 = nnx.LayerNorm(D, rngs=rngs)
        self.mlp = MLP(rngs)

    def __call__(self, x):
        x = x + self.attn(self.ln1(x))
        return x + self.mlp(self.ln2(x))


class GPT(nnx.Module):
    def __init__(self, rngs):
        self.tok = nnx.Embed(VOCAB, D, rngs=rngs)
        self.pos = nnx.Embed(N, D, rngs=rngs)
        self.blocks = nnx.List([Block(rngs) for _ in range(L)])
        self.ln_f = nnx.LayerNorm(D, rngs=rngs)
        self.lm_head = nnx.Linear(D, VOCAB, use_bias=False, rngs=rngs)

    def __call__(self, t):
        x = self.tok(t) + self.pos(jnp.arange(t.shape[1]))
        for blk in self.blocks:
            x = blk(x)
        return self.lm_head(self.ln_f(x))


tx = optax.chain(optax.clip_by_global_norm(1.0), optax.lion(1e-4, weight_decay=0.1))


def make(mesh):
    graph, shapes = nnx.split(nnx.eval_shape(lambda: GPT(nnx.Rngs(0))))

    def lm_loss(params, tokens):
        logits = nnx.merge(graph, params)(tokens[:, :-1])
        return optax.softmax_cross_entropy_with_integer_labels(logits, tokens[:, 1:]).mean()

    def accumulate_gradients(params, tokens):
        micro = tokens.reshape(MICRO, -1, tokens.shape[-1])
        micro = jax.lax.with_sharding_constraint(micro, NamedSharding(mesh, P(None, "data")))

        def microbatch(carry, t):
            loss, g = jax.value_and_grad(lm_loss)(params, t)
            return (carry[0] + loss, jax.tree.map(jnp.add, carry[1], g)), None

        zero = (jnp.float32(0), jax.tree.map(jnp.zeros_like, params))
        (loss, g), _ = jax.lax.scan(microbatch, zero, micro)
        return loss / MICRO, jax.tree.map(lambda t: t / MICRO, g)

    def train_step(params, opt_state, tokens):
        loss, g = accumulate_gradients(params, tokens)
        u, opt_state = tx.update(g, opt_state, params)
        return optax.apply_updates(params, u), opt_state, loss

    r = NamedSharding(mesh, P())
    rep = lambda t: jax.tree.map(lambda s: jax.ShapeDtypeStruct(s.shape, s.dtype, sharding=r), t)
    params = rep(shapes)
    return jax.jit(train_step), (
        params,
        rep(jax.eval_shape(tx.init, params)),
        jax.ShapeDtypeStruct((B, N + 1), jnp.int32, sharding=NamedSharding(mesh, P("data"))),
    )
