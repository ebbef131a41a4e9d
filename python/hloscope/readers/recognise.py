"""What the first bytes of a file say that it is, before any reader of it is imported."""

from __future__ import annotations

import re
import zlib

from .files.gzipped import is_gzip

_PLANE = re.compile(
    rb"\x0a[\x80-\xff]*[\x00-\x7f](\x08[\x80-\xff]*[\x00-\x7f])?"
    rb"\x12[\x00-\x7f](/host:|/device:|Task Environment|#)"
)
_MLIR = re.compile(
    rb"^[ \t]*(?:module\b[^\n]*\{|module[ \t]*\{|module attributes\b|module @[\w$.\-]+[ \t]*$"
    rb"|func\.func\b|vhlo\.func_v\d|\"(?:builtin\.module|func\.func)\")",
    re.M,
)
_HLO = re.compile(rb"^[^\n\"]{0,80}\bHloModule[ \t]+\S", re.M)


def is_trace(data: bytes) -> bool:
    """Whether the bytes begin with a plane of a trace: its number, then its name."""
    if is_gzip(data):
        try:
            data = zlib.decompressobj(31).decompress(data, 256)
        except zlib.error:
            return False
    return _PLANE.match(data[:256]) is not None


def is_stablehlo(data: bytes) -> bool:
    """Whether it is MLIR text, and no HLO text."""
    head = data[: 1 << 20]
    return _HLO.search(head) is None and _MLIR.search(head) is not None


def is_proto(data: bytes) -> bool:
    """Whether the bytes look like an HLO proto."""
    return message_name(data) is not None


def message_name(data: bytes) -> str | None:
    """HloModule, HloProto or HloSnapshot, by how deep the module's name is."""
    names = ("HloModule", "HloProto", "HloSnapshot")
    at = 0
    for name in names:
        if at >= len(data):
            return None
        tag = data[at]
        if tag in (0x12, 0x1A):  # a nameless module begins with its entry's name
            return name if at or tag == 0x12 else None
        if tag != 0x0A:
            return None
        size, inner = varint(data, at + 1)
        if size < 0:
            return None
        follows = data[inner + size : inner + size + 1]
        if size < 4096 and _is_name(data[inner : inner + size], follows):
            return name
        at = inner
    return None


def _is_name(text: bytes, follows: bytes) -> bool:
    """Whether a first field is a module's name and not a message, by what follows it."""
    try:
        printable = text.decode().isprintable()
    except UnicodeDecodeError:
        return False
    if printable:
        return follows in (b"\x12", b"\x1a", b"\x22")
    # A name may contain anything, even line breaks; a message that begins with a name contains it.
    # (Text that begins with an empty line is neither: it has no \x12 or \x1a.)
    size, inner = varint(text, 1)
    nested = text[:1] in (b"\n", b"\x12", b"\x1a") and 0 <= size <= len(text) - inner
    return not nested and follows in (b"\x12", b"\x1a")


def varint(data: bytes, at: int) -> tuple[int, int]:
    """(value, offset after it); value -1 when it does not end."""
    value = shift = 0
    for k in range(at, min(at + 10, len(data))):
        value |= (data[k] & 127) << shift
        shift += 7
        if data[k] < 128:
            return value, k + 1
    return -1, at
