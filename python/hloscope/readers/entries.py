"""ModuleEntry: one module (at one stage) in a source; choosing among them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ..hlo import Module, ReadWarning
from .errors import ReadError


@dataclass(frozen=True, slots=True)
class ModuleEntry:
    """A module that ``read(source, module=name or index, stage=stage)`` would return."""

    name: str
    index: int  # position in a file; XLA's module number in a dump directory
    stage: str = ""  # file: ''; dump directory: before_optimizations, …, after_optimizations
    path: Path | None = None
    instructions: int | None = None  # None if it would take reading the file


def name_or_number(text: str | None) -> str | int | None:
    """What a user wrote to choose a module: a number where it is one, else a name."""
    is_number = text is not None and re.fullmatch(r"-?[0-9]{1,9}", text)
    return int(text) if is_number and text is not None else text


def choose_module(modules: Sequence[Module], module: str | int | None, name: str) -> Module:
    """One of a file's modules: by name, by index, else the one with the most instructions.

    Raises ``ReadError`` naming what there is. A choice by default becomes a warning.
    """
    if isinstance(module, int):
        if not -len(modules) <= module < len(modules):
            raise ReadError(
                f"{name} holds {len(modules)} module(s); there is no module={module}, "
                f"use 0 to {len(modules) - 1}"
            )
        return modules[module]
    if module is not None:
        found = [m for m in modules if m.name == module]
        if not found:
            raise ReadError(f"{name} holds no module {module!r}{suggest(module, modules)}")
        if len(found) == 1:
            return found[0]
        modules = found
    if len(modules) == 1:
        return modules[0]
    chosen = max(modules, key=lambda m: len(m.instructions))
    others = ", ".join(
        f"{k}: {m.name} ({len(m.instructions)} instructions)"
        for k, m in list(enumerate(modules))[:10]
    )
    chosen.warnings += (
        ReadWarning(
            f"{len(modules)} modules here, the largest was taken; choose with module=: {others}",
            is_note=True,
        ),
    )
    return chosen


def suggest(wanted: str, modules: Sequence[Module | ModuleEntry]) -> str:
    """``; did you mean 'jit_f'? It holds: …``."""
    names = list(dict.fromkeys(m.name for m in modules))
    from difflib import get_close_matches

    close = get_close_matches(wanted, names, 1)
    mean = f"; did you mean {close[0]!r}?" if close else ";"
    more = ", …" if len(names) > 20 else ""
    return f"{mean} it holds {', '.join(names[:20])}{more}"
