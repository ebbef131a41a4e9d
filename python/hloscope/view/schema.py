"""js/view.ts is the contract: its column table, read from the comment, and a checker.

The renderer's source is not in the wheel, so the table is parsed where the source is (tests,
development); ``decode`` needs only the bytes.
"""

from __future__ import annotations

import gzip
import json
import re
import struct
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .builder import ANALYSES_MAGIC, DTYPES, STAGES_MAGIC, TEXT_MAGIC, VERSION, VIEW_MAGIC

_COLUMN = re.compile(
    r"^\s\*\s([a-z_]+\.[a-z_]+(?:/[a-z_]+)?(?:, [a-z_]+\.[a-z_]+)*) *"
    r"(?:StringId +)?(u8|u16|u32|i32|f32|f64)?\b",
    re.M,
)

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


def documented_columns(view_ts: str) -> dict[str, str]:
    """Column → dtype of every column that the comments of js/view.ts document."""
    out: dict[str, str] = {}
    for names, dtype in _COLUMN.findall(view_ts):
        first = names.partition(",")[0].partition(".")[0]
        for whole in names.split(", "):
            table, _, parts = whole.partition(".")
            for part in parts.split("/"):
                name = f"{table or first}.{part}"
                out[name] = dtype or ("u8" if name == "strings.bytes" else "u32")
    return out


def check(header: dict[str, Any], columns: Columns) -> list[str]:
    """What is inconsistent in a View: lengths, ids out of range, order of groups."""
    bad: list[str] = []
    counts, texts = header["counts"], len(columns["strings"])
    rows = {
        "instruction": counts["instructions"],
        "computation": counts["computations"],
        "group": counts["groups"],
    }

    def ids(name: str, limit: int, low: int = 0) -> None:
        values = columns[name]
        if len(values) and (int(values.min()) < low or int(values.max()) >= limit):
            bad.append(f"{name} is not within {low}..{limit - 1}")

    for table, n in rows.items():
        for name in columns:
            if name.startswith(f"{table}.") and len(columns[name]) != n:
                bad.append(f"{name} has {len(columns[name])} rows, not {n}")
    n, c, g = rows["instruction"], rows["computation"], rows["group"]
    for name in ("name", "label", "shape", "dense_shape", "op_name"):
        ids(f"instruction.{name}", texts)
    ids("instruction.opcode", len(header["opcodes"]))
    ids("instruction.family", len(header["families"]))
    ids("instruction.computation", c)
    ids("instruction.group", g)
    ids("instruction.frame", len(columns["frame.file"]), -1)
    ids("computation.root", n, -1)
    ids("computation.group", g, -1)
    ids("group.kind", len(header["groupKinds"]))
    ids("group.owner", n, -1)
    ids("group.computation", c, -1)
    ids("group.fold", counts["folds"], -1)
    ids("fold.parent", g)
    ids("frame.parent", len(columns["frame.file"]), -1)
    for name, values, count, limit in (
        ("operand", "operand.values", n, n),
        ("control", "control.values", n, n),
        ("called", "called.values", n, c),
        ("fold", "fold.members", counts["folds"], g),
    ):
        offsets = columns[f"{name}.offsets"]
        ids(values, limit)
        if len(offsets) != count + 1 or int(offsets[-1]) != len(columns[values]):
            bad.append(f"{name}.offsets does not cover {values}")
        if (np.diff(offsets.astype(np.int64)) < 0).any():
            bad.append(f"{name}.offsets goes backwards")
    parent = columns["group.parent"].astype(np.int64)
    if g and (parent[0] != -1 or (parent[1:] >= np.arange(1, g)).any() or (parent[1:] < 0).any()):
        bad.append("group.parent: row 0 is the root and parents come before children")
    return bad
