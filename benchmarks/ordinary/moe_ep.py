"""Mixture-of-experts transformer, expert parallel with all_to_all inside shard_map."""

MESH = {"data": 2, "expert": 4}

TRUTH = {
    "majors": {
        "attention": 0.25,
        "moe_layer: router, dispatch (all_to_all), experts, combine": 0.6,
        "lm_head": 0.12,
        "backward": 0.66,
        "adafactor/adamw": 0.01,
        "load_balance_loss": 0.0,
    },
    "layers": [["block (attention + moe)", 6]],
    "optimizer": True,
    "grad": "all params",
    "loops": [],
    "tells_apart": [["dispatch", "combine"], ["experts", "router"], ["attention", "moe"]],
}


import jax
import jax.numpy as jnp
import optax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

VOCAB, WIDTH, HEADS, FFN, LAYERS = 8192, 384, 6, 1024, 6
EXPERTS, TOP_K, CAPACITY_FACTOR = 16, 2, 1.25
BATCH, SEQ = 16, 256


def normal(key, *shape):
    return jax.random.normal(key, shape) * shape[-2] ** -0.5


def init_layer(key):
    k = jax.random.split(key, 6)
    return {
        "ln1": jnp.ones(WIDTH),
        "ln2": jnp.ones(WIDTH),
        "wqkv": normal(k[0], WIDTH, 3 * WIDTH),
        "wo": normal(k[1], WIDTH, WIDTH),
        "router": normal(k[2], WIDTH, EXPERTS),
        "w_in": normal(k[3], EXPERTS, WIDTH, FFN),
        "w_gate": normal(k[4], EXPERTS, WIDTH, FFN),
        "w_out": normal(k[5], EXPERTS, FFN, WIDTH),
    }


def init_params(key):
    ke, kh, *ks = jax.random.split(key, LAYERS + 2)
    return {
        "embed": normal(ke, VOCAB, WIDTH),
        "layers": [init_layer(k) for k in ks],
        "ln": jnp.ones(WIDTH),
        "head": normal(kh, WIDTH, VOCAB),
    }


def param_spec(path, leaf):
    name = path[-1].key if hasattr(path[-1], "key") else ""
    return P("expert") if name in ("w_in", "w_gate", "w_out") else P()


def rms(x, s):
    return x * jax.lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-6) * s


def attention(p, x):
    b, n, d = x.shape
    qkv = (x @ p["wqkv"]).reshape(b, n, 3, HEADS, d // HEADS)
    y = jax.nn.dot_product_attention(qkv[:, :, 0], qkv[:, :, 1], qkv[:, :, 2], is_causal=True)
    return y.reshape(b, n, d) @ p["wo"]


def route(router, x, capacity):
    """x: [T, D] -> dispatch mask [T, E, C], combine weights [T, E, C], load balance loss."""
    probs = jax.nn.softmax(x @ router, axis=-1)
    gates, chosen = jax.lax.top_k(probs, TOP_K)
    gates = gates / gates.sum(-1, keepdims=True)
    onehot = jax.nn.one_hot(chosen, EXPERTS)  # T K E
    flat = onehot.transpose(1, 0, 2).reshape(-1, EXPERTS)
    position = (jnp.cumsum(flat, axis=0) - flat).reshape(TOP_K, -1, EXPERTS).transpose(1, 0, 2)
    position = (position * onehot).sum(-1)  # T K
    keep = position < capacity
    slots = jax.nn.one_hot(position, capacity) * keep[..., None]  # T K C
    dispatch = jnp.einsum("tke,tkc->tec", onehot, slots)
    combine = jnp.einsum("tk,tke,tkc->tec", gates, onehot, slots)
    balance = EXPERTS * jnp.sum(onehot[:, 0].mean(0) * probs.mean(0))
    return dispatch, combine, balance


def expert_ffn(w_in, w_gate, w_out, x):
    h = jax.nn.silu(jnp.einsum("ecd,edf->ecf", x, w_gate)) * jnp.einsum("ecd,edf->ecf", x, w_in)
    return jnp.einsum("ecf,efd->ecd", h, w_out)


def moe_local(router, w_in, w_gate, w_out, x):
    b, n, d = x.shape
    x = x.reshape(-1, d)
    capacity = int(CAPACITY_FACTOR * TOP_K * x.shape[0] / EXPERTS)
    dispatch, combine, balance = route(router, x, capacity)
    sent = jnp.einsum("tec,td->ecd", dispatch, x)
    sent = jax.lax.all_to_all(sent, "expert", split_axis=0, concat_axis=1, tiled=True)
    done = expert_ffn(w_in, w_gate, w_out, sent)
    back = jax.lax.all_to_all(done, "expert", split_axis=1, concat_axis=0, tiled=True)
    out = jnp.einsum("tec,ecd->td", combine, back)
    return out.reshape(b, n, d), jax.lax.pmean(balance, ("data", "expert"))


def moe_layer(mesh, p, x):
    f = jax.shard_map(
        moe_local,
        mesh=mesh,
        in_specs=(P(), P("expert"), P("expert"), P("expert"), P(("data", "expert"))),
        out_specs=(P(("data", "expert")), P()),
    )
    return f(p["router"], p["w_in"], p["w_gate"], p["w_out"], x)


def transformer(mesh, params, tokens):
    x = params["embed"][tokens]
    balance = 0.0
    for p in params["layers"]:
        x = x + attention(p, rms(x, p["ln1"]))
        y, aux = moe_layer(mesh, p, rms(x, p["ln2"]))
        x = x + y
        balance = balance + aux
    return rms(x, params["ln"]) @ params["head"], balance / LAYERS


tx = optax.adamw(3e-4, weight_decay=0.01)


def make_train_step(mesh):
    def loss_fn(params, tokens):
        logits, balance = transformer(mesh, params, tokens[:, :-1])
        nll = optax.softmax_cross_entropy_with_integer_labels(logits, tokens[:, 1:]).mean()
        return nll + 0.01 * balance, (nll, balance)

    def train_step(params, opt_state, tokens):
        (_, (nll, balance)), grads = jax.value_and_grad(loss_fn, has_aux=True)(params, tokens)
        updates, opt_state = tx.update(grads, opt_state, params)
        return optax.apply_updates(params, updates), opt_state, {"nll": nll, "balance": balance}

    return jax.jit(train_step, donate_argnums=(0, 1))


def make(mesh):
    place = lambda path, a: jax.ShapeDtypeStruct(
        a.shape, a.dtype, sharding=NamedSharding(mesh, param_spec(path, a))
    )
    params = jax.eval_shape(init_params, jax.random.key(0))
    opt_state = jax.tree_util.tree_map_with_path(place, jax.eval_shape(tx.init, params))
    params = jax.tree_util.tree_map_with_path(place, params)
    tokens = jax.ShapeDtypeStruct(
        (BATCH, SEQ + 1), jnp.int32, sharding=NamedSharding(mesh, P(("data", "expert")))
    )
    return make_train_step(mesh), (params, opt_state, tokens)
