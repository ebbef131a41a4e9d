"""Constraints of a search: "fits 16 GiB", "no all-to-all", "no all-gather over model"."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from ...analysis.text.units import size
from ...hlo.collective_kinds import KINDS
from ..running.candidate_figures import CandidateFigures

# a user's own: True or None meets it, False or a sentence does not
Constraint = str | Callable[[CandidateFigures], Any]
Check = Callable[[CandidateFigures], str | None]

_FITS = re.compile(r"fits\s+([\d.]+)\s*([kmgt]?i?b)\s*$", re.I)
_NO = re.compile(r"no\s+([a-z-]+)(?:\s+over\s+(\S+))?\s*$", re.I)
_UNITS = {"b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12}
_UNITS |= {"kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40}


def checks(constraints: Sequence[Constraint] | Constraint) -> tuple[Check, ...]:
    """A function per constraint, whose answer says why it is not met, or None.

    Raises ``ValueError`` for an unknown constraint.
    """
    given = (constraints,) if isinstance(constraints, str) or callable(constraints) else constraints
    return tuple(_check(c) for c in given)


def _check(constraint: Constraint) -> Check:
    if not isinstance(constraint, str):
        return _own(constraint)
    m = _FITS.match(constraint)
    if m and m[2].lower() in _UNITS:
        wanted = f"{m[1]} {m[2]}"
        limit = float(m[1]) * _UNITS[m[2].lower()]

        def fits(f: CandidateFigures) -> str | None:
            if f.peak_bytes <= limit:
                return None
            return f"needs {size(f.peak_bytes)}, more than {wanted}"

        return fits
    m = _NO.match(constraint)
    if m:
        kind, axis = m[1].lower(), m[2]
        if kind not in KINDS and kind != "collectives":
            raise ValueError(f"{constraint!r}: there are {', '.join(KINDS)}, collectives")

        def none_of(f: CandidateFigures) -> str | None:
            found = [
                c
                for c in f.collectives
                if kind in (c[0], "collectives") and (axis is None or axis in c[1].split("+"))
            ]
            return f"has {sum(c[2] for c in found)} {kind}" if found else None

        return none_of
    raise ValueError(
        f'cannot read the constraint {constraint!r}; write "fits 16 GiB", "no all-to-all" or '
        '"no all-gather over model", or give a function'
    )


def _own(function: Callable[[CandidateFigures], Any]) -> Check:
    def check(f: CandidateFigures) -> str | None:
        answer = function(f)
        if isinstance(answer, str):
            return answer
        name = getattr(function, "__name__", "the given constraint")
        return f"{name} does not hold" if answer is False else None

    return check
