"""HloModuleProto, HloProto and HloSnapshot → Module.

The attribute text is written as XLA's own printer would, so that a module read from its
proto equals the module read from its text. Where the text drops something, so do we:
an async operation that wraps one instruction is printed as ``slice-start``, and the
computation that wraps it is not printed at all.

What a proto does not hold is not in the header: ``num_partitions`` is only in
``device_assignment``, which only some dumps have.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any, NamedTuple

from ...hlo.buffers import BufferAssignment
from ...hlo.module import Computation, Instruction, Module
from ...hlo.parts import FrameTable, ReadWarning
from ..errors import ReadError
from ..hlo import checks as hlo_checks
from ..recognise import message_name, varint
from .attributes import AttributeTexts, frontend_attributes_text
from .buffers import buffer_assignment, read_buffer_assignment
from .context import ProtoContext, text_of
from .literals import literal_text
from .schema import decode_error, message_class
from .shapes import ShapeCache, joined, shape_text
from .shardings import numbers

_OPCODE = re.compile(rb"[a-z][a-z0-9\-]*\Z")
_ASYNC = {"async-start": "-start", "async-update": "-update", "async-done": "-done"}
MAX_WARNINGS = 200
_SMALL_LITERAL = 128  # bytes: numbers, of which many are the same
Wrapped = tuple[Any, Any, str]  # an instruction, its details and its opcode

__all__ = ["buffer_assignment_of", "read_buffer_assignment", "read_proto"]


def read_proto(data: bytes, name: str = "") -> Module:
    """Reads a module, and of a cut dump what is left. Raises ``ReadError`` without a module."""
    message, details, assignment, damaged = _parts(data)
    warnings: list[ReadWarning] = []
    if damaged:
        warnings.append(ReadWarning("the dump is cut off or damaged; the rest was read"))
    if not message.computations:
        raise ReadError(f"{name or 'the data'} is not an HLO proto: it holds no computation")
    module = _ModuleBuilder(message, details, warnings).build()
    if not any(c.instructions for c in module.computations):
        raise ReadError(f"{name or 'the data'} is not an HLO proto: it holds no instruction")
    if assignment is not None:
        module.buffer_assignment = buffer_assignment(assignment, message)
    return module


def buffer_assignment_of(data: bytes) -> BufferAssignment | None:
    """That of a dump, whose module is not read; None where it has none."""
    message, _, assignment, _ = _parts(data)
    return None if assignment is None else buffer_assignment(assignment, message)


def _parts(data: bytes) -> tuple[Any, Any, Any, bool]:
    """Messages of the module, of its instructions' details and of its buffer assignment, and
    whether the dump is damaged."""
    kind = message_name(data) or "HloModule"
    message, damaged = _parse(kind, data)
    whole = message.SerializeToString() if damaged else data
    del message  # it only shows that the others can be read
    own = message_class(f"Own{kind}").FromString(whole)
    details = message_class(f"Details{kind}").FromString(whole)
    details.DiscardUnknownFields()
    if kind == "HloModule":
        return own, details, None, damaged
    if kind == "HloSnapshot":
        own, details = own.hlo, details.hlo
    assignment = own.buffer_assignment if own.HasField("buffer_assignment") else None
    return own.hlo_module, details.hlo_module, assignment, damaged


def _parse(kind: str, data: bytes) -> tuple[Any, bool]:
    """The message, and whether only the fields before the damage could be kept."""
    message = message_class(kind)()
    try:
        message.ParseFromString(data)
        return message, False
    except decode_error():
        pass
    message = message_class(kind)()
    if kind != "HloModule":  # the module is the first field: salvage that
        _, at = varint(data, 1)
        inner = "HloModule" if kind == "HloProto" else "HloProto"
        part, _ = _parse(inner, data[at:])
        (message.hlo_module if kind == "HloProto" else message.hlo).MergeFrom(part)
        return message, True
    for begin, end in _fields(data):
        part = message_class(kind)()
        try:
            part.ParseFromString(data[begin:end])
        except decode_error():
            continue
        message.MergeFrom(part)
    return message, True


def _fields(data: bytes) -> list[tuple[int, int]]:
    """(begin, end) of the top-level fields that are whole."""
    out = []
    at = 0
    while at < len(data):
        tag, here = varint(data, at)
        if tag <= 0:
            break
        wire = tag & 7
        if wire == 2:
            size, here = varint(data, here)
            if size < 0:
                break
            here += size
        elif wire == 0:
            value, here = varint(data, here)
            if value < 0:
                break
        elif wire in (1, 5):
            here += 8 if wire == 1 else 4
        else:
            break
        if here > len(data):
            break
        out.append((at, here))
        at = here
    return out


class _ComputationProto(NamedTuple):
    """A computation and its instructions, which are made anew at each look if nothing holds them.

    ``calls`` are those that call, with the ids of what they call, in order of their own.
    """

    message: Any
    instructions: list[Any]
    details: Sequence[Any]
    calls: list[tuple[Any, list[int]]]

    @classmethod
    def of(cls, message: Any, details: Any) -> _ComputationProto:
        own = list(message.instructions)
        calls = [(i, list(ids)) for i in own if (ids := i.called_computation_ids)]
        return cls(message, own, details.instructions, sorted(calls, key=lambda call: call[0].id))

    def callees(self) -> Iterator[int]:
        return chain.from_iterable(ids for _, ids in self.calls)


class _ModuleBuilder:
    """Builds one Module from its parsed message. Made once, used once."""

    def __init__(self, message: Any, details: Any, warnings: list[ReadWarning]) -> None:
        self.message = message
        self.warnings = warnings
        self.shapes = ShapeCache()
        self.context = ProtoContext(message.payloads)
        self.module = Module(text_of(message.name) or "module", (), None)
        self.count = 0
        self.dropped_warnings = 0
        self.opcodes: dict[bytes, str] = {}
        self.literals: dict[bytes, str] = {}
        both = zip(message.computations, details.computations, strict=True)
        self.bodies = [_ComputationProto.of(c, d) for c, d in both]
        self.by_id = {b.message.id: b for b in self.bodies}
        self.context.computations = {k: text_of(b.message.name) for k, b in self.by_id.items()}
        self.attributes = AttributeTexts(self.context)
        self.wrapped = self._wrapped_instructions()
        entry = message.schedule.sequences if message.HasField("schedule") else ()
        self.schedule = {s.key: s.value.instruction_ids for s in entry}

    def build(self) -> Module:
        m = self.message
        computations: list[Computation] = []
        for body in self._printed_order():
            if body.message.id not in self.wrapped:
                computations.append(self._computation(body, len(computations)))
        module = self.module
        module.computations = tuple(computations)
        module.entry = next((c for c in computations if c.is_entry), None)
        if module.entry is None:
            self._warn("no computation is named as the entry")
        module.attributes = self._header()
        module.frames = _frames(m.stack_frame_index)
        for text in dict.fromkeys(self.shapes.bad):
            self._warn(f"not a shape: {text!r}")
        for kind in self.shapes.unknown_elements:
            self._warn(hlo_checks.unknown_element(kind))
        if len(self.by_id) != len(self.bodies):
            self._warn("computations share an id; the last of each was kept")
        one_of_each = {i.attribute_text: i for i in module.instructions if i.attribute_text}
        hlo_checks.check(module, one_of_each.values(), lambda message, _: self._warn(message))
        if self.dropped_warnings:
            self.warnings.append(ReadWarning(f"{self.dropped_warnings} more warnings"))
        module.warnings = tuple(self.warnings)
        return module

    def _printed_order(self) -> list[_ComputationProto]:
        """Callees before callers, as XLA prints (``HloModule::MakeComputationPostOrder``):
        depth first from each uncalled computation, calls in order of instruction id."""
        called = {k for b in self.by_id.values() for k in b.callees()}
        order: list[_ComputationProto] = []
        seen: set[int] = set()
        uncalled = [b for b in self.bodies if b.message.id not in called]
        for root in [*uncalled, *self.bodies]:
            if root.message.id in seen:
                continue
            seen.add(root.message.id)
            stack = [(root, root.callees())]
            while stack:
                body, rest = stack[-1]
                for k in rest:
                    if k not in seen and k in self.by_id:
                        seen.add(k)
                        stack.append((self.by_id[k], self.by_id[k].callees()))
                        break
                else:
                    order.append(body)
                    stack.pop()
        return order

    def _wrapped_instructions(self) -> dict[int, Wrapped]:
        """Computations that only wrap the instruction of an async one: id → it."""
        out: dict[int, Wrapped] = {}
        for i, called in chain.from_iterable(b.calls for b in self.bodies):
            if i.opcode != b"async-start" or len(called) != 1:
                continue
            target = self.by_id.get(called[0])
            if target is None or called[0] in out:
                continue
            real = [k for k, x in enumerate(target.instructions) if x.opcode != b"parameter"]
            if len(real) == 1 and target.instructions[real[0]].id == target.message.root_id:
                it = target.instructions[real[0]]
                out[called[0]] = (it, target.details[real[0]], text_of(it.opcode))
        return out

    def _computation(self, body: _ComputationProto, index: int) -> Computation:
        c = body.message
        out = Computation.__new__(Computation)
        out.index = index
        out.name = text_of(c.name)
        out.module = self.module
        out.attribute_text = ""
        out.text_span = None
        out.is_entry = c.id == self.message.entry_computation_id or (
            not self.message.entry_computation_id and c.name == self.message.entry_computation_name
        )
        thread = text_of(c.execution_thread)
        if thread and thread != "main":
            out.attribute_text = f'execution_thread="{thread}"'
        protos = self._ordered(body)
        found: dict[int, Instruction] = {}
        for p, _ in protos:
            found[p.id] = self._instruction(p, out)
        by_name = {i.name: i for i in found.values()}
        if len(by_name) != len(found):
            repeated = Counter(i.name for i in found.values())
            for name in (n for n, count in repeated.items() if count > 1):
                self._warn(f"two instructions named {name!r} in %{out.name}")
        out.instructions = tuple(found.values())
        if len(found) != len(protos):
            self._warn(f"instructions of %{out.name} share an id; the last of each was kept")
        out._names = None
        out.root = found.get(c.root_id)
        if out.root is not None:
            out.root.is_root = True
        self._finish(protos, found, out, {p.id: ids for p, ids in body.calls})
        return out

    def _ordered(self, body: _ComputationProto) -> list[tuple[Any, Any]]:
        """(instruction, its details) in the order of the schedule."""
        order = self.schedule.get(body.message.id)
        protos = list(zip(body.instructions, body.details, strict=True))
        if not order:
            return protos
        by_id = {p[0].id: p for p in protos}
        scheduled = [by_id.pop(k) for k in order if k in by_id]
        return scheduled + list(by_id.values())

    def _instruction(self, p: Any, computation: Computation) -> Instruction:
        i = Instruction.__new__(Instruction)
        i.index = 0
        i.name = text_of(p.name)
        raw = p.opcode
        opcode = self.opcodes.get(raw)
        if opcode is None:
            if not _OPCODE.match(raw):
                self._warn(f"strange opcode {raw[:40]!r}")
            opcode = self.opcodes[raw] = text_of(raw)
        i.opcode = opcode
        i.shape = self.shapes.get(p.shape)
        i.computation = computation
        i.is_root = False
        i._span = -1
        i._attributes = None
        i.operands = ()
        i._arguments = ""
        i.attribute_text = ""
        return i

    def _finish(
        self, protos: list[tuple[Any, Any]], found: dict[int, Instruction], c: Computation,
        calls: dict[int, list[int]],
    ) -> None:  # fmt: skip
        """Sets operands and attributes, now that every instruction of the computation exists."""
        context, text = self.context, self.attributes.of
        context.names = {k: i.name for k, i in found.items()}
        context.kinds = {k: i.shape.element_type for k, i in found.items()}
        started: dict[int, Wrapped | None] = {}  # async instruction → what it wraps
        of_each = zip(protos, found.items(), strict=False)
        for number, ((p, details), (key, i)) in enumerate(of_each, self.count):
            i.index = number
            ids = p.operand_ids
            if ids:
                i.operands = tuple([found[k] for k in ids if k in found])
                if len(i.operands) != len(ids):
                    self._warn(f"%{i.name} has an operand that is not in %{c.name}")
                few = len(i.operands) < 6  # no comments in between
                i._arguments = None if few else joined(["%" + o.name for o in i.operands])
            elif i.opcode == "parameter":
                i.argument_text = str(p.parameter_number)
            elif i.opcode == "constant":
                i.argument_text = self._literal(p.literal)
            wrapped = None
            if i.opcode in _ASYNC:
                wrapped = self._wrapped_by(p, i.opcode, started)
                started[p.id] = wrapped
            if wrapped is not None:
                opcode = i.opcode
                i.opcode = wrapped[2] + _ASYNC[opcode]
                if opcode == "async-start":
                    i.attribute_text = text(p, details, opcode, None, wrapped)
                else:
                    i.attribute_text = text(p, details, "async-done", calls.get(key))
            else:
                i.attribute_text = text(p, details, i.opcode, calls.get(key))
        self.count += len(c.instructions)

    def _literal(self, literal: Any) -> str:
        if literal.ByteSize() > _SMALL_LITERAL:
            return literal_text(literal)
        key = literal.SerializeToString()
        found = self.literals.get(key)
        if found is None:
            found = self.literals[key] = literal_text(literal)
        return found

    def _wrapped_by(
        self, p: Any, opcode: str, started: dict[int, Wrapped | None]
    ) -> Wrapped | None:
        if p.called_computation_ids:
            return self.wrapped.get(p.called_computation_ids[0])
        for k in p.operand_ids:
            if k in started:
                return started[k]
        return None

    def _header(self) -> dict[str, str]:
        m = self.message
        out: dict[str, str] = {}
        if m.HasField("schedule") and m.schedule.sequences:
            out["is_scheduled"] = "true"
        if m.input_output_alias.entries:
            kinds = {1: "may-alias", 2: "must-alias"}
            entries = (
                f"{{{numbers(e.output_shape_index)}}}: ({e.parameter_number}, "
                f"{{{numbers(e.parameter_shape_index)}}}, {kinds.get(e.kind, 'may-alias')})"
                for e in m.input_output_alias.entries
            )
            out["input_output_alias"] = "{ " + ", ".join(entries) + " }"
        if m.buffer_donor.entries:
            donors = (
                f"({e.parameter_number}, {{{numbers(e.parameter_shape_index)}}})"
                for e in m.buffer_donor.entries
            )
            out["buffer_donor"] = "{ " + ", ".join(donors) + " }"
        if m.HasField("host_program_shape"):
            shape = m.host_program_shape
            parameters = joined([shape_text(p, comments=True) for p in shape.parameters])
            result = shape_text(shape.result, comments=True)
            out["entry_computation_layout"] = f"{{({parameters})->{result}}}"
        if m.device_assignment.computation_count > 1:
            out["num_partitions"] = str(m.device_assignment.computation_count)
        if m.device_assignment.replica_count > 1:
            out["replica_count"] = str(m.device_assignment.replica_count)
        if m.frontend_attributes.map:
            out["frontend_attributes"] = frontend_attributes_text(m.frontend_attributes)
        return out

    def _warn(self, message: str) -> None:
        if len(self.warnings) < MAX_WARNINGS:
            self.warnings.append(ReadWarning(message))
        else:
            self.dropped_warnings += 1


def _frames(index: Any) -> FrameTable:
    return FrameTable(
        tuple(text_of(f) for f in index.file_names),
        tuple(text_of(f) for f in index.function_names),
        tuple(
            (x.file_name_id, x.function_name_id, x.line, x.end_line, x.column, x.end_column)
            for x in index.file_locations
        ),
        tuple((f.file_location_id, f.parent_frame_id) for f in index.stack_frames),
    )
