"""The result of ``diff``: differences that print as text."""

from __future__ import annotations

from dataclasses import dataclass

from ..text.results import Printed
from .differences import Differences
from .text import text


@dataclass(frozen=True, slots=True, repr=False)
class Diff(Printed, Differences):
    """The differences between two programs; true if there are some. Prints as text."""

    def __str__(self) -> str:
        return text(self)
