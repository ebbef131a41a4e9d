"""``build_view``: the tables every View has; ``build_analyses``: the optional sections."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from operator import attrgetter
from typing import Any, TypeVar

import numpy as np

from ..analysis.base.labels.families import FAMILIES, families
from ..analysis.base.labels.flags import PLUMBING, flags, output_bytes
from ..analysis.base.labels.labels import labels
from ..analysis.base.table import NO_TARGET, Ints, Table, csr, table
from ..analysis.grouping.folds import Folds, folds, no_folds
from ..analysis.grouping.groups import KINDS, GroupTree, group_tree, plain_tree
from ..analysis.grouping.line_code import labels_with_code
from ..analysis.grouping.loop_names import loop_labels
from ..analysis.grouping.worth import worth_opening
from ..analysis.report.summary import CONTRIBUTIONS, summarize
from ..hlo import Module, Target
from . import sections as _sections
from .builder import ANALYSES_MAGIC, VIEW_MAGIC, Builder, no_collection

T = TypeVar("T")


@dataclass(eq=False)
class Context:
    """What a section sees: the module, its target, and analyses made at most once."""

    module: Module
    target: Target
    extras: dict[str, Any] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    copies_are_drawn: bool = False  # also those that only change the layout
    _cache: dict[str, Any] = field(default_factory=dict, repr=False)

    @cached_property
    def table(self) -> Table:
        return table(self.module)

    @cached_property
    def groups(self) -> GroupTree:
        return self.or_without(
            "the groups", lambda: group_tree(self.module), lambda: plain_tree(self.module)
        )

    @cached_property
    def folds(self) -> Folds:
        return self.or_without(
            "repeated groups",
            lambda: folds(self.module, self.groups),
            lambda: no_folds(self.groups),
        )

    def or_without(self, what: str, make: Callable[[], T], plain: Callable[[], T]) -> T:
        """``make()``; where that fails, ``plain()`` and a warning: there is still a picture."""
        try:
            return make()
        except MemoryError:
            raise
        except Exception as error:
            self.warnings.append(
                f"{what} could not be worked out, and the picture goes without it: "
                f"{type(error).__name__}: {error} (a bug in hloscope, please report it)"
            )
            return plain()

    def once(self, name: str, make: Callable[[], T]) -> T:
        """The result of an analysis, shared between sections by name."""
        if name not in self._cache:
            self._cache[name] = make()
        found: T = self._cache[name]
        return found


def build_view(
    module: Module,
    target: Target | None = None,
    *,
    title: str | None = None,
    subtitle: str = "",
) -> bytes:
    """The View block of js/view.ts, gzip'd: what the first picture needs, and nothing else.

    The same module gives the same bytes.
    """
    context = Context(module, target if target is not None else NO_TARGET)
    builder = Builder()
    with no_collection():
        add_picture(builder, context)
        summary = summarize(module, context.target, CONTRIBUTIONS[:1])
        builder.header = picture_header(context) | {
            "title": title or module.name,
            "subtitle": subtitle,
            "isScheduled": module.is_scheduled,
            "summary": summary,
            "warnings": [str(w) for w in module.warnings] + context.warnings,
            "extras": {},
        }
        return builder.finish(VIEW_MAGIC)


def add_picture(b: Builder, c: Context) -> None:
    """The columns that a picture is made of."""
    _instructions(b, c)
    _computations(b, c)
    _groups(b, c)
    _frames(b, c)


def picture_header(c: Context) -> dict[str, Any]:
    """What the header says about those columns."""
    return {
        "opcodes": list(c.table.opcodes),
        "families": [{"id": f.id, "label": f.label, "landmark": f.landmark} for f in FAMILIES],
        "groupKinds": list(KINDS),
        "callRoles": c._cache["call roles"],
        "counts": {
            "instructions": len(c.module.instructions),
            "computations": len(c.module.computations),
            "groups": len(c.groups.parent),
            "folds": len(c.folds.folds),
        },
        "dialect": c.module.dialect,
    }


def build_analyses(
    module: Module,
    target: Target | None = None,
    more: Callable[[Builder, Context], None] | None = None,
) -> bytes:
    """The analyses block of js/view.ts, gzip'd: what takes longer than the first picture may.

    Modelled seconds and bounds are here: the View of a step of 9,679 instructions takes 93 ms, they
    take 65 more, and nothing in the first picture shows them; colours by time come with this block.
    ``more`` adds columns to this one block, which no other View of the module gets.
    """
    context = Context(module, target if target is not None else NO_TARGET)
    builder = Builder()
    with no_collection():
        summary = summarize(module, context.target, CONTRIBUTIONS[1:])
        _optional(builder, context)
        if more is not None:
            more(builder, context)
        builder.header = {
            "instructions": len(module.instructions),
            "summary": summary,
            "warnings": summary.pop("warnings") + context.warnings,
            "extras": context.extras,
        }
        return builder.finish(ANALYSES_MAGIC)


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
    words = c.or_without("labels", lambda: labels(module), lambda: module.opcodes_list)
    words = c.or_without("names of loops", lambda: loop_labels(module, words), lambda: words)
    b.text_column("instruction.label", words)
    b.column("instruction.opcode", "u16", t.opcode)
    zeros: Any = np.zeros(len(t.instructions), np.int64)
    kinds: Any = c.or_without("kinds of operations", lambda: families(module), lambda: zeros)
    b.column("instruction.family", "u8", kinds)
    marks: Any = c.or_without(
        "which operations to draw faintly", lambda: flags(module), lambda: zeros
    )
    if c.copies_are_drawn:
        kept = np.array([o != "copy" for o in t.opcodes], bool)[t.opcode]
        marks = np.where(kept, marks, np.asarray(marks, np.int64) & ~PLUMBING)
    b.column("instruction.flags", "u16", marks)
    b.column("instruction.shape", "u32", shapes[t.shape])
    b.column("instruction.dense_shape", "u32", dense[t.shape])
    b.column("instruction.bytes", "f64", output_bytes(t))
    b.column("instruction.element", "i32", _tuple_elements(c))
    b.column("instruction.computation", "u32", t.computation)
    b.column("instruction.group", "u32", c.groups.group)
    b.column("instruction.op_name", "u32", names[t.op_name])
    b.csr("operand", t.operands.offsets, t.operands.values)
    b.csr("control", *_control(c))
    roles = list(dict.fromkeys(t.called_roles))
    c._cache["call roles"] = roles
    b.csr("called", t.called.offsets, t.called.values)
    b.column("called.role", "u8", np.array([roles.index(r) for r in t.called_roles], np.int64))


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
    b.text_column("computation.name", [x.name for x in module.computations])
    b.column("computation.first", "u32", t.first)
    b.column("computation.size", "u32", t.size)
    b.column("computation.root", "i32", t.roots)
    b.column("computation.group", "i32", c.groups.of_computation)


def _groups(b: Builder, c: Context) -> None:
    g, f = c.groups, c.folds
    b.column("group.parent", "i32", g.parent)
    b.column("group.kind", "u8", g.kind)
    label = c.or_without(
        "code of lines", lambda: labels_with_code(c.module, g, c.target.sources), lambda: g.label
    )
    b.text_column("group.label", label)
    b.column("group.owner", "i32", g.owner)
    b.column("group.computation", "i32", g.computation)
    b.column("group.size", "u32", g.size)
    b.column("group.order", "u32", g.order)
    none: Any = np.zeros(len(g.parent))
    share: Any = c.or_without("shares of work", lambda: worth_opening(c.module, g), lambda: none)
    b.column("group.worth", "f32", share)
    b.column("group.class", "u32", f.group_class)
    b.column("group.fold", "i32", f.of_group)
    members = csr([list(x.members) for x in f.folds])
    b.column("fold.parent", "u32", np.array([x.parent for x in f.folds], np.int64))
    shown = (label[x.members[0]] if x.label == g.label[x.members[0]] else x.label for x in f.folds)
    b.text_column("fold.label", shown)
    b.csr("fold", members.offsets, members.values, "members")


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
    b.column("instruction.frame", "i32", of)
    b.column("frame.file", "u32", np.array(file, np.int64))
    b.column("frame.function", "u32", np.array(function, np.int64))
    b.column("frame.line", "u32", np.array(line, np.int64))
    b.column("frame.parent", "i32", np.array(parent, np.int64))


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


def _optional(b: Builder, c: Context) -> None:
    for name, add in _sections.SECTIONS:
        before, extras = b.names(), dict(c.extras)
        try:
            add(b, c)
            json.dumps(c.extras, allow_nan=False)
        except Exception as error:
            b.forget(before)
            c.extras = extras
            c.warnings.append(f"{name} could not be worked out: {type(error).__name__}: {error}")
