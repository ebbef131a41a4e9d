"""Checks every block that tests make against its declaration, columns.py and header.py."""

from __future__ import annotations

import gzip
import json
import struct
import sys
from functools import cache
from pathlib import Path
from typing import Any

import fastjsonschema
import numpy as np
from hloscope.view.builder import DTYPES, Builder
from hloscope.view.columns import (
    AMOUNT,
    ANY,
    BLOCKS,
    FLAG,
    LEADS,
    OFFSETS,
    TABLES,
    TEXT,
    Column,
    columns_of,
    declared,
    unnumbered,
)
from hloscope.view.schema import Columns, decode

REPO = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(REPO / "scripts"))
import view_contract  # noqa: E402

LISTS = ("opcodes", "families", "groupKinds", "callRoles")
checked = 0


@cache
def _validators() -> dict[str, Any]:
    schema = view_contract.json_schema()
    blocks = schema["definitions"]["Blocks"]["properties"]
    return {
        magic: fastjsonschema.compile({**ref, "definitions": schema["definitions"]})
        for magic, ref in blocks.items()
    }


def hold(block: bytes) -> None:
    """Raises ``AssertionError`` if a block is not as declared."""
    global checked
    raw = gzip.decompress(block)
    magic, size = raw[:4].decode(), struct.unpack("<I", raw[8:12])[0]
    written = json.loads(raw[12 : 12 + size])
    try:
        _validators()[magic](written)
    except fastjsonschema.JsonSchemaException as error:
        raise AssertionError(f"a header is not what header.py declares: {error}") from None
    known = columns_of(BLOCKS[magic])
    for name, spec in written["columns"].items():
        column = known.get(unnumbered(name))
        assert column is not None, f"{name} is not a column of {magic}"
        assert spec["dtype"] == column.dtype, f"column {name} is {spec['dtype']}"
    header, columns = decode(block)
    assert differences(header, columns) == []
    if not _is_of_another_chip(header):
        assert missing(columns) == []
    checked += 1


def _is_of_another_chip(header: dict[str, Any]) -> bool:
    """Such a block has the columns alone that differ from those of the View's own chip."""
    return "without" in header


def missing(columns: Columns) -> list[str]:
    """Columns that a block has not though it has others that come with them."""
    together: dict[str, list[str]] = {}
    for table in TABLES:
        names = [f"{table.name}.{c.name}" for c in table.columns if not c.may_be_absent]
        together.setdefault(table.along, []).extend(names)
    del together["strings"]  # decoded
    there = [n for n in together.values() if any(name in columns for name in n)]
    return [name for names in there for name in names if name not in columns]


def differences(header: dict[str, Any], columns: Columns) -> list[str]:
    """Columns of a block, or of a View with its analyses, that are not as declared."""
    sizes = {rows: len(columns[lead]) for rows, lead in LEADS.items() if lead in columns}
    sizes |= {name: len(header[name]) for name in LISTS if name in header}
    sizes |= {TEXT: len(columns["strings"]), FLAG: 2}
    if "instructions" in header:
        sizes["instruction"] = header["instructions"]
    bad = []
    for name, values in columns.items():
        if name == "strings":
            continue
        column = declared(name)
        splits = columns.get(column.splits, ())
        rows = sizes.get(column.rows)
        if values.dtype != DTYPES[column.dtype]:
            bad.append(f"{name} is {values.dtype}")
        elif rows is not None and len(values) != rows + (column.holds == OFFSETS):
            bad.append(f"{name} has {len(values)} rows, not {rows}")
        elif not _fits(column, values.astype(np.float64), sizes.get(column.holds), len(splits)):
            bad.append(f"{name} holds what is not {column.holds}")
    parent = columns.get("group.parent")
    if parent is not None and not (parent[0] == -1 and _are_below(parent[1:])):
        bad.append("group.parent: row 0 is the root and parents come before children")
    return bad


def _are_below(parents: Any) -> bool:
    return bool(((parents >= 0) & (parents < np.arange(1, len(parents) + 1))).all())


def _fits(column: Column, values: Any, limit: int | None, pieces: int) -> bool:
    if column.holds == OFFSETS:
        return bool(values[0] == 0 and values[-1] == pieces and (np.diff(values) >= 0).all())
    if column.holds == ANY or not len(values):
        return True
    if column.holds == AMOUNT:
        return bool(((values >= 0) | np.isnan(values)).all() and not np.isinf(values).any())
    lowest = -1 if column.has_none else 0
    return bool(values.min() >= lowest and (limit is None or values.max() < limit))


def _remembering(write: Any) -> Any:
    """Keeps what ``write`` of a Builder refused, which would only make its section a warning."""

    def remembered(self: Builder, name: str, values: Any) -> None:
        try:
            write(self, name, values)
        except ValueError as error:
            self.refused = str(error)  # type: ignore[attr-defined]
            raise

    return remembered


def install() -> None:
    """From now on each block is checked when it is written; a column that is refused fails it."""
    finish = Builder.finish

    def held(self: Builder, magic: bytes, header: Any = None) -> bytes:
        refused = getattr(self, "refused", "")
        assert not refused, refused
        block = finish(self, magic, header or {})
        if header or magic == b"HLOT":  # tests of the container write nothing else
            hold(block)
        return block

    if finish.__name__ != "held":
        Builder.finish = held  # type: ignore[method-assign]
        for write in ("column", "text_ids"):
            setattr(Builder, write, _remembering(getattr(Builder, write)))
