"""HLO text of every dialect → Modules, one line at a time, in one pass.

Hard because it must be fast and must never give up: a step of 100,000 instructions is
13 MB of text, and what people have is logs with a module somewhere inside, written by
any XLA since 2018, cut off anywhere. So one master pattern recognises a whole
well-formed instruction line, and every line it does not recognise goes to a slow path
that looks closer:

    HloModule jit_f, is_scheduled=true            header: attributes as raw text
    FileNames / FunctionNames / …                  tables (frame_tables.py)
    %add (x: f32[], y: f32[]) -> f32[] {           opens a computation
      %x = f32[] parameter(0)                      master pattern
      %s = f32[2]{0} constant({ "a\\"b", …         slow path, may span lines
    }, execution_thread="main"                     closes it

Operands are resolved when their computation closes, so forward references work.
"""

from __future__ import annotations

import re

from ..hlo.module import Computation, Instruction, Module
from ..hlo.parts import FrameTable, ReadWarning, split_attributes
from ..hlo.shape import Shape, parse_shape, split_top, without_comments
from . import scan
from .frame_tables import TABLES, FrameTableBuilder

MAX_WARNINGS = 200

# One well-formed instruction line, or any other line (group 7). Possessive throughout:
# no backtracking into a part that matched, so no line takes more than linear time.
_MASTER = re.compile(
    r"^[ \t]*+(?:"
    r"((?:ROOT )?)%?+([^\s=(),{}\"]++) = "  # 1 ROOT, 2 name
    r"([a-z][^\s(]*+(?:\([^\s(]*+)*+|\([^\n]*?\)(?:\{[^\s}]*\})?) "  # 3 shape
    r"([a-zA-Z][\w.\-]*+)"  # 4 opcode
    r"\(((?:[^()\"\n]++|\((?:[^()\"\n]++|\([^()\"\n]*+\))*+\))*+)\)"  # 5 arguments
    r"(?:,[ ]?([^\n]*+))?+$"  # 6 attributes
    r"|([^\n]*+))",  # 7 anything else
    re.M,
)
_START = re.compile(
    r"(?:[IWEF]\d{4,8}[ ][^\]\n]*\][ ]?|[^\s{}=\"]{1,80}:[ ]|[\d\-:.TZ+ ]{8,40}[ ])?"
    r"[ \t]*HloModule[ \t]+"
)
_LOG_PREFIX = re.compile(r"^[IWEF]\d{4,8} [^\]\n]{1,200}\] ?", re.M)
_HEADER = re.compile(r"[ \t]*(ENTRY[ \t]+)?%?([^\s=(),{}\"]+)[ \t]*([({])")
_ASSIGNS = re.compile(r"[ \t]*(ROOT[ \t]+)?%?([^\s=(),{}\"]+)[ \t]*=[ \t]*")
_OPCODE = re.compile(r"[ \t]*([a-zA-Z][\w.\-]*)\(")
_PERCENT_NAME = re.compile(r"%([^\s,(){}=\"]+)")
_LITERAL_OPCODES = frozenset({"constant", "parameter", "iota"})


def read_hlo_text(text: str, warnings: list[ReadWarning] | None = None) -> list[Module]:
    """Every module of a text, in order; [] when nothing in it looks like HLO."""
    starts = _module_starts(text)
    modules = []
    if not starts:
        if not re.search(r"^[ \t]*(?:ROOT )?%?[^\s=(),{}\"]+ = [^\n]+\(", text, re.M):
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
    while at >= 0:
        begin = text.rfind("\n", 0, at) + 1
        if at - begin < 400:
            m = _START.match(text, begin)
            if m is not None and m.end() > at:
                starts.append(begin)
        end = text.find("\n", at)
        if end < 0:
            break
        at = text.find("HloModule", end)
    return starts


class _ModuleReader:
    """Reads one module's stretch of text. Made once, used once."""

    def __init__(self, chunk: str, first_line: int, warnings: list[ReadWarning]) -> None:
        self.first_line = first_line
        self.warnings = warnings
        self.dropped_warnings = 0
        self.column_shift: list[int] | None = None
        self.text = self._strip_log_prefixes(chunk)
        self.shapes: dict[str, Shape] = {}
        self.computations: list[Computation] = []
        self.entry: Computation | None = None
        self.tables = FrameTableBuilder()
        self.module = Module("", (), None)
        self.count = 0
        # the computation being read
        self.open: Computation | None = None
        self.body: list[Instruction] = []
        self.root: Instruction | None = None
        self.resume = 0  # lines that begin before this offset are consumed already
        self.one_line_before = 0  # before this offset no argument list spans lines
        self.closed: Instruction | None = None  # known not to have a string still open
        self.end = 0  # where the last line that belonged to the module ended

    def read(self) -> Module:
        self._read_lines()
        self._finish()
        return self.module

    # -- lines -----------------------------------------------------------------

    def _read_lines(self) -> None:
        shapes = self.shapes
        opcodes: dict[str, str] = {}
        new = Instruction.__new__
        for m in _MASTER.finditer(self.text):
            root, name, shape_text, opcode, arguments, attributes, other = m.groups()
            if name is None:
                if other or self.open is None:
                    self._other_line(m.start(), m.end())
                continue
            if m.start() < self.resume:
                continue
            if self.open is None:
                self._loose_instruction(m.start())
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
            i.argument_text = arguments
            i.attribute_text = attributes or ""
            i.text_span = (m.start(1), m.end())
            i._attributes = None
            if root:
                i.is_root = True
                self.root = i
            else:
                i.is_root = False
            self.body.append(i)

    def _other_line(self, begin: int, end: int) -> None:
        """A line the master pattern did not recognise."""
        if begin < self.resume:
            return
        line = self.text[begin:end]
        bare = line.strip()
        if self._continues_quote(begin, end):
            return
        if not bare or bare.startswith("//"):
            return
        if self.open is not None:
            if bare[0] == "}":
                self._close(bare, end)
            elif not self._slow_instruction(begin, end):
                header = _header(line)
                if header is not None:
                    self._warn("the computation before this line was not closed", begin)
                    self._close("}", begin)
                    self._open(header, begin, line)
                else:
                    self._warn(f"not an instruction: {bare[:60]!r}", begin)
            return
        start = _START.match(line)
        if start is not None and not self.module.name:
            self._module_header(line[start.end() :], begin)
            self.end = end
            return
        if bare in TABLES or (self.tables.open and self.tables.add(bare)):
            self.tables.begin(bare)
            self.end = end
            return
        header = _header(line)
        if header is not None and header.group(2) != "HloModule":
            self._open(header, begin, line)
            self.end = end
        elif _ASSIGNS.match(line) and "(" in line and self.computations == []:
            self._loose_instruction(begin)
            self._slow_instruction(begin, end)
        elif bare.startswith("%") or bare.startswith("ENTRY "):
            self._warn(f"not the beginning of a computation: {bare[:60]!r}", begin)

    def _module_header(self, rest: str, begin: int) -> None:
        name, comma, attributes = rest.partition(",")
        self.module.name = name.strip().lstrip("%") or "module"
        if comma:
            self.module.attributes = split_attributes(attributes)

    # -- computations ------------------------------------------------------------

    def _open(self, header: re.Match[str], begin: int, line: str) -> None:
        c = Computation.__new__(Computation)
        c.index = len(self.computations)
        c.name = header.group(2)
        c.is_entry = header.group(1) is not None
        c.module = self.module
        c.attribute_text = ""
        c.text_span = (begin, begin)
        c.root = None
        c.instructions = ()
        self.open, self.body, self.root = c, [], None

    def _loose_instruction(self, begin: int) -> None:
        """An instruction outside any computation: what is left of a dump cut at its head."""
        self._warn("an instruction before any computation begins", begin)
        header = re.match(r"()(.*)", "unnamed")
        assert header is not None
        self._open(header, begin, "")
        assert self.open is not None
        self.open.is_entry = False

    def _close(self, bare: str, end: int, complete: bool = True) -> None:
        c = self.open
        assert c is not None
        by_name: dict[str, Instruction] = {}
        for i in self.body:
            if by_name.setdefault(i.name, i) is not i:
                at = i.text_span[0] if i.text_span else 0
                self._warn(f"two instructions named {i.name!r} in %{c.name}", at)
        self._resolve(by_name)
        c.instructions = tuple(self.body)
        c._by_name = by_name
        c.root = self.root or (self.body[-1] if self.body and complete else None)
        if c.root is not None:
            c.root.is_root = True
        c.attribute_text = bare.lstrip("}").lstrip(", ").strip()
        c.text_span = (c.text_span[0] if c.text_span else 0, end)
        self.computations.append(c)
        if c.is_entry:
            self.entry = c
        self.open, self.end = None, end

    def _resolve(self, by_name: dict[str, Instruction]) -> None:
        for i in self.body:
            arguments = i.argument_text
            if not arguments or i.opcode in _LITERAL_OPCODES:
                i.operands = ()
                continue
            if "/*" in arguments:
                arguments = without_comments(arguments)
            names = _PERCENT_NAME.findall(arguments) if "%" in arguments else _bare_names(arguments)
            try:
                i.operands = tuple([by_name[n] for n in names])
            except KeyError:
                i.operands = tuple([by_name[n] for n in names if n in by_name])
                missing = [n for n in names if n not in by_name]
                at = i.text_span[0] if i.text_span else 0
                self._warn(f"%{i.name} has an operand that is not here: {missing[0][:60]!r}", at)

    # -- the slow path -------------------------------------------------------------

    def _slow_instruction(self, begin: int, end: int) -> bool:
        """An instruction with quotes, deep nesting or several lines; False if it is not one."""
        text = self.text
        m = _ASSIGNS.match(text, begin, end)
        if m is None:
            return False
        shape_end = scan.shape_end(text, m.end(), end)
        opcode = _OPCODE.match(text, shape_end)
        if opcode is None:
            self._warn(f"no opcode after the shape of {m.group(2)[:60]!r}", shape_end)
            return "(" in text[begin:end]
        close = scan.closing(text, opcode.end() - 1, self._limit(end))
        if close < 0 and self._limit(end) > end:
            self.one_line_before = self._limit(end)  # else every such line looks that far
        if close < 0:
            self._warn(f"the arguments of %{m.group(2)[:60]} are not closed", opcode.end() - 1)
            close = end
        stop = text.find("\n", close)
        stop = len(text) if stop < 0 else stop
        i = Instruction.__new__(Instruction)
        i.index = self.count
        self.count += 1
        i.name = m.group(2)
        i.opcode = opcode.group(1)
        i.shape = self._shape(text[m.end() : shape_end].strip(), m.end())
        assert self.open is not None
        i.computation = self.open
        i.argument_text = text[opcode.end() : close]
        i.attribute_text = text[close + 1 : stop].lstrip(", ").rstrip()
        i.text_span = (
            begin + len(text[begin : m.end()]) - len(text[begin : m.end()].lstrip()),
            stop,
        )
        i._attributes = None
        i.is_root = m.group(1) is not None
        if i.is_root:
            self.root = i
        self.body.append(i)
        self.resume = max(self.resume, stop)
        return True

    def _limit(self, end: int) -> int:
        """How far an argument list may reach: the end of its computation."""
        if end < self.one_line_before:
            return end
        close = self.text.find("\n}", end)
        return len(self.text) if close < 0 else close

    def _continues_quote(self, begin: int, end: int) -> bool:
        """Whether this line continues a quoted string that the last instruction left open."""
        if self.open is None or not self.body:
            return False
        last = self.body[-1]
        assert last.text_span is not None
        if last is self.closed or not scan.open_quote(last.attribute_text):
            self.closed = last
            return False
        close = scan.quote_end(self.text, begin, self._limit(end))
        if close < 0:
            self.closed = last
            return False
        stop = self.text.find("\n", close)
        stop = len(self.text) if stop < 0 else stop
        last.attribute_text += self.text[last.text_span[1] : stop]
        last.text_span = (last.text_span[0], stop)
        last._attributes = None
        self.resume = max(self.resume, stop)
        return True

    def _shape(self, text: str, at: int) -> Shape:
        shape = self.shapes.get(text)
        if shape is None:
            try:
                shape = parse_shape(text)
            except ValueError as e:
                self._warn(str(e), at)
                shape = Shape(text, "opaque")
            self.shapes[text] = shape
        return shape

    # -- the end ---------------------------------------------------------------------

    def _finish(self) -> None:
        if self.open is not None:
            self._warn(f"the dump ends inside %{self.open.name}", len(self.text))
            self._close("", len(self.text), complete=False)
        if self.entry is None and self.computations:
            self.entry = self._guess_entry()
        if self.dropped_warnings:
            self.warnings.append(ReadWarning(f"{self.dropped_warnings} more warnings"))
        m = self.module
        m.name = m.name or "module"
        m.computations = tuple(self.computations)
        m.entry = self.entry
        m.frames = self.tables.build() if self.tables.used else FrameTable()
        m.source_text = self.text[: self.end]
        m.first_line = self.first_line
        m.warnings = tuple(self.warnings)

    def _guess_entry(self) -> Computation | None:
        """The last computation that nothing calls, where no line says ENTRY."""
        module = self.module
        module.computations = tuple(self.computations)
        called = {c.name for i in module.instructions for c in i.called_computations}
        module.__dict__.pop("instructions", None)
        module.__dict__.pop("_by_name", None)
        for c in reversed(self.computations):
            if c.name not in called and c.root is not None:
                self._warn(f"no ENTRY computation; taking %{c.name}, which nothing calls", 0)
                c.is_entry = True
                return c
        self._warn("no ENTRY computation: the dump may be cut off", len(self.text))
        return None

    def _warn(self, message: str, at: int) -> None:
        if len(self.warnings) >= MAX_WARNINGS:
            self.dropped_warnings += 1
            return
        row = self.text.count("\n", 0, at)
        column = at - (self.text.rfind("\n", 0, at) + 1) + 1
        if self.column_shift is not None and row < len(self.column_shift):
            column += self.column_shift[row]
        self.warnings.append(ReadWarning(message, self.first_line + row, column))

    def _strip_log_prefixes(self, chunk: str) -> str:
        if _LOG_PREFIX.match(chunk) is None:
            return chunk
        self.column_shift = []
        lines = []
        for line in chunk.split("\n"):
            m = _LOG_PREFIX.match(line)
            self.column_shift.append(m.end() if m else 0)
            lines.append(line[m.end() :] if m else line)
        return "\n".join(lines)


def _header(line: str) -> re.Match[str] | None:
    """``%name (parameters) -> shape {`` or ``name {``."""
    m = _HEADER.match(line)
    if m is None or not line.rstrip().endswith("{"):
        return None
    return m if m.group(3) == "{" or "->" in line else None


def _bare_names(arguments: str) -> list[str]:
    """Operand names printed without ``%``: the last word of each part."""
    return [p.split()[-1] for p in split_top(arguments) if p]
