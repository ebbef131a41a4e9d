"""Work and time that are unknown, done by every device, or done for nothing."""

from __future__ import annotations

from typing import Any

import hloscope as hs
import jax
import jax.numpy as jnp
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

BF16 = jnp.bfloat16


def shaped(*shape: int, dtype: Any = jnp.float32) -> Any:
    return jax.ShapeDtypeStruct(shape, dtype)


def product(dtype: Any, out: Any = None, hardware: str = "tpu-v5e") -> hs.Capture:
    x = shaped(2048, 2048, dtype=dtype)
    fn = jax.jit(lambda a, b: jax.lax.dot(a, b, preferred_element_type=out))
    return hs.capture(fn, x, x, hardware=hardware)


@pytest.mark.usefixtures("libtpu")
def test_parameters_held_beside_themselves_for_a_loop_over_layers() -> None:
    def loss(ws: Any, x: Any) -> Any:
        def block(x: Any, w: Any) -> Any:
            return jnp.tanh(x @ w), None

        x, _ = jax.lax.scan(jax.checkpoint(block), x, ws.astype(BF16))
        return jnp.mean(x.astype(jnp.float32) ** 2)

    def found(dtype: Any) -> tuple[hs.Finding, ...]:
        fn = jax.jit(lambda ws, x: (ws - 0.1 * jax.grad(loss)(ws, x)).astype(dtype))
        given = shaped(16, 2048, 2048, dtype=dtype), shaped(1024, 2048, dtype=BF16)
        return hs.capture(fn, *given, topology="v5e:1x1").findings.of("narrow-copies")

    (said,) = found(jnp.float32)
    assert said.title == "128 MiB of the peak are parameters in bf16 beside themselves"
    assert "`ws`" in said.evidence
    assert found(BF16) == ()


@pytest.mark.parametrize(
    ("dtype", "out", "chip"),
    [
        (jnp.int8, jnp.int32, "tpu-v5e"),
        (jnp.int8, jnp.int32, "tpu-v6e"),
        (jnp.float8_e4m3fn, jnp.float32, "h100"),
        (jnp.int32, None, "tpu-v5e"),
        (jnp.int16, jnp.int32, "tpu-v5p"),
        (jnp.float16, None, "tpu-v5e"),
        (jnp.complex64, None, "h100"),
    ],
)
def test_mfu_is_a_bound_for_every_type(dtype: Any, out: Any, chip: str) -> None:
    head = product(dtype, out, chip).findings.headline
    assert head.seconds is not None
    assert head.seconds > 0
    assert head.mfu is None or 0 <= head.mfu <= 1.000001
    assert head.is_least == bool(head.unknown)


def test_a_type_without_a_rate_takes_at_least_what_the_fastest_would() -> None:
    cap = product(jnp.int32)
    head = cap.findings.headline
    assert head.unknown == 1
    fastest = max(cap.cost().hardware.matmul.values())
    assert head.seconds >= 2 * 2048**3 / fastest
    assert str(head).startswith("step ≥ ")
    assert "(the time of one operation is unknown)" in str(head)
    assert head.bound_by == ""


def test_a_kernel_without_a_declared_cost_counts_by_its_bytes_and_hides_the_mfu() -> None:
    cap = hs.read(
        "HloModule m, is_scheduled=true\n\nENTRY e {\n"
        "  x = f32[1024,1024]{1,0} parameter(0)\n"
        '  k = f32[1024,1024]{1,0} custom-call(x), custom_call_target="tpu_custom_call"\n'
        "  ROOT d = f32[1024,1024]{1,0} dot(x, k), lhs_contracting_dims={1},"
        " rhs_contracting_dims={0}\n}\n"
    )
    cap.hardware = "tpu-v5e"
    head = cap.findings.headline
    assert head.mfu is None
    assert head.unknown == 1
    (kernel,) = cap.cost().roofline.unmodelled
    row = cap.cost().row(kernel)
    assert row.seconds is None
    assert row.step_seconds == pytest.approx(8 * 2**20 / cap.cost().hardware.memory_bandwidth)


def test_a_mask_that_is_multiplied_has_the_rate_of_what_it_is_multiplied_with() -> None:
    """On a TPU the mask stays one of booleans up to the matrix unit."""
    cap = hs.read(
        "HloModule m, is_scheduled=true\n\nENTRY e {\n"
        "  m = pred[1024,1024]{1,0} parameter(0)\n  x = bf16[1024,1024]{1,0} parameter(1)\n"
        "  ROOT d = bf16[1024,1024]{1,0} convolution(m, x), dim_labels=bf_io->bf\n}\n"
    )
    cap.hardware = "tpu-v5e"
    assert cap.cost().roofline.unmodelled == ()


def test_work_that_every_device_does_counts_once_in_the_mfu() -> None:
    on = jax.make_mesh((8,), ("x",), axis_types=(jax.sharding.AxisType.Auto,))

    def step(x: Any, w: Any) -> Any:
        whole = jax.lax.with_sharding_constraint(x, NamedSharding(on, P()))
        return jnp.tanh(whole @ w)

    def given(*spec: Any) -> Any:
        return jax.ShapeDtypeStruct((2048, 512), jnp.float32, sharding=NamedSharding(on, P(*spec)))

    w = jax.ShapeDtypeStruct((512, 512), jnp.float32, sharding=NamedSharding(on, P()))
    out = NamedSharding(on, P())
    cap = hs.capture(jax.jit(step, out_shardings=out), given("x"), w, hardware="tpu-v5e")
    (found,) = cap.findings.of("redundant-work")
    assert "8 times what the program has to do there" in found.evidence
    assert cap.findings.headline.redundant == pytest.approx(7 / 8)
    assert "without the 88 % of its FLOPs that other devices compute too" in str(
        cap.findings.headline
    )
    # what is written for one device is nobody's repetition
    mapped = jax.shard_map(lambda x, w: x @ w, mesh=on, in_specs=(P("x"), P()), out_specs=P("x"))
    cap = hs.capture(jax.jit(mapped), given("x"), w, hardware="tpu-v5e")
    assert cap.findings.headline.redundant == 0


def test_vmap_of_a_conditional_computes_both_branches() -> None:
    def costly(x: Any, w: Any) -> Any:
        for _ in range(4):
            x = jnp.tanh(w @ x)
        return x

    def either(x: Any, w: Any) -> Any:
        return jax.lax.cond(x[0] > 0.99, costly, lambda x, w: x, x, w)

    w = shaped(256, 256)
    cap = hs.capture(jax.jit(jax.vmap(either, (0, None))), shaped(2048, 256), w)
    (found,) = cap.findings.of("batched-branches")
    assert found.share > 0.5
    assert found.title.startswith("Both values of a select are computed for every row")
    assert "as lax.cond does there (and lax.switch)" in found.evidence
    # one row chooses for itself, and a person's own select is what was asked for
    assert hs.capture(jax.jit(either), shaped(256), w).findings.of("batched-branches") == ()
    own = jax.jit(lambda x, w: jnp.where(x > 0, jnp.tanh(x @ w), x))
    assert hs.capture(own, shaped(2048, 256), w).findings.of("batched-branches") == ()


@pytest.mark.parametrize(("chosen", "is_said"), [("cond", True), ("where", False)])
def test_a_conditional_in_a_loop_below_vmap_computes_both_branches(
    chosen: str, is_said: bool
) -> None:
    def costly(x: Any, w: Any) -> Any:
        return jnp.tanh(w @ jnp.tanh(w @ x))

    def trip(x: Any, w: Any) -> Any:
        if chosen == "where":
            return jnp.where(x > 0.99, costly(x, w), x)
        return jax.lax.cond(x[0] > 0.99, costly, lambda x, w: x, x, w)

    def game(x: Any, w: Any) -> Any:
        return jax.lax.scan(lambda x, _: (trip(x, w), None), x, None, length=4)[0]

    fn = jax.jit(jax.vmap(game, (0, None)))
    found = hs.capture(fn, shaped(2048, 256), shaped(256, 256)).findings.of("batched-branches")
    assert bool(found) is is_said


def test_what_waits_for_memory_gains_what_it_need_not_read_in_a_narrower_type() -> None:
    """Rows of 8 against a matrix: on an H100 all of the time is reading it, 3.35 TB/s."""
    cap = hs.capture(
        jax.jit(lambda a, b: a @ b), shaped(8, 8192), shaped(8192, 8192), hardware="h100"
    )
    (found,) = cap.findings.of("wide-matmul")
    read = 4 * (8 * 8192 + 8192 * 8192)
    assert found.seconds == pytest.approx(read / 2 / 3.35e12, rel=0.02)


def test_rules_that_need_a_wire_say_that_they_did_not_run() -> None:
    on = jax.make_mesh((8,), ("x",), axis_types=(jax.sharding.AxisType.Auto,))
    x = jax.ShapeDtypeStruct((256, 8192), BF16, sharding=NamedSharding(on, P(None, "x")))
    fn = jax.jit(lambda a: jnp.sin(a), out_shardings=NamedSharding(on, P()))
    found = hs.capture(fn, x).findings
    assert found.wireless == ("exposed-collective", "tiny-collectives")
    assert "2 rules about waiting for communication were not run" in str(found)
    assert f"{len(found.rules) - 2} rules ran" in str(found)
    there = hs.capture(fn, x, hardware="tpu-v5e").findings
    assert there.wireless == ()
    assert there.of("exposed-collective")
    assert hs.capture(jax.jit(jnp.sin), shaped(8)).findings.wireless == ()


def test_vmap_of_a_switch_computes_all_branches_also_without_a_matmul() -> None:
    def far(x: Any) -> Any:
        return x[:, None] - x[None]

    def pulled(x: Any) -> Any:
        return (far(x) / (1 + far(x) ** 2)).sum(1)

    def pushed(x: Any) -> Any:
        return jnp.exp(-(far(x) ** 2)).sum(1)

    branches = pulled, pushed, lambda x: (jnp.sin(far(x)) * far(x)).sum(1)

    def force(kind: Any, x: Any) -> Any:
        return jax.lax.switch(kind, branches, x)

    kinds = shaped(512, dtype=jnp.int32)
    cap = hs.capture(jax.jit(jax.vmap(force)), kinds, shaped(512, 256), hardware="tpu-v5e")
    (found,) = cap.findings.of("batched-branches")
    assert found.share > 0.5
    assert found.title.startswith("All values of selects are computed for every row")
    assert not found.advice  # which rows take which branch is not known before
    one = hs.capture(jax.jit(force), shaped(dtype=jnp.int32), shaped(256), hardware="tpu-v5e")
    assert one.findings.of("batched-branches") == ()


def test_a_loop_in_one_branch_of_a_vmapped_cond_runs_for_every_row() -> None:
    """What the choice itself needs runs in any case, and is of neither branch."""

    def solve(x: Any) -> Any:
        return jax.lax.fori_loop(0, 50, lambda _, y: jnp.sin(y) * jnp.cos(x), x)

    def either(x: Any) -> Any:
        y = jnp.sort(x)
        return jax.lax.cond(y[:9].sum() > 0, solve, lambda _: x, y)

    def step(xs: Any) -> Any:
        return jax.vmap(either)(xs)

    cap = hs.capture(jax.jit(step), jax.ShapeDtypeStruct((512, 256), jnp.float32))
    (found,) = cap.findings.of("batched-branches")
    loop = next(i for i in cap.module.instructions if i.opcode == "while")
    body = dict(loop.called)["body"]
    of_branch = {i for i in found.instructions if i.computation is body}
    assert of_branch
    assert not [i for i in found.instructions if "sort" in i.name]
