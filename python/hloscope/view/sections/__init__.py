"""Optional parts of the View, written in this order.

A section is a name and a function ``add(builder, context)`` that adds its own columns or
``context.extras[name]``. One that fails becomes a warning and leaves nothing behind.
Adding a section is one file here and one line in ``SECTIONS``.
"""

from __future__ import annotations

from collections.abc import Callable

from ..builder import Builder
from ..context import Context
from . import (
    collectives,
    compiler,
    cost,
    findings,
    measured,
    memory,
    moves,
    own,
    sharding,
    source,
    timeline,
    trace,
    transitions,
)

Section = Callable[[Builder, Context], None]

SECTIONS: tuple[tuple[str, Section], ...] = (
    ("cost", cost.add),
    ("timeline", timeline.add),
    ("memory", memory.add),
    ("source", source.add),
    ("measured", measured.add),
    ("trace", trace.add),
    ("own", own.add),
    ("collectives", collectives.add),
    ("compiler", compiler.add),
    ("findings", findings.add),
    ("sharding", sharding.add),
    ("transitions", transitions.add),
    ("moves", moves.add),
)

# Those whose figures depend on the chip: all that a block for another chip holds. Of a conditional
# the branch counts that takes most time on it, so figures of lines depend on it, too.
_OF_CHIP = ("cost", "timeline", "findings", "moves", "source")
OF_CHIP = tuple((n, add) for n, add in SECTIONS if n in _OF_CHIP)
