"""Which layer a product is in, by the arguments of its weights: ``params['layers'][3]['q']``.

    x @ layers[0]['w']    x @ layers[1]['w']    x @ layers[2]['w']     one run: three layers
    y @ critic[0]['w']    y @ critic[1]['w']                           of the same line, another

Two or three products of one line are layers if their arguments are numbered so, and a line that
runs over the same numbers again is another pass over the same layers.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from ....hlo import Instruction, Module
from ...base.operands import argument_of
from ...base.table import Table, per_module

# (text before the number, text behind it)
Key = tuple[str, str]
# Products of one line in more runs than this follow no order of their arguments.
MOST_RUNS = 64

# A longer word says less than a letter would.
LONGEST = 20

_NUMBER = re.compile(r"\d+")
_WORD = re.compile(r"\w+")


def weights(anchor: Instruction) -> list[int]:
    """Arguments with only copies, casts and gathers between them and the product."""
    known = _known_weights(anchor.module)
    if anchor.index not in known:
        known[anchor.index] = _weights(anchor)
    return known[anchor.index]


@per_module
def _known_weights(module: Module) -> dict[int, list[int]]:
    """Instruction → its weights, as far as they were asked for."""
    return {}


def _weights(anchor: Instruction) -> list[int]:
    operands = anchor.operands
    if anchor.opcode == "while" and operands and operands[0].opcode == "tuple":
        operands = operands[0].operands
    out = []
    for o in operands:
        made = o.opcode == "get-tuple-element" and o.operands and o.operands[0].opcode == "while"
        if not made and (len(o.shape.dimensions) > 1 or o.shape.is_tuple):
            argument = argument_of(o)
            if argument is not None:
                out.append(argument.index)
    return out


def numbers(t: Table, row: int) -> dict[Key, int]:
    """Numbers in the names of a product's arguments that are the same in all of them.

    None if arguments have no names.
    """
    out: dict[Key, int] = {}
    several: set[Key] = set()
    for w in weights(t.instructions[row]):
        path = t.instructions[w].op_name
        if "[" not in path and "." not in path:
            continue
        for m in _NUMBER.finditer(path):
            key = path[: m.start()], path[m.end() :]
            if out.setdefault(key, int(m.group())) != int(m.group()):
                several.add(key)
    return {key: n for key, n in out.items() if key not in several}


class _Run:
    def __init__(self, row: int, found: dict[Key, int]) -> None:
        self.rows = [row]
        self.last = found
        self.steps: dict[Key, int] | None = None  # key → +1 or -1, where all rows agree

    def goes_on(self, found: dict[Key, int]) -> dict[Key, int]:
        """The steps that remain when a row with these numbers comes next."""
        steps = {k: n - self.last[k] for k, n in found.items() if k in self.last}
        if self.steps is None:
            return {k: s for k, s in steps.items() if s in (1, -1)}
        return {k: s for k, s in self.steps.items() if steps.get(k) == s}


def runs(t: Table, rows: Sequence[int]) -> list[list[int]]:
    """``rows``, in order of work, as runs over numbered arguments; [] if some are in none.

    Runs are over different arguments, or over the same ones again. Stages of one network, whose
    arguments differ in another number, give []: shapes separate them. Rows whose weights were
    updated in between, as in meta-learning, form runs as long as the first.
    """
    by_row = {row: numbers(t, row) for row in rows}
    if not all(by_row.values()):
        return _updated(t, rows, by_row)
    made: list[_Run] = []
    for row in rows:
        found = by_row[row]
        for run in reversed(made):
            steps = run.goes_on(found)
            if steps:
                run.rows.append(row)
                run.last, run.steps = found, steps
                break
        else:
            made.append(_Run(row, found))
            if len(made) > MOST_RUNS:
                return []
    if any(len(r.rows) < 2 for r in made) or _stages([r.steps or {} for r in made]):
        return []
    return [r.rows for r in made]


def _updated(t: Table, rows: Sequence[int], by_row: dict[int, dict[Key, int]]) -> list[list[int]]:
    """Runs over all the layers there are, then as many once more and more, of weights unknown."""
    length = next((n for n, row in enumerate(rows) if not by_row[row]), 0)
    first = rows[:length]
    if length < 2 or len(rows) % length or any(by_row[row] for row in rows[length:]):
        return []
    if len(runs(t, first)) != 1:
        return []
    # an argument of one layer more says that the weights are merely not known
    entry = t.instructions[rows[0]].module.entry
    arguments = {i.op_name for i in entry.parameters} if entry is not None else set()
    for (before, behind), n in family(t, first).items():
        step = 1 if by_row[first[-1]][before, behind] > n else -1
        for k in (n - step, n + step * length):
            if f"{before}{k}{behind}" in arguments:
                return []
    return [list(rows[k : k + length]) for k in range(0, len(rows), length)]


def _stages(steps: list[dict[Key, int]]) -> bool:
    """Whether the arguments of two runs differ only in a number that is not the layer's."""
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


def spans(t: Table, rows: Sequence[int]) -> dict[str, frozenset[int]]:
    """Text before a number → the numbers of all rows, where each row has one there."""
    found: dict[str, set[int]] = {}
    for n, row in enumerate(rows):
        mine = numbers(t, row)
        if not n:
            found = {before: set() for before, _ in mine}
        said: dict[str, set[int]] = {}
        for (before, _), number in mine.items():
            said.setdefault(before, set()).add(number)
        found = {b: held | said[b] for b, held in found.items() if len(said.get(b, ())) == 1}
        if not found:
            break
    return {before: frozenset(held) for before, held in found.items()}


def told_apart(t: Table, spines: Sequence[Sequence[Sequence[int]]]) -> list[str]:
    """A word for each stack from its arguments: ``teacher`` and ``student``; [] if none tells.

    ``teacher['layers'][0]`` and ``student['layers'][0]`` differ in their first word; stacks over
    the same arguments have the same word, and those over none that are known have "".
    """
    paths: list[tuple[str, ...]] = []
    for spine in spines if len(spines) > 1 else ():
        found = Counter(
            tuple(_WORD.findall(before)) for rows in spine for before, _ in family(t, rows)
        )
        paths.append(found.most_common(1)[0][0] if found else ())
    known = [path for path in paths if path]
    for at, words in enumerate(zip(*known, strict=False)):
        if len(set(words)) > 1:
            told = all(w[:1].isalpha() and len(w) <= LONGEST for w in words)
            return [path[at] if path else "" for path in paths] if told else []
    return []


def layers_of(
    t: Table, spines: Sequence[tuple[Sequence[Sequence[int]], Sequence[int]]], rows: Sequence[int]
) -> dict[int, int]:
    """Rows → the number of their layer, where all numbered arguments of a row agree.

    ``spines``: rows of each signature, by layer, and the numbers of the layers.
    """
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
