"""Figures over branches of conditionals: one runs, so totals are ranges, the same everywhere."""

from __future__ import annotations

import json

import hloscope as hs
import pytest
from hloscope.analysis.base.loops.branches import Branch, heaviest, span
from hloscope.show.cli import main

SWITCH = """HloModule m, num_partitions=4

%sum (l: f32[], r: f32[]) -> f32[] {
  %l = f32[] parameter(0)
  %r = f32[] parameter(1)
  ROOT %plus = f32[] add(%l, %r)
}

%small (s: f32[64,64]) -> f32[64,64] {
  %s = f32[64,64] parameter(0)
  ROOT %ar.small = f32[64,64] all-reduce(%s), channel_id=1, replica_groups={{0,1},{2,3}}, use_global_device_ids=true, to_apply=%sum
}

%large (b: f32[64,64]) -> f32[64,64] {
  %b = f32[64,64] parameter(0)
  ROOT %ar.large = f32[64,64] all-reduce(%b), channel_id=2, replica_groups={{0,1,2,3}}, use_global_device_ids=true, to_apply=%sum
}

%work (w: f32[64,64]) -> f32[64,64] {
  %w = f32[64,64] parameter(0)
  ROOT %d = f32[64,64] dot(%w, %w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}

%body (t: (s32[], s32[], f32[64,64])) -> (s32[], s32[], f32[64,64]) {
  %t = (s32[], s32[], f32[64,64]) parameter(0)
  %i = s32[] get-tuple-element(%t), index=0
  %k = s32[] get-tuple-element(%t), index=1
  %x = f32[64,64] get-tuple-element(%t), index=2
  %one = s32[] constant(1)
  %next = s32[] add(%i, %one)
  %c = f32[64,64] conditional(%k, %x, %x, %x), branch_computations={%small, %large, %work}
  ROOT %o = (s32[], s32[], f32[64,64]) tuple(%next, %k, %c)
}

%cond (u: (s32[], s32[], f32[64,64])) -> pred[] {
  %u = (s32[], s32[], f32[64,64]) parameter(0)
  %j = s32[] get-tuple-element(%u), index=0
  %n = s32[] constant(5)
  ROOT %lt = pred[] compare(%j, %n), direction=LT
}

ENTRY %main (which: s32[], v: f32[64,64]) -> f32[64,64] {
  %which = s32[] parameter(0)
  %v = f32[64,64] parameter(1)
  %zero = s32[] constant(0)
  %init = (s32[], s32[], f32[64,64]) tuple(%zero, %which, %v)
  %w.1 = (s32[], s32[], f32[64,64]) while(%init), condition=%cond, body=%body
  %out = f32[64,64] get-tuple-element(%w.1), index=2
  ROOT %last = f32[64,64] all-reduce(%out), channel_id=3, replica_groups={{0,1,2,3}}, use_global_device_ids=true, to_apply=%sum
}
"""  # noqa: E501
ARRAY = 64 * 64 * 4
LARGE, SMALL = 2 * 3 * ARRAY // 4, ARRAY  # rings of 4 and of 2
MOST, LEAST = 5 * LARGE + LARGE, LARGE
FLOPS = 2 * 64**3


@pytest.fixture
def switch(tmp_path):
    path = tmp_path / "switch.hlo"
    path.write_text(SWITCH)
    return path


def test_of_branches_one_runs(switch):
    cap = hs.read(switch)
    found = cap.collectives
    assert (found.total.least_wire_bytes, found.total.wire_bytes) == (LEAST, MOST)
    texts = {r.name: r.executions_text for r in found}
    assert texts == {"ar.small": "0–5", "ar.large": "0–5", "last": "1"}
    assert not found.total.is_lower_bound
    assert "0 – 5" in repr(found)
    assert f"{LEAST // 1024} KiB – {MOST // 1024} KiB" in repr(found)


def test_every_place_has_the_same_wire(switch, capsys):
    cap = hs.read(switch)
    source = cap.source
    assert sum(x.own.wire_bytes for x in source.lines) + source.unattributed.wire_bytes == MOST
    assert cap.collectives.wire_bytes == MOST == cap.summary["wire_bytes"]
    assert cap.summary["wire_bytes_least"] == LEAST
    assert cap.collectives.traffic().sum(axis=1).max() == MOST
    assert hs.diff(cap, cap).totals[4].a == MOST
    assert main(["summary", "--json", str(switch)]) == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["wire_bytes"], said["wire_bytes_least"]) == (MOST, LEAST)


def test_a_budget_over_a_range_takes_the_most_and_says_so(switch):
    cap = hs.read(switch)
    assert hs.check(cap, max_wire_bytes=MOST)
    report = hs.check(cap, max_wire_bytes=MOST - 1)
    assert not report
    assert "at most" in str(report)
    assert "depending on which branches run" in str(report)


def test_flops_and_time_are_ranges(switch):
    cost = hs.read(switch).cost("tpu-v5e")
    least, most = cost.ranges["flops"]
    assert least <= cost.total_flops <= most
    # one addition for each element of an all-reduce; the loop's own arithmetic in both
    assert most - least == 5 * (FLOPS - 64 * 64)
    low, high = cost.ranges["seconds"]
    assert low < high
    assert cost.roofline.total_seconds == high, "the branch that takes most time is the step's"
    assert "depending on which branches" in repr(cost)


def test_equal_branches_are_no_range():
    rows = [((Branch(7, 0, 2),), 10.0), ((Branch(7, 1, 2),), 10.0), ((), 1.0)]
    assert span(rows) == (11.0, 11.0)
    nested = [((Branch(7, 0, 2), Branch(9, 1, 2)), 4.0), ((Branch(7, 1, 2),), 3.0)]
    assert span(nested) == (0.0, 4.0)
    assert heaviest(nested) == {0}
