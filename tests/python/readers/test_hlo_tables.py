"""HLO texts and all that is read of them: every operand, place, shape and complaint."""

from __future__ import annotations

from hloscope.readers.hlo.text import MAX_WARNINGS, read_hlo_text
from text_tables import as_text, assert_table


def test_hlo_text_is_read_as_it_says() -> None:
    assert_table("hlo", lambda text: as_text(read_hlo_text(text)))


def test_what_is_said_has_a_limit() -> None:
    for extra in (0, 1, 3):
        lines = ["HloModule m", "ENTRY e {"] + ["  what is this"] * (MAX_WARNINGS + extra)
        (module,) = read_hlo_text("\n".join([*lines, "  ROOT c = f32[] constant(1)", "}"]))
        said = [w.message for w in module.warnings]
        assert said[:MAX_WARNINGS] == ["not an instruction: 'what is this'"] * MAX_WARNINGS
        assert said[MAX_WARNINGS:] == ([f"{extra} more warnings"] if extra else [])
