"""Module, Computation, Instruction: XLA's names, immutable once a reader is done.

Hard because it must be cheap at 100,000 instructions: an ``Instruction`` keeps its
attributes as the raw text after the operand list, and parses a part of it only when
that part is asked for. Attribute *text*, in XLA's canonical spelling, is the one
representation: the proto reader writes the same text that the text reader found, so
everything downstream reads one thing.

    ROOT %dot.3 = f32[8,4]{1,0} dot(%a, %b), lhs_contracting_dims={1}, metadata={…}
         name     shape         opcode ││││  └ attribute_text
                                       argument_text → operands
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from .shape import Shape, split_top


@dataclass(frozen=True, slots=True)
class ReadWarning:
    """Something a reader could not understand and passed over. 1-based line and column."""

    message: str
    line: int | None = None
    column: int | None = None

    def __str__(self) -> str:
        if self.line is None:
            return self.message
        at = f"line {self.line}" + (f", column {self.column}" if self.column else "")
        return f"{at}: {self.message}"


@dataclass(frozen=True, slots=True)
class StackFrame:
    """One Python frame; ``function`` is None when the dump does not say."""

    file: str
    line: int
    function: str | None = None
    column: int | None = None
    end_line: int | None = None


@dataclass(frozen=True, slots=True)
class FrameTable:
    """``HloModuleProto.stack_frame_index``: ids are 1-based, 0 means none.

    ``locations`` rows: (file_id, function_id, line, end_line, column, end_column);
    ``frames`` rows: (file_location_id, parent_frame_id), with parent_frame_id already
    corrected by the readers (text prints it one too high).
    """

    files: tuple[str, ...] = ()
    functions: tuple[str, ...] = ()
    locations: tuple[tuple[int, int, int, int, int, int], ...] = ()
    frames: tuple[tuple[int, int], ...] = ()

    def stack(self, frame_id: int) -> tuple[StackFrame, ...]:
        """Frames from the innermost out; stops at bad ids and at loops."""
        out: list[StackFrame] = []
        seen: set[int] = set()
        while 0 < frame_id <= len(self.frames) and frame_id not in seen:
            seen.add(frame_id)
            location_id, frame_id = self.frames[frame_id - 1]
            if not 0 < location_id <= len(self.locations):
                break
            file_id, function_id, line, end_line, column, _ = self.locations[location_id - 1]
            out.append(
                StackFrame(
                    self.files[file_id - 1] if 0 < file_id <= len(self.files) else "",
                    line,
                    self.functions[function_id - 1]
                    if 0 < function_id <= len(self.functions)
                    else None,
                    column or None,
                    end_line or None,
                )
            )
        return tuple(out)


@dataclass(frozen=True, slots=True)
class Metadata:
    """``OpMetadata``: what the front end said about an instruction."""

    op_name: str = ""
    op_type: str = ""
    source_file: str = ""
    source_line: int = 0
    stack_frame_id: int = 0


@dataclass(frozen=True, slots=True)
class Alias:
    """One entry of ``input_output_alias``."""

    output_index: tuple[int, ...]
    parameter_number: int
    parameter_index: tuple[int, ...]
    kind: str  # "may-alias" or "must-alias"


_CALL_ROLES = (
    "calls",
    "to_apply",
    "body",
    "condition",
    "branch_computations",
    "true_computation",
    "false_computation",
    "select",
    "scatter",
    "async_wrapped",
    "called_computations",
    "comparator",
)
_MAY_CALL = re.compile(
    r"\b(calls|to_apply|body|condition|branch_computations|true_computation"
    r"|false_computation|select|scatter|comparator|called_computations)=(\{[^}]*\}|[^\s,{}]+)"
)
_OP_NAME = re.compile(r'\bop_name="((?:[^"\\]|\\.)*)"')
_QUOTED_FIELD = re.compile(r'\b(op_name|op_type|source_file)="((?:[^"\\]|\\.)*)"')
_NUMBER_FIELD = re.compile(r"\b(source_line|stack_frame_id)=(\d{1,9})\b")


def unescape(text: str) -> str:
    """Undoes C escapes (``\\"``, ``\\n``, octal) as XLA's printer writes them."""
    if "\\" not in text:
        return text
    return _ESCAPE.sub(_unescape_one, text)


_ESCAPE = re.compile(r"\\(?:([0-7]{1,3})|x([0-9a-fA-F]{1,2})|(.))", re.S)
_SIMPLE = {"n": "\n", "t": "\t", "r": "\r"}


def _unescape_one(m: re.Match[str]) -> str:
    octal, hexa, other = m.groups()
    if octal:
        return chr(int(octal, 8) & 255)
    if hexa:
        return chr(int(hexa, 16))
    return _SIMPLE.get(other, other)


def split_attributes(text: str) -> dict[str, str]:
    """Top-level ``key=value`` pairs in order, values as raw text; bare words map to ''."""
    out: dict[str, str] = {}
    for part in split_top(text):
        key, equals, value = part.partition("=")
        if key:
            out[key.strip()] = value.strip() if equals else ""
    return out


class Instruction:
    """One HLO instruction. Made by readers only; treat as frozen.

    ``index`` numbers all instructions of the module in printed order (in a scheduled
    module that is the schedule within each computation).
    """

    __slots__ = (
        "index", "name", "opcode", "shape", "operands", "computation", "is_root",
        "argument_text", "attribute_text", "text_span", "_attributes", "_users",
    )  # fmt: skip

    index: int
    name: str
    opcode: str
    shape: Shape
    operands: tuple[Instruction, ...]
    computation: Computation
    is_root: bool
    argument_text: str
    attribute_text: str
    text_span: tuple[int, int] | None
    _attributes: dict[str, str] | None
    _users: tuple[Instruction, ...]

    @property
    def module(self) -> Module:
        return self.computation.module

    @property
    def attributes(self) -> Mapping[str, str]:
        """Attribute name → raw value text, in printed order."""
        if self._attributes is None:
            self._attributes = split_attributes(self.attribute_text)
        return self._attributes

    def attribute(self, name: str) -> str | None:
        """Raw text of one attribute, or None; does not parse when the name is absent."""
        if name not in self.attribute_text:
            return None
        return self.attributes.get(name)

    @property
    def users(self) -> tuple[Instruction, ...]:
        self.module._link_users()
        return self._users

    @property
    def op_name(self) -> str:
        """``metadata.op_name``, such as ``jit(step)/jvp(layer_0)/dot_general``; '' if none."""
        if "op_name=" not in self.attribute_text:
            return ""
        m = _OP_NAME.search(self.attribute_text)
        return unescape(m.group(1)) if m else ""

    @property
    def metadata(self) -> Metadata:
        raw = self.attribute("metadata") or ""
        strings = {k: unescape(v) for k, v in _QUOTED_FIELD.findall(raw)}
        bare = re.sub(r'"(?:[^"\\]|\\.)*"', '""', raw)
        numbers = {k: int(v) for k, v in _NUMBER_FIELD.findall(bare)}
        return Metadata(**strings, **numbers)

    @property
    def frames(self) -> tuple[StackFrame, ...]:
        """Python stack, innermost frame first; one frame for old dumps; () if unknown."""
        meta = self.metadata
        if meta.stack_frame_id:
            stack = self.module.frames.stack(meta.stack_frame_id)
            if stack:
                return stack
        if meta.source_file:
            return (StackFrame(meta.source_file, meta.source_line),)
        return ()

    @property
    def called(self) -> tuple[tuple[str, Computation], ...]:
        """(role, computation) pairs, role being the attribute: calls, to_apply, body, …"""
        text = self.attribute_text
        if "=" not in text or self.opcode in _NEVER_CALLS:
            return ()
        out: list[tuple[str, Computation]] = []
        if not _MAY_CALL.search(text):
            return ()
        for role in _CALL_ROLES:
            value = self.attribute(role)
            if not value:
                continue
            for name in value.strip("{}").split(","):
                found = self.module.find_computation(name.strip().lstrip("%"))
                if found is not None:
                    out.append((role, found))
        return tuple(out)

    @property
    def called_computations(self) -> tuple[Computation, ...]:
        return tuple(c for _, c in self.called)

    @property
    def sharding_text(self) -> str | None:
        return self.attribute("sharding")

    @property
    def control_predecessors(self) -> tuple[Instruction, ...]:
        raw = self.attribute("control-predecessors") or ""
        found = (self.computation.find(n.strip().lstrip("%")) for n in raw.strip("{}").split(","))
        return tuple(i for i in found if i is not None)

    @property
    def backend_config(self) -> str | None:
        """Raw text, unescaped when it was printed as a quoted string."""
        raw = self.attribute("backend_config")
        if raw and raw.startswith('"') and raw.endswith('"'):
            return unescape(raw[1:-1])
        return raw

    @property
    def backend_config_json(self) -> dict[str, Any]:
        """The backend config as JSON; {} when absent or not JSON."""
        try:
            value = json.loads(self.backend_config or "{}")
        except (ValueError, RecursionError):
            return {}
        return value if isinstance(value, dict) else {}

    @property
    def fusion_kind(self) -> str | None:
        """kLoop, kInput, kOutput or kCustom."""
        return self.attribute("kind") if self.opcode == "fusion" else None

    @property
    def custom_call_target(self) -> str | None:
        raw = self.attribute("custom_call_target")
        return unescape(raw.strip('"')) if raw else None

    @property
    def channel_id(self) -> int | None:
        raw = self.attribute("channel_id")
        return int(raw) if raw and raw.isdigit() and len(raw) < 20 else None

    @property
    def parameter_number(self) -> int | None:
        raw = self.argument_text
        ok = self.opcode == "parameter" and raw.isdigit() and len(raw) < 10
        return int(raw) if ok else None

    @property
    def literal(self) -> str | None:
        """A constant's printed value; '{...}' when XLA elided it."""
        return self.argument_text if self.opcode == "constant" else None

    def __repr__(self) -> str:
        return f"<{self.opcode} %{self.name} {self.shape.dense_text}>"


_NEVER_CALLS = frozenset({"parameter", "constant", "get-tuple-element", "tuple", "bitcast"})


class Computation:
    """A named list of instructions; ``instructions`` is in printed order."""

    __slots__ = (
        "index", "name", "instructions", "root", "is_entry", "module",
        "attribute_text", "text_span", "_by_name",
    )  # fmt: skip

    index: int
    name: str
    instructions: tuple[Instruction, ...]
    root: Instruction | None  # None only when the dump was cut off
    is_entry: bool
    module: Module
    attribute_text: str  # after the closing brace: execution_thread="…"
    text_span: tuple[int, int] | None
    _by_name: dict[str, Instruction]

    def find(self, name: str) -> Instruction | None:
        return self._by_name.get(name)

    @property
    def parameters(self) -> tuple[Instruction, ...]:
        """In order of parameter number (dumps may print them out of order)."""
        found = [i for i in self.instructions if i.opcode == "parameter"]
        return tuple(sorted(found, key=lambda i: i.parameter_number or 0))

    def __repr__(self) -> str:
        return f"<Computation %{self.name} {len(self.instructions)} instructions>"


@dataclass(eq=False)
class Module:
    """A whole module. Instructions of all computations are numbered in one sequence.

    ``text`` is the module as text: what was read, cut out of its log, or for a module
    read from a proto what ``printer.to_text`` makes of it (then made when asked for).
    ``dialect`` is "hlo", "stablehlo" or "jaxpr": the last two use their own opcodes.
    """

    name: str
    computations: tuple[Computation, ...]
    entry: Computation | None
    attributes: Mapping[str, str] = field(default_factory=dict)  # header, raw text
    frames: FrameTable = field(default_factory=FrameTable)
    warnings: tuple[ReadWarning, ...] = ()
    dialect: str = "hlo"
    source_text: str | None = None
    first_line: int = 1  # line of the file at which source_text begins
    buffer_assignment: Any | None = None  # readers.proto.BufferAssignment where there is one

    @cached_property
    def instructions(self) -> tuple[Instruction, ...]:
        return tuple(i for c in self.computations for i in c.instructions)

    @cached_property
    def text(self) -> str:
        if self.source_text is not None:
            return self.source_text
        from .printer import to_text

        return to_text(self)

    @property
    def is_scheduled(self) -> bool:
        return self.attributes.get("is_scheduled") == "true"

    @property
    def num_partitions(self) -> int:
        return _number(self.attributes.get("num_partitions"), 1)

    @property
    def replica_count(self) -> int:
        return _number(self.attributes.get("replica_count"), 1)

    @cached_property
    def input_output_alias(self) -> tuple[Alias, ...]:
        raw = self.attributes.get("input_output_alias", "")
        out = []
        for o, p, pi, kind in _ALIAS.findall(raw):
            out.append(Alias(_numbers(o), int(p), _numbers(pi), kind or "may-alias"))
        return tuple(out)

    @cached_property
    def _by_name(self) -> dict[str, Computation]:
        return {c.name: c for c in self.computations}

    def find_computation(self, name: str) -> Computation | None:
        return self._by_name.get(name)

    @cached_property
    def _instructions_by_name(self) -> dict[str, Instruction]:
        out: dict[str, Instruction] = {}
        for i in self.instructions:
            out.setdefault(i.name, i)
        if self.entry is not None:
            out.update(self.entry._by_name)
        return out

    def find(self, name: str) -> Instruction | None:
        """An instruction by name, ENTRY's first where computations share a name."""
        return self._instructions_by_name.get(name.lstrip("%"))

    _linked: bool = field(default=False, repr=False)

    def _link_users(self) -> None:
        if self._linked:
            return
        users: list[list[Instruction]] = [[] for _ in self.instructions]
        for i in self.instructions:
            for o in dict.fromkeys(i.operands):
                users[o.index].append(i)
        for i, u in zip(self.instructions, users, strict=True):
            i._users = tuple(u)
        self._linked = True

    def __repr__(self) -> str:
        n = sum(len(c.instructions) for c in self.computations)
        return f"<Module {self.name} {len(self.computations)} computations, {n} instructions>"


_ALIAS = re.compile(
    r"\{([\d,\s]*)\}\s*:\s*\(\s*(\d{1,9})\s*,\s*\{([\d,\s]*)\}\s*(?:,\s*([a-z-]+))?\s*\)"
)


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(n) for n in text.replace(",", " ").split() if len(n) < 10)


def _number(text: str | None, default: int) -> int:
    return int(text) if text and text.isdigit() and len(text) < 10 else default
