"""One pass that changed a module."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ..text.results import Row
from ..text.units import duration

LAST = "after_optimizations"
COUNTED = ("instructions", "fusions", "copies", "transposes", "collectives")


@dataclass(frozen=True, slots=True, repr=False)
class Pass(Row):
    """One pass that changed the module, and how.

    ``counts`` are those after it, ``change`` the differences from the pass before: instructions,
    fusions, copies, transposes, collectives. ``appeared`` and ``gone`` are names of
    instructions; ``lost`` numbers of StableHLO operations without instructions after it, () for a
    dump from elsewhere. ``only_metadata``: nothing else changed. ``seconds``: what it took itself
    in the compile that was measured, see ``Passes.times``; None if unknown.
    """

    index: int
    number: int
    pipeline: str
    name: str
    counts: dict[str, int]
    change: dict[str, int]
    appeared: tuple[str, ...] = field(repr=False)
    gone: tuple[str, ...] = field(repr=False)
    lost: tuple[int, ...] = field(repr=False, default=())
    only_metadata: bool = False
    seconds: float | None = None

    @property
    def title(self) -> str:
        """``algsimp``; in words if it is not a pass."""
        if self.name == LAST:
            return "after all passes"
        return self.name or ("start of " + self.pipeline if self.pipeline else "before any pass")

    def to_dict(self) -> dict[str, Any]:
        return {
            "number": self.number,
            "pipeline": self.pipeline,
            "pass": self.name,
            "seconds": self.seconds,
            **self.counts,
            "change": dict(self.change),
            "appeared": len(self.appeared),
            "gone": len(self.gone),
            "lost_operations": list(self.lost),
        }

    def __str__(self) -> str:
        said = [f"{n:+,} {what}" for what, n in self.change.items() if n]
        took = "" if self.seconds is None else f", {duration(self.seconds)}"
        return f"{self.title}: {', '.join(said) or 'same counts'}{took}"
