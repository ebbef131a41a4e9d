"""Which instruction of one computation is which of another, whatever their names.

Names and order do not help: two compiles of one function number everything differently.
Structure does. Each instruction gets a signature (opcode, shape, attributes), a hash of
everything it is computed from (``up``) and a hash of everything that uses it (``down``).

    1  equal up and down      the same value in the same place, in any order
    2  equal down, or up      the same uses; the same value: first those that are unique
       equal place            the same opcodes above and below: only sizes changed
    3  equal signature, operands already matched          ┐ across an edit: what is below it and
    4  equal signature, same place in a matched user      ┘ above it; repeated while it finds more
    5  equal signature or shape, and equal op_name        moved
    6  anything at the same place of a matched user       replaced

    a: p ── tanh ── dot ── add ── root        b: p ── cos ── dot ── add ── root
       1     6       4      4      4             every hash below the edit differs
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping
from heapq import heappop, heappush

from ...hlo import Computation, Instruction, Module
from ...hlo.collective_kinds import OPCODES
from ...hlo.shardings.devices import DeviceGroups, device_groups

# Attributes that name things, count things, or hold the compiler's estimates.
_NAMES = frozenset({
    "metadata", "channel_id", "control-predecessors", "frontend_attributes", "origin",
    "original_value", "backend_config", "calls", "to_apply", "body", "condition",
    "branch_computations", "true_computation", "false_computation", "select", "scatter",
    "called_computations", "comparator", "async_wrapped",
})  # fmt: skip
_CONFIG_MATTERS = frozenset({"custom-call", "while"})


def meaning(i: Instruction) -> dict[str, str]:
    """The attributes that determine what an instruction does."""
    found = {k: v for k, v in i.attributes.items() if k not in _NAMES}
    if "replica_groups" in found:  # has four spellings
        groups = device_groups(i, 1, i.module.num_partitions)
        if groups is not None:
            found["replica_groups"] = _written_out(groups)
    if i.opcode in _CONFIG_MATTERS and i.backend_config:
        found["backend_config"] = i.backend_config
    return found


def _written_out(groups: DeviceGroups) -> str:
    return "{" + ",".join("{" + ",".join(map(str, row)) + "}" for row in groups.rows()) + "}"


class Side:
    """One computation as parallel lists; positions in it are what ``match`` pairs."""

    def __init__(self, computation: Computation, hashes: Mapping[str, int], entry: bool) -> None:
        self.instructions = computation.instructions
        self.entry = entry
        place = {i.index: k for k, i in enumerate(self.instructions)}
        self.operands = [
            [place[o.index] for o in i.operands if o.index in place] for i in self.instructions
        ]
        self.users: list[list[tuple[int, int]]] = [[] for _ in self.instructions]
        for user, operands in enumerate(self.operands):
            for at, operand in enumerate(operands):
                self.users[operand].append((user, at))
        root = computation.root
        self.root = place.get(root.index, -1) if root is not None else -1
        self.order = _topological(self.operands, self.users)
        self.signature = [
            hash((i.opcode, i.shape.text, i.literal, tuple(sorted(meaning(i).items()))))
            for i in self.instructions
        ]
        # with what it calls, and which parameter it is
        self.inside = [
            hash((
                s,
                i.parameter_number,
                tuple((role, hashes.get(c.name)) for role, c in i.called),
            ))
            for s, i in zip(self.signature, self.instructions, strict=True)
        ]  # fmt: skip
        self.up = [*self.inside]
        for k in self.order:
            self.up[k] = hash((self.inside[k], tuple(self.up[o] for o in self.operands[k])))
        self.down = [*self.inside]
        for k in reversed(self.order):
            below = tuple(sorted((self.down[u], at) for u, at in self.users[k]))
            self.down[k] = hash((self.inside[k], k == self.root, below))
        self.place = self._places()

    def _places(self) -> list[tuple[int, int]]:
        """Hashes of the opcodes above and below each instruction, whatever the sizes."""
        own = [hash((i.opcode, i.parameter_number)) for i in self.instructions]
        up, down = [*own], [*own]
        for k in self.order:
            up[k] = hash((own[k], tuple(up[o] for o in self.operands[k])))
        for k in reversed(self.order):
            below = tuple(sorted((down[u], at) for u, at in self.users[k]))
            down[k] = hash((own[k], k == self.root, below))
        return list(zip(up, down, strict=True))

    @property
    def hash(self) -> int:
        """Equal for computations that compute the same, whatever the names and the order."""
        root = self.up[self.root] if self.root != -1 else None
        return hash((root, tuple(sorted(self.up))))


def _topological(operands: list[list[int]], users: list[list[tuple[int, int]]]) -> list[int]:
    """Operands first, otherwise in printed order; members of a cycle last."""
    left = [len(o) for o in operands]
    ready = [k for k, n in enumerate(left) if not n]
    order: list[int] = []
    while ready:
        k = heappop(ready)
        order.append(k)
        for user, _ in users[k]:
            left[user] -= 1
            if not left[user]:
                heappush(ready, user)
    return [*dict.fromkeys([*order, *range(len(left))])]


def sides(module: Module) -> dict[str, Side]:
    """A ``Side`` of each computation, callees before callers."""
    out: dict[str, Side] = {}
    hashes: dict[str, int] = {}
    started: set[str] = set()
    stack: list[tuple[Computation, bool]] = [(c, False) for c in reversed(module.computations)]
    while stack:
        computation, seen = stack.pop()
        if seen:
            side = Side(computation, hashes, computation is module.entry)
            out[computation.name], hashes[computation.name] = side, side.hash
        elif computation.name not in started:
            started.add(computation.name)
            stack.append((computation, True))
            for i in computation.instructions:
                stack += [(c, False) for _, c in i.called if c.name not in started]
    return out


def match(a: Side, b: Side) -> list[int]:
    """For each position of ``a`` the position of ``b`` it corresponds to, or -1."""
    return _Matcher(a, b).run()


class _Matcher:
    def __init__(self, a: Side, b: Side) -> None:
        self.a, self.b = a, b
        self.to_b = [-1] * len(a.instructions)
        self.to_a = [-1] * len(b.instructions)

    def run(self) -> list[int]:
        a, b = self.a, self.b
        if a.entry and b.entry:
            self.by(lambda s, k: s.instructions[k].parameter_number)
        self.by(lambda s, k: (s.up[k], s.down[k]))
        self.by(lambda s, k: s.down[k], only_one=True)
        self.by(lambda s, k: s.up[k], only_one=True)
        self.spread()
        self.by(lambda s, k: s.place[k])
        self.spread()
        self.by(lambda s, k: s.up[k])
        self.spread()
        self.by(_same_scope)
        self.spread()
        self.by(_alike_scope)
        self.spread()
        self.roots()
        while self.replaced():
            self.spread()
        self.by(lambda s, k: _parameter_shape(s.instructions[k]))
        return self.to_b

    def pair(self, i: int, j: int) -> None:
        self.to_b[i], self.to_a[j] = j, i

    def by(self, key: Callable[[Side, int], Hashable], *, only_one: bool = False) -> None:
        """Pairs what has equal keys, in order; not what has the key None.

        ``only_one``: only if one alone on each side has the key.
        """
        count = Counter(key(self.a, i) for i, j in enumerate(self.to_b) if j == -1)
        waiting: dict[Hashable, list[int]] = defaultdict(list)
        for j in reversed(range(len(self.to_a))):
            if self.to_a[j] == -1:
                waiting[key(self.b, j)].append(j)
        waiting.pop(None, None)
        for i, j in enumerate(self.to_b):
            if j == -1 and (found := waiting.get(own := key(self.a, i))):
                if only_one and (len(found) > 1 or count[own] > 1):
                    continue
                self.pair(i, found.pop())

    def spread(self) -> None:
        """Steps 3 and 4, until nothing more is found."""
        while self.down() or self.up():
            pass

    def down(self) -> bool:
        """Pairs users whose operands are all paired, to the same positions."""
        return self.below(self.a.inside, self.b.inside) or self.below(
            self.a.signature, self.b.signature
        )

    def below(self, of_a: list[int], of_b: list[int]) -> bool:
        """Operands agree if they are the same value, which may be there several times."""
        b = self.b
        waiting: dict[tuple[int, tuple[int, ...]], list[int]] = defaultdict(list)
        for j in reversed(range(len(self.to_a))):
            if self.to_a[j] == -1 and b.operands[j]:
                waiting[of_b[j], tuple(b.up[o] for o in b.operands[j])].append(j)
        any_found = False
        for i in self.a.order:
            if self.to_b[i] != -1 or not self.a.operands[i]:
                continue
            over = [self.to_b[o] for o in self.a.operands[i]]
            if -1 in over:
                continue
            if found := waiting.get((of_a[i], tuple(b.up[o] for o in over))):
                self.pair(i, found.pop())
                any_found = True
        return any_found

    def up(self) -> bool:
        """Pairs operands at the same place of paired users, roots first."""
        a, b = self.a, self.b
        if a.root != -1 and b.root != -1:
            self.try_pair(a.root, b.root)
        any_found = False
        stack = [(i, j) for i, j in enumerate(self.to_b) if j != -1]
        while stack:
            i, j = stack.pop()
            for x, y in self.places(i, j):
                if self.try_pair(x, y):
                    stack.append((x, y))
                    any_found = True
        return any_found

    def places(self, i: int, j: int) -> Iterable[tuple[int, int]]:
        """Operands of two paired instructions at the same place."""
        x, y = self.a.operands[i], self.b.operands[j]
        if len(x) == len(y):
            return list(zip(x, y, strict=True))
        # one has more: those without a partner, in order
        return list(
            zip(
                [o for o in x if self.to_b[o] == -1],
                [o for o in y if self.to_a[o] == -1],
                strict=False,
            )
        )

    def try_pair(self, i: int, j: int) -> bool:
        free = self.to_b[i] == -1 and self.to_a[j] == -1
        if free and self.a.signature[i] == self.b.signature[j]:
            self.pair(i, j)
            return True
        return False

    def roots(self) -> None:
        i, j = self.a.root, self.b.root
        if i != -1 and j != -1 and self.to_b[i] == -1 and self.to_a[j] == -1:
            self.pair(i, j)

    def replaced(self) -> bool:
        """Step 6: one instruction in the place of another; a shared operand or shape decides."""
        found = []
        for i, j in enumerate(self.to_b):
            if j != -1:
                found += [
                    (x, y)
                    for x, y in self.places(i, j)
                    if self.to_b[x] == -1 and self.to_a[y] == -1 and self.akin(x, y)
                ]
        for x, y in found:
            if self.to_b[x] == -1 and self.to_a[y] == -1:
                self.pair(x, y)
        return bool(found)

    def akin(self, i: int, j: int) -> bool:
        x, y = self.a.instructions[i], self.b.instructions[j]
        # an all-reduce that became something else was removed, not changed
        if x.opcode != y.opcode and _COLLECTIVE & {x.opcode, y.opcode}:
            return False
        if x.opcode == y.opcode:
            return True
        if x.shape.dense_text != y.shape.dense_text:
            return False
        over = [self.to_b[o] for o in self.a.operands[i]]
        return bool(over) and over == self.b.operands[j]


_COLLECTIVE = frozenset(OPCODES)


def _same_scope(side: Side, k: int) -> Hashable:
    name = side.instructions[k].op_name
    return (side.signature[k], name) if name else None


def _alike_scope(side: Side, k: int) -> Hashable:
    i = side.instructions[k]
    return (i.opcode, i.shape.dense_text, i.op_name) if i.op_name else None


def _parameter_shape(i: Instruction) -> Hashable:
    return i.shape.dense_text if i.opcode == "parameter" else None
