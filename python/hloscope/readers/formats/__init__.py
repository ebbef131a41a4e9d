"""The formats that hold HLO, one file each.

A file has ``NAME`` (as docs/formats.md has it), ``SUFFIXES`` that file names usually have,
``IS_CERTAIN``, ``accepts`` and ``read``. Formats are known by content; suffixes only help hosts to
offer a file, or to say that there is none of a name.
"""

from __future__ import annotations

from typing import Protocol

from ...hlo import Module
from . import (
    beside_a_dump,
    compilation_cache,
    exported_program,
    hlo_proto,
    hlo_proto_text,
    hlo_text,
    profiler_trace,
    stablehlo_bytecode,
    stablehlo_text,
)


class Format(Protocol):
    """What a file of this folder has."""

    @property
    def NAME(self) -> str: ...
    @property
    def SUFFIXES(self) -> tuple[str, ...]: ...
    @property
    def IS_CERTAIN(self) -> bool:
        """Whether what it accepts can be nothing else: if it fails, no other format is tried."""

    def accepts(self, data: bytes, /) -> bool:
        """Whether the content looks like this format. Quick, and never raises."""

    def read(self, data: bytes, name: str, /) -> list[Module]:
        """The modules in it; ``name`` is for messages. Raises ``ReadError``."""


# The first one that accepts the content and reads a module of it is taken.
READERS: tuple[Format, ...] = (
    profiler_trace,
    beside_a_dump,
    hlo_proto,
    stablehlo_bytecode,
    exported_program,
    compilation_cache,
    hlo_proto_text,
    stablehlo_text,
    hlo_text,
)
# How names of files end that may hold HLO.
SUFFIXES = (*dict.fromkeys(s for reader in READERS for s in reader.SUFFIXES), ".gz")
