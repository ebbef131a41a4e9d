"""``Proof``: what a finding's advice gave when it was carried out and compiled."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...hlo.changes import MAY_ALTER, Changes, ProgramChange
from ..text.results import Row
from ..text.units import MINUS, duration, quantity, size

# Less than this part of a figure is none: layouts and schedules move it as much by chance.
LEAST_GAIN = 0.02

Pair = tuple[float | None, float | None]  # before and after; None is unknown


@dataclass(frozen=True, slots=True, repr=False)
class FigureChange(Row):
    """A figure of the program before and after a change, per device and step; None is unknown."""

    name: str  # "peak memory", "all-gather over data"
    unit: str  # "B", "s", "FLOP"; "" of a number
    before: float | None
    after: float | None

    @property
    def words(self) -> tuple[str, str, str]:
        """Before, after, and the change of a known one in percent: ``16.3 MiB``, ``-23 %``."""
        texts = quantity(self.before, self.unit), quantity(self.after, self.unit)
        if not self.before or self.after is None or texts[0] == texts[1]:
            return *texts, ""
        percent = f"{100 * (self.after - self.before) / self.before:+.0f}"
        return *texts, "" if percent in ("+0", "-0") else f"{percent.replace('-', MINUS)} %"

    def __str__(self) -> str:
        before, after, change = self.words
        return f"{self.name} {before} → {after}" + (f" ({change})" if change else "")


@dataclass(frozen=True, slots=True, repr=False)
class Proof(Row):
    """A way to follow an advice, tried: figures per device, before and after.

    ``asked`` is for ``cap.what_if(**proof.asked)``, ``changes`` the code for the source.
    ``gains`` is the figure that the finding is about: "peak", "wire" or "step"; ``error`` says why
    there are no figures. Seconds of the step are modelled. ``figures`` are those that differ, and
    the one it is about; ``diff`` is the program beside the changed one, as text, once that was
    asked for.
    """

    asked: Changes
    changes: tuple[ProgramChange, ...]
    gains: str
    step: Pair = (None, None)
    peak: Pair = (None, None)
    wire: Pair = (None, None)
    error: str = ""
    compile_seconds: float | None = None
    figures: tuple[FigureChange, ...] = ()
    diff: str = ""

    @property
    def gain(self) -> float:
        """The part of the figure that is gained; 0 where nothing is known to be."""
        return _gained({"peak": self.peak, "wire": self.wire, "step": self.step}[self.gains])

    @property
    def net(self) -> float:
        """The gain without the part by which the step is longer."""
        return self.gain + min(0.0, _gained(self.step)) * (self.gains != "step")

    @property
    def is_proved(self) -> bool:
        """Whether it gains anything, and more of it than the step loses."""
        return not self.error and self.gain >= LEAST_GAIN and self.net > 0

    @property
    def label(self) -> str:
        """The changes in words."""
        return "; ".join(map(str, self.changes)) or ", ".join(self.asked)

    @property
    def may_alter(self) -> bool:
        """Whether a change may alter values."""
        return any(kind in MAY_ALTER for kind in self.asked)

    def __str__(self) -> str:
        if self.error:
            return f"tried: {self.label}: {self.error}"
        figures = ", ".join(self._figures())
        alter = "; may alter values" if self.may_alter else ""
        if self.is_proved:
            return f"proved: {self.label}: {figures}{alter}"
        said = "costs more than it gains" if self.gain >= LEAST_GAIN else "no gain"
        return f"tried: {self.label}: {said}" + (f" ({figures})" if figures else "")

    def _figures(self) -> list[str]:
        """The figure it is about, and others that moved."""
        pairs = {
            "peak": ("peak", self.peak, size, ""),
            "wire": ("on the wire", self.wire, size, ""),
            "step": ("step", self.step, duration, " (modelled)"),
        }
        out = []
        for name in (self.gains, *(n for n in pairs if n != self.gains)):
            words, (before, after), unit, note = pairs[name]
            if before is None or after is None:
                continue
            if name == self.gains or abs(after - before) > LEAST_GAIN * before:
                out.append(f"{words} {unit(before)} → {unit(after)}{note}")
        return out

    def code_lines(self) -> list[str]:
        """The code for the source, each change below the place that it goes to."""
        out: list[str] = []
        for c in self.changes:
            out += [f"# {c.line}"] if c.line else []
            out += c.code.splitlines()
        return out

    def to_dict(self) -> dict[str, Any]:
        return {
            "words": self.label,
            "kinds": list(self.asked),
            "code": [c.code for c in self.changes],
            "gains": self.gains,
            "gain": self.gain,
            "is_proved": self.is_proved,
            "step_seconds": list(self.step),
            "peak_bytes": list(self.peak),
            "wire_bytes": list(self.wire),
            "error": self.error or None,
            "compile_seconds": self.compile_seconds,
            "figures": [f.to_dict() for f in self.figures],
            "diff": self.diff or None,
        }


def _gained(pair: Pair) -> float:
    before, after = pair
    return (before - after) / before if before and after is not None and before > 0 else 0.0


def measure_of(bytes_of: str) -> str:
    """The figure that a finding is about, by what its bytes are of."""
    return {"peak memory": "peak", "wire": "wire"}.get(bytes_of, "step")
