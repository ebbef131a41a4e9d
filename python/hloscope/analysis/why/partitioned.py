"""Why the partitioner inserted each collective, according to the program that it made.

There every collective is between the op whose value it moves and the op that needs it:

    squeeze bf16[128,1,32] ─ all-gather bf16[256,1,32] ─ dot      a move: the dot needs all of it
    dot (one device's sum) ─ all-reduce ─ add                     a reduction: of the dot

Both have counterparts before partitioning (``alignment.py``), with the propagated shardings. An
op whose local part does not have the size that its sharding implies was computed with another
sharding: then its own result is moved. A cause must account for the axes of the collective.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import cached_property

from ...hlo import Instruction, Module, opcodes, walk
from ...hlo.collective_kinds import KINDS, is_collective, kind_of, split
from ...hlo.shardings.devices import device_counts, device_groups
from ...hlo.shardings.sharding_text import parse_sharding
from ...hlo.shardings.specs import Spec, axis_of, spec_of, tile_count
from ..comms.collectives import is_inserted
from ..comms.spec_text import spec_words
from .alignment import Alignment, Place, place
from .provenance_causes import Cause, shared_dimensions, summed_dimensions
from .provenance_origins import ShardingOrigins, is_constraint

REDUCTIONS = tuple(k.name for k in KINDS.values() if k.reduces)
_COMBINED = {
    "add": "summed", "maximum": "maximum", "minimum": "minimum", "multiply": "product",
    "and": "all of it", "or": "any of it", "xor": "parity",
}  # fmt: skip
_REARRANGES = (opcodes.MOVES - opcodes.SAME_SHAPE) | {"gather", "reduce-window"}
_CARRIES = opcodes.CONTROL | {"tuple"}


class Partitioned:
    """Causes of the collectives of the program after partitioning."""

    def __init__(self, origins: ShardingOrigins, before: Module, after: Module) -> None:
        self.origins, self.before, self.after = origins, before, after
        self.alignment = Alignment(before, after)
        replicas, partitions = device_counts(after, origins.target)
        self.collectives = [i for i in after.instructions if is_collective(i.opcode)]
        self.groups = {i.index: device_groups(i, replicas, partitions) for i in self.collectives}
        self._causes: dict[int, list[Cause]] = {}

    @cached_property
    def _places(self) -> dict[Place, list[Instruction]]:
        """Ops before partitioning by name and lines, which what is made for them has too."""
        out: dict[Place, list[Instruction]] = {}
        for op in self.before.instructions:
            if op.op_name and op.opcode not in opcodes.BUNDLES | opcodes.GIVEN:
                out.setdefault(place(op.op_name, op.frames), []).append(op)
        return out

    def kind(self, i: Instruction) -> str:
        return (split(i.opcode) or ("", ""))[0]

    def axes(self, i: Instruction) -> frozenset[str]:
        """Mesh axes it runs over; a part of an axis counts as that axis."""
        groups = self.groups[i.index]
        found = groups.axes(self.origins.mesh) if groups is not None else None
        return frozenset(a.name for a in found or ())

    def is_written(self, i: Instruction) -> bool:
        """Whether the program before partitioning has it, even if moved or reshaped since."""
        of = self.alignment.of(i)
        return (of is not None and is_collective(of.opcode)) or is_inserted(
            i, i, i.op_name
        ) is False

    def values(self, i: Instruction) -> list[Instruction]:
        """Ops before partitioning whose values it moves."""
        found = [self.alignment.of(s) for o in i.operands for s in self.alignment.sources(o)]
        return list(dict.fromkeys(f for f in found if f is not None))

    def causes(self, i: Instruction) -> list[Cause]:
        """A cause for every op that needs it; [] if none accounts for its axes."""
        found = self._causes.get(i.index)
        if found is None:
            axes = self.axes(i)
            made = self._reduction if self.kind(i) in REDUCTIONS else self._move
            if self._loop(i) is not None:
                made = self._windowed
            found = self._causes[i.index] = made(i, axes) if axes else []
        return found

    def _loop(self, i: Instruction) -> Instruction | None:
        """The loop that the partitioner made from a dot, if ``i`` is in it or feeds it."""
        users = [u for u, _ in self.alignment.users(i) if u.opcode == "while"]
        for loop in (*self.after.call_sites(i.computation)[:1], *users):
            of = self.alignment.of(loop)
            if of is not None and of.opcode in ("dot", "convolution"):
                return loop
        return None

    def _windowed(self, i: Instruction, axes: frozenset[str]) -> list[Cause]:
        """Causes in a windowed dot: an operand passed round, or a sum collected on the way."""
        loop = self._loop(i)
        op = self.alignment.of(loop) if loop is not None else None
        if op is None:
            return []
        summed = {o for _, o in self._where_summed(op, axes)}
        if len(summed) == len(op.operands):
            return self._reduced(op, axes, "summed")
        elements = i.operands[0].shape.elements if i.operands else 0
        # a tile is passed round, or its two halves in opposite directions
        for times in (1, 2):
            for at, operand in enumerate(op.operands):
                tile = math.prod(self._tile(operand) or (0,))
                if axes <= self._cut(operand) and tile == times * elements:
                    return self._needed(op, at, axes)
        return []

    def _reduction(self, i: Instruction, axes: frozenset[str]) -> list[Cause]:
        parts = [s for o in i.operands for s in self.alignment.sources(o)]
        at = place(i.op_name, i.frames)
        parts = [s for s in parts if place(s.op_name, s.frames) == at] or parts
        out = []
        for part in parts:
            op = self.alignment.of(part)
            if op is None or op.opcode in ("parameter", "get-tuple-element"):
                continue
            op = self._summing(op, axes)
            out += self._reduced(op, axes, self._combines(i))
        return _once(out)

    def _summing(self, op: Instruction, axes: frozenset[str]) -> Instruction:
        """The op that sums, even if its result was reshaped before it was combined; else ``op``."""
        at = walk.source(op, opcodes.PART_OF_ONE | opcodes.REPEATED).instruction
        return at if axes <= {a for a, _ in self._where_summed(at, axes)} else op

    def _where_summed(
        self, op: Instruction, axes: frozenset[str] | None
    ) -> list[tuple[str, Instruction]]:
        """Those of ``axes`` that shard dimensions which ``op`` sums over, with the operand.

        None stands for all axes.
        """
        found = []
        for operand, dims in summed_dimensions(op):
            spec = self.origins.spec(operand) or ()
            found += [(axis_of(a), operand) for d in dims if d < len(spec) for a in spec[d]]
        return [(a, o) for a, o in found if axes is None or a in axes]

    def _reduced(self, op: Instruction, axes: frozenset[str], how: str) -> list[Cause]:
        summed = self._summed(op, axes)
        specs = dict.fromkeys(spec_words(self.origins.spec(o)) for _, o in summed)
        operand = summed[0][1] if summed else op.operands[0] if op.operands else op
        had = " and ".join(specs) or spec_words(self.origins.spec(operand))
        result = self.origins.spec(op)
        needs = f"{how} over {'+'.join(sorted(axes))}"
        if result is not None:
            needs += f"; result {spec_words(result)}"
        said = tuple((a, "operand", o) for a, o in summed)
        left = axes - {a for a, _ in summed}
        if summed and left == axes:  # the result has their place
            needs = f"laid out as the partitioner chose, then {needs}"
            left = self._cut(op) & {a for a, _ in summed}
        said += tuple((a, "result", op) for a in sorted(left))
        return [Cause(op, operand, had, needs, said, is_reduced=True)]

    def _summed(self, op: Instruction, axes: frozenset[str]) -> list[tuple[str, Instruction]]:
        """Those of ``axes`` that shard dimensions which ``op`` sums over, else any dimension.

        If none does, the axes that the dimensions summed over had before the partitioner laid
        them out over others.
        """
        found = self._where_summed(op, axes)
        if axes <= {a for a, _ in found}:
            return found
        for operand in op.operands:
            spec = self.origins.spec(operand) or ()
            found += [(axis_of(a), operand) for dim in spec for a in dim if axis_of(a) in axes]
        return list(dict.fromkeys(found or self._where_summed(op, None)))

    def _combines(self, i: Instruction) -> str:
        called = i.called_computations
        root = called[0].root if called else None
        return _COMBINED.get(root.opcode if root is not None else "", "reduced")

    def _move(self, i: Instruction, axes: frozenset[str]) -> list[Cause]:
        sources = [s for o in i.operands for s in self.alignment.sources(o)]
        values = [(s, of) for s in sources if (of := self.alignment.of(s)) is not None]
        moved = [v for _, v in values]
        at = place(i.op_name, i.frames)
        for s, value in values:  # not computed as annotated: its own result moves
            op = _maker(value)
            if op.opcode not in _CARRIES | {"parameter"} and self._is_own(i, s, value, axes):
                # ... unless it has the name of a shift of that result, which moves it anyway
                is_others = place(op.op_name, op.frames) != at
                shifts = self._rearranged(i, moved, axes) if is_others else []
                return shifts or [self._own_result(op, axes)]
        takers = [(self.alignment.of(user), k) for user, k in self.alignment.users(i)]
        out: list[Cause] = []
        if not any(t is not None and place(t.op_name, t.frames) == at for t, _ in takers):
            out = self._rearranged(i, moved, axes)
        for taker, k in takers if not out else ():
            if taker is not None and k < len(taker.operands):
                out += self._needed(*self._nearest(taker, k, moved, axes), axes, self.kind(i))
        if not out:
            out = [c for _, v in values for c in self._output(i, v, axes)]
        return _once(out)

    def _nearest(
        self, op: Instruction, at: int, values: list[Instruction], axes: frozenset[str]
    ) -> tuple[Instruction, int]:
        """The op itself, or one before it that shifts a value along a dimension cut by the axes.

        Such an op has no local part: what the partitioner made of it leads on to ``op``.
        """
        for p in walk.back(op.operands[at], _REARRANGES):
            made = p.instruction
            if made in values:
                break
            if made.opcode in _REARRANGES:
                k = next((k for k, o in enumerate(made.operands) if o in values), None)
                if k is not None and self._crosses(made, made.operands[k], axes):
                    return made, k
        return op, at

    def _crosses(self, op: Instruction, value: Instruction, axes: frozenset[str]) -> bool:
        """Whether an op moves elements along a dimension of the value that the axes cut."""
        spec = self.origins.spec(value) or ()
        cut = [d for d, dim in enumerate(spec) if axes & set(map(axis_of, dim))]
        if op.shape.rank != value.shape.rank:
            return False
        named = {int(n) for n in (op.attribute("dimensions") or "").strip("{}").split(",") if n}
        sizes = zip(op.shape.dimensions, value.shape.dimensions, strict=True)
        resized = {d for d, (now, was) in enumerate(sizes) if now != was}
        moved = resized | (named if op.opcode == "reverse" else set())
        return bool(moved & set(cut))

    def _rearranged(
        self, i: Instruction, values: list[Instruction], axes: frozenset[str]
    ) -> list[Cause]:
        """Causes by the op of this name that puts elements of one of the values elsewhere.

        Of a shift or a slice across the tiles of a sharded dimension the partitioner makes other
        ops, so none that takes what moves is the op's own local part.
        """
        out = []
        for op in self._places.get(place(i.op_name, i.frames), ()):
            if op.opcode not in _REARRANGES:
                continue
            for k in opcodes.data_operands(op.opcode, len(op.operands)):
                held = walk.back(op.operands[k], opcodes.PART_OF_ONE)
                if not self._crosses(op, op.operands[k], axes):
                    continue
                if op in values or any(p.instruction in values for p in held):
                    out += self._needed(op, k, axes, self.kind(i))
        each = {(c.op.opcode, c.had, c.needs, c.axes and c.axes[0][2]): c for c in out}
        return list(each.values())[:1] if len({c.op.opcode for c in out}) == 1 else out[:1]

    def _is_own(
        self, i: Instruction, local: Instruction, value: Instruction, axes: frozenset[str]
    ) -> bool:
        tile = self._tile(value)
        arrived = i.operands[0].shape.elements if i.operands else 0
        if kind_of(self.kind(i)).gathers and tile is not None and arrived >= math.prod(tile):
            return False  # it already has its own sharding; another op needs it differently
        if not self._is_annotated(local, value):
            return True
        # a value that is whole already needs no gather
        return (
            kind_of(self.kind(i)).gathers
            and not axes & self._cut(value)
            and (place(i.op_name, i.frames) == place(value.op_name, value.frames))
        )

    def _own_result(self, op: Instruction, axes: frozenset[str]) -> Cause:
        after = self.origins.spec(op)
        operand = next((o for o in op.operands if self._cut(o) & axes), None)
        operand = operand or (op.operands[0] if op.operands else op)
        if not axes & (self._cut(operand) | self._cut(op)):  # a step that the partitioner devised
            axes = axes | self._cut(operand)
        said = [(a, "operand", operand) for a in sorted(self._cut(operand) & axes)]
        said += [s for a, o in self._where_summed(op, axes) if (s := (a, "operand", o)) not in said]
        if axes - self._cut(op):
            said.append(("", "result", op))
        said += [(a, "result", op) for a in sorted(self._cut(op) & axes)]
        needs = f"computed piece by piece, then moved; result {spec_words(after)}"
        had = spec_words(self.origins.spec(operand))
        return Cause(op, operand, had, needs, tuple(said), is_own_result=True)

    def _needed(
        self, op: Instruction, at: int, axes: frozenset[str], kind: str = ""
    ) -> list[Cause]:
        """``op`` needs its operand number ``at`` in another sharding, or its neighbours' parts."""
        value = op.operands[at]
        before = self.origins.spec(value)
        if before is None:
            return []
        said = [(axis_of(a), "operand", value) for dim in before for a in dim]
        said = [s for s in said if s[0] in axes]
        if op.opcode == "tuple":
            return self._carried(op, at, before, said, axes)
        after = self.origins.spec(op)
        had = spec_words(before)
        gathers = bool(kind) and kind_of(kind).gathers
        shifts = kind and not gathers and op.opcode not in ("copy", "dot")
        dims = _kept(before, after, axes) if shifts else ()
        if dims:
            which = f"dimension {dims[0]}" if len(dims) == 1 else f"dimensions {list(dims)}"
            needs = f"elements of {which} that other devices hold; result {spec_words(after)}"
            return [Cause(op, value, had, needs, tuple(said))]
        moved = _moved_axes(before, after)
        if not gathers and not axes >= moved and op.shape.dimensions == value.shape.dimensions:
            # a step of a move of several: all axes that change places account for it
            said = [(axis_of(a), "operand", value) for dim in before for a in dim]
            said = [s for s in said if s[0] in axes | moved]
            axes = axes | moved
        elif not axes & self._cut(value):  # a step that the partitioner devised
            said = [(axis_of(a), "operand", value) for dim in before for a in dim]
            axes = axes | self._cut(value)
        said += [(a, "operand", o) for a, o in self._beside(op, at) if a in axes]
        left_out = axes - self._cut(op)
        fixed = bool(left_out) or op.opcode == "copy"
        if fixed:
            said.append(("", "result", op))
        said += [(a, "result", op) for a in sorted(self._cut(op) & axes)]
        if op.opcode == "copy":
            return [Cause(op, value, had, f"needed as {spec_words(after)}", tuple(said))]
        needs = f"result {spec_words(after)}"
        if gathers and (after is None or after == before) and axes <= self._cut(value):
            # it is not the result's sharding that needs another: the op is not computed in parts
            whole = f"all of it over {'+'.join(sorted(axes))}"
            return [Cause(op, value, had, f"{whole}; {needs}" if after else whole, tuple(said))]
        if not axes <= {a for a, _, _ in said} and not self.origins.fixed_by(op):
            needs = f"moved for it, laid out as the partitioner chose; {needs}"
        return [Cause(op, value, had, needs, tuple(said))]

    def _beside(self, op: Instruction, at: int) -> list[tuple[str, Instruction]]:
        """Axes that another factor of a product has, and operand ``at`` has not, along a dimension
        of both: the product needs them alike."""
        dims = shared_dimensions(op)
        if at >= len(dims):
            return []
        own = self.origins.spec(op.operands[at]) or ()
        found = []
        for k, operand in enumerate(op.operands):
            spec = self.origins.spec(operand) or ()
            for mine, theirs in zip(dims[at], dims[k], strict=True) if k != at else ():
                if mine < len(own) and theirs < len(spec):
                    found += [(axis_of(a), operand) for a in spec[theirs] if a not in own[mine]]
        return found

    def _carried(
        self,
        op: Instruction,
        at: int,
        before: Spec,
        said: list[tuple[str, str, Instruction]],
        axes: frozenset[str],
    ) -> list[Cause]:
        """A tuple takes it: the program returns it, or a loop or branch carries it."""
        value = op.operands[at]
        if op is op.computation.root and op.computation.is_entry:
            return self._returned(value, at, self._element(op, at, value), before, said, axes)
        takes = next((u for u in op.users if u.opcode in _CARRIES), None)
        if takes is None and op is op.computation.root:
            takes = next(iter(self.before.call_sites(op.computation)), None)
        after = self._element(op, at, value)
        if after is None:
            return []
        held = self._held(takes, at) or value
        said += [(axis_of(a), "result", held) for dim in after for a in dim]
        changed = axes | _moved_axes(before, after)
        said = [s for s in said if s[0] in changed]
        if changed - {axis_of(a) for dim in after for a in dim} and takes is not None:
            said += [("", "result", c) for c in self._fixing(takes, at, before)]
        needs = f"carried as {spec_words(after)}"
        return [Cause(takes or op, value, spec_words(before), needs, tuple(dict.fromkeys(said)))]

    def _held(self, takes: Instruction | None, at: int) -> Instruction | None:
        """The element of a loop or a branch that holds what its tuple has at a place."""
        if takes is None:
            return None
        if not takes.shape.is_tuple:
            return takes
        bodies = [c for role, c in takes.called if role == "body"]
        readers = (*takes.users, *(u for c in bodies for p in c.parameters for u in p.users))
        return next((u for u in readers if u.tuple_index == at), None)

    def _fixing(self, takes: Instruction, at: int, before: Spec) -> list[Instruction]:
        """Constraints on what a loop or a branch returns which leave out an axis of ``before``."""
        out = []
        for role, called in takes.called:
            root = called.root if role != "condition" else None
            if root is None:
                continue
            end = root.operands[at] if root.opcode == "tuple" and at < len(root.operands) else root
            spec = self.origins.spec(end)
            if is_constraint(end) and spec is not None and _left_out(before, spec):
                out.append(end)
        return out

    def _output(self, i: Instruction, value: Instruction, axes: frozenset[str]) -> list[Cause]:
        """No op takes it: the program returns it."""
        entry = self.after.entry
        root = self.before.entry.root if self.before.entry is not None else None
        before = self.origins.spec(value)
        if entry is None or root is None or before is None or i.computation is not entry:
            return []
        held = walk.forward(i, lambda user: user.opcode != "tuple")
        reached = {at.index for at, *_ in held}
        end = entry.root
        ends = end.operands if end is not None and end.opcode == "tuple" else (end,)
        out = []
        for at, last in enumerate(ends):
            if last is not None and last.index in reached:
                asked = root.operands[at] if root.opcode == "tuple" else root
                said = [(a, "operand", value) for a in sorted(self._cut(value) & axes)]
                out += self._returned(value, at, self.origins.spec(asked), before, said, axes)
        return out

    def _returned(
        self,
        value: Instruction,
        at: int,
        after: Spec | None,
        before: Spec,
        said: list[tuple[str, str, Instruction]],
        axes: frozenset[str],
    ) -> list[Cause]:
        op = _maker(value)
        if before == after and op.opcode not in _CARRIES | {"parameter"}:
            return [self._own_result(op, axes)]  # it was not computed as annotated
        needs = f"returned as {spec_words(after)}"
        return [Cause(value, value, spec_words(before), needs, tuple(said), output=at)]

    def _element(self, op: Instruction, at: int, value: Instruction) -> Spec | None:
        """The sharding of one element of a tuple."""
        operand = op.operands[at]
        if operand.opcode == "get-tuple-element":
            return self.origins.spec(operand)
        whole = parse_sharding(op.sharding_text or "")
        if at < len(whole.parts) and self.origins.mesh is not None:
            return spec_of(whole.parts[at], value.shape.rank, self.origins.mesh)
        return None

    def _cut(self, i: Instruction) -> frozenset[str]:
        return frozenset(axis_of(a) for dim in self.origins.spec(i) or () for a in dim)

    def _is_annotated(self, local: Instruction, op: Instruction) -> bool:
        """Whether the local part has the dimensions of the tile that ``op``'s sharding gives."""
        tile = self._tile(op)
        return tile is None or tile == tuple(local.shape.dimensions)

    def _tile(self, op: Instruction) -> tuple[int, ...] | None:
        """Dimensions of one device's part of ``op`` according to its sharding."""
        spec = self.origins.spec(op)
        if spec is None:
            return None
        return tuple(
            -(-n // tile_count(dim, self.origins.mesh))
            for n, dim in zip(op.shape.dimensions, spec, strict=True)
        )


def _maker(value: Instruction) -> Instruction:
    """The op that made a value, or the tuple of which it is an element."""
    made = walk.source(value, ()).instruction
    return value if made.opcode in opcodes.CONTROL | {"parameter"} else made


def _moved_axes(before: Spec, after: Spec | None) -> frozenset[str]:
    """Axes that shard another dimension afterwards, or none."""
    was = {(axis_of(a), d) for d, dim in enumerate(before) for a in dim}
    now = {(axis_of(a), d) for d, dim in enumerate(after or ()) for a in dim}
    return frozenset(a for a, _ in was ^ now) if after is not None else frozenset()


def _left_out(before: Spec, after: Spec) -> bool:
    """Whether an axis does not shard a dimension any more that it sharded before."""
    return any(
        set(map(axis_of, b)) - set(map(axis_of, a)) for b, a in zip(before, after, strict=False)
    )


def _kept(before: Spec, after: Spec | None, axes: frozenset[str]) -> tuple[int, ...]:
    """Dimensions that the axes shard before and after; () if any shards another one."""
    if after is None or len(before) != len(after):
        return ()
    was = {(a, d) for d, dim in enumerate(before) for a in map(axis_of, dim) if a in axes}
    now = {(a, d) for d, dim in enumerate(after) for a in map(axis_of, dim) if a in axes}
    return tuple(sorted({d for _, d in was})) if was == now and was else ()


def _once(causes: Iterable[Cause]) -> list[Cause]:
    return list(dict.fromkeys(causes))
