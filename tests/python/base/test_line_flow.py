"""Lines follow values: past what runs beside a transfer, into scans, array by array."""

# ruff: noqa: E501

from __future__ import annotations

from test_lines import BY, ROW, found, said

GATHER = (
    "channel_id=3, replica_groups={{0,1,2,3,4,5,6,7}}, dimensions={0}, use_global_device_ids=true"
)
BESIDE = f"""
%start (p.1: f32[8,8]) -> (f32[8,8], f32[64,8], u32[]) {{
  %p.1 = f32[8,8] parameter(0)
  %gather.1 = f32[64,8] all-gather(%p.1), {GATHER}
  ROOT %started = (f32[8,8], f32[64,8], u32[]) custom-call(%gather.1), custom_call_target="AsyncCollectiveStart"
}}

%async_collective_fusion (p.2: f32[8,8], p.3: f32[64,8], p.4: u32[], p.5: f32[8,8]) -> (f32[8,8], f32[8,8], f32[64,8], f32[64,8], u32[]) {{
  %p.2 = f32[8,8] parameter(0)
  %p.3 = f32[64,8] parameter(1)
  %p.4 = u32[] parameter(2)
  %p.5 = f32[8,8] parameter(3)
  %gather.2 = f32[64,8] all-gather(%p.2), {GATHER}
  %beside = f32[8,8] exponential(%p.5), {ROW % ("exp", 1)}
  ROOT %all = (f32[8,8], f32[8,8], f32[64,8], f32[64,8], u32[]) tuple(%beside, %p.2, %p.3, %gather.2, %p.4)
}}

%done (p.6: f32[8,8], p.7: f32[64,8], p.8: u32[]) -> f32[64,8] {{
  %p.6 = f32[8,8] parameter(0)
  %p.7 = f32[64,8] parameter(1)
  %p.8 = u32[] parameter(2)
  %gather.3 = f32[64,8] all-gather(%p.6), {GATHER}
  ROOT %ended = f32[64,8] custom-call(%p.6, %p.7, %gather.3, %p.8), custom_call_target="AsyncCollectiveDone"
}}

ENTRY %main (w: f32[8,8], x: f32[8,8], y: f32[8,64]) -> (f32[8,8], f32[8,8]) {{
  %w = f32[8,8] parameter(0)
  %x = f32[8,8] parameter(1)
  %y = f32[8,64] parameter(2)
  %begin = (f32[8,8], f32[64,8], u32[]) fusion(%w), kind=kCustom, calls=%start
  %g.0 = f32[8,8] get-tuple-element(%begin), index=0
  %g.1 = f32[64,8] get-tuple-element(%begin), index=1
  %g.2 = u32[] get-tuple-element(%begin), index=2
  %meanwhile = (f32[8,8], f32[8,8], f32[64,8], f32[64,8], u32[]) fusion(%g.0, %g.1, %g.2, %x), kind=kLoop, calls=%async_collective_fusion, {ROW % ("exp", 1)}
  %h.0 = f32[8,8] get-tuple-element(%meanwhile), index=0
  %h.1 = f32[8,8] get-tuple-element(%meanwhile), index=1
  %h.2 = f32[64,8] get-tuple-element(%meanwhile), index=2
  %h.4 = u32[] get-tuple-element(%meanwhile), index=4
  %end = f32[64,8] fusion(%h.1, %h.2, %h.4), kind=kCustom, calls=%done
  %dot.1 = f32[8,8] dot(%y, %end), {BY}, {ROW % ("dot_general", 2)}
  ROOT %out = (f32[8,8], f32[8,8]) tuple(%h.0, %dot.1)
}}
"""


def test_a_gather_is_for_what_takes_it_not_for_what_runs_beside_it(tmp_path):
    capture, known = found(tmp_path, BESIDE)
    for name in ("gather.1", "gather.3", "begin", "end"):
        assert said(known, capture, name) == (8, f"{NOUN[name]} `dot.1`"), name
    (row,) = capture.collectives
    assert row.line.endswith(":8")


NOUN = {
    "begin": "made for",
    "end": "made for",
    "gather.1": "gathering for",
    "gather.3": "gathering for",
}

STACKED = f"""
%body (t: (s32[], f32[8,8], f32[3,8,8])) -> (s32[], f32[8,8], f32[3,8,8]) {{
  %t = (s32[], f32[8,8], f32[3,8,8]) parameter(0)
  %n = s32[] get-tuple-element(%t), index=0
  %x = f32[8,8] get-tuple-element(%t), index=1
  %ws = f32[3,8,8] get-tuple-element(%t), index=2
  %gathered = f32[3,8,8] all-gather(%ws), replica_groups={{{{0}}}}, dimensions={{0}}
  %zero = s32[] constant(0), {ROW % ("while/body/add", 1)}
  %w = f32[1,8,8] dynamic-slice(%gathered, %n, %zero, %zero), dynamic_slice_sizes={{1,8,8}}, {ROW % ("while/body/dynamic_slice", 1)}
  %flat = f32[8,8] bitcast(%w), {ROW % ("while/body/squeeze", 1)}
  %d = f32[8,8] dot(%x, %flat), {BY}, {ROW % ("while/body/closed_call/dot_general", 2)}
  ROOT %r = (s32[], f32[8,8], f32[3,8,8]) tuple(%n, %d, %ws)
}}

%cond (t.1: (s32[], f32[8,8], f32[3,8,8])) -> pred[] {{
  %t.1 = (s32[], f32[8,8], f32[3,8,8]) parameter(0)
  ROOT %go = pred[] constant(true)
}}

%sum (l: f32[], r.2: f32[]) -> f32[] {{
  %l = f32[] parameter(0)
  %r.2 = f32[] parameter(1)
  ROOT %plus = f32[] add(%l, %r.2)
}}

ENTRY %main (i: s32[], a: f32[8,8], k: f32[3,8,8]) -> (f32[8,8], f32[8,8]) {{
  %i = s32[] parameter(0)
  %a = f32[8,8] parameter(1)
  %k = f32[3,8,8] parameter(2)
  %tuple.1 = (s32[], f32[8,8], f32[3,8,8]) tuple(%i, %a, %k)
  %while.1 = (s32[], f32[8,8], f32[3,8,8]) while(%tuple.1), condition=%cond, body=%body, {ROW % ("while", 1)}
  %end = f32[8,8] get-tuple-element(%while.1), index=1
  %one = f32[8,8] exponential(%end), {ROW % ("exp", 1)}
  %two = f32[8,8] sine(%end), {ROW % ("sin", 2)}
  %both = (f32[8,8], f32[8,8]) all-reduce(%one, %two), replica_groups={{{{0}}}}, to_apply=%sum
  %first = f32[8,8] get-tuple-element(%both), index=0
  %second = f32[8,8] get-tuple-element(%both), index=1
  %again.1 = f32[8,8] all-reduce(%first), replica_groups={{{{0}}}}, to_apply=%sum
  %again.2 = f32[8,8] all-reduce(%second), replica_groups={{{{0}}}}, to_apply=%sum
  ROOT %out = (f32[8,8], f32[8,8]) tuple(%again.1, %again.2)
}}
"""


def test_what_a_scan_slices_is_for_what_takes_the_slice(tmp_path):
    capture, known = found(tmp_path, STACKED)
    assert said(known, capture, "gathered") == (8, "gathering for `d`")
    assert said(known, capture, "w") == (3, "")  # its own


def test_arrays_of_a_combined_sum_have_each_its_line(tmp_path):
    capture, known = found(tmp_path, STACKED)
    assert said(known, capture, "again.1") == (3, "made from `one`")
    assert said(known, capture, "again.2") == (8, "made from `two`")
