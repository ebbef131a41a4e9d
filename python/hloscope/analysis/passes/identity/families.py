"""Families: the first instructions that an op name leaves in question."""

from __future__ import annotations

from collections.abc import Iterable

from .op_names import inlined
from .state import RowState


class Families:
    """The candidates for each op name of a row, each computed once."""

    def __init__(self, state: RowState) -> None:
        self.state, self.walk = state, state.walk
        self._found: dict[tuple[str, int], dict[int, list[int]]] = {}

    def of(self, node: int, name: str) -> dict[int, list[int]]:
        """Candidate first instructions → the nodes before this row that come from them."""
        walk = self.walk
        place, own_name = -1, name
        before: Iterable[int] = walk.index.get(name, ())
        if not before:
            for outer, own in inlined(name):
                before = walk.index.get(own, ())
                if before:
                    own_name, place = own, self.state.place[node]
                    before = self._called_as(outer, before) or before
                    break
        key = name, place
        if key not in self._found:
            out: dict[int, list[int]] = {}
            for old in before:
                ids = walk.parts.get(old, {}).get(own_name)
                if ids:
                    out.setdefault(walk.main.get(ids[0], ids[0]), []).append(old)
            if not out:
                for ids in walk.ever.get(name, ()):
                    out.setdefault(walk.main.get(ids[0], ids[0]), [])
            self._found[key] = out
        return self._found[key]

    def _called_as(self, outer: str, before: Iterable[int]) -> list[int]:
        """Those whose computation is called with a name that ``outer`` ends with."""
        walk = self.walk
        known: dict[int, bool] = {}

        def is_called(place: int) -> bool:
            if place not in known:
                known[place] = False
                known[place] = any(
                    (by := walk.line[caller].op_name) == outer
                    or (by and outer.endswith("/" + by))
                    # named by its own caller
                    or (not by and caller in walk.place and is_called(walk.place[caller]))
                    for caller in walk.callers.get(walk.names_before.get(place, ""), ())
                    if caller in walk.line
                )
            return known[place]

        return [old for old in before if is_called(walk.place[old])]
