"""Places that differ between two programs: ``diff_places.py``."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import hloscope as hs
import pytest
from hloscope.analysis.diff import places as diff_places
from hloscope.analysis.diff.differences import Place
from hloscope.analysis.diff.places import _differs, _lines


@pytest.mark.parametrize(
    ("seconds", "wire", "live", "expected"),
    [
        ((1.0, 1.0), (0.0, 0.0), (0.0, 0.0), False),
        ((1.0, 2.0), (0.0, 0.0), (0.0, 0.0), True),
        ((1.0, 1.0 + 1e-9), (0.0, 0.0), None, False),  # the same as it is shown
        ((None, 1.0), (0.0, 0.0), None, False),
        ((1.0, None), (0.0, 0.0), None, False),
        ((1.0, 1.0), (0.0, 8.0), None, True),
        ((None, None), (8.0, 8.0), (1.0, 1.0), False),
        ((None, None), (8.0, 8.0), (1.0, 2.0), True),
    ],
)
def test_what_differs(seconds: Any, wire: Any, live: Any, expected: bool) -> None:
    assert _differs(Place("f", seconds, wire, live)) is expected


def row(file: str, line: int, text: str | None, *figures: float) -> Any:
    names = ("seconds", "wire_bytes", "live_bytes")
    own = SimpleNamespace(**dict(zip(names, figures, strict=True)))
    return SimpleNamespace(file=file, line=line, function="f", text=text, own=own, instructions=())


def test_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [
        row("/home/me/a.py", 4, "  x + y", 1, 2, 3),
        row("/home/me/a.py", 9, "x + y ", 10, 20, 30),  # the same text, so the same line
        row("/home/me/a.py", 5, None, 0, 0, 7),
        row("/home/me/a.py", 6, None, 0, 7, 0),
        row("/home/me/a.py", 7, None, 7, 0, 0),
        row("/home/me/a.py", 8, None, 0, 0, 0),  # costs nothing
        row("In [7]", 1, "z", 0, 0, 5),
    ]
    monkeypatch.setattr(diff_places, "source", lambda *_: SimpleNamespace(lines=rows))
    program: Any = SimpleNamespace(module=None, target=None)
    found = _lines(program)
    assert found.sums == {
        "a.py\nf\nx + y": [11, 22, 33],
        "a.py\nf\n5": [0, 0, 7],
        "a.py\nf\n6": [0, 7, 0],
        "a.py\nf\n7": [7, 0, 0],
        "notebook cell\nf\nz": [0, 0, 5],
    }
    assert found.names["a.py\nf\nx + y"].endswith("a.py:9 x + y")
    assert found.names["a.py\nf\n5"].endswith("a.py:5")


def program(rows: int, file: str, scope: str, first: int) -> hs.Capture:
    """Two matmuls on lines ``first`` and ``first`` + 1 of a file."""

    def where(line: int, name: str) -> str:
        return f'metadata={{op_name="{scope}/{name}" source_file="{file}" source_line={line}}}'

    text = f"""HloModule m, is_scheduled=true

ENTRY %main (x: f32[{rows},256], w: f32[256,256]) -> f32[{rows},256] {{
  %x = f32[{rows},256]{{1,0}} parameter(0)
  %w = f32[256,256]{{1,0}} parameter(1)
  %h = f32[{rows},256]{{1,0}} dot(%x, %w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}, {where(first, "up")}
  ROOT %y = f32[{rows},256]{{1,0}} dot(%h, %w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}, {where(first + 1, "down")}
}}
"""  # noqa: E501
    return hs.read(text, hardware="tpu-v5e")


def test_a_renamed_file_or_function_is_no_difference() -> None:
    before = program(1024, "train.py", "jit(step)/mlp", 10)
    assert not hs.diff(before, program(1024, "model.py", "jit(update)/ffn", 30))
    assert hs.diff(before, program(1024, "model.py", "jit(update)/ffn", 30)).lines == ()
    found = hs.diff(before, program(2048, "model.py", "jit(update)/ffn", 30))
    assert sorted(p.name for p in found.lines) == [
        "train.py:10 → model.py:30",
        "train.py:11 → model.py:31",
    ]
    assert [p.name for p in found.scopes] == ["mlp → ffn"]
    for place in (*found.lines, *found.scopes):
        assert None not in place.seconds
        assert min(place.seconds) > 0


def test_lines_that_were_there_before_keep_their_name() -> None:
    found = hs.diff(program(1024, "train.py", "s", 10), program(2048, "train.py", "s", 10))
    assert sorted(p.name for p in found.lines) == ["train.py:10", "train.py:11"]
