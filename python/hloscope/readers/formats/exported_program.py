"""A program that ``jax.export`` serialised: a flatbuffer around StableHLO bytecode."""

from __future__ import annotations

from ...hlo import Module
from . import stablehlo_bytecode

NAME = "exported program"
SUFFIXES: tuple[str, ...] = ()
IS_CERTAIN = False


def _bytecode(data: bytes) -> tuple[int, int] | None:
    """Where the bytecode begins and ends: after its length."""
    at = data.find(stablehlo_bytecode.MAGIC, 4, 1 << 20)
    if at < 8:
        return None
    size = int.from_bytes(data[at - 4 : at], "little")
    return (at, at + size) if 4 < size <= len(data) - at else None


def accepts(data: bytes) -> bool:
    return _bytecode(data) is not None


def read(data: bytes, name: str = "") -> list[Module]:
    """The program in what ``jax.export.Exported.serialize`` wrote. Raises ``ReadError``."""
    place = _bytecode(data)
    assert place is not None
    return stablehlo_bytecode.read(data[slice(*place)], name)
