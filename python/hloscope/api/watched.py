"""What ``watch`` returns: the compiles it saw."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..analysis.text.results import Row, Rows
from ..hlo.texts.places import short_line
from .capture import Capture
from .files import written
from .hosts import host

FIRST = "first"


@dataclass(frozen=True, eq=False, repr=False)
class Compile(Row):
    """One compile, with seconds for tracing, lowering and compiling; ``at`` since watching began.

    ``causes``: what changed from the nearest earlier compile of the same function, such as
    ("shape",); ("first",) for the first, ("unknown",) where jax did not show the call, and
    ("the same",) where jax had dropped what it compiled.

    ``cache`` is what jax's persistent compilation cache did: "hit" ("miss", "" where it was not
    asked); then ``compile_seconds`` are those of reading it. ``cache_why`` says of a miss what the
    cache's folder shows, and whether the program is kept there now.
    """

    function: str
    place: str  # where the function is defined: file:line
    caller: str  # the line that called it: file:line
    at: float
    trace_seconds: float
    lower_seconds: float
    compile_seconds: float
    causes: tuple[str, ...]
    changed: str
    of_library: bool  # a function of jax's own, such as one for ``x + 1`` outside of jit
    cache: str = ""
    cache_why: str = ""
    _open: Callable[[dict[str, Any]], Any] | None = field(default=None, repr=False)

    def __getstate__(self) -> dict[str, Any]:
        """Without the call that would be compiled again, which stays in its process."""
        return {**self.__dict__, "_open": None}

    @property
    def seconds(self) -> float:
        return self.trace_seconds + self.lower_seconds + self.compile_seconds

    def capture(self, **options: Any) -> Capture:
        """What XLA made of it, by compiling it again as ``hs.capture`` does.

        Raises ``ValueError`` if the call was not seen.
        """
        if self._open is None:
            raise ValueError(f"the arguments of {self.function} were not seen in this process")
        found: Capture = self._open(options)
        return found

    @property
    def can_open(self) -> bool:
        """Whether ``capture`` can compile it again: jax showed the call."""
        return self._open is not None

    def to_dict(self) -> dict[str, Any]:
        names = (
            "function", "place", "caller", "at", "trace_seconds", "lower_seconds",
            "compile_seconds", "changed", "of_library", "cache", "cache_why",
        )  # fmt: skip
        return {n: getattr(self, n) for n in names} | {"causes": list(self.causes)}

    def __str__(self) -> str:
        at = f" called at {short_line(self.caller)}" if self.caller else ""
        return f"{self.function}{at}: {self.changed}{self.cached} ({_seconds(self.seconds)})"

    @property
    def cached(self) -> str:
        """``; from the persistent cache``, or of a miss why; "" where it was not asked."""
        if self.cache == "hit":
            return "; from the persistent cache"
        why = f": {self.cache_why}" if self.cache_why else ""
        return f"; not in the persistent cache{why}" if self.cache == "miss" else ""


class Watched(Rows[Compile]):
    """The compiles that ``watch`` saw, in order; of jax's own functions only with ``library``."""

    def __init__(self) -> None:
        self.everything: list[Compile] = []

    @property
    def compiles(self) -> tuple[Compile, ...]:
        """Compiles of the user's own functions."""
        return tuple(c for c in self.everything if not c.of_library)

    @property
    def recompiles(self) -> tuple[Compile, ...]:
        """Compiles after the first of each function."""
        return tuple(c for c in self.compiles if c.causes != (FIRST,))

    @property
    def cache_hits(self) -> int:
        """Compiles of the user's own functions that jax's persistent cache spared."""
        return sum(c.cache == "hit" for c in self.compiles)

    @property
    def cache_misses(self) -> int:
        """Those for which the persistent cache was asked and had nothing."""
        return sum(c.cache == "miss" for c in self.compiles)

    COLUMNS = (
        "function", "place", "caller", "at", "trace_seconds", "lower_seconds", "compile_seconds",
        "changed", "of_library", "cache", "cache_why", "causes",
    )  # fmt: skip

    def _all(self) -> tuple[Compile, ...]:
        return self.compiles

    def _totals(self) -> dict[str, Any]:
        """Beside the user's own functions, those of jax."""
        return {"library": [c.to_dict() for c in self.everything if c.of_library]}

    def __str__(self) -> str:
        if not self.everything:
            return "nothing was compiled"
        from ..hlo.parts import printable

        functions: dict[tuple[str, str], list[Compile]] = {}
        for c in self.compiles:
            functions.setdefault((c.function, c.place), []).append(c)
        lines = []
        for (name, place), found in functions.items():
            total = _seconds(sum(c.seconds for c in found))
            times = f"{len(found)} time{'s' * (len(found) > 1)}"
            lines.append(f"{name} ({short_line(place)}) was compiled {times}, {total}")
            for c in found:
                at = f", line {c.caller.rpartition(':')[2]}" if c.caller else ""
                split = "/".join(
                    _seconds(s) for s in (c.trace_seconds, c.lower_seconds, c.compile_seconds)
                )
                lines.append(
                    f"  +{_seconds(c.at)}{at}: {c.changed}{c.cached} (trace/lower/compile {split})"
                )
        if self.cache_hits or self.cache_misses:
            lines.append(
                f"persistent cache: {self.cache_hits:,} hits, {self.cache_misses:,} misses"
            )
        own = [c for c in self.everything if c.of_library]
        if own:
            total = _seconds(sum(c.seconds for c in own))
            lines.append(f"and {len(own)} of jax's own small functions, {total}")
        return "\n".join(map(printable, lines))

    def html(self) -> str:
        """The table and the timeline as one offline page, as text."""
        return str(host("watched page")(self))

    def to_html(self, path: str | Path) -> Path:
        """Writes ``html`` to ``path`` and returns the path."""
        return written(path, self.html())

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> Any:
        return host("watched bundle")(self)


def _seconds(value: float) -> str:
    return f"{value * 1e3:.0f} ms" if value < 1 else f"{value:.1f} s"
