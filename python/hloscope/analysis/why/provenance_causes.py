"""What an op before partitioning makes the partitioner move, according to its shardings.

dot, operands P('data', 'model') and P('model', None): partial sums over model
copy (a constraint), from P('data', 'model', None) to P('data', None, None): gather over model
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import combinations

from ...hlo import Instruction, parse_shape
from ...hlo.collective_kinds import KINDS, MATMUL, kind_of
from ...hlo.shardings.specs import Spec, axis_of, tile_count
from ..comms.collective import Collective
from ..comms.spec_text import spec_words
from .provenance_origins import ShardingOrigins


@dataclass(frozen=True)
class Cause:
    """``op`` requires a move of ``operand``, whose sharding is ``had``."""

    op: Instruction
    operand: Instruction | None
    had: str
    needs: str
    axes: tuple[tuple[str, str, Instruction], ...]  # axis, operand or result, its value
    output: int = -1  # number of the output whose sharding requires it
    is_reduced: bool = False  # the op's result is combined; no operand is moved
    is_own_result: bool = False  # the op was computed with another sharding than annotated


class Causes:
    """Causes given by the ops of the module before partitioning."""

    def __init__(self, origins: ShardingOrigins):
        self.origins = origins
        self.mesh = origins.mesh

    def causes(self, op: Instruction, kind: str, axes: frozenset[str], shape: str) -> list[Cause]:
        known = KINDS.get(kind)
        if known is not None and known.reduces:
            return self._reductions(op, axes, shape)
        if kind == MATMUL or (known is not None and known.reshards):
            found = self._moves(op, kind, axes, shape)
            if not found and kind == MATMUL:
                found = self._reductions(op, axes, "")
            return found
        return []

    def _reductions(self, op: Instruction, axes: frozenset[str], shape: str) -> list[Cause]:
        """Partial results: the axes shard dimensions that the op sums over."""
        summed: list[tuple[str, Instruction]] = []
        for operand, dims in summed_dimensions(op):
            spec = self.origins.spec(operand)
            for d in dims if spec is not None else ():
                summed += [(a, operand) for a in (spec or ())[d]]
        if not axes <= {a for a, _ in summed}:
            return []
        result = self.origins.spec(op)
        if result is None:
            return []
        had = " and ".join(
            dict.fromkeys(spec_words(self.origins.spec(o)) for a, o in summed if a in axes)
        )
        over = "+".join(sorted(axes))
        first = next(o for a, o in summed if a in axes)
        return [
            Cause(
                op, first, had, f"summed over {over}; result {spec_words(result)}",
                tuple((a, "operand", o) for a, o in summed if a in axes),
            )
        ]  # fmt: skip

    def _moves(self, op: Instruction, kind: str, axes: frozenset[str], shape: str) -> list[Cause]:
        """An operand is sharded along the axes, and the op needs it differently."""
        after = self.origins.spec(op)
        if after is None:
            return []
        if op.opcode == "copy" and op.operands:
            operand = op.operands[0]
            before = self.origins.spec(operand)
            if before is None or not _explains(before, after, kind, axes):
                return []
            gained = [a for d in after for a in d if (a in axes) and not kind_of(kind).gathers]
            wanted = tuple((a, "result", op) for a in gained)
            return [self._cause(op, operand, before, after, axes, wanted)]
        for exactly in (True, False):
            found = self._moved_operands(op, after, kind, axes, shape, exactly)
            if found or not kind_of(kind).gathers:
                break
        return found if len(found) == 1 else []

    def _moved_operands(
        self,
        op: Instruction,
        after: Spec,
        kind: str,
        axes: frozenset[str],
        shape: str,
        exactly: bool,
    ) -> list[Cause]:
        found = []
        for operand in dict.fromkeys(op.operands):
            before = self.origins.spec(operand)
            if before is None or not axes <= {a for d in before for a in d}:
                continue
            if not _same_kind(operand, shape):
                continue
            if kind_of(kind).is_pairwise and shape:
                moved = math.prod(parse_shape(shape).dimensions)
                if self._tile(operand.shape.dimensions, before) != moved:
                    continue
            if kind_of(kind).gathers and not self._gathered(operand, before, axes, shape, exactly):
                continue
            alike = operand.shape.dimensions == op.shape.dimensions
            if not kind_of(kind).gathers and alike and not _explains(before, after, kind, axes):
                continue
            used = [a for d in after for a in d]
            wanted = tuple((a, "result", op) for a in used if a in axes)
            found.append(self._cause(op, operand, before, after, axes, wanted))
        return found

    def reshards(
        self, op: Instruction, row: Collective, axes: frozenset[str], shape: str
    ) -> list[Cause]:
        """Steps of a move that the partitioner devises: tiles permuted, or gathered in pairs.

        For example FSDP's gather from a table sharded by rows: its tiles go to other devices, then
        pairs of them are gathered. No sharding of ``op`` gives the layout in between, so sizes
        decide: it is the one operand with such a tile, if that is the argument that moves in the
        partitioned program, or if nothing else of ``op`` can have that size.
        """
        kind = row.kind
        after = self.origins.spec(op)
        partly = any(":" in a for a in axes)
        if after is None or not shape or (kind_of(kind).gathers and not partly):
            return []
        times = row.group_size if kind_of(kind).gathers else 1
        argument = row.moves.name if row.moves and row.moves.kind == "argument" else ""
        moved = math.prod(parse_shape(shape).dimensions)
        base = frozenset(axis_of(a) for a in axes)
        found = []
        for value in dict.fromkeys((*op.operands, op)):
            spec = self.origins.spec(value)
            if spec is None or not _same_kind(value, shape):
                continue
            cut = {a for d in spec for a in d}
            tile = self._tile(value.shape.dimensions, spec)
            fits = tile * times == moved and (base <= cut if partly else bool(base & cut))
            if argument and (value is op or self.origins.describe(value) != argument):
                continue
            if fits and value is not op:
                found.append((value, spec, base & cut))
            elif self._could_be(value, moved):
                return []
        if len(found) != 1:
            return []
        operand, before, of = found[0]
        needs = f"moved for it, laid out as the partitioner chose; result {spec_words(after)}"
        said = tuple((a, "operand", operand) for d in before for a in d if a in of)
        return [Cause(op, operand, spec_words(before), needs, said)]

    def _tile(self, dimensions: tuple[int, ...], spec: Spec) -> int:
        """Number of elements of one device's tile."""
        tiles = (tile_count(dim, self.mesh) for dim in spec)
        return math.prod(-(-n // t) for n, t in zip(dimensions, tiles, strict=True))

    def _could_be(self, value: Instruction, elements: int) -> bool:
        """Whether sharding ``value`` over some of the mesh's axes gives this number of elements."""
        whole = value.shape.elements
        sizes = self.mesh.axis_sizes if self.mesh is not None else ()
        return elements > 0 and any(
            -(-whole // math.prod(some)) == elements
            for n in range(len(sizes) + 1)
            for some in combinations(sizes, n)
        )

    def _cause(
        self,
        op: Instruction,
        operand: Instruction,
        before: Spec,
        after: Spec,
        axes: frozenset[str],
        wanted: tuple[tuple[str, str, Instruction], ...],
    ) -> Cause:
        moved = tuple((a, "operand", operand) for d in before for a in d if a in axes)
        if op.opcode == "copy":
            wanted = (("", "result", op), *wanted)
        needs = (
            f"needed as {spec_words(after)}"
            if op.opcode == "copy"
            else (f"result {spec_words(after)}")
        )
        return Cause(op, operand, spec_words(before), needs, moved + wanted)

    def _gathered(
        self, operand: Instruction, spec: Spec, axes: frozenset[str], shape: str, exactly: bool
    ) -> bool:
        """Whether gathering ``operand`` over ``axes`` gives an array like ``shape``."""
        local = [
            -(-size // tile_count((a for a in dim if a not in axes), self.mesh))
            for size, dim in zip(operand.shape.dimensions, spec, strict=True)
        ]
        wanted = parse_shape(shape).dimensions if shape else ()
        if exactly:
            return sorted(n for n in local if n > 1) == sorted(n for n in wanted if n > 1)
        return math.prod(local) == math.prod(wanted)


def summed_dimensions(op: Instruction) -> list[tuple[Instruction, tuple[int, ...]]]:
    """(operand, dimensions of it that the op sums over) pairs."""
    if op.opcode == "dot" and len(op.operands) == 2:
        return [
            (o, _numbers(op.attribute(f"{side}_contracting_dims")))
            for o, side in zip(op.operands, _SIDES, strict=True)
        ]
    if op.opcode == "reduce" and op.operands:
        arrays = op.operands[: len(op.operands) // 2]
        return [(o, _numbers(op.attribute("dimensions"))) for o in arrays]
    if op.opcode == "gather" and op.operands:  # from a table that may be sharded by rows
        return [(op.operands[0], _numbers(op.attribute("start_index_map")))]
    if op.opcode == "scatter" and len(op.operands) == 3:
        updates = op.operands[2]
        window = _numbers(op.attribute("update_window_dims"))
        return [(updates, tuple(d for d in range(updates.shape.rank) if d not in window))]
    return []


def shared_dimensions(op: Instruction) -> list[tuple[int, ...]]:
    """For each factor of a dot its dimensions that the other has too, in the same order."""
    if op.opcode != "dot" or len(op.operands) != 2:
        return []
    sides = (
        (op.attribute(f"{s}_batch_dims"), op.attribute(f"{s}_contracting_dims")) for s in _SIDES
    )
    return [(*_numbers(batch), *_numbers(summed)) for batch, summed in sides]


_SIDES = ("lhs", "rhs")


def _same_kind(value: Instruction, shape: str) -> bool:
    """Whether both hold integers or neither does: converts move across collectives."""
    if not shape:
        return True
    kinds = {t[:1] in "su" for t in (value.shape.element_type, parse_shape(shape).element_type)}
    return len(kinds) == 1


def _explains(before: Spec, after: Spec, kind: str, axes: frozenset[str]) -> bool:
    """Whether going from one spec to the other removes the axes from a dimension, or moves them."""
    was = {(a, d) for d, dim in enumerate(before) for a in dim}
    now = {(a, d) for d, dim in enumerate(after) for a in dim}
    lost = {a for a, _ in was - now}
    gained = {a for a, _ in now - was}
    if kind_of(kind).gathers:
        return axes <= lost
    if kind_of(kind).exchanges:
        return axes <= lost & gained
    return axes <= (lost | gained) and bool(lost)


def _numbers(text: str | None) -> tuple[int, ...]:
    return tuple(int(n) for n in (text or "").strip("{}").replace(",", " ").split())
