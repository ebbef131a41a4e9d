"""Module, Computation, Instruction: XLA's names, immutable once a reader is done.

It must be cheap at 100,000 instructions: an ``Instruction`` keeps its attributes as the
raw text after the operand list, and parses a part of it only when that part is needed.
Attribute *text*, in XLA's canonical spelling, is the one representation: the proto reader
writes the same text that the text reader finds, so everything downstream reads one form.

    ROOT %dot.3 = f32[8,4]{1,0} dot(%a, %b), lhs_contracting_dims={1}, metadata={…}
         name     shape         opcode ││││  └ attribute_text
                                       argument_text → operands
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from itertools import chain, count, repeat
from operator import attrgetter
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt

from . import columns
from .limits import MOST_DEVICES
from .parts import (
    Alias,
    FrameTable,
    Metadata,
    ReadWarning,
    StackFrame,
    number,
    parse_aliases,
    parse_metadata,
    printable,
    split_attributes,
    unescape,
)
from .shape import Shape
from .shardings import shardy
from .texts.regex import regex

if TYPE_CHECKING:
    from .buffers import BufferAssignment
    from .origins.operations import Origin
    from .origins.origins import Origins


_KIND = regex(r"(?:^|, ?)kind=(k[A-Z]\w*)")


class Instruction:
    """One HLO instruction. Made by readers only; treat as frozen.

    ``index`` numbers all instructions of the module in printed order (in a scheduled
    module that is the schedule within each computation).
    """

    __slots__ = (
        "_arguments",
        "_attributes",
        "_span",
        "attribute_text",
        "computation",
        "index",
        "is_root",
        "name",
        "opcode",
        "operands",
        "shape",
    )  # fmt: skip

    index: int
    name: str
    opcode: str
    shape: Shape
    operands: tuple[Instruction, ...]
    computation: Computation
    is_root: bool
    attribute_text: str
    _attributes: dict[str, str] | None
    # A million instructions take 200 MB less this way than as the text and the pair themselves.
    _arguments: str | None  # None: the operands' names, as XLA prints them
    _span: int  # (begin << 32) + length; -1 for none

    @property
    def argument_text(self) -> str:
        """What is between the parentheses after the opcode, as printed."""
        if self._arguments is None:
            return ", ".join(["%" + o.name for o in self.operands])
        return self._arguments

    @argument_text.setter
    def argument_text(self, text: str) -> None:
        self._arguments = text

    @property
    def text_span(self) -> tuple[int, int] | None:
        """Its place in the module's text: offsets of its first character and its end."""
        if self._span < 0:
            return None
        begin = self._span >> 32
        return begin, begin + (self._span & 0xFFFFFFFF)

    @text_span.setter
    def text_span(self, span: tuple[int, int] | None) -> None:
        self._span = -1 if span is None else (span[0] << 32) + span[1] - span[0]

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
        offsets, users = self.module._users
        return tuple(users[offsets[self.index] : offsets[self.index + 1]])

    def users_of(self, element: int) -> tuple[Instruction, ...]:
        """The users of a tuple without those that take another element of it."""
        found = self.module._element_users.get((self.index, element))
        if found is None:
            found = tuple(
                u for u in self.users
                if u.opcode != "get-tuple-element" or u.tuple_index == element
            )  # fmt: skip
            self.module._element_users[self.index, element] = found
        return found

    @property
    def op_name(self) -> str:
        """``metadata.op_name``, such as ``jit(step)/jvp(layer_0)/dot_general``; '' if none."""
        return columns.op_name(self.attribute_text)

    @property
    def metadata(self) -> Metadata:
        return parse_metadata(self.attribute("metadata") or "")

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
    def origins(self) -> tuple[Origin, ...]:
        """StableHLO operations it comes from, exactly; () if XLA made it or they are unknown."""
        known = self.module.origins
        return known.of[self.index] if known is not None else ()

    @property
    def called(self) -> tuple[tuple[str, Computation], ...]:
        """(role, computation) pairs, role being the attribute: calls, to_apply, body, …"""
        module = self.module
        if module._is_whole:
            return module._called.get(self.index, ())
        named = columns.called_names(self.opcode, self.attribute_text)
        found = ((role, module.find_computation(name)) for role, name in named)
        return tuple((role, c) for role, c in found if c is not None)

    @property
    def called_computations(self) -> tuple[Computation, ...]:
        module = self.module
        if module._is_whole:
            return module._callees.get(self.index, ())
        return tuple(c for _, c in self.called)

    @property
    def sharding_text(self) -> str | None:
        """As printed; Shardy's, which HLO keeps in frontend attributes, in XLA's named form."""
        found = self.attribute("sharding")
        if found is None and "xla.sdy.sharding=" in self.attribute_text:
            return shardy.of_frontend(
                self.attribute("frontend_attributes") or "", self.module.attributes
            )
        return found

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
        if self.opcode != "fusion":
            return None
        plain, _, _ = self.attribute_text.partition('"')
        found = _KIND.search(plain)  # attributes are not split: there are thousands
        return found.group(1) if found else self.attribute("kind")

    @property
    def custom_call_target(self) -> str | None:
        text = self.attribute_text
        if text.startswith('custom_call_target="'):  # as XLA prints it
            end = text.find('"', 20)
            if end > 20 and "\\" not in text[20:end]:
                return text[20:end]
        raw = self.attribute("custom_call_target")
        return unescape(raw.strip('"')) if raw else None

    @property
    def channel_id(self) -> int | None:
        raw = self.attribute("channel_id")
        return int(raw) if raw and raw.isdecimal() and len(raw) < 20 else None

    @property
    def parameter_number(self) -> int | None:
        if self.opcode != "parameter":
            return None
        raw = self._arguments or ""  # it has no operands
        return int(raw) if raw.isdecimal() and len(raw) < 10 else None

    @property
    def tuple_index(self) -> int | None:
        """Which element a get-tuple-element takes; None elsewhere and if it is not a number."""
        if self.opcode != "get-tuple-element":
            return None
        return columns.element_index(self.attribute_text)

    @property
    def literal(self) -> str | None:
        """A constant's printed value; '{...}' when XLA elided it."""
        return self.argument_text if self.opcode == "constant" else None

    def __reduce__(self) -> tuple[Any, ...]:
        return _instruction, (self.module, self.index)

    def __repr__(self) -> str:
        return printable(f"<{self.opcode} %{self.name} {self.shape.dense_text}>")


class Computation:
    """A named list of instructions; ``instructions`` is in printed order."""

    __slots__ = (
        "_names",
        "attribute_text",
        "index",
        "instructions",
        "is_entry",
        "module",
        "name",
        "root",
        "text_span",
    )  # fmt: skip

    index: int
    name: str
    instructions: tuple[Instruction, ...]
    root: Instruction | None  # None only when the dump was cut off
    is_entry: bool
    module: Module
    attribute_text: str  # after the closing brace: execution_thread="…"
    text_span: tuple[int, int] | None
    _names: dict[str, Instruction] | None  # built on demand

    @property
    def _by_name(self) -> dict[str, Instruction]:
        """Instructions by name, the first with each name."""
        if self._names is None:
            self._names = {i.name: i for i in reversed(self.instructions)}
        return self._names

    def find(self, name: str) -> Instruction | None:
        return self._by_name.get(name)

    @property
    def parameters(self) -> tuple[Instruction, ...]:
        """In order of parameter number (dumps may print them out of order)."""
        known = self.module._parameters.get(self.index)
        if known is None:
            found = [i for i in self.instructions if i.opcode == "parameter"]
            known = tuple(sorted(found, key=lambda i: i.parameter_number or 0))
            if self.module._is_whole:
                self.module._parameters[self.index] = known
        return known

    def __reduce__(self) -> tuple[Any, ...]:
        return _computation, (self.module, self.index)

    def __repr__(self) -> str:
        return printable(f"<Computation %{self.name} {len(self.instructions)} instructions>")


@dataclass(eq=False)
class Module:
    """A whole module. Instructions of all computations are numbered in one sequence.

    ``text`` is the module as text: what was read, cut out of its log, or for a module
    read from a proto what ``printer.to_text`` makes of it (then on demand).
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
    buffer_assignment: BufferAssignment | None = None  # where the dump holds one
    origins: Origins | None = None  # known when capturing; None for dumps
    # texts/printer.py, which imports this file, sets it
    printed: ClassVar[Callable[[Module], str]]

    @cached_property
    def instructions(self) -> tuple[Instruction, ...]:
        return tuple(chain.from_iterable([c.instructions for c in self.computations]))

    @cached_property
    def text(self) -> str:
        if self.source_text is not None:
            return self.source_text
        return self.printed()

    @property
    def is_scheduled(self) -> bool:
        return self.attributes.get("is_scheduled") == "true"

    @property
    def num_partitions(self) -> int:
        return self._device_counts[1]

    @property
    def replica_count(self) -> int:
        return self._device_counts[0]

    @property
    def _device_counts(self) -> tuple[int, int]:
        """(replicas, partitions) that the header states; 1 and 1 if no machine has as many."""
        replicas = number(self.attributes.get("replica_count"), 1)
        partitions = number(self.attributes.get("num_partitions"), 1)
        return (replicas, partitions) if replicas * partitions <= MOST_DEVICES else (1, 1)

    @cached_property
    def input_output_alias(self) -> tuple[Alias, ...]:
        return parse_aliases(self.attributes.get("input_output_alias", ""))

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

    # -- whole columns, for work over 100,000 instructions at once ------------------

    @cached_property
    def opcodes_list(self) -> list[str]:
        """The opcode of each instruction, by index."""
        return list(map(attrgetter("opcode"), self.instructions))

    @cached_property
    def attribute_texts(self) -> tuple[npt.NDArray[np.int64], list[str]]:
        """``(of, texts)``: the attribute text of instruction k is ``texts[of[k]]``."""
        number: defaultdict[str, int] = defaultdict(count().__next__)
        texts = map(attrgetter("attribute_text"), self.instructions)
        of = np.fromiter(map(number.__getitem__, texts), np.int64, len(self.instructions))
        return of, list(number)  # half of the texts are printed more than once

    @cached_property
    def tuple_indices(self) -> dict[int, int | None]:
        """``tuple_index`` of every get-tuple-element, by index of the instruction."""
        rows = [k for k, opcode in enumerate(self.opcodes_list) if opcode == "get-tuple-element"]
        of, texts = self.attribute_texts
        mine = of[np.array(rows, np.int64)].tolist()
        known = {n: columns.element_index(texts[n]) for n in set(mine)}
        return dict(zip(rows, map(known.__getitem__, mine), strict=True))

    def operand_csr(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """``(offsets, values)``: instruction k's operands are
        ``values[offsets[k]:offsets[k + 1]]``, as instruction indices in operand order."""
        return self._operand_csr

    def called_csr(
        self,
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], list[str]]:
        """``(offsets, values, roles)``: instruction k calls the computations with index
        ``values[offsets[k]:offsets[k + 1]]`` in the roles (``calls``, ``body``, …) at the
        same positions of ``roles``."""
        return self._called_csr

    def call_sites(self, computation: Computation) -> tuple[Instruction, ...]:
        """The instructions that call a computation; both halves of an async one count once."""
        return self._call_sites[computation.index]

    @cached_property
    def _call_sites(self) -> tuple[tuple[Instruction, ...], ...]:
        offsets, values, _ = self.called_csr()
        sites: list[dict[Instruction, None]] = [{} for _ in self.computations]
        counts = (offsets[1:] - offsets[:-1]).tolist()
        calling = chain.from_iterable(repeat(k, n) for k, n in enumerate(counts) if n)
        for k, callee in zip(calling, values.tolist(), strict=True):
            caller = self.instructions[k]
            if not caller.opcode.endswith(("-update", "-done")):
                sites[callee][caller] = None
        return tuple(map(tuple, sites))

    def op_names(self) -> list[str]:
        """``metadata.op_name`` of each instruction, '' if there is none."""
        of, texts = self.attribute_texts
        interned: dict[str, str] = {}
        names = [interned.setdefault(n, n) for n in map(columns.op_name, texts)]
        return list(map(names.__getitem__, of.tolist()))

    def frame_ids(self) -> list[int]:
        """``stack_frame_id`` of each instruction, 0 if ``frames`` has none of that number."""
        of, texts = self.attribute_texts
        ids = np.array([columns.frame_id(text) for text in texts], np.int64)
        ids[ids > len(self.frames.frames)] = 0
        found: list[int] = ids[of].tolist()
        return found

    def source_frames(self) -> tuple[FrameTable, list[int]]:
        """A frame table and each instruction's innermost frame id in it (0 for none).

        ``frames`` and ``frame_ids()`` where the dump has stack frames; for older dumps a
        table made from their ``source_file`` and ``source_line``, with no parents.
        """
        return self._source_frames

    @cached_property
    def _operand_csr(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        operands = list(map(attrgetter("operands"), self.instructions))
        offsets = columns.offsets(np.fromiter(map(len, operands), np.int64, len(operands)))
        each = map(attrgetter("index"), chain.from_iterable(operands))
        return offsets, np.fromiter(each, np.int64, int(offsets[-1]))

    @cached_property
    def _called_csr(
        self,
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], list[str]]:
        index = {c.name: c.index for c in self.computations}
        counts = np.zeros(len(self.instructions), np.int64)
        values: list[int] = []
        roles: list[str] = []
        opcodes = self.opcodes_list
        may_call = set(opcodes) - columns.NEVER_CALLS
        for k in [k for k, opcode in enumerate(opcodes) if opcode in may_call]:
            i = self.instructions[k]
            before = len(values)
            for role, name in columns.called_names(i.opcode, i.attribute_text):
                if name in index:
                    values.append(index[name])
                    roles.append(role)
            counts[k] = len(values) - before
        return columns.offsets(counts), np.array(values, np.int64), roles

    @cached_property
    def _source_frames(self) -> tuple[FrameTable, list[int]]:
        if self.frames.frames:
            ids = self.frame_ids()
            if any(ids):
                return self.frames, ids
        files: dict[str, int] = {}
        places: dict[tuple[int, int], int] = {}
        of, texts = self.attribute_texts
        place_of = []
        for text in texts:
            found = columns.source_place(text)
            if found is None:
                place_of.append(0)
                continue
            file_id = files.setdefault(found[0], len(files) + 1)
            place_of.append(places.setdefault((file_id, found[1]), len(places) + 1))
        ids = np.array(place_of, np.int64)[of].tolist()
        locations = tuple((f, 0, line, 0, 0, 0) for f, line in places)
        frames = tuple((n + 1, 0) for n in range(len(locations)))
        return FrameTable(tuple(files), (), locations, frames), ids

    # What is asked for often, by index, once the module is whole.
    @cached_property
    def _called(self) -> dict[int, tuple[tuple[str, Computation], ...]]:
        offsets, values, roles = self.called_csr()
        pairs = [(r, self.computations[c]) for r, c in zip(roles, values.tolist(), strict=True)]
        rows = np.flatnonzero(np.diff(offsets)).tolist()
        spans = zip(offsets[rows].tolist(), offsets[1:][rows].tolist(), strict=True)
        return {k: tuple(pairs[a:b]) for k, (a, b) in zip(rows, spans, strict=True)}

    @cached_property
    def _callees(self) -> dict[int, tuple[Computation, ...]]:
        return {k: tuple([c for _, c in called]) for k, called in self._called.items()}

    _parameters: dict[int, tuple[Instruction, ...]] = field(default_factory=dict, repr=False)
    _element_users: dict[tuple[int, int], tuple[Instruction, ...]] = field(
        default_factory=dict, repr=False
    )

    @property
    def _is_whole(self) -> bool:
        """Whether its instructions are numbered: before, a reader may add computations."""
        return "instructions" in vars(self)

    @cached_property
    def _users(self) -> tuple[list[int], list[Instruction]]:
        """The users of instruction k are those from offset k to offset k + 1, each once."""
        offsets, operands = self.operand_csr()
        users = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
        pairs = columns.each_once(operands * len(offsets) + users)
        counts = np.bincount(pairs // len(offsets), minlength=len(offsets) - 1)
        found = (pairs % len(offsets)).tolist()
        return columns.offsets(counts).tolist(), [self.instructions[n] for n in found]

    # -- pickling and copying: operands refer to instructions, deeper than Python recurses --

    def __getstate__(self) -> dict[str, Any]:
        """Rows instead of objects; without what analyses and properties keep on the module."""
        kept = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in _LINKED}
        rows = [
            (
                i.name,
                i.opcode,
                i.shape,
                tuple([o.index for o in i.operands]),
                i.attribute_text,
                i._arguments,
                i._span,
            )
            for i in self.instructions
        ]
        computations = [
            (
                c.name,
                len(c.instructions),
                None if c.root is None else c.root.index,
                [i.index for i in c.instructions if i.is_root],
                c.is_entry,
                c.attribute_text,
                c.text_span,
            )
            for c in self.computations
        ]
        entry = None if self.entry is None else self.entry.index
        return {"fields": kept, "rows": rows, "computations": computations, "entry": entry}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state["fields"])
        made = []
        for index, row in enumerate(state["rows"]):
            i = Instruction.__new__(Instruction)
            i.index, i.is_root, i._attributes = index, False, None
            i.name, i.opcode, i.shape, _, i.attribute_text, i._arguments, i._span = row
            made.append(i)
        for i, row in zip(made, state["rows"], strict=True):
            i.operands = tuple([made[o] for o in row[3]])
        computations = []
        begin = 0
        for index, row in enumerate(state["computations"]):
            c = Computation.__new__(Computation)
            c.index, c.module, c._names = index, self, None
            c.name, size, root, roots, c.is_entry, c.attribute_text, c.text_span = row
            c.instructions = tuple(made[begin : begin + size])
            begin += size
            c.root = None if root is None else made[root]
            for i in c.instructions:
                i.computation = c
            for at in roots:
                made[at].is_root = True
            computations.append(c)
        self.computations = tuple(computations)
        self.entry = None if state["entry"] is None else computations[state["entry"]]
        self._parameters, self._element_users = {}, {}

    def __repr__(self) -> str:
        n = sum(len(c.instructions) for c in self.computations)
        of = f"{len(self.computations)} computations, {n} instructions"
        return printable(f"<Module {self.name} {of}>")


# Fields that ``__getstate__`` writes as rows.
_LINKED = frozenset(["computations", "entry", "_parameters", "_element_users"])


def _instruction(module: Module, index: int) -> Instruction:
    return module.instructions[index]


def _computation(module: Module, index: int) -> Computation:
    return module.computations[index]
