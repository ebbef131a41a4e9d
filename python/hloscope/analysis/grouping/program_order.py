"""The order in which the person's program makes the calls that stand beside one another.

    real = disc(images)          1    forward: as the program runs
    fake = disc(gen(noise))      3, 2: a call runs after what its arguments call
    loss = hinge(real, fake)     4    backward: the other way round

Data flows along this order. What flows against it is the compiler's: a cast or a mask that two
calls share is kept in one of them, a fusion writes what two of them want.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ..base.lines.op_name import LAYER, Path
from .call_tree import AT_LINE, label
from .group_nodes import Node


@dataclass(frozen=True)
class ProgramOrder:
    """What the person's code says of calls, by line and column as in their names.

    ``turn``: calls in the order in which their functions make them. ``once``: those made once each
    time the code around them runs; ``inner``: those in a loop of a loop. ``exact``: whether a
    capture tells all calls apart. ``jitted``: the function that is around all.
    """

    turn: Mapping[str, int] = field(default_factory=dict)
    once: frozenset[str] = frozenset()
    inner: frozenset[str] = frozenset()
    exact: bool = False
    jitted: str = ""

    def is_one_call(self, path: Path) -> bool:
        """Whether a path that ends with a call is known to be one call, not several of a line."""
        one, in_a_turn = True, False
        for name in path[label(path[0]) == self.jitted :] if path else ():
            at = _place(name)
            if at.endswith(LAYER):
                one, in_a_turn = True, at.removesuffix(LAYER).isdigit()
            elif at:
                # a layer that repetition found is a turn of the loop that its calls are in
                in_a_turn = in_a_turn and at not in self.inner
                one = one and (in_a_turn or at in self.once or self.exact)
                in_a_turn = False
        return one

    def of(self, children: Sequence[Node], by_lines: bool = False) -> list[int]:
        """Numbers of those children whose order is known, in it: the calls of one function.

        As the program runs: in a backward pass it is the other way round.

        ``by_lines``: where the text is not known, in the order of their lines, which is another one
        where the arguments of a call have lines of their own.

        Of several calls of one line nobody knows which of them another line comes between.
        """
        at: dict[tuple[Path, int], list[int]] = defaultdict(list)
        for k, child in enumerate(children):
            if not child.path or child.path[-1].endswith(LAYER):
                continue
            caller, place = child.path[:-1], _place(child.path[-1])
            line = int(place.partition(":")[0] or 0)
            if place in self.turn:
                if self.is_one_call(child.path):
                    at[caller, self.turn[place]].append(k)
            elif by_lines and not self.turn and line and self.is_one_call(caller):
                at[caller, line].append(k)
        lists: dict[Path, list[tuple[int, int]]] = defaultdict(list)
        for (caller, when), found in at.items():
            if len(found) == 1:
                lists[caller].append((when, found[0]))
        most = max(lists.values(), key=len, default=[])
        return [k for _, k in sorted(most)]


def _place(name: str) -> str:
    """Line and column of a call, from its name."""
    return name.partition(AT_LINE)[2].lstrip("'")
