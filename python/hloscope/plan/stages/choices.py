"""Stages that a pipeline can be cut into, and what each costs: plain frozen data."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ...readers.alpa_log import Interval


def exactly(value: float) -> Interval:
    """A figure without uncertainty."""
    return Interval(value, value, value)


@dataclass(frozen=True, slots=True)
class Choice:
    """Layers ``start`` to ``end`` (both included) as one stage on one submesh.

    Seconds are per microbatch, bytes per device. ``fixed_bytes`` is held throughout (weights,
    gradients, temporaries), ``activation_bytes`` once for every microbatch in flight; None where
    unknown.
    """

    start: int
    end: int
    submesh: tuple[int, ...]
    forward: Interval
    backward: Interval
    option: str = ""  # how it is sharded inside
    fixed_bytes: float | None = None
    activation_bytes: float | None = None

    @property
    def devices(self) -> int:
        n = 1
        for size in self.submesh:
            n *= size
        return n

    @property
    def seconds(self) -> Interval:
        """Forward and backward."""
        return self.forward + self.backward

    @property
    def label(self) -> str:
        layers = f"{self.start}" if self.start == self.end else f"{self.start}–{self.end}"
        mesh = "×".join(map(str, self.submesh))
        return f"layers {layers} on {mesh}" + (f" as {self.option}" if self.option else "")

    def memory(self, in_flight: int) -> float | None:
        """Bytes per device with that many microbatches in flight; None when unknown."""
        if self.fixed_bytes is None or self.activation_bytes is None:
            return None
        return self.fixed_bytes + in_flight * self.activation_bytes


def objective(stages: Sequence[Choice], microbatches: int) -> Interval:
    """Σ t + (B−1) · max t: a pipeline fills once, then its slowest stage sets the pace.

    Source: Zheng et al. 2022, Alpa, equation 2. Monotone in every t, so that the ends of the
    interval are those of all times at their lowest and at their highest.
    """
    times = [c.seconds for c in stages]

    def score(values: Iterable[float]) -> float:
        found = list(values)
        return sum(found) + (microbatches - 1) * max(found)

    return Interval(
        score(t.value for t in times), score(t.low for t in times), score(t.high for t in times)
    )
