"""Cutting into stages: the dynamic program against brute force, schedules against a twin."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest
from hloscope.plan.stages.choices import Choice, exactly
from hloscope.plan.stages.plan import make_plan
from hloscope.plan.stages.schedules import KINDS, Schedule, schedule
from hloscope.plan.stages.solver import every_solution, solve


def instance(rng: random.Random) -> tuple[list[Choice], int, int, int, float | None]:
    """Layers, devices, microbatches and choices at random, some of them missing."""
    layers, devices = rng.randint(1, 5), rng.choice([1, 2, 4, 6, 8])
    choices = []
    for start in range(layers):
        for end in range(start, layers):
            for n in (1, 2, 3, 4, 8):
                if n > devices or rng.random() < 0.25:
                    continue
                for option in range(rng.randint(1, 2)):
                    t = (end - start + 1) / n * rng.uniform(0.5, 2)
                    choices.append(
                        Choice(
                            start, end, (n,), exactly(t / 3), exactly(2 * t / 3), str(option),
                            rng.uniform(0, 4) if rng.random() < 0.9 else None,
                            rng.uniform(0, 2) if rng.random() < 0.9 else None,
                        )
                    )  # fmt: skip
    limit = rng.choice([None, 3.0, 6.0])
    return choices, layers, devices, rng.randint(1, 12), limit


@pytest.mark.parametrize("all_devices", [True, False])
def test_the_dynamic_program_is_exact(all_devices: bool) -> None:
    """200 instances: the same objective as the best of all pipelines, or none where none is."""
    solved = 0
    for seed in range(200):
        choices, layers, devices, b, limit = instance(random.Random(seed))
        kw = {"memory_bytes": limit, "all_devices": all_devices}
        found = solve(choices, layers, devices, b, **kw)
        every = [
            s.objective.value
            for s in every_solution(choices, layers, devices, b, limit=10**7, **kw)
        ]
        if not every:
            assert found is None
            continue
        assert found is not None
        assert found.objective.value == pytest.approx(min(every), rel=1e-12)
        solved += 1
    assert solved > 100


def twin(s: Schedule) -> dict[int, int]:
    """Most microbatches in flight by device, from the events alone: +1 at F, −1 at its last end."""
    most = {}
    for d in range(s.devices):
        own = [w for w in s.work if w.device == d]
        moments = sorted({w.start for w in own} | {w.end for w in own})
        most[d] = 0
        for t in moments:
            held = 0
            for w in own:
                if w.kind != "F" or w.start > t:
                    continue
                ends = [
                    x.end
                    for x in own
                    if x.kind != "F" and (x.stage, x.microbatch) == (w.stage, w.microbatch)
                ]
                held += max(ends) > t
            most[d] = max(most[d], held)
    return most


def is_possible(s: Schedule, chunks: int) -> None:
    """Every piece once, after its inputs, and no device does two things at a time."""
    stages = s.devices * chunks
    ends = {(w.kind, w.stage, w.microbatch): w.end for w in s.work}
    assert len(ends) == len(s.work)
    for w in s.work:
        key = w.stage, w.microbatch
        if w.kind == "F" and w.stage:
            assert w.start >= ends["F", w.stage - 1, w.microbatch] - 1e-9
        if w.kind == "B":
            assert w.start >= ends["F", *key] - 1e-9
            if w.stage < stages - 1:
                assert w.start >= ends["B", w.stage + 1, w.microbatch] - 1e-9
        if w.kind == "W":
            assert w.start >= ends["B", *key] - 1e-9
    for d in range(s.devices):
        own = sorted((w.start, w.end) for w in s.work if w.device == d)
        assert all(a[1] <= b[0] + 1e-9 for a, b in pairwise(own))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("stages", "count"), [(1, 3), (2, 4), (4, 8), (3, 9), (4, 4), (5, 2)])
def test_schedules(kind: str, stages: int, count: int) -> None:
    rng = random.Random(stages * 100 + count)
    for times in ([1.0] * stages, [rng.uniform(0.5, 2) for _ in range(stages)]):
        options = {"forward": times, "backward": [2 * t for t in times], "microbatches": count}
        if kind == "interleaved" and count % stages:
            with pytest.raises(ValueError, match="divide by the stages"):
                schedule(kind, **options)
            return
        s = schedule(kind, activation_bytes=[1.0] * stages, fixed_bytes=[10.0] * stages, **options)
        is_possible(s, 2 if kind == "interleaved" else 1)
        assert twin(s) == {d: s.most_in_flight(d) for d in range(stages)}
        busy = sum(3 * t for t in times) * count
        assert sum(w.end - w.start for w in s.work) == pytest.approx(busy)
        if kind == "gpipe":
            assert all(s.most_in_flight(d) == count for d in range(stages))
        if kind in ("1f1b", "zero-bubble"):
            assert all(s.most_in_flight(d) <= min(stages, count) for d in range(stages))
        top = s.memory(0)
        assert top is not None
        share = 0.5 if kind == "interleaved" else 1.0
        assert max(b for _, b in top) == pytest.approx(10 + share * s.most_in_flight(0))


@pytest.mark.parametrize(("stages", "count"), [(2, 4), (4, 8), (4, 16), (8, 16), (6, 3)])
def test_bubbles_of_equal_stages(stages: int, count: int) -> None:
    """(S−1)/(B+S−1) for GPipe and 1F1B, v times less interleaved, (S−1)·(F+B−W) with ZB-H1."""
    options = {"forward": [1.0] * stages, "backward": [2.0] * stages, "microbatches": count}
    for kind in ("gpipe", "1f1b"):
        wanted = (stages - 1) / (count + stages - 1)
        assert schedule(kind, **options).bubble_share == pytest.approx(wanted)
    if count % stages == 0:
        assert schedule("interleaved", **options).seconds == pytest.approx(
            3 * count + 3 * (stages - 1) / 2
        )
    if count >= stages:
        assert schedule("zero-bubble", **options).seconds == pytest.approx(3 * count + stages - 1)


def test_a_plan_changes_by_hand() -> None:
    whole = Choice(0, 1, (4,), exactly(1.0), exactly(2.0), "", 10.0, 1.0)
    halves = [Choice(n, n, (2,), exactly(0.9), exactly(1.8), "", 5.0, 1.0) for n in range(2)]
    plan = make_plan([whole, *halves], ["a", "b"], 4, 8, memory_bytes=100.0)
    assert plan.best is not None
    assert len(plan.best.stages) == 1 or plan.best.objective.value < 24
    quick = plan.with_changes(seconds={0: 1.0})
    assert quick.best is not None
    assert quick.best.stages[0].seconds.value == 1.0
    assert plan.with_changes(microbatches=1).microbatches == 1
    with pytest.raises(ValueError, match="there is no choice 9"):
        plan.with_changes(seconds={9: 1.0})
    assert set(plan.schedules()) == set(KINDS) - ({"interleaved"} if 8 % 1 else set())


def test_memory_decides_what_fits() -> None:
    """The first of two stages holds two microbatches in flight, the last one."""
    halves = [Choice(n, n, (1,), exactly(1.0), exactly(1.0), "", 5.0, 3.0) for n in range(2)]
    assert solve(halves, 2, 2, 8, memory_bytes=11.0) is not None
    assert solve(halves, 2, 2, 8, memory_bytes=10.9) is None
    assert solve(halves, 2, 2, 1, memory_bytes=8.0) is not None
