"""MLP-Mixer trained with a GPipe pipeline: 4 stages over `stage`, 2-way data parallel, ppermute between stages."""

MESH = {"data": 2, "stage": 4}

TRUTH = {
    "majors": {
        "pipeline loop (mixer stages, 8 micro-batches + 3 bubbles = 11 ticks)": 0.32,
        "backward of the pipeline": 0.65,
        "token_mixing": 0.3,
        "channel_mixing": 0.7,
        "stem (patch embedding)": 0.01,
        "head": 0.0,
        "ppermute between stages": 0.0,
        "SGD/momentum update": 0.0,
    },
    "layers": [["mixer_block per stage (scan)", 3], ["mixer_block in all", 12]],
    "optimizer": True,
    "grad": "stem, stages, head",
    "loops": [["pipeline tick scan", 11], ["scan over a stage's blocks", 3]],
    "tells_apart": [["token mixing", "channel mixing"], ["forward pipeline", "backward pipeline"]],
}

import jax
import jax.numpy as jnp
import optax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

PATCH, IMAGE, CLASSES = 16, 224, 1000
TOKENS = (IMAGE // PATCH) ** 2
WIDTH, TOKEN_DIM, CHANNEL_DIM = 384, 256, 1536
STAGES, PER_STAGE = 4, 3
BATCH, MICRO = 64, 8


def init_params(key):
    k = jax.random.split(key, 6)
    n = lambda key, *s: jax.random.normal(key, s) * s[-2] ** -0.5
    S, L = STAGES, PER_STAGE
    stages = {
        "ln1": jnp.ones((S, L, WIDTH)),
        "ln2": jnp.ones((S, L, WIDTH)),
        "tok1": n(k[0], S, L, TOKENS, TOKEN_DIM),
        "tok2": n(k[1], S, L, TOKEN_DIM, TOKENS),
        "ch1": n(k[2], S, L, WIDTH, CHANNEL_DIM),
        "ch2": n(k[3], S, L, CHANNEL_DIM, WIDTH),
    }
    stem = {"w": n(k[4], PATCH * PATCH * 3, WIDTH), "b": jnp.zeros(WIDTH)}
    head = {"ln": jnp.ones(WIDTH), "w": n(k[5], WIDTH, CLASSES), "b": jnp.zeros(CLASSES)}
    return {"stem": stem, "stages": stages, "head": head}


def norm(x, scale):
    mu = x.mean(-1, keepdims=True)
    return (x - mu) * jax.lax.rsqrt(jnp.var(x, -1, keepdims=True) + 1e-6) * scale


def token_mixing(p, x):
    y = norm(x, p["ln1"]).swapaxes(1, 2)
    y = jax.nn.gelu(y @ p["tok1"]) @ p["tok2"]
    return x + y.swapaxes(1, 2)


def channel_mixing(p, x):
    y = jax.nn.gelu(norm(x, p["ln2"]) @ p["ch1"]) @ p["ch2"]
    return x + y


def mixer_block(x, p):
    return channel_mixing(p, token_mixing(p, x)), None


def run_stage(params, x):
    x, _ = jax.lax.scan(jax.checkpoint(mixer_block), x, params)
    return x


def pipeline(params, micro):
    """Runs inside shard_map. params: this stage's blocks; micro: [M, b, T, D] the same on every stage."""
    params = jax.tree.map(lambda a: a[0], params)
    stage = jax.lax.axis_index("stage")
    ticks = MICRO + STAGES - 1
    shift = [(i, (i + 1) % STAGES) for i in range(STAGES)]

    def tick(carry, t):
        incoming, outputs = carry
        feed = jax.lax.dynamic_index_in_dim(micro, jnp.minimum(t, MICRO - 1), keepdims=False)
        x = jnp.where(stage == 0, feed, incoming)
        y = run_stage(params, x)
        done = t - (STAGES - 1)
        written = jax.lax.dynamic_update_index_in_dim(outputs, y, jnp.maximum(done, 0), 0)
        outputs = jnp.where((stage == STAGES - 1) & (done >= 0), written, outputs)
        return (jax.lax.ppermute(y, "stage", shift), outputs), None

    start = (jnp.zeros_like(micro[0]), jnp.zeros_like(micro))
    (_, outputs), _ = jax.lax.scan(tick, start, jnp.arange(ticks))
    return jax.lax.psum(jnp.where(stage == STAGES - 1, outputs, 0.0), "stage")


def stem(p, images):
    b, h, w, c = images.shape
    x = images.reshape(b, h // PATCH, PATCH, w // PATCH, PATCH, c).transpose(0, 1, 3, 2, 4, 5)
    return x.reshape(b, TOKENS, -1) @ p["w"] + p["b"]


def head(p, x):
    return norm(x, p["ln"]).mean(axis=1) @ p["w"] + p["b"]


def forward(params, images, mesh):
    x = stem(params["stem"], images)
    micro = x.reshape(MICRO, -1, TOKENS, WIDTH)
    spec = P(None, "data")
    piped = jax.shard_map(
        pipeline, mesh=mesh, in_specs=(P("stage"), spec), out_specs=spec, check_vma=False
    )
    x = piped(params["stages"], micro).reshape(-1, TOKENS, WIDTH)
    return head(params["head"], x)


tx = optax.sgd(0.1, momentum=0.9, nesterov=True)


def make_step(mesh):
    def loss_fn(params, images, labels):
        logits = forward(params, images, mesh)
        return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()

    def train_step(params, opt_state, images, labels):
        loss, grads = jax.value_and_grad(loss_fn)(params, images, labels)
        updates, opt_state = tx.update(grads, opt_state)
        return optax.apply_updates(params, updates), opt_state, loss

    return jax.jit(train_step, donate_argnums=(0, 1))


def make(mesh):
    def place(path, a):
        staged = any(getattr(k, "key", None) == "stages" for k in path)
        return jax.ShapeDtypeStruct(
            a.shape, a.dtype, sharding=NamedSharding(mesh, P("stage") if staged else P())
        )

    params = jax.eval_shape(init_params, jax.random.key(0))
    opt_state = jax.tree_util.tree_map_with_path(place, jax.eval_shape(tx.init, params))
    params = jax.tree_util.tree_map_with_path(place, params)
    images = jax.ShapeDtypeStruct(
        (BATCH, IMAGE, IMAGE, 3), jnp.float32, sharding=NamedSharding(mesh, P("data"))
    )
    labels = jax.ShapeDtypeStruct((BATCH,), jnp.int32, sharding=NamedSharding(mesh, P("data")))
    return make_step(mesh), (params, opt_state, images, labels)
