"""Copies: what changes nothing, what is turned, and what is kept for whom."""

from __future__ import annotations

from typing import Any

import hloscope as hs
import jax
import jax.numpy as jnp
import pytest
from jax import lax
from quickly import as_users_do

BF16 = jnp.bfloat16


def shaped(*shape: int, dtype: Any = BF16) -> Any:
    return jax.ShapeDtypeStruct(shape, dtype)


def test_a_scalar_that_a_loop_copies_has_no_layout() -> None:
    @jax.jit
    def step(first: Any) -> Any:
        values = jnp.zeros(10_000).at[0].set(first)
        return lax.fori_loop(0, 9_999, lambda t, a: a.at[t + 1].set(a[t] * 0.9 + 1), values)

    cap = hs.capture(step, shaped(dtype=jnp.float32))
    for rule in ("layout-copies", "whole-copies"):
        assert cap.findings.of(rule) == ()


TURNED = """HloModule m, is_scheduled=true

ENTRY e {
  x = f32[512,1024]{1,0} parameter(0)
  y = f32[512,1024]{1,0} MADE
  c = f32[512,1024]{0,1} copy(y)
  ROOT s = f32[512,1024]{0,1} sine(c)
}
"""


def test_only_of_an_array_that_is_given_the_order_can_be_chosen() -> None:
    for made, has_advice in (("bitcast(x)", True), ("exponential(x)", False)):
        cap = hs.read(TURNED.replace("MADE", made))
        cap.hardware = "tpu-v5e"
        (found,) = cap.findings.of("layout-copies")
        assert bool(found.advice) is has_advice


# A TPU stores both f32[102912,64] and f32[64,102912] with the long dimension minor; rows of 64 are
# padded to 128.
TABLE = """HloModule m, is_scheduled=true

ENTRY e {
  x = f32[102912,64]{0,1:T(8,128)} parameter(0)
  c = f32[102912,64]{1,0:T(8,128)} copy(x)
  ROOT s = f32[102912,64]{1,0:T(8,128)} sine(c)
}
"""


def test_an_order_that_tiles_would_pad_is_not_the_persons_to_choose() -> None:
    for text, has_advice in ((TABLE, False), (TABLE.replace("64]", "128]"), True)):
        cap = hs.read(text)
        cap.hardware = "tpu-v5e"
        (found,) = cap.findings.of("layout-copies")
        assert bool(found.advice) is has_advice


@pytest.mark.usefixtures("libtpu")
def test_a_result_that_is_copied_into_a_donated_cache_is_named_with_its_reason() -> None:
    layers, rows, length, d = 8, 8, 1024, 1024

    def layer(x: Any, p: Any) -> Any:
        w, k = p
        k = lax.dynamic_update_slice_in_dim(k, (x @ w)[:, None], 5, 1)
        scores = jax.nn.softmax(jnp.einsum("bd,bsd->bs", x, k))
        return x + jnp.einsum("bs,bsd->bd", scores, k), k

    step = jax.jit(lambda w, cache, x: lax.scan(layer, x, (w, cache)), donate_argnums=1)
    cache = shaped(layers, rows, length, d)
    cap = hs.capture(
        step, shaped(layers, d, d), cache, shaped(rows, d), topology="v5e:1x1",
        compiler_options=as_users_do(tpu=True),
    )  # fmt: skip
    found = cap.findings[0]
    assert found.rule == "whole-copies"
    assert found.share > 0.3
    assert "while it reads the donated `cache`" in found.evidence
    assert found.advice == ""


@pytest.mark.usefixtures("libtpu")
def test_what_is_not_donated_counts_by_its_time_too() -> None:
    write = jax.vmap(lambda a, u, s: lax.dynamic_update_slice(a, u, (s[0], 0)))
    given = shaped(256, 2048, 128), shaped(256, 4, 128), shaped(256, 1, dtype=jnp.int32)
    ill, well = (
        hs.capture(jax.jit(write, donate_argnums=d), *given, topology="v5e:1x1") for d in ((), (0,))
    )
    (found,) = ill.findings.of("not-donated")
    assert found.share > 0.9
    assert ", and copied first (%" in found.title
    assert ill.findings.of("whole-copies") == ()  # said once
    (looped,) = well.findings
    assert looped.rule == "looped-updates"
    assert looped.advice == ""  # four rows each: no index says which


@pytest.mark.usefixtures("libtpu")
def test_what_a_loop_stacks_for_the_loop_around_it_is_one_finding_with_its_reason() -> None:
    """A cache shifted by one token: the layers' loop makes a new one, copied to what is carried."""

    def decode(w: Any, caches: Any, x: Any) -> Any:
        def layer(x: Any, given: Any) -> Any:
            w, k, v = given
            k, v = (jnp.concatenate([c[:, 1:], x[:, None]], 1) for c in (k, v))
            p = jax.nn.softmax(jnp.einsum("bd,bsd->bs", x @ w, k))
            return x + jnp.einsum("bs,bsd->bd", p, v), (k, v)

        def token(carry: Any, _: Any) -> Any:
            x, caches = carry
            x, caches = lax.scan(layer, x, (w, *caches))
            return (x, caches), x[:, 0]

        return lax.scan(token, (x, caches), None, length=16)

    cache = shaped(8, 32, 1024, 512)  # too large for VMEM
    given = shaped(8, 512, 512), (cache, cache), shaped(32, 512)
    found = hs.capture(decode, *given, topology="v5e:1x1").findings.of("whole-copies")
    carried = [f for f in found if "the loop around it carries the array" in f.evidence]
    assert len(carried) == len({f.line for f in carried}) == 1
    assert "2 arrays of bf16[8,32,1024,512] are copied whole 16 times each" in carried[0].title


def why(cap: hs.Capture, rule: str) -> list[str]:
    assert cap.findings.failed == ()
    return [f.evidence.partition(": ")[2] for f in cap.findings.of(rule)]


ROWS, TRIPS = 512, 64
BIG, LINES = shaped(ROWS, 2048, dtype=jnp.float32), shaped(TRIPS, 2048, dtype=jnp.float32)


def over_lines(body: Any, *carried: Any) -> hs.Capture:
    """A loop over lines that carries donated arrays."""

    def loop(carry: Any, lines: Any) -> Any:
        return lax.scan(body, carry, (jnp.arange(TRIPS), lines))

    return hs.capture(jax.jit(loop, donate_argnums=0), carried, LINES)


def written(buffer: Any, at: Any, line: Any) -> Any:
    return lax.dynamic_update_slice(buffer, line[None], (at, 0))


def test_the_reader_of_the_old_value_is_named() -> None:
    def body(carry: Any, given: Any) -> Any:
        (buffer,), (at, line) = carry, given
        return (written(buffer, at, line),), (buffer * 2).sum()

    cap = over_lines(body, BIG)
    (found,) = cap.findings.of("update-copies")
    (said,) = why(cap, "update-copies")
    reader = said.partition(" ")[0].removeprefix("%")
    instructions = {i.name: i for i in cap.module.instructions}
    copy, other = found.instructions[:2]  # XLA:CPU copies what the reader gets as well
    assert copy.operands == (other,)
    assert instructions[reader] in other.users
    assert "reads the old value, and nothing makes it run before %" in said
    assert found.advice

    def healthy(carry: Any, given: Any) -> Any:
        (buffer,), (at, line) = carry, given
        total = (buffer * 2).sum()
        return (written(buffer, at, line + total),), total

    assert over_lines(healthy, BIG).findings.of("update-copies") == ()


def test_an_old_value_that_the_loop_hands_on_is_no_ones_to_read_earlier() -> None:
    def body(carry: Any, given: Any) -> Any:
        (buffer, _), (at, line) = carry, given
        return (written(buffer, at, line), buffer), None

    cap = over_lines(body, BIG, BIG)
    assert why(cap, "update-copies") == [
        "the loop hands the old value on as well, as another element of what it carries"
    ]
    assert cap.findings.of("update-copies")[0].advice == ""


@pytest.mark.parametrize("hardware", ["cpu", "tpu-v5e"])
def test_arrays_that_change_places(hardware: str) -> None:
    def body(carry: Any, given: Any) -> Any:
        (a, b), (at, line) = carry, given
        return (b, written(a, at, line)), None

    cap = over_lines(body, BIG, BIG)
    cap.hardware = hardware
    assert cap.findings.of("update-copies") == ()  # nothing reads the old value
    (found,) = cap.findings.of("whole-copies")
    assert "takes another place in each trip" in found.evidence
    big = [i for i in cap.module.instructions if i.opcode == "copy" and i.shape.dimensions]
    assert set(found.instructions) == {i for i in big if i.shape.byte_size == 4 * ROWS * 2048}

    def pair(carry: Any, given: Any) -> Any:
        (a, b), (at, line) = carry, given
        return (written(b, at, line), a), None

    def both(carry: Any, given: Any) -> Any:
        half, _ = pair(carry, given)
        return pair(half, given)

    twice = over_lines(both, BIG, BIG)
    twice.hardware = hardware
    assert twice.findings.of("whole-copies") == ()


@pytest.mark.parametrize("topology", [None, "v5e:1x1"])
@pytest.mark.usefixtures("libtpu")
def test_states_that_move_on(topology: str | None) -> None:
    def steps(unroll: int, delay: bool = False) -> hs.Capture:
        def lap(now: Any) -> Any:
            return jnp.roll(now, 1, 0) + jnp.roll(now, -1, 0) - 2 * now

        def step(state: Any, _: None) -> Any:
            if delay:  # three places: two steps do not bring them back
                older, before, now = state
                return (before, now, 2 * now - older + 0.1 * lap(now)), None
            before, now = state
            return (now, 2 * now - before + 0.1 * lap(now)), None

        state = (shaped(8192, 8192, dtype=jnp.float32),) * (3 if delay else 2)

        def run(state: Any) -> Any:
            return lax.scan(step, state, None, length=64, unroll=unroll)[0]

        cap = hs.capture(jax.jit(run, donate_argnums=0), state, topology=topology)
        assert cap.findings.failed == ()
        return cap

    def advised(cap: hs.Capture) -> list[hs.results.Finding]:
        return [f for f in cap.findings.of("whole-copies") if "unroll=2" in f.advice]

    before, after = steps(1), steps(2)
    (found,) = advised(before)
    assert after.findings.of("whole-copies") == ()
    slow, quick = before.findings.headline.seconds, after.findings.headline.seconds
    assert found.seconds
    assert slow
    assert quick
    assert slow - quick >= 0.9 * found.seconds
    assert advised(steps(1, delay=True)) == []


KERNEL = """HloModule m, is_scheduled=true

ENTRY e {
  q = bf16[2048,64,512]{2,1,0} parameter(0)
  c = bf16[2048,64,512]{2,0,1} copy(q)
  b = bf16[64,2048,512]{2,1,0} bitcast(c)
  mla = bf16[64,2048,512]{2,1,0} custom-call(b), custom_call_target="tpu_custom_call"LAYOUTS
  back = bf16[2048,64,512]{2,0,1} bitcast(mla)
  ROOT r = bf16[2048,64,512]{2,1,0} copy(back)
}
"""


def test_a_kernel_that_fixes_its_layouts_is_named() -> None:
    fixed = ", operand_layout_constraints={bf16[64,2048,512]{2,1,0}}"
    for layouts, sentences in (
        (fixed, {
            "the kernel %mla wants its operand bf16[64,2048,512] as {2,1,0}",
            "the kernel %mla writes its result bf16[64,2048,512] as {2,1,0}",
        }),
        ("", {""}),
    ):  # fmt: skip
        cap = hs.read(KERNEL.replace("LAYOUTS", layouts))
        cap.hardware = "tpu-v5e"
        assert set(why(cap, "layout-copies")) == sentences


@pytest.mark.usefixtures("libtpu")
def test_a_pallas_kernel_in_a_loop_is_named() -> None:
    pallas = pytest.importorskip("jax.experimental.pallas")

    def kernel(q: Any, out: Any) -> None:
        out[...] = jnp.tanh(q[...])

    def call(q: Any) -> Any:
        spec = pallas.BlockSpec((1, 256, 512), lambda n, t: (n, t, 0))
        return pallas.pallas_call(
            kernel, grid=(64, 8), in_specs=[spec], out_specs=spec, name="turned_kernel",
            out_shape=jax.ShapeDtypeStruct((64, 2048, 512), BF16),
        )(q)  # fmt: skip

    def body(q: Any, w: Any) -> Any:
        return jnp.swapaxes(call(jnp.swapaxes(q, 0, 1)), 0, 1) * w, None

    step = jax.jit(lambda q, w: lax.scan(body, q, w)[0])
    cap = hs.capture(step, shaped(2048, 64, 512), shaped(8, 512), topology="v5e:1x1")
    assert any("the kernel %turned_kernel" in text for text in why(cap, "layout-copies"))
    straight = jax.jit(lambda q, w: lax.scan(lambda q, w: (call(q) * w, None), q, w)[0])
    cap = hs.capture(straight, shaped(64, 2048, 512), shaped(8, 512), topology="v5e:1x1")
    assert cap.findings.of("layout-copies") == ()


def test_a_donated_array_that_is_read_or_returned_afterwards_says_so() -> None:
    def step(buffer: Any, line: Any) -> Any:
        return written(buffer, 3, line), jnp.cumsum(buffer, 1)[:, -1]

    given = shaped(8192, 2048, dtype=jnp.float32), shaped(2048, dtype=jnp.float32)
    (said,) = why(hs.capture(jax.jit(step, donate_argnums=0), *given), "whole-copies")
    assert "(bitcast" not in said
    assert "reads the old value, and nothing makes it run before %" in said

    def both(buffer: Any, line: Any) -> Any:
        return written(buffer, 3, line), buffer

    (said,) = why(hs.capture(jax.jit(both, donate_argnums=0), *given), "whole-copies")
    assert said == "the step returns the old value as well as what is written into it"

    def one(buffer: Any, line: Any) -> Any:
        return written(buffer, 3, line), line * 2

    assert why(hs.capture(jax.jit(one, donate_argnums=0), *given), "whole-copies") == []


def test_no_advice_where_only_the_trip_knows_which_part_of_the_old_value_it_reads() -> None:
    """An event taken out of a queue, whose rest moves on: to read it first orders nothing."""

    def handle(queue: Any, at: Any) -> Any:
        rest = jax.lax.dynamic_slice(queue, (at + 1,), (60_000,))
        return jax.lax.dynamic_update_slice(queue, rest, (at,)), queue[at]

    def run(queue: Any, ats: Any) -> Any:
        return jax.vmap(lambda q, a: jax.lax.scan(handle, q, a))(queue, ats)

    queues = jax.ShapeDtypeStruct((1, 65_536), jnp.float32)
    ats = jax.ShapeDtypeStruct((1, 64), jnp.int32)
    cap = hs.capture(jax.jit(run, donate_argnums=0), queues, ats)
    for found in cap.findings.of("update-copies"):
        assert not found.advice
    assert cap.findings.of("update-copies")


@pytest.mark.parametrize("topology", [None, "v5e:1x1"])
def test_rows_at_places_of_their_own_are_updates_of_a_scanned_cache_too(
    topology: str | None,
) -> None:
    """``vmap`` of a dynamic_update_slice is a scatter, of which XLA:TPU makes a loop."""

    def decode(ws: Any, cache: Any, x: Any, at: Any) -> Any:
        def layer(x: Any, per: Any) -> Any:
            w, cache = per
            put = jax.vmap(lambda c, new, t: lax.dynamic_update_slice(c, new[None], (t, 0)))
            cache = put(cache, x @ w, at)
            scores = jax.nn.softmax(jnp.einsum("bd,btd->bt", x, cache))
            return x + jnp.einsum("bt,btd->bd", scores, cache), cache

        return lax.scan(layer, x, (ws, cache))

    f32 = jnp.float32
    given = [shaped(*s, dtype=f32) for s in ((4, 256, 256), (4, 8, 2048, 256), (8, 256))]
    at = shaped(8, dtype=jnp.int32)
    cap = hs.capture(jax.jit(decode), *given, at, topology=topology, hardware="tpu-v5e")
    (found,) = [f for f in cap.findings.of("update-copies") if "writes back" in f.title]
    assert found.title.startswith("A loop writes back all of f32[8,2048,256] 4 times to update")
    assert "writes 8 KiB into its 16 MiB" in found.evidence
    assert found.advice.endswith("donate it if it is an argument")
