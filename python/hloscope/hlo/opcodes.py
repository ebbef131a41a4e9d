"""What every opcode does to a value: the one table that all analyses ask.

An analysis that follows a value, or passes over instructions that only bring it along, names a
class of this table. The names say what such instructions preserve:

    SAME_VALUE     the same array: copy, opt-barrier, domain
    SAME_SHAPE     … or another element type: + convert
    SAME_ORDER     the same elements in the same order: + bitcast, reshape
    SAME_ELEMENTS  every element once, of the same type: + transpose, reverse
    SAME_NUMBERS   every element once, perhaps rounded: + convert
    PART_OF_ONE    a part of one array: + slice, dynamic-slice
    REPEATED       one array, perhaps several times: SAME_NUMBERS + broadcast
    MOVES          no arithmetic: all of these + concatenate, pad, dynamic-update-slice

Each contains the asynchronous halves of its opcodes too (``copy-start``, ``slice-done``). Unite
and subtract classes as sets; to follow a value through them use ``walk.py``.

Sources: xla/hlo/ir/hlo_opcode.h for the opcodes, https://openxla.org/xla/operation_semantics for
what they do. ``optimization-barrier`` is StableHLO's name of ``opt-barrier``. An opcode that is
not in the table is in no class: nothing is assumed about it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from functools import cache, lru_cache

from .collective_kinds import FORMS, KINDS


class Effect(StrEnum):
    """What an opcode does to the values of its operands."""

    PASSES = "hands on the array as it is, in any layout or memory"
    RESHAPES = "gives the same elements in the same order other dimensions"
    REORDERS = "moves elements to other places along the dimensions"
    CONVERTS = "gives each element another type or precision"
    REPEATS = "repeats the array along new dimensions"
    SLICES = "takes a contiguous or strided part"
    JOINS = "puts arrays together, or one into another"
    INDEXES = "takes or writes elements at places that an index array gives"
    CHOOSES = "takes each element from one of several arrays"
    BUNDLES = "makes a tuple, or takes an element of one"
    LOOPS = "carries a tuple through the computation that it repeats"
    BRANCHES = "passes an operand to the computation that it chooses"
    CALLS = "passes its operands to a computation, and returns its result"
    FUSES = "computes what its computation says, as one kernel"
    COMPUTES = "computes each element from the elements at the same place"
    REDUCES = "combines elements along dimensions"
    MULTIPLIES = "contracts dimensions of two arrays"
    MIXES = "computes every element from many"
    COMMUNICATES = "exchanges values with other devices or the host"
    CALLS_LIBRARY = "does what its target says"
    PARAMETER = "is given from outside"
    LITERAL = "is known from the program alone"
    IDENTIFIES = "says which device this is"
    DRAWS = "draws random bits"
    ORDERS = "orders side effects, has no data"


@dataclass(frozen=True, slots=True)
class Opcode:
    """A row: ``data`` are the operands whose elements are in the result; None for all of them."""

    name: str
    effect: Effect
    data: tuple[int, ...] | None = None


_BY_EFFECT: dict[Effect, str] = {
    Effect.PASSES: "copy opt-barrier optimization-barrier domain add-dependency",
    Effect.RESHAPES: "bitcast reshape dynamic-reshape",
    Effect.REORDERS: "transpose reverse",
    Effect.CONVERTS: "convert bitcast-convert reduce-precision stochastic-convert",
    Effect.REPEATS: "broadcast",
    Effect.SLICES: "slice dynamic-slice",
    Effect.JOINS: "concatenate pad dynamic-update-slice",
    Effect.INDEXES: "gather scatter",
    Effect.CHOOSES: "select",
    Effect.BUNDLES: "tuple get-tuple-element",
    Effect.LOOPS: "while",
    Effect.BRANCHES: "conditional",
    Effect.CALLS: "call async",
    Effect.FUSES: "fusion",
    Effect.COMPUTES: """
        abs acos acosh add and asin asinh atan2 atanh cbrt ceil clamp compare complex cosine cosh
        count-leading-zeros divide erf exponential exponential-minus-one floor imag is-finite log
        log-plus-one logistic map maximum minimum mulhi multiply multiply-add negate not or popcnt
        power real remainder round-nearest-afz round-nearest-even rsqrt shift-left
        shift-right-arithmetic shift-right-logical sign sine sinh sqrt subtract tan tanh xor
        """,
    Effect.REDUCES: "reduce reduce-window select-and-scatter",
    Effect.MULTIPLIES: "dot convolution ragged-dot scaled-dot",
    Effect.MIXES: """
        batch-norm-grad batch-norm-inference batch-norm-training cholesky fft scan sort topk
        triangular-solve get-dimension-size set-dimension-size
        """,
    Effect.COMMUNICATES: " ".join((*KINDS, "send recv infeed outfeed")),
    Effect.CALLS_LIBRARY: "custom-call",
    Effect.PARAMETER: "parameter",
    Effect.LITERAL: "constant iota",
    Effect.IDENTIFIES: "partition-id replica-id",
    Effect.DRAWS: "rng rng-bit-generator rng-get-and-update-state",
    Effect.ORDERS: "after-all create-token",
}
_OF_FIRST = {
    Effect.PASSES, Effect.RESHAPES, Effect.REORDERS, Effect.CONVERTS, Effect.REPEATS,
    Effect.SLICES,
}  # fmt: skip
_DATA: dict[str, tuple[int, ...]] = {
    "gather": (0,),  # then the indices
    "scatter": (0, 2),  # between them the indices
    "select": (1, 2),  # after the predicate
    "dynamic-update-slice": (0, 1),  # then the offsets
    "pad": (0, 1),  # the array, and the value around it
}

OPCODES: dict[str, Opcode] = {
    name: Opcode(name, effect, _DATA.get(name, (0,) if effect in _OF_FIRST else None))
    for effect, names in _BY_EFFECT.items()
    for name in names.split()
}

# Custom calls that do what an opcode does, by target: XLA:TPU's removal of padding, and the pieces
# of a prefetch put together; placement in memory and marks of shardings change no value.
OF_TARGET = {
    "ZeroCrop": "slice",
    "ConcatBitcast": "concatenate",
    **dict.fromkeys(
        """
        Sharding SPMDFullToShardShape SPMDShardToFullShape MoveToHost MoveToDevice
        annotate_device_placement LayoutConstraint
        """.split(),
        "copy",
    ),
}


@cache
def async_half(opcode: str) -> tuple[str, str] | None:
    """("copy", "start") of "copy-start", for any opcode; None if it is whole.

    XLA prints an asynchronous operation as ``async-start`` with the computation that it runs, or
    for short as the opcode in that computation with a suffix: ``slice-start``.
    """
    base, dash, half = opcode.rpartition("-")
    return (base, half) if dash and f"-{half}" in FORMS else None


@lru_cache(maxsize=10_000)
def data_operands(opcode: str, count: int) -> range | tuple[int, ...]:
    """Which of ``count`` operands have elements that are in the result of an opcode."""
    known = OPCODES.get(opcode)
    if known is None or known.data is None:
        return range(count)
    return tuple(k for k in known.data if k < count)


def that(*effects: Effect) -> frozenset[str]:
    """The opcodes with any of these effects, and their asynchronous halves."""
    names = [o.name for o in OPCODES.values() if o.effect in effects]
    return frozenset(name + form for name in names for form in ("", *FORMS))


def with_halves(*names: str) -> frozenset[str]:
    """These opcodes and their asynchronous halves."""
    return frozenset(name + form for name in names for form in ("", *FORMS))


SAME_VALUE = that(Effect.PASSES)
SAME_SHAPE = that(Effect.PASSES, Effect.CONVERTS)
SAME_ORDER = that(Effect.PASSES, Effect.RESHAPES)
SAME_ELEMENTS = SAME_ORDER | that(Effect.REORDERS)
SAME_NUMBERS = SAME_ELEMENTS | that(Effect.CONVERTS)
PART_OF_ONE = SAME_NUMBERS | that(Effect.SLICES)
REPEATED = SAME_NUMBERS | that(Effect.REPEATS)
MOVES = PART_OF_ONE | REPEATED | that(Effect.JOINS)


def is_top_k(opcode: str, target: str | None) -> bool:
    """Whether it takes the k largest: an operation, or the call that XLA makes of it on a
    platform (``TopK``, ``TopKBatchMajorSmallK``)."""
    return opcode == "topk" or (target or "").startswith("TopK")


BARRIERS = ("opt-barrier", "optimization-barrier")  # XLA's own word, and StableHLO's
SLICES = that(Effect.SLICES)
INDEXED = that(Effect.INDEXES)  # places that an index array gives
UPDATES = with_halves("dynamic-update-slice", "scatter")  # write into an array
BUNDLES = that(Effect.BUNDLES)
LITERALS = that(Effect.LITERAL)
DEVICE_IDS = that(Effect.IDENTIFIES)
GIVEN = that(Effect.PARAMETER, Effect.LITERAL)  # computed by nothing
RANDOM = that(Effect.DRAWS)
ELEMENTWISE = that(Effect.COMPUTES)
PRODUCTS = that(Effect.MULTIPLIES)
REDUCTIONS = that(Effect.REDUCES)
COMMUNICATION = that(Effect.COMMUNICATES)
# The same value on other devices.
RESHARDS = with_halves(*(kind.name for kind in KINDS.values() if kind.reshards))

LOOPS = that(Effect.LOOPS)
BRANCHES = that(Effect.BRANCHES)
CALLS = that(Effect.CALLS)
FUSIONS = that(Effect.FUSES)
# Call one computation: operand k is its parameter k, and its root is the result.
DIRECT_CALLS = frozenset({"call", "fusion", "call-start", "async-start"})
CONTROL = LOOPS | BRANCHES | CALLS  # run the computations that they call
ANYTHING = that(*Effect)
