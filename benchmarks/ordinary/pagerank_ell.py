TRUTH = """
- Personalised PageRank of 64 seeds over a graph of 262,144 pages with 32 links each (ELL format: columns s32[N,32], values f32[N,32]), rows sharded over 8 devices; power iteration in a while_loop until the L1 change is below tolerance or 200 iterations; scores [N,64].
- Each iteration: rows read any column: `scores[columns]` of a row-sharded table with arbitrary indices: the table of scores (262144 x 64 x 4 = 64 MiB) has to be whole on each device: an all-gather (or gather locally masked + all-reduce, which is the worse: [N/8... x 32 x 64]); the cause is the line `scores[columns]`. Remedy: shard the 64 seeds instead of the pages (P(None, "pages")): columns/values replicated (64 MiB), then no communication at all; or gather in bf16.
- The dangling mass and the residual: scalar (per seed [64]) all-reduces each iteration: latency only; could be checked every 10 iterations.
- Iterations unknown at compile time (condition on the residual): at most 200 - any total "per iteration" or "at least".
- Gathered neighbours [N/8, 32, 64] f32 = 256 MiB a device is the largest temporary unless fused with the sum: peak. Remedy: a loop over the 32 links (fori/scan), or fuse.
- No matmul (sum of 32 neighbours); memory-bound.
- Scores are donated; columns and values are read only.
"""

"""Personalised PageRank on a sharded sparse matrix."""
import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

MESH = {"pages": 8}
PAGES, LINKS, SEEDS, DAMPING, TOLERANCE, LIMIT = 262144, 32, 64, 0.85, 1e-6, 200


def multiply(columns, values, scores):
    neighbours = scores[columns]
    return jnp.einsum("nl,nls->ns", values, neighbours)


def pagerank(columns, values, dangling, teleport, scores):
    def going(state):
        _, change, i = state
        return (change > TOLERANCE) & (i < LIMIT)

    def body(state):
        scores, _, i = state
        lost = jnp.sum(jnp.where(dangling[:, None], scores, 0.0), axis=0)
        new = DAMPING * (multiply(columns, values, scores) + lost / PAGES)
        new = new + (1 - DAMPING) * teleport
        change = jnp.max(jnp.sum(jnp.abs(new - scores), axis=0))
        return new, change, i + 1

    scores, change, iterations = jax.lax.while_loop(going, body, (scores, jnp.inf, 0))
    best, pages = jax.lax.top_k(scores.T, 10)
    return scores, best, pages, iterations


def make(mesh):
    rows = NamedSharding(mesh, P("pages"))
    S = jax.ShapeDtypeStruct
    args = (
        S((PAGES, LINKS), jnp.int32, sharding=rows),
        S((PAGES, LINKS), jnp.float32, sharding=rows),
        S((PAGES,), jnp.bool_, sharding=rows),
        S((PAGES, SEEDS), jnp.float32, sharding=rows),
        S((PAGES, SEEDS), jnp.float32, sharding=rows),
    )
    return jax.jit(pagerank, donate_argnums=(4,), out_shardings=(rows, None, None, None)), args
