"""What is in a branch of a conditional may or may not run: figures over branches are ranges.

    conditional(p)  branch 0: all-reduce, 4 KiB          least 1 KiB: branch 1 each time
                    branch 1: all-gather, 1 KiB          most  4 KiB: branch 0 each time

There may be loops around both: a branch in a loop of 8 steps is taken 0 to 8 times.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ....hlo import Module
from ..table import per_module, table
from .trips import counted


@dataclass(frozen=True, slots=True)
class Branch:
    """One branch of a conditional: its instruction's index, number and how many there are."""

    conditional: int
    number: int
    of: int


Path = tuple[Branch, ...]  # the branches around something, outermost first


@per_module
def branches(module: Module) -> tuple[Path, ...]:
    """The branches around each computation, by ``Computation.index``."""
    t = table(module)
    caller, _ = t.caller()
    paths: list[Path | None] = [None] * len(module.computations)
    if not len(t.where("conditional")):
        return ((),) * len(paths)
    for start in range(len(paths)):
        chain, at = [], start
        while paths[at] is None and at not in chain:
            chain.append(at)
            row = int(caller[at])
            if row < 0:
                break
            at = int(t.computation[row])
        for c in reversed(chain):
            paths[c] = _path(module, c, int(caller[c]), paths)
    return tuple(p or () for p in paths)


def _path(module: Module, c: int, row: int, paths: Sequence[Path | None]) -> Path:
    if row < 0:
        return ()
    call = module.instructions[row]
    around = paths[call.computation.index] or ()
    if call.opcode != "conditional":
        return around
    called = [x.index for x in call.called_computations]
    return (*around, Branch(row, called.index(c), len(called)))


@per_module
def most_runs(module: Module) -> tuple[int | None, ...]:
    """How often each computation runs where all branches around it are taken each time.

    None if a trip count is unknown, as in ``trips.multiplicity``.
    """
    return counted(module, 1)


@per_module
def most_runs_a_trip(module: Module) -> tuple[int | None, ...]:
    """``most_runs`` in one trip of each loop of unknown trip count; None only without ENTRY."""
    return counted(module, 1, 1)


Weighed = Sequence[tuple[Path, float]]


def span(rows: Weighed) -> tuple[float, float]:
    """(least, most) of a sum, whichever branches run; a row is a path and a figure."""
    least, most, _ = _span([(p, v, n) for n, (p, v) in enumerate(rows)], 0)
    return least, most


def heaviest(rows: Weighed) -> frozenset[int]:
    """Which rows make up the most of ``span``: those of the branches that it takes."""
    return frozenset(_span([(p, v, n) for n, (p, v) in enumerate(rows)], 0)[2])


Rows = list[tuple[Path, float, int]]


def _span(rows: Rows, depth: int) -> tuple[float, float, list[int]]:
    least = most = 0.0
    taken: list[int] = []
    inner: dict[int, dict[Branch, Rows]] = {}
    for row in rows:
        path, value, n = row
        if len(path) == depth:
            least, most = least + value, most + value
            taken.append(n)
        else:
            at = inner.setdefault(path[depth].conditional, {})
            at.setdefault(path[depth], []).append(row)
    for sides in inner.values():
        found = [_span(of, depth + 1) for of in sides.values()]
        one = next(iter(sides))
        empty: list[tuple[float, float, list[int]]] = (
            [(0.0, 0.0, [])] if len(sides) < one.of else []
        )
        least += min(low for low, _, _ in [*found, *empty])
        best = max(found, key=lambda x: x[1])
        most += best[1]
        taken += best[2]
    return least, most, taken
