"""Opcodes by the cost of one output element: one FLOP, one transcendental, nothing."""

from __future__ import annotations

from ....hlo.barriers import BARRIERS
from ....hlo.collective_kinds import KINDS

TRANSCENDENTAL = frozenset(
    "acos acosh asin asinh atan2 atanh cbrt cosh cosine erf exponential exponential-minus-one log "
    "log-plus-one logistic power rsqrt sine sinh sqrt tan tanh".split()
)
ELEMENTWISE = frozenset(
    "abs add and bitcast-convert ceil clamp compare complex convert count-leading-zeros divide "
    "floor imag is-finite maximum minimum multiply negate not or popcnt real reduce-precision "
    "remainder round-nearest-afz round-nearest-even select shift-left shift-right-arithmetic "
    "shift-right-logical sign stochastic-convert subtract xor multiply-add".split()
)
# No arithmetic of their own; containers (fusion, while, call, …) get theirs in cost.py.
FREE = frozenset(
    "parameter constant iota tuple get-tuple-element bitcast copy copy-start copy-done reshape "
    "dynamic-reshape transpose broadcast slice concatenate pad reverse gather dynamic-slice "
    "dynamic-update-slice after-all add-dependency partition-id replica-id infeed outfeed send "
    "send-done recv recv-done domain get-dimension-size set-dimension-size "
    "rng-get-and-update-state async-start async-update async-done fusion while call conditional "
    "stochastic-round".split()
) | {
    *BARRIERS,
    *(o for k in KINDS.values() for o in k.opcodes if not k.reduces or o.endswith("-done")),
}
