"""The stages with the least Σt + (B−1)·max t, exactly.

For every bound on the slowest stage, a dynamic program over (layers that remain, stages that
follow, devices left) finds the least sum of times with no stage above the bound; the bound
itself stands for the maximum. One of the stages' own times is the right bound, so trying all of
them is exact (Zheng et al. 2022, Alpa, section 5.2). How many stages follow decides how many
microbatches are in flight, and so whether a stage fits.

    layers        0 1 2 3 4 5
    stages        └─┘ └─────┘ └─┘       counted from the end: 0 follow the last
    in flight      3     2     1        1F1B; never more than B
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from ...readers.alpa_log import Interval
from .choices import Choice, objective


@dataclass(frozen=True, slots=True)
class Solution:
    """A whole pipeline: its stages in order, and what it scores."""

    stages: tuple[Choice, ...]
    objective: Interval

    @property
    def devices(self) -> int:
        return sum(c.devices for c in self.stages)


def fits(choice: Choice, following: int, microbatches: int, limit: float | None) -> bool:
    """Whether a stage fits ``limit`` bytes per device; what is unknown is let through."""
    if limit is None:
        return True
    held = choice.memory(min(following + 1, microbatches))
    if held is None:  # then at least what is held throughout must fit
        held = choice.fixed_bytes
    return held is None or held <= limit


def solve(
    choices: Sequence[Choice],
    layers: int,
    devices: int,
    microbatches: int,
    *,
    memory_bytes: float | None = None,
    all_devices: bool = True,
) -> Solution | None:
    """The best pipeline, None when there is none; of equals the one with the fewest stages.

    ``all_devices``: whether every device must be used.
    """
    by_start: dict[int, list[Choice]] = defaultdict(list)
    for c in choices:
        by_start[c.start].append(c)
    best: tuple[float, int] | None = None
    found: tuple[Choice, ...] = ()
    bounds = sorted({c.seconds.value for c in choices})
    for bound in bounds:
        # no solution whose slowest stage is at least this slow can still win
        if best is not None and bound * microbatches > best[0]:
            break
        made = _under(by_start, layers, devices, microbatches, bound, memory_bytes, all_devices)
        if made is None:
            continue
        score = objective(made, microbatches).value
        key = (score, len(made))
        if best is None or key < best:
            best, found = key, made
    return Solution(found, objective(found, microbatches)) if found else None


def _under(
    by_start: dict[int, list[Choice]],
    layers: int,
    devices: int,
    microbatches: int,
    bound: float,
    limit: float | None,
    all_devices: bool,
) -> tuple[Choice, ...] | None:
    """The least sum of times with no stage slower than ``bound``."""
    Key = tuple[int, int, int]  # next layer, stages from here to the end, devices from here on
    states: dict[Key, tuple[float, Choice | None]] = {(layers, 0, 0): (0.0, None)}
    # stages are added in front: layer by layer from the end
    ends: dict[int, list[Key]] = {layers: [(layers, 0, 0)]}
    for start in range(layers - 1, -1, -1):
        here: dict[Key, tuple[float, Choice | None]] = {}
        for c in by_start.get(start, ()):
            if c.seconds.value > bound:
                continue
            for key in ends.get(c.end + 1, ()):
                _, following, used = key
                total = used + c.devices
                if total > devices or not fits(c, following, microbatches, limit):
                    continue
                cost = states[key][0] + c.seconds.value
                new = (start, following + 1, total)
                if new not in here or cost < here[new][0]:
                    here[new] = (cost, c)
        states |= here
        ends[start] = list(here)
    whole = [k for k in ends.get(0, ()) if k[2] == devices or not all_devices]
    if not whole:
        return None
    key = min(whole, key=lambda k: (states[k][0], k[1]))
    stages: list[Choice] = []
    while key[0] < layers:
        choice = states[key][1]
        assert choice is not None
        stages.append(choice)
        key = (choice.end + 1, key[1] - 1, key[2] - choice.devices)
    return tuple(stages)


def every_solution(
    choices: Sequence[Choice],
    layers: int,
    devices: int,
    microbatches: int,
    *,
    memory_bytes: float | None = None,
    all_devices: bool = True,
    limit: int = 100_000,
) -> Iterator[Solution]:
    """All possible pipelines, at most ``limit``: what the solver chose among."""
    by_end: dict[int, list[Choice]] = defaultdict(list)
    for c in choices:
        by_end[c.end].append(c)

    def before(end: int, left: int, tail: tuple[Choice, ...]) -> Iterator[tuple[Choice, ...]]:
        if end < 0:
            if left == 0 or not all_devices:
                yield tail
            return
        for c in by_end.get(end, ()):
            if c.devices <= left and fits(c, len(tail), microbatches, memory_bytes):
                yield from before(c.start - 1, left - c.devices, (c, *tail))

    for stages in islice(before(layers - 1, devices, ()), limit):
        yield Solution(stages, objective(stages, microbatches))


def can_be_optimal(solution: Solution, others: Sequence[Solution], microbatches: int) -> bool:
    """Whether some true times within their intervals make it the best of all.

    Its own stages at their lowest and all others at their highest is its most favourable case.
    """
    own = set(solution.stages)

    def score(stages: Sequence[Choice]) -> float:
        times = [c.seconds.low if c in own else c.seconds.high for c in stages]
        return sum(times) + (microbatches - 1) * max(times)

    mine = score(solution.stages)
    return all(mine <= score(o.stages) + 1e-12 for o in others)
