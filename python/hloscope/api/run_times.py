"""A program's runs at a glance: how long one takes, and whether devices or host set the pace."""

from __future__ import annotations

from dataclasses import dataclass, field
from statistics import median, quantiles
from typing import Any

from ..analysis.cost.cost import Cost
from ..analysis.measured.measured import Measured
from ..analysis.text.results import Printed
from ..analysis.text.units import duration, marked, printed
from .shown import Shown

# Of a run: more than this without an operation on the devices is said to wait for the host.
_WAITS = 0.5
# Below this share it is no more than the figures are exact to.
_WORTH_SAYING = 0.01
# Of a run: profiled runs that take this much longer do not tell how long devices wait in others.
_DISTURBED = 0.2


@dataclass(frozen=True, repr=False)
class RunTimes(Shown, Printed):
    """Seconds of each run, measured without a profiler, after one to warm up.

    ``seconds``: from the call to the end of the last device's work; ``call_seconds``: until the
    call returned, which on a CPU may be the same. ``measured`` is a profile of other runs of it.
    ``cost`` has the modelled step. Prints a few lines; the last line of a cell is a view.
    """

    seconds: tuple[float, ...]
    call_seconds: tuple[float, ...]
    measured: Measured = field(repr=False)
    cost: Cost = field(repr=False)

    @property
    def median_seconds(self) -> float:
        return median(self.seconds)

    @property
    def spread(self) -> tuple[float, float]:
        """The seconds between which half of the runs are: quartiles."""
        if len(self.seconds) < 2:
            return self.seconds[0], self.seconds[0]
        low, _, high = quantiles(self.seconds, n=4, method="inclusive")
        return low, high

    @property
    def modelled_seconds(self) -> float | None:
        """The modelled step, None without a chip; at least that where ``is_least``."""
        return None if self.cost.roofline is None else self.cost.roofline.known_seconds

    @property
    def is_least(self) -> bool:
        """Whether the modelled seconds leave something out: loops, or work of unknown time."""
        roofline = self.cost.roofline
        if self.cost.may_not_run or roofline is None:
            return False
        return bool(self.cost.unknown_trip_counts or roofline.is_least)

    @property
    def device_seconds(self) -> float:
        """Seconds of a step in which the devices work, from the profile: first operation to last,
        or the sum of all operations where a trace does not tell."""
        wall = self.measured.wall_seconds
        return wall if wall > 0 else self.measured.total_seconds

    @property
    def idle_share(self) -> float:
        """Share of a run in which the devices had no operation of it, 0 to 1."""
        return max(0.0, 1.0 - self.device_seconds / self.median_seconds)

    @property
    def is_dispatch_bound(self) -> bool:
        """Whether most of a run passes on the host, before and after the devices' work."""
        return self.idle_share > _WAITS

    def to_dict(self) -> dict[str, Any]:
        return {
            "runs": len(self.seconds),
            "median_seconds": self.median_seconds,
            "quartiles": list(self.spread),
            "least_seconds": min(self.seconds),
            "most_seconds": max(self.seconds),
            "call_seconds": median(self.call_seconds),
            "device_seconds": self.device_seconds,
            "idle_share": self.idle_share,
            "is_dispatch_bound": self.is_dispatch_bound,
            "modelled_seconds": self.modelled_seconds,
            "modelled_is_least": self.is_least,
        }

    def __str__(self) -> str:
        low, high = self.spread
        lines = [
            f"a run takes {duration(self.median_seconds)} (median of {len(self.seconds):,}; half of"
            f" them {duration(low)} to {duration(high)}, all {duration(min(self.seconds))} to"
            f" {duration(max(self.seconds))})",
            f"the call returns after {duration(median(self.call_seconds))}; the devices work for"
            f" {duration(self.device_seconds)} of a run (profile of {self.measured.steps:,} runs)",
        ]
        if self.verdict:
            lines.append(self.verdict)
        if self.modelled:
            lines.append(f"modelled: {self.modelled}")
        return printed(lines)

    @property
    def verdict(self) -> str:
        """What the devices do in a run, in a sentence; "" where they work all the time."""
        if self.device_seconds > (1 + _DISTURBED) * self.median_seconds:
            return (
                "the devices worked for longer in the profiled runs than these runs took: the"
                " profiler or another process slowed them down"
            )
        if self.is_dispatch_bound:
            return (
                f"dispatch-bound: for {self.idle_share:.0%} of a run no operation of it runs on the"
                " devices, which wait for the host"
            )
        if self.idle_share >= _WORTH_SAYING:
            return f"for {self.idle_share:.0%} of a run no operation of it runs"
        return ""

    @property
    def modelled(self) -> str:
        """The modelled step and its chip: "≥ 1.2 ms on TPU v5e"; "" without a chip."""
        chip = self.cost.hardware
        if self.modelled_seconds is None or chip is None:
            return ""
        once = bool(self.cost.may_not_run)
        found = duration(self.modelled_seconds)
        return f"{marked(found, is_least=self.is_least, is_one_trip=once)} on {chip.label}"
