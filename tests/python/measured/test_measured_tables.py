"""Figures of a measurement, each worked out by hand: ``measured.py`` and ``measured_events.py``."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hloscope.analysis.measured.events import joined, start_of
from hloscope.analysis.measured.measured import Measured, MeasuredInstruction
from hloscope.hlo import Module
from hloscope.readers.hlo.text import read_hlo_text

TEXT = """HloModule jit_f

body { x = f32[] parameter(0) ROOT turn = f32[] sine(x) }
cond { y = f32[] parameter(0) ROOT end = pred[] constant(0) }
twice { z = f32[] parameter(0) k = f32[] call(z), to_apply=leaf ROOT l = f32[] call(k), to_apply=leaf }
leaf { u = f32[] parameter(0) ROOT deep = f32[] negate(u) }

ENTRY e {
  p = f32[] parameter(0)
  a = f32[] tanh(p)
  w = f32[] while(a), body=body, condition=cond
  t = f32[] call(w), to_apply=twice
  go-start = f32[] copy-start(t)
  go-update = f32[] copy-update(go-start)
  ROOT go-done = f32[] copy-done(go-update)
}
"""  # noqa: E501


def module() -> Module:
    (found,) = read_hlo_text(TEXT)
    return found


def measured(*devices: dict[str, float], steps: int = 1, **more: Any) -> Measured:
    """Seconds by name on each device; each ran once. ``own``: self times that are less."""
    whole = module()
    at = {i.name: i.index for i in whole.instructions}
    seconds = np.zeros((len(devices), len(at)))
    own, flight = more.pop("own", {}), more.pop("flight", [{} for _ in devices])
    flown = np.zeros(seconds.shape)
    for k, of in enumerate(devices):
        for name, s in of.items():
            seconds[k, at[name]] = s
        for name, s in flight[k].items():
            flown[k, at[name] if name else slice(None)] = s
    selves = seconds.copy()
    for name, s in own.items():
        selves[:, at[name]] = s
    counts = (seconds > 0).astype(float)
    numbers = tuple(range(3, 3 + len(devices)))
    fields = {"unmatched": {}, **more}
    return Measured(whole, numbers, seconds, counts, steps, fields.pop("unmatched"), selves, flown,
                    **fields)  # fmt: skip


def test_rows_are_means_over_devices_slowest_first() -> None:
    found = measured({"p": 1.0, "a": 2.0}, {"a": 6.0}, own={"a": 1.5})
    a, p = found
    assert len(found) == 2
    assert (a.instruction.name, a.mean_seconds, a.self_seconds) == ("a", 4.0, 1.5)
    assert (a.least_seconds, a.most_seconds, a.slowest, a.count) == (2.0, 6.0, 4, 1.0)
    assert a.spread == 0.5
    assert (p.mean_seconds, p.slowest, p.count, p.spread) == (0.5, 3, 0.5, 1.0)
    assert np.isnan(found.mean[found.module.find("t").index])  # type: ignore[union-attr]
    assert found.to_dict()["rows"][1] == {
        "instruction": "p", "opcode": "parameter", "seconds": 0.5, "self_seconds": 0.5,
        "flight_seconds": 0.0, "least": 0.0, "most": 1.0, "slowest_device": 3, "spread": 1.0,
        "count": 0.5,
    }  # fmt: skip
    none = MeasuredInstruction(a.instruction, 0.0, 0.0, 0.0, 0.0, 0.0, 3, 1.0)
    assert none.spread == 0.0


# seconds of a loop, of what it runs, self time of the loop → what the loop adds to a step
LOOPS = [
    ({"w": 10.0, "turn": 4.0}, 10.0, 6.0),  # on other threads: not what its body accounts for
    ({"w": 10.0, "turn": 4.0, "end": 1.0}, 10.0, 5.0),
    ({"w": 10.0, "turn": 4.0}, 2.0, 2.0),
    ({"w": 3.0, "turn": 4.0}, 3.0, 0.0),
    ({"w": 3.0}, 3.0, 3.0),
    ({"t": 10.0, "deep": 2.0}, 10.0, 6.0),  # what it calls calls it twice
    ({"t": 10.0, "deep": 2.0, "k": 1.0}, 10.0, 5.0),
]


@pytest.mark.parametrize(("seconds", "own", "added"), LOOPS)
def test_what_a_loop_or_call_adds(seconds: dict[str, float], own: float, added: float) -> None:
    name = "w" if "w" in seconds else "t"
    found = measured(seconds, own={name: own})
    i = found.module.find(name)
    assert i is not None
    assert found.step_seconds[0, i.index] == added
    # what "k" calls takes longer than itself, so that it adds nothing
    rest = {k: s for k, s in seconds.items() if k not in (name, "k")}
    assert found.device_seconds[0] == added + sum(rest.values())


def test_a_loop_that_was_not_seen_adds_what_is_known() -> None:
    found = measured({"turn": 4.0}, own={"w": 1.0})
    assert found.device_seconds.tolist() == [5.0]


def test_what_runs_on_two_devices() -> None:
    found = measured({"a": 2.0}, {"a": 6.0})
    assert found.device_seconds.tolist() == [2.0, 6.0]
    assert found.total_seconds == 4.0
    nothing = measured()
    assert (nothing.total_seconds, nothing.coverage, len(nothing)) == (0.0, 0.0, 0)
    assert np.isnan(nothing.mean).all()
    assert nothing.flight_seconds == 0.0


def test_flight_is_the_mean_over_devices_that_recorded_any() -> None:
    flight = [{"go-start": 2.0}, {"": np.nan}, {"go-start": 4.0}]
    found = measured({"a": 1.0}, {"a": 1.0}, {"a": 1.0}, flight=flight)
    assert found.flight_seconds == 3.0
    go = found.module.find("go-start")
    assert go is not None
    assert found.row(go.index).flight_seconds == 3.0
    assert measured({"a": 1.0}, flight=[{"": np.nan}]).flight_seconds == 0.0


# unmatched seconds, walls, steps → share of the trace that is on an instruction; "a" takes 2 s
COVERED = [
    ({}, [], 1, 1.0),
    ({"x": 2.0}, [], 1, 0.5),
    ({"x": 2.0}, [], 3, 0.75),
    ({"x": 2.0}, [8.0], 1, 0.25),
    ({"x": 6.0}, [1.0], 1, 0.25),
    ({}, [8.0], 2, 0.25),
    ({}, [np.nan], 1, 1.0),
    ({}, [1.0], 1, 1.0),
]


@pytest.mark.parametrize(("unmatched", "wall", "steps", "share"), COVERED)
def test_coverage(unmatched: Any, wall: Any, steps: int, share: float) -> None:
    found = measured({"a": 2.0}, unmatched=unmatched, wall=np.array(wall), steps=steps)
    assert found.coverage == share
    assert found.summary() == {
        "seconds_a_step": 2.0,
        "wall_seconds_a_step": wall[0] if wall and wall[0] == wall[0] else None,
        "steps": steps,
        "devices": 1,
        "coverage": share,
    }


def test_the_wall_is_the_mean_over_devices_that_have_one() -> None:
    two = [{"a": 1.0}, {"a": 1.0}]
    assert measured(*two, wall=np.array([2.0, 4.0])).wall_seconds == 3.0
    assert measured(*two, wall=np.array([2.0, np.nan])).wall_seconds == 2.0
    assert np.isnan(measured(*two).wall_seconds)


# seconds from start to end of a step of which operations take 2 s, what is said
WALLS = [
    (0.0, ()),  # not known
    (2.0, ()),
    (2.1, ()),  # 4.8 % less
    (2.125, ("a step takes 2.13 s from start to end: 125 ms of it is not covered by any"
             " operation",)),  # 5.9 %
    (1.9375, ()),  # 3.2 % more
    (1.875, ("a step takes 1.88 s from start to end: operations ran side by side, and their times"
             " add up to more",)),  # 6.7 %
]  # fmt: skip


@pytest.mark.parametrize(("wall", "said"), WALLS)
def test_what_a_step_takes_from_start_to_end(wall: float, said: tuple[str, ...]) -> None:
    assert measured({"a": 2.0}, wall=np.array([wall])).remarks() == said


def test_what_is_not_in_the_figures() -> None:
    found = measured(
        {"a": 2.0},
        unmatched={"x": 1.0, "y": 4.0},
        other_programs={"jit_g": 1.0, "jit_h": 2.0, "jit_i": 3.0},
        unnamed={"k1": 1.0, "k2": 2.0, "k3": 4.0, "k4": 3.0},
        notes=("first",),
    )
    assert found.remarks() == (
        "first",
        "not in these figures: 5 s under names that this program does not have (y 4 s, x 1 s)",
        "not in these figures: 6 s of other programs (jit_i 3 s, jit_h 2 s, jit_g 1 s)",
        "not in these figures: 10 s in kernels and copies that belong to no HLO operation"
        " (k3 4 s, k4 3 s, k2 2 s and 1 more)",
    )


def test_as_text() -> None:
    text = repr(measured({"a": 2.0}, steps=3, unmatched={"x": 2.0}, flight=[{"go-start": 4.0}]))
    lines = text.split("\n")
    assert lines[0] == (
        "measured: 2 s a step on each of 1 devices, 3 steps; 75.0 % of this program's time in the"
        " trace is on an instruction"
    )
    assert lines[1] == "asynchronous, beside it: 4 s a step"
    assert lines[2].startswith("not in these figures: 2 s under names")
    assert lines[-1].split() == ["a", "2", "s", "2", "s", "2", "s", "3", "1"]
    assert "asynchronous" not in repr(measured({"a": 2.0}))


def test_twelve_rows_are_shown() -> None:
    names = [i.name for i in module().instructions]
    assert len(names) == 16
    text = repr(measured({name: 1.0 for name in names}))
    assert sum(line.split()[0] in names for line in text.split("\n")) == 12


# -- events ------------------------------------------------------------------------------------


def test_the_start_of_an_asynchronous_operation() -> None:
    whole = module()
    told = {i.name: start_of(i).name for i in whole.instructions}
    assert [told[n] for n in ("go-done", "go-update", "go-start", "a")] == [
        "go-start", "go-start", "go-start", "a",
    ]  # fmt: skip
    (alone,) = read_hlo_text("HloModule m\nENTRY e {\n  ROOT d = f32[] copy-done()\n}\n")
    assert start_of(alone.instructions[0]).name == "d"


def lane(device: int, start: list[float], text: list[int], program: list[int], **more: Any) -> Any:
    begin = np.array(start)
    fields: dict[str, Any] = {"name": "ops", "beside": False} | more
    return type("Lane", (SimpleNamespace,), {"__len__": lambda x: len(x.start)})(
        device=device, start=begin, end=begin + 0.5, seconds=begin * 0 + 0.25,
        text=np.array(text, np.int64), program=np.array(program, np.int64), **fields,
    )  # fmt: skip


def test_events_with_their_instructions() -> None:
    """Programs 0 and 2 are this one's by name, -1 is none; text 2 is unknown, -1 no text."""
    whole = module()
    at = {i.name: i.index for i in whole.instructions}
    events: Any = SimpleNamespace(
        lanes=[
            lane(0, [12.0, 13.0, 14.0, 15.0], [0, 1, 2, -1], [0, 2, 0, 0]),
            lane(1, [11.0, 13.0], [0, 0], [1, -1]),
            lane(1, [14.0], [1], [0], beside=True, name="async"),
            lane(2, [], [], []),
        ],
        texts=["a", "go-done", "unknown"],
        programs=[("jit_f", 1), ("jit_g", 2), ("", None)],
        runs=[(("jit_f", 1), 0, 12.0, 15.0), (("jit_f", 1), 1, 10.0, 9.0),
              (("jit_g", 2), 1, 11.0, 12.0), (("", None), 1, 11.0, 12.0)],
        left_out={"there": 3},
    )  # fmt: skip
    found = joined(whole, events, {0: "CPU 0"})
    assert [x.instruction.tolist() for x in found.lanes] == [
        [at["a"], at["go-done"], -1, -1], [-1, -1], [at["go-start"]], [],
    ]  # fmt: skip
    assert [x.start.tolist() for x in found.lanes] == [[1.0, 2.0, 3.0, 4.0], [0.0, 2.0], [3.0], []]
    assert found.lanes[0].end.tolist() == [1.5, 2.5, 3.5, 4.5]
    assert found.lanes[0].seconds.tolist() == [0.25] * 4
    assert [x.device_name for x in found.lanes] == ["CPU 0", "1", "1", "2"]
    assert [x.beside for x in found.lanes] == [False, False, True, False]
    assert found.runs == ((0, 1.0, 3.0), (1, 0.0, 0.0))
    assert (len(found), found.left_out, found.texts[2]) == (7, {"there": 3}, "unknown")
    match = SimpleNamespace(rows={("jit_g", 2, 1), ("jit_f", 1, 1)})
    other = joined(whole, events, {}, match)
    assert [x.instruction.tolist() for x in other.lanes] == [
        [-1] * 4, [at["a"], -1], [at["go-start"]], [],
    ]  # fmt: skip
    assert other.runs == ((1, 0.0, 0.0), (1, 0.0, 1.0))
