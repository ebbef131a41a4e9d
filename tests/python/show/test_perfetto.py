"""Traces for Perfetto: read back by a reader of the format, against the timelines' own totals."""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import hloscope as hs
import pytest
from hloscope.show.cli import main

LOOP = """HloModule step, is_scheduled=true, num_partitions=2

add {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}

body {
  p = (s32[], f32[512,512]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  x = f32[512,512] get-tuple-element(p), index=1
  d = f32[512,512] dot(x, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  r = f32[512,512] all-reduce(d), replica_groups={{0,1}}, to_apply=add
  one = s32[] constant(1)
  next = s32[] add(i, one)
  ROOT t = (s32[], f32[512,512]) tuple(next, r)
}

condition {
  p = (s32[], f32[512,512]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  n = s32[] constant(7)
  ROOT l = pred[] compare(i, n), direction=LT
}

ENTRY main {
  x = f32[512,512] parameter(0)
  y = f32[512,512] negate(x)
  z = s32[] constant(0)
  t = (s32[], f32[512,512]) tuple(z, y)
  w = (s32[], f32[512,512]) while(t), condition=condition, body=body
  o = f32[512,512] get-tuple-element(w), index=1
  ROOT e = f32[512,512] exponential(o)
}
"""


class Trace:
    """Slices by (process, track), counters and names, as the Trace Event Format has them."""

    def __init__(self, path: Path) -> None:
        data = path.read_bytes()
        content = json.loads(gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data)
        self.slices: dict[tuple[str, str], list[Any]] = defaultdict(list)
        self.counters: list[tuple[float, int]] = []
        names: dict[Any, str] = {}
        for e in content["traceEvents"]:
            assert set(e) >= {"ph", "pid", "name", "ts"}
            if e["ph"] == "M" and e["name"] in ("process_name", "thread_name"):
                names[e["name"], e["pid"], e["tid"]] = e["args"]["name"]
        for e in content["traceEvents"]:
            assert e["ph"] in "XCM"
            assert e["ts"] >= 0
            if e["ph"] == "X":
                process = names["process_name", e["pid"], 0]
                self.slices[process, names["thread_name", e["pid"], e["tid"]]].append(e)
            elif e["ph"] == "C":
                self.counters.append((e["ts"], e["args"]["bytes"]))

    def own(self, track: tuple[str, str]) -> float:
        """Seconds of operations, without the loops around them; asserts that slices nest."""
        rows = sorted(self.slices[track], key=lambda e: (e["ts"], -e["dur"]))
        total, stack = 0.0, []
        for e in rows:
            begin, end = round(e["ts"] * 1e3), round((e["ts"] + e["dur"]) * 1e3)  # ns
            while stack and stack[-1] <= begin:
                stack.pop()
            assert not stack or end <= stack[-1], e
            stack.append(end)
            total += 0 if "turns" in e["args"] else e["dur"]
        return total / 1e6


@pytest.fixture
def cap() -> hs.Capture:
    return hs.read(LOOP, hardware="tpu-v5e")


def test_the_modelled_step_is_that_of_the_timeline(cap: hs.Capture, tmp_path: Path) -> None:
    trace = Trace(cap.to_perfetto(tmp_path / "step.json"))
    found = cap.cost().timeline
    assert found is not None
    tracks = {lane: rows for (process, lane), rows in trace.slices.items() if "modelled" in process}
    assert set(tracks) <= set(found.lanes)
    process = next(p for p, _ in trace.slices)
    assert found.total("compute") > 1e-5
    for lane in found.lanes:
        assert trace.own((process, lane)) == pytest.approx(found.total(lane), abs=1e-7), lane
    ends = [e["ts"] + e["dur"] for rows in tracks.values() for e in rows]
    assert max(ends) / 1e6 == pytest.approx(found.seconds, abs=1e-8)
    assert sum(e["name"] == "d" for e in tracks["compute"]) == 7  # the loop is unrolled
    assert sum(e["name"].startswith("r ") for rows in tracks.values() for e in rows) == 14


def test_memory_is_a_counter(cap: hs.Capture, tmp_path: Path) -> None:
    trace = Trace(cap.to_perfetto(tmp_path / "step.json.gz"))
    assert [held for _, held in trace.counters] == cap.memory.timeline.tolist()
    times = [at for at, _ in trace.counters]
    assert times == sorted(times)
    last = cap.cost().timeline
    assert last is not None
    assert times[-1] / 1e6 <= last.seconds


def test_a_loop_of_very_many_turns_is_drawn_once(tmp_path: Path) -> None:
    many = hs.read(LOOP.replace("constant(7)", "constant(1000000)"), hardware="tpu-v5e")
    trace = Trace(many.to_perfetto(tmp_path / "step.json"))
    rows = next(rows for (_, lane), rows in trace.slices.items() if lane == "compute")
    loop = [e for e in rows if e["args"].get("turns") == 1000000]
    assert loop[0]["args"]["drawn"] == 1
    assert len(rows) < 20


def test_without_chip_and_profile_it_says_so(tmp_path: Path, capsys: Any) -> None:
    file = tmp_path / "step.hlo"
    file.write_text(LOOP)
    with pytest.raises(ValueError, match="no chip is known"):
        hs.read(file).to_perfetto(tmp_path / "x.json")
    assert main(["perfetto", str(file), "-o", str(tmp_path / "x.json")]) == 2
    assert not (tmp_path / "x.json").exists()
    out = tmp_path / "x.json.gz"
    assert main(["perfetto", str(file), "--hardware", "tpu-v5e", "-o", str(out)]) in (0, None)
    assert Trace(out).slices
    assert capsys.readouterr().out.endswith(f"{out}\n")
