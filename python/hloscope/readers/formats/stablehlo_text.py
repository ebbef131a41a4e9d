"""StableHLO as MLIR text."""

from __future__ import annotations

from ...hlo import Module
from ..files.decode import to_text
from ..recognise import is_stablehlo

NAME = "StableHLO text"
SUFFIXES = (".mlir", ".stablehlo")
IS_CERTAIN = False

accepts = is_stablehlo


def read(data: bytes, name: str) -> list[Module]:
    """The modules; at least one."""
    from ..stablehlo.text import read_all

    return read_all(*to_text(data))
