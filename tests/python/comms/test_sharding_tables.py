"""Shardings of whole dumps as tables: every role, what is told and what is not; bytes by device."""

from __future__ import annotations

import math

import hloscope as hs
import numpy as np
import pytest
from hloscope.analysis.comms.partitions import partitions
from hloscope.analysis.comms.wire import add_traffic, wire_bytes
from hloscope.hlo import Argument, Mesh, Target

ANNOTATED = """HloModule jit_f, num_partitions=4

ENTRY %main (w: f32[8,6], b: f32[6], s: (f32[4], s32[2])) -> (f32[8,6], f32[6]) {
  %w = f32[8,6]{1,0} parameter(0), sharding={devices=[2,2]<=[4]}
  %b = f32[6]{0} parameter(1), sharding={replicated}
  %s = (f32[4]{0}, s32[2]{0}) parameter(2), sharding={{devices=[4]<=[4]}, {maximal device=2}}
  %rows = f32[8,6]{1,0} copy(%w), sharding={devices=[4,1]<=[4]}
  %same = f32[8,6]{1,0} copy(%rows), sharding={devices=[4,1]<=[4]}
  %sum = f32[8,6]{1,0} add(%same, %w), sharding={devices=[2,2]<=[4]}
  %turned = f32[6,8]{1,0} transpose(%sum), dimensions={1,0}, sharding={devices=[2,2]<=[4]}
  %plain = f32[6,8]{1,0} negate(%turned)
  %cut = f32[6]{0} custom-call(%b), custom_call_target="Sharding", sharding={devices=[2,2]<=[4] \
last_tile_dim_replicate}
  ROOT %out = (f32[8,6]{1,0}, f32[6]{0}) tuple(%sum, %cut), \
sharding={{devices=[2,2]<=[4]}, {replicated}}
}
"""
BOTH, ROWS = "P('axis_0', 'axis_1')", "P(('axis_0', 'axis_1'), None)"


def rows(found: hs.Shardings) -> list[tuple[str, str, str, float]]:
    return [(r.role, r.name, r.text, r.bytes_per_device) for r in found]


def test_every_array_of_a_dump_with_annotations() -> None:
    found = hs.read(ANNOTATED).shardings
    assert rows(found) == [
        ("parameter", "w", BOTH, 48.0),
        ("parameter", "b", "replicated", 24.0),
        ("parameter", "s[0]", "P(('axis_0', 'axis_1'),)", 4.0),
        ("parameter", "s[1]", "{maximal device=2}", 8.0),
        ("output", "out[0]", BOTH, 48.0),
        ("output", "out[1]", "replicated", 24.0),
        ("value", "rows", ROWS, 48.0),
        ("value", "same", ROWS, 48.0),
        ("value", "sum", BOTH, 48.0),
        ("value", "turned", BOTH, 48.0),
        ("value", "cut", "P('axis_0',)", 12.0),
    ]
    assert found.device_bytes("parameter").tolist() == [76.0, 76.0, 84.0, 76.0]
    assert found.device_bytes("output").tolist() == [72.0] * 4
    # from the two by two grid to rows, and from everywhere to halves; not where nothing moves
    assert [(t.source.name, t.target.name) for t in found.transitions] == [
        ("w", "rows"),
        ("b", "cut"),
    ]
    assert [(t.before, t.after) for t in found.transitions] == [
        (BOTH, ROWS),
        ("replicated", "P('axis_0',)"),
    ]
    assert found.counts() == {
        BOTH: 1, "P(('axis_0', 'axis_1'),)": 1, "replicated": 1, "{maximal device=2}": 1,
    }  # fmt: skip
    assert "2 × P('axis_0', 'axis_1')  96 B  sum, …" in str(found)
    least, most = sorted({int(b) for b in found.device_bytes()})
    assert most - least == 8  # what one device holds alone
    assert f"4 parameters, {least} B – {most} B per device" in str(found)
    assert (len(found.parameters), len(found.outputs), len(found)) == (4, 2, 11)


TWO = """HloModule jit_f, is_scheduled=true, num_partitions=4

ENTRY %main_spmd (w: f32[2,6], n: s32[]) -> (f32[2,6], s32[]) {
  %w = f32[2,6]{1,0} parameter(0)MARK
  %n = s32[] parameter(1)
  %new = f32[2,6]{1,0} negate(%w)
  ROOT %out = (f32[2,6]{1,0}, s32[]) tuple(%new, %n)OUT
}
"""
CUT, WHOLE = ", sharding={devices=[4,1]<=[4]}", ", sharding={replicated}"
ON_ONE = ", sharding={maximal device=1}"
BOTH_OUT = ", sharding={{devices=[4,1]<=[4]}, {replicated}}"


@pytest.mark.parametrize(
    ("mark", "out", "parameter", "output"),
    [
        ("", "", [52.0] * 4, [52.0] * 4),  # local shapes tell
        (CUT, "", [52.0] * 4, [52.0] * 4),
        (CUT, BOTH_OUT, [52.0] * 4, [52.0] * 4),
        (WHOLE, WHOLE, [52.0] * 4, [52.0] * 4),
        (ON_ONE, "", [4.0, 52.0, 4.0, 4.0], [52.0] * 4),
    ],
)
def test_what_a_partitioned_dump_does_not_say_its_shapes_do(mark, out, parameter, output) -> None:
    found = hs.read(TWO.replace("MARK", mark).replace("OUT", out)).shardings
    assert found.is_partitioned
    assert found.device_bytes("parameter").tolist() == parameter
    assert found.device_bytes("output").tolist() == output
    assert found.device_bytes("value").tolist() == [0.0] * 4


MESH = Mesh(("x",), (4,), (0, 1, 2, 3))


def test_the_target_knows_what_the_text_does_not() -> None:
    module = hs.read(TWO.replace("MARK", "").replace("OUT", "")).module
    w = Argument("params['w']", (8, 6), "float32", "{devices=[4,1]<=[4]}", parameter=0)
    n = Argument("step", (), "int32", None, parameter=1)
    results = (Argument("['w']", (8, 6), "float32", "{devices=[4,1]<=[4]}"), Argument("", (), "i"))
    found = hs.Capture(module, Target(mesh=MESH, arguments=(w, n), results=results)).shardings
    assert rows(found) == [
        ("parameter", "params['w']", "P('x', None)", 48.0),
        ("output", "['w']", "P('x', None)", 48.0),
        ("output", "result", "replicated", 4.0),
    ]
    assert [r.global_bytes for r in found] == [192, 192, 4]
    assert found.device_bytes("parameter").tolist() == [52.0] * 4


@pytest.mark.parametrize(
    ("head", "mark", "count"),
    [
        ("num_partitions=4", CUT, 4),
        ("num_partitions=2", CUT, 2),  # the head counts
        ("is_scheduled=true", CUT, 4),  # a dump that old has no number
        ("is_scheduled=true", ", sharding={devices=[2,3]0,1,2,3,4,5}", 6),
        ("is_scheduled=true", "", 1),
    ],
)
def test_how_many_partitions(head: str, mark: str, count: int) -> None:
    text = TWO.replace("is_scheduled=true, num_partitions=4", head)
    assert partitions(hs.read(text.replace("MARK", mark).replace("OUT", "")).module) == count


EXCHANGED = """HloModule m, num_partitions=4
ENTRY %e (a: f32[12]) -> f32[12] {
  %a = f32[12]{0} parameter(0)
  ROOT %c = f32[SIZE]{0} KIND(%a), channel_id=1, GROUPS
}
"""
PAIRS = "replica_groups={{0,2},{1,3}}, use_global_device_ids=true"
ALL = "replica_groups={{0,1,2,3}}, use_global_device_ids=true"


def ring(*order: int) -> list[tuple[int, int]]:
    return list(zip(order, (*order[1:], order[0]), strict=True))


@pytest.mark.parametrize(
    ("kind", "size", "groups", "links", "each"),
    [
        # a ring of n sends n − 1 n-ths of the whole, an all-reduce twice
        ("all-gather", 48, ALL, ring(0, 1, 2, 3), 48 * 4 * 3 / 4),
        ("all-gather", 24, PAIRS, [*ring(0, 2), *ring(1, 3)], 24 * 4 / 2),
        ("all-reduce", 12, ALL, ring(0, 1, 2, 3), 2 * 12 * 4 * 3 / 4),
        ("all-reduce", 12, PAIRS, [*ring(0, 2), *ring(1, 3)], 2 * 12 * 4 / 2),
        ("reduce-scatter", 3, ALL, ring(0, 1, 2, 3), 12 * 4 * 3 / 4),
        # everyone a part to everyone else
        ("all-to-all", 12, ALL,
         [(a, b) for a in range(4) for b in range(4) if a != b], 12 * 4 / 4),
        ("collective-permute", 12, "source_target_pairs={{0,1},{1,3},{2,2}}",
         [(0, 1), (1, 3)], 12 * 4),
    ],
)  # fmt: skip
def test_traffic_is_what_each_link_carries(kind, size, groups, links, each) -> None:
    more = ", dimensions={0}" if kind != "all-reduce" and "permute" not in kind else ""
    text = EXCHANGED.replace("SIZE", str(size)).replace("KIND", kind)
    found = hs.read(text.replace("GROUPS", groups + more)).collectives
    wanted = np.zeros((4, 4))
    for a, b in links:
        wanted[a, b] += each
    assert found.traffic().tolist() == wanted.tolist()
    sent = wanted.sum(axis=1).max()
    assert found[0].wire_bytes == sent
    assert found.traffic([]).tolist() == np.zeros((4, 4)).tolist()


def test_nothing_is_sent_where_nothing_is_known() -> None:
    out = np.zeros((2, 2))
    add_traffic(out, "all-reduce", 100.0, None)
    assert not out.any()
    assert wire_bytes("all-reduce", 7, 2) == 7  # twice one half
    assert wire_bytes("all-reduce", 7, 4) == 11  # 10.5
    assert wire_bytes("all-gather", 7, 4) == 5  # 5.25
    assert wire_bytes("all-gather", 7, 1) == 0
    assert wire_bytes("no-such-thing", 7, 4) is None
    assert math.isnan(hs.read("HloModule m\n\nENTRY %e (p: f32[4]) -> f32[4] {\n  ROOT %p = "
                              "f32[4]{0} parameter(0)\n}\n".replace("HloModule m", "HloModule m, "
                              "num_partitions=2")).shardings
                      .device_bytes("output")[0])  # fmt: skip
