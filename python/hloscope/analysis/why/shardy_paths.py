"""The path along which a mesh axis reached a value, read from Shardy's propagation edges.

    %1 = stablehlo.sine %0 {sdy.propagation_edges = #sdy.propagation_edges<[{step-3 = [
        {"data" = operand-0 -> [result-0]}]}]>, …}

says that at this op ``data`` went from %0 to %1. Followed back from a value, op by op, this gives
the path to the argument or constraint where the axis started. An edge may also lead from a
result to an operand: then the op is a user of the value.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass, field

_VALUE = r"%[\w.]+(?:#\d+)?"
_OP = re.compile(r'^\s*(%[\w.]+)(?::(\d+))? = "?([\w.]+)"?\(?((?:\s*%[\w.#]+,?)*)')
_OPERAND = re.compile(_VALUE)
_EDGES = re.compile(r"sdy\.propagation_edges = #sdy\.propagation_edges<(\[.*?\])>(?:,|\})")
_EDGE = re.compile(r'\{"([^"]+)"[^{}=]* = (operand|result)-(\d+) -> \[([^\]]*)\]\}')
_ORIGIN_NAME = re.compile(r'sdy\.sharding_origin_name = "(\w+)"')
_MOST = 100


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


def read_paths(text: str) -> ShardyPaths:
    """Read ``02.after_propagation.mlir``; lines that are not understood are skipped."""
    found = ShardyPaths()
    inside = False
    for line in text.splitlines():
        if "func.func" in line:
            inside = "@main" in line
        m = _OP.match(line) if inside else None
        if m is None:
            continue
        count = int(m[2] or 1)
        results = (m[1],) if not m[2] else tuple(f"{m[1]}#{r}" for r in range(count))
        named = _ORIGIN_NAME.search(line)
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
