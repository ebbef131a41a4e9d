"""Blocks back to their header and columns."""

from __future__ import annotations

import gzip
import json
import struct
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .builder import ANALYSES_MAGIC, DTYPES, STAGES_MAGIC, TEXT_MAGIC, VERSION, VIEW_MAGIC

Columns = dict[str, Any]


def decode(block: bytes) -> tuple[dict[str, Any], Columns]:
    """Header and columns of a block; "strings" is the table as texts.

    Raises ``ValueError`` saying what is wrong with the block.
    """
    raw = gzip.decompress(block)
    magic, (version, size) = raw[:4], struct.unpack("<II", raw[4:12])
    if magic not in (VIEW_MAGIC, ANALYSES_MAGIC, TEXT_MAGIC, STAGES_MAGIC):
        raise ValueError(f"the block begins with {magic!r}, not HLOV, HLOA, HLOT or HLOC")
    if version != VERSION:
        raise ValueError(f"the block is of version {version}, this reads {VERSION}")
    header: dict[str, Any] = json.loads(raw[12 : 12 + size])
    start = -(-(12 + size) // 8) * 8
    columns: Columns = {}
    for name, spec in header["columns"].items():
        dtype = DTYPES[spec["dtype"]]
        at = start + spec["offset"]
        if spec["offset"] % 8 or at + spec["length"] * dtype.itemsize > len(raw):
            raise ValueError(f"column {name} is out of bounds or not aligned")
        columns[name] = np.frombuffer(raw, dtype, spec["length"], at)
    columns["strings"] = _texts(columns.pop("strings.bytes"), columns.pop("strings.offsets"))
    return header, columns


def joined(view: bytes, analyses: bytes) -> tuple[dict[str, Any], Columns]:
    """Header and columns of a View with its analyses, as the renderer has them in the end.

    Raises ``ValueError`` when the two are not of one module.
    """
    header, columns = decode(view)
    more, added = decode(analyses)
    if more["instructions"] != header["counts"]["instructions"]:
        raise ValueError("the analyses are of another module")
    first = len(columns["strings"])
    texts = added.pop("strings")
    for name, spec in more["columns"].items():
        if name in added:
            ids = added[name]
            columns[name] = np.where(ids, ids + first - 1, 0) if spec.get("text") else ids
            header["columns"][name] = spec
    columns["strings"] = columns["strings"] + texts[1:]
    header["summary"] |= more["summary"]
    header["warnings"] += more["warnings"]
    header["extras"] |= more["extras"]
    return header, columns


def _texts(raw: NDArray[np.uint8], offsets: NDArray[np.uint32]) -> list[str]:
    data, at = raw.tobytes(), offsets.tolist()
    return [data[a:b].decode() for a, b in pairwise(at)]
