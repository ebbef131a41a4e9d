"""Takes marks out of op names and text, and joins names as XLA does.

XLA writes two equal names once, but two that differ only in their marks twice: taking out the
marks also undoes that.

    ~5~/f/mul;~4~/f/mul                       f/mul                      merged
    (~5~/f/a/mul:~4~/f/b/mul)                 f/(a/mul:b/mul)            combined
    ~10~/f/call/~51~/add;~50~/add             f/call/add                 merged, then inlined
    ~0~/f/while/~7~/f/while/body/add          f/while/body/add           inside a region
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from ...hlo.parts import escape, unescape
from ...hlo.texts.regex import regex

Chains = tuple[tuple[int, ...], ...]

_OP_NAME = regex(r'op_name="([^"\\]*+(?:\\.[^"\\]*+)*+)"', re.S)


class Cleaner:
    """Takes marks out of op names; remembers what it saw."""

    def __init__(self, salt: str) -> None:
        self.salt = salt
        s = re.escape(salt)
        self._mark = regex(rf"{s}(\d{{1,9}}){s}/?")
        self._at_begin = regex(rf'(?<=["/(:;]){s}\d{{1,9}}{s}/?')
        self._quoted = regex(rf'(?<!op_name=")(?<="){s}\d{{1,9}}{s}/?')
        self._seen: dict[str, tuple[str, Chains]] = {}

    def op_name(self, name: str) -> tuple[str, Chains]:
        """An op name as it would be without marks, and the chains that were in it."""
        if self.salt not in name:
            return name, ()
        found = self._seen.get(name)
        if found is None:
            found = self._seen[name] = self._merged(name)
        return found

    def text(self, text: str) -> tuple[str, list[tuple[int, Chains]]]:
        """HLO text without marks, and the chains that were in it with their offsets there."""
        out: list[str] = []
        chains: list[tuple[int, Chains]] = []
        at = length = 0
        if self.salt in text:
            # an op_type, and the function's name where an operation has no name of its own
            text = self._quoted.sub("", text)
        for m in _OP_NAME.finditer(text):
            raw = m.group(1)
            if self.salt not in raw:
                continue
            name, found = self.op_name(unescape(raw) if "\\" in raw else raw)
            begin, end = m.span()
            if not name and text.startswith(", metadata={", begin - 12):
                # XLA writes no metadata where there is no name
                begin, end, name = begin - 12, end + (text[end : end + 1] == "}"), ""
                piece = "" if text[end - 1] == "}" else ", metadata={"
                end += piece != "" and text[end : end + 1] == " "
            else:
                piece = f'op_name="{escape(name)}"'
            out += (text[at:begin], piece)
            length += begin - at
            if found:
                chains.append((length, found))
            length += len(piece)
            at = end
        out.append(text[at:])
        return "".join(out), chains

    def plain(self, text: str) -> str:
        """A message without marks."""
        return self._at_begin.sub("", text) if self.salt in text else text

    # -- one op name -----------------------------------------------------------------

    def _merged(self, name: str) -> tuple[str, Chains]:
        """``a;b``: names of instructions that became one."""
        chains: list[tuple[int, ...]] = []
        parts: list[str] = []
        for part in _split(name, ";"):
            plain, found = self._combined(part)
            chains += found
            # an inlined call is put before the first name only: f/call/add;add
            if plain and not any(p == plain or p.endswith("/" + plain) for p in parts):
                parts.append(plain)
        return ";".join(parts), tuple(dict.fromkeys(chains))

    def _combined(self, name: str) -> tuple[str, list[tuple[int, ...]]]:
        """``prefix/(a:b)``: names with a common prefix, which is written once."""
        at = name.find("(" + self.salt)
        if at < 0 or not name.endswith(")"):
            plain, chain = self._one(name)
            return plain, [chain] if chain else []
        prefix, chain = self._one(name[:at])
        plains, chains = [], []
        for part in _split(name[at + 1 : -1], ":"):
            plain, found = self._one(part)
            plains.append(plain)
            chains.append((*chain, *found))
        inside = _factored(plains)
        return (f"{prefix}/{inside}" if prefix else inside), chains

    def _one(self, name: str) -> tuple[str, tuple[int, ...]]:
        """The caller's name before its own; once where its own already begins with it."""
        pieces = self._mark.split(name)
        plains = [p.rstrip("/") for p in (pieces[0], *pieces[2::2])]
        return _joined([p for p in plains if p]), tuple(int(n) for n in pieces[1::2])


def _joined(pieces: Sequence[str]) -> str:
    """XLA puts a caller's name before another unless that begins with it already."""
    after = ""
    joined = [""] * (len(pieces) + 1)
    for i in range(len(pieces) - 1, -1, -1):
        for k in range(i + 1, len(pieces)):
            if joined[k].startswith("/".join(pieces[i:k])):
                after = joined[k]
                break
        else:
            after = f"{pieces[i]}/{joined[i + 1]}" if joined[i + 1] else pieces[i]
        joined[i] = after
    return joined[0]


def _split(name: str, separator: str) -> list[str]:
    """Splits at separators outside brackets."""
    if separator not in name:
        return [name]
    parts, depth, begin = [], 0, 0
    for at, c in enumerate(name):
        if c in "([{":
            depth += 1
        elif c in ")]}":
            depth -= 1
        elif c == separator and depth == 0:
            parts.append(name[begin:at])
            begin = at + 1
    parts.append(name[begin:])
    return parts


def _factored(names: Sequence[str]) -> str:
    """Several names as XLA writes them: their common prefix once, then ``(a:b)``."""
    if len(set(names)) == 1:
        return names[0]
    split = [n.split("/") for n in names]
    shared = 0
    while all(len(s) > shared + 1 and s[shared] == split[0][shared] for s in split):
        shared += 1
    rest = ":".join("/".join(s[shared:]) for s in split)
    return "/".join([*split[0][:shared], f"({rest})"])
