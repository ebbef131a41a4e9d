"""StableHLO (MLIR) text, as ``lowered.as_text()`` prints it → a Module of dialect "stablehlo".

Not an MLIR parser: it takes operations one by one (statements.py), knows which brackets open
regions, and keeps everything else as text. Each function and each region
becomes a computation; values that a region uses from outside become its parameters and
operands of the operation that holds it, as when XLA converts:

    %4 = "stablehlo.case"(%3) ({         →  %4 = f32[4,8] case(%3, %2),
      %24 = stablehlo.add %2, %23 : …         branch_computations={%main.case.4.0, …}
      stablehlo.return %24 : …
    }, {
"""

from __future__ import annotations

import re

from ...hlo.module import Computation, Instruction, Module
from ...hlo.parts import ReadWarning, split_attributes
from ...hlo.shape import Shape
from ...hlo.shardings.shardy import header_meshes
from .generic import Function, generic_function, plain_spelling, result_attributes
from .lines import BLOCK_ARGUMENT, OpLine, location_of, parse_op, signature_types, split_signature
from .locations import Locations
from .shardings import with_sharding
from .statements import MlirStatement, statements
from .types import is_type, shape_of, split_types, tuple_of

_MODULE = re.compile(r"(?:module|\"builtin\.module\")\s*(?:@([\w$.\-]+|\"[^\"]*\"))?\s*(.*)", re.S)
_FUNC = re.compile(
    r"(?:func|stablehlo)\.func\s+(?:(public|private|nested)\s+)?@([\w$.\-]+|\"[^\"]*\")\s*\("
)
_LABEL = re.compile(r"\^\w+(?:\((.*)\))?:", re.S)
_REGION_WORD = re.compile(r"([a-z_]+)\s*(?:\((.*)\))?\s*\{\Z", re.S)
_PAIRED = re.compile(r"\)\s*\(")  # reducer(%a: …, %b: …) (%c: …, %d: …)
_NEXT_REGION = re.compile(r"\}\s*(?:,|\)?\s*([a-z_]+)(\(.*\))?)?\s*\{\Z", re.S)
_ALIASES = re.compile(r"^[ \t]*(#loc\d*) = loc\((.*)\)[ \t]*$", re.M)
_DICTIONARIES = re.compile(r"<?\{((?:[^{}\"]|\"[^\"\\]*(?:\\.[^\"\\]*)*\"|\{[^{}]*\})*)\}>?")
_SYMBOL = re.compile(r'sym_name\s*=\s*(?:#?[\w.]*<?)"((?:[^"\\]|\\.)*)"')
_SHARDING = re.compile(r"sharding=((?:[^{},]|\{(?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*\})+)")
_TYPE_ALIAS = re.compile(r"(![\w$]+)\s*=\s*(.*)")
_TYPE_NAME = re.compile(r"![\w$]+\b(?!\.)")
_RESULT = re.compile(r"%[\w$.\-]+(?:#(\d{1,6}))?")
_MESH = re.compile(r"sdy\.mesh\s+@([\w$.\-]+|\"[^\"]*\")\s*=\s*(.*)", re.S)
_GENERIC_MESH = re.compile(
    r'"sdy\.mesh"\(\)\s*<\{mesh = #sdy\.mesh(.*), sym_name = "([^"]*)"', re.S
)
MAX_WARNINGS = 100
MAX_DEPTH = 100
_ROLES = {
    "while": ("condition", "body"),
    "if": ("true_computation", "false_computation"),
    "select_and_scatter": ("select", "scatter"),
}
_ONE_ROLE = {"case": "branch_computations", "sdy.manual_computation": "called_computations"}


def read_all(text: str, warnings: list[ReadWarning] | None = None) -> list[Module]:
    """Every module of a text, in order; at least one.

    Never fails: what cannot be understood is skipped with a warning.
    """
    modules: list[Module] = []
    reader = _Reader(text, 0, list(warnings or ()))
    for s in statements(text):
        if reader.closed and _MODULE.match(s.text):
            modules.append(reader.finish(s.begin))
            reader = _Reader(text, s.begin, list(warnings or ()))
        reader.take(s)
    modules.append(reader.finish(len(text)))
    return modules


class _Scope:
    """A function or region being read."""

    def __init__(self, computation: Computation, outer: _Scope | None, owner: Instruction | None):
        self.computation = computation
        self.outer = outer
        self.owner = owner
        self.depth: int = outer.depth + 1 if outer else 0
        self.names: dict[str, Instruction] = {}
        self.parameters: list[Instruction] = []
        self.body: list[Instruction] = []
        self.waiting: OpLine | None = None  # an operation whose regions are being read
        self.waiting_for: Instruction | None = None
        self.regions: list[str] = []
        self.function: Function | None = None


class _Reader:
    """Reads one module, statement by statement; ``base`` is where it begins in the text."""

    def __init__(self, text: str, base: int, warnings: list[ReadWarning]) -> None:
        self.text = text
        self.base = base
        self.end = base
        self.depth = 0  # of nested modules
        self.closed = False
        self.meshes: dict[str, str] = {}
        self.types: dict[str, str] = {}  # !name → the type it stands for
        self.warnings = warnings
        self.dropped_warnings = 0
        self.locations = Locations()
        self.module = Module("module", (), None, dialect="stablehlo")
        self.computations: list[Computation] = []
        self.scope: _Scope | None = None
        self.names: set[str] = set()
        self.known_types: set[str] = set()
        for m in _ALIASES.finditer(text, base):  # aliases may come before or after their uses
            self.locations.aliases.setdefault(m.group(1), m.group(2))

    def take(self, s: MlirStatement) -> None:
        """One statement: an operation, a region's header, a label or a closing brace."""
        if s.text.startswith("#"):
            return
        span = (s.begin - self.base, s.end - self.base)
        text = s.text
        if text.startswith("!") and (alias := _TYPE_ALIAS.match(text)) is not None:
            self.types[alias[1]] = alias[2]
            return
        if self.types and "!" in text:
            text = _TYPE_NAME.sub(lambda m: self.types.get(m[0], m[0]), text)
        bare, location = location_of(plain_spelling(text))
        scope = self.scope
        self.end = s.end
        if s.open:
            what = (
                "more was to come" if bare.endswith(",") else "a bracket or a quote is not closed"
            )
            self._warn(f"{what}: {bare[:60]!r}", span[0])
        if scope is None:
            self._outside(bare, span)
        elif bare.startswith("}"):
            self._close(bare, span, location)
        elif bare.startswith("^"):
            m = _LABEL.match(bare)
            if m and m.group(1):
                self._arguments(m.group(1), scope, span)
        elif (m := _REGION_WORD.match(bare)) and scope.waiting_for is not None:
            self._open_region(m.group(2), span)
        else:
            self._operation(bare, span, location)

    # -- functions ------------------------------------------------------------------

    def _outside(self, bare: str, span: tuple[int, int]) -> None:
        m = _FUNC.match(bare)
        generic = generic_function(bare) if m is None else None
        if m or generic is not None:
            function = self._signature(m, bare) if m else generic
            assert function is not None
            self._function(function, bare, span)
        elif (m := _MESH.match(bare)) is not None:
            attributes = dict(self.module.attributes)
            attributes[f"sdy.mesh.{m.group(1)}"] = m.group(2)
            self._set_header(attributes)
        elif (m := _GENERIC_MESH.match(bare)) is not None:
            self._set_header({**self.module.attributes, f"sdy.mesh.{m.group(2)}": m.group(1)})
        elif (m := _MODULE.match(bare)) is not None:
            self.depth += 1
            name = m.group(1) or _one_name(bare)
            if name and self.depth == 1:
                self.module.name = name.strip('"')
            self._module_attributes(m.group(2))
        elif bare.startswith("}"):
            self.depth -= 1
            self.closed = self.depth <= 0
            self._module_attributes(bare.lstrip("}) "))
        else:
            self._warn(f"skipped, not a function: {bare[:60]!r}", span[0])

    def _set_header(self, attributes: dict[str, str]) -> None:
        self.module.attributes = attributes
        self.meshes = header_meshes(attributes)

    def _module_attributes(self, rest: str) -> None:
        attributes = dict(self.module.attributes)
        for inside in _DICTIONARIES.findall(rest):
            for key, value in split_attributes(inside).items():
                value = value.split(" : ")[0]
                name = {"mhlo.num_partitions": "num_partitions"}.get(key, key)
                name = {"mhlo.num_replicas": "replica_count"}.get(name, name)
                if name not in ("sym_name", "sym_visibility"):
                    attributes[name] = value
        self._set_header(attributes)

    def _signature(self, m: re.Match[str], bare: str) -> Function:
        inside, after = split_signature(bare, m.end() - 1)
        public = m.group(1) == "public"
        return Function(m.group(2).strip('"'), public, inside, [], result_attributes(after))

    def _function(self, function: Function, bare: str, span: tuple[int, int]) -> None:
        if not bare.endswith("{"):
            return  # a declaration
        computation = self._computation(function.name, span)
        computation.is_entry = function.name == "main" or function.is_public
        self.scope = _Scope(computation, None, None)
        self.scope.function = function
        if function.arguments is not None:
            self._arguments(function.arguments, self.scope, span)

    def _computation(self, name: str, span: tuple[int, int]) -> Computation:
        unique, n = name, 1
        while unique in self.names:
            n += 1
            unique = f"{name}.{n}"
        self.names.add(unique)
        c = Computation.__new__(Computation)
        c.index = len(self.computations)
        c.name = unique
        c.instructions = ()
        c.root = None
        c.is_entry = False
        c.module = self.module
        c.attribute_text = ""
        c.text_span = span
        c._names = None
        self.computations.append(c)
        return c

    def _arguments(self, text: str, scope: _Scope, span: tuple[int, int]) -> None:
        """``%arg0: tensor<8xf32> {sdy.sharding = …} loc(…), …`` → parameters."""
        given = scope.function.argument_attributes if scope.function else []
        for part in split_types(_PAIRED.sub(", ", text)):
            part, location = location_of(part)
            m = BLOCK_ARGUMENT.match(part)
            if m is None:
                if part:
                    self._warn(f"not an argument: {part[:60]!r}", span[0])
                continue
            kind = m.group(2)
            brace = kind.find(" {")
            attributes = kind[brace + 2 : -1] if brace != -1 and kind.endswith("}") else ""
            kind = kind[:brace] if brace != -1 else kind
            self._check_types([kind], span[0])
            if not attributes and len(scope.parameters) < len(given):
                attributes = given[len(scope.parameters)]
            attributes = with_sharding(attributes, self.meshes)
            self._parameter(scope, m.group(1), shape_of(kind), attributes, span, location)

    def _parameter(
        self,
        scope: _Scope,
        name: str,
        shape: Shape,
        attributes: str,
        span: tuple[int, int] | None,
        location: str = "",
    ) -> Instruction:
        i = self._instruction(scope, name, "parameter", shape, span)
        i.argument_text = str(len(scope.parameters))
        metadata = self.locations.metadata(location) if location else ""
        i.attribute_text = ", ".join(x for x in (attributes, metadata) if x)
        scope.parameters.append(i)
        scope.names[name] = i
        return i

    def _instruction(
        self, scope: _Scope, name: str, opcode: str, shape: Shape, span: tuple[int, int] | None
    ) -> Instruction:
        i = Instruction.__new__(Instruction)
        i.index = 0
        i.name, i.opcode, i.shape = name, opcode, shape
        i.operands = ()
        i.computation = scope.computation
        i.is_root = False
        i.argument_text = i.attribute_text = ""
        i.text_span = span
        i._attributes = None
        return i

    # -- operations -----------------------------------------------------------------

    def _operation(self, bare: str, span: tuple[int, int], location: str) -> None:
        scope = self.scope
        assert scope is not None
        op = parse_op(bare)
        if op is None:
            if bare not in (")", "{"):
                self._warn(f"not an operation: {bare[:60]!r}", span[0])
            return
        self._check_types(op.types, span[0])
        if op.is_damaged:
            self._warn(f"the name of an operation is damaged: {bare[:60]!r}", span[0])
        if op.name and not op.types and not op.opens_region:
            self._warn(f"%{op.name[:40]} has no type: {bare[:60]!r}", span[0])
        name = op.name or f"{op.opcode}.{len(scope.body)}"
        i = self._instruction(scope, name, op.opcode, _result_shape(op), span)
        operands = [self._value(scope, n) for n in op.operands]
        i.operands = tuple(o for o in operands if o is not None)
        if len(i.operands) != len(operands):
            missing = op.operands[operands.index(None)]
            self._warn(f"%{name} uses %{missing[:40]}, which is not defined", span[0])
        i.argument_text = op.arguments
        if op.opcode == "return" or op.opcode.endswith(".return"):
            _shape_of_return(i, op)
            if scope.outer is None and scope.function is not None:
                sharding = _results_sharding(scope.function.result_attributes, self.meshes)
                op.attributes = ", ".join(x for x in (op.attributes, sharding) if x)
        attributes = with_sharding(op.attributes, self.meshes)
        parts = [attributes] if attributes else []
        if op.callees:
            role = "to_apply" if op.opcode == "call" else "called_computations"
            names = ", ".join("%" + c for c in op.callees)
            parts.append(f"{role}={names}" if role == "to_apply" else f"{role}={{{names}}}")
        metadata = self.locations.metadata(location) if location else ""
        i.attribute_text = ", ".join([*parts, metadata] if metadata else parts)
        scope.body.append(i)
        for result in (op.name, *op.other_names) if op.name else ():
            scope.names[result] = i
        scope.waiting, scope.waiting_for, scope.regions = op, i, []
        if op.opens_region:
            self._open_region(op.region_arguments, span)

    def _check_types(self, types: list[str], at: int) -> None:
        for text in types:
            if text not in self.known_types:
                self.known_types.add(text)
                if not is_type(text):
                    self._warn(f"not a type, so of unknown size: {text[:60]!r}", at)

    def _value(self, scope: _Scope, name: str) -> Instruction | None:
        """The instruction of a name; captures it through the regions in between."""
        chain = []
        at: _Scope | None = scope
        while at is not None and name not in at.names:
            chain.append(at)
            at = at.outer
        if at is None:
            return None
        found = at.names[name]
        for inner in reversed(chain):
            outer_value = found
            found = self._parameter(inner, name, outer_value.shape, "", outer_value.text_span)
            if inner.owner is not None and outer_value not in inner.owner.operands:
                inner.owner.operands += (outer_value,)
        return found

    # -- regions --------------------------------------------------------------------

    def _open_region(self, arguments: str | None, span: tuple[int, int]) -> None:
        scope = self.scope
        assert scope is not None
        op, owner = scope.waiting, scope.waiting_for
        if op is None or owner is None:
            return
        if scope.depth >= MAX_DEPTH:
            self._warn(f"regions nested deeper than {MAX_DEPTH} are skipped", span[0])
            return
        base = f"{scope.computation.name}.{op.opcode.split('.')[-1]}.{owner.name}"
        inner = _Scope(self._computation(f"{base}.{len(scope.regions)}", span), scope, owner)
        scope.regions.append(inner.computation.name)
        self.scope = inner
        shapes = op.type_shapes
        for k, name in enumerate(op.iteration_arguments):
            shape = shapes[k] if k < len(shapes) else owner.shape
            self._parameter(inner, name, shape, "", span)
        if arguments:
            self._arguments(arguments, inner, span)

    def _close(self, bare: str, span: tuple[int, int], location: str) -> None:
        """``}``, ``}, {``, ``} do {``, ``}) : (…) -> …``."""
        scope = self.scope
        assert scope is not None
        self._end_scope(scope, span[1])
        outer = scope.outer
        self.scope = outer
        if outer is None or outer.waiting is None or outer.waiting_for is None:
            return
        m = _NEXT_REGION.match(bare)
        if m:
            self._open_region((m.group(2) or "")[1:-1], span)
            return
        op, i = outer.waiting, outer.waiting_for
        rest = bare[1:].lstrip(") ")
        if rest and bare[1] not in ") :":
            self._warn(f"not understood after the end of a region: {bare[:60]!r}", span[0])
        if rest:
            attributes, types = signature_types(rest)
            attributes = with_sharding(attributes, self.meshes)
            self._check_types(types, span[0])
            op.types = types or op.types
            op.has_arrow = op.has_arrow or "->" in rest
            i.shape = _result_shape(op)
            if attributes:
                i.attribute_text = ", ".join(x for x in (i.attribute_text, attributes) if x)
        if bare.startswith("})") or op.opcode != "while" or len(outer.regions) > 1:
            self._name_regions(op, i, outer.regions)
            if location:
                metadata = self.locations.metadata(location)
                i.attribute_text = ", ".join(x for x in (i.attribute_text, metadata) if x)
            outer.regions = []

    def _name_regions(self, op: OpLine, i: Instruction, regions: list[str]) -> None:
        if not regions:
            return
        names = ["%" + r for r in regions]
        roles = _ROLES.get(op.opcode)
        if roles and len(roles) == len(names):
            text = ", ".join(f"{r}={n}" for r, n in zip(roles, names, strict=True))
        elif op.opcode in _ONE_ROLE and (len(names) == 1 or op.opcode == "case"):
            text = f"{_ONE_ROLE[op.opcode]}={{{', '.join(names)}}}"
        elif len(names) == 1:
            text = f"to_apply={names[0]}"
        else:
            text = "calls={" + ", ".join(names) + "}"
        i.attribute_text = ", ".join(x for x in (i.attribute_text, text) if x)

    def _end_scope(self, scope: _Scope, end: int) -> None:
        c = scope.computation
        if scope.waiting_for is not None and scope.waiting is not None:
            self._name_regions(scope.waiting, scope.waiting_for, scope.regions)
        c.instructions = (*scope.parameters, *scope.body)
        c._names = None
        c.root = c.instructions[-1] if c.instructions else None
        if c.root is not None:
            c.root.is_root = True
        c.text_span = (c.text_span[0] if c.text_span else 0, end)

    # -- the end --------------------------------------------------------------------

    def finish(self, end: int) -> Module:
        """The module, whose text goes up to ``end``."""
        size = end - self.base
        if self.scope is not None:
            self._warn(f"the text ends inside %{self.scope.computation.name}", size)
        while self.scope is not None:
            self._end_scope(self.scope, size)
            self.scope = self.scope.outer
        m = self.module
        m.source_text = self.text[self.base : end]
        m.first_line = self.text.count("\n", 0, self.base) + 1
        m.computations = tuple(self.computations)
        for index, i in enumerate(m.instructions):
            i.index = index
        m.entry = self._entry()
        for c in m.computations:
            c.is_entry = c is m.entry
        if m.entry is None:
            self._warn("no function main, and several that nothing calls: totals are unknown", 0)
        m.frames = self.locations.table()
        if self.dropped_warnings:
            self.warnings.append(ReadWarning(f"{self.dropped_warnings} more warnings"))
        m.warnings = tuple(self.warnings)
        return m

    def _entry(self) -> Computation | None:
        """The function main, else the public one, else the only one that nothing calls."""
        computations = self.module.computations
        public = [c for c in computations if c.is_entry]
        if public:
            return next((c for c in public if c.name == "main"), public[0])
        called = {c.name for i in self.module.instructions for c in i.called_computations}
        left = [c for c in computations if c.name not in called]
        return left[0] if len(left) == 1 else None

    def _warn(self, message: str, at: int) -> None:
        if len(self.warnings) >= MAX_WARNINGS:
            self.dropped_warnings += 1
            return
        at += self.base
        line = self.text.count("\n", 0, at) + 1
        column = at - (self.text.rfind("\n", 0, at) + 1) + 1
        self.warnings.append(ReadWarning(message, line, column))


def _one_name(bare: str) -> str:
    """``sym_name = "m"`` of a module in generic form."""
    m = _SYMBOL.search(bare)
    return m.group(1) if m else ""


def _shape_of_return(i: Instruction, op: OpLine) -> None:
    """Gives a return the shape of its operands, as the generic form has no type for it."""
    indices = _RESULT.findall(op.arguments)
    if len(indices) != len(i.operands):
        return
    shapes = [
        o.shape.tuple_shapes[int(k)] if k and int(k) < len(o.shape.tuple_shapes) else o.shape
        for o, k in zip(i.operands, indices, strict=True)
    ]
    if i.shape.text == shape_of("none").text and shapes:
        i.shape = shapes[0] if len(shapes) == 1 else tuple_of(shapes)


def _results_sharding(attributes: list[str], meshes: dict[str, str]) -> str:
    """``sharding=…`` of a function's results, where its signature has any."""
    found = [_SHARDING.match(with_sharding(a, meshes)) for a in attributes]
    if not any(found):
        return ""
    parts = [m[1] if m else "{unknown}" for m in found]
    return f"sharding={parts[0]}" if len(parts) == 1 else f"sharding={{{', '.join(parts)}}}"


def _result_shape(op: OpLine) -> Shape:
    shapes = op.type_shapes
    if not shapes:
        return shape_of("none")
    if op.results > 1 or op.opcode == "return" or op.opcode.endswith(".return"):
        return shapes[0] if len(shapes) == 1 else tuple_of(shapes)
    if op.has_arrow and len(shapes) > 1:
        return tuple_of(shapes)
    return shapes[-1]
