"""Counts the input and output of a reader: nothing may be lost without a warning.

``unaccounted(text, modules)`` splits the text by its own rules, which are simpler than the
reader's: lines, words and brackets. It returns one line per loss: something that is in the text,
in no Module, and on no line that a warning names.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator

from hloscope.hlo import Instruction, Module
from hloscope.hlo.parts import FrameTable

_LEXEME = re.compile(r'"(?:[^"\\]|\\.)*"|/\*.*?\*/|//[^\n]*', re.S)
_WORD = re.compile(r"[A-Za-z_][\w.\-]*")
_KEY = re.compile(r"([\w.\-]+)=")
_FIELDS = r"\{\s*(?:[a-z_]+=\d{1,9}(?:\s+|(?=\})))*\}"
_TABLE = re.compile(
    rf"(?:FileNames|FunctionNames|FileLocations|StackFrames|\d+\s+(?:\".*|{_FIELDS}))\Z"
)
_TITLES = ("FileNames", "FunctionNames", "FileLocations", "StackFrames")
_LOOKS = re.compile(
    r"(?:ROOT |ENTRY )?%?[^\s=(),{}\"]+ = "
    r"(?:\(.*\)|[a-z]\w*\[[\d,<=? ]*\](?:\{[^{}]*\})?) [a-z][\w\-]*\("
)
_MLIR_OP = re.compile(
    r'\s*(?:(%[\w$.\-]+)(?::\d+)?(?:\s*,\s*%[\w$.\-]+(?::\d+)?)*\s*=\s*)?'
    r'"?((?:stablehlo|mhlo|chlo|sdy)\.[\w.\-]+(?!\s*=)|(?:func\.)?call|(?:func\.)?return)\b'
)  # fmt: skip
_HEADER = re.compile(r"\s*(?:ENTRY\s)?\s*%?[^\s=(),{}]+\s*(?:\(.*\)\s*->.*)?\{\s*\Z", re.S)
_ANOTHER = re.compile(r"\s%[\w$.\-]+ = [^%]")
_LITERALS = {"constant", "parameter", "iota"}


def unaccounted_proto(data: bytes, module: Module, kind: str) -> list[str]:
    """What of an undamaged proto is not in its module, if there was no warning.

    Counts fields by their numbers in ``hlo.proto``, with its own parser.
    """
    if module.warnings:
        return []
    for _ in range(("HloModule", "HloProto", "HloSnapshot").index(kind)):
        # a message that occurs twice is merged, which is the same as concatenating its parts
        data = b"".join(v for n, v in _fields(data, packed=True) if n == 1)
    computations = [v for n, v in _fields(data) if n == 3]
    instructions = [v for c in computations for n, v in _fields(c) if n == 2]
    opcodes = [next((v for n, v in _fields(i) if n == 2), b"") for i in instructions]
    # what a damaged parameter or constant calls is among its attributes
    callers = [i for i, o in zip(instructions, opcodes, strict=True) if o not in _LEAVES]
    ids = {k: sum(_ids(i, k) for i in of) for k, of in ((36, instructions), (38, callers))}
    wrapped = sum(o == b"async-start" for o in opcodes)
    # An asynchronous operation replaces a computation with it and its parameters.
    folded = len(computations) - len(module.computations)
    out = []
    if not 0 <= folded <= wrapped:
        out.append(f"{len(module.computations)} computations of {len(computations)}")
    if not folded and len(module.instructions) != len(instructions):
        out.append(f"{len(module.instructions)} instructions of {len(instructions)}")
    if not folded and sum(len(i.operands) for i in module.instructions) != ids[36]:
        out.append("operands were lost")
    called = sum(len(i.called_computations) for i in module.instructions)
    if not folded and called < ids[38]:
        out.append(f"{called} calls of {ids[38]}")
    return out


_LEAVES = (b"parameter", b"constant")


def _fields(data: bytes, *, packed: bool = False) -> Iterator[tuple[int, bytes]]:
    """(field number, bytes) of a message; numbers as their varint, or left out with ``packed``."""
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        end = at
        if tag & 7 == 0:
            _, end = _varint(data, at)
        elif tag & 7 == 2:
            size, at = _varint(data, at)
            end = at + size
        else:
            end = at + {1: 8, 5: 4}.get(tag & 7, len(data))
        if not packed or tag & 7 == 2:
            yield tag >> 3, data[at:end]
        at = end


def _ids(instruction: bytes, number: int) -> int:
    """The number of values of a repeated integer field, packed or not."""
    found = 0
    for n, value in _fields(instruction):
        if n == number:
            found += max(1, sum(b < 128 for b in value))
    return found


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(data):
        value |= (data[at] & 127) << shift
        shift += 7
        at += 1
        if data[at - 1] < 128:
            break
    return value, at


def unaccounted(text: str, modules: Iterable[Module]) -> list[str]:
    """What of a text is in no module and on no line that a warning names."""
    out: list[str] = []
    listed = list(modules)
    if not listed:
        return out
    lines = text.split("\n")
    ends = [m.first_line - 1 for m in listed[1:]] + [len(lines)]
    for m, end in zip(listed, ends, strict=True):
        if any("more warnings" in w.message for w in m.warnings):
            continue
        check = _of_mlir if m.dialect == "stablehlo" else _of_hlo
        out += check(lines, m, end)
    return out


def plain(text: str) -> str:
    """The text with spaces instead of strings and comments; line ends stay."""
    return _LEXEME.sub(lambda m: re.sub(r"[^\n]", " ", m.group()), text)


def _told(m: Module) -> set[int]:
    return {w.line for w in m.warnings if w.line is not None}


def _line_of(m: Module, offset: int) -> int:
    return m.first_line + m.text.count("\n", 0, offset)


def _spans(m: Module) -> Iterator[tuple[Instruction, int, int]]:
    """Instructions with the first and last line of what they were read from."""
    counted = line = 0
    for i in sorted((i for i in m.instructions if i.text_span), key=lambda i: i.text_span or (0,)):
        assert i.text_span is not None
        begin, end = i.text_span
        line += m.text.count("\n", counted, begin)
        counted = begin
        first = m.first_line + line
        yield i, first, first + m.text.count("\n", begin, end)


def _of_hlo(lines: list[str], m: Module, end: int) -> list[str]:
    out, told, covered = [], _told(m), set[int]()
    own = m.text.split("\n")  # without loggers' prefixes, or what follows the last line
    lines = [*lines[: m.first_line - 1], *own, *lines[m.first_line - 1 + len(own) :]]
    for i, first, last in _spans(m):
        mine = range(first, last + 1)
        covered.update(mine)
        if told.isdisjoint(mine):
            out += [f"line {first}: {what}" for what in _of_instruction(m, i)]
    last_line = _line_of(m, len(m.text)) if "HloModule" in lines[m.first_line - 1] else 0
    header = Counter(_WORD.findall(" ".join(f"{k} {v}" for k, v in m.attributes.items())))
    threads = "".join(re.sub(r"\s", "", c.attribute_text) for c in m.computations)
    for c in m.computations:
        begin, last = c.text_span or (0, 0)
        first = _line_of(m, begin)
        to = next((n for n in range(first, end + 1) if n in covered), first)
        while to >= first and not _HEADER.match(plain("\n".join(lines[first - 1 : to]))):
            to -= 1
        covered.update(range(first, to + 1))
    closing_lines = set[int]()  # from a computation's brace to the end of its attributes
    for c in m.computations:
        if c.attribute_text and c.text_span:
            last = _line_of(m, c.text_span[1])
            before = next((n for n in range(last, m.first_line, -1) if n in covered), last)
            closing_lines.update(range(before, last + 1))
    bare = plain("\n".join(lines)).split("\n")  # comments may span lines
    first_body = min(covered, default=end)
    for n in range(m.first_line, end + 1):
        if n in covered or n in told:
            continue
        line = plain(lines[n - 1]).strip()
        if (
            not _WORD.search(line)
            or not _WORD.search(bare[n - 1])
            or n == m.first_line
            or _is_header(line)
        ):
            continue
        said = re.sub(r"/\*.*?\*/|//.*", "", lines[n - 1])
        if n <= first_body and not Counter(_WORD.findall(said)) - header:
            continue  # the module's attributes continue
        if n in closing_lines and re.sub(r"\s", "", said).removeprefix("},") in threads:
            continue
        if _TABLE.match(lines[n - 1].strip()) and (m.frames != FrameTable() or line in _TITLES):
            continue
        if n <= last_line or _LOOKS.match(line):
            out.append(f"line {n} is nowhere: {lines[n - 1].strip()[:70]!r}")
    return out


def _is_header(line: str) -> bool:
    return line.endswith("{") and " = " not in line


def _of_instruction(m: Module, i: Instruction) -> list[str]:
    """Words, operands and attributes of one instruction's text that it does not have."""
    assert i.text_span is not None
    if ".anon" in i.name or re.search(r"=\{?%_", i.attribute_text):
        return []  # written out inside another, which has the same span
    text = m.text[slice(*i.text_span)]
    bare = plain(text)
    kept = (i.name, i.shape.text, i.opcode, i.argument_text, i.attribute_text, "ROOT")
    have = Counter(_WORD.findall(" ".join(plain(k) for k in kept)))
    out = [f"%{i.name} lost the word {w!r}" for w in Counter(_WORD.findall(bare)) - have]
    if closing(f"({bare})", 0, strict=True) < 0:
        return out  # if a bracket is damaged, only its words can be counted
    opened = re.search(rf"(?<![\w.\-]){re.escape(i.opcode)}\s*\(", bare)
    if opened is None:
        return out
    close = closing(bare, opened.end() - 1)
    inside, rest = bare[opened.end() : close], bare[close + 1 :]
    if i.opcode not in _LITERALS:
        count = sum(bool(p.strip()) for p in parts(inside))
        if count != len(i.operands):
            out.append(f"%{i.name} has {len(i.operands)} operands of {count}")
    have_keys = Counter(i.attributes)
    for part in parts(rest):
        key = _KEY.match(part.strip())
        if key and key[1] not in have_keys:
            out.append(f"%{i.name} lost the attribute {key[1]}")
        elif part.strip() and not key:
            out.append(f"%{i.name} lost {part.strip()[:40]!r}")
    return out


def closing(text: str, at: int, strict: bool = False) -> int:
    """Where the bracket at ``at`` closes; with ``strict`` -1 unless by one of the same kind."""
    depth = 0
    if strict:
        stack = []
        for c in text[at:]:
            if c in "([{":
                stack.append({"(": ")", "[": "]", "{": "}"}[c])
            elif c in ")]}" and (not stack or stack.pop() != c):
                return -1
        return -1 if stack else len(text) - 1
    for k in range(at, len(text)):
        depth += (text[k] in "([{") - (text[k] in ")]}")
        if depth == 0:
            return k
    return len(text)


def parts(text: str) -> list[str]:
    """Splits at commas outside brackets."""
    out, depth, begin = [], 0, 0
    for k, c in enumerate(text):
        depth += (c in "([{") - (c in ")]}")
        if c == "," and depth == 0:
            out.append(text[begin:k])
            begin = k + 1
    return [*out, text[begin:]]


def _leaves_open(line: list[str]) -> bool:
    """Whether a line opens more brackets than it closes, so that it continues."""
    bare = plain("".join(line))
    return sum(bare.count(c) for c in "([{") > sum(bare.count(c) for c in ")]}")


def _of_mlir(lines: list[str], m: Module, end: int) -> list[str]:
    """Lines that begin an operation without an instruction; values that became no operand."""
    out, told, covered = [], _told(m), dict[int, list[Instruction]]()
    for i, first, last in _spans(m):
        for n in range(first, last + 1):
            covered.setdefault(n, []).append(i)
    for _, first, last in _spans(m):  # the lines of an open bracket are reported at its first
        if first in told:
            told.update(n for n in range(first, last + 1) if len(covered[n]) == 1)
    for n in sorted(told):
        if _leaves_open(lines[n - 1 : n]):
            while (n := n + 1) <= end and n not in covered:
                told.add(n)
    text = plain("\n".join(lines)).split("\n")
    for n in range(m.first_line, end + 1):
        op = _MLIR_OP.match(text[n - 1]) or _MLIR_OP.match(lines[n - 1])
        if op is None or n in told or op[2] == "sdy.mesh":
            continue
        opcode = op[2].split(".", 1)[-1] if not op[2].startswith("sdy.") else op[2]
        short = opcode.split(".")[-1]
        here = [i for i in covered.get(n, ()) if i.opcode.split(".")[-1].startswith(short)]
        if not here:
            began = n if op[1] else n - 2  # its name may be on the line before
            if told.isdisjoint(range(began, n + 2)):
                out.append(f"line {n} is nowhere: {lines[n - 1].strip()[:70]!r}")
            continue
        rest = _ANOTHER.split(text[n - 1][op.end() :])[0]
        # `%inside = %outside` names a region's argument first
        used = set(re.findall(r"%[\w$.\-]++(?!\s*=)", rest.split(" : ")[0]))
        have = [o for i in here for o in i.operands]
        elsewhere = not op[1] and not told.isdisjoint((n - 2, n - 1))
        spelled = opcode not in ("while", "reduce") and "(%" not in rest[1:]
        if len(used) > len(have) and spelled and not elsewhere:
            out.append(f"line {n}: {len(have)} operands of {len(used)}")
    return out
