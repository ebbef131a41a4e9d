"""What is known of a pass's new instructions at once: copies, and replacements of others."""

from __future__ import annotations

import re
from collections import defaultdict
from difflib import SequenceMatcher

from ....readers.hlo.pass_lines import Line
from .. import match as pass_match
from .evidence import Evidence
from .how import How

_MOST_LINES = 4000
_COPIED = re.compile(r"(?:^wide\.)|(?:(?:\.(?:\d+|clone|remat\d*)|_spmd)+\Z)")


class Known(Evidence):
    """Copied computations, and instructions without an op name."""

    def _clones(self) -> None:
        """Computations that are copies of others, instruction by instruction."""
        w = self.w
        new = [(p, now) for p, was, now in w.changes if not was]
        if not new:
            return
        sizes = {len(now) for _, now in new}
        sources: defaultdict[object, list[str]] = defaultdict(list)
        for name, body in w.prior.items():
            if len(body.lines) in sizes:
                key = tuple((x.opcode, x.dense, x.op_name) for x in body.lines)
                sources[key].append(name)
        for place, now in new:
            lines = [w.present(n) for n in now.values()]
            found = sources.get(tuple((x.opcode, x.dense, x.op_name) for x in lines), [])
            name = w.steps.places[place].name
            for choose in (
                lambda s, name=name: name.startswith(s + "."),
                lambda s, name=name: pass_match.stem(s) == pass_match.stem(name),
            ):
                found = [s for s in found if choose(s)] or found
            for s in found[:4]:
                twins = w.prior_alive[w.prior_place_of[s]].values()
                for n, twin in zip(now.values(), twins, strict=True):
                    self.clone_of[n].append(twin)
            if not found:
                self._almost(name, now, lines)

    def _almost(self, name: str, now: dict[str, int], lines: list[Line]) -> None:
        """For a computation that was copied and changed: what is in the same order in both."""
        w = self.w
        sources = [s for s in w.prior if _was(name) == _was(s)]
        sources = [s for s in sources if s not in w.place_of] or sources
        if len(sources) != 1 or len(lines) > _MOST_LINES:
            return
        body = w.prior[sources[0]]
        if len(body.lines) > _MOST_LINES:
            return
        old = [(x.opcode, x.dense, x.op_name) for x in body.lines]
        new = [(x.opcode, x.dense, x.op_name) for x in lines]
        twins = [w.prior_alive[w.prior_place_of[sources[0]]][x.name] for x in body.lines]
        nodes = list(now.values())
        match = SequenceMatcher(None, old, new, autojunk=False)
        for a, b, size in match.get_matching_blocks():
            for k in range(size):
                self.almost[nodes[b + k]] = twins[a + k]

    def _plumbing(self) -> None:
        """Instructions without an op name: by copy, by name, or by what they replaced."""
        w = self.w
        gone: defaultdict[str, list[int]] = defaultdict(list)
        for g in w.gone:
            gone[w.line[g].name].append(g)
        numbers: dict[tuple[int, str], int] = {}
        for p, before in w.prior_alive.items():
            for y in before.values():
                if w.line[y].opcode == "parameter":
                    numbers[p, w.line[y].arguments] = y
        for n, new in self.fresh.items():
            line = w.present(n)
            if line.opcode == "parameter" and n not in self.outside:
                same = numbers.get((self.place[n], line.arguments))
                if same is not None and w.line[same].dense == line.dense:
                    self._stands_for(n, same)
                    continue
            if line.op_name or (not new and n in self.unnamed):
                continue
            ways = (
                self.clone_of.get(n, ()),
                [y for y, _ in self.pairs.get(n, ())],
                gone.get(line.name, ()),
                self.replaced.get(n, ()),
            )
            for found in ways:
                ids = {
                    w.of(g): g
                    for g in found
                    if g in w.line
                    and w.line[g].opcode == line.opcode
                    and (not w.line[g].op_name or line.opcode == "parameter")
                }
                if len(ids) == 1:
                    self._stands_for(n, ids.popitem()[1])
                    break

    def _stands_for(self, n: int, y: int) -> None:
        """Gives a node without an op name the identity of one before."""
        self.unnamed[n] = self.w.of(y)
        self.how[n] = self.w.how.get(y, How.FIRST)


def _was(name: str) -> str:
    """``wide.region_1.4_spmd.clone`` → ``region_1``: passes' copies keep part of the name."""
    while (short := _COPIED.sub("", name)) != name:
        name = short
    return name
