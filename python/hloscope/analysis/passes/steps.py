"""The instructions followed through all passes: what ``follow.py`` finds.

    dump of row 0 ─┐
    dump of row 1 ─┼─▶ follow ─▶ Steps: nodes (an instruction through all its rows)
    dump of row 2 ─┘                    versions (a line of text from one row on)
                                        replacements (one took the place of another)

Only differences are kept: a version where a line changed, not the 120 texts.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ...readers.hlo.pass_lines import Line

# Bits of a version: what changed from the one before.
BORN, OPCODE, SHAPE, LAYOUT, OPERANDS, ATTRIBUTES, RENAMED = 1, 2, 4, 8, 16, 32, 64
# How it is known that one replaced another.
USERS, RESULT, SOURCE = 0, 1, 2


@dataclass(eq=False, slots=True)
class PassNode:
    """One instruction, in rows ``first`` to ``last - 1``."""

    index: int
    computation: int
    first: int
    last: int
    versions: list[int] = field(default_factory=list)


@dataclass(eq=False, slots=True)
class NodeVersion:
    """A node's line from ``row`` on. ``operands`` are nodes; ``changed`` bits as above."""

    index: int
    row: int
    node: int
    line: Line
    operands: tuple[int, ...]
    changed: int


@dataclass(eq=False, slots=True)
class PassComputation:
    """A computation in rows ``first`` to ``last - 1``; ``order`` has all nodes ever in it."""

    index: int
    name: str
    entry: bool
    first: int
    last: int
    order: list[int] = field(default_factory=list)
    renames: list[tuple[int, str]] = field(default_factory=list)  # from which row on

    def names(self) -> list[tuple[int, int, str]]:
        """(first row, row after the last, name) for each of its names."""
        ends = [row for row, _ in self.renames[1:]] + [self.last]
        return [(row, end, n) for (row, n), end in zip(self.renames, ends, strict=True)]


@dataclass(frozen=True, slots=True)
class Replacement:
    """At ``row``, ``new`` took the place of ``old``; ``how``: its users, the result, the source."""

    row: int
    old: int
    new: int
    how: int


@dataclass(eq=False)
class Steps:
    """What ``follow`` found. ``diffs``: per row, per changed computation, its lines as
    (kind, version): " " kept, "-" gone, "+" new, ">" moved."""

    rows: int
    nodes: list[PassNode]
    versions: list[NodeVersion]
    places: list[PassComputation]
    links: list[Replacement]
    diffs: list[list[tuple[int, list[tuple[str, int]]]]]

    def name(self, node: PassNode) -> str:
        return self.versions[node.versions[-1]].line.name
