"""MLIR as people and other tools write it: line breaks, generic form, other dialects, Shardy."""

from __future__ import annotations

import random
import re
from typing import Any

import pytest
from hloscope import read
from hloscope.hlo import Module
from hloscope.readers import read_modules

MESH = '  sdy.mesh @mesh = <["data"=2, "model"=4]> {stablehlo.mesh = {axes = []}}\n'
HEAD = "module @m attributes {mhlo.num_partitions = 8 : i32} {\n" + MESH


def one(text: str) -> Module:
    (found,) = read_modules(text)
    return found


def shape_of_it(m: Module) -> list[Any]:
    """All that must not depend on how the text is written."""
    return [
        (
            [(i.opcode, i.shape.text, len(i.operands), i.sharding_text) for i in c.instructions],
            [len(i.called_computations) for i in c.instructions],
        )
        for c in m.computations
    ]


@pytest.fixture(scope="module")
def operation() -> Any:
    """The StableHLO of a loop, a branch, a sort, a scatter, a manual region and CHLO."""
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
        return jnp.sort(h, axis=0), total[1], jax.scipy.special.erf(h), jax.lax.top_k(h, 2)

    x = jax.ShapeDtypeStruct((8, 16), jnp.float32, sharding=sharding)
    lowered = jax.jit(f).lower(x, jnp.ones((16, 8)), jnp.int32(0))
    return lowered.compiler_ir("stablehlo").operation


def rebroken(text: str, r: random.Random) -> str:
    """The same with line breaks where MLIR allows them, and comments."""

    def broken(m: re.Match[str]) -> str:
        if r.random() > 0.3:
            return m[1]
        return "\n  : " if m[1] == " : " else m[1].rstrip() + "\n      "

    out = []
    for line in text.split("\n"):
        parts = re.split(r'("(?:[^"\\]|\\.)*")', line)
        joined = "".join(
            p if p.startswith('"') else re.sub(r"(, | : |\(|<\{)", broken, p) for p in parts
        )
        out.append(joined + (" // %z = {" if r.random() < 0.1 else ""))
    return "\n".join(out)


def test_lines_may_break_anywhere(operation: Any) -> None:
    text = operation.get_asm()
    plain = one(text)
    assert plain.warnings == ()
    for seed in range(40):
        m = one(rebroken(text, random.Random(seed)))
        assert m.warnings == (), (seed, m.warnings)
        assert shape_of_it(m) == shape_of_it(plain), seed


def test_generic_form(operation: Any) -> None:
    """The same program: only reductions are written with their regions there."""
    plain, generic = one(operation.get_asm()), one(operation.get_asm(print_generic_op_form=True))
    assert generic.warnings == ()
    assert generic.name == plain.name
    assert generic.num_partitions == plain.num_partitions == 8
    assert plain.entry is not None
    assert generic.entry is not None
    assert shape_of_it(generic)[0][0] == shape_of_it(plain)[0][0]
    names = {c.name for c in generic.computations}
    assert {"main", "sort"} <= names
    call = next(i for i in generic.entry.instructions if i.opcode == "call")
    assert call.called_computations[0].name == "sort"


def test_versioned_dialect() -> None:
    m = one(
        "module @jit_f attributes {mhlo.num_partitions = 1 : i32} {\n"
        "  vhlo.func_v1 @main(%arg0: !vhlo.tensor_v1<4x8x!vhlo.f32_v1>) -> "
        "(!vhlo.tensor_v1<4x8x!vhlo.bool_v1>) {\n"
        '    %0 = "vhlo.add_v1"(%arg0, %arg0) : (!vhlo.tensor_v1<4x8x!vhlo.f32_v1>, '
        "!vhlo.tensor_v1<4x8x!vhlo.f32_v1>) -> !vhlo.tensor_v1<4x8x!vhlo.f32_v1>\n"
        '    %1 = "vhlo.call_v2"(%0) <{callee = #vhlo.string_v1<"g">}> : '
        "(!vhlo.tensor_v1<4x8x!vhlo.f32_v1>) -> !vhlo.tensor_v1<4x8x!vhlo.bool_v1>\n"
        '    "vhlo.return_v1"(%1) : (!vhlo.tensor_v1<4x8x!vhlo.bool_v1>) -> ()\n'
        '  } {arg_attrs = #vhlo.array_v1<[]>, sym_visibility = #vhlo.string_v1<"public">}\n'
        "  vhlo.func_v1 @g(%arg0: !vhlo.tensor_v1<4x8x!vhlo.f32_v1>) -> "
        "(!vhlo.tensor_v1<4x8x!vhlo.bool_v1>) {\n"
        '    %0 = "vhlo.is_finite_v1"(%arg0) : (!vhlo.tensor_v1<4x8x!vhlo.f32_v1>) -> '
        "!vhlo.tensor_v1<4x8x!vhlo.bool_v1>\n"
        '    "vhlo.return_v1"(%0) : (!vhlo.tensor_v1<4x8x!vhlo.bool_v1>) -> ()\n  }\n}\n'
    )
    assert m.warnings == ()
    assert m.entry is not None
    assert [(i.opcode, i.shape.text) for i in m.entry.instructions] == [
        ("parameter", "f32[4,8]"),
        ("add", "f32[4,8]"),
        ("call", "pred[4,8]"),
        ("return", "pred[4,8]"),
    ]
    assert [c.name for c in m.entry.instructions[2].called_computations] == ["g"]


ODD = {
    "signature over lines": (
        "  func.func @main(\n      %arg0: tensor<4xf32>,\n      %arg1: tensor<4xf32>\n  ) -> (\n"
        "      tensor<4xf32>) {\n    %0 = stablehlo.add %arg0, %arg1 : tensor<4xf32>\n"
        "    return %0 : tensor<4xf32>\n  }\n",
        ["parameter", "parameter", "add", "return"],
    ),
    "attributes over lines": (
        '  func.func @main(%a: tensor<4xf32>) -> tensor<8xf32> {\n    %0 = "stablehlo.all_gather"'
        "(%a) {\n      all_gather_dim = 0 : i64,\n      replica_groups =\n        dense<[[0, 1]]> : "  # noqa: E501
        "tensor<1x2xi64>\n    } : (tensor<4xf32>)\n      -> tensor<8xf32>\n"
        "    return %0 : tensor<8xf32>\n  }\n",
        ["parameter", "all_gather", "return"],
    ),
    "several operations on a line": (
        "  func.func @main(%a: tensor<4xf32>) -> tensor<4xf32> { %0 = mhlo.add %a, %a : "
        "tensor<4xf32> %1 = chlo.erf %0 : tensor<4xf32> -> tensor<4xf32> return %1 : tensor<4xf32> }\n",  # noqa: E501
        ["parameter", "add", "chlo.erf", "return"],
    ),
    "a reduction with its arguments in pairs": (
        "  func.func @main(%a: tensor<4x8xf32>, %z: tensor<f32>) -> tensor<4xf32> {\n"
        "    %0 = stablehlo.reduce(%a init: %z)\n        across dimensions = [1] : (tensor<4x8xf32>, "  # noqa: E501
        "tensor<f32>) -> tensor<4xf32>\n     reducer(%b: tensor<f32>)\n       (%c: tensor<f32>) {\n"
        "      %1 = stablehlo.maximum %b, %c : tensor<f32>\n      stablehlo.return %1 : tensor<f32>\n"  # noqa: E501
        "    }\n    return %0 : tensor<4xf32>\n  }\n",
        ["parameter", "parameter", "reduce", "return"],
    ),
    "two results with names": (
        "  func.func @main(%a: tensor<4x8xf32>) -> tensor<4x2xi32> {\n    %v, %i = chlo.top_k(%a, "
        "k = 2) : tensor<4x8xf32> -> (tensor<4x2xf32>, tensor<4x2xi32>)\n"
        "    return %i : tensor<4x2xi32>\n  }\n",
        ["parameter", "chlo.top_k", "return"],
    ),
    "a type with a name": (
        "  func.func @main(%a: !t) -> !t {\n    %0 = stablehlo.negate %a : !t\n"
        "    return %0 : !t\n  }\n",
        ["parameter", "negate", "return"],
    ),
}


@pytest.mark.parametrize("name", ODD)
def test_odd_but_right(name: str) -> None:
    body, opcodes = ODD[name]
    alias = "!t = tensor<4xf32>\n" if "!t" in body else ""
    m = one(f"{alias}module @m {{\n{body}}}\n")
    assert m.warnings == ()
    assert m.entry is not None
    assert [i.opcode for i in m.entry.instructions] == opcodes
    assert not [i for i in m.instructions if i.shape.text == "opaque[]"]


def test_two_modules_in_one_file() -> None:
    text = "".join(
        f"module @{n} {{\n  func.func @main(%a: tensor<4xf32>) -> tensor<4xf32> {{\n"
        f"    %0 = stablehlo.{op} %a, %a : tensor<4xf32>\n    return %0 : tensor<4xf32>\n  }}\n}}\n"
        for n, op in (("first", "add"), ("second", "multiply"))
    )
    a, b = read_modules(text)
    assert (a.name, b.name) == ("first", "second")
    assert [i.opcode for i in b.instructions] == ["parameter", "multiply", "return"]
    assert b.first_line == 7
    assert b.text.startswith("module @second")
    assert b.text[slice(*b.instructions[1].text_span)].startswith("%0 = stablehlo.multiply")
    assert "2 modules here" in read(text).warnings[0]


def test_shardy_shardings_are_those_of_the_arrays() -> None:
    cap = read(
        HEAD + '  func.func public @main(%arg0: tensor<8x16xf32> {sdy.sharding = #sdy.sharding<@mesh, '  # noqa: E501
        '[{"data"}, {"model", ?}]>}, %arg1: tensor<16xf32> {mhlo.sharding = '
        '"{devices=[2,4]<=[8] last_tile_dim_replicate}"}) -> (tensor<8x16xf32> {jax.result_info = '
        '"r", sdy.sharding = #sdy.sharding<@mesh, [{}, {"model":(1)2}]>}, tensor<16xf32>) {\n'
        "    %0 = sdy.sharding_constraint %arg0 <@mesh, [{}, {\"model\"}]> : tensor<8x16xf32>\n"
        "    return %0, %arg1 : tensor<8x16xf32>, tensor<16xf32>\n  }\n}\n"
    )  # fmt: skip
    assert not cap.warnings
    rows = {(r.role, r.name): (r.text, r.bytes_per_device) for r in cap.shardings}
    assert rows == {
        ("parameter", "arg0"): ("P('data', 'model')", 64),
        ("parameter", "arg1"): ("P('data',)", 32),
        ("output", "return.1[0]"): ("P(None, 'model:(1)2')", 256),
        ("value", "0"): ("P(None, 'model')", 128),
    }


def test_a_manual_computation_runs_once_and_says_what_it_needs() -> None:
    cap = read(
        HEAD + '  func.func public @main(%a: tensor<8xf32>) -> tensor<8xf32> {\n'
        "    %0 = sdy.manual_computation(%a) in_shardings=[<@mesh, [{\"model\"}]>] "
        "out_shardings=[<@mesh, [{\"model\"}]>] manual_axes={\"data\", \"model\"} "
        "(%b: tensor<2xf32>) {\n"
        '      %1 = "stablehlo.all_reduce"(%b) <{replica_groups = dense<[[0, 1]]> : '
        "tensor<1x2xi64>}> ({\n      ^bb0(%c: tensor<f32>, %d: tensor<f32>):\n"
        "        %2 = stablehlo.add %c, %d : tensor<f32>\n        stablehlo.return %2 : tensor<f32>\n"  # noqa: E501
        "      }) : (tensor<2xf32>) -> tensor<2xf32>\n      sdy.return %1 : tensor<2xf32>\n"
        "    } : (tensor<8xf32>) -> tensor<8xf32>\n    return %0 : tensor<8xf32>\n  }\n}\n"
    )  # fmt: skip
    assert not cap.warnings
    assert "not known" in str(cap.collectives)
    (row,) = cap.shardings
    assert row.text == "P('model',)"
    for figure in (cap.cost, lambda: cap.memory, lambda: cap.source):
        with pytest.raises(ValueError, match="compile the program and read that") as e:
            figure()
        assert "cap.at" not in str(e.value)


def test_header_of_hlo_names_the_axes() -> None:
    cap = read(
        "HloModule jit_f, entry_computation_layout={(f32[8,4]{1,0})->f32[8,4]{1,0}}, num_partitions=4"  # noqa: E501
        ', frontend_attributes={xla.sdy.meshes={mesh = #sdy.mesh<["rows"=2, "columns"=2]>}}\n\n'
        "ENTRY %main (x: f32[8,4]) -> f32[8,4] {\n"
        "  %x = f32[8,4]{1,0} parameter(0), sharding={devices=[2,1,2]<=[4] last_tile_dim_replicate}\n"  # noqa: E501
        '  ROOT %r = f32[8,4]{1,0} custom-call(%x), custom_call_target="xla.sdy.FuncResultSharding"'
        ', custom_call_has_side_effect=true, frontend_attributes={xla.sdy.sharding='
        '"#sdy.sharding_per_value<[<@mesh, [{}, {\\"columns\\"}]>]>"}\n}\n'
    )  # fmt: skip
    assert not cap.warnings
    assert [(r.role, r.text, r.bytes_per_device) for r in cap.shardings] == [
        ("parameter", "P('rows', None)", 64),
        ("output", "P(None, 'columns')", 64),
    ]
    cost = cap.cost("tpu-v5e")
    assert (cost.total_flops, cost.total_bytes, cost.unknown_flops) == (0, 0, ())


def test_leaves_of_a_long_tuple_are_all_sharded() -> None:
    n = 12
    shards = ", ".join(
        ("/*index=5*/" if k in (5, 10) else "") + "{devices=[8]<=[8]}" for k in range(n)
    )
    shapes = ", ".join(("/*index=5*/" if k in (5, 10) else "") + "f32[64]{0}" for k in range(n))
    names = ", ".join(["%p"] * n)
    cap = read(
        f"HloModule m, num_partitions=8\n\nENTRY %e (p: f32[64]) -> f32[64] {{\n"
        f"  %p = f32[64]{{0}} parameter(0), sharding={{devices=[8]<=[8]}}\n"
        f"  ROOT %t = ({shapes}) tuple({names}), sharding={{{shards}}}\n}}\n"
    )
    outputs = [r for r in cap.shardings if r.role == "output"]
    assert sum(r.bytes_per_device for r in outputs) == n * 32


def test_a_bracket_left_open_in_the_generic_form_costs_its_own_operation() -> None:
    text = """"builtin.module"() <{sym_name = "m"}> ({
  "func.func"() <{function_type = (tensor<8xf32>) -> tensor<8xf32>, sym_name = "main"}> ({
  ^bb0(%arg0: tensor<8xf32>):
    "stablehlo.custom_call"(%arg0) <{call_target_name = "a", has_side_effect = true}> : (tensor<8
    "stablehlo.custom_call"(%arg0) <{call_target_name = "b"}> : (tensor<8xf32>) -> ()
    %0 = "stablehlo.negate"(%arg0) : (tensor<8xf32>) -> tensor<8xf32>
    "func.return"(%0) : (tensor<8xf32>) -> ()
  }) : () -> ()
}) : () -> ()
"""
    (m,) = read_modules(text)
    assert [i.opcode for i in m.instructions] == [
        "parameter", "custom_call", "custom_call", "negate", "return"
    ]  # fmt: skip
    assert {w.line for w in m.warnings} == {4}
