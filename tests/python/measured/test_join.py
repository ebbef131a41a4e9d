"""Rows of a trace joined to a program, each figure worked out by hand: ``measured_join.py``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hloscope.analysis.measured.join import join
from hloscope.analysis.measured.measured import Measured
from hloscope.hlo import Module
from hloscope.readers.hlo.text import read_hlo_text

TEXT = """HloModule jit_f, num_partitions=2

inner { x = f32[] parameter(0) ROOT deep = f32[] negate(x) }
body { y = f32[] parameter(0) ROOT turn = f32[] sine(y) }

ENTRY e {
  p = f32[] parameter(0)
  a = f32[] tanh(p)
  go-start = (f32[], f32[]) copy-start(a)
  go-done = f32[] copy-done(go-start)
  m = f32[] map(go-done), to_apply=body
  ROOT c = f32[] call(m), to_apply=inner
}
"""


def module(text: str = TEXT) -> Module:
    (found,) = read_hlo_text(text)
    return found


@dataclass
class Row:
    op: str
    seconds: float = 1.0
    device: int = 0
    count: int = 1
    module: str = "jit_f"
    self_seconds: float | None = None
    program: int | None = None
    beside: bool = False


@dataclass
class Match:
    executions: int | None = None
    by_device: Mapping[int, int] = field(default_factory=dict)
    spans: Mapping[int, float] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    rows: tuple[Any, ...] = ()

    def __contains__(self, row: Row) -> bool:
        return row.module == "jit_f"


def trace(*names: str, warnings: tuple[str, ...] = ()) -> Any:
    none = SimpleNamespace(lanes=(), texts=(), programs=(), runs=(), left_out={})
    return SimpleNamespace(
        unnamed={"idle": 3.0}, device_names=dict(enumerate(names)), warnings=warnings, events=none
    )


def at(found: Measured, values: np.ndarray, op: str, device: int = 0) -> float:
    i = found.module.find(op)
    assert i is not None
    return float(values[device, i.index])


def test_rows_are_added_and_divided_by_steps() -> None:
    rows = [Row("a", 2.0), Row("a", 4.0, self_seconds=1.0, count=3), Row("c", 6.0, device=3)]
    found = join(module(), rows, 2)
    assert (found.steps, found.devices) == (2, (0, 3))
    assert at(found, found.seconds, "a") == 3.0
    assert at(found, found.self_seconds, "a") == 1.5
    assert at(found, found.counts, "a") == 2.0
    assert at(found, found.seconds, "c", 1) == 3.0
    assert at(found, found.seconds, "c") == at(found, found.seconds, "a", 1) == 0.0
    assert not found.unmatched
    assert not found.other_programs
    assert join(module(), rows, 0).steps == 1, "at least one"


def test_whose_rows_they_are() -> None:
    rows = [
        Row("a"),
        Row("a", module=""),
        Row("gone", 2.0),
        Row("gone", 4.0, self_seconds=3.0),
        Row("gone", 8.0, module=""),
        Row("gone", 16.0, module="", program=7),
        Row("gone", 32.0, beside=True),
        Row("b", 64.0, module="jit_g"),
        Row("b", 1.0, module="jit_g"),
        Row("b", 128.0, module="jit_g", beside=True),
    ]
    found = join(module(), rows, 1)
    assert at(found, found.seconds, "a") == 2.0
    assert found.unmatched == {"gone": 21.0}
    assert found.other_programs == {"a program without a name": 8.0, "jit_g": 65.0}
    named = join(module(), rows, 1, match=Match())
    assert at(named, named.seconds, "a") == 1.0
    assert named.unmatched == {"gone": 5.0}
    assert named.other_programs["a program without a name"] == 25.0


class Others(Match):
    def __contains__(self, row: Row) -> bool:
        return row.program == 1


def test_another_program_of_the_same_name_is_told_by_its_number() -> None:
    rows = [Row("a", program=1), Row("a", 2.0, program=2), Row("a", 4.0)]
    rows += [Row("a", 8.0, module="g", program=3)]
    found = join(module(), rows, 1, match=Others())
    assert found.other_programs == {"jit_f (program 2)": 2.0, "jit_f": 4.0, "g": 8.0}


@pytest.mark.parametrize(
    ("rows", "steps"),
    [
        ([], 1),
        ([Row("a", count=5)], 5),
        ([Row("a", count=5), Row("c", count=7), Row("p", count=7)], 7),
        ([Row("a"), Row("c"), Row("p", count=4)], 1),
        ([Row("deep", count=4)], 4),  # of what is called
        ([Row("turn", count=40)], 1),  # not of what is mapped: once for each element
        ([Row("turn", count=40), Row("a", count=2)], 2),
        ([Row("a", count=2, device=0), Row("a", count=2, device=1)], 2),
    ],
)
def test_steps_without_any_runs_in_the_trace(rows: list[Row], steps: int) -> None:
    assert join(module(), rows).steps == steps


def test_each_device_is_divided_by_its_own_runs() -> None:
    rows = [Row("a", 12.0, 0), Row("a", 12.0, 1), Row("a", 12.0, 2)]
    match = Match(4, {0: 2, 1: 3}, {0: 8.0, 1: 9.0}, ("said",))
    found = join(module(), rows, match=match)
    assert found.steps == 4
    assert [at(found, found.seconds, "a", k) for k in range(3)] == [6.0, 4.0, 3.0]
    assert found.notes == (
        "said",
        "devices recorded 2 to 4 executions: the times of each are divided by its own",
    )
    assert found.wall[:2].tolist() == [4.0, 3.0]
    assert np.isnan(found.wall[2])
    two = join(module(), rows, match=Match(4, {0: 2, 1: 0}))
    assert [at(two, two.seconds, "a", k) for k in range(3)] == [6.0, 3.0, 3.0]
    assert two.notes == (found.notes[1],)
    same = join(module(), rows, match=Match(4, {0: 4, 1: 4}))
    assert same.notes == ()
    given = join(module(), rows, 3, match=match)
    assert [at(given, given.seconds, "a", k) for k in range(3)] == [4.0] * 3
    none = join(module(), rows, match=Match(None, {0: 0}))
    assert none.steps == 1


def test_asynchronous_operations_count_at_their_start_and_are_unknown_elsewhere() -> None:
    rows = [Row("a", 1.0, 0), Row("a", 1.0, 1), Row("go-done", 3.0, 0, beside=True)]
    found = join(module(), rows, 1)
    assert at(found, found.flight, "go-start") == 3.0
    assert at(found, found.flight, "a") == 0.0
    assert np.isnan(found.flight[1]).all()
    assert at(found, found.seconds, "go-done") == 0.0
    assert at(join(module(), rows, 2), join(module(), rows, 2).flight, "go-start") == 1.5
    nowhere = join(module(), rows[:2], 1)
    assert not nowhere.flight.any()


# rows' devices, those with asynchronous operations, names of the trace's devices → what is said
NOTES = [
    ((0, 1), (), ("CPU 0", "CPU 1"), []),
    ((0, 1), (), (), []),
    ((0,), (), ("CPU 0", "CPU 1"), ["1 of 2 devices recorded this program: CPU 0"]),
    ((0,), (), ("CPU 0",), []),
    ((), (), ("CPU 0", "CPU 1"), []),
    ((0, 1), (0, 1), ("TPU 0", "TPU 1"), []),
    ((0, 1), (0,), ("TPU 0", "TPU 1"), [
        "1 of 2 devices recorded asynchronous operations: TPU 0; their times are of it alone"]),
    ((0, 1, 2), (0, 2), ("TPU 0", "TPU 1", "TPU 2"), [
        "2 of 3 devices recorded asynchronous operations: TPU 0, TPU 2;"
        " their times are of these alone"]),
    ((0, 1), (), ("TPU 0", "TPU 1"), [
        "no device recorded asynchronous operations, of which the program has some"]),
    ((0, 1), (0,), ("GPU 0", "GPU 1"), []),
]  # fmt: skip


@pytest.mark.parametrize(("ran", "beside", "names", "said"), NOTES)
def test_what_the_trace_lacks(
    ran: tuple[int, ...], beside: tuple[int, ...], names: tuple[str, ...], said: list[str]
) -> None:
    rows = [Row("a", device=d) for d in ran]
    rows += [Row("go-done", device=d, beside=True) for d in beside]
    found = join(module(), rows, 1, trace=trace(*names, warnings=("cut off",)))
    assert list(found.notes) == [*said, "cut off"]
    assert found.unnamed == {"idle": 3.0}
    assert found.device_names == {d: n for d, n in enumerate(names) if d in ran}
    assert join(module(), rows, 1).notes == ()


def test_replicas_are_devices_too() -> None:
    whole = module(TEXT.replace("num_partitions=2", "num_partitions=2, replica_count=2"))
    found = join(whole, [Row("a")], 1, trace=trace(*(f"CPU {d}" for d in range(8))))
    assert found.notes == ("1 of 4 devices recorded this program: CPU 0",)
    assert join(whole, [], 1).wall.shape == (0,)


def test_a_program_without_asynchronous_operations_misses_none() -> None:
    plain = module("HloModule jit_f\nENTRY e {\n  ROOT a = f32[] parameter(0)\n}\n")
    assert join(plain, [Row("a")], 1, trace=trace("TPU 0")).notes == ()


@pytest.mark.parametrize(("devices", "more"), [(4, ""), (5, " and 1 more"), (6, " and 2 more")])
def test_four_devices_are_named(devices: int, more: str) -> None:
    whole = module(TEXT.replace("num_partitions=2", f"num_partitions={devices + 1}"))
    names = [f"CPU {d}" for d in range(devices + 1)]
    rows = [Row("a", device=d) for d in range(devices)]
    found = join(whole, rows, 1, trace=trace(*names))
    assert found.notes == (
        f"{devices} of {devices + 1} devices recorded this program:"
        f" CPU 0, CPU 1, CPU 2, CPU 3{more}",
    )
