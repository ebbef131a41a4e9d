"""One line of StableHLO text taken apart: name, opcode, operands, attributes, types.

%0 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0] : (…) -> tensor<8x8xf32>
name  opcode               operands  attributes                    types
%12 = "stablehlo.scatter"(%4, %10) <{unique_indices = false}> ({
                         arguments   attributes               opens a region
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from ...hlo.shape import Shape
from ...hlo.texts.regex import regex
from .types import shape_of, split_types

_OP = regex(
    r"(?:%([\w$.\-]+)(?::(\d{1,6}))?((?:\s*,\s*%[\w$.\-]+(?::\d+)?)*+)\s*=\s*)?"
    r"(?:\"([\w.\-$]+)\"|([a-zA-Z_][\w.\-$]*))"
)
_VALUE = regex(r"%([\w$.\-]+)(?:#\d+)?")
_ITERATION = regex(r"%([\w$.\-]+)\s*=\s*%")
_TOKEN = regex(r'->|"[^"\\]*+(?:\\.[^"\\]*+)*+"?|[<>(){}\[\]]|:(?=[ (])')
_QUOTED = regex(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"?')
_CALLEE = regex(r"@([\w$.\-]+|\"[^\"]*\")")
_CALLEE_KEY = regex(
    r"\b(?:callee|decomposition)\s*=\s*(?:@|#\w+\.string(?:_v\d+)?<)([\w$.\-]+|\"[^\"]*\")"
)
_TARGET_KEY = regex(r'\bcall_target_name\s*=\s*(?:#\w+\.string(?:_v\d+)?<)?"((?:[^"\\]|\\.)*)"')
_CALLED = regex(r"called_computations = \[([^\]]*)\]")
BLOCK_ARGUMENT = regex(r"%([\w$.\-]+)\s*:\s*(.*)\Z", re.S)
_PARENTHESIS = regex(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"?|[()]')
_PREFIX = ("stablehlo.", "mhlo.", "func.", "vhlo.")


@dataclass(slots=True)
class OpLine:
    """What one operation line says."""

    opcode: str
    name: str = ""
    results: int = 1
    other_names: list[str] = field(default_factory=list)  # of further results
    operands: list[str] = field(default_factory=list)
    arguments: str = ""
    attributes: str = ""
    types: list[str] = field(default_factory=list)
    has_arrow: bool = False
    callees: list[str] = field(default_factory=list)
    opens_region: bool = False
    region_arguments: str | None = None
    iteration_arguments: list[str] = field(default_factory=list)
    is_damaged: bool = False  # its name ends in a character that no name has

    @property
    def type_shapes(self) -> list[Shape]:
        return [shape_of(t) for t in self.types]


def location_of(line: str) -> tuple[str, str]:
    """The line without its trailing ``loc(…)``, and what is inside that."""
    if not line.endswith(")"):
        return line, ""
    opened: list[int] = []
    begin = -1
    for m in _PARENTHESIS.finditer(line):
        c = m.group()
        if c == "(":
            opened.append(m.start())
        elif c == ")":
            begin = opened.pop() if opened else -1
    if begin < 3 or line[begin - 3 : begin] != "loc":
        return line, ""
    return line[: begin - 3].rstrip(), line[begin + 1 : -1]


def _closing(text: str, at: int) -> int:
    depth = 0
    for m in _TOKEN.finditer(text, at):
        c = m.group()
        if c == "(":
            depth += 1
        elif c == ")":
            depth -= 1
            if depth == 0:
                return m.start()
    return -1


def split_signature(text: str, at: int) -> tuple[str, str]:
    """What is in the parentheses that open at ``at``, and what follows them."""
    end = _closing(text, at)
    return (text[at + 1 : end], text[end + 1 :]) if end != -1 else (text[at + 1 :], "")


def _type_colon(text: str) -> int:
    """Offset of the last top-level `` : ``, before the types; -1 when there is none."""
    depth, found = 0, -1
    for m in _TOKEN.finditer(text):
        c = m.group()
        if c in ("<", "(", "[", "{"):
            depth += 1
        elif c in (">", ")", "]", "}"):
            depth -= 1
        elif c == ":" and depth <= 0:
            found = m.start()
    return found


def signature_types(text: str) -> tuple[str, list[str]]:
    """``{attributes} : (…) -> (…)`` → attribute text and the result types."""
    at = _type_colon(text)
    if at == -1:
        return _plain(text.strip().rstrip("{").strip()), []
    types = text[at + 1 :].strip()
    depth, arrow = 0, -1
    for m in _TOKEN.finditer(types):
        c = m.group()
        if c in ("<", "(", "[", "{"):
            depth += 1
        elif c in (">", ")", "]", "}"):
            depth -= 1
        elif c == "->" and depth == 0:
            arrow = m.end()
    if arrow != -1:
        types = types[arrow:].strip()
    if types.startswith("(") and types.endswith(")"):
        types = types[1:-1]
    return _plain(text[:at].strip()), split_types(types)


def _plain(attributes: str) -> str:
    """``<{a = 1}>`` and ``{a = 1}`` → ``a = 1``."""
    if attributes.startswith("<{") and attributes.endswith("}>"):
        return attributes[2:-2]
    if attributes.startswith("{") and attributes.endswith("}"):
        return attributes[1:-1]
    return attributes


def parse_op(line: str) -> OpLine | None:
    """The parts of an operation's line; None when the line is not an operation."""
    m = _OP.match(line)
    if m is None:
        return None
    name, results, more, quoted, bare = m.groups()
    opcode = quoted or bare
    if name is None and opcode not in ("return", "call") and "." not in opcode:
        return None
    for prefix in _PREFIX:
        opcode = opcode.removeprefix(prefix)
    op = OpLine(opcode, name or "", int(results) if results else 1)
    if more:  # %values, %indices = chlo.top_k(…)
        op.other_names = _VALUE.findall(more)
        op.results += len(op.other_names)
    follows = line[m.end() : m.end() + 1]
    op.is_damaged = opcode.endswith(".") or not (
        not follows or follows.isspace() or follows in '(<{:[@"%,'
    )
    rest = line[m.end() :].strip()
    if rest.endswith("{") and not rest.endswith("<{"):
        op.opens_region = True
        rest = rest[:-1].rstrip()
        op.region_arguments, rest = _region_arguments(rest.removesuffix("(").rstrip())
    at = _type_colon(rest)
    if at != -1:
        op.has_arrow = "->" in rest[at:]
        _, op.types = signature_types(rest[at:])
        rest = rest[:at].strip()
    _operands(op, rest)
    return op


def _region_arguments(text: str) -> tuple[str | None, str]:
    """The ``(%arg3: tensor<…>)`` at the end of a line, and the line before it."""
    if not text.endswith(")"):
        return None, text
    depth = begin = 0
    for m in _TOKEN.finditer(text):
        c = m.group()
        if c == "(":
            begin = m.start() if depth == 0 else begin
            depth += 1
        elif c == ")":
            depth -= 1
    inside = text[begin + 1 : -1]
    if BLOCK_ARGUMENT.match(inside):
        return inside, text[:begin].rstrip()
    return None, text


def _split_dictionary(text: str) -> tuple[str, str]:
    """``%a, %b {c = 1}`` → what is before the attributes, and those without their braces."""
    begin, depth = -1, 0
    for m in _TOKEN.finditer(text):
        c = m.group()
        if c in ("<", "(", "[", "{"):
            begin = m.start() if depth == 0 else begin
            depth += 1
        elif c in (">", ")", "]", "}"):
            depth -= 1
    before = text[:begin].rstrip()
    if depth or begin == -1 or text[begin] != "{" or text[-1] != "}" or before.endswith("="):
        return text, ""
    return before, text[begin + 1 : -1].strip()


def _operands(op: OpLine, rest: str) -> None:
    bare = _QUOTED.sub('""', rest)
    op.iteration_arguments = _ITERATION.findall(bare) if op.opcode == "while" else []
    bare = _ITERATION.sub("%", bare)
    op.operands = _VALUE.findall(bare)
    called = _CALLED.search(rest)
    if op.opcode in ("call", "composite", "custom_call"):
        target = _CALLEE.match(rest)
        if target:
            callee = target.group(1).strip('"')
            if op.opcode == "custom_call":
                op.attributes = f'custom_call_target="{callee}"'
            else:
                op.callees = [callee]
            rest = rest[target.end() :].strip()
    if op.opcode in ("call", "composite", "custom_call") and not op.callees:
        symbol = _CALLEE_KEY.search(rest)
        target = _TARGET_KEY.search(rest)
        if symbol and op.opcode != "custom_call":
            op.callees = [symbol.group(1).strip('"')]
        elif target and not op.attributes:
            op.attributes = f'custom_call_target="{target.group(1)}"'
    if called:
        op.callees += [c.strip('"') for c in _CALLEE.findall(called.group(1))]
    if rest.startswith("("):
        op.arguments, attributes = split_signature(rest, 0)
    else:
        rest, dictionary = _split_dictionary(rest)
        if op.opcode == "composite" and (named := _QUOTED.match(rest)):
            dictionary = ", ".join(x for x in (f"name = {named.group()}", dictionary) if x)
            rest = rest[named.end() :].strip()
        parts = split_types(rest)
        op.arguments = ", ".join(p for p in parts if p.startswith("%"))
        others = [p for p in parts if not p.startswith("%")]
        if op.opcode.startswith("sdy.") and len(parts) == 1:  # %0 <@mesh, [{"x"}]>
            op.arguments, space, sharding = op.arguments.partition(" ")
            others += [f"sharding={sharding}"] if space else []
        attributes = ", ".join(others)
        if op.opcode == "constant":
            op.arguments, attributes = attributes, ""
        attributes = ", ".join(x for x in (attributes, dictionary) if x)
    attributes = _plain(attributes.strip())
    op.attributes = ", ".join(x for x in (op.attributes, attributes) if x)
