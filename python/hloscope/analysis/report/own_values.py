"""A user's own numbers per instruction: counters from elsewhere, as a colouring and a column.

Names are those of the module's text, with or without %; names that match nothing are reported.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ...hlo import Instruction, Module
from ...hlo.texts.listed import listed


@dataclass(frozen=True, eq=False)
class OwnValues:
    """Numbers for instructions: ``column`` has one row per instruction, NaN if none is given."""

    label: str
    unit: str
    column: npt.NDArray[np.float64]
    unmatched: tuple[str, ...]  # names that no instruction has

    @property
    def matched(self) -> int:
        return int((~np.isnan(self.column)).sum())

    @property
    def remark(self) -> str:
        """Names that matched no instruction, in a sentence; "" if all did."""
        if not self.unmatched:
            return ""
        return f"{self.label}: no instruction is called {listed(self.unmatched)}"


def own_values(
    module: Module, values: Any, *, label: str = "own values", unit: str = "", column: str = ""
) -> OwnValues:
    """Joins ``values`` to the module's instructions by name.

    ``values``: a mapping of names or instructions to numbers, a pandas Series by name, a
    DataFrame or the path of a CSV file with a column "name" and one of numbers (``column`` says
    which if there are several). Raises ``ValueError`` if no name matches, or if ``values`` is
    none of these.
    """
    pairs, found = _pairs(values, column)
    by_name = {i.name: i.index for i in module.instructions}
    out = np.full(len(module.instructions), np.nan)
    unmatched: list[str] = []
    for key, value in pairs:
        if isinstance(key, Instruction):
            if key.index >= len(out) or module.instructions[key.index] is not key:
                raise ValueError(f"%{key.name} is an instruction of another module")
            out[key.index] = value
            continue
        index = by_name.get(str(key).removeprefix("%"))
        if index is None:
            unmatched.append(str(key))
        else:
            out[index] = value
    if np.isnan(out).all():
        hint = ""
        if unmatched:
            near = get_close_matches(unmatched[0], list(by_name)[:20_000])
            hint = f": none is called {unmatched[0]}"
            hint += f"; did you mean {near[0]}?" if near else ""
        raise ValueError(f"no value lands on an instruction of {module.name}{hint}")
    shown = found if label == "own values" and found else label
    return OwnValues(shown, unit, out, tuple(unmatched))


def _pairs(values: Any, column: str) -> tuple[Iterator[tuple[Any, float]], str]:
    """(name or instruction, number) pairs, and the name of their column."""
    if isinstance(values, (str, Path)):
        try:
            with open(values, newline="", encoding="utf-8-sig") as file:
                rows: list[Mapping[str, Any]] = list(csv.DictReader(file))
        except (csv.Error, UnicodeDecodeError) as error:
            raise ValueError(f"{values} cannot be read as CSV: {error}") from None
        return _of_rows(rows, column, str(values))
    if hasattr(values, "columns") and hasattr(values, "to_dict"):  # a DataFrame
        return _of_rows(values.to_dict("records"), column, "the table")
    if isinstance(values, Mapping) or hasattr(values, "items"):  # a Series too
        return ((k, _number(k, v)) for k, v in values.items()), getattr(values, "name", None) or ""
    raise ValueError(
        "values must be a mapping of instruction names to numbers, a Series, a DataFrame or a CSV"
        f" file with a column 'name', not {type(values).__name__}"
    )


def _of_rows(
    rows: list[Mapping[str, Any]], column: str, where: str
) -> tuple[Iterator[tuple[Any, float]], str]:
    if not rows:
        raise ValueError(f"{where} has no rows")
    heads = [str(k) for k in rows[0] if k is not None]  # None: cells beyond the last head
    if "name" not in heads:
        raise ValueError(f"{where} has no column 'name'; it has {', '.join(heads)}")
    numeric = [h for h in heads if h != "name" and _is_number(rows[0][h])]
    if column and column not in heads:
        raise ValueError(f"{where} has no column {column!r}; it has {', '.join(heads)}")
    if not column and len(numeric) != 1:
        have = ", ".join(numeric) or "none"
        raise ValueError(f"{where} needs one column of numbers beside 'name', or column=…: {have}")
    chosen = column or numeric[0]
    return ((r["name"], _number(r["name"], r[chosen])) for r in rows), chosen


def _is_number(value: Any) -> bool:
    try:
        float(value)
    except (TypeError, ValueError):
        return False
    return True


def _number(name: Any, value: Any) -> float:
    if value is None or value == "":
        return math.nan
    try:
        return float(value)
    except (TypeError, ValueError):
        raise ValueError(f"the value of {name} is not a number: {value!r}") from None
