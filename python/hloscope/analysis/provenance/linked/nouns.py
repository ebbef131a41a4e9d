"""The nouns for operations in sentences, and which operation an expression is mainly about."""

from __future__ import annotations

from ....hlo import Operation
from ....hlo.collective_kinds import KINDS
from ..fates.fate import hlo_opcode

_HELPS = frozenset(["constant", "iota", "broadcast", "reshape", "convert", "transpose", "slice"])
# Rarely what a user means by an expression, if it has another operation.
HEAVY = 4
_WEIGHT = {"matmul": HEAVY, "convolution": HEAVY, "custom-call": HEAVY, "loop": HEAVY}
# More likely the main operation than the arithmetic of its indices or of a mean.
_WEIGHT |= dict.fromkeys(
    "gather scatter sort reduce reduce-window select-and-scatter top-k fft cholesky conditional "
    "triangular-solve dynamic-slice dynamic-update-slice rng-bit-generator".split(),
    3,
)
_WEIGHT |= dict.fromkeys(KINDS, 3) | {"call": 0}
_NOUNS = {"dot": "matmul", "while": "loop"}


def noun_of(operation: Operation) -> str:
    """The noun for an operation: ``matmul``, otherwise HLO's opcode."""
    opcode = hlo_opcode(operation.opcode.removeprefix("chlo.").removeprefix("sdy."))
    return of_opcode(opcode)


def of_opcode(opcode: str) -> str:
    """The noun for an HLO opcode."""
    return _NOUNS.get(opcode, opcode)


def weight_of(noun: str) -> int:
    """How likely it is that a user means this operation of an expression."""
    return _WEIGHT.get(noun, 1 if noun in _HELPS else 2)


def plural(noun: str) -> str:
    """Several of a noun."""
    if noun.endswith("y") and noun[-2:-1] not in "aeiou":
        return noun[:-1] + "ies"
    return noun + ("es" if noun.endswith(("s", "x", "ch", "sh")) else "s")


def plural_verb(what: str) -> str:
    """The plural of a predicate: "was fused" → "were fused"."""
    for one, many in (("was ", "were "), ("is ", "are ")):
        if what.startswith(one):
            return many + what.removeprefix(one)
    return what
