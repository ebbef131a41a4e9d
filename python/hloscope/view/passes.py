"""``build_passes``: the passes block, a View of all instructions that ever existed, and when.

The picture is laid out once for all passes (see analysis/report/pass_union.py); which of its
boxes are there after a pass, and what changed, are columns beside it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from ..analysis.base.pause import uncollected
from ..analysis.base.table import NO_TARGET
from ..analysis.passes.passes import Passes
from ..analysis.passes.steps import BORN, RENAMED, Steps
from ..analysis.passes.union import union
from ..analysis.passes.words import about
from ..analysis.report.summary import CONTRIBUTIONS, summarize
from ..hlo import Module, Target
from .builder import VIEW_MAGIC, Builder
from .context import Context
from .picture import add_picture

if TYPE_CHECKING:
    from .header import PassCost, PassRow, PassTimesExtras, Summary, ViewContent

CONTEXT, GONE, NEW, MOVED, HEADER, SKIPPED = range(6)
_KINDS = {" ": CONTEXT, "-": GONE, "+": NEW, ">": MOVED, "~": CONTEXT}
# Lines shown around a change.
AROUND = 3
# A picture is made of at most this many instructions of all passes together.
MOST_NODES = 600_000
# And a page's FLOPs, bytes and peaks from at most this many: about half a minute.
MOST_COSTED = 600_000
# Passes that are listed by their time.
SLOWEST = 5


class TooLarge(ValueError):
    """Too much to show; the message says how much, and of what."""


def build_passes(
    passes: Passes,
    final: Module,
    target: Target | None = None,
    *,
    title: str = "",
    note: str = "",
    shown: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> bytes:
    """The passes block, gzip'd. ``progress`` may raise to stop.

    ``note`` is shown above the passes, after what ``passes`` itself notes. ``shown`` is the row
    of ``final``, where it is not the last: the picture opens at it.

    Raises ``TooLarge`` over ``MOST_NODES`` instructions.
    """
    steps = passes.follow(progress)
    if len(steps.nodes) > MOST_NODES:
        raise TooLarge(
            f"all passes together hold {len(steps.nodes):,} instructions, over the {MOST_NODES:,} "
            "that a picture is made of; cap.passes() and hloscope passes list them all the same"
        )
    module, order = union(steps, final.name, final.num_partitions)
    with uncollected():
        context = Context(module, target if target is not None else NO_TARGET)
        context.copies_are_drawn = True
        builder = Builder()
        picture = add_picture(builder, context)
        _lives(builder, steps, order, final, shown)
        rows = _rows(passes, steps)
        header: ViewContent = {
            **picture,
            "title": title or final.name,
            "subtitle": "all passes",
            "isScheduled": False,
            "summary": cast("Summary", summarize(module, context.target, CONTRIBUTIONS[:1])),
            "warnings": context.warnings,
            "extras": {
                "passes": {
                    "rows": rows,
                    "begin": _telling(rows) if shown is None else shown,
                    "note": " ".join(filter(None, (passes.note, note))),
                    "times": pass_times(passes),
                }
            },
        }
        return builder.finish(VIEW_MAGIC, header)


def pass_times(passes: Passes) -> PassTimesExtras | None:
    """The compile that was measured, as the passes block has it; None if none was."""
    if passes.times is None:
        return None
    return {
        "total": passes.times.total_seconds,
        "parts": [{"name": name, "seconds": seconds} for name, seconds in passes.parts()],
        "slowest": [
            {"pipeline": s.pipeline, "name": s.name, "seconds": s.seconds, "times": s.times,
             "row": s.row}
            for s in passes.slowest()[:SLOWEST]
        ],
        "seconds": [row.seconds for row in passes.rows],
        "others": list(passes.others),
        "note": passes.times.note,
    }  # fmt: skip


def work_out(passes: Passes, target: Target | None = None) -> str:
    """Works out FLOPs, bytes and peak of every row, for a page that is to include them.

    Returns "", or why none is computed: all passes together hold more than ``MOST_COSTED``
    instructions.
    """
    rows = [r for r in passes.rows if not r.only_metadata]
    total = sum(r.counts["instructions"] for r in rows)
    if total > MOST_COSTED:
        return (
            f"FLOPs, bytes and peaks are not in this page: all passes together hold {total:,}"
            f" instructions, over the {MOST_COSTED:,} that they are worked out for."
        )
    for row in rows:
        passes.cost(row, target)
    return ""


def _rows(passes: Passes, steps: Steps) -> list[PassRow]:
    added = np.bincount([n.first for n in steps.nodes], minlength=steps.rows + 1)
    removed = np.bincount([n.last for n in steps.nodes], minlength=steps.rows + 1)
    changed = np.zeros(steps.rows + 1, np.int64)
    renamed = np.zeros(steps.rows + 1, np.int64)
    for v in steps.versions:
        if not v.changed & BORN:
            changed[v.row] += bool(v.changed & ~RENAMED)
            renamed[v.row] += bool(v.changed & RENAMED)
    out: list[PassRow] = []
    for row in passes.rows:
        k = row.index
        out.append(
            {
                "pipeline": row.pipeline,
                "title": row.title,
                "about": about(row.name),
                "counts": row.counts,
                "change": row.change,
                "added": int(added[k]) if k else 0,
                "removed": int(removed[k]) if k else 0,
                "changed": int(changed[k]),
                "renamed": int(renamed[k]),
                "onlyMetadata": row.only_metadata,
                "cost": cast("PassCost | None", passes.known_cost(k)),
            }
        )
    return out


def _telling(rows: list[PassRow]) -> int:
    """The row to open at: the pass that made the most fusions, else collectives, else changes."""

    def changed(row: PassRow) -> tuple[int, ...]:
        made = [max(0, row["change"].get(what, 0)) for what in ("fusions", "collectives")]
        return (*made, row["added"] + row["removed"] + row["changed"])

    told = [k for k, row in enumerate(rows) if k > 0 and not row["onlyMetadata"]]
    return max(told, key=lambda k: changed(rows[k]), default=0)


def _lives(
    b: Builder, steps: Steps, order: list[int], final: Module, shown: int | None = None
) -> None:
    at = np.full(len(steps.nodes), -1, np.int64)
    at[order] = np.arange(len(order))
    nodes = [steps.nodes[n] for n in order]
    b.column("pass.first", [n.first for n in nodes])
    b.column("pass.last", [n.last for n in nodes])
    b.column("pass.final", [_in_final(steps, n, final, shown) for n in nodes])
    # versions, by row
    versions = sorted(steps.versions, key=lambda v: v.row)
    place = np.empty(len(versions), np.int64)
    place[[v.index for v in versions]] = np.arange(len(versions))
    ends = np.searchsorted([v.row for v in versions], np.arange(steps.rows + 1))
    b.column("version.offsets", ends)
    b.column("version.instruction", at[[v.node for v in versions]] if versions else [])
    b.column("version.changed", [v.changed for v in versions])
    b.column("version.line", [v.line.text for v in versions])
    operands = [[int(at[o]) for o in v.operands if at[o] >= 0] for v in versions]
    b.relation("version_operand", _offsets(operands), [o for x in operands for o in x])
    links = [x for x in steps.links if at[x.old] >= 0 and at[x.new] >= 0]
    b.column("pass_link.row", [x.row for x in links])
    b.column("pass_link.old", at[[x.old for x in links]] if links else [])
    b.column("pass_link.new", at[[x.new for x in links]] if links else [])
    b.column("pass_link.how", [x.how for x in links])
    _diffs(b, steps, place)


def _in_final(steps: Steps, node: Any, final: Module, shown: int | None) -> int:
    """The instruction of the shown module that this one is at the shown row; -1 for none."""
    row = steps.rows - 1 if shown is None else shown
    if not node.first <= row < node.last:
        return -1
    line = next(
        v.line for v in map(steps.versions.__getitem__, reversed(node.versions)) if v.row <= row
    )
    found = final.find(line.name)
    if found is None or found.opcode != line.opcode:
        return -1
    return found.index


def _diffs(b: Builder, steps: Steps, place: Any) -> None:
    """Changed lines of computations with some lines around them, the rest counted."""
    offsets, kinds, values = [0], [], []
    for diffs in steps.diffs:
        for computation, lines in sorted(diffs, key=lambda d: d[0]):
            if not any(kind in "-+>" for kind, _ in lines):
                continue
            kinds.append(HEADER)
            values.append(b.strings.id(steps.places[computation].name))
            near = np.zeros(len(lines) + 1, bool)
            marks = np.flatnonzero([kind in "-+>" for kind, _ in lines])
            for k in range(-AROUND, AROUND + 1):
                near[np.clip(marks + k, 0, len(lines) - 1)] = True
            skipped = 0
            for k, (kind, version) in enumerate(lines):
                if not near[k]:
                    skipped += 1
                    continue
                if skipped:
                    kinds.append(SKIPPED)
                    values.append(skipped)
                    skipped = 0
                kinds.append(_KINDS[kind])
                values.append(int(place[version]))
            if skipped:
                kinds.append(SKIPPED)
                values.append(skipped)
        offsets.append(len(kinds))
    b.column("diff.offsets", offsets)
    b.column("diff.kind", kinds)
    b.column("diff.value", values)


def _offsets(lists: list[list[int]]) -> Any:
    return np.concatenate(([0], np.cumsum([len(x) for x in lists]))).astype(np.int64)
