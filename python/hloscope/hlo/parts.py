"""The small frozen parts of a module: warnings, frames, metadata, aliases, attribute text."""

from __future__ import annotations

import re
from dataclasses import dataclass

from .shape import split_top
from .texts.regex import regex, regex_bytes


@dataclass(frozen=True, slots=True)
class ReadWarning:
    """Something a reader could not understand and skipped. 1-based line and column.

    ``is_note``: it says how the program was read, and nothing of the program is missing.
    """

    message: str
    line: int | None = None
    column: int | None = None
    is_note: bool = False

    def __str__(self) -> str:
        if self.line is None:
            return self.message
        at = f"line {self.line}" + (f", column {self.column}" if self.column else "")
        return f"{at}: {self.message}"


@dataclass(frozen=True, slots=True)
class StackFrame:
    """One Python frame; ``function`` is None if not in the dump."""

    file: str
    line: int
    function: str | None = None
    column: int | None = None
    end_line: int | None = None
    end_column: int | None = None


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
            file_id, function_id, line, end_line, column, end = self.locations[location_id - 1]
            out.append(
                StackFrame(
                    self.files[file_id - 1] if 0 < file_id <= len(self.files) else "",
                    line,
                    self.functions[function_id - 1]
                    if 0 < function_id <= len(self.functions)
                    else None,
                    column or None,
                    end_line or None,
                    end or None,
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


_NO_METADATA = Metadata()


@dataclass(frozen=True, slots=True)
class Alias:
    """One entry of ``input_output_alias``."""

    output_index: tuple[int, ...]
    parameter_number: int
    parameter_index: tuple[int, ...]
    kind: str  # "may-alias" or "must-alias"


def unescape(text: str) -> str:
    """Undoes C escapes (``\\"``, ``\\n``, octal) as XLA's printer writes them."""
    if "\\" not in text:
        return text
    return _ESCAPE.sub(_unescape_run, text)


_ESCAPE = regex(r"((?:\\[0-3][0-7]{2})+)|\\(?:x([0-9a-fA-F]{1,2})|([0-7]{1,2})|(.))", re.S)
_SIMPLE = {"n": "\n", "t": "\t", "r": "\r"}


def _unescape_run(m: re.Match[str]) -> str:
    octals, hexa, short, other = m.groups()
    if octals:  # the bytes of UTF-8 text, one \nnn each
        codes = bytes(int(o, 8) for o in octals[1:].split("\\"))
        return codes.decode("utf-8", errors="replace")
    if hexa or short:
        return chr(int(hexa or short, 16 if hexa else 8))
    return _SIMPLE.get(other, other)


def unescape_mlir(text: str) -> str:
    """Undoes MLIR's escapes: a byte of UTF-8 as two hexadecimal digits, ``\\\\``, ``\\n``, ``\\t``.

    MLIR's printer writes ``\\22`` for a quote, where XLA's would write ``\\"`` (AsmPrinter,
    ``printEscapedString``).
    """
    return _MLIR_ESCAPE.sub(_unescape_mlir, text) if "\\" in text else text


_MLIR_ESCAPE = regex(r"((?:\\[0-9a-fA-F]{2})+)|\\(.)", re.S)


def _unescape_mlir(m: re.Match[str]) -> str:
    if m[1]:
        return bytes.fromhex(m[1].replace("\\", "")).decode("utf-8", errors="replace")
    return _SIMPLE.get(m[2], m[2])


_UNSAFE = regex_bytes(rb"[^ !#-&(-\[\]-~]")
_ESCAPES = {10: "\\n", 13: "\\r", 9: "\\t", 34: '\\"', 39: "\\'", 92: "\\\\"}


def printable(text: str) -> str:
    """Escapes what would act as more than text when printed: a dump's names are data.

    That is control characters, those that reorder text, and what CI runners take for
    commands: a line that begins with ``::``, and ``##[`` anywhere.
    """
    if not text.isprintable():
        text = "".join(c if c.isprintable() else f"\\u{ord(c):04x}" for c in text)
    if "##[" in text:
        text = text.replace("##[", "#\\u0023[")
    if text.lstrip().startswith("::"):
        text = text.replace("::", "\\u003a:", 1)
    return text


def escape(text: str | bytes) -> str:
    """The C escapes XLA prints strings with (``absl::CEscape``): the inverse of unescape."""
    data = text.encode("utf-8", errors="surrogatepass") if isinstance(text, str) else text
    if _UNSAFE.search(data) is None:
        return data.decode("ascii")
    return "".join(_ESCAPES.get(b) or (chr(b) if 32 <= b < 127 else f"\\{b:03o}") for b in data)


def _attribute_pattern(depth: int) -> str:
    quoted = r'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
    inner = rf'(?:[^"(){{}}\[\]]++|{quoted})*+'
    for _ in range(depth - 1):
        inner = rf'(?:[^"(){{}}\[\]]++|{quoted}|[({{\[]{inner}[)}}\]])*+'
    value = rf'(?:[^,"(){{}}\[\]]++|{quoted}|[({{\[]{inner}[)}}\]])*+'
    return rf'\s*+([^=,"(){{}}\[\]\s]++)=({value})(?:,|\Z)'


# One whole attribute as XLA prints it; deeper nesting and bare words are split by hand.
_ATTRIBUTE = regex(_attribute_pattern(5), re.S)


def split_attributes(text: str) -> dict[str, str]:
    """Top-level ``key=value`` pairs in order, values as raw text; bare words map to ''."""
    out: dict[str, str] = {}
    at, end = 0, len(text)
    while at < end:
        m = _ATTRIBUTE.match(text, at)
        if m is None:
            return _split_by_hand(text)
        key, value = m.groups()
        out[key] = value.strip()
        at = m.end()
    return out


def _split_by_hand(text: str) -> dict[str, str]:
    out: dict[str, str] = {}
    for part in split_top(text):
        key, equals, value = part.partition("=")
        if key:
            out[key.strip()] = value.strip() if equals else ""
    return out


_QUOTED_FIELD = regex(r'\b(op_name|op_type|source_file)="([^"\\]*+(?:\\.[^"\\]*+)*+)"', re.S)
_NUMBER_FIELD = regex(r"\b(source_line|stack_frame_id)=(\d{1,9})\b")
_QUOTED = regex(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"?', re.S)


def parse_metadata(raw: str) -> Metadata:
    """``metadata={op_name="…" stack_frame_id=3}`` → Metadata; unknown fields are skipped."""
    if not raw:
        return _NO_METADATA
    strings = {k: unescape(v) for k, v in _QUOTED_FIELD.findall(raw)}
    numbers = {k: int(v) for k, v in _NUMBER_FIELD.findall(_QUOTED.sub('""', raw))}
    return Metadata(
        strings.get("op_name", ""),
        strings.get("op_type", ""),
        strings.get("source_file", ""),
        numbers.get("source_line", 0),
        numbers.get("stack_frame_id", 0),
    )


def parse_aliases(raw: str) -> tuple[Alias, ...]:
    """``{ {0}: (1, {}, may-alias), … }`` of a module header."""
    return tuple(
        Alias(_numbers(o), int(p), _numbers(pi), kind or "may-alias")
        for o, p, pi, kind in _ALIAS.findall(raw)
    )


_ALIAS = regex(
    r"\{([\d,\s]*)\}\s*:\s*\(\s*(\d{1,9})\s*,\s*\{([\d,\s]*)\}\s*(?:,\s*([a-z-]+))?\s*\)"
)


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(n) for n in text.replace(",", " ").split() if len(n) < 10)


def number(text: str | None, default: int) -> int:
    return int(text) if text and text.isdecimal() and len(text) < 10 else default
