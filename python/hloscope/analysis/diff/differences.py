"""What differs between two programs, as plain frozen data."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from ..text.results import Row


@dataclass(frozen=True, slots=True, repr=False)
class Delta(Row):
    """A quantity on both sides; None if it is unknown."""

    name: str
    unit: str  # "", "B", "FLOP", "s"
    a: float | None
    b: float | None

    @property
    def change(self) -> float | None:
        """b - a; None if either is unknown."""
        return None if self.a is None or self.b is None else self.b - self.a


@dataclass(frozen=True, slots=True, repr=False)
class Item(Row):
    """One instruction, as data."""

    name: str
    opcode: str
    shape: str
    computation: str
    op_name: str
    line: str  # "train.py:31"; '' unknown
    bytes: int  # output, dense
    inside: int = 0  # instructions of computations that only it calls


@dataclass(frozen=True, slots=True, repr=False)
class Change(Row):
    """One instruction on both sides, and what differs: field → (a, b) as text."""

    a: Item
    b: Item
    fields: tuple[tuple[str, str, str], ...]


@dataclass(frozen=True, slots=True, repr=False)
class CollectiveItem(Row):
    """A logical collective. Bytes per execution, wire bytes per device."""

    kind: str
    axes: str
    payload_bytes: int
    wire_bytes: int | None
    executions: int | None
    line: str


@dataclass(frozen=True, slots=True, repr=False)
class CollectiveChange(Row):
    """A collective of both programs, of another size, kind, axes or number of executions."""

    a: CollectiveItem
    b: CollectiveItem


@dataclass(frozen=True, slots=True, repr=False)
class Place(Row):
    """A source line or a scope: its cost in each of the two programs.

    Seconds are modelled, per step; bytes are per device. None if unknown.
    """

    name: str  # "train.py:31 h = x @ w" or "layers/mlp"; "a.py:3 … → b.py:7 …" if renamed
    seconds: tuple[float | None, float | None]
    wire_bytes: tuple[float, float]
    live_bytes: tuple[float, float] | None  # at the peak; not known by scope

    @property
    def seconds_change(self) -> float:
        a, b = self.seconds
        return (b or 0.0) - (a or 0.0)


@dataclass(frozen=True, slots=True)
class Differences:
    """All that differs between two programs; true if anything does."""

    title_a: str
    title_b: str
    totals: tuple[Delta, ...]
    opcodes: tuple[Delta, ...]  # only those that differ
    fusions: tuple[Delta, ...]  # by kind, only those that differ
    collectives: tuple[Delta, ...]  # wire bytes by kind and axes, only those that differ
    memory: tuple[Delta, ...]  # live at the peak by category, only those that differ
    matched: int
    removed: tuple[Item, ...]
    added: tuple[Item, ...]
    changed: tuple[Change, ...]
    removed_collectives: tuple[CollectiveItem, ...]
    added_collectives: tuple[CollectiveItem, ...]
    lines: tuple[Place, ...] = ()  # only those that differ, most time first
    scopes: tuple[Place, ...] = ()
    plumbing: int = 0  # differences of tuples and their elements, which are not listed
    changed_collectives: tuple[CollectiveChange, ...] = ()  # of both programs
    # arguments whose memory results take, in the first program only and in the second only
    donated: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())

    def __bool__(self) -> bool:
        return bool(
            self.removed or self.added or self.changed or self.plumbing or any(self.donated)
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain data, as ``hloscope diff --json`` prints it."""
        return {"different": bool(self), **asdict(self)}
