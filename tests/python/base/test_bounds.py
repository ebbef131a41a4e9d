"""A figure is a lower bound only where every loop in it runs at least once."""

from __future__ import annotations

import json

import hloscope as hs
import pytest
from hloscope.show.cli import main

PROGRAM = """HloModule m, is_scheduled=true, num_partitions=4

%add (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %s = f32[] add(%a, %b)
}

%body (t: (f32[64], f32[], pred[], s32[])) -> (f32[64], f32[], pred[], s32[]) {
  %t = (f32[64]{0}, f32[], pred[], s32[]) parameter(0)
  %x = f32[64]{0} get-tuple-element(%t), index=0
  %r = f32[64]{0} all-reduce(%x), channel_id=1, replica_groups={{0,1,2,3}}, use_global_device_ids=true, to_apply=%add
  %z = f32[] constant(0)
  %e = f32[] reduce(%r, %z), dimensions={0}, to_apply=%add
  %go.1 = pred[] compare(%e, %z), direction=GT
  %n = s32[] get-tuple-element(%t), index=3
  ROOT %out = (f32[64]{0}, f32[], pred[], s32[]) tuple(%r, %e, %go.1, %n)
}

%cond (c: (f32[64], f32[], pred[], s32[])) -> pred[] {
  %c = (f32[64]{0}, f32[], pred[], s32[]) parameter(0)
  %error = f32[] get-tuple-element(%c), index=1
  %go = pred[] get-tuple-element(%c), index=2
  %count = s32[] get-tuple-element(%c), index=3
  %tolerance = f32[] constant(0.001)
  %most = s32[] constant(10)
  TEST
}

ENTRY %main (p: f32[64], q: f32[], w: s32[]) -> f32[64] {
  %p = f32[64]{0} parameter(0)
  %q = f32[] parameter(1)
  %w = s32[] parameter(2)
  %inf = f32[] constant(inf)
  %true = pred[] constant(true)
  %false = pred[] constant(false)
  %zero = s32[] constant(0)
  %t0 = (f32[64]{0}, f32[], pred[], s32[]) tuple(%p, BEGIN)
  %l = (f32[64]{0}, f32[], pred[], s32[]) while(%t0), condition=%cond, body=%body
  ROOT %end = f32[64]{0} get-tuple-element(%l), index=0
}
"""  # noqa: E501
ERROR = "ROOT %more = pred[] compare(%error, %tolerance), direction=GT"
FLAG = "ROOT %more = pred[] copy(%go)"
BOTH = (
    "%a1 = pred[] compare(%error, %tolerance), direction=GT\n"
    "  %a2 = pred[] compare(%count, %most), direction=LT\n"
    "  ROOT %more = pred[] and(%a1, %a2)"
)
NOT_DONE = "ROOT %more = pred[] not(%go)"


def program(test: str, begin: str) -> hs.Capture:
    text = PROGRAM.replace("TEST", test).replace("BEGIN", begin)
    return hs.read(text, hardware="tpu-v5e")


@pytest.mark.parametrize(
    ("test", "begin"),
    [
        (ERROR, "%inf, %true, %zero"),
        (FLAG, "%q, %true, %w"),
        (NOT_DONE, "%q, %false, %w"),
        (BOTH, "%inf, %true, %zero"),
    ],
)
def test_a_loop_that_runs_at_least_once_gives_a_lower_bound(test: str, begin: str) -> None:
    cap = program(test, begin)
    (total,) = cap.collectives.totals()
    assert (total.is_lower_bound, total.is_one_trip) == (True, False)
    assert cap.cost().may_not_run == ()
    assert "≥ 384 B" in str(cap.collectives)
    said = str(cap)
    assert "wire          ≥ 384 B per device" in said
    assert "modelled      ≥ " in said
    assert said.count("≥") == 4  # FLOPs, bytes accessed, seconds, wire bytes
    assert cap.summary["collectives"][0]["lower_bound"]
    assert "one_trip" not in cap.summary["collectives"][0]
    assert str(cap.findings.headline).startswith("step ≥ ")


@pytest.mark.parametrize(
    ("test", "begin"),
    [
        (ERROR, "%q, %true, %zero"),  # the caller gives what is tested
        (FLAG, "%inf, %false, %zero"),
        (NOT_DONE, "%inf, %true, %zero"),
        (BOTH, "%inf, %true, %w"),
        (BOTH, "%q, %true, %zero"),
    ],
)
def test_of_a_loop_that_may_not_run_nothing_is_a_bound(
    test: str, begin: str, tmp_path: object, capsys: pytest.CaptureFixture[str]
) -> None:
    cap = program(test, begin)
    (total,) = cap.collectives.totals()
    assert (total.is_lower_bound, total.is_one_trip) == (False, True)
    assert cap.cost().may_not_run == cap.cost().unknown_trip_counts == ("l",)
    everything = "\n".join(
        map(str, (cap, cap.collectives, cap.cost(), cap.findings, cap.collectives.rows[0]))
    )
    assert "≥" not in everything
    assert "at least" not in everything
    assert "384 B (1 trip)" in str(cap.collectives)
    assert "it may run more often, or not at all" in str(cap.collectives)
    assert "wire          384 B (1 trip) per device" in str(cap)
    assert str(cap.findings.headline).split(" · ")[0].count("(1 trip)") == 1
    assert "MFU" not in str(cap.findings.headline)
    assert "l may run 0 times" in str(cap.cost())
    assert cap.summary["trip_counts_may_be_zero"] == ["l"]
    row = cap.summary["collectives"][0]
    assert (row.get("lower_bound"), row["one_trip"]) == (None, True)


def test_with_its_trip_count_given_it_is_exact() -> None:
    cap = program(ERROR, "%q, %true, %zero")
    found = cap.cost("tpu-v5e", trips={"l": 7})
    assert found.may_not_run == found.unknown_trip_counts == ()
    assert found.wire.sum() == 7 * 384
    assert "1 trip" not in str(found)


def test_the_programs_of_a_file_mark_it_too(tmp_path, capsys) -> None:
    path = tmp_path / "m.hlo"
    path.write_text(PROGRAM.replace("TEST", ERROR).replace("BEGIN", "%q, %true, %zero"))
    assert main(["summary", str(path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["trip_counts_may_be_zero"] == ["l"]
    (row,) = hs.read_programs(path)
    assert (row.is_lower_bound, row.is_one_trip) == (False, True)
    assert "(1 trip)" in str(hs.read_programs(path))
    assert "≥" not in str(hs.read_programs(path))
