"""A source line for every instruction: its own, or one inferred from another, with the reason.

Compilers lose lines (a matmul rewritten, a layout copy inserted). What has none gets the first
that is known of:

    a fusion, loop, call     its heaviest part
    a combined collective    that of most of its bytes: XLA gives it the line of its first array
    a matmul, convolution    its reshape or transpose that is still named ``dot_general``
    a copy, cast, prefetch   what needs the value first, through tuples, loops and fusions
    a partial sum's reduce   what made the value
    anything else            what needs it, else what made it, else the loop or fusion around it

Arguments get none: they are the caller's. The rule is the same in Source, Cost, Memory and
wherever a line is shown; ``Lines.why`` says what it was inferred from.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ....hlo import FrameTable, Instruction, Module, StackFrame, opcodes
from ....hlo.collective_kinds import KINDS
from ....hlo.columns import each_once
from ....hlo.opcodes import async_half
from ....hlo.texts.places import short_place
from ..table import Ints, Table, per_module, table
from .flow import Flow, flow, is_move, nearest, stacks, weights
from .frames import own_line

NONE, OWN, PART, NAMED, SERVES, OF, INSIDE = range(7)
# Collectives that finish a partial sum belong to what was summed; all else to what it is for.
_FINISHING = opcodes.BUNDLES | opcodes.with_halves(*(k.name for k in KINDS.values() if k.reduces))
_SAYS_MATMUL = ("dot_general", "conv_general_dilated", "ragged_dot", "dot-general")
_LOST_OFTEN = ("dot", "convolution", "custom-call")
_TELL_NOTHING = opcodes.LOOPS | opcodes.LITERALS  # only carries, or is stacked into, other values
_FAR = 6  # at most this many reshapes and transposes between a matmul and the one that names it
_COMBINED = opcodes.with_halves(*(k.name for k in KINDS.values() if k.reduces or k.gathers))
_DEEP = 12  # computations in computations

_KINDS = {PART: "its heaviest part is", NAMED: "named by", INSIDE: "inside"}
_DUPLICATE = "copy as it is"  # beside opcodes
_SPACE = re.compile(r":?S\(\d+\)")
_NOUNS = {
    "copy": "layout", _DUPLICATE: "copy", "transpose": "layout", "bitcast": "layout",
    "reshape": "layout", "convert": "conversion", "broadcast": "value", "constant": "value",
    "iota": "value", "parameter": "argument", "get-tuple-element": "element",
    "all-gather": "gathering",
    "slice": "slice", "dynamic-slice": "slice", "pad": "padding", "concatenate": "joining",
    "copy-start": "move", "copy-done": "move", "slice-start": "move", "slice-done": "move",
    "all-gather-start": "gathering", "all-gather-done": "gathering",
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class Lines:
    """The line of each instruction of a module; arrays have one row per instruction.

    ``frame`` is the innermost frame id in ``table`` (0 for none), ``kind`` how it is known,
    ``via`` the instruction it was inferred from (-1 for own lines and for none).
    """

    module: Module
    table: FrameTable
    frame: Ints
    kind: NDArray[np.uint8]
    via: Ints

    @cached_property
    def inferred(self) -> NDArray[np.bool_]:
        """Whether the line is another instruction's."""
        return self.kind > OWN

    def frames(self, i: Instruction) -> tuple[StackFrame, ...]:
        """The Python stack, own or inferred, innermost frame first; () where unknown."""
        return self.table.stack(int(self.frame[i.index]))

    def of(self, i: Instruction) -> StackFrame | None:
        """The line shown for it: the innermost outside libraries; None where unknown."""
        frame = int(self.frame[i.index])
        if frame not in self._own:
            self._own[frame] = own_line(self.table.stack(frame))
        return self._own[frame]

    @cached_property
    def _own(self) -> dict[int, StackFrame | None]:
        """``of`` by frame id, where it was asked for."""
        return {}

    def serves(self, i: Instruction) -> Instruction | None:
        """The instruction whose line an instruction without its own has."""
        via = int(self.via[i.index])
        return self.module.instructions[via] if via >= 0 else None

    def why(self, i: Instruction) -> str:
        """How a line was inferred: "layout for `dot.89`"; '' for own lines and where unknown."""
        other = self.serves(i)
        if other is None:
            return ""
        return f"{_phrase(_work(i), int(self.kind[i.index]))} `{other.name}`"

    def text(self, i: Instruction) -> str:
        """ "model.py:8", or "model.py:8, inferred: layout for `dot.89`"; '' where unknown."""
        return said(self.of(i), self.why(i))

    def phrases(self) -> tuple[NDArray[np.uint8], list[str]]:
        """``why`` of all instructions: indices into a list of words, which precede ``via``'s name.

        0 is '', for own lines and where none is known.
        """
        t = table(self.module)
        opcode = np.array(t.opcode)
        opcodes = list(dict.fromkeys((*t.opcodes, *_NOUNS)))
        of = {o: n for n, o in enumerate(opcodes)}
        moves = np.flatnonzero(is_move(t) & t.by_opcode(lambda o: o in ("fusion", "copy"), bool))
        for row in moves[self.via[moves] >= 0].tolist():
            opcode[row] = of.get(_work(t.instructions[row]), opcode[row])
        words = {"": 0}
        wide = len(opcodes)
        keys = np.where(self.via >= 0, self.kind.astype(np.int64) * wide + opcode, 0)
        distinct, back = np.unique(keys, return_inverse=True)
        said = [_phrase(opcodes[k % wide], k // wide) if k else "" for k in distinct.tolist()]
        ids = [words.setdefault(s, len(words)) for s in said]
        column = np.array(ids, np.uint8)[back] if len(ids) else np.zeros(0, np.uint8)
        return column, list(words)


def said(at: StackFrame | None, why: str) -> str:
    """A line as tables show it: its file without folders, and how it was inferred."""
    if at is None:
        return ""
    return short_place(at.file, at.line) + (f", inferred: {why}" if why else "")


def _work(i: Instruction) -> str:
    """The opcode that says what an instruction does, a key of ``_NOUNS``; for a fusion of moves
    that of a cast in it, else its root's."""
    if i.opcode == "fusion" and is_move(table(i.module))[i.index]:
        inside = i.called_computations[0]
        if any(x.opcode == "convert" for x in inside.instructions):
            return "convert"
        if inside.root is not None:
            return _work(inside.root)
    if i.opcode == "copy" and i.operands:
        layouts = i.operands[0].shape.layout, i.shape.layout
        given, made = (layout.text if layout is not None else "" for layout in layouts)
        if given == made:
            return _DUPLICATE
        if _SPACE.sub("", given) == _SPACE.sub("", made):
            return "copy-start"  # to other memory
    return i.opcode


def _phrase(opcode: str, kind: int) -> str:
    """What an instruction is to the one whose line it has."""
    if kind in _KINDS:
        return _KINDS[kind]
    noun = _NOUNS.get(opcode)
    if kind == SERVES:
        return f"{noun} for" if noun else "made for"
    return f"{noun} of" if noun else "made from"


@per_module
def lines(module: Module) -> Lines:
    """The line of every instruction; made once for a module."""
    frames, ids = module.source_frames()
    frame = np.array(ids, np.int64)
    frame[frame > len(frames.frames)] = 0  # in a damaged dump
    kind = np.where(frame > 0, OWN, NONE).astype(np.uint8)
    via = np.full(len(frame), -1, np.int64)
    found = Lines(module, frames, frame, kind, via)
    if module.dialect == "hlo" and frame.any():
        _combined(found, table(module))
        if not frame.all():
            _infer(found, table(module))
    return found


def _combined(found: Lines, t: Table) -> None:
    """Gives collectives of several arrays the line that most of their bytes are for."""
    for row in t.where(*_COMBINED).tolist():
        if not found.frame[row] or len(t.instructions[row].operands) < 2:
            continue
        by_place: dict[tuple[str, int] | None, list[tuple[int, int]]] = defaultdict(list)
        for number, operand in enumerate(t.instructions[row].operands):
            at = _array(found, t.instructions[row], number)
            by_place[_place(found, at)].append((operand.shape.byte_size, at))
        if None in by_place:  # what is not known may be most of it
            continue
        most = max(by_place, key=lambda p: sum(size for size, _ in by_place[p]))
        if most != _place(found, row):
            via = max(by_place[most], key=lambda x: x[0])[1]
            found.frame[row] = found.frame[via]
            found.kind[row] = PART
            found.via[row] = via


def _array(found: Lines, i: Instruction, number: int) -> int:
    """What has the line of one array of a combined collective: its result, or what was sent."""
    ends = [u for u in i.users if async_half(u.opcode) is not None] or [i]
    for user in ends[0].users:
        is_element = user.opcode == "get-tuple-element" and user.tuple_index == number
        if is_element and found.frame[user.index]:
            return user.index
    return i.operands[number].index


def _infer(found: Lines, t: Table) -> None:
    frame, kind = found.frame, found.kind
    _parts(found, t)
    if not (frame == 0).any():
        return
    edges = flow(found.module)
    _named(found, t, edges)
    known = frame > 0
    lost = ~known & ~_arguments(found.module, t)
    ahead, behind = _both_ways(edges, known)
    of_loops = _of_loops(found, t)
    if of_loops.any():  # what a loop's own slices carry is for its users, if there are any
        telling = ~t.by_opcode(_TELL_NOTHING.__contains__, bool)
        farther = _both_ways(edges.of_arrays(t), known & telling & ~of_loops)
        ahead = np.where(farther[0] >= 0, farther[0], ahead)
        behind = np.where(farther[1] >= 0, farther[1], behind)
    finishing = t.by_opcode(_FINISHING.__contains__, bool)
    first = np.where(finishing, behind, ahead)
    second = np.where(finishing, ahead, behind)
    use = np.where(first >= 0, first, second)
    forward = np.where(first >= 0, ~finishing, finishing)
    rows = np.flatnonzero(lost & (use >= 0))
    kind[rows] = np.where(forward[rows], SERVES, OF)
    found.via[rows] = use[rows]
    frame[rows] = frame[use[rows]]
    _around(found, t, lost)


def _both_ways(edges: Flow, known: NDArray[np.bool_]) -> tuple[Ints, Ints]:
    """For each row that is not known, the nearest known one ahead and behind; -1 for none."""
    return nearest(edges.src, edges.dst, known), nearest(edges.dst, edges.src, known)


def _of_loops(found: Lines, t: Table) -> NDArray[np.bool_]:
    """Slices and stacks that a scan makes from what it carries: moves with the line of a loop."""
    out = np.zeros(len(t.opcode), bool)
    places = {_place(found, row) for row in t.where("while").tolist()} - {None}
    if places:
        moves = is_move(t) | stacks(t)
        frames = each_once(found.frame[moves])
        inside = [f for f in frames.tolist() if _own(found, f) in places]
        out = moves & np.isin(found.frame, inside)
    return out


def _place(found: Lines, row: int) -> tuple[str, int] | None:
    return _own(found, int(found.frame[row]))


def _own(found: Lines, frame: int) -> tuple[str, int] | None:
    at = own_line(found.table.stack(frame)) if frame else None
    return (at.file, at.line) if at is not None else None


def _arguments(module: Module, t: Table) -> NDArray[np.bool_]:
    out = np.zeros(len(t.opcode), bool)
    if module.entry is not None:
        rows = t.where("parameter")
        out[rows[t.computation[rows] == module.entry.index]] = True
    return out


def _parts(found: Lines, t: Table) -> None:
    """Gives callers without a line that of the heaviest part of what they call."""
    frame, n = found.frame, len(found.frame)
    applied = np.array([r == "to_apply" for r in t.called_roles], bool)
    applied &= ~t.by_opcode(lambda o: o == "call", bool)[t.called.rows]  # a reducer is not a part
    callers, called = t.called.rows[~applied], t.called.values[~applied]
    weight = weights(t)
    for _ in range(_DEEP):
        order = np.argsort(weight, kind="stable")
        rank = np.empty(n, np.int64)
        rank[order] = np.arange(n)
        best = t.reduce_by_computation(np.maximum, np.where(frame > 0, rank + 1, 0), 0)
        inner = best[called]
        lost = (frame[callers] == 0) & (inner > 0)
        if not lost.any():
            return
        top = np.zeros(n, np.int64)
        np.maximum.at(top, callers[lost], inner[lost])
        rows = np.flatnonzero(top)
        via = order[top[rows] - 1]
        # A nested fusion is as heavy as the part it got its line from.
        found.via[rows] = np.where(found.via[via] >= 0, found.via[via], via)
        weight[rows] = np.maximum(weight[rows], weight[via])
        frame[rows] = frame[via]
        found.kind[rows] = PART


def _named(found: Lines, t: Table, edges: Flow) -> None:
    """Gives matmuls without a line that of the reshape that still has their name."""
    wanted = t.where(*_LOST_OFTEN)
    wanted = wanted[found.frame[wanted] == 0]
    if not len(wanted):
        return
    moves = is_move(t) | t.by_opcode(lambda o: o in ("parameter", "get-tuple-element"), bool)
    says = [n.partition("[")[0].rpartition("/")[2].startswith(_SAYS_MATMUL) for n in t.op_names]
    told = np.array(says, bool)[t.op_name] & (found.kind == OWN) & moves
    if not told.any():
        return
    for row in wanted.tolist():
        via = _walk(row, edges.users, told, moves)
        via = via if via >= 0 else _walk(row, edges.makers, told, moves)
        if via >= 0:
            found.frame[row] = found.frame[via]
            found.kind[row] = NAMED
            found.via[row] = via


def _walk(row: int, step: object, told: NDArray[np.bool_], moves: NDArray[np.bool_]) -> int:
    """The nearest row in ``told``, over moves alone; -1 for none."""
    at, seen = [row], {row}
    for _ in range(_FAR):
        ahead: list[int] = []
        for a in at:
            for b in step(a):  # type: ignore[operator]
                if told[b]:
                    return int(b)
                if moves[b] and b not in seen:
                    seen.add(b)
                    ahead.append(b)
        at = ahead
    return -1


def _around(found: Lines, t: Table, lost: NDArray[np.bool_]) -> None:
    """Gives the rest the line of the loop or fusion they are in."""
    caller, _ = t.caller()
    for _ in range(_DEEP):
        rows = np.flatnonzero(lost & (found.frame == 0))
        outer = caller[t.computation[rows]]
        some = (outer >= 0) & (found.frame[outer] > 0)
        if not some.any():
            return
        rows, outer = rows[some], outer[some]
        found.frame[rows] = found.frame[outer]
        found.kind[rows] = INSIDE
        found.via[rows] = outer
