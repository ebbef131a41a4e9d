"""What makes the compiler slow, as XLA itself reports it."""

from __future__ import annotations

from collections.abc import Iterator

from ...hlo.target import SlowToCompile
from ..text.units import duration
from . import limits
from .facts import Facts
from .finding import Finding

_FOLDING = "Constant folding"
_AS_ARGUMENT = (
    "pass the array that it is computed from as an argument: what depends on an argument is"
    " computed when the step runs"
)


def slow_to_compile(facts: Facts) -> Iterator[Finding]:
    """Operations that XLA's alarm names, one finding for each line."""
    lines: dict[object, list[SlowToCompile]] = {}
    for slow in facts.target.slow_to_compile:
        lines.setdefault(slow.frame or slow.instruction, []).append(slow)
    whole = facts.target.compile_seconds
    for found in lines.values():
        first, seconds = found[0], sum(slow.seconds for slow in found)
        of = f" of {duration(whole)}" if whole is not None and whole >= seconds else ""
        name = first.op_name.rpartition("/")[2] or "an operation"
        is_folded = first.what.startswith(_FOLDING)
        if is_folded:
            title = (
                f"XLA spends {duration(seconds)}{of} compiling on folding `{name}` to a constant"
            )
            why = (
                "no argument of the function goes into it, so XLA computes it while compiling, and "
                "the result is part of the program"
            )
        else:
            title = f"XLA spends {duration(seconds)}{of} compiling on `{name}`"
            why = f"XLA's own alarm: {first.what}"
        yield Finding(
            "slow-to-compile",
            title,
            f"{why}: {first.instruction} (measured by XLA in this capture)",
            _AS_ARGUMENT if is_folded else "",
            limits.WORTH_SAYING,
            frame=first.frame,
        )
