"""Messages on a pipe.

kind (1 byte) | length (u32, little-endian) | payload
"""

from __future__ import annotations

import struct
from typing import BinaryIO

HEADER = struct.Struct("<cI")
# The largest length that a header can hold.
MOST_BYTES = (1 << 32) - 1


class BadFrame(ValueError):
    """The stream is cut off, or a frame is larger than allowed."""


def encode(kind: bytes, payload: bytes) -> bytes:
    """The bytes of one frame. Raises ``BadFrame`` for a payload of 4 GiB or more."""
    if len(payload) > MOST_BYTES:
        raise BadFrame(f"a message of {len(payload):,} bytes is over the limit of {MOST_BYTES:,}")
    return HEADER.pack(kind, len(payload)) + payload


def read_frame(stream: BinaryIO, limit: int = MOST_BYTES) -> tuple[bytes, bytes] | None:
    """The next (kind, payload), or None at the end. Raises ``BadFrame``."""
    head = stream.read(HEADER.size)
    if not head:
        return None
    if len(head) < HEADER.size:
        raise BadFrame("a frame header is cut off")
    kind, length = HEADER.unpack(head)
    if length > limit:
        raise BadFrame(f"a result of {length:,} bytes is over the limit of {limit:,}")
    payload = stream.read(length)
    if len(payload) < length:
        raise BadFrame("a frame is cut off")
    return kind, payload
