"""Operations that need a dimension whole: sorts, transforms, windows, factorisations."""

from __future__ import annotations

import re

from ...hlo import Instruction, opcodes
from ...hlo.opcodes import Effect

WHOLE = opcodes.that(Effect.MIXES, Effect.CALLS_LIBRARY) | {"reduce-window"}
_INTS = re.compile(r"\d+")


def dimensions_of(i: Instruction, rank: int) -> set[int] | None:
    """The dimensions that an operation goes along; None if nobody knows."""
    if i.opcode == "fft":
        return set(range(rank - len(ints(i.attribute("fft_length"))), rank))
    if i.opcode == "sort":
        return set(ints(i.attribute("dimensions")))
    if opcodes.is_top_k(i.opcode, i.custom_call_target):
        return {rank - 1}
    if i.opcode in ("cholesky", "triangular-solve"):
        return {rank - 2, rank - 1}
    if i.opcode == "reduce-window":
        sizes = re.search(r"size=([\dx]+)", i.attribute("window") or "")
        window = [int(n) for n in sizes[1].split("x")] if sizes else []
        return {d for d, n in enumerate(window) if n > 1} if len(window) == rank else None
    return None


def ints(text: str | None) -> list[int]:
    """The numbers in an attribute's text."""
    return [int(n) for n in _INTS.findall(text or "")]


def name_of(i: Instruction) -> str:
    """What the program calls it: ``top_k``, ``cumsum``, ``fft``."""
    *scopes, last = i.op_name.split("/") if i.op_name else [""]
    if last.startswith("reduce_window") and scopes:  # cumsum and its like, by their own name
        last = re.sub(r"^\w+\((.*)\)$", r"\1", scopes[-1])
    if not scopes and opcodes.is_top_k(i.opcode, i.custom_call_target):
        return "top_k"  # of what the compiler made of it
    return last or i.custom_call_target or i.opcode
