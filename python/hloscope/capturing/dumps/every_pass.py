"""Every pass of one compile: dumped, compressed, and read back on demand.

Measured on an 8-device GPT step: 74 dumps, 13 MB of text, 1.5 MB kept. A program of 100,000
instructions writes 120 times 25 MB: what exceeds ``MAX_KEPT_BYTES`` compressed is left out,
with a note.
"""

from __future__ import annotations

import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

from ...hlo import Module
from ...hlo.snapshots import Snapshot
from ...readers import read_modules
from ...readers.files.pass_dump import list_passes, pass_of
from ..cells import NONE, Cells
from ..marks import marks
from . import provenance

MAX_KEPT_BYTES = 256 << 20


def options(folder: str, *, origins: bool = False) -> dict[str, Any]:
    """Compiler options that dump the module after every pass that changes it.

    ``origins``: also Shardy's record of where shardings come from, which has to be named.
    """
    return {
        "xla_dump_to": folder,
        "xla_dump_hlo_pass_re": f"{provenance.ORIGINS}|.*" if origins else ".*",
        "xla_dump_hlo_as_text": True,
    }


def collect(
    folder: str, marked: marks.Marked | None, cells: Cells = NONE
) -> tuple[tuple[Snapshot, ...], str]:
    """The passes of the program dumped into a folder, and what is missing ('' for nothing)."""
    found: list[Snapshot] = []
    kept = left_out = 0
    before = b""
    for entry in list_passes(folder, _first_module(folder)):
        step = pass_of(entry.stage)
        assert entry.path is not None
        assert step is not None
        data = entry.path.read_bytes()
        if found and data == before:  # says which pass ended here, and takes no room
            number, pipeline, passed, upcoming = step
            found.append(
                replace(
                    found[-1], number=number, pipeline=pipeline, passed=passed, upcoming=upcoming
                )
            )
            continue
        before = data
        packed = zlib.compress(data, 1)
        if kept + len(packed) > MAX_KEPT_BYTES:
            left_out += 1
            continue
        kept += len(packed)
        found.append(_KeptDumps(packed, marked, cells).snapshot(step, data))
    missing = f"{left_out} passes are left out: they would need too much memory"
    return tuple(found), missing if left_out else ""


def _first_module(folder: str) -> int | None:
    """XLA numbers modules as it meets them: the first is the program, others are its parts."""
    numbers = [int(p.name[7:11]) for p in Path(folder).glob("module_[0-9][0-9][0-9][0-9].*.txt")]
    return min(numbers, default=None)


class _KeptDumps:
    """One dump, compressed."""

    def __init__(self, packed: bytes, marked: marks.Marked | None, cells: Cells) -> None:
        self.packed, self.marked, self.cells = packed, marked, cells

    def snapshot(self, step: tuple[int, str, str, str], data: bytes) -> Snapshot:
        seen = None if self.marked is None else self.marked.numbers(data)
        return Snapshot(*step, len(data), self.text, self.module, seen)

    def raw(self) -> str:
        return self.cells.text(zlib.decompress(self.packed).decode("utf-8", errors="replace"))

    def text(self) -> str:
        return self.raw() if self.marked is None else self.marked.clean_dump(self.raw())

    def module(self) -> Module:
        if self.marked is None:
            return read_modules(self.raw())[0]
        return marks.take_out(self.marked, self.raw(), lambda text: read_modules(text)[0])
