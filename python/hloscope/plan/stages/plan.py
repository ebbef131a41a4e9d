"""``StagePlan``: the best way to cut a model into pipeline stages, and what it was chosen from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .choices import Choice, exactly, objective
from .schedules import KINDS, Schedule, schedule
from .solver import Solution, can_be_optimal, every_solution, solve

if TYPE_CHECKING:
    import pandas as pd

# At most this many whole pipelines are listed and compared; there can be very many.
LISTED = 5_000


@dataclass(frozen=True, eq=False)
class StagePlan:
    """What ``hs.plan_stages`` returns. Prints a table; the last line of a cell is a view.

    ``best`` minimises Σt + (B−1)·max t over ``choices`` with every device used, None when no
    pipeline is possible. ``given`` is what a log says was chosen, where known. ``failed`` are
    stages without times, with the reason.
    """

    choices: tuple[Choice, ...]
    layers: tuple[str, ...]
    devices: int
    microbatches: int
    best: Solution | None
    memory_bytes: float | None = None
    given: Solution | None = None
    failed: tuple[str, ...] = ()
    origin: str = "modelled"  # where the times come from: "modelled", "measured"
    all_devices: bool = True

    @cached_property
    def solutions(self) -> tuple[Solution, ...]:
        """Every possible pipeline, best first; at most 5,000 of them."""
        found = every_solution(
            self.choices, len(self.layers), self.devices, self.microbatches,
            memory_bytes=self.memory_bytes, all_devices=self.all_devices, limit=LISTED,
        )  # fmt: skip
        return tuple(sorted(found, key=lambda s: (s.objective.value, len(s.stages))))

    @property
    def solutions_cut(self) -> bool:
        """Whether there are more pipelines than ``solutions`` holds."""
        return len(self.solutions) >= LISTED

    @cached_property
    def possibly_optimal(self) -> tuple[Solution, ...]:
        """The pipelines that are the best for some true times within the intervals."""
        all_ = self.solutions
        low = min((s.objective.high for s in all_), default=0.0)
        near = [s for s in all_ if s.objective.low <= low]
        return tuple(s for s in near if can_be_optimal(s, near, self.microbatches))

    @property
    def shown(self) -> Solution | None:
        """The pipeline that pictures show: ``given`` where there is one, else ``best``."""
        return self.given or self.best

    def with_changes(
        self, *, microbatches: int | None = None, seconds: Mapping[int, float] | None = None
    ) -> StagePlan:
        """The plan for other microbatches, or with times of ``choices`` set by hand.

        ``seconds``: index into ``choices`` → forward and backward seconds together; their ratio
        stays as it was. Raises ``ValueError`` for an invalid index or number.
        """
        b = self.microbatches if microbatches is None else microbatches
        if b < 1:
            raise ValueError(f"a step has at least one microbatch, not {b}")
        changed = list(self.choices)
        for index, value in (seconds or {}).items():
            if not 0 <= index < len(changed):
                raise ValueError(f"there is no choice {index}; there are {len(changed)}")
            if not value > 0:
                raise ValueError(f"the time of a stage must be above 0, not {value}")
            changed[index] = _retimed(changed[index], value)
        given = None
        if self.given is not None:
            where = {id(c): n for n, c in enumerate(self.choices)}
            kept = tuple(changed[where[id(c)]] for c in self.given.stages)
            given = Solution(kept, objective(kept, b))
        best = solve(
            changed, len(self.layers), self.devices, b,
            memory_bytes=self.memory_bytes, all_devices=self.all_devices,
        )  # fmt: skip
        return replace(self, choices=tuple(changed), microbatches=b, best=best, given=given)

    def schedule(self, kind: str = "1f1b", solution: Solution | None = None) -> Schedule:
        """When each device does what: "gpipe", "1f1b", "interleaved" or "zero-bubble".

        Raises ``ValueError`` without a solution, and for an unknown kind.
        """
        chosen = solution or self.shown
        if chosen is None:
            raise ValueError("there is no pipeline to schedule: see the plan's text for why")
        stages = chosen.stages
        return schedule(
            kind,
            forward=[c.forward.value for c in stages],
            backward=[c.backward.value for c in stages],
            microbatches=self.microbatches,
            activation_bytes=[c.activation_bytes for c in stages],
            fixed_bytes=[c.fixed_bytes for c in stages],
        )

    def schedules(self) -> dict[str, Schedule]:
        """Every kind of schedule that these stages and microbatches allow."""
        found = {}
        for kind in KINDS:
            try:
                found[kind] = self.schedule(kind)
            except ValueError:
                continue
        return found

    def to_dict(self) -> dict[str, Any]:
        """Plain data: the choices, the best pipeline, how many others there are."""
        return {
            "kind": "stages",
            "origin": self.origin,
            "layers": list(self.layers),
            "devices": self.devices,
            "microbatches": self.microbatches,
            "memory_bytes": self.memory_bytes,
            "choices": [_choice_dict(c) for c in self.choices],
            "best": self._solution_dict(self.best),
            "given": self._solution_dict(self.given),
            "pipelines": len(self.solutions),
            "pipelines_cut": self.solutions_cut,
            "possibly_optimal": len(self.possibly_optimal),
            "failed": list(self.failed),
        }

    def _solution_dict(self, s: Solution | None) -> dict[str, Any] | None:
        if s is None:
            return None
        where = {id(c): n for n, c in enumerate(self.choices)}
        o = s.objective
        return {
            "choices": [where[id(c)] for c in s.stages],
            "objective_seconds": {"value": o.value, "low": o.low, "high": o.high},
            "devices": s.devices,
        }

    def to_pandas(self) -> pd.DataFrame:
        """One row per choice. Needs pandas."""
        import pandas as pd

        return pd.DataFrame([_choice_dict(c) for c in self.choices])

    def to_html(self, path: str | Path | None = None) -> str | Path:
        """One offline page: matrix, pipeline, schedules. Writes ``path``, or returns the page."""
        from ...show.pages.page import save
        from .view import stage_data

        return save("Pipeline stages", stage_data(self), repr(self), path)

    def __repr__(self) -> str:
        from .text import text

        return text(self)

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> Any:
        from ...show.pages.page import mimebundle
        from .view import answer, stage_data

        return mimebundle("Pipeline stages", stage_data(self), repr(self), answer(self))


def make_plan(
    choices: Sequence[Choice],
    layers: Sequence[str],
    devices: int,
    microbatches: int,
    **options: Any,
) -> StagePlan:
    """Finds the best pipeline and keeps the choices. ``options`` are fields of ``StagePlan``."""
    best = solve(
        choices,
        len(layers),
        devices,
        microbatches,
        memory_bytes=options.get("memory_bytes"),
        all_devices=options.get("all_devices", True),
    )
    return StagePlan(tuple(choices), tuple(layers), devices, microbatches, best, **options)


def _retimed(c: Choice, seconds: float) -> Choice:
    whole = c.seconds.value
    share = c.forward.value / whole if whole else 0.5
    return replace(c, forward=exactly(seconds * share), backward=exactly(seconds * (1 - share)))


def _choice_dict(c: Choice) -> dict[str, Any]:
    return {
        "start": c.start,
        "end": c.end,
        "submesh": list(c.submesh),
        "option": c.option,
        "forward_seconds": c.forward.value,
        "backward_seconds": c.backward.value,
        "seconds": c.seconds.value,
        "seconds_low": c.seconds.low,
        "seconds_high": c.seconds.high,
        "fixed_bytes": c.fixed_bytes,
        "activation_bytes": c.activation_bytes,
    }
