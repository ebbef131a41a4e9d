"""What no line accounts for has a row of its own, always."""

from __future__ import annotations

import hloscope as hs


def test_the_table_ends_with_what_no_line_accounts_for() -> None:
    text = "HloModule m\nENTRY e { x = f32[8] parameter(0)\n ROOT y = f32[8] negate(x) }"
    shown = repr(hs.read(text).source).splitlines()[-1]
    assert shown.startswith("no line known")
    assert "8 FLOP" in shown
