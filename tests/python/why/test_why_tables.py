"""Parts of why a collective is there, as tables: shardings, ways of axes, what a value is made of."""

# ruff: noqa: E501
from __future__ import annotations

from dataclasses import replace
from typing import Any

import hloscope as hs
import pytest
from hloscope.analysis.why.alignment import Alignment, full_name
from hloscope.analysis.why.provenance_card import Why
from hloscope.analysis.why.provenance_causes import Causes, _explains, _same_kind, summed_dimensions
from hloscope.analysis.why.provenance_origins import (
    AxisOrigin,
    ShardingOrigins,
    callers_of,
    is_constraint,
)
from hloscope.hlo import StackFrame, Target
from hloscope.readers.stablehlo.shardy_dump import read_shardy_dump
from why_written import MESH, cards, text, written

D, M = frozenset({"data"}), frozenset({"model"})


@pytest.mark.parametrize(
    ("before", "after", "axes", "kinds"),
    [
        # taken off: a gather, and also what a permute may do
        ((("data",), ()), ((), ()), D, {"all-gather", "collective-permute"}),
        # from one dimension to the other
        ((("data",), ()), ((), ("data",)), D, {"all-gather", "all-to-all", "collective-permute"}),
        ((("data",), ()), (("data",), ()), D, set()),
        ((("data",), ()), ((), ()), M, set()),
        ((("data",), ()), (("model",), ()), D, {"all-gather", "collective-permute"}),
        ((("data",), ()), (("model",), ()), M, {"collective-permute"}),
        ((("data",), ()), (("model",), ()), D | M, {"collective-permute"}),
        (((), ()), (("data",), ()), D, set()),  # cutting what is whole moves nothing
        ((("data", "model"), ()), (("data",), ()), M, {"all-gather", "collective-permute"}),
        ((("data", "model"), ()), (("data",), ()), D | M, set()),
    ],
)
def test_which_moves_go_from_one_sharding_to_another(
    before: Any, after: Any, axes: Any, kinds: set[str]
) -> None:
    moves = ("all-gather", "all-to-all", "collective-permute")
    assert {k for k in moves if _explains(before, after, k, axes)} == kinds


OPS = """
  %x = f32[16,64] parameter(0), sharding=D_
  %w = f32[64,128] parameter(1), sharding=_M
  %k = s32[16,4] parameter(2)
  %u = f32[4,16,64] parameter(3)
  %z = f32[] constant(0)
  %dot = f32[16,128] dot(%x, %w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  %red = f32[64] reduce(%x, %z), dimensions={0}, to_apply=%sum
  %two = (f32[64], f32[64]) reduce(%x, %x, %z, %z), dimensions={0}, to_apply=%sum
  %get = f32[16,4,64] gather(%x, %k), offset_dims={2}, collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=2, slice_sizes={1,64}
  %put = f32[16,64] scatter(%x, %k, %u), update_window_dims={2}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=2, to_apply=%sum
  ROOT %t = f32[16,64] tanh(%x)
"""


def test_what_an_op_sums_over() -> None:
    module = hs.read(text(OPS)).module
    found = {
        i.name: [(o.name, dims) for o, dims in summed_dimensions(i)]
        for i in module.entry.instructions
        if i.opcode not in ("parameter", "constant")
    }
    assert found == {
        "dot": [("x", (1,)), ("w", (0,))],
        "red": [("x", (0,))],
        "two": [("x", (0,)), ("x", (0,))],
        "get": [("x", (0,))],
        "put": [("u", (0, 1))],
        "t": [],
    }
    x, k = module.find("x"), module.find("k")
    kinds = {
        (v.name, s): _same_kind(v, s)
        for v in (x, k)
        for s in ("f32[2]", "bf16[2]", "s32[2]", "u8[2]", "")
    }
    assert [n for n, same in kinds.items() if not same] == [
        ("x", "s32[2]"), ("x", "u8[2]"), ("k", "f32[2]"), ("k", "bf16[2]"),
    ]  # fmt: skip


def test_sizes_of_tiles_and_of_what_is_gathered() -> None:
    module = hs.read(text(OPS)).module
    asked = Causes(ShardingOrigins(Target(mesh=MESH), module, None))
    x = module.find("x")  # 16×64 over a mesh of 2×4
    assert asked._tile((16, 64), (("data",), ("model",))) == 8 * 16
    assert asked._tile((15, 63), (("data",), ("model",))) == 8 * 16  # padded
    assert asked._tile((16, 64), ((), ())) == 1024
    spec = (("data",), ("model",))
    table = {(shape, axes, exactly): asked._gathered(x, spec, axes, shape, exactly)
             for shape in ("f32[16,16]", "f32[16,16,1]", "f32[256]", "f32[8,64]", "f32[16,64]")
             for axes in (D, M, D | M) for exactly in (True, False)}  # fmt: skip
    assert {key for key, fits in table.items() if fits} == {
        ("f32[16,16]", D, True), ("f32[16,16]", D, False), ("f32[16,16,1]", D, True),
        ("f32[16,16,1]", D, False), ("f32[256]", D, False),
        ("f32[8,64]", M, True), ("f32[8,64]", M, False),
        ("f32[16,64]", D | M, True), ("f32[16,64]", D | M, False),
    }  # fmt: skip


EDGES = "sdy.propagation_edges = #sdy.propagation_edges"
DUMP = f"""module @m {{
  sdy.mesh @mesh = <["x"=2, "y"=2, "z"=2]>
  func.func @other(%arg0: tensor<8xf32>) -> tensor<8xf32> {{
    %0 = stablehlo.tanh %arg0 {{{EDGES}<[{{step-0 = [{{"x" = operand-0 -> [result-0]}}]}}]>}} : tensor<8xf32>
    return %0 : tensor<8xf32>
  }}
  func.func @main(%arg0: tensor<8x4xf32> {{sdy.sharding = #sdy.sharding<@mesh, [{{"x"}}, {{}}]>, sdy.sharding_origins = {{x = "self"}}}}, %arg1: tensor<8x4xf32>) -> (tensor<8x4xf32>, tensor<8x4xf32>) {{
    %c = sdy.constant dense<0> : tensor<i32>
    %0 = stablehlo.sine %arg0 {{{EDGES}<[{{step-0 = [{{"x" = operand-0 -> [result-0]}}]}}]>, sdy.sharding = #sdy.sharding_per_value<[<@mesh, [{{"x"}}, {{}}]>]>, sdy.sharding_origins = [{{x = "input: 0"}}]}} : tensor<8x4xf32>
    %1:2 = stablehlo.while(%iterArg = %c, %iterArg_0 = %arg1) : tensor<i32>, tensor<8x4xf32> attributes {{sdy.block_arg_sharding_origins = [], sdy.result_propagation_edges = [], sdy.result_sharding_origins = [{{z = "constraint_0"}}], sdy.sharding = #sdy.sharding_per_value<[<@mesh, []>, <@mesh, [{{}}, {{"z"}}]>]>}}
    cond {{
      %4 = stablehlo.compare LT, %iterArg, %c : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %4 : tensor<i1>
    }} do {{
      %4 = stablehlo.cosine %iterArg_0 {{{EDGES}<[{{step-2 = [{{"z" = result-0 -> [operand-0]}}]}}]>, sdy.sharding = #sdy.sharding_per_value<[<@mesh, [{{}}, {{"z"}}]>]>, sdy.sharding_origins = [{{z = "constraint_0"}}]}} : tensor<8x4xf32>
      %5 = sdy.reshard %4 <@mesh, [{{}}, {{"z"}}]> {{{EDGES}<[{{step-1 = [{{"z" = result-0 -> [operand-0]}}]}}]>, sdy.sharding_origin_name = "constraint_0", sdy.sharding_origins = {{z = "self"}}}} : tensor<8x4xf32>
      stablehlo.return %iterArg, %5 : tensor<i32>, tensor<8x4xf32>
    }}
    %2 = stablehlo.maximum %0, %1#1 {{{EDGES}<[{{step-4 = [{{"x" = operand-0 -> [result-0]}}, {{"z" = operand-1 -> [result-0]}}]}}]>, sdy.sharding = #sdy.sharding_per_value<[<@mesh, [{{"x"}}, {{"z"}}]>]>, sdy.sharding_origins = [{{x = "input: 0", z = "constraint_0"}}]}} : tensor<8x4xf32>
    %3 = stablehlo.add %0, %2 {{{EDGES}<[{{step-4 = [{{"x" = operand-0 -> [result-0]}}, {{"x" = operand-1 -> [result-0]}}]}}]>, sdy.sharding = #sdy.sharding_per_value<[<@mesh, [{{"x"}}, {{}}]>]>, sdy.sharding_origins = [{{x = "input: 0"}}]}} : tensor<8x4xf32>
    return %2, %3 : tensor<8x4xf32>, tensor<8x4xf32>
  }}
}}
"""


def test_ways_of_axes_lead_back_to_where_they_began() -> None:
    dump = read_shardy_dump(DUMP)
    largest, both = dump.returned
    assert largest.origins == {"x": "input: 0", "z": "constraint_0"}
    assert dump.path(largest, "x") == ("maximum", "sine")
    # what the loop carries got it from its use in the loop, which got it from the constraint
    assert dump.path(largest, "z") == ("maximum", "cosine")
    assert dump.path(largest, "y") == ()
    assert dump.path(both, "x") == ()  # two ways
    assert [v.origins for v in dump.arguments] == [{"x": "input: 0"}, {}]


BEFORE = """
  %x = f32[16,64] parameter(0), sharding=D_  # =x
  %a = f32[16,64] negate(%x), sharding=D_  # 4 neg
  %s = f32[16,64] add(%a, %a), sharding=D_  # 5 add
  %m = f32[16,64] add(%s, %x), sharding=D_  # 5 add
  ROOT %e = f32[16,64] tanh(%m), sharding=D_  # 6 tanh
"""
AFTER = """
  %x.1 = f32[8,64] parameter(0), sharding=D_  # =x
  %a.1 = f32[8,64] negate(%x.1)  # 4 neg
  %g = f32[16,64] all-gather(%a.1), channel_id=1, ALONG_DATA, dimensions={0}  # 5 add
  %p = f32[16,64] copy(%g)
  %id = u32[] partition-id()
  %k = pred[] compare(%id, %id), direction=EQ
  %c = f32[8,64] slice(%p), slice={[0:8],[0:64]}
  %s.1 = f32[8,64] add(%c, %c)  # 5 add
  %m.1 = f32[8,64] add(%s.1, %x.1)  # 5 add
  ROOT %e.1 = f32[8,64] tanh(%m.1)  # 6 tanh
"""


def test_ops_of_one_line_are_told_apart_by_what_they_compute_with() -> None:
    before, after = (hs.read(text(b)).module for b in (BEFORE, AFTER))
    found = Alignment(before, after)
    of = {i.name: o.name for i in after.entry.instructions if (o := found.of(i)) is not None}
    assert of == {"x.1": "x", "a.1": "a", "s.1": "s", "m.1": "m", "e.1": "e"}
    gather = after.find("g")
    assert [i.name for i in found.sources(gather)] == ["a.1"]
    assert [(i.name, k) for i, k in found.users(gather)] == [("s.1", 0), ("s.1", 1)]
    assert [i.name for i in found.sources(after.find("c"))] == ["a.1"]
    assert found.sources(after.find("m.1")) == [after.find("m.1")]


def test_names_in_called_functions_begin_where_they_are_called() -> None:
    body = """
%inner (a: f32[8]) -> f32[8] {
  %a.1 = f32[8] parameter(0)
  ROOT %n = f32[8] negate(%a.1), metadata={op_name="neg"}
}
%outer (b: f32[8]) -> f32[8] {
  %b.1 = f32[8] parameter(0)
  %m = f32[8] exponential(%b.1), metadata={op_name="jit(g)/exp"}
  ROOT %c = f32[8] call(%m), to_apply=%inner, metadata={op_name="layer"}
}
ENTRY %main (x: f32[8]) -> f32[8] {
  %x = f32[8] parameter(0)
  ROOT %o = f32[8] call(%x), to_apply=%outer, metadata={op_name="jit(f)"}
}
"""
    module = hs.read(text(body)).module
    names = {n: full_name(module.find(n)) for n in ("n", "m", "c", "o")}
    assert names == {
        "n": "jit(f)/layer/neg",
        "m": "jit(f)/jit(g)/exp",
        "c": "jit(f)/layer",
        "o": "jit(f)",
    }


def frame(file: str, line: int, function: str = "") -> StackFrame:
    return StackFrame(file, line, function=function)


def test_who_called_a_line() -> None:
    stack = (frame("m.py", 1, "one"), frame("m.py", 2, "two"), frame("/lib/site-packages/jax/a.py", 9, "api"),
             frame("m.py", 3, "Model.step"), frame("m.py", 4, "main"), frame("m.py", 5, "<module>"))  # fmt: skip
    assert callers_of(stack) == ("m.py:2", "m.py:3", "m.py:4")  # three at most
    assert callers_of(stack, "jit(step)/dot") == ("m.py:2", "m.py:3")  # up to the jitted function
    assert callers_of(stack, "jit(two)/dot") == ("m.py:2",)
    assert callers_of(stack, "jit(other)/dot") == ("m.py:2", "m.py:3", "m.py:4")
    assert callers_of(stack[:1]) == ()
    assert callers_of((stack[0], stack[1], stack[1])) == ("m.py:2",)


def test_what_is_a_constraint() -> None:
    body = """
  %x = f32[8] parameter(0)  # =x
  %a = f32[8] copy(%x)  # 3 sharding_constraint
  %b = f32[8] copy(%x)  # 3 copy
  ROOT %c = f32[8] negate(%x)  # 3 sharding_constraint
"""
    module = hs.read(text(body)).module
    assert [i.name for i in module.entry.instructions if is_constraint(i)] == ["a"]


ORIGIN = AxisOrigin("model", "operand", "argument", "w", via=("tanh", "dot"))


def test_cards_in_words() -> None:
    card = Why(
        "jit(f)/dot",
        "dot",
        "f32[8,8]",
        "m.py:3",
        "w",
        "P('model', None)",
        "needed as replicated",
        (ORIGIN,),
    )
    assert (
        str(card)
        == """\
why
  requested by  dot f32[8,8] at m.py:3
  operand       w: P('model', None)
  needed        replicated
  because of    operand's model from argument w, along tanh ← dot"""
    )
    assert card.is_known
    assert card.others == ()
    two = replace(card, line="m.py:9", callers=("m.py:20",))
    both = replace(card, shape="2 arrays", parts=(card, two), callers=())
    assert both.others == ("dot f32[8,8] at m.py:9",)
    assert str(both).splitlines()[1:3] == [
        "  requested by  dot, 2 arrays combined at m.py:3", "  and by        dot f32[8,8] at m.py:9",
    ]  # fmt: skip
    # one helper's line, called from two places
    helper = (replace(card, callers=("m.py:20",)), replace(card, callers=("m.py:30",)))
    of = replace(card, shape="2 arrays", parts=helper, callers=("m.py:20",))
    assert of.others == ("dot f32[8,8] at m.py:3 called from m.py:30",)
    many = replace(
        card, shape="20 arrays", parts=tuple(replace(card, line=f"m.py:{k}") for k in range(3, 23))
    )
    assert len(many.others) == 19
    lines = str(many).splitlines()
    assert sum("dot f32[8,8] at" in line for line in lines) == 12
    assert any(line.endswith("and 7 more") for line in lines)
    lost = Why("jit(f)/dot", line="m.py:3", unknown="nobody knows", parts=(card,) * 15)
    assert str(lost).splitlines()[1:4] == [
        "  unknown           nobody knows", "  named after       dot at m.py:3", "  known about them  dot f32[8,8] at m.py:3",
    ]  # fmt: skip
    assert len(str(lost).splitlines()) == 3 + 12
    assert str(AxisOrigin("model", "operand", "unknown")) == "model: origin unknown"
    assert str(ORIGIN) == "model: argument w"
    plain = both.to_dict()
    assert (plain["unknown"], plain["collective"], plain["line_listed"]) == (None, None, None)
    assert [p["line"] for p in plain["parts"]] == ["m.py:3", "m.py:9"]


WHOLE = """
  %x = f32[16,64] parameter(0), sharding=D_  # =x
  %w = f32[64,32] parameter(1), sharding=M_  # =w
  %y = f32[16,32] dot(%x, %w), MATMUL, sharding=D_  # 5 dot_general
  ROOT %e = f32[16,32] tanh(%y), sharding=D_  # 6 tanh
"""
LOCAL = """
  %x.1 = f32[8,64] parameter(0), sharding=D_  # =x
  %w.1 = f32[16,32] parameter(1), sharding=M_  # =w
  %g = f32[64,32] all-gather(%w.1), channel_id=1, ALONG_MODEL, dimensions={0}NAME
  %y.1 = f32[8,32] dot(%x.1, %g), MATMUL  # 5 dot_general
  ROOT %e.1 = f32[8,32] tanh(%y.1)  # 6 tanh
"""
GIVEN = {"x": (("data",), ()), "w": (("model",), ())}
GATHERED = """\
  requested by  dot f32[16,32] at m.py:5
  operand       w: P('model', None)
  needed        result P('data', None)
  because of    operand's model from argument w"""


def test_a_gather_that_is_named_after_the_argument() -> None:
    for name in ("  # 5 dot_general", "  # =w"):
        cap = written(WHOLE, LOCAL.replace("NAME", name), GIVEN)
        assert cards(cap) == {"g": GATHERED}
        alone = hs.Capture(cap.module, replace(cap.target, after_partitioning=None))
        assert cards(alone) == {"g": GATHERED}


def test_what_cannot_be_told_is_said() -> None:
    cap = written(WHOLE, LOCAL.replace("NAME", "  # 5 dot_general"), GIVEN)
    none = replace(cap.target, before_partitioning=None, after_partitioning=None)
    (row,) = cap.collectives
    assert (
        hs.Capture(cap.module, none).why(row.name).unknown
        == "the program before partitioning was not captured"
    )
    other = LOCAL.replace("NAME", "  # 7 other")
    meta = written(WHOLE, other, GIVEN)
    meta = hs.Capture(meta.module, replace(meta.target, after_partitioning=None))
    assert meta.why("g").unknown == "no op before partitioning has its name and line"
    nameless = written(WHOLE, LOCAL.replace("NAME", ""), GIVEN)
    lost = hs.Capture(nameless.module, replace(nameless.target, after_partitioning=None))
    assert lost.why("g").unknown.startswith("it carries no op_name")
    # a gather of another size than the partitioner's
    larger = LOCAL.replace("NAME", "  # 5 dot_general").replace(
        "f32[16,32] parameter(1)", "f32[32,32] parameter(1)"
    )
    larger = larger.replace("f32[64,32] all-gather", "f32[128,32] all-gather").replace(
        "dot(%x.1, %g), MATMUL", 'custom-call(%g), custom_call_target="f"'
    )
    unlike = written(WHOLE, LOCAL.replace("NAME", "  # 5 dot_general"), GIVEN, optimised=larger)
    assert (
        unlike.why("g").unknown
        == "no collective of the partitioned program has its groups and size"
    )
