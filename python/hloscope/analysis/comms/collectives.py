"""Collectives, one row per logical one: what moves, over which axes, how often and why.

base/collectives/   which instructions are one collective; collective matmuls; halo exchanges
slices.py           exchanges between TPU slices
wire.py             bytes on the wire
base/phases, loops  forward or backward; how often
   └─▶ Collectives: rows, totals, traffic
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from ...hlo import Instruction, Mesh, Module, Target
from ...hlo.collective_kinds import OF_PERMUTES, PERMUTE
from ...hlo.limits import MOST_IN_TABLE
from ...hlo.shardings.devices import (
    DeviceGroups,
    axes_text,
    device_counts,
    device_groups,
    names_nobody,
)
from ...hlo.shardings.slices import in_every_slice, slices_of
from ..base.collectives.find import Found, find, payload
from ..base.collectives.halo import join_halos
from ..base.collectives.windowed import join_windowed
from ..base.lines.frames import FrameFinder
from ..base.lines.lines import lines
from ..base.lines.op_name import merged_names
from ..base.lines.rules import with_rule
from ..base.loops.branches import branches, heaviest, most_runs, most_runs_a_trip
from ..base.loops.trips import may_not_run, multiplicity
from ..base.meshes import module_mesh
from ..base.operands import ValueSource, source_of
from ..base.pause import uncollected
from ..base.phases.names import phase_names
from ..base.phases.phases import phases
from ..base.table import NO_TARGET, per_devices
from ..text.results import Rows
from ..text.units import ONE_TRIP, ONE_TRIP_MEANS, marked, printed, size, spanned
from .collective import AskedLines, Collective, Part, Total, total_of
from .slices import (
    exchanged,
    find_between_slices,
    groups_between,
    is_between_slices,
    name_of,
)
from .wire import Traffic, add_traffic, wire_bytes

if TYPE_CHECKING:
    import pandas as pd

# Primitives of jax.lax that users write; the partitioner's collectives carry other op names.
_WRITTEN = re.compile(
    r"(?:^|/)(?:psum\w*|pmax|pmin|pmean|all_gather\w*|reduce_scatter|psum_scatter|ppermute"
    r"|pshuffle|pbroadcast|all_to_all|ragged_all_to_all|collective_permute)\d*(?:\[.*)?$",
    re.S,
)


@dataclass(frozen=True, eq=False, repr=False)
class Collectives(Rows[Collective]):
    """The value of ``cap.collectives``: rows in program order; prints a table of totals."""

    rows: tuple[Collective, ...]
    mesh: Mesh | None
    num_devices: int
    dialect: str = "hlo"  # only HLO has rows
    num_slices: int = 0  # number of TPU slices if several, else 0; links between them are DCN

    def totals(self, by: Sequence[str] = ("axes", "kind")) -> tuple[Total, ...]:
        """Sums by attributes of a row (axes, kind, element_types, phase, line, …).

        Most wire bytes come first.
        """
        sums: dict[tuple[str | None, ...], list[Collective]] = {}
        for row in self.rows:
            key = tuple(self._key(row, name) for name in by)
            sums.setdefault(key, []).append(row)
        found = [total_of(key, rows) for key, rows in sums.items()]
        return tuple(sorted(found, key=lambda t: (-t.wire_bytes, -t.payload_bytes, str(t.key))))

    @staticmethod
    def _key(row: Collective, name: str) -> str | None:
        value = getattr(row, "axes_or_groups" if name == "axes" else name)
        return value if value is None else str(value)

    @cached_property
    def by_instruction(self) -> dict[int, Collective]:
        """Instruction index → the collective it belongs to, for all members."""
        return {m: row for row in self.rows for m in row.members}

    def find(self, which: Collective | str) -> Collective:
        """The row of an instruction's name, with or without %, or the given row itself.

        Raises ``ValueError`` for an unknown name, with similar ones, and for a row of another
        capture.
        """
        if isinstance(which, str):
            name = which.removeprefix("%")
            names = {
                row.instruction.module.instructions[m].name: row
                for row in self.rows
                for m in row.members
            }
            if name in names:
                return names[name]
            from difflib import get_close_matches

            near = get_close_matches(name, names, 3) or [row.name for row in self.rows[:5]]
            hint = f"; there are {', '.join(near)}" if near else "; it has none"
            raise ValueError(f"no collective of this capture is called {which!r}{hint}")
        found = self.by_instruction.get(which.instruction.index)
        if found is None or found.instruction is not which.instruction:
            raise ValueError(f"{which.name} is a collective of another capture")
        return found

    @property
    def payload_bytes(self) -> int:
        """Payload of all executions; if branches differ, of those that move most."""
        return self.total.payload_bytes

    @property
    def wire_bytes(self) -> int | None:
        """Bytes sent by one device in all executions; None if none of it is known.

        Unknown parts are left out of a sum with known ones: ``total.is_lower_bound``. If branches
        differ, those that send most count; ``total`` has the least as well.
        """
        return self.total.known_wire_bytes

    @cached_property
    def total(self) -> Total:
        """Sums over all rows."""
        return total_of((), list(self.rows))

    @property
    def reductions_by_type(self) -> tuple[Total, ...]:
        """Sums of what is reduced (all-reduce, reduce-scatter) by element type, as ``totals``."""
        return replace(self, rows=tuple(r for r in self.rows if r.reduces)).totals(
            ("element_types",)
        )

    def traffic(self, rows: Iterable[Collective] | None = None) -> Traffic:
        """Bytes sent by device (row) to device (column) in all executions of ``rows`` or of all.

        Modelled as rings in the printed order of each group (``wire.add_traffic``). Raises
        ``ValueError`` for more devices than a table can have.
        """
        n = self.num_devices
        if n > MOST_IN_TABLE:
            raise ValueError(
                f"a table of who sends to whom has {n:,} × {n:,} figures here; it is made for up "
                f"to {MOST_IN_TABLE:,} devices"
            )
        return self._sent(np.zeros((n, n)), rows)

    def sent_bytes(self) -> npt.NDArray[np.float64]:
        """Bytes that each device sends in all executions, as in ``traffic``."""
        return self._sent(np.zeros(self.num_devices), None)

    def _sent(self, out: Traffic, rows: Iterable[Collective] | None) -> Traffic:
        if rows is None:  # of mutually exclusive branches, those that send most
            sent = [(r.branches, float(r.total_wire_bytes or 0)) for r in self.rows]
            rows = [self.rows[n] for n in sorted(heaviest(sent))]
        for row in rows:
            times = row.counted
            if not row.is_of_permutes:
                add_traffic(out, row.kind, row.payload_bytes * times, row.groups)
                continue
            for part in row.parts:
                groups = part.groups
                each = part.bytes * times * max(1, part.executions)
                add_traffic(out, PERMUTE, each, groups)
        return out

    COLUMNS = (
        "kind", "name", "axes", "network", "element_types", "group_size", "payload_bytes",
        "wire_bytes", "executions", "executions_most", "phase", "written_by", "moves", "op_name",
        "line", "line_inferred", "parts",
    )  # fmt: skip

    def to_pandas(self) -> pd.DataFrame:
        """One row per collective; ``axes`` has the groups where axes are unknown. Needs pandas."""
        import pandas as pd

        rows = [
            row.to_dict() | {"axes": row.axes_or_groups, "parts": len(row.parts)}
            for row in self.rows
        ]
        return pd.DataFrame(rows, columns=list(self.COLUMNS))

    def __str__(self) -> str:
        return _text(self)


def _text(found: Collectives) -> str:
    """One line per total; ``≥`` marks sums in which a trip count or formula is unknown, ``a – b``
    those that depend on which branches run."""
    if not found.rows and found.dialect != "hlo":
        return f"collectives are not known yet: this is {found.dialect}, before partitioning"
    if not found.rows:
        return "no collectives"
    mesh = found.mesh
    over = f"{found.num_devices} devices"
    if mesh is not None:
        axes = zip(mesh.axis_names, mesh.axis_sizes, strict=True)
        over += ", mesh " + " × ".join(f"{name}={n}" for name, n in axes)
    if found.num_slices:
        over += f", {found.num_slices} slices"
    head = f"{len(found.rows)} collectives over {over}"
    rows = [("kind", "axes", "type", "count", "executions", "payload", "wire per device")]
    for t in found.totals(("kind", "axes", "element_types")):
        kind, axes_or_groups, types = (k or "unknown" for k in t.key)
        rows.append((
            kind, axes_or_groups, types, str(t.count),
            _marked(t, t.least_executions, t.executions, str),
            _marked(t, t.least_payload_bytes, t.payload_bytes, size),
            _wire(t),
        ))  # fmt: skip
    widths = [max(len(r[c]) for r in rows) for c in range(len(rows[0]))]
    lines = []
    for r in rows:
        cells = [r[c].ljust(widths[c]) if c < 3 else r[c].rjust(widths[c]) for c in range(len(r))]
        lines.append("  ".join(cells).rstrip())
    if found.num_slices:  # transfers between slices use another network
        networks = sorted(found.totals(("network",)), key=lambda t: str(t.key))
        said = (f"{t.key[0]} {_wire(t)}" for t in networks)
        lines.append("wire per device and network: " + ", ".join(said))
    reduced = found.reductions_by_type
    if len(reduced) > 1:
        each = (f"{t.key[0] or 'unknown'} {_wire(t)}" for t in reduced)
        lines.append("reductions by type, wire per device: " + ", ".join(each))
    if (total := found.total).is_range:
        lines.append(
            f"in all {_wire(total)} per device, depending on which branches of conditionals run"
        )
    if total.is_one_trip:
        lines.append(f"{ONE_TRIP}: {ONE_TRIP_MEANS}")
    return printed([head, *lines])


def _wire(t: Total) -> str:
    if t.wire_is_unknown:
        return "unknown"
    return _marked(t, t.least_wire_bytes, t.wire_bytes, size)


def _marked(t: Total, least: int, most: int, written: Callable[[float], str]) -> str:
    """Of a lower bound the least, as it is none of the most."""
    said = written(least) if t.is_lower_bound else spanned(least, most, written)
    return marked(said, is_least=t.is_lower_bound, is_one_trip=t.is_one_trip)


def collectives(module: Module, target: Target | None = None) -> Collectives:
    """Every logical collective of a module, in program order."""
    return _placed(module, target if target is not None else NO_TARGET)


@per_devices
def _placed(module: Module, target: Target) -> Collectives:
    """The rows with the lines that ask for them, where the program before partitioning is known."""
    found = listed(module, target)
    if target.asked_lines is None or target.before_partitioning is None or not found.rows:
        return found
    asked = AskedLines(module, target)
    return replace(found, rows=tuple(replace(row, _by_card=asked) for row in found.rows))


@per_devices
@uncollected()
def listed(module: Module, target: Target) -> Collectives:
    """The same with the lines that XLA gives, or that follow from the optimised program alone."""
    replicas, partitions = device_counts(module, target)
    maker = _Maker(module, target, replicas, partitions)
    found = join_windowed(module, join_halos(module, find(module)))
    found = sorted([*found, *find_between_slices(module)], key=lambda f: f.op.index)
    rows = tuple(maker.row(index, f) for index, f in enumerate(found))
    return Collectives(rows, maker.mesh, maker.devices, module.dialect, len(maker.slices))


class _Maker:
    """What all rows of one module share."""

    def __init__(self, module: Module, target: Target, replicas: int, partitions: int):
        self.target = target
        self.replicas, self.partitions = replicas, partitions
        # A proto may lack the number of devices of its program, which text always has.
        self.nobody_counts = module.source_text is None and replicas * partitions == 1
        self.mesh = module_mesh(module, target)
        self.slices = slices_of(module, target)
        self.devices = replicas * partitions * max(1, len(self.slices))
        self.phase = phases(module)
        self.counts = multiplicity(module)
        self.most, self.branches = most_runs(module), branches(module)
        self.a_trip = most_runs_a_trip(module)
        self.may_not_run = may_not_run(module)
        self.frames = FrameFinder(module)
        # The same few groups repeat thousands of times in a module.
        self._axes: dict[int, tuple[DeviceGroups, str | None]] = {}
        self._groups: dict[object, DeviceGroups | None] = {}

    def groups(self, op: Instruction) -> DeviceGroups | None:
        """The device groups that one instruction runs over, in the whole program."""
        if is_between_slices(op):
            return groups_between(op, self.slices)
        found = self._groups.get(groups_key(op))
        if found is None:
            unsaid = self.nobody_counts and names_nobody(op)
            local = None if unsaid else device_groups(op, self.replicas, self.partitions)
            found = self._groups[groups_key(op)] = in_every_slice(local, self.slices)
        return found

    def axes(self, groups: DeviceGroups | None) -> str | None:
        """The mesh axes of groups, as text."""
        if groups is None:
            return None
        found = self._axes.get(id(groups))
        if found is None:
            found = self._axes[id(groups)] = (groups, axes_text(groups.axes(self.mesh)))
        return found[1]

    def row(self, index: int, found: Found) -> Collective:
        op, anchor = found.op, found.anchor
        named = largest = op if op.op_name else anchor
        frames, inferred = self.frames.of(op) or self.frames.of(anchor), ""
        # XLA gives a combined one the line of its first array.
        if not frames or (len(op.operands) > 1 and not found.transfers):
            known = lines(op.module)
            one = op if known.frame[op.index] else anchor
            if frames and (part := known.serves(one)) is not None and part.op_name:
                largest = part
            frames, inferred = known.frames(one), known.why(one)
        ruled = with_rule(largest.op_name, frames, self.target.sources)
        groups, parts = self.groups_and_parts(found)
        total = sum(p.bytes * max(1, p.executions) for p in parts)
        size = groups.group_size if groups is not None else 0
        value = self.phase[op.index] or self.phase[anchor.index]
        wire = self.wire(found, parts, groups, size, total)
        return Collective(
            index=index,
            kind=found.kind,
            instruction=op,
            anchor=anchor,
            members=tuple(sorted(found.members)),
            parts=parts,
            payload_bytes=total,
            wire_bytes=wire,
            groups=groups,
            group_size=size,
            axes=self.axes(groups),
            executions=self.counts[anchor.computation.index],
            most_executions=self.most[anchor.computation.index],
            executions_a_trip=self.a_trip[anchor.computation.index] or 1,
            branches=self.branches[anchor.computation.index],
            phase=phase_names(op.module)[value],
            inserted=is_inserted(op, anchor, named.op_name or name_of(op)),
            network=self.network(op),
            op_name=largest.op_name,
            frames=frames,
            guessed=inferred,
            ruled=ruled if ruled != frames else (),
            moves=self.moved(found),
            may_not_run=self.may_not_run[anchor.computation.index],
        )

    def network(self, op: Instruction) -> str:
        """Network: dcn between TPU slices, ici within one of several; '' if there is only one."""
        return ("dcn" if is_between_slices(op) else "ici") if self.slices else ""

    def moved(self, found: Found) -> ValueSource | None:
        """The value that it moves; of several permutes, the most specific one."""
        ops = [f.op for f in found.transfers] or [found.op]
        sources = [source_of(op.operands[0], self.target) for op in ops if op.operands]
        order = ("argument", "value", "constant", "loop")
        return min(sources, key=lambda s: order.index(s.kind), default=None)

    def groups_and_parts(self, found: Found) -> tuple[DeviceGroups | None, tuple[Part, ...]]:
        if not found.transfers:
            between = is_between_slices(found.op)
            arrays = exchanged(found) if between else payload(found)[1]
            given = found.op.operands if len(found.op.operands) == len(arrays) else ()
            parts = tuple(
                Part(
                    shape, size, found.op,
                    moves=source_of(given[n], self.target) if n < len(given) else None,
                )
                for n, (shape, size) in enumerate(arrays)
            )  # fmt: skip
            return self.groups(found.op), parts
        parts = ()
        whole = self.counts[found.anchor.computation.index]
        for one in found.transfers:
            size, arrays = payload(one)
            runs = self.counts[one.anchor.computation.index]
            inner = runs // whole if runs is not None and whole else -1
            shape, groups = arrays[0][0] if arrays else "", self.groups(one.op)
            parts += (Part(shape, size, one.op, inner, groups),)
        return self.pairs([f.op for f in found.transfers]), parts

    def pairs(self, ops: list[Instruction]) -> DeviceGroups | None:
        """All source-target pairs of several permutes."""
        found = [self.groups(op) for op in ops]
        each = {g.text: g.pairs for g in found if g is not None and g.pairs is not None}
        if len(each) < 2 or None in found:
            return found[0]
        pairs = np.unique(np.concatenate(list(each.values())), axis=0)
        return DeviceGroups(" ".join(each), pairs=pairs)

    def most_sent(self, parts: tuple[Part, ...]) -> int | None:
        """Bytes sent by the device that sends most: the ends of a chain have only one neighbour."""
        sent = np.zeros(self.devices, dtype=np.int64)
        for part in parts:
            groups = part.groups
            if groups is None or groups.pairs is None:
                return None
            moving = groups.pairs[groups.pairs[:, 0] != groups.pairs[:, 1]]
            from_here = moving[moving[:, 0] < len(sent), 0]
            np.add.at(sent, from_here, part.bytes * part.executions)
        return int(sent.max(initial=0))

    def wire(
        self,
        found: Found,
        parts: tuple[Part, ...],
        groups: DeviceGroups | None,
        size: int,
        total: int,
    ) -> int | None:
        if found.kind in OF_PERMUTES:
            return None if any(p.executions < 0 for p in parts) else self.most_sent(parts)
        if found.kind == PERMUTE:
            if groups is None or groups.pairs is None:
                return total if is_between_slices(found.op) else None  # destination unknown
            moving = groups.pairs[groups.pairs[:, 0] != groups.pairs[:, 1]]
            return total if moving.size else 0
        return wire_bytes(found.kind, total, size) if groups is not None else None


def groups_key(op: Instruction) -> object:
    """The parts of an instruction that determine its device groups."""
    names = ("source_target_pairs", "replica_groups", "device_ids", "use_global_device_ids")
    return (op.opcode, bool(op.attribute("channel_id")), *map(op.attribute, names))


def is_inserted(op: Instruction, anchor: Instruction, op_name: str) -> bool | None:
    """Whether the partitioner made it; None if it combines some of both kinds, or if there is
    no op name."""
    for i in (op, anchor):
        if 'is_spmd_generated="true"' in i.attribute_text:
            return True
    written = {bool(_WRITTEN.search(n)) for n in merged_names(op_name)}
    if len(written) > 1 or not op_name:  # combines both, or no name
        return None
    return not written.pop()
