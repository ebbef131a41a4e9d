"""Bytes, text, a file or a folder → ``hlo.Module``.

    source ─▶ bytes ─▶ unwrap gzip ─▶ the first reader of READERS that accepts them ─▶ Modules
                  └▶ a folder: choose one file by module and stage, then the same

Readers distinguish formats by content, never by file name. Adding one is one file and one
line in READERS. Readers raise nothing but ``ReadError``.
"""

from __future__ import annotations

import gc
import re
from collections.abc import Callable
from dataclasses import dataclass

from ..hlo import Module, ReadWarning
from .entries import ModuleEntry
from .errors import ReadError
from .files import compiled, dump_directory, gzipped
from .files.decode import saved_as_text, to_text
from .files.sources import Source, load
from .hlo.text import read_hlo_text
from .proto import proto
from .stablehlo import bytecode as mlir_bytecode
from .stablehlo import text as stablehlo_text
from .xplane.xplane import is_trace, trace_modules

__all__ = ["ModuleEntry", "ReadError", "list_modules", "read_modules"]


@dataclass(frozen=True, slots=True)
class Reader:
    """``accepts`` looks at the content; ``read`` gets all of it and a name for messages.

    ``sure``: what it accepts can be nothing else, so if it fails no other reader is tried.
    """

    name: str
    accepts: Callable[[bytes], bool]
    read: Callable[[bytes, str], list[Module]]
    sure: bool = False


def _read_hlo(data: bytes, name: str) -> list[Module]:
    text, warnings = to_text(data)
    modules = read_hlo_text(text, warnings)
    # Prose and source code may contain lines that look like computations and instructions.
    named = _HEADER.search(text) is not None or _ENTRY.search(text) is not None
    return [m for m in modules if named or any(i.shape.is_array for i in m.instructions)]


_ENTRY = re.compile(r"^[ \t]*ENTRY[ \t]+%?[\w.\-]+[ \t]*[({]", re.M)
_HEADER = re.compile(r"\bHloModule\s+\S")


def _read_stablehlo(data: bytes, name: str) -> list[Module]:
    text, warnings = to_text(data)
    return stablehlo_text.read_all(text, warnings)


READERS: tuple[Reader, ...] = (
    Reader("profiler trace", is_trace, trace_modules, sure=True),
    Reader("a file beside a dump", compiled.is_beside, compiled.refuse_beside, sure=True),
    Reader("HLO proto", proto.is_proto, proto.read_file),
    Reader("StableHLO bytecode", mlir_bytecode.is_bytecode, mlir_bytecode.read_bytecode),
    Reader("exported program", mlir_bytecode.is_exported, mlir_bytecode.read_exported),
    Reader("compilation cache", compiled.is_cache_entry, compiled.read_cache_entry, sure=True),
    Reader("HLO proto as text", compiled.is_proto_text, compiled.read_proto_text),
    Reader("StableHLO text", stablehlo_text.is_stablehlo, _read_stablehlo),
    Reader("HLO text", lambda d: True, _read_hlo),
)


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
    return modules


def _first_reader(data: bytes, name: str) -> list[Module]:
    refusals = []
    for reader in READERS:
        if not reader.accepts(data):
            continue
        try:
            modules = reader.read(data, name)
        except ReadError as e:
            if reader.sure:
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
