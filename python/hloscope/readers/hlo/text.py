"""HLO text of every dialect → Modules, one line at a time, in one pass.

It must be fast and must never give up: a step of 100,000 instructions is 13 MB of text,
and users have logs with a module somewhere inside, written by any XLA since 2018 or by
hand, cut off anywhere. So one master pattern recognises a whole line exactly as XLA prints
it, and everything else goes to XLA's grammar, which ignores line ends (statements.py):

    HloModule jit_f, is_scheduled=true            header: attributes as raw text
    FileNames / FunctionNames / …                  tables (frame_tables.py)
    %add (x: f32[], y: f32[]) -> f32[] {           opens a computation
      %x = f32[] parameter(0)                      master pattern
      %c = f32[4] custom-call(%x), kernel={        grammar, may span lines
    }, execution_thread="main"                     closes it

Operands are resolved when their computation closes (operands.py), so forward references
work. What neither understands is kept in the text and becomes a warning with its line.
"""

from __future__ import annotations

import re

from ...hlo.module import Computation, Instruction, Module
from ...hlo.parts import FrameTable, ReadWarning, split_attributes
from ...hlo.shape import Shape, parse_shape
from ...hlo.texts.regex import regex
from .. import scan
from . import checks as hlo_checks
from . import entry as hlo_entry
from . import log_prefixes
from . import operands as hlo_operands
from . import statements as hlo_statements
from .frame_tables import TABLES, FrameTableBuilder
from .statements import Limits, Statement

MAX_WARNINGS = 200
MAX_NESTED = 50


def _canonical_attributes() -> str:
    """``, key=value, …`` as XLA prints them on one line, brackets and quotes closed."""
    quoted = r'"[^"\\\n]*+(?:\\.[^"\\\n]*+)*+"'
    inner = r'[^{}"\n]*+'
    for _ in range(7):
        inner = rf'[^{{}}"\n]*+(?:(?:{quoted}|\{{{inner}\}})[^{{}}"\n]*+)*+'
    plain = r'[^\s,{}()\[\]"/]++'
    square = r"\[[^\]\n]*+\](?: \{[^{}\"\n]*+\})?"
    value = (
        rf"(?:{plain}(?:{square})?+|\{{{inner}\}}|{quoted}"
        rf"|(?:{plain}|\[[^\]\n]*+\]|\([^()\n]*+\))++(?: \{{[^{{}}\"\n]*+\}})?+)"
    )
    # metadata is in almost every line, nearly always with one or two strings and no more
    metadata = r'metadata=\{[^{}"\n]*+(?:"[^"\\\n]*+"[^{}"\n]*+)*+\}'
    attribute = rf"(?:{metadata}|[\w.\-]++={value})"
    return rf"{attribute}(?:, ?+{attribute})*+"


# One instruction line as XLA prints it, or any other line (group 7). Possessive throughout:
# no backtracking into a part that matched, so no line takes more than linear time.
_MASTER = regex(
    r"^[ \t]*+(?:"
    r"((?:ROOT )?)%?+([^\s=(),{}\"]++) = "  # 1 ROOT, 2 name
    r"([a-z][^\s(]*+(?:\([^\s(]*+)*+|\([^\n]*?\)(?:\{[^\s}]*\})?) "  # 3 shape
    r"([a-zA-Z][\w.\-]*+)"  # 4 opcode
    r"\(((?:[^()\"\n]++|\((?:[^()\"\n]++|\([^()\"\n]*+\))*+\))*+)\)"  # 5 arguments
    r"(?:, ?+([^\n]*+))?+$"  # 6 attributes, which _ATTRIBUTES must match
    r"|([^\n]*+))",  # 7 anything else
    re.M,
)
_ATTRIBUTES = regex(_canonical_attributes())
_BRACE_IN_COMMENT = regex(r"/\*[^*{}\"]*+[{}\"]")
_HEADER_LINE = regex(r"(ENTRY )?%([^\s=(),{}\"]+) \([^\n=]*\) -> [^\n=]* \{\Z")
_MODULE_NAME = regex(r"%?([^\s,]+)")
_SHAPED_INSTRUCTION = regex(r"(?:ROOT\s+)?%?[^\s=(),{}\"]+\s*=\s*(?:\(|[a-z]\w*\[)")
_LOOKS_LIKE_AN_INSTRUCTION = regex(r"(?:ROOT\s+)?%?[^\s=(),{}\"]+\s*=\s*[^\n]+\(")


def read_hlo_text(text: str, warnings: list[ReadWarning] | None = None) -> list[Module]:
    """Every module of a text, in order; [] when nothing in it looks like HLO."""
    starts = _module_starts(text)
    modules = []
    if not starts:
        if not re.search(r"(?:^|[{;])[ \t]*(?:ROOT )?%?[^\s=(),{}\"]+ = [^\n]+\(", text, re.M):
            return []
        starts = [0]
    line, counted = 1, 0
    for begin, end in zip(starts, [*starts[1:], len(text)], strict=True):
        line += text.count("\n", counted, begin)
        counted = begin
        modules.append(_ModuleReader(text[begin:end], line, list(warnings or ())).read())
    return modules


def _module_starts(text: str) -> list[int]:
    """Offsets of the lines that begin a module: HloModule at its start or after a log prefix."""
    starts = []
    at = text.find("HloModule")
    while at != -1:
        begin = text.rfind("\n", 0, at) + 1
        if at - begin < 400:
            m = log_prefixes.START.match(text, begin)
            if m is not None and m.end() > at:
                starts.append(begin)
        end = text.find("\n", at)
        if end == -1:
            break
        at = text.find("HloModule", end)
    return starts


class _ModuleReader:
    """Reads one module's stretch of text. Made once, used once."""

    def __init__(self, chunk: str, first_line: int, warnings: list[ReadWarning]) -> None:
        self.first_line = first_line
        self.warnings = warnings
        self.dropped_warnings = 0
        self.text, self.column_shift = log_prefixes.strip(chunk)
        self.limits = Limits(self.text)
        self.shapes: dict[str, Shape] = {}
        self.computations: list[Computation] = []
        self.by_name: dict[str, Computation] = {}
        self.names = hlo_operands.Names()
        self.nested: list[Computation] = []  # written out in place, now being read
        self.unnamed = 0  # how many names those have been given
        self.out_of_order = False  # a computation within another was numbered after it
        self.entry: Computation | None = None
        self.tables = FrameTableBuilder()
        self.module = Module("", (), None)
        self.count = 0
        self.to_check: list[Instruction] = []  # one of each attribute text
        # the computation being read
        self.open: Computation | None = None
        self.body: list[Instruction] = []
        self.root: Instruction | None = None
        self.unshaped: dict[int, int] = {}  # id of an instruction without a shape → its offset
        self.by_hand = True  # no computation begins as XLA prints it
        self.resume = 0  # lines that begin before this offset have been consumed
        self.end = 0  # where the last line that belonged to the module ended
        self.stray: list[tuple[str, int]] = []  # not understood, outside computations

    def read(self) -> Module:
        self._read_lines()
        self._finish()
        return self.module

    # -- lines -----------------------------------------------------------------

    def _read_lines(self) -> None:
        shapes = self.shapes
        opcodes: dict[str, str] = {}
        canonical: dict[str, str] = {}  # attributes that matched: half are printed more than once
        new = Instruction.__new__
        body, resume = self.body, self.resume  # only lines of other kinds change them
        for m in _MASTER.finditer(self.text):
            root, name, shape_text, opcode, arguments, attributes, other = m.groups()
            if resume and m.start() < resume:
                continue
            if name is None:
                if not other:
                    continue
                if other == "}" and self.open is not None:
                    self._close("", m.end())
                elif self.open is None and (head := _HEADER_LINE.match(other)) is not None:
                    self._begin(head[2], head[1] is not None, m.start())
                    self.by_hand = False
                else:
                    self._other_line(m.start(), m.end())
                body, resume = self.body, self.resume
                continue
            fresh = False
            if attributes is None:
                attributes = ""
            else:
                known = canonical.get(attributes)
                if known is not None:
                    attributes = known
                elif (
                    _ATTRIBUTES.fullmatch(attributes) is None
                    or ("/*" in attributes and _BRACE_IN_COMMENT.search(attributes))
                    or (" = " in attributes and hlo_statements.IN_PLACE.search(attributes))
                ):
                    self._other_line(m.start(), m.end())
                    body, resume = self.body, self.resume
                    continue
                else:
                    canonical[attributes] = attributes
                    fresh = True
            if self.open is None:
                self._loose_instruction(m.start())
                body = self.body
            shape = shapes.get(shape_text)
            if shape is None:
                shape = self._shape(shape_text, m.start(3))
            i = new(Instruction)
            i.index = self.count
            self.count += 1
            i.name = name
            i.opcode = opcodes.setdefault(opcode, opcode)
            i.shape = shape
            i.computation = self.open  # type: ignore[assignment]
            i._arguments = arguments
            i.attribute_text = attributes
            begin = m.start(1)
            i._span = (begin << 32) + m.end() - begin
            i._attributes = None
            if fresh:
                self.to_check.append(i)
            if root:
                i.is_root = True
                self.root = i
            else:
                i.is_root = False
            body.append(i)

    def _other_line(self, begin: int, end: int) -> None:
        """A line that the master pattern did not recognise: statement by statement."""
        at = begin
        while self.resume <= at <= end:
            at = scan.skip_inline(self.text, at)
            if at > end:  # a comment over several lines
                end = scan.line_end(self.text, at)
            if at >= end:
                break
            at = self._inside(at, end) if self.open is not None else self._outside(at, end)
            if at > end:
                end = scan.line_end(self.text, at)
        self.resume = max(self.resume, at)

    def _inside(self, at: int, end: int) -> int:
        """One statement within a computation; returns where it ends."""
        text = self.text
        if text[at] == "}":
            found = hlo_statements.continuation(self.limits, at + 1, end)
            if found.text and found.strange == -1:
                self._close(found.text, found.end)
                return found.end
            self._close("", at + 1)
            if text[at + 1 : end].lstrip().startswith(("(", "[", "<", "=")):
                self._warn(f"not understood: {text[at : at + 60].strip()!r}", at)
            return at + 1
        if text[at] == "," and self.body:
            return self._continue(self.body[-1], at, end)
        statement = hlo_statements.instruction(self.limits, at, end)
        if isinstance(statement, Statement):
            self._take(statement)
            return statement.end
        header = hlo_statements.header(self.limits, at, end)
        if header is not None:
            self._warn("the computation before this line was not closed", at)
            self._close("", at)
            self._open(header.name, header.is_entry, at)
            return header.body
        if statement is None and log_prefixes.START.match(text, at) is None:
            self._warn(f"not an instruction: {text[at:end].strip()[:60]!r}", at)
        elif statement is not None:
            self._warn(statement, at)
        return end

    def _outside(self, at: int, end: int) -> int:
        text = self.text
        start = log_prefixes.START.match(text, at)
        if start is not None and not self.module.name:
            return self._module_header(start.end(), end)
        bare = text[at:end].strip()
        if bare in TABLES or (self.tables.open and self.tables.add(bare)):
            self.tables.begin(bare)
            if not self.tables.whole:
                self._warn(f"a damaged row of {self.tables.open}: some of it is not read", at)
            self.end = end
            return end
        header = hlo_statements.header(self.limits, at, end)
        if header is not None:
            self._begin(header.name, header.is_entry, at)
            return header.body
        if _LOOKS_LIKE_AN_INSTRUCTION.match(text, at, end) and not self.computations:
            statement = hlo_statements.instruction(self.limits, at, end)
            if isinstance(statement, Statement):
                self._loose_instruction(at)
                self._take(statement)
                return statement.end
        if bare.startswith(("%", "ENTRY ")):
            self._warn(f"not the beginning of a computation: {bare[:60]!r}", at)
        elif len(self.stray) < MAX_WARNINGS and (
            self.module.name or self.computations or self.stray or "HloModule " in bare
        ):  # lines before a module are a log
            self.stray.append((bare[:60], at))
        return end

    def _module_header(self, at: int, end: int) -> int:
        name = _MODULE_NAME.match(self.text, at, end)
        self.module.name = name.group(1) if name else "module"
        at = name.end() if name else end
        found = hlo_statements.continuation(self.limits, at, end)
        if found.strange != -1:
            what = self.text[found.strange : found.strange + 60].split("\n")[0]
            self._warn(f"not an attribute of the module: {what!r}", found.strange)
        if found.text:
            self.module.attributes = split_attributes(found.text)
        self.end = max(found.end, at)
        return self.end

    # -- computations ------------------------------------------------------------

    def _begin(self, name: str, is_entry: bool, begin: int) -> None:
        self._warn_of_stray()
        self._open(name, is_entry, begin)

    def _warn_of_stray(self, at_end: bool = False) -> None:
        """Warns about stray lines; ``at_end``: only about what could be an instruction."""
        for line, where in self.stray:
            could_be_one = _SHAPED_INSTRUCTION.match(line) is not None
            if not at_end or could_be_one:
                told = f"skipped, not part of the module: {line!r}"
                self._warn(told, where, is_note=not could_be_one)
        self.stray = []

    def _open(self, name: str, is_entry: bool, begin: int) -> None:
        c = Computation.__new__(Computation)
        c.index = len(self.computations)
        c.name = name
        c.is_entry = is_entry
        c.module = self.module
        c.attribute_text = ""
        c.text_span = (begin, begin)
        c.root = None
        c.instructions = ()
        self.open, self.body, self.root = c, [], None

    def _loose_instruction(self, begin: int) -> None:
        """An instruction outside any computation: what is left of a dump with its head cut off."""
        self._warn_of_stray()
        self._warn("an instruction before any computation begins", begin)
        self._open("unnamed", False, begin)

    def _close(self, attributes: str, end: int, complete: bool = True) -> None:
        c = self.open
        assert c is not None
        by_name = {i.name: i for i in self.body}
        if len(by_name) < len(self.body):
            by_name = {}
            for i in self.body:
                if by_name.setdefault(i.name, i) is not i:
                    at = i.text_span[0] if i.text_span else 0
                    self._warn(f"two instructions named {i.name!r} in %{c.name}", at)
        self._resolve(by_name)
        c.instructions = tuple(self.body)
        c._names = None
        c.root = self.root or (self.body[-1] if self.body and complete else None)
        if c.root is not None:
            c.root.is_root = True
        c.attribute_text = attributes
        c.text_span = (c.text_span[0] if c.text_span else 0, end)
        c.index = len(self.computations)
        self.computations.append(c)
        self.by_name[c.name] = c
        if c.is_entry:
            self.entry = c
        self.open, self.end = None, end

    def _resolve(self, by_name: dict[str, Instruction]) -> None:
        resolver = hlo_operands.Resolver(self.body, by_name, self.names, self._shape, self._warn)
        if self.unshaped or resolver.resolve():
            # operands written out in place were added, or shapes have to be inferred
            self.body = resolver.with_nested(self.unshaped, self.by_name)
            self.unshaped = {}
            self.to_check += resolver.added
            first = self.count - (len(self.body) - len(resolver.added))
            self.count = first + len(self.body)
            for index, i in enumerate(self.body, first):
                i.index = index

    # -- statements by grammar -------------------------------------------------------

    def _take(self, s: Statement) -> None:
        """Adds an instruction that the grammar found."""
        i = Instruction.__new__(Instruction)
        i.index = self.count
        self.count += 1
        i.name = s.name
        i.opcode = s.opcode
        i.shape = hlo_operands.NO_SHAPE if s.shape is None else self._shape(s.shape, s.shape_at)
        assert self.open is not None
        i.computation = self.open
        i.argument_text = s.arguments
        i.attribute_text = s.attributes
        i.text_span = (s.begin, s.end)
        i._attributes = None
        i.is_root = s.is_root
        self.to_check.append(i)
        if s.shape is None:
            self.unshaped[id(i)] = s.shape_at
        if i.is_root:
            self.root = i
        self.body.append(i)
        for message, at in s.problems:
            self._warn(message, at)
        if "={" in s.attributes:
            self._in_place(i, s.arguments_at + len(s.arguments), s.end)

    def _in_place(self, i: Instruction, begin: int, end: int) -> None:
        """Turns computations written out as attributes into computations with a name."""
        roles: dict[str, str] = {}
        while (found := hlo_statements.computations_in_place(self.text, begin, end)) is not None:
            names = [n for n in (self._body(*body) for body in found.bodies) if n is not None]
            if names:
                listed = ", ".join(f"%{name}" for name in names)
                roles[found.role] = f"{{{listed}}}" if len(found.bodies) > 1 else listed
            begin = found.end
        if roles:
            attributes = dict(i.attributes) | roles
            i.attribute_text = ", ".join(f"{k}={v}" for k, v in attributes.items())
            i._attributes = None

    def _body(self, at: int, close: int) -> str | None:
        """Reads a computation without a name; returns the name it gets."""
        if len(self.nested) > MAX_NESTED:
            self._warn("computations nested too deeply are skipped", at)
            return None
        outer = (self.open, self.body, self.root, self.unshaped)
        while (name := f"_.{self.unnamed}" if self.unnamed else "_") in self.by_name:
            self.unnamed += 1
        self.unnamed += 1
        self._open(name, False, at)
        inner = self.open
        assert inner is not None
        self.nested.append(inner)
        self.unshaped = {}
        while self.open is inner and (at := scan.skip(self.text, at)) < close:
            at = self._inside(at, scan.line_end(self.text, at, close))
        if self.open is inner:
            self._close("", close)
        elif rest := self.text[at:close].strip():
            self._warn(f"skipped, behind a brace too many: {rest[:60]!r}", at)
        self.nested.pop()
        self.out_of_order = True
        self.open, self.body, self.root, self.unshaped = outer
        return name

    def _continue(self, i: Instruction, at: int, end: int) -> int:
        """Adds attributes on a line of their own to the instruction before it."""
        found = hlo_statements.continuation(self.limits, at, end)
        if found.strange != -1:
            what = self.text[found.strange : found.strange + 60].split("\n")[0]
            self._warn(f"not an attribute of %{i.name[:60]}: {what!r}", found.strange)
        i.attribute_text = ", ".join(x for x in (i.attribute_text, found.text) if x)
        self.to_check.append(i)
        i._attributes = None
        i.text_span = (i.text_span[0] if i.text_span else at, found.end)
        if "={" in found.text:
            self._in_place(i, at, found.end)
        return max(found.end, at + 1)

    def _shape(self, text: str, at: int) -> Shape:
        shape = self.shapes.get(text)
        if shape is None:
            try:
                shape = parse_shape(text)
            except ValueError as e:
                self._warn(str(e), at)
                shape = Shape(text, "opaque")
            for kind in dict.fromkeys(shape.unknown_elements):
                self._warn(hlo_checks.unknown_element(kind), at)
            for unclear in hlo_checks.unclear_layouts(shape)[:3]:
                self._warn(f"the layout of {unclear[:60]!r} is not understood", at)
            self.shapes[text] = shape
        return shape

    # -- the end ---------------------------------------------------------------------

    def _finish(self) -> None:
        cut = self.open is not None
        if self.open is not None:
            self._warn(f"the dump ends inside %{self.open.name}", len(self.text))
            self._close("", len(self.text), complete=False)
        self._warn_of_stray(at_end=True)
        m = self.module
        m.name = m.name or "module"
        m.computations = tuple(self.computations)
        if self.out_of_order:
            for index, i in enumerate(i for c in m.computations for i in c.instructions):
                i.index = index
        m.frames = self.tables.build() if self.tables.used else FrameTable()
        if not self.computations:
            self._warn("no computation follows the module's first line", 0)
        if self.entry is None and self.computations:
            self.entry, note = hlo_entry.without_entry(m, cut, self.by_hand)
            self._warn(note, len(self.text))
        m.entry = self.entry
        m.source_text = self.text[: self.end]
        hlo_checks.check(m, self.to_check, self._warn)
        m.first_line = self.first_line
        if self.dropped_warnings:
            self.warnings.append(ReadWarning(f"{self.dropped_warnings} more warnings"))
        m.warnings = tuple(self.warnings)

    def _warn(self, message: str, at: int, *, is_note: bool = False) -> None:
        if len(self.warnings) >= MAX_WARNINGS:
            self.dropped_warnings += 1
            return
        row = self.text.count("\n", 0, at)
        column = at - (self.text.rfind("\n", 0, at) + 1) + 1
        if self.column_shift is not None and row < len(self.column_shift):
            column += self.column_shift[row]
        self.warnings.append(ReadWarning(message, self.first_line + row, column, is_note))
