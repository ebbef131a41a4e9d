"""gzip, unwrapped with a limit: a few kilobytes can hold terabytes of zeros."""

from __future__ import annotations

import zlib

from ..hlo import ReadWarning
from .errors import ReadError

MAX_BYTES = 1 << 30
_CHUNK = 1 << 20


def is_gzip(data: bytes) -> bool:
    return data[:2] == b"\x1f\x8b"


def unwrap(data: bytes, name: str = "", limit: int = MAX_BYTES) -> tuple[bytes, list[ReadWarning]]:
    """The bytes inside, members joined; what a cut file still holds, with a warning.

    Raises ``ReadError`` when more than ``limit`` bytes come out, or none at all.
    """
    parts: list[bytes] = []
    size = 0
    warnings: list[ReadWarning] = []
    rest = data
    while is_gzip(rest):
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
