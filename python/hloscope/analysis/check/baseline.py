"""Figures of a run that was stored, which a later run may not exceed.

baseline_of(cap) ─▶ {"peak_bytes", "wire_bytes", "instructions", "seconds"}
a file           ─▶ {"hloscope_baseline": 1, "programs": {"jit_step": {…}, …}}
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..base.captured import Captured
from ..comms.collectives import collectives
from ..cost.chip import chip_of
from ..cost.cost import estimated
from ..memory.memory import analysed

VERSION = 1
# Figure → its unit, in the order they are reported.
FIGURES = {"peak_bytes": "B", "wire_bytes": "B", "instructions": "", "seconds": "s"}


def baseline_of(cap: Captured) -> dict[str, Any]:
    """What a program takes, per device; None is unknown. ``seconds`` is the modelled step.

    Figures that are no whole truth (a loop of unknown trip count, a dump before scheduling) are
    unknown here.
    """
    module, target = cap.module, cap.target
    chip = chip_of(target)
    found: dict[str, Any] = dict.fromkeys(FIGURES)
    found |= {"instructions": len(module.instructions), "chip": chip.id if chip else None}
    if module.dialect != "hlo" or module.entry is None:
        return found
    memory = analysed(module, target)
    if not memory.peak_source.endswith("not scheduled"):
        found["peak_bytes"] = memory.peak_bytes
    total = collectives(module, target).total
    if not (total.wire_is_unknown or total.is_lower_bound or total.is_one_trip):
        found["wire_bytes"] = total.wire_bytes
    cost = estimated(module, target)
    if cost.roofline is not None and not cost.unknown_trip_counts and not cost.may_not_run:
        found["seconds"] = cost.roofline.total_seconds
    return found


def read_baseline(path: str | Path, program: str) -> Mapping[str, Any]:
    """The stored figures of one program, by its module's name. Raises ``ValueError``."""
    programs = _stored(Path(path))
    if program not in programs:
        have = ", ".join(sorted(programs)) or "none"
        raise ValueError(f"{path} has no figures of {program}; it has those of: {have}")
    found: Mapping[str, Any] = programs[program]
    for name in FIGURES:
        value = found.get(name)
        if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
            raise ValueError(f"{name} in {path} is a number or null, not {value!r}")
    return found


def baseline_text(path: str | Path, cap: Captured) -> str:
    """The content of the file with this program's figures, beside those of others in it.

    Raises ``ValueError`` for a file that is no baseline.
    """
    programs = dict(_stored(Path(path))) if Path(path).exists() else {}
    programs[cap.module.name] = baseline_of(cap)
    content = {"hloscope_baseline": VERSION, "programs": dict(sorted(programs.items()))}
    return json.dumps(content, indent=2) + "\n"


def _stored(path: Path) -> Mapping[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ValueError(f"{path}: {error.strerror or error}") from error
    except ValueError as error:
        raise ValueError(f"{path} is not valid JSON: {error}") from error
    programs = content.get("programs") if isinstance(content, dict) else None
    if not isinstance(programs, dict) or not all(isinstance(p, dict) for p in programs.values()):
        raise ValueError(f"{path} is no baseline: write one with hloscope check --write-baseline")
    if content.get("hloscope_baseline") != VERSION:
        raise ValueError(f"{path} is a baseline of another version of hloscope: write it again")
    return programs
