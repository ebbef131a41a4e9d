"""The calls that an operation was traced in, outermost first: its Python stack."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TracedCall:
    """A function and where in its caller it is called: line and column."""

    file: str
    function: str
    at: tuple[int, int]
    number: int = -1  # of the call itself, where a capture knows it

    @property
    def name(self) -> str:
        """The function without what it is defined in; a class for its ``__call__``."""
        return self.function.rpartition("<locals>.")[2].removesuffix(".__call__")


Stack = tuple[TracedCall, ...]
Place = tuple[Stack, tuple[int, int]]  # calls; line and column in the innermost function
