"""The contract of Python and the renderer: its schema, and what holds every View to it."""

from __future__ import annotations

import gzip
import json
import shutil
import struct
import subprocess
from pathlib import Path
from typing import Any

import contract
import pytest
from hloscope.readers import read_modules
from hloscope.view import build_analyses, build_text, build_view

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


def test_the_schema_is_that_of_view_ts(repo: Path, tmp_path: Path) -> None:
    tool = repo / "node_modules" / ".bin" / "ts-json-schema-generator"
    if shutil.which("node") is None or not tool.exists():
        pytest.skip("needs node and the packages of package.json")
    made = tmp_path / "view.schema.json"
    options = ["--type", "Blocks", "--tsconfig", "tsconfig.json", "--no-type-check"]
    command = [tool, "--path", "js/view.ts", *options, "--out", made]
    subprocess.run(command, cwd=repo, check=True)
    kept = json.loads((repo / "js" / "view.schema.json").read_text())
    assert json.loads(made.read_text()) == kept, "npm run schema"


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
def test_what_view_ts_does_not_say_is_found(change: Any) -> None:
    block = build_view(read_modules(STEP)[0])
    contract.hold(block)
    with pytest.raises(AssertionError):
        contract.hold(edited(block, change))
