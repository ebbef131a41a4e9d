"""gzip, bzip2 and xz, unwrapped with a limit: a few kilobytes can hold terabytes of zeros."""

from __future__ import annotations

import bz2
import lzma
import zlib

from ...hlo import ReadWarning
from ..errors import ReadError

MAX_BYTES = 1 << 30
_CHUNK = 1 << 20
_PIECE = 4096


def is_gzip(data: bytes) -> bool:
    return data[:2] == b"\x1f\x8b"


def unwrap(data: bytes, name: str = "", limit: int = MAX_BYTES) -> tuple[bytes, list[ReadWarning]]:
    """The bytes inside, members joined; of a cut file what is left, with a warning.

    Raises ``ReadError`` when more than ``limit`` bytes come out, or none at all.
    """
    parts: list[bytes] = []
    size = 0
    warnings: list[ReadWarning] = []
    rest = data
    while is_gzip(rest):
        whole, begun = rest, (len(parts), size)
        member = zlib.decompressobj(wbits=31)
        try:
            while rest and not member.eof:
                part = member.decompress(rest, _CHUNK)
                rest = member.unconsumed_tail
                parts.append(part)
                size += len(part)
                if size > limit:
                    raise ReadError(
                        f"{name or 'the gzip data'} holds more than {limit:,} bytes when "
                        "unpacked; unpack it yourself and read the part that is wanted"
                    )
                if not part and not rest:
                    break
        except zlib.error as e:
            warnings.append(ReadWarning(f"the gzip data is damaged ({e}); the rest was read"))
            found = _until_damaged(whole, limit - begun[1])
            parts[begun[0] :] = [found]
            size = begun[1] + len(found)
            break
        if not member.eof:
            warnings.append(ReadWarning("the gzip data is cut off; the rest was read"))
            break
        rest = member.unused_data
    if not size:
        raise ReadError(
            f"{name or 'the data'} is a damaged gzip file: nothing in it can be decompressed"
        )
    return b"".join(parts), warnings


def _until_damaged(data: bytes, limit: int) -> bytes:
    """What can be decompressed before the damage: only a checksum may be wrong."""
    member, out = zlib.decompressobj(wbits=31), bytearray()
    for at in range(0, len(data), _PIECE):
        piece, before = data[at : at + _PIECE], member.copy()
        try:
            out += member.decompress(piece, max(1, limit - len(out)))
        except zlib.error:
            try:
                for k in range(len(piece)):
                    out += before.decompress(piece[k : k + 1])
            except zlib.error:
                break
        if len(out) >= limit:
            break
    return bytes(out)


def is_bzip2_or_xz(data: bytes) -> bool:
    return (data[:3] == b"BZh" and data[4:10] == b"1AY&SY") or data[:6] == b"\xfd7zXZ\0"


def unwrap_other(
    data: bytes, name: str = "", limit: int = MAX_BYTES
) -> tuple[bytes, list[ReadWarning]]:
    """The bytes inside bzip2 or xz; of a cut file what is left, with a warning.

    Raises ``ReadError`` as ``unwrap`` does.
    """
    what = "bzip2" if data[:3] == b"BZh" else "xz"
    parts: list[bytes] = []
    size = 0
    warnings: list[ReadWarning] = []
    reader = bz2.BZ2Decompressor() if what == "bzip2" else lzma.LZMADecompressor()
    try:
        while not reader.eof:
            part = reader.decompress(data, _CHUNK)
            data = b""
            size += len(part)
            if size > limit:
                raise ReadError(
                    f"{name or 'the data'} holds more than {limit:,} bytes when unpacked; "
                    "unpack it yourself and read the part that is wanted"
                )
            parts.append(part)
            if reader.needs_input and not part:
                warnings.append(ReadWarning(f"the {what} data is cut off; the rest was read"))
                break
    except (OSError, EOFError, lzma.LZMAError) as e:
        warnings.append(ReadWarning(f"the {what} data is damaged ({e}); the rest was read"))
    if not size:
        raise ReadError(
            f"{name or 'the data'} is a damaged {what} file: nothing in it can be decompressed"
        )
    return b"".join(parts), warnings
