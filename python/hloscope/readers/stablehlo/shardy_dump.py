"""Origins of shardings according to Shardy, read from its verbose dump as a graph of values.

After propagation every value states, per mesh axis, the origin of its sharding:

    %2 = stablehlo.dot_general … sdy.sharding_origins = [{data = "constraint_1", …}]
    %1 = sdy.reshard %0 <@mesh, [{"data"}, {}]> {sdy.sharding_origin_name = "constraint_1", …}

Propagation edges say which way an axis went:

    %1 = stablehlo.sine %0 {sdy.propagation_edges = #sdy.propagation_edges<[{step-3 = [
        {"data" = operand-0 -> [result-0]}]}]>, …}

At this op ``data`` went from %0 to %1. Followed back from a value, op by op, edges give the path to
the argument or constraint where the axis started. An edge may also lead from a result to an
operand: then the op is a user of the value.

What a loop carries is one value: the argument of its regions is its result.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from ...hlo import Mesh
from ...hlo.shardings.sharding_text import parse_sharding, shardy_meshes, split_angle
from ...hlo.shardings.specs import Spec, axis_of, spec_of

CONSTRAINTS = ("reshard", "sharding_constraint")
MANUAL = "manual_computation"
_FLOWS = ("while", "case", "if", "optimization_barrier", MANUAL)

_OP = re.compile(r'^\s*(?:(%[\w.]+)(?::(\d+))? = )?"?([\w.]+)"?(.*)$')
_NAMED = re.compile(r"(%[\w.]+(?:#\d+)?)(?![\w.#:])")
_TYPE = r"tensor<([^<>]*(?:<[^<>]*>[^<>]*)*)>"  # of complex numbers: tensor<8xcomplex<f32>>
_ARGUMENT = re.compile(rf"(%[\w.]+): {_TYPE}")
_CARRIED = re.compile(r"(%[\w.]+) = (%[\w.]+(?:#\d+)?)")
_GIVEN = re.compile(rf"%arg(\d+): {_TYPE}(?: \{{(.*?)\}})?(?=, %arg|\) ->|\)$)")
_TENSOR = re.compile(_TYPE)
_PLACE = re.compile(r' loc\((?:"[^"]*"(?:\(#loc\d*\))?|#loc\d*)\)')  # XLA:TPU prints them
_PER_VALUE = "sdy.sharding = #sdy.sharding_per_value"
_ON = re.compile(r"sdy\.(?:reshard|sharding_constraint) %[\w.#]+ (<@.*?>)(?: \{| :)")
_OUT = re.compile(r"out_shardings=\[(.*?)\] manual_axes")
_ORIGINS = re.compile(r"(?:sdy\.|result_)sharding_origins = (\[[^\]]*\]|\{[^}]*\})")
_ORIGIN = re.compile(r'("?)([\w.:()]+)\1 = "([^"]*)"')
_ORIGIN_NAME = re.compile(r'sdy\.sharding_origin_name = "(\w+)"')
_EDGES = re.compile(r"#sdy\.propagation_edges<(\[.*?\])>")
_EDGE = re.compile(r'\{"([^"]+)"[^{}=]* = (operand|result)-(\d+) -> \[([^\]]*)\]\}')
_MOST = 100  # ops of the longest path that is followed


@dataclass(eq=False, repr=False)
class ShardyValue:
    """A result of an op, or an argument of the program or of a region (``op`` is its owner)."""

    op: ShardyOp | None
    number: int
    dims: tuple[int, ...] = ()
    spec: Spec | None = None
    origins: dict[str, str] = field(default_factory=dict)  # axis, or part of one → origin
    is_argument: bool = False
    users: list[ShardyOp] = field(default_factory=list)


@dataclass(eq=False, repr=False)
class ShardyOp:
    """An op of ``@main`` or of a region in it."""

    name: str  # "stablehlo.sine"
    operands: list[ShardyValue] = field(default_factory=list)
    results: list[ShardyValue] = field(default_factory=list)
    origin: str = ""  # "constraint_0", "mc_0", ''
    edges: list[tuple[str, ShardyValue, tuple[ShardyValue, ...]]] = field(default_factory=list)
    returned: list[list[ShardyValue]] = field(default_factory=list)  # what each region returns
    arguments: list[list[ShardyValue]] = field(default_factory=list)  # those of each region

    @property
    def short(self) -> str:
        return self.name.rpartition(".")[2]


@dataclass(repr=False)
class ShardyDump:
    """``@main`` as a graph; ``constraints`` are its ops by the names that origins have."""

    meshes: dict[str, Mesh]
    arguments: list[ShardyValue] = field(default_factory=list)
    returned: list[ShardyValue] = field(default_factory=list)
    constraints: dict[str, ShardyOp] = field(default_factory=dict)

    def path(self, value: ShardyValue, axis: str) -> tuple[str, ...]:
        """Ops an axis was propagated along, back from the value; () unless there is one way."""
        origin = value.origins.get(axis, "")
        base = axis_of(axis)
        out: list[str] = []
        seen = {value}
        last: ShardyOp | None = None
        for _ in range(_MOST):
            maker = value.op if not value.is_argument else None
            if maker is not None and origin and maker.origin == origin:
                # The constraint itself passes its axes to its operand: not part of the path.
                return tuple(out[:-1] if last is maker else out)
            if maker is None and origin == f"input: {value.number}":
                return tuple(out)
            steps = [
                (op, source)
                for op in (*([maker] if maker is not None else ()), *value.users)
                for name, source, targets in op.edges
                if axis_of(name) == base and value in targets and source not in seen
            ]
            if len({source for _, source in steps}) != 1:
                return ()
            last, value = steps[0]
            seen.add(value)
            out.append(last.short)
        return ()


def read_shardy_dump(text: str) -> ShardyDump:
    """Read ``02.after_propagation.mlir``; lines that are not understood are skipped."""
    reader = _ShardyReader(ShardyDump(shardy_meshes(text)))
    inside = False
    for each in text.splitlines():
        line = _PLACE.sub("", each)
        if "func.func" in line:
            inside = "@main" in line
            if inside:
                reader.head(line)
        elif inside:
            reader.line(line)
    return reader.dump


def given_results(text: str) -> tuple[bool, ...]:
    """Which results of ``@main`` were given a sharding, read from ``00.input_module.mlir``."""
    heads = (x for x in text.splitlines() if "func.func" in x and "@main" in x)
    head = _PLACE.sub("", next(heads, ""))
    results = _TENSOR.split(head.partition(") -> ")[2])[2::2]  # what follows each type
    return tuple("sdy.sharding = " in r for r in results)


@dataclass
class _OpenRegion:
    """An op whose regions are being read, and the names known outside of them."""

    op: ShardyOp
    names: dict[str, ShardyValue]
    texts: list[str]


class _ShardyReader:
    def __init__(self, dump: ShardyDump) -> None:
        self.dump = dump
        self.names: dict[str, ShardyValue] = {}
        self.open: list[_OpenRegion] = []

    def head(self, line: str) -> None:
        """``func.func @main(%arg0: tensor<…> {…}, …) -> (…) {``."""
        for number, tensor, attributes in _GIVEN.findall(line.partition(") -> ")[0] + ") -> "):
            dims = _dimensions(tensor)
            value = ShardyValue(None, int(number), dims, is_argument=True)
            found = _ORIGINS.search(attributes)
            if found:
                said = dict(_pairs(found[1]))
                value.origins = {a: _own(o, f"input: {number}") for a, o in said.items()}
            self.names[f"%arg{number}"] = value
            self.dump.arguments.append(value)

    def line(self, line: str) -> None:
        text = line.strip()
        if text.startswith("}"):
            self._close(text)
            return
        if text.startswith("^") and self.open:
            self._region_arguments(text)
            return
        if text in ("cond {", "do {"):
            self.open[-1].op.returned.append([])
            return
        if text.startswith("reducer("):  # of a reduction of several arrays
            self.open.append(_OpenRegion(ShardyOp("reducer", returned=[[]]), dict(self.names), []))
            self._region_arguments(text)
            return
        m = _OP.match(line)
        if m is None or ("." not in m[3] and m[3] not in ("return", "call")):
            return
        if m[3].rpartition(".")[2] == "return":
            self._return(m[4])
            return
        op = ShardyOp(m[3])
        opens = text.endswith("{")
        body = m[4].partition(" attributes {")[0] if " attributes {" in m[4] else m[4]
        pairs = _CARRIED.findall(body.partition(" : ")[0]) if op.short == "while" else []
        named = [b for _, b in pairs] or _NAMED.findall(body)
        for name in named:
            value = self.names.get(name)
            if value is not None:
                op.operands.append(value)
                if op not in value.users[-1:]:
                    value.users.append(op)
        count = int(m[2] or 1) if m[1] else 0
        op.results = [ShardyValue(op, n) for n in range(count)]
        for n, value in enumerate(op.results):
            self.names[m[1] if not m[2] else f"{m[1]}#{n}"] = value
        if op.short == "reduce" and count > 1:  # pairs of an array and its initial value
            op.operands = op.operands[::2] + op.operands[1::2]
        is_while = op.short == "while"
        if opens or is_while:
            self.open.append(_OpenRegion(op, dict(self.names), [m[4]]))
            for (name, _), value in zip(pairs, op.results, strict=False):
                self.names[name] = value
            if is_while:
                return
            op.returned.append([])
            if op.short == MANUAL:
                self._region_arguments(m[4])
        else:
            self._finish(op, [m[4]])

    def _region_arguments(self, text: str) -> None:
        op = self.open[-1].op
        found = [
            (name, ShardyValue(op, n, _dimensions(t), is_argument=True))
            for n, (name, t) in enumerate(_ARGUMENT.findall(text))
        ]
        op.arguments.append([value for _, value in found])
        self.names.update(found)

    def _return(self, text: str) -> None:
        values = [v for n in _NAMED.findall(text.partition(" : ")[0]) if (v := self.names.get(n))]
        if self.open:
            if self.open[-1].op.returned:
                self.open[-1].op.returned[-1] = values
        elif not self.dump.returned:
            self.dump.returned = values

    def _close(self, text: str) -> None:
        if not self.open:
            return
        top = self.open[-1]
        outer = dict(top.names)
        for name, value in self.names.items():
            if value.op is top.op and not value.is_argument and name not in outer:
                outer[name] = value  # what a loop carries
        if text.endswith("{"):  # the next region
            self.names = outer
            top.op.returned.append([])
            return
        self.names = dict(top.names)
        self.open.pop()
        self._finish(top.op, [*top.texts, text])

    def _finish(self, op: ShardyOp, texts: list[str]) -> None:
        """Attributes and types, which stand before or after the regions."""
        whole = " ".join(texts)
        if named := _ORIGIN_NAME.search(whole):
            op.origin = named[1]
            self.dump.constraints[named[1]] = op
        tensors = _result_types(op, texts)
        shardings = self._shardings(op, whole)
        for at, value in enumerate(op.results):
            value.dims = _dimensions(tensors[at]) if at < len(tensors) else ()
            if at < len(shardings):
                sharding = parse_sharding(shardings[at], self.dump.meshes)
                value.spec = spec_of(sharding, len(value.dims), None)
        self._origins(op, whole)
        self._edges(op, whole)

    def _shardings(self, op: ShardyOp, text: str) -> list[str]:
        if op.short in CONSTRAINTS:
            found = _ON.search(f" {op.name}{text}")
            return [found[1]] if found else []
        if op.short == MANUAL:
            out = _OUT.search(text)
            return split_angle(out[1]) if out else []
        whole = split_angle(text.partition(_PER_VALUE)[2])
        return split_angle(whole[0][1:-1]) if whole else []

    def _origins(self, op: ShardyOp, text: str) -> None:
        found = _ORIGINS.search(text)
        said = [dict(_pairs(p)) for p in re.findall(r"\{[^}]*\}", found[1])] if found else []
        if op.short in CONSTRAINTS and op.origin and op.results:
            axes = [a for dim in op.results[0].spec or () for a in dim]
            each = said[0] if said else {}
            op.results[0].origins = {a: _own(each.get(a, "self"), op.origin) for a in axes}
            return
        for at, value in enumerate(_of_list(op, len(said))):
            value.origins = {
                a: _own(o, f"{op.origin}_output: {value.number}") for a, o in said[at].items()
            }

    def _edges(self, op: ShardyOp, text: str) -> None:
        """Which way axes went at an op; at a loop or a branch for each value that it passes on."""
        if op.short not in _FLOWS:
            lists = _EDGES.findall(text)
            values = {"operand": op.operands, "result": op.results}
            for found in lists[:1]:
                op.edges += _edges_of(found, values)
            return
        lists = _EDGES.findall(text.partition("sdy.result_propagation_edges")[2])
        for found, value in zip(lists, _of_list(op, len(lists)), strict=False):
            begun = op.operands[value.number : value.number + 1] if op.short != "case" else []
            ends = [r[value.number] for r in op.returned if value.number < len(r)]
            if op.short == "while":  # its condition returns something else
                ends = ends[-1:]
            op.edges += _edges_of(found, {"operand": [*begun, *ends], "result": [value]})


def _of_list(op: ShardyOp, count: int) -> list[ShardyValue]:
    """The results that ``count`` entries of a list are of: those without any axis have none."""
    if count == len(op.results):
        return op.results
    cut = [v for v in op.results if v.spec is not None and any(v.spec)]
    return cut if len(cut) == count else []


def _edges_of(
    text: str, values: dict[str, list[ShardyValue]]
) -> Iterator[tuple[str, ShardyValue, tuple[ShardyValue, ...]]]:
    def value(name: str) -> ShardyValue | None:
        side, _, number = name.strip().partition("-")
        some = values.get(side, [])
        return some[int(number)] if number.isdecimal() and int(number) < len(some) else None

    for axis, side, number, targets in _EDGE.findall(text):
        source = value(f"{side}-{number}")
        ends = tuple(v for t in targets.split(",") if (v := value(t)) is not None)
        if source is not None and len(ends) == len(targets.split(",")):
            yield axis, source, ends


def _result_types(op: ShardyOp, texts: list[str]) -> list[str]:
    """The types of the results: after ``->``, else the last of the types that are listed."""
    count = len(op.results)
    for text in reversed(texts):
        body = text.partition(" attributes {")[0] if " attributes {" in text else text
        types = body.rpartition(" : ")[2] if " : " in body else ""
        found = _TENSOR.findall(types.rpartition("->")[2])
        if found:
            return found[-count:]
    return []


def _own(origin: str, name: str) -> str:
    return name if origin == "self" else origin


def _pairs(text: str) -> list[tuple[str, str]]:
    return [(axis, origin) for _, axis, origin in _ORIGIN.findall(text)]


def _dimensions(tensor: str) -> tuple[int, ...]:
    parts = tensor.partition(",")[0].split("x")
    return tuple(int(p) for p in parts[:-1] if p.isdecimal())
