"""Which layer a product is of, as the arguments of its weights say: ``params['layers'][3]['q']``.

    x @ layers[0]['w']    x @ layers[1]['w']    x @ layers[2]['w']     one run: three layers
    y @ critic[0]['w']    y @ critic[1]['w']                           of the same line, another

Two or three products of one line are layers where their arguments are numbered so, and a line that
runs over the same numbers again is another pass over the same layers.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from ...hlo import Instruction
from ..base.operands import source_of
from ..base.table import NO_TARGET, Table

# (text before the number, text behind it)
Key = tuple[str, str]
# With more anchors than this in one computation nobody waits for their arguments.
MOST_ANCHORS = 4000

_NUMBER = re.compile(r"\d+")


def weights(anchor: Instruction) -> list[int]:
    """Arguments that only copies, casts and gathers stand between them and the product."""
    operands = anchor.operands
    if anchor.opcode == "while" and operands and operands[0].opcode == "tuple":
        operands = operands[0].operands
    out = []
    for o in operands:
        made = o.opcode == "get-tuple-element" and o.operands and o.operands[0].opcode == "while"
        if not made and (len(o.shape.dimensions) > 1 or o.shape.is_tuple):
            source = source_of(o, NO_TARGET)
            if source.kind == "argument":
                out.append(source.instruction.index)
    return out


def numbers(t: Table, row: int) -> dict[Key, int]:
    """Numbers in the names of a product's arguments; none where arguments have no names."""
    out: dict[Key, int] = {}
    for w in weights(t.instructions[row]):
        path = t.instructions[w].op_name
        if "[" not in path and "." not in path:
            continue
        for m in _NUMBER.finditer(path):
            out[path[: m.start()], path[m.end() :]] = int(m.group())
    return out


class _Run:
    def __init__(self, row: int, found: dict[Key, int]) -> None:
        self.rows = [row]
        self.last = found
        self.steps: dict[Key, int] | None = None  # key → +1 or -1, those that all rows agree on

    def goes_on(self, found: dict[Key, int]) -> dict[Key, int]:
        """The steps that are left when a row with these numbers comes next."""
        steps = {k: n - self.last[k] for k, n in found.items() if k in self.last}
        if self.steps is None:
            return {k: s for k, s in steps.items() if s in (1, -1)}
        return {k: s for k, s in self.steps.items() if steps.get(k) == s}


def runs(t: Table, rows: Sequence[int]) -> list[list[int]]:
    """``rows``, in order of work, as runs over numbered arguments; [] where some are in none.

    Runs over other arguments, or over the same once more: stages of one network, which differ
    in another number, are told apart by their shapes.
    """
    made: list[_Run] = []
    for row in rows:
        found = numbers(t, row)
        if not found:
            return []
        for run in reversed(made):
            steps = run.goes_on(found)
            if steps:
                run.rows.append(row)
                run.last, run.steps = found, steps
                break
        else:
            made.append(_Run(row, found))
    if any(len(r.rows) < 2 for r in made) or _stages([r.steps or {} for r in made]):
        return []
    return [r.rows for r in made]


def _stages(steps: list[dict[Key, int]]) -> bool:
    """Whether two runs are over arguments of one name but for a number that is not the layer's."""
    texts = [frozenset(before + "#" + behind for before, behind in found) for found in steps]
    masked = [frozenset(_NUMBER.sub("#", text) for text in mine) for mine in texts]
    return any(
        masked[a] & masked[b] and not texts[a] & texts[b]
        for b in range(len(steps))
        for a in range(b)
    )


def family(t: Table, rows: Sequence[int]) -> dict[Key, int]:
    """Keys that number these rows one after another, with the number of the first."""
    first, second = numbers(t, rows[0]), numbers(t, rows[-1])
    far = len(rows) - 1
    return {k: n for k, n in first.items() if k in second and abs(second[k] - n) == far}


def layers_of(
    t: Table, spines: Sequence[tuple[Sequence[Sequence[int]], Sequence[int]]], rows: Sequence[int]
) -> dict[int, int]:
    """Rows → the number of their layer, where all numbered arguments of a row say the same.

    ``spines``: rows of each signature, by layer, and the numbers of the layers.
    """
    if len(rows) > MOST_ANCHORS:
        return {}
    # text before a number → number → layer
    known: dict[str, dict[int, int]] = {}
    unsure: set[str] = set()
    for spine, identity in spines:
        for signature in spine:
            for key, first in family(t, signature).items():
                step = 1 if numbers(t, signature[-1])[key] >= first else -1
                mine = {first + step * k: number for k, number in enumerate(identity)}
                if known.setdefault(key[0], mine) != mine:
                    unsure.add(key[0])
    out = {}
    for row in rows:
        said = {
            known[before].get(n, -1)
            for (before, _), n in numbers(t, row).items()
            if before in known and before not in unsure
        }
        if len(said) == 1 and -1 not in said:
            out[row] = said.pop()
    return out
