"""Bits that say how an instruction is to be drawn; ``Flag`` in js/view.ts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ....hlo import opcodes
from ....hlo.collective_kinds import is_collective
from ..table import Table, per_module, table
from .families import FAMILIES, ID, families
from .turns import turns

if TYPE_CHECKING:
    from ....hlo import Module

ROOT, INLINE, PARAMETER, PLUMBING, LANDMARK, OUTPUT, ASYNC_START, ASYNC_DONE, MOVE, TURN = (
    1 << n for n in range(10)
)
# Of next to none of the program's arithmetic; ``grouping/work.py`` says which.
LITTLE = 1 << 10
Mask = NDArray[np.bool_]
# Not drawn as a box of its own by default.
QUIET = INLINE | PARAMETER | PLUMBING

# A copy at least this big costs memory traffic worth seeing; a smaller one is plumbing.
VISIBLE_COPY_BYTES = 1 << 20
# "Big buffers": at least this big, this share of the biggest array, and no more than this many.
BIG_BYTES = 1 << 20
BIG_SHARE = 0.5
BIG_COUNT = 24

_INLINE = opcodes.LITERALS | opcodes.DEVICE_IDS
_SPREADING = opcodes.GIVEN | opcodes.REPEATED
# Moves nothing in memory.
_PLUMBING = (
    opcodes.BUNDLES | opcodes.SAME_ORDER | {"after-all"}
) - opcodes.with_halves("copy")  # fmt: skip


def output_bytes(t: Table) -> NDArray[np.float64]:
    """Bytes of each instruction's output per device, dense."""
    sizes = np.array([float(s.byte_size) for s in t.shapes], np.float64)
    return sizes[t.shape] if len(sizes) else np.zeros(0)


@per_module
def flags(module: Module) -> NDArray[np.uint16]:
    """One row of bits per instruction."""
    t = table(module)
    n = len(t.instructions)
    out = np.zeros(n, np.int64)
    out[t.roots[t.roots >= 0]] |= ROOT
    short = {o: o.rsplit(".", 1)[-1].replace("_", "-") for o in t.opcodes}
    is_ = lambda names: t.by_opcode(lambda o: short[o] in names, bool)  # noqa: E731
    rank = np.array([s.rank if s.is_array else 99 for s in t.shapes], np.int64)[t.shape]
    bytes_ = output_bytes(t)
    inline = is_(_INLINE) | (is_(("broadcast", "broadcast-in-dim")) & _scalar_operand(t, rank))
    inline |= _spread(t, rank, bytes_)
    move = is_(_MOVES) | t.by_opcode(lambda o: o.endswith("-done") and is_collective(o), bool)
    family = families(module)
    marker = np.zeros(n, bool)
    for i in np.flatnonzero(is_(("custom-call",))).tolist():
        target = t.instructions[i].custom_call_target
        inline[i] = target == "AllocateBuffer"  # memory that a loop fills: no work
        move[i] = target == "ConcatBitcast"
        marker[i] = family[i] == ID["plumbing"]  # how something is sharded or laid out
    plumbing = is_(_PLUMBING) | move | marker | (is_(("copy",)) & (bytes_ < VISIBLE_COPY_BYTES))
    parameter = is_(("parameter",))
    taken, kept = _around_turns(module, inline | plumbing | parameter)
    inline |= taken
    plumbing |= kept
    out[taken | kept] |= TURN
    out[inline] |= INLINE
    out[parameter] |= PARAMETER
    out[plumbing] |= PLUMBING
    out[move] |= MOVE
    out[t.by_opcode(lambda o: o.endswith("-start"), bool)] |= ASYNC_START
    out[t.by_opcode(lambda o: o.endswith("-done"), bool)] |= ASYNC_DONE
    out[_landmarks(t, family, bytes_)] |= LANDMARK
    _outputs(module, out)
    return out.astype(np.uint16)


# What only moves a value, earlier or elsewhere: a mark on the arrow (cost/moves.py).
_MOVES = opcodes.with_halves("copy", "slice") - {"copy", "slice"}


def _around_turns(module: Module, quiet: Mask) -> tuple[Mask, Mask]:
    """What loops take and keep around each turn, of those that do something else as well."""
    t = table(module)
    found = turns(module)
    drawn = np.bincount(t.computation[~(quiet | found.taken | found.kept)], minlength=len(t.first))
    some = (drawn > 0)[t.computation]
    return found.taken & some, found.kept & some


def _scalar_operand(t: Table, rank: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Whether the only operand is a scalar."""
    single = t.operands.counts == 1
    out = np.zeros(len(single), bool)
    operand = t.operands.values[t.operands.offsets[:-1][single]]
    out[single] = rank[operand] == 0
    return out


def _spread(t: Table, rank: NDArray[np.int64], bytes_: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Fusions that only spread a constant, a scale or a bias: values that nothing computed.

    Not the program's results, nor a vector that is cast or copied and grows no larger.
    """
    given = t.by_opcode(lambda o: o in opcodes.LITERALS, bool)
    given |= t.by_opcode(lambda o: o == "parameter", bool) & (rank <= 1)
    plain = t.by_opcode(lambda o: o in _SPREADING, bool)
    out = t.by_opcode(lambda o: o == "fusion", bool)
    rows, values = t.operands.rows, t.operands.values
    out[rows[~given[values]]] = False
    out[rows[bytes_[rows] <= bytes_[values]]] = False
    results = np.zeros(len(out), bool)
    results[t.roots[t.roots >= 0]] = True
    results[values[results[rows]]] = True  # what the tuple of all results holds
    out &= ~results
    caller, _ = t.caller()
    computing = np.bincount(t.computation[~plain], minlength=len(t.first)) > 0
    out[caller[computing & (caller >= 0)]] = False
    return out


def _landmarks(
    t: Table, family: NDArray[np.uint8], bytes_: NDArray[np.float64]
) -> NDArray[np.bool_]:
    landmark = np.array([f.landmark for f in FAMILIES])[family]
    landmark &= ~((family == ID["control_flow"]) & t.by_opcode(lambda o: o == "call", bool))
    array = np.array([s.is_array for s in t.shapes], bool)[t.shape]
    quiet = (ID["parameter"], ID["constant"], ID["plumbing"])
    candidate = np.flatnonzero(array & ~np.isin(family, quiet))
    if len(candidate):
        size = bytes_[candidate]
        big = candidate[size >= max(BIG_BYTES, BIG_SHARE * size.max())]
        landmark[big[np.argsort(-bytes_[big], kind="stable")][:BIG_COUNT]] = True
    return landmark


def _outputs(module: Module, out: NDArray[np.int64]) -> None:
    root = module.entry.root if module.entry is not None else None
    if root is None:
        return
    out[root.index] |= OUTPUT
    if root.opcode == "tuple":
        for o in root.operands:
            out[o.index] |= OUTPUT
