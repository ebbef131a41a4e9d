"""Opcodes by the cost of one output element: one FLOP, one transcendental, nothing."""

from __future__ import annotations

from ...hlo.collective_kinds import KINDS
from ...hlo.opcodes import OPCODES, Effect, that, with_halves

TRANSCENDENTAL = frozenset(
    "acos acosh asin asinh atan2 atanh cbrt cosh cosine erf exponential exponential-minus-one log "
    "log-plus-one logistic power rsqrt sine sinh sqrt tan tanh".split()
)
_PER_ELEMENT = (Effect.COMPUTES, Effect.CONVERTS, Effect.CHOOSES)
ELEMENTWISE = (
    frozenset(o.name for o in OPCODES.values() if o.effect in _PER_ELEMENT)
    - TRANSCENDENTAL
    - {"map"}  # costs what its computation does
)
# No arithmetic of their own; containers (fusion, while, call, …) get theirs in counts.py.
FREE = (
    that(
        Effect.PASSES, Effect.RESHAPES, Effect.REORDERS, Effect.REPEATS, Effect.SLICES,
        Effect.JOINS, Effect.BUNDLES, Effect.LOOPS, Effect.BRANCHES, Effect.CALLS, Effect.FUSES,
        Effect.PARAMETER, Effect.LITERAL, Effect.IDENTIFIES, Effect.ORDERS,
    )
    | with_halves("gather", "send", "recv", "infeed", "outfeed")
    | {"get-dimension-size", "set-dimension-size", "rng-get-and-update-state", "stochastic-round"}
    | {o for k in KINDS.values() for o in k.opcodes if not k.reduces or o.endswith("-done")}
)  # fmt: skip
