"""How every result behaves: ``Row`` is one thing, ``Rows`` a list of them.

=====================  ===========================  =========================================
``print(x)``, cells    a card of names and values   a table
``x.to_dict()``        a dict of plain values       a dict of totals, the rows under "rows"
``x.to_pandas()``                                   a DataFrame, with its columns when empty
``x[2]``, ``x[:3]``                                 a row, a tuple of rows
``len(x)``, iterate                                 the rows, in one order everywhere
=====================  ===========================  =========================================
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar, overload

from ...hlo import Instruction
from .units import printed

if TYPE_CHECKING:
    import pandas as pd

T = TypeVar("T")
# Characters of a value on a card; longer ones are cut.
_WIDTH = 90


class Printed:
    """A result whose ``repr`` is what ``print`` shows, in a cell too."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        """Text in a cell; names are data, and escaped."""
        from html import escape

        return f"<pre>{escape(str(self))}</pre>"


class Row(Printed):
    """One thing: a dict of its values, and a card of them."""

    __slots__ = ()

    def to_dict(self) -> dict[str, Any]:
        """Its values as plain data; an instruction is its name."""
        return {f.name: plain(getattr(self, f.name)) for f in _public_fields(self)}

    def __str__(self) -> str:
        return card(type(self).__name__, self.to_dict())


class Rows(Printed, Generic[T]):
    """A list of rows. ``COLUMNS`` are the keys of a row's ``to_dict``, in their order."""

    __slots__ = ()
    COLUMNS: ClassVar[tuple[str, ...]] = ()
    rows: Any  # a tuple of rows, where a class does not override ``_all``

    def _all(self) -> Sequence[T]:
        found: Sequence[T] = self.rows
        return found

    def _totals(self) -> dict[str, Any]:
        """The part of ``to_dict`` beside the rows."""
        return {}

    def _row_dict(self, row: T) -> dict[str, Any]:
        found: dict[str, Any] = row.to_dict()  # type: ignore[attr-defined]
        return found

    def __len__(self) -> int:
        return len(self._all())

    def __iter__(self) -> Iterator[T]:
        return iter(self._all())

    @overload
    def __getitem__(self, at: int) -> T: ...
    @overload
    def __getitem__(self, at: slice) -> tuple[T, ...]: ...
    def __getitem__(self, at: int | slice) -> T | tuple[T, ...]:
        found = self._all()
        return tuple(found[at]) if isinstance(at, slice) else found[at]

    def to_dict(self) -> dict[str, Any]:
        """Plain data: totals, and one dict per row under "rows"."""
        return {**self._totals(), "rows": [self._row_dict(row) for row in self]}

    def to_pandas(self) -> pd.DataFrame:
        """One row per row, with the same columns when there are none. Needs pandas."""
        import pandas as pd

        return pd.DataFrame([self._row_dict(row) for row in self], columns=list(self.COLUMNS))


class Made(Sequence[T], Generic[T]):
    """Rows that are made when they are asked for."""

    def __init__(self, numbers: Sequence[int], make: Any) -> None:
        self._numbers, self._make = numbers, make

    def __len__(self) -> int:
        return len(self._numbers)

    @overload
    def __getitem__(self, at: int) -> T: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[T]: ...
    def __getitem__(self, at: int | slice) -> T | Sequence[T]:
        found = self._numbers[at]
        if isinstance(at, slice):
            return [self._make(int(n)) for n in found]  # type: ignore[union-attr]
        one: T = self._make(int(found))  # type: ignore[arg-type]
        return one


def plain(value: Any) -> Any:
    """A value as JSON can hold it."""
    if isinstance(value, Instruction):
        return value.name
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, tuple | list | frozenset):
        return [plain(v) for v in value]
    if hasattr(value, "to_dict"):
        return value.to_dict()
    if hasattr(value, "tolist"):  # of numpy
        return value.tolist()
    if hasattr(value, "__dataclass_fields__"):
        return {f.name: plain(getattr(value, f.name)) for f in _public_fields(value)}
    return value if isinstance(value, str | int | float | bool | None) else str(value)


def columns(row: type) -> tuple[str, ...]:
    """The keys of the ``to_dict`` that ``Row`` gives a dataclass."""
    return tuple(f.name for f in fields(row) if not f.name.startswith("_"))


def card(name: str, values: Mapping[str, Any]) -> str:
    """Names and values, one a line; what is unknown or empty is left out."""
    known = {k: v for k, v in values.items() if v not in (None, "", [], {})}
    width = max(map(len, known), default=0)
    return printed([name, *(f"  {k:<{width}}  {_short(v)}" for k, v in known.items())])


def _short(value: Any) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        text = f"{value:,}"
    elif isinstance(value, float):
        text = f"{value:,.6g}"
    elif isinstance(value, list):
        text = ", ".join(map(str, value))
    else:
        text = str(value)
    return text if len(text) <= _WIDTH else text[: _WIDTH - 1] + "…"


def _public_fields(value: Any) -> list[Any]:
    return [f for f in fields(value) if not f.name.startswith("_")]
