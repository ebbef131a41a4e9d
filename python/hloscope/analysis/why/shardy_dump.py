"""Origins of shardings according to Shardy, read from its verbose dump.

After propagation every value states, per mesh axis, the origin of its sharding:

    %2 = stablehlo.dot_general … sdy.sharding_origins = [{data = "constraint_1", …}]
    %1 = sdy.reshard %0 <@mesh, [{"data"}, {}]> {sdy.sharding_origin_name = "constraint_1", …}

The dump has no source lines and its names differ from HLO's, so values are joined by operation,
shape and sharding. If several look alike but differ in origin, none is chosen.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from ...hlo import Mesh
from ...hlo.shardings.sharding import Sharding
from ...hlo.shardings.sharding_text import parse_sharding, shardy_meshes, split_angle
from .shardy_paths import ShardyPaths, read_paths

Spec = tuple[tuple[str, ...], ...]  # mesh axes of each dimension
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


def spec_of(sharding: Sharding, rank: int, mesh: Mesh | None) -> Spec | None:
    """Axis names per dimension, () for unsharded ones; None if axes cannot express the sharding."""
    spec = sharding.to_spec(mesh, rank) if mesh is not None else sharding.spec
    if spec is None:
        return None
    return tuple(tuple(map(str, axes)) for axes in spec) + ((),) * (rank - len(spec))


def axis_of(ref: str) -> str:
    """The axis that a part belongs to: ``model`` for ``model:(1)2``."""
    return ref.partition(":")[0]


def tile_count(dim: Iterable[str], mesh: Mesh | None) -> int:
    """Into how many tiles these axes, or parts of axes, cut a dimension; 1 without a mesh."""
    sizes = dict(zip(mesh.axis_names, mesh.axis_sizes, strict=True)) if mesh is not None else {}
    parts = (ref.rpartition(")")[2] for ref in dim)
    return math.prod(int(n) if n.isdecimal() else sizes.get(n, 1) for n in parts)


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
