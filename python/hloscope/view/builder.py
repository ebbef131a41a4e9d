"""Columns, a string table and the container that js/view.ts describes.

"HLOV" | u32 version | u32 header bytes | header JSON | pad to 8 | columns, each at 8
"""

from __future__ import annotations

import gc
import json
import struct
import zlib
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

VERSION = 2
VIEW_MAGIC = b"HLOV"
ANALYSES_MAGIC = b"HLOA"
TEXT_MAGIC = b"HLOT"
STAGES_MAGIC = b"HLOC"

DTYPES: dict[str, Any] = {
    "u8": np.dtype("<u1"),
    "u16": np.dtype("<u2"),
    "u32": np.dtype("<u4"),
    "i32": np.dtype("<i4"),
    "f32": np.dtype("<f4"),
    "f64": np.dtype("<f8"),
}
# 100k instructions, 11 MB: level 2 1.24 MB in 0.04 s, 4 1.18 MB in 0.08 s, 6 1.16 MB in 0.20 s.
# 10k, 1.07 MB: level 1 166 kB and 2 161 kB in 8 to 9 ms, 4 152 kB in 11, 5 145 kB in 15, 6 140 kB
# in 27; the whole View takes 93, and the first picture waits for it.
GZIP_LEVEL = 2


class Strings:
    """Each text once; id 0 is ''. Not valid UTF-8 is written as U+FFFD."""

    def __init__(self) -> None:
        self._ids: defaultdict[str, int] = defaultdict(count(1).__next__, {"": 0})

    def id(self, text: str) -> int:
        return self._ids[text]

    def ids(self, texts: Iterable[str]) -> NDArray[np.uint32]:
        return np.fromiter(map(self._ids.__getitem__, texts), np.uint32)

    def columns(self) -> tuple[bytes, NDArray[np.uint32]]:
        """UTF-8 bytes of all strings, and where each begins (one more than there are)."""
        raw = "".join(self._ids).encode("utf-8", "replace")
        ends = np.zeros(len(self._ids) + 1, np.uint32)
        lengths = np.fromiter(map(len, self._ids), np.uint32, len(self._ids))
        plain = np.fromiter(map(str.isascii, self._ids), bool, len(self._ids))
        if not plain.all():
            for text in self._ids:
                if not text.isascii():
                    lengths[self._ids[text]] = len(text.encode("utf-8", "replace"))
        np.cumsum(lengths, out=ends[1:])
        return raw, ends


class Builder:
    """Collects a block's columns and header; ``finish`` writes it, the same bytes each time."""

    def __init__(self) -> None:
        self.strings = Strings()
        self.header: dict[str, Any] = {}
        self._columns: dict[str, tuple[str, NDArray[Any]]] = {}
        self._texts: set[str] = set()  # columns of StringIds

    def column(self, name: str, dtype: str, values: ArrayLike) -> None:
        """Adds a column; ``ValueError`` for a name used twice or a value that does not fit."""
        if name in self._columns:
            raise ValueError(f"column {name} is written twice")
        array = np.asarray(values)
        if array.ndim != 1:
            raise ValueError(f"column {name} is not a flat list")
        target = DTYPES[dtype]
        if target.kind in "ui" and array.size:
            limits = np.iinfo(target)
            if array.min() < limits.min or array.max() > limits.max:
                raise ValueError(f"column {name} holds values that do not fit {dtype}")
        self._columns[name] = (dtype, array.astype(target, copy=False))

    def text_column(self, name: str, texts: Iterable[str]) -> None:
        """Adds a StringId column."""
        self.text_ids(name, self.strings.ids(texts))

    def text_ids(self, name: str, ids: ArrayLike) -> None:
        """Adds a StringId column of ids that ``strings`` gave."""
        self.column(name, "u32", ids)
        self._texts.add(name)

    def csr(self, name: str, offsets: ArrayLike, values: ArrayLike, suffix: str = "values") -> None:
        """Adds ``name.offsets`` and ``name.values``."""
        self.column(f"{name}.offsets", "u32", offsets)
        self.column(f"{name}.{suffix}", "u32", values)

    def __contains__(self, name: str) -> bool:
        return name in self._columns

    def forget(self, keep: set[str]) -> None:
        """Drops the columns that are not in ``keep``: what a failed section left behind."""
        for name in [n for n in self._columns if n not in keep]:
            del self._columns[name]

    def names(self) -> set[str]:
        return set(self._columns)

    def finish(self, magic: bytes) -> bytes:
        """The whole block, gzip'd without a time stamp."""
        raw, offsets = self.strings.columns()
        self.column("strings.bytes", "u8", np.frombuffer(raw, np.uint8))
        self.column("strings.offsets", "u32", offsets)
        specs: dict[str, dict[str, Any]] = {}
        at = 0
        for name, (dtype, array) in self._columns.items():
            specs[name] = {"dtype": dtype, "offset": at, "length": len(array)}
            if name in self._texts:
                specs[name]["text"] = True
            at += array.nbytes + -array.nbytes % 8
        header = json.dumps(
            {"version": VERSION, "columns": specs, **self.header},
            ensure_ascii=True,
            separators=(",", ":"),
            allow_nan=False,
        ).encode()
        head = magic + struct.pack("<II", VERSION, len(header)) + header
        packed = _Gzip()
        packed.add(head)
        for _, array in self._columns.values():
            packed.add(np.ascontiguousarray(array).view(np.uint8).data)
        return packed.finish()


class _Gzip:
    """One column after another, each at a multiple of 8: all at once would be there twice."""

    def __init__(self) -> None:
        self.deflate = zlib.compressobj(GZIP_LEVEL, zlib.DEFLATED, -15)
        self.parts = [b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"]
        self.size = self.crc = 0

    def add(self, data: bytes | memoryview) -> None:
        for part in (data, b"\0" * (-len(data) % 8)):
            self.parts.append(self.deflate.compress(part))
            self.crc = zlib.crc32(part, self.crc)
            self.size += len(part)

    def finish(self) -> bytes:
        end = struct.pack("<II", self.crc, self.size & 0xFFFFFFFF)
        return b"".join([*self.parts, self.deflate.flush(), end])


@contextmanager
def no_collection() -> Iterator[None]:
    """Hundreds of thousands of short-lived objects would set the collector off for nothing."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
