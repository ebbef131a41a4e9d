"""Operations of the StableHLO program, and the Python frames that they were traced under."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Frame:
    """A Python frame on the stack while tracing; the same ``number`` is the same frame.

    ``function`` is "" for a call of jax's own, which only separates uses. ``begins`` is the
    line of its definition, ``called_at`` the line of the call in the caller, ``column`` where
    in its line the function begins, which separates two lambdas on one line.
    """

    number: int
    function: str = ""
    file: str = ""
    begins: int = 0
    called_at: int = 0
    column: int = 0


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation of the StableHLO program, numbered in printed order.

    ``opcode`` is MLIR's name without its dialect where that is StableHLO's: ``dot_general``,
    ``func.call``. ``name`` is its op name, '' if it has none. ``owner`` is the operation
    whose region it is in, -1 for none; ``callee`` the function that a call names;
    ``frames`` the Python frames it was traced under, outermost first, () where unknown.
    """

    number: int
    opcode: str
    name: str = ""
    function: str = "main"
    owner: int = -1
    callee: str = ""
    frames: tuple[Frame, ...] = field(default=(), repr=False)

    @property
    def is_call(self) -> bool:
        return bool(self.callee)

    def __str__(self) -> str:
        return f"{self.opcode} ({self.name})" if self.name else self.opcode


@dataclass(frozen=True, slots=True)
class Origin:
    """An operation, and the calls through which the program reaches it, outermost first."""

    operation: int
    calls: tuple[int, ...] = ()
