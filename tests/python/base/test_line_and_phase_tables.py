"""Lines and phases of programs that hold every way in which one is found."""

from __future__ import annotations

import hloscope as hs
import pytest
from hloscope.analysis.base import waves
from hloscope.analysis.base.lines.lines import lines
from hloscope.analysis.base.phases.phases import PHASES, phases
from text_tables import assert_table


def lines_told(text: str) -> str:
    """``name | line, inferred: why`` of each instruction."""
    module = hs.read(text).module
    assert module.warnings == ()
    found = lines(module)
    column, words = found.phrases()
    for i in module.instructions:
        assert found.why(i).startswith(words[column[i.index]])
        assert bool(found.why(i)) == bool(words[column[i.index]]) == bool(found.inferred[i.index])
    return "\n".join(f"{i.name} | {found.text(i)}" for i in module.instructions)


def test_every_line_and_what_it_was_inferred_from() -> None:
    assert_table("lines", lines_told)


def phases_told(text: str) -> str:
    module = hs.read(text).module
    assert module.warnings == ()
    found = phases(module)
    return "\n".join(f"{i.name} | {PHASES[found[i.index]]}" for i in module.instructions)


@pytest.mark.parametrize("worth", [0, 10**9])
def test_every_phase(monkeypatch: pytest.MonkeyPatch, worth: int) -> None:
    """Edges followed in waves of many computations, and one by one."""
    monkeypatch.setattr(waves, "WORTH_WAVES", worth)
    assert_table("phases", phases_told)
