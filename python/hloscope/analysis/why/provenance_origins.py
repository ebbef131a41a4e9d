"""Where a value's sharding came from: an argument, a constraint at file:line, an output.

Shardy records it for every value, and the instruction that makes the value is known
(``shardy_values.py``). Without that record an axis is followed back op by op.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from functools import cached_property

from ...hlo import Instruction, Mesh, Module, StackFrame, Target, opcodes, walk
from ...hlo.shardings.sharding_text import parse_sharding
from ...hlo.shardings.specs import Spec, axis_of, spec_of
from ...hlo.texts.places import whole_place
from ...readers.stablehlo.shardy_dump import (
    CONSTRAINTS,
    ShardyDump,
    ShardyOp,
    ShardyValue,
    given_results,
)
from ..base.lines.frames import is_library, own_line
from ..base.operands import ONE_ARRAY, source_of
from .shardy_values import ShardyValues

GIVEN = "shardy/00.input_module"


@dataclass(frozen=True, slots=True)
class AxisOrigin:
    """Where one mesh axis of a sharding came from.

    ``kind`` is argument, constraint, output or unknown; ``of`` says whose axis: operand or result.
    """

    axis: str
    of: str
    kind: str
    name: str = ""  # "params['w1']"
    line: str = ""  # "train.py:31"
    stack: tuple[str, ...] = ()  # that line and its callers, innermost first
    # ops along which it was propagated, back from the value; () if direct or unknown
    via: tuple[str, ...] = field(default=(), compare=False)

    def __str__(self) -> str:
        if self.kind == "unknown":
            return f"{self.axis}: origin unknown"
        what = self.name or "constraint"
        where = f"{what} at {whole_place(self.line)}" if self.kind == "constraint" else ""
        return f"{self.axis}: {where or f'{self.kind} {self.name}'}"


class ShardingOrigins:
    """Specs and origins of values of the module before partitioning."""

    def __init__(self, target: Target, before: Module, dump: ShardyDump | None):
        self.target, self.before, self.dump = target, before, dump
        self.mesh: Mesh | None = target.mesh

    def spec(self, i: Instruction) -> Spec | None:
        """Mesh axes per dimension, or None; an array without annotation is replicated."""
        if not i.shape.is_array or self.mesh is None:
            return None
        text = i.sharding_text
        if text is None and i.opcode == "get-tuple-element" and i.operands:
            whole = parse_sharding(i.operands[0].sharding_text or "")
            index = int(i.attribute("index") or 0)
            if index >= len(whole.parts):
                return None
            return spec_of(whole.parts[index], i.shape.rank, self.mesh)
        return spec_of(parse_sharding(text or "{replicated}"), i.shape.rank, self.mesh)

    def origin(self, axis: str, of: str, value: Instruction) -> AxisOrigin:
        """Where the value's dimensions got an axis: as Shardy recorded it for this very value."""
        theirs = self.values.of(value) if self.values is not None else None
        if is_constraint(value) and (theirs is None or not theirs.origins):
            return _constraint(axis, of, value)  # it is its own origin
        given = self._as_given(axis, value)
        if given is not None:
            return AxisOrigin(axis, of, "argument", self._argument(given))
        if theirs is not None and self.dump is not None:
            ref = _ref(axis, theirs)
            found = self._named(axis, of, theirs.origins.get(ref), value)
            if found.kind != "unknown":
                direct = self._carried_from(value) is not None
                return found if direct else replace(found, via=self.dump.path(theirs, ref))
        found = self._named(axis, of, self._traced(axis, value), value)
        if found.kind == "unknown":
            beside = self._beside(axis, value)
            return self.origin(axis, of, beside) if beside is not None else found
        return found

    def _beside(self, axis: str, value: Instruction) -> Instruction | None:
        """What a value made of nothing is used with: the compiler shards both alike."""
        made = walk.source(value, opcodes.REPEATED).instruction
        if made.opcode not in opcodes.LITERALS or self.values is None:
            return None
        others = (o for u in value.users for o in u.operands if o is not value)
        alike = (o for o in others if self.spec(o) == self.spec(value) and self.values.of(o))
        return next(alike, None)

    @cached_property
    def values(self) -> ShardyValues | None:
        """The values of Shardy's record, by the instructions that make them."""
        return ShardyValues(self.before, self.dump) if self.dump is not None else None

    def _traced(self, axis: str, value: Instruction) -> str | Instruction | None:
        """The one argument or constraint that the axis came from, traced op by op.

        Without Shardy's record: all paths back over operands sharded along the axis must end at
        the same origin.
        """
        ends: dict[object, str | Instruction] = {}

        def is_sharded(p: walk.Position) -> bool:  # elements of tuples are seen as they are taken
            return p.instruction.shape.is_tuple or self._has(p.instruction, axis)

        # a gather's indices shard its result, too
        way = walk.back(
            value, lambda i: not is_constraint(i), where=is_sharded, dependencies=True
        )  # fmt: skip
        for count, (at, *_) in enumerate(way):
            if count > _MOST:
                return None
            if at.index != value.index and is_constraint(at):
                ends[("line", line_of(at.frames))] = at
            elif at.opcode == "parameter" and at.computation.is_entry:
                number = at.parameter_number
                if axis in self._given_axes(number):
                    ends[number] = f"input: {number}"
        return next(iter(ends.values())) if len(ends) == 1 else None

    def _has(self, value: Instruction, axis: str) -> bool:
        return bool(self._refs(axis, value))

    def _refs(self, axis: str, value: Instruction) -> list[str]:
        """The axis, or the parts of it, along which the value is sharded."""
        refs = [ref for dim in self.spec(value) or () for ref in dim]
        return [ref for ref in refs if axis in (ref, axis_of(ref))]

    def _given_axes(self, number: int | None) -> frozenset[str]:
        """Mesh axes in the sharding given to an argument."""
        for a in self.target.arguments:
            if a.parameter is not None and a.parameter == number and a.spec is not None:
                given = {ref for dim in a.spec for ref in dim}
                return frozenset(given | {axis_of(ref) for ref in given})
        return frozenset()

    def _implied(self, op: ShardyOp, found: Instruction | None, axis: str) -> str | None:
        """Where an operand has the axis from, if the op's sharding only follows from its operands.

        With explicit axes jax pins every result: that is no constraint of the person's unless it
        adds an axis.
        """
        for _ in range(_MOST):
            if op.short not in CONSTRAINTS or found is None or is_constraint(found):
                return None
            maker = op.operands[0].op if op.operands else None
            given = maker.operands if maker is not None else ()
            said = (o.origins.get(_ref(axis, o)) for o in given)
            origin = next((o for o in said if o is not None), None)
            before = self.dump.constraints.get(origin) if self.dump and origin else None
            if origin is None or before is None or self.values is None:
                return origin
            op, found = before, self.values.made(before)
            if found is not None and is_constraint(found):
                return origin
        return None

    def _given_spec(self, number: int | None) -> Spec | None:
        found = (a.spec for a in self.target.arguments if a.parameter == number)
        return next(found, None) if number is not None else None

    def _as_given(self, axis: str, value: Instruction) -> int | None:
        """The number of the argument that ``value`` is, if it has the axis as it was given.

        Shardy names a constraint that uses the axis again as the origin of both.
        """
        at = self._carried_from(value)
        number = at.parameter_number if at is not None else None
        if number is None or axis not in self._given_axes(number):
            return None
        given, has = self._given_spec(number), self.spec(value)
        if given is None or has is None:
            return None
        layers = given[: len(given) - len(has)]  # which a scan's slice of the argument lacks
        return number if given[len(layers) :] == has and not any(layers) else None

    @staticmethod
    def _carried_from(value: Instruction) -> Instruction | None:
        """The constraint or argument that ``value`` is, up to layout changes, slices and loops."""
        for at, *_ in walk.path(value, ONE_ARRAY):
            if is_constraint(at) or (at.opcode == "parameter" and at.computation.is_entry):
                return at
        return None

    def _named(
        self, axis: str, of: str, said: str | Instruction | None, value: Instruction
    ) -> AxisOrigin:
        if isinstance(said, Instruction):
            return _constraint(axis, of, said)
        kind, _, number = (said or "").partition(": ")
        if kind == "input" and number.isdecimal():
            return AxisOrigin(axis, of, "argument", self._argument(int(number)))
        if kind == "output" and number.isdecimal():
            return AxisOrigin(axis, of, "output", self.output(int(number)).name)
        mapped = _OF_SHARD_MAP.fullmatch(kind)
        if mapped is not None:
            return self._by_shard_map(axis, of, *mapped.groups())
        op = self.dump.constraints.get(kind) if self.dump is not None else None
        if op is not None and self.values is not None:
            on = op.operands[0] if op.operands else None
            given = self._given_axes(on.number) if on is not None and on.op is None else ()
            if on is not None and op.short in CONSTRAINTS and axis in given:
                asked = op.results[0].spec if op.results else None
                if asked == self._given_spec(on.number) or not _has_axis(asked, axis):
                    # it only repeats what was given, or Shardy means what it is put on
                    return AxisOrigin(axis, of, "argument", self._argument(on.number))
            found = self.values.made(op)
            implied = self._implied(op, found, axis)
            if implied is not None:
                return self._named(axis, of, implied, value)
            if found is not None and (op.short not in CONSTRAINTS or self._has(found, axis)):
                return _constraint(axis, of, found)
        return AxisOrigin(axis, of, "unknown")

    def _by_shard_map(self, axis: str, of: str, name: str, end: str) -> AxisOrigin:
        """What the specs of a shard_map ask for; unknown if the program before has lost it."""
        op = self.dump.constraints.get(name) if self.dump is not None else None
        found = self.values.made(op) if op is not None and self.values is not None else None
        if found is None or not found.frames:
            return AxisOrigin(axis, of, "unknown")
        said = _constraint(axis, of, found)
        return replace(said, name=f"shard_map's {'in' if end == 'input' else 'out'}_specs")

    def _argument(self, number: int) -> str:
        for a in self.target.arguments:
            if a.parameter == number:
                return a.name
        return f"argument {number}"

    def fixed_by(self, value: Instruction) -> AxisOrigin | None:
        """What fixes the whole layout of a value: a constraint on it, or an output's sharding.

        Shardy gives the layout of a constraint to the op that makes the value: axes that it has not
        are left out there, which no origin of an axis tells.
        """
        spec = self.spec(value)
        if value.opcode == "copy":
            return _constraint("", "result", value)
        for user in value.users:
            if self._is_asked(user) and self.spec(user) == spec:
                return _constraint("", "result", user)
        root = self.before.entry.root if self.before.entry is not None else None
        if root is None or value.computation is not self.before.entry:
            return None
        ends = root.operands if root.opcode == "tuple" else (root,)
        given = self._given_results
        return next(
            (
                self.output(n)
                for n, end in enumerate(ends)
                if end is value and given[n : n + 1] == (True,)
            ),
            None,
        )

    def _is_asked(self, i: Instruction) -> bool:
        """Whether it is a constraint, or the ``out_sharding`` of an operation, which names it."""
        if is_constraint(i):
            return True
        theirs = self.values.of(i) if i.opcode == "copy" and self.values is not None else None
        op = theirs.op if theirs is not None else None
        return op is not None and op.short in CONSTRAINTS and bool(op.origin)

    @cached_property
    def _given_results(self) -> tuple[bool, ...]:
        return given_results(self.target.dumps.get(GIVEN, ""))

    def moved_argument(self, value: Instruction) -> int | None:
        """Number of the argument of which ``value`` is a copy, cast or slice; else None."""
        return source_of(value, self.target).parameter

    def output(self, number: int) -> AxisOrigin:
        """An output of the program as the origin of a sharding."""
        results = self.target.results
        name = results[number].name if number < len(results) else f"[{number}]"
        return AxisOrigin("", "result", "output", name or "the result")

    def describe(self, value: Instruction) -> str:
        source = source_of(value, self.target)
        if source.parameter is not None:
            return self._argument(source.parameter)
        if source.kind == "loop":
            return "a value the loop carries"
        made = walk.source(value, ()).instruction
        return f"result of {made.op_name.rpartition('/')[2] or made.opcode}"


# How Shardy names the ends of a shard_map: "mc_0_input: 1".
_OF_SHARD_MAP = re.compile(r"(mc_\d+)_(input|output)")
_MOST = 400  # most values visited on the way back to the origin of an axis


def _constraint(axis: str, of: str, copy: Instruction) -> AxisOrigin:
    stack = (line_of(copy.frames), *callers_of(copy.frames, copy.op_name))
    return AxisOrigin(axis, of, "constraint", line=line_of(copy.frames), stack=stack)


_FUNCTION = re.compile(r"jit\(([^()]*)\)")


def callers_of(frames: tuple[StackFrame, ...], op_name: str = "") -> tuple[str, ...]:
    """Lines that called the line, nearest first: at most three, of the user's own code.

    Only up to the jitted function, if its name is among the frames: lines that called it say
    nothing about the program.
    """
    own = [f for f in frames if not is_library(f.file)]
    m = _FUNCTION.match(op_name)
    names = [(f.function or "").rpartition(".")[2] for f in own]
    if m is not None and m[1] in names:
        own = own[: len(names) - names[::-1].index(m[1])]
    return tuple(dict.fromkeys(f"{f.file}:{f.line}" for f in own[1:4]))


_CONSTRAINING = ("sharding_constraint", "reshard")  # what the person writes


def is_constraint(i: Instruction) -> bool:
    return i.opcode == "copy" and i.op_name.rpartition("/")[2] in _CONSTRAINING


def line_of(frames: tuple[StackFrame, ...]) -> str:
    frame = own_line(frames)
    return f"{frame.file}:{frame.line}" if frame is not None else ""


def _has_axis(spec: Spec | None, axis: str) -> bool:
    return any(axis in (ref, axis_of(ref)) for dim in spec or () for ref in dim)


def _ref(axis: str, value: ShardyValue) -> str:
    """The axis as the record names it: the one part of it along which the value is sharded."""
    refs = [ref for ref in value.origins if axis in (ref, axis_of(ref))]
    return refs[0] if len(refs) == 1 else axis
