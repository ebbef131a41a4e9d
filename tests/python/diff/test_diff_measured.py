"""Two programs with measured time, compared: traces made by hand, so that every time is known."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import hloscope as hs
import pytest
from hloscope.show.cli import main
from xplane_builder import TraceBuilder

TEXT = """HloModule jit_f, is_scheduled=true

ENTRY e {
  p = f32[64]{0} parameter(0)
  a = f32[64]{0} tanh(p), metadata={op_name="jit(f)/encoder/tanh" source_file="f.py" source_line=3}
  b = f32[64]{0} sine(a), metadata={op_name="jit(f)/decoder/sin" source_file="f.py" source_line=4}
  ROOT c = f32[64] LAST(b), metadata={op_name="jit(f)/decoder/c" source_file="f.py" source_line=5}
}
"""
SLOWER_PS = 5_000_000


def traced(slower_ps: int = 0, last: str = "cosine") -> tuple[hs.Capture, bytes]:
    """A program, and a trace in which its last operation takes so much longer."""
    cap = hs.read(TEXT.replace("LAST", last))
    made = TraceBuilder()
    made.tpu(cap.module, 7, modern=False)
    for line in made.plane("/device:TPU:0").plane.lines:
        line.events[-1].duration_ps += slower_ps
    return cap, made.serialized()


def measured(slower_ps: int = 0, last: str = "cosine") -> hs.Capture:
    cap, trace = traced(slower_ps, last)
    cap.add_profile(trace)
    return cap


def test_what_became_slower_is_first_in_every_table() -> None:
    found = hs.diff(measured(), measured(SLOWER_PS)).measured
    assert found is not None
    for rows, name in (
        (found.rows, "c"), (found.lines, "f.py:5"), (found.scopes, "decoder"),
        (found.opcodes, "cosine"),
    ):  # fmt: skip
        assert rows[0].name == name
        assert rows[0].change == pytest.approx(SLOWER_PS * 1e-12)
        assert all(abs(row.change) < 1e-15 for row in rows[1:])
    faster = hs.diff(measured(SLOWER_PS), measured()).measured
    assert faster is not None
    assert faster[-1].name == "c"


def test_every_table_adds_up_to_the_traces() -> None:
    a, b = measured(), measured(SLOWER_PS, "negate")
    found = hs.diff(a, b).measured
    assert found is not None
    assert a.measured is not None
    assert b.measured is not None
    assert found.total == (a.measured.total_seconds, b.measured.total_seconds)
    for rows in (found.rows, found.lines, found.scopes, found.opcodes):
        assert sum(row.a_seconds or 0 for row in rows) == pytest.approx(found.total[0])
        assert sum(row.b_seconds or 0 for row in rows) == pytest.approx(found.total[1])
    kinds = {row.name: (row.a_seconds, row.b_seconds) for row in found.opcodes}
    assert kinds["cosine"][1] is None
    assert kinds["negate"][0] is None


def test_the_text_and_the_json_have_it_only_where_both_are_measured() -> None:
    both = hs.diff(measured(), measured(SLOWER_PS))
    assert "measured by source line" in str(both)
    assert both.to_dict()["measured"]["total"] == list(both.measured.total)  # type: ignore[union-attr]
    assert list(both.measured.to_pandas().columns) == ["name", "a_seconds", "b_seconds", "change"]  # type: ignore[union-attr]
    one = hs.diff(measured(), traced()[0])
    assert one.measured is None
    assert "measured" not in str(one) + str(one.to_dict())


def test_the_command_takes_a_trace_of_each(tmp_path: Path, capsys: Any) -> None:
    files = []
    for name, slower in (("a", 0), ("b", SLOWER_PS)):
        cap, trace = traced(slower)
        (tmp_path / f"{name}.hlo").write_text(cap.text)
        (tmp_path / f"{name}.xplane.pb").write_bytes(trace)
        files.append(str(tmp_path / f"{name}.hlo"))
    traces = [f"--profile={tmp_path / name}.xplane.pb" for name in ("a", "b")]
    assert main(["diff", *files, *traces, "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["measured"]["rows"]
    assert rows[0]["change"] == pytest.approx(SLOWER_PS * 1e-12)
    assert main(["diff", *files, traces[0]]) == 2
    assert "--profile is given twice: a trace of A, then one of B" in capsys.readouterr().err
