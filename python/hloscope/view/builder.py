"""The container of all blocks: columns, a string table and a JSON header, gzip'd.

"HLOV" | u32 version | u32 header bytes | header JSON | pad to 8 | columns, each at 8

``columns.py`` declares the columns, ``header.py`` the header.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import compress, count, islice
from types import MappingProxyType
from typing import Any, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .columns import TEXT, declared

# Rises when a block that an earlier release wrote would not be shown any more: a column or key that
# is required is new, has gone, or means something else.
VERSION = 3
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


# From this many texts on, names of instructions are distinguished by their hashes.
MANY = 20_000


class Strings:
    """Each text once; id 0 is ''. Invalid UTF-8 is written as U+FFFD."""

    def __init__(self) -> None:
        self._ids: defaultdict[str, int] = defaultdict(count(1).__next__, {"": 0})
        self._block: _Block | None = None

    def id(self, text: str) -> int:
        self._find([text])
        return self._ids[text]

    def ids(self, texts: Iterable[str]) -> NDArray[np.uint32]:
        if self._block is not None:
            texts = list(texts)
            self._find(texts)
        return np.fromiter(map(self._ids.__getitem__, texts), np.uint32)

    def names(self, texts: list[str]) -> NDArray[np.uint32]:
        """``ids`` of texts most of which are new and occur once.

        A million of them in a dictionary take as long as all the rest of a View's strings.
        """
        if len(texts) < MANY or self._block is not None:
            return self.ids(texts)
        block = _Block.of(texts, self._ids)
        if block is None:
            return self.ids(texts)
        self._block = block
        self._ids.default_factory = count(block.first + len(block.texts)).__next__
        return block.ids.astype(np.uint32)

    def _find(self, texts: list[str]) -> None:
        """Learns the ids of those that the block has."""
        if self._block is not None:
            self._ids.update(self._block.find([s for s in set(texts) if s not in self._ids]))

    def _all(self) -> list[str]:
        """Every text, by id."""
        known = self._ids
        block = self._block
        if block is None:
            return list(known)
        end = block.first + len(block.texts)
        later = [text for text, n in known.items() if n >= end]
        return [*islice(known, block.first), *block.texts, *later]

    def columns(self) -> tuple[bytes, NDArray[np.uint32]]:
        """UTF-8 bytes of all strings, and where each begins (one more than there are)."""
        texts = self._all()
        raw = "".join(texts).encode("utf-8", "replace")
        ends = np.zeros(len(texts) + 1, np.uint32)
        lengths = np.fromiter(map(len, texts), np.uint32, len(texts))
        if len(raw) != int(lengths.sum()):
            for n, text in enumerate(texts):
                if not text.isascii():
                    lengths[n] = len(text.encode("utf-8", "replace"))
        np.cumsum(lengths, out=ends[1:])
        return raw, ends


@dataclass(frozen=True, eq=False)
class _Block:
    """New texts, each once, with consecutive ids, found by their hashes."""

    first: int  # id of the first
    texts: list[str]
    ids: NDArray[np.int64]  # of the given texts, some of which had ids before
    hashes: NDArray[np.int64]  # ascending
    order: NDArray[np.int64]  # of the texts by hash

    @classmethod
    def of(cls, texts: list[str], known: dict[str, int]) -> _Block | None:
        """None if a text, or its hash, occurs twice."""
        first = len(known)
        hashes = np.fromiter(map(hash, texts), np.int64, len(texts))
        order = np.argsort(hashes)
        ascending = hashes[order]
        if (ascending[1:] == ascending[:-1]).any():
            return None
        ids = np.full(len(texts), -1, np.int64)
        for text, at in _same_hash(known, ascending):
            if texts[int(order[at])] == text:
                ids[order[at]] = known[text]
        new = ids < 0
        if not new.any():
            return None
        if new.all():
            return cls(first, texts, first + np.arange(len(texts)), ascending, order)
        ids[new] = first + np.arange(int(new.sum()))
        mine = [text for text, yes in zip(texts, new.tolist(), strict=True) if yes]
        kept = new[order]
        return cls(first, mine, ids, ascending[kept], ids[order[kept]] - first)

    def find(self, texts: list[str]) -> dict[str, int]:
        """Ids of those texts that are in the block."""
        found = ((text, int(self.order[at])) for text, at in _same_hash(texts, self.hashes))
        return {text: self.first + n for text, n in found if self.texts[n] == text}


def _same_hash(texts: Collection[str], ascending: NDArray[np.int64]) -> Iterator[tuple[str, int]]:
    """Texts whose hash is in ``ascending``, and where."""
    hashes = np.fromiter(map(hash, texts), np.int64, len(texts))
    at = np.minimum(np.searchsorted(ascending, hashes), len(ascending) - 1)
    hit = ascending[at] == hashes
    return zip(compress(texts, hit.tolist()), at[hit].tolist(), strict=True)


class Builder:
    """Collects a block's columns and header; ``finish`` writes it, the same bytes each time."""

    def __init__(self) -> None:
        self.strings = Strings()
        self._columns: dict[str, NDArray[Any]] = {}

    def column(self, name: str, values: ArrayLike | Iterable[str]) -> None:
        """Adds a column that ``columns.py`` declares; texts for one that it declares as text.

        ``ValueError`` for a column that is not declared or used twice, or a value that does not
        fit.
        """
        if declared(name).holds == TEXT:
            values = self.strings.ids(cast(Iterable[str], values))
        self._add(name, cast(ArrayLike, values))

    def text_ids(self, name: str, ids: ArrayLike) -> None:
        """Adds a text column of ids that ``strings`` gave."""
        if declared(name).holds != TEXT:
            raise ValueError(f"column {name} is not declared as text")
        self._add(name, ids)

    def relation(self, name: str, offsets: ArrayLike, values: ArrayLike | Iterable[str]) -> None:
        """Adds ``name.offsets`` and the column that they split."""
        self.column(f"{name}.offsets", offsets)
        self.column(declared(f"{name}.offsets").splits, values)

    def _add(self, name: str, values: ArrayLike) -> None:
        column = declared(name)
        if name in self._columns:
            raise ValueError(f"column {name} is written twice")
        array = np.asarray(values)
        if array.ndim != 1:
            raise ValueError(f"column {name} is not a flat list")
        target = DTYPES[column.dtype]
        if target.kind in "ui" and array.size:
            limits = np.iinfo(target)
            if array.min() < limits.min or array.max() > limits.max:
                raise ValueError(f"column {name} holds values that do not fit {column.dtype}")
        self._columns[name] = array.astype(target, copy=False)

    def __contains__(self, name: str) -> bool:
        return name in self._columns

    def forget(self, keep: set[str]) -> None:
        """Drops the columns that are not in ``keep``: what a failed section left behind."""
        for name in [n for n in self._columns if n not in keep]:
            del self._columns[name]

    def same_as(self, other: Builder) -> set[str]:
        """Names of the columns of numbers that are the same in both; texts are never."""
        return {
            name
            for name, array in self._columns.items()
            if declared(name).holds != TEXT
            and name in other._columns
            and array.tobytes() == other._columns[name].tobytes()
        }

    def names(self) -> set[str]:
        return set(self._columns)

    def finish(self, magic: bytes, header: Mapping[str, Any] = MappingProxyType({})) -> bytes:
        """The whole block, gzip'd without a time stamp; ``header`` is one of ``header.py``."""
        raw, offsets = self.strings.columns()
        self.relation("strings", offsets, np.frombuffer(raw, np.uint8))
        specs: dict[str, dict[str, Any]] = {}
        at = 0
        for name, array in self._columns.items():
            column = declared(name)
            specs[name] = {"dtype": column.dtype, "offset": at, "length": len(array)}
            if column.holds == TEXT:
                specs[name]["text"] = True
            at += array.nbytes + -array.nbytes % 8
        text = json.dumps(
            {"version": VERSION, "columns": specs, **header},
            ensure_ascii=True,
            separators=(",", ":"),
            allow_nan=False,
        ).encode()
        head = magic + struct.pack("<II", VERSION, len(text)) + text
        packed = _Gzip()
        packed.add(head)
        for array in self._columns.values():
            packed.add(np.ascontiguousarray(array).view(np.uint8).data)
        return packed.finish()


class _Gzip:
    """Takes column by column, each at a multiple of 8: joined, they would be in memory twice."""

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
