"""Programs for which one finding is true, each with a healthy twin.

``ill`` and ``healthy`` of a case are functions without arguments that return a Capture. Nothing
runs: shapes are enough. "tpu" cases compile for v5e:2x4 and need libtpu.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import hloscope as hs
import jax
import jax.numpy as jnp
import numpy as np
from jax.ad_checkpoint import checkpoint_name
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from quickly import as_users_do

F32, BF16 = jnp.float32, jnp.bfloat16


@dataclass(frozen=True)
class Case:
    rule: str
    ill: Callable[[], hs.Capture]
    healthy: Callable[[], hs.Capture]
    says: str  # part of the finding's title or evidence
    platform: str = "cpu"


CASES: list[Case] = []


def case(rule: str, says: str, platform: str = "cpu") -> Callable[[Any], Any]:
    """Registers ``make(ill: bool)``, which compiles each of the two once per process."""

    def add(make: Callable[[bool], hs.Capture]) -> Callable[[bool], hs.Capture]:
        made = functools.cache(make)
        CASES.append(Case(rule, partial(made, True), partial(made, False), says, platform))
        return made

    return add


def mesh(*axes: str) -> Mesh:
    shape = (8,) if len(axes) == 1 else (2, 4)
    return Mesh(np.array(jax.devices()).reshape(shape), axes)


def shaped(shape: tuple[int, ...], dtype: Any = F32, on: Mesh | None = None, *spec: Any) -> Any:
    sharding = NamedSharding(on, P(*spec)) if on is not None else None
    return jax.ShapeDtypeStruct(shape, dtype, sharding=sharding)


def on_tpu(fn: Any, *args: Any, axes: dict[str, int], **options: Any) -> hs.Capture:
    return hs.capture(fn, *args, topology="v5e:2x4", mesh=axes, **options)


@case("exposed-collective", "all-reduce", "tpu")
def contracted_dimension_sharded(ill: bool) -> hs.Capture:
    def step(x: Any, w: Any) -> Any:
        return jnp.tanh(x @ w)

    specs = (P(None, "x"), P("x", None)) if ill else (P("x", None), P(None, None))
    fn = jax.jit(step, in_shardings=specs, out_shardings=P(None, None) if ill else P("x", None))
    return on_tpu(fn, shaped((4096, 8192), BF16), shaped((8192, 8192), BF16), axes={"x": 8})


@case("reduced-twice", "12.5 MiB")
def tied_embedding(ill: bool) -> hs.Capture:
    on = mesh("data")

    def loss(e: Any, head: Any, ids: Any, labels: Any) -> Any:
        hidden = jnp.tanh(e[ids])
        logits = hidden @ (e if ill else head).T
        return -jnp.take_along_axis(jax.nn.log_softmax(logits), labels[:, None], 1).sum()

    e, ids = shaped((6400, 512), F32, on, None, None), shaped((1024,), jnp.int32, on, "data")
    head = shaped((6400, 512), F32, on, None, None)
    return hs.capture(jax.jit(jax.grad(loss, argnums=(0, 1))), e, head, ids, ids)


@case("gathered-twice", "gathered 2 times")
def gathered_again(ill: bool) -> hs.Capture:
    on = mesh("data")

    def layer(x: Any, w: Any) -> Any:
        whole = jax.lax.all_gather(w, "data", tiled=True)
        x = jnp.tanh(x @ whole)
        if ill:  # again, with another type
            whole = jax.lax.all_gather(w.astype(jnp.float16), "data", tiled=True).astype(F32)
        return jnp.sin(x @ whole)

    fn = jax.shard_map(layer, mesh=on, in_specs=(P("data"), P("data")), out_specs=P("data"))
    return hs.capture(jax.jit(fn), shaped((64, 1024)), shaped((1024, 1024)))


@case("collective-of-constant", "constant")
def constant_exchanged(ill: bool) -> hs.Capture:
    on = mesh("data")

    def layer(x: Any) -> Any:
        made = jnp.full((64, 512), 0.5) if ill else jnp.sin(x)
        moved = jax.lax.all_to_all(made, "data", 0, 1, tiled=True)
        return x.sum() + moved

    fn = jax.shard_map(layer, mesh=on, in_specs=P("data"), out_specs=P("data"))
    return hs.capture(jax.jit(fn), shaped((512, 512)))


@case("gathered-then-sliced", "keeps only a slice")
def there_and_back(ill: bool) -> hs.Capture:
    on = mesh("data")

    def layer(x: Any) -> Any:
        whole = jax.lax.all_gather(jnp.sin(x), "data", tiled=True)
        at = jax.lax.axis_index("data") * 64
        part = jax.lax.dynamic_slice_in_dim(whole, at, 64, 1)
        return part if ill else part + whole.sum()

    fn = jax.shard_map(layer, mesh=on, in_specs=P("data"), out_specs=P(None, "data"))
    return hs.capture(
        jax.jit(fn, out_shardings=NamedSharding(on, P(None, "data"))), shaped((512, 512))
    )


@case("gathered-then-sliced", "keeps only a slice", "tpu")
def there_and_back_in_a_fusion(ill: bool) -> hs.Capture:
    """The slice is the first thing that the fusion around it does."""

    def step(x: Any) -> Any:
        if ill:
            x = jax.lax.with_sharding_constraint(jnp.sin(x), P(None, None))
        return jax.lax.with_sharding_constraint(x * 2, P(None, "x") if ill else P("x", None))

    fn = jax.jit(step, in_shardings=P("x"), out_shardings=P(None, "x") if ill else P("x"))
    return on_tpu(fn, shaped((4096, 4096)), axes={"x": 8})


@case("layout-copies", "transposes or layout copies")
def cache_turned(ill: bool) -> hs.Capture:
    """One decode step against a cache whose head dimension is not next to the heads."""

    def step(q: Any, caches: Any) -> Any:
        for cache in caches:
            q = jnp.einsum(
                "bhs,bshd->bhd" if ill else "bhs,bhsd->bhd",
                jax.nn.softmax(jnp.einsum("bhd,bshd->bhs" if ill else "bhd,bhsd->bhs", q, cache)),
                cache,
            )
        return q

    shape = (4, 2048, 16, 64) if ill else (4, 16, 2048, 64)
    return hs.capture(jax.jit(step), shaped((4, 16, 64)), [shaped(shape) for _ in range(4)])


@case("update-copies", "to update a slice")
def reads_the_old(ill: bool) -> hs.Capture:
    def step(buffer: Any, x: Any) -> Any:
        def body(k: Any, carry: Any) -> Any:
            b, total = carry
            new = jax.lax.dynamic_update_slice(b, x * total, (k, 0))
            total = total + (jnp.sin(b).sum() if ill else jnp.sin(total)) + new[0, 0]
            return new, total

        return jax.lax.fori_loop(0, 64, body, (buffer, 1.0))

    return hs.capture(jax.jit(step, donate_argnums=0), shaped((2048, 512)), shaped((1, 512)))


@case("wide-matmul", "f32, highest", "tpu")
def highest_precision(ill: bool) -> hs.Capture:
    def step(x: Any, w: Any) -> Any:
        return jnp.dot(x, w, precision="highest" if ill else None)

    fn = jax.jit(step, in_shardings=(P("x"), P()), out_shardings=P("x"))
    return on_tpu(fn, shaped((1024, 1024)), shaped((1024, 1024)), axes={"x": 8})


@case("idle-matmul", "matrix unit", "tpu")
def one_row(ill: bool) -> hs.Capture:
    fn = jax.jit(lambda x, w: x @ w, in_shardings=(P(), P()), out_shardings=P())
    rows = 8 if ill else 4096
    return on_tpu(fn, shaped((rows, 4096), BF16), shaped((4096, 4096), BF16), axes={"x": 8})


def _deep(params: Any, x: Any, remat: bool) -> Any:
    def block(x: Any, w: Any) -> Any:
        return jnp.tanh(x @ w) @ w.T

    chosen = jax.checkpoint(block) if remat else block
    # In a loop, since on CPU XLA merges equal computations that are side by side.
    x, _ = jax.lax.scan(lambda x, w: (chosen(x, w), None), x, params)
    return (x * x).sum()


@case("rematerialisation", "computing values again")
def everything_again(ill: bool) -> hs.Capture:
    fn = jax.jit(jax.grad(partial(_deep, remat=ill)))
    return hs.capture(fn, shaped((4, 256, 512)), shaped((64, 256)))


@case("not-donated", "not donated")
def replaced_state(ill: bool) -> hs.Capture:
    def step(params: Any, momentum: Any, x: Any) -> Any:
        grads = jax.grad(lambda p: (jnp.tanh(x @ p) ** 2).sum())(params)
        momentum = 0.9 * momentum + grads
        return params - 0.1 * momentum, momentum

    fn = jax.jit(step, donate_argnums=() if ill else (0, 1))
    return hs.capture(fn, shaped((1024, 1024)), shaped((1024, 1024)), shaped((64, 1024)))


@case("not-donated", "not donated", "tpu")
def updated_where_its_gradient_is_made(ill: bool) -> hs.Capture:
    """A TPU updates weights in the fusion of the matmul that makes their gradient."""

    def step(p: Any, x: Any) -> Any:
        if ill:
            return p - 0.1 * jax.grad(lambda p: (jnp.tanh(x @ p) ** 2).sum())(p)
        return jax.grad(lambda p: (jnp.tanh(x @ p) ** 2).sum())(p)

    fn = jax.jit(step, in_shardings=(P("x"), P()), out_shardings=P("x"))
    return on_tpu(fn, shaped((4096, 4096)), shaped((256, 4096)), axes={"x": 8})


@case("donated-in-vain", "no output is")
def nothing_takes_it(ill: bool) -> hs.Capture:
    def step(x: Any, w: Any) -> Any:
        return (x @ w).sum(0) if ill else x @ w + x

    fn = jax.jit(step, donate_argnums=0)
    return hs.capture(fn, shaped((1024, 1024)), shaped((1024, 1024)))


@case("residuals", "store for the backward pass")
def stored_by_a_scan(ill: bool) -> hs.Capture:
    def loss(ws: Any, x: Any) -> Any:
        def block(x: Any, w: Any) -> Any:
            return jnp.sin(jnp.tanh(x @ w)), None

        body = block if ill else jax.checkpoint(block)
        x, _ = jax.lax.scan(body, x, ws)
        return (x * x).sum()

    shapes = shaped((16, 128, 128)), shaped((4096, 128))
    if not ill:
        shapes = shaped((2, 1024, 1024)), shaped((64, 1024))
    return hs.capture(jax.jit(jax.grad(loss)), *shapes)


@case("stored-larger", "each slice is gathered")
def stored_gathered(ill: bool) -> hs.Capture:
    """Sharded weights gathered in a scan: the whole weights are stored for its backward pass."""
    on = mesh("data")

    def layer(x: Any, w: Any) -> Any:
        return jnp.tanh(x @ jax.lax.all_gather(w, "data", axis=0, tiled=True)), None

    def loss(ws: Any, x: Any) -> Any:
        body = layer if ill else jax.checkpoint(layer)
        x, _ = jax.lax.scan(body, x, ws)
        return jax.lax.psum((x * x).sum(), "data")

    fn = jax.shard_map(
        jax.grad(loss), mesh=on, in_specs=(P(None, "data"), P("data")), out_specs=P(None, "data")
    )
    return hs.capture(jax.jit(fn), shaped((8, 1024, 1024)), shaped((64, 1024)))


@case("stored-larger", "each slice is repeated")
def stored_repeated(ill: bool) -> hs.Capture:
    """Keys of two heads repeated for sixteen: grouped attention is often written so."""

    def layer(q: Any, w: Any) -> Any:
        k = jnp.tanh(jnp.einsum("bshd,hde->bshe", q[:, :, :2], w))
        if ill:
            scores = jnp.einsum("bqhd,bkhd->bhqk", q, jnp.repeat(k, 8, axis=2))
        else:
            grouped = q.reshape(*q.shape[:2], 2, 8, q.shape[-1])
            scores = jnp.einsum("bqhgd,bkhd->bhgqk", grouped, k)
        return q + jnp.tanh(scores).mean(), None

    def loss(ws: Any, q: Any) -> Any:
        q, _ = jax.lax.scan(layer, q, ws)
        return (q * q).sum()

    fn = jax.jit(jax.grad(loss))
    return hs.capture(fn, shaped((8, 2, 256, 256)), shaped((2, 64, 16, 256)))


@case("unrolled", "12 layers are written out one by one")
def python_loop(ill: bool) -> hs.Capture:
    def block(x: Any, w: Any) -> Any:
        y = (x - x.mean(-1, keepdims=True)) * jax.lax.rsqrt(x.var(-1, keepdims=True) + 1e-6)
        q, k, v = ((y @ w[n]).reshape(2, 64, 4, 32) for n in "qkv")
        weights = jax.nn.softmax(jnp.einsum("bqhd,bkhd->bhqk", q, k))
        x = x + jnp.einsum("bhqk,bkhd->bqhd", weights, v).reshape(x.shape) @ w["o"]
        y = (x - x.mean(-1, keepdims=True)) * jax.lax.rsqrt(x.var(-1, keepdims=True) + 1e-6)
        return x + jax.nn.gelu(y @ w["up"]) @ w["down"]

    def loss(ws: Any, x: Any) -> Any:
        if ill:
            for n in range(12):
                x = block(x, jax.tree.map(lambda w, n=n: w[n], ws))
        else:
            x, _ = jax.lax.scan(lambda x, w: (block(x, w), None), x, ws)
        return (x * x).sum()

    ws = {n: shaped((12, 128, 128)) for n in "qkvo"}
    ws |= {"up": shaped((12, 128, 512)), "down": shaped((12, 512, 128))}
    return hs.capture(jax.jit(jax.grad(loss)), ws, shaped((2, 64, 128)))


@case("replicated-state", "replicated on all 8 devices")
def whole_momentum(ill: bool) -> hs.Capture:
    on = mesh("data")

    def step(params: Any, opt_state: Any, x: Any) -> Any:
        grads = jax.grad(lambda p: (jnp.tanh(x @ p) ** 2).sum())(params)
        mu = 0.9 * opt_state["mu"] + grads
        return params - mu, {"mu": mu}

    spec = (None, None) if ill else ("data", None)
    w = shaped((32768, 32768), F32, on, None, None)
    mu = {"mu": shaped((32768, 32768), F32, on, *spec)}
    fn = jax.jit(step, donate_argnums=(0, 1), out_shardings=(w.sharding, {"mu": mu["mu"].sharding}))
    return hs.capture(fn, w, mu, shaped((8, 32768), F32, on, "data", None), hardware="tpu-v5e")


@case("does-not-fit", "does not fit")
def too_large(ill: bool) -> hs.Capture:
    n = 65536 if ill else 1024
    return hs.capture(jax.jit(lambda x: jnp.sin(x) @ x), shaped((n, n)), hardware="tpu-v5e")


@case("large-constant", "baked into the program")
def closed_over(ill: bool) -> hs.Capture:
    table = np.random.default_rng(0).normal(size=(1024, 512)).astype(np.float32)
    if ill:
        return hs.capture(jax.jit(lambda x: jnp.sin(x) @ table), shaped((64, 1024)))
    return hs.capture(jax.jit(lambda x, t: jnp.sin(x) @ t), shaped((64, 1024)), shaped((1024, 512)))


@case("host-callback", "calls back into the host")
def printing(ill: bool) -> hs.Capture:
    def step(x: Any) -> Any:
        y = jnp.sin(x)
        if ill:
            jax.debug.print("sum {s}", s=y.sum())
        return y * 2

    return hs.capture(jax.jit(step), shaped((512, 512)))


@case("host-copies", "to or from the host's memory")
def fetched_from_the_host(ill: bool) -> hs.Capture:
    rows = 16384 if ill else 8
    here, there = f"f32[{rows},4096]{{1,0}}", f"f32[{rows},4096]{{1,0:S(5)}}"
    text = f"""HloModule m, is_scheduled=true
ENTRY main {{
  w = {there} parameter(0)
  x = f32[16384,4096]{{1,0}} parameter(1)
  start = ({here}, {there}, u32[]) copy-start(w)
  work = f32[16384,4096]{{1,0}} tanh(x)
  done = {here} copy-done(start)
  ROOT out = ({here}, f32[16384,4096]{{1,0}}) tuple(done, work)
}}
"""
    cap = hs.read(text)
    cap.hardware = "tpu-v5e"
    return cap


@case("redundant-work", "4 times what the program has to do")
def _reshaped_away(ill: bool) -> hs.Capture:
    """Microbatches cut from the sharded rows: a device's rows are all in one or two of them."""
    on = mesh("data")

    def step(w: Any, x: Any) -> Any:
        rows = x.reshape(4, 16, 64, 256) if ill else x.reshape(16, 4, 64, 256).swapaxes(0, 1)

        def add(total: Any, part: Any) -> Any:
            return total + jax.grad(lambda w: jnp.mean(jnp.tanh(part @ w) ** 2))(w), None

        return jax.lax.scan(add, jnp.zeros_like(w), rows)[0]

    return hs.capture(step, shaped((256, 512), F32, on), shaped((64, 64, 256), F32, on, "data"))


ALARM = """\
E0101 00:00:00.000000    1 slow_operation_alarm.cc:140] The operation took 1m2.5s
Constant folding an instruction is taking > 1s:

  %scatter.1 = s32[1]{{0}} scatter(%a, %b, %c), to_apply=%r, metadata={{op_name="{op_name}"}}

This isn't necessarily a bug.
"""


@contextlib.contextmanager
def folding_alarm() -> Iterator[None]:
    """XLA warns, as it does once folding takes over a second, of the scatter that it compiles."""
    plain = jax.stages.Lowered.compile

    def compiled(self: Any, *args: Any, **options: Any) -> Any:
        location = re.search(r'loc\("([^"]*/scatter-add)"', self.as_text(debug_info=True))
        assert location is not None
        os.write(2, ALARM.format(op_name=location[1]).encode())
        return plain(self, *args, **options)

    jax.stages.Lowered.compile = compiled  # type: ignore[method-assign]
    try:
        yield
    finally:
        jax.stages.Lowered.compile = plain  # type: ignore[method-assign]


@case("slow-to-compile", "XLA spends 62.5 s compiling on folding `scatter-add` to a constant")
def _slow_to_compile(ill: bool) -> hs.Capture:
    def step(x: Any) -> Any:
        return x + jnp.bincount(jnp.zeros(50, jnp.int32), length=1)[0]

    with folding_alarm() if ill else contextlib.nullcontext():
        return hs.capture(step, jnp.ones(4))


def offloading(name: str, dtype: Any, rows: int = 4096, width: int = 256) -> tuple[Any, ...]:
    """The gradient of eight checkpointed layers that offload what has a name, and its arguments."""
    policies = jax.checkpoint_policies
    policy = policies.save_and_offload_only_these_names(
        names_which_can_be_saved=[], names_which_can_be_offloaded=[name],
        offload_src="device", offload_dst="pinned_host",
    )  # fmt: skip

    def layer(x: Any, w: Any) -> tuple[Any, None]:
        x = checkpoint_name(x, "given")
        hidden = checkpoint_name(jax.nn.gelu(x @ w["up"]), "hidden")
        return checkpoint_name(x + hidden @ w["down"], "made"), None

    def loss(w: Any, x: Any) -> Any:
        out = jax.lax.scan(jax.checkpoint(layer, policy=policy), x, w)[0]
        return jnp.mean(out.astype(F32) ** 2)

    w = {n: shaped((8, width, width), dtype) for n in ("up", "down")}
    return jax.jit(jax.grad(loss)), w, shaped((rows, width), dtype)


@case("offloads-nothing", "would offload `made` to the host, and nothing is offloaded")
def _offloads_nothing(ill: bool) -> hs.Capture:
    return hs.capture(*offloading("made" if ill else "given", F32))


def rows_of_a_cache(by_index: bool, rows: int = 256) -> tuple[Any, ...]:
    """A row of each sequence's cache written at a place of its own."""

    def one(cache: Any, at: Any, row: Any) -> Any:
        if by_index:
            return cache.at[at].set(row)
        return jax.lax.dynamic_update_slice(cache, row[None], (at, 0))

    step = jax.jit(jax.vmap(one), donate_argnums=0)
    cache = shaped((rows, 1024, 1024), BF16)
    return step, cache, shaped((rows,), jnp.int32), shaped((rows, 1024), BF16)


@case("looped-updates", "A scatter became a loop of 256 steps", "tpu")
def caches_written_by_row(ill: bool) -> hs.Capture:
    return hs.capture(*rows_of_a_cache(not ill), topology="v5e:1x1")


def leapfrog(unroll: int, rows: int = 1024) -> tuple[Any, ...]:
    """Time steps of a wave from two states, of which the new one takes the older one's place."""

    def steps(a: Any, b: Any) -> Any:
        def step(state: Any, _: None) -> tuple[Any, None]:
            before, now = state
            new = before.at[1:-1].set(now[:-2] + now[2:] - before[1:-1])
            return (now, new), None

        return jax.lax.scan(step, (a, b), None, length=64, unroll=unroll)[0]

    return jax.jit(steps, donate_argnums=(0, 1)), shaped((rows, 1024)), shaped((rows, 1024))


@case("whole-copies", "what the loop carries takes another place in each trip")
def states_that_change_places(ill: bool) -> hs.Capture:
    return hs.capture(*leapfrog(1 if ill else 2))


def saving(*names: str, scanned: bool = True) -> tuple[Any, ...]:
    """The gradient of checkpointed layers that save what has a name, and its arguments."""
    policy = jax.checkpoint_policies.save_only_these_names(*names)

    def layer(x: Any, w: Any) -> tuple[Any, None]:
        mixed = checkpoint_name(jnp.tanh(x @ w), "attn_out")
        return checkpoint_name(jnp.sin(mixed) @ w.T, "mlp_out"), None

    kept = jax.checkpoint(layer, policy=policy)

    def loss(w: Any, x: Any) -> Any:
        if scanned:
            return jax.lax.scan(kept, x, w)[0].sum()
        for k in range(4):
            x, _ = kept(x, w[k])
        return x.sum()

    return jax.jit(jax.grad(loss)), shaped((4, 64, 256)), shaped((32, 64))


@case("names-nothing", "would save `atn_out`, and no value has that name")
def saved_by_a_misspelt_name(ill: bool) -> hs.Capture:
    return hs.capture(*saving("atn_out" if ill else "attn_out"))


@case("batched-loop", "runs until the last of them is done")
def rows_that_end_apart(ill: bool) -> hs.Capture:
    """Each row of a vmap goes round as often as it asks for, or all of them equally often."""

    def one(x: Any, w: Any, n: Any) -> Any:
        return jax.lax.while_loop(
            lambda c: c[0] < n, lambda c: (c[0] + 1, jnp.tanh(c[1] @ w)), (0, x)
        )[1]

    fn = jax.vmap(one, in_axes=(0, None, 0 if ill else None))
    count = shaped((64,) if ill else (), jnp.int32)
    return hs.capture(fn, shaped((64, 1024)), shaped((1024, 1024)), count)


@case("gathered-for-one", "for top_k, along the dimension that is sharded")
def largest_of_a_sharded_row(ill: bool) -> hs.Capture:
    """XLA:CPU gathers for it even rows that are whole on their devices."""
    on = mesh("x")

    def largest(x: Any) -> Any:
        return jax.lax.top_k(x, 8)

    if ill:
        return hs.capture(largest, shaped((64, 1 << 17), F32, on, None, "x"))
    fn = jax.shard_map(largest, mesh=on, in_specs=P("x"), out_specs=P("x"))
    return hs.capture(fn, shaped((64, 1 << 17), F32, on, "x", None))


@case("replicated-weights", "though the rest of it is sharded")
def left_out_of_the_specs(ill: bool) -> hs.Capture:
    """A transformer's modulation, whose weights have no spec, or that of the other weights."""
    on = mesh("model")

    def block(x: Any, w: Any, step: Any) -> Any:
        shift, scale = jnp.split(step @ w["mod"], 2, -1)
        h = x * (1 + scale[:, None]) + shift[:, None]
        return x + jax.nn.gelu(h @ w["up"]) @ w["down"]

    def model(ws: Any, x: Any, step: Any) -> Any:
        return jax.lax.scan(lambda x, w: (block(x, w, step), None), x, ws)[0]

    spec = () if ill else (None, None, "model")
    ws = {
        "mod": shaped((24, 4096, 8192), F32, on, *spec),
        "up": shaped((24, 4096, 8192), F32, on, None, None, "model"),
        "down": shaped((24, 8192, 4096), F32, on, None, "model", None),
    }
    x, step = shaped((2, 256, 4096), F32, on), shaped((2, 4096), F32, on)
    return hs.capture(jax.jit(model), ws, x, step, hardware="tpu-v5e")


@case("matrix-vector", "products of a matrix with a single vector", "tpu")
def series_one_by_one(ill: bool) -> hs.Capture:
    """A recurrence of many series: one after another, or side by side."""

    def run(w: Any, into: Any, series: Any) -> Any:
        def cell(state: Any, u: Any) -> Any:
            state = jnp.tanh(w @ state + into @ u)
            return state, state

        return jax.lax.scan(cell, jnp.zeros(512), series)[1]

    def all_of(w: Any, into: Any, series: Any) -> Any:
        own = partial(run, w, into)
        return jax.lax.map(own, series) if ill else jax.vmap(own)(series)

    given = shaped((512, 512)), shaped((512, 128)), shaped((64, 100, 128))
    return hs.capture(jax.jit(all_of), *given, topology="v5e:2x2")


@case("one-hot-product", "only moves rows", "tpu")
def rows_placed_by_ones(ill: bool) -> hs.Capture:
    """Keys written into a cache, by a product with ones or by their index."""

    def write(cache: Any, k: Any, start: Any) -> Any:
        if not ill:
            place = partial(jax.lax.dynamic_update_slice_in_dim, axis=0)
            return jax.vmap(place)(cache, k, start)
        hot = jax.nn.one_hot(start[:, None] + jnp.arange(2048), 4096, dtype=cache.dtype)
        kept = cache * (1 - hot.sum(1))[:, :, None]
        return kept + jnp.einsum("btl,btd->bld", hot, k)

    given = shaped((4, 4096, 1024), BF16), shaped((4, 2048, 1024), BF16), shaped((4,), jnp.int32)
    return hs.capture(jax.jit(write, donate_argnums=0), *given, topology="v5e:2x2")


@case("narrow-sums", "over 8 devices in bf16, and converted to f32 afterwards", "tpu")
def gradients_of_cast_parameters(ill: bool) -> hs.Capture:
    """The gradient of parameters that are cast for the product, and of the parameters' products
    that are summed in f32."""

    def step(params: Any, x: Any) -> Any:
        def loss(w: Any) -> Any:
            given = (x, w.astype(BF16)) if ill else (x.astype(F32), w)
            return (jnp.tanh(jnp.dot(*given)).astype(F32) ** 2).sum()

        return params - 0.1 * jax.grad(loss)(params)

    fn = jax.jit(step, in_shardings=(P(), P("x")), out_shardings=P(), donate_argnums=0)
    return on_tpu(fn, shaped((2048, 2048)), shaped((4096, 2048), BF16), axes={"x": 8})


@case("peak-of-a-line", "One line is", "tpu")
def logits_at_once(ill: bool) -> hs.Capture:
    """The loss of a language model: logits of all tokens, or of one block after another."""

    def loss(table: Any, x: Any, y: Any) -> Any:
        logits = (x @ table.T).astype(F32)
        return -jnp.take_along_axis(jax.nn.log_softmax(logits), y[:, None], 1).sum()

    def in_blocks(table: Any, x: Any, y: Any) -> Any:
        def add(total: Any, xy: Any) -> Any:
            return total + jax.checkpoint(loss)(table, *xy), None

        return jax.lax.scan(add, 0.0, (x.reshape(16, -1, 128), y.reshape(16, -1)))[0]

    fn = jax.grad(loss if ill else in_blocks, argnums=(0, 1))
    given = shaped((4096, 128), BF16), shaped((16384, 128), BF16), shaped((16384,), jnp.int32)
    return hs.capture(jax.jit(fn), *given, topology="v5e:1x1")


@case("unfilled-matmul", "a matmul with 8 rows", "tpu")
def states_of_few_rows(ill: bool) -> hs.Capture:
    """Recurrences of eight sequences after one another, or of 32: their weights stay in VMEM."""

    def through(params: Any, xs: Any, h: Any) -> Any:
        def cell(h: Any, x: Any) -> Any:
            gate, new, out, keep = jnp.split(x + h @ params["u"], 4, -1)
            h = jax.nn.sigmoid(keep) * h + jax.nn.sigmoid(gate) * jnp.tanh(new)
            return jax.nn.sigmoid(out) * h, None

        return jax.lax.scan(cell, h, xs)[0]

    def step(params: Any, xs: Any, h: Any) -> Any:
        return jax.lax.map(lambda x: through(params, *x), (xs, h))

    groups, rows = (8, 8) if ill else (2, 32)
    xs, h = shaped((groups, 128, rows, 4096), BF16), shaped((groups, rows, 1024), BF16)
    step = jax.jit(step, compiler_options=as_users_do(tpu=True))
    return hs.capture(step, {"u": shaped((1024, 4096), BF16)}, xs, h, topology="v5e:1x1")


@case("unfilled-matmul", "with 32 contracted elements", "tpu")
def small_heads(ill: bool) -> hs.Capture:
    """The largest score of each query: products that a block of 128 is a quarter full of."""
    heads, size = (32, 32) if ill else (8, 128)

    def step(params: Any, x: Any) -> Any:
        q, k = (jnp.einsum("td,dhe->hte", x, params[n]) for n in "qk")
        return jnp.einsum("hqd,hkd->hqk", q, k).max(-1)

    params = {n: shaped((1024, heads, size), BF16) for n in "qk"}
    return hs.capture(jax.jit(step), params, shaped((4096, 1024), BF16), topology="v5e:1x1")


@case("wide-activations", "f32 activations with bf16 weights", "tpu")
def activations_in_f32(ill: bool) -> hs.Capture:
    def step(layers: Any, x: Any) -> Any:
        for up, down in layers:
            x = x + jax.nn.gelu(x @ up) @ down
            x = x / jnp.sqrt((x * x).mean(-1, keepdims=True) + 1e-6)
        return x

    layers = [(shaped((256, 512), BF16), shaped((512, 256), BF16))] * 4
    x = shaped((1 << 17, 256), F32 if ill else BF16)
    return hs.capture(jax.jit(step), layers, x, topology="v5e:1x1")


@case("product-in-a-loop", "needs nothing of the trips before", "tpu")
def inputs_in_the_loop(ill: bool) -> hs.Capture:
    """A recurrence whose inputs are multiplied one by one, or before it."""

    def step(w: Any, u: Any, xs: Any) -> Any:
        def cell(h: Any, x: Any) -> Any:
            return jnp.tanh((x @ w if ill else x) + h @ u), None

        given = xs if ill else xs @ w
        return jax.lax.scan(cell, jnp.zeros(xs.shape[1:], BF16), given)[0]

    weights = [shaped((1024, 1024), BF16)] * 2
    return hs.capture(jax.jit(step), *weights, shaped((256, 16, 1024), BF16), topology="v5e:1x1")


@case("padded-traffic", "reads and writes padding", "tpu")
def last_dimension_of_three(ill: bool) -> hs.Capture:
    many = 1 << 22
    shape = (many, 3) if ill else (3 * many,)
    return hs.capture(jax.jit(lambda x: jnp.sin(x) * 2), shaped(shape), topology="v5e:1x1")


@case("gathered-for-one", "for top_k, along the dimension that is sharded", "tpu")
def likeliest_of_sharded_logits(ill: bool) -> hs.Capture:
    """XLA:TPU packs values and places into integers and calls a kernel of its own."""

    def step(h: Any, w: Any) -> Any:
        return jax.lax.top_k(h @ w, 40) if ill else jnp.argmax(h @ w, -1)

    fn = jax.jit(step, in_shardings=(P(), P(None, "x")), out_shardings=P())
    return on_tpu(fn, shaped((64, 1024), BF16), shaped((1024, 32768), BF16), axes={"x": 8})


@case("scores-in-memory", "bf16[4,8,2048,2048], are written to memory and read again", "tpu")
def attention_of_long_rows(ill: bool) -> hs.Capture:
    """Causal attention as its formula says, and by the kernel that comes with JAX. Without the
    mask XLA:TPU makes a kernel of it by itself."""
    from jax.experimental.pallas.ops.tpu.flash_attention import flash_attention

    def step(q: Any, k: Any, v: Any) -> Any:
        if not ill:
            return flash_attention(q, k, v, causal=True)
        scores = jnp.einsum("bhqd,bhkd->bhqk", q, k).astype(F32)
        mask = jnp.tril(jnp.ones(scores.shape[-2:], bool))
        weights = jax.nn.softmax(jnp.where(mask, scores, -1e30)).astype(BF16)
        return jnp.einsum("bhqk,bhkd->bhqd", weights, v)

    given = [shaped((4, 8, 2048, 128), BF16)] * 3
    return hs.capture(jax.jit(step), *given, topology="v5e:1x1")
