"""What an element of a tuple is called: the value, not its place in the tuple.

params['w']       ← element 3 of the loop's parameter, which is its initial value
x                 ← element 0 of the loop: x at first, then what the body makes of it
fusion add·tanh   ← element 1 of a fusion: what its root has there
counter           ← what a loop starts at a constant and increments by one
"""

from __future__ import annotations

from ....hlo import opcodes
from ..table import Table

_STEPS = 40  # from a value to what names it
_FORWARDS = opcodes.SAME_ORDER | opcodes.SAME_SHAPE | {"async-done", "async-update"}
_ONLY_MOVES = opcodes.SAME_NUMBERS | {"parameter"}
_WITH_A_ROOT = opcodes.DIRECT_CALLS | {"custom-call"}
Named = tuple[str, bool]  # a name, and whether it is that of an argument


class ElementNames:
    """Names of values by walking back through tuples, loops and calls; ``labels`` for the rest."""

    def __init__(self, t: Table, labels: list[str]) -> None:
        self.t = t
        self.labels = labels
        self.caller, self.role = t.caller()
        # accessed here and there: converting all to lists would take longer
        self.begin = t.operands.offsets.data
        self.operand = t.operands.values.data
        self.opcode: list[str] = []
        self.index: dict[int, int | None] = {}
        self.roots: list[int] = []
        if t.instructions:
            module = t.instructions[0].module
            self.opcode = [*module.opcodes_list, ""]  # -1, no instruction, has none
            self.index = module.tuple_indices
            self.roots = t.roots.tolist()
        self.known: dict[tuple[int, int], Named | None] = {}
        self.steps = 0  # taken on the way that is being walked

    def of(self, n: int) -> str:
        """The name of a get-tuple-element."""
        found = self._value(n)
        return found[0] if found is not None else self.labels[n]

    def _operands(self, n: int) -> list[int]:
        begin, end = self.begin[n], self.begin[n + 1]
        return self.operand[begin:end].tolist()

    def _value(self, n: int) -> Named | None:
        self.steps += 1
        found = self._value_anew(n) if self.steps <= _STEPS else None
        self.steps -= 1
        return found

    def _value_anew(self, n: int) -> Named | None:
        op = self.opcode[n]
        operands = self._operands(n)
        if op == "get-tuple-element":
            k = self.index[n]
            return None if k is None or not operands else self._element(operands[0], k)
        if op == "parameter":
            return self._parameter(n)
        if op in _FORWARDS and len(operands) == 1:
            return self._value(operands[0]) or (self.labels[n], False)
        if op == "fusion" and len(operands) == 1 and self._only_moves(n):
            return self._value(operands[0]) or (self.labels[n], False)
        return self.labels[n], False

    def _only_moves(self, n: int) -> bool:
        """Whether a fusion only returns its one operand in another type or order."""
        root = self._root(n)
        if root < 0:
            return False
        c = int(self.t.computation[root])
        first = int(self.t.first[c])
        inside = self.opcode[first : first + int(self.t.size[c])]
        return all(op in _ONLY_MOVES for op in inside)

    def _parameter(self, n: int) -> Named | None:
        t = self.t
        c = int(t.computation[n])
        if t.instructions[n].computation.is_entry:
            return self.labels[n], True
        caller = int(self.caller[c])
        number = t.instructions[n].parameter_number
        if number is None or self.role[c] not in ("calls", "to_apply"):
            return None
        operands = self._operands(caller)
        return self._value(operands[number]) if number < len(operands) else None

    def _element(self, n: int, k: int) -> Named | None:
        """Element ``k`` of the tuple ``n``."""
        if self.steps > _STEPS:
            return None
        key = n, k
        if key not in self.known:
            self.known[key] = None  # ends a cycle, in a cut dump
            self.steps += 1
            self.known[key] = self._element_anew(n, k)
            self.steps -= 1
        return self.known[key]

    def _element_anew(self, n: int, k: int) -> Named | None:
        op = self.opcode[n]
        operands = self._operands(n)
        if op == "tuple":
            return self._value(operands[k]) if k < len(operands) else None
        if op == "while" and operands:
            return self._carried(n, k)
        if op == "parameter":
            return self._passed(n, k)
        if op in _FORWARDS and operands:
            return self._element(operands[0], k)
        if op in _WITH_A_ROOT:
            root = self._root(n)
            if self.opcode[root] == "tuple":
                inside = self._operands(root)
                return self._value(inside[k]) if k < len(inside) else None
        if op == "get-tuple-element":
            return None
        return self.labels[n], False

    def _passed(self, n: int, k: int) -> Named | None:
        """Element ``k`` of a computation's parameter."""
        t = self.t
        if t.instructions[n].computation.is_entry:
            return f"{self.labels[n]}[{k}]", True
        c = int(t.computation[n])
        caller = int(self.caller[c])
        operands = self._operands(caller)
        if self.role[c] in ("body", "condition") and operands:
            return self._carried(caller, k)
        number = t.instructions[n].parameter_number
        if self.role[c] not in ("calls", "to_apply") or number is None or number >= len(operands):
            return None
        return self._element(operands[number], k)

    def _carried(self, loop: int, k: int) -> Named | None:
        """What a loop carries: the argument it starts with, else what its body makes."""
        key = ~loop, k
        if key in self.known:
            return self.known[key]
        self.known[key] = None
        begun = self._element(self._operands(loop)[0], k)
        found = begun
        if begun is None or not begun[1]:
            found = self._made(loop, k) or begun
        self.known[key] = found
        return found

    def _made(self, loop: int, k: int) -> Named | None:
        root = self._root(loop, "body")
        if self.opcode[root] != "tuple":
            return None
        inside = self._operands(root)
        if k >= len(inside):
            return None
        n = inside[k]
        for _ in range(_STEPS):
            operands = self._operands(n)
            if self.opcode[n] not in _FORWARDS or not operands:
                break
            n = operands[0]
        op = self.opcode[n]
        if op in ("get-tuple-element", "parameter"):
            return None  # carried unchanged
        put = self._put(n)
        if put is not None:
            return f"stack of {put}", False
        shape = self.t.instructions[n].shape
        if op in ("add", "fusion") and shape.is_array and not shape.dimensions:
            element = shape.element_type
            if element in ("s32", "u32", "s64", "u64") and self._counts(n):
                return "counter", False
        return self.labels[n], False

    def _put(self, n: int) -> str | None:
        """The name of what an update of a slice writes; None if there is no such update."""
        at = self._root(n) if self.opcode[n] == "fusion" else n
        while self.opcode[at] in _FORWARDS and self._operands(at):
            at = self._operands(at)[0]
        if self.opcode[at] != "dynamic-update-slice" or len(self._operands(at)) < 2:
            return None
        put = self._operands(at)[1]
        for _ in range(_STEPS):
            inside = self._operands(put)
            if (
                self.opcode[put] not in _FORWARDS and self.opcode[put] != "broadcast"
            ) or not inside:
                break
            put = inside[0]
        found = self._value(put)
        return found[0] if found is not None else self.labels[put]

    def _counts(self, n: int) -> bool:
        """Whether a scalar is another plus a constant."""
        if self.opcode[n] == "fusion":
            root = self._root(n)
            return self.opcode[root] == "add" and self._counts(root)
        kinds = {self.opcode[o] for o in self._operands(n)}
        return "constant" in kinds or kinds == {"parameter"}

    def _root(self, n: int, role: str = "") -> int:
        t = self.t
        for e in range(int(t.called.offsets[n]), int(t.called.offsets[n + 1])):
            if not role or t.called_roles[e] == role:
                return self.roots[int(t.called.values[e])]
        return -1


def element_names(t: Table, labels: list[str]) -> dict[int, str]:
    """The name of every element of a tuple, by instruction."""
    names = ElementNames(t, labels)
    return {n: names.of(n) for n in names.index}
