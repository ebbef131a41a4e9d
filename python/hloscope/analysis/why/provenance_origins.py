"""Where a value's sharding came from: an argument, a constraint at file:line, an output.

First the value itself is followed back through layout changes, slices and loops: if it is a
constraint's result or an argument that was given that axis, that is the origin. Otherwise
Shardy's own record decides, if all values that look alike in it agree.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from functools import cached_property

from ...hlo import Instruction, Mesh, Module, StackFrame, Target, walk
from ...hlo.shardings.sharding_text import parse_sharding
from ...hlo.shardings.specs import Spec, axis_of, spec_of
from ...hlo.texts.places import whole_place
from ...readers.stablehlo.shardy_dump import Key, ShardyDump
from ..base.lines.frames import is_library, own_line
from ..base.operands import ONE_ARRAY, source_of


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
        where = f"constraint at {whole_place(self.line)}" if self.kind == "constraint" else ""
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
        if is_constraint(value):  # it is its own origin
            return _constraint(axis, of, value)
        if value.opcode == "copy" and of == "result":
            return _constraint(axis, of, value)
        found = self._named(axis, of, self._origin_text(axis, value), value)
        if found.kind == "unknown":
            return self._named(axis, of, self._traced(axis, value), value)
        key = self._key(value)
        if self.dump is None or key is None or self._carried_from(value) is not None:
            return found
        return replace(found, via=self.dump.path(key, self._ref(axis, value)))

    def _origin_text(self, axis: str, value: Instruction) -> str | Instruction | None:
        if self.dump is None:
            return None
        came_from = self._carried_from(value)
        if came_from is not None:
            if is_constraint(came_from) and self._has(came_from, axis):
                return came_from
            if came_from.opcode == "parameter":
                number = came_from.parameter_number
                if axis in self._given_axes(number):
                    return f"input: {number}"
                said = dict(self.dump.arguments.get(-1 if number is None else number, ()))
                return said.get(self._ref(axis, came_from))
        key = self._key(value)
        return self.dump.origin(key, self._ref(axis, value)) if key is not None else None

    def _traced(self, axis: str, value: Instruction) -> str | Instruction | None:
        """The one argument or constraint that the axis came from, traced op by op.

        Values that look alike can differ in origin; then Shardy's record is ambiguous. All paths
        back over operands sharded along the axis must end at the same origin; if they do not,
        only origins that the record has for such values count.
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
            if is_constraint(at):
                ends[("line", line_of(at.frames))] = at
            elif at.opcode == "parameter" and at.computation.is_entry:
                number = at.parameter_number
                if axis in self._given_axes(number):
                    ends[number] = f"input: {number}"
        if self.dump is not None and len(ends) > 1:
            key = self._key(value)
            ref = self._ref(axis, value)
            known = {dict(o).get(ref) for o in self.dump.origins.get(key, ())} if key else set()
            if known:
                ends = {k: e for k, e in ends.items() if self._text(e) in known}
        return next(iter(ends.values())) if len(ends) == 1 else None

    def _text(self, end: str | Instruction) -> str | None:
        """Name of an argument or a constraint in Shardy's record."""
        if isinstance(end, str):
            return end
        return next((name for name, i in self.constraints.items() if i is end), None)

    def _key(self, value: Instruction) -> Key | None:
        """Key of the value in Shardy's dump."""
        spec = self.spec(value)
        if spec is None:
            return None
        carried = value.opcode in ("get-tuple-element", "parameter")
        return ("while" if carried else value.opcode, value.shape.dimensions, spec)

    def _has(self, value: Instruction, axis: str) -> bool:
        return bool(self._refs(axis, value))

    def _ref(self, axis: str, value: Instruction) -> str:
        """The axis as Shardy's record names it: the one part of it along which it is sharded."""
        refs = self._refs(axis, value)
        return refs[0] if len(refs) == 1 else axis

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
            results = self.target.results
            at = int(number)
            name = results[at].name if at < len(results) else f"[{at}]"
            return AxisOrigin(axis, of, "output", name)
        if kind.startswith("constraint_"):
            found = self.constraints.get(kind)
            if found is not None:
                return _constraint(axis, of, found)
            on = self.dump.on_argument.get(kind) if self.dump is not None else None
            if on is not None and axis in self._given_axes(on):
                return AxisOrigin(axis, of, "argument", self._argument(on))
        return AxisOrigin(axis, of, "unknown")

    def _argument(self, number: int) -> str:
        for a in self.target.arguments:
            if a.parameter == number:
                return a.name
        return f"argument {number}"

    @cached_property
    def constraints(self) -> dict[str, Instruction]:
        """The copy in HLO of each constraint_k, if copies of that shape and sharding determine it.

        Constraints that look alike but are on different lines are distinguished by order, which
        Shardy's numbers and HLO's name suffixes both follow; only if all of them match in order.
        """
        if self.dump is None:
            return {}
        copies = [
            (i, spec)
            for i in self.before.instructions
            if is_constraint(i) and (spec := self.spec(i)) is not None
        ]
        groups: dict[tuple[tuple[int, ...], Spec], list[Instruction]] = {}
        for i, spec in copies:
            groups.setdefault((i.shape.dimensions, spec), []).append(i)
        ordered = sorted((i for i, _ in copies), key=_suffix)
        keys = [(i.shape.dimensions, self.spec(i)) for i in ordered]
        in_order = keys == [(dims, spec) for _, dims, spec in self.dump.constraints]
        out = {}
        for at, (name, dims, spec) in enumerate(self.dump.constraints):
            alike = groups.get((dims, spec), [])
            if len({i.frames for i in alike}) == 1:
                out[name] = alike[0]
            elif in_order:
                out[name] = ordered[at]
        return out

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


def is_constraint(i: Instruction) -> bool:
    return i.opcode == "copy" and i.op_name.rpartition("/")[2] == "sharding_constraint"


def line_of(frames: tuple[StackFrame, ...]) -> str:
    frame = own_line(frames)
    return f"{frame.file}:{frame.line}" if frame is not None else ""


def _suffix(i: Instruction) -> int:
    tail = i.name.rpartition(".")[2]
    return int(tail) if tail.isdecimal() else -1
