"""MLIR's generic form and VHLO's spelling → what StableHLO's own printer writes.

"func.func"() <{function_type = (…) -> …, sym_name = "main"}> ({    →  name, arguments' and
^bb0(%arg0: tensor<4xf32>):                                             results' attributes
"vhlo.add_v1"(%0, %1) : (!vhlo.tensor_v1<4x!vhlo.f32_v1>, …)        →  stablehlo.add : …
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ...hlo.parts import unescape_mlir
from ...hlo.texts.regex import regex
from .types import split_types

_VHLO_TYPE = regex(r"!vhlo\.([a-zA-Z]\w*?)_v\d+\b")
_VHLO_NAME = regex(r"\bvhlo\.([a-z]\w*?)_v\d+\b")  # of operations and attributes
_TYPES = {"bool": "i1", "token": "!stablehlo.token", "none": "none"}
_FUNCTION = regex(r'"(?:func\.func|stablehlo\.func)"\s*\(\s*\)')
_NAME = regex(r'sym_name\s*=\s*(?:#?\w*<?)"((?:[^"\\]|\\.)*)"')
_VISIBILITY = regex(r'sym_visibility\s*=\s*(?:#?\w*<?)"(\w*)"')
_ATTRIBUTE_LIST = regex(r"\b(arg_attrs|res_attrs)\s*=\s*(?:#stablehlo\.\w+<)?\[")
_BRACKET = regex(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"|->|[<>(){}\[\]]')
MAX_LENGTH = 1_000_000  # longer ones are constants: there is nothing in them to respell


def plain_spelling(text: str) -> str:
    """VHLO's versioned names as StableHLO's; other text unchanged."""
    if "vhlo" not in text or len(text) > MAX_LENGTH:
        return text
    text = _VHLO_TYPE.sub(lambda m: _TYPES.get(m[1], m[1]), text)
    return _VHLO_NAME.sub(r"stablehlo.\1", text)


@dataclass(slots=True)
class Function:
    """What the line that begins a function says. ``arguments`` is None if a block label
    lists them. Attribute texts are without their braces."""

    name: str
    is_public: bool
    arguments: str | None
    argument_attributes: list[str] = field(default_factory=list)
    result_attributes: list[str] = field(default_factory=list)


def generic_function(line: str) -> Function | None:
    """``"func.func"() <{…}> ({``; None when it is something else."""
    if _FUNCTION.match(line) is None:
        return None
    name, visibility = _NAME.search(line), _VISIBILITY.search(line)
    lists: dict[str, list[str]] = {}
    for m in _ATTRIBUTE_LIST.finditer(line):
        inside = line[m.end() : closing(line, m.end() - 1)]
        lists[m[1]] = [p.strip()[1:-1] if p.startswith("{") else "" for p in split_types(inside)]
    return Function(
        unescape_mlir(name[1]) if name else "function",
        visibility is None or visibility[1] != "private",
        None,
        lists.get("arg_attrs", []),
        lists.get("res_attrs", []),
    )


def closing(text: str, at: int) -> int:
    """Offset of the bracket that closes the one at ``at``; the end if none does."""
    depth = 0
    for m in _BRACKET.finditer(text, at):
        c = m.group()
        if c in ("(", "[", "{", "<"):
            depth += 1
        elif c in (")", "]", "}", ">"):
            depth -= 1
            if depth == 0:
                return m.start()
    return len(text)


def result_attributes(text: str) -> list[str]:
    """``-> (tensor<4xf32> {a = 1}, tensor<f32>) {`` → ["a = 1", ""]."""
    _, arrow, rest = text.partition("->")
    rest = rest.strip()
    if not arrow:
        return []
    if rest.startswith("("):
        parts = split_types(rest[1 : closing(rest, 0)])
    else:
        parts = [rest.removesuffix("{").strip()]
    out = []
    for part in parts:
        at = part.find(" {")
        out.append(part[at + 2 : closing(part, at + 1)] if at != -1 else "")
    return out
