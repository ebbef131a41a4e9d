"""Notebook cells by their numbers: IPython compiles each under the name of a temporary file.

    /tmp/ipykernel_7/25936981.py    In [2]    if it last ran as cell 2

The numbers are those at the time of a capture. They are filled in where texts and frames of a
program are taken from jax and XLA, so that nothing made from them, saved pages above all, holds a
path that only means something to one process.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from ..hlo import Module
from ..hlo.origins.operations import Frame
from ..hlo.parts import escape


@dataclass(frozen=True)
class Cells:
    """Cell names by the file each cell was compiled as; empty outside of IPython."""

    names: Mapping[str, str]
    _met: dict[str, str] = field(default_factory=dict)  # name → file, of those in the program

    def name(self, file: str) -> str:
        """ "In [2]" for a cell's file; any other file unchanged.

        So is one whose number another file has: code that ran silently has that of the next cell.
        """
        name = self.names.get(file)
        if name is None or self._met.setdefault(name, file) != file:
            return file
        return name

    def file(self, name: str) -> str:
        """The file of "In [2]"; any other name unchanged."""
        return self._met.get(name, name)

    def text(self, text: str) -> str:
        """Renames cells in a text from jax or XLA, in which files may be written with C escapes."""
        if not any(root in text for root in self._roots):
            return text
        return self._pattern.sub(self._renamed, text)

    def _renamed(self, m: re.Match[str]) -> str:
        file = self._spelled[m.group()]
        name = self.name(file)
        return m.group() if name == file else name

    def frames(self, rows: Sequence[tuple[Frame, ...]]) -> tuple[tuple[Frame, ...], ...]:
        """Renames cells in the Python frames of operations."""
        if not self.names:
            return tuple(rows)
        return tuple(
            tuple(replace(f, file=self.name(f.file)) if f.file in self.names else f for f in row)
            for row in rows
        )

    def module(self, module: Module) -> Module:
        """Renames cells in a module read from a proto, whose text is not written yet."""
        if self.names:
            files = tuple(map(self.name, module.frames.files))
            module.frames = replace(module.frames, files=files)
            for i in module.instructions:
                if "source_file=" in i.attribute_text:
                    i.attribute_text = self.text(i.attribute_text)
        return module

    @cached_property
    def _spelled(self) -> dict[str, str]:
        return {spelled: file for file in self.names for spelled in (file, escape(file))}

    @cached_property
    def _roots(self) -> set[str]:
        """Prefixes of the files: searched for first, as texts are long and cells many."""
        return {s[: max(s.rfind("/"), s.rfind("\\"), 12) + 1] for s in self._spelled}

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        return re.compile("|".join(map(re.escape, sorted(self._spelled, key=len, reverse=True))))


NONE = Cells({})


def cells() -> Cells:
    """The cells of the IPython that runs this, as they are numbered now."""
    module = sys.modules.get("IPython")
    shell = module.get_ipython() if module is not None else None
    known = getattr(getattr(shell, "compile", None), "_filename_map", None)
    if not isinstance(known, dict):
        return NONE
    return Cells({str(file): f"In [{int(n)}]" for file, n in known.items() if n})
