"""Follows the instructions of a module's dumps without marks, row by row."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ....readers.hlo.pass_lines import Reader
from .resolve import resolve
from .walk import IdentityWalk


def follow_identity(
    texts: Sequence[Callable[[], str]], progress: Callable[[int, int], None] | None = None
) -> IdentityWalk:
    """Follows the instructions of a module's dumps; ``progress`` may raise to stop."""
    walk = IdentityWalk(len(texts))
    reader = Reader()
    for row, text in enumerate(texts):
        if progress is not None:
            progress(row, len(texts))
        walk.step(row, reader.read(text()))
        if row:
            resolve(walk, row)
        else:
            walk.begin()
        walk.remember()
    return walk
