"""What no line accounts for has a row of its own, always."""

from __future__ import annotations

import hloscope as hs


def test_the_table_ends_with_what_no_line_accounts_for() -> None:
    text = "HloModule m\nENTRY e { x = f32[8] parameter(0)\n ROOT y = f32[8] negate(x) }"
    shown = repr(hs.read(text).source).splitlines()[-1]
    assert shown.startswith("no line known")
    assert "8 FLOP" in shown


def test_what_is_unknown_is_said_below_the_sums() -> None:
    text = """HloModule m
ENTRY e {
  x = f32[8] parameter(0)
  y = f32[8] custom-call(x), custom_call_target="mine"
  ROOT z = f32[8] negate(y)
}"""
    source = hs.read(text, hardware="tpu-v5e").source
    assert source.unknown == {"flops": 1, "seconds": 1}
    assert repr(source).splitlines()[-2:] == [
        "left out, being unknown: FLOPs of 1 operation",
        "modelled time of 1 operation is unknown: at least what its bytes take",
    ]
    known = hs.read(text.replace('custom-call(x), custom_call_target="mine"', "tanh(x)"))
    assert known.source.unknown == {}
