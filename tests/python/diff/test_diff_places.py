"""Places that differ between two programs: ``diff_places.py``."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

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
    return SimpleNamespace(file=file, line=line, function="f", text=text, own=own)


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
    names: dict[str, str] = {}
    program: Any = SimpleNamespace(module=None, target=None)
    assert _lines(program, names) == {
        "a.py\nf\nx + y": [11, 22, 33],
        "a.py\nf\n5": [0, 0, 7],
        "a.py\nf\n6": [0, 7, 0],
        "a.py\nf\n7": [7, 0, 0],
        "notebook cell\nf\nz": [0, 0, 5],
    }
    assert names["a.py\nf\nx + y"].endswith("a.py:9 x + y")
    assert names["a.py\nf\n5"].endswith("a.py:5")
