"""Checks every block that tests make against the contract: js/view.schema.json, view.ts.

``npm run schema`` makes the schema; ``test_contract.py`` checks that it matches js/view.ts.
"""

from __future__ import annotations

import gzip
import json
import struct
from functools import cache
from pathlib import Path
from typing import Any

import fastjsonschema

REPO = Path(__file__).resolve().parents[1]
checked = 0


@cache
def _validators() -> dict[str, Any]:
    schema = json.loads((REPO / "js" / "view.schema.json").read_text())
    blocks = schema["definitions"]["Blocks"]["properties"]
    return {
        magic: fastjsonschema.compile({**ref, "definitions": schema["definitions"]})
        for magic, ref in blocks.items()
    }


@cache
def _documented() -> dict[str, str]:
    from hloscope.view.schema import documented_columns

    return documented_columns((REPO / "js" / "view.ts").read_text())


def hold(block: bytes) -> None:
    """Raises ``AssertionError`` if a block does not keep the contract."""
    global checked
    raw = gzip.decompress(block)
    size = struct.unpack("<I", raw[8:12])[0]
    header = json.loads(raw[12 : 12 + size])
    try:
        _validators()[raw[:4].decode()](header)
    except fastjsonschema.JsonSchemaException as error:
        raise AssertionError(f"a header is not what js/view.ts says: {error}") from None
    for name, spec in header["columns"].items():
        if not name.startswith(("strings.", "own.")):
            wanted = _documented().get(name)
            assert spec["dtype"] == wanted, f"column {name} is {spec['dtype']}, not {wanted}"
    checked += 1


def install() -> None:
    """From now on each block is checked against the contract when it is written."""
    from hloscope.view.builder import Builder

    finish = Builder.finish

    def held(self: Builder, magic: bytes) -> bytes:
        block = finish(self, magic)
        if self.header or magic == b"HLOT":  # tests of the container write nothing else
            hold(block)
        return block

    if finish.__name__ != "held":
        Builder.finish = held  # type: ignore[method-assign]
