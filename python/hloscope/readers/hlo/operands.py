"""The operands of a computation's instructions, resolved by name once all are known.

    add(%a, %b)                      names: nearly every instruction
    add(f32[4]{0} %a, f32[] %b)      names with their types, until 2021
    add(a, %b)                       with and without %
    multiply(%a, f32[] constant(2))  written out in place: becomes an instruction of its own
    add(%t#0, %t#1)                  elements of a tuple, likewise

Every part between commas becomes an operand or a warning.
"""

from __future__ import annotations

from collections.abc import Callable

from ...hlo.module import Computation, Instruction
from ...hlo.opcodes import GIVEN
from ...hlo.shape import Shape, split_top, without_comments
from ...hlo.texts.regex import regex
from .. import scan
from . import infer as hlo_infer
from .statements import nested

NO_SHAPE = Shape("", "opaque")  # until it is inferred
_PERCENT_NAME = regex(r"%([^\s,(){}=\"]+)")
_TYPED = (
    r"(?:\s|/\*[^*]*\*/)*+(?:(?:[a-z]\w*\[[^\[\]]*+\](?:\{[^{}]*+\})?"
    r"|\((?:[^()]|\((?:[^()]|\((?:[^()]|\([^()]*+\))*+\))*+\))*+\))\s+)?%[^\s,(){}=\"#]++\s*+"
)
_ALL_TYPED = regex(rf"{_TYPED}(?:,{_TYPED})*+\Z")
_NAMED = regex(r"%?([^\s,(){}=\"#]+)((?:#\d+)*)\Z")
MAX_NESTED = 100_000


class Names:
    """Names for instructions that have none: ``constant.anon``, ``constant.anon.1``, …"""

    def __init__(self) -> None:
        self._used: dict[str, int] = {}

    def fresh(self, opcode: str, taken: dict[str, Instruction]) -> str:
        while True:
            n = self._used.get(opcode, 0)
            self._used[opcode] = n + 1
            name = f"{opcode}.anon.{n}" if n else f"{opcode}.anon"
            if name not in taken:
                return name


class Resolver:
    """One computation's operands. ``warn`` takes a message and an offset in the text."""

    def __init__(
        self,
        body: list[Instruction],
        by_name: dict[str, Instruction],
        names: Names,
        shape: Callable[[str, int], Shape],
        warn: Callable[[str, int], None],
    ) -> None:
        self.body = body
        self.by_name = by_name
        self.names = names
        self.shape = shape
        self.warn = warn
        self.added: list[Instruction] = []
        self.before: dict[int, list[Instruction]] = {}  # id of a user → operands written out in it
        self.resolved = False

    def resolve(self) -> bool:
        """Sets ``operands`` of all; True when some were written out in place."""
        if self.resolved:
            return bool(self.added)
        self.resolved = True
        by_name = self.by_name
        typed: dict[str, Instruction] = {}  # "f32[8] %a" → %a
        for i in self.body:
            arguments = i.argument_text  # as read: none is rebuilt before it is resolved
            if not arguments or i.opcode in GIVEN:
                i.operands = ()
                continue
            try:  # as XLA prints them: splitting is all that is needed
                if arguments[0] == "%":
                    i.operands = tuple([by_name[n] for n in arguments[1:].split(", %")])
                    i._arguments = None
                    continue
                if " %" not in arguments:
                    i.operands = tuple([by_name[n] for n in arguments.split(", ")])
                    continue
                # each name after the type of what it names
                if not typed:
                    typed = {f"{x.shape.text} %{n}": x for n, x in by_name.items()}
                if "/*" in arguments:
                    arguments = without_comments(arguments)
                one = typed.get(arguments)  # a tuple's type has commas of its own
                if one is not None:
                    i.operands = (one,)
                else:
                    i.operands = tuple([typed[part] for part in arguments.split(", ")])
            except KeyError:
                plain = without_comments(arguments) if "/*" in arguments else arguments
                i.operands = self._closer(i, plain)
        return bool(self.added)

    def _closer(self, i: Instruction, arguments: str) -> tuple[Instruction, ...]:
        typed = _ALL_TYPED.match(arguments)
        names = _PERCENT_NAME.findall(arguments) if typed else arguments.split(",")
        try:
            return tuple([self.by_name[n.strip().removeprefix("%")] for n in names])
        except KeyError:
            return self._one_by_one(i, arguments)

    def _one_by_one(self, i: Instruction, arguments: str) -> tuple[Instruction, ...]:
        found = []
        missing = []
        for part in split_top(arguments):
            operand = self._operand(i, part)
            if operand is not None:
                found.append(operand)
            elif part:
                missing.append(part)
        if missing:
            named = _NAMED.match(missing[0].split()[-1])
            what = named[1] if named and named[1] not in self.by_name else missing[0]
            self.warn(f"%{i.name} has an operand that is not here: {what[:60]!r}", _at(i))
        return tuple(found)

    def _operand(self, user: Instruction, part: str) -> Instruction | None:
        named = _NAMED.match(part)
        if named is None:
            end = scan.shape_end(part, 0, len(part))
            if part[:end].removeprefix("%") in self.by_name:
                return None  # two names without a comma: the first is no type
            named = _NAMED.match(part[end:].strip()) if end else None
        if named is not None:
            found = self.by_name.get(named[1])
            for index in named[2].split("#")[1:]:
                found = self._element(user, found, int(index)) if found is not None else None
            return found
        if len(self.added) >= MAX_NESTED:
            return None
        s = nested(part)
        if s is None:
            return None
        shape = NO_SHAPE if s.shape is None else self.shape(s.shape, _at(user))
        i = self._add(user, self.names.fresh(s.opcode, self.by_name), s.opcode, shape)
        i.argument_text, i.attribute_text = s.arguments, s.attributes
        if s.opcode not in GIVEN and s.arguments.strip():
            if len(part) > 20_000:
                return None
            place = self.before[id(user)].index(i)
            i.operands = self._one_by_one(i, s.arguments)
            own = self.before.pop(id(i), [])
            self.before[id(user)][place:place] = own
        return i

    def _element(self, user: Instruction, base: Instruction, index: int) -> Instruction | None:
        name = f"{base.name}_{index}"
        if name in self.by_name:
            return self.by_name[name]
        shapes = base.shape.tuple_shapes
        if index >= len(shapes):
            return None
        i = self._add(user, name, "get-tuple-element", shapes[index])
        i.argument_text, i.attribute_text = f"%{base.name}", f"index={index}"
        i.operands = (base,)
        return i

    def _add(self, user: Instruction, name: str, opcode: str, shape: Shape) -> Instruction:
        i = Instruction.__new__(Instruction)
        i.index = 0
        i.name, i.opcode, i.shape = name, opcode, shape
        i.computation = user.computation
        i.argument_text = i.attribute_text = ""
        i.operands = ()
        i.text_span = user.text_span
        i._attributes = None
        i.is_root = False
        self.added.append(i)
        self.by_name[name] = i
        self.before.setdefault(id(user), []).append(i)
        return i

    def with_nested(
        self, unshaped: dict[int, int], computations: dict[str, Computation]
    ) -> list[Instruction]:
        """All instructions in order, those written out in place before their users, with omitted
        shapes inferred."""
        self.resolve()
        body = [x for i in self.body for x in (*self.before.get(id(i), ()), i)]
        for i in body:
            if i.shape is not NO_SHAPE:
                continue
            shape = hlo_infer.shape_of(i, computations)
            if shape is None:
                at = unshaped.get(id(i), _at(i))
                self.warn(f"%{i.name} has no shape, and none follows from its operands", at)
            else:
                i.shape = shape
        return body


def _at(i: Instruction) -> int:
    return i.text_span[0] if i.text_span else 0
