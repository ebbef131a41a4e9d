"""A program as one readable page of text, which a golden keeps and a review can read.

    print(page(capture))      the summary, every result as it prints itself, the groups with their
                              instructions, and for a capture what became of its operations

In the tree of groups only the first member of a fold is opened, and of a group with many
instructions the first few are listed.
"""

from __future__ import annotations

import difflib
from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any

import hloscope as hs
import pytest
from hloscope.show import blocks
from hloscope.view.schema import joined

OTHER_CHIPS = ("h100", "cpu")
HEAD = 7  # lines of the cost on another chip
MOST_ROWS = 6  # instructions listed of one group; of a result three times as many lines
MOST_COLLECTIVES = 4  # whose reasons are given in full
WIDEST = 160  # characters of a line


def page(cap: hs.Capture) -> str:
    parts: list[tuple[str, Iterator[str]]] = [("summary", cut(cap))]
    for name in ("findings", "collectives", "memory", "source", "shardings"):
        parts.append((name, cut(getattr(cap, name))))
    parts.append(("cost", cut(cap.cost())))
    parts += [(f"cost on {chip}", cut(cap.cost(chip), HEAD)) for chip in OTHER_CHIPS]
    for collective in list(cap.collectives)[:MOST_COLLECTIVES]:
        parts.append((f"why {collective.name}", cut(cap.why(collective))))
    parts.append(("groups", groups(cap)))
    if cap.module.origins is not None:
        parts.append(("fates", cut(cap.fates())))
    lines = [f"{cap.module.name}, {len(cap.module.instructions)} instructions"]
    for title, content in parts:
        lines += ["", f"== {title}", *content]
    return "\n".join(line.rstrip()[:WIDEST] for line in lines) + "\n"


def cut(result: object, most: int = 3 * MOST_ROWS) -> Iterator[str]:
    lines = str(result).splitlines()
    yield from lines[:most]
    if len(lines) > most:
        yield f"… {len(lines) - most} more lines"


def groups(cap: hs.Capture) -> Iterator[str]:
    """The tree that the explorer opens with, as an indented list."""
    header, columns = joined(blocks.view(cap), blocks.analyses(cap))
    texts = columns["strings"]

    def column(name: str) -> list[Any]:
        values = columns[name].tolist() if name in columns else []
        text = name in header["columns"] and header["columns"][name].get("text")
        return [texts[v] for v in values] if text else values

    parent, label = column("group.parent"), column("group.label")
    fold, size, group = column("group.fold"), column("group.size"), column("instruction.group")
    inside: dict[int, list[int]] = defaultdict(list)
    for at, above in enumerate(parent):
        inside[above].append(at)
    held: dict[int, list[int]] = defaultdict(list)
    for row, of in enumerate(group):
        held[of].append(row)
    fold_label = column("fold.label")
    members = Counter(fold)
    name, short = column("instruction.name"), column("instruction.label")
    flops, runs = column("cost.flops"), column("cost.runs")

    def tree(at: int, depth: int) -> Iterator[str]:
        indent = "  " * depth
        yield f"{indent}[{label[at]}] {size[at]}"
        rows = held[at]
        for row in rows[:MOST_ROWS]:
            figures = f" {flops[row]:.6g} FLOP" if flops and flops[row] == flops[row] else ""
            figures += f" ×{runs[row]:g}" if runs and runs[row] > 1 else ""
            yield f"{indent}  {short[row]}  %{name[row]}{figures}"
        if len(rows) > MOST_ROWS:
            yield f"{indent}  … {len(rows) - MOST_ROWS} more"
        folded = set()
        for child in inside[at]:
            if fold[child] >= 0 and members[fold[child]] > 1:
                if fold[child] in folded:
                    continue
                folded.add(fold[child])
                yield f"{indent}  {fold_label[fold[child]]} ×{members[fold[child]]}, each:"
            yield from tree(child, depth + 1)

    for root in inside[-1]:
        yield from tree(root, 0)


MOST_DIFFERENT = 60  # lines of a difference that are printed


def assert_same(before: str, now: str) -> None:
    if now != before:
        changed = difflib.unified_diff(
            before.splitlines(), now.splitlines(), "before", "now", lineterm="", n=1
        )
        shown = [line for line, _ in zip(changed, range(MOST_DIFFERENT), strict=False)]
        pytest.fail("\n".join(shown), pytrace=False)
