"""Operations that need a dimension whole: sorts, transforms, windows, factorisations."""

from __future__ import annotations

import re

from ...hlo import Instruction, opcodes, walk
from ...hlo.opcodes import Effect

WHOLE = opcodes.that(Effect.MIXES, Effect.CALLS_LIBRARY) | {"reduce-window"}
# A library's factorisation of matrices: Cholesky's, LU, QR, by LAPACK's names of them.
_FACTORS = re.compile(r"(?:potrf|getrf|geqrf|cholesky|lu_decomposition|qr_decomposition)", re.I)
_INTS = re.compile(r"\d+")
OTHER_DIMENSION = (
    "shard a dimension that it does not go along (with_sharding_constraint, or in_shardings), and"
    " run it in jax.shard_map, where each device does its own part"
)


def dimensions_of(i: Instruction, rank: int) -> set[int] | None:
    """The dimensions that an operation goes along; None if nobody knows."""
    if i.opcode == "fft":
        return set(range(rank - len(ints(i.attribute("fft_length"))), rank))
    if i.opcode == "sort":
        return set(ints(i.attribute("dimensions")))
    if opcodes.is_top_k(i.opcode, i.custom_call_target):
        return {rank - 1}
    if i.opcode in ("cholesky", "triangular-solve") or _FACTORS.search(i.custom_call_target or ""):
        return {rank - 2, rank - 1}
    if i.opcode == "reduce-window":
        sizes = re.search(r"size=([\dx]+)", i.attribute("window") or "")
        window = [int(n) for n in sizes[1].split("x")] if sizes else []
        return {d for d, n in enumerate(window) if n > 1} if len(window) == rank else None
    return None


def has_other_dimension(i: Instruction) -> bool:
    """Whether an array has a dimension that an operation does not go along, if it is known."""
    rank = len(i.shape.dimensions) if i.shape.is_array else 0
    along = dimensions_of(i, rank)
    others = (n for d, n in enumerate(i.shape.dimensions) if along is not None and d not in along)
    return any(n > 1 for n in others)


def is_solved_with(i: Instruction) -> bool:
    """Whether a factorisation is used to solve a system, and nothing else is done with it."""
    if i.opcode != "cholesky" and not _FACTORS.search(i.custom_call_target or ""):
        return False
    through = opcodes.ANYTHING - opcodes.LOOPS - opcodes.COMMUNICATION
    ahead = walk.forward(i, through, inside_fusions=True)
    return any(_solves(p.instruction) for p in ahead)


def _solves(i: Instruction) -> bool:
    return i.opcode == "triangular-solve" or "trsm" in (i.custom_call_target or "")


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
