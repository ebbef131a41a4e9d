"""``add_picture``: the tables that every View has, and what its header says about them."""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from ..analysis.base.labels.families import FAMILIES, families
from ..analysis.base.labels.flags import LITTLE, PLUMBING, flags, output_bytes
from ..analysis.base.table import Ints, csr
from ..analysis.grouping.groups import KINDS
from ..analysis.grouping.work import little
from ..analysis.grouping.worth import worth_opening
from .builder import Builder
from .context import Context

if TYPE_CHECKING:
    from .header import Dialect, GroupKind, PictureContent


def add_picture(b: Builder, c: Context) -> PictureContent:
    """Adds the columns that a picture is made of; returns their part of the header."""
    _instructions(b, c)
    roles = _operands_and_calls(b, c)
    _computations(b, c)
    _groups(b, c)
    _frames(b, c)
    return {
        "opcodes": list(c.table.opcodes),
        "families": [{"id": f.id, "label": f.label, "landmark": f.landmark} for f in FAMILIES],
        "groupKinds": cast("list[GroupKind]", list(KINDS)),
        "callRoles": roles,
        "counts": {
            "instructions": len(c.module.instructions),
            "computations": len(c.module.computations),
            "groups": len(c.groups.parent),
            "folds": len(c.folds.folds),
        },
        "dialect": cast("Dialect", c.module.dialect),
    }


def _tuple_elements(c: Context) -> np.ndarray:
    """Index that each get-tuple-element takes; -1 for other instructions and unreadable ones."""
    out = np.full(len(c.table.instructions), -1, np.int32)
    known = c.module.tuple_indices
    out[list(known)] = [-1 if number is None else number for number in known.values()]
    return out


def _instructions(b: Builder, c: Context) -> None:
    t, module = c.table, c.module
    names = b.strings.ids(t.op_names)
    shapes = b.strings.ids([s.text for s in t.shapes])
    dense = b.strings.ids([s.dense_text for s in t.shapes])
    every_name = list(map(attrgetter("name"), t.instructions))
    b.text_ids("instruction.name", b.strings.names(every_name))
    b.column("instruction.label", c.instruction_labels)
    code = c.instruction_code
    b.column("instruction.code", [code.get(row, "") for row in range(len(t.instructions))])
    b.column("instruction.opcode", t.opcode)
    zeros: Any = np.zeros(len(t.instructions), np.int64)
    kinds: Any = c.or_without("kinds of operations", lambda: families(module), lambda: zeros)
    b.column("instruction.family", kinds)
    marks: Any = c.or_without(
        "which operations to draw faintly", lambda: flags(module), lambda: zeros
    )
    if c.copies_are_drawn:
        kept = np.array([o != "copy" for o in t.opcodes], bool)[t.opcode]
        marks = np.where(kept, marks, np.asarray(marks, np.int64) & ~PLUMBING)
    few: Any = c.or_without("which operations are small", lambda: little(module), lambda: zeros)
    b.column("instruction.flags", np.asarray(marks, np.int64) | LITTLE * np.asarray(few, np.int64))
    b.text_ids("instruction.shape", shapes[t.shape])
    b.text_ids("instruction.dense_shape", dense[t.shape])
    b.column("instruction.bytes", output_bytes(t))
    b.column("instruction.element", _tuple_elements(c))
    b.column("instruction.computation", t.computation)
    b.column("instruction.group", c.groups.group)
    b.text_ids("instruction.op_name", names[t.op_name])


def _operands_and_calls(b: Builder, c: Context) -> list[str]:
    """Returns the roles that called.role indexes."""
    t = c.table
    b.relation("operand", t.operands.offsets, t.operands.values)
    b.relation("control", *_control(c))
    roles = list(dict.fromkeys(t.called_roles))
    b.relation("called", t.called.offsets, t.called.values)
    b.column("called.role", np.array([roles.index(r) for r in t.called_roles], np.int64))
    return roles


def _control(c: Context) -> tuple[Ints, Ints]:
    """Offsets and values of what each instruction waits for without using it."""
    of, texts = c.module.attribute_texts
    said = np.array(["control-predecessors" in text for text in texts], bool)
    counts = np.zeros(len(of) + 1, np.int64)
    values: list[int] = []
    for row in np.flatnonzero(said[of]).tolist():
        mine = [p.index for p in c.table.instructions[row].control_predecessors]
        counts[row + 1] = len(mine)
        values += mine
    return np.cumsum(counts), np.array(values, np.int64)


def _computations(b: Builder, c: Context) -> None:
    module, t = c.module, c.table
    b.column("computation.name", [x.name for x in module.computations])
    b.column("computation.first", t.first)
    b.column("computation.size", t.size)
    b.column("computation.root", t.roots)
    b.column("computation.group", c.groups.of_computation)


def _groups(b: Builder, c: Context) -> None:
    g, f = c.groups, c.folds
    b.column("group.parent", g.parent)
    b.column("group.kind", g.kind)
    count = len(g.parent)
    b.column("group.label", c.group_labels)
    functions: dict[int, str] = c.or_without(
        "functions of groups", lambda: c.box_names.functions(), dict
    )
    b.column("group.function", [functions.get(n, "") for n in range(count)])
    b.column("group.owner", g.owner)
    b.column("group.computation", g.computation)
    b.column("group.size", g.size)
    b.column("group.order", g.order)
    b.column("group.turn", g.turn)
    none: Any = np.zeros(count)
    share: Any = c.or_without("shares of work", lambda: worth_opening(c.module, g), lambda: none)
    b.column("group.worth", share)
    b.column("group.class", f.group_class)
    b.column("group.fold", f.of_group)
    b.column("group.direction", [(n in g.forward) + 2 * (n in g.backward) for n in range(count)])
    members = csr([list(x.members) for x in f.folds])
    b.column("fold.parent", np.array([x.parent for x in f.folds], np.int64))
    b.column("fold.label", c.fold_labels)
    b.relation("fold", members.offsets, members.values)


def _frames(b: Builder, c: Context) -> None:
    frames, ids = c.module.source_frames()
    files, functions = b.strings.ids(frames.files), b.strings.ids(frames.functions)
    file, function, line, parent = [], [], [], []
    for location, up in frames.frames:
        known = 0 < location <= len(frames.locations)
        file_id, function_id, at = frames.locations[location - 1][:3] if known else (0, 0, 0)
        file.append(int(files[file_id - 1]) if 0 < file_id <= len(files) else 0)
        function.append(int(functions[function_id - 1]) if 0 < function_id <= len(functions) else 0)
        line.append(at if 0 < at < 1 << 32 else 0)
        parent.append(up - 1 if 0 < up <= len(frames.frames) else -1)
    _break_loops(parent)
    of = np.array(ids, np.int64) - 1
    of[of >= len(parent)] = -1
    b.column("instruction.frame", of)
    b.text_ids("frame.file", np.array(file, np.int64))
    b.text_ids("frame.function", np.array(function, np.int64))
    b.column("frame.line", np.array(line, np.int64))
    b.column("frame.parent", np.array(parent, np.int64))


def _break_loops(parent: list[int]) -> None:
    """Cuts parent chains that return to themselves (damaged dumps), in place."""
    done = [False] * len(parent)
    for start in range(len(parent)):
        path: dict[int, None] = {}
        at, last = start, -1
        while at >= 0 and not done[at]:
            if at in path:
                parent[last] = -1
                break
            path[at] = None
            last, at = at, parent[at]
        for row in path:
            done[row] = True
