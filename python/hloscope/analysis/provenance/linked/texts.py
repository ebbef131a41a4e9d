"""Stages of a program as lines of text, and the line of each instruction.

StableHLO is shown without its locations, a jaxpr in jax's own notation, and Python as the files
that the program names, one after another:

    step = { lambda ; x:f32[8,64] w:f32[64,64]. let
        dot_general:f32[8,64] = dot_general[dimension_numbers=…] x w
        tanh:f32[8,64] = tanh dot_general
      in (tanh,) }
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import accumulate

from ....hlo import Instruction, Module

# Characters of text kept for one stage; a note says if more is left out.
MOST_TEXT = 24_000_000
MOST_FILE = 256 * 1024  # for one Python file
MOST_FILES = 1024 * 1024  # for all
# A larger line number is damage: Python itself counts lines in 31 bits.
MOST_LINES = (1 << 31) - 1


@dataclass(frozen=True)
class Text:
    """Lines of one stage. ``line_of``: index of an instruction → its line, from 0.

    ``files`` of Python source: (file, first row, whether its text is known); ``numbers``: the
    line number of each row in its file, 0 for a row that names the file.
    """

    lines: tuple[str, ...]
    line_of: Mapping[int, int] = field(default_factory=dict)
    files: tuple[tuple[str, int, bool], ...] = ()
    numbers: tuple[int, ...] = ()
    note: str = ""


_LOCATION = re.compile(
    r' ?\bloc\((?:#loc\d*|unknown|"(?:[^"\\]|\\.)*"(?::\d+:\d+(?: to [\d:]+)?|\(#?\w+\))?'
    r"|callsite\([^()]*\)|fused(?:<[^>]*>)?\[[^\]]*\])\)"
)


def mlir_text(module: Module) -> Text:
    """MLIR without the locations of its operations."""
    text = module.text
    begins = [0]
    for m in re.finditer("\n", text):
        begins.append(m.end())
    kept: list[str] = []
    row: list[int] = []  # line of the whole text → line of what is shown, or -1
    for line in text.split("\n"):
        if line.startswith("#loc"):
            row.append(-1)
            continue
        row.append(len(kept))
        kept.append(_LOCATION.sub("", line) if "loc(" in line else line)
    while kept and not kept[-1]:
        kept.pop()
    line_of = {}
    for i in module.instructions:
        if i.text_span is not None:
            at = row[bisect_right(begins, i.text_span[0]) - 1]
            if 0 <= at < len(kept):
                line_of[i.index] = at
    return _limited(kept, line_of, "StableHLO")


def jaxpr_text(module: Module) -> Text:
    """A jaxpr in jax's notation; each equation is one line."""
    lines: list[str] = []
    line_of: dict[int, int] = {}
    entry = module.entry
    rest = [c for c in module.computations if c is not entry]
    for c in ([entry] if entry is not None else []) + rest[::-1]:
        if lines:
            lines.append("")
        arguments = [i for i in c.instructions if i.opcode == "parameter"]
        for i in arguments:
            line_of[i.index] = len(lines)
        bound = " ".join(f"{i.name}:{i.shape.text}" for i in arguments)
        name = module.name if c is entry else c.name
        lines.append(f"{name} = {{ lambda ; {bound}. let")
        parts: dict[int, list[Instruction]] = {}
        for i in c.instructions:
            if i.opcode == "get-tuple-element":
                parts.setdefault(i.operands[0].index, []).append(i)
        for i in c.instructions:
            if i.opcode in ("parameter", "get-tuple-element") or _is_inline(i):
                continue
            if i.opcode == "tuple" and i.is_root:
                continue
            of = parts.get(i.index)
            if of is not None:
                for part in of:
                    line_of[part.index] = len(lines)
                names = " ".join(f"{p.name}:{p.shape.text}" for p in of)
            else:
                names = f"{i.name}:{i.shape.text}"
            line_of[i.index] = len(lines)
            operands = "".join(f" {_operand(o)}" for o in i.operands)
            lines.append(f"    {names} = {i.opcode}{_parameters(i)}{operands}")
        root = c.root
        if root is not None:
            many = root.opcode == "tuple" and root.index not in line_of
            results = root.operands if many else (root,)
            line_of.setdefault(root.index, len(lines))
            said = ", ".join(map(_operand, results))
            lines.append(f"  in ({said}{',' if len(results) == 1 else ''}) }}")
    return _limited(lines, line_of, "the jaxpr")


def _is_inline(i: Instruction) -> bool:
    return i.opcode == "constant" and i.name.startswith("literal")


def _operand(i: Instruction) -> str:
    return f"{i.argument_text}:{i.shape.text}" if _is_inline(i) else i.name


def _parameters(i: Instruction) -> str:
    said: list[str] = []
    for key, value in i.attributes.items():
        value = value.strip('"')
        if key == "name":
            said.insert(0, f"{key}={value}")
        elif key != "metadata" and not _SAYS_NOTHING.fullmatch(value):
            said.append(f"{key}={value}")
    return f"[{' '.join(said)}]" if said else ""


# Values that jax fills in by default and would print even so.
_SAYS_NOTHING = re.compile(r"[\s(),]*(?:(?:UnspecifiedValue|None|False|Mesh\(\))[\s(),]*)*")


def python_text(
    places: Iterable[tuple[str, int, str]], sources: Mapping[str, str]
) -> tuple[Text, dict[tuple[str, int], int]]:
    """The files that ``places`` (file, line, function) name, and the row of each place.

    For a file whose text is not known only these lines are there, with the function's name.
    """
    wanted: dict[str, dict[int, str]] = {}
    for file, line, function in places:
        wanted.setdefault(file, {}).setdefault(line, function)
    rows: list[str] = []
    numbers: list[int] = []
    files: list[tuple[str, int, bool]] = []
    row_of: dict[tuple[str, int], int] = {}
    total = 0
    cut = False
    # The file with most lines first: a user reads the model before the script around it.
    for file, lines in sorted(wanted.items(), key=lambda f: -len(f[1])):
        text = sources.get(file)
        if text is not None and (len(text) > MOST_FILE or total + len(text) > MOST_FILES):
            text, cut = None, True
        known = text.split("\n") if text is not None else []
        files.append((file, len(rows), text is not None))
        rows.append(file)
        numbers.append(0)
        if text is not None:
            total += len(text)
            while known and not known[-1].strip():
                known.pop()
            for number, line_text in enumerate(known, 1):
                row_of[file, number] = len(rows)
                rows.append(line_text.rstrip("\r"))
                numbers.append(number)
        for number in sorted(lines):
            if not 0 < number <= MOST_LINES:  # no line of any file: the row of the file itself
                row_of[file, number] = files[-1][1]
            elif (file, number) not in row_of:
                row_of[file, number] = len(rows)
                rows.append(f"in {lines[number]}" if lines[number] else "")
                numbers.append(number)
    unread = [f for f, _, known_file in files if not known_file]
    note = ""
    if cut:
        note = "Files that are too long here show only the lines that the program names."
    elif unread:
        note = "Files that could not be read show only the lines that the program names."
    return Text(tuple(rows), {}, tuple(files), tuple(numbers), note), row_of


def _limited(lines: list[str], line_of: dict[int, int], what: str) -> Text:
    at = bisect_right(list(accumulate(len(line) + 1 for line in lines)), MOST_TEXT)
    if at == len(lines):
        return Text(tuple(lines), line_of)
    note = f"{what} is cut after {at:,} of {len(lines):,} lines."
    kept = {i: row for i, row in line_of.items() if row < at}
    return Text(tuple(lines[:at]), kept, note=note[:1].upper() + note[1:])
