"""Programs for each advice of a finding, as they are and with the advice followed.

Nothing runs: seconds are modelled, bytes are of XLA's peak. "tpu" pairs compile for v5e:2x4 and
need libtpu; the others compile for CPUs, with times of the chip that is chosen.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import hloscope as hs
import jax
import jax.numpy as jnp
import numpy as np
from findings_programs import (
    BF16,
    F32,
    activations_in_f32,
    attention_of_long_rows,
    cache_turned,
    closed_over,
    fetched_from_the_host,
    gathered_again,
    inputs_in_the_loop,
    last_dimension_of_three,
    leapfrog,
    left_out_of_the_specs,
    logits_at_once,
    mesh,
    offloading,
    on_tpu,
    printing,
    python_loop,
    reads_the_old,
    rows_of_a_cache,
    rows_placed_by_ones,
    series_one_by_one,
    shaped,
    small_heads,
    states_of_few_rows,
    stored_gathered,
    stored_repeated,
    there_and_back_in_a_fusion,
    whole_momentum,
)
from jax import lax
from jax.experimental.layout import Format, Layout
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

SECONDS, PEAK, WIRE = "seconds", "peak", "wire"
PROGRAM, CALLS = "program", "calls"  # bytes of constants or instructions; calls of Python
COMPILE = "compile"  # seconds, measured


@dataclass(frozen=True)
class Pair:
    """``gains`` says by what half of what is at stake is gained."""

    rule: str
    branch: str  # part of the advice
    followed: str  # in a few words
    make: Callable[[bool], hs.Capture]  # True: the advice is followed
    gains: str
    platform: str = "cpu"


PAIRS: list[Pair] = []


def pair(rule: str, branch: str, followed: str, gains: str, platform: str = "cpu") -> Any:
    """Registers ``make(followed: bool)``, which compiles each of the two once per process."""

    def add(make: Callable[[bool], hs.Capture]) -> Callable[[bool], hs.Capture]:
        made = cache(make)
        PAIRS.append(Pair(rule, branch, followed, made, gains, platform))
        return made

    return add


def twin(
    rule: str, branch: str, followed: str, gains: str, make: Any, platform: str = "cpu"
) -> None:
    """A program of ``findings_programs`` whose healthy twin is the advice followed."""
    PAIRS.append(Pair(rule, branch, followed, lambda done: make(not done), gains, platform))


def chip(fn: Any, *args: Any, hardware: str = "tpu-v5e", **how: Any) -> hs.Capture:
    return hs.capture(jax.jit(fn, **how), *args, hardware=hardware)


# -- what is waited for ---------------------------------------------------------------------------


def scanned_layers(spec: P, platform: str) -> hs.Capture:
    """A scan over layers whose weights are sharded so, on eight devices."""

    def forward(ws: Any, x: Any) -> Any:
        return lax.scan(lambda x, w: (jnp.tanh(x @ w), None), x, ws)[0]

    ws, x = shaped((16, 1024, 1024), BF16), shaped((512, 1024), BF16)
    if platform == "tpu":
        return on_tpu(forward, ws, x, axes={"x": 8}, in_shardings=(spec, P("x")))
    on = mesh("x")
    return chip(forward, ws, x, in_shardings=(NamedSharding(on, spec), NamedSharding(on, P("x"))))


@pair(
    "exposed-collective", "shard another dimension of it",
    "layers of a scan sharded by their columns, in place of by layers", SECONDS, "tpu",
)  # fmt: skip
def sharded_within_layers(followed: bool) -> hs.Capture:
    return scanned_layers(P(None, None, "x") if followed else P("x"), "tpu")


@pair(
    "exposed-collective", "pad it",
    "rows padded to a number that eight devices divide, updated and returned in shards", SECONDS,
)  # fmt: skip
def padded_to_even_parts(followed: bool) -> hs.Capture:
    on = mesh("x")
    by_rows, whole = NamedSharding(on, P("x")), NamedSharding(on, P())

    def step(table: Any, x: Any) -> Any:
        cut = lax.with_sharding_constraint(table, by_rows)
        return cut - 0.1 * jax.grad(lambda t: jnp.tanh(x @ t.T).sum())(cut)

    rows, given = (8200, by_rows) if followed else (8195, whole)
    table = jax.ShapeDtypeStruct((rows, 512), F32, sharding=given)
    return chip(step, table, shaped((64, 512), F32, on), out_shardings=given)


@pair(
    "exposed-collective", "sum over the devices once, after the loop",
    "gradients of microbatches added up in shard_map, one psum after the scan", SECONDS,
)  # fmt: skip
def summed_after_the_loop(followed: bool) -> hs.Capture:
    on = mesh("data")

    def grad(w: Any, x: Any) -> Any:
        return jax.grad(lambda w: jnp.sum(jnp.tanh(x @ w)))(w)

    def step(w: Any, xs: Any) -> Any:
        def add(total: Any, x: Any) -> Any:
            return total + grad(w, x), None

        return lax.scan(add, jnp.zeros_like(w), xs)[0]

    def own(w: Any, xs: Any) -> Any:
        return lax.psum(step(w, xs), "data")

    given = P(None, "data")
    mapped = jax.shard_map(own, mesh=on, in_specs=(P(), given), out_specs=P(), check_vma=False)
    w, xs = shaped((512, 512), F32, on), shaped((8, 1024, 512), F32, on, None, "data")
    return chip(mapped if followed else step, w, xs)


@pair(
    "exposed-collective", "psum_scatter after the scan",
    "gradients kept whole over microbatches, one psum_scatter after the scan", SECONDS,
)  # fmt: skip
def scattered_after_the_loop(followed: bool) -> hs.Capture:
    on = mesh("data")

    def grad(w: Any, x: Any) -> Any:
        return jax.grad(lambda w: jnp.sum(jnp.tanh(x @ w)))(w)

    def cut(g: Any) -> Any:
        return lax.psum_scatter(g, "data", scatter_dimension=0, tiled=True)

    def step(w: Any, xs: Any) -> Any:
        def add(total: Any, x: Any) -> Any:
            return total + (grad(w, x) if followed else cut(grad(w, x))), None

        begun = jnp.zeros_like(w) if followed else jnp.zeros((w.shape[0] // 8, w.shape[1]))
        total = lax.scan(add, begun, xs)[0]
        return cut(total) if followed else total

    mapped = jax.shard_map(
        step, mesh=on, in_specs=(P(), P(None, "data")), out_specs=P("data"), check_vma=False
    )
    return chip(
        mapped, shaped((1024, 1024), F32, on), shaped((8, 1024, 1024), F32, on, None, "data")
    )


@pair(
    "exposed-collective", "gather it once, before the loop",
    "weights in shards gathered once for all microbatches", SECONDS, "tpu",
)  # fmt: skip
def gathered_before_the_loop(followed: bool) -> hs.Capture:
    def step(w: Any, xs: Any) -> Any:
        whole = lax.with_sharding_constraint(w, P()) if followed else w

        def add(total: Any, x: Any) -> Any:
            x = lax.with_sharding_constraint(x, P("x"))
            return total + jnp.sum(jnp.tanh(x @ whole).astype(F32)), None

        return lax.scan(add, 0.0, xs)[0]

    fn = jax.jit(step, in_shardings=(P("x"), P(None, "x")))
    given = shaped((2048, 8192), BF16), shaped((16, 1024, 2048), BF16)
    return on_tpu(fn, *given, axes={"x": 8})


@pair(
    "exposed-collective", "run the loop in jax.shard_map over these devices",
    "rows solved until each has converged, in shard_map", SECONDS,
)  # fmt: skip
def solved_by_each_device(followed: bool) -> hs.Capture:
    on = mesh("rows")

    def solve(y: Any) -> Any:
        def go_on(at: Any) -> Any:
            return (jnp.max(jnp.abs(at[0])) < 20.0) & (at[1] < 10_000)

        return lax.while_loop(go_on, lambda at: (at[0] * 1.01, at[1] + 1), (y, 0))[0]

    def rows(ys: Any) -> Any:
        return jax.vmap(solve)(ys)

    mapped = jax.shard_map(rows, mesh=on, in_specs=P("rows"), out_specs=P("rows"), check_vma=False)
    return chip(mapped if followed else rows, shaped((64, 64), F32, on, "rows"))


@pair(
    "exposed-collective", "return it in the sharding in which it is updated",
    "out_shardings of the updated state as it is updated", SECONDS,
)  # fmt: skip
def returned_whole(followed: bool) -> hs.Capture:
    on = mesh("data")
    cut, whole = NamedSharding(on, P("data")), NamedSharding(on, P())

    def step(w: Any, m: Any, x: Any) -> Any:
        grads = jax.grad(lambda w: jnp.sum(jnp.tanh(x @ w)))(w)
        m = 0.9 * m + lax.with_sharding_constraint(grads, cut)
        return m

    given = shaped((1024, 1024), F32, on), shaped((1024, 1024), F32, on, "data")
    x = shaped((64, 1024), F32, on, "data")
    return chip(step, *given, x, out_shardings=cut if followed else whole)


@pair("exposed-collective", "return it sharded", "out_shardings P('x')", SECONDS)
def result_whole(followed: bool) -> hs.Capture:
    on = mesh("x")
    out = NamedSharding(on, P("x") if followed else P())
    return chip(lambda a: jnp.sin(a) * 2, shaped((4096, 512), F32, on, "x"), out_shardings=out)


@pair(
    "exposed-collective", "leave the axis in that constraint",
    "with_sharding_constraint P('x') instead of P()", SECONDS,
)  # fmt: skip
def constrained_whole(followed: bool) -> hs.Capture:
    on = mesh("x")

    def step(a: Any) -> Any:
        a = lax.with_sharding_constraint(jnp.sin(a), NamedSharding(on, P("x")))
        a = lax.with_sharding_constraint(a, NamedSharding(on, P("x") if followed else P()))
        return jnp.tanh(a) @ jnp.ones((512, 512))

    return chip(step, shaped((4096, 512), F32, on, "x"))


@pair(
    "exposed-collective", "fewer and larger transfers",
    "four small arrays of a trip gathered at once instead of one by one", SECONDS,
)  # fmt: skip
def one_gather_of_four(followed: bool) -> hs.Capture:
    on = mesh("x")

    def step(a: Any) -> Any:
        def body(c: Any, row: Any) -> Any:
            small = [jnp.sin(row[:8] * k + c) for k in range(4)]
            if followed:
                return c + lax.all_gather(jnp.stack(small), "x").sum(), None
            return c + sum(lax.all_gather(s, "x").sum() for s in small), None

        return lax.scan(body, 0.0, a)[0]

    mapped = jax.shard_map(step, mesh=on, in_specs=P(None, "x"), out_specs=P(), check_vma=False)
    return chip(mapped, shaped((32, 512), F32, on, None, "x"))


@pair(
    "exposed-collective", "reduce that once, after the loop",
    "energies of all trips stacked, and their mean taken after the loop", SECONDS,
)  # fmt: skip
def mean_of_all_trips(followed: bool) -> hs.Capture:
    on = mesh("x")

    def step(a: Any) -> Any:
        def trip(a: Any, _: Any) -> Any:
            a = jnp.sin(a)
            return a, a if followed else a.mean()

        a, energies = lax.scan(trip, a, None, length=64)
        return a, energies.mean(1) if followed else energies

    return chip(step, shaped((512,), F32, on, "x"))


@pair(
    "exposed-collective", "write the part by a mask",
    "walls of a field in rows of shards written by a mask", SECONDS,
)  # fmt: skip
def walls_by_a_mask(followed: bool) -> hs.Capture:
    on = mesh("x")

    def step(h: Any) -> Any:
        def trip(h: Any, _: Any) -> Any:
            if followed:
                row = lax.broadcasted_iota(jnp.int32, h.shape, 0)
                h = jnp.where(row < 2, h[2], jnp.where(row >= len(h) - 2, h[-3], h))
            else:
                h = h.at[0:2].set(h[2]).at[-2:].set(h[-3])
            return jnp.sin(h), None

        return lax.scan(trip, h, None, length=64)[0]

    return chip(step, shaped((4096, 512), F32, on, "x"))


@pair(
    "exposed-collective", "constrain the value to the sharding that it has",
    "activations cut as the weights make them, for their gradient to be cut so too", SECONDS,
)  # fmt: skip
def gradient_cut_as_its_value(followed: bool) -> hs.Capture:
    on = mesh("x")

    def loss(ws: Any, x: Any) -> Any:
        x = lax.with_sharding_constraint(x, NamedSharding(on, P("x")))
        for up, down in ws:
            h = lax.with_sharding_constraint(x, NamedSharding(on, P()))
            h = jnp.tanh(h @ up)
            if followed:
                h = lax.with_sharding_constraint(h, NamedSharding(on, P(None, "x")))
            x = x + lax.with_sharding_constraint(h @ down, NamedSharding(on, P("x")))
        return (x**2).mean()

    ws = [(shaped((512, 2048), F32, on, None, "x"), shaped((2048, 512), F32, on, "x"))] * 2
    return chip(jax.grad(loss), ws, shaped((4096, 512), F32, on, "x"))


@pair(
    "exposed-collective", "constrain the value to the sharding that it has",
    "activations kept in parts of the batch, where weights are stored in shards (FSDP)", SECONDS,
)  # fmt: skip
def gradient_cut_as_the_batch(followed: bool) -> hs.Capture:
    return gradient_cut_as_the_batch_of(1024, followed)


def gradient_cut_as_the_batch_of(rows: int, followed: bool) -> hs.Capture:
    on = mesh("x")

    def layer(x: Any, w: Any) -> Any:
        h = jax.nn.gelu(x @ w["up"])
        if followed:
            h = lax.with_sharding_constraint(h, NamedSharding(on, P("x")))
        return x + h @ w["down"], None

    def loss(params: Any, x: Any) -> Any:
        layers = {name: params[name] for name in ("up", "down")}
        return (lax.scan(jax.checkpoint(layer), x @ params["front"], layers)[0] ** 2).mean()

    def step(params: Any, x: Any) -> Any:
        return jax.tree.map(lambda w, g: w - g, params, jax.grad(loss)(params, x))

    sizes = {"up": (4, 512, 2048), "down": (4, 2048, 512), "front": (512, 512)}
    params = {name: shaped(size, F32, on, None, "x") for name, size in sizes.items()}
    how = {name: w.sharding for name, w in params.items()}
    return chip(step, params, shaped((16, rows, 512), F32, on, "x"), out_shardings=how)


@pair(
    "reduced-twice", "leave out the second",
    "gradients averaged over the devices once", WIRE,
)  # fmt: skip
def averaged_once(followed: bool) -> hs.Capture:
    on = mesh("x")

    def step(w: Any, x: Any) -> Any:
        grad = lax.pmean(jax.grad(lambda w: (jnp.tanh(x @ w) ** 2).mean())(w), "x")
        grad = grad * jnp.minimum(1.0, 1 / jnp.abs(grad).max())
        return w - (grad if followed else lax.pmean(grad, "x"))

    mapped = jax.shard_map(step, mesh=on, in_specs=(P(), P("x")), out_specs=P(), check_vma=False)
    return chip(mapped, shaped((512, 512), F32, on), shaped((256, 512), F32, on, "x"))


@pair(
    "tiny-collectives", "stack or concatenate the small arrays",
    "twelve small arrays stacked before one psum", SECONDS,
)  # fmt: skip
def stacked_before_the_sum(followed: bool) -> hs.Capture:
    on = mesh("x")

    def step(*rows: Any) -> Any:
        if followed:
            return lax.psum(jnp.stack([jnp.sin(r) for r in rows]), "x")
        return jnp.stack([lax.all_gather(jnp.sin(r), "x", tiled=True) for r in rows])

    def gathered(*rows: Any) -> Any:
        return lax.all_gather(jnp.stack([jnp.sin(r) for r in rows]), "x", axis=1, tiled=True)

    fn = jax.shard_map(
        gathered if followed else step, mesh=on, in_specs=P("x"), out_specs=P(), check_vma=False
    )
    return chip(fn, *(shaped((1024,), F32, on, "x") for _ in range(12)))


# -- gathered for one operation ------------------------------------------------------------------


def _in_parts(fn: Any, spec: P, out: Any) -> Any:
    return jax.shard_map(fn, mesh=mesh("x"), in_specs=spec, out_specs=out, check_vma=False)


@pair(
    "gathered-for-one", "where each device does its own part",
    "a Fourier transform of sharded rows in shard_map", WIRE,
)  # fmt: skip
def transform_of_sharded_rows(followed: bool) -> hs.Capture:
    fn = jnp.fft.fft
    if followed:
        fn = _in_parts(fn, P("x"), P("x"))
    return chip(fn, shaped((512, 1 << 13), jnp.complex64, mesh("x"), "x", None))


@pair(
    "gathered-for-one", "take the k largest of each device's part",
    "the 8 largest of each part, then the 8 largest of those", WIRE,
)  # fmt: skip
def largest_of_parts(followed: bool) -> hs.Capture:
    def largest(x: Any) -> Any:
        return lax.top_k(x, 8)

    def of_parts(x: Any) -> Any:
        values, at = largest(x)
        at = at + lax.axis_index("x") * x.shape[1]
        values, at = (lax.all_gather(v, "x", axis=1, tiled=True) for v in (values, at))
        values, which = largest(values)
        return values, jnp.take_along_axis(at, which, 1)

    fn = _in_parts(of_parts, P(None, "x"), P()) if followed else largest
    return chip(fn, shaped((64, 1 << 16), F32, mesh("x"), None, "x"))


@pair(
    "gathered-for-one", "take the cumsum of each device's part",
    "a cumsum of each part, and the sums of the parts before it", WIRE,
)  # fmt: skip
def cumsum_of_parts(followed: bool) -> hs.Capture:
    def whole(x: Any) -> Any:
        return jnp.cumsum(x, axis=1)

    def of_parts(x: Any) -> Any:
        own = whole(x)
        sums = lax.all_gather(own[:, -1], "x", axis=0)
        before = jnp.arange(sums.shape[0])[:, None] < lax.axis_index("x")
        return own + (sums * before).sum(0)[:, None]

    fn = _in_parts(of_parts, P(None, "x"), P(None, "x")) if followed else whole
    return chip(fn, shaped((64, 1 << 14), F32, mesh("x"), None, "x"))


twin(
    "peak-of-a-line", "with jax.checkpoint around its body",
    "the loss in 16 blocks of tokens", PEAK, logits_at_once, "tpu",
)  # fmt: skip


# -- unnecessary communication --------------------------------------------------------------------


@pair(
    "gathered-for-one", "jax.scipy.sparse.linalg.cg",
    "a system solved by conjugate gradients instead of Cholesky's factors", WIRE,
)  # fmt: skip
def solved_by_products(followed: bool) -> hs.Capture:
    on = mesh("x")

    def by_factors(a: Any, b: Any) -> Any:
        factors = jnp.linalg.cholesky(a), True
        return jax.scipy.linalg.cho_solve(factors, b)

    def by_products(a: Any, b: Any) -> Any:
        return jax.scipy.sparse.linalg.cg(lambda v: a @ v, b, maxiter=100)[0]

    given = shaped((1024, 1024), F32, on, "x"), shaped((1024,), F32, on, "x")
    return chip(by_products if followed else by_factors, *given)


@pair(
    "gathered-then-sliced", "write the part by a mask",
    "the first rows of a sharded array written by a mask", WIRE,
)  # fmt: skip
def written_by_a_mask(followed: bool) -> hs.Capture:
    on = mesh("x")

    def step(field: Any, source: Any) -> Any:
        field = field * 0.99
        if not followed:
            return field.at[0:16].set(source)
        rows = lax.broadcasted_iota(jnp.int32, (field.shape[0], 1), 0)
        return jnp.where(rows < 16, jnp.pad(source, ((0, field.shape[0] - 16), (0, 0))), field)

    cut = NamedSharding(on, P("x"))
    given = shaped((4096, 1024), F32, on, "x"), shaped((16, 1024), F32, on)
    return chip(step, *given, out_shardings=cut, donate_argnums=0)


@pair(
    "reduced-twice", "reduce their sum by hand in",
    "both gradients of a tied embedding added in shard_map, then one psum", WIRE,
)  # fmt: skip
def tied_by_hand(followed: bool) -> hs.Capture:
    on = mesh("data")

    def loss(e: Any, ids: Any, labels: Any) -> Any:
        logits = jnp.tanh(e[ids]) @ e.T
        return -jnp.take_along_axis(jax.nn.log_softmax(logits), labels[:, None], 1).sum()

    def own(e: Any, ids: Any, labels: Any) -> Any:
        return lax.psum(jax.grad(loss)(e, ids, labels), "data")

    specs = P(), P("data"), P("data")
    mapped = jax.shard_map(own, mesh=on, in_specs=specs, out_specs=P(), check_vma=False)
    e, ids = shaped((6400, 512), F32, on), shaped((1024,), jnp.int32, on, "data")
    return chip(mapped if followed else jax.grad(loss), e, ids, ids)


def lookups(followed: bool) -> Any:
    def loss(e: Any, a: Any, b: Any, others: Any) -> Any:
        if followed:
            rows = e[jnp.concatenate([a[:, None], b[:, None], others], 1)]
            x, y, z = rows[:, 0], rows[:, 1], rows[:, 2:]
        else:
            x, y, z = e[a], e[b], e[others]
        return jnp.sum(jnp.tanh(x * y)[:, None] * z)

    def step(e: Any, mean: Any, *ids: Any) -> Any:  # two fusions add up what each lookup sends back
        g = jax.grad(loss)(e, *ids)
        mean = mean + g * g
        return e - g / (jnp.sqrt(mean) + 1e-6), mean

    return step


@pair(
    "reduced-twice", "look up all indices at once",
    "three lookups in one table as one", WIRE,
)  # fmt: skip
def looked_up_at_once(followed: bool) -> hs.Capture:
    on = mesh("data")
    e, ids, others = (1 << 16, 256), (1024,), (1024, 8)
    given = (shaped(s, jnp.int32, on, "data") for s in (ids, ids, others))
    return chip(lookups(followed), shaped(e, F32, on), shaped(e, F32, on), *given)


@pair(
    "reduced-twice", "look up all indices at once",
    "three lookups in one table as one, of which XLA:TPU adds two", WIRE, "tpu",
)  # fmt: skip
def looked_up_at_once_on_tpu(followed: bool) -> hs.Capture:
    fn = jax.jit(lookups(followed), in_shardings=(P(), P(), *[P("data")] * 3), out_shardings=P())
    e, ids, others = shaped((1 << 17, 256), F32), (1024,), (1024, 8)
    given = (shaped(s, jnp.int32) for s in (ids, ids, others))
    return on_tpu(fn, e, e, *given, axes={"data": 8})


@pair(
    "exposed-collective", "a dimension of their own",
    "queries, keys and values side by side as [d, 3, n]", SECONDS,
)  # fmt: skip
def pieces_with_their_own_dimension(followed: bool) -> hs.Capture:
    on = mesh("model")

    def attend(x: Any, w: Any) -> Any:
        if followed:
            q, k, v = (y[:, 0] for y in jnp.split(jnp.einsum("td,dpn->tpn", x, w), 3, axis=1))
        else:
            q, k, v = jnp.split(x @ w, 3, axis=-1)
        q, k, v = (y.reshape(-1, 16, 64) for y in (q, k, v))
        scores = jax.nn.softmax(jnp.einsum("qhd,khd->hqk", q, k))
        return jnp.einsum("hqk,khd->qhd", scores, v)

    dims = (1024, 3, 1024) if followed else (1024, 3072)
    w = shaped(dims, F32, on, *(None,) * (len(dims) - 1), "model")
    return chip(attend, shaped((512, 1024), F32, on), w)


@pair(
    "reduced-twice", "put side by side",
    "two projections of one value as one matmul", WIRE,
)  # fmt: skip
def projections_side_by_side(followed: bool) -> hs.Capture:
    on = mesh("model")

    def loss(x: Any, w: Any) -> Any:
        if followed:
            both = jnp.einsum("bd,dnf->bnf", x, w["both"])
            a, b = both[:, 0], both[:, 1]
        else:
            a, b = x @ w["a"], x @ w["b"]
        return jnp.sum(jnp.tanh(a) * jnp.sin(b))

    def step(x: Any, w: Any) -> Any:
        return jax.grad(lambda x: loss(jnp.sin(x), w))(x)

    each = shaped((512, 1024), F32, on, None, "model")
    w = {"both": shaped((512, 2, 1024), F32, on, None, None, "model")} if followed else {}
    return chip(step, shaped((2048, 512), F32, on), w or {"a": each, "b": each})


twin("gathered-twice", "gather it once", "the first result used again", WIRE, gathered_again)


@pair(
    "collective-of-constant", "constrain the constant's sharding where it is made",
    "made as each device's part", WIRE,
)  # fmt: skip
def constant_in_parts(followed: bool) -> hs.Capture:
    on = mesh("data")

    def layer(x: Any) -> Any:
        if followed:
            return x.sum() + jnp.full((512, 64), 0.5)
        return x.sum() + lax.all_to_all(jnp.full((64, 512), 0.5), "data", 1, 0, tiled=True)

    fn = jax.shard_map(layer, mesh=on, in_specs=P("data"), out_specs=P(None, "data"))
    return chip(fn, shaped((512, 512), F32, on, "data"))


twin(
    "gathered-then-sliced", "constrain the value between the two",
    "the constraint to P() between them removed", WIRE, there_and_back_in_a_fusion, "tpu",
)  # fmt: skip


# -- layouts, copies and types --------------------------------------------------------------------


@pair(
    "layout-copies", "let XLA choose the order of the results",
    "probabilities returned in the order in which they are made", SECONDS, "tpu",
)  # fmt: skip
def returned_as_made(followed: bool) -> hs.Capture:
    def probabilities(q: Any, k: Any, table: Any, at: Any) -> Any:
        near = jnp.take_along_axis(jnp.einsum("bnqd,npd->bnqp", q, table), at[None, None], -1)
        return jax.nn.softmax(jnp.einsum("bnqd,bnkd->bnqk", q, k) + near, -1)

    q, table = shaped((8, 12, 512, 64), BF16), shaped((12, 512, 64), BF16)
    how = {"out_shardings": Format(Layout.AUTO)} if followed else {}
    fn = jax.jit(probabilities, **how)
    return hs.capture(fn, q, q, table, shaped((512, 512), jnp.int32), topology="v5e:2x2")


twin(
    "layout-copies", "swap the dimensions where it is made",
    "a cache stored as [batch, heads, length, features]", SECONDS, cache_turned,
)  # fmt: skip
twin(
    "update-copies", "carry what is needed of the old value beside it",
    "the sum taken from what was carried beside it", SECONDS, reads_the_old,
)  # fmt: skip


@pair(
    "repeated-converts", "keep them in bf16 between steps", "weights given in bf16", SECONDS, "tpu"
)
def kept_narrow(followed: bool) -> hs.Capture:
    def step(ws: Any, x: Any) -> Any:
        narrow = lax.optimization_barrier([w.astype(BF16) for w in ws])
        for w in narrow:
            x = jnp.tanh(x @ w)
        return x

    given = BF16 if followed else F32
    ws = [shaped((2048, 2048), given) for _ in range(4)]
    return hs.capture(jax.jit(step), ws, shaped((512, 2048), BF16), topology="v5e:1x1")


@cache
def multiplied(how: str) -> hs.Capture:
    def step(x: Any, w: Any) -> Any:
        if how == "bf16":
            return jnp.dot(x.astype(BF16), w.astype(BF16), preferred_element_type=F32)
        return jnp.dot(x, w, precision="highest" if how == "highest" else None)

    return hs.capture(jax.jit(step), *[shaped((1024, 1024))] * 2, topology="v5e:1x1")


@pair(
    "wide-matmul", "cast the operands to bf16", "operands in bf16, the sum in f32", SECONDS, "tpu"
)
def operands_narrowed(followed: bool) -> hs.Capture:
    return multiplied("bf16" if followed else "highest")


@pair(
    "wide-matmul", "lower jax.default_matmul_precision", "without precision='highest'", SECONDS,
    "tpu",
)  # fmt: skip
def precision_lowered(followed: bool) -> hs.Capture:
    return multiplied("default" if followed else "highest")


@pair(
    "wide-matmul", "turn jax_enable_x64 off",
    "np.float32 in place of a numpy scalar of 64 bits", SECONDS,
)  # fmt: skip
def numpy_scalar(followed: bool) -> hs.Capture:
    scale = np.sqrt(1024.0).astype(np.float32) if followed else np.sqrt(1024.0)
    with jax.enable_x64(True):
        w, x = shaped((1024, 1024)), shaped((512, 1024))
        return chip(lambda w, x: jnp.tanh(x @ (w / scale)), w, x, hardware="h100")


@pair(
    "wide-values", "turn jax_enable_x64 off",
    "np.float32 in place of a numpy scalar of 64 bits", SECONDS,
)  # fmt: skip
def wide_elementwise(followed: bool) -> hs.Capture:
    scale = np.float32(0.5) if followed else np.float64(0.5)
    with jax.enable_x64(True):
        return chip(
            lambda x: jnp.cumsum(jnp.sin(x) * scale, axis=0), shaped((2048, 2048)), hardware="h100"
        )


# -- compute --------------------------------------------------------------------------------------


@pair(
    "redundant-work", "constrain that operand to stay sharded",
    "microbatches cut so that the sharded rows stay whole", SECONDS,
)  # fmt: skip
def microbatches_of_whole_rows(followed: bool) -> hs.Capture:
    on = mesh("data")

    def step(w: Any, x: Any) -> Any:
        rows = x.reshape(16, 4, 64, 256).swapaxes(0, 1) if followed else x.reshape(4, 16, 64, 256)
        if followed:
            rows = lax.with_sharding_constraint(rows, NamedSharding(on, P(None, "data")))

        def add(total: Any, part: Any) -> Any:
            return total + jax.grad(lambda w: jnp.mean(jnp.tanh(part @ w) ** 2))(w), None

        return lax.scan(add, jnp.zeros_like(w), rows)[0]

    return hs.capture(step, shaped((256, 512), F32, on), shaped((64, 64, 256), F32, on, "data"))


@pair(
    "redundant-work", "shard one of its operands over the devices that do the same",
    "rows cut over both axes before the head, instead of one", SECONDS,
)  # fmt: skip
def head_over_both_axes(followed: bool) -> hs.Capture:
    on = mesh("data", "stage")

    def step(x: Any, w: Any) -> Any:
        if followed:
            x = lax.with_sharding_constraint(x, NamedSharding(on, P(("data", "stage"))))
        return jnp.tanh(x @ w).sum()

    given = shaped((4096, 1024), F32, on, "data"), shaped((1024, 4096), F32, on)
    return hs.capture(step, *given)


@pair(
    "redundant-work", "cut what it contracts over the same devices",
    "operands of a product cut along its rows and columns, in place of what it contracts", SECONDS,
)  # fmt: skip
def cut_along_rows_and_columns(followed: bool) -> hs.Capture:
    return multiplied_in_parts(*((P("x"), P(None, "y")) if followed else (P(None, "x"), P("y"))))


def multiplied_in_parts(*specs: P) -> hs.Capture:
    """The transpose of a product on eight devices, with its operands sharded so."""
    on = mesh("x", "y")
    given = tuple(NamedSharding(on, spec) for spec in specs)
    fn = jax.jit(lambda a, b: (a @ b).T, in_shardings=given)
    return hs.capture(fn, shaped((1024, 2048)), shaped((2048, 1024)), hardware="tpu-v5e")


@pair("redundant-work", "jax.shard_map", "a Fourier transform in shard_map", SECONDS)
def transform_by_hand(followed: bool) -> hs.Capture:
    on = mesh("data")
    own = jax.shard_map(jnp.fft.fft, mesh=on, in_specs=P("data"), out_specs=P("data"))
    x = shaped((512, 4096), jnp.complex64, on, "data")
    return hs.capture(jax.jit(own if followed else jnp.fft.fft), x)


@pair(
    "idle-matmul", "batch more rows into one product",
    "64 rows in one product instead of eight at a time", SECONDS, "tpu",
)  # fmt: skip
def rows_at_once(followed: bool) -> hs.Capture:
    def through(x: Any, w: Any) -> Any:
        return lax.scan(lambda x, _: (jnp.tanh(x @ w), None), x, None, length=4)[0]

    def step(params: Any, xs: Any) -> Any:
        w = params["w"]
        return through(xs, w) if followed else lax.map(lambda x: through(x, w), xs)

    params = {"w": shaped((8192, 8192), BF16)}
    xs = shaped((64, 8192) if followed else (8, 8, 8192), BF16)
    return hs.capture(jax.jit(step), params, xs, topology="v5e:1x1")


@pair(
    "narrow-copies", "keep them in",
    "parameters in bf16 between steps", PEAK, "tpu",
)  # fmt: skip
def narrow_between_steps(followed: bool) -> hs.Capture:
    def step(params: Any, x: Any) -> Any:
        def loss(params: Any) -> Any:
            narrow = jax.tree.map(lambda p: p.astype(BF16), params)

            def layer(h: Any, w: Any) -> Any:
                return h + jnp.tanh(h @ w["a"]) @ w["b"], None

            return (lax.scan(layer, x, narrow)[0].astype(F32) ** 2).mean()

        update = lambda p, g: p - (1e-3 * g).astype(p.dtype)  # noqa: E731
        return jax.tree.map(update, params, jax.grad(loss)(params))

    of = BF16 if followed else F32
    given = {"a": shaped((16, 2048, 8192), of), "b": shaped((16, 8192, 2048), of)}
    fn = jax.jit(step, donate_argnums=0)
    return hs.capture(fn, given, shaped((256, 2048), BF16), topology="v5e:2x2")


@pair(
    "batched-branches", "pick them first",
    "the rows that need the expensive branch picked by jnp.nonzero", SECONDS,
)  # fmt: skip
def rows_that_need_it(followed: bool) -> hs.Capture:
    def expensive(x: Any, w: Any) -> Any:
        for _ in range(8):
            x = jnp.tanh(w @ x)
        return x

    def one(x: Any, w: Any) -> Any:
        return lax.cond(x[0] > 0.99, expensive, lambda x, w: x * 2, x, w)

    def picked(xs: Any, w: Any) -> Any:
        (i,) = jnp.nonzero(xs[:, 0] > 0.99, size=64)
        return (xs * 2).at[i].set(jax.vmap(expensive, (0, None))(xs[i], w))

    fn = picked if followed else jax.vmap(one, (0, None))
    return chip(fn, shaped((4096, 512)), shaped((512, 512)))


twin(
    "replicated-weights", "shard them as the rest",
    "the projections that were left out of the specs, cut as the rest", PEAK,
    left_out_of_the_specs,
)  # fmt: skip
twin(
    "matrix-vector", "batch more rows into one product",
    "series side by side with jax.vmap, in place of jax.lax.map", SECONDS, series_one_by_one, "tpu",
)  # fmt: skip
twin(
    "one-hot-product", "in place of a product with jax.nn.one_hot",
    "rows of a cache written by jax.lax.dynamic_update_slice", SECONDS, rows_placed_by_ones, "tpu",
)  # fmt: skip
twin(
    "unfilled-matmul", "batch more rows into one product",
    "the states of eight sequences at a time, or of 32", SECONDS, states_of_few_rows, "tpu",
)  # fmt: skip
twin(
    "unfilled-matmul", "half as many heads of twice the size",
    "8 heads of 128 in place of 32 of 32", SECONDS, small_heads, "tpu",
)  # fmt: skip
twin(
    "wide-activations", "cast the activations", "activations given in bf16", SECONDS,
    activations_in_f32, "tpu",
)  # fmt: skip
twin(
    "scores-in-memory", "flash attention", "JAX's own kernel for TPUs", SECONDS,
    attention_of_long_rows, "tpu",
)  # fmt: skip
twin(
    "product-in-a-loop", "multiply all slices before the loop",
    "inputs of a recurrence multiplied before it", SECONDS, inputs_in_the_loop, "tpu",
)  # fmt: skip
twin(
    "padded-traffic", "merge the small dimensions", "[n, 3] as [3 · n], where time counts", SECONDS,
    last_dimension_of_three, "tpu",
)  # fmt: skip


@pair(
    "repeated-operand", "an einsum over groups of heads",
    "grouped queries in one einsum instead of keys repeated for them", SECONDS, "tpu",
)  # fmt: skip
def grouped_queries(followed: bool) -> hs.Capture:
    rows, length, heads, kept, d = 4, 4096, 32, 4, 128

    def repeated(q: Any, k: Any, v: Any) -> Any:
        k, v = (jnp.repeat(x, heads // kept, axis=2) for x in (k, v))
        scores = jax.nn.softmax(jnp.einsum("bqhe,bthe->bhqt", q, k).astype(F32)).astype(BF16)
        return jnp.einsum("bhqt,bthe->bqhe", scores, v)

    def grouped(q: Any, k: Any, v: Any) -> Any:
        q = q.reshape(rows, 1, kept, heads // kept, d)
        scores = jax.nn.softmax(jnp.einsum("bqkge,btke->bkgqt", q, k).astype(F32)).astype(BF16)
        return jnp.einsum("bkgqt,btke->bqkge", scores, v)

    given = shaped((rows, 1, heads, d), BF16), *[shaped((rows, length, kept, d), BF16)] * 2
    return hs.capture(jax.jit(grouped if followed else repeated), *given, topology="v5e:1x1")


@pair(
    "rematerialisation", "save the most expensive of them",
    "the policy dots_with_no_batch_dims_saveable", SECONDS,
)  # fmt: skip
def products_saved(followed: bool) -> hs.Capture:
    policy = jax.checkpoint_policies.dots_with_no_batch_dims_saveable if followed else None

    def loss(ws: Any, x: Any) -> Any:
        def block(x: Any, w: Any) -> Any:
            return jnp.tanh(x @ w) @ w.T, None

        return jnp.sum(lax.scan(jax.checkpoint(block, policy=policy), x, ws)[0] ** 2)

    return chip(jax.grad(loss), shaped((4, 8192, 8192)), shaped((8192, 8192)))


# -- memory ---------------------------------------------------------------------------------------


@pair("not-donated", "donate_argnums", "parameters and state of the optimiser donated", PEAK)
def state_donated(followed: bool) -> hs.Capture:
    def step(params: Any, mean: Any, square: Any, x: Any) -> Any:
        grads = jax.grad(lambda p: (jnp.tanh(x @ p) ** 2).sum())(params)
        mean, square = 0.9 * mean + grads, 0.99 * square + grads * grads
        return params - 0.1 * mean / (1e-6 + jnp.sqrt(square)), mean, square

    fn = jax.jit(step, donate_argnums=(0, 1, 2) if followed else ())
    return hs.capture(fn, *[shaped((1024, 1024))] * 3, shaped((64, 1024)))


@pair(
    "not-donated", "donate_argnums", "an updated table donated: it is not copied first", SECONDS,
    "tpu",
)  # fmt: skip
def table_donated(followed: bool) -> hs.Capture:
    write = jax.vmap(lambda a, u, s: lax.dynamic_update_slice(a, u, (s[0], 0)))
    given = (
        shaped((256, 2048, 128), BF16), shaped((256, 4, 128), BF16), shaped((256, 1), jnp.int32)
    )  # fmt: skip
    fn = jax.jit(write, donate_argnums=0 if followed else ())
    return hs.capture(fn, *given, topology="v5e:1x1")


@pair(
    "donated-in-vain", "give the output the argument's shape",
    "the result returned in the argument's type", PEAK,
)  # fmt: skip
def returned_as_given(followed: bool) -> hs.Capture:
    def step(x: Any) -> Any:
        return (jnp.cumsum(x, axis=0) * 2).astype(F32 if followed else BF16)

    return hs.capture(jax.jit(step, donate_argnums=0), shaped((2048, 1024)))


@pair("does-not-fit", "shard", "rows over eight devices", PEAK)
def shards_that_fit(followed: bool) -> hs.Capture:
    on = mesh("x")
    spec = ("x",) if followed else ()
    x = shaped((65536, 65536), F32, on, *spec)
    return chip(lambda x: jnp.sin(x) * 2, x)


@pair(
    "waiting-values", "make and use one after another", "lax.map in place of a Python loop", PEAK
)  # fmt: skip
def counted_one_by_one(followed: bool) -> hs.Capture:
    def counts(xs: Any, y: Any) -> Any:
        def count(x: Any) -> Any:
            return jnp.bincount(x.astype(jnp.int32) * 16 + y.astype(jnp.int32), length=256)

        return lax.map(count, xs) if followed else jnp.stack([count(x) for x in xs])

    given = shaped((24, 1 << 20), jnp.uint8), shaped((1 << 20,), jnp.uint8)
    return hs.capture(jax.jit(counts), *given)


@pair("padding", "merge the small dimensions", "[n, 3] as [3 · n]", PEAK, "tpu")
def merged_dimensions(followed: bool) -> hs.Capture:
    n = 1 << 25
    shape = (3 * n,) if followed else (n, 3)
    return hs.capture(jax.jit(lambda x: jnp.sin(x) * 2), shaped(shape), topology="v5e:1x1")


@pair(
    "peak-of-a-line", "take and reduce some rows at a time",
    "weighted sums of rows taken by index, 64 sums at a time", PEAK,
)  # fmt: skip
def sums_of_rows(followed: bool) -> hs.Capture:
    def sums(table: Any, at: Any, weights: Any) -> Any:
        return jnp.einsum("nkd,nk->nd", table[at], weights)

    def in_blocks(table: Any, at: Any, weights: Any) -> Any:
        blocks = at.reshape(-1, 64, 32), weights.reshape(-1, 64, 32)
        return lax.map(lambda block: sums(table, *block), blocks)

    fn = jax.jit(in_blocks if followed else sums)
    return hs.capture(fn, shaped((4096, 256)), shaped((8192, 32), jnp.int32), shaped((8192, 32)))


@pair("residuals", "rematerialise the largest", "jax.checkpoint around the loop's body", PEAK)
def checkpointed(followed: bool) -> hs.Capture:
    def loss(ws: Any, x: Any) -> Any:
        def block(x: Any, w: Any) -> Any:
            return jnp.sin(jnp.tanh(jnp.sin(x @ w))), None

        return (lax.scan(jax.checkpoint(block) if followed else block, x, ws)[0] ** 2).sum()

    return hs.capture(jax.jit(jax.grad(loss)), shaped((16, 128, 128)), shaped((4096, 128)))


@pair(
    "residuals", "rematerialise them",
    "short layers, whose values take longer to store than to compute", SECONDS, "tpu",
)  # fmt: skip
def quicker_again(followed: bool) -> hs.Capture:
    def loss(ws: Any, x: Any) -> Any:
        def block(x: Any, w: Any) -> Any:
            x = x @ w
            for _ in range(3):
                x = x * jax.nn.sigmoid(x)
            return x, None

        return (lax.scan(jax.checkpoint(block) if followed else block, x, ws)[0] ** 2).sum()

    shapes = shaped((16, 256, 256)), shaped((4096, 256))
    return hs.capture(jax.jit(jax.grad(loss)), *shapes, topology="v5e:2x2")


@pair(
    "residuals", "take jax.checkpoint from around the loop",
    "jax.checkpoint around each layer in place of around all of them", PEAK,
)  # fmt: skip
def checkpointed_one_by_one(followed: bool) -> hs.Capture:
    def loss(ws: Any, x: Any) -> Any:
        def block(x: Any, w: Any) -> Any:
            return jnp.sin(jnp.tanh(jnp.sin(x @ w))), None

        def layers(x: Any, ws: Any) -> Any:
            return lax.scan(jax.checkpoint(block) if followed else block, x, ws)[0]

        return ((layers if followed else jax.checkpoint(layers))(x, ws) ** 2).sum()

    return hs.capture(jax.jit(jax.grad(loss)), shaped((16, 128, 128)), shaped((4096, 128)))


@pair(
    "residuals", "make it two loops", "256 trips as 16 blocks of 16, each checkpointed", PEAK,
)  # fmt: skip
def in_blocks_of_trips(followed: bool) -> hs.Capture:
    def loss(w: Any, state: Any) -> Any:
        def trip(state: Any, at: Any) -> Any:
            return jnp.sin(state) * w + at, None

        def block(state: Any, ats: Any) -> Any:
            return lax.scan(trip, state, ats)

        ats = jnp.arange(256.0)
        if followed:
            state, _ = lax.scan(jax.checkpoint(block), state, ats.reshape(16, 16))
        else:
            state, _ = lax.scan(jax.checkpoint(trip), state, ats)
        return (state**2).sum()

    return hs.capture(jax.jit(jax.grad(loss)), shaped((1 << 20,)), shaped((1 << 20,)))


@cache
def unrolled_attention(followed: bool) -> hs.Capture:
    """Every layer saves its scores, 3 GiB, and what is made of them: 27 GiB."""

    def attention(x: Any) -> Any:
        scores = jnp.einsum("bqd,bkd->bqk", x, x)
        return x + jnp.einsum("bqk,bkd->bqd", jax.nn.softmax(jnp.sin(scores)), x)

    def loss(x: Any) -> Any:
        attend = jax.checkpoint(attention) if followed else attention
        for _ in range(4):
            x = jnp.tanh(attend(x))
        return (x * x).sum()

    return hs.capture(jax.jit(jax.grad(loss)), shaped((768, 1024, 128)), topology="v5p:2x2x1")


def on_chip(cap: hs.Capture, chip: str) -> hs.Capture:
    target = replace(cap.target, hardware=chip)
    return hs.Capture(cap.module, target, program=cap.for_hosts.program)


@pair("saved-values", "jax.checkpoint", "attention of unrolled layers computed again", PEAK, "tpu")
def little_room(followed: bool) -> hs.Capture:
    return on_chip(unrolled_attention(followed), "tpu-v6e")


@pair("does-not-fit", "jax.checkpoint", "so many layers that their scores do not fit", PEAK, "tpu")
def too_little_room(followed: bool) -> hs.Capture:
    return on_chip(unrolled_attention(followed), "tpu-v5e")


twin(
    "stored-larger", "name the value before it is gathered",
    "the gather done again in the backward pass", PEAK, stored_gathered,
)  # fmt: skip
twin(
    "stored-larger", "store the value before it is repeated",
    "an einsum over groups of heads", PEAK, stored_repeated,
)  # fmt: skip
twin(
    "replicated-state", "shard the optimiser state over the data axis", "momentum P('data')",
    PEAK, whole_momentum,
)  # fmt: skip


@pair(
    "replicated-state", "in the jax.shard_map that takes it whole",
    "a part of the momentum updated on each device of a shard_map", PEAK,
)  # fmt: skip
def momentum_in_shard_map(followed: bool) -> hs.Capture:
    on, n = mesh("data"), 16384

    def step(w: Any, mu: Any, x: Any) -> Any:
        grads = jax.grad(lambda w: (jnp.tanh(x @ w) ** 2).sum())(w)
        if not followed:
            mu = 0.9 * mu + lax.psum(grads, "data")
            return w - mu, mu
        mu = 0.9 * mu + lax.psum_scatter(grads, "data", tiled=True)
        return w - lax.all_gather(mu, "data", tiled=True), mu

    state = P("data") if followed else P()
    mapped = jax.shard_map(
        step, mesh=on, in_specs=(P(), state, P("data")), out_specs=(P(), state), check_vma=False
    )
    w = shaped((n, n), F32, on)
    mu = shaped((n, n), F32, on, *state)
    return chip(mapped, w, mu, shaped((8, n), F32, on, "data"), donate_argnums=(0, 1))


# -- the program ----------------------------------------------------------------------------------

twin("large-constant", "pass the array as an argument", "given", PROGRAM, closed_over)
twin(
    "unrolled", "stack the layers' parameters", "layers stacked, in a scan", PROGRAM, python_loop
)  # fmt: skip


@pair("unrolled", "run one of them in jax.lax.scan", "a recurrence's cells in a scan", PROGRAM)
def cells_scanned(followed: bool) -> hs.Capture:
    def loss(w: Any, xs: Any) -> Any:
        def cell(h: Any, x: Any) -> Any:
            r, z = jax.nn.sigmoid(h @ w["r"] + x), jax.nn.sigmoid(h @ w["z"] + x)
            return (1 - z) * h + z * jnp.tanh((r * h) @ w["h"] + x), None

        h = jnp.zeros(xs.shape[1:])
        if followed:
            h, _ = lax.scan(cell, h, xs)
        else:
            for x in xs:
                h, _ = cell(h, x)
        return (h * h).sum()

    w = {k: shaped((64, 64)) for k in "rzh"}
    return hs.capture(jax.jit(jax.grad(loss)), w, shaped((24, 8, 64)))


twin(
    "host-copies", "keep on the device what every step reads", "almost nothing left on the host",
    SECONDS, fetched_from_the_host,
)  # fmt: skip
twin("host-callback", "out of the compiled step", "no print in the step", CALLS, printing)


@pair(
    "looped-updates", "x.at[i].set(row) under jax.vmap",
    "each sequence's row written by its index", SECONDS, "tpu",
)  # fmt: skip
def written_by_index(followed: bool) -> hs.Capture:
    return hs.capture(*rows_of_a_cache(followed), topology="v5e:1x1")


@pair("whole-copies", "take two steps in each trip", "two steps in a trip", SECONDS)
def steps_in_pairs(followed: bool) -> hs.Capture:
    return hs.capture(*leapfrog(2 if followed else 1))


@pair(
    "whole-copies", "carry the whole array through the inner loop",
    "a cache of all layers carried and updated in place, in place of one scanned over", SECONDS,
    "tpu",
)  # fmt: skip
def cache_carried(followed: bool) -> hs.Capture:
    layers, rows, length, d = 16, 8, 1024, 1024

    def attend(x: Any, w: Any, cache: Any) -> Any:
        scores = jax.nn.softmax(jnp.einsum("bd,btd->bt", x, cache))
        return x + jnp.einsum("bt,btd->bd", scores, cache)

    def scanned(x: Any, ws: Any, caches: Any, t: Any) -> Any:
        def layer(x: Any, per: Any) -> Any:
            w, cache = per
            cache = lax.dynamic_update_slice(cache, (x @ w)[:, None], (0, t, 0))
            return attend(x, w, cache), cache

        return lax.scan(layer, x, (ws, caches))

    def carried(x: Any, ws: Any, caches: Any, t: Any) -> Any:
        def layer(carry: Any, per: Any) -> Any:
            (x, caches), (w, i) = carry, per
            caches = lax.dynamic_update_slice(caches, (x @ w)[None, :, None], (i, 0, t, 0))
            return (attend(x, w, lax.dynamic_index_in_dim(caches, i, 0, False)), caches), None

        return lax.scan(layer, (x, caches), (ws, jnp.arange(layers)))[0]

    def decode(ws: Any, caches: Any, x: Any) -> Any:
        step = carried if followed else scanned
        done = lax.scan(lambda c, t: (step(c[0], ws, c[1], t), None), (x, caches), jnp.arange(64))
        return done[0]

    given = (layers, d, d), (layers, rows, length, d), (rows, d)
    return hs.capture(jax.jit(decode), *[shaped(s, BF16) for s in given], topology="v5e:1x1")


@pair(
    "update-copies", "carry the whole array through the inner loop",
    "keys of all layers carried and updated in place, in place of scanned over", SECONDS, "tpu",
)  # fmt: skip
def keys_carried(followed: bool) -> hs.Capture:
    layers, rows, length, d = 8, 16, 2048, 256

    def attend(x: Any, cache: Any) -> Any:
        scores = jax.nn.softmax(jnp.einsum("bd,btd->bt", x, cache))
        return x + jnp.einsum("bt,btd->bd", scores, cache)

    def scanned(x: Any, per: Any, t: Any) -> Any:
        w, cache = per
        cache = lax.dynamic_update_slice(cache, (x @ w)[:, None], (0, t, 0))
        return attend(x, cache), cache

    def carried(carry: Any, per: Any, t: Any) -> Any:
        (x, caches), (w, i) = carry, per
        caches = lax.dynamic_update_slice(caches, (x @ w)[None, :, None], (i, 0, t, 0))
        return (attend(x, caches[i]), caches), None

    def token(ws: Any, carry: Any, t: Any) -> Any:
        if followed:
            given = ws, jnp.arange(layers)
            return lax.scan(lambda c, s: carried(c, s, t), carry, given)[0], None
        x, caches = carry
        return lax.scan(lambda c, s: scanned(c, s, t), x, (ws, caches)), None

    def decode(ws: Any, caches: Any, x: Any) -> Any:
        return lax.scan(lambda c, t: token(ws, c, t), (x, caches), jnp.arange(16))[0]

    given = (layers, d, d), (layers, rows, length, d), (rows, d)
    fn = jax.jit(decode, donate_argnums=1)
    return hs.capture(fn, *[shaped(s, BF16) for s in given], topology="v5e:1x1")


@pair(
    "slow-to-compile", "as an argument",
    "the array that bincount counts given", COMPILE,
)  # fmt: skip
def counts_of_zeros(followed: bool) -> hs.Capture:
    many = 1 << 20

    def counted(zeros: Any) -> Any:
        return jnp.bincount(zeros, length=1)

    if followed:
        return hs.capture(jax.jit(counted), shaped((many,), jnp.int32))
    return hs.capture(jax.jit(lambda: counted(jnp.zeros(many, jnp.int32))))


__all__ = [
    "CALLS",
    "COMPILE",
    "PAIRS",
    "PEAK",
    "PROGRAM",
    "SECONDS",
    "WIRE",
    "Pair",
    "on_tpu",
]


@pair(
    "offloads-nothing", "name the value where the checkpointed function takes it",
    "the layer's argument named, not its result", PEAK, "tpu",
)  # fmt: skip
def offloaded_where_it_is_taken(followed: bool) -> hs.Capture:
    fn, *given = offloading("given" if followed else "made", BF16, 65536, 128)
    return hs.capture(fn, *given, topology="v5e:1x1")
