"""The contract of Python and the renderer: one declaration, and what holds every block to it."""

from __future__ import annotations

import gzip
import json
import re
import struct
from pathlib import Path
from typing import Any, get_args

import contract
import pytest
from hloscope.analysis.base.labels import flags
from hloscope.analysis.grouping.groups import KINDS
from hloscope.readers import read_modules
from hloscope.view import Builder, Context, build_analyses, build_text, build_view, columns
from hloscope.view.builder import DTYPES
from hloscope.view.header import GroupKind

STEP = """HloModule step, is_scheduled=true

ENTRY main {
  x = f32[8,8] parameter(0)
  y = f32[8,8] dot(x, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT r = f32[8,8] all-reduce(y), replica_groups={{0,1}}, to_apply=sum
}
"""


def edited(block: bytes, change: Any) -> bytes:
    raw = gzip.decompress(block)
    size = struct.unpack("<I", raw[8:12])[0]
    header = json.loads(raw[12 : 12 + size])
    change(header)
    text = json.dumps(header).encode()
    return gzip.compress(raw[:8] + struct.pack("<I", len(text)) + text + raw[12 + size :])


def test_the_renderer_has_what_is_made_of_the_declaration(repo: Path) -> None:
    kept = (repo / "js" / "view-extras.ts").read_text()
    assert kept == contract.view_contract.typescript(), "npm run schema"


def test_version_flags_and_kinds_are_the_same_on_both_sides(repo: Path) -> None:
    source = (repo / "js" / "view.ts").read_text()
    bits = re.search(r"const enum Flag \{(.*?)\n\}", source, re.S)
    assert bits
    for name, value in re.findall(r"(\w+) = (\d+),", bits.group(1)):
        constant = re.sub(r"(?<!^)(?=[A-Z])", "_", name).upper()
        assert getattr(flags, constant) == int(value)
    assert get_args(GroupKind) == KINDS


def test_every_column_is_described_by_what_it_holds() -> None:
    rows = {*columns.LEADS, *contract.LISTS, columns.UNCOUNTED}
    values = {columns.ANY, columns.AMOUNT, columns.FLAG, columns.TEXT, columns.OFFSETS}
    for name, column in columns.COLUMNS.items():
        assert column.dtype in DTYPES, name
        assert column.rows in rows, name
        assert column.holds in rows | values, name
        assert (column.splits in columns.COLUMNS) == (column.holds == columns.OFFSETS), name
        assert not column.has_none or column.dtype == "i32", name
    names = [f"{t.name}.{c.name}" for t in columns.TABLES for c in t.columns]
    assert len(names) == len(set(names)), "declared twice"


def test_the_page_of_the_docs_names_every_column_and_header() -> None:
    page = contract.view_contract.page()
    assert all(f"`{name}`" in page for name in columns.COLUMNS)
    assert all(f"### {name}\n" in page for name in ("ViewHeader", "CostExtras", "StagesHeader"))


def test_a_column_that_is_not_declared_fails_where_it_is_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def add(builder: Builder, context: Context) -> None:
        builder.column("cost.new", [1.0])

    monkeypatch.setattr("hloscope.view.analyses.SECTIONS", (("new", add),))
    with pytest.raises(AssertionError, match=r"cost.new is not declared in"):
        build_analyses(read_modules(STEP)[0])


def test_each_block_is_held_to_it_as_it_is_written() -> None:
    before = contract.checked
    module = read_modules(STEP)[0]
    for build in (build_view, build_analyses, build_text):
        build(module)
    assert contract.checked == before + 3


@pytest.mark.parametrize(
    "change",
    [
        lambda h: h["extras"].update(cost={"dtypes": []}),
        lambda h: h["extras"].update(surprise=1),
        lambda h: h["summary"].update(surprise=1),
        lambda h: h["summary"].pop("partitions"),
        lambda h: h["counts"].update(instructions="3"),
        lambda h: h.pop("families"),
        lambda h: h["columns"].update({"cost.new": {"dtype": "u8", "offset": 0, "length": 0}}),
        lambda h: h["columns"]["instruction.name"].update(dtype="u8"),
    ],
)
def test_what_is_not_declared_is_found(change: Any) -> None:
    block = build_view(read_modules(STEP)[0])
    contract.hold(block)
    with pytest.raises(AssertionError):
        contract.hold(edited(block, change))
