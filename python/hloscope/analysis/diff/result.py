"""What ``diff`` returns."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from .differences import Differences
from .page import page
from .text import text


@dataclass(frozen=True, slots=True, repr=False)
class Diff(Differences):
    """What ``hs.diff`` returns; true if the programs differ. Prints as text."""

    def to_html(self, path: str | Path | None = None) -> str | Path:
        """One offline page without scripts. Writes ``path`` and returns it, or returns the page."""
        made = page(self)
        if path is None:
            return made
        Path(path).write_text(made, encoding="utf-8")
        return Path(path)

    def show(self, *, height: int = 760) -> None:
        """Shows both programs, side by side, as this cell's output; ``height`` in CSS pixels.

        What ``hs.diff`` returns keeps the programs; without them this prints the text.
        """
        print(self)

    def __repr__(self) -> str:
        return text(self)
