# ruff: noqa: E501
"""Figures and columns as they are printed, on both sides of every step."""

from __future__ import annotations

import math

from hloscope.analysis.text.units import (
    count,
    duration,
    exact_size,
    grid,
    printed,
    quantity,
    short,
    size,
    spanned,
)

SIZES = {
    0: "0 B", 1: "1 B", 1.4: "1 B", 1.5: "2 B", 1023: "1023 B", 1023.4: "1023 B", 1023.6: "1 KiB",
    1024: "1 KiB", 1025: "1 KiB", 1029: "1 KiB", 1030: "1.01 KiB", 1536: "1.5 KiB", 10235: "10 KiB",
    10189: "9.95 KiB", 102348: "99.9 KiB", 102400: "100 KiB", 1047552: "1023 KiB", 1048064: "1 MiB",
    1048575: "1 MiB", 1 << 20: "1 MiB", 1.25 * 2**30: "1.25 GiB", 54 << 20: "54 MiB", 1 << 40: "1 TiB",
    1 << 50: "1 PiB", 1 << 60: "1024 PiB", 5 << 60: "5120 PiB", -1: "−1 B", -1536: "−1.5 KiB",
    -0.4: "0 B", 1e21 * 2**50: "1e+21 PiB",
}  # fmt: skip
QUANTITIES = {
    (0, "FLOP"): "0 FLOP", (999, "FLOP"): "999 FLOP", (999.94, "FLOP"): "1 kFLOP",
    (1000, "FLOP"): "1 kFLOP", (631e9, "FLOP"): "631 GFLOP", (99.94, "FLOP"): "99.9 FLOP",
    (99.95, "FLOP"): "100 FLOP", (9.994, "FLOP"): "9.99 FLOP", (9.995, "FLOP"): "9.99 FLOP",
    (9.9951, "FLOP"): "10 FLOP", (0.99951, "FLOP"): "1 FLOP", (0.1234, "FLOP"): "0.123 FLOP",
    (0.00012345, "FLOP"): "0.000123 FLOP", (0.0000012, "FLOP"): "0.000001 FLOP", (1e-7, "FLOP"): "0 FLOP",
    (999.6e3, "FLOP"): "1 MFLOP", (1e18, "FLOP"): "1 EFLOP", (1e21, "FLOP"): "1000 EFLOP",
    (-2500, "FLOP"): "−2.5 kFLOP", (-1e-9, "FLOP"): "0 FLOP",
    (2048, "B"): "2 KiB", (0.002, "s"): "2 ms", (3, ""): "3", (1234567, ""): "1,234,567",
    (0.5, ""): "0.5", (999.4, ""): "999", (999.5, ""): "1,000", (1234.5, ""): "1,235", (-0.25, ""): "−0.25",
    (-999.5, ""): "−999", (-3, ""): "−3", (1e40, "FLOP"): "1e+22 EFLOP",
}  # fmt: skip
SECONDS = {
    0: "0 s", 1: "1 s", 59.94: "59.9 s", 1000: "1000 s", 0.9994: "999 ms", 0.99951: "1 s", 0.99996: "1 s",
    1e-3: "1 ms", 1.2345e-3: "1.23 ms", 999.96e-6: "1 ms", 1e-6: "1 µs", 1e-9: "1 ns", 0.5e-9: "0.5 ns",
    1e-15: "0.000001 ns", 1e-16: "0 s", -2e-3: "−2 ms", -1e-16: "0 s", 1.2e-7: "120 ns",
}  # fmt: skip
COUNTS = {
    0: "0", 0.49: "0", 0.5: "1", 9679: "9,679", -0.4: "0", -0.5: "0", -0.6: "−1", -1234.4: "−1,234",
    1e15 - 1: "999,999,999,999,999", 1e15: "1 P", 2.5e18: "2.5 E", -1e15: "−1 P",
}  # fmt: skip


def test_every_figure() -> None:
    for value, text in SIZES.items():
        assert size(value) == text, value
    for (value, unit), text in QUANTITIES.items():
        assert quantity(value, unit) == text, (value, unit)
    for value, text in SECONDS.items():
        assert duration(value) == text, value
    for value, text in COUNTS.items():
        assert count(value) == text, value
    for write in (size, quantity, duration, count):
        assert {write(v) for v in (None, math.nan, math.inf, -math.inf)} == {"unknown"}
    exact = {
        None: "unknown",
        0: "0 B",
        1023: "1023 B",
        1024: "1 KiB (1,024 B)",
        194152460: "185 MiB (194,152,460 B)",
    }
    for value, text in exact.items():
        assert exact_size(value) == text


def test_words_of_figures() -> None:
    assert spanned(1024, 2048, size) == "1 KiB – 2 KiB"
    assert spanned(1024, 1025, size) == "1 KiB"
    assert printed(["a", "b\nc"]).count("\n") == 1
    assert short("a" * 40) == "a" * 40
    assert short("a" * 41) == "a" * 39 + "…"
    assert short("abcdef", 3) == "ab…"
    assert grid(["name", "n"], []) == ["name  n"]
    assert grid(["a", "bb", "c"], [["long", "1", ""], ["x", "222", "y"]]) == [
        "a      bb  c",
        "long    1",
        "x     222  y",
    ]
