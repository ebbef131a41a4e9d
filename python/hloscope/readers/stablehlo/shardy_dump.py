"""Origins of shardings according to Shardy, read from its verbose dump.

After propagation every value states, per mesh axis, the origin of its sharding:

    %2 = stablehlo.dot_general … sdy.sharding_origins = [{data = "constraint_1", …}]
    %1 = sdy.reshard %0 <@mesh, [{"data"}, {}]> {sdy.sharding_origin_name = "constraint_1", …}

The dump has no source lines and its names differ from HLO's, so values are joined by operation,
shape and sharding. If several look alike but differ in origin, none is chosen.

Propagation edges say which way an axis went:

    %1 = stablehlo.sine %0 {sdy.propagation_edges = #sdy.propagation_edges<[{step-3 = [
        {"data" = operand-0 -> [result-0]}]}]>, …}

At this op ``data`` went from %0 to %1. Followed back from a value, op by op, edges give the path to
the argument or constraint where the axis started. An edge may also lead from a result to an
operand: then the op is a user of the value.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass, field

from ...hlo import Mesh
from ...hlo.shardings.sharding_text import parse_sharding, shardy_meshes, split_angle
from ...hlo.shardings.specs import Spec, spec_of

Key = tuple[str, tuple[int, ...], Spec]  # operation, dimensions, spec
Origins = tuple[tuple[str, str], ...]  # (axis, origin)

_OP = re.compile(r'^\s*(%[\w.]+)(?::\d+)? = "?([\w.]+)"?')
_ORIGINS = re.compile(r"sdy\.sharding_origins = (\[[^\]]*\]|\{[^}]*\})")
_ORIGIN = re.compile(r'("?)([\w.:()]+)\1 = "([^"]*)"')
_ORIGIN_NAME = re.compile(r'sdy\.sharding_origin_name = "(constraint_\d+)"')
_CONSTRAINT = re.compile(r"sdy\.(?:reshard|sharding_constraint) %[\w.#]+ (<@.*?>)(?: \{| :)")
_ON_ARGUMENT = re.compile(r"sdy\.(?:reshard|sharding_constraint) %arg(\d+) ")
_PER_VALUE = re.compile(r"sdy\.sharding = #sdy\.sharding_per_value<\[(.*?)\]>(?:, sdy\.|\}|,|$)")
_ARGUMENT = re.compile(r"%arg(\d+): tensor<([^>]*)>(?: \{(.*?)\})?(?=, %arg|\) ->|\)$)")
_TENSOR = re.compile(r"tensor<([^>]*)>")
_NAMES = {
    "dot_general": "dot", "broadcast_in_dim": "broadcast", "reshard": "copy",
    "sharding_constraint": "copy",
}  # fmt: skip
_VALUE = r"%[\w.]+(?:#\d+)?"
_PATH_OP = re.compile(r'^\s*(%[\w.]+)(?::(\d+))? = "?([\w.]+)"?\(?((?:\s*%[\w.#]+,?)*)')
_OPERAND = re.compile(_VALUE)
_EDGES = re.compile(r"sdy\.propagation_edges = #sdy\.propagation_edges<(\[.*?\])>(?:,|\})")
_EDGE = re.compile(r'\{"([^"]+)"[^{}=]* = (operand|result)-(\d+) -> \[([^\]]*)\]\}')
# The longest path that is followed.
_MOST = 100
_ANY_ORIGIN_NAME = re.compile(r'sdy\.sharding_origin_name = "(\w+)"')


@dataclass
class _Op:
    name: str
    operands: tuple[str, ...]
    results: tuple[str, ...]
    origin: str  # "constraint_0", ''
    edges: list[tuple[str, str, tuple[str, ...]]]  # axis, from, to: values

    @property
    def short(self) -> str:
        return self.name.rpartition(".")[2]


@dataclass
class ShardyPaths:
    """Ops of @main by the values they define and by the values they use."""

    makers: dict[str, _Op] = field(default_factory=dict)
    users: dict[str, list[_Op]] = field(default_factory=lambda: defaultdict(list))

    def path(self, value: str, axis: str, origin: str) -> tuple[str, ...]:
        """Ops back from the value to where the axis started; () unless that is ``origin``."""
        out: list[str] = []
        last: _Op | None = None
        seen = {value}
        for _ in range(_MOST):
            maker = self.makers.get(value)
            if maker is not None and origin and maker.origin == origin:
                # The constraint itself passes its axes to its operand: not part of the path.
                return tuple(out[:-1] if last is maker else out)
            if maker is None and origin == f"input: {value.removeprefix('%arg')}":
                return tuple(out)
            steps = [
                (op, source)
                for op in (*([maker] if maker is not None else []), *self.users.get(value, ()))
                for name, source, targets in op.edges
                if name == axis and value in targets and source not in seen
            ]
            if len({source for _, source in steps}) != 1:
                return ()
            last, value = steps[0]
            seen.add(value)
            out.append(last.short)
        return ()


@dataclass
class ShardyDump:
    """``origins``: all origins seen for values of that operation, shape and spec."""

    meshes: dict[str, Mesh]
    arguments: dict[int, Origins] = field(default_factory=dict)
    origins: dict[Key, set[Origins]] = field(default_factory=lambda: defaultdict(set))
    constraints: list[tuple[str, tuple[int, ...], Spec]] = field(default_factory=list)
    on_argument: dict[str, int] = field(default_factory=dict)  # constraint → argument number
    values: dict[Key, list[str]] = field(default_factory=lambda: defaultdict(list))
    paths: ShardyPaths = field(default_factory=ShardyPaths)

    def origin(self, key: Key, axis: str) -> str | None:
        """The origin of one axis of a value, if all values that look alike agree."""
        found = {dict(o).get(axis) for o in self.origins.get(key, ())}
        return found.pop() if len(found) == 1 else None

    def path(self, key: Key, axis: str) -> tuple[str, ...]:
        """Ops an axis was propagated along, back from the value; () unless all alike agree."""
        origin = self.origin(key, axis)
        found = {self.paths.path(v, axis, origin or "") for v in self.values.get(key, ())}
        return found.pop() if len(found) == 1 else ()


def read_shardy_dump(text: str) -> ShardyDump:
    """Read ``02.after_propagation.mlir``; lines that are not understood are skipped."""
    dump = ShardyDump(shardy_meshes(text), paths=read_paths(text))
    for line in text.splitlines():
        if "func.func" in line and "@main" in line:
            _arguments(dump, line)
            continue
        m = _OP.match(line)
        if m is not None and "sdy." in line:
            _operation(dump, m[1], m[2], line)
    dump.constraints.sort(key=lambda c: int(c[0].rpartition("_")[2]))
    return dump


def _arguments(dump: ShardyDump, line: str) -> None:
    for number, _, attributes in _ARGUMENT.findall(line.partition(") -> ")[0] + ") -> "):
        origins = _ORIGINS.search(attributes or "")
        if origins:
            dump.arguments[int(number)] = _pairs(origins[1])


def _operation(dump: ShardyDump, value: str, op: str, line: str) -> None:
    short = op.rpartition(".")[2]
    name = _NAMES.get(short, short.replace("_", "-"))
    body, _, types = line.rpartition(" : ")
    results = _TENSOR.findall(types.rpartition("->")[2])
    origins = _ORIGINS.search(line)
    found = [_pairs(p) for p in re.findall(r"\{[^}]*\}", origins[1])] if origins else []
    if constraint := _CONSTRAINT.search(line):
        texts = [constraint[1]]
    else:
        per_value = _PER_VALUE.search(body)
        texts = split_angle(per_value[1]) if per_value else []
    for at, text in enumerate(texts):
        if at >= len(results):
            break
        dims = _dimensions(results[at])
        spec = spec_of(parse_sharding(text, dump.meshes), len(dims), None)
        if spec is None:
            continue
        if name == "copy":
            named = _ORIGIN_NAME.search(line)
            if named:
                dump.constraints.append((named[1], dims, spec))
                if on := _ON_ARGUMENT.search(line):
                    dump.on_argument[named[1]] = int(on[1])
                axes = [a for dim in spec for a in dim]
                dump.origins[name, dims, spec].add(tuple((a, named[1]) for a in axes))
                continue
        if at < len(found):
            dump.origins[name, dims, spec].add(found[at])
            dump.values[name, dims, spec].append(value if len(texts) == 1 else f"{value}#{at}")


def _pairs(text: str) -> Origins:
    return tuple((axis, origin) for _, axis, origin in _ORIGIN.findall(text))


def _dimensions(tensor: str) -> tuple[int, ...]:
    parts = tensor.partition(",")[0].split("x")
    return tuple(int(p) for p in parts[:-1] if p.isdecimal())


def read_paths(text: str) -> ShardyPaths:
    """Read ``02.after_propagation.mlir``; lines that are not understood are skipped."""
    found = ShardyPaths()
    inside = False
    for line in text.splitlines():
        if "func.func" in line:
            inside = "@main" in line
        m = _PATH_OP.match(line) if inside else None
        if m is None:
            continue
        count = int(m[2] or 1)
        results = (m[1],) if not m[2] else tuple(f"{m[1]}#{r}" for r in range(count))
        named = _ANY_ORIGIN_NAME.search(line)
        operands = tuple(_OPERAND.findall(m[4]))
        op = _Op(m[3], operands, results, named[1] if named else "", [])
        op.edges = _edges(line, op)
        for r in results:
            found.makers[r] = op
        for o in dict.fromkeys(operands):
            found.users[o].append(op)
    return found


def _edges(line: str, op: _Op) -> list[tuple[str, str, tuple[str, ...]]]:
    text = _EDGES.search(line)
    out = []
    for axis, side, number, targets in _EDGE.findall(text[1]) if text else ():
        source = _value(op, f"{side}-{number}")
        ends = tuple(_value(op, t.strip()) for t in targets.split(","))
        if source and all(ends):
            out.append((axis, source, ends))
    return out


def _value(op: _Op, name: str) -> str:
    side, _, number = name.partition("-")
    values = op.operands if side == "operand" else op.results
    return values[int(number)] if number.isdecimal() and int(number) < len(values) else ""
