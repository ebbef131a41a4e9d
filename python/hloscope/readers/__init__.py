"""Bytes, text or a folder → hlo.Module. ``read`` is the entry; READERS is the order."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..hlo import Module
from .decode import to_text
from .errors import ReadError
from .hlo_text import read_hlo_text

if TYPE_CHECKING:
    from .._capture import Capture

__all__ = ["ReadError", "read", "read_modules"]


def read_modules(data: bytes | str, name: str = "") -> list[Module]:
    """Every module in the data, in order; raises ``ReadError`` when there is none."""
    if isinstance(data, bytes) and data[:2] == b"\x1f\x8b":
        data = gzip.decompress(data)
    text, warnings = to_text(data)
    modules = read_hlo_text(text, warnings)
    if not modules:
        raise ReadError(f"no HLO module in {name or 'the text'}")
    return modules


def read(source: Any, *, module: str | int | None = None, stage: str | None = None) -> Capture:
    from .._capture import Capture

    origin = ""
    if isinstance(source, str) and ("\n" in source or "HloModule" in source):
        data: bytes | str = source
    elif isinstance(source, bytes):
        data = source
    else:
        path = Path(source)
        data, origin = path.read_bytes(), path.name
    modules = read_modules(data, origin)
    chosen = max(modules, key=lambda m: len(m.instructions))
    if isinstance(module, int):
        chosen = modules[module]
    elif module is not None:
        chosen = next(m for m in modules if m.name == module)
    return Capture(chosen, origin=origin, stage=stage or "optimized")
