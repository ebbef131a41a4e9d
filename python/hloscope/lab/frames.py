"""Frames: what the child writes, the server forwards and the browser reads, in one format.

Kinds and payloads (the bytes around them: processes/frames.py):

    P  progress    JSON {"stage": "Reading", "fraction": 0.1 or null}; for passes also "done", "of"
    I  about       JSON {"modules": [{"name", "instructions"}], "module": index}; [] for one
    V  View block, gzip'd
    A  analyses block, gzip'd
    F  figures on another chip, gzip'd
    T  text block, gzip'd
    S  stages block, gzip'd
    H  HTML page, UTF-8
    K  passes block, gzip'd
    C  costs       JSON [[row, figures], …] of the passes, some time after K
    D  digests     JSON ["…", …] of what the child has read, to the server alone
    E  error       JSON {"message", "line", "column", "excerpt": [[line, text], ...]}

A stream ends with the requested frame, or with E.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

from ..processes.frames import encode


def encode_json(kind: bytes, value: Any) -> bytes:
    return encode(kind, json.dumps(value).encode())


def progress(stage: str, fraction: float | None) -> bytes:
    return encode_json(b"P", {"stage": stage, "fraction": fraction})


def pieces(stage: str, done: int, of: int) -> bytes:
    """A progress frame with a count."""
    fraction = done / of if of else None
    return encode_json(b"P", {"stage": stage, "fraction": fraction, "done": done, "of": of})


def error(
    message: str,
    line: int | None = None,
    column: int | None = None,
    excerpt: list[tuple[int, str]] | None = None,
) -> bytes:
    return encode_json(
        b"E", {"message": message, "line": line, "column": column, "excerpt": excerpt or []}
    )


def digest(data: bytes) -> str:
    """Digest of a file's content, as used in keys and in D frames."""
    return hashlib.blake2b(data, digest_size=20).hexdigest()
