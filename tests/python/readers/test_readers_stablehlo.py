"""StableHLO text and bytecode, as jax lowers real programs."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from typing import Any

import hloscope as hs
import pytest
from hloscope import read
from hloscope.hlo import Module
from hloscope.readers import ReadError
from hloscope.readers.formats import stablehlo_bytecode
from hloscope.readers.stablehlo.types import shape_of


@pytest.fixture(scope="module")
def lowered() -> Any:
    """A loop, a switch with captured values, scatter, sort, a mesh and a manual region."""
    import jax
    import jax.numpy as jnp
    import numpy as np
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    mesh = Mesh(np.array(jax.devices()).reshape(2, 4), ("x", "y"))
    sharding = NamedSharding(mesh, PartitionSpec("x", "y"))

    def f(x, w, k):  # type: ignore[no-untyped-def]
        h = jax.lax.with_sharding_constraint(x @ w, sharding)
        h = jax.shard_map(
            lambda a: jax.lax.psum(a, "x"),
            mesh=mesh,
            in_specs=PartitionSpec("x", "y"),
            out_specs=PartitionSpec(None, "y"),
        )(h)
        h = jax.lax.switch(k, [lambda v: v + 1, lambda v: v * h, lambda v: v - 1], h)
        h = h.at[jnp.array([0, 1])].add(1.0)
        total = jax.lax.while_loop(lambda c: c[0] < 4, lambda c: (c[0] + 1, c[1] * 2), (0, h.sum()))
        return jnp.sort(h, axis=0), total[1]

    with jax.named_scope("top"):
        return jax.jit(f).lower(jnp.ones((8, 16)), jnp.ones((16, 8)), jnp.int32(0))


def check(m: Module) -> None:
    assert m.dialect == "stablehlo"
    assert m.warnings == ()
    assert m.name == "jit_f"
    assert m.num_partitions == 8
    assert m.entry is not None
    assert m.entry.name == "main"
    opcodes = [i.opcode for i in m.entry.instructions]
    for wanted in ("dot_general", "sdy.sharding_constraint", "sdy.manual_computation", "case",
                   "scatter", "while", "call", "return"):  # fmt: skip
        assert wanted in opcodes, wanted
    by = {i.opcode: i for i in m.entry.instructions}
    assert by["dot_general"].shape.text == "f32[8,8]"
    assert [o.name for o in by["dot_general"].operands] == ["arg0", "arg1"]
    assert [r for r, _ in by["case"].called] == ["branch_computations"] * 3
    assert [r for r, _ in by["while"].called] == ["condition", "body"]
    assert [r for r, _ in by["scatter"].called] == ["to_apply"]
    assert by["call"].called_computations[0].name in {c.name for c in m.computations}
    assert [s.text for s in by["while"].shape.tuple_shapes] == ["s32[]", "f32[]"]
    assert m.entry.root is by["return"]
    # what the branches use from outside is an operand of the case and a parameter of each
    branch = by["case"].called_computations[1]
    assert len(by["case"].operands) == 2
    assert branch.parameters[0].name == by["case"].operands[1].name
    for i in m.instructions:
        assert all(o.computation is i.computation for o in i.operands)
        assert i.text_span is not None
        line = m.text[slice(*i.text_span)]
        assert i.opcode == "parameter" or i.opcode.split(".")[-1] in line
    manual = by["sdy.manual_computation"].called_computations[0]
    reduce = next(i for i in manual.instructions if i.opcode == "all_reduce")
    assert "replica_groups = dense" in reduce.attribute_text


def test_text(lowered: Any) -> None:
    cap = read(lowered.as_text())
    check(cap.module)
    assert cap.stage == "stablehlo"
    assert "sdy.mesh.mesh" in cap.module.attributes


def test_locations(lowered: Any) -> None:
    m = read(lowered.as_text(debug_info=True)).module
    check(m)
    dot = next(i for i in m.instructions if i.opcode == "dot_general")
    assert dot.op_name.endswith("dot_general")
    assert dot.frames[0].file == __file__
    assert dot.frames[0].function is not None
    assert dot.frames[0].function.endswith("f")
    table, ids = m.source_frames()
    assert table.stack(ids[dot.index]) == dot.frames


def test_bytecode_and_portable_artifacts(lowered: Any) -> None:
    import jax
    from jax import export

    buffer = io.BytesIO()
    lowered.compiler_ir("stablehlo").operation.write_bytecode(buffer)
    check(read(buffer.getvalue()).module)
    exported = export.export(jax.jit(lambda x: x * 2))(1.0)
    m = read(exported.mlir_module_serialized).module
    assert [i.opcode for i in m.instructions][-2:] == ["multiply", "return"]


def test_bytecode_without_mlir(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ReadError, match="not readable StableHLO bytecode"):
        read(b"ML\xefR\x0djunk")
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(ReadError, match="not readable StableHLO bytecode: exit status 1"):
        read(b"ML\xefR\x0djunk")
    monkeypatch.setattr(stablehlo_bytecode, "_CHILD", "-c import sys; sys.exit(3)")
    monkeypatch.setattr(sys, "executable", __file__ + ".none")
    with pytest.raises(ReadError, match="cannot start"):
        read(b"ML\xefR\x0djunk")


@pytest.mark.parametrize(
    "name", ["gpt_scan", "cnn_step", "windows", "narrow_types", "ring_attention"]
)
def test_corpus(compiled: Callable[..., Any], name: str) -> None:
    m = read(compiled(name).lowered.as_text(debug_info=True)).module
    assert m.warnings == ()
    assert m.entry is not None
    assert not [i for i in m.instructions if i.shape.text == "opaque[]"]
    operations = [i for i in m.instructions if i.opcode != "parameter"]
    assert sum(bool(i.op_name) for i in operations) > 0.8 * len(operations)


@pytest.mark.parametrize(
    ("mlir", "hlo"),
    [
        ("tensor<8x4xbf16>", "bf16[8,4]"),
        ("tensor<i1>", "pred[]"),
        ("tensor<2xui8>", "u8[2]"),
        ("tensor<3xcomplex<f64>>", "c128[3]"),
        ("tensor<?x4xf32>", "f32[?,4]"),
        ("tensor<?x4xf32, #stablehlo.bounds<8, ?>>", "f32[<=8,4]"),
        ("tensor<4xf8E4M3FN>", "f8e4m3fn[4]"),
        ("tuple<tensor<f32>, tensor<2xi64>>", "(f32[], s64[2])"),
        ("!stablehlo.token", "token[]"),
        ("!mystery", "opaque[]"),
    ],
)
def test_types(mlir: str, hlo: str) -> None:
    assert shape_of(mlir).text == hlo


def test_cut_off(lowered: Any) -> None:
    text = lowered.as_text()
    m = read(text[: len(text) // 2]).module
    assert any("ends inside" in w.message for w in m.warnings)
    assert len(m.instructions) > 10


@pytest.mark.parametrize(
    "scope", ["日本", 'say "q"', "back\\slash", "\\22", "tab\tand\nline", "ünïcode/é"]
)
def test_scopes_in_any_script_and_with_any_sign(scope: str) -> None:
    """MLIR prints UTF-8 byte by byte in hexadecimal, which is not how XLA's own text does it."""
    import jax
    import jax.numpy as jnp

    def f(x: Any) -> Any:
        with jax.named_scope(scope):
            return jnp.sin(x)

    text = jax.jit(f).lower(jnp.ones(3)).as_text(debug_info=True)
    (sine,) = (i for i in hs.read(text).module.instructions if "sine" in i.opcode)
    assert sine.op_name == f"jit(f)/{scope}/sin"


def test_types_right_after_the_colon() -> None:
    m = read(
        "module @m {\n  func.func @main(%a: tensor<4xf32>, %b: tensor<4xf32>) -> tensor<4xi1> {\n"
        "    %0 = stablehlo.compare GT, %a, %b :(tensor<4xf32>, tensor<4xf32>) -> tensor<4xi1>\n"
        "    return %0 : tensor<4xi1>\n  }\n}\n"
    ).module
    assert m.warnings == ()
    assert next(i for i in m.instructions if i.opcode == "compare").shape.text == "pred[4]"


def test_an_operation_whose_type_is_lost_is_said() -> None:
    m = read(
        "module @m {\n  func.func @main(%a: tensor<4xf32>) -> tensor<4xf32> {\n"
        "    %0 = stablehlo.ab}s %a : tensor<4xf32>\n    return %0 : tensor<4xf32>\n  }\n}\n"
    ).module
    assert any(w.line == 3 and "no type" in w.message for w in m.warnings)
