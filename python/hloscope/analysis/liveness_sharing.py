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
    on_heap = ((live.kind == TEMP) & (live.home < 0) & (live.size > 0)).tolist()
    start, end = live.start.tolist(), live.end.tolist()
    taken: set[int] = set()
    for b in np.flatnonzero(on_heap).tolist():
        for a in can.operands(b):
            if end[a] == start[b] and on_heap[a] and a not in taken and can.follows(a, b):
                shared[b] = a
                taken.add(a)
                break
    return shared


# Temporaries that together are less than this part of what is placed are left on the heap.
_NEGLIGIBLE = 1 / 500


def _homes(live: Liveness, can: _Sharing) -> Ints:
    """Puts temporaries where an output is not yet written or a donated argument is read out.

    Largest first, then in post-order, each into the smallest place that is big enough and
    free for its whole life, as ``BufferAssigner::AssignBuffersForComputations`` does.

        donated argument  ├ read ┤  free window  ├ output ┤
        plain output          free window        ├ output ┤
    """
    home = live.home.copy()
    start, end = live.start.tolist(), live.end.tolist()
    # (size, host, first free point, last free point, buffer before, buffer after)
    windows: list[tuple[int, int, int, int, int, int]] = []
    for b in np.flatnonzero((live.kind == OUTPUT) & (live.size > 0)).tolist():
        before = int(home[b])
        host = before if before >= 0 else b
        opens = end[before] if before >= 0 else -1
        windows.append((int(live.size[host]), host, opens, start[b], before, b))
    if not windows:
        return home
    windows.sort()
    places = np.array(windows, np.int64)
    room = np.zeros((len(places) * 4, 6), np.int64)
    room[: len(places)] = places
    used = len(places)
    temps = np.flatnonzero((live.kind == TEMP) & (live.size > 0))
    temps = temps[live.size[temps] <= places[-1, 0]]
    position = _post_order(live)[live.defined_by[temps]]
    temps = temps[np.lexsort((position, -live.size[temps]))]
    rest = np.cumsum(live.size[temps][::-1])[::-1]
    temps = temps[rest > _NEGLIGIBLE * float(live.size[live.kind != TEMP].sum())]
    host_space = live.space
    instants = {start[b] for b in temps.tolist() if start[b] == end[b]}
    for b in temps.tolist():
        rows = room[:used]
        fits = np.flatnonzero(
            (rows[:, 0] >= live.size[b])
            & (rows[:, 2] <= start[b])
            & (rows[:, 3] >= end[b])
            & (host_space[rows[:, 1]] == host_space[b])
        )
        if len(fits) > 1:
            fits = fits[np.lexsort((rows[fits, 1], rows[fits, 0]))]
        for w in fits.tolist():
            size, host, opens, closes, before, after = room[w].tolist()
            if opens == start[b] and not (before >= 0 and can.follows(before, b)):
                continue
            if closes == end[b] and not can.follows(b, after):
                continue
            home[b] = host
            # Windows that nothing fits in any more go, or a long chain takes quadratic time.
            left = [(size, host, opens, start[b], before, b)]
            right = [(size, host, end[b], closes, b, after)]
            parts = [p for p in left + right if p[2] < p[3] or p[2] in instants]
            used -= 1
            room[w] = room[used]
            if used + len(parts) > len(room):
                room = np.vstack([room, np.zeros_like(room)])
            for part in parts:
                room[used] = part
                used += 1
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
        self._operands: dict[int, dict[int, list[int]]] = {}

    def _positions(self, i: Instruction) -> dict[int, list[int]]:
        """Buffer → positions among the array operands of ``i``, in order."""
        found = self._operands.get(i.index)
        if found is None:
            found = self._operands[i.index] = {}
            first, buffer_of = self.live.values.first, self.live.buffer_of
            for k, o in enumerate(i.operands):
                if not o.shape.is_tuple and first[o.index] >= 0:
                    found.setdefault(int(buffer_of[first[o.index]]), []).append(k)
        return found

    def _maker(self, b: int) -> Instruction:
        return self.live.module.instructions[int(self.live.defined_by[b])]

    def operands(self, b: int) -> dict[int, list[int]]:
        """Buffers of the array operands of what makes ``b``; none where it cannot share."""
        i = self._maker(b)
        if i.opcode not in ("fusion", "sort") and i.opcode not in _ELEMENTWISE:
            return {}
        return self._positions(i)

    def follows(self, a: int, b: int) -> bool:
        """Whether ``b``, made where ``a`` is last used, may take the place of ``a``."""
        live = self.live
        if live.size[a] != live.size[b] or live.space[a] != live.space[b]:
            return False
        uses = self.operands(b).get(a, ())
        user = self._maker(b)
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
