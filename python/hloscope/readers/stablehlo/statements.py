"""MLIR text → statements, one operation each, wherever its lines break.

MLIR's printer writes one operation per line, opens a region with a brace at the end of one and
closes it at the beginning of another. Users and other tools break lines anywhere:

    %0 = "stablehlo.all_gather"(%arg0) {          %0 = "stablehlo.all_gather"(%arg0) { … } :
      all_gather_dim = 0 : i64             ─▶         (tensor<4xf32>) -> tensor<8xf32>
    } : (tensor<4xf32>)
      -> tensor<8xf32>

Lines with all brackets closed are passed on unchanged; only the others are examined.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ...hlo.texts.regex import regex
from ..scan import line_end

_TOKEN = regex(
    r'"[^"\\\n]*+(?:\\.[^"\\\n]*+)*+"|//[^\n]*|->|[<>(){}\[\]\n]'
    r"|(?<=\s)(?:%[\w$.\-]+(?::\d+)?(?:\s*,\s*%[\w$.\-]+(?::\d+)?)*\s*=(?![=>])"
    r"|(?:\w+\.)?return\b)"
)
# After a brace: a key and its value, so this is a dictionary and not a region.
_DICTIONARY = regex(
    r'(?:\s|//[^\n]*\n)*+(?:(?:[A-Za-z_][\w.$\-]*|"[^"\\]*(?:\\.[^"\\]*)*")\s*(?:=|,|\})|\})'
)
# A region that begins within a line, or a second operation on it.
_SEVERAL = regex(
    r"\{\s+(?:%|\^|\"[\w.]+\"\s*\(|[\w.]*return\b)"
    r"|[^\s,(]\s+(?:%[\w$.\-]+(?::\d+)?\s*=\s(?!%)|(?:\w+\.)?return\s)"
)
# The first line of an operation, a function or a module; no line within brackets looks like it.
_NEXT = regex(
    r"[ \t]*(?:%[\w$.\-]+(?::\d+)?(?:\s*,\s*%[\w$.\-]+(?::\d+)?)*\s*=\s*(?:\"?[a-z_]\w*\.|call )"
    r"|(?:stablehlo\.|func\.|sdy\.)?return(?=[ \n])|\"[a-z_]\w*\.[\w.]+\"\(|func\.func\b"
    r"|module\b|\^bb\d)"
)
_RETURN = regex(r"(?:\w+\.)?return\b")
_LEADING = ("->", ":", ",", "<{", "attributes ", "attributes{", "loc(", ")", "]", ">", "=")
_KEYWORD = regex(
    r"(?:across|applies|dim_numbers|window|init|reducer_init|to|outputs)\b|[a-z_]\w*\s*=\s"
)
_TRAILING = (",", "=", "->", "(", "[", "<", " :", ":")
_CLOSING = {")": "(", "]": "[", ">": "<", "}": "{"}
_COMMENT = regex(r'("[^"\\\n]*+(?:\\.[^"\\\n]*+)*+")|//[^\n]*')
_QUOTED = regex(r'"[^"\\\n]*+(?:\\.[^"\\\n]*+)*+"')
_BLANK = regex(r"\s*+")
_BLANKS = regex(r'("[^"\\\n]*+(?:\\.[^"\\\n]*+)*+")|((?<=[(\[])\s+|\s+(?=[)\]]))|\s+')
MAX_CHARACTERS = 50_000_000  # of one operation


@dataclass(slots=True)
class MlirStatement:
    """``text``: the operation on one line; ``begin`` and ``end``: where it is.

    ``open``: a bracket or a quote was not closed before the next operation, or before the
    text ended, or a comma is its last character.
    """

    text: str
    begin: int
    end: int
    open: bool = False


def statements(source: str) -> Iterator[MlirStatement]:
    """Every operation, region header and closing brace, in order."""
    at, size = 0, len(source)
    while at < size:
        begin = _after_blanks(source, at)
        if begin >= size:
            return
        if source.startswith("//", begin):
            at = line_end(source, begin)
            continue
        if not at or "\n" in source[at - 1 : begin]:  # else: after another one on its line
            end = line_end(source, begin)
            bare = source[begin:end].rstrip()
            if _whole(bare) and not _goes_on(source, end, bare):
                yield MlirStatement(bare, begin, begin + len(bare), bare.endswith(","))
                at = end + 1
                continue
        stop, is_open = _end(source, begin)
        stop = max(stop, begin + 1)
        text = _on_one_line(source[begin:stop])
        if text:
            yield MlirStatement(text, begin, stop, is_open or _open_quote(text) or text[-1] == ",")
        at = stop


def _open_quote(text: str) -> bool:
    return '"' in _QUOTED.sub("", text)


def _after_blanks(source: str, at: int) -> int:
    m = _BLANK.match(source, at)
    return m.end() if m else at


def _whole(line: str) -> bool:
    """Whether all brackets of the line are closed, except a region's at either end."""
    if "//" in line or _SEVERAL.search(line, 1):
        return False
    body = line
    if body[0] == "}":
        body = body[2:] if body.startswith("})") else body[1:]
    if body.endswith("{"):
        if body.endswith("<{"):
            return False
        body = body[:-2] if body.endswith("({") else body[:-1]
    return (
        body.count("(") == body.count(")")
        and body.count("{") == body.count("}")
        and body.count("[") == body.count("]")
        and body.count("<") == body.count(">") - body.count("->")
        and body.count('"') % 2 == 0
    )


def _goes_on(source: str, end: int, line: str) -> bool:
    """Whether the operation on this line has more on the next."""
    if line.endswith("{"):
        # a dictionary that is opened at the end of a line
        return _is_dictionary(source, end, line[:-1])
    if line.startswith("reducer"):
        return True
    if line.endswith(_TRAILING) and not line.startswith("^"):
        # a return ends at the next operation, however damaged its own end is
        return not (_RETURN.match(line) and _NEXT.match(source, _after_blanks(source, end)))
    at = end
    while at < len(source):
        at += 1
        stop = line_end(source, at)
        following = source[at:stop].lstrip()
        if following and not following.startswith("//"):
            if following.startswith(_LEADING) or _KEYWORD.match(following):
                return True
            return following.startswith("{") and _is_dictionary(
                source, at + source[at:stop].find("{") + 1, ""
            )
        at = stop
    return False


def _is_dictionary(source: str, at: int, before: str) -> bool:
    """Whether the brace just before ``at`` opens a dictionary of attributes."""
    m = _DICTIONARY.match(source, at)
    if m is None:
        return False
    empty = m.group().strip() == "}"
    header = before.lstrip().startswith(("module", "func.func", '"builtin.module"'))
    # module {} and the end of an empty region
    return not (empty and header) and not _ends_a_region(m.group())


def _ends_a_region(key: str) -> bool:
    words = key.replace("}", " ").split()
    return bool(words) and words[0] in ("return", "func.return", "stablehlo.return", "sdy.return")


def _end(source: str, begin: int) -> tuple[int, bool]:
    """Where the operation that begins at ``begin`` ends, and whether brackets are left open."""
    stack: list[str] = []
    opened = dict.fromkeys("(<[{", 0)  # how many of each are in the stack
    closes = source[begin] == "}"
    position = begin + 1 if closes else begin
    limit = min(len(source), begin + MAX_CHARACTERS)
    first = True
    while True:
        m = _TOKEN.search(source, position, limit)
        if m is None:
            return limit, bool(stack)
        token, position = m.group(), m.end()
        if token == "{":
            dictionary = source[m.start() - 1] == "<" or (stack and stack[-1] != "(")
            if not dictionary:
                dictionary = _is_dictionary(
                    source, position, source[begin : min(m.start(), begin + 40)]
                )
            if not dictionary:
                return position, False
            stack.append(token)
            opened[token] += 1
        elif token in "(<[":
            stack.append(token)
            opened[token] += 1
        elif token in _CLOSING:
            if opened[_CLOSING[token]]:
                while (last := stack.pop()) != _CLOSING[token]:
                    opened[last] -= 1
                opened[last] -= 1
            elif token == "}":
                return (m.start() if m.start() > begin else position), False
        elif token == "\n":
            if not stack and not _goes_on(
                source, m.start(), _plain(source[max(begin, m.start() - 200) : m.start()]).rstrip()
            ):
                return m.start(), False
            if stack and _NEXT.match(source, position):
                return m.start(), True  # damaged: the next operation begins
        elif stack or first or not (token[0] == "%" or token.endswith("return")):
            pass
        elif source[begin : m.start()].strip():
            return m.start(), False  # the next operation on the same line
        first = False


def _plain(text: str) -> str:
    """Without comments."""
    return _COMMENT.sub(lambda m: m[1] or "", text) if "//" in text else text


def _on_one_line(text: str) -> str:
    return _BLANKS.sub(lambda m: m[1] or ("" if m[2] else " "), _plain(text)).strip()
