"""``hs.write_baseline``: the figures that a later ``hs.check`` holds a program to."""

from __future__ import annotations

from pathlib import Path

from ..analysis.base.captured import Captured
from ..analysis.check.baseline import baseline_text
from .files import written


def write_baseline(path: str | Path, cap: Captured) -> Path:
    """Stores a program's figures for ``hs.check(later, baseline=path)``; returns the path.

    Peak bytes, wire bytes, instructions and the modelled seconds of a step, under the name of the
    module; other programs that the file holds stay. Raises ``ValueError`` for a file that is no
    baseline.

    >>> hs.write_baseline("main.json", cap)
    """
    return written(path, baseline_text(path, cap))
