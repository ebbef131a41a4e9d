"""HLO in an entry of JAX's persistent compilation cache.

An entry is a serialised executable, compressed with zlib or zstandard, with its compile time in
front. Where the platform keeps the HLO in it (CPU does), that is found by its shape: a
length-delimited protobuf field whose bytes are a whole HloModuleProto.
"""

from __future__ import annotations

import re
import zlib

from ...hlo import Module
from ..errors import ReadError
from ..files import gzipped

NAME = "compilation cache"
SUFFIXES: tuple[str, ...] = ()
IS_CERTAIN = True
_ZSTD = b"\x28\xb5\x2f\xfd"
_CANDIDATE = re.compile(rb"\x0a[\x01-\x7f][A-Za-z_][\w.$\-]*(?=[\x12\x1a])")
MAX_CANDIDATES = 2000


def accepts(data: bytes) -> bool:
    """Whether it is compressed the way JAX does it, which gzip is not."""
    if data[:4] == _ZSTD:
        return True
    return data[:1] == b"\x78" and len(data) > 2 and (data[0] * 256 + data[1]) % 31 == 0


def read(data: bytes, name: str) -> list[Module]:
    """The HLO in a cache entry. Raises ``ReadError`` when it holds none."""
    from ..proto import proto

    where = name or "the data"
    inside = _unpacked(data, where)
    best: Module | None = None
    for at, end in _messages(inside):
        try:
            found = proto.read_proto(inside[at:end], name)
        except ReadError:
            continue
        if best is None or len(found.instructions) > len(best.instructions):
            best = found
    if best is None:
        raise ReadError(
            f"{where} is compressed, and holds no HLO: an entry of a compilation cache keeps it on "
            "CPU only. Dump the program with XLA_FLAGS=--xla_dump_to=FOLDER and read that"
        )
    return [best]


def _unpacked(data: bytes, where: str) -> bytes:
    if data[:4] != _ZSTD:
        try:
            return zlib.decompressobj().decompress(data, gzipped.MAX_BYTES)
        except zlib.error as e:
            raise ReadError(f"{where} looks compressed, and cannot be unpacked: {e}") from None
    try:
        import zstandard
    except ImportError:
        raise ReadError(
            f"{where} is compressed with zstandard; unpacking it needs: pip install zstandard"
        ) from None
    try:
        reader = zstandard.ZstdDecompressor().stream_reader(data)
        out: bytes = reader.read(gzipped.MAX_BYTES)
        return out
    except zstandard.ZstdError as e:
        raise ReadError(f"{where} cannot be unpacked: {e}") from None


def _messages(data: bytes) -> list[tuple[int, int]]:
    """Stretches that may be an HloModuleProto: name, entry's name, and a length before them."""
    out = []
    for m in list(_CANDIDATE.finditer(data))[:MAX_CANDIDATES]:
        at = m.start()
        if at + 2 + data[at + 1] != m.end():
            continue
        for size in range(1, 6):  # the varint that ends just before
            begin = at - size
            if begin < 0 or data[at - 1] & 0x80 or (size > 1 and not data[begin] & 0x80):
                continue
            length = sum((b & 0x7F) << (7 * k) for k, b in enumerate(data[begin:at]))
            if length > m.end() - at and at + length <= len(data):
                out.append((at, at + length))
    return out
