"""The module as numpy columns, made once and shared by the analyses that must be fast.

100,000 instructions leave about five microseconds each for everything between reading and
the View, so one pass over the objects makes these arrays and the rest is vectorised.

    offsets  0   2   2   5        row i is values[offsets[i]:offsets[i + 1]]
    values   a b     c d e
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass, fields
from functools import cached_property, wraps
from itertools import chain, count
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from ...hlo import Target, opcodes
from ...hlo.columns import op_name
from .lines.torch_names import places

if TYPE_CHECKING:
    from ...hlo import Instruction, Module, Shape

Ints = NDArray[np.int64]
T = TypeVar("T")
K = TypeVar("K")


@dataclass(frozen=True, eq=False)
class Csr:
    """One-to-many: row ``i`` is ``values[offsets[i]:offsets[i + 1]]``."""

    offsets: Ints
    values: Ints

    @cached_property
    def counts(self) -> Ints:
        return np.diff(self.offsets)

    @cached_property
    def rows(self) -> Ints:
        """The row of each value."""
        return np.repeat(np.arange(len(self.offsets) - 1), self.counts)


def csr(rows: Sequence[Sequence[int]]) -> Csr:
    counts = np.fromiter(map(len, rows), np.int64, len(rows))
    total = int(counts.sum())
    return Csr(
        np.concatenate(([0], np.cumsum(counts))).astype(np.int64),
        np.fromiter(chain.from_iterable(rows), np.int64, total),
    )


def spans(first: Ints, counts: Ints) -> Ints:
    """``[first[0], first[0] + 1, …, first[1], …]``: of each so many numbers."""
    before = np.cumsum(counts) - counts
    return np.asarray(np.arange(int(counts.sum())) + np.repeat(first - before, counts))


def intern(items: list[Any]) -> tuple[Ints, list[Any]]:
    """Ids by first appearance, and the distinct items in that order."""
    ids: defaultdict[Any, int] = defaultdict(count().__next__)
    return np.fromiter(map(ids.__getitem__, items), np.int64, len(items)), list(ids)


# What a walk passes, or asks more than the opcode of, whatever it goes through.
_MAY_PASS = opcodes.BUNDLES | opcodes.LITERALS | {"parameter", "custom-call", "broadcast"}


@dataclass(frozen=True, eq=False)
class Table:
    """Columns of a module; every array has one row per instruction unless noted otherwise."""

    instructions: tuple[Instruction, ...]
    opcodes: tuple[str, ...]  # distinct
    opcode: Ints  # into opcodes
    computation: Ints
    first: Ints  # one row per computation
    size: Ints  # one row per computation
    operands: Csr  # -1 never appears: operands that were cut off are left out
    called: Csr  # computations
    called_roles: tuple[str, ...]  # parallel to called.values
    shapes: tuple[Shape, ...]  # distinct
    shape: Ints  # into shapes
    op_names: tuple[str, ...]  # distinct; 0 is ''
    op_name: Ints  # into op_names
    places: tuple[str, ...]  # distinct: op_names as JAX would write them, whatever the framework
    place: Ints  # into places

    @cached_property
    def roots(self) -> Ints:
        """One row per computation: its root, -1 where the dump was cut before it."""
        if not self.instructions:
            return np.full(len(self.first), -1, np.int64)
        computations = self.instructions[0].module.computations
        roots = [-1 if c.root is None else c.root.index for c in computations]
        return np.array(roots, np.int64)

    @cached_property
    def silent(self) -> NDArray[np.bool_]:
        """Parameters, constants and iotas: sources that say nothing about their users."""
        return self.by_opcode(opcodes.GIVEN.__contains__, bool)

    def where(self, *names: str) -> Ints:
        """Rows whose opcode is one of ``names``, ascending."""
        wanted = [i for i, o in enumerate(self.opcodes) if o in names]
        return np.flatnonzero(np.isin(self.opcode, wanted))

    def by_opcode(self, mapping: Any, dtype: Any) -> NDArray[Any]:
        """A column from a function of the opcode string."""
        lut = np.array([mapping(o) for o in self.opcodes], dtype)
        return lut[self.opcode] if len(lut) else np.zeros(0, dtype)

    def may_pass(self, through: Container[str]) -> NDArray[np.bool_]:
        """Rows from which a walk back through these opcodes may lead on; from others it does not.

        A fusion is passed only if its root is.
        """
        own = self.by_opcode(lambda o: o in _MAY_PASS or o in through, bool)
        fused = self.called.rows, self.called.values
        of_fusion = self.by_opcode("fusion".__eq__, bool)[fused[0]]
        rows, roots = fused[0][of_fusion], self.roots[fused[1][of_fusion]]
        own[rows] &= own[roots] & (roots >= 0)
        return own

    def caller(self) -> tuple[Ints, list[str]]:
        """One row per computation: the first instruction that calls it or -1, and in what role."""
        return self._caller

    @cached_property
    def _caller(self) -> tuple[Ints, list[str]]:
        n = len(self.first)
        out = np.full(n, -1, np.int64)
        roles = [""] * n
        first, at = np.unique(self.called.values, return_index=True)
        out[first] = self.called.rows[at]
        for c, e in zip(first.tolist(), at.tolist(), strict=True):
            roles[c] = self.called_roles[e]
        return out, roles

    @cached_property
    def callees_first(self) -> tuple[int, ...]:
        """Computations, each after all that it calls, in whatever order the file has them."""
        computation, values = self.computation[self.called.rows], self.called.values
        below: list[list[int]] = [[] for _ in self.first]
        for c, callee in zip(computation.tolist(), values.tolist(), strict=True):
            below[c].append(callee)
        order: list[int] = []
        state = bytearray(len(below))  # 1 entered, 2 done; a cycle (cut dump) is skipped
        for start in range(len(below)):
            stack = [start]
            while stack:
                c = stack[-1]
                if state[c] == 0:
                    state[c] = 1
                    stack.extend(x for x in below[c] if state[x] == 0)
                    continue
                stack.pop()
                if state[c] == 1:
                    state[c] = 2
                    order.append(c)
        return tuple(order)

    def reduce_by_computation(self, ufunc: np.ufunc, values: NDArray[Any], empty: Any) -> Any:
        """``ufunc`` over each computation's rows; ``empty`` where it has none."""
        out = np.full(len(self.first), empty, values.dtype)
        some = self.size > 0
        if some.any():
            out[some] = ufunc.reduceat(values, self.first[some])
        return out


def _remember(make: Callable[[K], T]) -> Callable[[K], T]:
    """Runs ``make`` at most once per object; the result lives as long as the object.

    Results are stored on the object: they refer to it (an Instruction knows its module), so a
    dictionary with weak keys would keep both for ever.
    """

    @wraps(make)
    def cached(key: K) -> T:
        made: dict[Any, T] = vars(key).setdefault("_made", {})
        found = made.get(make)
        if found is None:
            found = made[make] = make(key)
        return found

    return cached


def per_module(make: Callable[[Module], T]) -> Callable[[Module], T]:
    """Makes an analysis run once per module."""
    return _remember(make)


def per_table(make: Callable[[Table], T]) -> Callable[[Table], T]:
    """Makes a column once per table."""
    return _remember(make)


# "No target": one object, so that analyses for it are found again.
NO_TARGET = Target()


def per_target(make: Callable[[Module, Target], T]) -> Callable[[Module, Target], T]:
    """Makes an analysis run once per module and target; the last target's is kept."""

    @wraps(make)
    def cached(module: Module, target: Target) -> T:
        made: dict[Any, tuple[Target, T]] = vars(module).setdefault("_made", {})
        found = made.get(make)
        if found is None or found[0] is not target:
            found = made[make] = (target, make(module, target))
        return found[1]

    return cached


def per_devices(make: Callable[[Module, Target], T]) -> Callable[[Module, Target], T]:
    """The same for an analysis that never asks which chip time is modelled on.

    A target of which only ``hardware`` differs gets what was made already: a page for five chips
    works out memory and collectives once.
    """

    @wraps(make)
    def cached(module: Module, target: Target) -> T:
        made: dict[Any, tuple[Target, T]] = vars(module).setdefault("_made", {})
        found = made.get(make)
        if found is None or not _differ_in_chip_only(found[0], target):
            found = made[make] = (target, make(module, target))
        return found[1]

    return cached


_BUT_THE_CHIP = tuple(f.name for f in fields(Target) if f.name != "hardware")


def _differ_in_chip_only(a: Target, b: Target) -> bool:
    return a is b or all(getattr(a, name) is getattr(b, name) for name in _BUT_THE_CHIP)


@per_module
def table(module: Module) -> Table:
    """The module's columns; the same object for the same module."""
    return _build(module)


def _build(module: Module) -> Table:
    instructions = module.instructions
    opcode, opcodes = intern(module.opcodes_list)
    # Shapes are interned by the reader, and hashing an id is cheaper than hashing text.
    shapes = list(map(attrgetter("shape"), instructions))
    shape_ids, firsts = _by_identity(shapes)
    size = np.array([len(c.instructions) for c in module.computations], np.int64)
    called_offsets, called, roles = module.called_csr()
    names, op_name = _op_names(module)
    of, texts = module.attribute_texts
    where, place = places(np.asarray(of, np.int64), list(texts), names, op_name)
    return Table(
        instructions=instructions,
        opcodes=tuple(opcodes),
        opcode=opcode,
        computation=np.repeat(np.arange(len(size)), size),
        first=np.cumsum(size) - size,
        size=size,
        operands=Csr(*module.operand_csr()),
        called=Csr(called_offsets, called),
        called_roles=tuple(roles),
        shapes=tuple(shapes[k] for k in firsts),
        shape=shape_ids,
        op_names=names,
        op_name=op_name,
        places=where,
        place=place,
    )


def _by_identity(items: list[Any]) -> tuple[Ints, list[int]]:
    """Ids by first appearance, and where each first appears."""
    keys = np.fromiter(map(id, items), np.int64, len(items))
    _, firsts, which = np.unique(keys, return_index=True, return_inverse=True)
    order = np.argsort(firsts)
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    return rank[which.reshape(-1)], firsts[order].tolist()


def _op_names(module: Module) -> tuple[tuple[str, ...], Ints]:
    of, texts = module.attribute_texts
    ids, names = intern(["", *map(op_name, texts)])
    return tuple(names), ids[1:][of]
