"""Pipeline schedules: which device does what and when, with what in memory.

    device 0  F0 F1 F2 F3 .. .. B0 .. B1          F forward, B backward of a microbatch,
    device 1  .. F0 F1 F2 B0 ..                    W gradients of weights where split off from B

The order of work on every device is decided first, then everything runs as early as its
inputs and its device allow. Sending between stages takes no time here.

=============  ================================================================================
gpipe          all forward, then all backward; B microbatches in flight. Huang et al. 2018
1f1b           backward as soon as possible; at most S−i in flight. Narayanan et al. 2019
interleaved    v groups of layers on each device; the bubble shrinks by v, more is in flight.
               Narayanan et al. 2021; the microbatches must be a multiple of S
zero-bubble    the backward pass split into inputs (B) and weights (W), W where it would idle;
               at most S in flight on any device, as 1f1b's first. Qi et al. 2023, ZB-H1
=============  ================================================================================
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

KINDS = ("gpipe", "1f1b", "interleaved", "zero-bubble")
# The share of a backward pass for gradients of weights: half, where the parts are matmuls.
WEIGHT_SHARE = 0.5


@dataclass(frozen=True, slots=True)
class ScheduledWork:
    """One piece of work on one device, seconds from the start of the step."""

    device: int
    stage: int
    microbatch: int
    kind: str  # "F", "B" or "W"
    start: float
    end: float


@dataclass(frozen=True, slots=True)
class Schedule:
    """The result of ``schedule``: work in the order of its start."""

    kind: str
    devices: int
    microbatches: int
    work: tuple[ScheduledWork, ...]
    activation_bytes: tuple[float | None, ...]  # by stage, of one microbatch
    fixed_bytes: tuple[float | None, ...]  # by device

    @property
    def seconds(self) -> float:
        """Seconds of the whole step."""
        return max((w.end for w in self.work), default=0.0)

    @property
    def bubble_share(self) -> float:
        """Idle time of all devices over all their time."""
        whole = self.seconds * self.devices
        busy = sum(w.end - w.start for w in self.work)
        return 1 - busy / whole if whole else 0.0

    def in_flight(self, device: int) -> list[tuple[float, int]]:
        """(second, microbatches whose activations the device holds from then on)."""
        return [(t, n) for t, n, _ in self._held(device)]

    def most_in_flight(self, device: int) -> int:
        return max((n for _, n in self.in_flight(device)), default=0)

    def memory(self, device: int) -> list[tuple[float, float]] | None:
        """(second, bytes the device holds from then on); None where sizes are unknown."""
        fixed = self.fixed_bytes[device]
        stages = {w.stage for w in self.work if w.device == device}
        if fixed is None or any(self.activation_bytes[s] is None for s in stages):
            return None
        return [(t, fixed + held) for t, _, held in self._held(device)]

    def _held(self, device: int) -> list[tuple[float, int, float]]:
        """(second, microbatches, bytes) held from then on.

        A forward pass holds its activations until the last part of its backward pass.
        """
        last: dict[tuple[int, int], float] = {}
        for w in self.work:
            if w.device == device and w.kind != "F":
                key = (w.stage, w.microbatch)
                last[key] = max(last.get(key, 0.0), w.end)
        # work that ends at a moment frees its bytes before work that starts then takes its own
        events = []
        for w in self.work:
            if w.device == device and w.kind == "F":
                size = self.activation_bytes[w.stage] or 0.0
                events.append((w.start, 1, 1, size))
                events.append((last[(w.stage, w.microbatch)], 0, -1, -size))
        out: list[tuple[float, int, float]] = []
        count, held = 0, 0.0
        for t, _, n, size in sorted(events):
            count, held = count + n, held + size
            if out and out[-1][0] == t:
                out.pop()
            out.append((t, count, held))
        return out

    def to_dict(self) -> dict[str, Any]:
        """Plain data: work as rows, bubble share, memory of every device."""
        return {
            "kind": self.kind,
            "devices": self.devices,
            "microbatches": self.microbatches,
            "seconds": self.seconds,
            "bubble_share": self.bubble_share,
            "in_flight": [self.most_in_flight(d) for d in range(self.devices)],
            "memory": [self.memory(d) for d in range(self.devices)],
            "work": [[w.device, w.stage, w.microbatch, w.kind, w.start, w.end] for w in self.work],
        }


Order = list[list[tuple[str, int, int]]]  # by device: (kind, stage, microbatch)


def schedule(
    kind: str,
    *,
    forward: Sequence[float],
    backward: Sequence[float],
    microbatches: int,
    chunks: int = 2,
    activation_bytes: Sequence[float | None] | None = None,
    fixed_bytes: Sequence[float | None] | None = None,
) -> Schedule:
    """The schedule of stages with these seconds per microbatch.

    ``interleaved`` cuts each stage into ``chunks`` equal groups of layers. Raises ``ValueError``
    for an unknown kind and for numbers that do not fit it.
    """
    stages = len(forward)
    if kind not in KINDS:
        raise ValueError(f"there is no schedule {kind!r}; there are {', '.join(KINDS)}")
    if stages == 0 or len(backward) != stages:
        raise ValueError("give forward and backward seconds of every stage")
    if microbatches < 1:
        raise ValueError(f"a step has at least one microbatch, not {microbatches}")
    activation = tuple(activation_bytes or (None,) * stages)
    fixed = tuple(fixed_bytes or (None,) * stages)
    f, b = list(forward), list(backward)
    if kind == "interleaved":
        if chunks < 2:
            raise ValueError(f"interleaving needs at least 2 chunks a device, not {chunks}")
        if microbatches % stages:
            raise ValueError(
                f"interleaving needs microbatches ({microbatches}) that divide by the stages "
                f"({stages})"
            )
        # virtual stage s runs on device s % stages, with 1/chunks of that device's layers
        count = stages * chunks
        f = [forward[s % stages] / chunks for s in range(count)]
        b = [backward[s % stages] / chunks for s in range(count)]
        sizes = [activation[s % stages] for s in range(count)]
        activation = tuple(None if a is None else a / chunks for a in sizes)
        order = _interleaved(stages, microbatches, chunks)
        work = _run(order, f, b, [0.0] * count, count)
    elif kind == "zero-bubble":
        work = _zero_bubble(f, b, microbatches)
    else:
        order = (_gpipe if kind == "gpipe" else _one_by_one)(stages, microbatches)
        work = _run(order, f, b, [0.0] * stages, stages)
    work.sort(key=lambda w: (w.start, w.device, w.end))
    return Schedule(kind, stages, microbatches, tuple(work), activation, fixed)


def _gpipe(stages: int, count: int) -> Order:
    return [
        [("F", s, m) for m in range(count)] + [("B", s, m) for m in reversed(range(count))]
        for s in range(stages)
    ]


def _one_by_one(stages: int, count: int) -> Order:
    out: Order = []
    for s in range(stages):
        ahead = min(stages - s - 1, count)
        line = [("F", s, m) for m in range(ahead)]
        for m in range(count - ahead):
            line += [("F", s, m + ahead), ("B", s, m)]
        out.append(line + [("B", s, m) for m in range(count - ahead, count)])
    return out


def _interleaved(stages: int, count: int, chunks: int) -> Order:
    """Microbatches go round in groups as large as the pipeline, chunk after chunk."""
    total = count * chunks

    def piece(k: int, forward: bool) -> tuple[int, int]:
        group, inside = divmod(k, stages * chunks)
        chunk, first = divmod(inside, stages)
        return (chunk if forward else chunks - 1 - chunk), group * stages + first

    out: Order = []
    for d in range(stages):
        ahead = min((stages - d - 1) * 2 + (chunks - 1) * stages, total)
        line = []
        for k in range(total + ahead):
            if k < total:
                chunk, m = piece(k, True)
                line.append(("F", chunk * stages + d, m))
            if k >= ahead:
                chunk, m = piece(k - ahead, False)
                line.append(("B", chunk * stages + d, m))
        out.append(line)
    return out


def _run(
    order: Order, f: Sequence[float], b: Sequence[float], w: Sequence[float], stages: int
) -> list[ScheduledWork]:
    """Everything as early as possible, in its device's order."""
    done: dict[tuple[str, int, int], float] = {}
    free = [0.0] * len(order)
    at = [0] * len(order)
    out: list[ScheduledWork] = []
    left = sum(map(len, order))
    while left:
        moved = False
        for d, line in enumerate(order):
            while at[d] < len(line):
                kind, s, m = line[at[d]]
                ready = _ready(kind, s, m, stages, done)
                if ready is None:
                    break
                start = max(free[d], ready)
                end = start + {"F": f, "B": b, "W": w}[kind][s]
                done[(kind, s, m)] = free[d] = end
                out.append(ScheduledWork(d, s, m, kind, start, end))
                at[d] += 1
                left -= 1
                moved = True
        if not moved:
            raise ValueError("this order of work waits for itself")
    return out


def _ready(
    kind: str, s: int, m: int, stages: int, done: dict[tuple[str, int, int], float]
) -> float | None:
    """When the inputs of a piece of work are ready; None when not all are known yet."""
    if kind == "F":
        return 0.0 if s == 0 else done.get(("F", s - 1, m))
    if kind == "W":
        return done.get(("B", s, m))
    own = done.get(("F", s, m))
    after = own if s == stages - 1 else done.get(("B", s + 1, m))
    return None if own is None or after is None else max(own, after)


def _zero_bubble(f: Sequence[float], b: Sequence[float], count: int) -> list[ScheduledWork]:
    """The shortest of a few greedy rules; none holds more than S microbatches on a device."""
    stages = len(f)
    tries = [
        _greedy(f, b, count, ranks, [ahead(d) for d in range(stages)])
        for ranks in ("FBW", "BFW")
        for ahead in (lambda d: stages, lambda d: stages - d)
    ]
    return min(tries, key=lambda work: max(w.end for w in work))


def _greedy(
    f: Sequence[float], b: Sequence[float], count: int, ranks: str, ahead: Sequence[int]
) -> list[ScheduledWork]:
    """Each device takes, of what can start first, B before F before W (or as ``ranks`` says).

    ``ahead``: how many forward passes a device may be ahead of its own backward passes.
    """
    stages = len(f)
    split = [x * (1 - WEIGHT_SHARE) for x in b], [x * WEIGHT_SHARE for x in b]
    done: dict[tuple[str, int, int], float] = {}
    free = [0.0] * stages
    next_of = {"F": [0] * stages, "B": [0] * stages, "W": [0] * stages}
    out: list[ScheduledWork] = []
    while len(out) < 3 * stages * count:
        # the device that can start soonest goes next, so that nothing starts in the past
        options = []
        for d in range(stages):
            f_at, b_at, w_at = (next_of[k][d] for k in "FBW")
            room = f_at - w_at < stages and f_at - b_at < ahead[d]
            for rank, kind in enumerate(ranks):
                m = next_of[kind][d]
                if m >= count or (kind == "F" and not room) or (kind == "W" and m >= b_at):
                    continue
                ready = _ready(kind, d, m, stages, done)
                if ready is not None:
                    options.append((max(free[d], ready), rank, d, kind, m))
        start, _, d, kind, m = min(options)
        seconds = {"F": f, "B": split[0], "W": split[1]}[kind][d]
        done[(kind, d, m)] = free[d] = start + seconds
        next_of[kind][d] += 1
        out.append(ScheduledWork(d, d, m, kind, start, start + seconds))
    return out
