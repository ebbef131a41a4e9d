"""Which computation is the program, in a text where no line says ENTRY.

XLA takes the last one, and so do texts written by hand. But XLA prints ENTRY last: a dump
that was cut off has none either, and its last computation is some small helper whose
figures must not pass for the program's.
"""

from __future__ import annotations

from ...hlo.module import Computation, Module
from ...hlo.shape import parse_shape, split_top, without_comments


def without_entry(module: Module, cut: bool, by_hand: bool) -> tuple[Computation | None, str]:
    """The program, or None if nothing shows that it is here; and a warning for the user.

    ``cut``: whether the text ended inside a computation. ``by_hand``: whether no line begins
    a computation the way XLA prints it.
    """
    last = module.computations[-1]
    if cut:
        return None, "the dump is cut off before its ENTRY computation: totals are unknown"
    by_name = {c.name: c for c in module.computations}
    reached = {last.name}
    waiting = [last]
    while waiting:
        for i in waiting.pop().instructions:
            for c in i.called_computations:
                if c.name not in reached:
                    reached.add(c.name)
                    waiting.append(c)
    module.__dict__.pop("_by_name", None)
    whole = by_hand or len(reached) == len(by_name)
    if last.root is None or not whole or not _fits(module, last):
        return None, (
            "no ENTRY computation, and the last one does not use all others: the dump may be "
            "cut off, totals are unknown"
        )
    last.is_entry = True
    return last, f"no ENTRY computation; taking %{last.name}, the last, as XLA does"


def _fits(module: Module, c: Computation) -> bool:
    """Whether the header's layout is this computation's, and its frames are used at all."""
    layout = module.attributes.get("entry_computation_layout", "")
    if not layout:
        return not module.frames.frames
    inside, _, _ = layout.strip()[1:-1].partition("->")
    inside = without_comments(inside).strip()
    try:
        wanted = [parse_shape(p).dense_text for p in split_top(inside[1:-1]) if p]
    except ValueError:
        return False
    return wanted == [p.shape.dense_text for p in c.parameters]
