"""A line of the comparison of an analytic transformer with its program."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ComparedLine:
    """One figure per device for a whole step: from formulas, and counted in the program.

    ``part``: "FLOPs", "wire" (by kind of collective and axes), "layer" (the same bytes by layer,
    pass and what is sent) or "memory".
    """

    part: str
    name: str
    unit: str
    analytic: float | None
    compiled: float | None
    why: str

    @property
    def difference(self) -> float | None:
        """Compiled over analytic, minus one; None if either is unknown or analytic is 0."""
        if not self.analytic or self.compiled is None:
            return None
        return self.compiled / self.analytic - 1
