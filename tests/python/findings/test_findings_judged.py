"""What was said wrongly of real programs, found by judging every finding of them."""

from __future__ import annotations

import re
from typing import Any

import hloscope as hs
import jax
import jax.numpy as jnp
import pytest
from advice_pairs import cells_scanned
from findings_programs import mesh, shaped
from jax import lax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P


def test_gradients_in_an_optimisers_update_are_not_idle_matmuls() -> None:
    """The fusion reads and writes Adam's state; the product in it moves a fraction of that."""
    pytest.importorskip("libtpu")

    def step(p: Any, mean: Any, square: Any, x: Any, y: Any) -> Any:
        def loss(p: Any) -> Any:
            for w in p:
                x_ = jnp.tanh(x @ w)
            return jnp.square(x_ - y).mean()

        grads = jax.grad(loss)(p)
        mean = [0.9 * m + 0.1 * g for m, g in zip(mean, grads, strict=True)]
        square = [0.99 * v + 0.01 * g * g for v, g in zip(square, grads, strict=True)]
        new = [
            w - 1e-3 * m * jax.lax.rsqrt(v + 1e-8) for w, m, v in zip(p, mean, square, strict=True)
        ]
        return new, mean, square

    state = [[shaped((512, 512))]] * 3
    data = [shaped((64, 512))] * 2
    cap = hs.capture(jax.jit(step), *state, *data, topology="v5e:1x1")
    assert cap.findings.failed == ()
    assert not [f for f in cap.findings.of("idle-matmul") if "64 contracted" in f.evidence]


def test_a_transform_and_its_derivative_have_no_precision_to_lower() -> None:
    """A Fourier transform on TPU is matmuls in XLA's own precision, with no operands to cast."""
    pytest.importorskip("libtpu")

    def loss(w: Any, x: Any) -> Any:
        f = jnp.fft.rfft(jnp.tanh(x), axis=1) * w
        return jnp.square(jnp.fft.irfft(f, n=x.shape[1], axis=1)).mean()

    given = shaped((65, 64)), shaped((8, 128, 64))
    cap = hs.capture(jax.jit(jax.grad(loss, (0, 1))), *given, topology="v5e:1x1")
    assert " convolution(" in cap.text
    assert not cap.findings.of("wide-matmul")


def test_levels_of_a_network_are_not_layers_that_one_scan_could_run() -> None:
    """Twelve calls of one function, six with arrays of one shape and six of another."""

    def block(x: Any, w: Any) -> Any:
        y = (x - x.mean(-1, keepdims=True)) * jax.lax.rsqrt(x.var(-1, keepdims=True) + 1e-6)
        q, k, v = ((y @ w[n]).reshape(*x.shape[:2], 4, -1) for n in "qkv")
        weights = jax.nn.softmax(jnp.einsum("bqhd,bkhd->bhqk", q, k))
        x = x + jnp.einsum("bhqk,bkhd->bqhd", weights, v).reshape(x.shape) @ w["o"]
        y = (x - x.mean(-1, keepdims=True)) * jax.lax.rsqrt(x.var(-1, keepdims=True) + 1e-6)
        return x + jax.nn.gelu(y @ w["up"]) @ w["down"]

    def loss(levels: Any, x: Any) -> Any:
        for level in levels:
            for w in level:
                x = block(x, w)
            x = x.reshape(x.shape[0], -1, 2 * x.shape[2])
        return (x * x).sum()

    def level(d: int) -> Any:
        one = {n: shaped((d, d)) for n in "qkvo"}
        return [one | {"up": shaped((d, 4 * d)), "down": shaped((4 * d, d))}] * 6

    cap = hs.capture(jax.jit(jax.grad(loss)), [level(64), level(128)], shaped((2, 64, 64)))
    assert cap.findings.failed == ()
    assert not cap.findings.of("unrolled")


def waits(cap: hs.Capture) -> list[str]:
    assert cap.findings.failed == ()
    return [f.evidence for f in cap.findings.of("exposed-collective")]


def on_chip(fn: Any, *given: Any, **how: Any) -> hs.Capture:
    return hs.capture(jax.jit(fn, **how), *given, hardware="tpu-v5e")


def test_a_sum_that_hands_out_one_stages_result_is_no_partial_sum_of_products() -> None:
    """As at the end of a pipeline: of all devices but the last it adds zeros."""
    on = mesh("stage")

    def own(w: Any, x: Any) -> Any:
        y = lax.scan(lambda y, w: (jnp.tanh(y @ w), None), x, w[0])[0]
        return lax.psum(jnp.where(lax.axis_index("stage") == 7, y, 0.0), "stage")

    fn = jax.shard_map(own, mesh=on, in_specs=(P("stage"), P()), out_specs=P(), check_vma=False)
    loss = jax.value_and_grad(lambda w, x: jnp.square(fn(w, x)).sum())
    found = waits(on_chip(loss, shaped((8, 2, 256, 256), jnp.float32, on, "stage"),
                          shaped((2048, 256), jnp.float32, on)))  # fmt: skip
    assert found
    assert not any("partial sums" in e or "contracted" in e for e in found)
    assert any("The program asks for it by name" in e for e in found)


def test_sums_of_products_by_hand_name_their_weights() -> None:
    on = mesh("model")

    def own(w: Any, x: Any) -> Any:
        return lax.psum(jnp.tanh(x @ w["up"]) @ w["down"], "model")

    specs = ({"up": P(None, "model"), "down": P("model")}, P())
    fn = jax.shard_map(own, mesh=on, in_specs=specs, out_specs=P())
    w = {"up": shaped((256, 512), jnp.float32, on, None, "model"),
         "down": shaped((512, 256), jnp.float32, on, "model")}  # fmt: skip
    step = jax.grad(lambda w, x: jnp.square(fn(w, x)).sum())
    (found,) = waits(on_chip(step, w, shaped((4096, 256), jnp.float32, on)))
    assert "The program asks for it by name, to sum products with `w['down']`" in found


def test_activations_gathered_for_a_shard_of_weights_say_so() -> None:
    """Rows cut by device meet weights cut by column: the smaller of both is gathered."""
    on = mesh("x")

    def step(a: Any, w: Any) -> Any:
        a = lax.with_sharding_constraint(jnp.sin(a), NamedSharding(on, P("x")))
        return lax.with_sharding_constraint(a @ w, NamedSharding(on, P(None, "x")))

    w = shaped((512, 4096), jnp.float32, on, None, "x")
    (found,) = waits(on_chip(step, shaped((1024, 512), jnp.float32, on, "x"), w))
    assert found.endswith(
        "Each device multiplies all of it with its shard of `w`, cut over the same devices"
    )


def turned(how: str) -> hs.Capture:
    """Rows cut by device are wanted cut by column."""
    on = mesh("x")
    columns = P(None, "x")

    def by_constraint(a: Any) -> Any:
        a = lax.with_sharding_constraint(jnp.sin(a), NamedSharding(on, P("x")))
        return lax.with_sharding_constraint(jnp.tanh(a), NamedSharding(on, columns))

    def by_shard_map(a: Any) -> Any:
        own = jax.shard_map(jnp.tanh, mesh=on, in_specs=columns, out_specs=columns)
        return own(jnp.sin(a))

    a = shaped((4096, 4096), jnp.float32, on, "x")
    if how == "out_shardings":
        return on_chip(jnp.tanh, a, out_shardings=NamedSharding(on, columns))
    return on_chip(by_constraint if how == "constraint" else by_shard_map, a)


@pytest.mark.parametrize(
    ("how", "who"),
    [
        ("constraint", "(the constraint at test_findings_judged.py:"),
        ("shard_map", "(shard_map's in_specs at test_findings_judged.py:"),
        ("out_shardings", "(the result is returned so)"),
    ],
)
def test_what_moves_a_sharding_names_the_operation_and_who_chose_it(how: str, who: str) -> None:
    cap = turned(how)
    (found,) = waits(cap)
    assert "as P('x', None) (" in found
    assert f"makes its result as P(None, 'x') {who}" in found
    (again,) = waits(hs.read(cap.text, hardware="tpu-v5e"))
    assert "which operation needs it is unknown: a dump lacks the program" in again


def test_an_argument_that_the_loop_renamed_has_the_name_of_its_parameter() -> None:
    text = (
        "HloModule m, is_scheduled=true, entry_computation_layout={(f32[512,1024]{1,0})->"
        "f32[512,1024]{1,0}}\n\nENTRY e {\n"
        "  %state_0___w__.1 = f32[512,1024]{1,0} parameter(0),"
        ' metadata={op_name="jit(f)/jvp()/while"}\n'
        "  ROOT %o = f32[512,1024]{1,0} add(%state_0___w__.1, %state_0___w__.1)\n}\n"
    )
    cap = hs.read(text, hardware="tpu-v5e")
    (found,) = cap.findings.of("not-donated")
    assert found.evidence.startswith("`state_0___w__.1`: ")


def test_weights_that_a_step_returns_unchanged_are_donated_with_their_state() -> None:
    """A teacher's weights, read until late: a donated state holds them once, and copies none."""

    def step(state: Any, x: Any) -> Any:
        def loss(ws: Any) -> Any:
            hidden = x
            for w in ws:
                hidden = jnp.tanh(hidden @ w)
            target = x
            for w in state["teacher"]:
                target = jnp.sin(target @ w)
            return ((hidden - target) ** 2).mean()

        new = [w - 1e-3 * g for w, g in zip(state["ws"], jax.grad(loss)(state["ws"]), strict=True)]
        return {"ws": new, "teacher": state["teacher"]}

    weights = [shaped((256, 256))] * 4
    given = {"ws": weights, "teacher": [shaped((256, 256))] * 8}, shaped((64, 256))
    before = hs.capture(jax.jit(step), *given)
    after = hs.capture(jax.jit(step, donate_argnums=0), *given)
    (found,) = before.findings.of("not-donated")
    assert found.title.startswith(
        "12 arguments that the step replaces, or returns unchanged, are not donated: 3 MiB held"
    )
    assert "XLA:CPU copies 8 of them" not in found.evidence
    assert found.bytes == before.memory.peak_bytes - after.memory.peak_bytes
    assert len(found.instructions) == 12, "the copies that return the teacher are not said"


def test_cells_that_share_their_weights_have_none_to_stack() -> None:
    """A recurrence that a Python loop wrote out: a scan needs no stack of weights."""
    (found,) = cells_scanned(False).findings.of("unrolled")
    assert "stack" not in found.advice
    assert "repetitions of" in found.title


def test_layers_with_others_between_them_are_not_one_scan() -> None:
    """Two recurrent layers to one of attention: the same function, but not the same work."""

    def layer(k: int, x: Any, w: Any) -> Any:
        y = (x - x.mean(-1, keepdims=True)) * lax.rsqrt(x.var(-1, keepdims=True) + 1e-6)
        if k % 3 == 2:
            scores = jnp.einsum("btd,bsd->bts", y @ w["q"], y @ w["k"])
            x = x + jax.nn.softmax(scores) @ y @ w["o"]
        else:
            x = x + jnp.cumsum(jax.nn.gelu(y @ w["q"]) * (y @ w["k"]), axis=1) @ w["o"]
        y = (x - x.mean(-1, keepdims=True)) * lax.rsqrt(x.var(-1, keepdims=True) + 1e-6)
        return x + jax.nn.gelu(y @ w["up"]) @ w["down"]

    def loss(ws: Any, x: Any) -> Any:
        for k, w in enumerate(ws):
            x = layer(k, x, w)
        return (x * x).sum()

    one = {n: shaped((64, 64)) for n in "qko"} | {
        "up": shaped((64, 256)),
        "down": shaped((256, 64)),
    }
    cap = hs.capture(jax.jit(jax.grad(loss)), [one] * 12, shaped((2, 96, 64)))
    assert not cap.findings.of("unrolled"), str(cap.findings)


def test_three_projections_of_one_value_could_save_two_sums() -> None:
    on = mesh("model")

    def loss(x: Any, w: Any) -> Any:
        q, k, v = (x @ w[n] for n in "qkv")
        return jnp.sum(jnp.tanh(q) * jnp.sin(k) * jnp.cos(v))

    w = {n: shaped((512, 1024), jnp.float32, on, None, "model") for n in "qkv"}
    fn = jax.grad(lambda x, w: loss(jnp.sin(x), w))
    cap = on_chip(fn, shaped((2048, 512), jnp.float32, on), w)
    (found,) = cap.findings.of("reduced-twice")
    assert found.title.startswith("A gradient is reduced 3 times")
    assert ": 8 MiB of 12 MiB of %" in found.title


def test_a_mask_of_indices_is_no_branch() -> None:
    """The derivative of a scatter into rows that vmap picks masks those out of bounds."""

    def loss(w: Any, x: Any, at: Any) -> Any:
        for k in range(4):
            with jax.named_scope(f"layer_{k}"):
                few = jnp.tanh(jnp.take_along_axis(x, at[..., None], 1) @ w) @ w
                x = jax.vmap(lambda a, i, b: a.at[i].add(b))(x, at, few)
        return jnp.square(x).sum()

    given = shaped((256, 256)), shaped((4, 512, 256)), shaped((4, 64), jnp.int32)
    cap = on_chip(jax.grad(loss), *given)
    assert cap.findings.failed == ()
    assert not cap.findings.of("batched-branches")


def test_padding_of_an_image_for_a_convolution_has_no_advice() -> None:
    """Its dimensions cannot be merged; which of them are filled up, the layout says."""
    pytest.importorskip("libtpu")

    def step(w: Any, x: Any) -> Any:
        dims = ("NHWC", "HWIO", "NHWC")
        return lax.conv_general_dilated(x, w, (2, 2), "SAME", dimension_numbers=dims)

    given = shaped((3, 3, 3, 64)), shaped((16, 512, 512, 3))
    cap = hs.capture(jax.jit(step), *given, topology="v5e:1x1")
    (found,) = cap.findings.of("padding")
    assert found.advice == ""
    assert "as dimensions of" in found.evidence
    assert "are filled up to tiles of" in found.evidence


def test_weights_that_a_constraint_makes_whole_are_not_the_price_of_fsdp() -> None:
    on = mesh("x")

    def step(x: Any, w: Any) -> Any:
        return lax.with_sharding_constraint(x @ w, NamedSharding(on, P()))

    w = shaped((2048, 16384), jnp.float32, on, None, "x")
    found = waits(on_chip(jax.grad(lambda w, x: jnp.sin(step(x, w)).sum()), w,
                          shaped((16384, 2048), jnp.float32, on)))  # fmt: skip
    assert found
    assert not any("price of FSDP" in e for e in found)
    assert any("(the constraint at test_findings_judged.py:" in e for e in found)


def test_what_xla_gathers_for_want_of_a_way_has_no_advice() -> None:
    """The person's constraint wants another sharding, and not the whole that XLA goes through."""
    pytest.importorskip("libtpu")

    def step(x: Any, w: Any) -> Any:
        y = lax.with_sharding_constraint(jnp.tanh(x @ w), P("data", None))
        return lax.with_sharding_constraint(jnp.sin(y), P(None, "model"))

    given = [jax.ShapeDtypeStruct((4096, 4096), jnp.float32)] * 2
    fn = jax.jit(step, in_shardings=(P("data"), P()))
    cap = hs.capture(fn, *given, topology="v5e:2x4", mesh={"data": 2, "model": 4})
    for found in cap.findings.of("gathered-then-sliced"):
        assert found.advice == ""
    assert cap.findings.failed == ()


def test_a_sum_of_many_gradients_does_not_name_one_of_them() -> None:
    on = mesh("data")

    def loss(ws: Any, x: Any) -> Any:
        for w in ws:
            x = jnp.tanh(x @ w)
        return jnp.square(x).mean()

    ws = [shaped((256, 256), jnp.float32, on) for _ in range(6)]
    cap = on_chip(jax.grad(loss), ws, shaped((2048, 256), jnp.float32, on, "data"))
    (found,) = cap.findings.of("exposed-collective")
    assert "all-reduce of 6 arrays over data" in found.title
    assert "1.5 MiB of 6 arrays" in found.evidence


def test_an_exchange_is_not_put_down_to_what_only_reads_its_result() -> None:
    """Microbatches cut across the sharded rows: the gradient's product leaves the axis in place."""
    on = mesh("data")
    across = P(None, "data")
    own = jax.shard_map(lambda x: jnp.tanh(x) * x, mesh=on, in_specs=across, out_specs=across)

    def loss(w: Any, x: Any) -> Any:
        y = own((x @ w).reshape(8, -1, 512)).reshape(-1, 512)
        return jnp.square(y - y.mean(-1, keepdims=True)).mean()

    given = shaped((512, 512), jnp.float32, on), shaped((16384, 512), jnp.float32, on, "data")
    cap = on_chip(jax.grad(loss), *given)
    found = [f for f in cap.findings.of("exposed-collective") if "all-to-all" in f.title]
    assert any("reshape at test_findings_judged.py:" in f.evidence for f in found)
    assert any("shard_map's in_specs at test_findings_judged.py:" in f.evidence for f in found)
    for f in found:
        if said := re.search(
            r" as (P\([^ ]*.*?\)) .* and makes its result as (\S.*?\)|\w+)", f.evidence
        ):
            assert "data" in said[2], f.evidence
            assert said[1].index("'data'") != said[2].index("'data'"), f.evidence


X = "f32[65536,64]{1,0:T(8,128)SPACE}"
SINES = "".join(f"  s{k} = {X} sine(s{k - 1})\n" for k in range(1, 16))
IN_VMEM = f"""HloModule m, is_scheduled=true

fused {{
  s0 = {X} parameter(0)
  w = f32[64,8]{{1,0:T(8,128)SPACE}} parameter(1)
{SINES}  ROOT d = f32[65536,8]{{1,0:T(8,128)SPACE}} dot(s15, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
}}

ENTRY e {{
  x = {X} parameter(0)
  w = f32[64,8]{{1,0:T(8,128)SPACE}} parameter(1)
  ROOT f = f32[65536,8]{{1,0:T(8,128)SPACE}} fusion(x, w), kind=kOutput, calls=fused
}}
"""  # noqa: E501


def test_a_product_of_what_lies_in_vmem_waits_for_no_memory() -> None:
    for space, many in (("", 1), ("S(1)", 0)):
        cap = hs.read(IN_VMEM.replace("SPACE", space), hardware="tpu-v5e")
        assert len(cap.findings.of("idle-matmul")) == many
