"""One statement of HLO text taken apart with XLA's grammar, wherever its lines break.

    instruction  ::=  [ROOT] name = [shape] opcode ( … ) {, key=value}
    header       ::=  [ENTRY] name [( name: shape, … ) -> shape] {

The reader's fast path takes the lines that XLA prints; what is written by hand, and
attributes that contain line ends, come here. A statement never extends past a line that begins
another one: in a damaged dump a bracket that is never closed costs only its own line.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...hlo.columns import CALL_ROLES
from ...hlo.texts.regex import regex
from .. import scan
from ..scan import SPACE

NAME = r"[^\s=(),{}\"]+"
_ASSIGNS = regex(rf"(?:(ROOT)\b{SPACE})?%?({NAME}){SPACE}={SPACE}")
_OPCODE = regex(rf"([a-zA-Z][\w.\-]*){SPACE}\(")
_HEADER = regex(rf"(?:(ENTRY)\b{SPACE})?%?({NAME}){SPACE}(?=[({{])")
_ARROW = regex(rf"{SPACE}->{SPACE}")
_BODY = regex(rf"{SPACE}(?:ROOT\b|%?{NAME}{SPACE}=[^=>]|\}}|\Z)")
# Where any statement that began before must end: the next one's first line.
_FIRST_LINE = (
    r"HloModule\b|ENTRY\b|[ \t]*(?:ROOT )?%?[^\s=(),{}\"]+ = (?:\(|[a-z]\w*\[)"
    r"|%?[^\s=(),{}\"]+ (?:\([^\n]*\) -> [^\n]* )?\{[ \t]*(?:\n|\Z)"
)
_NEXT = regex(rf"\n(?:{_FIRST_LINE}|\}}[ \t]*(?:,[ \t]*execution_thread|\n|\Z))")
_NEXT_FIRST = regex(rf"\n(?:{_FIRST_LINE})")


@dataclass(slots=True)
class Statement:
    """An instruction as written. ``shape`` is None if it is left to be inferred.

    ``problems``: (message, offset) of what was not understood; it is also in the texts.
    """

    name: str
    is_root: bool
    shape: str | None
    shape_at: int
    opcode: str
    arguments: str
    arguments_at: int
    attributes: str
    begin: int
    end: int
    problems: list[tuple[str, int]]


@dataclass(slots=True)
class Header:
    """The beginning of a computation; ``body`` is the offset just after its brace."""

    name: str
    is_entry: bool
    body: int


_NOWHERE = (1, 0)


class Limits:
    """How far a statement of one text may extend; remembers what it found last."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._found = [_NOWHERE, _NOWHERE]  # (searched from, next boundary) of each pattern

    def after(self, line_end: int) -> list[int]:
        """Nearest first: the end of the line, the next statement's line, and the next statement's
        line past lines with a lone brace."""
        out = [line_end]
        for k, pattern in enumerate((_NEXT, _NEXT_FIRST)):
            begin, limit = self._found[k]
            if not begin <= line_end <= limit:
                m = pattern.search(self.text, line_end)
                limit = m.start() if m else len(self.text)
                self._found[k] = (line_end, limit)
            if limit > out[-1]:
                out.append(limit)
        return out


def instruction(limits: Limits, at: int, line_end: int) -> Statement | str | None:
    """The instruction that begins at ``at``; a complaint, or None when it is not one."""
    m = _ASSIGNS.match(limits.text, at)
    if m is None:
        return None
    if m.end() > line_end:  # the name or the equals sign is on a later line
        line_end = scan.line_end(limits.text, m.end())
    reach = limits.after(line_end)
    return _right_side(limits.text, at, m.end(), reach, m.group(2), m.group(1) is not None)


def nested(text: str) -> Statement | None:
    """``f32[] constant(2)``: an operand written out in place, which has no name."""
    found = _right_side(text, 0, scan.skip(text, 0), [len(text)], "", False)
    if not isinstance(found, Statement) or found.problems:
        return None
    return found if not text[found.end :].strip() else None


def _right_side(
    text: str, begin: int, at: int, limits: list[int], name: str, is_root: bool
) -> Statement | str | None:
    line_end = limits[0]
    problems: list[tuple[str, int]] = []
    shape_at, end = at, at
    opcode = None
    for limit in limits:
        end = scan.shape_end(text, at, limit)
        opcode = _OPCODE.match(text, scan.skip(text, end))
        if opcode is not None and (end < limit or limit == limits[-1]):
            break
    if opcode is None or opcode.start() >= limits[-1]:
        return f"no opcode after the shape of {name[:60]!r}" if "(" in text[at:line_end] else None
    shape = text[at:end] if end > at else None
    opened = opcode.end() - 1
    close = _first(scan.closing, text, opened, limits)
    if close == -1:
        problems.append((f"the arguments of %{name[:60]} are not closed", opened))
        close = max(line_end, opened + 1)
        attributes = scan.Attributes("", close)
    else:
        attributes = _attributes(text, close + 1, limits)
        if attributes.strange != -1:
            what = text[attributes.strange : attributes.strange + 60].split("\n")[0]
            problems.append((f"not an attribute of %{name[:60]}: {what!r}", attributes.strange))
    return Statement(
        name, is_root, shape, shape_at, opcode.group(1),
        text[opcode.end() : close], opcode.end(), attributes.text, begin, attributes.end, problems,
    )  # fmt: skip


def _attributes(text: str, at: int, limits: list[int]) -> scan.Attributes:
    """The attributes up to the nearest limit with which all of them are understood."""
    tried = [scan.attributes(text, at, limits[0])]
    cut = tried[0].strange != -1 or _goes_on(text, tried[0].end, limits[0])
    for limit in limits[1:] if cut else ():
        found = scan.attributes(text, at, limit)
        if found.strange == -1:
            return found
        tried.append(found)
    return tried[0]


def _goes_on(text: str, end: int, limit: int) -> bool:
    """Whether a comma on a following line continues the attributes."""
    after = scan.skip(text, end)
    return after >= limit and text.startswith(",", after)


def continuation(limits: Limits, at: int, line_end: int) -> scan.Attributes:
    """Attributes that begin on a line of their own, with the comma in front."""
    return _attributes(limits.text, at, limits.after(line_end))


def _first(find, text: str, at: int, limits: list[int]) -> int:  # type: ignore[no-untyped-def]
    for limit in limits:
        found: int = find(text, at, limit)
        if found != -1:
            return found
    return -1


_FIRST = rf"(?={SPACE}(?:ROOT\b{SPACE})?%?{NAME} = )"
IN_PLACE = regex(rf"\b({'|'.join(CALL_ROLES)})={SPACE}(\{{{SPACE})?\{{{_FIRST}")
_ANOTHER = regex(rf"{SPACE},?{SPACE}\{{{_FIRST}")


@dataclass(slots=True)
class InPlace:
    """Computations written out as an attribute: where each body begins, and its closing brace."""

    role: str
    bodies: list[tuple[int, int]]
    end: int


def computations_in_place(text: str, begin: int, end: int) -> InPlace | None:
    """``to_apply={ a = … ROOT b = … }``, ``branch_computations={ { a = … }, { a = … } }``."""
    m = IN_PLACE.search(text, begin, end)
    while m is not None and text.count('"', begin, m.start()) % 2:  # in a quoted text
        m = IN_PLACE.search(text, m.end(), end)
    if m is None:
        return None
    close = scan.closing(text, m.end() - 1, end)
    if close == -1:
        return None
    found = InPlace(m.group(1), [(m.end(), close)], close)
    while m.group(2) is not None and (another := _ANOTHER.match(text, close + 1, end)):
        close = scan.closing(text, another.end() - 1, end)
        if close == -1:
            break
        found.bodies.append((another.end(), close))
        found.end = close
    return found


def header(limits: Limits, at: int, line_end: int) -> Header | None:
    """``%name (parameters) -> shape {``, ``name {``, over several lines too."""
    text = limits.text
    m = _HEADER.match(text, at)
    if m is None or m.group(2) == "HloModule":
        return None
    limit = limits.after(line_end)[-1]
    brace = m.end()
    if text[brace] == "(":
        close = scan.closing(text, brace, limit)
        arrow = _ARROW.match(text, close + 1) if close != -1 else None
        if arrow is None or arrow.end() > limit:
            return None
        brace = scan.skip(text, _result_end(text, arrow.end(), limit))
        if not text.startswith("{", brace):
            return None
    elif not _BODY.match(text, brace + 1) and (
        brace > line_end or text[brace + 1 : line_end].strip()
    ):
        return None  # prose: a brace without an instruction after it
    return Header(m.group(2), m.group(1) is not None, brace + 1)


_RESULT = regex(rf"[a-z]\w*(?:{SPACE}\[[^\[\]{{}}]*\])?(?:{SPACE}\{{[\d:][^{{}}]*\}})?")


def _result_end(text: str, at: int, limit: int) -> int:
    if text.startswith(("(", "b("), at):
        end = scan.closing(text, text.index("(", at), limit)
        return limit if end == -1 else end + 1
    m = _RESULT.match(text, at, limit)
    return m.end() if m else at
