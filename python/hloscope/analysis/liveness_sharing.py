"""Where one buffer may take another's place: XLA's may-alias rules.

t      ├── %a ──┤                 %b = tanh(%a) is the last use of %a and elementwise
t            ├── %b ──┤           → one place for both; else both are live at that point
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from ..hlo import Instruction
from .flops import ELEMENTWISE, TRANSCENDENTAL
from .liveness_values import OUTPUT, TEMP

if TYPE_CHECKING:
    from .liveness import Liveness

Ints = npt.NDArray[np.int64]
_ELEMENTWISE = ELEMENTWISE | TRANSCENDENTAL | {"copy"}


def reuse(live: Liveness) -> Liveness:
    """The liveness with ``home`` and ``shared`` filled in."""
    can = _Sharing(live)
    live = replace(live, home=_homes(live, can))
    return replace(live, shared=_shared(live, can))


def _shared(live: Liveness, can: _Sharing) -> Ints:
    """For each temporary of the heap, the dying operand whose place it takes, or -1."""
    shared = live.shared.copy()
    on_heap = (live.kind == TEMP) & (live.home < 0) & (live.size > 0)
    taken: set[int] = set()
    for b in np.flatnonzero(on_heap).tolist():
        t = int(live.start[b])
        for a in can.operands(b):
            if on_heap[a] and a not in taken and live.end[a] == t and can.follows(a, b):
                shared[b] = a
                taken.add(a)
                break
    return shared


def _homes(live: Liveness, can: _Sharing) -> Ints:
    """Puts temporaries where an output is not yet written or a donated argument is read out.

    Largest first, then in post-order, each into the smallest place that is big enough and
    free for its whole life, as ``BufferAssigner::AssignBuffersForComputations`` does.
    """
    home = live.home.copy()
    busy: dict[int, list[int]] = {}
    for b in np.flatnonzero((live.kind == OUTPUT) & (live.size > 0)).tolist():
        host = int(home[b]) if home[b] >= 0 else b
        busy.setdefault(host, [] if host == b else [host]).append(b)
    if not busy:
        return home
    hosts = sorted(busy, key=lambda b: (int(live.size[b]), b))
    sizes = np.array([int(live.size[b]) for b in hosts])
    temps = np.flatnonzero((live.kind == TEMP) & (live.size > 0))
    temps = temps[live.size[temps] <= sizes[-1]]
    position = _post_order(live)[live.defined_by[temps]]
    start, end, space = live.start.tolist(), live.end.tolist(), live.space.tolist()
    for b in temps[np.lexsort((position, -live.size[temps]))].tolist():
        for h in hosts[int(np.searchsorted(sizes, live.size[b])) :]:
            if space[h] == space[b] and all(
                end[b] < start[o]
                or start[b] > end[o]
                or (end[b] == start[o] and can.follows(b, o))
                or (start[b] == end[o] and can.follows(o, b))
                for o in busy[h]
            ):
                home[b] = h
                busy[h].append(b)
                break
    return home


def _post_order(live: Liveness) -> Ints:
    """Position of each instruction when operands come before users, first operand first."""
    order = np.zeros(len(live.module.instructions), np.int64)
    seen = bytearray(len(order))
    at = 0
    for computation in live.module.computations:
        if not live.values.calls.executed[computation.index] or computation.root is None:
            continue
        for start in (computation.root, *computation.instructions):
            stack = [start]
            while stack:
                i = stack[-1]
                if seen[i.index]:
                    stack.pop()
                    if seen[i.index] == 1:
                        seen[i.index] = 2
                        order[i.index] = at
                        at += 1
                    continue
                seen[i.index] = 1
                stack.extend(o for o in reversed(i.operands) if not seen[o.index])
    return order


class _Sharing:
    """Answers ``CanShareOperandBufferWithUser`` for buffers, remembering fusions."""

    def __init__(self, live: Liveness) -> None:
        self.live = live
        self._elementwise: dict[int, bool] = {}

    def operands(self, b: int) -> list[int]:
        """Buffers of the array operands of the instruction that makes ``b``, in order."""
        live = self.live
        user = live.module.instructions[int(live.defined_by[b])]
        first = live.values.first
        return [
            int(live.buffer_of[first[o.index]])
            for o in user.operands
            if not o.shape.is_tuple and first[o.index] >= 0
        ]

    def follows(self, a: int, b: int) -> bool:
        """Whether ``b``, made where ``a`` is last used, may take the place of ``a``."""
        live = self.live
        if live.size[a] != live.size[b] or live.space[a] != live.space[b]:
            return False
        user = live.module.instructions[int(live.defined_by[b])]
        first = live.values.first
        uses = [
            k
            for k, o in enumerate(user.operands)
            if not o.shape.is_tuple and first[o.index] >= 0 and live.buffer_of[first[o.index]] == a
        ]
        return bool(uses) and all(self.share(user, k, int(live.leaf[b])) for k in uses)

    def share(self, user: Instruction, operand: int, leaf: int) -> bool:
        """Whether result ``leaf`` of ``user`` may take the place of the operand."""
        o = user.operands[operand]
        out = user.shape.tuple_shapes[leaf] if user.shape.is_tuple else user.shape
        if o.opcode == "constant" or o.shape != out:
            return False
        if user.opcode == "fusion":
            return self._fusion(user, operand)
        if user.opcode == "sort":
            if len(o.users) != 1:
                return False
            return len(user.operands) == 1 or leaf == operand
        return user.opcode in _ELEMENTWISE

    def _fusion(self, user: Instruction, operand: int) -> bool:
        called = user.called_computations
        parameters = called[0].parameters if called else ()
        if operand >= len(parameters):
            return False
        parameter = parameters[operand]
        kind = user.fusion_kind
        if kind in ("kLoop", "kInput"):
            return self._only_elementwise(parameter)
        root = called[0].root
        if kind == "kOutput" and root is not None and root.opcode == "add":
            products = [
                k for k, o in enumerate(root.operands) if o.opcode in ("dot", "convolution")
            ]
            return (
                bool(products)
                and parameter.users == (root,)
                and root.operands[1 - products[0]] is parameter
            )
        return False

    def _only_elementwise(self, i: Instruction) -> bool:
        """Whether everything made from it inside the fusion is elementwise or a tuple."""
        found = self._elementwise.get(i.index)
        if found is not None:
            return found
        self._elementwise[i.index] = True  # a cycle (malformed) would end here
        result = all(
            u.opcode == "tuple" or (u.opcode in _ELEMENTWISE and self._only_elementwise(u))
            for u in i.users
        )
        self._elementwise[i.index] = result
        return result
