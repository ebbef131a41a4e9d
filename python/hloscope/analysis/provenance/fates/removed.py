"""How an operation was removed: what was in its place after the pass that removed it.

Only the two snapshots around that pass are read. Users show what was replaced: the same user,
by name, has a different operand in the same place.

    before                          after algsimp
    %z = multiply(%x, %zeros)       %c = broadcast(%zero)
    %r = add(%y, %z)                %r = add(%y, %c)            multiply: folded to a constant

A user that is gone too is followed to what it became; what only such users read was removed
with them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING

from ....hlo import Instruction, Module, Operation, opcodes
from .fate import Fate, FateCause, FateKind, InstructionName, combined, hlo_opcode, is_constant

if TYPE_CHECKING:
    from ...passes.passes import Passes
    from ...passes.row import Pass

_DEPTH = 12
_CARRIES = opcodes.BUNDLES | opcodes.GIVEN
_BACK = 5  # snapshots before what removed it, in which something else may have taken its place
IMPORT = "StableHLO's simplifier (before XLA's first pass)"
_LOOPS = ("while", "case", "if")
_COMMUTE = frozenset(["add", "multiply", "maximum", "minimum", "and", "or", "xor"])
_REMOVERS = ("dce", "hlo-module-dce", "tuple-simplifier")
# opcodes that return some operands and may leave others unused → the first such operand
_CHOOSES = {"select": 1, "concatenate": 0, "pad": 0, "dynamic-update-slice": 0}


class RemovedOperations:
    """Finds the fate of operations that have no instruction in the optimised program."""

    def __init__(
        self, operations: Sequence[Operation], passes: Passes, stablehlo: Module | None
    ) -> None:
        self.operations, self.passes = operations, passes
        self.lost: dict[int, Pass] = {}
        for row in passes.rows:
            for n in row.lost:  # the last time, if it came back
                self.lost[n] = row
        self.read = lru_cache(maxsize=_BACK + 2)(passes.module)
        self.first = passes.snapshots[0].operations if passes.snapshots else None
        self.steps: dict[int, RemovalStep] = {}
        self.if_no_pass = FateCause.NO_PASS_REMOVED_IT
        self.importing: ImportStep | None = None
        if stablehlo is not None and stablehlo.origins is not None and passes.snapshots:
            first = self.read(0)
            if first.origins is not None:
                self.importing = ImportStep(operations, stablehlo, first)

    def order(self, operation: Operation) -> int:
        """A sort key: operations that one pass removed come together."""
        row = self.lost.get(operation.number)
        return -1 if row is None else row.index

    def fate(self, operation: Operation) -> Fate:
        """The fate of an operation that is gone."""
        row = self.lost.get(operation.number)
        if operation.is_call or operation.opcode.startswith("sdy."):
            by = row.title if row is not None else ""
            cause = FateCause.NOTHING_CAME_THROUGH if operation.is_call else FateCause.BODY_IN_PLACE
            if operation.opcode in ("func.call", "call", "sdy.manual_computation"):
                return Fate(operation, FateKind.INLINED, by=by, cause=cause)
        if row is None or row.index == 0:
            if self.never(operation):
                return self._never(operation)
            return Fate(operation, FateKind.UNKNOWN, cause=self.if_no_pass)
        if operation.opcode in _LOOPS:
            row = self._last_of_itself(operation, row)
        step = self.steps.get(row.index)
        if step is None:
            self.steps.clear()  # operations of one pass mostly come together
            before, after = self.read(row.index - 1), self.read(row.index)
            step = self.steps[row.index] = RemovalStep(
                self.operations, before, after, row.title, self.made
            )
        fate = step.fate(operation)
        if fate.cause is FateCause.UNUSED:
            return self._replaced_before(operation, row) or fate
        return fate

    def _last_of_itself(self, operation: Operation, row: Pass) -> Pass:
        """The pass that removed a loop, if tuples and their elements were left after it."""
        opcode = hlo_opcode(operation.opcode)
        for k in range(row.index, max(row.index - _BACK, 0), -1):
            before = self.read(k - 1)
            assert before.origins is not None
            found = before.origins.instructions.get(operation.number, ())
            if any(before.instructions[n].opcode == opcode for n in found):
                return self.passes.rows[k]
        return row

    def _replaced_before(self, operation: Operation, row: Pass) -> Fate | None:
        """The fate if one pass changed what all users read, and a later one removed the rest."""
        for k in range(row.index - 1, max(row.index - _BACK, 0), -1):
            before = self.read(k - 1)
            assert before.origins is not None
            found = [
                before.instructions[n]
                for n in before.origins.instructions.get(operation.number, ())
            ]
            if any(i.users or i.is_root for i in found):
                title = self.passes.rows[k].title
                step = RemovalStep(self.operations, before, self.read(k), title, self.made)
                return step.rewired(operation, found)
        return None

    def made(self, name: str) -> str:
        """The pass in which an instruction of this name first appeared, "" if none."""
        row = self.passes.made(name)
        return row.title if row is not None else ""

    def never(self, operation: Operation) -> bool:
        """Whether even XLA's first module lacks the operation."""
        return self.first is not None and operation.number not in self.first

    def _never(self, operation: Operation) -> Fate:
        if self.importing is None:
            return _not_shown(operation, IMPORT)
        return self.importing.fate(operation)


class RemovalStep:
    """One pass: the module before and after."""

    def __init__(
        self,
        operations: Sequence[Operation],
        before: Module,
        after: Module,
        by: str,
        made: Callable[[str], str] = lambda name: "",
    ) -> None:
        self.made = made  # the pass that named an instruction
        self.operations, self.before, self.after, self.by = operations, before, after, by
        self.by_name = {i.name: i for i in after.instructions}
        self.names_before = {i.name for i in before.instructions}
        self.puts: dict[int, Instruction] = {}  # index of what is gone → what took its place

    def fate(self, operation: Operation) -> Fate:
        number, by = operation.number, self.by
        assert self.before.origins is not None
        rows = self.before.origins.instructions.get(number, ())
        mine = [self.before.instructions[k] for k in rows]
        opcode = hlo_opcode(operation.opcode)
        mine = [i for i in mine if hlo_opcode(i.opcode) == opcode] or mine
        if not mine:
            return _not_shown(operation, by)
        whole = combined(operation, mine)
        if whole is not None:
            other = self.operations[whole.origins[0].operation]
            made = self.made(whole.name)
            return Fate(operation, FateKind.MERGED, by=made, other=other)
        return self._of(operation, mine[0], 0)

    def rewired(self, operation: Operation, found: Sequence[Instruction]) -> Fate | None:
        """The fate if the instructions may still be there, but their users read something else."""
        for gone in found:
            for user in gone.users:
                put = self.read_instead_by(gone, user)
                if put is not None and put.name != gone.name:
                    return self._replaced(operation, gone, put)
        return None

    def _of(self, operation: Operation, gone: Instruction, depth: int) -> Fate:
        by = self.by
        still = self.same(gone)
        if still is not None and still.opcode == gone.opcode:
            return self._rewritten(operation, FateCause.AS_NAMELESS, still)
        times = self._times_unrolled(gone)
        if times:
            kind, cause = FateKind.REWRITTEN, FateCause.UNROLLED
            return Fate(operation, kind, by=by, cause=cause, count=times)
        if gone.is_root and self._ends_a_loop(gone):
            return Fate(operation, FateKind.DEAD, by=by, cause=FateCause.LOOP_REMOVED)
        users = [u for u in gone.users if not _is_all_results(u)]
        if not gone.users and not gone.is_root:
            return Fate(operation, FateKind.DEAD, by=by, cause=FateCause.UNUSED)
        for user in gone.users:
            put = self.read_instead_by(gone, user)
            if put is not None:
                return self._replaced(operation, gone, put)
        if gone.is_root:
            put = self._root(gone)
            if put is not None:
                return self._replaced(operation, gone, put)
        absorbed = self._absorbed(operation, gone, users)
        if absorbed is not None:
            return absorbed
        if depth < _DEPTH:
            return self._with_users(operation, gone, users, depth)
        return _not_shown(operation, by)

    def _times_unrolled(self, gone: Instruction) -> int:
        """How often its body stands in the place of a loop; 0 for others."""
        after = self.after.find_computation(gone.computation.name)
        body = next((c for role, c in gone.called if role == "body"), None)
        if gone.opcode != "while" or body is None or after is None:
            return 0
        own = {
            (o.operation, i.opcode)
            for i in body.instructions
            if i.opcode not in _CARRIES
            for o in i.origins
        }
        before = {i.name for i in gone.computation.instructions}
        turns = Counter(
            (o.operation, i.opcode)
            for i in after.instructions
            if i.name not in before
            for o in i.origins
            if (o.operation, i.opcode) in own
        )
        return max(turns.values(), default=0)

    def _ends_a_loop(self, gone: Instruction) -> bool:
        """Whether this is in the condition of a loop that is gone."""
        if self.after.find_computation(gone.computation.name) is not None:
            return False
        loops = [
            i
            for i in self.before.instructions
            if i.opcode == "while"
            and any(role == "condition" and c is gone.computation for role, c in i.called)
        ]
        return bool(loops) and all(self.same(i) is None for i in loops)

    def same(self, i: Instruction) -> Instruction | None:
        """The same instruction afterwards."""
        return self.by_name.get(i.name)

    def was_there(self, put: Instruction) -> bool:
        return put.name in self.names_before

    def made_from(self, put: Instruction, gone: Instruction) -> bool:
        """Whether an instruction was replaced by something that it was computed from."""
        return put.name in {o.name for o in _ancestors(gone)}

    def read_instead_by(self, gone: Instruction, user: Instruction) -> Instruction | None:
        """What a user that is still there reads instead."""
        same = self.same(user)
        if same is None or same.opcode != user.opcode or len(same.operands) != len(user.operands):
            return None
        return self.swapped_or_not(gone, user, same)

    def swapped_or_not(
        self, gone: Instruction, user: Instruction, same: Instruction
    ) -> Instruction | None:
        if gone not in user.operands:
            return None
        k = user.operands.index(gone)
        two = user.opcode in _COMMUTE and len(user.operands) == 2
        if two and self.is_same(same.operands[k], user.operands[1 - k]):
            return same.operands[1 - k]  # they were swapped
        return same.operands[k]

    def is_same(self, put: Instruction, before: Instruction) -> bool:
        """Whether an instruction is the same as one before."""
        return put.name == before.name

    def _drops(self, user: Instruction, gone: Instruction) -> bool:
        """Whether a user that chooses among operands was replaced by one that is not ``gone``."""
        put, first = self.puts.get(user.index), _CHOOSES.get(hlo_opcode(user.opcode))
        if put is None or first is None or gone in user.operands[:first]:
            return False
        read = [put] if self.was_there(put) else put.operands
        others = [o for o in user.operands[first:] if o is not gone]
        return bool(read) and all(self._is_of_others(r, gone, others) for r in read)

    def _is_of_others(
        self, put: Instruction, gone: Instruction, others: Sequence[Instruction]
    ) -> bool:
        if any(self.is_same(put, o) for o in others):
            return True
        mine = any(self.is_same(put, o) for o in [gone, *_ancestors(gone)])
        return not mine and any(self.is_same(put, a) for o in others for a in _ancestors(o))

    def _root(self, gone: Instruction) -> Instruction | None:
        name = gone.computation.name
        same = self.after.find_computation(name)
        return same.root if same is not None else None

    def _replaced(self, operation: Operation, gone: Instruction, put: Instruction) -> Fate:
        by = self.by
        self.puts[gone.index] = put
        if self.same(gone) is put or put.opcode == "iota":
            return self._rewritten(operation, FateCause.AS_OPCODES, put)
        if is_constant(put):
            was_constant = operation.opcode in ("constant", "iota")
            cause = FateCause.INTO_CONSTANT if was_constant else FateCause.TO_CONSTANT
            return Fate(operation, FateKind.FOLDED, by=by, cause=cause)
        own = [o.operation for o in put.origins]
        if self.was_there(put):
            if self.made_from(put, gone):
                return self._rewritten(operation, FateCause.SIMPLIFIED_TO_OPERAND, put)
            if own and own[0] != operation.number and put.opcode == gone.opcode:
                return Fate(operation, FateKind.MERGED, by=by, other=self.operations[own[0]])
            return self._rewritten(operation, FateCause.AS_OTHER, put)
        return self._rewritten(operation, FateCause.AS_OPCODES, put)

    def _rewritten(
        self,
        operation: Operation,
        cause: FateCause,
        put: Instruction,
        other: Operation | None = None,
    ) -> Fate:
        return Fate(
            operation,
            FateKind.REWRITTEN,
            by=self.by,
            other=other,
            cause=cause,
            names=(InstructionName.of(put),),
        )

    def _absorbed(
        self, operation: Operation, gone: Instruction, users: Sequence[Instruction]
    ) -> Fate | None:
        """The fate if what a user became reads the operands of ``gone``."""
        read = {o.name for o in gone.operands}
        for user in users:
            for origin in user.origins:
                assert self.after.origins is not None
                for k in self.after.origins.instructions.get(origin.operation, ()):
                    new = self.after.instructions[k]
                    if new.opcode == user.opcode and read & {o.name for o in new.operands}:
                        other = self.operations[origin.operation]
                        return self._rewritten(operation, FateCause.ABSORBED, new, other)
        return None

    def _with_users(
        self, operation: Operation, gone: Instruction, users: Sequence[Instruction], depth: int
    ) -> Fate:
        """Its users were removed in the same pass: it went with them, or was not needed."""
        by = self.by
        gone_too = [u for u in users[:4] if self.same(u) is None]
        fates = [(u, self._of(operation, u, depth + 1)) for u in gone_too]
        for user, _ in fates:
            if user.index in self.puts:
                self.puts.setdefault(gone.index, self.puts[user.index])
        found = [f for u, f in fates if not self._drops(u, gone)]
        kinds = {f.kind for f in found} | ({FateKind.DEAD} if len(found) < len(fates) else set())
        if kinds and kinds <= {FateKind.DEAD, FateKind.FOLDED}:
            if FateKind.FOLDED in kinds and all(is_constant(o) for o in gone.operands):
                cause = FateCause.TO_CONSTANT_WITH_USERS
                return Fate(operation, FateKind.FOLDED, by=by, cause=cause)
            named = (InstructionName.of(users[0]),)
            cause = FateCause.USER_STOPPED_READING
            return Fate(operation, FateKind.DEAD, by=by, cause=cause, names=named)
        if FateKind.REWRITTEN in kinds:
            first = next(f for f in found if f.kind is FateKind.REWRITTEN)
            return replace(first, operation=operation, by=by, with_users=True)
        if FateKind.MERGED in kinds:
            return Fate(operation, FateKind.MERGED, by=by, cause=FateCause.WITH_EQUAL)
        if any(self.by.startswith(r) for r in _REMOVERS):
            return Fate(operation, FateKind.DEAD, by=by, cause=FateCause.UNUSED)
        return _not_shown(operation, by)


def _not_shown(operation: Operation, by: str) -> Fate:
    return Fate(operation, FateKind.UNKNOWN, by=by, cause=FateCause.NOT_SHOWN)


class ImportStep(RemovalStep):
    """From StableHLO to XLA's first module: names differ, so operations show what is the same."""

    def __init__(self, operations: Sequence[Operation], before: Module, after: Module) -> None:
        super().__init__(operations, before, after, IMPORT)
        assert after.origins is not None
        self.of = after.origins.instructions

    def same(self, i: Instruction) -> Instruction | None:
        opcode = hlo_opcode(i.opcode)
        for origin in i.origins:
            for k in self.of.get(origin.operation, ()):
                if self.after.instructions[k].opcode == opcode:
                    return self.after.instructions[k]
        return None

    def was_there(self, put: Instruction) -> bool:
        return bool(put.origins) or put.opcode == "parameter" or _is_passed(put)

    def made_from(self, put: Instruction, gone: Instruction) -> bool:
        own = {o.operation for o in put.origins}
        for before in _ancestors(gone):
            if own & {o.operation for o in before.origins}:
                return True
            passed = put.opcode == "parameter" or _is_passed(put)
            if passed and before.opcode == "parameter" and _same_shape(put, before):
                return True
        return False

    def read_instead_by(self, gone: Instruction, user: Instruction) -> Instruction | None:
        if user.opcode == "return" and user.computation is self.before.entry:
            root = self.after.entry.root if self.after.entry is not None else None
            k = user.operands.index(gone)
            if root is None or len(user.operands) == 1:
                return root
            whole = root.opcode == "tuple" and len(root.operands) == len(user.operands)
            return root.operands[k] if whole else None
        same = self.same(user)
        if same is None or len(same.operands) != len(user.operands):
            return None
        return self.swapped_or_not(gone, user, same)

    def is_same(self, put: Instruction, before: Instruction) -> bool:
        if before.opcode == "parameter":
            entry = put.computation.is_entry and before.computation.is_entry
            number = _argument(put)
            return entry and number is not None and number == _argument(before)
        same = self.same(before)
        return same is not None and same is put


def _argument(i: Instruction) -> int | None:
    """The number of a parameter."""
    text = i.argument_text if i.opcode == "parameter" else ""
    return int(text) if text.isdecimal() else None


def _is_passed(i: Instruction) -> bool:
    """Whether it is an element of a tuple argument: StableHLO has an argument for each."""
    return i.opcode == "get-tuple-element" and i.operands[0].opcode == "parameter"


def _is_all_results(i: Instruction) -> bool:
    """Whether it holds all results of a computation, so that it says nothing of one of them."""
    several = i.opcode == "return" and len(i.operands) > 1
    return i.is_root and (several or i.opcode == "tuple")


def _same_shape(a: Instruction, b: Instruction) -> bool:
    return a.shape.dense_text == b.shape.dense_text


def _ancestors(i: Instruction, depth: int = 4) -> list[Instruction]:
    out: list[Instruction] = []
    level = [i]
    for _ in range(depth):
        level = [o for j in level for o in j.operands]
        out += level
    return out
