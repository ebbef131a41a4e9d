"""When one buffer may take another's place: XLA's may-alias rules.

t      ├── %a ──┤                 %b = tanh(%a) is the last use of %a and elementwise
t            ├── %b ──┤           → one place for both; otherwise both are live there
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ....hlo import Instruction, Module
from ....hlo.columns import each_once
from ...base.memory_spaces import VMEM
from ...base.table import per_module, table
from ...flops.elementwise import ELEMENTWISE, TRANSCENDENTAL
from .liveness import Liveness
from .values import TEMP

Ints = npt.NDArray[np.int64]
_ELEMENTWISE = ELEMENTWISE | TRANSCENDENTAL
_INSIDE = _ELEMENTWISE | {"copy"}  # a copy outside a fusion never takes the place of its operand


def shared_places(live: Liveness, sharing: Sharing) -> Ints:
    """For each temporary on the heap, the dying operand whose place it takes, or -1."""
    shared = live.shared.copy()
    on_heap = ((live.kind == TEMP) & (live.home < 0) & (live.size > 0)).tolist()
    start, end = live.start.tolist(), live.end.tolist()
    taken: set[int] = set()
    for b in np.flatnonzero(on_heap).tolist():
        for a in sharing.operands(live.module.instructions[int(live.defined_by[b])]):
            if (
                end[a] == start[b]
                and on_heap[a]
                and a not in taken
                and sharing.follows(a, b)
                and sharing.alone(a, b)
            ):
                shared[b] = a
                taken.add(a)
                break
    return shared


class Sharing:
    """Answers ``CanShareOperandBufferWithUser`` for buffers."""

    def __init__(self, live: Liveness) -> None:
        self.live = live
        self._operands: dict[int, dict[int, list[int]]] = {}

    def _positions(self, i: Instruction) -> dict[int, list[int]]:
        """Positions of each buffer among the array operands of ``i``, in order."""
        found = self._operands.get(i.index)
        if found is None:
            found = self._operands[i.index] = {}
            first, buffer_of = self.live.values.first, self.live.buffer_of
            for k, o in enumerate(i.operands):
                if not o.shape.is_tuple and first[o.index] >= 0:
                    found.setdefault(int(buffer_of[first[o.index]]), []).append(k)
        return found

    def maker(self, b: int, at: int | None = None) -> tuple[Instruction, int] | None:
        """(instruction, leaf) that makes the value of ``b``, at its start or at another point."""
        live = self.live
        if at is None:
            return live.module.instructions[int(live.defined_by[b])], int(live.leaf[b])
        i = live.module.instructions[int(live.schedule[at])]
        return next(
            ((i, k) for k, v in enumerate(live.values.nodes(i)) if live.buffer_of[v] == b), None
        )

    def whole_operands(self, b: int) -> list[int]:
        """Buffers of the array operands of the op that makes ``b``; [] if its result is a tuple."""
        i = self.live.module.instructions[int(self.live.defined_by[b])]
        return [] if i.shape.is_tuple else list(self._positions(i))

    def operands(self, i: Instruction) -> dict[int, list[int]]:
        """Buffers of the array operands of ``i``; {} if it cannot share."""
        if i.opcode not in ("fusion", "sort") and i.opcode not in _ELEMENTWISE:
            return {}
        return self._positions(i)

    def follows(self, a: int, b: int, at: int | None = None) -> bool:
        """Whether ``b``, made where ``a`` is last used, may take the place of ``a``.

        ``at`` is the point where it is made, if ``b`` is made several times.
        """
        live = self.live
        if live.size[a] != live.size[b] or live.space[a] != live.space[b]:
            return False
        # Fast memory is assigned before other buffers, by MemorySpaceAssignment, for which operands
        # and results of an instruction are both live while it runs.
        if live.space[a] == VMEM:
            return False
        made = self.maker(b, at)
        if made is None:
            return False
        uses = self.operands(made[0]).get(a, ())
        return bool(uses) and all(self.share(made[0], k, made[1]) for k in uses)

    def alone(self, a: int, b: int) -> bool:
        """Whether both hold a single value and ``b`` is made from that of ``a``, as on the heap."""
        live = self.live
        if live.has_several[a] or live.has_several[b]:
            return False
        instructions = live.module.instructions
        made, user = int(live.defined_by[a]), int(live.defined_by[b])
        return instructions[made] in instructions[user].operands

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
            return parameter.index not in _not_elementwise(user.module)
        root = called[0].root
        if kind == "kOutput" and root is not None and root.opcode == "add":
            products = [
                k for k, o in enumerate(root.operands) if o.opcode in ("dot", "convolution")
            ]
            return (
                bool(products)
                and not any(
                    parameter in i.operands for i in called[0].instructions if i is not root
                )
                and root.operands[1 - products[0]] is parameter
            )
        return False


@per_module
def _not_elementwise(module: Module) -> set[int]:
    """Instructions from which a fusion makes something that is not elementwise, nor a tuple."""
    t = table(module)
    other = t.by_opcode(lambda o: o not in _INSIDE and o != "tuple", bool) & (t.operands.counts > 0)
    fusion = t.by_opcode("fusion".__eq__, bool)
    fused = np.zeros(len(t.first), bool)
    fused[t.called.values[fusion[t.called.rows]]] = True
    found: set[int] = set()
    for c in each_once(t.computation[other & fused[t.computation]]).tolist():
        for i in reversed(module.computations[c].instructions):  # operands come before users
            if other[i.index] or i.index in found:
                found.update(o.index for o in i.operands)
    return found
