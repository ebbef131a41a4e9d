"""``hs.diff``: two captures compared, with both kept for pictures."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any, overload

from ..analysis.base.captured import Captured
from ..analysis.diff.diff import compare
from ..analysis.diff.measured import MeasuredDiff, measured_diff
from ..analysis.diff.result import Diff
from ..analysis.diff.text import LIMIT, text
from .files import written
from .hosts import host
from .live import Live, LiveDiff

# CSS pixels of a comparison in a notebook.
HEIGHT = 760


class Comparison(Diff):
    """The result of ``hs.diff``; true when the programs differ. Prints as text, displays itself.

    It keeps both programs: ``show()`` and ``html`` show them as pictures, side by side, with
    boxes matched and changes coloured. ``sides``: both programs, and the indices of the
    instructions that correspond.
    """

    __slots__ = ("_measured", "sides")
    sides: tuple[Captured, Captured, tuple[tuple[int, int], ...]]
    _measured: MeasuredDiff | None

    @property
    def measured(self) -> MeasuredDiff | None:
        """What became slower and faster; None unless both captures have measured time."""
        a, b, pairs = self.sides
        times = getattr(a, "measured", None), getattr(b, "measured", None)
        if times[0] is None or times[1] is None:
            return None
        if getattr(self, "_measured", None) is None:
            found = measured_diff(a, b, (times[0], times[1]), pairs)
            object.__setattr__(self, "_measured", found)
        return self._measured

    def to_dict(self) -> dict[str, Any]:
        """Plain data; "measured" is there where both captures have measured time."""
        measured = self.measured
        found: dict[str, Any] = super().to_dict()
        return found if measured is None else {**found, "measured": measured.to_dict()}

    def __str__(self) -> str:
        return self.as_text()

    def as_text(self, limit: int = LIMIT) -> str:
        """As it prints, with at most ``limit`` instructions of each kind."""
        parts = [text(self, limit)]
        if self.measured is not None:
            parts.append(str(self.measured))
        return "\n".join(parts)

    def __reduce__(self) -> tuple[Any, ...]:
        values = {f.name: getattr(self, f.name) for f in fields(Diff)}
        return _comparison, (values, self.sides)

    def html(self) -> str:
        """One offline page, as text."""
        return str(host("compared page")(self))

    def to_html(self, path: str | Path) -> Path:
        """Writes ``html`` to ``path`` and returns the path."""
        return written(path, self.html())

    def to_markdown(self) -> str:
        """What differs, for a pull request: totals, findings of one side only, folded lists."""
        return str(host("compared markdown")(self))

    def show(self, *, height: int = HEIGHT) -> None:
        """Shows both pictures as this cell's output. ``height``: CSS pixels.

        Raises ``ImportError`` without IPython.
        """
        from IPython.display import display

        display(self._bundle(height), raw=True)  # type: ignore[no-untyped-call]

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        return self._bundle(HEIGHT)

    def _bundle(self, height: int) -> dict[str, Any]:
        return {"text/plain": str(self), "text/html": host("compared frame")(self, height)}


@overload
def diff(a: Captured, b: Captured) -> Comparison: ...
@overload
def diff(a: Live, b: Live) -> LiveDiff: ...
def diff(a: Any, b: Any) -> Comparison | LiveDiff:
    """Compares two captures by structure, whatever the names of their instructions.

    Of two ``hs.live()``: what there is more of and less of, which finds leaks.

    >>> print(hs.diff(hs.read("before.hlo"), hs.read("after.hlo")))
    >>> hs.diff(before, after).show()  # two pictures, what changed in colour
    """
    if isinstance(a, Live) and isinstance(b, Live):
        return a.diff(b)
    found, pairs = compare(a, b)
    values = {f.name: getattr(found, f.name) for f in fields(Diff)}
    values["title_a"], values["title_b"] = _titles(a, b)
    return _comparison(values, (a, b, pairs))


def _titles(a: Captured, b: Captured) -> tuple[str, str]:
    """Their titles; the names of their files too, if the titles are the same."""
    if a.title != b.title:
        return a.title, b.title
    files = [str(getattr(p, "file", "") or "") for p in (a, b)]
    names = [Path(file).name for file in files]
    if names[0] == names[1]:  # the folders tell them apart
        names = [str(Path(*Path(file).parts[-2:])) if file else "" for file in files]
    if names[0] == names[1]:
        return a.title, b.title
    first, second = (
        f"{name} · {p.title}" if name else p.title for name, p in zip(names, (a, b), strict=True)
    )
    return first, second


def _comparison(values: dict[str, Any], sides: Any) -> Comparison:
    made = Comparison(**values)
    object.__setattr__(made, "sides", sides)
    return made
