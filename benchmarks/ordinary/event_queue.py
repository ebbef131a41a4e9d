TRUTH = """
- event_queue (jax#17845): scan over events, a queue of 262144 carried; pop shifts a slice left by one (dynamic_slice + dynamic_update_slice of overlapping range); vmap over 8 queues sharded? (sharded over devices by rows)
- Largest: the copy of the queue (1 MB) in each trip, because what is read overlaps what is written: the update can't be done in place. With slice of almost the queue: the update itself is as large.
- Each trip moves whole queue: read slice, write. Remedy: a ring buffer / head pointer: no shift.
- Memory: the queue, twice or thrice. No collectives if vmapped and sharded (all rows local); possibly the vmap of dynamic_slice with per-row index makes gather/scatter: scatter.
"""

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

MESH = {"lanes": 8}

CAPACITY, EVENTS, LANES = 65536, 512, 8


def pop(queue, at):
    """Takes what is at ``at`` and moves everything behind it to the left."""
    value = queue[at]
    behind = lax.dynamic_slice(queue, (at + 1,), (CAPACITY - 2048,))
    return lax.dynamic_update_slice(queue, behind, (at,)), value


def push(queue, size, value):
    return lax.dynamic_update_slice(queue, value[None], (size,)), size + 1


def handle(carry, key):
    queue, size, clock = carry
    at = jax.random.randint(key, (), 0, 1024)
    queue, due = pop(queue, at)
    clock = jnp.maximum(clock, due)
    queue, size = push(queue, size - 1, clock + jax.random.exponential(key))
    return (queue, size, clock), due


def lane(queue, size, key):
    (queue, size, clock), due = lax.scan(handle, (queue, size, 0.0), jax.random.split(key, EVENTS))
    return queue, size, clock, due.mean()


def simulate(queues, sizes, keys):
    return jax.vmap(lane)(queues, sizes, keys)


def make(mesh):
    q = jax.ShapeDtypeStruct((LANES, CAPACITY), jnp.float32)
    s = jax.ShapeDtypeStruct((LANES,), jnp.int32)
    k = jax.eval_shape(lambda: jax.random.split(jax.random.key(0), LANES))
    specs = (P("lanes"), P("lanes"), P("lanes"))
    args = (q, s, k)

    def placed(spec, tree):
        sharding = NamedSharding(mesh, spec)
        S = jax.ShapeDtypeStruct
        return jax.tree.map(lambda a: S(a.shape, a.dtype, sharding=sharding), tree)

    args = jax.tree.map(placed, specs, args, is_leaf=lambda x: isinstance(x, P))
    return jax.jit(simulate, donate_argnums=(0,)), args
