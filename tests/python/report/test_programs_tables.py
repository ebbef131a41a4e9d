"""The programs of one run: their sums, and how they are written out."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hloscope.analysis.report.programs import Call, ProgramRow, Programs

STEP = ProgramRow(
    "step",
    1,
    "optimised",
    1200,
    2e9,
    3e6,
    4e3,
    5 << 20,
    1e-3,
    runs=3,
    seconds=2e-3,
    op_seconds=5e-3,
)
INIT = ProgramRow("init", 0, "optimised", 7, 1e9, 1e6, 0.0, 1 << 20, 1e-4, runs=1, seconds=1e-3)
IDLE = ProgramRow("idle", 2, "optimised", 9, 5e9, 5e6, 9.0, 1 << 20, 1e-4, runs=0)

# rows, figure, its sum, its bound
TOTALS = [
    ((STEP, INIT), "flops", 7e9, ""),
    ((STEP, INIT), "bytes_accessed", 10e6, ""),
    ((STEP, INIT), "wire_bytes", 12e3, ""),
    ((STEP, INIT), "seconds", 7e-3, ""),
    ((STEP, IDLE), "flops", 6e9, ""),
    ((STEP, replace(IDLE, is_lower_bound=True)), "flops", 6e9, ""),  # it did not run
    ((STEP, replace(IDLE, is_upper_bound=True)), "flops", 6e9, ""),
    ((STEP, replace(INIT, flops=None)), "flops", 6e9, "≥"),
    ((STEP, replace(INIT, is_lower_bound=True)), "flops", 7e9, "≥"),
    ((STEP, replace(INIT, is_upper_bound=True)), "flops", 7e9, "≤"),
    ((replace(STEP, is_lower_bound=True), replace(INIT, is_upper_bound=True)), "flops", None, ""),
    ((replace(STEP, is_upper_bound=True), replace(INIT, flops=None)), "flops", None, ""),
    # time is measured, whatever is known of the program
    ((replace(STEP, is_lower_bound=True), replace(INIT, is_upper_bound=True)), "seconds", 7e-3, ""),
    ((STEP, replace(INIT, seconds=None)), "seconds", 6e-3, "≥"),
    ((STEP, replace(INIT, runs=None)), "flops", None, ""),
    ((replace(STEP, flops=None),), "flops", None, ""),
    ((IDLE,), "flops", None, ""),
    ((), "flops", None, ""),
]


@pytest.mark.parametrize(("rows", "figure", "value", "bound"), TOTALS)
def test_sums_over_all_calls(
    rows: tuple[ProgramRow, ...], figure: str, value: float | None, bound: str
) -> None:
    found, mark = Programs(rows).total(figure)
    assert found == (value if value is None else pytest.approx(value))
    assert mark == bound
    assert Programs(rows).to_dict()["totals"][figure] == {"value": found, "bound": bound}


def test_all_that_is_known_is_written() -> None:
    calls = tuple(Call("step", 0, k * 1e-3, 1e-3) for k in range(3))
    calls += (Call("init", 1, 1.0, 1e-3),)
    found = Programs((STEP, INIT), 1, "the last", calls, "TPU 0", ("a note",), "a folder")
    head, titles, step, init, *rest = str(found).splitlines()
    assert head == "2 programs · a folder"
    words = "program N stage instructions FLOPs accessed wire peak modelled calls a call all ops"
    assert titles.split() == words.split()
    words = "step 1 optimised 1,200 2 GFLOP 2.86 MiB 3.91 KiB 5 MiB 1 ms 3 2 ms 5 ms"
    assert step.split() == words.split()
    words = "init * 0 optimised 7 1 GFLOP 977 KiB 0 B 1 MiB 100 µs 1 1 ms unknown"
    assert init.split() == words.split()
    assert rest == [
        "* the last",
        "all calls on a device: 7 ms of programs, 7 GFLOP, 9.54 MiB accessed, 11.7 KiB sent",
        "calls on TPU 0 in order: step × 3, init",
        "a note",
    ]


def test_what_is_not_known_has_no_column_or_says_so() -> None:
    head, titles, row, *rest = str(Programs((ProgramRow("x", problem="cut off"),))).splitlines()
    assert head == "1 program"
    assert titles.split() == "program N stage instructions FLOPs accessed wire peak".split()
    assert row.split() == ["x", "*", *["unknown"] * 6]
    assert rest == ["x: cut off"]
    assert len(str(Programs((), why="none")).splitlines()) == 2, "no row was chosen"


def test_bounds_and_figures_of_all_devices_are_marked() -> None:
    low = ProgramRow("a", 0, "s", 1, 1e9, 1e3, 1e3, 9, shapes="global", is_lower_bound=True)
    high = ProgramRow("b", 1, "s", 1, 1e9, 1e3, 0.0, 9, is_upper_bound=True)
    _, _, first, second, last = str(Programs((low, high), 1)).splitlines()
    words = "a 0 s 1 ≥ 1 GFLOP (global) ≥ 1000 B (global) ≥ 1000 B 9 B (global)"
    assert first.split() == words.split()
    assert second.split() == "b * 1 s 1 ≤ 1 GFLOP ≤ 1000 B 0 B 9 B".split()
    assert last == "(global): of all devices together, before partitioning"


@pytest.mark.parametrize(("names", "more"), [(12, ""), (13, ", and 1 more"), (15, ", and 3 more")])
def test_only_the_first_stretches_of_calls_are_printed(names: int, more: str) -> None:
    calls = tuple(Call(f"p{k}", 0, float(k), 1.0) for k in range(names))
    said = str(Programs((STEP,), calls=calls, device="0")).splitlines()[-1]
    shown = ", ".join(f"p{k}" for k in range(12))
    assert said == f"calls on 0 in order: {shown}{more}"
