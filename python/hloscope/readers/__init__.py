"""Bytes, text, a file or a folder → ``hlo.Module``.

    source ─▶ bytes ─▶ unwrap gzip ─▶ the first reader of READERS that accepts them ─▶ Modules
                  └▶ a folder: choose one file by module and stage, then the same

Formats are distinguished by content, never by file name. Adding one is a file of ``formats`` and a
line in its READERS. Readers raise nothing but ``ReadError``.
"""

from __future__ import annotations

import gc

from ..hlo import Module, ReadWarning
from .entries import ModuleEntry
from .errors import ReadError
from .files import dump_directory, gzipped
from .files.decode import saved_as_text
from .files.sources import Source, load
from .formats import READERS
from .hlo.checks import refuse_impossible

__all__ = ["ModuleEntry", "ReadError", "list_modules", "read_modules"]


def read_modules(data: bytes | str, name: str = "") -> list[Module]:
    """Every module in the data, in order. Raises ``ReadError`` when there is none."""
    warnings: list[ReadWarning] = []
    if isinstance(data, str):
        data = data.encode("utf-8", errors="surrogatepass")
    collecting = gc.isenabled()
    gc.disable()  # a reader makes a million objects and no garbage: collecting costs a third
    try:
        for _ in range(3):  # a .gz inside a .gz happens
            if gzipped.is_gzip(data):
                data, found = gzipped.unwrap(data, name)
            elif gzipped.is_bzip2_or_xz(data):
                data, found = gzipped.unwrap_other(data, name)
            else:
                break
            warnings += found
        modules = _first_reader(data, name)
    except ReadError:
        raise
    except Exception as e:  # a reader's own mistake must not look like the user's
        what = f"{type(e).__name__}: {e}"[:200]
        raise ReadError(f"{name or 'the data'} could not be read ({what})") from e
    finally:
        if collecting:
            gc.enable()
    for m in modules:
        m.warnings = (*warnings, *m.warnings)
        refuse_impossible(m, name)
    return modules


def _first_reader(data: bytes, name: str) -> list[Module]:
    refusals = []
    for reader in READERS:
        if not reader.accepts(data):
            continue
        try:
            modules = reader.read(data, name)
        except ReadError as e:
            if reader.IS_CERTAIN:
                raise
            refusals.append(str(e))
            continue
        if modules:
            return modules
    if refusals:
        raise ReadError(refusals[0] + saved_as_text(data))
    what = "is empty" if not data.strip() else "holds no HLO module"
    what += saved_as_text(data)
    raise ReadError(
        f"{name or 'the text'} {what}; expected HLO text with a line 'HloModule …', an "
        "HloProto, StableHLO text or bytecode, any of them gzip'd, or a folder of xla_dump_to"
    )


def list_modules(source: Source) -> tuple[ModuleEntry, ...]:
    """What ``read`` can choose from: the modules of a file, or a folder's at every stage.

    Raises ``ReadError``.
    """
    data, origin, path = load(source)
    if path is not None and path.is_dir():
        return dump_directory.list_directory(path)
    return tuple(
        ModuleEntry(m.name, k, "", path, len(m.instructions))
        for k, m in enumerate(read_modules(data, origin))
    )
