"""The instruction lines of one dump of a pass, without their metadata, each parsed once.

Two dumps in a row share nearly all their lines, so a line that was seen before costs one
dictionary lookup: 25 MB of text take a fifth of a second.

    ROOT %dot.3 = f32[8,4]{1,0} dot(%a, %b), lhs_contracting_dims={1}, metadata={…}
         name     shape         opcode operands  attributes
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from ...hlo.opcodes import GIVEN
from .. import scan
from .statements import NAME

_BEGIN = re.compile(rf"[ \t]+(ROOT )?%?({NAME}) = ")
_OPCODE = re.compile(r" ([a-zA-Z][\w.\-]*)\(")
_QUOTED = re.compile(r'"(?:[^"\\]|\\.)*"', re.S)
_HEADER = re.compile(rf"(ENTRY )?%?({NAME}) (?:\(.*\) -> .*)?\{{\s*\Z", re.S)
_METADATA = re.compile(r',? ?metadata=\{(?:[^"{}]|"(?:[^"\\]|\\.)*")*\}')
_OP_NAME = re.compile(r'op_name="((?:[^"\\]|\\.)*)"')
_FRAME = re.compile(r"stack_frame_id=(\d+)|source_line=(\d+)")
_PERCENT = re.compile(r"%([^\s,(){}=\"#]+)")
_CALLS = re.compile(
    r"\b(?:calls|to_apply|body|condition|branch_computations|called_computations|"
    r"true_computation|false_computation)=(\{[^}]*\}|%[^\s,]+)"
)
_COMPUTATIONS = re.compile(r"%([^\s,{}]+)")
_FORM = re.compile(
    r"\b(?:iota_dimension|dimensions|slice|direction|index|dynamic_slice_sizes|padding|window|"
    r"dim_labels|(?:lhs|rhs)_(?:contracting|batch)_dims|offset_dims|start_index_map)="
    r"(?:\{[^}]*\}|[^\s,]+)"
)
_LAYOUT = re.compile(r"(?<=\])\{[^{}]*\}")


@dataclass(eq=False, slots=True)
class Line:
    """One instruction as a dump prints it. ``text`` has neither indent nor metadata.

    ``frame`` is the id of its stack frame, in old dumps its source line; "" without.
    """

    name: str
    opcode: str
    shape: str
    arguments: str
    operands: tuple[str, ...]
    attributes: str
    op_name: str
    frame: str
    root: bool
    text: str

    @property
    def dense(self) -> str:
        """The shape without layouts."""
        return _LAYOUT.sub("", self.shape)

    @property
    def form(self) -> tuple[str, ...]:
        """The attributes that distinguish it within its opcode, such as ``slice={[0:1]}``."""
        return tuple(_FORM.findall(self.attributes)) if self.attributes else ()


@dataclass(eq=False, slots=True)
class Body:
    """The lines of one computation, in printed order."""

    name: str
    entry: bool
    lines: list[Line] = field(default_factory=list)


class Reader:
    """Reads the dumps of one module, one after another."""

    def __init__(self) -> None:
        self._known: dict[str, Line | None] = {}

    def read(self, text: str) -> list[Body]:
        """The computations of a dump; what is not an instruction is skipped."""
        known = self._known
        fresh: dict[str, Line | None] = {}
        bodies: list[Body] = []
        body: Body | None = None
        held = ""  # a statement whose quotes continue in the next line
        for raw in text.split("\n"):
            if body is None:
                if raw.endswith("{") and not raw.startswith((" ", "HloModule")):
                    m = _HEADER.match(raw)
                    if m is not None:
                        body = Body(m[2], m[1] is not None)
                continue
            if raw.startswith("}") and not held:
                bodies.append(body)
                body = None
                continue
            if held:
                held += "\n" + raw
                if _closed(held):
                    raw, held = held, ""
                else:
                    continue
            if raw in fresh:
                line = fresh[raw]
            elif raw in known:
                line = fresh[raw] = known[raw]
            else:
                if not _closed(raw) and raw.startswith(" ") and " = " in raw:
                    held = raw
                    continue
                line = fresh[raw] = _line(raw)
            if line is not None:
                body.lines.append(line)
        self._known = fresh  # lines that are gone are not kept
        return bodies


def _closed(raw: str) -> bool:
    """Whether a statement ends with its line: all its quotes are closed."""
    return '"' not in raw or '"' not in _QUOTED.sub("", raw)


def _line(raw: str) -> Line | None:
    m = _BEGIN.match(raw)
    if m is None:
        return None
    opcode = _OPCODE.search(raw, m.end() - 1)
    if opcode is None:
        return None
    end = scan.closing(raw, opcode.end() - 1, len(raw))
    if end == -1:
        end = len(raw)
    arguments = raw[opcode.end() : end]
    rest = raw[end + 1 :]
    bare = _METADATA.sub("", rest)
    op_name, frame = _OP_NAME.search(rest), _FRAME.search(rest)
    operands: tuple[str, ...] = ()
    if opcode[1] not in GIVEN and arguments:
        if "%" in arguments:
            operands = tuple(_PERCENT.findall(arguments))
        else:
            operands = tuple(a.split()[-1] for a in arguments.split(",") if a.strip())
    return Line(
        m[2],
        opcode[1],
        raw[m.end() : opcode.start()],
        arguments,
        operands,
        bare.removeprefix(",").strip(),
        op_name[1] if op_name else "",
        (frame[1] or frame[2]) if frame else "",
        m[1] is not None,
        raw[: end + 1].strip() + bare,
    )


def called(line: Line) -> list[str]:
    """Names of the computations that a line calls."""
    if "%" not in line.attributes:
        return []
    return [n for found in _CALLS.findall(line.attributes) for n in _COMPUTATIONS.findall(found)]
