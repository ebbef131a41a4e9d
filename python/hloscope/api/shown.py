"""Results that are a page of tables and pictures, in a notebook as in a file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from .files import written
from .hosts import host


class Shown:
    """A result of which ``show/pages/results_view.py`` makes a page."""

    __slots__ = ()

    def html(self) -> str:
        """Pictures and tables as one offline page, as text."""
        return str(host("result page")(self))

    def to_html(self, path: str | Path) -> Path:
        """Writes ``html`` to ``path`` and returns the path."""
        return written(path, self.html())

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> Any:
        return host("result bundle")(self)
