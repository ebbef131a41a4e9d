"""Warnings of the compiler while partitioning, attributed to instructions and lines.

    [SPMD] Involuntary full rematerialization. The compiler cannot go from sharding {…} to {…}
    efficiently for HLO operation %name = f32[8,16]{1,0} copy(%x), …, metadata={op_name="…"}. …

The operation belongs to the program before partitioning (old versions do not name it). The
gathers that do it carry the metadata of that operation or of its user, so a message is attributed
to a collective that has one of these and gathers at most that array, over axes that sharded it.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any

from ...hlo import Instruction, Mesh, Module, StackFrame, Target, parse_shape
from ...hlo.collective_kinds import kind_of
from ...hlo.shardings.sharding_text import parse_sharding
from ...hlo.shardings.specs import Spec, axis_of, spec_of
from ...hlo.texts.places import whole_place
from ..base.table import NO_TARGET, per_devices
from ..comms.collectives import listed
from ..comms.spec_text import spec_words
from ..text.results import Row

REMATERIALIZED = "involuntary full rematerialization"

# XLA's spmd_partitioner.cc has worded it in three ways since 2021; this is common to them.
_REMATERIALIZATION = re.compile(
    r"\[spmd\] Involuntary full rematerialization\..*? from sharding (?P<had>\{.*?\}) to "
    r"(?P<needs>\{.*?\}) (?:efficiently|without doing)(?P<rest>.*)",
    re.I | re.S,
)
_OPERATION = re.compile(r"HLO operation:? (%[\w.\-]+ = .*)", re.S)
_HEAD = re.compile(r"%(?P<name>[\w.\-]+) = (?P<shape>\([^=]*?\)|\S+) (?P<opcode>[\w\-]+)\(")
_OP_NAME = re.compile(r'op_name="((?:[^"\\]|\\.)*)"')
_SOURCE = re.compile(r'source_file="([^"]*)" source_line=(\d+)')


@dataclass(frozen=True, slots=True, repr=False)
class CompilerMessage(Row):
    """One message. ``kind`` is '' for messages other than involuntary rematerialisation."""

    text: str  # as XLA wrote it
    kind: str = ""
    operation: str = ""  # name before partitioning
    opcode: str = ""
    shape: str = ""
    had: str = ""  # P('y', None, 'x') where mesh axes can express it, else XLA's text
    needs: str = ""
    op_name: str = ""
    line: str = ""  # "train.py:31"
    instructions: tuple[int, ...] = ()  # indices of the collectives that it causes
    whole: str = ""  # the shape over all devices: XLA writes that of a device's part

    def __str__(self) -> str:
        if not self.kind:
            return self.text
        of = f"%{self.operation} {self.whole or self.shape}" if self.operation else "a value"
        at = f" at {whole_place(self.line)}" if self.line else ""
        return f"{self.kind} of {of}{at}, from {self.had} to {self.needs}"

    def to_dict(self) -> dict[str, Any]:
        return {
            "message": str(self),
            "kind": self.kind or None,
            "operation": self.operation,
            "shape": self.shape,
            "had": self.had,
            "needs": self.needs,
            "op_name": self.op_name,
            "line": self.line,
            "instructions": list(self.instructions),
            "text": self.text,
        }


def compiler_messages(module: Module, target: Target | None = None) -> tuple[CompilerMessage, ...]:
    """The compiler's messages of a capture, in the compiler's order."""
    return _made(module, target if target is not None else NO_TARGET)


@per_devices
def _made(module: Module, target: Target) -> tuple[CompilerMessage, ...]:
    if not target.compiler_messages:
        return ()
    return tuple(_message(text, module, target) for text in target.compiler_messages)


def _message(text: str, module: Module, target: Target) -> CompilerMessage:
    m = _REMATERIALIZATION.search(text)
    if m is None:
        return CompilerMessage(text)
    operation = _OPERATION.search(m["rest"])
    said = operation[1] if operation else ""
    head = _HEAD.match(said)
    rank = parse_shape(head["shape"]).rank if head and head["shape"][0] != "(" else -1
    specs = [_spec(m[side], rank, target.mesh) for side in ("had", "needs")]
    had, needs = (
        spec_words(s) if s is not None else t
        for s, t in zip(specs, (m["had"], m["needs"]), strict=True)
    )
    found = _OP_NAME.search(said)
    op_name = found[1] if found else ""
    if head is None:
        return CompilerMessage(text, REMATERIALIZED, had=had, needs=needs, op_name=op_name)
    from .provenance_origins import line_of

    before = target.before_partitioning() if target.before_partitioning is not None else None
    op = _operation(before, head["name"], head["opcode"], op_name)
    source = _SOURCE.search(said)
    line = line_of(op.frames) if op is not None else ""
    return CompilerMessage(
        text, REMATERIALIZED, head["name"], head["opcode"], head["shape"], had, needs, op_name,
        line or (f"{source[1]}:{source[2]}" if source else ""),
        _instructions(module, target, op, specs[0]) if op is not None else (),
        _whole(head["shape"], m["had"]),
    )  # fmt: skip


def _whole(shape: str, had: str) -> str:
    """``bf16[128,64]`` of a part ``bf16[16,64]{1,0}`` in eight."""
    part, sharding = parse_shape(shape), parse_sharding(had)
    if not part.is_array or not sharding.is_known:
        return part.dense_text
    sizes = sharding.global_shape(part.dimensions)
    return f"{part.element_type}[{','.join(map(str, sizes))}]"


def _spec(text: str, rank: int, mesh: Mesh | None) -> Spec | None:
    return spec_of(parse_sharding(text), rank, mesh) if rank >= 0 and mesh is not None else None


def _operation(before: Module | None, name: str, opcode: str, op_name: str) -> Instruction | None:
    """The operation that a message names: found by name, else by metadata of just one place."""
    if before is None:
        return None
    named = before.find(name)
    if named is not None and (named.opcode, named.op_name) == (opcode, op_name):
        return named
    alike = [i for i in before.instructions if op_name and i.op_name == op_name]
    alike = [i for i in alike if i.opcode == opcode]
    return alike[0] if len({i.frames for i in alike}) == 1 else None


def _instructions(
    module: Module, target: Target, op: Instruction, had: Spec | None
) -> tuple[int, ...]:
    """Indices of inserted collectives that gather the result of ``op``."""
    if had is None:
        return ()
    cut = {axis_of(ref) for dim in had for ref in dim}
    places = {_place(i) for i in (op, *op.users) if i.op_name}
    elements = op.shape.elements
    out: list[int] = []
    for row in listed(module, target):
        if not kind_of(row.kind).gathers or not row.inserted or row.axes is None:
            continue
        sizes = [math.prod(parse_shape(p.shape).dimensions) for p in row.parts]
        if (
            (row.op_name, _frames(row.frames)) in places
            and {axis_of(a) for a in row.axes.split("+")} <= cut
            and all(n <= elements and elements % n == 0 for n in sizes)
        ):
            out += row.members
    return tuple(out)


def _place(i: Instruction) -> tuple[str, tuple[object, ...]]:
    return i.op_name, _frames(i.frames)


def _frames(frames: tuple[StackFrame, ...]) -> tuple[object, ...]:
    return tuple((f.file, f.line, f.column) for f in frames)
