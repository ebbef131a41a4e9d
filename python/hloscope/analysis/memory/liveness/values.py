"""Which values must share one buffer.

Every leaf of every executed instruction's shape is a node; aliasing joins nodes:

    tuple, get-tuple-element, bitcast, …      the operand's leaves, nothing new
    while                                     initial value = body parameter = condition parameter,
                                              body root and result take that place later
    conditional                               argument = parameter; roots and result in one place
    call, async-start                         arguments = parameters, root = result
    dynamic-update-slice, scatter             result = operand 0: updated in place
    fusion with such a root                   the same, through the fused parameter
    output_to_operand_aliasing                as given by the compiler
    input_output_alias of the module          parameter = output: donated

These are XLA's must-alias rules (``HloDataflowAnalysis``, ``AliasInfo``); they hold for modules
after copy insertion, so for all compiled ones.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from functools import lru_cache
from itertools import accumulate, chain

import numpy as np
import numpy.typing as npt

from ....hlo import Computation, Instruction, Module, Shape, opcodes, walk
from ....hlo.collective_kinds import KINDS, PERMUTE
from ....hlo.opcodes import Effect
from ....hlo.parts import Alias
from ...base.table import intern, spans, table
from ...cost.runs import CallGraph, Edge, Role

Ints = npt.NDArray[np.int64]

ARGUMENT, OUTPUT, TEMP, CONSTANT = range(4)
_START_IS_VALUE = tuple(k.name for k in KINDS.values() if k.start_is_value)
# Results that are their operands, or parts of them, in the same buffers (XLA's must-alias rules).
SAME_BUFFER = frozenset(
    {"tuple", "get-tuple-element", "bitcast", "domain", "add-dependency", *opcodes.BARRIERS}
)
_FIRST_OPERAND = (
    SAME_BUFFER - opcodes.BUNDLES | {"async-update"} | {f"{name}-done" for name in _START_IS_VALUE}
)
_IN_PLACE = {"dynamic-update-slice": 1, "scatter": 0, "set-dimension-size": 1}
_ALIASING = re.compile(r"\boutput_to_operand_aliasing=\{")
_ALIAS_ENTRY = re.compile(r"\{([\d,\s]*)\}\s*:\s*\((\d+),\s*\{([\d,\s]*)\}")


@lru_cache(maxsize=65536)
def leaves_of(shape: Shape) -> tuple[Shape, ...]:
    """The non-tuple shapes within a shape, left to right."""
    return tuple(shape.leaves())


def leaf_span(shape: Shape, index: tuple[int, ...]) -> tuple[int, int]:
    """(first leaf, number of leaves) of a shape index; raises ``IndexError`` if out of range."""
    at = 0
    for k in index:
        at += _starts(shape)[k]
        shape = shape.tuple_shapes[k]
    return at, len(leaves_of(shape)) if shape.is_tuple else 1


@lru_cache(maxsize=4096)
def _starts(shape: Shape) -> tuple[int, ...]:
    """Index of the first leaf of each element of a tuple."""
    return tuple(accumulate((len(leaves_of(s)) for s in shape.tuple_shapes), initial=0))[:-1]


class Values:
    """Nodes of executed instructions and the sets they are joined into.

    ``first[i]`` is the first node of instruction i, -1 if it does not execute, ``count[i]`` how
    many it has; ``origin[v]`` is the instruction of node v, and its shape the ``shape[v]``-th of
    ``leaf_shapes``. ``defines[v]`` says whether the instruction makes the value rather than passing
    it on; ``merges[v]`` whether it may be one of several values, as the result of a loop or a
    conditional.
    """

    def __init__(self, module: Module, calls: CallGraph, aliases: Sequence[Alias]) -> None:
        self.module = module
        self.aliases = aliases
        self.calls = calls
        t = table(module)
        leaves = [leaves_of(s) for s in t.shapes]
        ids, self.leaf_shapes = intern(list(chain.from_iterable(leaves)))
        of_shape = np.fromiter(map(len, leaves), np.int64, len(leaves))
        executed = calls.executed[t.computation]
        count = np.where(executed, of_shape[t.shape], 0)
        end = np.cumsum(count)
        total = int(count.sum())
        self.first: list[int] = np.where(executed, end - count, -1).tolist()
        self.count: list[int] = count.tolist()
        self.origin = np.repeat(np.arange(len(count)), count)
        self.shape = ids[spans((np.cumsum(of_shape) - of_shape)[t.shape], count)]
        self.shapes: list[Shape] = [self.leaf_shapes[k] for k in self.shape.tolist()]
        self.parent = list(range(total))
        self.defines = bytearray(b"\x01") * total
        self.merges = bytearray(total)
        self._after: list[tuple[int, int]] = []
        self._callees: dict[int, list[Edge]] = {}
        for e in calls.edges:
            self._callees.setdefault(e.caller, []).append(e)
        joins = executed & ~t.by_opcode(_PLAIN.__contains__, bool)
        for n in np.flatnonzero(joins).tolist():
            self._join(module.instructions[n])

    def nodes(self, i: Instruction) -> range:
        start = self.first[i.index]
        return range(start, start + self.count[i.index])

    def read(self, but: Collection[str]) -> tuple[Ints, Ints]:
        """(instruction, node) of every operand, but of instructions of these opcodes."""
        t = table(self.module)
        reads = t.by_opcode(lambda o: o not in but, bool) & self.calls.executed[t.computation]
        rows = reads[t.operands.rows]
        first, count = np.array(self.first, np.int64), np.array(self.count, np.int64)
        operands = t.operands.values[rows]
        counts = count[operands]
        return np.repeat(t.operands.rows[rows], counts), spans(first[operands], counts)

    def find(self, v: int) -> int:
        parent = self.parent
        while parent[v] != v:
            parent[v] = parent[parent[v]]
            v = parent[v]
        return v

    def groups(self) -> tuple[Ints, Ints]:
        """(value, place) of every node, each as the index of one of its nodes.

        Successive values in one place, such as those that a loop carries from step to step, are
        separate values; the place is free from the last use of one to the next.
        """
        values = _roots(self.parent)
        for a, b in self._after:
            self._join_roots(a, b)
        return values, _roots(self.parent)

    def _join_roots(self, a: int, b: int) -> None:
        ra, rb = self.find(a), self.find(b)
        if ra != rb:  # the smaller index stays the root, to be deterministic
            self.parent[max(ra, rb)] = min(ra, rb)

    def _unite(self, new: range, old: range) -> None:
        """Make ``new`` the same values as ``old``, leaf by leaf; ``new`` defines nothing."""
        for a, b in zip(new, old, strict=False):
            self.defines[a] = 0
            self._join_roots(a, b)

    def _join(self, i: Instruction) -> None:
        mine = self.nodes(i)
        op = i.opcode
        operands = i.operands
        if op == "tuple":
            at = mine.start
            for o in operands:
                theirs = self.nodes(o)
                # a damaged dump may give a shape with fewer leaves
                self._unite(range(min(at, mine.stop), min(at + len(theirs), mine.stop)), theirs)
                at += len(theirs)
        elif op == "get-tuple-element":
            span = self._element(i)
            if span is not None:
                self._unite(mine, span)
        elif op == "async-update" and len(operands) > 1:
            self._given_later(i, mine)
        elif op in _FIRST_OPERAND and operands:
            self._unite(mine, self.nodes(operands[0]))
        elif op in _IN_PLACE and operands:
            count = (len(operands) - 1) // 2 if op == "scatter" else 1
            for k in range(min(count, len(mine))):
                self._unite(mine[k : k + 1], self.nodes(operands[k]))
        elif op in ("while", "call", "conditional", "async-start") or op.endswith("-start"):
            self._control(i, mine)
        elif op.endswith("-done") and operands:
            self._done(i, mine)
        elif op == "fusion":
            self._fusion(i, mine)
        elif op == PERMUTE and len(operands) > 1:
            self._unite(mine, self.nodes(operands[1]))  # sends into a given buffer
        if "output_to_operand_aliasing" in i.attribute_text:
            self._declared(i, mine)

    def _element(self, i: Instruction) -> range | None:
        raw = i.attribute_text
        m = _INDEX.search(raw)
        if m is None or not i.operands:
            return None
        try:
            at, count = leaf_span(i.operands[0].shape, (int(m.group(1)),))
        except IndexError:
            return None
        start = self.first[i.operands[0].index]
        return range(start + at, start + at + count)

    def _parameters(self, c: Computation) -> list[range]:
        return [self.nodes(p) for p in c.parameters]

    def _control(self, i: Instruction, mine: range) -> None:
        callees = self._callees.get(i.index, ())
        computations = self.module.computations
        if i.opcode in ("while", "conditional"):
            self.merges[mine.start : mine.stop] = b"\x01" * len(mine)
        if i.opcode == "while":
            given = self.nodes(i.operands[0]) if i.operands else range(0)
            self._follow(mine, given)
            for e in callees:
                for parameter in self._parameters(computations[e.callee])[:1]:
                    self._unite(parameter, given)
                root = computations[e.callee].root
                if e.role is Role.BODY and root is not None:
                    self._after += zip(self.nodes(root), given, strict=False)
            return
        if i.opcode in ("call", "conditional"):
            for position, e in enumerate(callees):
                c = computations[e.callee]
                operands = i.operands if i.opcode == "call" else i.operands[1 + position :][:1]
                for parameter, o in zip(self._parameters(c), operands, strict=False):
                    self._unite(parameter, self.nodes(o))
                if c.root is None:
                    continue
                if i.opcode == "conditional":
                    self._follow(mine, self.nodes(c.root))
                    continue
                for v in mine:
                    self.defines[v] = 0
                self._same(self.nodes(c.root), mine)
            return
        # starts of asynchronous operations: operands are repeated before the actual results
        at = mine.start
        given_nodes = [v for o in i.operands for v in self.nodes(o)]
        if i.opcode == "copy-start":
            self._unite(
                mine[1:2], range(given_nodes[0], given_nodes[0] + 1) if given_nodes else range(0)
            )
            return
        if i.opcode.removesuffix("-start") in _START_IS_VALUE:
            for k, v in enumerate(given_nodes[: len(mine)]):
                self._unite(mine[k : k + 1], range(v, v + 1))
            return
        if len(mine) > len(given_nodes):
            for k, v in enumerate(given_nodes):
                self._unite(range(at + k, at + k + 1), range(v, v + 1))
        for e in callees:
            if e.role is not Role.CALL:
                continue
            c = computations[e.callee]
            for parameter, o in zip(self._parameters(c), i.operands, strict=False):
                self._unite(parameter, self.nodes(o))
            if c.root is not None:
                made = mine[len(given_nodes) :]
                for v in made:
                    self.defines[v] = 0
                self._same(self.nodes(c.root), made)

    def _given_later(self, i: Instruction, mine: range) -> None:
        """An update that gives an asynchronous operation its operands, and has its results."""
        given = [v for o in i.operands[1:] for v in self.nodes(o)]
        for k, v in enumerate(given[: len(mine)]):
            self._unite(mine[k : k + 1], range(v, v + 1))
        for e in self._callees.get(_start_of(i).index, ()):
            c = self.module.computations[e.callee]
            if e.role is not Role.CALL or c.root is None:
                continue
            for parameter, o in zip(self._parameters(c), i.operands[1:], strict=False):
                self._unite(parameter, self.nodes(o))
            made = mine[len(given) : len(given) + len(self.nodes(c.root))]
            for v in made:
                self.defines[v] = 0
            self._same(self.nodes(c.root), made)

    def _follow(self, new: range, old: range) -> None:
        """Place ``new`` where ``old`` were, as later values; ``new`` defines nothing."""
        for v in new:
            self.defines[v] = 0
        self._after += zip(new, old, strict=False)

    def _same(self, a: range, b: range) -> None:
        """Join nodes without marking either as passing a value on."""
        for x, y in zip(a, b, strict=False):
            self._join_roots(x, y)

    def _done(self, i: Instruction, mine: range) -> None:
        start = i.operands[0]
        theirs = self.nodes(start)
        if i.opcode == "copy-done":
            self._unite(mine, theirs[:1])
        elif len(theirs) > len(mine):
            first = start.shape.tuple_shapes[0]
            before = sum(len(self.nodes(o)) for o in _start_of(start).operands)
            if start.opcode == "async-update" and first.is_tuple:
                before = len(leaves_of(first))  # its operands, wherever they were given
            if i.opcode in ("recv-done", "send-done"):
                before = 0
            self._unite(mine, theirs[before : before + len(mine)])
        else:
            self._unite(mine, theirs)

    def _fusion(self, i: Instruction, mine: range) -> None:
        for e in self._callees.get(i.index, ()):
            root = self.module.computations[e.callee].root
            if root is None:
                return
            outputs = root.operands if root.opcode == "tuple" else (root,)
            if len(outputs) != len(mine):
                return
            for k, out in enumerate(outputs):
                number = _updated_parameter(out)
                if number is not None and number < len(i.operands):
                    theirs = self.nodes(i.operands[number])
                    if len(theirs) == 1:
                        self._unite(mine[k : k + 1], theirs)

    def _declared(self, i: Instruction, mine: range) -> None:
        m = _ALIASING.search(i.attribute_text)
        if m is None:
            return
        for out, number, inner in _ALIAS_ENTRY.findall(i.attribute_text[m.end() :]):
            try:
                at, count = leaf_span(i.shape, _index(out))
                operand = i.operands[int(number)]
                there, same = leaf_span(operand.shape, _index(inner))
            except IndexError:
                continue
            if count == same:
                start = self.first[operand.index] + there
                self._unite(mine[at : at + count], range(start, start + same))

    def donations(self, aliases: Sequence[Alias] | None = None) -> list[tuple[int, int]]:
        """(parameter node, output node) pairs of aliases, all of them if none are given.

        Each pair shares an allocation but is two buffers: between the last use of one and the
        definition of the other, the place is free.
        """
        entry = self.module.entry
        wanted = self.aliases if aliases is None else aliases
        if entry is None or entry.root is None or not wanted:
            return []
        out: list[tuple[int, int]] = []
        parameters = {p.parameter_number: p for p in entry.parameters}
        for alias in wanted:
            p = parameters.get(alias.parameter_number)
            if p is None:
                continue
            try:
                at, count = leaf_span(entry.root.shape, alias.output_index)
                there, same = leaf_span(p.shape, alias.parameter_index)
            except IndexError:
                continue
            if count == same:
                a, b = self.first[entry.root.index] + at, self.first[p.index] + there
                out += [(b + k, a + k) for k in range(count)]
        return out


def _roots(parents: list[int]) -> Ints:
    parent = np.array(parents, np.int64)
    while True:
        above = parent[parent] if len(parent) else parent
        if np.array_equal(above, parent):
            return parent
        parent = above


_INDEX = re.compile(r"\bindex=(\d{1,6})")
# Opcodes whose results never alias their operands: most of the instructions.
_PLAIN = (
    {
        o.name
        for o in opcodes.OPCODES.values()
        if o.effect
        in (
            Effect.PARAMETER, Effect.LITERAL, Effect.IDENTIFIES, Effect.DRAWS, Effect.RESHAPES,
            Effect.REORDERS, Effect.CONVERTS, Effect.REPEATS, Effect.SLICES, Effect.CHOOSES,
            Effect.COMPUTES, Effect.REDUCES, Effect.MULTIPLIES,
        )
    }
    | {"copy", "concatenate", "pad", "gather", "sort"}
) - {"bitcast"}  # fmt: skip


def _index(text: str) -> tuple[int, ...]:
    return tuple(int(k) for k in text.replace(",", " ").split())


def _start_of(i: Instruction) -> Instruction:
    """The start of an asynchronous operation, before any updates."""
    return walk.source(i, lambda x: x.opcode.endswith("-update")).instruction


def _updated_parameter(out: Instruction) -> int | None:
    """The fused parameter that a fusion's output updates in place, or None."""
    if out.opcode == "bitcast":
        out = walk.source(out, _RENAMED).instruction
    if out.opcode not in ("dynamic-update-slice", "scatter") or not out.operands:
        return None
    source = walk.source(out.operands[0], _RENAMED).instruction
    return source.parameter_number if source.opcode == "parameter" else None


_RENAMED = frozenset({"bitcast"})
