"""What was said wrongly, or not at all, of ordinary programs: state, halves of a vmap, repeats."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import hloscope as hs
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from advice_pairs import head_over_both_axes
from findings_programs import shaped
from jax import lax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

BF16 = jnp.bfloat16


def not_donated(cap: hs.Capture) -> set[str]:
    """The arguments that are said to be replaced without being donated."""
    assert cap.findings.failed == ()
    said = {i.name for f in cap.findings.of("not-donated") for i in f.instructions}
    entry = cap.module.entry
    assert entry is not None
    numbers = {p.parameter_number for p in entry.parameters if p.name in said}
    return {d.argument for d in cap.memory.donations if d.parameter in numbers}


def test_weights_that_a_loop_hands_on_are_replaced_too() -> None:
    """XLA updates what the loop over layers returns, which is the argument as it was."""
    text = """HloModule m, is_scheduled=true
body { p = (s32[], f32[64,512,512], f32[512,512]) parameter(0)
  k = s32[] get-tuple-element(p), index=0
  w = f32[64,512,512] get-tuple-element(p), index=1
  x = f32[512,512] get-tuple-element(p), index=2
  one = s32[] constant(1)
  n = s32[] add(k, one)
  y = f32[512,512] tanh(x)
  ROOT t = (s32[], f32[64,512,512], f32[512,512]) tuple(n, w, y) }
cond { q = (s32[], f32[64,512,512], f32[512,512]) parameter(0)
  j = s32[] get-tuple-element(q), index=0
  b = s32[] constant(5)
  ROOT c = pred[] compare(j, b), direction=LT }
ENTRY e { ws = f32[64,512,512] parameter(0)
  x = f32[512,512] parameter(1)
  z = s32[] constant(0)
  t0 = (s32[], f32[64,512,512], f32[512,512]) tuple(z, ws, x)
  l = (s32[], f32[64,512,512], f32[512,512]) while(t0), condition=cond, body=body
  w = f32[64,512,512] get-tuple-element(l), index=1
  y = f32[512,512] get-tuple-element(l), index=2
  sum = f32[64,512,512] add(w, w)
  ROOT new = (f32[64,512,512], f32[512,512]) tuple(sum, y)
}
"""
    cap = hs.read(text)
    cap.hardware = "tpu-v5e"
    assert not_donated(cap) == {"ws"}


def test_state_that_one_branch_keeps_is_replaced_too() -> None:
    """A delayed update: every other step returns the state as it is."""

    def step(state: Any, x: Any) -> Any:
        grads = jax.grad(lambda w: jnp.tanh(x @ w).mean())(state["actor"])
        return lax.cond(
            state["n"] % 2 == 0,
            lambda s: {"actor": s["actor"] - 0.1 * grads, "n": s["n"] + 1},
            lambda s: {"actor": s["actor"], "n": s["n"] + 1},
            state,
        )

    state = {"actor": shaped((512, 512)), "n": shaped((), jnp.int32)}
    cap = hs.capture(jax.jit(step), state, shaped((64, 512)), hardware="tpu-v5e")
    assert "state['actor']" in not_donated(cap)


def test_caches_that_tpu_fetches_in_pieces_are_replaced_too() -> None:
    pytest.importorskip("libtpu")

    def decode(cache: Any, token: Any) -> Any:
        def one(carried: Any, _: Any) -> Any:
            cache, x, n = carried
            cache = [lax.dynamic_update_slice(c, x[:, None], (0, n, 0)) for c in cache]
            for c in cache:
                weights = jax.nn.softmax(jnp.einsum("bd,btd->bt", x, c))
                x = x + jnp.einsum("bt,btd->bd", weights, c)
            return (cache, x, n + 1), None

        return lax.scan(one, (cache, token, 0), None, length=16)[0][0]

    cache = [shaped((8, 2048, 256), BF16)] * 3
    cap = hs.capture(jax.jit(decode), cache, shaped((8, 256), BF16), topology="v5e:1x1")
    assert not_donated(cap) == {"cache[0]", "cache[1]", "cache[2]"}


def test_both_values_of_a_select_in_a_loop_are_computed() -> None:
    """What the loop carries is made by both in the trip before; it is not made for either."""

    def step(w: Any, states: Any) -> Any:
        def env(s: Any) -> Any:
            return lax.cond(s[0] > 0, lambda s: jnp.tanh(s @ w[0]), lambda s: s @ w[1], s)

        return lax.scan(lambda s, _: (jax.vmap(env)(s), None), states, None, length=8)[0]

    w = [shaped((256, 256))] * 2
    cap = hs.capture(jax.jit(step), w, shaped((512, 256)), hardware="tpu-v5e")
    (found,) = cap.findings.of("batched-branches")
    assert found.share > 0.5


def test_what_autodiff_spreads_for_the_gradient_of_a_sum_is_no_repeated_operand() -> None:
    def loss(theta: Any, x: Any) -> Any:
        return jnp.exp(-((x[:, None] - x[None]) ** 2 * theta).sum(-1)).sum()

    cap = hs.capture(jax.jit(jax.grad(loss)), shaped((16,)), shaped((512, 16)), hardware="tpu-v5e")
    assert cap.findings.failed == ()
    assert cap.findings.of("repeated-operand") == ()


def test_both_repeated_operands_are_named() -> None:
    pytest.importorskip("libtpu")

    def attend(q: Any, k: Any, v: Any) -> Any:
        k, v = (jnp.repeat(x, 8, axis=2) for x in (k, v))
        weights = jax.nn.softmax(jnp.einsum("bqhe,bthe->bhqt", q, k))
        return jnp.einsum("bhqt,bthe->bqhe", weights, v)

    given = [shaped((8, n, h, 128), BF16) for n, h in ((1, 32), (1024, 4), (1024, 4))]
    cap = hs.capture(jax.jit(attend), *given, topology="v5e:1x1")
    (found,) = cap.findings.of("repeated-operand")
    assert "`k`" in found.title
    assert "`v`" in found.title


def test_values_in_64_bits_are_said_of_a_tpu_that_has_none() -> None:
    pytest.importorskip("libtpu")
    with jax.enable_x64(True):
        scale = np.float64(0.3)
        wide = jax.jit(lambda x: jnp.tanh(x * jnp.asarray(scale)).sum())
        found = hs.capture(wide, shaped((512, 512)), topology="v5e:1x1").findings
        narrow = jax.jit(lambda x: jnp.tanh(x * 0.3).sum())
        healthy = hs.capture(narrow, shaped((512, 512)), topology="v5e:1x1").findings
    assert "pairs of 32-bit" in found.of("wide-values")[0].title
    assert healthy.of("wide-values") == ()


def test_memory_traffic_of_a_copy_into_vmem_is_what_it_reads() -> None:
    text = """HloModule m, is_scheduled=true
ENTRY e { x = f32[1024,1024]{1,0} parameter(0)
  turned = f32[1024,1024]{0,1:S(1)} copy(x)
  ROOT y = f32[1024,1024]{0,1} tanh(turned)
}
"""
    cap = hs.read(text)
    cap.hardware = "tpu-v5e"
    (found,) = cap.findings.of("layout-copies")
    assert found.bytes == 1024 * 1024 * 4


def test_the_lines_of_a_combined_collective_have_their_parts_of_its_time() -> None:
    """XLA joins the sums of all gradients, and names the line of one of them."""
    on = jax.make_mesh((8,), ("x",), axis_types=(jax.sharding.AxisType.Auto,))

    def loss(w: Any, x: Any) -> Any:
        x = jnp.tanh(x @ w["wide"])
        x = jnp.tanh(x @ w["square"])
        return jnp.square(x).sum()

    def given(*shape: int, by: Any = None) -> Any:
        return jax.ShapeDtypeStruct(shape, jnp.float32, sharding=NamedSharding(on, P(by)))

    w = {"wide": given(3072, 1024), "square": given(1024, 1024)}
    cap = hs.capture(jax.jit(jax.grad(loss)), w, given(64, 3072, by="x"), hardware="tpu-v5e")
    (row,) = (r for r in cap.collectives if r.is_combined)
    (found,) = cap.findings.of("exposed-collective")
    first = loss.__code__.co_firstlineno
    assert found.frame is not None
    assert found.frame.line == first + 1
    here = Path(__file__).name
    assert f"75 % at {here}:{first + 1}, 25 % at {here}:{first + 2};" in found.evidence
    assert row.payload_bytes == 4 * (3072 + 1024) * 1024
    # XLA:CPU made it: what a TPU's compiler would hide is not known
    assert found.title.startswith("The chip waits up to ")


def test_a_sum_that_a_line_asks_for_by_name_is_that_lines_alone() -> None:
    """XLA joins the sums of a tree's arrays, which other lines made."""
    on = jax.make_mesh((8,), ("x",), axis_types=(jax.sharding.AxisType.Auto,))

    def step(w: Any, x: Any) -> Any:
        wide = jnp.tanh(x @ w["wide"])
        square = jnp.tanh(x @ w["square"])
        return jax.lax.pmean((wide, square), "x")

    mapped = jax.shard_map(step, mesh=on, in_specs=(P(), P("x")), out_specs=P(), check_vma=False)
    w = {"wide": jax.ShapeDtypeStruct((1024, 3072), jnp.float32)}
    w["square"] = jax.ShapeDtypeStruct((1024, 1024), jnp.float32)
    x = jax.ShapeDtypeStruct((8 * 256, 1024), jnp.float32)
    cap = hs.capture(jax.jit(mapped), w, x, hardware="tpu-v5e")
    (row,) = (r for r in cap.collectives if r.is_combined)
    (found,) = cap.findings.of("exposed-collective")
    asked = f"{Path(__file__)}:{step.__code__.co_firstlineno + 3}"
    assert found.line == row.line == asked
    assert " % at " not in found.evidence
    costliest = cap.findings.headline.costliest
    assert costliest is not None
    assert (costliest.what, costliest.line) == ("all-reduce", asked)
    assert costliest.seconds == pytest.approx(found.seconds)


def test_all_weights_are_named_whose_products_a_combined_sum_adds_up() -> None:
    on = jax.make_mesh((8,), ("x",), axis_types=(jax.sharding.AxisType.Auto,))

    def step(w: Any, x: Any, y: Any) -> Any:
        return x @ w["left"], y @ w["right"]

    def given(*shape: int, by: tuple[Any, ...]) -> Any:
        return jax.ShapeDtypeStruct(shape, jnp.float32, sharding=NamedSharding(on, P(*by)))

    w = {k: given(1024, 1024, by=("x", None)) for k in ("left", "right")}
    rows = [given(2048, 1024, by=(None, "x"))] * 2
    cap = hs.capture(jax.jit(step), w, *rows, hardware="tpu-v5e")
    assert [r.is_combined for r in cap.collectives] == [True]
    (found,) = cap.findings.of("exposed-collective")
    assert "products with `w['left']`, `w['right']`, whose contracted" in found.evidence


SCATTERED = """HloModule step, is_scheduled=true

%add (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %s = f32[] add(%a, %b)
}

%scaled (p: f32[8192,1024]) -> f32[8192,1024] {
  %p = f32[8192,1024]{1,0} parameter(0)
  %c = f32[] constant(0.9)
  %d = f32[8192,1024]{1,0} broadcast(%c), dimensions={}
  ROOT %m = f32[8192,1024]{1,0} OPCODE(%p, %d)
}

ENTRY %main {
  %m = f32[8192,1024]{1,0} parameter(0)
  %i = s32[512,1]{1,0} parameter(1)
  %u = f32[512,1024]{1,0} parameter(2)
  %k = f32[8192,1024]{1,0} fusion(%m), kind=kLoop, calls=%scaled
  %s = f32[8192,1024]{1,0} scatter(%k, %i, %u), update_window_dims={1}, inserted_window_dims={0},
    scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=%add
  ROOT %r = f32[8192,1024]{1,0} all-reduce(%s), replica_groups={{0,1}}, to_apply=%add
}
"""


@pytest.mark.parametrize(("opcode", "is_said"), [("multiply", True), ("power", False)])
def test_a_momentum_that_is_scaled_before_its_gradient_is_scattered_is_replaced(
    opcode: str, is_said: bool
) -> None:
    """As XLA:TPU writes ``0.9 * m + g`` for an embedding: the scatter begins with ``0.9 * m``."""
    found = hs.read(SCATTERED.replace("OPCODE", opcode)).findings.of("not-donated")
    assert bool(found) is is_said
    assert not is_said or "32 MiB held twice" in found[0].title


def test_state_that_a_loop_of_steps_updates_is_replaced() -> None:
    """An optimiser in a loop, as a critic has it: what it would gain is tried."""

    def train(w: Any, m: Any, xs: Any) -> Any:
        def one(state: Any, x: Any) -> Any:
            w, m = state
            m = 0.9 * m + jax.grad(lambda w: jnp.square(jnp.tanh(x @ w)).sum())(w)
            return (w - 0.1 * m, m), None

        return lax.scan(one, (w, m), xs)[0]

    given = shaped((1024, 1024)), shaped((1024, 1024)), shaped((5, 64, 1024))
    cap = hs.capture(train, *given)
    assert not_donated(cap) == {"w", "m"}
    (found,) = cap.findings.of("not-donated")
    donated = cap.what_if(donate=("w", "m")).memory
    assert found.bytes == cap.memory.peak_bytes - donated.peak_bytes == 2 * 4 * 1024 * 1024
    # what a loop only reads is not replaced, though a result has its shape

    def grown(w: Any, xs: Any) -> Any:
        return lax.scan(lambda y, x: (y + x.T @ (x @ w), None), jnp.zeros((1024, 1024)), xs)[0]

    assert not_donated(hs.capture(grown, shaped((1024, 1024)), shaped((5, 64, 1024)))) == set()


def test_work_that_nothing_shards_further_is_told_from_what_lost_its_sharding() -> None:
    """A head behind a pipeline: its rows are cut over the replicas, not over the stages."""
    (found,) = head_over_both_axes(False).findings.of("redundant-work")
    assert "none of its operands is sharded over more than 2 of them" in found.evidence
    assert "is 4 times what the program has to do there" in found.evidence
    assert found.advice.startswith("shard one of its operands over the devices that do the same")
