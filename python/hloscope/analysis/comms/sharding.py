"""Data placement: every array that has a sharding, and where a value changes it.

In a partitioned module, ENTRY's parameters are annotated; their printed shapes are already one
device's part, so the global shape comes from the target's arguments, or is local × tiles (padded)
if there is only a dump. Before partitioning, any instruction may be annotated, and shapes are
global.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from ...hlo import Instruction, Mesh, Module, Target
from ...hlo.collective_kinds import is_collective
from ...hlo.shardings.devices import device_counts
from ...hlo.shardings.sharding_text import parse_sharding
from ...hlo.shardings.slices import slices_of
from ..base.meshes import module_mesh
from ..base.table import NO_TARGET, per_devices, table
from ..text.results import Row, Rows
from ..text.units import printed, size
from .arrays import ArrayMaker, ShardedArray

if TYPE_CHECKING:
    pass


@dataclass(frozen=True, slots=True, repr=False)
class Transition(Row):
    """An edge along which a value changes its sharding (before partitioning)."""

    source: Instruction
    target: Instruction
    before: str
    after: str


@dataclass(frozen=True, eq=False, repr=False)
class Shardings(Rows[ShardedArray]):
    """The value of ``cap.shardings``: parameters, then outputs, then other annotated values."""

    rows: tuple[ShardedArray, ...]
    transitions: tuple[Transition, ...]
    mesh: Mesh | None
    num_devices: int
    #: Whether the module's printed shapes are one device's part.
    is_partitioned: bool = False
    #: Role → bytes on one device of arrays without an annotation; NaN before partitioning,
    #: where their placement is not known yet.
    unannotated: Mapping[str, float] = field(default_factory=dict)

    @cached_property
    def parameters(self) -> tuple[ShardedArray, ...]:
        return tuple(r for r in self.rows if r.role == "parameter")

    @cached_property
    def outputs(self) -> tuple[ShardedArray, ...]:
        return tuple(r for r in self.rows if r.role == "output")

    def device_bytes(self, role: str = "parameter") -> npt.NDArray[np.float64]:
        """Bytes that each device holds of all arrays of a role, padding included.

        NaN if an array has neither a sharding nor a local shape.
        """
        rows = [row for row in self.rows if row.role == role]
        return self._held(rows) + self.unannotated.get(role, 0.0)

    def _held(self, rows: list[ShardedArray]) -> npt.NDArray[np.float64]:
        """Bytes of some arrays on each device."""
        out = np.zeros(self.num_devices)
        for row in rows:
            if row.sharding.kind == "maximal" and row.sharding.device is not None:
                if row.sharding.device < self.num_devices:
                    out[row.sharding.device] += row.bytes_per_device
            else:
                out += row.bytes_per_device
        return out

    def counts(self) -> dict[str, int]:
        """Sharding text → number of parameters with it, most frequent first."""
        found: dict[str, int] = {}
        for row in self.parameters:
            found[row.text] = found.get(row.text, 0) + 1
        return dict(sorted(found.items(), key=lambda kv: (-kv[1], kv[0])))

    COLUMNS = (
        "role", "name", "sharding", "global_shape", "local_shape", "element_type", "tiles",
        "replicas", "bytes_per_device", "global_bytes",
    )  # fmt: skip

    def __str__(self) -> str:
        if not self.rows:
            return "no shardings"
        lines = []
        for role in ("parameter", "output", "value"):
            rows = [r for r in self.rows if r.role == role]
            if not rows:
                continue
            held = self._held(rows)
            least, most = held.min(), held.max()
            whole = size(most) if not least < most else f"{size(least)} – {size(most)}"
            lines.append(f"{len(rows)} {role}s, {whole} per device")
            kinds: dict[str, list[ShardedArray]] = {}
            for r in rows:
                kinds.setdefault(r.text, []).append(r)
            for text, same in sorted(kinds.items(), key=lambda kv: -len(kv[1])):
                each = sum(r.bytes_per_device for r in same)
                example = same[0].name + (", …" if len(same) > 1 else "")
                lines.append(f"  {len(same):>5} × {text}  {size(each)}  {example}")
        return printed(lines)


def shardings(module: Module, target: Target | None = None) -> Shardings:
    """Every array of the module that carries a sharding."""
    return _made(module, target if target is not None else NO_TARGET)


@per_devices
def _made(module: Module, target: Target) -> Shardings:
    replicas, partitions = device_counts(module, target)
    partitions *= max(1, len(slices_of(module, target)))
    mesh = module_mesh(module, target)
    local = is_partitioned(module)
    maker = ArrayMaker(target, mesh, partitions, local)
    rows: list[ShardedArray] = []
    if module.entry is not None:
        for p in module.entry.parameters:
            rows += maker.parameter(p)
        rows += maker.outputs(module)
    root = module.entry.root if module.entry is not None else None
    has_outputs = any(r.role == "output" for r in rows)
    values = [] if local else [i for i in _annotated(module) if not (has_outputs and i is root)]
    for i in values:
        rows += maker.leaves("value", i.name, i, i.sharding_text or "")
    return Shardings(
        tuple(rows),
        _transitions(values, mesh, partitions),
        mesh,
        replicas * partitions,
        local,
        _unannotated(module, rows, local),
    )


def _unannotated(module: Module, rows: list[ShardedArray], local: bool) -> dict[str, float]:
    """Bytes by role of arrays without an annotation; known only if shapes are local."""
    if module.entry is None:
        return {}
    annotated = {id(r.instruction) for r in rows if r.role == "parameter"}
    left = [p.shape.byte_size for p in module.entry.parameters if id(p) not in annotated]
    found = {"parameter": left}
    root = module.entry.root
    outputs = [r for r in rows if r.role == "output"]
    if root is not None and (not outputs or (not local and len(outputs) < _leaves(root))):
        found["output"] = [root.shape.byte_size]
    return {role: float(sum(b)) if local else math.nan for role, b in found.items() if any(b)}


def _leaves(root: Instruction) -> int:
    return sum(1 for _ in root.shape.leaves())


# Custom calls that the partitioner removes.
_PARTITIONERS = re.compile(
    r'custom_call_target="(?:SPMDFullToShardShape|SPMDShardToFullShape|Sharding|xla\.sdy\.\w+)"'
)


def is_partitioned(module: Module) -> bool:
    """Whether shapes are one device's part, as after SPMD partitioning.

    Then only ENTRY's parameters (and root) keep their annotations. Before it, ``shard_map`` yields
    collectives too, between custom calls that the partitioner replaces.
    """
    if module.dialect != "hlo":
        return False
    spmd = module.entry is not None and "spmd" in module.entry.name
    t = table(module)
    calls = (module.instructions[i].attribute_text for i in t.where("custom-call").tolist())
    if not spmd and any(_PARTITIONERS.search(text) for text in calls):
        return False
    names = [o for o in t.opcodes if is_collective(o)]
    return spmd or bool(len(t.where(*names))) or "is_scheduled" in module.attributes


def _annotated(module: Module) -> list[Instruction]:
    return [
        i
        for i in module.instructions
        if "sharding=" in i.attribute_text
        and i.sharding_text
        and not (i.opcode == "parameter" and i.computation.is_entry)
        and i.shape.is_array
    ]


def _transitions(
    values: list[Instruction], mesh: Mesh | None, num_devices: int
) -> tuple[Transition, ...]:
    out = []
    for i in values:
        after = parse_sharding(i.sharding_text or "")
        for operand in i.operands if i.opcode in ("copy", "custom-call") else ():
            if operand.shape.dimensions != i.shape.dimensions or not operand.sharding_text:
                continue
            before = parse_sharding(operand.sharding_text)
            rank = i.shape.rank
            if not before.places_alike(after, rank, num_devices):
                texts = before.describe(mesh, rank), after.describe(mesh, rank)
                out.append(Transition(operand, i, *texts))
    return tuple(out)
