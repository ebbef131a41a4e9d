"""``#loc7 = loc("jit(f)/add"(callsite("f"("a.py":3:4) at …)))`` → op name and frames.

Aliases are resolved without recursion through them: a damaged file may define a cycle.

    "name"(child)          an op's name; inside a callsite, a function's name
    "file":line:column     where (newer MLIR adds ``to :column``)
    callsite(a at b)       a, called from b
    fused<…>[a, b]         the first that says something
"""

from __future__ import annotations

import re

from ...hlo.parts import FrameTable, escape, unescape_mlir
from ...hlo.texts.regex import regex

_STRING = r'"([^"\\]*+(?:\\.[^"\\]*+)*+)"'
_FILE = regex(_STRING + r":(\d{1,9}):(\d{1,9})(?:\s+to\s+(\d{0,9}):(\d{1,9}))?")
_NAME = regex(_STRING + r"\s*(\()?")
_ALIAS = regex(r"#loc\d*")
_ANY_STRING = r'"[^"\\]*+(?:\\.[^"\\]*+)*+"?'
_TOKEN = regex(_ANY_STRING + r"|->|[()\[\]<>]|\bat\b")
MAX_STEPS = 200

# file, line, column, function, and where the expression ends: line and column, 0 unknown
Frame = tuple[str, int, int, str, int, int]


class Locations:
    """Collects aliases and interns every resolved stack into one FrameTable."""

    def __init__(self) -> None:
        self.aliases: dict[str, str] = {}
        self._resolved: dict[str, tuple[str, int]] = {}
        self._stacks: dict[str, tuple[Frame, ...]] = {}
        self._files: dict[str, int] = {}
        self._functions: dict[str, int] = {}
        self._places: dict[tuple[int, int, int, int, int, int], int] = {}
        self._frames: dict[tuple[int, int], int] = {}

    def resolve(self, text: str) -> tuple[str, int]:
        """(op name, frame id) of what is inside ``loc(…)``; ('', 0) when unknown."""
        text = self._unalias(text)
        found = self._resolved.get(text)
        if found is None:
            name, rest = self._op_name(text)
            found = self._resolved[text] = (name, self._intern(self._stack(rest)))
        return found

    def metadata(self, text: str) -> str:
        """``metadata={op_name="…" stack_frame_id=3}``, or ''."""
        name, frame = self.resolve(text)
        parts = [f'op_name="{escape(name)}"'] if name else []
        if frame:
            parts.append(f"stack_frame_id={frame}")
        return "metadata={" + " ".join(parts) + "}" if parts else ""

    def table(self) -> FrameTable:
        return FrameTable(
            tuple(self._files),
            tuple(self._functions),
            tuple(self._places),
            tuple(self._frames),
        )

    def _unalias(self, text: str) -> str:
        text = text.strip()
        seen = set()
        while _ALIAS.fullmatch(text) and text not in seen:
            seen.add(text)
            text = self.aliases.get(text, "unknown").strip()
        return text

    def _op_name(self, text: str) -> tuple[str, str]:
        """The outermost name and the location it is given to."""
        if _FILE.match(text):
            return "", text
        m = _NAME.match(text)
        if m is None:
            return "", text
        inside = text[m.end() : _closing(text, m.end())] if m.group(2) else ""
        return unescape_mlir(m.group(1)), self._unalias(inside)

    def _stack(self, text: str) -> tuple[Frame, ...]:
        """Frames from the innermost out."""
        frames: list[Frame] = []
        pending = [(text, "")]
        for _ in range(MAX_STEPS):
            if not pending:
                break
            text, function = pending.pop()
            text = self._unalias(text)
            m = _FILE.match(text)
            if m:
                line = int(m.group(2))
                end_line = int(m.group(4) or line) if m.group(5) else 0
                end = end_line, int(m.group(5) or 0)
                frames.append((unescape_mlir(m.group(1)), line, int(m.group(3)), function, *end))
            elif text.startswith("callsite("):
                inner, _, outer = _split_at(text[9 : _closing(text, 9)])
                pending.append((outer, ""))
                pending.append((inner, ""))
            elif text.startswith("fused"):
                begin = text.find("[")
                inside = text[begin + 1 : _closing(text, begin + 1)] if begin != -1 else ""
                first = _first_part(inside)
                if first:
                    pending.append((first, function))
            else:
                m = _NAME.match(text)
                if m and m.group(2):
                    inside = text[m.end() : _closing(text, m.end())]
                    pending.append((inside, unescape_mlir(m.group(1))))
        return tuple(frames)

    def _intern(self, stack: tuple[Frame, ...]) -> int:
        parent = 0
        for file, line, column, function, end_line, end_column in reversed(stack):
            file_id = self._files.setdefault(file, len(self._files) + 1)
            function_id = (
                self._functions.setdefault(function, len(self._functions) + 1) if function else 0
            )
            place = (file_id, function_id, line, end_line, column, end_column)
            place_id = self._places.setdefault(place, len(self._places) + 1)
            parent = self._frames.setdefault((place_id, parent), len(self._frames) + 1)
        return parent


def _closing(text: str, at: int) -> int:
    """Offset of the bracket that closes the one just before ``at``; the end if none does."""
    depth = 1
    for m in _TOKEN.finditer(text, at):
        c = m.group()
        if c in ("(", "[", "<"):
            depth += 1
        elif c in (")", "]", ">"):
            depth -= 1
            if depth == 0:
                return m.start()
    return len(text)


def _split_at(text: str) -> tuple[str, str, str]:
    """``a at b`` at the top level."""
    depth = 0
    for m in _TOKEN.finditer(text):
        c = m.group()
        if c in ("(", "[", "<"):
            depth += 1
        elif c in (")", "]", ">"):
            depth -= 1
        elif c == "at" and depth == 0:
            return text[: m.start()], "at", text[m.end() :]
    return text, "", ""


def _first_part(text: str) -> str:
    depth = 0
    for m in re.finditer(_ANY_STRING + r"|[()\[\]<>,]", text):
        c = m.group()
        if c == "," and depth == 0:
            return text[: m.start()]
        if c in ("(", "[", "<"):
            depth += 1
        elif c in (")", "]", ">"):
            depth -= 1
    return text
