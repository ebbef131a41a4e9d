"""What an op makes the partitioner move, by its shardings and the sizes of what moves."""

# ruff: noqa: E501
from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import hloscope as hs
import pytest
from hloscope.analysis.why.provenance_causes import Causes, summed_dimensions
from hloscope.analysis.why.provenance_origins import ShardingOrigins
from hloscope.hlo import Argument, Target
from hloscope.hlo.shardings.specs import axis_of, tile_count
from why_written import MESH, cards, text, written

# a mesh of data=2 and model=4
OPS = """
  %x = f32[16,64] parameter(0), sharding=D_
  %w = f32[64,128] parameter(1), sharding=M_
  %c = f32[64,128] parameter(2), sharding=_M
  %whole = f32[64,128] parameter(3), sharding=R
  %odd = f32[16,64] parameter(4), sharding={devices=[8,1]0,3,1,2,4,5,6,7}
  %k = s32[64,128] parameter(5), sharding=M_
  %z = f32[] constant(0)
  %dot = f32[16,128] dot(%x, %w), MATMUL, sharding=D_  # 3 dot
  %part = f32[16,128] dot(%x, %c), MATMUL, sharding=DM  # 4 dot
  %plain = f32[16,128] dot(%x, %whole), MATMUL, sharding=D_  # 5 dot
  %lost = f32[16,128] dot(%odd, %w), MATMUL, sharding={devices=[8,1]0,3,1,2,4,5,6,7}  # 6 dot
  %pin = f32[64,128] copy(%w), sharding=_M  # 7 sharding_constraint
  %free = f32[64,128] copy(%w), sharding=R  # 7 sharding_constraint
  %pinned = f32[16,64] copy(%odd), sharding=D_  # 7 sharding_constraint
  %both = f32[64,128] add(%w, %c), sharding=R  # 8 add
  %same = f32[64,128] negate(%w), sharding=M_  # 9 neg
  %turn = f32[64,128] negate(%w), sharding=_M  # 9 neg
  %to = f32[128,64] transpose(%w), dimensions={1,0}, sharding=R  # 10 transpose
  %t = (f32[64,128]) tuple(%w)
"""


def asked(body: str = OPS, **target: Any) -> tuple[Causes, Any]:
    module = hs.read(text(body)).module
    assert not module.warnings, module.warnings
    return Causes(ShardingOrigins(Target(mesh=MESH, **target), module, None)), module


def said(found: list[Any]) -> list[tuple[Any, ...]]:
    return [
        (c.operand.name, c.had, c.needs, [(a, of, v.name) for a, of, v in c.axes]) for c in found
    ]


D, M = frozenset({"data"}), frozenset({"model"})
DOT = ("w", "P('model', None)", "result P('data', None)", [("model", "operand", "w")])


@pytest.mark.parametrize(
    ("op", "kind", "axes", "shape", "found"),
    [
        # gathered to the whole operand, the sharded dimension first or last, or with its type cast
        ("dot", "all-gather", M, "f32[64,128]", [DOT]),
        ("dot", "all-gather", M, "bf16[64,128]", [DOT]),
        ("dot", "all-gather", M, "f32[128,64,1]", [DOT]),
        ("dot", "all-gather", M, "f32[8192]", [DOT]),  # flattened: the same number of elements
        ("dot", "all-gather", M, "f32[64,64]", []),
        ("dot", "all-gather", M, "s32[64,128]", []),  # integers
        ("dot", "all-gather", D, "f32[64,128]", []),
        ("plain", "all-gather", M, "f32[64,128]", []),
        # of two operands of one size either may move: neither is named
        ("both", "all-gather", M, "f32[64,128]", []),
        # summed over model: w's rows are sharded, and x's columns are not
        ("dot", "all-reduce", M, "f32[16,128]", [
            ("w", "P('model', None)", "summed over model; result P('data', None)", [("model", "operand", "w")])]),
        ("dot", "reduce-scatter", M, "", [
            ("w", "P('model', None)", "summed over model; result P('data', None)", [("model", "operand", "w")])]),
        ("dot", "all-reduce", D, "f32[16,128]", []),
        ("dot", "all-reduce", D | M, "f32[16,128]", []),
        ("part", "all-reduce", M, "f32[16,128]", []),  # its columns are no partial sums
        ("lost", "all-reduce", M, "f32[16,128]", []),  # no axes express its result
        # a constraint: the axis is taken off, or goes to the other dimension
        ("free", "all-gather", M, "f32[64,128]", [
            ("w", "P('model', None)", "needed as replicated", [("model", "operand", "w"), ("", "result", "free")])]),
        ("pin", "all-gather", M, "f32[64,128]", [
            ("w", "P('model', None)", "needed as P(None, 'model')", [("model", "operand", "w"), ("", "result", "pin")])]),
        ("pin", "all-to-all", M, "f32[64,32]", [
            ("w", "P('model', None)", "needed as P(None, 'model')",
             [("model", "operand", "w"), ("", "result", "pin"), ("model", "result", "pin")])]),
        ("free", "all-to-all", M, "f32[64,32]", []),
        ("pin", "all-gather", D, "f32[64,128]", []),
        ("pinned", "all-gather", D, "f32[16,64]", []),  # where it was cannot be said
        # tiles go round: the one whose size it is
        ("turn", "all-to-all", M, "f32[16,128]", [
            ("w", "P('model', None)", "result P(None, 'model')", [("model", "operand", "w"), ("model", "result", "turn")])]),
        ("same", "all-to-all", M, "f32[16,128]", []),  # laid out as its operand: nothing moves
        ("to", "all-to-all", M, "f32[16,128]", [
            ("w", "P('model', None)", "result replicated", [("model", "operand", "w")])]),
        ("dot", "collective-permute", M, "f32[16,128]", [DOT]),
        ("dot", "collective-permute", M, "f32[64,128]", []),
        ("dot", "collective-matmul", M, "f32[16,128]", [DOT]),
        ("dot", "collective-matmul", D, "f32[8,64]", [
            ("x", "P('data', None)", "result P('data', None)", [("data", "operand", "x"), ("data", "result", "dot")])]),
        # of a product whose parts are summed on the way, whatever size goes round
        ("plain", "collective-matmul", M, "f32[4,4]", []),
        ("dot", "collective-broadcast", M, "f32[16,128]", []),
        ("dot", "never-heard-of", M, "f32[16,128]", []),
        ("t", "all-gather", M, "f32[64,128]", []),
    ],
)  # fmt: skip
def test_causes(op: str, kind: str, axes: Any, shape: str, found: list[Any]) -> None:
    causes, module = asked()
    assert said(causes.causes(module.find(op), kind, axes, shape)) == found


def test_a_matmul_that_goes_round_may_collect_a_sum() -> None:
    body = """
  %x = f32[16,64] parameter(0), sharding=_M
  %w = f32[64,128] parameter(1), sharding=M_
  ROOT %dot = f32[16,128] dot(%x, %w), MATMUL, sharding=M_  # 3 dot
"""
    causes, module = asked(body)
    (found,) = causes.causes(module.find("dot"), "collective-matmul", M, "f32[4,128]")
    assert found.needs == "summed over model; result P('model', None)"
    assert found.had == "P(None, 'model') and P('model', None)"
    assert causes.causes(module.find("dot"), "all-gather", D, "f32[4,128]") == []


TABLE = """
  %table = f32[64,16] parameter(0), sharding=M_  # =table
  %rows = s32[10,3] parameter(1), sharding=D_
  %small = f32[8,8] parameter(2), sharding=M_
  %get = f32[10,3,16] gather(%table, %rows), offset_dims={2}, collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=2, slice_sizes={1,16}, sharding=D__  # 5 gather
  %add = f32[64,16] add(%table, %table), sharding=R  # 6 add
  %two = f32[64,16] subtract(%table, %small), sharding=R  # 7 sub
  %odd = f32[64,16] sine(%table), sharding={devices=[8,1]0,3,1,2,4,5,6,7}  # 7 sin
"""
MOVED = ("table", "P('model', None)", "moved for it, laid out as the partitioner chose; result P('data', None, None)",
         [("model", "operand", "table")])  # fmt: skip


def row(kind: str, size: int = 2, moves: tuple[str, str] | None = None) -> Any:
    source = SimpleNamespace(kind=moves[0], name=moves[1]) if moves else None
    return SimpleNamespace(kind=kind, group_size=size, moves=source)


HALF = frozenset({"model:(1)2"})


@pytest.mark.parametrize(
    ("op", "moved", "axes", "shape", "found"),
    [
        # a tile of the table, 64/4 · 16 elements, goes to another device; then pairs are gathered
        ("get", row("collective-permute"), M, "f32[16,16]", [MOVED]),
        ("get", row("collective-permute"), M, "f32[16,17]", []),
        ("get", row("collective-permute"), D, "f32[16,16]", []),
        ("get", row("collective-permute"), M, "s32[16,16]", []),
        ("get", row("collective-permute"), M, "", []),
        ("get", row("all-gather"), HALF, "f32[32,16]", [MOVED]),
        ("get", row("all-gather"), HALF, "f32[16,16]", []),
        ("get", row("all-gather", 4), HALF, "f32[64,16]", [MOVED]),
        ("get", row("all-gather"), M, "f32[32,16]", []),  # along whole axes it is no such step
        ("get", row("all-gather"), frozenset({"model:(1)2", "data"}), "f32[32,16]", []),
        # the argument that moves decides
        ("get", row("collective-permute", moves=("argument", "table")), M, "f32[16,16]", [MOVED]),
        ("get", row("collective-permute", moves=("argument", "other")), M, "f32[16,16]", []),
        ("get", row("collective-permute", moves=("value", "other")), M, "f32[16,16]", [MOVED]),
        # the result could have tiles of that size too; then only the argument tells
        ("add", row("collective-permute"), M, "f32[16,16]", []),
        ("add", row("collective-permute", moves=("argument", "table")), M, "f32[16,16]", [
            ("table", "P('model', None)", "moved for it, laid out as the partitioner chose; result replicated", [("model", "operand", "table")])]),
        ("two", row("collective-permute"), M, "f32[2,8]", [
            ("small", "P('model', None)", "moved for it, laid out as the partitioner chose; result replicated", [("model", "operand", "small")])]),
        ("odd", row("collective-permute", moves=("argument", "table")), M, "f32[16,16]", []),
    ],
)  # fmt: skip
def test_steps_that_the_partitioner_devises(
    op: str, moved: Any, axes: Any, shape: str, found: list[Any]
) -> None:
    table = Argument("table", (), "float32", spec=(("model",), ()), parameter=0)
    causes, module = asked(TABLE, arguments=(table,))
    assert said(causes.reshards(module.find(op), moved, axes, shape)) == found


@pytest.mark.parametrize(
    ("elements", "could"),
    [(1024, True), (512, True), (256, True), (128, True), (100, False), (64, False), (0, False)],
)
def test_sizes_that_a_sharding_could_give(elements: int, could: bool) -> None:
    causes, module = asked(TABLE)  # 64·16 over some of axes of 2 and 4
    assert causes._could_be(module.find("table"), elements) is could
    nowhere = Causes(ShardingOrigins(Target(), module, None))
    assert nowhere._could_be(module.find("table"), elements) is (elements == 1024)


def test_what_other_ops_sum_over() -> None:
    body = """
  %x = f32[4,64] parameter(0)
  %i = s32[4,1] parameter(1)
  %put = f32[4,64] scatter(%x, %i, %x), update_window_dims={1}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=%sum
  %some = f32[4,64] select(%x, %x, %x)
  %one = f32[4,4] dot(%x), lhs_contracting_dims={1}
"""
    module: Any = hs.read(text(body)).module
    found = {
        n: [(o.name, d) for o, d in summed_dimensions(module.find(n))]
        for n in ("put", "some", "one")
    }
    assert found == {"put": [("x", (0,))], "some": [], "one": []}


@pytest.mark.parametrize(
    ("dim", "tiles"),
    [((), 1), (("data",), 2), (("data", "model"), 8), (("model:(1)2",), 2), (("data", "model:(2)2"), 4), (("other",), 1)],
)  # fmt: skip
def test_tiles_of_axes_and_of_parts_of_axes(dim: tuple[str, ...], tiles: int) -> None:
    assert tile_count(dim, MESH) == tiles
    assert {axis_of(a) for a in dim} <= {"data", "model", "other"}


HALVED = """
  %x = f32[16,64] parameter(0), sharding=H_  # =x
  %t = f32[16,64] tanh(%x), sharding=H_  # 4 tanh
  ROOT %p = f32[16,64] copy(%t), sharding=R  # 5 sharding_constraint
"""
HALVED_LOCAL = """
  %x.1 = f32[8,64] parameter(0), sharding=H_  # =x
  %t.1 = f32[8,64] tanh(%x.1)  # 4 tanh
  %g = f32[16,64] all-gather(%t.1), channel_id=1, HALVES, dimensions={0}  # 5 sharding_constraint
  ROOT %p.1 = f32[16,64] copy(%g)  # 5 sharding_constraint
"""
CARD = """\
  requested by  copy f32[16,64] at m.py:5
  operand       result of tanh: P('model:(1)2', None)
  needed        replicated
  because of    operand's model from argument x
                result from the constraint at m.py:5"""


def test_an_array_cut_along_a_part_of_an_axis_has_tiles_of_that_size() -> None:
    cap = written(HALVED, HALVED_LOCAL, {"x": (("model:(1)2",), ())})
    assert [r.axes for r in cap.collectives] == ["model:(1)2"]
    assert cards(cap) == {"g": CARD}
    alone = hs.Capture(cap.module, replace(cap.target, after_partitioning=None))
    assert cards(alone) == {"g": CARD.replace("operand's model", "operand's model:(1)2")}


SAID = """\
[SPMD] Involuntary full rematerialization. The compiler cannot go from sharding {devices=[2,1,4]<=[2,2,2]T(1,0,2) \
last_tile_dim_replicate} to {replicated} efficiently for HLO operation %t = f32[16,64]{1,0} tanh(%x), \
metadata={op_name="jit(f)/tanh" source_file="m.py" source_line=4}."""


def test_a_warning_about_such_an_array_is_put_to_its_gather() -> None:
    given: Any = {"x": (("model:(1)2",), ())}
    cap = written(HALVED, HALVED_LOCAL, given, compiler_messages=(SAID,))
    (said,) = cap.why("g").messages
    assert (said.had, said.line) == ("P('model:(1)2', None)", "m.py:4")
    other = SAID.replace("T(1,0,2)", "")  # cut along data: no gather over model is its
    assert written(HALVED, HALVED_LOCAL, given, compiler_messages=(other,)).why("g").messages == ()
