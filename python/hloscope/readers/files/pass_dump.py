"""The passes of one module in an ``xla_dump_to`` folder, in the order they ran.

    module_0002.jit_step.0007.spmd-cleanup.after_dce.before_tuple-simplifier.txt
                         │    │            └ the pass that ran
                         │    └ the pipeline it is in
                         └ its place among all dumps of the module

XLA writes a file after each pass that changed the module, and at the start of each pipeline.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ...hlo import Module
from ...hlo.snapshots import Snapshot
from ..entries import ModuleEntry
from ..errors import ReadError
from . import dump_directory

_STAGE = re.compile(r"(\d{4,6})\.(?:(.*)\.)?after_(.*?)(?:\.before_(.*))?\Z", re.S)
START = "pipeline-start"


LAST = "after_optimizations"


def pass_of(stage: str) -> tuple[int, str, str, str] | None:
    """(number, pipeline, pass, next pass) of a dump's stage.

    The pass is "" at the start of a pipeline, and ``after_optimizations`` at the very end.
    """
    if stage.endswith("before_optimizations") and not stage[:1].isdigit():
        return -1, "", "", ""
    if stage.endswith(LAST) and not stage[:1].isdigit():
        return 1 << 30, "", LAST, ""
    m = _STAGE.fullmatch(stage)
    if m is not None:
        return int(m[1]), m[2] or "", "" if m[3] == START else m[3], m[4] or ""
    return None


def list_passes(
    folder: str | Path, module: str | int | None = None, name: str | None = None
) -> tuple[ModuleEntry, ...]:
    """Files of one module's passes; of the largest module if none is named.

    ``name`` separates modules with the same number: several processes may have dumped to one
    folder. Raises ``ReadError`` if the folder has none, saying how to dump them.
    """
    path = Path(folder).expanduser()
    if not path.is_dir():
        raise ReadError(f"{str(folder)[:300]} is not a folder; give one that xla_dump_to wrote")
    entries = dump_directory.list_directory(path)
    passed = tuple(e for e in entries if pass_of(e.stage) is not None and name in (None, e.name))
    if not any(e.stage[:1].isdigit() for e in passed):
        raise ReadError(
            f"{path} holds no passes: dump them with "
            "XLA_FLAGS='--xla_dump_to=DIR --xla_dump_hlo_as_text --xla_dump_hlo_pass_re=.*'"
        )
    chosen, _ = dump_directory.choose_entry(passed, module, None, str(path))
    return tuple(e for e in passed if (e.name, e.index) == (chosen.name, chosen.index))


def read_passes(
    folder: str | Path,
    module: str | int | None = None,
    name: str | None = None,
    data: Callable[[Path], bytes] = Path.read_bytes,
) -> tuple[Snapshot, ...]:
    """The snapshots of one module (see ``list_passes``). Raises ``ReadError``.

    Files are read on demand, by ``data``, which may raise ``OSError``.
    """
    found = []
    for entry in list_passes(folder, module, name):
        step = pass_of(entry.stage)
        assert entry.path is not None
        assert step is not None
        file = _DumpFile(entry.path, data)
        try:
            size = entry.path.stat().st_size
        except OSError:
            continue  # removed since the folder was listed
        found.append(Snapshot(*step, size, file.text, file.module))
    return tuple(found)


@dataclass(frozen=True)
class _DumpFile:
    """One file of a dump, read by ``data``; a class, so that snapshots can be pickled."""

    path: Path
    data: Callable[[Path], bytes]

    def content(self) -> bytes:
        try:
            return self.data(self.path)
        except OSError as e:
            raise ReadError(f"cannot read {self.path}: {e.strerror or e}") from None

    def module(self) -> Module:
        from .. import read_modules

        return read_modules(self.content(), self.path.name)[0]

    def text(self) -> str:
        if self.path.suffix in (".txt", ".hlo"):
            # line ends as when a file is read as text
            return io.TextIOWrapper(io.BytesIO(self.content()), "utf-8", "replace").read()
        return self.module().text
