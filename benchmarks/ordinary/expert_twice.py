TRUTH = """
- expert_twice: MoE in shard_map, experts over 8 devices by all_to_all; gradient is psum'ed in the loss (pmean of loss inside grad: transposes insert psum) and AGAIN by hand after grad: reduced twice. Router replicated.
- Largest: expert matmuls; all_to_all x2 forward, x2 backward (tokens to experts and back), own code. all-reduce of router gradient: by hand pmean.
- With check_vma=False: the transpose of psum is psum; grad wrt replicated router: needs one psum. The person writes jax.lax.pmean(grads) twice (once for all, once in clip): second is redundant.
- Memory: expert weights local + grads + adam state; buffers [E, C, d].
- Remedy: remove the second pmean.
"""

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

MESH = {"expert": 8}

E_, D, FF, T, CAP = 8, 512, 2048, 8192, 256
AXIS = "expert"


def init(key):
    a, b, c = jax.random.split(key, 3)
    return {
        "router": jax.random.normal(a, (D, E_)) * 0.02,
        "in": jax.random.normal(c, (D, D)) * 0.02,
        "up": jax.random.normal(b, (E_, D, FF)) * 0.02,
        "down": jax.random.normal(c, (E_, FF, D)) * 0.02,
    }


SPECS = {"router": P(), "in": P(), "up": P(AXIS), "down": P(AXIS)}


def moe(p, x):
    x = x @ p["in"]
    gate = jax.nn.softmax(x @ p["router"])
    expert = gate.argmax(-1)
    place = (
        jnp.cumsum(jax.nn.one_hot(expert, E_, dtype=jnp.int32), 0)[jnp.arange(x.shape[0]), expert]
        - 1
    )
    keep = place < CAP
    place = jnp.where(keep, place, CAP)
    buffer = jnp.zeros((E_, CAP + 1, D)).at[expert, place].set(x)[:, :CAP]
    inbox = jax.lax.all_to_all(buffer, AXIS, 0, 1, tiled=True)
    h = jax.nn.relu(jnp.einsum("ecd,edf->ecf", inbox, p["up"]))
    h = jnp.einsum("ecf,efd->ecd", h, p["down"])
    back = jax.lax.all_to_all(h, AXIS, 1, 0, tiled=True)
    out = back[expert, jnp.minimum(place, CAP - 1)] * keep[:, None]
    return out * jnp.take_along_axis(gate, expert[:, None], 1)


def loss_fn(p, x, y):
    return ((moe(p, x) - y) ** 2).mean()


def mean_dense(grads):
    return {**grads, **{k: jax.lax.pmean(grads[k], AXIS) for k in ("router", "in")}}


def clip(grads):
    grads = mean_dense(grads)  # "to be sure that the norm is that of all"
    norm = jnp.sqrt(sum((g * g).sum() for g in jax.tree.leaves(grads)))
    norm = jnp.sqrt(jax.lax.psum(norm**2, AXIS))
    return jax.tree.map(lambda g: g * jnp.minimum(1.0, 1.0 / norm), grads)


def local_step(p, x, y):
    loss, grads = jax.value_and_grad(loss_fn)(p, x, y)
    grads = clip(mean_dense(grads))
    return jax.tree.map(lambda a, g: a - 0.1 * g, p, grads), jax.lax.pmean(loss, AXIS)


def sharded(mesh):
    return jax.shard_map(
        local_step,
        mesh=mesh,
        in_specs=(SPECS, P(AXIS), P(AXIS)),
        out_specs=(SPECS, P()),
        check_vma=False,
    )


def make(mesh):
    params = jax.eval_shape(init, jax.random.key(0))
    x = jax.ShapeDtypeStruct((T, D), jnp.float32)
    specs = (SPECS, P(AXIS), P(AXIS))
    args = (params, x, x)

    def placed(spec, tree):
        sharding = NamedSharding(mesh, spec)
        S = jax.ShapeDtypeStruct
        return jax.tree.map(lambda a: S(a.shape, a.dtype, sharding=sharding), tree)

    args = jax.tree.map(placed, specs, args, is_leaf=lambda x: isinstance(x, P))
    return jax.jit(sharded(mesh), donate_argnums=(0,)), args
